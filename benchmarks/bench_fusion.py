"""Layers left, and bytes between them, when a network is fused as compilers do: beside DNNFusion's table 5.

    python benchmarks/bench_fusion.py [--networks efficientnet_b0 vgg16] [--models FOLDER] [--rules default]
        [--seconds 20] [--runs 0] [--json FILE]

In the first table buffers are unlimited: what ends a group is the rules alone. `nodes` are those of the ONNX
file, `operators` those that move or compute something (views apart), after rewriting (`--rules`; ORT and TVM
start from the file). Of dnnfusion, `strict` has one many-to-many operator in a group; the other lets pools,
reductions, softmax and normalisation stand beside another, as the paper's own counts say. `dp` finds the
fewest DRAM bytes among the groups that types allow, `exact` among all: not the fewest groups. ORT is what
ONNX Runtime leaves of the file at full optimisation, and TVM what Relax makes of it by default (views apart;
where apache-tvm is installed); both need weights. Intermediate bytes are of the maps that leave a group, in
float32. In parentheses: the paper's.

In the second table the same planners for a core with 1 MiB of cache: groups, and how long our C takes on one
thread, against that of TVM's rules on the network as read; medians of interleaved runs. All plans share the
back end, which keeps elementwise operators in registers and rows in rings where the plan has them in a group.
Doubtful pairs of dnnfusion are decided by C measured here. Networks without weights are left out.

    pip install apache-tvm
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import compiled, feeds, geometric_mean, ours, peer, planned, say, timed
from benchmarks.results import Sheet, add_option
from lfopt import zoo
from lfopt.app.sizes import size_option
from lfopt.frontend import from_model, load
from lfopt.ir import Graph, Hardware, LfoptError
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from lfopt.rewrite import RULES, simplify
from search.dnnfusion import grow_blocks
from search.dp import solve_by_types
from search.exact import solve
from search.options import SearchOptions
from search.tvm import fuse_by_patterns

UNLIMITED = Hardware(1 << 40, element_bytes=4)
PLANNERS = ("alone", "tvm", "dnnfusion", "dp", "exact")
# networks of Gao et al. (Computer Science 52(5), 2025)
GAO = frozenset({"efficientnet_b0", "mobilenet_v1", "vgg16", "yolov4"})
NETWORKS = ("efficientnet_b0", "vgg16", "mobilenet_v1", "mobilenet_v1_ssd", "yolov4", "c3d", "unet", "gpt2")


class Published(NamedTuple):
    """A row of table 5 (DNNFusion, arXiv 2108.13342)."""

    layers: int
    tvm: int | None
    dnnfusion: int
    megabytes: int  # of intermediate results
    fused_megabytes: int


TABLE_5 = {
    "efficientnet_b0": Published(309, 195, 97, 108, 26),
    "vgg16": Published(51, 22, 17, 161, 52),
    "mobilenet_v1_ssd": Published(202, 124, 71, 110, 37),
    "yolov4": Published(398, 192, 135, 329, 205),
    "c3d": Published(27, 27, 16, 195, 90),
    "s3d": Published(272, None, 98, 996, 356),
    "unet": Published(292, 232, 82, 312, 158),
    "tinybert": Published(366, 304, 74, 183, 55),
    "albert": Published(936, 746, 225, 1260, 320),
    "bert_base": Published(976, 760, 216, 915, 196),
    "mobilebert": Published(2387, 1678, 510, 744, 255),
    "gpt2": Published(2533, 2047, 254, 1389, 356),
}


@dataclass(frozen=True)
class FusionCounts:
    """What one network comes to."""

    name: str
    nodes: int
    operators: int
    onnxruntime: int | None
    apache_tvm: int | None
    layers: dict[str, int]  # groups by planner
    bytes: dict[str, int]  # of the maps that leave their groups, by planner


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks",
        nargs="*",
        choices=zoo.names(),
        default=list(NETWORKS),
        metavar="NAME",
        help="of the zoo",
    )
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="all ONNX files of a folder as well")
    parser.add_argument("--rules", choices=RULES, default="all", help="of rewriting (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each search (default %(default)s)")
    parser.add_argument(
        "--runs", type=int, default=11, help="of the C of each plan; 0: no second table (default %(default)s)"
    )
    parser.add_argument("--buffer", default="1MiB", help="of the second table (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    add_option(parser)
    options = parser.parse_args()
    rows: list[FusionCounts] = []
    times: dict[str, Times] = {}
    sheet = Sheet("fusion", options.results, width=150)
    for name, file in sources(options.networks, options.models):
        try:
            model = zoo.build(name) if file is None else None
            read = from_model(model, name=name) if model is not None else load(str(file))
            model = model or onnx.load(str(file), load_external_data=read.has_values)
            rows.append(measured(name, model, read, options.rules, options.seconds))
            if options.runs and read.has_values:
                times[name] = latencies(
                    read, options.rules, options.runs, size_option(options.buffer, "--buffer")
                )
        except LfoptError as error:
            say(f"{name}: skipped: {error}")
            continue
        say(f"{name}: done")
    sheet.show(table(rows))
    if times:
        sheet.show(latency_table(times))
    sheet.write()
    if options.json:
        results = {"groups": [asdict(row) for row in rows], "latency": times}
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def sources(networks: list[str], folder: Path | None) -> Iterator[tuple[str, Path | None]]:
    """(name, file; None: of the zoo)."""
    yield from ((name, None) for name in networks)
    for file in sorted(folder.glob("*.onnx")) if folder else ():
        yield file.stem, file


def measured(name: str, model: onnx.ModelProto, read: Graph, rules: str, seconds: float) -> FusionCounts:
    """Plan one network in every way."""
    graph = simplify(read, rules)
    flow = Dataflow.of(graph)
    costs = GroupCosts(flow, UNLIMITED, scheme="auto")
    plans = {
        "none": tuple(1 << i for i in range(len(flow))),
        "tvm": fuse_by_patterns(costs).groups,
        "strict": grow_blocks(costs, strict=True).groups,
        "dnnfusion": grow_blocks(costs).groups,
        "dp": solve_by_types(costs, SearchOptions(time_limit=seconds)).groups,
        "exact": solve(costs, SearchOptions(time_limit=seconds)).groups,
    }
    peers = (onnxruntime_nodes(model), tvm_kernels(model)) if read.has_values else (None, None)
    layers = {planner: len(groups) for planner, groups in plans.items()}
    return FusionCounts(
        name,
        len(model.graph.node),
        len(flow),
        *peers,
        layers,
        {planner: between(flow, groups) for planner, groups in plans.items()},
    )


def between(flow: Dataflow, groups: tuple[int, ...]) -> int:
    """Bytes of the maps that leave their group."""
    return 4 * sum(flow.maps[m].elements for group in groups for m in flow.leaving(group))


def onnxruntime_nodes(model: onnx.ModelProto) -> int:
    """Nodes that ONNX Runtime leaves of a network."""
    import onnxruntime  # noqa: PLC0415  (the rest runs without it)

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.onnx"
        onnx.save(model, path)
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        optimized = onnx.load(options.optimized_model_filepath, load_external_data=False)
    return len(optimized.graph.node)


def tvm_kernels(model: onnx.ModelProto) -> int | None:
    """Kernels that Apache TVM makes of a network: functions called after FuseOps, reshapes left out."""
    tvm = peer("tvm")
    if tvm is None:
        return None
    relax, frontend = import_module("tvm.relax"), import_module("tvm.relax.frontend.onnx")
    passes = (
        "LegalizeOps",
        "AnnotateTIROpPattern",
        "FoldConstant",
        "FuseOps",
        "FuseTIR",
        "RewriteDataflowReshape",
    )
    try:
        with tvm.target.Target("llvm"):
            module = tvm.transform.Sequential([getattr(relax.transform, name)() for name in passes])(
                frontend.from_onnx(model)
            )
    except Exception as error:
        say(f"{model.graph.name}: TVM does not take it: {str(error).strip().splitlines()[-1][:200]}")
        return None
    values = (binding.value for block in module["main"].body.blocks for binding in block.bindings)
    return sum(
        isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.call_tir") for value in values
    )


# -- latency -------------------------------------------------------------------------------------------------

Times = dict[str, dict[str, Any]]  # planner -> groups, median ms, ...


def latencies(read: Graph, rules: str, runs: int, buffer_bytes: int) -> Times:
    """What the C of each planner takes, and of TVM's rules and of operators alone on the network as read."""
    values = feeds(read, np.random.default_rng(0))
    groups: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        engines = {}
        for label, graph, kinds in (
            ("as read", simplify(read), PLANNERS[:2]),
            ("rewritten", simplify(read, rules), PLANNERS),
        ):
            for kind, plan in planned(graph, kinds, buffer_bytes, Path(folder) / label).items():
                groups[f"{kind}, {label}"] = len(plan.plan.groups)
                engines[f"{kind}, {label}"] = ours(compiled(plan), values)
        return {
            name: {"groups": groups[name], **row}
            for name, row in timed(engines, runs, "alone, as read").items()
        }


def latency_table(times: dict[str, Times]) -> Table:
    """ms of TVM's rules on the network as read, and how many times faster the others are (groups)."""
    base = "tvm, as read"
    others = ("alone, as read", *(f"{kind}, rewritten" for kind in PLANNERS))
    sheet = Table(
        box=box.SIMPLE_HEAD,
        title="our C, one thread: ms, and how many times faster than that the others are (groups)",
        title_justify="left",
    )
    for header in ("network", base, *others):
        sheet.add_column(header, justify="left" if header == "network" else "right")
    for name, rows in times.items():
        base_ms = rows[base]["ms"]
        cells = (f"{base_ms / rows[other]['ms']:.2f} ({rows[other]['groups']})" for other in others)
        sheet.add_row(name, f"{base_ms:.2f} ({rows[base]['groups']})", *cells)
    for label, members in (
        ("mean of Gao's four", [rows for name, rows in times.items() if name in GAO]),
        ("mean", list(times.values())),
    ):
        if members:
            means = (
                geometric_mean([rows[base]["ms"] / rows[other]["ms"] for rows in members]) for other in others
            )
            sheet.add_row(label, "", *(f"{mean:.2f}" for mean in means), style="bold")
    return sheet


def table(rows: list[FusionCounts]) -> Table:
    """Layers and MB by planner, with the paper's in parentheses."""
    sheet = Table(
        box=box.SIMPLE_HEAD,
        title="fused layers, and MB between them (in parentheses: DNNFusion's table 5)",
        title_justify="left",
    )
    for header in (
        "network",
        "nodes",
        "none",
        "ORT",
        "TVM",
        "tvm",
        "strict",
        "dnnfusion",
        "rate",
        "dp",
        "exact",
    ):
        sheet.add_column(header, justify="left" if header == "network" else "right")
    for row in rows:
        paper = next(
            (
                published
                for key, published in TABLE_5.items()
                if row.name == key or row.name.partition("_")[2].startswith(key)
            ),
            None,
        )
        given: dict[str, tuple[int | None, int | None]] = {}
        if paper is not None:
            given = {
                "none": (None, paper.megabytes),
                "tvm": (paper.tvm, None),
                "dnnfusion": (paper.dnnfusion, paper.fused_megabytes),
            }
        cells = {
            planner: f"{count}{_given(given, planner, 0)}\n"
            f"{row.bytes[planner] / 1e6:.0f}{_given(given, planner, 1)}"
            for planner, count in row.layers.items()
        }
        nodes = f"{row.nodes} ({paper.layers})" if paper else str(row.nodes)
        rate = f"{row.nodes / row.layers['dnnfusion']:.2f}" + (
            f"\n({paper.layers / paper.dnnfusion:.2f})" if paper else ""
        )
        peers = ("-" if n is None else str(n) for n in (row.onnxruntime, row.apache_tvm))
        sheet.add_row(
            row.name, nodes, cells["none"], *peers, cells["tvm"], cells["strict"], cells["dnnfusion"], rate,
            cells["dp"], cells["exact"]
        )  # fmt: skip
    return sheet


def _given(paper: dict[str, tuple[int | None, int | None]], planner: str, which: int) -> str:
    value = paper.get(planner, (None, None))[which]
    return "" if value is None else f" ({value})"


if __name__ == "__main__":
    main()
