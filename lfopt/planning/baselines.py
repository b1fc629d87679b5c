"""Baselines of a plan: layer by layer, epilogue fusion, the compulsory bound."""

from __future__ import annotations

from lfopt.ops import bits
from lfopt.planning.costs import GroupCosts, Traffic


def layer_by_layer_bytes(costs: GroupCosts) -> int:
    """DRAM bytes of every operator alone, every tensor once."""
    return once_bytes(costs, tuple(1 << i for i in range(len(costs.dataflow))))


def epilogue_fused_bytes(costs: GroupCosts) -> int:
    """DRAM bytes of epilogue fusion, every tensor once, whatever the buffer.

    What today's compilers fuse: every epilogue group that can be had in topological order.
    """
    return once_bytes(costs, epilogue_groups(costs))


def once_bytes(costs: GroupCosts, groups: tuple[int, ...]) -> int:
    """DRAM bytes of a scheme with every tensor once; excluded operators (traffic paper) are left out."""
    moved = costs.groups.once if costs.traffic is Traffic.TILED else costs.dram
    return sum(moved(group).total for group in groups if not group & costs.excluded)


def epilogue_groups(costs: GroupCosts) -> tuple[int, ...]:
    """Greedy epilogue fusion: masks of the groups.

    Each elementwise operator joins the group of an operand, the latest first, where that makes an epilogue
    group and no cycle.
    """
    flow = costs.dataflow
    groups: list[int] = []
    waits: list[int] = []  # per group: mask of the groups that it depends on
    owner: dict[int, int] = {}
    for i in range(len(flow)):
        sources = {owner[p] for p in bits(flow.preds[i])}
        for g in sorted(sources, reverse=True):
            cyclic = any(waits[h] >> g & 1 for h in sources - {g})
            if (
                not cyclic
                and not costs.excluded & (groups[g] | 1 << i)
                and costs.groups.extends(groups[g], i)
            ):
                groups[g] |= 1 << i
                break
        else:
            g = len(groups)
            groups.append(1 << i)
            waits.append(0)
        owner[i] = g
        added = 0
        for h in sources - {g}:
            added |= waits[h] | 1 << h
        joined = groups[g] != 1 << i and added & ~waits[g]
        waits[g] |= added
        for k, depends in enumerate(waits) if joined else ():
            if depends >> g & 1:
                waits[k] |= added
    return tuple(groups)
