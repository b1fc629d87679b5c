"""Bytes of the constants of a nest, whole and in blocks that pass through a stream."""

from __future__ import annotations

from typing import NamedTuple

from lfopt.ir import Box, Span, cut, whole
from lfopt.ops import Dataflow
from lfopt.ops.footprint import footprint
from lfopt.planning.line_buffers.streamed_group import is_parameter
from lfopt.planning.nest.channels import folded_extent
from lfopt.planning.nest.tree import Blocks, Stream
from lfopt.planning.steps.layout import BufferLayout

AxisBlocks = tuple[int, Blocks]  # blocks of one axis of a result


class StreamedBytes(NamedTuple):
    """Constants of an operator that pass through a stream."""

    largest: int  # bytes of the largest block
    total: int  # DRAM bytes of all blocks, each loaded once


class ConstantSizes:
    """Sizes of the constants of one dataflow on one chip, remembered."""

    def __init__(self, layout: BufferLayout) -> None:
        self.layout = layout
        self.flow = layout.flow
        self._whole: dict[str, int] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        self._passing: dict[
            tuple[int, tuple[str, ...], AxisBlocks | None, Blocks | None, int], StreamedBytes
        ] = {}

    def whole(self, name: str) -> int:
        """Bytes of a whole constant."""
        if name not in self._whole:
            self._whole[name] = self.layout.constant_bytes(name, whole(self.flow.graph.shape(name)))
        return self._whole[name]

    def names(self, op: int, stream: Stream) -> tuple[str, ...]:
        """Constants that an operator takes from a stream, in the order of its inputs."""
        if op not in self._names:
            self._names[op] = data_constants(self.flow, op)
        return tuple([name for name in self._names[op] if name in stream.constants])

    def passing(
        self, op: int, names: tuple[str, ...], out: AxisBlocks | None, inputs: Blocks | None, stays: int = 0
    ) -> StreamedBytes:
        """Bytes of constants that an operator takes in blocks of its output and input channels.

        A constant that is read when sums are finished comes with the last block of input channels. `stays`:
        channels whose constants do not pass: of those that it sums over, else of its results.
        """
        key = op, names, out, inputs, stays
        if key not in self._passing:
            self._passing[key] = self._pass(*key)
        return self._passing[key]

    def _pass(
        self, op: int, names: tuple[str, ...], out: AxisBlocks | None, inputs: Blocks | None, stays: int
    ) -> StreamedBytes:
        result = whole(self.flow.calls[op].result)
        results: list[tuple[Box, int]] = [(result, 1)]
        if out is not None:
            axis, blocks = out
            behind = stays if inputs is None else 0
            by_width = blocks.by_width(result[axis][1], behind)
            results = [(cut(result, axis, span), times) for span, times in by_width]
        folded: list[tuple[Span | None, int]] = [(None, 1)]
        last: Span | None = None
        if inputs is not None:
            extent = folded_extent(self.flow, op)
            folded = [*inputs.by_width(extent, stays)]
            if folded:
                last = inputs.span(-1, extent)
        largest = total = 0
        for box, of_box in results:
            late = self._block_bytes(op, names, box, None, late=True) if last is not None else 0
            largest = max(largest, late + self._block_bytes(op, names, box, last, late=False))
            total += of_box * late
            for span, of_span in folded:
                size = self._block_bytes(op, names, box, span, late=None if last is None else False)
                total += of_box * of_span * size
                largest = max(largest, size)
        if not folded:
            return StreamedBytes(0, 0)
        return StreamedBytes(largest, total)

    def of_block(self, op: int, names: tuple[str, ...], out: Box, inputs: Span | None, *, late: bool) -> int:
        """Bytes of the constants that an operator takes in one block.

        `out`: its results, `inputs`: of the input channels that it sums over; None: it sums over all. `late`:
        whether with what finished sums take.
        """
        if inputs is None:
            return self._block_bytes(op, names, out, None, late=None)
        size = self._block_bytes(op, names, out, inputs, late=False)
        return size + (self._block_bytes(op, names, out, None, late=True) if late else 0)

    def _block_bytes(
        self, op: int, names: tuple[str, ...], out: Box, inputs: Span | None, *, late: bool | None
    ) -> int:
        """Bytes of a block of constants; `late`: of biases alone, which finished sums take, or of others."""
        call = self.flow.calls[op]
        size = 0
        for name in names:
            index = call.inputs.index(name)
            if late is None or late == (index > 1):
                size += self.layout.constant_bytes(name, footprint(call, index, out, inputs=inputs))
        return size


def data_constants(flow: Dataflow, op: int) -> tuple[str, ...]:
    """Constants that an operator reads as data, in the order of its inputs."""
    call = flow.calls[op]
    names = {w.name for w in flow.weights[op] if not w.gathered}
    read = (name for k, name in enumerate(call.inputs) if name in names and not is_parameter(call, k))
    return tuple(dict.fromkeys(read))
