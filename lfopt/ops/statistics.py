"""Normalizations in two passes: statistics of what is normalized, part by part, then every element.

The statistics of a box of the result are kept between the parts, and until its last element is made. The
state of an element has one entry in the result's shape, with the axes that are normalized over folded to one
(channels, of groups, to the group), and a last axis for

    moments       the number of elements, their mean, the sum of squares around it
    squares       the sum of squares, or of absolute values
    exponentials  the largest element, the sum of exponentials moved by it
"""

from __future__ import annotations

from lfopt.ir import Box, Span, row_axis
from lfopt.ops.call import Call, Shape

MOMENTS = 3
POWERS = 1
EXPONENTIALS = 2
WIDTHS: dict[str, int] = {  # numbers that are kept
    "GroupNormalization": MOMENTS,
    "InstanceNormalization": MOMENTS,
    "LayerNormalization": MOMENTS,
    "LogSoftmax": EXPONENTIALS,
    "LpNormalization": POWERS,
    "MeanVarianceNormalization": MOMENTS,
    "RMSNormalization": POWERS,
    "Softmax": EXPONENTIALS,
}
MOST_AXES = 8  # of a state; an operand has one less


def has_statistics(call: Call) -> bool:
    """Whether the operator may run in two passes."""
    return (
        call.operator.kind in WIDTHS
        and len(call.results) == 1
        and call.result_tensors[0].quantization is None
        and call.result_tensors[0].dtype.startswith("float")
        and 0 < len(call.shape(0)) < MOST_AXES
        and bool(normalized_axes(call))
    )


def normalized_axes(call: Call) -> tuple[int, ...]:
    """Axes over which elements are normalized, ascending; of groups of channels: the axes behind those."""
    rank = len(call.shape(0))
    kind = call.operator.kind
    if kind in ("InstanceNormalization", "GroupNormalization"):
        return tuple(range(2, rank))
    if kind in ("LayerNormalization", "RMSNormalization"):
        return tuple(range(call.attribute("axis", -1) % rank, rank))
    if kind == "MeanVarianceNormalization":
        return tuple(sorted({axis % rank for axis in call.attribute("axes", (0, 2, 3))}))
    return (call.attribute("axis", -1) % rank,)


def statistics_axis(call: Call) -> int:
    """Axis of operand 0 along which it comes in parts: the rows, if normalized over, or the longest."""
    shape = call.shape(0)
    axes = normalized_axes(call)
    rows = row_axis(shape)
    if rows is not None and rows in axes:
        return rows
    return max(axes, key=lambda axis: shape[axis])


def channels_together(call: Call) -> int:
    """Channels that have their statistics in common."""
    if call.operator.kind != "GroupNormalization":
        return 1
    return call.shape(0)[1] // call.attribute("num_groups", 1)


def state_shape(call: Call) -> Shape:
    """Shape of the statistics of the whole result."""
    return (*(stop for _, stop in state_box(call, tuple((0, extent) for extent in call.result))),)


def state_box(call: Call, out: Box) -> Box:
    """The statistics that a box of the result has."""
    axes = normalized_axes(call)
    together = channels_together(call)
    box: list[Span] = []
    for axis, (start, stop) in enumerate(out):
        if axis in axes:
            box.append((0, 1))
        elif axis == 1 and together > 1:
            box.append((start // together, -(-stop // together)))
        else:
            box.append((start, stop))
    return (*box, (0, WIDTHS[call.operator.kind]))
