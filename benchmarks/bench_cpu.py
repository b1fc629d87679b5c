"""Compiled plans against ONNX Runtime (and OpenVINO, where it is installed) on this machine, one thread, float32, interleaved run by run.

    python benchmarks/bench_cpu.py [--networks ...] [--runs 21] [--buffer 1MiB] [--json FILE]

Three plans of our own: exact (LBDF), epilogue fusion only, and every operator alone: what fusion itself brings. Medians of wall time, ms; each run of
each engine is preceded by a pause, so that the threads of the one before are asleep. Weights are the zoo's own, drawn at random. `error` is the
largest difference from ONNX Runtime over its largest output.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from rich import box
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codegen import emit_c
from codegen.build import build, find_compiler, write_source
from codegen.runtime import Compiled
from lfopt import zoo
from lfopt.app.pipeline import write_result
from lfopt.app.sizes import parse_size
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from lfopt.planning.baselines import epilogue_groups
from lfopt.rewrite import simplify
from search.exact import solve
from search.problem import Problem, Result

NETWORKS = (
    "efficientnet_b0", "efficientnet_b3", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_large", "resnet18", "resnet50", "squeezenet1_1", "vgg16",
)  # fmt: skip
PAUSE = 0.03  # seconds
Run = Callable[[], np.ndarray]


def main() -> None:
    """Time every network on every engine, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=zoo.names(), default=NETWORKS, help="default: the nine of the README")
    parser.add_argument("--runs", type=int, default=21, help="of each engine (default %(default)s)")
    parser.add_argument("--buffer", default="1MiB", help="that fusion groups may fill (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rows = [_network(name, options.runs, parse_size(options.buffer, "--buffer")) for name in options.networks]
    console = Console(width=min(Console().width, 120) if sys.stdout.isatty() else 120)
    console.print(_table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _network(name: str, runs: int, buffer_bytes: int) -> dict[str, Any]:
    graph = simplify(from_model(zoo.build(name), name=name))
    (source,) = graph.inputs
    values = np.random.default_rng(0).standard_normal(graph.shape(source)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        engines, plans = _engines(graph, source, values, buffer_bytes, Path(folder))
        outputs = {engine: run() for engine, run in engines.items()}
        times: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(runs):
            for engine, run in engines.items():
                time.sleep(PAUSE)
                run()
                start = time.perf_counter()
                run()
                times[engine].append(1e3 * (time.perf_counter() - start))
    expected = outputs["onnxruntime"]
    error = float(np.abs(outputs["exact"] - expected).max() / np.abs(expected).max())
    return {"network": name, "error": error, **plans, **{engine: median(found) for engine, found in times.items()}}


def _engines(graph: Graph, source: str, values: np.ndarray, buffer_bytes: int, folder: Path) -> tuple[dict[str, Run], dict[str, Any]]:
    """Engine -> one inference; and what the plans are like."""
    costs = GroupCosts(Dataflow.of(graph), Hardware(buffer_bytes, element_bytes=4), scheme="lbdf")
    found: dict[str, Run] = {}
    plans = {
        "exact": solve(Problem.of(costs), time_limit=60).groups,
        "epilogue": epilogue_groups(costs),
        "alone": tuple(1 << i for i in range(len(costs.dataflow))),
    }
    figures: dict[str, Any] = {"groups": len(plans["exact"])}
    for name, groups in plans.items():
        result = Result(groups, 0, 0, "none", name, None, 0, 0.0)
        plan = write_result(graph, costs, result, 0, folder / name)
        code = emit_c(plan, graph)
        write_source(code, folder / name)
        model = Compiled(build(code, folder / name, find_compiler()).library, code.name, folder / name / "weights.bin")
        found[name] = _run(model, source, values)
        figures[f"{name} DRAM bytes"] = plan.totals.dram_bytes
    onnx_file = str(folder / "exact" / "simplified.onnx")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(onnx_file, settings, providers=["CPUExecutionProvider"])
    found["onnxruntime"] = lambda: session.run(None, {source: values})[0]
    try:
        core = import_module("openvino").Core()
    except ImportError:
        return found, figures
    try:
        compiled = core.compile_model(onnx_file, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    except RuntimeError as error:
        sys.stderr.write(f"{graph.name}: OpenVINO does not take it: {str(error).strip().splitlines()[-1]}\n")
        return found, figures
    found["openvino"] = lambda: compiled(values)[0]
    return found, figures


def _run(model: Compiled, source: str, values: np.ndarray) -> Run:
    return lambda: next(iter(model.run({source: values}).values()))


def _table(rows: list[dict[str, Any]]) -> Table:
    engines = [name for name in ("exact", "epilogue", "alone", "onnxruntime", "openvino") if any(name in row for row in rows)]
    table = Table(title="median ms, one thread, float32", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("network", no_wrap=True)
    labels = {"onnxruntime": "ORT", "openvino": "OpenVINO"}
    heads = [labels.get(name, name) for name in engines]
    for head in ("groups", *heads, *(f"{head}\n/ exact" for head in heads[1:]), "error"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        ratios = [f"{row[name] / row['exact']:.2f}" if name in row else "-" for name in engines[1:]]
        table.add_row(
            row["network"], str(row["groups"]), *(f"{row[name]:.2f}" if name in row else "-" for name in engines), *ratios, f"{row['error']:.0e}"
        )
    means = [_mean([row[name] / row["exact"] for row in rows if name in row]) for name in engines[1:]]
    table.add_row("geometric mean", "", *("" for _ in engines), *(f"{mean:.2f}" for mean in means), "", style="bold")
    return table


def _mean(ratios: list[float]) -> float:
    """Geometric mean."""
    return prod(ratios) ** (1 / len(ratios))


if __name__ == "__main__":
    main()
