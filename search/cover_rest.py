"""What groups cost beside what other maps take: the `CoverModel` in which those are there for nothing."""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.fusion import CoverPrice
from lfopt.ops import bits
from search.cover_network import CoverNetwork


class RestModel:
    """Groups of the operators that others do not depend on. Where they would be legal, they are.

    What is there before, and maps that operators in `done` make, move for nothing. Nothing is moved beyond
    once: that counts with the others. Maps that may stay on chip do not lack room.
    """

    def __init__(self, network: CoverNetwork, done: int) -> None:
        """`done`: mask of operators, with all that they depend on."""
        model = network.model
        there = network.results_of(done) | network.inputs
        self.model = model
        self.network = network
        self.dataflow = model.dataflow
        self.map_bytes = [0 if there >> m & 1 else size for m, size in enumerate(model.map_bytes)]
        self.store_bytes = self.map_bytes
        self.input_bytes = [0 if there >> m & 1 else size for m, size in enumerate(model.input_bytes)]
        self.own_bytes = model.own_bytes
        self.work = model.work
        self.free = model.free
        self.kept = sum(1 << m for m, size in enumerate(self.map_bytes) if not size)
        self.parts_join = True
        self.grouped = 0
        self.sharing = 0  # shared constants count with the others

    def group_bytes(self, _operators: int, _reads: int, _stores: int, /) -> int:
        """See `CoverModel`: what is shared may be moved for the others, and the room is theirs."""
        return 0

    def least_extra(self, operators: int, /) -> int | None:
        """See `CoverModel`."""
        return None if self.model.least_extra(operators) is None else 0

    def dram_bytes(self, operators: int, stores: int, /) -> int | None:
        """See `CoverModel`."""
        if operators & self.free == operators and not operators & (operators - 1):
            return 0
        if self.least_extra(operators) is None:
            return None
        moved = self.network.reads_of(operators) | stores
        size = sum(self.map_bytes[m] for m in bits(moved))
        return size + sum(self.own_bytes[i] for i in bits(operators))

    def ways(self, operators: int, stores: int, /) -> Sequence[CoverPrice]:
        """See `CoverModel`: all work is done once."""
        moved = self.dram_bytes(operators, stores)
        return () if moved is None else (CoverPrice(moved, self.network.work_of(operators)),)
