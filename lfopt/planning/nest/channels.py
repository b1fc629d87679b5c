"""Which channels of an operator's results the blocks of a loop make."""

from __future__ import annotations

from lfopt.ir import cut, whole
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Dataflow, Family, Tiling
from lfopt.ops.footprint import footprint
from lfopt.planning.nest.tree import Axis, BlockLoop, GroupNest


def channel_axis(flow: Dataflow, op: int, axis: Axis) -> int | None:
    """The axis of an operator's results that a loop over `axis`, channels or outputs, cuts.

    Outputs are what blocks of a contraction's weights make: of a MatMul, whatever the rank, the last axis.
    """
    shape = flow.calls[op].result
    if axis == "outputs" and flow.specs[op].tiling is Tiling.CONTRACT:
        if flow.specs[op].family is Family.CONVOLUTION:
            return 1
        return len(shape) - 1
    return CHANNEL_AXIS_OF_RANK.get(len(shape))


def channels_cut(flow: Dataflow, nest: GroupNest, loop: BlockLoop, op: int) -> int | None:
    """See `Regions.channels_cut`."""
    key = loop, op
    if key not in nest.channel_cuts:
        nest.channel_cuts[key] = _find_channels_cut(flow, nest, loop, op)
    return nest.channel_cuts[key]


def _find_channels_cut(flow: Dataflow, nest: GroupNest, loop: BlockLoop, op: int) -> int | None:
    if not loop.cuts_channels or op in loop.folds or op not in nest.operators[loop]:
        return None
    if nest.summed_inside[loop] & flow.descendants[op] or waits(flow, nest, loop, op):
        return None
    axis = channel_axis(flow, op, loop.axis)
    readers = (i for i in nest.operators[loop] if flow.succs[op] >> i & 1 and i not in loop.folds)
    if axis is None or not all(_reads_own_blocks(flow, nest, loop, op, i) for i in readers):
        return None
    around = nest.loops_to[nest.leaf_of[op]]
    inner = around[around.index(loop) + 1 :]
    # blocks of an inner loop are blocks of all channels: the outer one makes them again
    if any(channels_cut(flow, nest, other, op) == axis for other in inner):
        return None
    return axis


def waits(flow: Dataflow, nest: GroupNest, loop: BlockLoop, op: int) -> bool:
    """Whether an operator reads what others sum over the blocks of a loop: it runs with the last block."""
    folds = sum(1 << i for i in loop.folds)
    return op in nest.operators[loop] and op not in loop.folds and bool(flow.ancestors[op] & folds)


def _reads_own_blocks(flow: Dataflow, nest: GroupNest, loop: BlockLoop, op: int, reader: int) -> bool:
    """Whether a reader needs, in each block of a loop, only that block of an operator's results."""
    axis = channels_cut(flow, nest, loop, reader)
    own = channel_axis(flow, op, loop.axis)
    if axis is None or own is None:
        return False
    call = flow.calls[reader]
    for k in (o.input for o in flow.operands[reader] if o.map in flow.results[op]):
        if call.shape(k) != flow.calls[op].result:
            return False
        for block in {0, loop.blocks.count // 2, loop.blocks.count - 1}:
            result = cut(whole(call.result), axis, loop.blocks.span(block, call.result[axis]))
            start, stop = footprint(call, k, result)[own]
            first, end = loop.blocks.span(block, flow.calls[op].result[own])
            if start < first or stop > end:
                return False
    return True


def folded_extent(flow: Dataflow, op: int) -> int:
    """The input channels that an operator sums over, in all."""
    shape = flow.calls[op].shape(0)
    return shape[CHANNEL_AXIS_OF_RANK[len(shape)]]
