"""Random weights keep every map near unit scale; outputs are held to what rounding does to a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from lfopt.app.agreement import Agreement, expected
from lfopt.app.random_values import random_inputs
from lfopt.app.random_weights import calibrated
from lfopt.frontend import from_model, to_model
from lfopt.ir import Graph
from lfopt.ops.reference import reference

Shape = tuple[int, ...]


class Net:
    """Operators in a row, and weights that are all 0."""

    def __init__(self, shape: Shape) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shape, self.last = shape, "x"

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        self.last = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [self.last], self.last, **attributes))  # type: ignore[arg-type]
        return self.last

    def conv(self, x: str, inputs: int, outputs: int) -> str:
        return self.add(
            "Conv", x, self.weight(outputs, inputs, 3, 3), self.weight(outputs), pads=[1, 1, 1, 1]
        )

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def finish(self, result: Shape) -> Graph:
        """The network with no values for what may be drawn: more than one element, of floats."""
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", self.shape), (self.last, result))
        ]
        graph = from_model(
            helper.make_model(
                helper.make_graph(self.nodes, "net", ends[:1], ends[1:], self.constants),
                opset_imports=[helper.make_opsetid("", 18)],
                ir_version=10,
            )
        )
        absent = {
            name
            for name, tensor in graph.tensors.items()
            if tensor.dtype == "float32" and tensor.elements > 1
        }
        return replace(
            graph,
            constants={name: None if name in absent else value for name, value in graph.constants.items()},
        )


def rectified(layers: int = 60) -> Graph:
    """Convolutions and rectifiers without normalisation, then a classifier."""
    net = Net((1, 8, 12, 12))
    for _ in range(layers):
        net.add("Relu", net.conv(net.last, 8, 8))
    pooled = net.add("Flatten", net.add("GlobalAveragePool", net.last))
    net.add("Gemm", pooled, net.weight(8, 20), net.weight(20))
    return net.finish((1, 20))


def residual(blocks: int = 30) -> Graph:
    """Residual blocks without normalisation."""
    net = Net((1, 4, 8, 8))
    for _ in range(blocks):
        x = net.last
        net.add("Add", x, net.conv(net.add("Relu", net.conv(x, 4, 4)), 4, 4))
    return net.finish(net.shape)


def attention(layers: int = 3) -> Graph:
    """Attention and a gated MLP, each behind a layer normalisation."""
    net = Net((1, 24, 16))
    for _ in range(layers):
        x = net.last
        normal = net.add("LayerNormalization", x, net.weight(16), net.weight(16))
        q, v = (net.dense(normal, 16, 16) for _ in range(2))
        # a bias of keys changes nothing: softmax takes it away
        k = net.add("MatMul", normal, net.weight(16, 16))
        scores = net.add("Softmax", net.add("MatMul", q, net.add("Transpose", k, perm=[0, 2, 1])))
        x = net.add("Add", x, net.dense(net.add("MatMul", scores, v), 16, 16))
        normal = net.add("LayerNormalization", x, net.weight(16), net.weight(16))
        gated = net.add("Mul", net.dense(normal, 16, 32), net.add("Sigmoid", net.dense(normal, 16, 32)))
        net.add("Add", x, net.dense(gated, 32, 16))
    return net.finish(net.shape)


NETWORKS: dict[str, Callable[[], Graph]] = {
    "rectified": rectified,
    "residual": residual,
    "attention": attention,
}


@cache
def filled(name: str) -> tuple[Graph, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    graph = calibrated(NETWORKS[name](), rng)
    return graph, random_inputs(graph, rng)


def deviations(graph: Graph, inputs: dict[str, np.ndarray]) -> list[float]:
    return [float(value.std()) for value in reference(graph, inputs, everything=True).values()]


# -- weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_maps_of_drawn_weights_stay_near_unit_scale_and_outputs_depend_on_inputs(name: str) -> None:
    graph, inputs = filled(name)
    assert max(deviations(graph, inputs)) < 10
    assert np.median(deviations(graph, inputs)) > 0.3
    (output,), (other,) = (
        list(reference(graph, given).values())
        for given in (inputs, random_inputs(graph, np.random.default_rng(5)))
    )
    assert np.std(output - other) > 0.03 * np.std(output) > 0


def test_two_thousand_operators_stay_near_unit_scale() -> None:
    graph = calibrated(residual(500), rng := np.random.default_rng(0))
    assert len(graph.operators) == 2000
    # 500 branches of unit variance add up to sqrt(500)
    assert max(deviations(graph, random_inputs(graph, rng))) < 40


def test_weights_follow_the_seed_and_those_that_are_there_are_left() -> None:
    bare = rectified(2)
    one, same, other = (calibrated(bare, np.random.default_rng(seed)).constants for seed in (0, 0, 1))
    assert all(np.array_equal(one[name], same[name]) for name in one)  # type: ignore[arg-type]
    assert not any(np.array_equal(one[name], other[name]) for name in one)  # type: ignore[arg-type]
    kept = next(name for name in bare.constants if len(bare.shape(name)) == 4)
    given = np.full(bare.shape(kept), 0.5, np.float32)
    again = calibrated(replace(bare, constants={**bare.constants, kept: given}), np.random.default_rng(0))
    assert again.constants[kept] is given


# -- comparison ----------------------------------------------------------------------------------------------


@cache
def agreement(name: str) -> tuple[Callable[[np.ndarray], Agreement], np.ndarray]:
    """What compares an output of a network, and that output."""
    graph, inputs = filled(name)
    wanted, (output,) = expected(graph, inputs), graph.outputs
    return lambda output_values: wanted.compared({output: output_values})[0], reference(graph, inputs)[output]


@pytest.mark.parametrize("name", NETWORKS)
def test_another_implementation_agrees(name: str) -> None:
    graph, inputs = filled(name)
    (output,) = ort.InferenceSession(
        to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, inputs)
    compared, _ = agreement(name)
    one = compared(np.asarray(output))
    assert one.wrong == 0
    assert one.largest_error is not None
    assert one.accepted_error is not None
    assert 0 < one.largest_error < one.accepted_error < 1e-3


def in_bits(graph: Graph, inputs: dict[str, np.ndarray], bits: int) -> dict[str, np.ndarray]:
    """Outputs where inputs, weights and every result have so many bits of mantissa."""

    def short(value: np.ndarray) -> np.ndarray:
        parts, powers = np.frexp(value)
        return np.ldexp(np.rint(np.ldexp(parts, bits)), powers - bits).astype(value.dtype)

    constants = {
        name: short(value) if value is not None and value.dtype.kind == "f" else value
        for name, value in graph.constants.items()
    }
    given = {name: short(value) for name, value in inputs.items()}
    return reference(
        replace(graph, constants=constants),
        given,
        adjust=lambda call, operands, results: tuple(map(short, results)),
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_stored_in_eight_bits_agrees_as_bfloat16_and_what_is_in_five_does_not(name: str) -> None:
    graph, inputs = filled(name)
    wanted = expected(graph, inputs, "bfloat16")
    assert not wanted.compared(in_bits(graph, inputs, 8))[0].wrong
    assert wanted.compared(in_bits(graph, inputs, 5))[0].wrong


def raised(output: np.ndarray) -> np.ndarray:
    output.flat[output.size // 2] += 1e-3 * np.ptp(output)
    return output


def stale(output: np.ndarray) -> np.ndarray:
    """The row, or what is in its place, twice."""
    rows = np.moveaxis(output, {2: 1, 3: 1, 4: 2}[output.ndim], 0)
    rows[1] = rows[0]
    return output


def swapped(output: np.ndarray) -> np.ndarray:
    channels = np.moveaxis(output, 1 if output.ndim == 4 else -1, 0)
    channels[[0, 1]] = channels[[1, 0]]
    return output


def lost(output: np.ndarray) -> np.ndarray:
    output.flat[0] = np.nan
    return output


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("change", [raised, stale, swapped, lost])
def test_a_changed_output_is_wrong(name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    compared, output = agreement(name)
    assert compared(output).wrong == 0
    one = compared(change(output.copy()))
    assert one.wrong > 0
    assert "elements differ" in str(one)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_changed_weight_anywhere_is_found(name: str) -> None:
    graph, inputs = filled(name)
    compared, _ = agreement(name)
    for weight, value in graph.constants.items():
        assert value is not None
        if value.size < 2:
            continue
        spoilt = value.copy()
        spoilt.reshape(-1)[: max(value.size // 8, 1)] = 0  # some terms of a bias, rows of a matrix, filters
        (output,) = reference(replace(graph, constants={**graph.constants, weight: spoilt}), inputs).values()
        assert compared(output).wrong, weight


def test_what_is_accepted_grows_with_what_rounding_does() -> None:
    net = Net((1, 24, 16))
    product = net.add("MatMul", "x", net.weight(16, 16))
    there, back = net.weight(16), net.weight(16)
    net.add("Add", net.add("Add", product, there), back)
    graph = calibrated(net.finish(net.shape), rng := np.random.default_rng(0))
    inputs, accepted = random_inputs(graph, rng), []
    for far in (1.0, 1e4):  # of which float32 keeps seven digits
        given = {there: np.full(16, far, np.float32), back: np.full(16, -far, np.float32)}
        moved = replace(graph, constants={**graph.constants, **given})
        (one,) = expected(moved, inputs).compared(reference(moved, inputs))
        assert one.wrong == 0
        accepted.append(one.accepted_error)
    assert accepted[0] < 1e-5 < 1e-4 < accepted[1] < 1e-2
