"""Parts of transformers, and plans of them for a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lfopt.app.plans import make_draft
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from lfopt.planning import GroupCosts
from search.exact import solve
from search.options import SearchOptions

KIB = 1024


def planned(graph: Graph, scheme: str, kib: int = 64) -> Plan:
    costs = GroupCosts.of(graph, Hardware(kib * KIB, element_bytes=4), scheme=scheme)
    solution = solve(costs, SearchOptions(time_limit=5))
    return make_draft(graph, costs, solution, solution.lower_bound_bytes).finished()


class Net:
    """A graph under construction. Names of tensors are names of nodes."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs = {
            name: (shape, TensorProto.INT64 if name.startswith("ids") else TensorProto.FLOAT)
            for name, shape in inputs.items()
        }

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, values: np.ndarray | float) -> str:
        name = f"w{len(self.weights)}"
        array = np.asarray(values, np.float32) if not isinstance(values, np.ndarray) else values
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def drawn(self, *shape: int) -> str:
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def shaped(self, x: str, *shape: int) -> str:
        return self.add("Reshape", x, self.constant(np.array(shape, np.int64)))

    def linear(self, x: str, read: int, outputs: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.drawn(read, outputs)), self.drawn(outputs))

    def graph(self, *outputs: str) -> Graph:
        infos = [
            helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in self.inputs.items()
        ]
        net = helper.make_graph(
            self.nodes,
            "net",
            infos,
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self.weights,
        )
        model = helper.make_model(net, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return from_model(onnx.shape_inference.infer_shapes(model))


def drawn_inputs(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    inputs: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        real = tensor.dtype == "float32"
        inputs[name] = (
            rng.standard_normal(tensor.shape).astype(np.float32)
            if real
            else rng.integers(-7, 9, tensor.shape).astype(tensor.dtype)
        )
    return inputs


SCHEMES = ["lbdf", "resident", "all"]  # in the last, attention is one operator
