"""One way to cut results into tiles along their axes: what it takes, what it moves, and its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import product
from math import ceil, prod

from lfopt.ir import Again, Box, DramBytes, Node, Span, Step, box_shape, cut, fold, whole, within
from lfopt.ops.boxes import NOTHING
from lfopt.ops.part import is_empty
from lfopt.ops.statistics import channels_together, normalized_axes, state_box
from lfopt.planning.steps.layout import AllocationRequest, row_span
from lfopt.planning.steps.limit import Limit
from lfopt.planning.tiling.block_spans import AxisCut
from lfopt.planning.tiling.finish import row_count
from lfopt.planning.tiling.grid_targets import PARTS, Blocks, GridOperand, GridTarget
from lfopt.planning.tiling.tiling_region import meet


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
        self.target = target
        self.region = target.region
        self.layout = target.layout
        self.blocks = blocks
        self.parts = parts
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
        axes = normalized_axes(self.target.call)
        together = channels_together(self.target.call)
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
            tile = whole(self.target.shape)
            inputs = NOTHING if self.in_passes else None
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
        layout = self.layout
        target = self.target
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
        region = self.region
        flow = self.region.flow
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
        region = self.region
        layout = self.layout
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
        head = max(along.head for along in cuts)
        tail = max(along.tail for along in cuts)
        return head + 2, tail

    def _span(self, k: int) -> Span:
        """A part of what is folded or normalized."""
        return k * self.parts, min((k + 1) * self.parts, self.target.depth)

    def _statistics(
        self, at: tuple[int, ...], block: Box, k: int, numbers: Mapping[str, int], there: dict[str, Box]
    ) -> list[Step]:
        """The statistics of a part are joined with those of the parts before."""
        region = self.region
        layout = self.layout
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
        region = self.region
        layout = self.layout
        flow = self.region.flow
        target = self.target
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
        first = part == 0
        last = not split or part == self.counts[-1] - 1
        if region.group.gathers(region.anchor):
            steps.append(layout.gather(region.anchor, boxes[0], where[0], row_span(boxes[0])[0]))
        elif split:
            sums = numbers[layout.place_name("sums")]
            steps.append(
                layout.compute(region.anchor, boxes, where, self._span(part), sums, first=first, last=last)
            )
        elif self.in_passes:
            nothing = (target.depth, target.depth)
            sums = numbers[layout.place_name("sums")]
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
    if is_empty(common):
        return (NOTHING,) * len(common)
    return common
