"""Cycles of plans: the RTL's against the model's, per network and per group, and how busy the MAC array is.

    python benchmarks/bench_rtl_cycles.py plans/*/plan.json [--groups]

A group's cycles on the RTL are those of a run of that group alone: groups of a network overlap a little, so
their sum is larger than the network's.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option
from codegen.accel import encode
from lfopt.app.streams import accelerator, run
from lfopt.app.verify import load_planned
from lfopt.ir import Graph, Operator, Plan, PlannedGroup
from lfopt.isa.tables import Counter
from lfopt.ops import spec
from simulator.model.simulate import simulate


def main() -> None:
    """Print a line for each plan, and for each of its groups if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plans", nargs="+", type=Path)
    parser.add_argument("--groups", action="store_true", help="run every group by itself too")
    add_option(parser)
    options = parser.parse_args()
    sheet, table = Sheet("rtl-cycles", options.results), Table(box=box.SIMPLE_HEAD)
    for head in ("plan or group", "RTL cycles", "predicted", "error", "array", "compute-bound groups"):
        table.add_column(head, justify="left" if head.startswith("plan") else "right")
    print(
        f"{'':34} {'RTL cycles':>12} {'predicted':>12} {'error':>8} {'array':>7} {'compute-bound groups':>21}"
    )
    for path in options.plans:
        plan, graph = load_planned(path)
        report = simulate(plan, graph)
        lanes = plan.hardware.mac_rows * plan.hardware.mac_columns
        bound = [group for group in report.groups if group.cycles.compute > group.cycles.dma]
        share = sum(group.macs for group in bound) / max(
            lanes * sum(group.cycles.total for group in bound), 1
        )
        line(
            table,
            path.parent.name,
            measured(plan, graph),
            report.cycles.total,
            report.macs / lanes,
            f"{100 * share:14.1f} % pred.",
        )
        if options.groups:
            for group, figures in zip(plan.groups, report.groups, strict=True):
                alone = measured(*only(plan, graph, group))
                line(
                    table,
                    f"  {group.id} {group.mode} {group.nodes[0][:24]}",
                    alone,
                    figures.cycles.total,
                    figures.macs / lanes,
                )
    sheet.keep(table)
    sheet.write()


def line(table: Table, name: str, cycles: int, predicted: int, ideal: float, remark: str = "") -> None:
    """One row; `ideal`: cycles of the array if nothing held it up."""
    cells = (
        f"{cycles:,}",
        f"{predicted:,}",
        f"{100 * (predicted / cycles - 1):+.2f}%",
        f"{100 * ideal / cycles:.1f}%",
    )
    table.add_row(name, *cells, remark.strip())
    print(f"{name:34.34} {cells[0]:>12} {cells[1]:>12} {cells[2]:>8} {cells[3]:>7} {remark}", flush=True)


def only(plan: Plan, graph: Graph, group: PlannedGroup) -> tuple[Plan, Graph]:
    """A plan of one group of a network; what it loads and stores become inputs and outputs."""
    known, kept = set(group.inputs) | set(graph.constants), list[Operator]()
    for operator in graph.operators:
        view = spec(operator.kind, operator.domain).view
        if (operator.name in group.nodes or view) and all(name in known for name in operator.inputs if name):
            kept.append(operator)
            known.update(operator.outputs)
    return replace(plan, groups=(replace(group, id=0),)), replace(
        graph, operators=tuple(kept), inputs=group.inputs, outputs=group.outputs
    )


def measured(plan: Plan, graph: Graph) -> int:
    """Cycles of the RTL; they do not depend on what the maps hold."""
    stream = encode(plan, graph)
    result = run(
        accelerator(stream),
        stream,
        {stored.name: np.zeros(stored.shape, stored.dtype) for stored in stream.inputs},
    )
    if result.failure is not None:
        raise SystemExit(f"{plan.model.name}: the RTL stops: {result.failure}")
    return result.counters[Counter.CYCLES]


if __name__ == "__main__":
    main()
