"""How many floating-point operations a core of this machine does in a second, at most: the roof under which generated code runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import cffi

from codegen.build import build_text
from codegen.target import target
from codegen.writer import Writer

SUMS = 12  # that wait for one another, each for itself: more than a core has multiply-adds under way, no more than AVX2 has registers for
TURNS = 100_000
RUNS = 20  # of which the fastest counts


def peak_flops(name: str, compiler: Sequence[str]) -> float:
    """Operations a second, two for a multiply-add, of a loop of nothing else on registers, compiled as models are. Raises CannotBuild."""
    chosen, ffi = target(name), cffi.FFI()
    ffi.cdef("float multiply_adds(long turns, float a, float b);")
    with TemporaryDirectory() as folder:
        library = ffi.dlopen(str(build_text(_loop(chosen.lanes[0]), Path(folder), [*compiler, *chosen.flags])))
        fastest = min(_seconds(library) for _ in range(RUNS))
        ffi.dlclose(library)
    return 2 * SUMS * TURNS * chosen.lanes[0] / fastest


def _seconds(library: object) -> float:
    start = time.perf_counter()
    library.multiply_adds(TURNS, 0.999, 0.001)  # type: ignore[attr-defined]
    return time.perf_counter() - start


def _loop(lanes: int) -> str:
    out = Writer()
    out(f"#define LANES {lanes}", "#define THREADS 1")
    out.all((Path(__file__).with_name("prelude.h")).read_text(encoding="utf-8").splitlines())
    with out.block("float multiply_adds(long turns, float a, float b)"):
        out(f"const v{lanes} x = SPLAT_{lanes}(a), y = SPLAT_{lanes}(b);")
        out.all(f"v{lanes} s{k} = SPLAT_{lanes}({k}.0f);" for k in range(SUMS))
        with out.block("for (long i = 0; i < turns; i++)"):
            out.all(f"s{k} = s{k} * x + y;" for k in range(SUMS))
        out(f"return sum_{lanes}({' + '.join(f's{k}' for k in range(SUMS))});")
    return out.text()
