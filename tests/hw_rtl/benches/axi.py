"""lf_axi with cocotbext-axi's models: programs against the emulator, channel rules, bus errors."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from hw_rtl.emulator import emulate
from lfopt.isa.program import assemble, encode
from lfopt.isa.tables import BEAT_BYTES, Error, Queue
from tests.hw_rtl.benches.harness import BUFFER_BYTES, matrix
from tests.hw_rtl.benches.system import DONE, FAILED, PROGRAM, Bench, agrees
from tests.hw_rtl.programs import COMPUTED, WRITABLE, random_program

# seeds of random programs that are not too long: one for the diagonal of the matrix, one for the rest
PROGRAMS = (3, 5)


@cocotb.test()
@matrix
async def loads_and_stores_do_what_the_emulator_does(dut: Any, stalled: bool, pressed: bool) -> None:
    bench = Bench(dut, stalled=stalled, pressed=pressed)
    await bench.reset()
    commands, wanted = random_program(PROGRAMS[stalled != pressed], bench.memory)
    await agrees(bench, encode(commands), bench.memory, wanted)
    assert bench.monitor.places


@cocotb.test()
@cocotb.parametrize(held=[False, True])
async def a_convolution_does_what_the_emulator_does(dut: Any, held: bool) -> None:
    bench = Bench(dut, stalled=held, pressed=held)
    await bench.reset()
    program = encode(assemble(COMPUTED.splitlines()))
    wanted = emulate(program, bench.memory, buffer_bytes=BUFFER_BYTES, write_region=WRITABLE, check=True)
    await agrees(bench, program, bench.memory, wanted)


MOVES = """
describe 1 transfer class=input dram=0x100 columns=300 blocks=1 tail=16 slots=1
describe 2 transfer class=output dram=0x20040 columns=300 blocks=1 tail=16 slots=1
load 1 count=1
store 2 count=1 wait_load=0
load 1 count=1 wait_store=0
halt
"""


class Broken(Exception):
    """What a memory raises where it is to answer with SLVERR."""


def breaks(half: Any, method: str, first: int, last: int) -> Any:
    """Let one half of a memory answer accesses to bytes first .. last with SLVERR.

    Returns what it did before.
    """
    good = getattr(half, method)

    async def bad(address: int, what: Any) -> Any:
        size = what if isinstance(what, int) else len(what)
        if address <= last and first < address + size:
            raise Broken
        return await good(address, what)

    setattr(half, method, bad)
    return good


@cocotb.test()
async def slave_errors_stop_the_accelerator(dut: Any) -> None:
    bench = Bench(dut, pressed=True)
    await bench.reset()
    program = encode(assemble(MOVES.strip().splitlines()))
    cases = (
        (bench.ram.read_if, "_read", 0x1000, Queue.LOAD, 0),
        (bench.ram.write_if, "_write", 0x20800, Queue.STORE, 0),
        (bench.ram.read_if, "_read", PROGRAM, Queue.SEQUENCER, 0),
    )  # fmt: skip
    for half, method, place, queue, index in cases:
        good = breaks(half, method, place, place + 1)
        status, memory = await bench.run(program, bench.memory)
        setattr(half, method, good)
        assert status == FAILED
        assert await bench.fault() == (Error.BUS, queue, index)
        changed = np.flatnonzero(memory != bench.memory)
        assert queue is Queue.STORE or not changed.size
        assert not changed.size or (changed[0] >= 0x20040 and changed[-1] < 0x20040 + 300 * BEAT_BYTES)
    # It works again afterwards.
    status, memory = await bench.run(program, bench.memory)
    assert status == DONE
    assert np.array_equal(memory, emulate(program, bench.memory, write_region=WRITABLE).memory)
    assert await bench.fault() == (0, 0, 0)
