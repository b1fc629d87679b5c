"""Baselines of a plan: layer by layer, epilogue fusion, the compulsory bound."""

from __future__ import annotations

from lfopt.ops import bits
from lfopt.planning.costs.group_costs import GroupCosts


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
    return sum(costs.groups.once(group).total for group in groups if not group & costs.excluded)


def epilogue_groups(costs: GroupCosts) -> tuple[int, ...]:
    """Greedy epilogue fusion: masks of the groups.

    Each elementwise operator joins the group of an operand, the latest first, where that makes an epilogue
    group and no cycle.
    """
    flow = costs.dataflow
    groups: list[int] = []
    waits: list[int] = []  # per group: mask of the groups that it depends on
    readers: list[set[int]] = []  # per group: those that read its results
    owner: dict[int, int] = {}
    for i in range(len(flow)):
        sources = {owner[p] for p in bits(flow.preds[i])}
        needed = 0  # groups that the sources depend on
        for h in sources:
            needed |= waits[h]
        for g in sorted(sources, reverse=True):
            if (
                not needed >> g & 1
                and not costs.excluded & (groups[g] | 1 << i)
                and costs.groups.extends(groups[g], i)
            ):
                groups[g] |= 1 << i
                break
        else:
            g = len(groups)
            groups.append(1 << i)
            waits.append(0)
            readers.append(set())
        owner[i] = g
        added = 0
        for h in sources - {g}:
            added |= waits[h] | 1 << h
            readers[h].add(g)
        if added & ~waits[g]:
            _wait(g, added, waits, readers)
    return tuple(groups)


def _wait(group: int, added: int, waits: list[int], readers: list[set[int]]) -> None:
    """Let a group, and all that depend on it, depend on others too; `added`: a mask of these."""
    reached = {group}
    waiting = [group]
    while waiting:
        g = waiting.pop()
        waits[g] |= added
        for reader in readers[g] - reached:
            reached.add(reader)
            waiting.append(reader)
