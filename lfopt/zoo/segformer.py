"""SegFormer-B0.

Source: Xie et al., "SegFormer: simple and efficient design for semantic segmentation with transformers",
NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from lfopt.zoo.attention import attention, layer_norm, to_map, to_sequence
from lfopt.zoo.builder import Net, Value

CLASSES = 150  # ADE20K
LAYERS = 2  # of each stage
DECODED = 256  # features of the decoder
STD = 0.5  # of what a layer adds


@dataclass(frozen=True, slots=True)
class EncoderStage:
    """Layers on one map."""

    width: int
    heads: int
    reduction: int  # in height and width, of the map that keys and values are made of
    kernel: int  # of the convolution that makes the map
    stride: int


STAGES = (
    EncoderStage(32, 1, 8, 7, 4),
    EncoderStage(64, 2, 4, 3, 2),
    EncoderStage(160, 5, 2, 3, 2),
    EncoderStage(256, 8, 1, 3, 2),
)


def segformer_b0(net: Net, image: Value) -> Value:
    """Image to one map of logits a class, a quarter of the image in height and width."""
    maps, x = [], image
    for number, stage in enumerate(STAGES, 1):
        x = _stage(net, f"stage{number}", x, stage)
        maps.append(x)
    _, _, height, width = maps[0].shape
    parts = [
        net.resize(f"decode{k}.resize", _decoded(net, f"decode{k}", x), height, width)
        for k, x in enumerate(maps, 1)
    ]
    x = net.conv("fuse", net.concat("concat", parts[::-1]), DECODED, act="relu")
    return net.conv("logits", x, CLASSES)


def _stage(net: Net, at: str, x: Value, stage: EncoderStage) -> Value:
    """A smaller map of overlapping patches, and layers on it."""
    x = net.conv(
        f"{at}.patches", x, stage.width, stage.kernel, stride=stage.stride, pads=(stage.kernel // 2,) * 4
    )
    n, c, h, w = x.shape
    x = layer_norm(net, f"{at}.patches.norm", to_sequence(net, f"{at}.patches", x))
    for layer in range(1, LAYERS + 1):
        x = _layer(net, f"{at}.layer{layer}", x, stage, h, w)
    x = net.reshape(f"{at}.map", layer_norm(net, f"{at}.norm", x), (n, h, w, c))
    return net.transpose(f"{at}.channels_first", x, (0, 3, 1, 2))


def _layer(net: Net, at: str, x: Value, stage: EncoderStage, h: int, w: int) -> Value:
    """Attention to a reduced map, then two fully connected layers; each is added to the trunk.

    Between the layers is a depthwise convolution.
    """
    x = net.add(
        f"{at}.add1", _attended(net, f"{at}.attention", layer_norm(net, f"{at}.norm1", x), stage, h, w), x
    )
    y = net.linear(f"{at}.mlp.expand", layer_norm(net, f"{at}.norm2", x), 4 * stage.width)
    y = net.conv(f"{at}.mlp.depthwise", to_map(net, f"{at}.mlp", y, h, w), y.shape[-1], 3, group=y.shape[-1])
    y = net.act(to_sequence(net, f"{at}.mlp.depthwise", y), "gelu_erf")
    return net.add(f"{at}.add2", net.linear(f"{at}.mlp.project", y, stage.width, std=STD), x)


def _attended(net: Net, at: str, x: Value, stage: EncoderStage, h: int, w: int) -> Value:
    """Keys and values of a map that a convolution without overlap has reduced."""

    def reduced() -> Value:
        y = to_map(net, f"{at}.reduce", x, h, w)
        y = net.conv(
            f"{at}.reduce", y, stage.width, stage.reduction, stride=stage.reduction, pads=(0, 0, 0, 0)
        )
        return layer_norm(net, f"{at}.reduce.norm", to_sequence(net, f"{at}.reduce", y))

    return attention(net, at, x, stage.heads, std=STD, keys=reduced if stage.reduction > 1 else None)


def _decoded(net: Net, at: str, x: Value) -> Value:
    """A map with the features of the decoder, by a fully connected layer."""
    _, _, h, w = x.shape
    return to_map(net, at, net.linear(at, to_sequence(net, at, x), DECODED), h, w)
