"""The ways in which a stage of a chain may run: in each mode, beside the maps that stay on chip around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from lfopt.ir import DramBytes, Store
from lfopt.ops import bits
from lfopt.planning.chains.joining import Joining
from lfopt.planning.chains.stages import Around, ChainStage, StageBuilder
from lfopt.planning.costs.group_costs import GroupCosts
from lfopt.planning.modes import SCHEMES, ChainPart, Linked, ModeOption, Scheduled
from lfopt.planning.modes.mode import NEVER
from lfopt.planning.steps.addresses import Life, allocate
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.steps.limit import Limit

MOST_OPTIONS = 12  # of a mode that are looked at
KEPT = 64  # lists of options that are remembered
MOST_STEPS = 20_000  # of a stage that is worth a look, where another way is known


class Room(NamedTuple):
    """Bytes of buffer that a stage may take."""

    left: int  # beside maps that stay and that it does not touch
    budgets: tuple[int, ...]  # what a mode may be given of them, as maps that it touches stay or do not


class StageOption(NamedTuple):
    """One option of a mode for a stage."""

    mode: str
    budget: int  # bytes of buffer that the mode is given
    number: int  # among the options of the mode with that budget


class BuiltOption(NamedTuple):
    """One option, with the stage that it makes."""

    option: StageOption
    stage: ChainStage


class StageWays:
    """Ways to run the stages of one network's chains."""

    def __init__(self, costs: GroupCosts) -> None:
        self.costs = costs
        self.flow = costs.dataflow
        self.sizes = costs.groups
        self.hardware = costs.hardware
        self.layout = BufferLayout(self.flow, costs.hardware)
        # the options that were asked for last, by group, mode and bytes of buffer
        self._latest: dict[tuple[int, str, int], list[ModeOption]] = {}
        # per map: bytes of it whole on chip
        self.bytes = [tensor.rows * costs.hardware.row_bytes(tensor) for tensor in self.flow.maps]

    def room(self, mask: int, around: Around, less: int = 0) -> Room:
        """What a stage may take; `less`: bytes that it must do without."""
        enter, leave = around
        touched = self.flow.touched(mask)
        left = self.hardware.buffer_bytes - sum(self.bytes[m] for m in (enter & leave) - touched) - less
        before, after = (sum(self.bytes[m] for m in maps & touched) for maps in around)
        budgets = (left, left - min(before, after), left - max(before, after), left - before - after)
        return Room(left, tuple(dict.fromkeys(budgets)))

    def at_least(self, total: int, dram: DramBytes, mask: int, around: Around) -> int:
        """Lower bound on `total` bytes: what remains if all that is loaded repeatedly is on chip."""
        enter, leave = around
        read = {o.map for i in bits(mask) for o in self.flow.operands[i]}
        written = {m for i in bits(mask) for m in self.flow.results[i]}
        total -= sum(self.sizes.map_bytes[m] for m in (enter & read) - written) + sum(
            self.sizes.map_bytes[m] for m in leave & written
        )
        if (enter | leave) & read - written:
            total -= dram.input - self.sizes.once(mask).input
        return total

    def fewest(
        self, mask: int, around: Around, room: Room
    ) -> tuple[tuple[str, int] | None, ChainStage | None]:
        """((mode, bytes of buffer that it is given), stage) of the mode that moves the fewest bytes."""
        choice: tuple[str, int] | None = None
        best: ChainStage | None = None
        for least, name, same in self._ranked(mask, around, room):
            if best is not None and least >= best.dram.total:
                break
            for budget in dict.fromkeys((same[0], same[-1])):  # a mode widens slices to fill what it is given
                stage = self.stage(mask, name, budget, around)
                better = stage is not None and (best is None or stage.dram.total < best.dram.total)
                if stage is not None and better and self._fits(stage, around, room):
                    choice = name, budget
                    best = stage
                    break
        return choice, best

    def _ranked(self, mask: int, around: Around, room: Room) -> list[tuple[int, str, list[int]]]:
        """(bytes that it moves at the least, mode, budgets) of ways to run a stage, fewest bytes first."""
        costs = self.costs
        once = self.sizes.once(mask).total
        # (mode, bytes, buffer) to (bytes that it moves at the least, budgets)
        tried: dict[tuple[str, int, int], tuple[int, list[int]]] = {}
        for name in SCHEMES[costs.scheme].modes if costs.passes_rows(mask) else ():
            mode = costs.modes[name]
            for budget in room.budgets:
                price = mode.price(mask, budget, once) if budget > 0 else None
                if price is None:
                    continue
                key = name, price.dram_bytes, price.required_bytes
                if key not in tried:
                    dram = mode.terms(mask, budget).dram
                    tried[key] = self.at_least(price.dram_bytes, dram, mask, around), []
                tried[key][1].append(budget)
        ways = [(least, name, same) for (name, *_), (least, same) in tried.items()]
        return sorted(ways, key=lambda way: way[0])

    def stage(self, mask: int, name: str, budget: int, around: Around) -> ChainStage | None:
        """The stage in a mode that is given so many bytes; None if it does not run so."""
        mode = self.costs.modes[name]
        rows = 1 if mode.heights(mask) else mode.terms(mask, budget).band_rows
        return self._built(mask, mode.schedule(mask, budget, rows), around, Limit())

    def options(
        self, mask: int, around: Around, room: Room, within: Callable[[int], bool]
    ) -> Iterator[BuiltOption]:
        """Every option of every mode in which the stage fits.

        `within`: whether so many bytes are few enough for an option to be looked at.
        """
        for _, name, same in self._ranked(mask, around, room):
            smallest = self._options(mask, name, same[-1])
            too_large = NEVER  # bytes of buffer of the least option of the mode that did not fit
            for number, option in enumerate(smallest):
                least = self.at_least(option.cost.dram_bytes, option.terms.dram, mask, around)
                if not within(least):
                    continue
                # a mode fills what it is given, which may be too much beside the maps that stay
                for budget in dict.fromkeys((same[0], same[-1])):
                    own = StageOption(name, budget, number)
                    size = self._buffer_bytes(mask, own)
                    if size >= too_large:
                        continue
                    stage = self.in_option(mask, around, own)
                    if stage is None:
                        continue
                    if self._fits(stage, around, room):
                        if within(stage.dram.total):
                            yield BuiltOption(own, stage)
                        break
                    too_large = size

    def _buffer_bytes(self, mask: int, option: StageOption) -> int:
        """Bytes of buffer that an option takes where no map stays; NEVER where there is none."""
        options = self._options(mask, option.mode, option.budget)
        if option.number >= len(options):
            return NEVER
        return options[option.number].scheduled.buffer_bytes

    def _options(self, mask: int, name: str, budget: int) -> list[ModeOption]:
        key = mask, name, budget
        if key not in self._latest:
            if len(self._latest) >= KEPT:
                self._latest.clear()
            options = self.costs.modes[name].options(mask, budget, self.sizes.once(mask).total)
            self._latest[key] = [*islice(options, MOST_OPTIONS)]
        return self._latest[key]

    def in_option(self, mask: int, around: Around, option: StageOption) -> ChainStage | None:
        """The stage in an option of its own, or of another of the same structure with as much room."""
        options = self._options(mask, option.mode, option.budget)
        if option.number >= len(options):
            return None
        return self._built(mask, options[option.number].scheduled, around, Limit(most=MOST_STEPS))

    def join(self, parts: Sequence[ChainPart]) -> Linked | tuple[int, int]:
        """The chain of some stages; where it does not fit, see `Joining.build`."""
        mask = sum(part.stage.mask for part in parts)
        joined = Joining(self.flow, self.layout, mask)
        for stage, around in parts:
            loads = [
                self.layout.load_parameters(*pair)
                for i in bits(stage.mask)
                for pair in self.sizes.parameters_of(i)
            ]
            joined.add(stage, loads, {*around.enter}, {*around.leave})
        outcome = joined.build(self.hardware.buffer_bytes)
        return outcome._replace(parts=tuple(parts)) if isinstance(outcome, Linked) else outcome

    def _built(self, mask: int, scheduled: Scheduled, around: Around, limit: Limit) -> ChainStage | None:
        """The stage of a mode's schedule; None if there is none."""
        schedule = scheduled.within(limit)
        if schedule is None:
            return None
        stage = StageBuilder(self.layout, mask, schedule, around).stage()
        if stage.macs > self.sizes.most_macs(mask, self.costs.max_recompute):
            return None
        # no step says when a map without elements is used
        if stage.used.keys() == stage.held.keys():
            return stage
        return None

    def _fits(self, stage: ChainStage, around: Around, room: Room) -> bool:
        """Whether a stage fits by itself, with the maps that are on chip around it."""
        hardware = self.hardware
        lives = dict[Store, list[Life]]()
        for lot in stage.lots:
            lives.setdefault(hardware.store_of(stage.places[lot.places[0][0]].purpose), []).append(lot.life)
        for m, k in stage.held.items():
            first, last = stage.used[m]
            if m in stage.over.values():
                continue
            start = 0 if m in around.enter or m in stage.over else first
            lives.setdefault("buffer", []).append(
                Life(stage.places[k].bytes, start, len(stage.nodes) - 1 if m in around.leave else last)
            )
        return all(
            allocate(live)[1] < (room.left if store == "buffer" else hardware.stores[store])
            for store, live in lives.items()
        )
