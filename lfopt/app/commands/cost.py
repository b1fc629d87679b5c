"""lfopt cost: the price of a partition, or of a nest, that was made elsewhere.

Raises InvalidConfig where neither is given, and for a nest that breaks a rule.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape

from lfopt.app.answers.plans import CostAnswer, MisfitAnswer, PricedAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.commands.options import WITHOUT_STEPS, check_top, chip
from lfopt.app.config import Config, validate
from lfopt.app.options import (
    ANY_MODE,
    JOINING,
    JOINING_SWITCH,
    BandRowsOption,
    BufferOption,
    ElementBytesOption,
    HardwareOption,
    InputShapesOption,
    MaxRecomputeOption,
    ModelOption,
    RulesOption,
    SchemeOption,
    Switch,
    TrafficOption,
)
from lfopt.app.origins import by_name, named_table, scope_of_named
from lfopt.app.overlap import overlapped
from lfopt.app.partitions import PricedPartition, judge, operators_of_nest, read_groups, read_nest
from lfopt.app.pipeline import check_folder, load_network
from lfopt.app.plans import write_files
from lfopt.app.screen import err, note, out, shown, speed
from lfopt.app.sizes import memories, parse_shapes, share_of
from lfopt.app.verify import require_true, verified
from lfopt.ir import Cost, DoesNotFit, InvalidConfig, Report
from lfopt.ir.names import one_line, plural, span
from lfopt.ops import Dataflow
from simulator.model.simulate import simulate

REASONS = 8  # why a partition is not legal: lines printed


def cost(
    model: ModelOption,
    /,
    *,
    groups: Path | None = None,
    nest: Path | None = None,
    hardware: HardwareOption | None = None,
    buffer: BufferOption | None = None,
    element_bytes: ElementBytesOption | None = None,
    scheme: SchemeOption = ANY_MODE,
    traffic: TrafficOption = Config.traffic,
    epilogue: Annotated[Switch, JOINING] = JOINING_SWITCH,
    band_rows: BandRowsOption = None,
    max_recompute: MaxRecomputeOption = Config.max_recompute,
    rules: RulesOption = Config.rules,
    input_shape: InputShapesOption = (),
    top: int = 20,
    out_dir: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Price any partition of a network into groups, say what is illegal or does not fit, and make its plan.

    Each group runs in the mode of the scheme that moves the fewest bytes; of equals, the fastest way.
    Operators that no file names are groups of their own. The operators of a nest are a group, which runs as
    the nest says.

    Example: lfopt cost zoo:squeezenet1_1 --groups mine.csv --buffer 256KiB --out runs/mine

    Exit code 0: the plan is made; 1: the partition is not legal, or a group does not fit; 2: wrong input; 3:
    written, but some groups have no steps.

    Parameters
    ----------
    groups
        Operators of each group, by their names in the simplified network: JSON (a list of lists, or
        plan.json), or CSV (a row per group, or columns node,group).
    nest
        How one group runs, as text: loops, what each of them holds, and the operators inside (docs/nests.md).
    top
        Groups listed: those that do not fit first, then those that move the most.
    out_dir
        Folder for plan.json and simplified.onnx.
    """
    check_top(top)
    if groups is None and nest is None:
        raise InvalidConfig("found neither --groups nor --nest; accepted: one of them, or both")
    if out_dir is not None:
        check_folder(out_dir)
    given = {
        "scheme": scheme,
        "traffic": traffic,
        "epilogue": epilogue == "on",
        "band_rows": band_rows,
        "max_recompute": max_recompute,
    }
    job = validate(Config, {"model": "model", "hardware": {"buffer_bytes": 1}, **given}, "command line")
    graph = load_network(model, parse_shapes(input_shape), rules, weights=out_dir is not None)
    note(graph)
    flow = Dataflow.of(graph)
    partition = () if groups is None else read_groups(groups, flow)
    nests: dict[str, str] = {}
    if nest is not None:
        nests[str(nest)] = read_nest(nest)
        members = operators_of_nest(nests[str(nest)], flow, str(nest))
        partition = (members, *(names for names in partition if {*names} != {*members}))
    priced = judge(graph, replace(job, hardware=chip(hardware, buffer, element_bytes)), partition, nests)
    plan = None if priced.draft is None else overlapped(priced.draft.finished(), graph)
    recounted = True
    if plan is not None and nest is not None:
        verification = verified(plan, graph)
        if wrong := verification.false:
            accepted = "loops in which every result is complete before it is read, and stored once"
            raise InvalidConfig(one_line(f"{nest}: found that {wrong[0]}; accepted: {accepted}"))
        recounted = not verification.beyond
    report = None if plan is None else simulate(plan, graph)
    _print(graph.name, priced, report, top)
    if plan is not None and out_dir is not None:
        if nest is None:
            recounted = require_true(plan, graph)
        plan = write_files(plan, graph, out_dir)
        out.print(f"\n[dim]wrote[/] {shown(out_dir)}/plan.json [dim]and[/] simplified.onnx", soft_wrap=True)
    answer(_answer(priced, report))
    if plan is None:
        return 1
    if not recounted:
        err.print("note: the plan has more steps than a recount follows", style="yellow")
    if plan.groups_without_steps or not recounted:
        return WITHOUT_STEPS
    return 0


def _answer(priced: PricedPartition, report: Report | None) -> CostAnswer:
    groups = tuple(_priced(names, price) for names, price in zip(priced.groups, priced.prices, strict=True))
    cost_answer = CostAnswer(not priced.illegal, priced.illegal, groups, priced.costs.hardware.assumed)
    if report is None:
        return cost_answer
    return replace(
        cost_answer,
        dram=report.dram,
        dram_bytes=report.dram.total,
        cycles=report.cycles.total,
        energy_pj=report.energy.total_pj,
        lower_bound_bytes=report.baselines.lower_bound_bytes,
        compulsory_bytes=report.baselines.compulsory_bytes,
    )


def _priced(names: tuple[str, ...], price: Cost | DoesNotFit | None) -> PricedAnswer:
    if isinstance(price, Cost):
        return PricedAnswer(names, price.mode, price.dram_bytes, price.buffer_bytes, price.required_bytes)
    return PricedAnswer(
        names,
        does_not_fit=None if price is None else MisfitAnswer(price.needed, price.available, price.store),
    )


def _print(name: str, priced: PricedPartition, report: Report | None, top: int) -> None:
    hardware = priced.costs.hardware
    if priced.left_out:
        alone = f", {plural(priced.left_out, 'operator')} alone that the file does not name"
    else:
        alone = ""
    out.print(
        f"[bold]{escape(name)}[/]: {plural(len(priced.groups), 'group')}{alone}; {memories(hardware)}, "
        f"scheme {priced.costs.scheme}\n"
    )
    for line in priced.illegal[:REASONS]:
        out.print(f"[red]not legal[/] {shown(line)}", soft_wrap=True)
    if rest := priced.illegal[REASONS:]:
        out.print(f"... and {plural(len(rest), 'reason')} more")
    numbered = sorted(
        enumerate(zip(priced.groups, priced.prices, strict=True)), key=lambda item: _rank(item[1][1])
    )
    known = by_name(priced.costs.dataflow.graph)
    rows = [
        [f"{k} {span(names)}", str(len(names)), *_price(price, hardware.buffer_bytes)]
        for k, (names, price) in numbered[:top]
    ]
    modules = [scope_of_named(known, names) for _, (names, _) in numbered[:top]]
    out.print(named_table(("group", "ops", "mode", "DRAM bytes", "buffer", "full"), rows, modules))
    if rest := numbered[top:]:
        out.print(f"[dim]{plural(len(rest), 'group')} more: --top[/]")
    for k, (names, price) in numbered:
        if isinstance(price, DoesNotFit):
            if price.needed < 1 << 60:
                why = f"needs {price.needed:,} B of {price.store}, there are {price.available:,}"
            else:
                why = "no buffer is large enough"
            out.print(f"[red]does not fit[/] group {k}, {shown(span(names))}: {why}", soft_wrap=True)
    if report is None:
        if any(isinstance(price, DoesNotFit) for price in priced.prices):
            out.print("[dim]lfopt explain says what overflows, and where to cut[/]")
        return
    least = report.baselines.compulsory_bytes
    out.print(
        f"\n[bold]{report.dram.total:,} B of DRAM[/], {report.dram.total / max(least, 1):.3f} x compulsory "
        f"({least:,} B)"
    )
    if hardware.l2_bytes:
        out.print(
            f"[dim]{report.l2.total:,} B pass through the second level instead; prices of groups are without "
            "it[/]"
        )
    out.print(
        f"[dim]model: {report.cycles.total:,} cycles, {report.energy.total_pj / 1e6:,.1f} uJ; on "
        f"{speed(report.hardware)}[/]",
        soft_wrap=True,
    )


def _rank(price: Cost | DoesNotFit | None) -> tuple[int, int]:
    if price is None:
        return (0, 0)
    if isinstance(price, DoesNotFit):
        return (1, 0)
    return (2, -price.dram_bytes)


def _price(price: Cost | DoesNotFit | None, beta: int) -> tuple[str, str, str, str]:
    if isinstance(price, Cost):
        return (
            price.mode,
            f"{price.dram_bytes:,}",
            f"{price.buffer_bytes:,}",
            share_of(price.buffer_bytes, beta),
        )
    if price is None:
        return "not legal", "", "", ""
    return "does not fit", "", f"{price.needed:,}" if price.needed < 1 << 60 else "any", ""
