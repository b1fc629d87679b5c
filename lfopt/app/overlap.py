"""Overlap groups: a group begins to load while the group before it still computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import lcm

from lfopt.ir import Graph, Plan
from lfopt.ops import Dataflow
from lfopt.planning.steps.entry import entries
from simulator.model.timing import WALKED, Accelerator


def overlapped(plan: Plan, graph: Graph, late: Callable[[], bool] = lambda: False) -> Plan:
    """The plan with the same groups, bytes and steps, placed and loaded in an order that ends sooner.

    By the timing model. Plans stay as they are for chips that do not say how fast they are, where some group
    has no steps, or very many, and once it is `late`.
    """
    hardware = plan.hardware
    timed = all(group.steps or group.is_access for group in plan.groups)
    if hardware.assumed or not hardware.overlap or not timed:
        return plan
    accelerator = Accelerator(Dataflow.of(graph), hardware, plan.read_through)
    if sum(accelerator.command_count(group.steps) for group in plan.groups) > WALKED:
        return plan
    align = lcm(
        hardware.channel_align * hardware.element_bytes, hardware.constant_align, hardware.accumulator_bytes
    )
    choices = [[*entries(group, align)] for group in plan.groups]
    earliest = accelerator.soonest(
        [[(group.steps, group.places) for group in choice] for choice in choices], late
    )
    if earliest is None:
        return plan
    chosen, cycles = earliest
    if cycles >= accelerator.in_a_row((group.steps, group.places) for group in plan.groups):
        return plan
    return replace(plan, groups=tuple(choice[k] for choice, k in zip(choices, chosen, strict=True)))
