"""Resize on boxes.

What an output element is made of is decided axis by axis, in `lfopt.ops.interpolation`: row rules, footprints
and values agree.

Source: ONNX operator Resize.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from math import floor, isfinite

import numpy as np

from lfopt.ir import Attribute, Box, InvalidModel, Span
from lfopt.ops import interpolation
from lfopt.ops.call import Call, once_per_call
from lfopt.ops.interpolation import COORDINATES, MODES, ROUNDING, AxisTaps, ResizedAxis
from lfopt.ops.part import Part, take
from lfopt.ops.rows import RowReads, same_row


def resize(call: Call, operands: Sequence[Part | None], out: Box, result: int) -> np.ndarray:
    """Box `out`, shaped as it: nearest, linear or cubic interpolation, one axis after the other."""
    part = operands[0]
    assert part is not None
    values = take(part, tuple(tap_span(call, axis, span) for axis, span in enumerate(out)))
    dtype = values.dtype
    beyond = None
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
    spans = _tap_spans(call)
    if (axis, span) not in spans:
        spans[axis, span] = _tap_span(call, axis, span)
    return spans[axis, span]


def _tap_span(call: Call, axis: int, span: Span) -> Span:
    if not known(call):
        return 0, call.shape(0)[axis]
    taps = axis_taps(call, axis)
    if taps is None:
        return span
    indices = taps.indices[slice(*span)]
    return int(indices.min()), int(indices.max()) + 1


@once_per_call
def _tap_spans(call: Call) -> dict[tuple[int, Span], Span]:
    """(axis, output span) -> input span: tiles ask for few spans, and often."""
    return {}


def row_reads(call: Call, axis: int) -> RowReads:
    """Rows that every output row reads, along the row axis; for calls whose values are `known`."""
    resized = _axis(call, axis)
    if resized is None:
        return same_row(call.shape(0)[axis])
    return interpolation.reads(resized)


def known(call: Call) -> bool:
    """Whether the values that decide what is read are at hand."""
    needed = {1: _crops(call), 2: True, 3: _policy(call) != "stretch"}
    return all(call.values[i] is not None for i, decides in needed.items() if decides and call.has(i))


def axis_taps(call: Call, axis: int) -> AxisTaps | None:
    """Taps of one axis; None if the axis stays as it is.

    Raises InvalidModel, naming the node, if an attribute or the region is not legal.
    """
    return _taps(call)[axis]


@once_per_call
def _taps(call: Call) -> tuple[AxisTaps | None, ...]:
    return tuple(None if axis is None else interpolation.taps(axis) for axis in _axes(call))


def check(call: Call) -> None:
    """Raises InvalidModel, naming the node, if an attribute or a region that is at hand is not legal."""
    if known(call) and all(call.shape(0)):
        for axis in range(len(call.result)):
            _axis(call, axis)


def _axis(call: Call, axis: int) -> ResizedAxis | None:
    """What decides the taps of one axis; None if it stays as it is."""
    return _axes(call)[axis]


@once_per_call
def _axes(call: Call) -> tuple[ResizedAxis | None, ...]:
    return tuple(_resized(call, axis) for axis in range(len(call.result)))


def _resized(call: Call, axis: int) -> ResizedAxis | None:
    size = call.shape(0)[axis]
    size_out = call.result[axis]
    coordinates = _one_of(call, "coordinate_transformation_mode", "half_pixel", COORDINATES)
    mode = _one_of(call, "mode", "nearest", MODES)
    nearest_mode = _one_of(call, "nearest_mode", "round_prefer_floor", ROUNDING)
    ratios = _ratios_of(call)
    if axis not in ratios:
        return None
    scale = ratios[axis]
    region = _region(call, [*ratios].index(axis), len(ratios)) if _crops(call) else (Fraction(0), Fraction(1))
    if scale == 1 and size == size_out and region == (0, 1):
        return None
    return ResizedAxis(
        size,
        size_out,
        scale,
        region,
        mode,
        coordinates,
        nearest_mode,
        call.attribute("cubic_coeff_a", -0.75),
        bool(call.attribute("exclude_outside", 0)),
        bool(call.attribute("antialias", 0)),
    )


def extents(
    attributes: Mapping[str, Attribute],
    shape: tuple[int, ...],
    scales: np.ndarray | None,
    sizes: Sequence[int] | None,
) -> tuple[int, ...]:
    """Shape of the result of a Resize, from exact products of extents and scales.

    They are rounded down where scales are given, and to nearest (halves up) where an aspect ratio is kept.

    One of `scales`, (axes,) positive numbers, and `sizes` is given, for each of the axes. ONNX's inference
    and ONNX Runtime round the products first.
    """
    shape_out = list(shape)
    kept = scales is None and attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch"
    for axis, ratio in _ratios(attributes, shape, scales, sizes).items():
        shape_out[axis] = floor(ratio * shape[axis] + Fraction(kept, 2))
    return tuple(shape_out)


def _ratios(
    attributes: Mapping[str, Attribute],
    shape: tuple[int, ...],
    scales: np.ndarray | None,
    sizes: Sequence[int] | None,
) -> dict[int, Fraction]:
    """Scale of every axis that is listed: as it is stored, or as the sizes say; never rounded."""
    listed: tuple[int, ...] = attributes.get("axes", tuple(range(len(shape))))  # type: ignore[assignment]
    axes = [axis % len(shape) for axis in listed]
    if scales is not None:
        return {axis: Fraction(float(scale)) for axis, scale in zip(axes, scales.reshape(-1), strict=True)}
    assert sizes is not None
    ratios = {axis: Fraction(size, shape[axis]) for axis, size in zip(axes, sizes, strict=True)}
    if (policy := attributes.get("keep_aspect_ratio_policy", "stretch")) == "stretch":
        return ratios
    return dict.fromkeys(axes, (min if policy == "not_larger" else max)(ratios.values()))


def _ratios_of(call: Call) -> dict[int, Fraction]:
    attributes = call.operator.attributes
    shape = call.shape(0)
    if call.has(2) and call.shape(2) != (0,):
        return _ratios(attributes, shape, call.values[2], None)
    axes: tuple[int, ...] = attributes.get("axes", tuple(range(len(shape))))  # type: ignore[assignment]
    return _ratios(
        attributes,
        shape,
        None,
        [call.result[axis] for axis in axes] if _policy(call) == "stretch" else call.ints(3),
    )


def _region(call: Call, place: int, axes: int) -> tuple[Fraction, Fraction]:
    """Start and end of the region of interest along the axis that is listed at `place` of so many."""
    values = call.values[1].reshape(-1) if call.has(1) and call.values[1] is not None else np.empty(0)
    if len(values) != 2 * axes or not all(isfinite(value) for value in values):
        raise InvalidModel(
            f"node {call.operator.name!r} (Resize): roi {values.tolist()}; "
            f"tf_crop_and_resize takes {2 * axes} finite numbers"
        )
    return Fraction(float(values[place])), Fraction(float(values[place + axes]))


def _crops(call: Call) -> bool:
    return call.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"


def _policy(call: Call) -> str:
    return call.attribute("keep_aspect_ratio_policy", "stretch")


def _one_of(call: Call, attribute: str, default: str, accepted: Collection[str]) -> str:
    value = call.attribute(attribute, default)
    if value not in accepted:
        raise InvalidModel(
            f"node {call.operator.name!r} (Resize): {attribute} {value!r}; accepted: {', '.join(accepted)}"
        )
    return value
