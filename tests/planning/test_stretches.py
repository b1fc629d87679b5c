"""Cost of two operators far apart: each mode's bound against all groups, stretches against partitions."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from lfopt.app.pipeline import load_network
from lfopt.frontend import from_model
from lfopt.ir import NEVER, Graph, Hardware
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts
from lfopt.planning.bounds.multicut import CutCosts, served, unavoidable
from lfopt.planning.bounds.stretches import Stretches, between
from lfopt.zoo.builder import Net
from search.exact import solve
from tests.brute import Oracle
from tests.cases import few, some
from tests.convolutions import random_convolutions, random_network
from tests.strategies import random_graph, random_hardware, with_weight_buffer


def check(graph: Graph, hardware: Hardware, scheme: str) -> tuple[int, int]:
    """No group beats its stretches' bounds in any mode: (bounds above 0 held, stretches of no group)."""
    flow = Dataflow.of(graph)
    costs = GroupCosts(flow, hardware, scheme=scheme)
    beta, again, never = hardware.buffer_bytes, 0, 0
    pairs = {(i, j): between(flow, i, j) for j in range(len(flow)) for i in bits(flow.ancestors[j])}
    alone = {(i, i): 1 << i for i in range(len(flow))}
    for name, mode in costs.modes.items():
        promised = {pair: mode.extra_bytes(stretch, beta) for pair, stretch in {**pairs, **alone}.items()}
        never += sum(extra >= NEVER for extra in promised.values())
        for group in Oracle(graph).legal_groups():
            once = sum(costs.groups.once_by_class(group))
            if (
                mode.alone
                or not costs.groups.parameters_fit(group)
                or (cost := mode.price(group, beta, once)) is None
            ):
                continue
            for pair in combinations_with_replacement(bits(group), 2):
                if pair in promised:
                    assert promised[pair] <= cost.dram_bytes - once, (
                        f"{name}: {flow.names(group)} with {flow.names(between(flow, *pair))}"
                    )
                    again += promised[pair] > 0
    return again, never


@pytest.mark.parametrize("split", [False, True])
def test_no_group_moves_less_than_the_stretches_in_it_promise(split: bool) -> None:
    again = never = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        graph = random_convolutions(rng, int(rng.integers(3, 7))) if seed % 2 else random_graph(rng, 6)
        hardware = random_hardware(rng, graph)
        if seed % 2:  # large enough for some groups, too small for all their weights
            hardware = Hardware(int(rng.integers(1500, 8000)), element_bytes=int(rng.choice([1, 2])))
        counts = check(graph, with_weight_buffer(rng, graph, hardware) if split else hardware, "auto")
        again, never = again + counts[0], never + counts[1]
    assert again > 0
    assert never > 300


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 250))
def test_no_group_of_many_more_networks_does(first: int) -> None:
    for seed in range(first, first + 250):
        rng = np.random.default_rng(seed)
        graph = random_convolutions(rng, int(rng.integers(3, 9)))
        check(graph, Hardware(int(rng.integers(600, 10_000)), element_bytes=int(rng.choice([1, 2]))), "auto")


def check_partitions(seeds: range) -> int:
    """How often the bound exceeds compulsory bytes; it and the search are held to enumeration."""
    above = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph, hardware = random_network(rng)
        scheme, epilogue = str(rng.choice(["lbdf", "brr", "resident", "auto"])), bool(rng.random() < 0.7)
        costs = GroupCosts(Dataflow.of(graph), hardware, scheme=scheme, epilogue=epilogue)
        least = Oracle(graph).least(
            lambda group, costs=costs: cost.dram_bytes if (cost := costs.price(group)) else None
        )[0]
        what = f"seed {seed}: {hardware}, {scheme}, epilogue {epilogue}"
        assert costs.bounds.compulsory_bytes <= costs.least_bytes <= least, what
        assert solve(costs).dram_bytes == least, what
        above += costs.least_bytes > costs.bounds.compulsory_bytes
    return above


def test_no_partition_moves_less_than_stretches_prove() -> None:
    assert check_partitions(some(range(120))) > few(40)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 16_000, 1000))
def test_no_partition_of_many_more_networks_does(first: int) -> None:
    assert check_partitions(range(first, first + 1000)) > 300


def chain() -> Dataflow:
    """a -> b -> c -> d."""
    net = Net("chain", seed=0, weights=False)
    image = net.image((1, 2, 4, 4))
    x = image
    for name in "abcd":
        x = net.conv(name, x, 2, 3)
    return Dataflow.of(from_model(net.model(image, x, doc="")))


def test_a_path_is_cut_where_that_is_cheapest_and_maps_are_counted_once() -> None:
    """With maps of 5, 3 and 4 bytes between the operators of a chain."""
    flow, nothing = chain(), Stretches(0, {})

    def proven(*stretches: Stretches) -> list[int]:
        nets = [
            CutCosts(
                size // 2,
                size - size // 2,
                flow.readers[m],
                served(flow, stretches, [flow.everything] * 4, flow.readers[m]),
            )
            for m, size in enumerate([0, 5, 3, 4, 0])
        ]
        return unavoidable(flow, stretches, nets)

    assert proven(nothing, nothing, nothing, nothing) == [0, 0, 0, 0]
    assert sum(proven(Stretches(0b1000, {}), nothing, nothing, nothing)) == 3
    assert sum(proven(Stretches(0b1100, {}), Stretches(0b1000, {}), nothing, nothing)) == 3
    assert sum(proven(Stretches(0b1110, {}), Stretches(0b1100, {}), Stretches(0b1000, {}), nothing)) == 12
    # it is cheaper to load weights again
    assert sum(proven(Stretches(0, {3: 2}), nothing, nothing, nothing)) == 2
    assert sum(proven(Stretches(0, {3: 100}), nothing, nothing, nothing)) == 3
    assert sum(proven(Stretches(0b0010, {3: 100}), Stretches(0, {3: 2}), nothing, nothing)) == 5 + 2
    # 0.8 of 3 bytes
    assert sum(proven(Stretches(0, {0: 7}), Stretches(0, {3: 10, 1: 2}), nothing, nothing)) == 7 + 2 + 2


def test_a_map_is_loaded_by_each_of_its_readers_that_cannot_share_a_group() -> None:
    """x -> a, x -> b, x -> c; the bytes of x are written once."""
    net = Net("fan", seed=0, weights=False)
    image = net.image((1, 2, 4, 4))
    x = net.conv("x", image, 2, 3)
    ends = [net.conv(name, x, 2, 3) for name in "abc"]
    flow = Dataflow.of(
        from_model(net.model(image, net.add("sum", net.add("first", ends[0], ends[1]), ends[2]), doc=""))
    )
    a, b, c = (1 << flow.position[name] for name in "abc")
    nothing, x = [Stretches(0, {})] * (len(flow) - 1), flow.results[flow.position["x"]][0]

    def proven(never: int, together: int) -> int:
        compatible = [
            flow.everything
            if not bit & (a | b | c)
            else flow.everything & ~(a | b | c) | (bit | together if bit & together else bit)
            for bit in (1 << i for i in range(len(flow)))
        ]
        stretches = [Stretches(never, {}), *nothing]
        return sum(
            unavoidable(
                flow,
                stretches,
                [
                    CutCosts(10, 7, flow.readers[m], served(flow, stretches, compatible, flow.readers[m]))
                    if m == x
                    else CutCosts(0, 0, flow.readers[m], served(flow, stretches, compatible, flow.readers[m]))
                    for m in range(len(flow.maps))
                ],
            )
        )

    assert proven(0, 0) == 0
    assert proven(a, 0) == 10 + 7
    assert proven(a | b, 0) == 10 + 7 + 7
    assert proven(a | b | c, 0) == 10 + 3 * 7
    assert proven(a | b | c, a | b) == 10 + 2 * 7
    assert proven(a | b | c, a | b | c) == 10 + 7


@pytest.mark.parametrize(("model", "kib"), [("zoo:resnet18", 256), ("zoo:squeezenet1_1", 128)])
def test_on_real_networks_the_bound_before_a_search_is_above_that_of_pairs_and_below_the_optimum(
    model: str, kib: int
) -> None:
    graph = load_network(model, {}, "default", weights=False)
    costs = GroupCosts.of(graph, Hardware(kib * 1024, element_bytes=2), scheme="auto")
    solution, bounds = solve(costs), costs.bounds
    pairs = costs.least_bytes - sum(bounds.apart) + sum(bounds.forced)
    assert pairs < costs.least_bytes <= solution.lower_bound_bytes <= solution.dram_bytes
    assert solution.dram_bytes - costs.least_bytes < 0.7 * (solution.dram_bytes - pairs)
