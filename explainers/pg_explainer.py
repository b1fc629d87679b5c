"""PGExplainer: a trained perceptron scores each link by the embeddings of its two ends.

In NumPy; `explainers.train_pg` trains it.

Source: Luo et al., NeurIPS 2020; what it learns is said in `explainers.train_pg`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from explainers.predictor import Predictor, one_thread, read_weights, sigmoid
from explainers.scheme_rule import SchemeRule, ValidityQuery
from explainers.split import Explain
from lfopt.ir import InvalidConfig

NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")


class LinkScores:
    """The perceptron: scores of links by the embeddings of their ends."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        """`weights`: the arrays NAMES, in PyTorch's shapes."""
        self._hidden, self._bias, self._out, self._shift = (
            weights[name].astype(np.float32) for name in NAMES
        )

    def __call__(self, embedded: np.ndarray, links: np.ndarray) -> np.ndarray:
        """(links,) float64: mask of links (2, links), given embeddings (operators, 128)."""
        with one_thread():
            hidden = np.concatenate((embedded[links[0]], embedded[links[1]]), 1) @ self._hidden.T + self._bias
            return sigmoid((np.maximum(hidden, 0) @ self._out.T + self._shift)[:, 0])


def pg_explainer(rule: SchemeRule, predictor: Predictor, seed: int = 0) -> Explain:
    """PGExplainer for one dataflow, chip and scheme.

    Its weights lie beside those of the predictor; it is deterministic, so the seed is not used.
    """
    scores = LinkScores(beside(predictor, "pg", NAMES))

    def explain(mask: int) -> np.ndarray:
        query = ValidityQuery(rule, mask, rule.hardware.buffer_bytes)
        return scores(predictor.embed(query), query.graph.links)

    return explain


def beside(predictor: Predictor, name: str, arrays: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Weights of an explainer from beside its predictor's file: name -> array in the shape that was stored.

    `arrays`: names that must be there. Raises InvalidConfig where the predictor is in no file, or where
    `read_weights` does.
    """
    if predictor.path is None:
        raise InvalidConfig(
            f"explainer {name}: found a predictor that is in no file; accepted: one that was loaded, with "
            f"{name} weights beside it"
        )
    return read_weights(predictor.path.with_name(f"{predictor.path.stem}_{name}.safetensors"), *arrays)
