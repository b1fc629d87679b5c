"""Modes `strips` and `patches`: line buffers, or whole patches, on some columns of every map at a time.

strips   F_beta = sum over maps of rows(t) * bytes of a row of its widest strip  +  weights and biases
F_D    = per strip, the columns that it needs of every input  +  results and weights once
patches  F_beta = sum over maps of the largest patch, and of what is kept of it for later patches  +
weights and biases
F_D    = every tensor once; where rows are padded in DRAM, so is each part of a row
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from lfopt.ir import BufferUse, Cost
from lfopt.ops import RowReads, bits
from lfopt.ops.columns import column_count
from lfopt.planning.columns.cuts import ColumnCut, CutGroups
from lfopt.planning.columns.patches import PatchGroups
from lfopt.planning.columns.strips import MOST_STRIPS, StripGroups
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.lbdf import LbdfMode
from lfopt.planning.modes.mode import (
    NEVER,
    ModeOption,
    Scheduled,
    SearchSpace,
    TrafficTerms,
    weight_uses,
)
from lfopt.planning.nest.lowering import lower
from lfopt.planning.nest.places import Placement
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.nest.spans import lowest, needed
from lfopt.planning.nest.tree import GroupNest
from lfopt.planning.steps.layout import BufferLayout

TALLEST_STEP = 16  # rows of a result that strips make at a time, at the most


class CutColumnsMode(LbdfMode):
    """Groups whose maps are cut along columns. The bound is that of line buffers, for less of each map."""

    rings = steady = in_paper = False
    key: ClassVar[str]
    cuts_into: ClassVar[str]

    cuts: CutGroups[Any]

    def price(self, mask: int, beta: int, once: int, bound: int | None = None) -> Cost | None:
        """Weights once, maps as the blocks move them."""
        choice = None if bound is not None and bound >= beta else self.cuts.cheapest(mask, beta)
        if choice is None:
            return None
        return self._cost(mask, once, choice)

    def _cost(self, mask: int, once: int, choice: ColumnCut) -> Cost:
        read, written, _, _ = self.groups.once_by_class(mask)
        moved = once - read - written + choice.read + choice.written
        return Cost(moved, choice.buffer_bytes, self.key, choice.buffer_bytes)

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Rows one at a time."""
        return self._terms(mask, self._chosen(mask, beta))

    def _chosen(self, mask: int, beta: int) -> ColumnCut:
        choice: ColumnCut | None = self.cuts.cheapest(mask, beta)
        assert choice is not None, "a group in this mode fits in some cut"
        return choice

    def _terms(self, mask: int, choice: ColumnCut) -> TrafficTerms:
        return TrafficTerms(replace(self.groups.once(mask), input=choice.read, output=choice.written))

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """See `CutGroups.nest`."""
        return self._schedule(mask, self._chosen(mask, beta))

    def _schedule(self, mask: int, choice: ColumnCut) -> Scheduled:
        layout = self._layout
        nest = self.cuts.nest(mask, choice)
        make = partial(lower, layout, mask, nest, self.groups.line_buffers)
        return Scheduled(choice.buffer_bytes, make, nest)

    @cached_property
    def _layout(self) -> BufferLayout:
        return BufferLayout(self.groups.dataflow, self.groups.hardware)

    def heights(self, mask: int) -> tuple[()]:
        """(): there is no choice of rows for the same bytes."""
        return ()

    def need(self, mask: int) -> int:
        """F_beta of the cut that takes the least."""
        choice: ColumnCut | None = self.cuts.least(mask)
        if choice is None:
            return NEVER
        return choice.buffer_bytes

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Maps, each with what is kept of it for later blocks, and weights by operator."""
        choice = self.cuts.cheapest(mask, beta) or self.cuts.least(mask)
        if choice is not None:
            yield from self._map_uses(mask, self.cuts.nest(mask, choice))
        yield from weight_uses(self.groups, mask)

    def _map_uses(self, mask: int, nest: GroupNest) -> Iterator[BufferUse]:
        pricing = NestPricing(self._layout, self.groups.line_buffers)
        placement = Placement(pricing.price(mask, nest))
        for key, number in placement.at.items():
            if isinstance(key, int):
                place = placement.places[number]
                kept = [placement.at[part] for part in nest.carried_parts(key) if part in placement.at]
                size = place.bytes + sum(placement.places[k].bytes for k in kept)
                yield BufferUse(place.name, "map", place.slots, place.slot_bytes, size)

    def never(self, mask: int) -> str:
        """The first operator that cannot run so, or why nothing can be cut."""
        flow = self.groups.dataflow
        for i in bits(mask & ~self.cuts.able):
            return (
                f"{flow.operators[i].name} ({flow.operators[i].kind}) cannot be computed on strips of columns"
            )
        return f"the group's maps cannot be cut into {self.cuts_into}"

    @cached_property
    def kept_bytes(self) -> list[int]:
        """Per operator: buffer bytes of its own weights; NEVER if it cannot run on some columns alone."""
        no_maps = 0
        kept: list[int] = []
        for i, (_, weights) in enumerate(self.groups.own):
            able = self.cuts.able >> i & 1
            kept.append(self.groups.hardware.buffer_need(no_maps, weights) if able else NEVER)
        return kept

    def grow(self, mask: int, bound: int | None, op: int) -> int:
        """As that of line buffers, with NEVER for an operator that cannot run on some columns alone."""
        if self.cuts.able >> op & 1:
            return super().grow(mask, bound, op)
        return NEVER


class StripsMode(CutColumnsMode):
    """Groups in strips. In the bound, maps are as narrow as the narrowest of their widest strips may be."""

    summary = "line buffers on strips of columns: columns between two strips are read and computed for either"
    key = "strips"
    cuts_into = "strips of columns, or the multiply-accumulates allowed are too few for that"

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.max_recompute` caps the multiply-accumulates of a group."""
        super().__init__(groups, space)
        self.cuts = StripGroups(groups, space.max_recompute)

    def options(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """The strips of the fewest bytes with one row of a result at a time, with two, with four and so on.

        Taller steps are fewer, and their strips narrower: more of the halo is moved and made again.
        """
        most = max(self.groups.dataflow.heights[i] for i in bits(self.groups.dataflow.sinks(mask)))
        rows = 1
        while rows <= min(most, TALLEST_STEP):
            choice = self.cuts.cheapest(mask, beta, rows)
            if choice is None:
                return
            terms = self._terms(mask, choice)._replace(band_rows=rows)
            yield ModeOption(self._cost(mask, once, choice), terms, self._schedule(mask, choice))
            rows *= 2

    @cached_property
    def least_row_bytes(self) -> list[int]:
        """Per map: bytes of a row of the widest of as many strips as there may be."""
        groups = self.groups
        least = list[int]()
        for tensor, size in zip(groups.dataflow.maps, groups.row_bytes, strict=True):
            columns = max(column_count(tensor.shape), 1)
            least.append(-(-columns // MOST_STRIPS) * (size // columns))
        return least


class PatchesMode(CutColumnsMode):
    """Groups in patches. In the bound, of each map there are the rows that any band leaves to the next."""

    summary = "patches of rows and columns: halos are kept in both directions, nothing is made or read twice"
    key = "patches"
    cuts_into = "patches of rows and columns"

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space` changes nothing here."""
        super().__init__(groups, space)
        self.cuts = PatchGroups(groups)

    @cached_property
    def _rows(self) -> list[dict[int, int]]:
        """Per operator: rows of each map it reads that stay below any band."""
        held: list[dict[int, int]] = []
        for operands in self.groups.dataflow.operands:
            rows: dict[int, int] = {}
            for operand in operands:
                rows[operand.map] = max(rows.get(operand.map, 0), _rows_left(operand.reads))
            held.append(rows)
        return held

    def _made_rows(self, op: int) -> int:
        """0: a patch may have less than a row."""
        return 0


def _rows_left(reads: RowReads) -> int:
    """The fewest rows that are kept of a map when its reader has made some of its rows, and not all."""
    some = np.arange(1, max(reads.rows_out, 1))  # rows that the reader has made
    left = needed(reads, some) - lowest(reads, some)
    if some.size:
        return max(int(left.min(initial=reads.rows_in)), 0)
    return 0
