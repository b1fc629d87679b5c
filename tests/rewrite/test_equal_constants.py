"""Equal constants are one, whatever made them, with their values and without."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Tensor
from lfopt.planning import GroupCosts
from lfopt.rewrite.equal_constants import equal_constants, merge_equal_constants
from lfopt.rewrite.simplify import simplify


def weight(name: str, *shape: int, seed: int = 0, absent: bool = False) -> onnx.TensorProto:
    if absent:
        tensor = TensorProto(
            name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL
        )
        tensor.external_data.add(key="location", value="absent")
        return tensor
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return onnx.numpy_helper.from_array(values, name)


def network(
    nodes: list[onnx.NodeProto],
    shape: tuple[int, ...],
    weights: list[onnx.TensorProto],
    rules: str = "default",
) -> Graph:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in nodes[-1].output if name
    ]
    graph = helper.make_graph(nodes, "small", [info], results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return simplify(from_model(model), rules)


def data_elements(graph: Graph) -> int:
    """Elements of constants of more than one element that hold real numbers."""
    return sum(
        graph.tensors[name].elements
        for name in graph.constants
        if graph.tensors[name].dtype.startswith("float") and graph.tensors[name].elements > 1
    )


def recurrent(kind: str, gates: int, *, steps: int, hidden: int, absent: bool) -> Graph:
    shapes = {"w": (1, gates * hidden, 6), "r": (1, gates * hidden, hidden), "b": (1, 2 * gates * hidden)}
    weights = [weight(name, *shape, seed=k, absent=absent) for k, (name, shape) in enumerate(shapes.items())]
    node = helper.make_node(kind, ["x", "w", "r", "b"], ["y"], hidden_size=hidden)
    return network([node], (steps, 1, 6), weights)


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize(("kind", "gates"), [("GRU", 3), ("LSTM", 4), ("RNN", 1)])
def test_every_step_of_a_recurrent_operator_reads_the_same_constants(
    kind: str, gates: int, *, absent: bool
) -> None:
    short, long = (recurrent(kind, gates, steps=n, hidden=5, absent=absent) for n in (3, 11))
    parameters = gates * 5 * (6 + 5 + 2) + (5 if kind == "LSTM" else 0)  # and the first cell state
    assert data_elements(short) == data_elements(long) <= parameters
    moved = parameters + 11 * 6 + 11 * 5
    assert GroupCosts.of(long, Hardware(1 << 16)).bounds.compulsory_bytes <= 2 * moved


@pytest.mark.parametrize("absent", [False, True])
def test_layers_that_share_weights_share_what_is_folded_of_them(*, absent: bool) -> None:
    nodes: list[onnx.NodeProto] = []
    before = "x"
    for k in range(3):  # a head that runs three times
        nodes += [
            helper.make_node("Conv", [before, "w"], [f"c{k}"], kernel_shape=[1, 1]),
            helper.make_node("BatchNormalization", [f"c{k}", *"smv", "q"], [f"n{k}"]),
            helper.make_node("Mul", [f"n{k}", "f"], [f"y{k}"]),
        ]
        before = f"y{k}"
    weights = [weight("w", 4, 4, 1, 1, absent=absent), weight("f", 4, 1, 1, absent=absent)]
    weights += [
        onnx.numpy_helper.from_array(np.linspace(1, 2 + k, 4, dtype=np.float32), name)
        for k, name in enumerate(("s", "m", "v", "q"))
    ]
    graph = network(nodes, (1, 4, 5, 5), weights)
    assert [operator.kind for operator in graph.operators] == ["Conv"] * 3
    assert len({operator.inputs[1:] for operator in graph.operators}) == 1
    assert data_elements(graph) == 16 + 4


@pytest.mark.parametrize("absent", [False, True])
def test_slices_and_transposes_of_one_constant_that_are_equal_are_one(*, absent: bool) -> None:
    nodes: list[onnx.NodeProto] = []
    ends = [
        onnx.numpy_helper.from_array(np.array([value]), f"{name}{k}")
        for k in range(3)
        for name, value in (("start", 2), ("end", 6), ("axis", 0))
    ]
    for k in range(3):  # each layer has an axis, a start and an end of its own
        nodes += [
            helper.make_node("Slice", ["w", f"start{k}", f"end{k}", f"axis{k}"], [f"s{k}"]),
            helper.make_node("Transpose", [f"s{k}"], [f"t{k}"], perm=[1, 0]),
            helper.make_node("MatMul", ["x" if k == 0 else f"m{k - 1}", f"t{k}"], [f"m{k}"]),
        ]
    graph = network(nodes, (7, 4), [weight("w", 9, 4, absent=absent), *ends], "none")
    assert data_elements(graph) == 16


def constants(*values: np.ndarray) -> Graph:
    """A sum of constants and an input."""
    weights = [onnx.numpy_helper.from_array(value, f"c{k}") for k, value in enumerate(values)]
    node = helper.make_node("Sum", ["x", *(w.name for w in weights)], ["y"])
    return network([node], (2, 2), weights, "none")


def test_equal_is_what_has_the_same_bits_shape_and_type() -> None:
    zeros, ones = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)
    nan, other_nan = np.full((2, 2), np.nan, np.float32), np.full((2, 2), -np.nan, np.float32)
    assert len(constants(zeros, zeros.copy(), ones).constants) == 2
    assert len(constants(zeros, -zeros, ones[:1], ones[:, :1], ones.reshape(2, 2)).constants) == 5
    assert len(constants(nan, nan.copy(), other_nan).constants) == 2
    large = np.random.default_rng(0).standard_normal((2, 2)).astype(np.float32)
    assert constants(large, large.T.copy(), large.copy()).operators[0].inputs == ("x", "c0", "c1", "c0")


def test_outputs_that_are_constants_keep_their_names() -> None:
    value = np.arange(6, dtype=np.float32)
    graph = Graph(
        "outputs",
        (),
        {name: tensor_of(name, value) for name in ("a", "b")},
        {"a": value, "b": value.copy()},
        (),
        ("a", "b"),
        18,
    )
    assert merge_equal_constants(graph).outputs == ("a", "b")
    assert equal_constants(graph.tensors, graph.constants) == {"b": "a"}


def tensor_of(name: str, value: np.ndarray) -> Tensor:
    return Tensor(name, value.shape, value.dtype.name)


def test_large_constants_are_told_apart_by_every_element() -> None:
    value = np.zeros((1000, 1000), np.float32)
    other = value.copy()
    other[517, 333] = 1
    turned = np.asfortranarray(value)
    tensors = {name: tensor_of(name, value) for name in ("a", "b", "c")}
    assert equal_constants(tensors, {"a": value, "b": other, "c": turned}) == {"c": "a"}
