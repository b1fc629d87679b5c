"""Constants of quantised arithmetic: factors, biases and tables of execution, C code and accelerator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, MissingValues, Quantization, Tensor, UnsupportedModel, whole
from lfopt.ops.call import Call, once_per_call
from lfopt.ops.elementwise import elementwise
from lfopt.ops.fixed_point import (
    SUM_MAX,
    Multipliers,
    SumMultipliers,
    dequantized,
    multipliers,
    quantized,
    reach,
    terms,
)
from lfopt.ops.part import Part
from lfopt.ops.stored import in_floats, minus_zero, quantization, scale_of, scales, zero_of
from lfopt.ops.table import row_of
from lfopt.ops.traits import Family
from lfopt.ops.windows import windows

EXACT_IN_FLOAT32 = 1 << 24  # sums of integers below this are exact in float32, whatever the order


# -- sums of products ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Requantization:
    """What a contraction scales its sums by.

    The parameters of its channels on the accelerator are `by` and the bias in units of the sums.
    """

    by: Multipliers  # (channels,) or (): from sums to the result
    zero_point: int  # of the result
    unit: np.ndarray  # (channels,) or (), float64: the real number that a sum of 1 stands for
    largest: int  # no sum, partial or finished, is larger in magnitude
    exact: str  # type of float in which the sums are exact: float32 or float64


@once_per_call
def requantization(call: Call) -> Requantization:
    """The constants of a contraction whose arithmetic is SUMS.

    Raises UnsupportedModel if a sum could leave int32, MissingValues if weights have no values.
    """
    first = call.tensors[0]
    second = call.tensors[1]
    result = call.result_tensors[0]
    assert first is not None
    assert second is not None
    if missing := [
        t.name
        for t, c, v in zip(call.tensors, call.constant, call.values, strict=True)
        if t is not None and c and v is None
    ]:
        raise MissingValues(
            f"constant {missing[0]!r}: its values are absent from the model; give a model with weights"
        )
    left = quantization(first)
    right = quantization(second)
    by = quantization(result)
    scales = np.array(right.scale if right.axis is not None else right.scale[0])
    if row_of(call).transposed and scales.ndim:
        scales = np.tile(scales, call.attribute("group", 1))
    unit = left.scale[0] * scales * (call.attribute("alpha", 1.0) if call.operator.kind == "Gemm" else 1.0)
    products = largest_products(call, first, second)
    biases = np.abs(_whole_bias(call, unit))
    if call.operator.kind != "Gemm":
        biases = biases.reshape(-1)
    else:
        biases = np.broadcast_to(biases, call.result).max(axis=0)
    largest = int(np.max(products + biases))
    if largest > SUM_MAX:
        raise UnsupportedModel(
            f"node {call.operator.name!r} ({call.operator.kind}): a sum may reach {largest}; "
            f"accumulators are int32, up to {SUM_MAX}"
        )
    exact = "float32" if np.max(products) < EXACT_IN_FLOAT32 else "float64"
    return Requantization(named_factors(call, unit / by.scale[0]), by.zero_point[0], unit, largest, exact)


def named_factors(call: Call, real: np.ndarray) -> Multipliers:
    """Fixed-point multipliers of real factors, (channels,) or (): of the same shape.

    Raises UnsupportedModel, which names the operator, for a factor that multipliers do not hold.
    """
    try:
        return multipliers(real)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"node {call.operator.name!r} ({call.operator.kind}): {error}") from None


def channel_axes(call: Call) -> tuple[int, int]:
    """(axis of the result's channels, axis of the weights' channels)."""
    row = row_of(call)
    if row.family is Family.CONVOLUTION:
        return 1, int(row.transposed)
    return -1, 0 if call.attribute("transB", 0) else len(call.shape(1)) - 1


def largest_products(call: Call, first: Tensor, second: Tensor) -> np.ndarray:
    """(channels,) or () int64: bound on the magnitude of any sum of products, of each channel or of all.

    The most of |x - zero| times the sum of |w - zero|.
    """
    by = quantization(second)
    if not call.constant[1]:
        inner = call.shape(0)[0 if call.operator.kind == "Gemm" and call.attribute("transA", 0) else -1]
        if row_of(call).family is Family.CONVOLUTION:
            inner = prod(call.shape(1)) // min(call.shape(1)[0], call.shape(1)[1])
        return np.array(inner * reach(first.dtype, zero_of(first)) * reach(second.dtype, by.zero_point[0]))
    value = call.values[1]
    assert value is not None
    weights = np.abs(minus_zero(Part(value, whole(value.shape)), by))
    if call.operator.kind == "ConvTranspose":  # [c, m / g, *k]
        group = call.attribute("group", 1)
        sums = (
            weights.reshape(group, -1, weights.shape[1], prod(weights.shape[2:])).sum(axis=(1, 3)).reshape(-1)
        )
    elif call.operator.kind == "MatMul":
        sums = weights.sum(axis=-2 if weights.ndim > 1 else -1)
        sums = sums.reshape(-1, sums.shape[-1]).max(axis=0) if sums.ndim else sums
    else:
        channels = channel_axes(call)[1]
        sums = weights.sum(axis=tuple(axis for axis in range(weights.ndim) if axis != channels))
    return sums * reach(first.dtype, zero_of(first))


def bias(call: Call) -> np.ndarray:
    """int64 bias of a contraction in units of its sums, shaped to broadcast to its result; 0 if none."""
    return _whole_bias(call, requantization(call).unit)


def _whole_bias(call: Call, unit: np.ndarray) -> np.ndarray:
    value = call.values[2] if call.has(2) else None
    return bias_in_units(
        call, None if value is None else Part(value, whole(value.shape)), whole(call.result), unit
    )


def bias_in_units(call: Call, part: Part | None, out: Box, unit: np.ndarray) -> np.ndarray:
    """int64 bias of box `out` in units of the sums, shaped to broadcast against it; 0 if there is none.

    A bias whose scale is that of the sums (as QDQ has it) is taken as stored; any other, or one of real
    numbers, is rounded to the nearest unit.
    """
    beta = call.attribute("beta", 1.0) if call.operator.kind == "Gemm" else 1.0
    tensor = call.tensors[2] if call.has(2) else None
    if part is None or tensor is None or beta == 0.0:
        return np.zeros((), np.int64)
    axis, _ = channel_axes(call)
    unit = unit[slice(*out[axis])] if unit.ndim else unit
    if tensor.quantization is None:
        in_units = part.values.astype(np.float64) * beta / unit
    else:
        scale = scales(tensor.quantization, part)
        stored = minus_zero(part, tensor.quantization)
        same = bool(np.allclose(scale * beta / unit, 1, rtol=1e-6, atol=0))
        in_units = stored if same else stored * (scale * beta / unit)
    if in_units.dtype.kind == "f":
        in_units = np.rint(np.clip(np.nan_to_num(in_units), -(2.0**62), 2.0**62)).astype(np.int64)
    if call.operator.kind == "Gemm":
        return in_units
    return in_units.reshape(-1, *(1,) * (len(out) - 2))


# -- bytes to bytes ------------------------------------------------------------------------------------------


@once_per_call
def table(call: Call) -> np.ndarray:
    """(256,) stored results of an operator whose arithmetic is TABLE, by the byte of its operand.

    An int8 operand is taken as two's complement.
    """
    tensor = next(
        tensor
        for tensor, constant in zip(call.tensors, call.constant, strict=True)
        if tensor is not None and not constant
    )
    result = call.result_tensors[0]
    if call.operator.kind == "QuantizeLinear":
        return _recoding(tensor.dtype, quantization(tensor), result.dtype, quantization(result))
    real = dequantized(np.arange(256, dtype=np.uint8).view(tensor.dtype), quantization(tensor), "float64")
    operands = [None if operand is None else Part(real, ((0, 256),)) for operand in call.tensors]
    for i, (operand, constant, value) in enumerate(
        zip(call.tensors, call.constant, call.values, strict=True)
    ):
        if operand is not None and constant and value is not None:
            by = operand.quantization
            operands[i] = Part(
                np.reshape(value if by is None else dequantized(value, by, "float64"), (1,)), ((0, 1),)
            )
    shapes = tuple(None if part is None else part.values.shape for part in operands)
    twin = replace(in_floats(call), shapes=shapes, results=((256,),))
    with np.errstate(all="ignore"):
        real_results = elementwise(twin, operands, ((0, 256),), 0)
    return quantized(real_results.astype(np.float64), quantization(result), result.dtype)


@lru_cache(maxsize=1024)
def _recoding(before: str, stands: Quantization, after: str, shall_stand: Quantization) -> np.ndarray:
    """256 bytes: the same real number in another type, scale or zero point."""
    stored = np.arange(256, dtype=np.uint8).view(before)
    return quantized(dequantized(stored, stands, "float64"), shall_stand, after)


def recoding(before: Tensor, after: Tensor) -> np.ndarray | None:
    """(256,) table from integers of one map to type, scale and zero point of another; None if those agree."""
    if (before.dtype, before.quantization) == (after.dtype, after.quantization):
        return None
    return _recoding(before.dtype, quantization(before), after.dtype, quantization(after))


def padding(call: Call) -> np.ndarray:
    """() scalar: the stored integer that a Pad on integers adds."""
    fill = call.values[2] if call.has(2) else None
    result = call.result_tensors[0]
    return quantized(
        np.zeros((), np.float32) if fill is None else fill.reshape(()), quantization(result), result.dtype
    )


# -- the other kinds -----------------------------------------------------------------------------------------


@once_per_call
def sum_terms(call: Call) -> SumMultipliers:
    """Multipliers of the operands of an operator whose arithmetic is TERMS.

    Raises UnsupportedModel, which names the operator, where sums of them leave int32.
    """
    result = call.result_tensors[0]
    kind = call.operator.kind
    tensors = [tensor for tensor in call.tensors if tensor is not None]
    signs = [
        -1.0 if kind == "Sub" and i else 1.0 / len(tensors) if kind == "Mean" else 1.0
        for i in range(len(tensors))
    ]
    ratios = [sign * scale_of(tensor) / scale_of(result) for sign, tensor in zip(signs, tensors, strict=True)]
    try:
        return terms(ratios, [reach(tensor.dtype, zero_of(tensor)) for tensor in tensors])
    except UnsupportedModel as error:
        raise UnsupportedModel(f"node {call.operator.name!r} ({kind}): {error}") from None


@once_per_call
def product_factors(call: Call) -> Multipliers:
    """The factor of an operator whose arithmetic is PRODUCT."""
    first, second = call.tensors[:2]
    assert first is not None
    assert second is not None
    return named_factors(
        call, np.array(scale_of(first) * scale_of(second) / scale_of(call.result_tensors[0]))
    )


class Slopes(NamedTuple):
    """Multipliers of PRelu."""

    positive: Multipliers  # ()
    negative: Multipliers  # shaped as the slopes
    sign: np.ndarray  # of the slopes


@once_per_call
def slopes(call: Call) -> Slopes:
    """The multipliers of an operator whose arithmetic is SLOPES."""
    x = call.tensors[0]
    slope = call.tensors[1]
    value = call.values[1]
    assert x is not None
    assert slope is not None
    assert value is not None
    if slope.quantization is None:
        real = value.astype(np.float64)
    else:
        real = dequantized(value, slope.quantization, "float64")
    ratio = scale_of(x) / scale_of(call.result_tensors[0])
    return Slopes(
        named_factors(call, np.array(ratio)),
        named_factors(call, np.abs(real) * ratio),
        np.where(real < 0, -1, 1),
    )


def mean_factors(call: Call, count: np.ndarray) -> Multipliers:
    """Factors of sums of `count` elements, for arithmetic MEAN: shaped as the counts, or one for all.

    Raises UnsupportedModel where such a sum could leave int32.
    """
    first = call.tensors[0]
    result = call.result_tensors[0]
    kind = call.operator.kind
    assert first is not None
    if (most := int(np.max(count)) * reach(first.dtype, zero_of(first))) > SUM_MAX:
        raise UnsupportedModel(
            f"node {call.operator.name!r} ({kind}): a sum may reach {most}; "
            f"accumulators are int32, up to {SUM_MAX}"
        )
    return named_factors(
        call, np.asarray(scale_of(first) / scale_of(result) / (1 if kind == "ReduceSum" else count))
    )


def window_counts(call: Call, out: Box) -> np.ndarray:
    """int64, shaped to broadcast to box `out`: elements of each window of an AveragePool that count."""
    count = np.ones((), np.int64)
    include = bool(call.attribute("count_include_pad", 0))
    for axis, (window, span) in enumerate(zip(windows(call), out[2:], strict=True), 2):
        counted = np.maximum(window.covered(span, padded=include), 1)
        count = count * counted.reshape(-1, *(1,) * (len(out) - axis - 1))
    return count
