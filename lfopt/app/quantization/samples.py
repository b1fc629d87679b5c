"""Calibration samples: inputs of a network by name, from an archive or at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lfopt.app.arrays import read_arrays
from lfopt.app.random_values import random_inputs
from lfopt.ir import Graph, InvalidConfig

Sample = Mapping[str, np.ndarray]  # graph inputs by name, in the shapes and types of the graph
Samples = Sequence[Sample]


def random_samples(graph: Graph, count: int, seed: int) -> Samples:
    """Samples drawn at random."""
    rng = np.random.default_rng(seed)
    return [random_inputs(graph, rng) for _ in range(count)]


def read_samples(path: Path, graph: Graph, count: int | None) -> Samples:
    """The first `count` samples of a .npz; None: all.

    The file has an array [samples * n, ...] for each input [n, ...], by its label. Raises InvalidConfig for
    arrays that are absent, of another shape, not real, not finite or of different numbers of samples, and for
    fewer samples than `count`.
    """
    arrays = read_arrays(path)
    if not isinstance(arrays, dict):
        raise InvalidConfig(f"{path}: found one array; accepted: an .npz archive with one array per input")
    parts = {name: _samples_of(path, graph, name, arrays) for name in graph.inputs}
    counts = {graph.label(name): len(array) for name, array in parts.items()}
    if len(set(counts.values())) > 1:
        raise InvalidConfig(f"{path}: the inputs have {counts} samples; accepted: as many of each")
    held = next(iter(counts.values()))
    if count is not None and count > held:
        raise InvalidConfig(f"--samples {count}: {path} holds {held}")
    return [
        {name: array[i] for name, array in parts.items()} for i in range(held if count is None else count)
    ]


def _samples_of(path: Path, graph: Graph, name: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """[samples, n, ...] of one input, in its type."""
    tensor = graph.tensors[name]
    label = graph.label(name)
    wanted = (
        f"accepted: [samples * {tensor.shape[0] if tensor.shape else 1}, "
        f"{', '.join(map(str, tensor.shape[1:]))}]"
    )
    if label not in arrays:
        raise InvalidConfig(
            f"{path}: no array {label!r}; it holds {', '.join(map(repr, arrays)) or 'nothing'}; {wanted}"
        )
    array = arrays[label]
    fits = (
        tensor.shape
        and array.ndim == len(tensor.shape)
        and array.shape[1:] == tensor.shape[1:]
        and array.shape[0] % tensor.shape[0] == 0
    )
    if not fits or not array.size or array.dtype.kind not in "biuf":
        raise InvalidConfig(f"{path}: {label!r}: found {array.dtype} {list(array.shape)}; {wanted}")
    with np.errstate(over="ignore"):
        typed = array.astype(tensor.dtype)
    if not np.isfinite(typed).all():
        raise InvalidConfig(f"{path}: {label!r}: holds infinities or NaN")
    return typed.reshape(-1, *tensor.shape)
