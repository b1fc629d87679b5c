"""Rows that operators make in turn, band by band of the last one's result, and the rings they need.

Each operator makes all rows that a band asks of it before the next one runs. Rows stay as long as this band
or a later one reads them; nothing is made twice.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from lfopt.ir import Span
from lfopt.ops import Dataflow, RowReads


class Passage(NamedTuple):
    """How rows pass through operators."""

    rows: dict[int, list[Span]]  # per operator and band: rows of its result
    # per map from outside, and band: rows to load that are not read, and then others
    loads: dict[int, list[tuple[Span, Span]]]
    rest: dict[int, Span]  # per map from outside: rows that are left after the last band
    rings: dict[int, int]  # per map that is read or made: rows held


def passage(flow: Dataflow, ops: Sequence[int], ends: Sequence[int], whole: Container[int] = ()) -> Passage:
    """Rows of operators of one result each, in the order in which they run.

    `ends`: rows of the last one's result that exist after each band. `whole`: maps that are on chip
    throughout, and not looked at.
    """
    maker = {flow.results[i][0]: i for i in ops}
    readers: dict[int, list[tuple[int, RowReads]]] = {}  # per map
    for i in ops:
        for o in flow.operands[i]:
            if o.map not in whole:
                readers.setdefault(o.map, []).append((i, o.reads))
    stops: dict[int, list[int]] = {ops[-1]: [*ends]}

    def needed(m: int) -> list[int]:
        """Rows of a map that must exist in each band."""
        columns = [
            [reads.need[stop - 1] if stop else 0 for stop in stops[reader]] for reader, reads in readers[m]
        ]
        return [max(column) for column in zip(*columns, strict=True)]

    def kept(m: int) -> list[int]:
        """The lowest row of a map that each band, or a later one, reads."""
        columns = [[reads.keep[start] for start in (0, *stops[reader][:-1])] for reader, reads in readers[m]]
        return [min(column) for column in zip(*columns, strict=True)]

    for i in reversed(ops[:-1]):
        stops[i] = needed(flow.results[i][0])
    rows = {i: [*zip((0, *band_ends[:-1]), band_ends, strict=True)] for i, band_ends in stops.items()}
    rings: dict[int, int] = {}
    loads: dict[int, list[tuple[Span, Span]]] = {}
    rest: dict[int, Span] = {}
    for m in dict.fromkeys((*readers, *maker)):
        if m in maker:
            lows = kept(m) if m in readers else [start for start, _ in rows[maker[m]]]
            rings[m] = max(
                stop - min(low, start) for low, (start, stop) in zip(lows, rows[maker[m]], strict=True)
            )
            continue
        before = 0
        pending = list[tuple[Span, Span]]()
        held = 1
        for low, stop in zip(kept(m), needed(m), strict=True):
            held = max(held, stop - min(low, stop))
            first = min(max(low, before), stop)  # rows before it will not be read
            pending.append(((before, first), (first, stop)))
            before = stop
        loads[m], rest[m], rings[m] = pending, (before, flow.maps[m].rows), held
    return Passage(rows, loads, rest, rings)


def bands(rows: int, step: int) -> list[int]:
    """End rows of bands of `step` rows.

    >>> bands(7, 3)
    [3, 6, 7]
    """
    return [*range(step, rows, step), rows]
