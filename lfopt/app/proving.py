"""The lower bound that a plan claims, proven again by the exact search."""

from __future__ import annotations

from lfopt.app.config import SearchConfig
from lfopt.app.deadline import ReportProgress
from lfopt.app.pipeline import run_search
from lfopt.ir import Graph, Plan
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.costs.two_levels import bound_with_second_level
from lfopt.rewrite.covers import without_copies


def proven_again(
    plan: Plan, graph: Graph, time_limit: float | None, report: ReportProgress
) -> tuple[str, tuple[str, ...]]:
    """(verdict of the exact search on a plan's lower bound, lines for the claims that it refutes)."""
    space = {"scheme": plan.scheme, "epilogue": plan.epilogue, "constraints": plan.search.constraints}
    costs = GroupCosts.of(
        graph, plan.hardware, Traffic(plan.traffic), **space, max_recompute=plan.max_recompute
    )
    searched = run_search(costs, SearchConfig(time_limit=time_limit), report=report)
    bound = plan.totals.lower_bound_bytes
    proven = searched.lower_bound_bytes
    # what is proven of plans with these copies does not hold for others
    if plan.max_recompute > 1:
        original = without_copies(graph, plan.copies)
        proven = GroupCosts.of(
            original, plan.hardware, Traffic(plan.traffic), **space
        ).bounds.recomputing_bytes
    proven = costs.proven_bytes(proven, plan.copies)
    if plan.hardware.l2_bytes:
        proven = bound_with_second_level(costs, proven, plan.copies)
        return (f"verified: {proven:,}" if bound <= proven else f"not verified: at least {proven:,}"), ()
    if bound > searched.dram_bytes:
        return f"refuted: {searched.dram_bytes:,}", (
            f"totals.lower_bound_bytes: {bound}, and a plan of this space moves {searched.dram_bytes}",
        )
    if bound > proven:
        return f"not verified: at least {proven:,}", ()
    return f"verified: {proven:,}", ()
