"""Most operations that a core of this machine does in a second: the roof of generated code."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cffi

from codegen.build import build_text
from codegen.source import Unsupported
from codegen.target import target
from codegen.writer import Writer

# that wait for one another, each for itself: more than a core has multiply-adds under way, no more than AVX2
# has registers for
SUMS = 12
TURNS = 100_000
RUNS = 20  # of which the fastest counts


def peak_operations(name: str, compiler: Sequence[str], *, integers: bool = False) -> float:
    """Operations a second, two for a multiply-add, of a loop on registers, compiled as models are.

    `integers`: of products of bytes, which a target without such instructions has not: raises Unsupported.
    Raises CannotBuild.
    """
    chosen, ffi = target(name), cffi.FFI()
    if integers and not chosen.dots:
        raise Unsupported(f"peak on integers: found target {chosen.name}; accepted: AVX-512 with VNNI")
    ffi.cdef(
        "int32_t products(long turns, int32_t a, int32_t b);"
        if integers
        else "float multiply_adds(long turns, float a, float b);"
    )
    text, lanes = (
        (_products(), 4 * chosen.lanes[0]) if integers else (_loop(chosen.lanes[0]), chosen.lanes[0])
    )
    with TemporaryDirectory() as folder:
        library: Any = ffi.dlopen(str(build_text(text, Path(folder), [*compiler, *chosen.flags])))
        run = (
            (lambda: library.products(TURNS, 3, 5))
            if integers
            else (lambda: library.multiply_adds(TURNS, 0.999, 0.001))
        )
        fastest = min(_seconds(run) for _ in range(RUNS))
        ffi.dlclose(library)
    return 2 * SUMS * TURNS * lanes / fastest


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _header(out: Writer, lanes: int, *names: str) -> None:
    out(f"#define LANES {lanes}", "#define THREADS 1")
    for name in names:
        out.all((Path(__file__).with_name(name)).read_text(encoding="utf-8").splitlines())


def _products() -> str:
    out = Writer()
    _header(out, 16, "prelude.h", "integer.h", "dots.h")
    with out.block("int32_t products(long turns, int32_t a, int32_t b)"):
        out("const __m512i x = _mm512_set1_epi32(a), y = _mm512_set1_epi32(b);")
        out.all(f"__m512i s{k} = _mm512_set1_epi32({k});" for k in range(SUMS))
        with out.block("for (long i = 0; i < turns; i++)"):
            out.all(f"ADD_PRODUCTS(s{k}, x, y);" for k in range(SUMS))
        out.all(f"s0 = _mm512_add_epi32(s0, s{k});" for k in range(1, SUMS))
        out("return _mm512_reduce_add_epi32(s0);")
    return out.text()


def _loop(lanes: int) -> str:
    out = Writer()
    _header(out, lanes, "prelude.h")
    with out.block("float multiply_adds(long turns, float a, float b)"):
        out(f"const v{lanes} x = SPLAT_{lanes}(a), y = SPLAT_{lanes}(b);")
        out.all(f"v{lanes} s{k} = SPLAT_{lanes}({k}.0f);" for k in range(SUMS))
        with out.block("for (long i = 0; i < turns; i++)"):
            out.all(f"s{k} = s{k} * x + y;" for k in range(SUMS))
        out(f"return sum_{lanes}({' + '.join(f's{k}' for k in range(SUMS))});")
    return out.text()
