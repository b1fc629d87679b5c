"""The trained network in NumPy: how likely a group is not to run whole from the buffer. The same numbers as PyTorch Geometric, without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from scipy.sparse import csr_array
from threadpoolctl import ThreadpoolController

from explainers.graph import FEATURES, Batch, GroupGraph
from lfopt.ir import InvalidConfig

WEIGHTS = Path(__file__).parent / "weights"
AT_ONCE = 4096  # operators that go through the network together: what they take stays in the cache


class Predictor:
    """A trained validity predictor."""

    def __init__(self, weights: Mapping[str, np.ndarray], path: Path | None = None) -> None:
        """`weights` are those of `explainers.model.Network`, by its names; `path`: the file that they come from."""
        self.weights, self.path = dict(weights), path
        self._layers: list[tuple[np.ndarray, np.ndarray]] = []  # (2 x channels in, channels out): of neighbours, then of the operator itself; bias
        while f"convs.{len(self._layers)}.lin_rel.weight" in self.weights:
            name = f"convs.{len(self._layers)}"
            both = np.concatenate([self.weights[f"{name}.{part}.weight"] for part in ("lin_rel", "lin_root")], 1)
            self._layers.append((np.ascontiguousarray(both.T, np.float32), self.weights[f"{name}.lin_rel.bias"].astype(np.float32)))
        self._head = self.weights["head.weight"].astype(np.float32)[0], float(self.weights["head.bias"][0])

    @classmethod
    def load(cls, source: str | Path) -> Predictor:
        """The predictor that ships for a scheme (lbdf, brr), or one from a .safetensors file. Raises InvalidConfig."""
        path = WEIGHTS / f"{source}.safetensors" if source in ("lbdf", "brr") else Path(source)
        weights = read_weights(path, "convs.0.lin_rel.weight", "head.weight", "head.bias")
        if (found := weights["convs.0.lin_rel.weight"].shape[1]) != FEATURES:
            raise InvalidConfig(f"{path}: was trained on {found} features of an operator, lfopt gives {FEATURES}; `lfopt train` trains anew")
        return cls(weights, path)

    def invalid(self, graphs: Sequence[GroupGraph] | Batch) -> np.ndarray:
        """(groups,) float64: probability that each group does not run whole from the buffer. `Groups.batch` is the quick way to many graphs."""
        return sigmoid(self.logits(graphs if isinstance(graphs, Batch) else Batch.of(graphs)))

    def logits(self, batch: Batch) -> np.ndarray:
        """(groups,) float32: logarithms of the odds that they do not."""
        found = [self._logits(part.features, part.links, None, part.starts) for part in pieces(batch, AT_ONCE)]
        return np.concatenate([np.empty(0, np.float32), *found])

    def embed(self, graph: GroupGraph) -> np.ndarray:
        """(operators, 128) float32: embeddings after the last layer."""
        return self._embedded(graph.features, graph.links, None)

    def embed_batch(self, batch: Batch) -> np.ndarray:
        """The same of many groups at once."""
        return self._embedded(batch.features, batch.links, None)

    def invalid_masked(self, graph: GroupGraph, link_weights: np.ndarray) -> np.ndarray:
        """(k,) float64: the probability with links weighted: (k, links), 1 = as it is, 0 = no message passes."""
        count, size = len(link_weights), len(graph)
        shifts = np.arange(count) * size
        links = (graph.links[:, None, :] + shifts[:, None]).reshape(2, -1)
        logits = self._logits(np.tile(graph.features, (count, 1)), links, np.asarray(link_weights, np.float32).ravel(), shifts)
        return sigmoid(logits)

    def _logits(self, features: np.ndarray, links: np.ndarray, weights: np.ndarray | None, starts: np.ndarray) -> np.ndarray:
        head, bias = self._head
        return np.add.reduceat(self._embedded(features, links, weights), starts, axis=0) @ head + bias if starts.size else np.empty(0, np.float32)

    def _embedded(self, features: np.ndarray, links: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        x, size = features, len(features)
        (u, v), both = links, np.ones(links.shape[1], np.float32) if weights is None else weights
        neighbours = csr_array((np.tile(both, 2), (np.concatenate((v, u)), np.concatenate((u, v)))), shape=(size, size))
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


def one_thread() -> AbstractContextManager[Any]:
    """For products of small matrices: threads would wait for one another for longer than they work, by far where cores are shared."""
    return _blas().limit(limits=1)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) in float64."""
    return 0.5 + 0.5 * np.tanh(0.5 * logits.astype(np.float64))


def pieces(batch: Batch, operators: int) -> Iterator[Batch]:
    """The batch in parts of whole groups, of about so many operators each."""
    ends = np.append(batch.starts, len(batch.features))
    first = 0
    while first < len(batch):
        stop = max(int(np.searchsorted(ends, ends[first] + operators, "right")) - 1, first + 1)
        low, high = ends[first], ends[stop]
        a, b = np.searchsorted(batch.links[0], (low, high))
        yield Batch(batch.features[low:high], batch.links[:, a:b] - low, batch.starts[first:stop] - low)
        first = stop


def read_weights(path: Path, *names: str) -> dict[str, np.ndarray]:
    """Arrays of a .safetensors file, these among them. Raises InvalidConfig."""
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InvalidConfig(f"{path}: no weights of a network here ({str(error)[:200]}); `lfopt train` makes them") from None
    if missing := [name for name in names if name not in found]:
        raise InvalidConfig(f"{path}: holds no array {missing[0]!r}; accepted: what `lfopt train` writes")
    return found
