"""Conv, ConvTranspose, Gemm and MatMul on boxes: partial sums over input channels, and their epilogue.

Source: ONNX operators Conv, ConvTranspose, Gemm, MatMul.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lfopt.ir import Box, Span, box_shape, cut
from lfopt.ops.boxes import broadcast_box, group_span
from lfopt.ops.call import Call
from lfopt.ops.footprint import needs
from lfopt.ops.part import Operands, Part, is_empty, take
from lfopt.ops.windows import Window, windows

# most elements of the matrix that windows of a convolution unfold into; more take several iterations
MAX_COLUMNS = 1 << 21


def present(operands: Operands, index: int) -> Part:
    """An operand that is not optional."""
    part = operands[index]
    assert part is not None, f"operand {index} is absent"
    return part


def has(operands: Operands, index: int) -> bool:
    """Whether an optional operand is given."""
    return index < len(operands) and operands[index] is not None


def wide(values: np.ndarray) -> np.ndarray:
    """The values, of the same shape: float32 if they are of a narrower floating type, else as they are."""
    if values.dtype.kind in "fV" and values.dtype.itemsize < 4:
        return values.astype(np.float32)
    return values


# -- sums ----------------------------------------------------------------------------------------------------


def conv_sums(call: Call, operands: Operands, out: Box) -> np.ndarray:
    """[n, channels, *spatial] sums of box `out`, group by group where the box cuts one of them."""
    data = present(operands, 0)
    weight = present(operands, 1)
    filters, per_group = call.shape(1)[:2]
    of_group = filters // call.attribute("group", 1)
    groups = group_span(out[1], of_group)
    sliding = windows(call)
    inputs = _inputs(data.box[1], groups, per_group, weight.box[1])
    if inputs == (0, per_group) and out[1] == (groups[0] * of_group, groups[1] * of_group):
        runs = [groups]
    else:
        runs = _each(groups)
    blocks: list[np.ndarray] = []
    for run in runs:
        box = cut(out, 1, (max(out[1][0], run[0] * of_group), min(out[1][1], run[1] * of_group)))
        count = run[1] - run[0]
        patch = padded(data, needs(call, 0, box, 0, inputs), box, sliding)
        kernel = wide(take(weight, needs(call, 1, box, 0, inputs)))
        patch = patch.reshape(patch.shape[0], count, -1, *patch.shape[2:])
        sums = correlate(patch, kernel.reshape(count, -1, *kernel.shape[1:]), sliding, box_shape(out)[2:])
        blocks.append(sums.reshape(sums.shape[0], -1, *sums.shape[3:]))
    if len(blocks) == 1:
        return blocks[0]
    return np.concatenate(blocks, axis=1)


def _each(groups: Span) -> list[Span]:
    return [(g, g + 1) for g in range(*groups)]


def _inputs(channels: Span, groups: Span, per_group: int, weights: Span) -> Span:
    """Span of the input channels within each group that both the data and the weights at hand cover."""
    low = max(channels[0] - groups[0] * per_group, weights[0], 0)
    high = min(channels[1] - (groups[1] - 1) * per_group, weights[1], per_group)
    assert low < high, (
        f"input channels {channels} and weights {weights} have nothing in common for groups {groups}"
    )
    return low, high


def padded(data: Part, box: Box, out: Box, sliding: tuple[Window, ...], fill: float = 0.0) -> np.ndarray:
    """[n, c, *extent]: what the windows of box `out` cover, padding included.

    `box`: the part of it that lies within the map; `fill`: the value of the padding.
    """
    extents = [window.extent(span) for window, span in zip(sliding, out[2:], strict=True)]
    values = wide(take(data, box))
    if all(inner == outer for inner, outer in zip(box[2:], extents, strict=True)):
        return values
    padded = np.full((*values.shape[:2], *(stop - start for start, stop in extents)), fill, values.dtype)
    if not is_empty(box):
        padded[(..., *(slice(i - o, j - o) for (i, j), (o, _) in zip(box[2:], extents, strict=True)))] = (
            values
        )
    return padded


def correlate(
    patch: np.ndarray, kernel: np.ndarray, sliding: tuple[Window, ...], size: tuple[int, ...]
) -> np.ndarray:
    """[n, g, m, *size] sums of windows times kernels; patch: [n, g, c, *extent], kernel: [g, m, c, *k]."""
    batch, groups, channels = patch.shape[:3]
    filters = kernel.shape[1]
    taps = prod(kernel.shape[3:])
    if channels == 1:
        return _depthwise(patch, kernel, sliding, size)
    limit = max(MAX_COLUMNS // max(channels * groups * batch * taps * prod(size[1:]), 1), 1)
    iterations: list[np.ndarray] = []
    for start in range(0, size[0], limit):
        rows = (min(limit, size[0] - start), *size[1:])
        iteration = patch[:, :, :, start * sliding[0].stride :] if start else patch
        columns = _unfolded(iteration, sliding, rows).reshape(batch, groups, channels * taps, prod(rows))
        iterations.append(
            np.matmul(kernel.reshape(groups, filters, channels * taps), columns).reshape(
                batch, groups, filters, *rows
            )
        )
    if len(iterations) == 1:
        return iterations[0]
    return np.concatenate(iterations, axis=3)


def _unfolded(patch: np.ndarray, sliding: tuple[Window, ...], size: tuple[int, ...]) -> np.ndarray:
    """View [n, g, c, *k, *size] of patch [n, g, c, *extent].

    Element (j, o) of an axis is patch[o * stride + j * dilation].
    """
    spatial = patch.strides[3:]
    return as_strided(
        patch,
        (*patch.shape[:3], *(window.kernel for window in sliding), *size),
        (
            *patch.strides[:3],
            *(step * window.dilation for step, window in zip(spatial, sliding, strict=True)),
            *(step * window.stride for step, window in zip(spatial, sliding, strict=True)),
        ),
        writeable=False,
    )


def _depthwise(
    patch: np.ndarray, kernel: np.ndarray, sliding: tuple[Window, ...], size: tuple[int, ...]
) -> np.ndarray:
    """One input channel per group: tap by tap."""
    shape = (patch.shape[0], *kernel.shape[:2], *size)
    total = np.zeros(shape, np.result_type(patch, kernel))
    product_ = np.empty(shape, np.result_type(patch, kernel))
    for tap in product(*(range(window.kernel) for window in sliding)):
        weights = kernel[(slice(None), slice(None), 0, *tap)]  # [g, m]
        np.multiply(
            tapped(patch, sliding, tap, size),
            weights.reshape(*weights.shape, *(1,) * len(size)),
            out=product_,
        )
        total += product_
    return total


def tapped(
    patch: np.ndarray, sliding: tuple[Window, ...], tap: tuple[int, ...], size: tuple[int, ...]
) -> np.ndarray:
    """View [..., *size] of patch [..., *extent]: the element that one tap of every window covers."""
    where = (
        slice(j * window.dilation, j * window.dilation + (count - 1) * window.stride + 1, window.stride)
        for j, window, count in zip(tap, sliding, size, strict=True)
    )
    return patch[(..., *where)]


def conv_transpose_sums(call: Call, operands: Operands, out: Box) -> np.ndarray:
    """[n, channels, *spatial] sums of box `out`: every input element is scattered to the window that it owns.

    What falls into the box is kept.
    """
    data = present(operands, 0)
    weight = present(operands, 1)
    of_group = call.shape(1)[1]
    per_group = call.shape(1)[0] // call.attribute("group", 1)
    groups = group_span(out[1], of_group)
    sliding = windows(call)
    inputs = _inputs(data.box[1], groups, per_group, _within_group(weight.box[0], groups, per_group))
    sums = np.zeros(box_shape(out), np.result_type(wide(data.values[:0]), wide(weight.values[:0])))
    for g in range(*groups):
        box = cut(out, 1, (max(out[1][0], g * of_group), min(out[1][1], (g + 1) * of_group)))
        source = needs(call, 0, box, 0, inputs)
        if is_empty(source):
            continue
        patch = wide(take(data, source))
        kernel = wide(take(weight, needs(call, 1, box, 0, inputs)))
        _scatter(patch, source, kernel, sums[:, box[1][0] - out[1][0] : box[1][1] - out[1][0]], out, sliding)
    return sums


def _within_group(channels: Span, groups: Span, per_group: int) -> Span:
    return channels[0] - groups[0] * per_group, channels[1] - (groups[1] - 1) * per_group


def _scatter(
    patch: np.ndarray,
    source: Box,
    kernel: np.ndarray,
    sums: np.ndarray,
    out: Box,
    sliding: tuple[Window, ...],
) -> None:
    """Add patch [n, c, *extent] (box `source`) times kernel [c, m, *k] to sums [n, m, *size] (box `out`)."""
    batch, channels = patch.shape[:2]
    for tap in product(*(range(window.kernel) for window in sliding)):
        places = [_meeting(*axis) for axis in zip(sliding, tap, source[2:], out[2:], strict=True)]
        if any(place is None for place in places):
            continue
        read = patch[(slice(None), slice(None), *(place[0] for place in places if place))]
        weights = kernel[(slice(None), slice(None), *tap)].T  # [m, c]
        product_of_tap = np.matmul(weights, np.ascontiguousarray(read).reshape(batch, channels, -1))
        sums[(slice(None), slice(None), *(place[1] for place in places if place))] += product_of_tap.reshape(
            batch, -1, *read.shape[2:]
        )


def _meeting(window: Window, tap: int, source: Span, out: Span) -> tuple[slice, slice] | None:
    """Along one axis: which elements of the source this tap sends into the box, and where; None if none."""
    shift = tap * window.dilation - window.pad  # input i goes to output i * stride + shift
    low = max(source[0], -(-(out[0] - shift) // window.stride))
    high = min(source[1], (out[1] - 1 - shift) // window.stride + 1)
    if low >= high:
        return None
    first = low * window.stride + shift - out[0]
    return slice(low - source[0], high - source[0]), slice(
        first, first + (high - low - 1) * window.stride + 1, window.stride
    )


def gemm_sums(call: Call, operands: Operands, out: Box) -> np.ndarray:
    """[m, n] of box `out`: A' B', without alpha, beta and C."""
    left = present(operands, 0)
    right = present(operands, 1)
    flipped = call.attribute("transA", 0)
    turned = call.attribute("transB", 0)
    inputs = _common(left.box[0 if flipped else 1], right.box[1 if turned else 0])
    a, b = (wide(take(part, needs(call, i, out, 0, inputs))) for i, part in enumerate((left, right)))
    return np.matmul(a.T if flipped else a, b.T if turned else b)


def matmul_sums(call: Call, operands: Operands, out: Box) -> np.ndarray:
    """[..., m, n] of box `out`: A B."""
    left = present(operands, 0)
    right = present(operands, 1)
    inputs = _common(left.box[-1], right.box[-2 if len(right.box) > 1 else 0])
    a, b = (
        _blas_ready(wide(take(part, needs(call, i, out, 0, inputs)))) for i, part in enumerate((left, right))
    )
    return np.asarray(np.matmul(a, b))


def _blas_ready(values: np.ndarray) -> np.ndarray:
    """The values, in C order where BLAS does not take them as they are.

    NumPy multiplies by BLAS only where one of the last two axes has stride one.
    """
    if values.itemsize in values.strides[-2:]:
        return values
    return np.ascontiguousarray(values)


def _common(a: Span, b: Span) -> Span:
    low = max(a[0], b[0])
    high = min(a[1], b[1])
    assert low < high, (
        f"the operands at hand have nothing in common along the axis that is summed over: {a} and {b}"
    )
    return low, high


# -- from sums to results ------------------------------------------------------------------------------------


def _with_channel_bias(call: Call, sums: np.ndarray, operands: Operands, out: Box) -> np.ndarray:
    if has(operands, 2):
        sums = sums + wide(take(present(operands, 2), (out[1],))).reshape(-1, *(1,) * (len(out) - 2))
    return sums


def _gemm_result(call: Call, sums: np.ndarray, operands: Operands, out: Box) -> np.ndarray:
    alpha = call.attribute("alpha", 1.0)
    beta = call.attribute("beta", 1.0)
    if alpha != 1.0:
        sums = sums * alpha
    if has(operands, 2) and beta != 0.0:
        bias = wide(take(present(operands, 2), broadcast_box(call.shape(2), out)))
        sums = sums + (bias if beta == 1.0 else bias * beta)
    return sums


def _plain_result(call: Call, sums: np.ndarray, operands: Operands, out: Box) -> np.ndarray:
    return sums


SUMS: dict[str, Callable[[Call, Operands, Box], np.ndarray]] = {
    "Conv": conv_sums,
    "ConvTranspose": conv_transpose_sums,
    "Gemm": gemm_sums,
    "MatMul": matmul_sums,
}
RESULTS: dict[str, Callable[[Call, np.ndarray, Operands, Box], np.ndarray]] = {
    "Conv": _with_channel_bias,
    "ConvTranspose": _with_channel_bias,
    "Gemm": _gemm_result,
    "MatMul": _plain_result,
}
