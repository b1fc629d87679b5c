"""Run a program of the accelerator command by command, without cycles: the same bytes in DRAM, the same bytes counted, the same errors.

The emulator knows the three queues and what their commands wait for, and can run them in orders that are as unfortunate as the waits allow
(`Order`): a program that lacks a wait then gives wrong results. With `check=True` it proves more: every two commands of which one writes a word that
the other touches are ordered by waits. All memory on chip begins as random bytes, and lanes that hold no channel are written with random bytes, so
what reads them shows.

Words are those of the buffer (LANES bytes) unless said otherwise; factors and tables lie behind the buffer, in words of their own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from lfopt.isa.fields import BadField
from lfopt.isa.program import BadProgram, Command, decode, unrolled
from lfopt.isa.tables import (
    ACCUMULATORS,
    BEAT_BYTES,
    COMPUTATION,
    DESCRIPTORS,
    FACTOR_BYTES,
    FACTOR_ROWS,
    LOOP_DEPTH,
    LOOP_WORDS,
    MOVING,
    NO_WAIT,
    PAYLOAD_WORDS,
    PAYLOADS,
    RUN,
    TABLE_BYTES,
    TABLES,
    WINDOW,
    WORD_BITS,
    WORD_BYTES,
    WORDS,
    Class,
    Error,
    Kind,
    Opcode,
    Operation,
    Queue,
    Scale,
    Space,
)

LOAD, STORE, EXEC = range(3)  # places of the queues in every tuple of three
QUEUES = {Opcode.LOAD: LOAD, Opcode.STORE: STORE, Opcode.EXEC: EXEC}
ELEMENTWISE = (Operation.COPY, Operation.ADD, Operation.MUL)
EXACT_FLOAT32 = 1 << 24  # integers up to here are exact in a float32
WRITING = 3  # beside the queues, something that may happen next: a computation's result is written
STRETCH = 8  # steps for which order RANDOM keeps to a preference, on average
ALL_BLOCKS = 1 << 16  # more than the blocks of any result
CACHED = 64  # matrices of weights that are kept unpacked

T = TypeVar("T")
R = TypeVar("R")


class Order(Enum):
    """In which order the commands of different queues run. All but PROGRAM keep to the waits alone."""

    PROGRAM = "program"  # one after the other, as they stand
    EAGER_LOADS = "eager loads"  # loads as early as they may, then computations; stores last
    LATE_LOADS = "late loads"  # stores as early as they may, then computations; loads last
    RANDOM = "random"  # stretches of one of the three; by `rng`


class ProgramError(ValueError):
    """The accelerator would stop with an error."""

    def __init__(self, code: Error, queue: Queue, index: int, text: str) -> None:
        super().__init__(f"{queue.name} command {index}: {code.name}: {text}")
        self.code = code
        self.queue = queue
        self.index = index  # commands of that queue before the one at fault, loops unrolled; of the sequencer: words that it ran before


class Hazard(ValueError):
    """Two commands touch the same word, one of them writes it, and no wait orders them; or a word is read that nothing has written."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """What a program has done."""

    memory: np.ndarray  # DRAM afterwards, uint8
    read: Mapping[Class, int]  # bytes that crossed the memory port; of INSTRUCTION, every word up to HALT once
    written: Mapping[Class, int]  # bytes that crossed the memory port, padding of rows to beats included
    commands: Mapping[Opcode, int]  # DESCRIBE, LOAD, STORE and EXEC that ran, loops unrolled
    instruction_words_fetched: int  # up to HALT; a loop once, it runs out of the sequencer's own memory


def emulate(
    program: bytes,
    memory: np.ndarray,
    *,
    lanes: int = 16,
    buffer_bytes: int = 262144,
    order: Order = Order.PROGRAM,
    rng: np.random.Generator | None = None,
    read_region: tuple[int, int] | None = None,
    write_region: tuple[int, int] | None = None,
    check: bool = False,
    queue_depth: int | None = None,
) -> Emulation:
    """Run a program on a DRAM of these bytes, which stay as they are; the result has its own.

    Regions are (first byte, first byte behind) that may be read, or written: all of the memory unless said. `rng` makes the garbage on chip and the
    order RANDOM (default: seed 0). `queue_depth` bounds the commands that wait in a queue; without, commands that nothing holds back run as far
    ahead as the waits allow, farther than hardware does.

    Raises ProgramError for what stops the accelerator, Hazard (with `check`), and ValueError for arguments that make no sense.
    """
    if lanes <= 0 or lanes % BEAT_BYTES or TABLE_BYTES % lanes or buffer_bytes % (WINDOW * lanes) or buffer_bytes <= 0:
        raise ValueError(f"found {lanes} lanes, {buffer_bytes} bytes of buffer; accepted: lanes in beats of {BEAT_BYTES}, buffers of {WINDOW} banks")
    if memory.dtype != np.uint8 or memory.ndim != 1 or len(program) % WORD_BYTES:
        raise ValueError(
            f"found a memory {memory.dtype}{list(memory.shape)}, a program of {len(program)} bytes; accepted: uint8, words of {WORD_BYTES}"
        )
    chip = _Chip(memory, lanes, buffer_bytes, rng or np.random.default_rng(0), read_region, write_region, check)
    source = _source(program)
    with _controller().limit(limits=1):  # products are small: with threads, more time goes to waking them
        if order is Order.PROGRAM:
            _run_in_program_order(chip, source)
        else:
            _Scheduler(chip, order, queue_depth).run(source)
    if source.fault is not None:
        raise ProgramError(source.fault.code, Queue.SEQUENCER, source.words_run, source.fault.text)
    chip.read[Class.INSTRUCTION] += source.words * WORD_BYTES
    counts = {opcode: chip.commands[opcode] for opcode in (Opcode.DESCRIBE, Opcode.LOAD, Opcode.STORE, Opcode.EXEC)}
    return Emulation(chip.memory, {c: chip.read[c] for c in Class}, {c: chip.written[c] for c in Class}, counts, source.words)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


# The program


class _Fault(Exception):
    """An error, whose place the caller knows."""

    def __init__(self, code: Error, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class _Source(NamedTuple):
    """The part of a program that runs."""

    commands: Sequence[Command]  # up to HALT, or to the first word at fault; without the loops that are open there
    words: int  # of the program up to there, HALT included
    words_run: int  # the same, loops unrolled
    fault: _Fault | None  # found behind the commands


def _source(program: bytes) -> _Source:
    """The commands up to HALT or to the first word at fault.

    All faults of words and loops stand at fixed places. A fault inside a loop is met in the loop's first turn: what is before it runs once, and the
    loops that are still open then are left out.
    """
    found, fault = _decoded(program)
    kept: list[Command] = []
    open_loops: list[tuple[int, int]] = []  # (place in `kept`, first word)
    words_run = [0]  # of the program, then of every open loop
    words = 0
    for command in found:
        size = _size(command.opcode)
        if here := _loop_fault(command, [first for _, first in open_loops], words + size):
            fault = here
            break
        words += size
        words_run[-1] += size
        if command.opcode is Opcode.HALT:
            fault = None
            break
        if command.opcode is Opcode.LOOP:
            open_loops.append((len(kept), words - 1))
            words_run.append(0)
        elif command.opcode is Opcode.END:
            start, _ = open_loops.pop()
            turn_words = words_run.pop()
            words_run[-1] += turn_words * kept[start].values["count"]
        kept.append(command)
    else:
        fault = fault or _Fault(Error.PROGRAM, "the program ends without HALT")
    unclosed = {start for start, _ in open_loops}
    return _Source([command for at, command in enumerate(kept) if at not in unclosed], words, sum(words_run), fault)


def _loop_fault(command: Command, first_words: Sequence[int], end: int) -> _Fault | None:
    """What is wrong with the loops at this command, whose last word is `end` - 1, inside loops that begin at those words."""
    if first_words and end - first_words[0] > LOOP_WORDS:
        return _Fault(Error.LOOP, f"the loop at word {first_words[0]} has more than {LOOP_WORDS} words")
    if command.opcode is Opcode.LOOP and (len(first_words) == LOOP_DEPTH or not command.values["count"]):
        return _Fault(Error.LOOP, f"{len(first_words) + 1} loops in each other, {command.values['count']} turns; accepted: {LOOP_DEPTH}, 1 or more")
    if command.opcode is Opcode.END and not first_words:
        return _Fault(Error.LOOP, "END without LOOP")
    if command.opcode is Opcode.HALT and first_words:
        return _Fault(Error.LOOP, "HALT inside a loop")
    return None


def _decoded(program: bytes) -> tuple[list[Command], _Fault | None]:
    """The commands up to the first word that is none, and what is wrong with that."""
    try:
        return decode(program), None
    except BadProgram:
        pass
    found: list[Command] = []
    at = 0
    while at < len(program):  # word by word, to find the place
        opcode = program[at] & 15
        size = WORD_BYTES * _size(opcode)
        words = program[at : at + size]
        try:
            found += decode(words)
        except BadProgram as error:
            return found, _Fault(_word_error(words, opcode, size), f"word {at // WORD_BYTES} of the program: {error}")
        at += size
        if opcode == Opcode.HALT:
            break
    return found, None


def _word_error(words: bytes, opcode: int, size: int) -> Error:
    """What is wrong with the words of one command."""
    if opcode not in list(Opcode):
        return Error.OPCODE
    head_bytes = WORDS[Opcode(opcode)].bits // 8
    try:
        head = WORDS[Opcode(opcode)].unpack(int.from_bytes(words[:head_bytes], "little"))
        if head.get("kind", Kind.TRANSFER) not in list(Kind):
            return Error.FIELD
        if len(words) < size:
            return Error.PROGRAM
        PAYLOADS[Kind(head["kind"])].unpack(int.from_bytes(words[head_bytes:], "little"))
    except BadField:
        return Error.RESERVED
    return Error.FIELD  # the payload is of another kind


def _size(opcode: int) -> int:
    """Words of a command; 1 for what is no opcode."""
    if opcode not in list(Opcode):
        return 1
    return WORDS[Opcode(opcode)].bits // WORD_BITS + PAYLOAD_WORDS * (opcode == Opcode.DESCRIBE)


# What commands do


class _Patch(NamedTuple):
    """Words of a memory: stretches of `columns` words, every `step`-th."""

    start: int  # first word
    blocks: int  # stretches
    block_words: int  # words from one stretch to the next
    columns: int  # words of a stretch
    step: int = 1  # words from one to the next

    @property
    def last(self) -> int:
        """Greatest word."""
        return self.start + (self.blocks - 1) * self.block_words + (self.columns - 1) * self.step


class _Span(NamedTuple):
    """Where a space lies among the words on chip."""

    first: int
    end: int


class _Entry(NamedTuple):
    """An entry of the descriptor table."""

    kind: Kind
    values: Mapping[str, int]
    problem: str  # why commands that name it raise FIELD; empty: they do not


@dataclass(frozen=True, slots=True)
class _Job:
    """A command that has been dispatched."""

    queue: int  # LOAD, STORE, EXEC
    index: int  # commands of the queue before it
    descriptor: int
    values: Mapping[str, int]  # of the command: count, and MOVING as it is in this turn
    entry: _Entry
    targets: tuple[int, int, int]  # commands of each queue that must be finished before it starts
    finished: tuple[int, int, int]  # commands of each queue that are finished when it starts, all waits before it considered


_Writes = Sequence[tuple[_Patch, np.ndarray]]  # words, and what they get: uint8 [block][column][lane]


class _Chip:
    """Memory on chip, DRAM, descriptor table, and what the commands do to them."""

    def __init__(
        self,
        memory: np.ndarray,
        lanes: int,
        buffer_bytes: int,
        rng: np.random.Generator,
        read_region: tuple[int, int] | None,
        write_region: tuple[int, int] | None,
        check: bool,
    ) -> None:
        self.memory = memory.copy()
        self.lanes = lanes
        self.rng = rng
        words = buffer_bytes // lanes
        behind = words + FACTOR_ROWS * FACTOR_BYTES
        self.spans = {
            Space.BUFFER: _Span(0, words),
            Space.FACTORS: _Span(words, behind),
            Space.TABLES: _Span(behind, behind + TABLES * TABLE_BYTES // lanes),
        }
        total = self.spans[Space.TABLES].end
        self.bytes = rng.integers(0, 256, total * lanes, np.uint8)
        self.junk = rng.integers(0, 256, lanes, np.uint8)  # what lanes without a channel get
        self.read_region = read_region or (0, memory.size)
        self.write_region = write_region or (0, memory.size)
        self.entries: list[_Entry | None] = [None] * DESCRIPTORS
        self.read: Counter[Class] = Counter()
        self.written: Counter[Class] = Counter()
        self.commands: Counter[Opcode] = Counter()
        self.changed = np.zeros(total, np.int32)  # by word: the clock when its bytes last changed
        self.clock = 1
        self.cache: dict[tuple[object, ...], tuple[int, object]] = {}  # (clock when it was made, what was made of words)
        self.hazards = _Hazards(total, -(-memory.size // BEAT_BYTES)) if check else None
        self.job: _Job | None = None  # the one that is running

    def describe(self, command: Command) -> None:
        """Fill an entry of the descriptor table."""
        assert command.kind is not None
        values = {name: command.values.get(name, 0) for name in command.layout.by_name}
        problem = _transfer_problem(values, self.lanes) if command.kind is Kind.TRANSFER else _computation_problem(values, self.lanes)
        self.entries[command.descriptor] = _Entry(command.kind, values, problem)
        self.commands[Opcode.DESCRIBE] += 1

    def run(self, job: _Job) -> _Writes:
        """Do all of a load or a store; of a computation, everything but to write the result, which is returned. Raises ProgramError."""
        return self._as(job, self._run, job)

    def finish(self, job: _Job, writes: _Writes) -> None:
        """Write the result of a computation. Raises ProgramError."""
        self._as(job, self._write, writes)

    def _as(self, job: _Job, do: Callable[[T], R], what: T) -> R:
        """Do something as a part of that job."""
        self.clock += 1
        self.job = job
        try:
            return do(what)
        except _Fault as fault:
            raise ProgramError(fault.code, Queue(job.queue + 1), job.index, fault.text) from None

    def _run(self, job: _Job) -> _Writes:
        opcode = (Opcode.LOAD, Opcode.STORE, Opcode.EXEC)[job.queue]
        d = _prepared(job.entry.values, job.values, self.lanes) if job.queue == EXEC else job.entry.values
        if not job.values["count"] or job.entry.problem:
            raise _Fault(Error.FIELD, job.entry.problem or "a count of 0")
        self.commands[opcode] += 1
        if job.queue == EXEC:
            return self._compute(d, job.values["row"], job.values["count"])
        if job.queue == STORE and d["space"] != Space.BUFFER:
            raise _Fault(Error.FIELD, "a store from another space than BUFFER")
        for k in range(job.values["count"]):
            self._transfer(d, job.values, k, job.queue == STORE)
        return ()

    def _write(self, writes: _Writes) -> None:
        for patch, values in writes:
            self._put(patch, Space.BUFFER, values)

    def _touch(self, patch: _Patch, space: Space, writes: bool, by_block: bool = False) -> None:
        """Note that the running command reads or writes those words. Raises _Fault BUFFER, Hazard.

        A computation reads what is `by_block` for the block of the result with that number, all else up to its end.
        """
        if patch.last >= self.spans[space].end:
            raise _Fault(Error.BUFFER, f"word {patch.last - self.spans[space].first} of {space.name}; accepted: below {_words(self.spans[space])}")
        if self.hazards is not None:
            assert self.job is not None
            self.hazards.touch(self.hazards.chip, patch, self.job, writes, "word", written_before=True)
            if self.job.queue == EXEC and not writes:
                self.hazards.own_read(patch, by_block)

    def _view(self, patch: _Patch) -> np.ndarray:
        """Words on chip: uint8 [block][column][lane], no copy."""
        strides = (patch.block_words * self.lanes, patch.step * self.lanes, 1)
        return np.ndarray((patch.blocks, patch.columns, self.lanes), np.uint8, self.bytes, patch.start * self.lanes, strides)

    def _get(self, patch: _Patch, space: Space, by_block: bool = False) -> np.ndarray:
        """Read words: uint8 [block][column][lane], no copy."""
        self._touch(patch, space, writes=False, by_block=by_block)
        return self._view(patch)

    def _put(self, patch: _Patch, space: Space, values: np.ndarray) -> None:
        """Write words: uint8 [block][column][lane]."""
        self._touch(patch, space, writes=True)
        self._view(patch)[...] = values
        _view(self.changed, patch)[...] = self.clock

    # Loads and stores

    def _transfer(self, d: Mapping[str, int], command: Mapping[str, int], k: int, store: bool) -> None:
        """Copy row k of a command."""
        space = Space(d["space"])
        base = d["base"] * {Space.BUFFER: 1, Space.FACTORS: FACTOR_BYTES, Space.TABLES: TABLE_BYTES // self.lanes}[space]
        chip_block, dram_block = (command["from_block"], command["to_block"]) if store else (command["to_block"], command["from_block"])
        slot = (command["slot"] + k) % d["slots"]
        start = self.spans[space].first + base + slot * d["slot_words"] + chip_block * d["block_words"]
        address = d["dram"] + ((command["row"] + k) * d["row_beats"] + dram_block * d["block_beats"]) * BEAT_BYTES
        full = d["blocks"] - (d["tail"] < self.lanes)  # blocks without the last, if that has fewer channels
        if full:
            patch = _Patch(start, full, d["block_words"], d["columns"])
            piece_bytes = d["columns"] * self.lanes
            dram = self._dram(d, address, full, piece_bytes, store).reshape(full, d["columns"], self.lanes)
            if store:
                dram[...] = self._get(patch, space)
            elif patch.last < self.spans[space].end and np.array_equal(self._view(patch), dram):
                self._touch(patch, space, writes=True)  # nothing changes: what has been made of these words stays good
            else:
                self._put(patch, space, dram)
        if full < d["blocks"]:
            patch = _Patch(start + full * d["block_words"], 1, 0, d["columns"])
            piece_bytes = d["columns"] * d["tail"]
            dram = self._dram(d, address + full * d["block_beats"] * BEAT_BYTES, 1, -(-piece_bytes // BEAT_BYTES) * BEAT_BYTES, store)[0]
            if store:
                dram[:piece_bytes] = self._get(patch, space)[0, :, : d["tail"]].reshape(-1)
                dram[piece_bytes:] = 0
            else:
                values = np.zeros((1, d["columns"], self.lanes), np.uint8)
                values[0, :, : d["tail"]] = dram[:piece_bytes].reshape(d["columns"], d["tail"])
                self._put(patch, space, values)

    def _dram(self, d: Mapping[str, int], address: int, blocks: int, piece_bytes: int, store: bool) -> np.ndarray:
        """Pieces of DRAM, counted: uint8 [block][byte], no copy. Raises _Fault REGION, BUS; Hazard."""
        block_bytes = d["block_beats"] * BEAT_BYTES
        end = address + (blocks - 1) * block_bytes + piece_bytes
        least, limit = self.write_region if store else self.read_region
        if address < least or end > limit:
            raise _Fault(Error.REGION, f"bytes {address} to {end - 1} of DRAM; accepted: {least} to {limit - 1}")
        if end > self.memory.size:
            raise _Fault(Error.BUS, f"byte {end - 1} of DRAM; there are {self.memory.size}")
        if self.hazards is not None:
            assert self.job is not None
            patch = _Patch(address // BEAT_BYTES, blocks, d["block_beats"], piece_bytes // BEAT_BYTES)
            self.hazards.touch(self.hazards.dram, patch, self.job, store, "beat", written_before=False)
        (self.written if store else self.read)[Class(d["class_"])] += blocks * piece_bytes
        return np.ndarray((blocks, piece_bytes), np.uint8, self.memory, address, (block_bytes, 1))

    # Computation

    def _compute(self, d: Mapping[str, int], row: int, count: int) -> _Writes:
        """All of EXEC but the writing. Sums are [row][column][channel of the result]."""
        if count * d["o_width"] > ACCUMULATORS:
            raise _Fault(Error.FIELD, f"{count} rows of {d['o_width']} columns; accepted: {ACCUMULATORS} pixels")
        sums = self._sums(d, row, count)
        writes = self._result_writes(d, row, self._drained(d, sums)) if d["last"] else self._held_writes(d, row, sums)
        if self.hazards is not None:
            assert self.job is not None
            self.hazards.own_write([patch for patch, _ in writes], self.spans[Space.BUFFER].end, self.job)
        return writes

    def _channels(self, d: Mapping[str, int]) -> int:
        """Channels of the result."""
        return (d["out_blocks"] - 1) * self.lanes + d["out_tail"]

    def _sums(self, d: Mapping[str, int], row: int, count: int) -> np.ndarray:
        """Finished sums: int64, in the range of int32."""
        operation = Operation(d["operation"])
        held = None if d["first"] else self._held(d, row, count)
        window = _Window.of(d, row, count)
        if window is None:  # all kernel rows are padding
            start = -(1 << 31) if operation is Operation.MAX else 0
            sums = np.full((count, d["o_width"], self._channels(d)), start, np.int64)
            if operation is Operation.COPY:
                sums += d["a_zero"]
            elif operation in ELEMENTWISE:
                sums = self._paired(d, row, sums)
        elif operation is Operation.CONV:
            sums = self._convolved(d, window)
        elif operation is Operation.DEPTHWISE:
            sums = self._depthwise(d, window)
        elif operation in (Operation.SUM, Operation.MAX):
            sums = self._reduced(d, window, operation is Operation.MAX)
        else:
            operand = self._operand(d, window, d["out_blocks"], np.int64, d["a_zero"])[..., : self._channels(d)]
            sums = window.over(operand)[:, :, 0, 0]
            if operation is not Operation.COPY:
                sums = self._paired(d, row, sums - d["a_zero"])
        if held is not None:
            sums = np.maximum(sums, held) if operation is Operation.MAX else sums + held
        return sums.astype(np.int32).astype(np.int64)

    def _operand(self, d: Mapping[str, int], window: _Window, blocks: int, dtype: type[np.generic], padding: int) -> np.ndarray:
        """The part of the operand that a command needs: [row][column][channel of whole blocks], raw values, padding where there is none."""
        rows, columns = window.rows, window.columns
        found = np.empty((rows.size, columns.size, blocks, self.lanes), dtype)
        if rows.padded(d["a_height"]) or columns.padded(d["a_width"]):
            found[...] = padding
        stored = np.uint8 if d["a_unsigned"] else np.int8
        by_block = d["operation"] != Operation.CONV
        for to_row, from_row in rows.inside(d["a_height"]):
            for at in range(to_row.start, to_row.stop, to_row.step):
                row = from_row.start + (at - to_row.start) // to_row.step * from_row.step
                for to_column, from_column in columns.inside(d["a_width"]):
                    start = d["a_base"] + row % d["a_slots"] * d["a_slot_words"] + from_column.start
                    patch = _Patch(
                        start, blocks, d["a_block_words"], len(range(from_column.start, from_column.stop, from_column.step)), from_column.step
                    )
                    found[at, to_column] = self._get(patch, Space.BUFFER, by_block).view(stored).transpose(1, 0, 2)
        return found.reshape(rows.size, columns.size, blocks * self.lanes)

    def _convolved(self, d: Mapping[str, int], window: _Window) -> np.ndarray:
        channels = (d["in_blocks"] - 1) * self.lanes + d["in_tail"]
        weights, exact = self._weights(d, window, channels)
        operand = self._operand(d, window, d["in_blocks"], exact, d["a_zero"])[..., :channels]
        operand -= d["a_zero"]
        taken = window.over(operand)
        pixels, terms = taken.shape[0] * taken.shape[1], weights.shape[0]
        return (taken.reshape(pixels, terms) @ weights).reshape(*taken.shape[:2], -1).astype(np.int64)

    def _depthwise(self, d: Mapping[str, int], window: _Window) -> np.ndarray:
        weights, _ = self._weights(d, window, 1)
        channels = self._channels(d)
        operand = self._operand(d, window, d["out_blocks"], np.int32, d["a_zero"])[..., :channels]
        operand -= d["a_zero"]
        taken = window.over(operand)  # [row][column][kernel row][kernel column][channel]
        sums = np.zeros((*taken.shape[:2], channels), np.int32)
        product = np.empty_like(sums)
        for ky in range(taken.shape[2]):
            for kx in range(taken.shape[3]):
                np.multiply(taken[:, :, ky, kx], weights[ky * taken.shape[3] + kx], out=product)
                sums += product
        return sums.astype(np.int64)

    def _reduced(self, d: Mapping[str, int], window: _Window, largest: bool) -> np.ndarray:
        operand = self._operand(d, window, d["out_blocks"], np.int32, -(1 << 31) if largest else d["a_zero"])[..., : self._channels(d)]
        if largest:
            return window.over(operand).max(axis=(2, 3)).astype(np.int64)
        return window.over(operand - d["a_zero"]).sum(axis=(2, 3), dtype=np.int64)

    def _paired(self, d: Mapping[str, int], row: int, first: np.ndarray) -> np.ndarray:
        """ADD or MUL of an operand (zero point subtracted) and the second one: int64."""
        count, width, channels = first.shape
        stored = np.uint8 if d["b_unsigned"] else np.int8
        columns = 1 if d["b_vector"] else width
        second = np.empty((count, columns, d["out_blocks"], self.lanes), np.int64)
        for y in range(count):
            patch = self._b_patch(d, row + y, columns)
            second[y] = self._get(patch, Space.BUFFER, by_block=True).view(stored).transpose(1, 0, 2)
        second = second.reshape(count, columns, -1)[..., :channels] - d["b_zero"]
        if d["operation"] == Operation.MUL:
            return first * second
        return d["a_multiplier"] * first + d["b_multiplier"] * second

    def _b_patch(self, d: Mapping[str, int], row: int, columns: int) -> _Patch:
        return _Patch(d["b_base"] + row % d["b_slots"] * d["b_slot_words"], d["out_blocks"], d["b_block_words"], columns)

    def _held(self, d: Mapping[str, int], row: int, count: int) -> np.ndarray:
        """Sums that earlier commands have left: int64."""
        width, blocks = d["o_width"], d["out_blocks"]
        found = np.empty((count, width, blocks, self.lanes), np.int64)
        for y in range(count):
            stored = np.ascontiguousarray(self._get(self._b_patch(d, row + y, width * WINDOW), Space.BUFFER, by_block=True))
            found[y] = stored.reshape(blocks, -1).view("<i4").reshape(blocks, width, self.lanes).transpose(1, 0, 2)
        return found.reshape(count, width, -1)[..., : self._channels(d)]

    def _held_writes(self, d: Mapping[str, int], row: int, sums: np.ndarray) -> _Writes:
        count, width, channels = sums.shape
        blocks = d["out_blocks"]
        found = np.empty((count, width, blocks * self.lanes), "<i4")
        found[..., channels:] = self.rng.integers(-(1 << 31), 1 << 31)
        found[..., :channels] = sums
        stored = np.ascontiguousarray(found.reshape(count, width, blocks, self.lanes).transpose(0, 2, 1, 3))
        words = stored.reshape(count, blocks, -1).view(np.uint8).reshape(count, blocks, width * WINDOW, self.lanes)
        return [(self._b_patch(d, row + y, width * WINDOW), words[y]) for y in range(count)]

    def _drained(self, d: Mapping[str, int], sums: np.ndarray) -> np.ndarray:
        """Sums as the bytes that are written."""
        channels = sums.shape[2]
        if d["has_bias"]:
            patch = _Patch(d["bias"], 1, 0, -(-4 * channels // self.lanes))
            bias = np.ascontiguousarray(self._get(patch, Space.BUFFER)).reshape(-1).view("<i4")[:channels]
            sums = (sums + bias).astype(np.int32).astype(np.int64)
        if d["scale"] == Scale.CHANNEL:
            multiplier, shift, half = self._factors(d["factors"], d["out_blocks"], channels)
            sums = (sums * multiplier + half >> shift) + d["o_zero"]
        elif d["scale"] == Scale.SCALAR:
            sums = (sums * d["multiplier"] + (1 << d["shift"] - 1) >> d["shift"]) + d["o_zero"]
        found = np.minimum(np.maximum(sums, d["low"]), d["high"]).astype(np.uint8)
        if d["has_table"]:
            patch = _Patch(self.spans[Space.TABLES].first + d["table_id"] * TABLE_BYTES // self.lanes, 1, 0, TABLE_BYTES // self.lanes)
            found = self._get(patch, Space.TABLES).reshape(-1)[found]
        return found

    def _result_writes(self, d: Mapping[str, int], row: int, values: np.ndarray) -> _Writes:
        count, width, channels = values.shape
        blocks = d["out_blocks"]
        words = np.empty((count, width, blocks * self.lanes), np.uint8)
        words[..., :channels] = values
        words[..., channels:] = self.junk[d["out_tail"] :]
        stored = words.reshape(count, width, blocks, self.lanes).transpose(0, 2, 1, 3)
        found: list[tuple[_Patch, np.ndarray]] = []
        for y in range(count):
            slot = ((row + y) * d["o_row_step"] + d["o_row"]) % d["o_slots"]
            found.append((_Patch(d["o_base"] + slot * d["o_slot_words"], blocks, d["o_block_words"], width, d["o_step"]), stored[y]))
        return found

    def _factors(self, row: int, blocks: int, channels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(multipliers, shifts, what rounds) of all channels: int64. Shifts of 0 and 63 are done, not refused, as in hardware."""
        patch = _Patch(self.spans[Space.FACTORS].first + row * FACTOR_BYTES, 1, 0, blocks * FACTOR_BYTES)
        stored = self._get(patch, Space.FACTORS)

        def made() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            each = stored.reshape(-1, FACTOR_BYTES)[:channels]
            multiplier = np.ascontiguousarray(each[:, :4]).view("<u4")[:, 0] & 0x7FFFFFFF
            shift = (each[:, 4] & 63).astype(np.int64)
            return multiplier.astype(np.int64), shift, np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)

        return self._cached(("factors", row, channels), [patch], made)

    def _weights(self, d: Mapping[str, int], window: _Window, depth: int) -> tuple[np.ndarray, type[np.generic]]:
        """Weights of the kernel rows that are not skipped: ([kernel row, kernel column, input channel][output channel], their type).

        The zero point is subtracted. The type is the shortest of floats in which no sum of products with this operand is rounded; DEPTHWISE: int32.
        """
        lanes, last = self.lanes, d["out_blocks"] - 1
        row_terms = d["kernel_columns"] * depth
        skipped, terms = window.first_kernel_row * row_terms, window.kernel_rows * row_terms
        places = [(d["w_base"] + ob * d["w_block_bytes"] + skipped * n, n) for ob, n in enumerate([lanes] * last + [d["out_tail"]])]
        patches = [_byte_patch(start, terms * n, lanes) for start, n in places]
        for patch in patches:
            self._touch(patch, Space.BUFFER, writes=False)
        depthwise = d["operation"] == Operation.DEPTHWISE

        def made() -> tuple[np.ndarray, type[np.generic]]:
            stored = self.bytes.view(np.uint8 if d["b_unsigned"] else np.int8)
            found = np.empty((terms, self._channels(d)), np.int32)
            for ob, (start, n) in enumerate(places):
                found[:, ob * lanes : ob * lanes + n] = stored[start : start + terms * n].reshape(terms, n)
            found -= d["b_zero"]
            if depthwise:
                return found, np.int32
            most = _reach(d["a_unsigned"], d["a_zero"]) * int(np.abs(found).sum(axis=0, dtype=np.int64).max())
            exact = np.float32 if most < EXACT_FLOAT32 else np.float64
            return found.astype(exact), exact

        key = (
            d["w_base"],
            d["w_block_bytes"],
            skipped,
            terms,
            d["out_blocks"],
            d["out_tail"],
            d["b_zero"],
            d["b_unsigned"],
            d["a_unsigned"],
            d["a_zero"],
        )
        return self._cached((depthwise, *key), patches, made)

    def _cached(self, key: tuple[object, ...], patches: Sequence[_Patch], made: Callable[[], T]) -> T:
        """What `made` makes of those words, made anew only if they have changed."""
        found = self.cache.pop(key, None)
        if found is None or any(int(_view(self.changed, patch).max()) > found[0] for patch in patches):
            found = (self.clock, made())
            if len(self.cache) >= CACHED:
                del self.cache[next(iter(self.cache))]
        self.cache[key] = found
        return found[1]  # pyright: ignore[reportReturnType]


def _prepared(d: Mapping[str, int], command: Mapping[str, int], lanes: int) -> Mapping[str, int]:
    """A computation's descriptor, moved by the numbers of a command. Raises _Fault FIELD, BUFFER."""
    if d["operation"] in (Operation.CONV, Operation.DEPTHWISE) and not d["w_slots"]:
        raise _Fault(Error.FIELD, "w_slots is 0")
    read, made = command["from_block"], command["to_block"]
    slot = command["slot"] % d["w_slots"] if d["w_slots"] else 0
    moved = {
        "a_base": d["a_base"] + read * d["a_block_words"],
        "b_base": d["b_base"] + (read if d["operation"] in (Operation.ADD, Operation.MUL) else made) * d["b_block_words"],
        "o_base": d["o_base"] + made * d["o_block_words"],
        "bias": d["bias"] + slot * d["bias_slot_words"],
        "factors": d["factors"] + command["factor"],
        "w_base": d["w_base"] + lanes * slot * d["w_slot_words"],
    }
    for name, value in moved.items():
        if value > COMPUTATION.by_name[name].most:
            raise _Fault(Error.BUFFER, f"{name} moved to {value}; accepted: up to {COMPUTATION.by_name[name].most}")
    return {**d, **moved}


def _transfer_problem(d: Mapping[str, int], lanes: int) -> str:
    """Why a transfer raises FIELD, or nothing."""
    if zero := [name for name in ("columns", "blocks", "tail", "slots") if not d[name]]:
        return f"{zero[0]} is 0"
    if d["tail"] > lanes:
        return f"tail is {d['tail']}; accepted: up to {lanes}"
    if d["class_"] not in list(Class) or d["space"] not in list(Space):
        return f"class {d['class_']}, space {d['space']}"
    if d["dram"] % BEAT_BYTES:
        return f"dram is {d['dram']:#x}; accepted: multiples of {BEAT_BYTES}"
    return ""


def _computation_problem(d: Mapping[str, int], lanes: int) -> str:
    """Why a computation raises FIELD whatever its rows, or nothing."""
    operation, whole = d["operation"], d["first"] and d["last"]
    if operation not in list(Operation) or d["scale"] not in list(Scale):
        return f"operation {operation}, scale {d['scale']}"
    sizes = "a_slots a_height a_width kernel_rows kernel_columns dilation out_blocks out_tail o_width".split()
    sizes += ["o_slots"] * d["last"] + ["b_slots"] * (not whole or operation in (Operation.ADD, Operation.MUL))
    sizes += ["in_blocks", "in_tail"] * (operation == Operation.CONV)
    if zero := [name for name in sizes if not d[name]]:
        return f"{zero[0]} is 0"
    if d["out_tail"] > lanes or operation == Operation.CONV and d["in_tail"] > lanes:
        return f"tails are {d['in_tail']} and {d['out_tail']}; accepted: up to {lanes}"
    if operation == Operation.CONV and d["narrow"] and (d["in_blocks"] > 1 or d["in_tail"] * WINDOW > lanes):
        return f"narrow, with {d['in_blocks']} blocks, the last of {d['in_tail']} channels; accepted: 1 block of up to {lanes // WINDOW}"
    if operation in ELEMENTWISE and (d["kernel_rows"], d["kernel_columns"]) != (1, 1):
        return f"{Operation(operation).name} with a window of {d['kernel_rows']} x {d['kernel_columns']}; accepted: 1 x 1"
    if operation in (Operation.ADD, Operation.MUL) and not whole:
        return f"{Operation(operation).name} with held sums"
    if d["last"] and d["scale"] == Scale.SCALAR and not 1 <= d["shift"] <= 62:
        return f"a shift of {d['shift']}; accepted: 1 to 62"
    return ""


def _words(span: _Span) -> int:
    return span.end - span.first


def _reach(unsigned: int, zero: int) -> int:
    """Largest magnitude of a byte less a zero point."""
    least, most = (0, 255) if unsigned else (-128, 127)
    return max(abs(least - zero), abs(most - zero))


def _byte_patch(start: int, size: int, lanes: int) -> _Patch:
    """The words in which those bytes lie; none for size 0."""
    return _Patch(start // lanes, 1, 0, (start + size - 1) // lanes - start // lanes + 1)


def _view(table: np.ndarray, patch: _Patch) -> np.ndarray:
    """What a table (one entry of 4 bytes a word) says of a patch: [block][column], no copy."""
    return np.ndarray((patch.blocks, patch.columns), table.dtype, table, patch.start * 4, (patch.block_words * 4, patch.step * 4))


# Windows


class _Axis(NamedTuple):
    """The places along one axis of an operand that a command looks at, as a short array holds them.

    Neighbouring windows that leave no gap share places: the array is a stretch of the operand. Otherwise it holds every window by itself.
    """

    outputs: int
    kernel: int
    stride: int  # of the operand
    dilation: int
    first: int  # place of the first window's first element; below 0: padding

    @property
    def shared(self) -> bool:
        """Whether the array is a stretch of the operand."""
        return self.dilation == 1 and self.stride <= self.kernel

    @property
    def size(self) -> int:
        """Entries of the array."""
        return (self.outputs - 1) * self.stride + self.kernel if self.shared else self.outputs * self.kernel

    @property
    def array_stride(self) -> int:
        """Entries from one window to the next."""
        return self.stride if self.shared else self.kernel

    def pieces(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Arithmetic sequences: (first entry, step of entries, first place, step of places, length)."""
        if self.shared:
            yield 0, 1, self.first, 1, self.size
        elif self.kernel > self.outputs or not self.stride:
            for output in range(self.outputs):
                yield output * self.kernel, 1, self.first + output * self.stride, self.dilation, self.kernel
        else:
            for k in range(self.kernel):
                yield k, self.kernel, self.first + k * self.dilation, self.stride, self.outputs

    def inside(self, length: int) -> Iterator[tuple[slice, slice]]:
        """(entries, places) that are no padding."""
        for entry, entry_step, place, place_step, number in self.pieces():
            begin = max(0, -(place // place_step))
            end = min(number, -((place - length) // place_step))
            if begin < end:
                entries = slice(entry + begin * entry_step, entry + (end - 1) * entry_step + 1, entry_step)
                yield entries, slice(place + begin * place_step, place + (end - 1) * place_step + 1, place_step)

    def padded(self, length: int) -> bool:
        """Whether there is any padding."""
        return self.first < 0 or self.first + (self.outputs - 1) * self.stride + (self.kernel - 1) * self.dilation >= length


class _Window(NamedTuple):
    """Where the windows of a command lie in its operand."""

    rows: _Axis
    columns: _Axis
    first_kernel_row: int  # those before are padding for all rows of the command
    kernel_rows: int  # those behind are padding for all rows of the command

    @classmethod
    def of(cls, d: Mapping[str, int], row: int, count: int) -> _Window | None:
        """The windows of these rows; None if all kernel rows are padding."""
        top = row * d["stride_rows"] - d["pad_rows"]
        bottom = top + (count - 1) * d["stride_rows"]
        first = max(0, -(bottom // d["dilation"]))  # the first kernel row that the last row of the result has in the operand
        end = min(d["kernel_rows"], -((top - d["a_height"]) // d["dilation"]))
        if first >= end:
            return None
        rows = _Axis(count, end - first, d["stride_rows"], d["dilation"], top + first * d["dilation"])
        columns = _Axis(d["o_width"], d["kernel_columns"], d["stride_columns"], d["dilation"], -d["pad_columns"])
        return cls(rows, columns, first, end - first)

    def over(self, operand: np.ndarray) -> np.ndarray:
        """What every window sees: [row][column][kernel row][kernel column][channel], no copy."""
        by_row, by_column, by_channel = operand.strides
        shape = (self.rows.outputs, self.columns.outputs, self.rows.kernel, self.columns.kernel, operand.shape[2])
        strides = (by_row * self.rows.array_stride, by_column * self.columns.array_stride, by_row, by_column, by_channel)
        return np.lib.stride_tricks.as_strided(operand, shape, strides)


# Orders


def _dispatched(chip: _Chip, commands: Sequence[Command]) -> Iterator[_Job | Command]:
    """What the sequencer hands out: jobs, and DESCRIBE commands, which take effect when the next one is asked for."""
    number = [0, 0, 0]
    for command in unrolled(commands):
        if command.layout is not RUN:
            yield command
            chip.describe(command)
            if chip.hazards is not None:
                chip.hazards.describe(command.descriptor)
            continue
        values = command.values
        queue = QUEUES[command.opcode]
        waits = (values["wait_load"], values["wait_store"], values["wait_exec"])
        load, store, compute = (0 if wait == NO_WAIT else max(0, done - wait) for wait, done in zip(waits, number, strict=True))
        targets = load, store, compute
        entry, wanted = chip.entries[values["descriptor"]], Kind.COMPUTATION if queue == EXEC else Kind.TRANSFER
        if entry is None or entry.kind is not wanted:
            text = f"entry {values['descriptor']} is {entry.kind.name if entry else 'empty'}; accepted: {wanted.name}"
            raise ProgramError(Error.DESCRIPTOR, Queue(queue + 1), number[queue], text)
        if chip.hazards is not None:
            finished = chip.hazards.dispatch(queue, targets, values["descriptor"])
        else:
            finished = targets
        yield _Job(queue, number[queue], values["descriptor"], _moved(values), entry, targets, finished)
        number[queue] += 1


def _moved(values: Mapping[str, int]) -> Mapping[str, int]:
    """The numbers of a command in this turn, cut to the bits of their fields as hardware does."""
    return {"count": values["count"], **{name: values[name] & RUN.by_name[name].most for name in MOVING}}


def _run_in_program_order(chip: _Chip, source: _Source) -> None:
    for what in _dispatched(chip, source.commands):
        if isinstance(what, _Job):
            writes = chip.run(what)
            if what.queue == EXEC:
                chip.finish(what, writes)


@dataclass
class _Hazards:
    """Which commands touched each word, and whether waits order them.

    What a command may count on when it starts: those commands are finished that it waits for, that the command before it in its queue could count on,
    that any of the finished ones could count on, and those that DESCRIBE waited for. Computations overlap: one may begin while the one before it is
    still writing, so a result may be read by a computation that waits for it, alone.
    """

    words: int
    beats: int
    chip: tuple[np.ndarray, np.ndarray] = field(init=False)  # by writing or not: int32 [queue][word], 1 + index of the last command
    dram: tuple[np.ndarray, np.ndarray] = field(init=False)  # the same, by beat
    known: list[list[tuple[int, int, int]]] = field(init=False)  # by queue and index: commands finished when it starts
    named: dict[int, list[int]] = field(default_factory=dict[int, list[int]])  # by entry: 1 + index of each queue's last command that names it
    dispatcher: tuple[int, int, int] = (0, 0, 0)  # commands finished whatever is dispatched next
    wanted: np.ndarray = field(
        init=False
    )  # int32, by word: 1 + the last block of its result for which the running computation reads it; 0: it does not
    own: list[_Patch] = field(default_factory=list[_Patch])  # what the running computation has read

    def __post_init__(self) -> None:
        self.chip = (np.zeros((3, self.words), np.int32), np.zeros((3, self.words), np.int32))
        self.dram = (np.zeros((3, self.beats), np.int32), np.zeros((3, self.beats), np.int32))
        self.known = [[], [], []]
        self.wanted = np.zeros(self.words, np.int32)

    def _closed(self, counts: Sequence[int]) -> tuple[int, int, int]:
        """What is finished if so many commands of each queue are."""
        found = list(counts)
        for queue, count in enumerate(counts):
            if count:
                found = [max(pair) for pair in zip(found, self.known[queue][count - 1], strict=True)]
        return found[0], found[1], found[2]

    def dispatch(self, queue: int, targets: Sequence[int], descriptor: int) -> tuple[int, int, int]:
        """Commands of each queue that are finished when this one starts."""
        before = self.known[queue][-1] if self.known[queue] else (0, 0, 0)
        found = self._closed([max(of) for of in zip(self.dispatcher, before, targets, strict=True)])
        self.known[queue].append(found)
        self.named.setdefault(descriptor, [0, 0, 0])[queue] = len(self.known[queue])
        return found

    def describe(self, descriptor: int) -> None:
        """Note that DESCRIBE has waited for the commands that name its entry."""
        named = self.named.get(descriptor, [0, 0, 0])
        self.dispatcher = self._closed([max(of) for of in zip(self.dispatcher, named, strict=True)])

    def touch(self, tables: tuple[np.ndarray, np.ndarray], patch: _Patch, job: _Job, writes: bool, unit: str, *, written_before: bool) -> None:
        """Note an access. Raises Hazard."""
        written, read = tables[1], tables[0]
        for other in range(3):
            if other != job.queue or (other == EXEC and not writes):
                self._ordered(written[other], patch, job, other, f"{'writes' if writes else 'reads'} a {unit} that", "writes", unit)
            if other != job.queue and writes:
                self._ordered(read[other], patch, job, other, f"writes a {unit} that", "reads", unit)
        if writes and job.queue == EXEC and int(_view(read[EXEC], patch).max()) > job.index + 1:  # it ran ahead, see _Scheduler
            raise Hazard(f"EXEC {job.index} writes a {unit} that a later one has read: {unit} {patch.start}")
        if not writes and written_before:
            ever = np.maximum(np.maximum(_view(written[0], patch), _view(written[1], patch)), _view(written[2], patch))
            if not ever.all():
                raise Hazard(f"{_name(job.queue, job.index)} reads {unit} {_place(ever == 0, patch)}, which nothing has written")
        _view(tables[writes][job.queue], patch)[...] = job.index + 1

    def own_read(self, patch: _Patch, by_block: bool) -> None:
        """Note that the running computation reads words, block by block of its result or up to its end."""
        seen = _view(self.wanted, patch)
        np.maximum(seen, np.arange(1, patch.blocks + 1)[:, None] if by_block else ALL_BLOCKS, out=seen)
        self.own.append(patch)

    def own_write(self, patches: Sequence[_Patch], end: int, job: _Job) -> None:
        """Note where the running computation puts its result. Its first blocks are written while it reads for the next. Raises Hazard."""
        for patch in patches:
            if patch.last < end:
                late = _view(self.wanted, patch) > np.arange(1, patch.blocks + 1)[:, None]
                if patch.blocks > 1 and late[:-1].any():
                    raise Hazard(f"EXEC {job.index} writes a word that it reads later: word {_place(late, patch)}")
        for patch in self.own:
            _view(self.wanted, patch)[...] = 0
        self.own.clear()

    @staticmethod
    def _ordered(table: np.ndarray, patch: _Patch, job: _Job, other: int, does: str, did: str, unit: str) -> None:
        seen = _view(table, patch)
        if int(seen.max()) > job.finished[other]:
            late = _place(seen > job.finished[other], patch)
            name = _name(other, int(seen.max()) - 1)
            raise Hazard(f"{_name(job.queue, job.index)} {does} {name} {did}, and no wait orders them: {unit} {late}")


def _name(queue: int, index: int) -> str:
    return f"{('LOAD', 'STORE', 'EXEC')[queue]} {index}"


def _place(which: np.ndarray, patch: _Patch) -> int:
    """The first word of a patch that is marked."""
    block, column = (int(k[0]) for k in np.nonzero(which))
    return patch.start + block * patch.block_words + column * patch.step


class _Scheduler:
    """Three queues, each in order, that keep to the waits and to nothing else.

    A computation's result is held back until the next one has read its operands, unless something waits for it, as hardware may do.
    """

    def __init__(self, chip: _Chip, order: Order, queue_depth: int | None) -> None:
        self.chip = chip
        self.order = order
        self.queue_depth = queue_depth
        self.queues: tuple[deque[_Job], ...] = (deque(), deque(), deque())
        self.completed = [0, 0, 0]
        self.named = [[0, 0, 0] for _ in range(DESCRIPTORS)]  # by entry: 1 + index of each queue's last command that names it
        self.held: tuple[_Job, _Writes] | None = None  # a computation and its result
        self.preference = [LOAD, EXEC, WRITING, STORE] if order is Order.EAGER_LOADS else [STORE, EXEC, WRITING, LOAD]

    def run(self, source: _Source) -> None:
        """Run everything. Raises ProgramError, Hazard."""
        rng = self.chip.rng
        coming = _dispatched(self.chip, source.commands)
        what = next(coming, None)
        while True:
            while what is not None and self._may_dispatch(what):
                if isinstance(what, _Job):
                    self.queues[what.queue].append(what)
                    self.named[what.descriptor][what.queue] = what.index + 1
                what = next(coming, None)
            if self.order is Order.RANDOM and rng.random() < 1 / STRETCH:
                self.preference = rng.permutation(4).tolist()
            action = next((action for action in self.preference if self._may_start(action)), None)
            if action is None:
                break
            self._do(action)
        assert what is None and not any(self.queues)

    def _may_dispatch(self, what: _Job | Command) -> bool:
        if isinstance(what, _Job):
            return self.queue_depth is None or len(self.queues[what.queue]) < self.queue_depth
        return all(done >= named for done, named in zip(self.completed, self.named[what.descriptor], strict=True))

    def _may_start(self, action: int) -> bool:
        if action == WRITING:
            return self.held is not None
        queue = self.queues[action]
        return bool(queue) and all(done >= target for done, target in zip(self.completed, queue[0].targets, strict=True))

    def _do(self, action: int) -> None:
        before = self.held if action in (EXEC, WRITING) else None
        if action == WRITING:
            self.held = None
        else:
            job = self.queues[action].popleft()
            writes = self.chip.run(job)
            if action == EXEC:
                self.held = job, writes
            else:
                self.completed[action] += 1
        if before is not None:
            self.chip.finish(*before)
            self.completed[EXEC] += 1
