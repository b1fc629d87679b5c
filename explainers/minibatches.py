"""Minibatches of labelled groups, whole and with links weighted, to train a predictor with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from explainers.checker import Checker
from explainers.counterfactuals import cut_apart, link_weights
from explainers.dataset import Dataset
from explainers.graph import Batch, GroupGraph
from explainers.model import neighbours
from explainers.sampling import EDGES
from explainers.scheme_rule import Requirement, SchemeRule

HARD = 0.5  # of the groups with links weighted: the share whose weights are 0 and 1


class Labelled(NamedTuple):
    """A group, whole or with links weighted."""

    graph: GroupGraph
    weights: np.ndarray  # (links,)
    rule: Requirement  # what the rule says
    need: Requirement  # the label; log2_bytes is infinite where never is not 0


@dataclass(frozen=True, eq=False)
class Minibatch:
    """Groups that go through the network together."""

    features: Tensor  # (operators, FEATURES)
    adjacent: Tensor  # (operators, operators) sparse
    group: Tensor  # (operators,) of the minibatch
    given: Tensor  # (groups, GIVEN)
    residual: Tensor  # (groups,): doublings of F_beta over what the rule says; infinite where it never runs
    never: Tensor  # (groups,): from 0 to 1
    rule_never: Tensor  # (groups,): what the rule says of it

    @classmethod
    def of(cls, labelled: Sequence[Labelled], device: str = "cpu") -> Minibatch:
        """Minibatch of these groups."""
        batch = Batch.of([group.graph for group in labelled])
        rule, needed = (
            np.array([getattr(group, name) for group in labelled], np.float32) for name in ("rule", "need")
        )
        given = rule - np.stack((np.log2(batch.units), np.zeros(len(batch))), 1)
        adjacent = neighbours(
            batch.links, len(batch.features), np.concatenate([group.weights for group in labelled])
        )
        arrays = (
            batch.features,
            batch.group,
            given.astype(np.float32),
            needed[:, 0] - rule[:, 0],
            needed[:, 1],
            rule[:, 1],
        )
        features, group, given, *labels = (torch.from_numpy(array).to(device) for array in arrays)
        return cls(features, adjacent.to(device), group, given, *labels)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Arguments of the network's `forward`."""
        return self.features, self.adjacent, self.group, self.given


@dataclass(frozen=True, eq=False)
class Material:
    """Groups to learn from, by number in the data set: as they are, and with links weighted.

    It is made once for several trainings.
    """

    whole: dict[int, Labelled]
    weighted: dict[int, tuple[Labelled, ...]]  # none of single operators

    @classmethod
    def of(cls, dataset: Dataset, groups: np.ndarray, cut: int, rng: np.random.Generator) -> Material:
        """Material of groups (groups,) int64, by number in the data set, with `cut` weightings of each."""
        labelled = dict(zip(groups.tolist(), whole(dataset, groups), strict=True))
        checkers = {n: dataset.checker(n) for n in np.unique(dataset.network[groups]).tolist()}
        weighted: dict[int, tuple[Labelled, ...]] = {}
        for group, n in zip(groups.tolist(), dataset.network[groups].tolist(), strict=True):
            graph = labelled[group].graph
            weightings = cut if len(labelled[group].graph) > 1 else 0
            weighted[group] = tuple(
                _in_pieces(graph, checkers[n], dataset.rules(n), rng) for _ in range(weightings)
            )
        return cls(labelled, weighted)

    def minibatches(self, groups: np.ndarray, operators: int, least: int, device: str) -> list[Minibatch]:
        """Minibatches of groups (groups,) int64, in the order given: first whole, then by each weighting.

        `operators`, `least`, `device`: as `collate`.
        """
        weightings = max((len(self.weighted[group]) for group in groups.tolist()), default=0)
        minibatches = collate([self.whole[group] for group in groups.tolist()], operators, least, device)
        for k in range(weightings):
            minibatches += collate(
                [self.weighted[group][k] for group in groups.tolist() if self.weighted[group]],
                operators,
                least,
                device,
            )
        return minibatches


def whole(dataset: Dataset, groups: np.ndarray) -> list[Labelled]:
    """Whole groups with their labels; groups: (groups,) int64, numbers in the data set."""
    labelled: list[Labelled] = []
    for graph, bytes_ in zip(dataset.graphs(groups), dataset.needs[groups].tolist(), strict=True):
        rule = Requirement(float(np.log2(graph.unit)), float(graph.never))
        labelled.append(
            Labelled(graph, np.ones(graph.links.shape[1]), rule, Requirement(*_labels(np.array([bytes_]))[0]))
        )
    return labelled


def _in_pieces(graph: GroupGraph, checker: Checker, rules: SchemeRule, rng: np.random.Generator) -> Labelled:
    """A group with links cut at random, or weighted between the stages of random cuts."""
    mask = sum(1 << i for i in graph.operators)
    stages = cut_apart(checker.costs.dataflow, mask, rng)
    shares = np.eye(len(stages))[-1] if rng.random() < HARD else rng.dirichlet(np.ones(len(stages)))
    judged = [_labels(np.array([checker.need(piece) for piece in pieces])).max(0) for pieces in stages]
    ruled = [rules.of(pieces).max(0) for pieces in stages]
    weights = link_weights(checker.costs.dataflow, mask, stages, shares)
    return Labelled(
        graph, weights, *(Requirement(*_mixed(np.array(each), shares)) for each in (ruled, judged))
    )


def _labels(needs: np.ndarray) -> np.ndarray:
    """(groups, 2) float64: `Requirement`s, of F_beta in bytes (groups,)."""
    never = needs >= EDGES[-1]
    return np.stack((np.where(never, np.inf, np.log2(np.maximum(needs, 1))), never), 1)


def _mixed(values: np.ndarray, shares: np.ndarray) -> list[float]:
    """Mean (2,) of the values (stages, 2), weighted by shares (stages,)."""
    present = shares > 0
    return (shares[present] @ values[present]).tolist()


def collate(
    labelled: Sequence[Labelled], operators: int, least: int = 1, device: str = "cpu"
) -> list[Minibatch]:
    """Minibatches of about `operators` operators, in order; smaller, to make at least `least` of them."""
    operators = min(operators, sum(len(group.graph) for group in labelled) // least)
    minibatches: list[Minibatch] = []
    first = size = 0
    for k, group in enumerate(labelled, 1):
        size += len(group.graph)
        if size >= operators or k == len(labelled):
            minibatches.append(Minibatch.of(labelled[first:k], device))
            first = k
            size = 0
    return minibatches
