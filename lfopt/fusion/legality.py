"""Is a fusion scheme legal: a partition into connected, convex groups whose quotient graph has no cycle?"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from lfopt.ir import FusionScheme, Graph, Verdict
from lfopt.ops import Dataflow, bits


def legal(graph: Graph, scheme: FusionScheme) -> Verdict:
    """Legal, or the reasons why not, each naming a group or an operator."""
    flow = Dataflow.of(graph)
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    reasons: list[str] = []
    owner: dict[int, int] = {}
    masks: list[int] = []
    for g, names in enumerate(scheme.groups):
        mask = 0
        for name in names:
            if name not in index:
                reasons.append(f"group {g}: {name!r} is not an operator of the graph (or it is a view)")
                continue
            i = index[name]
            if i in owner:
                reasons.append(f"group {g}: {name!r} is in group {owner[i]} already")
            owner[i] = g
            mask |= 1 << i
        masks.append(mask)
    reasons += [
        f"operator {operator.name!r} is in no group"
        for i, operator in enumerate(flow.operators)
        if i not in owner
    ]
    for g, mask in enumerate(masks):
        if not mask:
            reasons.append(f"group {g} is empty")
        elif not connected(flow.neighbours, mask):
            reasons.append(f"group {g} is not connected")
        elif between := convex_gap(flow, mask):
            reasons.append(
                f"group {g} is not convex: "
                f"{flow.operators[between.bit_length() - 1].name!r} lies between its operators"
            )
    if not reasons:
        waits = {
            g: {owner[p] for i in bits(mask) for p in bits(flow.preds[i])} - {g}
            for g, mask in enumerate(masks)
        }
        try:
            tuple(TopologicalSorter(waits).static_order())
        except CycleError as error:
            reasons.append(
                f"cyclic dependency between groups {' -> '.join(str(g) for g in reversed(error.args[1]))}"
            )
    return Verdict(tuple(reasons))


def component(neighbours: Sequence[int], inside: int, seed: int) -> int:
    """The operators of `inside` that are connected to `seed` within it, and those of `seed` (sets as masks).

    Edges connect, and so does reading the same map.

    >>> bin(component((0b010, 0b101, 0b010), 0b011, 0b001))
    '0b11'
    """
    reached = frontier = seed
    while frontier:
        low = frontier & -frontier
        new = neighbours[low.bit_length() - 1] & inside & ~reached
        reached |= new
        frontier ^= low | new
    return reached


def connected(neighbours: Sequence[int], mask: int) -> bool:
    """Whether the operators of the set are connected by edges or by reading the same map.

    >>> connected((0b010, 0b101, 0b010), 0b101)
    False
    """
    return component(neighbours, mask, mask & -mask) == mask


def connected_parts(neighbours: Sequence[int], mask: int) -> list[int]:
    """The parts of a set that are connected, that with the lowest operator first.

    >>> connected_parts((0b010, 0b101, 0b010), 0b101)
    [1, 4]
    """
    components: list[int] = []
    while mask:
        components.append(component(neighbours, mask, mask & -mask))
        mask ^= components[-1]
    return components


def convex_gap(flow: Dataflow, mask: int) -> int:
    """Operators outside the set on a path between two of its operators; 0 if the set is convex."""
    below = above = 0
    for i in bits(mask):
        below |= flow.descendants[i]
        above |= flow.ancestors[i]
    return below & above & ~mask
