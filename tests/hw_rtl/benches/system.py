"""Benches of the whole accelerator: lf_axi with cocotbext-axi's models, channel rules, a processor."""

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

from hw_rtl.emulator import Emulation
from lfopt.isa.registers import BYTES, PAGE_BYTES, Register
from lfopt.isa.tables import BEAT_BYTES, WORD_BYTES, Class, Counter, Opcode
from tests.hw_rtl.benches.harness import PERIOD_NS
from tests.hw_rtl.programs import MEMORY_BYTES, WRITABLE

MOST_BEATS = 64
OUTSTANDING = 4
INCREMENT, WHOLE_BEAT = 1, 4
LIMIT_NS = 60_000 * PERIOD_NS
PROGRAM = MEMORY_BYTES  # address: behind what the emulator knows as memory
CHANNELS: Mapping[str, tuple[str, ...]] = {
    "ar": ("addr", "len", "size", "burst"), "aw": ("addr", "len", "size", "burst"),
    "w": ("data", "strb", "last"), "r": ("data", "resp", "last"), "b": ("resp",),
}  # fmt: skip


def bits(register: Register, *names: str) -> int:
    """A register in which these fields are 1."""
    return register.layout.pack(dict.fromkeys(names, 1))


DONE, FAILED = bits(Register.STATUS, "done"), bits(Register.STATUS, "done", "failed")
RUN = bits(Register.CONTROL, "start", "clear")
ENDED = bits(Register.INTERRUPT_ENABLE, "done")


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
        self.writable: tuple[int, int] = WRITABLE
        self.task = cocotb.start_soon(self.watch())

    def see(self, name: str) -> int:
        return int(getattr(self.dut, f"m_axi_{name}").value)

    async def watch(self) -> None:
        while True:
            # what is there in the middle of a cycle is what the clock will meet
            await FallingEdge(self.dut.axi_clk)
            if self.dut.axi_rst.value == 1:
                continue
            for channel, names in CHANNELS.items():
                if not self.see(f"{channel}valid"):
                    assert channel not in self.held, f"{channel}: taken back"
                    continue
                offered = tuple(self.see(channel + name) for name in names)
                assert self.held.get(channel, offered) == offered, f"{channel}: changed before it was taken"
                self.held[channel] = offered
                if self.see(f"{channel}ready"):
                    del self.held[channel]
                    self.requests[channel] += 1
                    self.taken(channel, offered)

    def taken(self, channel: str, signals: tuple[int, ...]) -> None:
        if channel in ("ar", "aw"):
            address, length, size, burst = signals
            assert (size, burst) == (WHOLE_BEAT, INCREMENT)
            assert length < MOST_BEATS
            assert address % BEAT_BYTES == 0
            assert address % PAGE_BYTES + (length + 1) * BEAT_BYTES <= PAGE_BYTES, (
                f"{channel}: {length + 1} beats from {address:#x} on cross 4 KiB"
            )
        if channel == "ar":
            self.owed["r"] += signals[1] + 1
        elif channel == "aw":
            self.writes.append((signals[0], signals[1] + 1))
            self.owed["b"] += 1
            assert self.owed["b"] <= OUTSTANDING
        elif channel == "w":
            self.sent.append((signals[1], signals[2]))
            self.bytes["w"] += signals[1].bit_count()
        else:
            self.owed[channel] -= 1
            assert self.owed[channel] >= 0
            self.bytes[channel] += BEAT_BYTES
        while self.writes and self.sent:
            (address, beats), (strobes, last) = self.writes.popleft(), self.sent.popleft()
            assert last == (beats == 1)
            if strobes:
                assert self.writable[0] <= address < self.writable[1], f"a write at {address:#x}"
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
        self.storage = bytearray(2 * MEMORY_BYTES)
        self.ram: Any = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.axi_clk, dut.axi_rst, mem=self.storage)
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
            for channel in (
                ram.read_if.ar_channel,
                ram.write_if.aw_channel,
                ram.write_if.w_channel,
                lite.write_if.b_channel,
                lite.read_if.r_channel,
            ):
                channel.set_pause_generator(self.gaps())
        await ClockCycles(dut.axi_clk, 4)
        dut.axi_rst.value = 0
        await ClockCycles(dut.axi_clk, 2)
        self.monitor = Monitor(dut)

    def gaps(self) -> Iterator[bool]:
        while True:
            yield bool(self.rng.random() < 0.5)

    async def write(self, register: int, value: int) -> None:
        await self.lite.write(register, value.to_bytes(BYTES, "little"))

    async def read(self, register: int) -> int:
        return int.from_bytes((await self.lite.read(register, BYTES)).data, "little")

    async def start(
        self, program: bytes, memory: np.ndarray, settings: Mapping[Register, int] | None = None
    ) -> None:
        self.ram.write(0, memory.tobytes())
        place = (settings or {}).get(Register.PROGRAM_ADDRESS, PROGRAM)
        self.ram.write(place, program)
        values = {
            Register.PROGRAM_ADDRESS: PROGRAM, Register.PROGRAM_WORDS: len(program) // WORD_BYTES,
            Register.READ_BASE: 0, Register.READ_LIMIT: PROGRAM + len(program),
            Register.WRITE_BASE: WRITABLE[0], Register.WRITE_LIMIT: WRITABLE[1], Register.WATCHDOG: 4000,
            Register.INTERRUPT_ENABLE: ENDED,
        }  # fmt: skip
        for register, value in {**values, **(settings or {}), Register.CONTROL: RUN}.items():
            await self.write(register, value)

    async def ended(self) -> int:
        """STATUS once the interrupt has come, which is acknowledged."""
        if not self.dut.axi_irq.value:
            await with_timeout(RisingEdge(self.dut.axi_irq), LIMIT_NS, "ns")
        status = await self.read(Register.STATUS)
        await self.write(Register.INTERRUPT_PENDING, await self.read(Register.INTERRUPT_PENDING))
        assert not self.dut.axi_irq.value
        self.monitor.quiet()
        return status

    async def run(
        self, program: bytes, memory: np.ndarray, settings: Mapping[Register, int] | None = None
    ) -> tuple[int, np.ndarray]:
        """(STATUS, memory afterwards). Waits for the interrupt."""
        await self.start(program, memory, settings)
        return await self.ended(), np.frombuffer(self.ram.read(0, MEMORY_BYTES), np.uint8)

    async def fault(self) -> tuple[int, int, int]:
        """Error, who found it, and where."""
        fields = Register.ERROR.layout.unpack(await self.read(Register.ERROR))
        return fields["code"], fields["queue"], await self.read(Register.ERROR_INDEX)

    async def counters(self) -> dict[Counter, int]:
        data = (await self.lite.read(Register.COUNTERS, 8 * len(Counter))).data
        return dict(zip(Counter, np.frombuffer(data, "<u8").tolist(), strict=True))


async def agrees(bench: Bench, program: bytes, memory: np.ndarray, wanted: Emulation) -> None:
    """The program does what the emulator does; its counters say what the monitor has seen."""
    bench.monitor.bytes.clear()
    status, left = await bench.run(program, memory)
    assert status == DONE
    different = np.flatnonzero(left != wanted.memory)  # guard bytes: all of memory
    assert not different.size, f"{different.size} bytes differ, the first at {different[0]:#x}"
    counted = await bench.counters()
    for kind in Class:
        assert counted[Counter[f"READ_{kind.name}"]] == wanted.read[kind], kind
        assert counted[Counter[f"WRITTEN_{kind.name}"]] == wanted.written[kind], kind
    assert bench.monitor.bytes["r"] == sum(
        counted[counter] for counter in Counter if counter.name.startswith("READ_")
    )
    assert bench.monitor.bytes["w"] == sum(
        counted[counter] for counter in Counter if counter.name.startswith("WRITTEN_")
    )
    assert [counted[Counter[name]] for name in ("LOADS", "STORES", "EXECS")] == [
        wanted.commands[opcode] for opcode in (Opcode.LOAD, Opcode.STORE, Opcode.EXEC)
    ]
    assert counted[Counter.CYCLES] >= max(
        counted[Counter.LOAD_BUSY], counted[Counter.STORE_BUSY], counted[Counter.EXEC_BUSY]
    )
    assert await bench.fault() == (0, 0, 0)
    # Reading counters leaves them, and they stand still.
    assert await bench.counters() == counted
