"""A graph as fusion sees it: operators by index, views looked through, row dependences, sets as bit masks.

A *map* is a tensor that a plan can move: a graph input or something that a non-view operator makes. What a
view makes is the same bytes under another name, so reading it is reading the map behind it. A set of
operators is a Python int: bit i is operator i.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from lfopt.ir import Box, Graph, Operator, Tensor, box_elements, row_axis, too_tall, whole
from lfopt.ir.tensor import passing_rows
from lfopt.ops import rows
from lfopt.ops.call import Call
from lfopt.ops.rows import RowReads
from lfopt.ops.table import OPAQUE, OpSpec, spec


@dataclass(frozen=True, slots=True)
class MapRead:
    """One operand of an operator that is a feature map."""

    map: int  # index into Dataflow.maps
    reads: RowReads
    input: int  # position among the operator's ONNX inputs


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant that operators read as data."""

    name: str
    elements: int  # that one load moves: the whole tensor, or for a Gather the rows gathered
    # whether it has the elements of a bias (`bias_bytes`): every operator that reads it adds it
    bias: bool
    # whether rows go straight into the result's ring: not shared with other readers, no place of its own
    gathered: bool = False
    pieces: int = 1  # in which they lie in DRAM: of what is gathered, see `gathered_pieces`


@dataclass(frozen=True, eq=False)
class Dataflow:
    """Operators and maps of a graph. Index order is topological order."""

    graph: Graph
    operators: tuple[Operator, ...]  # all but views
    calls: tuple[Call, ...]
    specs: tuple[OpSpec, ...]
    maps: tuple[Tensor, ...]
    producer: tuple[int, ...]  # operator that makes each map; -1 for a graph input
    is_output: tuple[bool, ...]  # whether each map, or a view of it, is a graph output
    operands: tuple[tuple[MapRead, ...], ...]  # per operator, in ONNX input order
    results: tuple[tuple[int, ...], ...]  # per operator: the maps it makes
    weights: tuple[tuple[Weight, ...], ...]  # per operator, in ONNX input order
    # mask of reductions that take the rows of their operand one at a time, where rows pass through rings
    running: int = 0
    # whether groups may load rows of a view of a map, where these are not rows of the map
    loads_views: bool = False

    @classmethod
    def of(cls, graph: Graph) -> Dataflow:
        """Look through views, number operators and maps, attach row dependences."""
        return _Builder(graph).build()

    @cached_property
    def position(self) -> dict[str, int]:
        """Per operator of the graph, by name: the operator here that it is, or that it is part of."""
        return {part.operator.name: i for i, call in enumerate(self.calls) for part in call.parts}

    def __len__(self) -> int:
        return len(self.operators)

    @cached_property
    def map_index(self) -> dict[str, int]:
        """Per map, by name: its index."""
        return {tensor.name: m for m, tensor in enumerate(self.maps)}

    @cached_property
    def behind(self) -> dict[str, str]:
        """See `maps_behind`."""
        return maps_behind(self.graph)

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """Per map: the mask of operators that read it."""
        masks = [0] * len(self.maps)
        for i, operands in enumerate(self.operands):
            for operand in operands:
                masks[operand.map] |= 1 << i
        return tuple(masks)

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Per operator: rows in which it advances."""
        return tuple(call.rows_out for call in self.calls)

    @cached_property
    def too_tall(self) -> int:
        """Mask of operators whose maps have too many rows to pass row by row: each is tiled, alone."""
        tall = [too_tall(tensor.shape) for tensor in self.maps]
        return sum(
            1 << i
            for i, call in enumerate(self.calls)
            if call.too_tall or any(tall[m] for m in (*self.results[i], *(o.map for o in self.operands[i])))
        )

    @cached_property
    def least_rows(self) -> tuple[int, ...]:
        """Per operator: rows that it computes in any group.

        All of a result of the network; else what the least demanding reader needs.
        """
        least = list(self.heights)
        reads_of: list[list[tuple[int, RowReads]]] = [[] for _ in self.maps]  # (operator, its reads), by map
        for i, operands in enumerate(self.operands):
            for o in operands:
                reads_of[o.map].append((i, o.reads))
        for i in reversed(range(len(self))):
            if not any(self.is_output[m] for m in self.results[i]):
                readers = ((reads, least[c]) for m in self.results[i] for c, reads in reads_of[m])
                least[i] = min([least[i], *(reads.need[rows - 1] if rows else 0 for reads, rows in readers)])
        return tuple(least)

    @cached_property
    def preds(self) -> tuple[int, ...]:
        """Per operator: the mask of operators whose results it reads."""
        return tuple(
            _union(1 << self.producer[o.map] for o in operands if self.producer[o.map] >= 0)
            for operands in self.operands
        )

    @cached_property
    def succs(self) -> tuple[int, ...]:
        """Per operator: the mask of operators that read its results."""
        return tuple(_union(self.readers[m] for m in results) for results in self.results)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per operator: everything that it depends on."""
        masks: list[int] = []
        for direct in self.preds:
            masks.append(_union(masks[p] | 1 << p for p in bits(direct)))
        return tuple(masks)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Per operator: everything that depends on it."""
        masks = [0] * len(self)
        for i in reversed(range(len(self))):
            masks[i] = _union(masks[s] | 1 << s for s in bits(self.succs[i]))
        return tuple(masks)

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """Per operator: operators joined to it by an edge or by reading the same map.

        Opaque operators have none.
        """
        opaque = _union(1 << i for i, row in enumerate(self.specs) if row is OPAQUE)
        masks: list[int] = []
        for i in range(len(self)):
            shared = _union(self.readers[o.map] for o in self.operands[i])
            masks.append(
                0 if opaque >> i & 1 else (self.preds[i] | self.succs[i] | shared) & ~opaque & ~(1 << i)
            )
        return tuple(masks)

    @cached_property
    def macs(self) -> tuple[int, ...]:
        """Per operator: multiply-accumulates of one inference."""
        return tuple(
            sum(spec(p.operator.kind, p.operator.domain).macs(p) for p in call.parts) for call in self.calls
        )

    @cached_property
    def biases(self) -> frozenset[str]:
        """Names of the constants that are stored as biases."""
        return frozenset(w.name for weights in self.weights for w in weights if w.bias)

    @cached_property
    def weight_elements(self) -> int:
        """Elements of all weights and biases, each constant once."""
        return sum({w.name: w.elements for weights in self.weights for w in weights}.values())

    @cached_property
    def everything(self) -> int:
        """The mask of all operators."""
        return (1 << len(self)) - 1

    def names(self, mask: int) -> tuple[str, ...]:
        """Names of the operators in a mask, in topological order."""
        return tuple(
            sorted(
                (part.operator.name for i in bits(mask) for part in self.calls[i].parts),
                key=self._rank.__getitem__,
            )
        )

    @cached_property
    def _rank(self) -> dict[str, int]:
        """Per operator of the graph, by name: where it stands in topological order."""
        return {operator.name: k for k, operator in enumerate(self.graph.operators)}

    def makes(self, mask: int, m: int) -> bool:
        """Whether an operator of the set makes a map."""
        maker = self.producer[m]
        return maker >= 0 and bool(mask >> maker & 1)

    def touched(self, mask: int) -> frozenset[int]:
        """Maps that the operators of the set read or make."""
        return frozenset(
            m for i in bits(mask) for m in (*(o.map for o in self.operands[i]), *self.results[i])
        )

    def leaving(self, mask: int) -> tuple[int, ...]:
        """Maps that the operators of the set make and that are needed outside it (or are graph outputs)."""
        return tuple(
            m for i in bits(mask) for m in self.results[i] if self.is_output[m] or self.readers[m] & ~mask
        )

    def arriving(self, mask: int) -> tuple[int, ...]:
        """Maps that the operators of the set read and that none of them makes."""
        read = dict.fromkeys(operand.map for i in bits(mask) for operand in self.operands[i])
        return tuple(m for m in read if not self.makes(mask, m))

    def sinks(self, mask: int) -> int:
        """Operators of the set with a result needed outside it (or a graph output)."""
        return _union(
            1 << i
            for i in bits(mask)
            if any(self.is_output[m] or self.readers[m] & ~mask for m in self.results[i])
        )


def bits(mask: int) -> Iterator[int]:
    """Indices of the bits set, lowest first.

    >>> list(bits(0b1011))
    [0, 1, 3]
    """
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _union(masks: Iterator[int] | list[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total


def maps_behind(graph: Graph) -> dict[str, str]:
    """Tensor -> the map that it is, or is a view of; constants and views of them are missing."""
    behind = {name: name for name in graph.inputs}
    for operator in graph.operators:
        view = spec(operator.kind, operator.domain).view
        for name in operator.outputs:
            if name and not view:
                behind[name] = name
            elif name and operator.inputs[0] in behind:
                behind[name] = behind[operator.inputs[0]]
    return behind


class _Builder:
    """Walks a graph once, in topological order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.root = maps_behind(graph)
        self.maps: dict[str, int] = {}
        self.producer: list[int] = []

    def build(self) -> Dataflow:
        operators: list[Operator] = []
        calls: list[Call] = []
        rules: list[OpSpec] = []
        operands: list[tuple[MapRead, ...]] = []
        results: list[tuple[int, ...]] = []
        weights: list[Iterable[Weight]] = []
        for name in self.graph.inputs:
            self._add_map(name, -1)
        for operator in self.graph.operators:
            row = spec(operator.kind, operator.domain)
            if row.view:
                continue
            call = Call.of(self.graph, operator)
            operands.append(tuple(self._operands(call, row)))
            weights.append(_weights(self.graph, call, row))
            results.append(tuple(self._add_map(name, len(operators)) for name in operator.outputs if name))
            operators.append(operator)
            calls.append(call)
            rules.append(row)
        outputs = {self.root[name] for name in self.graph.outputs if name in self.root}
        return Dataflow(
            self.graph,
            tuple(operators),
            tuple(calls),
            tuple(rules),
            tuple(self.graph.tensors[name] for name in self.maps),
            tuple(self.producer),
            tuple(name in outputs for name in self.maps),
            tuple(operands),
            tuple(results),
            _stored(weights),
        )

    def _add_map(self, name: str, producer: int) -> int:
        self.producer.append(producer)
        return self.maps.setdefault(name, len(self.maps))

    def _operands(self, call: Call, row: OpSpec) -> Iterator[MapRead]:
        for index, name in enumerate(call.operator.inputs):
            if not name or name not in self.root:
                continue
            reads = row.reads(call, index)
            root = self.root[name]
            if root != name and not keeps_rows(self.graph.shape(root), self.graph.shape(name)):
                reads = rows.all_rows(passing_rows(self.graph.shape(root)), call.rows_out)
            yield MapRead(self.maps[root], reads, index)


def keeps_rows(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether a view leaves rows where they were: as many rows, same product of the dims before their axis.

    >>> keeps_rows((1, 128, 768), (1, 128, 12, 64)), keeps_rows((1, 128, 768), (1, 1, 128, 768))
    (False, True)
    """
    return _row_split(before) == _row_split(after)


def same_axes(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """Axes of a map and of a view of it that have the same indices: (axis of the map, axis of the view).

    All axes of the same shape, else all but those of extent 1. None where the view splits or joins axes.

    >>> same_axes((1, 64, 1, 1), (1, 64)), same_axes((1, 64, 2, 1), (1, 128))
    ([(1, 1)], None)
    """
    if before == after:
        return [(axis, axis) for axis in range(len(before))]
    own, seen = ([axis for axis, extent in enumerate(shape) if extent != 1] for shape in (before, after))
    if [before[axis] for axis in own] != [after[axis] for axis in seen]:
        return None
    return list(zip(own, seen, strict=True))


def _row_split(shape: tuple[int, ...]) -> tuple[int, int]:
    """(rows, product of the dims before the row axis); a map of one row is cut nowhere."""
    axis = row_axis(shape)
    if axis is None or shape[axis] == 1:
        return 1, 1
    return shape[axis], prod(shape[:axis])


def _weights(graph: Graph, call: Call, row: OpSpec) -> Iterator[Weight]:
    """Constants of more than one element that are data.

    A Gather from a constant moves only the rows that it gathers.
    """
    for index, name in enumerate(call.operator.inputs):
        if (
            not name
            or not call.constant[index]
            or index in row.parameters
            or graph.tensors[name].elements <= 1
        ):
            continue
        gathered = row.kind == "Gather" and index == 0
        elements = prod(call.result) if gathered else graph.tensors[name].elements
        pieces = gathered_pieces(call, whole(call.result)) if gathered else 1
        yield Weight(name, elements, bias=index == row.bias, gathered=gathered, pieces=pieces)


def _stored(weights: Iterable[Iterable[Weight]]) -> tuple[tuple[Weight, ...], ...]:
    """The weights of every operator; a constant that any of them reads as data is no bias anywhere."""
    per_operator = [tuple(own) for own in weights]
    data = {w.name for own in per_operator for w in own if not w.bias}
    return tuple(tuple(replace(w, bias=w.bias and w.name not in data) for w in own) for own in per_operator)


def gathered_pieces(call: Call, box: Box) -> int:
    """Pieces in which a box of a Gather from a constant lies in DRAM.

    They are runs along the last axis, unless that is gathered along. However the box is parted along other
    axes, the pieces stay the same.
    """
    rank = len(call.shape(0))
    return box_elements(
        box[:-1] if call.attribute("axis", 0) % rank < rank - 1 and box_elements(box) else box
    )
