"""Where a group may be cut in two: the cuts that a link belongs to, completed across skips.

A *cut* of a group is a pair of groups (first, second): every operator of the group that `first` reads from is
in `first`, and both halves hang together, by links or by reading the same map. So no smaller cut lies within
it, the halves of a convex group are convex, and `first` can be executed before `second`.

A link (u, v) rarely divides a group alone: with it must go a skip that passes over it, something on every
branch beside it, or, where it is a skip itself, some link beneath it. All that is found by growing `first`
from u and what u depends on: whatever hangs together with v only through `first` joins it, which makes a cut;
each operator that borders on `first` and does not depend on v is then made to join, or held back, in turn.
This meets every cut that holds the link once, however skips are nested.

Source: arXiv 2501.00636, section IV-B, asks for cut sets completed across skips. That growing lists each
minimal cut once is Provan and Shier's idea (Algorithmica 15, 1996).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lfopt.fusion import component
from lfopt.ops import Dataflow, bits

MOST = 16  # cuts of one link; nested branches have as many as the product of their lengths


class Cut(NamedTuple):
    """A group in two."""

    elements: int  # of feature maps that a plan moves for the two groups and not for the whole
    first: int  # mask of operators
    second: int  # mask of operators, to be executed after those of `first`


class GroupCuts:
    """The cuts of one connected, convex group."""

    def __init__(self, flow: Dataflow, mask: int) -> None:
        self.flow = flow
        self.mask = mask
        self._touched = [*_touched(flow, mask)]

    def through(self, u: int, v: int, most: int = MOST) -> list[Cut]:
        """At most `most` cuts with operators u and v on different sides, fewest elements moved first.

        Of a producer and its reader, the producer is in `first`; two readers of one map may go either way.
        Where there are more than `most`, those taken are cheap for what the growth has met: it starts from
        the smallest `first`, and always goes on from the cut of the fewest elements.
        """
        flow = self.flow
        orders = [(u, v), (v, u)]
        heap = [self._start(a, b) for a, b in orders if not flow.ancestors[a] >> b & 1]
        heapq.heapify(heap)
        cuts: dict[tuple[int, int], Cut] = {}
        while heap and len(cuts) < most:
            cut, held, end = heapq.heappop(heap)
            cuts.setdefault((cut.first, cut.second), cut)
            if len(cuts) < most:
                for larger in self._grown(cut, held, end):
                    heapq.heappush(heap, larger)
        return sorted(cuts.values())

    def _start(self, u: int, v: int) -> tuple[Cut, int, int]:
        """(cut with the smallest `first`, mask of operators held back, operator that stays in `second`)."""
        return self._cut(self.flow.ancestors[u] & self.mask | 1 << u, v), 0, v

    def _cut(self, first: int, v: int) -> Cut:
        """The cut whose `second` is the component of v outside `first`."""
        second = component(self.flow.neighbours, self.mask & ~first, 1 << v)
        first = self.mask & ~second
        return Cut(
            sum([size for touched, size in self._touched if touched & first and touched & second]),
            first,
            second,
        )

    def _grown(self, cut: Cut, held: int, v: int) -> Iterator[tuple[Cut, int, int]]:
        """Cuts with one more operator in `first`, each without the operators that joined in those before."""
        flow = self.flow
        held |= flow.descendants[v] | 1 << v
        for w in bits(cut.second & ~held):
            if held >> w & 1 or not flow.neighbours[w] & cut.first:
                continue
            larger = self._cut(cut.first | flow.ancestors[w] & self.mask | 1 << w, v)
            if not larger.first & held:
                yield larger, held, v
            held |= flow.descendants[w] | 1 << w


def cheapest(flow: Dataflow, mask: int, where: np.ndarray) -> list[Cut]:
    """The cut through each link of a connected, convex group that moves the fewest elements.

    `where`: (2, links) int64, the links as positions in the group.
    """
    operators = [*bits(mask)]
    through = GroupCuts(flow, mask)
    return [through.through(operators[u], operators[v], 1)[0] for u, v in where.T.tolist()]


def _touched(flow: Dataflow, mask: int) -> Iterator[tuple[int, int]]:
    """Per map: (mask of the group's operators that make or read it, elements moved if a cut parts them)."""
    results: set[int] = {m for i in bits(mask) for m in flow.results[i]}
    for m in results | {o.map for i in bits(mask) for o in flow.operands[i]}:
        touched = flow.readers[m] & mask | (1 << flow.producer[m] if m in results else 0)
        if touched & (touched - 1):
            stored = m not in results or flow.is_output[m] or bool(flow.readers[m] & ~mask)
            yield touched, flow.maps[m].elements * (1 if stored else 2)
