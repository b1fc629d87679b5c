"""Weights as kernels without groups, and products with the channels of pixels, take them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen.kernels.fused_kernel import FusedKernel
from codegen.layout import MapLayout


def without_groups(weights: np.ndarray, groups: int) -> np.ndarray:
    """(output channels, input channels, ...) weights of a grouped convolution as of one without groups.

    `weights`: (output channels, input channels of a group, ...). Zeros stand between groups.
    """
    outputs = weights.shape[0] // groups
    read = weights.shape[1]
    dense = np.zeros((len(weights), groups * read, *weights.shape[2:]), weights.dtype)
    for g in range(groups):
        dense[g * outputs : (g + 1) * outputs, g * read : (g + 1) * read] = weights[
            g * outputs : (g + 1) * outputs
        ]
    return dense


def on_rows(fused: FusedKernel) -> FusedKernel:
    """The fused kernel of a product with a constant matrix, with its operand as rows of pixels.

    See `in_order`.

    Raises Unsupported for operands that have no such order.
    """
    source = fused.operand(0)
    shape = fused.call.shape(0)
    behind = fused.layouts(source)
    written = fused.layouts(fused.result)
    if behind.shape == shape:
        if behind.order[-1] != len(shape) - 1 or not behind.has_order_of(written):
            raise fused.unsupported(
                f"axes in the orders {list(behind.order)} and {list(written.order)}",
                "one order, the last axis innermost",
            )
        return fused
    if behind.alias_strides or not behind.in_pixels or shape != (1, behind.tensor.elements):
        raise fused.unsupported(
            f"a view of {list(behind.shape)} as {list(shape)}",
            "views that keep pixels, or flatten all of them",
        )
    whole = MapLayout(replace(behind.tensor, shape=shape), (0, 1))
    layouts = fused.layouts
    return replace(fused, layouts=lambda m: whole if m == source else layouts(m))


def in_order(fused: FusedKernel, weights: np.ndarray) -> np.ndarray:
    """(columns, depth) weights, the depth in the order of the pixels of `on_rows`.

    `weights`: (columns, depth), as the operator has them. A map that is flattened lies in another order than
    its view.
    """
    behind = fused.layouts(fused.operand(0))
    if behind.shape == fused.call.shape(0):
        return weights
    return weights.reshape(-1, *behind.shape[1:]).transpose(0, 2, 3, 1).reshape(len(weights), -1)
