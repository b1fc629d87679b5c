"""The instruction set: words hold their fields, text assembles to them again, the package is the tables'."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hw_rtl.build import available, tool
from lfopt.isa import document, tables
from lfopt.isa.fields import BadField, Field, WordLayout
from lfopt.isa.program import BadProgram, Command, assemble, check_loops, decode, encode, listing, unrolled
from lfopt.isa.registers import ADDRESS_BITS, BITS, BYTES, Register
from lfopt.isa.systemverilog import package

LAYOUTS = (tables.DESCRIBE, tables.RUN, tables.LOOP, tables.PLAIN, tables.TRANSFER, tables.COMPUTATION)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_unpack_undoes_pack(layout: WordLayout) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = {
            field.name: int(rng.integers(field.least, field.most, endpoint=True)) for field in layout.fields
        }
        assert layout.unpack(layout.pack(values)) == values


def test_fields_refuse_what_they_do_not_hold() -> None:
    with pytest.raises(BadField, match=r"run\.count: found 4096; accepted: 0 to 4095"):
        tables.RUN.pack({"count": 4096})
    with pytest.raises(BadField, match="found a field 'rows'"):
        tables.RUN.pack({"rows": 1})
    with pytest.raises(BadField, match="bits above 19 are set"):
        tables.LOOP.unpack(1 << 20)
    assert Field("x", 4, "", signed=True).least == -8


def random_command(rng: np.random.Generator) -> Command:
    def values(layout: WordLayout, *apart: str) -> dict[str, int]:
        named = (field for field in layout.fields if field.name not in apart and rng.random() < 0.6)
        drawn = {field.name: int(rng.integers(field.least, field.most, endpoint=True)) for field in named}
        return {
            name: int(rng.integers(0, 3)) if name in ("class_", "space", "operation", "scale") else value
            for name, value in drawn.items()
        }

    if rng.random() < 0.3:
        kind = tables.Kind(int(rng.integers(1, 3)))
        return Command(
            tables.Opcode.DESCRIBE, values(tables.PAYLOADS[kind], "kind"), int(rng.integers(64)), kind
        )
    opcode = tables.Opcode(int(rng.integers(2, 5)))
    return Command(opcode, values(tables.RUN, "opcode"))


def test_a_listing_assembles_to_the_same_words() -> None:
    rng = np.random.default_rng(1)
    commands = [random_command(rng) for _ in range(300)]
    program = encode(commands)
    assert encode(decode(program)) == program
    assert encode(assemble(listing(decode(program)))) == program


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["jump 3"], "line 1: 'jump 3': found 'jump'"),
        (["halt", "load 3 count=5000"], "line 2: .*run.count: found 5000"),
        (["describe 3 transfer colour=3"], "line 1: .*found a field 'colour_'"),
        (["loop"], "line 1"),
    ],
)
def test_bad_lines_are_named(lines: list[str], message: str) -> None:
    with pytest.raises(BadProgram, match=message):
        assemble(lines)


def test_bad_words_are_named() -> None:
    with pytest.raises(BadProgram, match="word 0: 0 is not a valid Opcode"):
        decode(bytes(16))
    with pytest.raises(BadProgram, match="found 5 bytes"):
        decode(bytes(5))
    with pytest.raises(
        BadProgram, match=f"word 0: transfer: found 0 words; accepted: {tables.PAYLOAD_WORDS}"
    ):
        decode(encode([Command(tables.Opcode.DESCRIBE, {}, 0, tables.Kind.TRANSFER)])[:16])


def test_loops_unroll_and_numbers_move() -> None:
    commands = assemble(
        [
            "loop 2",
            "loop 3",
            "load 1 row=5 count=1 row_step0=2 row_step1=10 slot_step1=1",
            "end",
            "end",
            "halt",
        ]
    )
    assert [(c.values["row"], c.values["slot"]) for c in unrolled(commands)] == [
        (5, 0),
        (7, 0),
        (9, 0),
        (15, 1),
        (17, 1),
        (19, 1),
    ]


NESTED = ["loop 1"] * 4 + ["end"] * 4
LONG = ["loop 2", *["load 0 count=1"] * 300, "end"]


@pytest.mark.parametrize("lines", [["end"], ["loop 2", "halt"], ["loop 0", "end"], NESTED, LONG])
def test_bad_loops_are_refused(lines: list[str]) -> None:
    with pytest.raises(BadProgram):
        check_loops(assemble(lines))


def test_the_page_names_every_field_and_the_package_every_member() -> None:
    page, text = document.page(), package()
    for layout in LAYOUTS:
        assert all(f"`{field.name}`" in page for field in layout.fields)
    for error in tables.Error:
        assert f"{error.value} {error.name}" in page
        assert re.search(rf"Err{error.name.capitalize()} = 8'd{error.value}\b", text)
    traits = {
        "has_weights": "DoConv, DoDepthwise",
        "needs_second": "DoAdd, DoMul",
        "has_window": "DoConv, DoDepthwise, DoSum, DoMax",
    }
    for trait, members in traits.items():
        assert re.search(
            rf"{trait}\(logic \[2:0\] operation\);\s+return operation inside {{{members}}};", text
        )
    for register in Register:
        assert f"`0x{register:03x}` | `{register.name}`" in page
        assert all(f"`{field.name}` | {field.about}" in page for field in register.of.fields)


def test_registers_do_not_overlap_and_hold_their_fields() -> None:
    ends = [(int(register), register + BYTES * register.of.count) for register in Register]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert ends[-1][1] <= 1 << ADDRESS_BITS
    for register in Register:
        assert register % BYTES == 0
        assert register.layout.used_bits <= BITS
        assert register.of.reset is None or register.of.reset % register.of.multiple == 0
    assert (Register.WATCHDOG.of.reset, Register.CYCLE_LIMIT.of.reset) > (0, 0)


@pytest.mark.skipif("verilator" in available(), reason="no verilator")
def test_the_package_is_systemverilog(tmp_path: Path) -> None:
    (tmp_path / "lf_isa_pkg.sv").write_text(package())
    sizes = {
        "run_t": tables.RUN,
        "transfer_t": tables.TRANSFER,
        "computation_t": tables.COMPUTATION,
        "describe_t": tables.DESCRIBE,
    }
    checks = "\n".join(
        f'  if ($bits(lf_isa_pkg::{name}) != {layout.bits}) $error("{name}");'
        for name, layout in sizes.items()
    )
    (tmp_path / "check.sv").write_text(f"module check;\n{checks}\nendmodule\n")
    subprocess.run(
        [tool("verilator"), "--lint-only", "--top-module", "check", "lf_isa_pkg.sv", "check.sv"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
