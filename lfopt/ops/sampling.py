"""Maps read between their elements, at places that are computed: DeformConv and RoiAlign.

All is computed in float64.

Source: the ONNX operators of the same names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, UnsupportedModel, slices
from lfopt.ops.call import Call
from lfopt.ops.contraction import has, present
from lfopt.ops.footprint import needs
from lfopt.ops.part import Operands, take


class Deformed(NamedTuple):
    """Attributes of a DeformConv in two dimensions, with their defaults."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]  # before rows, before columns, after rows, after columns
    groups: int
    offset_groups: int

    @classmethod
    def of(cls, call: Call) -> Deformed:
        """Raises UnsupportedModel for other dimensions."""
        if len(call.shape(0)) != 4:
            raise UnsupportedModel(
                f"node {call.operator.name!r} (DeformConv): "
                f"{len(call.shape(0)) - 2} spatial axes; lfopt computes 2"
            )
        ones = (1, 1)
        return cls(
            call.attribute("strides", ones),
            call.attribute("dilations", ones),
            call.attribute("pads", (0, 0, 0, 0)),
            call.attribute("group", 1),
            call.attribute("offset_group", 1),
        )


def deform_conv(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """[n, m, oh, ow]: a convolution of [n, c, h, w] with moved taps (DeformConv).

    Offsets [n, g * kh * kw * 2, oh, ow] move the taps; a mask weighs them.
    """
    strides, dilations, pads, groups, offset_groups = Deformed.of(call)
    _, _, high, wide = out
    x, weights, offset = (
        take(present(operands, i), needs(call, i, out)).astype(np.float64) for i in range(3)
    )
    (n, c, h, w), (m, per_group, kh, kw), (oh, ow) = x.shape, weights.shape, offset.shape[2:]
    moved = offset.reshape(n, offset_groups, kh, kw, 2, oh, ow)
    rows = (
        np.arange(kh)[:, None, None, None] * dilations[0]
        + np.arange(*high)[:, None] * strides[0]
        - pads[0]
        + moved[:, :, :, :, 0]
    )
    columns = (
        np.arange(kw)[:, None, None] * dilations[1]
        + np.arange(*wide) * strides[1]
        - pads[1]
        + moved[:, :, :, :, 1]
    )
    # Axes: n, g, c / g, kh, kw, oh, ow.
    taps = _between(x.reshape(n, offset_groups, c // offset_groups, h, w), rows, columns)
    if has(operands, 4):
        mask = take(present(operands, 4), needs(call, 4, out))
        taps = taps * mask.reshape(n, offset_groups, 1, kh, kw, oh, ow)
    taps = taps.reshape(n, groups, per_group * kh * kw, oh * ow)
    sums = (weights.reshape(groups, m // groups, -1) @ taps).reshape(n, m, oh, ow)
    if has(operands, 3):
        sums = sums + present(operands, 3).values.reshape(-1, 1, 1)
    return sums[:, slice(*out[1])]


def _between(maps: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[n, g, c, *points]: linear interpolation of maps [n, g, c, h, w] at real places [n, g, *points].

    Outside of a map is 0.
    """
    (n, g, _, h, w), points = maps.shape, (1,) * (rows.ndim - 2)
    inside = (rows > -1) & (rows < h) & (columns > -1) & (columns < w)
    rows = np.where(inside, rows, 0)
    columns = np.where(inside, columns, 0)
    first_row = np.floor(rows).astype(np.int64)
    first_column = np.floor(columns).astype(np.int64)
    image = np.arange(n).reshape(-1, 1, *points)
    group = np.arange(g).reshape(-1, *points)
    total = np.zeros(())
    for row in (first_row, first_row + 1):
        for column in (first_column, first_column + 1):
            there = inside & (row >= 0) & (row < h) & (column >= 0) & (column < w)
            share = np.where(there, (1 - np.abs(rows - row)) * (1 - np.abs(columns - column)), 0)
            total = (
                total
                + maps[image, group, :, np.clip(row, 0, h - 1), np.clip(column, 0, w - 1)] * share[..., None]
            )
    return np.moveaxis(total, -1, 2)


def roi_align(call: Call, operands: Operands, out: Box, result: int) -> np.ndarray:
    """[k, c, ph, pw]: regions [k, 4] of [n, c, h, w] (RoiAlign).

    A region is (left, top, right, bottom). Each bin is the mean or maximum of samples between elements.
    """
    x, regions, images = (take(present(operands, i), needs(call, i, out)) for i in range(3))
    x = x.astype(np.float64)
    regions = regions.astype(np.float64)
    _, _, high, wide = call.result
    c = x.shape[1]
    corner = 0.5 if half_pixel(call) else 0.0
    pooled = np.zeros((len(regions), c, high, wide))
    for k, (region, image) in enumerate(zip(regions, images, strict=True)):
        left, top, right, bottom = region * call.attribute("spatial_scale", 1.0) - corner
        rows = _samples(call, top, bottom, high, x.shape[2])
        columns = _samples(call, left, right, wide, x.shape[3])
        if not (rows.first.size and columns.first.size):
            continue
        parts = [
            x[image][:, row[:, None], column] * (by_row[:, None] * by_column)
            for row, by_row in ((rows.first, 1 - rows.share), (rows.second, rows.share))
            for column, by_column in ((columns.first, 1 - columns.share), (columns.second, columns.share))
        ]
        there = rows.inside[:, None] & columns.inside
        average = call.attribute("mode", "avg") == "avg"
        samples = np.where(there, sum(parts) if average else np.max(parts, axis=0), 0).reshape(
            c, high, -1, wide, columns.first.size // wide
        )
        pooled[k] = samples.mean(axis=(2, 4)) if average else samples.max(axis=(2, 4))
    return pooled[(slice(None), slice(None), *slices(out[2:]))]


def half_pixel(call: Call) -> bool:
    """Whether the regions of a RoiAlign are of pixels whose centres lie half a pixel from their corners."""
    return call.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"


class _Samples(NamedTuple):
    """Where samples lie along an axis, bin by bin."""

    first: np.ndarray  # (samples,) int64: the element before
    second: np.ndarray  # the element behind
    share: np.ndarray  # that this one has
    inside: np.ndarray  # bool


def _samples(call: Call, start: float, stop: float, bins: int, extent: int) -> _Samples:
    length = stop - start if half_pixel(call) else max(stop - start, 1.0)
    size = length / bins
    count = call.attribute("sampling_ratio", 0) or max(int(np.ceil(size)) if np.isfinite(size) else 0, 0)
    places = (
        start + np.arange(bins)[:, None] * size + (np.arange(count) + 0.5) * size / max(count, 1)
    ).reshape(-1)
    inside = (places >= -1) & (places <= extent)
    places = np.clip(np.where(inside, places, 0), 0, extent - 1)
    first = np.floor(places).astype(np.int64)
    return _Samples(first, np.minimum(first + 1, extent - 1), places - first, inside)
