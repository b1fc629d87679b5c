"""Networks, and the same networks with an operator written as others: pairs that compute one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper
from onnx.inliner import inline_selected_functions

from lfopt.frontend import from_model
from lfopt.ir import Graph
from lfopt.rewrite.simplify import simplify

OPSET = 24
Shape = tuple[int, ...]


class Pair(NamedTuple):
    """Two spellings of one network."""

    kind: str
    whole: ModelProto
    parts: ModelProto

    def graphs(self, rules: str) -> tuple[Graph, Graph]:
        """Both as lfopt sees them after rewriting."""
        return simplify(from_model(self.whole), rules), simplify(from_model(self.parts), rules)


class Nodes:
    """A model being written, on one input; constants drawn under one name are the same in all spellings."""

    def __init__(self, shape: Shape, values: dict[str, np.ndarray], rng: np.random.Generator) -> None:
        self.shape, self.values, self.rng = shape, values, rng
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs = {"x": shape}

    def weight(self, name: str, *shape: int) -> str:
        """A constant of random numbers."""
        if name not in self.values:
            self.values[name] = self.rng.standard_normal(shape).astype(np.float32)
        return self.constant(self.values[name], name)

    def constant(self, value: np.ndarray | Sequence[int] | float, name: str = "") -> str:
        """A constant of these values."""
        name = name or f"k{len(self.constants)}"
        kind = np.float32 if isinstance(value, float) else None if isinstance(value, np.ndarray) else np.int64
        self.constants[name] = np.asarray(value, kind)
        return name

    def add(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        """Name of the result of a new operator; of several, their names."""
        names = [f"t{len(self.nodes)}_{k}" for k in range(results)]
        self.nodes.append(helper.make_node(kind, inputs, names, f"n{len(self.nodes)}", **attributes))
        return names[0] if results == 1 else names

    def model(self, *outputs: str) -> ModelProto:
        """The model with these outputs."""
        graph = helper.make_graph(
            self.nodes,
            "pair",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)


Write = Callable[[Nodes, str], str]


def _pair(rng: np.random.Generator, kind: str, shape: Shape, whole: Write, parts: Write) -> Pair:
    """Both spellings between the same neighbours, drawn at random."""
    values, before, after = dict[str, np.ndarray](), rng.random() < 0.5, rng.random() < 0.5
    models: list[ModelProto] = []
    for write in (whole, parts):
        net = Nodes(shape, values, rng)
        here = net.add("Sigmoid", "x") if before else "x"
        here = write(net, here)
        models.append(net.model(net.add("Relu", here) if after else here))
    return Pair(kind, *models)


def _size(rng: np.random.Generator, least: int = 1, most: int = 8) -> int:
    return int(rng.integers(least, most + 1))


# -- norms ---------------------------------------------------------------------------------------------------


def layer_norm(rng: np.random.Generator) -> Pair:
    """LayerNormalization as its parts."""
    d = _size(rng, 2, 16)
    biased = rng.random() < 0.7

    def whole(net: Nodes, x: str) -> str:
        bias = [net.weight("b", d)] if biased else []
        return net.add("LayerNormalization", x, net.weight("g", d), *bias, axis=-1)

    def parts(net: Nodes, x: str) -> str:
        y = net.add("Mul", _standardised(net, x, [-1]), net.weight("g", d))
        return net.add("Add", y, net.weight("b", d)) if biased else y

    return _pair(rng, "layer norm", (1, _size(rng), d), whole, parts)


def _standardised(net: Nodes, x: str, axes: Sequence[int], epsilon: float = 1e-5) -> str:
    mean = net.add("ReduceMean", x, net.constant(axes), keepdims=1)
    centred = net.add("Sub", x, mean)
    power = (
        net.add("Pow", centred, net.constant(2.0))
        if net.rng.random() < 0.5
        else net.add("Mul", centred, centred)
    )
    variance = net.add("ReduceMean", power, net.constant(axes), keepdims=1)
    return net.add("Div", centred, net.add("Sqrt", net.add("Add", variance, net.constant(epsilon))))


def rms_norm(rng: np.random.Generator) -> Pair:
    """RMSNormalization as its parts."""
    d = _size(rng, 2, 16)

    def whole(net: Nodes, x: str) -> str:
        return net.add("RMSNormalization", x, net.weight("g", d), axis=-1)

    def parts(net: Nodes, x: str) -> str:
        square = net.add("ReduceMean", net.add("Mul", x, x), net.constant([-1]), keepdims=1)
        root = net.add("Sqrt", net.add("Add", square, net.constant(1e-5)))
        return net.add("Mul", net.add("Div", x, root), net.weight("g", d))

    return _pair(rng, "RMS norm", (1, _size(rng), d), whole, parts)


def group_norm(rng: np.random.Generator) -> Pair:
    """GroupNormalization by InstanceNormalization of groups, with scale and shift behind it.

    Scales may be equal within a group, or of one value; of one of the spellings they are then smaller.
    """
    groups, each = _size(rng, 1, 4), _size(rng, 1, 4)
    c, h, w = groups * each, _size(rng), _size(rng)
    per_group = rng.random() < 0.4

    def vector(net: Nodes, name: str, *, expanded: bool) -> np.ndarray:
        net.weight(name, groups if per_group else c)
        del net.constants[name]
        value = net.values[name]
        return np.repeat(value, each) if per_group and expanded else value

    def whole(net: Nodes, x: str) -> str:
        scale, shift = (net.constant(vector(net, name, expanded=True)) for name in "gb")
        return net.add("GroupNormalization", x, scale, shift, num_groups=groups)

    def parts(net: Nodes, x: str) -> str:
        y = net.add("Reshape", x, net.constant([0, groups, -1]))
        ones, zeros = (net.constant(np.full(groups, value, np.float32)) for value in (1, 0))
        y = net.add("InstanceNormalization", y, ones, zeros)
        scale, shift = (vector(net, name, expanded=False) for name in "gb")
        if not per_group:
            y = net.add("Reshape", y, net.constant([1, c, h, w]))
        form = (1, groups, 1) if per_group else (c, 1, 1)
        y = net.add(
            "Add", net.add("Mul", y, net.constant(scale.reshape(form))), net.constant(shift.reshape(form))
        )
        return net.add("Reshape", y, net.constant([1, c, h, w])) if per_group else y

    return _pair(rng, "group norm", (1, c, h, w), whole, parts)


def instance_norm(rng: np.random.Generator) -> Pair:
    """InstanceNormalization as its parts."""
    c = _size(rng, 2)

    def whole(net: Nodes, x: str) -> str:
        return net.add("InstanceNormalization", x, net.weight("g", c), net.weight("b", c))

    def parts(net: Nodes, x: str) -> str:
        scale, shift = (net.constant(_vector(net, name, c).reshape(c, 1, 1)) for name in "gb")
        return net.add("Add", net.add("Mul", _standardised(net, x, [2, 3]), scale), shift)

    return _pair(rng, "instance norm", (1, c, _size(rng), _size(rng)), whole, parts)


def _vector(net: Nodes, name: str, size: int) -> np.ndarray:
    net.weight(name, size)
    del net.constants[name]
    return net.values[name]


def batch_norm(rng: np.random.Generator) -> Pair:
    """BatchNormalization as one scale and one shift per channel."""
    c = _size(rng, 2)

    def whole(net: Nodes, x: str) -> str:
        vectors = [net.constant(_vector(net, name, c)) for name in "gbm"]
        return net.add("BatchNormalization", x, *vectors, net.constant(_vector(net, "v", c) ** 2 + 1))

    def parts(net: Nodes, x: str) -> str:
        gain, shift, mean, spread = (_vector(net, name, c) for name in "gbmv")
        factor = gain / np.sqrt(spread**2 + 1 + np.float32(1e-5))
        y = net.add("Mul", x, net.constant(factor.reshape(c, 1, 1)))
        return net.add("Add", y, net.constant((shift - mean * factor).reshape(c, 1, 1)))

    return _pair(rng, "batch norm", (1, c, _size(rng), _size(rng)), whole, parts)


# -- activations ---------------------------------------------------------------------------------------------


def softmax(rng: np.random.Generator) -> Pair:
    """Softmax or LogSoftmax as maximum, exponential, sum and quotient."""
    log, axis = rng.random() < 0.3, int(rng.integers(1, 3))

    def whole(net: Nodes, x: str) -> str:
        return net.add("LogSoftmax" if log else "Softmax", x, axis=axis)

    def parts(net: Nodes, x: str) -> str:
        below = net.add("Sub", x, net.add("ReduceMax", x, net.constant([axis]), keepdims=1))
        power = net.add("Exp", below)
        total = net.add("ReduceSum", power, net.constant([axis]), keepdims=1)
        return net.add("Sub", below, net.add("Log", total)) if log else net.add("Div", power, total)

    return _pair(rng, "softmax", (1, _size(rng), _size(rng, 2)), whole, parts)


def gelu(rng: np.random.Generator) -> Pair:
    """Gelu by Erf or Tanh; constants may be as large as the map."""
    tanh, shape = rng.random() < 0.5, (1, _size(rng), _size(rng, 2))
    full = rng.random() < 0.3

    def number(net: Nodes, value: float) -> str:
        return net.constant(np.full(shape, value, np.float32)) if full else net.constant(float(value))

    def whole(net: Nodes, x: str) -> str:
        return net.add("Gelu", x, approximate="tanh" if tanh else "none")

    def parts(net: Nodes, x: str) -> str:
        if tanh:
            cube = net.add("Mul", x, net.add("Mul", x, x))
            inner = net.add("Add", x, net.add("Mul", cube, number(net, 0.044715)))
            curve = net.add("Tanh", net.add("Mul", inner, number(net, 0.7978845608)))
        else:
            curve = net.add("Erf", net.add("Div", x, number(net, 1.4142135624)))
        return net.add("Mul", net.add("Mul", x, number(net, 0.5)), net.add("Add", curve, number(net, 1.0)))

    return _pair(rng, "GELU", shape, whole, parts)


# -- contractions --------------------------------------------------------------------------------------------


def grouped_convolution(rng: np.random.Generator) -> Pair:
    """A grouped Conv as one Conv per group.

    Biases are as many per group as to be no parameters (single elements).
    """
    groups, deep, filters, kernel = (
        _size(rng, 2, 5),
        _size(rng, 1, 3),
        _size(rng, 1, 3),
        int(rng.choice([1, 3])),
    )
    stride, h, w = 1 if kernel == 1 else _size(rng, 1, 2), _size(rng, 3), _size(rng, 3)
    biased = filters > 1 and rng.random() < 0.5
    window: dict[str, Any] = {
        "kernel_shape": [kernel] * 2,
        "pads": [kernel // 2] * 4,
        "strides": [stride] * 2,
    }

    def whole(net: Nodes, x: str) -> str:
        weights = net.weight("w", groups * filters, deep, kernel, kernel)
        bias = [net.weight("b", groups * filters)] if biased else []
        return net.add("Conv", x, weights, *bias, group=groups, **window)

    def parts(net: Nodes, x: str) -> str:
        net.weight("w", groups * filters, deep, kernel, kernel)
        weights = np.split(net.values["w"], groups)
        del net.constants["w"]
        biases = np.split(_vector(net, "b", groups * filters), groups) if biased else ()
        results: list[str] = []
        for k, part in enumerate(net.add("Split", x, net.constant([deep] * groups), results=groups, axis=1)):
            bias = [net.constant(biases[k])] if biased else []
            results.append(net.add("Conv", part, net.constant(weights[k]), *bias, **window))
        return net.add("Concat", *results, axis=1)

    return _pair(rng, "grouped convolution", (1, groups * deep, h, w), whole, parts)


def batched_product(rng: np.random.Generator) -> Pair:
    """A stack of products by constants, or by one of them, as one product each."""
    batch, m, k, n = _size(rng, 2, 4), _size(rng), _size(rng, 1, 5), _size(rng, 1, 5)
    one = rng.random() < 0.3

    def whole(net: Nodes, x: str) -> str:
        return net.add("MatMul", x, net.weight("w", *(() if one else (batch,)), k, n))

    def parts(net: Nodes, x: str) -> str:
        net.weight("w", *(() if one else (batch,)), k, n)
        value = net.values["w"]
        del net.constants["w"]
        results: list[str] = []
        for b in range(batch):
            if net.rng.random() < 0.5:
                part = net.add("Gather", x, net.constant([b]), axis=0)
            else:
                part = net.add("Slice", x, *(net.constant([v]) for v in (b, b + 1, 0)))
            results.append(net.add("MatMul", part, net.constant(value if one else value[b])))
        return net.add("Concat", *results, axis=0)

    return _pair(rng, "batched product", (batch, m, k), whole, parts)


def turned_product(rng: np.random.Generator) -> Pair:
    """Two layers with one matrix, the second by its transpose: a Gemm that turns it, or a second constant."""
    rows, d, f = _size(rng), _size(rng, 2), _size(rng, 2)

    def whole(net: Nodes, x: str) -> str:
        y = net.add("MatMul", x, net.weight("w", d, f))
        return net.add("MatMul", y, net.constant(np.ascontiguousarray(net.values["w"].T)))

    def parts(net: Nodes, x: str) -> str:
        y = net.add("Gemm", x, net.weight("w", d, f))
        return net.add("Gemm", y, net.weight("w", d, f), transB=1)

    return _pair(rng, "tied weights", (rows, d), whole, parts)


def attention(rng: np.random.Generator) -> Pair:
    """Attention as products and Softmax; a mask may hide later keys, as a constant or as an attribute."""
    heads, rows, d = _size(rng, 1, 3), _size(rng, 2), _size(rng, 2, 6)
    masked, scale = rng.random() < 0.5, float(d) ** -0.5

    def whole(net: Nodes, x: str) -> str:
        return net.add(
            "Attention", x, _beside(net, "k"), _beside(net, "v"), is_causal=int(masked), scale=scale
        )

    def parts(net: Nodes, x: str) -> str:
        turned = net.add("Transpose", _beside(net, "k"), perm=[0, 1, 3, 2])
        scores = net.add("MatMul", net.add("Mul", x, net.constant(scale)), turned)
        if masked:
            mask = np.where(np.tri(rows, dtype=bool), 0, -np.inf).astype(np.float32)
            scores = net.add("Add", scores, net.constant(mask))
        return net.add("MatMul", net.add("Softmax", scores, axis=-1), _beside(net, "v"))

    def _beside(net: Nodes, name: str) -> str:
        net.inputs[name] = net.shape
        return name

    return _pair(rng, "attention", (1, heads, rows, d), whole, parts)


def picked_rows(rng: np.random.Generator) -> Pair:
    """Rows of a constant table by indices that are known, some of them more than once; or the rows."""
    classes, d, rows = _size(rng, 2), _size(rng, 2), _size(rng, 2, 12)
    indices = rng.integers(0, classes, rows)

    def whole(net: Nodes, x: str) -> str:
        table = net.weight("t", classes, d)
        net.inputs["i"] = (rows,)
        return net.add("Add", x, net.add("Gather", table, net.add("Cast", "i", to=TensorProto.INT64)))

    def parts(net: Nodes, x: str) -> str:
        table = net.weight("t", classes, d)
        net.inputs["i"] = (rows,)
        wide = net.add(
            "OneHot",
            net.add("Cast", "i", to=TensorProto.INT64),
            net.constant(classes),
            net.constant(np.array([0, 1], np.float32)),
        )
        return net.add("Add", x, net.add("MatMul", wide, table))

    del indices
    return _pair(rng, "rows of a table", (rows, d), whole, parts)


def parts_of_an_input(rng: np.random.Generator) -> Pair:
    """A strided window of one element, or a Slice of the map."""
    c, h, w, stride = _size(rng, 2), _size(rng, 3), _size(rng, 3), _size(rng, 2, 3)

    def whole(net: Nodes, x: str) -> str:
        return net.add("Conv", x, net.weight("w", 3, c, 1, 1), kernel_shape=[1, 1], strides=[stride, stride])

    def parts(net: Nodes, x: str) -> str:
        ends = ([0, 0], [h, w], [2, 3], [stride, stride])
        part = net.add("Slice", x, *(net.constant(end) for end in ends))
        return net.add("Conv", part, net.weight("w", 3, c, 1, 1), kernel_shape=[1, 1])

    return _pair(rng, "part of an input", (1, c, h, w), whole, parts)


# -- ONNX's own function bodies ------------------------------------------------------------------------------

UNARY = tuple(
    "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Shrink Softplus Softsign Swish "
    "ThresholdedRelu".split()
)
FOLDS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")


def function_body(rng: np.random.Generator) -> Pair:
    """An operator that ONNX defines by others, and its definition in its place."""
    kind = str(rng.choice([*UNARY, *FOLDS, *BODIES]))
    shape = (1, _size(rng, 2, 6), _size(rng, 1, 6), _size(rng, 2, 6))

    def whole(net: Nodes, x: str) -> str:
        if kind in FOLDS:
            return net.add(kind, x, net.constant([int(rng.integers(1, 4))]), keepdims=1)
        return net.add(kind, x, **_defaults(kind)) if kind in UNARY else BODIES[kind](net, x)

    one = _pair(rng, f"body of {kind}", shape, whole, whole)
    names = [("", name) for name in (*UNARY, *FOLDS, *BODIES)]
    return one._replace(kind="function body", parts=inlined(one.whole, names))


def _defaults(kind: str) -> dict[str, Any]:
    """Attributes of an operator with their defaults, which its definition refers to."""
    attributes = onnx.defs.get_schema(kind, OPSET).attributes.values()
    stated = {a.name: helper.get_attribute_value(a.default_value) for a in attributes if a.default_value.type}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in stated.items()}


def inlined(model: ModelProto, names: Sequence[tuple[str, str]]) -> ModelProto:
    """The model with ONNX's definitions in the place of these operators."""
    typed = onnx.shape_inference.infer_shapes(model)
    typed.graph.value_info.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in typed.graph.initializer
    )
    return inline_selected_functions(typed, list(names), exclude=False, inline_schema_functions=True)


BODIES: dict[str, Write] = {
    "Clip": lambda net, x: net.add("Clip", x, net.constant(-0.5), net.constant(0.5)),
    "PRelu": lambda net, x: net.add("PRelu", x, net.weight("s", net.shape[1], 1, 1)),
    "Softmax": lambda net, x: net.add("Softmax", x, axis=-1),
    "LogSoftmax": lambda net, x: net.add("LogSoftmax", x, axis=1),
    "LayerNormalization": lambda net, x: net.add(
        "LayerNormalization", x, net.weight("g", *net.shape[2:]), net.weight("b", *net.shape[2:]), axis=2
    ),
    "RMSNormalization": lambda net, x: net.add("RMSNormalization", x, net.weight("g", net.shape[3]), axis=-1),
    "GroupNormalization": lambda net, x: net.add(
        "GroupNormalization", x, net.weight("g", net.shape[1]), net.weight("b", net.shape[1]),
        num_groups=net.shape[1] if net.shape[1] % 2 else 2,
    ),
    "MeanVarianceNormalization": lambda net, x: net.add("MeanVarianceNormalization", x, axes=[0, 2, 3]),
    "GreaterOrEqual": lambda net, x: net.add(
        "Where", net.add("GreaterOrEqual", x, net.weight("c", *net.shape[2:])), x, net.constant(0.5)
    ),
}  # fmt: skip

KINDS: tuple[Callable[[np.random.Generator], Pair], ...] = (
    layer_norm, rms_norm, group_norm, instance_norm, batch_norm, softmax, gelu, grouped_convolution,
    batched_product, turned_product, attention, picked_rows, parts_of_an_input, function_body, function_body,
    function_body,
)  # fmt: skip
