"""Channel shuffles, which exporters write as Reshape, Transpose and Reshape, as one Gather along channels: rows of the map stay rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np

from lfopt.ir import Graph, Operator, Tensor


def shuffles_as_gathers(graph: Graph) -> Graph:
    """Maps [1, c, h, w] cut into [1, a, b, .., h, w], transposed along a, b, .. alone and put together again, as Gather.

    Source: the channel shuffle of ShuffleNet, arXiv 1707.01083, section 3.1.
    """
    uses = Counter([*graph.outputs, *(name for operator in graph.operators for name in operator.inputs)])
    makers = {operator.outputs[0]: operator for operator in graph.operators if len(operator.outputs) == 1}
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    operators: list[Operator] = []
    gone: set[str] = set()
    for operator in graph.operators:
        found = _shuffle(graph, operator, makers, uses)
        if found is not None:
            source, order, between = found
            gone |= between
            name = f"{operator.name}.channels"
            while name in tensors:
                name += "_"
            tensors[name], constants[name] = Tensor(name, order.shape, "int64"), order
            operator = Operator(operator.name, "Gather", (source, name), operator.outputs, {"axis": 1})
        operators.append(operator)
    left = tuple(operator for operator in operators if operator.name not in gone)
    return replace(graph, operators=left, tensors=tensors, constants=constants).without_unused()


def _shuffle(graph: Graph, last: Operator, makers: dict[str, Operator], uses: Counter[str]) -> tuple[str, np.ndarray, set[str]] | None:
    """(map, its channel for each channel of the result, operators before) of a Reshape that ends a shuffle; None if it ends none."""
    turn = makers.get(last.inputs[0]) if last.kind == "Reshape" else None
    first = makers.get(turn.inputs[0]) if turn is not None and turn.kind == "Transpose" else None
    if turn is None or first is None or first.kind != "Reshape" or any(found.domain for found in (last, turn, first)):
        return None
    source, cut, made = graph.shape(first.inputs[0]), graph.shape(first.outputs[0]), graph.shape(last.outputs[0])
    axes = turn.attributes.get("perm", tuple(reversed(range(len(cut)))))
    assert isinstance(axes, tuple)
    inner = len(cut) - 2
    whole = len(source) == 4 and source == made and source[0] == cut[0] == 1 and cut[inner:] == source[2:] and prod(cut[1:inner]) == source[1]
    kept = whole and axes[0] == 0 and tuple(axes[inner:]) == (inner, inner + 1)
    if not kept or uses[first.outputs[0]] > 1 or uses[turn.outputs[0]] > 1:
        return None
    order = np.arange(source[1], dtype=np.int64).reshape(cut[1:inner]).transpose([int(axis) - 1 for axis in axes[1:inner]])
    return first.inputs[0], np.ascontiguousarray(order).reshape(-1), {first.name, turn.name}
