"""Which kernel makes which operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from codegen.elements import FLOAT32
from codegen.epilogue import Epilogue, arity
from codegen.kernels.choice import Kernel, Write
from codegen.kernels.convolution import convolution
from codegen.kernels.depthwise import average_pool, depthwise, max_pool
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.moving import gather, separation
from codegen.kernels.normalization import layer_normalization, softmax, sums
from codegen.kernels.product import product
from codegen.kernels.resampling import Transposed, depth_to_space, interpolation, transposed
from codegen.kernels.simple import concatenation, elementwise, largest, mean
from codegen.kernels.tiles import FROM_MEMORY
from codegen.kernels.vector import is_vector_product, vector_product
from codegen.kernels.weights import in_order, on_rows
from codegen.kernels.window import KernelWindow, window_of
from codegen.kernels.winograd import loss, winograd, worthwhile
from codegen.layout import MapLayout, split_starts
from codegen.source import Unsupported
from codegen.target import Target
from lfopt.ops import Call
from lfopt.ops.interpolation import AxisTaps
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.resizing import axis_taps
from lfopt.ops.windows import windows


def kernels_of(fused: FusedKernel) -> tuple[Kernel, ...]:
    """The kernels that may take an operator on floats, in the order in which they are asked.

    Raises Unsupported where none is to be asked.
    """
    call = fused.call
    kind = call.operator.kind
    if arity(call):
        return (ELEMENTWISE,)
    if len(call.results) != 1 and kind != "Split":
        raise fused.unsupported(f"{len(call.results)} results", "operators with one")
    if kind not in KERNELS:
        raise fused.unsupported(
            "an operator that has no kernel", ", ".join(sorted(KERNELS)) + " and elementwise operators"
        )
    if kind in ON_IMAGES:
        fused.require_pixels(several=kind in SLIDING)
    types = {
        fused.flow.maps[m].dtype for m in (fused.result, *(o.map for o in fused.flow.operands[fused.anchor]))
    }
    if kind != "Gather" and types != {"float32"}:
        raise fused.unsupported(f"maps of {', '.join(sorted(types))}", "float32")
    if kind in WITH_EPILOGUE - PRODUCTS:
        _require(fused, fused.operand(0))
    if is_product(call):
        return (PRODUCT,)
    if kind in REDUCTIONS and is_pointwise(call):
        return (SUMS,)
    return KERNELS[kind]


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


def is_depthwise(call: Call) -> bool:
    """Whether it is a convolution of every channel on its own."""
    group = call.attribute("group", 1)
    return call.operator.kind == "Conv" and 1 < group == call.shape(0)[1] == call.result[1]


def is_column(call: Call) -> bool:
    """Whether it is a convolution of maps one pixel wide.

    The whole map can be taken as one long row, along which the window slides.
    """
    if call.operator.kind != "Conv" or len(call.result) != 4 or call.result[0] != 1:
        return False
    if call.result[3] != 1 or call.shape(0)[3] != 1:
        return False
    across = windows(call)[1]
    return across.kernel == 1 and across.pad == 0


def winograd_tile(call: Call, read: MapLayout, written: MapLayout, target: Target) -> int | str:
    """Results along a side of Winograd's tiles of a convolution; or why a direct one is better.

    Transforms lose more, the larger their tiles, and a sum loses more, the more channels it has: tiles of 4
    are for those that lose more anyway, and for maps in bfloat16, which lose a thousand times that.
    """
    if call.operator.kind != "Conv" or len(call.result) != 4 or call.values[1] is None:
        return "found other axes, or weights that are computed; accepted: constant weights of [N, C, H, W]"
    if is_depthwise(call):
        return "found a group for every channel; accepted: groups of several"
    if any((w.kernel, w.stride, w.dilation) != (3, 1, 1) for w in windows(call)):
        kernel, stride = ([getattr(w, name) for w in windows(call)] for name in ("kernel", "stride"))
        return (
            f"found windows of {kernel} at strides {stride}; accepted: [3, 3] at strides [1, 1] without "
            "dilation"
        )
    if not all(layout.in_images and layout.tensor.dtype == "float32" for layout in (read, written)):
        return "found maps that are no floats in pixels; accepted: floats in pixels"
    groups = call.attribute("group", 1)
    exact = target.element.floats and read.image.channels < MANY * groups
    most = min(target.winograd, 2) if exact else target.winograd
    return worthwhile(read.image, written.image, target, most, groups) or loss(
        read.image, written.image, target, most, groups
    )


# -- convolutions and products with constant matrices --------------------------------------------------------


@dataclass(frozen=True)
class _Dense:
    """A convolution, or a product with a constant matrix, which is a convolution of one tap."""

    fused: FusedKernel  # that sees what it reads as rows of pixels
    window: KernelWindow
    # (output channels, input channels of a group, kernel rows, kernel columns)
    weights: Callable[[], np.ndarray]
    bias: np.ndarray  # (output channels,)


def _dense(fused: FusedKernel) -> _Dense:
    """An operator as a convolution. Raises Unsupported for operands that have no such form."""
    if fused.call.operator.kind != "Conv":
        return _matrix(fused)
    weights, bias = _weights(fused)
    window = window_of(fused, groups=fused.call.attribute("group", 1))
    return _Dense(fused, window, lambda: weights, bias)


def _weights(fused: FusedKernel) -> tuple[np.ndarray, np.ndarray]:
    """(weights, bias) of a convolution; of one along a column, as one along a row. Raises Unsupported."""
    weights = fused.constant(1)
    return weights.swapaxes(2, 3) if fused.flat and is_column(fused.call) else weights, _bias(fused)


def _bias(fused: FusedKernel) -> np.ndarray:
    """(output channels,) of a convolution; zeros where it has none. Raises Unsupported."""
    if fused.call.has(2):
        return fused.constant(2)
    return np.zeros(fused.call.result[1], np.float32)


def _matrix(fused: FusedKernel) -> _Dense:
    """Gemm and MatMul with constant weights."""
    call = fused.call
    if not call.constant[1] or call.constant[0] or len(call.shape(1)) != 2:
        raise fused.unsupported(
            "operands that are both computed, or a stack of matrices", "a feature map times a constant matrix"
        )
    weights = fused.constant(1).T
    bias = np.zeros(call.result[-1], np.float32)
    alpha = np.float32(1)
    if call.operator.kind == "Gemm":
        if call.attribute("transA", 0):
            raise fused.unsupported("transA", "transA 0")
        weights = weights.T if call.attribute("transB", 0) else weights
        alpha = np.float32(call.attribute("alpha", 1.0))
        if call.has(2):
            if any(extent != 1 for extent in call.shape(2)[:-1]):
                raise fused.unsupported(f"a bias of {list(call.shape(2))}", "one for each column")
            beta = np.float32(call.attribute("beta", 1.0))
            # beta 0 leaves the operand out, whatever it holds
            given = fused.constant(2) * beta if beta else np.float32(0)
            bias = np.broadcast_to(given, (1, weights.shape[0])).reshape(-1)
    seen = on_rows(fused)
    return _Dense(
        seen,
        KernelWindow(fused.operand(0), (1, 1)),
        lambda: in_order(fused, weights if alpha == 1 else weights * alpha)[:, :, None, None],
        bias,
    )


def _require(fused: FusedKernel, *maps: int) -> None:
    """Raises Unsupported where a map, the result, or what an epilogue reads are no rows of pixels."""
    for m in (*maps, fused.result):
        fused.images(m)
    fused.require_extras()


def _winograd(fused: FusedKernel) -> Write:
    size = winograd_tile(
        fused.call, fused.layouts(fused.operand(0)), fused.layouts(fused.result), fused.target
    )
    if isinstance(size, str):
        raise Unsupported(f"node {fused.call.operator.name!r} (Conv): {size}")
    if not fused.whole:
        raise fused.unsupported("rows in rings", "whole maps")
    dense = _dense(fused)
    return lambda out: winograd(out, fused, dense.window, dense.weights(), dense.bias, size)


def _depthwise(fused: FusedKernel) -> Write:
    weights, bias = _weights(fused)
    if not is_depthwise(fused.call):
        group = fused.call.attribute("group", 1)
        raise fused.unsupported(
            "no groups" if group == 1 else f"{group} groups of {weights.shape[1]} channels",
            "a group for every channel",
        )
    return lambda out: depthwise(out, fused, window_of(fused), weights, bias)


def _vector_product(fused: FusedKernel) -> Write:
    dense = _dense(fused)
    if not is_vector_product(dense.fused, dense.window):
        raise fused.unsupported("several pixels or taps", "one pixel, as a matrix times a vector")
    _require(dense.fused, dense.window.map)
    return lambda out: vector_product(
        out, dense.fused, dense.window.map, dense.weights()[:, :, 0, 0], dense.bias
    )


def _convolution(fused: FusedKernel) -> Write:
    dense = _dense(fused)
    _require(dense.fused, dense.window.map)
    return lambda out: convolution(out, dense.fused, dense.window, dense.weights(), dense.bias)


def _whole_convolution(fused: FusedKernel) -> Write:
    dense = _dense(fused)
    count = fused.constant(1).size
    rows = dense.fused.images(fused.result).rows
    if not fused.whole or rows == 1:
        raise fused.unsupported("one row at a time", "whole maps of several rows")
    if count < FROM_MEMORY:
        raise fused.unsupported(f"{count:,} weights, which a cache holds", f"{FROM_MEMORY:,} and more")
    _require(dense.fused, dense.window.map)
    return lambda out: convolution(out, dense.fused, dense.window, dense.weights(), dense.bias, whole=True)


# -- pools and reductions ------------------------------------------------------------------------------------


def _max_pool(fused: FusedKernel) -> Write:
    empty = not all(axis.covered((0, axis.size_out)).all() for axis in windows(fused.call))
    return lambda out: max_pool(out, fused, window_of(fused, trimmed=True), empty=empty)


def _average_pool(fused: FusedKernel) -> Write:
    padded = bool(fused.call.attribute("count_include_pad", 0))
    counts = (axis.covered((0, axis.size_out), padded=padded).clip(1) for axis in windows(fused.call))
    divisors = np.outer(*counts).astype(np.float32)
    return lambda out: average_pool(out, fused, window_of(fused, trimmed=True), divisors)


def _mean(fused: FusedKernel) -> Write:
    call = fused.call
    source = fused.operand(0)
    if (
        call.operator.kind == "ReduceSum"
        or reduced_axes(call) != {2, 3}
        or not fused.layouts(source).in_pixels
    ):
        raise fused.unsupported(
            f"a mean of {list(call.shape(0))} over axes {reduced_axes(call)}", "a mean over rows and pixels"
        )
    return lambda out: mean(out, fused, source)


def _largest(fused: FusedKernel) -> Write:
    call = fused.call
    source = fused.operand(0)
    if reduced_axes(call) != {2, 3} or not fused.layouts(source).in_pixels:
        raise fused.unsupported(
            f"a maximum of {list(call.shape(0))} over axes {reduced_axes(call)}", "one over rows and pixels"
        )
    return lambda out: largest(out, fused, source)


def _require_same_pixels(fused: FusedKernel, *maps: int) -> None:
    """Raises Unsupported where pixels of a map, as it is seen, come in another order than the result's."""
    written = fused.layouts(fused.result).pixel_axes
    for m in maps:
        if (read := fused.layouts(m).pixel_axes) != written:
            raise fused.unsupported(
                f"pixels along axes {list(read)}, for a result whose lie along {list(written)}",
                "pixels in the order of the result's",
            )


def _concat(fused: FusedKernel) -> Write:
    call = fused.call
    axis = call.attribute("axis", 0) % len(call.result)
    inputs = range(len(call.operator.inputs))
    if any(call.constant) or any(
        fused.layouts(m).order[-1:] != (axis,) for m in (fused.result, *(fused.operand(k) for k in inputs))
    ):
        raise fused.unsupported(
            f"axis {axis} of {list(call.result)}, or a constant",
            "feature maps side by side in their channels",
        )
    maps = [fused.operand(k) for k in inputs]
    channels = [call.shape(k)[axis] for k in inputs]
    _require_same_pixels(fused, *maps)
    firsts = accumulate((0, *channels))
    parts = [(m, first) for m, first in zip(maps, firsts, strict=False) if m not in fused.aliased]
    _require(fused, *(m for m, _ in parts))
    return lambda out: concatenation(out, fused, parts)


def _softmax(fused: FusedKernel) -> Write:
    call = fused.call
    axis = call.attribute("axis", -1) % len(call.result)
    if any(fused.layouts(m).order[-1:] != (axis,) for m in (fused.operand(0), fused.result)):
        raise fused.unsupported(f"axis {axis} of {list(call.result)}", "softmax over channels")
    _require_same_pixels(fused, fused.operand(0))
    return lambda out: softmax(out, fused, fused.operand(0))


def _sums(fused: FusedKernel) -> Write:
    call = fused.call
    source = fused.operand(0)
    rank = len(call.shape(0))
    if (
        fused.layouts(source).order[-1] != rank - 1
        or fused.images(source).rows != fused.images(fused.result).rows
    ):
        raise fused.unsupported(
            f"{list(call.shape(0))}, axes in the order {list(fused.layouts(source).order)}",
            "the last axis innermost, in as many rows",
        )
    kept = [axis for axis in fused.layouts(fused.result).order if fused.layouts(fused.result).shape[axis] > 1]
    if kept != [axis for axis in fused.layouts(source).order[:-1] if call.shape(0)[axis] > 1]:
        raise fused.unsupported(f"a result with axes in the order {kept}", "the order of the operand")
    return lambda out: sums(
        out,
        fused,
        source,
        f"(1.0f / {call.shape(0)[-1]}.0f)" if call.operator.kind == "ReduceMean" else "1.0f",
    )


def _layer_normalization(fused: FusedKernel) -> Write:
    call = fused.call
    source = fused.operand(0)
    rank = len(call.shape(0))
    innermost = all(fused.layouts(m).order[-1] == rank - 1 for m in (source, fused.result))
    vectors = [index for index in (1, 2) if call.has(index)]
    if (
        call.attribute("axis", -1) % rank != rank - 1
        or not innermost
        or any(call.shape(index) != call.shape(0)[-1:] for index in vectors)
    ):
        raise fused.unsupported(
            f"{list(call.shape(0))} from axis {call.attribute('axis', -1)}", "the last axis, innermost"
        )
    _require_same_pixels(fused, source)
    operands = [
        fused.constant(k) if call.constant[k] else fused.address(fused.operand(k), "0") for k in vectors
    ]
    held = [FLOAT32 if call.constant[k] else fused.stored(fused.operand(k)) for k in vectors]
    return lambda out: layer_normalization(
        out, fused, source, operands, held, call.attribute("epsilon", 1e-5)
    )


def _gather(fused: FusedKernel) -> Write:
    call = fused.call
    written = fused.layouts(fused.result)
    if (
        not call.constant[0]
        or call.constant[1]
        or call.attribute("axis", 0)
        or len(call.shape(0)) != 2
        or written.order[-1] != len(written.shape) - 1
    ):
        raise fused.unsupported(
            f"{list(call.shape(1))} of {list(call.shape(0))}",
            "rows of a constant matrix, by indices that are computed",
        )
    indices = fused.operand(1)
    stored = fused.stored(fused.result)
    values = fused.constant(0)
    _require(fused)
    return lambda out: gather(
        out,
        fused,
        stored.constant(out.blob, values),
        call.shape(0)[0],
        fused.layouts(indices),
        fused.address(indices, "0"),
    )


def _split(fused: FusedKernel) -> Write:
    call = fused.call
    rank = len(call.shape(0))
    results = fused.flow.results[fused.anchor]
    if call.attribute("axis", 0) % rank != rank - 1 or any(
        fused.layouts(m).order[-1] != rank - 1 for m in (fused.operand(0), *results)
    ):
        raise fused.unsupported(
            f"axis {call.attribute('axis', 0)} of {list(call.shape(0))}", "channels that are cut apart"
        )
    source = fused.layouts(fused.operand(0))
    # behind a view, pixels may come in another order
    if any(fused.layouts(m).pixel_axes != source.pixel_axes for m in results):
        raise fused.unsupported(
            "results whose pixels lie in another order than those of the operand", "the same order"
        )
    parts = [
        (m, first) for m, first in zip(results, split_starts(call), strict=True) if m not in fused.aliased
    ]
    for m in (fused.operand(0), *(m for m, _ in parts)):
        fused.images(m)
    return lambda out: separation(out, fused, fused.operand(0), parts)


def _resize(fused: FusedKernel) -> Write:
    call = fused.call
    if not all(call.values[i] is not None for i in (1, 2, 3) if call.has(i)):
        raise fused.unsupported("sizes that are computed", "constant ones")
    images, channels, rows, columns = (axis_taps(call, axis) for axis in range(4))
    if (
        images is not None
        or channels is not None
        or any(taps is not None and taps.outside is not None for taps in (rows, columns))
    ):
        raise fused.unsupported(
            "images or channels that are resized, or values from outside the map",
            "rows and pixels resized, from inside the map",
        )
    along = [_taps(taps, size) for taps, size in zip((rows, columns), call.result[2:], strict=True)]
    return lambda out: interpolation(out, fused, fused.operand(0), along[0], along[1])


def _taps(taps: AxisTaps | None, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(results, taps) indices and weights; every element its own where the axis stays as it is."""
    if taps is None:
        return (np.arange(size)[:, None], np.ones((size, 1)))
    return (taps.indices, taps.weights)


def _depth_to_space(fused: FusedKernel) -> Write:
    call = fused.call
    crd = call.attribute("mode", "DCR") == "CRD"
    return lambda out: depth_to_space(
        out, fused, fused.operand(0), call.attribute("blocksize", 1), channels_outermost=crd
    )


def _transposed(fused: FusedKernel) -> Write:
    call = fused.call
    if call.attribute("group", 1) != 1:
        raise fused.unsupported(f"{call.attribute('group', 1)} groups", "one")
    axes = tuple((axis.stride, axis.dilation, axis.pad) for axis in windows(call))
    weights = fused.constant(1)
    bias = _bias(fused)
    how = Transposed(fused.operand(0), weights, bias, axes)
    return lambda out: transposed(out, fused, how)


ELEMENTWISE = Kernel("elementwise", elementwise)
VECTOR = Kernel("matrix-vector product", _vector_product)
MATRIX = Kernel("matrix product", _convolution)  # with constant weights: a convolution of one tap
PRODUCT = Kernel("product of two maps", product)
SUMS = Kernel("reduction of channels", _sums)
MEAN = Kernel("mean over pixels", _mean)
LARGEST = Kernel("maximum over pixels", _largest)
KERNELS: dict[str, tuple[Kernel, ...]] = {  # by kind of operator, in the order in which they are asked
    "Conv": (
        Kernel("Winograd convolution", _winograd, whole_maps=True),
        Kernel("depthwise convolution", _depthwise),
        VECTOR,
        Kernel("direct convolution of a whole map", _whole_convolution, whole_maps=True),
        Kernel("direct convolution", _convolution),
    ),
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
    **dict.fromkeys(["LogSoftmax", "Softmax"], (Kernel("softmax", _softmax),)),
    "Resize": (Kernel("interpolation", _resize),),
    "DepthToSpace": (Kernel("depth to space", _depth_to_space),),
    "ConvTranspose": (Kernel("transposed convolution", _transposed),),
}
PRODUCTS = frozenset({"Gemm", "MatMul"})
REDUCTIONS = frozenset({"ReduceMean", "ReduceSum"})
MANY = 128  # input channels
ON_IMAGES = frozenset({"Conv", "MaxPool", "AveragePool", "Resize", "DepthToSpace", "ConvTranspose"})
SLIDING = frozenset({"Conv", "MaxPool", "AveragePool"})  # windows over several images as well
POINTWISE = frozenset(
    {"Gemm", "MatMul", "LogSoftmax", "Softmax", "Concat", "LayerNormalization", "Gather", "Split"}
)
WITH_EPILOGUE = frozenset(
    """Conv ConvTranspose DepthToSpace Resize Gemm MatMul MaxPool AveragePool ReduceMean ReduceSum ReduceMax
    GlobalAveragePool GlobalMaxPool LogSoftmax Softmax LayerNormalization""".split()
)  # whose kernels apply an epilogue


ON_ROWS = frozenset({"LogSoftmax", "Softmax", "LayerNormalization"})  # that make the channels of one pixel


def takes_epilogue(call: Call, epilogue: Epilogue) -> bool:
    """Whether a kernel can apply an epilogue.

    Tiles of several pixels do not know where one row of an operand ends and the next begins.
    """
    if call.operator.kind not in WITH_EPILOGUE or call.operator.kind in ON_ROWS:
        return True
    return is_product(call) or all(extra.reach != "row" for extra in epilogue.extras)


def is_product(call: Call) -> bool:
    """Whether it is a product of two maps."""
    return call.operator.kind == "MatMul" and not any(call.constant)
