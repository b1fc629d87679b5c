"""Operators as rows pass through rings: their iterations, and the rows that each one reads.

An operator advances row by row of its results; a running reduction (`Dataflow.running`) row by row of its
operand, which it then need not hold: it keeps partial results, and the readers of its one row wait for the
last of them.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from functools import cache

from lfopt.ops import Dataflow, MapRead, RowReads, bits
from lfopt.ops.rows import same_row


@dataclass(frozen=True, eq=False)
class Lines:
    """Iterations and reads of the operators of one dataflow.

    Rows that must exist, of a map that a reduction makes as it runs, are its iterations.
    """

    running: int  # mask of the reductions that run
    iterations: tuple[int, ...]  # per operator, as it computes everything
    operands: tuple[tuple[MapRead, ...], ...]  # per operator, in ONNX input order
    least: tuple[int, ...]  # per operator: iterations in any group

    @classmethod
    def of(cls, flow: Dataflow) -> Lines:
        """Iterations and reads with the reductions that run."""
        if not flow.running:
            return cls.plain(flow)
        iterations = tuple(
            flow.maps[flow.operands[i][0].map].rows if flow.running >> i & 1 else height
            for i, height in enumerate(flow.heights)
        )
        operands: list[tuple[MapRead, ...]] = []
        for i, read in enumerate(flow.operands):
            if flow.running >> i & 1:
                operands.append(tuple(replace(o, reads=same_row(iterations[i])) for o in read))
                continue
            waits = [
                iterations[p] if (p := flow.producer[o.map]) >= 0 and flow.running >> p & 1 else 0
                for o in read
            ]
            operands.append(
                tuple(
                    replace(o, reads=_waiting(o.reads, n)) if n else o
                    for o, n in zip(read, waits, strict=True)
                )
            )
        least = list(iterations)
        for i in reversed(range(len(flow))):
            if not any(flow.is_output[m] for m in flow.results[i]):
                readers = (
                    (o.reads, least[c])
                    for c in bits(flow.succs[i])
                    for o in operands[c]
                    if o.map in flow.results[i]
                )
                least[i] = min([least[i], *(reads.need[n - 1] if n else 0 for reads, n in readers)])
        return cls(flow.running, iterations, tuple(operands), tuple(least))

    def reads(self, flow: Dataflow, op: int, k: int, inside: Container[int]) -> RowReads:
        """Rows that an operator reads of its k-th map; `inside`: the maps that its group makes.

        Other maps are there as soon as they are loaded.
        """
        operand = flow.operands[op][k]
        if operand.map in inside or self.running >> op & 1:
            return self.operands[op][k].reads
        return operand.reads

    @classmethod
    def plain(cls, flow: Dataflow) -> Lines:
        """Iterations and reads without running reductions."""
        return cls(0, flow.heights, flow.operands, flow.least_rows)


@cache
def _waiting(reads: RowReads, iterations: int) -> RowReads:
    """The same reads of a map of one row that exists after `iterations` iterations."""
    return replace(reads, need=tuple(iterations if need else 0 for need in reads.need))
