"""Functions on vectors are as good as float32 allows, over their whole range, for every width."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from math import erf
from pathlib import Path

import numpy as np
import pytest

import codegen
from codegen.build import find_compiler
from codegen.target import TARGETS, native

TARGET = TARGETS[native()]
FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {  # in float64, relative and absolute tolerance
    "exp": (np.exp, 4e-7, 1e-37),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 6e-7, 1e-37),
    "tanh": (np.tanh, 0.0, 3e-7),
    "erf": (np.vectorize(erf), 0.0, 6e-7),
    "abs": (np.abs, 0.0, 0.0),
    "softplus": (lambda x: np.logaddexp(x, 0), 8e-7, 1e-37),
    "mish": (lambda x: x * np.tanh(np.logaddexp(x, 0)), 1.2e-6, 1e-35),
}
VALUES = np.concatenate([
    np.linspace(-110, 110, 40_001), np.linspace(-2, 2, 20_001), np.geomspace(1e-30, 3e38, 2_000), -np.geomspace(1e-30, 3e38, 2_000),
    [0.0, -0.0, np.inf, -np.inf, np.nan],
]).astype(np.float32)  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("prelude")
    lines = [f"#define LANES {TARGET.lanes[0]}", (Path(codegen.__file__).parent / "prelude.h").read_text()]
    for lanes in TARGET.lanes:
        for name in FUNCTIONS:
            lines.append(
                f"void run_{name}_{lanes}(const float *x, float *y, long n) {{ for (long k = 0; k < n; k += {lanes}) "
                f"*(u{lanes} *)(y + k) = {name}_{lanes}(*(const u{lanes} *)(x + k)); }}"
            )
    (folder / "functions.c").write_text("\n".join(lines))
    subprocess.run([*find_compiler(), *TARGET.flags, "-shared", "-fPIC", "functions.c", "-o", "functions.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "functions.so"))


@pytest.mark.parametrize("lanes", TARGET.lanes)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_exact_to_float32(library: ctypes.CDLL, name: str, lanes: int) -> None:
    count = len(VALUES) // 16 * 16
    x, y = np.ascontiguousarray(VALUES[-count:]), np.zeros(count, np.float32)
    getattr(library, f"run_{name}_{lanes}")(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(count))
    exact, relative, absolute = FUNCTIONS[name]
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = exact(x.astype(np.float64)).astype(np.float32)
    assert np.array_equal(np.isnan(y), np.isnan(wanted))
    assert np.array_equal(np.isposinf(y), np.isposinf(wanted))
    finite = np.isfinite(wanted)
    wrong = np.abs(y[finite].astype(np.float64) - wanted[finite]) - relative * np.abs(wanted[finite]) - absolute
    assert wrong.max() <= 0, (x[finite][wrong.argmax()], y[finite][wrong.argmax()], wanted[finite][wrong.argmax()])
