"""Operators that compute every element from the elements at the same place, on any type."""

from __future__ import annotations

from collections.abc import Callable

from codegen.loops.nest import Nest

BINARY: dict[str, str] = {"Add": "+", "Sub": "-", "Mul": "*"}


def binary(nest: Nest) -> None:
    """The loops of an operator on two broadcast operands."""
    a, b, y = nest.operand(0), nest.operand(1), nest.results[0]
    with nest.elements() as at:
        left, right = (x.at(x.broadcast(at, y.shape)) for x in (a, b))
        nest.out(f"{y.at(at)} = ({y.ctype})({left} {BINARY[nest.call.operator.kind]} {right});")


LOOPS: dict[str, Callable[[Nest], None]] = dict.fromkeys(BINARY, binary)
