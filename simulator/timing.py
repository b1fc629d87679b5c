"""Cycles of a schedule on the accelerator that a Hardware describes: a model, step by step.

Every parameter is a field of `Hardware`. The accelerator has one DMA engine, which serves a queue of loads and a queue of stores over one port, and
one compute engine with a MAC array and vector lanes. What a step takes:

    transfer         port_latency + ceil(bytes / port_bytes)
    contraction      per tile of mac_columns output channels: tiles of mac_rows input channels x kernel elements x pixels, or the cycles in which
                     the weights of a tile arrive where there are fewer pixels; and start_cycles. Finished pixels are requantised one per cycle,
                     which with two accumulator banks overlaps with the next tile
    depthwise        the same with one row of the kernel per cycle: kernel columns take the place of input channels
    everything else  ceil(channels / vector_lanes) x pixels x elements read for each; and start_cycles. A reduction that reads some of its rows counts
                     just those: the first element is added to the sums so far, or begins them

Source: the row formula is that of a trial implementation of such an array in RTL. Rows of padding count like any other,
and what an accelerator can fold into the requantisation of a convolution (clipping, a table look-up) counts as a step of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, prod
from typing import NamedTuple

from lfopt.ir import Box, Compute, Cycles, Hardware, Loop, Node, Place, Span, Step, Transfer, box_elements, box_shape, row_axis, step_count, unfold
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Call, Dataflow, RowReads, Tiling, keeps_rows
from lfopt.ops.footprint import folds_rows, footprints

WALKED = 200_000  # steps of a group that are timed one by one
NORMALISATION_PASSES = 3  # over the elements: a maximum or a sum, a sum of exponentials or squares, the scaling
NORMALISATIONS = frozenset(
    "Softmax LogSoftmax LayerNormalization RMSNormalization LpNormalization LRN InstanceNormalization GroupNormalization "
    "MeanVarianceNormalization".split()
)


class Work(NamedTuple):
    """What one Compute asks of the accelerator."""

    cycles: int = 0
    macs: Fraction = Fraction(0)  # a whole number but for parts of a ConvTranspose
    width: int = 1  # bytes of one factor times bytes of the other
    vector_bytes: int = 0  # through the vector lanes
    buffer_bytes: int = 0  # into and out of the buffer
    accumulator_bytes: int = 0  # into and out of the partial sums beside the MAC array


class Contraction(NamedTuple):
    """`groups` times: at each pixel, each of `outer` channels sums over `taps` x `inner` products."""

    groups: int
    outer: int
    inner: int  # side by side on the rows of the MAC array
    taps: int  # one after the other
    pixels: int
    macs: Fraction
    shared: bool = True  # whether all channels of a tile read the same elements; each its own in a depthwise convolution


def transfer_cycles(transfer: Transfer, hardware: Hardware) -> int:
    """Cycles that a transfer holds the port."""
    return hardware.port_latency + -(-transfer.bytes // hardware.port_bytes)


@dataclass(eq=False)
class Accelerator:
    """The chip, running operators of one dataflow."""

    flow: Dataflow
    hardware: Hardware
    _index: dict[str, int] = field(default_factory=dict[str, int])
    _works: dict[object, Work] = field(default_factory=dict[object, Work])

    def __post_init__(self) -> None:
        self._index = {operator.name: i for i, operator in enumerate(self.flow.operators)}

    # -- single steps ------------------------------------------------------------------------------------------------------------------------

    def work(self, step: Compute) -> Work:
        """What a Compute asks; it depends on the sizes of its boxes alone, and of what it folds, not on where they are."""
        inner = step.inputs[1] - step.inputs[0] if step.inputs else None
        key = (step.operator, tuple(box_shape(box) for box in step.boxes), inner, step.first, step.last)
        found = self._works.get(key)
        if found is None:
            i = self._index[step.operator]
            contracts = self.flow.specs[i].tiling is Tiling.CONTRACT
            found = self._works[key] = self._contract(i, step, inner) if contracts else self._vector(i, step, inner)
        return found

    def cycles(self, step: Step) -> int:
        """Cycles that a step holds its engine."""
        return transfer_cycles(step, self.hardware) if isinstance(step, Transfer) else self.work(step).cycles

    def _contract(self, op: int, step: Compute, inner: int | None) -> Work:
        hardware, call = self.hardware, self.flow.calls[op]
        c = contraction(call, step.boxes[0], inner)
        weight = hardware.weight_bytes or hardware.element_bytes
        second = weight if call.constant[1] else hardware.element_bytes
        tiles = ceil(c.outer / hardware.mac_columns)
        passes = ceil(c.inner / hardware.mac_rows) * c.taps  # of the pixels, per tile
        arriving = ceil(min(c.inner, hardware.mac_rows) * min(c.outer, hardware.mac_columns) * second / hardware.weight_port_bytes)
        results, blocks = box_elements(step.boxes[0]), c.groups * tiles
        busy = passes * max(c.pixels, arriving)
        drain = ceil(results / max(c.groups * c.outer, 1)) * (1 if step.first else 2)
        together = max(blocks * busy + drain, busy + blocks * drain) if hardware.accumulator_banks > 1 else blocks * (busy + drain)
        reads = c.groups * tiles * c.taps * c.pixels * c.inner if c.shared else c.outer * c.taps * c.pixels
        sums = hardware.accumulator_bytes * ((not step.first) + (not step.last))
        return Work(
            cycles=together + blocks * hardware.start_cycles if results else hardware.start_cycles,
            macs=c.macs,
            width=hardware.element_bytes * second,
            buffer_bytes=reads * hardware.element_bytes
            + c.groups * c.outer * c.inner * c.taps * second
            + results * (sums + step.last * hardware.element_bytes),
            accumulator_bytes=2 * c.groups * c.outer * c.pixels * passes * hardware.accumulator_bytes,
        )

    def _vector(self, op: int, step: Compute, inner: int | None) -> Work:
        hardware = self.hardware
        reads, sums = _reads_per_element(self.flow, op)
        if inner is not None:
            reads = reads * inner // self.flow.calls[op].rows_in(0)
        held = hardware.accumulator_bytes * ((not step.first) + (not step.last))
        operands = len(self.flow.operands[op])
        cycles, elements = hardware.start_cycles, 0
        for box in step.boxes:
            size = box_elements(box)
            elements += size
            channel = CHANNEL_AXIS_OF_RANK.get(len(box))
            if size and channel is not None and not sums:
                extent = box[channel][1] - box[channel][0]
                cycles += ceil(extent / hardware.vector_lanes) * (size // extent) * reads
            else:
                cycles += ceil(size * reads / hardware.vector_lanes)
        return Work(
            cycles,
            vector_bytes=elements * reads * hardware.element_bytes,
            buffer_bytes=elements * ((max(reads, operands) + step.last) * hardware.element_bytes + held),
        )

    # -- schedules ---------------------------------------------------------------------------------------------------------------------------

    def time(self, nodes: Sequence[Node], places: Sequence[Place], walked: int = WALKED) -> Cycles:
        """Cycles of a schedule.

        Up to `walked` steps are timed one by one. Of more, loops are cut short to so many and to half as many turns; what the longer run takes beyond
        the shorter one, against what its steps take one after the other, holds for all further turns.
        """
        dma = compute = 0
        for times, step in leaves(nodes):
            if isinstance(step, Transfer):
                dma += times * self.cycles(step)
            else:
                compute += times * self.cycles(step)
        if not self.hardware.overlap:
            return Cycles(dma, compute, dma + compute)
        if step_count(nodes) <= walked:
            return Cycles(dma, compute, self.timeline(nodes, places).end)
        turns = 4
        while step_count(shortened(nodes, 2 * turns)) <= walked:
            turns *= 2
        some, more = shortened(nodes, turns // 2), shortened(nodes, turns)
        if step_count(more) > 4 * walked:
            return Cycles(dma, compute, max(dma, compute), "formula")
        first, second = self.timeline(some, places).end, self.timeline(more, places).end
        work_first, work_second = self._serial(some), self._serial(more)
        rest = (dma + compute - work_second) * Fraction(second - first, max(work_second - work_first, 1))
        return Cycles(dma, compute, min(max(second + round(rest), dma, compute), dma + compute), "extrapolated")

    def timeline(self, nodes: Sequence[Node], places: Sequence[Place]) -> Timeline:
        """When every step of a schedule runs, with transfers and computation overlapped."""
        queues = Queues(self.flow, places, self._index)
        for step in unfold(nodes):
            queues.add(step, self.cycles(step))
        return queues.run()

    def _serial(self, nodes: Sequence[Node]) -> int:
        return sum(times * self.cycles(step) for times, step in leaves(nodes))


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


# -- operators -------------------------------------------------------------------------------------------------------------------------------


def contraction(call: Call, out: Box, inner: int | None) -> Contraction:
    """What a box of the result of a Conv, ConvTranspose, Gemm or MatMul asks of a MAC array; `inner`: input channels read, None for all.

    Boxes that cut through groups are taken to begin where a group begins.
    """
    shape, kind = box_shape(out), call.operator.kind
    if kind in ("Conv", "ConvTranspose"):
        return _convolution(call, shape, inner)
    first, second = call.shape(0), call.shape(1)
    if kind == "Gemm":
        summed = first[0] if call.attribute("transA", 0) else first[1]
        groups, pixels, outer = 1, shape[0], shape[1]
    else:
        summed = first[-1]
        outer = shape[-1] if len(second) > 1 else 1
        matrix = shape[:-1] if len(second) > 1 else shape
        shared = prod(second[:-2]) == 1  # one second matrix for all
        pixels = prod(matrix) if shared else prod(matrix[-1:]) if len(first) > 1 else 1
        groups = 1 if shared else prod(matrix) // max(pixels, 1)
    summed = summed if inner is None else inner
    return Contraction(groups, outer, summed, 1, pixels, Fraction(groups * outer * summed * pixels))


def _convolution(call: Call, shape: tuple[int, ...], inner: int | None) -> Contraction:
    """A convolution. Each pixel of a transposed one meets its share of the kernel: as many elements as input pixels are scattered to it."""
    weight, groups = call.shape(1), call.attribute("group", 1)
    kernel, pixels, channels = weight[2:], shape[0] * prod(shape[2:]), shape[1]
    taps, share = prod(kernel), Fraction(1)
    per_group, summed = weight[0] // groups, weight[1]
    if call.operator.kind == "ConvTranspose":
        per_group, summed = weight[1], weight[0] // groups
        share = Fraction(prod(call.shape(0)[2:]), max(prod(call.result[2:]), 1))
    macs = Fraction(channels * pixels * taps * (summed if inner is None else inner)) * share
    pixels = ceil(pixels * share)
    if groups > 1 and summed == 1:  # depthwise
        rows = taps // kernel[-1]
        return Contraction(1, channels, kernel[-1], rows, pixels, macs, shared=False)
    summed = summed if inner is None else inner
    count, outer = max(ceil(channels / per_group), 1), min(channels, per_group)
    return Contraction(count, outer, summed, taps, pixels, macs)


def _reads_per_element(flow: Dataflow, op: int) -> tuple[int, bool]:
    """(elements that the vector lanes read for one of the result, whether lanes may all work on one sum) of an operator that is not a contraction."""
    call, row = flow.calls[op], flow.specs[op]
    kind = call.operator.kind
    if kind in ("AveragePool", "MaxPool", "LpPool"):
        return prod(min(k, size) for k, size in zip(call.attribute("kernel_shape", ()), call.shape(0)[2:], strict=False)), False
    if kind.startswith(("Global", "Reduce", "Arg")):
        return max(ceil(prod(call.shape(0)) / max(prod(call.result), 1)), 1), True
    if kind in NORMALISATIONS:
        return NORMALISATION_PASSES, False
    return max(len(flow.operands[op]) - 1, 1) if row.elementwise else 1, False


# -- queues ----------------------------------------------------------------------------------------------------------------------------------


class Users:
    """Of every slot of a place: the last step of each queue that used it; -1 for none."""

    def __init__(self, place: Place, others: tuple[int, ...]) -> None:
        self.rows = place.purpose == "map"  # a number per row; else one per block
        self.slots = place.slots
        self.others = others  # places that share bytes with this one
        self.made = [-1] * place.slots  # computes that wrote
        self.used = [-1] * place.slots  # computes that wrote or read
        self.loaded = [-1] * place.slots
        self.stored = [-1] * place.slots
        self.latest = [-1, -1, -1]  # of computes, loads, stores, on any slot

    def spans(self, number: int, count: int) -> Sequence[Span]:
        """Slots of so many numbers from the given one on."""
        if count >= self.slots:
            return ((0, self.slots),)
        low = number % self.slots
        if low + count <= self.slots:
            return ((low, low + count),)
        return ((low, self.slots), (0, low + count - self.slots))


def _last(of: list[int], spans: Sequence[Span]) -> int:
    return max((max(of[low:high]) for low, high in spans if low < high), default=-1)


def _mark(of: list[int], spans: Sequence[Span], step: int) -> None:
    for low, high in spans:
        of[low:high] = [step] * (high - low)


class Piece(NamedTuple):
    """Part of a tensor that lies in a block, not by rows."""

    tensor: str
    box: Box
    place: int
    number: int  # of the block
    offset: int  # in the block
    end: int


class Moved(NamedTuple):
    """A transfer, waiting for the port."""

    after: int  # compute that must be done before it, or before one that is ahead of it in its queue; -1 for none
    order: int  # in the program
    store: bool
    cycles: int


class Queues:
    """Steps in their queues, and when they run.

    A compute waits for the loads of what it reads, a store for what it stores, and whatever writes a slot for all who used what the slot held. A
    compute finds its operands where the last steps before it have put them. The port serves whichever transfer has waited the longest; of those that
    wait for the same compute, the one that is first in the program. Which transfer goes first thus depends on the order of the computes alone, never
    on how long anything takes: so nothing that gets faster makes a schedule slower.
    """

    def __init__(self, flow: Dataflow, places: Sequence[Place], index: dict[str, int]) -> None:
        self.flow, self.index = flow, index
        shared = [tuple(k for k, other in enumerate(places) if other is not place and _overlap(place, other)) for place in places]
        self.users = [Users(place, others) for place, others in zip(places, shared, strict=True)]
        self.homes: dict[str, tuple[int, int]] = {}  # per map: (place, number of its row 0)
        self.pieces: dict[str, list[Piece]] = {}
        self.blocks: dict[tuple[int, int], list[Piece]] = {}  # per place and slot
        self.loads: list[Moved] = []
        self.stores: list[Moved] = []
        self.computes: list[tuple[int, int, int]] = []  # (cycles, last load, last store that it waits for)
        self._spans: dict[tuple[int, int, int, int], tuple[int, int]] = {}

    def add(self, step: Step, cycles: int) -> None:
        """The next step of the program."""
        if isinstance(step, Compute):
            self._compute(step, cycles)
        elif step.store:
            self._store(step, cycles)
        else:
            self._load(step, cycles)

    def _numbers(self, transfer: Transfer) -> Sequence[Span]:
        users = self.users[transfer.place]
        return users.spans(transfer.slot, transfer.rows if users.rows else 1)

    def _load(self, load: Transfer, cycles: int) -> None:
        users, spans, number = self.users[load.place], self._numbers(load), len(self.loads)
        compute, store = _last(users.used, spans), _last(users.stored, spans)
        for k in users.others:
            compute, store = max(compute, self.users[k].latest[0]), max(store, self.users[k].latest[2])
        after = max(compute, self.stores[store].after if store >= 0 else -1, self.loads[-1].after if self.loads else -1)
        self.loads.append(Moved(after, len(self.loads) + len(self.stores), store=False, cycles=cycles))
        _mark(users.loaded, spans, number)
        users.latest[1] = number
        if users.rows:
            axis = row_axis(box_shape(load.box))
            self.homes[load.tensor] = (load.place, load.slot - (load.box[axis][0] if axis is not None else 0))
        else:
            self._put(Piece(load.tensor, load.box, load.place, load.slot, load.offset, load.offset + load.bytes), load.slot % users.slots)

    def _put(self, new: Piece, slot: int) -> None:
        """Note where a piece is, and forget what it overwrites."""
        there = self.blocks.setdefault((new.place, slot), [])
        for old in list(there):
            if old.number != new.number or (old.offset < new.end and new.offset < old.end):
                there.remove(old)
                self.pieces[old.tensor].remove(old)
        there.append(new)
        self.pieces.setdefault(new.tensor, []).append(new)

    def _store(self, store: Transfer, cycles: int) -> None:
        users, spans, number = self.users[store.place], self._numbers(store), len(self.stores)
        compute, load = _last(users.made, spans), _last(users.loaded, spans)
        after = max(compute, self.loads[load].after if load >= 0 else -1, self.stores[-1].after if self.stores else -1)
        self.stores.append(Moved(after, len(self.loads) + len(self.stores), store=True, cycles=cycles))
        _mark(users.stored, spans, number)
        users.latest[2] = number

    def _compute(self, step: Compute, cycles: int) -> None:
        op, number = self.index[step.operator], len(self.computes)
        load = store = -1
        for place, spans in self._operands(op, step):
            users = self.users[place]
            load = max(load, _last(users.loaded, spans))
            _mark(users.used, spans, number)
            users.latest[0] = number
        for name, box, place in zip(self.flow.results[op], step.boxes, step.places, strict=False):
            if place < 0:
                continue
            users, axis = self.users[place], row_axis(box_shape(box))
            first, stop = box[axis] if axis is not None else (0, 1)
            spans = users.spans(first, stop - first)
            load, store = max(load, _last(users.loaded, spans)), max(store, _last(users.stored, spans))
            for k in users.others:
                load, store = max(load, self.users[k].latest[1]), max(store, self.users[k].latest[2])
            _mark(users.made, spans, number)
            _mark(users.used, spans, number)
            users.latest[0] = number
            self.homes[self.flow.maps[name].name] = (place, 0)
        if step.sums >= 0:
            users = self.users[step.sums]
            users.latest[0] = number
            for k in users.others:
                load, store = max(load, self.users[k].latest[1]), max(store, self.users[k].latest[2])
        self.computes.append((cycles, load, store))

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

    def run(self) -> Timeline:
        """When every step runs."""
        waiting = sorted((*self.loads, *self.stores))
        line = Timeline([], [], [])
        port = engine = at = 0

        def serve(until: int) -> None:
            nonlocal port, at
            while at < len(waiting) and waiting[at].after < until:
                after, _, store, cycles = waiting[at]
                start = max(port, line.computes[after][1] if after >= 0 else 0)
                port = start + cycles
                (line.stores if store else line.loads).append((start, port))
                at += 1

        for number, (cycles, load, store) in enumerate(self.computes):
            serve(number)
            start = max(engine, line.loads[load][1] if load >= 0 else 0, line.stores[store][1] if store >= 0 else 0)
            engine = start + cycles
            line.computes.append((start, engine))
        serve(len(self.computes))
        return line


class Timeline(NamedTuple):
    """From when until when every step holds its engine, in cycles; per queue, in the order of the program."""

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
