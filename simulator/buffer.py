"""The on-chip buffer of an execution: bytes with addresses, and what lies in them."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from lfopt.ir import Box, Hardware, Place, Tensor, box_shape, cut, in_line, row_axis, slices, store_ends, whole, within
from lfopt.ops.part import hull


class NotOnChip(Exception):
    """Something is read that is not in the buffer."""


class Overrun(Exception):
    """Something is written where there is no room."""


@dataclass(eq=False, slots=True)
class Piece:
    """A row of a map, or a block of a constant, at an address."""

    name: str
    start: int
    stop: int
    frame: Box  # what the values are of
    values: np.ndarray
    valid: np.ndarray | None  # bool, like the values: which elements were written; None: all
    alive: bool = True


class Buffer:
    """The bytes of the places of a group. Writing a byte ends whatever lay there.

    Those of a weight buffer are numbered from behind the last of the buffer on; what is no part of a constant cannot lie there, nor one elsewhere.
    """

    def __init__(self, hardware: Hardware, places: tuple[Place, ...]) -> None:
        self.hardware = hardware
        for place in places:
            store = hardware.store_of(place.purpose)
            if place.slots < 1 or place.slot_bytes < 0 or place.address < 0 or place.end >= hardware.stores[store]:
                raise Overrun(f"place {place.name!r} takes bytes {place.address} to {place.end}; the {store} has {hardware.stores[store]}")
        self.ends = store_ends(places, hardware)
        self._peaks = dict.fromkeys(hardware.stores, 0)  # per buffer: end of the highest place that held something
        self._apart = bool(hardware.weight_buffer_bytes)
        self._given, self.places = places, in_line(places, hardware, self.ends["buffer"])
        self._touched = np.zeros(sum(self.ends.values()), bool)
        self._starts: list[tuple[int, int]] = []  # (start, number) of the pieces alive, in order of address
        self._numbered: dict[int, Piece] = {}
        self._count = 0
        self._rows: dict[str, dict[int, list[Piece]]] = {}
        self._blocks: dict[str, list[Piece]] = {}
        self._changes: dict[str, int] = {}  # per name: how often its pieces came or went
        self._read: dict[str, tuple[int, Box, np.ndarray]] = {}  # per name: what was read last, and when

    @property
    def peak_bytes(self) -> int:
        """End of the highest place of the buffer that held something."""
        return self._peaks["buffer"]

    @property
    def weight_peak_bytes(self) -> int:
        """The same of a weight buffer; 0: there is none."""
        return self._peaks.get("weight buffer", 0)

    @property
    def touched_bytes(self) -> int:
        """Bytes of the buffer that were ever written, those of a weight buffer left out."""
        return int(self._touched[: self.ends["buffer"]].sum())

    def knows(self, name: str) -> bool:
        """Whether anything ever came here under this name."""
        return name in self._rows

    # -- claims ------------------------------------------------------------------------------------------------------------------------------

    def _claim(self, piece: Piece) -> Piece:
        """Take the bytes of a piece; what overlaps them is gone."""
        if piece.stop > piece.start:
            at = max(bisect_left(self._starts, (piece.start, -1)) - 1, 0)
            while at < len(self._starts) and self._starts[at][0] < piece.stop:
                other = self._numbered[self._starts[at][1]]
                if other.stop > piece.start:
                    other.alive = False
                    self._changes[other.name] = self._changes.get(other.name, 0) + 1
                    del self._numbered[self._starts[at][1]], self._starts[at]
                else:
                    at += 1
            insort(self._starts, (piece.start, self._count))
            self._numbered[self._count] = piece
            self._count += 1
            self._touched[piece.start : piece.stop] = True
        return piece

    def _slot(self, place: int, number: int, size: int, offset: int = 0, *, constant: bool = False) -> tuple[int, int]:
        """Address of so many bytes in a slot."""
        if not 0 <= place < len(self.places):
            raise Overrun(f"there is no place {place}")
        where = self.places[place]
        if offset < 0 or offset + size > where.slot_bytes:
            raise Overrun(f"{size} bytes at offset {offset} overrun a slot of {where.slot_bytes} bytes in place {where.name!r}")
        store = self.hardware.store_of(where.purpose)
        if self._apart and constant != (store == "weight buffer"):
            raise Overrun(f"{'a constant' if constant else 'no constant'} is written to place {where.name!r}, which lies in the {store}")
        self._peaks[store] = max(self._peaks[store], self._given[place].end)
        start = where.address + number % where.slots * where.slot_bytes + offset
        return start, start + size

    # -- rows of maps ------------------------------------------------------------------------------------------------------------------------

    def _row_bytes(self, row: Box, *, sums: bool) -> int:
        size = self.hardware.row_bytes(Tensor("", box_shape(row), ""))
        return self.hardware.sums_bytes(size) if sums else size

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
        """Write a box of a map of this shape, row by row, into the slots from `number` on; partial sums take the bytes of accumulators.

        `together`: no row may take the slot of another.
        """
        axis = row_axis(shape)
        first, stop = (0, 1) if axis is None else box[axis]
        if together and 0 <= place < len(self.places) and stop - first > self.places[place].slots:
            raise Overrun(f"{stop - first} rows overrun {self.places[place].slots} slots in place {self.places[place].name!r}")
        everything = whole(shape) if axis is None else cut(whole(shape), axis, (0, 1))
        fits = self._row_bytes(everything, sums=sums) <= self.places[place].slot_bytes if 0 <= place < len(self.places) else False
        rows = self._rows.setdefault(name, {})
        self._changes[name] = self._changes.get(name, 0) + 1
        for k in range(stop - first):
            row = first + k
            part = box if axis is None else cut(box, axis, (row, row + 1))
            found = values if axis is None else values[(slice(None),) * axis + (slice(k, k + 1),)]
            frame = part if not fits else whole(shape) if axis is None else cut(whole(shape), axis, (row, row + 1))
            start, end = self._slot(place, number + k, self._row_bytes(frame, sums=sums))
            pieces = [piece for piece in rows.get(row, ()) if piece.alive]
            before = next((piece for piece in pieces if piece.start == start), None)
            if before is not None and not fits:  # a part that has room beside what the slot holds of the row joins it
                both = hull([before.frame, part])
                if (size := self._row_bytes(both, sums=sums)) <= self.places[place].slot_bytes:
                    frame, end = both, start + size
            here = before if before is not None and before.frame == frame else None
            if here is None:
                values_here = np.empty(box_shape(frame), found.dtype)
                here = self._claim(Piece(name, start, end, frame, values_here, None if frame == part else np.zeros(box_shape(frame), bool)))
                if here.valid is not None and before is not None and within(before.frame, frame):
                    index = slices(before.frame, frame)
                    here.values[index] = before.values
                    here.valid[index] = True if before.valid is None else before.valid
                rows[row] = [*(piece for piece in pieces if piece.alive), here]
            index = slices(part, frame)
            here.values[index] = found
            if here.valid is not None:
                here.valid[index] = True

    def read_rows(self, name: str, box: Box) -> np.ndarray:
        """A box of a map (or partial sums), of rows that are all here. Not to be written to."""
        change = self._changes.get(name, 0)
        when, what, values = self._read.get(name, (-1, (), None))
        if when == change and what == box and values is not None:
            return values  # nothing of it came or went since
        axis = row_axis(box_shape(box))
        first, stop = (0, 1) if axis is None else box[axis]
        rows = self._rows.get(name, {})
        found: list[np.ndarray] = []
        for row in range(first, stop):
            part = box if axis is None else cut(box, axis, (row, row + 1))
            for piece in reversed(rows.get(row, ())):
                if piece.alive and within(part, piece.frame):
                    index = slices(part, piece.frame)
                    if piece.valid is None or piece.valid[index].all():
                        found.append(piece.values[index])
                        break
            else:
                raise NotOnChip(f"row {row} of {name!r} is not on chip")
        values = found[0] if len(found) == 1 else np.concatenate(found, axis=axis)
        self._read[name] = change, box, values
        return values

    # -- blocks of constants -----------------------------------------------------------------------------------------------------------------

    def write_block(self, name: str, box: Box, values: np.ndarray, size: int, place: int, number: int, offset: int) -> None:
        """Write a block of a constant into a slot."""
        start, end = self._slot(place, number, size, offset, constant=True)
        block = self._claim(Piece(name, start, end, box, values, None))
        self._blocks[name] = [*(piece for piece in self._blocks.get(name, ()) if piece.alive), block]

    def read_block(self, name: str, box: Box) -> np.ndarray:
        """A part of a constant that is here."""
        for piece in reversed(self._blocks.get(name, [])):
            if piece.alive and within(box, piece.frame):
                return piece.values[slices(box, piece.frame)]
        raise NotOnChip(f"constant {name!r} {list(box)} is not on chip")
