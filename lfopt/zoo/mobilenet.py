"""MobileNet V1, V2 and V3 at width 1.

Sources: Howard et al. 2017; Sandler et al., CVPR 2018; Howard et al., ICCV 2019.
"""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.zoo.blocks import gate, late_pads, round_channels
from lfopt.zoo.builder import Net, Value

# V1, table 1: channels and stride of each depthwise-separable pair
V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))

# V2, table 2
V2 = (
    # expansion, channels, blocks, stride
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

# V3, tables 1 and 2
V3Row = tuple[int, int, int, bool, str, int]
V3_LARGE: tuple[V3Row, ...] = (
    # kernel, expanded, channels, squeeze-excite, activation, stride
    (3, 16, 16, False, "relu", 1),
    (3, 64, 24, False, "relu", 2),
    (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1),
    (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hard_swish", 2),
    (3, 200, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 480, 112, True, "hard_swish", 1),
    (3, 672, 112, True, "hard_swish", 1),
    (5, 672, 160, True, "hard_swish", 2),
    (5, 960, 160, True, "hard_swish", 1),
    (5, 960, 160, True, "hard_swish", 1),
)
V3_SMALL: tuple[V3Row, ...] = (
    # as above
    (3, 16, 16, True, "relu", 2),
    (3, 72, 24, False, "relu", 2),
    (3, 88, 24, False, "relu", 1),
    (5, 96, 40, True, "hard_swish", 2),
    (5, 240, 40, True, "hard_swish", 1),
    (5, 240, 40, True, "hard_swish", 1),
    (5, 120, 48, True, "hard_swish", 1),
    (5, 144, 48, True, "hard_swish", 1),
    (5, 288, 96, True, "hard_swish", 2),
    (5, 576, 96, True, "hard_swish", 1),
    (5, 576, 96, True, "hard_swish", 1),
)


def mobilenet_v1(net: Net, image: Value) -> Value:
    """Image to 1000 logits."""
    x = v1_blocks(net, image)[-1]
    return net.dense("logits", net.flatten("flatten", net.mean("pool", x)), 1000)


def v1_blocks(net: Net, image: Value, *, late: bool = True, shift: float = 0.0) -> list[Value]:
    """The outputs of V1's depthwise-separable pairs.

    late: strided windows start late (see `late_pads`); else they are centred. shift: wanted mean before each
    activation.
    """
    x, outputs = (
        net.conv(
            "stem", image, 32, 3, stride=2, pads=late_pads(3, 2) if late else None, act="relu6", shift=shift
        ),
        [],
    )
    for b, (channels, stride) in enumerate(V1, start=1):
        pads = late_pads(3, stride) if late else None
        x = net.conv(
            f"block{b}.depthwise",
            x,
            x.shape[1],
            3,
            stride=stride,
            pads=pads,
            group=x.shape[1],
            act="relu6",
            shift=shift,
        )
        x = net.conv(f"block{b}.pointwise", x, channels, act="relu6", shift=shift)
        outputs.append(x)
    return outputs


def mobilenet_v2(net: Net, image: Value) -> Value:
    """Image to 1000 logits."""
    x = net.conv("stem", image, 32, 3, stride=2, pads=late_pads(3, 2), act="relu6")
    for s, (expansion, channels, blocks, stride) in enumerate(V2, start=1):
        for b in range(blocks):
            x = _inverted_residual(
                net, f"stage{s}.block{b + 1}", x, channels, expansion, stride if b == 0 else 1
            )
    x = net.conv("head", x, 1280, act="relu6")
    return net.dense("logits", net.flatten("flatten", net.mean("pool", x)), 1000)


def _inverted_residual(net: Net, at: str, x: Value, channels: int, expansion: int, stride: int) -> Value:
    """V2's block: expand, depthwise, project without activation."""
    y, wide = x, x.shape[1] * expansion
    if expansion != 1:
        y = net.conv(f"{at}.expand", y, wide, act="relu6")
    y = net.conv(
        f"{at}.depthwise", y, wide, 3, stride=stride, pads=late_pads(3, stride), group=wide, act="relu6"
    )
    y = net.conv(f"{at}.project", y, channels)
    return net.add(f"{at}.add", x, y) if y.shape == x.shape else y


def mobilenet_v3_large(net: Net, image: Value) -> Value:
    """Image to 1000 logits."""
    return _v3_classifier(net, v3_features(net, image, V3_LARGE), 1280)


def mobilenet_v3_small(net: Net, image: Value) -> Value:
    """Image to 1000 logits."""
    return _v3_classifier(net, v3_features(net, image, V3_SMALL), 1024)


def v3_features(net: Net, image: Value, blocks: Sequence[V3Row], dilate_from: int | None = None) -> Value:
    """The convolutional part of V3.

    From block number `dilate_from` on, kernels are dilated by two and not strided.
    """
    x = net.conv("stem", image, 16, 3, stride=2, act="hard_swish")
    for b, (kernel, wide, channels, excite, act, stride) in enumerate(blocks, start=1):
        dilation = 2 if dilate_from is not None and b >= dilate_from else 1
        at, y = f"block{b}", x
        if wide != x.shape[1]:
            y = net.conv(f"{at}.expand", y, wide, act=act)
        y = net.conv(
            f"{at}.depthwise",
            y,
            wide,
            kernel,
            stride=stride if dilation == 1 else 1,
            group=wide,
            dilation=dilation,
            act=act,
        )
        if excite:
            y = net.mul(
                f"{at}.excite", gate(net, f"{at}.se", y, round_channels(wide // 4), "relu", "hard_sigmoid"), y
            )
        y = net.conv(f"{at}.project", y, channels)
        x = net.add(f"{at}.add", y, x) if y.shape == x.shape else y
    return net.conv("head", x, 6 * x.shape[1], act="hard_swish")


def _v3_classifier(net: Net, x: Value, hidden: int) -> Value:
    x = net.dense("hidden", net.flatten("flatten", net.mean("pool", x)), hidden, act="hard_swish")
    return net.dense("logits", x, 1000)
