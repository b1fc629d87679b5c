"""Blocks of heads, queries and keys of an attention, and what they read and make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import ceil
from typing import Literal

import numpy as np

from lfopt.ir import Box, Span, box_elements, cut
from lfopt.ir.box import spans
from lfopt.ops.attention import form_of, result_box
from lfopt.ops.footprint import footprint
from lfopt.planning.tiling.tiling_region import TilingRegion


@dataclass(frozen=True, slots=True)
class AttentionBlocks:
    """Heads, queries and keys on chip at a time."""

    heads: int
    queries: int
    keys: int
    outside: Literal["heads", "queries"] = "heads"  # whose loop runs around the other


class AttentionBoxes:
    """What blocks of heads, queries and keys of an attention read of its operands, and make of its result."""

    def __init__(self, region: TilingRegion) -> None:
        self.region = region
        self.layout = region.layout
        self.call = region.call
        self.form = form_of(region.call)
        *stack, self.queries, self.width = self.form.mixing.result
        self.stack = tuple(stack)
        self.keys = self.form.keys
        # axis of the stack that is cut into blocks of heads; -1: none
        self.along = max((axis for axis, extent in enumerate(self.stack) if extent > 1), default=-1)
        weights = {w.name for w in region.flow.weights[region.anchor]}
        maps = {o.input: o.source.name for o in region.operands if o.op == region.anchor}
        self.operands = [
            k for k, name in enumerate(self.call.operator.inputs) if k in maps or name in weights
        ]
        self.constant = {k: k not in maps for k in self.operands}
        # whether blocks of equal size read equally much
        self.even = not any(part.operator.kind == "Concat" for part in self.form.parts)
        self._boxes: dict[object, Box] = {}
        self._stacks: dict[int, list[Box]] = {}
        self._changes: dict[tuple[int, int], int] = {}
        self._ends: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    # -- the blocks ------------------------------------------------------------------------------------------

    def stacks(self, heads: int) -> list[Box]:
        """The blocks of heads, as boxes of the axes before the queries."""
        if heads not in self._stacks:
            axes = [
                spans(0, extent, heads if axis == self.along else 1) for axis, extent in enumerate(self.stack)
            ]
            self._stacks[heads] = [tuple(box) for box in product(*axes)]
        return self._stacks[heads]

    def band(self, blocks: AttentionBlocks, band: int) -> Span:
        """A band of queries."""
        first = band * blocks.queries
        return first, min(first + blocks.queries, self.queries)

    def bands(self, blocks: AttentionBlocks) -> int:
        """Number of bands of queries."""
        return ceil(self.queries / blocks.queries)

    def blocks_of(self, blocks: AttentionBlocks, band: int) -> list[Span]:
        """The blocks of keys that a band sees."""
        first, stop = self.seen(blocks)
        return [self.block(blocks, number) for number in range(int(first[band]), int(stop[band]))]

    def count(self, blocks: AttentionBlocks, band: int) -> int:
        """How many blocks of keys a band sees."""
        first, stop = self.seen(blocks)
        return int(stop[band] - first[band])

    def seen(self, blocks: AttentionBlocks) -> tuple[np.ndarray, np.ndarray]:
        """(first, end) block of keys that each band sees, (bands,) int64 each."""
        key = blocks.queries, blocks.keys
        if key not in self._ends:
            window = self.form.window or (np.zeros(self.queries, np.int64), np.full(self.queries, self.keys))
            starts = range(0, self.queries, blocks.queries)
            first = np.minimum.reduceat(window[0], starts)
            stop = np.maximum.reduceat(window[1], starts)
            self._ends[key] = first // blocks.keys, -(-stop // blocks.keys)
        return self._ends[key]

    def first(self, blocks: AttentionBlocks, band: int) -> Span:
        """The first block of keys that a band sees."""
        return self.block(blocks, int(self.seen(blocks)[0][band]))

    def block(self, blocks: AttentionBlocks, number: int) -> Span:
        """A block of keys, by its number."""
        return number * blocks.keys, min((number + 1) * blocks.keys, self.keys)

    def several(self, blocks: AttentionBlocks) -> bool:
        """Whether any band sees several blocks of keys."""
        if self.form.window is None:
            return blocks.keys < self.keys
        first, stop = self.seen(blocks)
        return bool((stop - first > 1).any())

    def alike(self, blocks: AttentionBlocks) -> list[tuple[int, int]]:
        """(a band, how many are of its size)."""
        bands = self.bands(blocks)
        if bands * blocks.queries == self.queries:
            return [(0, bands)]
        if bands > 1:
            return [(0, bands - 1), (bands - 1, 1)]
        return [(0, 1)]

    # -- the boxes -------------------------------------------------------------------------------------------

    def _mixed(self, blocks: AttentionBlocks, head: int, band: int) -> Box:
        return (*self.stacks(blocks.heads)[head], self.band(blocks, band), (0, self.width))

    def result(self, blocks: AttentionBlocks, head: int, band: int) -> Box | None:
        """As `out`; None where it is no box."""
        return result_box(self.call, self._mixed(blocks, head, band))

    def out(self, blocks: AttentionBlocks, head: int, band: int) -> Box:
        """The part of the result that a block of heads and a band of queries make."""
        box = self.result(blocks, head, band)
        assert box is not None, "blocks are chosen so that results are boxes"
        return box

    def box(self, k: int, blocks: AttentionBlocks, head: int, band: int, keys: Span) -> Box:
        """Box of an operand that a block of heads and a band of queries read, for a block of keys."""
        heads, queries, _ = self.depends(k)
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

    def box_bytes(self, k: int, box: Box) -> int:
        """Bytes that a box of an operand moves."""
        if box_elements(box) == 0:
            return 0
        if self.constant[k]:
            return self.layout.constant_bytes(self.call.operator.inputs[k], box)
        return self.layout.map_bytes(box)

    def changes(self, k: int, heads: int) -> int:
        """How often an operand differs from one block of heads to the next, the first one counted."""
        if (k, heads) not in self._changes:
            blocks = AttentionBlocks(heads, 1, 1)
            boxes = [
                self.box(k, blocks, head, 0, (0, self.keys))
                for head in range(len(self.stacks(heads)) if self.depends(k)[0] else 1)
            ]
            self._changes[k, heads] = 1 + sum(one != other for one, other in pairwise(boxes))
        return self._changes[k, heads]

    def depends(self, k: int) -> tuple[bool, bool, bool]:
        """Whether what is read of an operand depends on the head, on the query, on the key."""
        return self._dependence[k]

    @cached_property
    def _dependence(self) -> dict[int, tuple[bool, bool, bool]]:
        form = self.form
        varies = dict[int, tuple[bool, bool, bool]]()
        mixed = (*((0, 1) for _ in self.stack), (0, 1), (0, self.width))

        def read(box: Box) -> list[tuple[Box, ...]]:
            uses = [form.regions(form.mixed, box, (key, key + 1)) for key in (0, self.keys - 1)]
            return [tuple(use[form.uses[k]] for use in uses) for k in self.operands]

        first = read(mixed)
        later = read(cut(mixed, -2, (self.queries - 1, self.queries)))
        heads = [read((*box, *mixed[-2:])) for box in self.stacks(1)]
        for n, k in enumerate(self.operands):
            varies[k] = (
                any(one[n] != first[n] for one in heads),
                later[n] != first[n],
                first[n][0] != first[n][1],
            )
        return varies
