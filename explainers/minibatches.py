"""What a predictor is trained with: labelled groups, whole and in pieces, many at a time, each at some buffer size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from explainers.counterfactuals import cut_apart
from explainers.dataset import Dataset, costs_of
from explainers.graph import Batch, GroupGraph, resized
from explainers.model import neighbours
from explainers.sampling import BETAS, need

SPREAD = 0.7  # doublings: standard deviation of buffer sizes near F_beta
SMALLEST, LARGEST = 1 << 15, 1 << 23  # bytes: buffer sizes that are shown


class Labelled(NamedTuple):
    """A group for a buffer of one byte, and the least buffer at or below which it does not fit."""

    graph: GroupGraph
    need: int  # F_beta, bytes


@dataclass(frozen=True, eq=False)
class Minibatch:
    """Groups that go through the network together, for a buffer of one byte."""

    features: np.ndarray  # (operators, FEATURES)
    adjacent: Tensor  # (operators, operators) sparse
    group: np.ndarray  # (operators,) of the minibatch
    needs: np.ndarray  # (groups,) float64: F_beta

    @classmethod
    def of(cls, labelled: Sequence[Labelled]) -> Minibatch:
        """These groups."""
        batch = Batch.of([group.graph for group in labelled])
        sizes = np.diff(np.append(batch.starts, len(batch.features)))
        needs = np.array([group.need for group in labelled], np.float64)
        return cls(batch.features, neighbours(batch.links, len(batch.features)), np.repeat(np.arange(len(labelled)), sizes), needs)

    def at(self, buffers: np.ndarray) -> tuple[Tensor, Tensor, Tensor, int]:
        """What the network takes, with one buffer size per group."""
        features = resized(self.features, buffers[self.group])
        return torch.from_numpy(features), self.adjacent, torch.from_numpy(self.group), len(self.needs)


def whole(dataset: Dataset, groups: np.ndarray) -> list[Labelled]:
    """Groups as they are, in the order given."""
    graphs = dataset.examples(groups, betas=(1,)).graphs
    return [Labelled(graph, bytes_) for graph, bytes_ in zip(graphs, dataset.needs[groups].tolist(), strict=True)]


def in_pieces(dataset: Dataset, groups: np.ndarray, rng: np.random.Generator) -> list[Labelled]:
    """The same groups cut by chance, but for single operators."""
    costs = {n: costs_of(dataset.flow(n), dataset.chip(n), dataset.scheme) for n in np.unique(dataset.network[groups]).tolist()}
    found: list[Labelled] = []
    for (graph, _), n in zip(whole(dataset, groups), dataset.network[groups].tolist(), strict=True):
        if len(graph) > 1:
            mask = sum(1 << i for i in graph.operators)
            kept, needed = cut_apart(costs[n].dataflow, mask, lambda piece, n=n: need(costs[n], piece), rng)
            found.append(Labelled(GroupGraph(graph.operators, graph.features, graph.links[:, kept]), needed))
    return found


def collate(labelled: Sequence[Labelled], operators: int, least: int = 1) -> list[Minibatch]:
    """Minibatches of about so many operators, in order; of fewer, if that makes less than `least` minibatches."""
    operators = min(operators, sum(len(group.graph) for group in labelled) // least)
    found: list[Minibatch] = []
    first = size = 0
    for k, group in enumerate(labelled, 1):
        size += len(group.graph)
        if size >= operators or k == len(labelled):
            found.append(Minibatch.of(labelled[first:k]))
            first, size = k, 0
    return found


def shown(batches: Sequence[Minibatch], times: int, near: float, rng: np.random.Generator) -> list[tuple[Minibatch, np.ndarray]]:
    """Every minibatch so many times: each group at as many of BETAS, but for a share that is shown near its F_beta instead."""
    found: list[tuple[Minibatch, np.ndarray]] = []
    for batch in batches:
        count = len(batch.needs)
        sizes = rng.permuted(np.tile(np.array(BETAS, np.float64), (count, 1)), axis=1)
        for k in range(times):
            close = np.clip(batch.needs * np.exp2(rng.normal(0, SPREAD, count)), SMALLEST, LARGEST).round()
            found.append((batch, np.where(rng.random(count) < near, close, sizes[:, k])))
    return found
