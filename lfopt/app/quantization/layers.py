"""Quantisation noise of the layers of a network against the same network in floats, summed over samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, log10, prod

import numpy as np

from lfopt.app.arrays import real
from lfopt.frontend.qdq import is_q_or_dq
from lfopt.ir import Graph, Operator, Tensor
from lfopt.ops import Call
from lfopt.ops.arithmetic import CHOICE, EXTREME, MOVE, arithmetic, in_bytes
from lfopt.ops.fixed_point import dequantized, quantized
from lfopt.ops.reference import Results

INPUT = "input"  # kind of an input of the network, whose rounding adds noise as a layer does
CHANNEL_AXES = {2: 1, 3: 2, 4: 1, 5: 1}  # by rank
FEW = 32  # elements of a channel that say nothing of it yet


@dataclass(slots=True)
class Ratio:
    """Signal and noise of a map, summed up by channel."""

    elements: int = 0
    # (channels,) float64, sums of squares; (1,) for maps without a channel axis
    signal: np.ndarray = field(default_factory=lambda: np.zeros(1))
    noise: np.ndarray = field(default_factory=lambda: np.zeros(1))

    def add(self, exact: np.ndarray, rounded: np.ndarray) -> None:
        """Add one sample: a map in floats, and in real numbers of the same shape when rounded."""
        if not exact.size:
            return
        channels = exact.shape[axis] if (axis := CHANNEL_AXES.get(exact.ndim)) is not None else 1
        shape = (-1, channels, prod(exact.shape[axis + 1 :])) if axis is not None else (-1, 1, 1)
        exact = exact.astype(np.float64).reshape(shape)
        error = rounded.reshape(shape) - exact
        self.elements += exact.size
        self.signal = self.signal + np.einsum("ncp,ncp->c", exact, exact)
        self.noise = self.noise + np.einsum("ncp,ncp->c", error, error)

    @property
    def decibels(self) -> float:
        """Signal to noise of all elements, in dB; infinite where there is no noise."""
        return _decibels(float(self.signal.sum()), float(self.noise.sum()))

    @property
    def by_channel(self) -> float:
        """Signal to noise in dB with every channel scaled to a signal of 1.

        Noise counts up to 1 for each, at which a channel is lost. As `decibels` where channels have few
        elements.
        """
        alive = self.signal > 0
        if self.elements < FEW * self.signal.size or not alive.any():
            return self.decibels
        return _decibels(1.0, float(np.minimum(self.noise[alive] / self.signal[alive], 1).mean()))


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return inf
    if signal:
        return 10 * log10(signal / noise)
    return -inf


@dataclass(slots=True)
class LayerNoise:
    """A layer, or an input of the network: how far quantising takes what it makes from the floats."""

    name: str  # of the operator, or the input
    kind: str  # operator type, or INPUT
    map: str
    own: Ratio = field(default_factory=Ratio)
    all: Ratio = field(default_factory=Ratio)
    # decibels of the outputs where this layer alone is quantised; None: not measured
    alone: float | None = None


class Beside:
    """The network in floats, with a twin beside each layer whose weights are quantised.

    The twin is the same layer with the real numbers that the quantised weights stand for.
    """

    def __init__(self, floats: Graph, quantized_graph: Graph) -> None:
        self.quantized_graph = quantized_graph
        # maps of `floats` by those of `quantized_graph`
        self.float_of = _counterparts(floats, quantized_graph)
        self.layers: dict[str, LayerNoise] = {}  # by map of `quantized_graph`
        self.unmatched: list[str] = []
        self.twins: dict[str, str] = {}  # what a twin makes, by map of `quantized_graph`
        self._taken = {*floats.tensors, *(operator.name for operator in floats.operators)}
        self._tensors = dict(floats.tensors)
        self._constants = dict(floats.constants)
        self.twin_operators: list[Operator] = []
        for name in quantized_graph.inputs:
            if quantized_graph.tensors[name].quantization is not None:
                own = Ratio()
                self.layers[name] = LayerNoise(quantized_graph.label(name), INPUT, name, own, own)
        for operator in quantized_graph.operators:
            self.twin_operators += self._twin(operator)
        self.graph = replace(
            floats,
            operators=(*floats.operators, *self.twin_operators),
            tensors=self._tensors,
            constants=self._constants,
        )
        needed = [self.float_of[name] for name in self.layers]
        self.wanted = list(dict.fromkeys((*needed, *floats.outputs, *self.twins.values())))

    def _twin(self, operator: Operator) -> Iterator[Operator]:
        """The twin of an operator on integers, if it reads quantised constants."""
        graph = self.quantized_graph
        tensors = self.quantized_graph.tensors
        results = [name for name in operator.outputs if name and tensors[name].quantization is not None]
        if not results or is_q_or_dq(operator) or _is_exact(Call.of(graph, operator)):
            return
        read = [name for name in operator.inputs if name and name not in graph.constants]
        if any(name not in self.float_of for name in (*results, *read)):
            self.unmatched.append(operator.name)
            return
        for name in results:
            self.layers[name] = LayerNoise(operator.name, operator.kind, name)
        if not any(
            name in graph.constants and tensors[name].quantization is not None for name in operator.inputs
        ):
            return
        for name in results:
            self.twins[name] = self._add(name, replace(tensors[name], dtype="float32", quantization=None))
        inputs = tuple(
            self._constant(name) if name in graph.constants else self.float_of.get(name, "")
            for name in operator.inputs
        )
        outputs = tuple(self.twins.get(name, "") for name in operator.outputs)
        yield replace(operator, name=self.fresh(operator.name), inputs=inputs, outputs=outputs)

    def _constant(self, name: str) -> str:
        """A constant of the quantised network, in the numbers that it stands for."""
        tensor = self.quantized_graph.tensors[name]
        value = self.quantized_graph.constants[name]
        assert value is not None, "what was quantised has weights"
        if tensor.quantization is not None:
            value = dequantized(value, tensor.quantization)
        twin = self._add(name, replace(tensor, dtype=value.dtype.name, quantization=None))
        self._constants[twin] = value
        return twin

    def _add(self, name: str, like: Tensor) -> str:
        twin = self.fresh(name)
        self._tensors[twin] = replace(like, name=twin)
        return twin

    def fresh(self, wanted: str) -> str:
        """A name that nothing has."""
        name = f"{wanted}~twin"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def add_own(self, exact: Mapping[str, np.ndarray]) -> None:
        """Add one sample to each layer's own noise; `exact`: maps in floats by name, in their shapes."""
        for name, layer in self.layers.items():
            tensor = self.quantized_graph.tensors[name]
            floats = exact[self.float_of[name]]
            assert tensor.quantization is not None
            rounded = quantized(
                exact[self.twins[name]] if name in self.twins else floats, tensor.quantization, tensor.dtype
            )
            layer.own.add(floats, dequantized(rounded, tensor.quantization))

    def add_all(self, call: Call, results: Results, exact: Mapping[str, np.ndarray]) -> Results:
        """Add one sample of an operator's results where everything is quantised; gives the results.

        `exact`: maps in floats by name, in the shapes of the results.
        """
        for tensor, values in zip(call.result_tensors, results, strict=True):
            if tensor.name in self.layers:
                self.layers[tensor.name].all.add(exact[self.float_of[tensor.name]], real(tensor, values))
        return results


def _is_exact(call: Call) -> bool:
    """Whether an operator only moves or chooses integers, whose scale stays: it adds no noise."""
    read = [tensor for tensor in call.tensors if in_bytes(tensor)]
    same = {tensor.quantization for tensor in (*read, *call.result_tensors) if tensor is not None}
    return arithmetic(call) in (MOVE, EXTREME, CHOICE) and len(same) == 1


def _counterparts(floats: Graph, quantized_graph: Graph) -> dict[str, str]:
    """Maps in floats by those of the quantised network: of the same name, or across a Q or DQ operator."""
    counterparts = {
        name: name
        for name in quantized_graph.tensors
        if name in floats.tensors and name not in floats.constants
    }
    borders = [operator for operator in quantized_graph.operators if is_q_or_dq(operator)]
    for pairs in (borders, reversed(borders)):
        for operator in pairs:
            read = operator.inputs[0]
            wrote = operator.outputs[0]
            for known, other in ((read, wrote), (wrote, read)):
                if known in counterparts:
                    counterparts.setdefault(other, counterparts[known])
    return counterparts
