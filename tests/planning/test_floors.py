"""Floors of groups, and the bound on covers that is made of them: nothing that runs moves less."""

from __future__ import annotations

import numpy as np
import pytest

from lfopt.app import api
from lfopt.app.certificates import certified, written
from lfopt.app.recompute import LeastOfCovers, covers_without_retention, least_of_covers
from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, computations
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts
from lfopt.planning.costs.covers import CoverCosts
from lfopt.planning.floors import CoverRelaxation, relaxations
from lfopt.planning.steps.limit import never
from lfopt.zoo.builder import Net
from search.cover import WorkLimit, as_cover, search_covers
from search.cover_network import CoverNetwork
from search.cover_path import CoverBudget
from tests.cases import few, some
from tests.strategies import random_graph

KINDS = ("inverted", "residual", "graph", "pyramid")
SMALLEST = -1.5  # decimal logarithm of the smallest buffer that is drawn, over bytes of a tensor


def random_costs(rng: np.random.Generator, graph: Graph) -> GroupCosts:
    """On a chip whose buffer is smaller than most of the network's maps, or larger."""
    sizes = [2 * tensor.elements for tensor in graph.tensors.values() if tensor.elements > 1] or [2]
    large = [np.median(sizes), max(sizes), np.quantile(sizes, 0.8), sum(sizes) / 4]
    buffer = int(rng.choice(large) * 10 ** rng.uniform(SMALLEST, 0.2)) + 8
    hardware = Hardware(buffer, channel_align=int(rng.choice([1, 1, 4])))
    return GroupCosts.of(graph, hardware, scheme="all")


def random_group(rng: np.random.Generator, flow: Dataflow) -> tuple[int, int]:
    """Masks of connected operators, and of maps that they store: those without readers there, and others."""
    operators = 1 << int(rng.integers(len(flow)))
    for _ in range(int(rng.integers(1, 10))):
        near = 0
        for i in bits(operators):
            near |= flow.neighbours[i]
        near &= ~operators
        if near:
            operators |= 1 << int(rng.choice([*bits(near)]))
    stores = 0
    for i in bits(operators):
        for m in flow.results[i]:
            if not flow.readers[m] & operators or rng.random() < 0.3:
                stores |= 1 << m
    return operators, stores


def check_floors(rng: np.random.Generator, graph: Graph) -> int:
    """How many floors are above 0."""
    costs = random_costs(rng, graph)
    relaxed = CoverRelaxation(costs, keeps=bool(rng.integers(2)))
    covers = CoverCosts(costs)
    above = 0
    for _ in range(12):
        operators, stores = random_group(rng, costs.dataflow)
        moved = covers.dram_bytes(operators, stores)
        if moved is None:
            continue
        least = relaxed.dram_bytes(operators, stores)
        assert least is not None
        assert least <= moved
        alone, group = covers.costs_of(operators, stores)
        extra = max(moved - sum(alone.groups.once_by_class(group)), 0)
        for _ in range(4):
            some_of_them = sum(1 << i for i in bits(operators) if rng.random() < 0.7)
            if some_of_them and not operators & covers.free:
                floor = relaxed.least_extra(some_of_them)
                assert floor is not None
                assert floor <= extra
                above += floor > 0
    return above


def test_no_group_moves_less_than_the_floor_of_some_of_its_operators() -> None:
    above = 0
    for seed in some(range(2000)):
        rng = np.random.default_rng(seed)
        above += check_floors(rng, random_graph(rng, int(rng.integers(4, 12))))
    assert above


def test_no_group_of_a_real_family_moves_less_than_its_floor() -> None:
    above = 0
    for kind in KINDS:
        for seed in some(range(12)):
            graph = api.simplify(api.load(f"zoo:cells_{kind}@{seed}", weights=False))
            above += check_floors(np.random.default_rng(seed), graph)
    assert above


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_group_of_many_networks_moves_less_than_its_floor() -> None:
    above = 0
    for seed in range(1000, 21000):
        rng = np.random.default_rng(seed)
        above += check_floors(rng, random_graph(rng, int(rng.integers(4, 12))))
    assert above > 1000


def check_certificate(costs: GroupCosts, start: list[int], bound: int) -> None:
    """What a search says of maps proves its bound, with names and without the search."""
    search = LeastOfCovers.of(costs, never, never)
    assert search is not None
    assert search.bound(start) == bound
    certificate = written(costs.dataflow, search.bounds.claims())
    assert certified(costs, certificate.claims, bound, never) == bound


def test_weights_that_do_not_fit_beside_a_map_that_stays_come_twice_or_it_does_not_stay() -> None:
    """Pairs of a depthwise and a 1 x 1 convolution of 4 x 4 x 128: maps of 4 KiB, weights of 32."""
    net = Net("pairs", seed=0, weights=False)
    first = net.image((1, 128, 4, 4))
    x = first
    for k in range(4):
        x = net.conv(f"depthwise{k}", x, 128, 3, group=128)
        x = net.conv(f"pointwise{k}", x, 128)
    graph = from_model(net.model(first, x, "pairs"))
    size = 4 * 4 * 128 * 2
    bounds: dict[int, int] = {}
    for kib in (7, 64):
        costs = GroupCosts.of(graph, Hardware(kib << 10), scheme="all")
        relaxed = relaxations(costs)[-1]
        flow = costs.dataflow
        pair = 1 << flow.position["depthwise1"] | 1 << flow.position["pointwise1"]
        (read,) = flow.arriving(pair)
        (stored,) = flow.leaving(pair)
        lacking = relaxed.group_bytes(pair, 1 << read, 1 << stored)
        # on 7 KiB there is no room for the map between, or the result, beside the one that is read
        assert lacking == (size if kib == 7 else 0)
        start = [1 << i for i in range(len(flow))]
        bounds[kib] = least_of_covers(costs, start)
        assert (
            bounds[kib]
            <= api.search(
                graph, hardware=Hardware(kib << 10), scheme="all", objective="bytes"
            ).plan.totals.dram_bytes
        )
    assert bounds[7] >= bounds[64] + 2 * size


def test_a_plan_with_nothing_in_flight_has_the_bound_of_such_plans() -> None:
    """An addition in flight takes room that the convolution needs: apart, they move less."""
    net = Net("residual", seed=0, weights=False)
    first = net.image((1, 32, 2, 2))
    x = net.add("add", net.conv("conv", first, 32), first)
    graph = from_model(net.model(first, net.conv("last", x, 16), "residual"))
    costs = GroupCosts.of(graph, Hardware(119), scheme="all")
    in_flight = least_of_covers(costs, [1 << i for i in range(len(costs.dataflow))])
    found = api.search(graph, hardware=costs.hardware, scheme="all", objective="bytes")
    totals = found.plan.totals
    assert totals.dram_bytes < in_flight
    grounded = costs.grounded()
    bound = least_of_covers(grounded, [1 << i for i in range(len(grounded.dataflow))])
    assert totals.lower_bound_bytes == bound <= totals.dram_bytes
    checked = api.check(found, prove=True)
    assert not checked.wrong
    assert "not verified" not in checked.bound


def random_chain(rng: np.random.Generator) -> Graph:
    """Convolutions on small maps, with additions behind some of them."""
    net = Net("chain", seed=0, weights=False)
    channels = int(rng.choice([8, 16, 32]))
    side = int(rng.choice([2, 4, 6, 8]))
    first = net.image((1, channels, side, side))
    x = net.conv("first", first, channels)
    earlier = first
    for k in range(int(rng.integers(2, 7))):
        kind = rng.choice(
            ["depthwise", "pointwise", "full", "relu", "remember", "add"], p=[0.2, 0.3, 0.2, 0.1, 0.1, 0.1]
        )
        act = "relu" if rng.random() < 0.4 else None
        if kind == "depthwise":
            x = net.conv(f"depthwise{k}", x, channels, 3, group=channels, act=act)
        elif kind in ("pointwise", "full"):
            channels = int(channels * rng.choice([1, 1, 2]))
            stride = 2 if x.shape[2] >= 4 and rng.random() < 0.2 else 1
            x = net.conv(f"conv{k}", x, channels, 1 if kind == "pointwise" else 3, stride=stride, act=act)
        elif kind == "relu":
            x = net.act(x, "relu")
        elif kind == "remember":
            earlier = x
        elif earlier.shape == x.shape and earlier is not x:
            x = net.add(f"add{k}", x, earlier)
    return from_model(net.model(first, x, "chain"))


def test_no_plan_of_a_chain_of_convolutions_moves_less_than_the_bound_of_its_kind() -> None:
    """Maps are about as large as the buffer: some stay, others do not, and weights pass beside them."""
    tight = 0
    for seed in some(range(300)):
        rng = np.random.default_rng(seed)
        graph = random_chain(rng)
        sizes = [2 * tensor.elements for tensor in graph.tensors.values()]
        buffer = int(rng.choice(sizes) * rng.uniform(0.6, 2.6)) + 64
        chip = Hardware(buffer, channel_align=int(rng.choice([1, 1, 4])))
        plan = api.search(graph, hardware=chip, scheme="all", objective="bytes").plan
        if not all(group.steps for group in plan.groups):
            continue
        costs = GroupCosts.of(graph, chip, scheme="all")
        if not any(step.then for group in plan.groups for step in computations(group.steps)):
            costs = costs.grounded()
        bound = least_of_covers(costs, [1 << i for i in range(len(costs.dataflow))])
        assert bound <= plan.totals.dram_bytes, seed
        tight += bound == plan.totals.dram_bytes
    assert tight > few(100)


def test_no_plan_moves_less_than_the_bound() -> None:
    """Neither the best covers, nor plans in which maps stay on chip as well."""
    equal = 0
    beyond = 0
    for seed in some(range(150)):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(3, 9)))
        costs = random_costs(rng, graph)
        flow = costs.dataflow
        alone = [1 << i for i in range(len(flow))]
        bound = least_of_covers(costs, alone)
        check_certificate(costs, alone, bound)
        most_macs = 2 * sum(flow.macs)
        budget = CoverBudget(lambda: False)
        covers = [*search_covers(CoverCosts(costs), WorkLimit(most_macs), alone, budget)]
        moved = [cover.dram_bytes for cover in covers]
        prices = CoverCosts(costs)
        first = as_cover(CoverNetwork.of(prices), alone).dram_bytes
        search = covers_without_retention(prices, alone)
        assert search is not None
        proven = search.search(first)
        best = sum(step.dram_bytes for step in proven.steps) if proven.steps else first
        assert best == proven.lower_bound_bytes <= min([first, *moved]), seed
        plan = api.search(graph, hardware=costs.hardware, scheme="all", objective="bytes").plan
        assert bound <= min([*moved, plan.totals.dram_bytes]), seed
        if all(group.steps for group in plan.groups):  # else no more is claimed than what must move
            assert plan.totals.lower_bound_bytes >= bound, seed
        equal += bound == plan.totals.dram_bytes
        beyond += bound > plan.totals.compulsory_bytes
    assert equal > few(25)
    assert beyond > few(30)
