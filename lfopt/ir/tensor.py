"""A tensor: name, static shape, element type; and how it is cut into rows.

Letters used throughout: `n, c, h, w` for a feature map, `k` for a kernel extent, `b, s, d` for batch,
sequence and depth of a transformer map. A *row* is the unit in which a feature map is moved between DRAM and
the buffer and kept in a ring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from lfopt.ir.quantization import Quantization

# [b,s,d], [n,c,h,w] or [b,heads,s,d], [n,c,d,h,w]; every other rank is one row
ROW_AXIS_OF_RANK = {3: 1, 4: 2, 5: 2}
# rows of a map, and columns: what each of them reads is listed. A map of more rows does not pass row by row
MOST_ROWS = 1 << 18
CHANNEL_AXIS_OF_RANK = {2: 1, 3: 2, 4: 1, 5: 1}


def row_axis(shape: tuple[int, ...]) -> int | None:
    """Axis along which a map of this shape is cut into rows; None if it is one row.

    >>> row_axis((1, 64, 56, 56)), row_axis((1, 128, 768)), row_axis((1, 1000))
    (2, 1, None)
    """
    return ROW_AXIS_OF_RANK.get(len(shape))


def too_tall(shape: tuple[int, ...]) -> bool:
    """Whether a map of this shape has too many rows to pass row by row; it is cut along any axis instead.

    >>> too_tall((1, 8, 1 << 24, 4)), too_tall((1 << 24, 4))
    (True, False)
    """
    return row_count(shape) > MOST_ROWS


def row_count(shape: tuple[int, ...]) -> int:
    """Rows of a map of this shape.

    >>> row_count((1, 64, 56, 28)), row_count((1, 1000))
    (56, 1)
    """
    axis = row_axis(shape)
    if axis is None:
        return 1
    return shape[axis]


def passing_rows(shape: tuple[int, ...]) -> int:
    """Rows in which a map of this shape passes; one where they are too many to pass row by row.

    >>> passing_rows((1, 64, 56, 28)), passing_rows((1, 8, 1 << 24, 4))
    (56, 1)
    """
    if too_tall(shape):
        return 1
    return row_count(shape)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value with a static shape. Constants are tensors too; their values stand in `Graph.constants`."""

    name: str
    shape: tuple[int, ...]  # elements per axis; () is a scalar
    dtype: str  # NumPy's name of the element type in the model, e.g. "float32"
    # what the integers stand for; None: they are the values themselves
    quantization: Quantization | None = None

    def named(self, name: str) -> Tensor:
        """The same under another name."""
        if name == self.name:
            return self
        return replace(self, name=name)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def rows(self) -> int:
        """Number of rows (see `row_axis`)."""
        return row_count(self.shape)
