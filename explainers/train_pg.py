"""Train PGExplainer through PyTorch Geometric, for a predictor that stands."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.explain import Explainer, PGExplainer
from torch_geometric.explain.config import ExplanationType, MaskType

from explainers.gnn_explainer import VERDICT
from explainers.model import Network, Verdict
from explainers.needs import Question
from explainers.predictor import LARGEST, SMALLEST_SPREAD, Predictor, softplus

Report = Callable[[str, float], None]  # (what is going on, how much of it is done)


@dataclass(frozen=True)
class Settings:
    """How to train."""

    epochs: int = 25  # as in the paper
    rate: float = 0.003
    groups: int = 32  # per step
    size: float = 8.0  # what all links of a group cost together, as a multiple of the loss that they save
    entropy: float = 0.0  # what undecided masks cost; the library's 1.0 makes all of them 0 or 1, and ranks nothing
    temperature: float = 1.0  # of masks that are drawn, from first to last


def train(
    predictor: Predictor, questions: Sequence[Question], settings: Settings, seed: int, report: Report
) -> tuple[dict[str, np.ndarray], list[float]]:
    """(weights, loss of every epoch). `questions`: groups that the predictor calls invalid.

    A mask holds the links that go, and is to make the verdict *valid*: which links stay says little of where to cut, as any large part of a group is
    invalid already. Groups go in batches, those of one network together: their rules are asked at once. The library's penalty on the size of
    explanations is a sum over links at a fixed price, nothing to small groups and everything to large ones; here it follows from what the links of
    the batch save on average.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    verdict = Verdict(Network.of(predictor.weights), removing=True).eval()
    algorithm = PGExplainer(settings.epochs, settings.rate)
    Explainer(verdict, algorithm, ExplanationType.phenomenon, VERDICT, edge_mask_type=MaskType.object)
    whole = {**PGExplainer.coeffs, "edge_ent": settings.entropy, "temp": [settings.temperature] * 2}
    networks = {needs: k for k, needs in enumerate(dict.fromkeys(asked.needs for asked in questions))}
    alike = sorted(questions, key=lambda asked: networks[asked.needs])
    batches = [alike[first : first + settings.groups] for first in range(0, len(alike), settings.groups)]
    inputs = [Verdict.inputs(batch, predictor.odds(batch)) for batch in batches]
    prices = [settings.size * _saved(batch) / sum(asked.graph.links.shape[1] for asked in batch) for batch in batches]
    losses: list[float] = []
    for epoch in range(settings.epochs):
        total = 0.0
        for k in rng.permutation(len(batches)).tolist():
            algorithm.coeffs = {**whole, "edge_size": prices[k]}
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Converting a tensor", UserWarning)  # the library's own way to return the loss
                total += algorithm.train(epoch, verdict, **inputs[k], target=torch.zeros(len(batches[k]), dtype=torch.long))
        losses.append(total / len(batches))
        report(f"PGExplainer: epoch {epoch + 1}, loss {losses[-1]:.3f}", (epoch + 1) / settings.epochs)
    return {name: value.detach().numpy() for name, value in algorithm.mlp.state_dict().items()}, losses


def _saved(batch: Sequence[Question]) -> float:
    """By how much the loss (the mean over groups) that they stay invalid grows without links, as the rule says, logits scaled as `Verdict` does."""
    needed = [[asked.weighted(np.full(asked.graph.links.shape[1], weight)).need.log2_bytes for weight in (0.0, 1.0)] for asked in batch]
    over = np.array(needed) - np.log2([[asked.buffer_bytes] for asked in batch])
    logits = LARGEST * over / np.maximum(np.abs(over[:, 1:]), SMALLEST_SPREAD)
    return float(np.mean(softplus(-logits[:, 0]) - softplus(-logits[:, 1])))
