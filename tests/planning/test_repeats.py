"""How often multiply-accumulates may be repeated inside groups, beside copies."""

from __future__ import annotations

import numpy as np
import pytest

from lfopt.ir import Hardware
from lfopt.ops import Dataflow, bits
from lfopt.planning.groups.groups import Groups
from lfopt.planning.groups.repeats import computed_again, left_for_groups, settled
from lfopt.rewrite.copies import barriers, with_copies
from tests.strategies import inverted_residual, random_gate


def test_copies_are_found_by_what_they_compute() -> None:
    for seed in range(20):
        graph = random_gate(np.random.default_rng(seed))
        already = computed_again(graph)
        copied, copies = with_copies(graph, {b.reduction: b.cones[-1] for b in barriers(graph)})
        again = computed_again(copied)
        assert again.keys() - already.keys() == {copy.name for copy in copies} - already.keys()


@pytest.mark.parametrize("allowed", [1.0, 1.2, 1.5, 2.0, 3.0])
def test_all_that_groups_may_repeat_and_the_copies_are_no_more_than_is_allowed(allowed: float) -> None:
    graph = inverted_residual(np.random.default_rng(0), 8, 24, 6)
    own = sum(Dataflow.of(graph).macs)
    assert left_for_groups(graph, allowed) == pytest.approx(allowed)
    (barrier,) = barriers(graph)
    copied = graph
    for cone in barrier.cones:
        copied, _ = with_copies(graph, {barrier.reduction: cone})
        flow = Dataflow.of(copied)
        left, groups = left_for_groups(copied, allowed), Groups(flow, Hardware(1 << 20))
        every = groups.most_macs(flow.everything, left)
        assert every == pytest.approx(sum(groups.most_macs(1 << i, left) for i in range(len(flow))))
        assert every <= max(allowed * own, sum(flow.macs)) * (1 + 1e-9)
        assert all(groups.most_macs(1 << i, left) == flow.macs[i] for i in bits(settled(flow)))
        assert 1 <= left <= allowed
    assert left_for_groups(copied, 2.0) == pytest.approx(2.0)
