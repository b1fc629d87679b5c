"""Random networks of floats that C is generated for, and what it must agree with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from codegen.source import CSource
from codegen.target import native
from lfopt.app.plans import make_draft
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts
from search.exact import solve
from search.options import SearchOptions
from tests.codegen.twice import compiled

KIB = 1024
TOLERANCE = 2e-5  # of the largest output
RUNS_HERE = [
    "c99",
    *(["avx2"] if native() in ("avx2", "avx512") else []),
    *([native()] if native() not in ("c99", "avx2") else []),
]


def planned(graph: Graph, kib: int, scheme: str = "lbdf") -> Plan:
    costs = GroupCosts(Dataflow.of(graph), Hardware(kib * KIB, element_bytes=4), scheme=scheme)  # pyright: ignore[reportArgumentType]
    solution = solve(costs, SearchOptions(time_limit=10))
    return make_draft(graph, costs, solution, solution.lower_bound_bytes).finished()


def agrees(source: CSource, graph: Graph, folder: Path, tolerance: float = TOLERANCE) -> None:
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs}
    model = compiled(source, folder)
    expected = reference(graph, inputs)
    for _ in range(2):  # nothing is left over from one run to the next
        outputs = model.run(inputs)
        assert list(outputs) == list(graph.outputs)
        for name, values in outputs.items():
            scale = max(float(np.abs(expected[name]).max()), 1e-3)
            assert float(np.abs(values - expected[name]).max()) <= tolerance * scale, name


class _Net:
    """A random convolutional network: strides, dilations, asymmetric pads, odd channels, gates, views.

    Branches meet again.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        shape = (1, self.pick(1, 3, 5), int(self.rng.integers(6, 24)), int(self.rng.integers(5, 30)))
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}
        self.last = "x"

    def pick(self, *choices: int) -> int:
        return int(self.rng.choice(choices))

    def add(self, kind: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"n{len(self.nodes)}", **attributes))
        self.shapes[name] = shape
        self.last = name
        return name

    def constant(self, *shape: int, positive: bool = False) -> str:
        values = self.rng.standard_normal(shape).astype(np.float32) / np.sqrt(max(np.prod(shape[1:]), 1))
        name = f"w{len(self.weights)}"
        self.weights.append(
            numpy_helper.from_array((np.abs(values) + 0.5 if positive else values).astype(np.float32), name)
        )
        return name

    def windowed(self, kind: str, x: str) -> str:
        _, channels, height, width = self.shapes[x]
        kernel = [min(self.pick(1, 2, 3, 5), height), min(self.pick(1, 3, 3, 4), width)]
        strides, pads = (
            [self.pick(1, 1, 2), self.pick(1, 1, 2, 3)],
            [int(self.rng.integers(0, k)) for k in (*kernel, *kernel)],
        )
        dilations = (
            [1, 1] if kind != "Conv" or min(height, width) < 10 else [self.pick(1, 1, 2), self.pick(1, 1, 2)]
        )
        size = [
            (extent + before + after - (k - 1) * d - 1) // s + 1
            for extent, before, after, k, d, s in zip(
                (height, width), pads[:2], pads[2:], kernel, dilations, strides, strict=True
            )
        ]
        settings: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
        if min(size) < 1:
            return x
        if kind != "Conv":
            if kind == "AveragePool":
                settings["count_include_pad"] = self.pick(0, 1)
            return self.add(kind, [x], (1, channels, *size), **settings)
        outputs = self.pick(1, 3, 8, 16, 17, 24, 40)
        group = self.pick(1, 1, channels) if channels > 1 else 1
        if group > 1:
            outputs = channels * self.pick(1, 1, 2)
        if channels % 2 == 0 and outputs % 2 == 0 and self.rng.random() < 0.1:
            group = 2
        operands = [
            x,
            self.constant(outputs, channels // group, *kernel),
            *([self.constant(outputs)] if self.rng.random() < 0.8 else []),
        ]
        return self.add("Conv", operands, (1, outputs, *size), dilations=dilations, group=group, **settings)

    def larger(self, x: str) -> str:
        _, channels, height, width = self.shapes[x]
        if height * width > 1200:
            return x
        if self.rng.random() < 0.4:
            outputs, kernel, strides = (
                self.pick(1, 3, 17),
                [self.pick(1, 2, 3, 4), self.pick(1, 3, 5)],
                [self.pick(1, 2, 3), self.pick(1, 2)],
            )
            pads = [int(self.rng.integers(0, k)) for k in (*kernel, *kernel)]
            size = [
                (n - 1) * s + k - a - b
                for n, s, k, a, b in zip((height, width), strides, kernel, pads[:2], pads[2:], strict=True)
            ]
            if min(size) < 1:
                return x
            operands = [
                x,
                self.constant(channels, outputs, *kernel),
                *([self.constant(outputs)] if self.rng.random() < 0.5 else []),
            ]
            return self.add(
                "ConvTranspose",
                operands,
                (1, outputs, *size),
                kernel_shape=kernel,
                strides=strides,
                pads=pads,
            )
        if channels % 4 == 0 and self.rng.random() < 0.5:
            mode = str(self.rng.choice(["DCR", "CRD"]))
            return self.add(
                "DepthToSpace", [x], (1, channels // 4, 2 * height, 2 * width), blocksize=2, mode=mode
            )
        size = [int(self.rng.integers(1, 2 * height + 1)), int(self.rng.integers(1, 2 * width + 1))]
        self.weights.append(
            numpy_helper.from_array(np.array([1, channels, *size], np.int64), name := f"w{len(self.weights)}")
        )
        mode = str(self.rng.choice(["nearest", "linear", "cubic"]))
        coordinates = str(self.rng.choice(["half_pixel", "align_corners", "asymmetric"]))
        return self.add(
            "Resize",
            [x, "", "", name],
            (1, channels, *size),
            mode=mode,
            coordinate_transformation_mode=coordinates,
        )

    def pointwise(self, x: str) -> str:
        shape = self.shapes[x]
        kind = str(
            self.rng.choice(
                [
                    "Relu",
                    "Sigmoid",
                    "Swish",
                    "HardSwish",
                    "Clip",
                    "LeakyRelu",
                    "PRelu",
                    "Tanh",
                    "Mul",
                    "Gelu",
                    "Softplus",
                    "Mish",
                    "Same",
                    "Gate",
                ]
            )
        )
        same = [name for name, other in self.shapes.items() if other == shape]
        if kind == "Swish":
            return self.add("Mul", [x, self.add("Sigmoid", [x], shape)], shape)
        if kind == "Clip":
            return self.add("Clip", [x, self.scalar(-1.0), self.scalar(1.5)], shape)
        if kind == "PRelu":
            return self.add("PRelu", [x, self.constant(shape[1], 1, 1)], shape)
        if kind == "Mul":
            return self.add(
                str(self.rng.choice(["Mul", "Add", "Sub", "Max"])),
                [x, self.constant(1, shape[1], 1, 1)],
                shape,
            )
        if kind == "Same":
            operands = [x, str(self.rng.choice(same))]
            return self.add(
                str(self.rng.choice(["Add", "Sub", "Mul", "Min"])), operands[:: self.pick(1, -1)], shape
            )
        if kind == "Gate":
            mean = self.add("GlobalAveragePool", [x], (1, shape[1], 1, 1))
            gate = self.add(
                "HardSigmoid",
                [self.add("Conv", [mean, self.constant(shape[1], shape[1], 1, 1)], (1, shape[1], 1, 1))],
                (1, shape[1], 1, 1),
            )
            return self.add("Mul", [x, gate][:: self.pick(1, -1)], shape)
        return self.add(kind, [x], shape)

    def scalar(self, value: float) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def finish(self) -> Graph:
        for _ in range(int(self.rng.integers(3, 14))):
            x = self.last if self.rng.random() < 0.8 else str(self.rng.choice([*self.shapes]))
            move = self.rng.random()
            alike = [name for name, other in self.shapes.items() if other[2:] == self.shapes[x][2:]]
            if move < 0.08:
                self.larger(x)
            elif move < 0.45:
                self.windowed(str(self.rng.choice(["Conv", "Conv", "Conv", "MaxPool", "AveragePool"])), x)
            elif move < 0.9 or len(alike) < 2:
                self.pointwise(x)
            else:
                parts = [str(part) for part in self.rng.choice(alike, 2)]
                self.add(
                    "Concat",
                    parts,
                    (1, sum(self.shapes[part][1] for part in parts), *self.shapes[x][2:]),
                    axis=1,
                )
        if self.last == "x":
            self.add("Relu", ["x"], self.shapes["x"])
        if self.rng.random() < 0.5:
            x, elements = self.last, int(np.prod(self.shapes[self.last]))
            flat = self.add("Flatten", [x], (1, elements))
            self.add(
                "Softmax",
                [self.add("Gemm", [flat, self.constant(elements, 10), self.constant(10)], (1, 10))],
                (1, 10),
                axis=-1,
            )
        read = {name for node in self.nodes for name in node.input}
        outputs = [name for name in self.shapes if name not in read and name != "x"]
        infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shapes["x"])]
        graph = helper.make_graph(
            self.nodes,
            "random",
            infos,
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return from_model(onnx.shape_inference.infer_shapes(model))
