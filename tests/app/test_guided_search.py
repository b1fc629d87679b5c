"""Guided and screened searches: every plan is legal whatever explanations say, and a seed means one plan."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from explainers.controls import analytic, random_links
from explainers.graph import FEATURES, links, member_table
from explainers.predictor import EMBEDDED, GIVEN, HIDDEN, OUTPUTS
from explainers.rg_explainer import PARTS
from explainers.split import Explain
from lfopt import zoo
from lfopt.app.config import Config, SearchConfig, validate
from lfopt.app.files import read_plan
from lfopt.app.guidance import explainer, rule, screener, splitter
from lfopt.app.options import GuidanceName
from lfopt.app.pipeline import run
from lfopt.frontend import from_model
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts, Traffic
from search.exact import solve
from search.options import SearchOptions
from search.partition import Partitions, Screen
from search.result import Result
from tests.cases import some
from tests.processes import ROOT, under_two_hash_seeds
from tests.search.randomised import KIB, SEARCHES, Search, assert_legal, ladder, mobilenet
from tests.strategies import random_graph, random_hardware
from tests.watching import Watched

LIES: dict[str, Screen] = {
    "all invalid": lambda groups: [False] * len(groups),
    "all valid": lambda groups: [True] * len(groups),
    "by lot": lambda groups: [group * 0x9E3779B97F4A7C15 >> 11 & 1 == 0 for group in groups],
}


def costs_of(
    graph=None, hardware: Hardware | None = None, traffic: Traffic = Traffic.ONCE, **options
) -> GroupCosts:
    return GroupCosts(
        Dataflow.of(graph or ladder()),
        hardware or Hardware(3 * KIB),
        traffic,
        **{"epilogue": False, **options},
    )


def explainers(costs: GroupCosts) -> dict[str, Explain]:
    """Explanations good, indifferent and empty."""
    flow = costs.dataflow

    def nothing(mask: int) -> np.ndarray:
        return np.full(links(flow, mask).shape[1], -np.inf)

    def now_and_then(mask: int) -> np.ndarray:
        return random_links(flow, 1)(mask) if mask * 0x9E3779B97F4A7C15 >> 13 & 1 else nothing(mask)

    return {
        "analytic": analytic(costs),
        "random": random_links(flow, 0),
        "nothing": nothing,
        "now and then": now_and_then,
    }


def guided(
    search: Search, costs: GroupCosts, explain: Explain | None, screen: Screen | None = None, **options
) -> Result:
    partitions = Partitions(costs)
    split = splitter(explain, partitions) if explain is not None else None
    return search(costs, SearchOptions(partitions=partitions, split=split, screen=screen, **options))


def same(a: Result, b: Result) -> bool:
    return (a.groups, a.history, a.front, a.repairs) == (b.groups, b.history, b.front, b.repairs)


# -- validity ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [None, *LIES])
@pytest.mark.parametrize("search", SEARCHES)
def test_no_explanation_and_no_prediction_makes_a_plan_illegal(search: Search, lie: str | None) -> None:
    """Nor better than the optimum.

    Random networks and chips, all kinds of traffic, epilogue groups or none.
    """
    for seed in some(range(10)):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 16)))
        traffic, epilogue = list(Traffic)[seed % 3], seed % 2 == 0
        costs = costs_of(graph, random_hardware(rng, graph), traffic, epilogue=epilogue)
        best = solve(costs).dram_bytes
        for explain in (None, *explainers(costs).values()):
            searched = guided(search, costs, explain, LIES[lie] if lie else None, budget=40, seed=seed)
            assert assert_legal(costs, searched.groups) == searched.dram_bytes >= best


@pytest.mark.parametrize("scheme", ["lbdf", "brr", "resident", "auto", "all"])
@pytest.mark.parametrize("search", SEARCHES)
def test_guidance_and_screening_work_for_every_scheme(search: Search, scheme: str) -> None:
    costs = costs_of(traffic=Traffic.TILED, scheme=scheme, epilogue=True)
    searched = guided(search, costs, analytic(costs), screener(rule(costs)), budget=60, seed=1)
    assert_legal(costs, searched.groups)


# -- what guidance does --------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_guidance_finds_better_plans_with_few_tries(search: Search) -> None:
    costs = costs_of(mobilenet(), Hardware(128 * KIB), Traffic.PAPER)
    plain = guided(search, costs, None, budget=100, seed=0)
    for explain in (analytic(costs), random_links(costs.dataflow, 0)):
        assert guided(search, costs, explain, budget=100, seed=0).dram_bytes < plain.dram_bytes


@pytest.mark.parametrize("search", SEARCHES)
def test_repairs_are_counted_by_kind(search: Search) -> None:
    costs = costs_of()
    kinds = explainers(costs)
    count = {
        name: guided(search, costs, explain, budget=80, seed=2).repairs
        for name, explain in {"none": None, **kinds}.items()
    }
    assert count["analytic"].guided > 0 == count["analytic"].random
    assert count["nothing"].random > 0 == count["nothing"].guided
    assert count["now and then"].guided > 0 < count["now and then"].random
    assert count["none"].random > 0 == count["none"].guided
    assert all(repairs.screened == 0 for repairs in count.values())
    screened = guided(search, costs, kinds["analytic"], LIES["all invalid"], budget=80, seed=2).repairs
    assert 0 < screened.screened <= screened.guided + screened.random


@pytest.mark.parametrize("search", SEARCHES)
def test_an_explainer_with_nothing_to_say_changes_nothing(search: Search) -> None:
    costs = costs_of()
    plain, mute = (
        guided(search, costs, None, budget=200, seed=5),
        guided(search, costs, explainers(costs)["nothing"], budget=200, seed=5),
    )
    assert same(plain, mute)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_predictor_that_lets_everything_pass_changes_nothing(search: Search) -> None:
    costs = costs_of()
    for explain in (None, analytic(costs)):
        assert same(
            guided(search, costs, explain, budget=200, seed=5),
            guided(search, costs, explain, LIES["all valid"], budget=200, seed=5),
        )


@pytest.mark.parametrize("search", SEARCHES)
def test_a_predictor_that_lets_nothing_pass_still_leaves_what_split_found(search: Search) -> None:
    """Without SPLIT every operator ends alone; what SPLIT returns was checked, and is not screened."""
    costs = costs_of()
    alone = guided(search, costs, None, LIES["all invalid"], budget=50, seed=0)
    assert all(group & (group - 1) == 0 for group in alone.groups)
    assert (
        guided(search, costs, analytic(costs), LIES["all invalid"], budget=50, seed=0).dram_bytes
        < alone.dram_bytes
    )


# -- screening -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_groups_of_a_plan_are_screened_together_and_legal_ones_not_at_all(search: Search) -> None:
    costs = costs_of(epilogue=True, traffic=Traffic.TILED)
    asked: list[list[int]] = []

    def screen(groups: Sequence[int]) -> list[bool]:
        asked.append(list(groups))
        return [*LIES["by lot"](groups)]

    searched = guided(search, costs, analytic(costs), screen, budget=60, seed=0)
    assert max(map(len, asked)) > 1
    assert all(len(set(groups)) == len(groups) > 0 for groups in asked)
    assert not any(costs.legal_anywhere(group) for groups in asked for group in groups)
    assert searched.repairs.screened > 0


def test_what_a_search_found_legal_is_not_screened_again() -> None:
    costs = costs_of()
    asked: list[int] = []

    def screen(groups: Sequence[int]) -> list[bool]:
        asked.extend(groups)
        return [True] * len(groups)

    guided(SEARCHES[1], costs, None, screen, budget=200, seed=0)
    legal = [group for group in asked if costs.price(group) is not None]
    assert legal
    assert len(legal) == len(set(legal))


@pytest.mark.parametrize("search", SEARCHES)
def test_a_group_that_does_not_pass_is_not_checked(search: Search) -> None:
    costs = costs_of()
    priced: list[int] = []
    refused: set[int] = set()

    def screen(groups: Sequence[int]) -> list[bool]:
        passed = LIES["by lot"](groups)
        refused.update(group for group, passes in zip(groups, passed, strict=True) if not passes)
        return list(passed)

    searched = search(Watched(costs, priced.append), SearchOptions(budget=60, seed=0, screen=screen))
    assert refused
    assert not refused & set(priced)
    assert searched.repairs.screened >= len(refused)


def test_screening_asks_the_rule_and_remembers_what_it_said() -> None:
    costs = costs_of(hardware=Hardware(KIB))
    needs, asked = rule(costs), list[int]()
    told = needs.evaluate

    def counted(members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(len(members))
        return told(members)

    needs.evaluate = counted
    screen = screener(needs)
    few = [(1 << k) - 1 for k in range(1, 7)]
    passed = screen(few)
    assert passed == [
        bool(told(member_table([mask], len(costs.dataflow)))[0][0] < costs.hardware.buffer_bytes)
        for mask in few
    ]
    assert set(passed) == {True, False}
    assert screen(few[::-1]) == passed[::-1]
    assert asked == [len(few)]


# -- seeds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("screen", [None, LIES["by lot"]])
@pytest.mark.parametrize("search", SEARCHES)
def test_the_same_seed_gives_the_same_plan_whatever_is_known_already(
    search: Search, screen: Screen | None
) -> None:
    costs = costs_of()
    shared = Partitions(costs)
    split = splitter(analytic(costs), shared)
    options = {"budget": 200, "seed": 7, "screen": screen}
    first = search(costs, SearchOptions(partitions=shared, split=split, **options))
    again = search(costs, SearchOptions(partitions=shared, split=split, **options))
    fresh = guided(search, costs_of(), analytic(costs_of()), budget=200, seed=7, screen=screen)
    assert same(first, again)
    assert same(first, fresh)


PINNED = """
from tests.app.test_guided_search import *
for search in SEARCHES:
    for name, explain in explainers(costs := costs_of()).items():
        found = guided(search, costs, explain, LIES["by lot"], budget=100, seed=3)
        print(search.__name__, name, found.history, [hex(group) for group in found.groups], found.repairs)
"""


def test_hash_order_does_not_matter() -> None:
    first, second = under_two_hash_seeds(PINNED)
    assert first == second
    assert first.count("\n") == 12


# -- learned explanations ------------------------------------------------------------------------------------


@pytest.fixture
def untrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A predictor and an explainer that learnt nothing, in place of those that ship."""
    rng = np.random.default_rng(0)

    def some(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

    network = {
        "head.0.weight": some(HIDDEN, 2 * HIDDEN + GIVEN),
        "head.0.bias": some(HIDDEN),
        "head.2.weight": some(OUTPUTS, HIDDEN),
        "head.2.bias": some(OUTPUTS),
    }
    for k in range(4):
        width = 128 if k else FEATURES
        network |= {
            f"convs.{k}.lin_rel.weight": some(128, width),
            f"convs.{k}.lin_rel.bias": some(128),
            f"convs.{k}.lin_root.weight": some(128, width),
        }
    save_file(network, tmp_path / "lbdf.safetensors")
    save_file(
        {"0.weight": some(64, 2 * EMBEDDED), "0.bias": some(64), "2.weight": some(1, 64), "2.bias": some(1)},
        tmp_path / "lbdf_pg.safetensors",
    )
    agent = {"scale": np.ones(1, np.float32)}
    for part, embeddings in PARTS.items():
        agent |= {
            f"{part}.0.weight": some(64, EMBEDDED * embeddings),
            f"{part}.0.bias": some(64),
            f"{part}.2.weight": some(1, 64),
            f"{part}.2.bias": some(1),
        }
    save_file(agent, tmp_path / "lbdf_rg.safetensors")
    monkeypatch.setattr("explainers.predictor.WEIGHTS", tmp_path)


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("screens", [False, True])
@pytest.mark.parametrize("name", ["pg", "rg", "gnne"])
def test_a_network_that_learnt_nothing_makes_no_plan_illegal_and_a_seed_means_one_plan(
    name: GuidanceName, screens: bool
) -> None:
    if name == "gnne":
        pytest.importorskip("torch_geometric")
    searched: list[Result] = []
    for search in SEARCHES[1], SEARCHES[1]:
        costs = costs_of()
        partitions = Partitions(costs)
        split = splitter(explainer(costs, name, 4), partitions)
        screen = screener(rule(costs)) if screens else None
        options = SearchOptions(budget=15, seed=4, partitions=partitions, split=split, screen=screen)
        searched.append(search(costs, options))
        assert_legal(costs, searched[-1].groups)
    assert same(*searched)


def test_weights_that_are_not_there_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explainers.predictor.WEIGHTS", tmp_path)
    for name in ("pg", "gnne", "rg"):
        with pytest.raises(InvalidConfig) as error:
            explainer(costs_of(), name, 0)
        assert "lbdf.safetensors" in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(InvalidConfig, match="scheme auto"):
        explainer(costs_of(scheme="auto"), "pg", 0)


# -- configuration and the whole flow ------------------------------------------------------------------------


def refused(data: dict[str, object]) -> str:
    with pytest.raises(InvalidConfig) as error:
        validate(
            Config, {"model": "zoo:squeezenet1_1", "hardware": {"buffer_bytes": "128KiB"}, **data}, "job.yaml"
        )
    assert "\n" not in str(error.value)
    return str(error.value)


def test_wrong_guidance_is_refused_in_one_line_that_says_what_is_accepted() -> None:
    assert "search.guidance" in (told := refused({"search": {"method": "local", "guidance": "best"}}))
    assert all(name in told for name in ("none", "random", "analytic", "gnne", "pg", "rg"))
    assert "exact" in refused({"search": {"method": "exact", "guidance": "analytic"}})
    # it is no field any more
    assert "search.screen" in (told := refused({"search": {"method": "local", "screen": True}}))
    assert "guidance" in told
    assert "scheme auto" in refused({"scheme": "auto", "search": {"method": "local", "guidance": "rg"}})
    with pytest.raises(InvalidConfig, match="accepted: random, analytic, gnne, pg, rg"):
        explainer(costs_of(), "none", 0)


def test_guidance_that_needs_no_predictor_needs_none() -> None:
    costs = costs_of()
    for name in ("analytic", "random"):
        assert explainer(costs, name, 0)(costs.dataflow.everything).size


def test_a_job_runs_guided_and_is_compared_with_the_same_method_unguided_and_with_the_optimum(
    tmp_path: Path,
) -> None:
    search = SearchConfig(method="nsga2", guidance="analytic", compare=("nsga2", "exact"), budget=60)
    job = Config(
        "zoo:squeezenet1_1", Hardware(128 * KIB), traffic="once", epilogue=False, search=search, scheme="lbdf"
    )
    outcome = run(job, tmp_path)
    (guided, by), (plain, nobody), (optimum, _) = outcome.runs
    assert (by, nobody, guided.method, plain.method, optimum.method) == (
        "analytic",
        "none",
        "nsga2",
        "nsga2",
        "exact",
    )
    assert optimum.dram_bytes <= guided.dram_bytes < plain.dram_bytes
    assert guided.repairs.guided > 0 == plain.repairs.guided
    written = read_plan(tmp_path)
    assert written.totals.dram_bytes == written.totals.lower_bound_bytes == optimum.dram_bytes
    assert (
        written.search.guidance
        == outcome.best.guidance
        == ("analytic" if guided.dram_bytes == optimum.dram_bytes else "none")
    )


def test_the_command_takes_guidance_and_says_what_it_did(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "lfopt.app.cli",
        "search",
        "zoo:squeezenet1_1",
        "--buffer",
        "128KiB",
        "--out",
        str(tmp_path),
    ]
    options = ["--method", "local", "--guidance", "analytic", "--budget", "30"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "this plan, local+analytic" in done.stdout
    assert "where analytic said" in done.stdout
    assert (
        subprocess.run(
            [sys.executable, "-m", "lfopt.app.cli", "check", str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )
    wrong = subprocess.run(
        [*command, "--guidance", "random"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


def test_guidance_without_a_network_imports_no_torch() -> None:
    code = "import sys, lfopt.app.guidance; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    code = (
        "import sys, lfopt.app.cli, lfopt.app.config, lfopt.app.pipeline; assert not "
        "any(name.startswith('explainers') for name in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@cache
def deeplab() -> Dataflow:
    return Dataflow.of(from_model(zoo.build("deeplabv3_mobilenet_v3_large", weights=False)))


def test_an_operator_that_can_share_no_legal_group_is_cut_out_without_an_explanation() -> None:
    costs = GroupCosts(deeplab(), Hardware(128 * KIB), Traffic.PAPER, epilogue=False)
    partitions = Partitions(costs)
    split = splitter(analytic(costs), partitions)
    groups = split(deeplab().everything)
    assert groups is not None
    assert sum(groups) == deeplab().everything
    assert all(group.bit_count() == 1 for group in groups if group & costs.excluded)
    assert all(partitions.price(group) for group in groups)
    assert set(bits(split.alone)) >= {*bits(costs.excluded)}
