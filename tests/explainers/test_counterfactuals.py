"""A group is cut again and again; its links are weighted by the stages in which they are whole."""

from __future__ import annotations

import numpy as np
import pytest

from explainers.counterfactuals import MOST_CUTS, cut_apart, link_weights
from explainers.graph import links
from lfopt.fusion import connected_parts, convex_gap
from lfopt.ops import bits
from tests.explainers.networks import chain, random_groups


def test_a_chain_in_pieces() -> None:
    flow = chain(4)
    seen: set[tuple[bool, ...]] = set()
    for seed in range(50):
        stages = cut_apart(flow, flow.everything, np.random.default_rng(seed))
        kept = link_weights(flow, flow.everything, stages, np.eye(len(stages))[-1])
        seen.add(tuple((kept == 1).tolist()))
        lengths = [len(run) + 1 for run in "".join("x" if here else " " for here in kept.tolist()).split(" ")]
        assert sorted(piece.bit_count() for piece in stages[-1]) == sorted(lengths)
    assert len(seen) == 7  # every way to cut one to three of three links


def test_pieces_are_groups_and_links_within_one_are_whole() -> None:
    for seed, (flow, mask) in enumerate(random_groups(60, 10)):
        rng = np.random.default_rng(seed)
        stages = cut_apart(flow, mask, rng)
        assert stages[0] == (mask,) and 1 < len(stages) <= MOST_CUTS + 1
        shares = rng.dirichlet(np.ones(len(stages)))
        expected = np.zeros(links(flow, mask).shape[1])
        operators = [*bits(mask)]
        for pieces, finer, share in zip(stages, [*stages[1:], stages[-1]], shares.tolist(), strict=True):
            assert sum(pieces) == mask  # each operator in one piece
            assert all(any(piece & ~whole == 0 for whole in pieces) for piece in finer)
            for piece in pieces:
                assert connected_parts(flow.neighbours, piece) == [piece]
                assert not convex_gap(flow, piece)
            together = [
                any(piece >> operators[u] & piece >> operators[v] & 1 for piece in pieces)
                for u, v in links(flow, mask).T.tolist()
            ]
            expected += share * np.array(together)
        assert link_weights(flow, mask, stages, shares) == pytest.approx(expected)
