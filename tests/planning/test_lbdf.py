"""Planned ring sizes are those of the schedule run row by row, and the exact search's bounds are bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lfopt.ir import Cost, DoesNotFit, Graph, Hardware
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts, Traffic
from simulator.recount import RecountNetwork
from tests.brute import Oracle
from tests.cases import few, some
from tests.line_buffers import count, rings
from tests.strategies import random_graph, random_hardware


def each_graph(seeds: range, least: int, most: int) -> Iterator[tuple[int, np.random.Generator, Graph]]:
    """Seeded random graphs, each with the generator that made it."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        yield seed, rng, random_graph(rng, int(rng.integers(least, most + 1)))


def ring_names(flow: Dataflow, ring_rows: dict[int, int]) -> dict[str, int]:
    """Rings by the name of the map."""
    return {flow.maps[m].name: rows for m, rows in ring_rows.items()}


def compare_rings(seeds: range, least: int, most: int) -> int:
    """Compare every connected convex group of these graphs; returns how many groups were compared."""
    compared = 0
    for seed, _, graph in each_graph(seeds, least, most):
        flow = Dataflow.of(graph)
        net, costs = RecountNetwork(graph), GroupCosts(flow, Hardware(1 << 20))
        for mask in Oracle(graph).legal_groups():
            ours, wanted = (
                ring_names(flow, costs.groups.line_buffers.ring_rows(mask)),
                rings(net, flow.names(mask)),
            )
            assert ours == wanted, f"seed {seed}, group {flow.names(mask)}"
            compared += 1
    return compared


def test_ring_sizes_are_those_of_the_schedule_run_row_by_row() -> None:
    assert compare_rings(some(range(600)), 2, 7) > few(8_000)


@pytest.mark.slow
def test_ring_sizes_are_those_of_the_schedule_run_row_by_row_on_more_graphs() -> None:
    assert compare_rings(range(600, 1500), 2, 7) > 12_000


@pytest.mark.slow
def test_ring_sizes_are_those_of_the_schedule_run_row_by_row_on_larger_graphs() -> None:
    assert compare_rings(range(100_000, 103_000), 7, 11) > 100_000


def grown(costs: GroupCosts, mask: int) -> tuple[Any, int]:
    """(floor, dram) of a group grown operator by operator, in topological order."""
    done, floor, dram = 0, None, 0
    for op in bits(mask):
        floor, dram = costs.grow(done, floor, dram, op)
        done |= 1 << op
    return floor, dram


def compare_bounds(seeds: range, least: int, most: int) -> int:
    """Check the bounds that the exact search grows groups by; the number of (part, group) pairs."""
    pairs = 0
    for seed, rng, graph in each_graph(seeds, least, most):
        flow, net, hardware = Dataflow.of(graph), RecountNetwork(graph), random_hardware(rng, graph)
        costs = GroupCosts(flow, hardware, Traffic.ONCE, epilogue=bool(rng.random() < 0.5))
        legal = {mask: count(net, flow.names(mask), hardware) for mask in Oracle(graph).legal_groups()}
        for mask, counted in legal.items():
            what = f"seed {seed}, {hardware}, group {flow.names(mask)}"
            assert costs.groups.line_need(mask) == counted.buffer_bytes, what
            assert costs.dram(mask) == counted.dram, what
            assert grown(costs, mask)[1] == counted.dram.total, what
            verdict = costs.evaluate(mask)
            fits = counted.buffer_bytes < hardware.buffer_bytes
            tiled = mask & (mask - 1) == 0 or (costs.epilogue and costs.groups.is_epilogue_group(mask))
            assert isinstance(verdict, Cost if fits or tiled else DoesNotFit), what
            members = list(bits(mask))
            for size in range(1, len(members)) if isinstance(verdict, Cost) else ():
                part = sum(1 << op for op in members[:size])
                assert costs.may_grow(part, grown(costs, part)[0]), (
                    f"{what} cannot be reached by growing {flow.names(part)}"
                )
        for part in range(1, 1 << len(flow)):
            (floor,), _ = grown(costs, part)
            for mask, counted in legal.items():
                if part & ~mask == 0:
                    pairs += 1
                    assert floor <= counted.buffer_bytes, (
                        f"seed {seed}, {hardware}, part {flow.names(part)} of {flow.names(mask)}"
                    )
    return pairs


def test_bytes_are_those_of_a_recount_and_the_floor_bounds_every_group_that_contains_it() -> None:
    assert compare_bounds(some(range(1_000_000, 1_000_500)), 2, 7) > few(50_000)


@pytest.mark.slow
def test_bytes_are_those_of_a_recount_and_the_floor_bounds_every_larger_group() -> None:
    assert compare_bounds(range(2_000_000, 2_001_000), 6, 9) > 500_000
