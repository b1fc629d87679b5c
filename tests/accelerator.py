"""Small random networks of what the accelerator does, on chips that it could be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lfopt.app.overlap import overlapped
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from lfopt.planning import SCHEMES as SCHEME_ROWS
from lfopt.planning import GroupCosts, Traffic, link
from search.exact import solve
from tests.covers import with_random_copies
from tests.random_plans import SCHEMES, in_integers, planned, random_inputs, random_scheme

LANES = 16


class _Net:
    def __init__(self, rng: np.random.Generator, lanes: int) -> None:
        self.rng, self.lanes = rng, lanes
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.read: set[str] = set()

    def one_of(self, *choices: int) -> int:
        return int(self.rng.choice(choices))

    def weight(self, *shape: int) -> str:
        """A new constant, or weights that there are: two convolutions then share them."""
        known = [
            constant.name for constant in self.constants if tuple(constant.dims) == shape and len(shape) == 4
        ]
        if known and self.rng.random() < 0.5:
            return known[-1]
        name = f"w{len(self.constants)}"
        self.constants.append(
            numpy_helper.from_array(self.rng.standard_normal(shape).astype(np.float32), name)
        )
        return name

    def ints(self, *values: int) -> str:
        name = f"i{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def add(self, kind: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        self.read |= set(inputs)
        self.shapes[name] = shape
        return name

    def conv(self, x: str, *, depthwise: bool = False) -> str:
        _, c, h, w = self.shapes[x]
        kernel, stride = self.one_of(1, 1, 3, 3, 3, 5, 7), self.one_of(1, 1, 1, 2, 3)
        dilation = self.one_of(1, 1, 1, 2) if kernel > 1 else 1
        reach = (kernel - 1) * dilation + 1
        pads = [int(self.rng.integers(0, min(kernel, 4))) for _ in range(4)]
        if self.rng.random() < 0.6:
            pads = [(reach - 1) // 2] * 4
        if min(h + pads[0] + pads[2], w + pads[1] + pads[3]) < reach:
            kernel, dilation, reach, pads = 1, 1, 1, [0] * 4
        group = (
            c
            if depthwise
            else self.one_of(*(g for g in range(1, c + 1) if c % g == 0))
            if self.rng.random() < 0.3
            else 1
        )
        m = (
            c
            if depthwise
            else group * self.one_of(1, 2, 3, 5, 12, 20)
            if group > 1
            else self.one_of(4, 8, 16, 16, 24, 32, 40, 48)
        )
        m = m if m <= 96 else group
        shape = (
            1,
            m,
            (h + pads[0] + pads[2] - reach) // stride + 1,
            (w + pads[1] + pads[3] - reach) // stride + 1,
        )
        inputs = [x, self.weight(m, c // group, kernel, kernel)] + (
            [self.weight(m)] if self.rng.random() < 0.8 else []
        )
        return self.add(
            "Conv",
            inputs,
            shape,
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=pads,
            dilations=[dilation] * 2,
            group=group,
        )

    def pool(self, x: str, kind: str) -> str:
        _, c, h, w = self.shapes[x]
        kernel, stride = self.one_of(2, 3, 3, 4), self.one_of(1, 2, 2)
        if min(h, w) < kernel:
            return self.add("Sigmoid", [x], self.shapes[x])
        pad = self.one_of(0, kernel // 2)
        shape = (1, c, (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1)
        more = {"count_include_pad": self.one_of(0, 1)} if kind == "AveragePool" else {}
        return self.add(
            kind, [x], shape, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, **more
        )

    def squeeze(self, x: str) -> str:
        """Squeeze and excite."""
        _, c, _h, _w = self.shapes[x]
        kind = ("GlobalAveragePool", "ReduceMean")[self.one_of(0, 1)]
        inputs, more = ([x], {}) if kind == "GlobalAveragePool" else ([x, self.ints(2, 3)], {"keepdims": 1})
        mean = self.add(kind, inputs, (1, c, 1, 1), **more)
        small = self.add("Conv", [mean, self.weight(8, c, 1, 1), self.weight(8)], (1, 8, 1, 1))
        small = self.add("Relu", [small], (1, 8, 1, 1))
        gate = self.add("Conv", [small, self.weight(c, 8, 1, 1), self.weight(c)], (1, c, 1, 1))
        gate = self.add("Sigmoid", [gate], (1, c, 1, 1))
        pair = [x, gate] if self.rng.random() < 0.5 else [gate, x]
        return self.add("Mul", pair, self.shapes[x])

    def act(self, x: str) -> str:
        """A function of every element, or the product of x and one."""
        y = self.add(
            ("Relu", "Sigmoid", "HardSwish", "LeakyRelu", "Clip")[self.one_of(0, 1, 1, 2, 3)],
            [x],
            self.shapes[x],
        )
        return self.add("Mul", [x, y], self.shapes[x]) if self.rng.random() < 0.4 else y

    def block(self, x: str) -> None:
        """An inverted residual: expanded, filtered, gated or not, projected, added to what it began with."""
        _, c, h, w = self.shapes[x]
        wide = self.one_of(8, 16, 24, 40)
        y = self.act(self.add("Conv", [x, self.weight(wide, c, 1, 1), self.weight(wide)], (1, wide, h, w)))
        y = self.act(
            self.add("Conv", [y, self.weight(wide, 1, 3, 3)], (1, wide, h, w), pads=[1] * 4, group=wide)
        )
        y = self.squeeze(y) if self.rng.random() < 0.7 else y
        y = self.add("Conv", [y, self.weight(c, wide, 1, 1), self.weight(c)], (1, c, h, w))
        y = self.add("Add", [x, y] if self.rng.random() < 0.5 else [y, x], (1, c, h, w))
        if self.rng.random() < 0.5:
            self.act(y)

    def grow(self) -> None:
        names = [name for name, shape in self.shapes.items() if len(shape) == 4 and shape[2:] != (1, 1)]
        x = names[-1] if self.rng.random() < 0.7 else names[int(self.rng.integers(len(names)))]
        shape = self.shapes[x]
        alike = [name for name in names if self.shapes[name] == shape]
        beside = [name for name in names if self.shapes[name][2:] == shape[2:]]
        pick = self.rng.random()
        if pick < 0.06:
            self.choose(x)
        elif pick < 0.3:
            self.conv(x)
        elif pick < 0.45:
            self.conv(x, depthwise=True)
        elif pick < 0.55:
            self.add(
                ("Add", "Mul")[self.one_of(0, 0, 1)], [x, alike[int(self.rng.integers(len(alike)))]], shape
            )
        elif pick < 0.65:
            self.act(x)
        elif pick < 0.75:
            self.pool(x, ("MaxPool", "AveragePool")[self.one_of(0, 1)])
        elif pick < 0.85 and shape[1] < 100:
            others = [beside[int(self.rng.integers(len(beside)))] for _ in range(self.one_of(1, 2))]
            self.add(
                "Concat", [*others, x], (1, sum(self.shapes[n][1] for n in [*others, x]), *shape[2:]), axis=1
            )
        elif pick < 0.95:
            self.squeeze(x)
        else:
            self.upsample(x)

    def choose(self, x: str) -> None:
        """Some channels, or all of them in another order, or in parts."""
        _, c, h, w = self.shapes[x]
        how = self.one_of(0, 1, 2)
        if how == 0 and c > 2:
            cut = int(self.rng.integers(1, c - 1))
            name, parts = f"Split{len(self.nodes)}", (cut, 1, c - cut - 1)
            outputs = [f"{name}.{k}" for k in range(3)]
            self.nodes.append(helper.make_node("Split", [x, self.ints(*parts)], outputs, name, axis=1))
            self.read.add(x)
            self.shapes.update((output, (1, size, h, w)) for output, size in zip(outputs, parts, strict=True))
        elif how == 1:
            start, step = int(self.rng.integers(0, c)), self.one_of(1, 1, 2, 3)
            self.add(
                "Slice",
                [x, self.ints(start), self.ints(c), self.ints(1), self.ints(step)],
                (1, -(-(c - start) // step), h, w),
            )
        else:
            groups = self.one_of(*(g for g in range(1, c + 1) if c % g == 0))
            order = (
                self.rng.permutation(c)
                if self.rng.random() < 0.3
                else np.arange(c).reshape(groups, -1).T.reshape(-1)
            )
            self.add("Gather", [x, self.ints(*order.tolist())], (1, c, h, w), axis=1)

    def upsample(self, x: str) -> None:
        _, c, h, w = self.shapes[x]
        if max(h, w) > 12:
            return
        down, right = self.one_of(1, 2, 3), self.one_of(1, 2, 2)
        scales = numpy_helper.from_array(np.array([1, 1, down, right], np.float32), f"s{len(self.constants)}")
        self.constants.append(scales)
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        self.add("Resize", [x, "", scales.name], (1, c, h * down, w * right), **how)

    def head(self) -> None:
        """Global pooling and a fully connected layer."""
        name = [name for name, shape in self.shapes.items() if len(shape) == 4][-1]
        c = self.shapes[name][1]
        pooled = self.add("GlobalAveragePool", [name], (1, c, 1, 1))
        flat = self.add("Flatten", [pooled], (1, c))
        n = self.one_of(5, 16, 37)
        self.add("Gemm", [flat, self.weight(n, c), self.weight(n)], (1, n), transB=1)

    def finish(self) -> Graph:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shapes["x"])]
        ends = [name for name in self.shapes if name not in self.read and name != "x"]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in ends]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, self.constants)
        return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


def accelerator_graph(
    rng: np.random.Generator, operators: int, lanes: int = LANES, *, gated: bool = False
) -> Graph:
    """A random float32 network of about `operators` operators; `gated`: led by an inverted residual."""
    net = _Net(rng, lanes)
    net.shapes["x"] = (1, net.one_of(3, 3, 8, 16, 24), int(rng.integers(4, 20)), int(rng.integers(4, 20)))
    if gated:
        net.block("x")
    while len(net.nodes) < operators:
        net.grow()
    if rng.random() < 0.4:
        net.head()
    return net.finish()


def accelerator_hardware(buffer_bytes: int, lanes: int = LANES) -> Hardware:
    """The accelerator with another buffer, and other lanes."""
    return Hardware(
        buffer_bytes // (4 * lanes) * 4 * lanes, element_bytes=1, weight_bytes=1, bias_bytes=4,
        accumulator_bytes=4, dram_row_align=16, channel_align=lanes, constant_align=lanes,
        parameter_store_bytes=20 * 64 * lanes, parameter_tables=64, parameter_channels=lanes, mac_rows=lanes,
        mac_columns=lanes, weight_port_bytes=4 * lanes, clock_hz=10**8,
    )  # fmt: skip


# the accelerator has no copies within its buffer
RUN = tuple(scheme for scheme in SCHEMES if "patches" not in SCHEME_ROWS[scheme].modes)


def random_plan(seed: int, lanes: int = LANES) -> tuple[Plan, Graph, dict[str, np.ndarray]]:
    """A random int8 network with inputs, planned in a random scheme (copies where it has them) and buffer.

    The groups of every other plan are placed to overlap.
    """
    rng = np.random.default_rng(seed)
    scheme = RUN[seed % len(RUN)]
    graph = accelerator_graph(
        rng, int(rng.integers(1, 10)), lanes, gated=SCHEME_ROWS[scheme].flights and bool(rng.random() < 0.7)
    )
    graph, inputs = in_integers(graph, random_inputs(graph, rng), rng)
    hardware = accelerator_hardware(int(2 ** rng.uniform(11, 13.5 if scheme == "all" else 16)), lanes)
    if SCHEME_ROWS[scheme].copies:
        graph, _ = with_random_copies(graph, rng)
    costs = GroupCosts.of(graph, hardware, Traffic.TILED, scheme=scheme)
    groups = (
        solve(costs).groups if costs.dataflow.running and rng.random() < 0.5 else random_scheme(costs, seed)
    )
    groups = link(costs, groups) if seed % 3 else groups
    plan = planned(costs, groups)
    return overlapped(plan, graph) if seed % 2 else plan, graph, inputs
