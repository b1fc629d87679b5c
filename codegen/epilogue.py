"""Elementwise operators as C expressions on vectors: what is done to a result before it is stored.

A *fused kernel* is an operator, its *anchor*, with the elementwise operators that follow it, its *epilogue*:
only the last result is stored. The expressions of the epilogue are evaluated on every vector of the anchor's
result, while that is in registers. In expressions, `@` stands for the number of lanes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from codegen.blob import Blob
from codegen.elements import Element
from codegen.layout import Image, MapLayout, tensor_of
from codegen.source import Unsupported
from lfopt.ops import Call, Dataflow
from lfopt.ops.parameters import permutation

# What an operand has: a value for every element, for every channel, for every pixel, one; or channels that so
# many pixels in a row have in common.
Reach = Literal["element", "channel", "pixel", "row", "one"]


@dataclass(frozen=True, slots=True)
class EpilogueOperand:
    """An operand of an epilogue that is not made in it."""

    name: str  # of a C variable: its address
    reach: Reach
    map: int  # index into Dataflow.maps; -1: a constant
    values: bytes = b""  # of a constant: its floats
    every: int = 1  # pixels that read the same channels, of a row
    # elements from one pixel to the next, where those of others lie between; 0: as many as there are channels
    pitch: int = 0

    def place(self, blob: Blob) -> str:
        """C expression: address of the constant."""
        return blob.add(np.frombuffer(self.values, np.float32))

    def vector(self, address: str, stored: Element) -> str:
        """C expression for the vector at an address."""
        if self.reach in ("one", "pixel"):
            return f"SPLAT_@({stored.read(f'*({address})')})"
        return stored.load("@", address)

    def offset(self, pixel: int | str, channel: int | str, channels: int) -> str:
        """C expression: floats from the operand's first to those of a pixel and a channel.

        Raises Unsupported.
        """
        if self.reach == "row" and isinstance(pixel, int):
            if pixel % self.every:
                raise Unsupported(f"an operand that is the same for {self.every} pixels, in a tile of others")
            return f"{pixel // self.every * channels} + {channel}"
        return {
            "element": f"({pixel}) * {self.pitch or channels} + {channel}",
            "channel": f"{channel}",
            "pixel": f"{pixel}",
            "row": f"({pixel}) / {self.every} * {channels} + {channel}",
            "one": "0",
        }[self.reach]


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Statements that turn a vector of the anchor's result into one of the fused kernel's."""

    operators: tuple[int, ...]
    lines: tuple[tuple[str, str], ...]  # (C variable, expression), in order; `x` is the anchor's result
    extras: tuple[EpilogueOperand, ...]

    def apply(self, value: str, lanes: int, vector: Callable[[EpilogueOperand], str]) -> list[str]:
        """C statements that apply the epilogue to the vector in variable `value`.

        `vector`: C expression of its part of an operand.
        """
        if not self.lines:
            return []
        statements = [f"v@ x = {value};", *(f"v@ {extra.name}v = {vector(extra)};" for extra in self.extras)]
        statements += [f"v@ {name} = {expression};" for name, expression in self.lines]
        return [
            line.replace("@", str(lanes))
            for line in (
                "{",
                *(f"    {line}" for line in statements),
                f"    {value} = {self.lines[-1][0]};",
                "}",
            )
        ]


# -- operators -----------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A constant of type float in C.

    >>> number(0.1), number(6), number(-np.inf)
    ('0.1f', '6.0f', '-INFINITY')
    """
    if np.isinf(value):
        if value > 0:
            return "INFINITY"
        return "-INFINITY"
    return f"{np.float32(value)!s}f"


def _splat(value: float) -> str:
    return f"SPLAT_@({number(value)})"


def _scalar(call: Call, index: int, default: float) -> float:
    if not call.has(index):
        return default
    value = call.values[index]
    if value is None:
        raise Unsupported(
            f"node {call.operator.name!r} ({call.operator.kind}): input {index}: found one that is computed; "
            "accepted: a constant"
        )
    return float(value.reshape(-1)[0])


def _clip(call: Call, x: str) -> str:
    low = _scalar(call, 1, -np.inf)
    high = _scalar(call, 2, np.inf)
    raised = f"max_@({x}, {_splat(low)})" if low > -np.inf else x
    if high < np.inf:
        return f"min_@({raised}, {_splat(high)})"
    return raised


def _hard_sigmoid(x: str, alpha: float, beta: float) -> str:
    return f"max_@(min_@({x} * {_splat(alpha)} + {_splat(beta)}, {_splat(1)}), {_splat(0)})"


def _leaky(x: str, slope: str) -> str:
    return f"SELECT_@({x} < {_splat(0)}, {x} * {slope}, {x})"


def _swish(call: Call, x: str) -> str:
    alpha = call.attribute("alpha", 1.0)
    if alpha == 1:
        return f"swish_@({x})"
    return f"{x} * sigmoid_@({x} * {_splat(alpha)})"


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
    "HardSigmoid": lambda call, x: _hard_sigmoid(
        x, call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    ),
    "HardSwish": lambda _, x: f"hard_swish_@({x})",
    "Swish": _swish,
    "Softplus": lambda _, x: f"softplus_@({x})",
    "Mish": lambda _, x: f"mish_@({x})",
    "LeakyRelu": lambda call, x: _leaky(x, _splat(call.attribute("alpha", 0.01))),
    "Gelu": lambda call, x: (
        f"gelu_tanh_@({x})" if call.attribute("approximate", "none") == "tanh" else f"gelu_@({x})"
    ),
    "Sqrt": lambda _, x: f"sqrt_@({x})",
    "IsNaN": lambda _, x: f"SELECT_@({x} == {x}, {_splat(0)}, {_splat(1)})",
    "Not": lambda _, x: f"{_splat(1)} - {x}",
    "Transpose": lambda _, x: x,
}
BINARY: dict[str, Callable[[str, str], str]] = {
    "Add": lambda a, b: f"{a} + {b}",
    "Sub": lambda a, b: f"{a} - {b}",
    "Mul": lambda a, b: f"{a} * {b}",
    "Div": lambda a, b: f"{a} / {b}",
    "Max": lambda a, b: f"most_@({a}, {b})",
    "Min": lambda a, b: f"least_@({a}, {b})",
    "PRelu": _leaky,
}


POWERS: dict[float, Callable[[str], str]] = {
    1.0: lambda x: x,
    2.0: lambda x: f"{x} * {x}",
    3.0: lambda x: f"{x} * {x} * {x}",
    0.5: lambda x: f"sqrt_@({x})",
    -0.5: lambda x: f"{_splat(1)} / sqrt_@({x})",
    -1.0: lambda x: f"{_splat(1)} / {x}",
}


def arity(call: Call) -> int:
    """Operands that an operator's expression has; 0: there is none, and it can be no part of an epilogue."""
    kind = call.operator.kind
    if kind in UNARY or (kind == "Pow" and _exponent(call) in POWERS):
        return 1
    if kind in BINARY and len(call.operator.inputs) == 2:
        return 2
    if kind == "Where":
        return 3
    return 0


def _exponent(call: Call) -> float:
    value = call.values[1]
    if value is not None and value.size == 1:
        return float(value.reshape(-1)[0])
    return np.nan


def expression(call: Call, terms: Sequence[str]) -> str:
    """C expression: the result of an elementwise operator, of `terms` for its operands."""
    kind = call.operator.kind
    if kind == "Pow":
        return POWERS[_exponent(call)](terms[0])
    if kind == "Where":
        return f"SELECT_@({terms[0]} == {_splat(0)}, {terms[2]}, {terms[1]})"
    if kind in UNARY:
        return UNARY[kind](call, terms[0])
    return BINARY[kind](*terms)


def epilogue(
    flow: Dataflow,
    layouts: Sequence[MapLayout],
    operators: Sequence[int],
    start: int,
    frame: MapLayout,
    *,
    whole: bool,
) -> Epilogue:
    """The epilogue of elementwise operators on map `start`, whose elements lie as `frame` says.

    `layouts`: of all maps; `whole`: on whole maps, not row by row. Truth values are 1 and 0 on the way.
    Raises Unsupported for operands that do not follow the result as a Reach says.
    """
    known = {start: "x"}
    lines: list[tuple[str, str]] = []
    sigmoids: dict[str, str] = {}  # results of Sigmoid -> their operands
    extras: dict[str, EpilogueOperand] = {}
    for i in operators:
        call = flow.calls[i]
        maps = {o.input: o.map for o in flow.operands[i]}
        terms: list[str] = []
        for index in range(arity(call)):
            m = maps.get(index, -1)
            if m in known and in_step(call, index, layouts[m], layouts[flow.results[i][0]]):
                terms.append(known[m])
                continue
            extra = _extra(flow, layouts, i, index, m, frame, f"q{len(extras)}")
            if (
                not whole
                and m >= 0
                and extra.reach not in ("channel", "one")
                and layouts[m].image.rows != frame.image.rows
            ):
                raise Unsupported(
                    f"node {call.operator.name!r} ({call.operator.kind}), input {index}: found a map of "
                    "other rows; accepted: as many"
                )
            same = next((e for e in extras.values() if replace(e, name=extra.name) == extra), extra)
            extras[same.name] = same
            terms.append(f"{same.name}v")
        variable = known[flow.results[i][0]] = f"y{len(lines)}"
        if call.operator.kind == "Sigmoid":
            sigmoids[variable] = terms[0]
        if call.operator.kind == "Mul":
            of = [a for a, b in (terms, terms[::-1]) if sigmoids.get(b) == a]
        else:
            of = []
        lines.append((variable, f"swish_@({of[0]})" if of else expression(call, terms)))
    return Epilogue(tuple(operators), _needed(lines), tuple(extras.values()))


def _needed(lines: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The last line, and those whose results it is made from."""
    needed = [lines[-1]] if lines else []
    for name, expression in reversed(lines[:-1]):
        if any(re.search(rf"\b{name}\b", later) for _, later in needed):
            needed.insert(0, (name, expression))
    return tuple(needed)


def in_step(call: Call, index: int, read: MapLayout, written: MapLayout) -> bool:
    """Whether every element of an elementwise operator's result lies where the one it is made from lies."""
    seen = read.seen(tensor_of(call, index))
    if seen is None:
        return False
    axes = permutation(call) if call.operator.kind == "Transpose" else range(len(seen.shape))
    strides = seen.packed.strides
    axes_read = [(seen.shape[axis], strides[axis]) for axis in axes]
    return len(axes_read) == len(written.shape) and all(
        a == b and (a == 1 or by == step)
        for (a, by), b, step in zip(axes_read, written.shape, written.packed.strides, strict=True)
    )


def _extra(
    flow: Dataflow, layouts: Sequence[MapLayout], i: int, index: int, m: int, frame: MapLayout, name: str
) -> EpilogueOperand:
    call = flow.calls[i]
    written = layouts[flow.results[i][0]]
    named = f"node {call.operator.name!r} ({call.operator.kind}), input {index}"
    tensor = tensor_of(call, index)
    values = call.values[index]
    missing = len(written.shape) - len(tensor.shape)
    full = (1,) * missing + tensor.shape
    if tensor.dtype != "float32" or call.operator.kind == "Transpose":
        raise Unsupported(
            f"{named}: found {tensor.dtype} {list(tensor.shape)}, not made on the way; accepted: float32"
        )
    packed: np.ndarray | None = None
    if m >= 0:
        seen = layouts[m].seen(tensor)
        if seen is None:
            raise Unsupported(
                f"{named}: found a view that mixes the axes of {list(layouts[m].shape)}; accepted: views "
                "that keep them apart"
            )
        steps = [0] * missing + [*seen.strides]
    elif values is None:
        raise Unsupported(f"{named}: the model has no values for this constant")
    else:
        packed = values.reshape(full).transpose(written.order)
        steps = [*MapLayout(replace(tensor, shape=full), written.order).strides]
    try:
        reach, every, pitch = _reach(
            [(written.shape[axis], 0 if full[axis] == 1 else steps[axis]) for axis in written.order],
            frame.packed.whole,
        )
    except ValueError:
        wanted = "the same, or one value a channel, a pixel or in all"
        raise Unsupported(
            f"{named}: found shape {list(tensor.shape)} for a result of {list(written.shape)}; accepted: "
            f"{wanted}"
        ) from None
    return EpilogueOperand(
        name,
        reach,
        m,
        b"" if packed is None else np.ascontiguousarray(packed, np.float32).tobytes(),
        every,
        pitch,
    )


def _reach(axes: Sequence[tuple[int, int]], image: Image) -> tuple[Reach, int, int]:
    """(what an operand has, `every`, `pitch`) of an operand with these axes.

    `axes`: (extent, elements of the operand from one index to the next), outermost first. Raises ValueError.

    >>> _reach([(128, 26), (12, 0), (26, 1)], Image(1, 1536, 26))
    ('row', 12, 0)
    >>> _reach([(128, 1), (312, 0)], Image(1, 128, 312))
    ('pixel', 1, 0)
    """
    outer = list[tuple[int, int]]()
    inner = list[tuple[int, int]]()
    left = image.channels
    for extent, step in reversed(axes):
        inside = min(extent, left)
        if left % inside or extent % inside:
            raise ValueError(axes)
        left //= inside
        inner.insert(0, (inside, step))
        outer.insert(0, (extent // inside, step * inside))
    outer = _merged(outer)
    inner = _merged(inner)
    channels = image.channels
    if inner == [(channels, 1)]:
        if not outer or outer == [(image.pixels, 0)]:
            return "channel", 1, 0
        if len(outer) == 1 and outer[0][0] == image.pixels and outer[0][1] >= channels:
            return "element", 1, 0 if outer[0][1] == channels else outer[0][1]
        if len(outer) == 2 and outer[0][1] == channels and outer[1][1] == 0:
            return "row", outer[1][0], 0
    elif not inner or inner == [(channels, 0)]:
        if not outer or outer == [(image.pixels, 0)]:
            return "one", 1, 0
        if outer == [(image.pixels, 1)]:
            return "element" if channels == 1 else "pixel", 1, 0
    raise ValueError(axes)


def _merged(axes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbours that are one axis to the operand, as one."""
    merged: list[tuple[int, int]] = []
    for extent, step in axes:
        if extent == 1:
            continue
        if merged and merged[-1][1] == extent * step:
            merged[-1] = (merged[-1][0] * extent, step)
        else:
            merged.append((extent, step))
    return merged
