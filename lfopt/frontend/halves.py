"""Files in float16 and bfloat16: computed in float32, while inputs and outputs keep their types.

Everything in the file that is of half a float's width becomes float32; a Cast stands behind every such input
and before every such output.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from lfopt.frontend.messages import title
from lfopt.frontend.values import Initializer, Values
from lfopt.ir import UnsupportedModel

HALVES: dict[int, str] = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
TYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type"}
)
NOTE = "{}: computed in float32; inputs and outputs keep their types"


def widen(model: ModelProto, values: Values, label: str, *, ends: bool) -> tuple[Values, str]:
    """The values in float32, and a note of the types that were not (or ""). Changes the model in place.

    `ends`: inputs and outputs keep their types, behind and before a Cast. Raises UnsupportedModel for what
    reads bits.
    """
    graph = model.graph
    half_types = {name for kind in _kinds(graph, values) if (name := HALVES.get(kind))}
    if not half_types:
        return values, ""
    for node in graph.node:
        if node.op_type == "BitCast":
            raise UnsupportedModel(
                f"{label}: {title(node)}: "
                f"in a file in {' and '.join(sorted(half_types))}, which lfopt computes in float32"
            )
        for attribute in node.attribute:
            _widen_attribute(attribute)
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    if ends:
        _keep_ends(graph, set(values))
    for value in (
        *graph.value_info,
        *(() if ends else (*graph.input, *graph.output)),
        *(v for v in graph.input if v.name in values),
    ):
        _widen_type(value)
    return {name: _wide(held) for name, held in values.items()}, NOTE.format(" and ".join(sorted(half_types)))


def _kinds(graph: GraphProto, values: Values) -> Iterator[int]:
    """Element types that a graph names."""
    yield from (
        value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info)
    )
    yield from (tensor.data_type for tensor in graph.initializer)
    yield from (
        onnx.helper.np_dtype_to_tensor_dtype(np.dtype(held.tensor.dtype))
        for held in values.values()
        if held.tensor.dtype != "string"
    )
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t.data_type
            if attribute.name in TYPE_ATTRIBUTES:
                yield attribute.i


def _keep_ends(graph: GraphProto, constants: set[str]) -> None:
    """Casts behind inputs and before outputs."""
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {
        value.name for value in graph.input
    }

    inputs, outputs = (
        {
            value.name: value.type.tensor_type.elem_type
            for value in ends
            if _is_half(value.type) and value.name not in constants
        }
        for ends in (graph.input, graph.output)
    )
    names = {name: _free(f"{name}.float32", taken) for name in {**inputs, **outputs}}
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    before = [
        onnx.helper.make_node("Cast", [name], [names[name]], name=names[name], to=TensorProto.FLOAT)
        for name in inputs
    ]
    behind = [
        onnx.helper.make_node("Cast", [names[name]], [name], name=name, to=kind)
        for name, kind in outputs.items()
        if name not in inputs
    ]
    del graph.node[:]
    graph.node.extend([*before, *nodes, *behind])


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _is_half(kind: TypeProto) -> bool:
    return kind.HasField("tensor_type") and kind.tensor_type.elem_type in HALVES


def _widen_type(value: ValueInfoProto) -> None:
    if _is_half(value.type):
        value.type.tensor_type.elem_type = TensorProto.FLOAT


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in HALVES:
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
        )


def _widen_attribute(attribute: AttributeProto) -> None:
    if attribute.HasField("t"):
        _widen_tensor(attribute.t)
    if attribute.name in TYPE_ATTRIBUTES and attribute.i in HALVES:
        attribute.i = TensorProto.FLOAT


def _wide(held: Initializer) -> Initializer:
    tensor, value = held
    if tensor.dtype not in HALVES.values():
        return held
    wide = type(tensor)(tensor.name, tensor.shape, "float32")
    return Initializer(wide, None if value is None else value.astype(np.float32))
