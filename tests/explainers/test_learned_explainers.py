"""Learned explainers: NumPy runs what torch trained, and metrics of a toy are those known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from explainers import train_pg, train_rg
from explainers.controls import analytic
from explainers.fidelity import measures
from explainers.gnn_explainer import gnn_explainer
from explainers.pg_explainer import NAMES as PG_NAMES
from explainers.pg_explainer import LinkScores, beside, pg_explainer
from explainers.predictor import EMBEDDED, Predictor
from explainers.rg_explainer import NAMES as RG_NAMES
from explainers.rg_explainer import Agent, link_scores, rg_explainer
from explainers.scheme_rule import LabelScheme, SchemeRule, ValidityQuery
from explainers.train_rg import Padded, Policy, draw, part_of
from lfopt.app.guidance import explainer
from lfopt.fusion import connected
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from tests.explainers.networks import chain, convolutions, rank_correlation
from tests.explainers.test_predictor import BETA, drawn, flow_of

SMALL = 64 << 10
MAKERS = {"pg": pg_explainer, "rg": rg_explainer}
NAME = "mobilenet_v2"


@pytest.fixture(scope="module", params=["lbdf", "brr"])
def scheme(request) -> LabelScheme:
    return request.param


@pytest.fixture(scope="module")
def predictor(scheme) -> Predictor:
    return Predictor.load(scheme)


@pytest.fixture(scope="module")
def flow() -> Dataflow:
    return flow_of(NAME)


@pytest.fixture(scope="module")
def masks(flow) -> list[int]:
    """Groups that do not fit."""
    costs = GroupCosts(flow, Hardware(BETA), epilogue=False)
    return [
        mask for mask in drawn(NAME, 120, 11) if mask & (mask - 1) and costs.groups.line_need(mask) >= BETA
    ][:24]


@pytest.fixture(scope="module")
def rule(flow, scheme) -> SchemeRule:
    return SchemeRule(flow, Hardware(BETA), scheme)


@pytest.fixture(scope="module")
def lbdf(flow) -> SchemeRule:
    return SchemeRule(flow, Hardware(BETA), "lbdf")


def queries_of(rule: SchemeRule, masks: list[int]) -> list[ValidityQuery]:
    return [ValidityQuery(rule, mask, BETA) for mask in masks]


def quiet(what: str, done: float) -> None:
    assert what and 0 <= done <= 1


# -- all of them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
def test_every_link_has_a_score_that_the_group_alone_decides(name, predictor, rule, masks):
    explain, again = (MAKERS[name](rule, predictor, seed) for seed in (0, 1))
    for mask in masks:
        scores = explain(mask)
        assert scores.shape == (rule.groups.graph(mask).links.shape[1],)
        assert scores.dtype == np.float64
        assert np.isfinite(scores).all()
    assert all(np.array_equal(explain(mask), again(mask)) for mask in reversed(masks))
    assert explain(1).shape == (0,)


@pytest.mark.parametrize("name", ["analytic", "gnne", "pg", "rg"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_the_one_link_to_blame_is_blamed_most(name, at):
    """Two convolutions with 28 KiB of weights each, in a chain: 64 KiB hold either one, not both."""
    channels = [4] * 8
    channels[at + 1] = 400
    flow = convolutions(channels, [3 if k in (at, at + 1) else 1 for k in range(7)], size=8)
    costs = GroupCosts(flow, Hardware(SMALL), scheme="lbdf", epilogue=False)
    assert costs.least_need(flow.everything)[1] >= SMALL
    halves = [(1 << at + 1) - 1, flow.everything & ~((1 << at + 1) - 1)]
    assert all(costs.least_need(half)[1] < SMALL for half in halves)
    scores = explainer(costs, name, 0)(flow.everything)
    above = int((np.delete(scores, at) >= scores[at]).sum())
    assert not above, scores


def test_explainers_want_weights_beside_those_of_the_predictor(predictor, rule, tmp_path):
    for name, make in MAKERS.items():
        for without_weights in (
            Predictor(predictor.weights),
            Predictor(predictor.weights, tmp_path / "mine.safetensors"),
        ):
            with pytest.raises(InvalidConfig, match=name):
                make(rule, without_weights)


# -- PGExplainer ---------------------------------------------------------------------------------------------


def test_pg_in_numpy_gives_what_the_perceptron_gives(predictor, rule, masks):
    weights = beside(predictor, "pg", PG_NAMES)
    perceptron = nn.Sequential(nn.Linear(2 * EMBEDDED, 64), nn.ReLU(), nn.Linear(64, 1))
    perceptron.load_state_dict(
        {name: torch.from_numpy(value.astype(np.float32)) for name, value in weights.items()}
    )
    explain = pg_explainer(rule, predictor)
    for query in queries_of(rule, masks):
        rows = torch.from_numpy(predictor.embed(query))
        u, v = query.graph.links
        expected = perceptron(torch.cat((rows[u], rows[v]), 1)).sigmoid().squeeze(1).detach().numpy()
        assert np.abs(explain(query.mask) - expected).max() < 1e-5


def test_pg_learns_what_cuts_free_and_gives_it_for_links_that_it_has_not_seen(lbdf, masks):
    predictor, queries = Predictor.load("lbdf"), queries_of(lbdf, masks)
    truth = train_pg.freed(predictor, queries)
    costs = GroupCosts(lbdf.flow, lbdf.hardware, epilogue=False)
    exact = [analytic(costs)(mask) for mask in masks]
    assert (
        np.mean(
            [rank_correlation(a, b) for a, b in zip(truth, exact, strict=True) if np.ptp(a) and np.ptp(b)]
        )
        > 0.9
    )
    weights, losses = train_pg.train(predictor, queries[::2], train_pg.PGSettings(epochs=60), 0, quiet)
    assert losses[-1] < losses[0]
    assert set(weights) == set(PG_NAMES)
    scores = [LinkScores(weights)(predictor.embed(each), each.graph.links) for each in queries[1::2]]
    assert (
        np.mean(
            [
                rank_correlation(a, b)
                for a, b in zip(scores, truth[1::2], strict=True)
                if np.ptp(a) and np.ptp(b)
            ]
        )
        > 0.3
    )


# -- RG-Explainer --------------------------------------------------------------------------------------------


def test_what_the_agent_chooses_hangs_together(predictor, rule, masks):
    agent = Agent(beside(predictor, "rg", RG_NAMES))
    for query in queries_of(rule, masks):
        graph = query.graph
        order, explained = agent.order(predictor.embed(query), graph.links)
        assert 1 <= explained <= len(order) == len(set(order)) == len(graph)
        neighbours = [0] * len(graph)
        for u, v in graph.links.T.tolist():
            neighbours[u] |= 1 << v
            neighbours[v] |= 1 << u
        for end in range(1, len(order) + 1):
            assert connected(neighbours, sum(1 << i for i in order[:end]))


def test_links_of_the_explanation_are_above_all_others(predictor, rule, masks):
    agent, explain = Agent(beside(predictor, "rg", RG_NAMES)), rg_explainer(rule, predictor)
    for query in queries_of(rule, masks):
        graph = query.graph
        order, explained = agent.order(predictor.embed(query), graph.links)
        within = np.isin(graph.links, order[:explained]).all(0)
        scores = explain(query.mask)
        assert (scores[within] > 1).all()
        assert (scores[~within] < 1).all()
        assert np.array_equal(scores, link_scores(order, explained, graph.links, len(graph)))


def test_the_agent_in_numpy_does_what_is_likeliest_in_torch(predictor, rule, masks):
    """Step by step: the operator taken next has the highest score that the policy in torch gives."""
    weights = beside(predictor, "rg", RG_NAMES)
    agent, policy = Agent(weights), Policy(EMBEDDED, len(weights["seed.0.bias"]))
    policy.load_state_dict(
        {name: torch.from_numpy(value.astype(np.float32)) for name, value in weights.items()}
    )
    for query in queries_of(rule, masks[:8]):
        embedded, graph = predictor.embed(query), query.graph
        order, explained = agent.order(embedded, graph.links)
        rows = torch.from_numpy(embedded)
        mean = rows.mean(0, keepdim=True)
        assert order[0] == policy.score("seed", rows[None], mean)[0].argmax().item()
        for step in range(1, len(order)):
            so_far = rows[order[:step]].mean(0, keepdim=True)
            near = {int(b) for a, b in [*graph.links.T, *graph.links[::-1].T] if a in order[:step]} - {
                *order[:step]
            }
            scores = policy.score("grow", rows[None], so_far, mean)[0]
            assert scores[order[step]] >= max(scores[i] for i in near) - 1e-4
            stop = policy.score("stop", so_far[:, None], mean)[0, 0]
            if step < explained:
                assert stop <= scores[order[step]] + 1e-4


def test_explanations_follow_the_example_or_are_drawn_hang_together_and_are_rewarded_in_their_order(
    lbdf, masks
):
    predictor, queries = Predictor.load("lbdf"), queries_of(lbdf, masks)
    torch.manual_seed(0)
    worth = [train_pg.shares(doublings) for doublings in train_pg.freed(predictor, queries)]
    settings = train_rg.RGSettings()
    examples = [
        train_rg.example(len(each.graph), each.graph.links, shares, settings.price)
        for each, shares in zip(queries, worth, strict=True)
    ]
    groups = Padded.of(queries, worth, examples, [predictor.embed(each) for each in queries])
    policy = Policy(EMBEDDED, 8)
    shown = draw(policy, groups, groups.examples)
    for k, example in enumerate(examples):
        assert sorted(example, key=shown.order[k].tolist().__getitem__) == example
        assert sorted(example) == np.flatnonzero(shown.chosen[k].numpy()).tolist()
    drawn_explanations = draw(policy, groups)
    assert (drawn_explanations.likelihood <= 1e-6).all()
    rewarded = train_rg.rewards(groups, drawn_explanations, settings).tolist()
    for k, each in enumerate(queries):
        chosen = sorted(
            np.flatnonzero(drawn_explanations.chosen[k].numpy()).tolist(),
            key=drawn_explanations.order[k].tolist().__getitem__,
        )
        assert max(chosen) < len(each.graph)
        assert part_of(each, chosen).mask == sum(1 << each.graph.operators[i] for i in chosen)
        links = dict(zip(map(frozenset, each.graph.links.T.tolist()), worth[k].tolist(), strict=True))
        expected = 0.0
        for step in range(1, len(chosen)):
            taken = [links[pair] for i in chosen[:step] if (pair := frozenset((i, chosen[step]))) in links]
            assert taken
            expected += settings.later ** (step - 1) * (max(taken) - settings.price)
        assert rewarded[k] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("shown", "epochs"), [(12, 0), (0, 12)], ids=["the example", "what is rewarded"])
def test_rg_learns_from(shown, epochs, lbdf, masks):
    """Where it begins, a cut frees more than at the mean of the links."""
    predictor, queries = Predictor.load("lbdf"), queries_of(lbdf, masks)
    settings = train_rg.RGSettings(shown=shown, epochs=epochs, groups=8, hidden=16)
    weights, history = train_rg.train(predictor, queries, settings, 0, quiet)
    assert set(weights) == set(RG_NAMES) and len(history) == 12
    agent = Agent(weights)
    gained: list[float] = []
    for each, doublings in zip(queries, train_pg.freed(predictor, queries), strict=True):
        worth, links = train_pg.shares(doublings), each.graph.links
        gained.append(
            worth[link_scores(*agent.order(predictor.embed(each), links), links, len(each.graph)).argmax()]
            - worth.mean()
        )
    assert np.mean(gained) > 0.1, gained


# -- GNNExplainer --------------------------------------------------------------------------------------------


def test_gnne_says_the_same_of_a_group_whatever_was_asked_before(predictor, rule, masks):
    few = [mask for mask in masks if mask.bit_count() > 4][:3]
    explain, again = (gnn_explainer(rule, predictor, 0, epochs=5) for _ in range(2))
    first_scores = [explain(mask) for mask in few]
    assert all(
        np.allclose(scores, again(mask), atol=1e-4)
        for mask, scores in reversed(list(zip(few, first_scores, strict=True)))
    )
    assert all(((scores >= 0) & (scores <= 1)).all() and scores.std() > 0 for scores in first_scores)
    assert explain(1).shape == (0,)


# -- metrics -------------------------------------------------------------------------------------------------


class Toy(SchemeRule):
    """A chain of five whose first link alone matters: 32 bytes with it, 2 without; the buffer has 8."""

    def __init__(self) -> None:
        super().__init__(chain(5), Hardware(8), "lbdf")

    def evaluate(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As it says."""
        return np.where(members[:, 0] & members[:, 1], 32.0, 2.0), np.zeros(len(members), bool)


@pytest.fixture(scope="module")
def toy() -> tuple[ValidityQuery, Predictor]:
    """Link 0 alone carries the verdict, and the network adds nothing to the rule."""
    predictor = Predictor.load("lbdf")
    silent = {name: np.zeros_like(value) for name, value in predictor.weights.items()}
    silent["head.2.bias"] = np.array([0, 0, 20, 0], np.float32)  # the rule is exact
    return ValidityQuery(Toy(), 0b11111, 8), Predictor(silent)


def test_fidelity_of_the_right_explanation_is_exactly_one_and_zero(toy):
    query, predictor = toy
    figures = measures([(query, np.array([4.0, 1, 2, 3]))], predictor, kept=1)
    assert (figures["fidelity_plus"], figures["fidelity_minus"]) == (1, 0)
    assert figures["unfaithfulness"] == pytest.approx(0, abs=1e-6)
    assert figures["sparsity"] == pytest.approx(3 / 4)


def test_fidelity_of_the_wrong_explanation_is_exactly_zero_and_one(toy):
    query, predictor = toy
    figures = measures([(query, np.array([1.0, 4, 2, 3]))], predictor, kept=1)
    assert (figures["fidelity_plus"], figures["fidelity_minus"]) == (0, 1)
    assert figures["unfaithfulness"] > 0.5


def test_links_that_are_no_part_of_an_explanation_are_not_blamed(toy):
    query, predictor = toy
    figures = measures([(query, np.array([-np.inf, 4, 2, -np.inf]))], predictor, kept=3)
    assert (figures["fidelity_plus"], figures["fidelity_minus"], figures["sparsity"]) == (
        0,
        1,
        pytest.approx(2 / 4),
    )


def test_groups_without_enough_links_are_not_measured(toy):
    query, predictor = toy
    assert measures([(query, np.zeros(4))], predictor, kept=4)["groups"] == 0
