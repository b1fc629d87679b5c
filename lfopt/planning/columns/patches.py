"""Groups in patches of rows and columns, whose halos are kept in both directions.

Every loop keeps of a map what later patches still read (`lfopt.planning.nest.tree`, "carried"): below a band
of patches as many rows as windows overlap, beside a patch as many columns. So nothing is computed or read
twice, and a map takes less than the full rows of line buffers: for windows of 3 x 3 that move by two, one row
of the map in place of three. In the words of DeFiNES (Mei et al., arXiv 2212.05344): "fully cached".
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

HEIGHTS = (1, 2, 4, 8)  # rows of a patch of the lowest result


class PatchSize(NamedTuple):
    """One size of the patches of a group."""

    rows: int  # of the lowest result
    columns: int  # of the narrowest result
    blocks: int  # patches of the group
    buffer_bytes: int  # F_beta
    read: int  # DRAM bytes of maps
    written: int  # DRAM bytes of results


class PatchGroups(CutGroups[PatchSize]):
    """Groups in patches: of those that fit, the patches that move the fewest bytes, of equals the fewest.

    Every element moves once; where rows are padded in DRAM, so are the parts of a row in each patch.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups)
        self.pricing = NestPricing(BufferLayout(groups.dataflow, groups.hardware))

    def _has_rows_and_columns(self, mask: int) -> bool:
        """Whether all that is made has them, and all that is read and has columns has rows."""
        flow = self.groups.dataflow
        results = {m for i in bits(mask) for m in flow.results[i]}
        cut = [m for m in flow.touched(mask) if m in results or column_count(flow.maps[m].shape) > 1]
        return bool(flow.leaving(mask)) and all(
            flow.maps[m].rows > 1 and column_count(flow.maps[m].shape) > 1 for m in cut
        )

    def _extents(self, mask: int) -> tuple[int, int]:
        """(rows of the lowest result, columns of the narrowest one)."""
        flow = self.groups.dataflow
        results = [flow.maps[m] for m in flow.leaving(mask)]
        rows = min(tensor.rows for tensor in results)
        return rows, min(column_count(tensor.shape) for tensor in results)

    def _ways(self, mask: int, rows: int) -> Iterator[PatchSize]:
        """All widths of each height at once."""
        if not self._has_rows_and_columns(mask):
            return
        flow = self.groups.dataflow
        results = flow.leaving(mask)
        height, width = self._extents(mask)
        grid = BlockGrid(column_blocks(width, self.narrowest(mask), width))
        for rows in HEIGHTS:
            if rows >= height:
                break
            nest = self._nest(mask, Blocks.of_size(rows, height), grid.ways[0])
            bands = nest.root
            assert isinstance(bands, BlockLoop), "patches are blocks of two loops"
            strips = bands.body
            assert isinstance(strips, BlockLoop), "patches are blocks of two loops"
            price = self.pricing.price(mask, nest, {strips: grid})
            valid = self.sensible(price, bands, results) & self.sensible(price, strips, results)
            valid &= self.movable(mask, price, strips)
            if any(own.stop[0] >= flow.heights[i] for i, own in price.regions.spans[bands].made.items()):
                break  # the first band makes all of something, and so do higher ones
            for blocks, need, read, written in self.sizes(price, grid, valid):
                count = bands.blocks.count * blocks.count
                yield PatchSize(rows, blocks.size, count, need, read, written)

    def nest(self, mask: int, choice: PatchSize) -> GroupNest:
        """Operators at once, in a loop over columns, in one over rows."""
        height, width = self._extents(mask)
        return self._nest(mask, Blocks.of_size(choice.rows, height), Blocks.of_size(choice.columns, width))

    def _nest(self, mask: int, rows: Blocks, columns: Blocks) -> GroupNest:
        """Weights, and maps without columns, are held throughout."""
        flow = self.groups.dataflow
        leaf = RowLeaf(tuple(bits(mask)), at_once=True)
        root = BlockLoop("rows", rows, BlockLoop("columns", columns, leaf))
        homes: dict[Held, Node] = {w.name: root for i in bits(mask) for w in flow.weights[i]}
        carried = frozenset(m for m in flow.touched(mask) if column_count(flow.maps[m].shape) > 1)
        homes |= {m: leaf if m in carried else root for m in flow.touched(mask)}
        return GroupNest(root, homes, carried=carried, complete=True)
