"""Which line-buffered groups threads cut among them: each makes rows of its own, in rings of its own, and waits for the others where a stage ends.

Rows that two threads need are made twice. Where that costs more than waiting for one another after every row does, threads share every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.model import Model
from codegen.units import Body, body, sequences, units
from codegen.within import in_turn
from lfopt.ir import PlannedGroup
from lfopt.ops import bits
from lfopt.planning.shares import Cut, cut
from lfopt.planning.streaming import Layout

MOVED = 8  # multiply-adds that take as long as one element that is stored does
WAIT = 50_000  # multiply-adds in the time that threads lose where they wait for one another


@dataclass(frozen=True)
class Shares:
    """A group, cut among threads."""

    stages: tuple[tuple[Body, ...], ...]  # what each thread does before all wait; one body: all do it together
    alone: frozenset[int]  # operators that each thread makes rows of
    common: frozenset[int]  # maps inside the group that all threads reach


def shares(model: Model, group: PlannedGroup, members: Mapping[int, tuple[int, ...]]) -> Shares | str:
    """The group cut among threads, or why it is not. `members`: its units."""
    flow, mask = model.flow, model.mask(group)
    found = cut(Layout(flow, model.plan.hardware), mask, group.places, group.band_rows, frozenset(model.between), model.target.threads)
    if isinstance(found, str):
        return found
    if _slower(model, mask, found, members):
        return "too many rows would be made twice"
    stages = tuple(tuple(body(flow, model.index, steps) for steps in stage.steps) for stage in found.stages)
    runs = [run for stage in stages for steps in stage for run in sequences(steps)]
    if units(flow, model.layouts, mask, runs, whole=False) != members:
        return "operators would be taken together in another way"
    lodged = [(m, ring) for i in bits(mask) for m in flow.results[i] if (ring := model.within.holder(m).map) != m and ring not in model.between]
    if any({m, ring} & found.common or not in_turn(flow, runs, m, ring) for m, ring in lodged):
        return "parts of a Concat would not be made just before it"
    alone = frozenset(i for stage in found.stages if not stage.together for i in stage.rows[0])
    return Shares(stages, alone, found.common)


def _slower(model: Model, mask: int, found: Cut, members: Mapping[int, tuple[int, ...]]) -> bool:
    """Whether threads that make rows of their own take longer than threads that share every row."""
    flow, threads = model.flow, model.target.threads
    work = {i: (flow.macs[i] + MOVED * sum(flow.maps[m].elements for m in flow.results[i])) / max(flow.heights[i], 1) for i in bits(mask)}
    apart = 0.0
    for stage in found.stages:
        most = max(sum(work[i] * (stop - first) for i, (first, stop) in rows.items()) for rows in stage.rows)
        apart += most / threads + WAIT * sum(i in members for i in stage.rows[0]) if stage.together else most + WAIT
    together = sum(work[i] * flow.heights[i] for i in work) / threads + WAIT * sum(flow.heights[i] for i in members)
    return apart > together
