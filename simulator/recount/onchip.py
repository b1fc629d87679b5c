"""What is on chip when it is read: every read of a schedule against everything that is ever written to its places.

A place is a ring: what is written last to a slot is there until something else is written to that slot, or to a place that has bytes in common with
this one. Rows of maps are followed one by one; where slots hold less than a whole row, also which part of the row. No values, no loops: all runs of a
step are looked up at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lfopt.ir import Place
from simulator.recount.needs import Part
from simulator.recount.progressions import Ints, Leaf


@dataclass(frozen=True, eq=False)
class Write:
    """All runs of a step that writes a box: rows of a map from slot `number` on, or a block of a constant."""

    leaf: Leaf
    starts: tuple[Ints, ...]  # per axis of the tensor, for every run
    extents: tuple[int, ...]
    number: Ints  # of the first slot
    row_axis: int | None  # None: there is one row, or it is a block
    offset: int = 0  # bytes from the start of the slot
    size: int = 0  # bytes from there on


@dataclass(frozen=True, eq=False)
class Wanted:
    """What all runs of a step read of something on chip."""

    times: Ints
    parts: tuple[Part | None, ...]  # per axis: start and stop, for every run; None: not known
    row_axis: int | None

    def only(self, where: Ints) -> Wanted:
        """Some of the runs."""
        return Wanted(self.times[where], tuple(part and (part[0][where], part[1][where]) for part in self.parts), self.row_axis)


@dataclass(eq=False)
class Ring:
    """A place, and everything that is written to it."""

    place: Place
    steps: int  # of the group
    writes: list[Write] = field(default_factory=list[Write])
    partners: list[Ring] = field(default_factory=list["Ring"])  # places that have bytes in common with this one
    narrow: tuple[int, ...] = ()  # axes along which a slot holds only a part of a row

    def close(self) -> None:
        """Sort what was written."""
        self.times = np.sort(np.concatenate([w.leaf.times for w in self.writes]) if self.writes else np.zeros(0, np.int64))
        self._sorted: dict[frozenset[int], Ints] = {}

    def clock(self, times: Ints) -> Ints:
        """A number that grows whenever something is written here or to a place that overlaps this one; what is written in a step comes after its reads."""
        found = np.searchsorted(self.times, times)
        for partner in self.partners:
            found += np.searchsorted(partner.times, times, side="right")
        return found

    def undisturbed(self, written: Ints, read: Ints) -> Ints:
        """Whether nothing was written to an overlapping place from one step to the other, both included."""
        found = np.ones(len(read), bool)
        for partner in self.partners:
            found &= np.searchsorted(partner.times, written) == np.searchsorted(partner.times, read, side="right")
        return found

    # -- rows --------------------------------------------------------------------------------------------------------------------------------

    def sort_rows(self) -> None:
        """Take down every row that is ever written, by row and by slot."""
        times: list[Ints] = []
        rows: list[Ints] = []
        slots: list[Ints] = []
        ends: list[list[Ints]] = [[] for _ in range(2 * len(self.narrow))]
        for w in self.writes:
            first, height = (w.starts[w.row_axis], w.extents[w.row_axis]) if w.row_axis is not None else (np.zeros_like(w.number), 1)
            further = np.arange(height, dtype=np.int64)
            times.append(np.repeat(w.leaf.times, height))
            rows.append((first[:, None] + further).reshape(-1))
            slots.append(((w.number[:, None] + further) % self.place.slots).reshape(-1))
            for k, axis in enumerate(self.narrow):
                ends[2 * k].append(np.repeat(w.starts[axis], height))
                ends[2 * k + 1].append(np.repeat(w.starts[axis] + w.extents[axis], height))
        self._times, self._rows, self._slots = (np.concatenate(found) if found else np.zeros(0, np.int64) for found in (times, rows, slots))
        self._ends = [np.concatenate(found) if found else np.zeros(0, np.int64) for found in ends]
        self._by_row, self._row_keys = self._order(self._rows)
        self._by_slot, self._slot_keys = self._order(self._slots)

    def _order(self, numbers: Ints) -> tuple[Ints, Ints]:
        keys = numbers * (self.steps + 1) + self._times
        order = np.argsort(keys, kind="stable")
        return order, keys[order]

    def has_rows(self, wanted: Wanted, run: Ints, row: Ints) -> Ints:
        """Whether rows are here when they are read: `row` in run `run` of what is wanted."""
        if not len(self._times):
            return np.zeros(len(row), bool)
        read = wanted.times[run]
        at = np.searchsorted(self._row_keys, row * (self.steps + 1) + read) - 1  # the last time that the row was written before
        last = self._by_row[np.maximum(at, 0)]
        found = (at >= 0) & (self._rows[last] == row)
        written = self._times[last]
        in_slot = self._by_slot[np.maximum(np.searchsorted(self._slot_keys, self._slots[last] * (self.steps + 1) + read) - 1, 0)]
        found &= (self._times[in_slot] == written) & (self._rows[in_slot] == row)
        for k, axis in enumerate(self.narrow):
            part = wanted.parts[axis]
            if part is not None:
                low, high = part[0][run], part[1][run]
                found &= (low >= high) | ((self._ends[2 * k][last] <= low) & (high <= self._ends[2 * k + 1][last]))
        return found & self.undisturbed(written, read)

    # -- blocks ------------------------------------------------------------------------------------------------------------------------------

    def keeps(self, write: Write, slots: Ints, written: Ints, read: Ints) -> Ints:
        """Whether blocks of a constant, written to these slots by these runs of a step, are still here when they are read."""
        rivals = frozenset(k for k, w in enumerate(self.writes) if w.offset < write.offset + write.size and write.offset < w.offset + w.size)
        if rivals not in self._sorted:
            keys = [self.writes[k].number % self.place.slots * (self.steps + 1) + self.writes[k].leaf.times for k in rivals]
            self._sorted[rivals] = np.sort(np.concatenate(keys)) if keys else np.zeros(1, np.int64)
        keys, base = self._sorted[rivals], slots * (self.steps + 1)
        last = keys[np.maximum(np.searchsorted(keys, base + read) - 1, 0)]
        kept = (last == base + written) if write.size else np.ones(len(read), bool)
        return kept & self.undisturbed(written, read)


def close(rings: Sequence[Ring]) -> None:
    """Find which places overlap, and sort what was written to each."""
    for k, ring in enumerate(rings):
        for other in rings[:k]:
            if max(ring.place.address, other.place.address) < min(ring.place.end, other.place.end):
                ring.partners.append(other)
                other.partners.append(ring)
        ring.close()


def missing_row(rings: Sequence[Ring], wanted: Wanted) -> tuple[int, int] | None:
    """(step, row) of the first read of a map that is in none of its places; None if all are served."""
    first, stop = wanted.parts[wanted.row_axis] or (None, None) if wanted.row_axis is not None else (None, None)
    if first is None or stop is None:
        first, stop = np.zeros_like(wanted.times), np.ones_like(wanted.times)
    # Of runs that read the same, with nothing written in between, one is looked at.
    narrow = sorted({axis for ring in rings for axis in ring.narrow})
    told_by = [first, stop, *(end for axis in narrow for end in wanted.parts[axis] or ()), *(ring.clock(wanted.times) for ring in rings)]
    runs = np.flatnonzero(_changes(told_by) & (stop > first))
    counts = stop[runs] - first[runs]
    run = np.repeat(runs, counts)
    row = first[run] + np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
    for ring in rings:
        lacking = ~ring.has_rows(wanted, run, row)
        run, row = run[lacking], row[lacking]
    return (int(wanted.times[run[0]]), int(row[0])) if len(run) else None


def missing_block(loads: Iterable[tuple[Ring, Write]], wanted: Wanted) -> int | None:
    """The first step that reads a constant that is not on chip, or of which another block is; None if all are served."""
    pairs = list(loads)
    if not pairs:
        return int(wanted.times[0])
    times = np.concatenate([w.leaf.times for _, w in pairs])
    source = np.repeat(np.arange(len(pairs)), [w.leaf.runs for _, w in pairs])
    order = np.argsort(times, kind="stable")
    times, source = times[order], source[order]
    ends = [part and (np.concatenate([w.starts[a] for _, w in pairs])[order], part) for a, part in enumerate(wanted.parts)]
    numbers = np.concatenate([w.number % ring.place.slots for ring, w in pairs])[order]
    extents = np.array([w.extents for _, w in pairs], np.int64)
    last = np.searchsorted(times, wanted.times) - 1
    told_by = [last, *(end for part in wanted.parts for end in part or ()), *(ring.clock(wanted.times) for ring in {id(r): r for r, _ in pairs}.values())]
    runs = np.flatnonzero(_changes(told_by))
    last = last[runs]
    if last[0] < 0:
        return int(wanted.times[0])
    found = np.ones(len(runs), bool)
    for axis, pair in enumerate(ends):
        if pair:
            start, (low, high) = pair
            begins = start[last]
            found &= (begins <= low[runs]) & (high[runs] <= begins + extents[source[last], axis])
    for k, (ring, write) in enumerate(pairs):
        here = np.flatnonzero(source[last] == k)
        found[here] &= ring.keeps(write, numbers[last[here]], times[last[here]], wanted.times[runs[here]])
    return None if found.all() else int(wanted.times[runs[np.argmin(found)]])


def _changes(columns: Sequence[Ints]) -> Ints:
    """Where any of the columns differs from the entry before."""
    found = np.zeros(len(columns[0]), bool)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found
