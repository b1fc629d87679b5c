"""Columns of an operand that each column of an operator's results needs, by the box rules of the table."""

from __future__ import annotations

from itertools import pairwise

from lfopt.ir import MOST_ROWS, cut, whole
from lfopt.ops.call import Call, Shape, once_per_call
from lfopt.ops.footprint import needs
from lfopt.ops.part import hull
from lfopt.ops.rows import RowReads, all_rows, reads

COLUMN_RANKS = (4, 5)  # of [n, c, h, w] and [n, c, d, h, w]: the last axis is that of the columns


def column_count(shape: Shape) -> int:
    """Columns into which a map can be cut; 1: it is one piece.

    >>> column_count((1, 64, 56, 28)), column_count((1, 128, 768))
    (28, 1)
    """
    if len(shape) in COLUMN_RANKS and shape[-1] <= MOST_ROWS:
        return shape[-1]
    return 1


def column_reads(call: Call, index: int) -> RowReads | None:
    """Columns of input `index` that each column of the results needs; None: no strips of columns.

    That is so where the results have no columns, or not equally many; where every column needs all columns of
    an operand that has several, or a single one any of those; where the columns needed do not come in order.
    """
    known = _known(call)
    if index not in known:
        known[index] = _column_reads(call, index)
    return known[index]


@once_per_call
def _known(call: Call) -> dict[int, RowReads | None]:
    """Per input, as far as it was asked for: see `column_reads`."""
    return {}


def _column_reads(call: Call, index: int) -> RowReads | None:
    if call.attention is not None:
        return None
    call, index = call.part_of(index)  # what follows in flight makes as many columns
    shape = call.shape(index)
    columns = {column_count(result) for result in call.results}
    if len(columns) > 1 or any(len(result) not in COLUMN_RANKS for result in call.results):
        return None
    (count,), width = columns, column_count(shape)
    if len(shape) not in COLUMN_RANKS:
        if not shape or shape[-1] == 1:
            return all_rows(1, count)
        return None
    boxes = [whole(result) for result in call.results]
    asked = [k for k, name in enumerate(call.operator.outputs) if name]
    spans = [
        hull(
            [
                needs(call, index, cut(box, -1, (k, k + 1)), result)
                for result, box in zip(asked, boxes, strict=True)
            ]
        )[-1]
        for k in range(count)
    ]
    read = [span for span in spans if span[0] < span[1]]
    if width > 1 and (count == 1 or not read or all(span == (0, width) for span in spans)):
        return None
    if any(after[0] < before[0] or after[1] < before[1] for before, after in pairwise(read)):
        return None
    return reads(width, (range(*span) for span in spans))
