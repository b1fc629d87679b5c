"""Rows of results that a group computes at a time: the first height proposed that fits.

More rows take more buffer and move no fewer bytes, so a search has no use for them. Whoever runs the plan
may: weights are read from the buffer once per band, and some kernels make several rows at once or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lfopt.planning.costs.group_costs import GroupCosts

Propose = Callable[[int], Iterable[int]]  # group -> heights of bands to try, best first


def heights(costs: GroupCosts, group: int) -> Sequence[int]:
    """Band heights in rows that differ in the mode the group runs in, highest first; () if it has none."""
    mode = costs.chosen(group)
    if mode is None:
        return ()
    return mode.heights(group)


def up_to(costs: GroupCosts, rows: int | None = None) -> Propose:
    """Proposes the highest bands that fit, of at most `rows` rows; None: of any height."""

    def highest(group: int) -> tuple[int, ...]:
        mode = costs.chosen(group)
        if mode is None:
            return ()
        return (mode.highest(group, costs.hardware.buffer_bytes, rows),)

    return highest


def chosen(costs: GroupCosts, group: int, propose: Propose | None) -> int:
    """The first height proposed in which the group fits; 1 if none does.

    What lies between two heights that make a difference counts as the lower.
    """
    mode = costs.chosen(group)
    beta = costs.hardware.buffer_bytes
    possible = heights(costs, group)
    for rows in propose(group) if propose else ():
        height = rows if rows in possible else next((height for height in possible if height <= rows), 1)
        if height == 1 or (mode is not None and mode.height_fits(group, height, beta)):
            return height
    return 1
