"""Operators whose flights differ from group to group.

In a group of a cover an operator may have fewer readers than in the network. Then elementwise operators may
follow it in flight which do not so in the network, and a map between them is never on chip. Bounds that look
at the network as it is have to leave room for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from lfopt.ops import ATTENTION, OPAQUE, Dataflow, MapRead, Tiling, bits


class Follower(NamedTuple):
    """An elementwise operator that may follow the maker of a map in flight, if the group has no other reader.

    Other readers that may follow so themselves are not counted.
    """

    op: int
    maker: int
    others: int  # mask of the other readers

    @property
    def pair(self) -> int:
        """Mask of the operator and the maker."""
        return 1 << self.op | 1 << self.maker

    def may_be_in(self, operators: int) -> bool:
        """Whether it may be so in some group that holds these operators."""
        return bool(operators >> self.op & 1) and not self.others & operators


class LooseFlights:
    """The flights of a network that may be others in a group of a cover."""

    def __init__(self, flow: Dataflow) -> None:
        # as the network, but that what is read in flight is left out where its own maker may take over
        self.flow = _loosened(flow)
        self._followers = [*_followers(flow)]
        self._flown = [*_flown_elsewhere(flow)]
        self._may_follow = 0
        for follower in self._followers:
            self._may_follow |= 1 << follower.op
        # by operator: the pairs that it is in
        self._pairs_with: dict[int, list[Follower]] = {}
        self._may_change = 0
        for follower in (*self._followers, *self._flown):
            self._may_change |= follower.pair
            for i in bits(follower.pair):
                self._pairs_with.setdefault(i, []).append(follower)
        self.never_counted = _never_counted(flow)

    def _open(self, operators: int) -> set[Follower]:
        """What may be so in some group that holds these operators, one of which it is of."""
        return {
            follower
            for i in bits(operators & self._may_change)
            for follower in self._pairs_with[i]
            if not follower.others & operators
        }

    def changes(self, operators: int) -> set[int]:
        """Masks of pairs of operators one of which is in any group with these in which flights are others."""
        return {follower.pair for follower in self._open(operators)}

    def moving(self, operators: int) -> int:
        """Those of some operators that may run later in a group: with what follows them in flight there."""
        moving = 0
        for follower in self._open(operators):
            moving |= operators & 1 << follower.maker
        return moving

    def following(self, operators: int) -> int:
        """Those of some operators that may follow others in flight in some group, and follow none here."""
        return sum(1 << op for op in {follower.op for follower in self._following(operators)})

    def certain(self, operators: int) -> int:
        """Those of some operators of which a bound may count all maps, however flights turn out."""
        uncertain = self.never_counted
        for follower in self._following(operators):
            uncertain |= follower.pair
        return operators & ~uncertain

    def _following(self, operators: int) -> list[Follower]:
        if not operators & self._may_follow:
            return []
        return [follower for follower in self._followers if follower.may_be_in(operators)]


def _several_ways(flow: Dataflow, m: int) -> bool:
    """Whether a map is made that is needed in several ways, of which a group may have one alone."""
    readers = flow.readers[m]
    return flow.producer[m] >= 0 and (flow.is_output[m] or readers & (readers - 1) != 0)


def _may_fly(flow: Dataflow, op: int, m: int) -> bool:
    """Whether an operator may follow the maker of a map in flight, as far as kinds and shapes tell."""
    results = flow.results[op]
    if not flow.specs[op].elementwise or len(results) != 1:
        return False
    return flow.maps[results[0]].shape == flow.maps[m].shape


def _followers(flow: Dataflow) -> Iterator[Follower]:
    """Operators that follow none in the network."""
    for m in range(len(flow.maps)):
        if not _several_ways(flow, m):
            continue
        for i in bits(flow.readers[m]):
            if _may_fly(flow, i, m):
                yield Follower(i, flow.producer[m], flow.readers[m] & ~_flying_readers(flow, m))


def _flown_elsewhere(flow: Dataflow) -> Iterator[Follower]:
    """Operators that are read in flight by another one in the network: `op` is that one."""
    for i, operands in enumerate(flow.operands):
        for operand in operands:
            if _may_be_read_elsewhere(flow, i, operand):
                m = operand.map
                yield Follower(i, flow.producer[m], flow.readers[m] & ~_flying_readers(flow, m))


def _flying_readers(flow: Dataflow, m: int) -> int:
    """Mask of the readers of a map that may follow its maker in flight, or hold an operator that may."""
    flying = 0
    for i in bits(flow.readers[m]):
        held = any(o.map == m and _may_be_read_elsewhere(flow, i, o) for o in flow.operands[i])
        if held or _may_fly(flow, i, m):
            flying |= 1 << i
    return flying


def _loosened(flow: Dataflow) -> Dataflow:
    """A network without reads in flight that another operator may do in some group."""
    operands = tuple(
        tuple(operand for operand in flow.operands[i] if not _may_be_read_elsewhere(flow, i, operand))
        for i in range(len(flow))
    )
    if operands == flow.operands:
        return flow
    return replace(flow, operands=operands)


def _may_be_read_elsewhere(flow: Dataflow, op: int, operand: MapRead) -> bool:
    """Whether what an operator reads in flight may be made in flight with that by its maker.

    Of two operators that something may follow, the later one takes it (`lfopt.ops.flight`).
    """
    call = flow.calls[op]
    if not call.then or not _several_ways(flow, operand.map):
        return False
    heads = [flow.operators[i].name for i in (flow.producer[operand.map], op)]
    first = next(operator.name for operator in flow.graph.operators if operator.name in heads)
    if first == heads[0]:
        return False
    of_head = operand.input < len(call.operator.inputs) and flow.specs[op] is not ATTENTION
    result = flow.maps[flow.results[op][0]]
    return not of_head and flow.maps[operand.map].shape == result.shape


def _never_counted(flow: Dataflow) -> int:
    """Mask of operators that bounds leave out.

    Those with several results, of which a group may need some alone, and those whose result is an output of
    the network that is read as well, which a group may need in part; and what may be part of an attention
    in a group, and is none in the network.
    """
    mask = 0
    for i, results in enumerate(flow.results):
        in_part = any(flow.is_output[m] and flow.readers[m] for m in results)
        if len(results) > 1 or in_part or flow.specs[i] is OPAQUE:
            mask |= 1 << i
        if flow.specs[i].kind == "Softmax":
            mask |= _around(flow, i)
    return mask


def _around(flow: Dataflow, op: int) -> int:
    """Mask of an operator, and of those before and behind it up to the second contraction each way."""
    return 1 << op | _reached(flow, op, flow.preds) | _reached(flow, op, flow.succs)


def _reached(flow: Dataflow, op: int, near: tuple[int, ...]) -> int:
    contractions = sum(1 << i for i, spec in enumerate(flow.specs) if spec.tiling is Tiling.CONTRACT)
    reached = 0
    waiting = [(i, 0) for i in bits(near[op])]
    while waiting:
        i, passed = waiting.pop()
        passed += contractions >> i & 1
        if reached >> i & 1 or passed > 1:
            continue
        reached |= 1 << i
        waiting += [(j, passed) for j in bits(near[i])]
    return reached
