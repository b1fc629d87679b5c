"""Groups around a barrier: spills, recomputation and repeated loads between their two phases.

A *barrier* is a map that is reduced over its rows by operators whose results gate it. By operator: `folds`
reduce it, `vectors` make one row of what they make, what is `behind` takes the map and those vectors, and the
`tail` sums over the channels of the last of these; all else is `ahead`. Channels of the map that are stored
in the first phase come back in the second, once for each part of the channels of the result. Or none are
stored, and what is ahead makes those that are not kept again as often: so many channels of each of its
constants, and of what it reads slice by slice, are loaded as often as these are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from lfopt.ir import row_axis
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from simulator.recount.groups import runs
from simulator.recount.needs import folded
from simulator.recount.network import RecountNetwork
from simulator.recount.progressions import times_along, times_covered
from simulator.recount.schedule import GroupSteps, called


@dataclass(frozen=True)
class GateBarrier:
    """Roles of a group's operators around its barrier."""

    map: str
    folds: frozenset[str]
    vectors: frozenset[str]
    ahead: tuple[str, ...]  # in order
    head: str  # the first of these, if it reads all channels of a map; else ""
    behind: tuple[str, ...]  # in order, with the tail
    tail: str  # "" if there is none
    result: str  # the map that leaves


def barrier(net: RecountNetwork, members: Sequence[str]) -> GateBarrier | None:
    """The barrier of a group; None if it has none, or several."""
    after: dict[str, set[str]] = {}  # per operator: the reductions that it waits for
    folds = [op for op in members if runs(net, op)]
    for op in members:
        made_by = net.producers(op) & after.keys()
        after[op] = set().union(*(after[other] for other in made_by)) | (made_by & {*folds})
    reduced = {net.reads[op][0].map for op in folds}
    gated = {read.map for op in members if after[op] for read in net.reads[op]} & reduced
    leaving = [name for op in members for name in net.makes[op] if net.needed_outside(name, members)]
    if len(gated) != 1 or len(reduced) != 1 or len(leaving) != 1:
        return None
    (name,) = gated
    shape = net.graph.shape(name)
    channels = shape[CHANNEL_AXIS_OF_RANK[len(shape)]] if len(shape) in CHANNEL_AXIS_OF_RANK else 0
    behind: list[str] = []
    for op in members:
        if op not in folds and {read.map for read in net.reads[op]} & {
            name,
            *(result for other in behind for result in net.makes[other]),
        }:
            behind.append(op)
    last = net.calls[behind[-1]]
    sums = net.contracts(behind[-1]) and folded(last) == channels and last.attribute("group", 1) == 1
    vectors = frozenset(op for op in members if after[op]) - {*behind}
    ahead = tuple(op for op in members if not after[op] and op not in folds)
    head = (
        ahead[0]
        if ahead and net.contracts(ahead[0]) and net.calls[ahead[0]].attribute("group", 1) == 1
        else ""
    )
    return GateBarrier(
        name, frozenset(folds), vectors, ahead, head, tuple(behind), behind[-1] if sums else "", leaving[0]
    )


def passed(schedule: GroupSteps) -> Iterator[str]:
    """Problems of the number of loads and stores of every tensor."""
    net, group = schedule.net, schedule.group
    gate = barrier(net, schedule.members)
    if gate is None:
        yield f"mode {group.mode}, but it has not one map that waits for reductions of itself, and one result"
        return
    if group.spilled not in ((), (gate.map,)) or (group.spilled and gate.map not in schedule.produced):
        yield f"spilled: found {', '.join(group.spilled)}; what waits for its own reductions is {gate.map!r}"
        return
    parts = _parts(schedule, gate)
    bands = -(-net.tensor(gate.result).rows // max(group.band_rows, 1))
    if group.weight_passes not in (1, bands):
        yield f"weight passes: the plan says {group.weight_passes}, counted 1 or {bands}"
    yield from _map(schedule, gate, parts)
    remade = _remade(schedule, gate, parts)
    if isinstance(remade, str):
        yield remade
        return
    times: dict[str, Fraction] = dict.fromkeys(schedule.members, Fraction(1)) | dict.fromkeys(
        gate.behind, Fraction(parts)
    )
    times |= dict.fromkeys(gate.ahead, 1 + parts * remade)
    if gate.tail:
        times[gate.tail] = Fraction(1)
    for name in dict.fromkeys(read.map for _, read in schedule.external if read.map != gate.map):
        readers = {op for op, read in schedule.external if read.map == name}
        all_channels = any(
            (op, read.by, read.index) == (gate.head, gate.head, 0)
            for op, read in schedule.external
            if read.map == name
        )
        total = sum(
            (Fraction(1) if all_channels and op == gate.head else times[op] for op in readers), Fraction(0)
        )
        stays = gate.tail in readers and len(readers) > 1
        yield from _loaded(schedule, name, (total - 1, total) if stays else (total,), parts)
    times = {op: times[op] * (bands if op in gate.behind else 1) for op in times} | (
        {gate.tail: Fraction(group.weight_passes)} if gate.tail else {}
    )
    for op in schedule.members:
        for constant in net.constants[op]:
            if not constant.gathered:
                yield from _loaded(schedule, constant.name, (times[op],), parts)


def repeats(schedule: GroupSteps) -> dict[str, set[int]]:
    """Per map that is recomputed: the numbers of times that its elements may be computed.

    Each part of the result gates every slice anew, or recomputes it before.
    """
    gate, net = barrier(schedule.net, schedule.members), schedule.net
    if gate is None:
        return {}
    parts = _parts(schedule, gate)
    behind = {name: {parts} for op in gate.behind if op != gate.tail for name in net.makes[op]}
    return behind | {name: {1, 1 + parts} for op in gate.ahead for name in net.makes[op]}


def _parts(schedule: GroupSteps, gate: GateBarrier) -> int:
    """Number of parts of channels in which the result is made; 1 without a tail."""
    if not gate.tail:
        return 1
    axis = CHANNEL_AXIS_OF_RANK[len(schedule.net.graph.shape(gate.result))]
    return len(
        {
            int(start)
            for piece in schedule.stores.get(gate.result, ())
            for start in np.unique(piece.start(axis))
        }
    )


def _map(schedule: GroupSteps, gate: GateBarrier, parts: int) -> Iterator[str]:
    """Problems of the gated map's traffic.

    What is stored of it is loaded again for every part of the result; of an input, what is not kept.
    """
    shape = schedule.net.graph.shape(gate.map)
    loads, stores = (
        [piece.boxes for piece in moves.get(gate.map, ())] for moves in (schedule.loads, schedule.stores)
    )
    both = times_covered(shape, [*loads, *(boxes._replace(weight=-parts * boxes.weight) for boxes in stores)])
    if gate.map in schedule.produced:
        if both.any():
            yield f"{gate.map!r}: not all that is stored of it, and nothing else, is loaded {parts} times"
        if times_covered(shape, stores).max(initial=0) > 1:
            yield f"{gate.map!r} is stored several times"
        if bool(stores) != bool(schedule.group.spilled):
            yield (
                f"spilled: the plan says {', '.join(schedule.group.spilled) or 'nothing'}, its steps "
                f"store {gate.map if stores else 'nothing'}"
            )
    elif not np.isin(both, (1, 1 + parts)).all():
        yield f"{gate.map!r}: it must be loaded once, and what is not kept of it {parts} times more"


def _remade(schedule: GroupSteps, gate: GateBarrier, parts: int) -> Fraction | str:
    """Share of the channels that are recomputed for every part of the result; or why there is none."""
    again: np.ndarray | None = None
    for op in reversed(gate.ahead):
        name = schedule.net.makes[op][0]
        shape = schedule.net.graph.shape(name)
        if len(shape) not in CHANNEL_AXIS_OF_RANK or 0 in shape:
            return f"{name!r} has no channels, of which a slice could be made"
        boxes = [one.pieces[0].boxes for one in schedule.computations if one.step.operator == op]
        times = times_along(shape, boxes, CHANNEL_AXIS_OF_RANK[len(shape)])[:, 1]
        again = times > 1 if again is None else again
        if not (times == np.where(again, 1 + parts, 1)).all():
            return f"{name!r}: it must be made once, and {parts} times more where {gate.map!r} is"
    if again is None or not again.any():
        return Fraction(0)
    if schedule.group.spilled or not gate.head:
        return f"{gate.map!r} is made again, " + (
            "and stored" if schedule.group.spilled else "from what reads it slice by slice"
        )
    return Fraction(int(again.sum()), len(again))


def _loaded(schedule: GroupSteps, name: str, totals: Sequence[Fraction], parts: int) -> Iterator[str]:
    """Problems of a tensor that must be loaded one of `totals` times.

    A fraction is an average: once, and again for every part where slices are recomputed.
    """
    shape, boxes = schedule.net.graph.shape(name), [piece.boxes for piece in schedule.loads.get(name, ())]
    grid = times_covered(shape, boxes)
    least, most = (int(grid.min()), int(grid.max())) if grid.size else (0, 0)
    elements = sum(len(box.starts) * prod(box.extents) * box.weight for box in boxes)
    whole = least == most or np.isin(grid, (1, 1 + parts)).all()
    if not whole or (grid.size and Fraction(elements, prod(shape)) not in totals):
        yield (
            f"{name!r} is loaded {least} to {most} times, must be "
            f"{' or '.join(f'{float(total):g}' for total in totals)}"
        )


def band_rows(schedule: GroupSteps) -> tuple[int, int]:
    """(fewest, most) rows of the result in one band; where it is summed in steps, the rows of the sums."""
    gate = barrier(schedule.net, schedule.members)
    if gate is None:
        return 1, 1
    places = [
        place
        for place in schedule.group.places
        if place.purpose == "sum" and called(place.name, (f"sums of {gate.tail}",))
    ]
    axis, rows = row_axis(schedule.net.graph.shape(gate.result)), schedule.net.tensor(gate.result).rows
    if places:
        return places[0].slots, places[0].slots
    stored = [1 if axis is None else piece.extents[axis] for piece in schedule.stores.get(gate.result, ())]
    return max(stored, default=1), rows
