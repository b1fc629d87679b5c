"""Networks drawn at random, to learn from and to test with: a stem, stages of cells of one family, a head.

    dense      every layer reads all before it: Huang et al., CVPR 2017
    branches   parallel paths, joined: Szegedy et al., CVPR 2015
    inverted   wide depthwise layers between narrow ones, gates: Sandler et al., CVPR 2018; Tan and Le, ICML
               2019
    residual   two layers or a bottleneck, groups: He et al., CVPR 2016; Xie et al., CVPR 2017
    graph      a few nodes, one of five operators between any two: Dong and Yang, ICLR 2020 (NAS-Bench-201)
    pyramid    down, up again, sums or concatenations across: Ronneberger et al., MICCAI 2015; Lin et al.,
               CVPR 2017
    attention  convolutions, then tokens: Dosovitskiy et al., ICLR 2021
    windows, encoder, diffusion
               tokens from the stem on: `lfopt.zoo.token_cells`

One seed is one network: widths, depths, kernels, activations and the size of the image are drawn with the
cells.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lfopt.zoo import token_cells
from lfopt.zoo.attention import attention, layer_norm, mlp, to_sequence
from lfopt.zoo.blocks import gate, round_channels
from lfopt.zoo.builder import Net, Outputs, Value
from lfopt.zoo.draws import CLASSES, Draws

PREFIX = "cells_"  # of names, before the family
SOURCE = "drawn, no paper"
IMAGES = (64, 96, 128, 160, 192, 224, 256, 320)  # pixels a side


# (net, name, map, channels out, stride, draws, activation) -> map
Cell = Callable[[Net, str, Value, int, int, Draws, str], Value]


def image_size(seed: int) -> int:
    """Pixels a side of the image that the network of this seed takes."""
    return Draws(np.random.default_rng((seed, 1))).one(IMAGES)


def network(net: Net, image: Value, family: str, seed: int) -> Outputs:
    """Image to logits; of `pyramid`, to one map or several."""
    draws = Draws(np.random.default_rng((seed, 0)))
    act = draws.one(("relu", "relu", "relu6", "hard_swish", "silu"))
    x = net.conv("stem", image, draws.one((16, 24, 32, 48, 64)), draws.one((3, 3, 5, 7)), stride=2, act=act)
    if draws.chance(0.3):
        x = net.max_pool("stem_pool", x, 3, stride=2, pad=1)
    if family == "pyramid":
        return _pyramid(net, x, draws, act)
    if family in OF_TOKENS:
        return OF_TOKENS[family](net, x, draws)
    stages = draws.upto(2, 4)
    for stage in range(1, stages + 1):
        x = _stage(net, f"stage{stage}", x, FAMILIES[family], draws, act)
    if family == "attention":
        return _tokens(net, x, draws)
    x = net.conv("head", x, draws.one((256, 512, 1024)), act=act) if draws.chance(0.5) else x
    return net.dense("logits", net.flatten("flatten", net.mean("pool", x)), draws.one(CLASSES))


def _stage(net: Net, at: str, x: Value, cell: Cell, draws: Draws, act: str) -> Value:
    """Cells of one width; the first may halve the map and widen it."""
    channels = round_channels(x.shape[1] * draws.one((1, 1.5, 2, 2)))
    stride = 2 if x.shape[2] >= 14 and draws.chance(0.8) else 1
    for k in range(1, draws.upto(1, 5) + 1):
        x = cell(net, f"{at}.cell{k}", x, channels, stride if k == 1 else 1, draws, act)
    return x


def _dense(net: Net, at: str, x: Value, channels: int, stride: int, draws: Draws, act: str) -> Value:
    growth, parts = draws.one((8, 12, 16, 32)), [x]
    narrow = draws.chance(0.5)
    for layer in range(1, draws.upto(2, 6) + 1):
        y = net.concat(f"{at}.join{layer}", parts) if len(parts) > 1 else x
        y = net.conv(f"{at}.narrow{layer}", y, 4 * growth, act=act) if narrow else y
        parts.append(net.conv(f"{at}.layer{layer}", y, growth, draws.one((3, 3, 5)), act=act))
    x = net.conv(f"{at}.transition", net.concat(f"{at}.join", parts), channels, act=act)
    return net.max_pool(f"{at}.pool", x, 2, stride=2) if stride == 2 else x


def _branches(net: Net, at: str, x: Value, channels: int, stride: int, draws: Draws, act: str) -> Value:
    count = draws.upto(2, 4)
    widths = [round_channels(channels / count)] * count
    ends: list[Value] = []
    for b, width in enumerate(widths, start=1):
        y, depth = x, draws.upto(0, 2)
        if depth or stride == 1:
            y = net.conv(
                f"{at}.branch{b}.reduce",
                y,
                round_channels(width * draws.one((0.5, 1))) if depth else width,
                act=act,
            )
        else:
            y = net.conv(
                f"{at}.branch{b}.project",
                net.max_pool(f"{at}.branch{b}.pool", y, 3, stride=2, pad=1),
                width,
                act=act,
            )
        for d in range(1, depth + 1):
            kernel, last = draws.one((3, 3, 5)), d == depth
            y = net.conv(f"{at}.branch{b}.conv{d}", y, width, kernel, stride=stride if last else 1, act=act)
        ends.append(y)
    y = net.concat(f"{at}.join", ends)
    return net.add(f"{at}.add", y, x) if y.shape == x.shape and draws.chance(0.5) else y


def _inverted(net: Net, at: str, x: Value, channels: int, stride: int, draws: Draws, act: str) -> Value:
    wide = round_channels(x.shape[1] * draws.one((1, 3, 4, 6)))
    y = net.conv(f"{at}.expand", x, wide, act=act) if wide > x.shape[1] else x
    y = net.conv(
        f"{at}.depthwise", y, y.shape[1], draws.one((3, 3, 5, 7)), stride=stride, group=y.shape[1], act=act
    )
    if draws.chance(0.3):
        y = net.mul(
            f"{at}.gate", y, gate(net, f"{at}.gate", y, round_channels(y.shape[1] / 4), act, "sigmoid")
        )
    y = net.conv(f"{at}.project", y, channels)
    return net.add(f"{at}.add", y, x) if y.shape == x.shape else y


def _residual(net: Net, at: str, x: Value, channels: int, stride: int, draws: Draws, act: str) -> Value:
    if draws.chance(0.5):
        y = net.conv(f"{at}.conv1", x, channels, 3, stride=stride, act=act)
        y = net.conv(f"{at}.conv2", y, channels, 3)
    else:
        inner = round_channels(channels / draws.one((2, 4)), 8)
        group = draws.one((1, 1, 2, 8))
        y = net.conv(f"{at}.reduce", x, inner, act=act)
        y = net.conv(f"{at}.conv", y, inner, draws.one((3, 3, 5)), stride=stride, group=group, act=act)
        y = net.conv(f"{at}.expand", y, channels)
    short = x if y.shape == x.shape else net.conv(f"{at}.short", x, channels, stride=stride)
    return net.act(net.add(f"{at}.add", y, short), act)


def _graph(net: Net, at: str, x: Value, channels: int, stride: int, draws: Draws, act: str) -> Value:
    nodes = [net.conv(f"{at}.enter", x, channels, 3 if stride == 2 else 1, stride=stride, act=act)]
    for node in range(1, draws.upto(3, 5)):
        ends = [
            end
            for k, y in enumerate(nodes)
            if (end := _edge(net, f"{at}.edge{k}_{node}", y, draws, act)) is not None
        ]
        total = ends[0] if ends else nodes[-1]
        for k, end in enumerate(ends[1:], start=1):
            total = net.add(f"{at}.sum{node}_{k}", total, end)
        nodes.append(total)
    return nodes[-1]


def _edge(net: Net, at: str, x: Value, draws: Draws, act: str) -> Value | None:
    """One of the five operators of NAS-Bench-201; None where nothing passes.

    An average of 3 x 3 is a pool of the largest here: the same rows.
    """
    kind = draws.one(("none", "skip", "conv1", "conv3", "pool"))
    if kind == "pool":
        return net.max_pool(at, x, 3, stride=1, pad=1)
    if kind in ("conv1", "conv3"):
        return net.conv(at, x, x.shape[1], int(kind[-1]), act=act)
    return x if kind == "skip" else None


def _pyramid(net: Net, x: Value, draws: Draws, act: str) -> Outputs:
    levels = [x]
    for level in range(1, draws.upto(2, 4) + 1):
        x = net.conv(
            f"down{level}", x, min(2 * x.shape[1], 256), 3, stride=2 if x.shape[2] % 2 == 0 else 1, act=act
        )
        for k in range(1, draws.upto(0, 2) + 1):
            x = net.conv(f"down{level}.conv{k}", x, x.shape[1], 3, act=act)
        levels.append(x)
    sums, ends, width = draws.chance(0.5), [levels[-1]], draws.one((32, 64, 128))
    for level in range(len(levels) - 2, -1, -1):
        across = net.conv(f"across{level}", levels[level], width, act=act) if sums else levels[level]
        x = net.conv(f"up{level}.narrow", ends[-1], width, act=act)
        if across.shape[2] != x.shape[2]:
            x = (
                net.repeat(f"up{level}", x, 2)
                if draws.chance(0.5)
                else net.resize(f"up{level}", x, *across.shape[2:])
            )
        x = net.add(f"up{level}.add", across, x) if sums else net.concat(f"up{level}.join", [across, x])
        ends.append(net.conv(f"up{level}.conv", x, width, 3, act=act))
    if draws.chance(0.5):
        return net.conv("logits", ends[-1], draws.one((2, 19, 21)))
    return tuple(net.conv(f"head{k}", end, draws.one((12, 24, 36)), 3) for k, end in enumerate(ends[1:]))


def _tokens(net: Net, x: Value, draws: Draws) -> Value:
    heads = draws.upto(1, 4)
    x = to_sequence(
        net,
        "patches",
        net.conv(
            "patches",
            x,
            heads * draws.one((16, 32, 64)),
            draws.one((1, 2)),
            stride=draws.one((1, 2)),
            pads=(0, 0, 0, 0),
        ),
    )
    for layer in range(1, draws.upto(1, 3) + 1):
        y = attention(
            net, f"layer{layer}.attention", layer_norm(net, f"layer{layer}.norm1", x), heads, std=0.5
        )
        x = net.add(f"layer{layer}.add1", y, x)
        y = mlp(
            net,
            f"layer{layer}.mlp",
            layer_norm(net, f"layer{layer}.norm2", x),
            draws.one((2, 4)) * x.shape[-1],
            "gelu_erf",
            0.5,
        )
        x = net.add(f"layer{layer}.add2", y, x)
    first = net.emit("Gather", "class", [x.name, net.index(0)], (x.shape[0], x.shape[-1]), x.moments, axis=1)
    return net.dense("logits", first, draws.one(CLASSES))


FAMILIES: dict[str, Cell] = {
    "dense": _dense,
    "branches": _branches,
    "inverted": _inverted,
    "residual": _residual,
    "graph": _graph,
    "pyramid": _residual,
    "attention": _inverted,
}
# families whose stem is followed by tokens: (net, map, draws) -> logits or a map
OF_TOKENS: dict[str, Callable[[Net, Value, Draws], Value]] = {
    "windows": token_cells.windows,
    "encoder": token_cells.encoder,
    "diffusion": token_cells.diffusion,
}
NAMES = tuple(PREFIX + family for family in (*FAMILIES, *OF_TOKENS))
