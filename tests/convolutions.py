"""Small random networks of convolutions."""

from __future__ import annotations

import numpy as np

from lfopt.frontend import from_model
from lfopt.ir import Graph, Hardware
from lfopt.zoo.builder import Net
from tests.strategies import random_graph, random_hardware


def random_convolutions(rng: np.random.Generator, count: int) -> Graph:
    """Dense and depthwise convolutions, some with additions: tall enough for bands, large weights."""
    net = Net("convolutions", seed=0, weights=False)
    channels, size = int(rng.integers(4, 13)), int(rng.integers(8, 25))
    image = net.image((1, channels, size, size))
    x, same = image, [image]
    for k in range(count):
        if len(same) > 1 and rng.random() < 0.3:
            x = net.add(f"add{k}", x, same[int(rng.integers(len(same) - 1))])
        elif rng.random() < 0.3:
            x = net.conv(f"depthwise{k}", x, channels, 3, group=channels, act="relu")
        else:
            stride = 2 if size > 7 and rng.random() < 0.2 else 1
            before = channels, size
            channels, size = channels if rng.random() < 0.5 else int(rng.integers(4, 25)), -(-size // stride)
            x = net.conv(
                f"conv{k}",
                x,
                channels,
                int(rng.choice([1, 3])),
                stride=stride,
                act="relu" if rng.random() < 0.5 else None,
            )
            same = same if before == (channels, size) else []
        same.append(x)
    return from_model(net.model(image, x, doc=""))


def random_network(rng: np.random.Generator) -> tuple[Graph, Hardware]:
    """A small one, and a buffer that holds some of its groups, or none, or all."""
    graph = (
        random_convolutions(rng, int(rng.integers(3, 7)))
        if rng.random() < 0.5
        else random_graph(rng, int(rng.integers(3, 7)))
    )
    small = Hardware(int(rng.integers(300, 6000)), element_bytes=int(rng.choice([1, 2])))
    return graph, small if rng.random() < 0.5 else random_hardware(rng, graph)
