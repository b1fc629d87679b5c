"""The interface of execution modes: ways to run a fusion group, for searches, plans, explanations."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from math import inf
from operator import neg
from typing import Any, ClassVar, NamedTuple, Protocol

from lfopt.ir import NEVER, BufferUse, Cost, DramBytes, Hardware, Node, Place
from lfopt.ops import Dataflow, bits
from lfopt.planning.defaults import EPILOGUE, TRAFFIC
from lfopt.planning.groups.groups import Groups
from lfopt.planning.passes.tree import Nest
from lfopt.planning.steps.limit import Limit, Unwritten

PlacesAndSteps = tuple[tuple[Place, ...], tuple[Node, ...]]  # places and steps
# lower bound on the buffer of a group and of all that it is grown into; opaque to all but its mode
Bound = Any


class Traffic(Enum):
    """How the bytes of a group that must be tiled are counted."""

    TILED = "tiled"  # what a tiled schedule moves
    ONCE = "once"  # every tensor once even then: a bound, to compare with tools that count so
    # as once, but operators whose weights reach beta are reported apart (arXiv 2501.00636, section III)
    PAPER = "paper"


DEFAULT_TRAFFIC = Traffic(TRAFFIC)


class SearchSpace(NamedTuple):
    """Options of a search beside the modes of a scheme: what is allowed, and how bytes count."""

    traffic: Traffic = DEFAULT_TRAFFIC
    epilogue: bool = EPILOGUE  # whether an operator and its epilogue may run on any buffer
    # multiply-accumulates that a group may do, over those of its operators, as `Groups.most_macs` has it;
    # infinite in schemes that do not limit what bands make again
    max_recompute: float = inf


class TrafficTerms(NamedTuple):
    """How a group runs in a mode."""

    dram: DramBytes  # by class
    weight_passes: int = 1  # times that the group's weights are loaded
    band_rows: int = 1  # output rows made at a time
    # maps without consumers outside the group that it makes, stores and loads again
    spilled: tuple[str, ...] = ()


class Scheduled(NamedTuple):
    """A group's buffer bytes, and what makes its places and steps."""

    buffer_bytes: int  # on chip
    # makes them, or raises Unwritten beyond the limit; a string: why there are no steps
    make: Callable[[Limit], PlacesAndSteps] | str
    nest: Nest | None = None  # what they are lowered from; None in modes that have no nests
    macs: int | None = None  # multiply-accumulates, where neither a nest nor the operators say how many

    def within(self, limit: Limit) -> PlacesAndSteps | None:
        """Places and steps; None where there are none, or more than the limit allows."""
        if isinstance(self.make, str):
            return None
        try:
            return self.make(limit)
        except Unwritten:
            return None


class ModeOption(NamedTuple):
    """One of the ways in which a group may run in a mode.

    Fields are what `price`, `terms` and `schedule` say of the first one.
    """

    cost: Cost
    terms: TrafficTerms
    scheduled: Scheduled


class ExecutionMode(Protocol):
    """One way in which groups run: bound, price, breakdown, compatible operators, schedule.

    `beta` is the size of the buffer in bytes; nothing else depends on it.

    A group is valid in a mode iff what it needs is less than beta. On a chip with a weight buffer that is
    what all but its weights need, in ways whose weights fit that buffer (`Hardware.buffer_need`). A group
    moves no fewer bytes in any mode than with every tensor once.
    """

    summary: ClassVar[str]  # one clause for the user
    # whether the buffer must hold what the group needs; else the mode runs on any buffer
    whole: ClassVar[bool] = True
    alone: ClassVar[bool] = False  # whether what may run so is a single operator that runs in no other mode
    given: ClassVar[bool] = False  # whether groups run so only where someone says how, and no search asks
    # whether rows pass from operator to operator through rings of the buffer, made in the order of the steps
    rings: ClassVar[bool] = False
    # whether what may run so is attention, which stands for several operators of the network
    flown: ClassVar[bool] = False
    steady: ClassVar[bool] = False  # whether a group moves equally many bytes on every buffer that it fits
    # whether the schedule loads parameters itself; else they come before it
    parameters: ClassVar[bool] = False
    counted: ClassVar[bool] = True  # whether the bytes count in the plan's totals
    # whether groups of the same structure run alike, whatever else is in the network
    structural: ClassVar[bool] = True
    in_paper: ClassVar[bool] = True  # whether arXiv 2501.00636 has it, so that traffic `paper` may

    groups: Groups

    @abstractmethod
    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """All that is the same on any buffer."""

    # -- price -----------------------------------------------------------------------------------------------

    @abstractmethod
    def price(self, mask: int, beta: int, once: int, bound: Bound = None) -> Cost | None:
        """Cost of the group; None where it may not run so.

        `once`: bytes with every tensor once; `bound`: that of `grow`, if it is known.
        """

    @abstractmethod
    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """How a group runs that has a price."""

    @abstractmethod
    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """Places and steps of a group that has a price; `rows`: one of `heights`, where there are any."""

    def schedule_now(self, mask: int, beta: int, rows: int) -> Scheduled:
        """As `schedule`, of as many steps as there may be, where there is no time to look for fewer."""
        return self.schedule(mask, beta, rows)

    def options(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """Ways to run the group on beta, that of the fewest bytes first.

        The others may take fewer cycles or less energy. Here: rows made at a time, one, two, four and so on,
        and as many as fit.
        """
        cost = self.price(mask, beta, once)
        if cost is None:
            return
        terms = self.terms(mask, beta)
        possible = self.heights(mask)
        if not possible:
            yield ModeOption(cost, terms, self.schedule(mask, beta, terms.band_rows))
            return
        most = self.highest(mask, beta)
        for rows in sorted({1, most, *(rows for rows in possible if rows < most and is_single(rows))}):
            yield ModeOption(cost, terms._replace(band_rows=rows), self.schedule(mask, beta, rows))

    def ways(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """All ways to run the group on beta, fewest bytes first: also those that no search would take."""
        return self.options(mask, beta, once)

    def heights(self, mask: int) -> Sequence[int]:
        """Output rows that may be made at a time for the same bytes, most first; () if there is no choice."""
        return ()

    def highest(self, mask: int, beta: int, most: int | None = None) -> int:
        """The most output rows that may be made at a time, and fit; 1 if no more do.

        Found by halving, since a map may have many rows: where a height fits, lower ones are taken to fit.
        `most`: rows that are not exceeded.
        """
        possible = self.heights(mask)
        allowed = 0 if most is None else bisect_left(possible, -most, key=neg)
        fits = bisect_left(possible, 1, allowed, key=lambda rows: self.height_fits(mask, rows, beta))
        if fits < len(possible):
            return possible[fits]
        return 1

    def height_need(self, mask: int, rows: int) -> int:
        """Buffer bytes that the group needs when `rows` of its output rows are made at a time."""
        raise NotImplementedError

    def height_fits(self, mask: int, rows: int, beta: int) -> bool:
        """Whether `height_need` is less than beta."""
        return self.height_need(mask, rows) < beta

    # -- what it needs ---------------------------------------------------------------------------------------

    def need(self, mask: int) -> int:
        """Bytes that beta must exceed for the group to run so; NEVER if no buffer is large enough."""
        return NEVER

    def weights(self, mask: int) -> int:
        """Bytes that a weight buffer must exceed for the group to run so; NEVER if none is large enough."""
        return NEVER

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """The breakdown of the buffer when the group runs so on beta.

        Where beta is too small: on the smallest buffer that is not.
        """
        yield from ()

    def never(self, mask: int) -> str:
        """Why no buffer is large enough, as a clause; asked where `need` says so."""
        return "the group cannot run in this mode"

    # -- bounds ----------------------------------------------------------------------------------------------

    def anywhere(self, mask: int) -> bool:
        """Whether the group may run so on any buffer."""
        return False

    def grow(self, mask: int, bound: Bound, op: int) -> Bound:
        """The bound of the group with an operator added whose index is above all others in it.

        That of the empty group is not read.
        """
        return None

    @abstractmethod
    def may_fit(self, mask: int, bound: Bound, beta: int) -> bool:
        """Whether the group, or a group that it is grown into, may run so on beta, as far as the bound tells.

        It never becomes true by growing.
        """

    def least(self, op: int) -> int:
        """Least buffer bytes of an operator in any group of this mode; NEVER if it is in none."""
        return NEVER

    def extra_bytes(self, mask: int, beta: int) -> int:
        """Lower bound on the weight bytes beyond once of any valid group with these operators.

        NEVER if there is none on beta. It does not fall when operators are added.
        """
        return 0

    def compatible(self, beta: int) -> list[int]:
        """Per operator: a superset of the operators, itself included, that may share a group with it.

        The group runs in this mode on beta.
        """
        return [1 << i for i in range(len(self.groups.dataflow))]


def is_single(mask: int) -> bool:
    """Whether the group is one operator."""
    return mask & (mask - 1) == 0


def tallest(flow: Dataflow, mask: int) -> int:
    """Rows of the tallest result of the group."""
    return max(flow.heights[i] for i in bits(mask))


def place_use(place: Place, what: str = "") -> BufferUse:
    """Buffer use of a place; of maps and of partial sums by rows. `what`: instead of the place's name."""
    if place.purpose == "weight":
        return BufferUse(what or place.name, "weights", 0, 0, place.bytes)
    return BufferUse(
        what or place.name,
        "map" if place.purpose == "map" else "sums",
        place.slots,
        place.slot_bytes,
        place.bytes,
    )


def fullest_uses(places: Sequence[Place], hardware: Hardware) -> Iterator[BufferUse]:
    """Buffer uses of the places that are on chip where the buffer is fullest, and of those in other buffers.

    Places that share space lie over each other: each but the lowest begins where another one ends.
    """
    in_buffer = [place for place in places if hardware.store_of(place.purpose) == "buffer"]
    stacks: dict[int, tuple[Place, ...]] = {0: ()}  # by where they end: places one on the other
    for place in sorted(in_buffer, key=lambda place: (place.address, place.end)):
        if place.address in stacks:
            stacks.setdefault(place.end, (*stacks[place.address], place))
    yield from map(place_use, stacks[max(stacks)])
    for place in places:
        if hardware.store_of(place.purpose) != "buffer":
            yield place_use(place)


def weight_uses(groups: Groups, mask: int) -> Iterator[BufferUse]:
    """Weights held whole, by operator; one that several operators read counts for the first of them."""
    before = upto = 0
    for i in bits(mask):
        upto |= 1 << i
        size = groups.weight_bytes(upto)[1] if mask & groups.with_shared else before + groups.own[i][1]
        if size > before:
            yield BufferUse(groups.dataflow.operators[i].name, "weights", 0, 0, size - before)
        before = size


def slice_widenings(groups: Groups, mask: int) -> Iterator[int]:
    """Channels per slice that a plan may fill spare buffer with.

    Twice as many as the chip must have, four times, up to all there are.
    """
    calls = groups.dataflow.calls
    width = groups.hardware.narrowest_block
    most = max(
        (shape[axis] for i in bits(mask) for shape in calls[i].results for axis in (1, -1) if len(shape) > 1),
        default=1,
    )
    while width < most:
        width *= 2
        yield width
