"""The unguided searches of arXiv 2501.00636 (tables II to IV) run again: bytes, and the distance to the proven optimum that the paper lacks.

    python benchmarks/bench_paper.py [--only lbdf|brr] [--budget N] [--seeds 3] [--json FILE]

MB are the paper's: 1 MB = 1000 KB, 1 KB = 1024 B; 2 bytes an element. The paper's networks and cost formulas are not published, so its MB stand
beside ours for their order, not to be met. LBDF: operators whose weights reach the buffer are left out, as in the paper. BRR: Optimus' own formula
(`lfopt.planning.optimus`, k = 16), all operators counted, for two readings of a 128 KB buffer: 65,536 elements of 2 bytes, and the 131,072 elements
that Optimus' hardware description of that name holds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
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
from lfopt.planning.optimus import OptimusCosts
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
    paper: dict[str, tuple[float | None, float | None]]  # search -> (DRAM MB, largest group KB; BRR: MB with the best explainer), where published
    elements: int = 0  # BRR: what the buffer holds; 0: LBDF


def _two(network: str, zoo_name: str, **paper: tuple[float, float]) -> Case:
    return Case("II", network, zoo_name, 256, 5_000, {"RS": paper["rs"], "LS": paper["ls"], "NSGA-II": paper["nsga2"]})


def _three(network: str, zoo_name: str, *, rs: float, ls: float) -> Case:
    return Case("III, IV", network, zoo_name, 128, 2_000, {"RS": (rs, None), "LS": (ls, None), "NSGA-II": (None, None)})


def _brr(network: str, zoo_name: str, *, rs: tuple[float, float], ls: tuple[float, float]) -> list[Case]:
    """Unguided, and the best of three explainers; under both readings of the buffer."""
    return [Case("III, IV", network, zoo_name, 128, 2_000, {"RS": rs, "LS": ls}, elements) for elements in (1 << 16, 1 << 17)]


LBDF = (
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
BRR = (
    *_brr("MobileNet-V2", "mobilenet_v2", rs=(16.195, 12.593), ls=(15.101, 13.401)),
    *_brr("VGG-16", "vgg16", rs=(29.274, 28.124), ls=(27.606, 26.975)),
    *_brr("ResNet-50", "resnet50", rs=(91.866, 91.669), ls=(83.685, 83.317)),
    *_brr("ResNet-18", "resnet18", rs=(28.525, 27.599), ls=(27.127, 26.975)),
    *_brr("SqueezeNet 1.1", "squeezenet1_1", rs=(10.249, 7.601), ls=(8.202, 6.232)),
)


def main() -> None:
    """Run every search on every network, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("lbdf", "brr"), help="one buffer model (default: both)")
    parser.add_argument("--budget", type=int, help="plans per run (default: the paper's 5,000 and 2,000)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each search (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write every run to this file")
    options = parser.parse_args()
    console = Console(width=min(Console().width, 120) if sys.stdout.isatty() else 120)

    runs: list[dict[str, str | int | float | None]] = []
    if options.only != "brr":
        plans = f"{options.budget:,} plans" if options.budget else "5,000 plans at 256 KiB, 2,000 at 128 KiB"
        title = f"Unguided searches, LBDF, traffic paper: {plans}, {options.seeds} seeds"
        _table(console, title, ("largest\nKB", "paper\nMB", "paper\nKB"), LBDF, options.budget, options.seeds, runs)
        console.print("largest: the biggest group that runs whole from the buffer. gap: to the optimum, proven.")
    if options.only != "lbdf":
        title = f"Unguided searches, BRR, buffer model paper, 128 KB: {options.budget or 2_000:,} plans, {options.seeds} seeds"
        _table(console, title, ("paper\nMB", "guided\nMB"), BRR, options.budget, options.seeds, runs)
        console.print("S: elements that the buffer holds. guided: the paper's best with an explainer. gap: to the optimum, proven.")
    if options.json:
        options.json.write_text(json.dumps(runs, indent=1) + "\n")


def _table(
    console: Console,
    title: str,
    columns: Sequence[str],
    cases: Sequence[Case],
    budget: int | None,
    seeds: int,
    runs: list[dict[str, str | int | float | None]],
) -> None:
    """Run some cases, add every run to `runs`, print one table."""
    start = time.perf_counter()
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("network", no_wrap=True)
    table.add_column("optimum\nMB", justify="right")
    table.add_column("search", no_wrap=True)
    for column in ("mean\nMB", "min - max\nMB", "mean\ngap", "worst\ngap", *columns):
        table.add_column(column, justify="right", no_wrap=True)
    for case in cases:
        with console.status(f"{case.network}: proving the optimum"):
            partitions, best, largest = _solved(case)
        for place, (name, (paper_mb, other)) in enumerate(case.paper.items()):
            found: list[Result] = []
            for seed in range(seeds):
                with console.status(f"{case.network}: {name}, seed {seed}"):
                    plans, bound = budget or case.plans, best.lower_bound_bytes
                    found.append(SEARCHES[name](partitions.problem, budget=plans, seed=seed, lower_bound_bytes=bound, partitions=partitions))
            buffers = [partitions.buffer_bytes(result.groups) for result in found]
            runs += [
                {
                    "table": case.table, "network": case.network, "operators": len(partitions.flow), "kib": case.kib, "plans": result.evaluations,
                    "scheme": "brr" if case.elements else "lbdf", "buffer_elements": case.elements or None,
                    "search": name, "seed": result.seed, "dram_bytes": result.dram_bytes, "gap": result.gap,
                    "buffer_bytes": None if case.elements else buffer, "optimum_buffer_bytes": None if case.elements else largest,
                    "optimum_bytes": best.dram_bytes, "lower_bound_bytes": best.lower_bound_bytes, "proof": best.proof,
                    "seconds": result.seconds, "paper_mb": paper_mb,
                    "paper_kb": None if case.elements else other, "paper_guided_mb": other if case.elements else None,
                }
                for result, buffer in zip(found, buffers, strict=True)
            ]  # fmt: skip
            megabytes, gaps = [result.dram_bytes / MB for result in found], [result.gap for result in found]
            size = f"S = {case.elements:,}" if case.elements else f"{case.kib} KiB"
            last = (
                [f"{paper_mb:.3f}", f"{other:.3f}"]
                if case.elements
                else [
                    f"{sum(buffers) / len(found) / KB:.1f}" if other else "",
                    f"{paper_mb:.3f}" if paper_mb else "-",
                    f"{other:.1f}" if other else "",
                ]
            )
            table.add_row(
                (case.network, f"{len(partitions.flow)} ops, {size}", "")[place],
                _optimum(best) if place == 0 else "",
                name,
                f"{sum(megabytes) / len(found):.3f}",
                f"{min(megabytes):.3f} - {max(megabytes):.3f}",
                f"{sum(gaps) / len(found):.2%}",
                f"{max(gaps):.2%}",
                *last,
                end_section=place == len(case.paper) - 1,
            )
    console.print(table)
    console.print(f"{time.perf_counter() - start:.0f} s")


def _solved(case: Case) -> tuple[Partitions, Result, int]:
    """(the network's partitions, the exact search's result, buffer bytes of its largest group)."""
    flow = Dataflow.of(simplify(from_model(zoo.build(case.zoo, weights=False))))
    hardware = Hardware(case.kib * 1024)
    if case.elements:
        costs = OptimusCosts(flow, hardware, buffer_elements=case.elements)
    else:
        costs = GroupCosts(flow, hardware, Traffic.PAPER, epilogue=False)
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
