"""Plans that claim what their own steps and places say, whatever was done to those."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from lfopt.ir import Hardware, Loop, Node, Place, Plan, PlannedGroup, Transfer, dram_bytes, round_up, row_axis
from lfopt.planning import total_dram


def follow(plan: Plan) -> Plan:
    """Totals that agree with the groups."""
    moved, bound = total_dram(plan.groups).total, plan.totals.lower_bound_bytes
    proof = "optimal" if moved == bound else "bound"
    return replace(
        plan,
        totals=replace(
            plan.totals, dram_bytes=moved, gap=(moved - bound) / bound if bound else 0.0, proof=proof
        ),
    )


def follow_all(plan: Plan) -> Plan:
    """Bytes that agree with the boxes, groups with their steps and places, and totals with the groups."""

    def following(group: PlannedGroup) -> PlannedGroup:
        return (
            with_places(with_steps(group, group.steps, plan.hardware, constants=True), group.places)
            if group.steps
            else group
        )

    return follow(replace(plan, groups=tuple(map(following, plan.groups))))


def with_places(group: PlannedGroup, places: tuple[Place, ...]) -> PlannedGroup:
    """The buffer that the group claims follows."""
    return replace(group, places=places)


def with_steps(
    group: PlannedGroup, steps: tuple[Node, ...], hardware: Hardware, *, constants: bool = False
) -> PlannedGroup:
    """The bytes that the group claims follow."""
    steps = honest_bytes(steps, hardware, constants=constants)
    return replace(group, steps=steps, dram=dram_bytes(steps))


def honest_bytes(nodes: tuple[Node, ...], hardware: Hardware, *, constants: bool = False) -> tuple[Node, ...]:
    """Steps with maps' bytes as their boxes say; constants' too if asked (biases no wider than weights)."""

    def honest(node: Node) -> Node:
        if isinstance(node, Loop):
            return replace(node, body=honest_bytes(node.body, hardware, constants=constants))
        if not isinstance(node, Transfer):
            return node
        extents = tuple(max(stop - start, 0) for start, stop in node.box)
        if node.kind == "weight" and constants and not node.gather:
            return replace(node, rows=1, row_bytes=hardware.constant_bytes(prod(extents), bias=False))
        if node.kind not in ("input", "output"):
            return node
        axis = row_axis(extents)
        rows = 1 if axis is None else extents[axis]
        return replace(
            node,
            rows=rows,
            row_bytes=round_up(
                prod(extents) // max(rows, 1) * hardware.element_bytes, hardware.dram_row_align
            ),
        )

    return tuple(map(honest, nodes))
