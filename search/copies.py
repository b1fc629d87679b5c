"""Which barriers get a copy of the cone before them, and from where on: coordinate descent, with exact searches of parts of the network.

Copies change what their neighbourhood moves, so one choice after the other is judged by the blocks around it alone: an interval of the network in
topological order, which is convex, planned by itself. The networks as a whole are planned with no copies, with all of the smallest ones, and with
those that the descent ends with; the best of these is taken, so that copies never cost bytes. What is proven holds for these copies: other choices
could move less, down to the bound that is given with the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lfopt.ir import Copy, Graph
from lfopt.ops import Dataflow
from lfopt.ops.excerpt import excerpt
from lfopt.rewrite.copies import Barrier, Cone, barriers, with_copies
from search.result import Result

PASSES = 3  # over all barriers, at most

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
    *,
    most_macs: int,
    late: Callable[[], bool],
    progress: Progress | None = None,
) -> Copied:
    """The network with the copies that let it move the fewest bytes, as far as the descent finds them.

    `graph`: without copies. `solve`: an exact search; `estimate`: bytes of a good plan, found faster, or KeyboardInterrupt. `most_macs`:
    multiply-accumulates that the network may have with its copies. `late`: whether the time is over; then the best plan so far is taken, as it is
    at Ctrl-C, be it in a search or between two. Raises KeyboardInterrupt where there is none yet.
    """
    descent = _Descent(graph, solve, estimate, most_macs)
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
    most_macs: int
    searches: int = 0
    best: Copied | None = None  # the plan of the fewest bytes so far
    known: dict[object, int] = field(default_factory=dict[object, int])  # bytes of parts of the network

    def __post_init__(self) -> None:
        self.flow = flow = Dataflow.of(self.graph)
        self.barriers: Sequence[Barrier] = barriers(self.graph)
        self.macs = sum(flow.macs)
        self.starts = [min(flow.position[name] for name in barrier.cones[0].operators) for barrier in self.barriers]

    def run(self, late: Callable[[], bool], progress: Progress | None) -> None:
        """Plan the network with one choice of cones after the other. Raises KeyboardInterrupt at Ctrl-C."""
        without, found = self.whole({}), self.barriers
        if not found or late():
            return
        choice = self.smallest()
        best = self.whole(choice) if choice else without
        if best is without:
            choice = {}
        done = dict(choice)
        for turn in range(PASSES):
            before = dict(choice)
            for k in range(len(found)):
                if late():
                    break
                self.improve(k, choice)
                if progress is not None:
                    progress(turn * len(found) + k + 1, PASSES * len(found), best.result.dram_bytes)
            if choice == before:
                break
        if choice != done:
            self.whole(choice)

    def whole(self, choice: Mapping[int, Cone]) -> Copied:
        """The best plan so far, once all of the network is planned with these cones copied, by number of the barrier. Raises KeyboardInterrupt."""
        graph, copies = with_copies(self.graph, {self.barriers[k].reduction: cone for k, cone in choice.items()})
        self.searches += 1
        found = Copied(graph, copies, self.solve(graph), self.searches, len(self.barriers))
        if self.best is None or found.result.dram_bytes < self.best.result.dram_bytes:
            self.best = found
        if found.result.interrupted:
            raise KeyboardInterrupt
        return self.best

    def smallest(self) -> dict[int, Cone]:
        """The smallest cone of every barrier, as many as the multiply-accumulates allow: those first that cost the fewest."""
        chosen: dict[int, Cone] = {}
        for k in sorted(range(len(self.barriers)), key=lambda k: self.barriers[k].cones[0].macs):
            if self._allowed(chosen | {k: self.barriers[k].cones[0]}):
                chosen[k] = self.barriers[k].cones[0]
        return chosen

    def _allowed(self, choice: Mapping[int, Cone]) -> bool:
        return self.macs + sum(cone.macs for cone in choice.values()) <= self.most_macs

    def improve(self, k: int, choice: dict[int, Cone]) -> None:
        """Take the cone of one barrier, or none, with which the blocks around move the fewest bytes. Larger ones are tried as long as that helps."""
        here: Cone | None = None
        others = {j: cone for j, cone in choice.items() if j != k}
        for larger in self.barriers[k].cones:
            with_it = others | {k: larger}
            if not self._allowed(with_it):
                break
            first, stop = min(self._start(k - 1), self.flow.position[larger.operators[0]]), self._start(k + 2)
            before = others | ({k: here} if here else {})
            if self._bytes(first, stop, with_it) >= self._bytes(first, stop, before):
                break
            here = larger
        choice.pop(k, None)
        if here is not None:
            choice[k] = here

    def _start(self, k: int) -> int:
        """The first operator of a barrier's block; those of barriers before and after all are the ends of the network."""
        return 0 if k <= 0 else len(self.flow) if k >= len(self.starts) else self.starts[k]

    def _bytes(self, first: int, stop: int, choice: Mapping[int, Cone]) -> int:
        """What the operators of an interval move, planned by themselves, with those of the copies that lie in it."""
        position = self.flow.position
        inside: dict[str, Cone] = {}
        for k, cone in choice.items():
            reduction = self.barriers[k].reduction
            if first <= position[cone.operators[0]] and position[reduction] < stop:
                inside[reduction] = cone
        key = first, stop, tuple(sorted((name, len(cone.operators)) for name, cone in inside.items()))
        if key not in self.known:
            part = excerpt(self.flow, (1 << stop) - (1 << first))
            self.searches += 1
            self.known[key] = self.estimate(with_copies(part, inside)[0])
        return self.known[key]
