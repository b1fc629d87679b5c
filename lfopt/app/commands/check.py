"""lfopt check: recount a plan."""

from __future__ import annotations

from dataclasses import replace

from lfopt.app.answers.plans import CheckAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.commands.options import check_seconds
from lfopt.app.options import PlanOption, ProofSecondsOption, ProveOption
from lfopt.app.proving import proven_again
from lfopt.app.screen import out, progress_line, shown, table
from lfopt.app.verify import Verified, verify
from lfopt.ir import Plan

SHOWN = 20  # discrepancies printed
FIGURES = (
    "dram_bytes",
    "layer_by_layer_bytes",
    "epilogue_fused_bytes",
    "compulsory_bytes",
    "without_recompute_bytes",
    "excluded_bytes",
)
NAMES = {"l2_bytes": "second level, beside"}


def check(
    plan: PlanOption, /, *, prove: ProveOption = False, time_limit: ProofSecondsOption | None = None
) -> int:
    """Recount everything that a plan claims, from simplified.onnx beside it and the plan's own steps.

    Example: lfopt check runs/mobilenet_v2 --prove

    The recount shares nothing with the planner but the graph and the operator table. A lower bound cannot be
    recounted; --prove runs the exact search again, and compares. Exit code 0: every figure holds; 1:
    something does not.
    """
    check_seconds(time_limit)
    verification = verify(plan)
    if prove and not verification.wrong:  # what else is wrong comes first
        with progress_line() as report:
            again = proven_again(verification.plan, verification.graph, time_limit, report)
        verification = replace(verification, **again._asdict())
    _print(verification)
    answer(_answer(verification))
    if verification.wrong:
        return 1
    return 0


def _answer(verified: Verified) -> CheckAnswer:
    counted = verified.recount
    totals = verified.plan.totals
    if counted is None:
        return CheckAnswer(totals, None, verified.bound, verified.nothing_kept, 0, 0, 0, verified.wrong)
    figures = {name: getattr(counted, name) for name in _figures(verified.plan)}
    return CheckAnswer(
        totals,
        figures,
        verified.bound,
        verified.nothing_kept,
        counted.steps,
        counted.by_formula[0],
        counted.not_recounted[0],
        verified.wrong,
    )


def _figures(plan: Plan) -> tuple[str, ...]:
    if plan.hardware.l2_bytes:
        return (*FIGURES, "l2_bytes")
    return FIGURES


def _print(verified: Verified) -> None:
    claimed = verified.plan
    counted = verified.recount
    wrong = verified.wrong
    if counted is not None:
        rows = table("", "plan says", "recounted")
        for name in _figures(claimed):
            claim = getattr(claimed.totals, name)
            title = NAMES.get(name, name.removesuffix("_bytes").replace("_", " "))
            rows.add_row(title, "" if claim is None else f"{claim:,}", f"{getattr(counted, name):,}")
        rows.add_row("lower bound", f"{claimed.totals.lower_bound_bytes:,}", verified.bound)
        if verified.nothing_kept:
            unkept = claimed.search.nothing_kept.lower_bound_bytes
            rows.add_row("the same, if no map stays", f"{unkept:,}", verified.nothing_kept)
        out.print(rows)
    for line in wrong[:SHOWN]:
        out.print(f"[red]wrong[/] {shown(line)}", soft_wrap=True)
    if len(wrong) > SHOWN:
        out.print(f"... and {len(wrong) - SHOWN} more")
    if counted is None:
        out.print(
            f"{_groups(len(claimed.groups))}: [red]none recounted: the plan was made for another network[/]"
        )
        return
    without = counted.by_formula
    unknown = counted.not_recounted
    through = sum(group.is_access for group in claimed.groups)
    walked = len(claimed.groups) - without[0] - unknown[0] - through
    out.print(f"{_groups(walked)} recounted from {counted.steps:,} steps")
    if through:
        out.print(f"{_groups(through)} read through: an operator that only moves data, of which nothing runs")
    if without[0]:
        out.print(
            f"{_groups(without[0])} without steps: {without[1]:,} B recounted by formula, every tensor once"
        )
    if unknown[0]:
        out.print(
            f"[yellow]{_groups(unknown[0])} not recounted, without steps (or with too many) or a formula: "
            f"{unknown[1]:,} B[/]"
        )
    operators = sum(len(group.nodes) for group in claimed.groups)
    holds = "every figure holds" + (" that could be recounted" if unknown[0] else "")
    if wrong:
        verdict = f"[red]{len(wrong)} {'claim is' if len(wrong) == 1 else 'claims are'} wrong[/]"
    else:
        verdict = f"[green]{holds}[/]"
    out.print(f"{_groups(len(claimed.groups))}, {operators} operators: {verdict}")


def _groups(count: int) -> str:
    return f"{count} group" + "s" * (count != 1)
