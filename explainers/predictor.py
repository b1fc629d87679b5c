"""Inference of the buffer requirement of groups, by the trained network in NumPy.

The same numbers as PyTorch Geometric, without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from threadpoolctl import ThreadpoolController

from explainers.graph import FEATURES, Batch, own_sizes
from explainers.scheme_rule import FORMULAS, ValidityQuery
from lfopt.ir import InvalidConfig

WEIGHTS = Path(__file__).parent / "weights"
AT_ONCE = 4096  # operators that go through the network together: what they take stays in the cache
LAYERS = 4
HIDDEN = 128
GIVEN = 2  # numbers that the head is given of each group, beside what it sums up and takes the most of
OUTPUTS = 4
SHOWN = 3  # channels that an explainer sees of an operator beside its embedding
EMBEDDED = HIDDEN + SHOWN
FARTHEST = 4  # doublings between rule and buffer that it can tell
LARGEST = 2.0  # log-odds that an explainer sees of a whole group
SURE = 6.0  # log-odds that the rule is right where it says that a group never runs, or that it does
SMALLEST_SPREAD, LARGEST_SPREAD = 2.0**-6, 4.0  # doublings


class Forecast(NamedTuple):
    """Distribution of log2 F_beta per group: the rule's value, or else logistic, unless it never runs."""

    rule: np.ndarray  # (groups,) float64: doublings of a byte
    mean: np.ndarray  # (groups,) float64: where the rule is not exact
    spread: np.ndarray  # (groups,) float64: the scale of the distribution then, in doublings
    exact: np.ndarray  # (groups,) float64: log-odds that the rule is
    never: np.ndarray  # (groups,) float64: log-odds

    def odds(self, buffer_bytes: np.ndarray | float) -> np.ndarray:
        """(groups,) float64: log-odds of being invalid, for buffers of `buffer_bytes`, one or (groups,)."""
        by_rule = (self.rule - np.log2(buffer_bytes)) / SMALLEST_SPREAD
        learnt = (self.mean - np.log2(buffer_bytes)) / self.spread
        fits = np.logaddexp(
            -softplus(-self.exact) - softplus(by_rule), -softplus(self.exact) - softplus(learnt)
        )
        both = softplus(self.never) - fits
        return both + np.log(np.maximum(-np.expm1(-both), 1e-30))

    def invalid(self, buffer_bytes: np.ndarray | float) -> np.ndarray:
        """(groups,) float64: probability of being invalid, which falls as the buffer grows."""
        return sigmoid(self.odds(buffer_bytes))


class Predictor:
    """A trained predictor of the buffer requirement of groups."""

    def __init__(self, weights: Mapping[str, np.ndarray], path: Path | None = None) -> None:
        """`weights`: parameters of `explainers.model.ValidityGNN`, by its names; `path`: their file."""
        self.weights = dict(weights)
        self.path = path
        # (2 x channels in, channels out): of neighbours, then of the operator itself; bias
        self._layers: list[tuple[np.ndarray, np.ndarray]] = []
        while f"convs.{len(self._layers)}.lin_rel.weight" in self.weights:
            name = f"convs.{len(self._layers)}"
            both = np.concatenate(
                [self.weights[f"{name}.{part}.weight"] for part in ("lin_rel", "lin_root")], 1
            )
            self._layers.append(
                (
                    np.ascontiguousarray(both.T, np.float32),
                    self.weights[f"{name}.lin_rel.bias"].astype(np.float32),
                )
            )
        self._head = [
            self.weights[f"head.{layer}.{part}"].astype(np.float32).T
            for layer in (0, 2)
            for part in ("weight", "bias")
        ]

    @classmethod
    def load(cls, source: str | Path) -> Predictor:
        """The predictor that ships for a scheme, or one from a .safetensors file. Raises InvalidConfig."""
        path = WEIGHTS / f"{source}.safetensors" if source in FORMULAS else Path(source)
        weights = read_weights(
            path,
            "convs.0.lin_rel.weight",
            *(f"head.{layer}.{part}" for layer in (0, 2) for part in ("weight", "bias")),
        )
        if (trained_features := weights["convs.0.lin_rel.weight"].shape[1]) != FEATURES:
            raise InvalidConfig(
                f"{path}: was trained on {trained_features} features of an operator, lfopt gives {FEATURES}; "
                "`lfopt train` trains anew"
            )
        return cls(weights, path)

    def forecast(self, batch: Batch) -> Forecast:
        """Distribution of the requirement of each group of a batch, see `GroupGraphs.batch`."""
        outputs = [self._outputs(part) for part in pieces(batch, AT_ONCE)]
        residual, spread, exact, never = np.concatenate([np.empty((0, OUTPUTS)), *outputs]).T
        rule = np.log2(batch.units)
        spread = np.clip(np.exp(spread), SMALLEST_SPREAD, LARGEST_SPREAD)
        return Forecast(rule, rule + residual, spread, exact, SURE * (2.0 * batch.never - 1) + never)

    def odds(self, questions: Sequence[ValidityQuery]) -> np.ndarray:
        """(groups,) float64: log-odds of being invalid, each with its buffer."""
        return self.forecast(Batch.of([query.graph for query in questions])).odds(
            np.array([query.buffer_bytes for query in questions])
        )

    def embed(self, query: ValidityQuery) -> np.ndarray:
        """(operators, EMBEDDED) float32: embeddings after the last layer, then the features of `shown`."""
        return np.concatenate((self.embed_batch(Batch.of([query.graph])), shown(query)), 1)

    def _outputs(self, batch: Batch) -> np.ndarray:
        x = self.embed_batch(batch)
        given = np.stack((np.zeros(len(batch)), batch.never), 1).astype(np.float32)
        pooled = [of.reduceat(x, batch.starts, axis=0) for of in (np.add, np.maximum)]
        enter, shift, leave, bias = self._head
        with one_thread():
            return np.maximum(np.concatenate((*pooled, given), 1) @ enter + shift, 0) @ leave + bias

    def embed_batch(self, batch: Batch) -> np.ndarray:
        """(operators, HIDDEN) float32: embeddings after the last layer, of many groups at once."""
        x = batch.features
        size = len(batch.features)
        u, v = batch.links
        from scipy.sparse import csr_array  # noqa: PLC0415  (takes half a second)

        neighbours = csr_array(
            (np.ones(2 * u.size, np.float32), (np.concatenate((v, u)), np.concatenate((u, v)))),
            shape=(size, size),
        )
        with one_thread():
            for matrix, bias in self._layers:
                width = x.shape[1]
                joined = np.empty((size, 2 * width), np.float32)
                joined[:, :width] = neighbours @ x
                joined[:, width:] = x
                x = joined @ matrix
                x += bias
                np.maximum(x, 0, out=x)
        return x


def shown(query: ValidityQuery) -> np.ndarray:
    """(operators, SHOWN) float32: features of an explainer beside embeddings.

    Embeddings see four links far and no buffer. The features: how far the rule is from the buffer, the same
    for all; an operator's share of the weights and of the rows read for one row; and that of all operators up
    to it, in their order.
    """
    graph = query.graph
    over = np.clip(np.log2(graph.unit / query.buffer_bytes), -FARTHEST, FARTHEST) / FARTHEST
    share = own_sizes(graph.features)
    share = share / max(float(share.sum()), 1e-9)
    return np.stack((np.full(len(graph), over), share, share.cumsum()), 1).astype(np.float32)


def one_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread, for products of small matrices.

    More threads would wait for one another for longer than they work, by far where cores are shared.
    """
    return _blas().limit(limits=1)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), elementwise, in float64."""
    return 0.5 + 0.5 * np.tanh(0.5 * logits.astype(np.float64))


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x))."""
    return np.logaddexp(0, x)


def scale(logits: np.ndarray) -> np.ndarray:
    """(groups,) float64: factor that brings logits (groups,), log-odds of whole groups, down to LARGEST.

    It is for explainers: log-odds of hundreds would tell them nothing.
    """
    return LARGEST / np.maximum(np.abs(logits), LARGEST)


def pieces(batch: Batch, operators: int) -> Iterator[Batch]:
    """Parts of the batch, whole groups of at most about `operators` operators each."""
    ends = np.append(batch.starts, len(batch.features))
    first = 0
    while first < len(batch):
        stop = max(int(np.searchsorted(ends, ends[first] + operators, "right")) - 1, first + 1)
        low = ends[first]
        high = ends[stop]
        a, b = np.searchsorted(batch.links[0], (low, high))
        yield Batch(
            batch.features[low:high],
            batch.links[:, a:b] - low,
            batch.starts[first:stop] - low,
            batch.units[first:stop],
            batch.never[first:stop],
        )
        first = stop


def read_weights(path: Path, *names: str) -> dict[str, np.ndarray]:
    """Arrays of a .safetensors file by name, in the shapes that were stored.

    `names`: arrays that must be there. Raises InvalidConfig where one is missing or the file is unreadable.
    """
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InvalidConfig(
            f"{path}: no weights of a network here ({str(error)[:200]}); `lfopt train` makes them"
        ) from None
    if missing := [name for name in names if name not in arrays]:
        raise InvalidConfig(f"{path}: holds no array {missing[0]!r}; accepted: what `lfopt train` writes")
    return arrays
