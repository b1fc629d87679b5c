"""Constants that pass through the streams of a nest: the largest block, and what moves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from lfopt.ir import Box, Span, cut, whole
from lfopt.ops.footprint import footprint
from lfopt.planning.nest.channels import folded_extent
from lfopt.planning.nest.constants import AxisBlocks, ConstantSizes, StreamedBytes
from lfopt.planning.nest.regions import Figure, Regions
from lfopt.planning.nest.tree import BlockLoop, Blocks, RowLeaf, Stream


class StreamSizes:
    """Sizes of what passes through the streams of one nest."""

    def __init__(self, regions: Regions, constants: ConstantSizes) -> None:
        self.regions = regions
        self.constants = constants
        self.flow = regions.flow
        self.nest = regions.nest
        self.around = regions.around

    def staying(self, stream: Stream) -> Iterator[tuple[str, Box]]:
        """The parts of constants that stay on chip instead of passing."""
        for i in self.nest.operators[stream.home] if stream.stays else ():
            out, inputs = self.blocks_of(i)
            call = self.flow.calls[i]
            result = whole(call.result)
            first: Span | None = None
            if inputs is not None:
                first = (0, min(stream.stays, folded_extent(self.flow, i)))
            elif out is not None:
                axis, _ = out
                result = cut(result, axis, (0, min(stream.stays, call.result[axis])))
            for name in self.constants.names(i, stream):
                index = call.inputs.index(name)
                passes_last = first is not None and index > 1 and first[1] < folded_extent(self.flow, i)
                if not passes_last:
                    yield name, footprint(call, index, result, inputs=None if index > 1 else first)

    def blocks_of(self, op: int) -> tuple[AxisBlocks | None, Blocks | None]:
        """How loops cut the results of an operator, and the input channels that it sums over."""
        out: AxisBlocks | None = None
        inputs: Blocks | None = None
        for loop in self.nest.loops_to[self.nest.leaf_of[op]]:
            if op in loop.folds:
                inputs = loop.blocks
            elif (axis := self.regions.channels_cut(loop, op)) is not None:
                out = axis, loop.blocks
        return out, inputs

    def block(self, stream: Stream) -> int:
        """Bytes of the largest block that passes through a stream.

        All operators of a row engine take theirs at once.
        """
        largest: dict[RowLeaf, int] = {}
        for i, constants, _ in self.passing[stream]:
            leaf = self.nest.leaf_of[i]
            if leaf.at_once:
                largest[leaf] = max(largest.get(leaf, 0), constants.largest)
            else:
                largest[leaf] = largest.get(leaf, 0) + constants.largest
        for leaf in largest:
            loops = [loop for loop in self.nest.loops_to[leaf] if self._has_idle(loop, leaf)]
            for loop in loops:
                largest[leaf] = max(self._blocks_of_engine(leaf, loop, stream))
        return max(largest.values(), default=0)

    def _has_idle(self, loop: BlockLoop, leaf: RowLeaf) -> bool:
        """Whether some operators of a leaf do not run in all blocks of a loop."""
        idle = self.around.idle
        return any(self.regions.kept_blocks(loop, idle[i]).any() for i in leaf.operators if i in idle)

    def _blocks_of_engine(self, leaf: RowLeaf, loop: BlockLoop, stream: Stream) -> Iterator[int]:
        """Bytes of what passes for each block of a loop, where some operators do not run in all blocks."""
        for block in range(loop.blocks.count):
            size = 0
            for i in leaf.operators:
                kept = self.around.idle.get(i)
                if kept is not None and self.regions.kept_blocks(loop, kept)[block]:
                    continue
                size += self._widest_block(i, loop, block, stream)
            yield size

    def _widest_block(self, op: int, loop: BlockLoop, block: int, stream: Stream) -> int:
        """Bytes of the constants of an operator in one block of a loop, the most in blocks of others."""
        names = self.constants.names(op, stream)
        result = self.widest_result(op)
        inputs: Span | None = None
        if op in loop.folds:
            inputs = self.regions.folded_span(loop, op, block)
        elif (axis := self.regions.channels_cut(loop, op)) is not None:
            result = cut(result, axis, loop.blocks.span(block, self.flow.calls[op].result[axis]))
        is_last = block == loop.blocks.count - 1
        return self.constants.of_block(op, names, result, inputs, late=is_last)

    def widest_result(self, op: int) -> Box:
        """The result of an operator in the widest block of its channels."""
        result = whole(self.flow.calls[op].result)
        out, _ = self.blocks_of(op)
        if out is None:
            return result
        axis, blocks = out
        return cut(result, axis, (0, blocks.widest(result[axis][1])))

    @cached_property
    def passing(self) -> dict[Stream, list[tuple[int, StreamedBytes, Figure]]]:
        """Per stream: (operator, its constants that pass through, how often all of them do)."""
        return {stream: [*self._passing_through(stream)] for stream in self.nest.streams}

    def _passing_through(self, stream: Stream) -> Iterator[tuple[int, StreamedBytes, Figure]]:
        for i in self.nest.operators[stream.home]:
            names = self.constants.names(i, stream)
            if not names or i in self.nest.measures:
                continue
            times: Figure = 1
            for loop in self.nest.loops_to[self.nest.leaf_of[i]]:
                if not loop.cuts_channels or self.regions.is_made_again(loop, i):
                    times = times * self.regions.grids[loop].counts
            stays = max(stream.stays, self.idle_channels(i))
            yield i, self.constants.passing(i, names, *self.blocks_of(i), stays), times

    def idle_channels(self, op: int) -> int:
        """Channels of its results that an operator does not make: those of a map that is there."""
        return self.around.kept[self.around.idle[op]] if op in self.around.idle else 0
