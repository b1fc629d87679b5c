"""lfopt run: a network on given inputs, compiled.

Raises InvalidConfig for options that are not accepted.
"""

from __future__ import annotations

import time
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from threadpoolctl import threadpool_limits

from codegen.elements import ELEMENT, ElementName
from codegen.runtime import Compiled
from codegen.target import TARGET, THREADS
from lfopt.app.agreement import expected, said_of
from lfopt.app.answers.programs import KernelTime, OutputAnswer, Roofline, RunAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.arrays import given_back, read_arrays, read_inputs, with_values, write_outputs
from lfopt.app.by_shape import completed
from lfopt.app.commands.options import chip, generator
from lfopt.app.compiled import CPU, compile_graph
from lfopt.app.config import SearchConfig
from lfopt.app.judges import REFERENCE, Judgement, judged
from lfopt.app.options import (
    CacheOption,
    CompareOption,
    CpuOption,
    ElementOption,
    FillOption,
    InputShapesOption,
    ModelWithWeightsOption,
    SeedOption,
    TargetOption,
    ThreadsOption,
    TuneOption,
    VerifyOption,
)
from lfopt.app.pipeline import load_network
from lfopt.app.roofline import roofline as measure
from lfopt.app.screen import note, out, progress_line, shown, spread
from lfopt.app.sizes import parse_shapes, size_option
from lfopt.ir import Graph, Hardware, InvalidConfig, OpenShape


def run(
    model: ModelWithWeightsOption,
    /,
    *,
    inputs: Annotated[Path | None, Parameter(name="--input")] = None,
    output: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    target: TargetOption = TARGET,
    threads: ThreadsOption = THREADS,
    hardware: CpuOption | None = None,
    buffer: CacheOption | None = None,
    element: ElementOption = ELEMENT,
    input_shape: InputShapesOption = (),
    fill: FillOption = False,
    seed: SeedOption = SearchConfig.seed,
    check: CompareOption = False,
    tune: TuneOption = False,
    verify: VerifyOption = False,
    roofline: bool = False,
) -> int:
    """Run a network: find its fusion plan, print it as C, compile that, and run it on the inputs.

    Example: lfopt run zoo:mobilenet_v2 --input image.npz --out outputs.npz

    What was compiled is kept in ~/.cache/lfopt (or $XDG_CACHE_HOME/lfopt) by content, so that the next run
    starts at once. Exit code 1: an output is not that of the judges (with --check).

    Parameters
    ----------
    inputs
        .npz with one array per input of the network; .npy if there is one input. Their shapes count where the
        file leaves shapes open. Of types as in the file; a quantised network's may be its integers too.
    output
        .npz to write the outputs to, of types as in the file.
    roofline
        Measure every fusion group: time, operations of its multiply-adds (of bytes, if the network is
        quantised), bytes that the plan moves, and the share of this machine's peak, which a loop of
        multiply-adds says that is compiled for the same target.
    """
    if roofline and element != "float32":
        raise InvalidConfig(f"--roofline: found with --element {element}; accepted: float32")
    chosen = _hardware(hardware, buffer)
    shapes = parse_shapes(input_shape)
    try:
        graph = load_network(model, shapes, "default")
    except OpenShape:
        if inputs is None:
            raise
        graph = load_network(model, completed(model, shapes, read_arrays(inputs)), "default")
    note(graph)
    values = _inputs(graph, inputs)
    drawn = not graph.has_values
    graph = with_values(graph, model, generator(seed) if fill else None)
    start = time.perf_counter()
    with progress_line() as report:
        compiled, was_kept = compile_graph(
            graph,
            threads=threads,
            target=target,
            hardware=chosen,
            element=element,
            label=model,
            report=report,
            tune=tune,
            verify=verify,
        )
    ready = time.perf_counter()
    held = compiled.run_stored({graph.label(name): value for name, value in values.items()})
    outputs = {name: held[graph.label(name)] for name in graph.outputs}
    done = time.perf_counter()
    if output is not None:
        write_outputs(output, graph, outputs)
    given = _outputs(compiled, given_back(graph, outputs))
    _print(given)
    how = "found compiled" if was_kept else f"compiled in {ready - start:.1f} s"
    out.print(
        f"[dim]{how}: {shown(compiled.folder)}; the first run took {1e3 * (done - ready):.3f} ms[/]",
        soft_wrap=True,
    )
    measured = None
    if roofline:
        with progress_line() as report:
            measured = measure(graph, values, hardware=chosen, target=target, threads=threads, report=report)
        _print_roofline(measured)
    judgement = _check(graph, values, outputs, element, model, drawn=drawn) if check else Judgement((), ())
    wrong = tuple(str(one) for one in judgement.agreements if one.wrong)
    answer(
        RunAnswer(
            given,
            was_kept,
            str(compiled.folder),
            ready - start,
            done - ready,
            check,
            wrong,
            judgement.agreements,
            measured,
            judgement.judges,
            judgement.absent,
        )
    )
    if wrong:
        return 1
    return 0


def _hardware(hardware: str | None, buffer: str | None) -> Hardware:
    if hardware is not None:
        return chip(hardware, buffer, None)
    if buffer is None:
        return CPU
    return replace(CPU, buffer_bytes=size_option(buffer, "--buffer"))


def _inputs(graph: Graph, file: Path | None) -> dict[str, np.ndarray]:
    if file is None and graph.inputs:
        wanted = "; ".join(
            f"{name}: {graph.end_type(name)} {list(graph.shape(name))}" for name in graph.inputs
        )
        raise InvalidConfig(f"--input: not given; accepted: .npz with {wanted}")
    if file is None:
        return {}
    return read_inputs(graph, file)


def _outputs(compiled: Compiled, outputs: dict[str, np.ndarray]) -> tuple[OutputAnswer, ...]:
    """What came out."""
    answers: list[OutputAnswer] = []
    for tensor in compiled.outputs:
        value = outputs[tensor.name]
        real = value.size and value.dtype.kind in "fiu"
        if real:
            ends = [float(end) if isfinite(end) else None for end in (value.min(), value.mean(), value.max())]
        else:
            ends = [None, None, None]
        answers.append(OutputAnswer(tensor.name, tensor.dtype, tuple(tensor.shape), *ends))
    return tuple(answers)


def _print(outputs: tuple[OutputAnswer, ...]) -> None:
    rows = [
        [
            one.name,
            one.dtype,
            "x".join(map(str, one.shape)) or "scalar",
            *("" if x is None else f"{x:.4g}" for x in (one.least, one.mean, one.largest)),
        ]
        for one in outputs
    ]
    out.print(spread(["output", "type", "shape", "least", "mean", "largest"], rows))


def _print_roofline(roofline: Roofline) -> None:
    """A row for each group, and one for all."""

    def row(label: str, seconds: float, flops: int, moved: int) -> list[str]:
        speed = flops / max(seconds, 1e-9)
        figures = (1e6 * seconds, flops / 1e6, moved / 1024, flops / max(moved, 1), speed / 1e9)
        return [
            label,
            *(f"{figure:,.1f}" for figure in figures),
            f"{100 * speed / roofline.peak_flops:.1f} %",
        ]

    rows = [row(_label(one), one.seconds, one.flops, one.dram_bytes) for one in roofline.kernels]
    every = roofline.kernels
    rows.append(
        row(
            "all",
            sum(one.seconds for one in every),
            sum(one.flops for one in every),
            sum(one.dram_bytes for one in every),
        )
    )
    unit = "OP" if roofline.integers else "FLOP"
    out.print(
        spread(
            ["group", "us", f"M{unit}", "KiB", f"{unit}/B", f"G{unit}/s", "of peak"], rows, bold=[len(every)]
        )
    )
    if roofline.images > 1:
        out.print(f"[dim]figures are of one image of {roofline.images}[/]")
    out.print(
        f"[dim]peak {roofline.peak_flops / 1e9:.1f} G{unit}/s, measured; {unit}: of multiply-adds; KiB: what "
        "the plan moves[/]"
    )


def _label(kernel: KernelTime) -> str:
    first = kernel.operators[0]
    last = kernel.operators[-1]
    return f"{kernel.group} {first}" + (f" .. {last}" if last != first else "")


def _check(
    graph: Graph,
    values: dict[str, np.ndarray],
    outputs: dict[str, np.ndarray],
    element: ElementName,
    model: str,
    *,
    drawn: bool,
) -> Judgement:
    stored = "bfloat16" if element == "bf16" else ""
    with threadpool_limits(1):
        judgement = judged(graph, values, outputs, expected(graph, values, stored), model, drawn=drawn)
    of_reference = [one for one in judgement.agreements if one.judge == REFERENCE]
    for line in (*said_of(of_reference), *judgement.lines()):
        out.print(shown(line), style="dim")
    wrong = [one for one in judgement.agreements if one.wrong]
    for one in wrong:
        out.print(f"[red]wrong[/] {shown(one)}", soft_wrap=True)
    if not wrong:
        out.print(f"[green]outputs equal the {shown(' and '.join(judgement.judges))}[/]")
    return judgement
