"""The order in which a slice of a band runs, row by row, and the rows of the rings that this takes.

Results that no other result follows from are made row by row, always the one of which the next row leaves the
smallest part done; then what is left of the others. Before an operator computes a row, the rows that it reads
are made or loaded, input by input, lowest row first. Where every operator reads just the rows that it makes,
as in linear layers, many rows are made in one step.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from lfopt.ir import Again, Span
from lfopt.ops import MapRead
from lfopt.planning.line_buffers.steady import StateRead, StateSink, StateSpan, Steady, within

# How a map is on chip: all channels of the rows of a band; a slice of them; those channels that the tail
# makes at a time; whole, a map of one row; all channels of one row, for the prologue.
Access = Literal["rows", "slice", "part", "vector", "row"]
SlicedSource = tuple[int, Access]  # a map that comes from DRAM as a slice runs


class Reading(NamedTuple):
    """Something that a group reads."""

    op: int
    operand: MapRead  # as rows pass through rings
    access: Access


class Event(NamedTuple):
    """Rows that are made or loaded."""

    op: int  # that makes them; -1: they are loaded
    source: SlicedSource | None
    row: int  # the first one
    height: int = 1  # how many there are


class RowOrder:
    """A slice of one band.

    `readings`: of the operators, in order; `maker`: the operator of each map that is made slice by slice;
    `rows`: that each operator makes; `loads`: rows that pass of each source; `sinks`: operators whose rows
    are asked for, and all the rows that they have; `first`: those from which no other follows.
    """

    def __init__(
        self,
        readings: Sequence[Reading],
        maker: Mapping[int, int],
        rows: Mapping[int, Span],
        loads: Mapping[SlicedSource, Span],
        sinks: Mapping[int, int],
        first: Container[int],
    ) -> None:
        self.rows = rows
        self.loads = loads
        self.sinks = sinks
        self.first = first
        self.maker = maker
        self.done = {op: start for op, (start, _) in rows.items()}
        self.loaded = {source: start for source, (start, _) in loads.items()}
        self.needs: dict[int, list[Reading]] = {op: [] for op in rows}
        for reading in readings:
            self.needs[reading.op].append(reading)

    def folded_iterations(self, spans: Mapping[int, Span], longest: int) -> Iterator[list[Event] | Again]:
        """As `iterations`; those that only repeat others are not made.

        `spans`: rows between which an operator goes on as it does. `longest`: iterations of a period that is
        looked for.
        """
        keys: list[int | SlicedSource] = [*self.done, *self.loaded]
        at = {key: k for k, key in enumerate(keys)}
        readings = list[StateRead]()
        for op, needs in self.needs.items():
            for reading in needs:
                m = reading.operand.map
                need = reading.operand.reads.need
                source: SlicedSource = m, reading.access
                if source in self.loaded:
                    readings.append(StateRead(at[op], at[source], within(need, self.loads[source][1])))
                elif m in self.maker:
                    readings.append(StateRead(at[op], at[self.maker[m]], need))
        leading = [
            StateSink(at[op], self.rows[op][1], of) for op, of in self.sinks.items() if op in self.first
        ]
        reaches = [StateSpan(at[op], *span) for op, span in spans.items()]
        steady = Steady((*self.done.values(), *self.loaded.values()), readings, reaches, leading, 1, longest)
        for iteration in self.iterations():
            yield iteration
            if len(leading) == 1 and (repeated := steady.again((*self.done.values(), *self.loaded.values()))):
                again, state = repeated
                rows = iter(state)
                self.done.update(zip(self.done, rows, strict=False))
                self.loaded.update(zip(self.loaded, rows, strict=True))
                yield again

    def iterations(self) -> Iterator[list[Event]]:
        """Events for each row of each sink, and last the loads of rows that are not read."""
        while unfinished := [op for op in self.sinks if self.done[op] < self.rows[op][1]]:
            leading = [op for op in unfinished if op in self.first] or unfinished
            sink = min(leading, key=lambda op: ((self.done[op] + 1) / self.sinks[op], -op))
            yield [*self._make(sink, self.done[sink])]
        yield [event for source, (_, stop) in self.loads.items() for event in self._load(source, stop)]

    def _make(self, op: int, row: int) -> Iterator[Event]:
        """Make rows of an operator, up to and including this one."""
        waiting = [(op, row)]
        while waiting:
            i, goal = waiting[-1]
            here = self.done[i]
            if here > goal:
                waiting.pop()
                continue
            for reading in self.needs[i]:
                m = reading.operand.map
                need = reading.operand.reads.need[here]
                if (m, reading.access) in self.loaded:
                    yield from self._load((m, reading.access), min(need, self.loads[m, reading.access][1]))
                elif m in self.maker and self.done[self.maker[m]] < need:
                    waiting.append((self.maker[m], need - 1))
                    break
            else:
                yield Event(i, None, here)
                self.done[i] = here + 1

    def _load(self, source: SlicedSource, stop: int) -> Iterator[Event]:
        for row in range(self.loaded[source], stop):
            yield Event(-1, source, row)
            self.loaded[source] = row + 1


def in_step(
    readings: Sequence[Reading], sources: Sequence[SlicedSource], rows: Span, most: int
) -> Iterator[list[Event]]:
    """A slice of one band whose operators all read the rows that they make.

    `most`: rows at a time, operator by operator.
    """
    ops = dict.fromkeys(reading.op for reading in readings)
    for start in range(*rows, most):
        count = min(most, rows[1] - start)
        yield [
            *(Event(-1, source, start, count) for source in sources),
            *(Event(op, None, start, count) for op in ops),
        ]


def ring_rows(order: RowOrder) -> dict[int, int]:
    """The most rows of every sliced map that are needed at once."""
    readers: dict[int, list[Reading]] = {}
    for readings in order.needs.values():
        for reading in readings:
            if reading.access == "slice":
                readers.setdefault(reading.operand.map, []).append(reading)
    result_of = {op: m for m, op in order.maker.items()}
    rings = dict.fromkeys((*order.maker, *readers), 1)
    done = dict(order.done)
    for iteration in order.iterations():
        for op, source, row, _ in iteration:
            m = source[0] if source is not None else result_of.get(op, -1)
            if m in rings and (source is None or source[1] == "slice"):
                oldest = min(
                    (
                        r.operand.reads.keep[done[r.op]]
                        for r in readers.get(m, ())
                        if done[r.op] < order.rows[r.op][1]
                    ),
                    default=row,
                )
                rings[m] = max(rings[m], row + 1 - min(oldest, row))
            if op >= 0:
                done[op] = row + 1
    return rings
