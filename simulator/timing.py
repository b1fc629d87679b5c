"""Cycles of a schedule on the accelerator that a Hardware describes: a model, step by step.

Every parameter is a field of `Hardware`; those of configs/hardware/accelerator_256k.yaml are fitted to the RTL in hw_rtl. Steps become commands,
which wait in three queues: loads, stores, computations. What they take, in cycles:

    transfer         the larger of its bytes in DRAM and on chip (where channels are padded) / port_bytes, and port_latency before them: hidden by the
                     transfers before it, where transfers_in_flight allows. Loads and stores have a channel each
    computation      becomes commands of at most accumulator_columns pixels each (see `lfopt.planning.commands`). A command passes over its pixels for
                     every tile of output channels, every tile of input channels and every element of the kernel, but for rows of it that meet
                     padding alone
      contraction    a pass takes a cycle for each pixel, or those in which its weights arrive, if they are more. Where input channels are so few
                     that window_columns kernel columns of them fit mac_rows, these are one pass
      depthwise      a pass takes window_columns kernel columns. The same holds for pools, and reductions over a map
      everything else  passes over vector_lanes channels, a cycle for each element read
    a command        is set up (start_cycles) while the one before computes, and the weights of its first pass arrive during the last pass of that
                     one; if it waits for something, all this comes after that. Its results are there drain_cycles after its last pixel
    queues           a command enters its queue dispatch_cycles after the one before it in the program, once less than queue_depth of the same queue
                     are unfinished

Not modelled: conflicts in the banks of the buffer, the fetching of the program, groups that overlap with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from lfopt.ir import (
    Box,
    Compute,
    Cycles,
    Hardware,
    Loop,
    Node,
    Place,
    Span,
    Step,
    Transfer,
    box_elements,
    box_shape,
    round_up,
    row_axis,
    step_count,
    unfold,
)
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Call, Dataflow, RowReads, Tiling, keeps_rows
from lfopt.ops.footprint import folds_rows, footprints
from lfopt.planning.commands import bands, contraction, sliding, vector_passes

WALKED = 200_000  # steps of a group that are timed one by one
COMMAND_CYCLES = 2  # of a command, between its last pixel and the first of the next
DRAIN_GAP = 2  # cycles between the results of one block of channels and those of the next, where results come in every cycle


class Work(NamedTuple):
    """What one Compute asks of the accelerator, time aside."""

    macs: Fraction = Fraction(0)  # a whole number but for parts of a ConvTranspose
    width: int = 1  # bytes of one factor times bytes of the other
    vector_bytes: int = 0  # through the vector lanes
    buffer_bytes: int = 0  # into and out of the buffer
    accumulator_bytes: int = 0  # into and out of the partial sums beside the MAC array


class Command(NamedTuple):
    """How one command goes through the compute engine."""

    cycles: int  # from its first pixel to its last
    fill: int = 0  # in which the weights of its first pass arrive
    final: int = 0  # of its last pass: before that, the weights of the next command find no room


def transfer_cycles(transfer: Transfer, hardware: Hardware) -> int:
    """Cycles that a transfer holds its channel, the latency aside."""
    size, axis = transfer.bytes, CHANNEL_AXIS_OF_RANK.get(len(transfer.box))
    if transfer.place >= 0 and axis is not None and transfer.kind in ("input", "output", "spill"):
        channels = transfer.box[axis][1] - transfer.box[axis][0]
        size = max(size, box_elements(transfer.box) // max(channels, 1) * round_up(channels, hardware.channel_align) * hardware.element_bytes)
    return -(-size // hardware.port_bytes)


@dataclass(eq=False)
class Accelerator:
    """The chip, running operators of one dataflow."""

    flow: Dataflow
    hardware: Hardware
    _index: dict[str, int] = field(default_factory=dict[str, int])
    _works: dict[object, Work] = field(default_factory=dict[object, Work])
    _commands: dict[object, Command] = field(default_factory=dict[object, Command])
    _kept: dict[tuple[int, Span], int] = field(default_factory=dict[tuple[int, Span], int])

    def __post_init__(self) -> None:
        self._index = {operator.name: i for i, operator in enumerate(self.flow.operators)}

    # -- single steps ------------------------------------------------------------------------------------------------------------------------

    def work(self, step: Compute) -> Work:
        """What a Compute asks beside time; it depends on the sizes of its boxes alone, and of what it folds, not on where they are."""
        inner = step.inputs[1] - step.inputs[0] if step.inputs else None
        key = (step.operator, tuple(box_shape(box) for box in step.boxes), inner, step.first, step.last)
        found = self._works.get(key)
        if found is None:
            i = self._index[step.operator]
            contracts = self.flow.specs[i].tiling is Tiling.CONTRACT
            found = self._works[key] = self._contract(i, step) if contracts else self._vector(i, step, inner)
        return found

    def cycles(self, step: Step) -> int:
        """Cycles that a step holds its engine, once it is set up and what it needs is there."""
        if isinstance(step, Transfer):
            return transfer_cycles(step, self.hardware)
        return sum(self.command(part).cycles for part in self.split(step))

    def split(self, step: Compute) -> Sequence[Compute]:
        """The commands of a step, each of as many rows as the accumulators hold."""
        if len(step.boxes) != 1 or len(step.boxes[0]) != 4:
            return (step,)
        images, channels, rows, columns = step.boxes[0]
        parts = bands(rows, columns, self.hardware.accumulator_columns)
        return [replace(step, boxes=((images, channels, *part),)) for part in parts] if len(parts) > 1 else (step,)

    def command(self, step: Compute) -> Command:
        """One of the commands of a step; what it takes depends on where it is only by the kernel rows that lie in the padding."""
        i = self._index[step.operator]
        inner = step.inputs[1] - step.inputs[0] if step.inputs else None
        kept = self._kernel_rows(i, step.boxes[0])
        key = (i, tuple(box_shape(box) for box in step.boxes), inner, step.first, step.last, kept)
        found = self._commands.get(key)
        if found is None:
            contracts = self.flow.specs[i].tiling is Tiling.CONTRACT
            found = self._commands[key] = self._contraction(i, step, kept) if contracts else self._passes(i, step, inner, kept)
        return found

    def _kernel_rows(self, op: int, out: Box) -> int | None:
        """Rows of a sliding window that meet the map in some row of the result; None where there is no such window."""
        call = self.flow.calls[op]
        if len(out) != 4 or not self.flow.specs[op].slides:
            return None
        key = (op, out[2])
        if key not in self._kept:
            self._kept[key] = sliding(call, (out[2], out[3])).rows
        return self._kept[key]

    def _contraction(self, op: int, step: Compute, kept: int | None) -> Command:
        hardware, call = self.hardware, self.flow.calls[op]
        c = contraction(call, step.boxes[0], step.inputs)
        blocks = c.groups * ceil(c.outer / hardware.mac_columns)
        if not c.pixels or not blocks:
            return Command(COMMAND_CYCLES)
        weight = (hardware.weight_bytes or hardware.element_bytes) if call.constant[1] else hardware.element_bytes
        row = Fraction(min(c.outer, hardware.mac_columns) * weight, hardware.weight_port_bytes)  # cycles in which a row of weights arrives
        passes, rows = c.passes(hardware.mac_rows, hardware.window_columns), c.rows if kept is None else kept
        busy = rows * sum(count * max(_pixels(c.pixels), ceil(size * row)) for count, size in passes)
        busy = self._block(busy, c.pixels, rows * sum(count for count, _ in passes), step)
        return Command(blocks * busy + COMMAND_CYCLES, ceil(passes[0][1] * row) + hardware.weight_latency, c.pixels)

    def _passes(self, op: int, step: Compute, inner: int | None, kept: int | None) -> Command:
        """A command of what is no contraction."""
        hardware, cycles = self.hardware, COMMAND_CYCLES
        rows, columns, sums = vector_passes(self.flow.calls[op], len(self.flow.operands[op]))
        if kept is not None:
            rows = kept
        if inner is not None:
            rows = max(rows * inner // self.flow.calls[op].rows_in(0), 1)
        passes = rows * columns if sums else rows * ceil(columns / hardware.window_columns)
        for box in step.boxes:
            size, channel = box_elements(box), CHANNEL_AXIS_OF_RANK.get(len(box))
            if size and channel is not None and not sums:
                channels = box[channel][1] - box[channel][0]
                pixels = size // channels
                cycles += ceil(channels / hardware.vector_lanes) * self._block(passes * _pixels(pixels), pixels, passes, step)
            else:
                cycles += ceil(size * passes / hardware.vector_lanes)
        return Command(cycles)

    def _block(self, busy: int, pixels: int, passes: int, step: Compute) -> int:
        """Cycles of all passes of a block of output channels, with what comes in the way."""
        if not step.first:
            busy += pixels  # held sums take all banks of the buffer
        if self.hardware.accumulator_banks == 1:
            return busy + pixels
        return max(busy, pixels + DRAIN_GAP) if passes == 1 else busy

    def _contract(self, op: int, step: Compute) -> Work:
        hardware, call = self.hardware, self.flow.calls[op]
        c = contraction(call, step.boxes[0], step.inputs)
        weight = hardware.weight_bytes or hardware.element_bytes
        second = weight if call.constant[1] else hardware.element_bytes
        tiles, taps = ceil(c.outer / hardware.mac_columns), c.rows * c.columns
        passes = c.rows * sum(count for count, _ in c.passes(hardware.mac_rows, hardware.window_columns))  # of the pixels, per tile
        results = box_elements(step.boxes[0])
        reads = c.groups * c.outer * c.rows * c.pixels if c.depthwise else c.groups * tiles * taps * c.pixels * c.inner
        sums = hardware.accumulator_bytes * ((not step.first) + (not step.last))
        return Work(
            macs=c.macs,
            width=hardware.element_bytes * second,
            buffer_bytes=reads * hardware.element_bytes
            + c.groups * c.outer * c.inner * taps * second
            + results * (sums + step.last * hardware.element_bytes),
            accumulator_bytes=2 * c.groups * c.outer * c.pixels * passes * hardware.accumulator_bytes,
        )

    def _vector(self, op: int, step: Compute, inner: int | None) -> Work:
        hardware = self.hardware
        rows, columns, _ = vector_passes(self.flow.calls[op], len(self.flow.operands[op]))
        reads = rows * columns
        if inner is not None:
            reads = reads * inner // self.flow.calls[op].rows_in(0)
        held = hardware.accumulator_bytes * ((not step.first) + (not step.last))
        operands = len(self.flow.operands[op])
        elements = sum(map(box_elements, step.boxes))
        return Work(
            vector_bytes=elements * reads * hardware.element_bytes,
            buffer_bytes=elements * ((max(reads, operands) + step.last) * hardware.element_bytes + held),
        )

    # -- schedules ---------------------------------------------------------------------------------------------------------------------------

    def time(self, nodes: Sequence[Node], places: Sequence[Place], walked: int = WALKED) -> Cycles:
        """Cycles of a schedule.

        Up to `walked` steps are timed one by one. Of more, loops are cut short to so many and to half as many turns; what the longer run takes beyond
        the shorter one, against what its steps take one after the other, holds for all further turns.
        """
        if step_count(nodes) <= walked:
            done = self._queues(nodes, places)
            return Cycles(max(done.busy[:2]), done.busy[2], done.line.end)
        turns = 4
        while step_count(shortened(nodes, 2 * turns)) <= walked:
            turns *= 2
        some, more = shortened(nodes, turns // 2), shortened(nodes, turns)
        dma, compute = self._busy(nodes)
        if step_count(more) > 4 * walked:
            return Cycles(dma, compute, max(dma, compute) if self.hardware.overlap else dma + compute, "formula")
        first, second = self.timeline(some, places).end, self.timeline(more, places).end
        work_first, work_second = self._serial(some), self._serial(more)
        rest = (self._serial(nodes) - work_second) * Fraction(second - first, max(work_second - work_first, 1))
        return Cycles(dma, compute, max(second + round(rest), dma, compute), "extrapolated")

    def timeline(self, nodes: Sequence[Node], places: Sequence[Place]) -> Timeline:
        """When every command of a schedule runs."""
        return self._queues(nodes, places).line

    def _queues(self, nodes: Sequence[Node], places: Sequence[Place]) -> Queues:
        queues = Queues(self.flow, places, self._index, self.hardware)
        for step in unfold(nodes):
            if isinstance(step, Transfer):
                queues.transfer(step, transfer_cycles(step, self.hardware))
            else:
                for part in self.split(step):
                    queues.compute(part, self.command(part))
        return queues

    def _busy(self, nodes: Sequence[Node]) -> tuple[int, int]:
        """Cycles of the busier of the channels to DRAM, and of the compute engine, each turn of a loop taken to be like the first."""
        busy = [0, 0, 0]
        for times, step in leaves(nodes):
            busy[2 if isinstance(step, Compute) else step.store] += times * self.cycles(step)
        return max(busy[:2]), busy[2]

    def _serial(self, nodes: Sequence[Node]) -> int:
        """Cycles if every command waited for the one before it."""
        hardware, cycles = self.hardware, 0
        for times, step in leaves(nodes):
            if isinstance(step, Transfer):
                cycles += times * (self.cycles(step) + hardware.port_latency)
            else:
                parts = [self.command(part) for part in self.split(step)]
                cycles += times * sum(part.cycles + part.fill + hardware.start_cycles + hardware.drain_cycles for part in parts)
        return cycles


def leaves(nodes: Sequence[Node], times: int = 1) -> Iterator[tuple[int, Step]]:
    """Every step as it is written, with the number of times that it runs."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from leaves(node.body, times * node.count)
        else:
            yield times, node


def shortened(nodes: Sequence[Node], turns: int) -> tuple[Node, ...]:
    """The schedule with loops of at most so many turns."""
    return tuple(Loop(min(node.count, turns), shortened(node.body, turns)) if isinstance(node, Loop) else node for node in nodes)


def _pixels(count: int) -> int:
    """Cycles of a pass: a sum must be back before it is touched again."""
    return max(count, 2)


# -- queues ----------------------------------------------------------------------------------------------------------------------------------


class Users:
    """Of every slot of a place: when the last command of each queue that used it is done; 0 for none."""

    def __init__(self, place: Place, others: tuple[int, ...]) -> None:
        self.rows = place.purpose == "map"  # a number per row; else one per block
        self.slots = place.slots
        self.others = others  # places that share bytes with this one
        self.made = [0] * place.slots  # computes that wrote
        self.used = [0] * place.slots  # computes that wrote or read
        self.loaded = [0] * place.slots
        self.stored = [0] * place.slots
        self.latest = [0, 0, 0]  # of computes, loads, stores, on any slot

    def spans(self, number: int, count: int) -> Sequence[Span]:
        """Slots of so many numbers from the given one on."""
        if count >= self.slots:
            return ((0, self.slots),)
        low = number % self.slots
        if low + count <= self.slots:
            return ((low, low + count),)
        return ((low, self.slots), (0, low + count - self.slots))


def _last(of: list[int], spans: Sequence[Span]) -> int:
    return max((max(of[low:high]) for low, high in spans if low < high), default=0)


def _mark(of: list[int], spans: Sequence[Span], time: int) -> None:
    for low, high in spans:
        of[low:high] = [time] * (high - low)


class Piece(NamedTuple):
    """Part of a tensor that lies in a block, not by rows."""

    tensor: str
    box: Box
    place: int
    number: int  # of the block
    offset: int  # in the block
    end: int


class Queues:
    """Commands in their queues, and when they run.

    A compute waits for the loads and the computes that made what it reads, a store for what it stores, a load for all who used what its slot held,
    and a compute for those of them that are transfers. A compute finds its operands where the last commands before it have put them. Every queue
    keeps its order, and nothing waits for what comes later in the program: so nothing that gets faster makes a schedule slower.
    """

    def __init__(self, flow: Dataflow, places: Sequence[Place], index: dict[str, int], hardware: Hardware) -> None:
        self.flow, self.index, self.hardware = flow, index, hardware
        shared = [tuple(k for k, other in enumerate(places) if other is not place and _overlap(place, other)) for place in places]
        self.users = [Users(place, others) for place, others in zip(places, shared, strict=True)]
        self.homes: dict[str, tuple[int, int]] = {}  # per map: (place, number of its row 0)
        self.pieces: dict[str, list[Piece]] = {}
        self.blocks: dict[tuple[int, int], list[Piece]] = {}  # per place and slot
        self.parameters: dict[int, int] = {}  # per operator: when its parameters are in the store of their own
        self.line = Timeline([], [], [])
        self.busy = [0, 0, 0]  # cycles of each queue
        self.entered = 0  # when the last command entered its queue
        self.begun = self.ended = self.room = 0  # of the last compute: first pixel, last pixel; when there is room for the next weights
        self._spans: dict[tuple[int, int, int, int], tuple[int, int]] = {}

    def _enter(self, queue: int) -> int:
        """When the next command enters a queue: 0 loads, 1 stores, 2 computes."""
        self.entered += self.hardware.dispatch_cycles
        before = self.line[queue]
        if len(before) >= self.hardware.queue_depth:
            self.entered = max(self.entered, before[-self.hardware.queue_depth][1])
        return self.entered if self.hardware.overlap else max(self.entered, self.line.end)

    def transfer(self, transfer: Transfer, cycles: int) -> None:
        """The next command of the program, a transfer of so many cycles."""
        wait = self._store(transfer) if transfer.store else self._load(transfer)
        queue, ahead, before = int(transfer.store), self.hardware.transfers_in_flight, self.line[transfer.store]
        start = max(self._enter(queue), wait, before[-ahead][1] if len(before) >= ahead else 0)
        done = max(start + self.hardware.port_latency, before[-1][1] if before else 0) + cycles
        before.append((start, done))
        self.busy[queue] += cycles
        if transfer.kind == "parameter":
            self.parameters[self.index[transfer.tensor]] = done
            return
        users = self.users[transfer.place]
        _mark(users.stored if transfer.store else users.loaded, self._numbers(transfer), done)
        users.latest[1 + queue] = done

    def compute(self, step: Compute, command: Command) -> None:
        """The next command of the program, part of a computation."""
        op, hardware = self.index[step.operator], self.hardware
        reads, writes = list(self._operands(op, step)), list(self._results(op, step))
        wait = max(self._enter(2), self.parameters.get(op, 0))
        for place, spans in reads:
            users = self.users[place]
            wait = max(wait, _last(users.loaded, spans), _last(users.made, spans))
        for place, spans in writes:
            users = self.users[place]
            wait = max(wait, _last(users.loaded, spans), _last(users.stored, spans))
            for k in users.others:
                wait = max(wait, *self.users[k].latest[1:])
        if step.sums >= 0:
            users = self.users[step.sums]
            if not step.first:
                wait = max(wait, users.latest[0])
            for k in users.others:
                wait = max(wait, *self.users[k].latest[1:])
        ready = max(wait, self.begun) + hardware.start_cycles
        self.begun = max(ready, self.ended)
        first = max(self.begun, max(ready, self.room) + command.fill)
        self.ended = first + command.cycles
        self.room = self.ended - command.final
        done = self.ended + hardware.drain_cycles
        self.line.computes.append((self.begun, done))
        self.busy[2] += command.cycles
        for place, spans in reads:
            _mark(self.users[place].used, spans, done)
            self.users[place].latest[0] = done
        for place, spans in writes:
            users = self.users[place]
            _mark(users.made, spans, done)
            _mark(users.used, spans, done)
            users.latest[0] = done
        if step.sums >= 0:
            self.users[step.sums].latest[0] = done

    def _numbers(self, transfer: Transfer) -> Sequence[Span]:
        users = self.users[transfer.place]
        return users.spans(transfer.slot, transfer.rows if users.rows else 1)

    def _load(self, load: Transfer) -> int:
        """When the slots of a load are free; note what comes there."""
        if load.kind == "parameter":
            return 0
        users, spans = self.users[load.place], self._numbers(load)
        wait = max(_last(users.used, spans), _last(users.stored, spans))
        for k in users.others:
            wait = max(wait, self.users[k].latest[0], self.users[k].latest[2])
        if users.rows:
            axis = row_axis(box_shape(load.box))
            self.homes[load.tensor] = (load.place, load.slot - (load.box[axis][0] if axis is not None else 0))
        else:
            self._put(Piece(load.tensor, load.box, load.place, load.slot, load.offset, load.offset + load.bytes), load.slot % users.slots)
        return wait

    def _put(self, new: Piece, slot: int) -> None:
        """Note where a piece is, and forget what it overwrites."""
        there = self.blocks.setdefault((new.place, slot), [])
        for old in list(there):
            if old.number != new.number or (old.offset < new.end and new.offset < old.end):
                there.remove(old)
                self.pieces[old.tensor].remove(old)
        there.append(new)
        self.pieces.setdefault(new.tensor, []).append(new)

    def _store(self, store: Transfer) -> int:
        """When the slots of a store are made."""
        users, spans = self.users[store.place], self._numbers(store)
        return max(_last(users.made, spans), _last(users.loaded, spans))

    def _results(self, op: int, step: Compute) -> Iterator[tuple[int, Sequence[Span]]]:
        """(place, slots) of everything that a step makes; note what comes there."""
        for name, box, place in zip(self.flow.results[op], step.boxes, step.places, strict=False):
            if place >= 0:
                axis = row_axis(box_shape(box))
                first, stop = box[axis] if axis is not None else (0, 1)
                yield place, self.users[place].spans(first, stop - first)
                self.homes[self.flow.maps[name].name] = (place, 0)

    def _operands(self, op: int, step: Compute) -> Iterator[tuple[int, Sequence[Span]]]:
        """(place, slots) of everything that a step reads, and that the steps before it have put somewhere."""
        flow = self.flow
        call, maps = flow.calls[op], {o.input: o for o in flow.operands[op]}
        for index, name in enumerate(call.operator.inputs):
            operand = maps.get(index)
            root = flow.maps[operand.map].name if operand else name
            if operand and (name in self.homes or root in self.homes):
                seen = name in self.homes
                place, offset = self.homes[name if seen else root]
                reads = flow.specs[op].reads(call, index) if seen else operand.reads
                if step.inputs and folds_rows(call, index) and (seen or keeps_rows(flow.maps[operand.map].shape, call.shape(index))):
                    first, stop = step.inputs
                else:
                    first, stop = self._rows(op, index, step, reads)
                yield place, self.users[place].spans(first + offset, max(stop - first, 0))
            elif pieces := self.pieces.get(name) or self.pieces.get(root):
                yield from self._read_pieces(call, index, step, pieces)

    def _rows(self, op: int, index: int, step: Compute, reads: RowReads) -> tuple[int, int]:
        """Rows of an operand that the step reads."""
        low, high = reads.rows_out, 0
        for box in step.boxes:
            axis = row_axis(box_shape(box))
            start, stop = (0, reads.rows_out) if axis is None else box[axis]
            if start < stop:
                low, high = min(low, start), max(high, stop)
        if high <= low:
            return 0, 0
        if high - low == 1 and high <= reads.rows_out:
            return reads.first[low], reads.last[low] + 1
        key = (op, index, low, high)
        if key not in self._spans:
            self._spans[key] = min(reads.first[low:high], default=0), max(reads.last[low:high], default=-1) + 1
        return self._spans[key]

    def _read_pieces(self, call: Call, index: int, step: Compute, pieces: list[Piece]) -> Iterator[tuple[int, Sequence[Span]]]:
        needed = None if len(pieces) == 1 else footprints(call, index, step.boxes, inputs=step.inputs)
        for piece in pieces:
            if needed is None or len(needed) != len(piece.box) or _meet(needed, piece.box):
                yield piece.place, self.users[piece.place].spans(piece.number, 1)


class Timeline(NamedTuple):
    """From when until when every command runs, in cycles; per queue, in the order of the program. Commands of one queue may overlap."""

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
