"""Check a model of any opset and inline its functions; every operator says of which opset it is.

What older opsets spelled otherwise becomes the newest form once shapes are known (`lfopt.frontend.older`).
ONNX's checker, inliner and shape inference are C++ that trusts much of what it is given: what could crash
them, or make them run for ever, is kept from them (`fault`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import onnx
import onnx.checker
import onnx.inliner
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TypeProto
from onnx.helper import make_attribute

from lfopt.frontend.bodies import KEY
from lfopt.frontend.messages import ONNX_REFUSES, function_key, quoted, title
from lfopt.frontend.values import MAX_RANK
from lfopt.ir import InvalidModel, UnsupportedModel

OLDEST_OPSET = 1
# operand whose elements become dims, by operator
SHAPE_OPERANDS = {"Col2Im": 1, "ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
SHELTER = "lfopt.shelter"  # domain of nodes that the checker must not look at
OPSET = "lfopt.opset"  # attribute of a standard node that is not of the newest opset: of which


def newest_opset() -> int:
    """Newest opset of the installed onnx."""
    return onnx.defs.onnx_opset_version()


def upgrade(model: ModelProto, label: str) -> ModelProto:
    """The model without functions; standard nodes of older opsets have attribute `OPSET`.

    Raises InvalidModel or UnsupportedModel, naming the node.
    """
    _refuse_opset(model, label)
    _shelter_from_checker(model, label)
    _check(model, label)
    _mark(model)
    if model.functions:
        model = _inline(model, label)
    for node in model.graph.node:
        if node.domain == SHELTER:
            node.domain = ""
    return model


def own_opset(node: NodeProto) -> tuple[NodeProto, int]:
    """A node without its attribute `OPSET`, and the opset that it is of."""
    stated = [attribute.i for attribute in node.attribute if attribute.name == OPSET]
    if not stated:
        return node, newest_opset()
    plain = NodeProto()
    plain.CopyFrom(node)
    del plain.attribute[:]
    plain.attribute.extend(attribute for attribute in node.attribute if attribute.name != OPSET)
    return plain, stated[0]


def of_opset(node: NodeProto, opset: int) -> NodeProto:
    """A node, marked in place as one of an opset."""
    if opset != newest_opset():
        node.attribute.append(make_attribute(OPSET, opset))
    return node


def _refuse_opset(model: ModelProto, label: str) -> None:
    for part in (model, *model.functions):
        versions = [o.version for o in part.opset_import if o.domain == ""]
        whole = isinstance(part, ModelProto)
        if len(versions) > 1 or (whole and not versions) or not all(map(_is_read, versions)):
            declared = " and ".join(map(str, versions)) or "not declared"
            of = "" if whole else f" of function {part.name!r}"
            raise UnsupportedModel(
                f"{label}: opset {declared}{of}; lfopt reads {OLDEST_OPSET} to {newest_opset()}"
            )
        if any(o.domain == SHELTER for o in part.opset_import):
            raise InvalidModel(f"{label}: domain {SHELTER!r} is lfopt's own")


def _is_read(version: int) -> bool:
    return OLDEST_OPSET <= version <= newest_opset()


def _nodes(part: ModelProto | FunctionProto) -> Sequence[NodeProto]:
    if isinstance(part, ModelProto):
        return part.graph.node
    return part.node


def _version(part: ModelProto | FunctionProto) -> int:
    """The opset of a model or of a function; the newest, if it has none, and no standard operators."""
    return next((o.version for o in part.opset_import if o.domain == ""), newest_opset())


def _shelter_from_checker(model: ModelProto, label: str) -> None:
    """Move operators that ONNX does not know to a domain that the checker leaves alone.

    So are GroupNormalizations of opsets 18 to 20, which it refuses for they are deprecated, and functions of
    another opset than the model's.
    """
    functions = {function_key(f) for f in model.functions}
    own = _version(model)
    for part in (model, *model.functions):
        nodes = _nodes(part)
        version = _version(part)
        refused = {"GroupNormalization"} if 18 <= version < 21 else set[str]()
        for node in nodes:
            if any(attribute.name == OPSET for attribute in node.attribute):
                raise InvalidModel(f"{label}: {title(node)}: attribute {OPSET!r} is lfopt's own")
            if _is_standard(node, functions) and (why := misspelled(node, version)):
                raise InvalidModel(f"{label}: {title(node)}: {why}")
        strangers = [
            node
            for node in nodes
            if _is_unregistered(node, functions)
            or (_is_standard(node, functions) and (node.op_type in refused or version != own))
        ]
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


def _is_standard(node: NodeProto, functions: set[tuple[str, str, str]]) -> bool:
    return node.domain == "" and function_key(node) not in functions and onnx.defs.has(node.op_type)


def _is_unregistered(node: NodeProto, functions: set[tuple[str, str, str]]) -> bool:
    if any(attribute.name == KEY for attribute in node.attribute):
        return True  # its graphs, without which it is not ONNX's, are kept apart
    return node.domain == "" and not onnx.defs.has(node.op_type) and function_key(node) not in functions


def _check(model: ModelProto, label: str) -> None:
    """ONNX's own checker, but inputs and outputs may lack a shape.

    Exporters leave it out, and lfopt infers it or is told.
    """
    for what, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            if value.type.HasField("tensor_type") and not value.type.tensor_type.elem_type:
                raise InvalidModel(f"{label}: {what} {value.name!r} has no element type")
    shapeless = [v.type.tensor_type for v in (*model.graph.input, *model.graph.output) if _is_shapeless(v)]
    for tensor_type in shapeless:
        tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except ONNX_REFUSES as error:
        raise InvalidModel(f"{label}: {quoted('checker', error)}") from None
    for tensor_type in shapeless:
        tensor_type.ClearField("shape")


def misspelled(node: NodeProto, opset: int) -> str:
    """What is wrong with the form of a standard node of an opset; "" if nothing is."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        first = min(s.since_version for s in _history(node.op_type))
        return f"opset {opset} has no operator {node.op_type}; opset {first} is the first that has"
    if schema.deprecated and (node.op_type, schema.since_version) != ("GroupNormalization", 18):
        return f"opset {opset} has no operator {node.op_type}, which ends before opset {schema.since_version}"
    if any(attribute.name == KEY for attribute in node.attribute):
        return ""  # its graphs are kept apart, and what they capture are operands
    stated = {attribute.name: attribute for attribute in node.attribute}
    if unknown := [name for name in stated if name not in schema.attributes]:
        known = ", ".join(sorted(schema.attributes)) or "none"
        return f"attribute {unknown[0]!r} (opset {opset}); accepted: {known}"
    for name, declared in schema.attributes.items():
        if name not in stated:
            if declared.required:
                return f"attribute {name!r} is absent; opset {opset} requires it"
            continue
        own, wanted = stated[name].type, int(declared.type.value)  # type: ignore[attr-defined]
        if own and own != wanted:
            kinds = [AttributeProto.AttributeType.Name(kind) for kind in (own, wanted)]
            return f"attribute {name!r}: found {kinds[0]}; accepted: {kinds[1]} (opset {opset})"
    for what, count, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= count <= most:
            accepted = f"{least}" if least == most else f"{least} to {most}"
            return f"{count} {what}; accepted: {accepted} (opset {opset})"
    return ""


def _history(kind: str) -> list[onnx.defs.OpSchema]:
    return [s for s in onnx.defs.get_all_schemas_with_history() if s.name == kind and s.domain == ""]


def _mark(model: ModelProto) -> None:
    """Every standard node says of which opset it is; model and functions then are of the newest."""
    for part in (model, *model.functions):
        version = _version(part)
        for node in _nodes(part):
            if node.domain in ("", SHELTER):
                of_opset(node, version)
        for imported in part.opset_import:
            if imported.domain == "":
                imported.version = newest_opset()


def _is_shapeless(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")


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
        return onnx.inliner.inline_local_functions(model, convert_version=False)
    except ONNX_REFUSES as error:
        raise UnsupportedModel(
            f"{label}: its functions cannot be inlined: {quoted('inliner', error)}"
        ) from None
