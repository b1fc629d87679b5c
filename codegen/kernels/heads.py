"""Which kernel makes which operator."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import numpy as np

from codegen.elements import FLOAT32
from codegen.kernels.convolution import convolution
from codegen.kernels.depthwise import average_pool, depthwise, max_pool
from codegen.kernels.moving import gather, separation
from codegen.kernels.normalization import layer_normalization, softmax, sums
from codegen.kernels.product import product
from codegen.kernels.resampling import depth_to_space, interpolation, transposed
from codegen.kernels.simple import concatenation, largest, mean
from codegen.kernels.unit import Unit
from codegen.kernels.weights import on_rows, without_groups
from codegen.kernels.window import Window, window_of
from codegen.kernels.winograd import winograd, worthwhile
from codegen.layout import Layout
from codegen.tails import Tail
from codegen.target import Target
from codegen.writer import Writer
from lfopt.ops import Call
from lfopt.ops.interpolation import AxisTaps
from lfopt.ops.parameters import reduced_axes, split_sizes
from lfopt.ops.resizing import axis_taps
from lfopt.ops.windows import windows


def kernel(out: Writer, unit: Unit) -> None:
    """Write the C function of a unit. Raises Unsupported."""
    kind = unit.call.operator.kind
    if len(unit.call.results) != 1 and kind != "Split":
        raise unit.unsupported(f"{len(unit.call.results)} results", "operators with one")
    if kind not in HEADS:
        raise unit.unsupported("an operator that has no kernel", ", ".join(sorted(HEADS)) + " and elementwise operators")
    if kind in ON_IMAGES:
        unit.require_pixels()
    types = {unit.flow.maps[m].dtype for m in (unit.result, *(o.map for o in unit.flow.operands[unit.head]))}
    if kind != "Gather" and types != {"float32"}:
        raise unit.unsupported(f"maps of {', '.join(sorted(types))}", "float32")
    HEADS[kind](out, unit)


def is_pointwise(call: Call) -> bool:
    """Whether it reads, for each pixel, that pixel alone: a whole map can then be taken as one long row."""
    kind = call.operator.kind
    if kind in POINTWISE:
        return True
    if kind in ("ReduceMean", "ReduceSum"):
        return reduced_axes(call) == {len(call.shape(0)) - 1}
    if call.operator.kind != "Conv" or call.attribute("group", 1) != 1 or len(call.result) != 4:
        return False
    return all(w.kernel == 1 and w.stride == 1 and w.pad == 0 for w in windows(call))


def is_column(call: Call) -> bool:
    """Whether it is a convolution of maps one pixel wide: the whole map can be taken as one long row, along which the window slides."""
    if call.operator.kind != "Conv" or len(call.result) != 4 or call.result[3] != 1 or call.shape(0)[3] != 1:
        return False
    across = windows(call)[1]
    return across.kernel == 1 and across.pad == 0


def winograd_tile(call: Call, read: Layout, made: Layout, target: Target) -> int:
    """Results along a side of the tiles of a convolution by Winograd's algorithm; 0: it had better be direct.

    Transforms lose more, the larger their tiles, and a sum loses more, the more channels it has: tiles of 4 are for those that lose more anyway,
    and for maps in bfloat16, which lose a thousand times that.
    """
    if call.operator.kind != "Conv" or call.attribute("group", 1) != 1 or len(call.result) != 4 or call.values[1] is None:
        return 0
    if any((w.kernel, w.stride, w.dilation) != (3, 1, 1) for w in windows(call)):
        return 0
    if not all(layout.in_pixels and layout.tensor.dtype == "float32" for layout in (read, made)):
        return 0
    exact = target.element.floats and read.image.channels < MANY
    return worthwhile(read.image, made.image, target, min(target.winograd, 2) if exact else target.winograd)


def _conv(out: Writer, unit: Unit) -> None:
    call = unit.call
    weights, bias = unit.constant(1), unit.constant(2) if call.has(2) else None
    if unit.flat and is_column(call):
        weights = weights.swapaxes(2, 3)
    group = call.attribute("group", 1)
    if unit.tile:
        winograd(out, unit, window_of(unit), weights, bias, unit.tile)
    elif group == 1:
        convolution(out, unit, window_of(unit), weights, bias)
    elif group == call.shape(0)[1] == weights.shape[0]:
        depthwise(out, unit, window_of(unit), weights, bias)
    else:
        convolution(out, unit, window_of(unit), without_groups(weights, group), bias)


def _product(out: Writer, unit: Unit) -> None:
    """Gemm and MatMul with constant weights: a convolution of one tap."""
    call = unit.call
    if is_product(call):
        a, b = unit.operand(0), unit.operand(1)
        product(out, unit, unit.layouts(a), unit.layouts(b), (a, b))
        return
    if not call.constant[1] or call.constant[0] or len(call.shape(1)) != 2:
        raise unit.unsupported("operands that are both computed, or a stack of matrices", "a feature map times a constant matrix")
    weights, bias = unit.constant(1), None
    if call.operator.kind == "Gemm":
        if call.attribute("transA", 0):
            raise unit.unsupported("transA", "transA 0")
        weights, alpha = weights if call.attribute("transB", 0) else weights.T, np.float32(call.attribute("alpha", 1.0))
        weights = weights if alpha == 1 else weights * alpha
        if call.has(2):
            if any(extent != 1 for extent in call.shape(2)[:-1]):
                raise unit.unsupported(f"a bias of {list(call.shape(2))}", "one for each column")
            bias = np.broadcast_to(unit.constant(2) * np.float32(call.attribute("beta", 1.0)), (1, weights.shape[0])).reshape(-1)
    else:
        weights = weights.T
    unit, weights = on_rows(unit, weights)
    convolution(out, unit, Window(unit.operand(0), (1, 1)), weights[:, :, None, None], bias)


def _pool(out: Writer, unit: Unit) -> None:
    call = unit.call
    if call.operator.kind == "MaxPool":
        max_pool(out, unit, window_of(unit, trimmed=True), empty=not all(axis.covered((0, axis.size_out)).all() for axis in windows(call)))
        return
    padded = bool(call.attribute("count_include_pad", 0))
    counts = (axis.covered((0, axis.size_out), padded=padded).clip(1) for axis in windows(call))
    average_pool(out, unit, window_of(unit, trimmed=True), np.outer(*counts).astype(np.float32))


def _mean(out: Writer, unit: Unit) -> None:
    call = unit.call
    if is_pointwise(call):
        _sums(out, unit)
        return
    if call.operator.kind == "ReduceSum" or reduced_axes(call) != {2, 3} or not unit.layouts(unit.operand(0)).in_pixels:
        raise unit.unsupported(f"a mean of {list(call.shape(0))} over axes {reduced_axes(call)}", "a mean over rows and pixels")
    mean(out, unit, unit.operand(0))


def _largest(out: Writer, unit: Unit) -> None:
    call = unit.call
    if reduced_axes(call) != {2, 3} or not unit.layouts(unit.operand(0)).in_pixels:
        raise unit.unsupported(f"a maximum of {list(call.shape(0))} over axes {reduced_axes(call)}", "one over rows and pixels")
    largest(out, unit, unit.operand(0))


def _concat(out: Writer, unit: Unit) -> None:
    call = unit.call
    axis = call.attribute("axis", 0) % len(call.result)
    inputs = range(len(call.operator.inputs))
    if any(call.constant) or any(unit.layouts(m).order[-1:] != (axis,) for m in (unit.result, *(unit.operand(k) for k in inputs))):
        raise unit.unsupported(f"axis {axis} of {list(call.result)}, or a constant", "feature maps side by side in their channels")
    maps, channels = [unit.operand(k) for k in inputs], [call.shape(k)[axis] for k in inputs]
    firsts = accumulate((0, *channels))
    concatenation(out, unit, [(m, first) for m, first in zip(maps, firsts, strict=False) if m not in unit.placed])


def _softmax(out: Writer, unit: Unit) -> None:
    call = unit.call
    axis = call.attribute("axis", -1) % len(call.result)
    if any(unit.layouts(m).order[-1:] != (axis,) for m in (unit.operand(0), unit.result)):
        raise unit.unsupported(f"axis {axis} of {list(call.result)}", "softmax over channels")
    softmax(out, unit, unit.operand(0))


def _sums(out: Writer, unit: Unit) -> None:
    call, source = unit.call, unit.operand(0)
    rank = len(call.shape(0))
    if unit.layouts(source).order[-1] != rank - 1 or unit.images(source).rows != unit.images(unit.result).rows:
        raise unit.unsupported(
            f"{list(call.shape(0))}, axes in the order {list(unit.layouts(source).order)}", "the last axis innermost, in as many rows"
        )
    kept = [axis for axis in unit.layouts(unit.result).order if unit.layouts(unit.result).shape[axis] > 1]
    if kept != [axis for axis in unit.layouts(source).order[:-1] if call.shape(0)[axis] > 1]:
        raise unit.unsupported(f"a result with axes in the order {kept}", "the order of the operand")
    sums(out, unit, source, f"(1.0f / {call.shape(0)[-1]}.0f)" if call.operator.kind == "ReduceMean" else "1.0f")


def _layer_normalization(out: Writer, unit: Unit) -> None:
    call, source = unit.call, unit.operand(0)
    rank = len(call.shape(0))
    innermost = all(unit.layouts(m).order[-1] == rank - 1 for m in (source, unit.result))
    vectors = [index for index in (1, 2) if call.has(index)]
    if call.attribute("axis", -1) % rank != rank - 1 or not innermost or any(call.shape(index) != call.shape(0)[-1:] for index in vectors):
        raise unit.unsupported(f"{list(call.shape(0))} from axis {call.attribute('axis', -1)}", "the last axis, innermost")
    found = [unit.blob.add(unit.constant(k)) if call.constant[k] else unit.address(unit.operand(k), "0") for k in vectors]
    held = [FLOAT32 if call.constant[k] else unit.stored(unit.operand(k)) for k in vectors]
    bias = found[1] if len(found) > 1 else ""
    layer_normalization(out, unit, source, found[0], bias, (held[0], held[-1]), call.attribute("epsilon", 1e-5))


def _gather(out: Writer, unit: Unit) -> None:
    call = unit.call
    made = unit.layouts(unit.result)
    if not call.constant[0] or call.constant[1] or call.attribute("axis", 0) or len(call.shape(0)) != 2 or made.order[-1] != len(made.shape) - 1:
        raise unit.unsupported(f"{list(call.shape(1))} of {list(call.shape(0))}", "rows of a constant matrix, by indices that are computed")
    indices = unit.operand(1)
    table = unit.stored(unit.result).constant(unit.blob, unit.constant(0))
    gather(out, unit, table, call.shape(0)[0], unit.layouts(indices), unit.address(indices, "0"))


def _split(out: Writer, unit: Unit) -> None:
    call = unit.call
    rank, results = len(call.shape(0)), unit.flow.results[unit.head]
    if call.attribute("axis", 0) % rank != rank - 1 or any(unit.layouts(m).order[-1] != rank - 1 for m in (unit.operand(0), *results)):
        raise unit.unsupported(f"axis {call.attribute('axis', 0)} of {list(call.shape(0))}", "channels that are cut apart")
    if any(unit.layouts(m).order != unit.layouts(unit.operand(0)).order for m in results):  # behind a view, pixels may come in another order
        raise unit.unsupported("results whose pixels lie in another order than those of the operand", "the same order")
    sizes = split_sizes(call)
    assert sizes is not None, "shapes are static"
    asked = [first for name, first in zip(call.operator.outputs, accumulate((0, *sizes)), strict=False) if name]
    separation(out, unit, unit.operand(0), [(m, first) for m, first in zip(results, asked, strict=True) if m not in unit.placed])


def _resize(out: Writer, unit: Unit) -> None:
    call = unit.call
    if not all(call.values[i] is not None for i in (1, 2, 3) if call.has(i)):
        raise unit.unsupported("sizes that are computed", "constant ones")
    images, channels, rows, columns = (axis_taps(call, axis) for axis in range(4))
    if images is not None or channels is not None or any(taps is not None and taps.outside is not None for taps in (rows, columns)):
        raise unit.unsupported("images or channels that are resized, or values from outside the map", "rows and pixels resized, from inside the map")
    interpolation(out, unit, unit.operand(0), *(_taps(taps, size) for taps, size in zip((rows, columns), call.result[2:], strict=True)))


def _taps(taps: AxisTaps | None, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights; every element its own where the axis stays as it is."""
    return (np.arange(size)[:, None], np.ones((size, 1))) if taps is None else (taps.indices, taps.weights)


def _depth_to_space(out: Writer, unit: Unit) -> None:
    call = unit.call
    crd = call.attribute("mode", "DCR") == "CRD"
    depth_to_space(out, unit, unit.operand(0), call.attribute("blocksize", 1), channels_outermost=crd)


def _transposed(out: Writer, unit: Unit) -> None:
    call = unit.call
    if call.attribute("group", 1) != 1:
        raise unit.unsupported(f"{call.attribute('group', 1)} groups", "one")
    axes = tuple((axis.stride, axis.dilation, axis.pad) for axis in windows(call))
    transposed(out, unit, unit.operand(0), unit.constant(1), unit.constant(2) if call.has(2) else None, axes)


HEADS: dict[str, Callable[[Writer, Unit], None]] = {
    "Conv": _conv, "Gemm": _product, "MatMul": _product, "MaxPool": _pool, "AveragePool": _pool, "ReduceMean": _mean, "ReduceSum": _mean,
    "GlobalAveragePool": _mean, "GlobalMaxPool": _largest, "ReduceMax": _largest, "LayerNormalization": _layer_normalization, "Gather": _gather,
    "Split": _split, "Concat": _concat, "Softmax": _softmax, "Resize": _resize, "DepthToSpace": _depth_to_space, "ConvTranspose": _transposed,
}  # fmt: skip
MANY = 128  # input channels
ON_IMAGES = frozenset({"Conv", "MaxPool", "AveragePool", "Resize", "DepthToSpace", "ConvTranspose"})
POINTWISE = frozenset({"Gemm", "MatMul", "Softmax", "Concat", "LayerNormalization", "Gather", "Split"})
WITH_TAIL = frozenset(
    """Conv ConvTranspose DepthToSpace Resize Gemm MatMul MaxPool AveragePool ReduceMean ReduceSum ReduceMax GlobalAveragePool GlobalMaxPool
    Softmax LayerNormalization""".split()
)  # whose kernels apply a tail


def takes_tail(call: Call, tail: Tail) -> bool:
    """Whether the kernel of a head can apply a tail. Tiles of several pixels do not know where one row of an operand ends and the next begins."""
    if call.operator.kind not in WITH_TAIL or call.operator.kind in ("Softmax", "LayerNormalization"):
        return True
    return is_product(call) or all(extra.reach != "row" for extra in tail.extras)


def is_product(call: Call) -> bool:
    """Whether it is a product of two maps."""
    return call.operator.kind == "MatMul" and not any(call.constant)
