"""Vector functions are as accurate as docs/cpu-code.md says, for every width, with FMA and without."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import erf, expit, ndtr

import codegen
from codegen.build import find_compiler
from codegen.target import TARGETS, Target, native

TARGETS_HERE = [TARGETS[name] for name in dict.fromkeys((native(), "c99"))]


class Function(NamedTuple):
    """A function of the prelude."""

    exact: Callable[[np.ndarray], np.ndarray]  # in float64
    ulps: float  # units in the last place that a result may be off by
    low: float  # the least operand for which it may not be off by more
    below: float  # absolute error for lesser operands


FUNCTIONS = {
    "exp": Function(np.exp, 2, -87, 1.2e-38),
    "power_of_2": Function(lambda x: np.exp2(np.clip(x, -127, 127)), 2, -126, 1.2e-38),
    "sigmoid": Function(expit, 6, -87, 1.2e-38),
    "swish": Function(lambda x: x * expit(x), 6, -87, 1e-36),
    "tanh": Function(np.tanh, 6, -np.inf, 0),
    "erf": Function(erf, 6, -np.inf, 0),
    "gelu": Function(lambda x: x * ndtr(x), 6, -5, 1e-12),
    "gelu_tanh": Function(
        lambda x: x * expit(x * (1.5957691216057308 + 0.0713548162726 * x * x)), 6, -9.9, 2e-37
    ),
    "hard_swish": Function(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), 3, -np.inf, 0),
    "abs": Function(np.abs, 0, -np.inf, 0),
    "softplus": Function(lambda x: np.logaddexp(x, 0), 6, -87, 1.2e-38),
    "mish": Function(lambda x: x * np.tanh(np.logaddexp(x, 0)), 6, -87, 1.1e-36),
}
VALUES = np.concatenate([
    np.linspace(-110, 110, 300_001), np.linspace(-14, 14, 200_001), np.linspace(-2, 2, 100_001),
    np.geomspace(1e-30, 3e38, 20_001), -np.geomspace(1e-30, 3e38, 20_001),
    [0.0, -0.0, np.inf, -np.inf, np.nan],
]).astype(np.float32)[-16 * 40_000 :]  # fmt: skip


@pytest.fixture(scope="module", params=TARGETS_HERE, ids=lambda target: target.name)
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Target, ctypes.CDLL]:
    target, folder = request.param, tmp_path_factory.mktemp("prelude")
    lines = [f"#define LANES {target.lanes[0]}", (Path(codegen.__file__).parent / "prelude.h").read_text()]
    for lanes in target.lanes:
        for name in FUNCTIONS:
            value = f"*(const u{lanes} *)(x + k)"
            given = f"within_{lanes}({value}, 127.0f)" if name == "power_of_2" else value
            lines.append(
                f"void run_{name}_{lanes}(const float *x, float *y, long n) {{ for (long k = 0; k < n; k += "
                f"{lanes}) *(u{lanes} *)(y + k) = {name}_{lanes}({given}); }}"
            )
    (folder / "functions.c").write_text("\n".join(lines))
    subprocess.run(
        [*find_compiler(), *target.flags, "-shared", "-fPIC", "functions.c", "-o", "functions.so", "-lm"],
        cwd=folder,
        check=True,
    )
    return target, ctypes.CDLL(str(folder / "functions.so"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_exact_to_units_in_the_last_place(
    library: tuple[Target, ctypes.CDLL], name: str
) -> None:
    target, functions = library
    x, function = np.ascontiguousarray(VALUES), FUNCTIONS[name]
    with np.errstate(over="ignore", invalid="ignore"):
        exact = function.exact(x.astype(np.float64))
        wanted = exact.astype(np.float32)
    finite = np.isfinite(wanted)
    unit = np.spacing(np.maximum(np.abs(wanted[finite]), np.finfo(np.float32).tiny)).astype(np.float64)
    allowed = np.where(x[finite] < function.low, function.below, function.ulps * unit)
    for lanes in target.lanes:
        y = np.zeros_like(x)
        getattr(functions, f"run_{name}_{lanes}")(
            ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(len(x))
        )
        assert np.array_equal(np.isnan(y), np.isnan(wanted))
        assert np.array_equal(np.isposinf(y), np.isposinf(wanted))
        wrong = np.abs(y[finite] - exact[finite]) - allowed
        assert wrong.max() <= 0, (
            lanes,
            x[finite][wrong.argmax()],
            y[finite][wrong.argmax()],
            exact[finite][wrong.argmax()],
        )
