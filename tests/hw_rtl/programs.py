"""Programs of the accelerator, written and drawn, and whether a run of them agrees with the emulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hw_rtl.emulator import Emulation, Hazard, emulate
from hw_rtl.run import RunResult
from lfopt.isa.program import Command, assemble, encode
from lfopt.isa.tables import LOOP_WORDS, NO_WAIT, PAYLOAD_WORDS, Class, Counter, Error, Kind, Opcode, Queue

FITTING = (LOOP_WORDS - 1) // (1 + PAYLOAD_WORDS)  # DESCRIBE commands, in a loop that is as long as may be
MEMORY_BYTES = 1 << 18
WRITABLE = (1 << 17, MEMORY_BYTES - 4096)  # guards before and behind
CHIP_WORDS = 2048  # that random programs use
LIMIT_CYCLES = 400_000
WATCHDOG_CYCLES = 2000


def text(lines: str) -> bytes:
    return encode(assemble(lines.splitlines()))


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


def transfer(
    rng: np.random.Generator, store: bool, loops: Sequence[int], lanes: int = 16
) -> tuple[Mapping[str, int], Mapping[str, int]] | None:
    """(descriptor, command) in loops of `loops` iterations, innermost first; None if shapes do not fit."""
    columns, blocks, tail = (
        int(rng.integers(1, 41)),
        int(rng.integers(1, 5)),
        int(rng.choice([int(rng.integers(1, lanes + 1)), lanes])),
    )
    count, slots = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    command: dict[str, int] = {"count": count}
    highest: dict[str, int] = {}
    for name, most in (("row", 4), ("slot", 3), ("from_block", 1), ("to_block", 1)):
        steps = [int(rng.integers(-most, most + 1)) if rng.random() < 0.6 else 0 for _ in loops]
        lowest = sum(min(0, step * (turns - 1)) for step, turns in zip(steps, loops, strict=True))
        command[name] = int(rng.integers(0, 3)) - lowest
        highest[name] = command[name] + sum(
            max(0, step * (turns - 1)) for step, turns in zip(steps, loops, strict=True)
        )
        command |= {f"{name}_step{k}": step for k, step in enumerate(steps)}
    dram_block, chip_block = (
        (highest["to_block"], highest["from_block"])
        if store
        else (highest["from_block"], highest["to_block"])
    )
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
        "class_": int(rng.integers(0, 5)), "dram": first + 16 * int(rng.integers(0, spare_beats + 1)),
        "row_beats": row_beats, "block_beats": block_beats, "columns": columns, "blocks": blocks,
        "tail": tail, "base": int(rng.integers(0, spare_words + 1)), "slots": slots, "slot_words": slot_words,
        "block_words": block_words,
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
        if (moved := transfer(rng, store, loops, lanes)) is not None:
            entry = int(rng.integers(0, 4))
            yield Command(Opcode.DESCRIBE, moved[0], entry, Kind.TRANSFER)
            waits = {
                name: int(rng.choice([0, 1, 2, NO_WAIT])) for name in ("wait_load", "wait_store", "wait_exec")
            }
            yield Command(Opcode.STORE if store else Opcode.LOAD, {"descriptor": entry, **moved[1], **waits})


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
            commands = [
                replace(command, values={**command.values, **strict})
                if "wait_load" in command.values
                else command
                for command in commands
            ]
    raise AssertionError("a program that waits for everything has no hazard")


COMPUTED = """
describe 0 transfer class=input columns=9 blocks=2 tail=5 row_beats=12 block_beats=9 slots=4 slot_words=18 \
block_words=9
describe 1 transfer class=weight dram=0x4000 columns=500 blocks=1 tail=16 base=1024 slots=1
describe 2 transfer class=parameter dram=0x6000 columns=8 blocks=1 tail=16 base=900 slots=1
describe 3 transfer class=parameter space=factors dram=0x7000 columns=10 blocks=1 tail=16 slots=1
describe 4 transfer class=output dram=0x21000 columns=9 blocks=2 tail=7 row_beats=13 block_beats=9 base=200 \
slots=2 slot_words=18 block_words=9
describe 5 computation operation=conv first=1 last=1 a_slots=4 a_slot_words=18 a_block_words=9 a_height=12 \
a_width=9 a_zero=3 kernel_rows=3 \
kernel_columns=3 stride_rows=1 stride_columns=1 dilation=1 pad_rows=1 pad_columns=1 in_blocks=2 in_tail=5 \
out_blocks=2 out_tail=7 o_base=300 \
o_slots=2 o_slot_words=18 o_block_words=9 o_width=9 o_step=1 o_row_step=1 low=-128 high=127 scale=channel \
has_bias=1 bias=900 w_base=0x4000 \
w_block_bytes=3024 w_slots=1
describe 6 computation operation=copy first=1 last=1 a_base=300 a_slots=2 a_slot_words=18 a_block_words=9 \
a_height=12 a_width=9 a_zero=3 \
kernel_rows=1 kernel_columns=1 stride_rows=1 stride_columns=1 dilation=1 out_blocks=2 out_tail=7 o_base=200 \
o_slots=2 o_slot_words=18 \
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
LOOKED_UP = """
describe 1 transfer class=input dram=0x100 columns=40 blocks=1 tail=16 slots=1
describe 2 transfer class=parameter space=tables dram=0x1000 columns=16 blocks=1 tail=16 base=3 slots=1 \
row_beats=16
describe 3 computation operation=copy first=1 last=1 a_slots=1 a_slot_words=40 a_block_words=40 a_height=4 \
a_width=40 kernel_rows=1 \
kernel_columns=1 stride_rows=1 stride_columns=1 dilation=1 out_blocks=1 out_tail=16 o_base=100 o_slots=4 \
o_slot_words=40 o_block_words=40 o_width=40 \
o_step=1 o_row_step=1 low=-128 high=127 has_table=1 table_id=3
describe 4 transfer class=output dram=0x20000 columns=40 blocks=1 tail=16 base=100 slots=4 slot_words=40 \
row_beats=40
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
    f"describe 1 {TRANSFER}\nload 1 count=1 wait_load=0\nload 1 count=1 row=65535": (
        Error.REGION,
        Queue.LOAD,
        1,
    ),
    f"describe 1 {TRANSFER}\nstore 1 count=1": (Error.REGION, Queue.STORE, 0),
    f"describe 1 {TRANSFER} dram=0x1fff0\nstore 1 count=1": (Error.REGION, Queue.STORE, 0),
    f"{LOOKED_UP.splitlines()[3]} scale=channel factors=250\nexec 3 count=1\nexec 3 count=1 factor=6": (
        Error.BUFFER,
        Queue.EXEC,
        1,
    ),
    "loop 0\nend": (Error.LOOP, Queue.SEQUENCER, 0),
    "end": (Error.LOOP, Queue.SEQUENCER, 0),
    "loop 1\nloop 1\nloop 1\nloop 1": (Error.LOOP, Queue.SEQUENCER, 3),
    "loop 2\nhalt": (Error.LOOP, Queue.SEQUENCER, 1),
    "loop 3\n" + f"describe 1 {TRANSFER}\n" * 86 + "end": (
        Error.LOOP,
        Queue.SEQUENCER,
        1 + FITTING * (1 + PAYLOAD_WORDS),
    ),
}
LONG = (
    "sum a_slots=4 a_slot_words=18 a_block_words=9 a_height=12 a_width=9 o_base=300 o_slots=1 "
    "o_slot_words=9 o_block_words=9 o_width=9 o_step=1"
)
ONE_LONG_COMMAND = (
    "describe 1 transfer class=input columns=9 blocks=1 tail=16 slots=4 slot_words=18 block_words=9",
    (
        f"describe 2 computation operation={LONG} first=1 last=1 dilation=1 stride_rows=1 stride_columns=1 "
        "out_blocks=1 out_tail=16 KERNEL scale=scalar multiplier=1 shift=40 low=-128 high=127"
    ),
    "load 1 count=4",
    "exec 2 count=1 wait_load=0",
    "halt",
)
