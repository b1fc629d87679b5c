"""SqueezeNet 1.0 and 1.1.

Source: Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters", 2016.
"""

from __future__ import annotations

from lfopt.zoo.builder import Net, Value

# version: channels and kernel of the first convolution; then each fire module by its squeezed channels (an
# expand branch has four times as many), or a pool. 1.0 is table 1 of the paper, 1.1 its authors' later
# release.
LAYERS = {
    "1.0": (96, 7, ("pool", 16, 16, 32, "pool", 32, 48, 48, 64, "pool", 64)),
    "1.1": (64, 3, ("pool", 16, 16, "pool", 32, 32, "pool", 48, 48, 64, 64)),
}


def squeezenet(net: Net, image: Value, version: str) -> Value:
    """Image to 1000 logits."""
    channels, kernel, layers = LAYERS[version]
    x = net.conv("conv1", image, channels, kernel, stride=2, pads=(0, 0, 0, 0), act="relu")
    for number, layer in enumerate(layers, start=1):
        x = (
            net.max_pool(f"pool{number}", x, 3, stride=2, ceil_mode=True)
            if layer == "pool"
            else _fire(net, f"fire{number}", x, int(layer))
        )
    # Activated, then averaged: a mean of many positions varies little, hence the larger values before it.
    x = net.conv("classifier", x, 1000, act="relu", std=8.0)
    return net.flatten("logits", net.mean("pool", x))


def _fire(net: Net, at: str, x: Value, squeezed: int) -> Value:
    """Squeeze to few channels, expand by a 1 x 1 and a 3 x 3 side by side."""
    x = net.conv(f"{at}.squeeze", x, squeezed, act="relu")
    narrow = net.conv(f"{at}.expand1x1", x, 4 * squeezed, act="relu")
    wide = net.conv(f"{at}.expand3x3", x, 4 * squeezed, 3, act="relu")
    return net.concat(f"{at}.concat", [narrow, wide])
