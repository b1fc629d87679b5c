"""lfopt execute: run a plan step by step, and count its bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from threadpoolctl import threadpool_limits

from lfopt.app.agreement import expected, said_of
from lfopt.app.answers.programs import ExecuteAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.arrays import read_inputs, with_values, write_outputs
from lfopt.app.commands.options import generator
from lfopt.app.config import SearchConfig
from lfopt.app.judges import REFERENCE, Judgement, judged
from lfopt.app.options import CompareOption, FillOption, PlanOption, SeedOption
from lfopt.app.random_values import random_inputs
from lfopt.app.screen import err, out, progress_line, shown, table
from lfopt.app.sizes import of_buffer
from lfopt.app.verify import load_planned
from lfopt.ir import NO_L2, DramBytes, Plan, store_ends
from simulator.interpreter.execute import Execution
from simulator.interpreter.execute import execute as run

CLASSES = ("input", "output", "weight", "parameter", "spill")


def execute(
    plan: PlanOption,
    /,
    *,
    inputs: Annotated[Path | None, Parameter(name="--input")] = None,
    output: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    seed: SeedOption = SearchConfig.seed,
    fill: FillOption = False,
    check: CompareOption = True,
    model: str | None = None,
) -> int:
    """Run a plan row by row, count its bytes, and compare the outputs with the reference.

    Example: lfopt execute runs/mobilenet_v2 --seed 1

    On chip is only what the plan says, and every byte that crosses the memory port is counted. Reading a row
    that is not on chip, writing past a ring or past the buffer, or using what nobody stored stops the run.
    Exit code 0: bytes counted equal bytes planned, and the outputs are those of the plain reference; 1:
    something differs, or no group of the plan has steps.

    Parameters
    ----------
    inputs
        .npz with one array per graph input. Without it, inputs are drawn at random. A quantised network takes
        real numbers as well as the integers that stand for them.
    output
        .npz to write the graph outputs to, of types as in the file.
    model
        The ONNX file, or zoo:NAME, that the plan was made for, which ONNX Runtime is given. Without it, that
        is the simplified network beside the plan.
    """
    loaded, graph = load_planned(plan)
    rng = generator(seed)
    drawn = not graph.has_values
    graph = with_values(graph, plan, rng if fill else None)
    if inputs is None:
        err.print("note: no --input: inputs are drawn at random", style="yellow")
    values = random_inputs(graph, rng) if inputs is None else read_inputs(graph, inputs)
    with progress_line() as report, threadpool_limits(1):
        done = run(loaded, graph, values, lambda k, n: report(f"group {k} of {n}", k / n))
        report("reference", 1.0)
        original = (plan if plan.is_dir() else plan.parent) / loaded.model.onnx if model is None else model
        if check:
            judgement = judged(graph, values, done.outputs, expected(graph, values), original, drawn=drawn)
        else:
            judgement = Judgement((), ())
    if output is not None:
        write_outputs(output, graph, done.outputs)
    findings = _compared(loaded, done, judgement)
    _print(findings, loaded, judgement)
    answer(findings)
    if findings.wrong or not findings.steps:
        return 1
    return 0


def _compared(plan: Plan, done: Execution, judgement: Judgement) -> ExecuteAnswer:
    """What was counted beside what was planned."""
    planned = formula = DramBytes()
    level_2 = NO_L2
    wrong: list[str] = []
    for group, counted in zip(plan.groups, done.groups, strict=True):
        if counted.by_formula:
            formula += group.dram
            continue
        planned = planned + group.dram
        level_2 = level_2 + group.l2
        if group.dram != counted.dram:
            wrong.append(f"group {group.id}: planned {group.dram}, counted {counted.dram}")
        if group.l2 != counted.l2:
            wrong.append(f"group {group.id}: planned {group.l2}, counted {counted.l2}")
        if (allocated := group.allocated_bytes(plan.hardware)) != counted.peak_bytes:
            wrong.append(
                f"group {group.id}: planned {allocated:,} B of buffer, found {counted.peak_bytes:,} B"
            )
        weights = store_ends(group.places, plan.hardware).get("weight buffer", 0)
        if weights != counted.weight_peak_bytes:
            wrong.append(
                f"group {group.id}: planned {weights:,} B of weight buffer, found "
                f"{counted.weight_peak_bytes:,} B"
            )
    wrong += [str(one) for one in judgement.agreements if one.wrong]
    peak, weights = (
        max((getattr(group, name) for group in done.groups), default=0)
        for name in ("peak_bytes", "weight_peak_bytes")
    )
    return ExecuteAnswer(
        planned=planned,
        counted=done.dram,
        not_executed=formula,
        groups=len(plan.groups),
        steps=sum(group.steps for group in done.groups),
        peak_bytes=peak,
        weight_peak_bytes=weights,
        compared=bool(judgement.judges),
        wrong=tuple(wrong),
        agreements=judgement.agreements,
        judges=judgement.judges,
        not_judged=judgement.absent,
        l2_planned=level_2,
        l2_counted=done.l2,
    )


def _print(findings: ExecuteAnswer, plan: Plan, judgement: Judgement) -> None:
    rows = table("DRAM bytes", "planned", "counted")
    for name in CLASSES:
        if getattr(findings.planned, name) or getattr(findings.counted, name):
            rows.add_row(name, f"{getattr(findings.planned, name):,}", f"{getattr(findings.counted, name):,}")
    rows.add_row("all", f"{findings.planned.total:,}", f"{findings.counted.total:,}", style="bold")
    if plan.hardware.l2_bytes:
        rows.add_row(
            "second level, beside", f"{findings.l2_planned.total:,}", f"{findings.l2_counted.total:,}"
        )
    if findings.not_executed.total:
        rows.add_row("by formula, not executed", f"{findings.not_executed.total:,}", "", style="yellow")
    out.print(rows)
    peaks = [of_buffer(findings.peak_bytes, plan.hardware.buffer_bytes)]
    if size := plan.hardware.weight_buffer_bytes:
        peaks.append(of_buffer(findings.weight_peak_bytes, size, "weight buffer"))
    out.print(f"{findings.groups} groups, {findings.steps:,} steps; at most {' and '.join(peaks)} in use")
    of_reference = [one for one in findings.agreements if one.judge == REFERENCE]
    for line in (*said_of(of_reference), *judgement.lines()):
        out.print(shown(line), style="dim")
    for line in findings.wrong[:20]:
        out.print(f"[red]wrong[/] {shown(line)}", soft_wrap=True)
    if findings.wrong:
        out.print(f"[red]{len(findings.wrong)} things differ[/]")
    elif not findings.steps:
        out.print("[yellow]no group of the plan has steps: nothing was executed, nothing counted[/]")
    else:
        but = f", but for {findings.not_executed.total:,} B by formula" if findings.not_executed.total else ""
        out.print(
            f"[green]bytes counted equal bytes planned{but}; outputs "
            + (f"equal the {' and '.join(findings.judges)}[/]" if findings.judges else "not compared[/]")
        )
