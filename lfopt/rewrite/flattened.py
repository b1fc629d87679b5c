"""Fully connected layers on flattened maps, as convolutions whose kernel is as large as the map.

So nothing has to be laid out anew.
"""

from __future__ import annotations

from math import prod

import numpy as np

from lfopt.ir import Graph, Operator, Tensor
from lfopt.rewrite.mutable_graph import MutableGraph

FLATTENING = ("Flatten", "Reshape")


def flattened_as_convolutions(graph: Graph) -> Graph:
    """Gemm and MatMul by a constant on a view [1, c * h * w] of a map [1, c, h, w], as Conv and a view.

    Both sum the same products in the same order: c, h, w.
    """
    mutable = MutableGraph(graph)
    for operator in graph.operators:
        view = mutable.maker(operator.inputs[0]) if operator.inputs else None
        source = view.inputs[0] if view is not None and view.kind in FLATTENING and not view.domain else ""
        weights = _weights(mutable, operator, source) if source else None
        if weights is not None:
            _replace(mutable, operator, source, weights)
    mutable.drop_dead()
    return mutable.finish()


def _replace(mutable: MutableGraph, layer: Operator, source: str, weights: np.ndarray) -> None:
    """The convolution that a layer is, and a view of its result."""
    (result,), channels = layer.outputs, weights.shape[0]
    dtype = mutable.tensors[result].dtype
    position = mutable.position[layer.name]
    kernel = mutable.add_constant(f"{layer.name}.kernel", weights.shape, dtype, weights)
    bias = [name for name in layer.inputs[2:] if name]
    if bias and mutable.tensors[bias[0]].shape != (channels,):
        value = mutable.constants[bias[0]]
        assert value is not None
        bias = [
            mutable.add_constant(
                f"{layer.name}.bias", (channels,), dtype, np.broadcast_to(value, (1, channels)).reshape(-1)
            )
        ]
    shape = mutable.add_constant(f"{layer.name}.shape", (2,), "int64", np.array([1, channels]))
    pixel = mutable.fresh(f"{layer.name}.pixel")
    mutable.tensors[pixel] = Tensor(pixel, (1, channels, 1, 1), dtype)
    mutable.change(
        Operator(
            layer.name,
            "Conv",
            (source, kernel, *bias),
            (pixel,),
            {"kernel_shape": weights.shape[2:]},
            origin=layer.origin,
        )
    )
    mutable.add(
        Operator(
            mutable.fresh(f"{layer.name}.view"), "Reshape", (pixel, shape), (result,), origin=layer.origin
        ),
        position,
    )


def _weights(mutable: MutableGraph, operator: Operator, source: str) -> np.ndarray | None:
    """The kernel [m, c, h, w] of the convolution that a layer is; None if it is none."""
    shape = mutable.tensors[source].shape
    flat = mutable.tensors[operator.inputs[0]].shape
    if operator.kind in ("Gemm", "MatMul") and not operator.domain:
        value = mutable.constants.get(operator.inputs[1])
    else:
        value = None
    if (
        value is None
        or value.ndim != 2
        or len(shape) != 4
        or shape[0] != 1
        or flat != (1, prod(shape[1:]))
        or shape[2:] == (1, 1)
    ):
        return None
    more = operator.attributes
    plain = not more.get("transA", 0) and more.get("alpha", 1.0) == more.get("beta", 1.0) == 1
    if not plain or any(mutable.constants.get(name) is None for name in operator.inputs[2:] if name):
        return None
    return np.ascontiguousarray(value if more.get("transB", 0) else value.T).reshape(-1, *shape[1:])
