"""The steady state of a walk over rows: periods that only repeat, so that the rest needs no walking.

The state of a walk is how many rows each operator has made and each source has loaded. A period of iterations
that began in state A and moved it by d comes again from A + d, A + 2d, ... as long as every need along the
way is the same, moved: need[r + d_reader] = need[r] + d_source.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import sub
from typing import NamedTuple

import numpy as np

from lfopt.ir import Again


class StateRead(NamedTuple):
    """A reader and its source, both by their position in the state."""

    reader: int
    source: int
    need: Sequence[int]  # rows of the source that must exist, per row of the reader


class StateSpan(NamedTuple):
    """Rows `first` to `stop` of an operator between which its iterations are alike.

    They differ where it begins, and where it comes to an end.
    """

    reader: int
    first: int
    stop: int


class StateSink(NamedTuple):
    """An operator whose bands come in turn, that of the lowest share of `of` first."""

    operator: int
    height: int
    of: int


class Steady:
    """The state of a walk after each iteration, searched for periods."""

    def __init__(
        self,
        state: Sequence[int],
        readings: Sequence[StateRead],
        reaches: Sequence[StateSpan],
        sinks: Sequence[StateSink],
        band_rows: int,
        longest: int,
    ) -> None:
        """`longest`: iterations in a period that is worth finding."""
        self.readings = readings
        self.reaches = reaches
        self.sinks = sinks
        self.band_rows = band_rows
        self.longest = longest
        self._begin(state)

    def _begin(self, state: Sequence[int]) -> None:
        self._state = tuple(state)
        self._wait = 0
        self._pause = 1
        self._moves: list[tuple[int, ...]] = []  # of the state, iteration by iteration
        self._last: dict[tuple[int, ...], int] = {}  # the last iteration that moved it so

    def again(self, state: Sequence[int]) -> tuple[Again, tuple[int, ...]] | None:
        """(iterations that repeat the last ones, the state after them); None if none do.

        Called after an iteration that led to this state.
        """
        move = tuple(map(sub, state, self._state))
        self._state = tuple(state)
        iteration = len(self._moves)
        before = self._last.get(move)
        self._moves.append(move)
        self._last[move] = iteration
        if before is None or iteration < self._wait:
            return None
        period = iteration - before
        if period > self.longest or self._moves[-period:] != self._moves[-2 * period : -period]:
            return None
        by = tuple(map(sum, zip(*self._moves[-period:], strict=True)))
        times = self._iterations(tuple(s - 2 * d for s, d in zip(state, by, strict=True)), by) - 2
        if times < 1:  # a look costs more than an iteration: fewer and fewer while they find no period
            self._wait = iteration + self._pause
            self._pause = 2 * self._pause
            return None
        after = tuple(s + times * d for s, d in zip(state, by, strict=True))
        self._begin(after)
        return Again(period, times), after

    def _iterations(self, state: tuple[int, ...], by: tuple[int, ...]) -> int:
        """How many times a period comes in all that began in this state and moved it so."""
        running = [sink for sink in self.sinks if state[sink.operator] < sink.height]
        if any(by[a.operator] * b.of != by[b.operator] * a.of for a, b in pairwise(running)):
            return 0  # some sink falls behind: the order of the bands will change
        left = [
            (sink.height - self.band_rows - state[sink.operator]) // by[sink.operator]
            for sink in running
            if by[sink.operator]
        ]
        most = min(left, default=0)
        for reader, first, stop in self.reaches:
            if by[reader] and state[reader] < stop:
                most = min(most, (stop - state[reader]) // by[reader] if state[reader] >= first else 0)
        for reader, source, need in self.readings:
            step = by[reader]
            far = by[source]
            if not step or most < 3:
                continue
            rows = np.array(need[state[reader] : state[reader] + most * step])
            if far:
                moved = np.flatnonzero(rows[step:] - rows[:-step] != far)
                most = min(most, 1 + int(moved[0] if moved.size else rows.size - step) // step)
            else:
                most = min(most, int(np.searchsorted(rows, state[source], side="right")) // step)
        return most


def within(need: Sequence[int], stop: int) -> Sequence[int]:
    """Rows that must exist of a source that ends at `stop`, per row of its reader."""
    if need[-1] <= stop:
        return need
    return [min(rows, stop) for rows in need]
