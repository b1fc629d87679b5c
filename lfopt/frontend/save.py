"""Write a Graph as an ONNX file that `load` reads back to the same graph.

A reader finds a whole model or none, meanwhile and afterwards.

Quantised tensors are written in QDQ form (`lfopt.frontend.expansion`).
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import BinaryIO

import google.protobuf.message
import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from lfopt.frontend.expansion import in_qdq_form
from lfopt.frontend.file_operators import PRODUCER, write_operators
from lfopt.frontend.opset import oldest_opset
from lfopt.frontend.origins import write_origin
from lfopt.frontend.spelling import LABEL
from lfopt.frontend.values import PACKED_BITS
from lfopt.ir import CannotWrite, Graph, Tensor, round_up
from lfopt.ir.files import whole_file, writing
from lfopt.ir.names import one_line
from lfopt.ops.evaluate import to_node

ABSENT = "__absent__"  # external location of a constant whose values are not at hand
INLINE_BYTES = 1 << 30  # above this the values go to a file beside the model: protobuf ends at 2 GiB
ALIGNMENT = 64  # bytes: where a tensor starts in that file
LARGE = 1024  # bytes of a constant that is worth moving there


def to_model(graph: Graph) -> ModelProto:
    """The graph as an ONNX model; constants without values point to external data that does not exist."""
    graph = in_qdq_form(graph)
    model = _without_constants(graph)
    model.graph.initializer.extend(
        _initializer(graph.tensors[name], value) for name, value in graph.constants.items()
    )
    return model


def save(graph: Graph, path: str | Path) -> None:
    """Write the model, whole or not at all; large values go to a file beside it.

    Its name tells their content.

    Raises CannotWrite; then what stood at `path` is as it was.
    """
    path = Path(path)
    try:
        if sum(value.nbytes for value in graph.constants.values() if value is not None) <= INLINE_BYTES:
            location = None
            with whole_file(path) as file:
                _write_inline(graph, file)
        else:
            model, location, values = _with_external_values(graph, path.name)
            content = model.SerializeToString()
            # the data gets its name before the model does
            with whole_file(path) as file, whole_file(path.with_name(location)) as data:
                file.write(content)
                _write_values(values, data)
        with writing(path):
            _drop_stale_data(path, location)
    except (ValueError, google.protobuf.message.EncodeError) as error:
        # beyond what protobuf holds, or a null character in the path
        raise CannotWrite(one_line(f"{path}: cannot be written: {error}")) from None


def _write_inline(graph: Graph, file: BinaryIO) -> None:
    """Write what `to_model` serializes to, byte for byte, without a copy of the constants in memory."""
    graph = in_qdq_form(graph)
    model = _without_constants(graph)
    before = GraphProto()
    behind = GraphProto()
    behind.CopyFrom(model.graph)
    before.node.extend(model.graph.node)
    before.name = model.graph.name
    behind.ClearField("node")
    behind.ClearField("name")
    rest = ModelProto()
    head = ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    rest.opset_import.extend(model.opset_import)
    rest.metadata_props.extend(model.metadata_props)
    parts = [_initializer_parts(graph.tensors[name], value) for name, value in graph.constants.items()]
    first = before.SerializeToString()
    last = behind.SerializeToString()
    size = len(first) + len(last) + sum(len(start) + len(content) for start, content in parts)
    file.write(head.SerializeToString() + _tag(ModelProto.GRAPH_FIELD_NUMBER, size) + first)
    for start, content in parts:
        file.write(start)
        file.write(content)
    file.write(last + rest.SerializeToString())


def _initializer_parts(tensor: Tensor, value: np.ndarray | None) -> tuple[bytes, bytes | memoryview]:
    """(start of a constant as a field of the graph, the bytes behind it)."""
    if value is None or value.dtype == object:
        kind = None
    else:
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    if value is None or kind is None or kind in PACKED_BITS or sys.byteorder != "little" or not value.size:
        whole = _initializer(tensor, value).SerializeToString()
        return _tag(GraphProto.INITIALIZER_FIELD_NUMBER, len(whole)), whole
    named = TensorProto(dims=value.shape, data_type=kind, name=tensor.name).SerializeToString()
    content = _content(value)
    start = named + _tag(TensorProto.RAW_DATA_FIELD_NUMBER, len(content))
    return _tag(GraphProto.INITIALIZER_FIELD_NUMBER, len(start) + len(content)) + start, content


def _tag(field: int, size: int) -> bytes:
    """The start of a field of `size` bytes in a serialized message."""
    encoded = bytearray()
    for number in (field << 3 | 2, size):
        while number > 0x7F:
            encoded.append(number & 0x7F | 0x80)
            number >>= 7
        encoded.append(number)
    return bytes(encoded)


def _without_constants(graph: Graph) -> ModelProto:
    model = ModelProto(ir_version=min(onnx.IR_VERSION, 10), producer_name=PRODUCER)
    model.opset_import.add(domain="", version=oldest_opset(graph))  # runtimes lag behind onnx
    for domain in sorted({op.domain for op in graph.operators if op.domain}):
        model.opset_import.add(domain=domain, version=1)
    if graph.files:
        write_operators(model, graph.files[0])
    model.graph.name = graph.name
    for op in graph.operators:
        node = _with_required_outputs(to_node(op), graph.tensors)
        write_origin(node, op.origin)
        model.graph.node.append(node)
    for values, names in ((model.graph.input, graph.inputs), (model.graph.output, graph.outputs)):
        values.extend(_value_info(graph.tensors[name]) for name in names)
        for value in values:
            if value.name in graph.labels:
                value.metadata_props.add(key=LABEL, value=graph.labels[value.name])
    edges = set(graph.inputs) | set(graph.outputs) | set(graph.constants)
    model.graph.value_info.extend(
        _value_info(tensor) for name, tensor in graph.tensors.items() if name not in edges
    )
    return model


def _with_required_outputs(node: NodeProto, taken: Container[str]) -> NodeProto:
    """Outputs that nothing reads get a name where ONNX wants one (TopK, Split)."""
    if node.domain or not onnx.defs.has(node.op_type):
        return node
    schema = onnx.defs.get_schema(node.op_type)
    node.output.extend([""] * (schema.min_output - len(node.output)))
    for i, name in enumerate(node.output):
        formal = schema.outputs[min(i, len(schema.outputs) - 1)]
        if not name and formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
            unused = f"{node.name}.unused{i}"
            while unused in taken:
                unused += "_"
            node.output[i] = unused
    return node


def _with_external_values(graph: Graph, stem: str) -> tuple[ModelProto, str, list[np.ndarray]]:
    """(model, name of its data file, the values in it, in order)."""
    graph = in_qdq_form(graph)
    model = _without_constants(graph)
    digest = hashlib.sha256()
    placed = list[tuple[TensorProto, np.ndarray]]()
    end = 0
    for name, value in graph.constants.items():
        tensor = graph.tensors[name]
        if value is None or value.nbytes < LARGE or tensor.dtype == "string":
            model.graph.initializer.append(_initializer(tensor, value))
            continue
        content = _content(value)
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        placed.append(
            (
                model.graph.initializer.add(
                    name=name, data_type=kind, dims=tensor.shape, data_location=TensorProto.EXTERNAL
                ),
                value,
            )
        )
        start = round_up(end, ALIGNMENT)
        end = start + len(content)
        for key, number in {"offset": start, "length": len(content)}.items():
            placed[-1][0].external_data.add(key=key, value=str(number))
        digest.update(content)
    location = f"{stem}.{digest.hexdigest()[:16]}.data"
    for initializer, _ in placed:
        initializer.external_data.add(key="location", value=location)
    return model, location, [value for _, value in placed]


def _write_values(values: Sequence[np.ndarray], file: BinaryIO) -> None:
    for value in values:
        file.write(bytes(-file.tell() % ALIGNMENT))
        file.write(_content(value))


def _content(value: np.ndarray) -> bytes | memoryview:
    """The bytes of a tensor in a data file."""
    if onnx.helper.np_dtype_to_tensor_dtype(value.dtype) in PACKED_BITS:
        return onnx.numpy_helper.from_array(value).raw_data
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def _drop_stale_data(path: Path, current: str | None) -> None:
    """Remove what earlier models of this name kept their values in."""
    ours = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.data")
    for file in path.parent.iterdir():
        if ours.fullmatch(file.name) and file.name != current:
            file.unlink(missing_ok=True)


def _value_info(tensor: Tensor) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(tensor.name, _element_type(tensor), tensor.shape)


def _initializer(tensor: Tensor, value: np.ndarray | None) -> TensorProto:
    if value is not None:
        return onnx.numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), tensor.name)
    absent = TensorProto(
        name=tensor.name,
        data_type=_element_type(tensor),
        dims=tensor.shape,
        data_location=TensorProto.EXTERNAL,
    )
    absent.external_data.add(key="location", value=ABSENT)
    return absent


def _element_type(tensor: Tensor) -> int:
    if tensor.dtype == "string":
        return TensorProto.STRING
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
