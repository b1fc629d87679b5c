"""Loads and stores: rows between DRAM and the chip."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hw_rtl.emulator.errors import Fault
from hw_rtl.emulator.memory import EmulatedMemory
from hw_rtl.emulator.patch import Patch
from lfopt.isa.tables import BEAT_BYTES, FACTOR_BYTES, TABLE_BYTES, Class, Error, Space


def transfer(
    memory: EmulatedMemory, d: Mapping[str, int], command: Mapping[str, int], *, store: bool
) -> None:
    """Copy the rows of a command, as the descriptor `d` says.

    Raises Fault FIELD, BUFFER, REGION, BUS; Hazard.
    """
    if store and d["space"] != Space.BUFFER:
        raise Fault(Error.FIELD, "a store from another space than BUFFER")
    for k in range(command["count"]):
        _copy_row(memory, d, command, k, store)


def _copy_row(
    memory: EmulatedMemory, d: Mapping[str, int], command: Mapping[str, int], k: int, store: bool
) -> None:
    """Copy row k of a command."""
    lanes = memory.lanes
    columns = d["columns"]
    tail = d["tail"]
    space = Space(d["space"])
    base = (
        d["base"] * {Space.BUFFER: 1, Space.FACTORS: FACTOR_BYTES, Space.TABLES: TABLE_BYTES // lanes}[space]
    )
    chip_block, dram_block = (
        (command["from_block"], command["to_block"])
        if store
        else (command["to_block"], command["from_block"])
    )
    slot = (command["slot"] + k) % d["slots"]
    start = memory.spaces[space].start + base + slot * d["slot_words"] + chip_block * d["block_words"]
    address = d["dram"] + ((command["row"] + k) * d["row_beats"] + dram_block * d["block_beats"]) * BEAT_BYTES
    full = d["blocks"] - (tail < lanes)  # blocks without the last, if that has fewer channels
    if full:
        patch = Patch(start, columns, full, d["block_words"])
        pieces = _pieces(memory, d, address, full, columns * lanes, store).reshape(full, columns, lanes)
        if store:
            pieces[...] = memory.get(patch, space)
        elif patch.last < memory.spaces[space].stop and np.array_equal(
            patch.words(memory.bytes, lanes), pieces
        ):
            # nothing changes: what has been made of these words stays good
            memory.touch(patch, space, writes=True)
        else:
            memory.put(patch, space, pieces)
    if full < d["blocks"]:
        patch = Patch(start + full * d["block_words"], columns)
        used = columns * tail  # bytes; behind them: padding
        piece = _pieces(
            memory,
            d,
            address + full * d["block_beats"] * BEAT_BYTES,
            1,
            -(-used // BEAT_BYTES) * BEAT_BYTES,
            store,
        )[0]
        if store:
            piece[:used] = memory.get(patch, space)[0, :, :tail].reshape(-1)
            piece[used:] = 0
        else:
            values = np.zeros((1, columns, lanes), np.uint8)
            values[0, :, :tail] = piece[:used].reshape(columns, tail)
            memory.put(patch, space, values)


def _pieces(
    memory: EmulatedMemory, d: Mapping[str, int], address: int, blocks: int, piece_bytes: int, store: bool
) -> np.ndarray:
    """(blocks, bytes) uint8: pieces of DRAM, one a block, counted, no copy.

    Raises Fault REGION, BUS; Hazard.
    """
    block_bytes = d["block_beats"] * BEAT_BYTES
    end = address + (blocks - 1) * block_bytes + piece_bytes
    least, limit = memory.write_region if store else memory.read_region
    if address < least or end > limit:
        raise Fault(Error.REGION, f"bytes {address} to {end - 1} of DRAM; accepted: {least} to {limit - 1}")
    if end > memory.dram.size:
        raise Fault(Error.BUS, f"byte {end - 1} of DRAM; there are {memory.dram.size}")
    if memory.hazards is not None:
        beats = Patch(address // BEAT_BYTES, piece_bytes // BEAT_BYTES, blocks, d["block_beats"])
        memory.hazards.touch(memory.hazards.dram, beats, writes=store)
    (memory.written if store else memory.read)[Class(d["class_"])] += blocks * piece_bytes
    return np.ndarray((blocks, piece_bytes), np.uint8, memory.dram, address, (block_bytes, 1))
