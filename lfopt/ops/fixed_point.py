"""Fixed-point arithmetic of quantised networks: executor, C code and accelerator give the same bits.

A *fixed-point multiplier* stands for a positive real factor f as multiplier / 2**shift. Scaling an integer v
by it takes one multiplication, one addition and one arithmetic shift to the right:

    p = v * multiplier
    scale(v) = (p + 2**(shift - 1) - 1 + (p >> shift & 1)) >> shift        = p / 2**shift, halves to even

That is the one rounding rule of lfopt: the exact product, to nearest, and halves to even, as QuantizeLinear
rounds. Where a factor is a power of two, so are the results those of ONNX Runtime, bit for bit.

A factor that no 31 bits hold, such as 1/6, makes no halves: what would be one is off by the factor's error.
Means would then be a step off wherever they lie between two integers, so products of means are first rounded
to a multiple of 2**MEAN_BITS: that is more than the error of sums below 2**MEAN_BITS, and less than 2**-14 of
a step.

Multipliers have 31 bits (2**30 <= multiplier < 2**31), so they fit an int32, and a product with an int32 sum
fits an int64 with the rounding constant added. The multiplier then is off by at most 2**-31 of itself: on an
output of 8 bits that decides a rounding only if the exact value lies within 2**-22 of a half. (16 bits would
do with a quarter of the multiplier, and would round one value in a few hundred to the other side.)

Everything that maps one byte to another, with no sum in between, is a table of 256 bytes, and tables hold the
real function's value as QuantizeLinear rounds it: halves to even.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from lfopt.ir import Quantization, UnsupportedModel

MULTIPLIER_BITS = 31  # of a factor that scales int32 sums
MEAN_BITS = 18  # products of means are multiples of 2**MEAN_BITS
MAX_SHIFT = 62  # so that product and rounding constant fit an int64
SUM_MIN, SUM_MAX = -(1 << 31), (1 << 31) - 1  # int32 accumulators
BYTES = ("int8", "uint8")  # stored types of maps


class Multipliers(NamedTuple):
    """Fixed-point multipliers: () one for all, or (channels,) one per channel."""

    multiplier: np.ndarray  # int64, 0 .. 2**31 - 1
    shift: np.ndarray  # int64, 1 .. 62; the same shape


def multipliers(real: Sequence[float] | np.ndarray) -> Multipliers:
    """The nearest fixed-point multipliers of real ones that are not negative, of the same shape.

    Raises UnsupportedModel for a multiplier that is not finite, or is 2**29 or more. What is below 2**-32
    loses bits, and below 2**-63 it is 0: such a multiplier takes every int32 sum to 0 or nearly so.

    >>> multipliers([0.75, 3.0])
    Multipliers(multiplier=array([1610612736, 1610612736]), shift=array([31, 29]))
    """
    ratios = np.asarray(real, np.float64)
    if not (fit := (ratios >= 0) & (ratios < 2.0**29)).all():
        raise UnsupportedModel(
            f"a ratio of scales is {ratios.reshape(-1)[np.argmin(fit)]:g}; accepted: from 0 to below 2**29"
        )
    _, exponent = np.frexp(ratios)  # a mantissa in [1/2, 1)
    shift = np.minimum(MULTIPLIER_BITS - exponent.astype(np.int64), MAX_SHIFT)
    multiplier = np.rint(np.ldexp(ratios, shift)).astype(np.int64)
    full = multiplier == 1 << MULTIPLIER_BITS  # rounded up to the next power of two
    return Multipliers(np.where(full, multiplier >> 1, multiplier), np.where(full, shift - 1, shift))


def scaled(sums: np.ndarray, by: Multipliers) -> np.ndarray:
    """int64, broadcast of sums and multipliers: the products, rounded once (see the module).

    The sums lie in the range of int32.

    >>> scaled(np.array([1, 2, 3, -1, -2, -3]), multipliers(0.5)).tolist()
    [0, 1, 2, 0, -1, -2]
    """
    return rounded(sums.astype(np.int64) * by.multiplier, by.shift)


def averaged(sums: np.ndarray, by: Multipliers) -> np.ndarray:
    """int64, broadcast of sums and multipliers: means, whose products are rounded first (see the module).

    The sums lie in the range of int32.

    >>> averaged(np.array([3, 9, 15, 16]), multipliers(1 / 6)).tolist()
    [0, 2, 2, 3]
    """
    products = sums.astype(np.int64) * by.multiplier
    return rounded((products + (1 << MEAN_BITS - 1)) & -1 << MEAN_BITS, by.shift)


def rounded(values: np.ndarray, shift: np.ndarray | int) -> np.ndarray:
    """int64, broadcast: int64 values / 2**shift, to nearest, halves to even; `shift`: 1 or more.

    >>> rounded(np.array([-6, -2, 1, 2, 5, 6, 7]), 2).tolist()
    [-2, 0, 0, 0, 1, 2, 2]
    """
    odd = values >> shift & 1
    return (values + ((np.int64(1) << shift - 1) - 1) + odd) >> shift


def saturated(values: np.ndarray, dtype: str) -> np.ndarray:
    """The integers, of the same shape, clamped to the range of an 8-bit type, in that type."""
    least, most = limits(dtype)
    return np.clip(values, least, most).astype(dtype)


def requantized(sums: np.ndarray, by: Multipliers, zero_point: int, dtype: str) -> np.ndarray:
    """Stored integers, shaped as the sums: scaled, rounded once, moved by the zero point, saturated.

    The sums lie in the range of int32.

    >>> requantized(np.array([-1000, 5, 7, 1000]), multipliers(0.25), 3, "int8").tolist()
    [-128, 4, 5, 127]
    """
    return saturated(scaled(sums, by) + zero_point, dtype)


def limits(dtype: str) -> tuple[int, int]:
    """Least and greatest integer of a stored type.

    >>> limits("uint8")
    (0, 255)
    """
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def reach(dtype: str, zero_point: int) -> int:
    """Largest magnitude of stored - zero_point.

    >>> reach("uint8", 0), reach("int8", -128), reach("int8", 0)
    (255, 255, 128)
    """
    least, most = limits(dtype)
    return max(most - zero_point, zero_point - least)


class SumMultipliers(NamedTuple):
    """Multipliers of the operands of a sum, over one common shift.

    y = the sum of multiplier[i] * (x[i] - zero[i]) / 2**shift, to nearest, halves to even.
    """

    multipliers: tuple[int, ...]  # signed, one per operand
    shift: int  # 1 .. 31


def terms(real: Sequence[float], reaches: Sequence[int]) -> SumMultipliers:
    """Fixed-point multipliers of a sum: the finest for which it fits an int32.

    `reaches`: the largest magnitude of each operand. With two 8-bit operands the larger factor has 21 or 22
    bits.

    Raises UnsupportedModel where even the coarsest leave int32, or a factor is not finite.

    >>> terms([1.0, -0.5], [255, 255])
    SumMultipliers(multipliers=(4194304, -2097152), shift=22)
    """
    for shift in range(31, 0, -1) if np.isfinite(real).all() else ():
        multipliers = tuple(round(Fraction(f) * 2**shift) for f in real)
        if sum(abs(m) * r for m, r in zip(multipliers, reaches, strict=True)) + 2 ** (shift - 1) <= SUM_MAX:
            return SumMultipliers(multipliers, shift)
    raise UnsupportedModel(
        f"ratios of scales {', '.join(f'{f:g}' for f in real)}: "
        f"sums of {len(real)} operands so scaled leave int32"
    )


def quantized(real: np.ndarray, by: Quantization, dtype: str) -> np.ndarray:
    """Stored integers nearest to real numbers, of the same shape: saturate(round(real / scale) + zero_point).

    Halves to even, in the precision of `real`.

    What is not a number becomes the least integer, as ONNX Runtime has it on x86. Source: ONNX operator
    QuantizeLinear.

    >>> quantized(np.array([0.25, 0.75, 100.0], np.float32), Quantization((0.5,), (10,)), "int8").tolist()
    [10, 12, 127]
    """
    scale, zero_point = _along(by, real.ndim)
    if real.dtype.kind in "iu":  # QuantizeLinear takes int32 too
        real = real.astype(np.float64)
    least, most = limits(dtype)
    with np.errstate(all="ignore"):
        steps = np.asarray(real / scale.astype(real.dtype))
        np.rint(steps, out=steps)
        if np.dtype(dtype).itemsize < 4 and real.dtype == np.float32:  # which holds all these integers
            zero = zero_point.astype(np.float32)
            np.fmax(steps, np.float32(least) - zero, out=steps)
            np.minimum(steps, np.float32(most) - zero, out=steps)
            return np.add(steps, zero, out=steps).astype(dtype)
        steps = np.nan_to_num(steps, nan=-1e9, posinf=1e9, neginf=-1e9)
        return np.clip(np.clip(steps, -1e9, 1e9) + zero_point, least, most).astype(dtype)


def dequantized(stored: np.ndarray, by: Quantization, dtype: str = "float32") -> np.ndarray:
    """Real numbers that stored integers stand for, of the same shape: (stored - zero_point) * scale.

    Source: ONNX operator DequantizeLinear.

    >>> dequantized(np.array([10, 12], np.int8), Quantization((0.5,), (10,))).tolist()
    [0.0, 1.0]
    """
    scale, zero_point = _along(by, stored.ndim)
    if zero_point.any():
        stored = stored.astype(np.int16 if stored.itemsize == 1 else np.int64) - zero_point.astype(
            np.int16 if stored.itemsize == 1 else np.int64
        )
    return stored.astype(dtype) * scale.astype(dtype)


def _along(by: Quantization, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """(scale, zero point), shaped to broadcast against a tensor of that rank."""
    if by.axis is None:
        shape = ()
    else:
        shape = tuple(len(by.scale) if axis == by.axis % rank else 1 for axis in range(rank))
    return np.array(by.scale, np.float64).reshape(shape), np.array(by.zero_point, np.int64).reshape(shape)
