"""Which operators may meet in a legal group, as far as the cheapest path between them tells."""

from __future__ import annotations

import heapq

from lfopt.ops import Dataflow, bits


def mates(flow: Dataflow, holds: list[dict[int, int]], row_bytes: list[int], weights: list[int], limit: int) -> list[int]:
    """Per operator: operators that may share a group that takes less than `limit` bytes of buffer with it, itself included.

    A group that holds two operators hangs together by a path between them, and takes at least the weights on that path and the rows of the maps that
    join its steps (no map twice: the shortest path in the group has no use for that). `holds` gives, per operator, the rows of each map it reads that
    are held at once for it in whatever group; `weights` the buffer bytes of weights that the operator alone reads.
    """
    steps: list[dict[int, int]] = []  # per operator: least bytes of a map that joins it to each neighbour
    for i in range(len(flow)):
        reach: dict[int, int] = {}
        for m in {*holds[i], *flow.results[i]}:
            around = flow.readers[m] | (1 << flow.producer[m] if flow.producer[m] >= 0 else 0)
            for j in bits(around & flow.neighbours[i]):
                rows = max(holds[i].get(m, 0), holds[j].get(m, 0))
                reach[j] = min(reach.get(j, limit), rows * row_bytes[m])
        steps.append(reach)
    return [_within(steps, weights, i, limit) for i in range(len(flow))]


def _within(steps: list[dict[int, int]], weights: list[int], start: int, limit: int) -> int:
    """Mask of the nodes whose distance from `start`, counting steps and the weights of both ends and all between, stays below the limit."""
    distance = {start: weights[start]}
    heap = [(weights[start], start)]
    reached = 1 << start
    while heap:
        here, i = heapq.heappop(heap)
        if here > distance[i]:
            continue
        reached |= 1 << i
        for j, step in steps[i].items():
            there = here + step + weights[j]
            if there < limit and there < distance.get(j, limit):
                distance[j] = there
                heapq.heappush(heap, (there, j))
    return reached
