"""Check that what is read is on chip: every read of a schedule against all writes to its places.

A place is a ring: what is written last to a slot is there until something else is written to that slot, or to
a place that has bytes in common with this one. Rows of maps are followed one by one; where slots hold less
than a whole row, also which part of the row. No values, no loops: all runs of a step are looked up at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from lfopt.ir import Place
from simulator.recount.needs import AxisSpans
from simulator.recount.progressions import Ints, RowBudget
from simulator.recount.schedule import StepBox

AT_ONCE = 1 << 20  # rows that are looked up


@dataclass(frozen=True, eq=False)
class Write:
    """All runs of a step that writes rows of a map or of sums, or a block, from slot `number` on."""

    piece: StepBox
    number: Ints  # (runs,)
    offset: int = 0  # of a block: bytes from the start of the slot
    size: int = 0  # of a block: bytes


@dataclass(frozen=True, eq=False)
class Wanted:
    """Parts of a tensor on chip that all runs of a step read."""

    times: Ints  # (runs,)
    parts: tuple[AxisSpans | None, ...]  # per axis; None: not known
    row_axis: int | None  # None: it has one row, or is a constant
    # row by row, by a step that writes each row of its result, no longer than it, to the place of the row
    # that it has read
    replaced: bool = False
    # element by element, by a step that writes each element to the place of the one that it has read
    in_place: bool = False

    @property
    def rows(self) -> AxisSpans:
        """(first row (runs,), row after the last (runs,)); empty where another axis is empty."""
        spans = self.parts[self.row_axis] if self.row_axis is not None else None
        start, stop = spans or (np.zeros_like(self.times), np.ones_like(self.times))
        for part in self.parts:
            if part is not None:
                stop = np.where(part[0] < part[1], stop, start)
        return start, np.maximum(stop, start)

    @cached_property
    def row_elements(self) -> Ints:
        """(runs,) elements read of each row; 0 where an axis is not known."""
        elements = np.ones_like(self.times)
        for axis, part in enumerate(self.parts):
            if axis != self.row_axis:
                elements = elements * (part[1] - part[0] if part is not None else 0)
        return elements


@dataclass(eq=False)
class WrittenPlace:
    """A place, and everything that is written to it."""

    place: Place
    steps: int  # of the group
    writes: list[Write] = field(default_factory=list[Write])
    _sorted: dict[tuple[int, int], Ints] = field(default_factory=dict[tuple[int, int], Ints])
    # other places that have bytes in common with this one
    partners: list[WrittenPlace] = field(default_factory=list["WrittenPlace"])
    # of those: places that are cut into the same slots, and looked at slot by slot
    twins: list[WrittenPlace] = field(default_factory=list["WrittenPlace"])
    narrow: tuple[int, ...] = ()  # axes along which a slot holds only a part of a row
    parted: int = -1  # axis along which a slot collects parts of a row, each at a place of its own; -1: none

    @cached_property
    def times(self) -> Ints:
        """Times of all writes, ascending."""
        return np.sort(_joined([write.piece.leaf.times for write in self.writes]))

    @property
    def rows(self) -> int:
        """Number of rows written, all runs counted."""
        return sum(write.piece.height * write.piece.leaf.runs for write in self.writes)

    def narrow_to(self, axes: Iterable[int]) -> None:
        """Let slots hold only a part of a row, along these axes."""
        self.narrow = tuple(axis for axis in axes if axis != self.writes[0].piece.row_axis)

    def collects(self, shape: tuple[int, ...], narrow: Sequence[int]) -> int:
        """Axis along which slots collect parts of rows; -1 unless each row has a slot and one axis is cut."""
        axis = self.writes[0].piece.row_axis
        rows, cut = 1 if axis is None else shape[axis], [k for k in narrow if k != axis]
        return cut[0] if len(cut) == 1 and self.place.slots >= rows else -1

    @cached_property
    def cuts(self) -> Ints:
        """Ends of parts along the axis `parted`, ascending."""
        ends = [end for write in self.writes for end in write.piece.part(self.parted)]
        return np.unique(np.concatenate(ends))

    def in_turn(self) -> bool:
        """Whether writes have the slot numbers 0, 1, 2 and so on; just 0 if there is one slot.

        Several parts of a block have the same number.
        """
        times = _joined([write.piece.leaf.times for write in self.writes])
        numbers = _joined([write.number for write in self.writes])[np.argsort(times, kind="stable")]
        steps = np.diff(numbers, prepend=0)
        return bool(((steps >= 0) & (steps <= min(self.place.slots - 1, 1))).all())

    def clock(self, times: Ints) -> Ints:
        """(runs,) int64: count of writes here before a step, and to overlapping places before or by it.

        `times`: (runs,) int64, the steps.
        """
        clocks = np.searchsorted(self.times, times) + self.disturbances(times)
        for twin in self.twins:
            clocks += np.searchsorted(twin.times, times, side="right")
        return clocks

    def disturbances(self, times: Ints) -> Ints:
        """(runs,) number of writes to overlapping places, up to and in these steps."""
        counts = np.zeros(len(times), np.int64)
        for partner in self.partners:
            counts += np.searchsorted(partner.times, times, side="right")
        return counts

    def undisturbed(self, written: Ints, read: Ints) -> Ints:
        """(runs,) bool: whether overlapping places had no writes from `written` to `read`, both included."""
        return self.disturbances(written - 1) == self.disturbances(read)

    @cached_property
    def by_slot(self) -> Ints:
        """Keys of all writes, slot x (steps + 1) + step, ascending."""
        keys: list[Ints] = []
        for write in self.writes:
            for row in range(write.piece.height):
                keys.append(
                    (write.number + row) % self.place.slots * (self.steps + 1) + write.piece.leaf.times
                )
        return np.sort(_joined(keys))

    def taken(self, slots: Ints, times: Ints, *, before: bool = False) -> Iterator[Ints]:
        """Per twin: (slots,) number that grows with its writes to each slot by a step, or before it."""
        for twin in self.twins:
            yield np.searchsorted(
                twin.by_slot, slots * (self.steps + 1) + times, side="left" if before else "right"
            )

    def untouched(self, slots: Ints, written: Ints, read: Ints, *, in_place: bool) -> Ints:
        """(runs,) bool: whether no twin writes to `slots` from step `written` to step `read`, both included.

        `in_place`: the last step is not included.
        """
        same = np.ones(len(slots), bool)
        for first, last in zip(
            self.taken(slots, written, before=True), self.taken(slots, read, before=in_place), strict=True
        ):
            same &= first == last
        return same

    # -- blocks ----------------------------------------------------------------------------------------------

    @cached_property
    def spans(self) -> dict[tuple[int, int], list[Write]]:
        """The writes of blocks, by where in a slot they lie: (first byte, first byte behind)."""
        by_span: dict[tuple[int, int], list[Write]] = defaultdict(list)
        for write in self.writes:
            by_span[write.offset, write.offset + write.size].append(write)
        return by_span

    def keeps(self, span: tuple[int, int], slots: Ints, written: Ints, read: Ints) -> Ints:
        """(runs,) bool: whether constants' blocks, written to a byte span of slots, are intact when read."""
        if span not in self._sorted:
            rivals = [
                w
                for (first, stop), writes in self.spans.items()
                if first < span[1] and span[0] < stop
                for w in writes
            ]
            times = [
                write.number % self.place.slots * (self.steps + 1) + write.piece.leaf.times
                for write in rivals
            ]
            self._sorted[span] = np.sort(_joined(times))
        keys, base = self._sorted[span], slots * (self.steps + 1)
        last = keys[np.searchsorted(keys, base + read) - 1]
        return (last == base + written) & self.undisturbed(written, read)


class Rows:
    """Rows written to a place, by row and by slot.

    Keys are a row or slot, times `base`, plus the step; they rise.
    """

    def __init__(self, ring: WrittenPlace) -> None:
        self.ring, self.base = ring, ring.steps + 1
        pieces = [write.piece for write in ring.writes]
        self._heights = [piece.height for piece in pieces]
        times, rows = (
            self._each(piece.leaf.times for piece in pieces),
            self._each(piece.first_row for piece in pieces),
        )
        slots = self._each(write.number for write in ring.writes)
        further = _joined([np.tile(np.arange(piece.height), piece.leaf.runs) for piece in pieces])
        rows += further
        slots += further
        slots %= ring.place.slots
        self._cells = len(ring.cuts) if ring.parted >= 0 else 1  # of a slot, each looked at as if it were one
        del further
        if ring.parted >= 0:
            first, stop = (self._each(piece.part(ring.parted)[end] for piece in pieces) for end in (0, 1))
            (times, rows, slots), _ = self._by_part([times, rows, slots], (first, stop))
        in_time = np.argsort(times, kind="stable")
        order, self._row_keys = self._sorted(rows, times, in_time)
        self._slots = slots[order]  # by row
        self._parts = [
            tuple(self._each(piece.part(axis)[end] for piece in pieces)[order] for end in (0, 1))
            for axis in ring.narrow
        ]
        self._by_slot, self._slot_keys = self._sorted(slots, times, in_time)
        self._rows = rows[self._by_slot]  # by slot
        self._elements = [prod(piece.extents) // piece.height for piece in pieces]  # of each row

    def _by_part(self, columns: list[Ints], part: AxisSpans) -> tuple[list[Ints], Ints]:
        """(columns with one entry per piece of a row's part, number of pieces per entry).

        The place's parts are cut into pieces, each as if it were a row in a slot of its own. The first column
        is repeated as it is, the others are of rows and slots.
        """
        cuts = self.ring.cuts
        first, stop = np.searchsorted(cuts, part[0], side="right") - 1, np.searchsorted(cuts, part[1])
        counts = np.maximum(stop - first, 1)
        cells = (
            np.maximum(np.repeat(first, counts), 0)
            + np.arange(counts.sum())
            - np.repeat(np.cumsum(counts) - counts, counts)
        )
        same, *others = (np.repeat(column, counts) for column in columns)
        return [same, *(column * len(cuts) + cells for column in others)], counts

    def _each(self, runs: Iterable[Ints]) -> Ints:
        """Values of all runs of every write, repeated for each of its rows."""
        return _joined(
            [np.repeat(values, height) for values, height in zip(runs, self._heights, strict=True)]
        )

    def _sorted(self, numbers: Ints, times: Ints, in_time: Ints) -> tuple[Ints, Ints]:
        order = in_time[_by_number(numbers[in_time])]
        keys = numbers[order] * self.base
        keys += times[order]
        return order, keys

    @cached_property
    def _filled(self) -> Ints:
        """(writes,) int64, sorted by slot: elements of the current row in the slot after each write."""
        writes = zip(self._elements, self._heights, self.ring.writes, strict=True)
        written = _joined(
            [np.full(height * write.piece.leaf.runs, elements) for elements, height, write in writes]
        )[self._by_slot]
        slots, times = np.divmod(self._slot_keys, self.base)
        begins = _changes([slots, self._rows, self.ring.disturbances(times), *self.ring.taken(slots, times)])
        del slots, times
        first = np.maximum.accumulate(np.where(begins, np.arange(len(written)), 0))
        total = np.cumsum(written)
        return total - (total - written)[first]

    def have(self, wanted: Wanted, run: Ints, row: Ints) -> Ints:
        """Whether rows are here when they are read: each `row` in a `run` of what is wanted."""
        if self.ring.parted < 0 or not len(run):
            return self._have(wanted, run, row)
        cuts, part = self.ring.cuts, wanted.parts[self.ring.parted]
        # where nobody knows which part is read: it may be any
        met = np.logical_and if part is not None else np.logical_or
        first, stop = (
            part
            if part is not None
            else (np.full_like(wanted.times, cuts[0]), np.full_like(wanted.times, cuts[-1]))
        )
        (runs, rows), counts = self._by_part([run, row], (first[run], stop[run]))
        return met.reduceat(self._have(wanted, runs, rows), np.cumsum(counts) - counts)

    def _have(self, wanted: Wanted, run: Ints, row: Ints) -> Ints:
        # keys are looked up in the order in which they lie: the others would each wait for memory
        order = _by_number(row)
        present = np.empty(len(row), bool)
        present[order] = self._have_in_order(wanted, run[order], row[order])
        return present

    def _have_in_order(self, wanted: Wanted, run: Ints, row: Ints) -> Ints:
        read = wanted.times[run]
        # the last time that the row was written before
        last = np.maximum(np.searchsorted(self._row_keys, row * self.base + read) - 1, 0)
        written, slot = self._row_keys[last] - row * self.base, self._slots[last]
        present = (written >= 0) & (written < read)  # else it never was
        here = np.maximum(np.searchsorted(self._slot_keys, slot * self.base + read) - 1, 0)
        present &= (self._slot_keys[here] - slot * self.base == written) & (self._rows[here] == row)
        elements = wanted.row_elements[run]
        if self.ring.parted < 0 and len(elements) and elements.max() > min(self._elements):
            present &= self._filled[here] >= elements
        for axis, (start, stop) in zip(self.ring.narrow, self._parts, strict=True):
            part = wanted.parts[axis]
            if part is not None:
                present &= (start[last] <= part[0][run]) & (part[1][run] <= stop[last])
        present &= self.ring.undisturbed(written, read - wanted.replaced)
        if not self.ring.twins:
            return present
        return present & self.ring.untouched(slot // self._cells, written, read, in_place=wanted.in_place)


def close(rings: Sequence[WrittenPlace], *, by_slot: bool) -> None:
    """Fill in which places overlap.

    `by_slot`: a write to one slot leaves the other slots intact, where two places of rows have the same
    slots. Blocks are lost in any case.
    """
    reaching: list[WrittenPlace] = []  # those that go on behind the address at hand
    for ring in sorted(rings, key=lambda ring: ring.place.address):
        reaching = [other for other in reaching if other.place.end > ring.place.address]
        if ring.place.end > ring.place.address:
            for other in reaching:
                alike = (
                    by_slot
                    and ring.place.purpose == "map"
                    and replace(ring.place, name="") == replace(other.place, name="")
                )
                (ring.twins if alike else ring.partners).append(other)
                (other.twins if alike else other.partners).append(ring)
            reaching.append(ring)


def missing_row(places: Sequence[Rows], wanted: Wanted, work: RowBudget) -> tuple[int, int] | None:
    """(step, row) of the first read of a map that is in none of its places; None if all are served.

    Raises TooMuch.
    """
    first, stop = wanted.rows
    # Of runs that read the same, with nothing written in between, one is looked at.
    narrow = sorted({axis for rows in places for axis in rows.ring.narrow})
    told_by = [
        first,
        stop,
        *(end for axis in narrow for end in wanted.parts[axis] or ()),
        *(rows.ring.clock(wanted.times) for rows in places),
    ]
    every = np.flatnonzero(_changes(told_by) & (stop > first))
    read = np.cumsum(stop[every] - first[every])
    work.spend(int(read[-1]) if len(every) else 0)
    for runs in np.split(every, np.flatnonzero(np.diff(read // AT_ONCE)) + 1) if len(every) else ():
        counts = stop[runs] - first[runs]
        run = np.repeat(runs, counts)
        row = first[run] + np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
        for rows in places:
            lacking = ~rows.have(wanted, run, row)
            run, row = run[lacking], row[lacking]
        if len(run):
            return int(wanted.times[run[0]]), int(row[0])
    return None


class ConstantLoads:
    """All loads of a constant, place by place: some parts may stay while others pass."""

    def __init__(self, loads: Sequence[tuple[WrittenPlace, Write]]) -> None:
        rings = list({id(ring): ring for ring, _ in loads}.values())
        self.places = [_Place(ring, [write for other, write in loads if other is ring]) for ring in rings]

    def missing(self, wanted: Wanted) -> int | None:
        """The first step whose block of the constant is not on chip; None if all are served.

        A run that needs none of it (the part of a Concat that comes from elsewhere) is served by anything.
        """
        needs = np.ones(len(wanted.times), bool)
        for part in wanted.parts:
            if part is not None:
                needs &= part[0] < part[1]
        if not needs.any():
            return None
        if not self.places:
            return int(wanted.times[np.argmax(needs)])
        cuts = [place.cuts(wanted) for place in self.places]
        clocks = [place.ring.clock(wanted.times) for place in self.places]
        told_by = [needs, *(end for cut in cuts for part in cut.values() for end in part), *clocks]
        # of runs that read the same, with nothing loaded in between, one is looked at
        runs = np.flatnonzero(_changes(told_by))
        present = ~needs[runs]
        for place, cut in zip(self.places, cuts, strict=True):
            lacking = np.flatnonzero(~present)
            present[lacking] = place.has(wanted, cut, runs[lacking])
        return None if present.all() else int(wanted.times[runs[np.argmin(present)]])


class _Place:
    """Loads of a constant into one place."""

    def __init__(self, ring: WrittenPlace, writes: Sequence[Write]) -> None:
        self.ring, self.pieces = ring, [write.piece for write in writes]
        times = _joined([piece.leaf.times for piece in self.pieces])
        self._order = np.argsort(times, kind="stable")
        self.times = times[self._order]  # when anything is loaded, in order
        self.slots = _joined([write.number % ring.place.slots for write in writes])[self._order]
        self.spans = list(dict.fromkeys((write.offset, write.offset + write.size) for write in writes))
        kinds = [self.spans.index((write.offset, write.offset + write.size)) for write in writes]
        # where in a slot it goes: index into `spans`
        self.kinds = np.repeat(kinds, [piece.leaf.runs for piece in self.pieces])[self._order]
        self._parts: dict[int, AxisSpans] = {}

    def part(self, axis: int) -> AxisSpans:
        """Span of each load along one axis, in order of time."""
        if axis not in self._parts:
            first, stop = (
                _joined([piece.part(axis)[end] for piece in self.pieces])[self._order] for end in (0, 1)
            )
            self._parts[axis] = first, stop
        return self._parts[axis]

    @cached_property
    def whole(self) -> tuple[int, ...]:
        """Per axis: extent from 0 that every load covers; 0 where not all begin at the start."""
        axes = range(len(self.pieces[0].extents))
        return tuple(int(self.part(axis)[1].min()) if not self.part(axis)[0].any() else 0 for axis in axes)

    def cuts(self, wanted: Wanted) -> dict[int, AxisSpans]:
        """Wanted spans of the axes along which a load may hold less."""
        return {
            axis: part
            for axis, part in enumerate(wanted.parts)
            if part is not None and self.whole[axis] < part[1].max()
        }

    def has(self, wanted: Wanted, cut: dict[int, AxisSpans], runs: Ints) -> Ints:
        """(runs,) bool: whether the block loaded last is the wanted one, and is intact."""
        last = np.searchsorted(self.times, wanted.times[runs]) - 1
        present = last >= 0
        for axis, part in cut.items():
            start, stop = self.part(axis)
            present &= (start[last] <= part[0][runs]) & (part[1][runs] <= stop[last])
        for kind in np.unique(self.kinds[last[present]]):
            span = self.spans[kind]
            here = np.flatnonzero(present & (self.kinds[last] == kind))
            if span[1] > span[0]:
                present[here] &= self.ring.keeps(
                    span, self.slots[last[here]], self.times[last[here]], wanted.times[runs[here]]
                )
        return present


def _by_number(numbers: Ints) -> Ints:
    """Stable order of small numbers."""
    few = len(numbers) > 0 and numbers.min() >= 0 and numbers.max() <= np.iinfo(np.uint16).max
    # a radix sort, where 16 bits are enough
    return np.argsort(numbers.astype(np.uint16) if few else numbers, kind="stable")


def _joined(arrays: Sequence[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def _changes(columns: Sequence[Ints]) -> Ints:
    """(entries,) bool: where any of the columns differs from the entry before."""
    changes = np.zeros(len(columns[0]), bool)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return changes
