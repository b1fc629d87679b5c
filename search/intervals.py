"""Shortest path over the operators' order: the best scheme whose groups are intervals of it, or their parts.

It is found fast, and other searches begin with it.

An interval of a topological order is convex, and so are its connected parts; groups in the order of their
intervals are executable. So the best such scheme is a shortest path over the positions in that order.
"""

from __future__ import annotations

from collections.abc import Callable

from lfopt.fusion import CostModel, connected, connected_parts
from search.budget import NOTHING
from search.partition import Partition

LONGEST = 64  # operators of an interval


def best_intervals(model: CostModel, over: Callable[[], bool]) -> Partition:
    """Groups of the best scheme of intervals, in an executable order.

    `over`: whether the time is over; then the operators that were not reached are unfused.
    """
    flow = model.dataflow
    least = [0] + [NOTHING] * len(flow)  # per position: bytes of the operators before it
    # per position: where its last interval begins, and the groups of that
    last: list[tuple[int, Partition]] = [(0, ())] * len(least)
    for start in range(len(flow)):
        if over():
            last[start + 1 :] = [(op, (1 << op,)) for op in range(start, len(flow))]
            break
        mask = 0
        floor = None
        dram = 0
        for op in range(start, min(start + LONGEST, len(flow))):
            floor, dram = model.grow(mask, floor, dram, op)
            mask |= 1 << op
            if op > start and not model.may_grow(mask, floor):
                break
            if op > start and least[start] + dram >= least[op + 1]:
                continue
            if connected(flow.neighbours, mask):
                parts = (mask,)
            else:
                parts = tuple(connected_parts(flow.neighbours, mask))
            cost = _bytes(model, parts)
            if cost is not None and least[start] + cost < least[op + 1]:
                least[op + 1], last[op + 1] = least[start] + cost, (start, parts)
    groups = tuple[int, ...]()
    position = len(flow)
    while position:
        position, parts = last[position]
        groups = (*parts, *groups)
    return groups


def _bytes(model: CostModel, groups: Partition) -> int | None:
    """DRAM bytes of groups; None where one is not legal."""
    total = 0
    for group in groups:
        if (cost := model.price(group)) is None:
            return None
        total += cost.dram_bytes
    return total
