"""Reductions, global pools, softmax and normalizations on boxes: operators that mix whole axes.

Source: the ONNX operators of the same names. Sums are taken in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, cut
from lfopt.ops.boxes import broadcast_box
from lfopt.ops.call import Call
from lfopt.ops.contraction import has, present, wide
from lfopt.ops.footprint import folded_axis, needs
from lfopt.ops.parameters import lrn_reach, reduced_axes
from lfopt.ops.part import Operands, take

Axes = tuple[int, ...]


def _data(call: Call, operands: Operands, out: Box, result: int = 0) -> np.ndarray:
    return wide(take(present(operands, 0), needs(call, 0, out, result)))


def _within(call: Call, out: Box, values: np.ndarray) -> np.ndarray:
    """Of values that hold some axes of the result whole, the part that box `out` is."""
    return values[
        tuple(
            slice(None) if n == stop - start else slice(start, stop)
            for n, (start, stop) in zip(values.shape, out, strict=True)
        )
    ]


# -- reductions ----------------------------------------------------------------------------------------------


Each = Callable[[Call, np.ndarray], np.ndarray]  # done with every element


def _same(call: Call, x: np.ndarray) -> np.ndarray:
    return x


def _absolute(call: Call, x: np.ndarray) -> np.ndarray:
    return np.abs(x)


def _square(call: Call, x: np.ndarray) -> np.ndarray:
    return x * x


def _real(call: Call, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f":
        return x
    return x.astype(np.float64)


def _averaged(call: Call, x: np.ndarray) -> np.ndarray:
    return x / folded_elements(call)


def _power(call: Call, x: np.ndarray) -> np.ndarray:
    return np.abs(x) ** call.attribute("p", 2)


def _root(call: Call, x: np.ndarray) -> np.ndarray:
    return x ** (1 / call.attribute("p", 2))


class Reduction(NamedTuple):
    """A reduction: a function that folds elements in any order, and what is done before and after."""

    fold: np.ufunc
    before: Each = _same
    after: Each = _same


REDUCTIONS: dict[str, Reduction] = {
    "GlobalAveragePool": Reduction(np.add, _real, _averaged),
    "GlobalLpPool": Reduction(np.add, _power, _root),
    "GlobalMaxPool": Reduction(np.maximum),
    "ReduceL1": Reduction(np.add, _absolute),
    "ReduceL2": Reduction(np.add, _square, lambda call, x: np.sqrt(x)),
    "ReduceLogSum": Reduction(np.add, after=lambda call, x: np.log(x)),
    "ReduceMax": Reduction(np.maximum),
    "ReduceMean": Reduction(np.add, _real, _averaged),
    "ReduceMin": Reduction(np.minimum),
    "ReduceProd": Reduction(np.multiply),
    "ReduceSum": Reduction(np.add),
    "ReduceSumSquare": Reduction(np.add, _square),
}


def folded_elements(call: Call) -> int:
    """Elements that a reduction folds into one."""
    return prod(call.shape(0)[axis] for axis in _axes(call))


def _axes(call: Call) -> Axes:
    axes = reduced_axes(call)
    assert axes is not None, f"{call.operator.name}: nothing says which axes are folded"
    return tuple(axes)


def folded(call: Call, x: np.ndarray) -> np.ndarray:
    """x, shaped as its box, with the axes folded to extent 1, or dropped unless keepdims.

    Sums of floats are in float64.
    """
    row = REDUCTIONS[call.operator.kind]
    axes = _axes(call)
    x = row.before(call, x)
    exact = row.fold is np.add and x.dtype.kind == "f"
    reduced = row.fold.reduce(x, axis=axes, keepdims=True, dtype=np.float64 if exact else x.dtype)
    if call.attribute("keepdims", 1):
        return reduced
    return reduced.squeeze(axes)


def reduction(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Reductions and global pools, but for ReduceLogSumExp, shaped as box `out`."""
    return REDUCTIONS[call.operator.kind].after(call, folded(call, _data(call, operands, out)))


def partial_reduction(call: Call, operands: Operands, out: Box) -> np.ndarray:
    """Partial sums (or extremes) of the rows at hand, shaped as box `out`, not finished."""
    data = present(operands, 0)
    axis = folded_axis(call, 0)
    assert axis is not None, f"{call.operator.name}: it folds no rows"
    x = wide(take(data, cut(needs(call, 0, out), axis, data.box[axis])))
    reduced = folded(call, x)
    if x.dtype.kind == "f":
        return reduced.astype(x.dtype)
    return reduced


def finished_reduction(call: Call, folded: np.ndarray, operands: Operands, out: Box) -> np.ndarray:
    """The result, shaped as box `out`, once everything is folded."""
    return REDUCTIONS[call.operator.kind].after(call, folded)


def log_sum_exp(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """ReduceLogSumExp, moved by the largest element, shaped as box `out`."""
    x = _data(call, operands, out)
    axes = _axes(call)
    top = x.max(axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    logs = np.log(np.exp(x - top).sum(axis=axes, keepdims=True, dtype=np.float64)) + top
    if call.attribute("keepdims", 1):
        return logs
    return logs.squeeze(axes)


def arg_reduction(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """ArgMax, ArgMin, shaped as box `out`: index of the first (or last) extreme element.

    What is not a number is none, unless it stands first: nothing is larger or smaller than that. Source: ONNX
    Runtime.
    """
    values = _data(call, operands, out)
    axis = call.attribute("axis", 0) % values.ndim
    last = bool(call.attribute("select_last_index", 0))
    fold = np.fmax if call.operator.kind == "ArgMax" else np.fmin
    extreme = values == fold.reduce(values, axis=axis, keepdims=True)
    indices = np.argmax(np.flip(extreme, axis) if last else extreme, axis)
    indices = values.shape[axis] - 1 - indices if last else indices
    first = values.take(0, axis)
    indices = np.where(first == first, indices, 0)  # not a number is not equal to itself
    if call.attribute("keepdims", 1):
        return np.expand_dims(indices, axis)
    return indices


# -- along one axis ------------------------------------------------------------------------------------------


def softmax(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """Softmax, LogSoftmax, Hardmax along an axis, shaped as box `out`."""
    values = _data(call, operands, out)
    axis = call.attribute("axis", -1)
    if call.operator.kind == "Hardmax":
        hot = np.zeros_like(values)
        np.put_along_axis(hot, np.expand_dims(values.argmax(axis), axis), 1, axis)
        return _within(call, out, hot)
    shifted = values - values.max(axis=axis, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis=axis, keepdims=True)
    return _within(
        call, out, shifted - np.log(total) if call.operator.kind == "LogSoftmax" else powers / total
    )


def lp_normalization(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """x divided by its 1-norm or 2-norm along an axis, 0 where that is 0; shaped as box `out`."""
    values = _data(call, operands, out)
    axis = call.attribute("axis", -1)
    p = call.attribute("p", 2)
    norm = np.linalg.norm(values, p, axis, keepdims=True)
    return _within(call, out, np.where(norm == 0, 0, values / norm))


def cumulative(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """CumSum, CumProd from the start of the axis, or (reverse) from its end, shaped as box `out`.

    Exclusive: without the element itself.
    """
    values = take(present(operands, 0), needs(call, 0, out))
    axes = call.ints(1)
    assert axes is not None
    axis = axes[0] % values.ndim
    reverse = bool(call.attribute("reverse", 0))
    count = out[axis][1] - out[axis][0]
    values = np.flip(values, axis) if reverse else values
    function, nothing = CUMULATIVE[call.operator.kind]
    if call.attribute("exclusive", 0):
        before = np.full_like(values.take([0], axis), nothing)
        values = np.concatenate([before, values.take(range(values.shape[axis] - 1), axis)], axis)
    total = function.accumulate(values, axis, dtype=values.dtype)
    total = total[(*(slice(None),) * axis, slice(values.shape[axis] - count, None))]
    if reverse:
        return np.flip(total, axis)
    return total


# function, and what stands before the first element
CUMULATIVE: dict[str, tuple[np.ufunc, int]] = {"CumProd": (np.multiply, 1), "CumSum": (np.add, 0)}


def top_k(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """The k largest (smallest) elements along an axis, or their indices (result 1), shaped as box `out`.

    Best first; of equal ones, the lower index first.
    """
    values = take(present(operands, 0), needs(call, 0, out))
    axis = call.attribute("axis", -1) % values.ndim
    if call.attribute("largest", 1):  # the order of the flipped array, flipped: equal elements stay in order
        order = values.shape[axis] - 1 - np.flip(np.argsort(np.flip(values, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(values, axis, kind="stable")
    order = order[(*(slice(None),) * axis, slice(*out[axis]))]
    if result == 1:
        return order
    return np.take_along_axis(values, order, axis)


# -- normalizations ------------------------------------------------------------------------------------------


def layer_normalization(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """(x - mean) / deviation * scale + bias from an axis to the end, shaped as box `out`.

    Results 1 and 2 are the mean and 1 / deviation.
    """
    values = _data(call, operands, out, result)
    axes = tuple(range(call.attribute("axis", -1) % values.ndim, values.ndim))
    mean = values.mean(axis=axes, keepdims=True, dtype=np.float64)
    if result == 1:
        return mean
    centred = values - mean.astype(values.dtype)
    inverse = _inverse_deviation(centred, axes, call.attribute("epsilon", 1e-5))
    if result == 2:
        return inverse
    return _scaled(call, operands, out, _within(call, out, centred * inverse.astype(values.dtype)))


def rms_normalization(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """x / sqrt(mean of squares + epsilon) * scale, from an axis to the end, shaped as box `out`."""
    values = _data(call, operands, out)
    axes = tuple(range(call.attribute("axis", -1) % values.ndim, values.ndim))
    inverse = _inverse_deviation(values, axes, call.attribute("epsilon", 1e-5))
    return _scaled(call, operands, out, _within(call, out, values * inverse.astype(values.dtype)))


def _mean(x: np.ndarray, axes: Axes) -> np.ndarray:
    return x.mean(axis=axes, keepdims=True, dtype=np.float64)


def _inverse_deviation(centred: np.ndarray, axes: Axes, epsilon: float) -> np.ndarray:
    return 1 / np.sqrt(_mean(centred * centred, axes) + epsilon)


def _scaled(call: Call, operands: Operands, out: Box, values: np.ndarray) -> np.ndarray:
    values = values * wide(take(present(operands, 1), broadcast_box(call.shape(1), out)))
    if has(operands, 2):
        return values + wide(take(present(operands, 2), broadcast_box(call.shape(2), out)))
    return values


def batch_normalization(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """[n, c, *spatial]: (x - mean) / sqrt(variance + epsilon) * scale + bias per channel.

    With given statistics.
    """
    scale, bias, mean, variance = (
        take(present(operands, i), (out[1],)).astype(np.float64) for i in range(1, 5)
    )
    values = _data(call, operands, out)
    factor = scale / np.sqrt(variance + call.attribute("epsilon", 1e-5))
    column = (-1, *(1,) * (values.ndim - 2))
    return values * factor.astype(values.dtype).reshape(column) + (bias - mean * factor).astype(
        values.dtype
    ).reshape(column)


def instance_normalization(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """[n, c, *spatial]: each channel of each image normalized over its spatial axes, scaled per channel."""
    values = _data(call, operands, out)
    axes = tuple(range(2, values.ndim))
    return _within(
        call, out, _per_channel(operands, out, _normalized(values, axes, call.attribute("epsilon", 1e-5)))
    )


def group_normalization(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """[n, c, *spatial]: each group of channels normalized with the spatial axes, scaled per channel.

    As of opset 21.
    """
    box = needs(call, 0, out)
    values = wide(take(present(operands, 0), box))
    per_group = call.shape(0)[1] // call.attribute("num_groups", 1)
    grouped = values.reshape(values.shape[0], -1, per_group, *values.shape[2:])
    normal = _normalized(grouped, tuple(range(2, grouped.ndim)), call.attribute("epsilon", 1e-5)).reshape(
        values.shape
    )
    return _within(
        call, out, _per_channel(operands, out, normal[:, out[1][0] - box[1][0] : out[1][1] - box[1][0]])
    )


def _normalized(values: np.ndarray, axes: Axes, epsilon: float) -> np.ndarray:
    centred = values - _mean(values, axes).astype(values.dtype)
    return centred * _inverse_deviation(centred, axes, epsilon).astype(values.dtype)


def _per_channel(operands: Operands, out: Box, values: np.ndarray) -> np.ndarray:
    column = (-1, *(1,) * (values.ndim - 2))
    scale, bias = (wide(take(present(operands, i), (out[1],))).reshape(column) for i in (1, 2))
    return values * scale + bias


def mean_variance_normalization(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """(x - mean) / (deviation + 1e-9) over given axes, shaped as box `out`.

    Source: ONNX function MeanVarianceNormalization.
    """
    values = _data(call, operands, out)
    axes = tuple(axis % values.ndim for axis in call.attribute("axes", (0, 2, 3)))
    centred = values - _mean(values, axes).astype(values.dtype)
    deviation = np.sqrt(_mean(centred * centred, axes)) + 1e-9
    return _within(call, out, centred / deviation.astype(values.dtype))


def local_response(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """LRN, [n, c, *spatial]: x / (bias + alpha / size * sum of squares over nearby channels) ** beta."""
    box = needs(call, 0, out)
    values = wide(take(present(operands, 0), box))
    size, (low, high) = call.attribute("size", 1), lrn_reach(call)
    count = out[1][1] - out[1][0]
    # channels that the map does not have
    missing = box[1][0] - (out[1][0] - low), out[1][1] + high - box[1][1]
    squares = np.pad(values * values, [(0, 0), missing, *[(0, 0)] * (values.ndim - 2)])
    around = sum(squares[:, i : i + count] for i in range(size))
    factor = (call.attribute("bias", 1.0) + call.attribute("alpha", 1e-4) / size * around) ** -call.attribute(
        "beta", 0.75
    )
    return values[:, out[1][0] - box[1][0] : out[1][1] - box[1][0]] * factor
