"""Operators whose results are as large as values say: the extents, or why they are not known.

Where the values are constants, that is how large; where they are computed, why they are refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import NodeProto

from lfopt.frontend.messages import title
from lfopt.frontend.values import options
from lfopt.ir import InvalidModel

Shapes = list[tuple[int, ...]]  # of an operator's outputs, in order
COUNTS = {
    "NonMaxSuppression": "how many boxes it keeps",
    "NonZero": "how many elements are not 0",
    "Range": "how many numbers it makes",
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


def _non_zero(node: NodeProto, value: np.ndarray) -> Shapes:
    return [(value.ndim, int(np.count_nonzero(value)))]


def _unique(node: NodeProto, value: np.ndarray) -> Shapes:
    axis = options(node).get("axis")
    if axis is None:
        count = np.unique(value).size
        return [(count,), (count,), (value.size,), (count,)]
    if not -value.ndim <= axis < value.ndim:
        raise InvalidModel(f"{title(node)}: axis {axis} of shape {[*value.shape]}")
    shape = np.unique(value, axis=axis).shape
    return [shape, (shape[axis],), (value.shape[axis],), (shape[axis],)]


# shapes of all results, from the values of the operand
SHAPES: dict[str, Callable[[NodeProto, np.ndarray], Shapes]] = {"NonZero": _non_zero, "Unique": _unique}
