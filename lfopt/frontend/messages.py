"""How messages name things, in one line; and what ONNX itself raises."""

from __future__ import annotations

import re

import onnx
import onnx.checker
import onnx.shape_inference
from onnx import FunctionProto, NodeProto

from lfopt.ir.names import one_line

ONNX_REFUSES = (  # what the library raises where it finds fault with a model
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    MemoryError,
)


def quoted(of_onnx: str, error: Exception) -> str:
    """What one of ONNX's own libraries says of a model, as a part of a sentence of lfopt's."""
    text = re.sub(r"\[\w+Error\]|\(op_type:[^()]*\):?|==>.*", " ", one_line(error))
    return f"ONNX's {of_onnx} refuses it: {one_line(text).strip() or type(error).__name__}"


def title(node: NodeProto) -> str:
    """A node as messages name it."""
    return f"node {node.name or next(filter(None, node.output), '')!r} ({node.op_type})"


def function_key(item: NodeProto | FunctionProto) -> tuple[str, str, str]:
    """What ties a call to its function."""
    return item.domain, item.op_type if isinstance(item, NodeProto) else item.name, item.overload
