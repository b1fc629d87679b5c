"""Timing of single steps on the accelerator of a Hardware: the commands that they become, and their cycles.

Every parameter is a field of `Hardware`; those of configs/hardware/accelerator_256k.yaml are fitted to the
RTL in hw_rtl. In cycles:

    transfer         the larger of its bytes in DRAM and on chip (where channels are padded) / port_bytes, and
                     port_latency before them: hidden by the transfers before it, where transfers_in_flight
                     allows. Loads and stores have a channel each. No less than DRAM takes for it: its bytes
                     in whole bursts at dram_bytes_per_second, and dram_page_cycles for each page (see
                     `simulator.model.dram`); of all transfers of a group, loads and stores together, where
                     dram_bytes_per_second is given
      second level   has a port of its own, of l2_port_bytes in each direction, and answers at once: neither
                     the port to DRAM nor port_latency counts
    computation      becomes commands of at most accumulator_columns pixels each (see
                     `lfopt.planning.accelerator.commands`). A command passes over its pixels for every tile
                     of output channels, every tile of input channels and every element of the kernel, but for
                     rows of it that meet padding alone
      contraction    a pass takes a cycle for each pixel. Its weights arrive beside them, a word of the buffer
                     each cycle, which a pass of few pixels waits for; or weight_port_bytes at a time, in
                     which no pixel is read: whichever is faster. Biases come through the port of weights, and
                     go first. Where input channels are so few that window_columns kernel columns of them fit
                     mac_rows, these are one pass
      depthwise      a pass takes so many kernel columns of so many neighbouring pixels as
                     `lfopt.planning.accelerator.commands.reach` says, a cycle for so many pixels of a row,
                     one more for what their windows share at its beginning, and those in which the buffer
                     gives weights
      pools          a pass takes window_columns kernel columns. The same holds for reductions over a map
      everything else  passes over vector_lanes channels, a cycle for each element read
    a block          of channels goes to the drain when its sums grow. Of accumulator_banks places there, each
                     is taken from when the factors of its block come until its last result is written: blocks
                     of few pixels wait for that
    a command        is set up (start_cycles) while the one before computes, and while it waits for something.
                     The weights of its first pass arrive during the last pass of the one before or, if it
                     waits, after that. Its results are there drain_cycles after its last pixel

Not modelled: conflicts in the banks of the buffer but for weights beside pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, gcd, prod
from typing import NamedTuple

from lfopt.ir import (
    Box,
    Carry,
    Compute,
    DramAccess,
    Hardware,
    Node,
    Span,
    Step,
    Transfer,
    box_elements,
    box_shape,
    counted_leaves,
    round_up,
    unfused_steps,
)
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Call, Dataflow, Tiling
from lfopt.ops.access import AccessPatterns
from lfopt.ops.attention import in_parts
from lfopt.ops.recognise import Attentions, attentions_of
from lfopt.ops.stages import TableStage, stage_steps, stages
from lfopt.ops.windows import windows
from lfopt.planning.accelerator.commands import (
    ContractionLoops,
    bands,
    contraction_loops,
    reach,
    sliding,
    vector_passes,
)
from lfopt.planning.accelerator.lanes import MOVES, channel_runs, copies
from simulator.model.dram import access
from simulator.model.queues import CommandTiming

COMMAND_CYCLES = 1  # of a command, between its last pixel and the first of the next
# cycles between the results of one block of channels and those of the next, where results come in every cycle
DRAIN_GAP = 2
BLOCK_CYCLES = 11  # that a block of channels is with the drain, beside one for each of its pixels
FACTOR_CYCLES = 7  # before that, in which its factors come


class ComputeWork(NamedTuple):
    """Work of one Compute beside time: products and bytes."""

    macs: Fraction = Fraction(0)  # a whole number but for parts of a ConvTranspose
    width: Fraction = Fraction(1)  # bytes of one factor times bytes of the other
    vector_bytes: int = 0  # through the vector lanes
    buffer_bytes: int = 0  # into and out of the buffer, but for weights
    weight_bytes: int = 0  # of weights, out of the buffer that they lie in
    accumulator_bytes: int = 0  # into and out of the partial sums beside the MAC array


class Met(NamedTuple):
    """The part of a sliding window that meets the map."""

    rows: int  # somewhere in a box of the result
    columns: int
    pairs: int  # rows of the result with a row of the window


def transfer_cycles(transfer: Transfer, hardware: Hardware) -> int:
    """Cycles that a transfer holds its channel of the port of its memory, the latency and DRAM aside."""
    size = transfer.bytes
    axis = CHANNEL_AXIS_OF_RANK.get(len(transfer.box))
    if transfer.place >= 0 and axis is not None and transfer.kind in ("input", "output", "spill", "l2"):
        channels = transfer.box[axis][1] - transfer.box[axis][0]
        size = max(
            size,
            box_elements(transfer.box)
            // max(channels, 1)
            * round_up(channels, hardware.channel_align)
            * hardware.element_bytes,
        )
    return -(
        -size
        // (
            hardware.port_bytes
            if transfer.kind != "l2" or hardware.l2_port_bytes is None
            else hardware.l2_port_bytes
        )
    )


@dataclass(eq=False)
class Engines:
    """The chip, running single steps of operators of one dataflow."""

    flow: Dataflow
    hardware: Hardware
    read_through: frozenset[str] = frozenset()  # operators that only move data, and are not executed
    accesses: AccessPatterns = field(init=False)
    _as_port: bool = True  # whether DRAM takes no longer than the port, whatever is moved
    _index: dict[str, int] = field(default_factory=dict[str, int])
    _works: dict[object, ComputeWork] = field(default_factory=dict[object, ComputeWork])
    _commands: dict[object, CommandTiming] = field(default_factory=dict[object, CommandTiming])
    _stages: dict[tuple[str, ...], tuple[TableStage, ...]] = field(
        default_factory=dict[tuple[str, ...], tuple[TableStage, ...]]
    )
    _attentions: Attentions = field(init=False)
    _kept: dict[tuple[int, Span, Span], Met] = field(default_factory=dict[tuple[int, Span, Span], Met])

    def __post_init__(self) -> None:
        self._index = {operator.name: i for i, operator in enumerate(self.flow.operators)}
        self.accesses = AccessPatterns.through(self.flow.graph, self.read_through, by_rows=True)
        self._attentions = attentions_of(self.flow)
        self._as_port = self.hardware.plain_dram and self.hardware.dram_bytes_per_second is None

    def number(self, operator: str) -> int | None:
        """Index of an operator of the network; None where it has none of that name."""
        return self._index.get(operator)

    def work(self, step: Compute) -> ComputeWork:
        """Work of a Compute beside time; it depends on the extents of boxes and of the fold alone."""
        inner = step.inputs[1] - step.inputs[0] if step.inputs else None
        key = (step.operator, tuple(box_shape(box) for box in step.boxes), inner, step.first, step.last)
        if key not in self._works:
            i = self._index[step.operator]
            contracts = self.flow.specs[i].tiling is Tiling.CONTRACT
            self._works[key] = self._contract(i, step) if contracts else self._vector(i, step, inner)
        return self._works[key]

    def cycles(self, step: Step) -> int:
        """Cycles that a step holds its engine, once it is set up and what it needs is there."""
        if isinstance(step, Transfer):
            cycles = transfer_cycles(step, self.hardware)
            if self._as_port or step.kind == "l2":
                return cycles
            return max(cycles, self.dram_cycles(step))
        if isinstance(step, Carry):
            return self._carry_cycles(step.box)
        return sum(self.command(part).cycles for part in self.split(step))

    def _carry_cycles(self, box: Box) -> int:
        """Cycles of a copy within the buffer: that of an operator of one operand on the vector lanes."""
        size = box_elements(box)
        axis = CHANNEL_AXIS_OF_RANK.get(len(box))
        if not size or axis is None:
            return COMMAND_CYCLES + ceil(size / self.hardware.vector_lanes)
        channels = box[axis][1] - box[axis][0]
        return COMMAND_CYCLES + ceil(channels / self.hardware.vector_lanes) * _pixels(size // channels)

    def carried(self, step: Carry) -> ComputeWork:
        """Bytes of a copy within the buffer: out of it, through the vector lanes, and into it."""
        size = box_elements(step.box) * self.hardware.element_bytes
        return ComputeWork(vector_bytes=size, buffer_bytes=2 * size)

    def access(self, step: Transfer) -> DramAccess:
        """Bursts and pages of DRAM that a transfer takes."""
        return access(step, self.flow, self._index, self.hardware, self.accesses.known)

    def dram_cycles(self, step: Transfer) -> int:
        """Cycles that a transfer holds DRAM."""
        access = self.access(step)
        return self.hardware.dram_cycles(access.burst_bytes, access.pages)

    def split(self, step: Compute) -> Sequence[Compute]:
        """Commands of a step: one operator and its table each, and as many rows as the accumulators hold."""
        return [part for one in self.passes(step) for part in self._bands(one)]

    def issued(self, step: Compute) -> Iterator[tuple[Compute, CommandTiming]]:
        """The commands of a step as they enter their queue: what moves channels becomes one for each copy."""
        for part in self.split(step):
            command = self.command(part)
            for one in [CommandTiming(cycles) for cycles in command.copies] or [command]:
                yield part, one

    def passes(self, step: Compute) -> Sequence[Compute]:
        """Passes of a step, in order: one per operator; of quantised maps, one per stage with its table."""
        if not step.then:
            return (step,)
        attention, then = self._attentions.named(step)
        if attention is not None:
            rest = Compute(step.operator, step.boxes, step.places, then=then)
            return (
                *in_parts(attention.call, step),
                *([*unfused_steps(rest)][1:] if then and step.last else ()),
            )
        flight = (step.operator, *step.then)
        if flight not in self._stages:
            calls = [self.flow.calls[self._index[name]] for name in flight]
            self._stages[flight] = (
                stages(replace(calls[0], then=tuple(calls[1:])))
                if calls[0].result_tensors[0].quantization
                else ()
            )
        flight_stages = self._stages[flight]
        return tuple(stage_steps(step, flight_stages) if flight_stages else unfused_steps(step))

    def _bands(self, step: Compute) -> Sequence[Compute]:
        parts = self._parts(step)
        if len(parts) > 1:
            return [replace(step, boxes=((*step.boxes[0][:2], *part),)) for part in parts]
        return (step,)

    def _parts(self, step: Compute) -> Sequence[tuple[Span, ...]]:
        """Rows and columns of each command of a computation; one empty tuple for maps that have none."""
        if len(step.boxes) != 1 or len(step.boxes[0]) != 4:
            return ((),)
        return bands(*step.boxes[0][2:], self.hardware.accumulator_columns)

    def command_count(self, nodes: Sequence[Node]) -> int:
        """Commands that run, all iterations counted."""
        return sum(
            times
            * (sum(len(self._parts(one)) for one in self.passes(step)) if isinstance(step, Compute) else 1)
            for times, step in counted_leaves(nodes)
        )

    def command(self, step: Compute) -> CommandTiming:
        """Timing of one command; it depends on extents, and on the part of the window that is padding."""
        i = self._index[step.operator]
        inner = step.inputs[1] - step.inputs[0] if step.inputs else None
        kept = self._kernel(i, step.boxes[0])
        key = (i, tuple(box_shape(box) for box in step.boxes), inner, step.first, step.last, kept)
        if key not in self._commands:
            contracts = self.flow.specs[i].tiling is Tiling.CONTRACT
            self._commands[key] = (
                self._contraction(i, step, kept) if contracts else self._passes(i, step, inner, kept)
            )
        return self._commands[key]

    def _kernel(self, op: int, out: Box) -> Met | None:
        """Part of the sliding window that meets the map, for a box of the result; None without a window."""
        call = self.flow.calls[op]
        if len(out) != 4 or not self.flow.specs[op].slides:
            return None
        key = (op, out[2], out[3])
        if key not in self._kept:
            window = sliding(call, (out[2], out[3]))
            self._kept[key] = Met(window.rows, window.columns, windows(call)[0].taps_within(out[2]))
        return self._kept[key]

    def _contraction(self, op: int, step: Compute, kept: Met | None) -> CommandTiming:
        hardware = self.hardware
        call = self.flow.calls[op]
        c = contraction_loops(call, step.boxes[0], step.inputs)
        blocks = c.groups * ceil(c.outer / hardware.mac_columns)
        if not c.pixels or not blocks:
            return CommandTiming(COMMAND_CYCLES)
        factors = step.last and call.constant[1]
        if factors and call.has(2):
            biases = ceil(Fraction(hardware.constant_bits(bias=True), hardware.constant_bits(bias=False)))
        else:
            biases = 0
        if c.depthwise:
            busy, size, late = self._depthwise(call, step, c, kept)
            busy = self._waited(busy)
            block = self._block(busy, c.pixels, step, factors=factors)
            return CommandTiming(
                ceil(blocks * block) + COMMAND_CYCLES, size + hardware.weight_latency, c.pixels, late
            )
        passes = c.passes(hardware.mac_rows, hardware.window_columns)
        rows = c.rows if kept is None else kept.rows
        bits = hardware.constant_bits(bias=False) if call.constant[1] else 8 * hardware.element_bytes
        # cycles in which a row of weights arrives
        row = Fraction(min(c.outer, hardware.mac_columns) * bits, 8 * hardware.weight_port_bytes)
        fill = passes[0][1]
        # weights beside pixels, a row in a cycle
        busy = rows * sum(count * max(_pixels(c.pixels), size) for count, size in passes)
        # or before them
        together = rows * sum(count * _pixels(c.pixels + ceil(size * row)) for count, size in passes)
        if together < busy:
            busy = together
            fill = ceil(fill * row)
        else:
            words = sum(
                (count * (size + self._conflicts(size - c.pixels)) for count, size in passes), Fraction(0)
            )
            busy = max(busy, ceil(rows * words) + biases)
        busy = self._waited(busy)
        block = self._block(busy, c.pixels, step, factors=factors)
        return CommandTiming(
            ceil(blocks * block) + COMMAND_CYCLES, fill + biases + hardware.weight_latency, c.pixels
        )

    def _waited(self, busy: int) -> int:
        """Cycles of passes with those in which the MAC array waits: see `Hardware.mac_utilization`."""
        if self.hardware.mac_utilization == 1:
            return busy
        return ceil(busy / self.hardware.mac_utilization)

    def _conflicts(self, idle: int) -> Fraction:
        """Share of the passes that wait for weights whose pixels and weights begin in the same buffer bank.

        `idle`: cycles of a pass in which no pixel is read. Pixels come first: weights wait a cycle. From pass
        to pass the one moves on by so many banks against the other.
        """
        banks = self.hardware.window_columns
        if idle > 0 and idle % banks:
            return Fraction(gcd(idle, banks), banks)
        return Fraction(0)

    def _depthwise(
        self, call: Call, step: Compute, c: ContractionLoops, kept: Met | None
    ) -> tuple[int, int, int]:
        """(cycles of all passes over a block, rows of weights of the first pass, cycles after the last pass).

        Of a depthwise convolution and one block of channels.
        While neighbouring pixels grow, the banks of the accumulators that they lie in are not drained.
        """
        hardware = self.hardware
        box = step.boxes[0]
        rows, columns, met = kept or (c.rows, c.columns, 0)
        together = 1
        taps = hardware.window_columns if c.side_by_side else 1
        stride = 1
        if c.side_by_side and kept is not None and step.first:
            stride = sliding(call).stride_columns
            together, taps = reach(
                columns,
                stride,
                box[3][1] - box[3][0],
                hardware.mac_rows,
                hardware.window_columns,
                hardware.depthwise_columns,
            )
        groups = [min(taps, columns - first) for first in range(0, columns, taps)]
        if together == 1:
            return sum(rows * max(_pixels(c.pixels), group) for group in groups), groups[0], 0
        width = max(box[3][1] - box[3][0], 1)
        lines = c.pixels // width
        line = ceil(width / together)
        steps = [rows * lines * line + met * (group > stride) for group in groups]
        busy = sum(
            max(rows * max(_pixels(lines * line), group), step)
            for step, group in zip(steps, groups, strict=True)
        )
        idle = busy - sum(steps) + (rows * lines - met) * line  # cycles in which no pixel is read
        # words of weights, which come before the operand
        busy += max(ceil(Fraction(rows * columns, hardware.window_columns)) - idle, 0)
        late = c.pixels - lines * line * (hardware.depthwise_columns - together) // hardware.depthwise_columns
        return busy, groups[0], min(busy, late)

    def _passes(self, op: int, step: Compute, inner: int | None, kept: Met | None) -> CommandTiming:
        """Timing of a command that is no contraction."""
        hardware = self.hardware
        cycles = COMMAND_CYCLES
        rows, columns, sums = vector_passes(self.flow.calls[op], len(self.flow.operands[op]))
        if kept is not None:
            rows = kept.rows
            columns = kept.columns
        if inner is not None:
            rows = max(rows * inner // self.flow.calls[op].rows_in(0), 1)
        moved = self._moved(op, step)
        if moved is not None:
            return CommandTiming(sum(moved), copies=tuple(moved))
        passes = rows * columns if sums else rows * ceil(columns / hardware.window_columns)
        for box in step.boxes:
            size = box_elements(box)
            channel = CHANNEL_AXIS_OF_RANK.get(len(box))
            if size and channel is not None and not sums:
                channels = box[channel][1] - box[channel][0]
                pixels = size // channels
                cycles += ceil(
                    ceil(channels / hardware.vector_lanes)
                    * self._block(passes * _pixels(pixels), pixels, step)
                )
            else:
                cycles += ceil(size * passes / hardware.vector_lanes)
        return CommandTiming(cycles)

    def _moved(self, op: int, step: Compute) -> list[int] | None:
        """Cycles per copy of an operator that only moves channels, one pass per block; None of others."""
        call = self.flow.calls[op]
        cycles = list[int]()
        if call.operator.kind not in MOVES:
            return None
        for k, box in enumerate(step.boxes):
            stretched = channel_runs(call, k)
            if stretched is None:
                return None
            pixels = prod(stop - start for start, stop in box[2:])
            block = self._block(_pixels(pixels), pixels, step)
            cycles += [
                ceil(copy.blocks * block) + COMMAND_CYCLES
                for copy in copies(stretched, box[1], self.hardware.vector_lanes)
            ]
        return cycles

    def _block(self, busy: int, pixels: int, step: Compute, *, factors: bool = False) -> Fraction | int:
        """Cycles of all passes of a block of output channels, with what comes in the way.

        `factors`: its channels have factors of their own.
        """
        banks = self.hardware.accumulator_banks
        if not step.first:
            busy += pixels  # held sums take all banks of the buffer
        if banks == 1:
            return busy + pixels
        return max(busy, pixels + DRAIN_GAP, Fraction(pixels + BLOCK_CYCLES + FACTOR_CYCLES * factors, banks))

    def _contract(self, op: int, step: Compute) -> ComputeWork:
        hardware = self.hardware
        call = self.flow.calls[op]
        c = contraction_loops(call, step.boxes[0], step.inputs)
        if call.constant[1]:
            second = Fraction(hardware.constant_bits(bias=False), 8)
        else:
            second = Fraction(hardware.element_bytes)
        tiles = ceil(c.outer / hardware.mac_columns)
        taps = c.rows * c.columns
        # of the pixels, per tile
        passes = c.rows * sum(count for count, _ in c.passes(hardware.mac_rows, hardware.window_columns))
        if c.depthwise:
            reads = c.groups * c.outer * c.rows * c.pixels
        else:
            reads = c.groups * tiles * taps * c.pixels * c.inner
        sums = hardware.accumulator_bytes * ((not step.first) + (not step.last))
        met = ceil(c.groups * c.outer * c.inner * taps * second)  # bytes of operand 1
        return ComputeWork(
            macs=c.macs,
            width=hardware.element_bytes * second,
            buffer_bytes=reads * hardware.element_bytes
            + (0 if call.constant[1] else met)
            + box_elements(step.boxes[0]) * (sums + step.last * hardware.element_bytes),
            weight_bytes=met if call.constant[1] else 0,
            accumulator_bytes=2 * c.groups * c.outer * c.pixels * passes * hardware.accumulator_bytes,
        )

    def _vector(self, op: int, step: Compute, inner: int | None) -> ComputeWork:
        hardware = self.hardware
        rows, columns, _ = vector_passes(self.flow.calls[op], len(self.flow.operands[op]))
        reads = rows * columns
        if inner is not None:
            reads = reads * inner // self.flow.calls[op].rows_in(0)
        held = hardware.accumulator_bytes * ((not step.first) + (not step.last))
        operands = len(self.flow.operands[op])
        elements = sum(map(box_elements, step.boxes))
        return ComputeWork(
            vector_bytes=elements * reads * hardware.element_bytes,
            buffer_bytes=elements * ((max(reads, operands) + step.last) * hardware.element_bytes + held),
        )


def _pixels(count: int) -> int:
    """Cycles of a pass: a sum must be back before it is touched again."""
    return max(count, 2)
