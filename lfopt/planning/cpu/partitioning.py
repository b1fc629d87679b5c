"""A line-buffered group partitioned among workers, each with rows and rings of its own, without waits.

The order of a worker is that of the whole group, begun at the first row of every map that its rows need; rows
that two of them need are made twice. What needs all rows of a map (a global pool), or has one row for all
(what follows the pool), ends a *stage*: the workers wait for one another there, and the map lies where all of
them reach it. Such a map must be there as a whole, and each of its rows is made once. Operators with one row
are stages that workers do together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lfopt.ir import Again, Compute, Node, Place, Span, Step, Transfer, fold, unfold, whole
from lfopt.ops import Dataflow, MapRead, RowReads, bits
from lfopt.planning.line_buffers.streamed_group import StreamedGroup
from lfopt.planning.line_buffers.walk import LONGEST_PERIOD, Walk
from lfopt.planning.steps.layout import BufferLayout, row_span, with_rows

NOTHING = (0, 0)  # no rows
RowsOfOperators = Mapping[int, Span]  # per operator


@dataclass(frozen=True, slots=True)
class ThreadStage:
    """Operators between two waits."""

    together: bool  # whether workers make every row together; else each makes rows of its own
    rows: tuple[RowsOfOperators, ...]  # of each worker; of all, if together
    steps: tuple[tuple[Node, ...], ...]  # likewise; without those that load weights


@dataclass(frozen=True, slots=True)
class WorkPartition:
    """A group, cut."""

    stages: tuple[ThreadStage, ...]
    # maps inside the group that lie where all workers reach them; others are in each worker's rings
    common: frozenset[int]


def cut(
    layout: BufferLayout,
    mask: int,
    places: Sequence[Place],
    band_rows: int,
    common: frozenset[int],
    workers: int,
) -> WorkPartition | str:
    """The group among workers, in the places of its plan; or why that cannot be.

    `common`: maps that all workers reach, as a whole, anyway: what leaves the group is among them. The first
    band of a worker may need more rows at once than any of the plan: then rows are computed one at a time.
    """
    flow = layout.flow
    rings = {place.name: place.slots for place in places}
    if all(flow.heights[i] <= 1 for i in bits(mask)):
        return "its maps have one row"
    names = [tensor.name for tensor in flow.maps]
    at = {place.name: k for k, place in enumerate(places)}
    for height in sorted({band_rows, 1}, reverse=True):
        partition = _Partitioner(flow, mask, height, common, workers)
        for m in partition.common - common:
            if rings.get(names[m], 0) < flow.maps[m].rows:
                return f"{names[m]!r} is not there as a whole"
        stages = tuple(_stage(layout, partition, members, at) for members in partition.stages)
        own = {
            names[m]: rings[names[m]]
            for i in bits(mask)
            for m in flow.results[i]
            if m not in partition.common and names[m] in rings
        }
        if all(
            _held(flow, (step for stage in stages for step in unfold(stage.steps[k % len(stage.steps)])), own)
            for k in range(workers)
        ):
            return WorkPartition(stages, frozenset(partition.common - common))
    return "rings are too small for it"


def _stage(layout: BufferLayout, partition: _Partitioner, members: int, at: dict[str, int]) -> ThreadStage:
    together = layout.flow.heights[next(bits(members))] == 1
    if together:
        parts = [dict.fromkeys(bits(members), (0, 1))]
    else:
        parts = [{i: rows[i] for i in bits(members)} for rows in partition.rows]
    return ThreadStage(
        together,
        tuple(parts),
        tuple(
            fold(_iterations(layout, members, at, partition.band_rows, rows), LONGEST_PERIOD)
            for rows in parts
        ),
    )


def _iterations(
    layout: BufferLayout, mask: int, at: dict[str, int], band_rows: int, rows: RowsOfOperators
) -> list[list[Step] | Again]:
    flow = layout.flow
    group = StreamedGroup(layout, mask, {})
    operands = group.operands(as_seen=False)
    read: dict[int, list[Span]] = {}
    for o in operands:
        read.setdefault(o.source.map, []).append(reach(o.reads, rows[o.op]))
    boxes = {
        flow.maps[m].name: with_rows(whole(flow.maps[m].shape), _hull(spans)) for m, spans in read.items()
    }
    return list(Walk(group, operands, boxes, None, at, frozenset(), band_rows, rows).iterations())


class _Partitioner:
    """Which operators make a stage, which maps are common, and which rows each worker makes."""

    def __init__(
        self, flow: Dataflow, mask: int, band_rows: int, common: frozenset[int], workers: int
    ) -> None:
        self.flow = flow
        self.mask = mask
        self.band_rows = band_rows
        self.workers = workers
        # (producer, reader): a stage ends between them
        self.ends = {(p, c) for p, c, o in self._edges() if self._ends(p, c, o)}
        while True:
            shared = {p for p, _ in self.ends} | {
                i for i in bits(mask) if flow.heights[i] == 1 or common & {*flow.results[i]}
            }
            self.common = {m for i in shared for m in flow.results[i]}
            self.level = self._levels()
            self.rows = [self._rows(worker) for worker in range(workers)]
            late = self._late()
            if not late:
                break
            self.ends |= late
        self.stages = [
            sum(1 << i for i in bits(mask) if self.level[i] == k) for k in sorted({*self.level.values()})
        ]

    def _edges(self) -> Iterator[tuple[int, int, MapRead]]:
        flow = self.flow
        return (
            (p, c, o)
            for c in bits(self.mask)
            for o in flow.operands[c]
            if (p := flow.producer[o.map]) >= 0 and self.mask >> p & 1
        )

    def _ends(self, producer: int, reader: int, operand: MapRead) -> bool:
        """Whether the reader must wait for all of what the producer makes."""
        one = [self.flow.heights[i] == 1 for i in (producer, reader)]
        reads = operand.reads
        return one[0] != one[1] or (
            reads.rows_out > 1 and reads.keep[reads.rows_out - 1] == 0 and reads.need[0] == reads.rows_in
        )

    def _levels(self) -> dict[int, int]:
        """Stage of each operator: as early as may be, then as late as its readers allow."""
        flow = self.flow
        level = dict[int, int]()
        for i in bits(self.mask):
            level[i] = max(
                (level[p] + ((p, i) in self.ends) for p in bits(flow.preds[i] & self.mask)), default=0
            )
        for i in reversed([*bits(self.mask)]):
            level[i] = min(
                (level[c] - ((i, c) in self.ends) for c in bits(flow.succs[i] & self.mask)), default=level[i]
            )
        kinds = dict.fromkeys((level[i], flow.heights[i] == 1) for i in bits(self.mask))
        order = {kind: k for k, kind in enumerate(sorted(kinds))}
        return {i: order[level[i], flow.heights[i] == 1] for i in bits(self.mask)}

    def _rows(self, worker: int) -> dict[int, Span]:
        """Rows of every operator that one worker makes."""
        flow = self.flow
        spans = dict[int, Span]()
        for i in reversed([*bits(self.mask)]):
            spans[i] = self._own(flow.heights[i], worker)
            if not self.common & {*flow.results[i]}:
                reads = [
                    (o.reads, spans[c])
                    for c in bits(flow.succs[i] & self.mask)
                    for o in flow.operands[c]
                    if o.map in flow.results[i]
                ]
                spans[i] = _hull([reach(*one) for one in reads])
        return spans

    def _own(self, height: int, worker: int) -> Span:
        """A worker's part of `height` rows: whole bands, if there are enough of them."""
        rows = self.band_rows if -(-height // self.band_rows) >= self.workers else 1
        bands = -(-height // rows)
        first, stop = (rows * (bands * k // self.workers) for k in (worker, worker + 1))
        return first, min(stop, height)

    def _late(self) -> set[tuple[int, int]]:
        """Edges on which a reader needs rows of a common map that another worker makes in the same stage."""
        edges: set[tuple[int, int]] = set()
        for rows in self.rows:
            for p, c, o in self._edges():
                if o.map in self.common and self.level[p] == self.level[c] and self.flow.heights[p] > 1:
                    first, stop = reach(o.reads, rows[c])
                    if first < stop and not rows[p][0] <= first < stop <= rows[p][1]:
                        edges.add((p, c))
        return edges


def reach(reads: RowReads, rows: Span) -> Span:
    """Rows of an operand that these rows of its reader need.

    If they read none: an empty span, before which all rows must exist.
    """
    first, stop = rows
    if first == stop:
        return NOTHING
    need = reads.need[stop - 1]
    return min(reads.keep[first], need), need


def _hull(spans: Sequence[Span]) -> Span:
    stop = max((stop for _, stop in spans), default=0)
    return min((first for first, last in spans if first < last), default=stop), stop


def _held(flow: Dataflow, steps: Iterable[Step], rings: Mapping[str, int]) -> bool:
    """Whether every row is in its ring whenever it is read."""
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    slots: dict[str, dict[int, int]] = {name: {} for name in rings}  # map -> slot -> row that is in it
    for step in steps:
        if isinstance(step, Compute):
            i = index[step.operator]
            results = zip(flow.results[i], step.boxes, step.places, strict=True)
            written = [(flow.maps[m].name, row_span(box)) for m, box, place in results if place >= 0]
            rows_computed = range(
                min(first for _, (first, _) in written), max(stop for _, (_, stop) in written)
            )
            for operand in flow.operands[i]:
                name = flow.maps[operand.map].name
                wanted = (
                    (row, slots[name])
                    for r in rows_computed
                    for row in range(operand.reads.first[r], operand.reads.last[r] + 1)
                    if name in rings
                )
                if any(held.get(row % rings[name]) != row for row, held in wanted):
                    return False
        elif isinstance(step, Transfer) and step.gather:
            written = [(step.tensor, row_span(step.box))]
        else:
            continue
        for name, (first, stop) in written:
            if name in rings:
                slots[name].update((row % rings[name], row) for row in range(first, stop))
    return True
