"""Sizes as people write them: 256KiB, 4MiB, 1000."""

from __future__ import annotations

import re
from fractions import Fraction

from lfopt.ir.errors import InvalidConfig

UNLIMITED = 1 << 40  # bytes: stands for a buffer without a limit, and no figure may be larger
UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9}  # of DRAM traffic; of a buffer, where they might be meant as powers of two, they are refused


def parse_size(text: str | int, what: str, *, decimal: bool = False) -> int:
    """Bytes. `decimal`: whether KB, MB and GB are accepted too, as powers of ten.

    >>> parse_size("256KiB", "--buffer"), parse_size("4.5MB", "--max-bytes", decimal=True)
    (262144, 4500000)
    """
    if text == "unlimited":
        return UNLIMITED
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    found = re.fullmatch(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([a-zA-Z]*)", str(text).strip())
    units = UNITS | DECIMAL if decimal else UNITS
    size = Fraction(found[1]) * units.get(found[2].lower(), -1) if found else Fraction(-1)
    if size < 1 or size.denominator != 1:
        raise InvalidConfig(f"{what}: found {text!r}; accepted: a size such as 262144, 256KiB or {'4.5MB' if decimal else '4MiB'}, or unlimited")
    return int(size)
