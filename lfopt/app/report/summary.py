"""What the page of `lfopt report` says in words, and the page as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from lfopt.app.explain import Explainers
from lfopt.app.options import PICTURE_SECONDS, ExplainerName
from lfopt.app.report.content import content
from lfopt.app.report.cuts import GroupBoundary, cuts
from lfopt.app.report.page import Figure, PageSummary, render
from lfopt.app.report.picture import proven
from lfopt.app.report.pictures import PICTURED, pictures
from lfopt.app.report.sweep import SweepPoint, own_stair, sweep
from lfopt.app.screen import mib, speed
from lfopt.app.sizes import format_size, second_level
from lfopt.ir import Graph, Plan, Report, SearchRecord
from lfopt.ir.names import plural
from lfopt.planning import GIVEN, MODES, GroupCosts, Traffic, masks_of
from simulator.model.simulate import simulate

WARNINGS = 5  # disagreements that are written out


def page_of(
    plan: Plan,
    graph: Graph,
    sweep_seconds: float,
    explain_seconds: float = PICTURE_SECONDS,
    explainer: tuple[ExplainerName, ...] = (),
) -> str:
    """The page of a plan for this network. Raises InvalidPlan where the two do not belong together."""
    simulated = simulate(plan, graph)
    groups = [group.nodes for group in plan.groups]
    costs = GroupCosts.of(
        graph,
        plan.hardware,
        Traffic(plan.traffic),
        scheme=plan.scheme,
        epilogue=plan.epilogue,
        max_recompute=plan.max_recompute,
        groups=groups,
    )
    masks = masks_of(costs.dataflow, groups)
    grown = cuts(costs, masks, tuple(group.mode for group in plan.groups))
    drawn = _pictures(plan, costs, masks, grown, explain_seconds, explainer)
    stairs = [own_stair(plan)] if plan.hardware.l2_bytes else sweep(costs, own_stair(plan), sweep_seconds)
    data = content(plan, costs, masks, simulated, grown, stairs, plan.search.front, drawn)
    return render(_summary(plan, graph, simulated, stairs, grown, len(drawn), sweep_seconds), data)


def _pictures(
    plan: Plan,
    costs: GroupCosts,
    masks: tuple[int, ...],
    grown: Sequence[GroupBoundary],
    seconds: float,
    names: tuple[ExplainerName, ...],
) -> list[dict[str, Any]]:
    if not seconds or not any(cut.verdict in PICTURED for cut in grown):
        return []
    by = Explainers.of(costs, names, seed=0)
    by.refuse_missing()
    return pictures(costs, masks, grown, by, optimal=plan.totals.proof == "optimal", seconds=seconds)


def _summary(
    plan: Plan,
    graph: Graph,
    simulated: Report,
    stairs: Sequence[SweepPoint],
    grown: Sequence[GroupBoundary],
    drawn: int,
    sweep_seconds: float,
) -> PageSummary:
    hardware = plan.hardware
    operators = sum(len(group.nodes) for group in plan.groups)
    chip = [] if hardware.name in ("unnamed", "command line") else [hardware.name]
    epilogue = "on" if plan.epilogue else "off"
    return PageSummary(
        name=plan.model.name,
        facts=(
            *chip,
            f"{format_size(hardware.buffer_bytes)} buffer",
            *(
                [f"{format_size(hardware.weight_buffer_bytes)} weight buffer"]
                if hardware.weight_buffer_bytes
                else []
            ),
            *([f"{format_size(hardware.l2_bytes)} second level"] if hardware.l2_bytes else []),
            f"{hardware.element_bytes} B per element",
            f"scheme {plan.scheme}",
            f"traffic {plan.traffic}",
            f"epilogue {epilogue}",
        ),
        figures=_figures(plan),
        accounting=_accounting(plan, simulated),
        warnings=_warnings(simulated),
        notes=_notes(plan, graph),
        counts=f"{plural(operators, 'operator')} in {plural(len(plan.groups), 'group')}, with "
        f"{plural(len(grown), 'cut')} between them.",
        unfused=_unfused(simulated),
        sweep=_sweep_note(plan, stairs, sweep_seconds),
        grown=_grown_note(grown, drawn),
        colophon=(
            _origin(plan.search),
            *([f"{plan.model.onnx}, SHA-256 {plan.model.sha256[:16]}"] if plan.model.written else []),
            f"lfopt {version('lfopt')}",
        ),
        version=version("lfopt"),
    )


def _origin(search: SearchRecord) -> str:
    """What found the scheme, as a line."""
    if search.method == GIVEN.method:
        return "a scheme that was given, not searched"
    counts = ((search.plans_evaluated, "plan"), (search.groups_evaluated, "group"))
    evaluated = "".join(f"{plural(count, what)}, " for count, what in counts if count is not None)
    seed = f", seed {search.seed}" if search.seed is not None else ""
    return f"plan found by the {search.method} search{seed}: {evaluated}{search.seconds:,.2f} s"


def _grown_note(grown: Sequence[GroupBoundary], drawn: int) -> str:
    """Which pictures there are; nothing where there are none."""
    pairs = sum(cut.verdict in PICTURED for cut in grown)
    if not drawn:
        return ""
    pictured = (
        f"All {pairs:,} pairs of groups that do not fit as one have a picture."
        if drawn == pairs
        else (
            f"Of {pairs:,} pairs of groups that do not fit as one, the {drawn:,} that would save the most "
            "bytes have a picture."
        )
    )
    return (
        "Each link joins two operators; the redder and thicker, the more this explanation blames it for "
        f"what does not fit. {pictured}"
    )


def _figures(plan: Plan) -> tuple[Figure, ...]:
    totals = plan.totals
    optimal = totals.proof == "optimal"
    proof = proven(plan)
    ratio = f"{totals.dram_bytes / totals.lower_bound_bytes:.3f}" if totals.lower_bound_bytes else "-"
    return (
        Figure("DRAM traffic", mib(totals.dram_bytes), "MiB", f"{totals.dram_bytes:,} B per inference"),
        Figure("times the proven lower bound", ratio, "", proof, "good" if optimal else ""),
        _saving("layer by layer", totals.dram_bytes, totals.layer_by_layer_bytes),
        _saving("epilogue fusion", totals.dram_bytes, totals.epilogue_fused_bytes),
    )


def _saving(baseline: str, size: int, against: int) -> Figure:
    share = 100 * (against - size) / max(against, 1)
    less = "less" if size <= against else "more"
    return Figure(
        f"{less} than {baseline}",
        f"{abs(share):.1f}",
        "%",
        f"{abs(against - size):,} B {less} than {against:,}",
        "bad" if size > against else "",
    )


def _accounting(plan: Plan, simulated: Report) -> str:
    """How the bytes were counted, and what the model makes of them."""
    formula = Counter(
        group.by_formula for group in simulated.groups if group.by_formula and MODES[group.mode].counted
    )
    stepped, total = sum(not group.by_formula for group in simulated.groups), len(simulated.groups)
    sentence = "Every group has executable steps, and its bytes are the sum over them."
    if formula:
        why = f" ({next(iter(formula))})" if len(formula) == 1 else ""
        sentence = (
            f"{stepped:,} of {total:,} groups have executable steps, over which their bytes are "
            f"summed; the others are by formula{why}."
        )
    cycles, clock = simulated.cycles, plan.hardware.clock_hz
    model = (
        f"By the model, on {speed(simulated.hardware)}: {cycles.total:,} cycles "
        f"({1000 * simulated.seconds:,.2f} ms at {clock / 1e6:,.0f} MHz)"
    )
    model += f", {simulated.energy.total_pj / 1e9:,.2f} mJ."
    return f"{sentence} {model}"


def _unfused(simulated: Report) -> str:
    """What the operators move alone, as a sentence: bars of it would leave those of the plan no room."""
    once = sum(group.one_by_one_bytes for group in simulated.groups if MODES[group.mode].counted)
    return (
        f"Unfused, every tensor once, the operators would move {once:,} B: "
        f"{once / max(simulated.dram.total, 1):.2f} times as much."
    )


def _warnings(simulated: Report) -> tuple[str, ...]:
    lines = list(simulated.disagreements[:WARNINGS])
    if len(simulated.disagreements) > WARNINGS:
        lines.append(f"... and {len(simulated.disagreements) - WARNINGS} more figures that disagree")
    return tuple(lines)


def _notes(plan: Plan, graph: Graph) -> tuple[str, ...]:
    if plan.hardware.l2_bytes:
        drawn = (
            "their links are thin as those of maps that visit DRAM. What larger groups would save is "
            "worked out without it."
        )
        return (f"A {second_level(plan)}; {drawn}", *graph.notes)
    if not plan.totals.excluded_bytes:
        return graph.notes
    count = sum(not MODES[group.mode].counted for group in plan.groups)
    return (
        (
            f"Left out, as in the paper: {count} operators whose weights reach the buffer "
            f"({plan.totals.excluded_bytes:,} B alone)."
        ),
        *graph.notes,
    )


def _sweep_note(plan: Plan, stairs: Sequence[SweepPoint], seconds: float) -> str:
    proven = sum(stair.lower_bound_bytes >= stair.dram_bytes for stair in stairs)
    if plan.hardware.l2_bytes:
        return "The plan's own buffer alone: plans for others would be found without the second level."
    if plan.unschedulable:
        return "The plan's own buffer, on which it cannot run, and those on which one can: nothing is proven."
    if len(stairs) == 1:
        return "The plan's own buffer alone: " + (
            f"{seconds:g} s were too few for other sizes." if seconds else "no time was given to other sizes."
        )
    note = (
        f"The best plans found for {len(stairs):,} buffer sizes around the plan's own, {proven:,} of "
        "them proven optimal."
    )
    front = (
        f" Of the plans that the {plan.search.method} search found, those that no other beats in both bytes "
        "and buffer."
        if plan.search.front
        else ""
    )
    return note + front
