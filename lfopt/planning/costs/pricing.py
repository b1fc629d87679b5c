"""What a single group costs: its price, the ways in which it may run. Nothing is remembered here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from lfopt.ir import Cost, Hardware
from lfopt.planning.costs.rules import UNMET, Rules
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes import ExecutionMode, ModeOption
from lfopt.planning.modes.alone import ExcludedMode
from lfopt.planning.modes.mode import is_single
from lfopt.planning.written.parts import has_parts


class PricedGroup(NamedTuple):
    """What a group costs."""

    cost: Cost | None  # None: it may not run
    way: ModeOption | None = None  # how it runs, if not as its mode would with the fewest bytes


class GroupPricing:
    """Prices of the groups of one dataflow on one chip, in the modes of one scheme."""

    def __init__(
        self,
        groups: Groups,
        hardware: Hardware,
        modes: Mapping[str, ExecutionMode],
        named: Mapping[str, ExecutionMode],
        rules: Rules,
    ) -> None:
        """`modes`: all of them; `named`: those of the scheme; `rules`: what groups must keep to."""
        self.groups = groups
        self.dataflow = groups.dataflow
        self.hardware = hardware
        self.modes = modes
        self.rules = rules
        self.whole: list[ExecutionMode] = [*named.values()]
        self.alone = [mode for mode in modes.values() if mode.alone]
        self.anywhere = [mode for mode in modes.values() if not mode.whole and not mode.alone]

    def price(self, mask: int, bounds: Sequence[Any] | None = None, once: int | None = None) -> PricedGroup:
        """The mode that moves the fewest bytes; of modes with equal bytes, the first of `MODES`.

        `bounds`: those of the modes of the scheme, if they are known; `once`: bytes with every tensor once.
        """
        if not mask & self.rules.touched:
            return PricedGroup(self._fewest(mask, bounds, once))
        return self._kept_to(mask, bounds, once)

    def _kept_to(self, mask: int, bounds: Sequence[Any] | None, once: int | None) -> PricedGroup:
        """The price of a group that constraints are about."""
        rules = self.rules
        if rules.forbid(mask):
            return PricedGroup(None)
        wanted = rules.mode(mask)
        parts = rules.parts_of_nest(mask)
        if wanted is None:
            cost = self._fewest(mask, bounds, once)
        else:
            cost = self._in_mode(mask, self.modes[wanted])
        way: ModeOption | None = None
        if cost is not None and parts:
            way = self._with_parts(mask, parts)
            cost = None if way is None else way.cost
        broken = cost is None or rules.parts(mask) or rules.contradict(mask)
        if cost is None:
            cost = self._fewest(mask, bounds, once)
        if cost is not None and broken:
            cost = cost._replace(dram_bytes=cost.dram_bytes + UNMET)
        return PricedGroup(cost, way)

    def _in_mode(self, mask: int, mode: ExecutionMode) -> Cost | None:
        """The price of a group in one mode."""
        if not self.groups.parameters_fit(mask) or (mode in self.whole and not self.passes_rows(mask)):
            return None
        return mode.price(mask, self.hardware.buffer_bytes, self.groups.once(mask).total)

    def _with_parts(self, mask: int, parts: frozenset[str]) -> ModeOption | None:
        """The way of the fewest bytes whose nest has these parts; None if there is none."""
        beta = self.hardware.buffer_bytes
        once = self.groups.once(mask).total
        wanted = self.rules.mode(mask)
        best: ModeOption | None = None
        for mode in self.whole if wanted is None else [self.modes[wanted]]:
            if self._in_mode(mask, mode) is None:
                continue
            fitting = (way for way in mode.ways(mask, beta, once) if has_parts(way.scheduled.nest, parts))
            first = next(fitting, None)
            if first is not None and (best is None or first.cost.dram_bytes < best.cost.dram_bytes):
                best = first
        return best

    def _fewest(self, mask: int, bounds: Sequence[Any] | None, once: int | None) -> Cost | None:
        """The price in whatever mode moves the fewest bytes."""
        groups = self.groups
        beta = self.hardware.buffer_bytes
        if not groups.parameters_fit(mask):
            return None
        if once is None:
            once = sum(groups.once_by_class(mask))
        if is_single(mask):
            for mode in self.alone:
                cost = mode.price(mask, beta, once)
                if cost is not None:
                    return cost
        best: Cost | None = None
        if self.passes_rows(mask):
            for mode, bound in zip(self.whole, bounds or [None] * len(self.whole), strict=True):
                cost = mode.price(mask, beta, once, bound)
                if cost is not None and (best is None or cost.dram_bytes < best.dram_bytes):
                    best = cost
                    if cost.dram_bytes <= once and not mask & groups.stepping_over:  # no mode moves less
                        return best
        if mask & self.excluded:
            return best
        for mode in self.anywhere:
            cost = mode.price(mask, beta, once)
            if cost is not None and (best is None or _rank(cost) > _rank(best)):
                best = cost
        return best

    def options(
        self, mask: int, chosen: ExecutionMode, parts: frozenset[str], *, whole: bool | None
    ) -> Iterator[ModeOption]:
        """Ways to run a group whose nests have these parts. See `GroupCosts.options`."""
        row_by_row = self.whole if self.passes_rows(mask) else []
        everywhere = row_by_row if mask & self.excluded else [*row_by_row, *self.anywhere]
        only = chosen.alone or chosen.given or self.rules.mode(mask) is not None
        chained = self.modes.get("chained")
        modes = [chosen] if only else everywhere
        if chosen not in modes and chosen is not chained:
            modes = [chosen, *modes]
        if not only and chained is not None:  # last: of these there may be more later
            modes = [*modes, chained]
        beta = self.hardware.buffer_bytes
        once = self.groups.once(mask).total
        for mode in modes:
            if whole is None or mode.whole == whole:
                for option in mode.options(mask, beta, once):
                    if has_parts(option.scheduled.nest, parts):
                        yield option

    def passes_rows(self, mask: int) -> bool:
        """Whether the maps of a group can pass row by row, as they do in all modes but tiles."""
        return not mask & self.dataflow.too_tall

    @cached_property
    def excluded(self) -> int:
        """Operators that traffic `paper` leaves out."""
        left_out = self.modes["excluded"]
        assert isinstance(left_out, ExcludedMode)
        return left_out.operators(self.hardware.buffer_bytes)


def _rank(cost: Cost) -> tuple[bool, int]:
    """The better, the greater: with steps before without, then fewer bytes."""
    return cost.executable, -cost.dram_bytes
