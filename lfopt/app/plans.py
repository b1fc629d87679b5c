"""From the groups that a search found to a plan, and from a plan to files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lfopt.app.files import sha256, write_plan
from lfopt.app.sizes import bytes_text
from lfopt.frontend import save
from lfopt.fusion import legal
from lfopt.ir import CannotWrite, DoesNotFit, FusionScheme, Graph, InvalidPlan, ModelReference, Plan, SearchRecord
from lfopt.planning import GroupCosts, Limit, Outline, Propose, memory_map, outline, totals_of, with_steps
from search.problem import Front, Result

MODEL = "simplified.onnx"  # the file beside plan.json


@dataclass(frozen=True, eq=False)
class Draft:
    """A plan whose steps are still to be made: partition, modes, bytes and proof."""

    graph: Graph
    costs: GroupCosts
    plan: Plan  # without places and steps; the digest of its model comes when that is written
    outlines: tuple[Outline, ...]

    def finished(self, limit: Limit) -> Plan:
        """The same with its steps, as far as the limit allows."""
        return replace(self.plan, groups=with_steps(self.costs, self.outlines, limit))


def make_draft(
    graph: Graph, costs: GroupCosts, result: Result, bound: int, front: Front = (), guidance: str = "none", bands: Propose | None = None
) -> Draft:
    """Plan the groups that a search found, and check them; `front`: of a search that keeps one.

    `bands`: how many rows at a time groups in mode lbdf may run in (see `lfopt.planning.plan.outline`).
    """
    scheme = FusionScheme(tuple(costs.dataflow.names(group) for group in result.groups))
    verdict = legal(graph, scheme)
    if not verdict.legal:
        raise InvalidPlan(f"the {result.method} search returned an illegal scheme: {verdict.reasons[0]}")
    outlines = outline(costs, result.groups, bands)
    if isinstance(outlines, DoesNotFit):
        raise InvalidPlan(
            f"the {result.method} search returned a group of {bytes_text(outlines.needed)} for a {outlines.store} of {bytes_text(outlines.available)}"
        )
    groups = tuple(found.group for found in outlines)
    plan = Plan(
        model=ModelReference(graph.name, "", MODEL),
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
    return Draft(graph, costs, plan, outlines)


def write_files(plan: Plan, graph: Graph, folder: Path) -> Plan:
    """Write simplified.onnx and plan.json; gives the plan with the digest of its model. Raises CannotWrite."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be made: {error.strerror or error}") from None
    save(graph, folder / MODEL)
    plan = replace(plan, model=replace(plan.model, sha256=sha256(folder / MODEL)))
    write_plan(plan, folder / "plan.json")
    return plan


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
    """`make_draft`, its steps, and `write_files`."""
    return write_files(make_draft(graph, costs, result, bound, front, guidance, bands).finished(Limit()), graph, folder)
