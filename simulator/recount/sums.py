"""Partial sums: everything that is folded is added just once between the start of a sum and its end.

Boxes of results are cut into cells. The runs that touch a cell, in order of time, fall into sums: each begins
with a run that starts it and ends with one that finishes it. In between lie in one place, and are added to,
parts of what is folded that together are all of it: input channels of a contraction, rows of a reduction, the
keys that a query of an attention sees. Statistics of a normalization finish its result as often as that is
made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from lfopt.ops.attention import form_of, mixed_box
from lfopt.ops.call import Call
from lfopt.ops.statistics import has_statistics
from simulator.recount.needs import AxisSpans, each_run
from simulator.recount.progressions import Ints, cell_spans, cuts_along, product_of
from simulator.recount.schedule import Computation, GroupSteps, describe


def sum_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems of the partial sums of a group. Raises TooMuch."""
    by_operator: dict[str, list[Computation]] = defaultdict(list)
    for computation in schedule.computations:
        if all(computation.pieces[0].extents):
            by_operator[computation.step.operator].append(computation)
    for op, computations in by_operator.items():
        call = schedule.net.calls[op]
        if not all(one.whole_sum and one.step.inputs is None for one in computations):
            yield from _sums(schedule, op, call, computations)


def _sums(schedule: GroupSteps, op: str, call: Call, computations: Sequence[Computation]) -> Iterator[str]:
    shape = schedule.net.graph.shape(schedule.net.makes[op][0])
    pieces = [one.pieces[0] for one in computations]
    cuts = [cuts_along(axis, extent, [p.boxes for p in pieces]) for axis, extent in enumerate(shape)]
    # axes along which every box is whole have one cell
    cells = list[Ints]()
    times = list[Ints]()
    parts = list[tuple[Ints, ...]]()
    kinds = list[Ints]()
    for number, (one, piece) in enumerate(zip(computations, pieces, strict=True)):
        spans = [cell_spans(cut, piece.part(axis)) for axis, cut in enumerate(cuts)]
        run, cell = product_of(one.leaf.runs, spans, [len(cut) - 1 for cut in cuts], schedule.work)
        cells.append(cell)
        times.append(one.leaf.times[run])
        (start, stop), (low, high) = _added(call, one)
        parts.append((start[run], stop[run], low[run], high[run]))
        kinds.append(np.full(len(run), number))
    cell = np.concatenate(cells)
    time = np.concatenate(times)
    kind = np.concatenate(kinds)
    start, stop, low, high = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((time, cell))
    cell, kind, start, stop, low, high = (a[order] for a in (cell, kind, start, stop, low, high))
    first, last = (
        np.array([getattr(one.step, name) for one in computations])[kind] for name in ("first", "last")
    )
    place = np.array([one.step.accumulator for one in computations])[kind]
    # runs that make a result from statistics that are complete
    finishing = last & ~first & (start >= high) if has_statistics(call) else np.zeros(len(cell), bool)
    fresh = np.ones(len(cell), bool)  # the cell has no sum that goes on
    fresh[1:] = (cell[1:] != cell[:-1]) | (last[:-1] & ~finishing[1:])
    ends = np.ones(len(cell), bool)  # no other run of the cell follows
    ends[:-1] = cell[1:] != cell[:-1]

    def of(wrong: Ints) -> str:
        return describe(computations[int(kind[np.argmax(wrong)])].leaf)

    if (wrong := fresh != first).any():
        begun = "it starts sums that go on" if first[np.argmax(wrong)] else "no sums have been started"
        yield f"{of(wrong)}: {begun}"
        return
    if (wrong := ends & ~last).any():
        yield f"{of(wrong)}: sums of {op!r} are not finished"
        return
    moves = np.zeros(len(cell), bool)
    moves[1:] = ~fresh[1:] & (place[1:] != place[:-1])
    if moves.any():
        yield f"{of(moves)}: sums of {op!r} go on in another place"
        return
    sums = np.cumsum(fresh)
    by_start = np.lexsort((start, sums))
    start = start[by_start]
    stop = stop[by_start]
    before = np.where(fresh, low, np.concatenate([[0], stop[:-1]]))
    behind = np.concatenate([fresh[1:], [True]])
    # the first part may begin before what is folded of it, the last may end behind
    wrong = np.where(fresh, start > before, start != before) | (behind & (stop < high))
    if wrong.any():
        what = "key in view" if call.attention is not None else "input channel or row"
        yield f"{op!r}: not every {what} is added to its sums just once"


def _added(call: Call, one: Computation) -> tuple[AxisSpans, AxisSpans]:
    """((start, stop) of what every run adds, (start, stop) of all that its sums fold), each (runs,) int64."""
    if call.attention is None:
        whole = np.zeros(one.leaf.runs, np.int64), np.full(one.leaf.runs, one.depth)
        return one.inputs, whole
    form = form_of(call)
    seen = [form.seen(mixed_box(call, box)) for box, _ in each_run(one.pieces[0].parts, one.inputs)]
    low, high = (np.array(ends, np.int64) for ends in zip(*seen, strict=True))
    return (one.inputs if one.step.inputs is not None else (low, high)), (low, high)
