"""The steps of a group in mode brr: per band, full operators and segments in graph order.

A segment runs slice by slice: its contraction makes one slice of channels from a full map, operators follow
on the slice, contractions add it to their sums, and with the last slice write their results. What leaves the
group is stored as soon as its rows of the band are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from lfopt.ir import Box, Compute, Node, Place, Purpose, Span, Step, cut, fold, whole
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import bits
from lfopt.ops.footprint import footprint
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.bands.slicing import Slicing
from lfopt.planning.steps.layout import with_rows
from lfopt.planning.steps.limit import Limit
from lfopt.planning.steps.rolling import rolled

SLOTS = 2  # blocks in the place that weights pass through
LONGEST_PERIOD = 16  # bands: the longest repetition that is looked for


# rows of a band: first, end, first that no band before computed, lowest of this band or a later one
BandRows = tuple[int, int, int, int]


class ChosenBands(NamedTuple):
    """A group whose bands are chosen."""

    mask: int
    draft: Slicing
    bands: int
    resident: bool  # whether all weights stay on chip
    rows: dict[int, list[BandRows]]  # per operator and band
    rings: dict[int, int]  # per full map: rows held
    slices: dict[int, int]  # per sliced map: rows held
    sums: dict[int, int]  # per operator that sums over slices: rows of partial sums


def _rolled(spans: Sequence[Span], body: Callable[[int, Span], Sequence[Node]]) -> Iterator[Node]:
    """The body for one span after the other."""
    return rolled([stop - start for start, stop in spans], lambda k: body(k, spans[k]))


class BandScheduler:
    """The schedule of one group."""

    def __init__(self, slices: SliceSizes, run: ChosenBands) -> None:
        self.slices, self.run = slices, run
        self.mask, self.draft, self.rows = run.mask, run.draft, run.rows
        self.flow, self.layout = slices.dataflow, slices.layout
        self.held, self.passing = slices.constants(run.mask)
        if run.resident:
            streamed = (s.name for constants in self.passing.values() for s in constants)
            self.held, self.passing = self.held | {name: slices.constant_bytes[name] for name in streamed}, {}
        self.places: list[Place] = []
        self.ends = dict.fromkeys(self.layout.hardware.stores, 0)  # of what was laid out last in each buffer
        self.at: dict[str, int] = {}  # places of maps and constants
        self.sums: dict[int, int] = {}  # places of partial sums, by operator
        self.blocks = -1  # index of the place that weights pass through
        self._lay_out()
        self.inputs = self._inputs()
        self.number = 0  # of the next weight block

    # -- places ----------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Allocate rings, constants and weight blocks in turn, then one stretch that all segments share."""
        slices, maps, draft = self.slices, self.flow.maps, self.draft
        for m, rows in sorted(self.run.rings.items()):
            self.at[maps[m].name] = self._place(maps[m].name, "map", rows, slices.row_bytes[m])
        for name, size in self.held.items():
            self.at[name] = self._place(name, "weight", 1, size)
        if self.passing:
            size = max(slices.block_bytes(i, sums=self._is_summing(i)) for i in self.passing)
            self.blocks = self._place(self.layout.place_name("weight blocks"), "weight", SLOTS, size)
        base = self.ends["buffer"]
        for head in sorted(set(draft.head.values())):
            self.ends["buffer"] = base
            for m in (m for m in self.run.slices if draft.head[m] == head):
                self.at[maps[m].name] = self._place(
                    maps[m].name, "map", self.run.slices[m], slices.slice_bytes(m)
                )
            for i in (i for i in self.run.sums if draft.segment[i] == head):
                self.sums[i] = self._place(
                    self.layout.sums_name(i), "sum", self.run.sums[i], slices.sum_bytes(i)
                )

    def _place(self, name: str, purpose: Purpose, slots: int, slot_bytes: int) -> int:
        """Index of a new place, behind the last one in the buffer that it lies in."""
        store = self.layout.hardware.store_of(purpose)
        self.places.append(Place(name, purpose, self.ends[store], slots, slot_bytes))
        self.ends[store] = self.places[-1].end
        return len(self.places) - 1

    def _is_summing(self, op: int) -> bool:
        return bool(self.draft.summing >> op & 1)

    # -- steps -----------------------------------------------------------------------------------------------

    def build(self, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps."""
        bands = [*limit.allowed(tuple(self._band(band)) for band in range(self.run.bands))]
        return tuple(self.places), (*self._constants(), *fold(bands, LONGEST_PERIOD))

    def _constants(self) -> Iterator[Step]:
        """Loads of the constants that stay."""
        for name in self.held:
            yield self.layout.load_constant(name, whole(self.flow.graph.shape(name)), self.at[name])

    def _band(self, band: int) -> Iterator[Node]:
        for m, spans in self.inputs.items():
            yield from self._loads(m, spans[band])
        for i in bits(self.mask):
            head = self.draft.segment.get(i)
            if head is None:
                yield from self._full(i, band)
            elif head == i:
                yield from self._segment(i, band)
        if band == self.run.bands - 1:
            for m in self.inputs:
                yield from self._loads(m, [(self.inputs[m][-1][-1][1], self.flow.maps[m].rows)])

    def _inputs(self) -> dict[int, list[list[Span]]]:
        """Per external map, in the order of their readers, and per band: rows to load in turns.

        Rows that nothing will read go first.
        """
        flow = self.flow
        readers: dict[int, list[tuple[int, tuple[int, ...], tuple[int, ...]]]] = {}
        for i in bits(self.mask):
            for o in flow.operands[i]:
                producer = flow.producer[o.map]
                if producer < 0 or not self.mask >> producer & 1:
                    readers.setdefault(o.map, []).append((i, (0, *o.reads.need), o.reads.keep))
        loads: dict[int, list[list[Span]]] = {}
        for m, reads in readers.items():
            loaded, bands = 0, list[list[Span]]()
            for band in range(self.run.bands):
                stop = max(need[self.rows[i][band][1]] for i, need, _ in reads)
                kept = min(keep[self.rows[i][band][3]] for i, _, keep in reads)
                kept = min(max(kept, loaded), stop)
                bands.append([(loaded, kept), (kept, stop)])
                loaded = stop
            loads[m] = bands
        return loads

    def _loads(self, m: int, spans: Sequence[Span]) -> Iterator[Step]:
        """Rows of an external map, no more at a time than its ring has."""
        tensor = self.flow.maps[m]
        place = self.at[tensor.name]
        for start, stop in spans:
            while start < stop:
                end = min(start + self.places[place].slots, stop)
                yield self.layout.load(tensor.name, with_rows(whole(tensor.shape), (start, end)), place)
                start = end

    def _full(self, op: int, band: int) -> Iterator[Node]:
        """An operator on full maps: all channels at once, or block by block as its weights pass."""
        start, stop, *_ = self.rows[op][band]
        if op in self.passing:
            first, spans = self.number, self.slices.spans(self.flow.calls[op].result)
            yield from _rolled(
                spans,
                lambda k, span: [*self._block(op, first + k, span), *self._computes(op, (start, stop), span)],
            )
            self.number += len(spans)
        else:
            yield from self._computes(op, (start, stop))
        yield from self._stores(op, (start, stop))

    def _segment(self, head: int, band: int) -> Iterator[Node]:
        """Slice by slice: the contraction at the head, what follows on its slice, and sums."""
        members = [i for i in bits(self.mask) if self.draft.segment.get(i) == head]
        spans = self.slices.spans(self.flow.calls[head].result)
        blocks = [self._block_count(i) for i in members]
        base, last = self.number, len(spans) - 1

        def iteration(k: int, span: Span) -> list[Node]:
            number, steps = base + k * sum(blocks), list[Node]()
            for i, count in zip(members, blocks, strict=True):
                if self._is_summing(i):
                    steps += self._sum(i, band, number, span, first=k == 0, last=k == last)
                else:
                    start, stop, new, _ = self.rows[i][band]
                    if i in self.passing:
                        steps += self._block(i, number, span)
                    steps += self._computes(i, (start, stop), span)
                    steps += self._stores(i, (new, stop), span)
                number += count
            return steps

        yield from iteration(0, spans[0])
        yield from _rolled(spans[1:-1], lambda k, span: iteration(k + 1, span))
        yield from iteration(last, spans[last])
        self.number += len(spans) * sum(blocks)
        for i in members:
            if not any(m in self.draft.head for m in self.flow.results[i]):
                start, stop, *_ = self.rows[i][band]
                yield from self._stores(i, (start, stop))

    def _block_count(self, op: int) -> int:
        """Weight blocks that an operator of a segment takes per slice."""
        if op not in self.passing:
            return 0
        return len(self.slices.blocks(op, sums=True)) if self._is_summing(op) else 1

    def _sum(
        self, op: int, band: int, number: int, inputs: Span, *, first: bool, last: bool
    ) -> Iterator[Node]:
        """Add one slice to the sums of a contraction.

        All output channels at once, or block by block as its weights pass.
        """
        start, stop, *_ = self.rows[op][band]

        def compute(span: Span | None) -> Iterator[Step]:
            for step in self._computes(op, (start, stop), span):
                yield replace(step, inputs=inputs, accumulator=self.sums[op], first=first, last=last)

        if op not in self.passing:
            yield from compute(None)
            return
        spans = self.slices.blocks(op, sums=True)
        yield from _rolled(
            spans, lambda k, span: [*self._block(op, number + k, span, inputs, late=last), *compute(span)]
        )

    def _block(
        self, op: int, number: int, span: Span, inputs: Span | None = None, *, late: bool = True
    ) -> Iterator[Step]:
        """Load the weights of some output channels, and of some input channels if `inputs` says so.

        `late`: whether sums are finished, which takes the bias too.
        """
        out, offset = self.slices.result_box(op, span), 0
        for s in self.passing[op]:
            if late or not s.late:
                box = footprint(self.flow.calls[op], s.input, out, inputs=None if s.late else inputs)
                yield self.layout.load_constant(s.name, box, self.blocks, number, offset)
                offset += self.layout.constant_bytes(s.name, box)

    def _computes(self, op: int, rows: Span, channels: Span | None = None) -> Iterator[Compute]:
        """The operator on rows of its results, if there are any."""
        flow = self.flow
        if rows[0] < rows[1]:
            maps = [flow.maps[m] for m in flow.results[op]]
            boxes = tuple(self._box(tensor.shape, rows, channels) for tensor in maps)
            yield self.layout.compute(op, boxes, tuple(self.at.get(tensor.name, -1) for tensor in maps))

    def _stores(self, op: int, rows: Span, channels: Span | None = None) -> Iterator[Step]:
        """Stores of the complete rows that leave the group."""
        for m in self.flow.results[op]:
            if rows[0] < rows[1] and self.slices.leaves(m, self.mask):
                tensor = self.flow.maps[m]
                yield self.layout.store(
                    tensor.name, self._box(tensor.shape, rows, channels), self.at[tensor.name]
                )

    @staticmethod
    def _box(shape: tuple[int, ...], rows: Span, channels: Span | None) -> Box:
        box = with_rows(whole(shape), rows)
        return box if channels is None else cut(box, CHANNEL_AXIS_OF_RANK[len(shape)], channels)
