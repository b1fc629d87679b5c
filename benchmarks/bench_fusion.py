"""How many layers are left, and how many bytes between them, when a network is fused as compilers do: beside DNNFusion's table 5.

    python benchmarks/bench_fusion.py [--networks efficientnet_b0 vgg16] [--models FOLDER] [--rules default] [--seconds 20] [--json FILE]

Buffers are unlimited: what ends a group is the rules alone. `nodes` are those of the ONNX file, `operators` those that move or compute something
(views apart), after rewriting (`--rules`; ORT starts from the file). Of dnnfusion, `strict` has one many-to-many operator in a group; the other lets
pools, reductions, softmax and normalisation stand beside another, as the paper's own counts say. `dp` finds the fewest DRAM bytes among the groups
that types allow, `exact` among all: not the fewest groups. ORT is what ONNX Runtime leaves at full optimisation; it needs weights. Intermediate bytes
are of all results, and of those that leave a group, in float32. In parentheses: the paper's.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import onnx
from rich import box
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lfopt import zoo
from lfopt.frontend import from_model, load
from lfopt.ir import Hardware, LfoptError
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts
from lfopt.rewrite import RULES, simplify
from search.dnnfusion import grow_blocks
from search.dp import solve_by_types
from search.exact import solve
from search.problem import Problem, Result
from search.tvm import fuse_by_patterns

UNLIMITED = Hardware(1 << 40, element_bytes=4)
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
class Row:
    """What one network comes to."""

    name: str
    nodes: int
    operators: int
    onnxruntime: int | None
    tvm: int
    strict: int
    dnnfusion: int
    dp: int
    exact: int
    bytes_before: int
    bytes_after: int  # dnnfusion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", choices=zoo.names(), default=list(NETWORKS), metavar="NAME", help="of the zoo")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="all ONNX files of a folder as well")
    parser.add_argument("--rules", choices=RULES, default="all", help="of rewriting (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each search (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rows: list[Row] = []
    for name, file in sources(options.networks, options.models):
        try:
            rows.append(measured(name, file, options.rules, options.seconds))
        except LfoptError as error:
            print(f"{name}: skipped: {error}", file=sys.stderr)
            continue
        print(f"{name}: done", file=sys.stderr, flush=True)
    Console(width=150).print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def sources(networks: list[str], folder: Path | None) -> Iterator[tuple[str, Path | None]]:
    """(name, file; None: of the zoo)."""
    yield from ((name, None) for name in networks)
    for file in sorted(folder.glob("*.onnx")) if folder else ():
        yield file.stem, file


def measured(name: str, file: Path | None, rules: str, seconds: float) -> Row:
    """Plan one network in every way."""
    model = zoo.build(name) if file is None else None
    graph = simplify(from_model(model, name=name) if model is not None else load(str(file)), rules)
    flow = Dataflow.of(graph)
    problem = Problem.of(GroupCosts(flow, UNLIMITED, scheme="auto"))
    blocks = grow_blocks(problem)
    counts = [
        len(found.groups)
        for found in (
            fuse_by_patterns(problem),
            grow_blocks(problem, strict=True),
            blocks,
            solve_by_types(problem, time_limit=seconds),
            solve(problem, time_limit=seconds),
        )
    ]
    nodes = len(model.graph.node) if model is not None else len(onnx.load(str(file), load_external_data=False).graph.node)
    kernels = onnxruntime_nodes(model, file) if graph.has_values else None
    return Row(name, nodes, len(flow), kernels, *counts, between(flow, None), between(flow, blocks))


def between(flow: Dataflow, result: Result | None) -> int:
    """Bytes of the maps that operators make, or of those that leave their group."""
    groups = result.groups if result is not None else tuple(1 << i for i in range(len(flow)))
    leaving = (
        flow.maps[m].elements
        for group in groups
        for i in bits(group)
        for m in flow.results[i]
        if result is None or flow.is_output[m] or flow.readers[m] & ~group
    )
    return 4 * sum(leaving)


def onnxruntime_nodes(model: onnx.ModelProto | None, file: Path | None) -> int:
    """Nodes that ONNX Runtime leaves of a network."""
    import onnxruntime  # noqa: PLC0415  (the rest runs without it)

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.onnx"
        if model is not None:
            onnx.save(model, path)
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(str(path if file is None else file), options, providers=["CPUExecutionProvider"])
        found = onnx.load(options.optimized_model_filepath, load_external_data=False)
    return len(found.graph.node)


def table(rows: list[Row]) -> Table:
    """The figures, with the paper's in parentheses."""
    found = Table(box=box.SIMPLE_HEAD)
    for header in ("network", "nodes", "operators", "ORT", "TVM's rules", "strict", "dnnfusion", "rate", "dp", "exact", "MB before", "MB after"):
        found.add_column(header, justify="left" if header == "network" else "right")
    for row in rows:
        paper = next((published for key, published in TABLE_5.items() if row.name == key or row.name.partition("_")[2].startswith(key)), None)
        given = [f" ({value})" if value is not None else "" for value in paper] if paper is not None else [""] * 5
        found.add_row(
            row.name, f"{row.nodes}{given[0]}", str(row.operators), "-" if row.onnxruntime is None else str(row.onnxruntime),
            f"{row.tvm}{given[1]}", str(row.strict), f"{row.dnnfusion}{given[2]}", f"{row.nodes / row.dnnfusion:.2f}", str(row.dp), str(row.exact),
            f"{row.bytes_before / 1e6:.0f}{given[3]}", f"{row.bytes_after / 1e6:.0f}{given[4]}",
        )  # fmt: skip
    return found


if __name__ == "__main__":
    main()
