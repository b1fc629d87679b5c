"""What strips and patches share: which operators run on some columns alone, and which widths are tried."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np

from lfopt.ir import NEVER, round_up
from lfopt.ops import OPAQUE
from lfopt.ops.columns import column_count, column_reads
from lfopt.planning.groups.groups import Groups
from lfopt.planning.nest.price import NestPrice
from lfopt.planning.nest.spans import BlockGrid, lowest, needed
from lfopt.planning.nest.tree import BlockLoop, Blocks, GroupNest

KEPT = 1 << 14  # groups whose choices are remembered


class ColumnCut(Protocol):
    """One way to cut a group."""

    @property
    def blocks(self) -> int:
        """Strips or patches of the group."""
        ...

    @property
    def buffer_bytes(self) -> int:
        """F_beta."""
        ...

    @property
    def read(self) -> int:
        """DRAM bytes of maps."""
        ...

    @property
    def written(self) -> int:
        """DRAM bytes of results."""
        ...


CutType = TypeVar("CutType", bound=ColumnCut)


class CutGroups(Generic[CutType]):
    """Groups of one dataflow whose maps are cut along columns, on one chip with whatever buffer."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self._choices: dict[tuple[int, int], tuple[CutType, ...]] = {}  # by group and rows made at a time

    @abstractmethod
    def _ways(self, mask: int, rows: int) -> Iterable[CutType]:
        """The ways that are worth trying, in any order; `rows`: of a result, made at a time."""

    @abstractmethod
    def nest(self, mask: int, choice: CutType) -> GroupNest:
        """How the group runs."""

    def choices(self, mask: int, rows: int = 1) -> tuple[CutType, ...]:
        """All ways to cut the group that are worth trying: fewest bytes first, of equals fewest blocks."""
        key = mask, rows
        if key not in self._choices:
            if len(self._choices) >= KEPT:
                self._choices.clear()
            ways = () if mask & ~self.able else self._ways(mask, rows)
            self._choices[key] = tuple(
                sorted(ways, key=lambda way: (way.read + way.written, way.blocks, way.buffer_bytes))
            )
        return self._choices[key]

    def cheapest(self, mask: int, beta: int, rows: int = 1) -> CutType | None:
        """The first way that fits strictly, with so many rows of a result at a time; None if none does."""
        return next((choice for choice in self.choices(mask, rows) if choice.buffer_bytes < beta), None)

    def least(self, mask: int) -> CutType | None:
        """The way that takes the least buffer."""
        return min(self.choices(mask), key=lambda choice: choice.buffer_bytes, default=None)

    @cached_property
    def able(self) -> int:
        """Mask of the operators that can run on some columns alone."""
        return sum(1 << op for op in range(len(self.groups.dataflow)) if self._runs(op))

    def _runs(self, op: int) -> bool:
        flow = self.groups.dataflow
        call = flow.calls[op]
        maps = [*flow.results[op], *(o.map for o in flow.operands[op])]
        if flow.specs[op] is OPAQUE or flow.running >> op & 1 or any(w.gathered for w in flow.weights[op]):
            return False
        if not flow.operands[op] or not all(flow.maps[m].elements for m in maps):
            return False
        for operand in flow.operands[op]:
            root = flow.maps[operand.map].shape
            seen = call.shape(operand.input)
            reads = column_reads(call, operand.input) if seen == root or column_count(root) == 1 else None
            if reads is None or reads.rows_in != column_count(root):
                return False
        return True

    def narrowest(self, mask: int) -> int:
        """Columns of the narrowest map that has several."""
        flow = self.groups.dataflow
        widths = [column_count(flow.maps[m].shape) for m in flow.touched(mask)]
        return min(width for width in widths if width > 1)

    def sizes(
        self, price: NestPrice, grid: BlockGrid, valid: np.ndarray
    ) -> Iterator[tuple[Blocks, int, int, int]]:
        """(blocks, F_beta, DRAM bytes of maps, of results) of each way that is valid and may fit a buffer."""
        figures = np.broadcast_arrays(price.map_bytes, price.constant_bytes, price.input, price.output, valid)
        ways = zip(grid.ways, *(figure.tolist() for figure in figures), strict=True)
        for blocks, maps, weights, read, written, is_valid in ways:
            need = self.groups.hardware.buffer_need(maps, weights)
            if is_valid and need < NEVER:
                yield blocks, need, read, written

    def movable(self, mask: int, price: NestPrice, loop: BlockLoop) -> np.ndarray:
        """(ways,) bool: whether the chip moves the columns of every block: `BufferLayout.movable_columns`."""
        layout = price.layout
        grid = price.regions.grids[loop]
        spans = price.regions.spans[loop]
        movable = np.ones(grid.counts.size, bool)
        if layout.moves_any_columns:
            return movable
        flow = self.groups.dataflow
        leaving = flow.leaving(mask)
        carried = price.nest.carried
        cuts: list[tuple[int, np.ndarray]] = []
        for m, loaded in spans.loaded.items():
            cuts.append((m, loaded.new if m in carried else loaded.start))
        for op, (start, stop) in spans.stored.items():
            cuts += [(m, end) for m in flow.results[op] if m in leaving for end in (start, stop)]
        for m, columns in cuts:
            shape = flow.maps[m].shape
            at_end = columns == column_count(shape)
            aligned = columns * layout.column_bytes(shape) % layout.hardware.dram_row_align == 0
            movable &= grid.least(at_end | aligned) > 0
        return movable

    def sensible(self, price: NestPrice, loop: BlockLoop, maps: Iterable[int]) -> np.ndarray:
        """(ways,) bool: whether every block has something of each map that the one before has not.

        And reads some of every operand.
        """
        grid = price.regions.grids[loop]
        spans = price.regions.spans[loop]
        sensible = np.ones(grid.counts.size, bool)
        for m in maps:
            own = price.regions.along(loop, m)
            if own is not None:
                sensible &= grid.least(own.stop - own.new) > 0
        for readers in spans.readers.values():
            for own, reads in readers:
                if -1 in reads.last:  # some of the result needs none of the operand
                    sensible &= grid.least(needed(reads, own.stop) - lowest(reads, own.start)) > 0
        return sensible


def column_blocks(count: int, narrowest: int, most: int) -> list[Blocks]:
    """Blocks of columns worth trying, widest first, two of them or more, up to `most`.

    Where maps are narrower than the results, their columns are also multiples of that ratio.
    """
    widths = {-(-count // n) for n in range(2, min(most, count) + 1)}
    grain = count // narrowest
    if grain > 1:
        widths |= {round_up(n, grain) for n in widths}
    return [Blocks.of_size(n, count) for n in sorted((n for n in widths if n < count), reverse=True)]
