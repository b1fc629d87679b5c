"""Commands in the order in which they run, with what they read and write on chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lfopt.isa.tables import MOVING, Kind, Opcode

Words = tuple[int, int]  # first word, number of words
Payload = tuple[tuple[str, int], ...]  # fields of a descriptor that are not 0, in order of their names


@dataclass(slots=True)
class IssuedCommand:
    """A LOAD, STORE or EXEC."""

    opcode: Opcode
    payload: Payload
    count: int  # rows; 1 for a block of constants
    numbers: tuple[int, ...]  # as MOVING has them
    # (first, number) of words of the buffer, behind which are rows of factors, then tables
    reads: list[Words] = field(default_factory=list[Words])
    writes: list[Words] = field(default_factory=list[Words])
    map: str = ""  # the map in DRAM that is loaded or stored; its rows follow from the numbers
    waits: dict[Opcode, int] = field(default_factory=dict[Opcode, int])  # distances

    @property
    def kind(self) -> Kind:
        """Kind of its descriptor."""
        if self.opcode is Opcode.EXEC:
            return Kind.COMPUTATION
        return Kind.TRANSFER


def payload(values: Mapping[str, int]) -> Payload:
    """A descriptor's fields as something that can be compared."""
    return tuple(sorted((name, int(value)) for name, value in values.items() if value))


def numbers(**values: int) -> tuple[int, ...]:
    """The moving numbers of a command; those not named are 0."""
    return tuple(values.get(name, 0) for name in MOVING)
