"""Peak memory of a process that runs a network: our program, ours from Python, ONNX Runtime from Python.

    python benchmarks/bench_cpu_memory.py [--networks ...] [--models FOLDER] [--threads 1] [--runs 10]
        [--buffer 1MiB] [--json FILE]

Every figure is the high-water mark of a fresh process's resident memory (VmHWM of /proc/PID/status, so Linux
only), read while it runs; nothing is subtracted. The program is the stand-alone one, the exact plan on random
inputs. From Python, both read the same inputs from a file and run as often: ours imports numpy and
codegen.runtime, the other numpy and onnxruntime (its own settings but for the threads), which has no program
of its own here; what the imports alone take is below the table. Our weights are mapped from a file: they
count as resident, but processes share them. `context` is what a caller of our library must allocate: rings,
and maps between groups.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import add_options, compiled, feeds, geometric_mean, graphs, planned, say
from benchmarks.results import Sheet
from lfopt.app.sizes import size_option
from lfopt.ir import Graph, LfoptError

ROOT = Path(__file__).resolve().parents[1]
TICK = 0.002  # seconds between two looks; the mark never falls, so only the last matters
MB = 1e6
OURS = """
import sys
from pathlib import Path
import numpy as np
from codegen.runtime import Compiled
if len(sys.argv) > 1:
    library, name, weights, inputs, runs, _ = sys.argv[1:]
    model, values = Compiled(Path(library), name, Path(weights)), dict(np.load(inputs))
    for _ in range(int(runs)):
        model.run(values)
"""
ONNXRUNTIME = """
import sys
import numpy as np
import onnxruntime
if len(sys.argv) > 1:
    file, inputs, runs, threads = sys.argv[1:]
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = int(threads), 3
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    values = dict(np.load(inputs))
    for _ in range(int(runs)):
        session.run(None, values)
"""
LINGER = """
import time
time.sleep(0.05)
"""  # so that the last look sees everything
Row = dict[str, Any]


class ProcessFailed(LfoptError):
    """A process that was to be measured ended with an error."""


def main() -> None:
    """Measure every network, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--threads", type=int, default=1, help="of either (default %(default)s)")
    parser.add_argument("--runs", type=int, default=10, help="of each process (default %(default)s)")
    options = parser.parse_args()
    sheet = Sheet("memory", options.results)
    imports = {"ours": _python(OURS), "onnxruntime": _python(ONNXRUNTIME)}
    rows: list[Row] = []
    for graph in graphs(options):
        try:
            rows.append(
                _network(graph, options.threads, options.runs, size_option(options.buffer, "--buffer"))
            )
        except LfoptError as error:
            say(f"{graph.name}: skipped: {error}")
    sheet.show(_table(rows, options.threads))
    sheet.show(
        f"imports alone: ours {imports['ours'] / MB:.1f} MB, numpy and onnxruntime "
        f"{imports['onnxruntime'] / MB:.1f} MB"
    )
    sheet.write()
    if options.json:
        options.json.write_text(
            json.dumps({"threads": options.threads, "imports": imports, "rows": rows}, indent=1) + "\n"
        )


def _network(graph: Graph, threads: int, runs: int, buffer_bytes: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        planned_folder = planned(graph, ["exact"], buffer_bytes, Path(folder))["exact"]
        code = compiled(planned_folder, threads=threads)
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **feeds(graph, np.random.default_rng(0)))
        common = (str(inputs), str(runs), str(threads))
        return {
            "network": graph.name,
            "weights": code.weights.stat().st_size,
            "context": code.source.context_bytes,
            "program": peak_bytes([str(code.built.program), "--bench", str(max(runs, 1))]),
            "ours from Python": _python(
                OURS, str(code.built.library), code.source.name, str(code.weights), *common
            ),
            "onnxruntime": _python(ONNXRUNTIME, str(planned_folder.folder / "simplified.onnx"), *common),
        }


def _python(script: str, *arguments: str) -> int:
    return peak_bytes([sys.executable, "-c", script + LINGER, *arguments])


def peak_bytes(command: list[str]) -> int:
    """The most memory that a process had resident at once, in bytes.

    Raises ProcessFailed if it does not end well.

    getrusage would not do: a child's mark begins with that of the process that it was forked from.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    status, peak = Path(f"/proc/{process.pid}/status"), 0
    while process.poll() is None:
        # a process that has just ended has no VmHWM
        if match := re.search(r"VmHWM:\s+(\d+) kB", status.read_text()):
            peak = 1024 * int(match[1])
        time.sleep(TICK)
    error_lines = process.communicate()[1].strip().splitlines() or ["no reason is given"]
    if process.returncode != 0:
        raise ProcessFailed(f"{Path(command[0]).name} ended with {process.returncode}: {error_lines[-1]}")
    return peak


def _table(rows: list[Row], threads: int) -> Table:
    many = "one thread" if threads == 1 else f"{threads} threads"
    table = Table(
        title=f"peak resident memory of a process, MB, {many}, float32",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("network", overflow="ellipsis", no_wrap=True)
    for head in (
        "weights",
        "context",
        "program",
        "ours from\nPython",
        "ONNX Runtime\nfrom Python",
        "x program",
        "x ours from\nPython",
    ):
        table.add_column(head, justify="right", no_wrap=True)
    figures = ("weights", "context", "program", "ours from Python", "onnxruntime")
    ratios = {
        name: [row["onnxruntime"] / row[name] for row in rows] for name in ("program", "ours from Python")
    }
    for k, row in enumerate(rows):
        table.add_row(
            row["network"],
            *(f"{row[name] / MB:.1f}" for name in figures),
            *(f"{values[k]:.2f}" for values in ratios.values()),
        )
    if rows:
        table.add_row(
            "geometric mean",
            *("" for _ in figures),
            *(f"{geometric_mean(values):.2f}" for values in ratios.values()),
            style="bold",
        )
    return table


if __name__ == "__main__":
    main()
