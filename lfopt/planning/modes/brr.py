"""Mode `brr`: buffer requirement reduction.

The results are made in bands of rows while weights stream past (`lfopt.planning.brr.banded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from math import isfinite

from lfopt.ir import BufferUse, Cost
from lfopt.ops import bits
from lfopt.planning.brr.banded import Banded, BandedGroups
from lfopt.planning.brr.bounds import BandBounds
from lfopt.planning.groups.compatibility import band_bytes, compatible_in_bands
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    NEVER,
    ExecutionMode,
    ModeOption,
    Scheduled,
    SearchSpace,
    TrafficTerms,
    fullest_uses,
    slice_widenings,
)
from lfopt.planning.nest.lowering import lay_out, lower

MOST_PASSES = 2  # weight bytes that an option may load, over the fewest


class BrrMode(ExecutionMode):
    """Groups in bands of rows. Growing carries no bound: `BandedGroups` knows that of each group."""

    summary = "bands of rows: maps in full or in channel slices by turns, weights stream past once per band"

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space.max_recompute` caps the multiply-accumulates of a group; of most schemes it is infinite."""
        self.groups = groups
        self.most_macs: Callable[[int], float] | None = None
        if isfinite(space.max_recompute):
            self.most_macs = partial(groups.most_macs, allowed=space.max_recompute)
        # by width of the slices, and whether sums are wide
        self._wider: dict[tuple[int, bool], BandedGroups] = {}

    @cached_property
    def bands(self) -> BandedGroups:
        """Needs and schedules with slices as narrow as the chip allows."""
        return self._bands(self.groups.hardware.narrowest_block, wide=False)

    def _bands(self, width: int, *, wide: bool) -> BandedGroups:
        """Needs and schedules with slices of `width` channels."""
        if (width, wide) not in self._wider:
            self._wider[width, wide] = BandedGroups(
                self.groups.dataflow, self.groups.hardware, width, wide=wide, most_macs=self.most_macs
            )
        return self._wider[width, wide]

    def cheapest(self, mask: int, beta: int) -> Banded | None:
        """How the group runs with the fewest weight passes; None if it does not."""
        return self.bands.cheapest(mask, beta)

    def _chosen(self, mask: int, beta: int) -> Banded:
        banded = self.cheapest(mask, beta)
        assert banded is not None, "mode brr means that a number of bands fits"
        return banded

    def price(self, mask: int, beta: int, once: int, bound: None = None) -> Cost | None:
        """Every map once, weights once per band."""
        banded = self.cheapest(mask, beta)
        if banded is None:
            return None
        return self._cost(mask, once, banded)

    def _cost(self, mask: int, once: int, banded: Banded) -> Cost:
        return Cost(
            once - self.groups.weight_bytes(mask)[0] + banded.weight_bytes,
            banded.buffer_bytes,
            "brr",
            banded.buffer_bytes,
        )

    def options(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """The fewest weight passes; then more passes with wider slices; then wide sums.

        Each further pass leaves more of the buffer to slices. Of equal weight bytes, the fewest bands that
        fit are an option, too: those make the fewest rows again. Wide sums give up buffer for the same bytes:
        one large block of weights is loaded while the slice before it is made, in place of many small ones.
        They are for groups whose weights the buffer cannot hold, where the port may be what takes time.
        """
        first = self.cheapest(mask, beta)
        if first is None:
            return
        kept = {(first.bands, first.start): first}
        fewest = self.bands.of_fewest_bands(mask, beta)
        for banded in self.bands.choices(mask):
            if banded.buffer_bytes < beta and banded.weight_bytes <= MOST_PASSES * first.weight_bytes:
                for one in (banded, fewest[banded.weight_bytes]):
                    kept.setdefault((one.bands, one.start), one)
        for banded in kept.values():
            yield self._way(mask, beta, once, self.bands, banded)
        wide = self._bands(self.groups.hardware.narrowest_block, wide=True)
        room = self.groups.hardware.weight_buffer_bytes or beta
        for banded in wide.summing(mask, first.bands) if first.pass_bytes >= room else ():
            if banded.buffer_bytes < beta and banded.weight_bytes == first.weight_bytes:
                yield self._way(mask, beta, once, wide, banded)

    def ways(self, mask: int, beta: int, once: int) -> Iterator[ModeOption]:
        """Every start and number of bands, with weights streaming and with all on chip."""
        candidates = sorted(self.bands.candidates(mask), key=lambda one: (one.weight_bytes, one.buffer_bytes))
        for banded in candidates:
            if banded.buffer_bytes < beta:
                yield self._way(mask, beta, once, self.bands, banded)

    def _way(self, mask: int, beta: int, once: int, bands: BandedGroups, banded: Banded) -> ModeOption:
        return ModeOption(
            self._cost(mask, once, banded),
            self._terms(mask, banded),
            self._schedule(mask, beta, bands, banded),
        )

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """See `Banded`."""
        return self._terms(mask, self._chosen(mask, beta))

    def _terms(self, mask: int, banded: Banded) -> TrafficTerms:
        return TrafficTerms(
            replace(self.groups.once(mask), weight=banded.weight_bytes),
            banded.weight_passes,
            banded.band_rows,
        )

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """The schedule with the widest slices that fit: fewer, longer steps for the same bytes."""
        return self._schedule(mask, beta, self.bands, self._chosen(mask, beta))

    def _schedule(self, mask: int, beta: int, bands: BandedGroups, banded: Banded) -> Scheduled:
        widest = bands, banded
        for width in slice_widenings(self.groups, mask):
            wider = self._bands(width, wide=bands.slices.wide)
            choice = wider.like(mask, banded)
            if choice is None or choice.buffer_bytes >= beta:
                break
            if choice.pass_bytes == banded.pass_bytes:
                widest = wider, choice
        bands, banded = widest
        nest = bands.nest(mask, banded)
        return Scheduled(banded.buffer_bytes, partial(lower, bands.slices.layout, mask, nest, None), nest)

    def need(self, mask: int) -> int:
        """F_beta with the most bands."""
        return self.bands.least(mask)

    def weights(self, mask: int) -> int:
        """See `BandedGroups.weights`."""
        return self.bands.weights(mask)

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """Places of the fullest segment; segments run one after the other in the same space."""
        hardware = self.groups.hardware
        if not self.bands.choices(mask):  # the weights fit their buffer in no way
            yield BufferUse("weights", "weights", 0, 0, self.bands.weights(mask))
            return
        nest = self.bands.nest(mask, self.cheapest(mask, beta) or self.bands.choices(mask)[-1])
        places = lay_out(self.bands.slices.layout, mask, nest)
        yield from fullest_uses(places, hardware)

    def never(self, mask: int) -> str:
        """The first operator with which the group cannot run so."""
        flow = self.groups.dataflow
        part = 0
        for i in bits(mask):
            part |= 1 << i
            if self.bands.floor(part) == NEVER:
                name = f"{flow.operators[i].name} ({flow.operators[i].kind})"
                inside = [o.map for o in flow.operands[i] if flow.makes(mask, o.map)]
                if flow.heights[i] > 1 and any(flow.maps[m].rows == 1 for m in inside):
                    return (
                        f"{name} spreads one row that the group makes over many, which bands of rows do "
                        "not allow"
                    )
                return f"with {name}, the group cannot run in bands of rows"
        return "the group cannot run in bands of rows"

    def may_fit(self, mask: int, bound: None, beta: int) -> bool:
        """See `BandedGroups.floor`."""
        return self.bands.floor(mask) < beta

    @cached_property
    def _bounds(self) -> BandBounds:
        return BandBounds(self.bands.slices)

    def extra_bytes(self, mask: int, beta: int) -> int:
        """See `BandBounds`."""
        return self._bounds.extra_bytes(mask, beta)

    def least(self, op: int) -> int:
        """See `band_bytes`."""
        return band_bytes(self.bands.slices, op)

    def compatible(self, beta: int) -> list[int]:
        """See `compatible_in_bands`."""
        return compatible_in_bands(self.bands.slices, beta)
