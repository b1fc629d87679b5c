"""A second level of memory: what stays is chosen well, moved as planned, counted apart, recounted.

Without one nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from codegen.accel import encode
from codegen.source import Unsupported
from lfopt.app import api
from lfopt.app.files import read_plan, write_plan
from lfopt.app.levels import for_second_level, planned_with_second_level
from lfopt.app.pipeline import load_network
from lfopt.app.plans import make_draft
from lfopt.app.sweeps import Sweep, runs_from, search_range
from lfopt.ir import (
    DramTensor,
    FusionScheme,
    Graph,
    Hardware,
    InvalidConfig,
    L2Bytes,
    Loop,
    Node,
    Plan,
    PlannedGroup,
    Transfer,
)
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, Traffic, plan
from lfopt.planning.costs.spared import SCALE, Spared
from lfopt.planning.costs.two_levels import bound_with_second_level
from lfopt.planning.plans.outlines import DRAM_ALIGN
from lfopt.planning.plans.second_level import SecondLevelCandidate, choose
from lfopt.planning.steps.addresses import Life, allocate, peak_bytes
from search.exact import solve
from search.options import SearchOptions
from simulator.interpreter.execute import Violation, execute
from simulator.model.simulate import simulate
from simulator.recount import recount
from tests.agreement import differing
from tests.cases import some
from tests.random_plans import SCHEMES, drawn, random_scheme
from tests.strategies import random_graph, random_hardware

LEVELS = (64, 320, 1000, 1 << 20)  # bytes


def in_two_levels(graph: Graph, hardware: Hardware, scheme: str, seed: int) -> Plan:
    """The plan of groups drawn at random."""
    costs = GroupCosts.of(graph, replace(hardware, l2_bytes=0), scheme=scheme)
    names = tuple(costs.dataflow.names(group) for group in random_scheme(costs, seed))
    planned = plan(graph, FusionScheme(names), hardware, modes=scheme, max_recompute=costs.max_recompute)
    assert isinstance(planned, Plan)
    return planned


# -- one truth -----------------------------------------------------------------------------------------------


FEW, MANY = range(7), range(7, 120)
INTEGERS, MORE_INTEGERS = range(10_000, 10_004), range(10_004, 10_060)


@pytest.mark.parametrize(
    ("seeds", "integers"),
    [
        (FEW, False),
        (INTEGERS, True),
        pytest.param(MANY, False, marks=pytest.mark.slow),
        pytest.param(MORE_INTEGERS, True, marks=pytest.mark.slow),
    ],
    ids=["floats", "integers", "many more", "many more in integers"],
)
def test_bytes_of_both_memories_are_planned_executed_and_recounted_alike(
    seeds: range, *, integers: bool
) -> None:
    """In every scheme; the second level holds none, some or all of what groups leave each other."""
    seen = Counter[str]()
    for seed in seeds:
        graph, hardware, inputs = drawn(np.random.default_rng(seed), integers=integers)
        wanted = reference(graph, inputs)
        for number, scheme in enumerate(SCHEMES):
            levelled = in_two_levels(
                graph, replace(hardware, l2_bytes=LEVELS[(seed + number) % len(LEVELS)]), scheme, seed
            )
            what, done, counts = (
                f"seed {seed}, {scheme}",
                execute(levelled, graph, inputs),
                recount(graph, levelled),
            )
            assert counts.agrees, f"{what}: {counts.discrepancies}"
            assert not differing(done.outputs, wanted), what
            planned = [(group.dram, group.l2) for group in levelled.groups if group.steps]
            assert planned == [(group.dram, group.l2) for group in done.groups if not group.by_formula], what
            report = simulate(levelled, graph)
            assert not report.disagreements and done.l2 == report.l2, what
            assert counts.l2_bytes == levelled.totals.l2_bytes == report.l2.total, what
            # nothing was searched: the bound is at least what no plan of groups avoids
            once = GroupCosts.of(graph, levelled.hardware, scheme=scheme).unfused().bounds.once_bytes
            assert (
                counts.dram_bytes
                == levelled.totals.dram_bytes
                >= levelled.totals.lower_bound_bytes
                >= once
                >= levelled.totals.compulsory_bytes
            ), what
            memories = Counter(entry.memory for entry in levelled.memory if entry.role == "map")
            seen.update(
                [
                    levelled.search.l2,
                    *(memory for memory in memories if memory == "l2"),
                    *(["both"] if len(memories) == 2 else []),
                ]
            )
    plans = len(seeds) * len(SCHEMES)
    assert seen["l2"] > 0.2 * plans and seen["both"] > 0.05 * plans and seen["exact"] > 0.9 * plans, seen


def test_a_second_level_never_adds_dram_bytes_and_a_larger_one_moves_no_more() -> None:
    for seed in range(9):
        graph, hardware, _ = drawn(np.random.default_rng(seed))
        plans = [
            in_two_levels(graph, replace(hardware, l2_bytes=size), "auto", seed) for size in (0, *LEVELS)
        ]
        moved = [levelled.totals.dram_bytes for levelled in plans]
        assert moved == sorted(moved, reverse=True)
        assert len({levelled.totals.dram_bytes + levelled.totals.l2_bytes for levelled in plans}) == 1


# -- what stays ----------------------------------------------------------------------------------------------


def drawn_candidates(rng: np.random.Generator, count: int) -> tuple[list[SecondLevelCandidate], int]:
    """Maps of some plan, and a second level for some of them."""
    candidates: list[SecondLevelCandidate] = []
    for k in range(count):
        first = int(rng.integers(0, count))
        size = DRAM_ALIGN * int(rng.integers(1, 9))
        candidates.append(
            SecondLevelCandidate(
                f"m{k}", Life(size, first, first + int(rng.integers(0, 4))), size * int(rng.integers(2, 5))
            )
        )
    return candidates, int(rng.integers(1, 12 * DRAM_ALIGN))


def test_no_other_maps_that_fit_spare_more() -> None:
    """Against all subsets of up to 9 maps, by the allocator; exact choices by live bytes alone, too."""
    choices = Counter[str]()
    for seed in range(150):
        rng = np.random.default_rng(seed)
        candidates, capacity = drawn_candidates(rng, int(rng.integers(0, 10)))
        level = choose(candidates, capacity)
        spared = sum(one.spared for one in candidates if one.name in level.addresses)
        subsets = [some for size in range(len(candidates) + 1) for some in combinations(candidates, size)]
        fitting = [some for some in subsets if allocate([one.life for one in some])[1] <= capacity]
        best = max(sum(one.spared for one in some) for some in fitting)
        most = max(
            sum(one.spared for one in some)
            for some in subsets
            if peak_bytes(one.life for one in some) <= capacity // DRAM_ALIGN * DRAM_ALIGN
        )
        assert spared <= best <= most
        assert spared == most if level.choice == "exact" else spared > 0.8 * best, (seed, spared, best, most)
        placed = sorted(
            (level.addresses[one.name], one.life) for one in candidates if one.name in level.addresses
        )
        for (low, a), (high, b) in combinations(placed, 2):
            assert low + a.bytes <= high or a.last < b.first or b.last < a.first
        assert all(at % DRAM_ALIGN == 0 and at + life.bytes <= capacity for at, life in placed)
        choices[level.choice] += 1
    assert choices["exact"] > 140


def test_many_maps_at_once_are_chosen_by_a_heuristic_that_still_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lfopt.planning.plans.second_level.WIDEST", 16)
    rng = np.random.default_rng(0)
    candidates = [
        SecondLevelCandidate(
            f"m{k}", Life(DRAM_ALIGN * int(rng.integers(1, 9)), k // 4, k // 4 + 6), int(rng.integers(1, 999))
        )
        for k in range(60)
    ]
    level = choose(candidates, 40 * DRAM_ALIGN)
    kept = [one for one in candidates if one.name in level.addresses]
    assert level.choice == "heuristic" and kept
    assert peak_bytes(one.life for one in kept) <= 40 * DRAM_ALIGN


@pytest.mark.parametrize("seed", range(8))
def test_groups_priced_as_if_maps_stayed_are_those_that_spare_the_most(seed: int) -> None:
    """No random partition has a weighted sum below the bound that the search proves."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(3, 9)))
    costs = GroupCosts.of(graph, replace(random_hardware(rng, graph), l2_bytes=1 << 12), scheme="auto")
    staying = {tensor.name for tensor in costs.dataflow.maps if rng.random() < 0.6}
    model = Spared(costs, staying)
    solution = solve(model, SearchOptions())
    for other in range(40):
        groups = random_scheme(costs, other)
        value = sum(price.dram_bytes for group in groups if (price := model.price(group)) is not None)
        assert value >= solution.lower_bound_bytes
        assert value <= SCALE * costs.dram_bytes(groups)
    prices = map(model.price, solution.groups)
    assert sum(price.dram_bytes for price in prices if price is not None) == solution.dram_bytes


def test_other_groups_than_those_of_the_fewest_bytes_may_move_less_once_maps_stay() -> None:
    graph = load_network("zoo:squeezenet1_1", {"image": (1, 3, 64, 64)}, "default", weights=False)
    costs = GroupCosts.of(graph, Hardware(16 << 10, l2_bytes=64 << 10), scheme="auto")
    first = solve(costs, SearchOptions(passes=1))
    best = for_second_level(costs, first, lambda solution: make_draft(graph, costs, solution, 0), None)
    before, after = (make_draft(graph, costs, solution, 0).plan.totals for solution in (first, best))
    assert costs.dram_bytes(best.groups) > costs.dram_bytes(first.groups)
    assert after.dram_bytes - after.compulsory_bytes < 0.7 * (before.dram_bytes - before.compulsory_bytes)


def test_a_richer_scheme_never_moves_more_with_a_second_level() -> None:
    differing_schemes = 0
    for seed in some(range(60)):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(4, 10)))
        sizes = [int(size) for size in rng.integers([100, 200], [800, 4000])]
        chip = Hardware(sizes[0], l2_bytes=sizes[1])
        moved = {
            scheme: api.search(graph, hardware=chip, scheme=scheme, objective="bytes").plan.totals.dram_bytes
            for scheme in ("lbdf", "brr", "resident", "auto", "all")
        }
        assert moved["auto"] <= min(moved["lbdf"], moved["brr"], moved["resident"]), seed
        assert moved["all"] <= moved["auto"], seed
        differing_schemes += len({*moved.values()}) > 1
    assert differing_schemes


def test_a_level_that_holds_no_map_leaves_the_proof_as_it_is() -> None:
    graph = load_network("zoo:fsrcnn", {"image": (1, 1, 96, 96)}, "default", weights=False)
    chip = Hardware(32 << 10)
    costs = GroupCosts.of(graph, chip)
    proven = solve(costs).lower_bound_bytes
    smallest = min(costs.groups.map_bytes)
    for size in (64, smallest - 1):
        level = GroupCosts.of(graph, replace(chip, l2_bytes=size))
        assert bound_with_second_level(level, proven) == proven
    level = GroupCosts.of(graph, replace(chip, l2_bytes=1 << 30))
    assert bound_with_second_level(level, proven) == level.bounds.once_bytes < proven


@pytest.mark.parametrize("seed", some(range(30)))
def test_no_plan_with_a_second_level_moves_less_than_its_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(3, 9)))
    chip = random_hardware(rng, graph)
    scheme = ("lbdf", "auto")[seed % 2]
    proven = solve(GroupCosts.of(graph, chip, scheme=scheme)).lower_bound_bytes
    before = proven
    for size in LEVELS:
        costs = GroupCosts.of(graph, replace(chip, l2_bytes=size), scheme=scheme)
        bound = bound_with_second_level(costs, proven)
        assert bound <= before, "a larger level may hold more"
        before = bound
        _, totals = planned_with_second_level(costs, solve(costs), None)
        assert bound <= totals.dram_bytes


@pytest.mark.slow
def test_a_map_that_stays_may_be_loaded_again_instead_of_weights() -> None:
    graph = load_network("zoo:resnet18", {}, "default", weights=False)
    costs = GroupCosts.of(graph, Hardware(64 << 10, l2_bytes=1 << 20), scheme="auto")
    first = solve(costs)
    plain = make_draft(graph, costs, first, 0).plan
    best, totals = planned_with_second_level(costs, first, None)
    assert totals.dram_bytes < 0.97 * plain.totals.dram_bytes
    again = make_draft(graph, costs, best, 0).plan
    assert (
        again.totals.dram_bytes == totals.dram_bytes and recount(graph, again).dram_bytes == totals.dram_bytes
    )


# -- ranges of buffers ---------------------------------------------------------------------------------------


def swept_range(seed: int, scheme: str, l2_bytes: int) -> tuple[GroupCosts, int, int, Sweep]:
    """(costs, smallest and largest buffer, the steps between them) of a network drawn at random."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 6)
    hardware = replace(random_hardware(rng, graph), l2_bytes=l2_bytes)
    costs = GroupCosts.of(graph, hardware, scheme=scheme)
    low = runs_from(costs, 16, 1 << 20)
    return costs, low, 4 * low, search_range(costs, low, 4 * low, 60.0, lambda *_: None)


@pytest.mark.parametrize("scheme", ["lbdf", "auto", "all"])
@pytest.mark.parametrize("seed", some(range(5)))
def test_a_range_has_a_row_for_every_step_that_searches_on_its_ends_know(seed: int, scheme: str) -> None:
    costs, low, high, swept = swept_range(seed, scheme, LEVELS[seed % 3])
    moved = [stair.dram_bytes for stair in swept.stairs]
    assert moved == sorted(moved, reverse=True)
    for size in (low, high):
        here = costs.at(size)
        _, totals = planned_with_second_level(here, solve(here), None)
        (*_, stair) = (stair for stair in swept.stairs if stair.buffer_bytes <= size)
        assert stair.dram_bytes <= totals.dram_bytes
        assert stair.lower_bound_bytes <= totals.dram_bytes
        open_here = any(first <= size <= last for first, last in swept.unresolved)
        assert open_here == (stair.dram_bytes > stair.lower_bound_bytes)


@pytest.mark.parametrize("scheme", ["lbdf", "auto"])
def test_a_level_that_holds_no_map_leaves_the_steps_of_a_range_and_their_proofs(scheme: str) -> None:
    costs, low, high, swept = swept_range(3, scheme, 1)
    assert not swept.unresolved
    without = GroupCosts.of(costs.dataflow.graph, replace(costs.hardware, l2_bytes=0), scheme=scheme)
    assert swept == search_range(without, low, high, 60.0, lambda *_: None)


@pytest.mark.parametrize("scheme", ["lbdf", "auto"])
@pytest.mark.parametrize("seed", some(range(5)))
def test_a_plan_in_two_levels_moves_the_same_on_every_buffer_that_its_groups_fit(
    seed: int, scheme: str
) -> None:
    """What the steps of a range rest on."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 6)
    costs = GroupCosts.of(graph, replace(random_hardware(rng, graph), l2_bytes=320), scheme=scheme)
    large = costs.at(8 * runs_from(costs, 16, 1 << 20))
    best, totals = planned_with_second_level(large, solve(large), None)
    prices = [price for price in map(large.price, best.groups) if price is not None]
    small = costs.at(max(price.buffer_bytes for price in prices) + 1)
    for mask in best.groups:
        small.take(mask, large.taken(mask))
    again = make_draft(graph, small, best, 0).finished()
    assert again.hardware.buffer_bytes <= large.hardware.buffer_bytes
    assert recount(graph, again).dram_bytes == again.totals.dram_bytes == totals.dram_bytes


# -- what is refused -----------------------------------------------------------------------------------------


@cache
@cache
def small() -> tuple[Graph, Plan]:
    """A plan of several groups with maps in both memories."""
    for seed in range(200):
        graph, hardware, _ = drawn(np.random.default_rng(seed))
        levelled = in_two_levels(graph, replace(hardware, l2_bytes=640), "auto", seed)
        memories = Counter(entry.memory for entry in levelled.memory if entry.role == "map")
        if (
            memories["l2"] > 1
            and memories["dram"]
            and all(group.steps for group in levelled.groups)
            and alive_after(levelled)
            and recount(graph, levelled).agrees
        ):
            return graph, levelled
    raise AssertionError("no such plan")


def alive_together(levelled: Plan) -> list[tuple[str, str]]:
    """Pairs of maps in the second level that are needed at the same time."""
    kept = kept_names(levelled)
    spans = {
        name: [g.id for g in levelled.groups if name in (*g.inputs, *g.outputs, *g.spilled)] for name in kept
    }
    return [
        (a, b)
        for a, b in combinations(kept, 2)
        if spans[a][0] <= spans[b][-1] and spans[b][0] <= spans[a][-1]
    ]


def with_entry(levelled: Plan, name: str, **changes: object) -> Plan:
    return replace(
        levelled,
        memory=tuple(replace(entry, **changes) if entry.name == name else entry for entry in levelled.memory),
    )  # type: ignore[arg-type]


def kept_names(levelled: Plan) -> list[str]:
    return [entry.name for entry in levelled.memory if entry.memory == "l2"]


def kept(levelled: Plan) -> DramTensor:
    return next(entry for entry in levelled.memory if entry.memory == "l2")


def rewritten(nodes: tuple[Node, ...], change: Callable[[Transfer], Transfer]) -> tuple[Node, ...]:
    return tuple(
        replace(node, body=rewritten(node.body, change))
        if isinstance(node, Loop)
        else change(node)
        if isinstance(node, Transfer)
        else node
        for node in nodes
    )


def with_steps(levelled: Plan, change: Callable[[Transfer], Transfer]) -> Plan:
    return replace(
        levelled,
        groups=tuple(replace(group, steps=rewritten(group.steps, change)) for group in levelled.groups),
    )


def first_group(levelled: Plan, change: Callable[[PlannedGroup], PlannedGroup]) -> Plan:
    at = next(k for k, group in enumerate(levelled.groups) if group.l2.total)
    return replace(
        levelled, groups=tuple(change(group) if k == at else group for k, group in enumerate(levelled.groups))
    )


def alive_after(levelled: Plan) -> list[tuple[str, str]]:
    """Those pairs of which a later group than that which makes the one reads the other."""
    reads = {name: [g.id for g in levelled.groups if name in g.inputs] for name in kept_names(levelled)}
    makes = {
        name: [g.id for g in levelled.groups if name in (*g.outputs, *g.spilled)]
        for name in kept_names(levelled)
    }
    return [
        (a, b)
        for a, b in alive_together(levelled)
        if any(makes[a][0] < made < read for made in makes[b] for read in reads[a])
    ]


def overlapping(levelled: Plan) -> Plan:
    one, other = alive_after(levelled)[0]
    address = next(entry.address for entry in levelled.memory if entry.name == one)
    return with_entry(levelled, other, address=address)


def dram_as_l2(levelled: Plan) -> Plan:
    """The bytes of the second level said to be DRAM's, of a group and of the whole."""
    moved = next(group.l2 for group in levelled.groups if group.l2.total)

    def change(group: PlannedGroup) -> PlannedGroup:
        return replace(
            group,
            l2=L2Bytes(),
            dram=replace(
                group.dram, input=group.dram.input + moved.read, output=group.dram.output + moved.written
            ),
        )

    totals = replace(
        levelled.totals,
        dram_bytes=levelled.totals.dram_bytes + moved.total,
        l2_bytes=levelled.totals.l2_bytes - moved.total,
    )
    return replace(first_group(levelled, change), totals=totals)


LIES: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "two maps in the same bytes at once": (overlapping, "lies over"),
    "a map beyond the end": (lambda p: with_entry(p, kept(p).name, address=640), "of the second level"),
    "a map before the beginning": (lambda p: with_entry(p, kept(p).name, address=-64), "of the second level"),
    "a map that lies askew": (
        lambda p: with_entry(p, kept(p).name, address=kept(p).address + 1), "of the second level",
    ),
    "a second level that is smaller": (
        lambda p: replace(p, hardware=replace(p.hardware, l2_bytes=64)), "of the second level",
    ),
    "a chip without one": (
        lambda p: replace(p, hardware=replace(p.hardware, l2_bytes=0)), "the chip has no second level",
    ),
    "a graph input in the second level": (
        lambda p: with_entry(p, next(e.name for e in p.memory if e.role == "input"), memory="l2"),
        "lies in the second level",
    ),
    "a map moved by way of DRAM": (
        lambda p: with_entry(p, kept(p).name, memory="dram"), "and it lies in DRAM",
    ),
    "every transfer by way of the second level": (
        lambda p: with_steps(p, lambda t: replace(t, kind="l2")), "and it lies in DRAM",
    ),
    "no transfer by way of the second level": (
        lambda p: with_steps(
            p, lambda t: replace(t, kind="output" if t.store else "input") if t.kind == "l2" else t,
        ),
        "lies in the second level",
    ),
    "fewer bytes of the second level": (
        lambda p: first_group(p, lambda g: replace(g, l2=L2Bytes(g.l2.read, g.l2.written + 1))),
        "second level",
    ),
    "fewer DRAM bytes": (
        lambda p: first_group(p, lambda g: replace(g, dram=replace(g.dram, weight=g.dram.weight - 1))),
        "weight bytes",
    ),
    "bytes of the second level as DRAM's": (dram_as_l2, "second level"),
    "another total": (
        lambda p: replace(p, totals=replace(p.totals, l2_bytes=p.totals.l2_bytes + 64)), "totals.l2_bytes",
    ),
    "a choice that nobody made": (lambda p: replace(p, search=replace(p.search, l2="none")), "search.l2"),
    "groups in another order": (
        lambda p: replace(p, groups=tuple(replace(g, id=k) for k, g in enumerate(reversed(p.groups)))),
        "which runs later",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_plan_that_lies_about_its_second_level_is_found_out(lie: str) -> None:
    (graph, levelled), (tell, why) = small(), LIES[lie]
    recounted = recount(graph, tell(levelled))
    assert any(why in line for line in recounted.discrepancies), recounted.discrepancies


@pytest.mark.parametrize(
    "lie",
    [
        "two maps in the same bytes at once",
        "a map beyond the end",
        "groups in another order",
        "a map moved by way of DRAM",
    ],
)
def test_an_execution_stops_where_the_second_level_cannot_do_it(lie: str) -> None:
    """What is read is there no longer, was never written, or lies elsewhere."""
    graph, levelled = small()
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.standard_normal(graph.shape(name)).astype(graph.tensors[name].dtype)
        for name in graph.inputs
    }
    execute(levelled, graph, inputs)
    with pytest.raises(Violation, match=r"second level|DRAM|no group before has made it"):
        execute(LIES[lie][0](levelled), graph, inputs)


def test_chips_with_a_second_level_are_refused_where_it_means_nothing() -> None:
    graph, levelled = small()
    with pytest.raises(
        Unsupported, match=r"hardware\.l2_bytes: found 640; the accelerator has no second level"
    ):
        encode(levelled, graph)
    for traffic in (Traffic.ONCE, Traffic.PAPER):
        with pytest.raises(InvalidConfig, match=r"hardware\.l2_bytes: found 640 with traffic"):
            GroupCosts.of(graph, levelled.hardware, traffic)
    with pytest.raises(InvalidConfig, match=r"hardware\.l2_bytes"):
        Hardware(1024, l2_bytes=-1)


# -- files ---------------------------------------------------------------------------------------------------


def test_a_plan_says_of_a_second_level_what_it_read(tmp_path: Path) -> None:
    _, levelled = small()
    write_plan(levelled, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == levelled


def test_without_a_second_level_no_plan_says_anything_of_one(tmp_path: Path) -> None:
    graph, levelled = small()
    names = FusionScheme(tuple(group.nodes for group in levelled.groups))
    plain = plan(graph, names, replace(levelled.hardware, l2_bytes=0), modes="auto")
    assert isinstance(plain, Plan)
    write_plan(plain, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    assert not any(said in text for said in ('"l2', '"memory": "dram"', " l2 "))
    assert read_plan(tmp_path / "plan.json") == plain
