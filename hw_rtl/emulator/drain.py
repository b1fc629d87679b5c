"""Finished sums, through bias, factor, zero point, bounds and table; or held as they are.

Both as words to be written.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hw_rtl.emulator.memory import EmulatedMemory
from hw_rtl.emulator.operands import b_patch
from hw_rtl.emulator.patch import Patch, Writes
from lfopt.isa.tables import FACTOR_BYTES, MEAN_BITS, TABLE_BYTES, WINDOW, Operation, Scale, Space


def result_writes(memory: EmulatedMemory, d: Mapping[str, int], row: int, sums: np.ndarray) -> Writes:
    """Writes of the result, row by row, of sums (rows, columns, channels) int64.

    Raises Fault BUFFER, Hazard.
    """
    count, width, channels = sums.shape
    blocks = d["out_blocks"]
    lanes = memory.lanes
    results = np.zeros((count, width, blocks * lanes), np.uint8)
    results[..., :channels] = _result(memory, d, sums)
    words = results.reshape(count, width, blocks, lanes).transpose(0, 2, 1, 3)
    slots = (((row + y) * d["o_row_step"] + d["o_row"]) % d["o_slots"] for y in range(count))
    patches = [
        Patch(d["o_base"] + slot * d["o_slot_words"], width, blocks, d["o_block_words"], d["o_step"])
        for slot in slots
    ]
    written = _written(d, lanes)[:, None]
    some = None if written.all() else written
    return [(patch, block, some) for patch, block in zip(patches, words, strict=True)]


def _written(d: Mapping[str, int], lanes: int) -> np.ndarray:
    """(blocks, lanes) bool: lanes that are written; the others stay as they are."""
    enabled = np.ones((d["out_blocks"], lanes), bool)
    if d["operation"] == Operation.COPY and d["lanes"]:
        enabled[:] = False
        enabled[:, d["o_lane"] + np.arange(d["lanes"]) * d["o_lane_step"]] = True
    elif d["operation"] == Operation.CONV:
        enabled[:, : d["o_lane"]] = False
    enabled[-1, d["out_tail"] :] = False
    return enabled


def held_writes(memory: EmulatedMemory, d: Mapping[str, int], row: int, sums: np.ndarray) -> Writes:
    """Writes of partial sums as int32, row by row, of sums (rows, columns, channels) int64."""
    count, width, channels = sums.shape
    blocks = d["out_blocks"]
    lanes = memory.lanes
    padded = np.empty((count, width, blocks * lanes), "<i4")
    padded[..., channels:] = memory.rng.integers(-(1 << 31), 1 << 31)
    padded[..., :channels] = sums
    stored = np.ascontiguousarray(padded.reshape(count, width, blocks, lanes).transpose(0, 2, 1, 3))
    words = stored.reshape(count, blocks, -1).view(np.uint8).reshape(count, blocks, width * WINDOW, lanes)
    return [(b_patch(d, row + y, width * WINDOW), words[y], None) for y in range(count)]


def _result(memory: EmulatedMemory, d: Mapping[str, int], sums: np.ndarray) -> np.ndarray:
    """(rows, columns, channels) uint8: sums after bias, scale, clamp and table."""
    channels = sums.shape[2]
    if d["has_bias"]:
        patch = Patch(d["bias"], -(-4 * channels // memory.lanes))
        bias = np.ascontiguousarray(memory.get(patch, Space.BUFFER)).reshape(-1).view("<i4")[:channels]
        sums = wrapped(sums + bias)
    elif d["bias_value"]:
        sums = wrapped(sums + d["bias_value"])
    if d["scale"] == Scale.CHANNEL:
        multiplier, shift = _factors(memory, d["factors"], d["out_blocks"], channels)
        sums = _halves_to_even(_product(d, sums, multiplier), shift) + d["o_zero"]
    elif d["scale"] == Scale.SCALAR:
        products = _product(d, sums, np.array(d["multiplier"]))
        sums = _halves_to_even(products, np.array(d["shift"])) + d["o_zero"]
    clamped = np.minimum(np.maximum(sums, d["low"]), d["high"]).astype(np.uint8)
    if d["has_table"]:
        words = TABLE_BYTES // memory.lanes
        patch = Patch(memory.spaces[Space.TABLES].start + d["table_id"] * words, words)
        clamped = memory.get(patch, Space.TABLES).reshape(-1)[clamped]
    return clamped


def _product(d: Mapping[str, int], sums: np.ndarray, multiplier: np.ndarray) -> np.ndarray:
    """int64: sums times factors; of a mean (SUM), rounded to multiples of 2**MEAN_BITS."""
    products = sums * multiplier
    if d["operation"] != Operation.SUM:
        return products
    return (products + (1 << MEAN_BITS - 1)) >> MEAN_BITS << MEAN_BITS


def _halves_to_even(products: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """int64: products / 2**shift, to nearest. Shifts of 0 and 63 are done, not refused, as in hardware."""
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    lost = products & ~(np.int64(-1) << shift)
    down = products >> shift
    return down + ((lost > half) | ((lost == half) & (down & 1 == 1) & (half > 0)))


def _factors(memory: EmulatedMemory, row: int, blocks: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """(multipliers, shifts), (channels,) int64 each."""
    patch = Patch(memory.spaces[Space.FACTORS].start + row * FACTOR_BYTES, blocks * FACTOR_BYTES)
    stored = memory.get(patch, Space.FACTORS)

    def unpacked() -> tuple[np.ndarray, np.ndarray]:
        each = stored.reshape(-1, FACTOR_BYTES)[:channels]
        multiplier = np.ascontiguousarray(each[:, :4]).view("<u4")[:, 0] & 0x7FFFFFFF
        return multiplier.astype(np.int64), (each[:, 4] & 63).astype(np.int64)

    return memory.cached(("factors", row, channels), [patch], unpacked)


def wrapped(sums: np.ndarray) -> np.ndarray:
    """int64, same shape as sums: sums wrapped to int32, as in hardware."""
    return sums.astype(np.int32).astype(np.int64)
