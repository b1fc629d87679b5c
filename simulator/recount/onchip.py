"""Check that what is read is on chip: every read of a schedule against all writes to its places.

A place is a ring: what is written last to a slot is there until something else is written to that slot, or to
a place that has bytes in common with this one. Rows of maps are followed one by one. Parts of a row that come
one after the other are in their slot together as long as it has room for all of them; a part for which there
is none takes the place of the others. No values, no loops: all runs of a step are looked up at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from lfopt.ir import Place
from simulator.recount.needs import AxisSpans
from simulator.recount.progressions import Ints, RowBudget, cell_spans, product_of
from simulator.recount.schedule import StepBox

AT_ONCE = 1 << 20  # rows that are looked up
MOST_BLOCKS = 64  # of a constant in one place, the last ones, among which a read looks for its own


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

    @cached_property
    def times(self) -> Ints:
        """Times of all writes, ascending."""
        return np.sort(_joined([write.piece.leaf.times for write in self.writes]))

    @property
    def rows(self) -> int:
        """Number of rows written, all runs counted."""
        return sum(write.piece.height * write.piece.leaf.runs for write in self.writes)

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
        keys = self._sorted[span]
        base = slots * (self.steps + 1)
        last = keys[np.searchsorted(keys, base + read) - 1]
        return (last == base + written) & self.undisturbed(written, read)


class Rows:
    """Rows written to a place, by row and by slot.

    Keys are a row or slot, times `base`, plus the step; they rise.
    """

    def __init__(
        self, ring: WrittenPlace, shape: tuple[int, ...], part_bytes: Callable[[tuple[int, ...]], int]
    ) -> None:
        """`shape`: of the tensor; `part_bytes`: bytes on chip of one row of these extents."""
        self.ring = ring
        self.base = ring.steps + 1
        self.shape = shape
        self.part_bytes = part_bytes
        self.pieces = [write.piece for write in ring.writes]
        self._heights = [piece.height for piece in self.pieces]
        self._times, rows = (
            self._each(piece.leaf.times for piece in self.pieces),
            self._each(piece.first_row for piece in self.pieces),
        )
        slots = self._each(write.number for write in ring.writes)
        further = _joined([np.tile(np.arange(piece.height), piece.leaf.runs) for piece in self.pieces])
        rows += further
        slots += further
        slots %= ring.place.slots
        del further
        in_time = np.argsort(self._times, kind="stable")
        order, self._row_keys = self._sorted(rows, in_time)
        self._slots = slots[order]  # by row
        self._by_slot, self._slot_keys = self._sorted(slots, in_time)
        self._rows = rows[self._by_slot]  # by slot
        row_axis = self.pieces[0].row_axis
        axes = [axis for axis in range(len(shape)) if axis != row_axis]
        # axes along which every write is of the same part, and not of all of the row: that part
        self.frame: dict[int, tuple[int, int]] = {}
        self.varied: list[int] = []  # axes along which writes are of different parts
        for axis in axes:
            spans = {piece.ends(axis) for piece in self.pieces}
            first, stop = min(spans)
            if len(spans) > 1 or stop - first != self.pieces[0].extents[axis]:
                self.varied.append(axis)
            elif (first, stop) != (0, shape[axis]):
                self.frame[axis] = first, stop
        # per varied axis: start and stop of what was written, by slot
        self._parts: dict[int, AxisSpans] = {}
        for axis in self.varied:
            start, stop = (self._each(piece.part(axis)[end] for piece in self.pieces) for end in (0, 1))
            self._parts[axis] = start[self._by_slot], stop[self._by_slot]

    @property
    def told_apart(self) -> list[int]:
        """Axes along which it matters which part of a row is read."""
        return [*self.frame, *self.varied]

    def _each(self, runs: Iterable[Ints]) -> Ints:
        """Values of all runs of every write, repeated for each of its rows."""
        return _joined(
            [np.repeat(values, height) for values, height in zip(runs, self._heights, strict=True)]
        )

    def _sorted(self, numbers: Ints, in_time: Ints) -> tuple[Ints, Ints]:
        order = in_time[_by_number(numbers[in_time])]
        keys = numbers[order] * self.base
        keys += self._times[order]
        return order, keys

    # -- parts of rows ---------------------------------------------------------------------------------------

    @cached_property
    def _since(self) -> Ints:
        """(writes,) int64, by slot: step of the first write of those that are in the slot together.

        They are of one row, nothing came over them in between, and the slot has room for all of them.
        """
        slots, times = np.divmod(self._slot_keys, self.base)
        ring = self.ring
        begins = _changes([slots, self._rows])
        intact = ring.disturbances(times - 1)[:-1] == ring.disturbances(times)[1:]
        for first, last in zip(ring.taken(slots, times, before=True), ring.taken(slots, times), strict=True):
            intact &= first[:-1] == last[1:]
        begins[1:] |= ~intact
        whole = tuple(1 if axis == self.pieces[0].row_axis else n for axis, n in enumerate(self.shape))
        if self.part_bytes(whole) > ring.place.slot_bytes:
            self._make_room(begins)
        first = np.maximum.accumulate(np.where(begins, np.arange(len(times)), 0))
        return times[first]

    def _make_room(self, begins: Ints) -> None:
        """Mark the writes for which there is no room beside what is in their slot: they take its place."""
        low, high = (np.stack([self._parts[axis][end] for axis in self.varied], axis=1) for end in (0, 1))
        both = np.maximum(high[1:], high[:-1]) - np.minimum(low[1:], low[:-1])
        begins[1:] |= self._too_large(both)
        starts = np.flatnonzero(begins)
        hulls = np.maximum.reduceat(high, starts) - np.minimum.reduceat(low, starts)
        stops = [*starts[1:].tolist(), len(begins)]
        for k in np.flatnonzero(self._too_large(hulls)).tolist():
            start = low[starts[k]]
            stop = high[starts[k]]
            for at in range(int(starts[k]) + 1, stops[k]):
                start = np.minimum(start, low[at])
                stop = np.maximum(stop, high[at])
                if self._too_large((stop - start)[None])[0]:
                    begins[at], start, stop = True, low[at], high[at]

    def _too_large(self, extents: Ints) -> Ints:
        """(parts,) bool: whether a slot has no room for such a part; `extents`: along the varied axes."""
        different, inverse = np.unique(extents, axis=0, return_inverse=True)
        sizes: list[int] = []
        row_axis = self.pieces[0].row_axis
        fixed = [1 if axis == row_axis else extent for axis, extent in enumerate(self.pieces[0].extents)]
        for some in different.tolist():
            part = list(fixed)
            for axis, extent in zip(self.varied, some, strict=True):
                part[axis] = extent
            sizes.append(self.part_bytes(tuple(part)))
        return (np.array(sizes, np.int64) > self.ring.place.slot_bytes)[inverse.reshape(-1)]

    @cached_property
    def _cuts(self) -> list[Ints]:
        """Per varied axis: ends of the cells into which writes cut a row."""
        return [
            np.unique(
                np.concatenate(
                    [np.array([0, self.shape[axis]]), *(end for p in self.pieces for end in p.part(axis))]
                )
            )
            for axis in self.varied
        ]

    def _cells(self, parts: Sequence[AxisSpans], work: RowBudget) -> tuple[Ints, Ints]:
        """(number of a part, cell) of every cell that parts of rows cover; `parts`: per varied axis."""
        spans = [cell_spans(cut, part) for cut, part in zip(self._cuts, parts, strict=True)]
        return product_of(len(parts[0][0]), spans, [len(cut) - 1 for cut in self._cuts], work)

    @cached_property
    def _cell_count(self) -> int:
        return prod(len(cut) - 1 for cut in self._cuts)

    def _cell_keys(self, work: RowBudget) -> Ints:
        """Keys of the writes of every cell, (slot x cells + cell) x base + step, ascending."""
        if self._sorted_cells is None:
            write, cell = self._cells([self._parts[axis] for axis in self.varied], work)
            slots, times = np.divmod(self._slot_keys, self.base)
            self._sorted_cells = np.sort((slots[write] * self._cell_count + cell) * self.base + times[write])
        return self._sorted_cells

    _sorted_cells: Ints | None = None

    def _together(
        self, slot: Ints, here: Ints, read: Ints, parts: Sequence[AxisSpans], work: RowBudget
    ) -> Ints:
        """(reads,) bool: whether all cells of a part were written since the row came to its slot.

        `here`: the last write to that slot.
        """
        keys = self._cell_keys(work)
        which, cell = self._cells(parts, work)
        base = (slot[which] * self._cell_count + cell) * self.base
        at = np.searchsorted(keys, base + read[which]) - 1
        written = keys[np.maximum(at, 0)] - base
        present = (at >= 0) & (written >= self._since[here[which]])
        complete = np.ones(len(slot), bool)
        complete[which[~present]] = False
        return complete

    # -- reads -----------------------------------------------------------------------------------------------

    def have(self, wanted: Wanted, run: Ints, row: Ints, work: RowBudget) -> Ints:
        """Whether rows are here when they are read: each `row` in a `run` of what is wanted."""
        # keys are looked up in the order in which they lie: the others would each wait for memory
        order = _by_number(row)
        present = np.empty(len(row), bool)
        present[order] = self._have_in_order(wanted, run[order], row[order], work)
        return present

    def _part_read(self, wanted: Wanted, axis: int, run: Ints) -> AxisSpans:
        """Part of a row that is read along an axis; all of it where that is not known."""
        part = wanted.parts[axis]
        if part is None:
            return np.zeros(len(run), np.int64), np.full(len(run), self.shape[axis])
        return part[0][run], part[1][run]

    def _have_in_order(self, wanted: Wanted, run: Ints, row: Ints, work: RowBudget) -> Ints:
        # the last time that the row was written before
        last = self._row_keys, row * self.base, self._slots
        present = self._have_written(wanted, run, row, last, work)
        lacking = np.flatnonzero(~present)
        if self.varied and len(lacking) and self._spread:
            some = run[lacking]
            rows = row[lacking]
            last = self._by_part(wanted, some, rows)
            present[lacking] = self._have_written(wanted, some, rows, last, work)
        return present

    @cached_property
    def _spread(self) -> bool:
        """Whether parts of one row are written to several slots."""
        rows = self._row_keys // self.base
        return bool(((rows[1:] == rows[:-1]) & (self._slots[1:] != self._slots[:-1])).any())

    def _by_part(self, wanted: Wanted, run: Ints, row: Ints) -> tuple[Ints, Ints, Ints]:
        """(keys of writes, base of the key of each read, slots of the writes), by row and exact part."""
        written = [self._parts[axis][end] for axis in self.varied for end in (0, 1)]
        read = [end for axis in self.varied for end in self._part_read(wanted, axis, run)]
        parts = np.concatenate([np.stack(written, axis=1), np.stack(read, axis=1)])
        different, number = np.unique(parts, axis=0, return_inverse=True)
        number = number.reshape(-1)
        slots, times = np.divmod(self._slot_keys, self.base)
        keys = (self._rows * len(different) + number[: len(times)]) * self.base + times
        order = np.argsort(keys, kind="stable")
        bases = (row * len(different) + number[len(times) :]) * self.base
        return keys[order], bases, slots[order]

    def _have_written(
        self, wanted: Wanted, run: Ints, row: Ints, writes: tuple[Ints, Ints, Ints], work: RowBudget
    ) -> Ints:
        """Whether the last of the writes before each read is there, and has what is read.

        `writes`: their keys, which rise; of each read, what its key is above its step; slots of the writes.
        """
        keys, bases, slots = writes
        read = wanted.times[run]
        last = np.maximum(np.searchsorted(keys, bases + read) - 1, 0)
        written = keys[last] - bases
        slot = slots[last]
        present = (written >= 0) & (written < read)  # else it never was
        here = np.maximum(np.searchsorted(self._slot_keys, slot * self.base + read) - 1, 0)
        present &= (self._slot_keys[here] - slot * self.base == written) & (self._rows[here] == row)
        for axis, (start, stop) in self.frame.items():
            first, behind = self._part_read(wanted, axis, run)
            present &= (start <= first) & (behind <= stop)
        present &= self.ring.undisturbed(written, read - wanted.replaced)
        if self.ring.twins:
            in_place = wanted.in_place or wanted.replaced
            present &= self.ring.untouched(slot, written, read, in_place=in_place)
        if not self.varied:
            return present
        parts = [self._part_read(wanted, axis, run) for axis in self.varied]
        within = present.copy()  # the last write to the slot has all that is read
        for axis, (first, behind) in zip(self.varied, parts, strict=True):
            start, stop = self._parts[axis]
            within &= (start[here] <= first) & (behind <= stop[here])
        rest = np.flatnonzero(present & ~within)
        if len(rest):
            some = [(first[rest], behind[rest]) for first, behind in parts]
            within[rest] = self._together(slot[rest], here[rest], read[rest], some, work)
        return within


def close(rings: Sequence[WrittenPlace]) -> None:
    """Fill in which places overlap.

    Where two places of rows have the same slots, a write to one slot leaves the others intact.
    """
    reaching: list[WrittenPlace] = []  # those that go on behind the address at hand
    for ring in sorted(rings, key=lambda ring: ring.place.address):
        reaching = [other for other in reaching if other.place.end > ring.place.address]
        if ring.place.end > ring.place.address:
            for other in reaching:
                alike = ring.place.purpose == "map" and replace(ring.place, name="") == replace(
                    other.place, name=""
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
    narrow = sorted({axis for rows in places for axis in rows.told_apart})
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
            lacking = ~rows.have(wanted, run, row, work)
            run = run[lacking]
            row = row[lacking]
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
        if present.all():
            return None
        return int(wanted.times[runs[np.argmin(present)]])


class _Place:
    """Loads of a constant into one place."""

    def __init__(self, ring: WrittenPlace, writes: Sequence[Write]) -> None:
        self.ring = ring
        self.pieces = [write.piece for write in writes]
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
        """(runs,) bool: whether one of the blocks loaded last is the wanted one, and is intact."""
        last = np.searchsorted(self.times, wanted.times[runs]) - 1
        present = np.zeros(len(runs), bool)
        for before in range(min(self.ring.place.slots * len(self.spans), MOST_BLOCKS)):
            lacking = np.flatnonzero(~present & (last >= before))
            if not len(lacking):
                break
            present[lacking] = self._intact(wanted, cut, runs[lacking], last[lacking] - before)
        return present

    def _intact(self, wanted: Wanted, cut: dict[int, AxisSpans], runs: Ints, last: Ints) -> Ints:
        """(runs,) bool: whether each load numbered `last` is of the wanted block, which is intact."""
        present = np.ones(len(runs), bool)
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
    if arrays:
        return np.concatenate(arrays)
    return np.zeros(0, np.int64)


def _changes(columns: Sequence[Ints]) -> Ints:
    """(entries,) bool: where any of the columns differs from the entry before."""
    changes = np.zeros(len(columns[0]), bool)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return changes
