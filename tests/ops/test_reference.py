"""The plain reference of whole graphs against ONNX Runtime, and what it says of wrong input."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from lfopt import zoo
from lfopt.frontend import from_model, to_model
from lfopt.ir import Graph, InvalidConfig, MissingValues, UnsupportedModel, whole
from lfopt.ops import OPAQUE, Call, spec
from lfopt.ops.compute import Part, compute
from lfopt.ops.reference import reference
from tests.operators import RUNTIME_OPSET
from tests.strategies import random_graph

SEEDS = range(200)
# network and its input at reduced resolution
NETWORKS = {
    "efficientnet_b0": (1, 3, 64, 64),
    "fsrcnn": (1, 1, 24, 32),
    "fsrcnn_deconv": (1, 1, 24, 32),
    "mobilenet_v1": (1, 3, 64, 64),
    "mobilenet_v2": (1, 3, 96, 64),
    "mobilenet_v3_small": (1, 3, 64, 64),
    "resnet18": (1, 3, 64, 64),
    "squeezenet1_1": (1, 3, 64, 64),
}


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=graph.shape(name)).astype(graph.tensors[name].dtype) for name in graph.inputs
    }


def runtime(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Graph outputs by ONNX Runtime."""
    model = to_model(graph)
    for imported in model.opset_import:
        if not imported.domain:
            imported.version = RUNTIME_OPSET
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip(graph.outputs, map(np.asarray, session.run(list(graph.outputs), inputs)), strict=True))


def distance(values: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference, relative to the largest value."""
    assert values.shape == wanted.shape
    assert values.dtype == wanted.dtype
    return float(np.abs(values.astype(np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def runs(graph: Graph) -> bool:
    """Whether ONNX Runtime takes all operators; output_padding must be below the stride."""
    calls = [Call.of(graph, op) for op in graph.operators]
    if any(spec(call.operator.kind, call.operator.domain) is OPAQUE for call in calls):
        return False
    return all(
        extra < stride
        for call in calls
        if call.operator.kind == "ConvTranspose"
        for extra, stride in zip(
            call.attribute("output_padding", (0, 0)), call.attribute("strides", (1, 1)), strict=True
        )
    )


def test_random_networks_give_what_onnx_runtime_gives() -> None:
    compared, wrong = 0, list[str]()
    for seed in SEEDS:
        graph = random_graph(np.random.default_rng(seed), 1 + seed % 9)
        if not runs(graph):
            continue
        inputs = random_inputs(graph, seed)
        outputs, wanted = reference(graph, inputs), runtime(graph, inputs)
        assert list(outputs) == list(graph.outputs)
        compared += 1
        wrong += [
            f"seed {seed}, {name}: {d}"
            for name in outputs
            if (d := distance(outputs[name], wanted[name])) > 1e-4
        ]
    assert compared > 150
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_zoo_give_what_onnx_runtime_gives(name: str) -> None:
    model = zoo.build(name)
    graph = from_model(model, {model.graph.input[0].name: NETWORKS[name]})
    inputs = random_inputs(graph)
    outputs, wanted = reference(graph, inputs), runtime(graph, inputs)
    for output in graph.outputs:
        assert distance(outputs[output], wanted[output]) < 1e-4


def conv_relu(*, opaque: bool = False) -> onnx.ModelProto:
    node = onnx.helper.make_node
    weight = onnx.numpy_helper.from_array(np.ones((2, 3, 3, 3), np.float32), "w")
    graph = onnx.helper.make_graph(
        [
            node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            node("Strange", ["c"], ["y"], name="odd", domain="test.unknown")
            if opaque
            else node("Relu", ["c"], ["y"], name="relu"),
        ],
        "small",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 4, 4))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 2, 4, 4))],
        [weight],
    )
    opsets = [onnx.helper.make_opsetid("", RUNTIME_OPSET), onnx.helper.make_opsetid("test.unknown", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_everything_means_every_tensor_that_an_operator_makes() -> None:
    graph = from_model(conv_relu())
    x = random_inputs(graph)
    assert set(reference(graph, x)) == {"y"}
    tensors = reference(graph, x, everything=True)
    assert set(tensors) == {"c", "y"}
    assert (tensors["y"] == np.maximum(tensors["c"], 0)).all()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x': absent; accepted: float32 [1, 3, 4, 4]"),
        (
            {"x": np.zeros((1, 3, 4, 5), np.float32)},
            "input 'x': found float32 [1, 3, 4, 5]; accepted: float32 [1, 3, 4, 4]",
        ),
        (
            {"x": np.zeros((1, 3, 4, 4))},
            "input 'x': found float64 [1, 3, 4, 4]; accepted: float32 [1, 3, 4, 4]",
        ),
        ({"x": np.zeros((1, 3, 4, 4), np.float32), "z": np.zeros(1)}, "input 'z': the inputs are x"),
    ],
)
def test_wrong_inputs_are_named(inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        reference(from_model(conv_relu()), inputs)
    assert str(error.value) == message


def test_absent_weights_are_named() -> None:
    model = zoo.build("squeezenet1_1", weights=False)
    graph = from_model(model, {model.graph.input[0].name: (1, 3, 64, 64)})
    with pytest.raises(MissingValues, match=r"constant 'conv1.weight' of shape \[64, 3, 3, 3\]"):
        reference(graph, random_inputs(graph))


def test_operators_that_nothing_defines_are_named() -> None:
    graph = from_model(conv_relu(opaque=True))
    with pytest.raises(
        UnsupportedModel, match=r"node 'odd' \(Strange, domain test\.unknown\): lfopt cannot compute it"
    ):
        reference(graph, random_inputs(graph))


def test_a_read_outside_of_what_is_at_hand_is_an_error() -> None:
    graph = from_model(conv_relu())
    call = Call.of(graph, graph.operators[0])
    x, weight = np.zeros((1, 3, 2, 4), np.float32), graph.constants["w"]
    assert weight is not None
    operands = [Part(x, ((0, 1), (0, 3), (1, 3), (0, 4))), Part(weight, whole(weight.shape))]
    with pytest.raises(IndexError, match="is read, and only"):
        compute(call, operands, (((0, 1), (0, 2), (1, 2), (0, 4)),), graph.opset)
