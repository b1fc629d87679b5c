"""Lower bounds on what any group in bands of rows (mode brr) pays that holds given operators.

Words are those of `lfopt.planning.brr` and `lfopt.planning.bands.slices`. Let a group hold the operators,
and run in T bands or fewer, wherever else it reaches.

* An operator that computes L rows in any group, from the first on without gaps, computes n = ceil(L / T)
  new ones in some band. If a map that it makes is full, n rows of it are there at once; if one that it reads
  is full, as many as any n rows in succession read, at the least.
* Maps made between contractions are all full or all sliced where an operator joins them: one *class*. What
  cannot be taken slice by slice is full.
* Of the two maps around a contraction one is full. So if each class has the bytes of its maps, those of the
  full ones are no less than what can be given to contractions, to each an amount that is taken from both
  classes around it.
* A contraction whose input is not full has partial sums of the n rows beside that. So there are such sums, or
  all contractions have full inputs.

The bytes that maps take by this count do not rise with T. The fewest bands with which they fit bound how
often weights are loaded that do not stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate

import numpy as np

from lfopt.ir import NEVER
from lfopt.ops import RowReads, bits
from lfopt.ops.rows import same_row
from lfopt.planning.bands.slices import SliceSizes
from lfopt.planning.brr.banded import SLOTS
from lfopt.planning.nest.spans import Ints

# numbers of bands tried: every one up to FINE, from there each STEP times the one before
FINE = 24
STEP = 1.1


class BandBounds:
    """Bounds for all groups that hold given operators, on one chip."""

    def __init__(self, slices: SliceSizes) -> None:
        """`slices`: as narrow as the chip allows."""
        self.slices = slices
        flow = slices.dataflow
        self._counts = np.array([*_counts(max(flow.heights, default=1))], np.int64)
        self._alone = [_alone(slices, i) for i in range(len(flow))]
        self._own = [
            sum(slices.constant_bytes[s.name] for s in f.streamed) if a else 0
            for f, a in zip(slices.facts, self._alone, strict=True)
        ]
        self._block = [
            min(
                slices.block_bytes(i, sums=sums)
                for sums in ((False, True) if slices.facts[i].sums else (False,))
            )
            if self._alone[i]
            else 0
            for i in range(len(flow))
        ]
        self._written = [tuple(m for m in results if slices.needed(m)) for results in flow.results]
        self._bytes: list[Ints] = []  # of a map, for one operator that makes or reads it, by number of bands
        self._touches = [[(m, self._row_of(i, m)) for m in self._touched(i)] for i in range(len(flow))]
        self._table = np.array(self._bytes, np.int64).reshape(-1, len(self._counts))
        self._around = [  # per contraction: the maps around it
            tuple((o.map, m) for o in flow.operands[i] if o.input == 0 for m in self._written[i])
            if facts.contracts
            else ()
            for i, facts in enumerate(slices.facts)
        ]
        self._sums = [  # per contraction: bytes of partial sums, if its input is not full, by number of bands
            -(-facts.least_rows // self._counts) * slices.sum_bytes(i)
            if facts.contracts and facts.computes
            else np.zeros_like(self._counts)
            for i, facts in enumerate(slices.facts)
        ]
        self._joined = [  # per operator that is none: the maps that it reads
            () if facts.contracts else tuple(o.map for o in operands)
            for facts, operands in zip(slices.facts, flow.operands, strict=True)
        ]
        self._full = [frozenset(self._always_full(i)) for i in range(len(flow))]
        self._spread = [  # per operator: maps of one row that it spreads over many
            frozenset(o.map for o in operands if flow.heights[i] > 1 and flow.maps[o.map].rows == 1)
            for i, operands in enumerate(flow.operands)
        ]

    def _touched(self, op: int) -> list[int]:
        flow = self.slices.dataflow
        return [*dict.fromkeys((*(o.map for o in flow.operands[op]), *self._written[op]))]

    def _row_of(self, op: int, m: int) -> int:
        """Adds the bytes of the map that are there for the operator, and says where in the table."""
        flow = self.slices.dataflow
        facts = self.slices.facts[op]
        new = -(-(facts.least_rows if facts.computes else 0) // self._counts)
        rows = new if m in self._written[op] else np.zeros_like(new)
        for o in flow.operands[op]:
            if o.map == m:
                rows = np.maximum(
                    rows,
                    new
                    if o.reads is same_row(o.reads.rows_in)
                    else [_rows_read(o.reads, n) for n in new.tolist()],
                )
        self._bytes.append(rows * self.slices.row_bytes[m])
        return len(self._bytes) - 1

    def _always_full(self, op: int) -> Iterator[int]:
        """Maps that are full in every group of the operator."""
        flow = self.slices.dataflow
        slices = self.slices
        if slices.facts[op].never:
            return
        yield from (o.map for o in flow.operands[op] if not slices.takes_slices(op, o.input))
        if slices.facts[op].contracts and len(slices.spans(flow.calls[op].result)) == 1:
            yield from self._written[op]

    def extra_bytes(self, mask: int, beta: int) -> int:
        """Lower bound on the weight bytes beyond once of a group that holds these operators.

        NEVER if no such group is valid on a buffer of `beta` bytes.
        """
        slices = self.slices
        hardware = self.slices.hardware
        operators = [*bits(mask)]
        written = {m for i in operators for m in self._written[i]}
        if any(slices.facts[i].never or self._spread[i] & written for i in operators):
            return NEVER
        held = sum(
            slices.constant_bytes[name] for name in {name for i in operators for name in slices.facts[i].held}
        )
        own = sum(self._own[i] for i in operators)
        maps = self._map_bytes(operators, written)
        if hardware.buffer_need(int(maps[-1]), held + own) < beta:
            return 0
        passing = held + SLOTS * max(self._block[i] for i in operators)
        fit = np.flatnonzero(maps < beta - hardware.buffer_need(0, passing))
        if not fit.size:
            return NEVER
        if fit[0]:
            return int(self._counts[fit[0] - 1]) * own
        return 0

    def _map_bytes(self, operators: list[int], written: set[int]) -> Ints:
        """(counts,) int64: least bytes of full maps, by number of bands."""
        touches: dict[int, list[int]] = {}  # per map: rows of the table
        always: set[int] = set()
        for i in operators:
            always |= self._full[i]
            for m, row in self._touches[i]:
                if m in touches:
                    touches[m].append(row)
                else:
                    touches[m] = [row]
        of = self._classes(operators, written, touches)
        members: dict[int, list[int]] = {}
        for m, root in of.items():
            members.setdefault(root, []).append(m)
        position = {root: k for k, root in enumerate(members)}
        maps = [m for alike in members.values() for m in alike]
        sizes = np.maximum.reduceat(
            self._table[[row for m in maps for row in touches[m]]], _starts([len(touches[m]) for m in maps])
        )
        sizes = np.add.reduceat(sizes, _starts([len(alike) for alike in members.values()]))
        full = [*{position[of[m]] for m in always}]
        total = sizes[full].sum(axis=0)
        sizes[full] = 0
        inputs = [*{position[of[a]] for i in operators for a, _ in self._around[i]}]
        no_sums = total + sizes[inputs].sum(axis=0)
        for i in operators:
            for a, b in self._around[i]:
                one = position[of[a]]
                other = position[of[b]]
                amount = np.minimum(sizes[one], sizes[other])
                total += amount
                sizes[one] -= amount
                if one != other:
                    sizes[other] -= amount
        sums = [self._sums[i] for i in operators if self._around[i]]
        if sums:
            return np.minimum(total + np.minimum.reduce(sums), no_sums)
        return total

    def _classes(self, operators: list[int], written: set[int], maps: Iterable[int]) -> dict[int, int]:
        """Per map: a map that stands for its class.

        What the operators do not make may come from outside the group: it is in a class of its own.
        """
        of = dict(zip(maps, maps, strict=True))
        for i in operators:
            inside = [m for m in self._joined[i] if m in written]
            if inside:
                roots = {of[m] for m in inside}
                first = of[inside[0]]
                if len(roots) > 1:
                    of = {m: first if other in roots else other for m, other in of.items()}
                for m in self._written[i]:
                    of[m] = first
        return of


def _starts(lengths: list[int]) -> list[int]:
    """First index of each part of these lengths."""
    return [0, *accumulate(lengths[:-1])]


def _counts(most: int) -> Iterator[int]:
    """Numbers of bands, with the most that there may be at the end."""
    count = 1
    while count < most:
        yield count
        count = count + 1 if count < FINE else int(count * STEP)
    yield most


def _alone(slices: SliceSizes, op: int) -> bool:
    """Whether the weights of an operator pass block by block in any group: it is their only reader."""
    own = {s.name for s in slices.facts[op].streamed}
    return bool(own) and not own & slices.read_by_several


@cache
def _rows_read(reads: RowReads, rows: int) -> int:
    """Least rows between the lowest and the highest input row of `rows` consecutive rows of the reader."""
    if not rows:
        return 0
    return min(max(need - keep, 0) for need, keep in zip(reads.need[rows - 1 :], reads.keep, strict=False))
