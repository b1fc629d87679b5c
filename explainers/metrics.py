"""Metrics of predicted probabilities: confusion, log loss, AUROC and calibration error.

The positive class is *invalid*: the group does not run whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

BINS = 15  # of the expected calibration error, equally wide


def confusion(probability: np.ndarray, invalid: np.ndarray) -> dict[str, Any]:
    """Confusion of probability (samples,), invalid (samples,) bool, at a threshold of one half.

    Counts, and ratios, which are NaN where there is nothing to count.

    >>> judged = confusion(np.array([0.9, 0.2, 0.7, 0.1]), np.array([True, True, False, False]))
    >>> judged["valid_called_invalid"]
    0.5
    """
    called = probability > 0.5
    hits = int((called & invalid).sum())
    misses = int((~called & invalid).sum())
    alarms = int((called & ~invalid).sum())
    rest = int((~called & ~invalid).sum())
    return {
        "samples": invalid.size,
        "invalid": hits + misses,
        "accuracy": _ratio(hits + rest, invalid.size),
        "precision": _ratio(hits, hits + alarms),
        "recall": _ratio(hits, hits + misses),
        "f1": _ratio(2 * hits, 2 * hits + alarms + misses),
        "f1_valid": _ratio(2 * rest, 2 * rest + alarms + misses),
        "valid_called_invalid": _ratio(alarms, alarms + rest),  # a screen loses these plans
        "invalid_called_valid": _ratio(misses, hits + misses),  # the exact checker finds these
    }


def measured(probability: np.ndarray, invalid: np.ndarray) -> dict[str, Any]:
    """`confusion` of probability (samples,), invalid (samples,) bool, with log loss, AUROC and ECE.

    The area under the ROC curve, and the expected calibration error.
    """
    return {
        **confusion(probability, invalid),
        "log_loss": log_loss(probability, invalid),
        "auroc": auroc(probability, invalid),
        "ece": calibration_error(probability, invalid),
    }


def by_label(
    labels: Sequence[Any] | np.ndarray, probability: np.ndarray, invalid: np.ndarray
) -> dict[str, dict[str, Any]]:
    """Per label: `confusion` of its samples; labels, probability and invalid are (samples,) each."""
    keys = np.asarray(labels)
    return {
        str(label): confusion(probability[keys == label], invalid[keys == label])
        for label in np.unique(keys).tolist()
    }


def log_loss(probability: np.ndarray, invalid: np.ndarray) -> float:
    """Mean negative log-likelihood in nats of probability (samples,), given invalid (samples,) bool."""
    given = np.clip(np.where(invalid, probability, 1 - probability), 1e-12, 1)
    if given.size:
        return float(-np.log(given).mean())
    return math.nan


def auroc(probability: np.ndarray, invalid: np.ndarray) -> float:
    """Area under the ROC curve of probability (samples,), given invalid (samples,) bool; NaN for one class.

    The chance that an invalid group is given a higher probability than a valid one.

    >>> auroc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]))
    0.875
    """
    positives = np.sort(probability[invalid])
    negatives = probability[~invalid]
    if not positives.size or not negatives.size:
        return math.nan
    below, upto = (np.searchsorted(positives, negatives, side) for side in ("left", "right"))
    return float((positives.size - (below + upto) / 2).mean() / positives.size)


def calibration_error(probability: np.ndarray, invalid: np.ndarray) -> float:
    """Expected calibration error of probability (samples,), given invalid (samples,) bool.

    How far, on average over BINS bins, the probability is from the share that is invalid. Source: Guo et al.,
    ICML 2017.
    """
    where = np.minimum((probability * BINS).astype(int), BINS - 1)
    gaps = np.bincount(where, probability, BINS) - np.bincount(where, invalid, BINS)
    return float(np.abs(gaps).sum() / max(invalid.size, 1))


def _ratio(part: int, whole: int) -> float:
    if whole:
        return part / whole
    return math.nan
