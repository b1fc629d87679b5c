"""Fully connected layers on flattened maps become convolutions, which compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lfopt.frontend import from_model
from lfopt.ops.reference import reference
from lfopt.rewrite.flattened import flattened_as_convolutions
from lfopt.rewrite.simplify import simplify

C, H, W, M = 3, 4, 5, 7
CASES = {  # layer, shape of its matrix, of its bias, attributes, what is left
    "Gemm": ("Gemm", (C * H * W, M), (M,), {}, ["Conv", "Reshape"]),
    "transposed": ("Gemm", (M, C * H * W), (1, M), {"transB": 1}, ["Conv", "Reshape"]),
    "one bias": ("Gemm", (C * H * W, M), (1,), {}, ["Conv", "Reshape"]),
    "MatMul": ("MatMul", (C * H * W, M), None, {}, ["Conv", "Reshape"]),
    "scaled": ("Gemm", (C * H * W, M), (M,), {"alpha": 0.5}, ["Flatten", "Gemm"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_layer_on_a_flattened_map_is_a_convolution(case: str) -> None:
    kind, matrix, bias, more, kinds = CASES[case]
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=matrix).astype(np.float32)}
    if bias is not None:
        constants["b"] = rng.normal(size=bias).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["flat"]),
            helper.make_node(kind, ["flat", *constants], ["y"], **more),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, C, H, W))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, M))],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    before = simplify(from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])))
    after = flattened_as_convolutions(before)
    assert [operator.kind for operator in after.operators] == kinds
    x = rng.normal(size=(1, C, H, W)).astype(np.float32)
    np.testing.assert_allclose(
        reference(after, {"x": x})["y"], reference(before, {"x": x})["y"], rtol=1e-5, atol=1e-5
    )


def test_a_layer_on_the_result_of_a_layer_stays() -> None:
    """Its operand is a view too, but of one pixel."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(C * H * W, M)).astype(np.float32),
        "v": rng.normal(size=(M, 2)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, C, H, W))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2))],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    before = simplify(from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])))
    after = flattened_as_convolutions(before)
    assert [operator.kind for operator in after.operators] == ["Conv", "Reshape", "Gemm"]
    x = rng.normal(size=(1, C, H, W)).astype(np.float32)
    np.testing.assert_allclose(
        reference(after, {"x": x})["y"], reference(before, {"x": x})["y"], rtol=1e-5, atol=1e-5
    )
