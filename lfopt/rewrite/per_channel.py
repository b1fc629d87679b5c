"""Constant scales and shifts per channel as depthwise convolutions of one element, for int8 hardware.

Of real numbers this is exact; what becomes int8 are then the scales, one per channel, as weights, and the
shifts, as bias.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lfopt.ir import Graph, Operator
from lfopt.rewrite.fold import fold_affine, fold_batch_normalization
from lfopt.rewrite.log import Log
from lfopt.rewrite.mutable_graph import MutableGraph

SCALING = ("Mul", "Div", "Add", "Sub")


def as_convolutions(graph: Graph) -> Graph:
    """BatchNormalization, Mul, Div, Add and Sub per channel of [n, c, h, w], as depthwise convolutions.

    Their other operands are constants, one value per channel. Several in a row become one.
    """
    mutable, scalable = MutableGraph(graph), set[str]()  # scalable: by what takes in a scale that follows
    for operator in graph.operators:
        if operator.kind in ("Conv", "ConvTranspose") and not operator.domain:
            scalable.add(operator.outputs[0])
        source = _map(graph, operator)
        if source is not None:
            if source not in scalable or mutable.only_reader(source) is not operator:
                unit = _unit(mutable, operator, source)
                mutable.change(
                    replace(
                        operator, inputs=tuple(unit if name == source else name for name in operator.inputs)
                    )
                )
            scalable.add(operator.outputs[0])
    mutable = MutableGraph(fold_batch_normalization(mutable.finish()))
    fold_affine(mutable, Log())
    return mutable.finish()


def _map(graph: Graph, operator: Operator) -> str | None:
    """The map that an operator scales and shifts channel by channel; None if it does not do that."""
    if operator.domain or graph.tensors[operator.outputs[0]].quantization is not None:
        return None
    if operator.kind == "BatchNormalization":
        source = operator.inputs[0]
        others = operator.inputs[1:]
    elif operator.kind in SCALING:
        maps = [name for name in operator.inputs if name not in graph.constants]
        if len(maps) != 1 or (operator.kind == "Div" and operator.inputs[1] == maps[0]):
            return None
        source = maps[0]
        others = tuple(name for name in operator.inputs if name in graph.constants)
    else:
        return None
    shape = graph.shape(source)
    if (
        len(shape) != 4
        or graph.shape(operator.outputs[0]) != shape
        or not graph.tensors[source].dtype.startswith("float")
    ):
        return None
    known = all(name in graph.constants for name in others)
    per_channel = operator.kind == "BatchNormalization" or all(
        (1, *graph.shape(name))[-4:] == (1, shape[1], 1, 1) for name in others
    )
    if known and per_channel and shape[1] > 1:
        return source
    return None


def _unit(mutable: MutableGraph, operator: Operator, source: str) -> str:
    """The result of a new depthwise convolution before an operator, which changes nothing."""
    name = mutable.fresh(f"{operator.name}.channels")
    tensor = mutable.tensors[source]
    channels = tensor.shape[1]
    weight = mutable.add_constant(
        f"{name}.weight", (channels, 1, 1, 1), tensor.dtype, np.ones((channels, 1, 1, 1))
    )
    result = mutable.fresh(f"{name}.result")
    mutable.tensors[result] = replace(tensor, name=result)
    attributes = {"group": channels, "kernel_shape": (1, 1)}
    mutable.add(
        Operator(name, "Conv", (source, weight), (result,), attributes, origin=operator.origin),
        mutable.position[operator.name],
    )
    return result
