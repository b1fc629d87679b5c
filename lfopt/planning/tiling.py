"""How a single operator (with its epilogue) that does not fit the buffer is cut up, and what that moves.

Four schedules; the one with the fewest bytes wins. Every set of choices grows with the buffer, so more buffer never costs more bytes.

    blocks   weights in n blocks of output channels, rows of the input through a ring for each:   n * In + W + Out
    bands    p bands of output rows, weights streamed once per band, one double-buffered slice:    In + p * W + Out
    strips   either of these on column strips; the columns that strips share are read again
    slices   nothing kept but the partial sums of one output tile; input channels pass one by one

With g groups (or a batch of matrices) whole groups are blocks too, and then the input moves once. "In" is operand 0; operand 1 plays W even where
it is a feature map. The slices schedule with a tile of one element is the floor: it is taken to fit any buffer.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod

import numpy as np

from lfopt.ir import Hardware, round_up
from lfopt.ops import Call, Dataflow, RowReads
from lfopt.ops.dependence import spatial_window
from lfopt.ops.rows import all_rows


@dataclass(frozen=True, slots=True)
class Contraction:
    """Operand 0 meets operand 1: everything that a tiling depends on. Bytes on chip unless said otherwise."""

    reads: RowReads  # output rows from input rows
    columns: RowReads | None  # output columns from input columns; None where strips make no sense
    in_row_bytes: int
    in_row_dram_bytes: int  # without alignment
    out_row_bytes: int  # of every result that is stored, and of every other operand that streams with it
    weight_bytes: int  # operand 1 and the bias
    held_bytes: int  # one-row operands and weights of the epilogue, resident throughout
    channels: int  # output channels
    in_channels: int  # that one output channel reads
    groups: int
    kernel_elements: int  # weights that one output element meets per input channel
    streams: int  # maps that stream beside the input: results stored and other operands

    def input_bytes(self, hardware: Hardware) -> int:
        """DRAM bytes of operand 0, once."""
        return self.reads.rows_in * round_up(self.in_row_dram_bytes, hardware.dram_row_align)


@dataclass(frozen=True, slots=True)
class Tile:
    """A chosen tiling."""

    kind: str  # blocks | bands | strips | slices
    input_bytes: int  # DRAM bytes of operand 0, re-reads included
    weight_bytes: int  # DRAM bytes of operand 1 and bias, re-reads included
    buffer_bytes: int  # what one tile takes
    weight_passes: int = 1  # times that operand 1 is loaded
    extra_input_bytes: int = 0  # of input_bytes, beyond reading operand 0 once
    extra_weight_bytes: int = 0  # of weight_bytes, beyond reading operand 1 once

    @property
    def dram_bytes(self) -> int:
        """Bytes that depend on the choice; results and other operands move once in all of them."""
        return self.input_bytes + self.weight_bytes


@lru_cache(maxsize=65536)
def tile(work: Contraction, hardware: Hardware) -> Tile:
    """The tiling with the fewest DRAM bytes that fits the buffer (strictly)."""
    whole = _on_columns(work, hardware, 1)
    found = list(whole)
    least = work.input_bytes(hardware) + work.weight_bytes
    if not found or min(choice.dram_bytes for choice in found) > least:
        if work.columns is not None:
            width = work.columns.rows_out
            strips = 2
            while strips < 2 * width:
                found += _on_columns(work, hardware, min(strips, width))
                strips *= 2
        found.append(_slices(work, hardware))
    once = work.input_bytes(hardware)  # rows and columns that a stride leaves out are counted too, as in every other mode
    counted = [choice if choice.input_bytes >= once else replace(choice, input_bytes=once) for choice in found]
    best = min(counted, key=lambda choice: (choice.dram_bytes, choice.buffer_bytes))
    return replace(best, extra_input_bytes=best.input_bytes - once, extra_weight_bytes=best.weight_bytes - work.weight_bytes)


def _on_columns(work: Contraction, hardware: Hardware, strips: int) -> list[Tile]:
    """Blocks and bands on each of so many column strips (1: on whole rows)."""
    beta = hardware.buffer_bytes
    columns = work.columns
    if strips == 1 or columns is None:
        read_bytes = work.input_bytes(hardware)
        narrow, strips = work, 1
    else:
        widths, wide, strips = _strip_widths(columns, strips)
        pixel, width_in = work.in_row_dram_bytes // columns.rows_in, columns.rows_in
        read_bytes = work.reads.rows_in * sum(round_up(pixel * w, hardware.dram_row_align) for w in widths)
        narrow = replace(
            work,
            in_row_bytes=ceil(work.in_row_bytes * max(widths) / width_in),
            out_row_bytes=ceil(work.out_row_bytes * wide / columns.rows_out),
        )
    kind = "strips" if strips > 1 else ""
    found: list[Tile] = []
    if blocks := _blocks(narrow, beta):
        times, buffer_bytes = blocks
        found.append(Tile(kind or "blocks", times * read_bytes, work.weight_bytes, buffer_bytes))
    if bands := _bands(narrow, beta, hardware.channel_align):
        passes, buffer_bytes = bands
        found.append(Tile(kind or "bands", read_bytes, strips * passes * work.weight_bytes, buffer_bytes, strips * passes))
    return found


@lru_cache(maxsize=4096)
def _strip_widths(columns: RowReads, strips: int) -> tuple[tuple[int, ...], int, int]:
    """(input columns of each strip, widest output strip, number of strips)."""
    wide = ceil(columns.rows_out / strips)
    starts = range(0, columns.rows_out, wide)
    spans = ((min(columns.first[s : s + wide]), max(columns.last[s : s + wide])) for s in starts)
    return tuple(max(high - low + 1, 0) for low, high in spans), wide, len(starts)


def _blocks(work: Contraction, beta: int) -> tuple[int, int] | None:
    """(times that the input is read, buffer bytes) with the fewest blocks of output channels that fit."""
    ring = max(work.reads.widest[-1], 1) * work.in_row_bytes
    per_group = work.channels // work.groups

    def need(channels: int) -> int:
        held_groups = ceil(channels / per_group)
        share = channels / work.channels
        return ceil(share * (work.weight_bytes + work.out_row_bytes)) + ceil(ring * held_groups / work.groups) + work.held_bytes

    if need(per_group) < beta:  # one whole group at a time: the input moves once
        return 1, need(per_group)
    if need(1) >= beta:
        return None
    largest = bisect_left(range(1, per_group + 1), x=True, key=lambda c: need(c) >= beta)
    times = ceil(per_group / largest)
    return times, need(ceil(per_group / times))


def _bands(work: Contraction, beta: int, channel_align: int) -> tuple[int, int] | None:
    """(passes over the weights, buffer bytes) with the fewest bands of output rows that fit."""
    height = work.reads.rows_out
    piece = 2 * ceil(work.weight_bytes * min(channel_align, work.channels) / work.channels) + work.held_bytes

    def need(rows: int) -> int:
        return _band_rows(work.reads, rows) * work.in_row_bytes + rows * work.out_row_bytes + piece

    if need(1) >= beta:
        return None
    largest = bisect_left(range(1, height + 1), x=True, key=lambda rows: need(rows) >= beta)
    passes = ceil(height / largest)
    return passes, need(ceil(height / passes))


@lru_cache(maxsize=65536)
def _band_rows(reads: RowReads, rows: int) -> int:
    """Input rows held while bands of so many output rows are made; rows shared with the next band stay. Never falls as bands grow."""
    starts = range(0, reads.rows_out, 1)
    return max(1, *(reads.need[min(s + rows, reads.rows_out) - 1] - reads.keep[s] for s in starts))


def _slices(work: Contraction, hardware: Hardware) -> Tile:
    """Tiles of rows x columns x channels whose partial sums stay on chip while the input channels pass one by one."""
    columns = work.columns if work.columns is not None else all_rows(1, 1)
    rows_per_tile = _powers(work.reads.rows_out)
    columns_per_tile = _powers(columns.rows_out)
    channels = np.array(_powers(work.channels // work.groups))
    in_element, out_element = hardware.element_bytes, hardware.accumulator_bytes + work.streams * hardware.element_bytes
    weight_element = max(work.weight_bytes // max(work.channels * work.in_channels * work.kernel_elements, 1), 1)
    pixel = work.in_row_dram_bytes // columns.rows_in
    once = work.input_bytes(hardware)
    best: Tile | None = None
    for rows in rows_per_tile:
        read_rows, tall, bands = _strip_widths(work.reads, ceil(work.reads.rows_out / rows))
        for cols in columns_per_tile:
            widths, wide, strips = _strip_widths(columns, ceil(columns.rows_out / cols))
            row_bytes = sum(round_up(pixel * w, hardware.dram_row_align) for w in widths)
            inputs = np.maximum(sum(read_rows) * row_bytes * np.ceil(work.channels // work.groups / channels).astype(np.int64), once)
            needs = max(read_rows) * max(widths) * in_element + channels * (work.kernel_elements * weight_element + tall * wide * out_element)
            fits = needs < hardware.buffer_bytes
            if rows == cols == 1:
                fits |= channels == 1
            for k in np.flatnonzero(fits):
                choice = Tile("slices", int(inputs[k]), bands * strips * work.weight_bytes, int(needs[k]), bands * strips)
                if best is None or (choice.dram_bytes, choice.buffer_bytes) < (best.dram_bytes, best.buffer_bytes):
                    best = choice
    assert best is not None, "a tile of one element always counts as fitting"
    return best


def _powers(limit: int) -> list[int]:
    """1, 2, 4, ... below the limit, and the limit."""
    return [*(1 << k for k in range(limit.bit_length()) if 1 << k < limit), limit]


def contraction(dataflow: Dataflow, head: int, hardware: Hardware, weight_bytes: int, streaming: list[int], held_bytes: int) -> Contraction:
    """The contraction that operator `head` performs, with the maps that stream beside its input and the bytes held throughout."""
    call, data = dataflow.calls[head], next(o for o in dataflow.operands[head] if o.input == 0)
    source, maps = dataflow.maps[data.map], dataflow.maps
    second = next((o.map for o in dataflow.operands[head] if o.input == 1), None)
    if second is not None:
        weight_bytes += hardware.dram_bytes(maps[second])
    channels, in_channels, groups, kernel = _extents(call)
    convolves = call.operator.kind in ("Conv", "ConvTranspose")
    return Contraction(
        reads=data.reads,
        columns=spatial_window(call, -1) if convolves and len(source.shape) in (4, 5) else None,
        in_row_bytes=hardware.row_bytes(source),
        in_row_dram_bytes=source.elements // source.rows * hardware.element_bytes,
        out_row_bytes=sum(hardware.row_bytes(maps[m]) for m in streaming),
        weight_bytes=weight_bytes,
        held_bytes=held_bytes,
        channels=channels,
        in_channels=in_channels,
        groups=groups,
        kernel_elements=kernel,
        streams=len(streaming),
    )


def _extents(call: Call) -> tuple[int, int, int, int]:
    """(output channels, input channels that one of them reads, groups, kernel elements) of a contraction."""
    first, second, kind = call.shape(0), call.shape(1), call.operator.kind
    if kind in ("Conv", "ConvTranspose"):
        groups = call.attribute("group", 1)
        return call.result[1], first[1] // groups, groups, prod(second[2:])
    if kind == "Gemm":
        return call.result[1], second[0] if not call.attribute("transB", 0) else second[1], 1, 1
    batch = prod(second[:-2])
    return (call.result[-1] if len(second) > 1 else 1) * batch, first[-1], batch, 1
