"""Networks in int8 on the accelerator in RTL: bytes counted in hardware, with copies, fused, by layers.

A second page says how cycles grow as memory answers later, and as its channels hold back.

Outputs are compared with the reference bit by bit, and counted bytes with planned ones: a run that differs
stops the benchmark.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option
from codegen.accel import encode
from hw_rtl.run import Dram, RunResult
from lfopt.app import screen
from lfopt.app.commands.quantize import quantize
from lfopt.app.config import Config, SearchConfig, load_hardware
from lfopt.app.pipeline import find_plan, steps_of
from lfopt.app.plans import make_draft
from lfopt.app.streams import accelerator, counted, outputs, run
from lfopt.frontend import load
from lfopt.ir import Graph, Hardware, Plan
from lfopt.isa.tables import Counter
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, dram_at_port
from lfopt.rewrite.covers import without_copies
from search.objectives import ObjectiveName
from search.result import Result
from simulator.model.simulate import simulate

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "resnet18", "efficientnet_b0", "efficientnet_b3")
HEADS = {  # columns, and how wide they are on the screen
    "network": 16, "plan": 15, "DRAM bytes": 12, "instructions": 12, "MACs": 6, "cycles": 12, "predicted": 10,
    "of peak": 8, "s": 6,
}  # fmt: skip
FASTEST = "auto for cycles"  # scheme auto with objective cycles, for so long as a minute allows
BALANCED = "all, balanced"  # scheme all with objective balanced, the default
SECONDS = {FASTEST: 75.0, BALANCED: 240.0}  # of the searches; of all others, for bytes, FOR_BYTES
FOR_BYTES = 120.0
SLOWED = ("mobilenet_v2", "squeezenet1_1")  # networks that run on slower memories
LATENCIES = (40, 100, 200)  # cycles of every request; the first is that of all other figures
# cycles of 256 in which each channel holds back
STALLS = {"no stalls": 0, "25% stalls": 64, "50% stalls": 128}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", help=f"of the zoo (default: {', '.join(NETWORKS)})")
    parser.add_argument("--memory", action="store_true", help="slower memories alone")
    add_option(parser)
    options = parser.parse_args()
    screen.out.quiet = screen.err.quiet = True  # what quantize says
    hardware = load_hardware(
        Path(__file__).resolve().parents[1] / "configs" / "hardware" / "accelerator_256k.yaml"
    )
    if not options.memory:
        _networks(options, hardware)
    _memories(options, hardware)


def _networks(options: argparse.Namespace, hardware: Hardware) -> None:
    """Every network, in every scheme."""
    sheet, table = Sheet("rtl", options.results), Table(box=box.SIMPLE_HEAD)
    for head in HEADS:
        table.add_column(head, justify="left" if head in ("network", "plan") else "right")
    print(_line(list(HEADS)))
    for name in options.networks or NETWORKS:
        graph = _quantized(name)
        for scheme in (BALANCED, "all", FASTEST, "auto", "lbdf", "layer by layer"):
            cells = _measured(name, scheme, *_plan(scheme, graph, hardware))
            print(_line(cells), flush=True)
            table.add_row(*cells)
    sheet.keep(table)
    sheet.write()


def _memories(options: argparse.Namespace, hardware: Hardware) -> None:
    """Cycles of some networks, by how late memory answers and how often it holds back."""
    sheet, table = Sheet("rtl-memory", options.results), Table(box=box.SIMPLE_HEAD)
    for head in ("network", "latency", *STALLS):
        table.add_column(head, justify="left" if head == "network" else "right")
    for name in (name for name in SLOWED if name in (options.networks or SLOWED)):
        plan, graph = _plan("auto", _quantized(name), hardware)
        base = 0
        for latency in LATENCIES:
            cycle_counts = [
                _run(plan, graph, Dram(latency_cycles=latency, stall=stall))[0].counters[Counter.CYCLES]
                for stall in STALLS.values()
            ]
            base = base or cycle_counts[0]
            table.add_row(
                name,
                str(latency),
                *(
                    f"{cycles:,}" + f" ({cycles / base - 1:+.1%})" * (cycles != base)
                    for cycles in cycle_counts
                ),
            )
    sheet.show(table)
    sheet.write()


def _quantized(name: str) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        quantize(f"zoo:{name}", out_file=path, samples=2, measure=0)
        return load(path)


def _line(cells: list[str]) -> str:
    """A row of the screen's table: the first two columns to the left, figures to the right."""
    return " ".join(
        f"{cell:{'<' if k < 2 else '>'}{width}}"
        for k, (cell, width) in enumerate(zip(cells, HEADS.values(), strict=True))
    )


def _plan(scheme: str, graph: Graph, hardware: Hardware) -> tuple[Plan, Graph]:
    """The plan of a network, and the network that it is of: with copies, where the scheme has them."""
    if scheme == "layer by layer":
        costs = GroupCosts(Dataflow.of(graph), hardware, scheme="auto")
        unfused = _alone(costs)
        return make_draft(graph, costs, unfused, unfused.lower_bound_bytes).finished(), graph
    objectives: dict[str, tuple[str, ObjectiveName]] = {
        FASTEST: ("auto", "cycles"),
        BALANCED: ("all", "balanced"),
    }
    modes, objective = objectives.get(scheme, (scheme, "bytes"))
    how = SearchConfig(objective=objective, time_limit=SECONDS.get(scheme, FOR_BYTES))
    outcome = find_plan(Config(graph.name, hardware, modes, search=how), graph=graph)
    return steps_of(outcome).plan, outcome.graph


def _alone(costs: GroupCosts) -> Result:
    """Every operator a group of its own."""
    return Result("layer by layer", tuple(1 << i for i in range(len(costs.dataflow))), 0, 0, 0, 0, 0.0)


def _run(plan: Plan, graph: Graph, dram: Dram | None = None) -> tuple[RunResult, float]:
    """(what came of it, seconds).

    Every bit of the outputs is right, and the bytes are those planned: otherwise this is the end.
    """
    stream = encode(plan, graph)
    rng = np.random.default_rng(0)
    inputs = {
        stored.name: rng.integers(-128, 128, stored.shape).astype(stored.dtype) for stored in stream.inputs
    }
    model = accelerator(stream)
    start = time.perf_counter()
    done = run(model, stream, inputs, dram=dram)
    seconds = time.perf_counter() - start
    moved, wanted, arrays = (
        counted(done.counters),
        reference(graph, inputs),
        outputs(stream, graph, done.memory),
    )
    assert done.failure is None
    assert moved == dram_at_port(plan.groups), (moved, dram_at_port(plan.groups))
    assert all((arrays[output] == wanted[output]).all() for output in wanted)
    return done, seconds


def _measured(name: str, scheme: str, plan: Plan, graph: Graph) -> list[str]:
    done, seconds = _run(plan, graph)
    moved = counted(done.counters)
    cycles, predicted = done.counters[Counter.CYCLES], simulate(plan, graph)
    macs = sum(Dataflow.of(without_copies(graph, plan.copies)).macs)
    peak = macs / cycles / (plan.hardware.mac_rows * plan.hardware.mac_columns)
    instructions, error = done.counters[Counter.READ_INSTRUCTION], predicted.cycles.total / cycles - 1
    figures = [
        f"{moved.total:,}",
        f"{instructions:,}",
        f"{predicted.macs / macs:.2f}",
        f"{cycles:,}",
        f"{error:+.1%}",
        f"{peak:.1%}",
    ]
    return [name, scheme, *figures, f"{seconds:.1f}"]


if __name__ == "__main__":
    main()
