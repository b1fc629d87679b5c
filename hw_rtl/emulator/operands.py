"""Operands of a computation, read from the buffer row by row, and partial sums of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hw_rtl.emulator.memory import EmulatedMemory
from hw_rtl.emulator.patch import Patch
from hw_rtl.emulator.windows import OperandWindow
from lfopt.isa.tables import WINDOW, Operation, Space


def first_operand(
    memory: EmulatedMemory,
    d: Mapping[str, int],
    window: OperandWindow,
    blocks: int,
    dtype: type[np.generic],
    padding: int,
) -> np.ndarray:
    """(rows, columns, channels of whole blocks) of `dtype`: raw values of a window, `padding` outside."""
    rows = window.rows
    columns = window.columns
    operand = np.empty((rows.size, columns.size, blocks, memory.lanes), dtype)
    if rows.padded(d["a_height"]) or columns.padded(d["a_width"]):
        operand[...] = padding
    stored = byte_type(d["a_unsigned"])
    by_block = d["operation"] != Operation.CONV
    stretches = list(columns.inside(d["a_width"]))
    for to_rows, from_rows in rows.inside(d["a_height"]):
        for at, row in zip(range(rows.size)[to_rows], from_rows, strict=True):
            start = d["a_base"] + row % d["a_slots"] * d["a_slot_words"]
            for to_columns, from_columns in stretches:
                patch = Patch(
                    start + from_columns.start,
                    len(from_columns),
                    blocks,
                    d["a_block_words"],
                    from_columns.step,
                )
                operand[at, to_columns] = (
                    memory.get(patch, Space.BUFFER, by_block=by_block).view(stored).transpose(1, 0, 2)
                )
    return operand.reshape(rows.size, columns.size, blocks * memory.lanes)


def second_operand(memory: EmulatedMemory, d: Mapping[str, int], row: int, count: int) -> np.ndarray:
    """(rows, columns, channels) int64: second operand of ADD and MUL, zero point subtracted."""
    columns = 1 if d["b_vector"] else d["o_width"]
    stored = byte_type(d["b_unsigned"])
    operand = np.empty((count, columns, d["out_blocks"], memory.lanes), np.int64)
    for y in range(count):
        patch = b_patch(d, row + y, columns)
        operand[y] = memory.get(patch, Space.BUFFER, by_block=True).view(stored).transpose(1, 0, 2)
    return operand.reshape(count, columns, -1)[..., : result_channels(d, memory.lanes)] - d["b_zero"]


def held_sums(memory: EmulatedMemory, d: Mapping[str, int], row: int, count: int) -> np.ndarray:
    """(rows, columns, channels) int64: partial sums of earlier commands."""
    width = d["o_width"]
    blocks = d["out_blocks"]
    lanes = memory.lanes
    sums = np.empty((count, width, blocks, lanes), np.int64)
    for y in range(count):
        stored = np.ascontiguousarray(
            memory.get(b_patch(d, row + y, width * WINDOW), Space.BUFFER, by_block=True)
        )
        sums[y] = stored.reshape(blocks, -1).view("<i4").reshape(blocks, width, lanes).transpose(1, 0, 2)
    return sums.reshape(count, width, -1)[..., : result_channels(d, lanes)]


def b_patch(d: Mapping[str, int], row: int, columns: int) -> Patch:
    """Words of a row of the second operand, or of partial sums."""
    return Patch(
        d["b_base"] + row % d["b_slots"] * d["b_slot_words"], columns, d["out_blocks"], d["b_block_words"]
    )


def byte_type(unsigned: int) -> type[np.uint8] | type[np.int8]:
    """Type of the bytes of an operand or of weights."""
    if unsigned:
        return np.uint8
    return np.int8


def result_channels(d: Mapping[str, int], lanes: int) -> int:
    """Channels of the result."""
    return (d["out_blocks"] - 1) * lanes + d["out_tail"]
