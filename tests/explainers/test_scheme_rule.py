"""A rule on groups in pieces and weighted links: exact at 0 and 1, Lovász's extension in between."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from explainers.counterfactuals import cut_apart, link_weights
from explainers.graph import links
from explainers.scheme_rule import FORMULAS, SchemeRule, ValidityQuery, weighted
from lfopt.fusion import component
from lfopt.ir import Hardware
from lfopt.ops import bits
from tests.explainers.networks import chain, convolutions, random_groups


def cardinal(masks) -> np.ndarray:
    """As if a piece needed a doubling for each of its operators; pieces of six or more never run."""
    return np.array([[mask.bit_count(), mask.bit_count() >= 6] for mask in masks], np.float64)


def by_pieces(flow, mask: int, kept: np.ndarray, judge) -> np.ndarray:
    """The neediest piece of a group with only these links, by looking at every piece."""
    operators, neighbours = [*bits(mask)], [0] * len(flow)
    for (u, v), there in zip(links(flow, mask).T.tolist(), kept.tolist(), strict=True):
        if there:
            neighbours[operators[u]] |= 1 << operators[v]
            neighbours[operators[v]] |= 1 << operators[u]
    pieces = {component(neighbours, mask, 1 << i) for i in operators}
    return judge([*pieces]).max(0)


def test_weights_of_nought_and_one_are_links_taken_away() -> None:
    rng = np.random.default_rng(0)
    for flow, mask in random_groups(60, 10):
        kept = rng.random(links(flow, mask).shape[1]) < rng.random()
        requirement = weighted(flow, mask, kept.astype(float), cardinal).need
        assert np.array_equal(requirement, by_pieces(flow, mask, kept, cardinal))


def test_between_them_it_is_an_integral_over_thresholds_and_slopes_are_its_slopes() -> None:
    rng = np.random.default_rng(1)
    for flow, mask in random_groups(40, 8):
        weights = rng.random(links(flow, mask).shape[1])
        requirement = weighted(flow, mask, weights, cardinal)
        borders = np.array([0.0, *np.sort(weights), 1.0])
        expected = sum(
            (high - low) * by_pieces(flow, mask, weights >= high, cardinal)
            for low, high in pairwise(borders.tolist())
        )
        assert np.array(requirement.need) == pytest.approx(expected)
        for k in range(len(weights)):
            step = np.zeros(len(weights))
            step[k] = 1e-9
            moved = np.array(weighted(flow, mask, weights + step, cardinal).need) - np.array(requirement.need)
            assert requirement.slope[:, k] * 1e-9 == pytest.approx(moved, abs=1e-13)


@pytest.mark.parametrize("scheme", FORMULAS)
def test_stages_of_cuts_weighted_need_what_the_stages_do_by_their_shares(scheme) -> None:
    """As labels of groups with links weighted are made, without the extension."""
    for seed, (flow, mask) in enumerate(random_groups(30, 10)):
        rng, rule = np.random.default_rng(seed), SchemeRule(flow, Hardware(1 << 16), scheme)
        stages = cut_apart(flow, mask, rng)
        shares = rng.dirichlet(np.ones(len(stages)))
        expected = shares @ np.array([rule.of(pieces).max(0) for pieces in stages])
        requirement = (
            ValidityQuery(rule, mask, 1 << 16).weighted(link_weights(flow, mask, stages, shares)).need
        )
        assert np.array(requirement) == pytest.approx(expected)
        graph = rule.groups.graph(mask)
        assert ValidityQuery(rule, mask, 1 << 16).weighted(
            np.ones(graph.links.shape[1])
        ).need == pytest.approx((np.log2(graph.unit), float(graph.never)))


def test_a_group_that_never_runs_counts_with_everything_whole_and_the_more_the_larger() -> None:
    flow = convolutions([4, 4, 4, 4], [3, 3, 3])
    rule = SchemeRule(flow, Hardware(1 << 16), "brr")
    members = np.array([[True, True, False], [True, True, True]])
    formula = FORMULAS["brr"]
    try:
        FORMULAS["brr"] = lambda formulas, members: np.full(len(members), np.inf)
        bytes_needed, never = rule.evaluate(members)
    finally:
        FORMULAS["brr"] = formula
    assert never.all()
    maps, weights = 4 * 12 * 12, 4 * 4 * 9
    assert bytes_needed.tolist() == [4 * (3 * maps + 2 * weights), 4 * (4 * maps + 3 * weights)]


def test_what_was_said_of_a_piece_is_said_again() -> None:
    rule = SchemeRule(chain(6), Hardware(1 << 16), "lbdf")
    first = rule.of([0b111, 0b1])
    assert np.array_equal(rule.of([0b1, 0b111])[::-1], first)
