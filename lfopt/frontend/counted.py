"""Operators whose results are as large as values say: how large at most, or why they are not known.

Where the values are constants, the results are constants too, of which there is an upper bound; where they
are computed, the operators are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lfopt.ir import Operator

Shapes = list[tuple[int, ...]]  # of an operator's outputs, in order
Operands = Sequence[np.ndarray | None]
COUNTS = {
    "NonMaxSuppression": "how many boxes it keeps",
    "NonZero": "how many elements are not 0",
    "Range": "how many numbers it makes",
    "StringSplit": "how many parts a text has",
    "Unique": "how many elements differ",
}


def why(kind: str) -> str:
    """The end of a refusal of an operator whose results have no static shape: why, and what to do.

    Empty for operators of which nothing is known.
    """
    if kind not in COUNTS:
        return ""
    return (
        f": {COUNTS[kind]} depends on values that are computed; "
        "accepted: a network that ends before it, with what it reads as outputs"
    )


def _non_zero(operator: Operator, operands: Operands) -> Shapes:
    value = np.asarray(operands[0])
    spread = 0 in value.strides  # one number, however large the shape
    return [(value.ndim, value.size if spread else int(np.count_nonzero(value)))]


def _unique(operator: Operator, operands: Operands) -> Shapes:
    value = np.asarray(operands[0])
    return [value.shape if "axis" in operator.attributes else (value.size,), *[(value.size,)] * 3]


def _non_max_suppression(operator: Operator, operands: Operands) -> Shapes:
    (images, boxes, _), (_, classes, _) = (np.asarray(operand).shape for operand in operands[:2])
    return [(images * classes * boxes, 3)]


def _string_split(operator: Operator, operands: Operands) -> Shapes:
    texts = np.asarray(operands[0])
    longest = max((len(str(text)) for text in texts.flat), default=0)
    return [(*texts.shape, longest), texts.shape]


# shapes of all results, at most, from the values of the operands
AT_MOST: dict[str, Callable[[Operator, Operands], Shapes]] = {
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "StringSplit": _string_split,
    "Unique": _unique,
}
