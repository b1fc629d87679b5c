"""Staircases as corners: what `lfopt sweep` and the page of `lfopt report` draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Level = TypeVar("Level", int, float)


def corners(levels: Sequence[tuple[int, Level]], end: int) -> list[tuple[int, Level]]:
    """Corners of the line that stands at each level from its buffer to the next, at the last one to `end`.

    >>> corners([(1, 9), (4, 5)], 8)
    [(1, 9), (4, 9), (4, 5), (8, 5)]
    """
    starts = [start for start, _ in levels]
    return [
        (x, level)
        for (start, level), stop in zip(levels, [*starts[1:], end], strict=True)
        for x in (start, stop)
    ]
