"""lfopt rtl: command streams on the simulated accelerator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import App, Parameter
from rich.markup import escape
from threadpoolctl import threadpool_limits

from hw_rtl.build import BuildFailed, Parameters, build
from hw_rtl.run import Dram, RunResult, SimulationFailed
from hw_rtl.run import run as simulated
from lfopt.app.arrays import differences, random_inputs, read_inputs, real, write_arrays
from lfopt.app.cache import cache_folder
from lfopt.app.screen import err, out, progress_line, table
from lfopt.app.streams import memory, outputs, read_stream
from lfopt.ir import CommandStream, DramBytes, Graph, LfoptError, Plan
from lfopt.isa import document
from lfopt.isa.tables import BEAT_BYTES, Class, Counter
from lfopt.ops import Call, spec
from lfopt.ops.reference import reference
from lfopt.planning import total_dram
from simulator.simulate import simulate

app = App(name="rtl", help="Run command streams on the accelerator in RTL, and describe its instructions.")

CLASSES = {"input": Class.INPUT, "output": Class.OUTPUT, "weight": Class.WEIGHT, "parameter": Class.PARAMETER, "spill": Class.SPILL}
COUNTED = {name: (Counter[f"READ_{found.name}"], Counter[f"WRITTEN_{found.name}"]) for name, found in CLASSES.items()}


@app.command
def run(
    folder: Path,
    *,
    inputs: Annotated[Path | None, Parameter(name="--input")] = None,
    output: Annotated[Path | None, Parameter(name="--output")] = None,
    seed: int = 0,
    check: bool = True,
    latency: int = 40,
    stall: int = 0,
) -> int:
    """Run a command stream on the Verilated accelerator, and compare the bytes that it counts at its memory port with those that were planned.

    The model is built once and kept (about a minute). Exit code 0: bytes counted equal bytes planned, and every bit of the outputs is that of the
    reference; 1: something differs, or the accelerator stopped with an error.

    Parameters
    ----------
    folder
        Folder that `lfopt codegen --target accel` has written.
    inputs
        .npz with one array per graph input. Without it, inputs are drawn at random. Float arrays are quantised where the model takes integers.
    output
        .npz to write the graph outputs to, as real numbers.
    seed
        Seed of random inputs.
    check
        Compare the outputs with the plain reference of the whole network.
    latency
        Cycles from each request to the memory until its first byte.
    stall
        How often the memory holds back, in cycles of 256.
    """
    stream, plan, graph = read_stream(folder)
    if inputs is None:
        err.print("note: no --input: inputs are drawn at random", style="yellow")
    values = random_inputs(graph, np.random.default_rng(seed)) if inputs is None else read_inputs(graph, inputs)
    predicted = simulate(plan, graph).cycles.total
    with progress_line() as report, threadpool_limits(1):
        report("building the model", 0.0)
        done = _simulated(stream, values, Dram(latency_cycles=latency, stall=stall), lambda cycles: report("running", min(cycles / predicted, 1.0)))
        report("reference", 1.0)
        wanted = reference(graph, values) if check else None
    made = outputs(stream, graph, done.memory)
    if output is not None:
        write_arrays(output, {name: real(graph.tensors[name], value) for name, value in made.items()})
    return _print(plan, graph, done, predicted, differences(made, wanted) if wanted is not None else None)


@app.command
def isa() -> None:
    """Print the accelerator's instruction set: every word, field by field."""
    out.print(document.page(), markup=False, soft_wrap=True)


def _simulated(stream: CommandStream, inputs: dict[str, np.ndarray], dram: Dram, progress: Callable[[int], None]) -> RunResult:
    """Build the model if need be, and run."""
    before = memory(stream, inputs)
    beats = 1 << max(-(-stream.memory_bytes // BEAT_BYTES) - 1, 1 << 20).bit_length()
    try:
        model = build(cache_folder() / "rtl", Parameters(lanes=stream.lanes, buffer_bytes=stream.buffer_bytes, dram_beats=beats))
        region = (stream.maps_address, stream.memory_bytes)
        return simulated(model, stream.program, before, program_address=0, write_region=region, dram=dram, progress=progress)
    except (BuildFailed, SimulationFailed) as error:
        raise CannotSimulate(str(error)) from None


class CannotSimulate(LfoptError):
    """There is no simulation of the accelerator on this machine."""


def _print(plan: Plan, graph: Graph, done: RunResult, predicted: int, wrong: list[str] | None) -> int:
    """What the hardware counted beside what was planned. Returns the exit code."""
    counters, planned = done.counters, total_dram(plan.groups)
    counted = DramBytes(**{name: sum(counters[counter] for counter in pair) for name, pair in COUNTED.items()})
    rows = table("DRAM bytes", "planned", "counted in RTL")
    for name in COUNTED:
        if getattr(planned, name) or getattr(counted, name):
            rows.add_row(name, f"{getattr(planned, name):,}", f"{getattr(counted, name):,}")
    rows.add_row("all", f"{planned.total:,}", f"{counted.total:,}", style="bold")
    rows.add_row("instructions, beside", "", f"{counters[Counter.READ_INSTRUCTION]:,}", style="dim")
    out.print(rows)
    macs = sum(spec(op.kind, op.domain).macs(Call.of(graph, op)) for op in graph.operators)
    cycles = max(counters[Counter.CYCLES], 1)
    lanes = plan.hardware.mac_rows * plan.hardware.mac_columns
    out.print(f"{cycles:,} cycles, {predicted:,} predicted ({predicted / cycles - 1:+.1%}); {macs / cycles / lanes:.1%} of the MAC array's peak")
    shares = {"loads": Counter.LOAD_BUSY, "stores": Counter.STORE_BUSY, "computation": Counter.EXEC_BUSY, "MAC array": Counter.ARRAY_ACTIVE}
    stalls = {"weights": Counter.WEIGHT_STALL, "the buffer": Counter.BUFFER_STALL, "accumulators": Counter.DRAIN_STALL}
    out.print("busy: " + ", ".join(f"{name} {counters[counter] / cycles:.1%}" for name, counter in shares.items()))
    out.print("computation waits for: " + ", ".join(f"{name} {counters[counter] / cycles:.1%}" for name, counter in stalls.items()))
    problems = list(wrong or ())
    if done.failure is not None:
        found = done.failure
        problems.insert(0, f"stopped with error {found.code.name}, found by {found.queue.name} at command {found.index}")
    elif not done.finished:
        problems.insert(0, "it did not finish")
    if counted != planned:
        problems.append(f"planned {planned}, counted {counted}")
    for line in problems[:20]:
        out.print(f"[red]wrong[/] {escape(line)}", soft_wrap=True)
    verdict = "bytes counted in hardware equal bytes planned" + (
        "; every bit of the outputs is right" if wrong is not None else "; outputs not compared"
    )
    out.print(f"[red]{len(problems)} things differ[/]" if problems else f"[green]{verdict}[/]")
    return 1 if problems else 0
