"""Steps of a group by kind, loads, stores, gathers and computations, each with its box in all runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from lfopt.ir import (
    Carry,
    Compute,
    Hardware,
    Loop,
    Node,
    PlannedGroup,
    Step,
    Transfer,
    box_shape,
    row_axis,
    step_count,
)
from simulator.recount.needs import AxisSpans, ResultBoxes, folded
from simulator.recount.network import MapOperand, RecountNetwork
from simulator.recount.progressions import Boxes, Ints, Leaf, RowBudget, leaves

LARGEST = 1 << 38  # number in a step

OneBoxStep = TypeVar("OneBoxStep", Transfer, Carry)


@dataclass(frozen=True, eq=False)
class StepBox:
    """A box of a tensor in all runs of a step."""

    leaf: Leaf
    tensor: str
    extents: tuple[int, ...]
    column: int  # of the box's first axis in the origin of the step

    @property
    def row_axis(self) -> int | None:
        """Axis of the box along which it has rows; None: it is one row."""
        return row_axis(self.extents)

    @property
    def height(self) -> int:
        """Rows of the box."""
        if self.row_axis is None:
            return 1
        return self.extents[self.row_axis]

    def start(self, axis: int) -> Ints:
        """(runs,) start of the box along an axis."""
        return self.leaf.start(self.column + axis)

    def part(self, axis: int) -> AxisSpans:
        """(start (runs,), stop (runs,)) of the box along an axis."""
        start = self.start(axis)
        return start, start + self.extents[axis]

    def ends(self, axis: int) -> tuple[int, int]:
        """(lowest start, highest stop) along an axis in all runs."""
        low, high = self.leaf.ends(self.column + axis)
        return low, high + self.extents[axis]

    @property
    def parts(self) -> tuple[AxisSpans, ...]:
        """(start (runs,), stop (runs,)) of the box along every axis."""
        return tuple(self.part(axis) for axis in range(len(self.extents)))

    @property
    def first_row(self) -> Ints:
        """(runs,) first row of the box."""
        if self.row_axis is None:
            return np.zeros(self.leaf.runs, np.int64)
        return self.start(self.row_axis)

    @property
    def boxes(self) -> Boxes:
        """The boxes of all runs, equal ones counted together."""
        starts, repeats = self.leaf.starts(range(self.column, self.column + len(self.extents)))
        return Boxes(starts, self.extents, repeats)


@dataclass(frozen=True, eq=False)
class Computation:
    """All runs of a Compute."""

    leaf: Leaf
    step: Compute
    pieces: tuple[StepBox, ...]  # one per result
    depth: int  # how much a whole sum folds: input channels, or rows; 0 of what folds nothing

    @property
    def whole_sum(self) -> bool:
        """Whether the step needs no partial sums."""
        return self.step.first and self.step.last

    @property
    def input_boxes(self) -> tuple[Ints, int]:
        """(different starts (starts, axes + 1) int64 of the result's box and the fold, runs of each)."""
        columns = [
            *range(len(self.pieces[0].extents)),
            *([len(self.step.origin) - 1] if self.step.inputs else []),
        ]
        starts, repeats = self.leaf.starts(columns)
        return (starts if self.step.inputs else np.pad(starts, ((0, 0), (0, 1)))), repeats

    @property
    def inputs(self) -> AxisSpans:
        """(start (runs,), stop (runs,)) of the span that is folded."""
        if self.step.inputs is None:
            return np.zeros(self.leaf.runs, np.int64), np.full(self.leaf.runs, self.depth)
        start = self.leaf.start(len(self.step.origin) - 1)
        return start, start + self.step.inputs[1] - self.step.inputs[0]


class GroupSteps:
    """The steps of one group, and what the network says of its operators."""

    def __init__(
        self,
        net: RecountNetwork,
        raw: RecountNetwork,
        hardware: Hardware,
        group: PlannedGroup,
        members: Sequence[str],
        work: RowBudget,
    ) -> None:
        """`net`: with the group's flights as operators; `raw`: as it is."""
        self.raw = raw
        self.operators = [op for op in group.nodes if op in raw.operators]
        self.net = net
        self.hardware = hardware
        self.group = group
        self.members = members
        self.work = work
        self.produced = {name for op in members for name in net.makes[op]}
        self.external: list[tuple[str, MapOperand]] = [
            (op, read) for op in members for read in net.reads[op] if read.map not in self.produced
        ]
        self.external_maps = {read.map for _, read in self.external}
        self.gathering = {op for op in members if any(c.gathered for c in net.constants[op])}
        self.constants = {c.name for op in members for c in net.constants[op] if not c.gathered}
        # maps that the group makes and nothing else needs: they may go out and come back
        self.inner = {name for name in self.produced if not net.needed_outside(name, members)}
        self.leaves = leaves(group.steps)
        self.steps = step_count(group.steps)

    @cached_property
    def transfers(self) -> list[tuple[Transfer, StepBox]]:
        """Loads, stores and gathers, in order."""
        return self._with_boxes(Transfer)

    @cached_property
    def moves(self) -> list[tuple[Transfer, StepBox]]:
        """Transfers to and from places in the buffer: all but those of parameters."""
        return [(step, piece) for step, piece in self.transfers if step.kind != "parameter"]

    @cached_property
    def carries(self) -> list[tuple[Carry, StepBox]]:
        """Copies within the buffer, in order."""
        return self._with_boxes(Carry)

    def _with_boxes(self, kind: type[OneBoxStep]) -> list[tuple[OneBoxStep, StepBox]]:
        """Steps of a kind, each with its box."""
        steps = ((leaf, leaf.step) for leaf in self.leaves if isinstance(leaf.step, kind))
        return [(step, StepBox(leaf, step.tensor, box_shape(step.box), 0)) for leaf, step in steps]

    @cached_property
    def loads(self) -> dict[str, list[StepBox]]:
        """Boxes of loads, by the tensor's name in the step."""
        return self._moves(store=False)

    @cached_property
    def stores(self) -> dict[str, list[StepBox]]:
        """Boxes of stores, by map."""
        return self._moves(store=True)

    def _moves(self, *, store: bool) -> dict[str, list[StepBox]]:
        by_tensor: dict[str, list[StepBox]] = defaultdict(list)
        for step, piece in self.moves:
            if step.store == store and not step.gather:
                by_tensor[step.tensor].append(piece)
        return dict(by_tensor)

    @cached_property
    def gathers(self) -> list[tuple[str, StepBox]]:
        """(operator, part of its result) of every Gather from a constant."""
        return [(step.gather, piece) for step, piece in self.moves if step.gather]

    @cached_property
    def computations(self) -> list[Computation]:
        """Computations, in program order."""
        computations: list[Computation] = []
        for leaf in self.leaves:
            step = leaf.step
            if isinstance(step, Compute):
                pieces = list[StepBox]()
                column = 0
                for name, box in zip(self.net.makes[step.operator], step.boxes, strict=True):
                    pieces.append(StepBox(leaf, name, box_shape(box), column))
                    column += len(box)
                computations.append(
                    Computation(leaf, step, tuple(pieces), folded(self.net.calls[step.operator]))
                )
        return computations

    def result(self, op: str, pieces: Sequence[StepBox], inputs: AxisSpans | None = None) -> ResultBoxes:
        """Boxes of an operator's results in all runs of a step; some may be empty."""
        nonempty = [piece for piece in pieces if all(piece.extents)]
        starts = [piece.first_row for piece in nonempty]
        heights = (self.net.height(op) if piece.row_axis is None else piece.height for piece in nonempty)
        stops = [start + height for start, height in zip(starts, heights, strict=True)]
        nothing = np.zeros(pieces[0].leaf.runs, np.int64)
        return ResultBoxes(
            tuple(piece.parts for piece in pieces),
            (np.minimum.reduce(starts), np.maximum.reduce(stops)),
            inputs or (nothing, nothing),
        )

    # -- sense -----------------------------------------------------------------------------------------------

    def senseless(self) -> Iterator[str]:
        """Problems of malformed steps; a schedule that has any is not recounted further."""
        yield from _senseless_loops(self.group.steps)
        for leaf in self.leaves:
            step = leaf.step
            if why := self._senseless(leaf, step) or _beyond(leaf, self._limits(step)):
                yield f"{describe(leaf)}: {why}"

    def _senseless(self, leaf: Leaf, step: Step) -> str:
        if isinstance(step, Transfer):
            return self._senseless_transfer(leaf, step)
        if isinstance(step, Carry):
            return self._senseless_carry(step)
        return self._senseless_compute(step)

    def _senseless_carry(self, step: Carry) -> str:
        if not 0 <= step.place < len(self.group.places):
            return f"there is no place {step.place}"
        if step.tensor not in self.produced and step.tensor not in self.external_maps:
            return "the group neither makes nor reads it"
        return self._senseless_box(step)

    def _senseless_box(self, step: Transfer | Carry) -> str:
        if len(step.box) == len(self.net.graph.shape(step.tensor)):
            return ""
        return f"its box has {len(step.box)} axes"

    def _senseless_transfer(self, leaf: Leaf, step: Transfer) -> str:
        net = self.net
        if step.kind == "parameter":
            if leaf.counts:
                return "parameters are not loaded in loops"
            if step.tensor not in self.operators:
                return "there is no such operator in the group"
            if step.store or step.gather or step.place != -1 or step.slot or step.offset:
                return "parameters go to a store of their own"
            return ""
        if not 0 <= step.place < len(self.group.places):
            return f"there is no place {step.place}"
        if step.gather:
            if step.store or step.gather not in self.gathering or step.tensor != net.makes[step.gather][0]:
                return f"{step.gather!r} gathers nothing into that"
        elif step.store:
            if step.tensor not in self.produced:
                return "the group does not make it"
        elif (
            net.behind.get(step.tensor, step.tensor) not in self.produced
            and step.tensor not in self.constants
            and not any(step.tensor in (read.seen, read.map) for _, read in self.external)
        ):
            return "the group does not read it from DRAM"
        if step.offset and step.tensor not in self.constants:
            return "only blocks of constants share slots"
        return self._senseless_box(step)

    def _senseless_compute(self, step: Compute) -> str:
        if step.operator not in self.members or step.operator in self.gathering:
            return "it is not computed in the group"
        shapes = [self.net.graph.shape(name) for name in self.net.makes[step.operator]]
        if [len(box) for box in step.boxes] != [len(shape) for shape in shapes] or len(step.places) != len(
            shapes
        ):
            return f"it has {len(shapes)} results, and each of them needs a box with its axes, and a place"
        if not all(-1 <= place < len(self.group.places) for place in (*step.places, step.accumulator)):
            return f"places are numbered up to {len(self.group.places) - 1}"
        if (step.first and step.last) != (step.accumulator < 0):
            return "partial sums need a place, whole ones do not"
        if (step.inputs or step.accumulator >= 0) and not folded(self.net.calls[step.operator]):
            return "it has no partial sums"
        return ""

    def _limits(self, step: Step) -> list[tuple[int, int]]:
        """(extent of the step, extent of what it lies in) for every coordinate of its origin."""
        if isinstance(step, Transfer) and step.kind == "parameter":
            return [*((stop - start, LARGEST) for start, stop in step.box), (0, LARGEST)]
        if not isinstance(step, Compute):
            boxes = [step.box]
            names = [step.tensor]
            rest = [(0, LARGEST)]
        else:
            boxes = list(step.boxes)
            names = self.net.makes[step.operator]
            rest = list[tuple[int, int]]()
            if step.inputs:
                rest.append((step.inputs[1] - step.inputs[0], folded(self.net.calls[step.operator])))
        spans = ((box_shape(box), self.net.graph.shape(name)) for box, name in zip(boxes, names, strict=True))
        return [pair for extents, shape in spans for pair in zip(extents, shape, strict=True)] + rest


def _senseless_loops(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Loop):
            if node.count < 1:
                yield f"a loop of {node.count} iterations"
            yield from _senseless_loops(node.body)


def _beyond(leaf: Leaf, limits: Sequence[tuple[int, int]]) -> str:
    """Why a step leaves the bounds of its tensors in some run; empty if it does not."""
    if len(leaf.moves) != len(leaf.counts) or any(len(move) != len(leaf.step.origin) for move in leaf.moves):
        return "it does not say how it moves in each of the loops around it"
    for column, (extent, size) in enumerate(limits):
        low, high = leaf.ends(column)
        if low < 0 or extent < 0 or high + extent > size:
            return f"one of its spans begins at {low} to {high} and has {extent} of {size}"
    if isinstance(leaf.step, Transfer) and not 0 <= leaf.step.offset <= LARGEST:
        return f"offset {leaf.step.offset}"
    return ""


def called(name: str, names: Iterable[str]) -> bool:
    """Whether a place has one of these names, up to the "~" that sets it apart from others of that name."""
    return any(name.startswith(name_) and not name[len(name_) :].strip("~") for name_ in names)


def describe(leaf: Leaf) -> str:
    """Text for a step: number of its first run, and what it does."""
    step = leaf.step
    if isinstance(step, Compute):
        what = f"compute {step.operator!r}"
    elif isinstance(step, Carry):
        what = f"carry {step.tensor!r}"
    else:
        what = f"{'store' if step.store else 'load'} {step.tensor!r}"
    return f"step {leaf.first}, {what}"
