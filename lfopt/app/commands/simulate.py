"""lfopt simulate: what a plan moves and saves, and what it costs by the model.

Raises InvalidConfig for options that are not accepted, InvalidPlan for a plan that is not of its network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from lfopt.app.answers.writing import answer
from lfopt.app.commands.options import check_group, check_top
from lfopt.app.options import GroupOption, PlanOption, TraceEventsOption, TraceOption
from lfopt.app.origins import by_name, named_table, scope_of_named
from lfopt.app.plan_nests import print_nest
from lfopt.app.screen import mib, out, shown, spread, table
from lfopt.app.sizes import memories, of_buffer, share_of
from lfopt.app.trace import MOST_EVENTS, model_trace, write_trace
from lfopt.app.verify import load_planned
from lfopt.ir import (
    Cycles,
    GroupReport,
    Hardware,
    InvalidConfig,
    InvalidPlan,
    Operator,
    PlannedGroup,
    Report,
    TensorTraffic,
    step_count,
)
from lfopt.ir.listing import listing
from lfopt.ir.names import span
from lfopt.planning import MODES
from simulator.model.simulate import simulate as simulated

WIDE = 110  # columns from which the lists say more
NAMED = 4  # groups named for one tensor
ROLES = {
    "input": "graph inputs",
    "weight": "weights",
    "parameter": "parameters",
    "map": "maps between groups",
    "output": "graph outputs",
    "l2": "maps in second level",
}
SELDOM = ("parameter", "l2")  # rows that are left out where nothing moves
PARTS = {
    "DRAM": "dram_pj",
    "L2": "l2_pj",
    "buffer": "buffer_pj",
    "partial sums": "accumulator_pj",
    "MACs": "mac_pj",
    "vector": "vector_pj",
    "cycles": "cycle_pj",
    "total": "total_pj",
}


def simulate(
    plan: PlanOption,
    /,
    *,
    top: int = 5,
    group: GroupOption | None = None,
    trace: TraceOption = None,
    trace_events: TraceEventsOption = MOST_EVENTS,
) -> int:
    """Show what a plan moves and saves, and what it costs in cycles and energy by the model.

    Example: lfopt simulate runs/mobilenet_v2 --trace trace.json

    Shown is the whole plan, its groups and its tensors; with --group, one group alone, its places in the
    buffer and its steps. As JSON, there is always the whole report. Bytes are sums over the steps of the
    plan. Exit code 0: the plan's own figures are the same; 1: they are not.

    Parameters
    ----------
    top
        Groups and tensors listed: those that move the most.
    """
    check_top(top)
    if trace_events < 1:
        raise InvalidConfig(f"--trace-events: found {trace_events}; accepted: a whole number of at least 1")
    claimed, graph = load_planned(plan)
    check_group(group, claimed)
    try:
        report = simulated(claimed, graph)
    except InvalidPlan as error:
        raise InvalidPlan(f"{plan}: {error}") from None
    if trace is not None:
        write_trace(trace, *model_trace(claimed, graph, report, only=group, most=trace_events))
    if group is None:
        _print(report, top, by_name(graph))
    else:
        _print_group(report.groups[group], claimed.groups[group], report.hardware)
    for line in report.disagreements:
        out.print(f"[red]wrong[/] {shown(line)}", soft_wrap=True)
    answer(report)
    if report.disagreements:
        return 1
    return 0


# -- the whole plan ------------------------------------------------------------------------------------------


def _print(report: Report, top: int, known: Mapping[str, Operator]) -> None:
    hardware = report.hardware
    operators = sum(len(g.nodes) for g in report.groups)
    out.print(
        f"[bold]{escape(report.model)}[/]: {operators} operators in {len(report.groups)} groups, "
        f"{report.macs / 1e9:.3f} GMACs{_again(report)}"
    )
    out.print(f"{memories(hardware)}, {hardware.element_bytes} B per element\n")
    out.print(_baselines(report))
    out.print()
    out.print(_roles(report))
    out.print()
    _print_model(report, hardware)
    if report.overlapped_cycles:
        out.print(
            f"\n[dim]groups overlap by {report.overlapped_cycles:,} cycles*: below, each begins on an idle "
            "chip[/]"
        )
    out.print()
    out.print(_groups(report, top, known))
    out.print()
    out.print(_movers(report, top))
    _print_footnotes(report)


def _print_footnotes(report: Report) -> None:
    out.print("[dim]* model: follows from the hardware description. Bytes are sums over steps.[/]")
    if formula := [g for g in report.groups if g.by_formula]:
        first = f"e.g. {formula[0].id}, since {formula[0].by_formula}"
        out.print(
            f"[dim](f) {len(formula)} of the groups have no steps: bytes by formula, cycles of whole "
            f"tensors; {escape(first)}[/]"
        )
    if shortened := [g for g in report.groups if g.cycles.timing == "extrapolated"]:
        out.print(
            f"[dim]cycles of {len(shortened)} groups with very many steps are extrapolated from shortened "
            f"loops, e.g. of {shortened[0].id}[/]"
        )


def _again(report: Report | GroupReport) -> str:
    if report.recomputed_macs:
        return f" ({report.recomputed_macs / 1e6:,.1f} M of them recomputed)"
    return ""


def _baselines(report: Report) -> Table:
    totals = report.baselines
    rows = table("", "DRAM bytes", "MiB", "x bound", "")
    rows.columns[-1].justify = "left"

    def add(name: str, size: int, remark: str = "", style: str | None = None) -> None:
        rows.add_row(
            name,
            f"{size:,}",
            mib(size),
            f"{size / max(totals.lower_bound_bytes, 1):.3f}",
            remark,
            style=style,
        )

    add("layer by layer", totals.layer_by_layer_bytes, "every tensor once")
    add("epilogue fusion", totals.epilogue_fused_bytes, "every tensor once")
    saved = 1 - report.dram.total / max(totals.layer_by_layer_bytes, 1)
    add("this plan", report.dram.total, f"{100 * saved:.1f} % below layer by layer", "bold green")
    add("proven lower bound", totals.lower_bound_bytes, totals.proof)
    add("compulsory", totals.compulsory_bytes)
    return rows


def _roles(report: Report) -> Table:
    """DRAM bytes by role of the tensors, beside moving each once; maps between groups need not move."""
    rows = table("what moves", "tensors", "loaded", "stored", "share", "x size")
    whole = max(report.dram.total, 1)
    for role, name in ROLES.items():
        moved = [t for t in report.tensors if t.role == role]
        if role in SELDOM and not moved:
            continue
        loaded = sum(t.loaded_bytes for t in moved)
        stored = sum(t.stored_bytes for t in moved)
        times = f"{(loaded + stored) / size:.2f}" if (size := sum(t.size_bytes for t in moved)) else ""
        share = "" if role == "l2" else f"{100 * (loaded + stored) / whole:.1f} %"  # of DRAM bytes
        rows.add_row(name, str(len(moved)), f"{loaded:,}", f"{stored:,}", share, times)
    return rows


def _print_model(report: Report | GroupReport, hardware: Hardware) -> None:
    """Cycles and energy of the model."""
    cycles = report.cycles
    energy = report.energy
    port = f"port {hardware.port_bytes} B a cycle, {hardware.port_latency} cycles a transfer"
    assumed = "; assumed: the chip does not say" if hardware.assumed else ""
    out.print(
        f"[dim]model*: {hardware.mac_rows} x {hardware.mac_columns} MACs, {port}, "
        f"{hardware.clock_hz / 1e6:,.0f} MHz{assumed}[/]"
    )
    if (rate := hardware.dram_bytes_per_second) is not None:
        out.print(f"[dim]DRAM: {rate / 1e9:,.4g} GB/s, loads and stores together[/]")
    if not hardware.plain_dram:
        access = report.dram_access
        more = 100 * (access.burst_bytes / max(report.dram.total, 1) - 1)
        if hardware.dram_page_bytes:
            opened = f"; {access.pages:,} pages of {hardware.dram_page_bytes:,} B opened"
        else:
            opened = ""
        out.print(
            f"[dim]DRAM: {access.burst_bytes:,} B in bursts of {hardware.dram_burst_bytes} B (+{more:.1f} "
            f"%){opened}[/]"
        )
    rows = table("time*", "cycles", "ms", "busy")
    for name, busy in (("port", cycles.dma), ("compute", cycles.compute)):
        rows.add_row(
            name,
            f"{busy:,}",
            f"{1e3 * busy / hardware.clock_hz:,.3f}",
            f"{100 * busy / max(cycles.total, 1):.1f} %",
        )
    name = "overlapped" if hardware.overlap else "one after the other"
    rows.add_row(
        name, f"{cycles.total:,}", f"{1e3 * cycles.total / hardware.clock_hz:,.3f}", "", style="bold"
    )
    out.print(rows)
    out.print()
    seldom = {"l2_pj": hardware.l2_bytes, "cycle_pj": hardware.energy.cycle_pj}
    parts = {title: name for title, name in PARTS.items() if seldom.get(name, True)}
    rows = table("energy*", *parts)
    rows.add_row("uJ", *(f"{getattr(energy, name) / 1e6:,.1f}" for name in parts.values()))
    rows.add_row(
        "",
        *(
            f"{100 * getattr(energy, name) / (energy.total_pj or 1):.1f} %"
            for name in parts.values()
            if name != "total_pj"
        ),
        "",
    )
    out.print(rows)


WEIGHTS = "weights B"  # the column of chips whose weights have a buffer of their own
# (header, cell, terminal width from which it is shown)
GroupColumn = tuple[str, Callable[[GroupReport], str], int]
GROUP_COLUMNS: tuple[GroupColumn, ...] = (
    ("ops", lambda g: str(len(g.nodes)), 0),
    ("mode", lambda g: g.mode + (" (f)" if g.by_formula else ""), 0),
    ("buffer B", lambda g: f"{g.allocated_bytes:,}", WIDE),
    (WEIGHTS, lambda g: f"{g.weight_bytes:,}", WIDE),
    ("DRAM bytes", lambda g: f"{g.dram.total:,}", 0),
    ("saves", lambda g: f"{g.saved_bytes:,}", 0),
    ("MACs/B", lambda g: f"{g.macs_per_dram_byte:,.1f}", 0),
    ("kcycles*", lambda g: f"{g.cycles.total / 1e3:,.1f}", 0),
    ("busiest*", lambda g: _busiest(g.cycles), WIDE),
    ("uJ*", lambda g: f"{g.energy.total_pj / 1e6:,.1f}", WIDE),
)


def _busiest(cycles: Cycles) -> str:
    name, busy = max((("port", cycles.dma), ("compute", cycles.compute)), key=lambda item: item[1])
    return f"{name} {100 * busy / max(cycles.total, 1):.0f} %"


def _groups(report: Report, top: int, known: Mapping[str, Operator]) -> RenderableType:
    """The groups that move the most, and all others together."""
    columns = [
        column
        for column in GROUP_COLUMNS
        if out.width >= column[2] and (column[0] != WEIGHTS or report.hardware.weight_buffer_bytes)
    ]
    ordered = sorted((g for g in report.groups if MODES[g.mode].counted), key=lambda g: (-g.dram.total, g.id))
    cells = [[cell(g) for _, cell, _ in columns] for g in ordered[:top]]
    rest = ordered[top:]
    if rest:
        sums = {
            "ops": str(sum(len(g.nodes) for g in rest)),
            "DRAM bytes": f"{sum(g.dram.total for g in rest):,}",
            "saves": f"{sum(g.saved_bytes for g in rest):,}",
            "kcycles*": f"{sum(g.cycles.total for g in rest) / 1e3:,.1f}",
            "uJ*": f"{sum(g.energy.total_pj for g in rest) / 1e6:,.1f}",
        }
        cells.append([sums.get(name, "") for name, _, _ in columns])
    names = [f"{g.id} {span(g.nodes)}" for g in ordered[:top]] + [f"{len(rest)} others"] * bool(rest)
    modules = [scope_of_named(known, g.nodes) for g in ordered[:top]] + [""] * bool(rest)
    rows = [(name, *row) for name, row in zip(names, cells, strict=True)]
    return named_table(("group", *(name for name, _, _ in columns)), rows, modules)


def _movers(report: Report, top: int) -> RenderableType:
    """The tensors that move the most, and which groups move them."""
    cells = [
        (t.name, t.role, f"{t.moved_bytes:,}", f"{t.moved_bytes / max(t.size_bytes, 1):.2f}", _movement(t))
        for t in report.tensors[:top]
    ]
    return spread(("tensor", "role", "moved bytes", "x size", "stored → loaded by"), cells, left=(4,))


def _movement(tensor: TensorTraffic) -> str:
    """Groups that store a tensor, and that load it.

    >>> _movement(TensorTraffic("t", "map", 8, 16, 8, loaded_by=(4, 7), stored_by=(3,)))
    '3 → 4, 7'
    """
    return f"{_few(tensor.stored_by)} → {_few(tensor.loaded_by)}".strip()


def _few(groups: tuple[int, ...]) -> str:
    more = f" +{len(groups) - NAMED}" if len(groups) > NAMED else ""
    return ", ".join(str(g) for g in groups[:NAMED]) + more


# -- one group -----------------------------------------------------------------------------------------------


def _print_group(report: GroupReport, group: PlannedGroup, hardware: Hardware) -> None:
    beta = hardware.buffer_bytes
    share = share_of(report.allocated_bytes, beta)
    full = of_buffer(report.allocated_bytes, beta) + (f" ({share})" if share else "")
    if hardware.weight_buffer_bytes:
        full += f", {of_buffer(report.weight_bytes, hardware.weight_buffer_bytes, 'weight buffer')}"
    out.print(f"[bold]group {group.id}[/]: {len(group.nodes)} operators, mode {group.mode}, {full}")
    out.print(
        f"{report.macs / 1e6:,.2f} MMACs{_again(report)}, {report.macs_per_dram_byte:,.1f} per DRAM byte"
    )
    classes = ", ".join(f"{name} {size:,}" for name, size in asdict(report.dram).items() if size)
    out.print(f"moves {report.dram.total:,} B: {classes}")
    if report.l2.total:
        out.print(f"second level: {report.l2.read:,} B read, {report.l2.written:,} B written")
    verb = "saves" if report.saved_bytes >= 0 else "adds"
    out.print(
        f"{verb} {abs(report.saved_bytes):,} B against {report.one_by_one_bytes:,} B of its operators one by "
        "one\n"
    )
    _print_model(report, hardware)
    out.print()
    moves = [(t.name, t.role, f"{t.loaded_bytes:,}", f"{t.stored_bytes:,}") for t in report.tensors]
    out.print(spread(("tensor", "role", "loaded", "stored"), moves))
    out.print()
    if report.by_formula:
        out.print(f"no steps, bytes by formula: {escape(report.by_formula)}")
        return
    if group.nest:
        print_nest(group.nest)
        out.print()
    _print_places(group)
    out.print(
        f"\n[bold]{step_count(group.steps):,} steps[/] [dim]what[box] class rows x bytes -> place.slot; by: "
        "how far each iteration moves them[/]"
    )
    for line in listing(group.steps):
        out.print(line, markup=False, soft_wrap=True)


def _print_places(group: PlannedGroup) -> None:
    cells = [
        (
            f"{number} {p.name}",
            p.purpose,
            f"{p.address:,}",
            f"{p.slots:,}",
            f"{p.slot_bytes:,}",
            f"{p.bytes:,}",
        )
        for number, p in enumerate(group.places)
    ]
    out.print(spread(("place", "for", "address", "slots", "slot B", "bytes"), cells))
