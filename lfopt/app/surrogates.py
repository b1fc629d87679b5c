"""Cycles of groups by the simulator's model, and by a surrogate that has learnt from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from explainers.surrogate import Estimate, GroupColumns, Rooflines, Surrogate
from lfopt.app.figures import GroupFigures
from lfopt.ir import Hardware
from lfopt.planning import GroupCosts
from search.lazy import DOUBT, OptimisticCosts
from search.partition import Partitions, Rng

DRAWS = 20  # random plans of a network whose groups are judged, to learn from
SINGLES = 6  # at most one in so many of them is a single operator
# bytes of buffers to learn on, beside the chip's own
SIZES = tuple(size << 10 for size in (64, 128, 192, 384, 512, 1024))
SCHEMES = ("lbdf", "auto", "all")
SPEEDS = {"mac_rows": (8, 16, 16, 32), "port_bytes": (8, 16, 16, 32), "port_latency": (20, 43, 43, 100)}


def estimator(figures: GroupFigures, surrogate: Surrogate) -> Callable[[Sequence[int]], Estimate]:
    """What the surrogate says of legal groups of one network: log2 of their cycles.

    Groups of one structure are looked at once.
    """
    rooflines = Rooflines(figures.costs, figures.meter.by_rows)
    known = dict[Hashable, tuple[float, float]]()

    def estimate(groups: Sequence[int]) -> Estimate:
        keys = [figures.key(group) for group in groups]
        new = {key: group for key, group in zip(keys, groups, strict=True) if key not in known}
        if new:
            estimates = surrogate.estimate(rooflines.read(tuple(new.values())))
            known.update(
                zip(new, zip(estimates.mean.tolist(), estimates.spread.tolist(), strict=True), strict=True)
            )
        pairs = np.array([known[key] for key in keys]).reshape(-1, 2)
        return Estimate(pairs[:, 0], pairs[:, 1])

    return estimate


def hopes_of(
    figures: GroupFigures, doubt: float = DOUBT, surrogate: Surrogate | None = None
) -> OptimisticCosts:
    """What a search may hope for of groups whose cycles it does not know.

    `surrogate`: the one that ships if not given.
    """
    estimate = estimator(figures, surrogate or Surrogate.load("cycles"))
    return OptimisticCosts(figures.costs, figures, figures.least, figures.known, estimate, doubt)


@dataclass(frozen=True, eq=False)
class JudgedGroups:
    """Groups of one network on one chip, and what the model says of them."""

    read: GroupColumns
    cycles: np.ndarray  # (groups,) int64: in the fastest option


def judged(costs: GroupCosts, count: int, seed: int) -> JudgedGroups:
    """Up to `count` groups of different structures that random plans have."""
    figures = GroupFigures(costs, energy=False)
    rng = Rng(seed)
    partitions = Partitions(costs)
    met: dict[Hashable, int] = {}
    for _ in range(DRAWS):
        for group in partitions.draw(rng):
            met.setdefault(figures.key(group), group)
    masks = np.random.default_rng(seed).permutation(np.array([*met.values()], object)).tolist()
    singles = [mask for mask in masks if mask & (mask - 1) == 0]
    others = [mask for mask in masks if mask & (mask - 1)][: count - count // SINGLES]
    masks = [*others, *singles[: count // SINGLES]]
    cycles = np.array([min(option.cycles for option in figures(mask)) for mask in masks], np.int64)
    return JudgedGroups(Rooflines(costs, figures.meter.by_rows).read(masks), cycles)


def varied(hardware: Hardware, name: str) -> tuple[Hardware, str]:
    """(chip, scheme) to learn on beside the given chip: its sizes are drawn by the name of the network."""
    rng = np.random.default_rng(crc32(name.encode()))
    drawn = {key: int(rng.choice(of)) for key, of in SPEEDS.items()}
    return replace(
        hardware, buffer_bytes=int(rng.choice(SIZES)), mac_columns=drawn["mac_rows"], **drawn
    ), SCHEMES[int(rng.integers(len(SCHEMES)))]
