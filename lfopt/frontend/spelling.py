"""Names of an ONNX model, made plain (`lfopt.ir.names`) and distinct; those that callers know are kept."""

from __future__ import annotations

from onnx import ModelProto, ValueInfoProto

from lfopt.frontend.values import Values
from lfopt.ir import InvalidModel
from lfopt.ir.names import distinct, plain

# key of a value's metadata: what callers call an input or output whose plain name is another
LABEL = "lfopt.name"


def spell(model: ModelProto, values: Values) -> tuple[Values, dict[str, str]]:
    """Give nodes, tensors, operator types and domains of a model plain names, in place.

    Returns the values under their new names, and the new name of every tensor by its old one.
    """
    graph = model.graph
    infos: list[ValueInfoProto] = [*graph.input, *graph.output, *graph.value_info]
    tensors = [*(v.name for v in infos), *(t.name for t in graph.initializer), *values]
    tensors += [name for node in graph.node for name in (*node.input, *node.output)]
    spelled = distinct(dict.fromkeys(name for name in tensors if name))
    for node in graph.node:
        node.name, node.op_type, node.domain = plain(node.name), plain(node.op_type), plain(node.domain)
        for field in (node.input, node.output):
            field[:] = [spelled[name] if name else "" for name in field]
    for part in (*infos, *graph.initializer):
        part.name = spelled.get(part.name, part.name)
    for imported in model.opset_import:
        imported.domain = plain(imported.domain)
    renamed = {
        spelled[name]: held._replace(tensor=held.tensor.named(spelled[name])) for name, held in values.items()
    }
    return renamed, spelled


def labels(model: ModelProto, spelled: dict[str, str], label: str) -> dict[str, str]:
    """What callers know inputs and outputs by, where that is not their plain name.

    That is the name in the file, or what the file says it was before.

    Raises InvalidModel where one is said of two.
    """
    known_as: dict[str, str] = {}
    for values in (model.graph.input, model.graph.output):
        known: dict[str, str] = {}
        for value in values:
            said = [entry.value for entry in value.metadata_props if entry.key == LABEL]
            name = said[0] if said and isinstance(said[0], str) else value.name
            if known.setdefault(name, value.name) != value.name:
                raise InvalidModel(f"{label}: {known[name]!r} and {value.name!r} are both called {name!r}")
            if name != spelled.get(value.name, value.name):
                known_as[spelled[value.name]] = name
    return known_as
