"""Any operator in tiles along all axes of its results, by its own box rules.

A *grid* cuts the results into tiles, by blocks along some axes; loops run over the blocks, the last axis the
fastest. A tile loads what it reads and is not on chip from the tile before, computes, runs the epilogue and
stores. What an operator folds into a partial result may come in parts (a last, innermost axis).

An operator with several results of other shapes makes them one after the other, each in a grid of its own.

Which part of an operand a tile reads follows axis by axis: along each axis of an operand it depends on the
block along one axis of the result at most. So bytes are products over axes, and no tile is looked at to count
them. Parts are grown until they leave no gap, as in frames: a tensor that is read is loaded whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations, product
from math import ceil, lcm, prod

from lfopt.ir import Again, Box, DramBytes, Node, Place, Span, Step, box_shape, cut, fold, whole, within
from lfopt.ops.boxes import NOTHING
from lfopt.ops.compute import folding
from lfopt.ops.footprint import folded_axis, footprints
from lfopt.ops.part import hull, is_empty
from lfopt.ops.statistics import channels_together, normalized_axes, state_box, statistics_axis
from lfopt.planning.line_buffers.streaming import AllocationRequest, BufferLayout, row_span
from lfopt.planning.steps.limit import Limit
from lfopt.planning.tiling.block_spans import AxisCut, BlockSpans, covering, regular_spans
from lfopt.planning.tiling.finish import row_count
from lfopt.planning.tiling.tiling_region import TilingRegion, even_sizes, meet

PARTS = -1  # the axis of parts of what is folded, in place of an axis of the result
MOST_BLOCKS = 1 << 12  # along an axis, where they have to be looked at one by one
MOST_TILES = 1 << 21  # of a grid: no plan has the steps of more
FEW = 64  # blocks along an axis that are always looked at one by one
MOST_GRIDS = 4000  # that are priced for one operator

# (axis of the result, extent of a block), outermost loop first
Blocks = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class GridOperand:
    """A map or constant that the tiles read."""

    name: str  # of the tensor, as it is loaded, and of its place
    shape: tuple[int, ...]
    readers: tuple[tuple[int, int], ...]  # (operator, input)
    constant: bool
    entire: bool = False  # it can only be loaded as a whole


class GridTarget:
    """Results of the anchor that are made together, and their epilogue."""

    def __init__(self, region: TilingRegion, results: tuple[int, ...]) -> None:
        """`results`: indices of results, the first one is cut."""
        self.region, self.layout, self.flow, self.call = region, region.layout, region.flow, region.call
        self.results = results
        self.shape = self.call.results[results[0]]
        self.folding = folding(self.call) if len(self.call.results) == 1 else None
        self.depth = 1
        if self.folding in ("rows", "elements", "input channels") and not self.call.constant[0]:
            axis = folded_axis(self.call, 0)
            assert axis is not None, "what is folded lies along an axis of operand 0"
            self.depth = self.call.shape(0)[axis]
            if self.folding == "input channels":
                self.depth //= self.call.attribute("group", 1) if region.convolves else 1
        # a normalization makes statistics of what it reads, part by part, then its elements as it reads that
        # again; parts lie along this axis
        self.normalized: int | None = None
        if self.folding == "statistics" and not self.call.constant[0]:
            self.normalized = statistics_axis(self.call)
            self.depth = self.shape[self.normalized]
        self.operands = [*self._operands()]
        # per operand, by name: the part that is loaded for this target, what nobody reads included
        self.limits = {o.name: whole(o.shape) for o in self.operands}
        self._cuts: dict[tuple[str, int, int, bool], AxisCut | None] = {}

    def _operands(self) -> Iterator[GridOperand]:
        by_source: dict[str, list[tuple[int, int]]] = {}
        sources = {o.source.name: o.source for o in self.region.operands}
        for o in self.region.operands:
            by_source.setdefault(o.source.name, []).append((o.op, o.input))
        for name, readers in by_source.items():
            source = sources[name]
            yield GridOperand(
                name,
                source.tensor.shape,
                tuple(readers),
                constant=False,
                entire=source.entire,
            )
        for name, readers in self.region.group.constants().items():
            shape = self.flow.graph.tensors[name].shape
            yield GridOperand(name, shape, tuple(readers), constant=True)

    # -- boxes -----------------------------------------------------------------------------------------------

    def boxes(self, tile: Box) -> tuple[Box, ...]:
        """The boxes of all results of the anchor that a tile of the first of these stands for."""
        boxes: list[Box] = []
        for k, shape in enumerate(self.call.results):
            if k not in self.results:
                boxes.append((NOTHING,) * len(shape))
            elif shape == self.shape:
                boxes.append(tile)
            else:
                boxes.append(
                    tuple(
                        span if extent == of else (0, extent)
                        for span, extent, of in zip(tile, shape, self.shape, strict=True)
                    )
                )
        return tuple(boxes)

    def part(self, operand: GridOperand, tile: Box, inputs: Span | None) -> Box:
        """What a tile reads of an operand, or of a part of what it folds."""
        if operand.entire:
            return whole(operand.shape)
        parts: list[Box] = []
        for op, index in operand.readers:
            if op == self.region.anchor:
                own = self.region.own(op, index) and (self.normalized is None or index == 0)
                parts.append(
                    footprints(
                        self.call, index, self.boxes(tile), inputs=inputs if own else None, by_rows=False
                    )
                )
            else:
                parts.append(footprints(self.flow.calls[op], index, (tile,), by_rows=False))
        return hull(parts)

    def cuttable(self) -> list[int]:
        """Axes of the result along which tiles are cut."""
        return [
            axis
            for axis, extent in enumerate(self.shape)
            if extent > self.region.grain(axis)
            and all(
                shape == self.shape or shape[axis] == extent
                for shape in (self.call.results[k] for k in self.results)
            )
        ]

    def fitting(self, blocks: Blocks) -> Blocks:
        """Those blocks that cut this target."""
        axes = self.cuttable()
        return tuple((axis, size) for axis, size in blocks if axis in axes and size < self.shape[axis])

    def cut(self, operand: GridOperand, axis: int, extent: int, *, complete: bool = False) -> AxisCut | None:
        """What blocks along an axis read of an operand; None if there are too many to look at.

        `complete`: once statistics are complete.
        """
        key = operand.name, axis, extent, complete
        if key not in self._cuts:
            self._cuts[key] = self._cut(operand, axis, extent, NOTHING if complete else None)
        return self._cuts[key]

    def _cut(self, operand: GridOperand, axis: int, extent: int, inputs: Span | None) -> AxisCut | None:
        size = self.depth if axis == PARTS else self.shape[axis]
        count = ceil(size / extent)
        everything = whole(self.shape)

        def box(k: int) -> Box:
            span = k * extent, min((k + 1) * extent, size)
            if axis == PARTS:
                return self.part(operand, everything, None if count == 1 else span)
            return self.part(operand, cut(everything, axis, span), inputs)

        if count > FEW:
            regular = regular_spans(box, count, self.limits[operand.name])
            if regular is not None:
                return AxisCut(regular, count)
            if count > MOST_BLOCKS:
                return None
        boxes = [box(k) for k in range(count)]
        closed = covering(boxes, self.limits[operand.name])
        return AxisCut(
            [BlockSpans(count, tuple(b[a] for b in closed)) for a in range(len(operand.shape))], count
        )


def _first_block(shape: tuple[int, ...], blocks: Blocks) -> Box:
    """The first of the blocks that cut a shape, the largest."""
    box = whole(shape)
    for axis, extent in blocks:
        box = cut(box, axis, (0, extent))
    return box


class Grid:
    """One way to cut a target into tiles."""

    def __init__(self, target: GridTarget, blocks: Blocks, parts: int) -> None:
        """`parts`: extent of a part of what is folded; as much as there is: nothing is split."""
        self.target, self.region, self.layout = target, target.region, target.layout
        self.blocks, self.parts = blocks, parts
        split = parts < target.depth
        self.in_passes = split and target.normalized is not None
        last = PARTS if target.normalized is None else target.normalized
        self.loops: Blocks = (*blocks, *(((last, parts),) if split else ()))

    @cached_property
    def counts(self) -> list[int]:
        """Blocks of every loop."""
        target = self.target
        return [
            ceil((target.depth if axis == PARTS else target.shape[axis]) / extent)
            for axis, extent in self.loops
        ]

    @property
    def tiles(self) -> int:
        """Times that the anchor runs."""
        return prod(self.counts)

    @cached_property
    def tile(self) -> Box:
        """The first tile, the largest."""
        return _first_block(self.target.shape, self._cut_axes)

    @property
    def _cut_axes(self) -> Blocks:
        """Axes along which the result comes in tiles."""
        return tuple(loop for loop in self.loops if loop[0] != PARTS)

    @cached_property
    def block(self) -> Box:
        """The first block of which statistics are made, the largest."""
        return _first_block(self.target.shape, self.blocks)

    @cached_property
    def cuts(self) -> dict[str, list[AxisCut]] | None:
        """Per operand, by name: what it reads along every loop; None if that is too much to look at."""
        known: dict[str, list[AxisCut]] = {}
        if self.in_passes and not self._apart():
            return None
        for operand in self.target.operands:
            cuts = [
                self.target.cut(operand, axis, extent, complete=self.in_passes)
                for axis, extent in self.loops or ((PARTS, 1 << 62),)
            ]
            known[operand.name] = [along for along in cuts if along is not None]
            if len(known[operand.name]) < len(cuts) or not self._separable(operand, known[operand.name]):
                return None
        return known

    def _apart(self) -> bool:
        """Whether what is normalized together lies in one block, but for its parts."""
        axes, together = normalized_axes(self.target.call), channels_together(self.target.call)
        return all(
            axis not in axes and (axis != 1 or extent % together == 0) for axis, extent in self.blocks
        ) and not any(operand.entire for operand in self.target.operands)

    def _separable(self, operand: GridOperand, cuts: Sequence[AxisCut]) -> bool:
        """Whether parts of an operand are cut along each of its axes by one loop at most.

        Looked at in the first tile, the last, and one between.
        """
        if len(cuts) == 1:
            return True
        for axis in range(len(operand.shape)):
            if sum(not along.rests(axis) for along in cuts) > 1:
                return False
        for at in {tuple(k * (count - 1) // 2 for count in self.counts) for k in range(3)}:
            tile, inputs = whole(self.target.shape), NOTHING if self.in_passes else None
            for (a, extent), k in zip(self.loops, at, strict=True):
                size = self.target.depth if a == PARTS else self.target.shape[a]
                span = k * extent, min((k + 1) * extent, size)
                tile, inputs = (tile, span) if a == PARTS else (cut(tile, a, span), inputs)
            wanted = self.target.part(operand, tile, inputs)
            loaded = _meet([along.box(k) for along, k in zip(cuts, at or (0,), strict=True)])
            if not is_empty(wanted) and not within(wanted, loaded):
                return False
        return True

    def part(self, operand: GridOperand, at: Sequence[int]) -> Box:
        """What is loaded of an operand for a tile; `at`: the block of every loop."""
        assert self.cuts is not None
        boxes = [along.box(k) for along, k in zip(self.cuts[operand.name], at or (0,), strict=True)]
        return _meet(boxes)

    # -- costs -----------------------------------------------------------------------------------------------

    def _largest(self, operand: GridOperand) -> tuple[int, ...]:
        assert self.cuts is not None
        most = [
            tuple(map(max, zip(*along.extents, strict=True))) if operand.shape else ()
            for along in self.cuts[operand.name]
        ]
        return tuple(map(min, zip(*most, strict=True)))

    @cached_property
    def entries(self) -> list[AllocationRequest]:
        """The places."""
        layout, target = self.layout, self.target
        entries: list[AllocationRequest] = []
        for operand in target.operands:
            box = whole(self._largest(operand))
            if operand.constant:
                size = layout.constant_bytes(operand.name, box)
                entries.append(AllocationRequest(operand.name, "weight", 1, size))
            else:
                first, stop = row_span(box)
                entries.append(AllocationRequest(operand.name, "map", stop - first, layout.row_on_chip(box)))
        for place, box in self._made(self.tile):
            first, stop = row_span(box)
            entries.append(AllocationRequest(place, "map", stop - first, layout.row_on_chip(box)))
        if self.parts < target.depth:
            sums = state_box(target.call, self.block) if self.in_passes else self.tile
            first, stop = row_span(sums)
            name = layout.place_name("sums")
            entries.append(AllocationRequest(name, "sum", stop - first, layout.sums_row(sums)))
        return [entry for entry in entries if entry.slots * entry.slot_bytes]

    def _made(self, tile: Box) -> Iterator[tuple[str, Box]]:
        """(place, box) of every map that a tile makes and that takes space."""
        region, flow = self.region, self.region.flow
        boxes = dict(zip(flow.results[region.anchor], self.target.boxes(tile), strict=True))
        for m in region.group.computed:
            box = boxes.get(m, tile)
            if not is_empty(box) and (m in region.group.outside or flow.readers[m] & region.mask):
                yield flow.maps[m].name, box

    @property
    def rows(self) -> int:
        """Rows of the results in a tile."""
        return max(row_count(box) for box in self.target.boxes(self.tile))

    @cached_property
    def dram(self) -> DramBytes:
        """Bytes that the steps move."""
        region, layout = self.region, self.layout
        read = weight = written = 0
        for operand in self.target.operands:
            size = self._loaded(operand) + self._measured(operand)
            weight, read = (weight + size, read) if operand.constant else (weight, read + size)
        tiles = Counter[tuple[int, ...]]({box_shape(whole(self.target.shape)): 1})
        for axis, extent in self._cut_axes:
            size = self.target.shape[axis]
            full, rest = divmod(size, extent)
            split = Counter[tuple[int, ...]]()
            for extents, times in tiles.items():
                for part, count in ((extent, full), (rest, 1)):
                    if part and count:
                        split[(*extents[:axis], part, *extents[axis + 1 :])] += times * count
            tiles = split
        boxes = region.flow.results[region.anchor]
        for extents, times in tiles.items():
            tile = whole(extents)
            boxes_by_map = dict(zip(boxes, self.target.boxes(tile), strict=True))
            for m in region.group.outside:
                written += (
                    times
                    * layout.map_bytes(boxes_by_map.get(m, tile))
                    * (not is_empty(boxes_by_map.get(m, tile)))
                )
            weight += times * sum(
                layout.gathered_bytes(i, tile) for i in region.group.members if region.group.gathers(i)
            )
        return DramBytes(input=read, output=written, weight=weight)

    def _loaded(self, operand: GridOperand) -> int:
        """DRAM bytes of an operand: a part is loaded where it is not that of the tile before."""
        assert self.cuts is not None
        cuts = self.cuts[operand.name]
        full = box_shape(self.part(operand, (0,) * len(cuts)))
        total = self._bytes(operand, full)
        for level, along in enumerate(cuts):
            # inner loops begin again: what they read at last is there, and what they read first comes
            wraps = any(not inner.closed for inner in cuts[level + 1 :])
            steps = along.later if wraps else along.changed
            if not steps:
                continue
            before = [outer.extents for outer in cuts[:level]]
            behind = [Counter([box_shape(inner.box(0))]) for inner in cuts[level + 1 :]]
            for choice in product(*(counted.items() for counted in (*before, steps, *behind))):
                times = prod(count for _, count in choice)
                extents = tuple(map(min, zip(*(e for e, _ in choice), strict=True)))
                total += times * self._bytes(operand, extents)
        return total

    def _measured(self, operand: GridOperand) -> int:
        """DRAM bytes of an operand as statistics are made of it: all of it, part by part."""
        if not self.in_passes or (self.region.anchor, 0) not in operand.readers:
            return 0
        assert self.cuts is not None
        total = 0
        for choice in product(*(along.extents.items() for along in self.cuts[operand.name])):
            extents = tuple(map(min, zip(*(e for e, _ in choice), strict=True)))
            total += prod(count for _, count in choice) * self._bytes(operand, extents)
        return total

    def _bytes(self, operand: GridOperand, extents: tuple[int, ...]) -> int:
        if not all(extents):
            return 0
        box = whole(extents)
        if operand.constant:
            return self.layout.constant_bytes(operand.name, box)
        return self.layout.map_bytes(box)

    # -- steps -----------------------------------------------------------------------------------------------

    def steps(self, numbers: Mapping[str, int], limit: Limit) -> tuple[Node, ...]:
        """The steps; `numbers`: of places, by name."""
        limit.expect(self.tiles)
        return self._nodes((), whole(self.target.shape), numbers, {}, limit)

    def _nodes(
        self, at: tuple[int, ...], tile: Box, numbers: Mapping[str, int], there: dict[str, Box], limit: Limit
    ) -> tuple[Node, ...]:
        if len(at) == len(self.loops):
            steps = self._steps(at, tile, numbers, there)
            limit.spend(len(steps))
            return tuple(steps)
        axis, extent = self.loops[len(at)]

        def block(k: int) -> tuple[Node, ...]:
            part = tile
            if axis != PARTS:
                part = cut(tile, axis, (k * extent, min((k + 1) * extent, self.target.shape[axis])))
            return self._nodes((*at, k), part, numbers, there, limit)

        def statistics(k: int) -> Sequence[Node]:
            steps = self._statistics(at, tile, k, numbers, there)
            limit.spend(len(steps))
            return steps

        measured: tuple[Node, ...] = ()
        if self.in_passes and len(at) == len(self.blocks):
            measured = self._folded(len(at), statistics, there)
        return (*measured, *self._folded(len(at), block, there))

    def _folded(
        self, loop: int, block: Callable[[int], Sequence[Node]], there: dict[str, Box]
    ) -> tuple[Node, ...]:
        """The steps of all blocks of a loop; those that only move on are made once, not one by one."""
        blocks: list[Sequence[Node] | Again] = []
        before: dict[str, Box] = {}
        count = self.counts[loop]
        head, tail = self._ends(loop)
        repeats = max(count - head - tail, 0)
        for k in range(min(head, count)):
            before = dict(there)
            blocks.append(block(k))
        if repeats:
            blocks.append(Again(1, repeats))
            there.update({name: _moved_on(before[name], box, repeats) for name, box in there.items()})
        blocks += [block(k) for k in range(head + repeats, count)]
        return fold(blocks)

    def _ends(self, loop: int) -> tuple[int, int]:
        """Blocks of a loop until steps only move on, and those behind these; all where they do not."""
        if self.cuts is None:
            return self.counts[loop], 0
        cuts = [self.cuts[operand.name][loop] for operand in self.target.operands]
        if not all(along.regular for along in cuts):
            return self.counts[loop], 0
        head, tail = max(along.head for along in cuts), max(along.tail for along in cuts)
        return head + 2, tail

    def _span(self, k: int) -> Span:
        """A part of what is folded or normalized."""
        return k * self.parts, min((k + 1) * self.parts, self.target.depth)

    def _statistics(
        self, at: tuple[int, ...], block: Box, k: int, numbers: Mapping[str, int], there: dict[str, Box]
    ) -> list[Step]:
        """The statistics of a part are joined with those of the parts before."""
        region, layout = self.region, self.layout
        steps: list[Step] = []
        for operand in self.target.operands:
            if (region.anchor, 0) in operand.readers:
                box = self.part(operand, (*at, k))
                steps.append(layout.load(operand.name, box, numbers[operand.name]))
                there[operand.name] = box
        sums = numbers[layout.place_name("sums")]
        return [
            *steps,
            layout.compute(region.anchor, (block,), (-1,), self._span(k), sums, first=k == 0, last=False),
        ]

    def _steps(
        self, at: tuple[int, ...], tile: Box, numbers: Mapping[str, int], there: dict[str, Box]
    ) -> list[Step]:
        """What is loaded, computed and stored for a tile, or for a part of what is folded into it."""
        region, layout, flow, target = self.region, self.layout, self.region.flow, self.target
        steps: list[Step] = []
        for operand in target.operands:
            box = self.part(operand, at)
            if there.get(operand.name) == box:
                continue
            there[operand.name] = box
            if is_empty(box) or operand.name not in numbers:
                continue
            load = layout.load_constant if operand.constant else layout.load
            steps.append(load(operand.name, box, numbers[operand.name]))
        boxes = target.boxes(tile)
        where = tuple(
            numbers.get(flow.maps[m].name, -1) if not is_empty(box) else -1
            for m, box in zip(flow.results[region.anchor], boxes, strict=True)
        )
        split = self.parts < target.depth and not self.in_passes
        part = at[-1] if split else 0
        first, last = part == 0, not split or part == self.counts[-1] - 1
        if region.group.gathers(region.anchor):
            steps.append(layout.gather(region.anchor, boxes[0], where[0], row_span(boxes[0])[0]))
        elif split:
            sums = numbers[layout.place_name("sums")]
            steps.append(
                layout.compute(region.anchor, boxes, where, self._span(part), sums, first=first, last=last)
            )
        elif self.in_passes:
            nothing, sums = (target.depth, target.depth), numbers[layout.place_name("sums")]
            steps.append(layout.compute(region.anchor, boxes, where, nothing, sums, first=False, last=True))
        else:
            steps.append(layout.compute(region.anchor, boxes, where))
        if not last:
            return steps
        boxes_by_map = dict(zip(flow.results[region.anchor], boxes, strict=True))
        for i in region.group.members[1:]:
            (m,) = flow.results[i]
            steps.append(layout.compute(i, (tile,), (numbers.get(flow.maps[m].name, -1),)))
        for m in region.group.computed:
            box = boxes_by_map.get(m, tile)
            if m in region.group.outside and not is_empty(box):
                name = flow.maps[m].name
                steps.append(layout.store(name, box, numbers[name]))
        return steps


def _moved_on(before: Box, box: Box, times: int) -> Box:
    """The box that has moved on from `before`, so many times more."""
    return tuple(
        [
            (start + times * (start - low), stop + times * (start - low))
            for (low, _), (start, stop) in zip(before, box, strict=True)
        ]
    )


def _meet(boxes: Sequence[Box]) -> Box:
    """What several boxes have in common."""
    if len(boxes) == 1:
        return boxes[0]
    common = reduce(meet, boxes)
    return (NOTHING,) * len(common) if is_empty(common) else common


# -- choices -------------------------------------------------------------------------------------------------


class Grids:
    """Grids of an operator with its epilogue: one for each target, one after the other."""

    def __init__(self, region: TilingRegion) -> None:
        self.region, self.layout = region, region.layout
        results = region.call.results
        together = all(
            len(shape) == len(results[0])
            and all(extent in (1, of) for extent, of in zip(shape, results[0], strict=True))
            for shape in results
        )
        groups = [tuple(range(len(results)))] if together else [(k,) for k in range(len(results))]
        self.targets = [GridTarget(region, picked) for picked in groups]
        # what no target reads is loaded by the one that reads beside it
        for operands in zip(*(target.operands for target in self.targets), strict=True):
            reads = [
                target.part(operand, whole(target.shape), None)
                for target, operand in zip(self.targets, operands, strict=True)
            ]
            closed = covering(reads, whole(operands[0].shape))
            for target, operand, part in zip(self.targets, operands, closed, strict=True):
                target.limits[operand.name] = part

    def at(self, blocks: Blocks, parts: int) -> TargetGrids:
        """The grids with these blocks; `parts`: extent of a part of what is folded."""
        return TargetGrids(
            self.layout, blocks, [Grid(target, target.fitting(blocks), parts) for target in self.targets]
        )

    def choices(self) -> Iterator[TargetGrids]:
        """Grids worth trying: always the same, whatever the buffer.

        All of the result; cut along one axis, from large to small; cut so along one more, finely along
        others. Each with loops in orders such that one of the operands is loaded no more often than need be,
        and with what is folded at once or in parts.
        """
        count, depth = 0, self.targets[0].depth
        for blocks in _patterns(self.sizes):
            for ordered in self._orders(blocks):
                for parts in few_sizes(depth):
                    grids = self.at(ordered, parts)
                    if grids.tiles <= MOST_TILES:
                        count += 1
                        yield grids
                    if count > MOST_GRIDS:
                        return

    def _orders(self, blocks: Blocks) -> list[Blocks]:
        """Loops over these blocks: as they are, and for each operand those that it depends on first."""
        orders = dict.fromkeys([tuple(sorted(blocks))])
        for target in self.targets if len(blocks) > 1 else ():
            for operand in target.operands:
                moved: list[tuple[int, int]] = []
                rests: list[tuple[int, int]] = []
                for axis, size in target.fitting(tuple(sorted(blocks))):
                    along = target.cut(operand, axis, size)
                    (rests if along is not None and along.same else moved).append((axis, size))
                first = dict((*moved, *rests))
                orders[tuple(sorted(blocks, key=lambda block: [*first, block[0]].index(block[0])))] = None
        return [*orders]

    @cached_property
    def sizes(self) -> dict[int, list[int]]:
        """Extents of blocks worth trying along each axis that can be cut, from large to small."""
        extents: dict[int, int] = {}
        for target in self.targets:
            for axis in target.cuttable():
                extents[axis] = max(extents.get(axis, 0), target.shape[axis])
        sizes: dict[int, list[int]] = {}
        for axis in sorted(extents):
            grain = self.region.grain(axis)
            if axis == 1 and self.targets[0].normalized is not None:
                # channels of one group are read together
                grain = lcm(grain, channels_together(self.region.call))
            sizes[axis] = few_sizes(extents[axis], grain)
            # where what the finest blocks read cannot be listed, coarser ones may yet move on regularly
            while len(sizes[axis]) > 1 and not self._lists(axis, sizes[axis][-1]):
                sizes[axis].pop()
        return sizes

    def _lists(self, axis: int, size: int) -> bool:
        """Whether it is known what blocks along an axis read."""
        return all(
            target.cut(operand, axis, size) is not None
            for target in self.targets
            if target.fitting(((axis, size),))
            for operand in target.operands
        )

    @cached_property
    def smallest(self) -> int:
        """Buffer bytes of the grids that are cut as finely as can be."""
        finest = tuple((axis, sizes[-1]) for axis, sizes in self.sizes.items())
        ways = [self.at(finest, 1), self.at(finest, self.targets[0].depth)]
        if self.targets[0].normalized is not None:
            axes = normalized_axes(self.region.call)
            ways.append(self.at(tuple(block for block in finest if block[0] not in axes), 1))
        needs = [grids.need for grids in ways if grids.known]
        return min(needs) if needs else min(grids.need for grids in self.every())

    def every(self) -> Iterator[TargetGrids]:
        """All of `choices` that can be carried out, each made once."""
        yield from self._made
        for grids in self._others:
            if grids.known:
                self._made.append(grids)
                yield grids

    @cached_property
    def _made(self) -> list[TargetGrids]:
        return []

    @cached_property
    def _others(self) -> Iterator[TargetGrids]:
        return self.choices()

    def best(self, beta: int, below: int | None = None) -> TargetGrids | None:
        """The grids that fit and move the fewest bytes; of equals those of the fewest tiles.

        `below`: DRAM bytes that others move: what moves as many is of no interest.
        """
        if self.smallest >= beta:
            return None
        best: TargetGrids | None = None
        once = self.at((), self.targets[0].depth)
        least = once.dram.total if once.known else 0
        for grids in self.every():
            if grids.need >= beta or (below is not None and grids.dram.total >= below):
                continue
            if best is None or (grids.dram.total, grids.tiles) < (best.dram.total, best.tiles):
                best = grids
                if best.dram.total <= least:
                    break
        return best


@dataclass(frozen=True)
class TargetGrids:
    """One grid for each target, with places that serve all."""

    layout: BufferLayout
    blocks: Blocks
    grids: list[Grid]

    @property
    def known(self) -> bool:
        """Whether what the tiles read is known."""
        return all(grid.cuts is not None for grid in self.grids)

    @property
    def tiles(self) -> int:
        """Times that the anchor runs."""
        return sum(grid.tiles for grid in self.grids)

    @property
    def rows(self) -> int:
        """Rows of the results in a tile."""
        return max(grid.rows for grid in self.grids)

    @cached_property
    def entries(self) -> list[AllocationRequest]:
        """The places."""
        largest: dict[str, AllocationRequest] = {}
        for name, purpose, slots, slot_bytes in (entry for grid in self.grids for entry in grid.entries):
            other = largest.get(name, AllocationRequest(name, purpose, 0, 0))
            most = max(slots, other.slots), max(slot_bytes, other.slot_bytes)
            largest[name] = AllocationRequest(name, purpose, *most)
        return [*largest.values()]

    @cached_property
    def need(self) -> int:
        """Buffer bytes."""
        return self.layout.need(self.entries)

    @cached_property
    def dram(self) -> DramBytes:
        """Bytes that the steps move."""
        return sum((grid.dram for grid in self.grids), DramBytes())

    def schedule(self, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps. Raises Unwritten beyond the limit."""
        places = self.layout.stack(self.entries)
        numbers = {place.name: k for k, place in enumerate(places)}
        return places, tuple(node for grid in self.grids for node in grid.steps(numbers, limit))


def _patterns(sizes: Mapping[int, Sequence[int]]) -> Iterator[Blocks]:
    """Ways to cut axes: none, along one axis, along one more and finely along others; see `Grids.sizes`."""
    yield ()
    for number in range(len(sizes)):
        for fine in combinations(sizes, number):
            finest = tuple((axis, sizes[axis][-1]) for axis in fine)
            for axis in (a for a in sizes if a not in fine):
                for size in sizes[axis][1:]:
                    yield (*finest, (axis, size))


def few_sizes(extent: int, grain: int = 1) -> list[int]:
    """Extents of blocks that cut an axis evenly, about two per octave; the largest and the smallest too.

    >>> few_sizes(100)
    [100, 50, 34, 25, 17, 12, 9, 6, 4, 3, 2, 1]
    """
    sizes = even_sizes(extent, grain)
    kept = [sizes[0]]
    for size in sizes[1:-1]:
        if size * 4 <= kept[-1] * 3:
            kept.append(size)
    return kept if len(sizes) == 1 else [*kept, sizes[-1]]
