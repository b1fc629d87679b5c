"""An operator together with the shapes and constant values that it is applied to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, update_wrapper
from typing import TypeVar

import numpy as np

from lfopt.ir import Attribute, Graph, Operator, Tensor, row_axis, row_count, too_tall
from lfopt.ir.tensor import passing_rows

Shape = tuple[int, ...]
T = TypeVar("T", bound=Attribute)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call:
    """What the rules of the operator table see of an operator.

    Elementwise operators may follow it in flight: each element of its result goes through them at once, and
    only the last result is kept. Inputs are then numbered on through them: first the operator's own, then
    those of each that follows.
    """

    operator: Operator
    shapes: tuple[Shape | None, ...]  # of the inputs; None where an optional input is absent
    values: tuple[np.ndarray | None, ...]  # of the inputs; None unless constant and at hand
    constant: tuple[bool, ...]  # which inputs are constants
    results: tuple[Shape, ...]  # shapes of the outputs that are requested
    # of the inputs, with element type and quantization; None where an optional input is absent
    tensors: tuple[Tensor | None, ...]
    result_tensors: tuple[Tensor, ...]  # of the outputs that are requested
    then: tuple[Call, ...] = ()  # what follows in flight, in order
    attention: Compound | None = None  # the operators that it stands for, where they are attention
    # whether a map that it reads or makes has too many rows to pass row by row
    too_tall: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        tall = any(too_tall(shape) for shape in (*self.shapes, *self.results) if shape is not None)
        object.__setattr__(self, "too_tall", tall)

    @classmethod
    def of(cls, graph: Graph, operator: Operator) -> Call:
        """The operator as it stands in the graph."""
        return cls.over(operator, graph.tensors.__getitem__, graph.constants)

    @classmethod
    def over(
        cls, operator: Operator, tensor: Callable[[str], Tensor], constants: Mapping[str, np.ndarray | None]
    ) -> Call:
        """The operator over tensors by name; constants: values, shaped as their tensors; None: absent."""
        inputs = tuple(tensor(name) if name else None for name in operator.inputs)
        results = tuple(tensor(name) for name in operator.outputs if name)
        return cls(
            operator,
            tuple(None if operand is None else operand.shape for operand in inputs),
            tuple(constants.get(name) for name in operator.inputs),
            tuple(name in constants for name in operator.inputs),
            tuple(operand.shape for operand in results),
            inputs,
            results,
        )

    @property
    def flight(self) -> tuple[Call, ...]:
        """The operator, and what follows it in flight."""
        return (self, *self.then)

    @property
    def parts(self) -> tuple[Call, ...]:
        """The operators of the network: those that it stands for, and what follows in flight."""
        if self.attention is None:
            return self.flight
        return (*self.attention.parts, *self.then)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of all inputs, of what follows in flight too; "" is one that is absent, or made in flight."""
        if not self.then:
            return self.operator.inputs
        flying = {name for part in (self, *self.then[:-1]) for name in part.operator.outputs}
        return tuple("" if name in flying else name for part in self.flight for name in part.operator.inputs)

    def part_of(self, index: int) -> tuple[Call, int]:
        """The operator in flight that an input belongs to, and the index of the input among its own.

        Raises IndexError where there is no such input.
        """
        for part in self.flight:
            if index < len(part.operator.inputs):
                return part, index
            index -= len(part.operator.inputs)
        raise IndexError(f"{self.operator.name}: there is no input {index}")

    def attribute(self, name: str, default: T) -> T:
        """Value of an attribute, or its default."""
        return self.operator.attributes.get(name, default)  # type: ignore[return-value]

    def shape(self, index: int) -> Shape:
        """Shape of an input that is present."""
        if index >= len(self.shapes) and self.then:
            part, index = self.part_of(index)
            return part.shape(index)
        shape = self.shapes[index]
        assert shape is not None, f"{self.operator.name}: input {index} is absent"
        return shape

    def has(self, index: int) -> bool:
        """Whether that optional input is present."""
        return index < len(self.shapes) and self.shapes[index] is not None

    def ints(self, index: int, attribute: str | None = None) -> tuple[int, ...] | None:
        """Integers of a constant input, else of an attribute; None if there is neither, or no values."""
        if self.has(index):
            value = self.values[index]
            if value is None:
                return None
            return tuple(int(x) for x in value.reshape(-1))
        stored = self.operator.attributes.get(attribute) if attribute else None
        return tuple(int(x) for x in stored) if isinstance(stored, tuple) else None  # type: ignore[arg-type]

    @property
    def result(self) -> Shape:
        """Shape of the first output."""
        return self.results[0]

    @property
    def rows_out(self) -> int:
        """Rows in which the operator advances: all outputs together, as many as the tallest has.

        One where they are too many to pass row by row.
        """
        if any(map(too_tall, self.results)):
            return 1
        return max(map(row_count, self.results))

    def rows_in(self, index: int) -> int:
        """Rows of an input; one where they are too many to pass row by row."""
        return passing_rows(self.shape(index))

    @property
    def row_axis_out(self) -> int | None:
        """Row axis of the first output."""
        return row_axis(self.result)


@dataclass(frozen=True, eq=False)
class Compound:
    """Operators of the network that one operator stands for."""

    parts: tuple[Call, ...]  # in topological order


class _Same:
    """A call as a key: calls are told apart by identity, because they hold arrays."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def __hash__(self) -> int:
        return id(self.call)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.call is other.call


def once_per_call(find: Callable[[Call], R]) -> Callable[[Call], R]:
    """Remember what is found of a call: schedules compute a row at a time."""
    cached = lru_cache(maxsize=1024)(lambda key: find(key.call))
    return update_wrapper(lambda call: cached(_Same(call)), find)
