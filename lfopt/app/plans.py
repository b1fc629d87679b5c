"""From the groups that a search found to a plan on disk."""

from __future__ import annotations

from pathlib import Path

from lfopt.app.files import sha256, write_plan
from lfopt.frontend import save
from lfopt.fusion import check
from lfopt.ir import DoesNotFit, FusionScheme, Graph, InvalidPlan, ModelReference, Plan, SearchRecord
from lfopt.planning import GroupCosts, Propose, memory_map, plan_groups, totals_of
from search.problem import Front, Result


def write_result(
    graph: Graph,
    costs: GroupCosts,
    result: Result,
    bound: int,
    folder: Path,
    front: Front = (),
    guidance: str = "none",
    bands: Propose | None = None,
) -> Plan:
    """Plan the groups that a search found, check them, and write simplified.onnx and plan.json, with the front of a search that keeps one.

    `bands`: how many rows at a time groups in mode lbdf may run in (see `plan_groups`).
    """
    scheme = FusionScheme(tuple(costs.dataflow.names(group) for group in result.groups))
    verdict = check(graph, scheme)
    if not verdict.legal:
        raise InvalidPlan(f"the {result.method} search returned an illegal scheme: {verdict.reasons[0]}")
    groups = plan_groups(costs, result.groups, bands)
    if isinstance(groups, DoesNotFit):
        raise InvalidPlan(f"the {result.method} search returned a group of {groups.needed:,} B for a {groups.store} of {groups.available:,} B")
    folder.mkdir(parents=True, exist_ok=True)
    onnx_file = folder / "simplified.onnx"
    save(graph, onnx_file)
    plan = Plan(
        model=ModelReference(graph.name, sha256(onnx_file), onnx_file.name),
        hardware=costs.hardware,
        scheme=costs.scheme,
        traffic=costs.traffic.value,
        epilogue=costs.epilogue,
        memory=memory_map(costs, groups),
        groups=groups,
        totals=totals_of(costs, groups, bound),
        search=SearchRecord(
            result.method, result.seed, result.evaluations, round(result.seconds, 3), tuple((dram, need) for dram, need, _ in front), guidance
        ),
    )
    write_plan(plan, folder / "plan.json")
    return plan
