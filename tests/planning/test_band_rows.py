"""Groups in bands of several rows: rings against a naive schedule, figures by hand, heights proposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from lfopt.app.pipeline import load_network
from lfopt.app.plans import make_draft
from lfopt.ir import Compute, Graph, Hardware, Loop, PlannedGroup, Transfer, row_axis, unfold
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts, plan_groups, up_to
from lfopt.planning.plans import band_rows
from search.exact import solve
from search.options import SearchOptions
from simulator.model.occupancy import occupancy
from simulator.model.simulate import simulate
from simulator.recount import RecountNetwork, recount
from simulator.recount.groups import weight_bytes
from tests.brute import Oracle
from tests.cases import few, some
from tests.line_buffers import rings
from tests.random_plans import random_scheme
from tests.row_networks import SAME, network
from tests.strategies import random_bands, random_graph, random_hardware

HEIGHTS = (2, 3, 4, 7, 1000)
ROOM = Hardware(1 << 24)


class Naive:
    """A group in bands of several rows, by definition: recursion, and a set of live rows of every map."""

    def __init__(self, flow: Dataflow, mask: int, band_rows: int) -> None:
        self.flow, self.mask = flow, mask
        self.done = dict.fromkeys(bits(mask), 0)
        maps = {m for i in bits(mask) for m in (*flow.results[i], *(o.map for o in flow.operands[i]))}
        self.loaded = {m: 0 for m in maps if flow.producer[m] < 0 or not mask >> flow.producer[m] & 1}
        self.alive: dict[int, set[int]] = {m: set() for m in maps}
        self.most = {m: int(m in self.loaded) for m in maps}
        self.order: list[tuple[int, int, int]] = []  # (operator, first row, first row after the last)
        heights = {i: flow.heights[i] for i in bits(flow.sinks(mask))}
        while left := [i for i in heights if self.done[i] < heights[i]]:
            goals = {i: min(self.done[i] + band_rows, heights[i]) for i in left}
            sink = min(left, key=lambda i: (Fraction(goals[i], heights[i]), i))
            self.make(sink, goals[sink])

    def make(self, op: int, goal: int) -> None:
        first = self.done[op]
        if first >= goal:
            return
        for operand in self.flow.operands[op]:
            need = max(operand.reads.last[:goal]) + 1
            if operand.map not in self.loaded:
                self.make(self.flow.producer[operand.map], need)
            while self.loaded.get(operand.map, need) < need:
                self.arrive(operand.map, [self.loaded[operand.map]])
                self.loaded[operand.map] += 1
        for m in self.flow.results[op]:
            self.arrive(m, list(range(first, min(goal, self.flow.maps[m].rows))))
        self.order.append((op, first, goal))
        self.done[op] = goal

    def arrive(self, m: int, rows: list[int]) -> None:
        """Rows take their places beside those that somebody may still read."""
        readers = [
            (o.reads, self.done[i])
            for i in bits(self.flow.readers[m] & self.mask)
            for o in self.flow.operands[i]
            if o.map == m
        ]
        self.alive[m] = {
            row
            for row in self.alive[m]
            if any(min(reads.first[rows_made:], default=row + 1) <= row for reads, rows_made in readers)
        }
        if together := self.alive[m] | set(rows):
            self.most[m] = max(self.most[m], max(together) - min(together) + 1)
        self.alive[m] = together


def computed(flow: Dataflow, group: PlannedGroup) -> list[tuple[int, int, int]]:
    """(operator, first row, first row after the last) of every step that computes or gathers."""
    index = {operator.name: i for i, operator in enumerate(flow.operators)}
    bands: list[tuple[int, int, int]] = []
    for step in unfold(group.steps):
        if isinstance(step, Compute) or (isinstance(step, Transfer) and step.gather):
            i = index[step.operator if isinstance(step, Compute) else step.gather]
            boxes = step.boxes if isinstance(step, Compute) else (step.box,)
            spans = [
                box[axis]
                for m, box in zip(flow.results[i], boxes, strict=True)
                if (axis := row_axis(flow.maps[m].shape)) is not None
            ]
            first, stop = max(spans, key=lambda span: span[1] - span[0], default=(0, 1))
            bands.append((i, first, stop))
    return bands


def each_graph(seeds: range) -> Iterator[tuple[int, np.random.Generator, Graph]]:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        yield seed, rng, random_graph(rng, int(rng.integers(2, 8)))


def need(costs: GroupCosts, graph: Graph, mask: int, rows: int) -> int:
    """F_beta by the recount."""
    net, hardware, names = RecountNetwork(graph), costs.hardware, costs.dataflow.names(mask)
    held = sum(
        count * hardware.row_bytes(net.tensor(name)) for name, count in rings(net, names, rows).items()
    )
    return held + weight_bytes(net, names, hardware)[1]


# -- random graphs -------------------------------------------------------------------------------------------


def test_rings_and_steps_are_those_of_the_schedule_run_naively() -> None:
    compared = 0
    for seed, _, graph in each_graph(some(range(50_000, 50_150))):
        flow = Dataflow.of(graph)
        net, costs = RecountNetwork(graph), GroupCosts(flow, ROOM)
        for mask in Oracle(graph).legal_groups():
            for height in HEIGHTS:
                naive, what = Naive(flow, mask, height), f"seed {seed}, {height} rows of {flow.names(mask)}"
                ring_rows = costs.groups.line_buffers.ring_rows(mask, height)
                assert ring_rows == naive.most, what
                assert {flow.maps[m].name: rows for m, rows in ring_rows.items()} == rings(
                    net, flow.names(mask), height
                ), what
                compared += 1
            height = HEIGHTS[compared % len(HEIGHTS)]
            (group,) = plan_groups(costs, (mask,), lambda _, height=height: [height])  # type: ignore[misc]
            taken = band_rows.chosen(costs, mask, lambda _, height=height: [height])  # type: ignore[misc]
            if group.mode == "lbdf" and taken > 1:
                assert computed(flow, group) == Naive(flow, mask, taken).order, (
                    f"seed {seed}, {taken} rows of {group.nodes}"
                )
    assert compared > few(10_000)


def test_no_height_proposed_means_row_by_row() -> None:
    for seed, rng, graph in each_graph(range(51_000, 51_100)):
        costs = GroupCosts.of(graph, random_hardware(rng, graph))
        groups = random_scheme(costs, seed)
        plain = plan_groups(costs, groups)
        assert (
            plain
            == plan_groups(costs, groups, lambda _: ())
            == plan_groups(costs, groups, lambda _: (1,))
            == plan_groups(costs, groups, up_to(costs, 1))
        )


def test_the_first_height_that_fits_is_taken() -> None:
    taken = 0
    for seed, rng, graph in each_graph(range(52_000, 52_200)):
        flow = Dataflow.of(graph)
        costs = GroupCosts(
            flow, replace(hardware := random_hardware(rng, graph), buffer_bytes=2 * hardware.buffer_bytes)
        )
        groups, propose = random_scheme(costs, seed), random_bands(rng)
        asked = {group: propose(group) for group in groups}
        planned = plan_groups(costs, groups, asked.__getitem__)
        assert isinstance(planned, tuple)
        for mask, group in zip(groups, planned, strict=True):
            if group.mode != "lbdf":
                # without steps there is nothing to say how high bands are
                assert group.band_rows == (costs.terms(mask).band_rows if group.steps else 1)
                continue
            results, maps = (max(flow.heights[i] for i in bits(some)) for some in (flow.sinks(mask), mask))
            tried = [
                min(rows, results) if results > 1 else maps if rows >= maps else 1 for rows in asked[mask]
            ]
            fitting = (rows for rows in tried if need(costs, graph, mask, rows) < costs.hardware.buffer_bytes)
            rows = next(fitting, 1)
            assert band_rows.chosen(costs, mask, asked.__getitem__) == rows
            assert group.allocated_bytes(costs.hardware) == need(costs, graph, mask, rows)
            if rows > 1:
                assert computed(flow, group) == Naive(flow, mask, rows).order
                assert group.band_rows >= rows
                taken += 1
    assert taken > 100


# -- by hand -------------------------------------------------------------------------------------------------


HALF = {**SAME, "strides": [2, 2]}
W = (4, 4, 3, 3)


def rings_by_name(graph: Graph, height: int) -> dict[str, int]:
    flow = Dataflow.of(graph)
    return {
        flow.maps[m].name: rows
        for m, rows in GroupCosts(flow, ROOM).groups.line_buffers.ring_rows(flow.everything, height).items()
    }


def planned_whole(graph: Graph, height: int) -> PlannedGroup:
    """All operators in one group, with room for everything."""
    costs = GroupCosts.of(graph, ROOM)
    (group,) = plan_groups(costs, (costs.dataflow.everything,), lambda _: (height,))  # type: ignore[misc]
    return group


def test_a_chain_of_convolutions() -> None:
    """A band of 4 rows of y reads 6 of t, 2 of them from the band before; likewise t of x."""
    graph = network([("Conv", "x v", "t", SAME), ("Conv", "t w", "y", SAME)], 64, {"v": W, "w": W})
    assert rings_by_name(graph, 1) == {"x": 3, "t": 3, "y": 1}
    assert rings_by_name(graph, 4) == {"x": 6, "t": 6, "y": 4}
    assert rings_by_name(graph, 64) == {"x": 64, "t": 64, "y": 64}
    group = planned_whole(graph, 4)
    assert computed(Dataflow.of(graph), group)[:4] == [(0, 0, 5), (1, 0, 4), (0, 5, 9), (1, 4, 8)]
    assert sum(isinstance(step, Compute) for step in unfold(group.steps)) == 2 * 16
    (loop,) = (node for node in group.steps if isinstance(node, Loop))
    assert loop.count == 14  # the first band is taller upstream, the last one shorter
    assert occupancy(group, Dataflow.of(graph), ROOM).most == tuple(place.slots for place in group.places)


def test_bands_of_an_odd_height_end_with_a_shorter_one() -> None:
    graph = network([("Conv", "x v", "t", HALF), ("Relu", "t", "y", {})], 30, {"v": W})
    assert rings_by_name(graph, 4) == {"x": 9, "t": 4, "y": 4}
    steps = computed(Dataflow.of(graph), planned_whole(graph, 4))
    assert steps == [(op, first, min(first + 4, 15)) for first in (0, 4, 8, 12) for op in (0, 1)]


def test_a_residual_waits_for_the_branch() -> None:
    """While y makes rows 4 to 7, the skip holds what the convolutions have run ahead: rows 4 to 9."""
    graph = network(
        [
            ("Relu", "x", "r", {}),
            ("Conv", "r v", "t", SAME),
            ("Conv", "t w", "u", SAME),
            ("Add", "u r", "y", {}),
        ],
        32,
        {"v": W, "w": W},
    )
    assert rings_by_name(graph, 4) == {"x": 6, "r": 6, "t": 6, "u": 4, "y": 4}


def test_a_gate_asks_for_all_rows_at_once() -> None:
    """The mean needs the rest of t in one step, so all of t; s holds 29 rows, row by row 3."""
    gate = [
        ("Conv", "x v", "s", SAME),
        ("Conv", "s w", "t", SAME),
        ("GlobalAveragePool", "t", "mean", {}),
        ("Mul", "t mean", "y", {}),
    ]
    graph = network(gate, 32, {"v": W, "w": W})
    assert rings_by_name(graph, 1) == {"x": 3, "s": 3, "t": 32, "mean": 1, "y": 1}
    assert rings_by_name(graph, 4) == {"x": 28, "s": 29, "t": 32, "mean": 1, "y": 4}
    assert computed(Dataflow.of(graph), planned_whole(graph, 4))[:5] == [
        (0, 0, 5),
        (1, 0, 4),
        (0, 5, 32),
        (1, 4, 32),
        (2, 0, 1),
    ]


def test_results_of_several_heights_take_turns() -> None:
    """Half as many rows are done with twice as many bands of four: two of t, one of y."""
    graph = network(
        [("Relu", "x", "r", {}), ("Relu", "r", "t", {}), ("Conv", "r w", "y", HALF)], 32, {"w": W}
    )
    turns = [step for step in computed(Dataflow.of(graph), planned_whole(graph, 4)) if step[0] > 0]
    assert turns[:6] == [(1, 0, 4), (1, 4, 8), (2, 0, 4), (1, 8, 12), (1, 12, 16), (2, 4, 8)]


def test_results_of_one_row_are_made_row_by_row_or_all_at_once() -> None:
    graph = network([("Conv", "x v", "t", SAME), ("GlobalAveragePool", "t", "y", {})], 32, {"v": W})
    costs = GroupCosts(flow := Dataflow.of(graph), ROOM)
    for proposed, rows in ((1, 1), (4, 1), (31, 1), (32, 32), (1000, 32)):
        (group,) = plan_groups(costs, (flow.everything,), lambda _, proposed=proposed: (proposed,))  # type: ignore[misc]
        assert group.band_rows == rows
        assert len(computed(flow, group)) == (33 if rows == 1 else 2)


def test_bands_as_high_as_the_map_run_every_operator_once() -> None:
    graph = network(
        [("Conv", "x v", "t", SAME), ("Concat", "t x", "u", {"axis": 1}), ("Conv", "u w", "y", HALF)],
        32,
        {"v": W, "w": (4, 8, 3, 3)},
    )
    group = planned_whole(graph, 1000)
    assert group.band_rows == 16
    assert sum(isinstance(step, Compute) for step in unfold(group.steps)) == 3
    assert not any(isinstance(node, Loop) for node in group.steps)


# -- from a search to a plan ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "resnet18"])
def test_a_plan_in_bands_is_recounted_and_simulated(name: str) -> None:
    """For the same bytes and the same work there are fewer steps, which take fewer cycles to start."""
    graph = load_network(f"zoo:{name}", {"image": (1, 3, 64, 64)}, "default", weights=False)
    costs = GroupCosts.of(graph, Hardware(256 * 1024, mac_rows=16, mac_columns=16))
    searched = solve(costs, SearchOptions(time_limit=10))
    plain, banded = (
        make_draft(graph, costs, searched, searched.lower_bound_bytes, bands=bands).finished()
        for bands in (None, up_to(costs, 4))
    )
    assert {group.band_rows for group in banded.groups if group.mode == "lbdf"} >= {1, 4}
    assert recount(graph, banded).agrees
    before, after = simulate(plain, graph), simulate(banded, graph)
    assert not after.disagreements
    assert (after.dram, after.macs, after.recomputed_macs) == (before.dram, before.macs, 0)
    # fewer commands; but a band skips kernel rows in the padding only as a whole
    assert after.cycles.compute < 1.001 * before.cycles.compute
    assert max(group.allocated_bytes(costs.hardware) for group in banded.groups) < costs.hardware.buffer_bytes
    moved = [
        sum(step.bytes for group in plan.groups for step in unfold(group.steps) if isinstance(step, Transfer))
        for plan in (plain, banded)
    ]
    assert moved[0] == moved[1]
