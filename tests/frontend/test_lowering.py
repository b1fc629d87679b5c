"""Operators without a row of their own, lowered to others: results are onnxruntime's or the reference's."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_value_info,
    np_dtype_to_tensor_dtype,
)
from onnx.reference import ReferenceEvaluator

from lfopt.frontend import from_model, load
from lfopt.ir import UnsupportedModel
from lfopt.ops import TABLE
from lfopt.ops.reference import reference
from tests.frontend.oracle import assert_close, run
from tests.frontend.small_models import build, floats, ints

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 5, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
Values = dict[str, np.ndarray]


def single(
    kind: str, values: Values, inputs: Values, outputs: int = 1, opset: int = 22, **attributes: Any
) -> ModelProto:
    """One operator; `values` are its operands in order, those in `inputs` the network's inputs."""
    names = [name if value.size or name in inputs else "" for name, value in values.items()]
    node = make_node(kind, names, [f"y{k}" for k in range(outputs)], **attributes)
    ends = [
        make_tensor_value_info(name, np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    results = [make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output]
    fixed = [
        onnx.numpy_helper.from_array(value, name)
        for name, value in values.items()
        if name not in inputs and value.size
    ]
    graph = make_graph([node], "one", ends, results, fixed)
    for value in onnx.shape_inference.infer_shapes(
        make_model(graph, opset_imports=[make_opsetid("", opset)])
    ).graph.output:
        next(
            end for end in results if end.name == value.name
        ).type.tensor_type.elem_type = value.type.tensor_type.elem_type
    return make_model(
        make_graph([node], "one", ends, results, fixed),
        opset_imports=[make_opsetid("", opset)],
        ir_version=10,
    )


def check(model: ModelProto, inputs: Values, *, runtime: bool = True, relative: float = 1e-5) -> None:
    network = from_model(model)
    assert all(operator.kind in TABLE for operator in network.operators)
    outputs = reference(network, inputs)
    wanted = run(model, inputs) if runtime else ReferenceEvaluator(model).run(None, inputs)
    assert_close(
        [outputs[name] for name in network.outputs], [np.asarray(value) for value in wanted], relative
    )  # type: ignore[union-attr]


ABSENT = np.zeros(0, np.float32)
SHORT = np.array([4, 1, 2], np.int32)
RECURRENT: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    **{
        f"{kind}, {way}": (kind, {"direction": way}, ("B",))
        for kind, way in product(GATES, ("forward", "reverse", "bidirectional"))
    },
    **{
        f"{kind}, everything": (
            kind,
            {"direction": "bidirectional", "clip": 0.3},
            ("B", "lens", "h", "c", "P"),
        )
        for kind in GATES
    },
    "GRU, before reset": ("GRU", {"direction": "reverse", "linear_before_reset": 1}, ("B", "lens")),
    "LSTM, coupled": ("LSTM", {"input_forget": 1}, ("B", "P")),
    "RNN, affine": (
        "RNN",
        {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]},
        (),
    ),
    "LSTM, other functions": (
        "LSTM",
        {
            "activations": ["HardSigmoid", "Relu", "Softsign"],
            "activation_alpha": [0.3],
            "activation_beta": [0.4],
        },
        (),
    ),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_networks_are_their_steps(name: str) -> None:
    kind, attributes, present = RECURRENT[name]
    ways, gates = 2 if attributes.get("direction") == "bidirectional" else 1, GATES[kind]
    values = {
        "x": floats(STEPS, BATCH, FEATURES), "W": floats(ways, gates * HIDDEN, FEATURES),
        "R": floats(ways, gates * HIDDEN, HIDDEN), "B": floats(ways, 2 * gates * HIDDEN), "lens": SHORT,
        "h": floats(ways, BATCH, HIDDEN),
    }  # fmt: skip
    if kind == "LSTM":
        values |= {"c": floats(ways, BATCH, HIDDEN), "P": floats(ways, 3 * HIDDEN)}
    values = {key: value if key in (*present, "x", "W", "R") else ABSENT for key, value in values.items()}
    inputs = {key: values[key] for key in ("x", "lens") if values[key].size}
    outputs = 3 if kind == "LSTM" else 2
    check(single(kind, values, inputs, outputs, opset=14, hidden_size=HIDDEN, **attributes), inputs)


def test_the_batch_may_come_first() -> None:
    values = {
        "x": floats(BATCH, STEPS, FEATURES),
        "W": floats(1, 4 * HIDDEN, FEATURES),
        "R": floats(1, 4 * HIDDEN, HIDDEN),
    }
    check(
        single("LSTM", values, {"x": values["x"]}, 3, hidden_size=HIDDEN, layout=1),
        {"x": values["x"]},
        runtime=False,
    )


SPACES = {2: ((2, 3, 4, 5), (2, 3, 6, 2)), 3: ((1, 2, 3, 4, 5), (1, 2, 3, 4, 3))}


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize(
    ("mode", "rank"), [("linear", 2), ("nearest", 2), ("cubic", 2), ("linear", 3), ("nearest", 3)]
)
def test_a_grid_is_sampled(mode: str, rank: int, aligned: int, padding: str) -> None:
    shapes = SPACES[rank]
    values = {
        "x": floats(*shapes[0]),
        "grid": np.random.default_rng(rank).uniform(-1.6, 1.6, shapes[1]).astype(np.float32),
    }
    check(
        single(
            "GridSample", values, values, opset=20, mode=mode, align_corners=aligned, padding_mode=padding
        ),
        values,
    )


X = floats(4, 3, 5)
GRAMS: dict[str, Any] = {  # four numbers alone, and three pairs
    "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
}  # fmt: skip
OTHERS: dict[str, tuple[str, Values, tuple[str, ...], dict[str, Any]]] = {
    "one-hot vectors": (
        "OneHot", {"i": ints(0, -1, 2, 7), "n": np.array(4), "v": np.array([2, 5], np.float32)}, ("i", "v"),
        {},
    ),
    "one-hot, first": (
        "OneHot", {"i": ints(0, 3), "n": ints(4), "v": np.array([2, 5], np.float32)}, ("i", "v"), {"axis": 0},
    ),
    "sequences reversed": ("ReverseSequence", {"x": X, "n": ints(1, 4, 2)}, ("x", "n"), {}),
    "sequences reversed, batch first": (
        "ReverseSequence", {"x": X, "n": ints(1, 3, 2, 3)}, ("x",), {"time_axis": 1, "batch_axis": 0},
    ),
    "compressed": ("Compress", {"x": X, "c": np.array([1, 0, 1], bool)}, ("x",), {"axis": 1}),
    "compressed, flat": ("Compress", {"x": X, "c": np.array([0, 1, 0, 1], bool)}, ("x",), {}),
    "a diagonal": ("EyeLike", {"x": floats(3, 4)}, ("x",), {"k": 1, "dtype": TensorProto.INT32}),
    "determinants": ("Det", {"x": floats(2, 3, 3)}, ("x",), {}),
    "columns": (
        "Col2Im", {"x": floats(2, 3 * 4, 6), "image": ints(5, 4), "block": ints(2, 2)}, ("x",),
        {"pads": [0, 1, 1, 0], "strides": [2, 2]},
    ),
    "a maximum put back": (
        "MaxUnpool", {"x": floats(1, 1, 2, 2), "i": np.array([[[[5, 7], [8, 14]]]])}, ("x", "i"),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "a spectrum": ("DFT", {"x": floats(2, 6, 1), "n": np.array(5)}, ("x",), {"onesided": 1}),
    "a spectrum of complex numbers": (
        "DFT", {"x": floats(2, 6, 3, 2), "n": np.array(8), "axis": np.array(1)}, ("x",), {},
    ),
    "a spectrum and back": ("DFT", {"x": floats(2, 6, 2)}, ("x",), {"inverse": 1}),
    "spectra of frames": (
        "STFT", {"x": floats(1, 20, 1), "s": np.array(4), "w": floats(8), "n": np.array(8)}, ("x", "w"), {},
    ),
    "bands of a spectrum": (
        "MelWeightMatrix",
        {
            "n": np.array(8), "l": np.array(64), "r": np.array(8192), "low": np.array(0, np.float32),
            "high": np.array(4096, np.float32),
        },
        (), {},
    ),
    "n-grams": (
        "TfIdfVectorizer", {"x": ints(1, 3, 3, 3, 7, 8, 6, 7, 5, 6).reshape(2, 5)}, ("x",),
        GRAMS | {"mode": "TF", "min_gram_length": 1},
    ),
    "n-grams, weighed": (
        "TfIdfVectorizer", {"x": ints(2, 3, 5, 4, 5, 6, 7, 8)}, ("x",),
        GRAMS | {
            "mode": "TFIDF", "min_gram_length": 2, "max_skip_count": 3,
            "weights": [0.5, 1.0, 2.0, 0.25, 3.0, 4.0, 5.0],
        },
    ),
    "n-grams that are there": (
        "TfIdfVectorizer", {"x": ints(2, 3, 5, 4, 5, 6)}, ("x",),
        GRAMS | {"mode": "IDF", "min_gram_length": 1},
    ),
    "statistics of the batch": (
        "BatchNormalization", {"x": X, **{name: np.abs(floats(3)) for name in ("s", "b", "m", "v")}}, ("x",),
        {"training_mode": 1, "momentum": 0.7},
    ),
}  # fmt: skip
# those that onnxruntime lacks, or computes otherwise
BY_REFERENCE = frozenset({"columns", "statistics of the batch", "a diagonal"})


@pytest.mark.parametrize("name", OTHERS)
def test_rare_operators_are_others(name: str) -> None:
    kind, values, computed, attributes = OTHERS[name]
    inputs = {key: values[key] for key in computed}
    outputs = 3 if kind == "BatchNormalization" else 1
    check(
        single(kind, values, inputs, outputs, opset=20, **attributes),
        inputs,
        runtime=name not in BY_REFERENCE,
        relative=1e-4,
    )


def test_what_they_do_not_do_is_said() -> None:
    x = floats(2000, 1, 2)
    values = {"x": x, "W": floats(1, 2, 2), "R": floats(1, 2, 2)}
    with pytest.raises(
        UnsupportedModel, match=r"\(RNN\): 2000 steps in 1 directions; lfopt writes out 1 to 1024 in all"
    ):
        from_model(single("RNN", values, {"x": x}, hidden_size=2))
    depth = {"i": ints(1), "n": np.array(4), "v": floats(2)}
    with pytest.raises(UnsupportedModel, match=r"\(OneHot\): its depth is computed; lfopt reads a constant"):
        from_model(single("OneHot", depth, depth))


def test_slopes_of_opset_6_are_those_of_channels() -> None:
    for shape, slope in (((2, 3, 4, 5), floats(3)), ((2, 3), floats(3)), ((2, 3, 4), floats(1))):
        network = from_model(
            build([make_node("PRelu", ["x", "s"], ["y"])], {"x": shape}, {"s": slope}, opset=6)
        )
        x = floats(*shape)
        wanted = np.where(x < 0, x * slope.reshape(-1, *(1,) * (len(shape) - 2)), x)
        assert_close([*reference(network, {"x": x}).values()], [wanted])


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_floats_are_computed_in_float32_and_their_ends_stay(kind: int, tmp_path) -> None:
    half = onnx.helper.tensor_dtype_to_np_dtype(kind)
    # more elements than stay inside the model while it is read
    weights, x = floats(64, 64).astype(half), floats(2, 64).astype(half)
    nodes = [
        make_node("MatMul", ["x", "w"], ["p"]),
        make_node("Cast", ["p"], ["q"], to=kind),
        make_node("Add", ["q", "one"], ["y"]),
    ]
    model = build(nodes, {"x": (2, 64)}, opset=18, dtype=kind)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((), half), "one"))
    onnx.save(model, tmp_path / "half.onnx")
    network = load(tmp_path / "half.onnx")
    ends = {*network.inputs, *network.outputs}
    assert {name: tensor.dtype for name, tensor in network.tensors.items() if name in ends} == {
        "x": half.name,
        "y": half.name,
    }
    assert {tensor.dtype for name, tensor in network.tensors.items() if name not in ends} == {"float32"}
    assert network.notes == (f"{half.name}: computed in float32; inputs and outputs keep their types",)
    (output,) = reference(network, {"x": x}).values()
    wanted = (x.astype(np.float32) @ weights.astype(np.float32) + 1).astype(half)
    assert output.dtype == half
    assert np.array_equal(output.astype(np.float32), wanted.astype(np.float32))
