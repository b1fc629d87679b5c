"""Formulas against the exact checker: equal where nothing is kept for later, close where something is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from explainers.dataset import LabelScheme, costs_of
from explainers.formulas import Formulas
from explainers.graph import member_table
from explainers.sampling import BETAS, need
from lfopt import zoo
from lfopt.app.commands.dataset import drawer
from lfopt.frontend import from_model
from lfopt.ir import NEVER, Hardware
from lfopt.ops import Dataflow, bits
from lfopt.rewrite import simplify
from tests.explainers.networks import chain

Formula = Callable[[Formulas, np.ndarray], np.ndarray]
OF: dict[LabelScheme, Formula] = {"lbdf": Formulas.by_lines, "brr": Formulas.by_bands, "resident": Formulas.by_lives}
ROUGH: dict[LabelScheme, float] = {
    "lbdf": 0.985,
    "brr": 0.96,
    "resident": 0.98,
}  # share of verdicts that are right on the networks below; all three come out above 0.99


def test_rings_of_a_chain_are_exact() -> None:
    flow = chain(6)
    costs = costs_of(flow, Hardware(1), "lbdf")
    runs = [(1 << stop) - (1 << start) for start in range(6) for stop in range(start + 1, 7)]
    members = member_table(runs, len(flow))
    exact = [need(costs, run) for run in runs]
    assert Formulas(flow, Hardware(1)).by_lines(members).tolist() == exact
    assert Formulas(flow, Hardware(1)).by_sums(members).tolist() == exact


def test_what_a_skip_keeps() -> None:
    flow = _flow("unet")
    formulas, members = Formulas(flow, Hardware(1)), member_table([flow.everything], len(flow))
    exact = need(costs_of(flow, Hardware(1), "lbdf"), flow.everything)
    ring = formulas.rings(members)
    kept = {flow.operators[i].name for i in bits(flow.everything) if ring.kept[0, i]}
    assert kept == {"down1.conv2.relu", "down2.conv2.relu", "down3.conv2.relu", "down4.conv2.relu"}  # they wait for the way down and up again
    assert formulas.by_sums(members)[0] < 0.8 * exact
    assert 0.95 * exact < formulas.by_lines(members)[0] < exact  # the first row asks for less than later ones do


@pytest.mark.parametrize("scheme", ["lbdf", "brr", "resident"])
def test_most_verdicts_are_right_on_networks_drawn_at_random(scheme: LabelScheme) -> None:
    right: list[bool] = []
    for family in ("dense", "inverted", "residual", "pyramid"):
        flow, chip = _flow(f"cells_{family}@7"), Hardware(BETAS[-1])
        costs = costs_of(flow, chip, scheme)
        draw = drawer(costs)
        groups = [*dict.fromkeys(group for seed in range(6) for group in draw((seed,), lambda mask, costs=costs: need(costs, mask) < BETAS[1]))]
        guessed = OF[scheme](Formulas(flow, chip), member_table(groups, len(flow)))
        exact = np.array([need(costs, group) for group in groups])
        assert (guessed[exact < NEVER] > 0).all()
        right += [(guess < beta) == (needed < beta) for guess, needed in zip(guessed, exact, strict=True) for beta in BETAS]
    assert len(right) > 500
    assert np.mean(right) > ROUGH[scheme]


def _flow(name: str) -> Dataflow:
    return Dataflow.of(simplify(from_model(zoo.build(name, weights=False))))
