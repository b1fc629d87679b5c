"""Emulation of a program on a DRAM image: contents afterwards, bytes and commands counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from hw_rtl.emulator.chip import EmulatedChip
from hw_rtl.emulator.errors import ProgramError
from hw_rtl.emulator.memory import EmulatedMemory
from hw_rtl.emulator.scheduler import QueueOrder, run
from hw_rtl.emulator.source import source_of
from lfopt.isa.tables import BEAT_BYTES, TABLE_BYTES, WINDOW, WORD_BYTES, Class, Opcode, Queue


@dataclass(frozen=True, slots=True)
class Emulation:
    """Outcome of an emulation."""

    memory: np.ndarray  # DRAM afterwards, uint8
    # bytes that crossed the memory port; of INSTRUCTION, every word up to HALT once
    read: Mapping[Class, int]
    written: Mapping[Class, int]  # bytes that crossed the memory port, padding of rows to beats included
    commands: Mapping[Opcode, int]  # DESCRIBE, LOAD, STORE and EXEC that ran, loops unrolled
    instruction_words_fetched: int  # up to HALT; a loop once, it runs out of the sequencer's own memory


def emulate(
    program: bytes,
    memory: np.ndarray,
    *,
    lanes: int = 16,
    buffer_bytes: int = 262144,
    order: QueueOrder = QueueOrder.PROGRAM,
    rng: np.random.Generator | None = None,
    read_region: tuple[int, int] | None = None,
    write_region: tuple[int, int] | None = None,
    check: bool = False,
    queue_depth: int | None = None,
) -> Emulation:
    """Run a program on a DRAM image, memory (bytes,) uint8, which stays as it is; the result has its own.

    Regions are (first byte, first byte behind) that may be read, or written: all of the memory unless said.
    `rng` makes the garbage on chip and the order RANDOM (default: seed 0). `queue_depth` bounds the commands
    that wait in a queue; without, commands that nothing holds back run as far ahead as the waits allow,
    farther than hardware does.

    Raises ProgramError for what stops the accelerator, Hazard (with `check`), and ValueError for arguments
    that make no sense: the shape or type of `memory`, lanes, the size of the buffer.
    """
    if (
        lanes <= 0
        or lanes % BEAT_BYTES
        or TABLE_BYTES % lanes
        or buffer_bytes % (WINDOW * lanes)
        or buffer_bytes <= 0
    ):
        raise ValueError(
            f"found {lanes} lanes, {buffer_bytes} bytes of buffer; accepted: lanes in beats of {BEAT_BYTES}, "
            f"buffers of {WINDOW} banks"
        )
    if memory.dtype != np.uint8 or memory.ndim != 1 or len(program) % WORD_BYTES:
        raise ValueError(
            f"found a memory {memory.dtype}{list(memory.shape)}, a program of {len(program)} bytes; "
            f"accepted: uint8, words of {WORD_BYTES}"
        )
    chip = EmulatedChip(
        EmulatedMemory(
            memory, lanes, buffer_bytes, rng or np.random.default_rng(0), read_region, write_region, check
        )
    )
    source = source_of(program)
    with _controller().limit(limits=1):  # products are small: with threads, more time goes to waking them
        run(chip, source.commands, order, queue_depth)
    if source.fault is not None:
        raise ProgramError(source.fault.code, Queue.SEQUENCER, source.words_run, source.fault.text)
    after = chip.memory
    after.read[Class.INSTRUCTION] += source.words * WORD_BYTES
    counts = {
        opcode: chip.commands[opcode] for opcode in (Opcode.DESCRIBE, Opcode.LOAD, Opcode.STORE, Opcode.EXEC)
    }
    return Emulation(
        after.dram,
        {c: after.read[c] for c in Class},
        {c: after.written[c] for c in Class},
        counts,
        source.words,
    )


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
