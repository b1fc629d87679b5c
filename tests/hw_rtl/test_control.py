"""Control and memory side of the accelerator (sequencer, queues, DMA, registers) against the emulator."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen.accel import encode as encode_plan
from codegen.source import Unsupported
from hw_rtl.build import RTL, BuildFailed, HardwareParameters, SimulationModel, available, lint
from hw_rtl.emulator import ProgramError, emulate
from hw_rtl.run import Dram, Failure, RunResult, run
from lfopt.app.streams import memory as image
from lfopt.isa.program import encode
from lfopt.isa.tables import LOOP_WORDS, PAYLOAD_WORDS, WORD_BYTES, Counter, Error, Queue
from tests.accelerator import random_plan
from tests.cases import some
from tests.hw_rtl.programs import (
    COMPUTED,
    FAILURES,
    FITTING,
    LIMIT_CYCLES,
    LOOKED_UP,
    MEMORY_BYTES,
    ONE_LONG_COMMAND,
    TRANSFER,
    WATCHDOG_CYCLES,
    WRITABLE,
    agrees,
    random_program,
    text,
)
from tests.hw_rtl.test_emulator import ERRORS

pytestmark = pytest.mark.skipif(bool(available()), reason=f"not found: {available()}")


@pytest.fixture(scope="module")
def memory() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, MEMORY_BYTES, np.uint8)


def ran(
    model: SimulationModel, program: bytes, memory: np.ndarray, dram: Dram | None = None, **more: Any
) -> RunResult:
    return run(
        model, program, memory, write_region=WRITABLE, watchdog_cycles=WATCHDOG_CYCLES,
        **{"limit_cycles": LIMIT_CYCLES, **more}, dram=dram
    )  # fmt: skip


# Random programs


@pytest.mark.parametrize("seed", some(range(20)))
def test_random_transfers_do_what_the_emulator_does(
    model: SimulationModel, memory: np.ndarray, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for k in range(15):
        commands, wanted = random_program(100 * seed + k, memory)
        dram = (
            Dram(),
            Dram(latency_cycles=1),
            Dram(latency_cycles=int(rng.integers(2, 200)), stall=int(rng.integers(0, 230)), seed=k + 1),
        )[k % 3]
        agrees(ran(model, encode(commands), memory, dram), wanted)


# Corrupted programs


def stopped(result: RunResult, memory: np.ndarray) -> None:
    """Nothing outside the region has changed, and the accelerator has stopped, or is still at work."""
    assert np.array_equal(result.memory[: WRITABLE[0]], memory[: WRITABLE[0]])
    assert np.array_equal(result.memory[WRITABLE[1] :], memory[WRITABLE[1] :])
    # A watchdog counts standstill, so what has not finished has moved: corrupted counts make programs long.
    assert result.finished or result.cycles > LIMIT_CYCLES // 2
    assert result.failure is None or result.failure.code is not Error.TIMEOUT


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 104))])
def test_corrupted_programs_stop_and_write_nowhere_else(
    model: SimulationModel, memory: np.ndarray, seed: int
) -> None:
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
        stopped(
            replace(result, cycles=LIMIT_CYCLES)
            if not result.finished and result.cycles > 50_000
            else result,
            memory,
        )
        failures += result.failure is not None
    assert failures > 10


@pytest.fixture(scope="module")
def filled(memory: np.ndarray) -> np.ndarray:
    """Memory with factors that scale sums to bytes."""
    image = memory.copy()
    shifts = np.arange(32, dtype=np.uint64) % 3 + 40
    factors = (shifts << np.uint64(32) | np.uint64(1 << 30)).view(np.uint8).reshape(32, 8)[:, :5]
    image[0x7000 : 0x7000 + factors.size] = factors.reshape(-1)
    return image


@pytest.mark.parametrize("dram", [Dram(), Dram(latency_cycles=3, stall=120), Dram(latency_cycles=300)])
def test_loads_computations_and_stores_work_together(
    model: SimulationModel, filled: np.ndarray, dram: Dram
) -> None:
    program = text(COMPUTED)
    agrees(ran(model, program, filled, dram), emulate(program, filled, write_region=WRITABLE, check=True))


def test_a_table_that_is_loaded_anew_is_the_one_that_is_looked_into(
    model: SimulationModel, memory: np.ndarray
) -> None:
    """Both of the two that are live hold the old one."""
    program = text(LOOKED_UP)
    agrees(ran(model, program, memory), emulate(program, memory, write_region=WRITABLE, check=True))


PAIRED = """
describe 1 transfer class=input dram=0x100 columns=160 blocks=1 tail=16 slots=1
describe 3 computation operation=add first=1 last=1 a_slots=1 a_slot_words=160 a_block_words=40 a_height=1 \
a_width=20 kernel_rows=1 \
kernel_columns=1 stride_rows=1 stride_columns=1 dilation=1 b_base=7 b_slots=1 b_slot_words=160 \
b_block_words=30 a_multiplier=1 b_multiplier=1 \
out_blocks=1 out_tail=16 o_base=200 o_slots=1 o_slot_words=60 o_block_words=20 o_width=20 o_step=1 \
o_row_step=1 low=-128 high=127
describe 4 transfer class=output dram=0x20000 columns=20 blocks=1 tail=16 base=220 slots=1 slot_words=20 \
row_beats=20
load 1 count=1
exec 3 count=1 from_block=3 to_block=1 wait_load=0
store 4 count=1 wait_exec=0
halt
""".replace("\\\n", "")


def test_both_operands_begin_at_the_block_that_is_read(model: SimulationModel, memory: np.ndarray) -> None:
    program = text(PAIRED)
    wanted = emulate(program, memory, write_region=WRITABLE)
    agrees(ran(model, program, memory), wanted)
    first, second = (
        memory[start : start + 320].view(np.int8).astype(int) for start in (0x100 + 16 * 120, 0x100 + 16 * 97)
    )
    assert np.array_equal(
        wanted.memory[0x20000 : 0x20000 + 320].view(np.int8), (first + second).clip(-128, 127)
    )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 62))])
def test_corrupted_computations_stop(model: SimulationModel, filled: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(2000 + seed)
    clean = text(COMPUTED)
    failures = 0
    for k in range(60):
        words = bytearray(clean)
        for _ in range(int(rng.integers(1, 3))):
            words[int(rng.integers(0, len(words)))] ^= 1 << int(rng.integers(0, 8))
        result = ran(model, bytes(words), filled, Dram(stall=60 * (k & 1), seed=k + 1), limit_cycles=60_000)
        stopped(
            replace(result, cycles=LIMIT_CYCLES)
            if not result.finished and result.cycles > 50_000
            else result,
            filled,
        )
        failures += result.failure is not None
    assert failures > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 3000, 50))
def test_corrupted_plans_stop(model: SimulationModel, seed: int) -> None:
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
        result = run(
            model,
            bytes(words),
            before,
            write_region=region,
            watchdog_cycles=WATCHDOG_CYCLES,
            limit_cycles=60_000,
        )
        assert result.finished or result.cycles > 50_000
        assert result.failure is None or result.failure.code is not Error.TIMEOUT
        assert (result.memory[: stream.maps_address] == before[: stream.maps_address]).all()
        tried += 1
    assert tried > 20


# Errors, one by one


FAILURES |= {
    "\n".join(lines): (code, queue, index)
    for lines, code, queue, index in ERRORS.values()
    if queue is Queue.EXEC
}


@pytest.mark.parametrize("lines", FAILURES)
def test_errors_name_code_queue_and_place(model: SimulationModel, memory: np.ndarray, lines: str) -> None:
    program = text(lines + "\nhalt")
    with pytest.raises(ProgramError) as wanted:
        emulate(program, memory, write_region=WRITABLE)
    assert (wanted.value.code, wanted.value.queue, wanted.value.index) == FAILURES[lines]
    result = ran(model, program, memory)
    assert result.failure == Failure(*FAILURES[lines])
    stopped(result, memory)
    assert result.finished


def test_a_loop_may_have_so_many_words(model: SimulationModel, memory: np.ndarray) -> None:
    words, left = (
        "loop 2\n" + f"describe 1 {TRANSFER}\n" * (FITTING - 1),
        LOOP_WORDS - 2 - (FITTING - 1) * (1 + PAYLOAD_WORDS),
    )
    assert not left % 2
    program = text(words + "load 1 count=1\n" * (left // 2) + "end\nhalt")
    agrees(ran(model, program, memory), emulate(program, memory, write_region=WRITABLE))


def test_a_bad_command_waits_as_a_good_one_does(model: SimulationModel, memory: np.ndarray) -> None:
    program = text(
        f"describe 1 {TRANSFER} columns=600\ndescribe 2 {TRANSFER} tail=17\n"
        "load 1 count=1\nload 2 count=1 wait_load=0\nhalt"
    )
    result = ran(model, program, memory)
    assert result.failure == Failure(Error.FIELD, Queue.LOAD, 1)
    assert result.counters[Counter.LOADS] == 1


@pytest.mark.parametrize(("change", "code"), [
    ((0, 0), Error.OPCODE), ((0, 15), Error.OPCODE), ((1, 0x20), Error.RESERVED), ((1, 0x0C), Error.FIELD),
    ((95, 1), Error.RESERVED), ((16, 2), Error.FIELD), ((16, 3), Error.FIELD),
])  # fmt: skip
def test_bad_words_are_found(
    model: SimulationModel, memory: np.ndarray, change: tuple[int, int], code: Error
) -> None:
    words = bytearray(text(f"describe 1 {TRANSFER}\nload 1 count=1\nhalt"))
    words[change[0]] = change[1]
    result = ran(model, bytes(words), memory)
    assert result.failure == Failure(code, Queue.SEQUENCER, 0)


def test_words_behind_halt_are_read_in_peace(model: SimulationModel, memory: np.ndarray) -> None:
    """The run ends once they are there; from any address, no request for them crosses a page."""
    program = text(f"describe 1 {TRANSFER}\nhalt") + bytes(100 * WORD_BYTES)
    for beat in (0, 23, 40, 63):
        result = run(model, program, memory, program_address=0x3000 + 16 * beat, write_region=WRITABLE)
        assert result.failure is None
        assert result.counters[Counter.WORDS] == 2 + PAYLOAD_WORDS


@pytest.mark.parametrize("words", [0, 3, 6, 7, 8])
def test_programs_that_end_without_halt_are_found(
    model: SimulationModel, memory: np.ndarray, words: int
) -> None:
    program = text(f"describe 1 {TRANSFER}\nload 1 count=1\nhalt")[: 16 * words]
    with pytest.raises(ProgramError) as wanted:
        emulate(program, memory, write_region=WRITABLE)
    assert ran(model, program, memory).failure == Failure(Error.PROGRAM, Queue.SEQUENCER, wanted.value.index)


def test_errors_on_the_bus_stop_the_accelerator(model: SimulationModel, memory: np.ndarray) -> None:
    program = text(
        f"describe 1 {TRANSFER} columns=600\ndescribe 2 {TRANSFER} columns=600 dram=0x20000\nload 1 "
        "count=1\nstore 2 count=1 wait_load=0\nhalt"
    )
    assert ran(model, program, memory, Dram(fault=0x2100)).failure == Failure(Error.BUS, Queue.LOAD, 0)
    assert ran(model, program, memory, Dram(fault=0x22000, stall=100)).failure == Failure(
        Error.BUS, Queue.STORE, 0
    )
    assert ran(model, program, memory, Dram(fault=MEMORY_BYTES)).failure == Failure(
        Error.BUS, Queue.SEQUENCER, 0
    )


@pytest.mark.parametrize("silent", [0, 5, 17, 200])
def test_silence_is_found(model: SimulationModel, memory: np.ndarray, silent: int) -> None:
    program = text(f"describe 1 {TRANSFER} columns=600\nload 1 count=1\nhalt")
    result = ran(model, program, memory, Dram(silent=silent))
    assert result.failure is not None
    assert result.failure.code is Error.TIMEOUT
    assert result.failure.queue is (Queue.LOAD if silent > 8 else Queue.SEQUENCER)
    assert result.cycles < WATCHDOG_CYCLES + 1000


def test_without_a_watchdog_silence_goes_on(model: SimulationModel, memory: np.ndarray) -> None:
    program = text(f"describe 1 {TRANSFER} columns=600\nload 1 count=1\nhalt")
    assert not run(
        model, program, memory, watchdog_cycles=0, limit_cycles=5000, dram=Dram(silent=200)
    ).finished


@pytest.mark.parametrize("lost", [0, 9])
def test_a_lost_write_response_is_silence(model: SimulationModel, memory: np.ndarray, lost: int) -> None:
    """Of the first of 10 bursts, whose place the next response takes; of the last."""
    program = text(f"describe 1 {TRANSFER} columns=600 dram=0x20000\nstore 1 count=1\nhalt")
    assert ran(model, program, memory, Dram(lost=10)).failure is None
    assert ran(model, program, memory, Dram(lost=lost)).failure == Failure(Error.TIMEOUT, Queue.STORE, 0)


def test_loops_that_do_nothing_are_silence(model: SimulationModel, memory: np.ndarray) -> None:
    result = ran(model, text("loop 65535\nloop 65535\nend\nend\nhalt"), memory)
    assert result.failure is not None
    assert result.failure.code is Error.TIMEOUT


@pytest.mark.parametrize("kernel", ["kernel_rows=4095 kernel_columns=1", "kernel_rows=1 kernel_columns=4095"])
def test_long_work_without_the_buffer_is_no_silence(
    model: SimulationModel, memory: np.ndarray, kernel: str
) -> None:
    """Kernels far larger than the map: their rows are cut off one by one, padding needs no buffer."""
    result = ran(model, text("\n".join(ONE_LONG_COMMAND).replace("KERNEL", kernel)), memory)
    assert result.failure is None
    assert result.finished
    assert result.cycles > WATCHDOG_CYCLES


def test_memory_latency_is_hidden(model: SimulationModel, memory: np.ndarray) -> None:
    """Rows of 50 beats, apart in DRAM: the port hardly rests."""
    lines = "\n".join((
        f"describe 1 {TRANSFER} columns=50 row_beats=60 slots=8 slot_words=50",
        "loop 40", "load 1 count=1 row_step0=1 slot_step0=1", "end", "halt",
    ))  # fmt: skip
    result = ran(model, text(lines), memory)
    assert result.finished
    assert result.counters[Counter.READ_INPUT] == 40 * 50 * 16
    assert result.counters[Counter.LOAD_BUSY] < 40 * 50 * 1.1 + 60


def test_cycles_are_bounded_to_the_cycle(model: SimulationModel, memory: np.ndarray) -> None:
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
    program = text(
        "\n".join([*ONE_LONG_COMMAND[:-1], "loop 300", "end", "end"]).replace(
            "KERNEL", "kernel_rows=4095 kernel_columns=4095"
        )
    )
    result = ran(model, program, memory, bound_cycles=2500)
    assert result.failure is not None
    assert result.failure.code is Error.LOOP
    assert 2500 <= result.cycles < 2520


@pytest.mark.parametrize("lanes", [16, pytest.param(32, marks=pytest.mark.slow)])
def test_lint_is_clean(lanes: int) -> None:
    """lf_sim has all modules in it."""
    with tempfile.TemporaryDirectory() as scratch:
        lint(Path(scratch), "lf_sim", HardwareParameters(lanes=lanes))


def test_datapaths_have_four_states() -> None:
    """A variable of two states begins with 0, which hides that nobody wrote it: see test_unknown.

    Constants, loops and checks may have such types.
    """
    for path in RTL.glob("*.sv"):
        text = re.sub(r"`ifndef SYNTHESIS.*?`endif|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
        declarations = re.findall(
            r"(?:parameter|localparam|for \()?\s*\b(?:bit|byte|shortint|int|longint)\b(?!')", text
        )
        assert all(declared.startswith(("parameter", "localparam", "for (")) for declared in declarations), (
            path.name
        )


@pytest.mark.parametrize(("parameters", "says"), [
    (HardwareParameters(lanes=8), "found Lanes = 8; accepted: 16, 32, 64"),
    (
        HardwareParameters(buffer_bytes=262144 + 32),
        "found BufferBytes = 262176; accepted: multiples of 64, from 128 to 16777216",
    ),
])  # fmt: skip
def test_hardware_that_cannot_be_is_refused(
    parameters: HardwareParameters, says: str, tmp_path: Path
) -> None:
    with pytest.raises(BuildFailed) as refused:
        lint(tmp_path, "lf_sim", parameters)
    assert str(refused.value).count("Warning-") == 1
    assert says in str(refused.value)
