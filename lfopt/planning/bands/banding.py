"""Rows that operators compute when results are made in T bands of rows, for many T at once.

In band b of T, a result of H rows gets its rows ceil(b H / T) up to ceil((b + 1) H / T). What is kept from
band to band is computed once; what is not (slices of channels) is computed again from the lowest row that a
band needs.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from lfopt.ops import Dataflow, MapRead, RowReads, bits
from lfopt.ops.rows import same_row

Ints = np.ndarray  # int64


class BandGrid:
    """Numbers of bands that are tried, (counts,) int64, and one entry for each band of each of them.

    An array of entries is (sum of counts,) int64, the bands of one number after those of another.
    """

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = np.array(counts, np.int64)
        self.offsets = np.concatenate(([0], np.cumsum(self.counts)[:-1]))
        self._of = np.repeat(self.counts, self.counts)
        self._band = np.arange(self._of.size) - np.repeat(self.offsets, self.counts)
        self._last = np.repeat(self.offsets + self.counts - 1, self.counts)
        self._quotas: dict[int, Ints] = {}
        self.is_last = np.arange(self._of.size) == self._last  # (entries,) bool

    @classmethod
    def up_to(cls, height: int) -> BandGrid:
        """Every ceil(height / h) for a whole number of rows h."""
        return cls(tuple(sorted({-(-height // h) for h in range(1, height + 1)})))

    def quota(self, height: int) -> Ints:
        """(entries,): rows of a sink of `height` rows that exist after each band."""
        if height not in self._quotas:
            self._quotas[height] = -(-(self._band + 1) * height // self._of)
        return self._quotas[height]

    def before(self, stop: Ints) -> Ints:
        """(entries,): the entry of the band before; 0 in the first."""
        previous = np.empty_like(stop)
        previous[1:] = stop[:-1]
        previous[self.offsets] = 0
        return previous

    def final(self, stop: Ints) -> Ints:
        """(entries,): the entry of the last band."""
        return stop[self._last]

    def most(self, values: Ints) -> Ints:
        """(counts,): the largest of the (entries,) of each number of bands."""
        return np.maximum.reduceat(values, self.offsets)

    def total(self, values: Ints) -> Ints:
        """(counts,): the sum of the (entries,) of each number of bands."""
        return np.add.reduceat(values, self.offsets)


class ComputedRows(NamedTuple):
    """Rows that an operator computes in each band; arrays are (entries,) int64 of a `BandGrid`."""

    start: Ints
    stop: Ints  # never falls from band to band
    new: Ints  # first row that no earlier band computed
    low: Ints  # lowest row that this band or a later one computes; the height if none does


def computed_rows(
    flow: Dataflow,
    mask: int,
    grid: BandGrid,
    repeats: Container[int],
    operands: Sequence[Sequence[MapRead]],
    heights: Sequence[int],
) -> dict[int, ComputedRows]:
    """Rows that every operator of a group computes in every band, by operator, consumers first.

    `repeats`: the maps of which no rows are kept from band to band. `operands`, `heights`: per operator of
    the dataflow, what it reads and the rows in which it advances.
    """
    readers: dict[int, list[tuple[ComputedRows, RowReads]]] = {}  # per operator
    computed: dict[int, ComputedRows] = {}
    for i in reversed([*bits(mask)]):
        sink = any(flow.is_output[m] or flow.readers[m] & ~mask for m in flow.results[i])
        stops = [needed(reads, rows.stop) for rows, reads in readers.get(i, ())]
        if sink:
            stops.append(grid.quota(heights[i]))
        stop = stops[0] if len(stops) == 1 else np.maximum.reduce(stops)
        start = new = grid.before(stop)
        low = np.where(new < grid.final(stop), new, heights[i])
        if any(m in repeats for m in flow.results[i]):
            lows = [lowest(reads, rows.low) for rows, reads in readers.get(i, ())]
            active = [rows.stop > rows.start for rows, _ in readers.get(i, ())]
            if sink:
                lows.append(low)
                active.append(stop > new)
            low = lows[0] if len(lows) == 1 else np.minimum.reduce(lows)
            start = np.where(
                active[0] if len(active) == 1 else np.logical_or.reduce(active), np.minimum(low, stop), stop
            )
        computed[i] = ComputedRows(start, stop, new, low)
        for o in operands[i]:
            producer = flow.producer[o.map]
            if producer >= 0 and mask >> producer & 1:
                readers.setdefault(producer, []).append((computed[i], o.reads))
    return computed


def needed(reads: RowReads, stop: Ints) -> Ints:
    """Rows that must exist before the first `stop` rows of the reader; same shape as `stop`."""
    return stop if reads is same_row(reads.rows_in) else _arrays(reads)[0][stop]


def lowest(reads: RowReads, low: Ints) -> Ints:
    """Lowest row that row `low` of the reader or a later one reads; same shape as `low`."""
    return low if reads is same_row(reads.rows_in) else _arrays(reads)[1][low]


@cache
def _arrays(reads: RowReads) -> tuple[Ints, Ints]:
    return np.array((0, *reads.need), np.int64), np.array(reads.keep, np.int64)
