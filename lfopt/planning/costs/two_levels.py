"""Lower bound on the DRAM bytes of plans for a chip with a second level of memory."""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.ir import Copy
from lfopt.planning.costs.group_costs import GroupCosts


def bound_with_second_level(costs: GroupCosts, proven: int, copies: Sequence[Copy] = ()) -> int:
    """Bytes that no plan moves less than, whatever maps stay in the second level.

    A map stays as a whole (`lfopt.planning.plans.second_level`), so one that is larger than the level moves
    as it does without it. `proven`: bytes that no plan moves less than in which none stays; if none can, that
    is the bound. `copies`: operators of the network that compute something again.
    """
    network = costs.unfused(copies)
    flow = network.dataflow
    hardware = network.hardware
    sizes = network.groups.map_bytes
    inner = [m for m, producer in enumerate(flow.producer) if producer >= 0 and not flow.is_output[m]]
    too_large = [m for m in inner if sizes[m] > hardware.l2_bytes]
    if len(too_large) == len(inner):
        return proven
    bounds = network.bounds
    if costs.max_recompute > 1:  # a map that is made again need not move
        return min(proven, bounds.once_bytes)
    return min(proven, bounds.once_bytes + sum(bounds.forced[m] for m in too_large))
