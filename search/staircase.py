"""The optimum at every buffer size of a range.

`staircase` finds it from one enumeration of groups, where their prices do not depend on the buffer. Whatever
is legal on a small buffer is legal on a larger one. So the groups and states reached on the largest buffer
hold those of every smaller one, and each size is one shortest path over what was enumerated once. A plan
whose groups need at most b bytes stays what it is on every buffer above b, and more buffer never costs more
bytes: between b and the size that it was found at, the optimum is constant, and the next size to solve is b
itself.

`SearchedStairs` has a search for each size that it asks for, whatever prices do. A plan holds on every buffer
larger than its groups need, a bound on every smaller one than it was proven for; where the two meet, nothing
is left to search. Of what remains, wide ranges are halved, and of narrow ones the largest size is searched:
either a step ends above it, or a plan was found that goes further down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import inf, isqrt
from typing import NamedTuple

from lfopt.fusion import CostModel
from search.exact import next_groups
from search.partition import Partition

WIDE = 4  # largest over smallest size of a range that is halved
LEAST_SECONDS = 0.1  # of a time limit that was over before
FIRST_SHARE = 16  # parts of the time of which a search has one at first
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


class SearchedBuffer(NamedTuple):
    """What a search on one buffer came to."""

    groups: Partition
    needs: int  # bytes that a buffer must exceed for the plan to run so
    dram_bytes: int
    lower_bound_bytes: int
    without_steps: int = 0  # groups that cannot run
    interrupted: bool = False
    finished: bool = False  # whether with more time it would come to the same


# (buffer in bytes, plans to begin with, bytes that no plan avoids, seconds) -> what a search comes to
SearchOn = Callable[[int, tuple[Partition, ...], int, float], SearchedBuffer]


class SearchedStairs:
    """Steps between two buffer sizes, as far as searches have told.

    On each of these buffers every operator runs by itself, so that more buffer never costs more bytes.
    """

    def __init__(self, low: int, high: int) -> None:
        """`low`, `high`: bytes, both included."""
        self.low = low
        self.high = high
        self.plans: list[SearchedBuffer] = []
        self.bounds: list[tuple[int, int]] = []  # (buffer, bytes that no plan avoids on it or a smaller one)
        self.seconds: dict[int, float] = {}  # that searches had, by buffer; inf: more would change nothing

    def add(self, buffer: int, searched: SearchedBuffer, seconds: float) -> None:
        """Take in what a search on a buffer came to; `seconds`: what it was given."""
        self.plans.append(searched)
        self.bounds.append((buffer, searched.lower_bound_bytes))
        self.seconds[buffer] = inf if searched.finished else seconds

    def stairs(self) -> list[Stair]:
        """Steps by size: the best plan known, and what no plan avoids. None below what any plan needs."""
        joined: list[Stair] = []
        for start, _, plan, bound in self._pieces():
            if plan is None:
                continue
            dram = plan.dram_bytes
            stair = Stair(start, dram, min(bound, dram), len(plan.groups), plan.without_steps)
            if not joined or stair[1:3] != joined[-1][1:3]:
                joined.append(stair)
        return joined

    def unresolved(self) -> list[tuple[int, int]]:
        """Ranges of sizes, both ends included, on which no plan is known to be optimal."""
        ranges: list[tuple[int, int]] = []
        for start, end, plan, bound in self._pieces():
            if plan is not None and plan.dram_bytes <= bound:
                continue
            if ranges and ranges[-1][1] == start - 1:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((start, end))
        return ranges

    def next_size(self, seconds: float) -> int | None:
        """The buffer to search on next, for so many seconds; None where none is worth that."""
        if not self.plans:
            return self.high
        if self.seconds.get(self.low, 0.0) < seconds and self._open(self.low):
            return self.low
        open_sizes = [
            size for _, size, plan, bound in self._pieces() if plan is None or plan.dram_bytes > bound
        ]
        for start, end in sorted(self.unresolved(), key=lambda ends: -ends[1] / ends[0]):
            middle = isqrt(start * end)
            if end >= WIDE * start and self.seconds.get(middle, 0.0) < seconds:
                return middle
            for size in reversed(open_sizes):
                if start <= size <= end and self.seconds.get(size, 0.0) < seconds:
                    return size
        return None

    def known(self, buffer: int) -> tuple[tuple[Partition, ...], int]:
        """(the best plan that runs on a buffer, if one is known; bytes that no plan avoids there)."""
        plan = self._best(buffer)
        return () if plan is None else (plan.groups,), self._bound(buffer)

    def _open(self, buffer: int) -> bool:
        plan = self._best(buffer)
        return plan is None or plan.dram_bytes > self._bound(buffer)

    def _best(self, buffer: int) -> SearchedBuffer | None:
        running = (plan for plan in self.plans if plan.needs < buffer)
        return min(running, key=lambda plan: plan.dram_bytes, default=None)

    def _bound(self, buffer: int) -> int:
        return max((bound for size, bound in self.bounds if size >= buffer), default=0)

    def _pieces(self) -> list[tuple[int, int, SearchedBuffer | None, int]]:
        """(first size, last size, best plan, bound) of ranges on which neither plan nor bound changes."""
        starts = {self.low, *(plan.needs + 1 for plan in self.plans), *(size + 1 for size, _ in self.bounds)}
        inside = sorted(start for start in starts if self.low <= start <= self.high)
        ends = [*(start - 1 for start in inside[1:]), self.high]
        bounds: list[int] = []
        waiting = sorted(self.bounds)
        bound = 0
        for start in reversed(inside):
            while waiting and waiting[-1][0] >= start:
                bound = max(bound, waiting.pop()[1])
            bounds.append(bound)
        pieces: list[tuple[int, int, SearchedBuffer | None, int]] = []
        running = sorted(self.plans, key=lambda plan: -plan.needs)
        best: SearchedBuffer | None = None
        for start, end in zip(inside, ends, strict=True):
            while running and running[-1].needs < start:
                plan = running.pop()
                best = plan if best is None or plan.dram_bytes < best.dram_bytes else best
            pieces.append((start, end, best, bounds.pop()))
        return pieces


def search_stairs(stairs: SearchedStairs, search_on: SearchOn, time_limit: float) -> Iterator[None]:
    """Search on one buffer after the other, until every step is proven or the time is over.

    There is one search at the least. Yields after each. One that is interrupted is the last, and what it
    found is taken in. At first a search has a small part of the time; those that prove nothing in it are run
    again for twice as long, once no other size is left.
    """
    end = time.perf_counter() + time_limit
    share = max(time_limit, LEAST_SECONDS) / FIRST_SHARE
    while (left := end - time.perf_counter()) > 0 or not stairs.plans:
        size = stairs.next_size(share)
        if size is None:
            if not stairs.unresolved() or share >= left:
                return
            share *= 2
            continue
        seconds = min(share, left) if left > 0 else share
        searched = search_on(size, *stairs.known(size), seconds)
        stairs.add(size, searched, share)
        yield
        if searched.interrupted:
            return
