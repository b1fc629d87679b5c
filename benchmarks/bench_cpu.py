"""Compiled plans against ONNX Runtime, and OpenVINO and Apache TVM where they are installed, on this machine: float32, interleaved run by run.

    python benchmarks/bench_cpu.py [--networks ...] [--models FOLDER] [--threads 1 2] [--runs 21] [--buffer 1MiB] [--element bf16] [--json FILE]

Three plans of our own: exact (least traffic under LBDF), epilogue fusion only, and every operator alone: what fusion itself brings. Every engine gets
the same simplified model and the same inputs. Times are medians of wall time in ms; `x` is how many times longer than the exact plan; means are
geometric. Before each engine's turn comes a pause, so that the threads of the one before are asleep (ONNX Runtime's spin on), and a run that is not
timed; an engine that takes long has fewer turns. OpenVINO is pinned to float32 (left alone it computes in bfloat16 where it can), or with --element
bf16 to that, as our plans then are; the others stay float32. TVM is untuned: Relax with its default passes, which schedule nothing, so that one
thread runs its loops as they stand. Weights of the zoo are drawn at random. `error` is the largest difference of our plans from ONNX Runtime over
its largest output; --json has that of every engine, and the DRAM bytes. Files need weights and shapes; token ids are drawn below the number of
embeddings, other whole numbers (masks) are ones.

    pip install openvino apache-tvm
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import (
    FAMILIES,
    PLANS,
    Planned,
    Run,
    add_options,
    compiled,
    family,
    feeds,
    geometric_mean,
    graphs,
    ours,
    peer,
    planned,
    say,
    timed,
)
from benchmarks.results import Sheet
from codegen.elements import ElementName
from lfopt.app.sizes import size_option
from lfopt.ir import Graph, LfoptError

PEERS = {"onnxruntime": "ORT", "openvino": "OpenVINO", "tvm": "TVM"}
Feeds = dict[str, np.ndarray]
Row = dict[str, Any]


def main() -> None:
    """Time every network on every engine, print a table for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="a table for each (default %(default)s)")
    parser.add_argument("--runs", type=int, default=21, help="of each engine (default %(default)s)")
    parser.add_argument("--engines", nargs="+", choices=(*PLANS, *PEERS), default=[*PLANS, *PEERS], help="default: all")
    parser.add_argument("--element", choices=get_args(ElementName), default="float32", help="of our plans and of OpenVINO (default %(default)s)")
    options = parser.parse_args()
    wanted = ["exact", *(name for name in (*PLANS, *PEERS) if name in {*options.engines, "onnxruntime"} and name != "exact")]
    rows: list[Row] = []
    sheet = Sheet("cpu", options.results)
    for graph in graphs(options):
        try:
            rows += _network(graph, wanted, options.threads, options.runs, size_option(options.buffer, "--buffer"), options.element)
        except LfoptError as error:
            say(f"{graph.name}: skipped: {error}")
    for threads in options.threads:
        if members := [row for row in rows if row["threads"] == threads]:
            sheet.show(_table(members, threads, options.element))
    peers = {"onnxruntime": "onnxruntime", "openvino": "openvino", "tvm": "apache-tvm"}
    versions = {name: version(peers[name]) for name in wanted if name in PEERS and peer(name)}
    sheet.keep(", ".join(f"{PEERS[name]} {number}" for name, number in versions.items()))
    sheet.write()
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


def _network(graph: Graph, wanted: list[str], counts: list[int], runs: int, buffer_bytes: int, element: ElementName) -> Iterator[Row]:
    """A row for each number of threads."""
    values = feeds(graph, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        plans = planned(graph, [name for name in PLANS if name in wanted], buffer_bytes, Path(folder), element)
        for threads in counts:
            found = dict(engines(graph, values, plans, wanted, threads, element))
            if {"exact", "onnxruntime"} <= found.keys():
                moved = {f"{name} DRAM bytes": one.plan.totals.dram_bytes for name, one in plans.items()}
                head = {"network": graph.name, "family": family(graph), "threads": threads, "groups": len(plans["exact"].plan.groups)}
                yield {**head, **moved, "engines": timed(found, runs, "onnxruntime")}


# -- engines ---------------------------------------------------------------------------------------------------------------------------------------


def engines(
    graph: Graph, values: Feeds, plans: dict[str, Planned], wanted: list[str], threads: int, element: ElementName = "float32"
) -> Iterator[tuple[str, Run]]:  # fmt: skip
    """Those that are installed and take the network; a line about each that does not."""
    makers = {"onnxruntime": _onnxruntime, "openvino": partial(_openvino, element), "tvm": _tvm}
    model = plans["exact"].folder / "simplified.onnx"
    for name in wanted:
        try:
            if name in plans:
                yield name, ours(compiled(plans[name], graph, threads=threads, element=element), values)
            elif peer(name):
                yield name, makers[name](model, values, threads)
        except LfoptError as error:
            say(f"{graph.name}, {threads} threads: {name} skipped: {error}")
            if name == "exact":
                return  # nothing to compare with
        except Exception as error:
            say(f"{graph.name}, {threads} threads: {name} does not take it: {str(error).strip().splitlines()[-1][:200]}")


def _onnxruntime(model: Path, values: Feeds, threads: int) -> Run:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads, settings.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, values)


def _openvino(element: ElementName, model: Path, values: Feeds, threads: int) -> Run:
    precision = "bf16" if element == "bf16" else "f32"
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    network = peer("openvino").Core().compile_model(str(_plainly_pooled(model)), "CPU", settings)
    return lambda: list(network(values).to_tuple())


def _tvm(model: Path, values: Feeds, threads: int) -> Run:
    tvm = peer("tvm")
    relax, frontend = import_module("tvm.relax"), import_module("tvm.relax.frontend.onnx")
    processor = import_module("tvm.target.codegen").llvm_get_system_cpu()
    module = frontend.from_onnx(onnx.load(_plainly_pooled(model)))
    tvm.get_global_func("runtime.config_threadpool")(1, threads)
    machine = relax.VirtualMachine(tvm.compile(module, tvm.target.Target({"kind": "llvm", "mcpu": processor})), tvm.cpu())
    arguments = [tvm.runtime.tensor(values[value.name]) for value in onnx.load(model, load_external_data=False).graph.input]

    def run() -> list[np.ndarray]:
        made = machine["main"](*arguments)
        return [made.numpy()] if hasattr(made, "numpy") else [tensor.numpy() for tensor in made]

    return run


def _plainly_pooled(model: Path) -> Path:
    """The model, with pooling windows larger than the plane (EfficientNet's, as exported) written as the global mean that they are.

    ONNX Runtime and we read them as they stand; OpenVINO and TVM do not.
    """
    found = onnx.load(model)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in onnx.shape_inference.infer_shapes(found).graph.value_info}
    for node in found.graph.node:
        window = next((list(a.ints) for a in node.attribute if a.name == "kernel_shape"), [0])
        if node.op_type == "AveragePool" and all(size > extent for size, extent in zip(window, shapes.get(node.input[0], ())[2:], strict=False)):
            node.op_type = "GlobalAveragePool"
            del node.attribute[:]
    written = model.with_name("plainly_pooled.onnx")
    onnx.save(found, written)
    return written


# -- table -----------------------------------------------------------------------------------------------------------------------------------------


def _table(rows: list[Row], threads: int, element: ElementName) -> Table:
    used = [name for name in (*PLANS, *PEERS) if any(name in row["engines"] for row in rows)]
    many = "one thread" if threads == 1 else f"{threads} threads"
    table = Table(title=f"median ms, {many}, {element}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("network", overflow="ellipsis", no_wrap=True, max_width=22)
    heads = ["groups", *(head for name in used for head in _heads(name)), "error"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for kind in FAMILIES:
        members = [row for row in rows if row["family"] == kind]
        for row in members:
            table.add_row(row["network"], str(row["groups"]), *(cell for name in used for cell in _cells(row, name)), f"{_our_error(row):.0e}")
        if members:
            _add_means(table, f"mean, {kind}", members, used)
    if len({row["family"] for row in rows}) > 1:
        _add_means(table, "mean, all", rows, used)
    return table


def _heads(name: str) -> tuple[str, ...]:
    """A peer has a column of times and one of ratios; of our own plans, only the exact one has times."""
    if name in PEERS:
        return PEERS[name], "x"
    return (name,) if name == "exact" else (f"{name}\nx",)


def _cells(row: Row, name: str) -> tuple[str, ...]:
    if name not in row["engines"]:
        return ("-",) * len(_heads(name))
    took, exact = row["engines"][name]["ms"], row["engines"]["exact"]["ms"]
    if name == "exact":
        return (f"{took:.2f}",)
    ratio = f"{took / exact:.2f}"
    return (f"{took:.2f}", ratio) if name in PEERS else (ratio,)


def _our_error(row: Row) -> float:
    return max(found["error"] for name, found in row["engines"].items() if name in PLANS)


def _add_means(table: Table, label: str, rows: list[Row], used: list[str]) -> None:
    cells: list[str] = []
    for name in used:
        ratios = [row["engines"][name]["ms"] / row["engines"]["exact"]["ms"] for row in rows if name in row["engines"]]
        mean = f"{geometric_mean(ratios):.2f}" if ratios and name != "exact" else ""
        cells += ["", mean] if name in PEERS else [mean]
    table.add_row(label, "", *cells, "", style="bold", end_section=True)


if __name__ == "__main__":
    main()
