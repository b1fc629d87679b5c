"""Points of the staircase of DRAM bytes against buffer bytes, from coarse to fine, in a few seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from lfopt.ir import UNLIMITED, Cost, Plan
from lfopt.planning import GroupCosts, Traffic
from search.exact import solve
from search.options import SearchOptions

DOWN, UP = 4, 5  # powers of two below and above the plan's own buffer
LEAST_BYTES = 1 << 10
SHARE = 0.35  # of all the time: the most that one size may take
MAX_GAP = 0.5  # of what is shown: a plan further from its bound says little about its buffer


class SweepPoint(NamedTuple):
    """Best plan on one buffer."""

    buffer_bytes: int
    # the plan is also the best on every buffer from here on; buffer_bytes where that is not proven
    since_bytes: int
    dram_bytes: int
    lower_bound_bytes: int
    groups: int


def own_stair(plan: Plan) -> SweepPoint:
    """The plan itself."""
    buffer = plan.hardware.buffer_bytes
    totals = plan.totals
    needs = [need for group in plan.groups if (need := group.allocated_bytes(plan.hardware)) < buffer]
    constant = totals.proof == "optimal" and plan.traffic != "paper"
    since = min(max(needs, default=0) + 1, buffer) if constant else buffer
    return SweepPoint(buffer, since, totals.dram_bytes, totals.lower_bound_bytes, len(plan.groups))


def sweep(costs: GroupCosts, own: SweepPoint, seconds: float) -> list[SweepPoint]:
    """Stairs in order of buffer size, around the plan's own, which is among them.

    Where its buffer has no limit, they are around the bytes that it needs. Raises KeyboardInterrupt where
    Ctrl-C ends a search.
    """
    deadline = time.perf_counter() + seconds
    by_size = {own.buffer_bytes: own}
    for size in _sizes(own.since_bytes if own.buffer_bytes == UNLIMITED else own.buffer_bytes):
        left = deadline - time.perf_counter()
        if left <= 0:
            break
        if any(stair.since_bytes <= size <= stair.buffer_bytes for stair in by_size.values()):
            continue
        if any(
            stair.dram_bytes <= costs.bounds.once_bytes and stair.buffer_bytes < size
            for stair in by_size.values()
        ):
            continue  # nothing is left to gain
        stair = _stair(costs.at(size), min(left, seconds * SHARE))
        if stair is None:
            break
        by_size[size] = stair
    stairs = [by_size[size] for size in sorted(by_size)]
    if costs.traffic is not Traffic.PAPER:
        stairs = _monotone(stairs)
    return [
        s
        for s in stairs
        if s.buffer_bytes == own.buffer_bytes or s.dram_bytes <= (1 + MAX_GAP) * s.lower_bound_bytes
    ]


def _stair(costs: GroupCosts, seconds: float) -> SweepPoint | None:
    result = solve(costs, SearchOptions(time_limit=seconds))
    if result.interrupted:
        raise KeyboardInterrupt
    if not result.groups or not costs.executable(result.groups):
        return None
    size = costs.hardware.buffer_bytes
    since = size
    if result.dram_bytes == result.lower_bound_bytes and costs.traffic is not Traffic.PAPER:
        evaluated = [costs.evaluate(group) for group in result.groups]
        needs = [
            cost.buffer_bytes for cost in evaluated if isinstance(cost, Cost) and cost.buffer_bytes < size
        ]
        since = min(max(needs, default=0) + 1, size)
    return SweepPoint(size, since, result.dram_bytes, result.lower_bound_bytes, len(result.groups))


def _sizes(own: int) -> Iterator[int]:
    """Sizes around one: powers of two of it, the nearest first, then what lies between them, finer and finer.

    Of a larger and a smaller size, the larger comes first: it says more, and takes less time, because less is
    tiled.
    """
    powers: list[float] = [k for k in range(-DOWN, UP + 1) if k]
    for parts in (1, 2, 4, 8, 16, 32):
        for power in sorted(powers, key=lambda power: (abs(power), -power)):
            if LEAST_BYTES <= (size := round(own * 2**power)) <= UNLIMITED:
                yield size
        powers = [k / (2 * parts) for k in range(-DOWN * 2 * parts, UP * 2 * parts) if k % 2]


def _monotone(stairs: list[SweepPoint]) -> list[SweepPoint]:
    """Stairs whose DRAM bytes and bounds never rise with the buffer.

    A plan for a smaller buffer is one for a larger buffer too, and a bound for a larger buffer holds on a
    smaller one.
    """
    best = None
    kept = list[SweepPoint]()
    for stair in stairs:
        best = stair if best is None or stair.dram_bytes <= best.dram_bytes else best
        kept.append(stair._replace(dram_bytes=best.dram_bytes, groups=best.groups))
    bound = 0
    for k in reversed(range(len(kept))):
        bound = max(bound, kept[k].lower_bound_bytes)
        kept[k] = kept[k]._replace(lower_bound_bytes=min(bound, kept[k].dram_bytes))
    return kept
