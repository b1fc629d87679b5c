"""Copies of operators that save DRAM bytes for their multiply-accumulates, and the plan with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from lfopt.app.config import Config
from lfopt.app.deadline import LEAST_SECONDS, Deadline, ReportProgress
from lfopt.app.first_plan import FirstPlan
from lfopt.ir import FREE, Copy, Graph
from lfopt.ops import Dataflow
from lfopt.planning import SCHEMES, GroupCosts, Traffic
from lfopt.planning.costs.alike import Prices
from lfopt.planning.groups.repeats import left_for_groups
from lfopt.planning.steps.limit import never
from lfopt.rewrite.copies import barriers
from search.copies import Copied, search_copies
from search.exact import solve
from search.objectives import Objective
from search.options import SearchOptions
from search.result import Result, unfused

# share of the time limit after which the network is not planned with nothing in flight as well: its bounds
# take long, and nothing ends them
PLAIN = 0.25
POORER = (
    "auto"  # the richest scheme with nothing in flight, and the share of the time limit that it has first
)
POORER_SHARE = 0.3


class Recomputed(NamedTuple):
    """A network with copies, and the plan that an exact search found for it."""

    graph: Graph
    copies: tuple[Copy, ...]
    costs: GroupCosts  # that the groups of the plan are of
    result: Result  # its bound holds whatever is copied
    optimal: bool  # whether no other plan of the network with these copies moves less


def costs_of(config: Config, graph: Graph, late: Callable[[], bool] = never) -> GroupCosts:
    """What groups of a network cost, as a configuration says: they repeat no more than its copies leave.

    `late`: whether the time for bounds that take long is over.
    """
    left = left_for_groups(graph, config.max_recompute)
    space = {
        "scheme": config.scheme,
        "epilogue": config.epilogue,
        "max_recompute": left,
        "constraints": config.constraints,
        "late": late,
    }
    return GroupCosts.of(graph, config.hardware, Traffic(config.traffic), **space)


def may_copy(config: Config) -> bool:
    """Whether the job may have copies, and its search looks for them."""
    return (
        SCHEMES[config.scheme].copies
        and config.max_recompute > 1
        and config.search.method == "exact"
        and config.search.wanted == Objective()
    )


def recompute(
    config: Config,
    first: FirstPlan,
    deadline: Deadline,
    parts: int = 1,
    report: ReportProgress | None = None,
) -> Recomputed:
    """The plan of the fewest DRAM bytes with copies of operators, as far as `search_copies` finds them.

    The network is also planned with nothing in flight, in one pass, if there is much time left: where that
    moves less, which is rare, it is what is planned. So it is at first, in the modes of the next poorer
    scheme, where there is a time limit. Ctrl-C leaves the best plan so far.

    `first`: the plan to begin with; `parts`: searches that share the time that is left.
    """
    searches = _Searches(config, first, deadline, deadline.left("search", parts))
    poorer, interrupted = searches.poorer()
    copied = None if interrupted else searches.copied(report)
    if copied is None:
        interrupted = True
        nothing = unfused(searches.model(first.graph), "exact")
        copied = Copied(first.graph, (), nothing, 0, len(barriers(first.graph)))
    interrupted = interrupted or copied.result.interrupted
    result = copied.result
    costs = searches.model(copied.graph)
    best = Recomputed(copied.graph, copied.copies, costs, result, result.proof == "optimal")
    if copied.barriers:
        bound = searches.model(first.graph).bounds.recomputing_bytes
    else:
        bound = result.lower_bound_bytes
    if not interrupted and searches.much_time_left:
        try:
            plain = searches.run(searches.plain, 1)
            interrupted = plain.interrupted
            if plain.dram_bytes < best.result.dram_bytes:
                best = Recomputed(first.graph, (), searches.plain, plain, plain.proof == "optimal")
                bound = min(bound, plain.lower_bound_bytes)
        except KeyboardInterrupt:  # before this search began, or after it ended
            interrupted = True
    if poorer is not None and poorer.dram_bytes < best.result.dram_bytes:
        plain = replace(poorer, dram_bytes=searches.plain.dram_bytes(poorer.groups))
        best = Recomputed(first.graph, (), searches.plain, plain, optimal=False)
        bound = min(bound, searches.plain.least_bytes)
    least = min(bound, best.result.dram_bytes)
    return best._replace(
        result=replace(best.result, lower_bound_bytes=least, seconds=searches.spent, interrupted=interrupted)
    )


class _Searches:
    """The searches of one network with copies, which share prices and the time that is left."""

    def __init__(self, config: Config, first: FirstPlan, deadline: Deadline, limit: float | None) -> None:
        """`limit`: seconds."""
        self.config = config
        self.first = first
        self.deadline = deadline
        self.limit = limit
        self.start = time.perf_counter()
        self.prices = Prices()
        # of whole networks, by identity: each is planned, bounded and then written
        self.known: dict[int, GroupCosts] = {id(first.graph): first.costs}
        self.plain = self._plain(config.scheme)  # with nothing in flight

    @property
    def spent(self) -> float:
        """Seconds since they began."""
        return time.perf_counter() - self.start

    @property
    def much_time_left(self) -> bool:
        """Whether there is time for a search whose bounds take long."""
        return self.limit is None or self.spent < self.limit * PLAIN

    def _late_bounds(self) -> bool:
        return self.deadline.late("bounds")

    def _plain(self, scheme: str, known: GroupCosts | None = None) -> GroupCosts:
        config = self.config
        space = {
            "scheme": scheme,
            "epilogue": config.epilogue,
            "max_recompute": config.max_recompute,
            "constraints": config.constraints,
            "late": self._late_bounds,
        }
        flow = Dataflow.of(self.first.graph) if known is None else known.dataflow
        return GroupCosts(flow, config.hardware, self.first.costs.traffic, **space, known=known)

    def model(self, network: Graph) -> GroupCosts:
        """Costs of a network, the one without copies or another."""
        if id(network) not in self.known:
            # holds the network: no other gets its identity
            self.known[id(network)] = costs_of(self.config, network, self._late_bounds)
        return self.known[id(network)]

    def run(self, costs: GroupCosts, passes: int | None = None, share: float = 1.0) -> Result:
        """An exact search in a share of the time that is left."""
        searched = self.prices.of(costs)  # whose bounds take a while too
        left = None if self.limit is None else max((self.limit - self.spent) * share, LEAST_SECONDS)
        begun = (self.first.groups,) if self.first.groups and costs is self.first.costs else ()
        return solve(searched, SearchOptions(time_limit=left, passes=passes, start=begun))

    def poorer(self) -> tuple[Result | None, bool]:
        """(plan of the poorer scheme if there is time for it, whether there was a Ctrl-C)."""
        # what the first plan took to price, the poorer scheme takes too
        if self.limit is None or self.first.seconds > self.limit * POORER_SHARE / 2:
            return None, False
        if self.config.constraints != FREE:
            return None, False
        try:
            poorer = self.run(self._plain(POORER, self.plain), share=POORER_SHARE)
        except KeyboardInterrupt:  # before this search began, or after it ended
            return None, True
        return poorer, poorer.interrupted

    def copied(self, report: ReportProgress | None) -> Copied | None:
        """The network with copies, and its plan; None at a Ctrl-C before there was one."""
        graph = self.first.graph
        late_bounds = self._late_bounds

        def estimate(part: Graph) -> int:
            searched = self.run(costs_of(self.config, part, late_bounds), 1)
            if searched.interrupted:
                raise KeyboardInterrupt
            return searched.dram_bytes

        def runs(part: Graph) -> bool:
            costs = costs_of(self.config, part, late_bounds)
            return costs.price(costs.dataflow.everything) is not None

        def progress(done: int, total: int, best: int) -> None:
            if report is not None:
                report(f"copies: choice {done} of at most {total}, best plan {best:,} B", done / total)

        try:
            return search_copies(
                graph,
                lambda network: self.run(self.model(network)),
                estimate,
                runs,
                most_macs=int(sum(self.plain.dataflow.macs) * self.config.max_recompute),
                late=lambda: self.limit is not None and self.spent > self.limit,
                progress=progress,
            )
        except KeyboardInterrupt:
            return None
