"""Inputs drawn at random."""

from __future__ import annotations

import numpy as np

from lfopt.ir import Graph, Tensor
from lfopt.ops.fixed_point import quantized


def random_inputs(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Graph inputs by name, in their shapes and types, drawn at random: normal where real, else 0 and 1."""
    return {name: _random(graph.tensors[name], rng) for name in graph.inputs}


def _random(tensor: Tensor, rng: np.random.Generator) -> np.ndarray:
    if tensor.quantization:
        return quantized(rng.standard_normal(tensor.shape), tensor.quantization, tensor.dtype)
    if tensor.dtype.startswith("float"):
        return rng.standard_normal(tensor.shape).astype(tensor.dtype)
    drawn = rng.integers(0, 2, tensor.shape)
    if tensor.dtype == "string":
        return drawn.astype(str).astype(object)
    return drawn.astype(tensor.dtype)
