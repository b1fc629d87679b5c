"""Arithmetic on quantised maps, in integers: execution, C code and accelerator compute the same bits.

An operator belongs here if its first result has a quantization. How it is computed, its row says, and
`arithmetic` whether its operands allow it:

    SUMS     Conv, ConvTranspose, Gemm, MatMul: int32 sums of (x - zero) * (w - zero), bias added, scaled per
             channel, rounded once, zero point added, saturated. That no sum leaves int32 is proven from the
             weights beforehand.
    TABLE    any function of one byte: 256 entries, indexed by the byte; computed in float64, rounded as
             QuantizeLinear rounds (halves to even)
    TERMS    Add, Sub, Sum, Mean: operands over a common fixed point, an int32 sum, rounded once
    PRODUCT  Mul: (a - zero) * (b - zero), scaled, rounded once
    SLOPES   PRelu: x - zero, scaled by one factor where it is positive and by its channel's where it is
             negative
    MEAN     AveragePool, GlobalAveragePool, ReduceMean, ReduceSum: int32 sum of (x - zero), scaled by a
             factor that holds the count of the window
    EXTREME  MaxPool, GlobalMaxPool, ReduceMax, ReduceMin: on the integers, then a table where the scale
             changes
    CHOICE   Max, Min, Where, Concat, Pad: every operand through a table to the result's scale, then chosen or
             laid side by side
    MOVE     everything else that only moves elements: moved as bytes, then a table where the scale changes
    FLOAT    all others (Softmax, LayerNormalization, Div of maps, linear Resize, ...): dequantised, computed
             in float64, quantised. The accelerator does not do these.

Rounding of sums, and the width of multipliers, are those of `lfopt.ops.fixed_point`. All but FLOAT is exactly
associative, so a result is the same bits whether it is made whole or piece by piece. Source: the ONNX
operators of the same names, QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lfopt.ir import Box, box_shape, slices
from lfopt.ops import floating
from lfopt.ops.arithmetic import (
    CHOICE,
    EXTREME,
    FLOAT,
    MEAN,
    MOVE,
    PRODUCT,
    SLOPES,
    TABLE,
    TERMS,
    arithmetic,
    in_bytes,
)
from lfopt.ops.call import Call
from lfopt.ops.contraction import present
from lfopt.ops.evaluate import evaluate
from lfopt.ops.fixed_point import Multipliers, averaged, quantized, requantized, rounded, saturated, scaled
from lfopt.ops.footprint import needs
from lfopt.ops.part import Operands, Part, is_empty, take
from lfopt.ops.reducing import folded, folded_elements, partial_reduction
from lfopt.ops.scaling import (
    bias_in_units,
    channel_axes,
    mean_factors,
    padding,
    product_factors,
    recoding,
    requantization,
    slopes,
    sum_terms,
    table,
    window_counts,
)
from lfopt.ops.stored import centred, centred_ints, in_floats, quantization, real_operands, zero_of
from lfopt.ops.table import row_of
from lfopt.ops.traits import Arithmetic, Family, Tiling
from lfopt.ops.windows import windows

Method = Callable[[Call, Operands, tuple[Box, ...], int], tuple[np.ndarray, ...]]


# -- the three functions of `lfopt.ops.compute` --------------------------------------------------------------


def compute(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """Stored integers of one box per output, each shaped as its box; see `lfopt.ops.compute.compute`.

    Raises UnsupportedModel where an int32 sum could overflow, or a ratio of scales is beyond what multipliers
    hold.
    """
    if row_of(call).tiling is Tiling.CONTRACT and not is_empty(out[0]):
        return (finish(call, accumulate(call, operands, out[0], opset), operands, out[0]),)
    if all(map(is_empty, out)):
        return tuple(
            np.empty(box_shape(box), tensor.dtype)
            for box, tensor in zip(out, call.result_tensors, strict=False)
        )
    return METHODS[arithmetic(call)](call, operands, out, opset)


def adds_up(call: Call) -> bool:
    """Whether partial results of a reduction merge to the same integers however it is parted."""
    return arithmetic(call) in (MEAN, EXTREME)


def accumulate(call: Call, operands: Operands, out: Box, opset: int) -> np.ndarray:
    """int32 partial sums of box `out`, shaped as it: (x - zero) * (w - zero) over the input channels at hand.

    Without bias; float64 where `arithmetic` is FLOAT.

    Sums over disjoint spans of the input channels add up to the same integers in any order. Of a reduction:
    int32 partial sums of (x - zero), or extremes of x, over the rows at hand.
    """
    how = arithmetic(call)
    if how is FLOAT:
        return floating.accumulate(in_floats(call), real_operands(call, operands), out, opset)
    if how is EXTREME:
        return partial_reduction(call, operands, out)
    if how is MEAN:
        return partial_reduction(call, [centred(operands[0], call.tensors[0], "int32")], out).astype(np.int32)
    scaling = requantization(call)
    centred_operands = [
        centred(part, tensor, scaling.exact) for part, tensor in zip(operands[:2], call.tensors, strict=False)
    ]
    return floating.accumulate(call, centred_operands, out, opset).astype(np.int32)


def finish(call: Call, sums: np.ndarray, operands: Operands, out: Box) -> np.ndarray:
    """Stored integers of box `out`, shaped as it, from finished sums.

    That is: bias, scaling, rounding, zero point, saturation.
    """
    result = call.result_tensors[0]
    how = arithmetic(call)
    if how is FLOAT:
        return quantized(
            floating.finish(in_floats(call), sums, real_operands(call, operands), out),
            quantization(result),
            result.dtype,
        )
    if how is EXTREME:
        assert call.tensors[0] is not None
        return _recoded(sums, recoding(call.tensors[0], result))
    if how is MEAN:
        return _mean(call, sums, np.array(folded_elements(call)))
    scaling = requantization(call)
    total = sums.astype(np.int64) + bias_in_units(
        call, operands[2] if len(operands) > 2 else None, out, scaling.unit
    )
    axis, _ = channel_axes(call)
    if scaling.by.shift.ndim == 0:
        by = scaling.by
    else:
        by = Multipliers(*(_column(f, out, axis) for f in scaling.by))
    return requantized(total, by, scaling.zero_point, result.dtype)


def _column(values: np.ndarray, out: Box, axis: int) -> np.ndarray:
    """Values per channel, cut to box `out` and shaped to broadcast against it."""
    axis %= len(out)
    return values[slice(*out[axis])].reshape(-1, *(1,) * (len(out) - axis - 1))


def _recoded(values: np.ndarray, by: np.ndarray | None) -> np.ndarray:
    if by is None:
        return values
    return by[values.view(np.uint8)]


# -- the other kinds -----------------------------------------------------------------------------------------


def _single(make: Callable[[Call, Operands, Box], np.ndarray]) -> Method:
    """A method of an operator with one result."""

    def method(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
        return (make(call, operands, out[0]),)

    return method


def _by_table(call: Call, operands: Operands, out: Box) -> np.ndarray:
    index = next(i for i, part in enumerate(operands) if part is not None and not call.constant[i])
    return _recoded(take(present(operands, index), out), table(call))


def _by_terms(call: Call, operands: Operands, out: Box) -> np.ndarray:
    terms = sum_terms(call)
    result = call.result_tensors[0]
    total = np.zeros((), np.int64)
    for i, multiplier in enumerate(terms.multipliers):
        total = total + multiplier * centred_ints(call, operands, i, needs(call, i, out))
    return saturated(rounded(total, terms.shift) + zero_of(result), result.dtype)


def _by_product(call: Call, operands: Operands, out: Box) -> np.ndarray:
    a, b = (centred_ints(call, operands, i, needs(call, i, out)) for i in (0, 1))
    result = call.result_tensors[0]
    return requantized(a * b, product_factors(call), zero_of(result), result.dtype)


def _by_slopes(call: Call, operands: Operands, out: Box) -> np.ndarray:
    rates = slopes(call)
    result = call.result_tensors[0]
    box = slices(needs(call, 1, out))
    x = centred_ints(call, operands, 0, needs(call, 0, out))
    negative = scaled(x * rates.sign[box], Multipliers(*(f[box] for f in rates.negative)))
    return saturated(np.where(x < 0, negative, scaled(x, rates.positive)) + zero_of(result), result.dtype)


def _by_mean(call: Call, operands: Operands, out: Box) -> np.ndarray:
    x = centred_ints(call, operands, 0, box := needs(call, 0, out))
    if row_of(call).family is Family.POOL:
        return _mean(call, *_window_sums(call, x, box, out))
    return _mean(call, folded(call, x), np.array(folded_elements(call)))


def _mean(call: Call, total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Sums of so many elements, averaged (but for ReduceSum) and scaled."""
    result = call.result_tensors[0]
    return saturated(averaged(total, mean_factors(call, count)) + zero_of(result), result.dtype)


def _window_sums(call: Call, x: np.ndarray, box: Box, out: Box) -> tuple[np.ndarray, np.ndarray]:
    """(sums of each window, elements of each window that count), axis by axis.

    What a window holds of the padding is 0.
    """
    total = x.astype(np.float64)  # exact: far below 2**53
    for axis, (window, span) in enumerate(zip(windows(call), out[2:], strict=True), 2):
        taps = (
            np.arange(*span)[:, None] * window.stride
            - window.pad
            + np.arange(window.kernel) * window.dilation
        )
        inside = np.zeros((len(taps), x.shape[axis]))
        outs, places = np.nonzero((taps >= box[axis][0]) & (taps < box[axis][1]))
        np.add.at(inside, (outs, taps[outs, places] - box[axis][0]), 1)
        total = np.moveaxis(np.tensordot(total, inside, (axis, 1)), -1, axis)
    return total.astype(np.int64), window_counts(call, out)


def _moved(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """Computed on the bytes as they are, then brought to the result's scale."""
    source = call.tensors[0]
    assert source is not None
    moved = _on_integers(call, operands, out, opset)
    return tuple(
        _recoded(values, recoding(source, result))
        if result.quantization is not None
        else values.astype(result.dtype, copy=False)
        for values, result in zip(moved, call.result_tensors, strict=False)
    )


def _chosen(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """Every operand brought to the result's scale, then chosen from."""
    result = call.result_tensors[0]
    given = list(operands)
    for i, (part, tensor) in enumerate(zip(operands, call.tensors, strict=True)):
        if part is not None and in_bytes(tensor) and tensor is not None:
            given[i] = Part(_recoded(part.values, recoding(tensor, result)), part.box)
    if call.operator.kind == "Pad":  # ONNX pads with a real number: 0, unless it is given
        given = [*given, None][:3] if len(given) < 3 else given
        given[2] = Part(padding(call), ())
    return _on_integers(call, given, out, opset)


def _by_floats(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """Dequantised, computed in float64, quantised."""
    real = real_operands(call, operands)
    if call.operator.kind == "QuantizeLinear":
        computed = (present(real, 0).values[slices(out[0], present(real, 0).box)],)
    else:
        computed = None
    computed = computed or _on_integers(in_floats(call), real, out, opset)
    return tuple(
        values.astype(result.dtype, copy=False)
        if result.quantization is None
        else quantized(values, result.quantization, result.dtype)
        for values, result in zip(computed, call.result_tensors, strict=False)
    )


def _on_integers(call: Call, operands: Operands, out: tuple[Box, ...], opset: int) -> tuple[np.ndarray, ...]:
    """What the operator makes of the operands' own numbers, whatever they stand for."""
    kernel = floating.KERNELS.get(call.operator.kind)
    asked = [k for k, name in enumerate(call.operator.outputs) if name]
    if kernel is None:
        evaluated = evaluate(
            call.operator, [None if part is None else part.values for part in operands], opset
        )
        return tuple(values[slices(box)] for values, box in zip(evaluated, out, strict=True))
    with np.errstate(all="ignore"):
        return tuple(
            np.empty(box_shape(box), present(operands, 0).values.dtype)
            if is_empty(box)
            else kernel(call, operands, box, result)
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
