"""The predictor in NumPy is the network in PyTorch Geometric, needs no torch, and agrees with the exact checker."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from explainers.graph import FEATURES, Batch, Groups, links, resized
from explainers.model import Network, neighbours
from explainers.predictor import WEIGHTS, Predictor, pieces
from lfopt.app.commands.dataset import dataflow, drawer
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts
from tests.explainers.networks import random_groups

SCHEMES = ("lbdf", "brr")
torch.set_num_threads(1)
BETA = 1 << 18


@cache
def flow_of(name: str) -> Dataflow:
    return dataflow(f"zoo:{name}")


def drawn(name: str, count: int, seed: int, scheme: str = "lbdf") -> list[int]:
    """Groups as a random search meets them."""
    costs = GroupCosts(flow_of(name), Hardware(BETA), scheme=scheme, epilogue=False)
    draw, found = drawer(costs), dict[int, None]()
    for number in range(count):
        found.update(dict.fromkeys(draw((seed, number), lambda mask: costs.least_need(mask)[1] < BETA)))
        if len(found) >= count:
            break
    return list(found)[:count]


def tensors(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    sizes = np.diff(np.append(batch.starts, len(batch.features)))
    group = torch.from_numpy(np.repeat(np.arange(len(batch)), sizes))
    return torch.from_numpy(batch.features), torch.from_numpy(batch.links), group, len(batch)


# -- graphs ------------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v3_small", "deeplabv3_mobilenet_v3_large"])
def test_a_batch_is_its_graphs_one_after_the_other(name):
    groups, masks = Groups(flow_of(name), Hardware(BETA)), drawn(name, 60, 1)
    batch, apart = groups.batch(masks), Batch.of([groups.graph(mask) for mask in masks])
    assert np.array_equal(batch.features, apart.features)
    assert np.array_equal(batch.links, apart.links)
    assert np.array_equal(batch.starts, apart.starts)
    for mask in masks:
        assert np.array_equal(groups.graph(mask).links, links(flow_of(name), mask))
        assert groups.graph(mask).operators == tuple(bits(mask))


def test_batches_of_random_networks_have_the_links_of_each_group():
    for flow, mask in random_groups(60, 12):
        graph = Groups(flow, Hardware(4096)).graph(mask)
        assert np.array_equal(graph.links, links(flow, mask))
        assert graph.features.shape == (mask.bit_count(), FEATURES)
        assert np.isfinite(graph.features).all()


def test_parts_of_a_batch_are_whole_groups_and_lose_nothing():
    groups, masks = Groups(flow_of("mobilenet_v2"), Hardware(BETA)), drawn("mobilenet_v2", 50, 2)
    for operators in (1, 40, 10**6):
        parts = list(pieces(groups.batch(masks), operators))
        shift, found = 0, []
        for part in parts:
            found.append(part.links + shift)
            shift += len(part.features)
        assert sum(map(len, parts)) == len(masks)
        assert np.array_equal(np.concatenate(found, 1), groups.batch(masks).links)


def test_features_see_no_scale():
    """Twice the bytes per element in twice the buffer is the same to the predictor."""
    flow, masks = flow_of("mobilenet_v2"), drawn("mobilenet_v2", 20, 3)
    small, large = (Groups(flow, Hardware(BETA * k, element_bytes=2 * k)).batch(masks).features for k in (1, 2))
    assert np.allclose(small, large, atol=1e-6)


def test_features_can_be_made_for_another_buffer():
    groups, masks = Groups(flow_of("mobilenet_v3_small"), Hardware(1)), drawn("mobilenet_v3_small", 30, 4)
    for beta in (1000, BETA, 5 << 20):
        batch = groups.at(beta).batch(masks)
        assert np.allclose(resized(groups.batch(masks).features, np.full(len(batch.features), float(beta))), batch.features, atol=2e-6)


# -- the network -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_numpy_gives_the_probabilities_of_pyg(scheme):
    predictor = Predictor.load(scheme)
    network = Network.of(predictor.weights)
    for name in ("mobilenet_v2", "resnet18"):
        for beta in (1 << 17, 1 << 20):
            batch = Groups(flow_of(name), Hardware(beta)).batch(drawn(name, 80, 5))
            features, where, group, count = tensors(batch)
            expected = network(features, where, group, count).sigmoid().numpy()
            by_matrix = network(features, neighbours(batch.links, len(batch.features)), group, count).sigmoid().numpy()
            assert np.abs(predictor.invalid(batch) - expected).max() < 1e-5
            assert np.abs(by_matrix - expected).max() < 1e-5


@pytest.mark.parametrize("scheme", SCHEMES)
def test_numpy_gives_the_embeddings_of_pyg(scheme):
    predictor = Predictor.load(scheme)
    network = Network.of(predictor.weights)
    groups = Groups(flow_of("mobilenet_v2"), Hardware(BETA))
    for mask in drawn("mobilenet_v2", 12, 6):
        graph = groups.graph(mask)
        expected = network.embed(torch.from_numpy(graph.features), torch.from_numpy(graph.links)).numpy()
        assert np.abs(predictor.embed(graph) - expected).max() <= 1e-5 * np.abs(expected).max()


def test_links_with_weights_are_those_of_pyg():
    predictor, rng = Predictor.load("lbdf"), np.random.default_rng(0)
    network = Network.of(predictor.weights)
    groups = Groups(flow_of("mobilenet_v3_small"), Hardware(BETA))
    for mask in drawn("mobilenet_v3_small", 10, 7):
        graph = groups.graph(mask)
        weights = rng.random((4, graph.links.shape[1])).astype(np.float32)
        x, where = torch.from_numpy(graph.features), torch.from_numpy(graph.links)
        expected = [network(x, where, edge_weight=torch.from_numpy(row)).sigmoid().item() for row in weights]
        assert np.abs(predictor.invalid_masked(graph, weights) - expected).max() < 1e-5
        ones = np.ones((1, graph.links.shape[1]))
        assert predictor.invalid_masked(graph, ones)[0] == pytest.approx(predictor.invalid([graph])[0], abs=1e-6)


def test_a_verdict_does_not_depend_on_the_company():
    predictor, groups, masks = Predictor.load("lbdf"), Groups(flow_of("squeezenet1_1"), Hardware(BETA)), drawn("squeezenet1_1", 30, 8)
    together = predictor.invalid(groups.batch(masks))
    assert np.abs(predictor.invalid([groups.graph(mask) for mask in reversed(masks)])[::-1] - together).max() < 1e-6
    assert [predictor.invalid([groups.graph(mask)])[0] for mask in masks[:5]] == pytest.approx(together[:5].tolist(), abs=1e-6)
    assert predictor.invalid([]).shape == (0,)


# -- what ships --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_shipped_predictor_agrees_with_the_exact_checker(scheme):
    """On groups that are drawn here, with a buffer size that training has not shown to all of them."""
    predictor, right, total = Predictor.load(scheme), 0, 0
    for name in ("mobilenet_v2", "resnet18", "squeezenet1_1"):
        masks = drawn(name, 120, 9, scheme)
        for beta in (200_000, 1 << 19):
            costs = GroupCosts(flow_of(name), Hardware(beta), scheme=scheme, epilogue=False)
            invalid = np.array([costs.least_need(mask)[1] >= beta for mask in masks])
            right += int(((predictor.invalid(Groups(flow_of(name), Hardware(beta)).batch(masks)) > 0.5) == invalid).sum())
            total += len(masks)
    assert right / total > 0.95


@pytest.mark.parametrize("name", [f"{scheme}{part}" for scheme in SCHEMES for part in ("", "_pg", "_rg")])
def test_weights_are_small_and_their_card_is_theirs(name):
    data, card = (WEIGHTS / f"{name}.safetensors").read_bytes(), json.loads((WEIGHTS / f"{name}.json").read_text())
    assert len(data) < 500_000
    assert card["weights_sha256"] == hashlib.sha256(data).hexdigest()
    assert card["command"].startswith("lfopt train")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_shipped_predictor_reaches_what_was_asked(scheme):
    card = json.loads((WEIGHTS / f"{scheme}.json").read_text())
    assert card["metrics"]["test"]["accuracy"] >= 0.97
    assert card["metrics"]["test"]["f1"] >= 0.97
    assert card["unseen_families"]["metrics"]["test"]["f1"] >= 0.90


WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torch_geometric"):
            raise ModuleNotFoundError(f"refused: {name}", name=name)

sys.meta_path.insert(0, Refuse())
from explainers.graph import Groups
from explainers.pg_explainer import pg_explainer
from explainers.predictor import Predictor
from explainers.rg_explainer import rg_explainer
from lfopt.app.commands.dataset import dataflow
from lfopt.ir import Hardware

flow, chip = dataflow("zoo:squeezenet1_1"), Hardware(1 << 17)
for scheme in ("lbdf", "brr"):
    predictor = Predictor.load(scheme)
    mask = (1 << 12) - 1
    print(scheme, predictor.invalid(Groups(flow, chip).batch([mask]))[0])
    for make in (pg_explainer, rg_explainer):
        assert make(flow, chip, predictor)(mask).size
assert "torch" not in sys.modules
"""


def test_predicting_and_explaining_need_no_torch():
    found = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert [line.split()[0] for line in found.stdout.splitlines()] == list(SCHEMES)


def test_files_that_are_no_weights_are_refused_in_one_line(tmp_path):
    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"a": np.zeros(3)}, tmp_path / "other.safetensors")
    weights = Predictor.load("lbdf").weights
    save_file({**weights, "convs.0.lin_rel.weight": weights["convs.0.lin_rel.weight"][:, :-1].copy()}, tmp_path / "old.safetensors")
    for name, word in (("none", "lfopt train"), ("text", "lfopt train"), ("other", "convs.0"), ("old", "features")):
        with pytest.raises(InvalidConfig, match=word) as caught:
            Predictor.load(tmp_path / f"{name}.safetensors")
        assert "\n" not in str(caught.value)
