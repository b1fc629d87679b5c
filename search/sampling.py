"""Random search: a new random plan each step, the best is kept."""

from __future__ import annotations

from lfopt.fusion import CostModel
from search.partition import Dice, Guide, Partitions, Progress, Screen, Split, Tally
from search.result import Result


def sample(
    model: CostModel,
    *,
    budget: int,
    seed: int,
    time_limit: float | None = None,
    progress: Progress | None = None,
    split: Split | None = None,
    screen: Screen | None = None,
    lower_bound_bytes: int = 0,
    partitions: Partitions | None = None,
) -> Result:
    """The best of `budget` random plans. Ctrl-C returns the best so far.

    Source: arXiv 2501.00636 (its RS).
    """
    partitions = partitions or Partitions(model)
    dice, tally = Dice(seed), Tally(partitions, budget, time_limit, progress)
    guide = Guide(split, screen)
    try:
        while tally.left > 0:
            plan = partitions.draw(dice, guide)
            tally.count(plan, partitions.dram_bytes(plan))
    except KeyboardInterrupt:
        tally.interrupted = True
    return tally.result("random", seed, lower_bound_bytes, guide.repairs)
