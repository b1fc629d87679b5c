"""Networks of a few operators with views between them, at random, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lfopt.frontend import from_model
from lfopt.ir import Graph
from lfopt.planning import GroupCosts, up_to
from lfopt.rewrite import simplify
from tests.codegen.many import Case
from tests.codegen.random_networks import RUNS_HERE
from tests.qdq_models import run as by_runtime
from tests.random_plans import SCHEMES, planned, random_scheme
from tests.strategies import random_bands, random_hardware

OPSET = 17
TOLERANCE = 1e-4  # of the largest element of an output
LARGEST = (24, 16, 12, 8, 5, 4)  # extent of an axis, by rank
STEPS = (0.5, 0.25, 0.125, 0.0625)  # scales of quantised maps: powers of two, whose halves are exact


@dataclass
class _Network:
    """A model under construction: one map, from operator to operator."""

    rng: np.random.Generator
    quantised: bool
    shape: tuple[int, ...]
    prefix: str  # of all names
    name: str = ""
    by: tuple[str, str] = ("", "")
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[TensorProto] = field(default_factory=list[TensorProto])
    inputs: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    outputs: list[str] = field(default_factory=list[str])

    def upto(self, low: int, high: int) -> int:
        """A number from low to high."""
        return int(self.rng.integers(low, high + 1))

    def axis(self) -> int:
        """An axis of the map."""
        return self.upto(0, len(self.shape) - 1)

    def fixed(self, values: object, dtype: str = "int64") -> str:
        """The name of a constant."""
        name = f"{self.prefix}_c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        """The name of a constant map."""
        if not self.quantised:
            return self.fixed(self.rng.standard_normal(shape) / 4, "float32")
        name = self.fixed(self.rng.integers(-7, 8, shape), "int8")
        return self.node("DequantizeLinear", name, self.fixed(0.25, "float32"), self.fixed(0, "int8"))

    def given(self, *shape: int) -> str:
        """The name of another input."""
        name = f"{self.prefix}_x{len(self.inputs)}"
        if not self.quantised:
            self.inputs[name] = (self.rng.standard_normal(shape) * 2).astype(np.float32)
            return name
        self.inputs[name] = self.rng.integers(-40, 41, shape).astype(np.int8)
        return self.node("DequantizeLinear", name, *self.quantisation())

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """The name of an operator's first result."""
        position = len(self.nodes)
        names = [f"{self.prefix}_t{position}_{k}" for k in range(outputs)]
        self.nodes.append(
            helper.make_node(kind, inputs, names, name=f"{self.prefix} n{position}", **attributes)
        )
        return names[0]

    def quantisation(self) -> tuple[str, str]:
        """Names of a scale and a zero point, which the map has from here on."""
        self.by = self.fixed(self.rng.choice(STEPS), "float32"), self.fixed(self.upto(-3, 3), "int8")
        return self.by

    def in_steps(self, name: str, by: tuple[str, str]) -> str:
        """The map through QuantizeLinear and DequantizeLinear."""
        return self.node("DequantizeLinear", self.node("QuantizeLinear", name, *by), *by)

    def put(self, name: str, shape: Sequence[int], *, moves: bool = False) -> None:
        """Go on from a result. `moves`: whether it holds the operand's own elements."""
        self.name, self.shape = name, tuple(map(int, shape))
        if self.quantised:
            self.name = self.in_steps(name, self.by if moves else self.quantisation())


# -- operators: each goes on from what it makes of the map, and says whether it could ------------------------


def _unary(net: _Network) -> bool:
    net.put(net.node(str(net.rng.choice(["Relu", "Sigmoid", "Abs", "LeakyRelu"])), net.name), net.shape)
    return True


def _with_constant(net: _Network) -> bool:
    shape = [extent if net.rng.random() < 0.6 else 1 for extent in net.shape][
        net.upto(0, len(net.shape) - 1) :
    ]
    net.put(net.node(str(net.rng.choice(["Add", "Mul"])), net.name, net.weights(*shape)), net.shape)
    return True


def _with_map(net: _Network) -> bool:
    shape = [extent if net.rng.random() < 0.8 else 1 for extent in net.shape]
    net.put(net.node(str(net.rng.choice(["Add", "Sub", "Mul"])), net.name, net.given(*shape)), net.shape)
    return True


def _concat(net: _Network) -> bool:
    axis = net.axis()
    by = net.by
    other = [net.upto(1, 3) if k == axis else extent for k, extent in enumerate(net.shape)]
    names = [net.name, net.given(*other)]
    net.by = by
    turned = net.rng.random() < 0.5
    shape = [extent + (other[axis] if k == axis else 0) for k, extent in enumerate(net.shape)]
    net.put(net.node("Concat", *(reversed(names) if turned else names), axis=axis), shape)
    return True


def _transpose(net: _Network) -> bool:
    order = net.rng.permutation(len(net.shape)).tolist()
    net.put(net.node("Transpose", net.name, perm=order), [net.shape[k] for k in order], moves=True)
    return True


def _slice(net: _Network) -> bool:
    axis = net.axis()
    if net.shape[axis] < 2:
        return False
    first, step = net.upto(0, 1), net.upto(1, 2)
    parts = [net.fixed([value]) for value in (first, net.shape[axis], axis, step)]
    shape = [-(-(n - first) // step) if k == axis else n for k, n in enumerate(net.shape)]
    net.put(net.node("Slice", net.name, *parts), shape, moves=True)
    return True


def _split(net: _Network) -> bool:
    axis = net.axis()
    if net.shape[axis] < 2:
        return False
    first = net.upto(1, net.shape[axis] - 1)
    sizes = first, net.shape[axis] - first
    name = net.node("Split", net.name, net.fixed(sizes), outputs=2, axis=axis)
    kept = net.upto(0, 1)
    shape = [sizes[kept] if k == axis else n for k, n in enumerate(net.shape)]
    other = f"{name[:-1]}{1 - kept}"
    net.outputs.append(
        net.node("QuantizeLinear", other, *net.by) if net.quantised else net.node("Relu", other)
    )
    net.put(f"{name[:-1]}{kept}", shape, moves=True)
    return True


def _gather(net: _Network) -> bool:
    axis = net.axis()
    taken = net.rng.integers(0, net.shape[axis], net.upto(1, 3))
    shape = [len(taken) if k == axis else n for k, n in enumerate(net.shape)]
    net.put(net.node("Gather", net.name, net.fixed(taken), axis=axis), shape, moves=True)
    return True


def _pad(net: _Network) -> bool:
    amounts = [net.upto(0, 1) for _ in range(2 * len(net.shape))]
    rank = len(net.shape)
    shape = [n + amounts[k] + amounts[k + rank] for k, n in enumerate(net.shape)]
    if prod(shape) > 2000:
        return False
    net.put(net.node("Pad", net.name, net.fixed(amounts)), shape, moves=True)
    return True


def _reduce(net: _Network) -> bool:
    axes = sorted({net.axis() for _ in range(net.upto(1, 2))})
    kept = net.upto(0, 1)
    shape = [1 if k in axes else n for k, n in enumerate(net.shape) if kept or k not in axes]
    if not shape:
        return False
    kind = str(net.rng.choice(["ReduceMean", "ReduceMax"]))
    net.put(net.node(kind, net.name, axes=axes, keepdims=kept), shape)
    return True


def _softmax(net: _Network) -> bool:
    # of bytes, generated code has it along the last axis
    axis = len(net.shape) - 1 if net.quantised else net.axis()
    net.put(net.node("Softmax", net.name, axis=axis), net.shape)
    return True


def _normalise(net: _Network) -> bool:
    last = net.shape[-1]
    if last < 2 or net.quantised:
        return False
    name = net.node(
        "LayerNormalization", net.name, net.fixed(net.rng.uniform(0.5, 2, last), "float32"), net.weights(last)
    )
    net.put(name, net.shape)
    return True


def _product(net: _Network) -> bool:
    if len(net.shape) < 2:
        return False
    width = net.upto(1, 20)
    net.put(net.node("MatMul", net.name, net.weights(net.shape[-1], width)), [*net.shape[:-1], width])
    return True


def _product_of_maps(net: _Network) -> bool:
    if len(net.shape) < 3:
        return False
    width = net.upto(1, 6)
    other = net.given(*net.shape[:-2], net.shape[-1], width)
    net.put(net.node("MatMul", net.name, other), [*net.shape[:-1], width])
    return True


def _gemm(net: _Network) -> bool:
    if len(net.shape) != 2:
        return False
    width = net.upto(1, 20)
    net.put(net.node("Gemm", net.name, net.weights(net.shape[-1], width)), [net.shape[0], width])
    return True


def _convolution(net: _Network) -> bool:
    rank = len(net.shape)
    if not 3 <= rank <= 5:
        return False
    channels, size = net.upto(1, 9), net.upto(0, 1) * 2 + 1
    group = net.shape[1] if net.rng.random() < 0.3 else 1
    channels = net.shape[1] if group > 1 else channels
    weights = net.weights(channels, net.shape[1] // group, *[size] * (rank - 2))
    name = net.node("Conv", net.name, weights, pads=[size // 2] * 2 * (rank - 2), group=group)
    net.put(name, [net.shape[0], channels, *net.shape[2:]])
    return True


def _pool(net: _Network) -> bool:
    rank = len(net.shape)
    if not 3 <= rank <= 5:
        return False
    kind = str(net.rng.choice(["MaxPool", "AveragePool", "GlobalAveragePool"]))
    if kind == "GlobalAveragePool":
        net.put(net.node(kind, net.name), [*net.shape[:2], *[1] * (rank - 2)])
        return True
    name = net.node(kind, net.name, kernel_shape=[3] * (rank - 2), pads=[1] * 2 * (rank - 2))
    net.put(name, net.shape)
    return True


def _normalise_channels(net: _Network) -> bool:
    # of one value less its mean, ONNX Runtime gives its rounding errors, 316 times as large
    if len(net.shape) < 3 or net.quantised or prod(net.shape[2:]) == 1:
        return False
    channels = net.shape[1]
    scale = net.fixed(net.rng.uniform(0.5, 2, channels), "float32")
    net.put(net.node("InstanceNormalization", net.name, scale, net.weights(channels)), net.shape)
    return True


def _largest(net: _Network) -> bool:
    if net.quantised:
        return False
    net.put(
        net.node("Cast", net.node("ArgMax", net.name, axis=(axis := net.axis()), keepdims=1), to=1),
        [1 if k == axis else n for k, n in enumerate(net.shape)],
    )
    return True


def _tile(net: _Network) -> bool:
    axis = net.axis()
    shape = [2 * n if k == axis else n for k, n in enumerate(net.shape)]
    if prod(shape) > 2000:
        return False
    counts = [2 if k == axis else 1 for k in range(len(shape))]
    net.put(net.node("Tile", net.name, net.fixed(counts)), shape, moves=True)
    return True


def _depth_to_space(net: _Network) -> bool:
    if len(net.shape) != 4 or net.shape[1] % 4:
        return False
    n, c, h, w = net.shape
    net.put(net.node("DepthToSpace", net.name, blocksize=2), [n, c // 4, 2 * h, 2 * w], moves=True)
    return True


def _running_sum(net: _Network) -> bool:
    if net.quantised:
        return False
    net.put(net.node("CumSum", net.name, net.fixed(net.axis())), net.shape)
    return True


OPERATORS: tuple[Callable[[_Network], bool], ...] = (
    _unary, _with_constant, _with_map, _concat, _concat, _transpose, _slice, _split, _gather, _pad, _reduce,
    _softmax, _normalise, _product, _product, _product_of_maps, _gemm, _convolution, _convolution, _pool,
    _normalise_channels, _largest, _tile, _depth_to_space, _running_sum,
)  # fmt: skip


# -- views ---------------------------------------------------------------------------------------------------


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]


def _view(net: _Network) -> None:
    """Dimensions split, merged, added or left out."""
    kind = int(net.rng.integers(8))
    shape = list(net.shape)
    if kind == 0:
        axis = net.upto(0, len(shape))
        net.put(
            net.node("Flatten", net.name, axis=axis), (prod(shape[:axis]), prod(shape[axis:])), moves=True
        )
        return
    if kind == 1 and 1 in shape and len(shape) > 1:
        axis = shape.index(1)
        net.put(
            net.node("Squeeze", net.name, net.fixed([axis])), [*shape[:axis], *shape[axis + 1 :]], moves=True
        )
        return
    if kind == 2 and len(shape) < 6:
        axis = net.upto(0, len(shape))
        net.put(
            net.node("Unsqueeze", net.name, net.fixed([axis])), [*shape[:axis], 1, *shape[axis:]], moves=True
        )
        return
    for _ in range(net.upto(1, 3)):
        k = net.upto(0, len(shape) - 1)
        if net.rng.random() < 0.5 and len(shape) < 6:
            first = int(net.rng.choice(_divisors(shape[k])))
            shape[k : k + 1] = [first, shape[k] // first]
        elif k + 1 < len(shape):
            shape[k : k + 2] = [shape[k] * shape[k + 1]]
    if kind == 3:  # anything
        left, shape = prod(shape), list[int]()
        for _ in range(net.upto(0, 5)):
            shape.append(int(net.rng.choice(_divisors(left))))
            left //= shape[-1]
        shape.append(left)
    net.put(net.node("Reshape", net.name, net.fixed(shape)), shape, moves=True)


def _operator(net: _Network) -> None:
    """An operator that takes the map."""
    while not OPERATORS[int(net.rng.integers(len(OPERATORS)))](net):
        pass


@dataclass(frozen=True)
class ViewCase:
    """Networks with views side by side in one model, their inputs, and what ONNX Runtime makes of them."""

    quantised: bool
    graph: Graph
    inputs: dict[str, np.ndarray]
    wanted: dict[str, np.ndarray]  # by name; the name begins with the seed of its network

    def wrong(self, outputs: Sequence[np.ndarray]) -> list[str]:
        """Where outputs, in the graph's order, are not ONNX Runtime's: integers to the bit."""
        faults: list[str] = []
        for found, (name, wanted) in zip(outputs, self.wanted.items(), strict=True):
            if found.shape != wanted.shape:
                faults.append(f"{name}: shape {found.shape}, wanted {wanted.shape}")
                continue
            error = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max(initial=0)
            largest = np.abs(wanted.astype(np.float64)).max(initial=0)
            if not error <= (0 if self.quantised else TOLERANCE * max(largest, 1)):
                faults.append(
                    f"{name} {list(wanted.shape)}: differs by {error:.3g}, the largest is {largest:.3g}"
                )
        return faults


def _drawn(seed: int, *, quantised: bool) -> _Network:
    """Operator, view, operator, and at times more of both."""
    rng = np.random.default_rng((seed, 48))
    rank = int(rng.integers(1, 7))
    batch = int(rng.integers(1, 4 if rank > 1 else 25))
    shape = batch, *(int(rng.integers(1, LARGEST[rank - 1] + 1)) for _ in range(rank - 1))
    net = _Network(rng, quantised, shape, f"s{seed}")
    net.name = net.given(*shape)
    for k in range(net.upto(2, 4)):
        if k:
            _view(net)
        _operator(net)
    if net.rng.random() < 0.3:
        _view(net)
    net.outputs.append(net.node("QuantizeLinear", net.name, *net.by) if quantised else net.name)
    return net


def view_case(seeds: Sequence[int], *, quantised: bool) -> ViewCase:
    """The networks of these seeds, side by side."""
    nets = [_drawn(seed, quantised=quantised) for seed in seeds]
    inputs = {name: value for net in nets for name, value in net.inputs.items()}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    outputs = [*dict.fromkeys(name for net in nets for name in net.outputs)]
    graph = helper.make_graph(
        [node for net in nets for node in net.nodes],
        "net",
        infos,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [constant for net in nets for constant in net.constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    return ViewCase(quantised, simplify(from_model(model)), inputs, by_runtime(model, inputs))


def planned_case(number: int, case: ViewCase) -> Case:
    """A random plan of these networks, and how it is printed: number by number another."""
    rng = np.random.default_rng((number, 49))
    hardware = random_hardware(rng, case.graph, element_bytes=1 if case.quantised else 4)
    scheme = SCHEMES[number % len(SCHEMES)]
    costs = GroupCosts.of(case.graph, replace(hardware, channel_align=1), scheme=scheme)
    bands = (None, random_bands(rng), up_to(costs))[rng.integers(3)]
    plan = planned(costs, random_scheme(costs, number), bands)
    target = RUNS_HERE[number % len(RUNS_HERE)]
    return Case(number, case.graph, plan, target, int(rng.integers(1, 3)), 0, case.inputs)
