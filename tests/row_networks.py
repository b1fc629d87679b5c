"""Networks written as rows of text, on maps of any height."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from lfopt.frontend import from_model
from lfopt.ir import Graph


def network(
    nodes: Sequence[tuple[str, str, str, Mapping[str, Any]]], height: int, shapes: dict[str, tuple[int, ...]]
) -> Graph:
    """Operators (kind, inputs, output, attributes) on x, (1, 4, height, width); `shapes`: of weights."""
    proto_nodes = [
        helper.make_node(kind, inputs.split(), [output], output, **attributes)
        for kind, inputs, output, attributes in nodes
    ]
    read = {name for _, inputs, _, _ in nodes for name in inputs.split()}
    ends = [helper.make_empty_tensor_value_info(output) for _, _, output, _ in nodes if output not in read]
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, np.ones(shape, np.float32).tobytes(), raw=True)
        for name, shape in shapes.items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, height, 8))
    graph = helper.make_graph(proto_nodes, "net", [x], ends, weights)
    return from_model(
        onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        )
    )


SAME = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
