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
from explainers.predictor import Predictor

Report = Callable[[str, float], None]  # (what is going on, how much of it is done)


@dataclass(frozen=True)
class Settings:
    """How to train."""

    epochs: int = 25  # as in the paper
    rate: float = 0.003
    groups: int = 64  # per step


def train(
    predictor: Predictor, questions: Sequence[Question], settings: Settings, seed: int, report: Report
) -> tuple[dict[str, np.ndarray], list[float]]:
    """(weights, loss of every epoch). `questions`: groups that the predictor calls invalid.

    Groups go in batches; the library's penalty on the size of explanations is a sum over links, so it is divided by the groups of a batch.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    verdict = Verdict(Network.of(predictor.weights)).eval()
    algorithm = PGExplainer(settings.epochs, settings.rate)
    Explainer(verdict, algorithm, ExplanationType.phenomenon, VERDICT, edge_mask_type=MaskType.object)
    whole = dict(PGExplainer.coeffs)
    batches = [questions[first : first + settings.groups] for first in range(0, len(questions), settings.groups)]
    losses: list[float] = []
    for epoch in range(settings.epochs):
        total = 0.0
        for k in rng.permutation(len(batches)).tolist():
            batch = batches[k]
            algorithm.coeffs = {**whole, "edge_size": whole["edge_size"] / len(batch)}
            inputs = Verdict.inputs(batch, predictor.odds(batch))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Converting a tensor", UserWarning)  # the library's own way to return the loss
                total += algorithm.train(epoch, verdict, **inputs, target=torch.ones(len(batch), dtype=torch.long))
        losses.append(total / len(batches))
        report(f"PGExplainer: epoch {epoch + 1}, loss {losses[-1]:.3f}", (epoch + 1) / settings.epochs)
    return {name: value.detach().numpy() for name, value in algorithm.mlp.state_dict().items()}, losses
