"""Resize: which input elements each output element is made of, axis by axis, and with which weights.

Source: ONNX operator Resize; positions along an axis are those of `lfopt.ops.rows`, so that values and row rules agree by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, Span
from lfopt.ops.call import Call
from lfopt.ops.part import Part, take
from lfopt.ops.rows import COORDINATES, ROUNDING

LENGTH_TOLERANCE = 1e-3  # of a length that float32 scales give


class Taps(NamedTuple):
    """One axis. `t` is the number of taps of every output element."""

    indices: np.ndarray  # (size_out, t) intp, within the map
    weights: np.ndarray  # (size_out, t) float64
    outside: np.ndarray | None  # (size_out,) bool: takes the extrapolation value; None: nowhere


class Axis(NamedTuple):
    """What decides the taps of one axis."""

    size: int
    size_out: int
    scale: float
    region: tuple[float, float] | None  # start and end, for tf_crop_and_resize
    mode: str
    coordinates: str
    nearest_mode: str
    cubic_coefficient: float
    exclude_outside: bool
    antialias: bool


def resize(call: Call, operands: Sequence[Part | None], out: Box, result: int) -> np.ndarray:
    """Values of box `out`: nearest, linear or cubic interpolation, one axis after the other."""
    part = operands[0]
    assert part is not None
    values = take(part, tuple(tap_span(call, axis, span) for axis, span in enumerate(out)))
    dtype, beyond = values.dtype, None
    for axis, span in enumerate(out):
        taps = axis_taps(call, axis)
        if taps is None:
            continue
        indices = taps.indices[slice(*span)]
        values = _interpolated(values, indices - indices.min(), taps.weights[slice(*span)], axis)
        if taps.outside is not None:
            edge = taps.outside[slice(*span)].reshape(-1, *(1,) * (len(out) - axis - 1))
            beyond = edge if beyond is None else beyond | edge
    if beyond is not None:
        values = np.where(beyond, call.attribute("extrapolation_value", 0.0), values)
    return values.astype(dtype, copy=False)


def _interpolated(values: np.ndarray, indices: np.ndarray, weights: np.ndarray, axis: int) -> np.ndarray:
    """indices, weights: (out, t)."""
    if indices.shape[1] == 1:
        return values.take(indices[:, 0], axis)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32)
    weights = weights.astype(values.dtype)
    column = (-1, *(1,) * (values.ndim - axis - 1))
    total = values.take(indices[:, 0], axis) * weights[:, 0].reshape(column)
    for t in range(1, indices.shape[1]):
        total += values.take(indices[:, t], axis) * weights[:, t].reshape(column)
    return total


def tap_span(call: Call, axis: int, span: Span) -> Span:
    """Input span that an output span of an axis reads; all of it where values that decide are not at hand."""
    if not _known(call):
        return 0, call.shape(0)[axis]
    taps = axis_taps(call, axis)
    if taps is None:
        return span
    indices = taps.indices[slice(*span)]
    return int(indices.min()), int(indices.max()) + 1


def _known(call: Call) -> bool:
    return all(call.values[i] is not None for i in (1, 2, 3) if call.has(i))


def axis_taps(call: Call, axis: int) -> Taps | None:
    """Taps of one axis; None if the axis stays as it is."""
    size, size_out = call.shape(0)[axis], call.result[axis]
    scale, region = _scale_and_region(call, axis)
    if scale == 1.0 and size == size_out and region is None:
        return None
    coordinates = call.attribute("coordinate_transformation_mode", "half_pixel")
    return _taps(
        Axis(
            size,
            size_out,
            scale,
            region,
            call.attribute("mode", "nearest"),
            coordinates,
            call.attribute("nearest_mode", "round_prefer_floor"),
            call.attribute("cubic_coeff_a", -0.75),
            bool(call.attribute("exclude_outside", 0)),
            bool(call.attribute("antialias", 0)),
        )
    )


def disputed(call: Call) -> bool:
    """Whether corners are aligned to a length that is not whole: ONNX's reference takes it as it is, ONNX Runtime and this module round it down."""
    if call.attribute("coordinate_transformation_mode", "half_pixel") != "align_corners" or call.attribute("mode", "nearest") == "nearest":
        return False
    lengths = [size * _scale_and_region(call, axis)[0] for axis, size in enumerate(call.shape(0))]
    return any(abs(length - made) > LENGTH_TOLERANCE for length, made in zip(lengths, call.result, strict=True))


def _scale_and_region(call: Call, axis: int) -> tuple[float, tuple[float, float] | None]:
    """Scale as given or as the sizes say, and the region of interest if there is one."""
    shape = call.shape(0)
    axes = tuple(a % len(shape) for a in call.attribute("axes", tuple(range(len(shape)))))
    if axis not in axes:
        return 1.0, None
    place, region = axes.index(axis), None
    if call.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        region = _value(call, 1, place), _value(call, 1, place + len(axes))
    if call.has(2) and call.shape(2) != (0,):
        return _value(call, 2, place), region
    policy, sizes = call.attribute("keep_aspect_ratio_policy", "stretch"), call.ints(3)
    if policy == "stretch" or sizes is None:
        return call.result[axis] / shape[axis], region
    ratios = [size / shape[a] for a, size in zip(axes, sizes, strict=True)]
    return (min if policy == "not_larger" else max)(ratios), region


def _value(call: Call, index: int, place: int) -> float:
    values = call.values[index]
    assert values is not None
    return float(values.reshape(-1)[place])


@lru_cache(maxsize=1024)
def _taps(axis: Axis) -> Taps:
    positions = [_position(axis, r) for r in range(axis.size_out)]
    indices: list[list[int]] = []
    weights: list[list[float]] = []
    for x in positions:
        first, found = _kernel(axis, x)
        places = range(first, first + len(found))
        if axis.exclude_outside:
            found = [w if 0 <= place < axis.size else 0.0 for place, w in zip(places, found, strict=True)]
            found = [w / (sum(found) or 1.0) for w in found]
        indices.append([min(max(place, 0), axis.size - 1) for place in places])
        weights.append(found)
    outside = np.array([not 0 <= x <= axis.size - 1 for x in positions])
    return Taps(np.array(indices, np.intp), np.array(weights), outside if axis.region is not None and outside.any() else None)


def _position(axis: Axis, r: int) -> float:
    """Input coordinate of output index r."""
    if axis.region is None:
        return COORDINATES[axis.coordinates](float(r), axis.scale, axis.size, axis.size_out)
    start, end = axis.region
    if axis.size_out == 1:
        return 0.5 * (start + end) * (axis.size - 1)
    return start * (axis.size - 1) + r * (end - start) * (axis.size - 1) / (axis.size_out - 1)


def _kernel(axis: Axis, x: float) -> tuple[int, list[float]]:
    """(index of the first tap, weights of it and those behind it), before anything is cut off at the ends."""
    if axis.mode == "nearest":
        return ROUNDING[axis.nearest_mode](x), [1.0]
    base, stretch = floor(x), min(axis.scale, 1.0) if axis.antialias else 1.0
    reach = ceil((1 if axis.mode == "linear" else 2) / stretch)
    places = range(base - reach + 1, base + reach + 1)
    shape = _hat if axis.mode == "linear" else _cubic
    found = [shape((place - x) * stretch, axis.cubic_coefficient) for place in places]
    return places[0], [w / sum(found) for w in found] if axis.antialias else found


def _hat(x: float, _: float) -> float:
    return max(1.0 - abs(x), 0.0)


def _cubic(x: float, a: float) -> float:
    """Keys' cubic convolution. Source: ONNX operator Resize, attribute cubic_coeff_a."""
    x = abs(x)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((x - 5) * x + 8) * x * a - 4 * a if x < 2 else 0.0
