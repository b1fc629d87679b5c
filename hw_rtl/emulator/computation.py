"""Computations: sums over the windows of an operand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hw_rtl.emulator.drain import held_writes, result_writes, wrapped
from hw_rtl.emulator.errors import Fault
from hw_rtl.emulator.memory import EmulatedMemory
from hw_rtl.emulator.operands import first_operand, held_sums, result_channels, second_operand
from hw_rtl.emulator.patch import Writes
from hw_rtl.emulator.weights import weights
from hw_rtl.emulator.windows import OperandWindow
from lfopt.isa.tables import ACCUMULATORS, Error, Operation, Space

LEAST = -(1 << 31)  # where MAX begins


def compute(memory: EmulatedMemory, d: Mapping[str, int], row: int, count: int) -> Writes:
    """Execute EXEC for rows `row` .. `row + count - 1`, but for the writes, which are returned.

    Raises Fault FIELD, BUFFER; Hazard.
    """
    if count * d["o_width"] > ACCUMULATORS:
        raise Fault(Error.FIELD, f"{count} rows of {d['o_width']} columns; accepted: {ACCUMULATORS} pixels")
    sums = _sums(memory, d, row, count)
    writes = result_writes(memory, d, row, sums) if d["last"] else held_writes(memory, d, row, sums)
    if memory.hazards is not None:
        memory.hazards.write_result([patch for patch, *_ in writes], memory.spaces[Space.BUFFER].stop)
    return writes


def _sums(memory: EmulatedMemory, d: Mapping[str, int], row: int, count: int) -> np.ndarray:
    """(rows, columns, channels) int64, in the range of int32: finished sums."""
    held = None if d["first"] else held_sums(memory, d, row, count)
    window = OperandWindow.of(d, row, count)
    sums = _of_padding(memory, d, count) if window is None else _of_windows(memory, d, window)
    if Operation(d["operation"]).needs_second:
        second = second_operand(memory, d, row, count)
        if d["operation"] == Operation.MUL:
            sums = sums * second
        else:
            sums = d["a_multiplier"] * sums + d["b_multiplier"] * second
    if held is not None:
        sums = np.maximum(sums, held) if d["operation"] == Operation.MAX else sums + held
    return wrapped(sums)


def _of_padding(memory: EmulatedMemory, d: Mapping[str, int], count: int) -> np.ndarray:
    """(rows, columns, channels) int64: sums over windows in padding alone; ADD, MUL: first operand."""
    start = {Operation.MAX: LEAST, Operation.COPY: d["a_zero"]}.get(Operation(d["operation"]), 0)
    return np.full((count, d["o_width"], result_channels(d, memory.lanes)), start, np.int64)


def _of_windows(memory: EmulatedMemory, d: Mapping[str, int], window: OperandWindow) -> np.ndarray:
    """(rows, columns, channels) int64: sums over windows; ADD, MUL: first operand."""
    operation = Operation(d["operation"])
    zero = d["a_zero"]
    if operation is Operation.CONV:
        return _convolved(memory, d, window)
    if operation is Operation.DEPTHWISE:
        return _depthwise(memory, d, window)
    if operation is Operation.MAX:
        return window.over(_by_channel(memory, d, window, np.int32, LEAST)).max(axis=(2, 3)).astype(np.int64)
    if operation is Operation.SUM:
        return window.over(_by_channel(memory, d, window, np.int32, zero) - zero).sum(
            axis=(2, 3), dtype=np.int64
        )
    if operation is Operation.COPY:
        return _copied(memory, d, window)
    return window.over(_by_channel(memory, d, window, np.int64, zero))[:, :, 0, 0] - zero


def _copied(memory: EmulatedMemory, d: Mapping[str, int], window: OperandWindow) -> np.ndarray:
    """(rows, columns, channels) int64: COPY of lanes within each block."""
    operand = first_operand(memory, d, window, d["out_blocks"], np.int64, d["a_zero"])
    each = window.over(operand)[:, :, 0, 0]
    blocks = each.reshape(*each.shape[:2], d["out_blocks"], memory.lanes)
    copied = blocks.copy()
    k = np.arange(d["lanes"])
    for o, a in zip(d["o_lane"] + k * d["o_lane_step"], d["a_lane"] + k * d["a_lane_step"], strict=True):
        copied[..., o] = blocks[..., a]
    return copied.reshape(each.shape)[..., : result_channels(d, memory.lanes)]


def _convolved(memory: EmulatedMemory, d: Mapping[str, int], window: OperandWindow) -> np.ndarray:
    channels = (d["in_blocks"] - 1) * memory.lanes + d["in_tail"]
    matrix, exact = weights(memory, d, window, channels - d["a_lane"])
    operand = first_operand(memory, d, window, d["in_blocks"], exact, d["a_zero"])[
        ..., d["a_lane"] : channels
    ]
    operand -= d["a_zero"]
    windows = window.over(operand)
    pixels = windows.shape[0] * windows.shape[1]
    terms = matrix.shape[0]
    return (windows.reshape(pixels, terms) @ matrix).reshape(*windows.shape[:2], -1).astype(np.int64)


def _depthwise(memory: EmulatedMemory, d: Mapping[str, int], window: OperandWindow) -> np.ndarray:
    matrix, _ = weights(memory, d, window, 1)
    operand = _by_channel(memory, d, window, np.int32, d["a_zero"])
    operand -= d["a_zero"]
    windows = window.over(operand)  # (rows, columns, kernel rows, kernel columns, channels)
    rows, columns, kernel_rows, kernel_columns, channels = windows.shape
    sums = np.zeros((rows, columns, channels), np.int32)
    product = np.empty_like(sums)
    for ky in range(kernel_rows):
        for kx in range(kernel_columns):
            np.multiply(windows[:, :, ky, kx], matrix[ky * kernel_columns + kx], out=product)
            sums += product
    return sums.astype(np.int64)


def _by_channel(
    memory: EmulatedMemory, d: Mapping[str, int], window: OperandWindow, dtype: type[np.generic], padding: int
) -> np.ndarray:
    """(rows, columns, channels) of `dtype`: first operand of a channelwise operation."""
    return first_operand(memory, d, window, d["out_blocks"], dtype, padding)[
        ..., : result_channels(d, memory.lanes)
    ]
