"""Control and memory side of the accelerator: sequencer, queues, DMA, registers; the emulator says what is right."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.accel import encode as encode_plan
from codegen.source import Unsupported
from hw_rtl.build import RTL, BuildFailed, Model, Parameters, available, lint
from hw_rtl.emulator import Emulation, Hazard, ProgramError, emulate
from hw_rtl.run import Dram, Failure, RunResult, run
from lfopt.app.streams import memory as image
from lfopt.isa.program import Command, assemble, encode
from lfopt.isa.tables import LOOP_WORDS, NO_WAIT, PAYLOAD_WORDS, WORD_BYTES, Class, Counter, Error, Kind, Opcode, Queue
from tests.rtl.networks import random_plan
from tests.rtl.test_emulator import ERRORS

pytestmark = pytest.mark.skipif(bool(available()), reason=f"not found: {available()}")

FITTING = (LOOP_WORDS - 1) // (1 + PAYLOAD_WORDS)  # DESCRIBE commands, in a loop that is as long as may be
MEMORY_BYTES = 1 << 18
WRITABLE = (1 << 17, MEMORY_BYTES - 4096)  # guards before and behind
CHIP_WORDS = 2048  # that random programs use
LIMIT_CYCLES = 400_000
WATCHDOG_CYCLES = 2000


@pytest.fixture(scope="module")
def memory() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, MEMORY_BYTES, np.uint8)


def text(lines: str) -> bytes:
    return encode(assemble(lines.splitlines()))


def ran(model: Model, program: bytes, memory: np.ndarray, dram: Dram | None = None, **more: int) -> RunResult:
    return run(
        model, program, memory, write_region=WRITABLE, watchdog_cycles=WATCHDOG_CYCLES, **{"limit_cycles": LIMIT_CYCLES, **more}, dram=dram
    )  # fmt: skip


def agrees(result: RunResult, wanted: Emulation) -> None:
    assert result.failure is None
    assert result.finished
    different = np.flatnonzero(result.memory != wanted.memory)
    assert not different.size, f"{different.size} bytes differ, the first at {different[0]:#x}"
    for of in Class:
        assert result.counters[Counter[f"READ_{of.name}"]] == wanted.read[of], of
        assert result.counters[Counter[f"WRITTEN_{of.name}"]] == wanted.written[of], of
    assert result.counters[Counter.LOADS] == wanted.commands[Opcode.LOAD]
    assert result.counters[Counter.STORES] == wanted.commands[Opcode.STORE]
    assert result.counters[Counter.EXECS] == wanted.commands[Opcode.EXEC]


# Random programs


def transfer(rng: np.random.Generator, store: bool, loops: Sequence[int], lanes: int = 16) -> tuple[Mapping[str, int], Mapping[str, int]] | None:
    """A descriptor and a command inside loops of so many turns (the innermost first), or None if the shapes do not fit."""
    columns, blocks, tail = int(rng.integers(1, 41)), int(rng.integers(1, 5)), int(rng.choice([rng.integers(1, lanes + 1), lanes]))
    count, slots = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    command: dict[str, int] = {"count": count}
    highest: dict[str, int] = {}
    for name, most in (("row", 4), ("slot", 3), ("from_block", 1), ("to_block", 1)):
        steps = [int(rng.integers(-most, most + 1)) if rng.random() < 0.6 else 0 for _ in loops]
        lowest = sum(min(0, step * (turns - 1)) for step, turns in zip(steps, loops, strict=True))
        command[name] = int(rng.integers(0, 3)) - lowest
        highest[name] = command[name] + sum(max(0, step * (turns - 1)) for step, turns in zip(steps, loops, strict=True))
        command |= {f"{name}_step{k}": step for k, step in enumerate(steps)}
    dram_block, chip_block = (highest["to_block"], highest["from_block"]) if store else (highest["from_block"], highest["to_block"])
    full, last = columns * lanes // 16, -(-columns * tail // 16)
    block_beats = full if rng.random() < 0.7 else full + int(rng.integers(0, 9))
    line = (blocks - 1) * block_beats + last
    row_beats = line if rng.random() < 0.5 else line + int(rng.integers(0, 20))
    beats = (highest["row"] + count - 1) * row_beats + dram_block * block_beats + line
    block_words = columns + int(rng.integers(0, 3))
    slot_words = (blocks + chip_block) * block_words + int(rng.integers(0, 3))
    first, limit = WRITABLE if store or rng.random() < 0.3 else (0, MEMORY_BYTES)
    spare_beats, spare_words = (limit - first) // 16 - beats, CHIP_WORDS - slots * slot_words
    if spare_beats < 0 or spare_words < 0:
        return None
    descriptor = {
        "class_": int(rng.integers(0, 5)), "dram": first + 16 * int(rng.integers(0, spare_beats + 1)), "row_beats": row_beats,
        "block_beats": block_beats, "columns": columns, "blocks": blocks, "tail": tail, "base": int(rng.integers(0, spare_words + 1)),
        "slots": slots, "slot_words": slot_words, "block_words": block_words,
    }  # fmt: skip
    return descriptor, command


def body(rng: np.random.Generator, loops: Sequence[int], lanes: int) -> Iterator[Command]:
    for _ in range(int(rng.integers(1, 5))):
        if len(loops) < 3 and rng.random() < 0.4:
            turns = int(rng.integers(1, 4))
            yield Command(Opcode.LOOP, {"count": turns})
            yield from body(rng, (turns, *loops), lanes)
            yield Command(Opcode.END)
            continue
        store = bool(rng.random() < 0.5)
        if (found := transfer(rng, store, loops, lanes)) is not None:
            entry = int(rng.integers(0, 4))
            yield Command(Opcode.DESCRIBE, found[0], entry, Kind.TRANSFER)
            waits = {name: int(rng.choice([0, 1, 2, NO_WAIT])) for name in ("wait_load", "wait_store", "wait_exec")}
            yield Command(Opcode.STORE if store else Opcode.LOAD, {"descriptor": entry, **found[1], **waits})


def random_program(seed: int, memory: np.ndarray, lanes: int = 16) -> tuple[list[Command], Emulation]:
    """A program whose waits order what must be ordered, and what it does."""
    rng = np.random.default_rng(seed)
    everything = {"columns": CHIP_WORDS, "blocks": 1, "tail": lanes, "slots": 1, "class_": Class.INPUT}
    strict = {"wait_load": 0, "wait_store": 0, "wait_exec": NO_WAIT}
    commands = [
        Command(Opcode.DESCRIBE, everything, 9, Kind.TRANSFER),
        Command(Opcode.LOAD, {"descriptor": 9, "count": 1, **strict}),
        *body(rng, (), lanes),
        Command(Opcode.HALT),
    ]
    for _ in range(2):
        try:
            return commands, emulate(encode(commands), memory, lanes=lanes, write_region=WRITABLE, check=True)
        except Hazard:
            commands = [replace(command, values={**command.values, **strict}) if "wait_load" in command.values else command for command in commands]
    raise AssertionError("a program that waits for everything has no hazard")


@pytest.mark.parametrize("seed", range(8))
def test_random_transfers_do_what_the_emulator_does(model: Model, memory: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for k in range(15):
        commands, wanted = random_program(100 * seed + k, memory)
        dram = (Dram(), Dram(latency_cycles=1), Dram(latency_cycles=int(rng.integers(2, 200)), stall=int(rng.integers(0, 230)), seed=k + 1))[k % 3]
        agrees(ran(model, encode(commands), memory, dram), wanted)


# Corrupted programs


def stopped(result: RunResult, memory: np.ndarray) -> None:
    """Nothing outside the region has changed, and the accelerator has stopped, or is still at work."""
    assert np.array_equal(result.memory[: WRITABLE[0]], memory[: WRITABLE[0]])
    assert np.array_equal(result.memory[WRITABLE[1] :], memory[WRITABLE[1] :])
    # A watchdog counts standstill, so what has not finished has moved: corrupted counts make programs long.
    assert result.finished or result.cycles > LIMIT_CYCLES // 2
    assert result.failure is None or result.failure.code is not Error.TIMEOUT


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 104))])
def test_corrupted_programs_stop_and_write_nowhere_else(model: Model, memory: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    failures = 0
    for k in range(40):
        commands, _ = random_program(1000 * seed + k % 4, memory)
        words = bytearray(encode(commands))
        if k % 4 == 3:
            at = 16 * int(rng.integers(0, len(words) // 16))
            words[at : at + 16] = rng.bytes(16)
            words[at] = words[at] & 0xF0 | int(rng.integers(0, 8))
        else:
            for _ in range(int(rng.integers(1, 4))):
                at = int(rng.integers(0, len(words)))
                words[at] ^= 1 << int(rng.integers(0, 8))
        result = ran(model, bytes(words), memory, Dram(stall=60 * (k & 1), seed=k + 1), limit_cycles=60_000)
        stopped(replace(result, cycles=LIMIT_CYCLES) if not result.finished and result.cycles > 50_000 else result, memory)
        failures += result.failure is not None
    assert failures > 10


COMPUTED = """
describe 0 transfer class=input columns=9 blocks=2 tail=5 row_beats=12 block_beats=9 slots=4 slot_words=18 block_words=9
describe 1 transfer class=weight dram=0x4000 columns=500 blocks=1 tail=16 base=1024 slots=1
describe 2 transfer class=parameter dram=0x6000 columns=8 blocks=1 tail=16 base=900 slots=1
describe 3 transfer class=parameter space=factors dram=0x7000 columns=10 blocks=1 tail=16 slots=1
describe 4 transfer class=output dram=0x21000 columns=9 blocks=2 tail=7 row_beats=13 block_beats=9 base=200 slots=2 slot_words=18 block_words=9
describe 5 computation operation=conv first=1 last=1 a_slots=4 a_slot_words=18 a_block_words=9 a_height=12 a_width=9 a_zero=3 kernel_rows=3 \
kernel_columns=3 stride_rows=1 stride_columns=1 dilation=1 pad_rows=1 pad_columns=1 in_blocks=2 in_tail=5 out_blocks=2 out_tail=7 o_base=300 \
o_slots=2 o_slot_words=18 o_block_words=9 o_width=9 o_step=1 o_row_step=1 low=-128 high=127 scale=channel has_bias=1 bias=900 w_base=0x4000 \
w_block_bytes=3024 w_slots=1
describe 6 computation operation=copy first=1 last=1 a_base=300 a_slots=2 a_slot_words=18 a_block_words=9 a_height=12 a_width=9 a_zero=3 \
kernel_rows=1 kernel_columns=1 stride_rows=1 stride_columns=1 dilation=1 out_blocks=2 out_tail=7 o_base=200 o_slots=2 o_slot_words=18 \
o_block_words=9 o_width=9 o_step=1 o_row_step=1 low=-100 high=100
load 1 count=1
load 2 count=1
load 3 count=1
load 0 count=2
loop 10
load 0 count=1 row=2 slot=2 row_step0=1 slot_step0=1 wait_exec=1
exec 5 count=1 row_step0=1 wait_load=0
exec 6 count=1 row_step0=1 wait_exec=0 wait_store=1
store 4 count=1 row_step0=1 slot_step0=1 wait_exec=0
end
exec 5 count=2 row=10
exec 6 count=2 row=10 wait_exec=0 wait_store=0
store 4 count=2 row=10 slot=10 wait_exec=0
halt
""".replace("\\\n", "")


@pytest.fixture(scope="module")
def filled(memory: np.ndarray) -> np.ndarray:
    """Memory with factors that scale sums to bytes."""
    found = memory.copy()
    shifts = np.arange(32, dtype=np.uint64) % 3 + 40
    factors = (shifts << np.uint64(32) | np.uint64(1 << 30)).view(np.uint8).reshape(32, 8)[:, :5]
    found[0x7000 : 0x7000 + factors.size] = factors.reshape(-1)
    return found


@pytest.mark.parametrize("dram", [Dram(), Dram(latency_cycles=3, stall=120), Dram(latency_cycles=300)])
def test_loads_computations_and_stores_work_together(model: Model, filled: np.ndarray, dram: Dram) -> None:
    program = text(COMPUTED)
    agrees(ran(model, program, filled, dram), emulate(program, filled, write_region=WRITABLE, check=True))


LOOKED_UP = """
describe 1 transfer class=input dram=0x100 columns=40 blocks=1 tail=16 slots=1
describe 2 transfer class=parameter space=tables dram=0x1000 columns=16 blocks=1 tail=16 base=3 slots=1 row_beats=16
describe 3 computation operation=copy first=1 last=1 a_slots=1 a_slot_words=40 a_block_words=40 a_height=4 a_width=40 kernel_rows=1 \
kernel_columns=1 stride_rows=1 stride_columns=1 dilation=1 out_blocks=1 out_tail=16 o_base=100 o_slots=4 o_slot_words=40 o_block_words=40 o_width=40 \
o_step=1 o_row_step=1 low=-128 high=127 has_table=1 table_id=3
describe 4 transfer class=output dram=0x20000 columns=40 blocks=1 tail=16 base=100 slots=4 slot_words=40 row_beats=40
load 1 count=1
load 2 count=1
exec 3 count=1 wait_load=0
exec 3 count=1 row=1
load 2 count=1 row=1 wait_exec=0
exec 3 count=1 row=2 wait_load=0
exec 3 count=1 row=3
store 4 count=4 wait_exec=0
halt
""".replace("\\\n", "")


def test_a_table_that_is_loaded_anew_is_the_one_that_is_looked_into(model: Model, memory: np.ndarray) -> None:
    """Both of the two that are live hold the old one."""
    program = text(LOOKED_UP)
    agrees(ran(model, program, memory), emulate(program, memory, write_region=WRITABLE, check=True))


PAIRED = """
describe 1 transfer class=input dram=0x100 columns=160 blocks=1 tail=16 slots=1
describe 3 computation operation=add first=1 last=1 a_slots=1 a_slot_words=160 a_block_words=40 a_height=1 a_width=20 kernel_rows=1 \
kernel_columns=1 stride_rows=1 stride_columns=1 dilation=1 b_base=7 b_slots=1 b_slot_words=160 b_block_words=30 a_multiplier=1 b_multiplier=1 \
out_blocks=1 out_tail=16 o_base=200 o_slots=1 o_slot_words=60 o_block_words=20 o_width=20 o_step=1 o_row_step=1 low=-128 high=127
describe 4 transfer class=output dram=0x20000 columns=20 blocks=1 tail=16 base=220 slots=1 slot_words=20 row_beats=20
load 1 count=1
exec 3 count=1 from_block=3 to_block=1 wait_load=0
store 4 count=1 wait_exec=0
halt
""".replace("\\\n", "")


def test_both_operands_begin_at_the_block_that_is_read(model: Model, memory: np.ndarray) -> None:
    program = text(PAIRED)
    wanted = emulate(program, memory, write_region=WRITABLE)
    agrees(ran(model, program, memory), wanted)
    first, second = (memory[start : start + 320].view(np.int8).astype(int) for start in (0x100 + 16 * 120, 0x100 + 16 * 97))
    assert np.array_equal(wanted.memory[0x20000 : 0x20000 + 320].view(np.int8), (first + second).clip(-128, 127))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 62))])
def test_corrupted_computations_stop(model: Model, filled: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(2000 + seed)
    clean = text(COMPUTED)
    failures = 0
    for k in range(60):
        words = bytearray(clean)
        for _ in range(int(rng.integers(1, 3))):
            words[int(rng.integers(0, len(words)))] ^= 1 << int(rng.integers(0, 8))
        result = ran(model, bytes(words), filled, Dram(stall=60 * (k & 1), seed=k + 1), limit_cycles=60_000)
        stopped(replace(result, cycles=LIMIT_CYCLES) if not result.finished and result.cycles > 50_000 else result, filled)
        failures += result.failure is not None
    assert failures > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 3000, 50))
def test_corrupted_plans_stop(model: Model, seed: int) -> None:
    """Programs of random plans with a few bits flipped: they end, and write in their own maps alone."""
    rng, tried = np.random.default_rng(3000 + seed), 0
    for k in range(seed, seed + 50):
        plan, graph, inputs = random_plan(20_000 + k)
        try:
            stream = encode_plan(plan, graph)
        except Unsupported:
            continue
        before, words = image(stream, inputs), bytearray(stream.program)
        for _ in range(int(rng.integers(1, 4))):
            words[int(rng.integers(0, len(words)))] ^= 1 << int(rng.integers(0, 8))
        region = (stream.maps_address, stream.memory_bytes)
        result = run(model, bytes(words), before, write_region=region, watchdog_cycles=WATCHDOG_CYCLES, limit_cycles=60_000)
        assert result.finished or result.cycles > 50_000
        assert result.failure is None or result.failure.code is not Error.TIMEOUT
        assert (result.memory[: stream.maps_address] == before[: stream.maps_address]).all()
        tried += 1
    assert tried > 20


# Errors, one by one

TRANSFER = "transfer class=input dram=0x100 columns=20 blocks=1 tail=16 slots=1 row_beats=20"

FAILURES = {
    "load 1 count=1": (Error.DESCRIPTOR, Queue.LOAD, 0),
    f"describe 1 {TRANSFER}\nload 1 count=1\nexec 1 count=1": (Error.DESCRIPTOR, Queue.EXEC, 0),
    f"describe 1 {TRANSFER}\nload 1 count=1 wait_load=0\nload 1": (Error.FIELD, Queue.LOAD, 1),
    f"describe 1 {TRANSFER} space=tables\nstore 1 count=1": (Error.FIELD, Queue.STORE, 0),
    f"describe 1 {TRANSFER} class=6\nload 1 count=1": (Error.FIELD, Queue.LOAD, 0),
    f"describe 1 {TRANSFER} tail=17\nload 1 count=1": (Error.FIELD, Queue.LOAD, 0),
    f"describe 1 {TRANSFER} base=16365\nload 1 count=1": (Error.BUFFER, Queue.LOAD, 0),
    f"describe 1 {TRANSFER} base=252 columns=21 space=factors\nload 1 count=1": (Error.BUFFER, Queue.LOAD, 0),
    f"describe 1 {TRANSFER} base=63 columns=17 space=tables\nload 1 count=1": (Error.BUFFER, Queue.LOAD, 0),
    f"describe 1 {TRANSFER} base=16365 dram=0x20000\nstore 1 count=1": (Error.BUFFER, Queue.STORE, 0),
    f"describe 1 {TRANSFER}\nload 1 count=1 wait_load=0\nload 1 count=1 row=65535": (Error.REGION, Queue.LOAD, 1),
    f"describe 1 {TRANSFER}\nstore 1 count=1": (Error.REGION, Queue.STORE, 0),
    f"describe 1 {TRANSFER} dram=0x1fff0\nstore 1 count=1": (Error.REGION, Queue.STORE, 0),
    f"{LOOKED_UP.splitlines()[3]} scale=channel factors=250\nexec 3 count=1\nexec 3 count=1 factor=6": (Error.BUFFER, Queue.EXEC, 1),
    "loop 0\nend": (Error.LOOP, Queue.SEQUENCER, 0),
    "end": (Error.LOOP, Queue.SEQUENCER, 0),
    "loop 1\nloop 1\nloop 1\nloop 1": (Error.LOOP, Queue.SEQUENCER, 3),
    "loop 2\nhalt": (Error.LOOP, Queue.SEQUENCER, 1),
    "loop 3\n" + f"describe 1 {TRANSFER}\n" * 86 + "end": (Error.LOOP, Queue.SEQUENCER, 1 + FITTING * (1 + PAYLOAD_WORDS)),
}
FAILURES |= {"\n".join(lines): (code, queue, index) for lines, code, queue, index in ERRORS.values() if queue is Queue.EXEC}


@pytest.mark.parametrize("lines", FAILURES)
def test_errors_name_code_queue_and_place(model: Model, memory: np.ndarray, lines: str) -> None:
    program = text(lines + "\nhalt")
    with pytest.raises(ProgramError) as wanted:
        emulate(program, memory, write_region=WRITABLE)
    assert (wanted.value.code, wanted.value.queue, wanted.value.index) == FAILURES[lines]
    result = ran(model, program, memory)
    assert result.failure == Failure(*FAILURES[lines])
    stopped(result, memory)
    assert result.finished


def test_a_loop_may_have_so_many_words(model: Model, memory: np.ndarray) -> None:
    words, left = "loop 2\n" + f"describe 1 {TRANSFER}\n" * (FITTING - 1), LOOP_WORDS - 2 - (FITTING - 1) * (1 + PAYLOAD_WORDS)
    assert not left % 2
    program = text(words + "load 1 count=1\n" * (left // 2) + "end\nhalt")
    agrees(ran(model, program, memory), emulate(program, memory, write_region=WRITABLE))


def test_a_bad_command_waits_as_a_good_one_does(model: Model, memory: np.ndarray) -> None:
    program = text(f"describe 1 {TRANSFER} columns=600\ndescribe 2 {TRANSFER} tail=17\nload 1 count=1\nload 2 count=1 wait_load=0\nhalt")
    result = ran(model, program, memory)
    assert result.failure == Failure(Error.FIELD, Queue.LOAD, 1)
    assert result.counters[Counter.LOADS] == 1


@pytest.mark.parametrize(("change", "code"), [
    ((0, 0), Error.OPCODE), ((0, 15), Error.OPCODE), ((1, 0x20), Error.RESERVED), ((1, 0x0C), Error.FIELD),
    ((95, 1), Error.RESERVED), ((16, 2), Error.FIELD), ((16, 3), Error.FIELD),
])  # fmt: skip
def test_bad_words_are_found(model: Model, memory: np.ndarray, change: tuple[int, int], code: Error) -> None:
    words = bytearray(text(f"describe 1 {TRANSFER}\nload 1 count=1\nhalt"))
    words[change[0]] = change[1]
    result = ran(model, bytes(words), memory)
    assert result.failure == Failure(code, Queue.SEQUENCER, 0)


def test_words_behind_halt_are_read_in_peace(model: Model, memory: np.ndarray) -> None:
    """The run ends once they are there; from any address, no request for them crosses a page."""
    program = text(f"describe 1 {TRANSFER}\nhalt") + bytes(100 * WORD_BYTES)
    for beat in (0, 23, 40, 63):
        result = run(model, program, memory, program_address=0x3000 + 16 * beat, write_region=WRITABLE)
        assert result.failure is None
        assert result.counters[Counter.WORDS] == 2 + PAYLOAD_WORDS


@pytest.mark.parametrize("words", [0, 3, 6, 7, 8])
def test_programs_that_end_without_halt_are_found(model: Model, memory: np.ndarray, words: int) -> None:
    program = text(f"describe 1 {TRANSFER}\nload 1 count=1\nhalt")[: 16 * words]
    with pytest.raises(ProgramError) as wanted:
        emulate(program, memory, write_region=WRITABLE)
    assert ran(model, program, memory).failure == Failure(Error.PROGRAM, Queue.SEQUENCER, wanted.value.index)


def test_errors_on_the_bus_stop_the_accelerator(model: Model, memory: np.ndarray) -> None:
    program = text(
        f"describe 1 {TRANSFER} columns=600\ndescribe 2 {TRANSFER} columns=600 dram=0x20000\nload 1 count=1\nstore 2 count=1 wait_load=0\nhalt"
    )
    assert ran(model, program, memory, Dram(fault=0x2100)).failure == Failure(Error.BUS, Queue.LOAD, 0)
    assert ran(model, program, memory, Dram(fault=0x22000, stall=100)).failure == Failure(Error.BUS, Queue.STORE, 0)
    assert ran(model, program, memory, Dram(fault=MEMORY_BYTES)).failure == Failure(Error.BUS, Queue.SEQUENCER, 0)


@pytest.mark.parametrize("silent", [0, 5, 17, 200])
def test_silence_is_found(model: Model, memory: np.ndarray, silent: int) -> None:
    program = text(f"describe 1 {TRANSFER} columns=600\nload 1 count=1\nhalt")
    result = ran(model, program, memory, Dram(silent=silent))
    assert result.failure is not None
    assert result.failure.code is Error.TIMEOUT
    assert result.failure.queue is (Queue.LOAD if silent > 8 else Queue.SEQUENCER)
    assert result.cycles < WATCHDOG_CYCLES + 1000


def test_without_a_watchdog_silence_goes_on(model: Model, memory: np.ndarray) -> None:
    program = text(f"describe 1 {TRANSFER} columns=600\nload 1 count=1\nhalt")
    assert not run(model, program, memory, watchdog_cycles=0, limit_cycles=5000, dram=Dram(silent=200)).finished


@pytest.mark.parametrize("lost", [0, 9])
def test_a_lost_write_response_is_silence(model: Model, memory: np.ndarray, lost: int) -> None:
    """Of the first of 10 bursts, whose place the next response takes; of the last."""
    program = text(f"describe 1 {TRANSFER} columns=600 dram=0x20000\nstore 1 count=1\nhalt")
    assert ran(model, program, memory, Dram(lost=10)).failure is None
    assert ran(model, program, memory, Dram(lost=lost)).failure == Failure(Error.TIMEOUT, Queue.STORE, 0)


def test_loops_that_do_nothing_are_silence(model: Model, memory: np.ndarray) -> None:
    result = ran(model, text("loop 65535\nloop 65535\nend\nend\nhalt"), memory)
    assert result.failure is not None
    assert result.failure.code is Error.TIMEOUT


LONG = "sum a_slots=4 a_slot_words=18 a_block_words=9 a_height=12 a_width=9 o_base=300 o_slots=1 o_slot_words=9 o_block_words=9 o_width=9 o_step=1"


ONE_LONG_COMMAND = (
    "describe 1 transfer class=input columns=9 blocks=1 tail=16 slots=4 slot_words=18 block_words=9",
    (
        f"describe 2 computation operation={LONG} first=1 last=1 dilation=1 stride_rows=1 stride_columns=1 out_blocks=1 out_tail=16 KERNEL "
        "scale=scalar multiplier=1 shift=40 low=-128 high=127"
    ),
    "load 1 count=4",
    "exec 2 count=1 wait_load=0",
    "halt",
)


@pytest.mark.parametrize("kernel", ["kernel_rows=4095 kernel_columns=1", "kernel_rows=1 kernel_columns=4095"])
def test_long_work_without_the_buffer_is_no_silence(model: Model, memory: np.ndarray, kernel: str) -> None:
    """Kernels far larger than the map: rows of them are cut off one by one, and columns of padding need nothing from the buffer."""
    result = ran(model, text("\n".join(ONE_LONG_COMMAND).replace("KERNEL", kernel)), memory)
    assert result.failure is None
    assert result.finished
    assert result.cycles > WATCHDOG_CYCLES


def test_memory_latency_is_hidden(model: Model, memory: np.ndarray) -> None:
    """Rows of 50 beats, apart in DRAM: the port hardly rests."""
    lines = "\n".join((
        f"describe 1 {TRANSFER} columns=50 row_beats=60 slots=8 slot_words=50",
        "loop 40", "load 1 count=1 row_step0=1 slot_step0=1", "end", "halt",
    ))  # fmt: skip
    result = ran(model, text(lines), memory)
    assert result.finished
    assert result.counters[Counter.READ_INPUT] == 40 * 50 * 16
    assert result.counters[Counter.LOAD_BUSY] < 40 * 50 * 1.1 + 60


def test_cycles_are_bounded_to_the_cycle(model: Model, memory: np.ndarray) -> None:
    program = text(f"describe 1 {TRANSFER} columns=600\nloop 9\nload 1 count=1\nend\nhalt")
    cycles = ran(model, program, memory).cycles
    assert ran(model, program, memory, bound_cycles=cycles).failure is None
    result = ran(model, program, memory, bound_cycles=cycles - 1)
    assert result.failure is not None
    assert result.failure.code is Error.LIMIT
    # Long computation is cut short, as what is under way at the memory port is not.
    program = text("\n".join(ONE_LONG_COMMAND).replace("KERNEL", "kernel_rows=4095 kernel_columns=4095"))
    result = ran(model, program, memory, bound_cycles=2500)
    assert result.failure == Failure(Error.LIMIT, Queue.SEQUENCER, len(program) // WORD_BYTES)
    assert 2500 <= result.cycles < 2520
    # What went wrong first stays, though the limit comes while computation ends.
    program = text("\n".join([*ONE_LONG_COMMAND[:-1], "loop 300", "end", "end"]).replace("KERNEL", "kernel_rows=4095 kernel_columns=4095"))
    result = ran(model, program, memory, bound_cycles=2500)
    assert result.failure is not None
    assert result.failure.code is Error.LOOP
    assert 2500 <= result.cycles < 2520


@pytest.mark.parametrize("lanes", [16, pytest.param(32, marks=pytest.mark.slow)])
def test_lint_is_clean(lanes: int) -> None:
    """lf_sim has all modules in it."""
    with tempfile.TemporaryDirectory() as scratch:
        lint(Path(scratch), "lf_sim", Parameters(lanes=lanes))


def test_datapaths_have_four_states() -> None:
    """A variable of two states begins with 0, which hides that nobody wrote it: see test_unknown. Constants, loops and checks may have such types."""
    for path in RTL.glob("*.sv"):
        text = re.sub(r"`ifndef SYNTHESIS.*?`endif|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
        found = re.findall(r"(?:parameter|localparam|for \()?\s*\b(?:bit|byte|shortint|int|longint)\b(?!')", text)
        assert all(declared.startswith(("parameter", "localparam", "for (")) for declared in found), path.name


@pytest.mark.parametrize(("parameters", "says"), [
    (Parameters(lanes=8), "found Lanes = 8; accepted: 16, 32, 64"),
    (Parameters(buffer_bytes=262144 + 32), "found BufferBytes = 262176; accepted: multiples of 64, from 128 to 16777216"),
])  # fmt: skip
def test_hardware_that_cannot_be_is_refused(parameters: Parameters, says: str, tmp_path: Path) -> None:
    with pytest.raises(BuildFailed) as refused:
        lint(tmp_path, "lf_sim", parameters)
    assert str(refused.value).count("Warning-") == 1
    assert says in str(refused.value)
