"""Random weights for networks without them, scaled so that maps stay near unit scale and depend on inputs.

The scale of a random weight matters: maps that vanish, saturate or grow from layer to layer hide errors, or
drown them in rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from lfopt.app.random_values import random_inputs
from lfopt.ir import Graph, Tensor
from lfopt.ops import Call, Family, Tiling, row_of
from lfopt.ops.fixed_point import quantized
from lfopt.ops.part import Part
from lfopt.ops.reference import Results, reference

TERM_STD = 0.1  # of biases and other constant terms
FACTOR_RANGE = (0.8, 1.2)  # of constant factors, divisors, variances: away from 0
FACTORS: Mapping[str, tuple[int, ...]] = {  # operands that multiply or divide
    "BatchNormalization": (1, 4),  # scale and variance
    "Div": (0, 1),
    "GroupNormalization": (1,),
    "InstanceNormalization": (1,),
    "LayerNormalization": (1,),
    "Mul": (0, 1),
    "RMSNormalization": (1,),
}
TERMS: Mapping[str, tuple[int, ...]] = {  # operands that are added
    "Add": (0, 1),
    "BatchNormalization": (2, 3),  # bias and mean
    "GroupNormalization": (2,),
    "InstanceNormalization": (2,),
    "LayerNormalization": (2,),
    "Sub": (0, 1),
}


def drawn(graph: Graph, rng: np.random.Generator) -> Graph:
    """The graph with weights drawn where it has none, each by what its first reader does with it.

    Weights of a sum of k products have a variance of 1/k, factors lie near 1, terms near 0, anything else
    (tables that rows are gathered from) is normal.
    """
    constants = dict(graph.constants)
    absent = {name for name, value in constants.items() if value is None}
    for operator in graph.operators:
        for index, name in enumerate(operator.inputs):
            if name in absent:
                absent.remove(name)
                constants[name] = _drawn(graph.tensors[name], Call.of(graph, operator), index, rng)
    # constants that nothing reads are zeros
    return replace(
        graph,
        constants=constants
        | {name: np.zeros(graph.shape(name), graph.tensors[name].dtype) for name in absent},
    )


def _drawn(tensor: Tensor, call: Call, index: int, rng: np.random.Generator) -> np.ndarray:
    kind = call.operator.kind
    row = row_of(call)
    if tensor.quantization is None and not tensor.dtype.startswith("float"):
        return rng.integers(0, 2, tensor.shape).astype(tensor.dtype)
    if index in FACTORS.get(kind, ()):
        values = rng.uniform(*FACTOR_RANGE, tensor.shape)
    else:
        std = TERM_STD if index == row.bias or index in TERMS.get(kind, ()) else 1.0
        if row.tiling is Tiling.CONTRACT and index != row.bias:
            std = _products(call) ** -0.5
        values = rng.standard_normal(tensor.shape, np.float32)
        values *= np.float32(std)
    if tensor.quantization:
        return quantized(values, tensor.quantization, tensor.dtype)
    return values.astype(tensor.dtype, copy=False)


def _products(call: Call) -> int:
    """Products that a contraction sums for each element of its result."""
    return max(row_of(call).macs(call) // max(prod(call.result), 1), 1)


def calibrated(graph: Graph, rng: np.random.Generator) -> Graph:
    """The graph with weights drawn where it has none, scaled by one run of the reference on random inputs.

    Drawn weights of a convolution or matrix product are divided by the root mean square of its sums, and so
    are these: what follows is scaled on maps that are scaled already. It is one factor for all channels, and
    means are left: channels of zero mean and unit variance on one input would not be so on another, and
    differences would grow exponentially with depth, as gradients do with batch normalisation (Yang et al.
    2019, arXiv 1902.08129). Raises UnsupportedModel for an operator that nothing defines.
    """
    filled = drawn(graph, rng)
    free = {
        name
        for name, value in graph.constants.items()
        if value is None and graph.tensors[name].dtype.startswith("float")
    }

    def scaled(call: Call, operands: Sequence[Part | None], results: Results) -> Results:
        names = call.operator.inputs
        weights = next((filled.constants[name] for name in names[1::-1] if name in free), None)
        free.difference_update(names)  # what reads them later takes them as they are
        if weights is None or row_of(call).tiling is not Tiling.CONTRACT or results[0].dtype.kind != "f":
            return results
        bias = _bias(call, operands)
        sums = results[0] - bias
        size = np.sqrt(np.square(sums, dtype=np.float64).mean()).astype(weights.dtype)
        if not 0 < size < np.inf:
            return results
        weights /= size  # drawn above, for this graph alone
        return ((sums / size + bias).astype(results[0].dtype),)

    if free:
        reference(filled, random_inputs(filled, rng), adjust=scaled)
    return filled


def _bias(call: Call, operands: Sequence[Part | None]) -> np.ndarray:
    """What a contraction adds to its sums, in the axes of its result."""
    if len(operands) < 3 or (part := operands[2]) is None:
        return np.zeros((), call.result_tensors[0].dtype)
    if row_of(call).family is Family.CONVOLUTION:
        return part.values.reshape(-1, *(1,) * (len(call.result) - 2))
    return part.values * np.asarray(call.attribute("beta", 1.0), part.values.dtype)
