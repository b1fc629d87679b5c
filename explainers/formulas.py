"""Buffer requirement of groups by closed formulas of windows, strides and sizes, without a schedule.

Four of them, for many groups of one network at once:

* `by_sums`: all weights, the rows that every operator reads for one row of its result, and one row of each
  map that leaves. It does not see what is kept across skips.
* `by_lines`, of mode lbdf: rings as they stand when the sinks have made their first row. How many rows each
  operator has made by then follows from its readers, backwards; a ring holds what has been made and may still
  be read. Later rows are taken to need no more.
* `by_bands`, of mode brr: bands of one row; maps in full or in slices by turns from one contraction to the
  next, from either start; rings as above, the fullest segment of slices and partial sums, two of the largest
  weight block. Infinite where neither start leads anywhere.
* `by_lives`, of mode resident: the most bytes of whole maps alive at once, operators in order, and two of the
  largest weight block.

The exact requirement comes from the planner (`lfopt.planning`). These are what a network that learns has to
be better than, and what it begins with. Sources: arXiv 2501.00636, section II (LBDF, BRR); Cai, Wang and
Zhang, LCTES'21 (bands). The formulas are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lfopt.ir import Hardware
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow, Family, RowReads, Tiling

BLOCKS = 2  # weight blocks on chip at once: one is read while the next comes in
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
        self.flow, self.hardware = flow, hardware
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
        """(operators,) float64: bytes of weights on chip; a shared constant counts once per operator."""
        of = self.hardware.constant_bytes
        return np.array(
            [
                sum(of(w.elements, bias=w.bias) for w in weights if not w.gathered)
                for weights in self.flow.weights
            ],
            np.float64,
        )

    @cached_property
    def channels(self) -> np.ndarray:
        """(maps,) float64: channels; 1 without a channel axis."""
        shapes = (m.shape for m in self.flow.maps)
        return np.array(
            [
                shape[axis] if (axis := CHANNEL_AXIS_OF_RANK.get(len(shape))) is not None else 1
                for shape in shapes
            ],
            np.float64,
        )

    @cached_property
    def slice_bytes(self) -> np.ndarray:
        """(maps,) float64: bytes of one row of the narrowest slice, of channel_align channels."""
        return self.row_bytes / self.channels * np.minimum(self.channels, self.hardware.channel_align)

    @cached_property
    def block_bytes(self) -> np.ndarray:
        """(operators,) float64: bytes of the weights of channel_align output channels."""
        result_channels = np.array(
            [self.channels[results[0]] if results else 1.0 for results in self.flow.results]
        )
        return self.weight_bytes / result_channels * np.minimum(result_channels, self.hardware.channel_align)

    # -- formulas --------------------------------------------------------------------------------------------

    def by_sums(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes."""
        read = np.array(
            [sum(read.widest * self.row_bytes[read.map] for read in reads) for reads in self.reads]
        )
        total = members @ (read + self.weight_bytes)
        for i in self._operators(members):
            for m in self.flow.results[i]:
                total += (members[:, i] & self._leaves(members, m)) * self.row_bytes[m]
        return total

    def by_lines(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes, in mode lbdf."""
        ring = self.rings(members)
        return (ring.window + ring.kept).sum(1) + members @ self.weight_bytes

    def by_bands(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes, in mode brr; infinite where the group cannot run so."""
        reach = self.reach(members)
        return np.min([self._banded(members, reach, sliced=sliced) for sliced in STARTS], 0)

    def by_lives(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes, in mode resident."""
        sizes = self.row_bytes * np.array([m.rows for m in self.flow.maps])
        change = np.zeros((len(members), len(self.flow) + 1))
        place = np.arange(len(self.flow))
        for m in self._maps(members):
            touching = [read.reader for read in self.readers[m]] + (
                [self.flow.producer[m]] if self.flow.producer[m] >= 0 else []
            )
            inside = np.zeros(members.shape, bool)
            inside[:, touching] = members[:, touching]
            rows = np.flatnonzero(inside.any(1))
            first, last = (
                np.where(inside, place, len(place)).min(1)[rows],
                np.where(inside, place, -1).max(1)[rows],
            )
            np.add.at(change, (rows, first), sizes[m])
            np.add.at(change, (rows, last + 1), -sizes[m])
        blocks = (members * self.block_bytes).max(1, initial=0)
        return change.cumsum(1).max(1, initial=0) + np.minimum(BLOCKS * blocks, members @ self.weight_bytes)

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

    def reach(self, members: np.ndarray) -> np.ndarray:
        """(groups, operators) int64: rows each has made when the group's sinks have made their first."""
        reached = np.zeros(members.shape, np.int64)
        for i in reversed(self._operators(members)):
            rows = np.zeros(len(members), np.int64)
            for m in self.flow.results[i]:
                rows = np.maximum(rows, self._leaves(members, m))
                for read in self.readers[m]:
                    rows = np.maximum(rows, members[:, read.reader] * read.need[reached[:, read.reader]])
            reached[:, i] = rows * members[:, i]
        return reached

    def ring_rows(self, members: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(map, rows of its widest window (groups,) int64, rows of its ring (groups,) int64) in mode lbdf.

        Both are 0 in groups without the map.
        """
        reach = self.reach(members)
        for m in self._maps(members):
            made_inside = self._makes(members, m)
            window, head = np.zeros(len(members), np.int64), made_inside * reach[:, self.flow.producer[m]]
            for read in self.readers[m]:
                reading = members[:, read.reader]
                window = np.maximum(window, reading * read.widest)
                head = np.maximum(head, reading * ~made_inside * read.need[reach[:, read.reader]])
            window = np.maximum(window, made_inside)
            rows = window
            for read in self.readers[m]:
                rows = np.maximum(
                    rows,
                    members[:, read.reader] * (head - read.keep[np.maximum(reach[:, read.reader] - 1, 0)]),
                )
            yield m, window, rows

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
        return (
            members[:, self.flow.producer[m]] if self.flow.producer[m] >= 0 else np.zeros(len(members), bool)
        )

    def _leaves(self, members: np.ndarray, m: int) -> np.ndarray:
        """(groups,) bool: whether a map, if the group makes it, is needed outside."""
        if self.flow.is_output[m]:
            return np.ones(len(members), bool)
        read_outside = np.zeros(len(members), bool)
        for read in self.readers[m]:
            read_outside |= ~members[:, read.reader]
        return read_outside

    # -- bands -----------------------------------------------------------------------------------------------

    @cached_property
    def own_maps(self) -> list[set[int]]:
        """Per operator: maps that it reads itself; others are read by what follows it in flight."""
        calls, operands = self.flow.calls, self.flow.operands
        return [
            {o.map for o in of_call if o.input < len(call.operator.inputs)}
            for call, of_call in zip(calls, operands, strict=True)
        ]

    @cached_property
    def contracts(self) -> np.ndarray:
        """(operators,) bool: sums over the channels of one map, with constant weights."""
        flow = self.flow
        return np.array([
            row.tiling is Tiling.CONTRACT and len(call.constant) > 1 and call.constant[1]
            and call.attribute("group", 1) == 1
            for row, call in zip(flow.specs, flow.calls, strict=True)
        ], bool)  # fmt: skip

    @cached_property
    def takes_slices(self) -> np.ndarray:
        """(operators,) bool: computes channel by channel, or contracts over channels; no view between."""
        flow, takes = self.flow, np.zeros(len(self.flow), bool)
        for i, (row, call) in enumerate(zip(flow.specs, flow.calls, strict=True)):
            own = self.own_maps[i] if self.contracts[i] else {o.map for o in flow.operands[i]}
            seen = [flow.maps[o.map].shape == call.shape(o.input) for o in flow.operands[i] if o.map in own]
            if self.contracts[i]:
                takes[i] = all(seen)
            else:
                local = (
                    row.elementwise
                    or row.family in (Family.POOL, Family.INTERPOLATION)
                    or row.tiling is Tiling.FOLD
                    or call.attribute("group", 1) > 1
                )
                same = {self.channels[m] for m in (*flow.results[i], *(o.map for o in flow.operands[i]))}
                takes[i] = local and all(seen) and len(same) == 1
        return takes

    def kinds(self, members: np.ndarray, *, sliced: bool) -> Kinds:
        """Which maps are full and which are sliced, given members (groups, operators) bool.

        `sliced`: whether the results of contractions that have none before them in the group are sliced.
        """
        flow, contracts, takes = self.flow, self.contracts, self.takes_slices
        head, segment, deep = (
            np.full(members.shape, FULL),
            np.full(members.shape, FULL),
            np.zeros(members.shape, bool),
        )
        possible = np.ones(len(members), bool)
        for i in self._operators(members):
            in_group, reads = members[:, i], self.reads[i]
            low, high = np.full(len(members), len(flow)), np.full(len(members), FULL)
            before = np.zeros(len(members), bool)
            for read in reads:
                if read.producer < 0:
                    continue
                inside, source = in_group & members[:, read.producer], head[:, read.producer]
                before |= inside & deep[:, read.producer]
                possible &= ~(inside & (flow.maps[read.map].rows == 1 < flow.heights[i]))
                if contracts[i] and read.map not in self.own_maps[i]:
                    possible &= ~(inside & (source >= 0))
                    continue
                low, high = (
                    np.where(inside, np.minimum(low, source), low),
                    np.where(inside, np.maximum(high, source), high),
                )
            segment[:, i] = high
            possible &= ~(in_group & (high >= 0) & ((low != high) | ~takes[i]))
            if contracts[i]:
                several = (
                    bool(flow.results[i]) and self.channels[flow.results[i][0]] > self.hardware.channel_align
                )
                head[:, i] = np.where(in_group & (high < 0) & (before | sliced) & several, i, FULL)
                segment[:, i] = np.maximum(high, head[:, i])
                deep[:, i] = in_group
            else:
                head[:, i] = high
                deep[:, i] = in_group & before
        return Kinds(head, segment, possible)

    def _banded(self, members: np.ndarray, reach: np.ndarray, *, sliced: bool) -> np.ndarray:
        """(groups,) float64, bytes: `by_bands` from one start."""
        flow, kinds = self.flow, self.kinds(members, sliced=sliced)
        # rows of each operator in a band: not made before; made
        new, extent = np.zeros(members.shape), np.zeros(members.shape)
        full, scratch = np.zeros(len(members)), np.zeros((len(members), len(flow) + 1))
        groups = np.arange(len(members))
        for i in reversed(self._operators(members)):
            in_group, rows, span = members[:, i], np.zeros(len(members)), np.zeros(len(members))
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
                full += np.where(kinds.head[:, i] >= 0, 0, held * self.row_bytes[m])
                scratch[groups, kinds.head[:, i]] += (
                    in_group * np.minimum(first, flow.maps[m].rows) * self.slice_bytes[m]
                )
                if self.contracts[i]:
                    sums = self.hardware.sums_bytes(int(self.row_bytes[m]))
                    scratch[groups, np.where(kinds.head[:, i] < 0, kinds.segment[:, i], FULL)] += (
                        in_group * np.minimum(first, flow.maps[m].rows) * sums
                    )
        full += self._coming_in(members, reach, extent)
        constants = np.minimum(
            BLOCKS * (members * self.block_bytes).max(1, initial=0), members @ self.weight_bytes
        )
        return np.where(kinds.possible, full + scratch[:, :-1].max(1, initial=0) + constants, np.inf)

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
