"""RG-Explainer: an agent that starts at one operator and adds neighbour after neighbour until it stops.

In NumPy; `explainers.train_rg` trains it.

Three perceptrons see the predictor's embeddings. One locates the seed: it scores every operator beside the
mean of the group. One scores all neighbours of what has been chosen, beside the mean of the chosen and that
of the group. One scores stopping, from these two means. The highest score is taken; so what is chosen hangs
together, and the links in it are the explanation.

Source: Shan et al., NeurIPS 2021, as arXiv 2501.00636 uses it (seed locator, agent, STOP). Details are ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from explainers.pg_explainer import beside
from explainers.predictor import Predictor, one_thread
from explainers.scheme_rule import SchemeRule, ValidityQuery
from explainers.split import Explain

PARTS = {"seed": 2, "grow": 3, "stop": 2}  # perceptrons, and how many embeddings each sees
NAMES = tuple(f"{part}.{name}" for part in PARTS for name in ("0.weight", "0.bias", "2.weight", "2.bias"))


class Agent:
    """The trained agent."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self._weights = {name: weights[name].astype(np.float32) for name in NAMES}

    def order(self, embedded: np.ndarray, links: np.ndarray) -> tuple[list[int], int]:
        """(operators in the order in which they are chosen, how many of them are the explanation).

        embedded: (operators, channels); links: (2, links). It goes on after the stop, so that what is left
        has an order too; what cannot be reached from the seed is missing.
        """
        size = len(embedded)
        group = embedded.mean(0)
        beside: list[set[int]] = [set() for _ in range(size)]
        for u, v in links.T.tolist():
            beside[u].add(v)
            beside[v].add(u)
        seed = int(np.argmax(self._score("seed", embedded, group)))
        chosen = [seed]
        border = set(beside[seed])
        stopped = 0
        single = self._of_operator("grow", embedded)
        total = embedded[seed].copy()
        while border:
            mean = total / len(chosen)
            candidates = sorted(border)
            scores = self._finish("grow", single[candidates] + self._of_rest("grow", mean, group))
            best = int(np.argmax(scores))
            if not stopped and self._score("stop", mean, group) > scores[best]:
                stopped = len(chosen)
            chosen.append(candidates[best])
            total += embedded[candidates[best]]
            border = (border | beside[candidates[best]]).difference(chosen)
        return chosen, stopped or len(chosen)

    def _score(self, part: str, first: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        return self._finish(part, self._of_operator(part, first) + self._of_rest(part, *rest))

    def _of_operator(self, part: str, first: np.ndarray) -> np.ndarray:
        """Part of the hidden layer that the first of the embeddings adds."""
        return first @ self._weights[f"{part}.0.weight"][:, : first.shape[-1]].T

    def _of_rest(self, part: str, *rest: np.ndarray) -> np.ndarray:
        joined = np.concatenate(rest)
        return (
            joined @ self._weights[f"{part}.0.weight"][:, -joined.size :].T + self._weights[f"{part}.0.bias"]
        )

    def _finish(self, part: str, hidden: np.ndarray) -> np.ndarray:
        return (
            np.maximum(hidden, 0) @ self._weights[f"{part}.2.weight"][0] + self._weights[f"{part}.2.bias"][0]
        )


def rg_explainer(rule: SchemeRule, predictor: Predictor, seed: int = 0) -> Explain:
    """RG-Explainer for one dataflow, chip and scheme.

    Its weights lie beside those of the predictor; it is deterministic, so the seed is not used.

    Scores: links whose ends are both in the explanation are above 1, others below; of either, the earlier
    both ends were chosen, the higher.
    """
    agent = Agent(beside(predictor, "rg", NAMES))

    def explain(mask: int) -> np.ndarray:
        query = ValidityQuery(rule, mask, rule.hardware.buffer_bytes)
        with one_thread():
            order, explained = agent.order(predictor.embed(query), query.graph.links)
        return link_scores(order, explained, query.graph.links, len(query.graph))

    return explain


def link_scores(order: list[int], explained: int, links: np.ndarray, size: int) -> np.ndarray:
    """(links,) float64: scores of links (2, links) by the order in which operators were chosen.

    The first `explained` of `order` are the explanation; `size`: operators of the group.

    >>> link_scores([1, 0, 2], 2, np.array([[0, 1], [1, 2]]), 3)
    array([1.75, 0.5 ])
    """
    place = np.full(size, size, np.float64)
    place[order] = np.arange(len(order))
    earlier, later = np.sort(place[links], 0)
    return 1 - (later + earlier / (size + 1)) / (size + 1) + (later < explained)
