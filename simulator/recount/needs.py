"""Which part of an operand a part of a result needs, axis by axis, for many parts at once.

Spans are said here for elementwise operators and those in `RULES`; for all others, box by box, by the box
rules of the table. A view that splits or joins axes leaves spans open (None): all of each row is read, and
rows by the row rules of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lfopt.ir import Box, Span, row_axis
from lfopt.ops import same_axes
from lfopt.ops.attention import box_rule, form_of
from lfopt.ops.call import Call
from lfopt.ops.parameters import pad_amounts, reduced_axes
from lfopt.ops.statistics import has_statistics, statistics_axis
from lfopt.ops.table import TABLE, Tiling, spec
from lfopt.ops.traits import Family
from lfopt.ops.windows import Window, windows
from simulator.recount.network import MapOperand, RecountNetwork
from simulator.recount.progressions import Ints

AxisSpans = tuple[Ints, Ints]  # along one axis, for many boxes: start, stop


@dataclass(frozen=True)
class ResultBoxes:
    """Boxes of an operator's results, in many runs of one step."""

    results: tuple[tuple[AxisSpans, ...], ...]  # per result, its axes
    rows: AxisSpans  # of all results together
    inputs: AxisSpans  # what the step reads of what is folded

    @property
    def axes(self) -> tuple[AxisSpans, ...]:
        """Axes of the first result."""
        return self.results[0]


Rule = Callable[[ResultBoxes], AxisSpans]
Rules = list[Rule | None]  # per axis of an operand; None: all of it


def operand_rules(net: RecountNetwork, read: MapOperand, call: Call, *, seen: bool) -> Rules:
    """Per axis of a map that an operator reads: rule of the span needed; of the view or the map behind."""
    shape = net.graph.shape(read.seen if seen else read.map)
    axes = same_axes(shape, net.graph.shape(read.seen))
    if axes is not None:
        of_view = _rules(call, read.index)
        viewed = dict(axes)
        return [
            of_view[viewed[axis]] if axis in viewed else partial(_whole, extent)
            for axis, extent in enumerate(shape)
        ]
    rules: Rules = [None] * len(shape)
    axis = row_axis(shape)
    if axis is not None and call.attention is None and not call.too_tall:
        first, last = (read.first_seen, read.last_seen) if seen else (read.first, read.last)
        rules[axis] = partial(_rows, np.array(first, np.int64), np.array(last, np.int64) + 1)
    return rules


def constant_rules(call: Call, index: int) -> Rules:
    """Per axis of a constant that an operator reads: rule of the span needed."""
    return _rules(call, index)


def folded(call: Call) -> int:
    """Extent that is folded into one output element, and may be split: input channels, rows, or keys.

    Input channels of a contraction, rows of a reduction (or its longest axis), what a normalization makes
    statistics of, keys of an attention; 0 of all else.
    """
    if call.attention is not None:
        return form_of(call).keys
    if has_statistics(call):
        return call.shape(0)[statistics_axis(call)]
    row = spec(call.operator.kind, call.operator.domain)
    kind = row.kind
    if row.tiling is Tiling.FOLD:
        axis = reduced_axis(call)
        if axis is None:
            return 0
        return call.shape(0)[axis]
    if kind == "Conv":
        return call.shape(1)[1]
    if kind == "ConvTranspose":
        return call.shape(0)[1] // call.attribute("group", 1)
    if kind == "Gemm":
        return call.shape(0)[0 if call.attribute("transA", 0) else 1]
    if kind == "MatMul":
        return call.shape(0)[-1]
    return 0


def reduced_axis(call: Call) -> int | None:
    """Axis that a reduction may take in parts: rows, else the longest of those that it folds."""
    shape = call.shape(0)
    rows = row_axis(shape)
    axes = sorted(reduced_axes(call) or ())
    if rows in axes:
        return rows
    return max(axes, key=lambda axis: shape[axis], default=None)


def folded_rows(call: Call) -> int:
    """Rows that a reduction or global pool folds; 0 of all else."""
    if spec(call.operator.kind, call.operator.domain).tiling is not Tiling.FOLD:
        return 0
    axis = row_axis(call.shape(0))
    if axis is not None and axis in (reduced_axes(call) or ()):
        return call.shape(0)[axis]
    return 0


# -- rules ---------------------------------------------------------------------------------------------------


def _rows(first: Ints, stop: Ints, result: ResultBoxes) -> AxisSpans:
    return _hull(first, stop, *result.rows)


def _hull(first: Ints, stop: Ints, start: Ints, end: Ints) -> AxisSpans:
    """Lowest `first` and highest `stop` among indices start .. end - 1, for many of them."""
    low = np.zeros_like(start)
    high = np.zeros_like(start)
    for extent in np.unique(end - start):
        here = end - start == extent
        if extent > 0:
            low[here] = np.lib.stride_tricks.sliding_window_view(first, extent).min(axis=1)[start[here]]
            high[here] = np.lib.stride_tricks.sliding_window_view(stop, extent).max(axis=1)[start[here]]
    return low, high


def _same(axis: int, result: ResultBoxes) -> AxisSpans:
    return result.axes[axis]


def _whole(extent: int, result: ResultBoxes) -> AxisSpans:
    return np.zeros_like(result.rows[0]), np.full_like(result.rows[0], extent)


def _inputs(result: ResultBoxes) -> AxisSpans:
    return result.inputs


def _grouped(outputs: int, inputs: int, result: ResultBoxes) -> AxisSpans:
    """Input channels of a grouped convolution for a box: `outputs` and `inputs` channels per group."""
    (start, stop), (low, high) = result.axes[1], result.inputs
    return start // outputs * inputs + low, (stop - 1) // outputs * inputs + high


def _shifted(offset: int, extent: int, axis: int, result: ResultBoxes) -> AxisSpans:
    """Span `offset` further along, clipped to the extent; it may be empty."""
    start, stop = result.axes[axis]
    return np.maximum(start - offset, 0), np.minimum(stop - offset, extent)


def _window(first: Ints, stop: Ints, axis: int, result: ResultBoxes) -> AxisSpans:
    return _hull(first, stop, *result.axes[axis])


def _slid(window: Window, axis: int, result: ResultBoxes) -> AxisSpans:
    """What lies between the first tap of the first output and the last tap of the last, in the map."""
    start, stop = result.axes[axis]
    first, end = window.tapped((start, stop))
    low = np.maximum(first, 0)
    high = np.minimum(end, window.size)
    empty = (start >= stop) | (low >= high)
    return np.where(empty, 0, low), np.where(empty, 0, high)


def _broadcast(shape: tuple[int, ...], rank: int, behind: int = 0) -> Rules:
    """NumPy's rule, for an operand (or its first axes) that meets the result's axes but the last `behind`."""
    offset = rank - behind - len(shape)
    return [
        partial(_whole, 1) if extent == 1 else partial(_same, offset + axis)
        for axis, extent in enumerate(shape)
    ]


def _spatial(call: Call) -> Rules:
    rules: Rules = []
    for axis, window in enumerate(windows(call)):
        if not window.is_listed:
            rules.append(partial(_slid, window, axis + 2))
            continue
        reads = window.reads
        rules.append(
            partial(_window, np.array(reads.first, np.int64), np.array(reads.last, np.int64) + 1, axis + 2)
        )
    return rules


def _wholes(shape: Sequence[int]) -> Rules:
    return [partial(_whole, extent) for extent in shape]


def _conv(call: Call, index: int) -> Rules:
    if index == 0:
        groups = call.attribute("group", 1)
        return [
            partial(_same, 0),
            partial(_grouped, call.result[1] // groups, call.shape(1)[1]),
            *_spatial(call),
        ]
    if index == 1:
        return [partial(_same, 1), _inputs, *_wholes(call.shape(1)[2:])]
    return [partial(_same, 1)]


def _conv_transpose(call: Call, index: int) -> Rules:
    groups = call.attribute("group", 1)
    shape = call.shape(index)
    if index == 0:
        return [
            partial(_same, 0),
            partial(_grouped, call.result[1] // groups, shape[1] // groups),
            *_spatial(call),
        ]
    if index == 1:
        if groups == 1:
            return [_inputs, partial(_same, 1), *_wholes(shape[2:])]
        return [None] * len(shape)
    return [partial(_same, 1)]


def _gemm(call: Call, index: int) -> Rules:
    if index == 2:
        return _broadcast(call.shape(2), 2)
    rules: Rules = [partial(_same, 0), _inputs] if index == 0 else [_inputs, partial(_same, 1)]
    if call.attribute("transA" if index == 0 else "transB", 0):
        return rules[::-1]
    return rules


def _matmul(call: Call, index: int) -> Rules:
    rank = len(call.result)
    shape = call.shape(index)
    own = tuple(len(call.shape(k)) > 1 for k in range(2))
    if not own[index]:
        return [_inputs]
    batch = _broadcast(shape[:-2], rank, sum(own))
    if index == 0:
        return [*batch, partial(_same, rank - 1 - own[1]), _inputs]
    return [*batch, _inputs, partial(_same, rank - 1)]


def _pool(call: Call, index: int) -> Rules:
    return [partial(_same, 0), partial(_same, 1), *_spatial(call)]


def _reduce(call: Call, index: int) -> Rules:
    """Rules of a reduction: its axes whole, or rows in parts; the others as in the result.

    The result has lost the reduced axes unless keepdims holds.
    """
    shape = call.shape(index)
    axes = reduced_axes(call)
    if index > 0 or axes is None:
        return [None] * len(shape)
    others = [axis for axis in range(len(shape)) if axis not in axes]
    place = {axis: axis if call.attribute("keepdims", 1) else k for k, axis in enumerate(others)}
    rules: Rules = [
        partial(_same, place[axis]) if axis in place else partial(_whole, extent)
        for axis, extent in enumerate(shape)
    ]
    axis = reduced_axis(call)
    if axis is not None:
        rules[axis] = _inputs
    return rules


def _batch_normalization(call: Call, index: int) -> Rules:
    if index == 0:
        return _broadcast(call.shape(0), len(call.result))
    return [partial(_same, 1)]


def _along(call: Call, index: int) -> Rules:
    shape = call.shape(0)
    axis = call.attribute("axis", -1) % len(shape)
    return [partial(_whole, extent) if k == axis else partial(_same, k) for k, extent in enumerate(shape)]


def _concat(call: Call, index: int) -> Rules:
    rank = len(call.result)
    shape = call.shape(index)
    axis = call.attribute("axis", 0) % rank
    offset = sum(call.shape(k)[axis] for k in range(index))
    return [partial(_shifted, offset, shape[k], k) if k == axis else partial(_same, k) for k in range(rank)]


def _pad(call: Call, index: int) -> Rules:
    shape = call.shape(0)
    amounts = pad_amounts(call)
    if amounts is None or call.attribute("mode", "constant") != "constant":
        return [None] * len(shape)
    return [partial(_shifted, before, shape[k], k) for k, (before, _) in enumerate(amounts)]


def _gather(call: Call, index: int) -> Rules:
    data = call.shape(0)
    indices = len(call.shape(1))
    axis = call.attribute("axis", 0) % len(data)
    if index == 1:
        return [partial(_same, axis + k) for k in range(indices)]
    before, behind = (
        [partial(_same, k) for k in some] for some in (range(axis), range(axis + indices, len(call.result)))
    )
    return [*before, partial(_whole, data[axis]), *behind]


def _transpose(call: Call, index: int) -> Rules:
    rank = len(call.result)
    permutation = call.attribute("perm", tuple(reversed(range(rank))))
    return [partial(_same, permutation.index(axis)) for axis in range(rank)]


RULES: dict[str, Callable[[Call, int], Rules]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys((kind for kind, row in TABLE.items() if row.family is Family.POOL), _pool),
    **dict.fromkeys((kind for kind, row in TABLE.items() if row.family is Family.REDUCTION), _reduce),
    "BatchNormalization": _batch_normalization,
    "Hardmax": _along,
    "Concat": _concat,
    "Pad": _pad,
    "Gather": _gather,
    "Transpose": _transpose,
}


def _rules(call: Call, index: int) -> Rules:
    row = spec(call.operator.kind, call.operator.domain)
    if call.attention is None and len(call.results) == 1 and row.kind in RULES:
        rules = RULES[row.kind](call, index)
    elif call.attention is None and row.elementwise:
        rules = _broadcast(call.shape(index), len(call.result))
    else:
        rules = [None] * len(call.shape(index))
    known: dict[tuple[tuple[Box, ...], Span], Box] = {}
    return [rule or partial(_box_by_box, call, index, axis, known) for axis, rule in enumerate(rules)]


# -- box by box ----------------------------------------------------------------------------------------------


def _box_by_box(
    call: Call,
    index: int,
    axis: int,
    known: dict[tuple[tuple[Box, ...], Span], Box],
    result: ResultBoxes,
) -> AxisSpans:
    """Span of an operand along an axis, by the operator's own rule for boxes."""
    runs = len(result.rows[0])
    starts = np.empty(runs, np.int64)
    stops = np.empty(runs, np.int64)
    every = (0, 0), (0, folded(call))
    boxes = [[box for box, _ in each_run(axes, result.inputs)] for axes in result.results]
    spans = zip(*(end.tolist() for end in result.inputs), strict=True)
    for run, (*outs, inputs) in enumerate(zip(*boxes, spans, strict=True)):
        if (key := (tuple(outs), inputs)) not in known:
            known[key] = _operand_box(call, index, key[0], None if inputs in every else inputs)
        starts[run], stops[run] = known[key][axis]
    return starts, stops


def _operand_box(call: Call, index: int, outs: Sequence[Box], inputs: Span | None) -> Box:
    """Hull of what boxes of all results need of an operand; empty where they need nothing."""
    if call.attention is not None:
        return box_rule(call, index, outs[0], 0, inputs)
    if inputs is not None and index == 0 and has_statistics(call):
        return _normalized_box(call, outs[0], inputs)
    rule = spec(call.operator.kind, call.operator.domain).box
    numbers = [k for k, name in enumerate(call.operator.outputs) if name]
    boxes = [
        rule(call, index, out, k, inputs)
        for k, out in zip(numbers, outs, strict=False)
        if all(start < stop for start, stop in out)
    ]
    real = [box for box in boxes if all(start < stop for start, stop in box)]
    if not real:
        return ((0, 0),) * len(call.shape(index))
    return tuple(
        (min(start for start, _ in spans), max(stop for _, stop in spans))
        for spans in zip(*real, strict=True)
    )


def _normalized_box(call: Call, out: Box, part: Span) -> Box:
    """What a step of a normalization in two passes reads: a part for its statistics, then what it makes."""
    if part[0] == part[1]:
        return out
    box = spec(call.operator.kind, call.operator.domain).box(call, 0, out, 0, None)
    axis = statistics_axis(call)
    return (*box[:axis], part, *box[axis + 1 :])


def each_run(axes: Sequence[AxisSpans], inputs: AxisSpans) -> Iterator[tuple[Box, Span]]:
    """(box, what is folded) of every run of a step."""
    for row in np.stack([end for part in (*axes, inputs) for end in part], axis=1).tolist():
        spans = tuple(zip(row[::2], row[1::2], strict=True))
        yield spans[:-1], spans[-1]
