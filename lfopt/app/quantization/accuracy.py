"""Accuracy of a quantised network: signal to noise of layers and outputs against floats, over samples.

Of a map x in floats and y in its place, the ratio is 10 log10(sum x^2 / sum (x - y)^2) decibels, summed over
elements and samples. For each layer:

    own         the layer alone is quantised: it reads floats, and its weights and the map that it makes are
                rounded
    by channel  the same, every channel counting alike: networks do not change where a channel is scaled and
                its readers make up for it, so that small channels may matter as much as large ones, which
                hold the energy and decide a scale
    alone       the layer alone is quantised: at the outputs of the network (`lfopt.app.quantization.alone`)
    all         everything is quantised: its map in the integer arithmetic of `lfopt.ops.integer`, which C and
                accelerator have bit for bit

Floats are ONNX Runtime's. The maps of one sample are in memory at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from lfopt.app.arrays import real
from lfopt.app.deadline import ReportProgress
from lfopt.app.quantization.alone import alone
from lfopt.app.quantization.layers import Beside, LayerNoise, Ratio
from lfopt.app.quantization.runtime import Maps
from lfopt.app.quantization.samples import Sample, Samples
from lfopt.ir import Graph
from lfopt.ops.fixed_point import quantized
from lfopt.ops.reference import reference

CLASS_RANKS = (2, 3)  # [n, classes] or [n, positions, classes]


@dataclass(slots=True)
class OutputNoise:
    """An output of the network."""

    name: str
    ratio: Ratio = field(default_factory=Ratio)
    largest_error: float = 0.0
    least: float = inf
    greatest: float = -inf
    rows: int = 0  # of classes; 0 where the rank says that there are none
    same_class: int = 0  # rows whose greatest element is where it is in floats

    def add(self, exact: np.ndarray, rounded: np.ndarray) -> None:
        """Count one sample: the output in floats, and in real numbers of the same shape when quantised."""
        self.ratio.add(exact, rounded)
        self.largest_error = max(
            self.largest_error, float(np.abs(rounded.astype(np.float64) - exact).max(initial=0.0))
        )
        self.least, self.greatest = (
            min(self.least, float(exact.min(initial=inf))),
            max(self.greatest, float(exact.max(initial=-inf))),
        )
        if exact.ndim in CLASS_RANKS and exact.shape[-1] > 1:
            same = exact.argmax(axis=-1) == rounded.argmax(axis=-1)
            self.rows += same.size
            self.same_class += int(same.sum())

    @property
    def error_of_range(self) -> float:
        """The largest error, of the difference between greatest and least element."""
        if self.greatest > self.least:
            return self.largest_error / (self.greatest - self.least)
        if self.largest_error:
            return inf
        return 0.0


@dataclass(frozen=True)
class Accuracy:
    """Signal to noise of a quantised network's layers and outputs."""

    layers: tuple[LayerNoise, ...]  # those that are quantised, in the order of the network
    outputs: tuple[OutputNoise, ...]
    unmatched: tuple[str, ...]  # layers whose maps the network in floats does not have

    @property
    def worst_first(self) -> list[LayerNoise]:
        """Layers by the noise that each adds alone: to the outputs if measured, else to its own map."""
        return sorted(
            self.layers,
            key=lambda layer: (
                inf if layer.alone is None else layer.alone,
                layer.own.by_channel,
                layer.own.decibels,
            ),
        )


def accuracy(
    runtime: Any,
    floats: Graph,
    quantized_graph: Graph,
    samples: Samples,
    label: str,
    report: ReportProgress,
    *,
    each_alone: bool = False,
) -> Accuracy:
    """Accuracy of `quantized_graph` against `floats`, which it was made of, over samples.

    `each_alone`: also of the outputs where one layer alone is quantised, on the first sample. Raises
    UnsupportedModel where either network cannot be computed.
    """
    beside = Beside(floats, quantized_graph)
    maps = Maps(runtime, beside.graph, beside.wanted, label)
    outputs = [OutputNoise(floats.label(name)) for name in floats.outputs]
    for k, sample in enumerate(samples):
        report("accuracy", k / len(samples))
        exact = maps(sample)
        beside.add_own(exact)
        integers = reference(
            quantized_graph,
            _stored(quantized_graph, sample),
            adjust=lambda call, _, results, exact=exact: beside.add_all(call, results, exact),
        )
        for output, name in zip(outputs, floats.outputs, strict=True):
            output.add(exact[name], real(quantized_graph.tensors[name], integers[name]))
    if each_alone:
        for name, decibels in alone(runtime, floats, beside, samples[0], label, report).items():
            beside.layers[name].alone = decibels
    return Accuracy(tuple(beside.layers.values()), tuple(outputs), tuple(beside.unmatched))


def _stored(quantized_graph: Graph, sample: Sample) -> dict[str, np.ndarray]:
    """A sample as the quantised network reads it."""
    tensors = {name: quantized_graph.tensors[name] for name in quantized_graph.inputs}
    return {
        name: sample[name]
        if tensor.quantization is None
        else quantized(sample[name], tensor.quantization, tensor.dtype)
        for name, tensor in tensors.items()
    }
