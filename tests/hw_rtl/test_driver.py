"""The driver in C refuses by name before anything is written, and runs the Verilated accelerator from C++."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from codegen.accel import driver
from codegen.accel.manifest import sealed
from hw_rtl.build import FIRMWARE, SIMULATION, SimulationModel, linked
from lfopt.app.cache import keeper
from lfopt.isa.manifest import Header, MapEntry
from lfopt.isa.registers import BYTES, FIXED, ISA, PAGE_BYTES, Register
from lfopt.isa.tables import WORD_BYTES, Class, Counter, Error
from tests.conftest import ROOT
from tests.hw_rtl.firmware import Firmware, firmware, library, opened, packed

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="not found: cc")
LANES, BUFFER_BYTES = 16, 65536


@pytest.fixture(scope="module")
def built_firmware() -> Firmware:
    return firmware()


class Chip:
    """Registers that a test sets, and memory behind them."""

    def __init__(self, ffi: Any, lib: Any, memory_bytes: int) -> None:
        self.ffi, self.lib = ffi, lib
        self.registers = {**FIXED, Register.CAPABILITY: LANES, Register.BUFFER_BYTES: BUFFER_BYTES}
        self.memory = bytearray(memory_bytes)
        self.device, self.address = ffi.new("struct lf_device *"), PAGE_BYTES
        self.read = ffi.callback(
            "uint32_t(void *, uint32_t)", lambda _, offset: self.registers.get(offset, 0)
        )
        self.write = ffi.callback(
            "void(void *, uint32_t, uint32_t)",
            lambda _, offset, value: self.registers.update({offset: value}),
        )
        self.platform = ffi.new("struct lf_platform *", {"read": self.read, "write": self.write})

    def name(self, result: int) -> str:
        return self.ffi.string(self.ffi.cast("enum lf_result", result))

    def init(self) -> str:
        return self.name(self.lib.lf_init(self.device, self.platform))

    def load(self, *parts: bytes) -> str:
        self.parts = [self.ffi.from_buffer("uint8_t[]", part) for part in parts]
        self.stream = self.ffi.new(
            "struct lf_stream *", [value for part in self.parts for value in (part, len(part))]
        )
        room = self.ffi.from_buffer("uint8_t[]", self.memory)
        return self.name(
            self.lib.lf_load(
                self.device, self.stream, self.ffi.new("struct lf_memory *", [room, self.address, len(room)])
            )
        )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return opened(library(tmp_path_factory.mktemp("driver")))


@pytest.fixture
def chip(compiled: tuple[Any, Any], built_firmware: Firmware) -> Chip:
    device = Chip(*compiled, built_firmware.stream.memory_bytes)
    assert device.init() == "LF_OK"
    return device


def test_the_driver_is_freestanding(
    compiled: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It needs no function that it does not have: not even memcpy."""
    folder = tmp_path_factory.getbasetemp() / "driver0"
    undefined = subprocess.run(
        ["nm", "-D", "--undefined-only", folder / "lf_device.so"], capture_output=True, text=True, check=True
    ).stdout
    assert all(line.split()[0] == "w" for line in undefined.splitlines()), undefined
    assert "#include <st" in (folder / driver.HEADER).read_text()
    assert not re.findall(r"0x[0-9a-f]{2,}", (folder / driver.SOURCE).read_text())  # no address by hand


def test_the_program_of_the_page_compiles(
    compiled: tuple[Any, Any], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = (ROOT / "docs" / "driver.md").read_text()
    (tmp_path / "main.c").write_text(re.search(r"^```c\n(.*?)^```", page, re.M | re.S)[1])  # type: ignore[index]
    headers = tmp_path_factory.getbasetemp() / "driver0"
    subprocess.run(["cc", *FIRMWARE, f"-I{headers}", "-fsyntax-only", "main.c"], cwd=tmp_path, check=True)


def test_only_the_accelerator_of_this_version_is_accepted(chip: Chip) -> None:
    for register, wanted in ((Register.ID, "LF_NO_DEVICE"), (Register.VERSION, "LF_WRONG_VERSION")):
        chip.registers[register] ^= 1
        assert chip.init() == wanted
        chip.registers[register] ^= 1
    assert chip.init() == "LF_OK"


def test_a_stream_is_loaded_where_its_manifest_says(chip: Chip, built_firmware: Firmware) -> None:
    assert chip.load(*built_firmware.parts) == "LF_OK"
    stream = built_firmware.stream
    assert chip.memory[: len(stream.program)] == stream.program
    assert chip.memory[stream.constants_address :][: len(stream.constants)] == stream.constants
    assert chip.name(chip.lib.lf_start(chip.device)) == "LF_OK"
    wanted = {
        Register.DRAM_OFFSET: chip.address, Register.PROGRAM_ADDRESS: 0,
        Register.PROGRAM_WORDS: len(stream.program) // WORD_BYTES, Register.READ_BASE: 0,
        Register.READ_LIMIT: stream.memory_bytes, Register.WRITE_BASE: stream.maps_address,
        Register.WRITE_LIMIT: stream.memory_bytes, Register.WATCHDOG: Register.WATCHDOG.of.reset,
        Register.CYCLE_LIMIT: Register.CYCLE_LIMIT.of.reset,
        Register.CONTROL: Register.CONTROL.layout.pack({"start": 1, "clear": 1}),
        Register.INTERRUPT_ENABLE: 0,
    }  # fmt: skip
    assert {register: chip.registers[register] for register in wanted} == wanted


def changed(data: bytes, word: int, value: int) -> bytes:
    return sealed(data[: BYTES * word] + struct.pack("<I", value & 0xFFFFFFFF) + data[BYTES * (word + 1) :])


CHANGES = {  # of a manifest that is sealed again: value as a function of the one that was there
    Header.MAGIC: ("LF_BAD_MANIFEST", lambda v: v + 1),
    Header.BYTES: ("LF_BAD_MANIFEST", lambda v: v + 4),
    Header.ISA: ("LF_OTHER_DEVICE", lambda v: v ^ 1),
    Header.LANES: ("LF_OTHER_DEVICE", lambda v: 2 * v),
    Header.BUFFER_BYTES: ("LF_OTHER_DEVICE", lambda v: BUFFER_BYTES + 1),
    Header.MEMORY_BYTES: ("LF_BAD_MANIFEST", lambda v: v - 64),
    Header.PROGRAM_ADDRESS: ("LF_BAD_MANIFEST", lambda v: 0xFFFFFFF0),
    Header.PROGRAM_BYTES: ("LF_BAD_MANIFEST", lambda v: v + 1),
    Header.PROGRAM_CHECKSUM: ("LF_BAD_CHECKSUM", lambda v: v + 1),
    Header.CONSTANTS_ADDRESS: ("LF_BAD_MANIFEST", lambda v: 0xFFFFFFF0),
    Header.CONSTANTS_BYTES: ("LF_BAD_CHECKSUM", lambda v: v - 1),
    Header.CONSTANTS_CHECKSUM: ("LF_BAD_CHECKSUM", lambda v: v + 1),
    Header.MAPS_ADDRESS: ("LF_BAD_MANIFEST", lambda v: 0xFFFFFFC0),
    Header.INPUTS: ("LF_BAD_MANIFEST", lambda v: 0xFFFFFFFF),
    Header.OUTPUTS: ("LF_BAD_MANIFEST", lambda v: v + 1),
}


ENTRIES = (
    (MapEntry.ADDRESS, 8), (MapEntry.ADDRESS, 0xFFFFFFF0), (MapEntry.ROWS, 1 << 31), (MapEntry.CHANNELS, 0),
    (MapEntry.COLUMNS, 1 << 31), (MapEntry.ROW_BYTES, 0xFFFFFFF0),
)  # fmt: skip


def test_what_a_manifest_contradicts_is_refused_and_nothing_is_written(
    chip: Chip, built_firmware: Firmware
) -> None:
    data, program, constants = built_firmware.parts
    words = struct.unpack(f"<{len(data) // BYTES}I", data)
    for word, (wanted, change) in CHANGES.items():
        assert chip.load(changed(data, word, change(words[word])), program, constants) == wanted, word.name
    for entry, value in ENTRIES:
        assert (
            chip.load(changed(data, len(Header) + entry, value), program, constants) == "LF_BAD_MANIFEST"
        ), entry.name
    for cut in (0, 4, len(data) - 4, len(data) - 1):
        assert chip.load(data[:cut], program, constants) == "LF_BAD_MANIFEST"
    flipped = bytearray(data)
    flipped[-1] ^= 1
    assert chip.load(bytes(flipped), program, constants) == "LF_BAD_MANIFEST"
    assert chip.load(data, program[:-1] + b"\xff", constants) == "LF_BAD_CHECKSUM"
    assert chip.load(data, program, constants[:-1]) == "LF_BAD_CHECKSUM"
    chip.address = PAGE_BYTES + 16
    assert chip.load(data, program, constants) == "LF_NO_ROOM"
    chip.address = -PAGE_BYTES & 0xFFFFFFFF
    assert chip.load(data, program, constants) == "LF_NO_ROOM"
    chip.address, whole = 0, chip.memory
    chip.memory = bytearray(len(whole) - 1)
    assert chip.load(data, program, constants) == "LF_NO_ROOM"
    assert not any(whole)
    assert not any(chip.memory)
    assert chip.name(chip.lib.lf_start(chip.device)) == "LF_NOT_LOADED"
    assert words[Header.ISA] == ISA


def test_every_result_and_error_has_a_text(chip: Chip) -> None:
    ffi, lib = chip.ffi, chip.lib
    for number in range(len(ffi.typeof("enum lf_result").elements)):
        assert "unknown" not in ffi.string(lib.lf_result_text(number)).decode()
    for error in Error:
        assert ffi.string(lib.lf_error_text(error)).decode() == error.about
    assert ffi.string(lib.lf_error_text(200)).decode() == "unknown error"


def test_a_program_in_cpp_runs_the_driver_on_the_accelerator(
    model: SimulationModel, built_firmware: Firmware, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert request.config.cache is not None
    keep = keeper(Path(request.config.cache.mkdir("rtl")))
    program = linked(keep, model, SIMULATION / "device.cpp", driver.files())
    for name, data in zip(("manifest", "program", "constants"), built_firmware.parts, strict=True):
        (tmp_path / f"{name}.bin").write_bytes(data)
    (tmp_path / "inputs").write_bytes(packed(built_firmware.inputs))
    done = subprocess.run(
        [program, tmp_path, tmp_path / "inputs", tmp_path / "outputs", "+stall=60"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert (tmp_path / "outputs").read_bytes() == packed(built_firmware.outputs)
    gave_up = 11
    assert printed["results"] == [gave_up, 0, 0]
    assert printed["fault"] == Error.ABORTED
    assert printed["same"] == 1
    assert printed["interrupts"] == 3
    counted = dict(zip(Counter, printed["counters"], strict=True))
    moved = {
        kind: counted[Counter[f"READ_{kind.name}"]] + counted[Counter[f"WRITTEN_{kind.name}"]]
        for kind in Class
    }
    planned = {
        kind: getattr(built_firmware.planned, kind.name.lower(), len(built_firmware.stream.program))
        for kind in Class
    }
    assert moved == planned
    assert (
        sum(counted[counter] for counter in (Counter.LOADS, Counter.STORES, Counter.EXECS))
        == built_firmware.stream.commands
    )
    # A program that is not the manifest's is refused with a line.
    (tmp_path / "program.bin").write_bytes(bytes(len(built_firmware.stream.program)))
    done = subprocess.run(
        [program, tmp_path, tmp_path / "inputs", tmp_path / "outputs"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "load: program or constants are not those of the manifest\n")
