"""The optimum at every buffer size of a range, from one enumeration of groups.

Whatever is legal on a small buffer is legal on a larger one. So the groups and states reached on the largest
buffer hold those of every smaller one, and each size is one shortest path over what was enumerated once. A
plan whose groups need at most b bytes stays what it is on every buffer above b, and more buffer never costs
more bytes: between b and the size that it was found at, the optimum is constant, and the next size to solve
is b itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lfopt.fusion import CostModel
from search.exact import next_groups

MAX_STEPS = 2_000_000  # steps between states that are kept; more would take gigabytes


class Stair(NamedTuple):
    """Optimal DRAM bytes from this buffer size on, up to the next stair."""

    buffer_bytes: int
    dram_bytes: int
    lower_bound_bytes: int
    groups: int
    without_steps: int  # groups that cannot run on such a buffer


class TooMany(Exception):
    """The largest buffer has too many states to enumerate; solve single sizes instead."""


class _Step(NamedTuple):
    needs: int  # F_beta; -1 where the group runs on any buffer, at a price that depends on it
    after: int  # state it leads to
    group: int
    dram_bytes: int  # once it fits


def staircase(
    model_at: Callable[[int], CostModel],
    buffer_need: Callable[[int], int],
    low: int,
    high: int,
    deadline: float,
) -> Iterator[Stair]:
    """Stairs from `high` down to `low`; each is yielded once its left end is known.

    `model_at` gives the model of a buffer of so many bytes, all of one dataflow; `buffer_need` F_beta of a
    group, in bytes. Raises TooMany, also where the enumeration is not done at the deadline (of
    time.perf_counter). Traffic `paper` has no staircase: what it leaves out changes with the buffer.
    """
    largest = model_at(high)
    order, steps = _enumerate(largest, buffer_need, deadline)
    done = largest.dataflow.everything
    buffer = high
    pending = None
    while buffer >= low:
        model = model_at(buffer)
        dram, groups = _shortest(model, order, steps, buffer, done)
        costs = [cost for cost in map(model.price, groups) if cost is not None]
        needs = max((cost.buffer_bytes for cost in costs if cost.buffer_bytes < buffer), default=0)
        without_steps = sum(not cost.executable for cost in costs)
        start = max(min(needs + 1, buffer), low)
        if pending is not None and (pending.dram_bytes, pending.without_steps) != (dram, without_steps):
            yield pending
        pending = Stair(start, dram, dram, len(groups), without_steps)
        buffer = start - 1
    if pending is not None:
        yield pending


def _enumerate(
    model: CostModel, buffer_need: Callable[[int], int], deadline: float
) -> tuple[list[int], dict[int, list[_Step]]]:
    """(states in order of size, per state: steps by legal groups, smallest buffer first).

    Raises TooMany beyond MAX_STEPS steps, or when the time is over.
    """
    flow = model.dataflow
    levels: list[list[int]] = [[] for _ in range(len(flow) + 1)]
    levels[0].append(0)
    steps: dict[int, list[_Step]] = {flow.everything: []}
    count = 0
    for level in levels[:-1]:
        for state in level:
            onward: list[_Step] = []
            for group, _ in next_groups(model, state, MAX_STEPS - count):
                if not group or time.perf_counter() > deadline:
                    raise TooMany
                cost = model.price(group)
                if cost is not None:
                    needs = -1 if model.legal_anywhere(group) else buffer_need(group)
                    onward.append(_Step(needs, state | group, group, cost.dram_bytes))
            count += len(onward)
            steps[state] = sorted(onward)
            for step in onward:
                if step.after not in steps:
                    steps[step.after] = []
                    levels[step.after.bit_count()].append(step.after)
    return [state for level in levels for state in level], steps


def _shortest(
    model: CostModel, order: list[int], steps: dict[int, list[_Step]], buffer: int, done: int
) -> tuple[int, list[int]]:
    best: dict[int, tuple[int, int, int]] = {0: (0, 0, 0)}  # state -> (bytes, state before, group)
    for state in order:
        if state not in best:
            continue
        here = best[state][0]
        for needs, after, group, dram in steps[state]:
            if needs >= buffer:
                break
            if needs < 0:
                cost = model.price(group)
                if cost is None:  # an epilogue of which no step fits; its operators are apart
                    continue
                dram = cost.dram_bytes
            total = here + dram
            if after not in best or total < best[after][0]:
                best[after] = (total, state, group)
    groups: list[int] = []
    state = done
    while state:
        _, state, group = best[state]
        groups.append(group)
    return best[done][0], groups
