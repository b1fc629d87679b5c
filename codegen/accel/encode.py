"""From a plan to a command stream.

Every step becomes commands, which wait for each other where they must, folded into loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, prod

import numpy as np

from codegen.accel.chip import ChipContents
from codegen.accel.computations import runs_of
from codegen.accel.constants import Chunk, arranged, bias_bytes, spans_of
from codegen.accel.folding import Entry, Item, Repetition, folded
from codegen.accel.hosted import advice
from codegen.accel.job import RequantParameters, Site, WeightLocation, refused
from codegen.accel.maps import ALIGN, dimensions, extent, memory_map
from codegen.accel.runs import IssuedCommand, Payload, numbers, payload
from codegen.accel.waits import Waits
from codegen.source import Unsupported
from lfopt.ir import (
    UNLIMITED,
    Carry,
    CommandStream,
    Compute,
    Graph,
    Plan,
    PlannedGroup,
    Span,
    Step,
    Transfer,
    parameter_runs,
    round_up,
    unfold,
)
from lfopt.isa import program
from lfopt.isa.program import Command
from lfopt.isa.tables import BEAT_BYTES, DESCRIPTORS, FACTOR_ROWS, MOVING, TABLES, Class, Kind, Opcode, Space
from lfopt.ops import Call, Dataflow
from lfopt.ops.arithmetic import MOVE, SUMS, arithmetic
from lfopt.ops.footprint import footprints
from lfopt.ops.on_chip import Block
from lfopt.ops.stages import calls_of, parameters
from lfopt.planning.accelerator.commands import blocks, is_depthwise, refusal
from lfopt.planning.accelerator.parameter_store import ParameterStore, parameter_space

STORES = {Space.FACTORS: FACTOR_ROWS, Space.TABLES: TABLES}  # rows, and tables
LANES = (16, 32, 64)
BUFFER_WORDS = 1 << 20  # of LANES bytes, that descriptors address


def encode(plan: Plan, graph: Graph) -> CommandStream:
    """The commands that carry out a plan, with the constants that they read.

    Raises Unsupported for operators, shapes and chips that the accelerator is not made for; MissingValues for
    weights without values.
    """
    try:
        check(plan, graph)
        return _Encoder(plan, graph).stream()
    except Unsupported as error:
        if not (more := advice(graph) if graph.quantized else ""):
            raise
        raise Unsupported(f"{error}; {more}") from None


def origins(plan: Plan, graph: Graph) -> Iterator[tuple[PlannedGroup, list[tuple[Step, int, Opcode]]]]:
    """The steps from which the commands of `encode` come.

    Per group, in the order of each queue: the step, its number among those that run, and the opcode.
    """
    encoder = _Encoder(plan, graph)
    for group in plan.groups:
        yield group, [(step, number, run.opcode) for step, number, run in encoder.runs(group)]


def check(plan: Plan, graph: Graph) -> None:
    """Raise Unsupported for a chip, network or plan that the accelerator is not made for, operators apart."""
    hardware = plan.hardware
    lanes = hardware.mac_columns
    wanted = {
        "element_bytes": 1, "weight_bytes": 1, "bias_bytes": 4, "accumulator_bytes": 4,
        "dram_row_align": BEAT_BYTES, "channel_align": lanes, "constant_align": lanes, "mac_rows": lanes,
    }  # fmt: skip
    given = {name: getattr(hardware, name) for name in wanted}
    given |= {name: hardware.element_bytes for name, value in given.items() if value is None}
    bits = hardware.constant_bits(bias=False)
    most = lanes * BUFFER_WORDS
    size = "unlimited" if hardware.buffer_bytes == UNLIMITED else f"{hardware.buffer_bytes}"
    demands = (  # (field, what it is, whether that will do, what the accelerator does)
        (
            "weight_buffer_bytes",
            hardware.weight_buffer_bytes,
            not hardware.weight_buffer_bytes,
            "has 0: weights share its buffer",
        ),
        (
            "l2_bytes",
            hardware.l2_bytes,
            not hardware.l2_bytes,
            "has no second level of memory: plan with 0",
        ),
        *((name, given[name], given[name] == value, f"has {value}") for name, value in wanted.items()),
        ("weight_bits", bits, bits == 8, "has 8"),
        ("mac_columns", lanes, lanes in LANES, f"has {', '.join(map(str, LANES))}"),
        ("buffer_bytes", size, hardware.buffer_bytes <= most, f"addresses {most}"),
        (
            "parameter_store_bytes",
            0,
            bool(hardware.parameter_store_bytes),
            "loads factors and tables: plan with the size of its stores",
        ),
    )
    for name, value, met, accepted in demands:
        if not met:
            raise Unsupported(f"hardware.{name}: found {value}; the accelerator {accepted}")
    if not graph.quantized:
        raise Unsupported(
            "the network is not quantised; the accelerator computes in int8: see `lfopt quantize`"
        )
    for group in plan.groups:
        if group.is_access:
            raise Unsupported(
                f"group {group.id}: found mode {group.mode}; the accelerator loads what is stored as it lies"
            )
        if not group.steps:
            raise Unsupported(f"group {group.id}: it has no steps: {group.unexecutable}")


@dataclass(frozen=True, slots=True)
class _Stream:
    """Blocks of one size, one behind the other."""

    number: int  # from 1 on: 0 stands for the maps
    rows: dict[object, int] = field(default_factory=dict[object, int])
    data: list[bytes] = field(default_factory=list[bytes])


class _Constants:
    """The image of everything that does not change."""

    def __init__(self) -> None:
        self._streams: dict[object, _Stream] = {}

    def add(self, of: object, key: object, data: bytes) -> tuple[int, int]:
        """(stream, row) of a block of a constant; a block that is known is not stored twice."""
        stream = self._streams.setdefault((of, len(data)), _Stream(len(self._streams) + 1))
        if key not in stream.rows:
            stream.rows[key] = len(stream.data)
            stream.data.append(data)
        return stream.number, stream.rows[key]

    def lay_out(self, address: int) -> tuple[dict[int, int], bytes]:
        """(address of every stream from `address` on, bytes of all of them)."""
        addresses: dict[int, int] = {}
        image: list[bytes] = []
        for stream in self._streams.values():
            addresses[stream.number] = address
            image += stream.data
            address += sum(map(len, stream.data))
        return addresses, b"".join(image)


class _Encoder:
    """One plan, group by group."""

    def __init__(self, plan: Plan, graph: Graph) -> None:
        self.plan = plan
        self.graph = graph
        self.flow = Dataflow.of(graph)
        self.calls = {call.operator.name: call for call in self.flow.calls}
        self.lanes = plan.hardware.mac_columns
        self.words = plan.hardware.buffer_bytes // self.lanes
        self.waits = Waits(self.words + FACTOR_ROWS + TABLES)
        self.constants = _Constants()
        self.maps = memory_map(plan, graph, 0).maps
        self.stores = {space: ParameterStore(room) for space, room in STORES.items()}
        self.commands = 0

    def stream(self) -> CommandStream:
        """The command stream of the whole plan."""
        entries = [
            entry
            for group in self.plan.groups
            for entry in folded([run for _, _, run in self.runs(group)], self.plan.hardware.queue_depth)
        ]
        described = list(_described(entries))
        at = round_up(sum(command.bits for command in described) // 8, ALIGN)
        streams, image = self.constants.lay_out(at)
        maps_at = round_up(at + len(image), ALIGN)
        addresses = {0: maps_at, **streams}
        placed = [_placed(command, addresses) for command in described]
        stored = memory_map(self.plan, self.graph, maps_at)
        return CommandStream(
            name=self.plan.model.name,
            lanes=self.lanes,
            buffer_bytes=self.plan.hardware.buffer_bytes,
            program=program.encode(placed),
            constants=image,
            constants_address=at,
            maps_address=maps_at,
            memory_bytes=stored.end,
            maps=tuple(stored.maps.values()),
            inputs=stored.inputs,
            outputs=stored.outputs,
            commands=self.commands,
        )

    # -- steps -----------------------------------------------------------------------------------------------

    def runs(self, group: PlannedGroup) -> Iterator[tuple[Step, int, IssuedCommand]]:
        """Commands of a group, each with its step and the number of that."""
        self.chip = ChipContents(group.places, self.plan.hardware, self.graph.tensors)
        calls = calls_of(group.nodes, group.steps, self.calls)
        self.spans = _folded_spans(group)
        self.chunks: dict[tuple[str, object], list[Chunk]] = {}
        self.readers: dict[str, list[Call]] = {}  # of constants
        for call in (part for flight in calls.values() for part in flight.parts):
            for name in call.operator.inputs:
                if name in self.graph.constants:
                    self.readers.setdefault(name, []).append(call)
        self.parameters: dict[str, RequantParameters] = {}
        self.blocks = {
            name: blocks for call in calls.values() for name, blocks in parameters(call, self.lanes).items()
        }
        loads = {id(run[0]): [node.tensor for node in run] for run in parameter_runs(group.steps)}
        site = Site(
            self.chip,
            self.lanes,
            self.graph.tensors,
            self.flow.behind,
            self.parameters,
            self._weights,
            self.words,
            self.words + FACTOR_ROWS,
        )
        for number, step in enumerate(unfold(group.steps)):
            self.chip.now = number
            if id(step) in loads:
                self._make_room(group, loads[id(step)])
            for run in self._commands(group, step, site, calls):
                self.waits.add(run)
                self.commands += 1
                yield step, number, run

    def _commands(
        self, group: PlannedGroup, step: Step, site: Site, calls: Mapping[str, Call]
    ) -> Iterable[IssuedCommand]:
        """The commands of one step."""
        if isinstance(step, Carry):
            raise Unsupported(
                f"group {group.id}: {step.tensor!r} is copied from place to place within the buffer; the "
                "accelerator loads, computes and stores"
            )
        if isinstance(step, Transfer):
            return self._transfer(group, step)
        return runs_of(site, calls[step.operator], step)

    def _transfer(self, group: PlannedGroup, step: Transfer) -> Sequence[IssuedCommand]:
        if step.gather:
            raise refused(self.calls[step.gather], "the accelerator does not gather")
        if step.kind == "parameter":
            return [self._load_parameters(step)]
        if step.tensor in self.graph.constants:
            return [self._load_constant(group, step)]
        return self._move_rows(step)

    def _make_room(self, group: PlannedGroup, operators: Sequence[str]) -> None:
        """See to it that parameters that are needed together find room one after the other."""
        needed = dict.fromkeys(STORES, 0)
        for name in operators:
            needed[parameter_space(self.calls[name])] += len(self.blocks.get(name, ()))
        for space, store in self.stores.items():
            if needed[space] > store.room:
                accepted = f"{FACTOR_ROWS} rows of factors, {TABLES} tables"
                raise Unsupported(
                    f"group {group.id}: its operators need {needed[space]} {space.name.lower()}; the "
                    f"accelerator has {accepted}"
                )
            store.make_room(needed[space])

    def _load_parameters(self, step: Transfer) -> IssuedCommand:
        """Factors, or tables, of an operator; they go behind those of the operator before."""
        space = parameter_space(self.calls[step.tensor])
        arrays = self.blocks.get(step.tensor, ())
        first, stop = self.stores[space].put(len(arrays))
        self.parameters[step.tensor] = (
            RequantParameters(first)
            if space is Space.FACTORS
            else RequantParameters(tables=tuple(range(first, stop)))
        )
        data = b"".join(block.tobytes() for block in arrays)
        values = {
            "class_": Class.PARAMETER, "space": space, "columns": len(data) // self.lanes, "blocks": 1,
            "tail": self.lanes, "base": first, "slots": 1, "row_beats": len(data) // BEAT_BYTES,
        }  # fmt: skip
        run = self._from_image(values, (step.tensor, "parameters"), 0, data)
        run.writes = [(self.words + (0 if space is Space.FACTORS else FACTOR_ROWS) + first, len(arrays))]
        return run

    def _from_image(
        self, values: dict[str, int], of: object, key: object, data: bytes, slot: int = 0
    ) -> IssuedCommand:
        """A load of a block of the image of constants."""
        values["stream"], row = self.constants.add(of, key, data + bytes(-len(data) % BEAT_BYTES))
        return IssuedCommand(Opcode.LOAD, payload(values), 1, numbers(row=row, slot=slot))

    def _load_constant(self, group: PlannedGroup, step: Transfer) -> IssuedCommand:
        place = group.places[step.place]
        data, self.chunks[step.tensor, step.box] = self._arranged(step)
        self.chip.put_block(Block(step.tensor, step.box, step.place, step.slot, step.offset), len(data))
        words = -(-len(data) // self.lanes)
        base = place.address + step.offset
        if base % self.lanes:
            raise Unsupported(
                f"constant {step.tensor!r}: found byte {base} of the buffer; accepted: multiples of "
                f"{self.lanes}"
            )
        values = {
            "class_": Class.WEIGHT, "space": Space.BUFFER, "columns": words, "blocks": 1, "tail": self.lanes,
            "base": base // self.lanes, "slots": place.slots, "slot_words": place.slot_bytes // self.lanes,
            "row_beats": round_up(len(data), BEAT_BYTES) // BEAT_BYTES,
        }  # fmt: skip
        run = self._from_image(values, step.tensor, (step.box, data), data, step.slot)
        run.writes = [
            (base // self.lanes + step.slot % place.slots * (place.slot_bytes // self.lanes), words)
        ]
        return run

    def _arranged(self, step: Transfer) -> tuple[bytes, list[Chunk]]:
        """A block of a constant as all of its readers take it, and the chunks of weights in it.

        Raises Unsupported for readers that take it in different orders, or not at all.
        """
        readers = self.readers[step.tensor]
        spans = {span for call in readers for span in self.spans.get(call.operator.name, ())}
        arrangements: dict[bytes, list[Chunk]] = {}
        for call in readers:
            if arithmetic(call) is MOVE and refusal(call) is None:
                arrangements[_indices(call)] = []  # no chunks: indices are in the commands
                continue
            if arithmetic(call) is not SUMS:
                raise refused(
                    call,
                    f"reads constant {step.tensor!r}; the accelerator reads constants as weights and biases",
                )
            if (reason := refusal(call)) is not None:
                raise refused(call, reason)
            if call.operator.inputs.index(step.tensor) == 1:
                data, chunks = arranged(call, step.box, spans, self.lanes)
            else:
                data = bias_bytes(call, step.box[-1] if step.box else (0, 1))
                chunks = []
            arrangements[data] = chunks
        if len(arrangements) > 1:
            others = (
                f"{readers[0].operator.name!r} takes it otherwise; accepted: one of them in another group"
            )
            raise refused(readers[-1], f"reads constant {step.tensor!r}, and {others}")
        return next(iter(arrangements.items()))

    def _move_rows(self, step: Transfer) -> list[IssuedCommand]:
        """A box of a map, in or out.

        Of part of a row, a last block of fewer channels is moved apart: its columns begin elsewhere in DRAM.
        """
        root = self.flow.behind.get(step.tensor, step.tensor)
        stored = self.maps[root]
        tensor = self.graph.tensors[step.tensor]
        if dimensions(tensor) != dimensions(self.graph.tensors[root]):
            raise Unsupported(
                f"map {step.tensor!r}: it is a view of {root!r} in another shape; the accelerator moves maps "
                "as they are made"
            )
        part = extent(tensor, step.box)
        if not (part.depth and part.height and part.width):
            return []
        channels, _, width = dimensions(tensor)
        count, tail = blocks(part.depth, self.lanes)
        if part.channels[0] % self.lanes or (part.channels[1] % self.lanes and part.channels[1] != channels):
            raise Unsupported(
                f"map {root!r}: found channels {part.channels}; the accelerator moves blocks of {self.lanes}"
            )
        apart = part.width < width and tail < self.lanes
        cuts = [part.columns[0], *([part.columns[1]] if step.store and part.columns[1] < width else [])]
        if apart and any(column * tail % BEAT_BYTES for column in cuts):
            accepted = (
                f"multiples of {BEAT_BYTES // gcd(BEAT_BYTES, tail)}, as {channels} channels are "
                f"moved in beats of {BEAT_BYTES} bytes"
            )
            raise Unsupported(f"map {root!r}: found columns {part.columns} of {width}; accepted: {accepted}")
        if step.store:
            ring = self.chip.read(step.tensor if self.chip.knows(step.tensor) else root, part)
        else:
            ring = self.chip.write(step.tensor, step.box, step.place, step.slot)
        touched = [ring.words(row, count) for row in range(*part.rows)]
        in_dram = part.channels[0] // self.lanes
        runs: list[IssuedCommand] = []
        for first, stop, last in (
            ((0, count - 1, self.lanes), (count - 1, count, tail)) if apart else ((0, count, tail),)
        ):
            if first == stop:
                continue
            # bytes from where a row of the block begins
            column = part.columns[0] * (last if apart else self.lanes)
            values = {
                "class_": Class.OUTPUT if step.store else Class.INPUT, "space": Space.BUFFER,
                "dram": stored.address + column, "row_beats": stored.row_bytes // BEAT_BYTES,
                "block_beats": width * self.lanes // BEAT_BYTES, "columns": part.width,
                "blocks": stop - first, "tail": last, "base": ring.base + ring.column, "slots": ring.slots,
                "slot_words": ring.slot_words, "block_words": ring.block_words,
            }  # fmt: skip
            ends = (ring.block + first, in_dram + first)
            moving = dict(zip(("from_block", "to_block"), ends if step.store else ends[::-1], strict=True))
            run = IssuedCommand(
                Opcode.STORE if step.store else Opcode.LOAD,
                payload(values),
                part.height,
                numbers(row=part.rows[0], slot=step.slot, **moving),
            )
            run.map = root
            (run.reads if step.store else run.writes).extend(touched)
            runs.append(run)
        return runs

    # -- weights ---------------------------------------------------------------------------------------------

    def _weights(self, call: Call, step: Compute, span: Span, phase: int) -> WeightLocation:
        """Where weights and bias of output channels of a computation, or of one of its phases, lie."""
        chip = self.chip
        lanes = self.lanes
        name = call.operator.inputs[1]
        box = footprints(call, 1, step.boxes, inputs=None if is_depthwise(call) else step.inputs)
        block = chip.constant(name, box)
        (start, stop), _ = spans_of(call, block.box)
        inputs = spans_of(call, box)[1]
        chunk = next(
            (c for c in self.chunks[name, block.box] if (c.inputs, c.phase) == (inputs, phase)), None
        )
        if chunk is None or start % lanes:
            raise refused(call, f"reads {box} of weights that were loaded as {block.box}")
        place = chip.places[block.place]
        # bytes of the output channels before those that are computed
        ahead = (span[0] - start) * chunk.block_bytes // lanes
        values = {
            "w_base": place.address + block.offset + chunk.offset + ahead, "w_block_bytes": chunk.block_bytes,
            "w_slots": place.slots, "w_slot_words": place.slot_bytes // lanes,
        }  # fmt: skip
        size = -(-(chunk.offset + (stop - start) * chunk.block_bytes // lanes) // lanes) + 1
        reads = [(block.start // lanes, min(size, place.slot_bytes // lanes or size))]
        if step.last and call.has(2):
            if prod(call.shape(2)) == 1:  # it comes with the command: a constant of one element is not loaded
                bias = np.unique(np.frombuffer(bias_bytes(call, span), "<i4"))
                if len(bias) > 1:
                    raise refused(
                        call,
                        f"its bias of one element is {len(bias)} numbers in units of its channels; accepted: "
                        "one for each channel",
                    )
                values["bias_value"] = int(bias[0])
            else:
                values |= self._bias(call, (span[0] - span[0] % lanes, span[1]), block, reads)
        return WeightLocation(values, block.number, reads)

    def _bias(self, call: Call, span: Span, weights: Block, reads: list[tuple[int, int]]) -> dict[str, int]:
        chip = self.chip
        lanes = self.lanes
        block = chip.constant(call.operator.inputs[2], (span,))
        place, (start, _) = chip.places[block.place], block.box[-1]
        words = place.slot_bytes // lanes
        base = (place.address + block.offset + (span[0] - start) * 4) // lanes
        together = block.place == weights.place and block.number == weights.number
        if not together:
            base += block.number % place.slots * words
        reads.append(
            (
                base + (block.number % place.slots * words if together else 0),
                -(-(span[1] - span[0]) * 4 // lanes),
            )
        )
        return {"has_bias": 1, "bias": base, "bias_slot_words": words if together else 0}


def _folded_spans(group: PlannedGroup) -> dict[str, set[Span]]:
    """The spans of input channels that single steps of an operator fold."""
    spans: dict[str, set[Span]] = {}
    for step in unfold(group.steps):
        if isinstance(step, Compute) and step.inputs is not None:
            spans.setdefault(step.operator, set()).add(step.inputs)
    return spans


def _indices(call: Call) -> bytes:
    """Indices of a Gather along channels, one byte each.

    They are in the commands, but what a plan says is loaded is loaded.
    """
    values = call.values[1]
    assert values is not None
    return np.ascontiguousarray(values.astype(np.uint8)).tobytes()


# -- descriptors ---------------------------------------------------------------------------------------------


def _described(entries: Sequence[Entry]) -> Iterator[Command]:
    """Commands, each descriptor described before its first use, outside of loops.

    The least recently used descriptor makes room. Raises Unsupported for a loop that needs more than there
    are.
    """
    table: dict[Payload, int] = {}  # in order of last use
    free = list(range(DESCRIPTORS))
    for entry in entries:
        needed = _payloads(entry)
        if len(needed) > DESCRIPTORS:
            raise Unsupported(f"a loop needs {len(needed)} descriptors; the accelerator has {DESCRIPTORS}")
        for descriptor, kind in needed.items():
            if descriptor not in table:
                if not free:
                    oldest = next(known for known in table if known not in needed)
                    free.append(table.pop(oldest))
                table[descriptor] = free.pop(0)
                yield Command(
                    Opcode.DESCRIBE,
                    {"stream": 0, **dict(descriptor)} if kind is Kind.TRANSFER else dict(descriptor),
                    table[descriptor],
                    kind,
                )
            else:
                table[descriptor] = table.pop(descriptor)
        yield from _commands(entry, table)
    yield Command(Opcode.HALT)


def _placed(command: Command, addresses: Mapping[int, int]) -> Command:
    """A command with addresses in DRAM in place of offsets from where its stream begins."""
    if command.kind is not Kind.TRANSFER:
        return command
    values = dict(command.values)
    start = addresses[values.pop("stream")]
    return replace(command, values={**values, "dram": start + values.get("dram", 0)})


def _payloads(entry: Entry) -> dict[Payload, Kind]:
    if isinstance(entry, Item):
        return {entry.payload: Kind.COMPUTATION if entry.opcode is Opcode.EXEC else Kind.TRANSFER}
    return {descriptor: kind for inner in entry.body for descriptor, kind in _payloads(inner).items()}


def _commands(entry: Entry, table: dict[Payload, int]) -> Iterator[Command]:
    if isinstance(entry, Repetition):
        yield Command(Opcode.LOOP, {"count": entry.count})
        for inner in entry.body:
            yield from _commands(inner, table)
        yield Command(Opcode.END)
        return
    values = {
        "descriptor": table[entry.payload],
        "count": entry.count,
        **dict(zip(program.WAITS, entry.waits, strict=True)),
    }
    values |= dict(zip(MOVING, entry.numbers, strict=True))
    for level, steps in enumerate(reversed(entry.steps)):
        values |= {f"{name}_step{level}": step for name, step in zip(MOVING, steps, strict=True)}
    yield Command(entry.opcode, values)
