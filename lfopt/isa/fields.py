"""Bit fields side by side in a word: how they are packed, unpacked and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


class BadField(ValueError):
    """A value that its field does not hold, or bits that no field allows."""


@dataclass(frozen=True, slots=True)
class Field:
    """Some bits of a word."""

    name: str
    bits: int
    about: str  # meaning and unit, one line
    signed: bool = False  # two's complement

    @property
    def least(self) -> int:
        """Smallest value."""
        if self.signed:
            return -(1 << self.bits - 1)
        return 0

    @property
    def most(self) -> int:
        """Largest value."""
        return (1 << self.bits - self.signed) - 1


@dataclass(frozen=True)
class WordLayout:
    """A word cut into fields, from the lowest bit up; the bits above the last one are 0."""

    name: str
    bits: int  # of the word
    about: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        assert self.used_bits <= self.bits, f"{self.name}: {self.used_bits} bits of fields in {self.bits}"
        assert len(self.by_name) == len(self.fields), f"{self.name}: a name is used twice"

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """Fields by name."""
        return {field.name: field for field in self.fields}

    @property
    def used_bits(self) -> int:
        """Bits of all fields together."""
        return sum(field.bits for field in self.fields)

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """Lowest bit of every field."""
        lowest_bits: dict[str, int] = {}
        at = 0
        for field in self.fields:
            lowest_bits[field.name] = at
            at += field.bits
        return lowest_bits

    def pack(self, values: Mapping[str, int]) -> int:
        """The word that holds these values; what is not named is 0. Raises BadField.

        >>> pair = WordLayout("pair", 8, "", (Field("low", 4, ""), Field("high", 3, "", signed=True)))
        >>> pair.pack({"low": 5, "high": -1})
        117
        """
        word = 0
        for name, value in values.items():
            field = self.by_name.get(name)
            if field is None:
                raise BadField(f"{self.name}: found a field {name!r}; accepted: {', '.join(self.by_name)}")
            if not field.least <= value <= field.most:
                raise BadField(f"{self.name}.{name}: found {value}; accepted: {field.least} to {field.most}")
            word |= (value & (1 << field.bits) - 1) << self.offsets[name]
        return word

    def unpack(self, word: int) -> dict[str, int]:
        """The value of every field. Raises BadField for bits that belong to none.

        >>> WordLayout("pair", 8, "", (Field("low", 4, ""), Field("high", 3, "", signed=True))).unpack(117)
        {'low': 5, 'high': -1}
        """
        if word >> self.used_bits:
            raise BadField(f"{self.name}: bits above {self.used_bits - 1} are set; accepted: 0")
        fields: dict[str, int] = {}
        for field in self.fields:
            value = word >> self.offsets[field.name] & (1 << field.bits) - 1
            fields[field.name] = (
                value - (1 << field.bits) if field.signed and value >> field.bits - 1 else value
            )
        return fields
