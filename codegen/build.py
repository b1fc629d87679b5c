"""Write generated C with the program around it, and compile both with the system's C compiler."""

from __future__ import annotations

import re
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from codegen.source import CSource
from lfopt.ir import CannotWrite, LfoptError

TEMPLATES = Path(__file__).with_name("program")  # main.c and what belongs to it, for a model called NAME
PROGRAM_SOURCES = ("main.c", "npy.c")
COMPILERS = ("cc", "gcc", "clang")
# that a program cannot be called, because `make` means something by them
TAKEN = frozenset({"all", "bench", "clean", "Makefile"})
LOADED, EXECUTABLE = 1, 1  # of segments of ELF: PT_LOAD, PF_X
LINES = 3  # of what a compiler says


class CannotBuild(LfoptError):
    """There is no C compiler, or it refuses the code."""


@dataclass(frozen=True, slots=True)
class Built:
    """Paths of the binaries."""

    library: Path
    program: Path


def program_name(source: CSource) -> str:
    """File name of the stand-alone program."""
    if source.name in TAKEN:
        return f"{source.name}_program"
    return source.name


def library_name(source: CSource) -> str:
    """File name of the shared library."""
    return f"lib{source.name}.so"


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written: {error.strerror or error}") from None


def write_source(
    source: CSource, folder: Path, write: Callable[[Path, bytes], object] = _write
) -> tuple[Path, ...]:
    """Write the model's files and those of its program into `folder`, each by `write`. Raises CannotWrite."""
    folder.mkdir(parents=True, exist_ok=True)
    templates = {
        path.name.replace("NAME", source.name): path for path in sorted(TEMPLATES.iterdir()) if path.is_file()
    }
    files = {**source.files, **{name: _rendered(path, source) for name, path in templates.items()}}
    for name, content in files.items():
        write(folder / name, content)
    if "weights.bin" not in files:
        (folder / "weights.bin").unlink(missing_ok=True)  # of what was here before
    return tuple(folder / name for name in files)


def _rendered(template: Path, source: CSource) -> bytes:
    """A template with the names and figures of the model."""
    values = {
        "name": source.name,
        "sources": " ".join(_model_sources(source)),
        "flags": shlex.join(source.flags),
        "libraries": f"{'-pthread ' * ('-pthread' in source.flags)}m",
        "link": f"{'-pthread ' * ('-pthread' in source.flags)}-lm",
        "program": program_name(source),
        "target": source.target,
        "arena_bytes": f"{source.arena_bytes:,}",
        "arenas": _arenas(source),
        "context_bytes": f"{source.context_bytes:,}",
    }
    text = template.read_text(encoding="utf-8")
    text = re.sub(r"@(\w+)@", lambda match: values[match[1]], text)
    return re.sub(r"\bNAME(?=_|\b)", source.name, text).encode()


def _arenas(source: CSource) -> str:
    if source.arenas == 1:
        return "the arena that the fusion groups run in, as the plan says"
    return (
        f"the {source.arenas} arenas that the fusion groups run in: one of each thread, as large as the "
        "plan says"
    )


def _model_sources(source: CSource) -> list[str]:
    return sorted(name for name in source.files if name.endswith(".c"))


def find_compiler(wanted: str | None = None) -> tuple[str, ...]:
    """The command of a C compiler: the one wanted ($CC, with options), else the first that is installed.

    Raises CannotBuild if there is none.
    """
    for candidate in [wanted] if wanted else COMPILERS:
        command = _split(candidate)
        if command and shutil.which(command[0]):
            return command
    asked = f"CC={wanted}: no such command" if wanted else f"none of {', '.join(COMPILERS)} is installed"
    raise CannotBuild(
        f"no C compiler: {asked}; accepted: one of GCC or Clang (apt-get install gcc), named by CC if need be"
    )


def _split(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:  # a quotation that does not end
        raise CannotBuild(f"CC={command}: {error}") from None


def compiler_version(compiler: Sequence[str]) -> str:
    """First line of what `cc --version` says."""
    return _call([*compiler, "--version"]).stdout.partition("\n")[0]


def build(source: CSource, folder: Path, compiler: Sequence[str], jobs: int = 2) -> Built:
    """Compile what `write_source` wrote into `folder`: a shared library and a program, beside the sources.

    `jobs` files at a time.
    """
    built = Built(folder / library_name(source), folder / program_name(source))
    model = _model_sources(source)
    with tempfile.TemporaryDirectory(prefix="build.", suffix=".part", dir=folder) as scratch:
        objects = {name: str(Path(scratch) / f"{name}.o") for name in (*model, *PROGRAM_SOURCES)}
        base = [*compiler, *source.flags]

        def compiled(name: str) -> None:
            _call([*base, "-fPIC", "-c", str(folder / name), "-o", objects[name]])

        with ThreadPoolExecutor(max(jobs, 1)) as pool:
            for _ in pool.map(compiled, objects):
                pass
        links = {
            built.library: ("-shared", *(objects[name] for name in model)),
            built.program: tuple(objects.values()),
        }
        for path, parts in links.items():
            aside = Path(scratch) / path.name
            _call([*base, *parts, "-o", str(aside), "-lm"])
            aside.replace(path)
    return built


def code_bytes(library: Path) -> int:
    """Bytes of machine code in a shared library: those of its executable segments.

    Raises CannotBuild for what is no ELF file of 64 bits.
    """
    data = library.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        raise CannotBuild(f"{library}: found no ELF file of 64 bits")
    order = "<" if data[5] == 1 else ">"
    (start,), (size, count) = (
        struct.unpack_from(f"{order}Q", data, 32),
        struct.unpack_from(f"{order}HH", data, 54),
    )
    # kind, flags, bytes in memory
    segments = (struct.unpack_from(f"{order}II32xQ", data, start + k * size)[:3] for k in range(count))
    return sum(taken for kind, flags, taken in segments if kind == LOADED and flags & EXECUTABLE)


def build_text(text: str, folder: Path, command: Sequence[str]) -> Path:
    """A shared library of one C file, compiled in `folder` by a compiler with its options.

    Raises CannotBuild.
    """
    source = folder / "text.c"
    library = folder / "libtext.so"
    _write(source, text.encode())
    _call([*command, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    return library


def _call(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler. Raises CannotBuild with the first lines of what it complains about."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    except OSError as error:
        raise CannotBuild(f"{command[0]}: {error.strerror or error}") from None
    if done.returncode != 0:
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in said if "error" in line.lower()] or said
        raise CannotBuild(
            f"{command[0]} ended with {done.returncode}: {'; '.join(errors[:LINES]) or 'no reason is given'}"
        )
    return done
