"""A job with a time limit has a plan with steps from the start, and what it does is bounded by counts."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from onnx import TensorProto, helper

from lfopt.app.config import Config, SearchConfig
from lfopt.app.deadline import Deadline
from lfopt.app.first_plan import FirstPlan, joined_in_order
from lfopt.app.pipeline import find_plan, load_network, steps_of
from lfopt.app.recompute import costs_of
from lfopt.frontend import from_model
from lfopt.fusion import legal
from lfopt.ir import FusionScheme, Graph, Hardware, line_count, step_count
from lfopt.planning import SCHEMES, GroupCosts, Limit, epilogue_groups, executable, outline, with_steps
from lfopt.planning.groups.epilogue import epilogue_candidates, followed
from lfopt.planning.tiling.tiling_region import MOST_FRAMES
from search import exact
from search.exact import solve
from search.local import improve
from search.options import SearchOptions
from simulator.recount import recount
from tests.cases import some
from tests.random_plans import random_scheme
from tests.strategies import random_graph, random_hardware

CHIP = Hardware(8192)


def small() -> Graph:
    return load_network("zoo:fsrcnn", {"image": (1, 1, 20, 24)}, "default", weights=False)


@pytest.mark.parametrize("scheme", ["lbdf", "auto", "all"])
def test_the_first_plan_is_no_worse_than_unfused_and_than_fused_epilogues(scheme: str) -> None:
    graph = small()
    costs = costs_of(Config("fsrcnn", CHIP, scheme, search=SearchConfig(objective="bytes")), graph)
    first = FirstPlan.of(graph, costs, 60.0)
    unfused = tuple(1 << i for i in range(len(costs.dataflow)))
    assert first.dram_bytes == costs.dram_bytes(first.groups)
    assert first.dram_bytes <= min(costs.dram_bytes(unfused), costs.dram_bytes(epilogue_groups(costs)))


@pytest.mark.parametrize("seed", some(range(60)))
def test_groups_put_together_in_order_are_a_legal_scheme_that_moves_no_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(3, 14)))
    costs = GroupCosts.of(graph, random_hardware(rng, graph), scheme=[*SCHEMES][seed % len(SCHEMES)])
    groups = random_scheme(costs, seed) if seed % 3 else tuple(1 << i for i in range(len(costs.dataflow)))
    joined = joined_in_order(costs, groups)
    scheme = FusionScheme(tuple(costs.dataflow.names(group) for group in joined))
    assert legal(graph, scheme).legal
    assert executable(costs.dataflow, joined) == joined
    assert costs.dram_bytes(joined) <= costs.dram_bytes(groups)
    assert joined_in_order(costs, groups, lambda: True) == groups


def residual_chain(length: int) -> Graph:
    """1 x 1 convolutions, each added to what it reads."""
    weights = [
        helper.make_tensor(f"w{k}", TensorProto.FLOAT, (8, 8, 1, 1), [0.0] * 64) for k in range(length)
    ]
    nodes = [
        node
        for k in range(length)
        for node in (
            helper.make_node("Conv", [f"x{k}", f"w{k}"], [f"y{k}"], f"conv{k}"),
            helper.make_node("Add", [f"y{k}", f"x{k}"], [f"x{k + 1}"], f"add{k}"),
        )
    ]
    first, last = (
        helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, (1, 8, 20, 20)) for k in (0, length)
    )
    graph = helper.make_graph(nodes, "chain", [first], [last], weights)
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_a_long_chain_has_few_groups_before_anything_is_searched() -> None:
    """As many as the optimum."""
    costs = GroupCosts.of(residual_chain(60), Hardware(8 << 10))
    first = FirstPlan.of(costs.dataflow.graph, costs, 1000.0)
    best = solve(costs)
    assert best.proof == "optimal"
    assert len(first.groups) == len(best.groups) < len(costs.dataflow) / 6
    assert first.dram_bytes == best.dram_bytes


@pytest.mark.parametrize("scheme", ["auto", "all"])
def test_groups_whose_steps_are_not_made_in_time_run_as_before_the_search(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the time strikes, every group has steps, and none moves more than before the search."""
    config = Config("fsrcnn", CHIP, scheme, search=SearchConfig(time_limit=100.0, objective="bytes"))
    # the plan before the search is that of the baselines, which the search improves
    monkeypatch.setattr("lfopt.app.first_plan.joined_in_order", lambda _, groups, __: groups)
    outcome = find_plan(config, graph=small())
    found, first = outcome.plan.totals.dram_bytes, outcome.first.dram_bytes
    assert found < first
    seen: list[tuple[int, int]] = []
    for allowed in (0, 1, 2, 3, 5, 10, 50, 100, 10_000):
        looks = count()
        late = lambda self, stage, n=allowed, looks=looks: stage == "steps" and next(looks) >= n  # noqa: E731
        monkeypatch.setattr(Deadline, "late", late)
        outcome.first.known_steps.clear()
        finished = steps_of(outcome)
        moved = finished.plan.totals.dram_bytes
        assert all(group.steps for group in finished.plan.groups)
        assert recount(finished.graph, finished.plan).discrepancies == ()
        assert found <= moved <= first
        if finished.replaced:
            shown = outcome.with_draft(finished.draft)
            assert shown.plan.totals.dram_bytes == moved
            assert shown.plan.totals.proof == "bound"
        seen.append((len(finished.replaced), moved))
    (most, before), (none, after) = seen[0], seen[-1]
    assert (most, before) == (len(outcome.plan.groups), first)
    assert (none, after) == (0, found)
    assert any(0 < replaced < most and moved < first for replaced, moved in seen), "some, and not all"


def test_a_longer_limit_is_not_needed_for_a_bound_that_holds() -> None:
    """Bounds that are cut short at any look at the clock prove no more than whole ones."""
    graph = small()
    whole = GroupCosts.of(graph, CHIP, scheme="auto")
    for looks in (0, 1, 3, 10, 30):
        asked = count()
        short = GroupCosts.of(graph, CHIP, scheme="auto", late=lambda n=looks, a=asked: next(a) >= n)
        assert short.bounds.compulsory_bytes <= short.least_bytes <= whole.least_bytes
        assert short.bounds.recomputing_bytes <= whole.bounds.recomputing_bytes


def test_an_exact_search_that_takes_long_goes_on_from_a_local_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock of its own, which each look moves on: no time is measured."""
    network = load_network("zoo:mobilenet_v2", None, "default", weights=False)
    costs = GroupCosts.of(network, Hardware(1 << 17))
    seconds = count()
    begun: list[int] = []

    def edited(model, options, *, keep):
        begun.append(costs.dram_bytes(options.start[0]))
        return improve(model, replace(options, time_limit=None, budget=200), keep=keep)

    monkeypatch.setattr(exact, "improve", edited)
    monkeypatch.setattr("search.budget.time.perf_counter", lambda: next(seconds) / 1000)
    unfused = tuple(1 << i for i in range(len(costs.dataflow)))
    searched = solve(costs, SearchOptions(time_limit=0.2, start=(unfused,)))
    assert begun
    assert searched.dram_bytes <= min(begun) <= costs.dram_bytes(unfused)
    assert searched.lower_bound_bytes <= searched.dram_bytes == costs.dram_bytes(searched.groups)
    begun.clear()
    solve(costs, SearchOptions(passes=1))
    assert not begun, "one pass was asked for"


def test_a_long_chain_is_one_epilogue_and_its_operators_are_looked_at_once() -> None:
    nodes = [helper.make_node(("Relu", "Sigmoid")[k % 2], [f"t{k}"], [f"t{k + 1}"]) for k in range(600)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2, 4, 4)) for name in ("t0", "t600")]
    model = helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:]))
    costs = GroupCosts.of(from_model(model), CHIP)
    follows = followed(costs.dataflow)
    assert epilogue_candidates(follows) == [costs.dataflow.everything]
    assert epilogue_groups(costs) == (costs.dataflow.everything,)


def test_an_axis_of_2_to_the_31_is_cut_in_few_ways_and_its_steps_are_few_lines() -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1 << 31, 4)) for name in "xy"]
    relu = helper.make_node("Relu", ["x"], ["y"])
    graph = from_model(helper.make_model(helper.make_graph([relu], "rows", ends[:1], ends[1:])))
    costs = GroupCosts.of(graph, Hardware(1 << 16))
    sizes = costs.modes["tiled"].tiles.region(1).sizes(0)  # type: ignore[attr-defined]
    assert 0 < sum(-(-(1 << 31) // size) for size in sizes) <= MOST_FRAMES
    limit = Limit()
    (group,) = with_steps(costs, outline(costs, (1,)), limit)  # type: ignore[arg-type]
    assert group.steps
    assert limit.spent < 100
    assert step_count(group.steps) > 1 << 20
    assert line_count(group.steps) < 100
    assert group.dram.total == costs.bounds.compulsory_bytes
