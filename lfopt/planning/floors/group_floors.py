"""Floors of the modes: bytes beyond once that any group moves which holds some operators.

    floor = the least over the modes in which such a group may run

lbdf, strips  0 where the rings and weights of these operators may fit: a ring is as wide as its widest
              window, whatever joins (`LbdfMode.grow`), and whole before what waits for a reduction over it
resident      0 where what is alive while each of them runs, in any order, may fit
brr           weights times the fewest bands in which their maps may fit (`BandBounds`)
sliced, gated, panels    the least of all groups that hold them (`ListedGroups`)
tiled, attention         what an operator reads again by itself, which an epilogue does not make less

A mode looks at the network as it is; what may be otherwise in a group of a cover is left out
(`LooseFlights`).
"""

from __future__ import annotations

from collections.abc import Callable

from lfopt.ir import NEVER
from lfopt.ops import OPAQUE, bits
from lfopt.planning.costs.covers import CoverCosts
from lfopt.planning.floors.barriers import Barriers
from lfopt.planning.floors.flights import LooseFlights
from lfopt.planning.floors.listed import ListedGroups
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes import ExecutionMode, SearchSpace
from lfopt.planning.modes.lbdf import LbdfMode
from lfopt.planning.modes.mode import is_single
from lfopt.planning.modes.resident import ResidentMode

LISTED = ("sliced", "gated", "panels")
MAKING_AGAIN = ("gated", "panels")
# modes of which growing says what they hold; those of which a floor is found soonest first
GROWN = ("resident", "lbdf", "strips", "brr")


class GroupFloors:
    """Floors of the groups of any cover of one network, memoised."""

    def __init__(self, covers: CoverCosts, kept: int, late: Callable[[], bool]) -> None:
        """`kept`: mask of the maps that may stay on chip between groups, and move for nothing then."""
        costs = covers.costs
        self.costs = costs
        self.flow = covers.dataflow
        self.kept = kept
        self.beta = costs.hardware.buffer_bytes
        self.flights = LooseFlights(self.flow)
        space = SearchSpace(costs.traffic, costs.epilogue, costs.max_recompute)
        groups = costs.groups
        if self.flights.flow is not self.flow:
            groups = Groups(self.flights.flow, costs.hardware)
        self.listed: list[ListedGroups] = []
        for name in LISTED:
            if name in costs.modes:
                modes = [costs.modes[name]]
                if groups is not costs.groups:
                    modes.append(type(costs.modes[name])(groups, space))
                self.listed.append(ListedGroups(covers, name, modes, kept, late))
        self.barriers = Barriers(self.flow, costs.groups.lines)
        self.grown = [costs.modes[name] for name in GROWN if name in costs.modes]
        self.loose = self.grown
        if groups is not costs.groups:
            self.loose = [type(mode)(groups, space) for mode in self.grown]
        flow = self.flow
        self._elementwise = sum(1 << i for i, spec in enumerate(flow.specs) if spec.elementwise)
        self._known: dict[int, int] = {}
        self._alone: dict[int, int] = {}
        # (floor, modes by index that no group runs in), by operators, those that move, and whether flights
        # are others
        self._known_grown: dict[tuple[int, int, bool], tuple[int, int]] = {}

    def floor(self, operators: int) -> int:
        """Bytes beyond once that a group moves which holds these operators; NEVER if none does."""
        if operators not in self._known:
            self._known[operators] = self._floor(operators)
        return self._known[operators]

    def makes_again(self, operators: int) -> bool:
        """Whether some group with these operators may run in a mode that makes slices again from others."""
        return any(groups.floor(operators) < NEVER for groups in self.listed if groups.name in MAKING_AGAIN)

    def _floor(self, operators: int) -> int:
        """As `floor`: that of these operators together, or of one of them, if that is more."""
        together = self._floor_together(operators)
        if is_single(operators):
            return together
        first = operators & -operators
        return max(together, self.floor(first), self._largest_alone(operators ^ first))

    def _largest_alone(self, operators: int) -> int:
        """The largest floor of a single operator."""
        if operators not in self._alone:
            first = operators & -operators
            rest = operators ^ first
            alone = self.floor(first)
            self._alone[operators] = max(alone, self._largest_alone(rest)) if rest else alone
        return self._alone[operators]

    def _floor_together(self, operators: int) -> int:
        least = self._grown_floor(operators)
        without_following = operators & ~self.flights.following(operators)
        for groups in self.listed:
            for held in {operators, without_following}:
                if least:
                    least = min(least, groups.floor(held))
        if least == 0:
            return 0
        return min(least, self._tiled_floor(operators))

    def _grown_floor(self, operators: int) -> int:
        """Of the modes that any operators may run in.

        Flights are those of the network, or some are others: then what that takes is in the group too.
        """
        flights = self.flights
        least = self._least_of(self.grown, operators & ~flights.never_counted, 0)
        for pair in flights.changes(operators):
            if least == 0:
                break
            larger = operators | pair
            least = min(least, self._least_of(self.loose, flights.certain(larger), flights.moving(larger)))
        return least

    def _least_of(self, modes: list[ExecutionMode], operators: int, moving: int) -> int:
        """`moving`: operators that may run later than their index says."""
        if not operators:
            return 0
        loose = modes is self.loose
        key = operators, moving & operators, loose
        if key not in self._known_grown:
            fewer = operators & (operators - 1)
            # a mode that has no group with fewer operators has none with more
            _, without = self._known_grown.get((fewer, moving & fewer, loose), (0, 0))
            least = NEVER
            for k, mode in enumerate(modes):
                if without >> k & 1:
                    continue
                floor = self._floor_in(mode, operators, moving)
                without |= int(floor >= NEVER) << k
                least = min(least, floor)
                if least == 0:
                    break
            self._known_grown[key] = least, without
        return self._known_grown[key][0]

    def _floor_in(self, mode: ExecutionMode, operators: int, moving: int) -> int:
        if isinstance(mode, ResidentMode):  # a cover may run its operators in another order
            least = mode.resident.least_in_any_order(operators & ~moving)
            return 0 if least < self.beta else NEVER
        if not isinstance(mode, LbdfMode):
            return mode.extra_bytes(operators, self.beta)
        held = sum(mode.kept_bytes[i] for i in bits(operators))
        if held >= self.beta:  # which is found out sooner than with all rings
            return NEVER
        held = 0
        grown = 0
        for i in bits(operators):
            held = mode.grow(grown, held, i)
            grown |= 1 << i
            if held >= self.beta:
                return NEVER
        held += self.barriers.more_bytes(operators, mode.least_row_bytes)
        return 0 if held < self.beta else NEVER

    def _tiled_floor(self, operators: int) -> int:
        """Of the modes that run on any buffer: those of single operators and epilogue groups."""
        first = operators & -operators
        if operators & ~first & ~self._elementwise:
            return NEVER
        op = first.bit_length() - 1
        reads_kept = any(self.kept >> operand.map & 1 for operand in self.flow.operands[op])
        if reads_kept or first & self._elementwise or self.flow.specs[op] is OPAQUE:
            return 0
        return self.costs.bounds.reread_bytes(op)
