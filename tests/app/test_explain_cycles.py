"""`lfopt explain --objective cycles`: what a group would take without each map, without each operator, and cut at each link."""

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
    return GroupCosts.of(load_network("zoo:mobilenet_v2", None, "default", weights=False), chip("accelerator_256k.yaml", None, None), scheme="auto")


def group(costs: GroupCosts, first: str, last: str) -> int:
    low, high = costs.dataflow.position[first], costs.dataflow.position[last]
    return (1 << high + 1) - (1 << low)


def test_a_link_costs_what_both_halves_take_by_themselves(costs: GroupCosts) -> None:
    mask = group(costs, "stage5.block2.expand.relu6", "stage5.block3.depthwise")
    found, figures = cycles_of(costs, mask, 60), GroupFigures(costs)
    assert found.cycles == min(way.cycles for way in figures(mask)) >= found.computing
    assert [link.cycles for link in found.links if link.groups] == sorted(link.cycles for link in found.links if link.groups)
    for link in found.links:
        halves = masks_of(costs.dataflow, link.groups)
        assert halves[0] | halves[1] == mask and not halves[0] & halves[1]
        assert link.cycles == sum(min(way.cycles for way in figures(half)) for half in halves)


def test_what_is_left_out_costs_no_more_than_the_group_and_what_is_hidden_costs_nothing(costs: GroupCosts) -> None:
    mask = group(costs, "stage5.block2.expand.relu6", "stage5.block3.depthwise")
    found = cycles_of(costs, mask, 0)
    assert not found.links and found.links_left == 7, "there was no time"
    assert all(0 <= row.cycles < found.cycles for row in (*found.tensors, *found.operators))
    assert sum(row.busy for row in found.operators) == found.computing
    assert any(row.cycles < row.busy / 2 for row in found.tensors), "weights that arrive while others are used"
    made = GroupFigures(costs).fastest(mask)
    assert made is not None
    rest = left_out(made[1][1], lambda step: isinstance(step, Compute))
    assert rest and not any(isinstance(step, Compute) for _, step in counted_leaves(rest))
    assert left_out((Loop(3, tuple(rest)),), lambda step: True) == ()


def test_the_command_says_where_cycles_go_and_refuses_what_does_not_run(lfopt, tmp_path) -> None:
    arguments = ("explain", "zoo:mobilenet_v2", "--nodes", NODES, "--hardware", "accelerator_256k.yaml", "--scheme", "auto", "--objective", "cycles")
    done = lfopt(*arguments, "--json", "x.json")
    found = json.loads((tmp_path / "x.json").read_text())["cycles"]
    assert f"{found['cycles']:,} cycles" in done.stdout and "less without" in done.stdout and found["links"]
    costs = GroupCosts.of(load_network("zoo:mobilenet_v2", None, "default", weights=False), chip(None, "16KiB", None))
    with pytest.raises(InvalidConfig, match="the group may not run as one"):
        cycles_of(costs, costs.dataflow.everything, 1)
