"""Segments: groups that run slice by slice of channels, which one contraction makes and another sums over.

A *segment* is such a group. Its *heads* are contractions that read one map with all its channels and make
equally many channels: one as a rule, two in a gated layer such as (silu(x U) * (x V)) W, none where it begins
with an operator that reads its operands slice by slice. A *prologue* may make the map that the heads read,
row by row: a normalisation, or the operators that it consists of, each of which makes a row from the same
row of its operands. What follows makes the same channels of its result as it reads (depthwise convolutions,
pools, elementwise operators). It may end with a *tail*, a contraction that sums over the slices, or with a
reduction that runs through the rows of a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from lfopt.ir import NEVER, Box, Hardware, Span, cut, whole
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow, MapRead, bits
from lfopt.ops.footprint import footprint
from lfopt.ops.rows import same_row
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.bands.slicing import Streamed
from lfopt.planning.line_buffers.lines import Lines
from lfopt.planning.sliced.readings import Access, Reading
from lfopt.planning.sliced.roles import Role, all_roles

SLOTS = 2  # blocks in the place that weights pass through

Held = dict[tuple[int, Access], int]  # per map on chip: rows


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
    prologue: int = 0  # mask of the operators of the group that make it, row by row
    ahead: frozenset[int] = frozenset()  # the maps that they make
    sliced_maps: frozenset[int] = frozenset()  # maps that are made slice by slice
    held: Held = field(default_factory=Held)  # at the least
    names: frozenset[str] = frozenset()  # constants that are held whole in any case
    floor: int = 0  # bytes of buffer, of this group and of every group that it is grown into
    # least buffer bytes of a single contraction that sums over slices of its operand; NEVER for others
    alone: int = NEVER
    instead: Segment | None = None  # what the same operators may be as well

    @property
    def least(self) -> int:
        """Lower bound on the buffer bytes of whatever the group may be, and all that it is grown into."""
        own = min(self.floor, self.alone)
        if self.instead is None:
            return own
        return min(own, self.instead.least)


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
        return all_roles(self.slices, self.lines)

    # -- groups ----------------------------------------------------------------------------------------------

    def of(self, mask: int) -> list[Segment]:
        """The segments that a group may be."""
        segment = None
        done = 0
        for op in bits(mask):
            segment = self.grow(segment, done, op)
            if segment is None:
                return []
            done |= 1 << op
        possible: list[Segment] = []
        while segment is not None:
            if segment.channels > self.width:
                possible.append(segment)
            alone = self._alone(segment.head) if segment.alone < NEVER else None
            if alone is not None:
                possible.append(alone)
            segment = segment.instead
        return possible

    def grow(self, segment: Segment | None, mask: int, op: int) -> Segment | None:
        """The segment with an operator added whose index is above all others.

        None where neither it nor anything it is grown into is a segment.
        """
        role = self.roles[op]
        if role is None:
            return None
        if not mask:
            ways = self._begun(op, role)
        elif segment is None:
            return None
        else:
            ways = [self._grown(segment, op, role)]
            if segment.instead is not None:
                ways.append(self._grown(segment.instead, op, role))
        first, *others = [way for way in ways if way is not None] or [None]
        if first is None or not others:
            return first
        return replace(first, instead=others[0])

    def _begun(self, op: int, role: Role) -> list[Segment | None]:
        """What an operator may begin: the heads, slices, a prologue."""
        if role.contracts:
            begun = Segment(channels=role.channels)
            return [self._joined(begun, op, role, head=op, source=self._read_by(op))]
        ways: list[Segment | None] = []
        if not role.by_row and role.channels > self.width:
            ways.append(self._joined(Segment(channels=role.channels), op, role))
        if role.by_row or role.row_wise:
            ways.append(self._joined(Segment(), op, role, ahead=True))
        return ways

    def _grown(self, segment: Segment, op: int, role: Role) -> Segment | None:
        """One of the things that a group may be, with an operator added."""
        if segment.tail >= 0 or segment.mean >= 0:
            return None
        if segment.prologue and segment.head < 0:
            if role.channels > self.width and self._is_head(segment.source, role.channels, op):
                return self._joined(replace(segment, channels=role.channels), op, role, head=op)
            if role.row_wise:
                return self._joined(segment, op, role, ahead=True)
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
                (result,), part = self.flow.results[op], self.hardware.narrowest_block
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
            if role is None or start is None or start.prologue or min(start.floor, start.alone) >= beta:
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
            yield candidate | (self._prologue_candidates(start.source) if start.head >= 0 else 0)

    def _prologue_candidates(self, source: int) -> int:
        """Mask of the operators that may be in a prologue which makes a map."""
        candidates = 0
        maps = [source]
        while maps:
            maker = self.flow.producer[maps.pop()]
            role = self.roles[maker] if maker >= 0 else None
            if role is not None and (role.by_row or role.row_wise) and not candidates >> maker & 1:
                candidates |= 1 << maker
                maps += [operand.map for operand in self.flow.operands[maker]]
        return candidates

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
        self,
        before: Segment,
        op: int,
        role: Role,
        *,
        ahead: bool = False,
        head: int = -1,
        tail: int = -1,
        source: int = -1,
    ) -> Segment | None:
        """A segment with an operator in one position; None if what it reads cannot be on chip so."""
        flow = self.flow
        (result,) = flow.results[op]
        if ahead:
            return self._joined_ahead(before, op, result)
        held = dict(before.held)
        floor = before.floor
        part = self.hardware.narrowest_block
        source = max(source, before.source)
        slices = replace(before, source=source)
        reads_slices = False
        for operand in flow.operands[op]:
            access = self.access(operand, op, slices, first=not before.sliced_maps, tail=tail >= 0)
            read_ahead = bool(flow.readers[operand.map] & before.prologue)
            if access is None or (access == "slice" and read_ahead):  # a map is held in one way at a time
                return None
            reads_slices |= access == "slice"
            rows = role.least[operand.map] if access in ("rows", "slice") else 1
            floor += self._more(held, operand.map, access, rows, part)
        if head < 0 and not reads_slices:
            return None
        sliced_maps = before.sliced_maps
        if tail >= 0:
            floor += role.computes * self.sum_row(result, part) + self.part_row(result, part)
        elif role.runs:
            floor += self.sum_row(result, self.width) + self.slices.row_bytes[result]
        else:
            sliced_maps |= {result}
            floor += self._more(held, result, "slice", int(role.computes), part)
        names, size = self._least_weights(before.names, op, tail=tail >= 0)
        alone = self._alone(op) if head >= 0 > before.head and not before.prologue else None
        return replace(
            before,
            head=before.head if before.head >= 0 else head,
            tail=tail,
            mean=op if role.runs else -1,
            source=source,
            sliced_maps=sliced_maps,
            held=held,
            names=names,
            floor=floor + size,
            alone=NEVER if alone is None else alone.floor,
            instead=None,
        )

    def _joined_ahead(self, before: Segment, op: int, result: int) -> Segment:
        """A segment with an operator in the prologue.

        Rows that pass through the prologue share their space with the slices; what it makes for the heads is
        counted with them. All of its constants are held.
        """
        facts = self.slices.facts[op]
        own = {s.name for s in facts.streamed if self._readers[s.name] == 1}
        names = before.names | own | {*facts.held}
        size = sum(self.constant(name) for name in names - before.names)
        return replace(
            before,
            source=result,
            prologue=before.prologue | 1 << op,
            ahead=before.ahead | {result},
            names=names,
            floor=before.floor + self.hardware.buffer_need(0, size),
            instead=None,
        )

    def access(
        self, operand: MapRead, op: int, segment: Segment, *, first: bool, tail: bool
    ) -> Access | None:
        """How what an operator behind the prologue reads is on chip; None if it cannot be.

        `first`: whether it begins the slices; `tail`: whether it sums over them.
        """
        m = operand.map
        tensor = self.flow.maps[m]
        own = operand.input < len(self.flow.calls[op].operator.inputs)
        role = self.roles[op]
        assert role is not None, "an operator of a segment has a role"
        if m == segment.source:
            return "rows"
        if m in segment.ahead:
            return None
        if tail and own:
            return "slice"
        if m in segment.sliced_maps:
            if not tail and operand.input in role.local:
                return "slice"
            return None
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
        out = (0, self.hardware.narrowest_block if tail else self.width)
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
        for op in bits(segment.prologue):
            held |= {s.name: self.constant(s.name) for s in passing.pop(op, ())}
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
