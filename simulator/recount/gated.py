"""Groups around a barrier: what they keep between their two phases, what goes out and comes back, and how often the rest is loaded.

A *barrier* is a map that is reduced over its rows by operators whose results gate it. By operator: `folds` reduce it, `vectors` make one row of what
they make, what is `behind` takes the map and those vectors, and the `tail` sums over the channels of the last of these; all else is `ahead`. Channels
of the map that are stored in the first phase come back in the second, once for each part of the channels of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lfopt.ir import row_axis
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from simulator.recount.groups import runs
from simulator.recount.needs import folded
from simulator.recount.network import Network
from simulator.recount.progressions import times_covered
from simulator.recount.schedule import Piece, Schedule


@dataclass(frozen=True)
class Barrier:
    """What the operators of a group are to its barrier."""

    map: str
    folds: frozenset[str]
    vectors: frozenset[str]
    behind: tuple[str, ...]  # in order, with the tail
    tail: str  # "" if there is none
    result: str  # the map that leaves


def barrier(net: Network, members: Sequence[str]) -> Barrier | None:
    """Of a group; None if it has none, or several."""
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
        if op not in folds and {read.map for read in net.reads[op]} & {name, *(made for other in behind for made in net.makes[other])}:
            behind.append(op)
    last = net.calls[behind[-1]]
    sums = net.contracts(behind[-1]) and folded(last) == channels and last.attribute("group", 1) == 1
    vectors = frozenset(op for op in members if after[op]) - {*behind}
    return Barrier(name, frozenset(folds), vectors, tuple(behind), behind[-1] if sums else "", leaving[0])


def passed(schedule: Schedule) -> Iterator[str]:
    """What is wrong with how often things are loaded and stored."""
    net, group = schedule.net, schedule.group
    found = barrier(net, schedule.members)
    if found is None:
        yield f"mode {group.mode}, but it has not one map that waits for reductions of itself, and one result"
        return
    if group.spilled not in ((), (found.map,)) or (group.spilled and found.map not in schedule.made):
        yield f"spilled: found {', '.join(group.spilled)}; what waits for its own reductions is {found.map!r}"
        return
    parts = _parts(schedule, found)
    bands = -(-net.tensor(found.result).rows // max(group.band_rows, 1))
    if group.weight_passes not in (1, bands):
        yield f"weight passes: the plan says {group.weight_passes}, counted 1 or {bands}"
    yield from _map(schedule, found, parts)
    times = dict.fromkeys(schedule.members, 1) | dict.fromkeys(found.behind, parts)
    if found.tail:
        times[found.tail] = 1
    for name in dict.fromkeys(read.map for _, read in schedule.external if read.map != found.map):
        readers = {op for op, read in schedule.external if read.map == name}
        total = sum(times[op] for op in readers)
        stays = found.tail in readers and len(readers) > 1
        yield from _uniform(schedule, name, schedule.loads.get(name, ()), (total - 1, total) if stays else (total,))
    times = {op: times[op] * (bands if op in found.behind else 1) for op in times} | ({found.tail: group.weight_passes} if found.tail else {})
    for op in schedule.members:
        for constant in net.constants[op]:
            if not constant.gathered:
                yield from _uniform(schedule, constant.name, schedule.loads.get(constant.name, ()), (times[op],))


def repeats(schedule: Schedule) -> dict[str, int]:
    """Per map: how often it is computed, where that is more than once. Each part of the result gates every slice anew."""
    found = barrier(schedule.net, schedule.members)
    if found is None or not found.tail:
        return {}
    return dict.fromkeys((name for op in found.behind[:-1] for name in schedule.net.makes[op]), _parts(schedule, found))


def _parts(schedule: Schedule, found: Barrier) -> int:
    """In how many parts of its channels the result is made, if it is summed up."""
    if not found.tail:
        return 1
    axis = CHANNEL_AXIS_OF_RANK[len(schedule.net.graph.shape(found.result))]
    return len({int(start) for piece in schedule.stores.get(found.result, ()) for start in np.unique(piece.start(axis))})


def _map(schedule: Schedule, found: Barrier, parts: int) -> Iterator[str]:
    """Of the map that waits: what is stored comes back for every part of the result; of one from outside, what is not kept."""
    shape = schedule.net.graph.shape(found.map)
    loads, stores = ([piece.boxes for piece in moves.get(found.map, ())] for moves in (schedule.loads, schedule.stores))
    both = times_covered(shape, [*loads, *(boxes._replace(weight=-parts * boxes.weight) for boxes in stores)])
    if found.map in schedule.made:
        if both.any():
            yield f"{found.map!r}: not all that is stored of it, and nothing else, is loaded {parts} times"
        if times_covered(shape, stores).max(initial=0) > 1:
            yield f"{found.map!r} is stored several times"
        if bool(stores) != bool(schedule.group.spilled):
            yield f"spilled: the plan says {', '.join(schedule.group.spilled) or 'nothing'}, its steps store {found.map if stores else 'nothing'}"
    elif not np.isin(both, (1, 1 + parts)).all():
        yield f"{found.map!r}: it must be loaded once, and what is not kept of it {parts} times more"


def _uniform(schedule: Schedule, name: str, pieces: Sequence[Piece], times: Sequence[int]) -> Iterator[str]:
    grid = times_covered(schedule.net.graph.shape(name), [piece.boxes for piece in pieces])
    least, most = (int(grid.min()), int(grid.max())) if grid.size else (times[0], times[0])
    if least != most or least not in times:
        yield f"{name!r} is loaded {least} to {most} times, must be {' or '.join(map(str, times))}"


def band_rows(schedule: Schedule) -> tuple[int, int]:
    """The fewest and the most rows of the result that can be made in one band: as many as there are sums of, where it is summed up in steps."""
    found = barrier(schedule.net, schedule.members)
    if found is None:
        return 1, 1
    places = [place for place in schedule.group.places if place.purpose == "sum" and place.name.rstrip("~") == f"sums of {found.tail}".rstrip("~")]
    axis, rows = row_axis(schedule.net.graph.shape(found.result)), schedule.net.tensor(found.result).rows
    if places:
        return places[0].slots, places[0].slots
    stored = [1 if axis is None else piece.extents[axis] for piece in schedule.stores.get(found.result, ())]
    return max(stored, default=1), rows
