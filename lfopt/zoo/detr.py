"""DETR on ResNet-50, for one image without padding.

Source: Carion et al., "End-to-end object detection with transformers", ECCV 2020.
"""

from __future__ import annotations

import numpy as np

from lfopt.zoo.attention import attention, layer_norm, mlp, to_sequence
from lfopt.zoo.builder import Net, Value
from lfopt.zoo.moments import Moments
from lfopt.zoo.resnet import features

LAYERS, WIDTH, HEADS, HIDDEN = 6, 256, 8, 2048
QUERIES = 100
CLASSES = 92  # COCO's numbers, with gaps, and one for no object
STD = 1.0  # of what a layer adds


def detr(net: Net, image: Value) -> tuple[Value, Value]:
    """Image to logits of classes and boxes, as middle and size in parts of the image, of each query."""
    x = net.conv("input", features(net, image, 50), WIDTH)
    where = _positions(net, x)
    x = to_sequence(net, "input", x)
    for layer in range(1, LAYERS + 1):
        x = _encoded(net, f"encoder{layer}", x, where)
    placed = net.add("memory.placed", x, where)
    queries = Value(
        net.weight("queries", (1, QUERIES, WIDTH), 0.5), (1, QUERIES, WIDTH), Moments(0.0, 0.25, 0.0)
    )
    # They begin as zeros. Moments of one keep the first weights finite; the normalization after them makes
    # them true.
    y = Value(
        net.constant("zeros", np.zeros(queries.shape, np.float32)), queries.shape, Moments(0.0, 1.0, 0.0)
    )
    for layer in range(1, LAYERS + 1):
        y = _decoded(net, f"decoder{layer}", y, queries, x, placed)
    y = layer_norm(net, "norm", y)
    boxes = net.linear("boxes.hidden2", net.linear("boxes.hidden1", y, WIDTH, act="relu"), WIDTH, act="relu")
    return net.linear("classes", y, CLASSES), net.linear("boxes", boxes, 4, act="sigmoid")


def _encoded(net: Net, at: str, x: Value, where: Value) -> Value:
    """Attention, then two fully connected layers; the sum of each and its input is normalized."""
    placed = net.add(f"{at}.placed", x, where)
    y = attention(net, f"{at}.attention", placed, HEADS, std=STD, values=x, scaled="query")
    x = layer_norm(net, f"{at}.norm1", net.add(f"{at}.add1", x, y))
    y = mlp(net, f"{at}.mlp", x, HIDDEN, "relu", STD)
    return layer_norm(net, f"{at}.norm2", net.add(f"{at}.add2", x, y))


def _decoded(net: Net, at: str, x: Value, queries: Value, memory: Value, placed: Value) -> Value:
    """Attention among the queries, attention to the image, then two fully connected layers.

    The sum of each and its input is normalized.
    """
    asked = net.add(f"{at}.placed", x, queries)
    y = attention(net, f"{at}.attention", asked, HEADS, std=STD, values=x, scaled="query")
    x = layer_norm(net, f"{at}.norm1", net.add(f"{at}.add1", x, y))
    asked = net.add(f"{at}.cross.placed", x, queries)
    y = attention(net, f"{at}.cross", asked, HEADS, std=STD, keys=placed, values=memory, scaled="query")
    x = layer_norm(net, f"{at}.norm2", net.add(f"{at}.add2", x, y))
    y = mlp(net, f"{at}.mlp", x, HIDDEN, "relu", STD)
    return layer_norm(net, f"{at}.norm3", net.add(f"{at}.add3", x, y))


def _positions(net: Net, x: Value) -> Value:
    """(1, h * w, c): row and column of each position of a map, as sines and cosines of 64 wavelengths."""
    _, features, h, w = x.shape

    def waves(size: int) -> np.ndarray:
        angles = (
            2 * np.pi * np.arange(1, size + 1)[:, None] / size * 10_000.0 ** (-np.arange(0, 1, 4 / features))
        )
        return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(size, features // 2)

    table = np.concatenate([np.repeat(waves(h), w, axis=0), np.tile(waves(w), (h, 1))], axis=-1)[None].astype(
        np.float32
    )
    return Value(
        net.constant("positions", table), table.shape, Moments(float(table.mean()), float(table.var()), 0.0)
    )
