"""Results of an operator that are made together, and which part of each operand their tiles read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from lfopt.ir import Box, Span, cut, whole
from lfopt.ops.boxes import NOTHING
from lfopt.ops.compute import folding
from lfopt.ops.footprint import folded_axis, footprints
from lfopt.ops.part import hull
from lfopt.ops.statistics import statistics_axis
from lfopt.planning.tiling.block_spans import AxisCut, BlockSpans, covering, regular_spans
from lfopt.planning.tiling.tiling_region import TilingRegion

PARTS = -1  # the axis of parts of what is folded, in place of an axis of the result
MOST_BLOCKS = 1 << 12  # along an axis, where they have to be looked at one by one
FEW = 64  # blocks along an axis that are always looked at one by one

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
        self.region = region
        self.layout = region.layout
        self.flow = region.flow
        self.call = region.call
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
