"""The exact search finds what trying every fusion scheme finds, and the published totals of real networks."""

from __future__ import annotations

import itertools
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lfopt.app.sweeps import runs_from, search_range
from lfopt.frontend import from_model
from lfopt.fusion import legal
from lfopt.ir import Cost, DoesNotFit, FusionScheme, Graph, Hardware
from lfopt.ops import Dataflow
from lfopt.planning import SCHEMES, GroupCosts, Traffic
from search import exact
from search.exact import solve
from search.options import SearchOptions
from search.result import Result, unfused
from search.staircase import SearchedBuffer, SearchedStairs, search_stairs
from simulator.recount import RecountNetwork
from tests.brute import brute_force
from tests.cases import few, some
from tests.line_buffers import count
from tests.real_networks import network
from tests.strategies import random_block, random_gate, random_graph, random_hardware

KIB = 1024


def optimum(
    graph: Graph, hardware: Hardware, traffic: Traffic = Traffic.ONCE, *, epilogue: bool = False
) -> Result:
    """Solve to optimality, and check that what comes back is what it says."""
    flow = Dataflow.of(graph)
    costs = GroupCosts(flow, hardware, traffic, epilogue=epilogue)
    searched = solve(costs)
    assert searched.proof == "optimal"
    assert searched.lower_bound_bytes == searched.dram_bytes
    assert legal(graph, FusionScheme(tuple(flow.names(group) for group in searched.groups))).legal
    prices = [costs.evaluate(group) for group in searched.groups]
    assert sum(price.dram_bytes for price in prices if isinstance(price, Cost)) == searched.dram_bytes
    assert all(isinstance(price, Cost) for price in prices)
    done = 0
    for group in searched.groups:
        assert all(not flow.preds[i] & ~(done | group) for i in range(len(flow)) if group >> i & 1)
        done |= group
    return searched


def compare(seeds: range, least: int, most: int) -> int:
    """Exact search against brute force on seeded random graphs; the number of schemes brute force tried."""
    tried = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(least, most + 1)))
        hardware, traffic, epilogue = (
            random_hardware(rng, graph),
            list(Traffic)[int(rng.integers(3))],
            bool(rng.random() < 0.5),
        )
        wanted, schemes = brute_force(graph, hardware, traffic, epilogue=epilogue)
        searched = optimum(graph, hardware, traffic, epilogue=epilogue)
        assert searched.dram_bytes == wanted, (
            f"seed {seed}: {len(Dataflow.of(graph))} operators, {hardware}, {traffic}, epilogue {epilogue}"
        )
        tried += schemes
    return tried


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_exact_search_finds_what_trying_every_scheme_finds(first: int) -> None:
    assert compare(some(range(first, first + 250)), 4, 7) > few(2_500)


def test_exact_search_finds_what_trying_every_scheme_of_eight_or_nine_operators_finds() -> None:
    assert compare(some(range(10_000, 10_120)), 8, 9) > few(12_000)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 1000))
def test_exact_search_finds_what_trying_every_scheme_finds_on_many_more(first: int) -> None:
    assert compare(range(50_000 + first, 51_000 + first), 3, 9) > 20_000


# -- passes of limited width, and searches cut short ---------------------------------------------------------


def test_passes_that_keep_one_state_per_size_end_in_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in some(range(20_000, 20_150)):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(5, 11)))
        hardware, traffic, epilogue = (
            random_hardware(rng, graph),
            list(Traffic)[int(rng.integers(3))],
            bool(rng.random() < 0.5),
        )
        wide = optimum(graph, hardware, traffic, epilogue=epilogue)
        with monkeypatch.context() as patched:
            patched.setattr(exact, "FIRST_WIDTH", 1)
            patched.setattr(exact, "WIDER", 2)
            narrow = optimum(graph, hardware, traffic, epilogue=epilogue)
        assert narrow.dram_bytes == wide.dram_bytes, f"seed {seed}"


def test_a_search_cut_short_gives_a_legal_scheme_and_a_bound_that_the_optimum_respects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a clock that goes on by one second whenever it is looked at."""
    looks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(looks)))
    monkeypatch.setattr(exact, "FIRST_WIDTH", 1)
    proofs: list[str] = []
    for seed in some(range(30_000, 30_150)):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 8)
        hardware, flow = random_hardware(rng, graph), Dataflow.of(graph)
        costs = GroupCosts(flow, hardware, Traffic.ONCE, epilogue=False)
        best = optimum(graph, hardware).dram_bytes
        searched = solve(costs, SearchOptions(time_limit=float(rng.choice([0, 10, 20, 40, 80]))))
        assert legal(graph, FusionScheme(tuple(flow.names(group) for group in searched.groups))).legal
        assert searched.lower_bound_bytes <= best <= searched.dram_bytes, f"seed {seed}"
        proofs.append(searched.proof)
    assert {*proofs} == {"bound", "optimal"}


def test_a_search_that_begins_with_a_plan_is_never_worse_and_ends_in_the_same_optimum() -> None:
    for seed in some(range(40_000, 40_150)):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 8)
        costs = GroupCosts(Dataflow.of(graph), random_hardware(rng, graph), Traffic.ONCE, epilogue=False)
        singles = unfused(costs, "exact")
        searched = solve(costs, SearchOptions(start=(singles.groups,)))
        assert searched.dram_bytes == solve(costs).dram_bytes
        stopped = solve(costs, SearchOptions(time_limit=0.0, start=(searched.groups,)))
        assert (stopped.groups, stopped.dram_bytes) == (searched.groups, searched.dram_bytes), f"seed {seed}"


# -- more buffer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("traffic", list(Traffic)[:2])
@pytest.mark.parametrize("epilogue", [False, True])
def test_more_buffer_never_costs_more_bytes(traffic: Traffic, epilogue: bool) -> None:
    steps = 0
    for seed in some(range(40_000, 40_018)):
        graph = random_graph(np.random.default_rng(seed), 7)
        elements = sum(tensor.elements for tensor in graph.tensors.values())
        sizes = np.unique(np.geomspace(8, 4 * elements + 16, 16).astype(int))
        running: dict[int, int] = {}  # buffer -> bytes of its best plan, where that has steps
        for size in sizes.tolist():
            best = optimum(graph, Hardware(size), traffic, epilogue=epilogue)
            if GroupCosts(Dataflow.of(graph), Hardware(size), traffic, epilogue=epilogue).executable(
                best.groups
            ):
                running[size] = best.dram_bytes
        assert [*running] == sizes.tolist()[-len(running) :], f"seed {seed}: {[*running]} of {sizes}"
        fewest = [*running.values()]
        assert fewest == sorted(fewest, reverse=True), f"seed {seed}: {running}"
        steps += len(set(fewest)) - 1
    assert steps > few(18)  # buffers that are worth something


MORE = [pytest.param(name, marks=pytest.mark.slow) for name in ("hf_mobilenet_v2", "hf_resnet18")]


@pytest.mark.parametrize("name", ["tv_squeezenet1_1", *MORE])
@pytest.mark.parametrize(("traffic", "epilogue"), [(Traffic.ONCE, False), (Traffic.TILED, True)])
def test_more_buffer_never_costs_more_bytes_on_real_networks(
    name: str, traffic: Traffic, epilogue: bool
) -> None:
    graph = network(name)
    fewest = [
        optimum(graph, Hardware(kib * KIB), traffic, epilogue=epilogue).dram_bytes
        for kib in (16, 64, 128, 256, 512)
    ]
    assert fewest == sorted(fewest, reverse=True)
    assert fewest[-1] < fewest[0]


# -- reference values ----------------------------------------------------------------------------------------


REFERENCE = [  # element_bytes 2, traffic once, no epilogues
    ("hf_mobilenet_v2", 128, 15_148_896),
    ("hf_mobilenet_v2", 256, 10_934_112),
    ("hf_resnet18", 256, 32_354_976),
    ("tv_squeezenet1_1", 128, 6_891_680),
    ("hf_resnet50", 256, 105_361_568),
    ("hf_efficientnet_b3", 256, 129_272_888),
    ("tv_deeplabv3_mobilenet_v3_large", 256, 156_937_690),
]


@pytest.mark.parametrize(("name", "kib", "dram_bytes"), REFERENCE)
def test_optimum_of_a_real_network_is_the_reference_value(name: str, kib: int, dram_bytes: int) -> None:
    assert optimum(network(name), Hardware(kib * KIB)).dram_bytes == dram_bytes


@pytest.mark.parametrize(
    ("name", "layer_by_layer"), [("hf_mobilenet_v2", 59_717_728), ("hf_efficientnet_b3", 378_152_160)]
)
def test_layer_by_layer_bytes_of_a_real_network_are_the_reference_value(
    name: str, layer_by_layer: int
) -> None:
    net = RecountNetwork(network(name))
    assert sum(count(net, [op], Hardware(256 * KIB)).dram.total for op in net.operators) == layer_by_layer


def test_compulsory_bytes_of_mobilenet_v2_are_the_reference_value() -> None:
    costs = GroupCosts(Dataflow.of(network("hf_mobilenet_v2")), Hardware(256 * KIB), Traffic.ONCE)
    assert costs.bounds.compulsory_bytes == 7_278_688


# -- traps ---------------------------------------------------------------------------------------------------


def small(nodes: list[onnx.NodeProto], outputs: list[str], **inputs: tuple[int, ...]) -> Graph:
    """A network of float maps without weights."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(
        nodes, "small", infos, [helper.make_empty_tensor_value_info(name) for name in outputs]
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())], ir_version=10
    )
    return from_model(onnx.shape_inference.infer_shapes(model))


def test_a_group_that_hangs_together_only_through_its_last_operator_is_found() -> None:
    graph = small(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Relu", ["y"], ["b"]),
            helper.make_node("Add", ["a", "b"], ["z"]),
        ],
        ["z"],
        x=(1, 1, 4, 1),
        y=(1, 1, 4, 1),
    )
    searched = optimum(graph, Hardware(6, element_bytes=1))
    assert searched.groups == (0b111,)
    assert searched.dram_bytes == 3 * 4


def test_a_group_whose_parts_do_not_fit_is_found() -> None:
    """F_beta may fall with an operator: two at different paces keep step once the third joins."""
    graph = small(
        [
            helper.make_node("MaxPool", ["x"], ["top"], kernel_shape=[1, 1], strides=[8, 1]),
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Mul", ["a", "top"], ["z"]),
        ],
        ["z"],
        x=(1, 1, 8, 1),
    )
    hardware = Hardware(5, element_bytes=1)
    costs = GroupCosts(Dataflow.of(graph), hardware, Traffic.ONCE, epilogue=False)
    parts, whole = costs.evaluate(0b011), costs.evaluate(0b111)
    assert isinstance(parts, DoesNotFit)
    assert isinstance(whole, Cost)
    assert whole.buffer_bytes < parts.needed
    searched = optimum(graph, hardware)
    assert searched.groups == (0b111,)
    assert searched.dram_bytes == 8 + 8


def test_an_unknown_operator_rereads_nothing_however_small_the_buffer() -> None:
    """It has a mode of its own in which every tensor moves once: that no tiling of it fits is in no bound."""
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("RandomUniformLike", ["x"], ["y"], "unknown")],
        "unknown",
        [tensor("x", TensorProto.FLOAT, [1, 4, 8, 8])],
        [tensor("y", TensorProto.FLOAT, [1, 4, 8, 8])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    # every element that is moved by itself takes 16 bytes
    chip = Hardware(8, element_bytes=1, dram_row_align=16)
    costs = GroupCosts(Dataflow.of(from_model(model)), chip, scheme="auto")
    alone = costs.price(1)
    assert alone is not None
    assert alone.mode == "opaque"
    assert costs.least_bytes == alone.dram_bytes


# -- staircases ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [*SCHEMES])
@pytest.mark.parametrize("seed", some(range(6)))
def test_every_step_of_a_range_is_what_a_search_on_every_buffer_finds(seed, scheme):
    rng = np.random.default_rng(seed)
    graph = (random_block, random_gate)[seed % 2](rng)
    costs = GroupCosts.of(graph, random_hardware(rng, graph), scheme=scheme)
    low = int(rng.integers(8, 200))
    high = low + int(rng.integers(20, 80))
    swept = search_range(costs, low, high, 60.0, lambda *_: None)
    assert not swept.unresolved
    running = runs_from(costs, low, high)
    assert all(stair.without_steps for stair in swept.stairs if stair.buffer_bytes < running)
    stairs = [stair for stair in swept.stairs if stair.buffer_bytes >= running]
    optima = {size: solve(costs.at(size)).dram_bytes for size in range(running, high + 1)}
    starts = [size for size in optima if optima[size] != optima.get(size - 1)]
    assert [stair.buffer_bytes for stair in stairs] == starts
    assert [stair.dram_bytes for stair in stairs] == [optima[size] for size in starts]
    assert all(stair.lower_bound_bytes == stair.dram_bytes for stair in stairs)


def falling(rng: np.random.Generator, low: int, high: int, steps: int) -> dict[int, int]:
    """Bytes by the size that they begin at: so many random steps down."""
    starts = sorted({low, *rng.integers(low + 1, high + 1, steps).tolist()})
    drops = np.cumsum(rng.integers(1, 100, len(starts))).tolist()
    return dict(zip(starts, reversed(drops), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_a_staircase_takes_few_more_searches_than_it_has_steps(seed):
    rng = np.random.default_rng(seed)
    low, high = 1000, int(rng.integers(1001, 1 << 20))
    steps = falling(rng, low, high, int(rng.integers(0, 60)))
    searches: list[int] = []

    def search_on(
        size: int, start: tuple[tuple[int, ...], ...], bound: int, seconds: float
    ) -> SearchedBuffer:
        searches.append(size)
        begins = max(first for first in steps if first <= size)
        assert bound <= steps[begins]
        return SearchedBuffer((begins,), begins - 1, steps[begins], steps[begins])

    known = SearchedStairs(low, high)
    for _ in search_stairs(known, search_on, 60.0):
        pass
    assert [(stair.buffer_bytes, stair.dram_bytes) for stair in known.stairs()] == [*steps.items()]
    assert not known.unresolved()
    assert len(searches) == len({*searches}) <= 2 * len(steps) + 2


def test_steps_that_nothing_proves_have_a_bound_of_a_larger_buffer_and_are_said():
    def search_on(
        size: int, start: tuple[tuple[int, ...], ...], bound: int, seconds: float
    ) -> SearchedBuffer:
        proven = size == 4000
        dram = 100 if size == 4000 else 150 + (size < 2000)
        return SearchedBuffer((size,), size - 500, dram, 100 if proven else 90, interrupted=size < 2000)

    known = SearchedStairs(1000, 4000)
    for _ in search_stairs(known, search_on, 1.0):
        pass
    first, *_, last = known.stairs()
    assert (last.buffer_bytes, last.dram_bytes, last.lower_bound_bytes) == (3501, 100, 100)
    assert first.dram_bytes > first.lower_bound_bytes == 100
    assert known.unresolved() == [(1000, 3500)]


def test_a_search_that_more_time_would_not_change_is_not_run_again():
    searches: list[int] = []

    def search_on(
        size: int, start: tuple[tuple[int, ...], ...], bound: int, seconds: float
    ) -> SearchedBuffer:
        searches.append(size)
        return SearchedBuffer((size,), size - 1, 10_000 - size, 90, finished=True)

    known = SearchedStairs(100, 120)
    for _ in search_stairs(known, search_on, 60.0):
        pass
    assert sorted(searches) == [*range(100, 121)]
    assert known.unresolved() == [(100, 120)]


def test_there_is_a_step_however_little_time_there_is():
    known = SearchedStairs(1000, 4000)
    for _ in search_stairs(known, lambda size, *_: SearchedBuffer((size,), size - 500, 100, 90), -1.0):
        pass
    assert len(known.stairs()) == 1
    assert known.unresolved()
