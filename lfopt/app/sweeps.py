"""The optimum on many buffers: every step of a range, or some sizes."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from lfopt.app.deadline import ReportProgress
from lfopt.app.levels import planned_with_second_level
from lfopt.app.sizes import format_size
from lfopt.ops import OPAQUE
from lfopt.planning import MODES, SCHEMES, GroupCosts, Traffic
from search.exact import solve
from search.options import SearchOptions
from search.partition import Partition
from search.staircase import SearchedBuffer, SearchedStairs, Stair, TooMany, search_stairs, staircase

# schemes in which the bytes of a group do not depend on the buffer that it fits
STEADY = tuple(name for name, row in SCHEMES.items() if len(row.modes) == 1 and MODES[row.modes[0]].steady)
ENUMERATING = 0.5  # share of the time that groups may be enumerated for


class Sweep(NamedTuple):
    """Steps, and what is open."""

    stairs: list[Stair]  # by size
    interrupted: bool = False  # whether Ctrl-C came before the last
    unresolved: Sequence[tuple[int, int]] = ()  # of a range: from and to which sizes steps may be missing


def solve_range(costs: GroupCosts, sizes: list[int], time_limit: float, report: ReportProgress) -> Sweep:
    """Every step between two sizes.

    By one enumeration of groups where their bytes do not depend on the buffer, these are not too many, and
    there is no second level.
    """
    low, high = sizes
    end = time.perf_counter() + time_limit
    stairs: list[Stair] = []
    if costs.scheme in STEADY and not costs.hardware.l2_bytes:
        try:
            # the searches need time too, where groups are too many
            deadline = time.perf_counter() + time_limit * ENUMERATING
            for stair in staircase(costs.at, lambda mask: costs.least_need(mask)[1], low, high, deadline):
                stairs.append(stair)
                report(
                    f"{len(stairs)} steps, down to {format_size(stair.buffer_bytes)}",
                    (high - stair.buffer_bytes) / (high - low),
                )
            return Sweep(stairs[::-1])
        except KeyboardInterrupt:
            if not stairs:
                raise
            return Sweep(stairs[::-1], interrupted=True)
        except TooMany:
            report("too many states to enumerate: one search after the other", 0.0)
    return search_range(costs, low, high, end - time.perf_counter(), report)


def search_range(costs: GroupCosts, low: int, high: int, seconds: float, report: ReportProgress) -> Sweep:
    """Every step between two sizes, by one search after the other.

    Below the size on which every operator runs by itself, there is one step: what must move, and no more.
    """
    end = time.perf_counter() + seconds
    running = runs_from(costs, low, high)
    below: list[Stair] = []
    if running > low:
        searched = search_on(costs, min(running - 1, high), (), 0, seconds / 2)
        stair = Stair(
            low, searched.dram_bytes, searched.lower_bound_bytes, len(searched.groups), searched.without_steps
        )
        below.append(stair)
        if running > high or searched.interrupted:
            return Sweep(below, searched.interrupted)
    searched_stairs = SearchedStairs(running, high)
    interrupted = False
    try:
        left = end - time.perf_counter()
        for _ in search_stairs(searched_stairs, partial(search_on, costs), left):
            interrupted = searched_stairs.plans[-1].interrupted
            unresolved = searched_stairs.unresolved()
            open_bytes = sum(last - first + 1 for first, last in unresolved)
            report(
                f"{len(searched_stairs.stairs())} steps by {len(searched_stairs.plans)} searches",
                1 - open_bytes / (high - running + 1),
            )
    except KeyboardInterrupt:
        if not searched_stairs.plans:
            raise
        interrupted = True
    return Sweep([*below, *searched_stairs.stairs()], interrupted, searched_stairs.unresolved())


def search_on(
    costs: GroupCosts, size: int, start: tuple[Partition, ...], bound: int, seconds: float
) -> SearchedBuffer:
    """The exact search on a buffer, which begins with plans that run there.

    With a second level, it has half of the time, and the search for groups whose maps stay there the rest.
    """
    here = costs.at(size)
    end = time.perf_counter() + seconds
    in_levels = here.hardware.l2_bytes > 0
    exact_seconds = seconds / 2 if in_levels else seconds
    result = solve(here, SearchOptions(time_limit=exact_seconds, start=start, lower_bound_bytes=bound))
    moved = result.dram_bytes
    proven = result.lower_bound_bytes
    is_optimal = moved <= proven
    if in_levels:
        result, totals = planned_with_second_level(here, result, end - time.perf_counter())
        moved = totals.dram_bytes
        proven = totals.lower_bound_bytes
    prices = [price for price in map(here.price, result.groups) if price is not None]
    tiled = costs.traffic is Traffic.TILED
    # what runs on any buffer needs one only where its bytes depend on that
    needs = [price.buffer_bytes for price in prices if price.executable and (tiled or price.required_bytes)]
    return SearchedBuffer(
        result.groups,
        max(needs, default=0),
        moved,
        proven,
        here.without_steps(result.groups),
        result.interrupted,
        finished=is_optimal and time.perf_counter() < end,
    )


def runs_from(costs: GroupCosts, low: int, high: int) -> int:
    """The smallest size from `low` on on which every known operator runs by itself; above `high`: on none."""
    flow = costs.dataflow
    alone = [1 << i for i in range(len(flow)) if flow.specs[i] is not OPAQUE]

    def all_run(size: int) -> bool:
        return not costs.at(size).without_steps(alone)

    if all_run(low):
        return low
    return low + bisect_left(range(low, high + 1), x=True, lo=1, key=all_run)


def solve_each(costs: GroupCosts, sizes: list[int], time_limit: float, report: ReportProgress) -> Sweep:
    """The optimum, or best plan and bound, at each of these sizes."""
    stairs: list[Stair] = []
    for k, size in enumerate(sizes):
        report(f"{format_size(size)}", k / len(sizes))
        here = costs.at(size)
        result = solve(here, SearchOptions(time_limit=time_limit))
        moved = result.dram_bytes
        bound = result.lower_bound_bytes
        if here.hardware.l2_bytes:
            result, totals = planned_with_second_level(here, result, time_limit)
            moved = totals.dram_bytes
            bound = totals.lower_bound_bytes
        stairs.append(Stair(size, moved, bound, len(result.groups), here.without_steps(result.groups)))
        if result.interrupted:
            return Sweep(stairs, interrupted=True)
    return Sweep(stairs)
