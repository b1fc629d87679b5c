"""VGG-16.

Source: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR
2015, table 1, column D.
"""

from __future__ import annotations

from lfopt.zoo.builder import Net, Value

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, 3 x 3 convolutions before the pool


def vgg16(net: Net, image: Value) -> Value:
    """Image to 1000 logits."""
    x = image
    for s, (channels, convs) in enumerate(STAGES, start=1):
        for c in range(1, convs + 1):
            x = net.conv(f"stage{s}.conv{c}", x, channels, 3, act="relu")
        x = net.max_pool(f"stage{s}.pool", x, 2, stride=2)
    x = net.average_pool("pool", x, 1)  # the adaptive pool to 7 x 7, which a 224 x 224 image has already
    x = net.flatten("flatten", x)
    x = net.dense("hidden1", x, 4096, act="relu")
    x = net.dense("hidden2", x, 4096, act="relu")
    return net.dense("logits", x, 1000)
