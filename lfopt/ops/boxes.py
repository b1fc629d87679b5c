"""Box rules of the operators: which part of an operand the arithmetic of a box of a result reads.

The largest box that is certain where values decide. Of contractions, `inputs` narrows what is summed over to
a span of it.
"""

from __future__ import annotations

from collections.abc import Callable

from lfopt.ir import Box, Span, cut, whole
from lfopt.ops.call import Call, Shape
from lfopt.ops.parameters import (
    einsum_terms,
    lrn_reach,
    pad_amounts,
    pad_source_span,
    permutation,
    reduced_axes,
    slice_steps,
    split_sizes,
)
from lfopt.ops.part import is_empty
from lfopt.ops.resizing import tap_span
from lfopt.ops.windows import windows

NOTHING = (0, 0)  # an empty span
# (call, input, box, ONNX output that the box is of, span of what is folded)
BoxRule = Callable[[Call, int, Box, int, Span | None], Box]


def broadcast_box(shape: Shape, out: Box) -> Box:
    """Part of an operand of this shape that meets box `out` of the result, by NumPy's rules of broadcasting.

    >>> broadcast_box((8, 1, 4), ((0, 1), (2, 6), (3, 4), (0, 4)))
    ((2, 6), (0, 1), (0, 4))
    """
    behind = out[len(out) - len(shape) :]
    return tuple([(0, 1) if extent == 1 else span for extent, span in zip(shape, behind, strict=True)])


def clipped(span: Span, size: int) -> Span:
    """The span cut off at 0 and at `size`; (0, 0) if nothing is left."""
    start = max(span[0], 0)
    stop = min(span[1], size)
    if start < stop:
        return (start, stop)
    return NOTHING


def group_span(span: Span, per_group: int) -> Span:
    """Groups that a span of channels touches.

    >>> group_span((3, 9), 4)
    (0, 3)
    """
    return span[0] // per_group, -(-span[1] // per_group)


# -- contractions --------------------------------------------------------------------------------------------


def _channels(groups: Span, per_group: int, inputs: Span | None) -> Span:
    """Hull of the input channels of some groups, each narrowed to `inputs`."""
    low, high = inputs or (0, per_group)
    return groups[0] * per_group + low, (groups[1] - 1) * per_group + high


def conv(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Windows of the groups that the channels belong to; their filters; their biases."""
    filters, per_group = call.shape(1)[:2]
    if index == 0:
        groups = group_span(out[1], filters // call.attribute("group", 1))
        return (out[0], _channels(groups, per_group, inputs), *_sliding(call, out))
    if index == 1:
        return (out[1], inputs or (0, per_group), *whole(call.shape(1)[2:]))
    return (out[1],)


def conv_transpose(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same; filters of several groups are not one box, so all of those."""
    channels, filters = call.shape(1)[:2]  # filters of one group
    groups = group_span(out[1], filters)
    per_group = channels // call.attribute("group", 1)
    if index == 0:
        return (out[0], _channels(groups, per_group, inputs), *_sliding(call, out))
    if index == 1:
        one = groups[1] - groups[0] == 1
        span = (out[1][0] - groups[0] * filters, out[1][1] - groups[0] * filters) if one else (0, filters)
        return (_channels(groups, per_group, inputs), span, *whole(call.shape(1)[2:]))
    return (out[1],)


def gemm(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Rows of the first matrix, columns of the second; the bias is broadcast."""
    if index == 2:
        return broadcast_box(call.shape(2), out)
    inner = inputs or (0, call.shape(0)[0 if call.attribute("transA", 0) else 1])
    if index == 0:
        if call.attribute("transA", 0):
            return (inner, out[0])
        return (out[0], inner)
    if call.attribute("transB", 0):
        return (out[1], inner)
    return (inner, out[1])


def matmul(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Rows of the first matrix, columns of the second; stacks of matrices are broadcast."""
    left = call.shape(0)
    right = call.shape(1)
    inner = inputs or (0, left[-1])
    own = (len(left) > 1, len(right) > 1)
    batch = out[: len(out) - sum(own)]
    if index == 0:
        if own[0]:
            return (*broadcast_box(left[:-2], batch), out[-1 - own[1]], inner)
        return (inner,)
    if own[1]:
        return (*broadcast_box(right[:-2], batch), inner, out[-1])
    return (inner,)


def _sliding(call: Call, out: Box) -> Box:
    """Spans of the spatial axes that the windows of box `out` tap."""
    return tuple(window.read_span(span) for window, span in zip(windows(call), out[2:], strict=True))


# -- the other operators ------------------------------------------------------------------------------------


def everything(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """All of every operand."""
    return whole(call.shape(index))


def broadcast(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Elementwise, by NumPy's rules of broadcasting."""
    return broadcast_box(call.shape(index), out)


def same(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same box of the first input; all of any other."""
    if index == 0:
        return out
    return whole(call.shape(index))


def per_channel(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same box of the first input; the same channels (axis 1) of vectors."""
    if index == 0:
        return out
    return (out[1],)


def spatial(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """All of the spatial axes, the same channels."""
    if index == 0:
        return (*out[:2], *whole(call.shape(0)[2:]))
    return (out[1],)


def pool(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same channels, and the window of the spatial axes."""
    return (*out[:2], *_sliding(call, out))


def einsum(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Labels that the result has: its spans; those that are summed over: all.

    Source: ONNX operator Einsum.
    """
    terms, labels = einsum_terms(call)
    if "." in terms[index] + labels:
        return whole(call.shape(index))
    spans = dict(zip(labels, out, strict=True))
    return tuple(
        spans.get(label, (0, extent)) for label, extent in zip(terms[index], call.shape(index), strict=True)
    )


def reduce(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Axes that are folded whole, the others the same."""
    axes = reduced_axes(call)
    if axes is None:
        return whole(call.shape(0))
    return _around(call.shape(0), axes, out, kept=call.attribute("keepdims", 1) == 1)


def arg_reduce(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """One axis whole, the others the same."""
    shape = call.shape(0)
    return _around(
        shape,
        frozenset({call.attribute("axis", 0) % len(shape)}),
        out,
        kept=call.attribute("keepdims", 1) == 1,
    )


def _around(shape: Shape, axes: frozenset[int], out: Box, *, kept: bool) -> Box:
    """Some axes whole, the others as in box `out`, which has lost the former unless they are kept."""
    spans = iter(out)
    box: list[Span] = []
    for axis, extent in enumerate(shape):
        span = next(spans) if kept or axis not in axes else NOTHING
        box.append((0, extent) if axis in axes else span)
    return tuple(box)


def along(default: int) -> BoxRule:
    """One axis whole, the others the same."""

    def rule(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
        shape = call.shape(0)
        axis = call.attribute("axis", default)
        if index == 0:
            return cut(out, axis, (0, shape[axis]))
        return whole(call.shape(index))

    return rule


def normalized(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """LayerNormalization, RMSNormalization: whole from the axis on; scale and bias broadcast to result 0."""
    shape = call.shape(0)
    axis = call.attribute("axis", -1) % len(shape)
    if index == 0:
        return (*out[:axis], *whole(shape[axis:]))
    if result == 0:
        return broadcast_box(call.shape(index), out)
    return (NOTHING,) * len(call.shape(index))


def local_response(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Neighbouring channels, the rest the same."""
    low, high = lrn_reach(call)
    return cut(out, 1, clipped((out[1][0] - low, out[1][1] + high), call.shape(0)[1]))


def group_normalization(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Whole groups of channels, and all of the spatial axes."""
    if index != 0:
        return (out[1],)
    shape = call.shape(0)
    per_group = shape[1] // call.attribute("num_groups", 1)
    first, last = group_span(out[1], per_group)
    return (out[0], (first * per_group, last * per_group), *whole(shape[2:]))


def mean_variance(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Axes that are averaged over whole, the others the same."""
    shape = call.shape(0)
    return _around(
        shape, frozenset(axis % len(shape) for axis in call.attribute("axes", (0, 2, 3))), out, kept=True
    )


def cumulative(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """All that lies before, or behind."""
    shape = call.shape(0)
    axes = call.ints(1)
    if axes is None:
        return whole(shape)
    axis = axes[0] % len(shape)
    start, stop = out[axis]
    return cut(out, axis, (start, shape[axis]) if call.attribute("reverse", 0) else (0, stop))


def concat(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """What of the box lies in the operand; it may be nothing."""
    axis = call.attribute("axis", 0) % len(out)
    offset = sum(call.shape(i)[axis] for i in range(index))
    return _or_nothing(
        cut(out, axis, clipped((out[axis][0] - offset, out[axis][1] - offset), call.shape(index)[axis]))
    )


def _or_nothing(box: Box) -> Box:
    if is_empty(box):
        return (NOTHING,) * len(box)
    return box


def split(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same box at the offset of the result."""
    axis = call.attribute("axis", 0) % len(out)
    sizes = split_sizes(call)
    if sizes is None:
        return whole(call.shape(0))
    offset = sum(sizes[:result])
    return cut(out, axis, (out[axis][0] + offset, out[axis][1] + offset))


def slice_(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """From the first to the last element that is taken."""
    steps = slice_steps(call)
    if steps is None:
        return whole(call.shape(0))
    return tuple(_stepped(start, step, span) for (start, step), span in zip(steps, out, strict=True))


def _stepped(start: int, step: int, span: Span) -> Span:
    ends = start + span[0] * step, start + (span[1] - 1) * step
    return min(ends), max(ends) + 1


def pad(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """What of the box lies in the map, or what it repeats of it."""
    amounts = pad_amounts(call)
    if amounts is None:
        return whole(call.shape(0))
    mode = call.attribute("mode", "constant")
    return _or_nothing(
        tuple(
            _padded(span, size, *amount, mode)
            for span, size, amount in zip(out, call.shape(0), amounts, strict=True)
        ),
    )


def _padded(span: Span, size: int, before: int, after: int, mode: str) -> Span:
    if mode == "constant" or before == after == 0:
        return clipped((span[0] - before, span[1] - before), size)
    return pad_source_span(span, size, before, after, mode)


def tile(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """What is repeated; all of an axis where the box wraps around."""
    return tuple(_wrapped(span, size) for span, size in zip(out, call.shape(0), strict=True))


def _wrapped(span: Span, size: int) -> Span:
    start = span[0] % size
    stop = span[0] % size + span[1] - span[0]
    if stop <= size:
        return (start, stop)
    return (0, size)


def resize(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """All neighbours that elements are made from."""
    return tuple(tap_span(call, axis, span) for axis, span in enumerate(out))


def gather(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """All of the axis that is gathered from, the same of the others; of the indices their part of the box."""
    data = call.shape(0)
    indices = call.shape(1)
    axis = call.attribute("axis", 0) % len(data)
    if index == 1:
        return out[axis : axis + len(indices)]
    return (*out[:axis], (0, data[axis]), *out[axis + len(indices) :])


def gather_elements(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same box of the indices; of the data too, but all of the axis that is gathered from."""
    axis = call.attribute("axis", 0)
    if index == 0:
        return cut(out, axis, (0, call.shape(0)[axis]))
    return out


def gather_nd(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """Axes of the data that indices point along whole; the indices of the box."""
    data = call.shape(0)
    indices = call.shape(1)
    shared = call.attribute("batch_dims", 0)
    behind = len(indices) - 1
    if index == 1:
        return (*out[:behind], (0, indices[-1]))
    return (*out[:shared], *whole(data[shared : shared + indices[-1]]), *out[behind:])


def scatter_elements(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same box; of indices and updates all of the axis along which they are scattered."""
    if index == 0:
        return out
    shape = call.shape(index)
    axis = call.attribute("axis", 0) % len(shape)
    return _or_nothing(
        tuple(
            (0, extent) if k == axis else clipped(span, extent)
            for k, (span, extent) in enumerate(zip(out, shape, strict=True))
        )
    )


def scatter_nd(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same box; all indices; of the updates what of each lies in the box."""
    if index == 0:
        return out
    shape = call.shape(index)
    indices = call.shape(1)
    if index == 1:
        return whole(shape)
    return (*whole(shape[: len(indices) - 1]), *out[indices[-1] :])


def deform_conv(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """All of the same images; offsets and mask of the same pixels."""
    shape = call.shape(index)
    if index == 0:
        return (out[0], *whole(shape[1:]))
    if index in (2, 4):
        return (out[0], (0, shape[1]), *out[2:])
    return whole(shape)


def roi_align(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same channels of all maps; the same regions."""
    if index == 0:
        shape = call.shape(0)
        return ((0, shape[0]), out[1], *whole(shape[2:]))
    return (out[0], *whole(call.shape(index)[1:]))


def transpose(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """The same box with its axes permuted."""
    box = list(out)
    for place, axis in enumerate(permutation(call)):
        box[axis] = out[place]
    return tuple(box)


def depth_to_space(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """All channels, and the pixels that blocks are made of."""
    block = call.attribute("blocksize", 1)
    return (out[0], (0, call.shape(0)[1]), *(group_span(span, block) for span in out[2:]))


def space_to_depth(call: Call, index: int, out: Box, result: int, inputs: Span | None) -> Box:
    """All channels, and the blocks that pixels are made of."""
    block = call.attribute("blocksize", 1)
    return (out[0], (0, call.shape(0)[1]), *((start * block, stop * block) for start, stop in out[2:]))
