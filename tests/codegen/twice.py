"""A model of 4 bytes of weights, written by hand as codegen writes them: y = 2 * x on [1, 3, 4, 4]."""

from __future__ import annotations

import struct
from pathlib import Path

from codegen.source import CSource

FOLDER = Path(__file__).with_name("twice")
SHAPE = (1, 3, 4, 4)
STRICT = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wformat=2", "-Wstrict-prototypes", "-Werror")


def twice(*flags: str, embed: bool = False) -> CSource:
    """The model, compiled with further flags.

    -DOVERRUN makes it break its canary; -DSCALED gives it a factor as its first input, an int64 called s=1.
    """
    files = {name: (FOLDER / name).read_bytes() for name in ("model.h", "model.c")}
    if not embed:
        files["weights.bin"] = struct.pack("<f", 2.0)
    return CSource("twice", "c99", (*STRICT, *(["-DEMBED"] if embed else []), *flags), files, 192, 208)
