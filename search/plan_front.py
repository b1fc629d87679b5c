"""The front of plans of given groups, each of which runs in one of several options.

No plan of the front takes fewer bytes in no more cycles than another. Where a front has very many plans, it
is thinned on a grid: the range of bytes is cut into CELLS equal cells, and of each the plan of the fewest
cycles stays, so that a plan is left out only for one that moves at most a cell more. The plan of the fewest
bytes always stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lfopt.ir import Figures
from search.objectives import Choice
from search.weighted import Evaluator

CELLS = 4096
Ints = np.ndarray  # int64


class _Merged(NamedTuple):
    """The front of the first groups; arrays are (plans,), ascending in bytes."""

    figures: Ints  # (plans, 3): bytes, cycles, pJ
    before: Ints  # plan of the groups before that each plan extends
    alternative: Ints  # of the last group


class PlanFront:
    """Plans of some groups, fewest bytes first, each in fewer cycles than those before it."""

    def __init__(self, evaluator: Evaluator, groups: Sequence[int]) -> None:
        self.groups = tuple(groups)
        self._merged: list[_Merged] = []
        figures = np.zeros((1, 3), np.int64)
        for group in groups:
            options = np.array([tuple(option) for option in evaluator(group)], np.int64)
            merged = _merge(figures, options)
            self._merged.append(merged)
            figures = merged.figures
        self._figures = figures

    def __len__(self) -> int:
        return len(self._figures)

    def __getitem__(self, plan: int) -> Figures:
        """Figures of a plan, by its position."""
        return Figures(*self._figures[plan].tolist())

    def fewest_bytes(self, most_cycles: int | None) -> int | None:
        """The plan of the fewest bytes within so many cycles; None if there is none."""
        if most_cycles is None:
            return 0
        within = np.flatnonzero(self._figures[:, 1] <= most_cycles)
        return int(within[0]) if within.size else None

    def fewest_cycles(self, most_bytes: int | None) -> int | None:
        """The plan of the fewest cycles that moves at most so many bytes; None if there is none."""
        if most_bytes is None:
            return len(self) - 1
        within = int(np.searchsorted(self._figures[:, 0], most_bytes, side="right"))
        return within - 1 if within else None

    def least_worth(self, bytes_per_cycle: float) -> float:
        """The least sum of bytes, and of cycles that are worth so many each."""
        return float((self._figures[:, 0] + bytes_per_cycle * self._figures[:, 1]).min())

    def choice(self, plan: int) -> Choice:
        """A plan, with the alternative of each group."""
        figures = self[plan]
        chosen: list[int] = []
        for merged in reversed(self._merged):
            chosen.append(int(merged.alternative[plan]))
            plan = int(merged.before[plan])
        return Choice(figures, self.groups, tuple(reversed(chosen)))


def _merge(figures: Ints, options: Ints) -> _Merged:
    """The front of all plans, (plans, 3), with one more group in each of its options, (options, 3)."""
    every = (figures[:, None] + options[None]).reshape(-1, 3)
    order = np.lexsort((every[:, 2], every[:, 1], every[:, 0]))
    cycles = every[order, 1]
    fewest = np.minimum.accumulate(cycles)
    better = np.ones(len(order), bool)
    better[1:] = cycles[1:] < fewest[:-1]
    front = _thinned(every, order[better])
    before, alternative = np.divmod(front, len(options))
    return _Merged(every[front], before, alternative)


def _thinned(every: Ints, front: Ints) -> Ints:
    """The plans of a front that stay: the first, and the last of each cell."""
    if len(front) <= CELLS:
        return front
    moved = every[front, 0]
    cell = (moved - moved[0]) * CELLS // (moved[-1] - moved[0] + 1)
    stays = np.ones(len(front), bool)
    stays[:-1] = cell[:-1] != cell[1:]
    stays[0] = True
    return front[stays]
