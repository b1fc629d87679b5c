"""Explainers that learn: what runs in NumPy is what was trained in torch, and metrics give what is known of a toy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer, PGExplainer
from torch_geometric.explain.config import ExplanationType, MaskType

from explainers import train_pg, train_rg
from explainers.fidelity import measures
from explainers.gnn_explainer import VERDICT, gnn_explainer
from explainers.graph import GroupGraph, Groups
from explainers.model import LinkConv, Network, Verdict
from explainers.pg_explainer import NAMES as PG_NAMES
from explainers.pg_explainer import beside, pg_explainer
from explainers.predictor import Predictor
from explainers.rg_explainer import NAMES as RG_NAMES
from explainers.rg_explainer import Agent, link_scores, rg_explainer
from explainers.train_rg import Padded, Policy, draw, part_of
from lfopt.fusion import connected
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from tests.explainers.networks import chain
from tests.explainers.test_predictor import BETA, drawn, flow_of

MAKERS = {"pg": pg_explainer, "rg": rg_explainer}
NAME = "mobilenet_v2"


@pytest.fixture(scope="module", params=["lbdf", "brr"])
def predictor(request) -> Predictor:
    return Predictor.load(request.param)


@pytest.fixture(scope="module")
def flow() -> Dataflow:
    return flow_of(NAME)


@pytest.fixture(scope="module")
def masks(flow) -> list[int]:
    """Groups that do not fit."""
    costs = GroupCosts(flow, Hardware(BETA), epilogue=False)
    return [mask for mask in drawn(NAME, 120, 11) if mask & (mask - 1) and costs.groups.line_need(mask) >= BETA][:24]


def graphs_of(flow: Dataflow, masks: list[int]) -> list[GroupGraph]:
    groups = Groups(flow, Hardware(BETA))
    return [groups.graph(mask) for mask in masks]


def quiet(what: str, done: float) -> None:
    assert what and 0 <= done <= 1


# -- all of them -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
def test_every_link_has_a_score_that_the_group_alone_decides(name, predictor, flow, masks):
    explain, again = (MAKERS[name](flow, Hardware(BETA), predictor, seed) for seed in (0, 1))
    for mask in masks:
        scores = explain(mask)
        assert scores.shape == (Groups(flow, Hardware(BETA)).graph(mask).links.shape[1],)
        assert scores.dtype == np.float64
        assert np.isfinite(scores).all()
    assert all(np.array_equal(explain(mask), again(mask)) for mask in reversed(masks))
    assert explain(1).shape == (0,)


def test_explainers_want_weights_beside_those_of_the_predictor(predictor, flow, tmp_path):
    for name, make in MAKERS.items():
        for found in (Predictor(predictor.weights), Predictor(predictor.weights, tmp_path / "mine.safetensors")):
            with pytest.raises(InvalidConfig, match=name):
                make(flow, Hardware(BETA), found)


# -- PGExplainer -------------------------------------------------------------------------------------------------------------------------------


def test_pg_in_numpy_gives_the_mask_of_the_library(predictor, flow, masks):
    algorithm = PGExplainer(1)
    explainer = Explainer(Verdict(Network.of(predictor.weights)), algorithm, ExplanationType.phenomenon, VERDICT, edge_mask_type=MaskType.object)
    weights = beside(predictor, "pg", PG_NAMES)
    algorithm.mlp(torch.zeros(1, 256))  # it learns its width from what it is given
    algorithm.mlp.load_state_dict({name: torch.from_numpy(value.astype(np.float32)) for name, value in weights.items()})
    algorithm._curr_epoch = 0  # as if it had been trained here
    explain = pg_explainer(flow, Hardware(BETA), predictor)
    for mask, graph in zip(masks, graphs_of(flow, masks), strict=True):
        expected = explainer(torch.from_numpy(graph.features), torch.from_numpy(graph.links), target=torch.tensor([1])).edge_mask
        assert expected is not None
        assert np.abs(explain(mask) - expected.detach().numpy()).max() < 1e-5


def test_pg_learns_and_leaves_the_library_as_it_was(flow, masks):
    before = dict(PGExplainer.coeffs)
    weights, losses = train_pg.train(Predictor.load("lbdf"), graphs_of(flow, masks), train_pg.Settings(epochs=4, groups=8), 0, quiet)
    assert losses[-1] < losses[0]
    assert set(weights) == set(PG_NAMES)
    assert PGExplainer.coeffs == before


# -- RG-Explainer ------------------------------------------------------------------------------------------------------------------------------


def test_what_the_agent_chooses_hangs_together(predictor, flow, masks):
    agent = Agent(beside(predictor, "rg", RG_NAMES))
    for graph in graphs_of(flow, masks):
        order, explained = agent.order(predictor.embed(graph), graph.links)
        assert 1 <= explained <= len(order) == len(set(order)) == len(graph)
        neighbours = [0] * len(graph)
        for u, v in graph.links.T.tolist():
            neighbours[u] |= 1 << v
            neighbours[v] |= 1 << u
        for end in range(1, len(order) + 1):
            assert connected(neighbours, sum(1 << i for i in order[:end]))


def test_links_of_the_explanation_are_above_all_others(predictor, flow, masks):
    agent, explain = Agent(beside(predictor, "rg", RG_NAMES)), rg_explainer(flow, Hardware(BETA), predictor)
    for mask, graph in zip(masks, graphs_of(flow, masks), strict=True):
        order, explained = agent.order(predictor.embed(graph), graph.links)
        within = np.isin(graph.links, order[:explained]).all(0)
        scores = explain(mask)
        assert (scores[within] > 1).all()
        assert (scores[~within] < 1).all()
        assert np.array_equal(scores, link_scores(order, explained, graph.links, len(graph)))


def test_the_agent_in_numpy_does_what_is_likeliest_in_torch(predictor, flow, masks):
    """Step by step: the operator taken next has the highest score that the policy in torch gives."""
    weights = beside(predictor, "rg", RG_NAMES)
    agent, policy = Agent(weights), Policy(128, len(weights["seed.0.bias"]))
    policy.load_state_dict({name: torch.from_numpy(value.astype(np.float32)) for name, value in weights.items()})
    for graph in graphs_of(flow, masks[:8]):
        embedded = predictor.embed(graph)
        order, explained = agent.order(embedded, graph.links)
        rows = torch.from_numpy(embedded)
        mean = rows.mean(0, keepdim=True)
        assert order[0] == policy.score("seed", rows[None], mean)[0].argmax().item()
        for step in range(1, len(order)):
            so_far = rows[order[:step]].mean(0, keepdim=True)
            near = {int(b) for a, b in [*graph.links.T, *graph.links[::-1].T] if a in order[:step]} - {*order[:step]}
            scores = policy.score("grow", rows[None], so_far, mean)[0]
            assert scores[order[step]] >= max(scores[i] for i in near) - 1e-4
            stop = policy.score("stop", so_far[:, None], mean)[0, 0]
            if step < explained:
                assert stop <= scores[order[step]] + 1e-4


def test_explanations_that_are_drawn_hang_together_and_have_their_radius(flow, masks):
    predictor, graphs = Predictor.load("lbdf"), graphs_of(flow, masks)
    embedded = [predictor.embed(graph) for graph in graphs]
    torch.manual_seed(0)
    groups = Padded.of(graphs, embedded)
    found = draw(Policy(128, 8), groups)
    assert (found.likelihood <= 1e-6).all()
    for k, graph in enumerate(graphs):
        chosen = found.chosen[k].numpy()[: len(graph)]
        assert not found.chosen[k, len(graph) :].any()
        part = part_of(graph, chosen)
        reach = np.linalg.matrix_power(np.eye(len(part)) + _adjacent(part), len(part)) > 0
        assert reach.all()
        distances = [
            next(d for d in range(len(part)) if (np.linalg.matrix_power(np.eye(len(part)) + _adjacent(part), d)[i] > 0).all())
            for i in range(len(part))
        ]
        assert min(distances) <= found.radius[k] <= max(distances)


def _adjacent(graph: GroupGraph) -> np.ndarray:
    found = np.zeros((len(graph), len(graph)))
    found[graph.links[0], graph.links[1]] = found[graph.links[1], graph.links[0]] = 1
    return found


def test_rg_learns_what_is_rewarded(flow, masks):
    settings = train_rg.Settings(epochs=8, groups=8, hidden=16)
    weights, history = train_rg.train(Predictor.load("lbdf"), graphs_of(flow, masks), settings, 0, quiet)
    assert history[-1]["reward"] > history[0]["reward"]
    assert set(weights) == set(RG_NAMES)


# -- GNNExplainer ------------------------------------------------------------------------------------------------------------------------------


def test_gnne_says_the_same_of_a_group_whatever_was_asked_before(predictor, flow, masks):
    few = [mask for mask in masks if mask.bit_count() > 4][:3]
    explain, again = (gnn_explainer(flow, Hardware(BETA), predictor, 0, epochs=5) for _ in range(2))
    found = [explain(mask) for mask in few]
    assert all(np.allclose(scores, again(mask), atol=1e-4) for mask, scores in reversed(list(zip(few, found, strict=True))))
    assert all(((scores >= 0) & (scores <= 1)).all() and scores.std() > 0 for scores in found)
    assert explain(1).shape == (0,)


# -- metrics -----------------------------------------------------------------------------------------------------------------------------------


class Toy(nn.Module):
    """Says invalid if a message of size 1 arrives anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = LinkConv(1, 1)
        with torch.no_grad():
            self.conv.lin_rel.weight.fill_(1)
            self.conv.lin_rel.bias.fill_(0)
            self.conv.lin_root.weight.fill_(0)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """(1, 2) logits."""
        invalid = 20 * self.conv(x, edge_index).sum() - 10
        return torch.stack((torch.zeros(()), invalid))[None]


@pytest.fixture(scope="module")
def toy() -> tuple[GroupGraph, Toy]:
    """A chain of five, whose first operator alone has something to say: link 0 carries it."""
    graph = Groups(chain(5), Hardware(BETA)).graph(0b11111)
    return GroupGraph(graph.operators, np.array([[1], [0], [0], [0], [0]], np.float32), graph.links), Toy()


def test_fidelity_of_the_right_explanation_is_exactly_one_and_zero(toy):
    graph, model = toy
    found = measures([(graph, np.array([4.0, 1, 2, 3]))], model, kept=1)
    assert (found["fidelity_plus"], found["fidelity_minus"]) == (1, 0)
    assert found["unfaithfulness"] == pytest.approx(0, abs=1e-6)
    assert found["sparsity"] == pytest.approx(3 / 4)


def test_fidelity_of_the_wrong_explanation_is_exactly_zero_and_one(toy):
    graph, model = toy
    found = measures([(graph, np.array([1.0, 4, 2, 3]))], model, kept=1)
    assert (found["fidelity_plus"], found["fidelity_minus"]) == (0, 1)
    assert found["unfaithfulness"] > 0.9


def test_links_that_are_no_part_of_an_explanation_are_not_blamed(toy):
    graph, model = toy
    found = measures([(graph, np.array([-np.inf, 4, 2, -np.inf]))], model, kept=3)
    assert (found["fidelity_plus"], found["fidelity_minus"], found["sparsity"]) == (0, 1, pytest.approx(2 / 4))


def test_groups_without_enough_links_are_not_measured(toy):
    graph, model = toy
    assert measures([(graph, np.zeros(4))], model, kept=4)["groups"] == 0
