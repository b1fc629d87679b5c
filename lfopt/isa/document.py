"""The instruction set as a page of text, made from the same tables as the hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum

from lfopt.isa import tables
from lfopt.isa.fields import WordLayout
from lfopt.isa.registers import FIXED, Register

LAYOUTS = (tables.DESCRIBE, tables.RUN, tables.LOOP, tables.PLAIN, tables.TRANSFER, tables.COMPUTATION)
ENUMS = (
    tables.Opcode, tables.Kind, tables.Class, tables.Space, tables.Operation, tables.Scale, tables.Error,
    tables.Queue, tables.Counter,
)  # fmt: skip


def page() -> str:
    """Markdown: what the words mean, field by field."""
    return "\n".join(
        (
            "# The accelerator's instruction set",
            "",
            (tables.__doc__ or "").strip(),
            "",
            *_limits(),
            *_layouts(),
            *_enums(),
            *registers(),
        )
    )


def _limits() -> Iterator[str]:
    yield "## Limits"
    yield ""
    run = tables.RUN.bits // tables.WORD_BITS
    yield (
        f"* a word has {tables.WORD_BITS} bits; "
        f"LOAD, STORE and EXEC take {run} words, DESCRIBE {1 + tables.PAYLOAD_WORDS}"
    )
    yield (
        f"* {tables.DESCRIPTORS} descriptors; "
        f"{tables.LOOP_DEPTH} loops in each other, of {tables.LOOP_WORDS} words together"
    )
    yield f"* {tables.ACCUMULATORS} columns of sums; windows of {tables.WINDOW} columns meet in one cycle"
    yield (
        f"* {tables.FACTOR_ROWS} rows of LANES factors of {tables.FACTOR_BYTES} bytes; "
        f"{tables.TABLES} tables of {tables.TABLE_BYTES} bytes"
    )
    yield ""


def _layouts() -> Iterator[str]:
    for layout in LAYOUTS:
        yield from (
            f"## {layout.name} ({layout.bits} bits)",
            "",
            layout.about,
            "",
            "| bits | field | meaning |",
            "|---|---|---|",
        )
        yield from _rows(layout)
        yield ""


def _rows(layout: WordLayout) -> Iterator[str]:
    for field in layout.fields:
        low = layout.offsets[field.name]
        sign = " (signed)" if field.signed else ""
        yield f"| {low + field.bits - 1}:{low} | `{field.name}`{sign} | {field.about} |"


def _enums() -> Iterator[str]:
    for members in ENUMS:
        yield from (f"## {members.__name__}", "", re.sub(r"\s+", " ", (members.__doc__ or "").strip()), "")
        yield from (f"* {_value(member)}" for member in members)
        yield ""


def _value(member: IntEnum) -> str:
    return f"{member.value} {member.name}" + (f": {member.about}" if isinstance(member, tables.Told) else "")


def registers(heading: str = "##") -> Iterator[str]:
    """The registers: what they are for, then their fields."""
    yield from (f"{heading} Registers", "", *register_table(), "")
    for register in Register:
        if register.of.fields:
            yield from (
                f"{heading}# {register.name}",
                "",
                "| bits | field | meaning |",
                "|---|---|---|",
                *_rows(register.layout),
                "",
            )


def register_table() -> Iterator[str]:
    """Address, access, value after reset and meaning of every register."""
    yield from ("| address | register | software may | after reset | meaning |", "|---|---|---|---:|---|")
    for register in Register:
        fixed = FIXED.get(register)
        if register.of.reset is not None:
            reset = f"{register.of.reset:,}"
        elif fixed is not None:
            reset = f"`0x{fixed:08X}`"
        else:
            reset = "as built"
        multiple = f"; a multiple of {register.of.multiple:,}" if register.of.multiple > 1 else ""
        yield (
            f"| `0x{register:03x}` | `{register.name}` | {register.access.value} | {reset} | "
            f"{register.about}{multiple} |"
        )
