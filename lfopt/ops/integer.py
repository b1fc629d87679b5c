"""Arithmetic of operators on quantised maps, in integers: what execution, the C code and the accelerator all compute, bit for bit.

An operator belongs here if its first result has a quantization. How it is computed, its row says, and `arithmetic` whether its operands allow it:

    SUMS     Conv, ConvTranspose, Gemm, MatMul: int32 sums of (x - zero) * (w - zero), bias added, scaled per channel, rounded once, zero point added,
             saturated. That no sum leaves int32 is proven from the weights beforehand.
    TABLE    any function of one byte: 256 entries, indexed by the byte; computed in float64, rounded as QuantizeLinear rounds (halves to even)
    TERMS    Add, Sub, Sum, Mean: operands over a common fixed point, an int32 sum, rounded once
    PRODUCT  Mul: (a - zero) * (b - zero), scaled, rounded once
    SLOPES   PRelu: x - zero, scaled by one factor where it is positive and by its channel's where it is negative
    MEAN     AveragePool, GlobalAveragePool, ReduceMean, ReduceSum: int32 sum of (x - zero), scaled by a factor that holds the count of the window
    EXTREME  MaxPool, GlobalMaxPool, ReduceMax, ReduceMin: on the integers, then a table where the scale changes
    CHOICE   Max, Min, Where, Concat, Pad: every operand through a table to the result's scale, then chosen or laid side by side
    MOVE     everything else that only moves elements: moved as bytes, then a table where the scale changes
    FLOAT    all others (Softmax, LayerNormalization, Div of maps, linear Resize, ...): dequantised, computed in float64, quantised. The accelerator
             does not do these.

Rounding of sums, and the width of multipliers, are those of `lfopt.ops.fixed_point`. All but FLOAT is exactly associative, so a result is the same
bits whether it is made whole or piece by piece. Source: the ONNX operators of the same names, QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, update_wrapper
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np

from lfopt.ir import Box, MissingValues, Quantization, Tensor, UnsupportedModel, box_shape, slices, whole
from lfopt.ops import floating
from lfopt.ops.call import Call
from lfopt.ops.contraction import present
from lfopt.ops.elementwise import elementwise
from lfopt.ops.evaluate import evaluate
from lfopt.ops.fixed_point import (
    BYTES,
    SUM_MAX,
    Factors,
    Terms,
    dequantized,
    factors,
    quantized,
    reach,
    requantized,
    saturated,
    scaled,
    terms,
)
from lfopt.ops.footprint import needs
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.part import Part, is_empty, take
from lfopt.ops.reducing import folded, folded_elements, partial_reduction
from lfopt.ops.table import OpSpec, row_of
from lfopt.ops.traits import Arithmetic, Family, Tiling
from lfopt.ops.windows import windows

Operands = Sequence[Part | None]
T = TypeVar("T")
Method = Callable[[Call, Operands, tuple[Box, ...], int], tuple[np.ndarray, ...]]
EXACT_IN_FLOAT32 = 1 << 24  # sums of integers below this are exact in float32, whatever the order


SUMS, TABLE, TERMS, PRODUCT, SLOPES, MEAN, EXTREME, CHOICE, MOVE, FLOAT = Arithmetic


# -- the three functions of `lfopt.ops.compute` --------------------------------------------------------------------------------------------


def compute(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """Stored integers of a box of each output; see `lfopt.ops.compute.compute`.

    Raises UnsupportedModel where an int32 sum could overflow, or a ratio of scales is beyond what factors hold.
    """
    if row_of(call).tiling is Tiling.CONTRACT and not is_empty(out[0]):
        return (finish(call, accumulate(call, operands, out[0], opset), operands, out[0]),)
    if all(map(is_empty, out)):
        return tuple(np.empty(box_shape(box), tensor.dtype) for box, tensor in zip(out, call.result_tensors, strict=False))
    return METHODS[arithmetic(call)](call, operands, out, opset)


def adds_up(call: Call) -> bool:
    """Whether partial results of a reduction merge to the same integers however it is parted."""
    return arithmetic(call) in (MEAN, EXTREME)


def accumulate(call: Call, operands: Operands, out: Box, opset: int) -> np.ndarray:
    """int32 partial sums of (x - zero) * (w - zero) over the input channels at hand, without bias; float64 where `arithmetic` is FLOAT.

    Sums over disjoint spans of the input channels add up to the same integers in any order. Of a reduction: int32 partial sums of (x - zero), or
    extremes of x, over the rows at hand.
    """
    how = arithmetic(call)
    if how is FLOAT:
        return floating.accumulate(_in_floats(call), _real_operands(call, operands), out, opset)
    if how is EXTREME:
        return partial_reduction(call, operands, out)
    if how is MEAN:
        return partial_reduction(call, [_centred(operands[0], call.tensors[0], "int32")], out).astype(np.int32)
    found = contraction(call)
    centred = [_centred(part, tensor, found.exact) for part, tensor in zip(operands[:2], call.tensors, strict=False)]
    return floating.accumulate(call, centred, out, opset).astype(np.int32)


def finish(call: Call, sums: np.ndarray, operands: Operands, out: Box) -> np.ndarray:
    """Stored integers from finished sums: bias, scaling, rounding, zero point, saturation."""
    result, how = call.result_tensors[0], arithmetic(call)
    if how is FLOAT:
        return quantized(floating.finish(_in_floats(call), sums, _real_operands(call, operands), out), _quantization(result), result.dtype)
    if how is EXTREME:
        assert call.tensors[0] is not None
        return _recoded(sums, recoding(call.tensors[0], result))
    if how is MEAN:
        return _mean(call, sums, np.array(folded_elements(call)))
    found = contraction(call)
    total = sums.astype(np.int64) + _bias_in_units(call, operands[2] if len(operands) > 2 else None, out, found.unit)
    axis, _ = _channels(call)
    by = found.by if found.by.shift.ndim == 0 else Factors(*(_column(f, out, axis) for f in found.by))
    return requantized(total, by, found.zero_point, result.dtype)


# -- which arithmetic ----------------------------------------------------------------------------------------------------------------------


class _Same:
    """A call as a key: calls are told apart by identity, because they hold arrays."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def __hash__(self) -> int:
        return id(self.call)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.call is other.call


def _once_per_call(find: Callable[[Call], T]) -> Callable[[Call], T]:
    """Remember what is found of a call: schedules compute a row at a time."""
    found = lru_cache(maxsize=1024)(lambda key: find(key.call))
    return update_wrapper(lambda call: found(_Same(call)), find)


@_once_per_call
def arithmetic(call: Call) -> Arithmetic:
    """How this operator on quantised maps is computed."""
    kind, row = call.operator.kind, row_of(call)
    data = [i for i, tensor in enumerate(call.tensors) if tensor is not None and i not in row.parameters]
    if kind == "QuantizeLinear":
        return TABLE if _in_bytes(call.tensors[0]) else FLOAT  # a change of scale, of whatever has one
    if not all(_in_bytes(tensor) for tensor in call.result_tensors if tensor.quantization is not None):
        return FLOAT
    if TABLE in arithmetics(row) and _reads_one_map(call, data):
        return TABLE
    return row.integers if APPLIES[row.integers](call, data) else FLOAT


def arithmetics(row: OpSpec) -> tuple[Arithmetic, ...]:
    """How operators of a row may be computed, depending on their operands; FLOAT aside."""
    tabled = row.elementwise and floating.KERNELS.get(row.kind) is elementwise
    return tuple(dict.fromkeys((*(TABLE,) * tabled, *(row.integers,) * (row.integers is not FLOAT))))


def _in_bytes(tensor: Tensor | None) -> bool:
    """Whether the tensor is of 8 bits, with one scale."""
    return tensor is not None and tensor.quantization is not None and tensor.quantization.axis is None and tensor.dtype in BYTES


def _all_in_bytes(call: Call, data: list[int]) -> bool:
    return all(_in_bytes(call.tensors[i]) for i in data)


def _first_in_bytes(call: Call, data: list[int]) -> bool:
    return _in_bytes(call.tensors[0])


def _reads_one_map(call: Call, data: list[int]) -> bool:
    """One quantised map, shaped as the result; everything else a constant of one element, with its value at hand."""
    maps = [i for i, tensor in enumerate(call.tensors) if tensor is not None and not call.constant[i]]
    others = [i for i, tensor in enumerate(call.tensors) if tensor is not None and call.constant[i]]
    return (
        len(maps) == 1
        and _in_bytes(call.tensors[maps[0]])
        and call.shape(maps[0]) == call.result
        and all(prod(call.shape(i)) == 1 and call.values[i] is not None for i in others)
    )


def _chooses(call: Call, data: list[int]) -> bool:
    choices = {"Where": [1, 2], "Pad": [0]}.get(call.operator.kind, data)
    known_fill = call.operator.kind != "Pad" or not call.has(2) or call.values[2] is not None
    return _all_in_bytes(call, choices) and known_fill


def _moves(call: Call, data: list[int]) -> bool:
    nearest = call.attribute("mode", "nearest") == "nearest" and call.attribute("coordinate_transformation_mode", "") != "tf_crop_and_resize"
    return _in_bytes(call.tensors[0]) and (call.operator.kind != "Resize" or nearest)


def _is_contraction_in_bytes(call: Call, data: list[int]) -> bool:
    """8-bit operands; the second may have a scale per channel of the result, if it is constant."""
    first, second = call.tensors[:2]
    assert second is not None
    by = second.quantization
    if not _in_bytes(first) or by is None or second.dtype not in BYTES:
        return False
    if call.has(2) and not call.constant[2]:
        return False
    return by.axis is None or (call.constant[1] and len(second.shape) > 1 and by.axis == _channels(call)[1])


APPLIES: dict[Arithmetic, Callable[[Call, list[int]], bool]] = {
    SUMS: _is_contraction_in_bytes,
    TABLE: _reads_one_map,
    TERMS: _all_in_bytes,
    PRODUCT: _all_in_bytes,
    SLOPES: lambda call, data: _in_bytes(call.tensors[0]) and call.values[1] is not None,
    MEAN: lambda call, data: _in_bytes(call.tensors[0]) and (row_of(call).slides or reduced_axes(call) is not None),
    EXTREME: _first_in_bytes,
    CHOICE: _chooses,
    MOVE: _moves,
    FLOAT: lambda call, data: True,
}


# -- SUMS ----------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """What a contraction scales its sums by; the parameters of its channels on the accelerator are `by` and the bias in units of the sums."""

    by: Factors  # (channels,) or (): from sums to the result
    zero_point: int  # of the result
    unit: np.ndarray  # (channels,) or (), float64: the real number that a sum of 1 stands for
    largest: int  # no sum, partial or finished, is larger in magnitude
    exact: str  # type of float in which the sums are exact: float32 or float64


@_once_per_call
def contraction(call: Call) -> Contraction:
    """The constants of a contraction whose arithmetic is SUMS.

    Raises UnsupportedModel if a sum could leave int32, MissingValues if weights have no values.
    """
    first, second, result = call.tensors[0], call.tensors[1], call.result_tensors[0]
    assert first is not None
    assert second is not None
    if missing := [t.name for t, c, v in zip(call.tensors, call.constant, call.values, strict=True) if t is not None and c and v is None]:
        raise MissingValues(f"constant {missing[0]!r}: its values are absent from the model; give a model with weights")
    left, right, by = _quantization(first), _quantization(second), _quantization(result)
    scales = np.array(right.scale if right.axis is not None else right.scale[0])
    if row_of(call).transposed and scales.ndim:
        scales = np.tile(scales, call.attribute("group", 1))
    unit = left.scale[0] * scales * (call.attribute("alpha", 1.0) if call.operator.kind == "Gemm" else 1.0)
    products = _largest_sums(call, first, second)
    biases = np.abs(_whole_bias(call, unit))
    biases = biases.reshape(-1) if call.operator.kind != "Gemm" else np.broadcast_to(biases, call.result).max(axis=0)
    largest = int(np.max(products + biases))
    if largest > SUM_MAX:
        raise UnsupportedModel(
            f"node {call.operator.name!r} ({call.operator.kind}): a sum may reach {largest}; accumulators are int32, up to {SUM_MAX}"
        )
    exact = "float32" if np.max(products) < EXACT_IN_FLOAT32 else "float64"
    return Contraction(_named(call, unit / by.scale[0]), by.zero_point[0], unit, largest, exact)


def _named(call: Call, real: np.ndarray) -> Factors:
    """Fixed-point factors; an error names the operator."""
    try:
        return factors(real)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"node {call.operator.name!r} ({call.operator.kind}): {error}") from None


def _channels(call: Call) -> tuple[int, int]:
    """(axis of the result's channels, axis of the weights' channels)."""
    row = row_of(call)
    if row.family is Family.CONVOLUTION:
        return 1, int(row.transposed)
    return -1, 0 if call.attribute("transB", 0) else len(call.shape(1)) - 1


def _largest_sums(call: Call, first: Tensor, second: Tensor) -> np.ndarray:
    """Bound on the magnitude of any sum of products, per channel of the result or for all: the most of |x - zero| times the sum of |w - zero|."""
    by = _quantization(second)
    if not call.constant[1]:
        inner = call.shape(0)[0 if call.operator.kind == "Gemm" and call.attribute("transA", 0) else -1]
        if row_of(call).family is Family.CONVOLUTION:
            inner = prod(call.shape(1)) // min(call.shape(1)[0], call.shape(1)[1])
        return np.array(inner * reach(first.dtype, _zero(first)) * reach(second.dtype, by.zero_point[0]))
    value = call.values[1]
    assert value is not None
    weights = np.abs(_minus_zero(Part(value, whole(value.shape)), by))
    if call.operator.kind == "ConvTranspose":  # [c, m / g, *k]
        group = call.attribute("group", 1)
        sums = weights.reshape(group, -1, weights.shape[1], prod(weights.shape[2:])).sum(axis=(1, 3)).reshape(-1)
    elif call.operator.kind == "MatMul":
        sums = weights.sum(axis=-2 if weights.ndim > 1 else -1)
        sums = sums.reshape(-1, sums.shape[-1]).max(axis=0) if sums.ndim else sums
    else:
        channels = _channels(call)[1]
        sums = weights.sum(axis=tuple(axis for axis in range(weights.ndim) if axis != channels))
    return sums * reach(first.dtype, _zero(first))


def bias(call: Call) -> np.ndarray:
    """int64 bias of a contraction in units of its sums, shaped to broadcast against its result; 0 if there is none."""
    return _whole_bias(call, contraction(call).unit)


def _whole_bias(call: Call, unit: np.ndarray) -> np.ndarray:
    value = call.values[2] if call.has(2) else None
    return _bias_in_units(call, None if value is None else Part(value, whole(value.shape)), whole(call.result), unit)


def _bias_in_units(call: Call, part: Part | None, out: Box, unit: np.ndarray) -> np.ndarray:
    """int64 bias of box `out` in units of the sums, shaped to broadcast against it; 0 if there is none.

    A bias whose scale is that of the sums (as QDQ has it) is taken as stored; any other, or one of real numbers, is rounded to the nearest unit.
    """
    beta = call.attribute("beta", 1.0) if call.operator.kind == "Gemm" else 1.0
    tensor = call.tensors[2] if call.has(2) else None
    if part is None or tensor is None or beta == 0.0:
        return np.zeros((), np.int64)
    axis, _ = _channels(call)
    unit = unit[slice(*out[axis])] if unit.ndim else unit
    if tensor.quantization is None:
        found = part.values.astype(np.float64) * beta / unit
    else:
        scale, stored = _scales(tensor.quantization, part), _minus_zero(part, tensor.quantization)
        same = bool(np.allclose(scale * beta / unit, 1, rtol=1e-6, atol=0))
        found = stored if same else stored * (scale * beta / unit)
    if found.dtype.kind == "f":
        found = np.rint(np.clip(np.nan_to_num(found), -(2.0**62), 2.0**62)).astype(np.int64)
    return found if call.operator.kind == "Gemm" else found.reshape(-1, *(1,) * (len(out) - 2))


def _column(values: np.ndarray, out: Box, axis: int) -> np.ndarray:
    """Values per channel, cut to box `out` and shaped to broadcast against it."""
    axis %= len(out)
    return values[slice(*out[axis])].reshape(-1, *(1,) * (len(out) - axis - 1))


# -- bytes to bytes ------------------------------------------------------------------------------------------------------------------------


@_once_per_call
def table(call: Call) -> np.ndarray:
    """256 stored results of an operator whose arithmetic is TABLE, indexed by the byte of its operand (int8: as two's complement)."""
    tensor = next(tensor for tensor, constant in zip(call.tensors, call.constant, strict=True) if tensor is not None and not constant)
    result = call.result_tensors[0]
    if call.operator.kind == "QuantizeLinear":
        return _recoding(tensor.dtype, _quantization(tensor), result.dtype, _quantization(result))
    real = dequantized(np.arange(256, dtype=np.uint8).view(tensor.dtype), _quantization(tensor), "float64")
    operands = [None if found is None else Part(real, ((0, 256),)) for found in call.tensors]
    for i, (found, constant, value) in enumerate(zip(call.tensors, call.constant, call.values, strict=True)):
        if found is not None and constant and value is not None:
            by = found.quantization
            operands[i] = Part(np.reshape(value if by is None else dequantized(value, by, "float64"), (1,)), ((0, 1),))
    shapes = tuple(None if part is None else part.values.shape for part in operands)
    twin = replace(_in_floats(call), shapes=shapes, results=((256,),))
    with np.errstate(all="ignore"):
        made = elementwise(twin, operands, ((0, 256),), 0)
    return quantized(made.astype(np.float64), _quantization(result), result.dtype)


@lru_cache(maxsize=1024)
def _recoding(before: str, stands: Quantization, after: str, shall_stand: Quantization) -> np.ndarray:
    """256 bytes: the same real number in another type, scale or zero point."""
    stored = np.arange(256, dtype=np.uint8).view(before)
    return quantized(dequantized(stored, stands, "float64"), shall_stand, after)


def recoding(before: Tensor, after: Tensor) -> np.ndarray | None:
    """Table of 256 bytes that brings the integers of one map to the type, scale and zero point of another; None if those are the same."""
    if (before.dtype, before.quantization) == (after.dtype, after.quantization):
        return None
    return _recoding(before.dtype, _quantization(before), after.dtype, _quantization(after))


def _recoded(values: np.ndarray, by: np.ndarray | None) -> np.ndarray:
    return values if by is None else by[values.view(np.uint8)]


# -- the other kinds -----------------------------------------------------------------------------------------------------------------------


def _single(make: Callable[[Call, Operands, Box], np.ndarray]) -> Method:
    """A method of an operator with one result."""

    def method(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
        return (make(call, operands, out[0]),)

    return method


def _by_table(call: Call, operands: Operands, out: Box) -> np.ndarray:
    index = next(i for i, part in enumerate(operands) if part is not None and not call.constant[i])
    return _recoded(take(present(operands, index), out), table(call))


@_once_per_call
def sum_terms(call: Call) -> Terms:
    """Factors of the operands of an operator whose arithmetic is TERMS."""
    result, kind = call.result_tensors[0], call.operator.kind
    tensors = [tensor for tensor in call.tensors if tensor is not None]
    signs = [-1.0 if kind == "Sub" and i else 1.0 / len(tensors) if kind == "Mean" else 1.0 for i in range(len(tensors))]
    ratios = [sign * _scale(tensor) / _scale(result) for sign, tensor in zip(signs, tensors, strict=True)]
    try:
        return terms(ratios, [reach(tensor.dtype, _zero(tensor)) for tensor in tensors])
    except UnsupportedModel as error:
        raise UnsupportedModel(f"node {call.operator.name!r} ({kind}): {error}") from None


def _by_terms(call: Call, operands: Operands, out: Box) -> np.ndarray:
    found, result = sum_terms(call), call.result_tensors[0]
    total = np.full((), 1 << found.shift - 1, np.int64)
    for i, multiplier in enumerate(found.multipliers):
        total = total + multiplier * _centred_ints(call, operands, i, needs(call, i, out))
    return saturated((total >> found.shift) + _zero(result), result.dtype)


@_once_per_call
def product_factors(call: Call) -> Factors:
    """The factor of an operator whose arithmetic is PRODUCT."""
    first, second = call.tensors[:2]
    assert first is not None
    assert second is not None
    return _named(call, np.array(_scale(first) * _scale(second) / _scale(call.result_tensors[0])))


def _by_product(call: Call, operands: Operands, out: Box) -> np.ndarray:
    a, b = (_centred_ints(call, operands, i, needs(call, i, out)) for i in (0, 1))
    result = call.result_tensors[0]
    return requantized(a * b, product_factors(call), _zero(result), result.dtype)


class Slopes(NamedTuple):
    """Factors of PRelu."""

    positive: Factors  # ()
    negative: Factors  # shaped as the slopes
    sign: np.ndarray  # of the slopes


@_once_per_call
def slopes(call: Call) -> Slopes:
    """The factors of an operator whose arithmetic is SLOPES."""
    x, slope, value = call.tensors[0], call.tensors[1], call.values[1]
    assert x is not None
    assert slope is not None
    assert value is not None
    real = value.astype(np.float64) if slope.quantization is None else dequantized(value, slope.quantization, "float64")
    ratio = _scale(x) / _scale(call.result_tensors[0])
    return Slopes(_named(call, np.array(ratio)), _named(call, np.abs(real) * ratio), np.where(real < 0, -1, 1))


def _by_slopes(call: Call, operands: Operands, out: Box) -> np.ndarray:
    found, result = slopes(call), call.result_tensors[0]
    box = slices(needs(call, 1, out))
    x = _centred_ints(call, operands, 0, needs(call, 0, out))
    negative = scaled(x * found.sign[box], Factors(*(f[box] for f in found.negative)))
    return saturated(np.where(x < 0, negative, scaled(x, found.positive)) + _zero(result), result.dtype)


def _by_mean(call: Call, operands: Operands, out: Box) -> np.ndarray:
    x = _centred_ints(call, operands, 0, box := needs(call, 0, out))
    if row_of(call).family is Family.POOL:
        return _mean(call, *_window_sums(call, x, box, out))
    return _mean(call, folded(call, x), np.array(folded_elements(call)))


def _mean(call: Call, total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Sums of so many elements, averaged (but for ReduceSum) and scaled."""
    result = call.result_tensors[0]
    return requantized(total, mean_factors(call, count), _zero(result), result.dtype)


def mean_factors(call: Call, count: np.ndarray) -> Factors:
    """What an operator whose arithmetic is MEAN scales sums of so many elements by; shaped as the counts, or one for all.

    Raises UnsupportedModel where such a sum could leave int32.
    """
    first, result, kind = call.tensors[0], call.result_tensors[0], call.operator.kind
    assert first is not None
    if (most := int(np.max(count)) * reach(first.dtype, _zero(first))) > SUM_MAX:
        raise UnsupportedModel(f"node {call.operator.name!r} ({kind}): a sum may reach {most}; accumulators are int32, up to {SUM_MAX}")
    return _named(call, np.asarray(_scale(first) / _scale(result) / (1 if kind == "ReduceSum" else count)))


def _window_sums(call: Call, x: np.ndarray, box: Box, out: Box) -> tuple[np.ndarray, np.ndarray]:
    """(sums of each window, elements of each window that count), axis by axis. What a window holds of the padding is 0."""
    total = x.astype(np.float64)  # exact: far below 2**53
    for axis, (window, span) in enumerate(zip(windows(call), out[2:], strict=True), 2):
        taps = np.arange(*span)[:, None] * window.stride - window.pad + np.arange(window.kernel) * window.dilation
        inside = np.zeros((len(taps), x.shape[axis]))
        outs, places = np.nonzero((taps >= box[axis][0]) & (taps < box[axis][1]))
        np.add.at(inside, (outs, taps[outs, places] - box[axis][0]), 1)
        total = np.moveaxis(np.tensordot(total, inside, (axis, 1)), -1, axis)
    return total.astype(np.int64), window_counts(call, out)


def window_counts(call: Call, out: Box) -> np.ndarray:
    """Elements of each window of an AveragePool that count, shaped to broadcast against box `out`."""
    count, include = np.ones((), np.int64), bool(call.attribute("count_include_pad", 0))
    for axis, (window, span) in enumerate(zip(windows(call), out[2:], strict=True), 2):
        counted = np.maximum(window.covered(span, padded=include), 1)
        count = count * counted.reshape(-1, *(1,) * (len(out) - axis - 1))
    return count


def _moved(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """Computed on the bytes as they are, then brought to the result's scale."""
    source = call.tensors[0]
    assert source is not None
    made = _on_integers(call, operands, out, opset)
    return tuple(
        _recoded(values, recoding(source, result)) if result.quantization is not None else values.astype(result.dtype, copy=False)
        for values, result in zip(made, call.result_tensors, strict=False)
    )


def _chosen(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """Every operand brought to the result's scale, then chosen from."""
    result, given = call.result_tensors[0], list(operands)
    for i, (part, tensor) in enumerate(zip(operands, call.tensors, strict=True)):
        if part is not None and _in_bytes(tensor) and tensor is not None:
            given[i] = Part(_recoded(part.values, recoding(tensor, result)), part.box)
    if call.operator.kind == "Pad":  # ONNX pads with a real number: 0, unless it is given
        given = [*given, None][:3] if len(given) < 3 else given
        given[2] = Part(padding(call), ())
    return _on_integers(call, given, out, opset)


def padding(call: Call) -> np.ndarray:
    """The stored integer that a Pad on integers adds."""
    fill, result = call.values[2] if call.has(2) else None, call.result_tensors[0]
    return quantized(np.zeros((), np.float32) if fill is None else fill.reshape(()), _quantization(result), result.dtype)


def _by_floats(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """Dequantised, computed in float64, quantised."""
    real = _real_operands(call, operands)
    made = (present(real, 0).values[slices(out[0], present(real, 0).box)],) if call.operator.kind == "QuantizeLinear" else None
    made = made or _on_integers(_in_floats(call), real, out, opset)
    return tuple(
        values.astype(result.dtype, copy=False) if result.quantization is None else quantized(values, result.quantization, result.dtype)
        for values, result in zip(made, call.result_tensors, strict=False)
    )


def _on_integers(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """What the operator makes of the operands' own numbers, whatever they stand for."""
    kernel = floating.KERNELS.get(call.operator.kind)
    asked = [k for k, name in enumerate(call.operator.outputs) if name]
    if kernel is None:
        made = evaluate(call.operator, [None if part is None else part.values for part in operands], opset)
        return tuple(values[slices(box)] for values, box in zip(made, out, strict=True))
    with np.errstate(all="ignore"):
        return tuple(
            np.empty(box_shape(box), present(operands, 0).values.dtype) if is_empty(box) else kernel(call, operands, box, result)
            for result, box in zip(asked, out, strict=False)
        )


METHODS: dict[Arithmetic, Method] = {
    TABLE: _single(_by_table),
    TERMS: _single(_by_terms),
    PRODUCT: _single(_by_product),
    SLOPES: _single(_by_slopes),
    MEAN: _single(_by_mean),
    EXTREME: _moved,
    CHOICE: _chosen,
    MOVE: _moved,
    FLOAT: _by_floats,
}


# -- integers and what they stand for ------------------------------------------------------------------------------------------------------


def _quantization(tensor: Tensor) -> Quantization:
    assert tensor.quantization is not None, f"{tensor.name}: is not quantised"
    return tensor.quantization


def _scale(tensor: Tensor) -> float:
    return _quantization(tensor).scale[0]


def _zero(tensor: Tensor) -> int:
    return _quantization(tensor).zero_point[0]


def _cut_to(by: Quantization, box: Box) -> Quantization:
    """The quantization of a part of a tensor."""
    if by.axis is None:
        return by
    span = slice(*box[by.axis])
    return Quantization(by.scale[span], by.zero_point[span], by.axis)


def _along(values: Sequence[float], by: Quantization, rank: int) -> np.ndarray:
    return np.reshape(values, () if by.axis is None else tuple(-1 if axis == by.axis else 1 for axis in range(rank)))


def _minus_zero(part: Part, by: Quantization, dtype: str = "int64") -> np.ndarray:
    """stored - zero point."""
    zeros = _cut_to(by, part.box).zero_point
    values = part.values.astype(dtype)
    return values - _along(zeros, by, values.ndim).astype(dtype) if any(zeros) else values


def _scales(by: Quantization, part: Part) -> np.ndarray:
    return _along(_cut_to(by, part.box).scale, by, part.values.ndim).astype(np.float64)


def _centred(part: Part | None, tensor: Tensor | None, dtype: str) -> Part | None:
    if part is None or tensor is None:
        return None
    return Part(_minus_zero(part, _quantization(tensor), dtype), part.box)


def _centred_ints(call: Call, operands: Operands, index: int, box: Box) -> np.ndarray:
    """int64 stored - zero point of a box of an operand."""
    tensor = call.tensors[index]
    assert tensor is not None
    return _minus_zero(Part(take(present(operands, index), box), box), _quantization(tensor))


def _real_operands(call: Call, operands: Operands) -> list[Part | None]:
    """Operands as the real numbers that they stand for: float64; what is not quantised as it is.

    In C order, on which the order of NumPy's sums depends.
    """
    return [
        part
        if part is None or tensor is None or tensor.quantization is None
        else Part(np.asarray(dequantized(part.values, _cut_to(tensor.quantization, part.box), "float64"), order="C"), part.box)
        for part, tensor in zip(operands, call.tensors, strict=True)
    ]


@_once_per_call
def _in_floats(call: Call) -> Call:
    """The same operator on real numbers: what is quantised becomes float64."""

    def real(tensor: Tensor) -> Tensor:
        return tensor if tensor.quantization is None else Tensor(tensor.name, tensor.shape, "float64")

    tensors = tuple(None if tensor is None else real(tensor) for tensor in call.tensors)
    return replace(call, tensors=tensors, result_tensors=tuple(map(real, call.result_tensors)))
