"""What groups of covers cost: each is priced as a network of its own, whose outputs are what it stores.

In a cover (`search.cover`) an operator may run in several groups, and a group stores only what is read later.
Its cost follows from its operators and its stores alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property

from lfopt.fusion import CoverPrice
from lfopt.ir import FREE
from lfopt.ops import Call, Dataflow, bits
from lfopt.ops.excerpt import excerpt
from lfopt.planning.costs.alike import Structures
from lfopt.planning.costs.group_costs import GroupCosts
from lfopt.planning.costs.schemes import seen_by
from lfopt.planning.modes.mode import is_single


class CoverCosts:
    """The `CoverModel` of a network, with the modes of one scheme. Groups of one structure cost the same.

    Work is multiply-accumulates, or cycles (`in_cycles`).
    """

    def __init__(self, costs: GroupCosts) -> None:
        """`costs`: of the groups of partitions of the network."""
        self.costs = costs
        self.dataflow = costs.dataflow
        self.map_bytes = costs.groups.map_bytes
        self.store_bytes = self.map_bytes
        self.input_bytes = costs.bounds.reading.together
        self.own_bytes = [
            own[0] + parameters
            for own, parameters in zip(costs.groups.own, costs.groups.parameters, strict=True)
        ]
        self.work: Sequence[int] = costs.dataflow.macs
        self.free = costs.bounds.through  # operators that are read through where they are alone
        self.sharing = costs.groups.with_shared
        self.grouped = self.sharing
        self.kept = 0
        self.parts_join = False
        self._structures = Structures(costs.dataflow)
        self._known: dict[Hashable, int | None] = {}
        self._ways: dict[Hashable, Sequence[CoverPrice]] = {}  # their work is multiply-accumulates

    @property
    def asked(self) -> int:
        """Structures that were priced."""
        return len(self._known)

    def in_cycles(self, cycles: Sequence[float]) -> CoverCosts:
        """The same prices, with cycles for work. `cycles`: per operator, where it runs once."""
        paced = copy(self)
        paced.work = [round(each) for each in cycles]
        return paced

    def group_bytes(self, operators: int, _reads: int, _stores: int, /) -> int:
        """See `CoverModel`: no map stays."""
        return self.costs.groups.shared_bytes(operators)

    def least_extra(self, _operators: int, /) -> int | None:
        """See `CoverModel`: nothing is known."""
        return 0

    def dram_bytes(self, operators: int, stores: int, /) -> int | None:
        """See `CoverModel`."""
        if is_single(operators) and operators & self.free:
            return 0
        key = self.structure(operators, stores)
        if key not in self._known:
            costs, group = self.costs_of(operators, stores)
            price = costs.price(group)
            self._known[key] = None if price is None else price.dram_bytes
        return self._known[key]

    def ways(self, operators: int, stores: int, /) -> Sequence[CoverPrice]:
        """See `CoverModel`."""
        if is_single(operators) and operators & self.free:
            return (CoverPrice(0, 0),)
        key = self.structure(operators, stores)
        if key not in self._ways:
            cheapest = self._way(operators, stores)
            ways = [cheapest]
            if cheapest is not None and cheapest.work > self._macs(operators):
                ways.append(self._way(operators, stores, 1.0))
            self._ways[key] = [way for way in ways if way is not None]
        return [way._replace(work=self._work(operators, way.work)) for way in self._ways[key]]

    def _way(self, operators: int, stores: int, max_recompute: float | None = None) -> CoverPrice | None:
        costs, group = self.costs_of(operators, stores, max_recompute)
        price = costs.price(group)
        if price is None:
            return None
        return CoverPrice(price.dram_bytes, costs.macs(group))

    def _macs(self, operators: int) -> int:
        """Multiply-accumulates of operators, each once."""
        return sum(self.dataflow.macs[i] for i in bits(operators))

    def _work(self, operators: int, macs: int) -> int:
        """Work of a group that does `macs` multiply-accumulates; repeated ones cost as much as the others."""
        work = sum(self.work[i] for i in bits(operators))
        once = self._macs(operators)
        return work * macs // once if once else work

    def structure(self, operators: int, stores: int) -> Hashable:
        """Equal for groups that cost the same, since they differ in names and constant data alone."""
        return self._structures.key(operators, stores)

    def costs_of(
        self, operators: int, stores: int, max_recompute: float | None = None
    ) -> tuple[GroupCosts, int]:
        """(costs of a dataflow, mask of the group in it).

        The dataflow is that of the network, where the group stores what is read outside.
        `max_recompute`: multiply-accumulates that it may do over those of its operators; None: as many as the
        search allows.
        """
        costs = self.costs
        if max_recompute is None:
            max_recompute = costs.max_recompute
        needed_outside = sum(1 << m for m in self.dataflow.leaving(operators))
        if stores == needed_outside and max_recompute == costs.max_recompute:
            return costs, operators
        alone = self.alone(operators, stores, max_recompute)
        return alone, alone.dataflow.everything

    def alone(self, operators: int, stores: int, max_recompute: float) -> GroupCosts:
        """Costs of a group as a network of its own, new ones each time."""
        costs = self.costs
        return GroupCosts(
            self._alone(operators, stores),
            costs.hardware,
            costs.traffic,
            scheme=costs.scheme,
            epilogue=costs.epilogue,
            max_recompute=max_recompute,
        )

    def _alone(self, operators: int, stores: int) -> Dataflow:
        """A group as a network of its own. Its calls are those of the network, which know much already."""
        costs = self.costs
        part = excerpt(self.dataflow, operators, stores)
        flow = seen_by(costs.scheme, part, costs.hardware, costs.traffic, None, FREE)
        calls = [self._calls.get(_names(call), call) for call in flow.calls]
        return replace(flow, calls=tuple(calls))

    @cached_property
    def _calls(self) -> dict[Hashable, Call]:
        """Calls of the network, by what they are."""
        return {_names(call): call for call in self.dataflow.calls}


def _names(call: Call) -> Hashable:
    """What tells a call from others of the same network: its operators."""
    return call.attention is None, tuple(part.operator.name for part in call.parts)
