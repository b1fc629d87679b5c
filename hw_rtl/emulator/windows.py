"""Where the windows of a command lie in its operand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np


class WindowAxis(NamedTuple):
    """The places along one axis of an operand that a command looks at, as a short array holds them.

    Neighbouring windows that leave no gap share places: the array is a stretch of the operand. Otherwise it
    holds every window by itself.
    """

    outputs: int
    kernel: int
    stride: int  # of the operand
    dilation: int
    first: int  # place of the first window's first element; below 0: padding

    @property
    def shared(self) -> bool:
        """Whether the array is a contiguous part of the operand, which windows share."""
        return self.dilation == 1 and self.stride <= self.kernel

    @property
    def size(self) -> int:
        """Entries of the array."""
        if self.shared:
            return (self.outputs - 1) * self.stride + self.kernel
        return self.outputs * self.kernel

    @property
    def array_stride(self) -> int:
        """Entries from one window to the next."""
        if self.shared:
            return self.stride
        return self.kernel

    def _pieces(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Arithmetic sequences: (first entry, step of entries, first place, step of places, length)."""
        if self.shared:
            yield 0, 1, self.first, 1, self.size
        elif self.kernel > self.outputs or not self.stride:
            for output in range(self.outputs):
                yield output * self.kernel, 1, self.first + output * self.stride, self.dilation, self.kernel
        else:
            for k in range(self.kernel):
                yield k, self.kernel, self.first + k * self.dilation, self.stride, self.outputs

    def inside(self, length: int) -> Iterator[tuple[slice, range]]:
        """(entries of the array, places in the operand) of each sequence that is no padding."""
        for entry, entry_step, place, place_step, number in self._pieces():
            begin = max(0, -(place // place_step))
            end = min(number, -((place - length) // place_step))
            if begin < end:
                entries = slice(entry + begin * entry_step, entry + (end - 1) * entry_step + 1, entry_step)
                yield (
                    entries,
                    range(place + begin * place_step, place + (end - 1) * place_step + 1, place_step),
                )

    def padded(self, length: int) -> bool:
        """Whether any window reaches into padding."""
        return (
            self.first < 0
            or self.first + (self.outputs - 1) * self.stride + (self.kernel - 1) * self.dilation >= length
        )


class OperandWindow(NamedTuple):
    """Where the windows of a command lie in its operand."""

    rows: WindowAxis
    columns: WindowAxis
    first_kernel_row: int  # those before are padding for all rows of the command
    kernel_rows: int  # those behind are padding for all rows of the command

    @classmethod
    def of(cls, d: Mapping[str, int], row: int, count: int) -> OperandWindow | None:
        """The windows of these rows; None if all kernel rows are padding."""
        top = row * d["stride_rows"] - d["pad_rows"]
        bottom = top + (count - 1) * d["stride_rows"]
        # the first kernel row that the last row of the result has in the operand
        first = max(0, -(bottom // d["dilation"]))
        end = min(d["kernel_rows"], -((top - d["a_height"]) // d["dilation"]))
        if first >= end:
            return None
        rows = WindowAxis(count, end - first, d["stride_rows"], d["dilation"], top + first * d["dilation"])
        columns = WindowAxis(
            d["o_width"], d["kernel_columns"], d["stride_columns"], d["dilation"], -d["pad_columns"]
        )
        return cls(rows, columns, first, end - first)

    def over(self, operand: np.ndarray) -> np.ndarray:
        """(rows, columns, kernel rows, kernel columns, channels): the windows, no copy.

        `operand`: (entries of rows, entries of columns, channels).
        """
        by_row, by_column, by_channel = operand.strides
        shape = (
            self.rows.outputs,
            self.columns.outputs,
            self.rows.kernel,
            self.columns.kernel,
            operand.shape[2],
        )
        strides = (
            by_row * self.rows.array_stride,
            by_column * self.columns.array_stride,
            by_row,
            by_column,
            by_channel,
        )
        return np.lib.stride_tricks.as_strided(operand, shape, strides)
