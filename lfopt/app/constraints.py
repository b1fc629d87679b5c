"""Keep plans to constraints: check the names, join groups that a search left apart, say why none can."""

from __future__ import annotations

from dataclasses import replace

from lfopt.app.nodes import operator_named
from lfopt.fusion import connected, convex_gap
from lfopt.ir import Constraints, DoesNotFit, InvalidConfig
from lfopt.ops import Dataflow, bits
from lfopt.ops.table import OPAQUE
from lfopt.planning import GroupCosts
from search.partition import Partitions, Rng
from search.result import Result


def check_names(flow: Dataflow, constraints: Constraints) -> None:
    """Check constraints. Raises InvalidConfig for names that no operator has, and for contradictions.

    `flow`: a whole network, with nothing in flight.
    """
    for why in constraints.contradictions():
        raise InvalidConfig(why)
    for where, name in constraints.named():
        i = operator_named(flow, flow.position, name, where)
        if where.startswith("together") and flow.specs[i] is OPAQUE:
            raise InvalidConfig(
                f"{where}: found {name!r} ({flow.operators[i].kind}), which lfopt does not know: it runs "
                "alone; accepted: others"
            )


def kept(costs: GroupCosts, searched: Result) -> Result:
    """The result of a search with its groups joined where the constraints want it.

    Raises InvalidConfig where no such groups were found.
    """
    if not any(map(costs.breaks, searched.groups)):
        return searched
    partitions = Partitions(costs)
    rng = Rng(0)
    inside = [_closure(costs.dataflow, members) for members in costs.rules.together]
    links = partitions.links
    joined = bytes(any(group >> u & group >> v & 1 for group in inside) for u, v in links)
    legal = [group for group in searched.groups if costs.price(group) is not None]
    more = bytes(a | b for a, b in zip(partitions.encode(partitions.fit(legal, rng)), joined, strict=True))
    plans = [partitions.fit(partitions.decode(genome), rng) for genome in (more, joined)]
    met = [partitions.in_order(plan) for plan in plans if not any(map(costs.breaks, plan))]
    if not met:
        raise InvalidConfig(_why(costs, plans[-1], inside, interrupted=searched.interrupted))
    best = min(met, key=costs.dram_bytes)
    return replace(searched, groups=best, dram_bytes=costs.dram_bytes(best))


def _closure(flow: Dataflow, members: int) -> int:
    """The operators, and all that lies on paths between them."""
    return members | convex_gap(flow, members)


def _why(costs: GroupCosts, plan: list[int], inside: list[int], *, interrupted: bool) -> str:
    flow = costs.dataflow
    rules = costs.rules
    constraints = costs.constraints
    stopped = "; the search was interrupted" if interrupted else ""
    for members, group in zip(rules.together, inside, strict=True):
        if any(members & part and members & part != members for part in plan):
            names = ", ".join(flow.names(members))
            if rules.forbid(group):
                return f"together: {names}: what lies between them is alone or cut{stopped}"
            if not connected(flow.neighbours, group):
                return (
                    f"together: {names}: they are connected neither by maps nor by what they read; add "
                    f"operators that join them{stopped}"
                )
            unfit = costs.evaluate(group)
            if not isinstance(unfit, DoesNotFit):
                return f"together: {names}: no legal groups were found in which they are one{stopped}"
            room = f"{unfit.needed:,} B of {unfit.store} where there are {unfit.available:,} B"
            return f"together: {names}: with what lies between them, they need {room}{stopped}"
    broken = next(group for group in plan if costs.breaks(group))
    if asking := [name for name in flow.names(broken) if name in constraints.nests]:
        return (
            f"nests.{asking[0]}: no way to run {', '.join(flow.names(broken))} was found with "
            f"{constraints.nests[asking[0]]!r}{stopped}"
        )
    i = next(i for i in bits(broken) if i in rules.modes)
    name = next(name for name in constraints.mode if flow.position.get(name) == i)
    need = costs.modes[rules.modes[i]].need(broken)
    fits = f"needs {need:,} B of {costs.hardware.buffer_bytes:,} B" if need < 1 << 60 else "cannot run so"
    return (
        f"mode.{name}: no group of it was found that runs in mode {rules.modes[i]}: "
        f"{', '.join(flow.names(broken))} {fits}{stopped}"
    )
