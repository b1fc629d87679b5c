"""Models of many operators side by side, so that one compilation tries them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from lfopt.planning import GroupCosts
from lfopt.rewrite import simplify
from tests.codegen.many import Case, build, run
from tests.random_plans import planned

OPSET = 20
SMALL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 7, -7)
ODD = np.array([*SMALL, 1e30, -1e30, 1e-30, -1e-30], np.float32)


@dataclass
class Operators:
    """Operators side by side in one model: each reads inputs and constants of its own."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[TensorProto] = field(default_factory=list[TensorProto])
    inputs: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    outputs: list[str] = field(default_factory=list[str])

    def given(self, values: np.ndarray) -> str:
        """The name of an input."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = values
        return name

    def fixed(self, values: Any, dtype: str = "float32") -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def put(self, kind: str, *operands: str | np.ndarray, outputs: int = 1, **attributes: Any) -> None:
        """An operator whose results are outputs; arrays become inputs."""
        names = [self.given(value) if isinstance(value, np.ndarray) else value for value in operands]
        results = [f"{kind}_{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, names, results, name=f"n{len(self.nodes)}", **attributes))
        self.outputs += results

    def maps(self, *shape: int, nans: bool = True, dtype: str = "float32") -> np.ndarray:
        """Odd values among usual ones."""
        if dtype == "float32":
            usual = (self.rng.standard_normal(shape) * 3).astype(np.float32)
            odd = np.array(SMALL if nans else SMALL[1:], np.float32)
            return np.where(self.rng.random(shape) < 0.3, self.rng.choice(odd, shape), usual)
        limits = np.iinfo(dtype)
        odd = np.array([0, 1, limits.min, limits.max, limits.max - 1, limits.min + 1, 7], dtype)
        usual = self.rng.integers(max(limits.min, -9), 9, shape)
        return np.where(self.rng.random(shape) < 0.5, self.rng.choice(odd, shape), usual).astype(dtype)

    def model(self) -> onnx.ModelProto:
        """The model, with the shapes of all maps."""
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in self.inputs.items()
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        model = helper.make_model(
            helper.make_graph(self.nodes, "net", infos, results, self.constants),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=9,
        )
        return onnx.shape_inference.infer_shapes(model)


def graph_of(net: Operators) -> Graph:
    """The simplified graph."""
    return simplify(from_model(net.model()))


def plan_of(graph: Graph) -> Plan:
    """The plan of every operator by itself."""
    costs = GroupCosts.of(graph, Hardware(1 << 18, element_bytes=4), scheme="auto")
    return planned(costs, tuple(1 << k for k in range(len(costs.dataflow))))


def compiled(
    nets: Sequence[tuple[Plan, Graph, Mapping[str, np.ndarray]]],
    folder: Path,
    targets: Sequence[str],
    flags: str = "-O0",
) -> list[dict[str, np.ndarray]]:
    """Outputs of each graph by each target: graph by graph, target by target."""
    each = [(target, *net) for net in nets for target in targets]
    cases = [
        Case(k, graph, plan, target, 1, 0, inputs) for k, (target, plan, graph, inputs) in enumerate(each)
    ]
    program = build([(case, case.printed(1)) for case in cases], folder / "many", (flags, "-w"), 2)
    assert not program.refused
    outputs, complaints = run(program)
    assert not complaints
    return [
        dict(zip(case.graph.outputs, outputs[f"seed{case.seed}_threads1"], strict=True)) for case in cases
    ]
