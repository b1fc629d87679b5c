"""The on-chip buffer of an execution: the values of rows of maps and of blocks of constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lfopt.ir import Box, Hardware, Place, box_shape, cut, row_axis, slices
from lfopt.ops.on_chip import NOTHING, Block, BufferContents, Ring, RowRun

Index = tuple[int | slice, ...]


class Overrun(Exception):
    """Something is written where there is no room."""


@dataclass(eq=False, slots=True)
class HeldBlock(Block):
    """A block of a constant, and its values."""

    values: np.ndarray = field(kw_only=True)  # (extents of the box)


@dataclass(eq=False, slots=True)
class RingBuffer(Ring):
    """Rows of a map in a place, and their values."""

    # like the frame, with as many rows as there are slots; slots first where there is no axis of rows
    values: np.ndarray = field(init=False)
    # bool, like the values: which elements of the rows were written; None: all
    valid: np.ndarray | None = None

    def __post_init__(self) -> None:
        shape = box_shape(self.frame)
        slots = len(self.table.rows)
        if self.axis is None:
            size = (slots, *shape)
        else:
            size = (*shape[: self.axis], slots, *shape[self.axis + 1 :])
        assert isinstance(self.kind, np.dtype)
        self.values = np.empty(size, self.kind)

    def has(self, part: Box | None, run: RowRun) -> bool:
        """Whether a part of these rows is here, and all of it was written."""
        if not Ring.has(self, part, run):
            return False
        return self.valid is None or bool(self.valid[self._index(part or self.frame, run)].all())

    def read(self, part: Box, run: RowRun) -> np.ndarray:
        """(extents of `part`, with the rows of the run) a view of the values."""
        return self.values[self._index(part, run)]

    def renew(self, slots: Sequence[int], part: Box) -> None:
        """Note that other rows come to these slots: what is not in `part` of them is invalid."""
        if self.valid is None and part != self.frame:
            self.valid = np.ones(self.values.shape, bool)
        if self.valid is not None:
            self.valid[(*(slice(None),) * (self.axis or 0), slots)] = False

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

    def _index(self, part: Box, run: RowRun) -> Index:
        """Index of a part of rows in `values`."""
        inside = (slice(None),) * len(part) if part == self.frame else slices(part, self.frame)
        _, slot, height = run
        if self.axis is None:
            return (slot, *inside)
        return (*inside[: self.axis], slice(slot, slot + height), *inside[self.axis + 1 :])


class Buffer(BufferContents[RingBuffer, HeldBlock]):
    """The places of a group with the values in them.

    What is no part of a constant cannot lie in a weight buffer, nor one elsewhere.
    """

    def __init__(self, hardware: Hardware, places: tuple[Place, ...]) -> None:
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
        super().__init__(places, hardware, RingBuffer)
        # per buffer: end of the highest place that held something
        self._peaks = dict.fromkeys(hardware.stores, 0)
        self._given = places
        self._touched = np.zeros(sum(self.ends.values()), bool)
        self._read: dict[str, tuple[int, Box, np.ndarray]] = {}  # per map: what was read last, and when

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

    def _touch(self, place: int, slot: int, size: int, count: int) -> None:
        """Count so many bytes of each of so many slots as touched."""
        where = self.places[place]
        pitch = where.slot_bytes
        start = where.address + slot * pitch
        if size == pitch:
            self._touched[start : start + count * pitch] = True
            return
        for begin in range(start, start + count * pitch, pitch):
            self._touched[begin : begin + size] = True

    def _place(self, place: int) -> Place:
        """A place by number."""
        if not 0 <= place < len(self.places):
            raise Overrun(f"there is no place {place}")
        return self.places[place]

    def _occupy(self, place: int, size: int, offset: int = 0, *, constant: bool = False) -> None:
        """Check that a place takes `size` bytes at `offset` of a slot."""
        where = self._place(place)
        if offset < 0 or offset + size > where.slot_bytes:
            raise Overrun(
                f"{size} bytes at offset {offset} overrun a slot of {where.slot_bytes} bytes "
                f"in place {where.name!r}"
            )
        store = self.hardware.store_of(where.purpose)
        if self.hardware.weight_buffer_bytes and constant != (store == "weight buffer"):
            raise Overrun(
                f"{'a constant' if constant else 'no constant'} is written to place {where.name!r}, "
                f"which lies in the {store}"
            )
        self._peaks[store] = max(self._peaks[store], self._given[place].end)

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
        accumulators. `together`: no row may take the slot of another. Raises Overrun for more rows than slots
        then, or bytes that do not fit.
        """
        axis = row_axis(shape)
        first, stop = (0, 1) if axis is None else box[axis]
        self.now += 1
        self._rings.setdefault(name, [])
        self._read.pop(name, None)
        if first >= stop:
            return
        where = self._place(place)
        if together and stop - first > where.slots:
            raise Overrun(f"{stop - first} rows overrun {where.slots} slots in place {where.name!r}")
        layout = self.layout(name, shape, box, place, sums=sums)
        self._occupy(place, layout.row_bytes)
        for ring, run, renewed, before in self.put_rows(layout, first, stop, number, values.dtype):
            start, slot, height = run
            if renewed:
                self._touch(place, slot, ring.row_bytes, height)
                ring.renew(renewed, layout.part)
            if before is not None:
                ring.join(run, before)
            ring.write(run, layout.part, _rows(values, axis, start - first, height))

    def read_rows(self, name: str, box: Box) -> np.ndarray:
        """(extents of the box) values of a map or of partial sums, not to be written to.

        Raises NotOnChip where a row is missing.
        """
        dropped = self.dropped.get(name, 0)
        when, what, values = self._read.get(name, (NOTHING, (), None))
        if when == dropped and what == box and values is not None:
            return values  # nothing of it came or went since
        axis = row_axis(box_shape(box))
        first, stop = (0, 1) if axis is None else box[axis]
        part = box if axis is None else cut(box, axis, (0, 1))
        parts = [ring.read(part, run) for ring, run in self.find_rows(name, first, stop, part)]
        values = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis or 0)
        self._read[name] = dropped, box, values
        return values

    def write_block(
        self, name: str, box: Box, values: np.ndarray, size: int, place: int, number: int, offset: int
    ) -> None:
        """Write a block of a constant, values (extents of the box), into a slot; `size`, `offset`: bytes."""
        self.now += 1
        self._occupy(place, size, offset, constant=True)
        block = HeldBlock(name, box, place, number, offset, values=values)
        self.put_block(block, size)
        self._touched[block.start : block.stop] = True

    def read_block(self, name: str, box: Box) -> np.ndarray:
        """(extents of the box) values of a constant on chip. Raises NotOnChip if no block has all of them."""
        block = self.find_block(name, box)
        return block.values[slices(box, block.box)]


def _rows(values: np.ndarray, axis: int | None, first: int, count: int) -> np.ndarray:
    """(extents of `count` rows) values from row number `first` on; all where there is no axis of rows."""
    if axis is None or count == values.shape[axis]:
        return values
    return values[(*(slice(None),) * axis, slice(first, first + count))]
