"""The steps of a group around a barrier (mode gated), as `lfopt.planning.gated.sizes` chose to run it.

Places lie from the bottom up: what stays throughout; above it what phase 1 takes, then the vectors, then what
phase 2 takes, each from the same address on. But the results of the folds lie above phase 1 and all other
vectors, and what gates lies at the bottom of phase 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum

from lfopt.ir import Box, Compute, Node, Place, Purpose, Span, Step, cut, fold, whole
from lfopt.ir.box import spans
from lfopt.ops.footprint import footprint
from lfopt.planning.gated.passage import bands
from lfopt.planning.gated.sizes import SLOTS, GatedChoice, Sizes
from lfopt.planning.steps.layout import BufferLayout, with_rows
from lfopt.planning.steps.limit import Limit
from lfopt.planning.steps.place_names import BESIDE, IN_BLOCKS
from lfopt.planning.steps.rolling import rolled

LONGEST_PERIOD = 16  # bands: the longest repetition that is looked for


class GatedPhase(Enum):
    """Phase of a group, by the name of the place of its weight blocks."""

    AHEAD = "weight blocks"
    VECTORS = "weight blocks of vectors"
    BEHIND = "weight blocks behind"


# (operator, output channels, input channels of a sum, whether with what is read when sums are finished)
WeightBlock = tuple[int, Span, Span | None, bool]


class GatedScheduler:
    """The schedule of one group."""

    def __init__(self, sizes: Sizes, layout: BufferLayout, choice: GatedChoice) -> None:
        self.sizes = sizes
        self.layout = layout
        self.choice = choice
        self.flow = sizes.flow
        self.block = sizes.block
        self.option = choice.option
        self.tail = sizes.block.tail
        kept = [(span, True) for span in spans(0, choice.kept, choice.width)]
        # (channels, whether they are kept) of each slice
        self.slices = [*kept, *((span, False) for span in spans(choice.kept, sizes.channels, choice.width))]
        self.places: list[Place] = []
        self.taken: dict[GatedPhase, list[int]] = {phase: [] for phase in GatedPhase}  # places by phase
        self.now: tuple[GatedPhase, ...] = tuple(GatedPhase)  # that the next place is for
        self.top = 0  # address of the next place, bytes
        self.at: dict[tuple[GatedPhase, int], int] = {}  # places of maps
        self.kept = -1  # place of the channels that are kept
        self.sums: dict[int, int] = {}  # places of partial results, by operator
        self.held: dict[str, int] = {}  # places of constants
        self.blocks: dict[GatedPhase, int] = {}  # places that weight blocks pass through
        self._lay_out()

    # -- places ----------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        sizes = self.sizes
        choice = self.choice
        if choice.kept:
            self.kept = self._place(
                self._name(sizes.map), "map", sizes.height, self._row(sizes.map, choice.kept)
            )
        if self.option.stays:
            self.at[GatedPhase.AHEAD, sizes.input] = self.at[GatedPhase.BEHIND, sizes.input] = self._whole(
                sizes.input
            )
        for v in sizes.folded:
            if v in sizes.gates:
                self.at[GatedPhase.VECTORS, v] = self._whole(v)
        bottom = self.top
        self.now = (GatedPhase.AHEAD,)
        self._lay_out_ahead()
        above = self.top
        self.top = bottom
        self.now = (GatedPhase.VECTORS, GatedPhase.BEHIND)
        for v in sizes.gates:
            if v not in sizes.folded:
                self.at[GatedPhase.VECTORS, v] = self._whole(v)
        gated = self.top
        self.now = (GatedPhase.VECTORS,)
        for v in (*sizes.vectors, *sizes.vector_reads):
            self.at[GatedPhase.VECTORS, v] = self._whole(v)
        self._hold(self.block.vectors)
        self._pass(GatedPhase.VECTORS, SLOTS, sizes.vector_block(choice.vector_width))
        self.top = max(self.top, above)
        self.now = (GatedPhase.AHEAD, GatedPhase.VECTORS)
        for v in sizes.folded:
            if v not in sizes.gates:
                self.at[GatedPhase.VECTORS, v] = self._whole(v)
        self.top = gated
        self.now = (GatedPhase.BEHIND,)
        self._lay_out_behind()

    def fullest(self) -> list[tuple[str, Place]]:
        """Places of the phase that takes the most, each with the name of the map in it, or else its own."""
        store_of = self.layout.hardware.store_of
        fullest = max(
            self.taken.values(),
            key=lambda taken: sum(
                p.bytes for k in taken if store_of((p := self.places[k]).purpose) == "buffer"
            ),
        )
        maps = {place: self._name(m) for (_, m), place in self.at.items()} | {
            self.kept: self._name(self.sizes.map)
        }
        return [(maps.get(k, self.places[k].name), self.places[k]) for k in fullest]

    def _lay_out_ahead(self) -> None:
        sizes = self.sizes
        choice = self.choice
        block = self.block
        if sizes.input >= 0 and not self.option.stays:
            self.at[GatedPhase.AHEAD, sizes.input] = self._whole(sizes.input)
        rings = sizes.passage(choice.rows[0], behind=False).rings if sizes.inside else {}
        for m, rows in rings.items():
            if m != sizes.map:
                self._ring(GatedPhase.AHEAD, m, rows, choice.width)
        if choice.kept < sizes.channels:
            self._ring(
                GatedPhase.AHEAD,
                sizes.map,
                min(choice.rows[0], sizes.height),
                sizes.gone(choice.width, choice.kept),
            )
        if choice.rows[0] < sizes.height:
            for i in block.folds:
                self._sum(i, 1, choice.width)
        self._hold(block.ahead)
        self._pass(
            GatedPhase.AHEAD, choice.slots[0], sum(sizes.block_bytes(i, choice.width) for i in block.ahead)
        )

    def _lay_out_behind(self) -> None:
        sizes = self.sizes
        choice = self.choice
        option = self.option
        tail = self.tail
        # maps of all slices, not just of those that are not kept
        wide = sizes.passage(choice.rows[1], behind=True).rings.keys() - {sizes.map}
        for m, rows in sizes.passage(choice.rows[1], behind=True, again=option.again).rings.items():
            if (m != sizes.map or choice.kept < sizes.channels) and (m != sizes.result or tail < 0):
                self._ring(
                    GatedPhase.BEHIND,
                    m,
                    rows,
                    choice.width if m in wide else sizes.gone(choice.width, choice.kept),
                )
        self._hold(sizes.after)
        if tail >= 0:
            self._ring(GatedPhase.BEHIND, sizes.result, choice.rows[1], option.part)
            if len(self.slices) > 1:
                self._sum(tail, option.band, option.part)
            for m in sizes.beside:
                if (GatedPhase.BEHIND, m) not in self.at:
                    self._ring(GatedPhase.BEHIND, m, choice.rows[1], option.part)
            if option.held:
                for s in sizes.slices.facts[tail].streamed:
                    self.held[s.name] = self._place(s.name, "weight", 1, sizes.slices.constant_bytes[s.name])
        self._pass(GatedPhase.BEHIND, choice.slots[1], sizes.block_behind(choice.width, option, choice.kept))

    def _place(self, name: str, purpose: Purpose, slots: int, slot_bytes: int) -> int:
        """Index of a new place. In a buffer of their own, weights lie one after the other in every phase."""
        apart = self.layout.hardware.store_of(purpose) != "buffer"
        here = (self.places[k] for phase in self.now for k in self.taken[phase])
        if apart:
            address = max((place.end for place in here if place.purpose == purpose), default=0)
        else:
            address = self.top
        self.places.append(Place(name, purpose, address, slots, slot_bytes))
        self.top = self.top if apart else self.places[-1].end
        for phase in self.now:
            self.taken[phase].append(len(self.places) - 1)
        return len(self.places) - 1

    def _name(self, m: int) -> str:
        return self.flow.maps[m].name

    def _row(self, m: int, channels: int) -> int:
        shape = self.flow.maps[m].shape
        return self.layout.row_on_chip(cut(whole(shape), self.sizes.axis(m), (0, channels)))

    def _whole(self, m: int) -> int:
        tensor = self.flow.maps[m]
        return self._place(tensor.name, "map", tensor.rows, self.layout.hardware.row_bytes(tensor))

    def _ring(self, phase: GatedPhase, m: int, rows: int, channels: int) -> None:
        """So many rows and channels of a map, which may have another place."""
        name = self._name(m)
        if m == self.sizes.map:
            name = self.layout.place_name(
                f"{name}{BESIDE}" if phase is GatedPhase.AHEAD else f"{name}{IN_BLOCKS}"
            )
        elif any(place.name == name for place in self.places):
            name = self.layout.place_name(f"{name}{BESIDE}")
        self.at[phase, m] = self._place(name, "map", rows, self._row(m, channels))

    def _sum(self, op: int, rows: int, channels: int) -> None:
        size = self.layout.hardware.sums_bytes(self._row(self.flow.results[op][0], channels))
        self.sums[op] = self._place(self.layout.sums_name(op), "sum", rows, size)

    def _hold(self, ops: Sequence[int]) -> None:
        """Places of the constants that fall into no blocks."""
        for name in (name for i in ops for name in self.sizes.slices.facts[i].held):
            self.held[name] = self._place(name, "weight", 1, self.sizes.slices.constant_bytes[name])

    def _pass(self, phase: GatedPhase, slots: int, size: int) -> None:
        """The place that blocks of a phase pass through, if there are any."""
        if size:
            self.blocks[phase] = self._place(self.layout.place_name(phase.value), "weight", slots, size)

    # -- steps -----------------------------------------------------------------------------------------------

    def build(self, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps."""
        return tuple(self.places), (
            *self._phase_ahead(limit),
            *self._phase_vectors(),
            *self._phase_behind(limit),
        )

    def _load(self, m: int, place: int) -> Step:
        """A map as a whole."""
        tensor = self.flow.maps[m]
        return self.layout.load(tensor.name, whole(tensor.shape), place)

    def _load_held(self, ops: Sequence[int]) -> Iterator[Step]:
        for name in (name for i in ops for name in self.sizes.slices.facts[i].held):
            yield self._load_constant(name)

    def _load_constant(self, name: str) -> Step:
        return self.layout.load_constant(name, whole(self.flow.graph.shape(name)), self.held[name])

    def _loads(self, m: int, rows: Span, channels: Span, place: int) -> Iterator[Step]:
        """Rows of a map, no more at a time than their ring has."""
        first, stop = rows
        while first < stop:
            end = min(first + self.places[place].slots, stop)
            step = self.layout.load(self._name(m), self._box(m, (first, end), channels), place)
            yield replace(step, kind="spill") if m == self.sizes.map and self.sizes.inside else step
            first = end

    def _box(self, m: int, rows: Span, channels: Span) -> Box:
        return cut(with_rows(whole(self.flow.maps[m].shape), rows), self.sizes.axis(m), channels)

    def _compute(self, op: int, rows: Span, channels: Span, place: int) -> Iterator[Compute]:
        if rows[0] < rows[1]:
            yield self.layout.compute(op, (self._box(self.flow.results[op][0], rows, channels),), (place,))

    def _weights(self, phase: GatedPhase, ops: Sequence[int], number: int, span: Span) -> Iterator[Step]:
        """The weights of operators for a slice, in one block."""
        yield from self._block(phase, [(i, span, None, True) for i in ops], number)

    def _block(self, phase: GatedPhase, parts: Sequence[WeightBlock], number: int) -> Iterator[Step]:
        """Loads of one weight block."""
        offset = 0
        place = self.blocks.get(phase, -1)
        for op, outputs, inputs, late in parts:
            call = self.flow.calls[op]
            out = cut(whole(call.result), self.sizes.axis(self.flow.results[op][0]), outputs)
            for s in self.sizes.slices.facts[op].streamed:
                if late or not s.late:
                    box = footprint(call, s.input, out, inputs=None if s.late else inputs)
                    yield self.layout.load_constant(
                        s.name, box, place, number if self.places[place].slots > 1 else 0, offset
                    )
                    offset += self.layout.constant_bytes(s.name, box)

    # -- phase 1 ---------------------------------------------------------------------------------------------

    def _phase_ahead(self, limit: Limit) -> Iterator[Node]:
        sizes = self.sizes
        limit.expect(sizes.height // self.choice.rows[0])
        yield from self._load_held(self.block.ahead)
        if sizes.input >= 0:
            yield self._load(sizes.input, self.at[GatedPhase.AHEAD, sizes.input])
        alike = [(stop - start, kept) for (start, stop), kept in self.slices]
        yield from rolled(alike, self._slice_ahead)

    def _slice_ahead(self, k: int) -> list[Node]:
        """Make one slice, fold its rows, keep or store it, or neither if it is made again."""
        sizes, (span, kept) = self.sizes, self.slices[k]
        ends = bands(sizes.height, self.choice.rows[0])
        place = self.kept if kept else self.at[GatedPhase.AHEAD, sizes.map]
        iterations: list[list[Node]] = []
        for band, rows in enumerate(zip((0, *ends[:-1]), ends, strict=True)):
            iteration: list[Node] = []
            if sizes.inside:
                iteration += self._rows_ahead(band, span, place)
            else:
                iteration += self._loads(sizes.map, rows, span, place)
            for i in self.block.folds:
                iteration.append(self._folded(i, rows, span, several=len(ends) > 1))
            if sizes.inside and not kept and not self.option.again:
                iteration.append(
                    replace(
                        self.layout.store(self._name(sizes.map), self._box(sizes.map, rows, span), place),
                        kind="spill",
                    )
                )
            iterations.append(iteration)
        return [
            *self._weights(GatedPhase.AHEAD, self.block.ahead, k, span),
            *fold(iterations, LONGEST_PERIOD),
        ]

    def _rows_ahead(self, band: int, span: Span, place: int) -> Iterator[Node]:
        """Steps of a band of the map by the operators ahead of the barrier."""
        passage = self.sizes.passage(self.choice.rows[0], behind=False)
        for m, loads in passage.loads.items():
            for rows in loads[band]:
                yield from self._loads(m, rows, span, self.at[GatedPhase.AHEAD, m])
        for i in self.block.ahead:
            m = self.flow.results[i][0]
            yield from self._compute(
                i, passage.rows[i][band], span, place if m == self.sizes.map else self.at[GatedPhase.AHEAD, m]
            )
        if band == len(passage.rows[self.block.ahead[-1]]) - 1:
            for m, rows in passage.rest.items():
                yield from self._loads(m, rows, span, self.at[GatedPhase.AHEAD, m])

    def _folded(self, op: int, rows: Span, span: Span, *, several: bool) -> Compute:
        """Add rows to what a reduction folds."""
        (v,) = self.flow.results[op]
        box = cut(whole(self.flow.maps[v].shape), self.sizes.axis(v), span)
        step = self.layout.compute(op, (box,), (self.at[GatedPhase.VECTORS, v],))
        if not several:
            return step
        return replace(
            step,
            inputs=rows,
            accumulator=self.sums[op],
            first=rows[0] == 0,
            last=rows[1] == self.sizes.height,
        )

    # -- vectors ---------------------------------------------------------------------------------------------

    def _phase_vectors(self) -> Iterator[Node]:
        yield from self._load_held(self.block.vectors)
        for m in self.sizes.vector_reads:
            yield self._load(m, self.at[GatedPhase.VECTORS, m])
        number = 0
        for i in self.block.vectors:
            (v,) = self.flow.results[i]
            channels = self.flow.maps[v].shape[self.sizes.axis(v)]
            cuts = spans(0, channels, self.choice.vector_width) if self.sizes.streams(i) else [(0, channels)]

            def iteration(
                k: int, i: int = i, v: int = v, cuts: Sequence[Span] = cuts, first: int = number
            ) -> list[Node]:
                box = cut(whole(self.flow.maps[v].shape), self.sizes.axis(v), cuts[k])
                return [
                    *self._weights(GatedPhase.VECTORS, (i,), first + k, cuts[k]),
                    self.layout.compute(i, (box,), (self.at[GatedPhase.VECTORS, v],)),
                ]

            yield from rolled([stop - start for start, stop in cuts], iteration)
            number += len(cuts) if self.sizes.streams(i) else 0

    # -- phase 2 ---------------------------------------------------------------------------------------------

    def _phase_behind(self, limit: Limit) -> Iterator[Node]:
        sizes = self.sizes
        option = self.option
        yield from self._load_held(sizes.after)
        if option.held:
            for s in sizes.slices.facts[self.tail].streamed:
                yield self._load_constant(s.name)
        ends = bands(sizes.rows_out, option.band)
        rounds = [
            (part, rows)
            for part in spans(0, sizes.outputs, option.part)
            for rows in zip((0, *ends[:-1]), ends, strict=True)
        ]
        yield from fold(
            [
                *limit.allowed(
                    tuple(self._round(number, *part_and_rows)) for number, part_and_rows in enumerate(rounds)
                )
            ],
            LONGEST_PERIOD,
        )

    def _round(self, number: int, part: Span, rows: Span) -> Iterator[Node]:
        """Rows of a part of the result, slice by slice."""
        count = len(self.slices)
        alike = [
            (stop - start, kept, k == 0, k == count - 1)
            for k, ((start, stop), kept) in enumerate(self.slices)
        ]
        behind = any(self.sizes.streams(i) for i in self.sizes.after)
        # slices, the first ones, for which no block of weights passes
        without = 0 if behind else sum(kept for _, kept in self.slices)
        return rolled(
            alike, lambda k: self._slice_behind(k, part, rows, number * (count - without) + k - without)
        )

    def _slice_behind(self, k: int, part: Span, rows: Span, number: int) -> list[Node]:
        """Gate one slice of a band of rows, and add it to the sums."""
        tail, (span, _) = self.tail, self.slices[k]
        first = k == 0
        last = k == len(self.slices) - 1
        weights: list[WeightBlock] = [(i, span, None, True) for i in (*self._remaking(k), *self.block.behind)]
        if tail >= 0 and not self.option.held:
            weights.append((tail, part, span if len(self.slices) > 1 else None, last))
        ends = bands(rows[1] - rows[0], self.choice.rows[1])
        iterations: list[list[Node]] = []
        for band, (start, stop) in enumerate(zip((0, *ends[:-1]), ends, strict=True)):
            here = rows[0] + start, rows[0] + stop
            iteration = [*self._rows_behind(k, band, here)]
            if tail >= 0:
                iteration += self._summed(part, here, span, first=first, last=last)
            if tail < 0 or last:
                m = self.sizes.result
                channels = span if tail < 0 else part
                iteration.append(
                    self.layout.store(
                        self._name(m), self._box(m, here, channels), self.at[GatedPhase.BEHIND, m]
                    )
                )
            iterations.append(iteration)
        if not self.sizes.in_step or self._remaking(k):
            iterations[-1] += self._rest_behind(k)
        return [*self._block(GatedPhase.BEHIND, weights, number), *fold(iterations, LONGEST_PERIOD)]

    def _remaking(self, k: int) -> tuple[int, ...]:
        """The operators that make a slice again in phase 2; none where it is kept or loaded."""
        if self.option.again and not self.slices[k][1]:
            return self.block.ahead
        return ()

    def _rows_behind(self, k: int, band: int, here: Span) -> Iterator[Node]:
        """Steps of a band of result rows behind the barrier, but for the tail.

        And of the operators that make the slice again.
        """
        (span, kept), remaking = self.slices[k], self._remaking(k)
        passage = self.sizes.passage(self.choice.rows[1], behind=True, again=bool(remaking))
        in_step = self.sizes.in_step and not remaking
        for m, loads in passage.loads.items():
            if m != self.sizes.map or not kept:
                for rows in (here,) if in_step else loads[band]:
                    yield from self._loads(m, rows, span, self.at[GatedPhase.BEHIND, m])
        for i in (*remaking, *self.block.behind):
            yield from self._compute(
                i,
                here if in_step else passage.rows[i][band],
                span,
                self.at[GatedPhase.BEHIND, self.flow.results[i][0]],
            )

    def _rest_behind(self, k: int) -> Iterator[Node]:
        """Rows that are not read."""
        span, kept = self.slices[k]
        for m, rows in self.sizes.passage(
            self.choice.rows[1], behind=True, again=bool(self._remaking(k))
        ).rest.items():
            if m != self.sizes.map or not kept:
                yield from self._loads(m, rows, span, self.at[GatedPhase.BEHIND, m])

    def _summed(self, part: Span, rows: Span, span: Span, *, first: bool, last: bool) -> Iterator[Node]:
        """Add a slice to the sums of the tail; with the last one, finish them."""
        sizes = self.sizes
        tail = self.tail
        if last:
            for m in sizes.beside:
                if not (self.option.stays and m == sizes.input):
                    yield from self._loads(m, rows, part, self.at[GatedPhase.BEHIND, m])
        (step,) = self._compute(tail, rows, part, self.at[GatedPhase.BEHIND, sizes.result])
        yield (
            step
            if len(self.slices) == 1
            else replace(step, inputs=span, accumulator=self.sums[tail], first=first, last=last)
        )
