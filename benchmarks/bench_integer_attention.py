"""Softmax and LayerNormalization in integers, as proposed for the accelerator, against float.

Operands are what networks give those operators.

For every such operator of a network: its operand is quantised to int8 by its smallest and largest value, as
`lfopt quantize` does; float and integers then start from the same bytes. Errors are in units of the int8
result, whose scale is that of the float result (Softmax: 1 / 256).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option
from lfopt.app.pipeline import load_network
from lfopt.app.random_values import random_inputs
from lfopt.ir import Graph, Operator
from lfopt.ops.reference import reference

EXPONENT_BITS = 16  # of an entry of the table of exponentials
DIVIDED_BITS = 31  # of the reciprocal of a row's sum
ROOT_BITS = 30  # of the reciprocal of a row's deviation
FACTOR_BITS = 14  # of a channel's factor, below its binary point
NAMES = ("Softmax", "LayerNormalization")


class QuantizedArray(NamedTuple):
    """Integers that stand for real numbers."""

    values: np.ndarray  # int64, -128 to 127
    scale: float
    zero: int

    @property
    def real(self) -> np.ndarray:
        """The numbers."""
        return (self.values - self.zero) * self.scale


def quantised(values: np.ndarray) -> QuantizedArray:
    """By the smallest and the largest value, 0 among them."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = (high - low) / 255 or 1.0
    zero = round(-128 - low / scale)
    return QuantizedArray(np.clip(np.rint(values / scale) + zero, -128, 127).astype(np.int64), scale, zero)


def softmax(x: QuantizedArray) -> np.ndarray:
    """int8 along the last axis, scale 1 / 256, zero point -128.

    A table of 256 exponentials, one division a row.
    """
    table = np.rint(np.exp(-np.arange(256) * x.scale) * ((1 << EXPONENT_BITS) - 1)).astype(np.int64)
    exponentials = table[x.values.max(axis=-1, keepdims=True) - x.values]
    total = exponentials.sum(axis=-1, keepdims=True)  # below 2**(16 + 15) for rows of up to 32,768
    inverse = ((1 << DIVIDED_BITS) + total // 2) // total
    shift = DIVIDED_BITS - 8
    return np.clip((exponentials * inverse + (1 << shift - 1) >> shift) - 128, -128, 127)


def reciprocal_root(values: np.ndarray, even: np.ndarray) -> np.ndarray:
    """2**ROOT_BITS / sqrt(values / 4**even), elementwise, for quotients from 1/4 to 1.

    A table of 8 bits, then two Newton steps with products of 32 by 32 bits.
    """
    left = ROOT_BITS - 2 * even
    v = np.where(left >= 0, values << np.maximum(left, 0), values >> np.maximum(-left, 0))
    table = np.rint((1 << ROOT_BITS) / np.sqrt((np.arange(257) + 0.5) / 256)).astype(np.int64)
    y = table[v >> ROOT_BITS - 8]
    for _ in range(2):
        y = y * ((3 << ROOT_BITS) - (v * (y * y >> ROOT_BITS) >> ROOT_BITS)) >> ROOT_BITS + 1
    return y


def layer_normalization(
    x: QuantizedArray, gamma: np.ndarray, beta: np.ndarray, epsilon: float, result: QuantizedArray
) -> np.ndarray:
    """int8 along the last axis.

    Sums of x and of its squares, one reciprocal root a row, then a factor and a shift per channel.
    """
    n = x.values.shape[-1]
    centred = x.values - x.zero
    first, second = centred.sum(axis=-1, keepdims=True), (centred * centred).sum(axis=-1, keepdims=True)
    # n**2 times the variance of the integers
    variance = n * second - first * first + round(epsilon * (n / x.scale) ** 2)
    # 2**(2 * even) is no less than the variance: a count of leading zeros
    even = np.maximum((np.frexp(variance.astype(np.float64))[1] + 1) // 2, 1)
    root = reciprocal_root(np.maximum(variance, 1), even)
    # x less the mean, over the deviation
    unit = np.right_shift((n * centred - first) * root, even + ROOT_BITS - FACTOR_BITS)
    factor = np.rint(gamma / result.scale * (1 << FACTOR_BITS)).astype(np.int64)
    shifted = np.rint(beta / result.scale * (1 << 2 * FACTOR_BITS)).astype(np.int64)
    half = 1 << 2 * FACTOR_BITS - 1
    return np.clip((unit * factor + shifted + half >> 2 * FACTOR_BITS) + result.zero, -128, 127)


def measured(graph: Graph, operator: Operator, values: dict[str, np.ndarray]) -> np.ndarray | None:
    """Errors of one operator, in units of its int8 result; None if it is not along the last axis."""
    x, rank = values[operator.inputs[0]].astype(np.float64), len(graph.shape(operator.inputs[0]))
    if operator.attributes.get("axis", -1) not in (-1, rank - 1):
        return None
    operand = quantised(x)
    if operator.kind == "Softmax":
        powers = np.exp(operand.real - operand.real.max(axis=-1, keepdims=True))
        return softmax(operand) - (np.clip(powers / powers.sum(axis=-1, keepdims=True) * 256, 0, 255) - 128)
    epsilon = operator.attributes.get("epsilon", 1e-5)
    assert isinstance(epsilon, float)
    gamma, beta = (
        values[name].astype(np.float64) if name else np.zeros(()) for name in (*operator.inputs[1:], "")[:2]
    )
    real = operand.real - operand.real.mean(axis=-1, keepdims=True)
    wanted = real / np.sqrt((real * real).mean(axis=-1, keepdims=True) + epsilon) * gamma + beta
    result = quantised(wanted)
    return layer_normalization(operand, gamma, beta, epsilon, result) - np.clip(
        wanted / result.scale + result.zero, -128, 127
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models",
        nargs="*",
        default=["zoo:gpt2"],
        help="ONNX files with weights, or zoo:NAME (default: zoo:gpt2)",
    )
    add_option(parser)
    options = parser.parse_args()
    sheet, table = Sheet("integer-attention", options.results), Table(box=box.SIMPLE_HEAD)
    for head in (
        "network",
        "operator",
        "how many",
        "elements",
        "largest error",
        "mean error",
        "off by more than 1",
    ):
        table.add_column(head, justify="left" if head in ("network", "operator") else "right")
    for model in options.models:
        graph, rng = load_network(model, {}, "all"), np.random.default_rng(0)
        inputs = random_inputs(graph, rng)
        values = {**{name: value for name, value in graph.constants.items() if value is not None}, **inputs}
        values |= reference(graph, inputs, everything=True)
        for kind in NAMES:
            deviations = [
                errors
                for op in graph.operators
                if op.kind == kind and (errors := measured(graph, op, values)) is not None
            ]
            if deviations:
                flat = np.abs(np.concatenate([errors.reshape(-1) for errors in deviations]))
                cells = (
                    f"{len(deviations)}",
                    f"{flat.size:,}",
                    f"{flat.max():.2f}",
                    f"{flat.mean():.3f}",
                    f"{(flat > 1).mean():.2%}",
                )
                table.add_row(Path(model).stem.removeprefix("zoo:"), kind, *cells)
    sheet.show(table)
    sheet.write()


if __name__ == "__main__":
    main()
