"""The cheapest run of a group slice by slice, in bands of rows: buffer, bytes and MACs of each choice.

    for each of T bands of output rows
        for each of n parts of the tail's output channels
            for each slice of w channels
                the head, what follows it and the tail's sums, row by row, through rings of w channels

    F_beta = rows of a band of what the head reads
             +  rings of w channels, sums of a band's rows of a part, one finished row of the part;
                or one row of what the prologue reads, if that is more
             +  two of the largest blocks of weights (those of one slice)  +  weights that stay
             +  maps of one row and constants in no blocks
    F_D    = what the head reads and results once each
             +  weights of the tail T times, those before it T n times, but those that stay: once

A map that is read slice by slice passes n times, and rows of it that two bands need twice. Rows of slices
that two bands need are computed twice, and what comes before the tail n times; how often a group repeats its
multiply-accumulates so is capped. Rows that a prologue makes for the heads are made once, each from one row
on chip of what it reads. Weights that stay are those of the first slices, first those before the tail, since
they pass more often. A reduction that ends the group sums the rows of a slice; of several bands, of all
slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from lfopt.planning.groups.groups import Groups
from lfopt.planning.sliced.profile import Profile, Sliced, SlicedOption
from lfopt.planning.sliced.rows import SegmentRows
from lfopt.planning.sliced.segments import NEVER
from lfopt.planning.sliced.sizes import SegmentSizes


class SlicedGroups:
    """Buffer needs of the groups of one dataflow that run slice by slice, memoised.

    Slices are as narrow as the chip allows.

    `allowed`: multiply-accumulates that a group may take, over its own.
    """

    def __init__(self, groups: Groups, allowed: float) -> None:
        self.groups = groups
        self.allowed = max(allowed, 1.0)
        self.rows = SegmentRows(groups)
        self.segments = self.rows.segments
        self._profiles: dict[int, tuple[Profile, ...]] = {}
        self._offered: dict[tuple[int, int], list[Sliced]] = {}  # by group and buffer

    def least(self, mask: int) -> int:
        """The least F_beta of any option; NEVER if the group cannot run so."""
        return min((profile.least for profile in self.profiles(mask)), default=NEVER)

    def cheapest(self, mask: int, beta: int) -> Sliced | None:
        """The option of fewest DRAM bytes that fits strictly; None if nothing fits.

        Of equals, that of the fewest multiply-accumulates, then the least buffer. More buffer never gives
        more bytes.
        """
        best: Sliced | None = None
        for profile in self.profiles(mask):
            for choice in profile.cheapest(beta, self.segments.width):
                if best is None or choice.rank < best.rank:
                    best = choice
        return best

    def of_fewer_macs(self, mask: int, beta: int) -> Sequence[Sliced]:
        """Options that fit, the fewest DRAM bytes first, each of fewer multiply-accumulates than the last."""
        key = mask, beta
        if key not in self._offered:
            every = chain.from_iterable(
                profile.of_fewer_macs(beta, self.segments.width) for profile in self.profiles(mask)
            )
            offered: list[Sliced] = []
            for choice in sorted(every, key=lambda choice: choice.rank):
                if not offered or choice.macs < offered[-1].macs:
                    offered.append(choice)
            self._offered[key] = offered
        return self._offered[key]

    def passes(self, mask: int, option: SlicedOption) -> int:
        """Loads of the weights that are loaded most often."""
        weights = self.segments.weights(mask, option.segment)
        channels = option.segment.channels
        if weights.sliced and option.pinned < channels:
            parts = -(-self.rows.outputs(option.segment) // option.part) if option.part else 1
            return option.bands * parts
        if weights.tail and option.pinned_tail < channels:
            return option.bands
        return 1

    def profiles(self, mask: int) -> tuple[Profile, ...]:
        """Profiles of a group, one for each segment that it may be; () if it cannot run so."""
        if mask not in self._profiles:
            most_macs = self.groups.most_macs(mask, self.allowed)
            sized = (SegmentSizes(self.rows, mask, segment) for segment in self.segments.of(mask))
            self._profiles[mask] = tuple(sizes.profile(most_macs) for sizes in sized if sizes.moves_evenly())
        return self._profiles[mask]
