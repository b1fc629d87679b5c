"""The randomised searches, networks for them, and what makes a result of them legal."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import onnx
from onnx import TensorProto, helper

from lfopt import zoo
from lfopt.frontend import from_model
from lfopt.fusion import CostModel, legal
from lfopt.ir import FusionScheme, Graph, Hardware
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts, Traffic
from search.local import improve
from search.nsga2 import evolve
from search.result import Result
from search.sampling import sample

Search = Callable[..., Result]
SEARCHES: list[Search] = [sample, improve, evolve]
KIB = 1024


def model_for(
    graph: Graph, hardware: Hardware, traffic: Traffic = Traffic.ONCE, *, epilogue: bool = False
) -> CostModel:
    """The searches' view of a network on a chip."""
    return GroupCosts(Dataflow.of(graph), hardware, traffic, epilogue=epilogue)


@cache
def mobilenet() -> Graph:
    """MobileNet-V2 without weight values."""
    return from_model(zoo.build("mobilenet_v2", weights=False))


def ladder(blocks: int = 6) -> Graph:
    """A chain of residual blocks: convolution, ReLU, convolution, sum."""
    nodes: list[onnx.NodeProto] = []
    x = "x"
    for b in range(blocks):
        nodes += [
            helper.make_node(
                "Conv", [x, "w"], [f"a{b}"], name=f"first{b}", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
            ),
            helper.make_node("Relu", [f"a{b}"], [f"r{b}"], name=f"relu{b}"),
            helper.make_node(
                "Conv", [f"r{b}", "w"], [f"c{b}"], name=f"second{b}", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
            ),
            helper.make_node("Add", [f"c{b}", x], [f"s{b}"], name=f"sum{b}"),
        ]
        x = f"s{b}"
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 4, 3, 3], [0.1] * 144)
    return from_model(_model(nodes, {"x": (1, 4, 16, 16)}, [x], [weight]))


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    outputs: list[str],
    weights: list[onnx.TensorProto],
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(
        nodes, "small", infos, [helper.make_empty_tensor_value_info(name) for name in outputs], weights
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    )


def assert_legal(model: CostModel, groups: tuple[int, ...]) -> int:
    """The plan is a legal scheme in an executable order; returns its DRAM bytes."""
    flow = model.dataflow
    verdict = legal(flow.graph, FusionScheme(tuple(flow.names(group) for group in groups)))
    assert verdict.legal, verdict.reasons
    done = 0
    for group in groups:
        assert all(not flow.preds[i] & ~(done | group) for i in bits(group))
        done |= group
    prices = [model.price(group) for group in groups]
    assert all(price is not None for price in prices)
    return sum(price.dram_bytes for price in prices if price is not None)
