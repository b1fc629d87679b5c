"""Ranges of real numbers that 8-bit integers stand for, from the distribution of maps in calibration data.

    minmax      from the least to the greatest element
    percentile  without the outermost share of the elements at either end
    entropy     cut where the distribution, merged to as many levels as integers have, is nearest to the
                original: least Kullback-Leibler divergence
    mse         cut where the squared error of rounding and cutting together is least

The last two cut both ends at the same magnitude. Zeros are exact at every scale, and have no part in either.
Source of entropy: Migacz, 8-bit Inference with TensorRT, GTC 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import frexp
from typing import Any, Literal

import numpy as np

from lfopt.app.deadline import ReportProgress
from lfopt.app.quantization.runtime import Maps, Range
from lfopt.app.quantization.samples import Samples
from lfopt.ir import Graph, InvalidConfig

Method = Literal["minmax", "percentile", "entropy", "mse"]
DEFAULT: Method = "minmax"
PERCENTILE = 99.99  # of the elements, at either end
BINS = 8192  # of a distribution, over both signs
CUTS = 128  # that are tried, evenly spaced up to the largest magnitude
# elements: fewer are no distribution over so many bins, and no divergence follows from them (the gates of
# squeeze-and-excite blocks)
FEW = 2 * BINS
LEVELS = 256  # of an 8-bit integer


@dataclass(slots=True)
class Distribution:
    """Histogram of the elements of a map over any number of samples, in bins over [-limit, limit]."""

    least: float = np.inf
    greatest: float = -np.inf
    elements: int = 0
    zeros: int = 0
    limit: float = 0.0  # a power of two, at most twice the largest magnitude: 0 until there is one
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))  # (BINS,) elements

    def add(self, values: np.ndarray, *, count: bool = True) -> None:
        """Add the elements of one sample, an array of any shape; not `count`: only their extremes."""
        if not values.size:
            return
        self.least, self.greatest = (
            min(self.least, float(values.min())),
            max(self.greatest, float(values.max())),
        )
        self.elements += values.size
        if not count:
            return
        self.zeros += values.size - int(np.count_nonzero(values))
        self._widen()
        if self.limit:
            self.counts += np.histogram(values, BINS, (-self.limit, self.limit))[0]
        else:
            self.counts[BINS // 2] += values.size

    @property
    def reach(self) -> float:
        """The largest magnitude."""
        return max(-self.least, self.greatest, 0.0)

    @property
    def magnitudes(self) -> np.ndarray:
        """(BINS / 2,) float64: elements by magnitude without zeros, in bins over [0, limit]."""
        counts = (self.counts[BINS // 2 :] + self.counts[BINS // 2 - 1 :: -1]).astype(np.float64)
        counts[0] -= self.zeros
        return counts

    def _widen(self) -> None:
        """Double the limit, two bins becoming one, until it holds every element."""
        mantissa, exponent = frexp(self.reach)
        limit = 0.0 if not self.reach else 2.0 ** (exponent - (mantissa == 0.5))  # exact: powers of two
        if not self.limit:
            self.limit = limit
        while self.limit < limit:
            quarter = BINS // 4
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.pad(pairs, quarter)
            self.limit *= 2


def distributions(
    runtime: Any, graph: Graph, samples: Samples, label: str, *, count: bool, report: ReportProgress
) -> dict[str, Distribution]:
    """Distributions of the float maps by name, over the samples; not `count`: only their extremes.

    Softmax is left out: what it makes lies between 0 and 1, whatever the samples say. Raises InvalidConfig
    for a map that holds infinities or NaN, or is the same everywhere: no scale follows from that;
    UnsupportedModel where ONNX Runtime cannot run the network.
    """
    results = (
        name
        for operator in graph.operators
        if operator.kind != "Softmax"
        for name in operator.outputs
        if name
    )
    by_map = {
        name: Distribution() for name in (*graph.inputs, *results) if graph.tensors[name].dtype == "float32"
    }
    maps = Maps(runtime, graph, list(by_map), label)
    for k, sample in enumerate(samples):
        report("calibration", k / len(samples))
        for name, values in maps(sample).items():
            if not np.isfinite(values).all():
                raise InvalidConfig(f"{_what(graph, name)} holds infinities or NaN on the calibration data")
            by_map[name].add(values, count=count)
    for name, one in by_map.items():
        if one.least == one.greatest and one.elements > 1:
            raise InvalidConfig(
                f"{_what(graph, name)} is {one.least:g} everywhere on the calibration data, so no scale "
                "follows; accepted: data that changes it"
            )
    return by_map


def _what(graph: Graph, name: str) -> str:
    maker = next((operator for operator in graph.operators if name in operator.outputs), None)
    if maker is None:
        return f"input {graph.label(name)!r}"
    return f"what layer {maker.name!r} ({maker.kind}) makes"


def ranges(
    by_map: Mapping[str, Distribution], method: Method, percentile: float = PERCENTILE
) -> dict[str, Range]:
    """Ranges of maps by name, for `quantised`; none for `minmax`, which is what that does by itself.

    `percentile`: above 50, at most 100.
    """
    if method == "minmax":
        return {}
    return {
        name: _percentile(one, percentile / 100) if method == "percentile" else CUTS_OF[method](one)
        for name, one in by_map.items()
    }


def _percentile(one: Distribution, share: float) -> Range:
    width = 2 * one.limit / BINS
    up = _quantile(one.counts, share) * width - one.limit
    down = one.limit - _quantile(one.counts[::-1], share) * width
    return max(down, one.least), min(up, one.greatest)


def _quantile(counts: np.ndarray, share: float) -> float:
    """Position, in bins, below which that share of all elements lies; each bin is evenly filled."""
    total = np.cumsum(counts)
    wanted = share * total[-1]
    k = int(np.searchsorted(total, wanted))
    return k + 1 - (total[k] - wanted) / counts[k]


def _entropy(one: Distribution) -> Range:
    if one.elements - one.zeros < FEW:
        return one.least, one.greatest
    counts = one.magnitudes
    used = int(np.ceil(one.reach / one.limit * len(counts)))
    counts = counts[:used]
    levels = LEVELS if one.least >= 0 or one.greatest <= 0 else LEVELS // 2
    cuts = np.unique(np.linspace(levels, used, CUTS).astype(int))
    divergences = [_divergence(counts, cut, levels) for cut in cuts]
    return _cut(one, float(cuts[np.argmin(divergences)]) / len(one.counts) * 2 * one.limit)


def _divergence(counts: np.ndarray, cut: int, levels: int) -> float:
    """Kullback-Leibler divergence of `levels` levels from the first `cut` bins, in nats.

    What is cut off counts in the last of these bins. `counts`: (bins,) float64.
    """
    head = counts[:cut]
    starts = np.arange(levels) * cut // levels
    filled = np.add.reduceat((head > 0).astype(np.float64), starts)
    means = np.add.reduceat(head, starts) / np.maximum(filled, 1)
    merged = np.where(head > 0, np.repeat(means, np.diff(starts, append=cut)), 0)
    exact = head.copy()
    exact[-1] += counts[cut:].sum()
    at = exact > 0
    if (merged[at] == 0).any():
        return np.inf
    p = exact[at] / exact.sum()
    q = merged[at] / merged.sum()
    return float((p * np.log(p / q)).sum())


def _least_error(one: Distribution) -> Range:
    counts = one.magnitudes
    centres = (np.arange(len(counts)) + 0.5) * one.limit / len(counts)
    cuts = one.reach * np.arange(1, CUTS + 1) / CUTS
    errors = [
        (counts * np.where(centres <= cut, _step(one, cut) ** 2 / 12, (centres - cut) ** 2)).sum()
        for cut in cuts
    ]
    return _cut(one, float(cuts[np.argmin(errors)]))


def _step(one: Distribution, cut: float) -> float:
    """Difference of the real numbers that neighbouring integers stand for."""
    least, greatest = _cut(one, cut)
    return (max(greatest, 0.0) - min(least, 0.0)) / (LEVELS - 1)


def _cut(one: Distribution, magnitude: float) -> Range:
    return max(one.least, -magnitude), min(one.greatest, magnitude)


CUTS_OF: Mapping[Method, Callable[[Distribution], Range]] = {"entropy": _entropy, "mse": _least_error}
