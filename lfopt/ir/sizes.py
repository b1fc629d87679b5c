"""Numbers as people write them: 256KiB, 800MHz, 12.8GB/s, 4 bits, 800e6, 1000."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from lfopt.ir.errors import InvalidConfig

UNLIMITED = 1 << 40  # bytes: stands for a buffer without a limit, and no size may be larger
# bytes of a unit of sizes; any case but for B
UNITS = {
    "": 1,
    "B": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
}
# of DRAM traffic alone: of a buffer they might be meant as powers of two, and are refused
DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE]\+?[0-9]{1,2})?"
# by the end of a field's name: units in which it may be written, spelled as here
QUANTITIES: Mapping[str, Mapping[str, Fraction]] = {
    "_hz": {"Hz": Fraction(1), "kHz": Fraction(10**3), "MHz": Fraction(10**6), "GHz": Fraction(10**9)},
    "_bytes_per_second": {
        **{
            f"{prefix}B/s": Fraction(10**power)
            for prefix, power in (("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12))
        },
        **{
            f"{prefix}iB/s": Fraction(1 << power)
            for prefix, power in (("K", 10), ("M", 20), ("G", 30), ("T", 40))
        },
    },
    "_bits": {"b": Fraction(1), "bit": Fraction(1), "bits": Fraction(1)},
    "_pj_per_bit": {"fJ/bit": Fraction(1, 1000), "pJ/bit": Fraction(1), "nJ/bit": Fraction(1000)},
    "_pj": {"fJ": Fraction(1, 1000), "pJ": Fraction(1), "nJ": Fraction(1000)},
    "slack": {"%": Fraction(1, 100)},
    "_utilization": {"%": Fraction(1, 100)},
}
REAL = ("_pj_per_bit", "_pj", "slack", "_utilization")  # those of fields that need not be whole numbers
EXAMPLES = {
    "_hz": "800MHz",
    "_bytes_per_second": "12.8GB/s",
    "_bits": "4 bits",
    "_pj_per_bit": "20pJ/bit",
    "_pj": "1.3nJ",
    "slack": "0.1%",
    "_utilization": "85%",
}


def parse_size(text: str | int, what: str, *, decimal: bool = False) -> int:
    """Bytes of a size as people write it; `decimal`: KB, MB and GB are accepted too, as powers of ten.

    Raises InvalidConfig, which names `what`, for anything else.

    >>> parse_size("256KiB", "--buffer"), parse_size("4.5MB", "--max-bytes", decimal=True)
    (262144, 4500000)
    """
    if text == "unlimited":
        return UNLIMITED
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    match = re.fullmatch(rf"({NUMBER})\s*([a-zA-Z]*)", str(text).strip())
    units = UNITS | DECIMAL if decimal else UNITS
    unit = "" if match is None else match[2] if match[2] in ("b", "B") else match[2].lower()
    size = Fraction(match[1]) * units.get(unit, -1) if match else Fraction(-1)
    if size < 1 or size.denominator != 1:
        meant = "; a b alone may stand for bits: write B" if unit == "b" else ""
        raise InvalidConfig(
            f"{what}: found {text!r}; accepted: a size such as 262144, 256KiB or "
            f"{'4.5MB' if decimal else '4MiB'}, or unlimited{meant}"
        )
    return int(size)


def quantity(name: str) -> str:
    """The end of a field's name that says its units: a key of `QUANTITIES`, `_bytes`, or nothing.

    >>> quantity("clock_hz"), quantity("buffer_bytes"), quantity("mac_rows")
    ('_hz', '_bytes', '')
    """
    return next((ending for ending in (*QUANTITIES, "_bytes") if name.endswith(ending)), "")


def read_number(name: str, value: object, what: str) -> object:
    """The number of a field that is written with a unit or an exponent; other values stay as they are.

    Raises InvalidConfig, which names `what`, for a unit that the field does not have and for a part of a
    byte.

    >>> read_number("clock_hz", "0.8GHz", "clock_hz"), read_number("mac_rows", 16.0, "mac_rows")
    (800000000, 16)
    >>> read_number("dram_byte_pj", "1.3nJ", "")
    1300.0
    """
    ending = quantity(name)
    if isinstance(value, float):
        if ending == "_bytes" and not value.is_integer():
            raise InvalidConfig(
                f"{what}: found {value!r}; accepted: whole bytes; "
                "for weights of fewer bits there is weight_bits"
            )
        if value.is_integer() and ending not in REAL:
            return int(value)
        return value
    if not isinstance(value, str) or not ending:
        return value
    if ending == "_bytes":
        return parse_size(value, what)
    units = QUANTITIES[ending]
    match = re.fullmatch(rf"({NUMBER})\s*([a-zA-Z/%]*)", value.strip())
    scale = {"": Fraction(1), **units}.get(match[2]) if match else None
    if match is None or scale is None:
        raise InvalidConfig(
            f"{what}: found {value!r}; "
            f"accepted: a number, alone or in {', '.join(units)}, such as {EXAMPLES[ending]}"
        )
    size = Fraction(match[1]) * scale
    if size.denominator == 1 and ending not in REAL:
        return int(size)
    return float(size)
