"""A plan has nothing in vain: with a ring one row shorter or a step altered, execution notices.

What gives an altered plan away, in this order:

    violation   something is read that is not on chip, or written where there is no room
    outputs     what the group stores is something else, or is not all there
    bytes       the bytes counted are not those of the plan
    gap         a part of a map is never loaded or never computed, though nobody reads it
    twice       something is computed that is on chip already

Execution raises the first; outputs and bytes are compared by whoever asks (`lfopt execute` does). The last
two change neither a result nor a byte: a row that is computed only because rows are made in order, or a step
that repeats the one before it. `Watchful` finds those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from lfopt.ir import Compute, Scheme, unfold
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from search.exact import solve
from tests.cases import few, some
from tests.planning.alterations import (
    CAUGHT_BY,
    Stage,
    altered_steps,
    check_alterations,
    rings_with_a_row_less,
    stages,
    verdict,
    with_place,
)
from tests.random_plans import (
    ACCELERATOR,
    SCHEMES,
    computable,
    planned,
    random_inputs,
    random_scheme,
    real_network,
)
from tests.strategies import random_bands, random_graph, random_hardware, random_reduction

REAL = [
    ("zoo:efficientnet_b0", "lbdf"),
    ("zoo:mobilenet_v3_large", "lbdf"),
    ("zoo:resnet18", "lbdf"),
    ("zoo:mobilenet_v3_large", "auto"),
    pytest.param("zoo:efficientnet_b0", "auto", marks=pytest.mark.slow),
    pytest.param("zoo:resnet18", "auto", marks=pytest.mark.slow),
]


def random_stages(seed: int, scheme: Scheme, most: int) -> Iterator[tuple[Dataflow, Stage]]:
    """Groups of a random plan of at most `most` operators, half of them on a chip with room for all."""
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
                if any(
                    isinstance(step, Compute) and step.accumulator >= 0 for step in unfold(stage.group.steps)
                ):
                    yield stage


def real_stages(model: str, scheme: Scheme) -> Iterator[tuple[Dataflow, Stage]]:
    """The groups of the best plan of a real network on 64 x 64 pixels."""
    graph = real_network(model, {"image": (1, 3, 64, 64)})
    costs = GroupCosts.of(graph, ACCELERATOR, scheme=scheme)
    inputs = random_inputs(graph, np.random.default_rng(2))
    for stage in stages(planned(costs, solve(costs).groups), graph, inputs):
        yield costs.dataflow, stage


# -- rings ---------------------------------------------------------------------------------------------------


def rings_of_random_plans(seeds: range, scheme: Scheme) -> Counter[tuple[str, str]]:
    """(what gave it away, why it may not have mattered) of every ring that lost a slot.

    In mode lbdf, unread rows are no reason.
    """
    tally: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        for flow, stage in random_stages(seed, scheme, 9):
            for name, seen, why in rings_with_a_row_less(flow, stage):
                excused = why in ("padding", "never computed") or (
                    why == "unread" and stage.group.mode != "lbdf"
                )
                assert seen == "violation" or (seen == "" and excused), (
                    f"seed {seed}, {scheme}: {stage.group.mode} {name}: {seen or 'nothing'} {why}"
                )
                tally[seen, why] += 1
    return tally


@pytest.mark.parametrize("first", [0, 100])
def test_a_ring_of_a_line_buffered_group_with_one_row_less_always_fails(first: int) -> None:
    """Exceptions: windows in padding and readers that stop early, whose row rules exceed the reads."""
    tally = rings_of_random_plans(some(range(first, first + 100)), "lbdf")
    assert tally["violation", ""] > few(200)
    assert sum(count for (seen, _), count in tally.items() if not seen) < 0.03 * tally.total()


def test_a_ring_of_a_group_in_bands_with_one_row_less_always_fails() -> None:
    """What a step makes must find room all at once, also rows that nobody reads."""
    tally: Counter[tuple[str, str]] = Counter()
    for flow, stage in banded_stages(some(range(6000, 6200))):
        for name, seen, why in rings_with_a_row_less(flow, stage):
            assert seen == "violation" or (seen == "" and why in ("padding", "never computed")), (
                f"{stage.group.nodes}: {name}: {seen} {why}"
            )
            tally[seen, why] += 1
    assert tally["violation", ""] > few(200)
    assert sum(count for (seen, _), count in tally.items() if not seen) < 0.03 * tally.total()


@pytest.mark.parametrize("scheme", ["brr", "resident", "auto"])
def test_a_map_of_any_group_with_one_row_less_fails_unless_nobody_reads_the_row(scheme: Scheme) -> None:
    tally = rings_of_random_plans(some(range(1000, 1060)), scheme)
    assert tally["violation", ""] > few(120)
    assert sum(count for (seen, _), count in tally.items() if not seen) < 0.05 * tally.total()


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
            assert seen == "violation" or (seen == "" and spare), (
                f"{stage.group.mode} {stage.group.nodes}: {name}: {why}"
            )
            rings += seen == "violation"
    assert rings > 50


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_place_with_one_byte_less_in_its_slots_fails(scheme: Scheme) -> None:
    """Something fills a slot of every place, in every mode, weight blocks included."""
    places = 0
    for seed in some(range(60)):
        for _, stage in random_stages(seed, scheme, 9):
            for index, place in enumerate(stage.group.places):
                assert (
                    verdict(stage, with_place(stage.group, index, slot_bytes=place.slot_bytes - 1))
                    == "violation"
                ), f"seed {seed}: {place}"
                places += 1
    assert places > few(300)


def test_every_place_of_a_folded_reduction_with_one_row_or_one_byte_less_fails() -> None:
    places: Counter[str] = Counter()
    for stage in folded_stages(some(range(80))):
        for index, place in enumerate(stage.group.places):
            for less in ({"slots": place.slots - 1}, {"slot_bytes": place.slot_bytes - 1}):
                assert verdict(stage, with_place(stage.group, index, **less)) == "violation", (
                    f"{stage.group.nodes}: {place}: {less}"
                )
            places[place.purpose] += 1
    assert places["sum"] > few(50)


def test_a_second_slot_for_weights_is_for_overlap_alone() -> None:
    """One slot of passing weight blocks is enough to compute; a second lets loads overlap."""
    passing = 0
    for seed in range(60):
        for _, stage in random_stages(seed, "resident", 9):
            for index, place in enumerate(stage.group.places):
                if place.purpose == "weight" and place.slots > 1:
                    assert verdict(stage, with_place(stage.group, index, slots=1)) == ""
                    assert verdict(stage, with_place(stage.group, index, slots=0)) == "violation"
                    passing += 1
    assert passing > 30


# -- steps ---------------------------------------------------------------------------------------------------


def alter_random_plans(seeds: range, scheme: Scheme) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        rng = np.random.default_rng((seed, 7))
        for _, stage in random_stages(seed, scheme, 6):
            check_alterations(altered_steps(stage, rng, 5), counts)
    return counts


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_step_can_be_dropped_repeated_or_shortened_unnoticed(scheme: Scheme) -> None:
    counts = alter_random_plans(some(range(50)), scheme)
    assert counts.keys() == CAUGHT_BY.keys()
    assert counts.total() > few(900)


def test_no_step_of_a_group_in_bands_can_be_altered_unnoticed() -> None:
    rng, counts = np.random.default_rng(9), Counter[tuple[str, str]]()
    for _, stage in banded_stages(some(range(7000, 7100))):
        check_alterations(altered_steps(stage, rng, 5), counts)
    assert counts.total() > few(500)


def test_no_step_of_a_folded_reduction_can_be_altered_unnoticed() -> None:
    rng, counts = np.random.default_rng(5), Counter[tuple[str, str]]()
    for stage in folded_stages(some(range(1000, 1160))):
        check_alterations(altered_steps(stage, rng, 12), counts)
    assert counts["drop", "compute"] > few(300)
    assert counts["shorten", "load"] > few(300)
    assert counts.total() > few(2000)


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
