"""What normalizations in two passes compute: statistics of a part, of two parts, and elements from them.

See `lfopt.ops.statistics`. All is computed in float64, and kept in float32 for narrower types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box
from lfopt.ops.boxes import broadcast_box
from lfopt.ops.call import Call
from lfopt.ops.contraction import has, present, wide
from lfopt.ops.part import Operands, take
from lfopt.ops.statistics import WIDTHS, channels_together, normalized_axes, state_box


class Statistic(NamedTuple):
    """What is kept of the elements that are normalized together."""

    gather: Callable[[Call, np.ndarray], np.ndarray]  # (state, elements), float64 -> (state, width)
    merge: Callable[[np.ndarray, np.ndarray], np.ndarray]  # of two disjoint parts, (..., width) each


def _moments(call: Call, x: np.ndarray) -> np.ndarray:
    mean = x.mean(-1)
    return np.stack([np.full_like(mean, x.shape[-1]), mean, ((x - mean[..., None]) ** 2).sum(-1)], -1)


def _merged_moments(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Source: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for sample variances."""
    (n, mean, squares), (m, second, more) = np.moveaxis(one, -1, 0), np.moveaxis(other, -1, 0)
    count = n + m
    apart = second - mean
    return np.stack([count, mean + apart * m / count, squares + more + apart**2 * n * m / count], -1)


def _powers(call: Call, x: np.ndarray) -> np.ndarray:
    first = call.operator.kind == "LpNormalization" and call.attribute("p", 2) == 1
    return (np.abs(x) if first else x * x).sum(-1)[..., None]


def _exponentials(call: Call, x: np.ndarray) -> np.ndarray:
    most = x.max(-1)
    return np.stack([most, np.exp(x - _finite(most)[..., None]).sum(-1)], -1)


def _merged_exponentials(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    (most, total), (second, more) = np.moveaxis(one, -1, 0), np.moveaxis(other, -1, 0)
    largest = np.maximum(most, second)
    shift = _finite(largest)
    scaled = total * np.exp(_finite(most) - shift) + more * np.exp(_finite(second) - shift)
    return np.stack([largest, scaled], -1)


def _finite(most: np.ndarray) -> np.ndarray:
    """What exponents are moved by: of elements that are all minus infinity, nothing."""
    return np.where(np.isneginf(most), 0, most)


MOMENTS = Statistic(_moments, _merged_moments)
POWERS = Statistic(_powers, np.add)
EXPONENTIALS = Statistic(_exponentials, _merged_exponentials)
BY_WIDTH = {3: MOMENTS, 1: POWERS, 2: EXPONENTIALS}


def accumulate(call: Call, operands: Operands, out: Box, part: Box) -> np.ndarray:
    """Statistics of box `part` of operand 0, shaped as `state_box` says."""
    x = take(present(operands, 0), part).astype(np.float64)
    box = state_box(call, out)
    axes = normalized_axes(call)
    together = channels_together(call)
    if together > 1:
        x = x.reshape(x.shape[0], -1, together, *x.shape[2:])
        folded = (2, *(axis + 1 for axis in axes))
    else:
        folded = axes
    kept = [axis for axis in range(x.ndim) if axis not in folded]
    flat = x.transpose(*kept, *folded).reshape(*(x.shape[axis] for axis in kept), -1)
    state = BY_WIDTH[WIDTHS[call.operator.kind]].gather(call, flat)
    shape = tuple(stop - start for start, stop in box)
    return state.reshape(shape).astype(_type(call))


def merge(call: Call, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Statistics of two disjoint parts as one, shaped as both are."""
    merged = BY_WIDTH[WIDTHS[call.operator.kind]].merge(one.astype(np.float64), other.astype(np.float64))
    return merged.astype(_type(call))


def _type(call: Call) -> str:
    if call.result_tensors[0].dtype == "float64":
        return "float64"
    return "float32"


def finish(call: Call, state: np.ndarray, operands: Operands, out: Box) -> np.ndarray:
    """Values of box `out`, shaped as it, in float32 or float64; `state`: as `state_box` says."""
    x = take(present(operands, 0), out).astype(np.float64)
    kind = call.operator.kind
    together = channels_together(call)
    numbers = [np.asarray(n, np.float64) for n in np.moveaxis(state, -1, 0)]
    if together > 1:
        (start, stop), first = out[1], out[1][0] // together
        group = np.arange(start, stop) // together - first
        numbers = [n[:, group] for n in numbers]
    if kind in ("Softmax", "LogSoftmax"):
        most, total = numbers
        values = x - most - np.log(total) if kind == "LogSoftmax" else np.exp(x - most) / total
    elif kind == "LpNormalization":
        norm = numbers[0] if call.attribute("p", 2) == 1 else np.sqrt(numbers[0])
        values = np.where(norm == 0, 0, x / norm)
    elif kind == "RMSNormalization":
        count = np.prod([call.shape(0)[axis] for axis in normalized_axes(call)], dtype=np.int64)
        values = x / np.sqrt(numbers[0] / count + call.attribute("epsilon", 1e-5))
    else:
        count, mean, squares = numbers
        variance = squares / count
        if kind == "MeanVarianceNormalization":
            return (x - mean) / (np.sqrt(variance) + 1e-9)
        values = (x - mean) / np.sqrt(variance + call.attribute("epsilon", 1e-5))
    return _scaled(call, operands, out, values)


def _scaled(call: Call, operands: Operands, out: Box, values: np.ndarray) -> np.ndarray:
    """The values times operand 1, plus operand 2, where there are any."""
    for index, scale in ((1, np.multiply), (2, np.add)):
        if has(operands, index):
            if call.operator.kind in ("InstanceNormalization", "GroupNormalization"):
                column = (-1, *(1,) * (values.ndim - 2))
                factor = wide(take(present(operands, index), (out[1],))).reshape(column)
            else:
                factor = wide(take(present(operands, index), broadcast_box(call.shape(index), out)))
            values = scale(values, factor)
    return values
