"""lfopt check: recount a plan."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import isfinite
from pathlib import Path
from typing import get_args

from rich.markup import escape

from lfopt.app.config import Method
from lfopt.app.files import read_plan, sha256
from lfopt.app.screen import out, table
from lfopt.frontend import load
from lfopt.ir import InvalidPlan, Plan
from simulator.recount import Recount, recount

SHOWN = 20  # discrepancies printed


def check(plan: Path) -> int:
    """Recount everything that a plan claims, from simplified.onnx beside it and the plan's own steps.

    The recount shares nothing with the planner but the graph and the operator table. Exit code 0: every figure holds; 1: something does not.

    Parameters
    ----------
    plan
        plan.json, or the folder it is in.
    """
    file = plan / "plan.json" if plan.is_dir() else plan
    claimed = read_plan(file)
    model = file.parent / claimed.model.onnx
    if Path(claimed.model.onnx).name != claimed.model.onnx:
        raise InvalidPlan(f"{file}: model.onnx: found {claimed.model.onnx!r}; accepted: a file name without folders")
    graph = load(model)
    counted = recount(graph, claimed)
    found = [*counted.discrepancies, *search_problems(claimed)]
    if (digest := sha256(model)) != claimed.model.sha256:
        found.insert(0, f"{model.name}: its SHA-256 is {digest[:16]}..., the plan was made for {claimed.model.sha256[:16]}...")
    _print(claimed, counted, found)
    return 1 if found else 0


def search_problems(plan: Plan) -> Iterator[str]:
    """What cannot be in the record of the search. How long it took, and after how many evaluations, cannot be recounted."""
    record, bound = plan.search, plan.totals.lower_bound_bytes
    if record.method not in get_args(Method):
        yield f"search.method: found {record.method!r}; accepted: {', '.join(get_args(Method))}"
    if not (isfinite(record.seconds) and record.seconds >= 0):
        yield f"search.seconds: found {record.seconds}; accepted: at least 0"
    for name, value in (("evaluations", record.evaluations), ("seed", record.seed or 0)):
        if value < 0:
            yield f"search.{name}: found {value}; accepted: at least 0"
    for dram, need in record.front:
        if need < 0 or dram < (0 if plan.totals.proof == "none" else bound):
            yield f"search.front: {dram} B moved with {need} B of buffer is less than the bound of {bound}"
    if any(a[0] <= b[0] and a[1] <= b[1] for a, b in permutations(record.front, 2)):
        yield "search.front: one of its plans is no better in anything than another"


def _print(claimed: Plan, counted: Recount, found: list[str]) -> None:
    rows = table("", "plan says", "recounted")
    for name in ("dram_bytes", "layer_by_layer_bytes", "epilogue_fused_bytes", "compulsory_bytes", "excluded_bytes"):
        rows.add_row(name.removesuffix("_bytes").replace("_", " "), f"{getattr(claimed.totals, name):,}", f"{getattr(counted, name):,}")
    out.print(rows)
    for line in found[:SHOWN]:
        out.print(f"[red]wrong[/] {escape(line)}", soft_wrap=True)
    if len(found) > SHOWN:
        out.print(f"... and {len(found) - SHOWN} more")
    without, unknown = counted.by_formula, counted.not_recounted
    out.print(f"{_groups(len(claimed.groups) - without[0] - unknown[0])} recounted from {counted.steps:,} steps")
    if without[0]:
        out.print(f"{_groups(without[0])} without steps: {without[1]:,} B recounted by formula, every tensor once")
    if unknown[0]:
        out.print(f"[yellow]{_groups(unknown[0])} not recounted, without steps (or with too many) or a formula: {unknown[1]:,} B[/]")
    operators = sum(len(group.nodes) for group in claimed.groups)
    holds = "every figure holds" + (" that could be recounted" if unknown[0] else "")
    verdict = f"[red]{len(found)} {'claim is' if len(found) == 1 else 'claims are'} wrong[/]" if found else f"[green]{holds}[/]"
    out.print(f"{_groups(len(claimed.groups))}, {operators} operators: {verdict}")


def _groups(count: int) -> str:
    return f"{count} group" + "s" * (count != 1)
