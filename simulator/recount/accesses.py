"""Recount of operators that are read through: their readers take what they make from the maps behind them.

Which pieces these are, the operator table says (`lfopt.ops.access`), as it says what rows operators read.
That pieces hold what the operator would make is seen where a plan is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lfopt.ir import ACCESS, DramBytes, InvalidPlan, L2Bytes, Plan, PlannedGroup
from lfopt.ops.access import AccessPatterns
from simulator.recount.network import RecountNetwork


def access_problems(
    net: RecountNetwork, plan: Plan, group: PlannedGroup, members: Sequence[str], *, offered: bool
) -> Iterator[str]:
    """Problems of one operator that is read through. `offered`: whether the scheme has that."""
    if not offered or plan.traffic != "tiled":
        yield f"mode {ACCESS}, which scheme {plan.scheme} with traffic {plan.traffic} has not"
    if plan.hardware.dram_row_align != 1 or plan.hardware.l2_bytes:
        yield f"mode {ACCESS} on a chip that pads rows in DRAM, or has a second level"
    if len(members) != 1:
        yield f"mode {ACCESS} with {len(members)} operators; accepted: one"
        return
    if group.steps or group.places or group.unexecutable:
        yield f"mode {ACCESS}, and it has steps, places, or a reason why it has none"
    if group.dram != DramBytes() or group.l2 != L2Bytes():
        yield f"DRAM bytes: the plan says {group.dram}, and what is read through moves nothing"
    if kept := [name for name in net.makes[members[0]] if name in net.stored]:
        yield f"{kept[0]!r} is a result of the network, and is never stored"


def pattern_problems(net: RecountNetwork, plan: Plan) -> Iterator[str]:
    """Why tensors cannot be read through the plan's operators, each and all together."""
    try:
        AccessPatterns.through(net.graph, plan.read_through)
    except InvalidPlan as error:
        yield str(error)


def last_use(net: RecountNetwork, owner: dict[str, int], through: frozenset[str], name: str, end: int) -> int:
    """The last group that reads a map, or what is read through to it; `end`: where a reader is in none."""
    last = -1
    waiting = [name]
    seen = {name}
    while waiting:
        for reader in net.readers[waiting.pop()]:
            last = max(last, owner.get(reader, end))
            if reader in through:
                waiting += [result for result in net.makes[reader] if result not in seen]
                seen.update(net.makes[reader])
    return last
