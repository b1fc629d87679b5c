"""From a nest to places and steps: the one lowering of every schedule.

Nodes run from the outside in. A tensor is loaded where its home begins to need it: a constant when the
node that holds it is entered; a map before the block of a loop, or the part of a `Seq`, that reads it first;
row by row where a row engine holds it. A result is stored when the part that makes it, right inside its home,
has run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, Place, Span, Step, cut, fold, whole
from lfopt.ir import Loop as StepLoop
from lfopt.ir import Node as StepNode
from lfopt.ops.footprint import footprint
from lfopt.planning.line_buffers.lbdf import LineBuffers
from lfopt.planning.line_buffers.streamed_group import DramSource, Operand, StreamedGroup
from lfopt.planning.line_buffers.walk import LONGEST_PERIOD, Walk
from lfopt.planning.nest.places import Placement
from lfopt.planning.nest.price import NestPricing, data_constants
from lfopt.planning.nest.regions import axis_of, folded_extent
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
    placement = Placement(NestPricing(layout, line_buffers).price(mask, nest))
    return tuple(placement.places), Lowering(placement, limit or Limit()).steps()


def lay_out(
    layout: BufferLayout, mask: int, nest: GroupNest, line_buffers: LineBuffers | None = None
) -> tuple[Place, ...]:
    """The places alone. See `lower`."""
    return tuple(Placement(NestPricing(layout, line_buffers).price(mask, nest)).places)


class Lowering:
    """The steps of one group."""

    def __init__(self, placement: Placement, limit: Limit) -> None:
        self.placement = placement
        self.limit = limit
        self.layout = placement.layout
        self.flow = placement.flow
        price = placement.price
        self.mask, self.nest, self.regions, self.rings = price.mask, price.nest, price.regions, price.rings
        self.lines = price.lines
        self.homes = placement.homes
        self.at = placement.at
        self.places = placement.places
        self.leaving = frozenset(self.flow.leaving(self.mask))
        self.blocks: dict[BlockLoop, int] = {}  # of the loops that run: the current block
        self.passed = 0  # blocks of constants that have come through streams so far: numbers their slots

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
        """Loads of the constants that a node holds, when it is entered."""
        if isinstance(node, Seq) and node.lives:
            return
        for name in self.placement.held_constants(node):
            yield self.layout.load_constant(name, whole(self.flow.graph.shape(name)), self.at[name])

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
        box = self._loaded_box(m)
        if box is not None:
            yield self.layout.load(self.flow.maps[m].name, box, self.at[m])

    def _loads(self, node: Node) -> Iterator[Step]:
        """Loads of the maps from outside that a leaf, or a loop over channels, holds, when it is entered."""
        for m in self.placement.held_inputs(node):
            yield from self._carry_down(m)
            yield from self._load(m)
            yield from self._carry_across(m)

    def _stores(self, operators: Sequence[int], holders: Sequence[Node | None]) -> Iterator[Step]:
        """Stores of what operators have made and these nodes hold; those of a leaf itself come with it."""
        for i in operators:
            for m in self.flow.results[i]:
                if m in self.leaving and any(self.homes[m] is holder for holder in holders):
                    box = self._box(i, m, to_store=True)
                    if box is not None:
                        yield self.layout.store(self.flow.maps[m].name, box, self.at[m])

    def _box(self, op: int, m: int, *, to_store: bool = False) -> Box | None:
        """What the current blocks make of a result, or store of it; None if nothing."""
        box = whole(self.flow.maps[m].shape)
        for loop, block in self.blocks.items():
            if loop.cuts_channels:
                box = self._cut_channels(box, loop, op, block)
                continue
            spans = self.regions.spans[loop].made.get(op)
            if spans is None:
                continue
            start = spans.start
            stop = spans.stop
            if to_store:
                start, stop = self.regions.spans[loop].stored[op]
            if start[block] >= stop[block]:
                return None
            axis = self.regions.axis_cut(loop, m)
            if axis is not None:
                box = cut(box, axis, (int(start[block]), int(stop[block])))
        return box

    def _cut_channels(self, box: Box, loop: BlockLoop, op: int, block: int) -> Box:
        """The part of a box of an operator's result in one block of a loop over channels."""
        axis = self.regions.channels_cut(loop, op)
        if axis is None:
            return box
        return cut(box, axis, loop.blocks.span(block, self.flow.calls[op].result[axis]))

    # -- loops -----------------------------------------------------------------------------------------------

    def _loop(self, loop: BlockLoop) -> list[StepNode]:
        if loop.axis == "rows":
            kept = {m: self.regions.kept(loop, m) for m in self._sliding(loop)}
            blocks = [self._band(loop, block, kept) for block in range(loop.blocks.count)]
            del self.blocks[loop]
            return [*fold(self.limit.allowed(map(tuple, blocks)), PERIOD)]
        steps: list[StepNode] = [*self._loads(loop)] if loop.cuts_channels else []
        self.limit.spend(loop.blocks.count)
        for first, count in self._alike(loop):
            passed = self.passed
            body = self._block(loop, first)
            of_block = self.passed - passed
            if count == 1:
                steps += body
                continue
            folded = fold([tuple(body), tuple(self._block(loop, first + 1))])
            if folded:
                (repeated,) = folded
                assert isinstance(repeated, StepLoop), "blocks differ in more than where they are"
                steps.append(replace(repeated, count=count))
            self.passed += (count - 2) * of_block
        self.blocks.pop(loop, None)
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
            steps += self._window_loads(m, new, first_read)  # rows that nothing reads go first
            steps += self._window_loads(m, first_read, stop)
        steps += self._block(loop, block)
        if block == loop.blocks.count - 1:
            for m in kept:
                stop = int(self.regions.spans[loop].loaded[m].stop[-1])
                steps += self._window_loads(m, stop, self.flow.maps[m].rows)
        return steps

    def _block(self, loop: BlockLoop, block: int) -> list[StepNode]:
        """Constants that the body holds, the body, and stores of what the loop holds; a `Seq` stores that."""
        self.blocks[loop] = block
        steps: list[StepNode] = [*self._constants(loop.body), *self._node(loop.body)]
        if not isinstance(loop.body, Seq):
            steps += self._stores(self.nest.operators[loop.body], (loop,))
        return steps

    def _sliding(self, loop: BlockLoop) -> list[int]:
        """Maps from outside that a loop over rows keeps as a window; a row engine loads its own."""
        if loop.axis != "rows" or (isinstance(loop.body, RowLeaf) and not loop.body.at_once):
            return []
        return self.placement.held_inputs(loop)

    def _window_loads(self, m: int, start: int, stop: int) -> Iterator[Step]:
        """Loads of rows, no more at a time than the window has."""
        tensor = self.flow.maps[m]
        place = self.at[m]
        while start < stop:
            end = min(start + self.places[place].slots, stop)
            yield self.layout.load(tensor.name, with_rows(whole(tensor.shape), (start, end)), place)
            start = end

    def _alike(self, loop: BlockLoop) -> list[tuple[int, int]]:
        """(first, how many) of runs of blocks that differ only in where they are, by equal moves."""
        moving: list[tuple[np.ndarray, np.ndarray]] = []  # (starts, stops) of all that blocks make or move
        if loop.cuts_channels:
            for i in self.nest.operators[loop]:
                axis = self.regions.channels_cut(loop, i)
                if axis is not None:
                    ends = loop.blocks.ends(self.flow.calls[i].result[axis])
                    moving.append((ends[:-1], ends[1:]))
        else:
            spans = self.regions.spans[loop]
            for own in (*spans.made.values(), *spans.loaded.values()):
                moving += [(own.start, own.stop), (own.new, own.stop)]
            moving += spans.stored.values()
            for m in self.nest.carried:
                kept = self.regions.kept(loop, m)
                own = self.regions.along(loop, m)
                assert own is not None, "loops cut what they carry"
                moving += [(kept, own.stop), (np.append(kept[1:], own.stop[-1]), own.stop)]
        none = np.zeros(loop.blocks.count, np.int64)
        if self.nest.carried:  # what is kept of the first block lies apart
            moving.append((none, np.arange(loop.blocks.count) == 0))
        extents = np.array([none, *(stop - start for start, stop in moving)])
        starts = np.array([none, *(start for start, _ in moving)])
        if loop.folds:  # the first block begins sums, the last one ends them
            extents = np.vstack([extents, none])
            extents[-1, 0], extents[-1, -1] = 1, 2
            ends = loop.blocks.ends(folded_extent(self.flow, loop.folds[0]))
            extents = np.vstack([extents, np.diff(ends)])
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

    # -- leaves ----------------------------------------------------------------------------------------------

    def _at_once(self, leaf: RowLeaf) -> list[StepNode]:
        """Every operator on all that is asked of it."""
        steps: list[StepNode] = [*self._loads(leaf)]
        for i in leaf.operators:
            steps += self._passes(i)
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
            rows, columns = self._carried_spans(m)
            yield from self._carry(m, (rows.kept, rows.new), (columns.new, columns.stop))

    def _carry_across(self, m: int) -> Iterator[Step]:
        """The columns before those that are new."""
        if m in self.nest.carried:
            rows, columns = self._carried_spans(m)
            yield from self._carry(m, (rows.kept, rows.stop), (columns.kept, columns.new))

    def _carry_on(self, m: int) -> Iterator[Step]:
        """What later patches read of a patch: beside it, and below it."""
        rows_loop, columns_loop = self.nest.carrying(m)
        rows, columns = self._carried_spans(m)
        block = self.blocks[columns_loop]
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

    def _carried_spans(self, m: int) -> tuple[_CarriedSpan, _CarriedSpan]:
        """Along rows, and along columns, of the current blocks."""
        rows, columns = (self._carried_span(m, loop) for loop in self.nest.carrying(m))
        return rows, columns

    def _carried_span(self, m: int, loop: BlockLoop) -> _CarriedSpan:
        own = self.regions.along(loop, m)
        kept = self.regions.kept(loop, m)
        block = self.blocks[loop]
        assert own is not None, "loops cut what they carry"
        stop = int(own.stop[block])
        after = int(kept[block + 1]) if block + 1 < loop.blocks.count else stop
        return _CarriedSpan(int(kept[block]), int(own.new[block]), stop, min(after, stop))

    def _computes(self, op: int) -> Iterator[Step]:
        results = self.flow.results[op]
        boxes = [self._box(op, m) for m in results]
        if any(box is None for box in boxes):
            return
        boxes = tuple(box for box in boxes if box is not None)
        places = tuple(self.at.get(m, -1) for m in results)
        if any(weight.gathered for weight in self.flow.weights[op]):
            yield self.layout.gather(op, boxes[0], places[0], row_span(boxes[0])[0])
            return
        compute = self.layout.compute(op, boxes, places)
        folds = [(loop, block) for loop, block in self.blocks.items() if op in loop.folds]
        for loop, block in folds:
            compute = replace(
                compute,
                inputs=self.regions.folded_span(loop, op, block),
                accumulator=self.at[PartialSums(op)],
                first=block == 0,
                last=block == loop.blocks.count - 1,
            )
        yield compute

    def _passes(self, op: int) -> Iterator[Step]:
        """Loads of the block of constants that an operator takes from its stream."""
        for stream in self.nest.streams:
            if not self._passing(op, stream):
                continue
            offset = 0
            for name, box in self._stream_parts(op, stream):
                yield self.layout.load_constant(name, box, self.at[stream], self.passed, offset)
                offset += self.layout.constant_bytes(name, box)
            self.passed += 1

    def _passing(self, op: int, stream: Stream) -> list[str]:
        """Constants that an operator takes from a stream, in the order of its inputs."""
        return [name for name in data_constants(self.flow, op) if name in stream.constants]

    def _stream_parts(self, op: int, stream: Stream) -> Iterator[tuple[str, Box]]:
        """The parts of constants that an operator needs in the current blocks."""
        call, (m, *_) = self.flow.calls[op], self.flow.results[op]
        out = whole(self.flow.maps[m].shape)
        inputs: Span | None = None
        is_last = True
        for loop, block in self.blocks.items():
            if op in loop.folds:
                inputs = self.regions.folded_span(loop, op, block)
                is_last = block == loop.blocks.count - 1
            elif loop.cuts_channels:
                out = self._cut_channels(out, loop, op, block)
        for name in self._passing(op, stream):
            index = call.inputs.index(name)
            late = index > 1  # a bias is added to finished sums
            if inputs is None or not late or is_last:
                yield name, footprint(call, index, out, inputs=None if late else inputs)

    def _row_engine(self, leaf: RowLeaf) -> list[StepNode]:
        """Rows of the results in turn, each after the rows that it needs."""
        flow = self.flow
        group = StreamedGroup(self.layout, _mask(leaf.operators), self.rings)
        operands = [self._as_loaded(operand) for operand in group.operands(as_seen=False)]
        sources = [o.source for o in operands]
        loaded = {source.name: self._loaded_box(source.map) for source in sources if source.rows_kept}
        loaded |= {source.name: whole(source.tensor.shape) for source in sources if not source.rows_kept}
        there = frozenset(name for name, box in loaded.items() if box is None)
        boxes = {name: box or whole(flow.graph.tensors[name].shape) for name, box in loaded.items()}
        rows = {i: (self._rows_made(i), self.lines.iterations[i]) for i in leaf.operators}
        computed = {m: self._box(i, m) for i in leaf.operators for m in flow.results[i]}
        stored = {m: self._box(flow.producer[m], m, to_store=True) for m in group.outside}
        at = {flow.maps[m].name: self.at[m] for m in group.computed if m in self.at}
        at |= {source.name: self.at[source.map] for source in sources if source.map in self.at}
        at |= {
            self.layout.sums_name(i): self.at[PartialSums(i)] for i in self.placement.price.running_sums(leaf)
        }
        engine = _RowEngine(group, operands, boxes, None, at, there, leaf.band_rows, rows, self.lines)
        engine.computed = computed
        engine.stored = stored
        return [*fold([*self.limit.allowed(engine.iterations())], LONGEST_PERIOD)]

    def _as_loaded(self, operand: Operand) -> Operand:
        """The operand of a row engine, or the view of it that is loaded in its place."""
        m = operand.source.map
        seen = self.placement.price.seen(m)
        if seen is None:
            return operand
        source = DramSource(seen.tensor.name, m, seen.tensor, rows_kept=False, ring=self.rings[m])
        return Operand(operand.op, operand.input, source, seen.reads)

    def _rows_made(self, op: int) -> int:
        """Rows of an operator that are there before it runs: all, if the blocks make nothing of it."""
        nothing = any(self._box(op, m) is None for m in self.flow.results[op])
        return self.lines.iterations[op] if nothing else 0

    def _loaded_box(self, m: int) -> Box | None:
        """What the current blocks load of a map; None if it is on chip already."""
        box = whole(self.flow.maps[m].shape)
        for loop, block in self.blocks.items():
            spans = None if loop.cuts_channels else self.regions.spans[loop].loaded.get(m)
            if spans is None:
                continue
            start = int(spans.start[block])
            stop = int(spans.stop[block])
            if start >= stop:
                return None
            axis = axis_of(loop.axis, self.flow.maps[m].shape)
            if axis is not None:
                box = cut(box, axis, (start, stop))
        return box


class _CarriedSpan(NamedTuple):
    """Of a map that is carried, along one axis, in one block."""

    kept: int  # first index that the block, or a later one, reads
    new: int  # first index that no earlier block has made or loaded
    stop: int
    kept_next: int  # first index that later blocks read; `stop` if none do


class _RowEngine(Walk):
    """The walk over rows, within the columns of the current block."""

    computed: dict[int, Box | None]  # per map: what is made of it
    stored: dict[int, Box | None]  # per map: what is stored of it, if it leaves the group

    def extent(self, m: int) -> Box:
        """Box that is made of a map."""
        return self.computed[m] or whole(self.flow.maps[m].shape)

    def stored_of(self, m: int, box: Box) -> Box:
        """The columns that no earlier block has stored."""
        stored = self.stored.get(m)
        if stored is None or len(box) < 4:
            return box
        return cut(box, -1, stored[-1])


def _mask(operators: Sequence[int]) -> int:
    return sum(1 << i for i in operators)
