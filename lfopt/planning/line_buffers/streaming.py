"""The line-buffer depth-first schedule of a group, step by step: for whole maps, or for a frame of them.

Frames: `lfopt.planning.tiling.frames`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lfopt.ir import (
    Again,
    Box,
    Compute,
    Hardware,
    Node,
    Place,
    Purpose,
    Span,
    Step,
    Tensor,
    Transfer,
    box_elements,
    box_shape,
    cut,
    fold,
    round_up,
    row_axis,
    whole,
)
from lfopt.ops import Call, Dataflow, RowReads, bits, keeps_rows, row_of
from lfopt.ops.dataflow import gathered_pieces
from lfopt.ops.flight import flight_names
from lfopt.ops.rows import all_rows
from lfopt.planning.line_buffers.lines import Lines
from lfopt.planning.line_buffers.steady import StateRead, StateSink, StateSpan, Steady, within
from lfopt.planning.steps.limit import Limit

LONGEST_PERIOD = 64  # iterations of the sinks: the longest repetition that is looked for


class AllocationRequest(NamedTuple):
    """A place before it has an address."""

    name: str
    purpose: Purpose
    slots: int
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class DramSource:
    """A map that a group reads from DRAM, or a view of it as the reader sees it where that differs."""

    name: str
    map: int  # index into Dataflow.maps
    tensor: Tensor
    rows_kept: bool  # whether its rows are the rows of the map
    ring: int = 0  # rows held at once, where they differ from those of the map
    # seen through a view whose rows are spread over padded rows of the map: it can only be loaded as a whole
    entire: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """One external map operand of an operator."""

    op: int
    input: int
    source: DramSource
    reads: RowReads


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
        places, ends = list[Place](), dict.fromkeys(self.hardware.stores, 0)
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
        name, size = self.flow.maps[self.flow.results[op][0]].name, self.gathered_bytes(op, box)
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


def is_parameter(call: Call, index: int) -> bool:
    """Whether an input of an operator, or of one that follows it in flight, is no data: an axis, a shape."""
    part, own = call.part_of(index)
    return own in row_of(part).parameters


def row_span(box: Box) -> Span:
    """Rows of a box; a map of one row has just that."""
    axis = row_axis(box_shape(box))
    return (0, 1) if axis is None else box[axis]


def with_rows(box: Box, rows: Span) -> Box:
    """The box with other rows; a map of one row has no row axis to cut."""
    axis = row_axis(box_shape(box))
    return box if axis is None else cut(box, axis, rows)


class StreamedGroup:
    """Operands, results and constants of a group in the line-buffer schedule."""

    def __init__(self, layout: BufferLayout, mask: int, rings: dict[int, int]) -> None:
        self.layout = layout
        self.flow = flow = layout.flow
        self.mask = mask
        self.members = tuple(bits(mask))
        self.computed = [m for i in self.members for m in flow.results[i]]
        self.outside = {*flow.leaving(mask)}
        self.rings = rings

    def constants(self) -> dict[str, list[tuple[int, int]]]:
        """Constants held on chip, each with the (operator, input) pairs that read it."""
        readers: dict[str, list[tuple[int, int]]] = {}
        for i in self.members:
            held = {w.name for w in self.flow.weights[i] if not w.gathered}
            for index, name in enumerate(self.flow.calls[i].inputs):
                if name in held and not is_parameter(self.flow.calls[i], index):
                    readers.setdefault(name, []).append((i, index))
        return readers

    def gathers(self, op: int) -> bool:
        """Whether the operator picks rows of a constant in DRAM."""
        return any(w.gathered for w in self.flow.weights[op])

    def operands(self, *, as_seen: bool) -> list[Operand]:
        """External map operands, as the maps behind views.

        `as_seen`: by the name and shape that the reader sees.
        """
        flow, operands = self.flow, []
        inner = set(self.computed)
        readers = Counter(
            flow.calls[i].inputs[operand.input] for i in self.members for operand in flow.operands[i]
        )
        for i in self.members:
            for operand in flow.operands[i]:
                if operand.map in inner:
                    continue
                root = flow.maps[operand.map]
                seen = flow.graph.tensors[flow.calls[i].inputs[operand.input]]
                if not as_seen or seen.shape == root.shape:
                    operands.append(
                        Operand(
                            i,
                            operand.input,
                            DramSource(root.name, operand.map, root, rows_kept=True),
                            operand.reads,
                        )
                    )
                    continue
                kept = keeps_rows(root.shape, seen.shape)
                if not kept and self.layout.padded(root):
                    reads = all_rows(root.rows, flow.heights[i])
                    operands.append(
                        Operand(
                            i,
                            operand.input,
                            DramSource(root.name, operand.map, root, rows_kept=True, entire=True),
                            reads,
                        )
                    )
                    continue
                if kept:
                    operands.append(
                        Operand(
                            i,
                            operand.input,
                            DramSource(seen.name, operand.map, seen, rows_kept=True),
                            operand.reads,
                        )
                    )
                    continue
                part, index = flow.calls[i].part_of(operand.input)
                reads, alone = row_of(part).reads(part, index), readers[seen.name] == 1
                source = DramSource(
                    seen.name,
                    operand.map,
                    seen,
                    rows_kept=False,
                    ring=reads.widest[-1] if alone else seen.rows,
                )
                operands.append(
                    Operand(
                        i, operand.input, source, reads if alone else all_rows(seen.rows, flow.heights[i])
                    )
                )
        return operands

    def ring(self, source: DramSource) -> int:
        """Rows of an external map held at once."""
        return self.rings[source.map] if source.rows_kept else source.ring


class Walk:
    """The demand-driven order: rows of the sinks in turn, each after the rows that it needs.

    `boxes`: what to load of each source (rows are cut out of it); `resident`: sources that are on chip from
    an earlier frame. `band_rows`: rows of a sink that come next. If more than one, an operator makes in one
    step whatever it is asked for. `rows`: of each operator, where that is not all that the frame has.
    `lines`: which reductions run through their operand row by row, if any.
    """

    def __init__(
        self,
        group: StreamedGroup,
        operands: Sequence[Operand],
        boxes: dict[str, Box],
        frame: Box | None,
        places: dict[str, int],
        resident: frozenset[str],
        band_rows: int = 1,
        rows: Mapping[int, Span] | None = None,
        lines: Lines | None = None,
    ) -> None:
        flow = group.flow
        self.group, self.flow, self.boxes, self.frame, self.places, self.band_rows = (
            group,
            flow,
            boxes,
            frame,
            places,
            band_rows,
        )
        self.lines = lines = lines or Lines.plain(flow)
        rows = rows or {i: row_span(frame) if frame else (0, lines.iterations[i]) for i in group.members}
        self.done = {i: first for i, (first, _) in rows.items()}
        self.heights = {i: stop for i, (_, stop) in rows.items()}
        spans = {o.source.name: row_span(boxes[o.source.name]) for o in operands}
        self.ends = {name: stop for name, (_, stop) in spans.items()}
        self.loaded = {name: stop if name in resident else first for name, (first, stop) in spans.items()}
        # per operator: (producer or -1, source, reads) in input order
        self.needs: dict[int, list[tuple[int, str, RowReads]]] = {}
        external = {(o.op, o.input): o for o in operands}
        for i in group.members:
            self.needs[i] = []
            for o in lines.operands[i]:
                outside = external.get((i, o.input))
                reads = o.reads if lines.running >> i & 1 else outside.reads if outside else o.reads
                self.needs[i].append(
                    (-1, outside.source.name, reads) if outside else (flow.producer[o.map], "", reads)
                )
        self.steps: list[Step] = []

    def iterations(self) -> Iterator[list[Step] | Again]:
        """The steps that make one band of one sink after the other; last the loads of unread input rows.

        Iterations that only repeat those before are not walked.
        """
        done, heights, of = self.done, self.heights, self.lines.iterations
        sinks = [i for i in self.group.members if any(m in self.group.outside for m in self.flow.results[i])]
        steady = self._steady(sinks)
        while unfinished := [
            (min(done[i] + self.band_rows, heights[i]), i) for i in sinks if done[i] < heights[i]
        ]:
            rows, sink = (
                min(unfinished, key=lambda band: (band[0] / of[band[1]], band[1]))
                if len(unfinished) > 1
                else unfinished[0]
            )
            self._produce(sink, rows)
            yield self.steps
            self.steps = []
            if repeated := steady.again((*done.values(), *self.loaded.values())):
                again, state = repeated
                rows = iter(state)
                done.update(zip(done, rows, strict=False))
                self.loaded.update(zip(self.loaded, rows, strict=True))
                yield again
        for name, end in self.ends.items():
            self._load(name, end)
        yield self.steps

    def _steady(self, sinks: Sequence[int]) -> Steady:
        flow, lines = self.flow, self.lines
        at: dict[int | str, int] = {key: k for k, key in enumerate((*self.done, *self.loaded))}
        reads = [
            (at[i], at[name or maker], name, reads.need)
            for i, needs in self.needs.items()
            for maker, name, reads in needs
        ]
        readings = [
            StateRead(i, source, need if not name else within(need, self.ends[name]))
            for i, source, name, need in reads
        ]
        reaches = [
            StateSpan(at[i], 1, lines.iterations[i] - 1) for i in self.group.members if lines.running >> i & 1
        ]
        reaches += [
            StateSpan(at[i], 0, flow.maps[m].rows)
            for i in self.group.members
            if not lines.running >> i & 1
            for m in flow.results[i]
        ]
        bands = [StateSink(at[i], self.heights[i], lines.iterations[i]) for i in sinks]
        return Steady(
            (*self.done.values(), *self.loaded.values()),
            readings,
            reaches,
            bands,
            self.band_rows,
            LONGEST_PERIOD,
        )

    def _produce(self, sink: int, rows: int) -> None:
        waiting = [(sink, rows)]
        while waiting:
            i, goal = waiting[-1]
            first = self.done[i]
            if first >= goal:
                waiting.pop()
                continue
            stop = (
                goal
                if self.band_rows > 1 and not self.lines.running >> i & 1
                else min(first + self.band_rows, goal)
            )
            for producer, source, reads in self.needs[i]:
                need = reads.need[stop - 1]
                if producer < 0:
                    self._load(source, need)
                elif self.done[producer] < need:
                    waiting.append((producer, need))
                    break
            else:
                self._compute(i, first, stop)
                self.done[i] = stop

    def _load(self, name: str, until: int) -> None:
        first, until = self.loaded[name], min(until, self.ends[name])
        if first < until:
            box = with_rows(self.boxes[name], (first, until))
            if box_elements(box):
                self.steps.append(self.group.layout.load(name, box, self.places[name]))
            self.loaded[name] = until

    def _compute(self, op: int, first: int, stop: int) -> None:
        flow, layout = self.flow, self.group.layout
        if self.lines.running >> op & 1:
            self._fold(op, (first, stop))
            return
        results: list[Box] = []
        into: list[int] = []
        for m in flow.results[op]:
            tensor = flow.maps[m]
            results.append(with_rows(self.extent(m), (min(first, tensor.rows), min(stop, tensor.rows))))
            into.append(self.places[tensor.name] if first < tensor.rows else -1)
        if self.group.gathers(op):
            self.steps.append(layout.gather(op, results[0], into[0], first))
        else:
            self.steps.append(layout.compute(op, tuple(results), tuple(into)))
        for m, box, place in zip(flow.results[op], results, into, strict=True):
            if m in self.group.outside and place >= 0:
                self.steps.append(layout.store(flow.maps[m].name, self.stored_of(m, box), place))

    def extent(self, m: int) -> Box:
        """Box that is made of a map; rows are cut out of it."""
        return self.frame or whole(self.flow.maps[m].shape)

    def stored_of(self, m: int, box: Box) -> Box:
        """Box that is stored of rows that were made."""
        return box

    def _fold(self, op: int, rows: Span) -> None:
        """Take rows of the operand of a running reduction."""
        flow, layout = self.flow, self.group.layout
        (m,), last = flow.results[op], rows[1] == self.lines.iterations[op]
        tensor, sums = flow.maps[m], self.places[layout.sums_name(op)]
        box = whole(tensor.shape)
        self.steps.append(
            layout.compute(op, (box,), (self.places[tensor.name],), rows, sums, first=rows[0] == 0, last=last)
        )
        if last and m in self.group.outside:
            self.steps.append(layout.store(tensor.name, box, self.places[tensor.name]))


def line_buffer_schedule(
    layout: BufferLayout,
    mask: int,
    rings: dict[int, int],
    lines: Lines | None = None,
    band_rows: int = 1,
    limit: Limit | None = None,
) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
    """Places and steps of a group that runs in line-buffer depth-first order on whole maps.

    `rings`: of `LineBuffers.ring_rows`, for such bands.

    Raises Unwritten beyond the limit.
    """
    group = StreamedGroup(layout, mask, rings)
    flow = group.flow
    constants = {name: whole(flow.graph.tensors[name].shape) for name in group.constants()}
    operands = group.operands(as_seen=False)
    entries = [
        AllocationRequest(name, "weight", 1, layout.constant_bytes(name, box))
        for name, box in constants.items()
    ]
    touched = dict.fromkeys([*(o.source.map for o in operands), *(m for m in group.computed if rings[m])])
    entries += [
        AllocationRequest(flow.maps[m].name, "map", rings[m], layout.hardware.row_bytes(flow.maps[m]))
        for m in touched
    ]
    lines = lines or Lines.plain(flow)
    for i in bits(mask & lines.running):
        entries.append(
            AllocationRequest(
                layout.sums_name(i), "sum", 1, layout.sums_row(whole(flow.maps[flow.results[i][0]].shape))
            )
        )
    places = layout.stack(entries)
    at = {place.name: k for k, place in enumerate(places)}
    boxes = {o.source.name: whole(o.source.tensor.shape) for o in operands}
    head = [layout.load_constant(name, box, at[name]) for name, box in constants.items()]
    iterations = [
        *(limit or Limit()).allowed(
            Walk(group, operands, boxes, None, at, frozenset(), band_rows, lines=lines).iterations()
        )
    ]
    return places, (*head, *fold(iterations, LONGEST_PERIOD))
