"""Reductions over rows that exceed the buffer: operand rows come in bands, partial results stay on chip."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from lfopt.ir import Box, DramBytes, Node, Place, Span, Step, cut, fold, whole
from lfopt.ir.box import spans
from lfopt.ops.footprint import footprint
from lfopt.planning.steps.layout import AllocationRequest
from lfopt.planning.steps.limit import Limit
from lfopt.planning.tiling.finish import Finish, row_count
from lfopt.planning.tiling.tiling_region import TilingRegion

Blocks = Sequence[tuple[int, int]]  # (axis of the result, extent of a block)


class Folds:
    """Blocks of the result in turn, each folded over bands of operand rows.

    An epilogue runs on the finished block.
    """

    def __init__(self, region: TilingRegion) -> None:
        self.region = region
        self.layout = region.layout
        self.call = region.call
        self.data = next(o for o in region.operands if o.op == region.anchor and o.input == 0).source.name
        self.height = self.call.rows_in(0)
        self.finish = Finish(region, (0,))
        self.sums_place = self.layout.place_name("sums")

    def _patch(self, out: Box, rows: Span) -> Box:
        """A band of the operand."""
        return footprint(self.call, 0, out, inputs=rows)

    def extents(self, blocks: Blocks) -> list[tuple[Box, int]]:
        """(block at the origin, how many there are of it) of every extent, the largest first."""
        counted = [(whole(self.region.shape), 1)]
        for axis, extent in blocks:
            full, rest = divmod(self.region.shape[axis], extent)
            counted = [
                (cut(box, axis, (0, n)), times * count)
                for box, times in counted
                for n, count in ((extent, full), (rest, 1))
                if n and count
            ]
        return counted

    def entries(self, blocks: Blocks, rows: int) -> list[AllocationRequest]:
        """The places."""
        (out, _), *_ = self.extents(blocks)
        entries = [
            AllocationRequest(self.data, "map", rows, self.layout.row_on_chip(self._patch(out, (0, rows))))
        ]
        if rows < self.height:
            entries.append(
                AllocationRequest(self.sums_place, "sum", row_count(out), self.layout.sums_row(out))
            )
        return entries + self.finish.entries(out)

    def need(self, blocks: Blocks, rows: int) -> int:
        """Buffer bytes."""
        return self.layout.need(self.entries(blocks, rows))

    def highest(self, blocks: Blocks, beta: int) -> int:
        """Rows of the highest bands that fit, evened out; 0 if none do."""
        if self.need(blocks, self.height) < beta:
            return self.height
        (_, _, _, row_bytes), *_ = self.entries(blocks, 1)
        most = min((beta - 1 - self.need(blocks, 1)) // row_bytes + 1, self.height - 1)
        if most > 0:
            return ceil(self.height / ceil(self.height / most))
        return 0

    def rows(self, blocks: Blocks) -> int:
        """Rows of the result in a block."""
        (out, _), *_ = self.extents(blocks)
        return row_count(out)

    def iterations(self, blocks: Blocks, rows: int) -> int:
        """Times that the operator runs on a band of a block."""
        return sum(times for _, times in self.extents(blocks)) * ceil(self.height / rows)

    def dram(self, blocks: Blocks) -> DramBytes:
        """DRAM bytes of the schedule, which no height of bands changes."""
        read = written = weight = 0
        for out, times in self.extents(blocks):
            end = self.finish.dram(out)
            read += times * (self.layout.map_bytes(self._patch(out, (0, self.height))) + end.input)
            written += times * end.output
            weight += times * end.weight
        return DramBytes(input=read, output=written, weight=weight)

    def schedule(self, blocks: Blocks, rows: int, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps."""
        limit.expect(self.iterations(blocks, rows))
        places = self.layout.stack(self.entries(blocks, rows))
        at = {place.name: k for k, place in enumerate(places)}
        bands = spans(0, self.height, rows)
        nodes: list[tuple[Node, ...]] = []
        for out in self.region.frames(blocks):
            folded = fold([*limit.allowed(self._band(out, bands, k, at) for k in range(len(bands)))])
            nodes.append((*folded, *self.finish.steps(out, at)))
        return places, fold(nodes)

    def _band(self, out: Box, bands: Sequence[Span], k: int, at: dict[str, int]) -> list[Step]:
        """Load and fold one band."""
        load = self.layout.load(self.data, self._patch(out, bands[k]), at[self.data])
        place = at[self.finish.results[0]]
        single = len(bands) == 1
        first = k == 0
        last = k == len(bands) - 1
        inputs, sums = (None, -1) if single else (bands[k], at[self.sums_place])
        return [
            load,
            self.layout.compute(self.region.anchor, (out,), (place,), inputs, sums, first=first, last=last),
        ]
