"""Biases that leave sums their room: no sum of a quantised network leaves int32.

A channel of tiny weights and a large bias gets a scale from ONNX Runtime at which the bias alone nearly fills
an int32; with the products beside it a sum may leave it, and the network cannot run. Its scale then grows by
what is missing, usually less than a thousandth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lfopt.ir import Graph, Operator, Quantization, Tensor
from lfopt.ops import Call
from lfopt.ops.arithmetic import SUMS, arithmetic
from lfopt.ops.fixed_point import SUM_MAX
from lfopt.ops.scaling import channel_axes, largest_products

Stored = tuple[Tensor, np.ndarray]


def with_room(graph: Graph) -> Graph:
    """The quantised graph with larger scales of weights and bias where a bias could overflow an int32 sum."""
    reads = Counter(name for operator in graph.operators for name in operator.inputs)
    tensors = dict(graph.tensors)
    constants = dict(graph.constants)
    for operator in graph.operators:
        if len(operator.inputs) > 2 and all(
            name in constants and reads[name] == 1 for name in operator.inputs[1:3]
        ):
            for tensor, value in _rescaled(graph, operator):
                tensors[tensor.name], constants[tensor.name] = tensor, value
    return replace(graph, tensors=tensors, constants=constants)


def _rescaled(graph: Graph, operator: Operator) -> Iterator[Stored]:
    """Weights and bias of an operator with their new scales; nothing where there is room."""
    call = Call.of(graph, operator)
    first, weights, bias = call.tensors[:3]
    if (
        arithmetic(call) is not SUMS
        or first is None
        or weights is None
        or bias is None
        or bias.quantization is None
        or weights.quantization is None
    ):
        return
    stored, added = call.values[1:3]
    assert stored is not None, "what was quantised has weights"
    assert added is not None, "what was quantised has weights"
    sizes = np.abs(added.astype(np.float64)).reshape(-1)
    products = np.broadcast_to(largest_products(call, first, weights), sizes.shape).astype(np.float64)
    over = products + sizes > SUM_MAX
    if not over.any() or (products[over] >= SUM_MAX - 1).any():  # products alone: no scale of a bias helps
        return
    factors = np.where(over, sizes / (SUM_MAX - 1 - products), 1.0)
    factors = factors.max(keepdims=True) if weights.quantization.axis is None else factors
    axis = channel_axes(call)[1]
    yield _divided(weights, weights.quantization, stored, factors, axis)
    yield _divided(bias, bias.quantization, added, factors, 0)


def _divided(tensor: Tensor, by: Quantization, value: np.ndarray, factors: np.ndarray, axis: int) -> Stored:
    shape = [-1 if k == axis and factors.size > 1 else 1 for k in range(value.ndim)]
    smaller = np.rint(value / factors.reshape(shape)).astype(value.dtype)
    scale = np.array(by.scale) * factors if len(by.scale) > 1 else np.array(by.scale) * factors.max()
    return replace(
        tensor, quantization=replace(by, scale=tuple(np.float32(scale).astype(float).tolist()))
    ), smaller
