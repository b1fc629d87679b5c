"""Recount of the second level of memory, and the plan with that level as DRAM, for all other checks.

A map lies in one memory, and is moved between that memory and the buffer: no transfer may say otherwise. The
bytes of a second level are counted here apart from the plan's own sums, in the classes in which DRAM would
count them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from lfopt.ir import DramBytes, Hardware, L2Bytes, Loop, Node, Plan, PlannedGroup, Transfer, leaves
from simulator.recount.groups import moved_once
from simulator.recount.network import RecountNetwork

L2_CHOICES = ("exact", "heuristic")


def one_level(net: RecountNetwork, plan: Plan) -> tuple[Plan, list[str]]:
    """(plan with everything in DRAM, problems of its claims about the second level)."""
    inside = {entry.name for entry in plan.memory if entry.memory == "l2"}
    wrong = [*_impossible(plan)]
    groups: list[PlannedGroup] = []
    for group in plan.groups:
        moved: dict[str, int] = {}
        l2_bytes = [0, 0]
        inner = inner_maps(net, group.nodes)
        steps = tuple(_in_dram(net, inner, node, 1, moved, l2_bytes) for node in group.steps)
        wrong += _misplaced(net, group, inside, plan.hardware)
        if group.l2 != (counted := L2Bytes(*l2_bytes)):
            wrong.append(f"group {group.id}: second level: the plan says {group.l2}, counted {counted}")
        groups.append(
            replace(group, steps=steps, dram=group.dram + DramBytes(**moved), l2=L2Bytes())
            if moved
            else group
        )
    return replace(plan, groups=tuple(groups)), wrong


def inner_maps(net: RecountNetwork, nodes: Iterable[str]) -> set[str]:
    """Maps that operators of a group make and nothing else needs."""
    members = {op for op in nodes if op in net.operators}
    return {name for op in members for name in net.makes[op] if not net.needed_outside(name, members)}


def _impossible(plan: Plan) -> Iterator[str]:
    """Problems of options: what the chip, or the space of plans, does not allow."""
    if plan.hardware.l2_bytes:
        if plan.traffic != "tiled":
            yield f"traffic {plan.traffic} on a chip with a second level; a recount knows tiled"
        if plan.search.l2 not in L2_CHOICES:
            yield (
                f"search.l2: found {plan.search.l2}; accepted on a chip with a second level: "
                f"{', '.join(L2_CHOICES)}"
            )
    elif plan.search.l2 != "none":
        yield f"search.l2: found {plan.search.l2}, and the chip has no second level"


def _in_dram(
    net: RecountNetwork,
    inner: Container[str],
    node: Node,
    times: int,
    moved: dict[str, int],
    l2_bytes: list[int],
) -> Node:
    """A node with transfers of the second level as transfers of DRAM.

    `inner`: maps of the group that nothing else needs. Adds their bytes to `moved`, by class, and to
    `l2_bytes`: read, written.
    """
    if isinstance(node, Loop):
        return replace(
            node,
            body=tuple(
                _in_dram(net, inner, below, times * max(node.count, 0), moved, l2_bytes)
                for below in node.body
            ),
        )
    if not isinstance(node, Transfer) or node.kind != "l2":
        return node
    spilled = net.behind.get(node.tensor, node.tensor) in inner
    kind = "spill" if spilled else "output" if node.store else "input"
    size = times * node.rows * node.row_bytes
    moved[kind] = moved.get(kind, 0) + size
    l2_bytes[node.store] += size
    return replace(node, kind=kind)


def _misplaced(
    net: RecountNetwork, group: PlannedGroup, inside: set[str], hardware: Hardware
) -> Iterator[str]:
    """Problems of transfers whose memory is not the one in which their map lies."""
    members = [op for op in group.nodes if op in net.operators]
    once = moved_once(net, members, hardware)
    if not group.steps and (odd := inside.intersection((*once.inputs, *once.outputs))):
        yield f"group {group.id}: it has no steps, and {min(odd)!r} lies in the second level"
    reported: set[tuple[str, bool]] = set()
    for step in leaves(group.steps):
        if isinstance(step, Transfer):
            if step.kind in ("input", "output", "spill", "l2") and not step.gather:
                name = net.behind.get(step.tensor, step.tensor)
            else:
                name = ""
            in_level_2 = name in inside
            if in_level_2 != (step.kind == "l2") and (step.tensor, in_level_2) not in reported:
                reported.add((step.tensor, in_level_2))
                verb = "store" if step.store else "load"
                yield (
                    f"group {group.id}: {verb} {step.tensor!r} as {step.kind}, and it lies in "
                    f"{'the second level' if in_level_2 else 'DRAM'}"
                )
