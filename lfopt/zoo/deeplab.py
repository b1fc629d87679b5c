"""DeepLabV3 on MobileNet-V3-Large, at output stride 16.

Source: Chen et al., "Rethinking atrous convolution for semantic image segmentation", 2017.
"""

from __future__ import annotations

from lfopt.zoo.builder import Net, Value
from lfopt.zoo.mobilenet import V3_LARGE, v3_features

RATES = (12, 24, 36)  # dilations of the pyramid's 3 x 3 branches
CLASSES = 21  # Pascal VOC with background


def deeplabv3_mobilenet_v3_large(net: Net, image: Value) -> Value:
    """Image to one map of logits a class, as large as the image."""
    x = _pyramid(net, "aspp", v3_features(net, image, V3_LARGE, dilate_from=13))
    x = net.conv("classifier.conv", x, 256, 3, act="relu")
    x = net.conv("classifier.classes", x, CLASSES)
    return net.resize("logits", x, *image.shape[2:])


def _pyramid(net: Net, at: str, x: Value) -> Value:
    """Atrous spatial pyramid pooling: the same map seen at several dilations, and its mean."""
    branches = [net.conv(f"{at}.rate1", x, 256, act="relu")]
    branches += [net.conv(f"{at}.rate{rate}", x, 256, 3, dilation=rate, act="relu") for rate in RATES]
    pooled = net.conv(f"{at}.pool.conv", net.mean(f"{at}.pool", x), 256, act="relu")
    branches.append(net.resize(f"{at}.pool.resize", pooled, *x.shape[2:]))
    return net.conv(f"{at}.project", net.concat(f"{at}.concat", branches), 256, act="relu")
