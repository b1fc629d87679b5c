"""Noise at the outputs of a network in floats of which one layer is in int8, for every layer.

All layers are in one network, each with its rounded map beside the one in floats; an input says which of them
is read rounded. That is a run for each layer, of about three times the work of the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from lfopt.app.deadline import ReportProgress
from lfopt.app.quantization.layers import Beside, Ratio
from lfopt.app.quantization.runtime import Maps
from lfopt.app.quantization.samples import Sample
from lfopt.ir import Graph, Operator, Tensor

NONE = -1  # no layer is rounded


def alone(
    runtime: Any, floats: Graph, beside: Beside, sample: Sample, label: str, report: ReportProgress
) -> dict[str, float]:
    """Signal to noise in decibels of the worst output, by map of the only quantised layer, on one sample.

    Raises UnsupportedModel.
    """
    switched = _Switched(floats, beside)
    maps = Maps(runtime, switched.graph, switched.graph.outputs, label)
    exact = maps({**sample, switched.which: np.array(NONE)})
    decibels: dict[str, float] = {}
    for k, name in enumerate(beside.layers):
        report("layers alone", k / len(beside.layers))
        outputs = maps({**sample, switched.which: np.array(k)})
        ratios = [Ratio() for _ in exact]
        for ratio, output in zip(ratios, exact, strict=True):
            ratio.add(exact[output], outputs[output])
        decibels[name] = min(ratio.decibels for ratio in ratios)
    return decibels


class _Switched:
    """The network in floats, in which the map of the layer whose number is the input `which` is rounded."""

    def __init__(self, floats: Graph, beside: Beside) -> None:
        self.beside = beside
        self.tensors = dict(beside.graph.tensors)
        self.constants = dict(beside.graph.constants)
        self.numbers = {name: k for k, name in enumerate(beside.layers)}
        self.which = self._add("which", Tensor("", (), "int64"))
        self.read: dict[str, str] = {}  # what readers of a map in floats read in its place
        layers = {beside.float_of[name]: name for name in beside.layers}
        twins = {name: operator for operator in beside.twin_operators for name in operator.outputs if name}
        operators = [
            switched for name in floats.inputs if name in layers for switched in self._switch(layers[name])
        ]
        emitted = set[str]()
        for operator in floats.operators:
            operators.append(
                replace(operator, inputs=tuple(self.read.get(name, name) for name in operator.inputs))
            )
            for name in (layers[switched] for switched in operator.outputs if switched in layers):
                twin = twins.get(beside.twins.get(name, ""))
                if twin is not None and twin.name not in emitted:
                    emitted.add(twin.name)
                    operators.append(twin)
                operators += self._switch(name)
        outputs = tuple(self.read.get(name, name) for name in floats.outputs)
        self.graph = replace(
            floats,
            operators=tuple(operators),
            tensors=self.tensors,
            constants=self.constants,
            inputs=(*floats.inputs, self.which),
            outputs=outputs,
            labels={},
        ).without_unused()

    def _switch(self, name: str) -> Iterator[Operator]:
        """Q, DQ, and the choice between what they make and the map in floats.

        `name`: of the map in the quantised network.
        """
        tensor = self.beside.quantized_graph.tensors[name]
        floats = self.beside.float_of[name]
        assert tensor.quantization is not None
        scale = self._constant(name, np.array(tensor.quantization.scale[0], np.float32))
        zero = self._constant(name, np.array(tensor.quantization.zero_point[0], tensor.dtype))
        number = self._constant(name, np.array(self.numbers[name], np.int64))
        held, rounded, chosen = (
            self._add(name, Tensor("", tensor.shape, dtype)) for dtype in (tensor.dtype, "float32", "float32")
        )
        flag = self._add(name, Tensor("", (), "bool"))
        yield Operator(held, "QuantizeLinear", (self.beside.twins.get(name, floats), scale, zero), (held,))
        yield Operator(rounded, "DequantizeLinear", (held, scale, zero), (rounded,))
        yield Operator(flag, "Equal", (self.which, number), (flag,))
        yield Operator(chosen, "Where", (flag, rounded, floats), (chosen,))
        self.read[floats] = chosen

    def _constant(self, name: str, value: np.ndarray) -> str:
        added = self._add(name, Tensor("", value.shape, value.dtype.name))
        self.constants[added] = value
        return added

    def _add(self, wanted: str, like: Tensor) -> str:
        name = self.beside.fresh(wanted)
        self.tensors[name] = replace(like, name=name)
        return name
