"""The linear program of what stretches force: maps that are cut, how often each is loaded, re-reads.

In a plan, a map that is read outside the group of its producer is written, and loaded by each group that
reads it there. Let w(m, r) = 1 if r is the first reader of map m in such a group. Which readers that load may
serve is known beforehand: r itself, and later ones that may share a group with it (`served`). So for every
reader r' of m outside the group of the producer,

    sum of w(m, r) over loads that may serve r'  >=  1

and the plan pays `load` bytes for every w, and `write` bytes once if any is 1. Let x(k) >= 0 be the bytes
beyond once that operator k moves in the group it is in. Of every stretch s, and every path p from its first
operator to its last:

    sum over operators k of s of x(k) / E(s)  +  sum over steps of p, from a map m to its reader, of w over
                                                 loads that may serve it  >=  1

(without the first sum if no group holds s), for either some step of p leaves its group, or all of p, and so
all of s, is in one. By duality, bytes y >= 0 of the paths prove their sum, where the y of paths through a
load sum to at most `load`, but for `write` bytes more over all loads of the map, and for every operator the y
/ E of stretches over it sum to at most 1. The program is solved in floating point, with paths added as long
as one is violated; what counts is y in whole bytes, made to keep these limits exactly.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from lfopt.ir import NEVER
from lfopt.ops import Dataflow, bits
from lfopt.planning.bounds.stretches import Stretches, between
from lfopt.planning.steps.limit import never

ROUNDS = 12  # programs solved
# entries of a program that takes half a second: larger last rounds prove little more and are left out
LARGE = 50_000
LITTLE = 1e-3  # fraction of the bytes proven: a gain that is not worth another round
VIOLATED = 1e-6  # a path is added if it lacks more than that of 1

MapLoad = tuple[int, int]  # a map, and a mask of the readers that it may serve


class CutCosts(NamedTuple):
    """A map: what it costs to cut it."""

    write: int  # bytes, once
    load: int  # bytes, for every group beside that of its producer
    readers: int  # mask of operators that read it in the end (`lfopt.planning.bounds.reading`)
    # masks of readers that one load may serve; of those in one group, all are in that of the first of them
    served: tuple[int, ...]


def served(
    flow: Dataflow, stretches: Sequence[Stretches], compatible: Sequence[int], readers_of: int
) -> tuple[int, ...]:
    """Masks of these readers of a map that one load may serve; none contains another."""
    readers = [*bits(readers_of)]
    masks = list[int]()
    for k, first in enumerate(readers):
        together = (
            r
            for r in readers[k + 1 :]
            if compatible[first] >> r & 1 and not stretches[first].never & (flow.ancestors[r] | 1 << r)
        )
        masks.append(1 << first | sum(1 << r for r in together))
    return tuple(mask for mask in masks if not any(mask != other and not mask & ~other for other in masks))


class _Path(NamedTuple):
    """A stretch with one of its paths."""

    first: int
    operators: int  # mask of the stretch; 0 if no group holds it
    extra: int  # E
    loads: tuple[MapLoad, ...]  # those of its steps


def unavoidable(
    flow: Dataflow,
    stretches: Sequence[Stretches],
    maps: Sequence[CutCosts],
    late: Callable[[], bool] = never,
    through: int = 0,
) -> list[int]:
    """Per operator: bytes beyond the compulsory ones that the stretches which begin with it prove.

    Their sum is the least that any plan moves beyond those. `maps`: what each costs. Once it is `late`, no
    further program is solved, which proves less. `through`: operators that may be read through, with which no
    stretch begins or ends.
    """
    return _Program(flow, stretches, maps, through).proven(late)


class _Program:
    """The program, with the paths known so far."""

    def __init__(
        self, flow: Dataflow, stretches: Sequence[Stretches], maps: Sequence[CutCosts], through: int
    ) -> None:
        self.flow = flow
        self.stretches = stretches
        self.maps = maps
        self.links = [
            [(r, self._step(m, r)) for m in results for r in bits(maps[m].readers)]
            if not through >> i & 1
            else []
            for i, results in enumerate(flow.results)
        ]
        self.within = [self._within(i) for i in range(len(flow))]
        self.cuts: dict[MapLoad, float] = {}  # w
        self.more = [0.0] * len(flow)  # x
        self.paths = [
            _Path(i, 1 << i, begun.extra[i], ())
            for i, begun in enumerate(stretches)
            if i in begun.extra and not through >> i & 1
        ]
        for i, begun in enumerate(stretches):
            self.paths += [_Path(i, 0, NEVER, step) for r, step in self.links[i] if begun.never >> r & 1]
        self.paths = [*dict.fromkeys(self.paths)]

    def _step(self, m: int, reader: int) -> tuple[MapLoad, ...]:
        return tuple((m, mask) for mask in self.maps[m].served if mask >> reader & 1)

    def _within(self, first: int) -> int:
        """Operators on paths of stretches that begin with this one."""
        begun = self.stretches[first]
        lasts = begun.never | sum(1 << last for last in begun.extra)
        inside = lasts
        for last in bits(lasts):
            inside |= self.flow.ancestors[last]
        if lasts & ~(1 << first):
            return inside
        return 0

    def proven(self, late: Callable[[], bool]) -> list[int]:
        """See `unavoidable`."""
        known = {*self.paths}
        counts = list[float]()
        for _ in range(ROUNDS):
            if late():
                break
            new = [path for i in range(len(self.flow)) if (path := self._violated(i)) and path not in known]
            if len(counts) == len(self.paths) + len(new):
                break
            known.update(new)
            self.paths += new
            before = sum(counts)
            counts = self._solved()
            large = sum(len(path.loads) + path.operators.bit_count() for path in self.paths) > LARGE
            if large and sum(counts) < before * (1 + LITTLE):
                break
        proven = [0] * len(self.flow)
        # paths of a round that was not solved prove nothing
        for path, size in zip(self.paths[: len(counts)], self._exact(counts), strict=True):
            proven[path.first] += size
        return proven

    def _violated(self, first: int) -> _Path | None:
        """The shortest path that lacks the most of 1, of the stretches that begin with an operator.

        None if all reach 1.
        """
        begun = self.stretches[first]
        inside = self.within[first]
        cuts = self.cuts
        flow = self.flow
        if not inside:
            return None
        lacking = VIOLATED
        last = -1
        # per operator: the one before it on its shortest path, and the step between
        via = dict[int, tuple[int, tuple[MapLoad, ...]]]()
        distance = {first: 0.0}
        heap = [(0.0, first)]
        done = 0
        while heap and heap[0][0] + lacking < 1:
            here, i = heapq.heappop(heap)
            if done >> i & 1:
                continue
            done |= 1 << i
            if i != first and (begun.never >> i & 1 or i in begun.extra):
                if i in begun.extra:
                    paid = sum(self.more[k] for k in bits(between(flow, first, i))) / begun.extra[i]
                else:
                    paid = 0.0
                if 1 - here - paid > lacking:
                    lacking = 1 - here - paid
                    last = i
            for reader, step in self.links[i]:
                if inside >> reader & 1:
                    there = here + sum([cuts.get(load, 0.0) for load in step])
                    if there < distance.get(reader, 1.0):
                        distance[reader], via[reader] = there, (i, step)
                        heapq.heappush(heap, (there, reader))
        if last < 0:
            return None
        steps = list[MapLoad]()
        i = last
        while i != first:
            i, step = via[i]
            steps += step
        never = begun.never >> last & 1
        return _Path(
            first,
            0 if never else between(flow, first, last),
            NEVER if never else begun.extra[last],
            tuple(steps),
        )

    def _solved(self) -> list[float]:
        """Solve the program of these paths: `cuts` and `more` become w and x; returns y in bytes."""
        from scipy.optimize import linprog  # noqa: PLC0415  (takes half a second)
        from scipy.sparse import csr_array  # noqa: PLC0415  (so does this, less)

        paths = self.paths
        maps = self.maps
        # columns of: w of a load, by (map, readers); the write of a map with several loads; x(k), by ~k
        columns = dict[MapLoad | int, int]()
        costs = list[float]()
        entries = list[tuple[int, int, float]]()
        limits = [-1.0] * len(paths)

        def column(of: MapLoad | int, cost: float) -> int:
            if of not in columns:
                columns[of] = len(costs)
                costs.append(cost)
            return columns[of]

        # bytes in a unit of x, so that no entry is tiny
        unit = max((path.extra for path in paths if path.operators), default=1)
        for row, path in enumerate(paths):
            for m, mask in path.loads:
                cut = maps[m]
                new = (m, mask) not in columns
                if len(cut.served) == 1:
                    entries.append((row, column((m, mask), cut.write + cut.load), -1.0))
                    continue
                entries.append((row, column((m, mask), cut.load), -1.0))
                if new and cut.write:
                    entries += [
                        (len(limits), columns[m, mask], 1.0),
                        (len(limits), column(m, cut.write), -1.0),
                    ]
                    limits.append(0.0)
            entries += [(row, column(~k, unit), -unit / path.extra) for k in bits(path.operators)]
        if not entries:
            return [0.0] * len(paths)
        rows, places, values = (np.array(column_entries) for column_entries in zip(*entries, strict=True))
        matrix = csr_array((values, (rows, places)), shape=(len(limits), len(costs)))
        solution = linprog(costs, A_ub=matrix, b_ub=limits, method="highs")
        if solution.status != 0:
            return [0.0] * len(paths)  # which proves nothing, and is sound
        self.more = [0.0] * len(self.flow)
        for of, k in columns.items():
            if isinstance(of, tuple):
                self.cuts[of] = float(solution.x[k])
            elif of < 0:
                self.more[~of] = unit * float(solution.x[k])
        return (-solution.ineqlin.marginals[: len(paths)]).tolist()

    def _exact(self, counts: Sequence[float]) -> list[int]:
        """Whole bytes, no more than the y found, that keep all limits exactly."""
        used: Counter[MapLoad] = Counter()
        share = dict[int, Fraction]()  # per operator: what is left of 1
        proven_bytes: list[int] = []
        for path, count in zip(self.paths[: len(counts)], counts, strict=True):
            size = max(round(count), 0)
            for m in {m for m, _ in path.loads}:
                size = self._fitting(m, [mask for n, mask in path.loads if n == m], used, size)
            if path.operators:
                left = min(share.get(k, Fraction(1)) for k in bits(path.operators))
                size = min(size, int(left * path.extra))
                share |= {
                    k: share.get(k, Fraction(1)) - Fraction(size, path.extra) for k in bits(path.operators)
                }
            for step in path.loads:
                used[step] += size
            proven_bytes.append(size)
        return proven_bytes

    def _fitting(self, m: int, touched: Sequence[int], used: Counter[MapLoad], size: int) -> int:
        """At most `size`: bytes that the shares touched of a map may be given, beside those used."""
        cut = self.maps[m]
        while size:
            over = (
                sum(max(used[m, mask] + size * (mask in touched) - cut.load, 0) for mask in cut.served)
                - cut.write
            )
            if over <= 0:
                break
            size = max(size - -(-over // len(touched)), 0)
        return size
