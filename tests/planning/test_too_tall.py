"""Maps of too many rows to pass row by row: their operators are tiled, and plans of them hold and run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from lfopt.ir import Graph
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, link, memory_map, totals_of
from simulator.interpreter.execute import Machine
from simulator.recount import recount
from tests.agreement import differing
from tests.random_plans import computable, planned, random_inputs, random_scheme
from tests.strategies import (
    random_block,
    random_contraction,
    random_graph,
    random_hardware,
    random_reduction,
    random_windows,
)


def networks(rng: np.random.Generator, seed: int) -> Graph:
    """A network of one of several kinds."""
    kinds = (random_contraction, random_windows, random_reduction, random_block)
    return kinds[seed % 5](rng) if seed % 5 < len(kinds) else computable(random_graph(rng, 5))


def plans_of_tall_maps(count: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Check plans of networks in which maps of more than a few rows are too tall: groups by mode."""
    seen: Counter[str] = Counter()
    for seed in range(count):
        rng = np.random.default_rng(seed)
        monkeypatch.setattr("lfopt.ir.tensor.MOST_ROWS", int(rng.integers(1, 6)))
        graph = networks(rng, seed)
        hardware = random_hardware(rng, graph)
        costs = GroupCosts.of(graph, hardware, scheme=("lbdf", "auto", "all")[seed % 3])
        groups = random_scheme(costs, seed)
        if costs.scheme == "all":
            groups = link(costs, groups)
        plan = planned(costs, groups)
        totals = totals_of(costs.unfused(), plan.groups, costs.bounds.compulsory_bytes)
        plan = replace(plan, memory=memory_map(costs, plan.groups), totals=totals)
        recounted = recount(graph, plan)
        assert recounted.agrees, f"seed {seed}: {recounted.discrepancies}"
        tall = {*costs.dataflow.names(costs.dataflow.too_tall)}
        for group in plan.groups:
            seen[group.mode] += 1
            assert group.mode in ("tiled", "access", "opaque") or not tall & {*group.nodes}, f"seed {seed}"
        seen["too tall"] += len(tall)
        if all(group.steps for group in plan.groups):
            inputs = random_inputs(graph, rng)
            machine = Machine(graph, hardware, inputs)
            assert all(machine.run(group).dram == group.dram for group in plan.groups), f"seed {seed}"
            assert not differing(machine.outputs(), reference(graph, inputs)), f"seed {seed}"
            seen["run"] += 1
    return seen


def test_maps_of_too_many_rows_are_tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = plans_of_tall_maps(30, monkeypatch)
    assert seen["run"] > 15
    assert seen["too tall"] > 20


@pytest.mark.slow
def test_maps_of_too_many_rows_are_tiled_in_many_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = plans_of_tall_maps(400, monkeypatch)
    assert seen["run"] > 200
