"""DRAM bytes that no partition into groups avoids, because operators that depend on each other are too far apart to share a group.

A *stretch* is two operators, one of which depends on the other, and all operators on the paths between them. Groups are convex: one that holds the
first and the last holds the stretch. Let E be the bytes of weights that such a group loads beyond once, at the least; NEVER if there is none.

In a plan, let w(m) = 1 if a reader of map m is outside the group of its producer, so that m is stored and loaded at a cost of c(m) bytes, else 0; and
x(k) >= 0 the bytes of its own weights that operator k loads beyond once. Of every stretch s and every path p from its first to its last operator:

    sum over operators k of s of x(k) / E(s)  +  sum over maps m along p of w(m)  >=  1          (without the first sum if E(s) is NEVER)

for either some map along p leaves its group, or all of p, and so all of s, is in one group. The plan moves, beyond the compulsory bytes, at least
sum c(m) w(m) + sum x(k). By duality of linear programs, bytes y >= 0 of the paths prove their sum, where for every map the y of paths through it sum
to at most c(m), and for every operator the y / E of stretches over it to at most 1. The program is solved in floating point, with paths added as long
as one is violated; what counts is y in whole bytes, made to keep these limits exactly.

If the first operator of a stretch has not run yet, none of it has. So the bytes that stretches with that first operator prove are still to come, and
a search that executes group after group may count them among those that the rest moves.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from lfopt.ir import NEVER
from lfopt.ops import Dataflow, bits

FAR = 32  # how far down in the order of operators the last of a stretch may be; readers of what the first makes are tried wherever they are
TRIES = 48  # stretches from one operator whose weights are loaded again, worked out
ROUNDS = 12  # programs solved
VIOLATED = 1e-6  # what a path must lack of 1 to be added


class Stretches(NamedTuple):
    """The stretches that begin with one operator and for which a group pays."""

    never: int  # mask of last operators that no group holds the first with
    extra: dict[int, int]  # E by other last operators, where it is known to be above 0


class _Path(NamedTuple):
    """A stretch with one of its paths."""

    first: int
    operators: int  # mask of the stretch; 0 if no group holds it
    extra: int  # E
    maps: tuple[int, ...]


def stretches(flow: Dataflow, extra_bytes: Callable[[int, int, int], int]) -> list[Stretches]:
    """Per operator. `extra_bytes(first, last, operators)` is E of a stretch, which must not fall as the stretch grows.

    Hence it is at least that of a stretch within, and nothing if the stretch is within one that costs nothing: the farthest are worked out first.
    """
    found = [Stretches(0, {})] * len(flow)
    for i in reversed(range(len(flow))):
        near = (((1 << FAR) - 1) << i | flow.succs[i]) & flow.descendants[i]
        never, known = 0, dict[int, int]()
        for s in bits(flow.succs[i]):
            never |= found[s].never
            known |= {last: max(more, known.get(last, 0)) for last, more in found[s].extra.items() if near >> last & 1}
        left, tries, last = near & ~never, TRIES, -1
        if not flow.weights[i]:  # it adds little to what is known
            left &= ~sum(1 << k for k in known)
        while left and tries:
            last = left.bit_length() - 1 if last < 0 else _median(left)
            stretch = between(flow, i, last)
            more = extra_bytes(i, last, stretch)
            left &= ~(stretch if more == 0 else 1 << last)
            if 0 < more < NEVER:
                known[last], tries = more, tries - 1
                continue
            if more:
                never |= flow.descendants[last] | 1 << last
                left &= ~never
            last = -1
        found[i] = Stretches(never & near, {last: more for last, more in known.items() if not never >> last & 1})
    return found


def between(flow: Dataflow, first: int, last: int) -> int:
    """Mask of the stretch from one operator to another."""
    return flow.descendants[first] & flow.ancestors[last] | 1 << first | 1 << last


def _median(mask: int) -> int:
    """The bit in the middle of those set."""
    positions = [*bits(mask)]
    return positions[len(positions) // 2]


def unavoidable(flow: Dataflow, found: Sequence[Stretches], cut_bytes: Sequence[int]) -> list[int]:
    """Per operator: bytes beyond the compulsory ones that the stretches which begin with it prove; together, what a plan moves at the least.

    `cut_bytes`: per map, c(m).
    """
    links = [[(reader, m) for m in results for reader in bits(flow.readers[m])] for results in flow.results]
    paths = [_Path(i, 0, NEVER, (m,)) for i, begun in enumerate(found) for m in sorted({m for r, m in links[i] if begun.never >> r & 1})]
    known, counts = {*paths}, list[float]()
    cuts, more = [0.0] * len(cut_bytes), [0.0] * len(flow)
    for _ in range(ROUNDS):
        new = [path for i in range(len(flow)) if (path := _violated(flow, i, found[i], links, cuts, more)) and path not in known]
        if len(counts) == len(paths) + len(new):
            break
        known.update(new)
        paths += new
        counts = _solved(paths, cut_bytes, cuts, more)
    proven = [0] * len(flow)
    for path, size in zip(paths, _exact(paths, counts, cut_bytes), strict=True):
        proven[path.first] += size
    return proven


def _violated(
    flow: Dataflow, first: int, begun: Stretches, links: Sequence[Sequence[tuple[int, int]]], cuts: Sequence[float], more: Sequence[float]
) -> _Path | None:
    """Of the stretches that begin with an operator, and their shortest paths: the one that lacks the most of 1, if any does."""
    inside = begun.never
    for last in begun.extra:
        inside |= 1 << last
    if not inside:
        return None
    for last in bits(inside):
        inside |= flow.ancestors[last]
    lacking, found = VIOLATED, -1
    via = dict[int, tuple[int, int]]()  # per operator: the one before it on its shortest path, and the map between
    distance, heap, done = {first: 0.0}, [(0.0, first)], 0
    while heap and heap[0][0] + lacking < 1:
        here, i = heapq.heappop(heap)
        if done >> i & 1:
            continue
        done |= 1 << i
        if begun.never >> i & 1 or i in begun.extra:
            paid = sum(more[k] for k in bits(between(flow, first, i))) / begun.extra[i] if i in begun.extra else 0.0
            if 1 - here - paid > lacking:
                lacking, found = 1 - here - paid, i
        for reader, m in links[i]:
            there = here + cuts[m]
            if inside >> reader & 1 and there < distance.get(reader, 1.0):
                distance[reader], via[reader] = there, (i, m)
                heapq.heappush(heap, (there, reader))
    if found < 0:
        return None
    maps, i = list[int](), found
    while i != first:
        i, m = via[i]
        maps.append(m)
    never = begun.never >> found & 1
    return _Path(first, 0 if never else between(flow, first, found), NEVER if never else begun.extra[found], tuple(maps))


def _solved(paths: Sequence[_Path], cut_bytes: Sequence[int], cuts: list[float], more: list[float]) -> list[float]:
    """Solve the program of these paths: `cuts` and `more` become w and x; returns y in bytes."""
    from scipy.optimize import linprog  # noqa: PLC0415  (takes half a second)

    maps = sorted({m for path in paths for m in path.maps})
    operators = sorted({k for path in paths for k in bits(path.operators)})
    unit = max((path.extra for path in paths if path.operators), default=1)  # of x, so that no entry is tiny
    column = {m: k for k, m in enumerate(maps)} | {~i: len(maps) + k for k, i in enumerate(operators)}
    entries = [(row, column[m], 1.0) for row, path in enumerate(paths) for m in path.maps]
    entries += [(row, column[~k], unit / path.extra) for row, path in enumerate(paths) for k in bits(path.operators)]
    rows, columns, values = (np.array(found) for found in zip(*entries, strict=True))
    limits = csr_array((values, (rows, columns)), shape=(len(paths), len(column)))
    costs = np.array([float(cut_bytes[m]) for m in maps] + [float(unit)] * len(operators))
    solution = linprog(costs, A_ub=-limits, b_ub=-np.ones(len(paths)), method="highs")
    if solution.status != 0:
        return [0.0] * len(paths)  # which proves nothing, and is sound
    for m in maps:
        cuts[m] = float(solution.x[column[m]])
    for i in operators:
        more[i] = unit * float(solution.x[column[~i]])
    return (-solution.ineqlin.marginals).tolist()


def _exact(paths: Sequence[_Path], counts: Sequence[float], cut_bytes: Sequence[int]) -> list[int]:
    """Whole bytes, no more than the y found, that keep the limits of every map and operator exactly."""
    room = dict[int, int]()  # per map: bytes left
    share = dict[int, Fraction]()  # per operator: what is left of 1
    found: list[int] = []
    for path, count in zip(paths, counts, strict=True):
        size = min([max(round(count), 0), *(room.get(m, cut_bytes[m]) for m in path.maps)])
        if path.operators:
            left = min(share.get(k, Fraction(1)) for k in bits(path.operators))
            size = min(size, int(left * path.extra))
            share |= {k: share.get(k, Fraction(1)) - Fraction(size, path.extra) for k in bits(path.operators)}
        room |= {m: room.get(m, cut_bytes[m]) - size for m in path.maps}
        found.append(size)
    return found
