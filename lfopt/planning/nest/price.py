"""What a nest takes and moves, for many ways to cut its free loop at once.

Every figure of a tensor is a product over the loops around its home: on chip, the most that a block of each
loop has of it, or the widest window that a loop holds; over the port, the sum over all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, Span, cut, row_axis, whole
from lfopt.ops import Dataflow
from lfopt.ops.footprint import footprint
from lfopt.planning.line_buffers.lbdf import LineBuffers
from lfopt.planning.line_buffers.lines import Lines
from lfopt.planning.line_buffers.seen import SeenInput
from lfopt.planning.line_buffers.streamed_group import is_parameter
from lfopt.planning.nest.regions import Regions, folded_extent
from lfopt.planning.nest.spans import BlockGrid, Ints
from lfopt.planning.nest.tree import (
    BlockLoop,
    Blocks,
    CarriedPart,
    GroupNest,
    Node,
    PartialSums,
    RowLeaf,
    Seq,
    Stream,
)
from lfopt.planning.steps.layout import BufferLayout

AxisBlocks = tuple[int, Blocks]  # blocks of one axis of a result
Figure = Ints | int  # (ways,) int64, or one number where all ways are alike


class StreamedBytes(NamedTuple):
    """Constants of an operator that pass through a stream."""

    largest: int  # bytes of the largest block
    total: int  # DRAM bytes of all blocks, each loaded once


class NestPricing:
    """Prices of nests of one dataflow on one chip. Nothing depends on the size of the buffer.

    `line_buffers`: of the dataflow, for row engines.
    """

    def __init__(self, layout: BufferLayout, line_buffers: LineBuffers | None = None) -> None:
        self.layout = layout
        self.flow = layout.flow
        self.line_buffers = line_buffers
        self.plain_lines = Lines.plain(layout.flow)  # without reductions that run along with their operand
        self._row_bytes: dict[int, int] = {}  # per map, as far as it was asked for
        self._constants: dict[str, int] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        self._passing: dict[tuple[int, tuple[str, ...], AxisBlocks | None, Blocks | None], StreamedBytes] = {}

    def price(
        self, mask: int, nest: GroupNest, ways: Mapping[BlockLoop, BlockGrid] | None = None
    ) -> NestPrice:
        """The figures of a group. `ways`: of the free loop, how it may be cut; else as the nest says."""
        return NestPrice(self, mask, nest, ways or {})

    def constant_bytes(self, name: str) -> int:
        """Bytes of a whole constant."""
        if name not in self._constants:
            self._constants[name] = self.layout.constant_bytes(name, whole(self.flow.graph.shape(name)))
        return self._constants[name]

    def row_bytes(self, m: int, cut: Sequence[tuple[int, Figure]]) -> Figure:
        """Bytes on chip of one row of a map of which only so many indices are there along some axes."""
        if cut:
            extents = list[Figure](self.flow.maps[m].shape)
            for axis, extent in cut:
                extents[axis] = extent
            return self.layout.hardware.row_bytes_of(extents)
        if m not in self._row_bytes:
            self._row_bytes[m] = self.layout.hardware.row_bytes(self.flow.maps[m])
        return self._row_bytes[m]

    def passing_names(self, op: int, stream: Stream) -> tuple[str, ...]:
        """Constants that an operator takes from a stream, in the order of its inputs."""
        if op not in self._names:
            self._names[op] = data_constants(self.flow, op)
        return tuple([name for name in self._names[op] if name in stream.constants])

    def passing(
        self, op: int, names: tuple[str, ...], out: AxisBlocks | None, inputs: Blocks | None
    ) -> StreamedBytes:
        """Bytes of constants that an operator takes in blocks of its output and input channels.

        A constant that is read when sums are finished comes with the last block of input channels.
        """
        key = op, names, out, inputs
        if key not in self._passing:
            self._passing[key] = self._pass(*key)
        return self._passing[key]

    def _pass(
        self, op: int, names: tuple[str, ...], out: AxisBlocks | None, inputs: Blocks | None
    ) -> StreamedBytes:
        result = whole(self.flow.calls[op].result)
        results: list[tuple[Box, int]] = [(result, 1)]
        if out is not None:
            axis, blocks = out
            results = [(cut(result, axis, span), times) for span, times in blocks.by_width(result[axis][1])]
        folded: list[tuple[Span | None, int]] = [(None, 1)]
        last: Span | None = None
        if inputs is not None:
            extent = folded_extent(self.flow, op)
            folded = [*inputs.by_width(extent)]
            last = inputs.span(-1, extent)
        largest = total = 0
        for box, of_box in results:
            late = self._block_bytes(op, names, box, None, late=True) if last is not None else 0
            largest = max(largest, late + self._block_bytes(op, names, box, last, late=False))
            total += of_box * late
            for span, of_span in folded:
                size = self._block_bytes(op, names, box, span, late=None if last is None else False)
                total += of_box * of_span * size
                largest = max(largest, size)
        return StreamedBytes(largest, total)

    def _block_bytes(
        self, op: int, names: tuple[str, ...], out: Box, inputs: Span | None, *, late: bool | None
    ) -> int:
        """Bytes of a block of constants; `late`: of biases alone, which finished sums take, or of others."""
        call = self.flow.calls[op]
        size = 0
        for name in names:
            index = call.inputs.index(name)
            if late is None or late == (index > 1):
                size += self.layout.constant_bytes(name, footprint(call, index, out, inputs=inputs))
        return size


class NestPrice:
    """Figures of a nest, worked out when they are asked for.

    Arrays are (ways,) int64, one entry for each way to cut the free loop, or (1,) where all ways are alike.
    """

    def __init__(
        self, pricing: NestPricing, mask: int, nest: GroupNest, ways: Mapping[BlockLoop, BlockGrid]
    ) -> None:
        self.pricing = pricing
        self.layout = pricing.layout
        self.flow = pricing.flow
        self.mask = mask
        self.nest = nest
        line_buffers = pricing.line_buffers
        lines = line_buffers.lines if nest.row_engines and line_buffers else pricing.plain_lines
        self.lines = lines
        self.running = lines.running
        self.rings: dict[int, int] = {}
        for leaf in nest.row_engines:
            assert line_buffers is not None, "a row engine has rings"
            self.rings |= line_buffers.ring_rows(sum(1 << i for i in leaf.operators), leaf.band_rows)
        self.regions = Regions(self.flow, mask, nest, lines.operands, lines.iterations, ways)

    # -- on chip ---------------------------------------------------------------------------------------------

    @cached_property
    def map_bytes(self) -> Ints:
        """Bytes on chip of maps and partial sums."""
        own: dict[Node, Figure] = {}
        for node, size in self._held_bytes():
            own[node] = own.get(node, 0) + size
        return _need(self.nest, own)

    def _held_bytes(self) -> Iterator[tuple[Node, Figure]]:
        """(node, bytes) of each map, part of a map, and place of sums that a node holds."""
        for held, home in self.regions.homes.items():
            if isinstance(held, int):
                rows, row_bytes = self.map_place(held)
                yield home, rows * row_bytes
                for part in self.nest.carried_parts(held):
                    rows, row_bytes = self.carried_place(part)
                    yield part.loop, rows * row_bytes
        for held, home in self.nest.homes.items():  # sums are held where the nest says, maps have defaults
            if isinstance(held, PartialSums):
                rows, row_bytes = self.sums_place(held.operator)
                yield home, rows * row_bytes
        for leaf in self.nest.row_engines:
            yield leaf, sum(self.running_sums(leaf).values())

    @cached_property
    def constant_bytes(self) -> Ints:
        """Bytes on chip of constants."""
        own: dict[Node, Figure] = {}
        for held, home in self.regions.homes.items():
            if isinstance(held, str):
                own[home] = own.get(home, 0) + self.pricing.constant_bytes(held)
        for stream in self.nest.streams:
            own[stream.home] = own.get(stream.home, 0) + stream.slots * self.stream_block(stream)
        return _need(self.nest, own)

    def map_place(self, m: int) -> tuple[Figure, Figure]:
        """(rows, bytes of a row) of the place of a map."""
        extent = self.regions.held(m)
        home = self.regions.homes[m]
        if not isinstance(home, RowLeaf) or home.at_once:
            return extent.rows, self.pricing.row_bytes(m, extent.cut)
        seen = self.seen(m)
        if seen is not None:
            return self.rings[m], self.layout.hardware.row_bytes(seen.tensor)
        return self.rings[m], self.pricing.row_bytes(m, extent.cut)

    def seen(self, m: int) -> SeenInput | None:
        """How a row engine loads a map from outside; None: as it is."""
        line_buffers = self.pricing.line_buffers
        if line_buffers is None or not self.nest.row_engines:
            return None
        return line_buffers.seen.of(self.mask, m)

    def carried_place(self, part: CarriedPart) -> tuple[Figure, Figure]:
        """(rows, bytes of a row) of the place of what a loop keeps of a map."""
        extent = self.regions.carried_part(part)
        return extent.rows, self.pricing.row_bytes(part.map, extent.cut)

    def sums_place(self, op: int) -> tuple[Figure, Figure]:
        """(rows, bytes of a row) of the place of an operator's partial sums."""
        extent = self.regions.held_sums(op)
        hardware = self.layout.hardware
        size = self.pricing.row_bytes(self.flow.results[op][0], extent.cut)
        return extent.rows, size // hardware.element_bytes * hardware.accumulator_bytes

    def running_sums(self, leaf: RowLeaf) -> dict[int, int]:
        """Bytes of the sums of reductions that take their operand row by row, by operator of a row engine."""
        running = () if leaf.at_once else (i for i in leaf.operators if self.running >> i & 1)
        return {i: self.layout.sums_row(whole(self.flow.calls[i].result)) for i in running}

    def stream_block(self, stream: Stream) -> int:
        """Bytes of the largest block that passes through a stream."""
        return max((constants.largest for constants, _ in self._passing[stream]), default=0)

    # -- over the port ---------------------------------------------------------------------------------------

    @cached_property
    def input(self) -> Ints:
        """DRAM bytes of maps that are loaded."""
        total: Figure = 0
        for held in self.regions.homes:
            if isinstance(held, int) and not self.flow.makes(self.mask, held):
                total = total + self._moved(held, load=True)
        return np.atleast_1d(total)

    @cached_property
    def output(self) -> Ints:
        """DRAM bytes of maps that are stored."""
        total: Figure = 0
        for m in self.flow.leaving(self.mask):
            total = total + self._moved(m, load=False)
        return np.atleast_1d(total)

    @cached_property
    def weight(self) -> Ints:
        """DRAM bytes of constants."""
        total: Figure = 0
        for held, home in self.regions.homes.items():
            if isinstance(held, str):
                total = total + self.pricing.constant_bytes(held) * self._entries(home)
        for passing in self._passing.values():
            for constants, times in passing:
                total = total + constants.total * times
        for i in self.nest.leaf_of:  # rows picked from a constant in DRAM go straight into the result
            if any(weight.gathered for weight in self.flow.weights[i]):
                total = total + self.layout.gathered_bytes(i, whole(self.flow.calls[i].result))
        return np.atleast_1d(total)

    def _moved(self, m: int, *, load: bool) -> Figure:
        """DRAM bytes of a map that is loaded, or stored, in each block of the loops around its home."""
        tensor = self.flow.maps[m]
        home = self.regions.homes[m]
        align = self.layout.hardware.dram_row_align
        rows: Figure = tensor.rows
        times: Figure = 1
        parts: list[tuple[int, Ints, BlockGrid]] = []  # (axis, its extent in each block, the blocks)
        for loop in self.nest.loops_to[home]:
            if loop is home:
                continue
            grid = self.regions.grids[loop]
            extent = self._extents(loop, m, load=load)
            if extent is None:
                times = times * grid.counts
                continue
            axis = self.regions.axis_cut(loop, m)
            if axis is None:
                times = times * grid.total(np.minimum(extent, 1))
            elif axis == row_axis(tensor.shape):
                rows = grid.total(extent)
            else:
                parts.append((axis, extent, grid))
        row = tensor.elements // max(tensor.rows, 1) * self.layout.hardware.element_bytes
        if not parts:
            return times * rows * (-(-row // align) * align)
        (axis, extent, grid), *others = parts
        size = row // tensor.shape[axis] * extent
        for other, widths, _ in others:
            assert align == 1, "blocks along two axes lie in DRAM without padding"
            size = size // tensor.shape[other] * int(widths.sum())
        return times * rows * grid.total(-(-size // align) * align)

    def _extents(self, loop: BlockLoop, m: int, *, load: bool) -> Ints | None:
        """(entries,): what a block of a loop loads, or stores, of a map; None if it is not cut."""
        if loop.cuts_channels:
            axis = self.regions.axis_cut(loop, m)
            if axis is None:
                return None
            return np.diff(loop.blocks.ends(self.flow.maps[m].shape[axis]))
        own = self.regions.along(loop, m)
        if own is None:
            return None
        start, stop = (
            (own.start, own.stop) if load else self.regions.spans[loop].stored[self.flow.producer[m]]
        )
        return stop - start

    def _entries(self, home: Node) -> Figure:
        """How often a node is entered."""
        times: Figure = 1
        for loop in self.nest.loops_to[home]:
            times = times if loop is home else times * self.regions.grids[loop].counts
        return times

    @cached_property
    def _passing(self) -> dict[Stream, list[tuple[StreamedBytes, Figure]]]:
        """Per stream: constants of each operator that pass through it, and how often all of them do."""
        return {stream: [*self._passing_through(stream)] for stream in self.nest.streams}

    def _passing_through(self, stream: Stream) -> Iterator[tuple[StreamedBytes, Figure]]:
        for i in self.nest.operators[stream.home]:
            names = self.pricing.passing_names(i, stream)
            if not names:
                continue
            out: AxisBlocks | None = None
            inputs: Blocks | None = None
            times: Figure = 1
            for loop in self.nest.loops_to[self.nest.leaf_of[i]]:
                if i in loop.folds:
                    inputs = loop.blocks
                elif loop.cuts_channels:
                    axis = self.regions.channels_cut(loop, i)
                    out = out if axis is None else (axis, loop.blocks)
                else:
                    times = times * self.regions.grids[loop].counts
            yield self.pricing.passing(i, names, out, inputs), times

    # -- work ------------------------------------------------------------------------------------------------

    @cached_property
    def macs(self) -> Ints:
        """Multiply-accumulates, with what is made again; all rows, and columns, of an operator are alike.

        Of a row engine at most: it makes no rows that nothing asks for.
        """
        total: Figure = 0
        for i, leaf in self.nest.leaf_of.items():
            macs: Figure = self.flow.macs[i]
            every = 1
            for loop in self.nest.loops_to[leaf] if macs else ():
                own = None if loop.cuts_channels else self.regions.spans[loop].made.get(i)
                if own is not None:
                    every *= self.regions.indices(loop, i)
                    macs = macs * self.regions.grids[loop].total(own.stop - own.start)
            total = total + -(-macs // max(every, 1))
        return np.atleast_1d(total)


def _need(nest: GroupNest, own: Mapping[Node, Figure]) -> Ints:
    """(ways,): the most bytes that are held at once. `own`: what each node holds itself.

    That is the largest sum of a node and all nodes around it: parts of a `Seq` take the same space in turn.
    """
    need: Figure = 0
    for node in own:
        on_path: Figure = 0
        for around in nest.paths[node]:
            assert not (isinstance(around, Seq) and around.lives), "lives are priced by their addresses"
            on_path = on_path + own.get(around, 0)
        need = np.maximum(need, on_path)
    return np.atleast_1d(need)


def data_constants(flow: Dataflow, op: int) -> tuple[str, ...]:
    """Constants that an operator reads as data, in the order of its inputs."""
    call = flow.calls[op]
    names = {w.name for w in flow.weights[op] if not w.gathered}
    read = (name for k, name in enumerate(call.inputs) if name in names and not is_parameter(call, k))
    return tuple(dict.fromkeys(read))
