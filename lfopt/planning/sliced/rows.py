"""Rows of a segment: what its operators make, and what is on chip of each map, band by band."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lfopt.ops import bits
from lfopt.ops.rows import same_row
from lfopt.planning.groups.groups import Groups
from lfopt.planning.nest.spans import (
    AxisSpans,
    BlockGrid,
    Ints,
    SpanReader,
    kept_from,
    needed,
    passing_spans,
    spans_in_blocks,
)
from lfopt.planning.sliced.readings import Access, Reading, Source
from lfopt.planning.sliced.segments import Segment, Segments

# rows made in one step, where they are vectors [b, s, d] and every operator reads the rows that it makes
MOST_ROWS = 64


class SegmentRows:
    """Rows of the segments of one dataflow, with slices as narrow as the chip allows."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.flow = groups.dataflow
        self.lines = groups.lines
        self.segments = Segments(self.flow, groups.hardware, self.lines, groups.hardware.narrowest_block)
        running = self.lines.running
        self.operands = tuple(
            self.lines.operands[i] if running >> i & 1 else plain
            for i, plain in enumerate(self.flow.operands)
        )
        self._grids: dict[tuple[int, bool], BlockGrid] = {}

    # -- bands -----------------------------------------------------------------------------------------------

    def grid(self, tall: int, *, every: bool) -> BlockGrid:
        """The numbers of bands that are tried: all that there are, or a few."""
        if (tall, every) not in self._grids:
            some = sorted({-(-tall // rows) for rows in (1, 2, 4, 8, tall) if rows <= tall})
            self._grids[tall, every] = BlockGrid.up_to(tall) if every else BlockGrid.even(some)
        return self._grids[tall, every]

    def tallest(self, mask: int) -> int:
        """Iterations of the sink that takes the most."""
        return max(self.lines.iterations[i] for i in bits(self.flow.sinks(mask)))

    def computed_rows(self, mask: int, segment: Segment, grid: BlockGrid) -> dict[int, AxisSpans]:
        """Rows that every operator computes, band by band."""
        operators = [*bits(mask)]
        fresh = segment.sliced_maps
        rows = self.lines.iterations
        return spans_in_blocks(self.flow, operators, grid, fresh, self.operands, rows).made

    def outputs(self, segment: Segment) -> int:
        """Channels of the tail's result; 0 without a tail."""
        role = self.segments.roles[segment.tail] if segment.tail >= 0 else None
        return 0 if role is None else role.channels

    def leaves(self, m: int, mask: int) -> bool:
        """Whether a map made in the group is needed outside."""
        return self.flow.is_output[m] or bool(self.flow.readers[m] & ~mask)

    # -- what is on chip -------------------------------------------------------------------------------------

    def reads(self, mask: int, segment: Segment) -> list[Reading]:
        """Everything that the group reads as slices run, operator by operator."""
        readings: list[Reading] = []
        first = (mask & -mask).bit_length() - 1
        for i in bits(self.of_slices(mask, segment)):
            for known, operand in zip(self.flow.operands[i], self.operands[i], strict=True):
                tail = i == segment.tail
                access = self.segments.access(known, i, segment, first=i == first, tail=tail)
                assert access is not None, "an operand of a segment is on chip in some way"
                readings.append(Reading(i, operand, access))
        return readings

    @staticmethod
    def of_slices(mask: int, segment: Segment) -> int:
        """The group without its prologue."""
        return mask & ~segment.prologue

    def outer(self, mask: int, segment: Segment, reads: Sequence[Reading]) -> list[Source]:
        """Maps on chip that are not made slice by slice."""
        sources: dict[Source, None] = {}
        for i in bits(segment.prologue):
            for operand in self.operands[i]:
                if operand.map not in segment.ahead:
                    sources[operand.map, "row"] = None
        sources |= dict.fromkeys(
            (r.operand.map, r.access) for r in reads if r.operand.map not in segment.sliced_maps
        )
        return [*sources]

    def source_rows(
        self, mask: int, computed: dict[int, AxisSpans], reads: Sequence[Reading], m: int, grid: BlockGrid
    ) -> Ints:
        """(counts,) int64: rows held at once of a map of which all channels are on chip."""
        own = _readers(computed, reads, m, "rows")
        if not self.flow.makes(mask, m):
            stop = np.maximum.reduce([needed(read, rows.stop) for rows, read in own])
            return np.maximum(grid.most(stop - kept_from(own, stop)), 1)
        ahead = computed[self.flow.producer[m]]  # rows of it that nothing reads are there as well
        low = np.minimum(kept_from(own, ahead.stop), ahead.start)
        return np.maximum(grid.most(ahead.stop - low), 1)

    def passing_rows(
        self, computed: dict[int, AxisSpans], reads: Sequence[Reading], m: int, grid: BlockGrid
    ) -> AxisSpans:
        """Rows of a map that is read slice by slice; none is left out."""
        return passing_spans(grid, _readers(computed, reads, m, "slice"))

    def rings(
        self,
        mask: int,
        segment: Segment,
        reads: Sequence[Reading],
        computed: dict[int, AxisSpans],
        grid: BlockGrid,
    ) -> dict[int, Ints]:
        """By map that is on chip slice by slice: (counts,) int64, rows of its ring."""
        maker = {m: self.flow.producer[m] for m in segment.sliced_maps}
        most_rows = {m: int(computed[i].stop.max()) for m, i in maker.items()}
        if self.in_step(segment, reads):
            high = np.minimum(grid.most(computed[reads[0].op].stop - computed[reads[0].op].start), MOST_ROWS)
            ring_heights = dict.fromkeys(
                (*segment.sliced_maps, *(r.operand.map for r in reads if r.access == "slice")), high
            )
        elif self.is_chain(mask, segment, reads):  # each map is asked for by its reader alone
            widest = {
                r.operand.map: r.operand.reads.widest[int(computed[r.op].stop.max())]
                for r in reads
                if r.access == "slice"
            }
            ring_heights = {
                m: np.full(len(grid.counts), max(widest.get(m, 1), 1))
                for m in (*segment.sliced_maps, *widest)
            }
        else:
            ring_heights = self._simulated_rings(mask, segment, reads, computed, grid)
        return {m: rows for m, rows in ring_heights.items() if most_rows.get(m, 1)}

    def _simulated_rings(
        self,
        mask: int,
        segment: Segment,
        reads: Sequence[Reading],
        computed: dict[int, AxisSpans],
        grid: BlockGrid,
    ) -> dict[int, Ints]:
        """As `rings`: the most rows in any band of each number of bands."""
        operators = self.of_slices(mask, segment)
        late = {(r.op, r.operand.input) for r in reads if r.access == "part"}
        sliced = {*segment.sliced_maps, *(r.operand.map for r in reads if r.access == "slice")}
        ring_heights = {m: np.ones(len(grid.counts), np.int64) for m in sliced}
        for entry, way in enumerate(np.repeat(np.arange(len(grid.counts)), grid.counts).tolist()):
            rows = {i: (int(computed[i].start[entry]), int(computed[i].stop[entry])) for i in bits(operators)}
            held = self.groups.line_buffers.ring_rows_of_band(operators, rows, 1, late, last_lead=True)
            for m in sliced:
                ring_heights[m][way] = max(ring_heights[m][way], held[m])
        return ring_heights

    def in_step(self, segment: Segment, reads: Sequence[Reading]) -> bool:
        """Whether every operator makes rows that are vectors [b, s, d] from the same rows of operands.

        Operands of one row apart.
        """
        iterations, vectors = (
            {self.lines.iterations[r.op] for r in reads},
            all(len(self.flow.calls[r.op].result) == 3 for r in reads),
        )
        return (
            vectors
            and segment.mean < 0
            and len(iterations) == 1
            and all(r.access == "vector" or r.operand.reads is same_row(*iterations) for r in reads)
        )

    def is_chain(self, mask: int, segment: Segment, reads: Sequence[Reading]) -> bool:
        """Whether every sliced map is read once, and results that no other follows from advance alike.

        What lies outside the group says nothing, so that it runs alike in every network.
        """
        read = [r.operand.map for r in reads if r.access == "slice"]
        sinks = self.flow.sinks(mask) & self.of_slices(mask, segment)
        last = [i for i in bits(sinks) if not self._behind(mask, i) & sinks]
        return len(read) == len({*read}) and len({self.lines.iterations[i] for i in last}) == 1

    def _behind(self, mask: int, op: int) -> int:
        """Mask of the operators that depend on one of the group, within the group."""
        behind = 0
        waiting = self.flow.succs[op] & mask
        while waiting:
            i = (waiting & -waiting).bit_length() - 1
            behind |= 1 << i
            waiting = (waiting | self.flow.succs[i] & mask) & ~behind
        return behind


def _readers(
    computed: dict[int, AxisSpans], reads: Sequence[Reading], m: int, access: Access
) -> list[SpanReader]:
    """Operators that read a map which is on chip in one way."""
    own = (r for r in reads if r.operand.map == m and r.access == access)
    return [SpanReader(computed[r.op], r.operand.reads) for r in own]
