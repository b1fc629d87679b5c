"""What groups of covers cost at the least: the `CoverModel` whose cheapest cover is a bound on all of them.

A group is legal here wherever its operators have a floor (`GroupFloors`), and costs that floor beside every
tensor once. Fewer operators never cost more, so what a search takes for granted holds.

Where maps may stay on chip between groups (mode chained), each map that fits the buffer as a whole moves for
nothing, whatever else is there; inputs and outputs of the network that do are counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from lfopt.fusion import CoverPrice
from lfopt.ir import NEVER
from lfopt.ops import bits
from lfopt.ops.recognise import attentions_of
from lfopt.planning.costs.covers import CoverCosts
from lfopt.planning.costs.group_costs import GroupCosts
from lfopt.planning.floors.group_floors import GroupFloors
from lfopt.planning.modes.mode import is_single
from lfopt.planning.steps.limit import never


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
        # a map that is as large as a level, or larger, does not stay in it as a whole
        largest = max(hardware.buffer_bytes - 1, hardware.l2_bytes)
        self.kept = 0
        if keeps:
            self.kept = sum(1 << m for m, size in enumerate(covers.map_bytes) if size <= largest)
        self.map_bytes = self._but_kept(covers.map_bytes)
        for i, operands in enumerate(flow.operands):
            spared = costs.bounds.spared_bytes(i)
            for m in {operand.map for operand in operands} if spared else ():
                self.map_bytes[m] = max(self.map_bytes[m] - spared, 0)
        self.input_bytes = self._but_kept(covers.input_bytes)
        masks = attentions_of(flow).masks
        groups = costs.groups
        # but for what flights of other groups may not need (`Bounds.shareable_bytes`)
        self.own_bytes = [
            0 if any(weight.name in masks for weight in flow.weights[i]) else own[0]
            for i, own in enumerate(groups.own)
        ]
        self.free = covers.free
        self._covers = covers
        self._floors = GroupFloors(covers, self.kept, late)

    def _but_kept(self, sizes: Sequence[int]) -> list[int]:
        return [0 if self.kept >> m & 1 else size for m, size in enumerate(sizes)]

    @cached_property
    def constant_bytes(self) -> int:
        """Bytes that every cover moves beside what its groups are counted with."""
        bounds = self.costs.bounds
        flow = self.dataflow
        groups = self.costs.groups
        constants = groups.weight_bytes(flow.everything)[0] - sum(own[0] for own in groups.own)
        parameters = groups.parameter_bytes(flow.everything) - bounds.shareable_bytes
        moved = max(constants - bounds.mask_bytes, 0) + max(parameters, 0)
        for m in bits(self.kept):
            if flow.producer[m] < 0:
                moved += self._covers.input_bytes[m] if flow.readers[m] else 0
            elif flow.is_output[m]:
                moved += self._covers.map_bytes[m]
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
        read = {o.map for i in bits(operators) for o in flow.operands[i] if not flow.makes(operators, o.map)}
        moved = sum(self.map_bytes[m] for m in (*read, *bits(stores)))
        return extra + moved + sum(self.own_bytes[i] for i in bits(operators))

    def ways(self, operators: int, stores: int, /) -> Sequence[CoverPrice]:
        """See `CoverModel`: products are done once."""
        moved = self.dram_bytes(operators, stores)
        if moved is None:
            return ()
        return (CoverPrice(moved, sum(self.dataflow.macs[i] for i in bits(operators))),)
