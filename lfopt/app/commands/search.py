"""lfopt search: from a configuration to a certified plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from lfopt.app.answers.plans import FiguresAnswer, GroupAnswer, MethodAnswer, SearchAnswer, TradeAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.commands.options import INTERRUPTED, WITHOUT_STEPS, chip
from lfopt.app.commands.trade import print_judged
from lfopt.app.config import SAMPLING, Config, find_config, load_config, share, validate
from lfopt.app.gaps import gap_text, nearness
from lfopt.app.options import (
    JOINING,
    MAX_BYTES,
    PROFILE,
    SLACK,
    SURROGATE,
    BandRowsOption,
    BudgetOption,
    BufferOption,
    ElementBytesOption,
    GuidanceOption,
    HardwareOption,
    InputShapesOption,
    JobSecondsOption,
    MaxCyclesOption,
    MaxEnergyOption,
    MaxRecomputeOption,
    MethodOption,
    ModelOption,
    ObjectiveOption,
    ProposeOption,
    RulesOption,
    SchemeOption,
    SeedOption,
    Switch,
    TrafficOption,
)
from lfopt.app.origins import by_name, named_table, scope_of_named
from lfopt.app.pipeline import (
    ZOO,
    FinishedPlan,
    JobOutcome,
    check_folder,
    find_plan,
    steps_of,
    write_finished,
)
from lfopt.app.screen import err, mib, note, out, progress_line, shown, speed, table
from lfopt.app.sizes import memories, parse_shapes, second_level, share_of, size_option
from lfopt.app.standard import seconds_since_began
from lfopt.ir import UNWRITTEN, Hardware, InvalidConfig, Plan, PlannedGroup, Report, step_count
from lfopt.ir.names import file_name, plural, span
from lfopt.ir.sizes import parse_size
from lfopt.planning import MODES, SCHEMES
from search.methods import METHODS
from search.objectives import Objective
from simulator.model.simulate import simulate
from simulator.model.timing import WALKED

TIMED_SECONDS = 6e-5  # that the model takes for a step
SHOWN = 5  # groups in each of the two short lists


def search(
    model: ModelOption | None = None,
    /,
    *,
    config: str | None = None,
    hardware: HardwareOption | None = None,
    buffer: BufferOption | None = None,
    element_bytes: ElementBytesOption | None = None,
    scheme: SchemeOption | None = None,
    method: MethodOption | None = None,
    traffic: TrafficOption | None = None,
    epilogue: Annotated[Switch | None, JOINING] = None,
    band_rows: BandRowsOption = None,
    max_recompute: MaxRecomputeOption | None = None,
    rules: RulesOption | None = None,
    input_shape: InputShapesOption = (),
    seed: SeedOption | None = None,
    budget: BudgetOption | None = None,
    time_limit: JobSecondsOption | None = None,
    guidance: GuidanceOption | None = None,
    propose: ProposeOption | None = None,
    profile: Annotated[Switch | None, PROFILE] = None,
    objective: ObjectiveOption | None = None,
    surrogate: Annotated[Switch | None, SURROGATE] = None,
    slack: Annotated[str | None, SLACK] = None,
    max_bytes: Annotated[str | None, MAX_BYTES] = None,
    max_cycles: MaxCyclesOption | None = None,
    max_energy: MaxEnergyOption | None = None,
    out_dir: Annotated[str | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Find a fusion plan of little DRAM traffic that is no slower than today's, and prove how good it is.

    Prints one screen, then writes plan.json and simplified.onnx. Options win over the configuration file,
    which may name the model too; what neither says is as by default.

    Example: lfopt search zoo:mobilenet_v2 --buffer 256KiB --out runs/mobilenet_v2

    Ctrl-C ends the search, or the making of steps after it: the best plan so far is written. A second Ctrl-C
    ends the command.

    Exit code 0: the plan is written; 2: wrong input, or a file that cannot be written; 3: written, but some
    groups have no steps (the time limit struck or there would be too many, the smallest step does not fit the
    buffer, or lfopt does not know the operator), or the plan is not recounted, as the time limit struck;
    4: a plan that its own recount refuses, which is not written; 130: Ctrl-C.

    Parameters
    ----------
    config
        Configuration file; a bare name is looked for in the working folder, then among the installed ones.
    out_dir
        Folder of the results; runs/NETWORK if not given.
    """
    given: dict[str, Any] = {
        "scheme": scheme,
        "traffic": traffic,
        "band_rows": band_rows,
        "max_recompute": max_recompute,
        "rules": rules,
        "out": out_dir,
    }
    if model is not None:
        given["model"] = model
    if epilogue is not None:
        given["epilogue"] = epilogue == "on"
    if shapes := parse_shapes(input_shape):
        given["input_shapes"] = shapes
    job = _job(
        config,
        {name: value for name, value in given.items() if value is not None},
        hardware,
        buffer,
        element_bytes,
    )
    chosen = {
        "method": method,
        "seed": seed,
        "budget": budget,
        "time_limit": time_limit,
        "guidance": guidance,
        "propose": propose,
    }
    picked: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    wanted = {"objective": objective, "max_cycles": max_cycles, "max_energy_uj": max_energy}
    picked |= {name: value for name, value in wanted.items() if value is not None}
    if surrogate is not None:
        picked["surrogate"] = surrogate == "on"
    if slack is not None:
        picked["slack"] = _share(slack)
    if max_bytes is not None:
        picked["max_dram_bytes"] = parse_size(max_bytes, "--max-bytes", decimal=True)
    if profile is not None:
        picked["profile"] = profile == "on"
    if method is not None:
        picked = {"compare": (), "profile": False, **picked}  # asked for one method: run that one
    if method is not None and method not in SAMPLING:
        # what the file says of these was for another method
        picked = {"guidance": "none", "propose": "none", **picked}
    job = replace(job, search=replace(job.search, **picked))
    name = job.model.removeprefix(ZOO) if job.model.startswith(ZOO) else Path(job.model).stem
    folder = Path(job.out) if job.out else Path("runs") / file_name(name)
    check_folder(folder)
    with progress_line() as report:
        outcome = find_plan(job, report, before=seconds_since_began())
    clock = time.perf_counter()
    with progress_line() as report:
        finished = steps_of(outcome, report)
    making = time.perf_counter() - clock - outcome.seconds["recount"]
    stages = {**outcome.seconds, "steps": making, "recount": outcome.seconds["recount"]}
    if finished.replaced:
        outcome = outcome.with_draft(finished.draft)
    note(outcome.graph)
    _print(outcome, finished.plan)
    clock = time.perf_counter()
    with progress_line() as report:
        finished = write_finished(finished, folder)
    plan = finished.plan
    interrupted = finished.interrupted
    with_figures = outcome.wanted != Objective() or SCHEMES[plan.scheme].copies
    steps = sum(step_count(group.steps) for group in plan.groups)
    enough = outcome.deadline.leaves("report", min(steps, WALKED) * TIMED_SECONDS)
    figures = simulate(plan, outcome.graph) if with_figures and enough else None
    if figures is not None:
        _print_model(plan, outcome, figures)
    if outcome.judged is not None:
        print_judged(outcome.wanted, plan.scheme, outcome.judged)
    stages["write"] = time.perf_counter() - clock
    laps = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in stages.items())
    out.print(f"\n[dim]wrote[/] {shown(folder)}/plan.json [dim]and[/] simplified.onnx", soft_wrap=True)
    out.print(f"[dim]{laps}[/]")
    if with_figures and figures is None:
        err.print(
            "note: cycles and energy are not told: the time limit struck before; `lfopt simulate` tells them",
            style="yellow",
            soft_wrap=True,
        )
    for why, count in Counter(finished.replaced).items():
        err.print(
            f"note: {plural(count, 'group')} of the plan found gave way to operators as before the search: "
            f"{why.removeprefix(f'{UNWRITTEN}: ')}",
            style="yellow",
            soft_wrap=True,
        )
    _say_what_is_missing(outcome, plan)
    if not finished.recounted:
        err.print(
            "note: the plan is not recounted: the time limit struck before, or it has too many steps; "
            "`lfopt check` says what holds",
            style="yellow",
            soft_wrap=True,
        )
    answer(_answer(outcome, plan, folder, figures, interrupted=interrupted))
    return _exit_code(finished)


def _exit_code(finished: FinishedPlan) -> int:
    """What the command ends with once the plan is written."""
    if finished.interrupted:
        return INTERRUPTED
    if finished.plan.groups_without_steps or not finished.recounted:
        return WITHOUT_STEPS
    return 0


def _answer(
    outcome: JobOutcome, plan: Plan, folder: Path, report: Report | None, *, interrupted: bool
) -> SearchAnswer:
    judged = outcome.judged
    methods = (
        MethodAnswer(
            ran.name,
            ran.result.seed,
            ran.result.dram_bytes,
            ran.result.lower_bound_bytes,
            ran.result.plans_evaluated,
            ran.result.groups_evaluated,
            ran.result.seconds,
            ran.result.interrupted,
        )
        for ran in outcome.runs
    )
    return SearchAnswer(
        model=plan.model.name,
        folder=str(folder),
        hardware=plan.hardware,
        assumed_speed=plan.hardware.assumed,
        scheme=plan.scheme,
        objective=plan.search.objective,
        totals=plan.totals,
        nothing_kept=plan.search.nothing_kept,
        groups=tuple(
            GroupAnswer(
                group.id,
                group.nodes,
                group.mode,
                group.dram,
                group.allocated_bytes(plan.hardware),
                bool(group.steps),
            )
            for group in plan.groups
        ),
        methods=tuple(methods),
        copied_operators=len(plan.copies),
        cycles=None if report is None else report.cycles.total,
        energy_pj=None if report is None else report.energy.total_pj,
        least_value=0 if judged is None else judged.bound,
        least=None if judged is None or judged.least is None else FiguresAnswer(*judged.least),
        trade=None if judged is None or judged.trade is None else TradeAnswer.of(judged.trade),
        seconds=outcome.seconds,
        interrupted=interrupted,
    )


def _share(text: str) -> float:
    try:
        return float(str(share(text)))
    except ValueError:
        raise InvalidConfig(f"--slack: found {text!r}; accepted: a share such as 0.1% or 0.001") from None


def _print_model(plan: Plan, outcome: JobOutcome, report: Report) -> None:
    """What the bytes cost: MACs where some are done again, modelled cycles and energy, and their proof."""
    out.print()
    if SCHEMES[plan.scheme].copies:
        network = sum(outcome.network.macs)
        out.print(f"{report.macs / 1e9:.3f} GMACs, {report.macs / max(network, 1):.2f} x the network's")
    if plan.copies:
        out.print(
            f"[dim]{plural(len(plan.copies), 'operator')} computed again; the lower bound holds whatever is "
            "computed again[/]",
            soft_wrap=True,
        )
    overlap = f", groups overlap by {report.overlapped_cycles:,}" if report.overlapped_cycles else ""
    figures = f"{report.cycles.total:,} cycles{overlap}, {report.energy.total_pj / 1e6:,.1f} uJ"
    out.print(f"model: {figures} [dim]on {speed(plan.hardware)}[/]", soft_wrap=True)


def _say_what_is_missing(outcome: JobOutcome, plan: Plan) -> None:
    """Say what an interrupt or a limit cost."""
    for group in plan.unschedulable[:SHOWN]:
        buffer_bytes = plan.hardware.buffer_bytes
        err.print(
            f"note: group {group.id} {escape(span(group.nodes))} cannot run: {escape(group.unexecutable)} "
            f"({buffer_bytes:,} B of buffer)",
            style="yellow",
            soft_wrap=True,
        )
    if count := len(plan.unschedulable):
        err.print(
            f"note: {count} of {len(plan.groups)} groups cannot run, and so the plan cannot; their bytes are "
            "what must move, and no more",
            style="yellow",
            soft_wrap=True,
        )
    left_out = Counter(
        group.unexecutable.removeprefix(f"{UNWRITTEN}: ") for group in plan.groups if group.unwritten
    )
    for why, count in left_out.items():
        err.print(
            f"note: {count} of {len(plan.groups)} groups are written without steps: {why}",
            style="yellow",
            soft_wrap=True,
        )
    if left_out:
        err.print("note: partition, bytes and proof are all there", style="yellow")
    if outcome.runs[-1].result.interrupted:
        last = outcome.runs[-1]
        if not last.result.plans_evaluated:
            what_is_left = "nothing found yet: every operator alone"
        else:
            what_is_left = "the best plan so far is written"
        err.print(f"note: {last.name} was interrupted; {what_is_left}", style="yellow", soft_wrap=True)
    elif not outcome.proven and METHODS[outcome.best.result.method].proves:
        err.print(
            f"note: the {outcome.best.result.method} search was stopped; a longer --time-limit narrows the "
            "gap",
            style="yellow",
        )


def _job(
    config: str | None,
    given: dict[str, Any],
    hardware: str | None,
    buffer: str | None,
    element_bytes: int | None,
) -> Config:
    if config is None:
        if "model" not in given:
            raise InvalidConfig(
                "lfopt search: found neither MODEL nor --config; accepted: an ONNX file, zoo:NAME, or a "
                "configuration"
            )
        return replace(
            validate(Config, {"hardware": {"buffer_bytes": 1}, **given}, "command line"),
            hardware=chip(hardware, buffer, element_bytes),
        )
    job = replace(load_config(find_config(config)), **given)
    if hardware is not None:
        return replace(job, hardware=chip(hardware, buffer, element_bytes))
    if buffer is not None:
        job = replace(job, hardware=replace(job.hardware, buffer_bytes=size_option(buffer, "--buffer")))
    if element_bytes is None:
        return job
    return replace(job, hardware=replace(job.hardware, element_bytes=element_bytes))


def _print(outcome: JobOutcome, plan: Plan) -> None:
    flow = outcome.network
    weights = flow.weight_elements / 1e6
    macs = sum(flow.macs) / 1e9
    out.print(
        f"[bold]{escape(outcome.graph.name)}[/]: {len(flow)} operators, {weights:.2f} M weights, {macs:.3f} "
        "GMACs"
    )
    out.print(f"{memories(plan.hardware)}, {plan.hardware.element_bytes} B per element, {_space(plan)}\n")
    out.print(_totals(outcome))
    if plan.hardware.l2_bytes:
        out.print(f"[dim]{second_level(plan)}[/]", soft_wrap=True)
    for ran in outcome.runs:
        if ran.guidance != "none":
            split = ran.result.repairs
            splits = f"{split.guided:,} groups split where {ran.guidance} said, {split.random:,} at random"
            out.print(f"[dim]{ran.name}: {splits}[/]")
    if plan.traffic == "tiled":
        out.print("[dim]* every tensor once, whatever fits: outside the space of this plan[/]")
    if count := len(plan.read_through):
        out.print(f"[dim]{count} operators that only move data are read through: mode access[/]")
    if plan.totals.excluded_bytes:
        count = sum(not MODES[group.mode].counted for group in plan.groups)
        out.print(
            f"left out, as in the paper: {count} operators whose weights reach the buffer "
            f"({plan.totals.excluded_bytes:,} B alone)"
        )
    out.print()
    out.print(_groups(outcome, plan))


def _space(plan: Plan) -> str:
    again = f" with up to {plan.max_recompute:g} x the MACs" if plan.max_recompute > 1 else ""
    return f"scheme {plan.scheme}{again}, traffic {plan.traffic}, epilogue {'on' if plan.epilogue else 'off'}"


def _totals(outcome: JobOutcome) -> Table:
    totals = outcome.plan.totals
    plan = outcome.plan
    rows = table("", "DRAM bytes", "MiB", "x bound", "")
    star = "*" if plan.traffic == "tiled" else ""

    def add(name: str, size: int, remark: str = "", style: str | None = None) -> None:
        rows.add_row(
            name,
            f"{size:,}",
            mib(size),
            f"{size / max(totals.lower_bound_bytes, 1):.3f}",
            remark,
            style=style,
        )

    add(f"layer by layer{star}", totals.layer_by_layer_bytes)
    add(f"epilogue fusion{star or ('' if plan.epilogue else '*')}", totals.epilogue_fused_bytes)
    proof = "optimal" if totals.proof == "optimal" else nearness(plan)
    if plan.unschedulable:
        proof = f"cannot run: {len(plan.unschedulable)} without steps"
    add(
        f"this plan, {outcome.best.name}",
        totals.dram_bytes,
        f"{proof}, {len(plan.groups)} groups",
        "bold green",
    )
    for ran in outcome.runs:
        if ran is not outcome.best:
            searched = ran.result
            # of methods without a budget of plans, the number of groups priced says more
            plans = "budget" in METHODS[searched.method].takes
            if plans:
                count = f"{searched.plans_evaluated:,} plans"
            else:
                count = f"{searched.groups_evaluated:,} groups"
            seed = f", seed {searched.seed}" if searched.seed is not None else ""
            add(
                f"  {ran.name}{seed}{', no second level' if plan.hardware.l2_bytes else ''}",
                searched.dram_bytes,
                count,
            )
    _add_nothing_kept(plan, add)
    add("proven lower bound", totals.lower_bound_bytes)
    if totals.without_recompute_bytes and totals.without_recompute_bytes > totals.compulsory_bytes:
        add("nothing twice", totals.without_recompute_bytes)
    add("compulsory", totals.compulsory_bytes)
    return rows


def _add_nothing_kept(plan: Plan, add: Callable[[str, int, str], None]) -> None:
    """The best plan in which no map stays on chip between groups, and what is proven of it."""
    unkept = plan.search.nothing_kept
    if not unkept.dram_bytes or plan.unschedulable:
        return
    bound = unkept.lower_bound_bytes
    if not bound:
        proof = "nothing proven"
    elif bound == unkept.dram_bytes:
        proof = "optimal"
    else:
        proof = gap_text(unkept.dram_bytes / bound - 1)
    add("if no map stays", unkept.dram_bytes, proof)


def _groups(outcome: JobOutcome, plan: Plan) -> RenderableType:
    """The groups that move the most, and the fused ones that fill the buffer the most."""
    groups = [group for group in plan.groups if MODES[group.mode].counted]
    fused = [group for group in groups if MODES[group.mode].whole and len(group.nodes) > 1]
    hardware = plan.hardware
    known = by_name(outcome.graph)
    listed: list[PlannedGroup | str] = [
        "moving the most",
        *sorted(groups, key=lambda g: (-g.dram.total, g.id))[:SHOWN],
    ]
    if fused:
        listed += [
            "filling the buffer the most",
            *sorted(fused, key=lambda g: (-g.allocated_bytes(hardware), g.id))[:SHOWN],
        ]
    idle = {group.id for group in plan.unschedulable}
    rows = [
        (row, *[""] * 5) if isinstance(row, str) else _figures(row, hardware, runs=row.id not in idle)
        for row in listed
    ]
    modules = ["" if isinstance(row, str) else scope_of_named(known, row.nodes) for row in listed]
    titles = [k for k, row in enumerate(listed) if isinstance(row, str)]
    return named_table(("group", "ops", "mode", "DRAM bytes", "buffer", "full"), rows, modules, bold=titles)


def _figures(group: PlannedGroup, hardware: Hardware, *, runs: bool) -> tuple[str, ...]:
    allocated = group.allocated_bytes(hardware)
    size = f"{allocated:,}" if group.steps else "-" if runs else "cannot run"
    return (
        f"{group.id} {span(group.nodes)}",
        str(len(group.nodes)),
        group.mode,
        f"{group.dram.total:,}",
        size,
        share_of(allocated, hardware.buffer_bytes) if group.steps else "-",
    )
