"""Networks around one attention, in the forms that exporters write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lfopt.frontend import from_model
from lfopt.ir import Graph

Mask = Literal["none", "causal", "window", "data", "map", "where", "per window"]
Scale = Literal["scores", "both", "none"]
MASKS: tuple[Mask, ...] = ("none", "causal", "window", "data", "map", "where")
SCALES: tuple[Scale, ...] = ("scores", "both", "none")


@dataclass(frozen=True)
class Form:
    """What is drawn of one attention."""

    heads: int = 2
    queries: int = 5
    keys: int = 7
    size: int = 3  # of queries and keys of a head
    width: int = 4  # of values of a head
    mask: Mask = "none"
    joined: bool = False  # queries, keys and values come from one map, by Split
    # heads are merged with the batch, in three axes, as torch's MultiheadAttention has it
    merged: bool = False
    shared: bool = False  # two heads share keys and values, by Expand
    guarded: bool = False  # rows without keys become 0
    cached: bool = False  # keys and values of earlier tokens come as inputs, by Concat
    first: bool = False  # heads come first, and nothing is laid out
    # windows, of a batch of two maps if even; mask "per window": each has one of its own, which is added
    # through a view, as Swin has it
    windows: int = 1
    scaled: Scale = "scores"


def random_attention(rng: np.random.Generator) -> Graph:
    """An attention in a form that is drawn."""
    queries, size = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    keys = int(rng.integers(2, 12))
    mask = MASKS[rng.integers(len(MASKS))]
    layout = rng.choice(["", "", "joined", "merged", "shared", "cached", "first"])
    if layout == "joined" or mask in ("causal", "window", "where"):
        keys = queries = max(queries, 2)
    form = Form(
        heads=2 * int(rng.integers(1, 3)),
        queries=queries,
        keys=keys,
        size=size,
        width=size if layout == "joined" else int(rng.integers(1, 5)),
        mask=mask,
        joined=layout == "joined",
        merged=layout == "merged",
        shared=layout == "shared",
        cached=layout == "cached",
        first=layout == "first",
        guarded=bool(rng.integers(2)),
        scaled=SCALES[rng.integers(len(SCALES))],
    )
    return attention(form, int(rng.integers(1 << 16)))


class _Net:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        results = [name] if outputs == 1 else [f"{name}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, name=name, **attributes))
        return name

    def constant(self, value: object) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def reshape(self, x: str, *shape: int) -> str:
        return self.add("Reshape", x, self.constant(np.array(shape, np.int64)))

    def input(self, name: str, *shape: int) -> str:
        self.inputs[name] = shape
        return name


def attention(form: Form, seed: int = 0) -> Graph:
    """An attention between maps [1, tokens, features], with an elementwise operator before and behind it."""
    rng, net = np.random.default_rng(seed), _Net()
    h, q, k, d, w, n = form.heads, form.queries, form.keys, form.size, form.width, form.windows
    tanh = net.add("Tanh", net.input("x", n, q, h * d))
    if form.joined:
        assert q == k and d == w, "one map"
        every = net.add("Tanh", net.input("all", 1, q, 3 * h * d))
        split = net.add("Split", every, outputs=3, axis=2, num_outputs=3)
        parts = [f"{split}_{part}" for part in range(3)]
    elif form.first:
        parts = [net.input("q", 1, h, q, d), net.input("k", 1, h, d, k), net.input("v", 1, h, k, w)]
    else:
        heads = h // 2 if form.shared else h
        parts = [tanh, net.input("k", n, k, heads * d), net.input("v", n, k, heads * w)]
    if form.first:
        laid = parts
    elif form.merged:
        laid = [
            net.add("Transpose", net.reshape(part, tokens, h, size), perm=order)
            for part, tokens, size, order in zip(
                parts, (q, k, k), (d, d, w), ((1, 0, 2), (1, 2, 0), (1, 0, 2)), strict=True
            )
        ]
    else:
        laid = []
        for part, tokens, size in zip(parts, (q, k, k), (d, d, w), strict=True):
            own = h // 2 if form.shared and laid else h
            laid.append(net.add("Transpose", net.reshape(part, n, tokens, own, size), perm=(0, 2, 1, 3)))
        if form.cached:
            old = [
                net.input(f"old {part}", 1, h // 2 if form.shared else h, 4, size)
                for part, size in (("keys", d), ("values", w))
            ]
            laid[1:] = [net.add("Concat", a, b, axis=2) for a, b in zip(old, laid[1:], strict=True)]
            k += 4
        if form.shared:
            for part, size in ((1, d), (2, w)):
                spread = net.add(
                    "Expand",
                    net.reshape(laid[part], 1, h // 2, 1, k, size),
                    net.constant(np.array([1, h // 2, 2, k, size], np.int64)),
                )
                laid[part] = net.reshape(spread, 1, h, k, size)
        laid[1] = net.add("Transpose", laid[1], perm=(0, 1, 3, 2))
    if form.scaled == "both":
        laid[:2] = [net.add("Mul", part, net.constant(np.float32(d**-0.25))) for part in laid[:2]]
    scores = net.add("MatMul", laid[0], laid[1])
    if form.scaled == "scores":
        scores = net.add("Div", scores, net.constant(np.float32(d**0.5)))
    scores = _masked(net, form, scores, q, k, rng)
    weights = net.add("Softmax", scores, axis=-1)
    if form.guarded:
        weights = net.add("Where", net.add("IsNaN", weights), net.constant(np.float32(0)), weights)
    y = net.add("MatMul", weights, laid[2])
    if form.merged:
        y = net.reshape(net.add("Transpose", y, perm=(1, 0, 2)), 1, q, h * w)
    elif not form.first:
        y = net.reshape(net.add("Transpose", y, perm=(0, 2, 1, 3)), n, q, h * w)
    y = net.add("Relu", y)
    graph = helper.make_graph(
        net.nodes,
        "attention",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in net.inputs.items()],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in ([y, tanh] if form.first or form.joined else [y])
        ],
        [numpy_helper.from_array(value, name) for name, value in net.constants.items()],
    )
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


def _masked(net: _Net, form: Form, scores: str, q: int, k: int, rng: np.random.Generator) -> str:
    stack = () if form.merged else (1, 1)
    late = np.arange(k) - np.arange(q)[:, None] > k - q
    if form.mask == "window":
        late |= np.arange(k) - np.arange(q)[:, None] < k - q - 2
    hidden = late.reshape(*stack, q, k)
    if form.mask in ("causal", "window"):
        return net.add("Add", scores, net.constant(np.where(hidden, np.float32(-3.4e38), np.float32(0))))
    if form.mask == "where":
        return net.add("Where", net.constant(~hidden), scores, net.constant(np.float32(-1e4)))
    if form.mask == "data":
        return net.add("Add", scores, net.constant(rng.standard_normal((*stack, q, k)).astype(np.float32)))
    if form.mask == "per window":
        biased = net.add(
            "Add", scores, net.constant(rng.standard_normal((1, form.heads, q, k)).astype(np.float32))
        )
        hidden = (-100 * rng.integers(0, 2, (1, form.windows // 2, 1, q, k))).astype(np.float32)
        masked = net.add(
            "Add", net.reshape(biased, 2, form.windows // 2, form.heads, q, k), net.constant(hidden)
        )
        return net.reshape(masked, form.windows, form.heads, q, k)
    if form.mask == "map":
        return net.add("Add", scores, net.input("mask", *stack, 1, k))
    return scores
