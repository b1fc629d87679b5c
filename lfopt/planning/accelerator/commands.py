"""How a Compute becomes commands of the accelerator: operation, parts, window; and what becomes none.

The cycle model (`simulator.model.timing`) and the encoder (`codegen.accel`) both go by this. The numbers of
lanes, accumulators and columns side by side are parameters: a Hardware has them, and for the chip in RTL so
has `lfopt.isa.tables`.

A Compute becomes commands of whole rows, as many at a time as the accumulators hold (`bands`). A command
passes over its pixels for every block of output channels and
    a contraction    every block of input channels and every element of the kernel (`contraction_loops`)
    a pool           every element of its window that meets the map (`sliding`)
    everything else  every element read (`vector_passes`).
What moves channels becomes one for each copy of lanes (`lfopt.planning.accelerator.lanes`). Two operators the
encoder takes apart further, and the cycle model does not: AveragePool by the elements that a window counts,
Resize by rows and columns of what repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, Span, box_shape, whole
from lfopt.isa.tables import COMPUTATION, Operation
from lfopt.ops import Call, Family, row_of
from lfopt.ops.arithmetic import CHOICE, EXTREME, MEAN, MOVE, PRODUCT, SUMS, TABLE, TERMS, arithmetic
from lfopt.ops.call import once_per_call
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.resizing import axis_taps, known
from lfopt.ops.traits import Arithmetic
from lfopt.ops.windows import windows
from lfopt.planning.accelerator.lanes import channel_runs

# largest step between result rows, or columns, of an operator that scatters its operand
MOST_STRIDE = COMPUTATION.by_name["o_step"].most

# -- what is done --------------------------------------------------------------------------------------------


def operation(call: Call) -> Operation:
    """Operation of an operator's commands on every element of their window; not for refused ones."""
    return (
        Operation.DEPTHWISE
        if arithmetic(call) is SUMS and is_depthwise(call)
        else SUPPORTED[arithmetic(call)].operation
    )


def refusal(call: Call) -> str | None:
    """Why the accelerator does not do an operator, whatever its schedule; None if it does."""
    result = call.result_tensors[0]
    how = arithmetic(call) if result.quantization is not None else None
    support = SUPPORTED.get(how) if how is not None else None
    if support is None:
        name = how.value if how else f"that of {result.dtype}"
        return (
            f"its arithmetic is {name}; the accelerator does "
            f"{', '.join(sorted(done.value for done in SUPPORTED))}"
        )
    return support.refusal(call) if support.does(call.operator.kind) else support.accepted


def _refused_sums(call: Call) -> str | None:
    by_matrix = len(call.shape(0)) == len(call.shape(1)) == 2 and not call.attribute("transA", 0)
    if not call.constant[1] or not (by_matrix or row_of(call).family is Family.CONVOLUTION):
        return SUPPORTED[SUMS].accepted
    if row_of(call).transposed:
        return _refused_scatter(call)
    return _refused_window(call) if call.operator.kind == "Conv" else None


def _refused_scatter(call: Call) -> str | None:
    groups = call.attribute("group", 1)
    if len(call.result) != 4 or groups > 1:
        return (
            f"found {groups} groups; the accelerator does 1"
            if len(call.result) == 4
            else _refused_window(call)
        )
    rows, columns = windows(call)
    if max(rows.dilation, columns.dilation) > 1 or max(rows.stride, columns.stride) > MOST_STRIDE:
        geometry = (
            f"strides {rows.stride} and {columns.stride}, dilations {rows.dilation} and {columns.dilation}"
        )
        return f"found {geometry}; the accelerator does strides up to {MOST_STRIDE}, and no dilation"
    return None


def _refused_window(call: Call) -> str | None:
    if len(call.result) != 4:
        return f"found {len(call.result) - 2} spatial axes; the accelerator does 2"
    rows, columns = windows(call)
    if rows.dilation != columns.dilation and min(rows.kernel, columns.kernel) > 1:
        return (
            f"found dilations {rows.dilation} and {columns.dilation}; the accelerator has one for both axes"
        )
    return None


def _refused_terms(call: Call) -> str | None:
    if len(call.tensors) != 2:
        return f"found {len(call.tensors)} operands; the accelerator adds 2"
    if call.shape(0) != call.shape(1):
        return (
            f"found operands {list(call.shape(0))} and {list(call.shape(1))}; the accelerator adds maps "
            "of one shape"
        )
    return None


def _refused_product(call: Call) -> str | None:
    shapes = [call.shape(0), call.shape(1)]
    if call.result in shapes and all(shape in (call.result, _one_pixel(call.result)) for shape in shapes):
        return None
    return (
        f"found operands {[list(shape) for shape in shapes]}; the accelerator multiplies maps of one "
        "shape, or a map by a vector of its channels"
    )


def _one_pixel(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a map of one pixel that is broadcast along rows and columns."""
    return (*shape[:2], *(1,) * (len(shape) - 2))


def _refused_fold(call: Call) -> str | None:
    """Why a pool or reduction is refused; None if it is not."""
    if row_of(call).slides:
        return _refused_window(call)
    if not folds_pixels(call):
        axes = reduced_axes(call)
        return (
            f"found axes {sorted(axes) if axes is not None else None}; the accelerator folds rows and "
            "columns together"
        )
    return None


def _refused_extreme(call: Call) -> str | None:
    return (
        SUPPORTED[EXTREME].accepted
        if len([name for name in call.operator.outputs if name]) > 1
        else _refused_fold(call)
    )


def _refused_choice(call: Call) -> str | None:
    return SUPPORTED[CHOICE].accepted if channel_runs(call) is None else None


def _refused_move(call: Call) -> str | None:
    if call.operator.kind != "Resize":
        return (
            SUPPORTED[MOVE].accepted
            if any(channel_runs(call, k) is None for k in range(len(call.results)))
            else None
        )
    alike = len(call.result) == 4 and call.result[:2] == call.shape(0)[:2]
    return (
        None
        if alike and known(call) and _repeats(call, 2) and _repeats(call, 3)
        else SUPPORTED[MOVE].accepted
    )


def _repeats(call: Call, axis: int) -> bool:
    """Whether a Resize to the nearest element makes the same number of elements of each along an axis."""
    size, size_out, taps = call.shape(0)[axis], call.result[axis], axis_taps(call, axis)
    return taps is None or bool(
        size
        and size_out % size == 0
        and (taps.indices == np.arange(size_out)[:, None] // (size_out // size)).all()
    )


class Support(NamedTuple):
    """The accelerator's support for one arithmetic."""

    operation: Operation
    # why it does not do one of its operators, by shapes and attributes; None if it does
    refusal: Callable[[Call], str | None] = lambda call: None
    kinds: frozenset[str] = frozenset()  # operators that it does; empty: all of that arithmetic
    accepted: str = ""  # said of all others

    def does(self, kind: str) -> bool:
        """Whether it does some operators of that kind."""
        return not self.kinds or kind in self.kinds


SUPPORTED: dict[Arithmetic, Support] = {
    SUMS: Support(
        Operation.CONV,
        _refused_sums,
        frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"}),
        "the accelerator does Conv and ConvTranspose, and Gemm and MatMul of one row, by constant weights",
    ),
    TABLE: Support(Operation.COPY),
    TERMS: Support(Operation.ADD, _refused_terms),
    PRODUCT: Support(Operation.MUL, _refused_product),
    MEAN: Support(Operation.SUM, _refused_fold),
    EXTREME: Support(
        Operation.MAX,
        _refused_extreme,
        frozenset({"MaxPool", "GlobalMaxPool", "ReduceMax"}),
        "the accelerator finds the largest elements, without their places",
    ),
    CHOICE: Support(
        Operation.COPY,
        _refused_choice,
        frozenset({"Concat"}),
        "the accelerator lays maps side by side by channels",
    ),
    MOVE: Support(
        Operation.COPY,
        _refused_move,
        frozenset({"Resize", "Split", "Slice", "Gather"}),
        "the accelerator moves elements by Split, Slice and Gather along channels, and by Resize to the "
        "nearest one, where it makes as many rows of each row, and columns of each column",
    ),
}


# -- parts ---------------------------------------------------------------------------------------------------


def bands(rows: Span, columns: Span, accumulators: int) -> Sequence[tuple[Span, Span]]:
    """(rows, columns) of the commands that make a box, as many rows at a time as fit the accumulators.

    Rows wider than the accumulators are cut into strips, one after the other.

    >>> bands((3, 8), (0, 5), accumulators=12)
    [((3, 5), (0, 5)), ((5, 7), (0, 5)), ((7, 8), (0, 5))]
    """
    (top, bottom), (left, right) = rows, columns
    if (bottom - top) * (right - left) <= accumulators:
        return [(rows, columns)]
    high = max(accumulators // (right - left), 1)
    strips = [(x, min(x + accumulators, right)) for x in range(left, right, accumulators)]
    return [((y, min(y + high, bottom)), strip) for strip in strips for y in range(top, bottom, high)]


def blocks(channels: int, lanes: int) -> tuple[int, int]:
    """Blocks of channels, and how many there are in the last.

    >>> blocks(40, 16)
    (3, 8)
    """
    count = -(-channels // lanes)
    return count, channels - (count - 1) * lanes


# -- windows -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpatialWindow:
    """Window of an operand for one element of the result, in rows and columns."""

    rows: int = 1
    columns: int = 1
    stride_rows: int = 1
    stride_columns: int = 1
    dilation: int = 1
    pad_rows: int = 0
    pad_columns: int = 0


def sliding(call: Call, within: tuple[Span, Span] | None = None) -> SpatialWindow:
    """The window of a convolution or pool in two dimensions, with one dilation.

    `within`: (rows, columns) of the result; what of the window meets the map in none of them is left out
    (kernels may be far larger than maps).
    """
    rows, columns = windows(call)
    dilation = rows.dilation if rows.kernel > 1 else columns.dilation
    # a single window does not move
    stride_rows, stride_columns = (axis.stride if axis.size_out > 1 else 1 for axis in (rows, columns))
    if within is not None:
        rows, columns = rows.trimmed(within[0]), columns.trimmed(within[1])
    return SpatialWindow(
        rows.kernel, columns.kernel, stride_rows, stride_columns, dilation, rows.pad, columns.pad
    )


def reach(kernel: int, stride: int, width: int, rows: int, window: int, most: int) -> tuple[int, int]:
    """(result columns, kernel columns) per cycle of a depthwise convolution without dilation.

    `kernel`, `width`: columns of the kernel and of the result; `rows`: of the MAC array, each of one column
    of both; `window`: columns of the operand that are read in one cycle; `most`: columns of the result at
    most. Each step but the first of a row finds again what its window shares with the one before. In RTL:
    lf_reach_pkg.

    >>> reach(3, 1, 56, 16, 4, 4), reach(5, 1, 56, 16, 4, 4)
    ((4, 4), (3, 5))
    >>> reach(5, 2, 56, 16, 4, 4), reach(3, 3, 56, 16, 4, 4)
    ((2, 6), (1, 4))
    """
    kernel_columns = {1: window}
    if width > 1:
        kernel_columns |= {
            columns: min(rows // columns, window + stride)
            for columns in range(2, min(most, window // stride, rows) + 1)
        }
    columns = min(
        kernel_columns,
        key=lambda columns: (Fraction(-(-kernel // kernel_columns[columns]), columns), -columns),
    )
    return columns, kernel_columns[columns]


class TransposedPhase(NamedTuple):
    """One phase of a ConvTranspose: result rows and columns at a fixed stride from a first one.

    A convolution with some elements of the kernel makes them.
    """

    row: int  # the first of the result
    column: int
    down: int  # rows from one to the next
    right: int
    # rows, columns of the kernel, in the order of those of the operand
    kernel: tuple[tuple[int, ...], tuple[int, ...]]
    window: SpatialWindow

    def inside(self, rows: Span, columns: Span) -> tuple[Span, Span]:
        """Which rows and columns of the phase, counted from its first, lie in a box of the result."""
        (top, bottom), (left, right) = rows, columns
        down = -(-(top - self.row) // self.down), -(-(bottom - self.row) // self.down)
        return down, (-(-(left - self.column) // self.right), -(-(right - self.column) // self.right))


@once_per_call
def phases(call: Call) -> tuple[TransposedPhase, ...]:
    """The convolutions of a ConvTranspose, one for each remainder of rows and columns by the stride.

    Result row s * y + o reads operand row y + d - j by kernel row r + s * j, with r = (o + pad) mod s.
    """
    per_axis: list[list[tuple[int, int, tuple[int, ...], int]]] = []
    for axis in windows(call):
        parts: list[tuple[int, int, tuple[int, ...], int]] = []
        for first in range(min(axis.stride, axis.size_out)):
            remainder = (first + axis.pad) % axis.stride
            taps = tuple(range(remainder, axis.kernel, axis.stride))[::-1]
            parts.append(
                (first, axis.stride, taps, len(taps) - 1 - (first + axis.pad - remainder) // axis.stride)
            )
        per_axis.append(parts)
    return tuple(
        TransposedPhase(
            row,
            column,
            down,
            right,
            (rows, columns),
            SpatialWindow(len(rows), len(columns), pad_rows=pad_rows, pad_columns=pad_columns),
        )
        for row, down, rows, pad_rows in per_axis[0]
        for column, right, columns, pad_columns in per_axis[1]
    )


def folds_pixels(call: Call) -> bool:
    """Whether an operator folds the rows and columns of [n, c, h, w] together: its window is the map."""
    return len(call.shape(0)) == 4 and reduced_axes(call) == {2, 3}


def vector_passes(call: Call, maps: int) -> tuple[int, int, bool]:
    """(rows, columns) that vector lanes read per element of the result, and whether they share a sum.

    Not for contractions. `maps`: operands that are feature maps.
    """
    row = row_of(call)
    if row.family is Family.POOL:
        kernel = [
            min(k, size)
            for k, size in zip(call.attribute("kernel_shape", ()), call.shape(0)[2:], strict=False)
        ]
        return prod(kernel[:-1]), kernel[-1], False
    if row.family in (Family.REDUCTION, Family.ARG_REDUCTION):
        if folds_pixels(call):
            return *call.shape(0)[2:], False  # type: ignore[return-value]
        return 1, max(ceil(prod(call.shape(0)) / max(prod(call.result), 1)), 1), True
    return (max(maps - 1, 1) if row.elementwise else row.passes), 1, False


# -- contractions --------------------------------------------------------------------------------------------


class ContractionLoops(NamedTuple):
    """The loops of a contraction on a MAC array.

    `groups` times: at each pixel, each of `outer` channels sums over `inner` products for each element of the
    kernel.
    """

    groups: int
    outer: int
    inner: int  # 1 in a depthwise convolution, where each channel has elements of its own to read
    rows: int  # of the kernel
    columns: int
    pixels: int
    macs: Fraction
    depthwise: bool = False
    side_by_side: bool = True  # whether the columns of the kernel are neighbours

    def narrow(self, lanes: int, window: int) -> bool:
        """Whether so few input channels meet that `window` columns of the kernel fit the lanes side by side.

        Weights are arranged once for all slices of an operator: what is encoded is what holds of the whole
        one.
        """
        return self.side_by_side and not self.depthwise and self.columns > 1 and self.inner * window <= lanes

    def passes(self, lanes: int, window: int) -> tuple[tuple[int, int], ...]:
        """(passes, rows of weights of each) for one kernel row and one block of output channels.

        In a depthwise convolution of one pixel at a time.
        """
        if self.depthwise or self.narrow(lanes, window):
            width = window if self.side_by_side else 1
            full, rest = divmod(self.columns, width)
            counted = (full, width * self.inner), (int(rest > 0), rest * self.inner)
        else:
            full, rest = divmod(self.inner, lanes)
            counted = (full * self.columns, lanes), ((rest > 0) * self.columns, rest)
        return tuple((count, size) for count, size in counted if count)


def contraction_loops(call: Call, out: Box | None = None, inputs: Span | None = None) -> ContractionLoops:
    """MAC array loops for a box of the result of a Conv, ConvTranspose, Gemm or MatMul; None: all of it.

    `inputs`: input channels read, None for all. Boxes that cut through groups are taken to begin where a
    group begins.
    """
    shape = box_shape(whole(call.result) if out is None else out)
    inner = inputs[1] - inputs[0] if inputs else None
    return (_convolution if row_of(call).family is Family.CONVOLUTION else _product)(call, shape, inner)


def is_depthwise(call: Call) -> bool:
    """Whether a contraction is a convolution of every channel by itself."""
    row = row_of(call)
    return (
        row.family is Family.CONVOLUTION and _depth(call) == 1 < call.attribute("group", 1) == call.result[1]
    )


def _depth(call: Call) -> int:
    """Input channels that each output channel sums over."""
    first, row = call.shape(0), row_of(call)
    if row.family is Family.CONVOLUTION:
        return call.shape(1)[0] // call.attribute("group", 1) if row.transposed else call.shape(1)[1]
    return first[0] if call.operator.kind == "Gemm" and call.attribute("transA", 0) else first[-1]


def _product(call: Call, shape: tuple[int, ...], inner: int | None) -> ContractionLoops:
    """A Gemm or MatMul; the rows of its first matrix are pixels."""
    first, second, depth = call.shape(0), call.shape(1), _depth(call)
    if call.operator.kind == "Gemm":
        groups, pixels, outer = 1, shape[0], shape[1]
    else:
        outer = shape[-1] if len(second) > 1 else 1
        matrix = shape[:-1] if len(second) > 1 else shape
        shared = prod(second[:-2]) == 1  # one second matrix for all
        pixels = prod(matrix) if shared else prod(matrix[-1:]) if len(first) > 1 else 1
        groups = 1 if shared else prod(matrix) // max(pixels, 1)
    summed = depth if inner is None else inner
    return ContractionLoops(groups, outer, summed, 1, 1, pixels, Fraction(groups * outer * summed * pixels))


def _convolution(call: Call, shape: tuple[int, ...], inner: int | None) -> ContractionLoops:
    """A convolution.

    Each pixel of a transposed one meets its share of the kernel: as many elements as input pixels are
    scattered to it.
    """
    weight, groups, transposed = call.shape(1), call.attribute("group", 1), row_of(call).transposed
    kernel, pixels, channels = weight[2:], shape[0] * prod(shape[2:]), shape[1]
    taps, depth = prod(kernel), _depth(call)
    share = Fraction(prod(call.shape(0)[2:]), max(prod(call.result[2:]), 1)) if transposed else Fraction(1)
    summed = depth if inner is None else inner
    macs = Fraction(channels * pixels * taps * summed) * share
    pixels = ceil(pixels * share)
    rows, columns = taps // kernel[-1], kernel[-1]
    neighbours = set(call.attribute("dilations", (1,))) == {1}
    if is_depthwise(call):
        return ContractionLoops(
            1, channels, 1, rows, columns, pixels, macs, depthwise=True, side_by_side=neighbours
        )
    per_group = weight[1] if transposed else weight[0] // groups
    count, outer = max(ceil(channels / per_group), 1), min(channels, per_group)
    return ContractionLoops(count, outer, summed, rows, columns, pixels, macs, side_by_side=neighbours)
