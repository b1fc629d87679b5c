"""A block as PyTorch's exporter writes it, with its modules and source lines."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

STACK = """File "/site/transformers/net.py", line 31, in forward
    x = self.block(x)
File "/site/torch/nn/modules/conv.py", line 7, in forward
    return self._conv_forward(input)"""


def block(opset: int = 18, scope: str = "layer1.0", stack: str = STACK) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, with the metadata of PyTorch's exporter."""
    ones = {
        name: np.ones(shape, np.float32)
        for name, shape in {"w": (4, 4, 3, 3), "s": (4,), "b": (4,), "m": (4,), "v": (4,)}.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "node_conv2d", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], "node_batch_norm"),
        helper.make_node("Relu", ["n"], ["y"], "node_relu"),
    ]
    for node, module in zip(nodes, ("conv", "bn", "relu"), strict=True):
        node.metadata_props.add(
            key="pkg.torch.onnx.name_scopes", value=repr(["", scope, f"{scope}.{module}", node.name])
        )
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=stack)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 8, 8]) for name in ("x", "y")]
    graph = helper.make_graph(
        nodes,
        "g",
        ends[:1],
        ends[1:],
        [onnx.numpy_helper.from_array(value, name) for name, value in ones.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
