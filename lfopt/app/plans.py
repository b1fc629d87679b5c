"""From the groups that a search found to a plan, and from a plan to files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lfopt.app.files import sha256, write_plan
from lfopt.app.options import GUIDANCE
from lfopt.app.sizes import bytes_text
from lfopt.frontend import save
from lfopt.fusion import legal
from lfopt.ir import CannotWrite, Copy, DoesNotFit, FusionScheme, Graph, InvalidPlan, Plan, SearchRecord
from lfopt.planning import MODEL, NO_OUTLINES, GroupCosts, Limit, Outline, PlanDraft, Propose, draft
from search.objectives import Objective
from search.result import Front, Result


def make_draft(
    graph: Graph,
    costs: GroupCosts,
    result: Result,
    bound: int,
    front: Front = (),
    guidance: str = GUIDANCE,
    bands: Propose | None = None,
    copies: tuple[Copy, ...] = (),
    max_recompute: float | None = None,
    objective: str = Objective.name,
    limit: Limit | None = None,
    known: Mapping[int, Outline] = NO_OUTLINES,
) -> PlanDraft:
    """Plan the groups that a search found, and check them. Writes no file.

    `bound`: bytes, as proven. `front`: of a search that keeps one. `bands`: how many rows at a time groups in
    mode lbdf may run in (see `lfopt.planning.outline`); `copies`: operators that compute something again,
    `max_recompute`, `limit` and `known`: see `lfopt.planning.draft`. Raises InvalidPlan for groups that are
    not legal or do not fit.
    """
    scheme = FusionScheme(tuple(costs.dataflow.names(group) for group in result.groups))
    verdict = legal(graph, scheme)
    if not verdict.legal:
        raise InvalidPlan(f"the {result.method} search returned an illegal scheme: {verdict.reasons[0]}")
    points = tuple((dram, need) for dram, need, _ in front)
    counts = result.plans_evaluated, result.groups_evaluated, round(result.seconds, 3)
    record = SearchRecord(
        result.method, result.seed, *counts, points, guidance, objective, costs.constraints,
        nothing_kept=result.nothing_kept, certificate=result.certificate,
    )  # fmt: skip
    drafted = draft(graph, costs, result.groups, bound, record, bands, copies, max_recompute, limit, known)
    if isinstance(drafted, DoesNotFit):
        raise InvalidPlan(
            f"the {result.method} search returned a group of {bytes_text(drafted.needed)} for a "
            f"{drafted.store} of {bytes_text(drafted.available)}"
        )
    return drafted


def write_files(plan: Plan, graph: Graph, folder: Path) -> Plan:
    """Write simplified.onnx and plan.json; gives the plan with the digest of its model.

    Raises CannotWrite.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be made: {error.strerror or error}") from None
    save(graph, folder / MODEL)
    plan = replace(plan, model=replace(plan.model, sha256=sha256(folder / MODEL)))
    write_plan(plan, folder / "plan.json")
    return plan
