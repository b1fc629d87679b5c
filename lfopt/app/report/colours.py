"""Colours of groups: neighbours differ, and a colour comes back as late as it can."""

from __future__ import annotations

from collections.abc import Iterable


def colours(count: int, near: Iterable[tuple[int, int]], available: int) -> list[int]:
    """Number of the colour of each group, from 0.

    >>> colours(4, [(0, 1), (1, 2), (0, 3)], 3)
    [0, 1, 2, 1]
    """
    beside: list[set[int]] = [set() for _ in range(count)]
    for a, b in near:
        beside[a].add(b)
        beside[b].add(a)
    chosen: list[int] = []
    used = [-available + k for k in range(available)]  # per colour: group that had it last
    for group in range(count):
        used_beside = {chosen[other] for other in beside[group] if other < group}
        colour = min(range(available), key=lambda k: (k in used_beside, used[k]))
        chosen.append(colour)
        used[colour] = group
    return chosen
