"""Fusion groups for a chip with a second level of memory, where maps between groups may stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lfopt.app.plans import make_draft
from lfopt.ir import FREE, Copy, Plan, Totals
from lfopt.planning import GroupCosts, PlanDraft, loaded_maps
from lfopt.planning.costs.spared import Spared
from lfopt.planning.modes import ModeOption
from search.exact import solve
from search.options import SearchOptions
from search.result import Result

SHARES = (1, 2, 4)  # of the second level: maps larger than one of them do not count as staying
ROUNDS = 4  # searches with the maps that stay in the best plan so far, as long as that finds a better one


def for_second_level(
    costs: GroupCosts, searched: Result, make: Callable[[Result], PlanDraft], time_limit: float | None
) -> Result:
    """The groups that move the fewest DRAM bytes once maps between them stay in the second level.

    Candidates are those of `searched`, and of searches in which maps that may stay cost little. First maps of
    up to a share of the second level count as staying, then those that stay in the best plan so
    far. Then come the best groups of every scheme of fewer modes, which run as they do there: a group that
    moves more may be the better one once its maps stay. Of equal bytes, those groups are taken that move the
    fewest of the second level. The time limit and Ctrl-C leave the best so far. The costs learn of the ways
    in which groups run.
    """
    hardware = costs.hardware
    deadline = None if time_limit is None else time.perf_counter() + time_limit
    try:
        search = _SecondLevelSearch(costs, searched, make(searched).plan, make, deadline, {searched.groups})
    except KeyboardInterrupt:
        return replace(searched, interrupted=True)
    try:
        for share in SHARES:
            search.look(
                tensor.name
                for tensor in costs.dataflow.maps
                if share * hardware.dram_bytes(tensor) <= hardware.l2_bytes
            )
        for _ in range(ROUNDS):
            if not search.look(place.name for place in search.plan.memory if place.memory == "l2"):
                break
        for poorer in costs.poorer():
            search.look_in(poorer)
    except KeyboardInterrupt:
        return replace(search.best, interrupted=True)
    return search.best


def with_or_without_flights(
    costs: GroupCosts,
    copies: Sequence[Copy],
    searched: Result,
    make: Callable[[Result], PlanDraft],
    seconds: Callable[[int], float | None],
) -> tuple[GroupCosts, Result]:
    """(costs, groups of `for_second_level`), as the network is, or with nothing in flight and no copies.

    A map that is never made, since operators are in flight, cannot stay. `seconds`: that are left for one of
    so many searches.
    """
    tries_plain = costs.flies and costs.constraints == FREE
    best = for_second_level(costs, searched, make, seconds(1 + tries_plain))
    if not tries_plain or best.interrupted:
        return costs, best
    plain = costs.unfused(copies)
    make_plain = partial(_draft, plain)
    first = solve(plain, SearchOptions(time_limit=seconds(2)))
    other = for_second_level(plain, first, make_plain, seconds(1))
    if moved_in_levels(make_plain(other).plan) < moved_in_levels(make(best).plan):
        return plain, replace(other, lower_bound_bytes=searched.lower_bound_bytes)
    return costs, replace(best, interrupted=other.interrupted)


def in_other_ways(
    costs: GroupCosts, searched: Result, draft: PlanDraft, make: Callable[[Result], PlanDraft]
) -> PlanDraft:
    """The plan with each group in the option of the fewest DRAM bytes, now that maps are in the second level.

    They may be loaded again for less. `draft` where that moves no less. The costs learn of the options taken.
    """
    plan = draft.plan
    inside = {place.name for place in plan.memory if place.memory == "l2"}
    before: dict[int, ModeOption | None] = {}
    for group, mask in zip(plan.groups, searched.groups, strict=True):
        if group.l2.read and group.mode != "chained":
            option = min(
                costs.options(mask),
                key=lambda option: (_outside(costs, mask, option, inside), option.cost.dram_bytes),
            )
            if _outside(costs, mask, option, inside) < group.dram.total:
                before[mask] = costs.taken(mask)
                costs.take(mask, option)
    if not before:
        return draft
    other = make(searched)
    if moved_in_levels(other.plan) < moved_in_levels(plan):
        return other
    for mask, option in before.items():
        costs.take(mask, option)
    return draft


def _outside(costs: GroupCosts, mask: int, option: ModeOption, inside: set[str]) -> int:
    """DRAM bytes of an option of a group.

    Where only some of the maps that it loads, or stores, are in the second level, all count.
    """
    moved = option.terms.dram
    spilled = option.terms.spilled
    flow = costs.dataflow
    leaving = [flow.maps[m].name for m in flow.leaving(mask)]
    kept = [
        size
        for size, names in (
            (moved.input, loaded_maps(flow, mask)),
            (moved.output, leaving),
            (moved.spill, spilled),
        )
        if inside.issuperset(names)
    ]
    return moved.total - sum(kept)


def planned_with_second_level(
    costs: GroupCosts, searched: Result, time_limit: float | None
) -> tuple[Result, Totals]:
    """(result of `for_second_level`, totals of the plan of its groups)."""
    make = partial(_draft, costs)
    best = for_second_level(costs, searched, make, time_limit)
    return best, in_other_ways(costs, best, make(best), make).plan.totals


def _draft(costs: GroupCosts, result: Result) -> PlanDraft:
    return make_draft(costs.dataflow.graph, costs, result, result.lower_bound_bytes)


@dataclass
class _SecondLevelSearch:
    """The best groups so far."""

    costs: GroupCosts
    best: Result
    plan: Plan  # of these
    make: Callable[[Result], PlanDraft]
    deadline: float | None
    tried: set[tuple[int, ...]]

    def look(self, staying: Iterable[str]) -> bool:
        """Search with these maps counted as staying. Whether that found better groups."""
        left = None if self.deadline is None else self.deadline - time.perf_counter()
        if self.best.interrupted or (left is not None and left <= 0):
            return False
        groups = solve(
            Spared(self.costs, frozenset(staying)), SearchOptions(time_limit=left, passes=1)
        ).groups
        if groups in self.tried or any(map(self.costs.breaks, groups)):
            return False
        self.tried.add(groups)
        return self._is_better(groups)

    def look_in(self, poorer: GroupCosts) -> None:
        """Take the best groups of a scheme of fewer modes, where they are better."""
        left = None if self.deadline is None else (self.deadline - time.perf_counter()) / 2
        if self.best.interrupted or (left is not None and left <= 0):
            return
        searched = solve(poorer, SearchOptions(time_limit=left))
        best, _ = planned_with_second_level(poorer, searched, left)
        before = {mask: self.costs.taken(mask) for mask in best.groups}
        for mask in best.groups:
            way = poorer.taken(mask) or min(
                poorer.options(mask), key=lambda option: option.cost.dram_bytes, default=None
            )
            self.costs.take(mask, way)
        if not self._is_better(best.groups):
            for mask, way in before.items():
                self.costs.take(mask, way)
        if best.interrupted:
            raise KeyboardInterrupt

    def _is_better(self, groups: tuple[int, ...]) -> bool:
        other = replace(self.best, groups=groups, dram_bytes=self.costs.dram_bytes(groups))
        plan = self.make(other).plan
        better = moved_in_levels(plan) < moved_in_levels(self.plan)
        if better:
            self.best = other
            self.plan = plan
        return better


def moved_in_levels(plan: Plan) -> tuple[int, int]:
    """DRAM bytes, then those of the second level: of two plans, that with less is better."""
    return plan.totals.dram_bytes, plan.totals.l2_bytes
