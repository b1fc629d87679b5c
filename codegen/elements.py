"""How elements of float32 maps lie in memory: as floats, or rounded to bfloat16.

In registers they are floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from codegen.blob import Blob

ElementName = Literal["float32", "bf16"]  # as users call them
ELEMENT: Final = "float32"  # unless something else is asked for


@dataclass(frozen=True, slots=True)
class Element:
    """A type that maps are stored in.

    Addresses and values are C expressions; vectors are those of prelude.h.
    """

    name: ElementName
    ctype: str
    bytes: int  # of an element

    @property
    def floats(self) -> bool:
        """Whether a float is stored as it is."""
        return self.ctype == "float"

    def load(self, lanes: int | str, address: str) -> str:
        """C expression: the vector of floats at an address."""
        if self.floats:
            if " " in address:
                return f"*(const u{lanes} *)({address})"
            return f"*(const u{lanes} *){address}"
        return f"load_{lanes}({address})"

    def store(self, lanes: int, address: str, value: str) -> str:
        """C statement: a vector of floats goes to an address, each rounded to the nearest (to even)."""
        if self.floats:
            return f"*(u{lanes} *)({address}) = {value};"
        return f"store_{lanes}({address}, {value});"

    def constant(self, blob: Blob, values: np.ndarray) -> str:
        """C expression: the address of float32 constants of any shape, stored so, in C order."""
        if self.floats:
            return blob.add(values)
        return f"((const bf16 *)(const void *){blob.add(rounded(values), 'uint16')})"

    def read(self, place: str) -> str:
        """C expression: the float that is stored in an element, given as an lvalue."""
        if self.floats:
            return place
        return f"widened({place})"

    def write(self, place: str, value: str) -> str:
        """C statement: a float goes to an element, given as an lvalue."""
        if self.floats:
            return f"{place} = {value};"
        return f"{place} = rounded({value});"


FLOAT32 = Element("float32", "float", 4)
BF16 = Element("bf16", "bf16", 2)
ELEMENTS: dict[str, Element] = {element.name: element for element in (FLOAT32, BF16)}


def rounded(values: np.ndarray) -> np.ndarray:
    """Bits, uint16 of the same shape, of float32 values rounded to bfloat16, to the nearest.

    To even where two are as near.

    >>> [hex(bits) for bits in rounded(np.array([1.0, 1.00390625, 1.01171875, np.inf, np.nan], np.float32))]
    ['0x3f80', '0x3f80', '0x3f82', '0x7f80', '0x7fc0']
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, nearest).astype(np.uint16)


def paired(values: np.ndarray) -> np.ndarray:
    """(..., ceil(n / 2), k) uint32: bits of pairs of values, (..., n, k), along the axis before the last.

    The first is in the low half; 0 where none is left.

    >>> [hex(bits) for bits in paired(np.array([[1.0], [2.0], [3.0]], np.float32)).ravel()]
    ['0x40003f80', '0x4040']
    """
    halves = rounded(values).astype(np.uint32)
    if halves.shape[-2] % 2:
        halves = np.concatenate([halves, np.zeros_like(halves[..., :1, :])], axis=-2)
    return halves[..., ::2, :] | halves[..., 1::2, :] << np.uint32(16)
