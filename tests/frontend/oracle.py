"""What onnxruntime makes of a model, and where the real networks lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from lfopt.ir import Graph

LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
SHARED = sorted((Path(__file__).parents[2] / "../shared/models").resolve().glob("*.onnx"))


def run(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of the model, by onnxruntime without its optimizer."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return runtime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


def newest_opset_of_onnxruntime(model: ModelProto) -> ModelProto:
    """The model marked with an opset that onnxruntime reads, equal to the newest for all that tests use."""
    model.opset_import[0].version = min(model.opset_import[0].version, 26)
    return model


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal random numbers for every input; real ones where integers stand for them, as in the file."""
    rng = np.random.default_rng(seed)
    types = {
        name: "float32" if graph.tensors[name].quantization else graph.tensors[name].dtype
        for name in graph.inputs
    }
    return {name: rng.standard_normal(graph.shape(name)).astype(dtype) for name, dtype in types.items()}


def assert_close(
    outputs: list[np.ndarray], wanted: list[np.ndarray], relative: float = 1e-5, what: str = ""
) -> None:
    """Equal shapes, and values that differ by at most `relative` of the largest."""
    assert len(outputs) == len(wanted), what
    for f, w in zip(outputs, wanted, strict=True):
        assert f.shape == w.shape, what
        assert np.abs(f.astype(np.float64) - w).max(initial=0) <= relative * max(
            np.abs(w).max(initial=0), 1e-6
        ), what


def structure(graph: Graph) -> list[tuple[object, ...]]:
    """Operators by name, kind and shapes."""
    shapes = {name: tensor.shape for name, tensor in graph.tensors.items()} | {"": None}
    return [
        (op.name, op.kind, op.domain, [shapes[t] for t in op.inputs], [shapes[t] for t in op.outputs])
        for op in graph.operators
    ]
