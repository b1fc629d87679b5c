"""Networks whose groups are cut among threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, Plan
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, up_to
from tests.random_plans import planned


class Net:
    """A network under construction: its last map is what the next operator reads, if not told otherwise."""

    def __init__(self, *shape: int) -> None:
        self.rng = np.random.default_rng(0)
        self.shape, self.last, self.outputs = shape, "x", list[str]()
        self.nodes, self.weights = list[onnx.NodeProto](), list[onnx.TensorProto]()
        self.channels = {"x": shape[1]}

    def add(self, kind: str, *inputs: str, channels: int = 0, **attributes: Any) -> str:
        read = inputs or (self.last,)
        self.last = f"t{len(self.nodes)}"
        self.channels[self.last] = channels or self.channels[read[0]]
        self.nodes.append(helper.make_node(kind, read, [self.last], f"n{len(self.nodes)}", **attributes))
        return self.last

    def conv(
        self,
        channels: int,
        kernel: int = 3,
        *,
        source: str = "",
        group: int = 1,
        pads: Sequence[int] = (),
        **attributes: Any,
    ) -> str:
        read = source or self.last
        values = (
            self.rng.standard_normal((channels, self.channels[read] // group, kernel, kernel)).astype(
                np.float32
            )
            / kernel
        )
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        around = list(pads) or [kernel // 2] * 4
        return self.add(
            "Conv",
            read,
            self.weights[-1].name,
            channels=channels,
            group=group,
            kernel_shape=[kernel, kernel],
            pads=around,
            **attributes,
        )

    def depthwise(self, kernel: int = 3, **attributes: Any) -> str:
        channels = self.channels[self.last]
        return self.conv(channels, kernel, group=channels, **attributes)  # pyright: ignore[reportArgumentType]

    def gate(self, few: int) -> str:
        """Squeeze and excite."""
        x, channels = self.last, self.channels[self.last]
        self.add("GlobalAveragePool")
        self.conv(few, 1)
        self.add("Relu")
        self.conv(channels, 1)
        return self.add("Mul", x, self.add("HardSigmoid"))

    def finish(self) -> Graph:
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in (*self.outputs, self.last)
        ]
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        graph = helper.make_graph(self.nodes, "net", [given], outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        return from_model(onnx.shape_inference.infer_shapes(model))


def odd() -> Net:
    """Odd heights, strides, dilations, pads that differ above and below."""
    net = Net(1, 3, 47, 19)
    net.conv(16, pads=(0, 1, 1, 0), strides=[2, 2])
    net.depthwise(5, pads=(3, 2, 1, 2))
    net.add("Relu")
    net.conv(24, 1)
    net.depthwise(3, pads=(0, 1, 2, 1), strides=[2, 1])
    net.depthwise(3, pads=(2, 2, 2, 2), dilations=[2, 2])
    net.conv(17, 1)
    return net


def residual() -> Net:
    net = Net(1, 8, 23, 17)
    before = net.conv(8, 1)
    net.conv(32, 1)
    net.add("Relu")
    net.depthwise(5)
    net.add("Add", net.conv(8, 1), before)
    net.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2])
    net.conv(9)
    return net


def gated() -> Net:
    """Global pools: stages, and a skip across them."""
    net = Net(1, 8, 25, 13)
    before = net.conv(16, strides=[2, 2])
    net.conv(32, 1)
    net.depthwise(5)
    net.gate(4)
    net.add("Add", net.conv(16, 1), before)
    net.depthwise()
    net.gate(3)
    net.conv(11)
    return net


def several() -> Net:
    """Results of several heights, read on inside the group, by windows too."""
    net = Net(1, 5, 29, 11)
    net.outputs.append(net.conv(16))
    net.outputs.append(net.conv(16, strides=[2, 2]))
    net.conv(24, 1)
    net.outputs.append(net.depthwise(strides=[2, 2]))
    net.conv(8, 1, source=net.outputs[1])
    return net


def low() -> Net:
    """Fewer rows than threads."""
    net = Net(1, 16, 4, 30)
    net.conv(24, 1)
    net.depthwise()
    net.conv(20, strides=[2, 1])
    net.depthwise(3, strides=[1, 2])
    return net


def growing() -> Net:
    """More rows than before."""
    net = Net(1, 32, 9, 7)
    net.conv(32)
    net.add("DepthToSpace", blocksize=2, channels=8)
    net.conv(12)
    net.add(
        "Resize",
        net.last,
        "",
        "scales",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    net.weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    net.depthwise()
    return net


NETS: dict[str, Callable[[], Net]] = {
    net.__name__: net for net in (odd, residual, gated, several, low, growing)
}


def fused(graph: Graph, rows: int = 1) -> Plan:
    """Everything as one group."""
    costs = GroupCosts(Dataflow.of(graph), Hardware(1 << 24, element_bytes=4))
    plan = planned(costs, (costs.dataflow.everything,), up_to(costs, rows))
    assert [group.mode for group in plan.groups] == ["lbdf"]
    assert plan.groups[0].band_rows == rows
    return plan
