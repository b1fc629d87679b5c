"""Balanced plans beside today's compilers' on the same chip: bytes, cycles, energy, whether the cap holds.

python benchmarks/bench_balanced.py [--limit SECONDS] [--only TEXT] [--scheme SCHEME]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option
from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import find_plan, load_network, steps_of
from lfopt.ir import Figures, Graph, Hardware
from simulator.model.simulate import simulate

NETWORKS = (
    "mobilenet_v1 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large efficientnet_b0 efficientnet_b1 "
    "resnet18 resnet34 resnet50 squeezenet1_0 squeezenet1_1 vgg16 deeplabv3_mobilenet_v3_large fsrcnn "
    "mobilenet_v1_ssd unet bert_base gpt2_step vit_tiny whisper_tiny_encoder"
).split()
BUFFERS = (256, 1024)  # KiB
COLUMNS = (
    "network|KiB|MB compilers|MB fewest|MB balanced|Mcycles cap|Mcycles fewest|Mcycles balanced|"
    "uJ compilers|uJ balanced|within|s"
).split("|")


def chips(kib: int) -> dict[str, Hardware]:
    """Three chips with a buffer of so many KiB."""
    size = kib * 1024
    return {
        "nothing said": Hardware(size),
        "16 x 16, port of 4 B": Hardware(size, mac_rows=16, mac_columns=16, port_bytes=4),
        "32 x 32, port of 16 B": Hardware(size, mac_rows=32, mac_columns=32, port_bytes=16),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--limit", type=float, default=20.0, help="seconds for each job (default %(default)s)"
    )
    parser.add_argument("--only", default="", help="networks whose name has this")
    parser.add_argument("--scheme", default="all", help="of the plans (default %(default)s)")
    parser.add_argument("--kib", type=int, nargs="*", default=BUFFERS, help="sizes of the buffer")
    add_option(parser)
    options = parser.parse_args()
    sheet = Sheet("balanced", options.results)
    over = 0
    for chip in chips(BUFFERS[0]):
        table = Table(
            title=f"{chip}: plans with steps, groups one after the other; compilers: epilogue fusion"
        )
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "network" else "right")
        for network in NETWORKS:
            if options.only not in network:
                continue
            graph = load_network(f"zoo:{network}", {}, "default", weights=False)
            for kib in options.kib:
                row = _row(graph, chips(kib)[chip], options.scheme, options.limit)
                over += row[-2] != "yes"
                table.add_row(network, str(kib), *row)
        sheet.show(table)
    sheet.show(f"rows whose plan takes more cycles than the faster baseline: {over}")
    sheet.write()
    return 0


def _row(graph: Graph, chip: Hardware, scheme: str, limit: float) -> list[str]:
    how = SearchConfig(objective="balanced", time_limit=limit)
    outcome = find_plan(Config("network", chip, scheme, search=how), graph=graph)
    judged = outcome.judged
    assert judged is not None, "figures are looked at for another objective than bytes"
    if judged.trade is None or judged.figures is None or judged.trade.most_cycles is None:
        return ["-"] * (len(COLUMNS) - 4) + ["no baseline runs", f"{outcome.deadline.passed:.1f}"]
    finished = steps_of(outcome)
    cycles = simulate(finished.plan, finished.graph).cycles.total
    fused = dict(judged.trade.baselines).get("epilogue fusion", Figures(0, 0, 0))
    cap = judged.trade.most_cycles
    return [
        f"{fused.dram_bytes / 1e6:.2f}",
        f"{judged.trade.fewest_bytes.dram_bytes / 1e6:.2f}",
        f"{finished.plan.totals.dram_bytes / 1e6:.2f}",
        f"{cap / 1e6:.2f}",
        f"{judged.trade.fewest_bytes.cycles / 1e6:.2f}",
        f"{cycles / 1e6:.2f}",
        f"{fused.energy_pj / 1e6:,.0f}",
        f"{judged.figures.energy_pj / 1e6:,.0f}",
        "yes" if cycles <= cap else "no",
        f"{outcome.deadline.passed:.1f}",
    ]


if __name__ == "__main__":
    raise SystemExit(main())
