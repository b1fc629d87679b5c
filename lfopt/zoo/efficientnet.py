"""EfficientNet-B0 to B7.

Source: Tan and Le, "EfficientNet: Rethinking model scaling for convolutional neural networks", ICML 2019.
"""

from __future__ import annotations

from math import ceil

from lfopt.zoo.blocks import gate, late_pads, round_channels
from lfopt.zoo.builder import Net, Value

# variant: width, depth, input height and width in pixels (the authors' released coefficients)
SCALES = {
    "b0": (1.0, 1.0, 224),
    "b1": (1.0, 1.1, 240),
    "b2": (1.1, 1.2, 260),
    "b3": (1.2, 1.4, 300),
    "b4": (1.4, 1.8, 380),
    "b5": (1.6, 2.2, 456),
    "b6": (1.8, 2.6, 528),
    "b7": (2.0, 3.1, 600),
}

# Table 1 of the paper, stages 2 to 8, for width and depth 1
STAGES = (
    # expansion, kernel, stride, channels, blocks
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def efficientnet(net: Net, image: Value, variant: str) -> Value:
    """Image to 1000 logits."""
    width, depth, _ = SCALES[variant]
    x = net.conv("stem", image, round_channels(32 * width), 3, stride=2, pads=late_pads(3, 2), act="silu")
    for s, (expansion, kernel, stride, channels, blocks) in enumerate(STAGES, start=1):
        for b in range(ceil(blocks * depth)):
            x = _mbconv(
                net,
                f"stage{s}.block{b + 1}",
                x,
                round_channels(channels * width),
                expansion,
                kernel,
                stride if b == 0 else 1,
            )
    x = net.conv("head", x, round_channels(1280 * width), act="silu")
    # transformers gives its pool the channel count as kernel size; ceil_mode makes of it one mean over the
    # whole map.
    x = net.average_pool("pool", x, x.shape[1], ceil_mode=True)
    return net.dense("logits", net.flatten("flatten", x), 1000)


def _mbconv(net: Net, at: str, x: Value, channels: int, expansion: int, kernel: int, stride: int) -> Value:
    """Inverted bottleneck with squeeze-and-excite, which squeezes to a quarter of the input channels."""
    y, wide = x, x.shape[1] * expansion
    if expansion != 1:
        y = net.conv(f"{at}.expand", y, wide, act="silu")
    y = net.conv(
        f"{at}.depthwise",
        y,
        wide,
        kernel,
        stride=stride,
        pads=late_pads(kernel, stride),
        group=wide,
        act="silu",
    )
    y = net.mul(f"{at}.excite", y, gate(net, f"{at}.se", y, x.shape[1] // 4, "silu", "sigmoid"))
    y = net.conv(f"{at}.project", y, channels)
    return net.add(f"{at}.add", y, x) if y.shape == x.shape else y
