"""The steps of a group in mode sliced: bands of rows, parts of the tail's channels, slices.

Weights that stay are loaded first. A band then loads the rows of what the head reads, or makes them, row by
row, of what the prologue reads. A slice loads its weights, and goes through the rows of the band: the head,
what follows it, and the tail, which adds to its sums; with the last slice the tail finishes them, row by row,
and each is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple, get_args

from lfopt.ir import (
    Again,
    Box,
    Node,
    Place,
    Purpose,
    Span,
    Step,
    box_elements,
    box_shape,
    fold,
    store_ends,
    whole,
)
from lfopt.ir.box import spans
from lfopt.planning.nest.spans import BlockGrid
from lfopt.planning.sliced.choices import SlicedGroups, SlicedOption
from lfopt.planning.sliced.rows import Access, Event, SlicedSource, in_step
from lfopt.planning.sliced.segments import SLOTS, Segments
from lfopt.planning.steps.layout import with_rows
from lfopt.planning.steps.limit import Limit
from lfopt.planning.steps.rolling import rolled

LONGEST_PERIOD = 16  # rows, or bands: the longest repetition that is looked for


class Slice(NamedTuple):
    """Some channels."""

    span: Span
    first: bool  # of those that a tail sums over
    last: bool
    passing: bool  # whether its weights before the tail are loaded
    passing_tail: bool  # whether its weights of the tail are loaded


class SlicedScheduler:
    """The schedule of one group, with slices as wide as `segments` has them."""

    def __init__(self, groups: SlicedGroups, segments: Segments, mask: int, option: SlicedOption) -> None:
        self.groups = groups
        self.segments = segments
        self.mask = mask
        self.option = option
        self.flow = groups.flow
        self.layout = segments.layout
        self.segment = option.segment
        self.reads = groups.reads(mask, option.segment)
        self.weights = segments.weights(mask, option.segment)
        grid = BlockGrid.even([option.bands])
        computed = groups.computed_rows(mask, option.segment, grid)
        self.rows = {
            i: [*zip(bands.start.tolist(), bands.stop.tolist(), bands.new.tolist(), strict=True)]
            for i, bands in computed.items()
        }
        outer = groups.outer(mask, option.segment, self.reads)
        self.of = {access: [m for m, how in outer if how == access] for access in get_args(Access)}
        self.held_rows = {
            m: int(groups.source_rows(mask, computed, self.reads, m, grid)[0]) for m in self.of["rows"]
        }
        self.passing: dict[SlicedSource, list[Span]] = {}
        for m in self.of["slice"]:
            start, stop = groups.passing_rows(computed, self.reads, m, grid)
            self.passing[m, "slice"] = [*zip(start.tolist(), stop.tolist(), strict=True)]
        self.in_step = groups.in_step(option.segment, self.reads)
        self.rings = {
            m: int(rows[0])
            for m, rows in groups.rings(mask, option.segment, self.reads, computed, grid).items()
        }
        self.slices = self._slices()
        self.parts = spans(0, groups.outputs(option.segment), option.part) if option.part else [(0, 0)]
        self.places: list[Place] = []
        self.at: dict[SlicedSource, int] = {}  # places of maps
        self.constants: dict[str, int] = {}  # places of constants that stay
        self.results: dict[int, int] = {}  # places of results of the tail, or of the reduction
        self.sums = self.blocks = -1
        self._lay_out()

    @property
    def end(self) -> int:
        """F_beta in bytes."""
        ends = store_ends(self.places, self.layout.hardware)
        return self.layout.hardware.buffer_need(ends["buffer"], ends.get("weight buffer", 0))

    @property
    def weight_bytes(self) -> int:
        """DRAM bytes of weights."""
        staying = sum(self.weights.held.values()) + sum(
            self.layout.constant_bytes(name, box) for name, box in self._staying()
        )
        parts = Counter(stop - start for start, stop in self.parts)
        passing = sum(
            self._block_bytes(kind, (0, part)) * times * count
            for kind, times in self._kinds
            for part, count in parts.items()
        )
        return staying + self.option.bands * passing

    @property
    def even(self) -> bool:
        """Whether maps that move slice by slice move no more bytes than whole rows."""
        sizes = self.segments
        slices = [piece.span for piece in self.slices]
        read = {
            r.operand.map: (sizes.read_box(r.op, r.operand, span) for span in slices)
            for r in self.reads
            if r.access == "slice"
        }
        stored = {
            m: (sizes.channels(m, span) for span in slices)
            for m in self.segment.sliced_maps
            if self.groups.leaves(m, self.mask)
        }
        return all(
            sizes.evenly(m, boxes)
            for maps in (read, stored)
            for m, boxes in maps.items()
            if m in stored or (m, "slice") in self.passing
        )

    def _slices(self) -> list[Slice]:
        option = self.option
        channels = self.segment.channels
        cuts = sorted({0, min(option.pinned, channels), min(option.pinned_tail, channels), channels})
        slice_spans = [span for low, high in pairwise(cuts) for span in spans(low, high, self.segments.width)]
        before = bool(self.weights.sliced)
        tail = bool(self.weights.tail)
        sums = self.segment.tail >= 0
        return [
            Slice(
                span,
                sums and k == 0,
                sums and k == len(slice_spans) - 1,
                before and span[0] >= option.pinned,
                tail and span[0] >= option.pinned_tail,
            )
            for k, span in enumerate(slice_spans)
        ]

    @cached_property
    def _kinds(self) -> list[tuple[Slice, int]]:
        """Slices by what they load, with how many there are of each.

        Those of one width load as many bytes wherever they are.
        """
        return [
            *Counter(
                piece._replace(span=(0, piece.span[1] - piece.span[0]), first=False, last=False)
                for piece in self.slices
            ).items()
        ]

    # -- places ----------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Allocate places one after the other.

        Maps that come from DRAM, rings, constants, weights that stay, those that pass, sums, finished rows.
        """
        flow = self.flow
        sizes = self.segments
        option = self.option
        segment = self.segment
        row_bytes = sizes.slices.row_bytes
        for m, rows in self.held_rows.items():
            self.at[m, "rows"] = self._place(flow.maps[m].name, "map", rows, row_bytes[m])
        for m in self.of["vector"]:
            self.at[m, "vector"] = self._place(flow.maps[m].name, "map", 1, row_bytes[m])
        for m, rows in sorted(self.rings.items()):
            size = self.groups.slice_row(sizes, self.reads, m, [piece.span for piece in self.slices])
            self.at[m, "slice"] = self._place(flow.maps[m].name, "map", rows, size)
        for name, size in self.weights.held.items():
            self.constants[name] = self._place(name, "weight", 1, size)
        for name, box in self._staying():
            self.constants[name] = self._place(name, "weight", 1, self.layout.constant_bytes(name, box))
        if size := max((self._block_bytes(piece, self.parts[0]) for piece, _ in self._kinds), default=0):
            self.blocks = self._place(self.layout.place_name("weight blocks"), "weight", SLOTS, size)
        if segment.tail >= 0:
            (result,), part = flow.results[segment.tail], option.part
            high = max(stop - new for _, stop, new in self.rows[segment.tail])
            self.sums = self._place(
                self.layout.sums_name(segment.tail), "sum", high, sizes.sum_row(result, part)
            )
            self.results[result] = self._place(flow.maps[result].name, "map", 1, sizes.part_row(result, part))
            for m in self.of["part"]:
                name = flow.maps[m].name
                again = (m, "slice") in self.at
                self.at[m, "part"] = self._place(
                    self.layout.place_name(f"{name} beside") if again else name,
                    "map",
                    1,
                    sizes.part_row(m, part),
                )
        for m in self.of["row"]:
            self.at[m, "row"] = self._place(
                self.layout.place_name(f"{flow.maps[m].name} ahead"), "map", 1, row_bytes[m]
            )
        if segment.mean >= 0:
            (result,) = flow.results[segment.mean]
            channels = segment.channels if option.bands > 1 else sizes.width
            self.sums = self._place(
                self.layout.sums_name(segment.mean), "sum", 1, sizes.sum_row(result, channels)
            )
            self.results[result] = self._place(flow.maps[result].name, "map", 1, row_bytes[result])

    def _place(self, name: str, purpose: Purpose, slots: int, slot_bytes: int) -> int:
        """Index of a new place, behind the last one in the buffer that it lies in."""
        hardware = self.layout.hardware
        self.places.append(
            Place(
                name,
                purpose,
                store_ends(self.places, hardware)[hardware.store_of(purpose)],
                slots,
                slot_bytes,
            )
        )
        return len(self.places) - 1

    def _staying(self) -> Iterator[tuple[str, Box]]:
        """Parts of constants that stay on chip."""
        option = self.option
        sizes = self.segments
        segment = self.segment
        for op, constants in self.weights.sliced.items():
            for s in constants if option.pinned else ():
                yield s.name, sizes.weight_box(op, s, (0, option.pinned))
        for s in self.weights.tail if option.pinned_tail else ():
            inputs = (0, min(option.pinned_tail, segment.channels))
            yield s.name, sizes.weight_box(segment.tail, s, (0, self.groups.outputs(segment)), inputs)

    def _block_bytes(self, piece: Slice, part: Span) -> int:
        """Bytes of the weights that a slice of a part loads."""
        sizes = self.segments
        size = 0
        if piece.passing:
            size += sum(
                sizes.block(op, constants, piece.span) for op, constants in self.weights.sliced.items()
            )
        if piece.passing_tail:
            size += sizes.block(self.segment.tail, self.weights.tail, part, piece.span)
        return size

    # -- steps -----------------------------------------------------------------------------------------------

    def build(self, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps. Raises Unwritten beyond the limit."""
        bands = [*limit.allowed(tuple(self._band(band)) for band in range(self.option.bands))]
        return tuple(self.places), (*self._first(), *fold(bands, LONGEST_PERIOD), *self._last())

    def _first(self) -> Iterator[Step]:
        for name in self.weights.held:
            yield self.layout.load_constant(name, whole(self.flow.graph.shape(name)), self.constants[name])
        for name, box in self._staying():
            yield self.layout.load_constant(name, box, self.constants[name])
        for m in self.of["vector"]:
            yield self.layout.load(
                self.flow.maps[m].name, whole(self.flow.maps[m].shape), self.at[m, "vector"]
            )

    def _last(self) -> Iterator[Step]:
        for m in self.of["rows"]:
            if not self.flow.makes(self.mask, m):
                yield from self._rows_of(m, (self._needed(m, self.option.bands - 1), self.flow.maps[m].rows))
        if self.segment.prologue >= 0:
            for row in range(
                self.rows[self.segment.prologue][-1][1], self.flow.heights[self.segment.prologue]
            ):
                yield from self._ahead(row)
        if self.segment.mean >= 0:
            (result,) = self.flow.results[self.segment.mean]
            yield self.layout.store(
                self.flow.maps[result].name, whole(self.flow.maps[result].shape), self.results[result]
            )

    def _needed(self, m: int, band: int) -> int:
        """Rows of a map of which all channels are on chip that a band, or one before it, reads."""
        own = [r for r in self.reads if r.operand.map == m and r.access == "rows"]
        return max((0, *r.operand.reads.need)[self.rows[r.op][band][1]] for r in own)

    def _rows_of(self, m: int, rows: Span) -> Iterator[Step]:
        """Load rows, no more at a time than there is room for."""
        tensor = self.flow.maps[m]
        place = self.at[m, "rows"]
        for span in spans(*rows, self.places[place].slots):
            yield self.layout.load(tensor.name, with_rows(whole(tensor.shape), span), place)

    def _ahead(self, row: int) -> Iterator[Step]:
        """Load a row of what the prologue reads."""
        for m in self.of["row"]:
            yield self.layout.load(
                self.flow.maps[m].name,
                with_rows(whole(self.flow.maps[m].shape), (row, row + 1)),
                self.at[m, "row"],
            )

    def _prologue(self, op: int, row: int) -> list[Step]:
        """Make a row of what the heads read."""
        (result,) = self.flow.results[op]
        box = with_rows(whole(self.flow.maps[result].shape), (row, row + 1))
        place = self.at[result, "rows"]
        steps: list[Step] = [*self._ahead(row), self.layout.compute(op, (box,), (place,))]
        if self.groups.leaves(result, self.mask):
            return [*steps, self.layout.store(self.flow.maps[result].name, box, place)]
        return steps

    def _band(self, band: int) -> Iterator[Node]:
        for m in self.of["rows"]:
            if not self.flow.makes(self.mask, m):
                yield from self._rows_of(m, (self._needed(m, band - 1) if band else 0, self._needed(m, band)))
        if (op := self.segment.prologue) >= 0:
            yield from fold(
                [self._prologue(op, row) for row in range(*self.rows[op][band][:2])], LONGEST_PERIOD
            )
        leaving = any(self.groups.leaves(m, self.mask) for m in self.segment.sliced_maps)
        keys = [(stop - start, leaving and not part) for part, (start, stop) in enumerate(self.parts)]
        count = sum(piece.passing or piece.passing_tail for piece in self.slices)
        first = band * count * len(self.parts)  # number of its first weight block
        yield from rolled(keys, lambda part: [*self._part(band, part, first + part * count)])

    def _part(self, band: int, part: int, number: int) -> Iterator[Node]:
        numbers = [
            number + count
            for count in accumulate((piece.passing or piece.passing_tail for piece in self.slices), initial=0)
        ]
        yield from rolled(self._alike, lambda k: [*self._slice(band, part, self.slices[k], numbers[k])])

    @cached_property
    def _alike(self) -> list[object]:
        """Per slice: what is the same where its steps differ only in where they are."""
        reads = [r for r in self.reads if r.access == "slice"]
        return [
            (
                piece._replace(span=(0, piece.span[1] - piece.span[0])),
                *(box_shape(self.segments.read_box(r.op, r.operand, piece.span)) for r in reads),
            )
            for piece in self.slices
        ]

    def _slice(self, band: int, part: int, piece: Slice, number: int) -> Iterator[Node]:
        yield from self._block(piece, self.parts[part], number)
        segment = self.segment
        loads = {source: bands[band] for source, bands in self.passing.items()}
        if segment.tail >= 0 and piece.last:
            _, stop, new = self.rows[segment.tail][band]
            for m in self.of["part"]:
                loads[m, "part"] = (new, stop)
        rows = {i: (bands[band][0], bands[band][1]) for i, bands in self.rows.items()}
        # the last slice ends sums, of which one row has room when it is finished
        if self.in_step and not piece.last:
            iterations: Iterator[list[Event] | Again] = in_step(
                self.reads, [*loads], rows[self.reads[0].op], max(self.rings.values())
            )
        else:
            # rows before these are not stored
            spans = {i: (bands[band][2], bands[band][1]) for i, bands in self.rows.items()}
            if segment.mean >= 0:
                spans[segment.mean] = 1, self.groups.lines.iterations[segment.mean] - 1
            iterations = self.groups.order(self.mask, segment, self.reads, rows, loads).folded_iterations(
                spans, LONGEST_PERIOD
            )
        blocks = (
            iteration
            if isinstance(iteration, Again)
            else [step for event in iteration for step in self._event(event, band, part, piece)]
            for iteration in iterations
        )
        yield from fold(blocks, LONGEST_PERIOD)

    def _block(self, piece: Slice, part: Span, number: int) -> Iterator[Step]:
        """Load the weights of a slice."""
        sizes = self.segments
        offset = 0
        boxes = list[tuple[str, Box]]()
        if piece.passing:
            boxes += [
                (s.name, sizes.weight_box(op, s, piece.span))
                for op, constants in self.weights.sliced.items()
                for s in constants
            ]
        if piece.passing_tail:
            boxes += [
                (s.name, sizes.weight_box(self.segment.tail, s, part, piece.span)) for s in self.weights.tail
            ]
        for name, box in boxes:
            yield self.layout.load_constant(name, box, self.blocks, number, offset)
            offset += self.layout.constant_bytes(name, box)

    def _event(self, event: Event, band: int, part: int, piece: Slice) -> Iterator[Step]:
        """Load or make rows."""
        flow = self.flow
        sizes = self.segments
        segment = self.segment
        row = (event.row, event.row + event.height)
        if event.source is not None:
            m, access = event.source
            reading = next(r for r in self.reads if r.operand.map == m and r.access == access)
            if access == "part":
                box = sizes.channels(m, self.parts[part])
            else:
                box = sizes.read_box(reading.op, reading.operand, piece.span)
            if box_elements(box):
                yield self.layout.load(flow.maps[m].name, with_rows(box, row), self.at[event.source])
            return
        (result,) = flow.results[event.op]
        tensor = flow.maps[result]
        if event.op == segment.tail:
            box = with_rows(sizes.channels(result, self.parts[part]), row)
            yield self.layout.compute(
                event.op,
                (box,),
                (self.results[result],),
                piece.span,
                self.sums,
                first=piece.first,
                last=piece.last,
            )
            if piece.last:
                yield self.layout.store(tensor.name, box, self.results[result])
        elif event.op == segment.mean:
            ends = row[1] == self.groups.lines.iterations[event.op]
            box = sizes.channels(result, piece.span)
            yield self.layout.compute(
                event.op, (box,), (self.results[result],), row, self.sums, first=not event.row, last=ends
            )
        else:
            box = with_rows(sizes.channels(result, piece.span), row)
            yield self.layout.compute(event.op, (box,), (self.at[result, "slice"],))
            if (
                self.groups.leaves(result, self.mask)
                and not part
                and event.row >= self.rows[event.op][band][2]
            ):
                yield self.layout.store(tensor.name, box, self.at[result, "slice"])
