"""A plan holds no more than it needs and does nothing in vain: with one row less in a ring, or one step altered, execution notices.

What gives an altered plan away, in this order:

    violation   something is read that is not on chip, or written where there is no room
    outputs     what the group stores is something else, or is not all there
    bytes       the bytes counted are not those of the plan
    gap         a part of a map is never loaded or never computed, though nobody reads it
    twice       something is computed that is on chip already

Execution raises the first; outputs and bytes are compared by whoever asks (`lfopt execute` does). The last two change neither a result nor a byte:
a row that is computed only because rows are made in order, or a step that repeats the one before it. `Watchful` finds those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from lfopt.ir import (
    Box,
    Compute,
    DramBytes,
    Graph,
    Plan,
    PlannedGroup,
    Scheme,
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
from lfopt.planning import GroupCosts
from search.exact import solve
from simulator.interpreter.buffer import NotOnChip
from simulator.interpreter.execute import Machine, Violation
from tests.strategies import random_bands, random_graph, random_hardware, random_reduction
from tests.test_one_truth import (
    ACCELERATOR,
    SCHEMES,
    Values,
    computable,
    differing,
    planned,
    random_inputs,
    random_scheme,
    real_network,
)

REAL = [
    ("zoo:efficientnet_b0", "lbdf"),
    ("zoo:mobilenet_v3_large", "lbdf"),
    ("zoo:resnet18", "lbdf"),
    ("zoo:mobilenet_v3_large", "auto"),
    pytest.param("zoo:efficientnet_b0", "auto", marks=pytest.mark.slow),
    pytest.param("zoo:resnet18", "auto", marks=pytest.mark.slow),
]


class Watchful(Machine):
    """A machine that also notes what is loaded and computed: all that must be, and nothing twice while it is there."""

    def watch(self, group: PlannedGroup) -> tuple[str, DramBytes]:
        """Run the group. ("", counted bytes); or "gap" or "twice" in place of ""."""
        constants = {step.tensor for step in unfold(group.steps) if isinstance(step, Transfer) and step.tensor in self.graph.constants}
        self.fetched = {name: np.zeros(self.graph.shape(name), bool) for name in (*group.inputs, *constants)}
        self.made = {name: np.zeros(self.graph.shape(name), bool) for node in group.nodes for name in self.results[node]}
        results = {node: self.graph.shape(self.results[node][0]) for node in group.nodes}
        self.summed = {node: np.zeros(shape, int) for node, shape in results.items()}  # the input channel, or row, that partial sums have come to
        self.twice = False
        counted = self.run(group)
        gap = not all(found.all() for found in self.fetched.values()) or any(self.gap(group, name) for name in self.made)
        return "gap" if gap else "twice" if self.twice else "", counted.dram

    def gap(self, group: PlannedGroup, name: str) -> bool:
        """Whether a part of a map is not computed that must be. Bands of slices may leave out rows that nobody reads."""
        wanted = self.wanted(group, name)
        if group.mode == "chained":  # which rows its stages leave out since nobody reads them, nothing here knows
            return False
        if group.mode == "sliced":
            unread = unread_rows(self.flow, group, name)
            return bool((wanted & ~self.made[name])[(slice(None),) * (row_axis(wanted.shape) or 0) + (~unread,)].any())
        return bool((self.made[name] != wanted).any())

    def wanted(self, group: PlannedGroup, name: str) -> np.ndarray:
        """What must be computed of a map: rows up to the highest that is asked for, without gaps; all of it where maps are made whole."""
        flow, asked = self.flow, dict[int, int]()
        members = [i for i, op in enumerate(flow.operators) if op.name in group.nodes]
        for i in reversed(members):
            stored = any(flow.maps[m].name in group.outputs for m in flow.results[i])
            demands = [o.reads.need[asked[c] - 1] for c in members if c > i and asked[c] for o in flow.operands[c] if o.map in flow.results[i]]
            asked[i] = flow.heights[i] if stored or group.mode in ("resident", "tiled") else max(demands, default=0)
        rows = next(asked[i] for i in members if name in self.results[flow.operators[i].name])
        found, axis = np.zeros(self.graph.shape(name), bool), row_axis(self.graph.shape(name))
        found[(slice(None),) * (axis or 0) + ((slice(rows),) if axis is not None else ()) if rows else (slice(0),) * found.ndim] = True
        return found

    def _compute(self, step: Compute) -> None:
        flight = (step.operator, *step.then)
        names, sums = self.results[flight[-1]], f"sums of {self.results[step.operator][0]}"
        kept = [(name, box) for name, box, place in zip(names, step.boxes, step.places, strict=True) if place >= 0 and box_elements(box)]
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
                self.made[name][slices(box)] = True

    def _is_here(self, name: str, box: Box) -> bool:
        try:
            self.buffer.read_rows(name, box)
        except NotOnChip:
            return False
        return True

    def _gather(self, step: Transfer) -> None:
        super()._gather(step)
        self.made[step.tensor][slices(step.box)] = True

    def _load(self, step: Transfer) -> None:
        super()._load(step)
        if self.root[step.tensor] in self.fetched:  # what is spilled is made here
            self._map(step.tensor, self.fetched)[slices(step.box)] = True

    def _load_constant(self, step: Transfer) -> None:
        super()._load_constant(step)
        self.fetched[step.tensor][slices(step.box)] = True


def unread_rows(flow: Dataflow, group: PlannedGroup, name: str) -> np.ndarray:
    """(rows,) bool: rows of a map made in a group that nobody needs, because no row that is needed reads them."""
    maps = [tensor.name for tensor in flow.maps]
    found = np.full(flow.maps[maps.index(name)].rows, name not in group.outputs)
    for i, op in enumerate(flow.operators):
        reads = [o.reads for o in flow.operands[i] if op.name in group.nodes and maps[o.map] == name]
        if reads:
            unread = unread_rows(flow, group, maps[flow.results[i][0]])
            for first, last, needless in (row for each in reads for row in zip(each.first, each.last, unread, strict=True)):
                found[first : last + 1] &= needless
    return found


class Stage(NamedTuple):
    """A group about to run, and what it stores when it runs as planned."""

    machine: Watchful
    group: PlannedGroup
    stored: dict[str, np.ndarray]


def stages(plan: Plan, graph: Graph, inputs: Values) -> Iterator[Stage]:
    """One group with steps after the other. The machine is as it is when the group begins; whoever runs it must put it back."""
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


def random_stages(seed: int, scheme: Scheme, most: int) -> Iterator[tuple[Dataflow, Stage]]:
    """The groups of a random plan of at most so many operators; half of them on a chip that has room for everything."""
    rng = np.random.default_rng(seed)
    graph = computable(random_graph(rng, int(rng.integers(1, most + 1))))
    hardware, inputs = random_hardware(rng, graph), random_inputs(graph, rng)
    if rng.random() < 0.5:
        hardware = replace(hardware, buffer_bytes=1 << 20)
    costs = GroupCosts.of(graph, hardware, scheme=scheme, epilogue=bool(rng.random() < 0.7))
    for stage in stages(planned(costs, random_scheme(costs, seed)), graph, inputs):
        yield costs.dataflow, stage


def banded_stages(seeds: range) -> Iterator[tuple[Dataflow, Stage]]:
    """Groups of random plans that run in bands of several rows."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = computable(random_graph(rng, int(rng.integers(1, 10))))
        hardware, inputs = random_hardware(rng, graph), random_inputs(graph, rng)
        costs = GroupCosts.of(graph, replace(hardware, buffer_bytes=4 * hardware.buffer_bytes))
        for stage in stages(planned(costs, random_scheme(costs, seed), random_bands(rng)), graph, inputs):
            if stage.group.mode == "lbdf" and stage.group.band_rows > 1:
                yield costs.dataflow, stage


def folded_stages(seeds: range) -> Iterator[Stage]:
    """Groups of random plans that fold the rows of a map band by band."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = random_reduction(rng)
        inputs, hardware = random_inputs(graph, rng), random_hardware(rng, graph)
        for buffer_bytes in (48, 96, 192, 384):
            costs = GroupCosts.of(graph, replace(hardware, buffer_bytes=buffer_bytes))
            for stage in stages(planned(costs, random_scheme(costs, seed)), graph, inputs):
                if any(isinstance(step, Compute) and step.sums >= 0 for step in unfold(stage.group.steps)):
                    yield stage


def real_stages(model: str, scheme: Scheme) -> Iterator[tuple[Dataflow, Stage]]:
    """The groups of the best plan of a real network on 64 x 64 pixels."""
    graph = real_network(model, {"image": (1, 3, 64, 64)})
    costs = GroupCosts.of(graph, ACCELERATOR, scheme=scheme)
    inputs = random_inputs(graph, np.random.default_rng(2))
    for stage in stages(planned(costs, solve(costs).groups), graph, inputs):
        yield costs.dataflow, stage


# -- rings ---------------------------------------------------------------------------------------------------------------------------------


def with_place(group: PlannedGroup, index: int, **changes: int) -> PlannedGroup:
    """The group with one place altered; everything else stays where it is."""
    places = [*group.places]
    places[index] = replace(places[index], **changes)
    return replace(group, places=tuple(places))


def spare_rows(flow: Dataflow, group: PlannedGroup, name: str) -> str:
    """Why a map may have a row on chip that no step needs; "" if there is no reason.

    "unread": nobody reads the row or stores it; it is there because maps are loaded and made whole, in order.
    "padding": the row rule of a reader says that it reads the row, but of the columns its window lies in the padding.
    "never computed": a reader stops before the row of its result that would read it, because nobody asks for that one.
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
                    tuple((0, n) if axis != row_axis(shape) else (row, row + 1) for axis, n in enumerate(shape)) for shape in flow.calls[i].results
                )
                if rows and not box_elements(footprints(flow.calls[i], o.input, tuple(results))):
                    return "padding"
    return "unread" if len(read) < flow.maps[index].rows else ""


def rows_of(box: Box) -> range:
    axis = row_axis(box_shape(box))
    return range(1) if axis is None else range(*box[axis])


def rings_with_a_row_less(flow: Dataflow, stage: Stage) -> Iterator[tuple[str, str, str]]:
    """Per ring of rows of a map or of sums that loses one slot: (its name, what gives that away, why it may not matter)."""
    maps = {tensor.name for tensor in flow.maps}
    for index, place in enumerate(stage.group.places):
        if place.purpose != "weight":
            found = verdict(stage, with_place(stage.group, index, slots=place.slots - 1))
            yield place.name, found, spare_rows(flow, stage.group, place.name) if place.name in maps else ""


def rings_of_random_plans(seeds: range, scheme: Scheme) -> Counter[tuple[str, str]]:
    """(what gave it away, why it may not have mattered) of every ring that lost a slot. In mode lbdf, unread rows are no reason."""
    found: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        for flow, stage in random_stages(seed, scheme, 9):
            for name, seen, why in rings_with_a_row_less(flow, stage):
                excused = why in ("padding", "never computed") or (why == "unread" and stage.group.mode != "lbdf")
                assert seen == "violation" or (seen == "" and excused), f"seed {seed}, {scheme}: {stage.group.mode} {name}: {seen or 'nothing'} {why}"
                found[seen, why] += 1
    return found


@pytest.mark.parametrize("first", [0, 100])
def test_a_ring_of_a_line_buffered_group_with_one_row_less_always_fails(first: int) -> None:
    """But for windows that lie in padding, and readers that stop early: there the row rules say more than what is read."""
    found = rings_of_random_plans(range(first, first + 100), "lbdf")
    assert found["violation", ""] > 200
    assert sum(count for (seen, _), count in found.items() if not seen) < 0.03 * found.total()


def test_a_ring_of_a_group_in_bands_with_one_row_less_always_fails() -> None:
    """What a step makes must find room all at once, also rows that nobody reads."""
    found: Counter[tuple[str, str]] = Counter()
    for flow, stage in banded_stages(range(6000, 6200)):
        for name, seen, why in rings_with_a_row_less(flow, stage):
            assert seen == "violation" or (seen == "" and why in ("padding", "never computed")), f"{stage.group.nodes}: {name}: {seen} {why}"
            found[seen, why] += 1
    assert found["violation", ""] > 200
    assert sum(count for (seen, _), count in found.items() if not seen) < 0.03 * found.total()


@pytest.mark.parametrize("scheme", ["brr", "resident", "auto"])
def test_a_map_of_any_group_with_one_row_less_fails_unless_nobody_reads_the_row(scheme: Scheme) -> None:
    found = rings_of_random_plans(range(1000, 1060), scheme)
    assert found["violation", ""] > 120
    assert sum(count for (seen, _), count in found.items() if not seen) < 0.05 * found.total()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_for_many_more_graphs(scheme: Scheme) -> None:
    assert rings_of_random_plans(range(2000, 2700), scheme)["violation", ""] > 1500


@pytest.mark.parametrize(("model", "scheme"), REAL)
def test_every_ring_of_a_real_network_with_one_row_less_fails(model: str, scheme: Scheme) -> None:
    rings = 0
    for flow, stage in real_stages(model, scheme):
        for name, seen, why in rings_with_a_row_less(flow, stage):
            spare = why == "unread" and stage.group.mode != "lbdf"
            assert seen == "violation" or (seen == "" and spare), f"{stage.group.mode} {stage.group.nodes}: {name}: {why}"
            rings += seen == "violation"
    assert rings > 50


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_place_with_one_byte_less_in_its_slots_fails(scheme: Scheme) -> None:
    """Something fills a slot of every place, in every mode, weight blocks included."""
    places = 0
    for seed in range(60):
        for _, stage in random_stages(seed, scheme, 9):
            for index, place in enumerate(stage.group.places):
                assert verdict(stage, with_place(stage.group, index, slot_bytes=place.slot_bytes - 1)) == "violation", f"seed {seed}: {place}"
                places += 1
    assert places > 300


def test_every_place_of_a_folded_reduction_with_one_row_or_one_byte_less_fails() -> None:
    places: Counter[str] = Counter()
    for stage in folded_stages(range(80)):
        for index, place in enumerate(stage.group.places):
            for less in ({"slots": place.slots - 1}, {"slot_bytes": place.slot_bytes - 1}):
                assert verdict(stage, with_place(stage.group, index, **less)) == "violation", f"{stage.group.nodes}: {place}: {less}"
            places[place.purpose] += 1
    assert places["sum"] > 50


def test_a_second_slot_for_weights_is_for_overlap_alone() -> None:
    """One slot of a place that weight blocks pass through is enough to compute; that both are used is what lets a load run beside a computation."""
    passing = 0
    for seed in range(60):
        for _, stage in random_stages(seed, "resident", 9):
            for index, place in enumerate(stage.group.places):
                if place.purpose == "weight" and place.slots > 1:
                    assert verdict(stage, with_place(stage.group, index, slots=1)) == ""
                    assert verdict(stage, with_place(stage.group, index, slots=0)) == "violation"
                    passing += 1
    assert passing > 30


# -- steps ---------------------------------------------------------------------------------------------------------------------------------


def kind_of(step: Step) -> str:
    if isinstance(step, Compute):
        return "compute"
    return "gather" if step.gather else "store" if step.store else "weight" if step.kind == "weight" else "load"


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
    """(alteration, kind of step, the step, what gives it away) of some steps of a group, each in turn dropped, repeated and shortened."""
    steps = tuple(unfold(stage.group.steps))
    for k in rng.choice(len(steps), min(most, len(steps)), replace=False):
        step = steps[k]
        changes: dict[str, tuple[Step, ...]] = {"drop": (), "repeat": (step, step)}
        if isinstance(step, Transfer) and (short := shortened(step, rng)):
            changes["shorten"] = (short,)
        for change, new in changes.items():
            yield change, kind_of(step), step, verdict(stage, replace(stage.group, steps=(*steps[:k], *new, *steps[k + 1 :])))


CAUGHT_BY = {  # alteration -> what gives it away
    ("drop", "compute"): {"violation", "outputs", "gap", "twice"},  # gap: a row that nobody reads; twice: sums that go on after a hole
    ("drop", "load"): {"violation", "bytes"},  # bytes: nobody reads what was to be loaded
    ("drop", "store"): {"outputs"},
    ("drop", "weight"): {"violation", "bytes"},
    ("repeat", "compute"): {"twice", "outputs"},  # outputs: it was added to the sums twice
    ("repeat", "load"): {"bytes"},
    ("repeat", "store"): {"bytes"},
    ("repeat", "weight"): {"bytes"},
    ("shorten", "load"): {"violation", "bytes", "gap"},  # gap: within the padding of a row in DRAM, and nobody reads it
    ("shorten", "store"): {"outputs"},
    ("shorten", "weight"): {"violation", "bytes"},
}


def check_alterations(found: Iterator[tuple[str, str, Step, str]], counts: Counter[tuple[str, str]]) -> None:
    for change, kind, step, seen in found:
        assert seen in CAUGHT_BY[change, kind], f"{change} {step}: {seen or 'nothing'} gives it away"
        counts[change, kind] += 1


def alter_random_plans(seeds: range, scheme: Scheme) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        rng = np.random.default_rng((seed, 7))
        for _, stage in random_stages(seed, scheme, 6):
            check_alterations(altered_steps(stage, rng, 5), counts)
    return counts


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_step_can_be_dropped_repeated_or_shortened_unnoticed(scheme: Scheme) -> None:
    counts = alter_random_plans(range(50), scheme)
    assert counts.keys() == CAUGHT_BY.keys()
    assert counts.total() > 900


def test_no_step_of_a_group_in_bands_can_be_altered_unnoticed() -> None:
    rng, counts = np.random.default_rng(9), Counter[tuple[str, str]]()
    for _, stage in banded_stages(range(7000, 7100)):
        check_alterations(altered_steps(stage, rng, 5), counts)
    assert counts.total() > 500


def test_no_step_of_a_folded_reduction_can_be_altered_unnoticed() -> None:
    rng, counts = np.random.default_rng(5), Counter[tuple[str, str]]()
    for stage in folded_stages(range(1000, 1080)):
        check_alterations(altered_steps(stage, rng, 12), counts)
    assert counts["drop", "compute"] > 150
    assert counts["shorten", "load"] > 150
    assert counts.total() > 1000


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_step_of_many_more_graphs_can_be_altered_unnoticed(scheme: Scheme) -> None:
    assert alter_random_plans(range(5000, 5600), scheme).total() > 10_000


@pytest.mark.parametrize(("model", "scheme"), REAL)
def test_no_step_of_a_real_network_can_be_altered_unnoticed(model: str, scheme: Scheme) -> None:
    rng, counts = np.random.default_rng(3), Counter[tuple[str, str]]()
    for _, stage in real_stages(model, scheme):
        if rng.random() < 0.4:
            check_alterations(altered_steps(stage, rng, 1), counts)
    assert counts.total() > 15
