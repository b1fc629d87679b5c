"""Which maps of a group are sliced, which constants pass in blocks, and the least that this takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Start = Literal["sliced", "full"]  # maps that the first contractions of a group make
STARTS: tuple[Start, ...] = ("sliced", "full")


class Streamed(NamedTuple):
    """A constant that can pass block by block."""

    input: int  # index among the operator's inputs
    name: str
    late: bool  # read when sums are finished: a bias


@dataclass(frozen=True, slots=True)
class SlicingFacts:
    """Facts about an operator that hold in any group."""

    never: bool  # it cannot run in bands
    contracts: bool  # it sums over input channels, with constant weights: from a full map it can make slices
    sums: bool  # it can also take its input channels slice by slice
    streamed: tuple[Streamed, ...]  # its constants, if they fall into blocks of output channels
    held: tuple[str, ...]  # its constants, if not
    computes: bool  # whether it computes a row in every group
    # rows that it computes in any group, from the first on without gaps; 0 if it makes slices and a reader
    # may leave gaps
    least_rows: int
    # per operand: map, and rows of it that are on chip at once for this operator in any group
    least_held: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Slicing:
    """A group with one of the two starts: which maps are sliced, and the least that it takes.

    It only grows as operators of higher index join.
    """

    # per sliced map: the contraction that its segment begins with
    head: dict[int, int] = field(default_factory=dict[int, int])
    segment: dict[int, int] = field(default_factory=dict[int, int])  # per operator of a segment: the same
    summing: int = 0  # mask of the contractions that sum over slices
    deep: int = 0  # mask of the operators at or after a contraction of the group
    forks: bool = False  # whether the start made a difference
    rows: dict[int, int] = field(default_factory=dict[int, int])  # per map: rows held at the least
    full_bytes: int = 0  # of full maps, at the least
    # per segment: bytes of slices and sums, at the least
    scratch: dict[int, int] = field(default_factory=dict[int, int])
    block_bytes: int = 0  # of buffer, of the largest weight block
    held: frozenset[str] = frozenset()  # constants that are held whole in any case
    held_bytes: int = 0  # of buffer

    @property
    def floor(self) -> int:
        """Lower bound on F_beta in bytes, of this group and of every group that it is grown into."""
        return self.full_bytes + max(self.scratch.values(), default=0) + self.block_bytes + self.held_bytes
