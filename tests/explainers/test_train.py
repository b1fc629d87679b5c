"""lfopt train: what it writes is what it measured, again and again the same; figures mean what they say."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from explainers import fit
from explainers.dataset import Dataset, splits
from explainers.fit import TrainingSettings
from explainers.graph import Batch
from explainers.metrics import auroc, by_label, calibration_error, confusion, log_loss
from explainers.minibatches import Material, collate, whole
from explainers.predictor import Predictor
from explainers.sampling import BETAS
from explainers.train import train_predictor
from lfopt.app.commands.dataset import dataflow
from lfopt.app.commands.dataset import dataset as make_dataset
from lfopt.app.commands.train import train as command
from lfopt.fusion import connected_parts
from lfopt.ir import InvalidConfig
from lfopt.ops import bits

NETWORKS = ("zoo:squeezenet1_1", "zoo:efficientnet_b0", "zoo:mobilenet_v3_small")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "set"
    make_dataset(*NETWORKS, out_dir=path, scheme="lbdf", groups=200, jobs=1, zoo=False)
    return path


@pytest.fixture(scope="module")
def data(folder) -> Dataset:
    return Dataset.read(folder, "lbdf", dataflow)


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "new"
    command(folder, out_dir=path, epochs=3, samples=16, explainers=True)
    return path


def quiet(what: str, done: float) -> None:
    assert what and 0 <= done <= 1


# -- what it writes ------------------------------------------------------------------------------------------


def test_a_few_epochs_already_tell_valid_from_invalid(trained):
    card = json.loads((trained / "lbdf.json").read_text())
    assert card["metrics"]["test"]["auroc"] > 0.8
    assert card["epochs"] == len(card["losses"]) == 3
    assert card["best_epoch"] == 1 + int(np.argmin([validation for _, validation in card["losses"]]))


def test_the_card_says_what_the_stored_weights_do(trained, data):
    card = json.loads((trained / "lbdf.json").read_text())
    part = splits(data, "random", 0).test
    forecast = Predictor.load(trained / "lbdf.safetensors").forecast(Batch.of(data.graphs(part)))
    probability = np.concatenate([forecast.invalid(beta) for beta in BETAS])
    expected = confusion(probability, np.concatenate([data.needs[part] >= beta for beta in BETAS]))
    test_metrics = card["metrics"]["test"]
    assert {key: test_metrics[key] for key in expected} == {
        key: pytest.approx(value, abs=1e-5) for key, value in expected.items()
    }
    assert card["data"]["sha256"] == data.sha256
    assert (
        card["data"]["command"]
        == f"lfopt dataset {' '.join(NETWORKS)} --no-zoo --groups 200 --drawn 0 --seed 0 --scheme lbdf"
    )
    assert card["data"]["groups"]["test"] == len(part)
    assert sum(network["test"] for network in card["data"]["networks"].values()) == len(part)
    for cut in ("by_beta", "by_family", "by_network"):
        assert (
            sum(row["samples"] for row in test_metrics[cut].values())
            == test_metrics["samples"]
            == 5 * len(part)
        )
    assert card["weights_sha256"] == hashlib.sha256((trained / "lbdf.safetensors").read_bytes()).hexdigest()


def test_explainers_are_measured_beside_random_links(trained):
    for name in ("pg", "rg"):
        card = json.loads((trained / f"lbdf_{name}.json").read_text())
        assert card["metrics"]["groups"] == card["metrics"]["random_links"]["groups"] > 0
        assert 0 <= card["metrics"]["unfaithfulness"] <= 1
        assert (
            card["predictor_sha256"]
            == hashlib.sha256((trained / "lbdf.safetensors").read_bytes()).hexdigest()
        )
    assert sorted(path.name for path in trained.iterdir()) == sorted(
        f"lbdf{part}{end}" for part in ("", "_pg", "_rg") for end in (".json", ".safetensors")
    )


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights(trained, folder, tmp_path):
    command(folder, out_dir=tmp_path, epochs=3, samples=16, explainers=True)
    for name in ("lbdf", "lbdf_pg", "lbdf_rg"):
        assert (tmp_path / f"{name}.safetensors").read_bytes() == (
            trained / f"{name}.safetensors"
        ).read_bytes()


def test_unseen_families_are_not_trained_with(data):
    card = train_predictor(data, "family", TrainingSettings(epochs=1), quiet).card
    networks = card["data"]["networks"]
    assert (
        networks["efficientnet_b0"]["train"]
        == networks["efficientnet_b0"]["validation"]
        == 0
        < networks["efficientnet_b0"]["test"]
    )
    assert all(
        network["test"] == 0 < network["train"]
        for name, network in networks.items()
        if name != "efficientnet_b0"
    )
    assert set(card["metrics"]["test"]["by_family"]) == {"EfficientNet"}


def test_training_ends_when_it_no_longer_helps(data):
    # at rate 0 nothing is learnt
    trained = train_predictor(data, "random", TrainingSettings(epochs=40, patience=2, rate=0.0), quiet)
    assert trained.card["epochs"] == 3
    assert trained.card["best_epoch"] == 1


def test_minibatches_hold_every_group_once(data):
    part = splits(data, "random", 0).train
    order = np.random.default_rng(0).permutation(part)
    batches = collate(whole(data, order), 200)
    residuals = np.concatenate([batch.residual.numpy() for batch in batches])
    units = np.array([graph.unit for graph in data.graphs(order)])
    assert np.exp2(residuals) * units == pytest.approx(data.needs[order], rel=1e-5)
    features, adjacent, group, given = batches[0].inputs
    assert len(features) == len(group) == adjacent.shape[0]
    assert len(given) == int(group.max()) + 1 == len(batches[0].never)
    dense = adjacent.to_dense()
    assert (dense == dense.T).all()
    assert set(dense.unique().tolist()) <= {0.0, 1.0}


def test_material_has_groups_whole_and_weighted_with_the_labels_of_the_checker(data):
    part = splits(data, "random", 0).validation
    material = Material.of(data, part, 2, np.random.default_rng(0))
    assert [*material.whole] == [*material.weighted] == part.tolist()
    seen = 0
    for group in part.tolist():
        graph, checker = material.whole[group].graph, data.checker(int(data.network[group]))
        assert len(material.weighted[group]) == (2 if len(graph) > 1 else 0)
        for labelled in material.weighted[group]:
            assert labelled.graph is graph and ((labelled.weights >= 0) & (labelled.weights <= 1)).all()
            # cut for good: the neediest of what hangs together
            if set(labelled.weights.tolist()) <= {0.0, 1.0}:
                seen += 1
                neighbours = [0] * len(graph)
                for (u, v), there in zip(graph.links.T.tolist(), labelled.weights.tolist(), strict=True):
                    neighbours[u] |= int(there) << v
                    neighbours[v] |= int(there) << u
                parts = connected_parts(neighbours, (1 << len(graph)) - 1)
                masks = [sum(1 << graph.operators[k] for k in bits(piece)) for piece in parts]
                assert 2**labelled.need.log2_bytes == pytest.approx(max(checker.need(mask) for mask in masks))
            else:
                assert labelled.need.log2_bytes < material.whole[group].need.log2_bytes + 1
    assert seen > 5


def test_a_run_that_was_killed_goes_on_to_the_same_weights(folder, tmp_path, monkeypatch):
    """Killed in the second epoch of the second seed; other settings do not take its checkpoints."""
    arguments = {"epochs": 3, "seeds": 2, "log": tmp_path / "log.csv"}
    command(folder, out_dir=tmp_path / "whole", **arguments)
    expected = (tmp_path / "log.csv").read_text().splitlines()
    epochs: list[int] = []
    losses = fit._losses

    def killed(*given):
        epochs.append(1)
        if len(epochs) > 5 * len(expected):
            raise KeyboardInterrupt
        return losses(*given)

    monkeypatch.setattr(fit, "_losses", killed)
    with pytest.raises(KeyboardInterrupt):
        command(folder, out_dir=tmp_path / "killed", **arguments)
    monkeypatch.setattr(fit, "_losses", losses)
    assert sorted(path.name for path in (tmp_path / "killed/.checkpoints").iterdir())
    with pytest.raises(InvalidConfig, match=r"lbdf-random-0\.pt: is of a training with patience 8; found 7"):
        command(folder, out_dir=tmp_path / "killed", resume=True, patience=7, **arguments)
    command(folder, out_dir=tmp_path / "killed", resume=True, **arguments)
    assert (tmp_path / "killed/lbdf.safetensors").read_bytes() == (
        tmp_path / "whole/lbdf.safetensors"
    ).read_bytes()
    assert not (tmp_path / "killed/.checkpoints").exists()
    log_lines = (tmp_path / "log.csv").read_text().splitlines()
    assert [line.rsplit(",", 1)[0] for line in log_lines] == [line.rsplit(",", 1)[0] for line in expected]
    assert len(log_lines) == 1 + 2 * 3


def test_what_is_no_checkpoint_is_one_line(folder, tmp_path):
    path = tmp_path / "w/.checkpoints/lbdf-random-0.pt"
    path.parent.mkdir(parents=True)
    for data in (b"", b"PK\3\4 no archive", pickle.dumps({"settings": print})):
        path.write_bytes(data)
        with pytest.raises(InvalidConfig, match=r"lbdf-random-0\.pt: not a checkpoint") as caught:
            command(folder, out_dir=tmp_path / "w", epochs=1, resume=True)
        assert "\n" not in str(caught.value)


# -- wrong input ---------------------------------------------------------------------------------------------


def test_wrong_input_is_one_line_and_exit_code_2(folder, tmp_path):
    (tmp_path / "file").write_text("")
    wrong = [
        ([str(tmp_path), "-o", str(tmp_path / "w")], "lfopt dataset"),
        ([str(folder), "-o", str(tmp_path / "file")], "folder"),
        ([str(folder), "-o", str(tmp_path / "w"), "--epochs", "0"], "--epochs 0"),
        ([str(folder), "-o", str(tmp_path / "w"), "--scheme", "brr"], "brr"),
        ([str(folder), "-o", str(tmp_path / "w"), "--all", "--split", "family"], "--all"),
    ]
    for arguments, word in wrong:
        with pytest.raises(InvalidConfig, match=word) as caught:
            _call(arguments)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "w").exists()
    done = subprocess.run(
        [sys.executable, "-m", "lfopt.app.cli", "train", *wrong[0][0]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def _call(arguments: list[str]) -> None:
    from lfopt.app.command_line import app

    app(["train", *arguments], exit_on_error=False, result_action="return_value")


# -- figures -------------------------------------------------------------------------------------------------


def test_figures_of_a_known_case():
    probability = np.array([0.9, 0.8, 0.4, 0.6, 0.1])
    invalid = np.array([True, True, True, False, False])
    figures = confusion(probability, invalid)
    assert (figures["accuracy"], figures["precision"], figures["recall"]) == (3 / 5, 2 / 3, 2 / 3)
    assert (figures["f1"], figures["f1_valid"]) == (4 / 6, 2 / 4)
    assert (figures["valid_called_invalid"], figures["invalid_called_valid"]) == (1 / 2, 1 / 3)
    assert auroc(probability, invalid) == pytest.approx(5 / 6)
    assert log_loss(np.array([0.5, 0.5]), np.array([True, False])) == pytest.approx(np.log(2))
    assert by_label(["a", "b", "a", "b", "b"], probability, invalid)["a"]["recall"] == 1 / 2


def test_a_calibrated_guess_has_no_calibration_error_and_a_sure_wrong_one_has_all():
    invalid = np.arange(1000) % 4 == 0
    assert calibration_error(np.full(1000, 0.25), invalid) == pytest.approx(0)
    assert calibration_error(np.ones(10), np.zeros(10, bool)) == 1
    assert calibration_error(np.zeros(10), np.zeros(10, bool)) == 0
