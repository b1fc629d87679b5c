"""The parts of a transformer as torch's exporter writes them.

LayerNormalization and Softmax are whole, attention is the operators around two matrix products. Values are n,
s, c: sequences, positions, features; inside attention n, heads, s, c / heads.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Literal

import numpy as np

from lfopt.zoo import moments
from lfopt.zoo.builder import Net, Value
from lfopt.zoo.moments import Moments

GAIN_STD = 0.1  # of the factors of a layer normalization, whose mean is 1
SHIFT_STD = 0.05  # of what it adds
SCORE_STD = 2.0  # of queries times keys: at 1, the mean of a thousand values would say little of the input

# what is multiplied: queries and keys by the square root of the scale, or queries by the scale
Scaled = Literal["both", "query"]


def layer_norm(net: Net, at: str, x: Value, epsilon: float = 1e-5) -> Value:
    """Ba, Kiros and Hinton, "Layer normalization", 2016: over the features of each position."""
    features = x.shape[-1:]
    operands = [
        x.name,
        net.weight(f"{at}.weight", features, GAIN_STD, mean=1.0),
        net.weight(f"{at}.bias", features, SHIFT_STD),
    ]
    stats = moments.multiplied(moments.normalized(x.moments), Moments(1.0, GAIN_STD**2, 0.0))
    shifted = moments.added(stats, Moments(0.0, SHIFT_STD**2, 0.0))
    return net.emit("LayerNormalization", at, operands, x.shape, shifted, axis=-1, epsilon=epsilon)


def learned(net: Net, at: str, x: Value, std: float) -> Value:
    """x plus a table of one row of features for each position."""
    table = net.weight(f"{at}.weight", x.shape, std)
    return net.emit("Add", at, [x.name, table], x.shape, moments.added(x.moments, Moments(0.0, std**2, 0.0)))


def mlp(net: Net, at: str, x: Value, hidden: int, act: str, std: float) -> Value:
    """Two fully connected layers at every position. std: of the output."""
    return net.linear(f"{at}.project", net.linear(f"{at}.expand", x, hidden, act=act), x.shape[-1], std=std)


def attention(
    net: Net,
    at: str,
    x: Value,
    heads: int,
    *,
    std: float,
    keys: Value | Callable[[], Value] | None = None,
    values: Value | None = None,
    scaled: Scaled = "both",
    key_bias: bool = True,
) -> Value:
    """Multi-head attention of x to another sequence: n, s, c to n, s, c.

    keys, values: what keys and values are computed from, or writes it after the queries; None is x, and for
    values what keys are. std: of the output. Source: Vaswani et al., "Attention is all you need", NeurIPS
    2017.
    """
    query = net.linear(f"{at}.query", x, x.shape[-1], std=SCORE_STD)
    if scaled == "query":
        query = _scaled(net, f"{at}.query.scaled", query, sqrt(heads / x.shape[-1]))
    query = heads_first(net, f"{at}.query", query, heads)
    keys = keys() if callable(keys) else keys or x
    key = heads_first(net, f"{at}.key", net.linear(f"{at}.key", keys, x.shape[-1], bias=key_bias), heads)
    value = heads_first(net, f"{at}.value", net.linear(f"{at}.value", values or keys, x.shape[-1]), heads)
    y = looked_up(net, at, query, key, value, scaled)
    return net.linear(f"{at}.project", y, x.shape[-1], std=std)


def heads_first(net: Net, at: str, x: Value, heads: int) -> Value:
    """Features as heads, each a sequence of its own: n, s, c to n, heads, s, c / heads."""
    n, s, c = x.shape
    return net.transpose(
        f"{at}.heads_first", net.reshape(f"{at}.heads", x, (n, s, heads, c // heads)), (0, 2, 1, 3)
    )


def looked_up(net: Net, at: str, query: Value, key: Value, value: Value, scaled: Scaled) -> Value:
    """Softmax of the products of queries and keys, times the values; heads side by side again: n, s, c.

    scaled: whether queries and keys are multiplied here; "query" says that queries have been.
    """
    n, heads, s, size = query.shape
    length = key.shape[2]
    key = net.reshape(f"{at}.key.sequences", key, (n * heads, length, size))
    key = net.reshape(
        f"{at}.key.columns", net.transpose(f"{at}.key.transposed", key, (0, 2, 1)), (n, heads, size, length)
    )
    if scaled == "both":
        query, key = (
            _scaled(net, f"{at}.{name}.scaled", x, size**-0.25)
            for name, x in (("query", query), ("key", key))
        )
    scores = net.emit(
        "MatMul",
        f"{at}.scores",
        [query.name, key.name],
        (n, heads, s, length),
        Moments(0.0, 0.0, SCORE_STD**2),
    )
    shares = net.emit(
        "Softmax",
        f"{at}.softmax",
        [scores.name],
        scores.shape,
        moments.attended(Moments(0.0, 0.0, 1 / length), (length,), SCORE_STD),
        axis=-1,
    )
    mixed = moments.attended(value.moments, (length,), SCORE_STD)
    y = net.emit("MatMul", f"{at}.context", [shares.name, value.name], query.shape, mixed)
    return net.reshape(
        f"{at}.joined", net.transpose(f"{at}.positions_first", y, (0, 2, 1, 3)), (n, s, heads * size)
    )


def to_sequence(net: Net, at: str, x: Value) -> Value:
    """The positions of a map one after the other, row by row: n, c, h, w to n, h * w, c."""
    n, c, h, w = x.shape
    return net.transpose(f"{at}.sequence", net.reshape(f"{at}.flat", x, (n, c, h * w)), (0, 2, 1))


def to_map(net: Net, at: str, x: Value, height: int, width: int) -> Value:
    """The positions of a sequence as a map: what `to_sequence` undoes."""
    n, _, c = x.shape
    return net.reshape(
        f"{at}.map", net.transpose(f"{at}.channels_first", x, (0, 2, 1)), (n, c, height, width)
    )


def _scaled(net: Net, at: str, x: Value, factor: float) -> Value:
    stats = moments.multiplied(x.moments, Moments(factor, 0.0, 0.0))
    return net.emit("Mul", at, [x.name, net.scalar(float(np.float32(factor)))], x.shape, stats)
