"""What scheme `all` brings over `auto`: DRAM bytes, multiply-accumulates and modelled cycles, all recounted.

On EfficientNet-B3 also what each part of the scheme brings.

python benchmarks/bench_beyond.py [--limit SECONDS] [--only TEXT]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option
from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import find_plan, load_network
from lfopt.app.verify import verified
from lfopt.ir import Graph, Hardware
from lfopt.ops import Dataflow
from lfopt.ops.flight import in_flight
from lfopt.planning import GroupCosts, link
from search.exact import solve
from search.options import SearchOptions
from simulator.model.simulate import simulate

CASES = (  # network, bytes an element, KiB, megabytes to reach (0: no figure was set)
    ("efficientnet_b3", 2, 256, 36.0),
    ("efficientnet_b3", 1, 256, 16.0),
    ("efficientnet_b0", 1, 256, 5.8),
    ("mobilenet_v2", 2, 128, 7.6),
    ("mobilenet_v2", 1, 128, 3.70),
    ("resnet18", 1, 256, 12.9),
    ("resnet50", 1, 256, 37.0),
    ("resnet50", 1, 1024, 26.6),
    ("deeplabv3_mobilenet_v3_large", 2, 256, 136.0),
    ("mobilenet_v1_ssd", 2, 256, 31.2),
    ("yolov4", 2, 256, 320.0),
    ("unet", 2, 256, 19.6),
    ("fsrcnn", 2, 256, 5.6),
)


COLUMNS = (
    "network|B|KiB|auto|all|to reach|x compulsory|MACs|M cycles auto|M cycles all|recount|s auto|s all".split(
        "|"
    )
)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds for each search (default %(default)s)"
    )
    parser.add_argument("--only", default="", help="networks whose name has this")
    add_option(parser)
    options = parser.parse_args()
    sheet = Sheet("beyond", options.results)
    table = Table(
        title="MB of DRAM (10^6 B); MACs over the network's own; "
        "cycles modelled on 16 x 16 MACs; seconds of search"
    )
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("network", "recount") else "right")
    for network, size, kib, aim in CASES:
        if options.only in network:
            graph = load_network(f"zoo:{network}", {}, "default", weights=False)
            table.add_row(network, str(size), str(kib), *_row(graph, size, kib, aim, options.limit))
    sheet.show(table)
    if options.only in "efficientnet_b3":
        sheet.show(_ablation(options.limit))
    sheet.write()
    return 0


def _row(graph: Graph, size: int, kib: int, aim: float, limit: float) -> list[str]:
    moved: list[float] = []
    cycles: list[float] = []
    seconds: list[float] = []
    proofs: list[str] = []
    ratio, compulsory, holds = 1.0, 1, True
    for scheme in ("auto", "all"):
        config = Config(
            "network",
            Hardware(kib * 1024, element_bytes=size),
            scheme,
            search=SearchConfig(objective="bytes", time_limit=limit),
        )
        start = time.process_time()
        outcome = find_plan(config, graph=graph)
        seconds.append(time.process_time() - start)
        plan = outcome.draft.finished()
        report = simulate(plan, outcome.graph)
        holds &= verified(plan, outcome.graph).holds
        moved.append(plan.totals.dram_bytes / 1e6)
        cycles.append(report.cycles.total / 1e6)
        proofs.append("" if plan.totals.proof == "optimal" else " (gap)")
        ratio, compulsory = report.macs / sum(Dataflow.of(graph).macs), plan.totals.compulsory_bytes
    return [
        *(f"{megabytes:.2f}{proof}" for megabytes, proof in zip(moved, proofs, strict=True)),
        f"{aim:.2f}",
        f"{moved[1] * 1e6 / compulsory:.2f}",
        f"{ratio:.2f}",
        *(f"{million:.1f}" for million in cycles),
        "holds" if holds else "does not hold",
        *(f"{taken:.1f}" for taken in seconds),
    ]


def _ablation(limit: float) -> Table:
    """EfficientNet-B3 at fp16 and 256 KiB, one part of the scheme after the other."""
    table = Table(title="EfficientNet-B3, fp16, 256 KiB: one after the other")
    for column in ("with", "MB", "operators for the search"):
        table.add_column(column, justify="left" if column == "with" else "right")
    chip, options = Hardware(256 * 1024, element_bytes=2), SearchOptions(time_limit=limit)
    graph = load_network("zoo:efficientnet_b3", {}, "default", weights=False)
    flow = Dataflow.of(graph)
    flying = in_flight(flow)
    for name, seen, scheme in (
        ("the modes of auto", flow, "auto"),
        ("+ operators in flight", replace(flying, running=0), "auto"),
        ("+ means that run", flying, "auto"),
        ("+ strips, slices, gates in two phases", flying, "all"),
    ):
        costs = GroupCosts(seen, chip, scheme=scheme)
        optimum = solve(costs, options)
        table.add_row(name, f"{optimum.dram_bytes / 1e6:.2f}", str(len(seen)))
    table.add_row(
        "+ maps that stay", f"{costs.dram_bytes(link(costs, optimum.groups)) / 1e6:.2f}", str(len(flying))
    )
    outcome = find_plan(
        Config("network", chip, "all", search=SearchConfig(objective="bytes", time_limit=limit)), graph=graph
    )
    table.add_row("+ copies", f"{outcome.plan.totals.dram_bytes / 1e6:.2f}", str(len(outcome.costs.dataflow)))
    return table


if __name__ == "__main__":
    sys.exit(main())
