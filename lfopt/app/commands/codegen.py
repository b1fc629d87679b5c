"""lfopt codegen: a plan as C and as binaries, or as a command stream of the accelerator.

Raises InvalidConfig for options that are not accepted.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.markup import escape

from codegen.accel import encode
from codegen.build import build as compile_c
from codegen.build import code_bytes, find_compiler, write_source
from codegen.elements import ELEMENT
from codegen.emit import emit_c
from codegen.source import CSource
from codegen.target import TARGET, THREADS, WINOGRAD, TargetName
from lfopt.app.answers.files import FileAnswer
from lfopt.app.answers.programs import CodegenAnswer, KernelAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.arrays import with_values
from lfopt.app.commands.options import generator
from lfopt.app.compiled import check_options
from lfopt.app.config import SearchConfig
from lfopt.app.files import write_bytes
from lfopt.app.options import (
    CountOption,
    ElementOption,
    EmbedOption,
    FillOption,
    PlanOption,
    PrefixOption,
    SeedOption,
    ThreadsOption,
    WinogradOption,
)
from lfopt.app.screen import note, out, progress_line, shown, table
from lfopt.app.sizes import of_buffer
from lfopt.app.streams import write_stream
from lfopt.app.verify import load_planned
from lfopt.ir import Graph, InvalidConfig, Plan
from lfopt.ir.cpu_listing import cpu_listing
from lfopt.ir.names import plural
from lfopt.isa.tables import WORD_BYTES
from lfopt.planning import total_dram
from simulator.recount.threads import recount_threads


def codegen(
    plan: PlanOption,
    /,
    *,
    out_dir: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    target: TargetName | Literal["accel"] = TARGET,
    threads: ThreadsOption = THREADS,
    embed: EmbedOption = False,
    count: CountOption = False,
    winograd: WinogradOption = WINOGRAD,
    element: ElementOption = ELEMENT,
    prefix: PrefixOption | None = None,
    build: bool = False,
    list_schedule: Annotated[bool, Parameter(name="--list")] = False,
    why: bool = False,
    fill: FillOption = False,
    seed: SeedOption = SearchConfig.seed,
) -> None:
    """Write a plan as C with a program around it, and compile it; or write it as a command stream.

    Example: lfopt codegen runs/mobilenet_v2 --out build/mobilenet_v2 --build

    Written are model.c and model.h, weights, a program around them, a Makefile, and a README of the C API. As
    C, the plan must be for elements of 4 bytes, 2 with --element bf16, or 1 where the network is quantised.
    With --target accel, it must be for the accelerator (see configs/hardware/accelerator_256k.yaml); `lfopt
    rtl run` then runs the folder. What cannot be written is refused by name before any file is made.

    Parameters
    ----------
    out_dir
        Folder of the C files; needed but with --list or --why.
    target
        Instructions that the code may use; native: those of this machine; accel: a program of the
        accelerator, instead of C.
    build
        Compile too, with cc or the compiler that $CC names: a shared library and a stand-alone program.
    list_schedule
        Say what every thread runs, line by line, after it has been followed independently: functions, rows,
        barriers, where maps lie. Of C alone.
    why
        Say which kernel makes every operator, and why those that were asked before it did not take it. Of C
        alone.
    """
    if out_dir is None and (build or not (list_schedule or why)):
        raise InvalidConfig(
            f"--out: found none; accepted: a folder{'' if build else ', or --list, or --why'}"
        )
    if (list_schedule or why) and count:
        option = "--list" if list_schedule else "--why"
        raise InvalidConfig(
            f"{option}: found with --count, whose C follows the steps of the plan; accepted: without (`lfopt "
            "simulate --group` lists those)"
        )
    if target == "accel":
        if (
            threads != THREADS
            or embed
            or count
            or build
            or winograd != WINOGRAD
            or element != ELEMENT
            or prefix
            or list_schedule
            or why
            or out_dir is None
        ):
            raise InvalidConfig("--target accel: found an option for C; accepted: --fill and --seed")
    else:
        check_options(target, threads, element)
    if out_dir and out_dir.exists() and not out_dir.is_dir():
        raise InvalidConfig(f"--out {out_dir}: found a file; accepted: a folder")
    loaded, graph = load_planned(plan)
    note(graph)
    graph = with_values(graph, plan, generator(seed) if fill else None)
    if target == "accel" and out_dir:
        _stream(loaded, plan / "plan.json" if plan.is_dir() else plan, graph, out_dir)
        return
    compiler = find_compiler(os.environ.get("CC")) if build else ()
    code = None
    with progress_line() as report:
        report("printing C", 0.0)
        source = emit_c(
            loaded,
            graph,
            target,
            threads=threads,
            embed=embed,
            count=count,
            winograd=winograd,
            element=element,
            prefix=prefix,
        )
        if list_schedule:
            report("following its threads", 0.3)
            wrong = recount_threads(source.schedule, loaded, graph)
            assert not wrong, wrong
        files = write_source(source, out_dir, write_bytes) if out_dir else ()
        if build and out_dir:
            report("compiling", 0.5)
            code = code_bytes(compile_c(source, out_dir, compiler, os.cpu_count() or 1).library)
    lines = tuple(cpu_listing(source.schedule)) if list_schedule else None
    if out_dir:
        _print_files(files)
    for line in lines or ():
        out.print(line, markup=False, soft_wrap=True)
    kernels = _kernels(source) if why else None
    if kernels:
        _print_kernels(kernels)
    _print(loaded, graph, source, code)
    listed = tuple(map(FileAnswer.of, files))
    loops = dict(source.loops)
    answer(
        CodegenAnswer(
            source.name,
            source.target,
            len(loaded.groups),
            listed,
            source.arena_bytes,
            source.context_bytes,
            loops,
            schedule=lines,
            weights_bytes=source.weights_bytes,
            code_bytes=code,
            kernels=kernels,
        )
    )
    if out_dir:
        out.print(f"[dim]wrote[/] {shown(out_dir)}", soft_wrap=True)
        if not build:
            out.print("[dim]`make` in it, or --build, compiles it[/]")


def _stream(plan: Plan, path: Path, graph: Graph, out_dir: Path) -> None:
    """Write the command stream, and say how large it is."""
    stream = encode(plan, graph)
    files = write_stream(stream, plan, path, out_dir)
    _print_files(files)
    listed = tuple(map(FileAnswer.of, files))
    size = len(stream.program)
    answer(
        CodegenAnswer(
            stream.name, "accel", len(plan.groups), listed, commands=stream.commands, instruction_bytes=size
        )
    )
    words = len(stream.program) // WORD_BYTES
    out.print(
        f"[bold]{escape(stream.name)}[/]: {len(plan.groups)} groups, {stream.commands:,} commands in "
        f"{words:,} words",
        soft_wrap=True,
    )
    share = len(stream.program) / max(total_dram(plan.groups).total, 1)
    out.print(
        f"instructions {len(stream.program):,} B, {share:.1%} of what the plan moves; memory "
        f"{stream.memory_bytes:,} B"
    )
    out.print(f"[dim]wrote[/] {shown(out_dir)}", soft_wrap=True)
    out.print(f"[dim]lfopt rtl run {shown(out_dir)} runs it[/]", soft_wrap=True)


def _kernels(source: CSource) -> tuple[KernelAnswer, ...]:
    """The kernels of a source, group by group; aliased operators, which need none, come last in theirs."""
    decisions = {one.function.name: one for one in source.decisions}
    answers = list[KernelAnswer]()
    for group in source.schedule.groups:
        for one in (decisions[function.name] for function in group.functions):
            answers.append(
                KernelAnswer(
                    group.id,
                    one.function.operators,
                    one.kernel,
                    {refusal.kernel: _why(refusal.reason) for refusal in one.refused},
                )
            )
        answers += [KernelAnswer(group.id, (name,), "none: aliased", {}) for name in group.idle]
    return tuple(answers)


def _why(reason: str) -> str:
    """A reason without the operator that it is about."""
    return re.sub(r"^node '[^']*' \(\w+\): ", "", reason).replace("generated C accepts ", "accepted: ")


def _print_kernels(kernels: tuple[KernelAnswer, ...]) -> None:
    """The kernel of every operator, and what others said, by numbers: most say the same of many."""
    rows = table("group", "operators", "kernel", "refused")
    reasons = table("refused", "", "")
    numbers = dict[tuple[str, str], int]()
    for column in (*rows.columns[1:], *reasons.columns[1:]):
        column.justify = "left"
    for one in kernels:
        refused = [str(numbers.setdefault(refusal, len(numbers) + 1)) for refusal in one.refused.items()]
        rows.add_row(str(one.group), escape(", ".join(one.operators)), one.kernel, " ".join(refused))
    for (kernel, reason), number in numbers.items():
        reasons.add_row(str(number), kernel, escape(reason))
    out.print(rows)
    if numbers:
        out.print(reasons)


def _print_files(files: tuple[Path, ...]) -> None:
    rows = table("file", "bytes")
    for path in files:
        rows.add_row(escape(path.name), f"{path.stat().st_size:,}")
    out.print(rows)


def _print(plan: Plan, graph: Graph, source: CSource, code: int | None) -> None:
    """Operators and memory."""
    out.print(
        f"[bold]{escape(source.name)}[/]: {len(plan.groups)} groups for {source.target}", soft_wrap=True
    )
    if source.loops:
        out.print(f"{plural(len(source.loops), 'operator')} as plain loops, which are slow:")
        kinds = {operator.name: operator.kind for operator in graph.operators}
        why = {name: re.sub(r"node '[^']*' ", "", reason) for name, reason in source.loops.items()}
        for reason in dict.fromkeys(why.values()):
            out.print(
                f"  {escape(reason)}: "
                f"{escape(', '.join(f'{name} ({kinds[name]})' for name in why if why[name] == reason))}"
            )
    if source.together:
        out.print(
            f"{plural(len(source.together), 'group')} in which threads share every row: "
            f"{escape(', '.join(dict.fromkeys(source.together.values())))}"
        )
    if not_followed := source.not_followed:
        reasons = ", ".join(f"{why} ({count})" for why, count in Counter(not_followed.values()).most_common())
        out.print(
            f"steps of the plan not followed in {plural(len(not_followed), 'group')}: {escape(reasons)}"
        )
    arena = of_buffer(source.arena_bytes // source.arenas, plan.hardware.buffer_bytes)
    many = f", {source.arenas} of them" if source.arenas > 1 else ""
    out.print(f"arena {arena}{many}; memory of one caller {source.context_bytes:,} B", soft_wrap=True)
    out.print(
        f"weights {source.weights_bytes:,} B" + (f"; machine code {code:,} B" if code is not None else ""),
        soft_wrap=True,
    )
