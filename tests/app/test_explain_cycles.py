"""`lfopt explain --objective cycles`: a group without each map, without each operator, cut at each link."""

from __future__ import annotations

import json

import pytest

from lfopt.app.commands.options import chip
from lfopt.app.explain_cycles import cycles_of, left_out
from lfopt.app.figures import GroupFigures
from lfopt.app.pipeline import load_network
from lfopt.ir import Compute, InvalidConfig, Loop, counted_leaves
from lfopt.planning import GroupCosts, masks_of

NODES = "stage5.block2.expand.relu6..stage5.block3.depthwise"


@pytest.fixture(scope="module")
def costs() -> GroupCosts:
    return GroupCosts.of(
        load_network("zoo:mobilenet_v2", None, "default", weights=False),
        chip("accelerator_256k.yaml", None, None),
        scheme="auto",
    )


def group(costs: GroupCosts, first: str, last: str) -> int:
    low, high = costs.dataflow.position[first], costs.dataflow.position[last]
    return (1 << high + 1) - (1 << low)


def test_a_link_costs_what_both_halves_take_by_themselves(costs: GroupCosts) -> None:
    mask = group(costs, "stage5.block2.expand.relu6", "stage5.block3.depthwise")
    group_cycles, figures = cycles_of(costs, mask, 60), GroupFigures(costs)
    assert group_cycles.cycles == min(way.cycles for way in figures(mask)) >= group_cycles.computing
    assert [link.cycles for link in group_cycles.links if link.groups] == sorted(
        link.cycles for link in group_cycles.links if link.groups
    )
    for link in group_cycles.links:
        halves = masks_of(costs.dataflow, link.groups)
        assert halves[0] | halves[1] == mask and not halves[0] & halves[1]
        assert link.cycles == sum(min(way.cycles for way in figures(half)) for half in halves)


def test_what_is_left_out_costs_no_more_than_the_group_and_what_is_hidden_costs_nothing(
    costs: GroupCosts,
) -> None:
    mask = group(costs, "stage5.block2.expand.relu6", "stage5.block3.depthwise")
    group_cycles = cycles_of(costs, mask, 0)
    assert not group_cycles.links and group_cycles.links_left == 7, "there was no time"
    assert all(
        0 <= row.cycles < group_cycles.cycles for row in (*group_cycles.tensors, *group_cycles.operators)
    )
    assert sum(row.busy for row in group_cycles.operators) == group_cycles.computing
    assert any(row.cycles < row.busy / 2 for row in group_cycles.tensors), (
        "weights that arrive while others are used"
    )
    fastest = GroupFigures(costs).fastest(mask)
    assert fastest is not None
    rest = left_out(fastest[1][1], lambda step: isinstance(step, Compute))
    assert rest and not any(isinstance(step, Compute) for _, step in counted_leaves(rest))
    assert left_out((Loop(3, tuple(rest)),), lambda step: True) == ()


def test_the_command_says_where_cycles_go_and_refuses_what_does_not_run(lfopt, tmp_path) -> None:
    arguments = (
        "explain",
        "zoo:mobilenet_v2",
        "--nodes",
        NODES,
        "--hardware",
        "accelerator_256k.yaml",
        "--scheme",
        "auto",
        "--objective",
        "cycles",
    )
    done = lfopt(*arguments, "--json", "x.json")
    data = json.loads((tmp_path / "x.json").read_text())["cycles"]
    assert f"{data['cycles']:,} cycles" in done.stdout and "less without" in done.stdout and data["links"]
    costs = GroupCosts.of(
        load_network("zoo:mobilenet_v2", None, "default", weights=False), chip(None, "16KiB", None)
    )
    with pytest.raises(InvalidConfig, match="the group may not run as one"):
        cycles_of(costs, costs.dataflow.everything, 1)
