"""Targets of C: vector widths and compiler flags."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from codegen.elements import BF16, ELEMENT, ELEMENTS, FLOAT32, Element
from codegen.source import Unsupported

TargetName = Literal["avx512", "avx2", "neon", "rvv", "c99", "native"]  # as users call them
# defaults
TARGET: Final[TargetName] = "native"  # the best for this machine
THREADS = 1
WINOGRAD: Final = 4


@dataclass(frozen=True, slots=True)
class Target:
    """An instruction set, and how C is generated for it."""

    name: str
    lanes: tuple[int, ...]  # floats in a vector: the widths that there are, widest first; 1 is always one
    # vectors that a kernel may hold as sums, so that with weights and temporaries nothing spills
    accumulators: int
    flags: tuple[str, ...]
    threads: int = THREADS  # that make each row together
    # results along a side of the tiles of Winograd's algorithm, at most: 4, 2, or 0 for none
    winograd: int = WINOGRAD
    # whether there are dot products of bytes (AVX-512 VNNI): fast kernels for quantised maps
    dots: bool = False
    element: Element = FLOAT32  # that float32 maps are stored in


COMMON = ("-O2", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd")
TARGETS = {
    target.name: target
    for target in (
        Target(
            "avx512",
            (16, 8, 4, 1),
            28,
            (*COMMON, "-mavx512f", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512"),
        ),
        Target("avx2", (8, 4, 1), 12, (*COMMON, "-mavx2", "-mfma")),
        Target("neon", (4, 1), 24, (*COMMON, "-march=armv8-a")),
        # registers of 256 bits and more; Clang 16
        Target("rvv", (8, 4, 1), 24, (*COMMON, "-march=rv64gcv_zvl256b")),
        Target("c99", (1,), 8, (*COMMON, "-std=c99")),
    )
}


# where there are dot products of pairs
BF16_FLAGS = {"avx512": ("-mavx512bw", "-mavx512bf16"), "neon": ("-march=armv8.2-a+bf16",)}
BF16_FEATURES = {"avx512": {"avx512bw", "avx512_bf16"}, "neon": {"bf16"}}


def target(name: str, element: str = ELEMENT) -> Target:
    """A target by name; `native` is the best for this machine.

    `element`: that float32 maps are stored in. Raises Unsupported.
    """
    if element not in ELEMENTS:
        raise Unsupported(f"element: found {element!r}; accepted: {', '.join(ELEMENTS)}")
    if name != "native" and name not in TARGETS:
        raise Unsupported(f"target: found {name!r}; accepted: native, {', '.join(TARGETS)}")
    chosen = TARGETS[native() if name == "native" else name]
    can = _features()
    if ELEMENTS[element] is BF16:
        if chosen.name not in BF16_FLAGS or (name == "native" and not can >= BF16_FEATURES[chosen.name]):
            raise Unsupported(
                "element bf16: found target "
                f"{chosen.name}{' without it' if chosen.name in BF16_FLAGS else ''}; accepted: {ACCEPTED}"
            )
        return with_bf16(chosen)
    if name == "native" and chosen.name == "avx512" and can >= {"avx512bw", "avx512_vnni"}:
        return with_dots(chosen, tables="avx512vbmi" in can)
    return chosen


ACCEPTED = "avx512 with AVX-512 BF16, or neon with the BF16 extension of AArch64"


def with_bf16(base: Target) -> Target:
    """A target whose float32 maps are stored in bfloat16, with dot products of pairs of them."""
    return replace(base, element=BF16, flags=(*base.flags, *BF16_FLAGS[base.name]))


def with_dots(base: Target, *, tables: bool) -> Target:
    """AVX-512 with dot products of bytes, and with tables of bytes in registers."""
    return replace(
        base,
        dots=True,
        flags=(*base.flags, "-mavx512bw", "-mavx512vnni", *(["-mavx512vbmi"] if tables else [])),
    )


def native() -> str:
    """The name of the best target for this machine."""
    if platform.machine() == "aarch64":
        return "neon"
    can = _features()
    if can >= {"avx512f", "avx512vl", "avx512dq", "fma"}:
        return "avx512"
    if can >= {"avx2", "fma"}:
        return "avx2"
    return "c99"


def _features() -> set[str]:
    """Features of this machine's processor, as Linux calls them."""
    info = Path("/proc/cpuinfo")
    if platform.machine() in ("x86_64", "aarch64") and info.exists():
        return set(info.read_text().split())
    return set()
