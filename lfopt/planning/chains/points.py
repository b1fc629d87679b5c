"""What stages of chains take in each way that they may run: bytes, and cycles as a model says."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from lfopt.ir import Node, Place
from lfopt.ops import bits
from lfopt.planning.chains.stages import Around, ChainStage
from lfopt.planning.chains.ways import MOST_STEPS, Room, StageOption, StageWays
from lfopt.planning.costs.alike import Structures
from lfopt.planning.costs.group_costs import GroupCosts
from lfopt.planning.steps.limit import Limit

MOST_PACE = 2.0  # bytes that a cycle may be worth, where nothing else is said

Cycles = Callable[[Sequence[Place], Sequence[Node]], int]  # of a schedule, as far as they are needed here


class StagePoint(NamedTuple):
    """What a stage takes in one of its options."""

    dram_bytes: int
    cycles: int
    option: StageOption | None  # None: as it is, or of a group by itself


# of a stage, given whether so many bytes are few enough for an option to be looked at
Ways = Callable[[Callable[[int], bool]], Iterator[StagePoint]]


class LookedAt(NamedTuple):
    """Points of a stage that was looked at, and which of its options were."""

    most: int  # bytes that these move at the most
    pace: float  # that they were worth
    points: list[StagePoint]

    def covers(self, most: int, pace: float) -> bool:
        """Whether all options were looked at of so many bytes at the most, that are worth a pace."""
        return most <= self.most and pace <= self.pace


@dataclass
class KnownOptions:
    """Points of stages that were looked at, which hold for stages of one structure with as much room."""

    operators: dict[Hashable, int] = field(default_factory=dict[Hashable, int])  # see `Structures`
    points: dict[Hashable, LookedAt] = field(default_factory=dict[Hashable, LookedAt])


class StagePoints:
    """Points of the stages of one network's chains."""

    def __init__(
        self,
        costs: GroupCosts,
        cycles: Cycles,
        estimate: Sequence[float],
        late: Callable[[], bool],
        known: KnownOptions,
    ) -> None:
        """`cycles`: of a stage, by which its options are compared; `late`: whether the time is over.

        `estimate`: cycles of each operator, which hardly any stage takes less than.
        """
        self.ways = StageWays(costs)
        self.estimate = estimate
        self.cycles = cycles
        self.late = late
        self._structures = Structures(costs.dataflow, known.operators)
        self._known = known.points

    def estimated(self, mask: int) -> float:
        """Cycles of some operators, as far as the estimate says."""
        return sum(self.estimate[i] for i in bits(mask))

    def of(
        self, mask: int, around: Around, room: Room, most: int, pace: float = MOST_PACE
    ) -> list[StagePoint]:
        """Points on the lower hull of bytes and cycles, of at most so many bytes, the fewest first.

        `pace`: bytes that a cycle is worth at the most: options that move so many that no cycles are worth
        them are left out. Once it is late, of the options that were looked at until then.
        """
        positions = [self._structures.positions(mask, maps) for maps in around]
        key = (self._structures.key(mask), *positions, room)

        def ways(within: Callable[[int], bool]) -> Iterator[StagePoint]:
            for option, stage in self.ways.options(mask, around, room, within):
                yield StagePoint(stage.dram.total, self.cycles(stage.places, stage.nodes), option)

        return self._hull(key, mask, most, pace, ways)

    def of_group(self, mask: int, most: int, pace: float = MOST_PACE) -> list[StagePoint]:
        """Points of a group by itself, likewise, to compare it with stages; they do not say the options."""

        def ways(within: Callable[[int], bool]) -> Iterator[StagePoint]:
            for option in self.ways.costs.options(mask):
                if not within(option.cost.dram_bytes):
                    continue
                schedule = option.scheduled.within(Limit(most=MOST_STEPS))
                if schedule is not None:
                    yield StagePoint(option.cost.dram_bytes, self.cycles(*schedule), None)

        return self._hull(self._structures.key(mask), mask, most, pace, ways)

    def _hull(self, key: Hashable, mask: int, most: int, pace: float, ways: Ways) -> list[StagePoint]:
        """The lower hull of points, as known by their key, or of all ways that may be better than others."""
        known = self._known.get(key)
        if known is None or not known.covers(most, pace):
            points: list[StagePoint] = []
            for point in ways(partial(self._is_of_interest, mask, points, most, pace)):
                points.append(point)
                if self.late():
                    return lower_hull(points)
            known = LookedAt(most, pace, lower_hull(points))
            self._known[key] = known
        return [point for point in known.points if point.dram_bytes <= most]

    def _is_of_interest(
        self, mask: int, points: Sequence[StagePoint], most: int, pace: float, moved: int
    ) -> bool:
        """Whether an option that moves so many bytes may be better than these points."""
        least = self.estimated(mask)
        return moved <= most and all(
            moved - point.dram_bytes <= pace * max(point.cycles - least, 0) for point in points
        )

    def stage(self, mask: int, around: Around, point: StagePoint) -> ChainStage | None:
        """The stage as a point of it, or of one of the same structure, says."""
        assert point.option is not None, "a stage that runs as it is needs no other"
        return self.ways.in_option(mask, around, point.option)


def lower_hull(points: Sequence[StagePoint]) -> list[StagePoint]:
    """The points on the lower left hull, fewest bytes first: each saves less for a byte than those before.

    >>> points = [StagePoint(size, cycles, None) for size, cycles in ((9, 5), (1, 9), (4, 8), (5, 5))]
    >>> [point.cycles for point in lower_hull(points)]
    [9, 5]
    """
    hull: list[StagePoint] = []
    for point in sorted(points, key=lambda point: (point.dram_bytes, point.cycles)):
        if hull and point.cycles >= hull[-1].cycles:
            continue
        while len(hull) > 1 and saving(hull[-2], hull[-1]) <= saving(hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def saving(before: StagePoint, after: StagePoint) -> float:
    """Cycles that a point saves against one before it on the hull, for a byte that it moves more."""
    return (before.cycles - after.cycles) / (after.dram_bytes - before.dram_bytes)


def steps_along(points: Sequence[StagePoint]) -> list[tuple[float, StagePoint]]:
    """(cycles saved for a byte, point) of each step along a hull."""
    return [(saving(before, after), after) for before, after in pairwise(points)]
