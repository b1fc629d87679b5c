"""The on-chip buffer of an execution: rows of maps and blocks of constants at byte addresses."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from operator import eq
from typing import NamedTuple

import numpy as np

from lfopt.ir import (
    Box,
    Hardware,
    Place,
    Tensor,
    box_shape,
    cut,
    in_line,
    row_axis,
    slices,
    store_ends,
    whole,
    within,
)
from lfopt.ops.part import hull

NOTHING = -1  # in place of the number of a row: the slot holds none
Index = tuple[int | slice, ...]


class NotOnChip(Exception):
    """Something is read that is not in the buffer."""


class Overrun(Exception):
    """Something is written where there is no room."""


@dataclass(eq=False, slots=True)
class HeldBlock:
    """A block of a constant at an address."""

    name: str
    start: int
    stop: int
    frame: Box  # what the values are of
    values: np.ndarray
    alive: bool = True


class RowRun(NamedTuple):
    """Consecutive rows in consecutive slots."""

    first: int  # row
    slot: int  # of the first row
    height: int

    @property
    def slots(self) -> slice:
        """The slots."""
        return slice(self.slot, self.slot + self.height)


@dataclass(eq=False, slots=True)
class RingBuffer:
    """Rows of a map, the same part of each, in a place: row r in slot (r + shift) modulo their number."""

    name: str
    frame: Box  # the part of a row; (0, 1) along the axis of rows
    axis: int | None  # of rows; None: the map is one row
    shift: int
    row_bytes: int
    rows: list[int]  # per slot: the row in it, or NOTHING
    # per slot: when the row in it came; of a row that is in two rings, the one that came last is read
    since: list[int]
    # like the frame, with as many rows as there are slots; slots first where there is no axis of rows
    values: np.ndarray
    # bool, like the values: which elements of the rows were written; None: all
    valid: np.ndarray | None = None

    @classmethod
    def empty(
        cls, name: str, frame: Box, axis: int | None, shift: int, row_bytes: int, slots: int, dtype: np.dtype
    ) -> RingBuffer:
        """A ring without rows."""
        shape = box_shape(frame)
        size = (slots, *shape) if axis is None else (*shape[:axis], slots, *shape[axis + 1 :])
        return cls(
            name, frame, axis, shift, row_bytes, [NOTHING] * slots, [NOTHING] * slots, np.empty(size, dtype)
        )

    def holds(self, run: RowRun) -> bool:
        """Whether the ring holds these rows."""
        first, slot, count = run
        return (
            self.rows[slot] == first if count == 1 else self.rows[run.slots] == [*range(first, first + count)]
        )

    def read(self, part: Box, first: int, stop: int) -> np.ndarray | None:
        """(extents of `part`, with rows `first` to `stop` - 1) values; None if any of them is missing.

        A view where the rows lie one after the other.
        """
        slots = len(self.rows)
        if stop - first > slots or not (part == self.frame or within(part, self.frame)):
            return None
        parts: list[np.ndarray] = []
        while first < stop:
            slot = (first + self.shift) % slots
            run = RowRun(first, slot, min(stop - first, slots - slot))
            index = self._index(part, run)
            if not self.holds(run) or (self.valid is not None and not self.valid[index].all()):
                return None
            parts.append(self.values[index])
            first += run.height
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=self.axis)

    def take(self, run: RowRun, part: Box, now: int) -> None:
        """Hold these rows from now on; `part` of them is written next, the rest is invalid until then."""
        rows = range(run.first, run.first + run.height)
        if self.valid is None and part != self.frame:
            self.valid = np.ones(self.values.shape, bool)
        fresh: list[int] | slice = run.slots
        if run.height > 1 and any(map(eq, self.rows[run.slots], rows)):  # some of them are here
            fresh = [slot for slot, row in enumerate(rows, run.slot) if self.rows[slot] != row]
            for slot in fresh:
                self.since[slot] = now
        else:
            self.since[fresh] = [now] * run.height
        if self.valid is not None:
            self.valid[(*(slice(None),) * (self.axis or 0), fresh)] = False
        self.rows[run.slots] = rows

    def write(self, run: RowRun, part: Box, values: np.ndarray, valid: np.ndarray | None = None) -> None:
        """Write values (extents of the part) of rows that it holds; `valid`: same shape, bool; None: all."""
        index = self._index(part, run)
        self.values[index] = values
        if self.valid is not None:
            self.valid[index] = True if valid is None else valid

    def join(self, run: RowRun, other: RingBuffer) -> None:
        """Copy the values of another ring: a part of the same rows, in the same slots."""
        index = other._index(other.frame, run)
        self.write(run, other.frame, other.values[index], None if other.valid is None else other.valid[index])

    def drop(self, first: int, stop: int) -> bool:
        """Drop the rows in these slots; whether the ring is empty then."""
        self.rows[first:stop] = [NOTHING] * (stop - first)
        return self.rows.count(NOTHING) == len(self.rows)

    def _index(self, part: Box, run: RowRun) -> Index:
        """Index of a part of rows in `values`."""
        inside = (slice(None),) * len(part) if part == self.frame else slices(part, self.frame)
        return (run.slot, *inside) if self.axis is None else _along(self.axis, run.slots, inside)


def _along(axis: int, span: slice, others: Index) -> Index:
    """An index with another span along one axis."""
    return (*others[:axis], span, *others[axis + 1 :])


class Buffer:
    """The bytes of the places of a group. Writing a byte ends whatever lay there.

    Those of a weight buffer are numbered from behind the last of the buffer on; what is no part of a constant
    cannot lie there, nor one elsewhere.
    """

    def __init__(self, hardware: Hardware, places: tuple[Place, ...]) -> None:
        self.hardware = hardware
        for place in places:
            store = hardware.store_of(place.purpose)
            if (
                place.slots < 1
                or place.slot_bytes < 0
                or place.address < 0
                or place.end >= hardware.stores[store]
            ):
                raise Overrun(
                    f"place {place.name!r} takes bytes {place.address} to {place.end}; the {store} has "
                    f"{hardware.stores[store]}"
                )
        self.ends = store_ends(places, hardware)
        # per buffer: end of the highest place that held something
        self._peaks = dict.fromkeys(hardware.stores, 0)
        self._apart = bool(hardware.weight_buffer_bytes)
        self._given, self.places = places, in_line(places, hardware, self.ends["buffer"])
        self._touched = np.zeros(sum(self.ends.values()), bool)
        self._rivals = [  # per place: others that share bytes with it
            [
                k
                for k, other in enumerate(self.places)
                if k != n and other.address < place.end and place.address < other.end
            ]
            for n, place in enumerate(self.places)
        ]
        # per place: those that hold rows
        self._rings: list[dict[tuple[str, Box, int, np.dtype], RingBuffer]] = [{} for _ in places]
        self._by_name: dict[str, list[RingBuffer]] = {}  # the same, per map
        self._starts: list[tuple[int, int]] = []  # (start, number) of the blocks alive, in order of address
        self._numbered: dict[int, HeldBlock] = {}
        self._count = 0
        self._blocks: dict[str, list[HeldBlock]] = {}
        self._changes: dict[str, int] = {}  # per map: how often its rows came or went
        self._read: dict[str, tuple[int, Box, np.ndarray]] = {}  # per map: what was read last, and when
        self._sizes: dict[tuple[Box, bool], int] = {}  # bytes of parts of rows

    @property
    def peak_bytes(self) -> int:
        """Bytes up to the end of the highest place of the buffer that held something."""
        return self._peaks["buffer"]

    @property
    def weight_peak_bytes(self) -> int:
        """Bytes up to the end of the highest place of the weight buffer; 0: there is none."""
        return self._peaks.get("weight buffer", 0)

    @property
    def touched_bytes(self) -> int:
        """Bytes of the buffer that were ever written, those of a weight buffer left out."""
        return int(self._touched[: self.ends["buffer"]].sum())

    def knows(self, name: str) -> bool:
        """Whether rows of a map of this name were ever written."""
        return name in self._by_name

    # -- claims ----------------------------------------------------------------------------------------------

    def _place(self, place: int) -> Place:
        """A place by number."""
        if not 0 <= place < len(self.places):
            raise Overrun(f"there is no place {place}")
        return self.places[place]

    def _occupy(self, place: int, size: int, offset: int = 0, *, constant: bool = False) -> Place:
        """The place of this number, checked to have room for `size` bytes at `offset` of a slot."""
        where = self._place(place)
        if offset < 0 or offset + size > where.slot_bytes:
            raise Overrun(
                f"{size} bytes at offset {offset} overrun a slot of {where.slot_bytes} bytes "
                f"in place {where.name!r}"
            )
        store = self.hardware.store_of(where.purpose)
        if self._apart and constant != (store == "weight buffer"):
            raise Overrun(
                f"{'a constant' if constant else 'no constant'} is written to place {where.name!r}, "
                f"which lies in the {store}"
            )
        self._peaks[store] = max(self._peaks[store], self._given[place].end)
        return where

    def _claim(
        self, place: int, start: int, size: int, count: int = 1, ring: RingBuffer | None = None
    ) -> None:
        """Take so many bytes of each of so many slots; what overlaps them is gone.

        `ring`: whose rows come there.
        """
        if not size:
            return
        pitch = self.places[place].slot_bytes
        stop = start + (count - 1) * pitch + size
        # in its own place rows begin where slots do: none lies in the rest of a slot alone
        self._end_rows(place, start, stop, ring)
        for begin, end in (
            [(start, stop)] if size == pitch else [(at, at + size) for at in range(start, stop, pitch)]
        ):
            self._touched[begin:end] = True
            self._end_blocks(begin, end)
            for rival in self._rivals[place]:
                self._end_rows(rival, begin, end)

    def _end_rows(self, place: int, start: int, stop: int, but: RingBuffer | None = None) -> None:
        """Drop the rows in a place that overlap these bytes, but for those of one ring."""
        where = self.places[place]
        for key, ring in [*self._rings[place].items()]:
            # slot whose row ends behind `start`
            first = max((start - where.address - ring.row_bytes) // where.slot_bytes + 1, 0)
            # slot that does not begin before `stop`
            behind = min(-((where.address - stop) // where.slot_bytes), where.slots)
            if ring is but or first >= behind:
                continue
            self._changes[ring.name] += 1
            if ring.drop(first, behind):
                del self._rings[place][key]
                self._by_name[ring.name].remove(ring)

    def _end_blocks(self, start: int, stop: int) -> None:
        """Drop the blocks of constants that overlap these bytes."""
        at = max(bisect_left(self._starts, (start, NOTHING)) - 1, 0)
        while at < len(self._starts) and self._starts[at][0] < stop:
            number = self._starts[at][1]
            if self._numbered[number].stop > start:
                self._numbered.pop(number).alive = False
                del self._starts[at]
            else:
                at += 1

    # -- rows of maps ----------------------------------------------------------------------------------------

    def _row_bytes(self, part: Box, *, sums: bool) -> int:
        """Bytes of a part of a row, as a map or as sums."""
        if (part, sums) not in self._sizes:
            size = self.hardware.row_bytes(Tensor("", box_shape(part), ""))
            self._sizes[part, sums] = self.hardware.sums_bytes(size) if sums else size
        return self._sizes[part, sums]

    def write_rows(
        self,
        name: str,
        shape: tuple[int, ...],
        box: Box,
        values: np.ndarray,
        place: int,
        number: int,
        *,
        sums: bool = False,
        together: bool = False,
    ) -> None:
        """Write a box of a map, row by row, into the slots from `number` on.

        `values`: (extents of the box); `shape`: of the map. Partial sums (`sums`) take the bytes of
        accumulators. A slot that has room for whole rows takes every part of one where it belongs. Else a
        part joins what the slot holds of its row, if there is room for both, or takes its place. `together`:
        no row may take the slot of another. Raises Overrun for more rows than slots then, or bytes that do
        not fit.
        """
        axis = row_axis(shape)
        first, stop = (0, 1) if axis is None else box[axis]
        self._by_name.setdefault(name, [])
        self._changes[name] = self._changes.get(name, 0) + 1
        if first >= stop:
            return
        where = self._place(place)
        if together and stop - first > where.slots:
            raise Overrun(f"{stop - first} rows overrun {where.slots} slots in place {where.name!r}")
        part, row = (
            (box, whole(shape)) if axis is None else (cut(box, axis, (0, 1)), cut(whole(shape), axis, (0, 1)))
        )
        frame = row if self._row_bytes(row, sums=sums) <= where.slot_bytes else part
        self._occupy(place, size := self._row_bytes(frame, sums=sums))
        if not size:
            return
        done = 0
        while done < stop - first:
            slot = (number + done) % where.slots
            run = RowRun(first + done, slot, min(stop - first - done, where.slots - slot))
            rows = (
                values
                if axis is None or run.height == stop - first
                else _rows(values, axis, done, run.height)
            )
            self._write_run(name, axis, run, part, frame, rows, place, sums=sums)
            done += run.height

    def _write_run(
        self,
        name: str,
        axis: int | None,
        run: RowRun,
        part: Box,
        frame: Box,
        values: np.ndarray,
        place: int,
        *,
        sums: bool,
    ) -> None:
        """Write a part of rows that lie one after the other, to the ring of a frame around it."""
        where, rings = self.places[place], self._rings[place]
        before: RingBuffer | None = None  # what the slots hold of the rows, and that the part joins
        if frame == part and (beside := self._beside(place, name, run)):
            if axis is not None and run.height > 1 and (len(beside) > 1 or not beside[0].holds(run)):
                for k in range(run.height):
                    one = RowRun(run.first + k, run.slot + k, 1)
                    self._write_run(name, axis, one, part, frame, _rows(values, axis, k, 1), place, sums=sums)
                return
            both = hull([beside[0].frame, part])
            if self._row_bytes(both, sums=sums) <= where.slot_bytes:
                before, frame = beside[0], both
        key = (name, frame, (run.slot - run.first) % where.slots, values.dtype)
        size = self._row_bytes(frame, sums=sums)
        if key not in rings:
            rings[key] = RingBuffer.empty(name, frame, axis, key[2], size, where.slots, values.dtype)
            self._by_name[name].append(rings[key])
        ring = rings[key]
        if not ring.holds(run):
            self._claim(place, where.address + run.slot * where.slot_bytes, size, run.height, ring)
            ring.take(run, part, self._changes[name])
            if before is not None:
                ring.join(run, before)
        ring.write(run, part, values)

    def _beside(self, place: int, name: str, run: RowRun) -> list[RingBuffer]:
        """Rings of a map that hold some of these rows in these slots."""
        rows = range(run.first, run.first + run.height)
        return [
            ring
            for ring in self._rings[place].values()
            if ring.name == name and any(map(eq, ring.rows[run.slots], rows))
        ]

    def read_rows(self, name: str, box: Box) -> np.ndarray:
        """(extents of the box) values of a map or of partial sums, not to be written to.

        Raises NotOnChip where a row is missing.
        """
        change = self._changes.get(name, 0)
        when, what, values = self._read.get(name, (NOTHING, (), None))
        if when == change and what == box and values is not None:
            return values  # nothing of it came or went since
        axis = row_axis(box_shape(box))
        first, stop = (0, 1) if axis is None else box[axis]
        part = box if axis is None else cut(box, axis, (0, 1))
        rings = self._by_name.get(name, [])
        values = rings[0].read(part, first, stop) if len(rings) == 1 else None
        if values is None:
            values = np.concatenate(
                [self._read_row(rings, name, part, row) for row in range(first, stop)], axis=axis or 0
            )
        self._read[name] = change, box, values
        return values

    @staticmethod
    def _read_row(rings: list[RingBuffer], name: str, part: Box, row: int) -> np.ndarray:
        """A part of a row, from the ring that it came to last."""
        versions = [
            (ring.since[(row + ring.shift) % len(ring.rows)], values)
            for ring in rings
            if (values := ring.read(part, row, row + 1)) is not None
        ]
        if not versions:
            raise NotOnChip(f"row {row} of {name!r} is not on chip")
        return max(versions, key=lambda one: one[0])[1]

    # -- blocks of constants ---------------------------------------------------------------------------------

    def write_block(
        self, name: str, box: Box, values: np.ndarray, size: int, place: int, number: int, offset: int
    ) -> None:
        """Write a block of a constant, values (extents of the box), into a slot; `size`, `offset`: bytes."""
        where = self._occupy(place, size, offset, constant=True)
        start = where.address + number % where.slots * where.slot_bytes + offset
        self._claim(place, start, size)
        block = HeldBlock(name, start, start + size, box, values)
        if size:
            insort(self._starts, (start, self._count))
            self._numbered[self._count] = block
            self._count += 1
        self._blocks[name] = [*(other for other in self._blocks.get(name, ()) if other.alive), block]

    def read_block(self, name: str, box: Box) -> np.ndarray:
        """(extents of the box) values of a constant on chip. Raises NotOnChip if no block has all of them."""
        for block in reversed(self._blocks.get(name, [])):
            if block.alive and within(box, block.frame):
                return block.values[slices(box, block.frame)]
        raise NotOnChip(f"constant {name!r} {list(box)} is not on chip")


def _rows(values: np.ndarray, axis: int, first: int, count: int) -> np.ndarray:
    """So many rows, from the first on."""
    return values[(*(slice(None),) * axis, slice(first, first + count))]
