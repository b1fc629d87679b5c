"""U-Net, a quarter as wide as published.

Source: Ronneberger, Fischer and Brox, "U-Net: Convolutional networks for biomedical image segmentation",
MICCAI 2015.

Convolutions are padded, as in most later use, so that maps keep their size and none is cropped where the two
sides meet.

The paper begins with 64 channels, which makes 31 M parameters. DNNFusion (PLDI 2021, table 6) reports 2.1 M
parameters and 15.0 GFLOPs for its U-Net, and neither width nor image size. 16 channels come nearest in
parameters, of the multiples of eight: 1.9 M. They need 6.1 GFLOPs at 256 x 256 and 13.7 at 384 x 384. The
graph has 49 operators where table 5 counts 292: theirs is another one, and figures side by side compare
networks of like size, not the same network.
"""

from __future__ import annotations

from lfopt.zoo.builder import Net, Value

LEVELS = 5  # of the paper: the map is halved four times
CLASSES = 2  # of the paper: cell and background


def unet(net: Net, image: Value, width: int = 16) -> Value:
    """Image to one map of logits a class, as large as the image.

    `width`: channels of the first level; each further one has twice as many.
    """
    x, skipped = image, []
    for level in range(1, LEVELS):
        skipped.append(_pair(net, f"down{level}", x, width << (level - 1)))
        x = net.max_pool(f"down{level}.pool", skipped[-1], 2, stride=2)
    x = _pair(net, "bottom", x, width << (LEVELS - 1))
    for level in range(LEVELS - 1, 0, -1):
        channels = width << (level - 1)
        y = net.conv_transpose(f"up{level}.upsample", x, channels, 2, stride=2)
        x = _pair(net, f"up{level}", net.concat(f"up{level}.concat", [skipped.pop(), y]), channels)
    return net.conv("logits", x, CLASSES)


def _pair(net: Net, at: str, x: Value, channels: int) -> Value:
    """Two 3 x 3 convolutions."""
    for c in (1, 2):
        x = net.conv(f"{at}.conv{c}", x, channels, 3, act="relu")
    return x
