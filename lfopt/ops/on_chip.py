"""Contents of the places of a group while its steps run: which rows and blocks lie in which slot, since when.

The interpreter (`simulator.interpreter.buffer`), the occupancy (`simulator.model.occupancy`) and the encoder
of the accelerator (`codegen.accel.chip`) all follow the steps of a group with `BufferContents`. Three others
do not: the recount (`simulator.recount.onchip`) shares nothing, on purpose; the C that counts
(`codegen/chip.h`) looks its elements up while it runs; and the cycle model (`simulator.model.queues`) times
the uses of slots, in every search: of a map it keeps the place to which it came last, not the rows in it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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
    store_ends,
    whole,
    within,
)
from lfopt.ops import attention, statistics
from lfopt.ops.call import Call
from lfopt.ops.part import hull
from lfopt.ops.statistics import has_statistics

NOTHING = -1  # in place of a row or of the number of a block: the slot holds none
# consecutive rows in consecutive slots: (first row, its slot, how many); a plain tuple, for speed
RowRun = tuple[int, int, int]


class NotOnChip(Exception):
    """Something is read that is not in the buffer; `row`: the first row that is missing, of a map."""

    def __init__(self, message: str, row: int = NOTHING) -> None:
        super().__init__(message)
        self.row = row


@dataclass(eq=False, slots=True)
class SlotTable:
    """Content of every slot of a place."""

    place: int  # its index in the group
    address: int  # bytes from the start of the buffer
    slot_bytes: int
    rings: list[Ring | None]  # the ring whose row lies in the slot
    rows: list[int]  # the row, or the number of the blocks; NOTHING: the slot holds none
    since: list[int]  # step that wrote the content
    used: list[int]  # last step that wrote or read it
    blocks: dict[int, list[Block]] = field(default_factory=dict[int, "list[Block]"])  # intact ones, by slot
    held: int = 0  # rows and intact blocks in the place

    @classmethod
    def of(cls, number: int, place: Place) -> SlotTable:
        """The table of an empty place, which is number `number` of its group."""
        count = place.slots
        nothing = [NOTHING] * count
        return cls(number, place.address, place.slot_bytes, [None] * count, nothing, [*nothing], [*nothing])


@dataclass(eq=False, slots=True)
class Ring:
    """Rows of a map in a place, the same part of each: row r in slot (r + shift) modulo their number."""

    name: str
    frame: Box  # the part of a row; (0, 1) along the axis of rows
    axis: int | None  # of rows; None: the map is one row
    shift: int
    row_bytes: int
    kind: Hashable  # type of the elements; None: not told
    table: SlotTable  # of the place
    held: int = 0  # rows

    def holds(self, run: RowRun) -> bool:
        """Whether the ring holds these rows."""
        first, slot, height = run
        rings = self.table.rings
        rows = self.table.rows
        if height == 1:
            return rows[slot] == first and rings[slot] is self
        end = slot + height
        return rows[slot:end] == [*range(first, first + height)] and rings[slot:end] == [self] * height

    def has(self, part: Box | None, run: RowRun) -> bool:
        """Whether a part of these rows can be read; None: any."""
        return (part is None or part == self.frame or within(part, self.frame)) and self.holds(run)


@dataclass(eq=False, slots=True)
class Block:
    """A block of a constant."""

    name: str
    box: Box
    place: int  # its index in the group
    number: int  # it lies in the slot of this number modulo their count
    offset: int  # bytes from the start of the slot
    start: int = 0  # first byte
    stop: int = 0  # first byte behind
    intact: bool = True  # nothing has been written over it


RingType = TypeVar("RingType", bound=Ring)
BlockType = TypeVar("BlockType", bound=Block)


@dataclass(frozen=True, eq=False, slots=True)
class RowLayout(Generic[RingType]):
    """How a part of the rows of a map lies in the slots of a place.

    A slot that has room for whole rows takes every part where it belongs. Else a part joins what the slot
    holds of its row, if there is room for both, or takes its place.
    """

    name: str
    place: int
    axis: int | None  # of rows
    part: Box  # of a row; (0, 1) along the axis of rows
    frame: Box  # what a slot is laid out for: whole rows, or the part
    row_bytes: int  # of the frame
    sums: bool  # partial sums, in the bytes of accumulators
    whole_rows: bool  # whether a slot has room for whole rows
    rings: dict[tuple[int, Hashable], RingType]  # of the frame in the place: by shift and kind


# Rows that were written: (ring, rows, slots that held others before, ring that held a part of the same rows
# there, which the new part joins)
RowWrite = tuple[RingType, RowRun, Sequence[int], RingType | None]


class BufferContents(Generic[RingType, BlockType]):
    """Rows of maps and blocks of constants in the places of a group. Writing a byte ends whatever lay there.

    Those of a weight buffer are numbered from behind the last byte of the buffer on.
    """

    def __init__(
        self,
        places: Sequence[Place],
        hardware: Hardware,
        ring: Callable[..., RingType],
        *,
        lives: bool = False,
    ) -> None:
        """`ring`: makes a ring from the fields of Ring; `lives`: keep those of what is overwritten."""
        self.hardware = hardware
        self.ends = store_ends(places, hardware)
        self.places = in_line(places, hardware, self.ends["buffer"])
        self.now = 0  # number of the step at hand, set by the caller
        self._ring = ring
        self._lives = list[int]() if lives else None
        self._tables: dict[int, SlotTable] = {}  # of places that were written to
        self._rivals = [  # per place: others that share bytes with it
            [
                k
                for k, other in enumerate(self.places)
                if k != n and other.address < place.end and place.address < other.end
            ]
            for n, place in enumerate(self.places)
        ]
        self._rings: dict[str, list[RingType]] = {}  # per map: those that hold rows of it
        # the same by place, map and frame, then by shift and kind
        self._framed: dict[tuple[int, str, Box], dict[tuple[int, Hashable], RingType]] = {}
        self._blocks: dict[str, list[BlockType]] = {}  # per constant
        self._layouts: dict[tuple[int, str, Box, bool], RowLayout[RingType]] = {}
        self._sizes: dict[tuple[Box, bool], int] = {}  # bytes of parts of rows
        self.dropped: dict[str, int] = {}  # per map: step in which a row of it was last overwritten

    def lives(self) -> np.ndarray:
        """(lives, 3) int64: place, first and last step of everything that was written, where lives are kept.

        A slot is taken by one content, a row or the blocks of one number, from the step that wrote it to the
        last step that wrote or read it.
        """
        lives = [*(self._lives or ())]
        for table in self._tables.values():
            for row, since, used in zip(table.rows, table.since, table.used, strict=True):
                if row != NOTHING:
                    lives += (table.place, since, used)
        return np.array(lives, np.int64).reshape(-1, 3)

    def knows(self, name: str) -> bool:
        """Whether rows of a map of this name were ever written."""
        return name in self._rings

    # -- bytes -----------------------------------------------------------------------------------------------

    def _claim(self, place: int, start: int, size: int, count: int = 1) -> None:
        """Take so many bytes of each of so many slots; what overlaps them in other places is gone."""
        pitch = self.places[place].slot_bytes
        for rival in self._rivals[place]:
            if size == pitch:
                self._end(rival, start, start + count * pitch)
                continue
            for begin in range(start, start + count * pitch, pitch):
                self._end(rival, begin, begin + size)

    def _table(self, place: int) -> SlotTable:
        if place not in self._tables:
            self._tables[place] = SlotTable.of(place, self.places[place])
        return self._tables[place]

    def _end(self, place: int, start: int, stop: int) -> None:
        """Drop the rows and blocks in a place that overlap these bytes."""
        table = self._tables.get(place)
        if table is None or not table.held:
            return
        pitch = table.slot_bytes
        address = table.address
        first = max((start - address) // pitch, 0)
        behind = min(-((address - stop) // pitch), len(table.rows))
        for slot in range(first, behind):
            ring = table.rings[slot]
            if ring is not None and address + slot * pitch + ring.row_bytes > start:
                self._release(ring)
                table.rings[slot] = None
                table.held -= 1
                self._end_life(table, slot)
                table.rows[slot] = NOTHING
            if slot in table.blocks:
                self._end_blocks(table, slot, start, stop)

    def _end_blocks(self, table: SlotTable, slot: int, start: int, stop: int) -> None:
        """Drop the blocks in a slot that overlap these bytes."""
        left: list[Block] = []
        for block in table.blocks[slot]:
            block.intact = block.stop <= start or stop <= block.start
            if block.intact:
                left.append(block)
        table.held -= len(table.blocks[slot]) - len(left)
        table.blocks[slot] = left

    def _release(self, ring: Ring) -> None:
        """Note that a row is no longer in its ring, and drop the ring after its last one."""
        self.dropped[ring.name] = self.now
        ring.held -= 1
        if not ring.held:
            rings = self._framed[ring.table.place, ring.name, ring.frame]
            self._rings[ring.name].remove(rings.pop((ring.shift, ring.kind)))

    def _end_life(self, table: SlotTable, slot: int) -> None:
        """Keep the life of what a slot holds, which something else overwrites in this step."""
        if self._lives is not None:
            since = table.since[slot]
            last = table.used[slot]
            if last == self.now > since:
                last -= 1
            self._lives += (table.place, since, last)

    # -- rows of maps ----------------------------------------------------------------------------------------

    def part_bytes(self, part: Box, *, sums: bool = False) -> int:
        """Bytes of a part of a row, as a map or as sums."""
        if (part, sums) not in self._sizes:
            size = self.hardware.row_bytes(Tensor("", box_shape(part), ""))
            self._sizes[part, sums] = self.hardware.sums_bytes(size) if sums else size
        return self._sizes[part, sums]

    def layout(
        self, name: str, shape: tuple[int, ...], box: Box, place: int, *, sums: bool = False
    ) -> RowLayout[RingType]:
        """How rows of a box of a map lie in a place; `shape`: of the map, or of what is kept of its sums."""
        axis = row_axis(shape)
        part = box if axis is None else (*box[:axis], (0, 1), *box[axis + 1 :])
        layout = self._layouts.get((place, name, part, sums))
        if layout is None:
            row = whole(shape) if axis is None else cut(whole(shape), axis, (0, 1))
            fits = self.part_bytes(row, sums=sums) <= self.places[place].slot_bytes
            frame = row if fits else part
            size = self.part_bytes(frame, sums=sums)
            rings = self._framed.setdefault((place, name, frame), {})
            layout = RowLayout(name, place, axis, part, frame, size, sums, fits, rings)
            self._layouts[place, name, part, sums] = layout
        return layout

    def put_rows(
        self, layout: RowLayout[RingType], first: int, stop: int, number: int, kind: Hashable = None
    ) -> list[RowWrite[RingType]]:
        """Write the rows `first` to `stop` - 1 into the slots from `number` on; the runs of rows, in order.

        What overlaps them is gone. Rows of several kinds of elements never share a ring.
        """
        name = layout.name
        if name not in self._rings:
            self._rings[name] = []
        writes: list[RowWrite[RingType]] = []
        if not layout.row_bytes:
            return writes
        table = self._tables.get(layout.place) or self._table(layout.place)
        count = len(table.rows)
        while first < stop:
            slot = number % count
            height = min(stop - first, count - slot)
            run = (first, slot, height)
            if layout.whole_rows:
                shift = (slot - first) % count
                ring = layout.rings.get((shift, kind)) or self._ring_of(layout, layout.frame, shift, kind)
                writes.append((ring, run, self._take(ring, run), None))
            else:
                writes += self._put_part(layout, table, run, kind)
            first += height
            number += height
        return writes

    def _put_part(
        self, layout: RowLayout[RingType], table: SlotTable, run: RowRun, kind: Hashable
    ) -> Iterator[RowWrite[RingType]]:
        """Write a part of rows that lie one after the other, in slots that have no room for whole ones."""
        beside = self._beside(table, layout.name, run)
        first, slot, height = run
        if height > 1 and beside and (len(beside) > 1 or not beside[0].holds(run)):
            for k in range(height):
                yield from self._put_part(layout, table, (first + k, slot + k, 1), kind)
            return
        frame = layout.frame
        before: RingType | None = None
        if beside:
            both = hull([beside[0].frame, layout.part])
            if self.part_bytes(both, sums=layout.sums) <= table.slot_bytes:
                frame = both
                before = beside[0]
        ring = self._ring_of(layout, frame, (slot - first) % len(table.rows), kind)
        yield ring, run, self._take(ring, run), before if before is not ring else None

    def _ring_of(self, layout: RowLayout[RingType], frame: Box, shift: int, kind: Hashable) -> RingType:
        """The ring for this part of rows, a new one if there is none."""
        rings = self._framed.setdefault((layout.place, layout.name, frame), {})
        ring = rings.get((shift, kind))
        if ring is None:
            size = self.part_bytes(frame, sums=layout.sums)
            table = self._table(layout.place)
            ring = self._ring(layout.name, frame, layout.axis, shift, size, kind, table)
            rings[shift, kind] = ring
            self._rings[layout.name].append(ring)
        return ring

    def _beside(self, table: SlotTable, name: str, run: RowRun) -> list[RingType]:
        """Rings of a map that hold some of these rows in these slots."""
        first, slot, height = run
        shift = slot - first
        holding = {
            table.rings[row + shift] for row in range(first, first + height) if table.rows[row + shift] == row
        }
        return [ring for ring in self._rings[name] if ring in holding]

    def _take(self, ring: RingType, run: RowRun) -> Sequence[int]:
        """Hold rows in a ring from now on; the slots of those that it did not hold."""
        table = ring.table
        now = self.now
        first, start, height = run
        rings = table.rings
        rows = table.rows
        since = table.since
        used = table.used
        renewed: list[int] = []
        slot = start
        for row in range(first, first + height):
            held = rings[slot]
            if held is not ring:
                ring.held += 1
                rings[slot] = ring
                if held is None:
                    table.held += 1
                    since[slot] = now
                else:
                    self._release(held)
                    if held.name != ring.name or rows[slot] != row:  # else parts of a row follow each other
                        self._end_life(table, slot)
                        since[slot] = now
                rows[slot] = row
                renewed.append(slot)
            elif rows[slot] != row:
                if self._lives is not None:
                    self._end_life(table, slot)
                rows[slot] = row
                since[slot] = now
                renewed.append(slot)
            used[slot] = now
            slot += 1
        if renewed and table.blocks:
            for slot in renewed:
                if slot in table.blocks:
                    begin = table.address + slot * table.slot_bytes
                    self._end_blocks(table, slot, begin, begin + ring.row_bytes)
        if renewed and self._rivals[table.place]:
            self._claim(table.place, table.address + start * table.slot_bytes, ring.row_bytes, height)
        return renewed

    def rows_on_chip(
        self, name: str, first: int, stop: int, part: Box | None = None
    ) -> list[tuple[RingType, RowRun]]:
        """Where a part of the rows `first` to `stop` - 1 of a map lies, those that are on chip, in order.

        Of a row that is in several rings, the one that came last is read. None: any part. The step at hand
        uses what is read.
        """
        rings = self._rings.get(name, [])
        if len(rings) == 1:
            ring = rings[0]
            table = ring.table
            slot = (first + ring.shift) % len(table.rows)
            end = slot + stop - first
            run = (first, slot, stop - first)
            if slot < end <= len(table.rows) and ring.has(part, run):
                table.used[slot:end] = [self.now] * (end - slot)
                return [(ring, run)]
        return self._row_by_row(rings, first, stop, part)

    def _row_by_row(
        self, rings: list[RingType], first: int, stop: int, part: Box | None
    ) -> list[tuple[RingType, RowRun]]:
        """Where rows lie that are not all in one ring; neighbours in one ring are one run."""
        lying: list[tuple[RingType, RowRun]] = []
        for row in range(first, stop):
            last: tuple[int, RingType, int] | None = None  # when it came, to which ring and slot
            for ring in rings:
                slot = (row + ring.shift) % len(ring.table.rows)
                since = ring.table.since[slot]
                if (last is None or since > last[0]) and ring.has(part, (row, slot, 1)):
                    last = since, ring, slot
            if last is None:
                continue
            _, ring, slot = last
            ring.table.used[slot] = self.now
            if lying:
                other, (start, start_slot, height) = lying[-1]
                if other is ring and row == start + height and slot == start_slot + height:
                    lying[-1] = ring, (start, start_slot, height + 1)
                    continue
            lying.append((ring, (row, slot, 1)))
        return lying

    def find_rows(
        self, name: str, first: int, stop: int, part: Box | None = None
    ) -> list[tuple[RingType, RowRun]]:
        """As `rows_on_chip`. Raises NotOnChip where a row is missing."""
        lying = self.rows_on_chip(name, first, stop, part)
        row = first
        for _, (start, _, height) in lying:
            if start != row:
                break
            row += height
        if row < stop:
            raise NotOnChip(f"row {row} of {name!r} is not on chip", row)
        return lying

    # -- blocks of constants ---------------------------------------------------------------------------------

    def put_block(self, block: BlockType, size: int) -> None:
        """Write a block of so many bytes of a constant to its place."""
        others = [other for other in self._blocks.get(block.name, ()) if other.intact]
        self._blocks[block.name] = [*others, block]
        if not size:
            return
        table = self._table(block.place)
        slot = block.number % len(table.rows)
        block.start = table.address + slot * table.slot_bytes + block.offset
        block.stop = block.start + size
        self._end(block.place, block.start, block.stop)
        self._claim(block.place, block.start, size)
        if table.rows[slot] != block.number:
            if table.rows[slot] != NOTHING:
                self._end_life(table, slot)
            table.rows[slot] = block.number
            table.since[slot] = self.now
        table.used[slot] = self.now
        table.held += 1
        table.blocks.setdefault(slot, []).append(block)

    def blocks_on_chip(self, name: str) -> list[BlockType]:
        """The intact blocks of a constant, in the order in which they came."""
        return [block for block in self._blocks.get(name, ()) if block.intact]

    def use_block(self, block: Block) -> None:
        """Note that the step at hand reads a block."""
        if block.start < block.stop:
            table = self._tables[block.place]
            table.used[block.number % len(table.rows)] = self.now

    def find_block(self, name: str, box: Box) -> BlockType:
        """The last block that has all of a box of a constant. Raises NotOnChip if none has."""
        for block in reversed(self._blocks.get(name, [])):
            if block.intact and within(box, block.box):
                self.use_block(block)
                return block
        raise NotOnChip(f"constant {name!r} {list(box)} is not on chip")


def kept_sums(call: Call, box: Box) -> tuple[str, tuple[int, ...], Box]:
    """(name on chip, shape, box) of what is kept between the steps that fold a box of an operator's result.

    Of attention the state of its queries, of normalizations their statistics, else sums of the elements.
    """
    result = call.result_tensors[0]
    name = f"sums of {result.name}"
    if call.attention is not None:
        return name, attention.state_shape(call), attention.state_box(call, box)
    if has_statistics(call):
        return name, statistics.state_shape(call), statistics.state_box(call, box)
    return name, result.shape, box
