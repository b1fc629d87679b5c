"""Plans whose maps stay on chip between groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lfopt.app.deadline import ReportProgress
from lfopt.app.recompute import NEARLY, Recomputed, macs_of
from lfopt.planning import KnownStages, link
from search.result import Result

# how much more each of the other plans that are looked at moves than the one before it at the least, since
# plans of about the same bytes are alike; and how many plans in all
APART = 1.005
LINKED = 5


def with_chains(
    searched: Recomputed,
    result: Result,
    most_macs: int,
    over: Callable[[], bool],
    report: ReportProgress | None,
) -> Recomputed:
    """The plan of a result with maps that stay on chip between groups. Ctrl-C leaves the groups as they are.

    If it is that of the search for operators to compute again, other plans of that search are looked at too,
    where they move little more. `most_macs`: multiply-accumulates of a plan, at the most; `over`: whether
    the time is.
    """

    def late(done: int) -> bool:
        if report is not None:
            report(f"chains: {done:,} stages worked out", 1.0)
        return result.interrupted or over()

    best = searched._replace(result=result)
    plans = _nearly_as_good(searched) if result is searched.result else [best]
    known = KnownStages()
    for plan in plans:
        if over() or best.result.dram_bytes <= best.result.lower_bound_bytes:
            break
        try:
            groups = link(plan.costs, plan.result.groups, late, known)
        except KeyboardInterrupt:
            return best._replace(result=replace(best.result, interrupted=True))
        dram_bytes = plan.costs.dram_bytes(groups)
        if dram_bytes < best.result.dram_bytes and macs_of(plan.costs, groups) <= most_macs:
            linked = replace(
                best.result,
                groups=groups,
                dram_bytes=dram_bytes,
                lower_bound_bytes=min(plan.result.lower_bound_bytes, dram_bytes),
                certificate=plan.result.certificate,
            )
            best = plan._replace(result=linked)
    return best


def _nearly_as_good(searched: Recomputed) -> list[Recomputed]:
    """A plan, and others of its search that move little more, the fewest bytes first."""
    most = NEARLY * searched.result.dram_bytes
    plans = [searched]
    for plan in sorted(searched.others, key=lambda plan: plan.result.dram_bytes):
        moved = plan.result.dram_bytes
        if APART * plans[-1].result.dram_bytes <= moved <= most:
            plans.append(plan)
    return plans[:LINKED]
