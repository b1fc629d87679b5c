"""What operators make in the blocks of a loop, along the axis that the loop cuts, for many cuts at once.

A block of the results needs a span of everything that they are made from. What the loop keeps from block to
block is made once: each block makes what no earlier one has made. What it does not keep is fresh: each block
makes all that it needs from the lowest index that it, or a later block, asks for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from lfopt.ops import Dataflow, MapRead, RowReads
from lfopt.ops.rows import same_row
from lfopt.planning.nest.tree import Blocks

Ints = np.ndarray  # int64


class BlockGrid:
    """Ways to cut an axis into blocks, and one entry for each block of each way.

    An array of entries is (sum of the numbers of blocks,) int64, the blocks of one way after those of
    another. An array of ways is (ways,) int64.
    """

    def __init__(self, ways: Sequence[Blocks]) -> None:
        self.ways = tuple(ways)
        self.counts = np.array([blocks.count for blocks in ways], np.int64)
        self.offsets = np.concatenate(([0], np.cumsum(self.counts)[:-1]))
        self.last = self.offsets + self.counts - 1  # (ways,) the entry of the last block
        self._last_of = np.repeat(self.last, self.counts)
        self._quotas: dict[int, Ints] = {}

    @classmethod
    def even(cls, counts: Iterable[int]) -> BlockGrid:
        """So many blocks as equal as they can be, for each of the counts."""
        return cls([Blocks(count) for count in counts])

    @classmethod
    def up_to(cls, extent: int) -> BlockGrid:
        """Every number of blocks that some block size makes of an axis of this extent."""
        return cls.even(sorted({-(-extent // size) for size in range(1, extent + 1)}))

    def quota(self, extent: int) -> Ints:
        """(entries,): where the blocks of a result of this extent end."""
        if extent not in self._quotas:
            self._quotas[extent] = np.concatenate([blocks.ends(extent)[1:] for blocks in self.ways])
        return self._quotas[extent]

    def before(self, stop: Ints) -> Ints:
        """(entries,): the entry of the block before; 0 in the first."""
        previous = np.empty_like(stop)
        previous[1:] = stop[:-1]
        previous[self.offsets] = 0
        return previous

    def final(self, stop: Ints) -> Ints:
        """(entries,): the entry of the last block."""
        return stop[self._last_of]

    def most(self, values: Ints) -> Ints:
        """(ways,): the largest of the (entries,) of each way."""
        return np.maximum.reduceat(values, self.offsets)

    def least(self, values: Ints) -> Ints:
        """(ways,): the smallest of the (entries,) of each way."""
        return np.minimum.reduceat(values, self.offsets)

    def total(self, values: Ints) -> Ints:
        """(ways,): the sum of the (entries,) of each way."""
        return np.add.reduceat(values, self.offsets)


class AxisSpans(NamedTuple):
    """Spans that blocks make of a result, or load of a map; arrays are (entries,) int64."""

    start: Ints
    stop: Ints  # never falls from block to block
    new: Ints  # first index that no earlier block has made
    low: Ints  # lowest index that this block or a later one makes; the extent if none does


class SpanReader(NamedTuple):
    """An operator that reads a map."""

    spans: AxisSpans  # what it makes
    reads: RowReads


class Spans(NamedTuple):
    """Spans along the axis of one loop."""

    made: dict[int, AxisSpans]  # per operator
    loaded: dict[int, AxisSpans]  # per map that operators of the loop read and do not make
    stored: dict[int, tuple[Ints, Ints]]  # per operator with results that leave the loop: (start, stop)
    readers: dict[int, list[SpanReader]]  # per map


def spans_in_blocks(
    flow: Dataflow,
    operators: Sequence[int],
    grid: BlockGrid,
    fresh: Container[int],
    operands: Sequence[Sequence[MapRead]] | Mapping[int, Sequence[MapRead]],
    extents: Sequence[int] | Mapping[int, int],
    passing: Container[int] = (),
    leaving: Container[int] = (),
    *,
    covering: bool = False,
) -> Spans:
    """What each of the operators makes in each block, and what each block loads.

    `fresh`: maps that are not kept from block to block. `operands`, `extents`: per operator of the dataflow,
    what it reads along the axis, and the indices that it makes. `passing`: maps from outside, fresh in every
    block, of which no index is left out. `leaving`: results that leave, whoever reads them. `covering`:
    whether blocks of what is fresh leave no gap.
    """
    inside = sum(1 << i for i in operators)
    readers: dict[int, list[SpanReader]] = {}
    computed: dict[int, AxisSpans] = {}
    stored: dict[int, tuple[Ints, Ints]] = {}
    for i in sorted(operators, reverse=True):
        results = flow.results[i]
        leaves = any(flow.is_output[m] or flow.readers[m] & ~inside or m in leaving for m in results)
        reads = [reading for m in flow.results[i] for reading in readers.get(m, ())]
        quota = grid.quota(extents[i]) if leaves else None
        remade = any(m in fresh for m in flow.results[i])
        own = computed[i] = _asked(grid, reads, quota, extents[i], remade=remade, covering=covering)
        if quota is not None:  # of what is made again in other blocks, each one stores its own part
            stored[i] = (grid.before(quota), quota) if remade and covering else (own.new, own.stop)
        for operand in operands[i]:
            readers.setdefault(operand.map, []).append(SpanReader(own, operand.reads))
    makers = {m for i in operators for m in flow.results[i]}
    loaded = {
        m: passing_spans(grid, reads)
        if m in passing
        else _asked(
            grid, reads, None, reads[0].reads.rows_in, remade=m in fresh, covering=covering, is_made=False
        )
        for m, reads in readers.items()
        if m not in makers
    }
    return Spans(computed, loaded, stored, readers)


def passing_spans(grid: BlockGrid, readers: Sequence[SpanReader]) -> AxisSpans:
    """What blocks load of a map that is fresh in each of them; no index is left out."""
    extent = readers[0].reads.rows_in
    asked = _asked(grid, readers, None, extent, remade=True, covering=False, is_made=False)
    stop = asked.stop.copy()
    stop[grid.last] = extent
    new = grid.before(stop)
    return AxisSpans(np.minimum(asked.start, new), stop, new, asked.low)


def _asked(
    grid: BlockGrid,
    readers: Sequence[SpanReader],
    quota: Ints | None,
    extent: int,
    *,
    remade: bool,
    covering: bool,
    is_made: bool = True,
) -> AxisSpans:
    """Spans of which `readers` read parts, and `quota` (where blocks of the result itself end) leaves.

    `is_made`: whether operators make them, and are asked for the lowest index that they make.
    """
    stops = [needed(reads, spans.stop) for spans, reads in readers]
    if quota is not None:
        stops.append(quota)
    if not stops:
        nothing = np.zeros(int(grid.counts.sum()), np.int64)
        return AxisSpans(nothing, nothing, nothing, nothing + extent)
    stop = stops[0] if len(stops) == 1 else np.maximum.reduce(stops)
    if covering:
        stop = stop.copy()
        stop[grid.last] = extent
    new = grid.before(stop)
    if not remade:
        low = _lowest_new(grid, new, stop, extent) if is_made else new
        return AxisSpans(new, stop, new, low)
    lows = [lowest(reads, spans.low) for spans, reads in readers]
    active = [spans.stop > spans.start for spans, _ in readers]
    if quota is not None:
        lows.append(grid.before(quota) if covering else _lowest_new(grid, new, stop, extent))
        active.append(stop > new)
    if covering:  # what nothing needs between two blocks belongs to the later one
        lows.append(new)
    low = lows[0] if len(lows) == 1 else np.minimum.reduce(lows)
    is_active = active[0] if len(active) == 1 else np.logical_or.reduce(active)
    start = np.where(is_active, np.minimum(low, stop), stop)
    return AxisSpans(start, stop, new, low)


def _lowest_new(grid: BlockGrid, new: Ints, stop: Ints, extent: int) -> Ints:
    """(entries,): the first index that a block, or a later one, makes anew; the extent if there is none."""
    return np.where(new < grid.final(stop), new, extent)


def kept_from(readers: Iterable[SpanReader], limit: Ints) -> Ints:
    """(entries,): the lowest index that a block or a later one reads of a map, at most `limit`."""
    kept = limit
    for spans, reads in readers:
        kept = np.minimum(kept, lowest(reads, spans.low))
    return kept


def needed(reads: RowReads, stop: Ints) -> Ints:
    """Indices that must exist before the first `stop` of the reader; same shape as `stop`."""
    if reads is same_row(reads.rows_in):
        return stop
    return _tables(reads)[0][stop]


def lowest(reads: RowReads, low: Ints) -> Ints:
    """Lowest index that index `low` of the reader or a later one reads; same shape as `low`."""
    if reads is same_row(reads.rows_in):
        return low
    return _tables(reads)[1][low]


@cache
def _tables(reads: RowReads) -> tuple[Ints, Ints]:
    need = np.array((0, *reads.need), np.int64)
    return need, np.array(reads.keep, np.int64)
