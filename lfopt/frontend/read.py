"""Read an ONNX file as hostile input: what lfopt does not take is refused before anything is done with it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

import google.protobuf.message
import onnx
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto

from lfopt.frontend.bodies import KEY, Bodies, is_graph
from lfopt.frontend.messages import function_key, title
from lfopt.frontend.upgrade import fault, upgrade
from lfopt.frontend.values import Folder, Initializer, Values, checked
from lfopt.ir import InvalidModel, UnsupportedModel
from lfopt.ir.names import one_line

MAX_FILE_BYTES = (1 << 31) - 1  # protobuf's own limit
MAX_NODES = 1 << 18  # of a model without functions
MAX_INLINED = 1 << 14  # once functions are inlined: small files may come to any number
MAX_CALL_DEPTH = 64  # of functions
SMALL = 1024  # elements up to which a constant stays inside the model while it is up-converted


def read_model(path: Path) -> ModelProto:
    """Parse a model file.

    Raises InvalidModel if it cannot be read or parsed.
    """
    label = one_line(path)
    try:
        if not path.is_file():
            raise InvalidModel(f"{label}: {'not a file' if path.exists() else 'no such file'}")
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise InvalidModel(
                f"{label}: {size} bytes; a protobuf has at most {MAX_FILE_BYTES} (larger weights belong in "
                "external data)"
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise InvalidModel(f"{label}: {getattr(error, 'strerror', None) or error}") from None
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except google.protobuf.message.DecodeError:
        raise InvalidModel(f"{label}: not an ONNX model (the protobuf is truncated or damaged)") from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise InvalidModel(
            f"{label}: not an ONNX model (it has no graph, or a graph without nodes and outputs)"
        )
    return model


def prepare(model: ModelProto, folder: Path | None, label: str, bodies: Bodies) -> tuple[ModelProto, Values]:
    """(model, values): the model, checked and in the newest opset, and the values of all its constants.

    The model is without functions and without its large constants.

    `folder` is where external data may lie (None: nowhere); graphs inside of operators go to `bodies`. Raises
    InvalidModel or UnsupportedModel, naming the node or tensor.
    """
    _refuse_undecodable(model, label)
    _refuse_faults(model, label)
    _refuse_explosive_functions(model, label)
    light, values = _without_values(model, Folder(folder), label)
    _detach_graphs(light, label, bodies)
    return upgrade(light, label), values


def _refuse_faults(model: ModelProto, label: str) -> None:
    for node in _all_nodes(model):
        if node.op_type in ("Einsum", "GatherND", "Split") and (reason := fault(node, {})):
            raise InvalidModel(f"{label}: {title(node)}: {reason}")
    if model.graph.sparse_initializer:
        raise UnsupportedModel(f"{label}: sparse initializers are not supported")


def _detach_graphs(model: ModelProto, label: str, bodies: Bodies) -> None:
    """Graphs inside of operators are kept apart (see `lfopt.frontend.bodies`)."""
    whole: list[FunctionProto] = []  # functions as they are, for bodies that call them
    for part in (model, *model.functions):
        for node in part.graph.node if isinstance(part, ModelProto) else part.node:
            if any(attribute.name == KEY for attribute in node.attribute):
                raise InvalidModel(f"{label}: {title(node)}: attribute {KEY!r} is lfopt's own")
            if any(map(is_graph, node.attribute)):
                whole = whole or [
                    FunctionProto.FromString(function.SerializeToString()) for function in model.functions
                ]
                bodies.detach(node, label, part.opset_import, whole, model.ir_version)


def _all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    yield from model.graph.node
    for function in model.functions:
        yield from function.node


def _refuse_undecodable(model: ModelProto, label: str) -> None:
    """Names that are not UTF-8: Python's protobuf hands them out as bytes, and does not take them back."""
    for text in _texts(model):
        if not isinstance(text, str):
            raise InvalidModel(f"{label}: the name {text!r} is not UTF-8")


def _texts(model: ModelProto) -> Iterator[str]:
    graph = model.graph
    yield graph.name
    for named in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield named.name
    for tensor in graph.initializer:
        for entry in tensor.external_data:
            yield from (entry.key, entry.value)
    for function in model.functions:
        yield from (function.name, function.domain, function.overload, *function.input, *function.output)
    for part in (model, *model.functions):
        yield from (o.domain for o in part.opset_import)
    for node in _all_nodes(model):
        yield from (
            node.name,
            node.op_type,
            node.domain,
            node.overload,
            *node.input,
            *node.output,
            *(a.name for a in node.attribute),
        )


def _refuse_explosive_functions(model: ModelProto, label: str) -> None:
    """Functions that call themselves, or that would inline to more nodes than any network has."""
    functions = {function_key(f): f for f in model.functions}
    if len(functions) != len(model.functions):
        raise InvalidModel(f"{label}: a function is defined twice")
    sizes: dict[tuple[str, str, str], int] = {}
    for _ in range(MAX_CALL_DEPTH):  # round k settles the functions whose calls nest k deep
        ready = [
            f
            for key, f in functions.items()
            if key not in sizes
            and all(function_key(n) in sizes for n in f.node if function_key(n) in functions)
        ]
        sizes |= {function_key(f): sum(sizes.get(function_key(n), 1) for n in f.node) for f in ready}
    if unsettled := [f for key, f in functions.items() if key not in sizes]:
        raise UnsupportedModel(
            f"{label}: function {unsettled[0].name!r} calls itself, "
            f"or calls nest more than {MAX_CALL_DEPTH} deep"
        )
    count = sum(sizes.get(function_key(n), 1) for n in model.graph.node)
    most = MAX_INLINED if functions else MAX_NODES
    if count > most:
        raise UnsupportedModel(
            f"{label}: {one_line(count)} nodes once functions are inlined; lfopt takes {most}"
        )


def _without_values(model: ModelProto, folder: Folder, label: str) -> tuple[ModelProto, Values]:
    """(light, values): a copy with large constants as inputs of their type and shape, and all values.

    It is light to check and to convert.
    """
    light = ModelProto(ir_version=model.ir_version)
    values = Values()
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph = light.graph
    graph.name = model.graph.name or "network"
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    inputs = {v.name for v in graph.input}
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            if dim.dim_value < 0:
                dim.Clear()  # some exporters write -1 for a dim that is not known

    def take(tensor: TensorProto, name: str) -> None:
        if not name or name in values:
            raise InvalidModel(
                f"{label}: initializer {name!r} " + ("is there twice" if name else "has no name")
            )
        values[name] = initializer = Initializer(
            *checked(tensor, name, folder, f"{label}: initializer {name!r}")
        )
        if initializer.value is not None and initializer.value.size <= SMALL:
            graph.initializer.append(onnx.numpy_helper.from_array(initializer.value, name))
        elif name not in inputs:
            graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))

    for tensor in model.graph.initializer:
        take(tensor, tensor.name)
    for node in model.graph.node:
        if (constant := _large_constant(node)) is not None and node.output[0] not in inputs:
            take(constant, node.output[0])
        else:
            graph.node.append(node)
    for message in (light, *light.functions, *_all_nodes(light)):  # two names of the standard domain
        for item in (message,) if isinstance(message, NodeProto) else message.opset_import:
            if item.domain == "ai.onnx":
                item.domain = ""
    return light, values


def _large_constant(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant node that is better kept out of the graph."""
    if (
        node.op_type != "Constant"
        or node.domain not in ("", "ai.onnx")
        or len(node.output) != 1
        or len(node.attribute) != 1
    ):
        return None
    tensor = node.attribute[0].t
    external = tensor.data_location == TensorProto.EXTERNAL
    if node.attribute[0].name == "value" and (external or prod(tensor.dims) > SMALL):
        return tensor
    return None
