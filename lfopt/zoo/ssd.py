"""SSD on MobileNet V1, for images of 300 x 300 pixels.

Sources: Liu et al., "SSD: Single shot multibox detector", ECCV 2016; Howard et al., "MobileNets", 2017.

Six maps of a 300 x 300 image, from 19 x 19 to 1 x 1, each with a 3 x 3 convolution to classes and one to
boxes, as SSD has them; boxes are neither decoded nor suppressed. With six boxes a position and the 21 classes
of Pascal VOC it has the 9.5 M parameters and 3.0 GFLOPs that DNNFusion (PLDI 2021, table 6) reports.
"""

from __future__ import annotations

from lfopt.zoo.builder import Net, Value
from lfopt.zoo.mobilenet import v1_blocks

# blocks of MobileNet V1 whose output is a map of the detector; the first is the last at stride 16
SOURCES = (11, 13)
# channels of the 1 x 1 and of the strided 3 x 3 that make each further map
EXTRA = ((256, 512), (128, 256), (128, 256), (128, 256))
BOXES, CLASSES = 6, 21  # at each position; Pascal VOC with background
SHIFT = 1.5  # before each ReLU6; at zero, an error of the input comes out three hundred times as large


def mobilenet_v1_ssd(net: Net, image: Value) -> tuple[Value, ...]:
    """Image to 3000 rows of class logits and 3000 rows of box coordinates."""
    blocks = v1_blocks(net, image, late=False, shift=SHIFT)  # centred, for maps of odd size
    maps = [blocks[b - 1] for b in SOURCES]
    for e, (narrow, wide) in enumerate(EXTRA, start=1):
        x = net.conv(f"extra{e}.reduce", maps[-1], narrow, act="relu6", shift=SHIFT)
        maps.append(net.conv(f"extra{e}.conv", x, wide, 3, stride=2, act="relu6", shift=SHIFT))
    return _heads(net, "classes", maps, CLASSES), _heads(net, "boxes", maps, 4)


def _heads(net: Net, at: str, maps: list[Value], size: int) -> Value:
    """One row of `size` values for each box of each position of each map."""
    rows = []
    for m, x in enumerate(maps, start=1):
        y = net.conv(f"{at}.map{m}", x, BOXES * size, 3)
        y = net.transpose(f"{at}.map{m}.channels_last", y, (0, 2, 3, 1))
        n, h, w, _ = y.shape
        rows.append(net.reshape(f"{at}.map{m}.rows", y, (n, h * w * BOXES, size)))
    return net.concat(at, rows)
