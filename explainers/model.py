"""The network that predicts whether a group runs whole from the buffer: its shape in PyTorch Geometric.

Source: arXiv 2501.00636, section IV-A (four GraphConv layers, hidden 128, sum aggregation, sum readout); Morris et al., AAAI 2019 (GraphConv).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch_geometric.nn import GraphConv, global_add_pool

from explainers.graph import FEATURES

LAYERS = 4
HIDDEN = 128
LARGEST = 2.0  # logit that an explainer sees of a whole group


class LinkConv(GraphConv):
    """GraphConv and ReLU over links that carry messages both ways, with one weight for both."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """x: (operators, channels); edge_index: (2, links), or the symmetric matrix of neighbours; edge_weight: (links,)."""
        if edge_index.layout == torch.sparse_csr:  # the quick way in training, where no link is weighted
            return (self.lin_rel(_Neighbours.apply(edge_index, x)) + self.lin_root(x)).relu()
        both = torch.cat((edge_index, edge_index.flip(0)), 1)
        return super().forward(x, both, None if edge_weight is None else edge_weight.repeat(2)).relu()

    def explain_message(self, inputs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Weigh messages by the mask that an explainer of PyTorch Geometric set: one value per link."""
        mask = self._edge_mask
        assert mask is not None, "explainers set a mask before they run the network"
        return inputs * (mask.sigmoid() if self._apply_sigmoid else mask).repeat(2).view(-1, 1)


class _Neighbours(torch.autograd.Function):
    """Sum over neighbours. Their matrix is symmetric, which PyTorch does not know: it would transpose it again and again."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, ctx.matrix @ gradient


def neighbours(links: np.ndarray, operators: int) -> Tensor:
    """The symmetric (operators, operators) matrix that `LinkConv` takes in place of links (2, links)."""
    (u, v), ones = np.concatenate((links, links[::-1]), 1), np.ones(2 * links.shape[1], np.float32)
    found = csr_array((ones, (u, v)), shape=(operators, operators))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)  # that such matrices are new in PyTorch
        starts, columns = (torch.from_numpy(array.astype(np.int64)) for array in (found.indptr, found.indices))
        return torch.sparse_csr_tensor(starts, columns, torch.from_numpy(found.data), found.shape, check_invariants=False)


class Network(nn.Module):
    """One logit per group: above 0, it does not run whole from the buffer."""

    def __init__(self, features: int = FEATURES) -> None:
        super().__init__()
        self.convs = nn.ModuleList([LinkConv(HIDDEN if k else features, HIDDEN) for k in range(LAYERS)])
        self.head = nn.Linear(HIDDEN, 1)

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> Network:
        """The network of a `Predictor`, which does not train any further."""
        made = cls(weights["convs.0.lin_rel.weight"].shape[1])
        made.load_state_dict({name: torch.from_numpy(array.astype(np.float32)) for name, array in weights.items()})
        return made.eval().requires_grad_(requires_grad=False)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, groups: int = 1, edge_weight: Tensor | None = None) -> Tensor:
        """x: (operators, features); edge_index: as `LinkConv`; batch: (operators,) group of each -> (groups,)."""
        x = self.embed(x, edge_index, edge_weight)
        return self.head(x.sum(0, keepdim=True) if batch is None else global_add_pool(x, batch, groups)).squeeze(-1)

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """(operators, HIDDEN): after the last layer."""
        for conv in self.convs:
            x = conv(x, edge_index, edge_weight)
        return x


class Verdict(nn.Module):
    """The network as explainers see it: two classes, 0 = valid and 1 = invalid, whose logits differ by the network's, scaled down where it is large.

    Groups that are far too large have logits of hundreds. A probability of 1 has no gradient, and explainers would learn nothing from it.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, groups: int = 1, scale: Tensor | None = None) -> Tensor:
        """(groups, 2) logits; scale: (groups,)."""
        invalid = self.network(x, edge_index, batch, groups)
        invalid = invalid if scale is None else invalid * scale
        return torch.stack((torch.zeros_like(invalid), invalid), -1)


def scale(logits: np.ndarray) -> Tensor:
    """(groups,): what brings logits down to LARGEST."""
    return torch.from_numpy(LARGEST / np.maximum(np.abs(logits), LARGEST)).float()
