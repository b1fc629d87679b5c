"""GNNExplainer: a mask over the links of one group, fitted afresh for each group so that the predictor still says *invalid*.

Source: Ying et al., NeurIPS 2019, as PyTorch Geometric implements it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.explain import Explainer, GNNExplainer, ModelConfig
from torch_geometric.explain.config import ExplanationType, MaskType, ModelMode, ModelReturnType, ModelTaskLevel

from explainers.graph import Batch, Groups
from explainers.model import Network, Verdict, scale
from explainers.predictor import Predictor
from explainers.split import Explain
from lfopt.ir import Hardware
from lfopt.ops import Dataflow

EPOCHS = 50
RATE = 0.05
VERDICT = ModelConfig(ModelMode.multiclass_classification, ModelTaskLevel.graph, ModelReturnType.raw)  # of `Verdict`


def gnn_explainer(flow: Dataflow, hardware: Hardware, predictor: Predictor, seed: int = 0, *, epochs: int = EPOCHS, rate: float = RATE) -> Explain:
    """Bound to one dataflow and chip. The same scores, but for rounding, whatever was asked before. One thread."""
    torch.set_num_threads(1)  # these graphs are too small for more
    groups = Groups(flow, hardware)
    verdict = Verdict(Network.of(predictor.weights)).eval()
    algorithm, invalid = GNNExplainer(epochs=epochs, lr=rate), torch.tensor([1])
    explainer = Explainer(verdict, algorithm, ExplanationType.phenomenon, VERDICT, edge_mask_type=MaskType.object)

    def explain(mask: int) -> np.ndarray:
        graph = groups.graph(mask)
        if not graph.links.shape[1]:
            return np.empty(0)
        with torch.random.fork_rng([]):
            torch.manual_seed(int(np.random.SeedSequence([seed, mask]).generate_state(1)[0]))
            softened = scale(predictor.logits(Batch.of([graph])))
            found = explainer(torch.from_numpy(graph.features), torch.from_numpy(graph.links), target=invalid, scale=softened).edge_mask
        assert found is not None, "a mask over links was asked for"
        return found.double().numpy()

    return explain
