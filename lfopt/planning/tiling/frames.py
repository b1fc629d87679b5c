"""A group frame by frame: places, steps and bytes.

A *frame* is a box of the results of a group whose maps all have one shape (an operator and its epilogue): a
block of channels, a strip of columns, as a rule all rows. The group runs once per frame, on those parts of
its operands that the frame needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.ir import Box, DramBytes, Node, Place, Span, cut, fold, whole
from lfopt.ops.footprint import footprints
from lfopt.ops.part import hull
from lfopt.planning.line_buffers.streamed_group import Operand, StreamedGroup
from lfopt.planning.line_buffers.walk import LONGEST_PERIOD, Walk
from lfopt.planning.steps.layout import AllocationRequest, BufferLayout, row_span
from lfopt.planning.steps.limit import Limit


class Frames:
    """A group that runs once per frame. Frames come in blocks of channels, each block strip by strip."""

    def __init__(self, layout: BufferLayout, mask: int, rings: dict[int, int], frames: Sequence[Box]) -> None:
        self.layout = layout
        self.frames = frames
        self.group = StreamedGroup(layout, mask, rings)
        self.operands = self.group.operands(as_seen=True)
        self.constants = self.group.constants()
        self.sources = {o.source.name: o.source for o in self.operands}
        self.readers: dict[str, list[Operand]] = {name: [] for name in self.sources}
        for operand in self.operands:
            self.readers[operand.source.name].append(operand)

    def buffer_bytes(self) -> int:
        """Lower bound on the buffer bytes: gaps between what frames read are not closed."""
        loads = [{name: self._hull(name, frame) for name in self.sources} for frame in self.frames]
        weights = [self.constant_boxes(frame) for frame in self.frames]
        return self.layout.need(self.entries(loads, weights))

    def source_boxes(self) -> list[dict[str, Box]]:
        """Per frame: the part of every source that is loaded.

        Together the parts leave no gap, even between rows that are not read.
        """
        loads = [{name: self._hull(name, frame) for name in self.sources} for frame in self.frames]
        for name, source in self.sources.items():
            closed = without_gaps([boxes[name] for boxes in loads], whole(source.tensor.shape))
            for boxes, box in zip(loads, closed, strict=True):
                boxes[name] = box
        return loads

    def _hull(self, name: str, frame: Box) -> Box:
        readers = self.readers[name]
        if any(o.source.entire for o in readers):
            return whole(readers[0].source.tensor.shape)
        return hull([self._part(o.op, o.input, frame) for o in readers])

    def _part(self, op: int, index: int, frame: Box) -> Box:
        """Part of an operand that an operator needs for a frame of each of its results."""
        return footprints(self.layout.flow.calls[op], index, (frame,) * len(self.layout.flow.results[op]))

    def constant_boxes(self, frame: Box) -> dict[str, Box]:
        """The part of every constant that a frame needs."""
        return {
            name: hull([self._part(i, index, frame) for i, index in readers])
            for name, readers in self.constants.items()
        }

    def entries(
        self, loads: Sequence[dict[str, Box]], weights: Sequence[dict[str, Box]]
    ) -> list[AllocationRequest]:
        """Allocations that serve every frame."""
        layout = self.layout
        group = self.group
        flow = self.layout.flow
        entries = [
            AllocationRequest(
                name, "weight", 1, max(layout.constant_bytes(name, boxes[name]) for boxes in weights)
            )
            for name in self.constants
        ]
        for name, source in self.sources.items():
            boxes = [load[name] for load in loads]
            rows = min(group.ring(source), max(stop - first for first, stop in map(row_span, boxes)))
            entries.append(AllocationRequest(name, "map", rows, max(map(layout.row_on_chip, boxes))))
        widest = max(layout.row_on_chip(frame) for frame in self.frames)
        return entries + [
            AllocationRequest(flow.maps[m].name, "map", group.rings[m], widest)
            for m in group.computed
            if group.rings[m]
        ]

    def cost(self) -> tuple[DramBytes, int]:
        """(DRAM bytes, buffer bytes) of the schedule."""
        layout = self.layout
        group = self.group
        loads = self.source_boxes()
        weights = [self.constant_boxes(frame) for frame in self.frames]
        read = written = constant = 0
        before: dict[str, Box] = {}
        for frame, sources, constants in zip(self.frames, loads, weights, strict=True):
            staying = self._staying(sources, before)
            read += sum(layout.map_bytes(box) for name, box in sources.items() if name not in staying)
            constant += sum(
                layout.constant_bytes(name, box) for name, box in constants.items() if before.get(name) != box
            )
            constant += sum(layout.gathered_bytes(i, frame) for i in group.members if group.gathers(i))
            written += layout.map_bytes(frame) * len(group.outside)
            before = {**constants, **sources}
        return DramBytes(input=read, output=written, weight=constant), layout.need(
            self.entries(loads, weights)
        )

    def _staying(self, sources: dict[str, Box], before: dict[str, Box]) -> frozenset[str]:
        """Sources that are on chip whole since the frame before."""
        held = {
            name
            for name, box in sources.items()
            if self.group.ring(self.sources[name]) >= row_span(box)[1] - row_span(box)[0]
        }
        return frozenset(name for name in held if before.get(name) == sources[name])

    def schedule(self, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps."""
        layout = self.layout
        group = self.group
        limit.expect(sum(stop - first for first, stop in map(row_span, self.frames)) * len(group.members))
        sources = self.source_boxes()
        constants = [self.constant_boxes(frame) for frame in self.frames]
        places = layout.stack(self.entries(sources, constants))
        at = {place.name: k for k, place in enumerate(places)}
        blocks: list[tuple[Node, ...]] = []
        before: dict[str, Box] = {}  # what is on chip, where it stays between frames
        for frame, loads, weights in zip(self.frames, sources, constants, strict=True):
            steps: list[Node] = [
                layout.load_constant(name, box, at[name])
                for name, box in weights.items()
                if before.get(name) != box
            ]
            iterations = [
                *limit.allowed(
                    Walk(group, self.operands, loads, frame, at, self._staying(loads, before)).iterations()
                )
            ]
            blocks.append((*steps, *fold(iterations, LONGEST_PERIOD)))
            before = {**weights, **loads}
        return places, fold(blocks, 1)


def without_gaps(boxes: Sequence[Box], limits: Box) -> list[Box]:
    """Boxes of successive frames or tiles, extended to cover the limits along the axes on which they move.

    Spans along an axis come in increasing order, each order possibly several times over.
    """
    grown = list(boxes)
    for axis, (covered, highest) in enumerate(limits):
        spans = sorted({box[axis] for box in boxes})
        new: dict[Span, Span] = {}
        for k, (start, stop) in enumerate(spans):
            new[start, stop] = (min(start, covered), highest if k == len(spans) - 1 else max(stop, covered))
            covered = max(covered, new[start, stop][1])
        grown = [cut(box, axis, new[box[axis]]) for box in grown]
    return grown
