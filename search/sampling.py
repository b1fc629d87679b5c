"""Random search: a new random plan each step, the best is kept."""

from __future__ import annotations

from lfopt.fusion import CostModel
from search.budget import PlanBudget
from search.options import DEFAULTS, SearchOptions
from search.result import Result


def sample(model: CostModel, options: SearchOptions = DEFAULTS) -> Result:
    """The best of `options.budget` random plans.

    Source: arXiv 2501.00636 (its RS).
    """
    budget = PlanBudget(model, options)
    partitions = budget.partitions
    try:
        while budget.left > 0:
            plan = partitions.draw(budget.rng, budget.policy)
            budget.count(plan, partitions.dram_bytes(plan))
    except KeyboardInterrupt:
        budget.interrupted = True
    return budget.sampled("random")
