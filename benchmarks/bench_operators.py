"""Every operator alone, compiled, against ONNX Runtime: one thread, in shapes of real networks.

    python benchmarks/bench_operators.py [--kinds Gather Einsum ...] [--rounds 9] [--json FILE]

Both take NumPy arrays and give NumPy arrays, in one process, in turns; times are the least of all rounds, in
microseconds. `speed`: ONNX Runtime's time over ours, so that 2 is twice as fast. `error`: the largest
difference from ONNX Runtime, of its largest output. Where an operator gives several results, or is made of
others when it is read, it is planned and compiled like any network.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lfopt
from benchmarks.cpu import Run, geometric_mean, say
from benchmarks.engines import conditions
from benchmarks.operators import OperatorCase, cases
from benchmarks.results import Sheet, add_option, table_of
from lfopt.app.compiled import Compiled
from lfopt.ir import LfoptError

TURN = 2e-3  # seconds of runs in a turn, at least one


@dataclass(frozen=True)
class Measured:
    """An operator, and the least times of both, in microseconds."""

    case: OperatorCase
    ours: float
    theirs: float
    error: float

    @property
    def speed(self) -> float:
        """How many times as fast as ONNX Runtime."""
        return self.theirs / self.ours


def main() -> None:
    """Compile and time every case, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", default=[], help="operators (default: all)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at once (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    add_option(parser)
    options = parser.parse_args()
    chosen = [case for case in cases() if not options.kinds or case.kind in options.kinds]
    sheet = Sheet("operators", options.results)
    sheet.keep(conditions())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # nothing of this is kept
        with ThreadPoolExecutor(options.jobs) as pool:
            codes = list(pool.map(_code, chosen))
        measured = [
            _measured(case, code, options.rounds)
            for case, code in zip(chosen, codes, strict=True)
            if code is not None
        ]
    sheet.show(
        table_of(
            "least microseconds of one run, one thread, float32 where nothing else is said",
            [
                {
                    "operator": one.case.kind,
                    "shapes": str(one.case),
                    "ours": one.ours,
                    "ORT": one.theirs,
                    "speed": one.speed,
                    "error": f"{one.error:.0e}" if one.error else "0",
                }
                for one in measured
            ],
        )
    )
    speeds = [one.speed for one in measured]
    slowest = min(measured, key=lambda one: one.speed)
    sheet.show(
        f"{len(measured)} of {len(chosen)} cases: geometric mean {geometric_mean(speeds):.2f}, least "
        f"{slowest.speed:.2f} ({slowest.case.kind}), {sum(s < 0.5 for s in speeds)} below 0.5, "
        f"{sum(s < 1 for s in speeds)} below 1."
    )
    if options.json is not None:
        rows = [
            {"kind": o.case.kind, "shapes": str(o.case), "ours": o.ours, "ort": o.theirs, "error": o.error}
            for o in measured
        ]
        options.json.write_text(json.dumps(rows, indent=1))
    sheet.write()


def _code(case: OperatorCase) -> Compiled | None:
    """The case compiled; None, and a line that says why, where it cannot be."""
    try:
        code = lfopt.compile(case.model())
    except LfoptError as error:
        say(f"{case.kind} {case}: skipped: {error}")
        return None
    assert isinstance(code, Compiled)
    return code


def _measured(case: OperatorCase, code: Compiled, rounds: int) -> Measured:
    values = case.values(np.random.default_rng(0))
    theirs = _onnxruntime(case, values)

    def mine() -> list[np.ndarray]:
        return list(code.run(values).values())

    error = max(_difference(*pair) for pair in zip(mine(), theirs(), strict=True))
    ours = ort = np.inf
    for _ in range(rounds):
        ours, ort = min(ours, _turn(mine)), min(ort, _turn(theirs))
    return Measured(case, 1e6 * ours, 1e6 * ort, error)


def _onnxruntime(case: OperatorCase, values: dict[str, np.ndarray]) -> Run:
    """Default optimizations, one thread."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        case.model().SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    return lambda: [np.asarray(output) for output in session.run(None, values)]


def _turn(run: Run) -> float:
    """Seconds of the fastest of some runs, after one that is not timed."""
    run()
    least, began = np.inf, time.perf_counter()
    while True:
        start = time.perf_counter()
        run()
        stop = time.perf_counter()
        least = min(least, stop - start)
        if stop - began > TURN:
            return least


def _difference(output: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, of the largest expected."""
    a, b = output.astype(np.float64), np.asarray(expected).astype(np.float64)
    if a.size == 0:
        return 0.0
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) or 1.0
    return float(np.abs(a[~same] - b[~same]).max()) / scale


if __name__ == "__main__":
    main()
