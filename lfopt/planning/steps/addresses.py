"""Dynamic storage allocation: buffer addresses by which no two overlap that are alive together."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

TRIES = 32  # address maps per order that are tried to find one without gaps


class Life(NamedTuple):
    """Bytes on chip from one operator, or node of a schedule, to another.

    `first`, `last`: those numbers, both included.
    """

    bytes: int
    first: int
    last: int


def peak_bytes(lives: Iterable[Life]) -> int:
    """The most bytes alive at once.

    A life ends behind its last step, and before what begins in the next one: times are doubled for that.
    """
    changes: list[tuple[int, int]] = []
    for size, first, last in lives:
        changes += ((2 * first, size), (2 * last + 1, -size))
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def allocate(lives: Sequence[Life]) -> tuple[list[int], int]:
    """Addresses in bytes, no two overlapping that are alive together, and the end of the highest.

    First fit in several orders; then, as long as something reaches above the most bytes alive at once, what
    reaches highest comes first in the next try. The lowest end wins, the earlier try on a tie. (Dynamic
    storage allocation is NP-hard: Garey and Johnson, problem SR2.)
    """
    least = peak_bytes(lives)
    everything = range(len(lives))
    together = _together(lives)
    orders = [
        sorted(everything, key=lambda k: (-lives[k].bytes, lives[k].first)),
        sorted(everything, key=lambda k: (lives[k].first - lives[k].last, -lives[k].bytes)),
    ]
    best: tuple[list[int], int] = [], 1 << 62
    for order in orders:
        for _ in range(TRIES):
            ends = _first_fit(lives, together, order)
            top = max(ends, default=0)
            if top < best[1]:
                best = [end - life.bytes for end, life in zip(ends, lives, strict=True)], top
            if top <= least:
                return best
            highest = next(k for k in order if ends[k] == top)
            order.remove(highest)
            order.insert(0, highest)
    return best


def from_both_ends(lives: Sequence[Life], staying: Collection[int], limit: int) -> tuple[list[int], int]:
    """Addresses in bytes, and the end of the highest, with free space in one piece.

    What stays goes by turns to the lowest free address and to the highest below `limit`; the rest is placed
    by first fit, as `allocate` does.
    """
    held = sorted(staying, key=lambda k: lives[k].first)
    others = sorted(set(range(len(lives))).difference(held), key=lambda k: -lives[k].bytes)
    ends = _first_fit(lives, _together(lives), (*held, *others), {*held[1::2]}, limit)
    return [end - life.bytes for end, life in zip(ends, lives, strict=True)], max(ends, default=0)


def _together(lives: Sequence[Life]) -> list[list[int]]:
    """Per life: the others that overlap it in time."""
    neighbours: list[list[int]] = [[] for _ in lives]
    alive: list[int] = []
    for k in sorted(range(len(lives)), key=lambda k: lives[k].first):
        first = lives[k].first
        alive = [j for j in alive if lives[j].last >= first]
        for j in alive:
            neighbours[j].append(k)
        neighbours[k] += alive
        alive.append(k)
    return neighbours


def _first_fit(
    lives: Sequence[Life],
    together: Sequence[Sequence[int]],
    order: Iterable[int],
    high: Container[int] = (),
    limit: int = 0,
) -> list[int]:
    """End in bytes of each, placed in `order` at the lowest address that is free throughout its life.

    Those in `high` go to the highest free address below `limit`.
    """
    ends = [0] * len(lives)  # 0: not placed yet
    for k in order:
        size = lives[k].bytes
        at = 0
        topmost = -1
        near = [(ends[j] - lives[j].bytes, ends[j]) for j in together[k] if ends[j]]
        if k in high:
            near.append((limit, limit))
        for low, end in sorted(near):
            if low - at >= size:
                topmost = low - size
                if k not in high:
                    break
            if end > at:
                at = end
        ends[k] = (topmost if k in high and topmost >= 0 else at) + size
    return ends
