"""The driver in C on the accelerator: registers through AXI4-Lite, memory behind AXI.

test_cocotb.py leaves the driver, a command stream, its inputs and its outputs in the folder that $FIRMWARE
names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cocotb
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles, First, RisingEdge

from lfopt.isa.registers import PAGE_BYTES
from lfopt.isa.tables import Class, Counter, Error, Queue
from tests.hw_rtl.benches.system import Bench
from tests.hw_rtl.firmware import opened

FOLDER = Path(os.environ.get("FIRMWARE", ""))
ADDRESS = 5 * PAGE_BYTES  # of the memory that the driver gives to the accelerator
NAP = 300  # cycles, of one wait


class Processor:
    """What runs the driver.

    Everything but `run` is called by a thread of its own, which stands still while the simulation goes on.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench, (self.ffi, self.lib) = bench, opened(FOLDER / "lf_device.so")
        self.errors: list[object] = []
        self.cleaned: list[tuple[int, int]] = []
        self.naps, self.patience = 0, 1 << 30
        ffi = self.ffi
        self.room = ffi.from_buffer("uint8_t[]", bench.storage)[ADDRESS : len(bench.storage)]
        callbacks: dict[str, tuple[str, Callable[..., Any]]] = {
            "read": ("uint32_t(void *, uint32_t)", lambda _, offset: resume(bench.read)(offset)),
            "write": (
                "void(void *, uint32_t, uint32_t)",
                lambda _, offset, value: resume(bench.write)(offset, value),
            ),
            "clean": ("void(void *, const void *, size_t)", self.clean),
            "wait": ("bool(void *)", self.wait),
        }
        self.functions = {
            name: ffi.callback(kind, function, onerror=self.broken)
            for name, (kind, function) in callbacks.items()
        }
        self.platform = ffi.new("struct lf_platform *", {**self.functions, "interrupts": True})
        self.memory = ffi.new(
            "struct lf_memory *", {"data": self.room, "address": ADDRESS, "bytes": len(self.room)}
        )
        self.files = [
            ffi.from_buffer("uint8_t[]", (FOLDER / f"{name}.bin").read_bytes())
            for name in ("manifest", "program", "constants")
        ]
        self.stream = ffi.new(
            "struct lf_stream *", [value for data in self.files for value in (data, len(data))]
        )
        self.device: Any = ffi.new("struct lf_device *")

    def broken(self, kind: object, error: object, trace: object) -> None:
        self.errors.append(error)

    def clean(self, _: object, start: Any, size: int) -> None:
        first = int(self.ffi.cast("uintptr_t", start)) - int(self.ffi.cast("uintptr_t", self.room))
        self.cleaned.append((first, first + size))

    def wait(self, _: object) -> bool:
        """Sleep until the interrupt, whose handler runs then."""
        self.naps += 1
        resume(self.sleep)()
        if self.bench.dut.axi_irq.value:
            assert self.lib.lf_interrupt(self.device)
            assert not self.bench.dut.axi_irq.value
        return self.naps < self.patience

    async def sleep(self) -> None:
        if not self.bench.dut.axi_irq.value:
            await First(RisingEdge(self.bench.dut.axi_irq), ClockCycles(self.bench.dut.axi_clk, NAP))

    def called(self, name: str, *arguments: object) -> str:
        """The result of a function of the driver, by its name."""
        result = self.ffi.cast("enum lf_result", getattr(self.lib, name)(self.device, *arguments))
        assert not self.errors, self.errors
        return str(self.ffi.string(result))

    def maps(self, way: str) -> list[Any]:
        maps = []
        while self.called(f"lf_{way}", len(maps), each := self.ffi.new("struct lf_map *")) == "LF_OK":
            maps.append(each)
        return maps

    def outputs(self) -> bytes:
        contents = b""
        for each in self.maps("output"):
            data = self.ffi.new("uint8_t[]", each.channels * each.rows * each.columns)
            self.lib.lf_unpack(self.device, each, data)
            contents += bytes(data)
        return contents

    def load(self) -> None:
        assert self.called("lf_init", self.platform) == "LF_OK"
        assert self.called("lf_start") == "LF_NOT_LOADED"
        assert self.called("lf_load", self.stream, self.memory) == "LF_OK"
        data, at = (FOLDER / "inputs.bin").read_bytes(), 0
        for each in self.maps("input"):
            self.lib.lf_pack(self.device, each, self.ffi.from_buffer(data[at:]))
            at += each.channels * each.rows * each.columns
        assert at == len(data)

    def counters(self) -> dict[Counter, int]:
        return {counter: self.lib.lf_read_counter(self.device, counter) for counter in Counter}


@cocotb.test()
@cocotb.parametrize(pressed=[False, True])
async def the_driver_runs_aborts_and_runs_a_stream(dut: Any, pressed: bool) -> None:
    bench = Bench(dut, stalled=pressed, pressed=pressed)
    await bench.reset()
    processor, facts = Processor(bench), json.loads((FOLDER / "facts.json").read_text())
    bench.monitor.writable = (ADDRESS + facts["maps_address"], ADDRESS + facts["memory_bytes"])
    wanted = (FOLDER / "outputs.bin").read_bytes()

    def firmware() -> None:
        processor.load()
        assert processor.called("lf_run") == "LF_OK"
        assert processor.outputs() == wanted
        bench.monitor.quiet()
        counted = processor.counters()
        for kind in Class:
            moved = counted[Counter[f"READ_{kind.name}"]] + counted[Counter[f"WRITTEN_{kind.name}"]]
            assert moved == facts["planned"].get(kind.name.lower(), len(processor.files[1])), kind
        assert counted[Counter.LOADS] + counted[Counter.STORES] + counted[Counter.EXECS] == facts["commands"]
        program, constants, maps = processor.cleaned
        assert (program, maps) == (
            (0, len(processor.files[1])),
            (facts["maps_address"], facts["memory_bytes"]),
        )
        assert constants[1] <= maps[0]
        # In the middle of the next run the processor has waited long enough.
        processor.naps, processor.patience = 0, counted[Counter.CYCLES] // NAP // 2
        assert processor.called("lf_start") == "LF_OK"
        assert processor.called("lf_start") == "LF_BUSY"
        assert processor.called("lf_load", processor.stream, processor.memory) == "LF_BUSY"
        assert processor.called("lf_wait") == "LF_GAVE_UP"
        processor.patience = 1 << 30
        assert processor.called("lf_abort") == "LF_OK"
        bench.monitor.quiet()
        fault = processor.lib.lf_last_fault(processor.device)
        assert (fault.code, fault.queue) == (Error.ABORTED, Queue.SEQUENCER)
        assert processor.ffi.string(processor.lib.lf_error_text(fault.code)) == Error.ABORTED.about.encode()
        for each in processor.maps("output"):
            processor.lib.lf_pack(
                processor.device,
                each,
                processor.ffi.new("uint8_t[]", each.channels * each.rows * each.columns),
            )
        assert processor.outputs() == bytes(len(wanted))
        assert processor.called("lf_run") == "LF_OK"
        assert processor.outputs() == wanted
        # A run that is too long.
        processor.device.cycle_limit = 500
        assert processor.called("lf_run") == "LF_FAILED"
        assert processor.lib.lf_last_fault(processor.device).code == Error.LIMIT

    await bridge(firmware)()
    assert not processor.errors
