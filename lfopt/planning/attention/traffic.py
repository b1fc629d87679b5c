"""DRAM bytes of an attention in blocks of heads, queries and keys."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, DramBytes
from lfopt.ir.box import spans
from lfopt.planning.attention.blocks import AttentionBlocks, AttentionBoxes
from lfopt.planning.tiling.finish import Finish

FEW_BLOCKS = 8  # blocks of keys that are always looked at one by one


class _BandsRead(NamedTuple):
    """What bands of queries read of one operand, block by block of keys; one entry per band."""

    bytes: np.ndarray  # of all blocks of keys
    first_bytes: np.ndarray  # of the first one
    single: np.ndarray  # whether it is the only one
    again: np.ndarray  # whether the first one is the last one of the band before
    closed: bool  # whether the first one of the first band is the last one of the last


class AttentionTraffic:
    """DRAM bytes of one attention and its epilogue, in blocks."""

    def __init__(self, boxes: AttentionBoxes, finish: Finish) -> None:
        self.boxes = boxes
        self.finish = finish
        # per operand, heads and keys in a block: bytes of each block of keys, which are alike, bytes before
        self._blocks: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def dram(self, blocks: AttentionBlocks) -> DramBytes:
        """DRAM bytes of the schedule."""
        heads = len(self.boxes.stacks(blocks.heads))
        moved = {False: 0, True: 0}  # by whether it is a constant
        for k in self.boxes.operands:
            moved[self.boxes.constant[k]] += self._moved(k, blocks)
        written = 0
        for band, times in self.boxes.alike(blocks):
            end = self.finish.dram(self.boxes.out(blocks, 0, band))
            written += heads * times * end.output
            moved[False] += heads * times * end.input
            moved[True] += heads * times * end.weight
        return DramBytes(input=moved[False], output=written, weight=moved[True])

    def _moved(self, k: int, blocks: AttentionBlocks) -> int:
        """Bytes of one operand: what is there since the iteration before is not loaded again."""
        by_head, by_query, by_key = self.boxes.depends(k)
        heads = len(self.boxes.stacks(blocks.heads))
        bands = self.boxes.bands(blocks)
        changes = self.boxes.changes(k, blocks.heads)
        again = bands if by_query else 1  # different parts, of what is the same for every block of keys
        if by_key and self.boxes.several(blocks):
            return self._passing(k, blocks)
        if by_query:
            each = sum(times * self._first_bytes(k, blocks, band) for band, times in self.boxes.alike(blocks))
        else:
            each = self._first_bytes(k, blocks, 0)
        if blocks.outside == "heads":
            return each * (heads if again > 1 else changes)
        if by_head:
            return each * changes * (1 if by_query or changes == 1 else bands)
        return each

    def _first_bytes(self, k: int, blocks: AttentionBlocks, band: int) -> int:
        """Bytes of an operand for the first block of keys that a band sees."""
        return self.boxes.box_bytes(k, self.boxes.box(k, blocks, 0, band, self.boxes.first(blocks, band)))

    def _passing(self, k: int, blocks: AttentionBlocks) -> int:
        """Bytes of an operand that comes block by block of keys."""
        heads = len(self.boxes.stacks(blocks.heads))
        if self.boxes.form.window is None:
            return heads * sum(
                times * self._all_blocks(k, blocks, band) for band, times in self.boxes.alike(blocks)
            )
        changes = self.boxes.changes(k, blocks.heads)
        same_heads = changes == 1
        read = self._bands_read(k, blocks)
        one = read.bytes
        size = read.first_bytes
        only = read.single
        again = read.again
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
        first, stop = self.boxes.seen(blocks)
        last = stop - 1
        if self.boxes.depends(k)[1] or bool((last < first).any()):
            bands = range(len(first))
            boxes = [
                [
                    self.boxes.box(k, blocks, 0, band, self.boxes.block(blocks, number))
                    for number in (
                        *range(first[band], stop[band]),
                        *([] if last[band] >= first[band] else [last[band]]),
                    )
                ]
                for band in bands
            ]
            counted = [int(stop[band] - first[band]) for band in bands]
            sizes = [
                sum(self.boxes.box_bytes(k, box) for box in seen[:count])
                for seen, count in zip(boxes, counted, strict=True)
            ]
            return _BandsRead(
                np.array(sizes, np.int64),
                np.array([self.boxes.box_bytes(k, seen[0]) for seen in boxes], np.int64),
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
            moved = np.array([self.boxes.box_bytes(k, box) for box in spanned], np.int64)
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
        key_spans = spans(0, self.boxes.keys, blocks.keys)
        count = len(key_spans)

        def box(number: int) -> Box:
            return self.boxes.box(k, blocks, 0, 0, key_spans[number])

        if self.boxes.even and count > FEW_BLOCKS:
            first = box(0)
            moves = [one[0] - other[0] for one, other in zip(box(1), box(0), strict=True)]

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
        key_spans = spans(0, self.boxes.keys, blocks.keys)
        if not self.boxes.even:
            return sum(
                self.boxes.box_bytes(k, self.boxes.box(k, blocks, 0, band, span)) for span in key_spans
            )
        first, last = (
            self.boxes.box_bytes(k, self.boxes.box(k, blocks, 0, band, span))
            for span in (key_spans[0], key_spans[-1])
        )
        return (len(key_spans) - 1) * first + last
