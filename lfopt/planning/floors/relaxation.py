"""What groups of covers cost at the least: the `CoverModel` whose cheapest cover is a bound on all of them.

A group is legal here wherever its operators have a floor (`GroupFloors`), and costs that floor beside every
tensor once. Fewer operators never cost more, so what a search takes for granted holds.

Where maps may stay on chip between groups (mode chained), each map that fits the buffer as a whole moves for
nothing, whatever else is there; inputs and outputs of the network that do are counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property

from lfopt.fusion import CoverPrice
from lfopt.ir import NEVER
from lfopt.ops import bits
from lfopt.ops.recognise import attentions_of
from lfopt.planning.costs.covers import CoverCosts
from lfopt.planning.costs.group_costs import GroupCosts
from lfopt.planning.floors.group_floors import GroupFloors
from lfopt.planning.floors.rooms import Rooms
from lfopt.planning.floors.streamed import StreamedWeights
from lfopt.planning.modes import SCHEMES
from lfopt.planning.modes.brr import BrrMode
from lfopt.planning.modes.mode import is_single
from lfopt.planning.steps.limit import never

SMALL_MAPS = 16  # so many times smaller than the buffer, maps that stay are as good as none


def relaxations(costs: GroupCosts, late: Callable[[], bool] = never) -> list[CoverRelaxation]:
    """What groups of covers cost at the least: where maps may stay, with room for all, then without.

    Once it is `late`, groups that were not looked at cost what they move once.
    """
    relaxation = CoverRelaxation(costs, keeps=SCHEMES[costs.scheme].chains, late=late)
    if not relaxation.staying:
        return [relaxation]
    return [relaxation, relaxation.with_room_for(costs.hardware.buffer_bytes // SMALL_MAPS)]


class CoverRelaxation:
    """Floors of the groups of covers, as a `CoverModel`."""

    def __init__(self, costs: GroupCosts, *, keeps: bool, late: Callable[[], bool] = never) -> None:
        """`costs`: of the network, without copies. `keeps`: whether maps may stay between groups.

        `late`: whether the time for looking at groups is over; then less is proven.
        """
        covers = CoverCosts(costs)
        flow = costs.dataflow
        hardware = costs.hardware
        self.costs = costs
        self.dataflow = flow
        sizes = list(covers.map_bytes)
        for i, operands in enumerate(flow.operands):
            spared = costs.bounds.spared_bytes(i)
            for m in {operand.map for operand in operands} if spared else ():
                sizes[m] = max(sizes[m] - spared, 0)
        for i, least in _read_through_alone(costs):
            for operand in flow.operands[i]:
                sizes[operand.map] = min(sizes[operand.map], least)
        on_chip = [tensor.rows * hardware.row_bytes(tensor) for tensor in flow.maps]
        self._sizes = [min(pair) for pair in zip(sizes, on_chip, strict=True)]
        # a map that is as large as a level, or larger, does not stay in it as a whole
        self._room = max(hardware.buffer_bytes - 1, hardware.l2_bytes)
        self.staying = 0  # mask of maps that may stay
        if keeps:
            self.staying = sum(1 << m for m, size in enumerate(self._sizes) if size <= self._room)
        self.kept = self.staying
        self._rooms: Rooms | None = None
        self.map_bytes = self._but_staying(sizes)
        self.store_bytes = self.map_bytes
        self.parts_join = True
        self.input_bytes = self._but_staying(covers.input_bytes)
        masks = attentions_of(flow).masks
        groups = costs.groups
        # but for what flights of other groups may not need (`Bounds.shareable_bytes`)
        self.own_bytes = [
            0 if any(weight.name in masks for weight in flow.weights[i]) else own[0]
            for i, own in enumerate(groups.own)
        ]
        self.work = covers.work
        self._masks = masks
        self._shared: dict[int, int] = {}  # bytes of constants that operators share
        self.sharing = groups.with_shared
        self.grouped = self.sharing
        self.free = covers.free
        self._covers = covers
        self._floors = GroupFloors(covers, self.staying, late)

    def _but_staying(self, sizes: Sequence[int]) -> list[int]:
        return [0 if self.staying >> m & 1 else size for m, size in enumerate(sizes)]

    def with_room_for(self, smallest: int) -> CoverRelaxation:
        """The same, but maps of at least so many bytes that stay around a group fit beside each other."""
        flow = self.dataflow
        counted = [0] * len(flow.maps)
        for m in bits(self.staying):
            if flow.producer[m] >= 0 and not flow.is_output[m] and self._sizes[m] >= smallest:
                counted[m] = self._sizes[m]
        limited = copy(self)
        hardware = self.costs.hardware
        weights: StreamedWeights | None = None
        bands = self.costs.modes.get("brr")
        if not hardware.l2_bytes and isinstance(bands, BrrMode):
            facts = bands.bands.slices.facts
            weights = StreamedWeights(flow, hardware, facts, self.costs.groups.own, self._floors.makes_again)
        limited.limit_room(Rooms(flow, hardware, counted, self._room, weights))
        return limited

    def limit_room(self, rooms: Rooms) -> None:
        """Let maps that stay fit beside each other, as far as `rooms` counts them."""
        self._rooms = rooms
        self.grouped = self.dataflow.everything
        self.kept = sum(1 << m for m in bits(self.staying) if not rooms.staying[m])
        self.store_bytes = [max(pair) for pair in zip(self.map_bytes, rooms.staying, strict=True)]

    @cached_property
    def constant_bytes(self) -> int:
        """Bytes that every cover moves beside what its groups are counted with."""
        bounds = self.costs.bounds
        flow = self.dataflow
        parameters = self.costs.groups.parameter_bytes(flow.everything) - bounds.shareable_bytes
        moved = max(parameters, 0)
        for m in bits(self.staying):
            if flow.producer[m] < 0:
                moved += self._covers.input_bytes[m] if flow.readers[m] else 0
            elif flow.is_output[m]:
                moved += self._covers.map_bytes[m]
        return moved

    def group_bytes(self, operators: int, reads: int, stores: int, /) -> int:
        """See `CoverModel`."""
        groups = self.costs.groups
        sharing = operators & groups.with_shared
        if sharing not in self._shared:
            self._shared[sharing] = groups.shared_bytes(sharing, but=self._masks)
        moved = self._shared[sharing]
        if self._rooms is not None:
            moved += self._rooms.lacking_bytes(operators, reads, stores)
        return moved

    def least_extra(self, operators: int, /) -> int | None:
        """See `CoverModel`."""
        floor = self._floors.floor(operators)
        return None if floor >= NEVER else floor

    def dram_bytes(self, operators: int, stores: int, /) -> int | None:
        """See `CoverModel`."""
        if is_single(operators) and operators & self.free:
            return 0
        extra = self.least_extra(operators)
        if extra is None:
            return None
        flow = self.dataflow
        read = flow.arriving(operators)
        moved = sum(self.map_bytes[m] for m in (*read, *bits(stores)))
        moved += self.group_bytes(operators, sum(1 << m for m in read), stores)
        return extra + moved + sum(self.own_bytes[i] for i in bits(operators))

    def ways(self, operators: int, stores: int, /) -> Sequence[CoverPrice]:
        """See `CoverModel`: all work is done once."""
        moved = self.dram_bytes(operators, stores)
        if moved is None:
            return ()
        return (CoverPrice(moved, sum(self.work[i] for i in bits(operators))),)


def _read_through_alone(costs: GroupCosts) -> Iterator[tuple[int, int]]:
    """Operators that a plan with nothing in flight reads through: (operator, bytes that are loaded then).

    Others follow them in flight in the network, and may read just a part of a map there.
    """
    flow = costs.dataflow
    plain = costs.unfused()
    if plain is costs:
        return
    through = {plain.dataflow.operators[i].name for i in bits(plain.bounds.through)}
    for i, call in enumerate(flow.calls):
        if call.then and call.parts[0].operator.name in through:
            first = plain.dataflow.position[call.parts[0].operator.name]
            yield i, min(plain.groups.map_bytes[m] for m in plain.dataflow.results[first])
