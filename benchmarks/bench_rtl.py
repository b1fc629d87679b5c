"""Networks in int8 on the accelerator in RTL: bytes counted in hardware, fused and layer by layer, beside what an industrial compiler reports.

The compiler is Arm's Vela 5.2.0 for its NPU U65-512 with 256 KiB of SRAM; its figures count what crosses the port, as ours do. Outputs are compared
with the reference bit by bit, and counted bytes with planned ones: a run that differs stops the benchmark.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from codegen.accel import encode
from lfopt.app import screen
from lfopt.app.commands.quantize import quantize
from lfopt.app.config import load_hardware
from lfopt.app.plans import make_draft
from lfopt.app.streams import accelerator, counted, outputs, run
from lfopt.frontend import load
from lfopt.ir import Graph, Plan
from lfopt.isa.tables import Counter
from lfopt.ops import Dataflow
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, total_dram
from search.exact import solve
from search.problem import Problem, Result
from simulator.simulate import simulate

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "resnet18", "efficientnet_b0", "efficientnet_b3")
VELA_BYTES = {"mobilenet_v2": 9_111_120, "resnet18": 41_838_992}


def main() -> None:
    names = sys.argv[1:] or NETWORKS
    screen.out.quiet = screen.err.quiet = True  # what quantize says
    hardware = load_hardware(Path(__file__).resolve().parents[1] / "configs" / "hardware" / "accelerator_256k.yaml")
    print(f"{'network':16} {'plan':15} {'DRAM bytes':>12} {'instructions':>12} {'cycles':>12} {'predicted':>10} {'of peak':>8} {'s':>6} {'Vela':>12}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.onnx"
            quantize(f"zoo:{name}", out_file=path, samples=2)
            graph = load(path)
            for scheme in ("auto", "lbdf", "layer by layer"):
                costs = GroupCosts(Dataflow.of(graph), hardware, scheme="lbdf" if scheme == "lbdf" else "auto")
                found = _alone(costs) if scheme == "layer by layer" else solve(Problem.of(costs), time_limit=60)
                _report(name, scheme, make_draft(graph, costs, found, found.lower_bound_bytes).finished(), graph)


def _alone(costs: GroupCosts) -> Result:
    """Every operator a group of its own."""
    return Result(tuple(1 << i for i in range(len(costs.dataflow))), 0, 0, "none", "layer by layer", None, 0, 0.0)


def _report(name: str, scheme: str, plan: Plan, graph: Graph) -> None:
    stream = encode(plan, graph)
    rng = np.random.default_rng(0)
    inputs = {stored.name: rng.integers(-128, 128, stored.shape).astype(stored.dtype) for stored in stream.inputs}
    model = accelerator(stream)
    start = time.perf_counter()
    done = run(model, stream, inputs)
    seconds = time.perf_counter() - start
    moved, wanted, made = counted(done.counters), reference(graph, inputs), outputs(stream, graph, done.memory)
    assert done.failure is None
    assert moved == total_dram(plan.groups), (moved, total_dram(plan.groups))
    assert all((made[output] == wanted[output]).all() for output in wanted)
    cycles, predicted = done.counters[Counter.CYCLES], simulate(plan, graph)
    peak = (predicted.macs - predicted.recomputed_macs) / cycles / (plan.hardware.mac_rows * plan.hardware.mac_columns)
    vela = f"{VELA_BYTES[name]:,}" if name in VELA_BYTES and scheme == "auto" else ""
    instructions, error = done.counters[Counter.READ_INSTRUCTION], predicted.cycles.total / cycles - 1
    print(f"{name:16} {scheme:15} {moved.total:12,} {instructions:12,} {cycles:12,} {error:+10.1%} {peak:8.1%} {seconds:6.1f} {vela:>12}", flush=True)


if __name__ == "__main__":
    main()
