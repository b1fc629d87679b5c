"""Leaving one family out: who learns from what, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import families
from benchmarks.families import JUDGES, FamilyFigures, ValiditySamples, left_out
from explainers.graph import FEATURES


def drawn(rng: np.random.Generator) -> ValiditySamples:
    """Samples of four families whose schedule says a little less than what is needed."""
    count = 400
    distance = rng.normal(0, 1, count)
    over = {"sums": distance + rng.normal(0, 0.5, count), "schedule": distance - 0.05}
    columns = rng.normal(0, 1, (count, 2 * FEATURES + 1)).astype(np.float32)
    columns[:, 0] = distance
    return ValiditySamples(
        np.repeat(["A", "B", "C", "D"], count // 4), distance >= 0, np.abs(distance), columns, over, ()
    )


def test_nobody_learns_from_the_family_it_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, asked = drawn(np.random.default_rng(0)), list[tuple[str, str]]()

    def spy(given: ValiditySamples, known: np.ndarray) -> families.Verdicts:
        return lambda where: (
            asked.append(("".join(np.unique(given.family[known])), "".join(np.unique(given.family[where]))))
            or np.zeros(where.sum())
        )

    monkeypatch.setitem(JUDGES, "spy", spy)
    left_out(samples, ["spy"], 1, lambda family: None)
    assert asked == [("BCD", "A"), ("ACD", "B"), ("ABD", "C"), ("ABC", "D")]


def test_formulas_compare_and_learners_beat_noise() -> None:
    samples = drawn(np.random.default_rng(1))
    probabilities = left_out(samples, [*JUDGES], 1, lambda family: None)
    for formula in ("sums", "schedule"):
        assert ((probabilities[formula] > 0.5) == (samples.over[formula] >= 0)).all()
    figures = {judge: FamilyFigures.of(samples, probability) for judge, probability in probabilities.items()}
    near, far = "within 0.25", "over 1"
    assert figures["schedule"].mean("accuracy") > figures["sums"].mean("accuracy")
    assert figures["schedule"].mean(far) == 1 > figures["schedule"].mean(near)
    assert figures["trees"].mean("accuracy") > 0.95
    least, family = figures["sums"].worst("accuracy")
    assert least == min(each["accuracy"] for each in figures["sums"].by_family.values()) and family in "ABCD"
    assert 0 < figures["sums"].interval("accuracy") < 0.1
