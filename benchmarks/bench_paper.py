"""The unguided searches of arXiv 2501.00636 (tables II to IV, LBDF) run again: bytes, and the distance to the proven optimum that the paper lacks.

    python benchmarks/bench_paper.py [--budget N] [--seeds 3] [--json FILE]

MB are the paper's: 1 MB = 1000 KB, 1 KB = 1024 B; 2 bytes an element, operators whose weights reach the buffer left out. The paper's networks, cost
formulas and set of operators left out are not published, so its MB stand beside ours for their order, not to be met.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lfopt import zoo
from lfopt.frontend import from_model
from lfopt.ir import Cost, Hardware
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic
from lfopt.rewrite import simplify
from search.exact import solve
from search.local import improve
from search.nsga2 import evolve
from search.partition import Partitions
from search.problem import Problem, Result
from search.sampling import sample

SEARCHES: dict[str, Callable[..., Result]] = {"RS": sample, "LS": improve, "NSGA-II": evolve}
KB, MB = 1024, 1024 * 1000
PROOF_SECONDS = 120.0


@dataclass(frozen=True)
class Case:
    """One network of one table."""

    table: str
    network: str  # as the paper calls it
    zoo: str  # the zoo's name for it
    kib: int
    plans: int
    paper: dict[str, tuple[float | None, float | None]]  # search -> (DRAM MB, largest group KB), where published


def _two(network: str, zoo_name: str, **paper: tuple[float, float]) -> Case:
    return Case("II", network, zoo_name, 256, 5_000, {"RS": paper["rs"], "LS": paper["ls"], "NSGA-II": paper["nsga2"]})


def _three(network: str, zoo_name: str, *, rs: float, ls: float) -> Case:
    return Case("III, IV", network, zoo_name, 128, 2_000, {"RS": (rs, None), "LS": (ls, None), "NSGA-II": (None, None)})


CASES = (
    _two("EfficientNet-B3", "efficientnet_b3", rs=(172.802, 251.674), ls=(90.500, 248.674), nsga2=(77.334, 249.236)),
    _two("ResNet-152", "resnet152", rs=(113.661, 207.750), ls=(80.733, 253.750), nsga2=(77.205, 253.375)),
    _two(
        "DeepLabV3+MBv3", "deeplabv3_mobilenet_v3_large",
        rs=(148.153, 235.156), ls=(116.644, 252.461), nsga2=(114.351, 252.461),
    ),
    _three("MobileNet-V2", "mobilenet_v2", rs=13.209, ls=9.803),
    _three("VGG-16", "vgg16", rs=6.856, ls=5.973),
    _three("ResNet-50", "resnet50", rs=39.092, ls=25.764),
    _three("ResNet-18", "resnet18", rs=6.856, ls=5.974),
    _three("SqueezeNet 1.1", "squeezenet1_1", rs=10.080, ls=3.839),
)  # fmt: skip


def main() -> None:
    """Run every search on every network, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, help="plans per run (default: the paper's 5,000 and 2,000)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each search (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write every run to this file")
    options = parser.parse_args()
    console = Console(width=min(Console().width, 120) if sys.stdout.isatty() else 120)

    start = time.perf_counter()
    runs: list[dict[str, str | int | float | None]] = []
    plans = f"{options.budget:,} plans" if options.budget else "5,000 plans at 256 KiB, 2,000 at 128 KiB"
    table = Table(title=f"Unguided searches, LBDF, traffic paper: {plans}, {options.seeds} seeds", box=box.SIMPLE_HEAD)
    table.add_column("network", no_wrap=True)
    table.add_column("optimum\nMB", justify="right")
    table.add_column("search", no_wrap=True)
    for column in ("mean\nMB", "min - max\nMB", "mean\ngap", "worst\ngap", "largest\nKB", "paper\nMB", "paper\nKB"):
        table.add_column(column, justify="right", no_wrap=True)
    for case in CASES:
        with console.status(f"{case.network}: proving the optimum"):
            partitions, best, largest = _solved(case)
        budget = options.budget or case.plans
        for place, (name, (paper_mb, paper_kb)) in enumerate(case.paper.items()):
            found: list[Result] = []
            for seed in range(options.seeds):
                with console.status(f"{case.network}: {name}, seed {seed}"):
                    found.append(
                        SEARCHES[name](partitions.problem, budget=budget, seed=seed, lower_bound_bytes=best.lower_bound_bytes, partitions=partitions)
                    )
            buffers = [partitions.buffer_bytes(result.groups) for result in found]
            runs += [
                {
                    "table": case.table, "network": case.network, "operators": len(partitions.flow), "kib": case.kib, "plans": result.evaluations,
                    "search": name, "seed": result.seed, "dram_bytes": result.dram_bytes, "gap": result.gap, "buffer_bytes": buffer,
                    "optimum_bytes": best.dram_bytes, "lower_bound_bytes": best.lower_bound_bytes, "proof": best.proof,
                    "optimum_buffer_bytes": largest, "seconds": result.seconds, "paper_mb": paper_mb, "paper_kb": paper_kb,
                }
                for result, buffer in zip(found, buffers, strict=True)
            ]  # fmt: skip
            megabytes, gaps = [result.dram_bytes / MB for result in found], [result.gap for result in found]
            head = (case.network, f"{len(partitions.flow)} ops, {case.kib} KiB", "")
            table.add_row(
                head[place],
                _optimum(best) if place == 0 else "",
                name,
                f"{sum(megabytes) / len(found):.3f}",
                f"{min(megabytes):.3f} - {max(megabytes):.3f}",
                f"{sum(gaps) / len(found):.2%}",
                f"{max(gaps):.2%}",
                f"{sum(buffers) / len(found) / KB:.1f}" if paper_kb else "",
                f"{paper_mb:.3f}" if paper_mb else "-",
                f"{paper_kb:.1f}" if paper_kb else "",
                end_section=place == len(case.paper) - 1,
            )
    console.print(table)
    console.print(f"largest: the biggest group that runs whole from the buffer. gap: to the optimum, proven. {time.perf_counter() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(runs, indent=1) + "\n")


def _solved(case: Case) -> tuple[Partitions, Result, int]:
    """(the network's partitions, the exact search's result, buffer bytes of its largest group)."""
    flow = Dataflow.of(simplify(from_model(zoo.build(case.zoo, weights=False))))
    costs = GroupCosts(flow, Hardware(case.kib * 1024), Traffic.PAPER, epilogue=False)
    problem = Problem.of(costs)
    best = solve(problem, time_limit=PROOF_SECONDS)
    prices = [costs.evaluate(group) for group in best.groups]
    largest = max((price.buffer_bytes for price in prices if isinstance(price, Cost) and price.mode == "lbdf"), default=0)
    return Partitions(problem), best, largest


def _optimum(best: Result) -> str:
    if best.proof == "optimal":
        return f"{best.dram_bytes / MB:.3f}"
    return f">= {best.lower_bound_bytes / MB:.3f}"


if __name__ == "__main__":
    main()
