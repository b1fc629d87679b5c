"""Whole networks, compiled as users compile them, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx.backend.test
import onnxruntime
import pytest

from lfopt.app.arrays import with_values
from lfopt.app.compiled import compile_graph
from lfopt.app.pipeline import load_network
from lfopt.frontend import save
from lfopt.ir import Graph

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
TOLERANCE = 1e-4  # of the largest output

pytestmark = pytest.mark.slow


def inputs_of(graph: Graph) -> dict[str, np.ndarray]:
    """Normal floats; whole numbers are ones, which are a token and a mask."""
    rng = np.random.default_rng(0)
    inputs: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        real = np.dtype(tensor.dtype).kind == "f"
        inputs[name] = (
            rng.standard_normal(tensor.shape).astype(tensor.dtype)
            if real
            else np.ones(tensor.shape, tensor.dtype)
        )
    return inputs


def agrees(graph: Graph, folder: Path, threads: int = 1) -> None:
    save(graph, folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    inputs = inputs_of(graph)
    expected = {
        name: np.asarray(value)
        for name, value in zip(graph.outputs, session.run(list(graph.outputs), inputs), strict=True)
    }
    model, _ = compile_graph(graph, threads=threads)
    for name, values in model.run(inputs).items():
        scale = float(np.abs(expected[name]).max())
        assert float(np.abs(values - expected[name]).max()) <= TOLERANCE * max(scale, 1e-6), name


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [path.stem for path in sorted(LIGHT.glob("*.onnx"))])
def test_onnx_s_light_networks(name: str, tmp_path: Path) -> None:
    agrees(load_network(str(LIGHT / f"{name}.onnx"), {}, "default"), tmp_path)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "name",
    [
        "hf_albert_12l", "hf_bert_base", "hf_distilbert_2l", "hf_efficientnet_b0", "hf_efficientnet_b3",
        "hf_gpt2", "hf_mobilebert", "hf_mobilenet_v1", "hf_mobilenet_v2", "hf_mobilenet_v2_deeplab",
        "hf_resnet101", "hf_resnet18", "hf_resnet34", "hf_resnet50", "hf_tinybert_4_312",
        "tv_deeplabv3_mobilenet_v3_large", "tv_fasterrcnn_r50_fpn_rpn", "tv_maskrcnn_r50_heads",
        "tv_mobilenet_v3_large", "tv_s3d", "tv_squeezenet1_1", "tv_ssd300_vgg16_nopost", "tv_vgg16",
    ],
)  # fmt: skip
def test_real_networks(shared_model: Callable[[str], Path], name: str, threads: int, tmp_path: Path) -> None:
    path = shared_model(name)
    graph = load_network(str(path), {}, "default")
    agrees(with_values(graph, path, np.random.default_rng(0)), tmp_path, threads)
