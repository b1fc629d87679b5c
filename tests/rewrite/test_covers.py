"""Covers written as networks with copies: what they compute, and what they are without the copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from lfopt.ir import Graph
from lfopt.ops import Dataflow, bits
from lfopt.ops.reference import reference
from lfopt.rewrite.covers import CoverGroup, without_copies, write_cover
from simulator.recount.copies import not_copies
from simulator.recount.copies import without_copies as recounted_without_copies
from tests.cases import some
from tests.covers import random_cover
from tests.random_plans import computable, random_inputs
from tests.strategies import random_gate, random_graph


def operators(graph: Graph) -> Sequence[object]:
    return sorted((op.name, op.kind, op.inputs, op.outputs) for op in graph.operators)


def test_a_cover_computes_what_the_network_does_and_is_the_network_without_its_copies() -> None:
    copied = 0
    for seed in some(range(800)):
        rng = np.random.default_rng(seed)
        draw = random_gate(rng) if seed % 4 == 0 else random_graph(rng, int(rng.integers(3, 12)))
        graph = computable(draw)
        flow = Dataflow.of(graph)
        written = write_cover(flow, random_cover(flow, rng))
        copied += bool(written.copies)
        assert not [*not_copies(written.graph, written.copies)], seed
        for without in (without_copies, recounted_without_copies):
            assert operators(without(written.graph, written.copies)) == operators(graph), seed
        own = {name for names in written.groups for name in names}
        assert own == {op.name for op in Dataflow.of(written.graph).operators}, seed
        inputs = random_inputs(graph, rng)
        with threadpool_limits(1):
            wanted, got = reference(graph, inputs), reference(written.graph, inputs)
        assert all(np.array_equal(got[name], value, equal_nan=True) for name, value in wanted.items()), seed
    assert copied > 20


def test_a_partition_is_a_cover_without_copies() -> None:
    graph = random_graph(np.random.default_rng(3), 8)
    flow = Dataflow.of(graph)
    alone = [
        CoverGroup(1 << i, sum(1 << m for m in flow.results[i] if flow.is_output[m] or flow.readers[m]))
        for i in bits(flow.everything)
    ]
    written = write_cover(flow, alone)
    assert not written.copies
    assert operators(written.graph) == operators(graph)
