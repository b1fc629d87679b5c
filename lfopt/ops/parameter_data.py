"""Parameters of a quantised operator, multipliers and tables, as the bytes that an accelerator loads.

    SUMS      one row for every `channels` output channels (columns of a Gemm or MatMul), a multiplier of 5
              bytes for each of them
    TABLE     256 bytes; none where the table only clamps the byte
    EXTREME   256 bytes where the scale changes
    CHOICE    256 bytes for each operand that has to be brought to the result's scale
    MOVE      256 bytes for each result whose scale is not the operand's

All others have what they need in their commands (TERMS, PRODUCT, MEAN), or are not done by the accelerator
(SLOPES, FLOAT). A multiplier is 40 bits, the lowest byte first: its multiplier in bits 0 to 30, its shift in
bits 32 to 37; both are 0 where a row has more multipliers than there are channels. How many bytes there are
needs no weights; what they are does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lfopt.ir import Tensor
from lfopt.ops.arithmetic import CHOICE, EXTREME, MOVE, SUMS, TABLE, arithmetic
from lfopt.ops.call import Call
from lfopt.ops.fixed_point import BYTES
from lfopt.ops.scaling import recoding, requantization, table
from lfopt.ops.table import row_of
from lfopt.ops.traits import Arithmetic

FACTOR_BYTES = 5  # of one multiplier
TABLE_BYTES = 256  # of one table
SHIFT_BIT = 32  # of a multiplier: where its shift begins


def parameter_bytes(call: Call, channels: int = 16) -> int:
    """Bytes of the parameters of an operator; 0 if it needs none, or its first result is not quantised."""
    how = _arithmetic(call)
    if how is SUMS:
        return -(-_channels(call) // channels) * channels * FACTOR_BYTES
    return TABLE_BYTES * sum(1 for _ in _tables(call, how))


def parameter_blocks(call: Call, channels: int = 16) -> tuple[np.ndarray, ...]:
    """(5 * channels,) uint8 rows of multipliers, or (256,) uint8 tables: the parameters of an operator.

    Raises what `lfopt.ops.scaling.requantization` raises.
    """
    how = _arithmetic(call)
    if how is not SUMS:
        return tuple(np.ascontiguousarray(entries).view(np.uint8) for entries in _tables(call, how))
    by = requantization(call).by
    count = _channels(call)
    words = np.zeros(-(-count // channels) * channels, np.uint64)
    words[:count] = (by.multiplier | by.shift << SHIFT_BIT).astype(np.uint64)
    rows = words.astype("<u8").view(np.uint8).reshape(-1, channels, 8)[:, :, :FACTOR_BYTES]
    return tuple(np.ascontiguousarray(row).reshape(-1) for row in rows)


def clamps(entries: np.ndarray, dtype: str) -> bool:
    """Whether a table, (256,) stored integers, only clamps the integer of this type that it is asked for.

    >>> clamps(np.arange(256, dtype=np.uint8).view(np.int8).clip(0, 100), "int8")
    True
    >>> clamps(np.zeros(256, np.int8), "int8")
    True
    >>> clamps(np.arange(256, dtype=np.uint8) // 2, "uint8")
    False
    """
    asked = np.arange(256, dtype=np.uint8).view(dtype).astype(np.int64)
    stored = entries.astype(np.int64)
    return bool((stored == asked.clip(stored.min(), stored.max())).all())


def _arithmetic(call: Call) -> Arithmetic | None:
    if call.result_tensors[0].quantization is not None:
        return arithmetic(call)
    return None


def _channels(call: Call) -> int:
    """Channels of the result, each with a multiplier of its own."""
    axis = row_of(call).channel_axis
    if axis is not None and len(call.shape(1)) > 1:
        return call.result[axis]
    return 1


def _tables(call: Call, how: Arithmetic | None) -> Iterator[np.ndarray]:
    """Tables of an operator that has no multipliers."""
    first = call.tensors[0]
    results = [tensor for tensor in call.result_tensors if tensor.quantization is not None]
    pairs: list[tuple[Tensor | None, Tensor]] = []
    if how is TABLE:
        operand = next(
            tensor
            for tensor, constant in zip(call.tensors, call.constant, strict=True)
            if tensor is not None and not constant
        )
        if not clamps(entries := table(call), operand.dtype):
            yield entries
    elif how is CHOICE:
        parameters = row_of(call).parameters
        operands = [tensor for i, tensor in enumerate(call.tensors) if i not in parameters]
        pairs = [
            (tensor, results[0])
            for tensor in operands
            if tensor is not None and tensor.quantization is not None and tensor.dtype in BYTES
        ]
    elif how in (EXTREME, MOVE):
        pairs = [(first, result) for result in results]
    for before, after in pairs:
        if before is not None and (entries := recoding(before, after)) is not None:
            yield entries
