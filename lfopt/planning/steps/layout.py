"""Places, transfers and computations of boxes on one chip: their sizes in the buffer and in DRAM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lfopt.ir import (
    Box,
    Carry,
    Compute,
    Hardware,
    Place,
    Purpose,
    Span,
    Tensor,
    Transfer,
    box_elements,
    box_shape,
    cut,
    round_up,
    row_axis,
)
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow
from lfopt.ops.dataflow import gathered_pieces
from lfopt.ops.flight import flight_names


class AllocationRequest(NamedTuple):
    """A place before it has an address."""

    name: str
    purpose: Purpose
    slots: int
    slot_bytes: int


class BufferLayout:
    """Sizes, places and transfers of boxes on one chip."""

    def __init__(self, flow: Dataflow, hardware: Hardware) -> None:
        self.flow = flow
        self.hardware = hardware

    def place_name(self, name: str) -> str:
        """The name of a place that is not named after what it holds: one that no tensor has."""
        while name in self.flow.graph.tensors:
            name += "~"
        return name

    def sums_name(self, op: int) -> str:
        """Name of the place of an operator's partial results, where several operators have one."""
        return self.place_name(f"sums of {self.flow.operators[op].name}")

    def stack(self, entries: Sequence[AllocationRequest]) -> tuple[Place, ...]:
        """Places one after the other, from address 0 of the buffer that each lies in."""
        places = list[Place]()
        ends = dict.fromkeys(self.hardware.stores, 0)
        for name, purpose, slots, slot_bytes in entries:
            store = self.hardware.store_of(purpose)
            places.append(Place(name, purpose, ends[store], slots, slot_bytes))
            ends[store] = places[-1].end
        return tuple(places)

    def need(self, entries: Sequence[AllocationRequest]) -> int:
        """F_beta in bytes of such places."""
        weights = sum(slots * slot_bytes for _, purpose, slots, slot_bytes in entries if purpose == "weight")
        return self.hardware.buffer_need(
            sum(slots * slot_bytes for _, _, slots, slot_bytes in entries) - weights, weights
        )

    def constant_bytes(self, name: str, box: Box) -> int:
        """Bytes of a part of a constant."""
        return self.hardware.constant_bytes(box_elements(box), bias=name in self.flow.biases)

    def row_on_chip(self, box: Box) -> int:
        """Bytes that one row of a box takes in the buffer, channel padding included."""
        return self.hardware.row_bytes(Tensor("", box_shape(box), ""))

    @property
    def moves_any_columns(self) -> bool:
        """Whether parts of rows may begin anywhere in DRAM."""
        return self.hardware.dram_row_align == 1 or self.hardware.channel_align == 1

    def column_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes in DRAM of one column of one row, in the last block of channels, which may be narrower."""
        axis = CHANNEL_AXIS_OF_RANK.get(len(shape))
        channels = 1 if axis is None else shape[axis]
        align = self.hardware.channel_align
        return (channels % align or align) * self.hardware.element_bytes

    def movable_columns(self, shape: tuple[int, ...], columns: Span, *, ends: bool = False) -> bool:
        """Whether the chip can move these columns of a map alone; `ends`: store them, too.

        Where channels lie in blocks of `channel_align`, a row in DRAM is its blocks one after the other, and
        a part of it the same columns of each. Such a part begins at a multiple of `dram_row_align`, as rows
        do, and if it is stored, it ends at one or with the row.
        """
        width = shape[-1]
        if self.moves_any_columns or columns == (0, width):
            return True
        cuts = columns if ends else columns[:1]
        size = self.column_bytes(shape)
        return all(cut == width or cut * size % self.hardware.dram_row_align == 0 for cut in cuts)

    def padded(self, tensor: Tensor) -> bool:
        """Whether rows of the map are padded in DRAM."""
        return self.hardware.dram_bytes(tensor) != tensor.elements * self.hardware.element_bytes

    def sums_row(self, box: Box) -> int:
        """Bytes that the partial sums of one row of a box take in the buffer."""
        return self.hardware.sums_bytes(self.row_on_chip(box))

    def row_in_dram(self, box: Box) -> int:
        """Bytes that one row of a box moves, row padding included."""
        rows = row_span(box)
        elements = box_elements(box) // max(rows[1] - rows[0], 1)
        return round_up(elements * self.hardware.element_bytes, self.hardware.dram_row_align)

    def map_bytes(self, box: Box) -> int:
        """Bytes that a box of a map moves."""
        first, stop = row_span(box)
        return (stop - first) * self.row_in_dram(box)

    def gathered_bytes(self, op: int, box: Box) -> int:
        """Bytes that a Gather from a constant moves for a box of its result."""
        return self.hardware.constant_bytes(
            box_elements(box), bias=False, pieces=gathered_pieces(self.flow.calls[op], box)
        )

    def load(self, name: str, box: Box, place: int, slot: int | None = None) -> Transfer:
        """Load a box of a map; its rows go where their numbers say, or from `slot` on."""
        first, stop = row_span(box)
        return Transfer(
            store=False,
            tensor=name,
            box=box,
            kind="input",
            rows=stop - first,
            row_bytes=self.row_in_dram(box),
            place=place,
            slot=first if slot is None else slot,
        )

    def store(self, name: str, box: Box, place: int) -> Transfer:
        """Store a box of a map."""
        first, stop = row_span(box)
        return Transfer(
            store=True,
            tensor=name,
            box=box,
            kind="output",
            rows=stop - first,
            row_bytes=self.row_in_dram(box),
            place=place,
            slot=first,
        )

    def carry(self, name: str, box: Box, place: int, slot: int | None = None) -> Carry:
        """Copy a box of a map within the buffer; its rows go where their numbers say, or from `slot` on."""
        return Carry(name, box, place, row_span(box)[0] if slot is None else slot)

    def load_constant(self, name: str, box: Box, place: int, slot: int = 0, offset: int = 0) -> Transfer:
        """Load a part of a constant into a slot."""
        size = self.constant_bytes(name, box)
        return Transfer(
            store=False,
            tensor=name,
            box=box,
            kind="weight",
            rows=1,
            row_bytes=size,
            place=place,
            slot=slot,
            offset=offset,
        )

    def gather(self, op: int, box: Box, place: int, slot: int) -> Transfer:
        """Pick the rows of a constant that an operator's indices name, straight into a box of its result."""
        name = self.flow.maps[self.flow.results[op][0]].name
        size = self.gathered_bytes(op, box)
        operator = self.flow.operators[op].name
        return Transfer(
            store=False,
            tensor=name,
            box=box,
            kind="weight",
            rows=1,
            row_bytes=size,
            place=place,
            slot=slot,
            gather=operator,
        )

    def compute(
        self,
        op: int,
        boxes: tuple[Box, ...],
        places: tuple[int, ...],
        inputs: Span | None = None,
        sums: int = -1,
        *,
        first: bool = True,
        last: bool = True,
    ) -> Compute:
        """The operator, and what follows it in flight, on boxes of its results."""
        call = self.flow.calls[op]
        return Compute(call.operator.name, boxes, places, inputs, sums, first, last, flight_names(call))

    @staticmethod
    def load_parameters(name: str, size: int) -> Transfer:
        """Load the parameters of an operator into the store beside the buffer."""
        return Transfer(
            store=False,
            tensor=name,
            box=((0, size),),
            kind="parameter",
            rows=1,
            row_bytes=size,
            place=-1,
            slot=0,
        )


def row_span(box: Box) -> Span:
    """Rows of a box; a map of one row has just that."""
    axis = row_axis(box_shape(box))
    if axis is None:
        return (0, 1)
    return box[axis]


def with_rows(box: Box, rows: Span) -> Box:
    """The box with other rows; a map of one row has no row axis to cut."""
    axis = row_axis(box_shape(box))
    if axis is None:
        return box
    return cut(box, axis, rows)
