"""Mode `lbdf`: line buffers, depth first.

Rows pass from operator to operator through rings; weights stay on chip.

    F_beta = sum over maps of rows(t) * row_bytes(t)  +  weights and biases
    F_D    = every tensor once

Source: line-buffer depth-first processing, Shi et al. 2021 (JETCAS 11(4)); validity as in arXiv 2501.00636.
Rings: `lfopt.planning.line_buffers.lbdf`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

from lfopt.ir import BufferUse, Cost
from lfopt.ops import bits
from lfopt.planning.groups.compatibility import compatible_in_line_buffers
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import NEVER, ExecutionMode, Scheduled, SearchSpace, TrafficTerms, weight_uses
from lfopt.planning.nest.lowering import lower
from lfopt.planning.nest.tree import GroupNest, RowLeaf
from lfopt.planning.steps.layout import BufferLayout


def line_buffer_nest(mask: int, band_rows: int = 1) -> GroupNest:
    """Rows pass from operator to operator through rings; weights stay on chip.

    `band_rows`: rows of a result that come next.
    """
    return GroupNest(RowLeaf(tuple(bits(mask)), band_rows=band_rows))


class _Held(NamedTuple):
    """Rows of a map that an operator reads and must find on chip."""

    rows: int
    row_bytes: int
    readers: int  # of the map, as a mask
    maker: int  # the bit of the operator that makes it; 0: it comes from outside the network
    made_rows: int  # rows held of it where its maker is in the group, at least
    widest: tuple[tuple[int, int], ...]  # (bit of a reader, rows held for it), widest first


class LbdfMode(ExecutionMode):
    """Groups in line buffers.

    The bound is bytes of buffer: weights plus, per map, the widest window among its readers in the group.
    """

    summary = "line buffers, depth first: rows pass through rings, weights stay on chip"
    rings = steady = True

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space` changes nothing here."""
        self.groups = groups

    def price(self, mask: int, beta: int, once: int, bound: int | None = None) -> Cost | None:
        """Every tensor moves once."""
        if bound is not None and bound >= beta:
            return None
        need = self.groups.line_need(mask)
        if need < beta:
            return Cost(once, need, "lbdf", need)
        return None

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Rows one at a time; a plan may make more of them at a time."""
        return TrafficTerms(self.groups.once(mask))

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """Whole maps, `rows` rows of the results at a time."""
        groups = self.groups
        layout = BufferLayout(groups.dataflow, groups.hardware)
        nest = line_buffer_nest(mask, rows)
        make = partial(lower, layout, mask, nest, groups.line_buffers)
        return Scheduled(groups.line_need(mask, rows), make, nest)

    def heights(self, mask: int) -> Sequence[int]:
        """Rows of a band that may be tried, most first: up to those of the highest result that leaves.

        Where those results have one row (after a global pooling), a band is one row, or all that is asked for
        in one step, which counts as the height of the highest map.
        """
        flow = self.groups.dataflow
        highest = max((flow.heights[i] for i in bits(flow.sinks(mask))), default=1)
        if highest > 1:
            return range(highest, 0, -1)
        return sorted({1, max(flow.heights[i] for i in bits(mask))}, reverse=True)

    def height_need(self, mask: int, rows: int) -> int:
        """F_beta in bytes in bands of `rows` rows."""
        return self.groups.line_need(mask, rows)

    def height_fits(self, mask: int, rows: int, beta: int) -> bool:
        """As `height_need` says, found out as early as it shows."""
        return self.groups.line_fits(mask, rows, beta)

    def need(self, mask: int) -> int:
        """F_beta, rows computed one at a time."""
        return self.groups.line_need(mask)

    def weights(self, mask: int) -> int:
        """Bytes of all weights."""
        return self.groups.weight_bytes(mask)[1]

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Rings in the order in which the schedule meets them, and weights by operator."""
        groups = self.groups
        for m, rows in sorted(groups.line_buffers.ring_rows(mask).items()):
            row_bytes = groups.ring_row_bytes(mask, m)
            yield BufferUse(groups.dataflow.maps[m].name, "map", rows, row_bytes, rows * row_bytes)
        for i in bits(mask & groups.lines.running):
            yield BufferUse(groups.dataflow.operators[i].name, "sums", 1, groups.sums[i], groups.sums[i])
        yield from weight_uses(groups, mask)

    # -- bounds ----------------------------------------------------------------------------------------------

    @cached_property
    def least_row_bytes(self) -> list[int]:
        """Per map: bytes on chip of each row that is held, at the least."""
        return self.groups.row_bytes

    @cached_property
    def kept_bytes(self) -> list[int]:
        """Per operator: least buffer bytes beside its maps.

        Its own weights, and the sums of a running reduction.
        """
        groups = self.groups
        return [
            groups.hardware.buffer_need(sums, own[1])
            for own, sums in zip(groups.own, groups.sums, strict=True)
        ]

    @cached_property
    def _rows(self) -> list[dict[int, int]]:
        """Per operator: rows of each map it reads that are held at once for it in any group."""
        flow = self.groups.dataflow
        lines = self.groups.lines
        seen = self.groups.line_buffers.seen.by_reader
        held_rows: list[dict[int, int]] = []
        for i, operands in enumerate(lines.operands):
            held: dict[int, int] = {}
            for operand in operands:
                if (operand.map, i) in seen:  # a row of the view may be all that is held
                    held.setdefault(operand.map, 0)
                    continue
                producer = flow.producer[operand.map]
                least = 1 if producer < 0 or lines.least[producer] else 0
                held[operand.map] = max(held.get(operand.map, least), operand.reads.widest[lines.least[i]])
            held_rows.append(held)
        return held_rows

    def _made_rows(self, op: int) -> int:
        """Rows of its results that are held at the least when an operator makes them."""
        return min(1, self.groups.lines.least[op])

    @cached_property
    def _holds(self) -> list[tuple[_Held, ...]]:
        """Per operator: the maps that it reads."""
        flow = self.groups.dataflow
        widest: list[list[tuple[int, int]]] = [[] for _ in flow.maps]
        for i, held in enumerate(self._rows):
            for m, rows in held.items():
                widest[m].append((1 << i, rows))
        sorted_ = [tuple(sorted(windows, key=lambda item: -item[1])) for windows in widest]

        def of(m: int, rows: int) -> _Held:
            maker = flow.producer[m]
            maker_rows = (1 << maker, self._made_rows(maker)) if maker >= 0 else (0, 0)
            return _Held(rows, self.least_row_bytes[m], flow.readers[m], *maker_rows, sorted_[m])

        return [tuple(of(m, rows) for m, rows in held.items()) for held in self._rows]

    @cached_property
    def _added(self) -> list[int]:
        """Per operator: bytes that it brings to any group: results, own weights, sums of a running reduction.

        Its operands and shared weights are counted by `grow`.
        """
        groups = self.groups
        flow = self.groups.dataflow
        result_bytes = (
            self._made_rows(i) * sum(self.least_row_bytes[m] for m in flow.results[i])
            for i in range(len(flow))
        )
        beside_maps = (
            groups.hardware.buffer_need(sums, weights)
            for (_, weights), sums in zip(groups.own, groups.sums, strict=True)
        )
        return [size + more for size, more in zip(result_bytes, beside_maps, strict=True)]

    def grow(self, mask: int, bound: int | None, op: int) -> int:
        """A map's ring is at least as wide as the widest window among its readers in the group."""
        least = (bound or 0) if mask else 0
        for rows, row_bytes, readers, maker, made_rows, widest in self._holds[op]:
            held = 0
            if inside := readers & mask:
                held = next(wide for reader, wide in widest if reader & inside)
            if maker & mask and not held:
                held = made_rows
            if rows > held:
                least += (rows - held) * row_bytes
        least += self._added[op]
        if self.groups.hardware.weight_buffer_bytes:
            return self.groups.hardware.buffer_need(least, self.groups.weight_bytes(mask | 1 << op)[1])
        if self.groups.with_shared >> op & 1:
            return least + self.groups.added_shared(mask, op)
        return least

    def extra_bytes(self, mask: int, beta: int) -> int:
        """0.

        Whatever joins the operators, from above or below, a ring is as wide as its widest window asks, and
        weights stay.
        """
        least = 0
        grown = 0
        for i in bits(mask):
            least = self.grow(grown, least, i)
            grown = grown | 1 << i
            if least >= beta:
                return NEVER
        return 0

    def may_fit(self, mask: int, bound: int, beta: int) -> bool:
        """The bound never falls."""
        return bound < beta

    def least(self, op: int) -> int:
        """The bound of the operator alone."""
        return self.grow(0, None, op)

    def compatible(self, beta: int) -> list[int]:
        """As far as the cheapest path between two operators tells."""
        return compatible_in_line_buffers(
            self.groups.dataflow, self._rows, self.least_row_bytes, self.kept_bytes, beta
        )
