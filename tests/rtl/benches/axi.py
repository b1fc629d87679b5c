"""lf_axi with the AXI models of cocotbext-axi: programs against the emulator, the rules of the channels, errors of the bus, registers."""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, Timer, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam
from cocotbext.axi.constants import AxiResp

from hw_rtl.emulator import Emulation, emulate
from lfopt.isa.program import assemble, encode
from lfopt.isa.tables import BEAT_BYTES, ID, WORD_BYTES, Class, Counter, Error, Opcode, Queue, Register
from tests.rtl.benches.harness import BUFFER_BYTES, PERIOD_NS, matrix
from tests.rtl.test_control import COMPUTED, MEMORY_BYTES, WRITABLE, random_program

PROGRAMS = (3, 5)  # seeds of random ones that are not too long
PAGE = 4096
MOST_BEATS = 64
OUTSTANDING = 4
INCREMENT, WHOLE_BEAT = 1, 4
LIMIT_NS = 60_000 * PERIOD_NS
BUSY, DONE, FAILED = 1, 2, 4  # bits of STATUS
START, CLEAR = 1, 2  # bits of CONTROL
PROGRAM = MEMORY_BYTES  # address: behind what the emulator knows as memory
CHANNELS: Mapping[str, tuple[str, ...]] = {
    "ar": ("addr", "len", "size", "burst"), "aw": ("addr", "len", "size", "burst"), "w": ("data", "strb", "last"), "r": ("data", "resp", "last"),
    "b": ("resp",),
}  # fmt: skip


class Monitor:
    """Looks at every channel in every cycle, and holds it against the rules of AXI and of the accelerator."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.held: dict[str, tuple[int, ...]] = {}
        self.bytes = Tally[str]()
        self.requests = Tally[str]()
        self.writes = deque[tuple[int, int]]()  # (address, beats) of requests whose beats have not all gone
        self.sent = deque[tuple[int, int]]()  # (strobes, last) of beats that went before their request
        self.owed = Tally[str]()  # beats to read, responses to writes
        self.places: set[int] = set()  # beats that were written
        self.task = cocotb.start_soon(self.watch())

    def see(self, name: str) -> int:
        return int(getattr(self.dut, f"m_axi_{name}").value)

    async def watch(self) -> None:
        while True:
            await FallingEdge(self.dut.axi_clk)  # what is there in the middle of a cycle is what the clock will meet
            if self.dut.axi_rst.value == 1:
                continue
            for channel, names in CHANNELS.items():
                if not self.see(f"{channel}valid"):
                    assert channel not in self.held, f"{channel}: taken back"
                    continue
                found = tuple(self.see(channel + name) for name in names)
                assert self.held.get(channel, found) == found, f"{channel}: changed before it was taken"
                self.held[channel] = found
                if self.see(f"{channel}ready"):
                    del self.held[channel]
                    self.requests[channel] += 1
                    self.taken(channel, found)

    def taken(self, channel: str, found: tuple[int, ...]) -> None:
        if channel in ("ar", "aw"):
            address, length, size, burst = found
            assert (size, burst) == (WHOLE_BEAT, INCREMENT)
            assert length < MOST_BEATS
            assert address % BEAT_BYTES == 0
            assert address % PAGE + (length + 1) * BEAT_BYTES <= PAGE, f"{channel}: {length + 1} beats from {address:#x} on cross 4 KiB"
        if channel == "ar":
            self.owed["r"] += found[1] + 1
        elif channel == "aw":
            self.writes.append((found[0], found[1] + 1))
            self.owed["b"] += 1
            assert self.owed["b"] <= OUTSTANDING
        elif channel == "w":
            self.sent.append((found[1], found[2]))
            self.bytes["w"] += found[1].bit_count()
        else:
            self.owed[channel] -= 1
            assert self.owed[channel] >= 0
            self.bytes[channel] += BEAT_BYTES
        while self.writes and self.sent:
            (address, beats), (strobes, last) = self.writes.popleft(), self.sent.popleft()
            assert last == (beats == 1)
            if strobes:
                assert WRITABLE[0] <= address < WRITABLE[1], f"a write at {address:#x}"
                self.places.add(address)
            if not last:
                self.writes.appendleft((address + BEAT_BYTES, beats - 1))

    def quiet(self) -> None:
        """Nothing is under way."""
        assert not self.held
        assert not self.writes
        assert not self.sent
        assert not any(self.owed.values()), self.owed


class Bench:
    """The accelerator, a memory, and a processor that knows its registers."""

    def __init__(self, dut: Any, *, stalled: bool = False, pressed: bool = False) -> None:
        self.dut, self.rng = dut, np.random.default_rng(8)
        self.stalled, self.pressed = stalled, pressed

    async def reset(self) -> None:
        dut = self.dut
        await Timer(1, "ns")
        dut.axi_rst.value = 1
        Clock(dut.axi_clk, PERIOD_NS, "ns").start()
        self.memory = np.random.default_rng(5).integers(0, 256, MEMORY_BYTES, np.uint8)
        self.ram: Any = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.axi_clk, dut.axi_rst, size=2 * MEMORY_BYTES)
        self.lite: Any = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.axi_clk, dut.axi_rst)
        for half in (self.ram.write_if, self.ram.read_if, self.lite.write_if, self.lite.read_if):
            half.log.setLevel("WARNING")
        ram, lite = self.ram, self.lite
        if self.stalled:
            for channel in (
                ram.read_if.r_channel,
                ram.write_if.b_channel,
                lite.write_if.aw_channel,
                lite.write_if.w_channel,
                lite.read_if.ar_channel,
            ):
                channel.set_pause_generator(self.gaps())
        if self.pressed:
            for channel in (ram.read_if.ar_channel, ram.write_if.aw_channel, ram.write_if.w_channel, lite.write_if.b_channel, lite.read_if.r_channel):
                channel.set_pause_generator(self.gaps())
        await ClockCycles(dut.axi_clk, 4)
        dut.axi_rst.value = 0
        await ClockCycles(dut.axi_clk, 2)
        self.monitor = Monitor(dut)

    def gaps(self) -> Iterator[bool]:
        while True:
            yield bool(self.rng.random() < 0.5)

    async def write(self, register: int, value: int) -> None:
        await self.lite.write(register, value.to_bytes(4, "little"))

    async def read(self, register: int) -> int:
        return int.from_bytes((await self.lite.read(register, 4)).data, "little")

    async def start(self, program: bytes, memory: np.ndarray) -> None:
        self.ram.write(0, memory.tobytes())
        self.ram.write(PROGRAM, program)
        for register, value in (
            (Register.PROGRAM_ADDRESS, PROGRAM), (Register.PROGRAM_WORDS, len(program) // WORD_BYTES), (Register.READ_BASE, 0),
            (Register.READ_LIMIT, PROGRAM + len(program)), (Register.WRITE_BASE, WRITABLE[0]), (Register.WRITE_LIMIT, WRITABLE[1]),
            (Register.WATCHDOG, 4000), (Register.CONTROL, START | CLEAR),
        ):  # fmt: skip
            await self.write(register, value)

    async def run(self, program: bytes, memory: np.ndarray) -> tuple[int, np.ndarray]:
        """(STATUS, memory afterwards). Waits for the interrupt."""
        await self.start(program, memory)
        await ClockCycles(self.dut.axi_clk, 2)  # until the interrupt of the run before is gone
        if not self.dut.axi_done.value:
            await with_timeout(RisingEdge(self.dut.axi_done), LIMIT_NS, "ns")
        await ClockCycles(self.dut.axi_clk, 3)
        self.monitor.quiet()
        return await self.read(Register.STATUS), np.frombuffer(self.ram.read(0, MEMORY_BYTES), np.uint8)

    async def counters(self) -> dict[Counter, int]:
        data = (await self.lite.read(Register.COUNTERS, 8 * len(Counter))).data
        return dict(zip(Counter, np.frombuffer(data, "<u8").tolist(), strict=True))


async def agrees(bench: Bench, program: bytes, memory: np.ndarray, wanted: Emulation) -> None:
    """The program does what the emulator does; its counters say what the monitor has seen."""
    bench.monitor.bytes.clear()
    status, found = await bench.run(program, memory)
    assert status == DONE
    different = np.flatnonzero(found != wanted.memory)  # guard bytes: all of memory
    assert not different.size, f"{different.size} bytes differ, the first at {different[0]:#x}"
    counted = await bench.counters()
    for kind in Class:
        assert counted[Counter[f"READ_{kind.name}"]] == wanted.read[kind], kind
        assert counted[Counter[f"WRITTEN_{kind.name}"]] == wanted.written[kind], kind
    assert bench.monitor.bytes["r"] == sum(counted[counter] for counter in Counter if counter.name.startswith("READ_"))
    assert bench.monitor.bytes["w"] == sum(counted[counter] for counter in Counter if counter.name.startswith("WRITTEN_"))
    assert [counted[Counter[name]] for name in ("LOADS", "STORES", "EXECS")] == [
        wanted.commands[opcode] for opcode in (Opcode.LOAD, Opcode.STORE, Opcode.EXEC)
    ]
    assert counted[Counter.CYCLES] >= max(counted[Counter.LOAD_BUSY], counted[Counter.STORE_BUSY], counted[Counter.EXEC_BUSY])
    assert await bench.read(Register.ERROR) == 0
    # Reading counters leaves them, and they stand still.
    assert await bench.counters() == counted


@cocotb.test()
@matrix
async def loads_and_stores_do_what_the_emulator_does(dut: Any, stalled: bool, pressed: bool) -> None:
    bench = Bench(dut, stalled=stalled, pressed=pressed)
    await bench.reset()
    for seed in PROGRAMS:
        commands, wanted = random_program(seed, bench.memory)
        await agrees(bench, encode(commands), bench.memory, wanted)
    assert bench.monitor.places


@cocotb.test()
@matrix
async def a_convolution_does_what_the_emulator_does(dut: Any, stalled: bool, pressed: bool) -> None:
    bench = Bench(dut, stalled=stalled, pressed=pressed)
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
    """Let one half of a memory answer accesses to bytes first .. last with SLVERR. Returns what it did before."""
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
        (bench.ram.read_if, "_read", 0x1000, Queue.LOAD, 0), (bench.ram.write_if, "_write", 0x20800, Queue.STORE, 0),
        (bench.ram.read_if, "_read", PROGRAM, Queue.SEQUENCER, 0),
    )  # fmt: skip
    for half, method, place, queue, index in cases:
        good = breaks(half, method, place, place + 1)
        status, found = await bench.run(program, bench.memory)
        setattr(half, method, good)
        assert status == DONE | FAILED
        assert await bench.read(Register.ERROR) == Error.BUS | queue << 8
        assert await bench.read(Register.ERROR_INDEX) == index
        changed = np.flatnonzero(found != bench.memory)
        assert queue is Queue.STORE or not changed.size
        assert not changed.size or (changed[0] >= 0x20040 and changed[-1] < 0x20040 + 300 * BEAT_BYTES)
    # It works again afterwards.
    status, found = await bench.run(program, bench.memory)
    assert status == DONE
    assert np.array_equal(found, emulate(program, bench.memory, write_region=WRITABLE).memory)
    assert await bench.read(Register.ERROR) == 0


@cocotb.test()
async def registers_are_what_the_isa_says(dut: Any) -> None:
    bench = Bench(dut, stalled=True, pressed=True)
    await bench.reset()
    assert await bench.read(Register.ID) == ID
    assert await bench.read(Register.STATUS) == 0
    plain = (Register.PROGRAM_WORDS, Register.READ_BASE, Register.READ_LIMIT, Register.WRITE_BASE, Register.WRITE_LIMIT, Register.WATCHDOG)
    values = {register: int(bench.rng.integers(0, 1 << 32)) for register in plain}
    for register, value in values.items():
        await bench.write(register, value)
    await bench.write(Register.PROGRAM_ADDRESS, 0xABCDEF7F)
    assert await bench.read(Register.PROGRAM_ADDRESS) == 0xABCDEF70
    for register, value in values.items():
        assert await bench.read(register) == value
    for register in (Register.ID, Register.STATUS, Register.ERROR, Register.ERROR_INDEX, Register.COUNTERS + 8 * Counter.CYCLES):
        before = await bench.read(register)
        await bench.write(register, 0x5A5A5A5A)
        assert await bench.read(register) == before
    # Parts of a register are refused, and change nothing.
    answer = await bench.lite.write(Register.WATCHDOG + 1, b"\x00")
    assert answer.resp == AxiResp.SLVERR
    assert await bench.read(Register.WATCHDOG) == values[Register.WATCHDOG]
    assert await bench.counters() == dict.fromkeys(Counter, 0)
    assert not bench.monitor.requests


@cocotb.test()
async def registers_stay_while_the_accelerator_is_busy(dut: Any) -> None:
    bench = Bench(dut, stalled=True)
    await bench.reset()
    program = encode(assemble(MOVES.strip().splitlines()))
    await bench.start(program, bench.memory)
    assert await bench.read(Register.STATUS) == BUSY
    await bench.write(Register.PROGRAM_WORDS, 1)
    await bench.write(Register.CONTROL, START | CLEAR)
    cycles = await bench.read(Register.COUNTERS + 8 * Counter.CYCLES)
    assert cycles
    assert await bench.read(Register.STATUS) == BUSY
    await with_timeout(RisingEdge(dut.axi_done), LIMIT_NS, "ns")
    assert await bench.read(Register.STATUS) == DONE
    assert await bench.read(Register.PROGRAM_WORDS) == len(program) // WORD_BYTES
    assert await bench.read(Register.COUNTERS + 8 * Counter.CYCLES) > cycles
    assert await bench.read(Register.COUNTERS + 8 * Counter.LOADS) == 2
    # Counters go on over runs that do not clear them.
    await bench.write(Register.CONTROL, START)
    await with_timeout(RisingEdge(dut.axi_done), LIMIT_NS, "ns")
    assert await bench.read(Register.COUNTERS + 8 * Counter.LOADS) == 4
    await bench.write(Register.CONTROL, CLEAR)
    assert await bench.counters() == dict.fromkeys(Counter, 0)
    assert await bench.read(Register.STATUS) == DONE
