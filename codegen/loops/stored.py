"""C expressions of stored integers: less their zero points, scaled, looked up in tables, and stored again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from codegen.layout import tensor_of
from codegen.loops.nest import Nest
from lfopt.ops.fixed_point import Multipliers, limits
from lfopt.ops.stored import quantization, zero_of

Element = Callable[[Sequence[str]], str]  # index -> C expression


def entry(nest: Nest, values: np.ndarray, at: Sequence[str]) -> str:
    """C expression: the entry of a constant that meets the element at an index.

    `values`: of any shape that broadcasts to the result. A number where all entries are equal.
    """
    if values.size and (values == values.flat[0]).all():
        return str(values.flat[0])
    near = at[len(at) - values.ndim :]
    index = [i if n > 1 else "0" for i, n in zip(near, values.shape, strict=True)]
    return f"{nest.constant(values)}[{flat(index, values.shape)}]"


def flat(at: Sequence[str], shape: Sequence[int]) -> str:
    """C expression: the place of an element in an array of a shape; an index of '0' adds nothing."""
    steps = [prod(shape[k + 1 :]) for k in range(len(shape))]
    return (
        " + ".join(
            f"({i}) * {step}" if step > 1 else f"({i})" for i, step in zip(at, steps, strict=True) if i != "0"
        )
        or "0"
    )


def less(value: str, zero: int) -> str:
    """A stored integer less its zero point."""
    if zero > 0:
        return f"({value} - {zero})"
    if zero < 0:
        return f"({value} + {-zero})"
    return value


def centred(nest: Nest, index: int, order: Sequence[int] | None = None) -> Element:
    """Elements of an operand less their zero points.

    `order`: of the axes, in which a constant is packed.
    """
    value = nest.call.values[index]
    parameters = quantization(tensor_of(nest.call, index))
    if value is None:
        array = nest.operand(index)
        return lambda at: less(array.at(at), parameters.zero_point[0])
    axes = [*range(value.ndim)] if order is None else [*order]
    zeros = np.reshape(
        parameters.zero_point,
        ()
        if parameters.axis is None
        else tuple(-1 if axis == parameters.axis else 1 for axis in range(value.ndim)),
    )
    if index in nest.maps:  # in the buffer
        held = nest.operand(index)
        return lambda at: f"({held.at(at)} - ({entry(nest, zeros, at)}))"
    laid = (value.astype(np.int16) - zeros.astype(np.int16)).transpose(axes)
    laid = laid.astype(np.int8) if laid.size == 0 or (laid.min() >= -128 and laid.max() <= 127) else laid
    pointer = nest.constant(laid)
    return lambda at: f"{pointer}[{flat([at[k] if value.shape[k] > 1 else '0' for k in axes], laid.shape)}]"


def store(nest: Nest, at: Sequence[str], value: str) -> None:
    """An integer, less the zero point of the result, that may be beyond its range."""
    result = nest.call.result_tensors[0]
    least, most = limits(result.dtype)
    y = nest.results[0]
    nest.out(f"{y.at(at)} = ({y.ctype})clamped({value} + ({zero_of(result)}), {least}, {most});")


def scaled(
    nest: Nest, at: Sequence[str], value: str, factors: Multipliers, function: str = "rescaled"
) -> str:
    """C expression: an int32 sum, scaled by factors that broadcast against the result.

    `function`: of integer.h, that scales.
    """
    return (
        f"{function}({value}, {entry(nest, factors.multiplier.astype(np.int32), at)}, "
        f"{entry(nest, factors.shift.astype(np.uint8), at)})"
    )


def looked_up(nest: Nest, values: np.ndarray, byte: str) -> str:
    """C expression: the entry of a table, `values`: (256,), for a byte."""
    return f"{nest.constant(values)}[(uint8_t){byte}]"


def met(nest: Nest, index: int, at: Sequence[str]) -> str:
    """The element of a broadcast operand that meets the result's, less its zero point."""
    x = nest.operand(index)
    return less(x.at(x.broadcast(at, nest.call.result)), zero_of(tensor_of(nest.call, index)))
