"""Feature maps as generated code holds them: rows of pixels, the channels of a pixel side by side.

A row is contiguous, and so are the rows of a whole map. [1, C, H, W] has H rows of W pixels; [1, S, D] S rows of one pixel with D channels, [1, C]
one pixel. So channels come last, whatever ONNX says; only where a graph's inputs and outputs cross the border are they moved.
"""

from __future__ import annotations

from typing import NamedTuple

from codegen.source import Unsupported
from lfopt.ir import Tensor


class Image(NamedTuple):
    """Extents of a map."""

    rows: int
    pixels: int  # in a row
    channels: int

    @property
    def row(self) -> int:
        """Elements of a row."""
        return self.pixels * self.channels

    @property
    def elements(self) -> int:
        """Elements of the map."""
        return self.rows * self.row

    @property
    def flat(self) -> Image:
        """The whole map as one row."""
        return Image(1, self.rows * self.pixels, self.channels)


def image(tensor: Tensor) -> Image:
    """The extents of a map. Raises Unsupported for ranks and batches that generated code does not hold yet."""
    if tensor.dtype != "float32":
        raise Unsupported(f"tensor {tensor.name!r}: found type {tensor.dtype}; generated C accepts float32")
    found = extents(tensor.shape)
    if found is None:
        raise Unsupported(f"tensor {tensor.name!r}: found shape {list(tensor.shape)}; generated C accepts [1, C, H, W], [1, S, D] and [1, C]")
    return found


def extents(shape: tuple[int, ...]) -> Image | None:
    """Rows, pixels and channels of a shape; None where there is no such reading."""
    if not 2 <= len(shape) <= 4 or shape[0] != 1:
        return None
    return Image(shape[2], shape[3], shape[1]) if len(shape) == 4 else Image(shape[1], 1, shape[2]) if len(shape) == 3 else Image(1, 1, shape[1])


def same_order(shape: tuple[int, ...], view: tuple[int, ...]) -> bool:
    """Whether a view of a map reads its elements pixel by pixel, as they lie."""
    return shape == view or (extents(shape) == extents(view) and not channels_first(shape) and not channels_first(view))


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether ONNX's order of the elements differs from ours."""
    return len(shape) == 4 and shape[1] > 1 and shape[2] * shape[3] > 1
