"""lfopt check: recount a plan."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from lfopt.app.files import read_plan, sha256
from lfopt.app.screen import out, table
from lfopt.frontend import load
from lfopt.ir import InvalidPlan
from simulator.recount import recount

SHOWN = 20  # discrepancies printed


def check(plan: Path) -> int:
    """Recount everything that a plan claims, from simplified.onnx beside it.

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
    found = list(counted.discrepancies)
    if (digest := sha256(model)) != claimed.model.sha256:
        found.insert(0, f"{model.name}: its SHA-256 is {digest[:16]}..., the plan was made for {claimed.model.sha256[:16]}...")
    rows = table("", "plan says", "recounted")
    for name in ("dram_bytes", "layer_by_layer_bytes", "epilogue_fused_bytes", "compulsory_bytes", "excluded_bytes"):
        rows.add_row(name.removesuffix("_bytes").replace("_", " "), f"{getattr(claimed.totals, name):,}", f"{getattr(counted, name):,}")
    out.print(rows)
    for line in found[:SHOWN]:
        out.print(f"[red]wrong[/] {escape(line)}", soft_wrap=True)
    if len(found) > SHOWN:
        out.print(f"... and {len(found) - SHOWN} more")
    operators = sum(len(group.nodes) for group in claimed.groups)
    out.print(
        f"{len(claimed.groups)} groups, {operators} operators: " + (f"[red]{len(found)} claims are wrong[/]" if found else "every figure holds")
    )
    return 1 if found else 0
