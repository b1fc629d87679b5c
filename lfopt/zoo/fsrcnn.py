"""FSRCNN(56, 12, 4) at scale 2, for super-resolution.

Source: Dong, Loy and Tang, "Accelerating the super-resolution convolutional neural network", ECCV 2016.

The last layer has two forms: the paper's transposed convolution, and one for accelerators without it, a
convolution to one channel for each of the 2 x 2 output phases and a shuffle. With a 9 x 9 kernel the second
has 26,072 weights, biases and slopes aside:

>>> 25 * 56 + 56 * 12 + 4 * 9 * 12 * 12 + 12 * 56 + 81 * 56 * 4
26072
"""

from __future__ import annotations

from lfopt.zoo.builder import Net, Value

FEATURES, SHRUNK, MAPPINGS, SCALE = 56, 12, 4, 2  # d, s, m and the upscaling factor of the paper


def fsrcnn(net: Net, image: Value) -> Value:
    """Luminance at low resolution to luminance at high resolution, by convolution and shuffle."""
    x = net.conv("phases", _features(net, image), SCALE**2, 9)
    return net.depth_to_space("upscaled", x, SCALE)


def fsrcnn_deconv(net: Net, image: Value) -> Value:
    """Luminance at low resolution to luminance at high resolution, as published."""
    return net.conv_transpose("upscaled", _features(net, image), 1, 9, stride=SCALE)


def _features(net: Net, image: Value) -> Value:
    x = net.conv("extract", image, FEATURES, 5, act="prelu")
    x = net.conv("shrink", x, SHRUNK, act="prelu")
    for m in range(1, MAPPINGS + 1):
        x = net.conv(f"map{m}", x, SHRUNK, 3, act="prelu")
    return net.conv("expand", x, FEATURES, act="prelu")
