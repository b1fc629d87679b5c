"""Occupancy of the buffer while a group runs: live slots of every place, step by step.

A slot is taken from the step that writes it to the last step that reads what was written. What a step reads
follows from the operator table, as for whoever executes the plan; the schedule itself does not say when a
slot becomes free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import mul
from typing import NamedTuple

import numpy as np

from lfopt.ir import (
    Box,
    Carry,
    Compute,
    Hardware,
    Loop,
    Node,
    PlannedGroup,
    Span,
    Step,
    Transfer,
    cut,
    row_axis,
    row_count,
    step_count,
    unfused_steps,
)
from lfopt.ir.schedule import Stride
from lfopt.ops import Call, Dataflow, Family, MapRead, keeps_rows
from lfopt.ops.footprint import folds_rows, footprints
from lfopt.ops.on_chip import Block, BufferContents, Ring, RowLayout, kept_sums
from lfopt.ops.recognise import RecognisedAttention, attentions_of
from lfopt.ops.windows import read_span

MATRIX = 2  # rank of weights that do not depend on the batch


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Slots taken while a group runs.

    The steps are cut into equal spans; each shows its fullest step, so that no maximum is lost.
    """

    steps: int  # that run
    shown: tuple[int, ...]  # per span: number of its fullest step, the first of them if there are several
    slots: tuple[tuple[int, ...], ...]  # per place: slots taken at each step shown
    most: tuple[int, ...]  # per place: the most slots taken at any step
    # the most that all places of the buffer together hold at any step; those of a weight buffer are apart
    peak_bytes: int
    peak_step: int  # the first step at which they do
    # per operator of the group: the most that all places hold at a step in which it computes
    beside: tuple[int, ...]


def occupancy(group: PlannedGroup, flow: Dataflow, hardware: Hardware, points: int = 120) -> Occupancy:
    """Walk the steps of a group. At most `points` spans."""
    walk = _SlotWalk(group, flow, hardware)
    for number, (step, by) in enumerate(_walked(group.steps)):
        walk.follow(step, by, number)
    steps = step_count(group.steps)
    slots_in_use = walk.taken(steps)
    sizes = np.array(
        [place.slot_bytes * (hardware.store_of(place.purpose) == "buffer") for place in group.places],
        dtype=np.int64,
    )
    total = sizes @ slots_in_use
    count = min(points, steps)
    size, longer = divmod(steps, max(count, 1))  # so many spans are one step longer
    bounds = [k * size + min(k, longer) for k in range(count + 1)]
    shown = [start + int(total[start:stop].argmax()) for start, stop in pairwise(bounds)]
    return Occupancy(
        steps,
        tuple(shown),
        tuple(map(tuple, slots_in_use[:, shown].tolist())),
        tuple(slots_in_use.max(axis=1, initial=0).tolist()),
        int(total.max(initial=0)),
        int(np.argmax(total)) if steps else 0,
        tuple(int(total[walk.runs[walk.index[name]]].max(initial=0)) for name in group.nodes),
    )


def lives(group: PlannedGroup, flow: Dataflow, hardware: Hardware, commands: Sequence[Step]) -> np.ndarray:
    """(lives, 3) int64: place, number of the command that writes, number of the last command that reads.

    `commands`: of all steps, in order.
    """
    walk = _SlotWalk(group, flow, hardware)
    for number, command in enumerate(commands):
        walk.follow(command, (), number)
    return walk.contents.lives()


def step_at(nodes: Sequence[Node], number: int) -> Step:
    """The step of this number among those that `unfold` walks, found without walking.

    Raises IndexError where there are fewer.
    """
    iterations: list[int] = []
    while True:
        for node in nodes:
            if number < (size := step_count((node,))):
                break
            number -= size
        else:
            raise IndexError("the schedule has fewer steps")
        if not isinstance(node, Loop):
            by = tuple(
                sum(iteration * d for iteration, d in zip(iterations, along, strict=True))
                for along in zip(*node.strides, strict=True)
            )
            if node.strides:
                return node.moved(by)
            return node
        nodes = node.body
        iteration, number = divmod(number, size // node.count)
        iterations.append(iteration)


def likeness(group: PlannedGroup, flow: Dataflow) -> Hashable:
    """Key of a group up to names: groups with equal keys have the same occupancy.

    So repeated blocks of a network are walked once.
    """
    known: dict[str, int] = {}
    index = {operator.name: i for i, operator in enumerate(flow.operators)}

    def number(name: str) -> int:
        return known.setdefault(name, len(known))

    def of(nodes: Sequence[Node]) -> Hashable:
        keys: list[Hashable] = []
        for node in nodes:
            if isinstance(node, Loop):
                keys.append((node.count, of(node.body)))
            elif isinstance(node, Transfer):
                keys.append((node.store, number(node.tensor), node.box, node.place, node.slot, node.strides))
            elif isinstance(node, Carry):
                keys.append(("carry", number(node.tensor), node.box, node.place, node.slot, node.strides))
            else:
                keys.append(
                    (
                        number(node.operator),
                        node.boxes,
                        node.places,
                        node.inputs,
                        node.accumulator,
                        node.first,
                        node.last,
                        tuple(map(number, node.then)),
                        node.strides,
                    )
                )
        return tuple(keys)

    reads = tuple(
        tuple((number(flow.maps[o.map].name), o.reads) for o in flow.operands[index[name]])
        for name in group.nodes
    )
    weights = tuple(tuple(number(w.name) for w in flow.weights[index[name]]) for name in group.nodes)
    results = tuple(
        tuple(number(flow.maps[m].name) for m in flow.results[index[name]]) for name in group.nodes
    )
    places = tuple((place.slots, place.slot_bytes) for place in group.places)
    return places, tuple(map(number, group.nodes)), reads, weights, results, of(group.steps)


def _walked(nodes: Sequence[Node]) -> Iterator[tuple[Step, Stride]]:
    """(step, offset of its origin) in the order of `unfold`, without moved steps.

    Half the time of a walk would go into moving them.
    """
    iterations: list[int] = []  # of every loop around

    def walk(inside: Sequence[Node]) -> Iterator[tuple[Step, Stride]]:
        for node in inside:
            if not isinstance(node, Loop):
                yield (
                    node,
                    tuple([sum(map(mul, iterations, along)) for along in zip(*node.strides, strict=True)]),
                )
            elif iterations or any(isinstance(inner, Loop) for inner in node.body):
                iterations.append(0)
                for iteration in range(node.count):
                    iterations[-1] = iteration
                    yield from walk(node.body)
                iterations.pop()
            else:
                steps = [step for step in node.body if not isinstance(step, Loop)]
                for iteration in range(node.count):
                    for step in steps:
                        move = step.strides[0] if step.strides else ()
                        yield step, tuple([iteration * d for d in move])

    return walk(nodes)


class _WrittenBox(NamedTuple):
    """A box of a map that a step loads, stores or computes, before it is moved."""

    name: str
    shape: tuple[int, ...]  # of the map
    box: Box
    place: int  # -1: it takes no space
    columns: int  # starts among what moves that come before those of the box
    row_column: int  # where that of its rows is; -1: one row
    rows: Span
    layout: RowLayout[Ring] | None  # None: it moves along other axes than that of rows

    def span(self, by: Stride) -> Span:
        """Its rows once the step is moved."""
        start, stop = self.rows
        if not by or self.row_column < 0:
            return start, stop
        return start + by[self.row_column], stop + by[self.row_column]


class _SlotWalk:
    """State of all slots during a walk over the steps of a group."""

    def __init__(self, group: PlannedGroup, flow: Dataflow, hardware: Hardware) -> None:
        self.flow = flow
        self.contents = BufferContents[Ring, Block](group.places, hardware, Ring, lives=True)
        self.index = flow.position
        self.attentions = attentions_of(flow)
        # what of a constant a step reads, by operator, constant and what the step makes
        self.needs: dict[object, Box] = {}
        self.boxes: dict[int, tuple[_WrittenBox, ...]] = {}  # of steps, by id
        self.runs: dict[int, list[int]] = defaultdict(list)  # per operator: the steps in which it computes
        self.flights: dict[int, tuple[Compute, ...]] = {}  # of computations with others in flight, by id

    def taken(self, steps: int) -> np.ndarray:
        """(places, steps) int64: live slots of each place at each step."""
        changes = np.zeros((len(self.contents.places), steps + 1), dtype=np.int32)
        places, first, last = self.contents.lives().T
        np.add.at(changes, (places, first), 1)
        np.add.at(changes, (places, last + 1), -1)
        return np.cumsum(changes, axis=1)[:, :steps]

    def follow(self, step: Step, by: Stride, now: int) -> None:
        """Run the step of number `now`, moved by `by`."""
        self.contents.now = now
        if isinstance(step, Compute):
            self._compute(step, by)
        elif isinstance(step, Carry):
            self._carry(step, by)
        elif step.kind != "parameter":  # those have a store of their own
            self._transfer(step, by)

    def _transfer(self, step: Transfer, by: Stride) -> None:
        slot = step.slot + (by[-1] if by else 0)
        if step.tensor in self.flow.graph.constants:
            box = step.moved(by).box if by else step.box
            self.contents.put_block(Block(step.tensor, box, step.place, slot, step.offset), step.bytes)
            return
        loaded = self._one_box(step)
        if step.store:
            self.contents.rows_on_chip(step.tensor, *loaded.span(by))
        else:
            self._write(loaded, by, slot)

    def _carry(self, step: Carry, by: Stride) -> None:
        carried = self._one_box(step)
        box = step.moved(by).box if by else step.box
        axis = row_axis(carried.shape)
        part = box if axis is None else cut(box, axis, (0, 1))
        self.contents.rows_on_chip(step.tensor, *carried.span(by), part)
        self._write(carried, by, step.slot + (by[-1] if by else 0))

    def _one_box(self, step: Transfer | Carry) -> _WrittenBox:
        """The box that a step moves."""
        if id(step) not in self.boxes:
            shape = self.flow.graph.shape(step.tensor)
            self.boxes[id(step)] = (self._box(step, step.tensor, shape, step.box, step.place, 0),)
        (box,) = self.boxes[id(step)]
        return box

    def _compute(self, step: Compute, by: Stride) -> None:
        """Read operands, write results or partial sums."""
        if step.then:
            self._compute_several(step, by)
            return
        i = self.index[step.operator]
        self.runs[i].append(self.contents.now)
        results = self._results(step, i)
        if len(results) == 1 and results[0].row_column >= 0:
            rows = results[0].span(by)
        else:
            rows = self._rows(i, results, by)
        names = self.flow.calls[i].operator.inputs
        for operand in self.flow.operands[i]:
            name = names[operand.input]
            reads = operand.reads
            root = self.flow.maps[operand.map].name
            if name != root and self.contents.knows(name):
                reads = self.flow.specs[i].reads(self.flow.calls[i], operand.input)
            else:
                name = root
            span = None if step.inputs is None else self._inputs(i, operand, step, by)
            first, stop = span or read_span(reads, rows)
            self.contents.rows_on_chip(name, first, stop)
        self._read_constants(i, step, by)
        if not (step.first and step.last):
            self._use_sums(self.flow.calls[i], step, by)
        if step.last:
            for result in results:
                if result.place >= 0:
                    self._write(result, by, result.span(by)[0])

    def _compute_several(self, step: Compute, by: Stride) -> None:
        """Compute an attention, or an operator and those that follow it in flight."""
        attention, _ = self.attentions.named(step)
        if attention is not None:
            self._attend(attention, step, by)
            return
        if id(step) not in self.flights:
            self.flights[id(step)] = (*unfused_steps(step),)
        for one in self.flights[id(step)]:
            self._compute(one, by[: len(one.origin)])

    def _rows(self, i: int, results: Sequence[_WrittenBox], by: Stride) -> Span:
        """Rows of its results that an operator makes; all if one has no rows."""
        if any(result.row_column < 0 for result in results):
            return 0, self.flow.heights[i]
        starts, stops = zip(*[result.span(by) for result in results], strict=True)
        return min(starts), max(stops)

    def _attend(self, attention: RecognisedAttention, step: Compute, by: Stride) -> None:
        """One block of keys of an attention: it reads operands and sums, and writes those or the result."""
        behind = self.flow.behind
        for name in attention.call.operator.inputs:
            known = name if self.contents.knows(name) else behind.get(name, name)
            if self.contents.knows(known):
                self.contents.rows_on_chip(known, 0, row_count(self.flow.graph.shape(known)))
            for block in self.contents.blocks_on_chip(name):
                self.contents.use_block(block)
        if not (step.first and step.last):
            self._use_sums(attention.call, step, by)
        if step.last:
            (result,) = self._results(step, self.index[step.then[-1]])
            self._write(result, by, result.span(by)[0])

    def _results(self, step: Compute, i: int) -> tuple[_WrittenBox, ...]:
        """The boxes that a step makes, of the results of an operator."""
        if id(step) not in self.boxes:
            boxes: list[_WrittenBox] = []
            columns = 0
            for m, box, place in zip(self.flow.results[i], step.boxes, step.places, strict=True):
                tensor = self.flow.maps[m]
                boxes.append(self._box(step, tensor.name, tensor.shape, box, place, columns))
                columns += len(box)
            self.boxes[id(step)] = tuple(boxes)
        return self.boxes[id(step)]

    def _box(
        self, step: Step, name: str, shape: tuple[int, ...], box: Box, place: int, columns: int
    ) -> _WrittenBox:
        """A box of a step whose starts come behind `columns` others among what moves."""
        axis = row_axis(shape)
        rows = (0, 1) if axis is None else box[axis]
        moves = False
        if step.strides:
            others = [columns + k for k in range(len(box)) if k != axis]
            moves = any(stride[k] for stride in step.strides for k in others)
        layout = None if moves or place < 0 else self.contents.layout(name, shape, box, place)
        row_column = -1 if axis is None else columns + axis
        return _WrittenBox(name, shape, box, place, columns, row_column, rows, layout)

    def _write(self, written: _WrittenBox, by: Stride, number: int) -> None:
        """Write a box, moved by `by`, to the slots from `number` on."""
        if written.place < 0:
            return
        layout = written.layout
        if layout is None:
            moved = zip(written.box, by[written.columns :], strict=False)
            box = tuple([(start + d, stop + d) for (start, stop), d in moved])
            layout = self.contents.layout(written.name, written.shape, box, written.place)
        first, stop = written.span(by)
        self.contents.put_rows(layout, first, stop, number)

    def _use_sums(self, call: Call, step: Compute, by: Stride) -> None:
        """Read the partial sums of a step, and write them unless it finishes them."""
        name, shape, box = kept_sums(call, (step.moved(by) if by else step).boxes[0])
        axis = row_axis(shape)
        first, stop = (0, 1) if axis is None else box[axis]
        if not step.first:
            self.contents.rows_on_chip(name, first, stop)
        if not step.last:
            layout = self.contents.layout(name, shape, box, step.accumulator, sums=True)
            self.contents.put_rows(layout, first, stop, first)

    def _inputs(self, i: int, operand: MapRead, step: Compute, by: Stride) -> Span | None:
        """Rows of an operand that the step folds; None where it folds none."""
        call = self.flow.calls[i]
        if not folds_rows(call, operand.input) or not keeps_rows(
            self.flow.maps[operand.map].shape, call.shape(operand.input)
        ):
            return None
        if by:
            return step.moved(by).inputs
        return step.inputs

    def _read_constants(self, i: int, step: Compute, by: Stride) -> None:
        """Use the weight blocks that the step reads a part of."""
        for weight in self.flow.weights[i]:
            blocks = self.contents.blocks_on_chip(weight.name)
            needed = self._needed(i, weight.name, step, by) if len(blocks) > 1 else None
            for block in blocks:
                if needed is None or _meet(needed, block.box):
                    self.contents.use_block(block)

    def _needed(self, i: int, name: str, step: Compute, by: Stride) -> Box:
        """Box of a constant that a step reads; of weights, by its output channels alone."""
        moved = step.moved(by) if by else step
        call = self.flow.calls[i]
        key: object = moved.boxes
        family = self.flow.specs[i].family
        if family is Family.CONVOLUTION:
            key = moved.boxes[0][1]
        elif family is Family.PRODUCT and len(self.flow.graph.shape(name)) <= MATRIX:
            key = moved.boxes[0][-1]
        footprint = self.needs.get((i, name, key, moved.inputs))
        if footprint is None:
            footprint = footprints(call, call.operator.inputs.index(name), moved.boxes, inputs=moved.inputs)
            self.needs[i, name, key, moved.inputs] = footprint
        return footprint


def _meet(one: Box, other: Box) -> bool:
    return all(low < stop and start < high for (low, high), (start, stop) in zip(one, other, strict=True))
