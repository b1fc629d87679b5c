"""YOLOv4: Bochkovskiy, Wang and Liao, "YOLOv4: Optimal speed and accuracy of object detection", 2020.

CSPDarknet53 with Mish (Wang et al., "CSPNet", CVPR Workshops 2020), spatial pyramid pooling, a path
aggregation network and the heads of YOLOv3. Boxes are not decoded: the outputs are the heads' maps, as the
detector's training code defines them. As exported it has 399 operators; table 5 of DNNFusion (PLDI 2021)
counts 398.
"""

from __future__ import annotations

from lfopt.zoo.builder import Net, Value

# CSPDarknet53 after its first convolution: channels, residual blocks; each stage halves height and width
STAGES = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))
POOLS = (13, 9, 5)  # kernels of the pyramid, in the order in which they are joined
BOXES, CLASSES = 3, 80  # anchors at each position; COCO

# Where values before an activation have zero mean, each layer makes an error larger by a sixth, and after
# seventy layers no two implementations agree on more than two digits. One standard deviation off zero, it is
# a twentieth.
SHIFTS = {"mish": 2.0, "leaky_relu": 1.0}


def yolov4(net: Net, image: Value) -> tuple[Value, ...]:
    """Image to three maps of 3 x (4 coordinates, objectness, 80 classes) at strides 8, 16 and 32."""
    fine, middle, coarse = _cspdarknet53(net, image)
    return _path_aggregation(net, fine, middle, _pyramid(net, "spp", coarse))


def _cspdarknet53(net: Net, image: Value) -> list[Value]:
    """Maps at strides 8, 16 and 32."""
    x = _conv(net, "stem", image, 32, 3, act="mish")
    maps = []
    for s, (channels, blocks) in enumerate(STAGES, start=1):
        x = _cross_stage(net, f"stage{s}", x, channels, blocks)
        maps.append(x)
    return maps[-3:]


def _cross_stage(net: Net, at: str, x: Value, channels: int, blocks: int) -> Value:
    """Cross-stage block: one half of the channels passes by the residual blocks.

    The first stage, which is narrow, gives each side all channels.
    """
    side = channels if blocks == 1 else channels // 2
    x = _conv(net, f"{at}.down", x, channels, 3, stride=2, act="mish")
    passed = _conv(net, f"{at}.pass", x, side, act="mish")
    y = _conv(net, f"{at}.enter", x, side, act="mish")
    for b in range(1, blocks + 1):
        z = _conv(net, f"{at}.block{b}.conv1", y, channels // 2, act="mish")
        z = _conv(net, f"{at}.block{b}.conv2", z, side, 3, act="mish")
        y = net.add(f"{at}.block{b}.add", y, z)
    y = _conv(net, f"{at}.leave", y, side, act="mish")
    return _conv(net, f"{at}.merge", net.concat(f"{at}.concat", [y, passed]), channels, act="mish")


def _pyramid(net: Net, at: str, x: Value) -> Value:
    """Spatial pyramid pooling: the same map with the largest values around each position."""
    x = _alternate(net, f"{at}.before", x, 512, 3)
    pooled = [net.max_pool(f"{at}.pool{kernel}", x, kernel, stride=1, pad=kernel // 2) for kernel in POOLS]
    return _alternate(net, f"{at}.after", net.concat(f"{at}.concat", [*pooled, x]), 512, 3)


def _path_aggregation(net: Net, fine: Value, middle: Value, coarse: Value) -> tuple[Value, ...]:
    """What coarse maps see goes down to the fine ones and back up; each level ends in a head."""
    down16 = _join_upsampled(net, "down16", coarse, middle, 256)
    level8 = _join_upsampled(net, "down8", down16, fine, 128)
    level16 = _join_strided(net, "up16", level8, down16, 256)
    level32 = _join_strided(net, "up32", level16, coarse, 512)
    return tuple(
        _head(net, at, x) for at, x in (("stride8", level8), ("stride16", level16), ("stride32", level32))
    )


def _join_upsampled(net: Net, at: str, coarse: Value, fine: Value, channels: int) -> Value:
    coarse = net.repeat(f"{at}.upsample", _conv(net, f"{at}.coarse", coarse, channels), 2)
    fine = _conv(net, f"{at}.lateral", fine, channels)
    return _alternate(net, at, net.concat(f"{at}.concat", [fine, coarse]), channels, 5)


def _join_strided(net: Net, at: str, fine: Value, coarse: Value, channels: int) -> Value:
    fine = _conv(net, f"{at}.downsample", fine, channels, 3, stride=2)
    return _alternate(net, at, net.concat(f"{at}.concat", [fine, coarse]), channels, 5)


def _head(net: Net, at: str, x: Value) -> Value:
    x = _conv(net, f"{at}.conv", x, 2 * x.shape[1], 3)
    return net.conv(f"{at}.boxes", x, BOXES * (4 + 1 + CLASSES))


def _alternate(net: Net, at: str, x: Value, channels: int, convs: int) -> Value:
    """1 x 1 to few channels and 3 x 3 to twice as many, in turn."""
    for c in range(1, convs + 1):
        x = _conv(net, f"{at}.conv{c}", x, channels if c % 2 else 2 * channels, 1 if c % 2 else 3)
    return x


def _conv(
    net: Net, at: str, x: Value, out: int, kernel: int = 1, *, stride: int = 1, act: str = "leaky_relu"
) -> Value:
    """Convolution and activation: Mish in the backbone, leaky ReLU in the neck and the heads."""
    return net.conv(at, x, out, kernel, stride=stride, act=act, shift=SHIFTS[act])
