"""Fit a surrogate to a judge's costs of groups of several networks.

Needs scikit-learn; what it makes does not.

Spreads are learnt from errors on networks left out: what trees say of groups that they have seen is too good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from explainers.surrogate import Surrogate
from explainers.trees import Trees

FOLDS = 5  # parts of the families that are left out by turns
LEAST_ERROR = 2.0**-10  # doublings; errors below it are as good as none
# log2 of an absolute error is so much below that of the spread, on average, where errors are normal
NORMAL = 0.635
SETTINGS: dict[str, Any] = {
    "learning_rate": 0.05,
    "max_leaf_nodes": 15,
    "min_samples_leaf": 15,
    "l2_regularization": 1.0,
    "random_state": 0,
}
ROUNDS, DOUBT_ROUNDS = 300, 60  # trees: of the mean, of the spread


def fit(columns: np.ndarray, above: np.ndarray, families: Sequence[str]) -> Surrogate:
    """Boosted trees of columns (groups, columns) -> above (groups,), log2 of the cost over the roofline.

    `families`: per group, the family of its network. Errors are fitted on families left out.
    """
    of = np.asarray(families)
    names = np.unique(of)
    left_out = np.empty(len(above))
    for fold in range(min(FOLDS, len(names))):
        inside = np.isin(of, names[fold::FOLDS])
        left_out[inside] = trees(columns[~inside], above[~inside], ROUNDS)(columns[inside])
    errors = np.log2(np.maximum(np.abs(above - left_out), LEAST_ERROR)) + NORMAL
    return Surrogate(trees(columns, above, ROUNDS), trees(columns, errors, DOUBT_ROUNDS))


def trees(columns: np.ndarray, wanted: np.ndarray, rounds: int) -> Trees:
    """Boosted trees, `rounds` of them, of columns (groups, columns) -> wanted (groups,)."""
    with threadpool_limits(1):  # threads that wait for one another are slow where cores are shared
        model = HistGradientBoostingRegressor(max_iter=rounds, **SETTINGS).fit(columns, wanted)
    fitted = exported(model)
    some = columns[:: max(len(columns) // 256, 1)]
    assert np.allclose(fitted(some), model.predict(some), atol=1e-3), (
        "scikit-learn keeps its trees in another form than is read here"
    )
    return fitted


def exported(model: HistGradientBoostingRegressor) -> Trees:
    """Trees of a fitted model, for columns without missing values."""
    forest = [trees[0].nodes for trees in model._predictors]  # noqa: SLF001  (there is no public way; `trees` compares what comes of it)
    size = max(map(len, forest))
    column, left, right = (np.zeros((len(forest), size), np.int16) for _ in range(3))
    threshold, value = (np.zeros((len(forest), size), np.float32) for _ in range(2))
    for tree, nodes in enumerate(forest):
        at = np.arange(len(nodes))
        leaf = nodes["is_leaf"].astype(bool)
        column[tree, at] = np.where(leaf, 0, nodes["feature_idx"])
        threshold[tree, at] = np.where(leaf, 0, nodes["num_threshold"])
        left[tree, at], right[tree, at] = (
            np.where(leaf, at, nodes["left"]),
            np.where(leaf, at, nodes["right"]),
        )
        value[tree, at] = nodes["value"]
    base = np.asarray(model._baseline_prediction, np.float32).reshape(1)  # noqa: SLF001
    depth = np.array([max(int(nodes["depth"].max()) for nodes in forest)], np.int16)
    return Trees(base, column, threshold, left, right, value, depth)
