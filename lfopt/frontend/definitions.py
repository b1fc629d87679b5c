"""Attention and RotaryEmbedding as the operators by which ONNX defines them.

The operator table knows these parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, NodeProto, TypeProto

from lfopt.frontend.messages import ONNX_REFUSES
from lfopt.frontend.read import SMALL
from lfopt.frontend.upgrade import newest_opset, of_opset
from lfopt.ir import InvalidModel, Tensor
from lfopt.ir.names import one_line, plain

# always written as their parts, by which attention is recognised
DEFINED = frozenset({"Attention", "RotaryEmbedding"})
# written as the operators by which ONNX defines them; none is random or lacks static shapes
FUNCTIONS = frozenset(
    """
    AffineGrid BlackmanWindow CausalConvWithState CenterCropPad HammingWindow HannWindow LinearAttention
    NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss SwiGLU
    """.split()
)


@dataclass
class Definitions:
    """Writes operators of a network out.

    What they have in common, as the masks of all layers, is made once.
    """

    tensors: Mapping[str, Tensor]  # of the network, as far as it is known; the same for the others
    constants: Mapping[str, np.ndarray | None]
    types: Mapping[str, TypeProto]
    taken: set[str]  # names of its tensors
    wanted: Counter[str] = field(default_factory=Counter[str])  # how many tensors had better have a name
    by_source: dict[Hashable, str] = field(
        default_factory=dict[Hashable, str]
    )  # constants, by what they are computed from, and by their values if small

    def nodes(self, node: NodeProto, what: str) -> Iterator[NodeProto]:
        """The nodes that an operator is defined by, but for those that change nothing.

        What each makes must be known before the next is asked for.

        Raises InvalidModel.
        """
        body = definition(node, self.types, what)
        opset = next((o.version for o in body.opset_import if not o.domain), newest_opset())
        names = {"": "", **dict(zip(body.input, node.input, strict=False))}
        names |= {formal: name for formal, name in zip(body.output, node.output, strict=False) if name}
        for part in body.node:
            given, inner = [names[name] for name in part.input], part.output[0] not in body.output
            sizes = self.constants.get(given[1]) if part.op_type == "Split" and len(given) > 1 else None
            if sizes is not None and np.count_nonzero(sizes) == 1:
                # nothing is split off
                names |= {
                    name: given[0] if size else ""
                    for name, size in zip(part.output, sizes.tolist(), strict=True)
                }
                continue
            if part.op_type == "Concat":
                given = [name for name in given if name]
            told = (part.op_type, *given, *(attribute.SerializeToString() for attribute in part.attribute))
            if inner and (known := self.by_source.get(told) or self._unchanged(part, given)):
                names[part.output[0]] = known
                continue
            for name in part.output:
                names[name] = names.get(name) or self.free(f"{node.output[0]}.{name}")
            results = [names[name] for name in part.output]
            name = f"{node.name or node.op_type}.{part.output[0]}"
            yield of_opset(self._written(part, given, results, name), opset)
            if inner and (value := self.constants.get(results[0])) is not None:
                key = (value.dtype.str, value.shape, value.tobytes()) if value.size <= SMALL else told
                names[part.output[0]] = self.by_source[told] = self.by_source.setdefault(key, results[0])

    def free(self, wanted: str) -> str:
        """A name that no tensor has."""
        name = stem = plain(wanted)
        while name in self.taken:
            self.wanted[stem] += 1
            name = plain(f"{stem}#{self.wanted[stem]}")
        self.taken.add(name)
        return name

    def _written(self, part: NodeProto, given: Sequence[str], results: Sequence[str], name: str) -> NodeProto:
        """A node of a definition in the network."""
        written = onnx.helper.make_node(part.op_type, given, results, name=name)
        written.attribute.extend(part.attribute)
        return written

    def _unchanged(self, part: NodeProto, given: Sequence[str]) -> str | None:
        """The operand that the result of a node is equal to, element by element."""
        match part.op_type:
            case "Identity":
                return given[0]
            case "Cast":
                return (
                    given[0]
                    if [a.i for a in part.attribute if a.name == "to"] == [self._type(given[0])]
                    else None
                )
            case "CastLike":
                return given[0] if self._type(given[0]) == self._type(given[1]) else None
            case "Concat":
                return given[0] if len(given) == 1 else None
            case "Expand":
                shape = self.constants.get(given[1])
                return (
                    given[0]
                    if shape is not None and self.tensors[given[0]].shape == tuple(shape.tolist())
                    else None
                )
            case "Pad":
                return given[0] if self._holds(given[1], 0) else None
            case "Add":
                same = (
                    given[1] if self._holds(given[0], 0) else given[0] if self._holds(given[1], 0) else None
                )
            case "Where":
                same = (
                    given[1] if self._holds(given[0], 1) else given[2] if self._holds(given[0], 0) else None
                )
            case _:
                return None
        shapes = [self.tensors[name].shape for name in given]
        return same if same and self.tensors[same].shape == np.broadcast_shapes(*shapes) else None

    def _type(self, name: str) -> int:
        return self.types[name].tensor_type.elem_type

    def _holds(self, name: str, number: float) -> bool:
        """Whether every element of a constant is this number."""
        value = self.constants.get(name)
        return value is not None and bool(
            (value[tuple(slice(None if step else 1) for step in value.strides)] == number).all()
        )


def as_cast(node: NodeProto, like: TypeProto) -> NodeProto:
    """A CastLike as a Cast, which reads nothing for its type alone."""
    return onnx.helper.make_node(
        "Cast", node.input[:1], node.output, name=node.name, to=like.tensor_type.elem_type
    )


def as_identity(node: NodeProto, known: TypeProto | None) -> NodeProto:
    """A BitCast to the type that its operand has as an Identity, any other as it is."""
    to = next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0)
    same = known is not None and known.tensor_type.elem_type == to
    return onnx.helper.make_node("Identity", node.input, node.output, name=node.name) if same else node


def definition(node: NodeProto, types: Mapping[str, TypeProto], what: str) -> FunctionProto:
    """The function that ONNX defines an operator by, for operands of these types.

    Its inliner makes the same, but not where an operand is absent.

    Raises InvalidModel.
    """
    schema: Any = onnx.defs.get_schema(node.op_type, newest_opset())  # whose stubs leave functions out
    if schema.has_function:
        return schema.function_body
    version = max(schema.context_dependent_function_opset_versions)
    given = [(types[name] if name else TypeProto()).SerializeToString() for name in node.input]
    try:
        body = FunctionProto.FromString(
            schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), given)
        )
    except ONNX_REFUSES as error:
        raise InvalidModel(f"{what}: {one_line(error)}") from None
    if not body.node:
        raise InvalidModel(f"{what}: ONNX does not say what it is with these attributes")
    return body
