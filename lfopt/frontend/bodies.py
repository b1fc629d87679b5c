"""Graphs inside of operators: branches of If, bodies of Loop and Scan, functions that define operators.

They are kept apart from the network, so that checker and shape inference, which trust what they are given,
never see them before the types of what they read are known. What they read of the graph around them are
operands of their node from then on, behind its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from lfopt.frontend.messages import title
from lfopt.ir import InvalidModel, UnsupportedModel

KEY = "lfopt.bodies"  # attribute of a node whose graphs are kept apart: where
# attributes that are graphs, by operator
BRANCHES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}


@dataclass(frozen=True)
class Body:
    """A graph inside of an operator, with what its nodes mean."""

    graph: GraphProto
    captured: tuple[str, ...]  # what it reads of the graph around it, by the names that it has for these
    opsets: tuple[OperatorSetIdProto, ...]
    functions: tuple[FunctionProto, ...]
    ir_version: int

    def model(self, types: Sequence[TypeProto]) -> ModelProto:
        """A network of its own, on operands of these types: its inputs, then what it captured.

        Raises InvalidModel.
        """
        graph = GraphProto()
        graph.CopyFrom(self.graph)
        names = [*(value.name for value in graph.input), *self.captured]
        if len(names) != len(types):
            raise InvalidModel(
                f"a body of {len(self.graph.input)} inputs is given {len(types) - len(self.captured)}"
            )
        del graph.input[:]
        graph.input.extend(
            ValueInfoProto(name=name, type=known) for name, known in zip(names, types, strict=True)
        )
        for value in graph.output:
            if not value.HasField("type"):  # inside of functions, which state no types; ONNX wants some
                value.type.tensor_type.elem_type = TensorProto.FLOAT
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")  # often stated as that of one iteration alone
        del graph.value_info[:]
        model = ModelProto(ir_version=self.ir_version, graph=graph)
        model.opset_import.extend(self.opsets)
        model.functions.extend(self.functions)
        return model


@dataclass
class Bodies:
    """The graphs of all nodes of a network, by a number that the node has in their place."""

    kept: list[tuple[Body, ...]] = field(default_factory=list[tuple[Body, ...]])

    def of(self, node: NodeProto) -> tuple[Body, ...]:
        """The graphs of a node, then and else or the one body; none for other nodes."""
        indices = [attribute.i for attribute in node.attribute if attribute.name == KEY]
        if indices and 0 <= indices[0] < len(self.kept):
            return self.kept[indices[0]]
        return ()

    def detach(
        self,
        node: NodeProto,
        label: str,
        opsets: Sequence[OperatorSetIdProto],
        functions: Sequence[FunctionProto] = (),
        ir_version: int = 10,
    ) -> None:
        """Take the graphs of a node out of it, in place; what they captured become operands.

        Raises InvalidModel, UnsupportedModel.
        """
        wanted = BRANCHES.get(node.op_type, ())
        graphs = {attribute.name: attribute.g for attribute in node.attribute if is_graph(attribute)}
        if (
            node.domain not in ("", "ai.onnx")
            or not wanted
            or any(attribute.graphs for attribute in node.attribute)
        ):
            raise UnsupportedModel(
                f"{label}: {title(node)}: found graphs inside of the operator; "
                f"lfopt reads those of {', '.join(BRANCHES)}"
            )
        if graphs.keys() != {*wanted}:
            raise InvalidModel(
                f"{label}: {title(node)}: found {', '.join(graphs) or 'nothing'}; "
                f"accepted: {', '.join(wanted)}"
            )
        captured = tuple(dict.fromkeys(name for graph in graphs.values() for name in _free_names(graph)))
        copies = (GraphProto.FromString(graphs[name].SerializeToString()) for name in wanted)
        own_opsets = tuple(OperatorSetIdProto(domain=o.domain, version=o.version) for o in opsets)
        self.kept.append(
            tuple(Body(graph, captured, own_opsets, tuple(functions), ir_version) for graph in copies)
        )
        own = [
            AttributeProto.FromString(attribute.SerializeToString())
            for attribute in node.attribute
            if not is_graph(attribute)
        ]
        del node.attribute[:]
        node.attribute.extend([*own, onnx.helper.make_attribute(KEY, len(self.kept) - 1)])
        node.input.extend(captured)


def is_graph(attribute: AttributeProto) -> bool:
    """Whether an attribute holds graphs."""
    return (
        attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS)
        or attribute.HasField("g")
        or bool(attribute.graphs)
    )


def _free_names(graph: GraphProto) -> Iterator[str]:
    """What a graph reads that nothing in it makes."""
    bound = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        yield from (name for name in node.input if name and name not in bound)
        for attribute in node.attribute:
            if is_graph(attribute):
                yield from (name for name in _free_names(attribute.g) if name not in bound)
        bound.update(node.output)
    yield from (value.name for value in graph.output if value.name not in bound)


def function_body(
    body: FunctionProto,
    node: NodeProto,
    defaults: Mapping[str, AttributeProto],
    results: Mapping[str, TypeProto],
) -> Body:
    """A function as the body of the node that calls it.

    Attributes are in their places, operands that are absent are left out.

    `defaults`: of attributes that the node does not state; `results`: types of what the node makes, by name.
    """
    stated = {
        **defaults,
        **{attribute.name: attribute for attribute in body.attribute_proto},
        **{a.name: a for a in node.attribute},
    }
    present = [formal for formal, name in zip(body.input, node.input, strict=False) if name]
    absent = {*body.input} - {*present}
    graph = GraphProto(name=body.name or node.op_type)
    graph.input.extend(ValueInfoProto(name=name) for name in present)
    outputs = zip(body.output, node.output, strict=False)
    graph.output.extend(
        ValueInfoProto(name=formal, type=results.get(name)) for formal, name in outputs if name
    )
    for part in body.node:
        graph.node.append(_with_attributes(part, stated, absent))
    return Body(graph, (), tuple(body.opset_import), (), 10)


def _with_attributes(node: NodeProto, stated: Mapping[str, AttributeProto], absent: set[str]) -> NodeProto:
    bound = NodeProto()
    bound.CopyFrom(node)
    bound.input[:] = ["" if name in absent else name for name in node.input]
    del bound.attribute[:]
    for attribute in node.attribute:
        given = stated.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if given is None:
            continue
        copy = AttributeProto.FromString(given.SerializeToString())
        copy.name = attribute.name
        if is_graph(copy):
            nodes = [_with_attributes(inner, stated, absent) for inner in copy.g.node]
            del copy.g.node[:]
            copy.g.node.extend(nodes)
        bound.attribute.append(copy)
    return bound
