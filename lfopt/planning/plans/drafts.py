"""From a fusion scheme to a plan, in memory: no file is read or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import Literal, get_args

from lfopt.fusion import legal
from lfopt.ir import (
    MOST_LINES,
    Copy,
    DoesNotFit,
    FusionScheme,
    Graph,
    Hardware,
    InvalidConfig,
    InvalidPlan,
    ModelReference,
    Plan,
    Scheme,
    SearchRecord,
    TrafficName,
    line_count,
)
from lfopt.ops import Dataflow, bits
from lfopt.planning.chains.linking import relink
from lfopt.planning.costs.group_costs import GroupCosts, Traffic
from lfopt.planning.costs.two_levels import bound_with_second_level
from lfopt.planning.defaults import BAND_ROWS, EPILOGUE, GROUP_SCHEME, MAX_RECOMPUTE, TRAFFIC
from lfopt.planning.modes import SCHEMES
from lfopt.planning.plans.band_rows import Propose, up_to
from lfopt.planning.plans.outlines import (
    NO_OUTLINES,
    MadeSteps,
    Outline,
    masks_of,
    memory_map,
    outline,
    totals_of,
    with_steps,
)
from lfopt.planning.plans.second_level import SecondLevelPlan, in_levels
from lfopt.planning.steps.limit import Limit
from lfopt.planning.steps.macs import executed_macs

MODEL = "simplified.onnx"  # the file beside plan.json
MANY = 64  # a group with more than this part of all lines that a plan may have gives way to others
GIVEN = SearchRecord("given", None, 0, 0, 0.0)  # of a scheme that no search of lfopt has found


@dataclass(frozen=True, eq=False)
class PlanDraft:
    """A plan whose steps are still to be made: partition, modes, bytes and proof.

    For a second level they are made: its bytes follow from them.
    """

    graph: Graph
    costs: GroupCosts
    plan: Plan  # not written; without places and steps, unless the chip has a second level
    outlines: tuple[Outline, ...]

    def finished(self, limit: Limit | None = None, made_steps: MadeSteps | None = None) -> Plan:
        """The plan with its steps, as far as the limit allows.

        `made_steps`: steps made for other plans of these costs, to which those made here are added.
        """
        if self.costs.hardware.l2_bytes:
            return self.plan
        costs = self.costs
        groups = with_steps(self.costs, self.outlines, limit or Limit(), made_steps)
        return replace(
            self.plan,
            groups=groups,
            # what is spilled, and computed again, only the steps say
            memory=memory_map(costs, groups),
            totals=replace(self.plan.totals, macs=executed_macs(costs.dataflow, groups)),
        )

    def finished_with_all_steps(self, lines: int = MOST_LINES) -> Plan:
        """The plan, in which operators run alone where the steps of all groups would be too many.

        `lines`: of steps that a plan has at most. Groups of many give way, besides those for whose steps
        there was no room.
        """
        plan = self.finished(Limit(lines=lines))
        if not any(group.unwritten for group in plan.groups):
            return plan
        groups: list[int] = []
        for outlined, group in zip(self.outlines, plan.groups, strict=True):
            long = group.unwritten or line_count(group.steps) > lines // MANY
            groups += [1 << i for i in bits(outlined.mask)] if long else [outlined.mask]
        if len(groups) == len(plan.groups):
            return plan
        return self.regrouped(executable(self.costs.dataflow, groups)).finished_with_all_steps(lines)

    def regrouped(self, groups: tuple[int, ...]) -> PlanDraft:
        """The draft of another legal scheme of these costs, in the order given, under the same bound.

        Groups of both plans run as they do here, and no time is spent on choices for others.
        """
        known = {outlined.mask: outlined for outlined in self.outlines}
        outlines = outline(self.costs, groups, late=lambda: True, known=known)
        assert not isinstance(outlines, DoesNotFit), "groups of a legal scheme may run"
        costs = self.costs
        before = self.plan
        planned = tuple(outlined.group for outlined in outlines)
        unfused = costs.unfused(before.copies)
        bound = before.totals.lower_bound_bytes
        plan = replace(
            before,
            memory=memory_map(costs, planned),
            groups=planned,
            totals=totals_of(unfused, planned, bound, costs.dataflow),
        )
        return replace(self, plan=plan, outlines=outlines)


def plan(
    graph: Graph,
    scheme: FusionScheme,
    hardware: Hardware,
    *,
    modes: Scheme = GROUP_SCHEME,
    traffic: TrafficName = TRAFFIC,
    epilogue: bool = EPILOGUE,
    band_rows: int | Literal["max"] = BAND_ROWS,
    max_recompute: float = MAX_RECOMPUTE,
    lower_bound_bytes: int | None = None,
    search: SearchRecord = GIVEN,
    limit: Limit | None = None,
) -> Plan | DoesNotFit:
    """The plan that carries out a fusion scheme, with all steps; or the first group that does not fit.

    Writes no file. `scheme`: every operator but views in exactly one group, by name; groups may come in any
    order, and are planned in an executable one, the given one where it is. `modes`: the scheme of modes in
    which groups may run, a row of `lfopt.planning.modes.SCHEMES`. `traffic`: how operators that do not fit
    are counted. `epilogue`: whether elementwise operators may always join their producer. `band_rows`: rows
    that a group in mode lbdf makes at a time, as many of them as fit. `max_recompute`: multiply-accumulates
    that a group may do over those of its operators, where the modes compute something again.
    `lower_bound_bytes`: what a search has proven that no scheme of these modes can avoid; None: what follows
    from the network and the chip alone. `search`: how the scheme was found. `limit`: steps beyond it are left
    out, and their groups say so.

    Raises InvalidPlan for a scheme that is not legal (see `lfopt.fusion.legal`), InvalidConfig for an option.
    """
    for name, value, accepted in (
        ("modes", modes, tuple(SCHEMES)),
        ("traffic", traffic, get_args(TrafficName)),
    ):
        if value not in accepted:
            raise InvalidConfig(f"{name}: found {value!r}; accepted: {', '.join(accepted)}")
    if band_rows != "max" and (type(band_rows) is not int or band_rows < 1):
        raise InvalidConfig(f"band_rows: found {band_rows!r}; accepted: a whole number of at least 1, or max")
    verdict = legal(graph, scheme)
    if not verdict.legal:
        raise InvalidPlan(f"scheme: not legal: {verdict.reasons[0]}")
    costs = GroupCosts.of(
        graph,
        hardware,
        Traffic(traffic),
        scheme=modes,
        epilogue=epilogue,
        max_recompute=max_recompute,
        groups=scheme.groups,
    )
    groups = executable(costs.dataflow, masks_of(costs.dataflow, scheme.groups))
    relink(costs, groups)
    if lower_bound_bytes is None:
        bound = costs.proven_bytes(costs.least_bytes - costs.bounds.shareable_bytes)
    else:
        bound = lower_bound_bytes
    drafted = draft(
        graph,
        costs,
        groups,
        bound,
        search,
        up_to(costs, None if band_rows == "max" else band_rows),
        limit=limit,
    )
    if isinstance(drafted, DoesNotFit):
        return drafted
    return drafted.finished(limit)


def draft(
    graph: Graph,
    costs: GroupCosts,
    groups: tuple[int, ...],
    lower_bound_bytes: int,
    search: SearchRecord,
    bands: Propose | None = None,
    copies: tuple[Copy, ...] = (),
    max_recompute: float | None = None,
    limit: Limit | None = None,
    known: Mapping[int, Outline] = NO_OUTLINES,
) -> PlanDraft | DoesNotFit:
    """The plan of groups (masks) that make a legal scheme, in the order given, but for its steps.

    For `bands` and `known` see `outline`.

    `copies`: operators of the network that compute something again; `max_recompute`: multiply-accumulates
    that the plan was allowed, over those of the network without copies; None: as many as each group was.
    `limit`: of what is made here: layouts, and the steps that a second level needs.
    """
    limit = limit or Limit()
    outlines = outline(costs, groups, bands, lambda: bool(limit.over), known)
    if isinstance(outlines, DoesNotFit):
        return outlines
    planned = tuple(outlined.group for outlined in outlines)
    level = SecondLevelPlan()
    if costs.hardware.l2_bytes:
        planned, level = in_levels(costs.dataflow, costs.hardware, with_steps(costs, outlines, limit))
        search = replace(search, l2=level.choice)
        lower_bound_bytes = bound_with_second_level(costs, lower_bound_bytes, copies)
    unfinished = Plan(
        model=ModelReference(graph.name, "", MODEL),
        hardware=costs.hardware,
        scheme=costs.scheme,
        traffic=costs.traffic.value,
        epilogue=costs.epilogue,
        memory=memory_map(costs, planned, level.addresses),
        groups=planned,
        totals=totals_of(costs.unfused(copies), planned, lower_bound_bytes, costs.dataflow),
        search=search,
        max_recompute=costs.max_recompute if max_recompute is None else max_recompute,
        copies=copies,
    )
    return PlanDraft(graph, costs, unfinished, outlines)


def executable(flow: Dataflow, groups: Sequence[int]) -> tuple[int, ...]:
    """The groups of a legal scheme in topological order, of those ready the one that was given first."""
    owner = {i: g for g, mask in enumerate(groups) for i in bits(mask)}
    order = TopologicalSorter(
        {
            g: {owner[p] for i in bits(mask) for p in bits(flow.preds[i])} - {g}
            for g, mask in enumerate(groups)
        }
    )
    order.prepare()
    ready = list(order.get_ready())
    sequence = list[int]()
    heapify(ready)
    while ready:
        sequence.append(g := heappop(ready))
        order.done(g)
        for freed in order.get_ready():
            heappush(ready, freed)
    return tuple(groups[g] for g in sequence)
