"""Walks that skip what repeats give the steps of full walks, in iterations that no height changes."""

from __future__ import annotations

import numpy as np
import pytest

from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware, PlannedGroup, Transfer, step_count, unfold
from lfopt.planning import GroupCosts, Limit
from lfopt.planning.line_buffers.steady import Steady
from lfopt.planning.plans.outlines import plan_groups
from lfopt.planning.tiling import contractions
from lfopt.zoo.builder import Net
from tests.random_plans import SCHEMES, random_scheme
from tests.strategies import random_bands, random_graph, random_hardware


def tall(height: int) -> Graph:
    """Convolutions of several strides and a skip, on maps of so many rows."""
    net = Net("tall", seed=0, weights=False)
    image = net.image((1, 4, height, 6))
    x = net.conv("a", image, 8, 3, act="relu")
    x = net.add("skip", net.conv("c", net.conv("b", x, 8, 5, group=8), 8), x)
    return from_model(net.model(image, net.conv("d", x, 8, 3, stride=2), doc=""), None, label="tall")


@pytest.mark.parametrize("seed", range(40))
def test_steps_are_those_of_a_walk_over_every_row(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 12)))
    costs = GroupCosts.of(graph, random_hardware(rng, graph), scheme=SCHEMES[seed % len(SCHEMES)])
    groups, bands = random_scheme(costs, seed), random_bands(rng)
    proposed = {group: [*bands(group)] for group in groups}
    skipped = plan_groups(costs, groups, proposed.__getitem__)
    monkeypatch.setattr(Steady, "again", lambda self, state: None)
    monkeypatch.setattr(contractions, "WALKED", 1 << 30)
    assert plan_groups(costs, groups, proposed.__getitem__) == skipped


@pytest.mark.parametrize("band_rows", [1, 3])
def test_rows_that_only_repeat_others_are_not_walked(band_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned_rows(height: int) -> tuple[int, PlannedGroup]:
        costs = GroupCosts.of(tall(height), Hardware(1 << 20))
        limit = Limit()
        planned = plan_groups(costs, (costs.dataflow.everything,), lambda _: [band_rows], limit)
        assert isinstance(planned, tuple)
        return limit.spent, planned[0]

    (few, short), (many, long) = planned_rows(400), planned_rows(4000)
    assert many <= few < 300
    assert step_count(long.steps) > 9 * step_count(short.steps)
    monkeypatch.setattr(Steady, "again", lambda self, state: None)
    assert planned_rows(400) == (step_count(short.steps) - constants(short), short)


def test_what_lies_in_blocks_of_columns_is_not_walked_row_by_row() -> None:
    """A transposition reads all rows of its operand, of which a block holds a few."""
    net = Net("wide", seed=0, weights=False)
    image = net.image((1, 3, 64, 64))
    x = net.reshape("flat", net.conv("a", image, 64, 3), (1, 64, 4096))
    graph = from_model(net.model(image, net.transpose("turned", x, (0, 2, 1)), doc=""), None, label="wide")
    costs, limit = GroupCosts.of(graph, Hardware(1 << 15)), Limit()
    mask = 1 << costs.dataflow.position["turned"]
    planned = plan_groups(costs, (mask,), limit=limit)
    assert isinstance(planned, tuple)
    assert step_count(planned[0].steps) > 4096
    assert limit.spent < 300


def constants(group: PlannedGroup) -> int:
    """Loads of constants, which come before the walk."""
    return sum(isinstance(step, Transfer) and step.kind == "weight" for step in unfold(group.steps))
