"""ResNet-18 to 152, with the stride in the 3 x 3 convolution ("v1.5").

Source: He et al., "Deep residual learning for image recognition", CVPR 2016, table 1.
"""

from __future__ import annotations

from lfopt.zoo.builder import Net, Value

# depth: blocks of the four stages, and the three-layer bottleneck or the basic pair
STAGES = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}


def resnet(net: Net, image: Value, depth: int) -> Value:
    """Image to 1000 logits."""
    x = features(net, image, depth)
    return net.dense("logits", net.flatten("flatten", net.mean("pool", x)), 1000)


def features(net: Net, image: Value, depth: int) -> Value:
    """Image to a map a 32nd of it in height and width."""
    stages, bottleneck = STAGES[depth]
    x = net.conv("stem", image, 64, 7, stride=2, act="relu")
    x = net.max_pool("stem.pool", x, 3, stride=2, pad=1)
    for s, blocks in enumerate(stages):
        for b in range(blocks):
            x = _block(
                net, f"stage{s + 1}.block{b + 1}", x, 64 * 2**s, 2 if s > 0 and b == 0 else 1, bottleneck
            )
    return x


def _block(net: Net, at: str, x: Value, channels: int, stride: int, bottleneck: bool) -> Value:
    if bottleneck:
        y = net.conv(f"{at}.conv1", x, channels, act="relu")
        y = net.conv(f"{at}.conv2", y, channels, 3, stride=stride, act="relu")
        y = net.conv(f"{at}.conv3", y, 4 * channels)
    else:
        y = net.conv(f"{at}.conv1", x, channels, 3, stride=stride, act="relu")
        y = net.conv(f"{at}.conv2", y, channels, 3)
    shortcut = x if x.shape == y.shape else net.conv(f"{at}.shortcut", x, y.shape[1], stride=stride)
    return net.act(net.add(f"{at}.add", y, shortcut), "relu")
