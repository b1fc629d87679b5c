"""GridSample as the operators that it consists of: coordinates, elements at the grid's neighbours, their weighted sum. Source: ONNX operator GridSample."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from onnx import NodeProto

from lfopt.frontend.builder import Builder
from lfopt.frontend.values import options
from lfopt.ir import UnsupportedModel

CUBIC = -0.75  # Keys' coefficient
MODES = {"bilinear": "linear", "bicubic": "cubic"}  # before opset 20
PADDINGS = ("zeros", "border", "reflection")


def grid_sample(build: Builder, node: NodeProto) -> list[str]:
    """The one output, [n, c, *grid]. Raises UnsupportedModel."""
    x, grid = node.input
    told = options(node)
    mode = MODES.get(str(told.get("mode", "linear")), str(told.get("mode", "linear")))
    padding, aligned = str(told.get("padding_mode", "zeros")), bool(told.get("align_corners", 0))
    (n, c, *space), out = build.shape(x), build.shape(grid)[1:-1]
    if padding not in PADDINGS or mode not in ("linear", "nearest", "cubic") or (mode == "cubic" and len(space) != 2):
        raise UnsupportedModel(f"mode {mode!r}, padding {padding!r} on {len(space)} axes; lfopt reads linear, nearest and (2 axes) cubic")
    points = prod(out)
    flat = build.reshape(grid, n, points, len(space))
    places = [_place(build, build.slice(flat, 2, k, k + 1), size, padding, aligned) for k, size in enumerate(reversed(space))][::-1]
    taps = [_taps(build, place, mode) for place in places]  # by axis: (index, weight) of each neighbour, [n, points, 1]
    pixels = build.run("Transpose", build.reshape(x, n, c, prod(space)), perm=[0, 2, 1])
    total = ""
    for corner in product(*taps):
        found = _weighted(build, pixels, corner, space, padding, aligned)
        total = build.run("Add", total, found) if total else found
    return [build.reshape(build.run("Transpose", total, perm=[0, 2, 1]), n, c, *out)]


def _place(build: Builder, grid: str, size: int, padding: str, aligned: bool) -> str:
    """Coordinates in elements, of a grid from -1 to 1 over the axis."""
    dtype = build.dtype(grid)
    if aligned:
        place = build.run("Mul", build.run("Add", grid, np.array(1, dtype)), np.array((size - 1) / 2, dtype))
    else:
        place = build.run("Add", build.run("Mul", grid, np.array(size / 2, dtype)), np.array((size - 1) / 2, dtype))
    if padding == "border":
        return build.run("Clip", place, np.array(0, dtype), np.array(size - 1, dtype))
    return _reflected(build, place, size, aligned) if padding == "reflection" else place


def _reflected(build: Builder, place: str, size: int, aligned: bool) -> str:
    """Coordinates outside of the axis mirrored at its ends, as often as it takes."""
    dtype = build.dtype(place)
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if high == low:
        return build.constant(np.full(build.shape(place), low, dtype))
    away = build.run("Abs", build.run("Sub", place, np.array(low, dtype)))
    rest = build.run("Mod", away, np.array(2 * (high - low), dtype), fmod=1)
    back = build.run("Sub", np.array(2 * (high - low), dtype), rest)
    return build.run("Add", build.run("Min", rest, back), np.array(low, dtype))


def _taps(build: Builder, place: str, mode: str) -> list[tuple[str, str]]:
    """The neighbours along an axis, as whole floats, and their weights; "" for a weight of 1."""
    dtype = build.dtype(place)
    if mode == "nearest":
        return [(build.run("Round", place), "")]
    first = build.run("Floor", place)
    past = build.run("Sub", place, first)
    one = np.array(1, dtype)
    if mode == "linear":
        return [(first, build.run("Sub", one, past)), (build.run("Add", first, one), past)]
    found: list[tuple[str, str]] = []
    for offset in (-1, 0, 1, 2):
        distance = build.run("Abs", build.run("Sub", past, np.array(offset, dtype)))
        found.append((build.run("Add", first, np.array(offset, dtype)), _cubic(build, distance, near=offset in (0, 1))))
    return found


def _cubic(build: Builder, distance: str, *, near: bool) -> str:
    """Keys' kernel: of neighbours within a distance of 1, and of the others."""
    a, dtype = CUBIC, build.dtype(distance)
    coefficients = (a + 2, -a - 3, 0, 1) if near else (a, -5 * a, 8 * a, -4 * a)
    value = build.constant(np.array(coefficients[0], dtype))
    for coefficient in coefficients[1:]:
        value = build.run("Mul", value, distance)
        value = build.run("Add", value, np.array(coefficient, dtype)) if coefficient else value
    return value


def _weighted(build: Builder, pixels: str, corner: tuple[tuple[str, str], ...], space: list[int], padding: str, aligned: bool) -> str:
    """The elements of one combination of neighbours, [n, points, c], times their weights."""
    dtype, place, weight = build.dtype(pixels), "", ""
    for k, ((index, share), size) in enumerate(zip(corner, space, strict=True)):
        factors = [share] if share else []
        if padding == "zeros":
            inside = build.run("And", build.run("GreaterOrEqual", index, np.array(0, dtype)), build.run("Less", index, np.array(size, dtype)))
            factors.append(build.cast(inside, dtype))
        kept = _reflected(build, index, size, aligned) if padding == "reflection" else index
        kept = build.run("Clip", kept, np.array(0, dtype), np.array(size - 1, dtype))
        step = build.run("Mul", build.cast(kept, "int64"), np.array(prod(space[k + 1 :]), np.int64))
        place = build.run("Add", place, step) if place else step
        for factor in factors:
            weight = build.run("Mul", weight, factor) if weight else factor
    found = build.run("GatherND", pixels, place, batch_dims=1)
    return build.run("Mul", found, weight) if weight else found
