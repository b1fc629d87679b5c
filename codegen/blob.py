"""Constants of a model, packed for its kernels: one run of bytes, found by offset."""

from __future__ import annotations

import numpy as np

ALIGN = 64  # bytes


class Blob:
    """Packed constants; equal ones are held once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._known: dict[bytes, int] = {}
        self._size = 0

    def add(self, values: np.ndarray) -> str:
        """C expression for a pointer to these values, as float32."""
        data = np.ascontiguousarray(values, np.float32).tobytes()
        if data not in self._known:
            self._known[data] = self._size
            self._parts.append(data + bytes(-len(data) % ALIGN))
            self._size += len(self._parts[-1])
        return f"(m->weights + {self._known[data] // 4})"

    def bytes(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)


def fnv1a(data: bytes) -> int:
    """FNV-1a, 64 bits, over whole words of 8 bytes, so that it keeps up with a disk; `data` is a multiple of 8 bytes."""
    found = 0xCBF29CE484222325
    for word in np.frombuffer(data, "<u8").tolist():
        found = (found ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found
