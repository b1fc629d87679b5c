"""The best scheme of intervals is legal and no better than the optimum; on a chain it is the optimum."""

from __future__ import annotations

import numpy as np

from lfopt.frontend import from_model
from lfopt.fusion import legal
from lfopt.ir import FusionScheme, Hardware
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from lfopt.zoo.builder import Net
from search.exact import solve
from search.intervals import best_intervals
from tests.convolutions import random_network


def test_the_best_intervals_are_a_legal_scheme_and_no_better_than_the_optimum() -> None:
    for seed in range(60):
        graph, hardware = random_network(np.random.default_rng(seed))
        costs = GroupCosts(Dataflow.of(graph), hardware, scheme="auto")
        groups = best_intervals(costs, lambda: False)
        assert legal(graph, FusionScheme(tuple(costs.dataflow.names(group) for group in groups))).legal, (
            f"seed {seed}"
        )
        assert costs.dram_bytes(groups) >= solve(costs).dram_bytes, f"seed {seed}"


def test_on_a_chain_they_are_the_optimum() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        net = Net("chain", seed=0, weights=False)
        image = x = net.image((1, 4, 12, 12))
        for k in range(8):
            x = net.conv(f"conv{k}", x, int(rng.integers(2, 9)), int(rng.choice([1, 3])))
        costs = GroupCosts(
            Dataflow.of(from_model(net.model(image, x, doc=""))),
            Hardware(int(rng.integers(400, 2500))),
            scheme="auto",
        )
        groups = best_intervals(costs, lambda: False)
        assert costs.dram_bytes(groups) == solve(costs).dram_bytes, f"seed {seed}"


def test_what_is_not_reached_in_time_is_alone() -> None:
    graph, hardware = random_network(np.random.default_rng(0))
    flow = Dataflow.of(graph)
    assert best_intervals(GroupCosts(flow, hardware), lambda: True) == tuple(1 << i for i in range(len(flow)))
