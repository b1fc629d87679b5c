"""Operations of an operator: multiply-accumulates of contractions, floating-point operations of others.

Floating-point operations are counted as DNNFusion (PLDI'21, arXiv 2108.13342, table of rewriting rules)
counts them: an elementwise operator is one per element of its result, a reduction one per element that it
folds; moving elements is free. An operator that stands for several (Gelu, LayerNormalization) counts as those
do, so that recognising it is no saving by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from lfopt.ops.call import Call

Count = Callable[[Call], int]
TANH_GELU = 8  # operations per element of a Gelu by the hyperbolic tangent


def none(call: Call) -> int:
    """No operations."""
    return 0


# -- multiply-accumulates ------------------------------------------------------------------------------------


def conv_macs(call: Call) -> int:
    """Output elements x kernel elements of one output channel."""
    return prod(call.result) * prod(call.shape(1)[1:])


def conv_transpose_macs(call: Call) -> int:
    """Input elements x kernel elements that each is scattered to."""
    return prod(call.shape(0)) * prod(call.shape(1)[1:])


def gemm_macs(call: Call) -> int:
    """Output elements x columns of the first matrix."""
    a = call.shape(0)
    return prod(call.result) * (a[0] if call.attribute("transA", 0) else a[1])


def matmul_macs(call: Call) -> int:
    """Output elements x columns of the first matrix."""
    return prod(call.result) * call.shape(0)[-1]


# -- floating-point operations -------------------------------------------------------------------------------


def per_result(count: int) -> Count:
    """So many for each element of the result."""
    return lambda call: count * prod(call.result)


def per_operand(count: int, after: int = 0) -> Count:
    """So many for each element of the first operand, and for each of the result once all is folded."""
    return lambda call: count * prod(call.shape(0)) + after * prod(call.result)


def scaled(count: int) -> Count:
    """So many for each element of the result, and one for each further operand: scale, bias."""
    return lambda call: prod(call.result) * (count + len(call.shapes) - 1)


def combined(call: Call) -> int:
    """One less than there are operands, for each element of the result."""
    return prod(call.result) * (len(call.shapes) - 1)


def averaged(call: Call) -> int:
    """As many as there are operands, for each element of the result."""
    return prod(call.result) * len(call.shapes)


def windowed(call: Call) -> int:
    """One for each element of the window, for each element of the result."""
    return prod(call.result) * prod(call.attribute("kernel_shape", (1,)))


def deformed(call: Call) -> int:
    """Taps of a DeformConv, each of four products and sums, and their products with the weights."""
    images, _, high, wide = call.result
    taps = images * high * wide * call.shape(0)[1] * prod(call.shape(1)[2:])
    return 8 * taps + 2 * prod(call.result) * prod(call.shape(1)[1:])


def gelu(call: Call) -> int:
    """By the error function, or by the hyperbolic tangent."""
    return prod(call.result) * (TANH_GELU if call.attribute("approximate", "none") == "tanh" else 5)
