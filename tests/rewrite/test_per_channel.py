"""Scales and shifts per channel become depthwise convolutions, which compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lfopt.frontend import from_model
from lfopt.ir import Graph
from lfopt.ops.reference import reference
from lfopt.rewrite.per_channel import as_convolutions
from lfopt.rewrite.simplify import simplify

CHANNELS = 6
ROW = (np.arange(CHANNELS) - 2.5).astype(np.float32)
NORM = {"s": ROW, "t": ROW[::-1].copy(), "m": ROW / 3, "v": ROW * ROW + 1}


def network(nodes: list[tuple[str, list[str], str]], constants: dict[str, np.ndarray]) -> Graph:
    """A network on x [1, 6, 4, 5]; the last node makes the output."""
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, CHANNELS, 4, 5))],
        [helper.make_tensor_value_info(nodes[-1][2], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return simplify(from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])))


PER_CHANNEL = ROW.reshape(1, CHANNELS, 1, 1)
NETWORKS = {
    "a norm of an input": ([("BatchNormalization", ["x", *NORM], "y")], NORM, ["Conv"]),
    "a norm of a map that others read": (
        [("Relu", ["x"], "r"), ("BatchNormalization", ["r", *NORM], "n"), ("Add", ["n", "r"], "y")], NORM,
        ["Relu", "Conv", "Add"],
    ),
    "a scale, then a shift": (
        [("Mul", ["x", "a"], "m"), ("Add", ["b", "m"], "y")], {"a": PER_CHANNEL, "b": PER_CHANNEL[0]},
        ["Conv"],
    ),
    "a difference": ([("Sub", ["a", "x"], "y")], {"a": PER_CHANNEL}, ["Conv"]),
    "a quotient": ([("Div", ["x", "a"], "y")], {"a": PER_CHANNEL}, ["Conv"]),
    "by one number": ([("Mul", ["x", "a"], "y")], {"a": np.array([2.5], np.float32)}, ["Mul"]),
    "by pixels": ([("Mul", ["x", "a"], "y")], {"a": np.ones((4, 5), np.float32)}, ["Mul"]),
    "of a number": ([("Div", ["a", "x"], "y")], {"a": PER_CHANNEL}, ["Div"]),
}  # fmt: skip


@pytest.mark.parametrize("case", NETWORKS)
def test_what_scales_and_shifts_channels_becomes_a_convolution_that_does_the_same(case: str) -> None:
    nodes, constants, kinds = NETWORKS[case]
    graph = network(nodes, constants)
    after = as_convolutions(graph)
    assert [operator.kind for operator in after.operators] == kinds
    x = np.random.default_rng(0).normal(size=(1, CHANNELS, 4, 5)).astype(np.float32)
    (wanted,), (got,) = reference(graph, {"x": x}).values(), reference(after, {"x": x}).values()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
