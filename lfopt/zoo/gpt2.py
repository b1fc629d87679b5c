"""GPT-2: Radford et al., "Language models are unsupervised multitask learners", 2019, the smallest of four.

With the embedding as its last matrix, transposed, it has 124 M parameters (the 117 M of the paper are a
mistake, say its authors). Of a whole text, layer normalization, GELU and softmax are in pieces and shapes are
static, which makes 710 operators. DNNFusion (PLDI 2021, table 5) counts 2533 for its GPT-2 and does not say
which.
"""

from __future__ import annotations

import numpy as np

from lfopt.zoo import attention, moments
from lfopt.zoo.builder import Net, Value
from lfopt.zoo.moments import Moments
from lfopt.zoo.transformer import causal_attention, embedding, layer_norm, linear

LAYERS, WIDTH, HEADS = 12, 768, 12
VOCABULARY, POSITIONS = 50257, 1024


def gpt2(
    net: Net,
    tokens: Value,
    layers: int = LAYERS,
    width: int = WIDTH,
    heads: int = HEADS,
    vocabulary: int = VOCABULARY,
) -> Value:
    """Tokens, n, s, to the logits of the token after each, n, s, vocabulary."""
    x = _embedded(net, tokens, 0, width, vocabulary)
    for layer in range(1, layers + 1):
        x = _layer(net, f"layer{layer}", x, heads, std=(2 * layers) ** -0.5)
    return _logits(net, layer_norm(net, "norm", x), vocabulary)


def gpt2_step(net: Net, token: Value, cached: int) -> tuple[Value, ...]:
    """One token after `cached` others to the logits of the next, and its own keys and values by layer.

    Keys and values of the others are inputs. Layer normalization and softmax are whole: see
    `lfopt.zoo.attention`.
    """
    x, rows = _embedded(net, token, cached, WIDTH, VOCABULARY), []
    for layer in range(1, LAYERS + 1):
        x, *new_rows = _step(net, f"layer{layer}", x, cached, std=(2 * LAYERS) ** -0.5)
        rows += new_rows
    return _logits(net, attention.layer_norm(net, "norm", x), VOCABULARY), *rows


def _embedded(net: Net, tokens: Value, first: int, width: int, vocabulary: int) -> Value:
    """Words and their places, the first of which is given."""
    n, s = tokens.shape
    positions = net.constant("positions", np.arange(first, first + s)[None])
    # Logits have a standard deviation of one. Positions weigh half as much as words, as in the released code.
    std = width**-0.5
    words = embedding(net, "words", vocabulary, tokens.name, (n, s, width), std)
    places = embedding(net, "places", POSITIONS, positions, (1, s, width), std / 2)
    return net.add("embedded", words, places)


def _logits(net: Net, x: Value, vocabulary: int) -> Value:
    """Products with the words, as they are embedded."""
    n, s, width = x.shape
    table = net.emit(
        "Transpose",
        "words.transposed",
        ["words.weight"],
        (width, vocabulary),
        Moments(0.0, 1 / width, 0.0),
        perm=[1, 0],
    )
    logits = moments.weighted(x.moments, gain=1.0, live=1.0, offset=0.0)
    return net.emit("MatMul", "logits", [x.name, table.name], (n, s, vocabulary), logits)


def _layer(net: Net, at: str, x: Value, heads: int, std: float) -> Value:
    """Attention, then two fully connected layers, each on normalized values and added to the trunk.

    std: of what is added.
    """
    y = causal_attention(net, f"{at}.attention", layer_norm(net, f"{at}.norm1", x), heads, std)
    x = net.add(f"{at}.add1", y, x)
    y = net.act(linear(net, f"{at}.expand", layer_norm(net, f"{at}.norm2", x), 4 * x.shape[-1]), "gelu")
    return net.add(f"{at}.add2", x, linear(net, f"{at}.project", y, x.shape[-1], std=std))


def _step(net: Net, at: str, x: Value, cached: int, std: float) -> tuple[Value, Value, Value]:
    """(one token after a layer as `_layer`, its keys, its values); those of the tokens before are inputs."""
    n, _, c = x.shape
    y = linear(net, f"{at}.attention.qkv", attention.layer_norm(net, f"{at}.norm1", x), 3 * c)
    parts = net.split(f"{at}.attention.split", y, ("query", "key", "value"))
    names = ("query", "key", "value")
    query, *rows = (
        attention.heads_first(net, f"{at}.attention.{name}", part, HEADS)
        for name, part in zip(names, parts, strict=True)
    )
    seen = []
    for name, row in zip(names[1:], rows, strict=True):
        cache = net.state(f"{at}.{name}.cache", (n, HEADS, cached, c // HEADS), Moments(0.0, 0.0, 1.0))
        seen.append(net.concat(f"{at}.attention.{name}.seen", [cache, row], axis=2))
    y = linear(
        net,
        f"{at}.attention.project",
        attention.looked_up(net, f"{at}.attention", query, *seen, scaled="both"),
        c,
        std=std,
    )
    x = net.add(f"{at}.add1", y, x)
    y = net.act(linear(net, f"{at}.expand", attention.layer_norm(net, f"{at}.norm2", x), 4 * c), "gelu")
    return net.add(f"{at}.add2", x, linear(net, f"{at}.project", y, c, std=std)), rows[0], rows[1]
