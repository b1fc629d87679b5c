"""From a nest to places and steps: the one lowering of every schedule.

Nodes run from the outside in. A tensor is loaded where its home begins to need it: a constant when the
node that holds it is entered; a map before the block of a loop, or the part of a `Seq`, that reads it first;
row by row where a row engine holds it. A result is stored when the part that makes it, right inside its home,
has run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from lfopt.ir import Loop as StepLoop
from lfopt.ir import Node as StepNode
from lfopt.ir import Place, Span, Step, cut, fold, whole
from lfopt.planning.line_buffers.lbdf import LineBuffers
from lfopt.planning.line_buffers.walk import LONGEST_PERIOD
from lfopt.planning.nest.channels import folded_extent
from lfopt.planning.nest.current import CurrentBlocks
from lfopt.planning.nest.places import Placement
from lfopt.planning.nest.price import NestPrice, NestPricing
from lfopt.planning.nest.row_engine import RowEngine
from lfopt.planning.nest.spans import Ints
from lfopt.planning.nest.tree import (
    BlockLoop,
    CarriedPart,
    GroupNest,
    Held,
    Node,
    PartialSums,
    RowLeaf,
    Seq,
    StayingPart,
    Stream,
)
from lfopt.planning.steps.layout import BufferLayout, row_span, with_rows
from lfopt.planning.steps.limit import Limit

PERIOD = 16  # blocks of rows: the longest repetition that is looked for


def lower(
    layout: BufferLayout,
    mask: int,
    nest: GroupNest,
    line_buffers: LineBuffers | None = None,
    limit: Limit | None = None,
) -> tuple[tuple[Place, ...], tuple[StepNode, ...]]:
    """Places and steps of a group that runs as a nest says. Raises Unwritten beyond the limit.

    `line_buffers`: of the dataflow, for row engines.
    """
    return lower_priced(NestPricing(layout, line_buffers).price(mask, nest), limit or Limit())


def lower_priced(price: NestPrice, limit: Limit) -> tuple[tuple[Place, ...], tuple[StepNode, ...]]:
    """As `lower`, of a nest that has its price."""
    placement = Placement(price)
    return tuple(placement.places), Lowering(placement, limit).steps()


def lay_out(
    layout: BufferLayout, mask: int, nest: GroupNest, line_buffers: LineBuffers | None = None
) -> tuple[Place, ...]:
    """The places alone. See `lower`."""
    return tuple(Placement(NestPricing(layout, line_buffers).price(mask, nest)).places)


class Lowering:
    """The steps of one group."""

    def __init__(self, placement: Placement, limit: Limit) -> None:
        """`placement`: of the group, or of a pass of it."""
        self.placement = placement
        self.limit = limit
        self.layout = placement.layout
        self.flow = placement.flow
        price = placement.price
        self.price = price
        self.mask = price.mask
        self.nest = price.nest
        self.regions = price.regions
        self.homes = placement.homes
        self.at = placement.at
        self.places = placement.places
        self.leaving = price.leaving
        self.current = CurrentBlocks(price)
        # blocks of constants that have come through each stream so far: numbers its slots
        self.passed: dict[Stream, int] = {}

    def steps(self) -> tuple[StepNode, ...]:
        """The steps. Raises Unwritten beyond the limit."""
        return (*self._constants(self.nest.root), *self._node(self.nest.root))

    def _node(self, node: Node) -> list[StepNode]:
        if isinstance(node, BlockLoop):
            return self._loop(node)
        if isinstance(node, Seq):
            return self._seq(node)
        return self._at_once(node) if node.at_once else self._row_engine(node)

    def _constants(self, node: Node) -> Iterator[Step]:
        """Loads of the constants that a node holds throughout, when it is entered."""
        in_turn = isinstance(node, Seq) and node.lives  # what it holds comes with the part that reads it
        for name in self.placement.held_constants(node) if not in_turn else ():
            yield self.layout.load_constant(name, whole(self.flow.graph.shape(name)), self.at[name])
        for stream in self.nest.streams:
            for name, box in self.placement.price.streams.staying(stream) if stream.home is node else ():
                yield self.layout.load_constant(name, box, self.at[StayingPart(name)])

    def _seq(self, node: Seq) -> list[StepNode]:
        """The parts of a `Seq`; a loop around it stores what it holds with them."""
        parent = self.nest.parent(node)
        holders = (node, parent) if isinstance(parent, BlockLoop) else (node,)
        steps: list[StepNode] = []
        touched: set[Held] = set()
        for part in node.parts:
            operators = self.nest.operators[part]
            for i in operators:
                steps += self._first_loads(i, node, touched)
            steps += [*self._constants(part), *self._node(part)]
            steps += self._stores(operators, holders)
        return steps

    def _first_loads(self, op: int, node: Seq, touched: set[Held]) -> Iterator[Step]:
        """Loads of what a `Seq` holds, before the first part that reads it."""
        for held in self.placement.tensors(op):
            if self.homes.get(held) is not node or held in touched:
                continue
            touched.add(held)
            if isinstance(held, str):
                if node.lives:
                    yield self.layout.load_constant(held, whole(self.flow.graph.shape(held)), self.at[held])
            elif isinstance(held, int) and not self.flow.makes(self.mask, held):
                yield from self._load(held)

    def _load(self, m: int) -> Iterator[Step]:
        """The load of what the current blocks need of a map."""
        box = self.current.loaded(m)
        if box is not None:
            yield self.layout.load(self.flow.maps[m].name, box, self._place(m))

    def _place(self, m: int) -> int:
        """Index of the place that a map has in the current blocks; -1: none."""
        place = self.placement.place_of(m, kept=self.current.is_kept(m))
        return -1 if place is None else place

    def _loads(self, node: Node) -> Iterator[Step]:
        """Loads of the maps from outside that a leaf, or a loop but over rows, holds, when it is entered."""
        for m in self.placement.held_inputs(node):
            yield from self._carry_down(m)
            yield from self._load(m)
            yield from self._carry_across(m)

    def _stores(self, operators: Sequence[int], holders: Sequence[Node | None]) -> Iterator[Step]:
        """Stores of what operators have made and these nodes hold; those of a leaf itself come with it."""
        for i in operators:
            for m in self.flow.results[i]:
                if m in self.leaving and any(self.homes[m] is holder for holder in holders):
                    box = self.current.stored(i, m)
                    if box is not None:
                        yield self.layout.store(self.flow.maps[m].name, box, self._place(m))

    # -- loops -----------------------------------------------------------------------------------------------

    def _loop(self, loop: BlockLoop) -> list[StepNode]:
        if loop.axis == "rows":
            kept = {m: self.regions.kept(loop, m) for m in self._sliding(loop)}
            bands = (tuple(self._band(loop, block, kept)) for block in range(loop.blocks.count))
            folded_bands = [*fold(self.limit.allowed(bands), PERIOD)]
            del self.current.number[loop]
            return folded_bands
        steps: list[StepNode] = [*self._loads(loop)]
        self.limit.spend(loop.blocks.count)
        for first, count in self._alike(loop):
            passed = dict(self.passed)
            body = self._block(loop, first)
            of_block = {stream: number - passed.get(stream, 0) for stream, number in self.passed.items()}
            if count == 1:
                steps += body
                continue
            folded = fold([tuple(body), tuple(self._block(loop, first + 1))])
            if folded:
                (repeated,) = folded
                assert isinstance(repeated, StepLoop), "blocks differ in more than where they are"
                steps.append(replace(repeated, count=count))
            for stream, number in of_block.items():
                self.passed[stream] += (count - 2) * number
        self.current.number.pop(loop, None)
        return steps

    def _band(self, loop: BlockLoop, block: int, kept: dict[int, Ints]) -> list[StepNode]:
        """A block of rows, with what comes into the windows of maps from outside.

        `kept`: per such map, the lowest row that each block or a later one reads.
        """
        steps: list[StepNode] = []
        for m, lowest in kept.items():
            spans = self.regions.spans[loop].loaded[m]
            new = int(spans.new[block])
            stop = int(spans.stop[block])
            first_read = min(max(int(lowest[block]), new), stop)
            steps += self._window_loads(loop, m, (new, first_read))  # rows that nothing reads go first
            steps += self._window_loads(loop, m, (first_read, stop))
        steps += self._block(loop, block)
        if block == loop.blocks.count - 1:
            for m in kept:
                stop = int(self.regions.spans[loop].loaded[m].stop[-1])
                steps += self._window_loads(loop, m, (stop, self.flow.maps[m].rows))
        return steps

    def _block(self, loop: BlockLoop, block: int) -> list[StepNode]:
        """Constants that the body holds, the body, and stores of what the loop holds; a `Seq` stores that."""
        self.current.number[loop] = block
        steps: list[StepNode] = [*self._constants(loop.body), *self._node(loop.body)]
        if not isinstance(loop.body, Seq):
            steps += self._stores(self.nest.operators[loop.body], (loop,))
        return steps

    def _sliding(self, loop: BlockLoop) -> list[int]:
        """Maps from outside that a loop over rows keeps as a window."""
        if loop.axis != "rows":
            return []
        return self.placement.held_inputs(loop)

    def _window_loads(self, loop: BlockLoop, m: int, rows: Span) -> Iterator[Step]:
        """Loads of rows into the window of a loop over rows, no more at a time than the window has."""
        place = self.at[m]
        box = self.current.loaded(m, but=loop)
        start, stop = rows
        while box is not None and start < stop:
            end = min(start + self.places[place].slots, stop)
            yield self.layout.load(self.flow.maps[m].name, with_rows(box, (start, end)), place)
            start = end

    def _alike(self, loop: BlockLoop) -> list[tuple[int, int]]:
        """(first, how many) of runs of blocks that differ only in where they are, by equal moves."""
        moving = [*(self._channels_moved(loop) if loop.cuts_channels else self._columns_moved(loop))]
        none = np.zeros(loop.blocks.count, np.int64)
        extents = np.array([none, *(stop - start for start, stop in moving)])
        starts = np.array([none, *(start for start, _ in moving)])
        same = (extents[:, 1:] == extents[:, :-1]).all(axis=0)
        moves = np.diff(starts, axis=1)
        runs: list[tuple[int, int]] = []
        first = 0
        while first < loop.blocks.count:
            stop = first + 1
            if stop < loop.blocks.count and same[first]:
                alike = same[first:] & (moves[:, first:] == moves[:, first : first + 1]).all(axis=0)
                stop = first + 1 + (alike.size if alike.all() else int(np.argmin(alike)))
            runs.append((first, stop - first))
            first = stop
        return runs

    def _columns_moved(self, loop: BlockLoop) -> Iterator[tuple[Ints, Ints]]:
        """(starts, stops) of all that the blocks of a loop over columns make or move."""
        spans = self.regions.spans[loop]
        for own in (*spans.made.values(), *spans.loaded.values()):
            yield own.start, own.stop
            yield own.new, own.stop
        yield from spans.stored.values()
        for m in self.nest.carried:
            kept = self.regions.kept(loop, m)
            own = self.regions.along(loop, m)
            assert own is not None, "loops cut what they carry"
            yield kept, own.stop
            yield np.append(kept[1:], own.stop[-1]), own.stop
        if self.nest.carried:  # what is kept of the first block lies apart
            yield _first_apart(loop.blocks.count)

    def _channels_moved(self, loop: BlockLoop) -> Iterator[tuple[Ints, Ints]]:
        """(starts, stops) of all that the blocks of a loop over channels make or move."""
        count = loop.blocks.count
        inside = {*self.nest.inside(loop)}
        for m in self.price.around.kept:
            yield np.zeros(count, np.int64), 1 * self.regions.kept_blocks(loop, m)
        widths: list[Ints] = []  # where the channels of operators and sums end, block by block
        for i in self.nest.operators[loop]:
            axis = self.regions.channels_cut(loop, i)
            if axis is not None:
                widths.append(loop.blocks.ends(self.flow.calls[i].result[axis]))
            elif i not in loop.folds and any(self.homes.get(m) in inside for m in self.flow.results[i]):
                yield _first_apart(count)  # what comes again is stored with the first block
        if loop.folds:  # the first block begins sums, the last one ends them
            yield _first_apart(count)
            yield np.zeros(count, np.int64), 1 * (np.arange(count) == count - 1)
            widths.append(loop.blocks.ends(folded_extent(self.flow, loop.folds[0])))
        for ends in widths:
            yield ends[:-1], ends[1:]
            for stream in self.nest.streams:
                yield np.zeros(count, np.int64), 1 * (ends[:-1] < stream.stays)
        for m, home in self.homes.items():
            if isinstance(m, int) and home in inside and not self.flow.makes(self.mask, m):
                inputs = self.regions.input_channels(loop, m)
                if inputs is not None:
                    yield inputs.start, inputs.stop

    # -- leaves ----------------------------------------------------------------------------------------------

    def _at_once(self, leaf: RowLeaf) -> list[StepNode]:
        """Every operator on all that is asked of it."""
        steps: list[StepNode] = [*self._loads(leaf)]
        for i in leaf.operators:
            steps += self._passes([i])
            for m in self.flow.results[i]:
                steps += self._carry_down(m)
            steps += self._computes(i)
            for m in self.flow.results[i]:
                steps += self._carry_across(m)
            steps += self._stores([i], (leaf,))
        for m in sorted(self.nest.carried):
            steps += self._carry_on(m)
        return steps

    # -- what blocks carry on --------------------------------------------------------------------------------

    def _carry_down(self, m: int) -> Iterator[Step]:
        """The rows above a patch, beside its new columns: they come before what is new.

        A place that has no room for more than a patch then drops the patch before it.
        """
        if m in self.nest.carried:
            rows, columns = self.current.carried(m)
            yield from self._carry(m, (rows.kept, rows.new), (columns.new, columns.stop))

    def _carry_across(self, m: int) -> Iterator[Step]:
        """The columns before those that are new."""
        if m in self.nest.carried:
            rows, columns = self.current.carried(m)
            yield from self._carry(m, (rows.kept, rows.stop), (columns.kept, columns.new))

    def _carry_on(self, m: int) -> Iterator[Step]:
        """What later patches read of a patch: beside it, and below it."""
        rows_loop, columns_loop = self.nest.carrying(m)
        rows, columns = self.current.carried(m)
        block = self.current.number[columns_loop]
        across = CarriedPart(m, columns_loop)
        down = CarriedPart(m, rows_loop, first=not block)
        if across in self.at:
            box = (rows.kept, rows.stop), (columns.kept_next, columns.stop)
            yield from self._carry(m, *box, place=self.at[across])
        if down in self.at:
            others = columns_loop.blocks.count - 1
            each = self.places[self.at[down]].slots // others if block else 0
            box = (rows.kept_next, rows.stop), (columns.new, columns.stop)
            yield from self._carry(m, *box, place=self.at[down], slot=max(block - 1, 0) * each)

    def _carry(
        self, m: int, rows: Span, columns: Span, place: int | None = None, slot: int | None = None
    ) -> Iterator[Step]:
        if rows[0] < rows[1] and columns[0] < columns[1]:
            box = cut(with_rows(whole(self.flow.maps[m].shape), rows), -1, columns)
            where = self.at[m] if place is None else place
            yield self.layout.carry(self.flow.maps[m].name, box, where, slot)

    def _computes(self, op: int) -> Iterator[Step]:
        if self.current.is_idle(op) or self.current.is_waiting(op):
            return
        results = self.flow.results[op]
        boxes = [self.current.computed(op, m) for m in results]
        if any(box is None for box in boxes):
            return
        boxes = tuple(box for box in boxes if box is not None)
        places = tuple(self._place(m) for m in results)
        if any(weight.gathered for weight in self.flow.weights[op]):
            yield self.layout.gather(op, boxes[0], places[0], row_span(boxes[0])[0])
            return
        compute = self.layout.compute(op, boxes, places)
        in_two = self.current.statistics(op, compute, self.at.get(PartialSums(op), -1))
        if in_two is not None:
            yield in_two
            return
        part = self.current.folded(op)
        if part is not None:
            sums = self.at[PartialSums(op)]
            compute = replace(compute, inputs=part.inputs, accumulator=sums, first=part.first, last=part.last)
        yield compute

    def _passes(self, operators: Sequence[int]) -> Iterator[Step]:
        """Loads of the blocks of constants that operators take from their streams at once."""
        for stream in self.nest.streams:
            parts = [part for i in operators for part in self.current.stream_parts(i, stream)]
            offset = 0
            for name, box in parts:
                slot = self.passed.get(stream, 0) if stream.slots > 1 else 0
                yield self.layout.load_constant(name, box, self.at[stream], slot, offset)
                offset += self.layout.constant_bytes(name, box)
            if parts:
                self.passed[stream] = self.passed.get(stream, 0) + 1

    def _row_engine(self, leaf: RowLeaf) -> list[StepNode]:
        """Rows of the results in turn, each after the rows that it needs."""
        steps: list[StepNode] = [*self._passes(leaf.operators)]
        engine = RowEngine(self.placement, self.current, leaf)
        return [*steps, *fold([*self.limit.allowed(engine.iterations())], LONGEST_PERIOD)]


def _first_apart(count: int) -> tuple[Ints, Ints]:
    """(starts, stops) that tell the first block from the others."""
    return np.zeros(count, np.int64), 1 * (np.arange(count) == 0)
