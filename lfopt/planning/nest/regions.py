"""Regions of a nest: which part of every tensor the blocks of its loops make, load and hold.

A region is a box whose axes are cut by different loops. So every figure of a tensor is a product over its
axes: the most that a block has of it, the widest window that a loop holds, the sum over all blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lfopt.ir import Span, cut, row_axis, whole
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow, MapRead
from lfopt.ops.columns import column_count, column_reads
from lfopt.ops.footprint import footprint
from lfopt.planning.nest.channels import channels_cut, folded_extent, waits
from lfopt.planning.nest.spans import (
    AxisSpans,
    BlockGrid,
    Ints,
    SpanReader,
    Spans,
    kept_from,
    passing_spans,
    spans_in_blocks,
)
from lfopt.planning.nest.tree import (
    ALONE,
    Axis,
    BlockLoop,
    CarriedPart,
    GroupNest,
    Held,
    LateInput,
    Node,
    PartialSums,
    RowLeaf,
    Surroundings,
)

Shape = tuple[int, ...]
Figure = Ints | int  # (ways,) int64, or one number where all ways are alike
FEW_BLOCKS = 16  # blocks that are all looked at


class HeldExtent(NamedTuple):
    """The part of a tensor that is on chip at once.

    Arrays are (ways,) int64; a number stands for all ways.
    """

    rows: Ints | int
    cut: tuple[tuple[int, Ints | int], ...]  # (axis, indices along it) of the other axes that loops cut


class InputChannels(NamedTuple):
    """What the blocks of a loop over channels read of a map from outside."""

    axis: int  # of the map
    start: Ints  # (blocks,)
    stop: Ints


def axis_of(axis: Axis, shape: Shape) -> int | None:
    """Where rows, or columns, lie in a map of this shape; None: it has none, and is one piece.

    >>> axis_of("rows", (1, 64, 56, 28)), axis_of("columns", (1, 64, 56, 28)), axis_of("columns", (1, 9, 8))
    (2, 3, None)
    """
    if axis == "rows":
        return row_axis(shape)
    if column_count(shape) > 1:
        return len(shape) - 1
    return None


class Regions:
    """Regions of one group's nest.

    `operands`: by operator, the rows that it reads of maps. `heights`: per operator, the
    rows in which it advances. `ways`: of a loop, how it may be cut; by default as the nest says. `around`:
    what other passes have kept on chip.
    """

    def __init__(
        self,
        flow: Dataflow,
        mask: int,
        nest: GroupNest,
        operands: Sequence[Sequence[MapRead]] | Mapping[int, Sequence[MapRead]],
        heights: Sequence[int],
        ways: Mapping[BlockLoop, BlockGrid],
        around: Surroundings = ALONE,
    ) -> None:
        self.flow = flow
        self.around = around
        self.mask = mask
        self.nest = nest
        self.operands = operands
        self.heights = heights
        loops = (node for node in nest.paths if isinstance(node, BlockLoop))
        self.grids = {loop: ways.get(loop) or BlockGrid([loop.blocks]) for loop in loops}
        self._late_rows: dict[tuple[BlockLoop, LateInput], AxisSpans] = {}
        self._inputs: dict[tuple[BlockLoop, int, bool], InputChannels | None] = {}
        self._kept_blocks: dict[tuple[BlockLoop, int], np.ndarray] = {}

    # -- homes -----------------------------------------------------------------------------------------------

    @cached_property
    def homes(self) -> dict[Held, Node]:
        """The node that holds each map of the group, and each constant that passes through no stream.

        By default the innermost node around all that make or read it. A constant is held throughout; a map
        from outside, and a result that is summed, around the loops over channels.
        """
        if self.nest.complete:
            return {held: home for held, home in self.nest.homes.items() if not isinstance(held, PartialSums)}
        kept = self.around.kept
        users: dict[Held, list[RowLeaf]] = {}
        streamed = {name for stream in self.nest.streams for name in stream.constants}
        for i, leaf in self.nest.leaf_of.items():
            tensors: list[Held] = [o.map for o in self.flow.operands[i] if not self.is_late(i, o)]
            if i not in leaf.measures:
                # what an operator makes at once, and nothing reads, takes no space
                tensors += [m for m in self.flow.results[i] if not leaf.at_once or self._is_read(m)]
                constants = (w.name for w in self.flow.weights[i] if not w.gathered)
                tensors += [name for name in constants if name not in streamed]
            for held in tensors:
                users.setdefault(held, []).append(leaf)
        homes = self.nest.homes
        return {
            held: homes.get(held) or self._default(held, leaves)
            for held, leaves in users.items()
            if not (isinstance(held, int) and kept.get(held) == 0)
        }

    def _default(self, held: Held, leaves: Sequence[RowLeaf]) -> Node:
        if isinstance(held, str):
            return self.nest.root
        around = self._around(leaves)
        maker = self.flow.producer[held] if isinstance(held, int) else -1
        for loop in self.nest.loops_to[around]:
            from_outside = maker < 0 or not self.mask >> maker & 1
            if maker in loop.folds or (loop.cuts_channels and from_outside):
                return self.nest.parent(loop) or loop
        return around

    def is_late(self, op: int, operand: MapRead) -> bool:
        """Whether an operator reads a map from outside when its sums are finished, row by row as it needs it.

        Not where a node around the leaf holds the map.
        """
        leaf = self.nest.leaf_of[op]
        if leaf.at_once or self.flow.makes(self.mask, operand.map) or self.around.is_whole(operand.map):
            return False
        own = operand.input < len(self.flow.calls[op].operator.inputs)
        sums = not own and any(op in loop.folds for loop in self.nest.loops_to[leaf])
        if not sums and not any(self.waits(loop, op) for loop in self.nest.loops_to[leaf]):
            return False
        home = self.nest.homes.get(operand.map)
        return home is leaf or home not in self.nest.paths[leaf]

    def late_inputs(self, leaf: RowLeaf) -> list[LateInput]:
        """What a leaf loads when sums are finished, in the order of the operators."""
        maps = (o.map for i in leaf.operators for o in self.flow.operands[i] if self.is_late(i, o))
        return [LateInput(m, leaf) for m in dict.fromkeys(maps)]

    def late_rows(self, loop: BlockLoop, late: LateInput) -> AxisSpans:
        """Rows of a map that the last blocks of sums load in each block of a loop over rows."""
        key = loop, late
        if key not in self._late_rows:
            self._late_rows[key] = self._find_late_rows(loop, late)
        return self._late_rows[key]

    def _find_late_rows(self, loop: BlockLoop, late: LateInput) -> AxisSpans:
        computed = self.spans[loop].made
        readers = [
            SpanReader(computed[i]._replace(start=computed[i].new), operand.reads)
            for i in late.leaf.operators
            for operand in self.operands[i]
            if operand.map == late.map and self.is_late(i, operand)
        ]
        return passing_spans(self.grids[loop], readers)

    def _is_read(self, m: int) -> bool:
        return self.flow.is_output[m] or bool(self.flow.readers[m])

    def _around(self, leaves: Sequence[RowLeaf]) -> Node:
        """The innermost node around all of these."""
        first = leaves[0]
        if all(leaf is first for leaf in leaves):
            return first
        paths = [self.nest.paths[leaf] for leaf in leaves]
        common = [level[0] for level in zip(*paths, strict=False) if all(node is level[0] for node in level)]
        return common[-1]

    # -- loops -----------------------------------------------------------------------------------------------

    @cached_property
    def spans(self) -> dict[BlockLoop, Spans]:
        """Per loop over rows or columns: spans along that axis of what its operators make and read."""
        return {loop: self._spans(loop) for loop in self.grids if not loop.cuts_channels}

    def _spans(self, loop: BlockLoop) -> Spans:
        operators = self.nest.operators[loop]
        grid = self.grids[loop]
        inside = {*self.nest.inside(loop)}
        fresh = {m for m, home in self.homes.items() if home in inside and m not in self.nest.carried}
        if loop.axis == "rows":
            covering = bool(self.nest.carried)
            early = {i: [o for o in self.operands[i] if not self.is_late(i, o)] for i in operators}
            rows = self.heights
            engines = {leaf for leaf in self.nest.row_engines if leaf in inside}
            passing = {m for m, home in self.homes.items() if isinstance(m, int) and home in engines}
            stored = self.around.stored or ()
            return spans_in_blocks(
                self.flow, operators, grid, fresh, early, rows, passing, stored, covering=covering
            )
        reads = {i: self._column_reads(i) for i in operators}
        columns = {i: column_count(self.flow.calls[i].result) for i in operators}
        return spans_in_blocks(self.flow, operators, grid, fresh, reads, columns, covering=True)

    def indices(self, loop: BlockLoop, op: int) -> int:
        """Rows, or columns, that an operator makes in all along the axis of a loop."""
        if loop.axis == "rows":
            return self.heights[op]
        return column_count(self.flow.calls[op].result)

    def channels_cut(self, loop: BlockLoop, op: int) -> int | None:
        """The axis of an operator's results that a loop over channels cuts; None: it cuts none.

        An operator in the loop makes channels from the same channels of its operands, unless it sums over
        them. What an operator needs beyond that, or sums over inside the loop, is made again in each block.
        """
        return channels_cut(self.flow, self.nest, loop, op)

    def is_made_again(self, loop: BlockLoop, op: int) -> bool:
        """Whether every block of a loop over channels makes all of an operator's result again."""
        if not loop.cuts_channels or op in loop.folds or self.waits(loop, op):
            return False
        return self.channels_cut(loop, op) is None

    def waits(self, loop: BlockLoop, op: int) -> bool:
        """Whether an operator runs with the last block of what others sum over the blocks of a loop."""
        return bool(loop.folds) and waits(self.flow, self.nest, loop, op)

    def _column_reads(self, op: int) -> list[MapRead]:
        reads: list[MapRead] = []
        for operand in self.flow.operands[op]:
            columns = column_reads(self.flow.calls[op], operand.input)
            assert columns is not None, f"{self.flow.operators[op].name} cannot run on strips of columns"
            reads.append(replace(operand, reads=columns))
        return reads

    def axis_cut(self, loop: BlockLoop, m: int) -> int | None:
        """The axis of a map that a loop cuts; of a map from outside, where the loop is around its home."""
        if not loop.cuts_channels:
            return axis_of(loop.axis, self.flow.maps[m].shape)
        if self.flow.makes(self.mask, m):
            return self.channels_cut(loop, self.flow.producer[m])
        inputs = self.input_channels(loop, m)
        return None if inputs is None else inputs.axis

    def input_channels(self, loop: BlockLoop, m: int, *, late: bool = False) -> InputChannels | None:
        """What the blocks of a loop over channels read of a map from outside; None: all of it, every time.

        `late`: when sums are finished.
        """
        key = loop, m, late
        if key not in self._inputs:
            self._inputs[key] = self._input_channels(loop, m, late=late)
        return self._inputs[key]

    def _input_channels(self, loop: BlockLoop, m: int, *, late: bool) -> InputChannels | None:
        axis = CHANNEL_AXIS_OF_RANK.get(len(self.flow.maps[m].shape))
        readers = [
            (i, operand.input)
            for i in self.nest.operators[loop]
            for operand in self.flow.operands[i]
            if operand.map == m and self.is_late(i, operand) == late
        ]
        if axis is None or not all(self._reads_blocks(loop, i, k, m) for i, k in readers):
            return None
        count = loop.blocks.count
        ends = loop.blocks.ends(self.flow.maps[m].shape[axis])
        own = InputChannels(axis, ends[:-1], ends[1:])  # of as many blocks of the map itself

        def read(block: int) -> Span:
            spans = [self._channels_read(loop, i, k, block)[axis] for i, k in readers]
            return min(start for start, _ in spans), max(stop for _, stop in spans)

        looked_at = {0, 1, count // 2, count - 2, count - 1}
        if count > FEW_BLOCKS and all(read(b) == (own.start[b], own.stop[b]) for b in looked_at):
            return own
        spans = np.array([read(block) for block in range(count)], np.int64)
        return InputChannels(axis, spans[:, 0], spans[:, 1])

    def kept_blocks(self, loop: BlockLoop, m: int) -> np.ndarray:
        """(blocks,) bool: whether the channels of a map in each block of a loop stay around the nest."""
        key = loop, m
        if key not in self._kept_blocks:
            self._kept_blocks[key] = self._find_kept_blocks(loop, m)
        return self._kept_blocks[key]

    def _find_kept_blocks(self, loop: BlockLoop, m: int) -> np.ndarray:
        kept = self.around.kept.get(m, 0)
        starts: Ints | None = None
        if kept and loop.cuts_channels and self.flow.makes(self.mask, m):
            axis = self.channels_cut(loop, self.flow.producer[m])
            if axis is not None:
                starts = loop.blocks.ends(self.flow.maps[m].shape[axis])[:-1]
        elif kept and loop.cuts_channels:
            inputs = self.input_channels(loop, m)
            if inputs is not None:
                starts = inputs.start
        if starts is None:
            return np.zeros(loop.blocks.count, bool)
        return starts < kept

    def there_already(self, loop: BlockLoop, m: int) -> np.ndarray:
        """(blocks,) bool: whether nothing of a map need be loaded in each block of a loop."""
        idle = self.idle_blocks(loop, m)
        return idle | self.kept_blocks(loop, m) if m in self.around.there else idle

    def idle_blocks(self, loop: BlockLoop, m: int) -> np.ndarray:
        """(blocks,) bool: whether no operator that makes or reads a map runs in each block of a loop."""
        idle = self.around.idle
        touching = [i for i in self.nest.operators[loop] if m in self.flow.touched(1 << i)]
        if not idle or not all(i in idle for i in touching):
            return np.zeros(loop.blocks.count, bool)
        return np.logical_and.reduce([self.kept_blocks(loop, idle[i]) for i in touching])

    def _reads_blocks(self, loop: BlockLoop, op: int, k: int, m: int) -> bool:
        """Whether what an operator reads of a map depends on the block of a loop over channels."""
        if self.flow.calls[op].shape(k) != self.flow.maps[m].shape:
            return False
        call = self.flow.calls[op]
        everything = footprint(call, k, whole(call.result))
        ends = (0, loop.blocks.count - 1)
        return any(self._channels_read(loop, op, k, block) != everything for block in ends)

    def _channels_read(self, loop: BlockLoop, op: int, k: int, block: int) -> tuple[Span, ...]:
        """The box that an operator reads of its k-th input in one block of a loop over channels."""
        call = self.flow.calls[op]
        out = whole(call.result)
        axis = self.channels_cut(loop, op)
        if axis is not None:
            out = cut(out, axis, loop.blocks.span(block, call.result[axis]))
        if k >= len(call.operator.inputs):
            return footprint(call, k, out)
        if op in loop.folds:
            return footprint(call, k, out, inputs=self.folded_span(loop, op, block))
        return footprint(call, k, out, inputs=self.finished_inputs(op))

    def finished_inputs(self, op: int) -> Span | None:
        """Behind the last of what a normalization has statistics of; None: they are not there yet."""
        if op not in self.around.measured:
            return None
        depth = folded_extent(self.flow, op)
        return depth, depth

    def along(self, loop: BlockLoop, m: int) -> AxisSpans | None:
        """Spans of a map along the axis of a loop over rows or columns; None if the loop does not cut it."""
        spans = self.spans[loop]
        maker = self.flow.producer[m]
        if maker in spans.made:
            return spans.made[maker]
        return spans.loaded.get(m)

    def folded_span(self, loop: BlockLoop, op: int, block: int) -> tuple[int, int]:
        """The input channels that an operator sums over in one block."""
        return loop.blocks.span(block, folded_extent(self.flow, op))

    # -- what is held ----------------------------------------------------------------------------------------

    def kept(self, loop: BlockLoop, m: int) -> Ints:
        """(entries,): the lowest index of a map that a block of a loop, or a later one, reads."""
        own = self.along(loop, m)
        assert own is not None, "a loop keeps what it cuts"
        return kept_from(self.spans[loop].readers.get(m, ()), own.stop)

    def patch(self, loop: BlockLoop, m: int) -> tuple[Ints, Ints]:
        """((entries,), (entries,)): start and stop of what a block has of a map that is carried to it."""
        own = self.along(loop, m)
        assert own is not None, "loops cut what they carry"
        return np.minimum(self.kept(loop, m), own.new), own.stop

    def carried_part(self, part: CarriedPart) -> HeldExtent:
        """The most that a loop keeps of a map for later blocks.

        The loop over columns keeps, as high as a patch, the columns that later patches still read. The loop
        over rows around it keeps the rows that the next band reads: for each block of columns those of its
        new columns, one after the other. The first block is wider, by the halo, and has a place of its own.
        """
        rows_loop, columns_loop = self.nest.carrying(part.map)
        down = self.along(rows_loop, part.map)
        across = self.along(columns_loop, part.map)
        assert down is not None, "loops cut what they carry"
        assert across is not None, "loops cut what they carry"
        axis = len(self.flow.maps[part.map].shape) - 1
        rows = self.grids[rows_loop]
        columns = self.grids[columns_loop]
        if part.loop is columns_loop:
            start, stop = self.patch(rows_loop, part.map)
            width = columns.most(np.maximum(across.new - self.kept(columns_loop, part.map), 0))
            is_kept = np.minimum(width, 1)  # without columns there are no rows
            return HeldExtent(rows.most(stop - start) * is_kept, ((axis, width),))
        height = rows.most(np.maximum(down.new - self.kept(rows_loop, part.map), 0))
        widths = across.stop - across.new
        if part.first:
            return HeldExtent(height, ((axis, widths[columns.offsets]),))
        widths[columns.offsets] = 0  # the first has a place of its own
        others = columns.counts - 1
        return HeldExtent(height * others, ((axis, columns.most(widths)),))

    def _patch_extent(self, m: int) -> HeldExtent:
        """The most that a block has of a map that is carried."""
        sizes: list[Ints] = []
        for loop in self.nest.carrying(m):
            start, stop = self.patch(loop, m)
            sizes.append(self.grids[loop].most(stop - start))
        rows, columns = sizes
        return HeldExtent(rows, ((len(self.flow.maps[m].shape) - 1, columns),))

    def held(self, m: int) -> HeldExtent:
        """The part of a map that its home holds at once; a row engine holds the rows of its ring."""
        if m in self.nest.carried:
            return self._patch_extent(m)
        return self._extent(m, self.homes[m])

    def held_sums(self, op: int) -> HeldExtent:
        """The part of an operator's result whose partial sums are held at once."""
        return self._extent(self.flow.results[op][0], self.nest.homes[PartialSums(op)], sums=True)

    def _extent(self, m: int, home: Node, *, sums: bool = False) -> HeldExtent:
        rows: Ints | int = self.flow.maps[m].rows
        cut: list[tuple[int, Ints | int]] = []
        for loop in self.nest.loops_to[home]:
            if loop.cuts_channels:
                cut += [] if loop is home else self._channels_held(loop, m)
                continue
            own = self.along(loop, m)
            if own is None or (loop.axis == "rows" and self.flow.maps[m].rows == 1):
                continue
            if loop.axis == "rows":
                keeps = loop is home and not sums
                rows = self._window(loop, m, own) if keeps else self.grids[loop].most(own.stop - own.start)
            elif loop is not home and (axis := self.axis_cut(loop, m)) is not None:
                cut.append((axis, self.grids[loop].most(own.stop - own.start)))
        return HeldExtent(rows, tuple(cut))

    def _channels_held(self, loop: BlockLoop, m: int, *, late: bool = False) -> list[tuple[int, int]]:
        """(axis, most indices along it) that a block of a loop over channels has of a map, if it is cut."""
        if self.flow.makes(self.mask, m):
            axis = self.channels_cut(loop, self.flow.producer[m])
            if axis is None:
                return []
            extent = self.flow.maps[m].shape[axis]
            if m not in self.around.kept and not self.around.idle:
                return [(axis, loop.blocks.widest(extent))]
            widths = np.diff(loop.blocks.ends(extent))
            return [(axis, self._widest_held(loop, m, widths))]
        inputs = self.input_channels(loop, m, late=late)
        if inputs is None:
            return []
        return [(inputs.axis, self._widest_held(loop, m, inputs.stop - inputs.start))]

    def _widest_held(self, loop: BlockLoop, m: int, widths: Ints) -> int:
        """The most of these widths, (blocks,), in blocks of which a nest holds anything of a map itself."""
        elsewhere = self.kept_blocks(loop, m) | self.idle_blocks(loop, m)
        return int(widths[~elsewhere].max(initial=0))

    def held_late(self, late: LateInput) -> HeldExtent:
        """The part of a map on chip that a leaf loads, a row at a time, when sums are finished."""
        cut: list[tuple[int, Ints | int]] = []
        for loop in self.nest.loops_to[late.leaf]:
            if loop.cuts_channels:
                cut += self._channels_held(loop, late.map, late=True)
        return HeldExtent(late.leaf.summed_rows, tuple(cut))

    def _window(self, loop: BlockLoop, m: int, own: AxisSpans) -> Ints:
        """(ways,): rows from the lowest that is still read, or just made, to the highest that is there."""
        kept = self.kept(loop, m)
        if self.flow.makes(self.mask, m):
            return self.grids[loop].most(own.stop - np.minimum(kept, own.new))
        return np.maximum(self.grids[loop].most(own.stop - kept), 1)
