"""The accelerator's three command queues, loads, stores and computations: waits and start times.

`simulator.model.engines` says what a command takes. Every parameter is a field of `Hardware`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lfopt.ir import (
    Box,
    Carry,
    Compute,
    Hardware,
    Node,
    Place,
    Span,
    Transfer,
    box_shape,
    in_line,
    row_axis,
    row_count,
)
from lfopt.ops import Call, Dataflow, RowReads, keeps_rows
from lfopt.ops.access import AccessPatterns
from lfopt.ops.footprint import folds_rows, footprints
from lfopt.planning.steps.layout import row_span
from simulator.model.parameters import ParameterResidency

BEGIN_CYCLES = 4  # from when a command is set up, and may start, until its first pixel is read


class CommandTiming(NamedTuple):
    """Cycles of one command in the compute engine."""

    cycles: int  # from its first pixel to its last
    fill: int = 0  # in which the weights of its first pass arrive
    final: int = 0  # of its last pass: before that, the weights of the next command find no room
    late: int = 0  # from its last pixel until the sums of its last block are all read
    copies: tuple[int, ...] = ()  # cycles of each, where channels are moved by several commands


class RegionHistory(NamedTuple):
    """A byte range of the buffer, and the cycles in which earlier groups' last uses of it are done."""

    start: int
    end: int
    computed: int
    used: int
    loaded: int
    stored: int


class Users:
    """Per slot of a place: cycle in which the last command of each queue that used it is done; 0: none."""

    def __init__(self, place: Place, others: tuple[int, ...], traces: Sequence[RegionHistory] = ()) -> None:
        """`traces`: uses by earlier groups."""
        self.place = place
        self.rows = place.purpose == "map"  # a number per row; else one per block
        self.slots = place.slots
        self.others = others  # places that share bytes with this one
        self.computed = [0] * place.slots  # computes that wrote
        self.used = [0] * place.slots  # computes that wrote or read
        self.loaded = [0] * place.slots
        self.stored = [0] * place.slots
        self.latest = [0, 0, 0]  # of computes, loads, stores, on any slot
        for trace in traces:
            first = max(trace.start - place.address, 0) // max(place.slot_bytes, 1)
            stop = min(-(-(trace.end - place.address) // max(place.slot_bytes, 1)), place.slots)
            for times, time in (
                (self.computed, trace.computed),
                (self.used, trace.used),
                (self.loaded, trace.loaded),
                (self.stored, trace.stored),
            ):
                times[first:stop] = [max(time, known) for known in times[first:stop]]

    def traces(self, since: int) -> Iterator[RegionHistory]:
        """Histories of the slots with uses that are done after the cycle `since`."""
        sums = self.latest[0] if self.place.purpose == "sum" else 0  # whose slots are not told apart
        for k, times in enumerate(zip(self.computed, self.used, self.loaded, self.stored, strict=True)):
            if max(*times, sums) > since:
                start = self.place.address + k * self.place.slot_bytes
                computed, used, loaded, stored = times
                yield RegionHistory(
                    start, start + self.place.slot_bytes, computed, max(used, sums), loaded, stored
                )

    def spans(self, number: int, count: int) -> Sequence[Span]:
        """Spans of slots of `count` rows or blocks from `number` on."""
        if count >= self.slots:
            return ((0, self.slots),)
        low = number % self.slots
        if low + count <= self.slots:
            return ((low, low + count),)
        return ((low, self.slots), (0, low + count - self.slots))


def _last(of: list[int], spans: Sequence[Span]) -> int:
    last = 0
    for low, high in spans:
        if low < high:
            last = max(last, max(of[low:high]) if high - low > 1 else of[low])
    return last


def _mark(of: list[int], spans: Sequence[Span], time: int) -> None:
    for low, high in spans:
        of[low:high] = [time] * (high - low)


class BlockPart(NamedTuple):
    """Part of a tensor that lies in a block, not by rows."""

    tensor: str
    box: Box
    place: int
    number: int  # of the block
    offset: int  # in the block
    end: int


def latency(transfer: Transfer, hardware: Hardware) -> int:
    """Cycles before the first byte of a transfer: a second level of memory answers at once."""
    if transfer.kind == "l2":
        return 0
    return hardware.port_latency


class Queues:
    """Commands in their queues, and when they run. Groups follow one another without a pause.

    A compute waits for the loads and the computes that made what it reads, a store for what it stores, a load
    for all who used what its slot held, and a compute for those of them that are transfers. A compute finds
    its operands where the last commands before it have put them. Every queue keeps its order, and nothing
    waits for what comes later in the program: so nothing that gets faster makes a schedule slower.
    """

    def __init__(
        self, flow: Dataflow, index: dict[str, int], hardware: Hardware, accesses: AccessPatterns
    ) -> None:
        self.flow = flow
        self.index = index
        self.hardware = hardware
        self.accesses = accesses
        self.users: list[Users] = []
        self.traces: list[RegionHistory] = []  # of the groups before
        self.homes: dict[str, tuple[int, int]] = {}  # per map: (place, number of its row 0)
        self.lying: dict[str, set[int]] = {}  # per map: places to which rows of it came
        self.pieces: dict[str, list[BlockPart]] = {}
        self.blocks: dict[tuple[int, int], list[BlockPart]] = {}  # per place and slot
        self.parameters = ParameterResidency(flow, index, hardware)
        self.sent: dict[str, int] = {}  # per map in DRAM: when the last store to it is done
        self.line = Timeline([], [], [])
        # per memory and direction: when the last transfers are done
        self.done: dict[tuple[bool, bool], Sequence[int]] = {}
        self.busy = [0, 0, 0]  # cycles of each queue, those of the second level aside
        # when the last command entered its queue
        self.entered = hardware.port_latency if hardware.instruction_bytes else 0
        self.fetching = 0  # cycles in which the port of loads brings commands, before its next transfer
        # of the last compute: first pixel, last pixel; when there is room for the next weights
        self.begun = self.ended = self.room = 0
        self._spans: dict[tuple[int, int, int, int], tuple[int, int]] = {}

    def ahead(self) -> Queues:
        """A copy of the queues as they are now, to time a group that begins now."""
        fork = Queues(self.flow, self.index, self.hardware, self.accesses)
        fork._spans = self._spans
        fork.users = self.users
        fork.traces = self.traces
        fork.parameters = self.parameters.ahead()
        fork.sent = {**self.sent}
        recent = max(self.hardware.queue_depth, self.hardware.transfers_in_flight)
        fork.line = Timeline(*(queue[-recent:] for queue in self.line))
        fork.entered = self.entered
        fork.fetching = self.fetching
        fork.begun = self.begun
        fork.ended = self.ended
        fork.room = self.room
        fork.done = {**self.done}
        return fork

    def begin(self, nodes: Sequence[Node], places: Sequence[Place]) -> None:
        """Begin the next group, which finds nothing on chip and waits for earlier users of its bytes."""
        self.parameters.begin(nodes)
        self.traces = [trace for trace in self.traces if max(trace[2:]) > self.entered]
        self.traces += [trace for users in self.users for trace in users.traces(self.entered)]
        self.users = []
        places = in_line(places, self.hardware, self.hardware.buffer_bytes)
        for place in places:
            others = tuple(
                k for k, other in enumerate(places) if other is not place and _overlap(place, other)
            )
            self.users.append(
                Users(
                    place, others, [t for t in self.traces if t.start < place.end and place.address < t.end]
                )
            )
        self.homes = {}
        self.lying = {}
        self.pieces = {}
        self.blocks = {}

    def _enter(self, queue: int) -> int:
        """Cycle in which the next command enters a queue: 0 loads, 1 stores, 2 computes."""
        self.entered += self.hardware.dispatch_cycles
        before = self.line[queue]
        if len(before) >= self.hardware.queue_depth:
            self.entered = max(self.entered, before[-self.hardware.queue_depth][1])
        if self.hardware.overlap:
            return self.entered
        return max(self.entered, self.line.end)

    def fetch(self, steps: int) -> None:
        """Fetch the program of the next `steps` steps as written: part of a loop, or one."""
        size = steps * self.hardware.instruction_bytes
        cycles = max(-(-size // self.hardware.port_bytes), self.hardware.dram_cycles(size))
        self.fetching += cycles
        self.entered += max(cycles - steps * self.hardware.dispatch_cycles, 0)

    def transfer(self, transfer: Transfer, cycles: int) -> None:
        """Issue the next command, a transfer that holds its channel for `cycles`."""
        wait = self._store(transfer) if transfer.store else self._load(transfer)
        queue = int(transfer.store)
        ahead = self.hardware.transfers_in_flight
        level_2 = transfer.kind == "l2"
        before = self.done.get((level_2, transfer.store), ())
        start = max(self._enter(queue), wait, before[-ahead] if len(before) >= ahead else 0)
        done = max(start + latency(transfer, self.hardware), before[-1] if before else 0) + cycles
        if not transfer.store and not level_2:
            done = done + self.fetching
            self.fetching = 0
        self.done[level_2, transfer.store] = (*before, done)[-ahead:]
        self.line[queue].append((start, done))
        self.busy[queue] += 0 if level_2 else cycles
        if transfer.kind == "parameter":
            self.parameters.loaded(transfer, done)
            return
        if transfer.store:
            self.sent[self._in_dram(transfer)] = done
        users = self.users[transfer.place]
        _mark(users.stored if transfer.store else users.loaded, self._numbers(transfer), done)
        users.latest[1 + queue] = done

    def compute(self, step: Compute, command: CommandTiming) -> None:
        """Issue the next command, part of a computation."""
        op = self.index[step.operator]
        hardware = self.hardware
        reads = list(self._operands(op, step))
        writes = list(self._results(op, step))
        entered = self._enter(2)
        flight = (op, *[self.index[name] for name in step.then])
        wait = max(entered, self.parameters.there(flight))
        for place, spans in reads:
            users = self.users[place]
            wait = max(wait, _last(users.loaded, spans), _last(users.computed, spans))
        for place, spans in writes:
            users = self.users[place]
            wait = max(wait, _last(users.loaded, spans), _last(users.stored, spans))
            for k in users.others:
                wait = max(wait, *self.users[k].latest[1:])
        if step.accumulator >= 0:
            users = self.users[step.accumulator]
            if not step.first:
                wait = max(wait, users.latest[0])
            for k in users.others:
                wait = max(wait, *self.users[k].latest[1:])
        ready = max(wait, max(entered, self.begun) + hardware.start_cycles) + BEGIN_CYCLES
        self.begun = max(ready, self.ended)
        first = max(self.begun, max(ready, self.room) + command.fill)
        self.ended = first + command.cycles
        self.room = self.ended - command.final
        done = self.ended + command.late + hardware.drain_cycles
        self.line.computes.append((self.begun, done))
        self.busy[2] += command.cycles
        self.parameters.read(flight, done)
        for place, spans in reads:
            _mark(self.users[place].used, spans, done)
            self.users[place].latest[0] = done
        for place, spans in writes:
            users = self.users[place]
            _mark(users.computed, spans, done)
            _mark(users.used, spans, done)
            users.latest[0] = done
        if step.accumulator >= 0:
            self.users[step.accumulator].latest[0] = done

    def carry(self, step: Carry, cycles: int) -> None:
        """Issue the next command, a copy within the buffer, which runs in the queue of computes.

        It waits for all that came to the places of its map.
        """
        entered = self._enter(2)
        target = self.users[step.place]
        spans = target.spans(step.slot, row_count(box_shape(step.box)))
        lying = [self.users[place] for place in self.lying.get(step.tensor, ())]
        wait = max(entered, _last(target.loaded, spans), _last(target.stored, spans))
        wait = max([wait, *(max(users.latest[:2]) for users in lying)])
        wait = max([wait, *(max(self.users[k].latest[1:]) for k in target.others)])
        self.begun = max(wait, max(entered, self.begun) + self.hardware.start_cycles, self.ended)
        self.ended = self.room = self.begun + cycles
        done = self.ended + self.hardware.drain_cycles
        self.line.computes.append((self.begun, done))
        self.busy[2] += cycles
        for users in (*lying, target):
            _mark(users.used, [(0, users.slots)], done)
            users.latest[0] = done
        _mark(target.computed, spans, done)
        self._lies(step.tensor, step.place, step.slot - row_span(step.box)[0])

    def _lies(self, tensor: str, place: int, number: int) -> None:
        """Note to which place rows of a map came; `number`: of its row 0 there."""
        self.homes[tensor] = place, number
        self.lying.setdefault(tensor, set()).add(place)

    def _numbers(self, transfer: Transfer) -> Sequence[Span]:
        users = self.users[transfer.place]
        return users.spans(transfer.slot, transfer.rows if users.rows else 1)

    def _load(self, load: Transfer) -> int:
        """Cycle in which the slots of a load are free; note what comes there."""
        if load.kind == "parameter":
            return self.parameters.load(load)
        users = self.users[load.place]
        spans = self._numbers(load)
        wait = max(_last(users.used, spans), _last(users.stored, spans), self._sent(load))
        for k in users.others:
            wait = max(wait, self.users[k].latest[0], self.users[k].latest[2])
        if users.rows:
            self._lies(load.tensor, load.place, load.slot - row_span(load.box)[0])
        else:
            self._put(
                BlockPart(
                    load.tensor, load.box, load.place, load.slot, load.offset, load.offset + load.bytes
                ),
                load.slot % users.slots,
            )
        return wait

    def _sent(self, load: Transfer) -> int:
        """When the last store to what is loaded is done."""
        if load.tensor in self.accesses.known:
            return max(self.sent.get(name, 0) for name in self.accesses.sources(load.tensor))
        return self.sent.get(self._in_dram(load), 0)

    def _in_dram(self, transfer: Transfer) -> str:
        """Name in DRAM of the map that is loaded or stored."""
        return self.flow.behind.get(transfer.tensor, transfer.tensor)

    def _put(self, new: BlockPart, slot: int) -> None:
        """Note where a piece lies, and drop what it overwrites."""
        parts = self.blocks.setdefault((new.place, slot), [])
        for old in list(parts):
            if old.number != new.number or (old.offset < new.end and new.offset < old.end):
                parts.remove(old)
                self.pieces[old.tensor].remove(old)
        parts.append(new)
        self.pieces.setdefault(new.tensor, []).append(new)

    def _store(self, store: Transfer) -> int:
        """Cycle in which the contents of a store are complete."""
        users = self.users[store.place]
        spans = self._numbers(store)
        return max(_last(users.computed, spans), _last(users.loaded, spans))

    def _results(self, op: int, step: Compute) -> Iterator[tuple[int, Sequence[Span]]]:
        """(place, slots) of every result of a step; note what comes there."""
        last = self.index[step.then[-1]] if step.then else op
        for name, box, place in zip(self.flow.results[last], step.boxes, step.places, strict=False):
            if place >= 0:
                axis = row_axis(box_shape(box))
                first, stop = box[axis] if axis is not None else (0, 1)
                yield place, self.users[place].spans(first, stop - first)
                self._lies(self.flow.maps[name].name, place, 0)

    def _operands(self, op: int, step: Compute) -> Iterator[tuple[int, Sequence[Span]]]:
        """(place, slots) of every operand of a step that earlier steps have put on chip."""
        flow = self.flow
        call = flow.calls[op]
        maps = {o.input: o for o in flow.operands[op]}
        for index, name in enumerate(call.operator.inputs):
            operand = maps.get(index)
            root = flow.maps[operand.map].name if operand else name
            if operand and (name in self.homes or root in self.homes):
                seen = name in self.homes
                place, offset = self.homes[name if seen else root]
                reads = flow.specs[op].reads(call, index) if seen else operand.reads
                if (
                    step.inputs
                    and folds_rows(call, index)
                    and (seen or keeps_rows(flow.maps[operand.map].shape, call.shape(index)))
                ):
                    first, stop = step.inputs
                else:
                    first, stop = self._rows(op, index, step, reads)
                yield place, self.users[place].spans(first + offset, max(stop - first, 0))
            elif pieces := self.pieces.get(name) or self.pieces.get(root):
                yield from self._read_pieces(call, index, step, pieces)

    def _rows(self, op: int, index: int, step: Compute, reads: RowReads) -> tuple[int, int]:
        """Span of rows of an operand that the step reads."""
        low = reads.rows_out
        high = 0
        for box in step.boxes:
            axis = row_axis(box_shape(box))
            start, stop = (0, reads.rows_out) if axis is None else box[axis]
            if start < stop:
                low = min(low, start)
                high = max(high, stop)
        if high <= low:
            return 0, 0
        if high - low == 1 and high <= reads.rows_out:
            return reads.first[low], reads.last[low] + 1
        key = (op, index, low, high)
        if key not in self._spans:
            self._spans[key] = (
                min(reads.first[low:high], default=0),
                max(reads.last[low:high], default=-1) + 1,
            )
        return self._spans[key]

    def _read_pieces(
        self, call: Call, index: int, step: Compute, pieces: list[BlockPart]
    ) -> Iterator[tuple[int, Sequence[Span]]]:
        needed = None if len(pieces) == 1 else footprints(call, index, step.boxes, inputs=step.inputs)
        for piece in pieces:
            if needed is None or len(needed) != len(piece.box) or _meet(needed, piece.box):
                yield piece.place, self.users[piece.place].spans(piece.number, 1)


class Timeline(NamedTuple):
    """(start, end) of every command in cycles; per queue, in program order.

    Commands of one queue may overlap.
    """

    loads: list[Span]
    stores: list[Span]
    computes: list[Span]

    @property
    def end(self) -> int:
        """Cycles until everything is done."""
        return max((queue[-1][1] for queue in self if queue), default=0)


def _overlap(one: Place, other: Place) -> bool:
    return one.address < other.end and other.address < one.end


def _meet(one: Box, other: Box) -> bool:
    return all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(one, other, strict=True))
