"""Surrogates: trees in NumPy are scikit-learn's, and the shipped one ranks groups of an unseen network."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

from explainers import train_surrogate
from explainers.surrogate import COLUMNS, Rooflines, Surrogate
from lfopt.app.commands.options import chip
from lfopt.app.figures import GroupFigures
from lfopt.app.pipeline import load_network
from lfopt.app.surrogates import estimator, judged
from lfopt.ir import InvalidConfig
from lfopt.planning import GroupCosts
from tests.explainers.networks import rank_correlation

UNSEEN = "zoo:cells_inverted@11"


@pytest.fixture(scope="module")
def costs() -> GroupCosts:
    graph = load_network(UNSEEN, {"image": (1, 3, 64, 64)}, "default", weights=False)
    return GroupCosts.of(graph, chip("accelerator_256k.yaml", None, None), scheme="auto")


def test_what_ships_ranks_groups_of_a_network_that_is_new_to_it(costs: GroupCosts) -> None:
    judged_groups = judged(costs, 40, 3)
    said = Surrogate.load("cycles").estimate(judged_groups.read)
    truth = np.log2(judged_groups.cycles)
    assert rank_correlation(said.mean, truth) > 0.95
    assert (said.spread > 0).all() and np.mean(np.abs(said.mean - truth) <= 2 * said.spread) > 0.7


def test_groups_are_read_alike_alone_and_together(costs: GroupCosts) -> None:
    masks = [1, 2, 3, 1 << 4, (1 << 8) - (1 << 4)]
    masks = [mask for mask in masks if costs.price(mask) is not None]
    figures = GroupFigures(costs)
    together, rooflines = (
        estimator(figures, Surrogate.load("cycles"))(masks),
        Rooflines(costs, figures.meter.by_rows),
    )
    for k, mask in enumerate(masks):
        alone = Surrogate.load("cycles").estimate(rooflines.read((mask,)))
        assert together.mean[k] == pytest.approx(alone.mean[0]) and together.spread[k] == pytest.approx(
            alone.spread[0]
        )


def test_trees_in_numpy_learn_what_is_there_and_survive_a_file(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(train_surrogate, "ROUNDS", 80)
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(600, len(COLUMNS))).astype(np.float32)
    wanted = columns[:, 0] + np.abs(columns[:, 1])
    surrogate = train_surrogate.fit(columns, wanted, [f"family {k % 7}" for k in range(600)])
    assert np.corrcoef(surrogate.mean(columns), wanted)[0, 1] > 0.95
    save_file(surrogate.arrays(), tmp_path / "w.safetensors")
    assert (Surrogate.load(tmp_path / "w.safetensors").mean(columns) == surrogate.mean(columns)).all()
    save_file(
        {**surrogate.arrays(), "columns": np.frombuffer(b"other", np.uint8)}, tmp_path / "w.safetensors"
    )
    with pytest.raises(InvalidConfig, match="reads other columns"):
        Surrogate.load(tmp_path / "w.safetensors")
