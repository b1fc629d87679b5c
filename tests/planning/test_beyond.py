"""Scheme all: operators in flight, running reductions, copies of what stands before a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import find_plan, load_network, write_outcome
from lfopt.app.verify import verified, verify
from lfopt.ir import Compute, Copy, Graph, Hardware, InvalidConfig, Operator, Plan, computations
from lfopt.ops import Dataflow, bits
from lfopt.ops.excerpt import excerpt
from lfopt.ops.flight import in_flight
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, Limit, link, totals_of
from search.exact import solve
from search.options import SearchOptions
from search.result import Result
from simulator.interpreter.execute import execute
from simulator.model.simulate import simulate
from simulator.recount import recount
from tests.agreement import differing, disagreements
from tests.cases import some
from tests.covers import with_copies_before_means, with_random_copies
from tests.random_plans import computable, in_integers, planned, random_inputs, random_scheme
from tests.strategies import random_graph, random_hardware

SMALL = {"image": (1, 3, 64, 64)}
COPYING = 32  # KiB of buffer on which the plan of the first blocks has copies
FIRST = 60  # operators of them


@pytest.fixture(scope="module")
def gated() -> Graph:
    """EfficientNet-B0 on 64 x 64 pixels: 16 squeeze-and-excite blocks."""
    return load_network("zoo:efficientnet_b0", SMALL, "default")


@pytest.fixture(scope="module")
def blocks(gated: Graph) -> Graph:
    """Its first blocks: covers of them are proven in seconds, those of the whole network in a minute."""
    return excerpt(Dataflow.of(gated), (1 << FIRST) - 1)


def kinds(flow: Dataflow) -> set[tuple[str, ...]]:
    return {tuple(part.operator.kind for part in call.parts) for call in flow.calls}


# -- in flight -----------------------------------------------------------------------------------------------


def test_activations_and_additions_follow_what_makes_their_operand(gated: Graph) -> None:
    flow = in_flight(Dataflow.of(gated))
    assert {("Conv", "Sigmoid", "Mul"), ("Conv", "Add"), ("Conv", "Sigmoid")} <= kinds(flow)
    assert sorted(name for i in range(len(flow)) for name in flow.names(1 << i)) == sorted(
        op.name for op in Dataflow.of(gated).operators
    )


def test_a_gate_follows_only_where_nothing_else_reads_what_it_gates(gated: Graph) -> None:
    copied, copies = with_copies_before_means(gated)
    assert len(copies) > 16
    gate = ("Conv", "Sigmoid", "Mul", "Mul")
    assert gate in kinds(in_flight(Dataflow.of(copied)))
    assert gate not in kinds(in_flight(Dataflow.of(gated)))  # the mean reads it too


def test_nothing_is_in_flight_from_one_group_to_another(gated: Graph) -> None:
    names = [op.name for op in Dataflow.of(gated).operators]
    assert all(
        not call.then
        for call in in_flight(Dataflow.of(gated), {name: k for k, name in enumerate(names)}).calls
    )


def test_a_mean_that_runs_takes_one_row_of_its_operand(gated: Graph) -> None:
    flow = in_flight(Dataflow.of(gated))
    costs = GroupCosts(flow, Hardware(1 << 20))
    pool = next(bits(flow.running))
    (read,) = flow.operands[pool]
    assert costs.groups.line_buffers.ring_rows(1 << pool) == {read.map: 1, flow.results[pool][0]: 1}
    plain = GroupCosts(Dataflow.of(gated), Hardware(1 << 20))
    assert costs.groups.line_need(1 << pool) < plain.groups.line_need(
        1 << plain.dataflow.position[flow.operators[pool].name]
    )


# -- copies --------------------------------------------------------------------------------------------------


def test_the_bound_without_recomputation_asks_for_a_mean_of_all_channels_that_gates_its_own_map() -> None:
    """What exceeds the buffer of a gated map goes out and back; gates per channel cost nothing."""
    chip = Hardware(256 * 1024, element_bytes=2)
    graph = load_network("zoo:efficientnet_b3", {}, "default", weights=False)
    bounds = GroupCosts.of(graph, chip).unfused().bounds
    means = [op for op in graph.operators if op.name.endswith(".se.mean")]
    maps = [graph.tensors[mean.inputs[0]].elements * 2 for mean in means]
    assert len(maps) == 26
    assert round(bounds.without_recompute_bytes, -4) == 46_040_000
    over = sum(2 * max(size - chip.buffer_bytes + 1, 0) for size in maps)
    assert bounds.without_recompute_bytes - bounds.compulsory_bytes == over > 0
    assert max(maps) > chip.buffer_bytes > min(maps)
    apart = replace(graph, operators=tuple(_gating_itself(op) for op in graph.operators))
    alone = GroupCosts.of(apart, chip).unfused().bounds
    assert alone.without_recompute_bytes == alone.compulsory_bytes


def _gating_itself(op: Operator) -> Operator:
    """Each channel gated by its own mean, not by those of all channels."""
    own = op.name.endswith(".se.expand")
    return (
        replace(op, kind="Relu", inputs=(op.name.replace(".expand", ".mean"),), attributes={}) if own else op
    )


def planned_network(
    graph: Graph, kib: float, recompute: float, folder: Path | None = None
) -> tuple[Plan, Graph]:
    config = Config(
        "zoo:efficientnet_b0",
        Hardware(int(kib * 1024), element_bytes=4),
        "all",
        max_recompute=recompute,
        search=SearchConfig(time_limit=300, objective="bytes"),
    )
    outcome = find_plan(config, graph=graph)
    return (write_outcome(outcome, folder).plan if folder else outcome.draft.finished()), outcome.graph


@pytest.fixture(scope="module")
def copied(blocks: Graph, tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Graph, Path]:
    """A plan with copies, its network, and the folder that it is in."""
    folder = tmp_path_factory.mktemp("copied")
    return *planned_network(blocks, COPYING, 2.0, folder), folder


@pytest.mark.slow
def test_copies_never_cost_bytes_and_stay_within_the_multiply_accumulates_allowed(gated: Graph) -> None:
    macs = sum(Dataflow.of(gated).macs)
    plans: list[Plan] = []
    for recompute in (1.0, 1.2, 2.0):
        plan, graph = planned_network(gated, 64, recompute)
        assert verified(plan, graph).holds
        assert sum(Dataflow.of(graph).macs) <= recompute * macs
        assert recompute > 1 or not plan.copies
        plans.append(plan)
    moved = [plan.totals.dram_bytes for plan in plans]
    assert moved == sorted(moved, reverse=True)
    assert moved[2] < moved[0]
    bound = plans[2].totals.without_recompute_bytes
    assert bound is not None
    assert plans[2].totals.compulsory_bytes <= bound <= moved[0]


# interrupted without a plan, after covers, and where there are none
@pytest.mark.parametrize(("recompute", "call"), [(2.0, 0), (2.0, 1), (1.0001, 1)])
def test_ctrl_c_between_two_searches_leaves_the_best_plan_so_far(
    blocks: Graph, monkeypatch: pytest.MonkeyPatch, recompute: float, call: int
) -> None:
    asked, moved = count(), list[int]()

    def broken_off(costs: GroupCosts, options: SearchOptions) -> Result:
        if next(asked) == call:
            raise KeyboardInterrupt
        result = solve(costs, replace(options, passes=1))
        moved.append(result.dram_bytes)
        return result

    monkeypatch.setattr("lfopt.app.recompute.solve", broken_off)
    job = Config(
        "zoo:efficientnet_b0",
        Hardware(160 << 10, element_bytes=4),
        "all",
        max_recompute=recompute,
        search=SearchConfig(compare=("local",)),
    )
    outcome = find_plan(job, graph=blocks)
    assert next(asked) == call + 1, "nothing is searched again"
    assert outcome.interrupted
    assert [ran.result.interrupted for ran in outcome.runs] == [True]
    assert outcome.plan.totals.dram_bytes <= min(moved, default=outcome.plan.totals.dram_bytes)
    assert len(outcome.plan.groups) < len(outcome.costs.dataflow) or call == 0
    assert verified(outcome.draft.finished(Limit(lambda: True)), outcome.graph).holds


def test_a_plan_with_copies_moves_what_it_says_and_computes_the_same(
    blocks: Graph, copied: tuple[Plan, Graph, Path]
) -> None:
    plan, graph, folder = copied
    assert plan.copies
    assert verify(folder).holds
    inputs = random_inputs(graph, np.random.default_rng(1))
    with threadpool_limits(1):
        done, wanted = execute(plan, graph, inputs), reference(blocks, inputs)
    assert done.dram.total == plan.totals.dram_bytes
    assert not differing(done.outputs, wanted)
    assert not simulate(plan, graph).disagreements
    assert {bool(step.then) for group in plan.groups for step in computations(group.steps)} == {False, True}
    assert any(step.accumulator >= 0 for group in plan.groups for step in computations(group.steps))
    baselines = GroupCosts.of(blocks, plan.hardware)  # of the network, not of what is computed again
    totals = totals_of(baselines, plan.groups, 0, Dataflow.of(graph))
    assert plan.totals.layer_by_layer_bytes == totals.layer_by_layer_bytes
    assert plan.totals.macs == totals.macs


@pytest.mark.parametrize("wrong", ["of a copy", "another", "twice", "left out", "scheme", "too many"])
def test_copies_that_are_none_are_noticed(copied: tuple[Plan, Graph, Path], wrong: str) -> None:
    plan, graph, _ = copied
    first, *rest = plan.copies
    second = next(copy for copy in rest if copy.of != first.of)
    rest.remove(second)
    changed = {
        "of a copy": replace(plan, copies=(first, Copy(second.name, first.name), *rest)),
        "another": replace(plan, copies=(Copy(first.name, second.of), second, *rest)),
        "twice": replace(plan, copies=(first, first, second, *rest)),
        "left out": replace(plan, copies=(second, *rest)),
        "scheme": replace(plan, scheme="auto"),
        "too many": replace(plan, max_recompute=1.01),
    }[wrong]
    assert not verified(changed, graph).holds


@pytest.mark.parametrize("value", [0.99, -1.0, float("nan"), 1e9])
def test_a_cap_that_makes_no_sense_is_refused(value: float) -> None:
    with pytest.raises(InvalidConfig, match="max_recompute"):
        Config(
            "zoo:efficientnet_b0",
            Hardware(1 << 18),
            max_recompute=value,
            scheme="lbdf",
            search=SearchConfig(objective="bytes"),
        )


# -- one truth -----------------------------------------------------------------------------------------------


# bound of real values that become integers: the ratio of two scales stays one that int32 holds
LARGEST = 1e15


def run(seed: int, *, integers: bool) -> tuple[list[str], int, int]:
    """(disagreements, copies, steps with others in flight) of a random network, copies and scheme."""
    rng = np.random.default_rng(seed)
    original = computable(random_graph(rng, int(rng.integers(4, 12))))
    inputs = random_inputs(original, rng)
    if integers and all(
        np.abs(value).max(initial=0) < LARGEST
        for value in reference(original, inputs, everything=True).values()
    ):
        original, inputs = in_integers(original, inputs, rng)
    hardware = random_hardware(rng, original)
    graph, copies = with_random_copies(original, rng) if rng.random() < 0.5 else (original, ())
    costs = GroupCosts.of(graph, hardware, scheme="all", epilogue=bool(rng.random() < 0.7))
    groups = random_scheme(costs, seed) if rng.random() < 0.5 else solve(costs).groups
    groups = link(costs, groups) if seed % 3 else groups
    plan = planned(costs, groups)
    outputs = reference(original, inputs)
    # sums that overflow depend on their order
    wanted = {name: value for name, value in outputs.items() if np.isfinite(value).all()}
    wrong = disagreements(costs, groups, plan, execute(plan, graph, inputs), wanted)
    bound = GroupCosts.of(original, hardware, scheme="all", epilogue=costs.epilogue).bounds.recomputing_bytes
    plan = replace(
        plan,
        copies=copies,
        max_recompute=100.0 * costs.max_recompute if copies else costs.max_recompute,
        totals=totals_of(costs.unfused(copies), plan.groups, bound, costs.dataflow),
    )
    wrong += recount(graph, plan).discrepancies
    flying = sum(
        isinstance(step, Compute) and bool(step.then)
        for group in plan.groups
        for step in computations(group.steps)
    )
    return [f"seed {seed}: {line}" for line in wrong], len(copies), flying


def run_many(seeds: Sequence[int], *, integers: bool = False) -> None:
    with threadpool_limits(1):
        outcomes = [run(seed, integers=integers) for seed in seeds]
    assert not [line for wrong, _, _ in outcomes for line in wrong]
    assert sum(copies > 0 for _, copies, _ in outcomes) > len(seeds) / 20
    assert sum(flying > 0 for _, _, flying in outcomes) > len(seeds) / 5


@pytest.mark.parametrize("integers", [False, True])
def test_with_copies_and_operators_in_flight_there_is_one_truth(*, integers: bool) -> None:
    # the last three had faults once: tables behind a Split, a narrow strip, a mean that nobody reads
    run_many([*some(range(75)), 2701, 4722, 6339], integers=integers)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("first", range(1000, 6000, 500))
def test_the_same_for_ten_thousand_plans(first: int, *, integers: bool) -> None:
    run_many(range(first, first + 500), integers=integers)
