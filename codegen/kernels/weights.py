"""Weights in the form in which kernels without groups, and products with the channels of pixels, take them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen.kernels.unit import Unit
from codegen.layout import Layout


def without_groups(weights: np.ndarray, groups: int) -> np.ndarray:
    """Weights of a convolution in groups, (output channels, input channels of a group, ...), as those of one without: zeros between groups."""
    made, read = weights.shape[0] // groups, weights.shape[1]
    dense = np.zeros((len(weights), groups * read, *weights.shape[2:]), weights.dtype)
    for g in range(groups):
        dense[g * made : (g + 1) * made, g * read : (g + 1) * read] = weights[g * made : (g + 1) * made]
    return dense


def on_rows(unit: Unit) -> Unit:
    """The unit of a product with a constant matrix, as one that sees what it reads as rows of pixels: see `in_order`.

    Raises Unsupported for operands that have no such order.
    """
    source, shape = unit.operand(0), unit.call.shape(0)
    behind, made = unit.layouts(source), unit.layouts(unit.result)
    if behind.shape == shape:
        if behind.order[-1] != len(shape) - 1 or made.order != behind.order:
            raise unit.unsupported(f"axes in the orders {list(behind.order)} and {list(made.order)}", "one order, the last axis innermost")
        return unit
    if behind.apart or not behind.in_pixels or shape != (1, behind.tensor.elements):
        raise unit.unsupported(f"a view of {list(behind.shape)} as {list(shape)}", "views that keep pixels, or flatten all of them")
    whole, layouts = Layout(replace(behind.tensor, shape=shape), (0, 1)), unit.layouts
    return replace(unit, layouts=lambda m: whole if m == source else layouts(m))


def in_order(unit: Unit, weights: np.ndarray) -> np.ndarray:
    """Weights, (columns, depth), in the order of the pixels of `on_rows`: a map that is flattened lies in another order than its view."""
    behind = unit.layouts(unit.operand(0))
    if behind.shape == unit.call.shape(0):
        return weights
    return weights.reshape(-1, *behind.shape[1:]).transpose(0, 2, 3, 1).reshape(len(weights), -1)
