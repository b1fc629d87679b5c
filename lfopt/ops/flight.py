"""Elementwise operators in flight: computed element by element, so that only the last result needs a place.

A *flight* is an operator with the elementwise operators behind it whose results, but for one, nothing else
reads: a convolution with its activation, a product with its gate, the addition that ends a residual block.
What goes on in it needs a few elements, not rows of maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lfopt.ops.call import Call
from lfopt.ops.compute import folding
from lfopt.ops.dataflow import Dataflow, MapRead, bits
from lfopt.ops.recognise import attentions
from lfopt.ops.rows import same_row
from lfopt.ops.table import ATTENTION, OPAQUE

LONGEST = 16  # operators in a flight
Fits = Callable[[Call], bool]  # of an operator with others in flight


def in_flight(
    flow: Dataflow, owner: Mapping[str, int] | None = None, fits: Fits | None = None, *, running: bool = True
) -> Dataflow:
    """The dataflow with its flights as operators, each in the place of its last operator.

    A flight reads what its operators read, in order.

    `owner`: groups of operators by name; a flight lies in one of them. `fits`: whether the chip can run
    operators in one flight. `running`: whether reductions take the rows of their operand one at a time.
    """
    flights = _flights(flow, owner, fits or (lambda _: True))
    kept = [flights[i] for i in range(len(flow)) if i in flights]
    hidden = {m for members in kept for i in members[:-1] for m in flow.results[i]}
    maps = [m for m in range(len(flow.maps)) if m not in hidden]
    number = {m: k for k, m in enumerate(maps)}
    maker = {m: k for k, members in enumerate(kept) for m in flow.results[members[-1]]}
    calls = tuple(_flight(flow, members) for members in kept)
    return Dataflow(
        graph=flow.graph,
        operators=tuple(flow.operators[members[0]] for members in kept),
        calls=calls,
        specs=tuple(flow.specs[members[0]] for members in kept),
        maps=tuple(flow.maps[m] for m in maps),
        producer=tuple(maker.get(m, -1) for m in maps),
        is_output=tuple(flow.is_output[m] for m in maps),
        operands=tuple(_operands(flow, members, number) for members in kept),
        results=tuple(tuple(number[m] for m in flow.results[members[-1]]) for members in kept),
        weights=tuple(
            tuple({w.name: w for i in members for w in flow.weights[i]}.values()) for members in kept
        ),
        running=sum(1 << k for k, members in enumerate(kept) if running and _runs(flow, members[0])),
    )


def attending(flow: Dataflow, owner: Mapping[str, int] | None = None, fits: Fits | None = None) -> Dataflow:
    """The dataflow with its attentions as operators, each in the place of its last part.

    For `owner` and `fits` see `in_flight`.
    """
    by_last = {one.members[-1]: one for one in attentions(flow, owner) if fits is None or fits(one.call)}
    inside = {i for one in by_last.values() for i in one.members}
    kept = [i for i in range(len(flow)) if i in by_last or i not in inside]
    hidden = {m for one in by_last.values() for i in one.members[:-1] for m in flow.results[i]}
    maps = [m for m in range(len(flow.maps)) if m not in hidden]
    number = {m: k for k, m in enumerate(maps)}
    maker = {m: k for k, i in enumerate(kept) for m in flow.results[i]}
    operands = ((by_last[i].operands if i in by_last else flow.operands[i]) for i in kept)
    return Dataflow(
        graph=flow.graph,
        operators=tuple(by_last[i].call.operator if i in by_last else flow.operators[i] for i in kept),
        calls=tuple(by_last[i].call if i in by_last else flow.calls[i] for i in kept),
        specs=tuple(ATTENTION if i in by_last else flow.specs[i] for i in kept),
        maps=tuple(flow.maps[m] for m in maps),
        producer=tuple(maker.get(m, -1) for m in maps),
        is_output=tuple(flow.is_output[m] for m in maps),
        operands=tuple(tuple(replace(o, map=number[o.map]) for o in read) for read in operands),
        results=tuple(tuple(number[m] for m in flow.results[i]) for i in kept),
        weights=tuple(by_last[i].weights if i in by_last else flow.weights[i] for i in kept),
    )


def _flight(flow: Dataflow, members: Sequence[int]) -> Call:
    return replace(flow.calls[members[0]], then=tuple(flow.calls[i] for i in members[1:]))


def _operands(flow: Dataflow, members: tuple[int, ...], number: dict[int, int]) -> tuple[MapRead, ...]:
    operands: list[MapRead] = []
    before = 0
    for i in members:
        operands += [
            replace(o, map=number[o.map], input=before + o.input) for o in flow.operands[i] if o.map in number
        ]
        before += len(flow.operators[i].inputs)
    return tuple(operands)


def _runs(flow: Dataflow, op: int) -> bool:
    """Whether it folds rows of a map, which may come one at a time, into a row that something reads.

    A window that lies in padding alone reads nothing.
    """
    call = flow.calls[op]
    reads = flow.operands[op]
    if folding(call) != "rows" or call.rows_in(0) < 2 or call.rows_out > 1 or [o.input for o in reads] != [0]:
        return False
    (result,) = flow.results[op]
    read = (
        o.reads for reader in bits(flow.readers[result]) for o in flow.operands[reader] if o.map == result
    )
    seen = flow.is_output[result] or any(
        low <= high for rows in read for low, high in zip(rows.first, rows.last, strict=True)
    )
    return seen and flow.maps[reads[0].map].shape == call.shape(0)


def _flights(flow: Dataflow, owner: Mapping[str, int] | None, fits: Fits) -> dict[int, tuple[int, ...]]:
    """By last operator: the operators of every flight in order; most are alone."""
    makers = _Flights(
        flow, [0 if owner is None else owner[operator.name] for operator in flow.operators], fits
    )
    for head in reversed(range(len(flow))):
        makers.extend(head)
    return {members[-1]: members for members in makers.of.values()}


@dataclass
class _Flights:
    flow: Dataflow
    group: Sequence[int]  # per operator
    fits: Fits
    of: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])  # by first operator
    home: dict[int, int] = field(default_factory=dict[int, int])  # per operator: the first of its flight

    def extend(self, head: int) -> None:
        """Let an operator, the last that has no flight yet, take what follows it."""
        flow = self.flow
        self.of[head], self.home[head] = (head,), head
        if (
            flow.specs[head] is OPAQUE
            or len(flow.results[head]) != 1
            or any(w.gathered for w in flow.weights[head])
        ):
            return
        while (more := self._following(head)) is not None:
            members = tuple(sorted((*self.of[head], *(i for first in more for i in self.of[first]))))
            if not self.fits(_flight(flow, members)):
                return
            for first in more:
                del self.of[first]
            self.of[head] = members
            self.home.update(dict.fromkeys(members, head))

    def _following(self, head: int) -> set[int] | None:
        """First operators of flights that may join this one so that one result of all is read elsewhere.

        None: there are no such.
        """
        flow = self.flow
        members = self.of[head]
        (last,) = flow.results[members[-1]]
        inside = set(members)
        joined = set[int]()
        live = [last]
        while len(live) > 1 or not joined:
            m = min(live)
            if flow.is_output[m] or not flow.readers[m]:
                return None
            for reader in bits(flow.readers[m]):
                first = self.home[reader]
                if first not in joined and first != head:
                    if not self._is_like(first, head):
                        return None
                    joined.add(first)
                    inside |= {*self.of[first]}
            if len(inside) > LONGEST:
                return None
            finals = [last, *(flow.results[self.of[first][-1]][0] for first in joined)]
            live = [
                m
                for m in finals
                if flow.is_output[m]
                or not flow.readers[m]
                or any(r not in inside for r in bits(flow.readers[m]))
            ]
            if not live:
                return None
        if self._may_follow(head, inside - set(members), inside):
            return joined
        return None

    def _is_like(self, first: int, head: int) -> bool:
        """Whether a flight is of elementwise operators that make maps such as the head does."""
        flow = self.flow
        maps = [flow.maps[flow.results[i][0]] for i in (head, *self.of[first])]
        if self.group[first] != self.group[head]:
            return False
        return (
            flow.specs[first].elementwise
            and len({(m.shape, _size(m.dtype)) for m in maps}) == 1
            and len(flow.results[first]) == 1
        )

    def _may_follow(self, head: int, joining: set[int], inside: set[int]) -> bool:
        """Whether operators can be computed on the elements of what is made in flight, as they are made."""
        flow = self.flow
        rows = self.flow.maps[self.flow.results[head][0]].rows
        others = any(
            flow.weights[i] or any(flow.producer[o.map] not in inside for o in flow.operands[i])
            for i in joining
        )
        if others and folding(flow.calls[head]) == "rows":
            return False  # what else is read would have to wait for the last of the rows
        for i in joining:
            within = [o for o in flow.operands[i] if flow.producer[o.map] in inside]
            direct = (
                o.reads is same_row(rows) and flow.operators[i].inputs[o.input] == flow.maps[o.map].name
                for o in within
            )
            if not within or not all(direct):
                return False
        return True


def _size(dtype: str) -> int:
    if dtype == "string":
        return -1
    return np.dtype(dtype).itemsize


def flight_names(call: Call) -> tuple[str, ...]:
    """Names of the operators that follow the first: other parts of an attention, and what is in flight."""
    return tuple(part.operator.name for part in call.parts[1:])
