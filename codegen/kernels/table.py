"""Which kernel makes which operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from codegen.elements import FLOAT32
from codegen.kernels.choice import Kernel, Write
from codegen.kernels.convolution import convolution
from codegen.kernels.depthwise import average_pool, depthwise, max_pool
from codegen.kernels.moving import gather, separation
from codegen.kernels.normalization import layer_normalization, softmax, sums
from codegen.kernels.product import product
from codegen.kernels.resampling import depth_to_space, interpolation, transposed
from codegen.kernels.simple import concatenation, elementwise, largest, mean
from codegen.kernels.unit import Unit
from codegen.kernels.vector import is_vector_product, vector_product
from codegen.kernels.weights import in_order, on_rows, without_groups
from codegen.kernels.window import Window, window_of
from codegen.kernels.winograd import loss, winograd, worthwhile
from codegen.layout import Layout
from codegen.source import Unsupported
from codegen.tails import Tail, arity
from codegen.target import Target
from lfopt.ops import Call
from lfopt.ops.interpolation import Taps
from lfopt.ops.parameters import reduced_axes, split_sizes
from lfopt.ops.resizing import axis_taps
from lfopt.ops.windows import windows


def kernels_of(unit: Unit) -> tuple[Kernel, ...]:
    """The kernels that may take an operator on floats, in the order in which they are asked. Raises Unsupported where none is to be asked."""
    call = unit.call
    kind = call.operator.kind
    if arity(call):
        return (ELEMENTWISE,)
    if len(call.results) != 1 and kind != "Split":
        raise unit.unsupported(f"{len(call.results)} results", "operators with one")
    if kind not in KERNELS:
        raise unit.unsupported("an operator that has no kernel", ", ".join(sorted(KERNELS)) + " and elementwise operators")
    if kind in ON_IMAGES:
        unit.require_pixels()
    types = {unit.flow.maps[m].dtype for m in (unit.result, *(o.map for o in unit.flow.operands[unit.head]))}
    if kind != "Gather" and types != {"float32"}:
        raise unit.unsupported(f"maps of {', '.join(sorted(types))}", "float32")
    if is_product(call):
        return (PRODUCT,)
    return (SUMS,) if kind in REDUCTIONS and is_pointwise(call) else KERNELS[kind]


def is_pointwise(call: Call) -> bool:
    """Whether it reads, for each pixel, that pixel alone: a whole map can then be taken as one long row."""
    kind = call.operator.kind
    if kind in POINTWISE:
        return True
    if kind in REDUCTIONS:
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


def winograd_tile(call: Call, read: Layout, made: Layout, target: Target) -> int | str:
    """Results along a side of the tiles of a convolution by Winograd's algorithm; or why it had better be direct.

    Transforms lose more, the larger their tiles, and a sum loses more, the more channels it has: tiles of 4 are for those that lose more anyway,
    and for maps in bfloat16, which lose a thousand times that.
    """
    if call.operator.kind != "Conv" or call.attribute("group", 1) != 1 or len(call.result) != 4 or call.values[1] is None:
        return "found groups, other axes or weights that are computed; accepted: constant weights of [N, C, H, W] without groups"
    if any((w.kernel, w.stride, w.dilation) != (3, 1, 1) for w in windows(call)):
        kernel, stride = ([getattr(w, name) for w in windows(call)] for name in ("kernel", "stride"))
        return f"found windows of {kernel} at strides {stride}; accepted: [3, 3] at strides [1, 1] without dilation"
    if not all(layout.in_pixels and layout.tensor.dtype == "float32" for layout in (read, made)):
        return "found maps that are no floats in pixels; accepted: floats in pixels"
    exact = target.element.floats and read.image.channels < MANY
    most = min(target.winograd, 2) if exact else target.winograd
    return worthwhile(read.image, made.image, target, most) or loss(read.image, made.image, target, most)


# -- convolutions and products with constant matrices ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Dense:
    """What is summed over all input channels: a convolution without groups, or a product with a constant matrix as one of one tap."""

    unit: Unit  # that sees what it reads as rows of pixels
    window: Window
    weights: Callable[[], np.ndarray]  # (output channels, input channels, kernel rows, kernel columns)
    bias: np.ndarray | None  # (output channels,)


def _dense(unit: Unit) -> _Dense:
    """Raises Unsupported."""
    call = unit.call
    if call.operator.kind != "Conv":
        return _matrix(unit)
    weights, bias = _weights(unit)
    group = call.attribute("group", 1)
    return _Dense(unit, window_of(unit), lambda: weights if group == 1 else without_groups(weights, group), bias)


def _weights(unit: Unit) -> tuple[np.ndarray, np.ndarray | None]:
    """Weights and bias of a convolution; of one along a column, as one along a row. Raises Unsupported."""
    weights, bias = unit.constant(1), unit.constant(2) if unit.call.has(2) else None
    return weights.swapaxes(2, 3) if unit.flat and is_column(unit.call) else weights, bias


def _matrix(unit: Unit) -> _Dense:
    """Gemm and MatMul with constant weights."""
    call = unit.call
    if not call.constant[1] or call.constant[0] or len(call.shape(1)) != 2:
        raise unit.unsupported("operands that are both computed, or a stack of matrices", "a feature map times a constant matrix")
    weights, bias, alpha = unit.constant(1).T, None, np.float32(1)
    if call.operator.kind == "Gemm":
        if call.attribute("transA", 0):
            raise unit.unsupported("transA", "transA 0")
        weights, alpha = weights.T if call.attribute("transB", 0) else weights, np.float32(call.attribute("alpha", 1.0))
        if call.has(2):
            if any(extent != 1 for extent in call.shape(2)[:-1]):
                raise unit.unsupported(f"a bias of {list(call.shape(2))}", "one for each column")
            bias = np.broadcast_to(unit.constant(2) * np.float32(call.attribute("beta", 1.0)), (1, weights.shape[0])).reshape(-1)
    seen = on_rows(unit)
    return _Dense(seen, Window(unit.operand(0), (1, 1)), lambda: in_order(unit, weights if alpha == 1 else weights * alpha)[:, :, None, None], bias)


def _require(unit: Unit, *maps: int) -> None:
    """Raises Unsupported where a map, the result, or what a tail reads are no rows of pixels."""
    for m in (*maps, unit.result):
        unit.images(m)
    unit.require_extras()


def _winograd(unit: Unit) -> Write:
    size = winograd_tile(unit.call, unit.layouts(unit.operand(0)), unit.layouts(unit.result), unit.target)
    if isinstance(size, str):
        raise Unsupported(f"node {unit.call.operator.name!r} (Conv): {size}")
    if not unit.whole:
        raise unit.unsupported("rows in rings", "whole maps")
    weights, bias = _weights(unit)
    for extra in unit.tail.extras:
        if extra.map >= 0 and extra.reach == "element":
            unit.address(extra.map, "r")
    return lambda out: winograd(out, unit, window_of(unit), weights, bias, size)


def _depthwise(unit: Unit) -> Write:
    group, (weights, bias) = unit.call.attribute("group", 1), _weights(unit)
    if group == 1 or not group == unit.call.shape(0)[1] == weights.shape[0]:
        raise unit.unsupported("no groups" if group == 1 else f"{group} groups of {weights.shape[1]} channels", "a group for every channel")
    _require(unit, unit.operand(0))
    return lambda out: depthwise(out, unit, window_of(unit), weights, bias)


def _vector_product(unit: Unit) -> Write:
    dense = _dense(unit)
    if not is_vector_product(dense.unit, dense.window):
        raise unit.unsupported("several pixels or taps", "one pixel, as a matrix times a vector")
    _require(dense.unit, dense.window.map)
    shift = np.zeros(dense.unit.images(unit.result).channels, np.float32) if dense.bias is None else dense.bias
    return lambda out: vector_product(out, dense.unit, dense.window.map, dense.weights()[:, :, 0, 0], shift)


def _convolution(unit: Unit) -> Write:
    dense = _dense(unit)
    _require(dense.unit, dense.window.map)
    return lambda out: convolution(out, dense.unit, dense.window, dense.weights(), dense.bias)


# -- pools and reductions ----------------------------------------------------------------------------------------------------------------------


def _max_pool(unit: Unit) -> Write:
    _require(unit, unit.operand(0))
    empty = not all(axis.covered((0, axis.size_out)).all() for axis in windows(unit.call))
    return lambda out: max_pool(out, unit, window_of(unit, trimmed=True), empty=empty)


def _average_pool(unit: Unit) -> Write:
    _require(unit, unit.operand(0))
    padded = bool(unit.call.attribute("count_include_pad", 0))
    counts = (axis.covered((0, axis.size_out), padded=padded).clip(1) for axis in windows(unit.call))
    divisors = np.outer(*counts).astype(np.float32)
    return lambda out: average_pool(out, unit, window_of(unit, trimmed=True), divisors)


def _mean(unit: Unit) -> Write:
    call, source = unit.call, unit.operand(0)
    if call.operator.kind == "ReduceSum" or reduced_axes(call) != {2, 3} or not unit.layouts(source).in_pixels:
        raise unit.unsupported(f"a mean of {list(call.shape(0))} over axes {reduced_axes(call)}", "a mean over rows and pixels")
    _require(unit, source)
    return lambda out: mean(out, unit, source)


def _largest(unit: Unit) -> Write:
    call, source = unit.call, unit.operand(0)
    if reduced_axes(call) != {2, 3} or not unit.layouts(source).in_pixels:
        raise unit.unsupported(f"a maximum of {list(call.shape(0))} over axes {reduced_axes(call)}", "one over rows and pixels")
    _require(unit, source)
    return lambda out: largest(out, unit, source)


def _concat(unit: Unit) -> Write:
    call = unit.call
    axis = call.attribute("axis", 0) % len(call.result)
    inputs = range(len(call.operator.inputs))
    if any(call.constant) or any(unit.layouts(m).order[-1:] != (axis,) for m in (unit.result, *(unit.operand(k) for k in inputs))):
        raise unit.unsupported(f"axis {axis} of {list(call.result)}, or a constant", "feature maps side by side in their channels")
    maps, channels = [unit.operand(k) for k in inputs], [call.shape(k)[axis] for k in inputs]
    firsts = accumulate((0, *channels))
    parts = [(m, first) for m, first in zip(maps, firsts, strict=False) if m not in unit.placed]
    _require(unit, *(m for m, _ in parts))
    return lambda out: concatenation(out, unit, parts)


def _softmax(unit: Unit) -> Write:
    call = unit.call
    axis = call.attribute("axis", -1) % len(call.result)
    if any(unit.layouts(m).order[-1:] != (axis,) for m in (unit.operand(0), unit.result)):
        raise unit.unsupported(f"axis {axis} of {list(call.result)}", "softmax over channels")
    _require(unit, unit.operand(0))
    return lambda out: softmax(out, unit, unit.operand(0))


def _sums(unit: Unit) -> Write:
    call, source = unit.call, unit.operand(0)
    rank = len(call.shape(0))
    if unit.layouts(source).order[-1] != rank - 1 or unit.images(source).rows != unit.images(unit.result).rows:
        raise unit.unsupported(
            f"{list(call.shape(0))}, axes in the order {list(unit.layouts(source).order)}", "the last axis innermost, in as many rows"
        )
    kept = [axis for axis in unit.layouts(unit.result).order if unit.layouts(unit.result).shape[axis] > 1]
    if kept != [axis for axis in unit.layouts(source).order[:-1] if call.shape(0)[axis] > 1]:
        raise unit.unsupported(f"a result with axes in the order {kept}", "the order of the operand")
    unit.require_extras()
    return lambda out: sums(out, unit, source, f"(1.0f / {call.shape(0)[-1]}.0f)" if call.operator.kind == "ReduceMean" else "1.0f")


def _layer_normalization(unit: Unit) -> Write:
    call, source = unit.call, unit.operand(0)
    rank = len(call.shape(0))
    innermost = all(unit.layouts(m).order[-1] == rank - 1 for m in (source, unit.result))
    vectors = [index for index in (1, 2) if call.has(index)]
    if call.attribute("axis", -1) % rank != rank - 1 or not innermost or any(call.shape(index) != call.shape(0)[-1:] for index in vectors):
        raise unit.unsupported(f"{list(call.shape(0))} from axis {call.attribute('axis', -1)}", "the last axis, innermost")
    _require(unit, source)
    found = [unit.constant(k) if call.constant[k] else unit.address(unit.operand(k), "0") for k in vectors]
    held = [FLOAT32 if call.constant[k] else unit.stored(unit.operand(k)) for k in vectors]
    return lambda out: layer_normalization(out, unit, source, found, held, call.attribute("epsilon", 1e-5))


def _gather(unit: Unit) -> Write:
    call = unit.call
    made = unit.layouts(unit.result)
    if not call.constant[0] or call.constant[1] or call.attribute("axis", 0) or len(call.shape(0)) != 2 or made.order[-1] != len(made.shape) - 1:
        raise unit.unsupported(f"{list(call.shape(1))} of {list(call.shape(0))}", "rows of a constant matrix, by indices that are computed")
    indices = unit.operand(1)
    stored, values = unit.stored(unit.result), unit.constant(0)
    _require(unit)
    return lambda out: gather(out, unit, stored.constant(out.blob, values), call.shape(0)[0], unit.layouts(indices), unit.address(indices, "0"))


def _split(unit: Unit) -> Write:
    call = unit.call
    rank, results = len(call.shape(0)), unit.flow.results[unit.head]
    if call.attribute("axis", 0) % rank != rank - 1 or any(unit.layouts(m).order[-1] != rank - 1 for m in (unit.operand(0), *results)):
        raise unit.unsupported(f"axis {call.attribute('axis', 0)} of {list(call.shape(0))}", "channels that are cut apart")
    if any(unit.layouts(m).order != unit.layouts(unit.operand(0)).order for m in results):  # behind a view, pixels may come in another order
        raise unit.unsupported("results whose pixels lie in another order than those of the operand", "the same order")
    sizes = split_sizes(call)
    assert sizes is not None, "shapes are static"
    asked = [first for name, first in zip(call.operator.outputs, accumulate((0, *sizes)), strict=False) if name]
    parts = [(m, first) for m, first in zip(results, asked, strict=True) if m not in unit.placed]
    for m in (unit.operand(0), *(m for m, _ in parts)):
        unit.images(m)
    return lambda out: separation(out, unit, unit.operand(0), parts)


def _resize(unit: Unit) -> Write:
    call = unit.call
    if not all(call.values[i] is not None for i in (1, 2, 3) if call.has(i)):
        raise unit.unsupported("sizes that are computed", "constant ones")
    images, channels, rows, columns = (axis_taps(call, axis) for axis in range(4))
    if images is not None or channels is not None or any(taps is not None and taps.outside is not None for taps in (rows, columns)):
        raise unit.unsupported("images or channels that are resized, or values from outside the map", "rows and pixels resized, from inside the map")
    _require(unit, unit.operand(0))
    along = [_taps(taps, size) for taps, size in zip((rows, columns), call.result[2:], strict=True)]
    return lambda out: interpolation(out, unit, unit.operand(0), along[0], along[1])


def _taps(taps: Taps | None, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights; every element its own where the axis stays as it is."""
    return (np.arange(size)[:, None], np.ones((size, 1))) if taps is None else (taps.indices, taps.weights)


def _depth_to_space(unit: Unit) -> Write:
    call = unit.call
    crd = call.attribute("mode", "DCR") == "CRD"
    _require(unit, unit.operand(0))
    return lambda out: depth_to_space(out, unit, unit.operand(0), call.attribute("blocksize", 1), channels_outermost=crd)


def _transposed(unit: Unit) -> Write:
    call = unit.call
    if call.attribute("group", 1) != 1:
        raise unit.unsupported(f"{call.attribute('group', 1)} groups", "one")
    axes = tuple((axis.stride, axis.dilation, axis.pad) for axis in windows(call))
    _require(unit, unit.operand(0))
    weights, bias = unit.constant(1), unit.constant(2) if call.has(2) else None
    return lambda out: transposed(out, unit, unit.operand(0), weights, bias, axes)


ELEMENTWISE = Kernel("elementwise", elementwise)
WINOGRAD = Kernel("Winograd convolution", _winograd, whole_maps=True)
DEPTHWISE = Kernel("depthwise convolution", _depthwise)
VECTOR = Kernel("matrix-vector product", _vector_product)
CONVOLUTION = Kernel("direct convolution", _convolution)
MATRIX = Kernel("matrix product", _convolution)  # with constant weights: a convolution of one tap
PRODUCT = Kernel("product of two maps", product)
SUMS = Kernel("reduction of channels", _sums)
MEAN, LARGEST = Kernel("mean over pixels", _mean), Kernel("maximum over pixels", _largest)
KERNELS: dict[str, tuple[Kernel, ...]] = {  # by kind of operator, in the order in which they are asked
    "Conv": (WINOGRAD, DEPTHWISE, VECTOR, CONVOLUTION),
    "Gemm": (VECTOR, MATRIX),
    "MatMul": (VECTOR, MATRIX),
    "MaxPool": (Kernel("max pool", _max_pool),),
    "AveragePool": (Kernel("average pool", _average_pool),),
    "ReduceMean": (MEAN,),
    "ReduceSum": (MEAN,),
    "GlobalAveragePool": (MEAN,),
    "GlobalMaxPool": (LARGEST,),
    "ReduceMax": (LARGEST,),
    "LayerNormalization": (Kernel("layer normalization", _layer_normalization),),
    "Gather": (Kernel("gather of rows", _gather),),
    "Split": (Kernel("split of channels", _split),),
    "Concat": (Kernel("concatenation of channels", _concat),),
    "Softmax": (Kernel("softmax", _softmax),),
    "Resize": (Kernel("interpolation", _resize),),
    "DepthToSpace": (Kernel("depth to space", _depth_to_space),),
    "ConvTranspose": (Kernel("transposed convolution", _transposed),),
}
REDUCTIONS = frozenset({"ReduceMean", "ReduceSum"})
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
