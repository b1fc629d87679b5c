"""Channels moved unchanged, and the lane copies that do it: Concat, Split, Slice, Gather along channels.

A word on chip has a byte for each of `lanes` channels, those of one block. What begins at a channel that no
block begins with is copied from lane to lane; a copy has one pattern for all blocks that it makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lfopt.ir import Span, whole
from lfopt.ops import Call
from lfopt.ops.call import once_per_call
from lfopt.ops.footprint import needs
from lfopt.ops.parameters import slice_steps

MOVES = frozenset({"Concat", "Split", "Slice", "Gather"})
MOST_STEP = 16  # channels from one of a run to the next


class ChannelRun(NamedTuple):
    """Evenly spaced channels of a result that come from evenly spaced channels of an operand.

    Channels written + k * written_step of a result are channels read + k * read_step of an operand, for k
    below `size`.
    """

    operand: int
    written: int
    read: int
    size: int
    written_step: int = 1
    read_step: int = 1


class LaneCopy(NamedTuple):
    """Blocks of a result that get lanes of blocks of an operand, all the same lanes.

    Lane o_lane + k * o_step from lane a_lane + k * a_step, for k below `size`.
    """

    operand: int
    to_block: int
    from_block: int
    o_lane: int
    a_lane: int
    size: int
    o_step: int
    a_step: int
    blocks: int = 1
    tail: int = 0  # lanes of the last block, where that has fewer than the others; else 0

    @property
    def next_block(self) -> LaneCopy:
        """The same copy, one block further."""
        return self._replace(
            to_block=self.to_block + self.blocks, from_block=self.from_block + self.blocks, blocks=1
        )


def channel_runs(call: Call, result: int = 0) -> tuple[ChannelRun, ...] | None:
    """Sources of the channels of one of an operator's results.

    None if it does more than move channels of maps [1, c, h, w] or [1, c].
    """
    return _channel_runs(call)[result]


@once_per_call
def _channel_runs(call: Call) -> tuple[tuple[ChannelRun, ...] | None, ...]:
    return tuple(_of_result(call, k) for k in range(len(call.results)))


def _of_result(call: Call, result: int) -> tuple[ChannelRun, ...] | None:
    kind = call.operator.kind
    out_shape = call.results[result]
    maps = [shape for i, shape in enumerate(call.shapes) if shape is not None and not call.constant[i]]
    if (
        len(out_shape) not in (2, 4)
        or any(
            len(shape) != len(out_shape) or (shape[0], *shape[2:]) != (out_shape[0], *out_shape[2:])
            for shape in maps
        )
        or out_shape[0] != 1
    ):
        return None
    if kind == "Concat":
        if call.attribute("axis", 1) % len(out_shape) != 1 or any(call.constant):
            return None
        starts = np.cumsum([0, *(shape[1] for shape in maps)]).tolist()
        return tuple(
            ChannelRun(i, start, 0, shape[1])
            for i, (start, shape) in enumerate(zip(starts, maps, strict=False))
        )
    if kind == "Split":
        asked = [k for k, name in enumerate(call.operator.outputs) if name]
        first, _ = needs(call, 0, whole(out_shape), asked[result])[1]
        if call.attribute("axis", 0) % len(out_shape) == 1:
            return (ChannelRun(0, 0, first, out_shape[1]),)
        return None
    if kind == "Slice":
        steps = slice_steps(call)
        plain = (
            steps is not None
            and all(step == (0, 1) for axis, step in enumerate(steps) if axis != 1)
            and steps[1][1] > 0
        )
        if steps is not None and plain:
            return (ChannelRun(0, 0, steps[1][0], out_shape[1], read_step=steps[1][1]),)
        return None
    if kind == "Gather":
        indices = call.values[1]
        if call.attribute("axis", 0) % len(out_shape) != 1 or indices is None or indices.ndim != 1:
            return None
        source = np.where(indices < 0, indices + maps[0][1], indices)
        if ((source >= 0) & (source < maps[0][1])).all():
            return tuple(_affine(source))
        return None
    return None


def _affine(read: np.ndarray) -> Iterator[ChannelRun]:
    """As few runs as one step for all of them allows; else those of neighbours. `read`: (channels,) int64."""
    for step in range(1, min(MOST_STEP, len(read)) + 1):
        parts = [read[phase::step] for phase in range(step)]
        steps = [part[1] - part[0] if len(part) > 1 else 1 for part in parts]
        if all(
            0 < by <= MOST_STEP and (np.diff(part) == by).all() for by, part in zip(steps, parts, strict=True)
        ):
            yield from (
                ChannelRun(0, k, int(part[0]), len(part), step, int(by))
                for k, (by, part) in enumerate(zip(steps, parts, strict=True))
            )
            return
    cuts = [0, *(np.flatnonzero(np.diff(read) != 1) + 1).tolist(), len(read)]
    for start, stop in pairwise(cuts):
        yield ChannelRun(0, start, int(read[start]), stop - start)


@lru_cache(maxsize=256)
def copies(runs: tuple[ChannelRun, ...], channels: Span, lanes: int) -> tuple[LaneCopy, ...]:
    """The copies that make some channels of a result. Remembered: schedules compute a row at a time."""
    merged: list[LaneCopy] = []
    for one in (copy for run in runs for copy in _by_block(run, channels, lanes)):
        grown = next((k for k, copy in enumerate(merged) if copy.next_block == one), None)
        if grown is None:
            merged.append(one)
        else:
            merged[grown] = merged[grown]._replace(blocks=merged[grown].blocks + 1)
    return tuple(merged)


def _by_block(run: ChannelRun, channels: Span, lanes: int) -> Iterator[LaneCopy]:
    """The copies of one run, each of lanes of one block of the operand to one of the result."""
    k = np.arange(run.size)
    written = run.written + k * run.written_step
    read = run.read + k * run.read_step
    inside = (channels[0] <= written) & (written < channels[1])
    written = written[inside]
    read = read[inside]
    if (
        written.size
        and (run.written_step, run.read_step) == (1, 1)
        and written[0] % lanes == read[0] % lanes == 0
    ):
        yield LaneCopy(
            run.operand,
            int(written[0]) // lanes,
            int(read[0]) // lanes,
            0,
            0,
            lanes,
            1,
            1,
            -(-len(written) // lanes),
            len(written) % lanes,
        )
        return
    pairs = np.stack([written // lanes, read // lanes], axis=1)
    cuts = [0, *(np.flatnonzero((np.diff(pairs, axis=0) != 0).any(axis=1)) + 1).tolist(), len(pairs)]
    for start, stop in pairwise(cuts):
        if start < stop:
            (to, source), o_lane, a_lane = (
                pairs[start].tolist(),
                int(written[start] % lanes),
                int(read[start] % lanes),
            )
            steps = (run.written_step, run.read_step) if stop - start > 1 else (1, 1)
            yield LaneCopy(run.operand, to, source, o_lane, a_lane, stop - start, *steps)
