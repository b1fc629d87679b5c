"""Sequences of tensors as their tensors, by name: how many, and which, follows from constants and shapes.

Source: the ONNX operators SequenceConstruct, SequenceEmpty, SequenceInsert, SequenceErase, SequenceAt,
SequenceLength, SplitToSequence and ConcatFromSequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, TypeProto

from lfopt.frontend.builder import Builder
from lfopt.frontend.values import options
from lfopt.ir import InvalidModel, UnsupportedModel

MAX_TENSORS = 1 << 10  # of one sequence
Tensors = tuple[str, ...]  # names of the tensors of a sequence, in order


@dataclass
class Sequences:
    """The sequences of a network that is being read."""

    held: dict[str, Tensors] = field(default_factory=dict[str, Tensors])  # by name
    elements: dict[str, int] = field(default_factory=dict[str, int])  # element type of their tensors, by name

    def reads(self, node: NodeProto) -> bool:
        """Whether an operator makes sequences, or takes tensors out of them."""
        known = (
            node.op_type in MAKERS
            or node.op_type in TAKERS
            or (node.op_type == "Identity" and node.input[0] in self.held)
        )
        return known and not node.domain

    def type(self, name: str) -> TypeProto:
        """Type of a sequence, without shapes."""
        return onnx.helper.make_sequence_type_proto(
            onnx.helper.make_tensor_type_proto(self.elements[name], None)
        )

    def write(self, build: Builder, node: NodeProto) -> list[str]:
        """The name of the tensor that an operator makes of a sequence, or of the sequence that it makes.

        The sequence is known from then on.

        Raises InvalidModel, UnsupportedModel.
        """
        if node.op_type in TAKERS:
            return [TAKERS[node.op_type](self, build, node)]
        if node.op_type == "Identity":
            members = self.tensors(node)
        else:
            members = tuple(MAKERS[node.op_type](self, build, node))
        if len(members) > MAX_TENSORS:
            raise UnsupportedModel(f"a sequence of {len(members)} tensors; lfopt reads up to {MAX_TENSORS}")
        for name in members:
            if name not in build.network.tensors:
                raise UnsupportedModel(
                    f"{name!r} in a sequence is no tensor; lfopt reads sequences of tensors"
                )
        (result,) = node.output
        stated = int(options(node).get("dtype", TensorProto.FLOAT))
        self.elements[result] = build.network.types[members[0]].tensor_type.elem_type if members else stated
        self.held[result] = members
        return [result]

    def tensors(self, node: NodeProto) -> Tensors:
        """Those of the sequence that an operator reads first. Raises InvalidModel."""
        if node.input[0] not in self.held:
            raise InvalidModel(f"{node.input[0]!r} is no sequence")
        return self.held[node.input[0]]


def _position(build: Builder, name: str, count: int, stop: int) -> int:
    """Where a scalar, which may count from the end, points to: below `stop`, in a sequence of so many.

    Raises InvalidModel, UnsupportedModel.
    """
    value = build.known(name)
    if value is None:
        raise UnsupportedModel("its position is computed; lfopt reads a constant")
    if value.size != 1 or not -count <= (position := int(value.reshape(()))) < stop:
        raise InvalidModel(f"position {value.reshape(-1)[:8].tolist()} in a sequence of {count}")
    if position < 0:
        return position + count
    return position


def _insert(sequences: Sequences, build: Builder, node: NodeProto) -> Iterable[str]:
    tensors = sequences.tensors(node)
    if len(node.input) > 2 and node.input[2]:
        place = _position(build, node.input[2], len(tensors), len(tensors) + 1)
    else:
        place = len(tensors)
    return (*tensors[:place], node.input[1], *tensors[place:])


def _erase(sequences: Sequences, build: Builder, node: NodeProto) -> Iterable[str]:
    tensors = sequences.tensors(node)
    if not tensors:
        raise InvalidModel("nothing is in the sequence that it takes a tensor from")
    if len(node.input) > 1 and node.input[1]:
        place = _position(build, node.input[1], len(tensors), len(tensors))
    else:
        place = len(tensors) - 1
    return (*tensors[:place], *tensors[place + 1 :])


def _split(sequences: Sequences, build: Builder, node: NodeProto) -> Iterable[str]:
    x, sizes = [*node.input, ""][:2]
    told = options(node)
    shape = build.shape(x)
    if not shape or not -len(shape) <= (axis := int(told.get("axis", 0))) < len(shape):
        raise InvalidModel(f"axis {told.get('axis', 0)} of shape {[*shape]}")
    axis, extent = axis % len(shape), shape[axis]
    if not sizes:
        parts = [1] * min(extent, MAX_TENSORS + 1)
    elif (value := build.known(sizes)) is None:
        raise UnsupportedModel("its sizes are computed; lfopt reads constant ones")
    elif value.ndim:
        parts = [int(size) for size in value.reshape(-1)[: MAX_TENSORS + 1]]
    else:
        each = max(int(value), 1)
        parts = [min(each, extent - first) for first in range(0, extent, each)[: MAX_TENSORS + 1]]
    if len(parts) > MAX_TENSORS:
        raise UnsupportedModel(f"a sequence of more than {MAX_TENSORS} tensors; lfopt reads fewer")
    if min(parts, default=0) < 0 or sum(parts) != extent:
        raise InvalidModel(f"parts of {parts[:8]} of an axis of {extent}")
    if not parts:
        return []
    if len(parts) == 1:
        slices = [x]
    else:
        slices = build.results("Split", x, np.array(parts, np.int64), outputs=[""] * len(parts), axis=axis)
    if sizes or told.get("keepdims", 1):
        return slices
    return [build.squeeze(name, axis) for name in slices]


def _concat(sequences: Sequences, build: Builder, node: NodeProto) -> str:
    tensors = [*sequences.tensors(node)]
    told = options(node)
    if not tensors:
        raise InvalidModel("nothing is in the sequence that it concatenates")
    axis = int(told["axis"])
    if not told.get("new_axis", 0):
        return build.concat(tensors, axis)
    rank = len(build.shape(tensors[0])) + 1
    if not -rank <= axis < rank:
        raise InvalidModel(f"axis {axis} of a result of rank {rank}")
    return build.concat([build.unsqueeze(name, axis % rank) for name in tensors], axis % rank)


def _at(sequences: Sequences, build: Builder, node: NodeProto) -> str:
    tensors = sequences.tensors(node)
    return tensors[_position(build, node.input[1], len(tensors), len(tensors))]


MAKERS: dict[str, Callable[[Sequences, Builder, NodeProto], Iterable[str]]] = {  # -> tensors of the sequence
    "SequenceConstruct": lambda sequences, build, node: node.input,
    "SequenceEmpty": lambda sequences, build, node: (),
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SplitToSequence": _split,
}
TAKERS: dict[str, Callable[[Sequences, Builder, NodeProto], str]] = {  # -> a tensor
    "ConcatFromSequence": _concat,
    "SequenceAt": _at,
    "SequenceLength": lambda sequences, build, node: build.constant(
        np.array(len(sequences.tensors(node)), np.int64)
    ),
}
