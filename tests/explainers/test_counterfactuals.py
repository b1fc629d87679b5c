"""A group in pieces is labelled as its neediest piece, and its links are those within the pieces."""

from __future__ import annotations

import numpy as np
import pytest

from explainers.counterfactuals import MOST_CUTS, cut_apart
from explainers.graph import links
from lfopt.fusion import connected_parts, convex_gap
from lfopt.ir import Hardware
from lfopt.ops import bits
from lfopt.planning import GroupCosts
from tests.explainers.networks import chain, random_groups


def test_a_chain_in_pieces() -> None:
    flow = chain(4)
    seen: set[tuple[bool, ...]] = set()
    for seed in range(50):
        kept, need = cut_apart(flow, flow.everything, lambda piece: piece.bit_count(), np.random.default_rng(seed))
        seen.add(tuple(kept.tolist()))
        lengths = [len(run) + 1 for run in "".join("x" if here else " " for here in kept.tolist()).split(" ")]
        assert need == max(lengths)
    assert len(seen) == 7  # every way to cut one to three of three links


@pytest.mark.parametrize("scheme", ["lbdf", "brr"])
def test_pieces_are_groups_that_the_checker_knows(scheme) -> None:
    for seed, (flow, mask) in enumerate(random_groups(60, 10)):
        costs, asked = GroupCosts(flow, Hardware(1 << 40), scheme=scheme, epilogue=False), dict[int, int]()

        def need(piece: int, costs: GroupCosts = costs, asked: dict[int, int] = asked) -> int:
            asked[piece] = costs.least_need(piece)[1]
            return asked[piece]

        kept, needed = cut_apart(flow, mask, need, np.random.default_rng(seed))
        assert needed == max(asked.values())
        assert 1 < len(asked) <= MOST_CUTS + 1
        assert sum(asked) == mask  # each operator in one piece
        for piece in asked:
            assert connected_parts(flow.neighbours, piece) == [piece]
            assert not convex_gap(flow, piece)
        operators, where = [*bits(mask)], links(flow, mask)
        together = [any(piece >> operators[u] & piece >> operators[v] & 1 for piece in asked) for u, v in where.T.tolist()]
        assert kept.tolist() == together
