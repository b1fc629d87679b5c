"""Lower bounds on the DRAM bytes of schemes, and operators that may share a group: a search's proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce
from operator import or_

from lfopt.ir import NEVER, DramBytes
from lfopt.ops import OPAQUE, Dataflow, Tiling, bits
from lfopt.ops.content import normalises_all
from lfopt.ops.footprint import folds_rows
from lfopt.ops.phases import beyond_compulsory
from lfopt.ops.recognise import attentions_of
from lfopt.planning.bounds.multicut import CutCosts, served, unavoidable
from lfopt.planning.bounds.phases import uses
from lfopt.planning.bounds.reading import LeastReads
from lfopt.planning.bounds.stretches import stretches
from lfopt.planning.groups.compatibility import convex
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes import ExecutionMode
from lfopt.planning.steps.limit import never
from lfopt.planning.tiling.contraction_tiling import input_channels


class Bounds:
    """Bounds for one scheme on one buffer.

    `whole`: the modes of the scheme; `anywhere`: those that run on any buffer; `counted`: the operators that
    are not excluded; `flights`: whether the scheme has operators in flight; `through`: the operators that may
    be read through, in mode `access`.
    """

    def __init__(
        self,
        groups: Groups,
        whole: Sequence[ExecutionMode],
        anywhere: Sequence[ExecutionMode],
        beta: int,
        counted: int,
        *,
        epilogue: bool,
        flights: bool,
        through: int = 0,
        late: Callable[[], bool] = never,
    ) -> None:
        """`late`: whether the time for what takes long is over; what is not looked at then proves nothing."""
        self.groups = groups
        self.whole = whole
        self.anywhere = anywhere
        self.beta = beta
        self.counted = counted
        self.epilogue = epilogue
        self.flights = flights
        self.through = through
        self.late = late
        self.reading = LeastReads.of(groups.dataflow, groups.map_bytes, through)
        self._rereads: dict[int, int] = {}

    @cached_property
    def compulsory_bytes(self) -> int:
        """What no schedule avoids, in any scheme on any buffer: see `lfopt.planning.groups.compulsory`."""
        return self.compulsory.total

    @cached_property
    def compulsory(self) -> DramBytes:
        """`compulsory_bytes` by class."""
        compulsory = self.groups.compulsory
        plain = compulsory.flow is self.groups.dataflow
        return compulsory.dram(self.counted if plain else compulsory.flow.everything)

    @cached_property
    def once_bytes(self) -> int:
        """What no plan of groups avoids, whatever is in flight.

        Weights, parameters, graph inputs and outputs once, as groups move them, of the operators that are not
        excluded.
        """
        return self._once - self.shareable_bytes

    @cached_property
    def shareable_bytes(self) -> int:
        """Parameter bytes that flights other than those at hand might save; 0 without flights."""
        if self.flights:
            return self.groups.shareable_bytes(self.counted)
        return 0

    @cached_property
    def _once(self) -> int:
        """`once_bytes` with the flights at hand."""
        groups = self.groups
        flow = self.groups.dataflow
        counted = self.counted
        moved = [
            self.reading.together[m] if flow.producer[m] < 0 else size
            for m, size in enumerate(groups.map_bytes)
            if flow.producer[m] < 0
            and flow.readers[m] & counted
            or flow.is_output[m]
            and flow.producer[m] >= 0
            and counted >> flow.producer[m] & 1
        ]
        return (
            sum(moved) + groups.weight_bytes(counted)[0] + groups.parameter_bytes(counted) - self.mask_bytes
        )

    @cached_property
    def mask_bytes(self) -> int:
        """Bytes of constants that only say which keys attention sees; 0 without flights.

        Where attention is one operator, it does not load them.
        """
        flow = self.groups.dataflow
        hardware = self.groups.hardware
        if not self.flights:
            return 0
        return sum(
            hardware.constant_bytes(flow.graph.tensors[name].elements, bias=name in flow.biases)
            for name in attentions_of(flow).masks
        )

    @cached_property
    def without_recompute_bytes(self) -> int:
        """No schedule that computes nothing twice moves less, in any groups and modes.

        Beside the compulsory bytes: of a map whose mean, mixed over all channels, gates it
        (squeeze-and-excite), or that is normalised as a whole, all must have existed before any of it can be
        used. What the buffer (and the second level) does not hold at that moment is stored to DRAM, unless it
        is there, and loaded. Or, where that is more: what contractions move whose weights do not fit
        (`lfopt.ops.phases`).
        """
        groups = self.groups
        flow = self.groups.dataflow
        beta = self.beta + self.groups.hardware.l2_bytes
        moved = 0
        for m, tensor in enumerate(flow.maps):
            excess = tensor.elements * groups.hardware.element_bytes - (beta - 1)
            if excess > 0 and any(self.counted >> j & 1 for j in _gates(flow, m)):
                moved += excess * (1 if flow.producer[m] < 0 or flow.is_output[m] else 2)
        on_chip = beta + groups.hardware.weight_buffer_bytes
        return self.compulsory_bytes + max(
            moved, beyond_compulsory(uses(flow, groups.hardware, self.counted), groups.hardware, on_chip)
        )

    @cached_property
    def least_bytes(self) -> int:
        """Lower bound on the DRAM bytes of any scheme.

        Every tensor once, what groups pay that reach far or end early, and re-reads of what must be tiled in
        every mode.
        """
        return self._once + sum(self.apart)

    @cached_property
    def recomputing_bytes(self) -> int:
        """As `least_bytes`, whatever operators are copied.

        A map whose readers cannot share a group with its producer may then be computed again. What no
        schedule avoids may be more: of several parts of an input, `once_bytes` counts the smallest.
        """
        return max(self.once_bytes + sum(self._retiled), self.compulsory_bytes)

    def rest_bytes(self, executed: int, before: int, group: int) -> int:
        """Lower bound on the DRAM bytes of the operators outside a downset that `group` has joined.

        `before` is that figure without the group. Counted are their weights and parameters, the graph outputs
        that they make, each map that they need but do not make, once, and what `least_bytes` adds.
        """
        groups = self.groups
        flow = self.groups.dataflow
        load_bytes = self.reading.together
        counted = self.counted & ~executed
        rest = counted & ~group
        seen: set[int] = set()
        for i in bits(group):
            before -= self.apart[i]
            if counted >> i & 1:
                before -= groups.own[i][0] + groups.parameters[i]
            for operand in flow.operands[i]:
                m = operand.map
                if m not in seen and (flow.producer[m] < 0 or not group >> flow.producer[m] & 1):
                    seen.add(m)
                    if flow.readers[m] & counted and not flow.readers[m] & rest:
                        before -= load_bytes[m]
            for m in flow.results[i]:
                if flow.is_output[m] and counted >> i & 1:
                    before -= groups.map_bytes[m]
                if flow.readers[m] & rest:
                    before += load_bytes[m]
        if group & groups.with_shared:
            gone = {pair for i in bits(group & groups.with_shared & counted) for pair in groups.shared[i]}
            kept = {pair for i in bits(rest & groups.with_shared) for pair in groups.shared[i]}
            before -= sum(size for _, size in gone - kept)
        return before

    @cached_property
    def compatible(self) -> tuple[int, ...]:
        """Per operator: operators that may share a legal group with it, itself included."""
        return tuple(reduce(or_, masks) for masks in zip(*self._compatible, strict=True))

    @cached_property
    def _compatible(self) -> list[list[int]]:
        """As `compatible`, in each mode, those that run on any buffer first."""
        anywhere = [mode.compatible(self.beta) for mode in self.anywhere]
        return anywhere + [convex(self.groups.dataflow, mode.compatible(self.beta)) for mode in self.whole]

    @cached_property
    def apart(self) -> list[int]:
        """Per operator: bytes that no partition avoids, since consumers are too far or something moves twice.

        See `lfopt.planning.bounds.stretches`, `lfopt.planning.bounds.multicut`.
        """
        flow = self.groups.dataflow
        counted = self.counted
        reading = self.reading
        extra = stretches(flow, self._extra_bytes, self.late)
        costs: list[CutCosts] = []
        for m, size in enumerate(reading.each):
            written = (
                flow.producer[m] >= 0 and bool(counted >> flow.producer[m] & 1) and not flow.is_output[m]
            )
            loaded = not flow.readers[m] & ~counted
            readers = reading.readers[m]
            shared = served(flow, extra, self.compatible, readers)
            costs.append(CutCosts(size * written, size * loaded, readers, shared))
        return unavoidable(flow, extra, costs, self.late, self.through)

    def _extra_bytes(self, first: int, last: int, between: int) -> int:
        """E of a stretch: bytes beyond once of any group with two operators and all between, or NEVER."""
        if not self.groups.parameters_fit(between):
            return NEVER
        least = NEVER
        for mode, compatible in zip((*self.anywhere, *self.whole), self._compatible, strict=True):
            if least and compatible[first] >> last & 1:
                least = min(
                    least,
                    mode.extra_bytes(between, self.beta) or (0 if mode.whole else self.reread_bytes(first)),
                )
        return least

    def reread_bytes(self, op: int) -> int:
        """Bytes that an operator re-reads alone or as anchor of an epilogue group, in modes for any buffer.

        An epilogue only adds to what its tiles must hold, unless they share weights. An operator that may
        stand in an epilogue itself is left out: there it re-reads nothing. One of which no schedule is known
        on this buffer moves what it must, as far as bounds know.
        """
        if op not in self._rereads:
            self._rereads[op] = self._reread_alone(op)
        return self._rereads[op]

    def _reread_alone(self, op: int) -> int:
        groups = self.groups
        mask = 1 << op
        if groups.dataflow.specs[op] is OPAQUE:  # it has a mode of its own, in which every tensor moves once
            return 0
        if self.epilogue and groups.follows[op] or groups.with_shared & mask:
            return 0
        return max(self._beyond_once(op), 0)

    def spared_bytes(self, op: int) -> int:
        """Bytes of its operands that an operator steps over, and does not load, in modes for any buffer."""
        if not self.groups.stepping_over >> op & 1:
            return 0
        return max(-self._beyond_once(op), 0)

    def _beyond_once(self, op: int) -> int:
        """Bytes that an operator moves alone in modes for any buffer, beyond every tensor once."""
        once = sum(self.groups.once_by_class(1 << op))
        costs = [
            cost.dram_bytes
            for mode in self.anywhere
            if (cost := mode.price(1 << op, self.beta, once))
            and callable(mode.schedule(1 << op, self.beta, 1).make)
        ]
        return min(costs, default=once) - once

    @cached_property
    def _retiled(self) -> list[int]:
        """Per operator: bytes that it re-reads in any group, as no whole mode fits even by its bound."""
        return [
            0
            if self.late() or any(mode.least(i) < self.beta for mode in self.whole)
            else self.reread_bytes(i)
            for i in range(len(self.groups.dataflow))
        ]

    @cached_property
    def forced(self) -> list[int]:
        """Per map: bytes of its spill beyond those of every tensor once.

        No group holds its producer and all of its readers: it is stored and loaded again.
        """
        flow = self.groups.dataflow
        spilled: list[int] = []
        for m, size in enumerate(self.groups.map_bytes):
            producer = flow.producer[m]
            apart = flow.readers[m] & ~self.compatible[producer] if producer >= 0 else 0
            written = bool(apart) and not flow.is_output[m] and bool(self.counted >> producer & 1)
            spilled.append(size * (written + bool(apart & self.counted)))
        return spilled


def _gates(flow: Dataflow, m: int) -> Iterator[int]:
    """Operators that wait for all of a map, and then use all of it.

    Gates (squeeze-and-excite): elementwise operators that read all of a map, and every element of whose
    result depends on all of that map through its mean. And normalisations of the map as a whole.
    """
    for i in bits(flow.readers[m]):
        if any(o.map == m and normalises_all(flow.calls[i], o.input) for o in flow.operands[i]):
            yield i
            continue
        if (
            flow.specs[i].tiling is not Tiling.FOLD
            or not folds_rows(flow.calls[i], 0)
            or len(flow.operands[i]) > 1
        ):
            continue
        channels = flow.calls[i].result_tensors[0].elements
        if channels != flow.maps[m].shape[1]:
            continue
        # operators every element of whose result depends on all of the mean; in `apart`, on its own channel
        mixed = 0
        apart = 1 << i
        for j in bits(flow.descendants[i]):
            single = flow.specs[j].elementwise
            contracts = flow.specs[j].tiling is Tiling.CONTRACT
            if not single and not contracts:
                continue
            makers = reduce(
                or_,
                (
                    1 << p
                    for o in flow.operands[j]
                    if (p := flow.producer[o.map]) >= 0 and (single or o.input == 0)
                ),
                0,
            )
            if makers & mixed:
                mixed |= 1 << j
            elif makers & apart:
                if single:
                    apart |= 1 << j
                elif input_channels(flow.calls[j]) == channels:
                    mixed |= 1 << j
            reads_all = (
                flow.readers[m] >> j & 1 and flow.calls[j].result_tensors[0].elements == flow.maps[m].elements
            )
            if single and reads_all and mixed >> j & 1:
                yield j
