"""Fusion plans a second of each search on MobileNet-V2 at 128 KiB, one core: cold, and all groups priced.

python benchmarks/bench_search.py [--budget 5000] [--models FOLDER] [--json FILE] [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option
from lfopt import zoo
from lfopt.frontend import from_model, load
from lfopt.fusion import CostModel
from lfopt.ir import Hardware
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic
from search.exact import solve
from search.local import improve
from search.nsga2 import evolve
from search.options import SearchOptions
from search.partition import Partitions
from search.result import Result
from search.sampling import sample

ZOO = (
    "mobilenet_v2",
    "efficientnet_b3",
    "resnet50",
    "resnet152",
    "squeezenet1_1",
    "vgg16",
    "deeplabv3_mobilenet_v3_large",
)
BUFFERS = (128, 256, 512, 1024, 2048)  # KiB, of the exact search
SEARCHES: dict[str, Callable[..., Result]] = {"random": sample, "local": improve, "nsga2": evolve}
COLD, WARM = 500, 5_000  # plans a second to reach
REPEATS = 3  # the fastest counts: other work on the machine only ever slows a run down


def main() -> int:
    """Measure, print, and tell (with --check) whether the figures to reach are reached."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=int, default=5_000, help="plans per run (default %(default)s)")
    parser.add_argument(
        "--limit",
        type=float,
        default=10.0,
        help="seconds for each exact search; 0: none (default %(default)s)",
    )
    parser.add_argument(
        "--models",
        type=Path,
        help="folder of ONNX files to run the exact search on, in place of the zoo's networks",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    add_option(parser)
    parser.add_argument(
        "--check", action="store_true", help=f"fail below {COLD:,} plans a second cold or {WARM:,} warm"
    )
    options = parser.parse_args()
    sheet = Sheet("search", options.results)
    flow = Dataflow.of(from_model(zoo.build("mobilenet_v2", weights=False), name="mobilenet_v2"))
    rows: list[dict[str, str | int | float]] = []
    for name, search in SEARCHES.items():
        cold, warm = 0.0, 0.0
        searched = None
        for _ in range(REPEATS):
            partitions = Partitions(_model(flow))
            cold = max(cold, _speed(search, partitions, options.budget)[0])
            speed, searched = _speed(search, partitions, options.budget)
            warm = max(warm, speed)
        assert searched is not None
        rows.append(
            {
                "search": name,
                "plans": searched.plans_evaluated,
                "cold": round(cold),
                "warm": round(warm),
                "dram_bytes": searched.dram_bytes,
            }
        )

    table = Table(
        title=f"{flow.graph.name}: {len(flow)} operators, 128 KiB, "
        f"{options.budget:,} plans; plans per second of CPU time"
    )
    for column in (
        "search",
        "nothing known",
        f"to reach {COLD:,}",
        "groups priced before",
        f"to reach {WARM:,}",
        "best plan, bytes",
    ):
        table.add_column(column, justify="left" if column == "search" else "right")
    for row in rows:
        cold, warm = int(row["cold"]), int(row["warm"])
        table.add_row(
            str(row["search"]),
            f"{cold:,}",
            _verdict(cold, COLD),
            f"{warm:,}",
            _verdict(warm, WARM),
            f"{row['dram_bytes']:,}",
        )
    sheet.show(table)
    proofs = _exact(sheet, options.limit, options.models) if options.limit else []
    sheet.write()
    if options.json:
        options.json.write_text(json.dumps({"searches": rows, "exact": proofs}, indent=1) + "\n")
    missed = [row for row in rows if int(row["cold"]) < COLD or int(row["warm"]) < WARM]
    return 1 if options.check and missed else 0


def _exact(sheet: Sheet, limit: float, folder: Path | None) -> list[dict[str, str | int | float]]:
    """The exact search on one network after the other, a line each as it ends."""
    table = Table(
        title=f"Exact search, traffic tiled, epilogue on, at most {limit:g} s each", title_justify="left"
    )
    for column in ("network", "operators", "KiB", "DRAM bytes", "gap", "proof", "seconds"):
        table.add_column(column, justify="left" if column in ("network", "proof") else "right")
    sheet.console.print(str(table.title), justify="center", style="italic")
    sheet.console.print(
        f"{'network':34}{'operators':>10}{'KiB':>6}{'DRAM bytes':>15}{'gap':>9}{'proof':>9}{'seconds':>9}",
        highlight=False,
    )
    rows: list[dict[str, str | int | float]] = []
    files = {path.stem: path for path in sorted(folder.glob("*.onnx"))} if folder else {}
    for name in files or ZOO:
        flow = Dataflow.of(load(files[name]) if files else from_model(zoo.build(name, weights=False)))
        for kib in BUFFERS:
            optimum = solve(GroupCosts(flow, Hardware(kib * 1024)), SearchOptions(time_limit=limit))
            rows.append({
                "network": name, "operators": len(flow), "buffer_kib": kib, "dram_bytes": optimum.dram_bytes,
                "lower_bound_bytes": optimum.lower_bound_bytes, "gap": optimum.gap, "proof": optimum.proof,
                "seconds": optimum.seconds,
            })  # fmt: skip
            cells = (
                f"{len(flow):,}",
                str(kib),
                f"{optimum.dram_bytes:,}",
                f"{optimum.gap:.2%}",
                optimum.proof,
                f"{optimum.seconds:.2f}",
            )
            table.add_row(name, *cells)
            widths = (10, 6, 15, 9, 9, 9)
            sheet.console.print(
                f"{name:34}{''.join(f'{cell:>{width}}' for cell, width in zip(cells, widths, strict=True))}",
                highlight=False,
            )
    sheet.keep(table)
    return rows


def _verdict(speed: int, wanted: int) -> str:
    return f"{speed / wanted:.1f} x" if speed >= wanted else f"[red]{speed / wanted:.2f} x[/red]"


def _speed(search: Callable[..., Result], partitions: Partitions, budget: int) -> tuple[float, Result]:
    """(plans per second of CPU time, what was found)."""
    start = time.process_time()
    searched = search(partitions.model, SearchOptions(budget=budget, seed=0, partitions=partitions))
    return searched.plans_evaluated / (time.process_time() - start), searched


def _model(flow: Dataflow, kib: int = 128) -> CostModel:
    return GroupCosts(flow, Hardware(kib * 1024), Traffic.PAPER, epilogue=False)


if __name__ == "__main__":
    raise SystemExit(main())
