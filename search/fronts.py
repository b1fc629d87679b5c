"""Pareto fronts of plans: dominance, hypervolume, supported plans and knees.

The *supported* plans of a front are the corners of its convex hull: each has the least weighted sum for some
weights, so an exact search finds it, and where no weights are left that could give another, all of them are
known. What lies inside the hull only a search of another kind finds (`search.nsga2.evolve_figures`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations
from math import gcd, log2, prod
from typing import NamedTuple

import moocore
import numpy as np

from lfopt.fusion import CostModel
from lfopt.ir import Figures
from search.objectives import Choice, best_of, first_of
from search.weighted import CostWeights, Evaluator, Run, WeightedModel, bounded

Vector = tuple[int, int, int]  # of bytes, cycles and pJ, or weights of them
AXES = {name: k for k, name in enumerate(Figures._fields)}
TIE = 1 << 40  # how much more a weighted sum counts than the plain one, which breaks ties
# of the range of an axis, by which the reference point of a hypervolume lies behind the worst point
MARGIN = 0.1
BEND = 0.1  # of the whole fall, by which a knee must lie below the chord


# -- dominance -----------------------------------------------------------------------------------------------


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether a point is nowhere worse than another and somewhere better; less is better."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and tuple(a) != tuple(b)


def efficient(points: Sequence[Sequence[float]]) -> list[bool]:
    """Whether each point is dominated by no other; of equal ones, all are.

    >>> efficient([(1, 5), (2, 2), (3, 3), (2, 2)])
    [True, True, False, True]
    """
    if not points:
        return []
    return [bool(kept) for kept in moocore.is_nondominated(np.array(points, dtype=float), keep_weakly=True)]


class Hypervolume(NamedTuple):
    """Share of a box that points dominate."""

    share: float  # of the box between the best of each axis and the reference point
    reference: tuple[float, ...]


def hypervolume(points: Sequence[Sequence[float]], among: Sequence[Sequence[float]]) -> Hypervolume:
    """Hypervolume of points, as a share of a box around `among`.

    The box goes from the best of each axis to a tenth of its range behind the worst. Axes without a range do
    not count.

    >>> hypervolume([(0, 10), (10, 0)], [(0, 10), (10, 0)]).reference
    (11.0, 11.0)
    """
    space = np.array(among, dtype=float)
    best = space.min(axis=0)
    worst = space.max(axis=0)
    reference = worst + MARGIN * (worst - best)
    there = worst > best
    if not there.any():
        return Hypervolume(1.0, tuple(reference.tolist()))
    scaled = (np.array(points, dtype=float)[:, there] - best[there]) / (worst - best)[there]
    volume = float(moocore.hypervolume(scaled, ref=1 + MARGIN)) / prod([1 + MARGIN] * int(there.sum()))
    return Hypervolume(volume, tuple(reference.tolist()))


# -- supported plans -----------------------------------------------------------------------------------------


class Supported(NamedTuple):
    """A plan of least weighted sum."""

    choice: Choice
    # of bytes, cycles and energy; one of them is 1 and the others 0 where it is the least of a figure
    weights: Vector
    value: int  # the weighted sum
    bound: int  # no plan of these modes and alternatives has a smaller one


def supported(
    model: CostModel,
    evaluator: Evaluator,
    least: Sequence[Figures],
    run: Run,
    start: Sequence[int],
    axes: Sequence[str],
    most: int | None = None,
) -> Iterator[Supported]:
    """Plans at the corners of the convex hull of all plans' figures, first the least of each figure.

    All corners, unless `most` or an interrupt ends it. `run`: an exact search; `start`: a legal plan; `axes`:
    names of the figures that count. The same plan may come again, with other weights. A search of the weights
    that fit three plans found, or two and the figures that weigh nothing, either finds a plan below them or
    proves that there is none; once all are proven, no corner is missing. (The dual of the outer approximation
    of Benson 1998; with two figures, dichotomic search.)
    """
    wanted = [AXES[name] for name in axes]
    hull = _Hull(wanted)
    for k in wanted:
        hull.ask(_unit(k))
    count = 0
    known = [start]
    while (weights := hull.next()) is not None and (most is None or count < most):
        count += 1
        scaled = CostWeights(*(TIE * weight + 1 for weight in weights))  # the others break ties
        result = run(WeightedModel(model, evaluator, least, scaled), first_of(evaluator, known, scaled))
        choice = best_of(evaluator, result.groups, scaled)
        known.append(choice.groups)
        if result.interrupted:
            return
        value = scaled.of(choice.figures)
        yield Supported(choice, weights, value // TIE, min(result.lower_bound_bytes, value) // TIE)
        hull.add(choice.figures)


class _Hull:
    """Corners found so far, and the weights that may give others."""

    def __init__(self, axes: Sequence[int]) -> None:
        self.axes = axes
        self.points: list[Vector] = []
        self.asked: set[Vector] = set()
        # (minus the largest gain, weights, a corner on their plane)
        self.waiting: list[tuple[float, Vector, Vector | None]] = []

    def ask(self, weights: Vector, corner: Vector | None = None, gain: float = 1.0) -> None:
        """Queue weights, unless they were queued before; `gain`: the largest gain that they promise."""
        if weights not in self.asked:
            self.asked.add(weights)
            heappush(self.waiting, (-gain, weights, corner))

    def next(self) -> Vector | None:
        """The weights that promise the largest gain; None if none are left.

        Weights below which a corner was found since they were queued are skipped.
        """
        while self.waiting:
            _, weights, corner = heappop(self.waiting)
            if corner is None or _dot(weights, corner) <= min(_dot(weights, point) for point in self.points):
                return self._bounded(weights)
        return None

    def _bounded(self, weights: Vector) -> Vector:
        """Weights of the same direction, rounded where weighted sums would exceed LARGEST."""
        largest = max((figure for point in self.points for figure in point), default=0)
        dram_bytes, cycles, energy_pj = bounded(weights, largest, TIE)
        return dram_bytes, cycles, energy_pj

    def add(self, point: Vector) -> None:
        """Add a corner, and queue the weights of the planes through it and others."""
        point = (point[0], point[1], point[2])
        if point in self.points:
            return
        others = [(other, _minus(other, point)) for other in self.points]
        idle = [_unit(k) for k in range(3)]
        for other, along in others:
            for axis in idle:
                self._ask(_cross(along, axis), (point, other))
        for (one, along), (two, beside) in combinations(others, 2):
            self._ask(_cross(along, beside), (point, one, two))
        self.points.append(point)

    def _ask(self, normal: Vector, corners: tuple[Vector, ...]) -> None:
        """Queue the plane with this normal through some corners, if all other corners are above it."""
        if min(normal) < 0:
            normal = (-normal[0], -normal[1], -normal[2])
        if min(normal) < 0 or not any(normal) or any(normal[k] for k in range(3) if k not in self.axes):
            return
        factor = gcd(*normal)
        weights = (normal[0] // factor, normal[1] // factor, normal[2] // factor)
        value = _dot(weights, corners[0])
        if all(_dot(weights, point) >= value for point in self.points):
            least = (min(c[0] for c in corners), min(c[1] for c in corners), min(c[2] for c in corners))
            self.ask(weights, corners[0], 1 - _dot(weights, least) / max(value, 1))


def _unit(k: int) -> Vector:
    return (int(k == 0), int(k == 1), int(k == 2))


def _minus(a: Vector, b: Vector) -> Vector:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def _dot(a: Vector, b: Vector) -> int:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Vector, b: Vector) -> Vector:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


# -- knees ---------------------------------------------------------------------------------------------------


class Bend(NamedTuple):
    """Knee of a falling curve."""

    at: int  # number of the point
    depth: float  # how far it lies below the chord, as a share of the whole fall
    before: float  # what a doubling of x up to it spares, as a share of the first value
    behind: float  # what a doubling beyond it spares
    end: int  # number of the point of the least value


def knee(sizes: Sequence[float], values: Sequence[float]) -> Bend | None:
    """Knee of a falling curve: the point farthest below the chord from its first point to its least one.

    Sizes count by their logarithm to base 2, values as they are. None where there is no bend: fewer than
    three sizes up to the least value, or all of them nearly on the chord.

    >>> knee([1, 2, 4, 8, 16], [100, 60, 20, 15, 10])
    Bend(at=2, depth=0.38..., before=0.4, behind=0.05, end=4)
    """
    end = min(range(len(values)), key=lambda k: (values[k], sizes[k]))
    if end < 2 or values[0] <= values[end]:
        return None
    x = [log2(size / sizes[0]) for size in sizes]
    fall = values[0] - values[end]
    depths = [(values[0] - values[k]) / fall - x[k] / x[end] for k in range(end + 1)]
    at = max(range(end + 1), key=lambda k: (depths[k], -k))
    if depths[at] < BEND:
        return None
    before = (values[0] - values[at]) / values[0] / x[at]
    return Bend(at, depths[at], before, (values[at] - values[end]) / values[0] / (x[end] - x[at]), end)
