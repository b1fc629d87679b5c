"""What C is generated for: vector widths and compiler flags."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from codegen.source import Unsupported


@dataclass(frozen=True, slots=True)
class Target:
    """An instruction set."""

    name: str
    lanes: tuple[int, ...]  # floats in a vector: the widths that there are, widest first; 1 is always one
    accumulators: int  # vectors that a kernel may hold as sums, so that with weights and temporaries nothing spills
    flags: tuple[str, ...]
    threads: int = 1  # that make each row together


COMMON = ("-O2", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math")
TARGETS = {
    target.name: target
    for target in (
        Target("avx512", (16, 8, 4, 1), 28, (*COMMON, "-mavx512f", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512")),
        Target("avx2", (8, 4, 1), 12, (*COMMON, "-mavx2", "-mfma")),
        Target("neon", (4, 1), 24, (*COMMON, "-march=armv8-a")),
        Target("c99", (1,), 8, (*COMMON, "-std=c99")),
    )
}


def target(name: str) -> Target:
    """A target by name; `native` is the best for this machine. Raises Unsupported."""
    if name == "native":
        name = native()
    if name not in TARGETS:
        raise Unsupported(f"target: found {name!r}; accepted: native, {', '.join(TARGETS)}")
    return TARGETS[name]


def native() -> str:
    """The name of the best target for this machine."""
    machine = platform.machine()
    if machine == "aarch64":
        return "neon"
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if machine == "x86_64" and info.exists() else set[str]()
    if flags >= {"avx512f", "avx512vl", "avx512dq", "fma"}:
        return "avx512"
    return "avx2" if flags >= {"avx2", "fma"} else "c99"
