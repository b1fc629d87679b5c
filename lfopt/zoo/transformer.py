"""The parts of a transformer, in the small operators that exporters wrote before ONNX had larger ones.

Values are n, s, c: texts, positions, features. Moments of intermediate results within a part are rough; no
weight is scaled by them.
"""

from __future__ import annotations

import numpy as np

from lfopt.zoo import moments
from lfopt.zoo.builder import Net, Value
from lfopt.zoo.moments import Moments

EPSILON = 1e-5  # keeps a layer normalization from division by zero
MASKED = -1e4  # score of a position that must not be seen

_GAIN_STD = 0.1  # of the factors of a layer normalization, whose mean is 1
_SHIFT_STD = 0.05


def embedding(net: Net, at: str, rows: int, indices: str, shape: tuple[int, ...], std: float) -> Value:
    """One row of a table of `rows` for each index."""
    table = net.weight(f"{at}.weight", (rows, shape[-1]), std)
    return net.emit("Gather", at, [table, indices], shape, Moments(0.0, 0.0, std**2), axis=0)


def linear(net: Net, at: str, x: Value, out: int, *, std: float | None = None) -> Value:
    """Fully connected layer at every position: one matrix product on all of them, between two reshapes."""
    n, s, features = x.shape
    y = net.reshape(f"{at}.flat", x, (n * s, features))
    y = net.dense(at, y, out, std=std, input_first=True)
    return net.reshape(f"{at}.unflat", y, (n, s, out))


def layer_norm(net: Net, at: str, x: Value) -> Value:
    """Ba, Kiros and Hinton, "Layer normalization", 2016, in nine operators."""
    column, features = (*x.shape[:-1], 1), x.shape[-1]
    last, variance = _last_axis(net), x.moments.variance
    mean = net.emit(
        "ReduceMean",
        f"{at}.mean",
        [x.name, last],
        column,
        Moments(x.moments.mean, 0.0, variance / features),
        keepdims=1,
    )
    centred = net.emit(
        "Sub", f"{at}.centre", [x.name, mean.name], x.shape, Moments(0.0, x.moments.static, x.moments.varying)
    )
    square = net.emit(
        "Pow", f"{at}.square", [centred.name, net.scalar(2)], x.shape, Moments(variance, 0.0, 2 * variance**2)
    )
    y = net.emit(
        "ReduceMean",
        f"{at}.variance",
        [square.name, last],
        column,
        Moments(variance, 0.0, 2 * variance**2 / features),
        keepdims=1,
    )
    y = net.emit("Add", f"{at}.positive", [y.name, net.scalar(EPSILON)], column, y.moments)
    y = net.emit(
        "Sqrt", f"{at}.deviation", [y.name], column, Moments(variance**0.5, 0.0, variance / (2 * features))
    )
    y = net.emit("Div", f"{at}.normal", [centred.name, y.name], x.shape, moments.normalized(x.moments))
    gain = net.weight(f"{at}.weight", (features,), _GAIN_STD, mean=1.0)
    y = net.emit(
        "Mul",
        f"{at}.scale",
        [y.name, gain],
        x.shape,
        moments.multiplied(y.moments, Moments(1.0, _GAIN_STD**2, 0.0)),
    )
    shift = net.weight(f"{at}.bias", (features,), _SHIFT_STD)
    return net.emit(
        "Add", at, [y.name, shift], x.shape, moments.added(y.moments, Moments(0.0, _SHIFT_STD**2, 0.0))
    )


def softmax(net: Net, at: str, x: Value) -> Value:
    """Softmax over the last axis, in the five operators by which ONNX defines it."""
    row, share, last = (*x.shape[:-1], 1), 1 / x.shape[-1], _last_axis(net)
    largest = net.emit("ReduceMax", f"{at}.largest", [x.name, last], row, Moments(2.0, 0.0, 0.5), keepdims=1)
    y = net.emit("Sub", f"{at}.below", [x.name, largest.name], x.shape, x.moments)
    powers = net.emit("Exp", f"{at}.exp", [y.name], x.shape, Moments(0.1, 0.0, 0.05))
    total = net.emit(
        "ReduceSum",
        f"{at}.sum",
        [powers.name, last],
        row,
        Moments(0.1 / share, 0.0, (0.1 / share) ** 2),
        keepdims=1,
    )
    return net.emit("Div", at, [powers.name, total.name], x.shape, Moments(share, 0.0, (2 * share) ** 2))


def causal_attention(net: Net, at: str, x: Value, heads: int, std: float) -> Value:
    """Multi-head attention of each position to itself and those before it: n, s, c to n, s, c.

    Source: Vaswani et al., "Attention is all you need", NeurIPS 2017.
    """
    n, s, c = x.shape
    size = c // heads
    parts = net.split(f"{at}.split", linear(net, f"{at}.qkv", x, 3 * c), ("query", "key", "value"))
    orders = {"query": (0, 2, 1, 3), "key": (0, 2, 3, 1), "value": (0, 2, 1, 3)}
    query, key, value = (
        net.transpose(f"{at}.{name}", net.reshape(f"{at}.{name}.heads", part, (n, s, heads, size)), order)
        for (name, order), part in zip(orders.items(), parts, strict=True)
    )
    scores = net.emit(
        "MatMul", f"{at}.scores", [query.name, key.name], (n, heads, s, s), Moments(0.0, 0.0, float(size))
    )
    scores = net.emit(
        "Div", f"{at}.scaled", [scores.name, net.scalar(size**0.5)], scores.shape, Moments(0.0, 0.0, 1.0)
    )
    seen = net.constant("causal_mask", np.tril(np.ones((1, 1, s, s), bool)))
    hidden = (s - 1) / (2 * s)  # fraction of the scores
    masked = Moments(MASKED * hidden, MASKED**2 * hidden * (1 - hidden), 1 - hidden)
    scores = net.emit("Where", f"{at}.masked", [seen, scores.name, net.scalar(MASKED)], scores.shape, masked)
    shares = softmax(net, f"{at}.softmax", scores)
    y = net.emit(
        "MatMul",
        f"{at}.context",
        [shares.name, value.name],
        value.shape,
        moments.attended(value.moments, range(1, s + 1)),
    )
    y = net.reshape(f"{at}.joined", net.transpose(f"{at}.positions_first", y, (0, 2, 1, 3)), (n, s, c))
    return linear(net, f"{at}.project", y, c, std=std)


def _last_axis(net: Net) -> str:
    return net.constant("last_axis", np.array([-1]))
