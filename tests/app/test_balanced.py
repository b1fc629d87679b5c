"""Balanced plans: no slower than today's compilers', then few bytes, then fast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lfopt
from lfopt.app.baselines import baselines_of
from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import find_plan, load_network, steps_of
from lfopt.ir import Figures, Hardware, InvalidConfig
from lfopt.planning import GroupCosts
from simulator.interpreter.execute import execute
from simulator.model.simulate import simulate
from tests.cases import some
from tests.random_plans import random_inputs
from tests.search.random_jobs import random_job

CHIP = Hardware(256 * 1024, mac_rows=16, mac_columns=16)


@pytest.mark.parametrize("seed", some(range(100)))
def test_no_scheme_moves_more_within_the_cap_than_a_poorer_one(seed: int) -> None:
    graph, costs = random_job(seed, most=10)
    hardware = replace(costs.hardware, port_bytes=1, mac_rows=16, mac_columns=16)
    fewest: list[int] = []
    for scheme in ("lbdf", "auto", "all"):
        how = SearchConfig(objective="balanced", slack=0.0)
        outcome = find_plan(Config("random", hardware, scheme=scheme, search=how), graph=graph)
        assert outcome.judged is not None and outcome.judged.trade is not None
        figures = outcome.judged.figures
        trade = outcome.judged.trade
        assert figures is not None
        if trade.most_cycles is not None:
            assert figures.cycles <= trade.most_cycles
        assert trade.fewest_bytes.dram_bytes <= figures.dram_bytes
        assert trade.fastest.cycles <= figures.cycles
        fewest.append(figures.dram_bytes)
        finished = steps_of(outcome)
        assert not lfopt.check(finished.plan, model=finished.graph).wrong
        if not any(group.unexecutable for group in finished.plan.groups):
            report = simulate(finished.plan, finished.graph)
            assert report.dram.total == figures.dram_bytes
            assert report.cycles.total <= figures.cycles
    assert fewest == sorted(fewest, reverse=True)


def test_a_fast_plan_moves_hardly_more() -> None:
    """MobileNet-V2: the plan of the fewest bytes takes five times the cycles."""
    graph = load_network("zoo:mobilenet_v2", None, "default", weights=False)
    fewest = find_plan(
        Config("mobilenet_v2", CHIP, scheme="auto", search=SearchConfig(objective="bytes")), graph=graph
    )
    how = SearchConfig(objective="balanced")
    outcome = find_plan(Config("mobilenet_v2", CHIP, scheme="auto", search=how), graph=graph)
    assert outcome.judged is not None and outcome.judged.trade is not None
    figures = outcome.judged.figures
    assert figures is not None
    assert figures.dram_bytes <= 1.04 * fewest.best.result.dram_bytes
    baselines = dict(outcome.judged.trade.baselines)
    assert outcome.judged.trade.most_cycles == min(one.cycles for one in baselines.values())
    assert figures.cycles <= baselines["epilogue fusion"].cycles
    assert figures.energy_pj < 0.5 * baselines["epilogue fusion"].energy_pj


@pytest.mark.parametrize("seed", some(range(20)))
def test_balanced_plans_are_executed_with_their_bytes(seed: int) -> None:
    graph, costs = random_job(seed, most=8)
    how = SearchConfig(objective="balanced")
    finished = steps_of(find_plan(Config("random", costs.hardware, scheme="all", search=how), graph=graph))
    if any(group.unexecutable for group in finished.plan.groups):
        pytest.skip("an operator of this network has no steps")
    inputs = random_inputs(finished.graph, np.random.default_rng(seed))
    ran = execute(finished.plan, finished.graph, inputs)
    assert ran.dram.total == finished.plan.totals.dram_bytes


def test_weights_come_in_blocks_that_fill_the_array() -> None:
    graph = load_network("zoo:mobilenet_v2", None, "default", weights=False)
    narrow, wide = (
        GroupCosts.of(graph, replace(CHIP, block_channels=channels), scheme="all") for channels in (None, 16)
    )
    tail = sum(1 << i for i in range(narrow.dataflow.position["head"], len(narrow.dataflow)))
    assert narrow.price(tail) is not None and wide.price(tail) is not None
    for costs, least in ((narrow, 1), (wide, 16)):
        assert costs.hardware.narrowest_block == least
        resident = costs.modes["resident"]
        assert resident.need(tail) >= 2 * least * 1280 * 2  # two blocks of the last layer's weights


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_bytes": "10"}, "found balanced with a cap on bytes or energy; accepted: a cap on cycles"),
        ({"surrogate": True}, "found true with objective balanced; accepted: false"),
        ({"method": "random"}, "found random with objective balanced; accepted: exact"),
        (
            {"max_cycles": 1, "time_limit": 2},
            r"no plan was found below the caps: the nearest has [\d,]+ cycles where 1 are",
        ),
    ],
)
def test_what_does_not_go_with_balanced_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        lfopt.search("zoo:squeezenet1_1", scheme="auto", objective="balanced", weights=False, **given)  # type: ignore[arg-type]


def test_a_job_whose_time_is_over_has_no_cap_and_a_plan() -> None:
    graph = load_network("zoo:squeezenet1_1", None, "default", weights=False)
    assert [baseline.name for baseline in baselines_of(graph, CHIP)] == ["epilogue fusion", "layer by layer"]
    assert baselines_of(graph, CHIP, lambda: True) == []
    how = SearchConfig(objective="balanced", time_limit=1e-3)
    finished = steps_of(find_plan(Config("squeezenet1_1", CHIP, scheme="all", search=how), graph=graph))
    assert not lfopt.check(finished.plan, model=finished.graph).wrong


@pytest.mark.parametrize("scheme", ["lbdf", "all"])
def test_a_baseline_that_breaks_what_a_job_says_is_no_plan_of_it(scheme: str) -> None:
    graph, costs = random_job(5, most=8)
    names = tuple(operator.name for operator in costs.dataflow.operators)
    job = Config("random", costs.hardware, scheme=scheme, alone=names, search=SearchConfig(time_limit=20))  # type: ignore[arg-type]
    outcome = find_plan(job, graph=graph)
    assert outcome.judged is not None and outcome.judged.trade is not None
    assert [group for group in outcome.plan.groups if len(group.nodes) > 1] == []
    assert outcome.plan.scheme == scheme


@pytest.mark.parametrize("scheme", ["brr", "resident", "patches"])
@pytest.mark.parametrize("objective", ["cycles", "balanced"])
def test_schemes_without_line_buffers_have_plans_for_every_objective(scheme: str, objective: str) -> None:
    graph, costs = random_job(0, most=8)
    how = SearchConfig(objective=objective, time_limit=20)  # type: ignore[arg-type]
    outcome = find_plan(Config("random", costs.hardware, scheme=scheme, search=how), graph=graph)  # type: ignore[arg-type]
    assert outcome.plan.scheme == scheme
    assert not lfopt.check(steps_of(outcome).plan, model=graph).wrong


def test_figures_of_a_trade_are_sums_over_groups() -> None:
    graph, costs = random_job(5, most=8)
    how = SearchConfig(objective="balanced")
    outcome = find_plan(Config("random", costs.hardware, scheme="all", search=how), graph=graph)
    assert outcome.judged is not None and outcome.judged.trade is not None
    trade = outcome.judged.trade
    for figures in (trade.fewest_bytes, trade.fastest, trade.least_energy):
        assert isinstance(figures, Figures)
        assert min(figures) > 0
    assert trade.least_energy.energy_pj <= min(trade.fewest_bytes.energy_pj, trade.fastest.energy_pj)
