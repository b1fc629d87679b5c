"""Area of the accelerator by Yosys (pyosys): LUTs, registers, DSPs, RAMs, longest path of each module.

And the bytes of all its memories.

The whole core is mapped twice, module by module: to Xilinx UltraScale+ and to Lattice ECP5. What a module has
holds what the modules in it have; of a module that is there several times, the largest. Paths are an estimate
before routing, of UltraScale+ alone: see `benchmarks.rtl_paths`. *inside*: paths within the module, whose
inputs are there at once; *in the core*: paths that end in it, wherever they begin.
Needs `pip install pyosys`, whose frontend `read_slang` reads the SystemVerilog as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option
from benchmarks.rtl_paths import Netlist, library
from lfopt.isa.systemverilog import generate
from lfopt.isa.tables import (
    ACCUMULATORS,
    COMPUTATION,
    DESCRIPTORS,
    FACTOR_BYTES,
    FACTOR_ROWS,
    LOOP_WORDS,
    TABLE_BYTES,
    TABLES,
    TRANSFER,
    WORD_BYTES,
)

RTL = Path(__file__).resolve().parents[1] / "hw_rtl" / "rtl"
FAMILIES = {"xcup": "UltraScale+", "ecp5": "ECP5"}
SYNTHESIS = {"xcup": "synth_xilinx -family xcup -noiopad -noclkbuf", "ecp5": "synth_ecp5 -noflatten"}
# What a cell counts as: (kind, how many). Memories in LUTs count as the LUTs that they take.
CELLS: dict[str, tuple[str, float]] = {
    **{f"LUT{n}": ("LUT", 1) for n in range(1, 7)},
    **dict.fromkeys(("RAM32M16", "RAM64M8", "RAM256X1D"), ("LUT", 8)),
    **dict.fromkeys(("RAM32M", "RAM64M", "RAM128X1D"), ("LUT", 4)),
    **dict.fromkeys(("RAM32X1D", "RAM64X1D"), ("LUT", 2)),
    **dict.fromkeys(("SRL16E", "SRLC32E"), ("LUT", 1)),
    **dict.fromkeys(("FDRE", "FDSE", "FDCE", "FDPE"), ("FF", 1)),
    "DSP48E2": ("DSP", 1), "RAMB36E2": ("RAM", 1), "RAMB18E2": ("RAM", 0.5), "URAM288": ("RAM", 1),
    "CCU2C": ("LUT", 2), "TRELLIS_DPR16X4": ("LUT", 4), "TRELLIS_FF": ("FF", 1), "MULT18X18D": ("DSP", 1),
    "DP16KD": ("RAM", 1),
}  # fmt: skip
KINDS = ("LUT", "FF", "DSP", "RAM")
QUEUE_DEPTH, ENTRY_BITS = 8, 6 + 16 + 12 + 16 + 10 + 10 + 8 + 3 + 48


@dataclass
class Module:
    """Of one module with all that is in it: the most of any of its instances."""

    instances: int
    cells: dict[str, float]  # by kind
    inside: int  # ps
    within_core: int  # ps
    start: str  # where the latter begins
    end: str


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--buffer-bytes", type=int, default=262144)
    parser.add_argument("--top", default="lf_core", help="another module, for a quick look")
    parser.add_argument("--one", choices=FAMILIES, help=argparse.SUPPRESS)
    add_option(parser)
    arguments = parser.parse_args()
    if arguments.one:
        modules = measured(arguments.one, arguments.top, arguments.lanes, arguments.buffer_bytes)
        print(json.dumps({name: asdict(module) for name, module in modules.items()}))
        return
    sheet = Sheet("rtl-area", arguments.results)
    start = time.monotonic()
    with ThreadPoolExecutor(len(FAMILIES)) as pool:
        xilinx, lattice = pool.map(lambda family: in_process(family, arguments), FAMILIES)
    table = Table("module", title="Cells, and the longest path in ns before routing")
    for head in (
        "times",
        "LUT",
        "FF",
        "DSP",
        "RAM",
        "ns inside",
        "ns in the core",
        *(f"ECP5 {kind}" for kind in KINDS),
    ):
        table.add_column(head, justify="right")
    for name, of in sorted(xilinx.items(), key=lambda item: (item[0] != arguments.top, item[0])):
        beside = lattice[name].cells if name in lattice else {}
        paths = (f"{of.inside / 1000:.1f}", f"{of.within_core / 1000:.1f}" if of.within_core else "")
        table.add_row(name, str(of.instances), *counts(of.cells), *paths, *counts(beside))
    sheet.show(table)
    core = xilinx[arguments.top]
    sheet.show(
        f"The longest path of {arguments.top}: "
        f"{core.within_core / 1000:.2f} ns, from {core.start} to {core.end}."
    )
    sheet.show(
        "UltraScale+: LUTs, DSP48E2, RAMB36; ECP5: LUT4, MULT18X18D, DP16KD. Both in "
        f"{time.monotonic() - start:.0f} s."
    )
    sizes = Table("memory")
    sizes.add_column("bytes", justify="right")
    for name, size in memories(arguments.lanes, arguments.buffer_bytes).items():
        sizes.add_row(name, f"{size:,}")
    sheet.show(sizes)
    sheet.write()


def counts(cells: Mapping[str, float]) -> list[str]:
    return [f"{cells.get(kind, 0):,g}" for kind in KINDS]


def in_process(family: str, arguments: argparse.Namespace) -> dict[str, Module]:
    options = [
        "--one",
        family,
        "--top",
        arguments.top,
        "--lanes",
        str(arguments.lanes),
        "--buffer-bytes",
        str(arguments.buffer_bytes),
    ]
    done = subprocess.run(
        [sys.executable, __file__, *options], capture_output=True, text=True, check=False, env={**os.environ}
    )
    if done.returncode:
        raise SystemExit("\n".join((done.stdout + done.stderr).strip().splitlines()[-20:]))
    return {
        name: Module(**fields) for name, fields in json.loads(done.stdout.strip().splitlines()[-1]).items()
    }


def measured(family: str, top: str, lanes: int, buffer_bytes: int) -> dict[str, Module]:
    """Every module of a design, by name."""
    with tempfile.TemporaryDirectory() as folder:
        netlist, modules, cells_sim = mapped(family, top, lanes, buffer_bytes, Path(folder))
    cells = netlist["cells"]
    homes = {name: instance(name, modules) for name in cells}
    delays = library(cells_sim) if family == "xcup" else {}
    core = Netlist(netlist, delays) if delays else None
    ends = core.ends_by_cell() if core else {}
    by_kind: dict[str, Module] = {}
    for path, kind in modules.items():
        held = {name: cell for name, cell in cells.items() if within(homes[name], path)}
        some = Counter[str]()
        for cell in held.values():
            what, number = CELLS.get(cell["type"], ("", 0))
            some[what] += number  # pyright: ignore[reportArgumentType] (halves)
        inside = Netlist({**netlist, "ports": {}, "cells": held}, delays).longest().ps if core else 0
        longest, name = max(((ps, name) for name, ps in ends.items() if name in held), default=(0, ""))
        route = core.route(name) if core and name else None
        new = Module(1, dict(some), inside, longest, route.start if route else "", route.end if route else "")
        if kind in by_kind:
            old = by_kind[kind]
            new = Module(
                old.instances + 1,
                max(old.cells, new.cells, key=lambda some: some.get("LUT", 0)),
                max(old.inside, new.inside),
                *max((old.within_core, old.start, old.end), (new.within_core, new.start, new.end)),
            )
        by_kind[kind] = new
    return by_kind


def mapped(
    family: str, top: str, lanes: int, buffer_bytes: int, folder: Path
) -> tuple[dict, dict[str, str], str]:
    """(a flat netlist, module by place in it, Yosys' library of cells)."""
    import pyosys  # noqa: PLC0415 (not everyone has it)
    from pyosys import libyosys  # noqa: PLC0415

    for name, text in generate():
        (folder / name).write_text(text)
    first = [folder / name for name, _ in generate()] + sorted(RTL.glob("*_pkg.sv"))
    files = [*first, *(path for path in sorted(RTL.glob("*.sv")) if path not in first)]
    source = (RTL / f"{top}.sv").read_text()
    sizes = {"Lanes": lanes, "BufferBytes": buffer_bytes, "BufferWords": buffer_bytes // lanes}
    generics = " ".join(
        f"-G{name}={size}"
        for name, size in sizes.items()
        if re.search(rf"\bparameter int unsigned {name}\b", source)
    )
    design = libyosys.Design()
    before, after = folder / "before.json", folder / "after.json"
    with contextlib.redirect_stdout(io.StringIO()):
        libyosys.run_pass(
            f"read_slang --keep-hierarchy -D SYNTHESIS {generics} --top {top} {' '.join(map(str, files))}",
            design,
        )
        libyosys.run_pass(f"{SYNTHESIS[family]} -top {top}", design)
        libyosys.run_pass(f"tee -q -o {before} stat -json", design)
        libyosys.run_pass("flatten", design)
        libyosys.run_pass(f"write_json {after}", design)
    modules = {top: top}
    for name in json.loads(before.read_text())["modules"]:
        kind, dollar, path = name.lstrip("\\").partition("$")
        if dollar and path.startswith(f"{top}."):
            modules[path] = kind
    modules = {path.removeprefix(top).removeprefix("."): kind for path, kind in modules.items()}
    library_text = (Path(str(pyosys.__file__)).parent / "share" / "xilinx" / "cells_sim.v").read_text()
    return json.loads(after.read_text())["modules"][top], modules, library_text


def instance(cell: str, modules: Mapping[str, str]) -> str:
    """Which of these instances a cell of the flat netlist is in."""
    parts = re.sub(r"\$flatten|\\", "", cell).split(".")
    for k in range(len(parts) - 1, 0, -1):
        if (path := ".".join(parts[:k])) in modules:
            return path
    return ""


def within(home: str, path: str) -> bool:
    return not path or home == path or home.startswith(f"{path}.")


def memories(lanes: int, buffer_bytes: int) -> dict[str, int]:
    """Bytes of every memory."""
    return {
        "buffer (4 banks, 1R1W)": buffer_bytes,
        "accumulators (2 banks of int32)": 2 * ACCUMULATORS * lanes * 4,
        "weights beside the array (2 tiles)": 2 * lanes * lanes,
        "factors": FACTOR_ROWS * lanes * FACTOR_BYTES,
        "tables": TABLES * TABLE_BYTES,
        "tables in use (2, for each lane)": 2 * TABLE_BYTES * lanes,
        "descriptors (EXEC; LOAD and STORE)": DESCRIPTORS
        * (COMPUTATION.used_bits + 2 * TRANSFER.used_bits)
        // 8,
        "words of an outermost loop": LOOP_WORDS * WORD_BYTES,
        "queues (3)": 3 * QUEUE_DEPTH * ENTRY_BITS // 8,
    }


if __name__ == "__main__":
    main()
