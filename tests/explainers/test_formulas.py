"""Formulas against the exact checker: equal where nothing is kept for later, close where something is."""

from __future__ import annotations

import numpy as np
import pytest

from explainers.beyond_formulas import BeyondFormulas
from explainers.checker import Checker, LabelScheme, seen
from explainers.formulas import Formulas
from explainers.graph import member_table
from explainers.sampling import BETAS
from explainers.scheme_rule import FORMULAS, SchemeRule
from lfopt import zoo
from lfopt.app.commands.dataset import drawer
from lfopt.frontend import from_model
from lfopt.ir import NEVER, Hardware
from lfopt.ops import Dataflow, bits
from lfopt.planning import SCHEMES, GroupCosts
from lfopt.rewrite import simplify
from tests.explainers.networks import chain, convolutions

ROUGH: dict[LabelScheme, float] = {
    "lbdf": 0.995,
    "brr": 0.995,
    "resident": 0.999,
    "strips": 0.998,
}  # share of verdicts that are right on the networks below, at the least
FAMILIES = ("dense", "inverted", "residual", "pyramid", "attention", "windows", "encoder", "diffusion")


def test_rings_of_a_chain_are_exact() -> None:
    flow = chain(6)
    checker = Checker.of(flow, Hardware(1), "lbdf")
    runs = [(1 << stop) - (1 << start) for start in range(6) for stop in range(start + 1, 7)]
    members = member_table(runs, len(flow))
    exact = [checker.need(run) for run in runs]
    assert Formulas(flow, Hardware(1)).by_lines(members).tolist() == exact
    assert Formulas(flow, Hardware(1)).by_sums(members).tolist() == exact


def test_what_a_skip_keeps() -> None:
    flow = _flow("unet")
    formulas, members = Formulas(flow, Hardware(1)), member_table([flow.everything], len(flow))
    exact = Checker.of(flow, Hardware(1), "lbdf").need(flow.everything)
    ring = formulas.rings(members)
    kept = {flow.operators[i].name for i in bits(flow.everything) if ring.kept[0, i]}
    # they wait for the way down and up again
    assert kept == {"down1.conv2.relu", "down2.conv2.relu", "down3.conv2.relu", "down4.conv2.relu"}
    assert formulas.by_sums(members)[0] < 0.8 * exact
    # the first row asks for less than later ones do
    assert 0.95 * exact < formulas.by_lines(members)[0] < exact


def test_strips_of_a_chain_of_convolutions_are_exact() -> None:
    """Of as many strips as the planner may try, but for numbers that are not tried here."""
    flow = convolutions([4, 8, 8, 16, 4], [3, 5, 1, 3], size=48)
    checker = Checker.of(flow, Hardware(1), "strips")
    runs = [(1 << stop) - (1 << start) for start in range(4) for stop in range(start + 1, 5)]
    needs = BeyondFormulas(flow, Hardware(1)).by_strips(member_table(runs, len(flow)))
    exact = [checker.need(run) for run in runs]
    assert needs.tolist() == exact
    capped = BeyondFormulas(flow, Hardware(1), max_recompute=1.0).by_strips(member_table(runs, len(flow)))
    # nothing is computed twice: one operator, or one behind it of 1 x 1
    only_loads = [run & (run - 1) == 0 or run == 0b110 for run in runs]
    assert np.isfinite(capped).tolist() == only_loads


def test_constants_that_stay_whole_or_are_shared_count_once_and_whole() -> None:
    """Of what is no convolution: factors, shifts, tables of positions, weights that layers share."""
    flow, chip = _flow("cells_encoder@8"), Hardware(BETAS[-1])
    shared = {w.name for weights in flow.weights for w in weights if w.name.startswith("layer.")}
    assert shared, "layers of this network share their weights"
    groups = [1 << i for i in range(len(flow))] + [flow.everything]
    members = member_table(groups, len(flow))
    for scheme in ("brr", "resident"):
        checker = Checker.of(flow, chip, scheme)
        exact = np.array([checker.need(group) for group in groups], np.float64)
        guessed = FORMULAS[scheme](BeyondFormulas(flow, chip), members)
        runs = exact < NEVER
        assert guessed[runs].tolist() == pytest.approx(exact[runs], rel=0.05), scheme
        assert (guessed[:-1][runs[:-1]] == exact[:-1][runs[:-1]]).mean() > 0.9, scheme


@pytest.mark.parametrize("scheme", ROUGH)
def test_most_verdicts_are_right_on_networks_drawn_at_random(scheme: LabelScheme) -> None:
    right: list[bool] = []
    for family in FAMILIES:
        flow, chip = seen(_flow(f"cells_{family}@7"), scheme), Hardware(BETAS[-1])
        checker = Checker.of(flow, chip, scheme)
        draw = drawer(checker.costs)
        groups = [
            *dict.fromkeys(
                group
                for seed in range(2)
                for group in draw((seed,), lambda mask, checker=checker: checker.need(mask) < BETAS[1])
            )
        ]
        guessed = FORMULAS[scheme](BeyondFormulas(flow, chip), member_table(groups, len(flow)))
        exact = np.array([checker.need(group) for group in groups])
        assert (guessed[exact < NEVER] > 0).all()
        if scheme != "strips":
            assert (np.isfinite(guessed) == (exact < NEVER)).all(), family
        right += [
            (guess < beta) == (needed < beta)
            for guess, needed in zip(guessed, exact, strict=True)
            for beta in BETAS
        ]
    assert len(right) > 500
    assert np.mean(right) >= ROUGH[scheme]


@pytest.mark.parametrize("scheme", ["auto", "all"])
def test_the_rule_of_a_scheme_is_the_least_over_its_modes_and_mostly_right(scheme: str) -> None:
    """The network has gates: groups of all six modes are among those drawn."""
    costs = GroupCosts.of(
        _flow("mobilenet_v3_small").graph, Hardware(BETAS[-1]), scheme=scheme, epilogue=False
    )
    draw = drawer(costs)
    groups = [
        *dict.fromkeys(
            group
            for seed in range(6)
            for group in draw((seed,), lambda mask: costs.least_need(mask)[1] < BETAS[0] // 8)
        )
    ]
    rule, members = (
        SchemeRule(costs.dataflow, costs.hardware, scheme),
        member_table(groups, len(costs.dataflow)),
    )
    guessed, exact = np.array(rule.of(groups)), np.array([costs.least_need(group)[1] for group in groups])
    assert [*rule.modes] == [mode for mode in FORMULAS if mode in SCHEMES[scheme].modes]
    by_mode = np.array(
        [FORMULAS[mode](BeyondFormulas(costs.dataflow, costs.hardware), members) for mode in rule.modes]
    )
    if scheme == "all":
        assert np.isfinite(by_mode).any(1).all()
    assert np.exp2(guessed[:, 0]) == pytest.approx(by_mode.min(0))
    assert not guessed[:, 1].any()
    betas = np.array([BETAS[0] // 8, *BETAS])[:, None]
    assert np.mean((np.exp2(guessed[:, 0]) < betas) == (exact < betas)) > 0.98


def _flow(name: str) -> Dataflow:
    return Dataflow.of(simplify(from_model(zoo.build(name, weights=False))))
