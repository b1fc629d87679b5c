"""Geometry of the operators that slide a window along the spatial axes: Conv, ConvTranspose and the pools.

Source: ONNX operators Conv, ConvTranspose, MaxPool (attributes pads, auto_pad, output_shape).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from lfopt.ir import MOST_ROWS, Attribute, Span, UnsupportedModel
from lfopt.ops import rows
from lfopt.ops.call import Call
from lfopt.ops.rows import RowReads

Index = TypeVar("Index", int, np.ndarray)
SAME = ("SAME_UPPER", "SAME_LOWER")  # of auto_pad


class Window(NamedTuple):
    """One spatial axis.

    Output index o taps input indices o * stride - pad + j * dilation for j in 0 .. kernel - 1.

    Transposed, it taps every input index i with i * stride - pad + j * dilation = o for some j.
    """

    size: int  # extent of the input
    size_out: int  # extent of the output
    kernel: int
    stride: int
    dilation: int
    pad: int  # before the first element
    pad_after: int  # behind the last element
    transposed: bool

    @property
    def reads(self) -> RowReads:
        """Input indices per output index, cut off at the ends of the map."""
        if self.transposed:
            return rows.transposed_window(
                self.size, self.size_out, self.kernel, self.stride, self.dilation, self.pad
            )
        return rows.window(self.size, self.size_out, self.kernel, self.stride, self.dilation, self.pad)

    @property
    def is_listed(self) -> bool:
        """Whether its axis is short enough that what each output reads is listed, in `reads`."""
        return max(self.size, self.size_out) <= MOST_ROWS

    def read_span(self, span: Span) -> Span:
        """Input indices from the first to the last that outputs of a span read; (0, 0) if they read nothing.

        Along an axis that is too long to list them, what lies between those of the first and the last output.
        """
        if self.is_listed:
            return read_span(self.reads, span)
        low, high = self.tapped(span)
        low = max(low, 0)
        high = min(high, self.size)
        if span[0] < span[1] and low < high:
            return (low, high)
        return (0, 0)

    def tapped(self, span: tuple[Index, Index]) -> tuple[Index, Index]:
        """Input indices between the first tap of the first output and the last tap of the last.

        They may lie in the padding. The span is of one pair of ends, or of an array of each.
        """
        if not self.transposed:
            return self.extent(span)
        start, stop = span
        reach = (self.kernel - 1) * self.dilation
        return -(-(start + self.pad - reach) // self.stride), (stop - 1 + self.pad) // self.stride + 1

    def extent(self, span: tuple[Index, Index]) -> tuple[Index, Index]:
        """Input indices from the first tap of the first output to the last tap of the last, with padding."""
        start, stop = span
        return start * self.stride - self.pad, (stop - 1) * self.stride - self.pad + (
            self.kernel - 1
        ) * self.dilation + 1

    def covered(self, span: Span, *, padded: bool = False) -> np.ndarray:  # (stop - start,) int64
        """(stop - start,) int64: elements of each window of a span that lie in the map, or the padded map."""
        low, high = (-self.pad, self.size + self.pad_after) if padded else (0, self.size)
        starts = np.arange(*span, dtype=np.int64) * self.stride - self.pad
        first = np.maximum(-((starts - low) // self.dilation), 0)
        last = np.minimum((high - 1 - starts) // self.dilation, self.kernel - 1)
        return np.maximum(last - first + 1, 0)

    def taps_within(self, span: Span) -> int:
        """Elements of all windows of a span together that lie in the map.

        >>> Window(8, 8, 3, 1, 1, pad=1, pad_after=1, transposed=False).taps_within((0, 8))
        22
        """
        start, stop = span
        if stop - start <= self.kernel:
            return int(self.covered(span).sum())
        total = 0
        for j in range(self.kernel):
            offset = j * self.dilation - self.pad
            first = max(-(offset // self.stride), start)
            total += max(min((self.size - 1 - offset) // self.stride + 1, stop) - first, 0)
        return total

    def trimmed(self, span: Span) -> Window:
        """Without the taps that meet the map in no output of the span; at least one tap is left.

        Kernels may be much larger than the map.
        """
        start, stop = span
        first = max(-(((stop - 1) * self.stride - self.pad) // self.dilation), 0)
        last = min((self.size - 1 - start * self.stride + self.pad) // self.dilation, self.kernel - 1)
        if first > last:
            return self._replace(kernel=1)
        return self._replace(kernel=last - first + 1, pad=self.pad - first * self.dilation)


def read_span(reads: RowReads, span: Span) -> Span:
    """Hull of what outputs start .. stop - 1 read; (0, 0) if they read nothing.

    >>> read_span(rows.window(8, 8, kernel=3, pad=1), (0, 2))
    (0, 3)
    """
    start, stop = span
    if start >= stop:
        return 0, 0
    low = reads.keep[start] if stop == reads.rows_out else min(reads.first[start:stop])
    high = reads.need[stop - 1] if start == 0 else max(reads.last[start:stop]) + 1
    if low < high:
        return (low, high)
    return (0, 0)


def windows(call: Call) -> tuple[Window, ...]:
    """One window per spatial axis.

    Raises UnsupportedModel, naming the node, for pads on which ONNX and ONNX Runtime do not agree.
    """
    attributes = call.operator.attributes
    try:
        return _windows(
            call.operator.kind == "ConvTranspose",
            call.shape(0)[2:],
            call.result[2:],
            attributes.get("kernel_shape") or call.shape(1)[2:],  # type: ignore[arg-type]
            attributes.get("strides"),  # type: ignore[arg-type]
            attributes.get("dilations"),  # type: ignore[arg-type]
            attributes.get("pads"),  # type: ignore[arg-type]
            attributes.get("auto_pad", "NOTSET"),  # type: ignore[arg-type]
            attributes.get("output_padding"),  # type: ignore[arg-type]
            bool(attributes.get("output_shape")),
        )
    except UnsupportedModel as error:
        raise UnsupportedModel(f"node {call.operator.name!r} ({call.operator.kind}): {error}") from None


def transposed_extents(attributes: Mapping[str, Attribute], size: tuple[int, ...]) -> tuple[int, ...] | None:
    """Spatial extents of a ConvTranspose where attributes say them, whatever the kernel; None: pads do.

    ONNX's shape inference adds output_padding to what auto_pad says; its specification, its reference and
    ONNX Runtime do not.
    """
    if output_shape := attributes.get("output_shape"):
        return output_shape  # type: ignore[return-value]
    if attributes.get("auto_pad") not in SAME:
        return None
    strides: tuple[int, ...] = attributes.get("strides") or (1,) * len(size)  # type: ignore[assignment]
    return tuple(n * stride for n, stride in zip(size, strides, strict=True))


@lru_cache(maxsize=4096)
def _windows(
    transposed: bool,
    size: tuple[int, ...],
    size_out: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    auto_pad: str,
    output_padding: tuple[int, ...] | None,
    output_shape: bool,
) -> tuple[Window, ...]:
    rank = len(kernel)
    per_axis = list[Window]()
    same = auto_pad in SAME
    for axis in range(rank):
        stride = (strides or (1,) * rank)[axis]
        dilation = (dilations or (1,) * rank)[axis]
        reach = (kernel[axis] - 1) * dilation + 1
        before, after = (pads[axis], pads[axis + rank]) if pads and auto_pad == "NOTSET" else (0, 0)
        if same or (transposed and output_shape):
            if transposed:
                total = (
                    stride * (size[axis] - 1) + (output_padding or (0,) * rank)[axis] + reach - size_out[axis]
                )
                _refuse_disputed(axis, total, auto_pad, output_shape=output_shape)
            else:
                total = max((-(-size[axis] // stride) - 1) * stride + reach - size[axis], 0)
            small = total // 2
            large = total - total // 2
            before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        per_axis.append(
            Window(size[axis], size_out[axis], kernel[axis], stride, dilation, before, after, transposed)
        )
    return tuple(per_axis)


def _refuse_disputed(axis: int, total: int, auto_pad: str, *, output_shape: bool) -> None:
    """Negative padding adds zeros: the specification on both sides, ONNX Runtime behind alone.

    Of one zero they say the same but for SAME_UPPER.
    """
    if total < -1 or (total == -1 and (auto_pad == "SAME_UPPER" or not output_shape)):
        cause = "output_shape" if output_shape else f"auto_pad {auto_pad}"
        raise UnsupportedModel(
            f"{cause} makes axis {axis + 2} longer by {-total} than kernel and output_padding reach; where "
            "zeros are added ONNX and ONNX Runtime do not agree; accepted: no longer than they "
            f"reach{'' if auto_pad == 'SAME_UPPER' or not output_shape else ', or by 1'}"
        )
