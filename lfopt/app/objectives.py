"""What a plan is to have little of: ties broken by cycles, and plans for cycles, energy, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from lfopt.app.balanced import BALANCED_SLACK, BalancedCandidate, BalancedSearch, Limits, balanced
from lfopt.app.baselines import baselines_of, least_cycles, may_be_planned, papers_plans
from lfopt.app.chains import Chains, of_wide_blocks
from lfopt.app.config import Config
from lfopt.app.deadline import Deadline, ReportProgress
from lfopt.app.figures import GroupFigures, KnownFigures, least_figures
from lfopt.app.flights import groups_in_flight
from lfopt.app.recompute import Recomputed, costs_of
from lfopt.app.trade import Trade
from lfopt.ir import FREE, Figures, Graph, Hardware, InvalidConfig
from lfopt.planning import GroupCosts
from lfopt.planning.costs.two_levels import bound_with_second_level
from lfopt.planning.defaults import GROUP_SCHEME
from lfopt.planning.modes import SCHEMES
from search.exact import solve
from search.lazy import OptimisticCosts, optimistic, solve_lazily
from search.objectives import (
    Caps,
    Choice,
    Objective,
    ObjectiveName,
    SearchOutcome,
    best_of,
    lexical,
    optimise,
    spend,
    total,
)
from search.options import SearchOptions
from search.result import Result
from search.weighted import WeightedModel

# share of the cycles: a plan that is so near its bound has spent its slack well enough
NEAR = 0.005
# share of the time limit that options of equal bytes may be timed, or steps have no time in networks of large
# maps
TIMED = 0.1
BASELINES_END = 0.6  # of the time for a balanced plan, until when the baselines are timed
PAPERS_SHARE = 0.04  # share of the time limit for the search in each scheme of the papers
PAPERS_END = 0.25  # of the time that is left then, until when their plans are timed
LINKED = 0.85  # of the time that a balanced plan has left, until when maps are let stay between its groups
LINES = 0.35  # of the time for cycles, that line buffers and tiles have first in schemes that know more
# by objective: bytes that a cycle is worth where maps are let stay between groups
BYTES_PER_CYCLE: dict[ObjectiveName, float] = {"bytes": 0.25, "cycles": 1.0, "energy": 0.25, "edp": 1.0}
WIDE = 0.15  # of the time for cycles that is left, for the partition with blocks that fill the array
AS_THEY_ARE = 0.6  # share of the time limit in which plans are timed that other searches have found


@dataclass(frozen=True)
class ObjectiveResult:
    """A plan as its objective sees it."""

    # by the model, of its groups one after the other; None where nothing but bytes was asked for, and after
    # Ctrl-C
    figures: Figures | None
    bound: int  # no plan of the options looked at has a smaller value; 0: nothing is proven
    result: Result
    trade: Trade | None = None  # of a balanced plan: the plans that it was chosen beside
    least: Figures | None = None  # no plan of the network takes less of each; None where nothing is judged
    # of a balanced plan: the groups with their options that it was chosen from
    candidates: tuple[BalancedCandidate, ...] = ()


def break_ties(
    costs: GroupCosts,
    config: Config,
    fewest: Result,
    report: ReportProgress | None,
    deadline: Deadline | None = None,
) -> ObjectiveResult:
    """The plan of the fewest cycles among those of equal bytes: each group in its fastest option.

    The slack goes to groups that save the most cycles for the bytes that they take. Slack that the
    configuration gives may also go into other groups; that of the chip does not, since to look for them takes
    a while. Groups that run whole do so still. Rows are made one at a time, or as the configuration says,
    unless it says nothing and the chip says how fast it is. The costs learn of the options taken. Groups that
    are not looked at when the time is over run as they are.
    """
    how, deadline = config.search, deadline or Deadline(config.search.time_limit)
    slack = int(fewest.dram_bytes * (costs.hardware.byte_slack if how.slack is None else how.slack))
    rows = config.band_rows is None and not costs.hardware.assumed
    figures = _figures(
        costs,
        deadline.clock("cycles", 1 if how.slack else TIMED),
        report,
        energy=False,
        extra=slack,
        rows=rows,
    )
    Chains(figures.late).vary(figures, fewest.groups, slack / max(fewest.dram_bytes, 1))
    if how.slack:
        wanted = Objective("cycles", Caps(dram_bytes=fewest.dram_bytes + slack))
        return ObjectiveResult(
            None,
            0,
            _taken(costs, figures, fewest, _optimised(costs, figures, wanted, fewest.groups, deadline, NEAR)),
        )
    # per group that was looked at in time: its option of the fewest bytes, and of those of the fewest cycles
    least: dict[int, int] = {}
    for group in takewhile(lambda _: not figures.late(), fewest.groups):
        if figures.has_choice(group) and not figures.late():
            known = figures(group)
            least[group] = min(range(len(known)), key=known.__getitem__)
    groups, chosen = tuple(least), tuple(least.values())
    choice = Choice(total(figures, groups, chosen), groups, chosen)
    choice = spend(figures, Objective("cycles", Caps(dram_bytes=choice.figures.dram_bytes + slack)), choice)
    _take(figures, choice)
    return ObjectiveResult(None, 0, replace(fewest, dram_bytes=costs.dram_bytes(fewest.groups)))


def plan_for(
    costs: GroupCosts,
    config: Config,
    fewest: Result,
    report: ReportProgress | None,
    deadline: Deadline | None = None,
) -> ObjectiveResult:
    """The plan of least value below the caps, as far as exact search over weighted sums finds it.

    `fewest`: the plan of the fewest bytes. Raises InvalidConfig where no plan was found below the caps.
    """
    search = _ObjectiveSearch(config, report, deadline or Deadline(config.search.time_limit))
    search.check_cap(costs, fewest)
    lines = groups_in_flight(costs, search.in_lines(costs))
    figures = search.figures_of(costs)
    starts = [search.as_it_is(figures, groups) for groups in (lines, fewest.groups) if groups]
    start = min(starts, key=search.rank)
    done = search.of_groups(figures, start.choice.groups)
    search.check_found(done.choice)
    return ObjectiveResult(done.choice.figures, done.bound, _taken(costs, figures, fewest, done))


def plan_among(
    plans: Sequence[Recomputed],
    config: Config,
    fewest: Result,
    report: ReportProgress | None,
    deadline: Deadline,
    most_macs: int | None,
) -> tuple[Recomputed, ObjectiveResult]:
    """The plan of least value below the caps, among some that compute operators again or keep maps on chip.

    `plans`: the first, in which nothing is computed again, is where a search for other groups begins. The
    others run as they are, each group in its best option, and the best of them is where a second search
    begins, if it is the best of all. `fewest`: the plan of the fewest bytes, with what is proven of bytes.
    `most_macs`: multiply-accumulates of a plan at the most; None: groups do not have too many.

    Raises InvalidConfig where no plan was found below the caps.
    """
    search = _ObjectiveSearch(config, report, deadline)
    first = plans[0]
    search.check_cap(first.costs, fewest)
    as_they_are = deadline.clock("cycles", AS_THEY_ARE)
    judges = _Judges(search, as_they_are)
    judged = judges.judged
    for plan in [*search.simple_plans(first), *plans[1:]]:
        judges.look_at(plan)
    judges.look_at_wide_and_linked(first)
    begun = judges.better_of(first)
    done = search.of_groups(begun.figures, begun.done.choice.groups)
    judged.append(begun._replace(done=done))
    within = [one for one in judged if most_macs is None or one.macs() <= most_macs]
    best = min(within or judged[-1:], key=judges.rank)
    if best.plan is not begun.plan and not best.figures.late():
        done = search.of_groups(best.figures, best.done.choice.groups)
        improved = best._replace(done=done._replace(bound=0))  # which knows of groups with these copies alone
        if most_macs is None or improved.macs() <= most_macs:
            best = improved
    search.check_found(best.done.choice)
    proof = best.plan.result
    space = replace(fewest, lower_bound_bytes=proof.lower_bound_bytes, certificate=proof.certificate)
    result = _taken(best.plan.costs, best.figures, space, best.done)
    return best.plan, ObjectiveResult(best.done.choice.figures, best.done.bound, result)


def plan_balanced(
    plans: Sequence[Recomputed],
    first: Graph,
    config: Config,
    report: ReportProgress | None,
    deadline: Deadline,
    most_macs: int | None,
) -> tuple[Recomputed, ObjectiveResult]:
    """The balanced plan of the groups of some plans, see `lfopt.app.balanced`.

    `plans`: the best in bytes first, with what is proven of bytes. `first`: the network as it is, nothing
    computed again. `most_macs`: multiply-accumulates at the most; None: groups do not have too many.
    """
    late = deadline.clock("cycles", 1.0)
    baselines = baselines_of(first, config.hardware, deadline.part("cycles", BASELINES_END))
    most_cycles = config.search.max_cycles or least_cycles(baselines)
    under_cap = Objective("bytes", Caps(cycles=most_cycles))
    search = _ObjectiveSearch(config, report, deadline, under_cap)
    among = BalancedSearch(search.figures_of, late, deadline.part("cycles", LINKED), most_cycles)
    for baseline in baselines if may_be_planned(config) else ():
        among.take(baseline)
    best, *others = among.most_promising(plans)
    among.look_at(best, however_late=deadline.open_ended)
    seconds = None if deadline.seconds is None else deadline.seconds * PAPERS_SHARE
    papers = papers_plans(first, config.hardware, seconds, deadline.part("cycles", PAPERS_END))
    among.look_at_all(others)
    if most_cycles is not None and not late():
        figures = search.figures_of(plans[0].costs)
        done = search.of_groups(figures, plans[0].result.groups)
        among.look_at(plans[0].of_groups(done.choice.groups))
    slack = BALANCED_SLACK if config.search.slack is None else config.search.slack
    limits = Limits(most_cycles, most_macs, slack)
    taken, choice, trade = balanced(among.candidates, baselines, papers, limits)
    if config.search.max_cycles is not None:
        search.check_found(choice)
    proof = taken.plan.result
    fewest = replace(
        plans[0].result, lower_bound_bytes=proof.lower_bound_bytes, certificate=proof.certificate
    )
    result = _taken(taken.plan.costs, taken.figures, fewest, SearchOutcome(choice, 0, interrupted=False))
    return taken.plan, ObjectiveResult(choice.figures, 0, result, trade, candidates=tuple(among.candidates))


def with_least(judged: ObjectiveResult, costs: GroupCosts, bound: int) -> ObjectiveResult:
    """The same, with what no plan takes less of; `bound`: bytes that none moves less than in a buffer alone.

    `costs`: of the network in which nothing is computed again.
    """
    if judged.figures is None:
        return judged
    if costs.hardware.l2_bytes:
        bound = bound_with_second_level(costs, bound)
    least = least_figures(costs, bound)
    assert all(a <= b for a, b in zip(least, judged.figures, strict=True)), (least, judged.figures)
    return replace(judged, least=least)


class _Judged(NamedTuple):
    """A plan as its objective sees it."""

    plan: Recomputed
    figures: GroupFigures
    done: SearchOutcome

    def worth(self, pace: float) -> float:
        """Bytes that it moves, and what its cycles are worth, `pace` bytes each."""
        figures = self.done.choice.figures
        return figures.dram_bytes + pace * figures.cycles

    def macs(self) -> int:
        """Multiply-accumulates of its groups, in the options that were chosen."""
        return self.figures.macs_of(self.done.choice)


class _Judges:
    """Plans as they are, as an objective sees them, as long as there is time."""

    def __init__(self, search: _ObjectiveSearch, late: Callable[[], bool]) -> None:
        self.search = search
        self.late = late
        self.chains = Chains(late)
        self.judged: list[_Judged] = []
        self.wide: Recomputed | None = None  # a partition with blocks of weights that fill the array

    def look_at(self, plan: Recomputed) -> None:
        """Judge a plan, if there is time."""
        if self.late():
            return
        figures = self.search.figures_of(plan.costs)
        self.chains.vary(figures, plan.result.groups)
        self.judged.append(_Judged(plan, figures, self.search.as_it_is(figures, plan.result.groups)))

    def look_at_wide_and_linked(self, first: Recomputed) -> None:
        """Judge the best plan so far, and a partition, with blocks of weights that fill the array.

        Then the one without chains that is worth the most, with maps that stay between its groups.
        """
        if not self.late():
            self.wide = self.search.wide_partition(first)
            if self.wide is not None:
                self.look_at(self.wide)
        unlinked = self._unlinked()
        if unlinked and not self.late():
            best = min(unlinked, key=self.rank)
            wide = of_wide_blocks(self.search.config, best.plan, self.late)
            if wide is not None:
                self.look_at(wide)
        if self._unlinked() and not self.late():
            pace = BYTES_PER_CYCLE[self.search.wanted.name]
            best = min(self._unlinked(), key=lambda one: one.worth(pace))
            linked = self.chains.linked(best.figures, best.plan, pace)
            if linked.result.groups != best.plan.result.groups:
                self.look_at(linked)

    def better_of(self, first: Recomputed) -> _Judged:
        """A plan in which nothing is computed again, or that with wide blocks, whichever is better."""
        figures = self.search.figures_of(first.costs)
        narrow = _Judged(first, figures, self.search.as_it_is(figures, first.result.groups))
        alike = [one for one in self.judged if one.plan is self.wide]
        return min([narrow, *alike], key=self.rank)

    def rank(self, one: _Judged) -> tuple[bool, int, int, int]:
        """Sort key of plans, the best first."""
        return self.search.rank(one.done)

    def _unlinked(self) -> list[_Judged]:
        """Those in which no map stays between groups."""
        return [
            one
            for one in self.judged
            if not any(one.figures.has_chains(group) for group in one.plan.result.groups)
        ]


class _ObjectiveSearch:
    """Searches for one objective, which share what they have timed."""

    def __init__(
        self,
        config: Config,
        report: ReportProgress | None,
        deadline: Deadline,
        wanted: Objective | None = None,
    ) -> None:
        """`wanted`: another objective than that of the configuration."""
        self.config = config
        self.wanted = wanted or config.search.wanted
        self.report = report
        self.deadline = deadline
        # of groups that run in the same modes on the same chip
        self.known: dict[tuple[Hardware, str], KnownFigures] = {}

    def figures_of(self, costs: GroupCosts) -> GroupFigures:
        """Figures of the groups of a network."""
        wanted = self.wanted
        return _figures(
            costs,
            lambda: self.deadline.late("cycles"),
            self.report,
            rows=self.config.band_rows is None,
            energy=wanted.name in ("energy", "edp") or wanted.caps.energy_pj is not None,
            known=self.known.setdefault((costs.hardware, costs.scheme), KnownFigures()),
        )

    def in_lines(self, costs: GroupCosts) -> Sequence[int]:
        """Groups of the plan that the objective wants of line buffers and tiles, with nothing in flight.

        A richer scheme has them, too, but so many ways to time that a time limit leaves it a worse plan. None
        without a limit, in the scheme itself, and in schemes without line buffers.
        """
        knows_more = costs.scheme != GROUP_SCHEME and GROUP_SCHEME in SCHEMES[costs.scheme].modes
        if self.deadline.seconds is None or not knows_more or costs.constraints != FREE:
            return ()
        deadline = self.deadline.within("cycles", LINES)
        simple = costs.grounded(GROUP_SCHEME)
        fewest = solve(simple, SearchOptions(time_limit=deadline.left("cycles", 4)))
        search = _ObjectiveSearch(self.config, self.report, deadline, self.wanted)
        return search.of_groups(search.figures_of(simple), fewest.groups).choice.groups

    def wide_partition(self, plan: Recomputed) -> Recomputed | None:
        """The plan of the fewest bytes of a plan's network with blocks of weights that fill the array.

        None if the chip has these blocks anyway.
        """
        chip = plan.costs.hardware
        if chip.with_wide_blocks == chip:
            return None
        deadline = self.deadline.within("cycles", WIDE)
        costs = costs_of(
            replace(self.config, hardware=chip.with_wide_blocks),
            plan.graph,
            late=lambda: deadline.late("cycles"),
        )
        groups = solve(costs, SearchOptions(time_limit=deadline.left("cycles"))).groups
        return Recomputed.unproven(plan.graph, plan.copies, costs, groups)

    def simple_plans(self, plan: Recomputed) -> list[Recomputed]:
        """The plan of line buffers, as one of a plan's scheme with nothing in flight; none if not asked."""
        groups = self.in_lines(plan.costs)
        if not groups:
            return []
        return [Recomputed.unproven(plan.graph, (), plan.costs.grounded(), groups)]

    def rank(self, done: SearchOutcome) -> tuple[bool, int, int, int]:
        """Sort key of what searches came to, the best first."""
        return self.wanted.order(done.choice.figures)

    def as_it_is(self, figures: GroupFigures, groups: Sequence[int]) -> SearchOutcome:
        """A plan of these groups, each in its best option."""
        choice = spend(figures, self.wanted, best_of(figures, groups, lexical(self.wanted.name)))
        return SearchOutcome(choice, 0, interrupted=False)

    def of_groups(self, figures: GroupFigures, groups: Sequence[int]) -> SearchOutcome:
        """The best plan that a search finds which begins with some groups."""
        surrogate = self.config.search.surrogate
        return _optimised(figures.costs, figures, self.wanted, groups, self.deadline, surrogate=surrogate)

    def check_cap(self, costs: GroupCosts, fewest: Result) -> None:
        """Raises InvalidConfig for a cap on bytes that no plan is below."""
        cap = self.wanted.caps.dram_bytes
        least = fewest.lower_bound_bytes
        if costs.hardware.l2_bytes:
            least = bound_with_second_level(costs, least)
        if cap is not None and cap < least:
            raise InvalidConfig(
                f"search: no plan of these modes moves less than {least:,} bytes; found a cap of {cap:,}"
            )

    def check_found(self, choice: Choice) -> None:
        """Raises InvalidConfig for a plan above a cap."""
        caps = self.wanted.caps
        if caps.allow(choice.figures):
            return
        names = ("bytes", "cycles", "uJ")
        nearest = ", ".join(
            f"{figure / unit:,.0f} {name} where {cap / unit:,.0f} are allowed"
            for figure, cap, name, unit in zip(choice.figures, caps, names, (1, 1, 10**6), strict=True)
            if cap is not None and figure > cap
        )
        raise InvalidConfig(
            f"search: no plan was found below the caps: the nearest has {nearest}; accepted: larger caps, "
            "more buffer, or scheme all"
        )


def _taken(costs: GroupCosts, figures: GroupFigures, fewest: Result, done: SearchOutcome) -> Result:
    """The result with the plan that was found instead; the costs learn of its options."""
    _take(figures, done.choice)
    groups, interrupted = done.choice.groups, fewest.interrupted or done.interrupted
    return replace(fewest, groups=groups, dram_bytes=costs.dram_bytes(groups), interrupted=interrupted)


def _optimised(
    costs: GroupCosts,
    figures: GroupFigures,
    wanted: Objective,
    groups: Sequence[int],
    deadline: Deadline,
    near: float = 0.0,
    *,
    surrogate: bool = False,
) -> SearchOutcome:
    """See `optimise`: by exact search, one pass over the network for each weighted sum.

    `groups`: of a plan to begin with. `surrogate`: an estimate says which groups whose cycles are not known
    to ask the model about.
    """
    optimistic_costs = _optimistic_costs(figures) if surrogate else None

    def run(model: WeightedModel, first: Sequence[int]) -> Result:
        options = SearchOptions(time_limit=deadline.left("cycles"), passes=1, start=(tuple(first),))
        return (
            solve(model, options)
            if optimistic_costs is None
            else solve_lazily(optimistic(model, optimistic_costs), optimistic_costs, options)
        )

    return optimise(costs, figures, figures.least, wanted, run, groups, figures.late, near)


def _optimistic_costs(figures: GroupFigures) -> OptimisticCosts:
    from lfopt.app.surrogates import hopes_of  # noqa: PLC0415  (it brings the explainers)

    return hopes_of(figures)


def _figures(
    costs: GroupCosts,
    late: Callable[[], bool],
    report: ReportProgress | None,
    *,
    rows: bool,
    energy: bool,
    extra: int | None = None,
    known: KnownFigures | None = None,
) -> GroupFigures:
    progress = (
        None if report is None else lambda count: report(f"cycles: {count:,} kinds of groups timed", 1.0)
    )
    return GroupFigures(costs, progress, rows=rows, extra=extra, energy=energy, late=late, shared=known)


def _take(figures: GroupFigures, choice: Choice) -> None:
    for group, k in zip(choice.groups, choice.alternatives, strict=True):
        figures.take(group, k)
