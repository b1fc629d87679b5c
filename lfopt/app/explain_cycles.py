"""Where the cycles of a group go: what each of its maps, operators and links costs by the timing model.

There is no formula for that: transfers and computation overlap, and what is hidden behind something else
costs nothing. So the schedule of the group is timed again with all transfers of a map left out, or an
operator's computation; and a link is cut, and both halves are scheduled and timed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from explainers.cuts import GroupCuts
from explainers.graph import links
from lfopt.app.figures import GroupFigures
from lfopt.ir import Compute, InvalidConfig, Loop, Node, Step, counted_leaves
from lfopt.ir.cost import Mode
from lfopt.ops import bits
from lfopt.planning import GroupCosts
from simulator.model.meter import WALKED

CUTS = 3  # of a link, those of the fewest elements, that are looked at


@dataclass(frozen=True, slots=True)
class CyclesTaken:
    """A tensor that moves, or an operator."""

    name: str
    busy: int  # cycles that it holds the port, or the compute engine
    cycles: int  # that the group would take less if it took none


@dataclass(frozen=True, slots=True)
class LinkCycles:
    """A link, and what the best cut through it brings."""

    ends: tuple[str, str]
    # names of operators on both sides; none: no cut leaves two groups that may run
    groups: tuple[tuple[str, ...], ...]
    cycles: int  # of both, one after the other


@dataclass(frozen=True, slots=True)
class GroupCycles:
    """Cycles of a group by tensor, operator and link."""

    mode: Mode
    dram_bytes: int
    cycles: int  # in the fastest mode and band height
    computing: int  # cycles in which the compute engine works
    port: int  # in which the busier channel to DRAM does
    alone: int  # cycles of its operators unfused
    tensors: tuple[CyclesTaken, ...]  # what costs the most first
    operators: tuple[CyclesTaken, ...]
    links: tuple[LinkCycles, ...]  # of those that were looked at in time; where a cut costs the least first
    links_left: int  # that were not

    @property
    def waiting(self) -> int:
        """Cycles in which the compute engine does not work."""
        return self.cycles - self.computing


def cycles_of(costs: GroupCosts, mask: int, seconds: float) -> GroupCycles:
    """Cycles of a connected, convex group by tensor, operator and link; links for at most so many seconds.

    Raises InvalidConfig where the group may not run, or has no steps.
    """
    figures = GroupFigures(costs, energy=False)
    clock = time.perf_counter()
    fastest = None if costs.price(mask) is None else figures.fastest(mask)
    if fastest is None:
        why = "the group may not run as one" if costs.price(mask) is None else "its mode has no steps"
        raise InvalidConfig(
            f"--objective cycles: {why}; accepted: a group that runs, or --objective bytes, which says why "
            "one does not"
        )
    cost, (places, steps) = fastest
    accelerator = figures.meter.accelerator
    whole = accelerator.time(steps, places, WALKED)
    busy = Counter[tuple[bool, str]]()
    for times, step in counted_leaves(steps):
        busy[_key(step)] += times * accelerator.cycles(step)

    def without(key: tuple[bool, str]) -> CyclesTaken:
        rest = accelerator.time(left_out(steps, lambda step: _key(step) == key), places, WALKED)
        return CyclesTaken(key[1], busy[key], whole.total - rest.total)

    def costly(*, computes: bool) -> tuple[CyclesTaken, ...]:
        return tuple(
            sorted((without(key) for key in busy if key[0] == computes), key=lambda waited: -waited.cycles)
        )

    timed_links = _links(costs, figures, mask, lambda: time.perf_counter() - clock > seconds)
    return GroupCycles(
        mode=cost.mode,
        dram_bytes=cost.dram_bytes,
        cycles=whole.total,
        computing=whole.compute,
        port=whole.dma,
        alone=sum(_least(figures, 1 << i) for i in bits(mask)),
        tensors=costly(computes=False),
        operators=costly(computes=True),
        links=tuple(sorted(timed_links, key=lambda link: (not link.groups, link.cycles))),
        links_left=links(costs.dataflow, mask).shape[1] - len(timed_links),
    )


def left_out(nodes: Sequence[Node], drop: Callable[[Step], bool]) -> tuple[Node, ...]:
    """A schedule without some of its steps."""
    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            if body := left_out(node.body, drop):
                kept.append(Loop(node.count, body))
        elif not drop(node):
            kept.append(node)
    return tuple(kept)


def _key(step: Step) -> tuple[bool, str]:
    """(whether it computes, name of the operator or of the tensor)."""
    if isinstance(step, Compute):
        return (True, step.operator)
    return (False, step.tensor)


def _least(figures: GroupFigures, mask: int) -> int:
    return min(option.cycles for option in figures(mask))


def _links(costs: GroupCosts, figures: GroupFigures, mask: int, late: Callable[[], bool]) -> list[LinkCycles]:
    flow = costs.dataflow
    cuts = GroupCuts(costs.dataflow, mask)
    timed = list[LinkCycles]()
    where = np.array([*bits(mask)])[links(flow, mask)]
    for u, v in where.T.tolist():
        if late():
            break
        halves = [(cut.first, cut.second) for cut in cuts.through(u, v, CUTS)]
        legal = [both for both in halves if all(costs.price(half) is not None for half in both)]
        cycles, both = min(
            ((sum(_least(figures, half) for half in both), both) for both in legal), default=(0, ())
        )
        timed.append(
            LinkCycles(
                (flow.operators[u].name, flow.operators[v].name),
                tuple(flow.names(half) for half in both),
                cycles,
            )
        )
    return timed
