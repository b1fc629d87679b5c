"""What a search for covers asks about groups: the contract between models that price them and searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from lfopt.ops import Dataflow


class CoverPrice(NamedTuple):
    """What a group of a cover costs."""

    dram_bytes: int
    macs: int  # multiply-accumulates that it does, those that it repeats included


class CoverModel(Protocol):
    """What groups of covers cost on a chip. Sets of operators and of maps are masks."""

    @property
    def dataflow(self) -> Dataflow:
        """The operators, and what each reads and makes."""
        ...

    @property
    def map_bytes(self) -> Sequence[int]:
        """Per map: bytes that a group moves which stores it, or loads it, at the least."""
        ...

    @property
    def own_bytes(self) -> Sequence[int]:
        """Per operator: bytes of constants that it moves in any group, whatever others are in it."""
        ...

    @property
    def input_bytes(self) -> Sequence[int]:
        """Per map: bytes of it that a network moves at the least which has it as input and reads it."""
        ...

    @property
    def free(self) -> int:
        """Operators that move nothing where they are alone."""
        ...

    def dram_bytes(self, operators: int, stores: int, /) -> int | None:
        """The fewest bytes of a group that stores these maps; None if it is not legal.

        A single operator always is.
        """
        ...

    def ways(self, operators: int, stores: int, /) -> Sequence[CoverPrice]:
        """Ways to run a legal group: with the fewest bytes, and with the fewest that repeat no product."""
        ...
