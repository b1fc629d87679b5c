"""A network as data: operators in topological order over named tensors of static shape."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from lfopt.ir.errors import InvalidGraph
from lfopt.ir.names import is_plain, plural
from lfopt.ir.quantization import Quantization
from lfopt.ir.tensor import Tensor

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | np.ndarray


def hashable(value: Attribute) -> Hashable:
    """An attribute as a key: equal for equal types and values."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    return value


SHOWN = 4  # inputs and outputs in a line


class Origin(NamedTuple):
    """Where an operator is from, by the exporter of the network; empty where it does not say."""

    scope: str = ""  # module of the network, e.g. "layer1.0.conv1"
    source: str = ""  # file and line, e.g. "resnet.py:92"


UNKNOWN = Origin()


class FileOperator(NamedTuple):
    """An operator of the file that a network was loaded from.

    One in the body of another stands for that one: it has its kind and its outputs, and no inputs.
    """

    kind: str  # ONNX operator type
    inputs: tuple[str, ...]  # tensors, each once
    outputs: tuple[str, ...]  # tensors, each once
    inside: str = ""  # name of the operator that it is in the body of
    loaded: bool = False  # whether it is none of the file, and was made of one as that was loaded


@dataclass(frozen=True, slots=True)
class Operator:
    """One node of the network."""

    name: str  # unique in the graph
    kind: str  # ONNX operator type, e.g. "Conv"
    inputs: tuple[str, ...]  # tensor names in ONNX order; "" is an absent optional input
    outputs: tuple[str, ...]  # tensor names; "" is an output that is omitted
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute], hash=False)
    domain: str = ""  # ONNX domain; "" is the standard one
    origin: Origin = UNKNOWN


@dataclass(frozen=True, repr=False)
class Graph:
    """Operators in topological order.

    Every tensor has a static shape; a constant whose values are not at hand maps to None.

    Names are plain (`lfopt.ir.names`); `labels` alone are as callers have them. Raises InvalidGraph for what
    is none.
    """

    name: str
    operators: tuple[Operator, ...]
    tensors: Mapping[str, Tensor]  # by name: inputs, constants and everything that an operator makes
    # by tensor name; None: the shape is known, the values are absent
    constants: Mapping[str, np.ndarray | None]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int  # version of the standard ONNX domain that `attributes` follow
    notes: tuple[str, ...] = ()  # what the user should know of how the graph was read, one line each
    # what callers call inputs and outputs, if not by their names
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    # quantised inputs and outputs that callers give and get as integers; the others as real numbers
    integer_ends: frozenset[str] = frozenset()
    # operators by name of the file that it was loaded from, those that are gone as well; where `save` wrote
    # that file, those of the file before it come first
    files: tuple[Mapping[str, FileOperator], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in (
            self.name,
            *self.tensors,
            *(text for op in self.operators for text in (op.name, op.kind, op.domain, *op.origin)),
        ):
            if not is_plain(name):
                raise InvalidGraph(f"name {name!r}: accepted: plain names (lfopt.ir.names)")
        known = set(self.inputs) | set(self.constants)
        if missing := [name for name in known if name not in self.tensors]:
            raise InvalidGraph(f"tensor {missing[0]!r}: no shape is known")
        names: set[str] = set()
        for op in self.operators:
            if op.name in names:
                raise InvalidGraph(f"node {op.name!r}: another node has the same name")
            names.add(op.name)
            for tensor in op.inputs:
                if tensor and tensor not in known:
                    raise InvalidGraph(
                        f"node {op.name!r}: reads {tensor!r}, "
                        "which nothing before it makes (a cycle, or nodes out of order)"
                    )
            for tensor in op.outputs:
                if not tensor:
                    continue
                if tensor in known:
                    raise InvalidGraph(f"node {op.name!r}: makes {tensor!r}, which exists already")
                if tensor not in self.tensors:
                    raise InvalidGraph(f"node {op.name!r}: the shape of its output {tensor!r} is not known")
                known.add(tensor)
        for tensor in self.outputs:
            if tensor not in known:
                raise InvalidGraph(f"graph output {tensor!r}: nothing makes it")

    def __repr__(self) -> str:
        weights = sum(self.tensors[name].elements for name in self.constants)
        ends = [
            ", ".join(f"{self.label(n)} {list(self.shape(n))}" for n in of[:SHOWN])
            + ", ..." * (len(of) > SHOWN)
            for of in (self.inputs, self.outputs)
        ]
        return (
            f"Graph({self.name}: {plural(len(self.operators), 'operator')}, {plural(weights, 'weight')}; "
            f"{ends[0] or 'nothing'} -> {ends[1]})"
        )

    @property
    def has_values(self) -> bool:
        """Whether the values of every constant are at hand."""
        return all(value is not None for value in self.constants.values())

    @property
    def quantized(self) -> bool:
        """Whether the integers of some feature map stand for real numbers."""
        return any(
            tensor.quantization is not None
            for name, tensor in self.tensors.items()
            if name not in self.constants
        )

    def without_unused(self) -> Graph:
        """The graph without tensors and constants that nothing reads."""
        used = (
            {name for op in self.operators for name in (*op.inputs, *op.outputs)}
            | set(self.inputs)
            | set(self.outputs)
        )
        return replace(
            self,
            tensors={name: tensor for name, tensor in self.tensors.items() if name in used},
            constants={name: value for name, value in self.constants.items() if name in used},
        )

    def held(self, end: str) -> Quantization | None:
        """How integers stand for the real numbers of an input or output; None where callers have it as it is.

        Callers then have float32.
        """
        if end in self.integer_ends:
            return None
        return self.tensors[end].quantization

    def end_type(self, end: str) -> str:
        """NumPy's name of the element type in which callers have an input or output."""
        if self.held(end) is None:
            return self.tensors[end].dtype
        return "float32"

    def label(self, tensor: str) -> str:
        """What callers call an input or output."""
        return self.labels.get(tensor, tensor)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Shape of the tensor of that name."""
        return self.tensors[tensor].shape
