"""Operators by name of the file that a network is from, those that loading and rewriting removed as well.

A model that `save` writes keeps them as metadata, so that names of the file are known without the file.
A line is an operator: name, kind, inputs, outputs, the operator that it is in the body of, and "loaded" or
nothing, with tabs between, and commas between tensors. Plain names have neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from lfopt.ir import FileOperator, Graph, InvalidModel
from lfopt.ir.names import plain

OPERATORS = "lfopt.operators"  # key of a model's metadata
MOST_BYTES = 1 << 24  # of these lines, at about 160 an operator
PRODUCER = "lfopt"  # of models that `save` writes
LOADED = "loaded"
Functions = dict[tuple[str, str], Sequence[NodeProto]]  # operators by domain and name of their function


def file_operators(loaded: Graph, model: ModelProto) -> dict[str, FileOperator]:
    """Operators by name of a network before it is simplified, and of the file that it was loaded from."""
    operators = dict(_operators_of(model))
    for operator in loaded.operators:
        inputs = _distinct(operator.inputs)
        outputs = _distinct(operator.outputs)
        known = operators.get(operator.name)
        if known is None:
            operators[operator.name] = FileOperator(operator.kind, inputs, outputs, loaded=True)
        else:  # what it reads may have been replaced by a constant that is equal
            operators[operator.name] = known._replace(
                inputs=_distinct((*known.inputs, *inputs)), outputs=_distinct((*known.outputs, *outputs))
            )
    return operators


def _operators_of(model: ModelProto) -> Iterator[tuple[str, FileOperator]]:
    """Operators of a file by name; those in bodies and functions belong to what holds or first calls them."""
    functions: Functions = {(function.domain, function.name): function.node for function in model.functions}
    for position, node in enumerate(model.graph.node):
        name = plain(node.name or f"{node.op_type}_{position}")
        kind = plain(node.op_type)
        outputs = _distinct(node.output)
        yield name, FileOperator(kind, _distinct(chain(node.input, _outer(node))), outputs)
        for part in _distinct(inner.name for inner in _nested(node, functions)):
            if part != name:
                yield part, FileOperator(kind, (), outputs, name)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Plain names, each once; bodies that nothing has read may have names that are not UTF-8."""
    return tuple(dict.fromkeys(plain(name) for name in names if name and isinstance(name, str)))


def _graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _nested(node: NodeProto, functions: Functions) -> Iterator[NodeProto]:
    """The operators in the bodies of a node and in functions that it calls, however deep.

    Takes these functions out of `functions`: each is gone through once, however often it is called.
    """
    waiting = [node]
    for outer in waiting:
        called = functions.pop((outer.domain, outer.op_type), ())
        inner = [*called, *chain.from_iterable(graph.node for graph in _graphs(outer))]
        yield from inner
        waiting += inner


def _outer(node: NodeProto) -> Iterator[str]:
    """Tensors that the bodies of a node read; some of them are from outside."""
    for inner in _nested(node, {}):
        yield from inner.input


# -- metadata ------------------------------------------------------------------------------------------------


def write_operators(model: ModelProto, operators: Mapping[str, FileOperator]) -> None:
    """Metadata from which `read_operators` reads the same; none where it would be too long to be read."""
    lines: list[str] = []
    length = 0
    for name, operator in operators.items():
        lines.append(_line(name, operator))
        length += len(lines[-1]) + 1
        if length > MOST_BYTES:
            return
    if lines:
        model.metadata_props.add(key=OPERATORS, value="\n".join(lines))


def _line(name: str, operator: FileOperator) -> str:
    inputs = ",".join(operator.inputs)
    outputs = ",".join(operator.outputs)
    loaded = LOADED if operator.loaded else ""
    return "\t".join((name, operator.kind, inputs, outputs, operator.inside, loaded))


def read_operators(model: ModelProto, label: str) -> dict[str, FileOperator]:
    """Operators of the file before a model that `save` wrote; none where that does not say.

    Other programs may keep the metadata, but not the tensors that these name. Raises InvalidModel for
    metadata that `save` does not write.
    """
    texts = [entry.value for entry in model.metadata_props if entry.key == OPERATORS]
    if model.producer_name != PRODUCER or not texts:
        return {}
    what = f"{label}: metadata {OPERATORS!r}"
    text = texts[0]
    if texts[1:] or not isinstance(text, str) or len(text) > MOST_BYTES:
        raise InvalidModel(f"{what}: accepted: one text of UTF-8, of up to {MOST_BYTES:,} characters")
    operators: dict[str, FileOperator] = {}
    for number, line in enumerate(text.split("\n"), 1):
        named = _parsed(line)
        if named is None:
            raise InvalidModel(
                f"{what}: line {number}: found {line!r}; accepted: an operator, its kind, inputs, outputs, "
                f"the operator that it is in the body of, {LOADED!r} or nothing: plain names, tabs between"
            )
        name, operator = named
        if name in operators:
            raise InvalidModel(f"{what}: line {number}: found {name!r} twice; accepted: each operator once")
        operators[name] = operator
    return operators


def _parsed(line: str) -> tuple[str, FileOperator] | None:
    """(name, operator) of a line; None of one that `_line` does not write."""
    fields = line.split("\t")
    if len(fields) != len(FileOperator._fields) + 1:
        return None
    name, kind, *lists, inside, loaded = fields
    inputs, outputs = (tuple(names.split(",")) if names else () for names in lists)
    tensors = (*inputs, *outputs)
    if not name or not all(tensors) or loaded not in ("", LOADED):
        return None
    if any(plain(text) != text for text in (name, kind, *tensors, inside)):
        return None
    return name, FileOperator(kind, inputs, outputs, inside, bool(loaded))
