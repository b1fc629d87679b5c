"""Buffer requirement of groups by closed formulas of windows, strides and sizes, without a schedule.

Four of them, for many groups of one network at once:

* `by_sums`: all weights, the rows that every operator reads for one row of its result, and one row of each
  map that leaves. It does not see what is kept across skips.
* `by_lines`, of mode lbdf: rings as they stand when the sinks have made their first row. How many rows each
  operator has made by then follows from its readers, backwards; a ring holds what has been made and may still
  be read. Later rows are taken to need no more.
* `by_bands`, of mode brr: bands of one row; maps in full or in slices by turns from one contraction to the
  next, from either start; rings as above, the fullest segment of slices and partial sums, constants that fall
  into no blocks, two of the largest weight block. Infinite where neither start leads anywhere.
* `by_lives`, of mode resident: the most bytes of whole maps and of constants that stay alive at once,
  operators in order, and two of the largest weight block.

The exact requirement comes from the planner (`lfopt.planning`). These are what a network that learns has to
be better than, and what it begins with. Sources: arXiv 2501.00636, section II (LBDF, BRR); Cai, Wang and
Zhang, LCTES'21 (bands). The formulas are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from explainers.constants import BandedConstants
from explainers.graph import masks_of
from lfopt.ir import NEVER, Hardware
from lfopt.ops import Dataflow, RowReads
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.resident import Resident

FULL = -1  # of no segment
STARTS = (True, False)  # whether contractions without another before them in the group make slices


class RingBytes(NamedTuple):
    """Bytes of rows on chip, per group."""

    # (groups, operators) bytes: of results and inputs, as wide as the widest window that reads them
    window: np.ndarray
    kept: np.ndarray  # (groups, operators) bytes: beyond that, for readers that are behind others


class Kinds(NamedTuple):
    """Full maps and slices, per group."""

    # (groups, operators) int64: contraction that begins the segment of each operator's results; FULL: whole
    head: np.ndarray
    # (groups, operators) int64: the same of the operator itself, also if it contracts over slices
    segment: np.ndarray
    possible: np.ndarray  # (groups,) bool: whether the group can run so

    @property
    def summing(self) -> np.ndarray:
        """(groups, operators) bool: contractions that sum over slices into a full map."""
        return (self.segment >= 0) & (self.head < 0)


class Moment(NamedTuple):
    """Rows that operators have made before and after some of them make more."""

    groups: np.ndarray  # (some groups,) int64: which are looked at
    before: np.ndarray  # (some groups, operators) int64
    after: np.ndarray  # (some groups, operators) int64


@dataclass(frozen=True, eq=False)
class OperatorReads:
    """All reads of one map by one operator."""

    reader: int
    map: int
    producer: int  # -1: comes from outside the network
    need: np.ndarray  # (rows out + 1,): rows that must exist before so many rows of the result are made
    keep: np.ndarray  # (rows out + 1,): lowest row that may still be read once so many are made
    widest: int  # rows read for one row of the result, at the most
    stride: float  # rows per row of the result

    @classmethod
    def of(cls, reader: int, m: int, producer: int, reads: list[RowReads]) -> OperatorReads:
        """The union of several operands."""
        need = np.max([(0, *r.need) for r in reads], 0).astype(np.int64)
        keep = np.min([r.keep for r in reads], 0).astype(np.int64)
        return cls(
            reader,
            m,
            producer,
            need,
            keep,
            max(r.widest[-1] for r in reads),
            reads[0].rows_in / max(reads[0].rows_out, 1),
        )


class Formulas:
    """Formulas bound to one dataflow and chip.

    Whether an operator is in a group: `members`, (groups, operators) bool.
    """

    def __init__(self, flow: Dataflow, hardware: Hardware) -> None:
        self.flow = flow
        self.hardware = hardware
        self.reads: list[tuple[OperatorReads, ...]] = []  # per operator
        for i, operands in enumerate(flow.operands):
            by_map: dict[int, list[RowReads]] = {}
            for o in operands:
                by_map.setdefault(o.map, []).append(o.reads)
            self.reads.append(
                tuple(OperatorReads.of(i, m, flow.producer[m], reads) for m, reads in by_map.items())
            )
        self.readers: list[list[OperatorReads]] = [[] for _ in flow.maps]
        for read in (read for reads in self.reads for read in reads):
            self.readers[read.map].append(read)
        self.heights = np.array(flow.heights, np.int64)

    # -- sizes -----------------------------------------------------------------------------------------------

    @cached_property
    def row_bytes(self) -> np.ndarray:
        """(maps,) float64: bytes of one row on chip."""
        return np.array([self.hardware.row_bytes(m) for m in self.flow.maps], np.float64)

    @cached_property
    def weight_bytes(self) -> np.ndarray:
        """(operators,) float64: bytes of the weights of each on chip."""
        sizes = [self._sizes_of(i) for i in range(len(self.flow))]
        return np.array([sum(of.values()) for of in sizes], np.float64)

    def weights(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64: bytes of weights on chip; what several operators of a group read counts once."""
        total = members @ self.weight_bytes
        for readers, size in self._shared_weights:
            total -= size * np.maximum(members[:, readers].sum(1) - 1, 0)
        return total

    def _sizes_of(self, i: int) -> dict[str, int]:
        """Bytes on chip of each constant of an operator."""
        of = self.hardware.constant_bytes
        return {w.name: of(w.elements, bias=w.bias) for w in self.flow.weights[i] if not w.gathered}

    @cached_property
    def _shared_weights(self) -> list[tuple[list[int], int]]:
        """(operators that read it, bytes) of each constant that several read."""
        readers: dict[tuple[str, int], list[int]] = {}
        for i in range(len(self.flow)):
            for name, size in self._sizes_of(i).items():
                readers.setdefault((name, size), []).append(i)
        return [(operators, size) for (_, size), operators in readers.items() if len(operators) > 1]

    @cached_property
    def _resident(self) -> Resident:
        return Resident(self.flow, self.hardware)

    @cached_property
    def _slices(self) -> SliceSizes:
        return SliceSizes(self.flow, self.hardware, self.hardware.channel_align)

    @cached_property
    def _constants(self) -> BandedConstants:
        return BandedConstants(self._slices)

    # -- formulas --------------------------------------------------------------------------------------------

    def by_sums(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes."""
        read = np.array(
            [sum(read.widest * self.row_bytes[read.map] for read in reads) for reads in self.reads]
        )
        total = members @ read + self.weights(members)
        for i in self._operators(members):
            for m in self.flow.results[i]:
                total += (members[:, i] & self._leaves(members, m)) * self.row_bytes[m]
        return total

    def by_lines(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes, in mode lbdf."""
        ring = self.rings(members)
        return self._buffer_need((ring.window + ring.kept).sum(1), self.weights(members))

    def by_bands(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes, in mode brr; infinite where the group cannot run so."""
        reach = self.reach(members)
        return np.min([self._banded(members, reach, sliced=sliced) for sliced in STARTS], 0)

    def by_lives(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes, in mode resident; infinite where a weight buffer is too small."""
        return needs_of(members, self._resident.need_of_lives)

    def _operators(self, members: np.ndarray) -> list[int]:
        """Operators in any of the groups, ascending."""
        return np.flatnonzero(members.any(0)).tolist()

    def _maps(self, members: np.ndarray) -> list[int]:
        """Maps that any of the groups makes or reads, ascending."""
        operators = self._operators(members)
        return sorted(
            {m for i in operators for m in self.flow.results[i]}
            | {read.map for i in operators for read in self.reads[i]}
        )

    # -- rows ------------------------------------------------------------------------------------------------

    def reach(self, members: np.ndarray, asked: np.ndarray | None = None) -> np.ndarray:
        """(groups, operators) int64: rows that each has made once some have made what they are asked.

        `asked`: (groups, operators) int64, rows; None: one of every sink.
        """
        asked = self.sinks(members) if asked is None else asked
        reached = np.zeros(members.shape, np.int64)
        for i in reversed(self._operators(members)):
            rows = asked[:, i].astype(np.int64)
            for m in self.flow.results[i]:
                for read in self.readers[m]:
                    rows = np.maximum(rows, members[:, read.reader] * read.need[reached[:, read.reader]])
            reached[:, i] = rows * members[:, i]
        return reached

    def sinks(self, members: np.ndarray) -> np.ndarray:
        """(groups, operators) bool: operators with results that are needed outside their group."""
        sinks = np.zeros(members.shape, bool)
        for i in self._operators(members):
            leaving = [self._leaves(members, m) for m in self.flow.results[i]]
            sinks[:, i] = members[:, i] & np.any(leaving, 0) if leaving else False
        return sinks

    def ring_rows(self, members: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(map, rows of its widest window (groups,) int64, rows of its ring (groups,) int64) in mode lbdf.

        Both are 0 in groups without the map.
        """
        moments = [*self._moments(members)]
        waiting = self._waiting(members)
        for m in self._maps(members):
            window = self._makes(members, m).astype(np.int64)
            for read in self.readers[m]:
                window = np.maximum(window, members[:, read.reader] * read.widest)
            rows = np.maximum(window, waiting.get(m, 0))
            for moment in moments:
                kept = self._rows_kept(members[moment.groups], m, moment)
                rows[moment.groups] = np.maximum(rows[moment.groups], kept)
            yield m, window, rows

    def _moments(self, members: np.ndarray) -> Iterator[Moment]:
        """Where groups are looked at: as the shortest sinks make their first row.

        Those with several sinks also as the tallest makes its first row, which begins, and as the first of
        them, and then all, make their last.
        """
        sinks = self.sinks(members)
        heights = np.where(sinks, self.heights, 0)
        shortest = np.where(sinks, self.heights, self.heights.max(initial=1)).min(1, initial=1 << 62)[:, None]
        begun = heights // np.maximum(shortest, 1)
        before = np.where(heights == shortest, 0, begun)
        every = np.arange(len(members))
        yield Moment(every, self.reach(members, before), self.reach(members, np.maximum(begun, sinks)))
        several = np.flatnonzero(sinks.sum(1) > 1)
        if not several.size:
            return
        part = members[several]
        heights = heights[several]
        place = np.arange(len(self.flow))
        tallest = place == heights.argmax(1)[:, None]
        yield Moment(several, np.zeros_like(heights), self.reach(part, tallest.astype(np.int64)))
        almost = np.maximum(heights - 1, 0)
        before = self.reach(part, almost)
        first = place == sinks[several].argmax(1)[:, None]
        yield Moment(several, before, self.reach(part, almost + first))
        yield Moment(several, before, self.reach(part, heights))

    def _waiting(self, members: np.ndarray) -> dict[int, np.ndarray]:
        """(groups,) int64 by map: rows kept while what an operator needs for its first row is made.

        It matters where that is all of a map: other readers of what is made for it wait meanwhile. Of maps
        that several operators read.
        """
        waiting: dict[int, np.ndarray] = {}
        for driver in self._drivers:
            groups = np.flatnonzero(members[:, driver])
            if not groups.size:
                continue
            part = members[groups]
            before = part.copy()
            before[:, driver + 1 :] = False
            asked = np.zeros(part.shape, np.int64)
            asked[:, driver] = 1
            moment = Moment(groups, np.zeros_like(asked), self.reach(before, asked))
            for m in self._maps(before):
                if len(self.readers[m]) > 1:
                    kept = waiting.setdefault(m, np.zeros(len(members), np.int64))
                    kept[groups] = np.maximum(kept[groups], self._rows_kept(part, m, moment))
        return waiting

    @cached_property
    def _drivers(self) -> list[int]:
        """Operators that need all of a map for their first row, and those at which paths with such meet."""
        drivers: list[int] = []
        behind = np.zeros(len(self.flow), bool)  # whether such an operator is at it or before it
        for i, reads in enumerate(self.reads):
            producers = {read.producer for read in reads if read.producer >= 0}
            gathers = any(read.need[-1] > 1 and read.need[1:2] == read.need[-1] for read in reads)
            after = bool(behind[[*producers]].any()) if producers else False
            behind[i] = gathers or after
            if gathers or (after and len(producers) > 1):
                drivers.append(i)
        return drivers

    def _rows_kept(self, members: np.ndarray, m: int, moment: Moment) -> np.ndarray:
        """(groups,) int64: rows of a map from the last one made back to the first that may still be read.

        A reader that makes rows meanwhile has all but the last of them.
        """
        after = moment.after
        inside = self._makes(members, m)
        head = inside * after[:, self.flow.producer[m]]
        oldest = np.full(len(members), self.flow.maps[m].rows)
        for read in self.readers[m]:
            reading = members[:, read.reader]
            rows = after[:, read.reader]
            head = np.maximum(head, reading * ~inside * read.need[rows])
            done = np.maximum(rows - 1, moment.before[:, read.reader])
            oldest = np.where(reading, np.minimum(oldest, read.keep[done]), oldest)
        return np.maximum(head - oldest, 0)

    def rings(self, members: np.ndarray) -> RingBytes:
        """Bytes of the rings of mode lbdf, given members (groups, operators) bool.

        The ring of an input belongs to its first reader.
        """
        ring = RingBytes(np.zeros(members.shape), np.zeros(members.shape))
        for m, window, rows in self.ring_rows(members):
            owner = self._owner(members, m, self._makes(members, m))
            at = np.flatnonzero(owner >= 0)
            np.add.at(ring.window, (at, owner[at]), window[at] * self.row_bytes[m])
            np.add.at(ring.kept, (at, owner[at]), (rows - window)[at] * self.row_bytes[m])
        return ring

    def _owner(self, members: np.ndarray, m: int, made_inside: np.ndarray) -> np.ndarray:
        """(groups,) int64: the map's producer, else its first reader in the group; -1 if there is none."""
        owner = np.full(len(members), -1)
        for read in sorted(self.readers[m], key=lambda read: -read.reader):
            owner[members[:, read.reader]] = read.reader
        owner[made_inside] = self.flow.producer[m]
        return owner

    def _makes(self, members: np.ndarray, m: int) -> np.ndarray:
        """(groups,) bool: whether a group makes a map."""
        if self.flow.producer[m] >= 0:
            return members[:, self.flow.producer[m]]
        return np.zeros(len(members), bool)

    def _leaves(self, members: np.ndarray, m: int) -> np.ndarray:
        """(groups,) bool: whether a map, if the group makes it, is needed outside."""
        if self.flow.is_output[m]:
            return np.ones(len(members), bool)
        read_outside = np.zeros(len(members), bool)
        for read in self.readers[m]:
            read_outside |= ~members[:, read.reader]
        return read_outside

    # -- bands -----------------------------------------------------------------------------------------------

    def kinds(self, members: np.ndarray, *, sliced: bool) -> Kinds:
        """Which maps are full and which are sliced, given members (groups, operators) bool.

        `sliced`: whether the results of contractions that have none before them in the group are sliced. The
        rule is that of `lfopt.planning.bands.slices`, for many groups at once.
        """
        flow = self.flow
        slices = self._slices
        head = np.full(members.shape, FULL)
        segment = np.full(members.shape, FULL)
        deep = np.zeros(members.shape, bool)  # whether it is, or comes after, a contraction of the group
        possible = np.ones(len(members), bool)
        for i in self._operators(members):
            facts = slices.facts[i]
            in_group = members[:, i]
            if facts.never:
                possible &= ~in_group
                continue
            low = np.full(len(members), len(flow))
            high = np.full(len(members), FULL)
            before = np.zeros(len(members), bool)
            for operand in flow.operands[i]:
                producer = flow.producer[operand.map]
                if producer < 0:
                    continue
                inside = in_group & members[:, producer]
                source = head[:, producer]
                before |= inside & deep[:, producer]
                if flow.maps[operand.map].rows == 1 < flow.heights[i]:
                    possible &= ~inside
                if facts.contracts and operand.input >= len(flow.calls[i].operator.inputs):
                    possible &= ~(inside & (source >= 0))  # what follows it in flight reads full maps
                    continue
                low = np.where(inside, np.minimum(low, source), low)
                high = np.where(inside, np.maximum(high, source), high)
                if (inside & (source >= 0)).any() and not slices.takes_slices(i, operand.input):
                    possible &= ~(inside & (source >= 0))
            possible &= ~(in_group & (high >= 0) & (low != high))
            high = np.where(possible, high, FULL)
            segment[:, i] = head[:, i] = high
            if facts.contracts:
                several = len(slices.spans(flow.calls[i].result)) > 1
                begins = in_group & (high < 0) & (before | sliced) & several
                head[:, i] = np.where(begins, i, FULL)
                segment[:, i] = np.maximum(high, head[:, i])
            deep[:, i] = in_group & (before | facts.contracts)
        return Kinds(head, segment, possible)

    def _banded(self, members: np.ndarray, reach: np.ndarray, *, sliced: bool) -> np.ndarray:
        """(groups,) float64, bytes: `by_bands` from one start."""
        flow = self.flow
        slices = self._slices
        kinds = self.kinds(members, sliced=sliced)
        possible = kinds.possible.copy()
        # rows of each operator in a band: not made before; made
        new = np.zeros(members.shape)
        extent = np.zeros(members.shape)
        full = np.zeros(len(members))
        scratch = np.zeros((len(members), len(flow) + 1))
        groups = np.arange(len(members))
        for i in reversed(self._operators(members)):
            in_group = members[:, i]
            rows = np.zeros(len(members))
            span = np.zeros(len(members))
            for m in flow.results[i]:
                rows = np.maximum(rows, self._leaves(members, m))
                for read in self.readers[m]:
                    inside = members[:, read.reader]
                    rows = np.maximum(rows, inside * read.stride * new[:, read.reader])
                    span = np.maximum(
                        span, inside * (read.stride * (extent[:, read.reader] - 1) + read.widest)
                    )
            new[:, i] = in_group * np.minimum(rows, self.heights[i])
            band_rows = np.clip(np.where(kinds.head[:, i] >= 0, span, new[:, i]), 1, self.heights[i])
            extent[:, i] = in_group * band_rows
            first = np.maximum(band_rows, reach[:, i])
            for m in flow.results[i]:
                held = np.maximum(first, span)
                for read in self.readers[m]:
                    start = np.maximum(reach[:, read.reader] - extent[:, read.reader].astype(np.int64), 0)
                    held = np.maximum(held, members[:, read.reader] * (reach[:, i] - read.keep[start]))
                held = in_group * np.minimum(held, flow.maps[m].rows)
                whole = kinds.head[:, i] < 0
                full += np.where(whole, held * self.row_bytes[m], 0)
                rows_at_once = in_group * np.minimum(first, flow.maps[m].rows)
                if not whole.all():
                    scratch[groups, kinds.head[:, i]] += rows_at_once * slices.slice_bytes(m)
                    if not slices.stored_evenly(m):
                        possible &= whole | ~self._leaves(members, m)
                if kinds.summing[:, i].any():
                    segment = np.where(kinds.summing[:, i], kinds.segment[:, i], FULL)
                    scratch[groups, segment] += rows_at_once * slices.sum_bytes(i)
        full += self._coming_in(members, reach, extent)
        constants = self._constants.bytes(members, kinds.summing)
        need = self._buffer_need(full + scratch[:, :-1].max(1, initial=0), constants)
        return np.where(possible, need, np.inf)

    def _buffer_need(self, maps: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(groups,) float64: `Hardware.buffer_need` of bytes (groups,) each; infinite where it is never."""
        if not self.hardware.weight_buffer_bytes:
            return maps + weights
        return np.where(weights < self.hardware.weight_buffer_bytes, maps, np.inf)

    def _coming_in(self, members: np.ndarray, reach: np.ndarray, extent: np.ndarray) -> np.ndarray:
        """(groups,) float64: bytes of the inputs of a group, in bands."""
        bytes_in = np.zeros(len(members))
        for m in self._maps(members):
            held = np.zeros(len(members))
            for read in self.readers[m]:
                span = read.stride * (extent[:, read.reader] - 1) + read.widest
                rows = np.maximum(span, read.need[reach[:, read.reader]])
                held = np.maximum(held, members[:, read.reader] * np.maximum(rows, 1))
            bytes_in += (
                ~self._makes(members, m) * np.minimum(held, self.flow.maps[m].rows) * self.row_bytes[m]
            )
        return bytes_in


def needs_of(members: np.ndarray, need: Callable[[int], int]) -> np.ndarray:
    """(groups,) float64: the buffer need of each group in bytes, by the planner; infinite: it never runs."""
    needs = [need(mask) for mask in masks_of(members)]
    return np.array([of_group if of_group < NEVER else np.inf for of_group in needs], np.float64)
