"""Which part of each operand a box of an operator's result needs: footprints.

`needs` is what the arithmetic of `lfopt.ops.compute` reads, by the box rules of the operator table
(`lfopt.ops.boxes`). `footprint` is what a schedule has to provide of a feature map: the same, except that
along the row axis it follows the row rules of the table (`lfopt.ops.dependence`), which say "all rows" more
often.
"""

from __future__ import annotations

from lfopt.ir import Box, Span, cut, row_axis, whole
from lfopt.ops.boxes import NOTHING
from lfopt.ops.call import Call, once_per_call
from lfopt.ops.parameters import reduced_axes
from lfopt.ops.part import hull, is_empty
from lfopt.ops.rows import RowReads
from lfopt.ops.statistics import has_statistics, statistics_axis
from lfopt.ops.table import row_of
from lfopt.ops.traits import Family, Tiling
from lfopt.ops.windows import read_span


def footprint(call: Call, index: int, out: Box, *, inputs: Span | None = None) -> Box:
    """Part of input `index` that box `out` of the operator's first output needs, in the axes of that input.

    `inputs` narrows what is folded to a span of `folded_axis` (of a convolution: within each group). Along
    the row axis of a feature map it is the hull of `RowReads` over the rows of `out`, unless axes are
    permuted; a constant is only needed where it is used. Where nothing is needed a span has start == stop.
    """
    return footprints(call, index, (out,), inputs=inputs)


def footprints(
    call: Call, index: int, outs: tuple[Box, ...], *, inputs: Span | None = None, by_rows: bool = True
) -> Box:
    """Hull of what boxes of all outputs need of input `index`.

    `outs` has one box for each output that is requested, or for the first few. `by_rows`: along the row axis
    as the row rules say, as above; else what the arithmetic reads, and no more.
    """
    if call.then and index >= len(call.operator.inputs):
        # the boxes of a result that is made in flight are those of the last
        call, index = call.part_of(index)
    shape = call.shape(index)
    if call.attention is not None:
        return needs(call, index, outs[0], 0, inputs)
    asked = [k for k, name in enumerate(call.operator.outputs) if name]
    needed = [
        (k, shape_out, out)
        for k, shape_out, out in zip(asked, call.results, outs, strict=False)
        if not is_empty(out)
    ]
    if not needed:
        return (NOTHING,) * len(shape)
    box = hull([needs(call, index, out, k, inputs) for k, _, out in needed])
    axis = row_axis(shape)
    reads = _row_rules(call)[index] if by_rows else None
    if axis is None or reads is None or (inputs is not None and axis == folded_axis(call, index)):
        return box
    rows = [
        (0, call.rows_out) if row_axis(shape_out) is None else out[row_axis(shape_out) or 0]
        for _, shape_out, out in needed
    ]
    return cut(
        box,
        axis,
        read_span(
            reads,
            rows[0] if len(rows) == 1 else (min(start for start, _ in rows), max(stop for _, stop in rows)),
        ),
    )


@once_per_call
def _row_rules(call: Call) -> tuple[RowReads | None, ...]:
    """Per input: rows that each output row reads; None where the box rule alone says what is read."""
    if call.too_tall:
        return (None,) * len(call.shapes)
    row = row_of(call)
    free = [
        shape is None or row_axis(shape) is None or constant or row.permutes
        for shape, constant in zip(call.shapes, call.constant, strict=True)
    ]
    return tuple(None if without else row.reads(call, index) for index, without in enumerate(free))


def needs(call: Call, index: int, out: Box, result: int = 0, inputs: Span | None = None) -> Box:
    """Part of input `index` that the arithmetic of box `out` of ONNX output `result` reads."""
    if is_empty(out):
        return (NOTHING,) * len(call.shape(index))
    row = row_of(call)
    if index in row.parameters:
        return whole(call.shape(index))
    if inputs is not None and index == 0 and has_statistics(call):
        # behind the last part, statistics are complete: what is left to be read is what is made
        if inputs[0] == inputs[1]:
            return out
        return cut(row.box(call, index, out, result, None), statistics_axis(call), inputs)
    box = row.box(call, index, out, result, inputs)
    axis = folded_axis(call, index) if inputs is not None and row.tiling is Tiling.FOLD else None
    if axis is None or inputs is None:
        return box
    return cut(box, axis, inputs)


def folded_axis(call: Call, index: int) -> int | None:
    """Axis of an input that the operator folds and that may come in parts, if it has one.

    Input channels, which a contraction (Conv, ConvTranspose, Gemm, MatMul) sums over; rows, if a reduction or
    a global pool folds them, else the longest of the axes that it folds.
    """
    shape = call.shape(index)
    row = row_of(call)
    if row.tiling is Tiling.FOLD and index == 0:
        axis = row_axis(shape)
        axes = sorted(reduced_axes(call) or ())
        if axis in axes:
            return axis
        if axes:
            return max(axes, key=lambda a: shape[a])
        return None
    if row.tiling is not Tiling.CONTRACT or index > 1:
        return None
    if row.family is Family.CONVOLUTION:
        if row.transposed and index == 1:
            return 0
        return 1
    if row.kind == "Gemm":
        if index == 0:
            return call.attribute("transA", 0) ^ 1
        return call.attribute("transB", 0)
    if index == 0 or len(shape) == 1:
        return len(shape) - 1
    return len(shape) - 2


def folds_rows(call: Call, index: int) -> bool:
    """Whether the operator folds rows of an input, which may come in parts."""
    axis = folded_axis(call, index)
    return axis is not None and axis == row_axis(call.shape(index))
