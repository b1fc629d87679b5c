"""GridSample as coordinates, the elements at their neighbours, and a sum with weights.

Source: ONNX operator GridSample.

Beyond a border, each neighbour is the element at the border, as PyTorch and ONNX Runtime have it; ONNX's
reference moves the coordinate there first, which differs for cubic interpolation.
"""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import NodeProto

from lfopt.frontend.builder import Builder
from lfopt.frontend.values import options
from lfopt.ir import UnsupportedModel

CUBIC = -0.75  # Keys' coefficient
MODES = {"bilinear": "linear", "bicubic": "cubic"}  # before opset 20
REAL = ("float32", "float64")
PADDINGS = ("zeros", "border", "reflection")


def grid_sample(build: Builder, node: NodeProto) -> list[str]:
    """The one output, [n, c, *grid]. Raises UnsupportedModel."""
    x, grid = node.input
    told = options(node)
    mode = MODES.get(str(told.get("mode", "linear")), str(told.get("mode", "linear")))
    padding = str(told.get("padding_mode", "zeros"))
    aligned = bool(told.get("align_corners", 0))
    (n, c, *space), out = build.shape(x), build.shape(grid)[1:-1]
    if (
        padding not in PADDINGS
        or mode not in ("linear", "nearest", "cubic")
        or (mode == "cubic" and len(space) != 2)
    ):
        raise UnsupportedModel(
            f"mode {mode!r}, padding {padding!r} on {len(space)} axes; "
            "lfopt reads linear, nearest and (2 axes) cubic"
        )
    if build.dtype(x) not in REAL or build.dtype(grid) != build.dtype(x):
        raise UnsupportedModel(
            f"elements of {build.dtype(x)} at places of {build.dtype(grid)}; "
            f"lfopt reads both of one type, of {', '.join(REAL)}"
        )
    points = prod(out)
    flat = build.reshape(grid, n, points, len(space))
    place, weight = "", ""  # of all combinations of neighbours, [n, points, ...]
    for k, size in enumerate(space):  # the grid has its last axis first
        coordinate = _place(
            build, build.slice(flat, 2, len(space) - 1 - k, len(space) - k), size, padding, aligned
        )
        index, share = _taps(build, coordinate, mode, size, padding, aligned)
        step = build.run("Mul", index, np.array(prod(space[k + 1 :]), np.int64))
        place = _combined(build, "Add", place, step)
        weight = _combined(build, "Mul", weight, share)
    count = build.shape(place)[-1]
    pixels = build.run("Transpose", build.reshape(x, n, c, prod(space)), perm=[0, 2, 1])
    # Axes: n, points, count, c.
    neighbours = build.run("GatherND", pixels, build.reshape(place, n, points, count, 1), batch_dims=1)
    total = build.run("MatMul", build.reshape(weight, n, points, 1, count), neighbours)
    return [
        build.reshape(build.run("Transpose", build.reshape(total, n, points, c), perm=[0, 2, 1]), n, c, *out)
    ]


def _combined(build: Builder, kind: str, one: str, other: str) -> str:
    """[n, points, a] and [n, points, b] as [n, points, a * b]."""
    if not one:
        return other
    n, points, count = build.shape(one)
    outer = build.run(
        kind,
        build.reshape(one, n, points, count, 1),
        build.reshape(other, n, points, 1, build.shape(other)[-1]),
    )
    return build.reshape(outer, n, points, count * build.shape(other)[-1])


def _place(build: Builder, grid: str, size: int, padding: str, aligned: bool) -> str:
    """Coordinates in elements, of a grid from -1 to 1 over the axis."""
    dtype = build.dtype(grid)
    if aligned:
        place = build.run("Mul", build.run("Add", grid, np.array(1, dtype)), np.array((size - 1) / 2, dtype))
    else:
        place = build.run(
            "Add", build.run("Mul", grid, np.array(size / 2, dtype)), np.array((size - 1) / 2, dtype)
        )
    if padding == "reflection":
        return _reflected(build, place, size, aligned)
    return place


def _reflected(build: Builder, place: str, size: int, aligned: bool) -> str:
    """Coordinates outside of the axis mirrored at its ends, as often as it takes."""
    dtype = build.dtype(place)
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if high == low:
        return build.constant(build.filled(build.shape(place), low, dtype))
    away = build.run("Abs", build.run("Sub", place, np.array(low, dtype)))
    rest = build.run("Mod", away, np.array(2 * (high - low), dtype), fmod=1)
    back = build.run("Sub", np.array(2 * (high - low), dtype), rest)
    return build.run("Add", build.run("Min", rest, back), np.array(low, dtype))


def _taps(build: Builder, place: str, mode: str, size: int, padding: str, aligned: bool) -> tuple[str, str]:
    """Neighbours along an axis of coordinates [n, points, 1], int64, and weights: [n, points, neighbours]."""
    dtype = build.dtype(place)
    if mode == "nearest":
        index = build.run("Round", place)
        share = build.constant(build.filled(build.shape(place), 1, dtype))
    else:
        offsets = np.array([0, 1] if mode == "linear" else [-1, 0, 1, 2], dtype)
        first = build.run("Floor", place)
        index = build.run("Add", first, offsets)
        distance = build.run("Abs", build.run("Sub", build.run("Sub", place, first), offsets))
        if mode == "linear":
            share = build.run("Sub", np.array(1, dtype), distance)
        else:
            share = _cubic(build, distance)
    if padding == "zeros":
        inside = build.run(
            "And",
            build.run("GreaterOrEqual", index, np.array(0, dtype)),
            build.run("Less", index, np.array(size, dtype)),
        )
        share = build.run("Where", inside, share, np.array(0, dtype))
    if padding == "reflection":
        index = _reflected(build, index, size, aligned)
    index = build.run("Clip", index, np.array(0, dtype), np.array(size - 1, dtype))
    return build.cast(index, "int64"), share


def _cubic(build: Builder, distance: str) -> str:
    """Keys' kernel: of the neighbours at a distance of up to 1 (the inner two), and of the others."""
    a = CUBIC
    dtype = build.dtype(distance)
    rows = ((a + 2, -a - 3, 0, 1), (a, -5 * a, 8 * a, -4 * a))
    value = build.constant(np.array([rows[outer][0] for outer in (1, 0, 0, 1)], dtype))
    for power in range(1, 4):
        coefficients = np.array([rows[outer][power] for outer in (1, 0, 0, 1)], dtype)
        value = build.run("Add", build.run("Mul", value, distance), coefficients)
    return value
