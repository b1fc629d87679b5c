"""Weights of a computation, unpacked from the buffer into a matrix."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hw_rtl.emulator.memory import EmulatedMemory
from hw_rtl.emulator.operands import byte_type, result_channels
from hw_rtl.emulator.patch import Patch
from hw_rtl.emulator.windows import OperandWindow
from lfopt.isa.tables import Operation, Space

EXACT_FLOAT32 = 1 << 24  # integers up to here are exact in a float32
# all that a matrix is made by
KEY = "operation w_base w_block_bytes out_blocks out_tail o_lane b_zero b_unsigned a_unsigned a_zero".split()


def weights(
    memory: EmulatedMemory, d: Mapping[str, int], window: OperandWindow, depth: int
) -> tuple[np.ndarray, type[np.generic]]:
    """(weights (kernel rows x kernel columns x input channels, output channels), their dtype).

    Of the kernel rows that are not skipped, in that order.
    The zero point is subtracted. The type is the shortest of floats in which no sum of products with this
    operand is rounded; DEPTHWISE: int32.
    """
    lanes = memory.lanes
    row_terms = d["kernel_columns"] * depth
    skipped = window.first_kernel_row * row_terms
    terms = window.kernel_rows * row_terms
    # lanes of the one block that have no weights
    ahead = d["o_lane"] if d["operation"] == Operation.CONV else 0
    outputs = [lanes] * (d["out_blocks"] - 1) + [d["out_tail"] - ahead]
    # (first byte, outputs)
    places = [(d["w_base"] + block * d["w_block_bytes"] + skipped * n, n) for block, n in enumerate(outputs)]
    patches = [_patch_of_bytes(start, terms * n, lanes) for start, n in places]
    for patch in patches:
        memory.touch(patch, Space.BUFFER, writes=False)

    def matrix_of() -> tuple[np.ndarray, type[np.generic]]:
        stored = memory.bytes.view(byte_type(d["b_unsigned"]))
        matrix = np.full((terms, result_channels(d, lanes)), d["b_zero"], np.int32)
        for block, (start, n) in enumerate(places):
            matrix[:, block * lanes + ahead : block * lanes + ahead + n] = stored[
                start : start + terms * n
            ].reshape(terms, n)
        matrix -= d["b_zero"]
        if d["operation"] == Operation.DEPTHWISE:
            return matrix, np.int32
        most = _reach(d["a_unsigned"], d["a_zero"]) * int(np.abs(matrix).sum(axis=0, dtype=np.int64).max())
        exact = np.float32 if most < EXACT_FLOAT32 else np.float64
        return matrix.astype(exact), exact

    return memory.cached((skipped, terms, *(d[name] for name in KEY)), patches, matrix_of)


def _patch_of_bytes(start: int, size: int, lanes: int) -> Patch:
    """Words of the buffer that hold these bytes."""
    first = start // lanes
    return Patch(first, (start + size - 1) // lanes - first + 1)


def _reach(unsigned: int, zero: int) -> int:
    """Largest magnitude of a byte less a zero point."""
    least, most = (0, 255) if unsigned else (-128, 127)
    return max(abs(least - zero), abs(most - zero))
