"""Buffer requirement of groups in the modes of no paper, beside `explainers.formulas`.

* `by_strips`, of mode strips: rings of as many rows as in mode lbdf, each row as long as a strip of its map.
  Which columns of every map a strip takes follows from its readers, backwards, as in the planner
  (`lfopt.planning.columns.strips`); here of two strips for each number of strips, the one in the middle, as
  inner strips are alike, and the last. The least over the numbers of strips whose multiply-accumulates, halos
  included, are allowed; infinite if none are.
* `by_slices`, `by_gates`, of modes sliced and gated: what the planner says. Few groups can run so, and are
  told at a look: segments from one contraction to another, blocks around a gate. What they need is a closed
  form there, no schedule that would have to be run: nothing is left to estimate.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from explainers.formulas import Formulas, needs_of
from lfopt.ir import Hardware
from lfopt.ops import Dataflow, RowReads
from lfopt.ops.columns import column_count, column_reads
from lfopt.planning import MODES
from lfopt.planning.columns.strips import StripGroups
from lfopt.planning.defaults import MAX_RECOMPUTE
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes import ExecutionMode, SearchSpace
from lfopt.planning.nest.spans import lowest, needed

# strips tried, of whole columns of the narrowest map
EVEN = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
UNEVEN = (2, 3, 4, 6, 8)  # strips tried that need not be so; the planner tries 2 to 64 of either
COUNTS = np.array(EVEN + UNEVEN)
IS_EVEN = np.arange(len(COUNTS)) < len(EVEN)
AT_ONCE = 256  # groups worked out together: their arrays stay in the cache
ROUNDING = 1e-9  # of multiply-accumulates, which are counted in floating point
NOTHING = (1 << 30, -1)  # first column, and one past the last, of a map that nothing needs


class StripEnds(NamedTuple):
    """Columns of a map at cuts of the results: (groups, COUNTS, cuts) int32 each."""

    low: np.ndarray  # first column that is needed from the cut on
    high: np.ndarray  # one past the last column that is needed up to the cut


class BeyondFormulas(Formulas):
    """All formulas, bound to one dataflow and chip.

    `max_recompute`: multiply-accumulates that a group may do, over those of its operators.
    """

    def __init__(self, flow: Dataflow, hardware: Hardware, max_recompute: float = MAX_RECOMPUTE) -> None:
        super().__init__(flow, hardware)
        self.max_recompute = max_recompute
        self.macs = np.array(flow.macs, np.float64)  # (operators,)
        self.columns = np.array([column_count(m.shape) for m in flow.maps], np.int64)  # (maps,)

    def by_slices(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes, in mode sliced; infinite where the group is no segment."""
        return self._planned("sliced", members)

    def by_gates(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes, in mode gated; infinite where the group is no gated block."""
        return self._planned("gated", members)

    def by_strips(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes, in mode strips; infinite where the group cannot run so."""
        able = np.array([self._strips.able >> i & 1 for i in range(len(self.flow))], bool)
        possible = np.flatnonzero(~(members & ~able).any(1))
        needs = np.full(len(members), np.inf)
        for start in range(0, len(possible), AT_ONCE):
            batch = possible[start : start + AT_ONCE]
            needs[batch] = self._in_strips(members[batch])
        return needs

    # -- what the planner says -------------------------------------------------------------------------------

    @cached_property
    def _groups(self) -> Groups:
        return Groups(self.flow, self.hardware)

    @cached_property
    def _modes(self) -> dict[str, ExecutionMode]:
        return {
            name: MODES[name](self._groups, SearchSpace(max_recompute=self.max_recompute))
            for name in ("sliced", "gated")
        }

    def _planned(self, mode: str, members: np.ndarray) -> np.ndarray:
        return needs_of(members, self._modes[mode].need)

    # -- strips ----------------------------------------------------------------------------------------------

    @cached_property
    def _strips(self) -> StripGroups:
        return StripGroups(self._groups, self.max_recompute)

    def _columns_read(self, op: int) -> list[tuple[int, RowReads]]:
        """(map, columns of it that columns of the results read), of an operator that can run in strips."""
        read = [(o.map, column_reads(self.flow.calls[op], o.input)) for o in self.flow.operands[op]]
        return [(m, reads) for m, reads in read if reads is not None]

    def _in_strips(self, members: np.ndarray) -> np.ndarray:
        """(groups,) float64, bytes: `by_strips` of groups whose operators can all run in strips."""
        count, narrowest = (columns[:, None] for columns in self._narrowest(members))
        grain = np.where(IS_EVEN, np.maximum(count // narrowest, 1), 1)
        width = -(-count // (COUNTS * grain)) * grain  # of a strip, in columns of the results
        strips = -(-count // width)
        # where the strip in the middle begins, and the last one
        first = (strips - 1) // 2 * width
        last = (strips - 1) * width
        ends = self._ends(
            members, np.stack((first, np.minimum(first + width, count), last), 2), count[:, :, None]
        )
        allowed = (strips > 1) & (count > 1)
        held = np.zeros(strips.shape)
        macs = np.zeros(strips.shape)
        for m, _, rows in self.ring_rows(members):
            low, high = ends[m]
            if self.columns[m] > 1:  # every strip has columns that the one before has not, the last one too
                allowed &= (rows == 0)[:, None] | (high[:, :, 2] < self.columns[m])
            widest = np.maximum(high[:, :, 1] - low[:, :, 0], self.columns[m] - low[:, :, 2])
            held += widest * (rows * self.row_bytes[m] / self.columns[m])[:, None]
        for i in self._operators(members):
            m = self.flow.results[i][0]
            halo = (ends[m].high - ends[m].low)[:, :, 1] * (self.columns[m] > 1)
            macs += (members[:, i] * self.macs[i])[:, None] * (1 + (strips - 1) * halo / self.columns[m])
        allowed &= macs <= self.max_recompute * (1 + ROUNDING) * (members @ self.macs)[:, None]
        return np.where(allowed, held, np.inf).min(1) + self.weights(members)

    def _narrowest(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(groups,) int64 each: columns of the narrowest output, and of the narrowest map with several."""
        most = self.columns.max(initial=1)
        count = np.full(len(members), most)
        narrowest = np.full(len(members), most)
        for m in self._maps(members):
            made_inside = self._makes(members, m)
            count = np.where(
                made_inside & self._leaves(members, m), np.minimum(count, self.columns[m]), count
            )
            if self.columns[m] > 1:
                touched = made_inside | members[:, [read.reader for read in self.readers[m]]].any(1)
                narrowest = np.where(touched, np.minimum(narrowest, self.columns[m]), narrowest)
        return count, narrowest

    def _ends(self, members: np.ndarray, at: np.ndarray, count: np.ndarray) -> dict[int, StripEnds]:
        """Ends of the strips of every map, as in `lfopt.planning.columns.strips`.

        `at`: (groups, COUNTS, cuts), columns at which results are cut; `count`: (groups, 1, 1), their
        columns.
        """
        ends = dict[int, StripEnds]()

        def need(m: int, groups: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
            """Extend a map's spans in groups (groups,) bool by low and high, (groups, COUNTS, cuts) each."""
            if m not in ends:
                ends[m] = StripEnds(*(np.full(at.shape, bound, np.int32) for bound in NOTHING))
            np.minimum(ends[m].low, low, out=ends[m].low, where=groups[:, None, None])
            np.maximum(ends[m].high, high, out=ends[m].high, where=groups[:, None, None])

        def cover(m: int) -> None:
            """Extend the strips of a map to cover it."""
            low, high = ends[m]
            np.minimum(low, high, out=low)
            low[at == 0] = 0
            high[at == count] = self.columns[m]

        for i in reversed(self._operators(members)):
            inside, (first, *others) = members[:, i], self.flow.results[i]
            for m in (first, *others):
                cut = (2 * at * self.columns[m] + count) // (2 * count)  # in proportion, to the nearest
                need(m, inside & self._leaves(members, m), cut, cut)
                need(first, inside, *ends[m])
            cover(first)
            for m in others:  # they advance together
                need(m, inside, *ends[first])
            low, high = (np.clip(columns, 0, self.columns[first]) for columns in ends[first])
            for m, reads in self._columns_read(i):
                need(m, inside, lowest(reads, low), needed(reads, high))
        for m in ends:
            cover(m)
        return ends
