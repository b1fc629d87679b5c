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
from hw_rtl.build import Model, Parameters, build
from hw_rtl.run import run
from lfopt.app import screen
from lfopt.app.cache import cache_folder
from lfopt.app.commands.quantize import quantize
from lfopt.app.commands.rtl import COUNTED
from lfopt.app.config import load_hardware
from lfopt.app.streams import memory, outputs
from lfopt.frontend import load
from lfopt.ir import DoesNotFit, DramBytes, Graph, ModelReference, Plan, SearchRecord
from lfopt.isa.tables import Counter
from lfopt.ops import Call, Dataflow, spec
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, memory_map, plan_groups, total_dram, totals_of
from search.exact import solve
from search.problem import Problem

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "resnet18", "efficientnet_b0", "efficientnet_b3")
VELA_BYTES = {"mobilenet_v2": 9_111_120, "resnet18": 41_838_992}


def main() -> None:
    names = sys.argv[1:] or NETWORKS
    screen.out.quiet = screen.err.quiet = True  # what quantize says
    hardware = load_hardware(Path(__file__).resolve().parents[1] / "configs" / "hardware" / "accelerator_256k.yaml")
    model = build(cache_folder() / "rtl", Parameters(dram_beats=1 << 23))
    print(f"{'network':16} {'plan':15} {'DRAM bytes':>12} {'instructions':>12} {'cycles':>12} {'of peak':>8} {'s':>6} {'Vela':>12}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.onnx"
            quantize(f"zoo:{name}", out_file=path, samples=2)
            graph = load(path)
        for scheme in ("auto", "lbdf", "layer by layer"):
            costs = GroupCosts(Dataflow.of(graph), hardware, scheme="lbdf" if scheme == "lbdf" else "auto")
            alone = tuple(1 << i for i in range(len(costs.dataflow)))
            groups = alone if scheme == "layer by layer" else solve(Problem.of(costs), time_limit=60).groups
            _report(name, scheme, model, _planned(costs, groups), graph)


def _planned(costs: GroupCosts, groups: tuple[int, ...]) -> Plan:
    found = plan_groups(costs, groups)
    assert not isinstance(found, DoesNotFit)
    model, record, memory_ = ModelReference("bench", "", ""), SearchRecord("bench", None, 0, 0.0), memory_map(costs, found)
    return Plan(model, costs.hardware, costs.scheme, "tiled", True, memory_, found, totals_of(costs, found, 0), record)  # noqa: FBT003


def _report(name: str, scheme: str, model: Model, plan: Plan, graph: Graph) -> None:
    stream = encode(plan, graph)
    rng = np.random.default_rng(0)
    inputs = {stored.name: rng.integers(-128, 128, stored.shape).astype(stored.dtype) for stored in stream.inputs}
    start = time.perf_counter()
    region = (stream.maps_address, stream.memory_bytes)
    done = run(model, stream.program, memory(stream, inputs), program_address=0, write_region=region)
    seconds = time.perf_counter() - start
    counted = DramBytes(**{kind: sum(done.counters[counter] for counter in pair) for kind, pair in COUNTED.items()})
    wanted, made = reference(graph, inputs), outputs(stream, graph, done.memory)
    assert done.failure is None
    assert counted == total_dram(plan.groups), (counted, total_dram(plan.groups))
    assert all((made[output] == wanted[output]).all() for output in wanted)
    cycles = done.counters[Counter.CYCLES]
    macs = sum(spec(op.kind, op.domain).macs(Call.of(graph, op)) for op in graph.operators)
    peak = macs / cycles / (plan.hardware.mac_rows * plan.hardware.mac_columns)
    vela = f"{VELA_BYTES[name]:,}" if name in VELA_BYTES and scheme == "auto" else ""
    instructions = done.counters[Counter.READ_INSTRUCTION]
    print(f"{name:16} {scheme:15} {counted.total:12,} {instructions:12,} {cycles:12,} {peak:8.1%} {seconds:6.1f} {vela:>12}", flush=True)


if __name__ == "__main__":
    main()
