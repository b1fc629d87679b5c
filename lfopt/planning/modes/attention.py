"""Mode `attention`: softmax(Q K' s + mask) V in blocks of heads, queries and keys, scores never stored.

See `lfopt.planning.attention.tiling`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from lfopt.ir import NEVER, BufferUse, Cost, DramBytes
from lfopt.ops import ATTENTION, bits
from lfopt.planning.attention.blocks import AttentionBlocks
from lfopt.planning.attention.tiling import AttentionTiling, best
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    ExecutionMode,
    Scheduled,
    SearchSpace,
    Traffic,
    TrafficTerms,
    fullest_uses,
    is_single,
)
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.tiling.finish import row_count
from lfopt.planning.tiling.tiles import signature
from lfopt.planning.tiling.tiling_region import TilingRegion


class _Choice(NamedTuple):
    blocks: AttentionBlocks | None  # None: none fit
    dram: DramBytes
    buffer_bytes: int
    rows: int = 1  # of the result in a block


class AttentionMode(ExecutionMode):
    """Single attentions, with their epilogues, on any buffer."""

    summary = "attention by heads, queries and blocks of keys: its scores are never stored"
    whole = False
    in_paper = False
    flown = True

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.traffic` says how bytes are counted, `space.epilogue` whether operators may follow."""
        self.groups = groups
        self.space = space
        self._known: dict[object, _Choice] = {}  # by structure of the group, and buffer
        self._needs: dict[object, int] = {}  # by structure of the group

    @cached_property
    def layout(self) -> BufferLayout:
        """Sizes on this chip."""
        return BufferLayout(self.groups.dataflow, self.groups.hardware)

    def anywhere(self, mask: int) -> bool:
        """Whether it may run so at all."""
        flow = self.groups.dataflow
        if not mask or flow.specs[(mask & -mask).bit_length() - 1] is not ATTENTION:
            return False
        return is_single(mask) or (self.space.epilogue and self.groups.is_epilogue_group(mask))

    def _region(self, mask: int) -> TilingRegion:
        return TilingRegion(self.layout, mask, {})

    def _best(self, mask: int, beta: int) -> _Choice:
        key = signature(self.groups.dataflow, mask), beta
        if key not in self._known:
            region = self._region(mask)
            fitting = best(region, beta)
            if fitting is None:  # what must move, and no more
                self._known[key] = _Choice(None, self.groups.once(mask), beta - 1)
            else:
                blocks, dram, need = fitting
                self._known[key] = _Choice(
                    blocks, dram, need, row_count(AttentionTiling(region).boxes.out(blocks, 0, 0))
                )
        return self._known[key]

    @property
    def _in_blocks(self) -> bool:
        return self.space.traffic is Traffic.TILED

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """The fewest bytes of any blocks that fit; traffic `once` counts every tensor once all the same."""
        if not self.anywhere(mask):
            return None
        choice = self._best(mask, beta)
        if not self._in_blocks:
            return Cost(once, choice.buffer_bytes, "attention")
        if choice.blocks is None and not is_single(mask):
            return None
        executable = choice.blocks is not None
        return Cost(choice.dram.total, choice.buffer_bytes, "attention", executable=executable)

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Rows in a band are those of a block of the result."""
        flow = self.groups.dataflow
        if not self._in_blocks:
            return TrafficTerms(self.groups.once(mask), band_rows=max(flow.heights[i] for i in bits(mask)))
        choice = self._best(mask, beta)
        return TrafficTerms(choice.dram, band_rows=choice.rows)

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """See `AttentionTiling.schedule`."""
        choice = self._best(mask, beta)
        if not self._in_blocks:
            return Scheduled(
                choice.buffer_bytes,
                f"traffic {self.space.traffic.value!r} counts every tensor once, and the buffer is too small "
                "for that",
            )
        blocks = choice.blocks
        if blocks is None:
            return Scheduled(
                choice.buffer_bytes, "the buffer is too small for one query and one key of attention"
            )
        return Scheduled(
            choice.buffer_bytes, lambda limit: AttentionTiling(self._region(mask)).schedule(blocks, limit)
        )

    def need(self, mask: int) -> int:
        """Bytes of the smallest block; NEVER where the group is no attention in blocks."""
        if not self._in_blocks or not self.anywhere(mask):
            return NEVER
        key = signature(self.groups.dataflow, mask)
        if key not in self._needs:
            self._needs[key] = AttentionTiling(self._region(mask)).smallest()
        return self._needs[key]

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Places of a block."""
        if self.need(mask) == NEVER:
            return
        blocks = self._best(mask, max(beta, self.need(mask) + 1)).blocks
        assert blocks is not None, "the smallest block fits"
        yield from fullest_uses(AttentionTiling(self._region(mask)).stacked(blocks), self.groups.hardware)

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """Whether it is an epilogue group: what it is grown into is one only then."""
        return self.space.epilogue and self.anywhere(mask)

    def extra_bytes(self, mask: int, beta: int) -> int:
        """0: what lies between two operators of an epilogue group is one.

        Without attention there is no such group.
        """
        attends = ATTENTION in self.groups.dataflow.specs
        if attends and (is_single(mask) or (self.space.epilogue and self.groups.is_epilogue_group(mask))):
            return 0
        return NEVER
