"""GPT-2: Radford et al., "Language models are unsupervised multitask learners", 2019, the smallest of four.

With the embedding as its last matrix, transposed, it has 124 M parameters (the 117 M of the paper are a mistake, say its authors).
Layer normalization, GELU and softmax are in pieces and shapes are static, which makes 710 operators. DNNFusion (PLDI 2021, table 5) counts
2533 for its GPT-2 and does not say which.
"""

from __future__ import annotations

import numpy as np

from lfopt.zoo import moments
from lfopt.zoo.builder import Net, Value
from lfopt.zoo.moments import Moments
from lfopt.zoo.transformer import causal_attention, embedding, layer_norm, linear

LAYERS, WIDTH, HEADS = 12, 768, 12
VOCABULARY, POSITIONS = 50257, 1024


def gpt2(net: Net, tokens: Value, layers: int = LAYERS, width: int = WIDTH, heads: int = HEADS, vocabulary: int = VOCABULARY) -> Value:
    """Tokens to the logits of the token after each."""
    n, s = tokens.shape
    positions = net.constant("positions", np.arange(s)[None])
    # Logits have a standard deviation of one. Positions weigh half as much as words, as in the released code.
    std = width**-0.5
    words = embedding(net, "words", vocabulary, tokens.name, (n, s, width), std)
    places = embedding(net, "places", POSITIONS, positions, (1, s, width), std / 2)
    x = net.add("embedded", words, places)
    for layer in range(1, layers + 1):
        x = _layer(net, f"layer{layer}", x, heads, std=(2 * layers) ** -0.5)
    x = layer_norm(net, "norm", x)
    table = net.emit("Transpose", "words.transposed", ["words.weight"], (width, vocabulary), Moments(0.0, std**2, 0.0), perm=[1, 0])
    logits = moments.weighted(x.moments, gain=1.0, live=1.0, offset=0.0)
    return net.emit("MatMul", "logits", [x.name, table.name], (n, s, vocabulary), logits)


def _layer(net: Net, at: str, x: Value, heads: int, std: float) -> Value:
    """Attention, then two fully connected layers, each on normalized values and added to the trunk. std: of what is added."""
    y = causal_attention(net, f"{at}.attention", layer_norm(net, f"{at}.norm1", x), heads, std)
    x = net.add(f"{at}.add1", y, x)
    y = net.act(linear(net, f"{at}.expand", layer_norm(net, f"{at}.norm2", x), 4 * x.shape[-1]), "gelu")
    return net.add(f"{at}.add2", x, linear(net, f"{at}.project", y, x.shape[-1], std=std))
