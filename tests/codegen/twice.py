"""A model of 4 bytes of weights, written by hand as codegen writes them: y = 2 * x on [1, 3, 4, 4]."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from codegen.build import find_compiler, library_name, write_source
from codegen.emit import header
from codegen.runtime import Compiled
from codegen.source import CSource
from lfopt.ir.cpu import CpuSchedule

FOLDER = Path(__file__).with_name("twice")
SHAPE = (1, 3, 4, 4)
STRICT = (
    "-std=c99",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Wformat=2",
    "-Wstrict-prototypes",
    "-Werror",
)


def twice(*flags: str, embed: bool = False) -> CSource:
    """The model, compiled with further flags.

    -DOVERRUN makes it break its canary; -DSCALED gives it a factor as its first input, an int64 called s=1.
    """
    files = {"model.h": header("twice").encode(), "model.c": (FOLDER / "model.c").read_bytes()}
    if not embed:
        files["weights.bin"] = struct.pack("<f", 2.0)
    return CSource(
        "twice",
        "c99",
        (*STRICT, *(["-DEMBED"] if embed else []), *flags),
        files,
        192,
        208,
        64,
        CpuSchedule("c99", 1, (), ()),
    )


def compiled(source: CSource, folder: Path) -> Compiled:
    """Any source, written, compiled without its program, and loaded."""
    write_source(source, folder)
    code = sorted(name for name in source.files if name.endswith(".c"))
    command = [*find_compiler(), *source.flags, "-shared", "-fPIC", *code, "-o", library_name(source), "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return Compiled(folder / library_name(source), source.name, folder / "weights.bin")
