"""Recomputation inside groups: the multiply-accumulates that a plan allows, less what its copies take.

An operator that has a copy, and the copy, do no more than their own. All others share what is left, each
group in proportion to their own in it:

    left = 1 + (R x M - all of the network with copies) / those of operators without copies,  at most R

with R what is allowed and M the multiply-accumulates of the network without copies. Where every copied
operator has one copy and R is 2, left is 2.
"""

from __future__ import annotations

from collections.abc import Iterable

from lfopt.ir import Graph
from lfopt.ops import Dataflow, bits


def computed_again(graph: Graph) -> dict[str, str]:
    """Operators that repeat an earlier one, by name: the name of that one.

    They are of the same kind, on the same tensors.
    """
    first: dict[object, str] = {}
    same: dict[str, str] = {}  # tensor -> the one of the same values that was made first
    original: dict[str, str] = {}
    outputs = {operator.name: operator.outputs for operator in graph.operators}
    for operator in graph.operators:
        inputs = tuple(same.get(name, name) for name in operator.inputs)
        key = (
            operator.kind,
            operator.domain,
            inputs,
            tuple(map(bool, operator.outputs)),
            repr(sorted(operator.attributes.items())),
        )
        if key in first:
            original[operator.name] = first[key]
            same |= zip(operator.outputs, outputs[first[key]], strict=True)
        else:
            first[key] = operator.name
    return original


def settled(flow: Dataflow) -> int:
    """Mask of the operators that have copies, and of these."""
    again = computed_again(flow.graph)
    names = {*again, *again.values()}
    return sum(1 << i for i, operator in enumerate(flow.operators) if operator.name in names)


def left_for_groups(graph: Graph, allowed: float) -> float:
    """Multiply-accumulates that a group may do over those of its operators that are not settled.

    `allowed`: R.
    """
    again = computed_again(graph)
    if not again:
        return allowed
    flow = Dataflow.of(graph)
    fixed = settled(flow)
    total = sum(flow.macs)
    free = _sum(flow, bits(flow.everything & ~fixed))
    copied = _sum(flow, (i for i, operator in enumerate(flow.operators) if operator.name in again))
    if free:
        return min(max(1 + (allowed * (total - copied) - total) / free, 1.0), allowed)
    return 1.0


def _sum(flow: Dataflow, operators: Iterable[int]) -> int:
    return sum(flow.macs[i] for i in operators)
