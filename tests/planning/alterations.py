"""Plans with one alteration, and what notices it: a ring a row shorter, a step dropped, doubled, cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lfopt.ir import (
    Box,
    Carry,
    Compute,
    DramBytes,
    Graph,
    Plan,
    PlannedGroup,
    Step,
    Transfer,
    box_elements,
    box_shape,
    cut,
    row_axis,
    slices,
    unfold,
)
from lfopt.ops import Dataflow
from lfopt.ops.footprint import footprints
from lfopt.ops.on_chip import NotOnChip
from simulator.interpreter.execute import Machine, Violation
from tests.agreement import differing
from tests.random_plans import Values


class Watchful(Machine):
    """A machine that also notes gaps and repeats: all that must be loaded and computed, none twice.

    Twice is what is still on chip.
    """

    def watch(self, group: PlannedGroup) -> tuple[str, DramBytes]:
        """Run the group. ("", counted bytes); or "gap" or "twice" in place of ""."""
        constants = {
            step.tensor
            for step in unfold(group.steps)
            if isinstance(step, Transfer) and step.tensor in self.graph.constants
        }
        loaded = {self.root[name] for name in group.inputs} | constants  # whatever view of them a step names
        self.fetched = {name: np.zeros(self.graph.shape(name), bool) for name in loaded}
        self.computed = {
            name: np.zeros(self.graph.shape(name), bool)
            for node in group.nodes
            for name in self.results[node]
        }
        results = {node: self.graph.shape(self.results[node][0]) for node in group.nodes}
        # the input channel, or row, that partial sums have come to
        self.summed = {node: np.zeros(shape, int) for node, shape in results.items()}
        self.twice = False
        counted = self.run(group)
        gap = not all(fetched.all() for fetched in self.fetched.values()) or any(
            self.gap(group, name) for name in self.computed
        )
        return "gap" if gap else "twice" if self.twice else "", counted.dram

    def gap(self, group: PlannedGroup, name: str) -> bool:
        """Whether a part of a map is not computed that must be.

        Bands of slices may leave out rows that nobody reads.
        """
        wanted = self.wanted(group, name)
        # nothing here knows which rows its stages leave out because nobody reads them
        if group.mode == "chained":
            return False
        if group.mode == "sliced":
            unread = unread_rows(self.flow, group, name)
            return bool(
                (wanted & ~self.computed[name])[
                    (slice(None),) * (row_axis(wanted.shape) or 0) + (~unread,)
                ].any()
            )
        return bool((self.computed[name] != wanted).any())

    def wanted(self, group: PlannedGroup, name: str) -> np.ndarray:
        """(shape of the map) bool: elements that must be computed.

        Rows up to the highest that is read, without gaps; all of it where maps are made whole.
        """
        flow, asked = self.flow, dict[int, int]()
        members = [i for i, op in enumerate(flow.operators) if op.name in group.nodes]
        for i in reversed(members):
            stored = any(flow.maps[m].name in group.outputs for m in flow.results[i])
            demands = [
                o.reads.need[asked[c] - 1]
                for c in members
                if c > i and asked[c]
                for o in flow.operands[c]
                if o.map in flow.results[i]
            ]
            asked[i] = (
                flow.heights[i] if stored or group.mode in ("resident", "tiled") else max(demands, default=0)
            )
        rows = next(asked[i] for i in members if name in self.results[flow.operators[i].name])
        expected, axis = np.zeros(self.graph.shape(name), bool), row_axis(self.graph.shape(name))
        expected[
            (slice(None),) * (axis or 0) + ((slice(rows),) if axis is not None else ())
            if rows
            else (slice(0),) * expected.ndim
        ] = True
        return expected

    def _compute(self, step: Compute) -> None:
        flight = (step.operator, *step.then)
        names, sums = self.results[flight[-1]], f"sums of {self.results[step.operator][0]}"
        kept = [
            (name, box)
            for name, box, place in zip(names, step.boxes, step.places, strict=True)
            if place >= 0 and box_elements(box)
        ]
        kept = kept if step.last else [(sums, step.boxes[0])]
        if step.first or step.last:
            self.twice |= bool(kept) and all(self._is_here(name, box) for name, box in kept)
        if step.inputs is not None and not step.first:
            self.twice |= bool((self.summed[step.operator][slices(step.boxes[0])] != step.inputs[0]).any())
        super()._compute(step)
        if step.inputs is not None:
            self.summed[step.operator][slices(step.boxes[0])] = step.inputs[1]
        for operator in flight if step.last else ():
            for name, box in zip(self.results[operator], step.boxes, strict=True):
                self.computed[name][slices(box)] = True

    def _is_here(self, name: str, box: Box) -> bool:
        try:
            self.buffer.read_rows(name, box)
        except NotOnChip:
            return False
        return True

    def _gather(self, step: Transfer) -> None:
        super()._gather(step)
        self.computed[step.tensor][slices(step.box)] = True

    def _load(self, step: Transfer) -> None:
        super()._load(step)
        if self.root[step.tensor] in self.fetched:  # what is spilled is made here
            self._map(step.tensor, self.fetched)[slices(step.box)] = True

    def _load_constant(self, step: Transfer) -> None:
        super()._load_constant(step)
        self.fetched[step.tensor][slices(step.box)] = True


def unread_rows(flow: Dataflow, group: PlannedGroup, name: str) -> np.ndarray:
    """(rows,) bool: rows of a map made in a group that no needed row reads."""
    maps = [tensor.name for tensor in flow.maps]
    rows_unread = np.full(flow.maps[maps.index(name)].rows, name not in group.outputs)
    for i, op in enumerate(flow.operators):
        reads = [o.reads for o in flow.operands[i] if op.name in group.nodes and maps[o.map] == name]
        if reads:
            unread = unread_rows(flow, group, maps[flow.results[i][0]])
            for first, last, needless in (
                row for each in reads for row in zip(each.first, each.last, unread, strict=True)
            ):
                rows_unread[first : last + 1] &= needless
    return rows_unread


class Stage(NamedTuple):
    """A group about to run, and what it stores when it runs as planned."""

    machine: Watchful
    group: PlannedGroup
    stored: dict[str, np.ndarray]


def stages(plan: Plan, graph: Graph, inputs: Values) -> Iterator[Stage]:
    """One group with steps after the other.

    The machine is as it is when the group begins; whoever runs it must put it back.
    """
    machine = Watchful(graph, plan.hardware, inputs)
    for group in plan.groups:
        before = dict(machine.dram), dict(machine.written)
        work, counted = machine.watch(group)
        after = dict(machine.dram), dict(machine.written)
        if group.steps:
            assert (work, counted) == ("", group.dram), f"{group.nodes}: {work}"
            machine.dram, machine.written = before
            yield Stage(machine, group, {name: after[0][name] for name in group.outputs})
        machine.dram, machine.written = after


def verdict(stage: Stage, altered: PlannedGroup) -> str:
    """What gives an altered group away (see the module); "" if nothing does."""
    machine = stage.machine
    before = dict(machine.dram), dict(machine.written)
    try:
        work, counted = machine.watch(altered)
        if not all(machine.written[name].all() for name in stage.stored):
            return "outputs"
        if differing({name: machine.dram[name] for name in stage.stored}, stage.stored):
            return "outputs"
        return "bytes" if counted != stage.group.dram else work
    except Violation:
        return "violation"
    finally:
        machine.dram, machine.written = before


def with_place(group: PlannedGroup, index: int, **changes: int) -> PlannedGroup:
    """The group with one place altered; everything else stays where it is."""
    places = [*group.places]
    places[index] = replace(places[index], **changes)
    return replace(group, places=tuple(places))


def spare_rows(flow: Dataflow, group: PlannedGroup, name: str) -> str:
    """Why a map may have a row on chip that no step needs; "" if there is no reason.

    "unread": nobody reads the row or stores it; it is there because maps are loaded and made whole, in order.
    "padding": the row rule of a reader says that it reads the row, but of the columns its window lies in the
    padding. "never computed": a reader stops before the row of its result that would read it, because nobody
    asks for that one.
    """
    index = {tensor.name: m for m, tensor in enumerate(flow.maps)}[name]
    computed: dict[str, set[int]] = {node: set() for node in group.nodes}
    for step in unfold(group.steps):
        if isinstance(step, Compute):
            for operator in (step.operator, *step.then):
                computed[operator].update(row for box in step.boxes for row in rows_of(box))
    read = set(range(flow.maps[index].rows)) if name in group.outputs else set[int]()
    for i, op in enumerate(flow.operators):
        for o in flow.operands[i] if op.name in group.nodes else ():
            if o.map != index:
                continue
            if len(computed[op.name]) < flow.heights[i]:
                return "never computed"
            for row in computed[op.name]:
                rows = range(o.reads.first[row], o.reads.last[row] + 1)
                read.update(rows)
                results = (
                    tuple(
                        (0, n) if axis != row_axis(shape) else (row, row + 1) for axis, n in enumerate(shape)
                    )
                    for shape in flow.calls[i].results
                )
                if rows and not box_elements(footprints(flow.calls[i], o.input, tuple(results))):
                    return "padding"
    return "unread" if len(read) < flow.maps[index].rows else ""


def rows_of(box: Box) -> range:
    axis = row_axis(box_shape(box))
    return range(1) if axis is None else range(*box[axis])


def rings_with_a_row_less(flow: Dataflow, stage: Stage) -> Iterator[tuple[str, str, str]]:
    """(name, what notices, why it may not matter) of each ring of map rows or sums, one slot shorter."""
    maps = {tensor.name for tensor in flow.maps}
    for index, place in enumerate(stage.group.places):
        if place.purpose != "weight":
            seen = verdict(stage, with_place(stage.group, index, slots=place.slots - 1))
            yield place.name, seen, spare_rows(flow, stage.group, place.name) if place.name in maps else ""


def kind_of(step: Step) -> str:
    if isinstance(step, Compute):
        return "compute"
    if isinstance(step, Carry):
        return "carry"
    return (
        "gather" if step.gather else "store" if step.store else "weight" if step.kind == "weight" else "load"
    )


def shortened(step: Transfer, rng: np.random.Generator) -> Transfer | None:
    """The transfer without the first or last row, column or channel; what is left goes where it went."""
    axes = [axis for axis, (start, stop) in enumerate(step.box) if stop - start > 1]
    if not axes or step.gather:
        return None
    axis, first = int(rng.choice(axes)), bool(rng.random() < 0.5)
    start, stop = step.box[axis]
    box = cut(step.box, axis, (start + first, stop - (not first)))
    by_rows = step.kind != "weight" and axis == row_axis(box_shape(step.box))
    return replace(step, box=box, slot=step.slot + (first and by_rows), rows=step.rows - by_rows)


def altered_steps(stage: Stage, rng: np.random.Generator, most: int) -> Iterator[tuple[str, str, Step, str]]:
    """(alteration, kind, step, what notices) of some steps of a group, dropped, repeated and shortened."""
    steps = tuple(unfold(stage.group.steps))
    for k in rng.choice(len(steps), min(most, len(steps)), replace=False):
        step = steps[k]
        changes: dict[str, tuple[Step, ...]] = {"drop": (), "repeat": (step, step)}
        if isinstance(step, Transfer) and (short := shortened(step, rng)):
            changes["shorten"] = (short,)
        for change, new in changes.items():
            yield (
                change,
                kind_of(step),
                step,
                verdict(stage, replace(stage.group, steps=(*steps[:k], *new, *steps[k + 1 :]))),
            )


CAUGHT_BY = {  # alteration -> what gives it away
    # gap: a row that nobody reads; twice: sums that go on after a hole
    ("drop", "compute"): {"violation", "outputs", "gap", "twice"},
    ("drop", "load"): {"violation", "bytes"},  # bytes: nobody reads what was to be loaded
    ("drop", "store"): {"outputs"},
    ("drop", "weight"): {"violation", "bytes"},
    ("repeat", "compute"): {"twice", "outputs"},  # outputs: it was added to the sums twice
    ("repeat", "load"): {"bytes"},
    ("repeat", "store"): {"bytes"},
    ("repeat", "weight"): {"bytes"},
    # gap: within the padding of a row in DRAM, and nobody reads it
    ("shorten", "load"): {"violation", "bytes", "gap"},
    ("shorten", "store"): {"outputs"},
    ("shorten", "weight"): {"violation", "bytes"},
}


def check_alterations(
    alterations: Iterator[tuple[str, str, Step, str]], counts: Counter[tuple[str, str]]
) -> None:
    for change, kind, step, seen in alterations:
        assert seen in CAUGHT_BY[change, kind], f"{change} {step}: {seen or 'nothing'} gives it away"
        counts[change, kind] += 1
