"""Slices as wide as fit: groups in modes resident and brr run in fewer, longer steps for the same bytes.

Slices as narrow as the chip can decide what is legal and what it costs; a plan then gives them what buffer is left over. Where wider blocks of
constants would save padding, they are left as they are: a plan moves what the search was told.
"""

from __future__ import annotations

from collections.abc import Iterator

from lfopt.ops import bits
from lfopt.planning.brr import Banded, Bands
from lfopt.planning.costs import GroupCosts
from lfopt.planning.resident import Resident


class Widest:
    """Planners of groups that one cost model finds legal."""

    def __init__(self, costs: GroupCosts) -> None:
        self.costs = costs
        self._resident: dict[int, Resident] = {}  # by width of the slices
        self._bands: dict[int, Bands] = {}

    def _widths(self, mask: int) -> Iterator[int]:
        """Channels in a slice: twice as many as the chip must have, four times as many, up to all there are."""
        calls, width = self.costs.dataflow.calls, self.costs.hardware.channel_align
        most = max((shape[axis] for i in bits(mask) for shape in calls[i].results for axis in (1, -1) if len(shape) > 1), default=1)
        while width < most:
            width *= 2
            yield width

    def resident(self, mask: int) -> Resident:
        """The planner of a group in mode resident with the widest blocks of weights that fit."""
        costs, found = self.costs, self.costs.resident
        for width in self._widths(mask):
            if width not in self._resident:
                self._resident[width] = Resident(costs.dataflow, costs.hardware, width)
            if self._resident[width].need(mask) >= costs.hardware.buffer_bytes:
                break
            if self._resident[width].padding(mask) == costs.resident.padding(mask):
                found = self._resident[width]
        return found

    def bands(self, mask: int) -> tuple[Bands, Banded]:
        """The planner of a group in mode brr with the widest slices that fit, and the same bands."""
        costs, banded = self.costs, self.costs.banded(mask)
        assert banded is not None, "mode brr means that a number of bands fits"
        found = costs.bands, banded
        for width in self._widths(mask):
            if width not in self._bands:
                self._bands[width] = Bands(costs.dataflow, costs.hardware, width)
            choice = self._bands[width].like(mask, banded)
            if choice is None or choice.buffer_bytes >= costs.hardware.buffer_bytes:
                break
            if choice.pass_bytes == banded.pass_bytes:
                found = self._bands[width], choice
        return found
