"""Operators in flight that are functions of one byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lfopt.ir import Graph, Operator, Plan, Quantization, Tensor
from lfopt.planning import GroupCosts, memory_map, totals_of
from tests.accelerator import accelerator_hardware
from tests.random_plans import planned

SHAPE = (1, 3, 16, 16)  # 256 bytes to a channel
SCALES = {
    "x": 0.06,
    "c": 0.05,
    "s": 1 / 256,
    "y": 0.03,
    "t": 0.0078,
    "g": 0.04,
    "z": 0.05,
    "u": 0.05,
    "v": 0.11,
}


def net(*operators: tuple[str, str, str], inputs: tuple[str, ...] = ("x",)) -> Graph:
    """A graph of (kind, operands, result); the last is the output, maps are single letters, "w" weights."""
    names = {name for _, operands, result in operators for name in operands + result} - {"w"}
    tensors = {
        name: Tensor(name, SHAPE, "int8", Quantization((SCALES[name],), (-3 if name in "sy" else 2,)))
        for name in names
    }
    tensors["w"] = Tensor("w", (3, 3, 1, 1), "int8", Quantization((0.02,), (0,)))
    nodes = tuple(
        Operator(f"{kind} {result}", kind, (*operands,), (result,), {})
        for kind, operands, result in operators
    )
    weights = np.array([[40, -3, 7], [0, 50, -9], [5, -20, 33]], np.int8).reshape(3, 3, 1, 1)
    return Graph("net", nodes, tensors, {"w": weights}, inputs, (operators[-1][2],), 18)


SILU = (("Conv", "xw", "c"), ("Sigmoid", "c", "s"), ("Mul", "cs", "y"))
CASES = {
    "x * sigmoid(x)": (net(*SILU), ["Conv c", "Sigmoid s"]),
    "one after the other": (net(*SILU, ("Tanh", "y", "t"), ("LeakyRelu", "t", "z")), ["Conv c", "Sigmoid s"]),
    "a clamp": (net(("Conv", "xw", "z"), ("Relu", "z", "u")), ["Conv z"]),
    "the sum of both": (
        net(("Conv", "xw", "c"), ("Tanh", "c", "t"), ("Add", "ct", "y")),
        ["Conv c", "Tanh t"],
    ),
    "a square": (net(("Conv", "xw", "c"), ("Mul", "cc", "y")), ["Conv c", "Mul y"]),
    "no convolution": (
        net(("Tanh", "x", "t"), ("Mul", "xt", "y"), ("Sigmoid", "y", "s"), inputs=("x",)),
        ["Tanh t", "Sigmoid s"],
    ),
    "a gate, then a table": (
        net(*SILU, ("Mul", "yg", "z"), ("Tanh", "z", "t"), inputs=("x", "g")),
        ["Conv c", "Sigmoid s", "Tanh t"],
    ),
}


def whole_plan(graph: Graph) -> Plan:
    """All operators in one group, under scheme all."""
    costs = GroupCosts.of(graph, accelerator_hardware(1 << 16), scheme="all")
    plan = planned(costs, (costs.dataflow.everything,))
    return replace(
        plan,
        memory=memory_map(costs, plan.groups),
        totals=totals_of(costs.unfused(), plan.groups, costs.bounds.compulsory_bytes),
    )
