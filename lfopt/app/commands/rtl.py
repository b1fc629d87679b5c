"""lfopt rtl: command streams on the simulated accelerator.

Raises InvalidConfig for options that are not accepted, CannotSimulate where there is no simulation.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from threadpoolctl import threadpool_limits

from hw_rtl.build import BuildFailed
from hw_rtl.run import WATCHDOG_CYCLES, Dram, RunResult, SimulationFailed
from lfopt.app.agreement import expected
from lfopt.app.answers.programs import RtlAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.arrays import read_inputs, write_outputs
from lfopt.app.commands.options import generator
from lfopt.app.config import SearchConfig
from lfopt.app.deadline import ReportProgress
from lfopt.app.options import SeedOption, TraceEventsOption, TraceOption
from lfopt.app.random_values import random_inputs
from lfopt.app.screen import err, out, progress_line, shown, table
from lfopt.app.streams import accelerator, counted, outputs, read_stream
from lfopt.app.streams import run as run_stream
from lfopt.app.trace import MOST_EVENTS, rtl_trace, write_trace
from lfopt.ir import InvalidConfig, LfoptError, Plan, Report
from lfopt.isa import document
from lfopt.isa.tables import Counter
from lfopt.planning import dram_at_port
from simulator.model.simulate import simulate

CYCLES = 256  # of which --stall says some
app = App(name="rtl", help="Run command streams on the accelerator in RTL, and describe its instructions.")


@app.command
def run(
    folder: Path,
    /,
    *,
    inputs: Annotated[Path | None, Parameter(name="--input")] = None,
    output: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    seed: SeedOption = SearchConfig.seed,
    check: bool = True,
    latency: int = 40,
    stall: int = 0,
    trace: TraceOption = None,
    trace_events: TraceEventsOption = MOST_EVENTS,
) -> int:
    """Run a command stream on the Verilated accelerator, and compare the bytes that it counts with the plan.

    Example: lfopt rtl run build/accelerator --trace trace.json

    Bytes are counted at the memory port. A trace has each command as it ran, and as the cycle model has it.
    The model is built once and kept (about a minute). Exit code 0: bytes counted equal bytes planned, and
    every bit of the outputs is that of the reference; 1: something differs, or the accelerator stopped with
    an error.

    Parameters
    ----------
    folder
        Folder that `lfopt codegen --target accel` has written.
    inputs
        .npz with one array per graph input. Without it, inputs are drawn at random. Float arrays are
        quantised where the model takes integers.
    output
        .npz to write the graph outputs to, as real numbers.
    check
        Compare the outputs with the plain reference of the whole network.
    latency
        Cycles from each request to the memory until its first byte.
    stall
        How often the memory holds back, in cycles of 256.
    """
    if trace_events < 1:
        raise InvalidConfig(f"--trace-events: found {trace_events}; accepted: a whole number of at least 1")
    if not 0 <= latency < WATCHDOG_CYCLES or not 0 <= stall < CYCLES:
        raise InvalidConfig(
            f"--latency {latency}, --stall {stall}: accepted: 0 to {WATCHDOG_CYCLES - 1} cycles, 0 to "
            f"{CYCLES - 1} of {CYCLES}"
        )
    stream, plan, graph = read_stream(folder)
    if inputs is None:
        err.print("note: no --input: inputs are drawn at random", style="yellow")
    values = random_inputs(graph, generator(seed)) if inputs is None else read_inputs(graph, inputs)
    predicted = simulate(plan, graph)
    dram = Dram(latency_cycles=latency, stall=stall)
    cycles = predicted.cycles.total
    with progress_line() as progress, threadpool_limits(1):
        progress("building the model", 0.0)
        try:
            passed = partial(_passed, progress, cycles)
            done = run_stream(
                accelerator(stream), stream, values, dram=dram, timed=trace is not None, progress=passed
            )
        except (BuildFailed, SimulationFailed) as error:
            raise CannotSimulate(str(error)) from None
        progress("reference", 1.0)
        wanted = expected(graph, values) if check else None
    if trace is not None:
        write_trace(trace, *rtl_trace(plan, graph, predicted, done, most=trace_events))
    arrays = outputs(stream, graph, done.memory)
    if output is not None:
        write_outputs(output, graph, arrays)
    findings = _compared(
        plan, done, predicted, [str(one) for one in wanted.compared(arrays) if one.wrong] if wanted else None
    )
    _print(findings, predicted)
    answer(findings)
    if findings.wrong:
        return 1
    return 0


@app.command
def isa() -> None:
    """Print the accelerator's instruction set: every word, field by field.

    Example: lfopt rtl isa
    """
    out.print(document.page(), markup=False, soft_wrap=True)


def _passed(progress: ReportProgress, cycles: int, passed: int) -> None:
    progress("running", min(passed / cycles, 1.0))


class CannotSimulate(LfoptError):
    """There is no simulation of the accelerator on this machine."""


def _compared(plan: Plan, done: RunResult, predicted: Report, wrong: list[str] | None) -> RtlAnswer:
    """What the hardware counted beside what was planned."""
    planned = dram_at_port(plan.groups)
    moved = counted(done.counters)
    problems = list(wrong or ())
    if done.failure is not None:
        failure = done.failure
        problems.insert(
            0,
            f"stopped with error {failure.code.name}, found by {failure.queue.name} at command "
            f"{failure.index}",
        )
    elif not done.finished:
        problems.insert(0, "it did not finish")
    if moved != planned:
        problems.append(f"planned {planned}, counted {moved}")
    counters = {counter.name.lower(): done.counters[counter] for counter in Counter}
    energy = predicted.energy
    cycles = done.counters[Counter.CYCLES]
    return RtlAnswer(
        planned, moved, cycles, predicted.cycles.total, energy, counters, wrong is not None, tuple(problems)
    )


def _print(findings: RtlAnswer, predicted: Report) -> None:
    rows = table("DRAM bytes", "planned", "counted in RTL")
    hardware = predicted.hardware
    for name, count in asdict(findings.counted).items():
        if count or getattr(findings.planned, name):
            rows.add_row(name, f"{getattr(findings.planned, name):,}", f"{count:,}")
    rows.add_row("all", f"{findings.planned.total:,}", f"{findings.counted.total:,}", style="bold")
    rows.add_row("instructions, beside", "", f"{findings.counters['read_instruction']:,}", style="dim")
    out.print(rows)
    cycles = max(findings.cycles, 1)
    peak = (predicted.macs - predicted.recomputed_macs) / cycles / hardware.mac_rows / hardware.mac_columns
    error = findings.predicted_cycles / cycles - 1
    out.print(
        f"{cycles:,} cycles, {findings.predicted_cycles:,} predicted ({error:+.1%}); {peak:.1%} of the MAC "
        "array's peak"
    )
    shares = {
        "loads": Counter.LOAD_BUSY,
        "stores": Counter.STORE_BUSY,
        "computation": Counter.EXEC_BUSY,
        "MAC array": Counter.ARRAY_ACTIVE,
    }
    stalls = {
        "weights": Counter.WEIGHT_STALL,
        "the buffer": Counter.BUFFER_STALL,
        "accumulators": Counter.DRAIN_STALL,
    }
    out.print(
        "busy: "
        + ", ".join(
            f"{name} {findings.counters[counter.name.lower()] / cycles:.1%}"
            for name, counter in shares.items()
        )
    )
    waits = (
        f"{name} {findings.counters[counter.name.lower()] / cycles:.1%}" for name, counter in stalls.items()
    )
    out.print("computation waits for: " + ", ".join(waits))
    for line in findings.wrong[:20]:
        out.print(f"[red]wrong[/] {shown(line)}", soft_wrap=True)
    verdict = "bytes counted in hardware equal bytes planned" + (
        "; every bit of the outputs is right" if findings.compared else "; outputs not compared"
    )
    out.print(f"[red]{len(findings.wrong)} things differ[/]" if findings.wrong else f"[green]{verdict}[/]")
