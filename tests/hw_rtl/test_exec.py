"""The accelerator's computation (lf_exec with lf_buffer, simulated) against the emulator, bit for bit."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from hw_rtl.build import ONE_FILE, QUICK, RTL, Design, available, compiled
from hw_rtl.emulator import ProgramError, emulate
from lfopt.app.cache import keeper
from lfopt.isa.program import Command, encode
from lfopt.isa.tables import (
    COMPUTATION,
    NO_WAIT,
    PAYLOAD_BITS,
    WINDOW,
    Class,
    Error,
    Kind,
    Opcode,
    Operation,
    Scale,
    Space,
)

pytestmark = pytest.mark.skipif(bool(available()), reason=f"not found: {available()}")

LANES = 16
WORDS = 4096  # of the buffer
SCRATCH = 16  # last words of the buffer, into which the competing requester writes
BENCH = Path(__file__).parent / "exec"
PACKAGES = "dma_pkg port_pkg reach_pkg setup_pkg".split()
SOURCES = [
    *PACKAGES,
    *"memory ring setup walk columns second weights array "
    "accumulators factors tables requantize drain exec buffer".split(),
]
CONV, DEPTHWISE, SUM, MAX, COPY, ADD, MUL = Operation
EVENTS = ("busy", "array", "weights", "buffer", "drain")
HANGS = 255  # what the bench prints instead of an error


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Path:
    assert request.config.cache is not None
    return built(Path(request.config.cache.mkdir("rtl")), LANES, WORDS)


def built(cache: Path, lanes: int, words: int) -> Path:
    """The bench for so many lanes."""
    files = [*(RTL / f"lf_{name}.sv" for name in SOURCES), BENCH / "lf_exec_bench.sv"]
    generics = {"Lanes": lanes, "BufferWords": words}
    defines = (f"-DLANES={lanes}", f"-DBUFFER_WORDS={words}", f"-DDESCRIPTOR={PAYLOAD_BITS // 8}")
    return compiled(
        keeper(cache),
        Design(
            "lf_exec_bench",
            files,
            BENCH / "exec_bench.cpp",
            generics,
            ("-Wall", "-Wno-UNUSEDPARAM", *QUICK),
            defines,
            "-O1",
            ONE_FILE,
        ),
    )


# Sequences of commands, on the hardware and on the emulator


@dataclass
class Chain:
    """What a chip holds, and commands that work on it, one after the other."""

    buffer: np.ndarray  # uint8 [word][lane]
    factors: np.ndarray  # uint8 [256 * 5][lane]
    tables: np.ndarray  # uint8 [64 * 256]
    # descriptor, row, count, how many before may be unfinished
    commands: list[tuple[Mapping[str, int], int, int, int]] = field(default_factory=list)
    # reads, writes, requests held off (of 256 cycles), seed
    contention: tuple[int, int, int, int] = (0, 0, 0, 1)


@dataclass
class Outcome:
    """What a sequence has done."""

    error: int
    done: int  # commands
    cycles: list[int]  # of each command, from when it was accepted
    events: dict[str, int]  # sums over all cycles
    buffer: np.ndarray


def simulate(bench: Path, sequences: Sequence[Chain]) -> list[Outcome]:
    """Run sequences, one after the other, on the hardware."""
    script = bytearray()

    def say(*numbers: int) -> None:
        script.extend(struct.pack(f"<{len(numbers)}I", *numbers))

    words, lanes = sequences[0].buffer.shape
    for sequence in sequences:
        say(1, 2, 0, words)
        script.extend(sequence.buffer.tobytes())
        say(3, Space.FACTORS, 0, len(sequence.factors))
        script.extend(sequence.factors.tobytes())
        say(3, Space.TABLES, 0, sequence.tables.size // lanes)
        script.extend(sequence.tables.tobytes())
        say(7, *sequence.contention, SCRATCH)
        for d, row, count, wait in sequence.commands:
            say(4, wait, row, count)
            script.extend(
                COMPUTATION.pack({"kind": Kind.COMPUTATION, **d}).to_bytes(PAYLOAD_BITS // 8, "little")
            )
        say(5, 7, 0, 0, 0, 1, SCRATCH, 6, 0, words)
    done = subprocess.run([bench], input=bytes(script), capture_output=True, check=True).stdout
    return list(_outcomes(done, len(sequences), words, lanes))


def _outcomes(output: bytes, number: int, words: int, lanes: int) -> Iterator[Outcome]:
    at = 0

    def numbers(count: int) -> list[int]:
        nonlocal at
        at += 4 * count
        return list(struct.unpack_from(f"<{count}I", output, at - 4 * count))

    for _ in range(number):
        error, done = numbers(2)
        cycles = numbers(done)
        events: dict[str, int] = dict(zip(EVENTS, numbers(5), strict=True))
        buffer = np.frombuffer(output, np.uint8, words * lanes, at).reshape(words, lanes)
        at += words * lanes
        yield Outcome(error, done, cycles, events, buffer)
    assert at == len(output)


def expect(sequence: Chain) -> tuple[int, int, np.ndarray]:
    """(error, commands done, buffer) by the emulator. The buffer is the one before, after an error."""
    words, lanes = sequence.buffer.shape
    beats = lanes // 16
    parts = [sequence.buffer.reshape(-1), sequence.factors.reshape(-1), sequence.tables]
    memory = np.concatenate([*parts, np.zeros(words * lanes, np.uint8)])
    program: list[Command] = []
    at = 0
    for k, (part, space) in enumerate(zip(parts, (Space.BUFFER, Space.FACTORS, Space.TABLES), strict=True)):
        columns = part.size // lanes
        transfer = {
            "class_": Class.INPUT,
            "space": space,
            "dram": at,
            "row_beats": 0,
            "block_beats": columns * beats,
            "columns": columns,
        }
        program.append(
            Command(
                Opcode.DESCRIBE,
                {"kind": Kind.TRANSFER, **transfer, "blocks": 1, "tail": lanes, "slots": 1},
                k,
                Kind.TRANSFER,
            )
        )
        program.append(_run(Opcode.LOAD, k, 0, 1))
        at += part.size
    for k, (d, row, count, _) in enumerate(sequence.commands):
        program.append(
            Command(Opcode.DESCRIBE, {"kind": Kind.COMPUTATION, **d}, 4 + k % 50, Kind.COMPUTATION)
        )
        program.append(_run(Opcode.EXEC, 4 + k % 50, row, count))
    whole = {
        "class_": Class.OUTPUT,
        "space": Space.BUFFER,
        "dram": at,
        "block_beats": words * beats,
        "columns": words,
        "blocks": 1,
        "tail": lanes,
        "slots": 1,
    }
    program += [
        Command(Opcode.DESCRIBE, {"kind": Kind.TRANSFER, **whole}, 3, Kind.TRANSFER),
        _run(Opcode.STORE, 3, 0, 1),
        Command(Opcode.HALT),
    ]
    try:
        emulated = emulate(encode(program), memory, lanes=lanes, buffer_bytes=words * lanes)
    except ProgramError as error:
        return error.code, error.index, sequence.buffer
    return 0, len(sequence.commands), emulated.memory[at:].reshape(words, lanes)


def _run(opcode: Opcode, descriptor: int, row: int, count: int) -> Command:
    waits = {"wait_load": NO_WAIT, "wait_store": NO_WAIT, "wait_exec": NO_WAIT}
    return Command(opcode, {"descriptor": descriptor, "row": row, "count": count, **waits})


def known(sequence: Chain) -> np.ndarray:
    """(words, lanes) bool: bytes of the buffer that the commands define.

    Undefined are those of sums that no channel has.
    """
    words, lanes = sequence.buffer.shape
    decided = np.ones((words, lanes), bool)
    decided[words - SCRATCH :] = not sequence.contention[1]
    for d, row, count, _ in sequence.commands:
        for y in range(row, row + count):
            for ob in range(d["out_blocks"]):
                n = d["out_tail"] if ob == d["out_blocks"] - 1 else lanes
                if not d["last"]:
                    start = d["b_base"] + y % d["b_slots"] * d["b_slot_words"] + ob * d["b_block_words"]
                    place = start + np.arange(d["o_width"] * WINDOW)
                    decided[place] = np.tile(np.arange(WINDOW * lanes) // 4 < n, d["o_width"]).reshape(
                        -1, lanes
                    )
    return decided


def check(bench: Path, sequences: Sequence[Chain]) -> list[Outcome]:
    """Hold the hardware against the emulator."""
    outcomes = simulate(bench, sequences)
    for k, (sequence, outcome) in enumerate(zip(sequences, outcomes, strict=True)):
        error, done, buffer = expect(sequence)
        assert (outcome.error, outcome.done) == (error, done), f"sequence {k}: {describe(sequence)}"
        if not error:
            wrong = (outcome.buffer != buffer) & known(sequence)
            assert not wrong.any(), (
                f"sequence {k}: {wrong.sum()} bytes, first at {np.argwhere(wrong)[:3].tolist()}: "
                f"{describe(sequence)}"
            )
    return outcomes


def describe(sequence: Chain) -> str:
    return "; ".join(
        f"{Operation(d['operation']).name if d['operation'] < 7 else 7} row={row} count={count} {dict(d)}"
        for d, row, count, _ in sequence.commands
    )


# Random commands


class Maker:
    """Random commands on a random chip.

    Operands lie in the lower half of the buffer, results in the upper.
    """

    def __init__(self, rng: np.random.Generator, lanes: int = LANES, words: int = WORDS) -> None:
        self.rng, self.lanes, self.words = rng, lanes, words
        factors = np.zeros((256 * lanes, 5), np.uint8)
        multipliers = rng.integers(1 << 30, 1 << 31, len(factors)).astype("<u4")
        factors[:, :4] = multipliers.view(np.uint8).reshape(-1, 4)
        factors[:, 4] = rng.integers(32, 46, len(factors))
        self.sequence = Chain(
            rng.integers(0, 256, (words, lanes), np.uint8),
            factors.reshape(-1, lanes),
            rng.integers(0, 256, 64 * 256, np.uint8),
        )
        self.limit = words // 2
        self.free = self.limit  # first word in the upper half that no command has taken
        self.full = False

    def pick(self, least: int, most: int) -> int:
        """A number from least to most, both included."""
        return int(self.rng.integers(least, most + 1))

    def flip(self, chance: float = 0.5) -> int:
        return int(self.rng.random() < chance)

    def operand(self, size: int) -> int:
        """A place for an operand."""
        return self.pick(0, max(0, self.limit - size))

    def place(self, size: int) -> int:
        """A place for a result, that no other has."""
        self.free += self.pick(0, 3)
        self.full |= self.free + size > self.words - SCRATCH
        self.free += size
        return self.free - size

    def ring(
        self, letter: str, rows: int, blocks: int, width: int, *, result: bool, exact: bool = False
    ) -> dict[str, int]:
        """A ring of at least so many slots, perhaps with gaps."""
        gap = 0 if exact else self.flip(0.3) * self.pick(0, 5)
        slots = rows if exact or not self.flip(0.3) else rows + self.pick(0, 3)
        block_words = width + gap
        slot_words = blocks * block_words + gap
        size = slots * slot_words
        if not result and size > self.limit:
            slots = max(1, self.limit // slot_words)
            size = slots * slot_words
            self.full |= size > self.limit
        base = self.place(size) if result else self.operand(size)
        return {
            f"{letter}_base": base,
            f"{letter}_slots": slots,
            f"{letter}_slot_words": slot_words,
            f"{letter}_block_words": block_words,
        }

    def command(
        self, operation: Operation, *, held: int = 0, columns: int = 0
    ) -> list[tuple[dict[str, int], int, int]]:
        """A command, or several that hold sums for one another: (descriptor, row, count).

        The first argument may be forced to some columns.
        """
        lanes, pick, flip = self.lanes, self.pick, self.flip
        plain = operation in (COPY, ADD, MUL)
        narrow = operation is CONV and flip(0.3)
        out_blocks = pick(1, 3)
        out_tail = lanes if flip(0.4) else pick(1, lanes)
        in_blocks = 1 if narrow or operation is not CONV else pick(1, 3)
        in_tail = pick(1, lanes // WINDOW) if narrow else lanes if flip() else pick(1, lanes)
        kernel_rows, kernel_columns = (
            (1, 1) if plain else (pick(1, 3), pick(1, 3)) if flip(0.7) else (pick(1, 7), pick(1, 9))
        )
        dilation = 1 if flip(0.7) else pick(2, 4)
        stride_rows, stride_columns = pick(1, 3), pick(1, 3)
        a_height, a_width = pick(1, 20), pick(1, 24)
        count = pick(1, 4)
        width = columns or (pick(1, 40) if flip(0.8) else pick(1, 5))
        pad_rows, pad_columns = pick(-2, 6), pick(-2, 6)
        if plain and flip(0.8):
            stride_rows, stride_columns, pad_rows, pad_columns = 1, 1, 0, 0
            a_height = 4095
            a_width = 4095
        row = pick(0, 12) if flip(0.8) else pick(0, 3000)
        span = (count - 1) * stride_rows + (kernel_rows - 1) * dilation + 1
        seen = min(
            a_width, (width - 1) * stride_columns + (kernel_columns - 1) * dilation + 1 + max(0, -pad_columns)
        )
        a_blocks = in_blocks if operation is CONV else out_blocks
        d = dict.fromkeys(COMPUTATION.by_name, 0)
        d.update(self.ring("a", min(a_height, span), a_blocks, seen, result=False))
        wide = operation in (CONV, DEPTHWISE)
        a_lane = (
            pick(0, (in_tail if in_blocks == 1 else lanes) - 1)
            if operation is CONV and not narrow and flip(0.4)
            else 0
        )
        o_lane = pick(0, out_tail - 1) if operation is CONV and out_blocks == 1 and not held and flip() else 0
        d.update(a_lane=a_lane, o_lane=o_lane)
        if operation is COPY:
            d.update(self.lanes_of_a_copy())
        if wide:
            per_column = (
                1 if operation is DEPTHWISE else in_tail if narrow else (in_blocks - 1) * lanes + in_tail
            )
            size = kernel_rows * kernel_columns * per_column * lanes
            self.full |= size * out_blocks > self.limit * lanes
            d.update(w_block_bytes=size + flip(0.3) * pick(0, 40), w_slots=1)
            d.update(w_base=pick(0, max(0, self.limit * lanes - d["w_block_bytes"] * out_blocks)))
        d.update(
            kind=Kind.COMPUTATION, operation=operation, narrow=narrow, first=1, last=1, a_height=a_height,
            a_width=a_width, a_zero=pick(-128, 255), a_unsigned=flip(), kernel_rows=kernel_rows,
            kernel_columns=kernel_columns, stride_rows=stride_rows, stride_columns=stride_columns,
            dilation=dilation, pad_rows=pad_rows, pad_columns=pad_columns, in_blocks=in_blocks,
            in_tail=in_tail, out_blocks=out_blocks, out_tail=out_tail, o_width=width, o_step=1, o_row_step=1,
            b_zero=pick(-128, 255), b_unsigned=flip(),
        )  # fmt: skip
        self.finish(d)
        if operation in (ADD, MUL):
            vector = operation is MUL and flip()
            d.update(self.ring("b", count, out_blocks, 1 if vector else width, result=False), b_vector=vector)
            d.update(a_multiplier=pick(-(1 << 21), 1 << 21), b_multiplier=pick(-(1 << 21), 1 << 21))
        step, row_step, o_row = (1, 1, 0) if flip(0.8) else (pick(1, 3), pick(1, 3), pick(0, 3))
        d.update(o_step=step, o_row_step=row_step, o_row=o_row)
        d.update(self.ring("o", (count - 1) * row_step + 1, out_blocks, (width - 1) * step + 1, result=True))
        if not held or operation in (ADD, MUL):
            return [(d, row, count)]
        # The same again, with other operands: sums are held in between, in the command's own place or in a
        # common one.
        d.update(self.ring("b", count, out_blocks, width * WINDOW, result=True))
        parts = [dict(d, first=k == 0, last=k == held) for k in range(held + 1)]
        for part in parts[1:]:
            part["a_base"] = self.operand(d["a_slots"] * d["a_slot_words"])
            part["a_zero"] = pick(-128, 255)
        return [(part, row, count) for part in parts]

    def lanes_of_a_copy(self) -> dict[str, int]:
        """All lanes, or some of them, each from any."""
        if self.flip(0.3):
            return {}
        a_step, o_step = self.pick(0, 3), self.pick(1, 3)
        most = (self.lanes - 1) // max(a_step, o_step) + 1
        count = self.pick(1, most)
        fields = {"lanes": count, "a_lane_step": a_step, "o_lane_step": o_step}
        return fields | {
            "a_lane": self.pick(0, self.lanes - 1 - a_step * (count - 1)),
            "o_lane": self.pick(0, self.lanes - 1 - o_step * (count - 1)),
        }

    def finish(self, d: dict[str, int]) -> None:
        """Random drain."""
        pick, flip = self.pick, self.flip
        d["has_bias"] = flip()
        d["bias"] = self.operand(4 * d["out_blocks"])
        d["bias_value"] = flip(0.3) * pick(-(1 << 31), (1 << 31) - 1)
        d["scale"] = int(self.rng.integers(3))
        d["factors"] = pick(0, 250)
        d["multiplier"], d["shift"] = pick(1 << 30, (1 << 31) - 1), pick(1, 62) if flip(0.2) else pick(30, 48)
        d["o_zero"] = pick(-128, 255)
        d["low"], d["high"] = (
            (-128, 127)
            if flip()
            else (0, 255)
            if flip()
            else tuple(sorted((pick(-256, 255), pick(-256, 255))))
        )
        d["has_table"], d["table_id"] = flip(0.3), pick(0, 63)

    def add(self, operation: Operation, *, held: int = 0, wait: int = 0, columns: int = 0) -> bool:
        """Add a command to the sequence, unless its buffer is full."""
        before = self.free
        commands = self.command(operation, held=held, columns=columns)
        if self.full or any(d["o_width"] * count > 512 for d, _, count in commands):
            self.full, self.free = False, before
            return False
        # Held sums are read by the command after: that one waits.
        self.sequence.commands += [
            (d, row, count, 0 if not d["first"] else wait) for d, row, count in commands
        ]
        return True


def sequences(
    seed: int,
    number: int,
    operations: Sequence[Operation],
    *,
    length: int,
    held: float = 0.2,
    busy: bool = False,
) -> list[Chain]:
    rng = np.random.default_rng(seed)
    chains: list[Chain] = []
    while len(chains) < number:
        maker = Maker(rng)
        for _ in range(length):
            operation = operations[int(rng.integers(len(operations)))]
            maker.add(
                operation,
                held=int(rng.integers(1, 3)) if rng.random() < held else 0,
                wait=int(rng.integers(0, 4)),
            )
        if busy:
            reads, writes, holds = (int(rng.integers(most)) for most in (257, 257, 200))
            maker.sequence.contention = (
                reads,
                writes,
                holds * int(rng.integers(2)),
                int(rng.integers(1, 1 << 30)),
            )
        if maker.sequence.commands:
            chains.append(maker.sequence)
    return chains


@pytest.mark.parametrize("operation", list(Operation))
def test_each_operation_does_what_the_emulator_does(bench: Path, operation: Operation) -> None:
    check(bench, sequences(int(operation), 30, [operation], length=2, held=0))


def test_sums_are_held_from_one_command_to_the_next(bench: Path) -> None:
    check(bench, sequences(20, 40, [CONV, DEPTHWISE, SUM, MAX, COPY], length=2, held=1))


def test_commands_one_after_the_other_overlap_without_harm(bench: Path) -> None:
    check(bench, sequences(21, 40, list(Operation), length=10))


def test_other_requesters_of_the_buffer_change_nothing(bench: Path) -> None:
    check(bench, sequences(22, 40, list(Operation), length=6, busy=True))


def lone(rng: np.random.Generator, *commands: tuple[Mapping[str, int], int, int]) -> Chain:
    """Commands on a random chip, each after the one before is done."""
    sequence = Maker(rng).sequence
    sequence.commands = [(d, row, count, 0) for d, row, count in commands]
    return sequence


def plain(operation: Operation, width: int, **more: int) -> dict[str, int]:
    """A computation of one block over rows of `width` columns: operand at 0, weights 1024, result 2048."""
    d = dict.fromkeys(COMPUTATION.by_name, 0)
    d.update(
        kind=Kind.COMPUTATION, operation=operation, first=1, last=1, kernel_rows=1, kernel_columns=1,
        stride_rows=1, stride_columns=1, dilation=1, a_slots=4, a_slot_words=width + 8,
        a_block_words=width + 8, a_height=9, a_width=width, in_blocks=1, in_tail=LANES, out_blocks=1,
        out_tail=LANES, o_base=2048, o_slots=2, o_slot_words=width, o_block_words=width, o_width=width,
        o_step=1, o_row_step=1, low=-128, high=127, scale=Scale.SCALAR, multiplier=1 << 30, shift=34,
        w_slots=1, w_base=1024 * LANES, w_block_bytes=LANES * LANES, b_base=512, b_slots=1,
        b_slot_words=width, b_block_words=width, a_multiplier=3, b_multiplier=-5,
    )  # fmt: skip
    return {**d, **more}


def test_a_whole_map_is_summed_in_one_column(bench: Path) -> None:
    rng = np.random.default_rng(23)
    operand = {"a_slots": 16, "a_slot_words": 14, "a_block_words": 16 * 14, "a_height": 14, "a_width": 14}
    d = plain(SUM, 1, kernel_rows=14, kernel_columns=14, out_blocks=5, out_tail=7, o_slot_words=5, **operand)
    check(bench, [lone(rng, (d, 0, 1)), lone(rng, ({**d, "operation": MAX, "scale": Scale.NONE}, 0, 1))])


@pytest.mark.parametrize("operation", list(Operation))
def test_the_accumulators_are_filled_to_the_last_column(bench: Path, operation: Operation) -> None:
    rng = np.random.default_rng(24)
    check(
        bench,
        [
            lone(rng, (plain(operation, 128, out_blocks=1, o_slots=4), 1, 4)),
            lone(rng, (plain(operation, 512, o_slots=1, a_slots=1), 2, 1)),
        ],
    )


def test_kernel_rows_outside_the_operand_are_skipped_with_their_weights(bench: Path) -> None:
    rng = np.random.default_rng(25)
    chains = []
    for operation in (CONV, DEPTHWISE, SUM, MAX):
        for dilation in (1, 3):
            for pad_rows in range(-10, 14, 2):
                window = {
                    "kernel_rows": 4,
                    "kernel_columns": 3,
                    "dilation": dilation,
                    "pad_rows": pad_rows,
                    "pad_columns": 1,
                }
                weights = {"w_base": 1024 * LANES + 7, "w_block_bytes": 12 * LANES * LANES + 3}
                d = plain(
                    operation, 9, out_blocks=2, out_tail=5, o_slot_words=18, has_bias=1, **window, **weights
                )
                chains.append(lone(rng, (d, 0, 2), (d, 4, 1)))
    check(bench, chains)


BAD = {
    "count": ({}, 0), "kind": ({"kind": 1}, 1), "operation": ({"operation": 7}, 1),
    "scale": ({"scale": 3}, 1), "o_width": ({"o_width": 0}, 1), "kernel_rows": ({"kernel_rows": 0}, 1),
    "kernel_columns": ({"kernel_columns": 0}, 1), "dilation": ({"dilation": 0}, 1),
    "out_blocks": ({"out_blocks": 0}, 1), "no tail": ({"out_tail": 0}, 1),
    "long tail": ({"out_tail": LANES + 1}, 1), "a_slots": ({"a_slots": 0}, 1), "o_slots": ({"o_slots": 0}, 1),
    "b_slots": ({"first": 0, "b_slots": 0}, 1), "in_blocks": ({"in_blocks": 0}, 1),
    "in_tail": ({"in_tail": 0}, 1), "long in_tail": ({"in_tail": LANES + 1}, 1),
    "w_slots": ({"w_slots": 0}, 1), "narrow blocks": ({"narrow": 1, "in_tail": 3, "in_blocks": 2}, 1),
    "narrow tail": ({"narrow": 1, "in_tail": LANES // WINDOW + 1}, 1), "pixels": ({"o_width": 171}, 3),
    "shift 0": ({"shift": 0}, 1), "shift 63": ({"shift": 63}, 1),
    "window of COPY": ({"operation": COPY, "kernel_rows": 2}, 1),
    "held ADD": ({"operation": ADD, "last": 0}, 1), "a_height": ({"a_height": 0}, 1),
    "a_width": ({"a_width": 0}, 1), "a_lane of COPY": ({"operation": COPY, "lanes": 1, "a_lane": LANES}, 1),
    "o_lane of COPY": ({"operation": COPY, "lanes": 1, "o_lane": LANES}, 1),
    "steps of lanes": ({"operation": COPY, "lanes": 3, "o_lane_step": 8}, 1),
    "a_lane": ({"in_tail": 4, "a_lane": 4}, 1),
    "narrow a_lane": ({"narrow": 1, "in_tail": 3, "a_lane": 1}, 1),
    "o_lane": ({"out_tail": 4, "o_lane": 4}, 1), "o_lane of blocks": ({"out_blocks": 2, "o_lane": 4}, 1),
    "o_lane of held sums": ({"last": 0, "b_slots": 1, "o_lane": 4}, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_fields_without_sense_stop_after_the_commands_before(bench: Path, name: str) -> None:
    change, count = BAD[name]
    good = plain(CONV, 20)
    sequence = lone(np.random.default_rng(26), (good, 0, 2), (good, 1, 1))
    sequence.commands.append(({**good, **change}, 3, count, 2))
    sequence.commands.append((good, 0, 1, 9))
    (outcome,) = simulate(bench, [sequence])
    assert (outcome.error, outcome.done) == (Error.FIELD, 2)
    if name != "kind":
        error, done, _ = expect(sequence)
        assert (error, done) == (Error.FIELD, 2)


BEHIND = {
    "operand": {"a_base": WORDS - 10}, "far operand": {"a_slot_words": 1 << 19},
    "operand block": {"in_blocks": 2, "a_block_words": 60000},
    "result": {"o_base": WORDS - 19}, "far result": {"o_slots": 4, "o_slot_words": 1 << 19},
    "result step": {"o_step": 15, "o_base": WORDS - 200},
    "weights": {"w_base": WORDS * LANES - 100}, "far weights": {"w_base": (1 << 28) - 1},
    "many weights": {"kernel_rows": 9, "kernel_columns": 4095},
    "weights of a block": {"out_blocks": 2, "w_block_bytes": (1 << 24) - 1},
    "bias": {"has_bias": 1, "bias": WORDS - 3},
    "held": {"first": 0, "b_base": WORDS - 79}, "to be held": {"last": 0, "b_base": WORDS - 79},
    "second": {"operation": ADD, "b_base": WORDS - 19},
    "factors": {"scale": Scale.CHANNEL, "factors": 255, "out_blocks": 2},
    "all blocks": {"out_blocks": 1023, "out_tail": 1, "o_block_words": 60000},
}  # fmt: skip


def test_all_may_end_where_the_buffer_and_the_factors_end(bench: Path) -> None:
    rng = np.random.default_rng(30)
    ends = {
        "a_base": (WORDS - 20, {"a_slots": 1}), "b_base": (WORDS - 20, {"operation": ADD}),
        "o_base": (WORDS - 20, {"o_slots": 1}), "w_base": ((WORDS - LANES) * LANES, {}),
        "bias": (WORDS - 4, {"has_bias": 1}), "factors": (255, {"scale": Scale.CHANNEL}),
    }  # fmt: skip
    check(
        bench,
        [lone(rng, ({**plain(CONV, 20), **more, name: place}, 0, 1)) for name, (place, more) in ends.items()],
    )


@pytest.mark.parametrize("name", BEHIND)
def test_addresses_behind_the_end_stop_after_the_commands_before(bench: Path, name: str) -> None:
    good = plain(CONV, 20)
    sequence = lone(np.random.default_rng(27), (good, 0, 2), (good, 1, 1))
    sequence.commands.append(({**good, **BEHIND[name]}, 2, 2, 2))
    sequence.commands.append((good, 0, 1, 9))
    (outcome,) = simulate(bench, [sequence])
    error, done, _ = expect(sequence)
    assert (outcome.error, outcome.done) == (error, done) == (Error.BUFFER, 2)


def test_an_error_leaves_nothing_behind_after_reset(bench: Path) -> None:
    rng = np.random.default_rng(28)
    good = plain(CONV, 20)
    changes = {"o_base": WORDS - 9}, {}, {"a_base": WORDS - 3}, {}, {"scale": 3}, {}
    check(bench, [lone(rng, (good, 0, 2), ({**good, **change}, 3, 1)) for change in changes])


# Cycles


def cycles(
    bench: Path, d: Mapping[str, int], count: int = 1, number: int = 5
) -> tuple[float, dict[str, int]]:
    """(cycles of a command among others like it, events of all)."""
    runs = []
    for commands in (1, 1 + number):
        sequence = lone(np.random.default_rng(29))
        sequence.commands = [(d, 0, count, 9)] * commands
        (outcome,) = simulate(bench, [sequence])
        assert not outcome.error
        runs.append(outcome.events)
    return (runs[1]["busy"] - runs[0]["busy"]) / number, runs[1]


@pytest.mark.parametrize("width", [18, 56])
def test_passes_of_a_convolution_follow_one_another_without_a_gap(bench: Path, width: int) -> None:
    more = {
        "kernel_rows": 3,
        "kernel_columns": 3,
        "in_blocks": 2,
        "out_blocks": 2,
        "a_slots": 3,
        "a_slot_words": 2 * width,
        "a_block_words": width,
    }
    d = plain(
        CONV, width, o_slot_words=2 * width, w_block_bytes=18 * LANES * LANES, w_base=LANES * 1000, **more
    )
    cycles_taken, events = cycles(bench, {**d, "a_height": 30, "a_width": 60})
    assert events["array"] == 6 * 36 * width
    assert 36 * width <= cycles_taken <= 36 * width + 4


# Kernel, stride, columns: cycles of a row of the result and a row of the kernel, without what its windows
# share at the beginning.
DEPTHWISE_ROWS = {
    (3, 1, 40): 10,
    (3, 1, 41): 11,
    (5, 1, 30): 10,
    (7, 1, 32): 8 + 8,
    (3, 2, 30): 15,
    (5, 2, 30): 15,
    (3, 3, 20): 20,
}


@pytest.mark.parametrize(("kernel", "stride", "width"), DEPTHWISE_ROWS)
def test_depthwise_makes_neighbouring_columns_in_one_cycle(
    bench: Path, kernel: int, stride: int, width: int
) -> None:
    more = {
        "kernel_rows": 3,
        "kernel_columns": kernel,
        "stride_columns": stride,
        "out_blocks": 4,
        "a_slot_words": 70,
        "a_slots": 3,
    }
    d = plain(
        DEPTHWISE,
        width,
        o_slot_words=4 * width,
        w_block_bytes=3 * kernel * LANES,
        o_block_words=width,
        a_width=70,
        **more,
    )
    cycles_taken, _ = cycles(bench, d)
    shared = 0 if stride > 2 else 1 if kernel <= 5 else 2  # groups of kernel columns
    wanted = 4 * max(3 * (DEPTHWISE_ROWS[kernel, stride, width] + shared), width + 1)
    weights = 4 * (-(-3 * kernel // WINDOW) + 1)  # cycles in which the buffer gives weights
    assert wanted <= cycles_taken <= wanted + weights + 4


@pytest.mark.parametrize(("operation", "vector"), [(ADD, 0), (MUL, 1), (COPY, 0)])
def test_elementwise_operations_take_a_cycle_a_column(bench: Path, operation: Operation, vector: int) -> None:
    cycles_taken, _ = cycles(
        bench,
        plain(
            operation, 50, out_blocks=4, o_slot_words=200, b_slot_words=200, a_slot_words=240, b_vector=vector
        ),
    )
    assert 200 <= cycles_taken <= 204
