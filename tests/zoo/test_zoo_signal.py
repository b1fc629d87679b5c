"""Run the networks: values stay of order one from the first layer to the last, and the output depends on the image."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

from lfopt import zoo
from lfopt.zoo.builder import Net

ort = pytest.importorskip("onnxruntime")

SKELETON = Path(__file__).resolve().parents[3] / "shared" / "models" / "skeleton.py"
BIG = ("efficientnet_b5", "efficientnet_b6", "efficientnet_b7", "resnet152", "vgg16")


def by_size(names: tuple[str, ...]) -> list:
    """Parameters of a test, the big networks marked slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in BIG else []) for name in names]


def session(model: onnx.ModelProto):
    """The model in onnxruntime, without warnings."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def noise(name: str, seed: int) -> np.ndarray:
    """A normalized image without structure."""
    return np.random.default_rng(seed).standard_normal(zoo.summary(name).input_shape, dtype=np.float32)


def scene(name: str, seed: int) -> np.ndarray:
    """A normalized image with the spectrum of photographs: amplitude falls as one over frequency, and channels are nearly the same."""
    _, channels, height, width = zoo.summary(name).input_shape
    rng = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = np.inf  # no mean
    planes = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((channels, height, width))) / frequency, s=(height, width))
    planes = 0.8 * planes.mean(axis=0) + 0.2 * planes
    return (planes / planes.std())[None].astype(np.float32)


@pytest.mark.parametrize("name", by_size(zoo.names()))
def test_output_is_of_order_one_and_depends_on_the_image(name: str) -> None:
    run = session(zoo.build(name))
    for image in (noise, scene):
        first, second = (run.run(None, {"image": image(name, seed)})[0] for seed in (1, 2))
        assert np.isfinite(first).all()
        assert 0.1 < first.std() < 10
        assert (first - second).std() > 0.3 * first.std()


# Up to the global pool, after which the estimate is rougher. Of the large networks only the ends of the residual branches and the sums: all
# tensors would not fit in memory.
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("name", "watched"),
    [
        *[pytest.param(n, r"project$|add$", id=n) for n in ("efficientnet_b3", "mobilenet_v2", "mobilenet_v3_large")],
        pytest.param("resnet50", r"^st", id="resnet50"),
        pytest.param("squeezenet1_0", r"^(conv|fire|pool\d)", id="squeezenet1_0"),
        pytest.param("resnet152", r"relu$", id="resnet152", marks=pytest.mark.slow),
        pytest.param("vgg16", r".", id="vgg16", marks=pytest.mark.slow),
        pytest.param("efficientnet_b7", r"project$|add$", id="efficientnet_b7", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_estimated_variance_is_that_of_a_run(name: str, watched: str, seed: int) -> None:
    """Within a factor of 2.5 at every depth, so that nothing vanishes or blows up."""
    net = Net(name, seed, weights=True)
    image = net.image(zoo.summary(name).input_shape)
    model = net.model(image, zoo.summary(name).layers(net, image), "")
    del model.graph.output[:]
    model.graph.output.extend([v for v in model.graph.value_info if re.search(watched, v.name)])
    run = session(model)
    names = [v.name for v in run.get_outputs()]
    for tensor, values in zip(names, run.run(names, {"image": noise(name, seed)}), strict=True):
        ratio = float(values.var(dtype=np.float64)) / net.values[tensor].moments.variance
        assert 1 / 2.5 < ratio < 2.5, f"{tensor}: measured variance is {ratio:.2f} of the estimate"


def skeleton() -> ModuleType:
    """The tool beside the shared graphs."""
    if not SKELETON.exists():
        pytest.skip(f"{SKELETON} is not on this machine")
    spec = importlib.util.spec_from_file_location("skeleton", SKELETON)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenet_v1", "resnet18"])
def test_tool_of_the_shared_graphs_fills_a_model_without_weights(name: str) -> None:
    tool = skeleton()
    model = tool.calibrate(tool.fill(zoo.build(name, weights=False), seed=1), seed=1)
    onnx.checker.check_model(model)
    assert np.isfinite(session(model).run(None, {"image": noise(name, 1)})[0]).all()
