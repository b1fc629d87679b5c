"""Searches that ask an expensive judge about few groups: until it is asked about one, what an estimate hopes for stands in.

A search goes by figures that are real where the judge has spoken, and hoped for elsewhere: as few cycles as an estimate thinks likely. Before a plan
may count as one of the best, the judge is asked about its groups, one at a time, as long as what is left of the hope would still make it one. So
whatever a search returns is what the judge says, and a group that is not even hoped to be good enough is never judged.

An exact search is run again and again, until the judge knows all groups of what it finds: then no plan is hoped to be better. Finding paths where
edges are expensive to evaluate goes so in robotics: Dellin and Srinivasa, "A unifying formalism for shortest path problems with expensive edge
evaluations via lazy best-first search over paths with edge selectors", ICAPS 2016.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from lfopt.fusion import CostModel
from lfopt.ir import Figures
from lfopt.ops import bits
from search.exact import solve
from search.options import SearchOptions, Settle
from search.result import Result
from search.weighted import Ways, WeightedModel

Estimate = Callable[[Sequence[int]], tuple[np.ndarray, np.ndarray]]  # legal groups -> (mean, spread) of log2 of their cycles
DOUBT = 0.5  # spreads below the mean that are hoped for


class Hopes:
    """`Ways` of groups: those that the judge gives where it was asked, elsewhere one way of as few cycles as are hoped for."""

    def __init__(
        self, model: CostModel, ways: Ways, least: Sequence[Figures], known: Callable[[int], bool], estimate: Estimate, doubt: float = DOUBT
    ) -> None:
        """`ways`: the judge; `least`: per operator, what it takes in any group, its bytes aside; `known`: whether it costs nothing to ask again."""
        self.model, self.ways, self.least, self.known, self.estimate, self.doubt = model, ways, least, known, estimate, doubt
        self.judged = 0  # groups that the judge was asked about
        self._hoped: dict[int, Sequence[Figures]] = {}

    def __call__(self, group: int) -> Sequence[Figures]:
        """Of a legal group. What was hoped for of it stands until it is settled."""
        if group not in self._hoped:
            if self.known(group):
                return self.ways(group)
            self._hoped[group] = self._hope(group)
        return self._hoped[group]

    def settle(self, group: int) -> bool:
        """Have the judge asked about a group; whether that changes what is said of it."""
        if not self.known(group):
            self.judged += 1
        self.ways(group)
        return self._hoped.pop(group, None) is not None

    def _hope(self, group: int) -> Sequence[Figures]:
        cost = self.model.price(group)
        assert cost is not None, "estimates are of legal groups"
        mean, spread = self.estimate((group,))
        least = sum(self.least[i].cycles for i in bits(group))
        return (Figures(cost.dram_bytes, max(ceil(2.0 ** float(mean[0] - self.doubt * spread[0])), least), 0),)


def hoped(model: WeightedModel, hopes: Hopes) -> WeightedModel:
    """The same weighted sum, of what is hoped for."""
    return WeightedModel(model.model, hopes, model.least, model.weights)


def solve_lazily(model: WeightedModel, hopes: Hopes, options: SearchOptions) -> Result:
    """As `solve`, of a model whose ways are `hopes`: the judge is asked about the groups of what is found, until it knows them all.

    `options.start` has a plan to begin with. That nothing better is hoped for proves nothing, so the bound is what the model knows.
    """
    assert options.start, "the first plan whose groups are judged"
    settle, clock, limit = settling(model, hopes), time.perf_counter(), options.time_limit
    for group in options.start[0]:
        settle(group)
    best = tuple(options.start[0])
    while True:
        left = None if limit is None else max(limit - (time.perf_counter() - clock), 0.0)
        attempt = solve(model, replace(options, start=(best,), time_limit=left))
        for group in attempt.groups:
            settle(group)
        real = value(model, attempt.groups)
        better = real < value(model, best)
        done = real == attempt.dram_bytes or attempt.interrupted or left == 0
        best = attempt.groups if better else best
        if done:
            return replace(attempt, groups=best, dram_bytes=value(model, best), lower_bound_bytes=model.least_bytes)


def settling(model: WeightedModel, hopes: Hopes) -> Settle:
    """What local search and NSGA-II are given (`SearchOptions.settle`), beside a model whose ways are `hopes`."""

    def settle(group: int) -> bool:
        changed = hopes.settle(group)
        if changed:
            model.forget(group)
        return changed

    return settle


def value(model: CostModel, groups: Sequence[int]) -> int:
    """The sum over the groups of a plan."""
    return sum(cost.dram_bytes for cost in map(model.price, groups) if cost is not None)
