"""One operation of the accelerator on a box of a map, as EXEC commands: which rings, which rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from codegen.accel.chip import ChipContents, RowRing
from codegen.accel.maps import Extent, dimensions, extent
from codegen.accel.runs import IssuedCommand, Payload, Words, numbers, payload
from codegen.source import Unsupported
from lfopt.ir import Box, Compute, Span, Tensor
from lfopt.isa.tables import ACCUMULATORS, Opcode, Scale
from lfopt.ops import Call
from lfopt.planning.accelerator.commands import SpatialWindow, bands, blocks, operation


@dataclass(frozen=True, slots=True)
class RequantParameters:
    """Locations on chip of an operator's parameters."""

    factors: int = 0  # first row
    tables: tuple[int, ...] = ()  # numbers, in the order of `lfopt.ops.parameter_data`


@dataclass(slots=True)
class WeightLocation:
    """Location on chip of the weights of a computation."""

    values: dict[str, int]  # fields of the descriptor
    number: int  # of the weights: the `slot` of the command
    reads: list[Words]


@dataclass(slots=True)
class Site:
    """The surroundings of a group's computations: what is on chip, and where parameters lie."""

    chip: ChipContents
    lanes: int
    tensors: Mapping[str, Tensor]  # maps and views by name
    behind: Mapping[str, str]  # the map behind a view
    parameters: Mapping[str, RequantParameters]  # by operator
    # (call, step, output channels, phase) -> their weights, and their bias if sums are finished
    weights: Callable[[Call, Compute, Span, int], WeightLocation]
    factor_words: int  # number of the first row of factors, as waits count words
    table_words: int  # of the first table
    # the map that the current step makes; what is in flight lies in its place meanwhile
    written: str = ""
    lying: str = ""  # which map lies there by now

    def operand(self, call: Call, index: int, box: Box) -> tuple[RowRing, Extent, Tensor]:
        """(ring, extent, tensor) of the box of an operand.

        Raises Unsupported for a view of a map in another shape.
        """
        name = call.operator.inputs[index]
        seen = self.tensors[name]
        part = extent(seen, box)
        if name == self.lying:
            return self.chip.read(self.written, part), part, seen
        known = name if self.chip.knows(name) else self.behind.get(name, name)
        if known != name and dimensions(self.tensors[known]) != dimensions(seen):
            raise refused(
                call,
                f"reads {name!r}, {list(seen.shape)}, a view of {list(self.tensors[known].shape)}; it "
                "accepts views of maps of one pixel",
            )
        return self.chip.read(known, part), part, seen


def refused(call: Call, why: str) -> Unsupported:
    """An operator that the accelerator does not do."""
    return Unsupported(f"node {call.operator.name!r} ({call.operator.kind}): {why}")


@dataclass(frozen=True, slots=True)
class Spread:
    """Every n-th row and column of a result, computed side by side: of a Resize or a ConvTranspose."""

    down: int  # rows from one to the next
    right: int  # columns from one to the next
    row: int  # the first
    column: int  # the first

    def where(self, box: Extent) -> Extent:
        """The extent of the result that they lie in."""
        (top, bottom), (left, right) = box.rows, box.columns
        rows = top * self.down + self.row, (bottom - 1) * self.down + self.row + 1
        return Extent(
            box.channels, rows, (left * self.right + self.column, (right - 1) * self.right + self.column + 1)
        )


@dataclass(slots=True)
class BoxOperation:
    """One operation on a box of a result."""

    site: Site
    call: Call  # nothing in flight
    step: Compute
    box: Extent  # of the result; channels that the operation makes
    values: dict[str, int]  # of the descriptor: window, scale, table, zero points
    a: RowRing
    a_part: Extent  # what is read of operand a
    a_tensor: Tensor
    window: SpatialWindow
    b: RowRing | None = None
    weights: WeightLocation | None = None
    reads: list[Words] = field(default_factory=list[Words])
    spread: Spread | None = None
    # row from which commands count, for a result of one row, whose operand's rows move
    from_row: int = 0

    def runs(self) -> Iterator[IssuedCommand]:
        """The commands: as many rows at a time as the accumulators hold columns."""
        site = self.site
        box = self.box
        step = self.step
        name = site.written
        where = box if self.spread is None else self.spread.where(box)
        output = site.chip.read(name, where) if step.last else None
        held = None if step.first and step.last else site.chip.read(name, where, sums=True)
        if self.from_row:
            output, held = (still(ring) if ring is not None else None for ring in (output, held))
        from_block = min(ring.block for ring in (self.a, self.b) if ring is not None)
        to_block = min(ring.block for ring in (output, held) if ring is not None)
        count, tail = blocks(box.depth, site.lanes)
        values = {
            "operation": operation(self.call),
            "first": step.first,
            "last": step.last,
            "out_blocks": count,
            "out_tail": tail,
            "o_slots": 1,
        }
        values |= self.values | _ring("a", self.a, from_block)
        second = held or self.b
        if second is not None:
            values |= _ring("b", second, from_block if held is None else to_block)
            values["b_base"] += second.column * second.column_words
        if output is not None:
            values |= {"o_step": 1, "o_row_step": 1} | _ring("o", output, to_block)
            values["o_base"] += output.column
            if self.spread is not None:
                values |= {
                    "o_step": self.spread.right,
                    "o_row_step": self.spread.down,
                    "o_row": self.spread.row,
                }
        if self.weights is not None:
            values |= self.weights.values
        slot = self.weights.number if self.weights is not None else 0
        factor = box.channels[0] // site.lanes if values.get("scale") == Scale.CHANNEL else 0
        into = output or held
        assert into is not None
        placed: dict[Span, Payload] = {}
        for (top, bottom), strip in bands(box.rows, box.columns, ACCUMULATORS):
            if strip not in placed:
                placed[strip] = payload(self._placed(values, second, strip))
            moving = numbers(
                row=top + self.from_row, slot=slot, from_block=from_block, to_block=to_block, factor=factor
            )
            if self.spread is None:
                rows = range(top, bottom)
            else:
                rows = range(top * self.spread.down + self.spread.row, where.rows[1], self.spread.down)
            written = [into.words(row, count) for row in rows[: bottom - top]]
            yield IssuedCommand(
                Opcode.EXEC,
                placed[strip],
                bottom - top,
                moving,
                self._reads(top, bottom - top, count, held),
                written,
            )

    def _placed(self, values: Mapping[str, int], second: RowRing | None, columns: Span) -> dict[str, int]:
        """The descriptor for some columns of the box."""
        window = self.window
        fields = dict(values)
        x = columns[0] - self.box.columns[0]
        shift = self.a.shift % self.a.slots
        pad_rows = window.pad_rows
        height = dimensions(self.a_tensor)[1]
        if height == 1 and window.rows == 1:
            fields |= {"a_slots": 1}
            fields["a_base"] += shift * self.a.slot_words
            shift = 0
        elif shift:
            if (self.box.rows[0] + self.from_row) * window.stride_rows < pad_rows:
                raise refused(
                    self.call,
                    "its operand's rows are numbered from the middle of a ring, and it reads padding above "
                    "them",
                )
            pad_rows = pad_rows - shift
            height = height + shift
        # column of the operand that the window begins at
        first = columns[0] * window.stride_columns - window.pad_columns
        fields |= {
            "a_height": height,
            "a_width": self.a.width,
            "kernel_rows": window.rows,
            "kernel_columns": window.columns,
            "stride_rows": window.stride_rows,
            "stride_columns": window.stride_columns,
            "dilation": window.dilation,
            "pad_rows": pad_rows,
            "pad_columns": self.a_part.columns[0] - self.a.column - first,
            "o_width": columns[1] - columns[0],
        }
        if self.step.last:
            fields["o_base"] += x * fields["o_step"]
        if second is not None and not fields.get("b_vector"):
            fields["b_base"] += x * second.column_words
        return fields

    def _reads(self, y: int, rows: int, count: int, held: RowRing | None) -> list[Words]:
        window = self.window
        part = self.a_part
        at = y + self.from_row
        first = max(at * window.stride_rows - window.pad_rows, part.rows[0])
        stop = min(
            (at + rows - 1) * window.stride_rows - window.pad_rows + (window.rows - 1) * window.dilation + 1,
            part.rows[1],
        )
        inner = blocks(part.depth, self.site.lanes)[0]
        words = [self.a.words(row, inner) for row in range(first, stop)]
        if self.b is not None:
            words += [self.b.words(row, inner) for row in range(y, y + rows)]
        if held is not None and not self.step.first:
            words += [held.words(row, count) for row in range(y, y + rows)]
        return words + self.reads + (self.weights.reads if self.weights else [])


def still(ring: RowRing) -> RowRing:
    """The one row of a ring, whatever row the command names."""
    base = ring.base + ring.shift % ring.slots * ring.slot_words
    return RowRing(
        base, 1, ring.slot_words, ring.block_words, 0, ring.block, ring.column, ring.width, ring.column_words
    )


def _ring(letter: str, ring: RowRing, origin: int) -> dict[str, int]:
    """A ring as a descriptor has it; `origin` blocks of the way to what is asked come with the command."""
    return {
        f"{letter}_base": ring.base + (ring.block - origin) * ring.block_words,
        f"{letter}_slots": ring.slots,
        f"{letter}_slot_words": ring.slot_words,
        f"{letter}_block_words": ring.block_words,
    }
