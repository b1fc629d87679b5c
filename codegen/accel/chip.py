"""Where maps, partial sums and constants lie on chip while a group's steps run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.accel.maps import Extent, dimensions
from codegen.source import Unsupported
from lfopt.ir import Box, Place, Span, Tensor, round_up, within
from lfopt.isa.tables import WINDOW


@dataclass(frozen=True, slots=True)
class RowPart:
    """A row of a map, or a part of one, in a slot."""

    place: int  # its index in the group
    number: int  # of the row: it lies in the slot of that number modulo slots
    channels: Span  # what the slot holds
    columns: Span


@dataclass(frozen=True, slots=True)
class RowRing:
    """Rows of a map in a place, in words."""

    base: int
    slots: int
    slot_words: int
    block_words: int
    shift: int  # row r has number r + shift
    block: int  # block of the slot in which the asked channels begin
    column: int  # column of the slot in which the asked columns begin
    width: int  # columns that the slot holds
    column_words: int = 1  # a sum takes WINDOW words

    def words(self, row: int, blocks: int) -> tuple[int, int]:
        """(first word, number of words) of some blocks of a row, from the asked channels on."""
        first = self.base + (row + self.shift) % self.slots * self.slot_words + self.block * self.block_words
        return first, (blocks - 1) * self.block_words + self.width * self.column_words


@dataclass(frozen=True, slots=True)
class ConstantBlock:
    """A part of a constant in a slot."""

    box: Box
    place: int  # its index in the group
    number: int  # of the block: it lies in the slot of that number modulo slots
    offset: int  # bytes from the start of the slot


Row = tuple[str, int, bool]  # map, row, and whether it is partial sums of the map


class BufferContents:
    """Contents of the on-chip buffer: maps, partial sums and constants, by place and slot.

    Places come from the plan, and so does the rule by which parts of a row share a slot (see
    `simulator.interpreter.buffer`).
    """

    def __init__(self, places: Sequence[Place], lanes: int) -> None:
        self.places, self.lanes = places, lanes
        self._rows: dict[Row, list[RowPart]] = {}
        self._owner: dict[int, Row] = {}  # address of a slot -> what was written there last
        self._constants: dict[str, list[ConstantBlock]] = {}
        for place in places:
            if place.address % lanes or (place.slot_bytes % lanes and place.slots > 1):
                raise Unsupported(
                    f"place {place.name!r}: found address {place.address}, slots of {place.slot_bytes} "
                    f"bytes; accepted: multiples of {lanes}"
                )

    # -- maps ------------------------------------------------------------------------------------------------

    def write(
        self, name: str, tensor: Tensor, part: Extent, place: int, number: int, *, sums: bool = False
    ) -> RowRing:
        """Rows of a map come to the slots from `number` on."""
        where = self.places[place]
        channels, _, columns = dimensions(tensor)
        size = WINDOW if sums else 1
        fits = round_up(channels, self.lanes) * columns * size <= where.slot_bytes
        frame = RowPart(place, number, part.channels, part.columns)
        for k, row in enumerate(range(*part.rows)):
            start = where.address + (number + k) % where.slots * where.slot_bytes
            frame = (
                RowPart(place, number + k, (0, channels), (0, columns))
                if fits
                else RowPart(place, number + k, part.channels, part.columns)
            )
            key = (name, row, sums)
            pieces = self._alive(key)
            if not fits and self._owner.get(start) == key:
                before = next(piece for piece in pieces if self._address(piece) == start)
                frame = self._joined(name, before, frame, where.slot_bytes // size)
                pieces.remove(before)
            self._owner[start] = key
            self._rows[key] = [*(piece for piece in pieces if piece != frame), frame]
        return self._ring(frame, part, sums=sums)

    def _joined(self, name: str, before: RowPart, part: RowPart, slot_bytes: int) -> RowPart:
        """The part that a slot holds after a part of the same row came to it.

        They are joined if both fit the slot; else the new part takes the place of the old one. Raises
        Unsupported for parts that do not follow each other by channels.
        """
        channels = (min(before.channels[0], part.channels[0]), max(before.channels[1], part.channels[1]))
        columns = (min(before.columns[0], part.columns[0]), max(before.columns[1], part.columns[1]))
        if round_up(channels[1] - channels[0], self.lanes) * (columns[1] - columns[0]) > slot_bytes:
            return part
        if columns != before.columns or channels[0] != before.channels[0]:
            raise Unsupported(
                f"map {name!r}: parts of a row that share a slot must follow each other by channels"
            )
        return RowPart(part.place, part.number, channels, columns)

    def _address(self, piece: RowPart) -> int:
        where = self.places[piece.place]
        return where.address + piece.number % where.slots * where.slot_bytes

    def _alive(self, key: Row) -> list[RowPart]:
        """The parts of a row that nothing has been written over, in the order in which they came."""
        return [piece for piece in self._rows.get(key, []) if self._owner.get(self._address(piece)) == key]

    def knows(self, name: str) -> bool:
        """Whether rows of a map came here under this name."""
        return any(known == name and not sums for known, _, sums in self._rows)

    def read(self, name: str, part: Extent, *, sums: bool = False) -> RowRing:
        """The ring in which rows lie, all of which are on chip.

        Raises Unsupported if they do not lie in one ring, or begin within a block of lanes.
        """
        pieces = [self._piece((name, row, sums), part) for row in range(*part.rows)]
        first = pieces[0]
        for k, piece in enumerate(pieces):
            if piece != RowPart(first.place, first.number + k, first.channels, first.columns):
                raise Unsupported(
                    f"map {name!r}, rows {part.rows[0]} to {part.rows[1]}: they do not lie one after the "
                    "other in one ring"
                )
        if (part.channels[0] - first.channels[0]) % self.lanes:
            raise Unsupported(
                f"map {name!r}: found a part that begins at channel {part.channels[0]}; accepted: multiples "
                f"of {self.lanes}"
            )
        return self._ring(pieces[-1], part, sums=sums)

    def _ring(self, last: RowPart, part: Extent, *, sums: bool) -> RowRing:
        """The ring in which the last row of a part lies as that piece."""
        where, size = self.places[last.place], WINDOW if sums else 1
        width = last.columns[1] - last.columns[0]
        return RowRing(
            base=where.address // self.lanes,
            slots=where.slots,
            slot_words=where.slot_bytes // self.lanes,
            block_words=width * size,
            shift=last.number - (part.rows[1] - 1),
            block=(part.channels[0] - last.channels[0]) // self.lanes,
            column=part.columns[0] - last.columns[0],
            width=width,
            column_words=size,
        )

    def _piece(self, key: Row, part: Extent) -> RowPart:
        for piece in reversed(self._alive(key)):
            if within((part.channels, part.columns), (piece.channels, piece.columns)):
                return piece
        raise Unsupported(f"map {key[0]!r}: row {key[1]} is not on chip as a whole when it is read")

    # -- constants -------------------------------------------------------------------------------------------

    def load(self, name: str, block: ConstantBlock) -> None:
        """A part of a constant comes to a slot."""
        others = [other for other in self._constants.get(name, []) if not self._same_slot(other, block)]
        self._constants[name] = [*others, block]

    def _same_slot(self, a: ConstantBlock, b: ConstantBlock) -> bool:
        return (
            a.place == b.place
            and a.number % self.places[a.place].slots == b.number % self.places[b.place].slots
        )

    def constant(self, name: str, box: Box) -> ConstantBlock:
        """The block that holds a part of a constant. Raises Unsupported if none holds all of it."""
        for block in reversed(self._constants.get(name, [])):
            if within(box, block.box):
                return block
        raise Unsupported(f"constant {name!r}: a part is read that is not on chip in one block")
