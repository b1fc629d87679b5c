"""The cheapest run of a group slice by slice, in bands of rows: buffer, bytes and MACs of each choice.

    for each of T bands of output rows
        for each of n parts of the tail's output channels
            for each slice of w channels
                the head, what follows it and the tail's sums, row by row, through rings of w channels

    F_beta = rows of a band of what the head reads  +  rings of w channels
             +  sums of a band's rows of a part  +  one finished row of the part
             +  two of the largest blocks of weights (those of one slice)  +  weights that stay
             +  maps of one row and constants in no blocks
    F_D    = what the head reads and results once each
             +  weights of the tail T times, those before it T n times, but those that stay: once

A map that is read slice by slice passes n times, and rows of it that two bands need twice. Rows of slices
that two bands need are computed twice, and what comes before the tail n times; how often a group repeats its
multiply-accumulates so is capped. Rows that a prologue makes for the heads are made once, each from one row
on chip of what it reads. Weights that stay are those of the first slices, first those before the tail, since
they pass more often. A reduction that ends the group sums the rows of a slice; of several bands, of all
slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from lfopt.ir import Box, Span, round_up
from lfopt.ir.box import spans
from lfopt.ops import bits
from lfopt.ops.rows import same_row
from lfopt.planning.groups.groups import Groups
from lfopt.planning.nest.spans import AxisSpans, BlockGrid, Ints, lowest, needed, spans_in_blocks
from lfopt.planning.sliced.rows import Reading, RowOrder, SlicedSource, ring_rows
from lfopt.planning.sliced.segments import NEVER, SLOTS, Segment, Segments

MOST_PARTS = 32  # of the tail's output channels, but for the finest cut
# rows made in one step, where they are vectors [b, s, d] and every operator reads the rows that it makes
MOST_ROWS = 64


class SlicedOption(NamedTuple):
    """How a segment runs."""

    segment: Segment
    bands: int
    part: int  # channels of its result that the tail makes at a time; 0: there is no tail
    pinned: int  # channels whose weights before the tail stay on chip
    pinned_tail: int  # channels whose weights of the tail stay on chip


class Sliced(NamedTuple):
    """An option, and what it takes."""

    option: SlicedOption
    buffer_bytes: int  # F_beta, bytes
    input_bytes: int  # DRAM bytes of maps
    weight_bytes: int  # DRAM bytes
    macs: int  # multiply-accumulates


class Passing(NamedTuple):
    """Weights that pass slice by slice.

    Arrays are int64 of (bands, parts) as tried, or broadcast to that.
    """

    passes: Ints  # times that they are loaded if none stay
    place: Ints  # bytes on chip of what they pass through
    once: Ints  # DRAM bytes of one pass
    whole: int  # bytes if all of them stay
    unit: int  # bytes of those of the narrowest slice, if some may stay
    units: int  # slices of which they may stay


@dataclass(frozen=True, slots=True)
class Profile:
    """A segment in every number of bands and parts that is tried; arrays are (bands, parts) int64."""

    segment: Segment
    bands: Ints  # (bands, 1)
    parts: Sequence[int]  # channels of a part
    maps: Ints  # bytes on chip but for weights; NEVER where it computes more than is allowed
    weights: Ints  # bytes of weights on chip, while none stay
    inputs: Ints  # DRAM bytes of maps
    macs: Ints  # multiply-accumulates
    before: Passing
    tail: Passing
    held: int  # bytes of constants that stay in any case
    apart: int  # bytes of the buffer that weights have of their own; 0: they share that of the maps
    least: int  # F_beta, bytes

    def options(self, beta: int, step: int) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """(F_beta, DRAM bytes of weights, channels that stay before the tail, and of the tail), as arrays.

        Each (bands, parts) int64; bytes. Weights that stay are all that there are, or as many as fit `beta`
        bytes, in slices of `step` channels.
        """
        every, room = self.segment.channels, self.apart or beta
        for all_before, all_tail in product((False, True), repeat=2):
            taken = self.weights + (0 if self.apart else self.maps)  # of the buffer that weights lie in
            for of in (self.before,) * all_before + (self.tail,) * all_tail:
                taken = taken - of.place + of.whole
            kept = [np.full_like(taken, every)] * 2
            moved = [np.full_like(taken, self.before.whole), np.full_like(taken, self.tail.whole)]
            for k, (of, stays) in enumerate(((self.before, all_before), (self.tail, all_tail))):
                if not stays:
                    count = np.clip((room - 1 - taken) // max(of.unit, 1), 0, of.units) * (of.passes > 1)
                    taken, kept[k] = taken + count * of.unit, count * step
                    moved[k] = of.passes * of.once - (of.passes - 1) * count * of.unit
            needs = np.where(taken < self.apart, self.maps, NEVER) if self.apart else taken
            yield needs, moved[0] + moved[1] + self.held, kept[0], kept[1]


class SlicedGroups:
    """Buffer needs of the groups of one dataflow that run slice by slice, memoised.

    Slices are as narrow as the chip allows.

    `allowed`: multiply-accumulates that a group may take, over its own.
    """

    def __init__(self, groups: Groups, allowed: float) -> None:
        self.groups, self.flow, self.lines, self.hardware = (
            groups,
            groups.dataflow,
            groups.lines,
            groups.hardware,
        )
        self.allowed = max(allowed, 1.0)
        self.segments = Segments(self.flow, self.hardware, self.lines, self.hardware.channel_align)
        running = self.lines.running
        self.operands = tuple(
            self.lines.operands[i] if running >> i & 1 else plain
            for i, plain in enumerate(self.flow.operands)
        )
        self._grids: dict[tuple[int, bool], BlockGrid] = {}
        self._profiles: dict[int, tuple[Profile, ...]] = {}

    # -- what is asked ---------------------------------------------------------------------------------------

    def least(self, mask: int) -> int:
        """The least F_beta of any option; NEVER if the group cannot run so."""
        return min((profile.least for profile in self.profiles(mask)), default=NEVER)

    def cheapest(self, mask: int, beta: int) -> Sliced | None:
        """The option of fewest DRAM bytes that fits strictly; None if nothing fits.

        Of equals, that of the fewest multiply-accumulates, then the least buffer. More buffer never gives
        more bytes.
        """
        best, rank = None, (NEVER, 0, 0)
        for profile in self.profiles(mask):
            for needs, weights, pinned, pinned_tail in (
                profile.options(beta, self.segments.width) if profile.least < beta else ()
            ):
                moved = np.where(needs < beta, weights + profile.inputs, NEVER)
                if (least := int(moved.min())) > rank[0] or least == NEVER:
                    continue
                for t, n in zip(*np.nonzero(moved == least), strict=True):
                    here = least, int(profile.macs[t, n]), int(needs[t, n])
                    if here < rank:
                        option = SlicedOption(
                            profile.segment,
                            int(profile.bands[t, 0]),
                            profile.parts[n],
                            int(pinned[t, n]),
                            int(pinned_tail[t, n]),
                        )
                        best, rank = (
                            Sliced(option, here[2], int(profile.inputs[t, n]), int(weights[t, n]), here[1]),
                            here,
                        )
        return best

    def passes(self, mask: int, option: SlicedOption) -> int:
        """Loads of the weights that are loaded most often."""
        weights, channels = self.segments.weights(mask, option.segment), option.segment.channels
        parts = -(-self.outputs(option.segment) // option.part) if option.part else 1
        if weights.sliced and option.pinned < channels:
            return option.bands * parts
        return option.bands if weights.tail and option.pinned_tail < channels else 1

    def profiles(self, mask: int) -> tuple[Profile, ...]:
        """Profiles of a group, one for each segment that it may be; () if it cannot run so."""
        if mask not in self._profiles:
            profiled = (self._profile(mask, segment) for segment in self.segments.of(mask))
            self._profiles[mask] = tuple(profile for profile in profiled if profile is not None)
        return self._profiles[mask]

    # -- sizes -----------------------------------------------------------------------------------------------

    def grid(self, tall: int, *, every: bool) -> BlockGrid:
        """The numbers of bands that are tried: all that there are, or a few."""
        if (tall, every) not in self._grids:
            some = tuple(sorted({-(-tall // h) for h in (1, 2, 4, 8, tall) if h <= tall}))
            self._grids[tall, every] = BlockGrid.up_to(tall) if every else BlockGrid.even(some)
        return self._grids[tall, every]

    def tallest(self, mask: int) -> int:
        """Iterations of the sink that takes the most."""
        return max(self.lines.iterations[i] for i in bits(self.flow.sinks(mask)))

    def computed_rows(self, mask: int, segment: Segment, grid: BlockGrid) -> dict[int, AxisSpans]:
        """Rows that every operator computes, band by band."""
        fresh, heights = segment.sliced_maps, self.lines.iterations
        return spans_in_blocks(self.flow, [*bits(mask)], grid, fresh, self.operands, heights).made

    def _profile(self, mask: int, segment: Segment) -> Profile | None:
        flow, sizes, reads = self.flow, self.segments, self.reads(mask, segment)
        grid = self.grid(
            self.tallest(mask), every=self.in_step(segment, reads) or self.is_chain(mask, segment, reads)
        )
        computed = self.computed_rows(mask, segment, grid)
        leaving = [m for m in segment.sliced_maps if self.leaves(m, mask)]
        slices = spans(0, segment.channels, sizes.width)
        if not all(sizes.evenly(m, (sizes.channels(m, span) for span in slices)) for m in leaving):
            return None
        parts = self._parts(segment, reads)
        counts = np.array([[-(-self.outputs(segment) // part) if part else 1 for part in parts]], np.int64)
        bands, shape = grid.counts[:, None], (len(grid.counts), len(parts))
        # bytes by number of bands: on chip, moved once, moved once for every part
        fixed, once, repeated = (np.zeros(len(grid.counts), np.int64) for _ in range(3))
        for m, access in self.outer(mask, segment, reads):
            if access == "slice":
                if not self._slices_evenly(reads, m, slices):
                    return None
                start, stop = self.passing_rows(computed, reads, m, grid)
                repeated += grid.total(stop - start) * (self.groups.map_bytes[m] // max(flow.maps[m].rows, 1))
                continue
            once += 0 if flow.makes(mask, m) else self.groups.map_bytes[m]
            if access == "rows":
                fixed += self.source_rows(mask, computed, reads, m, grid) * sizes.slices.row_bytes[m]
            elif access in ("vector", "row"):
                fixed += sizes.slices.row_bytes[m]
        for m, rows in self.rings(mask, segment, reads, computed, grid).items():
            fixed += rows * self.slice_row(sizes, reads, m, slices)
        weights = sizes.weights(mask, segment)
        held = sum(weights.held.values())
        if segment.mean >= 0:
            (result,) = flow.results[segment.mean]
            fixed += np.where(
                grid.counts > 1, sizes.sum_row(result, segment.channels), sizes.sum_row(result, sizes.width)
            )
            fixed += sizes.slices.row_bytes[result]
        needs = np.broadcast_to(fixed[:, None], shape)
        macs = {
            i: -(-flow.macs[i] * grid.total(rows.stop - rows.start) // self.lines.iterations[i])[:, None]
            for i, rows in computed.items()
        }
        total = sum(count if i == segment.tail else count * counts for i, count in macs.items()) + np.zeros(
            shape, np.int64
        )
        tail = Passing(bands, np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64), 0, 0, 0)
        if segment.tail >= 0:
            (result,) = flow.results[segment.tail]
            high = grid.most(computed[segment.tail].stop - computed[segment.tail].new)
            beside = {r.operand.map for r in reads if r.access == "part"}
            sums = np.array([[sizes.sum_row(result, part) for part in parts]], np.int64)
            finished = np.array(
                [[sum(sizes.part_row(m, part) for m in (result, *beside)) for part in parts]], np.int64
            )
            needs = needs + high[:, None] * sums + finished
            tail = self._passing_tail(mask, segment, parts, bands)
        before = self._passing(mask, segment, slices, bands * counts)
        needs = np.where(total <= self.groups.most_macs(mask, self.allowed), needs, NEVER)
        stored = held + before.place + tail.place + np.zeros(shape, np.int64)
        spared = np.minimum(before.whole - before.place, 0) + np.minimum(tail.whole - tail.place, 0)
        apart = self.hardware.weight_buffer_bytes
        least = np.where(stored + spared < apart, needs, NEVER) if apart else needs + stored + spared
        inputs = once[:, None] + repeated[:, None] * counts
        return Profile(
            segment, bands, parts, needs, stored, inputs, total, before, tail, held, apart,
            min(int(least.min()), NEVER),
        )  # fmt: skip

    def _passing(self, mask: int, segment: Segment, slices: Sequence[Span], passes: Ints) -> Passing:
        """Weights before the tail; `passes`: (bands, parts) int64."""
        sizes, weights = self.segments, self.segments.weights(mask, segment)
        unit = sum(sizes.block(i, constants, slices[0]) for i, constants in weights.sliced.items())
        whole = sum(sizes.constant(s.name) for constants in weights.sliced.values() for s in constants)
        even = not self.hardware.pads_constants
        once = (
            whole
            if even
            else sum(
                sizes.block(i, constants, span) for i, constants in weights.sliced.items() for span in slices
            )
        )
        # at least one whole slice passes, else all of them stay
        units = segment.channels // sizes.width - 1 if once == whole and unit else 0
        return Passing(passes, np.array([[SLOTS * unit]]), np.array([[once]]), whole, unit, units)

    def _passing_tail(self, mask: int, segment: Segment, parts: Sequence[int], passes: Ints) -> Passing:
        sizes, op, constants = self.segments, segment.tail, self.segments.weights(mask, segment).tail
        slices, every = spans(0, segment.channels, sizes.width), (0, self.outputs(segment))
        place = [SLOTS * sizes.block(op, constants, (0, part), slices[0]) for part in parts]
        whole = sum(sizes.constant(s.name) for s in constants)
        once = [whole for _ in parts]
        if self.hardware.pads_constants:
            once = [
                sum(sizes.block(op, constants, out, span) for out in spans(*every, part) for span in slices)
                for part in parts
            ]
        units = segment.channels // sizes.width - 1 if max(once) == whole and whole else 0
        unit = sizes.block(op, constants, every, slices[0]) if units else 0
        return Passing(passes, np.array([place]), np.array([once]), whole, unit, units)

    def _parts(self, segment: Segment, reads: Sequence[Reading]) -> Sequence[int]:
        """Channels of a part that are tried, the most first; 0: there is no tail."""
        if segment.tail < 0:
            return (0,)
        step, outputs, sizes = self.hardware.channel_align, self.outputs(segment), self.segments
        tried = {min(round_up(-(-outputs // n), step), outputs) for n in range(1, MOST_PARTS + 1)} | {
            min(step, outputs)
        }
        maps = {self.flow.results[segment.tail][0], *(r.operand.map for r in reads if r.access == "part")}
        even = (
            part
            for part in tried
            if all(sizes.evenly(m, (sizes.channels(m, s) for s in spans(0, outputs, part))) for m in maps)
        )
        return sorted(even, reverse=True)

    def outputs(self, segment: Segment) -> int:
        """Channels of the tail's result; 0 without a tail."""
        role = self.segments.roles[segment.tail] if segment.tail >= 0 else None
        return 0 if role is None else role.channels

    def leaves(self, m: int, mask: int) -> bool:
        """Whether a map made in the group is needed outside."""
        return self.flow.is_output[m] or bool(self.flow.readers[m] & ~mask)

    @staticmethod
    def slice_row(sizes: Segments, reads: Sequence[Reading], m: int, slices: Sequence[Span]) -> int:
        """Bytes of one row of the widest slice of a map on chip."""
        joined = [r for r in reads if r.operand.map == m and r.access == "slice" and sizes.joins(r)]
        if not joined:
            return sizes.slices.slice_bytes(m)
        return max(
            sizes.layout.row_on_chip(sizes.read_box(joined[0].op, joined[0].operand, span)) for span in slices
        )

    def _slices_evenly(self, reads: Sequence[Reading], m: int, slices: Sequence[Span]) -> bool:
        reading = next(r for r in reads if r.operand.map == m and r.access == "slice")
        boxes: Iterator[Box] = (self.segments.read_box(reading.op, reading.operand, span) for span in slices)
        return self.segments.evenly(m, boxes)

    # -- rows ------------------------------------------------------------------------------------------------

    def reads(self, mask: int, segment: Segment) -> list[Reading]:
        """Everything that the group reads as slices run, operator by operator."""
        readings: list[Reading] = []
        first = (mask & -mask).bit_length() - 1
        for i in bits(self.of_slices(mask, segment)):
            for known, operand in zip(self.flow.operands[i], self.operands[i], strict=True):
                access = self.segments.access(
                    known, i, segment.sliced_maps, segment.source, tail=i == segment.tail, first=i == first
                )
                assert access is not None, "an operand of a segment is on chip in some way"
                readings.append(Reading(i, operand, access))
        return readings

    @staticmethod
    def of_slices(mask: int, segment: Segment) -> int:
        """The group without its prologue."""
        return mask if segment.prologue < 0 else mask & ~(1 << segment.prologue)

    def outer(self, mask: int, segment: Segment, reads: Sequence[Reading]) -> list[SlicedSource]:
        """Maps on chip that are not made slice by slice."""
        sources: dict[SlicedSource, None] = {}
        for operand in self.operands[segment.prologue] if segment.prologue >= 0 else ():
            sources[operand.map, "row"] = None
        sources |= dict.fromkeys(
            (r.operand.map, r.access) for r in reads if r.operand.map not in segment.sliced_maps
        )
        return [*sources]

    def source_rows(
        self, mask: int, computed: dict[int, AxisSpans], reads: Sequence[Reading], m: int, grid: BlockGrid
    ) -> Ints:
        """(counts,) int64: rows held at once of a map of which all channels are on chip."""
        own = [(r.operand.reads, computed[r.op]) for r in reads if r.operand.map == m and r.access == "rows"]
        stop = np.maximum.reduce([needed(row_reads, rows.stop) for row_reads, rows in own])
        if self.flow.makes(mask, m):
            stop = computed[self.flow.producer[m]].stop
        low = np.minimum.reduce([lowest(row_reads, rows.low) for row_reads, rows in own])
        return np.maximum(grid.most(stop - np.minimum(low, stop)), 1)

    def passing_rows(
        self, computed: dict[int, AxisSpans], reads: Sequence[Reading], m: int, grid: BlockGrid
    ) -> tuple[Ints, Ints]:
        """(first row, end row) of a map read slice by slice, (entries,) int64 each; no row is left out."""
        own = [(r.operand.reads, computed[r.op]) for r in reads if r.operand.map == m and r.access == "slice"]
        stop = np.maximum.reduce([needed(row_reads, rows.stop) for row_reads, rows in own])
        low = np.minimum.reduce([lowest(row_reads, rows.low) for row_reads, rows in own])
        active = np.logical_or.reduce([rows.stop > rows.start for _, rows in own])
        start = np.where(active, np.minimum(low, stop), stop)
        stop = stop.copy()
        stop[grid.last] = self.flow.maps[m].rows
        return np.minimum(start, grid.before(stop)), stop

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
            ring_heights = {}
            for band, order in self.orders(mask, segment, reads, computed, grid):
                for m, rows in ring_rows(order).items():
                    ring_heights.setdefault(m, np.ones(len(grid.counts), np.int64))
                    ring_heights[m][band] = max(ring_heights[m][band], rows)
        return {m: rows for m, rows in ring_heights.items() if most_rows.get(m, 1)}

    def orders(
        self,
        mask: int,
        segment: Segment,
        reads: Sequence[Reading],
        computed: dict[int, AxisSpans],
        grid: BlockGrid,
    ) -> Iterator[tuple[int, RowOrder]]:
        """(which number of bands, how a slice runs) for every band of each of them."""
        passing = {
            r.operand.map: self.passing_rows(computed, reads, r.operand.map, grid)
            for r in reads
            if r.access == "slice"
        }
        for entry, which in enumerate(np.repeat(np.arange(len(grid.counts)), grid.counts).tolist()):
            rows = {i: (int(bands.start[entry]), int(bands.stop[entry])) for i, bands in computed.items()}
            loads: dict[SlicedSource, Span] = {
                (m, "slice"): (int(start[entry]), int(stop[entry]))
                for m, (start, stop) in passing.items()
                if m not in segment.sliced_maps
            }
            yield which, self.order(mask, segment, reads, rows, loads)

    def order(
        self,
        mask: int,
        segment: Segment,
        reads: Sequence[Reading],
        rows: dict[int, Span],
        loads: dict[SlicedSource, Span],
    ) -> RowOrder:
        """How a slice runs in which operators make these rows, while these pass of what is loaded."""
        sinks = self.flow.sinks(mask) & self.of_slices(mask, segment)
        first = [i for i in bits(sinks) if not self.flow.descendants[i] & sinks]
        maker = {m: self.flow.producer[m] for m in segment.sliced_maps}
        return RowOrder(reads, maker, rows, loads, {i: self.lines.iterations[i] for i in bits(sinks)}, first)

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
        """Whether every sliced map is read once, and one result follows from all others."""
        read = [r.operand.map for r in reads if r.access == "slice"]
        sinks = self.flow.sinks(mask) & self.of_slices(mask, segment)
        return (
            len(read) == len({*read}) and sum(not self.flow.descendants[i] & sinks for i in bits(sinks)) == 1
        )
