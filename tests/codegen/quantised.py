"""Networks quantised by ONNX Runtime, and inputs of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lfopt.frontend import from_model
from lfopt.ir import Graph
from tests.qdq_models import quantise


def feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Any integers that the inputs' types hold; normal floats."""
    rng = np.random.default_rng(seed)

    def one(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if np.dtype(dtype).kind == "f":
            return rng.standard_normal(shape).astype(dtype)
        return rng.integers(np.iinfo(dtype).min, int(np.iinfo(dtype).max) + 1, shape).astype(dtype)

    return {name: one(graph.tensors[name].dtype, graph.shape(name)) for name in graph.inputs}


def quantised(graph: Graph, folder: Path, seed: int = 0, dtype: str = "int8") -> Graph:
    """The network as ONNX Runtime quantises it, all of it that it can."""
    kinds = sorted({operator.kind for operator in graph.operators})
    return from_model(
        quantise(graph, folder / "q.onnx", np.random.default_rng(seed), dtype, op_types_to_quantize=kinds)
    )
