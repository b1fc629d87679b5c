"""Bring a model of any opset to the newest: checked, functions inlined, every operator in its newest form.

ONNX's checker, inliner, converter and shape inference are C++ that trusts much of what it is given: what
could crash them, or make them run for ever, is kept from them (`fault`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import onnx
import onnx.checker
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter
from onnx import ModelProto, NodeProto, TypeProto
from onnx.helper import make_attribute, make_node

from lfopt.frontend.bodies import KEY
from lfopt.frontend.messages import ONNX_REFUSES, function_key, title
from lfopt.frontend.values import MAX_RANK
from lfopt.ir import InvalidModel, UnsupportedModel
from lfopt.ir.names import one_line

OLDEST_OPSET = 1
# operand whose elements become dims, by operator
SHAPE_OPERANDS = {"Col2Im": 1, "ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
SHELTER = "lfopt.shelter"  # domain of nodes that checker and converter must not look at
# nearest_mode of a Resize that `lfopt.frontend.load` replaces once it knows the shapes
ROUND_AS_BEFORE_11 = "as before opset 11"


def newest_opset() -> int:
    """Newest opset of the installed onnx."""
    return onnx.defs.onnx_opset_version()


def upgrade(model: ModelProto, label: str) -> ModelProto:
    """The model in the newest opset, without functions.

    Raises InvalidModel or UnsupportedModel, naming the node.
    """
    version = _opset(model, label)
    _shelter_unregistered(model, label)
    _spell_out_group_normalization(model)
    _check(model, label)
    if model.functions:
        model = _inline(model, label)
    if version != newest_opset():
        model = _up_convert(model, version, label)
    for node in model.graph.node:
        if node.domain == SHELTER:
            node.domain = ""
    return model


def _opset(model: ModelProto, label: str) -> int:
    versions = [o.version for o in model.opset_import if o.domain == ""]
    if len(versions) != 1 or not OLDEST_OPSET <= versions[0] <= newest_opset():
        declared = " and ".join(map(str, versions)) or "not declared"
        raise UnsupportedModel(f"{label}: opset {declared}; lfopt reads {OLDEST_OPSET} to {newest_opset()}")
    if any(o.domain == SHELTER for part in (model, *model.functions) for o in part.opset_import):
        raise InvalidModel(f"{label}: domain {SHELTER!r} is lfopt's own")
    return versions[0]


def _shelter_unregistered(model: ModelProto, label: str) -> None:
    """Move operators that ONNX does not know to a domain that checker and converter leave alone."""
    functions = {function_key(f) for f in model.functions}
    for part in (model, *model.functions):
        nodes = part.graph.node if isinstance(part, ModelProto) else part.node
        strangers = [node for node in nodes if _is_unregistered(node, functions)]
        for node in strangers:
            node.domain = SHELTER
        # functions are written out later: the model imports the domain too
        for imports in (part.opset_import, model.opset_import) if strangers else ():
            if all(o.domain != SHELTER for o in imports):
                imports.add(domain=SHELTER, version=1)
        declared = {o.domain for o in part.opset_import}
        for node in nodes:
            if node.domain not in declared:
                raise InvalidModel(f"{label}: {title(node)}: domain {node.domain!r} has no opset import")


def _is_unregistered(node: NodeProto, functions: set[tuple[str, str, str]]) -> bool:
    if any(attribute.name == KEY for attribute in node.attribute):
        return True  # its graphs, without which it is not ONNX's, are kept apart
    return node.domain == "" and not onnx.defs.has(node.op_type) and function_key(node) not in functions


def _spell_out_group_normalization(model: ModelProto) -> None:
    """Write GroupNormalization of opsets 18 to 20 as InstanceNormalization over groups.

    It has one scale per group, is deprecated, and refused by the checker.
    """
    if not 18 <= model.opset_import[0].version < 21:
        return
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if (
            node.op_type != "GroupNormalization"
            or node.domain
            or len(node.input) != 3
            or len(node.output) != 1
        ):
            model.graph.node.append(node)
            continue
        options = {a.name: a for a in node.attribute}
        groups = options["num_groups"].i if "num_groups" in options else 0
        result, stem = node.output[0], f"{node.output[0]}/{node.name}"
        shape, grouped, split, normal = (f"{stem}/{part}" for part in ("shape", "grouped", "split", "normal"))
        wanted = onnx.numpy_helper.from_array(np.array([0, groups, -1], np.int64))
        model.graph.node.extend(
            [
                make_node("Constant", [], [split], name=split, value=wanted),
                make_node("Reshape", [node.input[0], split], [grouped], name=grouped),
                make_node("InstanceNormalization", [grouped, *node.input[1:]], [normal], name=node.name),
                make_node("Shape", [node.input[0]], [shape], name=shape),
                make_node("Reshape", [normal, shape], [result], name=result),
            ]
        )
        if "epsilon" in options:
            model.graph.node[-3].attribute.append(options["epsilon"])


def _check(model: ModelProto, label: str) -> None:
    """ONNX's own checker, but inputs and outputs may lack a shape.

    Exporters leave it out, and lfopt infers it or is told.
    """
    shapeless = [v.type.tensor_type for v in (*model.graph.input, *model.graph.output) if _is_shapeless(v)]
    for tensor_type in shapeless:
        tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except ONNX_REFUSES as error:
        raise InvalidModel(f"{label}: {one_line(error)}") from None
    for tensor_type in shapeless:
        tensor_type.ClearField("shape")


def _is_shapeless(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")


def _shelter_from_inference(model: ModelProto, version: int) -> None:
    """Hide nodes from the converter, which infers shapes, on which that aborts, hangs or fills the memory.

    They skip the conversion: their form has not changed since opset 10. The node at fault is named later,
    once shapes are known.
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
            types |= onnx.shape_inference.infer_node_outputs(
                schema, node, read, known, opset_imports=list(model.opset_import)
            )
        except (*ONNX_REFUSES, onnx.defs.SchemaError):
            continue  # what follows is not known
    if sheltered and all(o.domain != SHELTER for o in model.opset_import):
        model.opset_import.add(domain=SHELTER, version=1)


def fault(node: NodeProto, types: Mapping[str, TypeProto]) -> str | None:
    """Why ONNX's shape inference must not see a standard node with operands of these types; None: it may.

    It would abort, hang or fill the memory.
    """
    attributes = {a.name: a.i for a in node.attribute}
    if node.op_type == "Split" and attributes.get("num_outputs", len(node.output)) != len(node.output):
        return f"num_outputs is {attributes['num_outputs']}, and there are {len(node.output)} outputs"
    if node.op_type == "GatherND" and not 0 <= attributes.get("batch_dims", 0) <= MAX_RANK:
        return f"batch_dims is {attributes['batch_dims']}; it counts from 0"
    if node.op_type == "Einsum" and not all(re.fullmatch(rb"[A-Za-z,.> -]*", a.s) for a in node.attribute):
        return "the equation holds more than letters, commas, dots and arrows"
    if (
        index := {"LayerNormalization": 0, "Slice": 0, **SHAPE_OPERANDS}.get(node.op_type)
    ) is None or index >= len(node.input):
        return None
    declared = types.get(node.input[index])
    if declared is None or not declared.tensor_type.HasField("shape"):
        return f"the shape of {node.input[index]!r} is not known"
    dims = [dim.dim_value for dim in declared.tensor_type.shape.dim]
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

    Up to opset 10, Upsample and Resize map coordinates asymmetrically; the converter leaves the newer default
    in its place.
    """
    _shelter_from_inference(model, version)
    try:
        newer = onnx.version_converter.convert_version(model, newest_opset())
    except ONNX_REFUSES as error:
        raise UnsupportedModel(
            f"{label}: opset {version} cannot be brought to {newest_opset()}: {one_line(error)}"
        ) from None
    if version < 7:
        _spread_slopes(newer)
    if version < 11:
        for node in newer.graph.node:
            if node.op_type == "Resize" and node.domain == "":
                node.attribute.append(make_attribute("coordinate_transformation_mode", "asymmetric"))
                node.attribute.append(make_attribute("nearest_mode", ROUND_AS_BEFORE_11))
    return newer


def _spread_slopes(model: ModelProto) -> None:
    """PRelu as it was before opset 7, one slope for each channel (axis 1), with slopes that broadcast.

    The converter leaves them as they are.
    """
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type == "PRelu" and not node.domain and len(node.input) == 2:
            x, slope = node.input
            stem = f"{node.output[0]}/slope"
            behind, ones, channels, shape, spread = (
                f"{stem}/{part}" for part in ("behind", "ones", "channels", "shape", "spread")
            )
            model.graph.node.extend(
                [
                    make_node("Shape", [x], [behind], name=behind, start=2),
                    make_node("Div", [behind, behind], [ones], name=ones),
                    make_node("Constant", [], [channels], name=channels, value_ints=[-1]),
                    make_node("Concat", [channels, ones], [shape], name=shape, axis=0),
                    make_node("Reshape", [slope, shape], [spread], name=spread),
                ]
            )
            node.input[1] = spread
        model.graph.node.append(node)
