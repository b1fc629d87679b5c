"""The exact search equals enumeration in every scheme; `auto` is never worse than one mode alone."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import product
from operator import or_

import numpy as np
import pytest

from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import find_plan, load_network
from lfopt.fusion import legal
from lfopt.ir import Cost, DoesNotFit, FusionScheme, Graph, Hardware, InvalidConfig
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.modes.brr import BrrMode
from search.exact import solve
from search.result import Result
from tests.brute import Oracle, brute_force, prices
from tests.cases import few, some
from tests.row_networks import SAME, network
from tests.search.random_jobs import random_job
from tests.strategies import random_graph, random_hardware, with_weight_buffer

KIB = 1024
SCHEMES: tuple[str, ...] = ("lbdf", "brr", "resident", "auto")


def optimum(costs: GroupCosts) -> Result:
    """Solve to optimality, and check that what comes back is what it says."""
    flow = costs.dataflow
    best = solve(costs)
    assert best.proof == "optimal"
    assert best.lower_bound_bytes == best.dram_bytes
    assert legal(flow.graph, FusionScheme(tuple(flow.names(group) for group in best.groups))).legal
    assert (
        sum(costs.dram(group).total for group in best.groups if not group & costs.excluded) == best.dram_bytes
    )
    for group in best.groups:
        cost = costs.evaluate(group)
        assert isinstance(cost, Cost)
        assert cost.mode in (
            *(SCHEMES[:3] if costs.scheme == "auto" else (costs.scheme,)),
            "tiled",
            "opaque",
            "excluded",
        )
        assert (
            cost.mode in ("tiled", "access", "opaque", "excluded")
            or cost.buffer_bytes < costs.hardware.buffer_bytes
        )
    return best


def some_case(
    seed: int, least: int, most: int, *, split: bool = False
) -> tuple[np.random.Generator, Graph, Hardware]:
    """`split`: a chip whose weights have a buffer of their own."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(least, most + 1)))
    hardware = random_hardware(rng, graph)
    return rng, graph, with_weight_buffer(rng, graph, hardware) if split else hardware


# -- against brute force -------------------------------------------------------------------------------------


def compare(scheme: str, seeds: range, least: int, most: int, *, split: bool = False) -> int:
    """Exact search against brute force on seeded random graphs; the number of schemes brute force tried."""
    tried = 0
    for seed in seeds:
        rng, graph, hardware = some_case(seed, least, most, split=split)
        traffic, epilogue = (
            list(Traffic)[int(rng.integers(3 if scheme in ("lbdf", "brr") and not split else 2))],
            bool(rng.random() < 0.5),
        )
        wanted, schemes = brute_force(graph, hardware, traffic, epilogue=epilogue, scheme=scheme)
        best = optimum(GroupCosts(Dataflow.of(graph), hardware, traffic, scheme=scheme, epilogue=epilogue))
        assert best.dram_bytes == wanted, (
            f"seed {seed}, scheme {scheme}: {hardware}, {traffic}, epilogue {epilogue}"
        )
        tried += schemes
    return tried


@pytest.mark.parametrize("scheme", ["resident", "brr", "auto"])
def test_exact_search_finds_what_trying_every_scheme_finds(scheme: str) -> None:
    assert compare(scheme, some(range(100_000, 100_120)), 4, 7) > few(800)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_exact_search_finds_it_with_a_weight_buffer_too(scheme: str) -> None:
    assert compare(scheme, some(range(110_000, 110_025)), 4, 7, split=True) > few(100)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_exact_search_finds_it_with_a_weight_buffer_on_many_more(scheme: str) -> None:
    assert compare(scheme, range(120_000, 121_000), 3, 9, split=True) > 15_000


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["resident", "brr", "auto"])
@pytest.mark.parametrize("first", range(200_000, 204_000, 1000))
def test_exact_search_finds_what_trying_every_scheme_finds_on_many_more(scheme: str, first: int) -> None:
    assert compare(scheme, range(first, first + 1000), 3, 9) > 15_000


def compare_bounds(scheme: str, seeds: range, least: int, most: int, *, split: bool = False) -> int:
    """Check what the exact search grows groups with; returns how many legal groups were looked at."""
    groups = 0
    for seed in seeds:
        rng, graph, hardware = some_case(seed, least, most, split=split)
        flow, epilogue = Dataflow.of(graph), bool(rng.random() < 0.5)
        costs = GroupCosts(flow, hardware, scheme=scheme, epilogue=epilogue)
        price = prices(graph, hardware, costs.traffic, epilogue=epilogue, scheme=scheme)
        for mask in Oracle(graph).legal_groups():
            what = f"seed {seed}, scheme {scheme}, {hardware}, group {flow.names(mask)}"
            cost, wanted = costs.evaluate(mask), price(mask)
            assert (cost.dram_bytes if isinstance(cost, Cost) else None) == wanted, what
            if wanted is None:
                assert isinstance(cost, DoesNotFit), what
                assert cost.needed >= cost.available, what
                continue
            groups += 1
            floor, dram, part = None, 0, 0
            for op in bits(mask):
                assert not part or costs.may_grow(part, floor), (
                    f"{what} cannot be reached by growing {flow.names(part)}"
                )
                assert not mask & ~costs.compatible[op], (
                    f"{what}: {flow.names(mask & ~costs.compatible[op])} are not compatible with "
                    f"{flow.names(1 << op)}"
                )
                floor, dram = costs.grow(part, floor, dram, op)
                part |= 1 << op
            through = isinstance(cost, Cost) and cost.mode == "access"
            assert dram <= wanted or (through and mask & (mask - 1) == 0), what
            before = reduce(or_, (flow.ancestors[op] for op in bits(mask))) & ~mask
            outside = (
                (m, (flow.readers[m] & ~mask).bit_count()) for i in bits(mask) for m in flow.results[i]
            )
            # all loads but one are not in the rest
            later = sum(costs.groups.map_bytes[m] * (readers - 1) for m, readers in outside if readers > 1)
            assert wanted + later >= -costs.rest_bytes(before, 0, mask), (
                f"{what}: moves {wanted}, and takes more off what is left to move"
            )
    return groups


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_legal_group_can_be_reached_by_growing_and_moves_what_it_takes_off_the_bound(
    scheme: str,
) -> None:
    assert compare_bounds(scheme, some(range(300_000, 300_060)), 3, 7) > few(600)


@pytest.mark.parametrize("scheme", [*SCHEMES, "all"])
def test_so_can_every_legal_group_of_a_chip_with_a_weight_buffer(scheme: str) -> None:
    assert compare_bounds(scheme, some(range(310_000, 310_012)), 3, 6, split=True) > few(60)


def test_what_does_not_fit_names_the_buffer_that_is_too_small() -> None:
    """Two 3 x 3 convolutions, 4 channels, 8 x 8: 288 bytes of weights, rings of 3, 3, 1 rows of 32."""
    graph = network(
        [("Conv", "x v", "t", SAME), ("Conv", "t w", "y", SAME)], 8, {"v": (4, 4, 3, 3), "w": (4, 4, 3, 3)}
    )

    def evaluated(buffer: int, weights: int) -> Cost | DoesNotFit:
        return GroupCosts.of(graph, Hardware(buffer, element_bytes=1, weight_buffer_bytes=weights)).evaluate(
            0b11
        )

    fits = evaluated(225, 289)
    assert isinstance(fits, Cost)
    assert (fits.mode, fits.buffer_bytes, fits.required_bytes) == ("lbdf", 224, 224)
    for buffer, weights, store, needed, available in (
        (224, 289, "buffer", 224, 224),
        (225, 288, "weight buffer", 288, 288),
    ):
        cost = evaluated(buffer, weights)
        assert isinstance(cost, DoesNotFit)
        assert (cost.store, cost.needed, cost.available) == (store, needed, available)
        assert sum(use.bytes for use in cost.uses if use.kind == "weights") == 288
        assert sum(use.bytes for use in cost.uses if use.kind == "map") == 224


def test_more_of_either_buffer_never_costs_more_bytes() -> None:
    better = 0
    for seed in range(320_000, 320_012):
        _, graph, hardware = some_case(seed, 3, 6, split=True)
        flow, moved = Dataflow.of(graph), dict[tuple[int, int], int]()
        for m, w in product(range(3), range(3)):
            sizes = {
                "buffer_bytes": hardware.buffer_bytes << m,
                "weight_buffer_bytes": hardware.weight_buffer_bytes << w,
            }
            moved[m, w] = solve(GroupCosts(flow, replace(hardware, **sizes), scheme="auto")).dram_bytes
        for (m, w), size in moved.items():
            assert size <= min(moved.get((m - 1, w), size), moved.get((m, w - 1), size)), f"seed {seed}"
        better += moved[0, 2] < moved[0, 0]
    assert better > 1


# -- schemes against each other, and more buffer -------------------------------------------------------------


def least_by_scheme(
    flow: Dataflow, hardware: Hardware, traffic: Traffic, *, epilogue: bool
) -> dict[str, int]:
    return {
        scheme: optimum(GroupCosts(flow, hardware, traffic, scheme=scheme, epilogue=epilogue)).dram_bytes
        for scheme in SCHEMES
    }


def test_auto_is_never_worse_than_one_mode_alone() -> None:
    better = 0
    for seed in some(range(400_000, 400_240)):
        rng, graph, hardware = some_case(seed, 4, 12)
        least = least_by_scheme(
            Dataflow.of(graph),
            hardware,
            list(Traffic)[int(rng.integers(2))],
            epilogue=bool(rng.random() < 0.5),
        )
        alone = min(least[scheme] for scheme in SCHEMES if scheme != "auto")
        assert least["auto"] <= alone, f"seed {seed}, {hardware}: {least}"
        better += least["auto"] < alone
    assert better > few(6)


def test_a_group_of_the_simpler_problem_moves_no_more_in_auto() -> None:
    """So that what line buffers alone give is a scheme to begin with."""
    groups = 0
    for seed in some(range(450_000, 450_060)):
        _, graph, hardware = some_case(seed, 4, 8)
        model = GroupCosts(Dataflow.of(graph), hardware, scheme="auto")
        assert model.simpler is not None
        for mask in Oracle(graph).legal_groups():
            if isinstance(before := model.simpler.evaluate(mask), Cost):
                cost = model.evaluate(mask)
                assert isinstance(cost, Cost)
                assert cost.dram_bytes <= before.dram_bytes
                groups += 1
    assert groups > few(500)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("traffic", list(Traffic)[:2])
def test_more_buffer_never_costs_more_bytes(scheme: str, traffic: Traffic) -> None:
    steps = 0
    for seed in some(range(500_000, 500_015)):
        graph = random_graph(np.random.default_rng(seed), 7)
        elements = sum(tensor.elements for tensor in graph.tensors.values())
        sizes = np.unique(np.geomspace(8, 4 * elements + 16, 16).astype(int)).tolist()
        costs = GroupCosts(Dataflow.of(graph), Hardware(sizes[-1]), traffic, scheme=scheme)
        optima = {size: optimum(costs.at(size)) for size in sizes}
        running = [size for size in sizes if costs.at(size).executable(optima[size].groups)]
        assert running == sizes[len(sizes) - len(running) :], f"seed {seed}, {scheme}: {running} of {sizes}"
        moved = [optima[size].dram_bytes for size in running]
        assert moved == sorted(moved, reverse=True), (
            f"seed {seed}, {scheme}: {dict(zip(running, moved, strict=True))}"
        )
        steps += len(set(moved)) - 1
    assert steps > few(18)  # buffers that are worth something


# -- real networks -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    """Real networks without weights, by name."""
    known: dict[str, Dataflow] = {}

    def of(name: str) -> Dataflow:
        if name not in known:
            known[name] = Dataflow.of(load_network(f"zoo:{name}", {}, "default", weights=False))
        return known[name]

    return of


@pytest.mark.parametrize("name", ["resnet18", pytest.param("squeezenet1_1", marks=pytest.mark.slow), "vgg16"])
@pytest.mark.parametrize("kib", [256, pytest.param(1024, marks=pytest.mark.slow)])
def test_auto_is_never_worse_than_one_mode_alone_on_real_networks(real, name: str, kib: int) -> None:
    least = least_by_scheme(
        real(name), Hardware(kib * KIB, element_bytes=1, bias_bytes=4), Traffic.TILED, epilogue=True
    )
    assert least["auto"] <= min(least.values())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_more_buffer_never_costs_more_bytes_on_a_real_network(real, scheme: str) -> None:
    costs = GroupCosts(real("resnet18"), Hardware(KIB, element_bytes=1), scheme=scheme)
    moved = [optimum(costs.at(kib * KIB)).dram_bytes for kib in (64, 128, 256, 512, 1024, 2048, 4096)]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < moved[0]


@pytest.mark.parametrize(
    ("name", "mib", "unread"),
    [
        ("resnet18", 2, 0),
        ("resnet50", 3, 0),
        ("mobilenet_v2", 3, 0),
        # its first windows, in strides of two, never reach the last row and column of the image
        ("squeezenet1_1", 2, 3 * (224**2 - 223**2)),
        ("vgg16", 7, 0),
    ],
)
def test_where_every_map_fits_nothing_but_the_compulsory_bytes_moves(
    real, name: str, mib: int, unread: int
) -> None:
    costs = GroupCosts(real(name), Hardware(mib * KIB * KIB, element_bytes=1, bias_bytes=4), scheme="auto")
    # a bias may be a constant of one byte in another spelling of the network, and so counts one in the bound
    biases = sum(w.elements for weights in costs.dataflow.weights for w in weights if w.bias)
    assert optimum(costs).dram_bytes == costs.bounds.compulsory_bytes + (4 - 1) * biases + unread


def test_late_layers_with_large_weights_stream_them_once(real) -> None:
    """ResNet-18 in 1 MiB: 11.7 MB of weights pass once; first layers in line buffers, others resident."""
    costs = GroupCosts(real("resnet18"), Hardware(1024 * KIB, element_bytes=1, bias_bytes=4), scheme="auto")
    groups = optimum(costs).groups
    assert [cost.mode for group in groups if isinstance(cost := costs.evaluate(group), Cost)] == [
        "lbdf",
        "resident",
    ]
    assert [costs.terms(group).weight_passes for group in groups] == [1, 1]
    assert (
        sum(costs.dram(group).weight for group in groups)
        == costs.groups.weight_bytes(costs.dataflow.everything)[0]
    )


# -- interface -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["resident", "auto"])
def test_the_papers_way_of_counting_knows_no_resident_groups(scheme: str) -> None:
    flow = Dataflow.of(random_graph(np.random.default_rng(1), 3))
    with pytest.raises(InvalidConfig, match="accepted: scheme lbdf or brr"):
        GroupCosts(flow, Hardware(1024), Traffic.PAPER, scheme=scheme)


def test_a_group_that_does_not_fit_is_explained_by_the_mode_that_needs_the_least() -> None:
    seen: set[str] = set()
    for seed in range(600_000, 600_040):
        _, graph, hardware = some_case(seed, 5, 8)
        flow = Dataflow.of(graph)
        costs = GroupCosts(flow, hardware, scheme="auto", epilogue=False)
        for mask in Oracle(graph).legal_groups():
            cost = costs.evaluate(mask)
            if isinstance(cost, DoesNotFit):
                needs = {"lbdf": costs.groups.line_need(mask), "resident": costs.modes["resident"].need(mask)}
                banded = costs.modes["brr"]
                assert isinstance(banded, BrrMode)
                if choices := banded.bands.choices(mask):
                    needs["brr"] = choices[-1].buffer_bytes
                assert costs.least_need(mask) == (min(needs, key=needs.__getitem__), cost.needed)
                assert cost.needed == min(needs.values())
                assert cost.available == hardware.buffer_bytes
                seen.add(min(needs, key=needs.__getitem__))
    assert seen == {"lbdf", "resident", "brr"}


def test_what_is_shared_between_buffer_sizes_does_not_change_prices() -> None:
    for seed in some(range(700_000, 700_020)):
        rng, graph, hardware = some_case(seed, 5, 8)
        flow = Dataflow.of(graph)
        costs = GroupCosts(flow, hardware, scheme="auto")
        sizes = [hardware.buffer_bytes, *(int(s) for s in rng.integers(8, 4 * hardware.buffer_bytes + 16, 3))]
        for size in sizes:
            shared, alone = (
                costs.at(size),
                GroupCosts(flow, replace(hardware, buffer_bytes=size), scheme="auto"),
            )
            optimum(shared)
            for mask in Oracle(graph).legal_groups():
                assert shared.evaluate(mask) == alone.evaluate(mask), (
                    f"seed {seed}, {size} B, {flow.names(mask)}"
                )


def test_more_buffer_finer_alignment_or_a_larger_cap_never_moves_more() -> None:
    compared = 0
    for seed in {*some(range(120)), 125}:  # of 125, a slice is taken of rows that nothing else reads
        graph, costs = random_job(seed, most=9)
        chip = costs.hardware
        larger = replace(chip, buffer_bytes=chip.buffer_bytes + chip.buffer_bytes // 3 + 1)
        finer = replace(chip, channel_align=1)
        for scheme in ("lbdf", "auto", "all"):
            config = Config("random", chip, scheme=scheme, search=SearchConfig(objective="bytes"))
            outcome = find_plan(config, graph=graph)
            if outcome.costs.without_steps(outcome.best.result.groups):
                continue  # what cannot run counts as what must move
            others = [replace(config, hardware=larger)]
            if scheme == "all":
                others.append(replace(config, max_recompute=3.0))
            else:  # maps that stay are not looked for in every order
                others.append(replace(config, hardware=finer))
            for other in others:
                moved = find_plan(other, graph=graph).best.result.dram_bytes
                assert moved <= outcome.best.result.dram_bytes, f"seed {seed}, {scheme}"
                compared += 1
    assert compared > few(300)
