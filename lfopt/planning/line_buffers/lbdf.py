"""Ring sizes of a group that runs in line-buffer depth-first order (LBDF).

The schedule is demand-driven: the sinks' rows are produced in order, and before an operator computes a row,
the rows that it needs are made, input by input, recursively. `rows(t)` is the largest number of rows of map t
alive at once.

Simulating every group row by row would be slow, and is not needed. Let s be whatever makes map t (an
operator, or the load of an external input), and m the immediate post-dominator of s in the group: every path
from s to a sink goes through m. While m computes one row after the other, what happens between s and m
depends on nothing else. So rows(t) is a function of the operators between s and m (the *region*), and of how
many rows m computes; regions recur in thousands of groups, and repeated blocks of a network have equal
regions. Each distinct one is simulated once.

A group may also run in bands of several rows: a band of a sink comes next, and an operator makes all rows
that it is asked for in one step, once all that they need is there. All rows of a step are alive at once.
Few groups are asked about bands, and bands are few: those are simulated whole.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from lfopt.ir import Span
from lfopt.ops import Dataflow, RowReads, bits
from lfopt.planning.line_buffers.lines import Lines
from lfopt.planning.line_buffers.seen import SeenInputs

ROOT = -1  # virtual post-dominator of all sinks
KEPT = 1 << 14  # regions that are remembered, of all networks


@dataclass(eq=False)
class LineBuffers:
    """Ring sizes of groups of one dataflow, memoised over regions."""

    dataflow: Dataflow
    lines: Lines
    _by_region: dict[tuple[int, int, int, int], tuple[int, ...]] = field(default_factory=dict)
    # (map, reader) -> its reads of that map
    _between: dict[tuple[int, int], tuple[RowReads, ...]] = field(default_factory=dict)
    # (group, rows of a band, more than one) -> rings
    _by_bands: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    _latest: tuple[int, dict[int, int]] = field(
        default_factory=lambda: (0, {})
    )  # the last group that was asked about, and its rings

    def __post_init__(self) -> None:
        self.seen = SeenInputs(self.dataflow)
        for i, operands in enumerate(self.lines.operands):
            for operand in operands:
                key = (operand.map, i)
                self._between[key] = (*self._between.get(key, ()), operand.reads)

    def ring_rows(self, mask: int, band_rows: int = 1) -> dict[int, int]:
        """Rows of the ring of every map that the group touches, by map index.

        Source: the demand-driven schedule described above; Shi et al. 2021 (JETCAS 11(4)) introduce
        line-buffer depth-first processing.
        """
        if band_rows > 1:
            if (mask, band_rows) not in self._by_bands:
                *_, self._by_bands[mask, band_rows] = self._in_bands(mask, band_rows)
            return self._by_bands[mask, band_rows]
        if self._latest[0] != mask:
            self._latest = mask, self._row_by_row(mask)
        return self._latest[1]

    def _row_by_row(self, mask: int) -> dict[int, int]:
        """Rows of rings where rows are made one at a time."""
        flow = self.dataflow
        lines = self.lines
        members = list(bits(mask))
        chain: dict[int, int] = {ROOT: ROOT}  # immediate post-dominator
        depth = {ROOT: 0}
        region = {ROOT: 0}  # operators after it, up to and including its post-dominator
        computed: dict[int, int] = {}  # rows that each operator computes
        rings: dict[int, int] = {}
        sinks = 0
        for i in reversed(members):
            readers = flow.succs[i] & mask
            sink = False
            rows = 0
            for m in flow.results[i]:
                if flow.is_output[m] or flow.readers[m] & ~mask:
                    sink = True
                for c in bits(flow.readers[m] & mask):
                    rows = max(rows, self._demand(m, c, computed[c]))
            computed[i] = lines.iterations[i] if sink else rows
            sinks |= sink << i
            meet = ROOT if sink else self._meet(readers, chain, depth)
            chain[i], depth[i] = meet, depth[meet] + 1
            region[i] = between = self._region(readers, meet, chain, region)
            if readers and not sink and readers & (readers - 1) == 0 and len(flow.results[i]) == 1:
                rings[flow.results[i][0]] = self._single(
                    flow.results[i][0], readers.bit_length() - 1, computed
                )
                continue
            sizes = self._simulated(i, flow.results[i], between, meet, sinks, computed)
            rings.update(zip(flow.results[i], sizes, strict=True))
        for i in members:
            for operand in flow.operands[i]:
                m = operand.map
                if m in rings:
                    continue
                readers = flow.readers[m] & mask
                if (seen := self.seen.of(mask, m)) is not None:
                    rings[m] = max(1, seen.reads.widest[computed[i]])
                    continue
                if readers & (readers - 1) == 0:
                    rings[m] = max(1, self._single(m, i, computed))
                    continue
                meet = self._meet(readers, chain, depth)
                between = self._region(readers, meet, chain, region)
                rings[m] = max(1, self._simulated(~m, (m,), between, meet, sinks, computed)[0])
        return rings

    def ring_rows_of_band(
        self,
        mask: int,
        rows: Mapping[int, Span],
        band_rows: int,
        late: Container[tuple[int, int]],
        *,
        last_lead: bool,
    ) -> dict[int, int]:
        """Rows of the ring of every map that the group touches, by map index, while it makes one band.

        `rows`: that each operator makes, from the first to the end; `late`: (operator, input) of what has a
        place of its own; `last_lead`: see `leading`.
        """
        *_, rings = self._in_bands(mask, band_rows, rows, late, last_lead=last_lead)
        return rings

    def ring_rows_within(self, mask: int, band_rows: int, fit: Callable[[dict[int, int]], bool]) -> bool:
        """Whether the rings of a group in bands of several rows fit.

        `fit`: whether rings, in rows by map, fit. Rings only grow from band to band: the first band after
        which they do not fit ends the walk.
        """
        known = self._by_bands.get((mask, band_rows))
        growing = self._in_bands(mask, band_rows) if known is None else (known,)
        return all(fit(rings) for rings in growing)

    def _in_bands(
        self,
        mask: int,
        band_rows: int,
        rows: Mapping[int, Span] | None = None,
        late: Container[tuple[int, int]] = (),
        *,
        last_lead: bool = False,
    ) -> Iterator[dict[int, int]]:
        """After each band of several rows, the rings so far, in rows by map.

        Rows of external maps come one after the other, also within a load. `rows`, `late`, `last_lead`: as in
        `ring_rows_of_band`; by default all rows are made.
        """
        flow = self.dataflow
        lines = self.lines
        members = list(bits(mask))
        results = {m: i for i in members for m in flow.results[i]}
        demands: dict[int, list[tuple[int, RowReads]]] = {}  # (operator, or ~map from outside; rows of it)
        watched: dict[int, list[tuple[int, RowReads]]] = {m: [] for m in results}
        for i in members:
            demands[i] = []
            for k, operand in enumerate(flow.operands[i]):
                if (i, operand.input) not in late:
                    reads = self._reads_in(mask, i, k, results)
                    demands[i].append((results.get(operand.map, ~operand.map), reads))
                    watched.setdefault(operand.map, []).append((i, reads))
        rows_done = dict.fromkeys(
            (*members, *(source for wanted in demands.values() for source, _ in wanted)), 0
        )
        ends = {i: lines.iterations[i] for i in members}
        if rows is not None:
            rows_done |= {i: rows[i][0] for i in members}
            ends = {i: rows[i][1] for i in members}
        rings = dict.fromkeys(results, 0) | {~source: 1 for source in rows_done if source < 0}

        def hold(m: int, first: int, stop: int) -> None:
            waiting = (reads.keep[rows_done[i]] for i, reads in watched[m] if rows_done[i] < ends[i])
            oldest = min(waiting, default=first)
            rings[m] = max(rings[m], stop - min(oldest, first))

        def produce(sink: int, rows: int) -> None:
            waiting = [(sink, rows)]
            while waiting:
                i, goal = waiting[-1]
                if band_rows == 1 or lines.running >> i & 1:  # it need not have all at once
                    goal = min(goal, rows_done[i] + band_rows)
                for source, reads in demands[i]:
                    need = reads.need[goal - 1]
                    if rows_done[source] >= need:
                        continue
                    if source >= 0:
                        waiting.append((source, need))
                        break
                    hold(~source, need - 1, need)
                    rows_done[source] = need
                else:
                    for m in flow.results[i]:
                        if rows_done[i] < (stop := min(goal, flow.maps[m].rows)):
                            hold(m, rows_done[i], stop)
                    rows_done[i] = goal
                    if goal == waiting[-1][1]:
                        waiting.pop()

        leaders = leading(flow, mask, last_lead=last_lead)
        yield rings
        while (sink := next_leader(leaders, rows_done, ends, lines.iterations, band_rows)) is not None:
            produce(sink, min(rows_done[sink] + band_rows, ends[sink]))
            yield rings

    def _reads_in(self, mask: int, op: int, k: int, inside: Container[int]) -> RowReads:
        """Rows that an operator of a group reads of its k-th map; `inside`: the maps that the group makes."""
        seen = self.seen.of(mask, self.dataflow.operands[op][k].map)
        if seen is not None:
            return seen.reads
        return self.lines.reads(self.dataflow, op, k, inside)

    def _demand(self, m: int, reader: int, computed: int) -> int:
        """Rows of the map that must exist for the reader's first `computed` rows."""
        if computed:
            return max((reads.need[computed - 1] for reads in self._between[m, reader]), default=0)
        return 0

    def _single(self, m: int, reader: int, computed: dict[int, int]) -> int:
        """Ring of a map with one reader in the group, which alone drives it.

        If it reads the map once, its table of rows has the answer; else the load of the map is simulated.
        """
        reads = self._between[m, reader]
        if len(reads) == 1:
            return reads[0].widest[computed[reader]]
        return self._simulated(~m, (m,), 1 << reader, reader, 0, computed)[0]

    @staticmethod
    def _meet(readers: int, chain: dict[int, int], depth: dict[int, int]) -> int:
        """Lowest common ancestor of the readers in the post-dominator tree; ROOT if there are none."""
        if not readers:
            return ROOT
        remaining = iter(bits(readers))
        meet = next(remaining)
        for other in remaining:
            while meet != other:
                if depth[meet] >= depth[other]:
                    meet = chain[meet]
                else:
                    other = chain[other]
        return meet

    @staticmethod
    def _region(readers: int, meet: int, chain: dict[int, int], region: dict[int, int]) -> int:
        """Operators after a node, up to and including `meet`."""
        operators = 0 if meet == ROOT else 1 << meet
        for reader in bits(readers):
            while reader != meet:
                operators |= 1 << reader | region[reader]
                reader = chain[reader]
        return operators

    def _simulated(
        self,
        source: int,
        maps: tuple[int, ...],
        between: int,
        meet: int,
        sinks: int,
        computed: dict[int, int],
    ) -> tuple[int, ...]:
        """Rings of the maps that one source makes. `source`: an operator, or ~m: the load of external map m.

        `between`: the operators behind it up to `meet`, its post-dominator, which drives them; where that is
        ROOT, the sinks among them do. So source and operators determine the maps and `meet`.
        """
        stop = computed[meet] if meet != ROOT else 0
        scope = between | (1 << source if source >= 0 else 0)
        sinks = sinks & scope if meet == ROOT else 0
        key = (source, between, sinks, stop)
        if key not in self._by_region:
            self._by_region[key] = _simulate(self._shape(source, maps, between, meet, sinks, stop))
        return self._by_region[key]

    def _shape(
        self, source: int, maps: tuple[int, ...], between: int, meet: int, sinks: int, stop: int
    ) -> _Region:
        """The region with operators renumbered, so that equal regions of repeated blocks compare equal."""
        flow = self.dataflow
        lines = self.lines
        local = {i: k for k, i in enumerate(bits(between), start=1)}
        origin: dict[int, int] = dict.fromkeys(maps, 0)
        for i, k in local.items():
            origin.update(dict.fromkeys(flow.results[i], k))
        demands = tuple(
            tuple((origin[o.map], o.reads) for o in lines.operands[i] if o.map in origin) for i in local
        )
        heights = (
            lines.iterations[source] if source >= 0 else flow.maps[maps[0]].rows,
            *(lines.iterations[i] for i in local),
        )
        watched = tuple(
            (
                flow.maps[m].rows,
                tuple(
                    (local[i], reads)
                    for i in bits(flow.readers[m] & between)
                    for reads in self._between[m, i]
                ),
            )
            for m in maps
        )
        if meet != ROOT:
            return _Region(demands, heights, watched, ((local[meet], stop),))
        return _Region(
            demands, heights, watched, tuple((local.get(i, 0), lines.iterations[i]) for i in bits(sinks))
        )


def leading(flow: Dataflow, mask: int, *, last_lead: bool) -> tuple[list[int], ...]:
    """Operators of a group whose rows come in turn: those of one list, then those of the next.

    That are all with results that leave the group; `last_lead`: first those from which no other follows, and
    of those that are equally far the last one.
    """
    sinks = flow.sinks(mask)
    if not last_lead:
        return ([*bits(sinks)],)
    last = [i for i in bits(sinks) if not flow.descendants[i] & sinks]
    return last[::-1], [i for i in bits(sinks) if i not in last][::-1]


def next_leader(
    leaders: Sequence[Sequence[int]],
    done: Mapping[int, int],
    ends: Mapping[int, int],
    iterations: Sequence[int],
    band_rows: int,
) -> int | None:
    """The operator that makes its next band of rows: of all that come in turn, that of the least share.

    None if all are done. `done`, `ends`: rows, by operator; `iterations`: all of them.
    """
    for together in leaders:
        unfinished = [i for i in together if done[i] < ends[i]]
        if unfinished:
            return min(unfinished, key=lambda i: min(done[i] + band_rows, ends[i]) / iterations[i])
    return None


@dataclass(frozen=True, slots=True)
class _Region:
    """The operators between a source (node 0) and the nodes that drive it.

    Drivers are one post-dominator, or sinks in topological order.
    """

    # per node from 1 on: (node read, reads), in input order
    demands: tuple[tuple[tuple[int, RowReads], ...], ...]
    heights: tuple[int, ...]
    # per map of the source: (rows, its readers)
    watched: tuple[tuple[int, tuple[tuple[int, RowReads], ...]], ...]
    drivers: tuple[tuple[int, int], ...]  # (node, rows to produce)


@lru_cache(maxsize=KEPT)
def _simulate(region: _Region) -> tuple[int, ...]:
    """Run the demand-driven schedule and watch the rings of the source."""
    rows_done = [0] * len(region.heights)
    rings = [0] * len(region.watched)
    demands = ((), *region.demands)

    def produce(target: int, rows: int) -> None:
        """Make rows of `target` until there are `rows`, depth first: before a row, the rows that it needs."""
        stack = [(target, rows)]
        while stack:
            node, goal = stack[-1]
            row = rows_done[node]
            if row >= goal:
                stack.pop()
                continue
            for origin, reads in demands[node]:
                if rows_done[origin] < reads.need[row]:
                    stack.append((origin, reads.need[row]))
                    break
            else:
                if node == 0:  # its new row joins the ring, from the oldest row that is still to be read
                    for k, (height, readers) in enumerate(region.watched):
                        if row < height:
                            still_read = (reads.keep[rows_done[reader]] for reader, reads in readers)
                            oldest = min(still_read, default=row)
                            rings[k] = max(rings[k], row + 1 - min(oldest, row))
                rows_done[node] = row + 1

    if len(region.drivers) == 1:
        produce(*region.drivers[0])
        return tuple(rings)
    waiting = [[node, goal] for node, goal in region.drivers]
    while waiting := [w for w in waiting if rows_done[w[0]] < w[1]]:
        node, _ = min(waiting, key=lambda w: ((rows_done[w[0]] + 1) / w[1], w[0]))
        produce(node, rows_done[node] + 1)
    return tuple(rings)
