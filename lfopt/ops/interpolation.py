"""Interpolation along one axis of a Resize: input elements and weights of each output element.

Positions are exact: every coordinate transformation is affine in the output index, with rational
coefficients, so a position is an integer over a denominator that the whole axis shares. What is rounded,
floored or found to lie outside the map is decided on these integers; weights alone become floating-point
numbers, each from an exact distance. Where ONNX Runtime and ONNX's reference, which compute positions in
floating point, differ from this and from each other: docs/resize.md.

Source: ONNX operator Resize, attributes coordinate_transformation_mode, nearest_mode, mode, antialias,
exclude_outside.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import ceil, lcm
from typing import NamedTuple

import numpy as np

from lfopt.ops import rows
from lfopt.ops.rows import RowReads


class AxisTaps(NamedTuple):
    """One axis. `t` is the number of taps of every output element."""

    indices: np.ndarray  # (size_out, t) intp, within the map
    weights: np.ndarray  # (size_out, t) float64
    outside: np.ndarray | None  # (size_out,) bool: takes the extrapolation value; None: nowhere


class ResizedAxis(NamedTuple):
    """What decides the taps of one axis."""

    size: int
    size_out: int
    scale: Fraction
    region: tuple[Fraction, Fraction]  # start and end, for tf_crop_and_resize; 1: the last element
    mode: str
    coordinates: str
    nearest_mode: str
    cubic_coefficient: float
    exclude_outside: bool
    antialias: bool


class Line(NamedTuple):
    """Positions, in input elements: first + r * step for output index r."""

    first: Fraction
    step: Fraction


@lru_cache(maxsize=1024)
def taps(axis: ResizedAxis) -> AxisTaps:
    """Taps of an axis, cut off at the ends of the map."""
    positions, unit = _positions(axis)
    if axis.mode == "nearest":
        nearest = ROUNDING[axis.nearest_mode]
        places = np.array([[nearest(p, unit)] for p in positions])
        weights = np.ones(places.shape)
    else:
        places, weights = _weighed(axis, positions, unit)
    beyond = np.array([not 0 <= p <= (axis.size - 1) * unit for p in positions])
    outside = beyond if axis.coordinates == "tf_crop_and_resize" and beyond.any() else None
    return AxisTaps(places.clip(0, axis.size - 1).astype(np.intp), weights, outside)


@lru_cache(maxsize=1024)
def reads(axis: ResizedAxis) -> RowReads:
    """Rows that the taps of the row axis read, all between the outermost two."""
    indices = taps(axis).indices
    return rows.mapped(
        axis.size, tuple(zip(indices.min(axis=1).tolist(), indices.max(axis=1).tolist(), strict=True))
    )


def _positions(axis: ResizedAxis) -> tuple[list[int], int]:
    """Position of every output element as an integer, and how many of these make one input element."""
    first, step = COORDINATES[axis.coordinates](axis)
    unit = lcm(first.denominator, step.denominator)
    start = int(first * unit)
    move = int(step * unit)
    return [start + r * move for r in range(axis.size_out)], unit


def _weighed(axis: ResizedAxis, positions: list[int], unit: int) -> tuple[np.ndarray, np.ndarray]:
    """(size_out, t) indices, beyond the ends of the map too, and weights."""
    stretch = min(axis.scale, Fraction(1)) if axis.antialias else Fraction(1)
    reach = ceil((1 if axis.mode == "linear" else 2) / stretch)
    offsets = range(1 - reach, reach + 1)
    places = np.array([[p // unit + k for k in offsets] for p in positions])
    above = stretch.numerator
    below = stretch.denominator * unit
    # each rounded once
    distances = np.array([[(k * unit - p % unit) * above / below for k in offsets] for p in positions])
    weights = _hat(distances) if axis.mode == "linear" else _cubic(distances, axis.cubic_coefficient)
    if axis.antialias:
        weights /= weights.sum(axis=1, keepdims=True)
    if axis.exclude_outside:
        weights[(places < 0) | (places >= axis.size)] = 0.0
        total = weights.sum(axis=1, keepdims=True)
        weights /= np.where(total == 0, 1.0, total)
    return places, weights


def _hat(x: np.ndarray) -> np.ndarray:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution. Source: ONNX operator Resize, attribute cubic_coeff_a."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.where(x <= 1, near, np.where(x < 2, ((x - 5) * x + 8) * x * a - 4 * a, 0.0))


# -- positions -----------------------------------------------------------------------------------------------

_HALF = Fraction(1, 2)


def _half_pixel(axis: ResizedAxis) -> Line:
    return Line(_HALF / axis.scale - _HALF, 1 / axis.scale)


def _half_pixel_symmetric(axis: ResizedAxis) -> Line:
    first, step = _half_pixel(axis)
    return Line(first + Fraction(axis.size, 2) * (1 - axis.size_out / (axis.scale * axis.size)), step)


def _pytorch_half_pixel(axis: ResizedAxis) -> Line:
    if axis.size_out > 1:
        return _half_pixel(axis)
    return Line(Fraction(0), Fraction(0))


def _align_corners(axis: ResizedAxis) -> Line:
    return Line(Fraction(0), Fraction(axis.size - 1, max(axis.size_out - 1, 1)))


def _asymmetric(axis: ResizedAxis) -> Line:
    return Line(Fraction(0), 1 / axis.scale)


def _tf_half_pixel_for_nn(axis: ResizedAxis) -> Line:
    return Line(_HALF / axis.scale, 1 / axis.scale)


def _tf_crop_and_resize(axis: ResizedAxis) -> Line:
    start, end = (place * (axis.size - 1) for place in axis.region)
    if axis.size_out > 1:
        return Line(start, (end - start) / (axis.size_out - 1))
    return Line((start + end) / 2, Fraction(0))


COORDINATES: dict[str, Callable[[ResizedAxis], Line]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,  # opsets 11 and 12
    "tf_crop_and_resize": _tf_crop_and_resize,
}
ROUNDING: dict[str, Callable[[int, int], int]] = {  # of position p / unit
    "round_prefer_floor": lambda p, unit: -((unit - 2 * p) // (2 * unit)),
    "round_prefer_ceil": lambda p, unit: (2 * p + unit) // (2 * unit),
    "floor": lambda p, unit: p // unit,
    "ceil": lambda p, unit: -(-p // unit),
}
MODES = ("nearest", "linear", "cubic")
