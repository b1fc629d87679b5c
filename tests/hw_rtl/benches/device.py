"""The accelerator as a device: registers, AXI4-Lite under late answers, interrupts, regions, aborted runs."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, ReadOnly, RisingEdge, Timer, with_timeout
from cocotbext.axi.constants import AxiResp

from hw_rtl.emulator import emulate
from lfopt.isa.program import assemble, encode
from lfopt.isa.registers import BITS, BYTES, FIXED, Access, Register
from lfopt.isa.tables import BEAT_BYTES, WORD_BYTES, Counter, Error, Queue
from tests.hw_rtl.benches.axi import MOVES
from tests.hw_rtl.benches.harness import BUFFER_BYTES, LANES, PERIOD_NS
from tests.hw_rtl.benches.system import DONE, ENDED, FAILED, OUTSTANDING, RUN, Bench, agrees, bits
from tests.hw_rtl.programs import COMPUTED, ONE_LONG_COMMAND, WRITABLE

BUSY = bits(Register.STATUS, "busy")
BUILT = {
    Register.CAPABILITY: Register.CAPABILITY.layout.pack({"lanes": LANES, "outstanding": OUTSTANDING}),
    Register.BUFFER_BYTES: BUFFER_BYTES,
}


def kept(register: Register, value: int) -> int:
    """What a register holds once `value` was written to it, if software may."""
    fields = register.layout.used_bits
    return value & ((1 << fields) - 1 if fields else (1 << BITS) - register.of.multiple)


@cocotb.test()
async def registers_are_what_the_table_says(dut: Any) -> None:
    bench = Bench(dut, stalled=True, pressed=True)
    await bench.reset()
    single = [register for register in Register if register.of.count == 1]
    initial = {register: BUILT.get(register, FIXED.get(register, register.of.reset)) for register in single}
    for register in single:
        assert await bench.read(register) == initial[register], register.name
    for register in single:
        if register is Register.CONTROL:
            continue
        value = int(bench.rng.integers(0, 1 << BITS))
        await bench.write(register, value)
        may = register.access in (Access.IDLE, Access.ANY)
        initial[register] = kept(register, value) if may else initial[register]
    await bench.write(Register.CONTROL, bits(Register.CONTROL, "start", "abort"))  # nothing starts
    for register in single:
        assert await bench.read(register) == initial[register], register.name
    # Parts of a register are refused, and change nothing.
    answer = await bench.lite.write(Register.WATCHDOG + 1, b"\x00")
    assert answer.resp == AxiResp.SLVERR
    assert await bench.read(Register.WATCHDOG) == initial[Register.WATCHDOG]
    assert await bench.read(max(Register) + BYTES * Register.COUNTERS.of.count) == 0
    assert await bench.counters() == dict.fromkeys(Counter, 0)
    assert not bench.monitor.requests


@cocotb.test()
async def registers_stay_while_the_accelerator_is_busy(dut: Any) -> None:
    bench = Bench(dut, stalled=True)
    await bench.reset()
    program = encode(assemble(MOVES.strip().splitlines()))
    await bench.start(program, bench.memory)
    assert await bench.read(Register.STATUS) & BUSY
    await bench.write(Register.PROGRAM_WORDS, 1)
    await bench.write(Register.CONTROL, RUN)
    cycles = await bench.read(Register.COUNTERS + 8 * Counter.CYCLES)
    assert cycles
    assert await bench.read(Register.STATUS) & BUSY
    assert await bench.ended() == DONE
    assert await bench.read(Register.PROGRAM_WORDS) == len(program) // WORD_BYTES
    assert await bench.read(Register.COUNTERS + 8 * Counter.CYCLES) > cycles
    assert await bench.read(Register.COUNTERS + 8 * Counter.LOADS) == 2
    # Counters go on over runs that do not clear them.
    await bench.write(Register.CONTROL, bits(Register.CONTROL, "start"))
    assert await bench.ended() == DONE
    assert await bench.read(Register.COUNTERS + 8 * Counter.LOADS) == 4
    await bench.write(Register.CONTROL, bits(Register.CONTROL, "clear"))
    assert await bench.counters() == dict.fromkeys(Counter, 0)
    assert await bench.read(Register.STATUS) == DONE


# AXI4-Lite, its channels driven one by one


class Channel:
    """One side of a channel that a processor drives: valid (or, of answers, ready) comes when it likes."""

    def __init__(self, dut: Any, name: str, rng: np.random.Generator, most: int) -> None:
        self.valid, self.ready = (getattr(dut, f"s_axil_{name}{what}") for what in ("valid", "ready"))
        self.rng, self.most, self.wait = rng, most, 0

    def taken(self) -> bool:
        """Whether the clock will meet both."""
        return bool(self.valid.value) and bool(self.ready.value)

    def due(self) -> bool:
        """Whether it is time to drive it; then how long the next will wait is drawn."""
        self.wait -= 1
        if self.wait > 0:
            return False
        self.wait = int(self.rng.integers(0, self.most + 1)) if self.most else 0
        return True


@cocotb.test()
@cocotb.parametrize(most=[0, 7])
async def lite_accesses_keep_their_order_under_late_answers(dut: Any, most: int) -> None:
    """Accesses keep their order: writes back to back, address or data first, handshakes late.

    bready, arvalid and rready are late by up to `most` cycles; reads and writes go on at once.
    """
    rng = np.random.default_rng(most)
    await Timer(1, "ns")
    for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
        getattr(dut, f"s_axil_{name}").value = 0
    dut.s_axil_wstrb.value = 15
    dut.axi_rst.value = 1
    Clock(dut.axi_clk, PERIOD_NS, "ns").start()
    await ClockCycles(dut.axi_clk, 3)
    aw, w, b, ar, r = (Channel(dut, name, rng, most) for name in ("aw", "w", "b", "ar", "r"))
    plain = [
        register for register in Register if register.access is Access.IDLE and register.of.multiple == 1
    ]
    writes = [(plain[int(rng.integers(len(plain)))], int(rng.integers(0, 1 << BITS))) for _ in range(40)]
    reads = [plain[int(rng.integers(len(plain)))] for _ in range(40)]
    held = {register: register.of.reset for register in plain}
    sent = {"aw": 0, "w": 0}  # how many were offered
    owed_b = owed_r = asked = 0
    answered = [0, 0]  # writes, reads
    wanted: list[int | None] = []
    cycle = 0
    for cycle in range(2000):
        await FallingEdge(dut.axi_clk)
        dut.axi_rst.value = 0
        for name, channel, signal in (("aw", aw, dut.s_axil_awaddr), ("w", w, dut.s_axil_wdata)):
            if sent[name] < len(writes) and not channel.valid.value and channel.due():
                signal.value = writes[sent[name]][0 if name == "aw" else 1]
                channel.valid.value = 1
                sent[name] += 1
        if asked < len(reads) and not ar.valid.value and ar.due():
            dut.s_axil_araddr.value = reads[asked]
            ar.valid.value = 1
            asked += 1
        b.ready.value, r.ready.value = int(b.due()), int(r.due())
        await ReadOnly()
        wrote, read, answer_b, answer_r = aw.taken(), ar.taken(), b.taken(), r.taken()
        assert wrote == w.taken()
        assert owed_b == int(b.valid.value)
        assert owed_r == int(r.valid.value)
        if owed_r:
            # as the register was when it was asked for, whatever is written meanwhile
            assert int(dut.s_axil_rdata.value) == wanted[answered[1]], cycle
        owed_b += wrote - answer_b
        owed_r += read - answer_r
        answered[0] += answer_b
        answered[1] += answer_r
        if read:
            wanted.append(held[reads[len(wanted)]])
        if wrote:
            register, value = writes[(sent["aw"] - 1)]
            held[register] = value
        await RisingEdge(dut.axi_clk)
        await Timer(1, "ns")
        for channel, taken in ((aw, wrote), (w, wrote), (ar, read)):
            if taken:
                channel.valid.value = 0
        if answered == [len(writes), len(reads)]:
            break
    assert answered == [len(writes), len(reads)]
    assert most or cycle < 3 * len(writes)


# Interrupts


@cocotb.test()
async def interrupts_are_masked_acknowledged_and_not_lost(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    good, bad = (encode(assemble(text.split("\n"))) for text in ("halt", "end"))
    happened = {
        good: bits(Register.INTERRUPT_PENDING, "done"),
        bad: bits(Register.INTERRUPT_PENDING, "done", "failed"),
    }
    failures = bits(Register.INTERRUPT_ENABLE, "failed")
    for program, enabled, line in (
        (good, 0, 0),
        (good, failures, 0),
        (good, ENDED, 1),
        (bad, 0, 0),
        (bad, failures, 1),
    ):
        await bench.start(program, bench.memory, {Register.INTERRUPT_ENABLE: enabled})
        while await bench.read(Register.STATUS) & BUSY:
            pass
        assert await bench.read(Register.INTERRUPT_PENDING) == happened[program]
        assert int(dut.axi_irq.value) == line
        # The mask shows and hides what is pending; bits that are not acknowledged stay.
        await bench.write(Register.INTERRUPT_ENABLE, ENDED)
        assert dut.axi_irq.value == 1
        await bench.write(Register.INTERRUPT_PENDING, bits(Register.INTERRUPT_PENDING, "done"))
        assert dut.axi_irq.value == 0
        assert await bench.read(Register.INTERRUPT_PENDING) == happened[program] & failures
        await bench.write(Register.INTERRUPT_PENDING, failures)
        assert await bench.read(Register.INTERRUPT_PENDING) == 0
    # A run ends in every cycle around an acknowledgement: in that of the acknowledgement itself, what happens
    # counts.
    seen = {"write": 0, "line": 0}
    cocotb.start_soon(watched(dut, seen))
    await bench.start(good, bench.memory)
    start = seen["write"]
    assert await bench.ended() == DONE
    ends = seen["line"] - start  # the first cycle in which it is pending
    tried = set()
    for wait in range(ends + 3):
        await bench.write(Register.CONTROL, RUN)
        start = seen["write"]
        await ClockCycles(dut.axi_clk, wait)
        await bench.write(Register.INTERRUPT_PENDING, ENDED)
        at = seen["write"] - start
        while await bench.read(Register.STATUS) & BUSY:
            pass
        assert await bench.read(Register.INTERRUPT_PENDING) == (ENDED if at < ends else 0), (at, ends)
        await bench.write(Register.INTERRUPT_PENDING, ENDED)
        tried.add(at - ends)
    assert tried >= {-2, -1, 0, 1}


async def watched(dut: Any, seen: dict[str, int]) -> None:
    """Note the cycle of the last write to a register, and that in which the interrupt last rose."""
    cycle = line = 0
    while True:
        await FallingEdge(dut.axi_clk)
        cycle += 1
        if dut.s_axil_awvalid.value and dut.s_axil_awready.value:
            seen["write"] = cycle
        if dut.axi_irq.value and not line:
            seen["line"] = cycle
        line = int(dut.axi_irq.value)


# Protection

ROW = "columns=20 blocks=1 tail=16 slots=1"
FIRST, LIMIT = 0x23C0, 0x23C0 + 20 * BEAT_BYTES  # of what is read: two bursts
OUT = WRITABLE[0] + 0x3C0  # of what is written, likewise
EDGES = (
    f"describe 1 transfer class=input dram={FIRST} {ROW}",
    f"describe 2 transfer class=output dram={OUT} {ROW}", "load 1 count=1",
    "store 2 count=1 wait_load=0", "halt",
)  # fmt: skip


@cocotb.test()
async def regions_end_at_their_last_byte(dut: Any) -> None:
    """A region that fits to the byte serves; one byte less gives REGION, and nothing beyond is touched."""
    bench = Bench(dut)
    await bench.reset()
    program = encode(assemble(EDGES))
    size, out = len(program), (OUT, OUT + LIMIT - FIRST)
    behind, before = {Register.PROGRAM_ADDRESS: LIMIT}, {Register.PROGRAM_ADDRESS: FIRST - size}
    cases = (
        # the program lies behind the row that is loaded, at the end of what may be read
        (behind, (0, 0), (0, 0), None),
        (behind, (1, 0), (0, 0), Queue.LOAD),
        (behind, (0, -1), (0, 0), Queue.SEQUENCER),
        (before, (0, 0), (0, 0), None),
        (before, (1, 0), (0, 0), Queue.SEQUENCER),
        (before, (0, -1), (0, 0), Queue.LOAD),
        (before, (0, 0), (1, 0), Queue.STORE),
        (before, (0, 0), (0, -1), Queue.STORE),
    )
    for place, read_move, write_move, queue in cases:
        read = (FIRST, LIMIT + size) if place is behind else (FIRST - size, LIMIT)
        moved = (
            read[0] + read_move[0],
            read[1] + read_move[1],
            out[0] + write_move[0],
            out[1] + write_move[1],
        )
        names = (Register.READ_BASE, Register.READ_LIMIT, Register.WRITE_BASE, Register.WRITE_LIMIT)
        bench.monitor.writable = (moved[2] + -moved[2] % BEAT_BYTES, moved[3] // BEAT_BYTES * BEAT_BYTES)
        status, memory = await bench.run(program, bench.memory, place | dict(zip(names, moved, strict=True)))
        wanted = bench.memory.copy()
        wanted[place[Register.PROGRAM_ADDRESS] :][:size] = np.frombuffer(program, np.uint8)
        if queue is None:
            assert status == DONE, moved
            wanted[slice(*out)] = bench.memory[FIRST:LIMIT]
        else:
            assert status == FAILED, moved
            assert (await bench.fault())[:2] == (Error.REGION, queue), moved
            wanted[slice(*out)] = memory[slice(*out)]
        assert np.array_equal(memory, wanted), moved


# Runs that are given up


@cocotb.test()
@cocotb.parametrize(abort=[False, True])
async def memory_that_falls_silent_ends_a_run_and_may_answer_later(dut: Any, abort: bool) -> None:
    """An abort does not wait for a computation, which moves all the time."""
    bench = Bench(dut)
    await bench.reset()
    program, bus = encode(assemble(MOVES.strip().splitlines())), bits(Register.STATUS, "bus")
    computes = [
        line.replace("KERNEL", "kernel_rows=4095 kernel_columns=4095") for line in ONE_LONG_COMMAND[:-1]
    ]
    busy = encode(
        assemble(
            [
                *computes,
                "describe 3 transfer class=input columns=300 blocks=1 tail=16 base=1000 slots=1",
                "load 3 count=1",
                "halt",
            ]
        )
    )
    await bench.start(busy if abort else program, bench.memory, {Register.WATCHDOG: 150})
    await ClockCycles(dut.axi_clk, 250 if abort else 100)
    bench.ram.read_if.r_channel.pause = True
    if abort:
        await bench.write(Register.CONTROL, bits(Register.CONTROL, "abort"))
    await with_timeout(RisingEdge(dut.axi_irq), 400 * PERIOD_NS, "ns")
    assert await bench.read(Register.STATUS) == FAILED | bus
    assert (await bench.fault())[:2] == (
        (Error.ABORTED, Queue.SEQUENCER) if abort else (Error.TIMEOUT, Queue.LOAD)
    )
    await bench.write(Register.INTERRUPT_PENDING, await bench.read(Register.INTERRUPT_PENDING))
    bench.ram.read_if.r_channel.pause = False
    await ClockCycles(dut.axi_clk, 400)
    assert await bench.read(Register.STATUS) == FAILED
    bench.monitor.quiet()
    status, memory = await bench.run(program, bench.memory)
    assert status == DONE
    assert np.array_equal(memory, emulate(program, bench.memory, write_region=WRITABLE).memory)


LONG = """
describe 1 transfer class=input dram=0x100 columns=300 blocks=1 tail=16 slots=1
describe 2 transfer class=output dram=0x20040 columns=300 blocks=1 tail=16 slots=1
describe 3 transfer class=input dram=0x2000 columns=300 base=300 blocks=1 tail=4 slots=1
load 1 count=1
loop 30
load 3 count=1
store 2 count=1 wait_load=1
end
halt
"""


@cocotb.test()
@cocotb.parametrize(pressed=[False, True])
async def a_run_that_is_aborted_drains_and_the_next_one_succeeds(dut: Any, pressed: bool) -> None:
    bench = Bench(dut, stalled=pressed, pressed=pressed)
    await bench.reset()
    program, after = (encode(assemble(text.strip().splitlines())) for text in (LONG, COMPUTED))
    wanted = emulate(after, bench.memory, buffer_bytes=BUFFER_BYTES, write_region=WRITABLE, check=True)
    done = emulate(program, bench.memory, write_region=WRITABLE).memory
    under_way = {"r": 0, "b": 0}  # most that an abort has found
    for cycles in (150, 420, 777) if pressed else (0, 1, 30, 150, 360, 420, 560, 777):
        written = bench.monitor.bytes["w"]
        await bench.start(program, bench.memory)
        await ClockCycles(dut.axi_clk, cycles)
        await bench.write(Register.CONTROL, bits(Register.CONTROL, "abort"))
        owed, requests, offered = (
            dict(bench.monitor.owed),
            dict(bench.monitor.requests),
            set(bench.monitor.held),
        )
        under_way = {channel: max(most, owed.get(channel, 0)) for channel, most in under_way.items()}
        assert await bench.ended() == FAILED
        assert (await bench.fault())[:2] == (Error.ABORTED, Queue.SEQUENCER)
        # what was offered may not be taken back, and what is in a register is offered: no more
        for channel in ("ar", "aw"):
            more = bench.monitor.requests[channel] - requests.get(channel, 0)
            assert more <= 1 + (channel in offered), (channel, more, cycles)
        before = dict(bench.monitor.requests)
        await ClockCycles(dut.axi_clk, 40)
        assert dict(bench.monitor.requests) == before
        memory = np.frombuffer(bench.ram.read(0, len(done)), np.uint8)
        assert ((memory == bench.memory) | (memory == done)).all()
        counted = await bench.counters()
        assert counted[Counter.CYCLES] < 6000
        # beats without strobes only end their burst
        assert counted[Counter.WRITTEN_OUTPUT] == bench.monitor.bytes["w"] - written
        if cycles in (0, 777):
            await agrees(bench, after, bench.memory, wanted)
    assert under_way["r"] > 8
    assert under_way["b"] > 0
