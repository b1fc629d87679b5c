"""The network of a recount, independent of the planner: reads and results of operators, through views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from lfopt.ir import Graph, Operator, Tensor, row_axis, too_tall
from lfopt.ops.call import Call
from lfopt.ops.table import OpSpec, Tiling, spec


@dataclass(frozen=True, slots=True)
class MapOperand:
    """One operand of an operator that is a feature map.

    Per output row: the lowest row read (the height where none is), the highest (-1).
    """

    map: str  # behind all views
    by: str  # the operator that reads it; of several that follow in flight, which
    index: int  # position among its inputs
    first: tuple[int, ...]  # rows of the map
    last: tuple[int, ...]
    seen: str  # what the operator calls it: the map or a view of it
    first_seen: tuple[int, ...]  # rows of that
    last_seen: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant that an operator reads as data."""

    name: str
    by: str  # the operator that reads it; of several that follow in flight, which
    index: int  # position among its inputs
    elements: int  # that one load moves
    bias: bool
    gathered: bool  # rows of it go straight into the operator's result
    runs: int = 1  # of elements that lie side by side in DRAM; each takes up whole units there


def gathered_runs(call: Call, extents: Sequence[int]) -> int:
    """Contiguous runs in DRAM that a Gather picks for a box: whole last axes of the data, or elements."""
    by_element = call.attribute("axis", 0) in (-1, len(call.shape(0)) - 1)
    if by_element or not prod(extents):
        return prod(extents)
    return prod(extents) // extents[-1]


class RecountNetwork:
    """Operators that move or make data, by name in topological order, and what each reads and makes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        # map behind every tensor that is no constant
        self.behind: dict[str, str] = {name: name for name in graph.inputs}
        self.operators: dict[str, Operator] = {}
        self.specs: dict[str, OpSpec] = {}
        self.calls: dict[str, Call] = {}
        self.reads: dict[str, list[MapOperand]] = {}
        self.makes: dict[str, list[str]] = {}
        self.constants: dict[str, list[Constant]] = {}
        self.maker: dict[str, str] = {}  # operator that makes each map
        # of operators in flight: tables that they have, in place of those that they have alone
        self.tables: dict[str, int] = {}
        self.readers: dict[str, list[str]] = defaultdict(list)  # operators that read each map
        for operator in graph.operators:
            row = spec(operator.kind, operator.domain)
            if row.view:
                for name in operator.outputs:
                    if name and operator.inputs[0] in self.behind:
                        self.behind[name] = self.behind[operator.inputs[0]]
                continue
            self._add(operator, row)
        self.position = {name: i for i, name in enumerate(self.operators)}
        used = [constant for constants in self.constants.values() for constant in constants]
        # biases and nothing else
        self.biases = {c.name for c in used if c.bias} - {c.name for c in used if not c.bias}
        # maps that are results of the network
        self.stored = {self.behind[name] for name in graph.outputs if name in self.behind}

    def _add(self, operator: Operator, row: OpSpec) -> None:
        name = operator.name
        call = Call.of(self.graph, operator)
        self.operators[name], self.specs[name], self.calls[name] = operator, row, call
        self.makes[name] = [tensor for tensor in operator.outputs if tensor]
        self.reads[name], self.constants[name] = [], []
        for index, tensor in enumerate(operator.inputs):
            if tensor in self.graph.constants:
                if index not in row.parameters and self.tensor(tensor).elements > 1:
                    gathered = operator.kind == "Gather" and index == 0
                    moved = self.tensor(self.makes[name][0] if gathered else tensor)
                    runs = gathered_runs(call, moved.shape) if gathered else 1
                    self.constants[name].append(
                        Constant(tensor, name, index, moved.elements, index == row.bias, gathered, runs)
                    )
            elif tensor in self.behind:
                self.reads[name].append(self._read(call, row, index, tensor))
                source = self.behind[tensor]
                readers = self.readers[source]
                if not readers or readers[-1] != name:
                    readers.append(name)
        for tensor in self.makes[name]:
            self.maker[tensor] = name
            self.behind[tensor] = tensor

    def _read(self, call: Call, row: OpSpec, index: int, tensor: str) -> MapOperand:
        source = self.behind[tensor]
        reads = row.reads(call, index)
        first = reads.first
        last = reads.last
        if source != tensor and not self._rows_stay(source, tensor):
            first = (0,) * call.rows_out
            last = (self.tensor(source).rows - 1,) * call.rows_out
        return MapOperand(source, call.operator.name, index, first, last, tensor, reads.first, reads.last)

    def _rows_stay(self, source: str, view: str) -> bool:
        """Whether row r of the view is row r of the map: same first element, same length."""
        cuts: list[tuple[int, int, int]] = []
        for shape in (self.graph.shape(source), self.graph.shape(view)):
            axis = row_axis(shape)
            count = 1 if axis is None else shape[axis]
            blocks = 1 if count == 1 or axis is None else prod(shape[:axis])
            cuts.append((count, blocks, prod(shape) // (count * blocks)))
        return cuts[0] == cuts[1]

    def tensor(self, name: str) -> Tensor:
        """Shape and type of a map or constant."""
        return self.graph.tensors[name]

    def too_tall(self, operator: str) -> bool:
        """Whether a map that it reads or makes has too many rows to pass row by row."""
        maps = (*self.makes[operator], *(read.map for read in self.reads[operator]))
        return self.calls[operator].too_tall or any(too_tall(self.graph.shape(name)) for name in maps)

    def height(self, operator: str) -> int:
        """Rows of an operator's results."""
        return self.calls[operator].rows_out

    def producers(self, operator: str) -> set[str]:
        """Operators whose results an operator reads."""
        return {self.maker[read.map] for read in self.reads[operator] if read.map in self.maker}

    def needed_outside(self, name: str, group: Iterable[str]) -> bool:
        """Whether a map made in a group must be stored."""
        return name in self.stored or any(reader not in group for reader in self.readers[name])

    def contracts(self, operator: str) -> bool:
        """Whether an operator contracts a feature map with operand 1: weights, or a second matrix."""
        return self.specs[operator].tiling is Tiling.CONTRACT and any(
            (read.by, read.index) == (operator, 0) for read in self.reads[operator]
        )
