"""The predictor in NumPy is the PyTorch Geometric network, needs no torch, agrees with the checker."""

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
from torch_geometric.explain import DummyExplainer, Explainer
from torch_geometric.explain.config import ExplanationType, MaskType

from explainers.gnn_explainer import VERDICT
from explainers.graph import FEATURES, Batch, GroupGraphs, links, resized
from explainers.model import ValidityClassifier, ValidityGNN, neighbours, odds
from explainers.predictor import WEIGHTS, Predictor, pieces, scale
from explainers.scheme_rule import LabelScheme, SchemeRule, ValidityQuery
from lfopt.app.commands.dataset import dataflow, drawer
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts
from tests.explainers.networks import random_groups

SCHEMES = ("lbdf", "brr", "resident")
torch.set_num_threads(1)
BETA = 1 << 18


@cache
def flow_of(name: str) -> Dataflow:
    return dataflow(f"zoo:{name}")


def drawn(name: str, count: int, seed: int, scheme: str = "lbdf") -> list[int]:
    """Groups as a random search meets them."""
    costs = GroupCosts(flow_of(name), Hardware(BETA), scheme=scheme, epilogue=False)
    draw, met = drawer(costs), dict[int, None]()
    for number in range(count):
        met.update(dict.fromkeys(draw((seed, number), lambda mask: costs.least_need(mask)[1] < BETA)))
        if len(met) >= count:
            break
    return list(met)[:count]


def rule_of(name: str, scheme: LabelScheme = "lbdf", beta: int = BETA) -> SchemeRule:
    return SchemeRule(flow_of(name), Hardware(beta), scheme)


# -- graphs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v3_small", "deeplabv3_mobilenet_v3_large"])
def test_a_batch_is_its_graphs_one_after_the_other(name):
    groups, masks = GroupGraphs(flow_of(name), Hardware(BETA)), drawn(name, 60, 1)
    batch, apart = groups.batch(masks), Batch.of([groups.graph(mask) for mask in masks])
    assert np.array_equal(batch.features, apart.features)
    assert np.array_equal(batch.links, apart.links)
    assert np.array_equal(batch.starts, apart.starts)
    for mask in masks:
        assert np.array_equal(groups.graph(mask).links, links(flow_of(name), mask))
        assert groups.graph(mask).operators == tuple(bits(mask))


def test_batches_of_random_networks_have_the_links_of_each_group():
    for flow, mask in random_groups(60, 12):
        graph = GroupGraphs(flow, Hardware(4096)).graph(mask)
        assert np.array_equal(graph.links, links(flow, mask))
        assert graph.features.shape == (mask.bit_count(), FEATURES)
        assert np.isfinite(graph.features).all()


def test_parts_of_a_batch_are_whole_groups_and_lose_nothing():
    groups, masks = GroupGraphs(flow_of("mobilenet_v2"), Hardware(BETA)), drawn("mobilenet_v2", 50, 2)
    for operators in (1, 40, 10**6):
        parts = list(pieces(groups.batch(masks), operators))
        shift, shifted = 0, []
        for part in parts:
            shifted.append(part.links + shift)
            shift += len(part.features)
        assert sum(map(len, parts)) == len(masks)
        assert np.array_equal(np.concatenate(shifted, 1), groups.batch(masks).links)


def test_features_see_no_scale():
    """Twice the bytes per element is the same to the predictor: twice as much is needed.

    The buffer is nothing to it.
    """
    flow, masks = flow_of("mobilenet_v2"), drawn("mobilenet_v2", 20, 3)
    small, large = (
        SchemeRule(flow, Hardware(beta, element_bytes=2 * k), "lbdf").groups.batch(masks)
        for k, beta in ((1, BETA), (2, 1000))
    )
    assert np.allclose(small.features, large.features, atol=1e-6)
    assert np.allclose(2 * small.units, large.units)


def test_features_can_be_made_for_another_unit():
    flow, masks = flow_of("mobilenet_v3_small"), drawn("mobilenet_v3_small", 30, 4)
    one, rule = GroupGraphs(flow, Hardware(1)).batch(masks), rule_of("mobilenet_v3_small").groups.batch(masks)
    assert np.allclose(resized(one.features, rule.units[rule.group]), rule.features, atol=2e-6)
    for beta in (1000, BETA, 5 << 20):
        batch = GroupGraphs(flow, Hardware(beta)).batch(masks)
        assert (batch.units == beta).all()
        assert np.allclose(
            resized(one.features, np.full(len(batch.features), float(beta))), batch.features, atol=2e-6
        )


# -- the network ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_numpy_gives_what_pyg_gives(scheme):
    predictor = Predictor.load(scheme)
    network = ValidityGNN.of(predictor.weights)
    for name in ("mobilenet_v2", "resnet18"):
        batch = rule_of(name, scheme).groups.batch(drawn(name, 80, 5, scheme))
        features, group = torch.from_numpy(batch.features), torch.from_numpy(batch.group)
        rule = torch.from_numpy(np.stack((np.log2(batch.units), batch.never), 1)).float()
        given = torch.stack((torch.zeros(len(batch)), rule[:, 1]), 1)
        outputs = network(features, torch.from_numpy(batch.links), group, given)
        assert torch.allclose(
            outputs, network(features, neighbours(batch.links, len(batch.features)), group, given), atol=1e-4
        )
        for beta in (1 << 17, 1 << 20):
            expected = (
                odds(outputs.double(), rule.double(), torch.full((len(batch),), float(np.log2(beta))))
                .sigmoid()
                .numpy()
            )
            assert np.abs(predictor.forecast(batch).invalid(beta) - expected).max() < 1e-3
        expected = network.embed(features, torch.from_numpy(batch.links)).numpy()
        assert np.abs(predictor.embed_batch(batch) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_larger_the_buffer_the_less_likely_a_group_is_invalid(scheme):
    for name in ("mobilenet_v2", "fsrcnn"):
        forecast = Predictor.load(scheme).forecast(
            rule_of(name, scheme).groups.batch(drawn(name, 60, 10, scheme))
        )
        every = np.array([forecast.invalid(beta) for beta in np.geomspace(1 << 10, 1 << 40, 200)])
        assert (np.diff(every, axis=0) <= 1e-12).all()
        assert (every[0] > 0.5).all()
        assert ((every[-1] < 0.5) | (forecast.never > 0)).all()


def test_what_explainers_see_of_weighted_links_is_the_rule_and_the_network_with_them():
    """At weights of one it is the verdict; without links the rule looks at single operators."""
    rule, predictor, beta = rule_of("mobilenet_v3_small"), Predictor.load("lbdf"), 1 << 16
    verdict = ValidityClassifier(ValidityGNN.of(predictor.weights)).eval()
    explainer = Explainer(
        verdict, DummyExplainer(), ExplanationType.model, VERDICT, edge_mask_type=MaskType.object
    )
    several = [
        ValidityQuery(rule, mask, beta) for mask in drawn("mobilenet_v3_small", 60, 7) if mask & (mask - 1)
    ]
    for query in [query for query in several if predictor.odds([query])[0] > 0][:8]:
        logits, mask = predictor.odds([query]), query.mask
        inputs = ValidityClassifier.inputs([query], logits)
        softened = float(logits[0] * scale(logits)[0])
        assert verdict(**inputs)[0, 1].item() == pytest.approx(softened, abs=1e-3)
        links_ = query.graph.links.shape[1]
        masked = [
            explainer.get_masked_prediction(**inputs, edge_mask=torch.full((links_,), value))[0, 1].item()
            for value in (1.0, 0.0)
        ]
        assert masked[0] == pytest.approx(softened, abs=1e-3)
        alone = query.weighted(np.zeros(links_)).need
        assert alone.log2_bytes == max(np.log2(rule.groups.graph(1 << i).unit) for i in bits(mask))
        assert masked[1] < masked[0]


def test_a_verdict_does_not_depend_on_the_company():
    predictor, groups, masks = (
        Predictor.load("lbdf"),
        rule_of("squeezenet1_1").groups,
        drawn("squeezenet1_1", 30, 8),
    )
    together = predictor.forecast(groups.batch(masks)).invalid(BETA)
    alone = np.concatenate([predictor.forecast(groups.batch([mask])).invalid(BETA) for mask in masks])
    assert np.abs(alone - together).max() < 1e-4
    assert predictor.forecast(Batch.of([])).invalid(BETA).shape == (0,)


# -- what ships ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_shipped_predictor_agrees_with_the_exact_checker(scheme):
    """On groups that are drawn here, with a buffer size that training has not shown to all of them."""
    predictor, right, total = Predictor.load(scheme), 0, 0
    for name in ("mobilenet_v2", "resnet18", "squeezenet1_1"):
        masks = drawn(name, 120, 9, scheme)
        forecast = predictor.forecast(rule_of(name, scheme).groups.batch(masks))
        costs = GroupCosts(flow_of(name), Hardware(BETA), scheme=scheme, epilogue=False)
        needed = np.array([costs.least_need(mask)[1] for mask in masks])
        for beta in (200_000, 1 << 19):
            right += int(((forecast.invalid(beta) > 0.5) == (needed >= beta)).sum())
            total += len(masks)
    assert right / total > 0.98


@pytest.mark.parametrize("name", [f"{scheme}{part}" for scheme in SCHEMES for part in ("", "_pg", "_rg")])
def test_weights_are_small_and_their_card_is_theirs(name):
    data, card = (
        (WEIGHTS / f"{name}.safetensors").read_bytes(),
        json.loads((WEIGHTS / f"{name}.json").read_text()),
    )
    assert len(data) < 500_000
    assert card["weights_sha256"] == hashlib.sha256(data).hexdigest()
    assert card["command"].startswith("lfopt train")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_shipped_predictor_reaches_what_was_asked(scheme):
    card = json.loads((WEIGHTS / f"{scheme}.json").read_text())
    assert scheme == "brr" or "unseen_families" in card  # brr has no EfficientNet and no DeepLab
    for metrics in [card["metrics"]] + [card[key]["metrics"] for key in ("unseen_families",) if key in card]:
        assert metrics["test"]["accuracy"] >= 0.99
        assert metrics["test"]["near"]["accuracy"] >= 0.95


WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torch_geometric"):
            raise ModuleNotFoundError(f"refused: {name}", name=name)

sys.meta_path.insert(0, Refuse())
from explainers.scheme_rule import SchemeRule
from explainers.pg_explainer import pg_explainer
from explainers.predictor import Predictor
from explainers.rg_explainer import rg_explainer
from lfopt.app.commands.dataset import dataflow
from lfopt.ir import Hardware

for scheme in ("lbdf", "brr", "resident"):
    predictor = Predictor.load(scheme)
    needs = SchemeRule(dataflow("zoo:squeezenet1_1"), Hardware(1 << 17), scheme)
    mask = (1 << 12) - 1
    print(scheme, predictor.forecast(needs.groups.batch([mask])).invalid(1 << 17)[0])
    for make in (pg_explainer, rg_explainer):
        assert make(needs, predictor)(mask).size
assert "torch" not in sys.modules
"""


def test_predicting_and_explaining_need_no_torch():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(SCHEMES)


def test_files_that_are_no_weights_are_refused_in_one_line(tmp_path):
    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"a": np.zeros(3)}, tmp_path / "other.safetensors")
    weights = Predictor.load("lbdf").weights
    save_file(
        {**weights, "convs.0.lin_rel.weight": weights["convs.0.lin_rel.weight"][:, :-1].copy()},
        tmp_path / "old.safetensors",
    )
    for name, word in (
        ("none", "lfopt train"),
        ("text", "lfopt train"),
        ("other", "convs.0"),
        ("old", "features"),
    ):
        with pytest.raises(InvalidConfig, match=word) as caught:
            Predictor.load(tmp_path / f"{name}.safetensors")
        assert "\n" not in str(caught.value)
