"""Groups in strips of columns: which strips are worth trying, and how each group then runs.

The results of a group are cut into n strips of equally many columns, the last one perhaps narrower. For each
strip the group runs in line-buffer depth-first order on the columns that the strip needs of every map. What
two strips need, the *halo*, is loaded or computed for either of them.

Columns that nothing needs between two strips belong to the later one, so that strips cover every map.

In the words of DeFiNES (Mei et al., arXiv 2212.05344), rows are "fully cached" and columns "fully
recomputed".
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from lfopt.ir import NEVER, round_up
from lfopt.ops import OPAQUE, bits
from lfopt.ops.columns import column_count, column_reads
from lfopt.planning.groups.groups import Groups
from lfopt.planning.nest.price import NestPrice, NestPricing
from lfopt.planning.nest.spans import BlockGrid, lowest, needed
from lfopt.planning.nest.tree import BlockLoop, Blocks, GroupNest, Held, Node, RowLeaf
from lfopt.planning.steps.layout import BufferLayout

MOST_STRIPS = 64  # in a group
KEPT = 1 << 14  # groups whose strips are remembered


class StripPartition(NamedTuple):
    """One way to cut a group into strips."""

    columns: int  # of the narrowest result in each strip
    strips: int
    buffer_bytes: int  # F_beta, bytes
    read: int  # DRAM bytes of maps
    written: int  # DRAM bytes of results


class StripGroups:
    """Groups of one dataflow in strips, on one chip with whatever buffer.

    `recompute`: multiply-accumulates over those of a group's operators.
    """

    def __init__(self, groups: Groups, recompute: float) -> None:
        self.groups, self.recompute = groups, recompute
        self.pricing = NestPricing(BufferLayout(groups.dataflow, groups.hardware), groups.line_buffers)
        self._choices: dict[int, tuple[StripPartition, ...]] = {}
        self._grids: dict[tuple[int, int], BlockGrid] = {}  # by columns of the narrowest result and map

    @cached_property
    def able(self) -> int:
        """Mask of the operators that can run in strips."""
        return sum(1 << op for op in range(len(self.groups.dataflow)) if self._runs(op))

    def _runs(self, op: int) -> bool:
        flow = self.groups.dataflow
        call, maps = flow.calls[op], [*flow.results[op], *(o.map for o in flow.operands[op])]
        if flow.specs[op] is OPAQUE or flow.running >> op & 1 or any(w.gathered for w in flow.weights[op]):
            return False
        if not flow.operands[op] or not all(flow.maps[m].elements for m in maps):
            return False
        for operand in flow.operands[op]:
            root, seen = flow.maps[operand.map].shape, call.shape(operand.input)
            reads = column_reads(call, operand.input) if seen == root or column_count(root) == 1 else None
            if reads is None or reads.rows_in != column_count(root):
                return False
        return True

    def columns(self, mask: int) -> int:
        """Columns of the narrowest result, which strips cut; 1: there are none.

        So where a result of an operator has no readers.
        """
        flow = self.groups.dataflow
        if any(not flow.succs[i] and not any(flow.is_output[m] for m in flow.results[i]) for i in bits(mask)):
            return 1
        return min((column_count(flow.maps[m].shape) for m in flow.leaving(mask)), default=1)

    # -- choices ---------------------------------------------------------------------------------------------

    def choices(self, mask: int) -> tuple[StripPartition, ...]:
        """All ways to cut the group into strips, fewest bytes first, of equals fewest strips."""
        if mask not in self._choices:
            if len(self._choices) >= KEPT:
                self._choices.clear()
            priced = self._priced(mask) if not mask & ~self.able and self.columns(mask) > 1 else ()
            self._choices[mask] = tuple(
                sorted(
                    priced,
                    key=lambda choice: (choice.read + choice.written, choice.strips, choice.buffer_bytes),
                )
            )
        return self._choices[mask]

    def cheapest(self, mask: int, beta: int) -> StripPartition | None:
        """The strips that move the fewest bytes and fit strictly; None if none do."""
        return next((choice for choice in self.choices(mask) if choice.buffer_bytes < beta), None)

    def least(self, mask: int) -> StripPartition | None:
        """The strips that take the least buffer."""
        return min(self.choices(mask), key=lambda choice: choice.buffer_bytes, default=None)

    def _priced(self, mask: int) -> list[StripPartition]:
        """The ways that are worth trying, widest strips first."""
        flow, hardware, count = self.groups.dataflow, self.groups.hardware, self.columns(mask)
        widths = [column_count(flow.maps[m].shape) for m in flow.touched(mask)]
        narrowest = min(width for width in widths if width > 1)
        grid = self._grids.get((count, narrowest))
        if grid is None:
            grid = self._grids[count, narrowest] = BlockGrid(_ways(count, narrowest))
        nest = self._nest(mask, grid.ways[0])
        assert isinstance(nest.root, BlockLoop), "strips are blocks of a loop"
        price = self.pricing.price(mask, nest, {nest.root: grid})
        valid = self._sensible(mask, price, nest.root)
        valid &= price.macs <= self.groups.most_macs(mask, self.recompute)
        figures = np.broadcast_arrays(price.map_bytes, price.constant_bytes, price.input, price.output, valid)
        partitions: list[StripPartition] = []
        for blocks, maps, weights, read, written, fits in zip(
            grid.ways, *(f.tolist() for f in figures), strict=True
        ):
            need = hardware.buffer_need(maps, weights)
            if fits and need < NEVER:
                partitions.append(StripPartition(blocks.size, blocks.count, need, read, written))
        return partitions

    def _sensible(self, mask: int, price: NestPrice, loop: BlockLoop) -> np.ndarray:
        """(ways,) bool: whether every strip has columns that the one before has not.

        And reads some of every operand.
        """
        flow, grid, spans = self.groups.dataflow, price.regions.grids[loop], price.regions.spans[loop]
        sensible = np.ones(grid.counts.size, bool)
        for m in flow.touched(mask):
            own = price.regions.along(loop, m)
            if own is not None and column_count(flow.maps[m].shape) > 1:
                sensible &= grid.least(own.stop - own.new) > 0
        for readers in spans.readers.values():
            for own, reads in readers:
                if -1 in reads.last:  # some columns of the result need none of the operand
                    sensible &= grid.least(needed(reads, own.stop) - lowest(reads, own.start)) > 0
        return sensible

    # -- nest ------------------------------------------------------------------------------------------------

    def nest(self, mask: int, choice: StripPartition) -> GroupNest:
        """Line buffers in a loop over strips."""
        return self._nest(mask, Blocks.of_size(choice.columns, self.columns(mask)))

    def _nest(self, mask: int, blocks: Blocks) -> GroupNest:
        """A map without columns stays if it is on chip whole."""
        flow, rings = self.groups.dataflow, self.groups.line_buffers.ring_rows(mask)
        loop = BlockLoop("columns", blocks, RowLeaf(tuple(bits(mask))))
        homes: dict[Held, Node] = {w.name: loop for i in bits(mask) for w in flow.weights[i]}
        homes |= {m: loop if self._stays(m, rings[m]) else loop.body for m in flow.touched(mask)}
        return GroupNest(loop, homes, complete=True)

    def _stays(self, m: int, rows: int) -> bool:
        tensor = self.groups.dataflow.maps[m]
        return column_count(tensor.shape) == 1 and rows >= tensor.rows


def _ways(count: int, narrowest: int) -> list[Blocks]:
    """Strips worth trying, widest first, from two strips on.

    Where maps are narrower than the results, their columns are also multiples of that ratio.
    """
    widths = {-(-count // n) for n in range(2, min(MOST_STRIPS, count) + 1)}
    grain = count // narrowest
    if grain > 1:
        widths |= {round_up(n, grain) for n in widths}
    return [Blocks.of_size(n, count) for n in sorted((n for n in widths if n < count), reverse=True)]
