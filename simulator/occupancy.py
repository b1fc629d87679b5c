"""How full the buffer is while a group runs: for every place, the slots whose content will still be read, step by step.

A slot is taken from the step that writes it to the last step that reads what was written. What a step reads follows from the operator table, as for
whoever executes the plan; the schedule itself does not say when a slot becomes free.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from lfopt.ir import Box, Compute, Loop, Node, PlannedGroup, Span, Step, Transfer, row_axis, step_count, unfold
from lfopt.ops import Dataflow
from lfopt.ops.footprint import footprints
from lfopt.ops.windows import read_span


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Slots taken while a group runs. The steps are cut into equal spans; each shows its fullest step, so that no maximum is lost."""

    steps: int  # that run
    shown: tuple[int, ...]  # per span: number of its fullest step, the first of them if there are several
    slots: tuple[tuple[int, ...], ...]  # per place: slots taken at each step shown
    most: tuple[int, ...]  # per place: the most slots taken at any step
    peak_bytes: int  # the most that all places together hold at any step
    peak_step: int  # the first step at which they do


def occupancy(group: PlannedGroup, flow: Dataflow, points: int = 120) -> Occupancy:
    """Walk the steps of a group. At most `points` spans."""
    walk = _Walk(group, flow)
    steps = 0
    for step in unfold(group.steps):
        walk.take(step, steps)
        steps += 1
    taken = walk.taken(steps)
    sizes = np.array([place.slot_bytes for place in group.places], dtype=np.int64)
    total = sizes @ taken
    spans = np.array_split(np.arange(steps), min(points, steps)) if steps else []
    shown = [int(span[0] + np.argmax(total[span])) for span in spans]
    return Occupancy(
        steps,
        tuple(shown),
        tuple(tuple(int(count) for count in row) for row in taken[:, shown]),
        tuple(int(row.max(initial=0)) for row in taken),
        int(total.max(initial=0)),
        int(np.argmax(total)) if steps else 0,
    )


def step_at(nodes: Sequence[Node], number: int) -> Step:
    """One step of those that `unfold` walks, found without walking."""
    turns: list[int] = []
    while True:
        for node in nodes:
            if number < (size := step_count((node,))):
                break
            number -= size
        else:
            raise IndexError("the schedule has fewer steps")
        if not isinstance(node, Loop):
            by = tuple(sum(turn * d for turn, d in zip(turns, along, strict=True)) for along in zip(*node.moves, strict=True))
            return node.moved(by) if node.moves else node
        nodes = node.body
        turn, number = divmod(number, size // node.count)
        turns.append(turn)


def likeness(group: PlannedGroup, flow: Dataflow) -> Hashable:
    """A key that groups share which differ in names alone: the buffer fills in the same way. Repeated blocks of a network are walked once."""
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
                keys.append((node.store, number(node.tensor), node.box, node.place, node.slot, node.moves))
            else:
                keys.append((number(node.operator), node.boxes, node.places, node.inputs, node.sums, node.first, node.last, node.moves))
        return tuple(keys)

    reads = tuple(tuple((number(flow.maps[o.map].name), o.reads) for o in flow.operands[index[name]]) for name in group.nodes)
    weights = tuple(tuple(number(w.name) for w in flow.weights[index[name]]) for name in group.nodes)
    made = tuple(tuple(number(flow.maps[m].name) for m in flow.results[index[name]]) for name in group.nodes)
    places = tuple((place.slots, place.slot_bytes) for place in group.places)
    return places, tuple(map(number, group.nodes)), reads, weights, made, of(group.steps)


@dataclass(slots=True)
class _Content:
    """What was written into one slot."""

    number: int  # of the row, or of the weight block
    first: int  # step that wrote it
    last: int  # last step so far that wrote or read it


class _Walk:
    """The slots of a group while its steps go by."""

    def __init__(self, group: PlannedGroup, flow: Dataflow) -> None:
        self.places = group.places
        self.flow = flow
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.map_of = _maps_by_name(flow)
        self.slots: dict[tuple[int, int], _Content] = {}  # by (place, slot)
        self.lives: list[tuple[int, int, int]] = []  # (place, first step, last step) of what was overwritten
        self.place_of: dict[int, int] = {}  # per map: where its rows lie
        self.blocks: dict[str, dict[tuple[int, int], Transfer]] = {}  # per constant: what of it lies in which (place, slot)

    def taken(self, steps: int) -> np.ndarray:
        """Slots taken, (places, steps)."""
        changes = np.zeros((len(self.places), steps + 1), dtype=np.int32)
        left = [(place, content.first, content.last) for (place, _), content in self.slots.items()]
        places, first, last = np.array(self.lives + left, dtype=np.int64).reshape(-1, 3).T
        np.add.at(changes, (places, first), 1)
        np.add.at(changes, (places, last + 1), -1)
        return np.cumsum(changes, axis=1)[:, :steps]

    def take(self, step: Step, now: int) -> None:
        """Let one step read and write."""
        if isinstance(step, Transfer):
            self._transfer(step, now)
            return
        i = self.index[step.operator]
        self._read_maps(i, step, now)
        self._read_constants(i, step, now)
        if step.sums >= 0:
            start, stop = self._rows(i, step)
            self._write(step.sums, range(start, stop), now)
        if step.last or step.sums < 0:
            for m, box, place in zip(self.flow.results[i], step.boxes, step.places, strict=True):
                if place >= 0:
                    axis = row_axis(self.flow.maps[m].shape)
                    self.place_of[m] = place
                    self._write(place, range(1) if axis is None else range(*box[axis]), now)

    def _transfer(self, step: Transfer, now: int) -> None:
        m = self.map_of.get(step.tensor)
        axis = row_axis(tuple(stop for _, stop in step.box)) if m is not None else None
        numbers = range(step.slot, step.slot + (1 if axis is None else step.box[axis][1] - step.box[axis][0]))
        if step.store:
            self._touch(step.place, numbers, now)
            return
        self._write(step.place, numbers, now)
        if m is not None:
            self.place_of[m] = step.place
        else:
            self.blocks.setdefault(step.tensor, {})[step.place, step.slot % self.places[step.place].slots] = step

    def _rows(self, i: int, step: Compute) -> Span:
        """Rows of the operator that a step makes."""
        spans = [
            (0, self.flow.heights[i]) if (axis := row_axis(self.flow.maps[m].shape)) is None else box[axis]
            for m, box in zip(self.flow.results[i], step.boxes, strict=True)
        ]
        return min(start for start, _ in spans), max(stop for _, stop in spans)

    def _read_maps(self, i: int, step: Compute, now: int) -> None:
        rows = self._rows(i, step)
        for operand in self.flow.operands[i]:
            place = self.place_of.get(operand.map)
            if place is None:
                continue
            start, stop = read_span(operand.reads, rows)
            if stop - start == operand.reads.rows_in:  # all of it, also where a view numbers its rows otherwise
                self._touch(place, range(self.places[place].slots), now, any_number=True)
            else:
                self._touch(place, range(start, stop), now)

    def _read_constants(self, i: int, step: Compute, now: int) -> None:
        """Touch the weight blocks that the step reads a part of."""
        call = self.flow.calls[i]
        for weight in self.flow.weights[i]:
            held = self.blocks.get(weight.name, {})
            needed = None
            if len(held) > 1:
                needed = footprints(call, call.operator.inputs.index(weight.name), step.boxes, inputs=step.inputs)
            for key, block in held.items():
                content = self.slots[key]
                if content.number == block.slot and (needed is None or _meet(needed, block.box)):
                    content.last = now

    def _touch(self, place: int, numbers: range, now: int, *, any_number: bool = False) -> None:
        slots = self.places[place].slots
        for number in numbers[-slots:]:
            content = self.slots.get((place, number % slots))
            if content is not None and (any_number or content.number == number):
                content.last = now

    def _write(self, place: int, numbers: range, now: int) -> None:
        """Fill slots. What they held is over; what is written in pieces is one content."""
        slots = self.places[place].slots
        for number in numbers:
            key = (place, number % slots)
            content = self.slots.get(key)
            if content is not None and content.number == number:
                content.last = now
                continue
            if content is not None:
                self.lives.append((place, content.first, max(content.first, min(content.last, now - 1))))
            self.slots[key] = _Content(number, now, now)


def _meet(one: Box, other: Box) -> bool:
    return all(low < stop and start < high for (low, high), (start, stop) in zip(one, other, strict=True))


def _maps_by_name(flow: Dataflow) -> dict[str, int]:
    """Index of every map, also by the names that views give it."""
    found = {tensor.name: m for m, tensor in enumerate(flow.maps)}
    for operator in flow.graph.operators:
        if operator.inputs and operator.inputs[0] in found:
            for name in operator.outputs:
                found.setdefault(name, found[operator.inputs[0]])
    return found
