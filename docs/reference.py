"""Tables of the documentation that come from the code: `python docs/reference.py` writes them anew.

A page holds each between `<!-- from the code: NAME -->` and `<!-- end -->`. A test says when one is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from lfopt.app.cli import COMMANDS
from lfopt.app.config import INSTALLED, Config, SearchConfig, load_hardware
from lfopt.app.schema import described
from lfopt.ir import (
    Copy,
    DramBytes,
    DramTensor,
    Energy,
    Hardware,
    ModelReference,
    Place,
    Plan,
    PlannedGroup,
    SearchRecord,
    Totals,
)
from lfopt.ir.hardware import LEAST_0
from lfopt.isa.document import register_table
from lfopt.isa.manifest import Header, MapEntry
from lfopt.isa.registers import Register
from lfopt.isa.tables import Error, Queue, Told
from search.methods import METHODS

PAGES = Path(__file__).parent
BLOCK = re.compile(r"(<!-- from the code: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
UNITS = {  # of a field of Hardware, where its name does not end with it
    "dram_row_align": "bytes",
    "channel_align": "elements",
    "constant_align": "bytes",
    "parameter_channels": "channels",
    "parameter_tables": "tables",
    "mac_rows": "input channels",
    "mac_columns": "output channels",
    "weight_port_bytes": "bytes per cycle",
    "accumulator_banks": "banks",
    "accumulator_columns": "pixels",
    "window_columns": "pixels per cycle",
    "depthwise_columns": "pixels per cycle",
    "vector_lanes": "elements per cycle",
    "weight_latency": "cycles",
    "port_bytes": "bytes per cycle",
    "port_latency": "cycles",
    "transfers_in_flight": "transfers",
    "queue_depth": "commands",
    "overlap": "-",
    "byte_slack": "share",
    "energy": "see below",
    "name": "-",
}
ENDINGS = {"_bytes": "bytes", "_cycles": "cycles", "_hz": "Hz", "_pj": "pJ"}
FIELDS = {"split": "guidance", "start": "propose", "latency": "profile"}  # of SearchConfig, that stand for options of a search
PAPERS = "the figures of arXiv 2501.00636 imply 2 bytes"
SOURCES = {  # of a default of Hardware; all others describe the accelerator of hw_rtl, or are assumed
    "buffer_bytes": "-",
    "element_bytes": PAPERS,
    "weight_bytes": "as `element_bytes`",
    "bias_bytes": "as `element_bytes`",
    "accumulator_bytes": "int32 sums",
    **dict.fromkeys(("dram_row_align", "channel_align", "constant_align"), "no padding, as in the papers' formulas"),
    "parameter_store_bytes": "chips of the papers have none",
    "parameter_tables": "no number of their own",
    "clock_hz": "assumed",
    "byte_slack": "nothing is given up",
    "energy": "see below",
    "name": "-",
}


def unit(name: str) -> str:
    """Unit of a field of Hardware or Energy."""
    return UNITS.get(name) or next(unit for ending, unit in ENDINGS.items() if name.endswith(ending))


def _hardware() -> Iterator[str]:
    built = load_hardware(INSTALLED / "hardware" / "accelerator_256k.yaml")
    yield "| field | default | least | unit | default from | meaning |"
    yield "|---|---:|---:|---|---|---|"
    for field in described(Hardware):
        least = "" if field.type in ("true or false", "text", "object") else int(field.name not in LEAST_0)
        default = f"`{field.default}`" if field.default else "required"
        there = getattr(built, field.name)
        source = SOURCES.get(field.name) or ("as in `hw_rtl`" if there == getattr(Hardware(1), field.name) else f"assumed; `hw_rtl` has {there}")
        yield f"| `{field.name}` | {default} | {least} | {unit(field.name)} | {source} | {_cell(field.text)} |"


def _energy() -> Iterator[str]:
    yield "| field | default | unit | meaning |"
    yield "|---|---:|---|---|"
    for field in described(Energy):
        yield f"| `{field.name}` | `{field.default}` | {unit(field.name)} | {_cell(field.text)} |"


def _fields(kind: type) -> Iterator[str]:
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for field in described(kind):
        default = f"`{field.default}`" if field.default else ""
        yield f"| `{field.name}` | {_cell(field.type)} | {default} | {_cell(field.text)} |"


def _commands() -> Iterator[str]:
    yield "| command | |"
    yield "|---|---|"
    for name, text in COMMANDS.items():
        yield f"| [`lfopt {name}`](#{name}) | {text} |"


def _methods() -> Iterator[str]:
    yield "| method | what it does | fields that it reads | may prove |"
    yield "|---|---|---|---|"
    for name, method in METHODS.items():
        takes = ", ".join(f"`{FIELDS.get(option, option)}`" for option in method.takes)
        yield f"| `{name}` | {method.summary} | {takes} | {'yes' if method.proves else ''} |"


def _register_fields() -> Iterator[str]:
    yield "| register | bits | field | meaning |"
    yield "|---|---|---|---|"
    for register in Register:
        for field in register.of.fields:
            low = register.layout.offsets[field.name]
            bits = str(low) if field.bits == 1 else f"{low + field.bits - 1}:{low}"
            yield f"| `{register.name}` | {bits} | `{field.name}` | {_cell(field.about)} |"


def _told(**kinds: type[Told]) -> Iterator[str]:
    """Tables, one behind the other: numbers, names and meanings."""
    yield "| | name | meaning |"
    yield "|---|---|---|"
    for what, kind in kinds.items():
        for member in kind:
            yield f"| {what} {member.value} | `{member.name}` | {_cell(member.about)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


KINDS: tuple[type, ...] = (
    Plan,
    Copy,
    ModelReference,
    DramTensor,
    PlannedGroup,
    DramBytes,
    Place,
    Totals,
    SearchRecord,
    Config,
    SearchConfig,
)
TABLES = {
    "Hardware": _hardware,
    "Energy": _energy,
    "commands": _commands,
    "methods": _methods,
    "registers": register_table,
    "register_fields": _register_fields,
    "errors": lambda: _told(error=Error, queue=Queue),
    "manifest": lambda: _told(word=Header, entry=MapEntry),
} | {kind.__name__: (lambda kind=kind: _fields(kind)) for kind in KINDS}


def renewed(page: str) -> str:
    """A page with its tables as the code has them now."""
    return BLOCK.sub(lambda found: found[1] + "\n".join(TABLES[found[2]]()) + "\n" + found[3], page)


def main() -> None:
    """Write what has changed."""
    for path in sorted(PAGES.glob("*.md")):
        before = path.read_text(encoding="utf-8")
        if (after := renewed(before)) != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"wrote {path.name}\n")


if __name__ == "__main__":
    main()
