"""The tables of the instruction set as a SystemVerilog package, lf_isa_pkg."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum

from lfopt.isa import tables
from lfopt.isa.fields import WordLayout
from lfopt.isa.registers import ADDRESS_BITS, FIXED, PAGE_BYTES, Register

ENUMS = {
    "opcode_e":    ("Op",    tables.Opcode,    4),
    "kind_e":      ("Kind",  tables.Kind,      2),
    "class_e":     ("Class", tables.Class,     3),
    "space_e":     ("Space", tables.Space,     2),
    "operation_e": ("Do",    tables.Operation, 3),
    "scale_e":     ("Scale", tables.Scale,     2),
    "error_e":     ("Err",   tables.Error,     8),
    "queue_e":     ("Queue", tables.Queue,     2),
    "register_e":  ("Reg",   Register,         ADDRESS_BITS),
    "counter_e":   ("Count", tables.Counter,   8),
}  # fmt: skip
CONSTANTS = (
    "WORD_BITS PAYLOAD_WORDS PAYLOAD_BITS BEAT_BYTES DESCRIPTORS LOOP_DEPTH LOOP_WORDS NO_WAIT WINDOW TABLES "
    "FACTOR_ROWS ACCUMULATORS FACTOR_BYTES MEAN_BITS TABLE_BYTES"
).split()
LAYOUTS = {
    "describe_t": tables.DESCRIBE, "run_t": tables.RUN, "loop_t": tables.LOOP, "plain_t": tables.PLAIN,
    "transfer_t": tables.TRANSFER, "computation_t": tables.COMPUTATION,
}  # fmt: skip
TRAITS = {
    "has_weights": "Whether an operation takes weights.",
    "needs_second": "Whether an operation has a second operand.",
    "has_window": "Whether an operation takes a window of any size, not one element.",
}
WORDS_OF_C = ("abort", "queue")  # that Verilator does not accept as names


def package() -> str:
    """The text of lf_isa_pkg.sv."""
    lines = [
        "// The instruction set of the accelerator. Made from lfopt.isa: do not edit.",
        "package lf_isa_pkg;",
    ]
    lines += [f"  parameter int unsigned {_camel(name)} = {getattr(tables, name)};" for name in CONSTANTS]
    lines += [
        f"  parameter int unsigned Counters = {len(tables.Counter)};",
        f"  parameter int unsigned PageBytes = {PAGE_BYTES};",
        *_constants(),
    ]
    for layout in tables.PAYLOADS.values():
        lines.append(
            f"  parameter int unsigned {layout.name.capitalize()}Bits = {layout.used_bits}; "
            " // that are not reserved"
        )
    for name, (prefix, members, bits) in ENUMS.items():
        lines += ["", *_enum(name, prefix, members, bits)]
    for name, layout in LAYOUTS.items():
        lines += ["", *_struct(name, layout)]
    for name, about in TRAITS.items():
        lines += ["", *_trait(name, about)]
    for register in Register:
        if register.of.fields:
            lines += ["", *_struct(f"{register.layout.name}_reg_t", register.layout)]
    return "\n".join((*lines, "endpackage", ""))


def _constants() -> Iterator[str]:
    """What registers hold: fixed, or after reset."""
    for register, value in FIXED.items():
        yield f"  parameter logic [31:0] Fixed{_camel(register.name)} = 32'h{value:08X};"
    for register in Register:
        if register.of.reset:
            yield f"  parameter logic [31:0] Reset{_camel(register.name)} = 32'd{register.of.reset};"


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _enum(name: str, prefix: str, members: type[IntEnum], bits: int) -> Iterator[str]:
    about = re.sub(r"\s+", " ", (members.__doc__ or "").strip())
    yield f"  // {about}"
    yield f"  typedef enum logic [{bits - 1}:0] {{"
    entries = [f"    {prefix}{_camel(member.name)} = {bits}'d{member.value}" for member in members]
    yield ",\n".join(entries)
    yield f"  }} {name};"


def _struct(name: str, layout: WordLayout) -> Iterator[str]:
    """Fields from the highest bit down, as packed structures have them."""
    yield f"  // {layout.about}"
    yield "  typedef struct packed {"
    if spare := layout.bits - layout.used_bits:
        yield f"    logic [{spare - 1}:0] reserved;  // 0"
    for field in reversed(layout.fields):
        kind = "logic signed" if field.signed else "logic"
        width = f" [{field.bits - 1}:0]" if field.bits > 1 or field.signed else ""
        identifier = f"{field.name}_" if field.name in WORDS_OF_C else field.name
        yield f"    {kind}{width} {identifier};  // {field.about}"
    yield f"  }} {name};"


def _trait(name: str, about: str) -> Iterator[str]:
    """A column of the table of operations."""
    members = ", ".join(f"Do{_camel(member.name)}" for member in tables.Operation if getattr(member, name))
    yield f"  // {about}"
    yield f"  function automatic logic {name}(logic [2:0] operation);"
    yield f"    return operation inside {{{members}}};"
    yield "  endfunction"


def generate() -> Sequence[tuple[str, str]]:
    """Files to write beside the RTL: (name, text)."""
    return (("lf_isa_pkg.sv", package()),)
