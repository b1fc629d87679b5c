"""Run the networks: values stay of order one in every layer, and the output depends on the image."""

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
TEXTS = ("gpt2", "gpt2_step", "bert_base")
BIG = (
    "efficientnet_b1",
    "efficientnet_b2",
    "efficientnet_b4",
    "resnet34",
    "resnet101",
    "efficientnet_b5",
    "efficientnet_b6",
    "efficientnet_b7",
    "resnet152",
    "vgg16",
    "yolov4",
    "c3d",
    *TEXTS,
    "vit_b16",
    "detr_resnet50",
    "whisper_tiny_encoder",
    "segformer_b0",
)


def by_size(names: tuple[str, ...]) -> list:
    """Parameters of a test, the big networks marked slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in BIG else []) for name in names]


def session(model: onnx.ModelProto):
    """The model in onnxruntime, without warnings."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def noise(row: zoo.NetworkSummary, seed: int) -> np.ndarray:
    """A normalized image without structure, or tokens that are all as likely."""
    rng = np.random.default_rng(seed)
    if row.vocabulary is not None:
        return rng.integers(row.vocabulary, size=row.input_shape)
    return rng.standard_normal(row.input_shape, dtype=np.float32)


def scene(row: zoo.NetworkSummary, seed: int) -> np.ndarray:
    """A normalized image with the spectrum of photographs: amplitude falls as one over frequency.

    Channels are nearly the same.

    A text as Zipf found it: the likelihood of a token is as one over its rank.
    """
    rng = np.random.default_rng(seed)
    if row.vocabulary is not None:
        likelihood = 1 / np.arange(1, row.vocabulary + 1)
        return rng.choice(row.vocabulary, size=row.input_shape, p=likelihood / likelihood.sum())
    _, channels, *sizes = row.input_shape
    axes = range(1, len(sizes) + 1)
    along = [*(np.fft.fftfreq(size) for size in sizes[:-1]), np.fft.rfftfreq(sizes[-1])]
    frequency = np.sqrt(sum(f**2 for f in np.meshgrid(*along, indexing="ij")))
    frequency.flat[0] = np.inf  # no mean
    planes = np.fft.irfftn(
        np.fft.rfftn(rng.standard_normal((channels, *sizes)), axes=axes) / frequency, s=sizes, axes=axes
    )
    planes = 0.8 * planes.mean(axis=0) + 0.2 * planes
    return (planes / planes.std())[None].astype(np.float32)


def outputs(run, given: np.ndarray) -> list[np.ndarray]:
    """Of the first input; what an earlier step has left is normal."""
    first, *states = run.get_inputs()
    rng = np.random.default_rng(0)
    return run.run(
        None,
        {first.name: given}
        | {state.name: rng.standard_normal(state.shape, dtype=np.float32) for state in states},
    )


@pytest.mark.parametrize("name", by_size(zoo.names()))
def test_outputs_are_of_order_one_and_depend_on_the_input(name: str) -> None:
    row, run = zoo.summary(name), session(zoo.build(name))
    for given in (noise, scene):
        for first, second in zip(
            outputs(run, given(row, seed=1)), outputs(run, given(row, seed=2)), strict=True
        ):
            assert np.isfinite(first).all()
            assert 0.1 < first.std() < 10
            assert (first - second).std() > 0.3 * first.std()


@pytest.mark.parametrize("name", by_size(("unet", "mobilenet_v1_ssd", "c3d", "yolov4")))
def test_an_error_of_the_input_grows_less_than_a_hundredfold(name: str) -> None:
    """So that float32 implementations, which differ by 1e-7 in each layer, agree on the output to 1e-4."""
    row, run = zoo.summary(name), session(zoo.build(name))
    given, error = noise(row, seed=1), np.float32(1e-5) * noise(row, seed=2)
    for exact, disturbed in zip(outputs(run, given), outputs(run, given + error), strict=True):
        assert (exact - disturbed).std() / exact.std() < 100 * 1e-5


# Up to the global pool, after which the estimate is rougher. Of the large networks only the ends of the
# residual branches and the sums: all tensors would not fit in memory.
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("name", "watched"),
    [
        *[
            pytest.param(n, r"project$|add$", id=n)
            for n in ("efficientnet_b3", "mobilenet_v2", "mobilenet_v3_large")
        ],
        pytest.param("resnet50", r"^st", id="resnet50"),
        pytest.param("squeezenet1_0", r"^(conv|fire|pool\d)", id="squeezenet1_0"),
        pytest.param("mobilenet_v1_ssd", r".", id="mobilenet_v1_ssd"),
        pytest.param("unet", r".", id="unet"),
        pytest.param("resnet152", r"relu$", id="resnet152", marks=pytest.mark.slow),
        pytest.param("vgg16", r".", id="vgg16", marks=pytest.mark.slow),
        pytest.param("efficientnet_b7", r"project$|add$", id="efficientnet_b7", marks=pytest.mark.slow),
        pytest.param("c3d", r"^stage\d.conv", id="c3d", marks=pytest.mark.slow),
        pytest.param("yolov4", r"add$|merge$|conv\d?$|boxes$|pool\d", id="yolov4", marks=pytest.mark.slow),
        pytest.param(
            "vit_tiny", r"^positions$|add\d$|expand$|norm\d?$|logits$", id="vit_tiny", marks=pytest.mark.slow
        ),
        pytest.param(
            "whisper_tiny_encoder",
            r"^embedded$|add\d$|expand$|norm\d?$",
            id="whisper_tiny_encoder",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "segformer_b0", r"add\d$|expand$|norm\d?$|logits$", id="segformer_b0", marks=pytest.mark.slow
        ),
        pytest.param(
            "detr_resnet50",
            r"^input$|(?<!^decoder1\.)add1$|add[23]$|expand$|norm\d?$",
            id="detr_resnet50",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "bert_base", r"^embedded$|add\d$|expand$|norm\d?$", id="bert_base", marks=pytest.mark.slow
        ),
        pytest.param("gpt2", r"^embedded$|add\d$|expand|norm\d?$|logits$", id="gpt2", marks=pytest.mark.slow),
    ],
)
def test_estimated_variance_is_that_of_a_run(name: str, watched: str, seed: int) -> None:
    """Within a factor of 2.5 at every depth, so that nothing vanishes or blows up."""
    row, net = zoo.summary(name), Net(name, seed, weights=True)
    given = (
        net.image(row.input_shape) if row.vocabulary is None else net.tokens(row.input_shape, row.vocabulary)
    )
    model = net.model(given, row.layers(net, given), "")
    values = [*model.graph.value_info, *model.graph.output]
    del model.graph.output[:]
    model.graph.output.extend([v for v in values if re.search(watched, v.name)])
    run = session(model)
    for output, signal in zip(run.get_outputs(), outputs(run, noise(row, seed)), strict=True):
        ratio = float(signal.var(dtype=np.float64)) / net.values[output.name].moments.variance
        assert 1 / 2.5 < ratio < 2.5, f"{output.name}: measured variance is {ratio:.2f} of the estimate"


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
    assert np.isfinite(outputs(session(model), noise(zoo.summary(name), seed=1))[0]).all()
