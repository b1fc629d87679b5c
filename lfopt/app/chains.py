"""Plans whose maps stay on chip between groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lfopt.app.config import Config
from lfopt.app.deadline import ReportProgress
from lfopt.app.figures import GroupFigures
from lfopt.app.recompute import NEARLY, Recomputed, costs_of, macs_of
from lfopt.ir import Hardware, Node, Place
from lfopt.planning import (
    KnownOptions,
    KnownStages,
    Pace,
    StagePoints,
    chain_variants,
    link,
    masks_of,
)
from lfopt.planning.chains.variants import MOST_EXTRA
from lfopt.planning.modes import ChainedMode
from search.objectives import best_of, lexical
from search.result import Result

# how much more each of the other plans that are looked at moves than the one before it at the least, since
# plans of about the same bytes are alike; and how many plans in all
APART = 1.005
LINKED = 5


def linked_plans(
    searched: Recomputed,
    result: Result,
    most_macs: int,
    over: Callable[[], bool],
    report: ReportProgress | None,
) -> list[Recomputed]:
    """The plan of a result, then plans with maps that stay on chip between groups. Ctrl-C ends them.

    If it is that of the search for operators to compute again, other plans of that search are looked at too:
    where they move little more, until no plan can move less. `most_macs`: multiply-accumulates of a plan,
    at the most; `over`: whether the time is.
    """

    def late(done: int) -> bool:
        if report is not None:
            report(f"chains: {done:,} stages worked out", 1.0)
        return result.interrupted or over()

    first = searched._replace(result=result)
    linked = [first]
    unlinked = _nearly_as_good(searched) if result is searched.result else [first]
    known = KnownStages()
    for plan in unlinked:
        best = fewest_bytes(linked).result
        if over() or best.dram_bytes <= best.lower_bound_bytes:
            break
        try:
            groups = link(plan.costs, plan.result.groups, late, known)
        except KeyboardInterrupt:
            return [one._replace(result=replace(one.result, interrupted=True)) for one in linked]
        dram_bytes = plan.costs.dram_bytes(groups)
        if dram_bytes < plan.result.dram_bytes and macs_of(plan.costs, groups) <= most_macs:
            chained = replace(
                result,
                groups=groups,
                dram_bytes=dram_bytes,
                lower_bound_bytes=min(plan.result.lower_bound_bytes, dram_bytes),
                certificate=plan.result.certificate,
            )
            linked.append(plan._replace(result=chained))
    return linked


def in_wide_blocks(
    config: Config, searched: Recomputed, linked: Recomputed, over: Callable[[], bool]
) -> list[Recomputed]:
    """A chained plan, and the same with weights in blocks as wide as the array; the faster first.

    The second only if it moves no more bytes. `searched`: the plan that it comes from, and the other plans of
    that search. `over`: whether the time is.
    """
    chip = linked.costs.hardware
    sources = (plan for plan in (searched, *searched.others) if plan.costs is linked.costs)
    source = next(sources, None)
    same = source is None or source.result.groups == linked.result.groups  # there is no chain
    if source is None or same or chip.with_wide_blocks == chip or over():
        return [linked]
    unlinked = of_wide_blocks(config, source, over)
    if unlinked is None:
        return [linked]
    costs = unlinked.costs
    groups = link(costs, unlinked.result.groups, lambda _: over())
    if costs.dram_bytes(groups) > linked.result.dram_bytes or over():
        return [linked]
    wide = linked._replace(costs=costs, result=replace(linked.result, groups=groups))

    def cycles(plan: Recomputed) -> int:
        figures = GroupFigures(plan.costs, extra=0, late=over)
        return best_of(figures, plan.result.groups, lexical("bytes")).figures.cycles

    return sorted([linked, wide], key=cycles)


def of_wide_blocks(config: Config, plan: Recomputed, over: Callable[[], bool]) -> Recomputed | None:
    """The groups of a plan without chains on its chip with weights in blocks as wide as the array.

    None if they are as wide, or some group does not fit then. `over`: whether the time is.
    """
    chip = plan.costs.hardware
    if chip.with_wide_blocks == chip:
        return None
    names = [plan.costs.dataflow.names(group) for group in plan.result.groups]
    job = replace(config, hardware=chip.with_wide_blocks)
    costs = costs_of(job, plan.graph, late=over, groups=names)
    masks = tuple(masks_of(costs.dataflow, names))
    if any(costs.price(mask) is None for mask in masks):
        return None
    return Recomputed.unproven(plan.graph, plan.copies, costs, masks)


def fewest_bytes(plans: Sequence[Recomputed]) -> Recomputed:
    """The first of the plans that move the fewest bytes."""
    return min(plans, key=lambda plan: plan.result.dram_bytes)


class Chains:
    """Chains of the plans of one network on one chip, whose stages take few cycles by the model."""

    def __init__(self, late: Callable[[], bool], late_to_link: Callable[[], bool] | None = None) -> None:
        """`late`: whether the time is over; `late_to_link`: whether that for linking is, which ends sooner.

        Without it, linking has all the time.
        """
        self.late = late
        self.late_to_link = late_to_link or late
        self._known: dict[Hardware, KnownOptions] = {}

    def _points(self, figures: GroupFigures, late: Callable[[], bool]) -> StagePoints:
        def cycles(_: Sequence[Place], steps: Sequence[Node]) -> int:
            return max(figures.meter.accelerator.busy(steps))

        costs = figures.costs
        known = self._known.setdefault(costs.hardware, KnownOptions())
        return StagePoints(costs, cycles, figures.meter.estimated_cycles(), late, known)

    def vary(self, figures: GroupFigures, groups: Sequence[int], most_extra: float = MOST_EXTRA) -> None:
        """Let those of some groups that are chains have variants.

        `figures`: of the groups, not asked yet. `most_extra`: bytes over those of a chain, as a share.
        """
        costs = figures.costs
        mode = costs.modes.get("chained")
        if not isinstance(mode, ChainedMode):
            return
        known = (mode.known.get((group, costs.hardware.buffer_bytes)) for group in groups)
        chains = [chain for chain in known if chain is not None]
        if not chains:
            return
        points = self._points(figures, self.late)
        for chain in chains:
            if not self.late():
                for variant in chain_variants(chain, points, most_extra):
                    costs.learn(variant)

    def linked(self, figures: GroupFigures, plan: Recomputed, bytes_per_cycle: float) -> Recomputed:
        """A plan with maps that stay on chip where that saves bytes, or cycles that are worth so many."""
        costs = plan.costs
        pace = Pace(bytes_per_cycle, self._points(figures, self.late_to_link))
        groups = link(costs, plan.result.groups, lambda _: self.late_to_link(), pace=pace)
        return plan.of_groups(groups)


def _nearly_as_good(searched: Recomputed) -> list[Recomputed]:
    """A plan, and others of its search that move little more, the fewest bytes first."""
    most = NEARLY * searched.result.dram_bytes
    plans = [searched]
    for plan in sorted(searched.others, key=lambda plan: plan.result.dram_bytes):
        moved = plan.result.dram_bytes
        if APART * plans[-1].result.dram_bytes <= moved <= most:
            plans.append(plan)
    return plans[:LINKED]
