"""Elementwise operators as C expressions on vectors: what is done to a result before it is stored.

A *unit* is an operator with the elementwise operators that follow it: only the last result is stored. The expressions of its tail are evaluated on
every vector of the head's result, while that is in registers. In expressions, `@` stands for the number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codegen.blob import Blob
from codegen.layout import Layout
from codegen.source import Unsupported
from lfopt.ops import Call, Dataflow

Reach = Literal["element", "channel", "one"]  # what an operand has: a value for every element, for every channel, or one


@dataclass(frozen=True, slots=True)
class Extra:
    """An operand of a tail that is not made in it."""

    name: str  # of a C variable: its address
    reach: Reach
    map: int  # index into Dataflow.maps; -1: a constant
    pointer: str  # C expression, of a constant

    def vector(self, address: str) -> str:
        """C expression for the vector at an address."""
        return f"SPLAT_@(*({address}))" if self.reach == "one" else f"*(const u@ *)({address})"


@dataclass(frozen=True, slots=True)
class Tail:
    """Statements that turn a vector of the head's result into one of the unit's."""

    operators: tuple[int, ...]
    lines: tuple[tuple[str, str], ...]  # (C variable, expression), in order; `x` is the head's result
    extras: tuple[Extra, ...]

    def apply(self, value: str, lanes: int, address: Callable[[Extra], str]) -> list[str]:
        """C statements for the vector in variable `value`; `address` says where its part of an operand lies."""
        if not self.lines:
            return []
        found = [f"v@ x = {value};", *(f"v@ {extra.name}v = {extra.vector(address(extra))};" for extra in self.extras)]
        found += [f"v@ {name} = {expression};" for name, expression in self.lines]
        return [line.replace("@", str(lanes)) for line in ("{", *(f"    {line}" for line in found), f"    {value} = {self.lines[-1][0]};", "}")]


# -- operators -------------------------------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A float in C.

    >>> number(0.1), number(6), number(-np.inf)
    ('0.1f', '6.0f', '-INFINITY')
    """
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{np.float32(value)!s}f"


def _splat(value: float) -> str:
    return f"SPLAT_@({number(value)})"


def _scalar(call: Call, index: int, default: float) -> float:
    if not call.has(index):
        return default
    value = call.values[index]
    if value is None:
        raise Unsupported(f"node {call.operator.name!r} ({call.operator.kind}): input {index}: found one that is computed; accepted: a constant")
    return float(value.reshape(-1)[0])


def _clip(call: Call, x: str) -> str:
    low, high = _scalar(call, 1, -np.inf), _scalar(call, 2, np.inf)
    found = f"max_@({x}, {_splat(low)})" if low > -np.inf else x
    return f"min_@({found}, {_splat(high)})" if high < np.inf else found


def _hard_sigmoid(x: str, alpha: float, beta: float) -> str:
    return f"max_@(min_@({x} * {_splat(alpha)} + {_splat(beta)}, {_splat(1)}), {_splat(0)})"


def _leaky(x: str, slope: str) -> str:
    return f"SELECT_@({x} < {_splat(0)}, {x} * {slope}, {x})"


def _gelu(call: Call, x: str) -> str:
    if call.attribute("approximate", "none") == "tanh":
        return f"{_splat(0.5)} * {x} * ({_splat(1)} + tanh_@({_splat(0.7978845608028654)} * ({x} + {_splat(0.044715)} * {x} * {x} * {x})))"
    return f"{_splat(0.5)} * {x} * ({_splat(1)} + erf_@({x} * {_splat(0.7071067811865476)}))"


UNARY: dict[str, Callable[[Call, str], str]] = {
    "Relu": lambda _, x: f"max_@({x}, {_splat(0)})",
    "Clip": _clip,
    "Sigmoid": lambda _, x: f"sigmoid_@({x})",
    "Tanh": lambda _, x: f"tanh_@({x})",
    "Exp": lambda _, x: f"exp_@({x})",
    "Erf": lambda _, x: f"erf_@({x})",
    "Abs": lambda _, x: f"abs_@({x})",
    "Neg": lambda _, x: f"-{x}",
    "Reciprocal": lambda _, x: f"{_splat(1)} / {x}",
    "HardSigmoid": lambda call, x: _hard_sigmoid(x, call.attribute("alpha", 0.2), call.attribute("beta", 0.5)),
    "HardSwish": lambda _, x: f"{x} * {_hard_sigmoid(x, 1 / 6, 0.5)}",
    "Swish": lambda call, x: f"{x} * sigmoid_@({x} * {_splat(call.attribute('alpha', 1.0))})",
    "LeakyRelu": lambda call, x: _leaky(x, _splat(call.attribute("alpha", 0.01))),
    "Gelu": _gelu,
}
BINARY: dict[str, Callable[[str, str], str]] = {
    "Add": lambda a, b: f"{a} + {b}",
    "Sub": lambda a, b: f"{a} - {b}",
    "Mul": lambda a, b: f"{a} * {b}",
    "Div": lambda a, b: f"{a} / {b}",
    "Max": lambda a, b: f"max_@({a}, {b})",
    "Min": lambda a, b: f"min_@({a}, {b})",
    "PRelu": _leaky,
}


def is_elementwise(flow: Dataflow, i: int) -> bool:
    """Whether an operator can be part of a tail."""
    operator = flow.operators[i]
    return operator.kind in UNARY or (operator.kind in BINARY and len(operator.inputs) == 2)


def tail(flow: Dataflow, lie: Sequence[Layout], operators: Sequence[int], start: int, blob: Blob) -> Tail:
    """The tail of elementwise operators on map `start`; `lie`: the layouts of all maps.

    Raises Unsupported for operands that do not follow the result as a Reach says.
    """
    known = {start: "x"}
    lines: list[tuple[str, str]] = []
    extras: dict[str, Extra] = {}
    for i in operators:
        call = flow.calls[i]
        maps = {o.input: o.map for o in flow.operands[i]}
        terms: list[str] = []
        for index in range(1 if call.operator.kind in UNARY else 2):
            m = maps.get(index, -1)
            if m in known:
                terms.append(known[m])
                continue
            extra = _extra(flow, lie, i, index, m, len(extras), blob)
            same = next((e for e in extras.values() if (e.reach, e.map, e.pointer) == (extra.reach, extra.map, extra.pointer)), extra)
            extras[same.name] = same
            terms.append(f"{same.name}v")
        unary = UNARY.get(call.operator.kind)
        expression = unary(call, terms[0]) if unary else BINARY[call.operator.kind](*terms)
        known[flow.results[i][0]] = f"y{len(lines)}"
        lines.append((f"y{len(lines)}", expression))
    return Tail(tuple(operators), tuple(lines), tuple(extras.values()))


def _extra(flow: Dataflow, lie: Sequence[Layout], i: int, index: int, m: int, number_: int, blob: Blob) -> Extra:
    call, name = flow.calls[i], f"q{number_}"
    made, shape, mine = call.result, call.shape(index), lie[flow.results[i][0]]
    named = f"node {call.operator.name!r} ({call.operator.kind}), input {index}"
    if m >= 0:
        other = lie[m]
        if shape == made and other.sequence == mine.sequence and other.image == mine.image:
            return Extra(name, "element", m, "")
        if other.image.elements == 1:
            return Extra(name, "one", m, "")
        if other.image == (1, 1, mine.image.channels) and _per_channel(shape, mine):
            return Extra(name, "channel", m, "")
        raise Unsupported(f"{named}: found shape {list(shape)} for a result of {list(made)}; accepted: the same, or one value a channel")
    values = call.values[index]
    if values is None:
        raise Unsupported(f"{named}: the model has no values for this constant")
    if values.size == 1:
        return Extra(name, "one", -1, blob.add(values))
    if _per_channel(shape, mine):
        return Extra(name, "channel", -1, blob.add(values))
    raise Unsupported(f"{named}: found a constant of {list(shape)} for a result of {list(made)}; accepted: one value, or one a channel")


def _per_channel(shape: tuple[int, ...], made: Layout) -> bool:
    """Whether an operand has one value for every channel of the result."""
    full = (1,) * (len(made.shape) - len(shape)) + shape
    return bool(made.order) and all(extent == (made.shape[axis] if axis == made.order[-1] else 1) for axis, extent in enumerate(full))
