"""The manifest of a command stream: what a driver must know, readable without a library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from codegen.accel.maps import dimensions
from lfopt.ir import CommandStream, StoredMap
from lfopt.isa.manifest import MAGIC, Header, MapEntry
from lfopt.isa.registers import BYTES, ISA


def manifest(stream: CommandStream) -> bytes:
    """See `lfopt.isa.manifest`."""
    maps = [value for stored in (*stream.inputs, *stream.outputs) for value in _entry(stored)]
    header = {
        Header.MAGIC: MAGIC,
        Header.CHECKSUM: 0,
        Header.BYTES: BYTES * (len(Header) + len(maps)),
        Header.ISA: ISA,
        Header.LANES: stream.lanes,
        Header.BUFFER_BYTES: stream.buffer_bytes,
        Header.MEMORY_BYTES: stream.memory_bytes,
        Header.PROGRAM_ADDRESS: 0,
        Header.PROGRAM_BYTES: len(stream.program),
        Header.PROGRAM_CHECKSUM: zlib.adler32(stream.program),
        Header.CONSTANTS_ADDRESS: stream.constants_address,
        Header.CONSTANTS_BYTES: len(stream.constants),
        Header.CONSTANTS_CHECKSUM: zlib.adler32(stream.constants),
        Header.MAPS_ADDRESS: stream.maps_address,
        Header.COMMANDS: stream.commands,
        Header.INPUTS: len(stream.inputs),
        Header.OUTPUTS: len(stream.outputs),
    }
    words = [*(header[word] for word in Header), *maps]
    return sealed(struct.pack(f"<{len(words)}I", *words))


def sealed(data: bytes) -> bytes:
    """A manifest with the checksum that it must have."""
    at = BYTES * Header.CHECKSUM
    behind = data[at + BYTES :]
    return data[:at] + struct.pack("<I", zlib.adler32(behind)) + behind


def _entry(stored: StoredMap) -> Iterator[int]:
    channels, rows, columns = dimensions(stored)
    entry = {
        MapEntry.ADDRESS: stored.address,
        MapEntry.CHANNELS: channels,
        MapEntry.ROWS: rows,
        MapEntry.COLUMNS: columns,
        MapEntry.ROW_BYTES: stored.row_bytes,
        MapEntry.SIGNED: int(np.dtype(stored.dtype).kind == "i"),
    }
    yield from (entry[word] for word in MapEntry)
