"""Flights in steps: elementwise operators that are computed on each element as it is made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy

import numpy as np

from lfopt.ir import Node, computations
from lfopt.ops.table import OPAQUE
from simulator.recount.groups import in_bytes
from simulator.recount.network import RecountNetwork

LONGEST = 64  # operators in a flight


def flights_of(nodes: Sequence[Node]) -> Iterator[tuple[str, ...]]:
    """Per computation: its operator, and those that follow in flight."""
    return ((node.operator, *node.then) for node in computations(nodes))


def not_flights(
    net: RecountNetwork, members: Iterable[str], flights: Iterable[tuple[str, ...]]
) -> Iterator[str]:
    """Problems of flights as claimed: why operators cannot follow in flight."""
    owner: dict[str, tuple[str, ...]] = {}
    inside = set(members)
    for flight in flights:
        if unknown := [op for op in flight if op not in inside]:
            yield f"{unknown[0]!r} is computed, and is no operator of the group"
            return
        for op in flight:
            if owner.setdefault(op, flight) != flight:
                yield f"{op!r} follows in flight in one step, and not, or after others, in another"
                return
        if len(set(flight)) < len(flight) or len(flight) > LONGEST:
            yield f"{len(flight)} operators in flight from {flight[0]!r} on"
            return
        if len(flight) > 1:
            yield from _not_a_flight(net, flight)


def _not_a_flight(net: RecountNetwork, flight: tuple[str, ...]) -> Iterator[str]:
    head, *rest = flight
    makers: dict[str, str] = {}  # map -> its operator
    if net.specs[head] is OPAQUE or any(c.gathered for c in net.constants[head]):
        yield f"nothing can follow {head!r} in flight"
    for op in flight:
        if len(net.makes[op]) != 1:
            yield f"{op!r} in flight has {len(net.makes[op])} results"
            return
        (name,) = net.makes[op]
        result = net.tensor(name)
        first = net.tensor(net.makes[head][0])
        if op != head:
            if (
                not net.specs[op].elementwise
                or result.shape != first.shape
                or _size(result.dtype) != _size(first.dtype)
            ):
                yield (
                    f"{op!r} cannot follow {head!r} in flight: "
                    "it is not elementwise, or makes another shape or type"
                )
            inner = [read for read in net.reads[op] if read.map in makers]
            alike = (
                read.seen == read.map and read.first == read.last == tuple(range(result.rows))
                for read in inner
            )
            if not inner or not all(alike):
                yield f"{op!r} does not read what is in flight from {head!r} on, element by element"
        makers[name] = op
    for name in [net.makes[op][0] for op in flight[:-1]]:
        if name in net.stored or not set(net.readers[name]) <= set(rest):
            yield f"{name!r} is made in flight, and read elsewhere"


def is_table(net: RecountNetwork, flight: tuple[str, ...]) -> bool:
    """Whether a flight is a function of the byte that its first operator makes, so a table can hold it."""
    results = {name for op in flight for name in net.makes[op]}
    return (
        all(in_bytes(net.tensor(name)) for name in results)
        and all(read.map in results for op in flight[1:] for read in net.reads[op])
        and not any(net.constants[op] for op in flight[1:])
    )


def _size(dtype: str) -> int:
    if dtype == "string":
        return -1
    return np.dtype(dtype).itemsize


def with_flights(net: RecountNetwork, flights: Iterable[tuple[str, ...]]) -> RecountNetwork:
    """The network with these flights as single operators, named as their first, in place of the last."""
    fused = copy(net)
    fused.reads = dict(net.reads)
    fused.makes = dict(net.makes)
    fused.constants = dict(net.constants)
    fused.maker = dict(net.maker)
    fused.position = dict(net.position)
    fused.operators = dict(net.operators)
    fused.readers = readers = defaultdict(list, net.readers)
    for flight in flights:
        head = flight[0]
        last = flight[-1]
        hidden = {net.makes[op][0] for op in flight[:-1]}
        fused.reads[head] = [read for op in flight for read in net.reads[op] if read.map not in hidden]
        fused.constants[head] = [constant for op in flight for constant in net.constants[op]]
        fused.makes[head] = net.makes[last]
        fused.maker[net.makes[last][0]] = head
        fused.position[head] = net.position[last]
        for op in flight[1:]:
            for table in (fused.reads, fused.makes, fused.constants, fused.operators, fused.position):
                del table[op]
        for name in {read.map for read in fused.reads[head]}:
            readers[name] = list(dict.fromkeys(head if op in flight else op for op in readers[name]))
    return fused
