"""BERT-base without a pooler, on one sentence without padding, so that there is no mask.

Source: Devlin et al., "BERT: pre-training of deep bidirectional transformers for language understanding",
NAACL 2019.
"""

from __future__ import annotations

import numpy as np

from lfopt.zoo.attention import attention, layer_norm, mlp
from lfopt.zoo.builder import Net, Value
from lfopt.zoo.transformer import embedding

LAYERS, WIDTH, HEADS = 12, 768, 12
VOCABULARY, POSITIONS, SENTENCES = 30522, 512, 2
EPSILON = 1e-12  # of layer normalizations


def bert(net: Net, tokens: Value) -> Value:
    """Tokens, n, s, to the features of each, n, s, c."""
    n, s = tokens.shape
    first, positions = (
        net.constant("first_sentence", np.zeros((1, s), np.int64)),
        net.constant("positions", np.arange(s)[None]),
    )
    words = embedding(net, "words", VOCABULARY, tokens.name, (n, s, WIDTH), 1.0)
    sentences = embedding(net, "sentences", SENTENCES, first, (n, s, WIDTH), 0.25)
    x = net.add("sentences.add", words, sentences)
    x = net.add("embedded", x, embedding(net, "places", POSITIONS, positions, (n, s, WIDTH), 0.5))
    x = layer_norm(net, "norm", x, EPSILON)
    for layer in range(1, LAYERS + 1):
        x = _layer(net, f"layer{layer}", x)
    return x


def _layer(net: Net, at: str, x: Value) -> Value:
    """Attention, then two fully connected layers; the sum of each and its input is normalized."""
    y = attention(net, f"{at}.attention", x, HEADS, std=0.5)
    x = layer_norm(net, f"{at}.norm1", net.add(f"{at}.add1", y, x), EPSILON)
    y = mlp(net, f"{at}.mlp", x, 4 * WIDTH, "gelu_erf", std=0.5)
    return layer_norm(net, f"{at}.norm2", net.add(f"{at}.add2", y, x), EPSILON)
