"""Fully connected layers on flattened maps, as convolutions whose kernel is as large as the map, so that nothing has to be laid out anew."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from math import prod

import numpy as np

from lfopt.ir import Graph, Operator, Tensor

FLATTENING = ("Flatten", "Reshape")


def flattened_as_convolutions(graph: Graph) -> Graph:
    """Gemm and MatMul by a constant matrix, of [1, c * h * w] that is a view of a map [1, c, h, w], as a Conv and a view of its result.

    Both sum the same products in the same order: c, h, w.
    """
    views = {op.outputs[0]: op.inputs[0] for op in graph.operators if op.kind in FLATTENING and not op.domain}
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    names = {operator.name for operator in graph.operators}
    operators: list[Operator] = []
    for operator in graph.operators:
        source = views.get(operator.inputs[0], "") if operator.inputs else ""
        weights = _weights(graph, operator, source) if source else None
        if weights is None:
            operators.append(operator)
            continue
        (made,) = operator.outputs
        dtype, channels = graph.tensors[made].dtype, weights.shape[0]
        kernel, pixel, shape = (_free(f"{operator.name}.{part}", tensors) for part in ("kernel", "pixel", "shape"))
        tensors |= {
            kernel: Tensor(kernel, weights.shape, dtype),
            pixel: Tensor(pixel, (1, channels, 1, 1), dtype),
            shape: Tensor(shape, (2,), "int64"),
        }
        constants |= {kernel: weights, shape: np.array([1, channels], np.int64)}
        bias = [name for name in operator.inputs[2:] if name]
        if bias and graph.shape(bias[0]) != (channels,):
            flat, value = _free(f"{operator.name}.bias", tensors), graph.constants[bias[0]]
            assert value is not None
            tensors[flat], constants[flat] = Tensor(flat, (channels,), dtype), np.broadcast_to(value, (1, channels)).reshape(-1)
            bias = [flat]
        operators.append(Operator(operator.name, "Conv", (source, kernel, *bias), (pixel,), {"kernel_shape": weights.shape[2:]}))
        view = _free(f"{operator.name}.view", names)
        names.add(view)
        operators.append(Operator(view, "Reshape", (pixel, shape), (made,)))
    read = {*graph.outputs, *(name for operator in operators for name in operator.inputs)}
    left = tuple(op for op in operators if op.outputs[0] not in views or op.outputs[0] in read)
    return replace(graph, operators=left, tensors=tensors, constants=constants).without_unused()


def _weights(graph: Graph, operator: Operator, source: str) -> np.ndarray | None:
    """The kernel [m, c, h, w] of the convolution that a layer is; None if it is none."""
    shape, flat = graph.shape(source), graph.shape(operator.inputs[0])
    value = graph.constants.get(operator.inputs[1]) if operator.kind in ("Gemm", "MatMul") and not operator.domain else None
    if value is None or value.ndim != 2 or len(shape) != 4 or shape[0] != 1 or flat != (1, prod(shape[1:])) or shape[2:] == (1, 1):
        return None
    more = operator.attributes
    plain = not more.get("transA", 0) and more.get("alpha", 1.0) == more.get("beta", 1.0) == 1
    if not plain or any(graph.constants.get(name) is None for name in operator.inputs[2:] if name):
        return None
    return np.ascontiguousarray(value if more.get("transB", 0) else value.T).reshape(-1, *shape[1:])


def _free(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "_"
    return name
