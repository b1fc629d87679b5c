"""Mode `resident`: operator by operator, maps whole on chip from production to last use.

Weights are streamed once (`lfopt.planning.resident`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial

from lfopt.ir import BufferUse, Cost, DramBytes
from lfopt.ops import bits
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.mode import (
    NEVER,
    ExecutionMode,
    Scheduled,
    SearchSpace,
    TrafficTerms,
    slice_widenings,
    tallest,
)
from lfopt.planning.nest.lowering import lower
from lfopt.planning.resident import Peak, Resident


class ResidentMode(ExecutionMode):
    """Groups with whole maps on chip. The bound is a `Peak`."""

    summary = "operator by operator, whole maps stay on chip, weights stream past once"
    steady = True
    in_paper = False

    def __init__(self, groups: Groups, space: SearchSpace) -> None:
        """`space` changes nothing here."""
        self.groups = groups
        self._wider: dict[int, Resident] = {}  # by width of the weight blocks

    @cached_property
    def resident(self) -> Resident:
        """Needs and schedules with weight blocks as narrow as the chip allows."""
        return Resident(self.groups.dataflow, self.groups.hardware)

    def price(self, mask: int, beta: int, once: int, bound: Peak | None = None) -> Cost | None:
        """Every tensor moves once, weights padded block by block."""
        least = self.resident.least(mask) if bound is None else bound.bytes
        if least >= beta:  # a bound that costs little, and says most of what does not fit
            return None
        need = self.resident.need(mask)
        if need >= beta:
            return None
        return Cost(once + self.resident.padding(mask), need, "resident", need)

    def terms(self, mask: int, beta: int) -> TrafficTerms:
        """All rows of an operator are made in one go."""
        dram = self.groups.once(mask) + DramBytes(weight=self.resident.padding(mask))
        return TrafficTerms(dram, band_rows=tallest(self.groups.dataflow, mask))

    def schedule(self, mask: int, beta: int, rows: int) -> Scheduled:
        """The schedule with the widest weight blocks that fit: fewer, longer steps for the same bytes."""
        widest = self.resident
        padding = self.resident.padding(mask)
        for width in slice_widenings(self.groups, mask):
            if width not in self._wider:
                self._wider[width] = Resident(self.groups.dataflow, self.groups.hardware, width)
            if self._wider[width].need(mask) >= beta:
                break
            # not where wider blocks would save padding: a plan moves the bytes that the search was told
            if self._wider[width].padding(mask) == padding:
                widest = self._wider[width]
        return _scheduled(widest, mask)

    def schedule_now(self, mask: int, beta: int, rows: int) -> Scheduled:
        """The schedule with the narrowest weight blocks."""
        return _scheduled(self.resident, mask)

    def need(self, mask: int) -> int:
        """F_beta in bytes."""
        return self.resident.need(mask)

    def weights(self, mask: int) -> int:
        """See `Resident.weights`."""
        return self.resident.weights(mask)

    def uses(self, mask: int, beta: int) -> Iterator[BufferUse]:
        """See `Resident.uses`."""
        yield from self.resident.uses(mask)

    def grow(self, mask: int, bound: Peak | None, op: int) -> Peak:
        """See `Resident.grow`."""
        return self.resident.grow(mask, (bound or Peak()) if mask else Peak(), op)

    def extra_bytes(self, mask: int, beta: int) -> int:
        """NEVER if these operators alone exceed the buffer, else 0.

        Whatever joins them makes no tensor live shorter and no block of weights narrower.
        """
        peak = Peak()
        grown = 0
        for i in bits(mask):
            peak = self.resident.grow(grown, peak, i)
            grown = grown | 1 << i
            if peak.bytes >= beta:
                return NEVER
        return 0

    def may_fit(self, mask: int, bound: Peak, beta: int) -> bool:
        """The bound never falls."""
        return bound.bytes < beta

    def least(self, op: int) -> int:
        """The bound of the operator alone."""
        return self.resident.grow(0, Peak(), op).bytes

    def compatible(self, beta: int) -> list[int]:
        """See `Resident.compatible`."""
        return self.resident.compatible(beta)


def _scheduled(resident: Resident, mask: int) -> Scheduled:
    nest = resident.nest(mask)
    return Scheduled(resident.need(mask), partial(lower, resident.layout, mask, nest, None), nest)
