"""Hardware descriptions for people: fields, installed chips, derived figures, and a check of one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lfopt.app.answers.chips import FieldAnswer, FigureAnswer
from lfopt.app.config import INSTALLED, load_hardware, validate
from lfopt.app.documents import read_yaml
from lfopt.app.schema import described
from lfopt.app.sizes import format_size
from lfopt.ir import Energy, Hardware, InvalidConfig
from lfopt.ir.hardware import MAX_PJ, SPEED, bounds

FOLDER = INSTALLED / "hardware"
BUILT = FOLDER / "accelerator_256k.yaml"  # the accelerator of hw_rtl
UNITS = {  # of a field, where its name does not end with it
    "dram_row_align": "bytes",
    "channel_align": "elements",
    "block_channels": "output channels",
    "constant_align": "bytes",
    "parameter_channels": "channels",
    "parameter_tables": "tables",
    "mac_rows": "input channels",
    "mac_columns": "output channels",
    "mac_utilization": "share",
    "weight_port_bytes": "bytes per cycle",
    "accumulator_banks": "banks",
    "accumulator_columns": "pixels",
    "window_columns": "pixels per cycle",
    "depthwise_columns": "pixels per cycle",
    "vector_lanes": "elements per cycle",
    "weight_latency": "cycles",
    "port_bytes": "bytes per cycle",
    "port_latency": "cycles",
    "dram_bytes_per_second": "bytes per second",
    "dram_pj_per_bit": "pJ",
    "transfers_in_flight": "transfers",
    "l2_port_bytes": "bytes per cycle",
    "queue_depth": "commands",
    "overlap": "-",
    "byte_slack": "share",
    "energy": "see below",
    "name": "-",
    "source": "-",
}
ENDINGS = {"_bytes": "bytes", "_bits": "bits", "_cycles": "cycles", "_hz": "Hz", "_pj": "pJ"}
PAPERS = "the figures of arXiv 2501.00636 imply 2 bytes"
DEFAULTS_FROM = {  # where a default comes from; all others describe the accelerator of hw_rtl, or are assumed
    "buffer_bytes": "-",
    "element_bytes": PAPERS,
    "weight_bytes": "as `element_bytes`",
    "weight_bits": "as `weight_bytes`",
    "bias_bytes": "as `element_bytes`",
    "weight_buffer_bytes": "weights share the buffer",
    "accumulator_bytes": "int32 sums",
    **dict.fromkeys(
        ("dram_row_align", "channel_align", "constant_align"), "no padding, as in the papers' formulas"
    ),
    "block_channels": "as `channel_align`; of a balanced plan, as `mac_columns`",
    "parameter_store_bytes": "chips of the papers have none",
    "parameter_tables": "no number of their own",
    "clock_hz": "assumed",
    "dram_bytes_per_second": "as the port",
    "l2_bytes": "none",
    "l2_port_bytes": "as `port_bytes`",
    **dict.fromkeys(("dram_burst_bytes", "dram_page_bytes", "dram_page_cycles"), "off"),
    "mac_utilization": "the array never waits, but as modelled",
    "byte_slack": "nothing is given up",
    "energy": "see below",
    "name": "-",
    "source": "-",
}


class ChipCheck(NamedTuple):
    """A hardware description as it was found."""

    hardware: Hardware | None  # None: it has problems
    problems: tuple[str, ...]  # every one, a line each
    notes: tuple[str, ...]  # what is unusual, or assumed


def unit(name: str) -> str:
    """Unit of a field of Hardware or Energy."""
    return UNITS.get(name) or next(unit for ending, unit in ENDINGS.items() if name.endswith(ending))


def hardware_fields() -> Iterator[FieldAnswer]:
    """The fields of a hardware description, in order."""
    built = load_hardware(BUILT)
    plain = Hardware(1)
    for field in described(Hardware):
        numeric = field.type not in ("true or false", "text", "object")
        least, most = bounds(field.name) if numeric else (None, None)
        value = getattr(built, field.name)
        source = DEFAULTS_FROM.get(field.name) or (
            "as in `hw_rtl`" if value == getattr(plain, field.name) else f"assumed; `hw_rtl` has {value}"
        )
        yield FieldAnswer(
            field.name, field.type, field.default, least, most, unit(field.name), source, field.text
        )


def energy_fields() -> Iterator[FieldAnswer]:
    """The fields of its energy table."""
    for field in described(Energy):
        yield FieldAnswer(
            field.name,
            field.type,
            field.default,
            0,
            int(MAX_PJ),
            unit(field.name),
            "see docs/hardware.md",
            field.text,
        )


def installed() -> Iterator[tuple[str, Hardware]]:
    """(name for --hardware, chip) of those that come with lfopt."""
    for path in sorted(
        FOLDER.glob("*.yaml"),
        key=lambda path: [
            f"{int(part):9}" if part.isdigit() else part for part in re.split(r"(\d+)", path.stem)
        ],
    ):
        yield path.stem, load_hardware(path)


def figures(hardware: Hardware) -> Iterator[FigureAnswer]:
    """What follows from the fields: peaks, and where the roofline bends."""
    peak = hardware.mac_rows * hardware.mac_columns * hardware.clock_hz
    port = hardware.port_bytes * hardware.clock_hz
    yield FigureAnswer("peak multiply-accumulates", peak, "MAC/s")
    yield FigureAnswer("memory port, each direction", port, "B/s")
    memory = port if hardware.dram_bytes_per_second is None else min(hardware.dram_bytes_per_second, port)
    yield FigureAnswer("DRAM", memory, "B/s")
    yield FigureAnswer("ridge of the roofline", peak / memory, "MAC/B")
    yield FigureAnswer("cycles to fill the buffer", hardware.buffer_bytes / hardware.port_bytes, "cycles")
    yield FigureAnswer("one byte of the buffer", hardware.buffer_byte_pj, "pJ")
    if hardware.weight_buffer_bytes:
        yield FigureAnswer("one byte of the weight buffer", hardware.weight_byte_pj, "pJ")
    if hardware.l2_bytes:
        yield FigureAnswer("one byte of the second level", hardware.l2_byte_pj, "pJ")
    yield FigureAnswer(
        "one byte of DRAM over one byte of the buffer",
        hardware.energy.pj_per_dram_byte / max(hardware.buffer_byte_pj, 1e-12),
        "x",
    )


def judge(path: Path) -> ChipCheck:
    """Read a hardware description, and say everything that is wrong with it, not the first fault alone."""
    data = read_yaml(path)
    problems = tuple(dict.fromkeys(_problems(data)))
    if not problems:
        try:
            hardware = validate(Hardware, data, "fields")
        except InvalidConfig as error:  # of fields that do not go together
            problems = (str(error).removeprefix("fields: "),)
        else:
            return ChipCheck(hardware, (), tuple(_notes(hardware, data)))
    return ChipCheck(None, problems, ())


def _problems(data: Mapping[str, Any]) -> Iterator[str]:
    """Problems of every field by itself."""
    energy = data.get("energy")
    alone: list[Mapping[str, Any]] = [
        {name: value} for name, value in data.items() if name != "energy" or not isinstance(energy, dict)
    ]
    if isinstance(energy, dict):
        alone += [{"energy": {name: value}} for name, value in energy.items()]
    for field in alone:
        try:
            validate(Hardware, {"buffer_bytes": 1, **field}, "field")
        except InvalidConfig as error:
            yield str(error).removeprefix("field: ").removeprefix("hardware.")
    if "buffer_bytes" not in data:
        yield "buffer_bytes: missing; required"


# what is seldom meant: (whether, what to say)
ODD: Sequence[tuple[Callable[[Hardware], bool], Callable[[Hardware], str]]] = (
    (
        lambda h: h.buffer_bytes < 4096,
        lambda h: f"buffer_bytes: {format_size(h.buffer_bytes)} is very small: bytes, or KiB?",
    ),
    (lambda h: h.element_bytes > 8, lambda h: f"element_bytes: {h.element_bytes} bytes for one element"),
    (lambda h: not 10**6 <= h.clock_hz <= 5 * 10**9, lambda h: f"clock_hz: {h.clock_hz:,} Hz"),
    (
        lambda h: h.port_bytes & (h.port_bytes - 1) != 0,
        lambda h: f"port_bytes: {h.port_bytes} is no power of two",
    ),
    (
        lambda h: h.dram_row_align > 1 and h.dram_row_align % h.port_bytes != 0,
        lambda h: (
            f"dram_row_align: rows padded to {h.dram_row_align} B do not begin on the beats of a port of "
            f"{h.port_bytes} B"
        ),
    ),
    (
        lambda h: h.channel_align > 1 and h.mac_columns % h.channel_align != 0,
        lambda h: (
            f"channel_align: blocks of {h.channel_align} channels do not fill {h.mac_columns} columns of the "
            "MAC array"
        ),
    ),
    (
        lambda h: (
            h.dram_bytes_per_second is not None and h.dram_bytes_per_second > 2 * h.port_bytes * h.clock_hz
        ),
        lambda h: (
            f"dram_bytes_per_second: {h.dram_bytes_per_second:,} is more than both directions of the port "
            "move"
        ),
    ),
    (
        lambda h: h.dram_page_bytes % h.dram_burst_bytes != 0,
        lambda h: f"dram_page_bytes: {h.dram_page_bytes} B are no whole bursts",
    ),
    (
        lambda h: not h.dram_page_bytes and bool(h.dram_page_cycles or h.energy.dram_page_pj),
        lambda h: "dram_page_cycles, energy.dram_page_pj: without dram_page_bytes nothing opens a page",
    ),
    (
        lambda h: 0 < h.l2_bytes <= h.buffer_bytes,
        lambda h: f"l2_bytes: a second level of {format_size(h.l2_bytes)} is no larger than the buffer",
    ),
    (
        lambda h: not h.l2_bytes and (h.l2_port_bytes is not None or h.energy.l2_byte_pj is not None),
        lambda h: "l2_port_bytes, energy.l2_byte_pj: without l2_bytes there is no second level",
    ),
    (
        lambda h: h.byte_slack > 0.05,
        lambda h: f"byte_slack: plans may give up {h.byte_slack:.0%} of the fewest bytes",
    ),
    (
        lambda h: h.energy.pj_per_dram_byte < h.buffer_byte_pj,
        lambda h: "energy: a byte of DRAM costs less than a byte of the buffer",
    ),
)


def _notes(hardware: Hardware, data: Mapping[str, Any]) -> Iterator[str]:
    yield from (text(hardware) for odd, text in ODD if odd(hardware))
    if missing := sorted(SPEED - data.keys()):
        yield f"cycles are a guess: assumed, as in the accelerator of hw_rtl or freely: {', '.join(missing)}"
    if not data.keys() & {"source"}:
        yield "source: it does not say where its figures come from"
