"""Loops where stored integers become real numbers: the bits of the reference.

DequantizeLinear, and what is computed in float64 and quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from codegen.layout import CTYPES, tensor_of
from codegen.loops.nest import Array, Loops, Nest
from codegen.loops.stored import entry, less, met
from lfopt.ir import Tensor
from lfopt.ops.fixed_point import BYTES, limits
from lfopt.ops.interpolation import AxisTaps
from lfopt.ops.resizing import axis_taps
from lfopt.ops.stored import quantization

REALS = ("float32", "float64")
MOST_ADDED = 4096  # doubles on the stack


def by_floats(nest: Nest) -> None:
    """The loops of an operator that is computed in float64.

    Raises Unsupported for one that is not the same everywhere.
    """
    kind = nest.call.operator.kind
    if kind not in FLOATS:
        raise nest.unsupported(
            "a quantised map that is computed in float64, where the last bit depends on the order of a sum "
            "or on the library of functions",
            f"of such operators {', '.join(sorted(FLOATS))}",
        )
    FLOATS[kind](nest)


def _store_real(nest: Nest, at: Sequence[str], value: str, real: str = "float64") -> None:
    """A real number, rounded to the nearest step."""
    result = nest.call.result_tensors[0]
    parameters = quantization(result)
    if parameters.axis is None:
        shape = ()
    else:
        shape = tuple(-1 if axis == parameters.axis else 1 for axis in range(len(result.shape)))
    scale, zero = (
        _number(nest, np.reshape(v, shape), at, t)
        for v, t in ((parameters.scale, real), (parameters.zero_point, "int32"))
    )
    least, most = limits(result.dtype)
    y = nest.results[0]
    nearest = "rintf" if real == "float32" else "rint"
    nest.out(
        f"{y.at(at)} = ({y.ctype})clamped((int64_t)steps((double){nearest}({value} / {scale})) + ({zero}), "
        f"{least}, {most});"
    )


def _number(nest: Nest, values: np.ndarray, at: Sequence[str], dtype: str) -> str:
    """C expression: `entry` of values cast to a dtype."""
    constant = entry(nest, values.astype(dtype), at)
    if dtype == "float32" and "[" not in constant:
        return f"{constant}f"
    return constant


def _quantize(nest: Nest) -> None:
    x = nest.operand(0)
    if nest.call.tensors[0] is None or nest.call.tensors[0].quantization is not None or x.dtype not in REALS:
        raise nest.unsupported(f"an operand of {x.dtype}", ", ".join(REALS))
    result = nest.call.result_tensors[0]
    if x.dtype == "float32" and np.dtype(result.dtype).itemsize < 4:
        _quantize_floats(nest, result)
        return
    with nest.elements() as at:
        _store_real(nest, at, x.at(at), x.dtype)


def _quantize_floats(nest: Nest, result: Tensor) -> None:
    """Floats as integers of up to 16 bits; what is not a number becomes the least."""
    parameters, (y,) = quantization(result), nest.results
    scale, zero = (np.array(v, np.float32) for v in (parameters.scale, parameters.zero_point))
    least, most = limits(result.dtype)
    bounds = [
        _parameter(nest, values.astype(np.float32), parameters.axis, len(result.shape))
        for values in (scale, np.float32(least) - zero, np.float32(most) - zero, zero)
    ]
    with nest.alike(nest.operand(0), *bounds) as (to, element, by, low, high, centre):
        nest.out(
            f"float q = rintf({element} / {by});",
            f"q = q >= {low} ? q : {low};",
            f"q = q <= {high} ? q : {high};",
            f"{to} = ({y.ctype})(int32_t)(q + {centre});",
        )


def _parameter(nest: Nest, values: np.ndarray, axis: int | None, rank: int) -> Array:
    """One constant, or one for each index of an axis, as an operand that is broadcast."""
    shape = () if axis is None or values.size == 1 else tuple(-1 if k == axis else 1 for k in range(rank))
    return nest.constant_array(values.reshape(shape))


def _quotient(nest: Nest) -> None:
    tensors = [tensor_of(nest.call, k) for k in (0, 1)]
    if any(tensor.quantization is None or tensor.quantization.axis is not None for tensor in tensors):
        raise nest.unsupported(
            "operands that are not quantised, or with several scales", "two quantised operands"
        )
    with nest.elements() as at:
        a, b = (f"{met(nest, k, at)} * {quantization(tensor).scale[0]!r}" for k, tensor in enumerate(tensors))
        _store_real(nest, at, f"({a} / ({b}))")


def _resize(nest: Nest) -> None:
    """Axis by axis, every product and sum rounded as NumPy rounds it.

    Each goes through a volatile variable, so that none are fused.
    """
    call = nest.call
    x = nest.operand(0)
    parameters = quantization(tensor_of(call, 0))
    if parameters.axis is not None or not all(call.values[i] is not None for i in (1, 2, 3) if call.has(i)):
        raise nest.unsupported("several scales, or sizes that are computed", "one scale, constant sizes")
    axes = {axis: t for axis in range(len(call.result)) if (t := axis_taps(call, axis)) is not None}
    with nest.elements() as at:
        index = list(at)
        value = _interpolated(
            nest,
            at,
            index,
            [*reversed(axes.items())],
            lambda: f"{less(x.at(index), parameters.zero_point[0])} * {parameters.scale[0]!r}",
        )
        beyond = [
            f"{nest.constant(t.outside.astype(np.uint8))}[{at[axis]}]"
            for axis, t in axes.items()
            if t.outside is not None
        ]
        if beyond:
            value = (
                f"({' || '.join(beyond)} ? {float(call.attribute('extrapolation_value', 0.0))!r} : {value})"
            )
        _store_real(nest, at, value)


def _interpolated(
    nest: Nest,
    at: Sequence[str],
    index: list[str],
    axes: Sequence[tuple[int, AxisTaps]],
    element: Callable[[], str],
) -> str:
    """Print what interpolates along the given axes, the last to be done first; C expression of the value."""
    if not axes:
        return element()
    (axis, taps), rest = axes[0], axes[1:]
    count = taps.indices.shape[1]
    places = nest.constant(taps.indices.astype(np.int32))
    if count == 1:
        index[axis] = f"{places}[{at[axis]}]"
        return _interpolated(nest, at, index, rest, element)
    weights = nest.constant(taps.weights.astype(np.float64))
    name = f"v{axis}"
    nest.out(f"double {name} = 0.0;")
    with nest.out.block(f"for (int t{axis} = 0; t{axis} < {count}; t{axis}++)"):
        index[axis] = f"{places}[({at[axis]}) * {count} + t{axis}]"
        value = _interpolated(nest, at, index, rest, element)
        nest.out(f"const volatile double part = {value} * {weights}[({at[axis]}) * {count} + t{axis}];")
        nest.out(f"{name} = t{axis} == 0 ? part : {name} + part;")
    return name


def _softmax(nest: Nest) -> None:
    """Softmax along the last axis of bytes, added in NumPy's order.

    Powers are NumPy's, from a table: a difference of two operands is one of 256 numbers.
    """
    call = nest.call
    x = nest.operand(0)
    shape = call.result
    by = quantization(tensor_of(call, 0))
    scale = by.scale[0]
    axis = call.attribute("axis", -1) % len(shape)
    exact = by.axis is None and x.dtype in BYTES and float(np.float32(scale)) == scale
    if not exact or prod(shape[axis + 1 :]) != 1 or shape[axis] > MOST_ADDED:
        raise nest.unsupported(
            f"axis {axis} of {list(shape)}, {x.dtype}",
            f"bytes, along the last axis, {MOST_ADDED} of them at most",
        )
    powers = nest.constant(np.exp(-scale * np.arange(256)))
    with nest.each(axes=[k for k in range(len(shape)) if k != axis]) as outer:
        here = [outer.get(k, "k") for k in range(len(shape))]
        each = f"for (int k = 0; k < {shape[axis]}; k++)"
        nest.out(f"int most = {limits(x.dtype)[0]};", f"{each} most = larger(most, {x.at(here)});")
        nest.out(f"double power[{shape[axis]}];", f"{each} power[k] = {powers}[most - {x.at(here)}];")
        nest.out(f"const double total = pairwise_sum(power, {shape[axis]});")
        with nest.out.block(each):
            _store_real(nest, here, "power[k] / total")


FLOATS: dict[str, Loops] = {
    "QuantizeLinear": _quantize,
    "Div": _quotient,
    "Resize": _resize,
    "Softmax": _softmax,
}


def dequantize(nest: Nest) -> None:
    """The loops of DequantizeLinear: (stored - zero point) * scale, in the scale's type."""
    call = nest.call
    x = nest.operand(0)
    y = nest.results[0]
    scale = call.values[1]
    zero = call.values[2] if call.has(2) else np.zeros((), np.int64)
    if (
        scale is None
        or zero is None
        or scale.ndim > 1
        or call.attribute("block_size", 0)
        or scale.dtype.name not in REALS
        or y.dtype not in REALS
    ):
        raise nest.unsupported(
            "scales that are computed, in blocks, or not real",
            "float32 constants, one or one for each index of an axis",
        )
    if np.dtype(x.dtype).kind not in "iu" or x.dtype == "uint64":
        raise nest.unsupported(f"an operand of {x.dtype}", "integers")
    axis = call.attribute("axis", 1) % max(len(call.result), 1)
    shape = () if scale.size == 1 else tuple(-1 if k == axis else 1 for k in range(len(call.result)))
    real = scale.dtype.name
    kind = "int64_t" if x.dtype in ("int64", "uint32") or np.dtype(zero.dtype).itemsize > 2 else "int32_t"
    if real == "float32" and kind == "int32_t":
        arrays = [
            _parameter(nest, values, axis if scale.size > 1 or zero.size > 1 else None, len(call.result))
            for values in (zero.astype(np.int32), scale)
        ]
        with nest.alike(x, *arrays) as (to, element, centre, by):
            nest.out(f"{to} = (float)((int32_t){element} - {centre}) * {by};")
        return
    with nest.elements() as at:
        centre = entry(
            nest,
            zero.reshape(shape if zero.size > 1 else ()).astype(np.int64 if kind == "int64_t" else np.int32),
            at,
        )
        nest.out(
            f"{y.at(at)} = ({y.ctype})(({CTYPES[real]})(({kind}){x.at(at)} - ({centre})) * "
            f"{_number(nest, scale.reshape(shape), at, real)});"
        )


BORDER: dict[str, Loops] = {"DequantizeLinear": dequantize}
