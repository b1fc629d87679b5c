"""Fidelity of explanations to the predictor's verdict: PyTorch Geometric's metrics on the most blamed links.

* fidelity+ : share of groups whose verdict changes when the blamed links are removed (1 is best); fidelity- :
  when only they are kept (0 is best).
* unfaithfulness: 1 - exp(-KL) between the verdict on the whole group and on the blamed links alone (0 is
  best), with logits scaled as for explainers.
* sparsity: share of the links that are not blamed.

Links are removed, operators stay: their own sizes, which say most, are seen in any case.
Source: torch_geometric.explain.metric, after GraphFramEx (arXiv 2206.09677) and Agarwal et al. (arXiv
2208.09339).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch_geometric.explain import DummyExplainer, Explainer, Explanation
from torch_geometric.explain.config import ExplanationType, MaskType
from torch_geometric.explain.metric import fidelity, unfaithfulness

from explainers.gnn_explainer import VERDICT
from explainers.model import ValidityClassifier, ValidityGNN
from explainers.predictor import Predictor
from explainers.scheme_rule import ValidityQuery
from explainers.split import LINKS


def measures(
    explained: Iterable[tuple[ValidityQuery, np.ndarray]], predictor: Predictor, kept: int = LINKS
) -> dict[str, float]:
    """Means over explained groups: (query, scores (links,) float64) each, the higher the more to blame.

    `kept`: links of an explanation, at most; groups that have no more links do not count.
    """
    verdict = ValidityClassifier(ValidityGNN.of(predictor.weights)).eval()
    explainer = Explainer(
        verdict, DummyExplainer(), ExplanationType.model, VERDICT, edge_mask_type=MaskType.object
    )
    rows: list[tuple[float, float, float, float]] = []
    for query, scores in explained:
        if scores.size <= kept:
            continue
        blamed = np.zeros(scores.size, np.float32)
        blamed[np.argsort(-scores, kind="stable")[:kept]] = 1
        blamed[scores == -np.inf] = 0
        explanation = explainer(**ValidityClassifier.inputs([query], predictor.odds([query])))
        assert isinstance(explanation, Explanation)
        explanation.edge_mask = torch.from_numpy(blamed)  # in place of the library's random one
        rows.append(
            (
                *fidelity(explainer, explanation),
                unfaithfulness(explainer, explanation),
                1 - float(blamed.mean()),
            )
        )
    means = np.mean(rows, 0).tolist() if rows else [math.nan] * 4
    return dict(
        zip(("fidelity_plus", "fidelity_minus", "unfaithfulness", "sparsity"), means, strict=True)
    ) | {"groups": len(rows)}
