"""A group that claims to be a chain: stages in other modes, with maps that stay on chip between them.

Which stages there are the plan does not say, and nothing here needs to know: what the steps load, store and
compute is counted from them. All that the group reads comes on chip, what others need goes out once, and what
comes back was sent out before.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.recount.progressions import times_covered
from simulator.recount.schedule import GroupSteps
from simulator.recount.traffic import computed_problems, covered, parameter_problems


def chain_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems of loads, stores and computations of a chain."""
    net, group, loads, stores = schedule.net, schedule.group, schedule.loads, schedule.stores
    yield from parameter_problems(schedule)
    for what, claimed in (("band rows", group.band_rows), ("weight passes", group.weight_passes)):
        if claimed != 1:
            yield f"{what}: the plan says {claimed}; of a chain it says 1"
    wanted = dict.fromkeys(read.seen if read.seen in loads else read.map for _, read in schedule.external)
    for name in loads.keys() - wanted.keys() - schedule.constants - schedule.produced:
        yield f"{name!r} is loaded, but who reads it has it under another name"
    for name in (*wanted, *sorted(schedule.constants)):
        yield from covered(schedule, name, loads.get(name, ()), "loaded", None)
    leaving = {name for name in schedule.produced if net.needed_outside(name, schedule.members)}
    if sorted(group.spilled) != (sent := sorted(stores.keys() - leaving)):
        yield (
            f"spilled: the plan says {', '.join(group.spilled) or 'nothing'}, its steps store "
            f"{', '.join(sent) or 'nothing'}"
        )
    for name in sorted(leaving):
        yield from covered(schedule, name, stores.get(name, ()), "stored", 1)
    for name in sorted(schedule.produced & (loads.keys() | stores.keys())):
        back, out = loads.get(name, ()), stores.get(name, ())
        sent = times_covered(net.graph.shape(name), [piece.boxes for piece in out])
        if sent.max(initial=0) > 1:
            yield f"{name!r} is stored several times"
        come = times_covered(
            net.graph.shape(name),
            [
                *(p.boxes for p in back),
                *(p.boxes._replace(weight=-schedule.steps * p.boxes.weight) for p in out),
            ],
        )
        if (come > 0).any():
            yield f"{name!r}: more of it is loaded than was ever stored"
        elif back and min(int(p.leaf.times.min()) for p in back) < max(int(p.leaf.times.max()) for p in out):
            yield f"{name!r} is loaded before it is stored"
    yield from computed_problems(schedule)
