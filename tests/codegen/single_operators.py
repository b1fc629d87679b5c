"""Networks of few operators as plain loops of C, and what NumPy makes of them."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from codegen.build import find_compiler
from codegen.emit import emit_c
from codegen.layout import CTYPES as EVERY
from codegen.layout import HALVES
from codegen.runtime import Compiled
from codegen.source import CSource
from codegen.target import TARGETS
from lfopt.app.compiled import plan_for_cpu
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from lfopt.ops.reference import reference

CTYPES = [name for name in EVERY if name not in HALVES]  # NumPy has all of them
STRICT = (
    *TARGETS["c99"].flags,
    *"-O1 -Wall -Wextra -Wpedantic -Wconversion -Wdouble-promotion -Werror -Wno-unused-function".split(),
)
CHECKED = (*TARGETS["c99"].flags, *"-O0 -fsanitize=undefined -fno-sanitize-recover=all".split())
FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class Constant:
    """An operand that is a constant of the model."""

    values: np.ndarray


Operand = np.ndarray | Constant | str | None


@dataclass
class Net:
    """A graph under construction: operators on arrays (its inputs), constants and earlier results."""

    inputs: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])

    def add(
        self, kind: str, *operands: Operand, outputs: int = 1, hidden: Sequence[int] = (), **attributes: Any
    ) -> str:
        """The name of the first result. `hidden`: results that nobody asks for."""
        names: list[str] = []
        for operand in operands:
            if isinstance(operand, np.ndarray):
                names.append(f"x{len(self.inputs)}")
                self.inputs[names[-1]] = operand
            elif isinstance(operand, Constant):
                names.append(f"c{len(self.constants)}")
                self.constants.append(numpy_helper.from_array(operand.values, names[-1]))
            else:
                names.append(operand or "")
        position = len(self.nodes)
        results = ["" if k in hidden else f"{kind.lower()}{position}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, names, results, name=f"{kind} {position}", **attributes))
        return next(name for name in results if name)

    @property
    def graph(self) -> Graph:
        """What nobody reads is an output."""
        read = {name for node in self.nodes for name in node.input}
        outputs = [name for node in self.nodes for name in node.output if name and name not in read]
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in self.inputs.items()
        ]
        graph = helper.make_graph(
            self.nodes,
            "net",
            infos,
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self.constants,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())], ir_version=10
        )
        return from_model(onnx.shape_inference.infer_shapes(model))


def expected(net: Net, graph: Graph) -> dict[str, np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: np.asarray(value) for name, value in reference(graph, net.inputs).items()}


def same(outputs: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], exact: bool = False) -> None:
    assert list(outputs) == list(wanted)
    for name, values in wanted.items():
        assert (outputs[name].dtype, outputs[name].shape) == (values.dtype, values.shape), name
        narrow = {"float32": (1e-5, 2e-6), "float64": (1e-11, 1e-12)}.get(values.dtype.name, (0, 0))
        rtol, atol = (0, 0) if exact else narrow
        np.testing.assert_allclose(outputs[name], values, rtol, atol, err_msg=name)


def run(source: CSource, net: Net, folder: Path) -> dict[str, np.ndarray]:
    """Outputs of the library alone: programs have their own tests."""
    folder.mkdir(exist_ok=True)
    for name, content in source.files.items():
        (folder / name).write_bytes(content)
    command = [*find_compiler(), *source.flags, "-shared", "-fPIC", "model.c", "-o", "model.so", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return Compiled(folder / "model.so", source.name, folder / "weights.bin").run(net.inputs)


def agrees(net: Net, folder: Path, kib: float = 64) -> Plan:
    """Checks that C compiles without warnings, and that two sanitized threads give the same bits."""
    graph = net.graph
    plan = plan_for_cpu(graph, Hardware(int(kib * 1024), element_bytes=4))
    one, two = (emit_c(plan, graph, "c99", threads=n) for n in (1, 2))
    outputs = run(replace(one, flags=STRICT), net, folder / "strict")
    same(outputs, expected(net, graph))
    same(run(replace(two, flags=(*CHECKED, "-pthread")), net, folder / "checked"), outputs, exact=True)
    return plan


def values(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Values of a type, the awkward ones among them."""
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype in FLOATS:
        usual = np.asarray(rng.standard_normal(shape) * 3, dtype)
        odd = np.array([0, -0.0, 1, -1, 0.5, 2.5, np.inf, -np.inf, np.nan, 1e-30, 1e30], dtype)
    else:
        limits = np.iinfo(dtype)
        usual = np.asarray(rng.integers(max(limits.min, -9), 10, shape), dtype)
        odd = np.array([0, 1, limits.min, limits.max, limits.max // 2, 0 if limits.min == 0 else -1], dtype)
    return np.where(rng.random(shape) < 0.2, rng.choice(odd, shape), usual).astype(dtype)


def types_of(kind: str) -> list[str]:
    """Types of C that an operator's main operand may have."""
    schema = onnx.defs.get_schema(kind)
    own = schema.inputs[1 if kind == "Where" else 0].type_str
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == own), [own])
    names = {"tensor(float)": "float32", "tensor(double)": "float64"}
    return [name for name in (names.get(text, text[7:-1]) for text in allowed) if name in CTYPES]


def fixed(*integers: int) -> Constant:
    return Constant(np.array(integers, np.int64))
