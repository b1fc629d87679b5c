"""Any operator in tiles along all axes of its results, by its own box rules.

A *grid* cuts the results into tiles, by blocks along some axes; loops run over the blocks, the last axis the
fastest. A tile loads what it reads and is not on chip from the tile before, computes, runs the epilogue and
stores. What an operator folds into a partial result may come in parts (a last, innermost axis).

An operator with several results of other shapes makes them one after the other, each in a grid of its own.

Which part of an operand a tile reads follows axis by axis: along each axis of an operand it depends on the
block along one axis of the result at most. So bytes are products over axes, and no tile is looked at to count
them. Parts are grown until they leave no gap, as in frames: a tensor that is read is loaded whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import lcm

from lfopt.ir import DramBytes, Node, Place, whole
from lfopt.ops.statistics import channels_together, normalized_axes
from lfopt.planning.steps.layout import AllocationRequest, BufferLayout
from lfopt.planning.steps.limit import Limit
from lfopt.planning.tiling.block_spans import covering
from lfopt.planning.tiling.grid import Grid
from lfopt.planning.tiling.grid_targets import Blocks, GridTarget
from lfopt.planning.tiling.tiling_region import TilingRegion, even_sizes

MOST_TILES = 1 << 21  # of a grid: no plan has the steps of more
MOST_GRIDS = 4000  # that are priced for one operator


# -- choices -------------------------------------------------------------------------------------------------


class Grids:
    """Grids of an operator with its epilogue: one for each target, one after the other."""

    def __init__(self, region: TilingRegion) -> None:
        self.region = region
        self.layout = region.layout
        results = region.call.results
        together = all(
            len(shape) == len(results[0])
            and all(extent in (1, of) for extent, of in zip(shape, results[0], strict=True))
            for shape in results
        )
        groups = [tuple(range(len(results)))] if together else [(k,) for k in range(len(results))]
        self.targets = [GridTarget(region, picked) for picked in groups]
        # what no target reads is loaded by the one that reads beside it
        for operands in zip(*(target.operands for target in self.targets), strict=True):
            reads = [
                target.part(operand, whole(target.shape), None)
                for target, operand in zip(self.targets, operands, strict=True)
            ]
            closed = covering(reads, whole(operands[0].shape))
            for target, operand, part in zip(self.targets, operands, closed, strict=True):
                target.limits[operand.name] = part

    def at(self, blocks: Blocks, parts: int) -> TargetGrids:
        """The grids with these blocks; `parts`: extent of a part of what is folded."""
        return TargetGrids(
            self.layout, blocks, [Grid(target, target.fitting(blocks), parts) for target in self.targets]
        )

    def choices(self) -> Iterator[TargetGrids]:
        """Grids worth trying: always the same, whatever the buffer.

        All of the result; cut along one axis, from large to small; cut so along one more, finely along
        others. Each with loops in orders such that one of the operands is loaded no more often than need be,
        and with what is folded at once or in parts.
        """
        count = 0
        depth = self.targets[0].depth
        for blocks in _patterns(self.sizes):
            for ordered in self._orders(blocks):
                for parts in few_sizes(depth):
                    grids = self.at(ordered, parts)
                    if grids.tiles <= MOST_TILES:
                        count += 1
                        yield grids
                    if count > MOST_GRIDS:
                        return

    def _orders(self, blocks: Blocks) -> list[Blocks]:
        """Loops over these blocks: as they are, and for each operand those that it depends on first."""
        orders = dict.fromkeys([tuple(sorted(blocks))])
        for target in self.targets if len(blocks) > 1 else ():
            for operand in target.operands:
                moved: list[tuple[int, int]] = []
                rests: list[tuple[int, int]] = []
                for axis, size in target.fitting(tuple(sorted(blocks))):
                    along = target.cut(operand, axis, size)
                    (rests if along is not None and along.same else moved).append((axis, size))
                first = dict((*moved, *rests))
                orders[tuple(sorted(blocks, key=lambda block: [*first, block[0]].index(block[0])))] = None
        return [*orders]

    @cached_property
    def sizes(self) -> dict[int, list[int]]:
        """Extents of blocks worth trying along each axis that can be cut, from large to small."""
        extents: dict[int, int] = {}
        for target in self.targets:
            for axis in target.cuttable():
                extents[axis] = max(extents.get(axis, 0), target.shape[axis])
        sizes: dict[int, list[int]] = {}
        for axis in sorted(extents):
            grain = self.region.grain(axis)
            if axis == 1 and self.targets[0].normalized is not None:
                # channels of one group are read together
                grain = lcm(grain, channels_together(self.region.call))
            sizes[axis] = [
                size for size in few_sizes(extents[axis], grain) if self.region.movable(axis, size)
            ]
            # where what the finest blocks read cannot be listed, coarser ones may yet move on regularly
            while len(sizes[axis]) > 1 and not self._lists(axis, sizes[axis][-1]):
                sizes[axis].pop()
        return sizes

    def _lists(self, axis: int, size: int) -> bool:
        """Whether it is known what blocks along an axis read."""
        return all(
            target.cut(operand, axis, size) is not None
            for target in self.targets
            if target.fitting(((axis, size),))
            for operand in target.operands
        )

    @cached_property
    def smallest(self) -> int:
        """Buffer bytes of the grids that are cut as finely as can be."""
        finest = tuple((axis, sizes[-1]) for axis, sizes in self.sizes.items())
        ways = [self.at(finest, 1), self.at(finest, self.targets[0].depth)]
        if self.targets[0].normalized is not None:
            axes = normalized_axes(self.region.call)
            ways.append(self.at(tuple(block for block in finest if block[0] not in axes), 1))
        needs = [grids.need for grids in ways if grids.known]
        if needs:
            return min(needs)
        return min(grids.need for grids in self.every())

    def every(self) -> Iterator[TargetGrids]:
        """All of `choices` that can be carried out, each made once."""
        yield from self._made
        for grids in self._others:
            if grids.known:
                self._made.append(grids)
                yield grids

    @cached_property
    def _made(self) -> list[TargetGrids]:
        return []

    @cached_property
    def _others(self) -> Iterator[TargetGrids]:
        return self.choices()

    def best(self, beta: int, below: int | None = None) -> TargetGrids | None:
        """The grids that fit and move the fewest bytes; of equals those of the fewest tiles.

        `below`: DRAM bytes that others move: what moves as many is of no interest.
        """
        if self.smallest >= beta:
            return None
        best: TargetGrids | None = None
        once = self.at((), self.targets[0].depth)
        least = once.dram.total if once.known else 0
        for grids in self.every():
            if grids.need >= beta or (below is not None and grids.dram.total >= below):
                continue
            if best is None or (grids.dram.total, grids.tiles) < (best.dram.total, best.tiles):
                best = grids
                if best.dram.total <= least:
                    break
        return best


@dataclass(frozen=True)
class TargetGrids:
    """One grid for each target, with places that serve all."""

    layout: BufferLayout
    blocks: Blocks
    grids: list[Grid]

    @property
    def known(self) -> bool:
        """Whether what the tiles read is known."""
        return all(grid.cuts is not None for grid in self.grids)

    @property
    def tiles(self) -> int:
        """Times that the anchor runs."""
        return sum(grid.tiles for grid in self.grids)

    @property
    def rows(self) -> int:
        """Rows of the results in a tile."""
        return max(grid.rows for grid in self.grids)

    @cached_property
    def entries(self) -> list[AllocationRequest]:
        """The places."""
        largest: dict[str, AllocationRequest] = {}
        for name, purpose, slots, slot_bytes in (entry for grid in self.grids for entry in grid.entries):
            other = largest.get(name, AllocationRequest(name, purpose, 0, 0))
            most = max(slots, other.slots), max(slot_bytes, other.slot_bytes)
            largest[name] = AllocationRequest(name, purpose, *most)
        return [*largest.values()]

    @cached_property
    def need(self) -> int:
        """Buffer bytes."""
        return self.layout.need(self.entries)

    @cached_property
    def dram(self) -> DramBytes:
        """Bytes that the steps move."""
        return sum((grid.dram for grid in self.grids), DramBytes())

    def schedule(self, limit: Limit) -> tuple[tuple[Place, ...], tuple[Node, ...]]:
        """Places and steps. Raises Unwritten beyond the limit."""
        places = self.layout.stack(self.entries)
        numbers = {place.name: k for k, place in enumerate(places)}
        return places, tuple(node for grid in self.grids for node in grid.steps(numbers, limit))


def _patterns(sizes: Mapping[int, Sequence[int]]) -> Iterator[Blocks]:
    """Ways to cut axes: none, along one axis, along one more and finely along others; see `Grids.sizes`."""
    yield ()
    for number in range(len(sizes)):
        for fine in combinations(sizes, number):
            finest = tuple((axis, sizes[axis][-1]) for axis in fine)
            for axis in (a for a in sizes if a not in fine):
                for size in sizes[axis][1:]:
                    yield (*finest, (axis, size))


def few_sizes(extent: int, grain: int = 1) -> list[int]:
    """Extents of blocks that cut an axis evenly, about two per octave; the largest and the smallest too.

    >>> few_sizes(100)
    [100, 50, 34, 25, 17, 12, 9, 6, 4, 3, 2, 1]
    """
    sizes = even_sizes(extent, grain)
    kept = [sizes[0]]
    for size in sizes[1:-1]:
        if size * 4 <= kept[-1] * 3:
            kept.append(size)
    if len(sizes) == 1:
        return kept
    return [*kept, sizes[-1]]
