"""Randomised searches give legal plans, never better than the optimum, the same for a seed anywhere."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from lfopt.frontend import from_model
from lfopt.fusion import CostModel
from lfopt.ir import Graph, Hardware
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts, Traffic
from search.budget import SearchBudget, one_scheme
from search.exact import solve
from search.local import improve
from search.methods import METHODS
from search.nsga2 import by_crowding, evolve, fronts
from search.options import SearchOptions
from search.partition import PAIRED, Partitions, Rng
from search.sampling import sample
from tests.processes import under_two_hash_seeds
from tests.search.randomised import KIB, SEARCHES, Search, _model, assert_legal, ladder, mobilenet, model_for
from tests.strategies import random_graph, random_hardware
from tests.watching import Watched

FEW = SearchOptions(budget=400)


def fan(readers: int) -> Graph:
    """One map with many readers, whose results are summed one by one."""
    nodes = [helper.make_node("Relu", ["x"], ["m"], name="maker")]
    nodes += [helper.make_node("Sigmoid", ["m"], [f"y{i}"], name=f"reader{i}") for i in range(readers)]
    return from_model(_model(nodes, {"x": (1, 2, 8, 4)}, [f"y{i}" for i in range(readers)], []))


class Recorded(Partitions):
    """Remembers every plan that a search counts."""

    def __init__(self, model: CostModel) -> None:
        super().__init__(model)
        self.counted: list[tuple[int, ...]] = []


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[[CostModel], Recorded]:
    """Partitions that remember every plan counted."""
    from search.budget import PlanBudget

    count = PlanBudget.count

    def remember(budget: PlanBudget, plan: tuple[int, ...], dram_bytes: int) -> bool:
        assert isinstance(budget.partitions, Recorded)
        budget.partitions.counted.append(tuple(plan))
        assert budget.partitions.dram_bytes(plan) == dram_bytes
        return count(budget, plan, dram_bytes)

    monkeypatch.setattr(PlanBudget, "count", remember)
    return Recorded


# -- what comes out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_every_plan_counted_is_legal_and_none_beats_the_optimum(
    search: Search, recorded: Callable[[CostModel], Recorded]
) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 16)))
        traffic, epilogue = list(Traffic)[seed % 3], seed % 2 == 0
        model = model_for(graph, random_hardware(rng, graph), traffic, epilogue=epilogue)
        partitions = recorded(model)
        best = solve(model)
        assert best.proof == "optimal"
        searched = search(model, SearchOptions(budget=60, seed=seed, partitions=partitions))
        costs = [
            assert_legal(model, ordered)
            for plan in dict.fromkeys(partitions.counted)
            if (ordered := partitions.executable(plan)) is not None  # None: groups that wait for one another
        ]
        assert len(costs) == len(set(partitions.counted))
        assert searched.dram_bytes == min(costs) == assert_legal(model, searched.groups)
        assert min(costs) >= best.dram_bytes, f"seed {seed}"


@pytest.mark.parametrize(("search", "gap"), [(sample, 1.2), (improve, 0.06), (evolve, 0.15)])
def test_plans_of_mobilenet_v2_are_legal_and_near_the_optimum(search: Search, gap: float) -> None:
    model = model_for(mobilenet(), Hardware(128 * KIB), Traffic.PAPER)
    best = solve(model)
    searched = search(model, SearchOptions(budget=1000, seed=0, lower_bound_bytes=best.lower_bound_bytes))
    assert assert_legal(model, searched.groups) == searched.dram_bytes >= best.dram_bytes
    assert searched.gap < gap
    assert searched.proof == ("optimal" if searched.dram_bytes == best.dram_bytes else "bound")


@pytest.mark.parametrize("search", [improve, evolve])
def test_searches_that_learn_find_the_optimum_of_a_small_network(search: Search) -> None:
    model = model_for(ladder(3), Hardware(3 * KIB))
    assert search(model, SearchOptions(budget=1500, seed=0)).dram_bytes == solve(model).dram_bytes


def test_fused_everything_is_found_where_it_fits() -> None:
    model = model_for(ladder(), Hardware(1024 * KIB))
    for search in SEARCHES:
        assert search(model, SearchOptions(budget=200, seed=0)).groups == (model.dataflow.everything,)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_network_of_one_operator_has_one_plan(search: Search) -> None:
    graph = from_model(
        _model([helper.make_node("Relu", ["x"], ["y"], name="only")], {"x": (1, 1, 4, 4)}, ["y"], [])
    )
    assert search(model_for(graph, Hardware(64)), SearchOptions(budget=5, seed=0)).groups == (1,)


# -- seeds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_the_same_seed_gives_the_same_plan_whatever_is_known_already(search: Search) -> None:
    model = model_for(ladder(), Hardware(3 * KIB))
    shared = Partitions(model)
    first = search(model, SearchOptions(budget=300, seed=7, partitions=shared))
    np.random.seed(1)  # noqa: NPY002 - global state must not matter
    for again in (
        search(model, SearchOptions(budget=300, seed=7, partitions=shared)),
        search(model_for(ladder(), Hardware(3 * KIB)), SearchOptions(budget=300, seed=7)),
    ):
        assert (again.groups, again.history, again.front) == (first.groups, first.history, first.front)


@pytest.mark.parametrize("search", SEARCHES)
def test_different_seeds_take_different_ways(search: Search) -> None:
    model = model_for(mobilenet(), Hardware(128 * KIB))
    assert len({search(model, SearchOptions(budget=60, seed=seed)).history for seed in range(4)}) == 4


PINNED = """
from lfopt.ir import Hardware
from search.options import SearchOptions
from tests.search.randomised import SEARCHES, ladder, model_for
for search in SEARCHES:
    found = search(model_for(ladder(), Hardware(3 * 1024)), SearchOptions(budget=200, seed=3))
    print(search.__name__, found.history, [hex(group) for group in found.groups], len(found.front))
"""


def test_hash_order_does_not_matter() -> None:
    first, second = under_two_hash_seeds(PINNED)
    assert first == second
    assert first.count("\n") == 3


@pytest.mark.parametrize(
    ("search", "end"),
    [
        (sample, ((8, 21_632), (55, 19_584), (87, 17_248))),
        (improve, ((54, 21_632), (80, 17_536), (192, 13_152))),
        (evolve, ((1, 25_728), (15, 21_632), (164, 21_344))),
    ],
)
def test_a_seed_means_the_same_on_every_machine(search: Search, end: tuple[tuple[int, int], ...]) -> None:
    assert (
        search(model_for(ladder(), Hardware(3 * KIB)), SearchOptions(budget=200, seed=3)).history[-3:] == end
    )


def test_dice_are_fair_and_fixed() -> None:
    rng = Rng(0)
    counts = np.bincount([rng.below(6) for _ in range(6000)], minlength=6)
    assert counts.min() > 900
    assert [Rng(5).below(1000) for _ in range(2)] == [Rng(5).below(1000)] * 2
    assert Rng(1).bytes(5).tolist() == Rng(1).bytes(8).tolist()[:5]


# -- budget, time, interruption ------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("budget", [0, 1, 7, 20, 33, 250])
def test_exactly_the_budget_is_evaluated(search: Search, budget: int) -> None:
    told: list[tuple[int, int]] = []
    model = model_for(mobilenet(), Hardware(128 * KIB))
    searched = search(
        model,
        SearchOptions(
            budget=budget, seed=0, progress=lambda done, _, best, __: told.append((done, best or 0))
        ),
    )
    assert searched.plans_evaluated == budget
    assert told[-1:] == ([(budget, searched.dram_bytes)] if budget else [])
    assert told == sorted(told, key=lambda item: (item[0], -item[1]))
    assert_legal(model, searched.groups)


@pytest.mark.parametrize("search", SEARCHES)
def test_ctrl_c_returns_the_best_so_far(search: Search) -> None:
    seen: list[int] = []

    def stop(done: int, total: int, best: int | None, bound: int) -> None:
        seen.append(best or 0)
        if done >= 200:
            raise KeyboardInterrupt

    model = model_for(mobilenet(), Hardware(128 * KIB))
    searched = search(model, SearchOptions(budget=10**9, seed=0, progress=stop))
    assert 200 <= searched.plans_evaluated < 10_000
    assert searched.dram_bytes == seen[-1] == assert_legal(model, searched.groups)


@pytest.mark.parametrize("search", SEARCHES)
def test_the_time_limit_holds(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that a busy machine does not disturb: every look at it takes a hundredth of a second."""
    looks = count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(looks) / 100)
    model = model_for(mobilenet(), Hardware(128 * KIB))
    searched = search(model, SearchOptions(budget=10**9, seed=0, time_limit=0.5))
    assert 0 < searched.plans_evaluated < 10**9
    assert 0.5 <= searched.seconds < 2
    assert search(model, SearchOptions(budget=10, seed=0, time_limit=0.0)).plans_evaluated == 0


@pytest.mark.parametrize("search", SEARCHES)
def test_no_group_is_priced_twice(search: Search) -> None:
    model = model_for(ladder(), Hardware(3 * KIB))
    asked: list[int] = []
    counting = Watched(model, asked.append)
    partitions = Partitions(counting)
    search(counting, SearchOptions(budget=300, seed=0, partitions=partitions))
    assert len(asked) == len(set(asked))
    before = len(asked)
    search(counting, SearchOptions(budget=300, seed=0, partitions=partitions))
    assert len(asked) == before


# -- splitting, genomes, fronts ------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_a_given_split_is_tried_before_a_random_one(search: Search) -> None:
    model = model_for(ladder(), Hardware(3 * KIB))
    asked: list[int] = []

    def split(group: int) -> list[int] | None:
        asked.append(group)
        return [1 << i for i in bits(group)] if len(asked) % 2 else None

    searched = search(model, SearchOptions(budget=50, seed=0, split=split))
    assert asked
    assert all(model.price(group) is None for group in asked)
    assert_legal(model, searched.groups)


def test_decoded_genomes_are_connected_convex_and_acyclic_and_encode_undoes_decode() -> None:
    for seed in range(150):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(2, 20)))
        model = model_for(graph, Hardware(2**40))
        partitions = Partitions(model)
        genome = (rng.random(len(partitions.links)) < rng.random()).astype(np.uint8)
        plan = partitions.in_order(partitions.decode(genome.tobytes()))
        assert_legal(model, plan)
        partitions.fit(plan, Rng(0))
        again = partitions.in_order(partitions.decode(partitions.encode(plan).tobytes()))
        assert again == plan


def test_a_cut_genome_is_every_operator_alone_and_a_fused_one_everything_connected() -> None:
    partitions = Partitions(model_for(ladder(), Hardware(2**40)))
    links = len(partitions.links)
    assert partitions.decode(bytes(links)) == list(partitions.singles)
    assert partitions.decode(bytes([1] * links)) == [partitions.flow.everything]


def test_a_group_that_comes_to_wait_later_makes_those_behind_it_wait_too() -> None:
    """{a, v} waits for h once v joins, and k for {a, v} already; w reads k, so must not join h."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="a"),
        helper.make_node("Relu", ["y"], ["h"], name="h"),
        helper.make_node("Sigmoid", ["a"], ["k"], name="k"),
        helper.make_node("Add", ["a", "h"], ["v"], name="v"),
        helper.make_node("Add", ["k", "h"], ["w"], name="w"),
    ]
    graph = from_model(_model(nodes, {"x": (1, 1, 4, 4), "y": (1, 1, 4, 4)}, ["v", "w"], []))
    partitions = Partitions(model_for(graph, Hardware(2**40)))
    fused = {(0, 3), (1, 4)}
    genome = bytes(int(link in fused) for link in partitions.links)
    assert sum(genome) == 2
    assert sorted(partitions.decode(genome)) == [0b00010, 0b00100, 0b01001, 0b10000]


def test_links_of_a_map_with_many_readers_grow_with_the_readers() -> None:
    for readers in (2, PAIRED + 1, 40):
        partitions = Partitions(model_for(fan(readers), Hardware(2**40)))
        pairs = sum(min(i, PAIRED) for i in range(readers))
        assert len(partitions.links) == readers + pairs
        assert len(set(partitions.links)) == len(partitions.links)


def test_the_front_holds_legal_plans_that_nothing_counted_beats(
    recorded: Callable[[CostModel], Recorded],
) -> None:
    model = model_for(ladder(), Hardware(16 * KIB))
    partitions = recorded(model)
    searched = evolve(model, SearchOptions(budget=400, seed=0, partitions=partitions))
    assert len(searched.front) > 2
    points = [(dram, buffer) for dram, buffer, _ in searched.front]
    assert points == sorted(points)
    assert [b for _, b in points] == sorted({b for _, b in points}, reverse=True)
    assert points[0][0] == searched.dram_bytes
    for dram, buffer, groups in searched.front:
        assert assert_legal(model, groups) == dram
        assert partitions.required_bytes(groups) == buffer
    for plan in partitions.counted:
        dram, buffer = partitions.dram_bytes(plan), partitions.required_bytes(plan)
        assert any(d <= dram and b <= buffer for d, b in points)


def test_fronts_are_those_of_the_definition() -> None:
    def beats(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return a != b and a[0] <= b[0] and a[1] <= b[1]

    for seed in range(100):
        rng = np.random.default_rng(seed)
        points = [(int(d), int(b)) for d, b in rng.integers(0, 9, size=(25, 2))]
        rest = set(range(len(points)))
        for front in fronts(points):
            assert set(front) == {i for i in rest if not any(beats(points[j], points[i]) for j in rest)}
            rest -= set(front)
            assert sorted(by_crowding(front, points)) == sorted(front)
        assert not rest


def test_both_ends_of_a_front_come_first_and_copies_last() -> None:
    assert by_crowding([0, 1, 2, 3, 4], [(0, 90), (1, 80), (2, 70), (60, 1), (1, 80)]) == [0, 3, 2, 1, 4]


def test_only_nsga2_imports_pymoo_and_nothing_imports_torch() -> None:
    code = (
        "import sys, search.local, search.sampling, search.exact; assert 'pymoo' not in sys.modules; "
        "import search.nsga2; assert 'pymoo' in sys.modules and 'torch' not in sys.modules"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=Path(__file__).resolve().parents[2], check=False
        ).returncode
        == 0
    )


# -- the contract of all methods -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Spied(SearchOptions):
    """Options that remember which of them were read."""

    read: set[str] = field(default_factory=set)

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if name in SearchOptions.__dataclass_fields__:
            super().__getattribute__("read").add(name)
        return value


@pytest.mark.parametrize("method", METHODS)
def test_a_method_reads_the_options_that_its_row_names(method: str) -> None:
    row, options = METHODS[method], Spied(budget=50)
    options.read.clear()
    row.run(model_for(ladder(3), Hardware(3 * KIB)), options)
    assert {*row.takes} == options.read - {
        "time_limit",
        "stop",
        "progress",
        "lower_bound_bytes",
        "partitions",
    }


@pytest.mark.parametrize("method", METHODS)
def test_groups_evaluated_are_the_prices_asked_and_a_proof_is_a_bound_that_is_reached(method: str) -> None:
    """Whatever the method, and the plan is the last improvement of its history."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 8)
        model = GroupCosts(Dataflow.of(graph), random_hardware(rng, graph), scheme=("auto", "lbdf")[seed % 2])
        asked: list[int] = []
        searched = METHODS[method].run(Watched(model, asked.append), replace(FEW, budget=60))
        assert searched.groups_evaluated == len(asked) > 0
        assert 0 < searched.plans_evaluated <= 60
        assert searched.history[-1][1] == searched.dram_bytes
        assert searched.lower_bound_bytes >= model.least_bytes
        assert not searched.interrupted
        best = solve(model).dram_bytes
        told = METHODS[method].run(model, replace(FEW, budget=60, lower_bound_bytes=best))
        assert (told.lower_bound_bytes, told.dram_bytes) == (best, searched.dram_bytes)
        assert told.proof == ("optimal" if searched.dram_bytes == best else "bound")
        assert METHODS[method].proves <= (searched.proof == "optimal")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("asked", [0, 1, 5])
def test_every_method_stops_when_it_is_told_to_and_says_so(method: str, asked: int) -> None:
    model, times = model_for(ladder(3), Hardware(3 * KIB)), count()
    searched = METHODS[method].run(model, replace(FEW, stop=lambda: next(times) >= asked))
    assert searched.interrupted
    assert searched.method == method
    assert searched.dram_bytes == assert_legal(model, searched.groups)
    in_no_time = METHODS[method].run(model, replace(FEW, time_limit=0.0))
    assert not in_no_time.interrupted
    assert in_no_time.dram_bytes == assert_legal(model, in_no_time.groups)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.7])
def test_ctrl_c_at_any_call_of_the_cost_model_leaves_a_legal_plan_that_says_so(
    method: str, share: float
) -> None:
    model = model_for(ladder(4), Hardware(3 * KIB))
    calls = count()
    whole = METHODS[method].run(Watched(model, lambda group: next(calls)), FEW)
    assert not whole.interrupted
    at, again = int(share * next(calls)), count()

    def break_off(group: int) -> None:
        if next(again) == at:
            raise KeyboardInterrupt

    searched = METHODS[method].run(Watched(model, break_off), FEW)
    assert searched.interrupted
    assert searched.method == method
    assert searched.dram_bytes == assert_legal(model, searched.groups)
    assert searched.lower_bound_bytes <= whole.dram_bytes <= searched.dram_bytes or not METHODS[method].proves


def test_ctrl_c_while_operators_change_groups_keeps_the_larger_group() -> None:
    model = model_for(ladder(2), Hardware(1 << 30))
    partitions = Partitions(model)
    blocks = [1 << i for i in range(len(model.dataflow))]
    blocks[0] = 0b11  # the second operator has not been told yet
    scheme = one_scheme(
        "tvm", partitions, SearchBudget(model, SearchOptions(), lambda: partitions.asked), blocks
    )
    assert scheme.groups[0] == 0b11
    assert scheme.dram_bytes == assert_legal(model, scheme.groups)


def test_exact_says_no_bytes_before_it_has_a_plan() -> None:
    told: list[int | None] = []
    solve(
        model_for(ladder(), Hardware(3 * KIB)),
        SearchOptions(progress=lambda done, total, best, bound: told.append(best)),
    )
    assert told[0] is None
    assert all(best is None or best < 1 << 60 for best in told)
    assert told[-1] is not None or len(told) <= len(ladder().operators)
