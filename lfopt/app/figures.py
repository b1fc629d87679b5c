"""What groups take in each of their ways: bytes by the planner, cycles and energy by the simulator's model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice

from lfopt.ir import Cost, Figures
from lfopt.ops import bits
from lfopt.planning import GroupCosts, Limit
from lfopt.planning.alike import Prices
from lfopt.planning.limit import Unwritten
from lfopt.planning.modes import Way
from lfopt.planning.outlines import with_parameters
from lfopt.planning.rules import UNMET
from lfopt.planning.streaming import Layout
from simulator.meter import Meter

MOST_STEPS = 50_000  # of a way that is worth looking at, unless it is the only one
HARDLY = 1.02  # cycles over the least there can be, from which a way in the same bytes or more is not looked for


class GroupFigures:
    """Figures of the groups of one network on one chip, memoised by structure."""

    def __init__(
        self,
        costs: GroupCosts,
        report: Callable[[int], None] | None = None,
        *,
        rows: bool = True,
        extra: int | None = None,
        energy: bool = True,
        late: Callable[[], bool] = lambda: False,
        known: GroupFigures | None = None,
    ) -> None:
        """`report`: told how many groups were timed. `late`: whether the time is over; then one way of each group is timed.

        `rows`: whether a mode may make another number of rows at a time than it does of itself. `extra`: bytes that a way may move over the fewest,
        in modes of the same kind (whole or tiled); None: whatever it moves, in any mode. `energy`: whether a way that takes no fewer bytes and
        cycles than another is of interest for its energy. `known`: those of the same chip with another buffer; what both time is timed once.
        """
        self.costs, self.report, self.rows, self.extra, self.energy, self.late = costs, report, rows, extra, energy, late
        self.meter = Meter(costs.dataflow, costs.hardware, None if known is None else known.meter)
        self.layout = Layout(costs.dataflow, costs.hardware)
        self.least = [self.meter.least(i) for i in range(len(costs.dataflow))]
        self._alike = Prices().of(costs)
        self._known: dict[Hashable, list[tuple[int, Figures]]] = {}

    def __call__(self, group: int) -> Sequence[Figures]:
        """Of the ways worth taking: each takes less of something than all before it. The first moves the fewest bytes of its mode."""
        unmet = Figures(*[UNMET] * 3) if self.costs.breaks(group) else Figures(0, 0, 0)
        return [figures + unmet for _, figures in self._of(group)]

    def has_choice(self, group: int) -> bool:
        """Whether there is more than one way to look at."""
        return len([*islice(self._ways(group), 2)]) > 1

    def take(self, group: int, k: int) -> None:
        """Let the group run in the way at this position of those above."""
        number, figures = self._of(group)[k]
        price, way = self._price(group), next(islice(self.costs.ways(group, whole=self._whole(group)), number, None))
        assert way.cost.dram_bytes == figures.dram_bytes, "groups of the same structure have the same ways"
        if self.rows or way.cost.mode != price.mode or not self.costs.modes[price.mode].heights(group):
            self.costs.take(group, way)

    def _of(self, group: int) -> list[tuple[int, Figures]]:
        chained = self.costs.chosen(group) is self.costs.modes.get("chained", self)  # what stays on chip is not of the structure
        key: Hashable = group if chained or group & self.costs.rules.touched else self._alike.key(group)
        if key not in self._known:
            self._known[key] = self._look(group)
            if self.report is not None:
                self.report(len(self._known))
        return self._known[key]

    def _ways(self, group: int) -> Iterator[tuple[int, Way]]:
        """(number among all its ways, way) of those that are allowed."""
        price, modes = self._price(group), self.costs.modes
        heights: dict[str, int] = {}  # per mode: rows made at a time
        for number, way in enumerate(self.costs.ways(group, whole=self._whole(group))):
            rows = way.terms.band_rows
            as_is = self.rows or not modes[way.cost.mode].heights(group) or heights.setdefault(way.cost.mode, rows) == rows
            if as_is and (self.extra is None or way.cost.dram_bytes <= price.dram_bytes + self.extra):
                yield number, way

    def _price(self, group: int) -> Cost:
        price = self.costs.price(group)
        assert price is not None, "groups of a scheme are legal"
        return price

    def _whole(self, group: int) -> bool | None:
        return None if self.extra is None else self.costs.modes[self._price(group).mode].whole

    def _look(self, group: int) -> list[tuple[int, Figures]]:
        found: list[tuple[int, Figures]] = []
        least = sum(self.least[i].cycles for i in bits(group))
        for number, way in self._ways(group):
            fastest = min((f.cycles for _, f in found if f.dram_bytes <= way.cost.dram_bytes), default=None)
            if fastest is not None and (self.late() or (not self.energy and fastest <= HARDLY * least)):
                continue
            figures = self._figures(group, way, fastest)
            if figures is not None and not any(all(a <= b for a, b in zip(other, figures, strict=True)) for _, other in found):
                found.append((number, figures))
        return found

    def _figures(self, group: int, way: Way, fastest: int | None) -> Figures | None:
        """Of one way; None where it has very many steps, or where another in as few bytes takes no more cycles than this one computes."""
        make = way.scheduled.make
        if isinstance(make, str):
            return self.meter.without_steps(group, way.terms.dram)
        try:
            places, steps = make(Limit() if fastest is None else Limit(most=MOST_STEPS))
        except Unwritten:
            return None if fastest is not None else self.meter.without_steps(group, way.terms.dram)
        steps = with_parameters(self.costs, self.layout, group, way.cost.mode, steps)
        if fastest is not None and not self.energy and self.meter.computing(steps) >= fastest:
            return None
        return self.meter.figures(places, steps)
