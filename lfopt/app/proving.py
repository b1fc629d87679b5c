"""The lower bound that a plan claims, proven again by the exact search."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from lfopt.app.certificates import certified, in_order
from lfopt.app.config import SearchConfig
from lfopt.app.deadline import ReportProgress
from lfopt.app.pipeline import run_search
from lfopt.app.recompute import covers_without_retention, least_of_covers
from lfopt.ir import Graph, Plan, computations
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.costs.covers import CoverCosts
from lfopt.planning.costs.two_levels import bound_with_second_level
from lfopt.rewrite.covers import without_copies

COVERS = 0.8  # share of the time limit for the bound on covers, where operators may be computed again


class ProvenAgain(NamedTuple):
    """Verdicts of the exact search on what a plan claims to be proven."""

    bound: str  # on its lower bound
    wrong: tuple[str, ...] = ()  # lines for the claims that it refutes
    nothing_kept: str = ""  # on that of plans in which no map stays between groups; empty: none is claimed


def proven_again(plan: Plan, graph: Graph, time_limit: float | None, report: ReportProgress) -> ProvenAgain:
    """What an exact search says of a plan's lower bounds, in so many seconds.

    A plan whose operators may run in several groups has a certificate. Where that proves the bound, there is
    no search for it. Raises InvalidPlan for a certificate of another network.
    """
    start = time.perf_counter()

    def late() -> bool:
        return time_limit is not None and time.perf_counter() - start > time_limit

    bound = plan.totals.lower_bound_bytes
    network = None  # without copies, where operators may run in several groups
    proven = 0
    if plan.max_recompute > 1:
        whole = without_copies(graph, plan.copies)
        operators = plan.search.certificate.operators
        network = _costs_of(plan, in_order(whole, operators) if operators else whole)
        if not _flies(plan):
            network = network.grounded()
        proven = _certified(plan, network, late)
        if proven >= bound:
            verdict = f"verified by its certificate: {proven:,}"
            return ProvenAgain(verdict, (), _nothing_kept_again(plan, network, late))
    costs = _costs_of(plan, graph)
    share = None if time_limit is None else time_limit * (1 - COVERS if network else 1)
    searched = run_search(costs, SearchConfig(time_limit=share), report=report)
    nothing_kept = ""
    if network is None:
        proven = costs.proven_bytes(searched.lower_bound_bytes, plan.copies)
    else:  # what is proven of partitions, with these copies or none, does not hold for covers
        nothing_kept = _nothing_kept_again(plan, network, late)
        least = least_of_covers(network, _cover_of(plan, network), late)
        proven = max(proven, least, network.bounds.recomputing_bytes)
    if plan.hardware.l2_bytes:
        proven = bound_with_second_level(costs, proven, plan.copies)
        return ProvenAgain(_verdict(bound, proven))
    if bound > searched.dram_bytes:
        wrong = f"totals.lower_bound_bytes: {bound}, and a plan of this space moves {searched.dram_bytes}"
        return ProvenAgain(f"refuted: {searched.dram_bytes:,}", (wrong,), nothing_kept)
    return ProvenAgain(_verdict(bound, proven), (), nothing_kept)


def _costs_of(plan: Plan, graph: Graph) -> GroupCosts:
    """What groups of a network cost in the space of a plan."""
    return GroupCosts.of(
        graph,
        plan.hardware,
        Traffic(plan.traffic),
        scheme=plan.scheme,
        epilogue=plan.epilogue,
        constraints=plan.search.constraints,
        max_recompute=plan.max_recompute,
    )


def _flies(plan: Plan) -> bool:
    """Whether an operator follows another in flight in a plan: its bound is of such plans then."""
    return any(step.then for group in plan.groups for step in computations(group.steps))


def _certified(plan: Plan, network: GroupCosts, late: Callable[[], bool]) -> int:
    """Bytes that the certificate of a plan proves; 0 where it has none, or a second level is beside it.

    Raises InvalidPlan.
    """
    claims = plan.search.certificate.claims
    if not claims or plan.hardware.l2_bytes:
        return 0
    return certified(network, claims, plan.totals.lower_bound_bytes, late)


def _verdict(bound: int, proven: int) -> str:
    if bound <= proven:
        return f"verified: {proven:,}"
    return f"not verified: at least {proven:,}"


def _nothing_kept_again(plan: Plan, network: GroupCosts, late: Callable[[], bool]) -> str:
    """Verdict on the bound of plans in which no map stays between groups; empty: there is none."""
    claimed = plan.search.nothing_kept
    if not claimed.lower_bound_bytes:
        return ""
    search = covers_without_retention(CoverCosts(network), _cover_of(plan, network), late)
    proven = 0 if search is None else search.search(claimed.dram_bytes).lower_bound_bytes
    return _verdict(claimed.lower_bound_bytes, proven)


def _cover_of(plan: Plan, network: GroupCosts) -> tuple[int, ...]:
    """The groups of a plan as masks of the operators of the network without copies."""
    original = {copy.name: copy.of for copy in plan.copies}
    position = network.dataflow.position
    masks: list[int] = []
    for group in plan.groups:
        numbers = {position[original.get(name, name)] for name in group.nodes}
        masks.append(sum(1 << i for i in numbers))
    return tuple(masks)
