"""A command stream: what the accelerator reads to carry out a plan, and its memory map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredMap:
    """A map with channels [c], rows [h] and columns [w] in the accelerator's memory.

    Row by row; a row is [block of channels][column][channel of the block], where the last block has what is
    left, padded to `row_bytes`.
    """

    name: str
    shape: tuple[int, ...]  # of the tensor: [1, c, h, w] or [1, c]
    dtype: str  # int8 or uint8
    address: int  # bytes
    row_bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class CommandStream:
    """A program, its constants, and its memory map: program, constants, then maps from `maps_address` on."""

    name: str  # of the model
    lanes: int
    buffer_bytes: int
    program: bytes  # at address 0
    constants: bytes  # at constants_address
    constants_address: int
    maps_address: int
    memory_bytes: int  # in all
    maps: tuple[StoredMap, ...]  # all of them: inputs, and what groups store
    inputs: tuple[StoredMap, ...]
    outputs: tuple[StoredMap, ...]
    commands: int  # that run, loops unrolled

    def __repr__(self) -> str:
        return (
            f"CommandStream({self.name}: "
            f"{self.commands:,} commands in {len(self.program):,} B, memory {self.memory_bytes:,} B)"
        )
