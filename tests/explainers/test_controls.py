"""Controls: random links stay so, the analytic explainer counts schedule bytes, brute force is best."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.bench_rectify import best_bytes
from explainers import controls
from explainers.controls import analytic, brute, by_need, random_links
from explainers.cuts import GroupCuts
from explainers.graph import links
from explainers.split import Splitter
from lfopt.fusion import connected
from lfopt.ir import Hardware, Scheme
from lfopt.ops import Dataflow, bits
from lfopt.ops.excerpt import excerpt
from lfopt.planning import GroupCosts, Traffic
from search.exact import solve
from tests.explainers.networks import convolutions, network, random_groups
from tests.strategies import random_graph, random_hardware


def costs_of(flow: Dataflow, buffer_bytes: int = 1 << 40, scheme: Scheme = "lbdf") -> GroupCosts:
    return GroupCosts(flow, Hardware(buffer_bytes), Traffic.ONCE, epilogue=False, scheme=scheme)


@pytest.mark.parametrize("scheme", ["lbdf", "brr", "resident", "auto"])
def test_every_control_gives_one_finite_number_a_link(scheme: str) -> None:
    for flow, mask in random_groups(40, 9):
        costs = costs_of(flow, 2000, scheme=scheme)
        for explain in (random_links(flow, 3), analytic(costs), brute(costs)):
            scores = explain(mask)
            assert scores.shape == (links(flow, mask).shape[1],)
            assert scores.dtype == np.float64
            assert np.isfinite(scores).all()
            assert np.array_equal(scores, explain(mask))


# -- random links --------------------------------------------------------------------------------------------


def test_random_links_depend_on_group_and_seed_and_on_nothing_else() -> None:
    flow = convolutions([1] * 9, [1] * 8)
    first, again, other = random_links(flow, 1), random_links(flow, 1), random_links(flow, 2)
    everything, part = flow.everything, flow.everything >> 1
    again(part)
    assert np.array_equal(first(everything), again(everything))
    assert not np.array_equal(first(everything), other(everything))
    assert not np.array_equal(first(everything)[:6], first(part))
    many = np.concatenate([random_links(flow, seed)(everything) for seed in range(200)])
    assert abs(many.mean() - 0.5) < 0.03
    assert many.min() >= 0 and many.max() < 1


# -- analytic ------------------------------------------------------------------------------------------------


def test_in_a_chain_what_a_link_frees_is_exactly_what_the_larger_half_takes_less() -> None:
    flow = convolutions([3, 8, 4, 16, 2, 8], [3, 1, 5, 3, 1])
    costs = costs_of(flow)
    whole = costs.groups.line_need(flow.everything)
    halves = [(flow.everything & ~(-1 << k), flow.everything & -1 << k) for k in range(1, len(flow))]
    wanted = [
        whole - max(costs.groups.line_need(first), costs.groups.line_need(second)) for first, second in halves
    ]
    assert analytic(costs)(flow.everything).tolist() == wanted


def test_a_link_beside_a_large_weight_is_blamed() -> None:
    flow = convolutions([2, 2, 64, 64, 2, 2], [1, 1, 3, 1, 1])
    scores = analytic(costs_of(flow))(flow.everything)
    assert set(np.argsort(-scores)[:2].tolist()) == {1, 2}


def test_no_link_frees_more_than_the_group_takes_or_less_than_nothing() -> None:
    for flow, mask in random_groups(120, 14):
        costs = costs_of(flow)
        weights = (
            sum(costs.groups.weight_bytes(1 << i)[1] for i in bits(mask)) - costs.groups.weight_bytes(mask)[1]
        )  # what several operators read counts for each
        scores = analytic(costs)(mask)
        assert scores.min(initial=0) >= 0
        assert scores.max(initial=0) <= costs.groups.line_need(mask) + weights


def test_what_needs_no_schedule_is_asked_for_its_need() -> None:
    flow = convolutions([1] * 6, [1] * 5)
    scores = by_need(flow, lambda mask: 100 * mask.bit_count() ** 2)(flow.everything)
    assert scores.tolist() == [2500 - 1600, 2500 - 900, 2500 - 900, 2500 - 1600]


def test_of_a_group_that_cannot_run_a_link_frees_the_more_the_more_can_run_after_it() -> None:
    flow = convolutions([1] * 7, [1] * 6)
    poison = 1 << 4
    scores = by_need(flow, lambda mask: controls.NEVER if mask & poison and mask != poison else 8)(
        flow.everything
    )
    assert scores.argmax() == 3
    assert all(a < b for a, b in pairwise(scores[:4]))


def test_analytic_explanations_of_every_scheme_lead_to_valid_groups() -> None:
    split = 0
    for scheme in ("lbdf", "brr", "resident", "auto"):
        for flow, mask in random_groups(40, 10):
            costs = costs_of(flow, 700, scheme=scheme)
            if costs.price(mask) is not None:
                continue
            splitter = Splitter(
                flow,
                analytic(costs),
                lambda group, c=costs: c.price(group) is not None,
                lambda group, c=costs: c.dram(group).total,
            )
            groups = splitter(mask)
            assert groups is not None
            assert all(costs.price(group) is not None for group in groups)
            split += 1
    assert split > 30


# -- brute force ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["lbdf", "brr"])
def test_the_best_link_of_all_leads_to_the_optimum(scheme: str) -> None:
    """Of a whole connected network that does not fit: what the exact search finds."""
    tried = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        flow = Dataflow.of(random_graph(rng, int(rng.integers(2, 11))))
        costs = GroupCosts(
            flow, random_hardware(rng, flow.graph), Traffic.ONCE, epilogue=False, scheme=scheme
        )
        if (
            len(flow) < 2
            or not connected(flow.neighbours, flow.everything)
            or costs.price(flow.everything) is not None
        ):
            continue
        tried += 1
        assert -brute(costs)(flow.everything).max() == solve(costs).dram_bytes, f"seed {seed}"
    assert tried > 10


def test_brute_force_on_a_group_finds_what_the_exact_search_finds_on_the_group_alone() -> None:
    """`bench_rectify` measures splits against the latter."""
    tried = 0
    for flow, mask in random_groups(120, 9):
        costs = costs_of(flow, 500)
        if costs.price(mask) is None:
            tried += 1
            assert -brute(costs)(mask).max() == best_bytes(costs, mask)
        part = Dataflow.of(excerpt(flow, mask))
        assert costs_of(part).groups.line_need(part.everything) == costs.groups.line_need(mask)
        assert costs_of(part).dram(part.everything) == costs.dram(mask)
    assert tried > 10


def test_of_each_link_the_best_split_whose_first_cut_holds_it() -> None:
    flow = network({"a": ["x"], "b": ["a"], "c": ["b"], "s": ["c", "a"]})
    costs = costs_of(flow, 200, scheme="lbdf")
    scores = brute(costs)(flow.everything)
    where = links(flow, flow.everything).T
    group = GroupCuts(flow, flow.everything)

    def best(mask: int) -> int:
        price = costs.price(mask)
        operators = [*bits(mask)]
        cuts = [
            cut
            for u, v in links(flow, mask).T
            for cut in GroupCuts(flow, mask).through(operators[u], operators[v])
        ]
        return min([price.dram_bytes] if price else [best(cut.first) + best(cut.second) for cut in cuts])

    for (u, v), score in zip(where.tolist(), scores.tolist(), strict=True):
        assert -score == min(best(cut.first) + best(cut.second) for cut in group.through(u, v))


def test_a_group_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "MOST_GROUPS", 10)
    flow = convolutions([4] * 12, [3] * 11)
    with pytest.raises(ValueError, match="more than 10 groups"):
        brute(costs_of(flow, 64))(flow.everything)
