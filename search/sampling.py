"""Random search: a new random plan each step, the best is kept."""

from __future__ import annotations

from lfopt.fusion import CostModel
from search.options import DEFAULTS, SearchOptions
from search.result import Result
from search.tally import PlanTally


def sample(model: CostModel, options: SearchOptions = DEFAULTS) -> Result:
    """The best of `options.budget` random plans.

    Source: arXiv 2501.00636 (its RS).
    """
    tally = PlanTally(model, options)
    partitions = tally.partitions
    try:
        while tally.left > 0:
            plan = partitions.draw(tally.dice, tally.guide)
            tally.count(plan, partitions.dram_bytes(plan))
    except KeyboardInterrupt:
        tally.interrupted = True
    return tally.sampled("random")
