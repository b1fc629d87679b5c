"""Vision transformers: B/16 and tiny.

Sources: Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021 (B/16); Touvron et al., "DeiT", ICML
2021 (tiny).
"""

from __future__ import annotations

from lfopt.zoo.attention import attention, layer_norm, learned, mlp, to_sequence
from lfopt.zoo.builder import Net, Value
from lfopt.zoo.moments import Moments

PATCH = 16  # pixels in height and width of what one token is made of
EPSILON = 1e-6  # of layer normalizations


def vit(net: Net, image: Value, width: int, heads: int, layers: int = 12) -> Value:
    """Image to 1000 logits, read off a token of its own."""
    patches = to_sequence(
        net, "patches", net.conv("patches", image, width, PATCH, stride=PATCH, pads=(0, 0, 0, 0))
    )
    token = Value(net.weight("class_token", (1, 1, width), 0.1), (1, 1, width), Moments(0.0, 0.01, 0.0))
    x = learned(net, "positions", net.concat("tokens", [token, patches]), std=0.1)
    for layer in range(1, layers + 1):
        x = _layer(net, f"layer{layer}", x, heads, std=(2 * layers) ** -0.5)
    x = layer_norm(net, "norm", x, EPSILON)
    first = net.emit("Gather", "class", [x.name, net.index(0)], (x.shape[0], width), x.moments, axis=1)
    return net.dense("logits", first, 1000)


def _layer(net: Net, at: str, x: Value, heads: int, std: float) -> Value:
    """Attention, then two fully connected layers, each on normalized values and added to the trunk.

    std: of what is added.
    """
    y = attention(net, f"{at}.attention", layer_norm(net, f"{at}.norm1", x, EPSILON), heads, std=std)
    x = net.add(f"{at}.add1", y, x)
    y = mlp(net, f"{at}.mlp", layer_norm(net, f"{at}.norm2", x, EPSILON), 4 * x.shape[-1], "gelu_erf", std)
    return net.add(f"{at}.add2", y, x)
