"""DRAM bytes, cycles and energy of groups in each mode and band height that they may run in.

Bytes are the planner's, cycles and energy those of the simulator's model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from lfopt.ir import Cost, Figures
from lfopt.ops import Dataflow, bits
from lfopt.planning import NEVER, GroupCosts, Limit
from lfopt.planning.costs.alike import Prices
from lfopt.planning.costs.rules import UNMET
from lfopt.planning.modes import ChainedMode, ModeOption, PlacesAndSteps
from lfopt.planning.plans.outlines import with_parameters
from lfopt.planning.steps.layout import BufferLayout
from search.objectives import Choice
from simulator.model.meter import Meter

MOST_STEPS = 50_000  # of an option that is worth timing, unless it is the only one
# cycles over the least there can be, below which no faster option in the same bytes or more is looked for
HARDLY = 1.02


class ScheduledOption(NamedTuple):
    """An option of a group, with its steps."""

    number: int  # among all options of the group
    dram_bytes: int
    computing: int  # cycles that it computes: it takes no fewer
    macs: Callable[[], int]  # multiply-accumulates
    figures: Callable[[], Figures]


class TimedOption(NamedTuple):
    """An option of a group that is worth taking."""

    number: int  # among all options of the group
    figures: Figures
    macs: int  # multiply-accumulates


class KnownFigures:
    """What was timed of groups of several networks on one chip, which may have options of one structure."""

    def __init__(self) -> None:
        self.prices = Prices()
        self.options: dict[Hashable, list[TimedOption]] = {}  # by structure


def least_figures(costs: GroupCosts, dram_bytes: int) -> Figures:
    """What every plan of a network takes at the least, whatever it fuses, keeps on chip or computes again.

    Each figure is by itself. `dram_bytes`: that no plan moves less than.

    A plan loads what is compulsory, and every map that it stores but the outputs. So of its bytes, what it
    loads is half at the least, and half of what the compulsory loads are more than the outputs.
    """
    network = costs.unfused(())
    compulsory = network.bounds.compulsory
    flow = network.dataflow
    sizes = network.groups.map_bytes
    outputs = sum(sizes[m] for m, producer in enumerate(flow.producer) if flow.is_output[m] and producer >= 0)
    loads = max(dram_bytes, dram_bytes + compulsory.total - compulsory.output - outputs)
    return Meter(Dataflow.of(flow.graph), costs.hardware).least_of_network(dram_bytes, -(-loads // 2))


class GroupFigures:
    """Figures of the groups of one network on one chip, memoised by structure.

    An option of a group is a mode, and a number of rows made at a time: see `GroupCosts.options`.
    """

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
        shared: KnownFigures | None = None,
    ) -> None:
        """`report`: told how many groups were timed.

        `late`: whether the time is over; then one option of each group is timed. `rows`: whether a mode may
        make another number of rows at a time than it does of itself. `extra`: DRAM bytes that an option may
        move over the fewest, in modes of the same kind (whole or tiled); None: any number, in any mode.
        `energy`: whether an option that takes no fewer bytes and cycles than another counts for its energy.
        `known`: those of the same chip with another buffer; what both time is timed once. `shared`: those of
        networks with the same operators, asked in the same way; what both time is timed once.
        """
        self.costs = costs
        self.report = report
        self.rows = rows
        self.extra = extra
        self.energy = energy
        self.late = late
        self.meter = Meter(costs.dataflow, costs.hardware, None if known is None else known.meter)
        self.layout = BufferLayout(costs.dataflow, costs.hardware)
        self.least = [self.meter.least(i) for i in range(len(costs.dataflow))]
        shared = shared or KnownFigures()
        self._alike = shared.prices.of(costs)
        self._known = shared.options
        self._choices: dict[Hashable, bool] = {}
        self._chains_known: dict[int, int] = {}

    def __call__(self, group: int) -> Sequence[Figures]:
        """Figures of the options worth taking: each takes less of something than all before it.

        The first moves the fewest bytes of its mode.
        """
        unmet = Figures(*[UNMET] * 3) if self.costs.breaks(group) else Figures(0, 0, 0)
        return [option.figures + unmet for option in self._of(group)]

    def known(self, group: int) -> bool:
        """Whether a group of this structure was timed."""
        return self.key(group) in self._known

    @property
    def timed(self) -> int:
        """Group structures timed so far."""
        return len(self._known)

    def key(self, group: int) -> Hashable:
        """Equal for groups of one structure, which have the same options."""
        # what stays on chip is not of the structure
        if self._chains(group) or group & self.costs.rules.touched:
            return self.costs, group, self._chains(group)
        return self._alike.key(group)

    def _chains(self, group: int) -> int:
        """How many chains of a group were known when it was asked for first: later ones are left out."""
        if group not in self._chains_known:
            mode = self.costs.modes.get("chained")
            beta = self.costs.hardware.buffer_bytes
            self._chains_known[group] = (
                mode.number_of_chains(group, beta) if isinstance(mode, ChainedMode) else 0
            )
        return self._chains_known[group]

    def has_chains(self, group: int) -> bool:
        """Whether maps may stay on chip between parts of a group, as far as its options know."""
        return self._chains(group) > 0

    def has_choice(self, group: int) -> bool:
        """Whether a group has more than one option."""
        key = self.key(group)
        if key not in self._choices:
            self._choices[key] = len([*islice(self._options(group), 2)]) > 1
        return self._choices[key]

    def fastest(self, group: int) -> tuple[Cost, PlacesAndSteps] | None:
        """Cost, places and steps of a legal group in its fastest option; None where that has no steps."""
        fastest = min(self._of(group), key=lambda option: option.figures.cycles)
        option = self._numbered(group, fastest.number)
        schedule = self._schedule(group, option, Limit())
        if schedule is None:
            return None
        return (option.cost, schedule)

    def take(self, group: int, k: int) -> None:
        """Let the group run in the option at this position of what a call gives."""
        price = self._price(group)
        option = self._option(group, k)
        if self.rows or option.cost.mode != price.mode or not self.costs.modes[price.mode].heights(group):
            self.costs.take(group, option)

    def macs(self, group: int, k: int) -> int:
        """Multiply-accumulates of the group in the option at this position of what a call gives."""
        return self._of(group)[k].macs

    def macs_of(self, choice: Choice) -> int:
        """Multiply-accumulates of a plan, each group in the option that was chosen."""
        return sum(map(self.macs, choice.groups, choice.alternatives))

    def _option(self, group: int, k: int) -> ModeOption:
        timed = self._of(group)[k]
        option = self._numbered(group, timed.number)
        assert option.cost.dram_bytes == timed.figures.dram_bytes, (
            "groups of the same structure have the same options"
        )
        return option

    def _numbered(self, group: int, number: int) -> ModeOption:
        """The option at this position among all options of a group."""
        return next(islice(self.costs.options(group, whole=self._whole(group)), number, None))

    def _of(self, group: int) -> list[TimedOption]:
        key = self.key(group)
        if key not in self._known:
            self._known[key] = self._look(group)
            if self.report is not None:
                self.report(len(self._known))
        return self._known[key]

    def _options(self, group: int) -> Iterator[tuple[int, ModeOption]]:
        """(number among all its options, option) of those that are allowed."""
        price = self._price(group)
        modes = self.costs.modes
        heights: dict[str, int] = {}  # per mode: rows made at a time
        for number, option in enumerate(self.costs.options(group, whole=self._whole(group))):
            rows = option.terms.band_rows
            as_is = (
                self.rows
                or not modes[option.cost.mode].heights(group)
                or heights.setdefault(option.cost.mode, rows) == rows
            )
            if as_is and (self.extra is None or option.cost.dram_bytes <= price.dram_bytes + self.extra):
                yield number, option

    def _price(self, group: int) -> Cost:
        price = self.costs.price(group)
        assert price is not None, "groups of a scheme are legal"
        return price

    def _whole(self, group: int) -> bool | None:
        if self.extra is None:
            return None
        return self.costs.modes[self._price(group).mode].whole

    def _look(self, group: int) -> list[TimedOption]:
        """Those of its options that are worth taking.

        What computes the least is timed first, which spares the timing of others.
        """
        least = sum(self.least[i].cycles for i in bits(group))
        timed = list[TimedOption]()
        for option in sorted(self._written(group), key=lambda option: option.computing):
            fastest = min(
                (one.figures.cycles for one in timed if one.figures.dram_bytes <= option.dram_bytes),
                default=NEVER,
            )
            if self.energy or (option.computing < fastest and fastest > HARDLY * least):
                timed.append(TimedOption(option.number, option.figures(), option.macs()))
        worth = list[TimedOption]()
        for option in sorted(timed):
            beaten = (
                all(a <= b for a, b in zip(other.figures, option.figures, strict=True)) for other in worth
            )
            if not any(beaten):
                worth.append(option)
        return worth

    def _written(self, group: int) -> Iterator[ScheduledOption]:
        """The options with their steps.

        Of those after the first, none of very many steps, and none once the time is over.
        """
        limit = first = Limit()
        for number, option in self._options(group):
            dram = option.terms.dram
            schedule = self._schedule(group, option, limit)
            if schedule is not None:
                yield ScheduledOption(
                    number,
                    dram.total,
                    self.meter.computing(schedule[1]),
                    partial(self.costs.macs, group, option),
                    partial(self.meter.figures, *schedule),
                )
            elif limit is first or isinstance(option.scheduled.make, str):
                macs = partial(self.costs.macs, group, option)
                figures = partial(self.meter.without_steps, group, dram)
                yield ScheduledOption(number, dram.total, 0, macs, figures)
            if self.late():
                return
            limit = Limit(most=MOST_STEPS)

    def _schedule(self, group: int, option: ModeOption, limit: Limit) -> PlacesAndSteps | None:
        """Places and steps of one option; None where it has none, or more than the limit allows."""
        schedule = option.scheduled.within(limit)
        return schedule and (
            schedule[0],
            with_parameters(self.costs, self.layout, group, option.cost.mode, schedule[1]),
        )
