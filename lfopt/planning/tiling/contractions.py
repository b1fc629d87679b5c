"""Contractions that exceed the buffer, in tiles of rows x columns x output channels.

Partial sums stay on chip as input channels stream past. An epilogue runs on the finished tile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import groupby, pairwise, product
from math import ceil
from typing import Any, TypeVar

from lfopt.ir import Again, Box, DramBytes, Node, Place, Span, Step, box_elements, cut, fold, row_axis, whole
from lfopt.ir.box import spans
from lfopt.ops import RowReads
from lfopt.ops.footprint import footprint
from lfopt.ops.rows import same_row
from lfopt.planning.steps.layout import AllocationRequest, with_rows
from lfopt.planning.steps.limit import Limit
from lfopt.planning.tiling.contraction_tiling import ContractionTiling, input_channels
from lfopt.planning.tiling.finish import row_count
from lfopt.planning.tiling.tiling_region import (
    TilingRegion,
    channel_blocks,
    channel_groups,
    even_sizes,
    powers,
)

UNREACHED = 1 << 62  # bytes: more than any tiling moves
# slices of a tile whose steps are made; those between them and the last differ only in where they are
WALKED = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TileExtents:
    """Extents of a tile, in elements."""

    rows: int
    columns: int
    channels: int
    inputs: int  # input channels in a slice
    # rows that the last slice finishes at a time: all, or fewer, so that results take less space
    finish: int


class ContractionSlices(ContractionTiling):
    """Tiles of rows x columns x output channels.

    Input channels come slice by slice, with the weights that meet them; partial sums stay on chip. A part of
    the input or of the weights that is the same as before is not loaded again.
    """

    def __init__(self, region: TilingRegion) -> None:
        super().__init__(region)
        self.data = next(o for o in region.operands if o.op == self.anchor and o.input == 0)
        self.sums_place = self.layout.place_name("sums")
        self.bias = [(i, name) for i, name in self.constants if i != 1]
        self.weights = [(i, name) for i, name in self.constants if i == 1]
        self.depth = input_channels(self.call)
        self.groups, self.per_group = channel_groups(self.call)
        self.reads = self.flow.specs[self.anchor].reads(self.call, 0)  # in the axes that the anchor sees
        self.rowwise = row_axis(self.call.shape(0)) is not None
        self.columns_out = region.columns.rows_out if region.columns else 1
        self._on_chip: dict[int, Box] = {}  # per operand: the part of it that was loaded last
        self._memo: dict[object, Any] = {}

    def grids(self) -> Iterator[TileExtents]:
        """Tiles worth trying, those of some channels and columns from the lowest to the highest."""
        for shape in self.shapes():
            yield from (
                self.as_high(shape, rows, by_row=by_row)
                for by_row in (False, True)
                for rows in self.heights(shape, by_row=by_row)
            )

    def shapes(self) -> Iterator[TileExtents]:
        """Channels, columns and input channels of the tiles worth trying, one row of each."""
        for inputs in dict.fromkeys((min(self.region.width, self.depth), self.depth)):
            channels = self.parts if inputs < self.depth else [*self.parts, *self.together]
            for strips in powers(self.columns_out):
                columns = ceil(self.columns_out / strips)
                if self.region.movable(-1, columns):
                    yield from (TileExtents(1, columns, size, inputs, 1) for size in channels)

    def heights(self, shape: TileExtents, *, by_row: bool) -> Sequence[int]:
        """Rows of tiles of that shape, from the lowest to the highest.

        `by_row`: of those whose sums are finished row by row; none where there are no sums.
        """
        sizes = even_sizes(self.reads.rows_out)[::-1]
        return sizes if not by_row else sizes[1:] if shape.inputs < self.depth else ()

    @staticmethod
    def as_high(shape: TileExtents, rows: int, *, by_row: bool) -> TileExtents:
        """Tiles of that shape with `rows` rows."""
        return replace(shape, rows=rows, finish=1 if by_row else rows)

    @cached_property
    def parts(self) -> Sequence[int]:
        """Output channels of a tile inside a group that are worth trying, the most first."""
        grain = self.region.grain(1 if self.region.columns else -1)
        if self.groups == 1 or self.per_group % grain == 0:
            return even_sizes(self.per_group, grain)
        return ()

    @cached_property
    def together(self) -> list[int]:
        """Output channels of a tile of several whole groups that are worth trying."""
        if self.groups == 1:
            return []
        least = self.region.groups_together * self.per_group
        if self.parts:
            return [self.groups * self.per_group]
        return powers(self.groups * self.per_group, least)

    # -- boxes -----------------------------------------------------------------------------------------------

    def _once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def _rows(self, rows: int) -> Mapping[Span, Span]:
        """Rows of operand 0, per band of the result."""
        return read_spans(self.reads, rows)

    def _columns(self, columns: int) -> Mapping[Span, Span]:
        """Columns of operand 0, per strip of the result."""
        if self.region.columns is None:
            return {(0, 1): (0, 1)}
        return read_spans(self.region.columns, columns)

    def _blocks(self, channels: int) -> list[Box]:
        """Blocks of the result, whole in rows and columns."""
        return self._once(("blocks", channels), lambda: channel_blocks(self.call, channels))

    def _part(self, block: Box, inputs: Span | None = None) -> Box:
        """The part of operand 0 that a block reads; of an axis that is not cut, all."""
        box = footprint(self.call, 0, block, inputs=inputs)
        if self.region.columns:
            return (*box[:3], *whole(self.call.shape(0))[3:-1], *box[-1:])
        return box

    def _patch_of(self, block: Box, rows: Span, columns: Span, inputs: Span) -> Box:
        """Box that a tile reads of operand 0 for a slice of input channels."""
        return self._patch(self._part(block, inputs=inputs), rows, columns)

    def _patch(self, box: Box, rows: Span, columns: Span) -> Box:
        """A part of operand 0, cut to rows and columns."""
        box = with_rows(box, rows) if self.rowwise else box
        if self.region.columns:
            return cut(box, -1, columns)
        return box

    def _tile(self, block: Box, rows: Span, columns: Span) -> Box:
        """A part of the result."""
        block = with_rows(block, rows)
        if self.region.columns:
            return cut(block, -1, columns)
        return block

    def _weight_bytes(self, out: Box, span: Span) -> int:
        return sum(
            self.layout.constant_bytes(name, footprint(self.call, i, out, inputs=span))
            for i, name in self.weights
        )

    def _bias_bytes(self, out: Box) -> int:
        return sum(self.layout.constant_bytes(name, footprint(self.call, i, out)) for i, name in self.bias)

    # -- sizes -----------------------------------------------------------------------------------------------

    def entries(self, grid: TileExtents) -> list[AllocationRequest]:
        """The places."""
        layout = self.layout
        block = self._blocks(grid.channels)[0]
        span = (0, grid.inputs)
        tile = self._tile(block, (0, grid.rows), (0, grid.columns))
        tall = self._once(
            ("tall", grid.rows), lambda: max(stop - start for start, stop in self._rows(grid.rows).values())
        )
        wide = self._once(
            ("wide", grid.columns),
            lambda: max(stop - start for start, stop in self._columns(grid.columns).values()),
        )
        patch = self._once(("patch", grid.channels, grid.inputs), lambda: self._part(block, inputs=span))
        patch = self._patch(patch, (0, tall), (0, wide))
        entries = [
            AllocationRequest(self.data.source.name, "map", row_count(patch), layout.row_on_chip(patch))
        ]
        if self.second is not None:
            box = footprint(self.call, 1, tile, inputs=span)
            entries.append(
                AllocationRequest(self.second_place, "map", row_count(box), layout.row_on_chip(box))
            )
        if self.constants:
            size = self._once(
                ("weights", grid.channels, grid.inputs),
                lambda: self._weight_bytes(block, span) + self._bias_bytes(block),
            )
            entries.append(AllocationRequest(self.passing, "weight", 1, size))
        if grid.inputs < self.depth:
            entries.append(AllocationRequest(self.sums_place, "sum", grid.rows, layout.sums_row(tile)))
        return entries + self.finish.entries(tile, grid.finish)

    def need(self, grid: TileExtents) -> int:
        """Buffer bytes."""
        return self.layout.need(self.entries(grid))

    def passes(self, grid: TileExtents) -> int:
        """Times that the weights are loaded."""
        single = grid.inputs == self.depth and len(self._blocks(grid.channels)) == 1
        if single:
            return 1
        return len(self._rows(grid.rows)) * len(self._columns(grid.columns))

    def least_again(self, shape: TileExtents, beta: int, spare: int) -> int:
        """Lower bound on the bytes beyond once of tiles of that shape, as high as their sums allow.

        Nothing finer is computed once it is at least `spare` bytes.
        """
        sliced = shape.inputs < self.depth
        if sliced:
            again = (
                (ceil(self.per_group / shape.channels) - 1)
                * self.data.source.tensor.elements
                * self.layout.hardware.element_bytes
            )
        else:
            again = 0
        again += self.region.halo_bytes(shape.columns)
        if again >= spare:
            return again
        blocks = self._blocks(shape.channels)
        row = self._tile(blocks[0], (0, 1), (0, shape.columns))
        rows = (beta - 1) // (self.layout.sums_row(row) if sliced else self.layout.row_on_chip(row))
        if rows < 1 and sliced:
            return UNREACHED
        bands = ceil(self.reads.rows_out / rows) if sliced else 1
        passes = bands * len(self._columns(shape.columns)) if sliced or len(blocks) > 1 else 1
        return again + (passes - 1) * self.weight_bytes

    def iterations(self, grid: TileExtents) -> int:
        """Times that the operator runs on a slice of a tile."""
        return (
            len(self._rows(grid.rows))
            * len(self._columns(grid.columns))
            * len(self._blocks(grid.channels))
            * ceil(self.depth / grid.inputs)
        )

    @cached_property
    def weight_bytes(self) -> int:
        """DRAM bytes of operand 1 in one pass, without the rounding of its blocks: a lower bound."""
        box = whole(self.region.shape)
        return self._weight_bytes(box, (0, self.depth)) + (
            self.layout.map_bytes(footprint(self.call, 1, box)) if self.second else 0
        )

    def dram(self, grid: TileExtents) -> DramBytes:
        """Bytes that the schedule moves."""
        rows = self._rows(grid.rows)
        columns = self._columns(grid.columns)
        passes = self.passes(grid)
        extents = self._once(
            ("extents", grid.channels),
            lambda: Counter(extents_of(block) for block in self._blocks(grid.channels)),
        )
        heights, widths = (Counter(stop - start for start, stop in along) for along in (rows, columns))
        tiles = {(height, width): m * n for height, m in heights.items() for width, n in widths.items()}
        read = self._input_bytes(grid) + passes * (self._second_bytes(grid) if self.second is not None else 0)
        written = weight = 0
        for (height, width), times in tiles.items():
            for block, blocks in extents.items():
                end = self.finish.dram(self._tile(block, (0, height), (0, width)), grid.finish)
                written += times * blocks * end.output
                read += times * blocks * end.input
                weight += times * blocks * end.weight
        weight += passes * self._once(
            ("all weights", grid.channels, grid.inputs), lambda: self._all_weights(extents, grid.inputs)
        )
        once, each = self._once(
            ("all biases", grid.channels), lambda: self._all_biases(self._blocks(grid.channels))
        )
        weight += once + passes * each
        return DramBytes(input=read, output=written, weight=weight)

    def _all_weights(self, blocks: Counter[Box], inputs: int) -> int:
        """DRAM bytes of operand 1, a constant, in one pass.

        By blocks of the result, and slices of `inputs` input channels.
        """
        slices = Counter(stop - start for start, stop in spans(0, self.depth, inputs))
        return sum(
            m * n * self._weight_bytes(block, (0, depth))
            for (block, m), (depth, n) in product(blocks.items(), slices.items())
        )

    def _all_biases(self, blocks: Sequence[Box]) -> tuple[int, int]:
        """DRAM bytes of the bias: (once, in every pass).

        One that all blocks share, as that of a Gemm may be, stays on chip.
        """
        once = each = 0
        for i, name in self.bias:
            first, last = (footprint(self.call, i, block) for block in (blocks[0], blocks[-1]))
            if first == last:
                once += self.layout.constant_bytes(name, first)
            else:
                alike = Counter(map(extents_of, blocks))
                each += sum(
                    times * self.layout.constant_bytes(name, footprint(self.call, i, block))
                    for block, times in alike.items()
                )
        return once, each

    def _input_bytes(self, grid: TileExtents) -> int:
        """DRAM bytes of operand 0."""
        every, staying = self._once(("parts", grid.channels, grid.inputs), lambda: self._parts(grid))
        rows = list(self._rows(grid.rows).values())
        columns = list(self._columns(grid.columns).values())
        if not self.rowwise:
            rows = [(0, 1)] * len(rows)
        loads = [(every, rows, columns)]
        if staying:  # it is there already where the tile before read the same rows and columns
            turned = [
                span
                for k, span in enumerate(rows)
                if k == 0 or columns[0] != columns[-1] or span != rows[k - 1]
            ]
            moved = [span for before, span in pairwise(columns) if span != before]
            loads += [(staying, turned, columns[:1]), (staying, rows, moved)]
        total = 0
        for boxes, *along in loads:
            heights, widths = (Counter(stop - start for start, stop in extents) for extents in along)
            for (height, m), (width, n) in product(heights.items(), widths.items()):
                total += (
                    m
                    * n
                    * sum(
                        times * self.layout.map_bytes(self._patch(box, (0, height), (0, width)))
                        for box, times in boxes.items()
                    )
                )
        return total

    def _parts(self, grid: TileExtents) -> tuple[Counter[Box], Counter[Box]]:
        """(boxes that are loaded, box that is on chip already) of operand 0, counted by extents.

        Boxes are whole in rows and columns. The second is what a tile reads first, if the tile before ended
        with it.
        """
        blocks = self._blocks(grid.channels)
        slices = spans(0, self.depth, grid.inputs)
        if len(slices) > 1:  # of blocks inside groups, and groups are alike
            depths = Counter(stop - start for start, stop in slices)
            boxes = {depth: extents_of(self._part(blocks[0], inputs=(0, depth))) for depth in depths}
            return Counter({boxes[depth]: times * len(blocks) for depth, times in depths.items()}), Counter()
        # blocks of one group read the same channels
        alike = len(blocks) // self.groups if grid.channels < self.per_group else 1
        parts = [part for part, _ in groupby(self._part(block) for block in blocks[::alike])]
        first = parts[:1] if parts[0] == parts[-1] else []
        return Counter(map(extents_of, parts[len(first) :])), Counter(map(extents_of, first))

    def _second_bytes(self, grid: TileExtents) -> int:
        """DRAM bytes of operand 1, a map, in one pass."""

        def total() -> int:
            slices = Counter(stop - start for start, stop in spans(0, self.depth, grid.inputs))
            blocks = Counter(extents_of(block) for block in self._blocks(grid.channels))
            pairs = product(blocks.items(), slices.items())
            return sum(
                m * n * self.layout.map_bytes(footprint(self.call, 1, block, inputs=(0, depth)))
                for (block, m), (depth, n) in pairs
            )

        return self._once(("second", grid.channels, grid.inputs), total)

    # -- steps -----------------------------------------------------------------------------------------------

    def schedule(self, grid: TileExtents, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps."""
        slices = ceil(self.depth / grid.inputs)
        limit.expect(self.iterations(grid) // slices * min(slices, WALKED))
        places = self.layout.stack(self.entries(grid))
        at = {place.name: k for k, place in enumerate(places)}
        self._on_chip = {}
        bands: list[tuple[Node, ...]] = []
        for rows, read_rows in self._rows(grid.rows).items():
            strips: list[tuple[Node, ...]] = []
            for columns, read_columns in self._columns(grid.columns).items():
                tiles: list[tuple[Node, ...]] = []
                for block in self._blocks(grid.channels):
                    sums = self._sums(
                        grid,
                        self._tile(block, rows, columns),
                        partial(self._patch_of, block, read_rows, read_columns),
                        at,
                    )
                    tiles.append(fold([*limit.allowed(sums)]))
                strips.append(fold(tiles))
            bands.append(fold(strips))
        return places, fold(bands)

    def _sums(
        self, grid: TileExtents, out: Box, patch_of: Callable[[Span], Box], at: dict[str, int]
    ) -> Iterator[list[Step] | Again]:
        """The partial sums of a tile, slice by slice, and its end.

        `patch_of`: what a slice reads of operand 0.

        From the second to the last but one, slices differ only in where they are.
        """
        # bytes from the start of the slot to the bias
        behind = self._weight_bytes(self._blocks(grid.channels)[0], (0, grid.inputs))
        slices = spans(0, self.depth, grid.inputs)
        name = self.data.source.name
        for k, span in enumerate(slices):
            if WALKED <= k < len(slices) - 1:
                if k == WALKED:
                    yield Again(1, len(slices) - 1 - k)
                continue
            steps: list[Step] = []
            patch = patch_of(span)
            if self._changed(0, patch) and box_elements(patch):
                steps.append(self.layout.load(name, patch, at[name]))
            if self.second is not None and self._changed(1, box := footprint(self.call, 1, out, inputs=span)):
                steps.append(self.layout.load(self.second.source.name, box, at[self.second_place]))
            last = k == len(slices) - 1
            blocks = [(i, name, footprint(self.call, i, out, inputs=span), 0) for i, name in self.weights]
            blocks += [(i, name, footprint(self.call, i, out), behind) for i, name in self.bias if last]
            steps += [
                self.layout.load_constant(name, box, at[self.passing], offset=offset)
                for i, name, box, offset in blocks
                if self._changed(i, box)
            ]
            compute = partial(self._compute, at, None if len(slices) == 1 else span, first=k == 0, last=last)
            if last:
                first, *others = self.finish.in_parts(out, grid.finish, at, compute)
                yield steps + first
                yield from others
            else:
                yield [*steps, compute(out)]

    def _compute(self, at: dict[str, int], inputs: Span | None, out: Box, *, first: bool, last: bool) -> Step:
        """The anchor on a box of its result, for all input channels or a slice of them."""
        sums = -1 if inputs is None else at[self.sums_place]
        return self.layout.compute(
            self.anchor, (out,), (at[self.results[0]],), inputs, sums, first=first, last=last
        )

    def _changed(self, index: int, box: Box) -> bool:
        """Whether something else than this part of an operand is on chip; notes that it will be."""
        changed = self._on_chip.get(index) != box
        self._on_chip[index] = box
        return changed


@lru_cache(maxsize=1024)
def read_spans(reads: RowReads, step: int) -> Mapping[Span, Span]:
    """Per span of `step` output rows: the input rows that it reads, grown so that together they cover all."""
    if reads is same_row(reads.rows_in):
        return {span: span for span in spans(0, reads.rows_in, step)}
    read: dict[Span, Span] = {}
    for start, stop in spans(0, reads.rows_out, step):
        low = min(reads.first[start:stop])
        high = max(reads.last[start:stop]) + 1
        # nothing read: the span only closes a gap, see below
        read[start, stop] = (low, high) if low < high else (reads.rows_in, 0)
    covered = 0
    for k, (written, (start, stop)) in enumerate(read.items()):
        read[written] = (min(start, covered), reads.rows_in if k == len(read) - 1 else max(stop, covered))
        covered = read[written][1]
    return read


def distinct(boxes: Sequence[Box]) -> list[Box]:
    """Boxes of different extents, one of each."""
    return list({extents_of(box): box for box in reversed(boxes)}.values())


def extents_of(box: Box) -> Box:
    """The same box at the origin."""
    return tuple((0, stop - start) for start, stop in box)
