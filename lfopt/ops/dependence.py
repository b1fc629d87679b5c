"""Row rules of the operators: which rows of input `index` each output row reads, as `RowReads`.

Exact where the dependence is a window or a shift; all rows wherever the values decide, or rows are mixed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from lfopt.ir import row_axis
from lfopt.ops import rows
from lfopt.ops.call import Call, Shape
from lfopt.ops.parameters import split_sizes
from lfopt.ops.resizing import known, row_reads
from lfopt.ops.rows import RowReads
from lfopt.ops.windows import windows

RowRule = Callable[[Call, int], RowReads]


def everything(call: Call, index: int) -> RowReads:
    """All rows of the input for every output row."""
    return rows.all_rows(call.rows_in(index), call.rows_out)


def _from_right(shape: Shape) -> int | None:
    """Row axis counted from the right, as broadcasting counts axes."""
    axis = row_axis(shape)
    if axis is None:
        return None
    return len(shape) - axis


def _along_row_axis(call: Call, index: int) -> bool:
    """Whether input and output have the same row axis, counted from the left."""
    axis = row_axis(call.shape(index))
    return axis is not None and axis == call.row_axis_out


def same_or_everything(call: Call, index: int, *, kept: bool) -> RowReads:
    """The same row, if the operator keeps the row axis in place and the counts agree; else all rows."""
    if kept and _along_row_axis(call, index) and call.rows_in(index) == call.rows_out:
        return rows.same_row(call.rows_out)
    return everything(call, index)


def broadcast(call: Call, index: int) -> RowReads:
    """Elementwise, with NumPy broadcasting: the same row, or the one row, held until its last reader."""
    shape = call.shape(index)
    if (
        _from_right(shape) is not None
        and _from_right(shape) == _from_right(call.result)
        and call.rows_in(index) == call.rows_out
    ):
        return rows.same_row(call.rows_out)
    return everything(call, index)


def first_input_broadcast(call: Call, index: int) -> RowReads:
    """The data operand row by row; the others (scales, slopes, statistics) whole."""
    if index == 0:
        return broadcast(call, index)
    return everything(call, index)


def convolution(call: Call, index: int) -> RowReads:
    """Conv and pooling: a window along the first spatial axis of maps of rank 4 and 5.

    On [n, c, l] the row axis is the channel axis: all rows.
    """
    if index != 0 or len(call.shape(0)) not in (4, 5):
        return everything(call, index)
    return spatial_window(call, 0)


def spatial_window(call: Call, axis: int) -> RowReads:
    """Dependence of Conv, ConvTranspose and pooling along one spatial axis."""
    return windows(call)[axis].reads


def reduction(call: Call, index: int) -> RowReads:
    """Reduce*: the same row while the row axis is neither reduced nor moved."""
    if index != 0:
        return everything(call, index)
    rank = len(call.shape(0))
    if call.has(1) and call.values[1] is None:
        return everything(call, index)  # axes are computed, or their values are absent
    axes = call.ints(1, "axes") or ()
    if not axes and call.attribute("noop_with_empty_axes", 0):
        return same_or_everything(call, 0, kept=True)
    reduced = {axis % rank for axis in axes} or set(range(rank))
    kept = row_axis(call.shape(0)) not in reduced and (call.attribute("keepdims", 1) == 1 or not reduced)
    return same_or_everything(call, 0, kept=kept)


def along_axis(default: int, *, to_the_end: bool = False) -> RowRule:
    """Operators that mix one axis (ArgMax, Softmax), or all axes from it on (LayerNormalization)."""

    def rule(call: Call, index: int) -> RowReads:
        shape = call.shape(0)
        axis = call.attribute("axis", default) % max(len(shape), 1)
        own = row_axis(shape)
        mixes_rows = own is None or (own >= axis if to_the_end else own == axis)
        if index != 0:
            return everything(call, index)
        return same_or_everything(call, 0, kept=not mixes_rows and call.attribute("keepdims", 1) == 1)

    return rule


def matmul(call: Call, index: int) -> RowReads:
    """[..., m, k] x [..., k, n]: the same row of the first operand; all rows of the second."""
    rows_are_m = _from_right(call.result) == 2 and len(call.shape(1)) >= 2
    if index == 0 and rows_are_m:
        return broadcast(call, 0)
    return everything(call, index)


def concat(call: Call, index: int) -> RowReads:
    """Along rows each input is read at its offset; along any other axis the same row."""
    axis = call.attribute("axis", 0) % len(call.result)
    if call.row_axis_out != axis:
        return same_or_everything(call, index, kept=True)
    offset = sum(call.shape(i)[axis] for i in range(index))
    return rows.shifted(call.rows_in(index), call.rows_out, -offset)


def split(call: Call, index: int) -> RowReads:
    """The same row; along rows, row r of every output is made at once, from the rows at their offsets."""
    axis = call.attribute("axis", 0) % len(call.shape(0))
    if index != 0 or row_axis(call.shape(0)) != axis:
        return same_or_everything(call, index, kept=index == 0)
    sizes = split_sizes(call)
    if sizes is None:
        return everything(call, 0)
    starts = accumulate(sizes, initial=0)
    offsets = [start for start, name in zip(starts, call.operator.outputs, strict=False) if name]
    heights = [shape[axis] for shape in call.results]
    taps = tuple(
        tuple(o + r for o, h in zip(offsets, heights, strict=True) if r < h) for r in range(call.rows_out)
    )
    return rows.mapped(call.rows_in(0), taps)


def slice_(call: Call, index: int) -> RowReads:
    """Along rows, row r reads start + r * step; along any other axis the same row."""
    axis = row_axis(call.shape(0))
    starts = call.ints(1)
    if index != 0 or axis is None or starts is None:
        return same_or_everything(call, index, kept=False)
    rank = len(call.shape(0))
    height = call.rows_in(0)
    axes = call.ints(3) if call.has(3) else tuple(range(len(starts)))
    steps = call.ints(4) if call.has(4) else (1,) * len(starts)
    if axes is None or steps is None:
        return everything(call, 0)
    for a, start, step in zip(axes, starts, steps, strict=True):
        if a % rank == axis:
            start += height if start < 0 else 0
            start = min(max(start, 0), height - 1 if step < 0 else height)
            return rows.mapped(height, tuple((start + r * step,) for r in range(call.rows_out)))
    return same_or_everything(call, 0, kept=True)


def pad(call: Call, index: int) -> RowReads:
    """Constant and edge padding shift the rows; reflect and wrap along rows need all of them."""
    axis = row_axis(call.shape(0))
    if index != 0 or axis is None:
        return everything(call, index)
    rank = len(call.shape(0))
    height = call.rows_in(0)
    amounts = call.ints(1)
    axes = call.ints(3) if call.has(3) else tuple(range(rank))
    if amounts is None or axes is None:
        return everything(call, 0)
    positions = [a % rank for a in axes]
    if axis not in positions:
        return same_or_everything(call, 0, kept=True)
    before = amounts[positions.index(axis)]
    after = amounts[positions.index(axis) + len(positions)]
    mode = call.attribute("mode", "constant")
    if mode == "constant" or (before == 0 and after == 0):
        return rows.shifted(height, call.rows_out, -before)
    if mode == "edge":
        return rows.mapped(
            height, tuple((min(max(r - before, 0), height - 1),) for r in range(call.rows_out))
        )
    return everything(call, 0)


def depth_to_space(call: Call, index: int) -> RowReads:
    """Output row r comes from input row r // blocksize."""
    block = call.attribute("blocksize", 1)
    return rows.mapped(call.rows_in(0), tuple((r // block,) for r in range(call.rows_out)))


def space_to_depth(call: Call, index: int) -> RowReads:
    """Output row r gathers blocksize input rows."""
    block = call.attribute("blocksize", 1)
    return rows.window(call.rows_in(0), call.rows_out, kernel=block, stride=block)


def resize(call: Call, index: int) -> RowReads:
    """Interpolation windows along rows; all rows where the values that decide are not at hand.

    See `lfopt.ops.interpolation`.
    """
    axis = row_axis(call.shape(0))
    if index != 0 or axis is None or not _along_row_axis(call, 0) or not known(call):
        return everything(call, index)
    return row_reads(call, axis)


def transpose(call: Call, index: int) -> RowReads:
    """The same row if the permutation maps the row axis to the row axis."""
    shape = call.shape(0)
    permutation = call.attribute("perm", tuple(reversed(range(len(shape)))))
    own = call.row_axis_out
    axis = row_axis(shape)
    return same_or_everything(call, 0, kept=own is not None and permutation[own] == axis)


def tile(call: Call, index: int) -> RowReads:
    """Output row r repeats input row r modulo the input's height."""
    if index != 0 or not _along_row_axis(call, 0):
        return everything(call, index)
    height = call.rows_in(0)
    return rows.mapped(height, tuple((r % height,) for r in range(call.rows_out)))


def gather(call: Call, index: int) -> RowReads:
    """Along any axis but the rows, and while the rank stays, the same row of the data; otherwise all rows."""
    axis = call.attribute("axis", 0) % max(len(call.shape(0)), 1)
    same_rank = len(call.shape(0)) == len(call.result)
    return same_or_everything(call, index, kept=index == 0 and same_rank and axis != row_axis(call.shape(0)))
