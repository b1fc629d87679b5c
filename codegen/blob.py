"""Constants of a model, packed for its kernels: one run of bytes, found by offset."""

from __future__ import annotations

import numpy as np

ALIGN = 64  # bytes
BASE = 0x9E3779B97F4A7C15
AT_ONCE = 1 << 16  # words


class Blob:
    """Packed constants; equal ones are held once."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []  # of bytes, padding among them
        # size and first bytes -> such runs of bytes, and where they begin
        self._known: dict[tuple[int, bytes], list[tuple[np.ndarray, int]]] = {}
        self._size = 0

    def add(self, values: np.ndarray, dtype: str = "float32") -> str:
        """C expression, a `const float *` whatever the dtype: address of values of any shape, in C order."""
        return f"(m->weights + {self.place(values, dtype) // 4})"

    def place(self, values: np.ndarray, dtype: str) -> int:
        """Bytes from the start to values of any shape, in C order.

        Nobody may change these from then on: only `bytes` copies them.
        """
        data = np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8)
        alike = self._known.setdefault((data.size, data[:ALIGN].tobytes()), [])
        for other, at in alike:
            if np.array_equal(data, other):
                return at
        alike.append((data, self._size))
        self._parts += [data, np.zeros(-data.size % ALIGN, np.uint8)]
        self._size += data.size + self._parts[-1].size
        return alike[-1][1]

    def bytes(self) -> bytes:
        """All constants, as they lie in the file of weights."""
        return b"".join(part.data for part in self._parts)


def digest(data: bytes) -> int:
    """The hash of weights, as `hash_of` in prelude.h: words of 8 bytes as digits to a base, modulo 2**64.

    `data` is a multiple of 8 bytes.

    >>> digest((5).to_bytes(8, "little") + (7).to_bytes(8, "little")) == (5 * BASE + 7) % 2**64
    True
    """
    powers = np.multiply.accumulate(np.full(AT_ONCE, BASE, np.uint64))[::-1]  # BASE**AT_ONCE to BASE**1
    words = np.frombuffer(data, "<u8")
    remainder = 0
    for first in range(0, words.size, AT_ONCE):
        part = words[first : first + AT_ONCE]
        total = int((part[:-1] * powers[AT_ONCE - part.size + 1 :]).sum(dtype=np.uint64)) + int(part[-1])
        remainder = (remainder * pow(BASE, part.size, 1 << 64) + total) % (1 << 64)
    return remainder
