"""Operators that are computed again where that saves DRAM bytes: the plan with them, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from lfopt.app.certificates import written
from lfopt.app.config import Config
from lfopt.app.deadline import LEAST_SECONDS, Deadline, ReportProgress
from lfopt.app.first_plan import FirstPlan
from lfopt.ir import FREE, Copy, Graph
from lfopt.ir.plan import NO_CERTIFICATE, NOT_LOOKED_FOR, Certificate, NothingKept
from lfopt.ops import Dataflow
from lfopt.planning import SCHEMES, GroupCosts, Traffic
from lfopt.planning.costs.alike import Prices
from lfopt.planning.costs.covers import CoverCosts
from lfopt.planning.floors import CoverRelaxation, relaxations
from lfopt.planning.steps.limit import never
from lfopt.rewrite.covers import CoverGroup, write_cover
from search.cover import Cover, WorkLimit, covers_between, search_covers
from search.cover_bound import CoverBounds
from search.cover_exact import ProvenCovers
from search.cover_path import CoverBudget
from search.exact import solve
from search.objectives import Objective
from search.options import SearchOptions
from search.result import Result, unfused
from simulator.model.meter import Meter

# share of the time limit after which the network is not planned with nothing in flight as well: its bounds
# take long, and nothing ends them
PLAIN = 0.25
POORER = (
    "auto"  # the richest scheme with nothing in flight, and the share of the time limit that it has first
)
POORER_SHARE = 0.3
PARTITION_SHARE = 0.4  # of the time that is left then, for the plan in which nothing is computed again
# of the bytes of the best plan, what others may move that may be better once maps stay between groups
NEARLY = 1.15
BOUND_END = 0.74  # share of the time limit that searches have by which the bound ends
BOUND_SETS = 800_000  # sets of operators that are grown for it
COVERS_END = 0.62  # share of the time limit that searches have by which covers end: chains take long
FIRST_BOUND_SHARE = 0.06  # of the time that is left before covers, for the bound: it goes on behind them
EXACT_SHARE = 0.15  # of what is left then, for the proof of the best cover
EXACT_END = 0.68  # share of the time limit by which that ends, if it goes on behind covers
EXACT_SETS = 400_000  # sets of operators that are grown for it


class Recomputed(NamedTuple):
    """A network with copies of what is computed again, and its plan."""

    graph: Graph
    copies: tuple[Copy, ...]
    costs: GroupCosts  # that the groups of the plan are of
    result: Result  # its bound holds whatever is computed again
    # whether no plan moves less in which every operator is in one group, and this is one
    optimal: bool
    others: tuple[Recomputed, ...] = ()  # worse plans, which may be better once maps stay between groups
    ended: bool = False  # whether the searches came to their ends, all of them in time

    @classmethod
    def unproven(
        cls, graph: Graph, copies: tuple[Copy, ...], costs: GroupCosts, groups: Sequence[int]
    ) -> Recomputed:
        """A plan of these groups, of which no more is known than that what it must move, it moves."""
        moved = costs.dram_bytes(groups)
        least = min(costs.bounds.recomputing_bytes, moved)
        result = Result("exact", tuple(groups), moved, least, 1, len(groups), 0.0)
        return cls(graph, copies, costs, result, optimal=False)

    def of_groups(self, groups: Sequence[int]) -> Recomputed:
        """A plan of other groups of the same network, of which no more is proven."""
        result = replace(self.result, groups=tuple(groups), dram_bytes=self.costs.dram_bytes(groups))
        return self._replace(result=result, optimal=False)


def costs_of(
    config: Config,
    graph: Graph,
    *,
    late: Callable[[], bool] = never,
    groups: Sequence[Sequence[str]] | None = None,
) -> GroupCosts:
    """What groups of a network cost, as a configuration says.

    `late`: whether the time for bounds that take long is over; `groups`: a partition of its operators, if
    there is one.
    """
    space = {
        "scheme": config.scheme,
        "epilogue": config.epilogue,
        "max_recompute": config.max_recompute,
        "constraints": config.constraints,
        "late": late,
        "groups": groups,
    }
    return GroupCosts.of(graph, config.hardware, Traffic(config.traffic), **space)


def may_copy(config: Config) -> bool:
    """Whether the job may compute operators again, and its search looks for where that pays."""
    return (
        SCHEMES[config.scheme].copies
        and config.max_recompute > 1
        and config.search.method == "exact"
        and not (config.hardware.l2_bytes and config.search.wanted != Objective())
    )


def macs_allowed(config: Config, network: Graph) -> int:
    """Multiply-accumulates that a plan may do; `network`: without copies."""
    return int(sum(Dataflow.of(network).macs) * config.max_recompute)


def macs_of(costs: GroupCosts, groups: Sequence[int]) -> int:
    """Multiply-accumulates of groups, those that they repeat included."""
    return sum(costs.macs(group) for group in groups)


def recompute(
    config: Config,
    first: FirstPlan,
    deadline: Deadline,
    parts: int = 1,
    report: ReportProgress | None = None,
) -> Recomputed:
    """The plan of the fewest DRAM bytes in which groups compute operators again, as far as covers find it.

    The network is planned first with every operator in one group. It is also planned with nothing in flight,
    in one pass, if there is much time left: where that moves less, which is rare, it is what is planned. So
    it is at first, in the modes of the next poorer scheme, where there is a time limit. Ctrl-C leaves the
    best plan so far.

    `first`: the plan to begin with; `parts`: searches that share the time that is left.
    """
    searches = _Searches(config, first, deadline, deadline.left("search", parts))
    try:
        searches.run(report)
    except KeyboardInterrupt:
        searches.interrupted = True
    best = searches.best
    if best is None:
        nothing = unfused(first.costs, "exact")
        best = Recomputed(first.graph, (), first.costs, nothing, optimal=False)
    result = replace(
        searches.proven(best).result,
        seconds=searches.spent,
        interrupted=searches.interrupted,
        groups_evaluated=searches.asked + searches.covers.asked,
        nothing_kept=searches.nothing_kept,
    )
    others = tuple(searches.proven(plan) for plan in searches.plans if plan.result is not best.result)
    return best._replace(result=result, others=others, ended=searches.ended)


def least_of_covers(costs: GroupCosts, start: Sequence[int], late: Callable[[], bool] = never) -> int:
    """Lower bound on the DRAM bytes of any plan of a scheme that computes operators again, or keeps maps.

    `costs`: of the network without copies; `start`: masks of the groups of a cover of it, in executable
    order. Once it is `late`, what is known then is the bound.
    """
    search = LeastOfCovers.of(costs, late, late)
    return 0 if search is None else search.bound(start)


class LeastOfCovers:
    """The search for what `least_of_covers` says; it can be taken up again."""

    def __init__(self, costs: GroupCosts, late: Callable[[], bool], over: Callable[[], bool]) -> None:
        """`late`: whether this turn of the search is over; `over`: whether all of them are."""
        models = relaxations(costs, over)
        self.constant_bytes = models[0].constant_bytes
        self.bounds = CoverBounds(models, CoverBudget(late, BOUND_SETS))

    @classmethod
    def of(
        cls, costs: GroupCosts, late: Callable[[], bool], over: Callable[[], bool]
    ) -> LeastOfCovers | None:
        """The search; None where no floors of groups are known."""
        return cls(costs, late, over) if _has_floors(costs) else None

    def bound(self, start: Sequence[int]) -> int:
        """Bytes that no plan moves less than; 0 where nothing is proven."""
        least = self.bounds.search(start)
        return least + self.constant_bytes if least else 0


def covers_without_retention(
    prices: CoverCosts,
    start: Sequence[int],
    late: Callable[[], bool] = never,
    over: Callable[[], bool] = never,
) -> ProvenCovers | None:
    """The search for the best cover in which no map stays between groups; None where nothing can be proven.

    `prices`: of the network without copies; `start`: masks of the groups of a cover of it, in executable
    order. `late`: whether this turn of the search is over; `over`: whether all of them are.
    """
    costs = prices.costs
    if not _has_floors(costs) or costs.hardware.l2_bytes:
        return None
    floors = CoverRelaxation(costs, keeps=False, late=over)
    return ProvenCovers(floors, prices, CoverBudget(late, EXACT_SETS), start)


def _has_floors(costs: GroupCosts) -> bool:
    """Whether floors of groups are known: of traffic tiled, with nothing that is held to."""
    return costs.constraints == FREE and costs.traffic is Traffic.TILED


class _Proof(NamedTuple):
    """Bytes that no plan of a space moves less than."""

    bytes: int
    certificate: Certificate = NO_CERTIFICATE  # what proves it, where more than compulsory bytes are

    def or_better(self, costs: GroupCosts, least: LeastOfCovers, start: Sequence[int]) -> _Proof:
        """The better of this and what a search of the space of `costs` proves; `start`: groups of a cover."""
        bound = least.bound(start)
        if bound <= self.bytes:
            return self
        return _Proof(bound, written(costs.dataflow, least.bounds.claims()))


class _Searches:
    """The searches of one network, which share prices and the time that is left."""

    def __init__(self, config: Config, first: FirstPlan, deadline: Deadline, limit: float | None) -> None:
        """`limit`: seconds."""
        self.config = config
        self.first = first
        self.deadline = deadline
        self.limit = limit
        self.start = time.perf_counter()
        self.most_macs = macs_allowed(config, first.graph)
        self.prices = Prices()
        self.plain = self._plain(config.scheme)  # with nothing in flight
        self.best: Recomputed | None = None
        self.plans: list[Recomputed] = []  # the best of each search
        self.asked = 0  # groups that were priced
        self.partition: Sequence[int] = ()  # groups of the plan in which every operator is in one
        self.cover: Sequence[int] = ()  # groups of the best one, in executable order
        # no plan moves less whose operators fly as in the network, and none in which nothing is in flight
        self.flying = _Proof(first.costs.bounds.recomputing_bytes)
        self.grounded = self.flying
        self.covers = CoverCosts(first.costs)  # prices of the groups of covers
        self.unkept_bytes = 0  # no cover by these prices moves less
        self.turn_end = inf  # seconds after which the turn of a proof is over: each has several
        self.interrupted = False
        self.ended = False  # whether nothing was cut short

    @property
    def spent(self) -> float:
        """Seconds since they began."""
        return time.perf_counter() - self.start

    @property
    def much_time_left(self) -> bool:
        """Whether there is time for a search whose bounds take long."""
        return self.limit is None or self.spent < self.limit * PLAIN

    @property
    def nothing_kept(self) -> NothingKept:
        """The best plan so far, in which no map stays between groups, and what is proven of such plans.

        The operators of a plan may run in another order than the network's, or with nothing in flight. The
        proof is not of those: where one moves less, it says nothing.
        """
        if self.best is None:
            return NOT_LOOKED_FOR
        moved = self.best.result.dram_bytes
        return NothingKept(moved, self.unkept_bytes if self.unkept_bytes <= moved else 0)

    def _late_for_covers(self) -> bool:
        return self.limit is not None and self.spent > self.limit * COVERS_END

    def _turn_over(self) -> bool:
        return self.spent > self.turn_end

    def _late_for_bound(self) -> bool:
        return self.limit is not None and self.spent > self.limit * BOUND_END

    def _late_for_search(self) -> bool:
        return self.limit is not None and self.spent > self.limit

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

    def run(self, report: ReportProgress | None) -> None:
        """One search after the other; `best` is the best plan so far. Raises KeyboardInterrupt at Ctrl-C."""
        self._poorer()
        self._partition()
        ends = self._turn_over, self._late_for_bound
        balanced = self.config.search.objective == "balanced"  # plans first: proofs are of bytes alone
        if balanced:
            fewest = self._covers(report)
            self._covers_in_cycles(fewest, report)
        self._begin_turn(FIRST_BOUND_SHARE)
        least = LeastOfCovers.of(self.first.costs, *ends)
        self._prove(least, report)
        self._begin_turn(EXACT_SHARE)
        proof = covers_without_retention(self.covers, self.cover, *ends)
        if not self._exact_cover(proof, report) and not balanced:
            self._covers(report)
            self._end_turn_at(EXACT_END)
            self._exact_cover(proof, report)
        self._end_turn_at(BOUND_END)
        self._prove(least, report)
        self._nothing_in_flight()
        self._prove_grounded(report)

    def _begin_turn(self, share: float) -> None:
        """Let a proof have so much of the time that is left."""
        if self.limit is not None:
            self.turn_end = self.spent + share * (self.limit - self.spent)

    def _end_turn_at(self, share: float) -> None:
        """Let a proof go on until so much of the time limit is over."""
        if self.limit is not None:
            self.turn_end = share * self.limit

    def _searched(self, costs: GroupCosts, passes: int | None = None, share: float = 1.0) -> Result:
        """An exact search over partitions in a share of the time that is left."""
        searched = self.prices.of(costs)  # whose bounds take a while too
        left = None if self.limit is None else max((self.limit - self.spent) * share, LEAST_SECONDS)
        begun = (self.first.groups,) if self.first.groups and costs is self.first.costs else ()
        result = solve(searched, SearchOptions(time_limit=left, passes=passes, start=begun))
        self.asked += result.groups_evaluated
        return result

    def _take(self, plan: Recomputed) -> None:
        """Keep a plan that moves fewer bytes than the best. Raises KeyboardInterrupt after a Ctrl-C."""
        if self.best is None or plan.result.dram_bytes < self.best.result.dram_bytes:
            self.best = plan
        if plan.result.interrupted:
            raise KeyboardInterrupt

    def _poorer(self) -> None:
        """In the modes of a poorer scheme, if there is time for it."""
        # what the first plan took to price, the poorer scheme takes too
        if self.limit is None or self.first.seconds > self.limit * POORER_SHARE / 2:
            return
        if self.config.constraints != FREE:
            return
        poorer = self._searched(self._plain(POORER, self.plain), share=POORER_SHARE)
        again = replace(poorer, dram_bytes=self.plain.dram_bytes(poorer.groups))
        plan = Recomputed(self.first.graph, (), self.plain, again, optimal=False)
        if self.config.search.wanted != Objective():
            self.plans.append(plan)  # it may be faster than those of fewer bytes
        self._take(plan)

    def _partition(self) -> None:
        """Every operator in one group."""
        costs = self.first.costs
        result = self._searched(costs, share=PARTITION_SHARE)
        plan = Recomputed(self.first.graph, (), costs, result, optimal=result.proof == "optimal")
        self.plans.append(plan)
        self.ended = plan.optimal
        self.partition = result.groups
        self.cover = result.groups
        self._take(plan)

    def _covers(self, report: ReportProgress | None) -> Cover | None:
        """Operators in several groups. The last cover that is found, the best one."""
        best = self.best
        assert best is not None

        def progress(what: str, least: int | None) -> None:
            if report is not None:
                moved = best.result.dram_bytes if least is None else least
                report(f"covers: {what}, best plan {moved:,} B", 1.0)

        budget = CoverBudget(self._late_for_covers)
        last: Cover | None = None
        for cover in search_covers(self.covers, WorkLimit(self.most_macs), self.partition, budget, progress):
            last = cover
            self.cover = [step.operators for step in cover.steps]
            if cover.dram_bytes <= NEARLY * best.result.dram_bytes:
                self._take_cover(cover)
        self.ended = self.ended and not self._late_for_covers() and budget.sets >= 0
        return last

    def _covers_in_cycles(self, fewest: Cover | None, report: ReportProgress | None) -> None:
        """Covers between one of few bytes and the partition, which take fewer cycles."""
        costs = self.first.costs
        if fewest is None or fewest.work <= sum(costs.dataflow.macs):
            return
        if report is not None:
            report("covers: fewer cycles", 1.0)
        covers = self.covers.in_cycles(Meter(costs.dataflow, costs.hardware).estimated_cycles())
        budget = CoverBudget(self._late_for_search)
        for cover in covers_between(covers, fewest, self.partition, budget):
            self._take_cover(cover)

    def _take_cover(self, cover: Cover) -> None:
        """Write a cover as a network with copies, and keep its plan if that moves fewer bytes."""
        groups = [CoverGroup(step.operators, step.stores) for step in cover.steps]
        written = write_cover(self.first.costs.dataflow, groups)
        costs = costs_of(self.config, written.graph, late=self._late_bounds, groups=written.groups)
        position = costs.dataflow.position
        masks = tuple(sum(1 << i for i in {position[name] for name in names}) for names in written.groups)
        if any(costs.price(mask) is None for mask in masks) or macs_of(costs, masks) > self.most_macs:
            return
        result = Result("exact", masks, costs.dram_bytes(masks), 0, 1, len(masks), 0.0)
        plan = Recomputed(written.graph, written.copies, costs, result, optimal=False)
        self.plans.append(plan)
        self._take(plan)

    def _exact_cover(self, proof: ProvenCovers | None, report: ReportProgress | None) -> bool:
        """The best cover in which no map stays between groups. Whether it is proven that none moves less."""
        if proof is None:
            return False
        if report is not None:
            report("covers: proof", 1.0)
        proven = proof.search(self.nothing_kept.dram_bytes)
        if proven.steps:
            cover = Cover(proven.steps)
            self.cover = [step.operators for step in cover.steps]
            self._take_cover(cover)
        self.unkept_bytes = proven.lower_bound_bytes
        return self.nothing_kept.lower_bound_bytes == self.nothing_kept.dram_bytes

    def _prove(self, least: LeastOfCovers | None, report: ReportProgress | None) -> None:
        """How few bytes any plan moves at the least."""
        if least is None:
            return
        if report is not None:
            report("covers: bound", 1.0)
        self.flying = self.flying.or_better(self.first.costs, least, self.cover)

    def _prove_grounded(self, report: ReportProgress | None) -> None:
        """How few bytes any plan moves in which nothing is in flight, if the best is one."""
        if self.best is None or not self._is_grounded(self.best):
            return
        least = LeastOfCovers.of(self.plain, self._late_for_search, self._late_for_search)
        if least is None:
            return
        if report is not None:
            report("covers: bound with nothing in flight", 1.0)
        self.grounded = self.grounded.or_better(self.plain, least, self.best.result.groups)

    def _is_grounded(self, plan: Recomputed) -> bool:
        """Whether nothing is in flight in a plan, where something could be."""
        return plan.costs is self.plain and any(call.then for call in self.first.costs.dataflow.calls)

    def proven(self, plan: Recomputed) -> Recomputed:
        """A plan with what is proven of its space: operators in flight as in the network, or none."""
        proof = self.grounded if self._is_grounded(plan) else self.flying
        least = min(proof.bytes, plan.result.dram_bytes)
        result = replace(plan.result, lower_bound_bytes=least, certificate=proof.certificate)
        return plan._replace(result=result)

    def _nothing_in_flight(self) -> None:
        """Every operator by itself, if there is much time left."""
        if not self.much_time_left:
            return
        result = self._searched(self.plain, 1)
        self._take(Recomputed(self.first.graph, (), self.plain, result, result.proof == "optimal"))
