"""Options of searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from search.partition import Partition, Partitions, Screen, Split

# (done, of how many, best DRAM bytes if there is a plan, lower bound); see `Method.unit`
Progress = Callable[[int, int, int | None, int], None]
# (legal group of what may be a good plan) -> whether its price has changed now that the evaluator was asked
Settle = Callable[[int], bool]
Latency = Callable[[int], float]  # (group) -> what running it takes, in any unit


@dataclass(frozen=True, eq=False)
class SearchOptions:
    """Options of any search; those after `partitions` are for methods whose row of `METHODS` names them."""

    time_limit: float | None = None  # seconds, after which the best so far is the result; None: until done
    # asked now and then: once it says so, the search ends as it does by Ctrl-C; it may not change its mind
    stop: Callable[[], bool] | None = None
    progress: Progress | None = None  # told now and then
    lower_bound_bytes: int = 0  # DRAM bytes that no scheme of this space avoids, as another search has proven
    # of the same cost model: what other searches have learnt of its groups
    partitions: Partitions | None = None
    budget: int = 5000  # plans that may be evaluated
    seed: int = 0  # of the random numbers
    split: Split | None = None  # where groups that do not fit are broken; None: at random
    screen: Screen | None = None  # which groups are worth the price; None: all
    start: tuple[Partition, ...] = ()  # legal plans to begin with
    # where prices are optimistic (`search.lazy`): settles a promising plan's groups; None: they are exact
    settle: Settle | None = None
    latency: Latency | None = None  # decides doubtful pairs; None: DRAM bytes do
    passes: int | None = None  # over the network, at most; None: until the plan is proven


DEFAULTS = SearchOptions()
