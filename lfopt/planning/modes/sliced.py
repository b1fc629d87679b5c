"""Mode `sliced`: a head makes slices of channels, others follow, a tail sums over the slices.

See `lfopt.planning.sliced.choices`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from lfopt.ir import BufferUse, Cost, DramBytes
from lfopt.ops import bits
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    ExecutionMode,
    Scheduled,
    SearchSpace,
    TrafficTerms,
    place_use,
    slice_widenings,
)
from lfopt.planning.sliced.choices import Sliced, SlicedGroups
from lfopt.planning.sliced.schedule import SlicedScheduler
from lfopt.planning.sliced.segments import Segment, Segments


class SlicedMode(ExecutionMode):
    """Groups slice by slice. The bound is a `Segment`; None for a group that is none."""

    summary = (
        "slice by slice: between two contractions a few channels are on chip at a time; weights "
        "stream past, or stay in part"
    )
    in_paper = False

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.max_recompute` caps what a group repeats."""
        self.groups = groups
        self.space = space
        self._wider: dict[int, Segments] = {}  # by width of the slices

    @cached_property
    def sliced(self) -> SlicedGroups:
        """Needs, with slices as narrow as the chip allows."""
        return SlicedGroups(self.groups, self.space.max_recompute)

    def price(self, mask: int, beta: int, once: int, bound: Segment | None = None) -> Cost | None:
        """The cheapest option: what the head reads and results once, other inputs once per part.

        Weights once per band and part, or once.
        """
        if bound is not None and min(bound.floor, bound.alone) >= beta:
            return None
        choice = self.sliced.cheapest(mask, beta)
        if choice is None:
            return None
        return Cost(self._dram(mask, choice).total, choice.buffer_bytes, "sliced", choice.buffer_bytes)

    def _dram(self, mask: int, choice: Sliced) -> DramBytes:
        return replace(self.groups.once(mask), input=choice.input_bytes, weight=choice.weight_bytes)

    def _chosen(self, mask: int, beta: int) -> Sliced:
        choice = self.sliced.cheapest(mask, beta)
        assert choice is not None, "mode sliced means that some way fits"
        return choice

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Weight passes are those of the weights that pass most often."""
        choice = self._chosen(mask, beta)
        return TrafficTerms(
            self._dram(mask, choice),
            self.sliced.passes(mask, choice.option),
            -(-self.sliced.tallest(mask) // choice.option.bands),
        )

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """The schedule with the widest slices that fit: fewer, longer steps for the same bytes.

        Wider slices need more buffer: the first that do not fit end the search. Only slices that are all of
        one width are taken.
        """
        choice = self._chosen(mask, beta)
        sizes = self.sliced
        best = SlicedScheduler(sizes, sizes.segments, mask, choice.option)
        sized = (best.end, best.weight_bytes)
        planned = (choice.buffer_bytes, choice.weight_bytes)
        assert sized == planned, f"(F_beta, bytes of weights) are {sized}, planned were {planned}"
        for width in slice_widenings(self.groups, mask):
            if width >= choice.option.segment.channels:
                break
            if width not in self._wider:
                self._wider[width] = Segments(sizes.flow, sizes.hardware, sizes.lines, width)
            wider = SlicedScheduler(sizes, self._wider[width], mask, choice.option)
            if wider.end >= beta:
                break
            if wider.weight_bytes == choice.weight_bytes and wider.even:
                best = wider
        return Scheduled(best.end, best.build)

    def schedule_now(self, mask: int, beta: int, rows: int) -> Scheduled:
        """The schedule with the narrowest slices, laid out when its steps are made."""
        choice = self._chosen(mask, beta)
        return Scheduled(
            choice.buffer_bytes,
            lambda limit: SlicedScheduler(self.sliced, self.sliced.segments, mask, choice.option).build(
                limit
            ),
        )

    def need(self, mask: int) -> int:
        """F_beta in as many bands and parts as there may be."""
        return self.sliced.least(mask)

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Places, on the smallest buffer where it does not fit."""
        least = self.sliced.least(mask)
        choice = self.sliced.cheapest(mask, beta) or self.sliced.cheapest(mask, least + 1)
        if choice is None:
            return
        yield from map(
            place_use, SlicedScheduler(self.sliced, self.sliced.segments, mask, choice.option).places
        )

    def never(self, mask: int) -> str:
        """The first operator with which the group is no segment."""
        flow = self.groups.dataflow
        segments = self.sliced.segments
        segment = None
        done = 0
        for op in bits(mask):
            segment = segments.grow(segment, done, op)
            if segment is None:
                name = f"{flow.operators[op].name} ({flow.operators[op].kind})"
                return f"with {name}, the group does not run slice by slice"
            done |= 1 << op
        return "the group does not run slice by slice"

    # -- bounds ----------------------------------------------------------------------------------------------

    def grow(self, mask: int, bound: Segment | None, op: int) -> Segment | None:
        """See `Segments.grow`."""
        return self.sliced.segments.grow(bound, mask, op)

    def may_fit(self, mask: int, bound: Segment | None, beta: int) -> bool:
        """The bound never falls."""
        return bound is not None and min(bound.floor, bound.alone) < beta

    def least(self, op: int) -> int:
        """The bound of the operator alone, which is on chip in no other way where it follows on slices."""
        return self.sliced.segments.least(op)

    def compatible(self, beta: int) -> list[int]:
        """See `Segments.segment_candidates`."""
        compatible = [1 << i for i in range(len(self.groups.dataflow))]
        for candidate in self.sliced.segments.segment_candidates(beta):
            for i in bits(candidate):
                compatible[i] |= candidate
        return compatible
