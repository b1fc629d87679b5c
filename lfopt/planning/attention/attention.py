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
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from math import ceil
from typing import Literal, NamedTuple

import numpy as np

from lfopt.ir import Box, DramBytes, Node, Place, Span, Step, box_elements, box_shape, cut, fold, row_axis
from lfopt.ir.box import spans
from lfopt.ops.attention import form_of, result_box, state_box
from lfopt.ops.footprint import footprint
from lfopt.planning.line_buffers.streaming import AllocationRequest
from lfopt.planning.steps.limit import Limit
from lfopt.planning.steps.rolling import rolled
from lfopt.planning.tiling.contractions import powers
from lfopt.planning.tiling.finish import Finish, row_count
from lfopt.planning.tiling.tiling_region import TilingRegion, even_sizes

FEW_BLOCKS = 8  # blocks of keys that are always looked at one by one
FEW_BANDS = 16  # numbers of bands of queries that are all tried where masks hide keys
BlockNumbers = tuple[int, int, int]  # numbers of a block of heads, a band of queries, a block of keys


@dataclass(frozen=True, slots=True)
class AttentionBlocks:
    """Heads, queries and keys on chip at a time."""

    heads: int
    queries: int
    keys: int
    outside: Literal["heads", "queries"] = "heads"  # whose loop runs around the other


class _BandsRead(NamedTuple):
    """What bands of queries read of one operand, block by block of keys; one entry per band."""

    bytes: np.ndarray  # of all blocks of keys
    first_bytes: np.ndarray  # of the first one
    single: np.ndarray  # whether it is the only one
    again: np.ndarray  # whether the first one is the last one of the band before
    closed: bool  # whether the first one of the first band is the last one of the last


class AttentionTiling:
    """One attention and its epilogue, in blocks."""

    def __init__(self, region: TilingRegion) -> None:
        self.region, self.layout, self.call = region, region.layout, region.call
        self.form = form_of(region.call)
        *stack, self.queries, self.width = self.form.mixing.result
        self.stack, self.keys = tuple(stack), self.form.keys
        self.finish = Finish(region, range(len(self.call.operator.inputs)))
        # axis of the stack that is cut into blocks of heads; -1: none
        self.along = max((axis for axis, extent in enumerate(self.stack) if extent > 1), default=-1)
        weights = {w.name for w in region.flow.weights[region.anchor]}
        maps = {o.input: o.source.name for o in region.operands if o.op == region.anchor}
        names = [
            (k, name) for k, name in enumerate(self.call.operator.inputs) if k in maps or name in weights
        ]
        self.operands = [k for k, _ in names]
        self.constant = {k: k not in maps for k in self.operands}
        self.places: dict[int, str] = {}  # per operand: one of its own, though others may be the same map
        for k, name in names:
            taken = name in self.places.values() or name in self.finish.places
            apart = taken or (k and not self.constant[k])
            self.places[k] = self.layout.place_name(f"{name} as {self.form.uses[k][1]}") if apart else name
        self.sums_place = self.layout.place_name("sums")
        self._boxes: dict[object, Box] = {}
        # per operand, heads and keys in a block: bytes of each block of keys, which are alike, bytes before
        self._blocks: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._stacks: dict[int, list[Box]] = {}
        self._changes: dict[tuple[int, int], int] = {}
        self._ends: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        # whether blocks of equal size read equally much
        self.even = not any(part.operator.kind == "Concat" for part in self.form.parts)

    # -- what there is to choose -----------------------------------------------------------------------------

    def head_sizes(self) -> list[int]:
        """Heads in a block, so that all blocks have equally many."""
        extent = self.stack[self.along] if self.along >= 0 else 1
        return [size for size in range(1, extent + 1) if extent % size == 0]

    def choices(self, beta: int) -> Iterator[AttentionBlocks]:
        """Blocks worth trying that fit.

        Several heads at a time spare bytes only of what they share. Without windows larger bands never move
        more, and blocks of keys all the same.
        """
        shared = any(self.changes(k, 1) < len(self.stacks(1)) for k in self.operands)
        outsides: tuple[Literal["heads", "queries"], ...] = ("heads", "queries") if shared else ("heads",)
        keys = powers(self.keys) if self.form.window else dict.fromkeys((1, self.keys))
        for outside, heads, size in product(outsides, self.head_sizes() if shared else [1], keys):
            yield from self._bands_that_fit(AttentionBlocks(heads, 1, size, outside), beta)

    def _bands_that_fit(self, blocks: AttentionBlocks, beta: int) -> Iterator[AttentionBlocks]:
        sizes, windows = even_sizes(self.queries), self.form.window is not None
        if windows:
            sizes = sorted({*sizes[:FEW_BANDS], *powers(self.queries)}, reverse=True)
        fitting = sizes[
            bisect_left(
                range(len(sizes)), x=True, key=lambda k: self.fits(replace(blocks, queries=sizes[k]), beta)
            ) :
        ]
        yield from (replace(blocks, queries=queries) for queries in (fitting if windows else fitting[:1]))

    def fits(self, blocks: AttentionBlocks, beta: int) -> bool:
        """Whether results are boxes, and the buffer holds what they take."""
        return self._result(blocks, 0, 0) is not None and self.need(blocks) < beta

    def wider(self, blocks: AttentionBlocks, beta: int) -> AttentionBlocks:
        """Larger blocks for the same bytes: fewer iterations."""
        moved = self.dram(blocks).total
        for name, sizes in (("keys", even_sizes(self.keys)), ("heads", self.head_sizes()[::-1])):
            for size in sizes:
                larger = replace(blocks, **{name: size})
                if (
                    size > getattr(blocks, name)
                    and self.fits(larger, beta)
                    and self.dram(larger).total == moved
                ):
                    blocks = larger
                    break
        return blocks

    # -- boxes -----------------------------------------------------------------------------------------------

    def stacks(self, heads: int) -> list[Box]:
        """The blocks of heads, as boxes of the axes before the queries."""
        if heads not in self._stacks:
            axes = [
                spans(0, extent, heads if axis == self.along else 1) for axis, extent in enumerate(self.stack)
            ]
            self._stacks[heads] = [tuple(box) for box in product(*axes)]
        return self._stacks[heads]

    def changes(self, k: int, heads: int) -> int:
        """How often an operand differs from one block of heads to the next, the first one counted."""
        if (k, heads) not in self._changes:
            blocks = AttentionBlocks(heads, 1, 1)
            boxes = [
                self.box(k, blocks, head, 0, (0, self.keys))
                for head in range(len(self.stacks(heads)) if self._depends(k)[0] else 1)
            ]
            self._changes[k, heads] = 1 + sum(one != other for one, other in pairwise(boxes))
        return self._changes[k, heads]

    def band(self, blocks: AttentionBlocks, band: int) -> Span:
        """A band of queries."""
        first = band * blocks.queries
        return first, min(first + blocks.queries, self.queries)

    def bands(self, blocks: AttentionBlocks) -> int:
        """Number of bands of queries."""
        return ceil(self.queries / blocks.queries)

    def blocks_of(self, blocks: AttentionBlocks, band: int) -> list[Span]:
        """The blocks of keys that a band sees."""
        first, stop = self._seen(blocks)
        return [self._block(blocks, number) for number in range(int(first[band]), int(stop[band]))]

    def _count(self, blocks: AttentionBlocks, band: int) -> int:
        first, stop = self._seen(blocks)
        return int(stop[band] - first[band])

    def _seen(self, blocks: AttentionBlocks) -> tuple[np.ndarray, np.ndarray]:
        """(first, end) block of keys that each band sees, (bands,) int64 each."""
        key = blocks.queries, blocks.keys
        if key not in self._ends:
            window = self.form.window or (np.zeros(self.queries, np.int64), np.full(self.queries, self.keys))
            starts = range(0, self.queries, blocks.queries)
            first, stop = np.minimum.reduceat(window[0], starts), np.maximum.reduceat(window[1], starts)
            self._ends[key] = first // blocks.keys, -(-stop // blocks.keys)
        return self._ends[key]

    def _mixed(self, blocks: AttentionBlocks, head: int, band: int) -> Box:
        return (*self.stacks(blocks.heads)[head], self.band(blocks, band), (0, self.width))

    def _result(self, blocks: AttentionBlocks, head: int, band: int) -> Box | None:
        return result_box(self.call, self._mixed(blocks, head, band))

    def out(self, blocks: AttentionBlocks, head: int, band: int) -> Box:
        """The part of the result that a block of heads and a band of queries make."""
        box = self._result(blocks, head, band)
        assert box is not None, "blocks are chosen so that results are boxes"
        return box

    def box(self, k: int, blocks: AttentionBlocks, head: int, band: int, keys: Span) -> Box:
        """Box of an operand that a block of heads and a band of queries read, for a block of keys."""
        heads, queries, _ = self._depends(k)
        key = (
            k,
            blocks.heads,
            blocks.queries if queries else 0,
            head if heads else 0,
            band if queries else 0,
            keys,
        )
        if key not in self._boxes:
            self._boxes[key] = footprint(
                self.call, k, self.out(blocks, head if heads else 0, band if queries else 0), inputs=keys
            )
        return self._boxes[key]

    def _depends(self, k: int) -> tuple[bool, bool, bool]:
        """Whether what is read of an operand depends on the head, on the query, on the key."""
        return self._dependence[k]

    @cached_property
    def _dependence(self) -> dict[int, tuple[bool, bool, bool]]:
        form, varies = self.form, dict[int, tuple[bool, bool, bool]]()
        mixed = (*((0, 1) for _ in self.stack), (0, 1), (0, self.width))

        def read(box: Box) -> list[tuple[Box, ...]]:
            uses = [form.regions(form.mixed, box, (key, key + 1)) for key in (0, self.keys - 1)]
            return [tuple(use[form.uses[k]] for use in uses) for k in self.operands]

        first, later = read(mixed), read(cut(mixed, -2, (self.queries - 1, self.queries)))
        heads = [read((*box, *mixed[-2:])) for box in self.stacks(1)]
        for n, k in enumerate(self.operands):
            varies[k] = (
                any(one[n] != first[n] for one in heads),
                later[n] != first[n],
                first[n][0] != first[n][1],
            )
        return varies

    def _bytes(self, k: int, box: Box) -> int:
        if box_elements(box) == 0:
            return 0
        return (
            self.layout.constant_bytes(self.call.operator.inputs[k], box)
            if self.constant[k]
            else self.layout.map_bytes(box)
        )

    # -- sizes -----------------------------------------------------------------------------------------------

    def entries(self, blocks: AttentionBlocks) -> list[AllocationRequest]:
        """Allocations: operands, sums, and what the epilogue takes."""
        layout, entries = self.layout, list[AllocationRequest]()
        for k in self.operands:
            keys = (
                [(0, blocks.keys)]
                if self.even or not self._depends(k)[2]
                else spans(0, self.keys, blocks.keys)
            )
            boxes = {
                box_shape(box): box for box in (self.box(k, blocks, 0, 0, span) for span in keys)
            }.values()
            if self.constant[k]:
                entries.append(
                    AllocationRequest(self.places[k], "weight", 1, max(self._bytes(k, box) for box in boxes))
                )
            else:
                entries.append(
                    AllocationRequest(
                        self.places[k], "map", max(map(row_count, boxes)), max(map(layout.row_on_chip, boxes))
                    )
                )
        out = self.out(blocks, 0, 0)
        if self._several(blocks):
            state = state_box(self.call, out)
            entries.append(
                AllocationRequest(self.sums_place, "sum", row_count(state), layout.sums_row(state))
            )
        return entries + self.finish.entries(out)

    def _several(self, blocks: AttentionBlocks) -> bool:
        """Whether any band sees several blocks of keys."""
        if self.form.window is None:
            return blocks.keys < self.keys
        first, stop = self._seen(blocks)
        return bool((stop - first > 1).any())

    def need(self, blocks: AttentionBlocks) -> int:
        """Buffer bytes."""
        return self.layout.need(self._apart(blocks))

    def _apart(self, blocks: AttentionBlocks) -> list[AllocationRequest]:
        """Places that share no bytes."""
        entries = self.entries(blocks)
        return (
            [entry for entry in entries if entry.name != self.finish.results[0]]
            if self._in_place(blocks, entries)
            else entries
        )

    def _stacked(self, blocks: AttentionBlocks) -> tuple[Place, ...]:
        """The places, with their addresses."""
        places, entries = self.layout.stack(self._apart(blocks)), self.entries(blocks)
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
        first = self.operands[0]
        if self.constant[first] or self.form.uses[first][1] != "queries" or self.queries < 2:
            return False
        if blocks.heads > 1 or len(self.finish.results) > 1:
            return False
        by_head, by_query, _ = self._depends(first)
        renewed = (by_head or len(self.stacks(1)) == 1) and (by_query or self.bands(blocks) == 1)
        result = next(entry for entry in entries if entry.name == self.finish.results[0])
        short = (
            self.width <= self.form.product.shape(0)[-1]
            and result.slots * result.slot_bytes <= entries[0].slots * entries[0].slot_bytes
        )
        return renewed and short and self._query_by_query

    @cached_property
    def _query_by_query(self) -> bool:
        """Whether queries of a head lie one behind the other, and so do their results."""
        mixed = [(*((0, 1) for _ in self.stack), (query, query + 1), (0, self.width)) for query in (0, 1)]
        results = [result_box(self.call, box) for box in mixed]
        reads = [
            self.form.regions(self.form.mixed, box, (0, 1))[self.form.uses[self.operands[0]]] for box in mixed
        ]
        if results[0] is None or results[1] is None:
            return False
        for one, other in ((results[0], results[1]), (reads[0], reads[1])):
            moved = [axis for axis, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
            own = row_axis(box_shape(one))
            before = (
                []
                if own in moved
                else [*one[: moved[0]], *([one[own]] if own is not None else [])]
                if moved
                else [(0, 2)]
            )
            if len(moved) != 1 or any(stop - start > 1 for start, stop in before):
                return False
        return True

    def iterations(self, blocks: AttentionBlocks) -> int:
        """Times that the attention runs on a block of keys."""
        if self.form.window is None:
            return len(self.stacks(blocks.heads)) * self.bands(blocks) * ceil(self.keys / blocks.keys)
        first, stop = self._seen(blocks)
        return len(self.stacks(blocks.heads)) * int((stop - first).sum())

    def dram(self, blocks: AttentionBlocks) -> DramBytes:
        """DRAM bytes of the schedule."""
        heads = len(self.stacks(blocks.heads))
        moved = {False: 0, True: 0}  # by whether it is a constant
        for k in self.operands:
            moved[self.constant[k]] += self._moved(k, blocks)
        written = 0
        for band, times in self._alike(blocks):
            end = self.finish.dram(self.out(blocks, 0, band))
            written += heads * times * end.output
            moved[False] += heads * times * end.input
            moved[True] += heads * times * end.weight
        return DramBytes(input=moved[False], output=written, weight=moved[True])

    def _alike(self, blocks: AttentionBlocks) -> list[tuple[int, int]]:
        """(a band, how many are of its size)."""
        bands = self.bands(blocks)
        if bands * blocks.queries == self.queries:
            return [(0, bands)]
        return [(0, bands - 1), (bands - 1, 1)] if bands > 1 else [(0, 1)]

    def _moved(self, k: int, blocks: AttentionBlocks) -> int:
        """Bytes of one operand: what is there since the iteration before is not loaded again."""
        by_head, by_query, by_key = self._depends(k)
        heads, bands, changes = (
            len(self.stacks(blocks.heads)),
            self.bands(blocks),
            self.changes(k, blocks.heads),
        )
        again = bands if by_query else 1  # different parts, of what is the same for every block of keys
        if by_key and self._several(blocks):
            return self._passing(k, blocks)
        each = sum(
            times * self._bytes(k, self.box(k, blocks, 0, band, self._first(blocks, band)))
            for band, times in self._alike(blocks)
        )
        each = each if by_query else self._bytes(k, self.box(k, blocks, 0, 0, self._first(blocks, 0)))
        if blocks.outside == "heads":
            return each * (heads if again > 1 else changes)
        return each * changes * (1 if by_query or changes == 1 else bands) if by_head else each

    def _first(self, blocks: AttentionBlocks, band: int) -> Span:
        return self._block(blocks, int(self._seen(blocks)[0][band]))

    def _block(self, blocks: AttentionBlocks, number: int) -> Span:
        return number * blocks.keys, min((number + 1) * blocks.keys, self.keys)

    def _passing(self, k: int, blocks: AttentionBlocks) -> int:
        """Bytes of an operand that comes block by block of keys."""
        heads = len(self.stacks(blocks.heads))
        if self.form.window is None:
            return heads * sum(
                times * self._all_blocks(k, blocks, band) for band, times in self._alike(blocks)
            )
        changes = self.changes(k, blocks.heads)
        same_heads, read = changes == 1, self._bands_read(k, blocks)
        one, size, only, again = read.bytes, read.first_bytes, read.single, read.again
        if blocks.outside == "queries":
            total = int(one.sum())
            if same_heads:
                rest = one - np.where(only, size, 0)
                total += (heads - 1) * int(rest.sum())
            else:
                total += int(((heads - 1 - np.where(only, heads - changes, 0)) * one).sum())
            return total - (int(size[again].sum()) if same_heads or heads == 1 else 0)
        total = int(one.sum()) - int(size[again].sum())
        # what the first iteration of a block of heads need not load
        stays = int(size[0]) * (heads - changes) if read.closed else 0
        return heads * total - stays

    def _bands_read(self, k: int, blocks: AttentionBlocks) -> _BandsRead:
        """What the bands of one block of heads read of an operand that comes block by block of keys."""
        first, stop = self._seen(blocks)
        last = stop - 1
        if self._depends(k)[1] or bool((last < first).any()):
            bands = range(len(first))
            boxes = [
                [
                    self.box(k, blocks, 0, band, self._block(blocks, number))
                    for number in (
                        *range(first[band], stop[band]),
                        *([] if last[band] >= first[band] else [last[band]]),
                    )
                ]
                for band in bands
            ]
            counted = [int(stop[band] - first[band]) for band in bands]
            sizes = [
                sum(self._bytes(k, box) for box in seen[:count])
                for seen, count in zip(boxes, counted, strict=True)
            ]
            return _BandsRead(
                np.array(sizes, np.int64),
                np.array([self._bytes(k, seen[0]) for seen in boxes], np.int64),
                np.array(counted) == 1,
                np.array([False, *(one[-1] == other[0] for one, other in pairwise(boxes))]),
                boxes[0][0] == boxes[-1][-1],
            )
        # the same for every query: the boxes of the blocks of keys are all there are
        key = (k, blocks.heads, blocks.keys)
        if key not in self._blocks:
            spanned = self._key_boxes(k, blocks)
            numbers: dict[Box, int] = {}
            alike = np.array([numbers.setdefault(box, len(numbers)) for box in spanned])
            moved = np.array([self._bytes(k, box) for box in spanned], np.int64)
            self._blocks[key] = moved, alike, np.concatenate(([0], np.cumsum(moved)))
        moved, alike, upto = self._blocks[key]
        again = np.zeros(len(first), bool)
        again[1:] = alike[first[1:]] == alike[last[:-1]]
        return _BandsRead(
            upto[stop] - upto[first],
            moved[first],
            stop - first == 1,
            again,
            bool(alike[first[0]] == alike[last[-1]]),
        )

    def _key_boxes(self, k: int, blocks: AttentionBlocks) -> list[Box]:
        """What the blocks of keys read of an operand that is the same for every query."""
        key_spans = spans(0, self.keys, blocks.keys)
        count = len(key_spans)

        def box(number: int) -> Box:
            return self.box(k, blocks, 0, 0, key_spans[number])

        if self.even and count > FEW_BLOCKS:
            first, moves = box(0), [one[0] - other[0] for one, other in zip(box(1), box(0), strict=True)]

            def moved(number: int) -> Box:
                return tuple(
                    [
                        (start + number * by, stop + number * by)
                        for (start, stop), by in zip(first, moves, strict=True)
                    ]
                )

            if all(box(number) == moved(number) for number in (1, 2, count // 3, count // 2, count - 2)):
                return [*map(moved, range(count - 1)), box(count - 1)]
        return [*map(box, range(count))]

    def _all_blocks(self, k: int, blocks: AttentionBlocks, band: int) -> int:
        """Bytes of all blocks of keys, for one band."""
        key_spans = spans(0, self.keys, blocks.keys)
        if not self.even:
            return sum(self._bytes(k, self.box(k, blocks, 0, band, span)) for span in key_spans)
        first, last = (
            self._bytes(k, self.box(k, blocks, 0, band, span)) for span in (key_spans[0], key_spans[-1])
        )
        return (len(key_spans) - 1) * first + last

    # -- steps -----------------------------------------------------------------------------------------------

    def schedule(self, blocks: AttentionBlocks, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps."""
        places = self._stacked(blocks)
        at = {place.name: k for k, place in enumerate(places)}
        heads, bands = range(len(self.stacks(blocks.heads))), range(self.bands(blocks))
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
        bands = self.bands(blocks)
        if blocks.outside == "heads":
            head, band = (head, band - 1) if band else (head - 1, bands - 1)
        else:
            head, band = (head - 1, band) if head else (len(self.stacks(blocks.heads)) - 1, band - 1)
        return None if head < 0 or band < 0 else (head, band, self._count(blocks, band) - 1)

    def _key(self, blocks: AttentionBlocks, head: int, band: int) -> object:
        """What decides the steps of a block of heads: equal keys give the same steps, moved.

        Which operands it loads, and how far its boxes lie from those of the block of heads before.
        """
        span = self._first(blocks, band)
        before = self._before(blocks, head, band)
        loaded = tuple(self._loads(k, blocks, (head, band, 0), before) for k in self.operands)
        if head == 0:
            return head, loaded
        boxes = [
            (self.box(k, blocks, head, band, span), self.box(k, blocks, head - 1, band, span))
            for k in self.operands
        ]
        boxes.append((self.out(blocks, head, band), self.out(blocks, head - 1, band)))
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
        return self.box(k, blocks, head, band, self._block(blocks, int(self._seen(blocks)[0][band]) + number))

    def _tile(
        self, blocks: AttentionBlocks, head: int, band: int, at: dict[str, int]
    ) -> Iterator[list[Step]]:
        """The iterations of a block of heads and a band of queries."""
        out, seen = self.out(blocks, head, band), self.blocks_of(blocks, band)
        before = self._before(blocks, head, band)
        result = at[self.finish.results[0]]
        for number, span in enumerate(seen):
            steps: list[Step] = []
            tile = (head, band, number)
            for k in self.operands:
                if self._loads(k, blocks, tile, before):
                    name, box, place = (
                        self.call.operator.inputs[k],
                        self._at(k, blocks, tile),
                        at[self.places[k]],
                    )
                    steps.append(
                        self.layout.load_constant(name, box, place)
                        if self.constant[k]
                        else self.layout.load(name, box, place)
                    )
            before, last = tile, number == len(seen) - 1
            if last:
                steps += self.finish.before(out, at)
            alone = len(seen) == 1
            steps.append(
                self.layout.compute(
                    self.region.anchor,
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
    candidates = [(attending.dram(blocks), blocks) for blocks in attending.choices(beta)]
    if not candidates:
        return None
    dram, blocks = min(candidates, key=lambda pair: (pair[0].total, attending.iterations(pair[1])))
    blocks = attending.wider(blocks, beta)
    return blocks, dram, attending.need(blocks)
