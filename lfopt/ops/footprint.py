"""Which part of each operand a box of an operator's result needs: footprints.

`needs` is what the arithmetic of `lfopt.ops.compute` reads. `footprint` is what a schedule has to provide of a feature map: the same, except that
along the row axis it follows the row rules of the operator table (`lfopt.ops.dependence`), which say "all rows" more often.
"""

from __future__ import annotations

from collections.abc import Callable

from lfopt.ir import Box, Span, cut, row_axis, whole
from lfopt.ops.call import Call, Shape
from lfopt.ops.parameters import einsum_terms, lrn_reach, pad_amounts, pad_sources, permutation, reduced_axes, slice_steps, split_sizes
from lfopt.ops.part import hull, is_empty
from lfopt.ops.resizing import tap_span
from lfopt.ops.table import Tiling, spec
from lfopt.ops.windows import read_span, windows

NOTHING = (0, 0)


def footprint(call: Call, index: int, out: Box, *, inputs: Span | None = None) -> Box:
    """Part of input `index` that box `out` of the operator's first output needs, in the axes of that input.

    `inputs` narrows what is folded to a span of `folded_axis` (of a convolution: within each group). Along the row axis of a feature map it is the
    hull of `RowReads` over the rows of `out`; a constant is only needed where it is used. Where nothing is needed a span has start == stop.
    """
    return footprints(call, index, (out,), inputs=inputs)


def footprints(call: Call, index: int, outs: tuple[Box, ...], *, inputs: Span | None = None) -> Box:
    """Hull of what boxes of all outputs need of input `index`; `outs` has one box for each output that somebody asked for, or for the first few."""
    asked = [k for k, name in enumerate(call.operator.outputs) if name]
    made = [(k, shape, out) for k, shape, out in zip(asked, call.results, outs, strict=False) if not is_empty(out)]
    shape = call.shape(index)
    if not made:
        return (NOTHING,) * len(shape)
    box = hull([needs(call, index, out, k, inputs) for k, _, out in made])
    axis = row_axis(shape)
    if axis is None or call.constant[index] or (inputs is not None and axis == folded_axis(call, index)):
        return box
    rows = [(0, call.rows_out) if row_axis(found) is None else out[row_axis(found) or 0] for _, found, out in made]
    reads = spec(call.operator.kind, call.operator.domain).reads(call, index)
    return cut(box, axis, read_span(reads, (min(start for start, _ in rows), max(stop for _, stop in rows))))


def needs(call: Call, index: int, out: Box, result: int = 0, inputs: Span | None = None) -> Box:
    """Part of input `index` that the arithmetic of box `out` of ONNX output `result` reads."""
    if is_empty(out):
        return (NOTHING,) * len(call.shape(index))
    row = spec(call.operator.kind, call.operator.domain)
    if index in row.parameters:
        return whole(call.shape(index))
    if contraction := CONTRACTIONS.get(row.kind):
        return contraction(call, index, out, inputs)
    box = RULES.get(row.kind, _broadcast if row.elementwise else _everything)(call, index, out, result)
    axis = folded_axis(call, index) if inputs is not None else None
    return box if axis is None or inputs is None else cut(box, axis, inputs)


def folded_axis(call: Call, index: int) -> int | None:
    """Axis of an input that the operator folds and that may come in parts, if it has one.

    Input channels, which a contraction (Conv, ConvTranspose, Gemm, MatMul) sums over; rows, if a reduction or a global pool folds them.
    """
    shape, row = call.shape(index), spec(call.operator.kind, call.operator.domain)
    if row.tiling is Tiling.FOLD and index == 0:
        axis = row_axis(shape)
        return axis if axis in (reduced_axes(call) or ()) else None
    if row.kind not in CONTRACTIONS or index > 1:
        return None
    if row.kind == "MatMul":
        return len(shape) - 1 if index == 0 or len(shape) == 1 else len(shape) - 2
    if row.kind == "Gemm":
        return call.attribute("transA", 0) ^ 1 if index == 0 else call.attribute("transB", 0)
    return 0 if row.kind == "ConvTranspose" and index == 1 else 1


def folds_rows(call: Call, index: int) -> bool:
    """Whether the operator folds rows of an input, which may come in parts."""
    axis = folded_axis(call, index)
    return axis is not None and axis == row_axis(call.shape(index))


# -- boxes ---------------------------------------------------------------------------------------------------------------------------------


def broadcast_box(shape: Shape, out: Box) -> Box:
    """Part of an operand of this shape that meets box `out` of the result, by NumPy's rules of broadcasting.

    >>> broadcast_box((8, 1, 4), ((0, 1), (2, 6), (3, 4), (0, 4)))
    ((2, 6), (0, 1), (0, 4))
    """
    behind = out[len(out) - len(shape) :]
    return tuple((0, 1) if extent == 1 else span for extent, span in zip(shape, behind, strict=True))


def clipped(span: Span, size: int) -> Span:
    """The span cut off at 0 and at `size`; (0, 0) if nothing is left."""
    start, stop = max(span[0], 0), min(span[1], size)
    return (start, stop) if start < stop else NOTHING


def group_span(span: Span, per_group: int) -> Span:
    """Groups that a span of channels touches.

    >>> group_span((3, 9), 4)
    (0, 3)
    """
    return span[0] // per_group, -(-span[1] // per_group)


# -- contractions --------------------------------------------------------------------------------------------------------------------------


def _channels(groups: Span, per_group: int, inputs: Span | None) -> Span:
    """Hull of the input channels of some groups, each narrowed to `inputs`."""
    low, high = inputs or (0, per_group)
    return groups[0] * per_group + low, (groups[1] - 1) * per_group + high


def _conv(call: Call, index: int, out: Box, inputs: Span | None) -> Box:
    filters, per_group = call.shape(1)[:2]
    if index == 0:
        groups = group_span(out[1], filters // call.attribute("group", 1))
        return (out[0], _channels(groups, per_group, inputs), *_sliding(call, out))
    if index == 1:
        return (out[1], inputs or (0, per_group), *whole(call.shape(1)[2:]))
    return (out[1],)


def _conv_transpose(call: Call, index: int, out: Box, inputs: Span | None) -> Box:
    channels, filters = call.shape(1)[:2]  # filters of one group
    groups, per_group = group_span(out[1], filters), channels // call.attribute("group", 1)
    if index == 0:
        return (out[0], _channels(groups, per_group, inputs), *_sliding(call, out))
    if index == 1:
        one = groups[1] - groups[0] == 1
        span = (out[1][0] - groups[0] * filters, out[1][1] - groups[0] * filters) if one else (0, filters)
        return (_channels(groups, per_group, inputs), span, *whole(call.shape(1)[2:]))
    return (out[1],)


def _gemm(call: Call, index: int, out: Box, inputs: Span | None) -> Box:
    if index == 2:
        return broadcast_box(call.shape(2), out)
    inner = inputs or (0, call.shape(0)[0 if call.attribute("transA", 0) else 1])
    if index == 0:
        return (inner, out[0]) if call.attribute("transA", 0) else (out[0], inner)
    return (out[1], inner) if call.attribute("transB", 0) else (inner, out[1])


def _matmul(call: Call, index: int, out: Box, inputs: Span | None) -> Box:
    left, right = call.shape(0), call.shape(1)
    inner = inputs or (0, left[-1])
    own = (len(left) > 1, len(right) > 1)
    batch = out[: len(out) - sum(own)]
    if index == 0:
        return (*broadcast_box(left[:-2], batch), out[-1 - own[1]], inner) if own[0] else (inner,)
    return (*broadcast_box(right[:-2], batch), inner, out[-1]) if own[1] else (inner,)


def _sliding(call: Call, out: Box) -> Box:
    """Spans of the spatial axes that the windows of box `out` tap."""
    return tuple(read_span(window.reads, span) for window, span in zip(windows(call), out[2:], strict=True))


CONTRACTIONS: dict[str, Callable[[Call, int, Box, Span | None], Box]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}


# -- the other operators -------------------------------------------------------------------------------------------------------------------


def _everything(call: Call, index: int, out: Box, result: int) -> Box:
    return whole(call.shape(index))


def _broadcast(call: Call, index: int, out: Box, result: int) -> Box:
    return broadcast_box(call.shape(index), out)


def _same(call: Call, index: int, out: Box, result: int) -> Box:
    """The same box of the first input; all of any other."""
    return out if index == 0 else whole(call.shape(index))


def _per_channel(call: Call, index: int, out: Box, result: int) -> Box:
    """The same box of the first input; the same channels (axis 1) of vectors."""
    return out if index == 0 else (out[1],)


def _spatial(call: Call, index: int, out: Box, result: int) -> Box:
    """All of the spatial axes, the same channels."""
    return (*out[:2], *whole(call.shape(0)[2:])) if index == 0 else (out[1],)


def _pool(call: Call, index: int, out: Box, result: int) -> Box:
    return (*out[:2], *_sliding(call, out))


def _einsum(call: Call, index: int, out: Box, result: int) -> Box:
    """Labels that the result has: its spans; those that are summed over: all. Source: ONNX operator Einsum."""
    terms, made = einsum_terms(call)
    if "." in terms[index] + made:
        return whole(call.shape(index))
    spans = dict(zip(made, out, strict=True))
    return tuple(spans.get(label, (0, extent)) for label, extent in zip(terms[index], call.shape(index), strict=True))


def _reduce(call: Call, index: int, out: Box, result: int) -> Box:
    axes = reduced_axes(call)
    return whole(call.shape(0)) if axes is None else _around(call.shape(0), axes, out, kept=call.attribute("keepdims", 1) == 1)


def _arg(call: Call, index: int, out: Box, result: int) -> Box:
    shape = call.shape(0)
    return _around(shape, frozenset({call.attribute("axis", 0) % len(shape)}), out, kept=call.attribute("keepdims", 1) == 1)


def _around(shape: Shape, axes: frozenset[int], out: Box, *, kept: bool) -> Box:
    """Some axes whole, the others as in box `out`, which has lost the former unless they are kept."""
    spans = iter(out)
    box: list[Span] = []
    for axis, extent in enumerate(shape):
        span = next(spans) if kept or axis not in axes else NOTHING
        box.append((0, extent) if axis in axes else span)
    return tuple(box)


def _along(default: int) -> Callable[[Call, int, Box, int], Box]:
    """One axis whole, the others the same."""

    def rule(call: Call, index: int, out: Box, result: int) -> Box:
        shape = call.shape(0)
        axis = call.attribute("axis", default)
        return cut(out, axis, (0, shape[axis])) if index == 0 else whole(call.shape(index))

    return rule


def _normalized(call: Call, index: int, out: Box, result: int) -> Box:
    """LayerNormalization, RMSNormalization: whole from the axis on; scale and bias are broadcast against the first result."""
    shape = call.shape(0)
    axis = call.attribute("axis", -1) % len(shape)
    if index == 0:
        return (*out[:axis], *whole(shape[axis:]))
    return broadcast_box(call.shape(index), out) if result == 0 else (NOTHING,) * len(call.shape(index))


def _local_response(call: Call, index: int, out: Box, result: int) -> Box:
    low, high = lrn_reach(call)
    return cut(out, 1, clipped((out[1][0] - low, out[1][1] + high), call.shape(0)[1]))


def _group_normalization(call: Call, index: int, out: Box, result: int) -> Box:
    if index != 0:
        return (out[1],)
    shape = call.shape(0)
    per_group = shape[1] // call.attribute("num_groups", 1)
    first, last = group_span(out[1], per_group)
    return (out[0], (first * per_group, last * per_group), *whole(shape[2:]))


def _mean_variance(call: Call, index: int, out: Box, result: int) -> Box:
    shape = call.shape(0)
    return _around(shape, frozenset(axis % len(shape) for axis in call.attribute("axes", (0, 2, 3))), out, kept=True)


def _cumulative(call: Call, index: int, out: Box, result: int) -> Box:
    shape, axes = call.shape(0), call.ints(1)
    if axes is None:
        return whole(shape)
    axis = axes[0] % len(shape)
    start, stop = out[axis]
    return cut(out, axis, (start, shape[axis]) if call.attribute("reverse", 0) else (0, stop))


def _concat(call: Call, index: int, out: Box, result: int) -> Box:
    axis = call.attribute("axis", 0) % len(out)
    offset = sum(call.shape(i)[axis] for i in range(index))
    return _or_nothing(cut(out, axis, clipped((out[axis][0] - offset, out[axis][1] - offset), call.shape(index)[axis])))


def _or_nothing(box: Box) -> Box:
    return (NOTHING,) * len(box) if is_empty(box) else box


def _split(call: Call, index: int, out: Box, result: int) -> Box:
    axis = call.attribute("axis", 0) % len(out)
    sizes = split_sizes(call)
    if sizes is None:
        return whole(call.shape(0))
    offset = sum(sizes[:result])
    return cut(out, axis, (out[axis][0] + offset, out[axis][1] + offset))


def _slice(call: Call, index: int, out: Box, result: int) -> Box:
    steps = slice_steps(call)
    if steps is None:
        return whole(call.shape(0))
    return tuple(_stepped(start, step, span) for (start, step), span in zip(steps, out, strict=True))


def _stepped(start: int, step: int, span: Span) -> Span:
    ends = start + span[0] * step, start + (span[1] - 1) * step
    return min(ends), max(ends) + 1


def _pad(call: Call, index: int, out: Box, result: int) -> Box:
    amounts = pad_amounts(call)
    if amounts is None:
        return whole(call.shape(0))
    mode = call.attribute("mode", "constant")
    return _or_nothing(
        tuple(_padded(span, size, *amount, mode) for span, size, amount in zip(out, call.shape(0), amounts, strict=True)),
    )


def _padded(span: Span, size: int, before: int, after: int, mode: str) -> Span:
    if mode == "constant" or before == after == 0:
        return clipped((span[0] - before, span[1] - before), size)
    sources = pad_sources(span, size, before, after, mode)
    return min(sources), max(sources) + 1


def _tile(call: Call, index: int, out: Box, result: int) -> Box:
    return tuple(_wrapped(span, size) for span, size in zip(out, call.shape(0), strict=True))


def _wrapped(span: Span, size: int) -> Span:
    start, stop = span[0] % size, span[0] % size + span[1] - span[0]
    return (start, stop) if stop <= size else (0, size)


def _resize(call: Call, index: int, out: Box, result: int) -> Box:
    return tuple(tap_span(call, axis, span) for axis, span in enumerate(out))


def _gather(call: Call, index: int, out: Box, result: int) -> Box:
    """All of the axis that is gathered from, the same of the others; of the indices their part of the box."""
    data, indices = call.shape(0), call.shape(1)
    axis = call.attribute("axis", 0) % len(data)
    if index == 1:
        return out[axis : axis + len(indices)]
    return (*out[:axis], (0, data[axis]), *out[axis + len(indices) :])


def _transpose(call: Call, index: int, out: Box, result: int) -> Box:
    box = list(out)
    for place, axis in enumerate(permutation(call)):
        box[axis] = out[place]
    return tuple(box)


def _depth_to_space(call: Call, index: int, out: Box, result: int) -> Box:
    block = call.attribute("blocksize", 1)
    return (out[0], (0, call.shape(0)[1]), *(group_span(span, block) for span in out[2:]))


def _space_to_depth(call: Call, index: int, out: Box, result: int) -> Box:
    block = call.attribute("blocksize", 1)
    return (out[0], (0, call.shape(0)[1]), *((start * block, stop * block) for start, stop in out[2:]))


RULES: dict[str, Callable[[Call, int, Box, int], Box]] = {
    **dict.fromkeys(["Expand", "Trilu"], _broadcast),
    "BatchNormalization": _per_channel,
    "QuantizeLinear": _same,
    "DequantizeLinear": _same,
    "Einsum": _einsum,
    **dict.fromkeys(["AveragePool", "MaxPool", "LpPool"], _pool),
    "InstanceNormalization": _spatial,
    **dict.fromkeys(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"], _reduce),
    **dict.fromkeys("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum".split(), _reduce),
    "ReduceSumSquare": _reduce,
    **dict.fromkeys(["ArgMax", "ArgMin"], _arg),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "TopK"], _along(-1)),
    **dict.fromkeys(["LayerNormalization", "RMSNormalization"], _normalized),
    "LRN": _local_response,
    "GroupNormalization": _group_normalization,
    "MeanVarianceNormalization": _mean_variance,
    "CumSum": _cumulative,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "Resize": _resize,
    "Gather": _gather,
    "Transpose": _transpose,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}  # of the others, elementwise operators broadcast, and the rest need every operand whole
