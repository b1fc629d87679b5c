"""Cycles of a schedule on the accelerator that a Hardware describes: a model, step by step.

Every parameter is a field of `Hardware`; those of configs/hardware/accelerator_256k.yaml are fitted to the RTL in hw_rtl. Steps become commands,
which wait in three queues (`simulator.model.queues`): loads, stores, computations. What they take, in cycles:

    transfer         the larger of its bytes in DRAM and on chip (where channels are padded) / port_bytes, and port_latency before them: hidden by the
                     transfers before it, where transfers_in_flight allows. Loads and stores have a channel each. No less than DRAM takes for it: its
                     bytes in whole bursts at dram_bytes_per_second, and dram_page_cycles for each page (see `simulator.model.dram`); of all transfers
                     of a group, loads and stores together, where dram_bytes_per_second is given
      second level   has a port of its own, of l2_port_bytes in each direction, and answers at once: neither the port to DRAM nor port_latency counts
    computation      becomes commands of at most accumulator_columns pixels each (see `lfopt.planning.commands`). A command passes over its pixels for
                     every tile of output channels, every tile of input channels and every element of the kernel, but for rows of it that meet
                     padding alone
      contraction    a pass takes a cycle for each pixel. Its weights arrive beside them, a word of the buffer each cycle, which a pass of few pixels
                     waits for; or weight_port_bytes at a time, in which no pixel is read: whichever is faster. Biases come through the port of
                     weights, and go first. Where input channels are so few that window_columns kernel columns of them fit mac_rows, these are
                     one pass
      depthwise      a pass takes so many kernel columns of so many neighbouring pixels as `lfopt.planning.commands.reach` says, a cycle for so many
                     pixels of a row, one more for what their windows share at its beginning, and those in which the buffer gives weights
      pools          a pass takes window_columns kernel columns. The same holds for reductions over a map
      everything else  passes over vector_lanes channels, a cycle for each element read
    a block          of channels goes to the drain when its sums grow. Of accumulator_banks places there, each is taken from when the factors of its
                     block come until its last result is written: blocks of few pixels wait for that
    a command        is set up (start_cycles) while the one before computes, and while it waits for something. The weights of its first pass arrive
                     during the last pass of the one before or, if it waits, after that. Its results are there drain_cycles after its last pixel
    queues           a command enters its queue dispatch_cycles after the one before it in the program, once less than queue_depth of the same queue
                     are unfinished

    the program    is fetched through the port of loads, instruction_bytes for each step as it is written: those of a loop once. It is fetched ahead

    groups         follow one another in the queues: one begins while the one before it ends, but for what needs the same bytes of the buffer, or of
                   the stores of parameters (see `simulator.model.parameters`), or maps in DRAM that are not stored yet

Not modelled: conflicts in the banks of the buffer but for weights beside pixels; a store to the second level that waits for loads of what lay there
before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, gcd, prod
from typing import NamedTuple

from lfopt.ir import (
    Box,
    Compute,
    Cycles,
    DramAccess,
    Hardware,
    Loop,
    Node,
    Place,
    Span,
    Step,
    Transfer,
    box_elements,
    box_shape,
    counted_leaves,
    in_turn,
    leaves,
    round_up,
    unfold,
)
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Call, Dataflow, Tiling
from lfopt.ops.attention import in_parts
from lfopt.ops.recognise import Attentions, attentions_of
from lfopt.ops.stages import Stage, stage_steps, stages
from lfopt.ops.windows import windows
from lfopt.planning.commands import Contraction, bands, contraction, reach, sliding, vector_passes
from lfopt.planning.lanes import MOVES, copies, stretches
from simulator.model.dram import access
from simulator.model.queues import Command, Queues, Timeline, latency

WALKED = 50_000  # commands of a plan, or of a group by itself, that are timed one by one: some three seconds
AHEAD = 48  # computations of a group that are looked at to see how it begins
KEPT = 2  # ways of a group that are followed
COMMAND_CYCLES = 1  # of a command, between its last pixel and the first of the next
DRAIN_GAP = 2  # cycles between the results of one block of channels and those of the next, where results come in every cycle
BLOCK_CYCLES = 11  # that a block of channels is with the drain, beside one for each of its pixels
FACTOR_CYCLES = 7  # before that, in which its factors come


Schedule = tuple[Sequence[Node], Sequence[Place]]  # of a group


class Work(NamedTuple):
    """What one Compute asks of the accelerator, time aside."""

    macs: Fraction = Fraction(0)  # a whole number but for parts of a ConvTranspose
    width: Fraction = Fraction(1)  # bytes of one factor times bytes of the other
    vector_bytes: int = 0  # through the vector lanes
    buffer_bytes: int = 0  # into and out of the buffer, but for weights
    weight_bytes: int = 0  # of weights, out of the buffer that they lie in
    accumulator_bytes: int = 0  # into and out of the partial sums beside the MAC array


class Ran(NamedTuple):
    """One command of a schedule, in cycles from its beginning. Between `begin` and `end` it holds its channel or the compute engine, alone."""

    queue: int  # 0 loads, 1 stores, 2 computes
    number: int  # of its step, among all that run
    step: Step  # a transfer, or what of a computation is one command
    start: int  # when nothing keeps it waiting: its operands are there, and room for its results
    begin: int
    end: int
    done: int  # when its results are there


class Met(NamedTuple):
    """Of a sliding window, what meets the map."""

    rows: int  # somewhere in a box of the result
    columns: int
    pairs: int  # rows of the result with a row of the window


def transfer_cycles(transfer: Transfer, hardware: Hardware) -> int:
    """Cycles that a transfer holds its channel of the port of its memory, the latency and DRAM aside."""
    size, axis = transfer.bytes, CHANNEL_AXIS_OF_RANK.get(len(transfer.box))
    if transfer.place >= 0 and axis is not None and transfer.kind in ("input", "output", "spill", "l2"):
        channels = transfer.box[axis][1] - transfer.box[axis][0]
        size = max(size, box_elements(transfer.box) // max(channels, 1) * round_up(channels, hardware.channel_align) * hardware.element_bytes)
    return -(-size // (hardware.port_bytes if transfer.kind != "l2" or hardware.l2_port_bytes is None else hardware.l2_port_bytes))


@dataclass(eq=False)
class Accelerator:
    """The chip, running operators of one dataflow."""

    flow: Dataflow
    hardware: Hardware
    _as_port: bool = True  # whether DRAM takes no longer than the port, whatever is moved
    _index: dict[str, int] = field(default_factory=dict[str, int])
    _works: dict[object, Work] = field(default_factory=dict[object, Work])
    _commands: dict[object, Command] = field(default_factory=dict[object, Command])
    _stages: dict[tuple[str, ...], tuple[Stage, ...]] = field(default_factory=dict[tuple[str, ...], tuple[Stage, ...]])
    _attentions: Attentions = field(init=False)
    _kept: dict[tuple[int, Span, Span], Met] = field(default_factory=dict[tuple[int, Span, Span], Met])

    def __post_init__(self) -> None:
        self._index = {operator.name: i for i, operator in enumerate(self.flow.operators)}
        self._attentions = attentions_of(self.flow)
        self._as_port = self.hardware.plain_dram and self.hardware.dram_bytes_per_second is None

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
            cycles = transfer_cycles(step, self.hardware)
            return cycles if self._as_port or step.kind == "l2" else max(cycles, self.dram_cycles(step))
        return sum(self.command(part).cycles for part in self.split(step))

    def access(self, step: Transfer) -> DramAccess:
        """Bursts and pages of DRAM that a transfer takes."""
        return access(step, self.flow, self._index, self.hardware)

    def dram_cycles(self, step: Transfer) -> int:
        """Cycles that it holds DRAM."""
        found = self.access(step)
        return self.hardware.dram_cycles(found.burst_bytes, found.pages)

    def split(self, step: Compute) -> Sequence[Compute]:
        """The commands of a step, each of one operator and the table behind it, and of as many rows as the accumulators hold."""
        return [part for one in self.passes(step) for part in self._bands(one)]

    def issued(self, step: Compute) -> Iterator[tuple[Compute, Command]]:
        """The commands of a step as they enter their queue: what moves channels becomes one for each copy."""
        for part in self.split(step):
            command = self.command(part)
            if not command.copies:
                yield part, command
            for cycles in command.copies:
                yield part, Command(cycles)

    def passes(self, step: Compute) -> Sequence[Compute]:
        """What a step computes one after the other: of quantised maps its stages, with what a table does in flight; else its operators."""
        if not step.then:
            return (step,)
        attention, then = self._attentions.named(step)
        if attention is not None:
            rest = Compute(step.operator, step.boxes, step.places, then=then)
            return (*in_parts(attention.call, step), *([*in_turn(rest)][1:] if then and step.last else ()))
        flight = (step.operator, *step.then)
        if flight not in self._stages:
            calls = [self.flow.calls[self._index[name]] for name in flight]
            bytes_ = calls[0].result_tensors[0].quantization is not None
            self._stages[flight] = stages(replace(calls[0], then=tuple(calls[1:]))) if bytes_ else ()
        found = self._stages[flight]
        return tuple(stage_steps(step, found) if found else in_turn(step))

    def _bands(self, step: Compute) -> Sequence[Compute]:
        parts = self._parts(step)
        return [replace(step, boxes=((*step.boxes[0][:2], *part),)) for part in parts] if len(parts) > 1 else (step,)

    def _parts(self, step: Compute) -> Sequence[tuple[Span, ...]]:
        """Rows and columns of the commands that a computation is cut into; of maps that have none, of one command."""
        if len(step.boxes) != 1 or len(step.boxes[0]) != 4:
            return ((),)
        return bands(*step.boxes[0][2:], self.hardware.accumulator_columns)

    def command_count(self, nodes: Sequence[Node]) -> int:
        """Commands that run, all turns counted."""
        counted = counted_leaves(nodes)
        return sum(times * (1 if isinstance(step, Transfer) else sum(len(self._parts(one)) for one in self.passes(step))) for times, step in counted)

    def command(self, step: Compute) -> Command:
        """One of the commands of a step; what it takes depends on where it is only by what of its window lies in the padding."""
        i = self._index[step.operator]
        inner = step.inputs[1] - step.inputs[0] if step.inputs else None
        kept = self._kernel(i, step.boxes[0])
        key = (i, tuple(box_shape(box) for box in step.boxes), inner, step.first, step.last, kept)
        found = self._commands.get(key)
        if found is None:
            contracts = self.flow.specs[i].tiling is Tiling.CONTRACT
            found = self._commands[key] = self._contraction(i, step, kept) if contracts else self._passes(i, step, inner, kept)
        return found

    def _kernel(self, op: int, out: Box) -> Met | None:
        """What of a sliding window meets the map in a box of the result; None where there is no such window."""
        call = self.flow.calls[op]
        if len(out) != 4 or not self.flow.specs[op].slides:
            return None
        key = (op, out[2], out[3])
        if key not in self._kept:
            window = sliding(call, (out[2], out[3]))
            self._kept[key] = Met(window.rows, window.columns, int(windows(call)[0].covered(out[2]).sum()))
        return self._kept[key]

    def _contraction(self, op: int, step: Compute, kept: Met | None) -> Command:
        hardware, call = self.hardware, self.flow.calls[op]
        c = contraction(call, step.boxes[0], step.inputs)
        blocks = c.groups * ceil(c.outer / hardware.mac_columns)
        if not c.pixels or not blocks:
            return Command(COMMAND_CYCLES)
        factors = step.last and call.constant[1]
        biases = ceil(Fraction(hardware.constant_bits(bias=True), hardware.constant_bits(bias=False))) if factors and call.has(2) else 0
        if c.depthwise:
            busy, size, late = self._depthwise(call, step, c, kept)
            block = self._block(busy, c.pixels, step, factors=factors)
            return Command(ceil(blocks * block) + COMMAND_CYCLES, size + hardware.weight_latency, c.pixels, late)
        passes, rows = c.passes(hardware.mac_rows, hardware.window_columns), c.rows if kept is None else kept.rows
        bits = hardware.constant_bits(bias=False) if call.constant[1] else 8 * hardware.element_bytes
        row = Fraction(min(c.outer, hardware.mac_columns) * bits, 8 * hardware.weight_port_bytes)  # cycles in which a row of weights arrives
        fill = passes[0][1]
        busy = rows * sum(count * max(_pixels(c.pixels), size) for count, size in passes)  # weights beside pixels, a row in a cycle
        together = rows * sum(count * _pixels(c.pixels + ceil(size * row)) for count, size in passes)  # or before them
        if together < busy:
            busy, fill = together, ceil(fill * row)
        else:
            words = sum((count * (size + self._conflicts(size - c.pixels)) for count, size in passes), Fraction(0))
            busy = max(busy, ceil(rows * words) + biases)
        block = self._block(busy, c.pixels, step, factors=factors)
        return Command(ceil(blocks * block) + COMMAND_CYCLES, fill + biases + hardware.weight_latency, c.pixels)

    def _conflicts(self, idle: int) -> Fraction:
        """In how many of the passes that read no pixel in so many cycles, as they wait for weights, both begin in the same bank of the buffer.

        Pixels come first: weights wait a cycle. From pass to pass the one moves on by so many banks against the other.
        """
        banks = self.hardware.window_columns
        return Fraction(gcd(idle, banks), banks) if idle > 0 and idle % banks else Fraction(0)

    def _depthwise(self, call: Call, step: Compute, c: Contraction, kept: Met | None) -> tuple[int, int, int]:
        """Of a depthwise convolution: (cycles of all passes over a block of channels, rows of weights of the first pass, cycles after the last pass).

        While neighbouring pixels grow, the banks of the accumulators that they lie in are not drained.
        """
        hardware, box = self.hardware, step.boxes[0]
        rows, columns, met = kept or (c.rows, c.columns, 0)
        together, taps, stride = 1, hardware.window_columns if c.side_by_side else 1, 1
        if c.side_by_side and kept is not None and step.first:
            stride = sliding(call).stride_columns
            together, taps = reach(columns, stride, box[3][1] - box[3][0], hardware.mac_rows, hardware.window_columns, hardware.depthwise_columns)
        groups = [min(taps, columns - first) for first in range(0, columns, taps)]
        if together == 1:
            return sum(rows * max(_pixels(c.pixels), group) for group in groups), groups[0], 0
        width = max(box[3][1] - box[3][0], 1)
        lines, line = c.pixels // width, ceil(width / together)
        steps = [rows * lines * line + met * (group > stride) for group in groups]
        busy = sum(max(rows * max(_pixels(lines * line), group), step) for step, group in zip(steps, groups, strict=True))
        idle = busy - sum(steps) + (rows * lines - met) * line  # cycles in which no pixel is read
        busy += max(ceil(Fraction(rows * columns, hardware.window_columns)) - idle, 0)  # words of weights, which come before the operand
        late = c.pixels - lines * line * (hardware.depthwise_columns - together) // hardware.depthwise_columns
        return busy, groups[0], min(busy, late)

    def _passes(self, op: int, step: Compute, inner: int | None, kept: Met | None) -> Command:
        """A command of what is no contraction."""
        hardware, cycles = self.hardware, COMMAND_CYCLES
        rows, columns, sums = vector_passes(self.flow.calls[op], len(self.flow.operands[op]))
        if kept is not None:
            rows, columns = kept.rows, kept.columns
        if inner is not None:
            rows = max(rows * inner // self.flow.calls[op].rows_in(0), 1)
        moved = self._moved(op, step)
        if moved is not None:
            return Command(sum(moved), copies=tuple(moved))
        passes = rows * columns if sums else rows * ceil(columns / hardware.window_columns)
        for box in step.boxes:
            size, channel = box_elements(box), CHANNEL_AXIS_OF_RANK.get(len(box))
            if size and channel is not None and not sums:
                channels = box[channel][1] - box[channel][0]
                pixels = size // channels
                cycles += ceil(ceil(channels / hardware.vector_lanes) * self._block(passes * _pixels(pixels), pixels, step))
            else:
                cycles += ceil(size * passes / hardware.vector_lanes)
        return Command(cycles)

    def _moved(self, op: int, step: Compute) -> list[int] | None:
        """Cycles of what moves channels alone, copy by copy: of a pass for every block that it makes; None of anything else."""
        call, found = self.flow.calls[op], list[int]()
        if call.operator.kind not in MOVES:
            return None
        for k, box in enumerate(step.boxes):
            stretched = stretches(call, k)
            if stretched is None:
                return None
            pixels = prod(stop - start for start, stop in box[2:])
            block = self._block(_pixels(pixels), pixels, step)
            found += [ceil(copy.blocks * block) + COMMAND_CYCLES for copy in copies(stretched, box[1], self.hardware.vector_lanes)]
        return found

    def _block(self, busy: int, pixels: int, step: Compute, *, factors: bool = False) -> Fraction | int:
        """Cycles of all passes of a block of output channels, with what comes in the way. `factors`: its channels have factors of their own."""
        banks = self.hardware.accumulator_banks
        if not step.first:
            busy += pixels  # held sums take all banks of the buffer
        if banks == 1:
            return busy + pixels
        return max(busy, pixels + DRAIN_GAP, Fraction(pixels + BLOCK_CYCLES + FACTOR_CYCLES * factors, banks))

    def _contract(self, op: int, step: Compute) -> Work:
        hardware, call = self.hardware, self.flow.calls[op]
        c = contraction(call, step.boxes[0], step.inputs)
        second = Fraction(hardware.constant_bits(bias=False), 8) if call.constant[1] else Fraction(hardware.element_bytes)
        tiles, taps = ceil(c.outer / hardware.mac_columns), c.rows * c.columns
        passes = c.rows * sum(count for count, _ in c.passes(hardware.mac_rows, hardware.window_columns))  # of the pixels, per tile
        results = box_elements(step.boxes[0])
        reads = c.groups * c.outer * c.rows * c.pixels if c.depthwise else c.groups * tiles * taps * c.pixels * c.inner
        sums = hardware.accumulator_bytes * ((not step.first) + (not step.last))
        met = ceil(c.groups * c.outer * c.inner * taps * second)  # bytes of operand 1
        return Work(
            macs=c.macs,
            width=hardware.element_bytes * second,
            buffer_bytes=reads * hardware.element_bytes + (0 if call.constant[1] else met) + results * (sums + step.last * hardware.element_bytes),
            weight_bytes=met if call.constant[1] else 0,
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

        Up to `walked` commands are timed one by one. Of more, loops are cut short to so many and to half as many turns; what the longer run takes
        beyond the shorter one, against what its steps take one after the other, holds for all further turns.
        """
        if self.command_count(nodes) <= walked:
            done, shared = self._queues(nodes, places), self._shared(nodes)
            return Cycles(max(*done.busy[:2], shared), done.busy[2], max(done.line.end, shared))
        turns = 4
        while self.command_count(shortened(nodes, 2 * turns)) <= walked:
            turns *= 2
        some, more = shortened(nodes, turns // 2), shortened(nodes, turns)
        dma, compute = self.busy(nodes)
        if self.command_count(more) > 4 * walked:
            return Cycles(dma, compute, max(dma, compute) if self.hardware.overlap else dma + compute, "formula")
        first, second = self.timeline(some, places).end, self.timeline(more, places).end
        work_first, work_second = self._serial(some), self._serial(more)
        rest = (self._serial(nodes) - work_second) * Fraction(second - first, max(work_second - work_first, 1))
        return Cycles(dma, compute, max(second + round(rest), dma, compute), "extrapolated")

    def timeline(self, nodes: Sequence[Node], places: Sequence[Place]) -> Timeline:
        """When every command of a schedule runs."""
        return self._queues(nodes, places).line

    def commands(self, groups: Iterable[Schedule]) -> Iterator[list[Ran]]:
        """Of each group, every command and when it runs, in the order of the program; groups overlap as in `in_a_row`."""
        queues = Queues(self.flow, self._index, self.hardware)
        for nodes, places in groups:
            queues.begin(nodes, places)
            found: list[Ran] = []
            for number, step in enumerate(_fetched(queues, nodes)):
                for command, cycles in self._run(queues, step):
                    queue = 2 if isinstance(command, Compute) else int(command.store)
                    start, done = queues.line[queue][-1]
                    end = queues.ended if queue == 2 else done
                    found.append(Ran(queue, number, command, start, end - cycles, end, done))
            yield found

    def in_a_row(self, groups: Iterable[Schedule]) -> int:
        """Cycles of the schedules of several groups, step by step: one begins while commands of those before it still run."""
        queues = Queues(self.flow, self._index, self.hardware)
        for nodes, places in groups:
            self._walk(queues, nodes, places)
        return queues.line.end

    def soonest(self, choices: Sequence[Sequence[Schedule]], late: Callable[[], bool]) -> tuple[list[int], int] | None:
        """Of several ways to write each group, one behind the other: which one to take, and the cycles of all; None once it is `late`.

        Group by group, the KEPT ways are followed whose first AHEAD computations are done soonest, each after the way of the group before that is
        best for it.
        """
        followed: list[tuple[Queues, list[int]]] = [(Queues(self.flow, self._index, self.hardware), [])]
        for choice in choices:
            if late():
                return None
            ends = [[self._walk(queues.ahead(), *way, computations=AHEAD) for queues, _ in followed] for way in choice]
            kept = sorted(range(len(choice)), key=lambda k: min(ends[k]))[:KEPT]
            found: list[tuple[Queues, list[int]]] = []
            for k in kept:
                queues, taken = followed[ends[k].index(min(ends[k]))]
                found.append((queues.ahead(), [*taken, k]))
                self._walk(found[-1][0], *choice[k])
            followed = found
        queues, taken = min(followed, key=lambda one: one[0].line.end)
        return taken, queues.line.end

    def _queues(self, nodes: Sequence[Node], places: Sequence[Place]) -> Queues:
        queues = Queues(self.flow, self._index, self.hardware)
        self._walk(queues, nodes, places)
        return queues

    def _walk(self, queues: Queues, nodes: Sequence[Node], places: Sequence[Place], computations: int | None = None) -> int:
        """Let a group run, or so many of its computations; when all of that is done."""
        queues.begin(nodes, places)
        for step in _fetched(queues, nodes):
            deque(self._run(queues, step), maxlen=0)
            if computations is not None and isinstance(step, Compute) and (computations := computations - 1) <= 0:
                break
        return queues.line.end

    def _run(self, queues: Queues, step: Step) -> Iterator[tuple[Step, int]]:
        """The commands of a step as they enter the queues, and their cycles."""
        if isinstance(step, Transfer):
            cycles = self.cycles(step)
            queues.transfer(step, cycles)
            yield step, cycles
            return
        for part, command in self.issued(step):
            queues.compute(part, command)
            yield part, command.cycles

    def busy(self, nodes: Sequence[Node]) -> tuple[int, int]:
        """Cycles of the busier of the channels to DRAM (or of DRAM), and of the compute engine, each turn of a loop taken to be like the first."""
        busy = [0, 0, 0]
        for times, step in counted_leaves(nodes):
            if isinstance(step, Compute):
                busy[2] += times * self.cycles(step)
            elif step.kind != "l2":
                busy[step.store] += times * self.cycles(step)
        return max(*busy[:2], self._shared(nodes)), busy[2]

    def _shared(self, nodes: Sequence[Node]) -> int:
        """Cycles in which DRAM serves all transfers one after the other; 0: it is as fast as both channels of the port."""
        if self.hardware.dram_bytes_per_second is None:
            return 0
        return sum(times * self.dram_cycles(step) for times, step in counted_leaves(nodes) if isinstance(step, Transfer) and step.kind != "l2")

    def _serial(self, nodes: Sequence[Node]) -> int:
        """Cycles if every command waited for the one before it."""
        hardware, cycles = self.hardware, 0
        for times, step in counted_leaves(nodes):
            if isinstance(step, Transfer):
                cycles += times * (self.cycles(step) + latency(step, hardware))
            else:
                parts = [self.command(part) for part in self.split(step)]
                cycles += times * sum(part.cycles + part.fill + hardware.start_cycles + hardware.drain_cycles for part in parts)
        return cycles


def _fetched(queues: Queues, nodes: Sequence[Node]) -> Iterator[Step]:
    """The steps of a schedule, turn by turn; the program is fetched before them."""
    for node in nodes:
        queues.fetch(sum(1 for _ in leaves((node,))))
        yield from unfold((node,))


def shortened(nodes: Sequence[Node], turns: int) -> tuple[Node, ...]:
    """The schedule with loops of at most so many turns."""
    return tuple(Loop(min(node.count, turns), shortened(node.body, turns)) if isinstance(node, Loop) else node for node in nodes)


def walked_each(counts: Sequence[int], most: int = WALKED) -> int:
    """Of groups of so many commands each: how many of a group may be timed one by one, so that all of them together take no more than `most`.

    A group that has fewer leaves the rest to the others.
    """
    left = most
    for behind, count in zip(range(len(counts), 0, -1), sorted(counts), strict=True):
        if count * behind > left:
            return max(left // behind, 1)
        left -= count
    return most


def _pixels(count: int) -> int:
    """Cycles of a pass: a sum must be back before it is touched again."""
    return max(count, 2)
