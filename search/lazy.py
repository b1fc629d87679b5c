"""Lazy evaluation: searches that ask an expensive evaluator about few groups and estimate the others.

A search goes by exact figures where the evaluator has been asked, and by optimistic ones elsewhere: as few
cycles as an estimate thinks likely. Before a plan may count as one of the best, the evaluator is asked about
its groups, one at a time, as long as the optimistic rest would still make it one. So whatever a search
returns is what the evaluator says, and a group that is not promising even by the optimistic estimate is never
evaluated.

An exact search is run again and again, until all groups of what it finds are evaluated: then no plan is
estimated to be better. Finding paths where edges are expensive to evaluate goes so in robotics: Dellin and
Srinivasa, "A unifying formalism for shortest path problems with expensive edge evaluations via lazy
best-first search over paths with edge selectors", ICAPS 2016.
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
from search.weighted import Evaluator, WeightedModel

# legal groups -> (mean, spread) of log2 of their cycles
Estimate = Callable[[Sequence[int]], tuple[np.ndarray, np.ndarray]]
DOUBT = 0.5  # spreads below the mean at which the optimistic estimate lies


class OptimisticCosts:
    """An `Evaluator` that estimates: exact where the real one was asked, optimistic elsewhere."""

    def __init__(
        self,
        model: CostModel,
        evaluator: Evaluator,
        least: Sequence[Figures],
        known: Callable[[int], bool],
        estimate: Estimate,
        doubt: float = DOUBT,
    ) -> None:
        """`known`: whether the evaluator has the figures of a group already, so that asking costs nothing.

        `least`: per operator, what it takes in any group, its bytes aside. `estimate`: see `Estimate`.
        """
        self.model = model
        self.evaluator = evaluator
        self.least = least
        self.known = known
        self.estimate = estimate
        self.doubt = doubt
        self.evaluated = 0  # groups that the evaluator was asked about
        self._estimated: dict[int, Sequence[Figures]] = {}

    def __call__(self, group: int) -> Sequence[Figures]:
        """Figures of a legal group; an estimate stands until the group is settled."""
        if group not in self._estimated:
            if self.known(group):
                return self.evaluator(group)
            self._estimated[group] = self._optimistic_figures(group)
        return self._estimated[group]

    def settle(self, group: int) -> bool:
        """Ask the evaluator about a group; whether that changes its figures."""
        if not self.known(group):
            self.evaluated += 1
        self.evaluator(group)
        return self._estimated.pop(group, None) is not None

    def _optimistic_figures(self, group: int) -> Sequence[Figures]:
        cost = self.model.price(group)
        assert cost is not None, "estimates are of legal groups"
        mean, spread = self.estimate((group,))
        least = sum(self.least[i].cycles for i in bits(group))
        return (
            Figures(cost.dram_bytes, max(ceil(2.0 ** float(mean[0] - self.doubt * spread[0])), least), 0),
        )


def optimistic(model: WeightedModel, optimistic_costs: OptimisticCosts) -> WeightedModel:
    """A model of the same weights, evaluated by `optimistic_costs`."""
    return WeightedModel(model.model, optimistic_costs, model.least, model.weights)


def solve_lazily(model: WeightedModel, optimistic_costs: OptimisticCosts, options: SearchOptions) -> Result:
    """Exact search repeated until the real evaluator knows all groups of the plan that it finds.

    `model`: evaluated by `optimistic_costs`. `options.start` has a plan to begin with. That no estimate is
    better proves nothing, so the bound is the model's `least_bytes`.
    """
    assert options.start, "the first plan whose groups are evaluated"
    settle = settling(model, optimistic_costs)
    clock = time.perf_counter()
    limit = options.time_limit
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
            return replace(
                attempt, groups=best, dram_bytes=value(model, best), lower_bound_bytes=model.least_bytes
            )


def settling(model: WeightedModel, optimistic_costs: OptimisticCosts) -> Settle:
    """`SearchOptions.settle` of local search and NSGA-II, for a model evaluated by `optimistic_costs`."""

    def settle(group: int) -> bool:
        changed = optimistic_costs.settle(group)
        if changed:
            model.forget(group)
        return changed

    return settle


def value(model: CostModel, groups: Sequence[int]) -> int:
    """Value of a plan: the sum over its groups."""
    return sum(cost.dram_bytes for cost in map(model.price, groups) if cost is not None)
