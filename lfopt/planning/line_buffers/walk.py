"""The line-buffer depth-first schedule of a group, step by step: for whole maps, or for a frame of them.

Frames: `lfopt.planning.tiling.frames`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lfopt.ir import Again, Box, Compute, Span, Step, box_elements, whole
from lfopt.ops import RowReads
from lfopt.planning.line_buffers.lbdf import leading, next_leader
from lfopt.planning.line_buffers.lines import Lines
from lfopt.planning.line_buffers.steady import StateRead, StateSink, StateSpan, Steady, within
from lfopt.planning.line_buffers.streamed_group import Operand, StreamedGroup
from lfopt.planning.steps.layout import row_span, with_rows

LONGEST_PERIOD = 64  # iterations of the sinks: the longest repetition that is looked for


class Walk:
    """The demand-driven order: rows of the sinks in turn, each after the rows that it needs.

    `boxes`: what to load of each source (rows are cut out of it); `resident`: sources that are on chip from
    an earlier frame. `band_rows`: rows of a sink that come next. If more than one, an operator makes in one
    step whatever it is asked for. `rows`: of each operator, where that is not all that the frame has.
    `lines`: which reductions run through their operand row by row, if any. `last_lead`: see `leading`.
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
        *,
        last_lead: bool = False,
    ) -> None:
        flow = group.flow
        self.group = group
        self.flow = flow
        self.boxes = boxes
        self.frame = frame
        self.places = places
        self.band_rows = band_rows
        self.leaders = leading(flow, group.mask, last_lead=last_lead)
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
                if outside is None:
                    self.needs[i].append((flow.producer[o.map], "", o.reads))
                    continue
                # a running reduction takes row after row of its operand, however that is loaded
                reads = o.reads if lines.running >> i & 1 else outside.reads
                self.needs[i].append((-1, outside.source.name, reads))
        self.steps: list[Step] = []

    def iterations(self) -> Iterator[list[Step] | Again]:
        """The steps that make one band of one sink after the other; last the loads of unread input rows.

        Iterations that only repeat those before are not walked.
        """
        done = self.done
        heights = self.heights
        of = self.lines.iterations
        steady = self._steady(self.leaders[0])
        while (sink := next_leader(self.leaders, done, heights, of, self.band_rows)) is not None:
            self._produce(sink, min(done[sink] + self.band_rows, heights[sink]))
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
        flow = self.flow
        lines = self.lines
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
            if self.band_rows > 1 and not self.lines.running >> i & 1:
                stop = goal
            else:
                stop = min(first + self.band_rows, goal)
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
        first = self.loaded[name]
        until = min(until, self.ends[name])
        if first < until:
            box = with_rows(self.boxes[name], (first, until))
            if box_elements(box):
                self.steps.append(self.group.layout.load(self.tensor_of(name), box, self.places[name]))
            self.loaded[name] = until

    def _compute(self, op: int, first: int, stop: int) -> None:
        flow = self.flow
        layout = self.group.layout
        if self.lines.running >> op & 1:
            self._fold(op, (first, stop))
            return
        results: list[Box] = []
        into: list[int] = []
        for m in flow.results[op]:
            tensor = flow.maps[m]
            results.append(with_rows(self.extent(m), (min(first, tensor.rows), min(stop, tensor.rows))))
            into.append(self.places.get(tensor.name, -1) if first < tensor.rows else -1)
        if self.group.gathers(op):
            self.steps.append(layout.gather(op, results[0], into[0], first))
        else:
            self.steps.append(self.computing(op, layout.compute(op, tuple(results), tuple(into))))
        for m, box, place in zip(flow.results[op], results, into, strict=True):
            if m in self.group.outside and place >= 0:
                self._store(m, box, place)

    def _store(self, m: int, box: Box, place: int) -> None:
        stored = self.stored_of(m, box)
        if stored is not None:
            self.steps.append(self.group.layout.store(self.flow.maps[m].name, stored, place))

    def tensor_of(self, name: str) -> str:
        """The tensor that a source is loaded from."""
        return name

    def computing(self, op: int, compute: Compute) -> Compute:
        """The step in which an operator makes rows."""
        return compute

    def extent(self, m: int) -> Box:
        """Box that is made of a map; rows are cut out of it."""
        return self.frame or whole(self.flow.maps[m].shape)

    def stored_of(self, m: int, box: Box) -> Box | None:
        """Box that is stored of rows that were made; None: nothing now."""
        return box

    def _fold(self, op: int, rows: Span) -> None:
        """Take rows of the operand of a running reduction."""
        flow = self.flow
        layout = self.group.layout
        (m,), last = flow.results[op], rows[1] == self.lines.iterations[op]
        tensor = flow.maps[m]
        sums = self.places.get(layout.sums_name(op))
        box = self.extent(m)
        place = self.places[tensor.name]
        if sums is None:  # it takes all rows at once
            self.steps.append(layout.compute(op, (box,), (place,)))
        else:
            first = rows[0] == 0
            self.steps.append(layout.compute(op, (box,), (place,), rows, sums, first=first, last=last))
        if last and m in self.group.outside:
            self._store(m, box, place)
