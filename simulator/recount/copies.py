"""Recomputed operators: whether they are the copies that the plan claims, and the network without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from lfopt.ir import Copy, Graph, Operator


def not_copies(graph: Graph, copies: Sequence[Copy]) -> Iterator[str]:
    """Problems of the copies that a plan claims.

    Each must do what its original does, with operands that are the same or copies of them.
    """
    by_name = {op.name: op for op in graph.operators}
    same: dict[str, str] = {}  # tensor made by a copy -> the one that the original makes
    known: set[str] = set()
    for copy in copies:
        duplicate = by_name.get(copy.name)
        original = by_name.get(copy.of)
        if (
            duplicate is None
            or original is None
            or copy.name in known
            or copy.of in known
            or duplicate is original
        ):
            yield (
                f"copies: {copy.name!r} of {copy.of!r}: "
                "they are not two operators of the network, or one is a copy already"
            )
            return
        known.add(copy.name)
        read = [[same.get(name, name) for name in operator.inputs] for operator in (duplicate, original)]
        if not _alike(duplicate, original) or read[0] != read[1]:
            yield f"copies: {copy.name!r} does not do what {copy.of!r} does"
            return
        for new, old in zip(duplicate.outputs, original.outputs, strict=True):
            if new and (not old or graph.tensors[new].named(old) != graph.tensors[old]):
                yield f"copies: {copy.name!r} makes {new!r}, which is not what {copy.of!r} makes"
                return
            if new in graph.outputs:
                yield f"copies: {new!r} is a result of the network"
                return
            same |= {new: old} if new else {}


def _alike(one: Operator, other: Operator) -> bool:
    if (one.kind, one.domain, len(one.outputs), one.attributes.keys()) != (
        other.kind,
        other.domain,
        len(other.outputs),
        other.attributes.keys(),
    ):
        return False
    pairs = ((value, other.attributes[name]) for name, value in one.attributes.items())
    return all(type(a) is type(b) and np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


def without_copies(graph: Graph, copies: Sequence[Copy]) -> Graph:
    """The network without the copies: their readers read the originals' results."""
    by_name = {op.name: op for op in graph.operators}
    gone = {copy.name for copy in copies}
    same: dict[str, str] = {}
    for copy in copies:
        same.update(zip(by_name[copy.name].outputs, by_name[copy.of].outputs, strict=True))
    same.pop("", None)
    operators = [
        replace(op, inputs=tuple(same.get(name, name) for name in op.inputs))
        for op in graph.operators
        if op.name not in gone
    ]
    return replace(graph, operators=tuple(_in_order(operators)))


def _in_order(operators: Sequence[Operator]) -> list[Operator]:
    """The operators, each behind those that it reads: a copy may run before its original."""
    maker = {tensor: op for op in operators for tensor in op.outputs if tensor}
    ordered: dict[str, Operator] = {}
    waiting = [*reversed(operators)]
    while waiting:
        op = waiting[-1]
        missing = [maker[name] for name in op.inputs if name in maker and maker[name].name not in ordered]
        if missing:
            waiting += missing
        else:
            ordered[op.name] = waiting.pop()
    return [*ordered.values()]
