"""A box: a part of a tensor, cut out along its axes.

The regions that a schedule moves and computes are boxes.
"""

from __future__ import annotations

from math import prod

Span = tuple[int, int]  # start, stop: from start up to but not including stop
Box = tuple[Span, ...]  # one span per axis; () is the whole of a scalar


def whole(shape: tuple[int, ...]) -> Box:
    """The box that is all of a tensor.

    >>> whole((1, 8, 4, 4))
    ((0, 1), (0, 8), (0, 4), (0, 4))
    """
    return tuple([(0, extent) for extent in shape])


def box_shape(box: Box) -> tuple[int, ...]:
    """Extent along every axis."""
    return tuple([stop - start for start, stop in box])


def box_elements(box: Box) -> int:
    """Number of elements."""
    return prod([stop - start for start, stop in box])


def cut(box: Box, axis: int, span: Span) -> Box:
    """The box with another span along one axis.

    >>> cut(((0, 1), (0, 8)), 1, (2, 4))
    ((0, 1), (2, 4))
    """
    axis %= len(box)
    return (*box[:axis], span, *box[axis + 1 :])


def spans(start: int, stop: int, step: int) -> list[Span]:
    """An interval of an axis, cut into spans of `step`, the last one shorter if need be.

    >>> spans(0, 5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(low, min(low + step, stop)) for low in range(start, stop, step)]


def within(inner: Box, outer: Box) -> bool:
    """Whether one box lies in another."""
    # steps ask by the million: all() over a generator takes three times as long
    for (start, stop), (low, high) in zip(inner, outer, strict=True):
        if start < low or stop > high:
            return False
    return True


def slices(box: Box, origin: Box | None = None) -> tuple[slice, ...]:
    """Index of the box in an array that holds the box `origin` (None: the whole tensor)."""
    if origin is None:
        return tuple([slice(start, stop) for start, stop in box])
    return tuple(
        [slice(start - low, stop - low) for (start, stop), (low, _) in zip(box, origin, strict=True)]
    )
