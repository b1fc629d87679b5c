"""What a search for covers asks about groups: the contract between models that price them and searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from lfopt.ops import Dataflow

ALONE = (
    -1
)  # of claims on maps, instead of a mask of operators: a map counts by itself, with all that it takes


class CoverPrice(NamedTuple):
    """What a group of a cover costs."""

    dram_bytes: int
    work: int  # multiply-accumulates or cycles, see `CoverModel.work`; repeated ones count, too


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
    def store_bytes(self) -> Sequence[int]:
        """Per map: bytes more that a group moves at the most which stores it, too."""
        ...

    @property
    def own_bytes(self) -> Sequence[int]:
        """Per operator: bytes of constants that it moves in any group, whatever others are in it."""
        ...

    @property
    def work(self) -> Sequence[int]:
        """Per operator: its multiply-accumulates, or cycles that it takes, where it runs once."""
        ...

    @property
    def input_bytes(self) -> Sequence[int]:
        """Per map: bytes of it that a network moves at the least which has it as input and reads it."""
        ...

    @property
    def free(self) -> int:
        """Operators that move nothing where they are alone."""
        ...

    @property
    def grouped(self) -> int:
        """Mask of operators: groups of none of them have no `group_bytes`."""
        ...

    @property
    def sharing(self) -> int:
        """Mask of operators that read constants which others read, too: a group moves those once."""
        ...

    @property
    def kept(self) -> int:
        """Mask of maps that groups may store and load for nothing: `map_bytes` of them is 0."""
        ...

    @property
    def parts_join(self) -> bool:
        """Whether operators may be a group that nothing connects."""
        ...

    def group_bytes(self, operators: int, reads: int, stores: int, /) -> int:
        """Bytes that a group moves at the least beside `map_bytes` and `own_bytes`.

        Those of constants that several of its operators share, and of maps that may stay on chip, but not all
        of them at a time. It never falls as operators or maps join. `reads`, `stores`: masks of maps.
        """
        ...

    def least_extra(self, operators: int, /) -> int | None:
        """Bytes that any group moves which holds these operators, beside maps and `own_bytes`, at the least.

        None if no such group is legal. It never falls as operators join; 0 where nothing is known.
        """
        ...

    def dram_bytes(self, operators: int, stores: int, /) -> int | None:
        """The fewest bytes of a group that stores these maps; None if it is not legal.

        A single operator always is.
        """
        ...

    def ways(self, operators: int, stores: int, /) -> Sequence[CoverPrice]:
        """Ways to run a legal group: with the fewest bytes, and with the fewest that repeat no product."""
        ...
