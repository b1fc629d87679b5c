"""Occupancy of the buffer while a group runs: live slots of every place, step by step.

A slot is taken from the step that writes it to the last step that reads what was written. What a step reads
follows from the operator table, as for whoever executes the plan; the schedule itself does not say when a
slot becomes free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

import numpy as np

from lfopt.ir import (
    Box,
    Compute,
    Hardware,
    Loop,
    Node,
    PlannedGroup,
    Span,
    Step,
    Transfer,
    row_axis,
    step_count,
    unfused_steps,
)
from lfopt.ir.schedule import Stride
from lfopt.ops import Dataflow, Family, MapRead, keeps_rows
from lfopt.ops.footprint import folds_rows, footprints
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
    walk, steps = _done(group, flow), step_count(group.steps)
    slots_in_use = walk.taken(steps)
    sizes = np.array(
        [place.slot_bytes * (hardware.store_of(place.purpose) == "buffer") for place in group.places],
        dtype=np.int64,
    )
    total = sizes @ slots_in_use
    spans = np.array_split(np.arange(steps), min(points, steps)) if steps else []
    shown = [int(span[0] + np.argmax(total[span])) for span in spans]
    return Occupancy(
        steps,
        tuple(shown),
        tuple(tuple(int(count) for count in row) for row in slots_in_use[:, shown]),
        tuple(int(row.max(initial=0)) for row in slots_in_use),
        int(total.max(initial=0)),
        int(np.argmax(total)) if steps else 0,
        tuple(int(total[walk.runs[walk.index[name]]].max(initial=0)) for name in group.nodes),
    )


def lives(group: PlannedGroup, flow: Dataflow, commands: Sequence[Step]) -> Sequence[tuple[int, int, int]]:
    """Live ranges of slots: (place, number of the writing command, number of the last command that reads).

    `commands`: of all steps, in order.
    """
    walk = _SlotWalk(group, flow)
    for number, command in enumerate(commands):
        by = (0,) * len(command.origin)
        if isinstance(command, Transfer):
            walk.transfer(command, by, number)
        else:
            walk.compute(command, by, number)
    return walk.all_lives()


def _done(group: PlannedGroup, flow: Dataflow) -> _SlotWalk:
    walk = _SlotWalk(group, flow)
    for number, (step, by) in enumerate(_walked(group.steps)):
        if isinstance(step, Transfer):
            walk.transfer(step, by, number)
        else:
            walk.compute(step, by, number)
    return walk


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
            return node.moved(by) if node.strides else node
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
            if isinstance(node, Loop):
                iterations.append(0)
                for iteration in range(node.count):
                    iterations[-1] = iteration
                    yield from walk(node.body)
                iterations.pop()
            elif not node.strides:
                yield node, (0,) * len(node.origin)
            elif len(iterations) == 1:
                iteration = iterations[0]
                yield node, tuple([iteration * d for d in node.strides[0]])
            else:
                yield (
                    node,
                    tuple([sum(map(mul, iterations, along)) for along in zip(*node.strides, strict=True)]),
                )

    return walk(nodes)


class _Rows(NamedTuple):
    """Rows that a computation makes of each of its results, before it is moved."""

    # per result: where the start of its rows stands among what moves; -1 for a result of one row
    at: tuple[int, ...]
    first: tuple[Span, ...]

    @classmethod
    def of(cls, step: Compute, flow: Dataflow, i: int) -> _Rows:
        """Rows of a computation, with the axes of its results looked up."""
        at: list[int] = []
        first: list[Span] = []
        columns = 0
        for m, box in zip(flow.results[i], step.boxes, strict=True):
            axis = row_axis(flow.maps[m].shape)
            at.append(-1 if axis is None else columns + axis)
            first.append((0, flow.heights[i]) if axis is None else box[axis])
            columns += len(box)
        return cls(tuple(at), tuple(first))

    def spans(self, by: Stride) -> list[Span]:
        """The rows once the computation is moved."""
        return [
            (start + by[at], stop + by[at]) if by and at >= 0 else (start, stop)
            for at, (start, stop) in zip(self.at, self.first, strict=True)
        ]


@dataclass(slots=True)
class _Content:
    """Content of one slot, with its live range."""

    number: int  # of the row, or of the weight block
    first: int  # step that wrote it
    last: int  # last step so far that wrote or read it


class _SlotWalk:
    """State of all slots during a walk over the steps of a group."""

    def __init__(self, group: PlannedGroup, flow: Dataflow) -> None:
        self.places = group.places
        self.flow = flow
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.map_of = _maps_by_name(flow)
        self.attentions = attentions_of(flow)
        self.slots: list[dict[int, _Content]] = [{} for _ in group.places]  # per place: by slot
        self.lives: list[tuple[int, int, int]] = []  # (place, first step, last step) of what was overwritten
        self.place_of: dict[int, int] = {}  # per map: where its rows lie
        # per constant, by (place, slot): box and number of what lies there
        self.blocks: dict[str, dict[tuple[int, int], tuple[Box, int]]] = {}
        # what of a constant a step reads, by operator, constant and what the step makes
        self.needs: dict[object, Box] = {}
        self.rows: dict[int, _Rows] = {}  # of computations, by id
        self.runs: dict[int, list[int]] = defaultdict(list)  # per operator: the steps in which it computes
        self.flights: dict[int, tuple[Compute, ...]] = {}  # of computations with others in flight, by id

    def all_lives(self) -> list[tuple[int, int, int]]:
        """(place, first step, last step) of everything that was written."""
        left = [
            (place, content.first, content.last)
            for place, slots in enumerate(self.slots)
            for content in slots.values()
        ]
        return self.lives + left

    def taken(self, steps: int) -> np.ndarray:
        """(places, steps) int64: live slots of each place at each step."""
        changes = np.zeros((len(self.places), steps + 1), dtype=np.int32)
        places, first, last = np.array(self.all_lives(), dtype=np.int64).reshape(-1, 3).T
        np.add.at(changes, (places, first), 1)
        np.add.at(changes, (places, last + 1), -1)
        return np.cumsum(changes, axis=1)[:, :steps]

    def transfer(self, step: Transfer, by: Stride, now: int) -> None:
        """Load or store at step `now`; parameters have a store of their own."""
        if step.kind == "parameter":
            return
        m, slot = self.map_of.get(step.tensor), step.slot + (by[-1] if by else 0)
        axis = row_axis(tuple(stop for _, stop in step.box)) if m is not None else None
        numbers = range(slot, slot + (1 if axis is None else step.box[axis][1] - step.box[axis][0]))
        if step.store:
            self._touch(step.place, numbers, now)
            return
        self._write(step.place, numbers, now)
        if m is not None:
            self.place_of[m] = step.place
        else:
            box = step.moved(by).box if by else step.box
            self.blocks.setdefault(step.tensor, {})[step.place, slot % self.places[step.place].slots] = (
                box,
                slot,
            )

    def compute(self, step: Compute, by: Stride, now: int) -> None:
        """Compute at step `now`: read operands, write results or partial sums."""
        attention, _ = self.attentions.named(step)
        if attention is not None:
            self._attend(attention, step, by, now)
            return
        if step.then:
            if id(step) not in self.flights:
                self.flights[id(step)] = (*unfused_steps(step),)
            for one in self.flights[id(step)]:
                self.compute(one, by[: len(one.origin)], now)
            return
        i = self.index[step.operator]
        self.runs[i].append(now)
        if id(step) not in self.rows:
            self.rows[id(step)] = _Rows.of(step, self.flow, i)
        spans = self.rows[id(step)].spans(by)
        start, stop = min(span[0] for span in spans), max(span[1] for span in spans)
        for operand in self.flow.operands[i]:
            place = self.place_of.get(operand.map)
            if place is None:
                continue
            first, last = self._inputs(i, operand, step, by) or read_span(operand.reads, (start, stop))
            # all of it, also where a view numbers its rows otherwise
            if last - first == operand.reads.rows_in:
                self._touch_all(place, now)
            else:
                self._touch(place, range(first, last), now)
        self._read_constants(i, step, by, now)
        if step.accumulator >= 0:
            self._write(step.accumulator, range(start, stop), now)
        if step.last or step.accumulator < 0:
            for m, span, place in zip(self.flow.results[i], spans, step.places, strict=True):
                if place >= 0:
                    self.place_of[m] = place
                    self._write(
                        place,
                        range(*span) if row_axis(self.flow.maps[m].shape) is not None else range(1),
                        now,
                    )

    def _attend(self, attention: RecognisedAttention, step: Compute, by: Stride, now: int) -> None:
        """Touch what one block of keys of an attention uses: operands on chip, sums, at last the result."""
        names = {*attention.call.operator.inputs}
        for m in {self.map_of[name] for name in names if name in self.map_of} & self.place_of.keys():
            self._touch_all(self.place_of[m], now)
        for name in names & self.blocks.keys():
            for place, slot in self.blocks[name]:
                self.slots[place][slot].last = now
        if step.accumulator >= 0:
            self._write(step.accumulator, range(self.places[step.accumulator].slots), now)
        last = self.index[step.then[-1]]
        if step.last and step.places[0] >= 0:
            (m,) = self.flow.results[last]
            self.place_of[m] = step.places[0]
            axis = row_axis(self.flow.maps[m].shape)
            first, stop = (
                (0, 1) if axis is None else (span + (by[axis] if by else 0) for span in step.boxes[0][axis])
            )
            self._write(step.places[0], range(first, stop), now)

    def _inputs(self, i: int, operand: MapRead, step: Compute, by: Stride) -> Span | None:
        """Rows of an operand that the step folds; None where it folds none."""
        call = self.flow.calls[i]
        if (
            step.inputs is None
            or not folds_rows(call, operand.input)
            or not keeps_rows(self.flow.maps[operand.map].shape, call.shape(operand.input))
        ):
            return None
        return step.moved(by).inputs if by else step.inputs

    def _read_constants(self, i: int, step: Compute, by: Stride, now: int) -> None:
        """Touch the weight blocks that the step reads a part of."""
        for weight in self.flow.weights[i]:
            held = self.blocks.get(weight.name, {})
            needed = self._needed(i, weight.name, step, by) if len(held) > 1 else None
            for (place, slot), (box, number) in held.items():
                content = self.slots[place][slot]
                if content.number == number and (needed is None or _meet(needed, box)):
                    content.last = now

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

    def _touch(self, place: int, numbers: range, now: int) -> None:
        slots, count = self.slots[place], self.places[place].slots
        for number in numbers[-count:]:
            content = slots.get(number % count)
            if content is not None and content.number == number:
                content.last = now

    def _touch_all(self, place: int, now: int) -> None:
        for content in self.slots[place].values():
            content.last = now

    def _write(self, place: int, numbers: range, now: int) -> None:
        """Write rows or blocks into their slots, which ends what they held; pieces make one content."""
        slots, count = self.slots[place], self.places[place].slots
        for number in numbers:
            content = slots.get(number % count)
            if content is not None and content.number == number:
                content.last = now
                continue
            if content is not None:
                self.lives.append((place, content.first, max(content.first, min(content.last, now - 1))))
            slots[number % count] = _Content(number, now, now)


def _meet(one: Box, other: Box) -> bool:
    return all(low < stop and start < high for (low, high), (start, stop) in zip(one, other, strict=True))


def _maps_by_name(flow: Dataflow) -> dict[str, int]:
    """Index of every map, also by the names that views give it."""
    numbers = dict(flow.map_index)
    for operator in flow.graph.operators:
        if operator.inputs and operator.inputs[0] in numbers:
            for name in operator.outputs:
                numbers.setdefault(name, numbers[operator.inputs[0]])
    return numbers
