"""Contractions that exceed the buffer, in row bands on column strips, while weights stream past.

An epilogue runs on the finished band.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from math import ceil

from lfopt.ir import Box, DramBytes, Node, Place, Step, box_elements, fold
from lfopt.ir.box import spans
from lfopt.ops.footprint import footprint
from lfopt.planning.line_buffers.streamed_group import Operand
from lfopt.planning.steps.layout import AllocationRequest, row_span, with_rows
from lfopt.planning.steps.limit import Limit
from lfopt.planning.tiling.contraction_tiling import ContractionTiling
from lfopt.planning.tiling.contractions import distinct, extents_of
from lfopt.planning.tiling.finish import row_count
from lfopt.planning.tiling.frames import Frames
from lfopt.planning.tiling.tiling_region import TilingRegion, channel_blocks, meet


class ContractionBands(ContractionTiling):
    """Row bands on column strips; weights pass once per band.

    Blocks of weights are `TilingRegion.width` output channels wide and double-buffered.
    """

    def __init__(self, region: TilingRegion, columns: Sequence[tuple[int, int]]) -> None:
        super().__init__(region)
        self.strips = region.frames(columns)
        frames = Frames(region.layout, region.mask, region.rings, self.strips)
        self.height = self.flow.heights[self.anchor]
        self.operands = [o for o in frames.operands if not (o.op == self.anchor and o.input == 1)]
        self.by_source: dict[str, list[Operand]] = {}
        for operand in self.operands:
            self.by_source.setdefault(operand.source.name, []).append(operand)
        loads = frames.source_boxes()
        self.loads = [{name: boxes[name] for name in self.by_source} for boxes in loads]
        beside = {
            name: [pair for pair in readers if not region.own(*pair)]
            for name, readers in frames.constants.items()
        }
        frames.constants = {name: readers for name, readers in beside.items() if readers}
        self.beside = [frames.constant_boxes(strip) for strip in self.strips]
        self.blocks = channel_blocks(self.call, region.width)
        self._held: dict[tuple[str, int], int] = {}

    @cached_property
    def _largest_block_bytes(self) -> int:
        return max(self.constant_bytes(meet(block, self.strips[0])) for block in distinct(self.blocks))

    @cached_property
    def _second_block(self) -> tuple[int, int]:
        """(rows, bytes of a row on chip) of the largest block of operand 1, if that is a map."""
        boxes = [footprint(self.call, 1, block) for block in distinct(self.blocks)]
        return max(row_count(box) for box in boxes), max(self.layout.row_on_chip(box) for box in boxes)

    def held(self, name: str, rows: int) -> int:
        """Rows of a source held at once in bands of `rows` rows."""
        if (name, rows) not in self._held:
            readers = self.by_source[name]
            most = 1
            for start, stop in spans(0, self.height, rows):
                most = max(
                    most,
                    max(o.reads.need[stop - 1] for o in readers) - min(o.reads.keep[start] for o in readers),
                )
            self._held[name, rows] = most
        return self._held[name, rows]

    def entries(self, rows: int) -> list[AllocationRequest]:
        """The places."""
        layout = self.layout
        entries = [
            AllocationRequest(
                name, "weight", 1, max(layout.constant_bytes(name, boxes[name]) for boxes in self.beside)
            )
            for name in self.beside[0]
        ]
        entries += [
            AllocationRequest(
                name,
                "map",
                self.held(name, rows),
                max(layout.row_on_chip(boxes[name]) for boxes in self.loads),
            )
            for name in self.by_source
        ]
        widest = max(layout.row_on_chip(strip) for strip in self.strips)
        entries += [AllocationRequest(name, "map", rows, widest) for name in self.results]
        if self.constants:
            entries.append(AllocationRequest(self.passing, "weight", 2, self._largest_block_bytes))
        if self.second is not None:
            entries.append(
                AllocationRequest(self.second_place, "map", 2 * self._second_block[0], self._second_block[1])
            )
        return entries

    def need(self, rows: int) -> int:
        """Buffer bytes."""
        return self.layout.need(self.entries(rows))

    def passes(self, rows: int) -> int:
        """Times that the weights are loaded."""
        return len(self.strips) * ceil(self.height / rows)

    @cached_property
    def weight_bytes(self) -> int:
        """DRAM bytes of the anchor's weights and bias in one pass, block by block."""
        return sum(
            times * self.constant_bytes(block)
            for block, times in Counter(map(extents_of, self.blocks)).items()
        )

    @cached_property
    def _second_bytes(self) -> int:
        """DRAM bytes of operand 1 in one pass, block by block, if that is a map."""
        if self.second is None:
            return 0
        alike = {extents_of(block): block for block in self.blocks}
        return sum(
            times * self.layout.map_bytes(footprint(self.call, 1, alike[extents]))
            for extents, times in Counter(map(extents_of, self.blocks)).items()
        )

    def dram(self, rows: int) -> DramBytes:
        """Bytes that the schedule moves."""
        layout = self.layout
        read = written = weight = 0
        before: dict[str, Box] = {}
        for strip, loads, beside in zip(self.strips, self.loads, self.beside, strict=True):
            read += sum(
                layout.map_bytes(box)
                for name, box in loads.items()
                if not self._stays(name, box, rows, before)
            )
            weight += sum(
                layout.constant_bytes(name, box) for name, box in beside.items() if before.get(name) != box
            )
            written += layout.map_bytes(strip) * len(self.finish.outside)
            before = {**loads, **beside}
        passes = self.passes(rows)
        weight += passes * self.weight_bytes
        read += passes * self._second_bytes
        return DramBytes(input=read, output=written, weight=weight)

    def _stays(self, name: str, box: Box, rows: int, before: dict[str, Box]) -> bool:
        return before.get(name) == box and self.held(name, rows) >= row_span(box)[1] - row_span(box)[0]

    def schedule(self, rows: int, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps."""
        limit.expect(self.passes(rows) * len(self.blocks))
        places = self.layout.stack(self.entries(rows))
        at = {place.name: k for k, place in enumerate(places)}
        before: dict[str, Box] = {}
        number = 0  # of the weight block
        strips: list[tuple[Node, ...]] = []
        for strip, loads, beside in zip(self.strips, self.loads, self.beside, strict=True):
            constants = [
                self.layout.load_constant(name, box, at[name])
                for name, box in beside.items()
                if before.get(name) != box
            ]
            loaded = {
                name: row_span(box)[1] if self._stays(name, box, rows, before) else row_span(box)[0]
                for name, box in loads.items()
            }
            bands: list[tuple[Node, ...]] = []
            for start, stop in spans(0, self.height, rows):
                steps: list[Node] = []
                for name, box in loads.items():
                    until = max(o.reads.need[stop - 1] for o in self.by_source[name])
                    steps += self._load(name, box, loaded, until, at)
                boxes = [with_rows(meet(block, strip), (start, stop)) for block in self.blocks]
                steps += fold(
                    [*limit.allowed(self._block(box, at, number + k) for k, box in enumerate(boxes))]
                )
                number += len(boxes)
                steps += self.finish.epilogue(with_rows(strip, (start, stop)), at)
                bands.append(tuple(steps))
            rest = [
                step
                for name, box in loads.items()
                for step in self._load(name, box, loaded, row_span(box)[1], at)
            ]
            strips.append((*constants, *fold(bands), *rest))
            before = {**loads, **beside}
        return places, fold(strips)

    def _load(
        self, name: str, box: Box, loaded: dict[str, int], until: int, at: dict[str, int]
    ) -> list[Step]:
        first = loaded[name]
        loaded[name] = max(loaded[name], until)
        part = with_rows(box, (first, loaded[name]))
        if first < until and box_elements(part):
            return [self.layout.load(name, part, at[name])]
        return []

    def _block(self, out: Box, at: dict[str, int], number: int) -> list[Node]:
        steps: list[Node] = []
        if self.second is not None:
            box = footprint(self.call, 1, out)
            name = self.second.source.name
            steps.append(self.layout.load(name, box, at[self.second_place], number * self._second_block[0]))
        if self.constants:
            steps += self.load_constants(self.block_constants(out), at[self.passing], number)
        return [*steps, self.layout.compute(self.anchor, (out,), (at[self.results[0]],))]
