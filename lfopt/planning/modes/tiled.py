"""Mode `tiled`: an operator and its epilogue that exceed the buffer, in tiles.

See `lfopt.planning.tiling.tiles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from lfopt.ir import NEVER, BufferUse, Cost, DramBytes
from lfopt.ops import ATTENTION, bits
from lfopt.planning.groups.epilogue import epilogue_candidates
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    ExecutionMode,
    ModeOption,
    Scheduled,
    SearchSpace,
    Traffic,
    TrafficTerms,
    fullest_uses,
    is_single,
    slice_widenings,
)
from lfopt.planning.steps.limit import Limit, Unwritten
from lfopt.planning.tiling import tiles

MOST_SHOWN = 1 << 17  # steps made for the places of a tile that is only shown


class TiledMode(ExecutionMode):
    """Single operators and epilogue groups, on any buffer."""

    summary = "one operator and its epilogue, cut into tiles: runs on any buffer"
    whole = False

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.traffic`: how bytes are counted; `space.epilogue`: whether an epilogue may follow."""
        self.groups = groups
        self.space = space

    @cached_property
    def tiles(self) -> tiles.Tiles:
        """Tilings, the same on any buffer."""
        return tiles.Tiles(self.groups.dataflow, self.groups.hardware, self.groups.waiting.ring_rows)

    def anywhere(self, mask: int) -> bool:
        """Whether it may run so at all."""
        if self.groups.dataflow.specs[(mask & -mask).bit_length() - 1] is ATTENTION:
            return False
        return is_single(mask) or (self.space.epilogue and self.groups.is_epilogue_group(mask))

    def tile(self, mask: int, beta: int) -> tiles.Tile:
        """The tiling that moves the fewest bytes."""
        return self.tiles.best(mask, beta)

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """See `Tiles.best`; traffic `once` and `paper` count every tensor once all the same."""
        if not self.anywhere(mask):
            return None
        tile = self.tile(mask, beta)
        if tile.kind == "none" and not is_single(mask) and self._as_tiled:
            return None
        return self._cost(mask, once, tile)

    def _cost(self, mask: int, once: int, tile: tiles.Tile) -> Cost:
        if not self._as_tiled:
            return Cost(once, tile.buffer_bytes, "tiled")
        moved = tile.dram.total + self.groups.parameter_bytes(mask)
        return Cost(moved, tile.buffer_bytes, "tiled", executable=tile.kind != "none")

    def options(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """The tiling of the fewest bytes; then those of wider and wider blocks of channels.

        They fill the columns of a MAC array.
        """
        if not self.anywhere(mask):
            return
        seen: set[tiles.Tile] = set()
        narrow = self.tile(mask, beta)
        columns = self.groups.hardware.mac_columns
        full = (
            [width for width in self._widths(mask) if width % columns == 0]
            # blocks of a grid are of any width, and where narrow ones do not fit no wider ones do
            if self._as_tiled and narrow.kind not in ("grid", "none")
            else []
        )
        for width in (None, *full):
            tile = self.tiles.best(mask, beta, width)
            if tile.kind == "none" and self._as_tiled and (seen or not is_single(mask)):
                continue
            # wider blocks may come to a grid that narrow ones do not try, and the price is that of these
            if tile.kind != "none" and tile.dram.total < narrow.dram.total:
                continue
            # all but bands say the extents of their blocks: `width` adds nothing to those
            same = replace(tile, width=None) if tile.kind != "bands" else tile
            if not seen or (tile.kind != "none" and same not in seen):
                yield ModeOption(
                    self._cost(mask, once, tile), self._terms(mask, tile), self._schedule(mask, tile)
                )
            seen.add(same)

    def _widths(self, mask: int) -> Iterator[int]:
        """Widths of blocks wider than the narrowest of a tiling: a tiling needs no blocks of full width."""
        hardware = self.groups.hardware
        if hardware.narrowest_block > hardware.channel_align:
            yield hardware.narrowest_block
        yield from slice_widenings(self.groups, mask)

    @property
    def _as_tiled(self) -> bool:
        return self.space.traffic is Traffic.TILED

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """See `Tile`."""
        return self._terms(mask, self.tile(mask, beta))

    def _terms(self, mask: int, tile: tiles.Tile) -> TrafficTerms:
        if not self._as_tiled:
            flow = self.groups.dataflow
            return TrafficTerms(self.groups.once(mask), band_rows=max(flow.heights[i] for i in bits(mask)))
        return TrafficTerms(
            tile.dram + DramBytes(parameter=self.groups.parameter_bytes(mask)),
            tile.weight_passes,
            tile.rows or 1,
        )

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """See `lfopt.planning.tiling.tiles.schedule`."""
        return self._schedule(mask, self.tile(mask, beta))

    def _schedule(self, mask: int, tile: tiles.Tile) -> Scheduled:
        if not self._as_tiled:
            why = (
                f"traffic {self.space.traffic.value!r} counts every tensor once, and the buffer is too "
                "small for that"
            )
            return Scheduled(tile.buffer_bytes, why)
        if tile.kind == "none":
            kind = self.groups.dataflow.operators[(mask & -mask).bit_length() - 1].kind
            return Scheduled(
                0,
                f"the smallest step of {kind} in tiles takes {self.tiles.smallest(mask):,} B; accepted: a "
                "larger buffer",
            )
        return Scheduled(
            tile.buffer_bytes, lambda limit: tiles.schedule(self.tiles.region(mask, tile.width), tile, limit)
        )

    def need(self, mask: int) -> int:
        """Bytes of the smallest step in tiles; NEVER where none is made of the group."""
        if not self._as_tiled or not self.anywhere(mask):
            return NEVER
        return self.tiles.smallest(mask)

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Places of a tile; none where its steps are too many to be made."""
        if self.need(mask) == NEVER:
            return
        tile = self.tile(mask, max(beta, self.need(mask) + 1))
        try:
            places, _ = tiles.schedule(self.tiles.region(mask, tile.width), tile, Limit(most=MOST_SHOWN))
        except Unwritten:
            return
        yield from fullest_uses(places, self.groups.hardware)

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """Whether it is an epilogue group: what it is grown into is one only then."""
        return self.space.epilogue and self.groups.is_epilogue_group(mask)

    def extra_bytes(self, mask: int, beta: int) -> int:
        """0 of weights alone.

        What lies between two operators of an epilogue group is one, of which the first is the anchor
        operator.
        """
        if is_single(mask) or self.may_fit(mask, None, beta):
            return 0
        return NEVER

    def compatible(self, beta: int) -> list[int]:
        """Operators of one epilogue may meet, whatever the buffer."""
        compatible = super().compatible(beta)
        if self.space.epilogue:
            for candidate in epilogue_candidates(self.groups.follows):
                for i in bits(candidate):
                    compatible[i] |= candidate
        return compatible
