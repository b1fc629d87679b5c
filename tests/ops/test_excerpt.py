"""A group as a network of its own computes and costs what it does in its network."""

from __future__ import annotations

import numpy as np

from lfopt.app.random_values import random_inputs
from lfopt.ir import Graph, Hardware
from lfopt.ops import OPAQUE, Dataflow, bits
from lfopt.ops.excerpt import excerpt
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts
from search.dnnfusion import grow_blocks
from tests.strategies import random_graph

CHIP = Hardware(1 << 40)


def groups_of(graph: Graph) -> tuple[GroupCosts, tuple[int, ...]]:
    costs = GroupCosts(Dataflow.of(graph), CHIP, scheme="auto")
    return costs, grow_blocks(costs).groups


def test_a_group_alone_computes_what_it_computes_in_its_network() -> None:
    compared = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(2, 10)))
        flow = Dataflow.of(graph)
        if any(spec is OPAQUE for spec in flow.specs):
            continue  # nobody can compute it
        given = random_inputs(graph, rng)
        values = given | reference(graph, given, everything=True)
        for group in groups_of(graph)[1]:
            alone = excerpt(flow, group)
            assert {operator.name for operator in Dataflow.of(alone).operators} == set(flow.names(group)), (
                seed
            )
            outputs = reference(alone, {name: values[name] for name in alone.inputs})
            sinks = {
                flow.maps[m].name
                for i in bits(flow.sinks(group))
                for m in flow.results[i]
                if flow.is_output[m] or flow.readers[m] & ~group
            }
            assert set(alone.outputs) == sinks, seed
            for name in alone.outputs:
                np.testing.assert_array_equal(outputs[name], values[name])
                compared += 1
    assert compared > 200


def test_a_group_alone_costs_what_it_costs_in_its_network() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        costs, groups = groups_of(random_graph(rng, int(rng.integers(2, 10))))
        for group in groups:
            flow = Dataflow.of(excerpt(costs.dataflow, group))
            alone = GroupCosts(flow, CHIP, scheme="auto").price(flow.everything)
            assert alone == costs.price(group), seed
