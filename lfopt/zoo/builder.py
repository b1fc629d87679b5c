"""Write a network down as a readable list of layers, and get an ONNX model with seeded, well-scaled weights."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lfopt.zoo import moments
from lfopt.zoo.moments import Moments

OPSET = 18
IR_VERSION = 10
LARGE = 256  # elements; a longer tensor loses its values when a network is built without weights

Pads = tuple[int, int, int, int]  # top, left, bottom, right

_BIAS_STD = 0.05  # of the standard deviation of the layer's output
_STATED_RANGE = 4.0  # standard deviations; what a tensor without values gives as its min and max
_PRELU_SLOPE = 0.25  # He et al., "Delving deep into rectifiers", ICCV 2015


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x / 6 + 0.5, 0, 1)


# Activation -> the function of one value. Which operators it becomes is said by `Net.act`.
_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "prelu": lambda x: np.where(x < 0, _PRELU_SLOPE * x, x),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda x: x * _hard_sigmoid(x),
}

# Wanted standard deviation before an activation; 1 before the others. SiLU and hard swish bend near zero, and there an error of the
# estimate grows from layer to layer; at 4, it shrinks. ReLU6 needs 3 to be cut off at 6 now and then.
_STD_BEFORE: dict[str | None, float] = {"relu6": 3.0, "silu": 4.0, "hard_swish": 4.0}


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the network: what a layer returns and the next one takes."""

    name: str  # also the name of the node that makes it
    shape: tuple[int, ...]  # n, c, h, w of a feature map; n, c of a vector
    moments: Moments  # expected mean and variance of its values
    latent: Moments | None = None  # of a residual trunk that is rectified after every sum: had it never been rectified

    @property
    def linear(self) -> Moments:
        """Moments before all ReLUs of the trunk.

        A trunk that is rectified after every sum ends with nearly the variance of one that is rectified once at the end (0.36 and 0.34 of
        the summed variances), but its values are too far from normal to be followed sum by sum.
        """
        return self.latent or self.moments


class Net:
    """The layers written so far. Each method appends one operator, or where it says so a few, and returns its output.

    `at` names the operator, its output and, with `.weight` and `.bias` after it, its weights: "stage2.block1.expand".

    >>> net = Net("tiny", seed=0, weights=True)
    >>> x = net.image((1, 3, 8, 8))
    >>> y = net.conv("stem", x, 16, 3, stride=2, act="relu")
    >>> y.name, y.shape
    ('stem.relu', (1, 16, 4, 4))
    >>> [node.name for node in net.model(x, y, "one layer").graph.node]
    ['stem', 'stem.relu']
    """

    def __init__(self, name: str, seed: int, weights: bool) -> None:
        self.name = name
        self.values: dict[str, Value] = {}
        self._seed = seed
        self._weights = weights  # False: large tensors are declared, not filled
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, TensorProto] = {}

    # Layers with weights

    def conv(
        self,
        at: str,
        x: Value,
        out: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        pads: Pads | None = None,
        group: int = 1,
        dilation: int = 1,
        act: str | None = None,
        std: float | None = None,
        shift: float = 0.0,
    ) -> Value:
        """Convolution, and the activation `act` after it.

        pads: None is as many on each side as keep the size at stride 1.
        std: wanted standard deviation of the output, before the activation; None is what suits the activation.
        shift: wanted mean of the output, before the activation.
        """
        n, channels, h, w = x.shape
        half = dilation * (kernel - 1) // 2
        top, left, bottom, right = pads or (half, half, half, half)
        reach = dilation * (kernel - 1) + 1
        p, q = (h + top + bottom - reach) // stride + 1, (w + left + right - reach) // stride + 1
        live = moments.live_taps(h, p, kernel, stride, dilation, top) * moments.live_taps(w, q, kernel, stride, dilation, left)
        inputs, stats = self._linear(at, x, (out, channels // group, kernel, kernel), act, std, live, shift)
        window = _window(kernel, stride, (top, left, bottom, right))
        y = self._emit("Conv", at, inputs, (n, out, p, q), stats, **window, dilations=[dilation] * 2, group=group)
        return self.act(y, act) if act else y

    def conv_transpose(self, at: str, x: Value, out: int, kernel: int, *, stride: int) -> Value:
        """Transposed convolution whose output is exactly `stride` times as large as its input."""
        n, channels, h, w = x.shape
        before, after = (kernel - stride + 1) // 2, (kernel - stride) // 2
        # Of the kernel's taps, one in stride * stride reaches a given output.
        inputs, stats = self._linear(at, x, (channels, out, kernel, kernel), None, None, stride**-2, input_axis=0)
        window = _window(kernel, stride, (before, before, after, after))
        return self._emit("ConvTranspose", at, inputs, (n, out, h * stride, w * stride), stats, **window)

    def dense(self, at: str, x: Value, out: int, *, act: str | None = None) -> Value:
        """Fully connected layer on a vector, and the activation `act` after it."""
        n, features = x.shape
        inputs, stats = self._linear(at, x, (out, features), act)
        y = self._emit("Gemm", at, inputs, (n, out), stats, alpha=1.0, beta=1.0, transB=1)
        return self.act(y, act) if act else y

    # Layers without weights

    def act(self, x: Value, kind: str) -> Value:
        """Activation: one operator, or two for "silu", which ONNX lacks at opset 18: x * sigmoid(x)."""
        if kind not in _FUNCTIONS:
            raise ValueError(f"{self.name}: activation {kind!r} after {x.name!r}; the zoo writes {', '.join(_FUNCTIONS)}")
        at, stats = f"{x.name}.{kind}", moments.activated(_FUNCTIONS[kind], x.linear)
        match kind:
            case "relu":
                return self._emit("Relu", at, [x.name], x.shape, stats, latent=x.linear)
            case "relu6":
                low, high = (self._constant(name, np.array(value, np.float32)) for name, value in (("zero", 0), ("six", 6)))
                return self._emit("Clip", at, [x.name, low, high], x.shape, stats)
            case "prelu":
                slope = self._constant(f"{at}.slope", np.full((x.shape[1], 1, 1), _PRELU_SLOPE, np.float32))
                return self._emit("PRelu", at, [x.name, slope], x.shape, stats)
            case "silu":
                return self._emit("Mul", at, [x.name, self.act(x, "sigmoid").name], x.shape, stats)
            case "hard_sigmoid":
                return self._emit("HardSigmoid", at, [x.name], x.shape, stats, alpha=1 / 6, beta=0.5)
            case _:
                operator = {"sigmoid": "Sigmoid", "hard_swish": "HardSwish"}[kind]
                return self._emit(operator, at, [x.name], x.shape, stats)

    def add(self, at: str, a: Value, b: Value) -> Value:
        """a + b, same shape."""
        stats, latent = moments.added(a.moments, b.moments), moments.added(a.linear, b.linear)
        return self._emit("Add", at, [a.name, b.name], a.shape, stats, latent=latent)

    def mul(self, at: str, a: Value, b: Value) -> Value:
        """a * b, where one may be 1 x 1 in height and width."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        return self._emit("Mul", at, [a.name, b.name], shape, moments.multiplied(a.moments, b.moments))

    def concat(self, at: str, parts: Sequence[Value]) -> Value:
        """The channels of all parts, one after the other."""
        n, _, h, w = parts[0].shape
        shape = (n, sum(x.shape[1] for x in parts), h, w)
        return self._emit("Concat", at, [x.name for x in parts], shape, moments.joined([(x.shape[1], x.moments) for x in parts]), axis=1)

    def max_pool(self, at: str, x: Value, kernel: int, *, stride: int, pad: int = 0, ceil_mode: bool = False) -> Value:
        """Largest value of a window; ceil_mode keeps a last window that does not lie wholly inside."""
        n, channels, h, w = x.shape
        extra = stride - 1 if ceil_mode else 0
        p, q = ((size + 2 * pad - kernel + extra) // stride + 1 for size in (h, w))
        stats, window = moments.largest(x.moments, kernel**2), _window(kernel, stride, (pad, pad, pad, pad))
        return self._emit("MaxPool", at, [x.name], (n, channels, p, q), stats, **window, ceil_mode=int(ceil_mode))

    def average_pool(self, at: str, x: Value, kernel: int, *, ceil_mode: bool = False) -> Value:
        """Mean of a window of 1 x 1, or of all positions where the kernel is larger than the map (then with ceil_mode)."""
        n, channels, h, w = x.shape
        (p, q), stats = ((h, w), x.moments) if kernel == 1 else ((1, 1), moments.averaged(x.moments, h * w))
        window = _window(kernel, kernel, (0, 0, 0, 0))
        return self._emit("AveragePool", at, [x.name], (n, channels, p, q), stats, **window, ceil_mode=int(ceil_mode), count_include_pad=1)

    def mean(self, at: str, x: Value) -> Value:
        """Mean over height and width, which stay as 1 x 1."""
        n, channels, h, w = x.shape
        axes = self._constant("height_and_width", np.array([-1, -2]))
        return self._emit("ReduceMean", at, [x.name, axes], (n, channels, 1, 1), moments.averaged(x.moments, h * w), keepdims=1)

    def flatten(self, at: str, x: Value) -> Value:
        """Reshape to a vector n, c."""
        shape = (x.shape[0], prod(x.shape[1:]))
        return self._emit("Reshape", at, [x.name, self._constant(f"{at}.shape", np.array(shape))], shape, x.moments)

    def resize(self, at: str, x: Value, height: int, width: int) -> Value:
        """Bilinear interpolation between pixel centres."""
        shape = (*x.shape[:2], height, width)
        inputs = [x.name, "", "", self._constant(f"{at}.sizes", np.array(shape))]
        return self._emit("Resize", at, inputs, shape, x.moments, mode="linear", coordinate_transformation_mode="half_pixel")

    def depth_to_space(self, at: str, x: Value, block: int) -> Value:
        """Each block * block channels become one channel that is `block` times as high and wide."""
        n, channels, h, w = x.shape
        return self._emit("DepthToSpace", at, [x.name], (n, channels // block**2, h * block, w * block), x.moments, blocksize=block)

    # The model

    def image(self, shape: tuple[int, ...]) -> Value:
        """The input of the network."""
        return self._add_value(Value("image", shape, moments.IMAGE))

    def model(self, image: Value, output: Value, doc: str) -> onnx.ModelProto:
        """All layers as an ONNX model; every intermediate tensor states its shape."""
        typed = {v.name: helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in self.values.values()}
        ends = [typed.pop(image.name)], [typed.pop(output.name)]
        graph = helper.make_graph(self._nodes, self.name, *ends, list(self._constants.values()), value_info=list(typed.values()))
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="lfopt.zoo", doc_string=doc)

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
    ) -> tuple[list[str], Moments]:
        """Inputs of a layer with weights of this shape and a bias, and the moments of its output; live: see `moments.weighted`.

        Activated channels share a mean. Were it not taken off, it would come back as an ever larger constant that hides the image; so
        filters sum to zero over the channels of each tap or, where there is only one channel, the bias takes the mean off as a folded
        BatchNorm does.
        """
        std = std or _STD_BEFORE.get(act, 1.0)
        depthwise = shape[input_axis] == 1
        offset = x.moments.mean if depthwise else 0.0
        others = tuple(axis for axis in range(len(shape)) if axis != 1 - input_axis)  # those that a filter sums over
        gain = std**2 / moments.weighted(x.moments, 1.0, live, offset).variance
        weight_std = np.sqrt(gain / prod(shape[axis] for axis in others))

        weight, bias = f"{at}.weight", f"{at}.bias"
        biases = self._normal(bias, (shape[1 - input_axis],)) * np.float32(_BIAS_STD * std) + np.float32(shift)
        if self._weights or depthwise or prod(shape) <= LARGE:
            filters = self._normal(weight, shape)
            if not depthwise and x.moments.mean != 0:
                filters -= filters.mean(axis=input_axis, keepdims=True)
            # Every filter gets exactly the wanted strength: a depthwise one has too few weights to leave that to chance.
            filters *= np.float32(weight_std) / np.sqrt(np.mean(filters * filters, axis=others, keepdims=True))
            biases -= np.float32(offset) * filters.sum(axis=others)
        else:
            filters = None
        self._parameter(weight, shape, weight_std, filters)
        self._parameter(bias, biases.shape, float(biases.std()), biases)
        stats = moments.weighted(x.moments, gain, live, offset)
        return [x.name, weight, bias], moments.added(stats, Moments(shift, (_BIAS_STD * std) ** 2, 0.0))

    def _normal(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal values, seeded by the tensor's name so that a layer added does not change another's weights."""
        return np.random.default_rng([self._seed, zlib.crc32(name.encode())]).standard_normal(shape, dtype=np.float32)

    def _parameter(self, name: str, shape: tuple[int, ...], std: float, values: np.ndarray | None) -> None:
        """Add a weight tensor; a large one of a network without weights only by its dims and statistics, as absent external data."""
        if values is not None and (self._weights or values.size <= LARGE):
            self._constant(name, values)
            return
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        stated = {"mean": 0.0, "std": float(std), "min": -_STATED_RANGE * float(std), "max": _STATED_RANGE * float(std)}
        for key, value in {"location": "__random__", **{key: repr(number) for key, number in stated.items()}}.items():
            tensor.external_data.add(key=key, value=value)
        self._constants[name] = tensor

    def _constant(self, name: str, values: np.ndarray) -> str:
        """Add a constant; one that is there already is shared."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(values, name)
        return name

    def _emit(
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
        self._nodes.append(helper.make_node(op, inputs, [at], name=at, **attributes))
        return self._add_value(Value(at, shape, stats, latent))

    def _add_value(self, value: Value) -> Value:
        if value.name in self.values:
            raise ValueError(f"{self.name}: two tensors are named {value.name!r}")
        self.values[value.name] = value
        return value


def _window(kernel: int, stride: int, pads: Pads) -> dict[str, Any]:
    """The attributes that convolutions and pools share."""
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": list(pads)}
