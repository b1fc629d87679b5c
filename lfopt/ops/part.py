"""A part of an operand: the values inside one box of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, box_shape, slices, within


class Part(NamedTuple):
    """What an operator is given of one operand."""

    values: np.ndarray  # exactly box_shape(box)
    box: Box  # which part of the operand it is, in the axes of the operand as the operator sees it


Operands = Sequence[Part | None]  # per operand of an operator; None where it is absent


def is_empty(box: Box) -> bool:
    """Whether the box holds nothing.

    >>> is_empty(((0, 1), (3, 3))), is_empty(())
    (True, False)
    """
    for start, stop in box:  # noqa: SIM110  (as in `within`)
        if start >= stop:
            return True
    return False


def hull(boxes: list[Box]) -> Box:
    """The smallest box around boxes of one rank; empty ones do not count, unless all are.

    >>> hull([((0, 1), (2, 4)), ((0, 1), (6, 7)), ((0, 0), (0, 0))])
    ((0, 1), (2, 7))
    """
    if len(boxes) == 1:
        return boxes[0]
    real = [box for box in boxes if not is_empty(box)] or boxes[:1]
    return tuple(
        (min(start for start, _ in spans), max(stop for _, stop in spans))
        for spans in zip(*real, strict=True)
    )


def take(part: Part, box: Box) -> np.ndarray:
    """A view of the part's values, shaped as the box. Raises IndexError if the part does not cover it."""
    if box == part.box:
        return part.values
    if is_empty(box):
        return np.empty(box_shape(box), part.values.dtype)
    if not within(box, part.box):
        raise IndexError(f"box {box} is read, and only {part.box} is at hand")
    return part.values[slices(box, part.box)]
