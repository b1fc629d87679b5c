"""Which rows of an input each output row reads.

`RowReads` is the one description of a data dependence at row granularity: the ring sizes of the line-buffer
schedule, the monotone lower bound of the exact search and the recount all read it. Every constructor returns
an interned object: equal reads are the same object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate


@dataclass(frozen=True, slots=True, eq=False)
class RowReads:
    """Rows of one input that each of an operator's output rows reads; index r is the output row."""

    rows_in: int  # rows of the input
    first: tuple[int, ...]  # lowest row read; rows_in where none is read
    last: tuple[int, ...]  # highest row read; -1 where none is read
    need: tuple[int, ...]  # rows 0 .. need[r] - 1 must exist before output row r is computed
    # lowest row that output rows r, r+1, ... may still read; one entry more than `first`
    keep: tuple[int, ...]
    # widest[m]: rows held at once for this reader alone while it computes its first m rows
    widest: tuple[int, ...]

    @property
    def rows_out(self) -> int:
        """Output rows of the reader."""
        return len(self.first)


@cache
def _interned(rows_in: int, first: tuple[int, ...], last: tuple[int, ...]) -> RowReads:
    need = tuple(accumulate((row + 1 for row in last), max))
    keep = (*reversed(tuple(accumulate(reversed((*first, rows_in)), min))),)
    held = (max(n - k, 0) if row >= 0 else 0 for n, k, row in zip(need, keep, last, strict=False))
    return RowReads(rows_in, first, last, need, keep, (0, *accumulate(held, max)))


def reads(rows_in: int, taps: Iterable[Iterable[int]]) -> RowReads:
    """Reads given as the rows that each output row taps; padding, outside 0 .. rows_in - 1, reads nothing.

    >>> reads(4, [(-1, 0, 1), (1, 2, 3)]).first
    (0, 1)
    """
    first: list[int] = []
    last: list[int] = []
    for row_taps in taps:
        real = [tap for tap in row_taps if 0 <= tap < rows_in]
        first.append(min(real, default=rows_in))
        last.append(max(real, default=-1))
    return _interned(rows_in, tuple(first), tuple(last))


@cache
def window(
    rows_in: int, rows_out: int, kernel: int, stride: int = 1, dilation: int = 1, pad: int = 0
) -> RowReads:
    """Sliding window: output row r taps rows r * stride - pad + i * dilation for i in 0 .. kernel - 1.

    >>> window(5, 5, kernel=3, pad=1).need
    (2, 3, 4, 5, 5)
    """
    first: list[int] = []
    last: list[int] = []
    for r in range(rows_out):
        start = r * stride - pad
        # of the taps, the first that is no padding before the map, and the last that is none behind it
        least = max(-(start // dilation), 0)
        most = min((rows_in - 1 - start) // dilation, kernel - 1)
        first.append(start + least * dilation if least <= most else rows_in)
        last.append(start + most * dilation if least <= most else -1)
    return _interned(rows_in, tuple(first), tuple(last))


@cache
def transposed_window(
    rows_in: int, rows_out: int, kernel: int, stride: int, dilation: int, pad: int
) -> RowReads:
    """Transposed window: output row r taps input rows i with i * stride - pad + j * dilation = r.

    j: any of 0 .. kernel - 1.
    """
    offsets = range(0, kernel * dilation, dilation)
    return reads(
        rows_in,
        (((r + pad - j) // stride for j in offsets if (r + pad - j) % stride == 0) for r in range(rows_out)),
    )


@cache
def mapped(rows_in: int, taps: tuple[tuple[int, ...], ...]) -> RowReads:
    """Reads given outright, one tuple of rows per output row."""
    return reads(rows_in, taps)


@cache
def all_rows(rows_in: int, rows_out: int) -> RowReads:
    """Every output row reads the whole input.

    A one-row operand is of this kind: it is held until its last reader.
    """
    return _interned(rows_in, (0,) * rows_out, (rows_in - 1,) * rows_out)


def same_row(rows: int) -> RowReads:
    """Output row r reads input row r."""
    return window(rows, rows, kernel=1)


@cache
def shifted(rows_in: int, rows_out: int, offset: int) -> RowReads:
    """Output row r reads input row r + offset, where there is one: Concat along rows, Pad, Slice."""
    return reads(rows_in, ((r + offset,) for r in range(rows_out)))
