"""Segments: groups that run slice by slice of channels, which one contraction makes and another sums over.

A *segment* is such a group. Its *heads* are contractions that read one map with all its channels and make
equally many channels: one as a rule, two in a gated layer such as (silu(x U) * (x V)) W, none where it begins
with an operator that reads its operands slice by slice. A *prologue* may make the map that the heads read,
row by row: a normalisation, of which a row needs just the same row of its operands, and all of it. What
follows makes the same channels of its result as it reads (depthwise convolutions, pools, elementwise
operators). It may end with a *tail*, a contraction that sums over the slices, or with a reduction that runs
through the rows of a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from lfopt.ir import NEVER, Box, Hardware, Span, cut, whole
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow, MapRead, Tiling, bits
from lfopt.ops.footprint import footprint
from lfopt.ops.rows import same_row
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.bands.slicing import Streamed
from lfopt.planning.line_buffers.lines import Lines
from lfopt.planning.sliced.rows import Access, Reading

SLOTS = 2  # blocks in the place that weights pass through

Held = dict[tuple[int, Access], int]  # per map on chip: rows


class Role(NamedTuple):
    """Positions that an operator may take in any segment."""

    contracts: bool  # it may be the head
    sums: bool  # it may be the tail
    runs: bool  # it is a reduction that takes rows one at a time, and ends the segment
    joins: bool  # it lays maps side by side by channels, and may begin a segment
    by_row: bool  # it needs the same row of its operands and all channels of it, and may be the prologue
    local: frozenset[int]  # inputs of which a slice of the result needs just the same channels
    channels: int  # of its result
    least: dict[int, int]  # per map that it reads: rows that are on chip at once in any group
    computes: bool  # whether it computes a row in any group


@dataclass(frozen=True, slots=True)
class Segment:
    """A group that runs slice by slice, with the least that it takes.

    It only grows as operators of higher index join.
    """

    head: int = -1  # the first one; -1: none
    tail: int = -1  # -1: none
    mean: int = -1  # the reduction that it ends with
    channels: int = 0  # in all slices together
    source: int = -1  # the map that the heads read
    prologue: int = -1  # the operator that makes it, if it is in the group
    sliced_maps: frozenset[int] = frozenset()  # maps that are made slice by slice
    held: Held = field(default_factory=Held)  # at the least
    names: frozenset[str] = frozenset()  # constants that are held whole in any case
    floor: int = 0  # bytes of buffer, of this group and of every group that it is grown into
    # least buffer bytes of a single contraction that sums over slices of its operand; NEVER for others
    alone: int = NEVER


class SegmentConstants(NamedTuple):
    """The constants of a segment."""

    held: dict[str, int]  # bytes, of those that stay on chip whole
    sliced: dict[int, tuple[Streamed, ...]]  # per operator: those that pass slice by slice
    tail: tuple[Streamed, ...]  # those that pass with each slice and each part of the tail's result


class Segments:
    """Segments of one dataflow, and what they hold on one chip in slices of `width` channels."""

    def __init__(self, flow: Dataflow, hardware: Hardware, lines: Lines, width: int) -> None:
        self.flow = flow
        self.hardware = hardware
        self.lines = lines
        self.width = width
        self.slices = SliceSizes(flow, hardware, width)
        self.layout = self.slices.layout
        self._readers: dict[str, int] = {}  # per constant: operators of the network that read it
        for weights in flow.weights:
            for name in {w.name for w in weights if not w.gathered}:
                self._readers[name] = self._readers.get(name, 0) + 1
        self._blocks: dict[tuple[str, int, Span, Span | None], int] = {}

    @cached_property
    def roles(self) -> list[Role | None]:
        """Per operator; None where it is in no segment."""
        return [self._role(i) for i in range(len(self.flow))]

    def _role(self, op: int) -> Role | None:
        flow = self.flow
        known = self.slices.facts[op]
        call = flow.calls[op]
        runs = bool(flow.running >> op & 1)
        axis = CHANNEL_AXIS_OF_RANK.get(len(call.result))
        if (
            known.never
            or len(flow.results[op]) != 1
            or axis is None
            or call.result != flow.maps[flow.results[op][0]].shape
        ):
            return None
        local = frozenset(o.input for o in flow.operands[op] if self.slices.is_local(op, o.input))
        least: dict[int, int] = {}
        for m, rows in [(o.map, 1) for o in flow.operands[op]] if runs else known.least_held:
            least[m] = max(least.get(m, 0), rows)
        joins = self._joins(op, axis)
        by_row = not local and not joins and self._by_row(op)
        return Role(
            known.contracts,
            known.sums,
            runs,
            joins,
            by_row,
            local,
            call.result[axis],
            least,
            self.lines.least[op] > 0,
        )

    def _joins(self, op: int, axis: int) -> bool:
        flow = self.flow
        call = self.flow.calls[op]
        own = [o for o in flow.operands[op] if o.input < len(call.operator.inputs)]
        alike = all(flow.maps[o.map].shape == call.shape(o.input) for o in own) and len(
            {o.map for o in own}
        ) == len(own)
        return (
            flow.specs[op].kind == "Concat"
            and call.attribute("axis", 0) % len(call.result) == axis
            and alike
            and not flow.weights[op]
        )

    def _by_row(self, op: int) -> bool:
        flow = self.flow
        call = self.flow.calls[op]
        row = self.flow.specs[op]
        maps = [(flow.maps[o.map], o) for o in flow.operands[op]]
        same = all(
            m.shape == call.shape(o.input) and m.rows == call.rows_out and o.reads is same_row(m.rows)
            for m, o in maps
        )
        return (
            bool(maps)
            and same
            and call.rows_out > 1
            and row.tiling is not Tiling.CONTRACT
            and not row.elementwise
        )

    # -- groups ----------------------------------------------------------------------------------------------

    def of(self, mask: int) -> tuple[Segment, ...]:
        """The segments that a group may be: one; two if it is a single contraction; none."""
        segment = None
        done = 0
        for op in bits(mask):
            segment = self.grow(segment, done, op)
            if segment is None:
                return ()
            done |= 1 << op
        if segment is None:
            return ()
        alone = self._alone(segment.head) if segment.alone < NEVER else None
        heads = (segment,) if segment.channels > self.width else ()
        if alone is None:
            return heads
        return (*heads, alone)

    def grow(self, segment: Segment | None, mask: int, op: int) -> Segment | None:
        """The segment with an operator added whose index is above all others.

        None where neither it nor anything it is grown into is a segment.
        """
        role = self.roles[op]
        if role is None or (mask and (segment is None or segment.tail >= 0 or segment.mean >= 0)):
            return None
        if not mask:
            if role.contracts:
                return self._joined(
                    Segment(channels=role.channels), op, role, head=op, source=self._read_by(op)
                )
            if role.by_row:
                return self._joined(Segment(source=self.flow.results[op][0], prologue=op), op, role)
            if role.channels > self.width:
                return self._joined(Segment(channels=role.channels), op, role)
            return None
        assert segment is not None
        if segment.prologue >= 0 > segment.head:
            first = role.channels > self.width and self._is_head(segment.source, role.channels, op)
            if first:
                return self._joined(replace(segment, channels=role.channels), op, role, head=op)
            return None
        if segment.channels <= self.width:
            return None
        inside = [o.input for o in self.flow.operands[op] if o.map in segment.sliced_maps]
        if self._is_head(segment.source, segment.channels, op) and 0 not in inside:
            return self._joined(segment, op, role, head=op)
        if role.contracts:
            if role.sums and inside == [0]:
                return self._joined(segment, op, role, tail=op)
            return None
        if inside and role.channels == segment.channels:
            return self._joined(segment, op, role)
        return None

    def _is_head(self, source: int, channels: int, op: int) -> bool:
        """Whether a contraction reads all channels of this map, and makes `channels`."""
        role = self.roles[op]
        return (
            role is not None and role.contracts and role.channels == channels and self._read_by(op) == source
        )

    def _read_by(self, op: int) -> int:
        """The map that a contraction has as operand 0."""
        return next(o.map for o in self.flow.operands[op] if o.input == 0)

    def least(self, op: int) -> int:
        """Bytes of buffer that an operator takes in any segment; NEVER if it is in none."""
        role = self.roles[op]
        if role is None:
            return NEVER
        if role.contracts:
            segment = self.grow(None, 0, op)
            # it begins no segment, since it reads something beside its operand; it may still end one
            if segment is None:
                (result,), part = self.flow.results[op], self.hardware.channel_align
                if role.sums:
                    return role.computes * self.sum_row(result, part) + self.part_row(result, part)
                return NEVER
            return min(segment.floor - self._beside(op, segment.held), segment.alone)
        local = {o.map for o in self.flow.operands[op] if o.input in role.local}
        (result,) = self.flow.results[op]
        if role.runs:
            result_bytes = self.sum_row(result, self.width)
        else:
            result_bytes = int(role.computes) * self.slices.slice_bytes(result)
        return (
            sum(role.least[m] * self.slices.slice_bytes(m) for m in local)
            + result_bytes
            + self._least_weights(frozenset(), op, tail=False)[1]
        )

    def _beside(self, op: int, held: Held) -> int:
        """Bytes beyond a slice of one-row maps that a head reads in flight.

        Behind another head it may need just a slice of them.
        """
        role = self.roles[op]
        local = {o.map for o in self.flow.operands[op] if role is not None and o.input in role.local}
        rows = (m for m, access in held if access == "vector" and m in local and self.flow.producer[m] >= 0)
        return sum(self.slices.row_bytes[m] - self.slices.slice_bytes(m) for m in rows)

    def segment_candidates(self, beta: int) -> Iterator[int]:
        """Per operator that may begin a segment: mask of those that may be in it.

        Each fits a buffer of `beta` bytes (strictly) by itself.
        """
        flow = self.flow
        for first in range(len(flow)):
            start = self.grow(None, 0, first)
            role = self.roles[first]
            if role is None or role.by_row or start is None or min(start.floor, start.alone) >= beta:
                continue
            candidate = 1 << first
            frontier = 0
            if not role.runs and start.floor < beta:
                beside = bits(flow.readers[start.source]) if start.head >= 0 else ()
                frontier = flow.succs[first] | sum(
                    1 << i for i in beside if i > first and self._is_head(start.source, role.channels, i)
                )
            while frontier:
                i = (frontier & -frontier).bit_length() - 1
                frontier ^= 1 << i
                here = self.roles[i]
                head = start.head >= 0 and self._is_head(start.source, role.channels, i)
                if (
                    here is None
                    or self.least(i) >= beta
                    or not (head or (here.sums if here.contracts else here.channels == role.channels))
                ):
                    continue
                candidate |= 1 << i
                if head or not (here.contracts or here.runs):
                    frontier |= flow.succs[i] & ~candidate
            maker = flow.producer[start.source] if start.head >= 0 else -1
            makes = self.roles[maker] if maker >= 0 else None
            yield candidate | (1 << maker if makes is not None and makes.by_row else 0)

    def _alone(self, op: int) -> Segment | None:
        """A contraction that sums over slices of a map that it reads from DRAM."""
        flow = self.flow
        role = self.roles[op]
        shape = flow.maps[self._read_by(op)].shape
        channels = shape[CHANNEL_AXIS_OF_RANK[len(shape)]] if role is not None and role.sums else 0
        if role is not None and channels > self.width:
            return self._joined(Segment(channels=channels), op, role, tail=op)
        return None

    def _joined(
        self, before: Segment, op: int, role: Role, *, head: int = -1, tail: int = -1, source: int = -1
    ) -> Segment | None:
        flow = self.flow
        held = dict(before.held)
        floor = before.floor
        sliced_maps = before.sliced_maps
        ahead = op == before.prologue
        (result,), part, source = flow.results[op], self.hardware.channel_align, max(source, before.source)
        sliced = False
        for operand in flow.operands[op]:
            access = self.access(operand, op, sliced_maps, source, tail=tail >= 0, first=not sliced_maps)
            if access is None:
                return None
            sliced |= access == "slice"
            floor += self._more(
                held, operand.map, access, role.least[operand.map] if access in ("rows", "slice") else 1, part
            )
        if head < 0 and not sliced and not ahead:
            return None
        if ahead:
            pass  # its result is held as the heads read it
        elif tail >= 0:
            floor += role.computes * self.sum_row(result, part) + self.part_row(result, part)
        elif role.runs:
            floor += self.sum_row(result, self.width) + self.slices.row_bytes[result]
        else:
            sliced_maps |= {result}
            floor += self._more(held, result, "slice", int(role.computes), part)
        names, size = self._least_weights(before.names, op, tail=tail >= 0)
        alone = self._alone(op) if head >= 0 > before.head else None
        return Segment(
            before.head if before.head >= 0 else head, tail, op if role.runs else -1,
            before.channels, source, before.prologue, sliced_maps, held, names, floor + size,
            NEVER if alone is None or before.prologue >= 0 else alone.floor,
        )  # fmt: skip

    def access(
        self, operand: MapRead, op: int, sliced_maps: frozenset[int], source: int, *, tail: bool, first: bool
    ) -> Access | None:
        """How what an operator reads is on chip; None if it cannot be.

        `tail`: it sums over slices; `first`: it begins the segment.
        """
        tensor = self.flow.maps[operand.map]
        own = operand.input < len(self.flow.calls[op].operator.inputs)
        role = self.roles[op]
        assert role is not None
        if operand.map == source:
            return "rows"
        if tail and own:
            return "slice"
        if operand.map in sliced_maps:
            if not tail and operand.input in role.local:
                return "slice"
            return None
        if first and role.by_row:
            return "row"
        if tensor.rows == 1:
            return "vector"
        if first and own and role.joins:
            return "slice"
        if operand.input not in role.local:
            return None
        if not tail:
            return "slice"
        if operand.reads is same_row(tensor.rows):
            return "part"
        return None

    def _more(self, held: Held, m: int, access: Access, rows: int, part: int) -> int:
        """Bytes that holding `rows` rows of a map adds to those held."""
        more = max(rows - held.get((m, access), 0), 0)
        if more:
            held[m, access] = rows
        return more * self.row(m, access, part)

    def _least_weights(self, held: frozenset[str], op: int, *, tail: bool) -> tuple[frozenset[str], int]:
        """(constants held in any case, least buffer bytes that its constants add to those).

        What others read too is left out.
        """
        facts = self.slices.facts[op]
        out = (0, self.hardware.channel_align if tail else self.width)
        alone = [s for s in facts.streamed if self._readers[s.name] == 1]
        late = [s.name for s in alone if tail and s.late]
        passing = tuple(s for s in alone if s.name not in late)
        names = held | {*facts.held, *late}
        passes = min(
            SLOTS * self.block(op, passing, out, (0, self.width) if tail else None),
            sum(self.constant(s.name) for s in passing),
        )
        return names, self.hardware.buffer_need(0, passes + sum(self.constant(name) for name in names - held))

    # -- sizes -----------------------------------------------------------------------------------------------

    def row(self, m: int, access: Access, part: int) -> int:
        """Bytes of one row of a map on chip; `part`: channels of its result that the tail makes at a time."""
        if access == "slice":
            return self.slices.slice_bytes(m)
        if access == "part":
            return self.part_row(m, part)
        return self.slices.row_bytes[m]

    def part_row(self, m: int, channels: int) -> int:
        """Bytes of some channels of one row of a map on chip."""
        return self.layout.row_on_chip(self.channels(m, (0, channels)))

    def sum_row(self, m: int, channels: int) -> int:
        """Bytes of the partial sums of `channels` channels of one row."""
        return self.hardware.sums_bytes(self.part_row(m, channels))

    def channels(self, m: int, span: Span) -> Box:
        """Box of some channels of a map, as far as it has them."""
        shape = self.flow.maps[m].shape
        axis = CHANNEL_AXIS_OF_RANK[len(shape)]
        return cut(whole(shape), axis, (span[0], min(span[1], shape[axis])))

    def joins(self, reading: Reading) -> bool:
        """Whether what is read is one of several maps that are laid side by side by channels."""
        role = self.roles[reading.op]
        return (
            role is not None
            and role.joins
            and reading.operand.input < len(self.flow.calls[reading.op].operator.inputs)
        )

    def read_box(self, op: int, operand: MapRead, span: Span) -> Box:
        """Box that an operator reads, for a slice, of a map that is on chip slice by slice."""
        if self.joins(Reading(op, operand, "slice")):
            return footprint(
                self.flow.calls[op], operand.input, self.channels(self.flow.results[op][0], span)
            )
        return self.channels(operand.map, span)

    def evenly(self, m: int, boxes: Iterator[Box]) -> bool:
        """Whether a map in these parts moves no more bytes than in whole rows, padding in DRAM included."""
        every = whole(self.flow.maps[m].shape)
        return self.hardware.dram_row_align == 1 or sum(
            self.layout.map_bytes(box) for box in boxes
        ) == self.layout.map_bytes(every)

    def weights(self, mask: int, segment: Segment) -> SegmentConstants:
        """The constants of a group."""
        held, passing = self.slices.constants(mask, apart=True)
        held |= {s.name: self.constant(s.name) for s in passing.get(segment.tail, ()) if s.late}
        tail = tuple(s for s in passing.pop(segment.tail, ()) if not s.late)
        return SegmentConstants(held, passing, tail)

    def constant(self, name: str) -> int:
        """Bytes of a constant, whole."""
        return self.slices.constant_bytes[name]

    def block(self, op: int, passing: Sequence[Streamed], out: Span, inputs: Span | None = None) -> int:
        """Bytes of the constants of some output channels, and of some input channels."""
        return sum(self._weight_bytes(op, s, out, inputs) for s in passing)

    def _weight_bytes(self, op: int, constant: Streamed, out: Span, inputs: Span | None) -> int:
        key = constant.name, op, out, inputs
        if key not in self._blocks:
            self._blocks[key] = self.layout.constant_bytes(
                constant.name, self.weight_box(op, constant, out, inputs)
            )
        return self._blocks[key]

    def weight_box(self, op: int, constant: Streamed, out: Span, inputs: Span | None = None) -> Box:
        """Box of a constant for some output channels and some input channels."""
        box = self.channels(self.flow.results[op][0], out)
        return footprint(self.flow.calls[op], constant.input, box, inputs=inputs)
