"""The lower bound that a plan claims, proven again by the exact search."""

from __future__ import annotations

import time

from lfopt.app.config import SearchConfig
from lfopt.app.deadline import ReportProgress
from lfopt.app.pipeline import run_search
from lfopt.app.recompute import least_of_covers
from lfopt.ir import Graph, Plan
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.costs.two_levels import bound_with_second_level
from lfopt.rewrite.covers import without_copies

COVERS = 0.8  # share of the time limit for the bound on covers, where operators may be computed again


def proven_again(
    plan: Plan, graph: Graph, time_limit: float | None, report: ReportProgress
) -> tuple[str, tuple[str, ...]]:
    """(verdict of the exact search on a plan's lower bound, lines for the claims that it refutes)."""
    space = {"scheme": plan.scheme, "epilogue": plan.epilogue, "constraints": plan.search.constraints}
    costs = GroupCosts.of(
        graph, plan.hardware, Traffic(plan.traffic), **space, max_recompute=plan.max_recompute
    )
    start = time.perf_counter()
    share = None if time_limit is None else time_limit * (1 - COVERS if plan.max_recompute > 1 else 1)
    searched = run_search(costs, SearchConfig(time_limit=share), report=report)
    bound = plan.totals.lower_bound_bytes
    proven = searched.lower_bound_bytes
    # what is proven of partitions, with these copies or none, does not hold for covers
    if plan.max_recompute > 1:
        network = GroupCosts.of(
            without_copies(graph, plan.copies),
            plan.hardware,
            Traffic(plan.traffic),
            **space,
            max_recompute=plan.max_recompute,
        )

        def late() -> bool:
            return time_limit is not None and time.perf_counter() - start > time_limit

        proven = least_of_covers(network, _cover_of(plan, network), late)
        proven = max(proven, network.bounds.recomputing_bytes)
    else:
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


def _cover_of(plan: Plan, network: GroupCosts) -> tuple[int, ...]:
    """The groups of a plan as masks of the operators of the network without copies."""
    original = {copy.name: copy.of for copy in plan.copies}
    position = network.dataflow.position
    masks: list[int] = []
    for group in plan.groups:
        numbers = {position[original.get(name, name)] for name in group.nodes}
        masks.append(sum(1 << i for i in numbers))
    return tuple(masks)
