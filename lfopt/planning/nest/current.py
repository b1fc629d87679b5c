"""What the current blocks of a nest's loops make, load, store and carry, as boxes of its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from lfopt.ir import Box, Compute, Span, cut, row_axis, whole
from lfopt.ops.footprint import footprint
from lfopt.planning.nest.channels import folded_extent
from lfopt.planning.nest.constants import data_constants
from lfopt.planning.nest.price import NestPrice
from lfopt.planning.nest.regions import axis_of
from lfopt.planning.nest.tree import BlockLoop, LateInput, Stream


class CarriedSpan(NamedTuple):
    """Of a map that is carried, along one axis, in one block."""

    kept: int  # first index that the block, or a later one, reads
    new: int  # first index that no earlier block has made or loaded
    stop: int
    kept_next: int  # first index that later blocks read; `stop` if none do


class FoldedPart(NamedTuple):
    """What an operator adds to its sums in one block."""

    inputs: Span  # input channels
    first: bool  # whether sums begin with it
    last: bool  # whether they end with it


class CurrentBlocks:
    """The current block of every loop that runs, by loop, and what these blocks work on."""

    def __init__(self, price: NestPrice) -> None:
        self.price = price
        self.flow = price.flow
        self.nest = price.nest
        self.regions = price.regions
        self.number: dict[BlockLoop, int] = {}

    # -- results ---------------------------------------------------------------------------------------------

    def computed(self, op: int, m: int) -> Box | None:
        """What is made of a result; None if nothing."""
        return self._result(op, m, to_store=False)

    def stored(self, op: int, m: int) -> Box | None:
        """What is stored of a result; None if nothing.

        Sums are stored when they are finished. What every block of a loop over channels makes again is stored
        with the first one.
        """
        part = self.folded(op)
        if (part is not None and not part.last) or self.is_kept(m):
            return None
        for loop, block in self.number.items():
            if block and self.regions.is_made_again(loop, op):
                return None
        return self._result(op, m, to_store=True)

    def _result(self, op: int, m: int, *, to_store: bool) -> Box | None:
        box = whole(self.flow.maps[m].shape)
        for loop, block in self.number.items():
            if loop.cuts_channels:
                box = self.channels_of(box, loop, op)
                continue
            spans = self.regions.spans[loop].made.get(op)
            if spans is None:
                continue
            start = spans.start
            stop = spans.stop
            if to_store:
                start, stop = self.regions.spans[loop].stored[op]
            if start[block] >= stop[block]:
                return None
            if self.price.runs_through(loop, op):  # one row, which is there when the operand has passed
                if to_store and stop[block] < self.price.lines.iterations[op]:
                    return None
                continue
            axis = self.regions.axis_cut(loop, m)
            if axis is not None:
                box = cut(box, axis, (int(start[block]), int(stop[block])))
        return box

    def channels_of(self, box: Box, loop: BlockLoop, op: int) -> Box:
        """The part of a box of an operator's result in the current block of a loop over channels."""
        axis = self.regions.channels_cut(loop, op)
        if axis is None:
            return box
        return cut(box, axis, loop.blocks.span(self.number[loop], self.flow.calls[op].result[axis]))

    def rows_made(self, op: int) -> Span:
        """Rows that an operator makes, or takes of its operand if it runs through that."""
        rows = 0, self.price.lines.iterations[op]
        for loop, block in self.number.items():
            own = None if loop.cuts_channels else self.regions.spans[loop].made.get(op)
            if own is None:
                continue
            if loop.axis == "rows":
                rows = int(own.start[block]), int(own.stop[block])
            if own.start[block] >= own.stop[block]:
                return rows[1], rows[1]
        return rows

    def folded(self, op: int) -> FoldedPart | None:
        """What an operator adds to its sums; None if it makes none."""
        for loop, block in self.number.items():
            if op in loop.folds:
                inputs = self.regions.folded_span(loop, op, block)
                return FoldedPart(inputs, first=block == 0, last=block == loop.blocks.count - 1)
        return None

    def is_kept(self, m: int) -> bool:
        """Whether the channels of a map in the current blocks stay around the nest."""
        if m not in self.price.around.kept:
            return False
        return any(self.regions.kept_blocks(loop, m)[block] for loop, block in self.number.items())

    def is_idle(self, op: int) -> bool:
        """Whether an operator makes nothing, since a pass before has made it."""
        m = self.price.around.idle.get(op)
        return m is not None and self.is_kept(m)

    def is_waiting(self, op: int) -> bool:
        """Whether an operator reads sums that are not finished yet."""
        return any(
            block < loop.blocks.count - 1 and self.regions.waits(loop, op)
            for loop, block in self.number.items()
        )

    def statistics(self, op: int, compute: Compute, place: int) -> Compute | None:
        """The step of a normalization in two passes, whose statistics have a place; None: it is none."""
        if op in self.nest.measures:
            part = self.folded(op)
            inputs = (0, folded_extent(self.flow, op)) if part is None else part.inputs
            first = part is None or part.first
            return replace(compute, places=(-1,), inputs=inputs, accumulator=place, first=first, last=False)
        inputs = self.regions.finished_inputs(op)
        if inputs is None:
            return None
        return replace(compute, inputs=inputs, accumulator=place, first=False, last=True)

    # -- operands --------------------------------------------------------------------------------------------

    def loaded(self, m: int, *, but: BlockLoop | None = None) -> Box | None:
        """What is loaded of a map from outside; None if it is on chip already.

        `but`: a loop whose blocks are not looked at.
        """
        box = whole(self.flow.maps[m].shape)
        for loop, block in self.number.items():
            if loop is but:
                continue
            if loop.cuts_channels:
                if loop in self.nest.loops_to[self.regions.homes[m]]:
                    if self.regions.there_already(loop, m)[block]:
                        return None
                    box = self._input_channels(box, loop, m, late=False)
                continue
            spans = self.regions.spans[loop].loaded.get(m)
            if spans is None:
                continue
            start = int(spans.start[block])
            stop = int(spans.stop[block])
            if start >= stop:
                return None
            axis = axis_of(loop.axis, self.flow.maps[m].shape)
            if axis is not None:
                box = cut(box, axis, (start, stop))
        return box

    def loaded_late(self, late: LateInput) -> Box | None:
        """What a leaf loads of a map when sums are finished; None if they are not, or it loads nothing."""
        box = whole(self.flow.maps[late.map].shape)
        for loop, block in self.number.items():
            if late.leaf.sums_over(loop):
                if block < loop.blocks.count - 1:
                    return None
            elif loop.cuts_channels:
                box = self._input_channels(box, loop, late.map, late=True)
            elif loop.axis == "rows":
                rows = self.regions.late_rows(loop, late)
                if rows.start[block] >= rows.stop[block]:
                    return None
                axis = row_axis(self.flow.maps[late.map].shape)
                if axis is not None:
                    box = cut(box, axis, (int(rows.start[block]), int(rows.stop[block])))
        return box

    def _input_channels(self, box: Box, loop: BlockLoop, m: int, *, late: bool) -> Box:
        inputs = self.regions.input_channels(loop, m, late=late)
        if inputs is None:
            return box
        block = self.number[loop]
        return cut(box, inputs.axis, (int(inputs.start[block]), int(inputs.stop[block])))

    def stream_parts(self, op: int, stream: Stream) -> Iterator[tuple[str, Box]]:
        """The parts of constants that an operator takes from a stream."""
        if self.is_idle(op) or self.is_waiting(op) or op in self.nest.measures:
            return
        call = self.flow.calls[op]
        out = whole(call.result)
        for loop in self.number:
            if loop.cuts_channels:
                out = self.channels_of(out, loop, op)
        part = self.folded(op)
        first_channel = self._first_channel(op, out) if part is None else part.inputs[0]
        is_staying = first_channel < stream.stays
        for name in data_constants(self.flow, op):
            if name not in stream.constants:
                continue
            index = call.inputs.index(name)
            if part is not None and index > 1:  # a bias is added to finished sums
                if part.last and stream.stays < folded_extent(self.flow, op):
                    yield name, footprint(call, index, out)
            elif not is_staying:
                yield name, footprint(call, index, out, inputs=None if part is None else part.inputs)

    def _first_channel(self, op: int, out: Box) -> int:
        """The first of the channels that an operator makes. `out`: its result in these blocks."""
        for loop in self.number:
            axis = self.regions.channels_cut(loop, op)
            if axis is not None:
                return out[axis][0]
        return 0

    # -- what blocks carry on --------------------------------------------------------------------------------

    def carried(self, m: int) -> tuple[CarriedSpan, CarriedSpan]:
        """What is carried of a map along rows, and along columns."""
        rows, columns = (self._carried_span(m, loop) for loop in self.nest.carrying(m))
        return rows, columns

    def _carried_span(self, m: int, loop: BlockLoop) -> CarriedSpan:
        own = self.regions.along(loop, m)
        kept = self.regions.kept(loop, m)
        block = self.number[loop]
        assert own is not None, "loops cut what they carry"
        stop = int(own.stop[block])
        after = int(kept[block + 1]) if block + 1 < loop.blocks.count else stop
        return CarriedSpan(int(kept[block]), int(own.new[block]), stop, min(after, stop))
