"""What C is generated for: vector widths and compiler flags."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
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
    winograd: int = 4  # results along a side of the tiles of Winograd's algorithm, at most: 4, 2, or 0 for none
    dots: bool = False  # whether there are dot products of bytes (AVX-512 VNNI): fast kernels for quantised maps


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
        found, can = TARGETS[native()], _features()
        return with_dots(found, tables="avx512_vbmi" in can) if found.name == "avx512" and can >= {"avx512bw", "avx512_vnni"} else found
    if name not in TARGETS:
        raise Unsupported(f"target: found {name!r}; accepted: native, {', '.join(TARGETS)}")
    return TARGETS[name]


def with_dots(found: Target, *, tables: bool) -> Target:
    """AVX-512 with dot products of bytes, and with tables of bytes in registers."""
    return replace(found, dots=True, flags=(*found.flags, "-mavx512bw", "-mavx512vnni", *(["-mavx512vbmi"] if tables else [])))


def native() -> str:
    """The name of the best target for this machine."""
    if platform.machine() == "aarch64":
        return "neon"
    can = _features()
    if can >= {"avx512f", "avx512vl", "avx512dq", "fma"}:
        return "avx512"
    return "avx2" if can >= {"avx2", "fma"} else "c99"


def _features() -> set[str]:
    """What an x86 processor can do, as Linux calls it."""
    info = Path("/proc/cpuinfo")
    return set(info.read_text().split()) if platform.machine() == "x86_64" and info.exists() else set()
