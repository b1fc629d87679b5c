"""The encoder of Whisper-tiny.

Source: Radford et al., "Robust speech recognition via large-scale weak supervision", ICML 2023.
"""

from __future__ import annotations

import numpy as np

from lfopt.zoo.attention import attention, layer_norm, mlp
from lfopt.zoo.builder import Net, Value
from lfopt.zoo.transformer import embedding

LAYERS, WIDTH, HEADS = 4, 384, 6


def whisper_tiny_encoder(net: Net, sound: Value) -> Value:
    """Spectrogram, n, 80 bands, 3,000 times, to features at half as many times: n, 1,500, c."""
    x = net.conv("conv1", sound, WIDTH, 3, act="gelu_erf")
    x = net.conv("conv2", x, WIDTH, 3, stride=2, act="gelu_erf")
    x = net.transpose("times_first", x, (0, 2, 1))
    times = x.shape[1]
    x = net.add(
        "embedded",
        x,
        embedding(net, "positions", times, net.constant("times", np.arange(times)), (times, WIDTH), 0.5),
    )
    for layer in range(1, LAYERS + 1):
        x = _layer(net, f"layer{layer}", x, std=(2 * LAYERS) ** -0.5)
    return layer_norm(net, "norm", x)


def _layer(net: Net, at: str, x: Value, std: float) -> Value:
    """Attention, then two fully connected layers, each on normalized values and added to the trunk.

    Keys have no bias.
    """
    y = layer_norm(net, f"{at}.norm1", x)
    x = net.add(
        f"{at}.add1", x, attention(net, f"{at}.attention", y, HEADS, std=std, scaled="query", key_bias=False)
    )
    return net.add(
        f"{at}.add2", x, mlp(net, f"{at}.mlp", layer_norm(net, f"{at}.norm2", x), 4 * WIDTH, "gelu_erf", std)
    )
