"""Lazy searches return what the evaluator says; estimates that are never too small miss nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lfopt.app.config import Config, SearchConfig
from lfopt.app.figures import GroupFigures
from lfopt.app.objectives import plan_for
from lfopt.ir import InvalidConfig
from lfopt.planning import GroupCosts
from search.exact import solve
from search.lazy import OptimisticCosts, optimistic, settling, solve_lazily
from search.local import improve
from search.nsga2 import evolve
from search.objectives import UNIT
from search.options import SearchOptions
from search.weighted import CostWeights, WeightedModel
from tests.search.random_jobs import random_job

CYCLES = CostWeights(1, UNIT, 0)


class Said:
    """An estimate that knows the truth, and says a share of it."""

    def __init__(self, costs: GroupCosts, share: float, noise: float = 0.0) -> None:
        self.figures, self.share, self.noise = GroupFigures(costs), share, noise

    def __call__(self, groups: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        truth = np.log2([min(way.cycles for way in self.figures(group)) for group in groups])
        off = [np.random.default_rng(group).normal(0, self.noise) for group in groups]
        return truth + np.log2(self.share) + off, np.zeros(len(groups))


def job(seed: int, share: float, noise: float = 0.0) -> tuple[WeightedModel, WeightedModel, OptimisticCosts]:
    _, costs = random_job(seed, most=7)
    figures = GroupFigures(costs)
    optimistic_costs = OptimisticCosts(
        costs, figures, figures.least, figures.known, Said(costs, share, noise)
    )
    real = WeightedModel(costs, GroupFigures(costs), figures.least, CYCLES)
    return real, optimistic(real, optimistic_costs), optimistic_costs


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_estimates_that_are_never_too_small_lead_to_the_optimum_with_fewer_evaluations(share: float) -> None:
    asked, saved = 0, 0
    for seed in range(12):
        real, model, optimistic_costs = job(seed, share)
        start = solve(real.model)
        lazy = solve_lazily(model, optimistic_costs, SearchOptions(start=(start.groups,)))
        wanted = solve(real, SearchOptions(start=(start.groups,)))
        assert (
            lazy.dram_bytes
            == wanted.dram_bytes
            == sum(cost.dram_bytes for cost in map(real.price, lazy.groups) if cost)
        ), f"seed {seed}"
        assert lazy.lower_bound_bytes <= wanted.lower_bound_bytes
        asked, saved = (
            asked + optimistic_costs.evaluated,
            saved + real.evaluator.timed - optimistic_costs.evaluated,  # type: ignore[attr-defined]
        )
    assert saved > asked / 2


@pytest.mark.parametrize("search", [improve, evolve])
def test_what_guided_searches_return_is_what_the_evaluator_says(search) -> None:
    for seed in range(4):
        real, model, optimistic_costs = job(seed, 1.0, noise=0.3)
        start = solve(real.model)
        best = search(
            model,
            SearchOptions(
                budget=60, seed=seed, start=(start.groups,), settle=settling(model, optimistic_costs)
            ),
        )
        cycles = [cost.dram_bytes for cost in map(real.price, best.groups) if cost]
        assert best.dram_bytes == sum(cycles) and len(cycles) == len(best.groups), f"seed {seed}"
        assert best.dram_bytes <= sum(cost.dram_bytes for cost in map(real.price, start.groups) if cost)
        for value, _, groups in best.front:
            assert value == sum(cost.dram_bytes for cost in map(real.price, groups) if cost)
        assert (
            best.plans_evaluated
            == search(real, SearchOptions(budget=60, seed=seed, start=(start.groups,))).plans_evaluated
        )


def test_a_job_with_a_surrogate_is_no_worse_than_where_it_began_and_its_figures_are_real() -> None:
    for seed in range(3):
        _, costs = random_job(seed)
        figures, start = GroupFigures(costs), solve(costs)
        config = Config(
            "model", costs.hardware, scheme="auto", search=SearchConfig(objective="cycles", surrogate=True)
        )
        planned = plan_for(costs, config, start, None)
        assert planned.figures is not None and planned.bound <= planned.figures.cycles
        assert planned.figures.cycles <= sum(
            min(way.cycles for way in figures(group)) for group in start.groups
        )
        assert planned.figures.cycles == sum(
            min(way.cycles for way in figures(group)) for group in planned.result.groups
        )
    with pytest.raises(InvalidConfig, match="found true with objective energy"):
        SearchConfig(objective="energy", surrogate=True)
