"""lfopt quantize: an int8 network comes out, and one clear line for whatever is wrong."""

from __future__ import annotations

import builtins
import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from lfopt.app.commands.quantize import quantize
from lfopt.frontend import load
from lfopt.ir import InvalidConfig
from tests.qdq_models import run

SHAPE = ("--input-shape", "image=1,3,48,48")


@pytest.fixture
def small(tmp_path):
    """A network of two inputs: a convolution with BatchNormalization and Relu, times the second input."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((4, 3, 3, 3)),
        **{name: rng.uniform(0.5, 1.5, 4) for name in "smv"},
        "b": rng.standard_normal(4),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("Identity", ["r"], ["i"], "same"),
        helper.make_node("Mul", ["i", "z"], ["y"], "gate"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", 1, [1, 3, 8, 8]),
        helper.make_tensor_value_info("z", 1, [1, 4, 1, 1]),
    ]
    initializers = [
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()
    ]
    graph = helper.make_graph(
        nodes, "small", inputs, [helper.make_tensor_value_info("y", 1, [1, 4, 8, 8])], initializers
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "small.onnx",
    )
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((6, 3, 8, 8)), z=rng.uniform(0, 1, (6, 4, 1, 1)))
    return tmp_path


def test_a_network_of_the_zoo_becomes_int8_and_can_be_searched(lfopt, tmp_path):
    done = lfopt("quantize", "zoo:squeezenet1_1", "-o", "q.onnx", "--samples", "2", *SHAPE)
    assert "random inputs (seed 0), not from data" in " ".join(done.stdout.split())
    assert "39 of 39 operators on 8-bit maps" in done.stdout
    graph = load(tmp_path / "q.onnx")
    assert {graph.tensors[name].dtype for name in (*graph.inputs, *graph.outputs)} == {"int8"}
    assert not [op for op in graph.operators if op.kind in ("QuantizeLinear", "DequantizeLinear")]
    run(onnx.load(tmp_path / "q.onnx"), {"image": np.zeros((1, 3, 48, 48), np.float32)}, optimised=True)
    shown = lfopt("inspect", "q.onnx", "--buffer", "64KiB", "--element-bytes", "1")
    assert "Linear" not in shown.stdout
    lfopt(
        "search", "q.onnx", "--buffer", "64KiB", "--scheme", "lbdf", "--objective", "bytes", "--out", "plan"
    )
    assert "every figure holds" in lfopt("check", "plan").stdout
    assert json.loads((tmp_path / "plan/plan.json").read_text())["totals"]["proof"] == "optimal"
    run(onnx.load(tmp_path / "plan/simplified.onnx"), {"image": np.zeros((1, 3, 48, 48), np.float32)})


def test_a_network_may_end_earlier(lfopt, small):
    lfopt("quantize", "small.onnx", "-o", "q.onnx", "--samples", "1", "--end", "r", "--end", "n")
    graph = load(small / "q.onnx")
    assert (graph.inputs, graph.outputs) == (("x",), ("r", "n"))
    assert [op.kind for op in graph.operators] == ["Conv", "Relu"]


def test_calibration_data_decides_the_scales(lfopt, small):
    lfopt("quantize", "small.onnx", "-o", "q.onnx", "--calibration", "data.npz")
    lfopt("quantize", "small.onnx", "-o", "one.onnx", "--calibration", "data.npz", "--samples", "1")
    lfopt("quantize", "small.onnx", "-o", "u.onnx", "--calibration", "data.npz", "--unsigned")
    graph, one, unsigned = (load(small / name) for name in ("q.onnx", "one.onnx", "u.onnx"))
    # BatchNormalization is folded, Relu is in the scale, Identity is gone
    assert [op.kind for op in graph.operators] == ["Conv", "Mul"]
    scale, small_scale = (g.tensors["x"].quantization.scale[0] for g in (graph, one))  # type: ignore[union-attr]
    data = np.load(small / "data.npz")["x"]
    assert scale == pytest.approx((data.max() - data.min()) / 255, rel=1e-3)
    assert small_scale < scale
    assert {unsigned.tensors[name].dtype for name in ("x", "z", "y")} == {"uint8"}
    assert unsigned.tensors[unsigned.operators[0].inputs[1]].dtype == "int8"


def test_the_same_seed_gives_the_same_file(lfopt, small):
    for name in ("a.onnx", "b.onnx"):
        lfopt("quantize", "small.onnx", "-o", name, "--seed", "5")
    lfopt("quantize", "small.onnx", "-o", "c.onnx", "--seed", "6")
    a, b, c = ((small / name).read_bytes() for name in ("a.onnx", "b.onnx", "c.onnx"))
    assert a == b != c


def test_a_network_may_be_written_over_itself_once(lfopt, small):
    lfopt("quantize", "small.onnx", "-o", "small.onnx")
    before = (small / "small.onnx").read_bytes()
    done = lfopt("quantize", "small.onnx", "-o", "small.onnx", check=False)
    assert done.returncode == 2
    assert "small.onnx: is quantised already" in done.stderr
    assert (small / "small.onnx").read_bytes() == before
    assert not [file for file in small.iterdir() if "part" in file.name]


def test_wrong_input_is_one_line_and_exit_code_2(lfopt, small, shared_model):
    rng = np.random.default_rng(0)
    np.savez(small / "missing.npz", x=rng.random((2, 3, 8, 8)))
    np.savez(small / "shape.npz", x=rng.random((2, 3, 9, 8)), z=rng.random((2, 4, 1, 1)))
    np.savez(small / "count.npz", x=rng.random((2, 3, 8, 8)), z=rng.random((3, 4, 1, 1)))
    np.savez(small / "nan.npz", x=np.full((2, 3, 8, 8), np.nan), z=rng.random((2, 4, 1, 1)))
    np.savez(small / "objects.npz", x=np.array([{}], dtype=object), z=rng.random((2, 4, 1, 1)))
    np.savez(small / "empty.npz", x=np.zeros((0, 3, 8, 8)), z=np.zeros((0, 4, 1, 1)))
    np.save(small / "array.npy", rng.random((2, 3, 8, 8)))
    (small / "text.npz").write_text("hello")
    (small / "folder").mkdir()
    data = ("small.onnx", "-o", "q.onnx", "--calibration")
    wrong = {
        (*data, "missing.npz"): "missing.npz: no array 'z'; it holds 'x'; accepted: [samples * 1, 4, 1, 1]",
        (*data, "shape.npz"): "shape.npz: 'x': found float64 [2, 3, 9, 8]; accepted: [samples * 1, 3, 8, 8]",
        (*data, "count.npz"): "count.npz: the inputs have {'x': 2, 'z': 3} samples",
        (*data, "nan.npz"): "nan.npz: 'x': holds infinities or NaN",
        (*data, "objects.npz"): "objects.npz: not a NumPy archive of arrays",
        (*data, "empty.npz"): "empty.npz: 'x': found float64 [0, 3, 8, 8]",
        (*data, "array.npy"): "array.npy: found one array",
        (*data, "text.npz"): "text.npz: not a NumPy archive",
        (*data, "gone.npz"): "gone.npz: No such file",
        (*data, "folder"): "folder: found a folder; accepted: a file",
        ("small.onnx", "-o", "q.onnx", "--samples", "0"): "at least 1 sample",
        ("small.onnx", "-o", "q.onnx", "--seed", "-1"): "a seed of at least 0",
        (
            "small.onnx",
            "-o",
            "q.onnx",
            "--end",
            "rr",
        ): "--end rr: no operator of the network makes it; did you mean r?",
        ("small.onnx", "-o", "nowhere/q.onnx"): "nowhere/q.onnx: cannot be written",
        ("small.onnx", "-o", "folder"): "folder: cannot be written",
        ("gone.onnx", "-o", "q.onnx"): "gone.onnx: no such file",
        ("zoo:gone", "-o", "q.onnx"): "is not in the zoo",
        (
            shared_model("hf_mobilenet_v2"),
            "-o",
            "q.onnx",
        ): "has no values, and scales come from running the network",
    }
    for arguments, expected in wrong.items():
        done = lfopt("quantize", *arguments, check=False)
        lines = [line for line in done.stderr.splitlines() if line.startswith("lfopt: ")]
        assert done.returncode == 2, arguments
        assert len(lines) == 1, done.stderr
        assert expected in lines[0]
        assert "Traceback" not in done.stderr
        assert not (small / "q.onnx").exists()


def test_without_onnxruntime_it_says_how_to_get_it(small, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **options):
        if name.startswith("onnxruntime"):
            raise ModuleNotFoundError("No module named 'onnxruntime'")
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        InvalidConfig,
        match=r"needs ONNX Runtime \(No module named 'onnxruntime'\): pip install 'lfopt\[quantize\]'",
    ):
        quantize(str(small / "small.onnx"), out_file=small / "q.onnx")
