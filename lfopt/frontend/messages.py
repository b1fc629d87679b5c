"""How messages name things, in one line; and what ONNX itself raises."""

from __future__ import annotations

import onnx
import onnx.checker
import onnx.shape_inference
import onnx.version_converter
from onnx import FunctionProto, NodeProto

ONNX_REFUSES = (  # what the library raises where it finds fault with a model
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    onnx.version_converter.ConvertError,
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    MemoryError,
)


def title(node: NodeProto) -> str:
    """A node as messages name it."""
    return f"node {node.name or next(filter(None, node.output), '')!r} ({node.op_type})"


def function_key(item: NodeProto | FunctionProto) -> tuple[str, str, str]:
    """What ties a call to its function."""
    return item.domain, item.op_type if isinstance(item, NodeProto) else item.name, item.overload
