"""Mode `sliced`: a head makes slices of channels, others follow, a tail sums over the slices.

See `lfopt.planning.sliced.choices`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple

from lfopt.ir import BufferUse, Cost, DramBytes
from lfopt.ops import bits
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    ExecutionMode,
    ModeOption,
    Scheduled,
    SearchSpace,
    TrafficTerms,
    fullest_uses,
    slice_widenings,
)
from lfopt.planning.nest.lowering import lower, lower_priced
from lfopt.planning.nest.places import Placement
from lfopt.planning.nest.price import NestPrice, NestPricing
from lfopt.planning.nest.tree import GroupNest
from lfopt.planning.sliced.choices import SlicedGroups
from lfopt.planning.sliced.nest import sliced_nest
from lfopt.planning.sliced.profile import Sliced, SlicedOption
from lfopt.planning.sliced.segments import Segment, Segments


class _PricedNest(NamedTuple):
    nest: GroupNest
    price: NestPrice
    dram: DramBytes
    buffer_bytes: int


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
        if bound is not None and bound.least >= beta:
            return None
        choice = self.sliced.cheapest(mask, beta)
        return None if choice is None else self._cost(mask, choice)

    def _cost(self, mask: int, choice: Sliced) -> Cost:
        return Cost(self._dram(mask, choice).total, choice.buffer_bytes, "sliced", choice.buffer_bytes)

    def options(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """That of the fewest bytes, then those that make less again for more bytes."""
        for choice in self.sliced.of_fewer_macs(mask, beta):
            yield ModeOption(
                self._cost(mask, choice), self._terms(mask, choice), self._schedule(mask, beta, choice)
            )

    def _dram(self, mask: int, choice: Sliced) -> DramBytes:
        return replace(self.groups.once(mask), input=choice.input_bytes, weight=choice.weight_bytes)

    def _chosen(self, mask: int, beta: int) -> Sliced:
        choice = self.sliced.cheapest(mask, beta)
        assert choice is not None, "mode sliced means that some way fits"
        return choice

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """Weight passes are those of the weights that pass most often."""
        return self._terms(mask, self._chosen(mask, beta))

    def _terms(self, mask: int, choice: Sliced) -> TrafficTerms:
        return TrafficTerms(
            self._dram(mask, choice),
            self.sliced.passes(mask, choice.option),
            -(-self.sliced.rows.tallest(mask) // choice.option.bands),
        )

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """The schedule with the widest slices that fit: fewer, longer steps for the same bytes.

        Wider slices need more buffer: the first that do not fit end the search.
        """
        return self._schedule(mask, beta, self._chosen(mask, beta))

    def _schedule(self, mask: int, beta: int, choice: Sliced) -> Scheduled:
        planned = self._dram(mask, choice)
        best = self._priced(mask, choice.option, self.groups.hardware.narrowest_block)
        assert best.buffer_bytes <= choice.buffer_bytes, (
            f"{best.buffer_bytes} B, planned {choice.buffer_bytes}"
        )
        assert best.dram == planned, f"DRAM bytes are {best.dram}, planned were {planned}"
        for width in slice_widenings(self.groups, mask):
            if width >= choice.option.segment.channels:
                break
            wider = self._priced(mask, choice.option, width)
            if wider.buffer_bytes >= beta:
                break
            if wider.dram == planned:
                best = wider
        return Scheduled(best.buffer_bytes, partial(lower_priced, best.price), best.nest)

    def _segments(self, width: int) -> Segments:
        """Segments in slices of `width` channels."""
        narrow = self.sliced.segments
        if width == narrow.width:
            return narrow
        if width not in self._wider:
            self._wider[width] = Segments(narrow.flow, narrow.hardware, narrow.lines, width)
        return self._wider[width]

    def _priced(self, mask: int, option: SlicedOption, width: int) -> _PricedNest:
        """The nest of an option in slices of `width` channels."""
        segments = self._segments(width)
        nest = sliced_nest(self.sliced.rows, segments, mask, option)
        price = self._pricing.price(mask, nest)
        dram = price.dram + DramBytes(parameter=self.groups.parameter_bytes(mask))
        need = segments.hardware.buffer_need(int(price.map_bytes[0]), int(price.constant_bytes[0]))
        return _PricedNest(nest, price, dram, need)

    @cached_property
    def _pricing(self) -> NestPricing:
        return NestPricing(self.sliced.segments.layout, self.groups.line_buffers)

    def schedule_now(self, mask: int, beta: int, rows: int) -> Scheduled:
        """The schedule with the narrowest slices, laid out when its steps are made."""
        choice = self._chosen(mask, beta)
        segments = self.sliced.segments
        nest = sliced_nest(self.sliced.rows, segments, mask, choice.option)
        make = partial(lower, segments.layout, mask, nest, self.groups.line_buffers)
        return Scheduled(choice.buffer_bytes, make, nest)

    def need(self, mask: int) -> int:
        """F_beta in as many bands and parts as there may be."""
        return self.sliced.least(mask)

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Places, on the smallest buffer where it does not fit."""
        least = self.sliced.least(mask)
        choice = self.sliced.cheapest(mask, beta) or self.sliced.cheapest(mask, least + 1)
        if choice is None:
            return
        priced = self._priced(mask, choice.option, self.groups.hardware.narrowest_block)
        yield from fullest_uses(Placement(priced.price).places, self.groups.hardware)

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
        return bound is not None and bound.least < beta

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
