"""Recomputation: coordinate descent over which barriers get a copy of which cone of operators before them.

Copies change what their neighbourhood moves, so one choice after the other is judged by the blocks around it
alone: an interval of the network in topological order, which is convex, planned by itself. The networks as a
whole are planned with no copies, with all of the smallest ones, and with those that the descent ends with;
the best of these is taken, so that copies never cost bytes. What is proven holds for these copies: other
choices could move less, down to the bound that is given with the result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from lfopt.ir import Copy, Graph
from lfopt.ops import Dataflow
from lfopt.ops.alike import structure
from lfopt.ops.excerpt import excerpt
from lfopt.rewrite.copies import Barrier, Cone, barriers, with_copies
from search.result import Result

PASSES = 3  # over all barriers, at most

Choice = Mapping[int, Cone]  # by number of the barrier
Solve = Callable[[Graph], Result]  # an exact search
Progress = Callable[[int, int, int], None]  # choices made, of how many, bytes of the best plan so far


class Copied(NamedTuple):
    """A network with copies, and its plan."""

    graph: Graph
    copies: tuple[Copy, ...]
    result: Result
    searches: int  # of the network, or of parts of it
    barriers: int  # that the network has


def search_copies(
    graph: Graph,
    solve: Solve,
    estimate: Callable[[Graph], int],
    runs: Callable[[Graph], bool],
    *,
    most_macs: int,
    late: Callable[[], bool],
    progress: Progress | None = None,
) -> Copied:
    """The network with copies, and its plan: the fewest DRAM bytes that coordinate descent finds.

    `graph`: without copies. `solve`: an exact search; `estimate`: bytes of a good plan, found faster, or
    KeyboardInterrupt; `runs`: whether a network runs as one group. `most_macs`: multiply-accumulates that the
    network may have with its copies. `late`: whether the time is over; then the best plan so far is taken, as
    it is at Ctrl-C, be it in a search or between two. Raises KeyboardInterrupt where there is none yet.
    """
    descent = _Descent(graph, solve, estimate, runs, most_macs)
    interrupted = False
    try:
        descent.run(late, progress)
    except KeyboardInterrupt:
        interrupted = True
    best = descent.best
    if best is None:
        raise KeyboardInterrupt
    return best._replace(result=replace(best.result, interrupted=interrupted), searches=descent.searches)


@dataclass
class _Descent:
    graph: Graph
    solve: Solve
    estimate: Callable[[Graph], int]
    runs: Callable[[Graph], bool]
    most_macs: int
    searches: int = 0
    # the plan of the fewest bytes so far, of equals the one with the fewest multiply-accumulates
    best: Copied | None = None
    least: tuple[float, int] = (inf, 0)  # its bytes, and the multiply-accumulates of its copies
    known: dict[object, int] = field(default_factory=dict[object, int])  # bytes of parts of the network
    fitting: dict[int, Sequence[Cone]] = field(default_factory=dict[int, Sequence[Cone]])  # see `cones`

    def __post_init__(self) -> None:
        self.flow = flow = Dataflow.of(self.graph)
        self.barriers: Sequence[Barrier] = barriers(self.graph)
        self.macs = sum(flow.macs)
        self.starts = [
            min(flow.position[name] for name in barrier.cones[0].operators) for barrier in self.barriers
        ]

    def run(self, late: Callable[[], bool], progress: Progress | None) -> None:
        """Plan the network with one choice of cones after the other. Raises KeyboardInterrupt at Ctrl-C."""
        without = self.whole({})
        count = len(self.barriers)
        if not count or late():
            return
        choice: Choice = self.smallest()
        best = self.whole(choice) if choice else without
        if best is without:
            choice = {}
        done = choice
        for turn in range(PASSES):
            before = choice
            for k in range(count):
                if late():
                    break
                choice = self.improved(k, choice)
                if progress is not None:
                    progress(turn * count + k + 1, PASSES * count, best.result.dram_bytes)
            if choice == before:
                break
        while not self._allowed(choice):
            choice = done if late() else self.smaller(choice)
        if choice != done:
            self.whole(choice)

    def whole(self, choice: Choice) -> Copied:
        """Plan the whole network with these cones copied, and return the best plan so far.

        `choice`: cones by the number of their barrier. Raises KeyboardInterrupt where the search was
        interrupted.
        """
        graph, copies = with_copies(
            self.graph, {self.barriers[k].reduction: cone for k, cone in choice.items()}
        )
        self.searches += 1
        copied = Copied(graph, copies, self.solve(graph), self.searches, len(self.barriers))
        costs = copied.result.dram_bytes, _macs(choice)
        if costs < self.least:
            self.best = copied
            self.least = costs
        if copied.result.interrupted:
            raise KeyboardInterrupt
        assert self.best is not None
        return self.best

    def smallest(self) -> dict[int, Cone]:
        """Smallest cones of the barriers, those of the fewest multiply-accumulates first, up to the limit."""
        chosen: dict[int, Cone] = {}
        for k in sorted(range(len(self.barriers)), key=lambda k: self.barriers[k].cones[0].macs):
            if self._allowed(chosen | {k: self.barriers[k].cones[0]}):
                chosen[k] = self.barriers[k].cones[0]
        return chosen

    def _allowed(self, choice: Choice) -> bool:
        return self.macs + _macs(choice) <= self.most_macs

    def improved(self, k: int, choice: Choice) -> Choice:
        """The choice with the best cone of one barrier, or none: fewest bytes of the blocks around it.

        Of equal ones, that of the fewest multiply-accumulates, whose limit in all is enforced later. Larger
        cones are tried until one is no better than the best before it.
        """
        cheapest = choice
        least = (0, 0)
        for cone in (None, *self.cones(k)):
            other = _with(choice, k, cone)
            if other == choice:
                more = (0, 0)
            else:
                more = (self._more_bytes(k, choice, other), _macs(other) - _macs(choice))
            if more < least:
                cheapest = other
                least = more
            elif cone and cone != cheapest.get(k):
                break
        return cheapest

    def smaller(self, choice: Choice) -> Choice:
        """The choice with one cone smaller or gone: fewest more bytes per multiply-accumulate saved."""
        cheapest = choice
        least = inf
        for k, chosen in choice.items():
            for cone in (None, *self.cones(k)):
                saved = chosen.macs - (cone.macs if cone else 0)
                if (
                    saved > 0
                    and (costs := self._more_bytes(k, choice, other := _with(choice, k, cone)) / saved)
                    < least
                ):
                    cheapest = other
                    least = costs
        return cheapest

    def cones(self, k: int) -> Sequence[Cone]:
        """A barrier's smallest cone, and those larger ones whose copy runs as one group.

        All within the limit of multiply-accumulates. A copy that stores an intermediate map could load the
        original map instead.
        """
        if k not in self.fitting:
            barrier = self.barriers[k]
            position = self.flow.position
            allowed = [cone for cone in barrier.cones if self._allowed({k: cone})]
            groups = (
                sum(1 << position[name] for name in (*cone.operators, barrier.reduction))
                for cone in allowed[1:]
            )
            self.fitting[k] = [
                *allowed[:1],
                *(
                    cone
                    for cone, group in zip(allowed[1:], groups, strict=True)
                    if self.runs(excerpt(self.flow, group))
                ),
            ]
        return self.fitting[k]

    def _more_bytes(self, k: int, before: Choice, after: Choice) -> int:
        """DRAM bytes that the blocks around a barrier move more with `after` than with `before`."""
        begins = [
            self.flow.position[cone.operators[0]] for choice in (before, after) if (cone := choice.get(k))
        ]
        first = self._start(bisect_left(self.starts, min(begins)) - 1)
        stop = self._start(k + 2)
        return self._bytes(first, stop, after) - self._bytes(first, stop, before)

    def _start(self, k: int) -> int:
        """Position of the first operator of a barrier's block, clamped to the ends of the network."""
        if k <= 0:
            return 0
        if k >= len(self.starts):
            return len(self.flow)
        return self.starts[k]

    def _bytes(self, first: int, stop: int, choice: Choice) -> int:
        """DRAM bytes of the operators `first` to `stop`, planned by themselves with the copies among them."""
        position = self.flow.position
        inside: dict[str, Cone] = {}
        for k, cone in choice.items():
            reduction = self.barriers[k].reduction
            if first <= position[cone.operators[0]] and position[reduction] < stop:
                inside[reduction] = cone
        key = first, stop, tuple(sorted((name, len(cone.operators)) for name, cone in inside.items()))
        if key not in self.known:
            part = with_copies(excerpt(self.flow, (1 << stop) - (1 << first)), inside)[0]
            alike = structure(part)
            if alike not in self.known:
                self.searches += 1
                self.known[alike] = self.estimate(part)
            self.known[key] = self.known[alike]
        return self.known[key]


def _with(choice: Choice, k: int, cone: Cone | None) -> Choice:
    others = {j: kept for j, kept in choice.items() if j != k}
    if cone:
        return others | {k: cone}
    return others


def _macs(choice: Choice) -> int:
    return sum(cone.macs for cone in choice.values())
