"""Maps that line buffers hold whole, since an operator waits for a reduction over all of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lfopt.ops import Dataflow, bits
from lfopt.ops.rows import same_row
from lfopt.planning.line_buffers.lines import Lines


class Barrier(NamedTuple):
    """A reduction over all rows of a map, and a reader of the map whose first row needs its result."""

    map: int
    fold: int
    gate: int
    rows: int  # of the map that are on chip at once, beyond those that any of its readers holds anyway


class Barriers:
    """The barriers of a network (squeeze-and-excite, norms of whole maps written as means)."""

    def __init__(self, flow: Dataflow, lines: Lines) -> None:
        self.flow = flow
        self.barriers = [*_barriers(flow, lines)]
        self.folds = sum(1 << fold for fold in {barrier.fold for barrier in self.barriers})

    def more_bytes(self, operators: int, row_bytes: Sequence[int]) -> int:
        """Bytes that these operators hold of maps for barriers, in any group that they are in.

        `row_bytes`: per map, of a row on chip at the least.
        """
        if not operators & self.folds:
            return 0
        more: dict[int, int] = {}
        for barrier in self.barriers:
            inside = operators >> barrier.fold & 1 and operators >> barrier.gate & 1
            if inside and barrier.map not in more and self._leads(operators, barrier):
                more[barrier.map] = barrier.rows * row_bytes[barrier.map]
        return sum(more.values())

    def _leads(self, operators: int, barrier: Barrier) -> bool:
        """Whether these operators alone lead from the reduction to what waits for it."""
        reached = 1 << barrier.fold
        for i in bits(operators >> barrier.fold << barrier.fold):
            if self.flow.preds[i] & reached:
                reached |= 1 << i
        return bool(reached >> barrier.gate & 1)


def _barriers(flow: Dataflow, lines: Lines) -> Iterator[Barrier]:
    for fold in bits(flow.running):
        (operand,) = flow.operands[fold]
        m = operand.map
        rows = flow.maps[m].rows
        held = max(
            (
                read.reads.widest[lines.least[i]]
                for i in bits(flow.readers[m])
                for read in lines.operands[i]
                if read.map == m
            ),
            default=1,
        )
        for gate in bits(flow.readers[m] & flow.descendants[fold]):
            row_by_row = any(o.map == m and o.reads is same_row(rows) for o in flow.operands[gate])
            if row_by_row:
                yield Barrier(m, fold, gate, max(rows - max(held, 1), 0))
