"""Attributes and parameter inputs of an operator with defaults filled in: axes from 0, starts in the map.

Where a parameter's values are not at hand (they are computed, or absent from the model) the answer is None.
"""

from __future__ import annotations

from lfopt.ir import Span
from lfopt.ops.call import Call, once_per_call


def einsum_terms(call: Call) -> tuple[list[str], str]:
    """Labels of each operand and of the result."""
    equation = call.attribute("equation", "").replace(" ", "")
    left, arrow, labels = equation.partition("->")
    if not arrow:
        dots = "..." if "..." in left else ""
        labels = dots + "".join(sorted(c for c in set(left) - set(",.") if left.count(c) == 1))
    return left.split(","), labels


def reduced_axes(call: Call) -> frozenset[int] | None:
    """Axes that a Reduce operator or a global pool folds, from 0; None if their values are not at hand.

    Source: ONNX operators ReduceSum (noop_with_empty_axes), GlobalAveragePool.
    """
    rank = len(call.shape(0))
    if call.operator.kind.startswith("Global"):
        return frozenset(range(2, rank))
    if call.has(1) and call.values[1] is None:
        return None
    axes = call.ints(1, "axes")
    if axes:
        return frozenset(axis % rank for axis in axes)
    if call.attribute("noop_with_empty_axes", 0):
        return frozenset()
    return frozenset(range(rank))


def lrn_reach(call: Call) -> tuple[int, int]:
    """Channels below and above that LRN sums over.

    Source: ONNX operator LRN: floor and ceil of (size - 1) / 2.
    """
    size = call.attribute("size", 1)
    return (size - 1) // 2, size // 2


@once_per_call
def split_sizes(call: Call) -> tuple[int, ...] | None:
    """Extents of all outputs of a Split along its axis, omitted ones too; None if they are not known."""
    axis = call.attribute("axis", 0) % len(call.shape(0))
    count = len(call.operator.outputs)
    if len(call.results) == count:
        return tuple(shape[axis] for shape in call.results)
    if call.has(1):
        return call.ints(1)
    extent = call.shape(0)[axis]
    part = -(-extent // count)
    return tuple(min(part, extent - part * k) for k in range(count))


@once_per_call
def slice_steps(call: Call) -> tuple[tuple[int, int], ...] | None:
    """(start, step) along every axis: result index i reads start + i * step.

    None if the values are not at hand. Source: ONNX operator Slice.
    """
    shape = call.shape(0)
    starts = call.ints(1)
    axes = call.ints(3) if call.has(3) else tuple(range(len(starts or ())))
    steps = call.ints(4) if call.has(4) else (1,) * len(starts or ())
    if starts is None or axes is None or steps is None:
        return None
    per_axis = [(0, 1)] * len(shape)
    for axis, start, step in zip(axes, starts, steps, strict=True):
        extent = shape[axis]
        start += extent if start < 0 else 0
        per_axis[axis % len(shape)] = min(max(start, 0), extent - 1 if step < 0 else extent), step
    return tuple(per_axis)


@once_per_call
def pad_amounts(call: Call) -> tuple[tuple[int, int], ...] | None:
    """(before, after) along every axis, elements, negative where cut off; None if the values are absent.

    Source: ONNX operator Pad.
    """
    rank = len(call.shape(0))
    pads = call.ints(1)
    axes = call.ints(3) if call.has(3) else tuple(range(rank))
    if pads is None or axes is None:
        return None
    per_axis = [(0, 0)] * rank
    for position, axis in enumerate(axes):
        per_axis[axis % rank] = pads[position], pads[position + len(axes)]
    return tuple(per_axis)


def pad_sources(span: Span, size: int, before: int, after: int, mode: str) -> list[int]:
    """Input index that each padded index of a span repeats, in mode edge, reflect or wrap.

    Negative amounts cut the map first.

    >>> pad_sources((0, 7), 4, 2, 1, "reflect")
    [2, 1, 0, 1, 2, 3, 2]
    """
    low, left = _kept_part(size, before, after)
    return [_pad_source(index - max(before, 0), low, left, mode) for index in range(*span)]


def _kept_part(size: int, before: int, after: int) -> tuple[int, int]:
    """(first index, how many) of a map that negative amounts leave of it."""
    low = max(-before, 0)
    return low, size - low - max(-after, 0)


def _pad_source(place: int, low: int, left: int, mode: str) -> int:
    """Input index that an index repeats, of `left` that lie in the map from `low` on."""
    if mode == "edge":
        return low + min(max(place, 0), left - 1)
    if mode == "wrap":
        return low + place % left
    period = max(2 * (left - 1), 1)
    return low + min(place % period, -place % period)


def pad_source_span(span: Span, size: int, before: int, after: int, mode: str) -> Span:
    """Input span from the lowest to the highest of the `pad_sources` of a span.

    >>> pad_source_span((0, 7), 4, 2, 1, "reflect"), pad_source_span((0, 2), 1 << 40, 2, 2, "wrap")
    ((0, 4), (1099511627774, 1099511627776))
    """
    low, left = _kept_part(size, before, after)
    start = span[0] - max(before, 0)
    stop = span[1] - max(before, 0)
    # indices between which sources go on in one direction
    turns: tuple[int, ...] = ()
    if mode == "reflect":
        half = max(left - 1, 1)
        turn = -(-start // half) * half
        turns = (turn, turn + half)
    elif mode == "wrap":
        turn = -(-start // left) * left
        turns = (turn - 1, turn, turn + left - 1, turn + left)
    places = [start, stop - 1, *(turn for turn in turns if start <= turn < stop)]
    sources = [_pad_source(place, low, left, mode) for place in places]
    return min(sources), max(sources) + 1


def permutation(call: Call) -> tuple[int, ...]:
    """Input axis that becomes each axis of the result."""
    return call.attribute("perm", tuple(reversed(range(len(call.shape(0))))))
