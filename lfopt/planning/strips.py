"""Groups in strips of columns: columns of every map per strip, buffer, bytes, and the steps.

The results of a group are cut into n strips of equally many columns, the last one perhaps narrower. For each
strip the group runs in line-buffer depth-first order on the columns that the strip needs of every map. What
two strips need, the *halo*, is loaded or computed for either of them.

Let lo(b) be the first column of a map that results need from cut b on, hi(b) one past the last that they need
up to there: a strip from cut b to cut c takes columns lo(b) up to hi(c). Neither depends on where else the
results are cut, so both are found once per group, for all cuts at once; every number of strips is then a
matter of looking up. Columns that nothing needs between two strips belong to the later one, so that strips
cover every map.

In the words of DeFiNES (Mei et al., arXiv 2212.05344), rows are "fully cached" and columns "fully
recomputed".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lfopt.ir import NEVER, Box, Loop, Node, Place, Span, cut, fold, round_up, whole
from lfopt.ops import OPAQUE, RowReads, bits
from lfopt.ops.columns import column_count, column_reads
from lfopt.planning.bands.banding import Ints
from lfopt.planning.groups.groups import Groups
from lfopt.planning.line_buffers.streamed_group import StreamedGroup
from lfopt.planning.line_buffers.walk import LONGEST_PERIOD, Walk
from lfopt.planning.steps.layout import AllocationRequest, BufferLayout
from lfopt.planning.steps.limit import Limit

MOST_STRIPS = 64  # in a group
KEPT = 1 << 14  # groups whose strips are remembered
ROUNDING = 1e-9  # of multiply-accumulates, which are counted in floating point


class ColumnLookup(NamedTuple):
    """Columns of an operand, looked up for many cuts at once."""

    map: int
    low: Ints  # (columns + 1,) first column that results from this one on need
    high: Ints  # (columns + 1,) one past the last that results before this one need
    holes: bool  # whether some columns of the results need none of it


class StripPartition(NamedTuple):
    """One way to cut a group into strips."""

    columns: int  # of the narrowest result in each strip
    strips: int
    buffer_bytes: int  # F_beta, bytes
    read: int  # DRAM bytes of maps
    written: int  # DRAM bytes of results


@dataclass(frozen=True, eq=False)
class Cuts:
    """Begin and end of the strips of every map, for every cut of the results."""

    count: int  # columns of the narrowest result; cuts are numbered 0 to count
    low: dict[int, Ints]  # per map: (count + 1,) first column of a strip that begins with this cut
    high: dict[int, Ints]  # per map: (count + 1,) one past the last column of a strip that ends there
    # (low, high) as above, of single operands that some columns read nothing of
    sparse: list[tuple[Ints, Ints]]
    leaving: dict[int, Ints]  # per map that leaves the group: (count + 1,) its columns at each cut

    def spans(self, m: int, at: Sequence[int]) -> list[Span]:
        """Columns of a map in each strip."""
        return [(int(self.low[m][b]), int(self.high[m][c])) for b, c in pairwise(at)]


class StripGroups:
    """Groups of one dataflow in strips, on one chip with whatever buffer.

    `recompute`: multiply-accumulates over those of a group's operators.
    """

    def __init__(self, groups: Groups, recompute: float) -> None:
        self.groups, self.recompute = groups, recompute
        self._choices: dict[int, tuple[StripPartition, ...]] = {}

    @cached_property
    def taps(self) -> list[tuple[ColumnLookup, ...] | None]:
        """Per operator: columns that it reads of each of its maps; None where it cannot run in strips."""
        return [self._taps(op) for op in range(len(self.groups.dataflow))]

    @cached_property
    def able(self) -> int:
        """Mask of the operators that can run in strips."""
        return sum(1 << op for op, taps in enumerate(self.taps) if taps is not None)

    def _taps(self, op: int) -> tuple[ColumnLookup, ...] | None:
        flow = self.groups.dataflow
        call, per_operand = flow.calls[op], list[ColumnLookup]()
        if flow.specs[op] is OPAQUE or flow.running >> op & 1 or any(w.gathered for w in flow.weights[op]):
            return None
        if not all(flow.maps[m].elements for m in (*flow.results[op], *(o.map for o in flow.operands[op]))):
            return None
        for operand in flow.operands[op]:
            root, seen = flow.maps[operand.map].shape, call.shape(operand.input)
            reads = column_reads(call, operand.input) if seen == root or column_count(root) == 1 else None
            if reads is None or reads.rows_in != column_count(root):
                return None
            per_operand.append(_lookup(operand.map, reads))
        return tuple(per_operand) if per_operand else None

    # -- cuts ------------------------------------------------------------------------------------------------

    def cuts(self, mask: int) -> Cuts | None:
        """First and last columns of the group's maps per strip, for every cut of the results.

        None where its results have just one column, or a result has no readers.
        """
        flow = self.groups.dataflow
        leaving = flow.leaving(mask)
        columns = {m: column_count(flow.maps[m].shape) for m in leaving}
        count = min(columns.values(), default=1)
        if count < 2:
            return None
        at = np.arange(count + 1)
        # cuts in proportion, to the nearest column
        ends = {m: (2 * at * n + count) // (2 * count) for m, n in columns.items()}
        low, high, sparse = dict(ends), dict(ends), list[tuple[Ints, Ints]]()
        for op in reversed([*bits(mask)]):
            asked = [m for m in flow.results[op] if m in low]
            if not asked:
                return None
            first, stop = (
                np.minimum.reduce([low[m] for m in asked]),
                np.maximum.reduce([high[m] for m in asked]),
            )
            first, stop = _covering(first, stop, column_count(flow.maps[asked[0]].shape))
            low.update(dict.fromkeys(flow.results[op], first))
            high.update(dict.fromkeys(flow.results[op], stop))
            for taps in self.taps[op] or ():
                needed, m = (taps.low[first], taps.high[stop]), taps.map
                if taps.holes:
                    sparse.append(needed)
                low[m], high[m] = (
                    (np.minimum(low[m], needed[0]), np.maximum(high[m], needed[1])) if m in low else needed
                )
        for m in [m for m in low if flow.producer[m] < 0 or not mask >> flow.producer[m] & 1]:
            low[m], high[m] = _covering(low[m], high[m], column_count(flow.maps[m].shape))
        return Cuts(count, low, high, sparse, ends)

    def again(self, mask: int, rings: Mapping[int, int]) -> tuple[set[int], set[int]]:
        """(operators, inputs) that every strip runs, and loads; all others the first one alone.

        A map that is not cut, and is on chip whole, stays there; what only such maps are made from is not
        needed again.
        """
        flow = self.groups.dataflow
        operators, needed = set[int](), set(flow.leaving(mask))
        for op in reversed([*bits(mask)]):
            if any(m in needed and not self._stays(m, rings[m]) for m in flow.results[op]):
                operators.add(op)
                needed |= {o.map for o in flow.operands[op]}
        written = {m for op in bits(mask) for m in flow.results[op]}
        return operators, {m for m in needed - written if not self._stays(m, rings[m])}

    def _stays(self, m: int, rows: int) -> bool:
        tensor = self.groups.dataflow.maps[m]
        return column_count(tensor.shape) == 1 and rows >= tensor.rows

    # -- choices ---------------------------------------------------------------------------------------------

    def choices(self, mask: int) -> tuple[StripPartition, ...]:
        """All ways to cut the group into strips, fewest bytes first, of equals fewest strips."""
        if mask not in self._choices:
            if len(self._choices) >= KEPT:
                self._choices.clear()
            cuts = self.cuts(mask) if not mask & ~self.able else None
            priced = self._priced(mask, cuts) if cuts else ()
            self._choices[mask] = tuple(
                sorted(
                    priced,
                    key=lambda choice: (choice.read + choice.written, choice.strips, choice.buffer_bytes),
                )
            )
        return self._choices[mask]

    def cheapest(self, mask: int, beta: int) -> StripPartition | None:
        """The strips that move the fewest bytes and fit strictly; None if none do."""
        return next((choice for choice in self.choices(mask) if choice.buffer_bytes < beta), None)

    def least(self, mask: int) -> StripPartition | None:
        """The strips that take the least buffer."""
        return min(self.choices(mask), key=lambda choice: choice.buffer_bytes, default=None)

    def _priced(self, mask: int, cuts: Cuts) -> list[StripPartition]:
        flow, groups, hardware = self.groups.dataflow, self.groups, self.groups.hardware
        rings = groups.line_buffers.ring_rows(mask)
        widths = _widths(cuts.count, min(n for m in cuts.low if (n := column_count(flow.maps[m].shape)) > 1))
        at = [strip_cuts(cuts.count, n) for n in widths]
        starts, stops = (np.concatenate([bounds[k : len(bounds) - 1 + k] for bounds in at]) for k in (0, 1))
        begins = np.cumsum([0, *(len(bounds) - 1 for bounds in at[:-1])])  # of each choice, among all strips
        weights = hardware.buffer_need(0, groups.weight_bytes(mask)[1])
        if weights == NEVER:
            return []
        held = np.full(len(at), weights)
        valid, read, written, macs = (
            np.ones(len(at), bool),
            np.zeros(len(at), np.int64),
            np.zeros(len(at), np.int64),
            np.zeros(len(at)),
        )
        inner = {m for i in bits(mask) for m in flow.results[i]}
        operators, inputs = self.again(mask, rings)
        for m, rows in ((m, rows) for m, rows in rings.items() if rows):
            tensor, columns = flow.maps[m], column_count(flow.maps[m].shape)
            extents = cuts.high[m][stops] - cuts.low[m][starts]
            if columns > 1:  # every strip has columns that the one before has not
                valid &= np.minimum.reduceat(cuts.high[m][stops] - cuts.high[m][starts], begins) > 0
            held += np.maximum.reduceat(extents, begins) * (rows * groups.row_bytes[m] // columns)
            size = tensor.elements // (tensor.rows * columns) * hardware.element_bytes  # of a column of a row
            if m not in inner:
                moved = (
                    np.add.reduceat(_padded(extents * size, hardware.dram_row_align), begins) * tensor.rows
                )
                read += moved if m in inputs else groups.map_bytes[m]
            elif m in cuts.leaving:
                extents = cuts.leaving[m][stops] - cuts.leaving[m][starts]
                written += (
                    np.add.reduceat(_padded(extents * size, hardware.dram_row_align), begins) * tensor.rows
                )
        for first, stop in cuts.sparse:
            valid &= np.minimum.reduceat(stop[stops] - first[starts], begins) > 0
        for i in bits(mask):
            m, times = flow.results[i][0], 1.0
            if flow.macs[i] and i in operators:
                times = np.add.reduceat(cuts.high[m][stops] - cuts.low[m][starts], begins) / column_count(
                    flow.maps[m].shape
                )
            macs += flow.macs[i] * times
        valid &= macs <= groups.most_macs(mask, self.recompute) * (1 + ROUNDING)
        figures = zip(widths, at, held.tolist(), read.tolist(), written.tolist(), valid, strict=True)
        return [StripPartition(n, len(bounds) - 1, *sizes) for n, bounds, *sizes, fits in figures if fits]

    # -- steps -----------------------------------------------------------------------------------------------

    def places(self, mask: int, choice: StripPartition) -> list[AllocationRequest]:
        """Allocations of the group."""
        flow, groups = self.groups.dataflow, self.groups
        cuts = self._required(mask)
        at = strip_cuts(cuts.count, choice.columns)
        layout = BufferLayout(flow, groups.hardware)
        rings = groups.line_buffers.ring_rows(mask)
        group = StreamedGroup(layout, mask, rings)
        entries = [
            AllocationRequest(
                name, "weight", 1, layout.constant_bytes(name, whole(flow.graph.tensors[name].shape))
            )
            for name in group.constants()
        ]
        touched = dict.fromkeys(
            [*(o.source.map for o in group.operands(as_seen=False)), *(m for m in group.computed if rings[m])]
        )
        for m in touched:
            widest = max(stop - first for first, stop in cuts.spans(m, at))
            entries.append(
                AllocationRequest(
                    flow.maps[m].name,
                    "map",
                    rings[m],
                    widest * (groups.row_bytes[m] // column_count(flow.maps[m].shape)),
                )
            )
        return entries

    def _required(self, mask: int) -> Cuts:
        cuts = self.cuts(mask)
        assert cuts is not None, "mode strips means that results have columns"
        return cuts

    def schedule(
        self, mask: int, choice: StripPartition, limit: Limit
    ) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps. Raises Unwritten beyond the limit."""
        flow, groups = self.groups.dataflow, self.groups
        layout, rings = BufferLayout(flow, groups.hardware), groups.line_buffers.ring_rows(mask)
        group, cuts = StreamedGroup(layout, mask, rings), self._required(mask)
        operands = group.operands(as_seen=False)
        places = layout.stack(self.places(mask, choice))
        at = {place.name: k for k, place in enumerate(places)}
        parts = _parts(group, cuts, strip_cuts(cuts.count, choice.columns))
        operators, inputs = self.again(mask, rings)
        staying = frozenset(o.source.name for o in operands if o.source.map not in inputs)
        rows = {
            i: (0 if i in operators else groups.lines.iterations[i], groups.lines.iterations[i])
            for i in group.members
        }  # from the second strip on

        def steps(k: int) -> tuple[Node, ...]:
            computed, stored = parts[k]
            boxes = {o.source.name: computed[o.source.map] for o in operands}
            walk = _StripWalk(
                group,
                operands,
                boxes,
                None,
                at,
                staying if k else frozenset(),
                rows=rows if k else None,
                lines=groups.lines,
            )
            walk.parts, walk.stored = computed, stored
            return fold([*limit.allowed(walk.iterations())], LONGEST_PERIOD)

        nodes: list[Node] = [
            layout.load_constant(name, whole(flow.graph.tensors[name].shape), at[name])
            for name in group.constants()
        ]
        for first, count in _alike([_extents(*part) for part in parts], [_starts(*part) for part in parts]):
            iteration = steps(first)
            if count > 1:  # two iterations say how far all others are apart
                iteration = fold([iteration, steps(first + 1)])
                iteration = _repeated(iteration, count) if count > 2 else iteration
            nodes += iteration
        return places, tuple(nodes)


class _StripWalk(Walk):
    """The walk over one strip."""

    parts: dict[int, Box]  # per map: what the strip has of it
    stored: dict[int, Box]  # per map that leaves the group: what the strip stores of it

    def extent(self, m: int) -> Box:
        """Box that the strip makes of a map."""
        return self.parts[m]

    def stored_of(self, m: int, box: Box) -> Box:
        """Its own columns, without those that it makes for other strips."""
        return cut(box, -1, self.stored[m][-1])


def strip_cuts(count: int, columns: int) -> list[int]:
    """First columns of strips of so many columns, and the end.

    >>> strip_cuts(10, 4)
    [0, 4, 8, 10]
    """
    return [*range(0, count, columns), count]


def _widths(count: int, narrowest: int) -> list[int]:
    """Columns of strips worth trying, widest first, from two strips on.

    Where maps are narrower than the results, also multiples of that ratio.
    """
    widths = {-(-count // n) for n in range(2, min(MOST_STRIPS, count) + 1)}
    grain = count // narrowest
    if grain > 1:
        widths |= {round_up(n, grain) for n in widths}
    return sorted((n for n in widths if n < count), reverse=True)


def _lookup(m: int, reads: RowReads) -> ColumnLookup:
    return ColumnLookup(
        m, np.array(reads.keep, np.int64), np.array((0, *reads.need), np.int64), -1 in reads.last
    )


def _covering(low: Ints, high: Ints, columns: int) -> tuple[Ints, Ints]:
    """First and end columns, (count + 1,) int64 each, extended so that strips leave no gap."""
    low, high = np.minimum(low, high), high.copy()
    low[0], high[-1] = 0, columns
    return low, high


def _padded(sizes: Ints, align: int) -> Ints:
    return sizes if align == 1 else -(-sizes // align) * align


# -- strips that are alike -----------------------------------------------------------------------------------

_Parts = tuple[dict[int, Box], dict[int, Box]]  # per map: what a strip has of it, what it stores


def _parts(group: StreamedGroup, cuts: Cuts, at: Sequence[int]) -> list[_Parts]:
    """Per strip."""
    maps = [tensor.shape for tensor in group.flow.maps]

    def part(m: int, span: Span) -> Box:
        return cut(whole(maps[m]), -1, span) if column_count(maps[m]) > 1 else whole(maps[m])

    spans = {m: cuts.spans(m, at) for m in cuts.low}
    computed = [{m: part(m, columns[k]) for m, columns in spans.items()} for k in range(len(at) - 1)]
    stored = [
        {m: part(m, (int(ends[b]), int(ends[c]))) for m, ends in cuts.leaving.items()}
        for b, c in pairwise(at)
    ]
    return [*zip(computed, stored, strict=True)]


def _extents(computed: dict[int, Box], stored: dict[int, Box]) -> tuple[int, ...]:
    return tuple(box[-1][1] - box[-1][0] for boxes in (computed, stored) for box in boxes.values() if box)


def _starts(computed: dict[int, Box], stored: dict[int, Box]) -> Ints:
    return np.array([box[-1][0] for boxes in (computed, stored) for box in boxes.values() if box])


def _alike(extents: Sequence[tuple[int, ...]], starts: Sequence[Ints]) -> list[tuple[int, int]]:
    """(first, how many) of runs of strips that differ only in where they are, by equal steps.

    The first strip is a run by itself: it loads what stays.
    """
    repeats: list[tuple[int, int]] = []
    k = 0
    while k < len(extents):
        stop = k + 1
        while (
            k
            and stop < len(extents)
            and extents[stop] == extents[k]
            and not (starts[stop] - starts[stop - 1] - starts[k + 1] + starts[k]).any()
        ):
            stop += 1
        repeats.append((k, stop - k))
        k = stop
    return repeats


def _repeated(nodes: tuple[Node, ...], count: int) -> tuple[Node, ...]:
    """A loop of two iterations as one of so many."""
    (loop,) = nodes
    assert isinstance(loop, Loop), "strips that are alike make a loop"
    return (replace(loop, count=count),)
