"""The algebra of moments against samples."""

from __future__ import annotations

import numpy as np
import pytest

from lfopt.zoo import moments
from lfopt.zoo.moments import Moments

CHANNELS, POSITIONS = 4000, 500


def sample(x: Moments, seed: int) -> np.ndarray:
    """(channels, positions) normal values with these moments."""
    rng = np.random.default_rng(seed)
    static = np.sqrt(x.static) * rng.standard_normal((CHANNELS, 1))
    return x.mean + static + np.sqrt(x.varying) * rng.standard_normal((CHANNELS, POSITIONS))


def measured(values: np.ndarray) -> Moments:
    """Moments of (channels, positions) values."""
    return Moments(float(values.mean()), float(values.mean(axis=1).var()), float(values.var(axis=1).mean()))


def assert_close(estimate: Moments, wanted: Moments) -> None:
    assert estimate.mean == pytest.approx(wanted.mean, abs=0.03)
    assert estimate.static == pytest.approx(wanted.static, abs=0.03, rel=0.05)
    assert estimate.varying == pytest.approx(wanted.varying, abs=0.03, rel=0.05)


X, Y = Moments(0.5, 0.3, 1.0), Moments(-1.0, 0.2, 0.5)


@pytest.mark.parametrize(
    "function",
    [lambda v: np.maximum(v, 0), np.tanh, lambda v: v / (1 + np.exp(-v))],
    ids=["relu", "tanh", "silu"],
)
def test_activated_agrees_with_samples(function) -> None:
    assert_close(moments.activated(function, X), measured(function(sample(X, 1))))


def test_added_agrees_with_samples() -> None:
    assert_close(moments.added(X, Y), measured(sample(X, 1) + sample(Y, 2)))


def test_multiplied_agrees_with_samples() -> None:
    assert_close(moments.multiplied(X, Y), measured(sample(X, 1) * sample(Y, 2)))


def test_joined_agrees_with_samples() -> None:
    assert_close(moments.joined([(64, X), (64, Y)]), measured(np.concatenate([sample(X, 1), sample(Y, 2)])))


@pytest.mark.parametrize("window", [4, 8, 9, 25])
def test_largest_agrees_with_samples_after_relu(window: int) -> None:
    rectified = np.maximum(np.random.default_rng(0).standard_normal((CHANNELS, POSITIONS, window)), 0)
    before = moments.activated(lambda v: np.maximum(v, 0), Moments(0.0, 0.0, 1.0))
    assert_close(moments.largest(before, window), measured(rectified.max(axis=2)))


def test_normalized_has_unit_variance_and_keeps_the_share_of_what_varies() -> None:
    normal = moments.normalized(X)
    assert (normal.mean, normal.variance) == (0.0, pytest.approx(1.0))
    assert normal.varying / normal.static == pytest.approx(X.varying / X.static)


def test_attended_agrees_with_samples() -> None:
    rng = np.random.default_rng(0)
    scores = np.where(np.tril(np.ones((64, 64), bool)), rng.standard_normal((500, 64, 64)), -np.inf)
    shares = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    # Axes: texts, positions, channels.
    values = np.moveaxis(sample(X, 1).reshape(500, 8, POSITIONS)[:, :, :64], 1, 2)
    sampled = measured(np.moveaxis(shares @ values, 2, 1).reshape(-1, 64))
    estimate = moments.attended(X, range(1, 65))
    assert sampled.mean == pytest.approx(estimate.mean, abs=0.03)
    assert sampled.mean**2 + sampled.variance == pytest.approx(estimate.mean_square, rel=0.05)
    assert np.mean(np.sum(shares**2, axis=-1)) == pytest.approx(estimate.varying / X.varying, rel=0.15)


def test_live_taps_of_a_wide_dilation_is_the_centre_alone() -> None:
    """The largest branch of DeepLab's pyramid: a 33 x 33 map, rate 36."""
    assert moments.live_taps(size=33, out=33, kernel=3, stride=1, dilation=36, before=36) == pytest.approx(
        1 / 3
    )
