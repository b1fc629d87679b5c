"""Groups in strips of columns: which strips are worth trying, and how each group then runs.

The results of a group are cut into n strips of equally many columns, the last one perhaps narrower. For each
strip the group runs in line-buffer depth-first order on the columns that the strip needs of every map. What
two strips need, the *halo*, is loaded or computed for either of them.

Columns that nothing needs between two strips belong to the later one, so that strips cover every map.

In the words of DeFiNES (Mei et al., arXiv 2212.05344), rows are "fully cached" and columns "fully
recomputed".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lfopt.ops import bits
from lfopt.ops.columns import column_count
from lfopt.planning.columns.cuts import CutGroups, column_blocks
from lfopt.planning.groups.groups import Groups
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.nest.spans import BlockGrid
from lfopt.planning.nest.tree import BlockLoop, Blocks, GroupNest, Held, Node, RowLeaf
from lfopt.planning.steps.layout import BufferLayout

MOST_STRIPS = 64  # in a group


class StripPartition(NamedTuple):
    """One way to cut a group into strips."""

    columns: int  # of the narrowest result in each strip
    blocks: int  # strips of the group
    buffer_bytes: int  # F_beta, bytes
    read: int  # DRAM bytes of maps
    written: int  # DRAM bytes of results
    rows: int  # of a result that are made at a time


class StripGroups(CutGroups[StripPartition]):
    """Groups in strips: of those that fit, the strips that move the fewest bytes, of equals the fewest.

    `recompute`: multiply-accumulates over those of a group's operators.
    """

    def __init__(self, groups: Groups, recompute: float) -> None:
        super().__init__(groups)
        self.recompute = recompute
        self.pricing = NestPricing(BufferLayout(groups.dataflow, groups.hardware), groups.line_buffers)
        self._grids: dict[tuple[int, int], BlockGrid] = {}  # by columns of the narrowest result and map

    def columns(self, mask: int) -> int:
        """Columns of the narrowest result, which strips cut; 1: there are none.

        So where a result of an operator has no readers.
        """
        flow = self.groups.dataflow
        if any(not flow.succs[i] and not any(flow.is_output[m] for m in flow.results[i]) for i in bits(mask)):
            return 1
        return min((column_count(flow.maps[m].shape) for m in flow.leaving(mask)), default=1)

    def _ways(self, mask: int, rows: int) -> Iterator[StripPartition]:
        """Widest strips first."""
        flow = self.groups.dataflow
        count = self.columns(mask)
        if count <= 1:
            return
        narrowest = self.narrowest(mask)
        grid = self._grids.get((count, narrowest))
        if grid is None:
            ways = column_blocks(count, narrowest, MOST_STRIPS)
            grid = self._grids[count, narrowest] = BlockGrid(ways)
        nest = self._nest(mask, grid.ways[0], rows)
        assert isinstance(nest.root, BlockLoop), "strips are blocks of a loop"
        price = self.pricing.price(mask, nest, {nest.root: grid})
        cut = (m for m in flow.touched(mask) if column_count(flow.maps[m].shape) > 1)
        valid = self.sensible(price, nest.root, cut)
        valid &= self.movable(mask, price, nest.root)
        valid &= price.macs <= self.groups.most_macs(mask, self.recompute)
        for blocks, need, read, written in self.sizes(price, grid, valid):
            yield StripPartition(blocks.size, blocks.count, need, read, written, rows)

    def nest(self, mask: int, choice: StripPartition) -> GroupNest:
        """Line buffers in a loop over strips."""
        return self._nest(mask, Blocks.of_size(choice.columns, self.columns(mask)), choice.rows)

    def _nest(self, mask: int, blocks: Blocks, band_rows: int) -> GroupNest:
        """A map without columns stays if it is on chip whole."""
        flow = self.groups.dataflow
        rings = self.groups.line_buffers.ring_rows(mask, band_rows)
        loop = BlockLoop("columns", blocks, RowLeaf(tuple(bits(mask)), band_rows=band_rows))
        homes: dict[Held, Node] = {w.name: loop for i in bits(mask) for w in flow.weights[i]}
        homes |= {m: loop if self._stays(m, rings[m]) else loop.body for m in flow.touched(mask)}
        return GroupNest(loop, homes, complete=True)

    def _stays(self, m: int, rows: int) -> bool:
        tensor = self.groups.dataflow.maps[m]
        return column_count(tensor.shape) == 1 and rows >= tensor.rows
