"""What a segment takes and moves, in every number of bands and parts that is tried."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from lfopt.ir import NEVER, Box, round_up
from lfopt.ir.box import spans
from lfopt.planning.nest.spans import Ints
from lfopt.planning.sliced.profile import Passing, Profile
from lfopt.planning.sliced.rows import SegmentRows
from lfopt.planning.sliced.segments import SLOTS, Segment

MOST_PARTS = 32  # of the tail's output channels, but for the finest cut


class SegmentSizes:
    """Sizes of one segment. Arrays are (bands, parts) int64, or broadcast to that."""

    def __init__(self, rows: SegmentRows, mask: int, segment: Segment) -> None:
        self.rows = rows
        self.flow = rows.flow
        self.segments = rows.segments
        self.mask = mask
        self.segment = segment
        self.reads = rows.reads(mask, segment)
        every = rows.in_step(segment, self.reads) or rows.is_chain(mask, segment, self.reads)
        self.grid = rows.grid(rows.tallest(mask), every=every)
        self.computed = rows.computed_rows(mask, segment, self.grid)
        self.slices = spans(0, segment.channels, self.segments.width)
        self.outer = rows.outer(mask, segment, self.reads)

    def moves_evenly(self) -> bool:
        """Whether maps that move slice by slice move no more bytes than whole rows."""
        sizes = self.segments
        for m in self.segment.sliced_maps:
            slices = (sizes.channels(m, span) for span in self.slices)
            if self.rows.leaves(m, self.mask) and not sizes.evenly(m, slices):
                return False
        passing = (m for m, access in self.outer if access == "slice")
        return all(sizes.evenly(m, self._slices_of(m)) for m in passing)

    def profile(self, most_macs: float) -> Profile:
        """All of them. `most_macs`: multiply-accumulates that the group may do."""
        hardware = self.segments.hardware
        macs = self._macs
        maps = np.where(macs <= most_macs, self._map_bytes, NEVER)
        held = sum(self.segments.weights(self.mask, self.segment).held.values())
        before = self._before
        tail = self._tail
        weights = held + before.place + tail.place + np.zeros_like(macs)
        # what is spared where all of them stay, and that is less than the place that they pass through
        spared = np.minimum(before.whole - before.place, 0) + np.minimum(tail.whole - tail.place, 0)
        apart = hardware.weight_buffer_bytes
        if apart:
            least = np.where(weights + spared < apart, maps, NEVER)
        else:
            least = maps + weights + spared
        return Profile(
            segment=self.segment,
            bands=self.grid.counts[:, None],
            parts=self.parts,
            maps=maps,
            weights=weights,
            inputs=self._input_bytes,
            macs=macs,
            before=before,
            tail=tail,
            held=held,
            apart=apart,
            least=min(int(least.min()), NEVER),
        )

    # -- parts -----------------------------------------------------------------------------------------------

    @cached_property
    def parts(self) -> list[int]:
        """Channels of a part of the tail's result that are tried, the most first; 0: there is no tail."""
        tail = self.segment.tail
        if tail < 0:
            return [0]
        step = self.segments.hardware.narrowest_block
        outputs = self.rows.outputs(self.segment)
        tried = {min(round_up(-(-outputs // n), step), outputs) for n in range(1, MOST_PARTS + 1)}
        tried.add(min(step, outputs))
        maps = {self.flow.results[tail][0], *(r.operand.map for r in self.reads if r.access == "part")}
        even = (part for part in tried if all(self._cut_evenly(m, part) for m in maps))
        return sorted(even, reverse=True)

    def _cut_evenly(self, m: int, part: int) -> bool:
        outputs = self.rows.outputs(self.segment)
        boxes = (self.segments.channels(m, span) for span in spans(0, outputs, part))
        return self.segments.evenly(m, boxes)

    @cached_property
    def _part_counts(self) -> Ints:
        """(1, parts): how many parts there are."""
        outputs = self.rows.outputs(self.segment)
        counts = [-(-outputs // part) if part else 1 for part in self.parts]
        return np.array([counts], np.int64)

    # -- maps ------------------------------------------------------------------------------------------------

    @property
    def _map_bytes(self) -> Ints:
        """Bytes on chip of maps and sums: those held throughout, and those of a slice, or of the prologue."""
        row_bytes = self.segments.slices.row_bytes
        held = np.zeros(self.grid.counts.size, np.int64)
        # bytes of the rows that pass through the prologue, before the slices
        ahead = sum(row_bytes[m] for m in self.segment.ahead if m != self.segment.source)
        for m, access in self.outer:
            if access == "rows":
                rows = self.rows.source_rows(self.mask, self.computed, self.reads, m, self.grid)
                held += rows * row_bytes[m]
            elif access == "vector":
                held += row_bytes[m]
            elif access == "row":
                ahead += row_bytes[m]
        of_slice = self._ring_bytes
        if self.segment.mean >= 0:
            (result,) = self.flow.results[self.segment.mean]
            several = self.grid.counts > 1  # bands: sums of all channels stay from one to the next
            held += np.where(several, self.segments.sum_row(result, self.segment.channels), 0)
            held += row_bytes[result]
            of_slice = of_slice + np.where(several, 0, self.segments.sum_row(result, self.segments.width))
        return held[:, None] + np.maximum(of_slice[:, None] + self._tail_bytes, ahead)

    @property
    def _ring_bytes(self) -> Ints:
        """(bands,): bytes of the rings that slices pass through."""
        rings = self.rows.rings(self.mask, self.segment, self.reads, self.computed, self.grid)
        total = np.zeros(self.grid.counts.size, np.int64)
        for m, rows in rings.items():
            total += rows * self._slice_row(m)
        return total

    @property
    def _tail_bytes(self) -> Ints:
        """Bytes of the tail's sums of the rows of a band, and of a finished row with what joins it."""
        tail = self.segment.tail
        if tail < 0:
            return np.zeros((1, 1), np.int64)
        sizes = self.segments
        (result,) = self.flow.results[tail]
        joining = {r.operand.map for r in self.reads if r.access == "part"}
        sums = [sizes.sum_row(result, part) for part in self.parts]
        finished = [sum(sizes.part_row(m, part) for m in (result, *joining)) for part in self.parts]
        rows = self.grid.most(self.computed[tail].stop - self.computed[tail].new)
        return rows[:, None] * np.array([sums], np.int64) + np.array([finished], np.int64)

    def _slice_row(self, m: int) -> int:
        """Bytes of one row of the widest slice of a map on chip."""
        sizes = self.segments
        if any(r.operand.map == m and r.access == "slice" and sizes.joins(r) for r in self.reads):
            return max(sizes.layout.row_on_chip(box) for box in self._slices_of(m))
        return sizes.slices.slice_bytes(m)

    def _slices_of(self, m: int) -> Iterator[Box]:
        """Boxes of a map that slices read, one after the other."""
        reading = next(r for r in self.reads if r.operand.map == m and r.access == "slice")
        for span in self.slices:
            yield self.segments.read_box(reading.op, reading.operand, span)

    @property
    def _input_bytes(self) -> Ints:
        """DRAM bytes of maps: once each; those that pass slice by slice once for every part."""
        map_bytes = self.rows.groups.map_bytes
        once = 0
        of_part = np.zeros(self.grid.counts.size, np.int64)
        for m, access in self.outer:
            if access == "slice":
                rows = self.rows.passing_rows(self.computed, self.reads, m, self.grid)
                of_part += self.grid.total(rows.stop - rows.start) * (
                    map_bytes[m] // max(self.flow.maps[m].rows, 1)
                )
            elif not self.flow.makes(self.mask, m):
                once += map_bytes[m]
        return once + of_part[:, None] * self._part_counts

    @property
    def _macs(self) -> Ints:
        """Multiply-accumulates: every part makes what is before the tail again."""
        total = np.zeros((self.grid.counts.size, len(self.parts)), np.int64)
        for i, own in self.computed.items():
            rows = self.grid.total(own.stop - own.start)
            macs = -(-self.flow.macs[i] * rows // self.rows.lines.iterations[i])[:, None]
            once = i == self.segment.tail or self.segment.prologue >> i & 1
            total += macs if once else macs * self._part_counts
        return total

    # -- weights ---------------------------------------------------------------------------------------------

    @property
    def _before(self) -> Passing:
        """Weights before the tail."""
        sizes = self.segments
        sliced = sizes.weights(self.mask, self.segment).sliced
        unit = sum(sizes.block(i, constants, self.slices[0]) for i, constants in sliced.items())
        whole = sum(sizes.constant(s.name) for constants in sliced.values() for s in constants)
        once = whole
        if sizes.hardware.pads_constants:
            once = sum(
                sizes.block(i, constants, span) for i, constants in sliced.items() for span in self.slices
            )
        units = 0
        if once == whole and unit:  # at least one whole slice passes, else all of them stay
            units = self.segment.channels // sizes.width - 1
        passes = self.grid.counts[:, None] * self._part_counts
        return Passing(passes, np.array([[SLOTS * unit]]), np.array([[once]]), whole, unit, units)

    @property
    def _tail(self) -> Passing:
        """Weights of the tail."""
        passes = self.grid.counts[:, None]
        op = self.segment.tail
        if op < 0:
            return Passing(passes, np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64), 0, 0, 0)
        sizes = self.segments
        constants = sizes.weights(self.mask, self.segment).tail
        outputs = self.rows.outputs(self.segment)
        place = [SLOTS * sizes.block(op, constants, (0, part), self.slices[0]) for part in self.parts]
        whole = sum(sizes.constant(s.name) for s in constants)
        once = [whole for _ in self.parts]
        if sizes.hardware.pads_constants:
            once = [
                sum(
                    sizes.block(op, constants, out, span)
                    for out in spans(0, outputs, part)
                    for span in self.slices
                )
                for part in self.parts
            ]
        units = 0
        unit = 0
        if max(once) == whole and whole:
            units = self.segment.channels // sizes.width - 1
        if units:
            unit = sizes.block(op, constants, (0, outputs), self.slices[0])
        return Passing(passes, np.array([place]), np.array([once]), whole, unit, units)
