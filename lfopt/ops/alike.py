"""Operators and networks that are planned alike: same kinds, shapes and edges, whatever names and weights."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np

from lfopt.ir import Graph
from lfopt.ops.call import Call
from lfopt.ops.table import spec


class Numbers(dict[object, int]):
    """Names numbered in the order in which they are asked for."""

    def __missing__(self, name: object) -> int:
        return self.setdefault(name, len(self))


def structure(graph: Graph) -> Hashable:
    """A key that two networks share only if they differ in names and in values of data constants alone.

    What is quantised differently has another key, and so has what stands in another order.
    """
    names = Numbers()
    inputs = tuple(names[name] for name in graph.inputs)
    operators = tuple(operator_key(Call.of(graph, op), names) for op in graph.operators)
    return inputs, operators, tuple(sorted(names[name] for name in graph.outputs))


def operator_key(call: Call, names: Numbers) -> Hashable:
    """A key of an operator, as `structure` has it; `names`: numbers of the tensors that were named so far."""
    op = call.operator
    attributes = tuple((name, _plain(value)) for name, value in sorted(op.attributes.items()))
    ends = tuple(
        tuple(names[name] if name else -1 for name in tensors) for tensors in (op.inputs, op.outputs)
    )
    tensors = tuple(t and (t.shape, t.dtype, t.quantization) for t in (*call.tensors, *call.result_tensors))
    return op.kind, op.domain, attributes, ends, tensors, call.constant, tuple(_values(call))


def _values(call: Call) -> Iterator[Hashable]:
    """Values of constants that are no data: parameters, indices, scalars."""
    parameters = spec(call.operator.kind, call.operator.domain).parameters
    for index, values in enumerate(call.values):
        if values is not None:
            yield (
                index,
                _plain(values)
                if index in parameters or values.size <= 1 or values.dtype == np.int64
                else None,
            )


def _plain(value: object) -> Hashable:
    return (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value  # type: ignore[return-value]
