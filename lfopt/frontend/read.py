"""Read an ONNX file as hostile input: afterwards the model is well-formed, of the newest opset, and no value lies outside the model's folder.

ONNX's checker, inliner and converter are C++ that trusts much of what it is given: what could crash them, or make them run for ever, is refused before.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import google.protobuf.message
import numpy as np
import onnx
import onnx.checker
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, TypeProto
from onnx.helper import make_attribute, make_node

from lfopt.ir import InvalidModel, Tensor, UnsupportedModel

OLDEST_OPSET = 7
MAX_FILE_BYTES = (1 << 31) - 1  # protobuf's own limit
MAX_ELEMENTS = 1 << 36  # of one tensor: beyond any real network, and far below what overflows an int64 byte count
MAX_RANK = 32
MAX_NODES = 1 << 18  # after functions are inlined
MAX_CALL_DEPTH = 64  # of functions
SMALL = 1024  # elements up to which a constant stays inside the model while it is up-converted
SHAPE_OPERANDS = {"Col2Im": 1, "ConstantOfShape": 0, "Expand": 1, "Reshape": 1}  # operand whose elements become dims, by operator
CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
SHELTER = "lfopt.shelter"  # domain of nodes that checker and converter must not look at
PACKED_BITS = {
    TensorProto.DataType.Value(name): bits
    for bits, names in ((2, "INT2 UINT2"), (4, "INT4 UINT4 FLOAT4E2M1"), (6, "FLOAT6E2M3 FLOAT6E3M2"))
    for name in names.split()
    if name in TensorProto.DataType.keys()
}
ROUND_AS_BEFORE_11 = "as before opset 11"  # nearest_mode of a Resize that `lfopt.frontend.load` replaces once it knows the shapes

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


class Initializer(NamedTuple):
    """A constant of the file."""

    tensor: Tensor
    value: np.ndarray | None  # None: the external file is absent


Values = dict[str, Initializer]


def newest_opset() -> int:
    """Newest opset of the installed onnx."""
    return onnx.defs.onnx_opset_version()


def one_line(error: object) -> str:
    """A message as one line of printable characters, its middle cut out where it gets long."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= 600 else f"{text[:400]} ... {text[-200:]}"


def title(node: NodeProto) -> str:
    """A node as messages name it."""
    return f"node {node.name or next(iter(node.output), '')!r} ({node.op_type})"


def read_model(path: Path) -> ModelProto:
    """Parse a model file.

    Raises InvalidModel if it cannot be read or parsed.
    """
    try:
        if not path.is_file():
            raise InvalidModel(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise InvalidModel(f"{path}: {size} bytes; a protobuf has at most {MAX_FILE_BYTES} (larger weights belong in external data)")
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise InvalidModel(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except google.protobuf.message.DecodeError:
        raise InvalidModel(f"{path}: not an ONNX model (the protobuf is truncated or damaged)") from None
    if not model.HasField("graph") or not model.graph.node:
        raise InvalidModel(f"{path}: not an ONNX model (it has no graph, or a graph without nodes)")
    return model


def prepare(model: ModelProto, folder: Path | None, label: str) -> tuple[ModelProto, Values]:
    """Check a model, take its weights out, inline its functions and bring it to the newest opset.

    `folder` is where external data may lie (None: nowhere). Raises InvalidModel or UnsupportedModel, naming the node or tensor.
    """
    _refuse_undecodable(model, label)
    _refuse_control_flow(model, label)
    _refuse_explosive_functions(model, label)
    light, values = _without_values(model, _Folder(folder), label)
    version = _opset(light, label)
    _shelter_unregistered(light, label)
    _spell_out_group_normalization(light)
    _check(light, label)
    if light.functions:
        light = _inline(light, label)
    if version != newest_opset():
        light = _up_convert(light, version, label)
    for node in light.graph.node:
        if node.domain == SHELTER:
            node.domain = ""
    return light, values


# What is refused at once


def _opset(model: ModelProto, label: str) -> int:
    versions = [o.version for o in model.opset_import if o.domain == ""]
    if len(versions) != 1 or not OLDEST_OPSET <= versions[0] <= newest_opset():
        found = " and ".join(map(str, versions)) or "not declared"
        raise UnsupportedModel(f"{label}: opset {found}; lfopt reads {OLDEST_OPSET} to {newest_opset()}")
    if any(o.domain == SHELTER for part in (model, *model.functions) for o in part.opset_import):
        raise InvalidModel(f"{label}: domain {SHELTER!r} is lfopt's own")
    return versions[0]


def _refuse_control_flow(model: ModelProto, label: str) -> None:
    for node in _all_nodes(model):
        subgraph = any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) or a.HasField("g") or a.graphs for a in node.attribute)
        if node.op_type in CONTROL_FLOW or subgraph:
            raise UnsupportedModel(f"{label}: {title(node)}: control flow is not supported")
        if node.op_type in ("Einsum", "GatherND", "Split") and (reason := fault(node, {})):
            raise InvalidModel(f"{label}: {title(node)}: {reason}")
    if model.graph.sparse_initializer:
        raise UnsupportedModel(f"{label}: sparse initializers are not supported")


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
        yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output, *(a.name for a in node.attribute))


def _all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    yield from model.graph.node
    for function in model.functions:
        yield from function.node


def _refuse_explosive_functions(model: ModelProto, label: str) -> None:
    """Functions that call themselves, or that would inline to more nodes than any network has."""
    functions = {_key(f): f for f in model.functions}
    if len(functions) != len(model.functions):
        raise InvalidModel(f"{label}: a function is defined twice")
    sizes: dict[tuple[str, str, str], int] = {}
    for _ in range(MAX_CALL_DEPTH):  # round k settles the functions whose calls nest k deep
        ready = [f for key, f in functions.items() if key not in sizes and all(_key(n) in sizes for n in f.node if _key(n) in functions)]
        sizes |= {_key(f): sum(sizes.get(_key(n), 1) for n in f.node) for f in ready}
    if unsettled := [f for key, f in functions.items() if key not in sizes]:
        raise UnsupportedModel(f"{label}: function {unsettled[0].name!r} calls itself, or calls nest more than {MAX_CALL_DEPTH} deep")
    if (count := sum(sizes.get(_key(n), 1) for n in model.graph.node)) > MAX_NODES:
        raise UnsupportedModel(f"{label}: {one_line(count)} nodes once functions are inlined; lfopt takes {MAX_NODES}")


def _key(item: NodeProto | FunctionProto) -> tuple[str, str, str]:
    """What ties a call to its function."""
    return item.domain, item.op_type if isinstance(item, NodeProto) else item.name, item.overload


# Constants


class _Folder:
    """External data: files below the model's folder, each mapped once, so that weights are read only where they are used."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._files: dict[str, np.ndarray] = {}

    def read(self, tensor: TensorProto, what: str) -> np.ndarray | None:
        """Values of an external tensor; None where its file is absent."""
        info = {entry.key: entry.value for entry in tensor.external_data}
        location = info.get("location", "")
        data = self._open(location, what)
        if data is None:
            return None
        dtype, bits = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), PACKED_BITS.get(tensor.data_type)
        if dtype == object:
            raise InvalidModel(f"{what}: strings cannot be external data")
        wanted = -(-prod(tensor.dims) * (bits or 8 * dtype.itemsize) // 8)
        offset, length = _integer(info, "offset", 0, what), _integer(info, "length", wanted, what)
        if offset + length > data.size:
            raise InvalidModel(f"{what}: bytes {offset} to {offset + length} of {location!r}, which has {data.size}")
        if length != wanted:
            raise InvalidModel(f"{what}: {length} bytes in {location!r}, dims {list(tensor.dims)} want {wanted}")
        found = data[offset : offset + length]
        if bits:
            return onnx.numpy_helper.to_array(TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=found.tobytes()))
        return found.view(dtype).reshape(tensor.dims)

    def _open(self, location: str, what: str) -> np.ndarray | None:
        """Bytes of a file, as uint8."""
        if location in self._files:
            return self._files[location]
        relative = Path(location)
        outside = InvalidModel(f"{what}: external data location {location!r} lies outside the model's folder")
        if not location or relative.is_absolute() or ".." in relative.parts or "\\" in location or "\0" in location:
            raise outside
        if self._path is None:
            return None
        path = self._path / relative
        try:
            if not path.exists():
                return None
            if not path.resolve().is_relative_to(self._path.resolve()):
                raise outside
            if not path.is_file():
                raise InvalidModel(f"{what}: external data location {location!r} is not a file")
            empty = path.stat().st_size == 0  # which cannot be mapped
            self._files[location] = np.zeros(0, np.uint8) if empty else np.memmap(path, np.uint8, "r")
        except (OSError, RuntimeError) as error:
            raise InvalidModel(f"{what}: external data {location!r}: {getattr(error, 'strerror', None) or error}") from None
        return self._files[location]


def _integer(info: Mapping[str, str], key: str, default: int, what: str) -> int:
    """A field of external data, which is text."""
    text = info.get(key)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise InvalidModel(f"{what}: external data {key} is {text[:40]!r}; wanted is a number of bytes")
    return int(text)


def _without_values(model: ModelProto, folder: _Folder, label: str) -> tuple[ModelProto, Values]:
    """(light, values): a copy that is light to check and to convert, where large constants stand as inputs of the same type and shape."""
    light, values = ModelProto(ir_version=model.ir_version), Values()
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
            raise InvalidModel(f"{label}: initializer {name!r} " + ("is there twice" if name else "has no name"))
        values[name] = found = Initializer(*_checked(tensor, name, folder, f"{label}: initializer {name!r}"))
        if found.value is not None and found.value.size <= SMALL:
            graph.initializer.append(onnx.numpy_helper.from_array(found.value, name))
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
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.output) != 1 or len(node.attribute) != 1:
        return None
    tensor = node.attribute[0].t
    external = tensor.data_location == TensorProto.EXTERNAL
    return tensor if node.attribute[0].name == "value" and (external or prod(tensor.dims) > SMALL) else None


def _checked(tensor: TensorProto, name: str, folder: _Folder, what: str) -> tuple[Tensor, np.ndarray | None]:
    """A constant and its values, which agree with its dims; None where the external file is absent."""
    shape, dtype = tuple(tensor.dims), dtype_name(tensor.data_type, what)
    check_shape(shape, what)
    try:
        value = folder.read(tensor, what) if tensor.data_location == TensorProto.EXTERNAL else onnx.numpy_helper.to_array(tensor)
    except (*ONNX_REFUSES, OverflowError) as error:
        raise InvalidModel(f"{what} of dims {list(shape)}: {error}") from None
    return Tensor(name, shape, dtype), value


def check_shape(shape: Sequence[int], what: str, least: int = 0) -> None:
    """Refuse a shape that no tensor has: negative or absurd dims."""
    if len(shape) > MAX_RANK or any(d < least for d in shape) or prod(shape) > MAX_ELEMENTS:
        found = list(shape) if len(shape) <= MAX_RANK else f"of rank {len(shape)}"
        raise InvalidModel(f"{what}: shape {found} is out of range (rank up to {MAX_RANK}, no dim below {least}, up to {MAX_ELEMENTS} elements)")


def dtype_name(data_type: int, what: str) -> str:
    """NumPy's name of an ONNX element type."""
    try:
        return "string" if data_type == TensorProto.STRING else onnx.helper.tensor_dtype_to_np_dtype(data_type).name
    except (KeyError, TypeError):
        raise InvalidModel(f"{what}: element type {data_type} is not one of ONNX's") from None


def attribute_value(tensor: TensorProto, what: str) -> np.ndarray:
    """The values of a tensor attribute, which must stand in the model itself."""
    value = None if tensor.data_location == TensorProto.EXTERNAL else _checked(tensor, "", _Folder(None), what)[1]
    if value is None:
        raise UnsupportedModel(f"{what}: external data is supported for initializers and Constant nodes of the graph itself")
    return value


# Checker, inliner, converter


def _is_unregistered(node: NodeProto, functions: Container[tuple[str, str, str]]) -> bool:
    return node.domain == "" and not onnx.defs.has(node.op_type) and _key(node) not in functions


def _shelter_unregistered(model: ModelProto, label: str) -> None:
    """Move operators that ONNX does not know to a domain of their own, which checker and converter leave alone."""
    functions = {_key(f) for f in model.functions}
    for part in (model, *model.functions):
        nodes = part.graph.node if isinstance(part, ModelProto) else part.node
        strangers = [node for node in nodes if _is_unregistered(node, functions)]
        for node in strangers:
            node.domain = SHELTER
        if strangers:
            part.opset_import.add(domain=SHELTER, version=1)
        declared = {o.domain for o in part.opset_import}
        for node in nodes:
            if node.domain not in declared:
                raise InvalidModel(f"{label}: {title(node)}: domain {node.domain!r} has no opset import")


def _spell_out_group_normalization(model: ModelProto) -> None:
    """GroupNormalization of opsets 18 to 20 (one scale per group, deprecated, and refused by the checker) is InstanceNormalization over groups."""
    if not 18 <= model.opset_import[0].version < 21:
        return
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type != "GroupNormalization" or node.domain or len(node.input) != 3 or len(node.output) != 1:
            model.graph.node.append(node)
            continue
        options = {a.name: a for a in node.attribute}
        groups = options["num_groups"].i if "num_groups" in options else 0
        made, stem = node.output[0], f"{node.output[0]}/{node.name}"
        shape, grouped, split, normal = (f"{stem}/{part}" for part in ("shape", "grouped", "split", "normal"))
        wanted = onnx.numpy_helper.from_array(np.array([0, groups, -1], np.int64))
        model.graph.node.extend(
            [
                make_node("Constant", [], [split], name=split, value=wanted),
                make_node("Reshape", [node.input[0], split], [grouped], name=grouped),
                make_node("InstanceNormalization", [grouped, *node.input[1:]], [normal], name=node.name),
                make_node("Shape", [node.input[0]], [shape], name=shape),
                make_node("Reshape", [normal, shape], [made], name=made),
            ]
        )
        if "epsilon" in options:
            model.graph.node[-3].attribute.append(options["epsilon"])


def _check(model: ModelProto, label: str) -> None:
    """ONNX's own checker, but inputs and outputs may lack a shape: exporters leave it out, and lfopt infers it or is told."""
    shapeless = [v.type.tensor_type for v in (*model.graph.input, *model.graph.output) if _is_shapeless(v)]
    for found in shapeless:
        found.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except ONNX_REFUSES as error:
        raise InvalidModel(f"{label}: {one_line(error)}") from None
    for found in shapeless:
        found.ClearField("shape")


def _is_shapeless(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")


def _shelter_from_inference(model: ModelProto, version: int) -> None:
    """Keep the converter, which infers the shapes of the whole model, from the nodes on which that aborts, hangs or fills the memory.

    They skip the conversion: their form has not changed since opset 10. Whoever is to blame is named later, by shapes that are known.
    """
    graph = model.graph
    data = {t.name: t for t in graph.initializer}
    types = {v.name: v.type for v in graph.input}
    types |= {t.name: onnx.helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer}
    sheltered = 0
    for node in graph.node:
        if node.domain:
            continue
        read = {name: types[name] for name in node.input if name in types}
        if fault(node, read) and (node.op_type != "Slice" or version >= 10):
            node.domain, sheltered = SHELTER, sheltered + 1
        if node.domain or any(name and name not in read for name in node.input):
            continue
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            data[node.output[0]] = node.attribute[0].t
        try:
            known = {name: data[name] for name in read if name in data}
            schema = onnx.defs.get_schema(node.op_type, version)
            types |= onnx.shape_inference.infer_node_outputs(schema, node, read, known, opset_imports=list(model.opset_import))
        except (*ONNX_REFUSES, onnx.defs.SchemaError):
            continue  # what follows is not known
    if sheltered and all(o.domain != SHELTER for o in model.opset_import):
        model.opset_import.add(domain=SHELTER, version=1)


def fault(node: NodeProto, types: Mapping[str, TypeProto]) -> str | None:
    """Why ONNX's shape inference must not see a node of the standard domain with operands of these types: it would abort, hang or fill the memory."""
    attributes = {a.name: a.i for a in node.attribute}
    if node.op_type == "Split" and attributes.get("num_outputs", len(node.output)) != len(node.output):
        return f"num_outputs is {attributes['num_outputs']}, and there are {len(node.output)} outputs"
    if node.op_type == "GatherND" and not 0 <= attributes.get("batch_dims", 0) <= MAX_RANK:
        return f"batch_dims is {attributes['batch_dims']}; it counts from 0"
    if node.op_type == "Einsum" and not all(re.fullmatch(rb"[A-Za-z,.> -]*", a.s) for a in node.attribute):
        return "the equation holds more than letters, commas, dots and arrows"
    if (index := {"LayerNormalization": 0, "Slice": 0, **SHAPE_OPERANDS}.get(node.op_type)) is None or index >= len(node.input):
        return None
    found = types.get(node.input[index])
    if found is None or not found.tensor_type.HasField("shape"):
        return f"the shape of {node.input[index]!r} is not known"
    dims = [dim.dim_value for dim in found.tensor_type.shape.dim]
    if any(d < 0 for d in dims):
        return f"{node.input[index]!r} is of shape {dims}"
    if node.op_type == "LayerNormalization" and not -len(dims) <= attributes.get("axis", -1) < len(dims):
        return f"axis is {attributes.get('axis', -1)}, of {len(dims)}"
    if node.op_type in SHAPE_OPERANDS and any(d > MAX_RANK for d in dims):
        return f"{node.input[index]!r} of shape {dims} states more than {MAX_RANK} dims"
    return None


def _inline(model: ModelProto, label: str) -> ModelProto:
    try:
        return onnx.inliner.inline_local_functions(model, convert_version=True)
    except ONNX_REFUSES as error:
        raise UnsupportedModel(f"{label}: its functions cannot be inlined: {one_line(error)}") from None


def _up_convert(model: ModelProto, version: int, label: str) -> ModelProto:
    """Bring the model to the newest opset by ONNX's own converter.

    Up to opset 10, Upsample and Resize map coordinates asymmetrically; the converter leaves the newer default in its place.
    """
    _shelter_from_inference(model, version)
    try:
        newer = onnx.version_converter.convert_version(model, newest_opset())
    except ONNX_REFUSES as error:
        raise UnsupportedModel(f"{label}: opset {version} cannot be brought to {newest_opset()}: {one_line(error)}") from None
    if version < 11:
        for node in newer.graph.node:
            if node.op_type == "Resize" and node.domain == "":
                node.attribute.append(make_attribute("coordinate_transformation_mode", "asymmetric"))
                node.attribute.append(make_attribute("nearest_mode", ROUND_AS_BEFORE_11))
    return newer
