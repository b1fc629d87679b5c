"""Pools on boxes. Padding is worked out from where the box lies in the map.

Source: ONNX operators MaxPool, AveragePool, LpPool. Windows that ceil_mode lets reach past the padded map are
cut off at its end; what count_include_pad counts is the window within the padded map, as in ONNX Runtime.
Global pools are in `lfopt.ops.reducing`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from lfopt.ir import Box, box_shape
from lfopt.ops.call import Call
from lfopt.ops.contraction import padded, present, tapped
from lfopt.ops.footprint import needs
from lfopt.ops.part import Operands, Part
from lfopt.ops.windows import Window, windows

Fold = Callable[..., np.ndarray]


def max_pool(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """[n, c, *spatial]: the largest element of each window, or its index in the whole input (result 1).

    Indices are of the flattened input.
    """
    if result == 1:
        return _max_indices(call, operands, out)
    data = present(operands, 0)
    sliding = _trimmed(call, out)
    patch = padded(data, needs(call, 0, out), out, sliding, _lowest(data.values.dtype))
    return _folded(patch, sliding, box_shape(out)[2:], np.maximum)


def _trimmed(call: Call, out: Box) -> tuple[Window, ...]:
    return tuple(window.trimmed(span) for window, span in zip(windows(call), out[2:], strict=True))


def _lowest(dtype: np.dtype) -> float:
    if dtype.kind == "f":
        return float(np.finfo(dtype).min)
    return int(np.iinfo(dtype).min)


def _folded(patch: np.ndarray, sliding: tuple[Window, ...], size: tuple[int, ...], fold: Fold) -> np.ndarray:
    """Fold the taps of every window into one element, one axis after the other."""
    for axis, (window, count) in enumerate(zip(sliding, size, strict=True)):
        lead = (slice(None),) * (2 + axis)
        taps = (
            patch[
                (
                    *lead,
                    slice(
                        j * window.dilation,
                        j * window.dilation + (count - 1) * window.stride + 1,
                        window.stride,
                    ),
                )
            ]
            for j in range(window.kernel)
        )
        total = next(taps)
        if window.kernel > 1:
            total = total.copy()
        for tap in taps:
            fold(total, tap, out=total)
        patch = total
    return patch


def _max_indices(call: Call, operands: Operands, out: Box) -> np.ndarray:
    """The first of the largest elements, in the order of the window's elements.

    Source: MaxPool, storage_order (1: columns first).
    """
    data = present(operands, 0)
    sliding = _trimmed(call, out)
    size = box_shape(out)[2:]
    patch = padded(data, needs(call, 0, out), out, sliding, _lowest(data.values.dtype))
    valid = padded(Part(np.ones(box_shape(data.box), bool), data.box), needs(call, 0, out), out, sliding)
    best = np.full(box_shape(out), _lowest(data.values.dtype), data.values.dtype)
    taken = np.zeros(box_shape(out), bool)
    shape = call.shape(0)
    order = range(2, len(shape)) if call.attribute("storage_order", 0) else range(len(shape) - 1, 1, -1)
    steps = {0: shape[1] * int(np.prod(shape[2:])), 1: int(np.prod(shape[2:]))}
    step = 1
    for axis in order:
        steps[axis], step = step, step * shape[axis]
    origin = sum(
        np.arange(*out[axis]).reshape(-1, *(1,) * (len(shape) - axis - 1)) * steps[axis] for axis in (0, 1)
    )
    # Of a window that lies in padding alone: index -1 along every spatial axis, as ONNX Runtime has it.
    place = np.broadcast_to(origin - sum(steps[axis] for axis in range(2, len(shape))), box_shape(out))
    for tap in product(*(range(window.kernel) for window in sliding)):
        here = origin
        for axis, (window, j) in enumerate(zip(sliding, tap, strict=True), 2):
            position = np.arange(*out[axis]) * window.stride - window.pad + j * window.dilation
            here = here + position.reshape(-1, *(1,) * (len(shape) - axis - 1)) * steps[axis]
        values = tapped(patch, sliding, tap, size)
        better = tapped(valid, sliding, tap, size) & ((values > best) | ~taken)
        best = np.where(better, values, best)
        place = np.where(better, here, place)
        taken = taken | better
    return place


def average_pool(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """[n, c, *spatial]: the mean of each window, over all its elements or over those within the map."""
    data = present(operands, 0)
    sliding = _trimmed(call, out)
    total = _folded(padded(data, needs(call, 0, out), out, sliding), sliding, box_shape(out)[2:], np.add)
    include = bool(call.attribute("count_include_pad", 0))
    for axis, (window, span) in enumerate(zip(windows(call), out[2:], strict=True), 2):
        counts = np.maximum(window.covered(span, padded=include), 1)
        total = total / counts.astype(total.dtype).reshape(-1, *(1,) * (len(out) - axis - 1))
    return total


def lp_pool(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """[n, c, *spatial]: the p-norm of each window."""
    data = present(operands, 0)
    sliding = _trimmed(call, out)
    p = call.attribute("p", 2)
    patch = np.abs(padded(data, needs(call, 0, out), out, sliding)) ** p
    return _folded(patch, sliding, box_shape(out)[2:], np.add) ** (1 / p)
