"""GNNExplainer: a mask of links, fitted per group, without which the predictor calls the group *valid*.

Source: Ying et al., NeurIPS 2019, as PyTorch Geometric implements it; that a mask holds what goes, Lucic et
al., AISTATS 2022 (CF-GNNExplainer).
"""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.explain import Explainer, GNNExplainer, ModelConfig
from torch_geometric.explain.config import (
    ExplanationType,
    MaskType,
    ModelMode,
    ModelReturnType,
    ModelTaskLevel,
)

from explainers.model import ValidityClassifier, ValidityGNN
from explainers.predictor import Predictor
from explainers.scheme_rule import SchemeRule, ValidityQuery
from explainers.split import Explain

EPOCHS = 50
RATE = 0.1
# price of a link in the mask; the library's price of undecided masks would drive each to the side on which
# it is drawn, so there is none
SIZE = 0.2
# of `ValidityClassifier`
VERDICT = ModelConfig(ModelMode.multiclass_classification, ModelTaskLevel.graph, ModelReturnType.raw)


def gnn_explainer(
    rule: SchemeRule, predictor: Predictor, seed: int = 0, *, epochs: int = EPOCHS, rate: float = RATE
) -> Explain:
    """GNNExplainer for one dataflow, chip and scheme.

    The same scores, but for rounding, whatever was asked before. One thread.
    """
    torch.set_num_threads(1)  # these graphs are too small for more
    verdict = ValidityClassifier(ValidityGNN.of(predictor.weights), removing=True).eval()
    algorithm = GNNExplainer(epochs=epochs, lr=rate, edge_size=SIZE, edge_ent=0.0)
    valid = torch.tensor([0])
    explainer = Explainer(
        verdict, algorithm, ExplanationType.phenomenon, VERDICT, edge_mask_type=MaskType.object
    )

    def explain(mask: int) -> np.ndarray:
        query = ValidityQuery(rule, mask, rule.hardware.buffer_bytes)
        if not query.graph.links.shape[1]:
            return np.empty(0)
        with torch.random.fork_rng([]):
            torch.manual_seed(int(np.random.SeedSequence([seed, mask]).generate_state(1)[0]))
            link_mask = explainer(
                **ValidityClassifier.inputs([query], predictor.odds([query])), target=valid
            ).edge_mask
        assert link_mask is not None, "a mask over links was asked for"
        return link_mask.double().numpy()

    return explain
