"""Graph neural network for the buffer requirement of groups, in PyTorch Geometric.

It begins with what a rule without parameters says (`explainers.scheme_rule`), and gives a distribution:
either the rule is exact, as it mostly is, or the logarithm of F_beta is logistic about the rule's plus a
residual, with a spread (a hurdle model: Cragg, Econometrica 39, 1971); beside it stands how likely the group
is never to run. So the probability that a group is invalid falls as the buffer grows, by construction, and
any buffer can be asked about. Without the hurdle, noise in residuals that should be zero costs more than the
others bring.

Sources: arXiv 2501.00636, section IV-A (four GraphConv layers, hidden 128, sum aggregation, sum readout);
Morris et al., AAAI 2019 (GraphConv). That it predicts the requirement and not the class, the rule, and the
maxima beside the sums of the readout are ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch_geometric.nn import GraphConv, global_add_pool, global_max_pool

from explainers.graph import FEATURES, Batch
from explainers.predictor import GIVEN, HIDDEN, LARGEST_SPREAD, LAYERS, OUTPUTS, SMALLEST_SPREAD, SURE, scale
from explainers.scheme_rule import ValidityQuery


class LinkConv(GraphConv):
    """GraphConv and ReLU over links that carry messages both ways, with one weight for both."""

    removing = False  # whether masks of explainers say what goes, not what stays

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """x: (operators, channels), edge_index: (2, links), edge_weight: (links,) -> (operators, channels).

        edge_index may also be the symmetric sparse matrix of `neighbours`.
        """
        if edge_index.layout == torch.sparse_csr:  # the quick way in training
            return (self.lin_rel(_Neighbours.apply(edge_index, x)) + self.lin_root(x)).relu()
        both = torch.cat((edge_index, edge_index.flip(0)), 1)
        return super().forward(x, both, None if edge_weight is None else edge_weight.repeat(2)).relu()

    def explain_message(self, inputs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Weigh messages by the mask that an explainer of PyTorch Geometric set: one value per link."""
        mask = self.mask
        assert mask is not None, "explainers set a mask before they run the network"
        return inputs * mask.repeat(2).view(-1, 1)

    @property
    def mask(self) -> Tensor | None:
        """(links,) weights that an explainer of PyTorch Geometric set, if one did."""
        if not self.explain or self._edge_mask is None:
            return None
        mask = self._edge_mask.sigmoid() if self._apply_sigmoid else self._edge_mask
        if self.removing:
            return 1 - mask
        return mask


class _Neighbours(torch.autograd.Function):
    """Sum over neighbours.

    Their matrix is symmetric, which PyTorch does not know: it would transpose it again and again.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, ctx.matrix @ gradient


def neighbours(links: np.ndarray, operators: int, weights: np.ndarray | None = None) -> Tensor:
    """(operators, operators) float32 sparse: symmetric adjacency of links (2, links), weights (links,).

    `LinkConv` takes it in place of links.
    """
    values = np.ones(links.shape[1], np.float32) if weights is None else weights.astype(np.float32)
    adjacency = csr_array(
        (np.tile(values, 2), np.concatenate((links, links[::-1]), 1)), shape=(operators, operators)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)  # that such matrices are new in PyTorch
        starts, columns = (
            torch.from_numpy(array.astype(np.int64)) for array in (adjacency.indptr, adjacency.indices)
        )
        return torch.sparse_csr_tensor(
            starts, columns, torch.from_numpy(adjacency.data), adjacency.shape, check_invariants=False
        )


class ValidityGNN(nn.Module):
    """Graph neural network of OUTPUTS per group.

    Residual, logarithm of the spread, log-odds that the rule is exact, and what is added to the log-odds that
    the group never runs.
    """

    def __init__(self, features: int = FEATURES) -> None:
        super().__init__()
        self.convs = nn.ModuleList([LinkConv(HIDDEN if k else features, HIDDEN) for k in range(LAYERS)])
        last = nn.Linear(HIDDEN, OUTPUTS)
        nn.init.zeros_(last.weight)  # what is not learnt leaves the rule as it is
        self.head = nn.Sequential(nn.Linear(2 * HIDDEN + GIVEN, HIDDEN), nn.ReLU(), last)

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> ValidityGNN:
        """The network of a `Predictor` with frozen weights: name -> array in the shape of the parameter."""
        network = cls(weights["convs.0.lin_rel.weight"].shape[1])
        network.load_state_dict(
            {name: torch.from_numpy(array.astype(np.float32)) for name, array in weights.items()}
        )
        return network.eval().requires_grad_(requires_grad=False)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, given: Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        """x: (operators, features), batch: (operators,), given: (groups, GIVEN) -> (groups, OUTPUTS).

        edge_index, edge_weight: as `LinkConv`; batch: group of each operator. What is given of a group: by
        how many doublings the rule says less than the unit of its features, as it does of a group in pieces;
        and whether it says that the group never runs, from 0 to 1.
        """
        embedded = self.embed(x, edge_index, edge_weight)
        groups = len(given)
        return self.head(
            torch.cat(
                (global_add_pool(embedded, batch, groups), global_max_pool(embedded, batch, groups), given), 1
            )
        )

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """(operators, HIDDEN) float32: embeddings after the last layer; arguments as `forward`."""
        for conv in self.convs:
            x = conv(x, edge_index, edge_weight)
        return x


def spread(outputs: Tensor) -> Tensor:
    """(groups,) spread in doublings, of outputs (groups, OUTPUTS)."""
    # limits come first: the derivative of an exponential that is infinite would be no number
    return outputs[:, 1].clamp(log(SMALLEST_SPREAD), log(LARGEST_SPREAD)).exp()


def odds(outputs: Tensor, rule: Tensor, buffers: Tensor) -> Tensor:
    """(groups,) log-odds of being invalid.

    outputs: (groups, OUTPUTS); rule: (groups, 2), `Requirement` of each; buffers: (groups,), log2 of bytes.
    """
    over = rule[:, 0] - buffers
    certain = outputs[:, 2]
    log_sigmoid = nn.functional.logsigmoid
    by_rule = over / SMALLEST_SPREAD
    learnt = (over + outputs[:, 0]) / spread(outputs)
    fits = torch.logaddexp(
        log_sigmoid(certain) + log_sigmoid(-by_rule), log_sigmoid(-certain) + log_sigmoid(-learnt)
    )
    both = nn.functional.softplus(SURE * (2 * rule[:, 1] - 1) + outputs[:, 3]) - fits
    return both + (-torch.expm1(-both)).clamp(min=1e-30).log()


class ValidityClassifier(nn.Module):
    """The network as explainers see it: logits of two classes, 0 = valid and 1 = invalid.

    The logits differ by the log-odds, scaled where they are large. Groups that are far too large have
    log-odds of hundreds. A probability of 1 has no gradient, and explainers would learn nothing from it. When
    an explainer weighs links, the network's messages are weighted, and the rule looks at the group with these
    links too.
    """

    def __init__(self, network: ValidityGNN, *, removing: bool = False) -> None:
        """`removing`: explainers' masks say which links go (counterfactuals), else which stay.

        With `removing`, explainers look for the links that must go for the group to fit, as in Lucic et al.,
        AISTATS 2022.
        """
        super().__init__()
        self.network = network
        for conv in network.convs:
            assert isinstance(conv, LinkConv)
            conv.removing = removing

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, questions: Sequence[ValidityQuery], scale: Tensor
    ) -> Tensor:
        """(groups, 2) logits; x, edge_index, batch: as `ValidityGNN`; scale: (groups,)."""
        units = torch.tensor([[np.log2(query.graph.unit), 0.0] for query in questions], dtype=x.dtype)
        buffers = torch.tensor([np.log2(query.buffer_bytes) for query in questions], dtype=x.dtype)
        first = self.network.convs[0]
        assert isinstance(first, LinkConv)
        weights = first.mask
        if weights is None:
            weights = x.new_ones(edge_index.shape[1])
        rule = _Rule.apply(weights, questions)
        assert isinstance(rule, Tensor)
        invalid = odds(self.network(x, edge_index, batch, rule - units), rule, buffers) * scale
        return torch.stack((torch.zeros_like(invalid), invalid), -1)

    @staticmethod
    def inputs(questions: Sequence[ValidityQuery], logits: np.ndarray) -> dict[str, Any]:
        """Arguments of `forward` by name, of questions and their log-odds (groups,)."""
        batch = Batch.of([query.graph for query in questions])
        arrays = {"x": batch.features, "edge_index": batch.links, "batch": batch.group}
        return {
            **{name: torch.from_numpy(array) for name, array in arrays.items()},
            "questions": questions,
            "scale": torch.from_numpy(scale(logits)).float(),
        }


class _Rule(torch.autograd.Function):
    """(groups, 2) `Requirement`s of the rule with weights (links,), differentiable in them."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, questions: Sequence[ValidityQuery]) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        counts = [query.graph.links.shape[1] for query in questions]
        parts = np.split(weights.detach().double().numpy(), np.cumsum(counts)[:-1])
        requirements = [query.weighted(part) for query, part in zip(questions, parts, strict=True)]
        ctx.slopes = torch.from_numpy(np.concatenate([each.slope for each in requirements], 1).T).to(
            weights.dtype
        )
        ctx.owner = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
        return torch.tensor([each.need for each in requirements], dtype=weights.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (gradient[ctx.owner] * ctx.slopes).sum(1), None
