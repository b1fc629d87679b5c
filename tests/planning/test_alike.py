"""What is planned alike: keys of networks, and prices that networks share."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from lfopt.app.pipeline import load_network
from lfopt.ir import Compute, Graph, Hardware, Place, Transfer
from lfopt.ops import Dataflow
from lfopt.ops.alike import structure
from lfopt.ops.excerpt import excerpt
from lfopt.planning import GroupCosts, Limit
from lfopt.planning.costs.alike import Prices, Structures
from lfopt.planning.plans.outlines import plan_groups
from lfopt.planning.steps.renamed import Renaming, renamed
from search.exact import next_groups, solve
from search.options import SearchOptions
from tests.cases import some
from tests.covers import with_copies_before_means, with_random_copies
from tests.random_plans import computable, in_integers, random_inputs
from tests.strategies import random_graph


@pytest.fixture(scope="module")
def gated() -> Graph:
    return load_network("zoo:efficientnet_b0", {"image": (1, 3, 64, 64)}, "default")


def block(graph: Graph, name: str) -> Graph:
    flow = Dataflow.of(graph)
    return excerpt(
        flow, sum(1 << i for operator, i in flow.position.items() if operator.startswith(name + "."))
    )


def test_blocks_that_differ_in_names_and_weights_have_one_structure_and_others_do_not(gated: Graph) -> None:
    structures = [structure(block(gated, f"stage6.block{k}")) for k in (1, 2, 3, 4)]
    assert structures[1] == structures[2] == structures[3] != structures[0]


def test_attributes_shapes_and_what_is_needed_outside_make_another_structure(gated: Graph) -> None:
    one = block(gated, "stage6.block2")
    conv = next(op for op in one.operators if op.name.endswith("depthwise"))
    dilated = replace(conv, attributes={**conv.attributes, "dilations": (2, 2)})
    structures = {
        structure(one),
        structure(replace(one, operators=tuple(dilated if op is conv else op for op in one.operators))),
        structure(replace(one, outputs=(*one.outputs, conv.outputs[0]))),
        structure(
            replace(
                one,
                tensors={**one.tensors, conv.outputs[0]: replace(one.tensors[conv.outputs[0]], dtype="int8")},
            )
        ),
        structure(one.without_unused()),
    }
    assert len(structures) == 4


@pytest.mark.parametrize("integers", [False, True])
def test_shared_prices_are_those_that_each_network_gives_its_groups(*, integers: bool) -> None:
    """Of random networks, and of the same with other copies, on the same chips."""
    chips = [(Hardware(kib << 10), Prices()) for kib in (1, 4, 16)]
    asked = 0
    for seed in some(range(60)):
        rng = np.random.default_rng(seed)
        original = computable(random_graph(rng, int(rng.integers(4, 12))))
        if integers:
            original, _ = in_integers(original, random_inputs(original, rng), rng)
        networks = [original, with_random_copies(original, rng)[0]]
        for graph in networks:
            for chip, prices in chips:
                costs = GroupCosts.of(graph, chip, scheme="all")
                alike = prices.of(costs)
                groups = {
                    mask
                    for first in range(len(costs.dataflow))
                    for mask, _ in next_groups(costs, (1 << first) - 1, 40)
                    if mask
                }
                wrong = [mask for mask in sorted(groups) if alike.price(mask) != costs.price(mask)]
                assert not wrong, f"seed {seed}: groups {[costs.dataflow.names(mask) for mask in wrong]}"
                asked += len(groups)
    assert asked - sum(len(prices.groups) for _, prices in chips) > asked / 12


def test_a_search_with_shared_prices_finds_what_it_finds_without(gated: Graph) -> None:
    prices = Prices()
    for chosen in (False, True):
        graph = with_copies_before_means(gated)[0] if chosen else gated
        costs = GroupCosts.of(graph, Hardware(64 << 10), scheme="all")
        assert (
            solve(prices.of(costs), SearchOptions(passes=1)).groups
            == solve(costs, SearchOptions(passes=1)).groups
        )


@pytest.mark.parametrize("scheme", ["all", "auto"])
@pytest.mark.parametrize("kib", [4, 8])
def test_groups_of_one_structure_have_the_steps_that_each_would_have_alone(
    gated: Graph, scheme: str, kib: int, monkeypatch
) -> None:
    costs = GroupCosts.of(gated, Hardware(kib << 10), scheme=scheme)
    groups = solve(costs, SearchOptions(passes=1)).groups
    shared, apart = Limit(), Limit()
    planned = plan_groups(costs, groups, limit=shared)
    monkeypatch.setattr(Structures, "key", lambda self, group: group)
    assert plan_groups(costs, groups, limit=apart) == planned
    assert shared.spent < apart.spent


def test_a_structure_that_was_written_takes_no_more_time(gated: Graph) -> None:
    """Of groups of one structure, the clock stops the first one or none."""
    costs = GroupCosts.of(gated, Hardware(8 << 10), scheme="auto")
    groups, structures = solve(costs, SearchOptions(passes=1)).groups, Structures(costs.dataflow)
    looks = count()
    planned = plan_groups(costs, groups, limit=Limit(lambda: next(looks) > len(groups) + 60))
    assert isinstance(planned, tuple)
    written = {structures.key(mask) for mask, group in zip(groups, planned, strict=True) if group.steps}
    unwritten = {structures.key(mask) for mask, group in zip(groups, planned, strict=True) if group.unwritten}
    assert written and unwritten and not written & unwritten


@pytest.mark.parametrize(
    ("place", "called"),
    [
        ("x", "y"),
        ("x beside", "y beside"),
        ("sums of a", "sums of b"),
        ("x as keys", "y as keys"),
        ("weights", "weights"),
        ("weights~", None),
        ("x~", None),
    ],
)
def test_places_are_renamed_after_what_they_are_called_after(place: str, called: str | None) -> None:
    names = Renaming({"a": "b"}, {"x": "y"})
    renamed_schedule = renamed((Place(place, "map", 0, 1, 8),), (), names, {"x", "y"})
    assert (renamed_schedule[0][0].name if renamed_schedule else None) == called


def test_an_operator_and_a_tensor_of_one_name_are_renamed_apart() -> None:
    """A copy of an operator that is called as its result is: a~1, which makes a~2."""
    places = (Place("a", "map", 0, 1, 8), Place("sums of a", "sum", 8, 1, 8))
    load = Transfer(
        store=False, tensor="a", box=((0, 1),), kind="input", rows=1, row_bytes=8, place=0, slot=0
    )
    steps = (load, replace(load, kind="parameter"), Compute("a", (((0, 1),),), (0,), then=("c",)))
    names = Renaming({"a": "a~1", "c": "c~1"}, {"a": "a~2", "x": "x", "c": "c~2"})
    renamed_schedule = renamed(places, steps, names, {"a", "a~2", "x"})
    assert renamed_schedule is not None
    assert [place.name for place in renamed_schedule[0]] == ["a~2", "sums of a~1"]
    load, parameters, compute = renamed_schedule[1]
    assert isinstance(load, Transfer) and isinstance(parameters, Transfer) and isinstance(compute, Compute)
    assert (load.tensor, parameters.tensor) == ("a~2", "a~1")
    assert (compute.operator, compute.then) == ("a~1", ("c~1",))
