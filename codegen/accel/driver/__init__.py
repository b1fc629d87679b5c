"""The driver of the accelerator in C, with the headers that come from the instruction set's tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lfopt.isa.c_headers import generate

HERE = Path(__file__).parent
SOURCE = "lf_device.c"
HEADER = "lf_device.h"


def files() -> Mapping[str, str]:
    """The C files that firmware compiles, by file name."""
    return {
        **{name: (HERE / name).read_text(encoding="utf-8") for name in (SOURCE, HEADER)},
        **dict(generate()),
    }
