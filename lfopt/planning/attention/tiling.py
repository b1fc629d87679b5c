"""Attention that exceeds the buffer, in blocks of heads, queries and keys, with a running softmax.

    for each block of heads                                      (or bands of queries outside, where heads
                                                                 share a mask that is loaded)
        for each band of queries: load them
            for each block of keys that some of them see: load keys and values, and what is added to the
            scores
                the attention of the band to the block: no score is stored
            what follows in the group, and the store

    F_beta = queries + keys and values of a block + (width + 2) accumulators for every query and head, if
             there are several blocks + result, which takes the place of the queries where heads come one at a
             time: a query is done with when its result is written
    F_D    = queries and result once each; keys and values once where one block holds all keys of a head, else
             once for every band of queries

A running maximum and sum per query and head carry the softmax from one block of keys to the next.

Source: Dao et al. (FlashAttention), arXiv 2205.14135, algorithm 1, with bands of queries outside (as its
section 3.1 has it the other way round, sums would leave the buffer); Kao et al. (FLAT), arXiv 2107.06419,
section 4, keeps rows of scores instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from math import ceil
from typing import Literal

from lfopt.ir import NEVER, Box, DramBytes, Node, Place, Step, box_elements, box_shape, fold, row_axis
from lfopt.ir.box import spans
from lfopt.ops.attention import result_box, state_box
from lfopt.planning.attention.blocks import AttentionBlocks, AttentionBoxes
from lfopt.planning.attention.traffic import AttentionTraffic
from lfopt.planning.steps.layout import AllocationRequest
from lfopt.planning.steps.limit import Limit
from lfopt.planning.steps.place_names import used_as
from lfopt.planning.steps.rolling import rolled
from lfopt.planning.tiling.finish import Finish, row_count
from lfopt.planning.tiling.tiling_region import TilingRegion, even_sizes, powers

FEW_BANDS = 16  # numbers of bands of queries that are all tried where masks hide keys
BlockNumbers = tuple[int, int, int]  # numbers of a block of heads, a band of queries, a block of keys


class AttentionTiling:
    """One attention and its epilogue, in blocks."""

    def __init__(self, region: TilingRegion) -> None:
        self.boxes = AttentionBoxes(region)
        boxes = self.boxes
        call = region.call
        layout = region.layout
        self.finish = Finish(region, range(len(call.operator.inputs)))
        self.traffic = AttentionTraffic(boxes, self.finish)
        self.places: dict[int, str] = {}  # per operand: one of its own, though others may be the same map
        for k in boxes.operands:
            name = call.operator.inputs[k]
            taken = name in self.places.values() or name in self.finish.places
            apart = taken or (k and not boxes.constant[k])
            self.places[k] = layout.place_name(f"{name}{used_as(boxes.form.uses[k][1])}") if apart else name
        self.sums_place = layout.place_name("sums")

    # -- what there is to choose -----------------------------------------------------------------------------

    def head_sizes(self) -> list[int]:
        """Heads in a block, so that all blocks have equally many."""
        extent = self.boxes.stack[self.boxes.along] if self.boxes.along >= 0 else 1
        return [size for size in range(1, extent + 1) if extent % size == 0]

    def choices(self, beta: int) -> Iterator[AttentionBlocks]:
        """Blocks worth trying that fit.

        Several heads at a time spare bytes only of what they share. Without windows larger bands never move
        more, and blocks of keys all the same.
        """
        for blocks in self._single_queries():
            yield from self._bands_that_fit(blocks, beta)

    def _single_queries(self) -> Iterator[AttentionBlocks]:
        """Blocks worth trying, each with one query."""
        shared = any(self.boxes.changes(k, 1) < len(self.boxes.stacks(1)) for k in self.boxes.operands)
        outsides: tuple[Literal["heads", "queries"], ...] = ("heads", "queries") if shared else ("heads",)
        keys = powers(self.boxes.keys) if self.boxes.form.window else dict.fromkeys((1, self.boxes.keys))
        for outside, heads, size in product(outsides, self.head_sizes() if shared else [1], keys):
            yield AttentionBlocks(heads, 1, size, outside)

    def smallest(self) -> int:
        """Bytes that the buffer must exceed for any block to fit; NEVER if none ever does."""
        return min(
            (self.need(blocks) for blocks in self._single_queries() if self.fits(blocks, NEVER)),
            default=NEVER,
        )

    def _bands_that_fit(self, blocks: AttentionBlocks, beta: int) -> Iterator[AttentionBlocks]:
        sizes = even_sizes(self.boxes.queries)
        windows = self.boxes.form.window is not None
        if windows:
            sizes = sorted({*sizes[:FEW_BANDS], *powers(self.boxes.queries)}, reverse=True)
        fitting = sizes[
            bisect_left(
                range(len(sizes)), x=True, key=lambda k: self.fits(replace(blocks, queries=sizes[k]), beta)
            ) :
        ]
        yield from (replace(blocks, queries=queries) for queries in (fitting if windows else fitting[:1]))

    def fits(self, blocks: AttentionBlocks, beta: int) -> bool:
        """Whether results are boxes, and the buffer holds what they take."""
        return self.boxes.result(blocks, 0, 0) is not None and self.need(blocks) < beta

    def wider(self, blocks: AttentionBlocks, beta: int) -> AttentionBlocks:
        """Larger blocks for the same bytes: fewer iterations."""
        moved = self.traffic.dram(blocks).total
        for name, sizes in (("keys", even_sizes(self.boxes.keys)), ("heads", self.head_sizes()[::-1])):
            for size in sizes:
                larger = replace(blocks, **{name: size})
                if (
                    size > getattr(blocks, name)
                    and self.fits(larger, beta)
                    and self.traffic.dram(larger).total == moved
                ):
                    blocks = larger
                    break
        return blocks

    # -- sizes -----------------------------------------------------------------------------------------------

    def entries(self, blocks: AttentionBlocks) -> list[AllocationRequest]:
        """Allocations: operands, sums, and what the epilogue takes."""
        layout = self.boxes.layout
        entries = list[AllocationRequest]()
        for k in self.boxes.operands:
            if self.boxes.even or not self.boxes.depends(k)[2]:
                keys = [(0, blocks.keys)]
            else:
                keys = spans(0, self.boxes.keys, blocks.keys)
            boxes = {
                box_shape(box): box for box in (self.boxes.box(k, blocks, 0, 0, span) for span in keys)
            }.values()
            if self.boxes.constant[k]:
                entries.append(
                    AllocationRequest(
                        self.places[k], "weight", 1, max(self.boxes.box_bytes(k, box) for box in boxes)
                    )
                )
            else:
                entries.append(
                    AllocationRequest(
                        self.places[k], "map", max(map(row_count, boxes)), max(map(layout.row_on_chip, boxes))
                    )
                )
        out = self.boxes.out(blocks, 0, 0)
        if self.boxes.several(blocks):
            state = state_box(self.boxes.call, out)
            entries.append(
                AllocationRequest(self.sums_place, "sum", row_count(state), layout.sums_row(state))
            )
        return entries + self.finish.entries(out)

    def need(self, blocks: AttentionBlocks) -> int:
        """Buffer bytes."""
        return self.boxes.layout.need(self._apart(blocks))

    def _apart(self, blocks: AttentionBlocks) -> list[AllocationRequest]:
        """Places that share no bytes."""
        entries = self.entries(blocks)
        if self._in_place(blocks, entries):
            return [entry for entry in entries if entry.name != self.finish.results[0]]
        return entries

    def stacked(self, blocks: AttentionBlocks) -> tuple[Place, ...]:
        """The places, with their addresses."""
        places = self.boxes.layout.stack(self._apart(blocks))
        entries = self.entries(blocks)
        if len(places) == len(entries):
            return places
        result = next(entry for entry in entries if entry.name == self.finish.results[0])
        return (
            *places,
            Place(result.name, result.purpose, places[0].address, result.slots, result.slot_bytes),
        )

    def _in_place(self, blocks: AttentionBlocks, entries: Sequence[AllocationRequest]) -> bool:
        """Whether the result of a query may overwrite it.

        It is no longer than the query, and queries are loaded anew for every block of the result.
        """
        first = self.boxes.operands[0]
        if (
            self.boxes.constant[first]
            or self.boxes.form.uses[first][1] != "queries"
            or self.boxes.queries < 2
        ):
            return False
        if blocks.heads > 1 or len(self.finish.results) > 1:
            return False
        by_head, by_query, _ = self.boxes.depends(first)
        renewed = (by_head or len(self.boxes.stacks(1)) == 1) and (by_query or self.boxes.bands(blocks) == 1)
        result = next(entry for entry in entries if entry.name == self.finish.results[0])
        short = (
            self.boxes.width <= self.boxes.form.product.shape(0)[-1]
            and result.slots * result.slot_bytes <= entries[0].slots * entries[0].slot_bytes
        )
        return renewed and short and self._query_by_query

    @cached_property
    def _query_by_query(self) -> bool:
        """Whether queries of a head lie one behind the other, and so do their results."""
        mixed = [
            (*((0, 1) for _ in self.boxes.stack), (query, query + 1), (0, self.boxes.width))
            for query in (0, 1)
        ]
        results = [result_box(self.boxes.call, box) for box in mixed]
        reads = [
            self.boxes.form.regions(self.boxes.form.mixed, box, (0, 1))[
                self.boxes.form.uses[self.boxes.operands[0]]
            ]
            for box in mixed
        ]
        if results[0] is None or results[1] is None:
            return False
        for one, other in ((results[0], results[1]), (reads[0], reads[1])):
            moved = [axis for axis, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
            own = row_axis(box_shape(one))
            if own in moved:
                before = []
            elif moved:
                before = [*one[: moved[0]], *([one[own]] if own is not None else [])]
            else:
                before = [(0, 2)]
            if len(moved) != 1 or any(stop - start > 1 for start, stop in before):
                return False
        return True

    def iterations(self, blocks: AttentionBlocks) -> int:
        """Times that the attention runs on a block of keys."""
        if self.boxes.form.window is None:
            return (
                len(self.boxes.stacks(blocks.heads))
                * self.boxes.bands(blocks)
                * ceil(self.boxes.keys / blocks.keys)
            )
        first, stop = self.boxes.seen(blocks)
        return len(self.boxes.stacks(blocks.heads)) * int((stop - first).sum())

    # -- steps -----------------------------------------------------------------------------------------------

    def schedule(self, blocks: AttentionBlocks, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps."""
        places = self.stacked(blocks)
        at = {place.name: k for k, place in enumerate(places)}
        heads = range(len(self.boxes.stacks(blocks.heads)))
        bands = range(self.boxes.bands(blocks))
        limit.expect(1)

        def tile(head: int, band: int) -> tuple[Node, ...]:
            return fold([*limit.allowed(self._tile(blocks, head, band, at))])

        if blocks.outside == "heads":
            nodes = rolled(
                [self._key(blocks, head, 0) for head in heads],
                lambda head: fold([tile(head, band) for band in bands]),
            )
            return places, tuple(nodes)
        rows = [
            tuple(rolled([self._key(blocks, head, band) for head in heads], lambda head: tile(head, band)))  # noqa: B023
            for band in bands
        ]
        return places, fold(rows)

    def _before(self, blocks: AttentionBlocks, head: int, band: int) -> BlockNumbers | None:
        """The iteration before the first one of a block of heads and a band."""
        bands = self.boxes.bands(blocks)
        if blocks.outside == "heads":
            head, band = (head, band - 1) if band else (head - 1, bands - 1)
        else:
            head, band = (head - 1, band) if head else (len(self.boxes.stacks(blocks.heads)) - 1, band - 1)
        if head < 0 or band < 0:
            return None
        return (head, band, self.boxes.count(blocks, band) - 1)

    def _key(self, blocks: AttentionBlocks, head: int, band: int) -> object:
        """What decides the steps of a block of heads: equal keys give the same steps, moved.

        Which operands it loads, and how far its boxes lie from those of the block of heads before.
        """
        span = self.boxes.first(blocks, band)
        before = self._before(blocks, head, band)
        loaded = tuple(self._loads(k, blocks, (head, band, 0), before) for k in self.boxes.operands)
        if head == 0:
            return head, loaded
        boxes = [
            (self.boxes.box(k, blocks, head, band, span), self.boxes.box(k, blocks, head - 1, band, span))
            for k in self.boxes.operands
        ]
        boxes.append((self.boxes.out(blocks, head, band), self.boxes.out(blocks, head - 1, band)))
        return loaded, tuple(
            tuple((s - t, e - f) for (s, e), (t, f) in zip(one, other, strict=True)) for one, other in boxes
        )

    def _loads(
        self, k: int, blocks: AttentionBlocks, tile: BlockNumbers, before: BlockNumbers | None
    ) -> bool:
        """Whether an iteration loads an operand: a non-empty box other than the one before."""
        box = self._at(k, blocks, tile)
        return bool(box_elements(box)) and (before is None or self._at(k, blocks, before) != box)

    def _at(self, k: int, blocks: AttentionBlocks, tile: BlockNumbers) -> Box:
        head, band, number = tile
        return self.boxes.box(
            k, blocks, head, band, self.boxes.block(blocks, int(self.boxes.seen(blocks)[0][band]) + number)
        )

    def _tile(
        self, blocks: AttentionBlocks, head: int, band: int, at: dict[str, int]
    ) -> Iterator[list[Step]]:
        """The iterations of a block of heads and a band of queries."""
        out = self.boxes.out(blocks, head, band)
        seen = self.boxes.blocks_of(blocks, band)
        before = self._before(blocks, head, band)
        result = at[self.finish.results[0]]
        for number, span in enumerate(seen):
            steps: list[Step] = []
            tile = (head, band, number)
            for k in self.boxes.operands:
                if self._loads(k, blocks, tile, before):
                    name = self.boxes.call.operator.inputs[k]
                    box = self._at(k, blocks, tile)
                    place = at[self.places[k]]
                    steps.append(
                        self.boxes.layout.load_constant(name, box, place)
                        if self.boxes.constant[k]
                        else self.boxes.layout.load(name, box, place)
                    )
            before = tile
            last = number == len(seen) - 1
            if last:
                steps += self.finish.before(out, at)
            alone = len(seen) == 1
            steps.append(
                self.boxes.layout.compute(
                    self.boxes.region.anchor,
                    (out,),
                    (result,),
                    None if alone else span,
                    -1 if alone else at[self.sums_place],
                    first=not number,
                    last=last,
                )
            )
            if last:
                steps += self.finish.steps(out, at)
            yield steps


def best(region: TilingRegion, beta: int) -> tuple[AttentionBlocks, DramBytes, int] | None:
    """(blocks, DRAM bytes, buffer bytes) that fit strictly below `beta` bytes and move the fewest.

    Of equals, those in the fewest iterations; None if nothing fits.
    """
    attending = AttentionTiling(region)
    candidates = [(attending.traffic.dram(blocks), blocks) for blocks in attending.choices(beta)]
    if not candidates:
        return None
    dram, blocks = min(candidates, key=lambda pair: (pair[0].total, attending.iterations(pair[1])))
    blocks = attending.wider(blocks, beta)
    return blocks, dram, attending.need(blocks)
