"""Mode `strips`: line buffers, strip of columns after strip of columns (`lfopt.planning.strips`).

F_beta = sum over maps of rows(t) * bytes of a row of its widest strip  +  weights and biases
F_D    = per strip, the columns that it needs of every input  +  results and weights once
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial

from lfopt.ir import BufferUse, Cost
from lfopt.ops import bits
from lfopt.ops.columns import column_count
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.lbdf import LbdfMode
from lfopt.planning.modes.mode import NEVER, Scheduled, SearchSpace, TrafficTerms, place_use, weight_uses
from lfopt.planning.nest.lowering import lay_out, lower
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.strips import MOST_STRIPS, StripGroups, StripPartition


class StripsMode(LbdfMode):
    """Groups in strips.

    The bound is that of line buffers, for maps as narrow as the narrowest of their widest strips may be.
    """

    summary = "line buffers on strips of columns: columns between two strips are read and computed for either"
    rings = steady = in_paper = False

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.max_recompute` caps the multiply-accumulates of a group."""
        super().__init__(groups, space)
        self.strips = StripGroups(groups, space.max_recompute)

    def _chosen(self, mask: int, beta: int) -> StripPartition:
        choice = self.strips.cheapest(mask, beta)
        assert choice is not None, "mode strips means that a number of strips fits"
        return choice

    def price(self, mask: int, beta: int, once: int, bound: int | None = None) -> Cost | None:
        """Inputs as often as strips need them."""
        if bound is not None and bound >= beta:
            return None
        choice = self.strips.cheapest(mask, beta)
        if choice is None:
            return None
        read, written, _, _ = self.groups.once_by_class(mask)
        return Cost(
            once - read - written + choice.read + choice.written,
            choice.buffer_bytes,
            "strips",
            choice.buffer_bytes,
        )

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Rows one at a time."""
        choice = self._chosen(mask, beta)
        return TrafficTerms(replace(self.groups.once(mask), input=choice.read, output=choice.written))

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """See `StripGroups.nest`."""
        choice = self._chosen(mask, beta)
        layout = BufferLayout(self.groups.dataflow, self.groups.hardware)
        nest = self.strips.nest(mask, choice)
        make = partial(lower, layout, mask, nest, self.groups.line_buffers)
        return Scheduled(choice.buffer_bytes, make, nest)

    def heights(self, mask: int) -> tuple[()]:
        """(): rows are made one at a time."""
        return ()

    def need(self, mask: int) -> int:
        """F_beta of the strips that take the least."""
        choice = self.strips.least(mask)
        return NEVER if choice is None else choice.buffer_bytes

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Rings, and weights by operator."""
        choice = self.strips.cheapest(mask, beta) or self.strips.least(mask)
        if choice is not None:
            layout = BufferLayout(self.groups.dataflow, self.groups.hardware)
            nest = self.strips.nest(mask, choice)
            for place in lay_out(layout, mask, nest, self.groups.line_buffers):
                if place.purpose == "map":
                    yield place_use(place)
        yield from weight_uses(self.groups, mask)

    def never(self, mask: int) -> str:
        """The first operator that cannot run in strips, or why no strips can be cut."""
        flow = self.groups.dataflow
        for i in bits(mask & ~self.strips.able):
            return (
                f"{flow.operators[i].name} ({flow.operators[i].kind}) cannot be computed on strips of columns"
            )
        return (
            "the group's results cannot be cut into strips of columns, or the multiply-accumulates "
            "allowed are too few for that"
        )

    # -- bounds ----------------------------------------------------------------------------------------------

    @cached_property
    def least_row_bytes(self) -> list[int]:
        """Per map: bytes of a row of the widest of as many strips as there may be."""
        groups, least = self.groups, list[int]()
        for tensor, size in zip(groups.dataflow.maps, groups.row_bytes, strict=True):
            columns = max(column_count(tensor.shape), 1)
            least.append(-(-columns // MOST_STRIPS) * (size // columns))
        return least

    @cached_property
    def kept_bytes(self) -> list[int]:
        """Per operator: buffer bytes of its own weights; NEVER if it cannot run in strips."""
        need = self.groups.hardware.buffer_need
        return [
            need(0, size) if self.strips.able >> i & 1 else NEVER
            for i, (_, size) in enumerate(self.groups.own)
        ]

    def grow(self, mask: int, bound: int | None, op: int) -> int:
        """As that of line buffers, with NEVER for an operator that cannot run in strips."""
        return super().grow(mask, bound, op) if self.strips.able >> op & 1 else NEVER
