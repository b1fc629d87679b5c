"""lfopt execute: run a plan step by step, and count its bytes."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from rich.markup import escape
from threadpoolctl import threadpool_limits

from lfopt.app.files import load_planned, write_with
from lfopt.app.screen import err, out, progress_line, table
from lfopt.ir import DramBytes, Graph, InvalidConfig, MissingValues, Plan, Tensor
from lfopt.ops.fixed_point import dequantized, quantized
from lfopt.ops.reference import reference
from simulator.execute import Execution
from simulator.execute import execute as run

CLASSES = ("input", "output", "weight", "parameter", "spill")


def execute(
    plan: Path,
    *,
    inputs: Annotated[Path | None, Parameter(name="--input")] = None,
    output: Annotated[Path | None, Parameter(name="--output")] = None,
    seed: int = 0,
    fill: bool = False,
    check: bool = True,
) -> int:
    """Run a plan row by row, holding on chip only what it says, and count every byte that crosses the memory port.

    Reading a row that is not on chip, writing past a ring or past the buffer, or using what nobody stored stops the run. Exit code 0: bytes counted
    equal bytes planned, and the outputs are those of the plain reference; 1: something differs.

    Parameters
    ----------
    plan
        plan.json, or the folder it is in.
    inputs
        .npz with one array per graph input. Without it, inputs are drawn at random. Float arrays are quantised where the model takes integers.
    output
        .npz to write the graph outputs to, as real numbers.
    seed
        Seed of random inputs (and of weights, with --fill).
    fill
        Draw weights at random where the model has only their shapes.
    check
        Compare the outputs with the plain reference of the whole network.
    """
    found, graph = load_planned(plan)
    rng = np.random.default_rng(seed)
    if not graph.has_values:
        if not fill:
            absent = next(name for name, value in graph.constants.items() if value is None)
            raise MissingValues(f"{plan}: constant {absent!r} has no values; give a model with weights, or --fill to draw them at random")
        graph = _filled(graph, rng)
        err.print("note: weights were drawn at random where the model has none", style="yellow")
    values = _inputs(graph, inputs, rng)
    with progress_line() as report, threadpool_limits(1):
        done = run(found, graph, values, lambda k, n: report(f"group {k} of {n}", k / n))
        report("reference", 1.0)
        wanted = reference(graph, values) if check else None
    if output is not None:
        write_with(
            output,
            lambda file: np.savez(file, allow_pickle=False, **{name: _real(graph.tensors[name], value) for name, value in done.outputs.items()}),
        )
    return _print(found, graph, done, wanted)


def _inputs(graph: Graph, file: Path | None, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Graph inputs in the types of the graph."""
    if file is None:
        err.print("note: no --input: inputs are drawn at random", style="yellow")
        return {name: _random(graph, name, rng) for name in graph.inputs}
    try:
        with np.load(file, allow_pickle=False) as data:
            given = {name: data[name] for name in data.files} if isinstance(data, np.lib.npyio.NpzFile) else {graph.inputs[0]: data}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InvalidConfig(f"--input {file}: {error}") from None
    found: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        accepted = f"accepted: {tensor.dtype} {list(tensor.shape)}" + (", or real numbers to be quantised" if tensor.quantization else "")
        if name not in given:
            raise InvalidConfig(f"--input {file}: input {name!r} is absent; found {', '.join(given) or 'nothing'}; {accepted}")
        value = given[name]
        if tensor.quantization and value.dtype.kind == "f" and value.shape == tensor.shape:
            value = quantized(value, tensor.quantization, tensor.dtype)
        if value.shape != tensor.shape or value.dtype.name != tensor.dtype:
            raise InvalidConfig(f"--input {file}: input {name!r}: found {value.dtype.name} {list(value.shape)}; {accepted}")
        found[name] = value
    return found


def _real(tensor: Tensor, value: np.ndarray) -> np.ndarray:
    return dequantized(value, tensor.quantization) if tensor.quantization else value


def _random(graph: Graph, name: str, rng: np.random.Generator) -> np.ndarray:
    tensor = graph.tensors[name]
    if tensor.quantization:
        return quantized(rng.standard_normal(tensor.shape), tensor.quantization, tensor.dtype)
    if tensor.dtype.startswith("float"):
        return rng.standard_normal(tensor.shape).astype(tensor.dtype)
    return rng.integers(0, 2, tensor.shape).astype(tensor.dtype)


def _filled(graph: Graph, rng: np.random.Generator) -> Graph:
    """The graph with random values where it has none; small enough for deep networks to stay finite."""
    constants = dict(graph.constants)
    for name, value in constants.items():
        if value is None:
            tensor = graph.tensors[name]
            fan_in = max(tensor.elements // max(tensor.shape[0], 1), 1) if len(tensor.shape) > 1 else 100
            constants[name] = (rng.standard_normal(tensor.shape) * (2 / fan_in) ** 0.5).astype(tensor.dtype)
    return replace(graph, constants=constants)


def _print(plan: Plan, graph: Graph, done: Execution, wanted: dict[str, np.ndarray] | None) -> int:
    """What was counted beside what was planned. Returns the exit code."""
    planned = formula = DramBytes()
    wrong: list[str] = []
    for group, counted in zip(plan.groups, done.groups, strict=True):
        if counted.by_formula:
            formula += group.dram
            continue
        planned += group.dram
        if group.dram != counted.dram:
            wrong.append(f"group {group.id}: planned {group.dram}, counted {counted.dram}")
        if group.buffer_bytes != counted.peak_bytes:
            wrong.append(f"group {group.id}: planned {group.buffer_bytes:,} B of buffer, found {counted.peak_bytes:,} B")
    rows = table("DRAM bytes", "planned", "counted")
    for name in CLASSES:
        if getattr(planned, name) or getattr(done.dram, name):
            rows.add_row(name, f"{getattr(planned, name):,}", f"{getattr(done.dram, name):,}")
    rows.add_row("all", f"{planned.total:,}", f"{done.dram.total:,}", style="bold")
    if formula.total:
        rows.add_row("by formula, not executed", f"{formula.total:,}", "", style="yellow")
    out.print(rows)
    steps, peak = sum(group.steps for group in done.groups), max((group.peak_bytes for group in done.groups), default=0)
    out.print(f"{len(plan.groups)} groups, {steps:,} steps; at most {peak:,} of {plan.hardware.buffer_bytes:,} B of buffer in use")
    wrong += _differences(graph, done, wanted) if wanted is not None else []
    for line in wrong[:20]:
        out.print(f"[red]wrong[/] {escape(line)}", soft_wrap=True)
    verdict = "bytes counted equal bytes planned" + ("; outputs equal the reference" if wanted is not None else "; outputs not compared")
    out.print(f"[red]{len(wrong)} things differ[/]" if wrong else f"[green]{verdict}[/]")
    return 1 if wrong else 0


def _differences(graph: Graph, done: Execution, wanted: dict[str, np.ndarray]) -> list[str]:
    """Outputs that are not those of the reference: integers exactly, floats within 1e-4 of the largest value."""
    found: list[str] = []
    for name, value in wanted.items():
        got = done.outputs[name]
        if value.dtype.kind != "f":
            if not np.array_equal(got, value):
                found.append(f"output {name!r}: {int((got != value).sum()):,} of {value.size:,} elements differ")
            continue
        scale = float(np.abs(value[np.isfinite(value)]).max(initial=0.0))
        if not np.allclose(got, value, rtol=1e-4, atol=1e-4 * scale, equal_nan=True):
            found.append(f"output {name!r}: differs by up to {float(np.nanmax(np.abs(got - value))):.3g}, the largest value is {scale:.3g}")
    return found
