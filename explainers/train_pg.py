"""Train the perceptron of PGExplainer for a frozen predictor.

PGExplainer's own objective, masks that keep the verdict, does not rank links by where to cut. Measured under
lbdf on 300 groups, as Spearman's correlation with the bytes that a cut frees: -0.50 to -0.47 over a network
that was shown no weighted links (see `explainers.counterfactuals`), and still -0.29 where the rule itself is
explained, to the last bit; masks of what must go for the group to fit, -0.16. Links that keep a group invalid
surround what is large, and where to cut is elsewhere. So the perceptron learns what the predictor says of
cuts: for every link, by how much less the needier half needs when the group is cut there (0.86). It stays
what the paper asks for: scores of links from the embeddings of their ends, learnt once for all groups,
without asking the predictor again.

Source: Luo et al., NeurIPS 2020 (a perceptron on the embeddings of a link's ends, for all graphs); the target
is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from explainers.cuts import cheapest
from explainers.fit import ReportProgress
from explainers.predictor import EMBEDDED, Predictor
from explainers.scheme_rule import ValidityQuery


@dataclass(frozen=True)
class PGSettings:
    """Settings of a training."""

    epochs: int = 40
    rate: float = 1e-3
    groups: int = 64  # per step
    hidden: int = 64  # as in the paper


def train(
    predictor: Predictor,
    questions: Sequence[ValidityQuery],
    settings: PGSettings,
    seed: int,
    report: ReportProgress,
) -> tuple[dict[str, np.ndarray], list[float]]:
    """(weights by name, in PyTorch's shapes; loss of every epoch).

    `questions`: groups that the predictor calls invalid.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    used = [query for query in questions if query.graph.links.shape[1]]
    ends = [
        predictor.embed(query)[query.graph.links].transpose(1, 0, 2).reshape(-1, 2 * EMBEDDED)
        for query in used
    ]
    every = np.concatenate(ends)
    mean = every.mean(0)
    spread = every.std(0) + 1e-3
    inputs = [torch.from_numpy((rows - mean) / spread) for rows in ends]
    targets = [torch.from_numpy(shares(doublings)) for doublings in freed(predictor, used)]
    perceptron = nn.Sequential(
        nn.Linear(2 * EMBEDDED, settings.hidden), nn.ReLU(), nn.Linear(settings.hidden, 1)
    )
    optimizer = torch.optim.Adam(perceptron.parameters(), lr=settings.rate)
    losses: list[float] = []
    for epoch in range(settings.epochs):
        total = 0.0
        order = rng.permutation(len(used))
        steps = range(0, len(order), settings.groups)
        for first in steps:
            few = order[first : first + settings.groups].tolist()
            scores = perceptron(torch.cat([inputs[k] for k in few])).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(
                scores, torch.cat([targets[k] for k in few])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(steps))
        report(f"PGExplainer: epoch {epoch + 1}, loss {losses[-1]:.3f}", (epoch + 1) / settings.epochs)
    weights = {name: value.detach().numpy() for name, value in perceptron.state_dict().items()}
    weights["0.bias"] = weights["0.bias"] - weights["0.weight"] @ (mean / spread)
    weights["0.weight"] = weights["0.weight"] / spread
    return weights, losses


def freed(predictor: Predictor, questions: Sequence[ValidityQuery]) -> list[np.ndarray]:
    """Per group, (links,) float64, doublings: what a link's cheapest cut saves, by the predictor.

    The needier half of the cut needs so much less than the group.
    """
    per_group: list[np.ndarray] = []
    for query in questions:
        halves = cheapest(query.rule.flow, query.mask, query.graph.links)
        pieces = [*dict.fromkeys(half for cut in halves for half in (cut.first, cut.second))]
        needed = dict(
            zip([query.mask, *pieces], _needed(predictor, query, [query.mask, *pieces]).tolist(), strict=True)
        )
        per_group.append(
            np.array([needed[query.mask] - max(needed[cut.first], needed[cut.second]) for cut in halves])
        )
    return per_group


def _needed(predictor: Predictor, query: ValidityQuery, masks: Sequence[int]) -> np.ndarray:
    """(groups,) float64, log2 of bytes: the rule's requirement where it is likely exact, else the mean.

    What never runs counts as the rule counts it.
    """
    forecast = predictor.forecast(query.rule.groups.batch(masks))
    return np.where(forecast.exact > 0, forecast.rule, forecast.mean)


def shares(doublings: np.ndarray) -> np.ndarray:
    """(links,) float32, 0 to 1: doublings (links,) that cuts free, as shares of the most in the group."""
    most = max(float(doublings.max(initial=0)), 1e-6)
    return np.clip(doublings / most, 0, 1).astype(np.float32)
