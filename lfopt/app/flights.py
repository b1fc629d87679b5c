"""Groups of single operators, as groups of a network in which operators are in flight."""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.planning import GroupCosts, masks_of


def groups_in_flight(costs: GroupCosts, groups: Sequence[int]) -> Sequence[int]:
    """Groups of the network with nothing in flight, in its masks, as masks of these costs, in their order.

    None where a group cuts through what is in flight there, or may not run there.
    """
    if not groups or not costs.flies:
        return groups
    plain = costs.unfused().dataflow
    masks = masks_of(costs.dataflow, [plain.names(group) for group in groups])
    is_cut = sum(mask.bit_count() for mask in masks) > len(costs.dataflow)
    if is_cut or any(costs.price(mask) is None for mask in masks):
        return ()
    return masks
