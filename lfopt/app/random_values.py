"""Values drawn at random: inputs, and weights where a network has none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lfopt.ir import Graph, Tensor
from lfopt.ops.fixed_point import quantized


def random_inputs(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Graph inputs drawn at random: normal where they are real, else 0 and 1."""
    return {name: _random(graph.tensors[name], rng) for name in graph.inputs}


def _random(tensor: Tensor, rng: np.random.Generator) -> np.ndarray:
    if tensor.quantization:
        return quantized(rng.standard_normal(tensor.shape), tensor.quantization, tensor.dtype)
    if tensor.dtype.startswith("float"):
        return rng.standard_normal(tensor.shape).astype(tensor.dtype)
    return rng.integers(0, 2, tensor.shape).astype(tensor.dtype)


def drawn(graph: Graph, rng: np.random.Generator) -> Graph:
    """The graph with weights drawn at random where it has none."""
    constants = dict(graph.constants)
    for name, value in constants.items():
        if value is None:
            tensor = graph.tensors[name]
            # Small enough for deep networks to stay finite.
            fan_in = max(tensor.elements // max(tensor.shape[0], 1), 1) if len(tensor.shape) > 1 else 100
            constants[name] = (rng.standard_normal(tensor.shape) * (2 / fan_in) ** 0.5).astype(tensor.dtype)
    return replace(graph, constants=constants)
