"""From a scheme to a plan: every group with its mode, buffer, bytes by class, and what it loads and stores."""

from __future__ import annotations

from lfopt.ir import Cost, DoesNotFit, DramBytes, PlannedGroup
from lfopt.ops import bits
from lfopt.planning.costs import GroupCosts, Traffic


def plan_groups(costs: GroupCosts, groups: tuple[int, ...]) -> tuple[PlannedGroup, ...] | DoesNotFit:
    """The groups of a legal scheme, planned in the order given; or the first one that may not run."""
    planned: list[PlannedGroup] = []
    for group in groups:
        cost = costs.evaluate(group)
        if isinstance(cost, DoesNotFit):
            return cost
        planned.append(_planned(costs, group, cost, len(planned)))
    return tuple(planned)


def _planned(costs: GroupCosts, group: int, cost: Cost, number: int) -> PlannedGroup:
    flow = costs.dataflow
    made = {m for i in bits(group) for m in flow.results[i]}
    read = dict.fromkeys(o.map for i in bits(group) for o in flow.operands[i] if o.map not in made)
    stored = [m for m in sorted(made) if flow.is_output[m] or flow.readers[m] & ~group]
    return PlannedGroup(
        id=number,
        nodes=flow.names(group),
        mode=cost.mode,
        band_rows=1,
        weight_passes=costs.tile(group).weight_passes if cost.mode == "tiled" and costs.traffic is Traffic.TILED else 1,
        buffer_bytes=cost.buffer_bytes,
        dram=costs.dram(group),
        inputs=tuple(flow.maps[m].name for m in read),
        outputs=tuple(flow.maps[m].name for m in stored),
    )


def total_dram(groups: tuple[PlannedGroup, ...], *, mode: str | None = None) -> DramBytes:
    """Sum over the groups; excluded ones apart (mode="excluded" asks for just those)."""
    total = DramBytes()
    for group in groups:
        if (group.mode == mode) if mode else (group.mode != "excluded"):
            total += group.dram
    return total
