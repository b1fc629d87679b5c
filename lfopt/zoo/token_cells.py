"""Networks of tokens drawn at random, to learn from and to test with; `lfopt.zoo.cells` lists them.

    windows    attention within windows that are shifted from layer to layer: Liu et al., ICCV 2021 (Swin)
    encoder    layers as language models have them: before or after norms, gates, rotated positions, shared
               layers. Vaswani et al., NeurIPS 2017; Su et al., Neurocomputing 2024 (RoPE); Lan et al., ICLR
               2020 (ALBERT); Touvron et al., 2023 (LLaMA)
    diffusion  convolutions with group normalization, attention between them: Ho, Jain and Abbeel, NeurIPS
               2020

Weights are of the size that suits normalized inputs; moments within a part are rough.
"""

from __future__ import annotations

from math import prod

import numpy as np

from lfopt.zoo import moments
from lfopt.zoo.attention import attention, layer_norm, learned, mlp, to_map, to_sequence
from lfopt.zoo.builder import Net, Value
from lfopt.zoo.draws import CLASSES, Draws
from lfopt.zoo.moments import Moments

STD = 0.5  # of what a layer adds to its input
NORMAL = Moments(0.0, 0.0, 1.0)


# -- windows -------------------------------------------------------------------------------------------------


def windows(net: Net, x: Value, draws: Draws) -> Value:
    """A map to logits: stages of layers on windows of it, merged two by two between stages."""
    heads = draws.upto(1, 3)
    channels = heads * draws.one((16, 32))
    patch = draws.one((1, 2))
    x = net.conv("patches", x, channels, patch, stride=patch, pads=(0, 0, 0, 0))
    x = net.transpose("patches.last", x, (0, 2, 3, 1))
    for stage in range(1, draws.upto(1, 3) + 1):
        window = draws.one([size for size in (4, 5, 7, 8) if size <= x.shape[1]] or [x.shape[1]])
        for layer in range(1, draws.upto(1, 3) + 1):
            at = f"stage{stage}.layer{layer}"
            shift = window // 2 if layer % 2 == 0 and window < x.shape[1] else 0
            y = _attending(net, at, layer_norm(net, f"{at}.norm1", x), heads, window, shift)
            x = net.add(f"{at}.add1", y, x)
            y = layer_norm(net, f"{at}.norm2", x)
            x = net.add(f"{at}.add2", mlp(net, f"{at}.mlp", y, 4 * x.shape[-1], "gelu_erf", STD), x)
        if x.shape[1] % 2 == 0 and x.shape[1] > 4:
            x, heads = _merged(net, f"stage{stage}.merge", x), 2 * heads
    mean = net.emit(
        "ReduceMean",
        "pool",
        [x.name, net.constant("positions", np.array([1, 2]))],
        (x.shape[0], x.shape[-1]),
        moments.averaged(x.moments, x.shape[1] * x.shape[2]),
        keepdims=0,
    )
    return net.dense("logits", mean, draws.one(CLASSES))


def _attending(net: Net, at: str, x: Value, heads: int, window: int, shift: int) -> Value:
    """Attention within windows of a map n, h, w, c, padded to whole windows and moved by `shift`."""
    n, height, width, channels = x.shape
    more = -height % window, -width % window
    if any(more):
        pads = net.constant(f"{at}.pads", np.array([0, 0, 0, 0, 0, *more, 0]))
        shape = (n, height + more[0], width + more[1], channels)
        x = net.emit("Pad", f"{at}.pad", [x.name, pads], shape, x.moments)
    if shift:
        x = _rolled(net, f"{at}.roll", x, shift)
    padded = x.shape
    down, across = padded[1] // window, padded[2] // window
    x = net.reshape(f"{at}.cut", x, (n, down, window, across, window, channels))
    x = net.transpose(f"{at}.windows", x, (0, 1, 3, 2, 4, 5))
    x = net.reshape(f"{at}.tokens", x, (n * down * across, window**2, channels))
    x = _with_table(net, at, x, heads)
    x = net.reshape(f"{at}.squares", x, (n, down, across, window, window, channels))
    x = net.transpose(f"{at}.rows", x, (0, 1, 3, 2, 4, 5))
    x = net.reshape(f"{at}.map", x, padded)
    if shift:
        x = _rolled(net, f"{at}.back", x, -shift)
    for axis, end in ((1, height), (2, width)):
        if x.shape[axis] != end:
            x = _cut(net, f"{at}.crop{axis}", x, axis, 0, end)
    return x


def _with_table(net: Net, at: str, x: Value, heads: int) -> Value:
    """Attention with queries, keys and values of one product, and a number added for each pair of tokens."""
    batch, tokens, channels = x.shape
    size = channels // heads
    parts = net.split(f"{at}.split", net.linear(f"{at}.qkv", x, 3 * channels), ("query", "key", "value"))
    orders = {"query": (0, 2, 1, 3), "key": (0, 2, 3, 1), "value": (0, 2, 1, 3)}
    query, key, value = (
        net.transpose(
            f"{at}.{name}.heads", net.reshape(f"{at}.{name}.parts", part, (batch, tokens, heads, size)), order
        )
        for (name, order), part in zip(orders.items(), parts, strict=True)
    )
    shape = (batch, heads, tokens, tokens)
    scores = net.emit("MatMul", f"{at}.scores", [query.name, key.name], shape, Moments(0.0, 0.0, float(size)))
    scores = net.emit("Mul", f"{at}.scaled", [scores.name, net.scalar(size**-0.5)], shape, NORMAL)
    table = net.weight(f"{at}.table", (1, heads, tokens, tokens), STD)
    scores = net.emit("Add", f"{at}.placed", [scores.name, table], shape, NORMAL)
    shares = net.emit(
        "Softmax", f"{at}.softmax", [scores.name], shape, Moments(1 / tokens, 0.0, 1 / tokens**2), axis=-1
    )
    mixed = moments.attended(value.moments, (tokens,))
    y = net.emit("MatMul", f"{at}.context", [shares.name, value.name], (batch, heads, tokens, size), mixed)
    y = net.reshape(f"{at}.joined", net.transpose(f"{at}.tokens_first", y, (0, 2, 1, 3)), x.shape)
    return net.linear(f"{at}.project", y, channels, std=STD)


def _rolled(net: Net, at: str, x: Value, shift: int) -> Value:
    """A map moved up and to the left by `shift`; what falls out comes in again."""
    for axis in (1, 2):
        count, first = x.shape[axis], shift % x.shape[axis]
        tail, head = (
            _cut(net, f"{at}{axis}.{name}", x, axis, *span)
            for name, span in (("tail", (first, count)), ("head", (0, first)))
        )
        x = net.concat(f"{at}{axis}", [tail, head], axis=axis)
    return x


def _cut(net: Net, at: str, x: Value, axis: int, first: int, stop: int, step: int = 1) -> Value:
    """Every `step`-th of some positions along an axis."""
    ends = [
        net.constant(f"{at}.{name}", np.array([value]))
        for name, value in (("first", first), ("stop", stop), ("axis", axis), ("step", step))
    ]
    shape = list(x.shape)
    shape[axis] = len(range(first, stop, step))
    return net.emit("Slice", at, [x.name, *ends], tuple(shape), x.moments)


def _merged(net: Net, at: str, x: Value) -> Value:
    """Squares of two by two positions side by side as channels, then half as many."""
    squares: list[Value] = []
    for column in (0, 1):
        for row in (0, 1):
            rows = _cut(net, f"{at}.rows{column}{row}", x, 1, row, x.shape[1], 2)
            squares.append(_cut(net, f"{at}.square{column}{row}", rows, 2, column, x.shape[2], 2))
    y = layer_norm(net, f"{at}.norm", net.concat(f"{at}.join", squares, axis=3))
    return net.linear(at, y, 2 * x.shape[-1], bias=False)


# -- layers of language models -------------------------------------------------------------------------------


def encoder(net: Net, x: Value, draws: Draws) -> Value:
    """A map to logits, its positions as tokens."""
    heads = draws.upto(1, 4)
    size = draws.one((16, 32, 64))
    patch = draws.one((1, 2, 4))
    x = net.conv("patches", x, heads * size, patch, stride=patch, pads=(0, 0, 0, 0))
    x = learned(net, "positions", to_sequence(net, "patches", x), STD)
    norm, norms_first = draws.one((layer_norm, rms_norm, _scaled_and_shifted)), draws.chance(0.6)
    rotates, gates, shares = draws.chance(0.4), draws.chance(0.4), draws.chance(0.2)
    layers = draws.upto(1, 4)
    hidden = draws.one((2, 3, 4)) * x.shape[-1]
    for layer in range(1, layers + 1):
        at = f"layer{layer}"
        weights = "layer" if shares else at
        y = norm(net, f"{at}.norm1", x) if norms_first else x
        y = _self_attention(net, at, weights, y, heads, rotates=rotates)
        x = net.add(f"{at}.add1", y, x)
        x = x if norms_first else norm(net, f"{at}.norm1", x)
        y = norm(net, f"{at}.norm2", x) if norms_first else x
        y = _feed(net, at, weights, y, hidden, gates=gates)
        x = net.add(f"{at}.add2", y, x)
        x = x if norms_first else norm(net, f"{at}.norm2", x)
    first = net.emit("Gather", "class", [x.name, net.index(0)], (x.shape[0], x.shape[-1]), x.moments, axis=1)
    return net.dense("logits", first, draws.one(CLASSES))


def rms_norm(net: Net, at: str, x: Value) -> Value:
    """Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019, in six operators."""
    column = (*x.shape[:-1], 1)
    square = net.emit("Pow", f"{at}.square", [x.name, net.scalar(2)], x.shape, Moments(1.0, 0.0, 2.0))
    last = net.constant("last_axis", np.array([-1]))
    y = net.emit("ReduceMean", f"{at}.mean", [square.name, last], column, Moments(1.0, 0.0, 0.1), keepdims=1)
    y = net.emit("Add", f"{at}.positive", [y.name, net.scalar(1e-5)], column, y.moments)
    y = net.emit("Sqrt", f"{at}.root", [y.name], column, y.moments)
    y = net.emit("Div", f"{at}.normal", [x.name, y.name], x.shape, moments.normalized(x.moments))
    gain = net.weight(f"{at}.weight", x.shape[-1:], 0.1, mean=1.0)
    return net.emit("Mul", at, [y.name, gain], x.shape, moments.normalized(x.moments))


def _scaled_and_shifted(net: Net, at: str, x: Value) -> Value:
    """Sun et al., "MobileBERT", ACL 2020: a factor and a number for each feature, and no norm."""
    gain = net.weight(f"{at}.weight", x.shape[-1:], 0.1, mean=0.7)
    y = net.emit("Mul", f"{at}.scale", [x.name, gain], x.shape, NORMAL)
    shift = net.weight(f"{at}.bias", x.shape[-1:], 0.05)
    return net.emit("Add", at, [y.name, shift], x.shape, NORMAL)


def _self_attention(net: Net, at: str, weights: str, x: Value, heads: int, *, rotates: bool) -> Value:
    """Attention of a sequence to itself; its constants are named after `weights`."""
    n, tokens, channels = x.shape
    size = channels // heads
    query, key, value = (
        net.transpose(
            f"{at}.{name}.heads",
            net.reshape(
                f"{at}.{name}.parts",
                _product(net, f"{at}.{name}", f"{weights}.{name}", x, channels),
                (n, tokens, heads, size),
            ),
            (0, 2, 1, 3),
        )
        for name in ("query", "key", "value")
    )
    if rotates:
        query, key = (_rotated(net, f"{at}.{name}", y) for name, y in (("query", query), ("key", key)))
    key = net.transpose(f"{at}.columns", key, (0, 1, 3, 2))
    shape = (n, heads, tokens, tokens)
    scores = net.emit("MatMul", f"{at}.scores", [query.name, key.name], shape, Moments(0.0, 0.0, float(size)))
    scores = net.emit("Mul", f"{at}.scaled", [scores.name, net.scalar(size**-0.5)], shape, NORMAL)
    shares = net.emit(
        "Softmax", f"{at}.softmax", [scores.name], shape, Moments(1 / tokens, 0.0, 1 / tokens**2), axis=-1
    )
    mixed = moments.attended(value.moments, (tokens,))
    y = net.emit("MatMul", f"{at}.context", [shares.name, value.name], value.shape, mixed)
    y = net.reshape(f"{at}.joined", net.transpose(f"{at}.tokens_first", y, (0, 2, 1, 3)), x.shape)
    return _product(net, f"{at}.project", f"{weights}.project", y, channels)


def _product(net: Net, at: str, weights: str, x: Value, out: int) -> Value:
    """Fully connected layer at every position, with constants that other layers may have too."""
    matrix = net.weight(f"{weights}.weight", (x.shape[-1], out), x.shape[-1] ** -0.5)
    bias = net.weight(f"{weights}.bias", (out,), 0.05)
    shape = (*x.shape[:-1], out)
    y = net.emit("MatMul", f"{at}.product", [x.name, matrix], shape, NORMAL)
    return net.emit("Add", at, [y.name, bias], shape, NORMAL)


def _rotated(net: Net, at: str, x: Value) -> Value:
    """Pairs of features turned by an angle that grows with the position: n, heads, tokens, features."""
    tokens, size = x.shape[2:]
    angles = np.arange(tokens)[:, None] / 1e4 ** (np.arange(size // 2) / (size // 2))[None]
    tables = {
        name: net.constant(f"rotation.{name}", np.tile(of(angles), 2).astype(np.float32))
        for name, of in (("cosine", np.cos), ("sine", np.sin))
    }
    half = size // 2
    low, high = (
        _cut(net, f"{at}.{name}", x, 3, *span) for name, span in (("low", (0, half)), ("high", (half, size)))
    )
    negative = net.emit("Neg", f"{at}.negative", [high.name], high.shape, high.moments)
    turned = net.concat(f"{at}.turned", [negative, low], axis=3)
    kept = net.emit("Mul", f"{at}.cosine", [x.name, tables["cosine"]], x.shape, x.moments)
    moved = net.emit("Mul", f"{at}.sine", [turned.name, tables["sine"]], x.shape, x.moments)
    return net.add(f"{at}.rotated", kept, moved)


def _feed(net: Net, at: str, weights: str, x: Value, hidden: int, *, gates: bool) -> Value:
    """Two fully connected layers, or three where one is a gate: Shazeer, "GLU variants", 2020."""
    y = net.act(
        _product(net, f"{at}.expand", f"{weights}.expand", x, hidden), "silu" if gates else "gelu_erf"
    )
    if gates:
        y = net.mul(f"{at}.gated", y, _product(net, f"{at}.gate", f"{weights}.gate", x, hidden))
    return _product(net, f"{at}.shrink", f"{weights}.shrink", y, x.shape[-1])


# -- convolutions and attention by turns ---------------------------------------------------------------------


def diffusion(net: Net, x: Value, draws: Draws) -> Value:
    """A map to a map: down, up again, with attention where the map is small."""
    groups = draws.one((1, 4, 8, 0))  # 0: as many as there are channels
    channels = 8 * draws.upto(2, 6)
    x = net.conv("first", x, channels, 3)
    across: list[Value] = []
    for level in range(1, draws.upto(1, 3) + 1):
        x = _block(net, f"down{level}", x, groups)
        if x.shape[2] * x.shape[3] <= 32 * 32:
            x = _tokens_of(net, f"down{level}", x, groups, draws.upto(1, 2))
        across.append(x)
        if x.shape[2] % 2 == 0:
            x = net.conv(f"half{level}", x, x.shape[1], 3, stride=2)
    for level, skip in reversed([*enumerate(across, start=1)]):
        if x.shape[2] != skip.shape[2]:
            x = net.repeat(f"double{level}", x, 2)
        x = net.conv(f"join{level}", net.concat(f"both{level}", [x, skip]), skip.shape[1])
        x = _block(net, f"up{level}", x, groups)
    return net.conv("noise", net.act(_norm(net, "last", x, groups), "silu"), 3, 3)


def _block(net: Net, at: str, x: Value, groups: int) -> Value:
    y = x
    for k in (1, 2):
        y = net.act(_norm(net, f"{at}.norm{k}", y, groups), "silu")
        y = net.conv(f"{at}.conv{k}", y, x.shape[1], 3, std=STD)
    return net.add(f"{at}.add", y, x)


def _tokens_of(net: Net, at: str, x: Value, groups: int, heads: int) -> Value:
    tokens = to_sequence(net, f"{at}.tokens", _norm(net, f"{at}.norm", x, groups))
    y = attention(net, f"{at}.attention", tokens, heads, std=STD, scaled="query")
    return net.add(f"{at}.attended", to_map(net, f"{at}.back", y, *x.shape[2:]), x)


def _norm(net: Net, at: str, x: Value, groups: int) -> Value:
    """Wu and He, "Group normalization", ECCV 2018; with a channel a group, instance normalization."""
    n, channels, height, width = x.shape
    if groups == 0:
        gain = net.weight(f"{at}.weight", (channels,), 0.1, mean=1.0)
        shift = net.weight(f"{at}.bias", (channels,), 0.05)
        operands = [x.name, gain, shift]
        return net.emit("InstanceNormalization", at, operands, x.shape, NORMAL, epsilon=1e-5)
    flat = net.reshape(f"{at}.groups", x, (n, groups, prod(x.shape[1:]) // groups))
    ones, zeros = (
        net.constant(f"{name}_of_{groups}", np.full(groups, value, np.float32))
        for name, value in (("ones", 1), ("zeros", 0))
    )
    operands = [flat.name, ones, zeros]
    y = net.emit("InstanceNormalization", f"{at}.normal", operands, flat.shape, NORMAL, epsilon=1e-5)
    y = net.reshape(f"{at}.channels", y, (n, channels, height, width))
    gain = net.weight(f"{at}.weight", (channels, 1, 1), 0.1, mean=1.0)
    y = net.emit("Mul", f"{at}.scale", [y.name, gain], x.shape, NORMAL)
    shift = net.weight(f"{at}.bias", (channels, 1, 1), 0.05)
    return net.emit("Add", at, [y.name, shift], x.shape, NORMAL)
