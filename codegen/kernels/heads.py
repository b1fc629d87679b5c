"""Which kernel makes which operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from codegen.images import Image, channels_first
from codegen.kernels.convolution import convolution
from codegen.kernels.depthwise import average_pool, depthwise, max_pool
from codegen.kernels.resampling import depth_to_space, interpolation, transposed
from codegen.kernels.simple import concatenation, mean, softmax
from codegen.kernels.unit import Unit
from codegen.kernels.window import Window
from codegen.writer import Writer
from lfopt.ops import Call
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.resizing import Taps, axis_taps
from lfopt.ops.windows import Window as Axis
from lfopt.ops.windows import windows


def kernel(out: Writer, unit: Unit) -> None:
    """Write the C function of a unit. Raises Unsupported."""
    kind = unit.call.operator.kind
    if len(unit.call.results) != 1:
        raise unit.unsupported(f"{len(unit.call.results)} results", "operators with one")
    if kind not in HEADS:
        raise unit.unsupported("an operator that has no kernel", ", ".join(sorted(HEADS)) + " and elementwise operators")
    HEADS[kind](out, unit)


def is_pointwise(call: Call) -> bool:
    """Whether it is a convolution that reads, for each pixel, that pixel alone: a whole map can then be taken as one long row."""
    if call.operator.kind != "Conv" or call.attribute("group", 1) != 1 or len(call.result) != 4:
        return False
    return all(w.kernel == 1 and w.stride == 1 and w.pad == 0 for w in windows(call))


def _window(unit: Unit, *, trimmed: bool = False) -> Window:
    """The window of a convolution or pool; `trimmed`: without taps that never meet the map."""
    rows, columns = (axis.trimmed((0, axis.size_out)) if trimmed else axis for axis in windows(unit.call))
    return Window(
        unit.operand(0), (rows.kernel, columns.kernel), (rows.stride, columns.stride), (rows.dilation, columns.dilation), (rows.pad, columns.pad)
    )


def _conv(out: Writer, unit: Unit) -> None:
    call = unit.call
    if len(call.result) != 4 or call.shape(0)[0] != 1:
        raise unit.unsupported(f"an input of shape {list(call.shape(0))}", "[1, C, H, W]")
    weights, bias = unit.constant(1), unit.constant(2) if call.has(2) else None
    group = call.attribute("group", 1)
    if group == 1:
        convolution(out, unit, _window(unit), weights, bias)
    elif group == call.shape(0)[1] == weights.shape[0]:
        depthwise(out, unit, _window(unit), weights, bias)
    else:
        dense = np.zeros((weights.shape[0], call.shape(0)[1], *weights.shape[2:]), weights.dtype)
        made, read = weights.shape[0] // group, weights.shape[1]
        for g in range(group):
            dense[g * made : (g + 1) * made, g * read : (g + 1) * read] = weights[g * made : (g + 1) * made]
        convolution(out, unit, _window(unit), dense, bias)


def _product(out: Writer, unit: Unit) -> None:
    """Gemm and MatMul with constant weights: a convolution of one tap."""
    call = unit.call
    if not call.constant[1] or call.constant[0] or len(call.shape(1)) != 2:
        raise unit.unsupported("operands that are both computed, or a stack of matrices", "a feature map times a constant matrix")
    if len(call.shape(0)) == 4:
        raise unit.unsupported(f"an input of shape {list(call.shape(0))}", "[1, S, D] and [1, C]")
    weights, bias = unit.constant(1), None
    if call.operator.kind == "Gemm":
        if call.attribute("transA", 0):
            raise unit.unsupported("transA", "transA 0")
        weights = weights if call.attribute("transB", 0) else weights.T
        weights = weights * np.float32(call.attribute("alpha", 1.0))
        if call.has(2):
            bias = np.broadcast_to(unit.constant(2) * np.float32(call.attribute("beta", 1.0)), (1, weights.shape[0])).reshape(-1)
    else:
        weights = weights.T
    source, behind = unit.operand(0), unit.flow.maps[unit.operand(0)]
    if channels_first(behind.shape):  # a map flattened: our order of its elements is another
        _, channels, height, width = behind.shape
        if channels * height * width != weights.shape[1]:
            raise unit.unsupported(f"a view of {list(behind.shape)} as {list(call.shape(0))}", "views that keep pixels, or flatten all of them")
        weights = weights.reshape(-1, channels, height, width).transpose(0, 2, 3, 1).reshape(len(weights), -1)

    def flattened(m: int) -> Image:
        found = unit.images(m)
        return Image(1, 1, found.elements) if m == source and found.channels != weights.shape[1] else found

    convolution(out, replace(unit, images=flattened), Window(source, (1, 1)), weights[:, :, None, None], bias)


def _pool(out: Writer, unit: Unit) -> None:
    call = unit.call
    if len(call.result) != 4:
        raise unit.unsupported(f"an input of shape {list(call.shape(0))}", "[1, C, H, W]")
    if call.operator.kind == "MaxPool":
        max_pool(out, unit, _window(unit, trimmed=True))
        return
    padded = bool(call.attribute("count_include_pad", 0))
    average_pool(out, unit, _window(unit, trimmed=True), np.outer(*(_counts(window, padded=padded) for window in windows(call))).astype(np.float32))


def _counts(window: Axis, *, padded: bool) -> np.ndarray:
    """Along one axis: elements that each result is the mean of."""
    starts = np.arange(window.size_out) * window.stride - window.pad
    taps = starts[:, None] + np.arange(window.kernel) * window.dilation
    low, high = (-window.pad, window.size + window.pad_after) if padded else (0, window.size)
    return ((taps >= low) & (taps < high)).sum(1)


def _mean(out: Writer, unit: Unit) -> None:
    call = unit.call
    shape = call.shape(0)
    if call.operator.kind == "ReduceMean" and (len(shape) != 4 or sorted(axis % 4 for axis in reduced_axes(call) or ()) != [2, 3]):
        raise unit.unsupported(f"a mean of {list(shape)} over axes {reduced_axes(call)}", "a mean over rows and pixels")
    mean(out, unit, unit.operand(0))


def _concat(out: Writer, unit: Unit) -> None:
    call = unit.call
    axis = call.attribute("axis", 0) % len(call.result)
    if axis != (1 if len(call.result) == 4 else len(call.result) - 1) or any(call.constant):
        raise unit.unsupported(f"axis {axis} of {list(call.result)}, or a constant", "feature maps side by side in their channels")
    sources = {o.input: o.map for o in unit.flow.operands[unit.head]}
    concatenation(out, unit, [sources[k] for k in range(len(call.operator.inputs))])


def _softmax(out: Writer, unit: Unit) -> None:
    call = unit.call
    axis = call.attribute("axis", -1) % len(call.result)
    if axis != (1 if len(call.result) == 4 else len(call.result) - 1):
        raise unit.unsupported(f"axis {axis} of {list(call.result)}", "softmax over channels")
    softmax(out, unit, unit.operand(0))


def _resize(out: Writer, unit: Unit) -> None:
    call = unit.call
    if len(call.result) != 4 or not all(call.values[i] is not None for i in (1, 2, 3) if call.has(i)):
        raise unit.unsupported(f"an input of shape {list(call.shape(0))}, or sizes that are computed", "[1, C, H, W] and constant sizes")
    images, channels, rows, columns = (axis_taps(call, axis) for axis in range(4))
    if images is not None or channels is not None or any(taps is not None and taps.outside is not None for taps in (rows, columns)):
        raise unit.unsupported("images or channels that are resized, or values from outside the map", "rows and pixels resized, from inside the map")
    interpolation(out, unit, unit.operand(0), *(_taps(taps, size) for taps, size in zip((rows, columns), call.result[2:], strict=True)))


def _taps(taps: Taps | None, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights; every element its own where the axis stays as it is."""
    return (np.arange(size)[:, None], np.ones((size, 1))) if taps is None else (taps.indices, taps.weights)


def _depth_to_space(out: Writer, unit: Unit) -> None:
    call = unit.call
    crd = call.attribute("mode", "DCR") == "CRD"
    depth_to_space(out, unit, unit.operand(0), call.attribute("blocksize", 1), channels_outermost=crd)


def _transposed(out: Writer, unit: Unit) -> None:
    call = unit.call
    if len(call.result) != 4 or call.attribute("group", 1) != 1:
        raise unit.unsupported(f"an input of shape {list(call.shape(0))} in {call.attribute('group', 1)} groups", "[1, C, H, W] in one")
    axes = tuple((axis.stride, axis.dilation, axis.pad) for axis in windows(call))
    transposed(out, unit, unit.operand(0), unit.constant(1), unit.constant(2) if call.has(2) else None, axes)


HEADS: dict[str, Callable[[Writer, Unit], None]] = {
    "Conv": _conv, "Gemm": _product, "MatMul": _product, "MaxPool": _pool, "AveragePool": _pool, "ReduceMean": _mean, "GlobalAveragePool": _mean,
    "Concat": _concat, "Softmax": _softmax, "Resize": _resize, "DepthToSpace": _depth_to_space, "ConvTranspose": _transposed,
}  # fmt: skip
FLATTENING = frozenset({"Gemm", "MatMul"})  # that may read a map flattened
WITH_TAIL = frozenset(
    {"Conv", "ConvTranspose", "Resize", "Gemm", "MatMul", "MaxPool", "AveragePool", "ReduceMean", "GlobalAveragePool"}
)  # whose kernels apply a tail
