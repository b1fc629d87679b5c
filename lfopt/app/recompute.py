"""Copies of operators that save DRAM bytes for their multiply-accumulates, and the plan with them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

from lfopt.app.config import Config
from lfopt.app.deadline import LEAST_SECONDS, ReportProgress
from lfopt.ir import Copy, Graph
from lfopt.ops import Dataflow
from lfopt.planning import SCHEMES, GroupCosts, Traffic
from lfopt.planning.alike import Prices
from lfopt.planning.repeats import left_for_groups
from lfopt.rewrite.copies import barriers
from search.copies import Copied, search_copies
from search.exact import solve
from search.objectives import Objective
from search.options import SearchOptions
from search.result import Result, unfused

# share of the time limit after which the network is not planned with nothing in flight as well: its bounds
# take long, and nothing ends them
PLAIN = 0.25


class Recomputed(NamedTuple):
    """A network with copies, and the plan that an exact search found for it."""

    graph: Graph
    copies: tuple[Copy, ...]
    costs: GroupCosts  # that the groups of the plan are of
    result: Result  # its bound holds whatever is copied
    optimal: bool  # whether no other plan of the network with these copies moves less


def costs_of(config: Config, graph: Graph) -> GroupCosts:
    """What groups of a network cost, as a configuration says: they repeat no more than its copies leave."""
    left = left_for_groups(graph, config.max_recompute)
    space = {
        "scheme": config.scheme,
        "epilogue": config.epilogue,
        "max_recompute": left,
        "constraints": config.constraints,
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


def recompute(config: Config, original: Graph, report: ReportProgress | None = None) -> Recomputed:
    """The plan of the fewest DRAM bytes with copies of operators, as far as `search_copies` finds them.

    The network is also planned with nothing in flight, in one pass, if there is much time left: where that
    moves less, which is rare, it is what is planned. Ctrl-C leaves the best plan so far.
    """
    start, limit = time.perf_counter(), config.search.time_limit
    deadline = None if limit is None else start + limit
    flow = Dataflow.of(original)
    macs = sum(flow.macs)
    prices = Prices()
    # of whole networks, by identity: each is planned, bounded and then written
    known: dict[int, GroupCosts] = {}

    def model(network: Graph) -> GroupCosts:
        if id(network) not in known:
            known[id(network)] = costs_of(config, network)  # holds the network: no other gets its identity
        return known[id(network)]

    def late() -> bool:
        return deadline is not None and time.perf_counter() > deadline

    def run(costs: GroupCosts, passes: int | None = None) -> Result:
        searched = prices.of(costs)  # whose bounds take a while too
        left = None if deadline is None else max(deadline - time.perf_counter(), LEAST_SECONDS)
        return solve(searched, SearchOptions(time_limit=left, passes=passes))

    def estimate(part: Graph) -> int:
        searched = run(costs_of(config, part), 1)
        if searched.interrupted:
            raise KeyboardInterrupt
        return searched.dram_bytes

    def runs(part: Graph) -> bool:
        costs = costs_of(config, part)
        return costs.price(costs.dataflow.everything) is not None

    def progress(done: int, total: int, best: int) -> None:
        if report is not None:
            report(f"copies: choice {done} of at most {total}, best plan {best:,} B", done / total)

    most = int(macs * config.max_recompute)
    try:
        copied = search_copies(
            original,
            lambda network: run(model(network)),
            estimate,
            runs,
            most_macs=most,
            late=late,
            progress=progress,
        )
    except KeyboardInterrupt:  # before there was a plan
        copied = Copied(original, (), unfused(model(original), "exact"), 0, len(barriers(original)))
    best = Recomputed(
        copied.graph, copied.copies, model(copied.graph), copied.result, copied.result.proof == "optimal"
    )
    bound = model(original).bounds.recomputing_bytes if copied.barriers else copied.result.lower_bound_bytes
    interrupted = copied.result.interrupted
    if not interrupted and (limit is None or time.perf_counter() - start < limit * PLAIN):
        try:
            space = {
                "scheme": config.scheme,
                "epilogue": config.epilogue,
                "max_recompute": config.max_recompute,
                "constraints": config.constraints,
            }
            without_copies = GroupCosts(flow, config.hardware, best.costs.traffic, **space)
            plain = run(without_copies, 1)
            interrupted = plain.interrupted
            if plain.dram_bytes < best.result.dram_bytes:
                best, bound = (
                    Recomputed(original, (), without_copies, plain, plain.proof == "optimal"),
                    min(bound, plain.lower_bound_bytes),
                )
        except KeyboardInterrupt:  # before this search began, or after it ended
            interrupted = True
    least, seconds = min(bound, best.result.dram_bytes), time.perf_counter() - start
    return best._replace(
        result=replace(best.result, lower_bound_bytes=least, seconds=seconds, interrupted=interrupted)
    )
