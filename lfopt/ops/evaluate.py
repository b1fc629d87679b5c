"""Values of a single operator, by ONNX's own reference implementation (NumPy)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from lfopt.ir import Operator


def evaluate(operator: Operator, inputs: Sequence[np.ndarray | None], opset: int) -> tuple[np.ndarray, ...]:
    """Whole results, of ONNX's shapes and types, on whole inputs (None: absent).

    Raises whatever the reference implementation raises: the caller knows what the operator was part of.
    """
    if operator.kind == "GatherElements" and not operator.domain:
        return (_gather_elements(operator, *inputs),)
    node = to_node(operator)
    present = {
        name: value for name, value in zip(operator.inputs, inputs, strict=True) if name and value is not None
    }
    outputs = [name for name in operator.outputs if name]
    graph = onnx.helper.make_graph(
        [node],
        "single",
        [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in present.items()
        ],
        [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        return tuple(np.asarray(value) for value in ReferenceEvaluator(model).run(None, present))


def _gather_elements(operator: Operator, data: np.ndarray | None, indices: np.ndarray | None) -> np.ndarray:
    """[*indices.shape]: GatherElements.

    onnx 1.23's own reference fails where data and indices differ in more than one axis.
    """
    assert data is not None and indices is not None
    axis = operator.attributes.get("axis", 0)
    assert isinstance(axis, int)
    extent = tuple(slice(None) if a == axis % data.ndim else slice(n) for a, n in enumerate(indices.shape))
    return np.take_along_axis(data[extent], indices, axis)


def to_node(operator: Operator) -> onnx.NodeProto:
    """The operator as an ONNX node."""
    node = onnx.NodeProto(op_type=operator.kind, name=operator.name, domain=operator.domain)
    node.input.extend(operator.inputs)
    node.output.extend(operator.outputs)
    for name, value in operator.attributes.items():
        stored = onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        node.attribute.append(
            onnx.helper.make_attribute(
                name, stored, attr_type=_type_of_empty(operator, name) if stored == () else None
            )
        )
    return node


def _type_of_empty(operator: Operator, attribute: str) -> int:
    """Element type of an attribute that is an empty list: as the operator's schema says."""
    if not operator.domain and onnx.defs.has(operator.kind):
        declared = onnx.defs.get_schema(operator.kind).attributes.get(attribute)
        if declared is not None:
            return int(declared.type.value)  # pyright: ignore[reportAttributeAccessIssue]  (the stub knows no enum)
    return onnx.AttributeProto.INTS
