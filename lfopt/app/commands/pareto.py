"""lfopt pareto: the front of plans over buffers and MAC arrays, and which of them to buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape

from lfopt.app.answers.writing import answer
from lfopt.app.commands.options import INTERRUPTED, WITHOUT_STEPS, check_top, chip
from lfopt.app.config import Config, validate
from lfopt.app.front import Front, FrontQuery, front_of
from lfopt.app.front_data import Point
from lfopt.app.front_files import as_data, knees_at, listed, write_front
from lfopt.app.front_question import question
from lfopt.app.options import (
    ANY_MODE,
    BUFFERS,
    JOINING,
    JOINING_SWITCH,
    MAC_ARRAYS,
    MINIMISE,
    OBJECTIVES,
    OVER,
    ChipBudgetOption,
    CornersOption,
    ElementBytesOption,
    FrontSecondsOption,
    HardwareOption,
    InputShapesOption,
    ModelOption,
    RulesOption,
    SchemeOption,
    SeedOption,
    Switch,
)
from lfopt.app.pipeline import load_network
from lfopt.app.report.front import KNEE, notes
from lfopt.app.screen import err, note, out, progress_line, shown, table
from lfopt.app.sizes import format_size, parse_shapes
from lfopt.ir import InvalidConfig
from lfopt.ir.names import file_name, plural


def pareto(
    model: ModelOption,
    /,
    *,
    over: Annotated[str | None, OVER] = None,
    buffers: Annotated[str | None, BUFFERS] = None,
    mac_arrays: Annotated[str | None, MAC_ARRAYS] = None,
    objectives: Annotated[str | None, OBJECTIVES] = None,
    minimise: Annotated[str | None, MINIMISE] = None,
    hardware: HardwareOption | None = None,
    element_bytes: ElementBytesOption | None = None,
    scheme: SchemeOption = ANY_MODE,
    epilogue: Annotated[Switch, JOINING] = JOINING_SWITCH,
    rules: RulesOption = Config.rules,
    input_shape: InputShapesOption = (),
    corners: CornersOption = FrontQuery.corners,
    budget: ChipBudgetOption = FrontQuery.budget,
    seed: SeedOption = FrontQuery.seed,
    time_limit: FrontSecondsOption | None = None,
    every: Annotated[bool, Parameter(name="--all", negative="")] = False,
    top: int = 40,
    out_dir: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Find which plans, on which buffers and MAC arrays, no other beats, and name the knees.

    Plans are compared in bytes, cycles, energy, buffer and area. On every chip an exact search finds the best
    plan of each objective and the corners between them; NSGA-II looks inside their convex hull, and never
    loses one of them. Written are front.csv, front.json, front.svg and front.html. Ctrl-C writes what there
    is until then.

    Example: lfopt pareto zoo:mobilenet_v2 --hardware accelerator_256k.yaml --over buffer,mac_array,objective
    --buffers 64KiB:1MiB

    Exit code 0: done, or as far as the time limit let it; 2: wrong input; 130: Ctrl-C.

    Parameters
    ----------
    every
        Show and write dominated plans too, marked.
    top
        Plans printed at most; all are in front.csv.
    out_dir
        Folder of the results; runs/NETWORK-pareto if not given.
    """
    check_top(top)
    folder = _folder(out_dir)
    job = validate(
        Config,
        {"model": "model", "hardware": {"buffer_bytes": 1}, "scheme": scheme, "epilogue": epilogue == "on"},
        "command line",
    )
    query = question(
        replace(job, hardware=chip(hardware, None, element_bytes)),
        over=over,
        buffers=buffers,
        mac_arrays=mac_arrays,
        objectives=objectives,
        minimise=minimise,
        corners=corners,
        budget=budget,
        seed=seed,
        time_limit=time_limit,
        option=lambda name: f"--{name.replace('_', '-')}",
    )
    graph = load_network(model, parse_shapes(input_shape), rules, weights=False)
    note(graph)
    with progress_line() as report:
        front = front_of(graph, query, report)
    folder = folder or Path("runs") / file_name(f"{graph.name}-pareto")
    written = write_front(front, folder, every=every)
    _print(front, listed(front, every=every), top)
    out.print(f"[dim]wrote[/] {shown(folder)}/{', '.join(written)}", soft_wrap=True)
    answer(as_data(front, every=every))
    if query.config.hardware.l2_bytes:
        err.print(
            "note: a front judges plans without the second level, in which nothing is computed again; lfopt "
            "search moves less",
            style="yellow",
            soft_wrap=True,
        )
    if front.interrupted:
        err.print(
            "note: interrupted: these are the plans that were found until then",
            style="yellow",
            soft_wrap=True,
        )
    if front.interrupted:
        return INTERRUPTED
    if any(point.without_steps for point in front.points):
        return WITHOUT_STEPS
    return 0


def _print(front: Front, points: Sequence[Point], top: int) -> None:
    out.print(
        f"[bold]{escape(front.network)}[/]: {plural(len(front.efficient), 'plan')} that no other beats in "
        f"{', '.join(front.minimise)}",
        soft_wrap=False,
    )
    out.print(
        f"[dim]{len(front.points):,} found on {plural(front.chips, 'chip')} in {front.seconds:,.1f} s, "
        f"scheme {front.scheme}[/]\n"
    )
    arrays = len({(p.mac_rows, p.mac_columns) for p in front.points}) > 1
    rows = table(
        "buffer",
        *(["MACs"] if arrays else []),
        "DRAM bytes",
        "cycles",
        "uJ",
        "kLUT eq",
        "least, or how found",
    )
    rows.columns[0].justify = "right"
    rows.columns[-1].justify = "left"
    for point in _chosen(front, points, top):
        size = [
            format_size(point.buffer_bytes),
            *([f"{point.mac_rows} x {point.mac_columns}"] if arrays else []),
        ]
        figures = (
            f"{point.dram_bytes:,}",
            f"{point.cycles:,}",
            f"{point.energy_pj / 1e6:,.1f}",
            f"{point.area.lut_equivalents / 1000:,.0f}",
        )
        rows.add_row(*size, *figures, _how(front, point), style="dim" if point.dominated else None)
    out.print(rows)
    if len(points) > top:
        out.print(
            f"[dim]{top} of {len(points):,} plans: the best of each objective on each chip first; all are in "
            "front.csv[/]",
            soft_wrap=True,
        )
    if front.advice:
        out.print("\n[bold]which to buy[/]")
    for advice in front.advice:
        buffer = format_size(advice.buffer_bytes)
        array = f"{advice.mac_rows} x {advice.mac_columns}"
        what, beside = (buffer, f"{array} MACs") if advice.of == "buffer" else (f"{array} MACs", buffer)
        out.print(
            f"{advice.figure}, {beside}: [bold]{what}[/]{' is the knee' if advice.knee else ''}: "
            f"{advice.reason}"
        )
    out.print(f"\n[dim]{KNEE}[/]")
    for line in notes(front):
        out.print(f"[dim]{line}[/]")


def _chosen(front: Front, points: Sequence[Point], top: int) -> list[Point]:
    """The `top` points to print, in order: those best in an objective first, then exact before sampled."""
    ranked = sorted(
        range(len(points)),
        key=lambda k: (not points[k].best, points[k].found == "sampled", points[k].dominated, k),
    )
    return [points[k] for k in sorted(ranked[:top])]


def _how(front: Front, point: Point) -> str:
    """What a plan is best in, how far it may be from the least, and which knee it is."""
    named = [f"{name}{_gap(gap)}" for name, gap in zip(point.best, point.gaps, strict=True)]
    how = ", ".join(named) or (f"corner{_gap(point.gap)}" if point.found == "exact" else point.found)
    knees = ", ".join(advice.figure for advice in knees_at(front, point))
    notes = [f"knee: {knees}"] if knees else []
    if point.without_steps:
        notes.append(f"cannot run: {point.without_steps} without steps")
    if point.dominated:
        notes.append("dominated")
    return "; ".join([how, *notes])


def _gap(gap: float | None) -> str:
    if gap == 0:
        return ""
    if gap is None:
        return " (?)"
    percent = 100 * gap
    return f" (<{percent:.2g} %)" if percent < 10 else f" (<{percent:,.0f} %)"


def _folder(given: Path | None) -> Path | None:
    """The folder that is given. Raises InvalidConfig where it is a file."""
    if given is not None and given.exists() and not given.is_dir():
        raise InvalidConfig(f"--out {given}: found a file; accepted: a folder")
    return given
