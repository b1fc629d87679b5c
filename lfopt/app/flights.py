"""Groups of single operators, as groups of a network in which operators are in flight."""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.planning import GroupCosts


def groups_in_flight(costs: GroupCosts, groups: Sequence[int]) -> Sequence[int]:
    """Groups of the network with nothing in flight, in its masks, as masks of these costs, in their order.

    None where a group cuts through what is in flight there, or may not run there.
    """
    if not groups or not costs.flies:
        return groups
    plain = costs.unfused().dataflow
    homes = {name: k for k, group in enumerate(groups) for name in plain.names(group)}
    masks = [0] * len(groups)
    for op, call in enumerate(costs.dataflow.calls):
        of_parts = {homes[part.operator.name] for part in call.parts}
        if len(of_parts) > 1:
            return ()
        masks[of_parts.pop()] |= 1 << op
    masks = [mask for mask in masks if mask]
    if any(costs.price(mask) is None for mask in masks):
        return ()
    return masks
