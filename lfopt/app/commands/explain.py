"""lfopt explain: why a group does not fit the buffer, and what would repair it.

Raises InvalidConfig for options that are not accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from rich.markup import escape

from lfopt.app.answers.writing import answer
from lfopt.app.commands.explain_cycles import print_cycles
from lfopt.app.commands.options import check_figure, check_group, check_seconds, check_top, chip
from lfopt.app.config import Config, SearchConfig
from lfopt.app.explain import (
    NO_WAYS,
    Blame,
    Explainers,
    Explanation,
    Repair,
    as_data,
    costs_of_plan,
    divided,
    explained,
)
from lfopt.app.explain_cycles import cycles_of
from lfopt.app.needs import BufferNeed, take_planned
from lfopt.app.nodes import chosen
from lfopt.app.options import (
    NODES,
    REPAIR_SECONDS,
    BufferOption,
    ElementBytesOption,
    ExplainersOption,
    GroupOption,
    HardwareOption,
    InputShapesOption,
    RepairSecondsOption,
    RulesOption,
    SchemeOption,
    SeedOption,
)
from lfopt.app.origins import named_table
from lfopt.app.pipeline import load_network
from lfopt.app.plan_nests import print_nest
from lfopt.app.report.cuts import Growth, growths, named
from lfopt.app.screen import err, note, out, shown, spread
from lfopt.app.sizes import UNLIMITED, memories, of_buffer, parse_shapes, size_option
from lfopt.app.verify import load_planned
from lfopt.ir import ACCESS, Graph, InvalidConfig, PlannedGroup
from lfopt.ir.names import shared_prefix, span
from lfopt.ir.origins import scope_of
from lfopt.ops import Dataflow, bits
from lfopt.planning import MODES, GroupCosts, masks_of
from lfopt.planning.defaults import GROUP_SCHEME
from lfopt.planning.modes import ModeOption
from lfopt.planning.written.writer import nest_lines

DIGITS = {"analytic": 0}  # of scores; bytes there
NONE = "-"  # where a figure would stand


class _ExplainQuery(NamedTuple):
    """What is to be explained."""

    costs: GroupCosts
    group: int  # mask of operators
    model: str
    groups: tuple[int, ...] = ()  # of the plan
    planned: tuple[PlannedGroup, ...] = ()
    number: int = -1  # of the plan's group
    ways: Mapping[int, ModeOption] = NO_WAYS  # how groups run by the plan, by mask

    @property
    def title(self) -> str:
        """What the group belongs to."""
        if self.groups:
            return f"{self.model}, group {self.number}"
        return self.model


def explain(
    target: str,
    /,
    *,
    nodes: Annotated[str | None, NODES] = None,
    group: GroupOption | None = None,
    grow: bool = False,
    buffer: BufferOption | None = None,
    scheme: SchemeOption | None = None,
    hardware: HardwareOption | None = None,
    element_bytes: ElementBytesOption | None = None,
    explainer: ExplainersOption = (),
    objective: Literal["bytes", "cycles"] = "bytes",
    time_limit: RepairSecondsOption = REPAIR_SECONDS,
    top: int = 6,
    seed: SeedOption = SearchConfig.seed,
    input_shape: InputShapesOption = (),
    rules: RulesOption = Config.rules,
    save: Path | None = None,
) -> None:
    """Say what overflows where operators do not fit as one group, and the cheapest cut that repairs it.

    Example: lfopt explain runs/mobilenet_v2 --group 3 --grow

    The scheme and the chip of a plan are the plan's where the options do not say otherwise.

    Parameters
    ----------
    target
        ONNX file or zoo:NAME, with --nodes; or a plan (plan.json, or the folder it is in), with --group or
        --nodes.
    grow
        Also say what would happen if the group took its neighbours, or single operators of theirs.
    objective
        cycles: also say where those of a group go that runs: what it takes without each map, without each
        operator, and cut at each link.
    top
        Lines of each list.
    save
        Also draw the group into this file (NAME.svg or NAME.png): operators, links by their scores, the
        cheapest cut.
    """
    check_top(top)
    check_seconds(time_limit)
    if save is not None:
        check_figure(save)
    if (nodes is None) == (group is None):
        given = "neither --nodes nor --group" if nodes is None else "both --nodes and --group"
        raise InvalidConfig(
            f"lfopt explain: found {given}; accepted: --nodes A..B of a network, or --group N of a plan"
        )
    if grow and group is None:
        raise InvalidConfig("--grow: found no --group; accepted: with --group N of a plan")
    is_plan = Path(target).is_dir() or target.endswith(".json")
    if group is not None and not is_plan:
        raise InvalidConfig(
            f"--group: found {target}, which is no plan; accepted: plan.json or its folder, or --nodes A..B"
        )
    options = {"hardware": hardware, "buffer": buffer, "element_bytes": element_bytes}
    if is_plan:
        query = _of_plan(Path(target), nodes, group, scheme, **options)
    else:
        graph = load_network(target, parse_shapes(input_shape), rules, weights=False)
        query = _of_model(graph, nodes or "", scheme, **options)
    by = Explainers.of(query.costs, tuple(dict.fromkeys(explainer)), seed)
    for name, why in by.missing.items():
        err.print(f"note: --explainer {name}: {why}", style="yellow", markup=False, soft_wrap=True)
    explanation = explained(query.costs, query.group, by, time_limit, query.ways)
    if grow:
        grown = growths(query.costs, query.groups, tuple(g.mode for g in query.planned), query.number)
    else:
        grown = []
    cycles = cycles_of(query.costs, query.group, time_limit) if objective == "cycles" else None
    _print(query, explanation, top)
    if grow:
        _print_grown(query, grown)
    if cycles is not None:
        out.print()
        print_cycles(cycles, top)
    if save is not None:
        from lfopt.app.report.blamed import write_figure  # noqa: PLC0415  (it brings matplotlib)

        write_figure(save, explanation, query.costs.dataflow, query.title)
        out.print(f"[dim]wrote[/] {shown(save)}", soft_wrap=True)
    answer(
        {
            **_data(query, explanation, grown if grow else None),
            "cycles": None if cycles is None else asdict(cycles),
        }
    )


def _of_model(graph: Graph, nodes: str, scheme: str | None, **options: Any) -> _ExplainQuery:
    note(graph)
    costs = GroupCosts.of(graph, chip(**options), scheme=scheme or GROUP_SCHEME)
    return _ExplainQuery(costs, _chosen(costs, nodes), graph.name)


def _of_plan(
    file: Path, nodes: str | None, group: int | None, scheme: str | None, **options: Any
) -> _ExplainQuery:
    plan, graph = load_planned(file)
    check_group(group, plan)
    given = plan.hardware
    if options["hardware"] is not None:
        given = chip(**options)
    elif options["buffer"] is not None:
        given = replace(given, buffer_bytes=size_option(options["buffer"], "--buffer"))
    if options["element_bytes"] is not None:
        given = replace(given, element_bytes=options["element_bytes"])
    costs = costs_of_plan(plan, graph, given, scheme)
    masks = masks_of(costs.dataflow, [planned.nodes for planned in plan.groups])
    ways = take_planned(costs, plan, masks)
    if group is None:
        return _ExplainQuery(costs, _chosen(costs, nodes or ""), plan.model.name, ways=ways)
    return _ExplainQuery(costs, masks[group], plan.model.name, masks, plan.groups, group, ways)


def _chosen(costs: GroupCosts, nodes: str) -> int:
    mask, notes = chosen(costs.dataflow, nodes)
    for line in notes:
        err.print(f"note: {line}", style="yellow", markup=False, soft_wrap=True)
    return mask


def _data(query: _ExplainQuery, explanation: Explanation, grown: Sequence[Growth] | None) -> dict[str, Any]:
    hardware = query.costs.hardware
    flow = query.costs.dataflow
    chip_data = {
        "buffer_bytes": hardware.buffer_bytes,
        "element_bytes": hardware.element_bytes,
        "scheme": query.costs.scheme,
    }
    data = {
        "model": query.model,
        **chip_data,
        "group": query.number if query.groups else None,
        **as_data(explanation, flow),
    }
    if grown is not None:
        data["grown"] = [
            {
                "group": growth.group,
                "operators": list(flow.names(growth.operators)),
                "whole_group": growth.whole,
                "verdict": growth.cut.verdict,
                "why": growth.cut.why.replace("\u00a0", " "),
                "needed_bytes": growth.cut.needed,
                "smallest_sufficient_buffer_bytes": growth.cut.enough,
                "saved_bytes": growth.cut.saves,
                "most": [asdict(use) for use in growth.cut.largest],
            }
            for growth in grown
        ]
    return data


# -- the group -----------------------------------------------------------------------------------------------


def _print(query: _ExplainQuery, explanation: Explanation, top: int) -> None:
    flow = query.costs.dataflow
    hardware = query.costs.hardware
    names = flow.names(explanation.group)
    count = f"{len(names)} operator{'s' * (len(names) > 1)}"
    out.print(f"[bold]{escape(query.title)}[/]: {count}, {shown(span(names))}")
    out.print(f"{memories(hardware)}, {hardware.element_bytes} B per element, scheme {query.costs.scheme}\n")
    _print_need(explanation, hardware.weight_buffer_bytes)
    if explanation.need.uses:
        out.print()
        _print_uses(explanation, top)
    _print_nest(query, explanation)
    if explanation.repair is not None:
        out.print()
        _print_repair(explanation.repair, explanation, query.costs, top)
    if explanation.blames:
        out.print()
        _print_blames(explanation, flow, top)


def _print_need(explanation: Explanation, weight_buffer: int) -> None:
    need = explanation.need
    cost = explanation.cost
    if need.never:
        out.print(f"[bold red]does not fit[/], whatever the buffer: {escape(need.never)}")
    elif need.fits:
        left = f" ({_share(need.bytes, need.available)}), {-need.over + 1:,} B left"
        sufficient = f"{need.bytes:,} of {need.available:,} B in mode {need.mode}{left}"
        if need.available == UNLIMITED:
            sufficient = f"{of_buffer(need.bytes, need.available)}, in mode {need.mode}"
        out.print(f"[bold green]fits[/]: {sufficient}")
    else:
        out.print(
            f"[bold red]does not fit[/]: needs {need.bytes:,} of {need.available:,} B in mode {need.mode}, "
            f"{need.over:,} B too many"
        )
    if weight_buffer and not need.never:
        out.print(f"its weights take {of_buffer(need.weights, weight_buffer, 'weight buffer')}")
    if cost is not None:
        saved = explanation.alone_bytes - cost.dram_bytes
        if explanation.group & (explanation.group - 1):
            than = f"{abs(saved):,} B {'less' if saved >= 0 else 'more'} than its operators alone"
        else:
            than = ""
        runs = "moves" if need.fits else f"counted all the same, in mode {cost.mode}: moves"
        if cost.dram_bytes > explanation.whole_bytes:
            more = f"{cost.dram_bytes - explanation.whole_bytes:,} B more than in one piece"
        else:
            more = ""
        out.print(", ".join(text for text in (f"{runs} {cost.dram_bytes:,} B", more, than) if text))
    if need.enough:
        there = explanation.enough_bytes
        sufficient = ""
        if there is not None and there != (cost.dram_bytes if cost else explanation.whole_bytes):
            sufficient = f", and moves {there:,} B there"
        out.print(f"smallest sufficient buffer: {_size(need.enough)}{sufficient}")
    if not need.settled:
        below = f"below {need.enough:,} B" if need.enough else "in larger buffers"
        out.print(f"[dim]time ended before all chains {below} were tried (--time-limit)[/]")
    if need.fits and not MODES[need.mode].whole:
        _print_whole(need)


def _print_whole(need: BufferNeed) -> None:
    """The buffer in which a group that runs in parts would run whole."""
    if need.mode == ACCESS or need.whole == need.enough:
        return
    whole = f"from a buffer of {_size(need.whole)} on" if need.whole else "in no buffer"
    out.print(f"whole, in one mode of the scheme: {whole}")


def _size(size: int) -> str:
    return f"{size:,} B ({-(-size // 1024):,} KiB)"


def _print_nest(query: _ExplainQuery, explanation: Explanation) -> None:
    """How a group that may run does so, where its mode or the plan says it as a nest."""
    if explanation.cost is None:
        return
    costs = query.costs
    group = explanation.group
    beta = costs.hardware.buffer_bytes
    if costs.taken(group) is not None:
        lines = query.planned[query.number].nest if query.planned else ()
    else:
        mode = costs.modes[explanation.cost.mode]
        nest = mode.schedule(group, beta, mode.terms(group, beta).band_rows).nest
        lines = () if nest is None else nest_lines(costs.dataflow, nest)
    if lines:
        out.print()
        print_nest(lines)


def _print_uses(explanation: Explanation, top: int) -> None:
    need = explanation.need
    shown = need.uses[:top]
    rest = need.uses[top:]
    rows: list[tuple[str, ...]] = []
    for use in shown:
        ring = (f"{use.rows:,}", f"{use.row_bytes:,}") if use.rows else ("", "")
        rows.append((use.what, use.role, *ring, f"{use.bytes:,}", _share(use.bytes, need.bytes)))
    if rest:
        size = sum(use.bytes for use in rest)
        rows.append((_others(rest), "", "", "", f"{size:,}", _share(size, need.bytes)))
    rows.append(("all", "", "", "", f"{need.bytes:,}", "100.0 %"))
    out.print(
        spread(
            ("what takes the buffer", "role", "rows", "B a row", "bytes", "share"), rows, bold={len(rows) - 1}
        )
    )


def _others(rest: Sequence[object]) -> str:
    return f"{len(rest)} other{'s' * (len(rest) > 1)}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f} %"


# -- what repairs it -----------------------------------------------------------------------------------------


def _print_repair(best: Repair, explanation: Explanation, costs: GroupCosts, top: int) -> None:
    if len(best.groups) == 1:
        out.print(
            f"[bold]no cut moves fewer bytes[/] than the {best.dram_bytes:,} B of the group as it runs "
            f"[dim]({_proof(best)})[/]"
        )
        return
    flow = costs.dataflow
    count = len(best.groups)
    out.print(
        f"[bold]cheapest cut: {count} groups, {best.dram_bytes:,} B of DRAM[/] [dim]({_proof(best)})[/]"
    )
    more = best.dram_bytes - best.whole_bytes
    less = explanation.alone_bytes - best.dram_bytes
    out.print(f"as one group {best.whole_bytes:,} B, {more:,} less; as operators alone {less:,} more")
    rows: list[tuple[str, ...]] = []
    for k, group in enumerate(best.groups[: 2 * top]):
        cost = costs.price(group)
        assert cost is not None, "the groups of a cut are legal"
        names = flow.names(group)
        rows.append(
            (
                f"{k} {span(names)}",
                str(len(names)),
                cost.mode,
                f"{cost.buffer_bytes:,}",
                f"{costs.dram(group).total:,}",
            )
        )
    if count > 2 * top:
        rest = best.groups[2 * top :]
        rows.append(
            (
                _others(rest),
                str(sum(g.bit_count() for g in rest)),
                "",
                "",
                f"{sum(costs.dram(g).total for g in rest):,}",
            )
        )
    modules = [scope_of(flow.operators[i] for i in bits(group)) for group in best.groups[: 2 * top]] + [
        ""
    ] * (count > 2 * top)
    out.print(named_table(("group", "ops", "mode", "buffer B", "DRAM bytes"), rows, modules))
    out.print()
    shown = best.crossings[:top]
    rest = best.crossings[top:]
    rows = [
        (flow.maps[c.map].name, f"{c.bytes:,}", _movement(c.stored_by, c.loaded_by), f"{c.added:,}")
        for c in shown
    ]
    if rest:
        rows.append((_others(rest), f"{sum(c.bytes for c in rest):,}", "", f"{sum(c.added for c in rest):,}"))
    if best.again:
        rows.append(("weights, and what tiles read again", "", "", f"{best.again:,}"))
    out.print(spread(("crosses DRAM", "size B", "stored → loaded by", "adds B"), rows))


def _proof(best: Repair) -> str:
    if best.optimal:
        return f"{best.by}: proven optimal, {best.seconds:.2f} s"
    gap = (best.dram_bytes - best.lower_bound_bytes) / max(best.lower_bound_bytes, 1)
    who = "exact search" if best.by == "exact" else f"SPLIT by {best.by}"
    return f"best found, by the {who} in {best.seconds:.1f} s; at most {100 * gap:.1f} % above the optimum"


def _movement(stored_by: int, loaded_by: tuple[int, ...], most: int = 4) -> str:
    more = f" +{len(loaded_by) - most}" if len(loaded_by) > most else ""
    return f"{stored_by if stored_by >= 0 else 'outside'} → {', '.join(map(str, loaded_by[:most]))}{more}"


# -- what explanations say -----------------------------------------------------------------------------------


def _print_blames(explanation: Explanation, flow: Dataflow, top: int) -> None:
    blames = explanation.blames
    best = explanation.repair
    if best is not None:
        cut = divided(explanation.links, best.groups)
    else:
        cut = [False] * explanation.links.shape[1]
    count = explanation.links.shape[1]
    ranks = np.full((len(blames), count), count)
    for rank, blame in zip(ranks, blames, strict=True):
        rank[blame.ranking] = range(len(blame.ranking))
    # by the best place that any of them gives a link
    order = np.lexsort((ranks.sum(0), ranks.min(0))).tolist()
    shown = order[:top] + [k for k in order[top:] if cut[k]][:top]
    prefix = shared_prefix(flow.names(explanation.group))
    rows = [
        (
            _link(explanation, flow, k, len(prefix)),
            "cut" if cut[k] else "",
            *(_score(blame, k) for blame in blames),
        )
        for k in shown
    ]
    if count > len(shown):
        rows.append(
            (f"{count - len(shown)} other link{'s' * (count - len(shown) > 1)}", "", *([""] * len(blames)))
        )
    if best is not None and explanation.cost is None:
        rows.append(
            (
                "SPLIT gives, groups",
                "",
                *(f"{len(blame.groups)}" if blame.groups else "none" for blame in blames),
            )
        )
        rows.append(
            ("DRAM bytes", "", *(f"{blame.dram_bytes:,}" if blame.groups else NONE for blame in blames))
        )
        above = [
            f"+{100 * (blame.dram_bytes / max(best.dram_bytes, 1) - 1):.2f} %" if blame.groups else NONE
            for blame in blames
        ]
        rows.append(("above the cheapest cut", "", *above))
    where = f"links to blame in {prefix[:-1]}" if prefix else "links to blame"
    out.print(
        spread(
            (where, "", *(blame.explainer for blame in blames)),
            rows,
            bold={k for k, link in enumerate(shown) if cut[link]},
        )
    )
    out.print("[dim]the higher, the more to blame; cut: the cheapest cut goes through this link[/]")
    if any(not flow.preds[v] >> u & 1 for u, v in explanation.links.T[shown].tolist()):
        out.print("[dim]~: both read the same map from outside[/]")
    if any(blame.explainer == "analytic" for blame in blames):
        if not explanation.need.never:
            counted = "buffer that a cut there frees"
        else:
            counted = "maps and weights that a cut there keeps out of what cannot run"
        out.print(f"[dim]analytic: bytes of {counted}[/]")


def _link(explanation: Explanation, flow: Dataflow, k: int, prefix: int) -> str:
    u, v = explanation.links[:, k].tolist()
    sign = "→" if flow.preds[v] >> u & 1 else "~"
    return f"{flow.operators[u].name[prefix:]} {sign} {flow.operators[v].name[prefix:]}"


def _score(blame: Blame, k: int) -> str:
    score = blame.scores[k]
    if score == -np.inf:
        return NONE
    return f"{score:,.{DIGITS.get(blame.explainer, 3)}f}"


# -- its neighbours ------------------------------------------------------------------------------------------


def _print_grown(query: _ExplainQuery, grown: Sequence[Growth]) -> None:
    flow = query.costs.dataflow
    if not grown:
        out.print("\nno other group touches it")
        return
    able = [growth for growth in grown if growth.cut.verdict != "cycle"]
    rows: list[tuple[str, ...]] = []
    for growth in able:
        cut = growth.cut
        most = next((named(use) for use in cut.largest), "")
        rows.append(
            (
                _taken(growth, flow),
                f"{cut.saves:,}",
                _over(query, growth),
                f"{cut.enough:,}" if cut.enough else NONE,
                most,
            )
        )
    out.print()
    if rows:
        gains = [k for k, growth in enumerate(able) if growth.cut.verdict == "gain"]
        out.print(
            spread(
                ("grown by", "saves B", "over B", "enough B", "most for"), rows, stretch=(0, 4), bold=gains
            )
        )
        out.print("[dim]saves: DRAM bytes, in a buffer large enough; enough: the smallest that is[/]")
    if cycles := [growth for growth in grown if growth.cut.verdict == "cycle"]:
        listed = ", ".join(
            f"group {growth.group}" if growth.whole else flow.names(growth.operators)[0] for growth in cycles
        )
        out.print(f"[dim]not possible, since the groups would have a cyclic dependency: {escape(listed)}[/]")


def _taken(growth: Growth, flow: Dataflow) -> str:
    """The neighbour, or the operator taken from it."""
    first, *others = flow.names(growth.operators)
    if not growth.whole:
        return f"  {first} of {growth.group}"
    return f"group {growth.group}: {first}" + (f" +{len(others)}" if others else "")


def _over(query: _ExplainQuery, growth: Growth) -> str:
    verdict = growth.cut.verdict
    needed = growth.cut.needed
    if verdict == "overflows":
        return f"{needed - query.costs.hardware.buffer_bytes + 1:,}"
    return {"gain": "fits", "no gain": "fits", "alone": "alone", "never": "always"}[verdict]
