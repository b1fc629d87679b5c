"""Write operators and their seeded, well-scaled weights into an ONNX model."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lfopt.zoo import moments
from lfopt.zoo.activations import STD_BEFORE
from lfopt.zoo.moments import Moments

OPSET = 18
IR_VERSION = 10
LARGE = 256  # elements; a longer weight tensor loses its values when a network is built without weights

_BIAS_STD = 0.05  # of the standard deviation of the layer's output
_STATED_RANGE = 4.0  # standard deviations; what a tensor without values gives as its min and max


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the network: what a layer returns and the next one takes."""

    name: str  # also the name of the node that makes it
    # n, c, h, w of a feature map; n, c, t, h, w of a video; n, c of a vector; n, s, c of a text
    shape: tuple[int, ...]
    moments: Moments  # expected mean and variance of its values
    # of a residual trunk that is rectified after every sum: had it never been rectified
    latent: Moments | None = None
    element_type: int = TensorProto.FLOAT

    @property
    def linear(self) -> Moments:
        """Moments before all ReLUs of the trunk.

        A trunk that is rectified after every sum ends with nearly the variance of one that is rectified once
        at the end (0.36 and 0.34 of the summed variances), but its values are too far from normal to be
        followed sum by sum.
        """
        return self.latent or self.moments


Outputs = Value | tuple[Value, ...]  # what a network returns


class ModelWriter:
    """The operators, constants and weights written so far. `Net` has the layers."""

    def __init__(self, name: str, seed: int, weights: bool) -> None:
        self.name = name
        self.values: dict[str, Value] = {}
        self._seed = seed
        self._weights = weights  # False: large weight tensors are declared, not filled
        self._states: list[Value] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, TensorProto] = {}

    # The model

    def image(self, shape: tuple[int, ...]) -> Value:
        """The input of a network for images, or for the frames of a video."""
        return self._add_value(Value("image", shape, moments.IMAGE))

    def tokens(self, shape: tuple[int, ...], vocabulary: int) -> Value:
        """The input of a network for text: n, s numbers below `vocabulary`, all as likely."""
        uniform = Moments((vocabulary - 1) / 2, 0.0, (vocabulary**2 - 1) / 12)
        return self._add_value(Value("tokens", shape, uniform, element_type=TensorProto.INT64))

    def state(self, name: str, shape: tuple[int, ...], stats: Moments) -> Value:
        """An input beside the first: what an earlier step has left, such as a cache."""
        self._states.append(self._add_value(Value(name, shape, stats)))
        return self._states[-1]

    def model(self, given: Value, outputs: Outputs, doc: str) -> onnx.ModelProto:
        """All layers as an ONNX model; every intermediate tensor states its shape."""
        typed = {
            v.name: helper.make_tensor_value_info(v.name, v.element_type, v.shape)
            for v in self.values.values()
        }
        wanted = outputs if isinstance(outputs, tuple) else (outputs,)
        ends = (
            [typed.pop(value.name) for value in (given, *self._states)],
            [typed.pop(value.name) for value in wanted],
        )
        graph = helper.make_graph(
            self._nodes, self.name, *ends, list(self._constants.values()), value_info=list(typed.values())
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(
            graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="lfopt.zoo", doc_string=doc
        )

    # Operators and what they read

    def emit(
        self,
        op: str,
        at: str,
        inputs: Sequence[str],
        shape: tuple[int, ...],
        stats: Moments,
        *,
        latent: Moments | None = None,
        **attributes: Any,
    ) -> Value:
        """Append one operator; its output has its name."""
        self._nodes.append(helper.make_node(op, inputs, [at], name=at, **attributes))
        return self._add_value(Value(at, shape, stats, latent))

    def emit_parts(
        self, op: str, at: str, inputs: Sequence[str], parts: Sequence[Value], **attributes: Any
    ) -> tuple[Value, ...]:
        """Append one operator with several outputs, which have names of their own."""
        self._nodes.append(helper.make_node(op, inputs, [part.name for part in parts], name=at, **attributes))
        return tuple(self._add_value(part) for part in parts)

    def constant(self, name: str, values: np.ndarray) -> str:
        """Add a constant, an array of any shape; one of this name that is there already is shared."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(values, name)
        return name

    def scalar(self, value: float) -> str:
        """Add a number without dimensions, named by its value."""
        return self.constant(f"scalar_{value:g}", np.array(value, np.float32))

    def index(self, value: int) -> str:
        """Add a whole number without dimensions, named by its value."""
        return self.constant(f"index_{value}", np.array(value))

    def weight(self, name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> str:
        """Add a normal weight tensor. Its values are drawn only where they are kept."""
        kept = self._weights or prod(shape) <= LARGE
        self._parameter(
            name,
            shape,
            std,
            self._normal(name, shape) * np.float32(std) + np.float32(mean) if kept else None,
            mean,
        )
        return name

    def _linear(
        self,
        at: str,
        x: Value,
        shape: tuple[int, ...],
        act: str | None,
        std: float | None = None,
        live: float = 1.0,
        shift: float = 0.0,
        input_axis: int = 1,
        bias: bool = True,
    ) -> tuple[list[str], Moments]:
        """(inputs of a layer with weights of this shape and a bias if it has one, moments of its output).

        live: see `moments.weighted`. Activated channels share a mean. Were it not taken off, it would come
        back as an ever larger constant that hides the image; so filters sum to zero over the channels of each
        tap or, where there is only one channel, the bias takes the mean off as a folded BatchNorm does.
        """
        std = std or STD_BEFORE.get(act, 1.0)
        depthwise = shape[input_axis] == 1
        offset = x.moments.mean if depthwise else 0.0
        # axes that a filter sums over
        others = tuple(axis for axis in range(len(shape)) if axis != 1 - input_axis)
        gain = std**2 / moments.weighted(x.moments, 1.0, live, offset).variance
        weight_std = np.sqrt(gain / prod(shape[axis] for axis in others))

        weight = f"{at}.weight"
        biases = self._normal(f"{at}.bias", (shape[1 - input_axis],)) * np.float32(
            _BIAS_STD * std
        ) + np.float32(shift)
        if self._weights or depthwise or prod(shape) <= LARGE:
            filters = self._normal(weight, shape)
            if not depthwise and x.moments.mean != 0:
                filters -= filters.mean(axis=input_axis, keepdims=True)
            # Every filter gets exactly the wanted strength: a depthwise one has too few weights to leave that
            # to chance.
            filters *= np.float32(weight_std) / np.sqrt(
                np.mean(filters * filters, axis=others, keepdims=True)
            )
            biases -= np.float32(offset) * filters.sum(axis=others)
        else:
            filters = None
        self._parameter(weight, shape, weight_std, filters)
        stats = moments.weighted(x.moments, gain, live, offset)
        if not bias:
            return [x.name, weight], stats
        self._parameter(f"{at}.bias", biases.shape, float(biases.std()), biases)
        return [x.name, weight, f"{at}.bias"], moments.added(
            stats, Moments(shift, (_BIAS_STD * std) ** 2, 0.0)
        )

    def _normal(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """(`shape`) float32: standard normal values, seeded by the tensor's name.

        So a layer added does not change another's weights.
        """
        return np.random.default_rng([self._seed, zlib.crc32(name.encode())]).standard_normal(
            shape, dtype=np.float32
        )

    def _parameter(
        self, name: str, shape: tuple[int, ...], std: float, values: np.ndarray | None, mean: float = 0.0
    ) -> None:
        """Add a weight tensor.

        A large one of a network without weights has only its dims and statistics, as absent external data.
        """
        if values is not None and (self._weights or values.size <= LARGE):
            self.constant(name, values)
            return
        tensor = TensorProto(
            name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL
        )
        reach = _STATED_RANGE * float(std)
        stated = {"mean": mean, "std": float(std), "min": mean - reach, "max": mean + reach}
        for key, value in {
            "location": "__random__",
            **{key: repr(number) for key, number in stated.items()},
        }.items():
            tensor.external_data.add(key=key, value=value)
        self._constants[name] = tensor

    def _add_value(self, value: Value) -> Value:
        if value.name in self.values:
            raise ValueError(f"{self.name}: two tensors are named {value.name!r}")
        self.values[value.name] = value
        return value
