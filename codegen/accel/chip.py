"""Where maps, partial sums and constants lie on chip while a group's steps run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen.accel.maps import Extent, extent
from codegen.source import Unsupported
from lfopt.ir import Box, Hardware, Place, Tensor
from lfopt.isa.tables import WINDOW
from lfopt.ops.on_chip import Block, BufferContents, NotOnChip, Ring


@dataclass(frozen=True, slots=True)
class RowRing:
    """Rows of a map in a place, in words."""

    base: int
    slots: int
    slot_words: int
    block_words: int
    shift: int  # row r lies in slot (r + shift) modulo slots
    block: int  # block of the slot in which the asked channels begin
    column: int  # column of the slot in which the asked columns begin
    width: int  # columns that the slot holds
    column_words: int = 1  # a sum takes WINDOW words

    def words(self, row: int, blocks: int) -> tuple[int, int]:
        """(first word, number of words) of some blocks of a row, from the asked channels on."""
        first = self.base + (row + self.shift) % self.slots * self.slot_words + self.block * self.block_words
        return first, (blocks - 1) * self.block_words + self.width * self.column_words


class ChipContents(BufferContents[Ring, Block]):
    """Contents of the on-chip buffer while a group's steps are encoded, found as rings in words."""

    def __init__(self, places: Sequence[Place], hardware: Hardware, tensors: Mapping[str, Tensor]) -> None:
        """`tensors`: maps and views by name. Raises Unsupported for places that do not begin with a word."""
        super().__init__(places, hardware, Ring)
        self.tensors = tensors
        self.lanes = hardware.mac_columns
        for place in places:
            if place.address % self.lanes or (place.slot_bytes % self.lanes and place.slots > 1):
                raise Unsupported(
                    f"place {place.name!r}: found address {place.address}, slots of {place.slot_bytes} "
                    f"bytes; accepted: multiples of {self.lanes}"
                )

    def write(self, name: str, box: Box, place: int, number: int, *, sums: bool = False) -> RowRing:
        """Rows of a box of a map, or its partial sums, come to the slots from `number` on.

        Raises Unsupported for parts of a row that share a slot and do not follow each other by channels.
        """
        tensor = self.tensors[name]
        part = extent(tensor, box)
        layout = self.layout(_held(name, sums=sums), tensor.shape, box, place, sums=sums)
        writes = self.put_rows(layout, *part.rows, number)
        for ring, _, _, before in writes:
            if before is not None and (
                before.frame[2:] != ring.frame[2:] or before.frame[1][0] != ring.frame[1][0]
            ):
                raise Unsupported(
                    f"map {name!r}: parts of a row that share a slot must follow each other by channels"
                )
        return self._in_words(writes[-1][0], part, sums=sums)

    def read(self, name: str, part: Extent, *, sums: bool = False) -> RowRing:
        """The ring in which rows lie, all of which are on chip.

        Raises Unsupported if they do not lie in one ring, or begin within a block of lanes.
        """
        box = ((0, 1), part.channels, (0, 1), part.columns)[: len(self.tensors[name].shape)]
        try:
            lying = self.find_rows(_held(name, sums=sums), *part.rows, box)
        except NotOnChip as error:
            raise Unsupported(
                f"map {name!r}: row {error.row} is not on chip as a whole when it is read"
            ) from None
        ring = lying[0][0]
        if any(other is not ring for other, _ in lying):
            raise Unsupported(
                f"map {name!r}, rows {part.rows[0]} to {part.rows[1]}: they do not lie one after the "
                "other in one ring"
            )
        if (part.channels[0] - ring.frame[1][0]) % self.lanes:
            raise Unsupported(
                f"map {name!r}: found a part that begins at channel {part.channels[0]}; accepted: multiples "
                f"of {self.lanes}"
            )
        return self._in_words(ring, part, sums=sums)

    def _in_words(self, ring: Ring, part: Extent, *, sums: bool) -> RowRing:
        """A ring from where some channels and columns begin in its slots."""
        table = ring.table
        size = WINDOW if sums else 1
        columns = ring.frame[3] if len(ring.frame) == 4 else (0, 1)
        width = columns[1] - columns[0]
        return RowRing(
            base=table.address // self.lanes,
            slots=len(table.rows),
            slot_words=table.slot_bytes // self.lanes,
            block_words=width * size,
            shift=ring.shift,
            block=(part.channels[0] - ring.frame[1][0]) // self.lanes,
            column=part.columns[0] - columns[0],
            width=width,
            column_words=size,
        )

    def constant(self, name: str, box: Box) -> Block:
        """The block that holds a part of a constant. Raises Unsupported if none holds all of it."""
        try:
            return self.find_block(name, box)
        except NotOnChip:
            raise Unsupported(f"constant {name!r}: a part is read that is not on chip in one block") from None


def _held(name: str, *, sums: bool) -> str:
    """Name on chip of a map, or of its partial sums."""
    if sums:
        return f"sums of {name}"
    return name
