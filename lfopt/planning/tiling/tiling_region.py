"""An operator with its epilogue, cut into frames, blocks of output channels or strips of columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from itertools import accumulate, product, takewhile
from math import ceil, isqrt, lcm, prod

from lfopt.ir import MOST_ROWS, Box, DramBytes, cut, round_up, whole
from lfopt.ir.box import spans
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Call, Family, RowReads, Tiling, row_of
from lfopt.ops.compute import folding
from lfopt.ops.dependence import spatial_window
from lfopt.planning.line_buffers.streamed_group import StreamedGroup
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.tiling.frames import Frames

MOST_FRAMES = 1 << 15  # that are looked at along one axis, one by one
# elements that an operator reads and makes: of more, steps row by row are too many to be made one by one
MOST_ELEMENTS = 1 << 30
CHANNELS = -100  # stands for the output channels of a contraction, group by group: see `channel_blocks`


class TilingRegion:
    """An operator with its epilogue: what it reads and makes, and the axes along which it can be cut."""

    def __init__(
        self, layout: BufferLayout, mask: int, rings: dict[int, int], width: int | None = None
    ) -> None:
        """`width`: channels in a block, a multiple of `channel_align`; None: `channel_align`."""
        self.layout = layout
        self.mask = mask
        self.rings = rings
        self.width = width or layout.hardware.channel_align
        self.flow = flow = layout.flow
        self.group = StreamedGroup(layout, mask, rings)
        self.anchor = (mask & -mask).bit_length() - 1
        self.call = flow.calls[self.anchor]
        self.shape = self.call.result
        # frames are boxes of every map alike
        self.uniform = all(flow.maps[m].shape == self.shape for m in self.group.computed)
        contracts = flow.specs[self.anchor].tiling is Tiling.CONTRACT and any(
            o.input == 0 for o in flow.operands[self.anchor]
        )
        self.contracts = contracts and min(len(self.call.shape(0)), len(self.call.shape(1))) > 1
        self.convolves = flow.specs[self.anchor].family is Family.CONVOLUTION
        # blocks along its axes are too many to be listed, or its steps to be made one by one
        shapes = [self.shape, *(shape for shape in self.call.shapes if shape is not None)]
        longest = max((extent for shape in shapes for extent in shape), default=1)
        self.huge = (
            longest > MOST_ROWS
            or sum(map(prod, shapes)) > MOST_ELEMENTS
            or bool(flow.too_tall >> self.anchor & 1)
        )
        windowed = self.convolves and len(self.shape) in (4, 5) and not self.huge
        self.columns: RowReads | None = spatial_window(self.call, -1) if windowed else None
        by_matrix = flow.specs[self.anchor].family is Family.PRODUCT
        self.operands = self.group.operands(as_seen=True)
        entire = any(o.source.entire for o in self.operands)
        # rows are neither output channels nor a batch
        rows_apart = len(self.shape) < 5 if by_matrix else len(self.shape) != 3
        self.rows_apart = rows_apart and not entire
        # a reduction over the rows of a map
        self._movable: dict[int, bool] = {}  # by columns of a block
        self.folds = folding(self.call) == "rows" and not self.call.constant[0] and not entire

    def own(self, op: int, index: int) -> bool:
        """Whether an input is the anchor's own.

        Inputs of its epilogue are not, whether in flight or as operators of the group.
        """
        return op == self.anchor and index < len(self.call.operator.inputs)

    @cached_property
    def once(self) -> DramBytes:
        """Every tensor once, as the network has them."""
        flow = self.flow
        hardware = self.layout.hardware
        read = {o.source.map for o in self.group.operands(as_seen=False)}
        constants = {name: whole(flow.graph.tensors[name].shape) for name in self.group.constants()}
        gathered = sum(
            self.layout.gathered_bytes(i, whole(self.shape))
            for i in self.group.members
            if self.group.gathers(i)
        )
        return DramBytes(
            input=sum(hardware.dram_bytes(flow.maps[m]) for m in read),
            output=sum(hardware.dram_bytes(flow.maps[m]) for m in self.group.outside),
            weight=sum(self.layout.constant_bytes(name, box) for name, box in constants.items()) + gathered,
        )

    def frames(self, blocks: Sequence[tuple[int, int]]) -> list[Box]:
        """The frames that cutting the results into such blocks gives, the last block the fastest."""
        frames = [whole(self.shape)]
        for axis, extent in blocks:
            if axis == CHANNELS:
                frames = [
                    meet(frame, block) for frame in frames for block in channel_blocks(self.call, extent)
                ]
            else:
                frames = [
                    cut(frame, axis, span) for frame in frames for span in spans(0, self.shape[axis], extent)
                ]
        return frames

    def end_frames(self, blocks: Sequence[tuple[int, int]]) -> list[Box]:
        """The first three and the last two of `frames`, without the others; no block is of `CHANNELS`."""
        cuts = [(axis, spans(0, self.shape[axis], extent)) for axis, extent in blocks]
        count = prod(len(ends) for _, ends in cuts)
        frames: list[Box] = []
        for number in sorted({0, min(1, count - 1), min(2, count - 1), max(count - 2, 0), count - 1}):
            frame = whole(self.shape)
            rest = number
            for axis, ends in reversed(cuts):
                rest, position = divmod(rest, len(ends))
                frame = cut(frame, axis, ends[position])
            frames.append(frame)
        return frames

    def grain(self, axis: int) -> int:
        """Multiple in elements of block extents along an axis: `width` for channels, else 1."""
        if CHANNEL_AXIS_OF_RANK.get(len(self.shape)) == axis % len(self.shape):
            return self.width
        return 1

    def sizes(self, axis: int) -> Sequence[int]:
        """Extents of blocks that cut an axis of the result evenly, largest first.

        Those that give more than `MOST_FRAMES` blocks, all sizes together, are left out.
        """
        extent = self.shape[axis]
        sizes = tuple(size for size in even_sizes(extent, self.grain(axis)) if self.movable(axis, size))
        counts = accumulate(-(-extent // size) for size in sizes)
        return sizes[: sum(1 for _ in takewhile(lambda count: count <= MOST_FRAMES, counts))]

    def finest(self, axis: int) -> int:
        """The smallest extent of blocks along an axis."""
        grain = self.grain(axis)
        return grain if self.movable(axis, grain) else self.sizes(axis)[-1]

    def movable(self, axis: int, extent: int) -> bool:
        """Whether the chip can move blocks of that extent along an axis, as far as their columns go.

        See `BufferLayout.movable_columns`.
        """
        rank = len(self.shape)
        if self.layout.moves_any_columns or rank != 4 or axis % rank != rank - 1:
            return True
        cuts_columns = self.columns is not None or not self.contracts
        if not cuts_columns or not self.uniform or self.huge or extent >= self.shape[axis]:
            return True
        if extent not in self._movable:
            self._movable[extent] = self._moves_columns(self.frames(((rank - 1, extent),)))
        return self._movable[extent]

    def _moves_columns(self, frames: Sequence[Box]) -> bool:
        """Whether all parts of rows that these frames read and make can be moved."""
        movable = self.layout.movable_columns
        cut_frames = Frames(self.layout, self.mask, self.rings, frames)
        for frame in frames:
            if self.group.outside and not movable(self.shape, frame[-1], ends=True):
                return False
        return all(
            movable(cut_frames.sources[name].tensor.shape, box[-1])
            for boxes in cut_frames.source_boxes()
            for name, box in boxes.items()
        )

    def channel_sizes(self) -> list[int]:
        """Sizes of blocks of output channels worth trying, largest first: whole groups, and parts of one."""
        groups, per_group = channel_groups(self.call)
        grain = self.grain(1 if self.convolves else -1)
        sizes = {size * per_group for size in even_sizes(groups, self.groups_together)}
        # else parts of most groups begin inside a block on chip
        if not self.convolves or groups == 1 or per_group % grain == 0:
            sizes |= set(even_sizes(per_group, grain))
        return sorted(sizes, reverse=True)

    @cached_property
    def groups_together(self) -> int:
        """Groups of a convolution that make whole blocks of channels on chip."""
        per_group = channel_groups(self.call)[1]
        if self.convolves:
            return lcm(per_group, self.grain(1)) // per_group
        return 1

    def cost(self, frames: Sequence[Box]) -> tuple[DramBytes, int]:
        """(DRAM bytes, buffer bytes) of running frame by frame."""
        return Frames(self.layout, self.mask, self.rings, frames).cost()

    def buffer_bytes(self, frames: Sequence[Box]) -> int:
        """Lower bound on the buffer bytes of running these frames, and some like them."""
        return Frames(self.layout, self.mask, self.rings, frames).buffer_bytes()

    def least_bytes(self, size: int, others: Sequence[tuple[int, int]]) -> int:
        """Lower bound on the DRAM bytes of a contraction in blocks of `size` output channels.

        An input that does not stay on chip is read for each of them.
        """
        data = next(o for o in self.operands if o.op == self.anchor and o.input == 0)
        halo = self.halo_bytes(others[0][1]) if others else 0
        if not others and self.group.ring(data.source) >= data.source.tensor.rows:
            return 0
        times = ceil(channel_groups(self.call)[1] / size) if size < channel_groups(self.call)[1] else 1
        return (
            self.once.total
            + times * halo
            + (times - 1) * data.source.tensor.elements * self.layout.hardware.element_bytes
        )

    def halo_bytes(self, extent: int) -> int:
        """Lower bound on the bytes of operand 0 that strips of `extent` output columns read again."""
        if self.columns is None or extent >= self.columns.rows_out:
            return 0
        reads = self.columns
        source = self.call.shape(0)
        read = 0
        for start, stop in spans(0, reads.rows_out, extent):
            read += max(max(reads.last[start:stop]) + 1 - min(reads.first[start:stop]), 0)
        return (
            max(read - reads.rows_in, 0)
            * (prod(source) // reads.rows_in)
            * self.layout.hardware.element_bytes
        )

    def unpadded(self, frames: Sequence[Box]) -> int:
        """DRAM bytes frame by frame if neither rows nor blocks of constants were padded.

        They never fall as frames get smaller.
        """
        return Frames(self._in_bits, self.mask, self.rings, frames).cost()[0].total // 8

    @cached_property
    def _in_bits(self) -> BufferLayout:
        return BufferLayout(self.flow, self.layout.hardware.in_bits)


def meet(a: Box, b: Box) -> Box:
    """Intersection of two boxes."""
    return tuple((max(s, t), min(e, f)) for (s, e), (t, f) in zip(a, b, strict=True))


def channel_groups(call: Call) -> tuple[int, int]:
    """(groups, output channels of one) of a contraction: groups of a convolution, matrices of a batch."""
    if row_of(call).family is Family.CONVOLUTION:
        groups = call.attribute("group", 1)
        return groups, call.result[1] // groups
    second = call.shape(1)
    return prod(second[:-2]), second[0] if call.operator.kind == "Gemm" and call.attribute(
        "transB", 0
    ) else second[-1]


def channel_blocks(call: Call, size: int) -> list[Box]:
    """A contraction's result in blocks of `size` output channels: whole groups, or parts of one."""
    groups, per_group = channel_groups(call)
    shape = call.result
    if row_of(call).family is Family.CONVOLUTION:
        if size >= per_group:
            return [cut(whole(shape), 1, span) for span in spans(0, shape[1], size // per_group * per_group)]
        starts = [
            (g * per_group + low, g * per_group + high)
            for g in range(groups)
            for low, high in spans(0, per_group, size)
        ]
        return [cut(whole(shape), 1, span) for span in starts]
    if size < per_group:
        columns = spans(0, per_group, size)
    else:
        columns = [(0, per_group)]
    second = call.shape(1)
    axes = [len(shape) - len(second) + axis for axis, extent in enumerate(second[:-2]) if extent > 1]
    steps = [1] * len(axes)
    if axes:
        steps[-1] = max(min(size // per_group, shape[axes[-1]]), 1)
    blocks: list[Box] = []
    for picked in product(*(spans(0, shape[axis], step) for axis, step in zip(axes, steps, strict=True))):
        box = whole(shape)
        for axis, span in zip(axes, picked, strict=True):
            box = cut(box, axis, span)
        blocks += [cut(box, -1, span) for span in columns]
    return blocks


@cache
def even_sizes(extent: int, grain: int = 1) -> tuple[int, ...]:
    """Extents of blocks that cut an axis evenly, in multiples of a grain; largest first.

    >>> even_sizes(10), even_sizes(40, 16)
    ((10, 5, 4, 3, 2, 1), (40, 32, 16))
    """
    few = range(1, isqrt(extent) + 2)  # more blocks than these have extents among these
    exact = {-(-extent // n) for n in few} | {-(-extent // -(-extent // size)) for size in few}
    return tuple(sorted({min(round_up(size, grain), extent) for size in exact}, reverse=True))


def powers(limit: int, grain: int = 1) -> list[int]:
    """1, 2, 4, ... grains below the limit, and the limit.

    >>> powers(5), powers(40, 16)
    ([1, 2, 4, 5], [16, 32, 40])
    """
    return [*(grain << k for k in range(limit.bit_length()) if grain << k < limit), limit]
