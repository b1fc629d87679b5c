"""One small network, planned by the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data

SHAPE = (1, 3, 24, 24)


def small_network(path: Path, *, weights: bool = True, output: str = "scores") -> Path:
    """conv, relu, pool, conv, global pool, gemm: 24 x 24 pixels to 5 scores."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (16, 8, 3, 3), "w3": (16, 5)}
    constants = [
        onnx.numpy_helper.from_array((rng.standard_normal(shape) / 4).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MaxPool", ["b"], ["c"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w2"], ["d"], "conv2", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], "average"),
        helper.make_node("Flatten", ["e"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3"], [output], "classify"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("image", SHAPE), (output, (1, 5)))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "small", ends[:1], ends[1:], constants),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    if not weights:  # as a file whose weights lie beside it, and are gone
        for tensor in model.graph.initializer:
            set_external_data(tensor, "gone.bin")
            tensor.ClearField("raw_data")
    onnx.save(model, path)
    return path
