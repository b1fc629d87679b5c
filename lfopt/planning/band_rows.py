"""How many rows of its results a line-buffered group makes at a time: a caller proposes, the first height that fits is taken.

More rows take more buffer and move no fewer bytes, so a search has no use for them. Whoever runs the plan may: weights are read from the buffer once
per band, and some kernels make several rows at once or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lfopt.ops import bits
from lfopt.planning.costs import GroupCosts

Propose = Callable[[int], Iterable[int]]  # group -> heights of bands to try, best first


def heights(costs: GroupCosts, group: int) -> Sequence[int]:
    """All heights that make a difference, the highest first.

    The highest is that of the highest result that leaves the group. Where results have one row (after a global pooling), there are two ways: row by
    row, or whatever is asked for in one step; the latter counts as the height of the highest map.
    """
    flow = costs.dataflow
    highest = max((flow.heights[i] for i in bits(flow.sinks(group))), default=1)
    return range(highest, 0, -1) if highest > 1 else sorted({1, max(flow.heights[i] for i in bits(group))}, reverse=True)


def up_to(costs: GroupCosts, rows: int | None = None) -> Propose:
    """Proposes the highest bands that fit, of at most so many rows; None: however high."""
    return lambda group: (height for height in heights(costs, group) if rows is None or height <= rows)


def chosen(costs: GroupCosts, group: int, propose: Propose | None) -> int:
    """The first height proposed in which the group fits; 1 if none does. What lies between two heights that make a difference counts as the lower."""
    beta, possible = costs.hardware.buffer_bytes, heights(costs, group)
    for rows in propose(group) if propose else ():
        height = next((height for height in possible if height <= rows), 1)
        if height == 1 or costs.buffer_bytes(group, height) < beta:
            return height
    return 1
