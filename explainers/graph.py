"""Fusion groups as graphs for a neural network: features per operator, and links between operators.

Nothing here knows the answer. The numbers are those of the paper (type of operator, input and output shape,
weight size), in a form that does not change with the scale: sizes are shares of a unit, which is what a rule
without parameters says that the group needs (`explainers.scheme_rule`), or else the buffer; so a chip with
twice the buffer and maps twice as wide looks the same. Beyond the paper, an operator is told which of its
maps come from outside the group or are needed there, and how many rows of its input one row of its result
reads.

Source: arXiv 2501.00636, section IV-A (node features).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import log2, prod

import numpy as np

from lfopt.ir import Hardware, row_axis
from lfopt.ops import Dataflow, Family, Mapping, Tiling, bits

KINDS = (  # types that move data alike are one: exports of one network differ in them
    "contraction", "depthwise", "transposed", "product", "pool", "reduction", "normalisation", "unary",
    "binary", "concat", "split", "pad", "resize",
    "shuffle", "gather", "other",
)  # fmt: skip
RATIOS = 4  # logarithms of ratios of sizes
SIZES = (  # each is given as a share of the unit, and as the logarithm of that
    "maps in: row", "maps in: all", "maps out: row", "maps out: all", "weights", "weights: channel",
    "first operand: row", "first operand: all",
    "first operand: channel of a row", "results: row", "results: all", "results: channel of a row",
    "rows read for one row",
)  # fmt: skip
SHARES = len(SIZES)
# columns of `GroupGraph.features`; after the kinds: whether one row of the result needs all rows
FEATURES = len(KINDS) + 1 + RATIOS + 2 * SHARES
MOST_SHARE = 2.0  # a share above this says no more than that it is far too large
LEAST_SHARE = 2**-16  # one below this is as good as none

# (groups, operators) bool: members -> (groups,) float64: bytes; whether they never run
Rule = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def columns() -> tuple[str, ...]:
    """Names (FEATURES,) of the columns of `GroupGraph.features`: 0 or 1 up to "all rows", then ratios.

    >>> len(columns()) == FEATURES
    True
    """
    ratios = ("channels", "rows", "elements of a row", "rows read for one row")
    flags = (*(f"is {kind}" for kind in KINDS), "all rows")
    logarithms = (
        *(f"log2({name}, result / first operand) / 16" for name in ratios[:3]),
        f"log2({ratios[3]}) / 16",
    )
    return (
        *flags,
        *logarithms,
        *(f"{name} / unit" for name in SIZES),
        *(f"log2({name} / unit) / 16" for name in SIZES),
    )


@dataclass(frozen=True, eq=False)
class GroupGraph:
    """One group on one chip. Operators are numbered from 0 in topological order."""

    operators: tuple[int, ...]  # index in the dataflow, ascending
    features: np.ndarray  # (operators, FEATURES) float32
    links: np.ndarray  # (2, links) int64: positions in `operators`, the earlier first; no pair twice
    unit: float  # bytes that sizes are shares of
    never: bool = False  # whether a rule says that the group cannot run, however large the buffer

    def __len__(self) -> int:
        return len(self.operators)


@dataclass(frozen=True, eq=False)
class Batch:
    """Several groups as one graph of several parts."""

    features: np.ndarray  # (operators, FEATURES) float32, group after group
    # (2, links) int64: positions in the batch, in the order of `GroupGraph.links`, group after group
    links: np.ndarray
    starts: np.ndarray  # (groups,) int64: position of each group's first operator
    units: np.ndarray  # (groups,) float64: `GroupGraph.unit`
    never: np.ndarray  # (groups,) bool

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, graphs: Sequence[GroupGraph]) -> Batch:
        """Batch of graphs, in this order."""
        sizes = np.array([len(graph) for graph in graphs], np.int64)
        starts = np.cumsum(sizes) - sizes
        if graphs:
            features = np.concatenate([graph.features for graph in graphs])
        else:
            features = np.empty((0, FEATURES), np.float32)
        links = [graph.links + start for graph, start in zip(graphs, starts, strict=True)]
        units = np.array([graph.unit for graph in graphs], np.float64)
        never = np.array([graph.never for graph in graphs], bool)
        return cls(
            features, np.concatenate(links, 1) if links else np.empty((2, 0), np.int64), starts, units, never
        )

    @cached_property
    def group(self) -> np.ndarray:
        """(operators,) int64: number of each operator's group in the batch."""
        return np.repeat(np.arange(len(self)), np.diff(np.append(self.starts, len(self.features))))


_OF_FAMILY = {
    Family.CONVOLUTION: "contraction", Family.PRODUCT: "contraction", Family.POOL: "pool",
    Family.NORMALISATION: "normalisation", Family.INTERPOLATION: "resize",
}  # fmt: skip
_OF_MOVE = {"Concat": "concat", "Split": "split", "Slice": "split", "Pad": "pad", "Gather": "gather"}


def kind(flow: Dataflow, i: int) -> str:
    """Kind of an operator, one of KINDS."""
    row = flow.specs[i]
    operands = flow.operands[i]
    if row.elementwise:
        if len({o.map for o in operands}) > 1:
            return "binary"
        return "unary"
    if row.family is Family.PRODUCT and len(operands) > 1:
        return "product"
    if row.family is Family.CONVOLUTION and row.transposed:
        return "transposed"
    if row.family is Family.CONVOLUTION and flow.calls[i].attribute("group", 1) > 1:
        return "depthwise"
    if row.tiling is Tiling.FOLD:
        return "reduction"
    if row.mapping is Mapping.SHUFFLE:
        return "shuffle"
    return _OF_FAMILY.get(row.family) or _OF_MOVE.get(row.kind, "other")


class GroupGraphs:
    """The groups of one dataflow on one chip as graphs."""

    def __init__(self, flow: Dataflow, hardware: Hardware, rule: Rule | None = None) -> None:
        """`rule`: requirement of a group in bytes, the unit of its sizes; None: the buffer."""
        self.flow = flow
        self.hardware = hardware
        self.rule = rule or self._buffer
        self._reads = _ReadTable(flow)

    def _buffer(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(members), float(self.hardware.buffer_bytes)), np.zeros(len(members), bool)

    def graph(self, mask: int) -> GroupGraph:
        """The graph of a group, given as a mask of operators."""
        batch = self.batch((mask,))
        return GroupGraph(
            tuple(bits(mask)), batch.features, batch.links, float(batch.units[0]), bool(batch.never[0])
        )

    def batch(self, masks: Sequence[int]) -> Batch:
        """Graphs of many groups at once, far quicker than one at a time."""
        members = member_table(masks, len(self.flow))
        groups, operators = np.nonzero(members)
        reader, read, inside = self._reads.of(members, groups, operators)
        features = self._own[operators]
        # maps that come in, and that go out
        crossing = [(reader[~inside], self._map_bytes[:, self._reads.maps[read[~inside]]])]
        maker, leaving = self._reads.leaving(members, groups, operators, reader, read, inside)
        crossing.append((maker, self._map_bytes[:, leaving]))
        for column, (where, sizes) in enumerate((where, sizes) for where, both in crossing for sizes in both):
            _put_sizes(features, column, np.bincount(where, sizes, operators.size))
        (units, never), starts = self.rule(members), np.searchsorted(groups, np.arange(len(members)))
        return Batch(
            resized(features, units[groups]),
            self._reads.links(members, groups, reader, read, inside),
            starts,
            units,
            never,
        )

    @cached_property
    def _map_bytes(self) -> np.ndarray:
        """(2, maps) int64: bytes of one row, and of the whole map."""
        return np.array([self._bytes([m]) for m in range(len(self.flow.maps))]).reshape(-1, 2).T

    @cached_property
    def _own(self) -> np.ndarray:
        """(operators, FEATURES) float32: what is the same in all groups, sizes in bytes.

        The first four sizes depend on the group, and are left 0.
        """
        features = np.zeros((len(self.flow), FEATURES), np.float32)
        for i, operands in enumerate(self.flow.operands):
            features[i, KINDS.index(kind(self.flow, i))] = 1
            features[i, len(KINDS)] = any(
                o.reads.rows_in > 1 and o.reads.rows_out and o.reads.need[0] == o.reads.rows_in
                for o in operands
            )
        if len(self.flow):
            features[:, len(KINDS) + 1 : -2 * SHARES] = [self._ratios(i) for i in range(len(self.flow))]
            for column, sizes in enumerate(
                np.array([self._held(i) for i in range(len(self.flow))]).T, start=4
            ):
                _put_sizes(features, column, sizes)
        return features

    def _ratios(self, i: int) -> list[float]:
        """Four ratios, as log2 / 16.

        Channels, rows and elements of a row of the result over those of the first operand; rows read for one
        row of the result.
        """
        flow = self.flow
        call = self.flow.calls[i]
        read = flow.maps[flow.operands[i][0].map].shape if flow.operands[i] else call.result
        ratios = [
            written / max(size, 1)
            for written, size in zip(_extents(call.result), _extents(read), strict=True)
        ]
        ratios.append(max((o.reads.widest[-1] for o in flow.operands[i]), default=1))
        return [log2(max(ratio, 2**-16)) / 16 for ratio in ratios]

    def _held(self, i: int) -> list[float]:
        """Sizes of an operator in bytes.

        Of the weights: all, and per channel of the result; of the first operand, and of all results: one row,
        all rows, one channel of one row; of the rows that are read for one row of the result.
        """
        flow = self.flow
        hardware = self.hardware
        weights = sum(
            hardware.constant_bytes(w.elements, bias=w.bias) for w in flow.weights[i] if not w.gathered
        )
        sizes: list[float] = [weights, weights / max(_extents(flow.calls[i].result)[0], 1)]
        for maps in ([o.map for o in flow.operands[i][:1]], flow.results[i]):
            row, whole = self._bytes(maps)
            sizes += [row, whole, row / max([1, *(_extents(flow.maps[m].shape)[0] for m in maps)])]
        return [
            *sizes,
            sum(o.reads.widest[-1] * hardware.row_bytes(flow.maps[o.map]) for o in flow.operands[i]),
        ]

    def _bytes(self, maps: Iterable[int]) -> tuple[int, int]:
        tensors = [self.flow.maps[m] for m in maps]
        return sum(map(self.hardware.row_bytes, tensors)), sum(map(self.hardware.dram_bytes, tensors))


class _ReadTable:
    """Which operator reads which map: one entry per operator and map, in the order of operators."""

    def __init__(self, flow: Dataflow) -> None:
        pairs = [
            (i, m) for i, operands in enumerate(flow.operands) for m in sorted({o.map for o in operands})
        ]
        readers, self.maps = np.array(pairs, np.int64).reshape(-1, 2).T
        self.producers = np.array(flow.producer, np.int64)[self.maps]
        self.counts = np.bincount(readers, minlength=len(flow))
        self.first = np.cumsum(self.counts) - self.counts
        self.result_counts = np.array([len(results) for results in flow.results], np.int64)
        self.first_result = np.cumsum(self.result_counts) - self.result_counts
        self.results = np.array([m for results in flow.results for m in results], np.int64)
        number = np.zeros(len(flow.maps), np.int64)  # of each map among the results of its producer
        number[self.results] = np.arange(self.results.size) - np.repeat(self.first_result, self.result_counts)
        self.number = number[self.maps]
        self.readers = np.array(
            [flow.readers[m].bit_count() + flow.is_output[m] for m in self.results.tolist()], np.int64
        )

    def of(
        self, members: np.ndarray, groups: np.ndarray, operators: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(position of the reader (reads,), number of the read (reads,), made in the group (reads,) bool).

        One entry per read of an operator of a group. `members`: (groups, all operators) bool; `groups` and
        `operators`: (operators of all groups,) int64.
        """
        counts = self.counts[operators]
        reader = np.repeat(np.arange(operators.size), counts)
        read = np.arange(reader.size) + np.repeat(
            self.first[operators] - (np.cumsum(counts) - counts), counts
        )
        producer = self.producers[read]
        return reader, read, (producer >= 0) & members[groups[reader], producer]

    def leaving(
        self,
        members: np.ndarray,
        groups: np.ndarray,
        operators: np.ndarray,
        reader: np.ndarray,
        read: np.ndarray,
        inside: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(position of the producer (maps,), map (maps,)) of every map that is needed outside its group."""
        counts = self.result_counts[operators]
        first = np.cumsum(counts) - counts
        maker = np.repeat(np.arange(operators.size), counts)
        entry = np.arange(maker.size) + np.repeat(self.first_result[operators] - first, counts)
        place = members.cumsum().reshape(members.shape) - 1
        within = (
            first[place[groups[reader[inside]], self.producers[read[inside]]]] + self.number[read[inside]]
        )
        out = np.bincount(within, minlength=maker.size) < self.readers[entry]
        return maker[out], self.results[entry[out]]

    def links(
        self,
        members: np.ndarray,
        groups: np.ndarray,
        reader: np.ndarray,
        read: np.ndarray,
        inside: np.ndarray,
    ) -> np.ndarray:
        """(2, links) int64: `links` of each group, as positions in the batch."""
        place = members.cumsum().reshape(members.shape) - 1
        maker = place[groups[reader[inside]], self.producers[read[inside]]]
        keys = [maker * groups.size + reader[inside]]
        reader = reader[~inside]
        read = read[~inside]
        # equal where operators of one group read one map
        same = groups[reader] * (self.maps.max(initial=0) + 1) + self.maps[read]
        order = np.argsort(same, kind="stable")
        pairs = np.flatnonzero(np.diff(same[order]) == 0)
        keys.append(reader[order[pairs]] * groups.size + reader[order[pairs + 1]])
        return np.stack(np.divmod(np.unique(np.concatenate(keys)), max(groups.size, 1)))


def member_table(masks: Sequence[int], operators: int) -> np.ndarray:
    """(groups, operators) bool: members of each group."""
    width = operators + 7 >> 3
    packed = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in masks), np.uint8).reshape(
        len(masks), width
    )
    return np.unpackbits(packed, axis=1, count=operators, bitorder="little").view(bool)


def masks_of(members: np.ndarray) -> list[int]:
    """Groups as masks of operators, given members (groups, operators) bool."""
    packed = np.packbits(members, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _put_sizes(features: np.ndarray, column: int, sizes: np.ndarray) -> None:
    """Write sizes (operators,), in bytes, into a column, as logarithms."""
    features[:, column - SHARES] = np.log2(np.maximum(sizes, LEAST_SHARE)) / 16


def resized(features: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """(operators, features) float32: features in units that are larger by factors (operators,)."""
    scaled = features.copy()
    logarithms = np.maximum(
        features[:, -SHARES:] * 16 - np.log2(factors).astype(np.float32)[:, None], log2(LEAST_SHARE)
    )
    scaled[:, -SHARES:] = logarithms / 16
    scaled[:, -2 * SHARES : -SHARES] = np.minimum(np.exp2(logarithms), MOST_SHARE)
    return scaled


def own_sizes(features: np.ndarray) -> np.ndarray:
    """(operators,) float32: weights plus rows read for one row, as shares of the unit.

    `features`: (operators, FEATURES).
    """
    shares = features[:, -2 * SHARES : -SHARES]
    return shares[:, SIZES.index("weights")] + shares[:, SIZES.index("rows read for one row")]


def _extents(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, rows, elements of a row)."""
    axis = row_axis(shape)
    rows = 1 if axis is None else shape[axis]
    return (shape[1] if len(shape) > 1 else 1), rows, prod(shape) // max(rows, 1)


def links(flow: Dataflow, mask: int) -> np.ndarray:
    """(2, links) int64: where operators of a group meet, as positions in it, the earlier first.

    A producer and a reader of its map are linked; so are readers of a map from outside, one after the other:
    a group may hang together by that alone.
    """
    place = {i: k for k, i in enumerate(bits(mask))}
    pairs: set[tuple[int, int]] = set()
    outside: set[int] = set()
    for i in bits(mask):
        pairs.update((place[p], place[i]) for p in bits(flow.preds[i] & mask))
        outside.update(
            o.map
            for o in flow.operands[i]
            if flow.producer[o.map] < 0 or not mask >> flow.producer[o.map] & 1
        )
    for m in outside:
        pairs.update((place[u], place[v]) for u, v in pairwise(bits(flow.readers[m] & mask)))
    return np.array(sorted(pairs), np.int64).reshape(-1, 2).T
