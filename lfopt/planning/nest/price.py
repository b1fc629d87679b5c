"""What a nest takes and moves, for many ways to cut its free loop at once.

Every figure of a tensor is a product over the loops around its home: on chip, the most that a block of each
loop has of it, or the widest window that a loop holds; over the port, the sum over all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lfopt.ir import DramBytes, Span, row_axis, whole
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import MapRead
from lfopt.planning.line_buffers.lbdf import LineBuffers
from lfopt.planning.line_buffers.lines import Lines
from lfopt.planning.line_buffers.seen import SeenInput
from lfopt.planning.nest.constants import ConstantSizes
from lfopt.planning.nest.regions import Figure, Regions
from lfopt.planning.nest.spans import BlockGrid, Ints
from lfopt.planning.nest.streams import StreamSizes
from lfopt.planning.nest.tree import (
    ALONE,
    BlockLoop,
    CarriedPart,
    GroupNest,
    LateInput,
    Node,
    PartialSums,
    RowLeaf,
    Seq,
    Surroundings,
)
from lfopt.planning.steps.layout import BufferLayout


class _Cut(NamedTuple):
    """How the blocks of a loop cut a map."""

    axis: int | None  # of the map; None: none
    extent: Ints | None  # (entries,) indices along the axis in each block; None: whatever the block, all
    grid: BlockGrid


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
        self.constants = ConstantSizes(layout)

    def price(
        self,
        mask: int,
        nest: GroupNest,
        ways: Mapping[BlockLoop, BlockGrid] | None = None,
        around: Surroundings = ALONE,
    ) -> NestPrice:
        """The figures of a group, or of a pass of it.

        `ways`: of the free loop, how it may be cut; else as the nest says. `around`: what stays on chip
        between passes.
        """
        return NestPrice(self, mask, nest, ways or {}, around)

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


class NestPrice:
    """Figures of a nest, worked out when they are asked for.

    Arrays are (ways,) int64, one entry for each way to cut the free loop, or (1,) where all ways are alike.
    """

    def __init__(
        self,
        pricing: NestPricing,
        mask: int,
        nest: GroupNest,
        ways: Mapping[BlockLoop, BlockGrid],
        around: Surroundings = ALONE,
    ) -> None:
        self.pricing = pricing
        self.layout = pricing.layout
        self.flow = pricing.flow
        self.constants = pricing.constants
        self.mask = mask
        self.nest = nest
        self.around = around
        line_buffers = pricing.line_buffers
        lines = line_buffers.lines if nest.row_engines and line_buffers else pricing.plain_lines
        self.lines = lines
        self.running = lines.running
        self.regions = Regions(self.flow, mask, nest, self._operands(), lines.iterations, ways, around)
        self.streams = StreamSizes(self.regions, self.constants)
        self.rings: dict[int, Figure] = {}  # rows by map
        for leaf in nest.row_engines:
            assert line_buffers is not None, "a row engine has rings"
            self.rings |= self._rings(leaf, line_buffers)

    def _operands(self) -> Sequence[Sequence[MapRead]] | Mapping[int, Sequence[MapRead]]:
        """Rows that operators read. Nothing waits for a map that a group before has reduced."""
        if not self.running:
            return self.flow.operands
        operands: dict[int, Sequence[MapRead]] = {}
        for i in self.nest.leaf_of:
            operands[i] = self.lines.operands[i]
            if not self.running >> i & 1:
                operands[i] = [
                    waiting if self.flow.makes(self.mask, waiting.map) else read
                    for waiting, read in zip(operands[i], self.flow.operands[i], strict=True)
                ]
        return operands

    def _rings(self, leaf: RowLeaf, line_buffers: LineBuffers) -> Mapping[int, Figure]:
        """Rows of the ring of every map that a row engine touches, the most of any block."""
        mask = sum(1 << i for i in leaf.operators)
        summed = {i for around in self.nest.loops_to[leaf] for i in around.folds}
        # sums are finished a few rows at a time
        finished = {m: leaf.summed_rows for i in summed & {*leaf.operators} for m in self.flow.results[i]}
        bands = [loop for loop in self.nest.loops_to[leaf] if loop.axis == "rows"]
        if not bands:
            return {**line_buffers.ring_rows(mask, leaf.band_rows), **finished}
        (loop,) = bands
        spans = self.regions.spans[loop]
        computed = {i: (spans.made[i].start.tolist(), spans.made[i].stop.tolist()) for i in leaf.operators}
        late = {
            (i, operand.input)
            for i in leaf.operators
            for operand in self.flow.operands[i]
            if self.regions.is_late(i, operand)
        }
        grid = self.regions.grids[loop]
        held: dict[tuple[Span, ...], dict[int, int]] = {}  # by the rows that operators make
        of_bands: list[dict[int, int]] = []
        for entry in range(int(grid.counts.sum())):
            rows = {i: (start[entry], stop[entry]) for i, (start, stop) in computed.items()}
            key = tuple(rows.values())
            if key not in held:
                held[key] = line_buffers.ring_rows_of_band(
                    mask, rows, leaf.band_rows, late, last_lead=leaf.last_lead
                )
            of_bands.append(held[key])
        rings: dict[int, Figure] = {
            m: grid.most(np.array([of_band[m] for of_band in of_bands], np.int64)) for m in of_bands[0]
        }
        return rings | finished

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
            for late in self.regions.late_inputs(leaf):
                rows, row_bytes = self.late_place(late)
                yield leaf, rows * row_bytes

    @cached_property
    def constant_bytes(self) -> Ints:
        """Bytes on chip of constants."""
        own: dict[Node, Figure] = {}
        for held, home in self.regions.homes.items():
            if isinstance(held, str):
                own[home] = own.get(home, 0) + self.constants.whole(held)
        for stream in self.nest.streams:
            staying = sum(self.layout.constant_bytes(name, box) for name, box in self.streams.staying(stream))
            passing = stream.slots * self.streams.block(stream)
            own[stream.home] = own.get(stream.home, 0) + staying + passing
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
        if line_buffers is None or not self.nest.row_engines or m not in self.regions.homes:
            return None
        if any(loop.axis != "columns" for loop in self.nest.loops_to[self.regions.homes[m]]):
            return None
        return line_buffers.seen.of(self.mask, m)

    def late_place(self, late: LateInput) -> tuple[Figure, Figure]:
        """(rows, bytes of a row) of the place of a map that a leaf loads when sums are finished."""
        extent = self.regions.held_late(late)
        return extent.rows, self.pricing.row_bytes(late.map, extent.cut)

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
        """Bytes of the sums of reductions that take their operand row by row, by operator of a row engine.

        Those that no other node holds.
        """
        if leaf.at_once:
            return {}
        homes = self.nest.homes
        running = (
            i
            for i in leaf.operators
            if self.running >> i & 1
            and PartialSums(i) not in homes
            and leaf.band_rows < self.lines.iterations[i]  # else it takes all rows at once
        )
        return {i: self.layout.sums_row(self.streams.widest_result(i)) for i in running}

    # -- over the port ---------------------------------------------------------------------------------------

    @cached_property
    def input(self) -> Ints:
        """DRAM bytes of maps that are loaded."""
        total: Figure = 0
        for held in self.regions.homes:
            if isinstance(held, int) and not self.flow.makes(self.mask, held):
                total = total + self.loaded(held)
        for leaf in self.nest.row_engines:
            for late in self.regions.late_inputs(leaf):
                total = total + self._loaded_late(late)
        return np.atleast_1d(total)

    @cached_property
    def output(self) -> Ints:
        """DRAM bytes of maps that are stored."""
        total: Figure = 0
        for m in self.leaving:
            total = total + self.stored(m)
        return np.atleast_1d(total)

    @cached_property
    def leaving(self) -> frozenset[int]:
        """Results that are stored."""
        if self.around.stored is None:
            return frozenset(self.flow.leaving(self.mask))
        return self.around.stored

    @cached_property
    def weight(self) -> Ints:
        """DRAM bytes of constants."""
        total: Figure = 0
        for held, home in self.regions.homes.items():
            if isinstance(held, str):
                total = total + self.constants.whole(held) * self._entries(home)
        for passing in self.streams.passing.values():
            for _, constants, times in passing:
                total = total + constants.total * times
        for stream in self.nest.streams:
            entries = self._entries(stream.home)
            for name, box in self.streams.staying(stream):
                total = total + self.layout.constant_bytes(name, box) * entries
        for i in self.nest.leaf_of:  # rows picked from a constant in DRAM go straight into the result
            if any(weight.gathered for weight in self.flow.weights[i]):
                total = total + self.layout.gathered_bytes(i, whole(self.flow.calls[i].result))
        return np.atleast_1d(total)

    @cached_property
    def dram(self) -> DramBytes:
        """DRAM bytes by class, but for parameters, of a nest whose loops are cut in one way."""
        (read,) = self.input
        (written,) = self.output
        (weight,) = self.weight
        return DramBytes(int(read), int(written), int(weight))

    def loaded(self, m: int) -> Figure:
        """DRAM bytes of a map that its home loads, in each block of the loops around it."""
        home = self.regions.homes[m]
        cuts: list[_Cut] = []
        for loop in self.nest.loops_to[home]:
            if loop is home:
                continue
            if loop.cuts_channels:
                inputs = self.regions.input_channels(loop, m)
                extent = None if inputs is None else inputs.stop - inputs.start
                if extent is not None:
                    extent = np.where(self.regions.there_already(loop, m), 0, extent)
            else:
                own = self.regions.along(loop, m)
                extent = None if own is None else own.stop - own.start
            cuts.append(_Cut(self.regions.axis_cut(loop, m), extent, self.regions.grids[loop]))
        return self._moved(m, cuts)

    def _loaded_late(self, late: LateInput) -> Figure:
        """DRAM bytes of a map that a leaf loads when sums are finished."""
        cuts: list[_Cut] = []
        for loop in self.nest.loops_to[late.leaf]:
            grid = self.regions.grids[loop]
            if loop.axis == "rows":
                own = self.regions.late_rows(loop, late)
                cuts.append(_Cut(row_axis(self.flow.maps[late.map].shape), own.stop - own.start, grid))
            elif not late.leaf.sums_over(loop):  # those that sum load with their last block
                inputs = self.regions.input_channels(loop, late.map, late=True)
                extent = None if inputs is None else inputs.stop - inputs.start
                cuts.append(_Cut(None if inputs is None else inputs.axis, extent, grid))
        return self._moved(late.map, cuts)

    def stored(self, m: int) -> Figure:
        """DRAM bytes of a result that its home stores, each element once."""
        home = self.regions.homes[m]
        maker = self.flow.producer[m]
        cuts: list[_Cut] = []
        for loop in self.nest.loops_to[home]:
            if loop is home and loop.axis == "rows":  # rows move one by one, however many blocks there are
                continue
            axis = self.regions.axis_cut(loop, m)
            if self.runs_through(loop, maker):
                continue
            if not loop.cuts_channels:
                start, stop = self.regions.spans[loop].stored[maker]
                cuts.append(_Cut(axis, stop - start, self.regions.grids[loop]))
            elif axis is not None:
                extent = np.diff(loop.blocks.ends(self.flow.maps[m].shape[axis]))
                if m in self.around.kept:
                    extent = np.where(self.regions.kept_blocks(loop, m), 0, extent)
                cuts.append(_Cut(axis, extent, self.regions.grids[loop]))
        return self._moved(m, cuts)

    def _moved(self, m: int, cuts: Sequence[_Cut]) -> Figure:
        """DRAM bytes of a map in the blocks of loops that cut it so."""
        tensor = self.flow.maps[m]
        align = self.layout.hardware.dram_row_align
        rows: Figure = tensor.rows
        times: Figure = 1
        parts: list[tuple[int, Ints, BlockGrid]] = []  # (axis, its extent in each block, the blocks)
        for axis, extent, grid in cuts:
            if extent is None:
                times = times * grid.counts
            elif axis is None:
                times = times * grid.total(np.minimum(extent, 1))
            elif axis == row_axis(tensor.shape):
                rows = grid.total(extent)
            else:
                parts.append((axis, extent, grid))
        row = tensor.elements // max(tensor.rows, 1) * self.layout.hardware.element_bytes
        if not parts:
            return times * rows * (-(-row // align) * align)
        if len(parts) == 1:
            ((axis, extent, grid),) = parts
            size = row // tensor.shape[axis] * extent
            return times * rows * grid.total(-(-size // align) * align)
        size = np.array(row, np.int64)
        for axis, extent, grid in parts:
            assert len(grid.ways) == 1, "blocks along two axes are priced in one way at a time"
            size = np.multiply.outer(size // tensor.shape[axis], extent)
        return times * rows * int((-(-size // align) * align).sum())

    def _entries(self, home: Node) -> Figure:
        """How often a node is entered."""
        times: Figure = 1
        for loop in self.nest.loops_to[home]:
            times = times if loop is home else times * self.regions.grids[loop].counts
        return times

    def runs_through(self, loop: BlockLoop, op: int) -> bool:
        """Whether an operator takes its operand row by row, block after block of a loop over rows."""
        return loop.axis == "rows" and bool(self.running >> op & 1)

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
            if idle := self.streams.idle_channels(i):
                m = self.around.idle[i]
                every = self.flow.maps[m].shape[CHANNEL_AXIS_OF_RANK[len(self.flow.maps[m].shape)]]
                macs = macs * (every - idle)
            for loop in self.nest.loops_to[leaf] if macs else ():
                if self.regions.is_made_again(loop, i):
                    macs = macs * loop.blocks.count
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
