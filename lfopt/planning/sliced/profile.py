"""Ways to run a segment: bands, parts and weights that stay, and what each takes and moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from lfopt.ir import NEVER
from lfopt.planning.nest.spans import Ints
from lfopt.planning.sliced.segments import Segment


class SlicedOption(NamedTuple):
    """How a segment runs."""

    segment: Segment
    bands: int
    part: int  # channels of its result that the tail makes at a time; 0: there is no tail
    pinned: int  # channels whose weights before the tail stay on chip
    pinned_tail: int  # channels whose weights of the tail stay on chip


class Sliced(NamedTuple):
    """An option, and what it takes."""

    option: SlicedOption
    buffer_bytes: int  # F_beta, bytes
    input_bytes: int  # DRAM bytes of maps
    weight_bytes: int  # DRAM bytes
    macs: int  # multiply-accumulates

    @property
    def rank(self) -> tuple[int, int, int]:
        """What is to be least: DRAM bytes, multiply-accumulates, buffer bytes."""
        return self.input_bytes + self.weight_bytes, self.macs, self.buffer_bytes


class Passing(NamedTuple):
    """Weights that pass slice by slice.

    Arrays are int64 of (bands, parts) as tried, or broadcast to that.
    """

    passes: Ints  # times that they are loaded if none stay
    place: Ints  # bytes on chip of what they pass through
    once: Ints  # DRAM bytes of one pass
    whole: int  # bytes if all of them stay
    unit: int  # bytes of those of the narrowest slice, if some may stay
    units: int  # slices of which they may stay


class _Staying(NamedTuple):
    """What some choice of weights that stay takes; arrays are (bands, parts) int64."""

    needs: Ints  # F_beta, bytes
    weights: Ints  # DRAM bytes
    before: Ints  # channels that stay before the tail
    tail: Ints  # and of the tail


@dataclass(frozen=True, slots=True)
class Profile:
    """A segment in every number of bands and parts that is tried; arrays are (bands, parts) int64."""

    segment: Segment
    bands: Ints  # (bands, 1)
    parts: Sequence[int]  # channels of a part
    maps: Ints  # bytes on chip but for weights; NEVER where it computes more than is allowed
    weights: Ints  # bytes of weights on chip, while none stay
    inputs: Ints  # DRAM bytes of maps
    macs: Ints  # multiply-accumulates
    before: Passing
    tail: Passing
    held: int  # bytes of constants that stay in any case
    apart: int  # bytes of the buffer that weights have of their own; 0: they share that of the maps
    least: int  # F_beta, bytes

    def cheapest(self, beta: int, step: int) -> Iterator[Sliced]:
        """Options of the fewest DRAM bytes that fit a buffer of `beta` bytes strictly.

        Weights that stay are all that there are, or as many as fit, in slices of `step` channels.
        """
        for staying in self._staying(beta, step) if self.least < beta else ():
            moved = np.where(staying.needs < beta, staying.weights + self.inputs, NEVER)
            least = int(moved.min())
            if least == NEVER:
                continue
            bands, parts = np.nonzero(moved == least)
            best = np.lexsort((staying.needs[bands, parts], self.macs[bands, parts]))[0]
            yield self._option(staying, (int(bands[best]), int(parts[best])))

    def of_fewer_macs(self, beta: int, step: int) -> Iterator[Sliced]:
        """Options that fit, the fewest bytes first, each of fewer multiply-accumulates than those before it.

        Of each choice of weights that stay by itself; see `cheapest`.
        """
        for staying in self._staying(beta, step) if self.least < beta else ():
            moved = np.where(staying.needs < beta, staying.weights + self.inputs, NEVER)
            order = np.lexsort((staying.needs.ravel(), self.macs.ravel(), moved.ravel()))
            fewest = np.iinfo(np.int64).max
            for flat in order.tolist():
                at = divmod(flat, len(self.parts))
                if moved[at] == NEVER:
                    break
                if self.macs[at] < fewest:
                    fewest = int(self.macs[at])
                    yield self._option(staying, at)

    def _option(self, staying: _Staying, at: tuple[int, int]) -> Sliced:
        """The option of one number of bands and parts, by their positions."""
        band, part = at
        option = SlicedOption(
            self.segment,
            int(self.bands[band, 0]),
            self.parts[part],
            int(staying.before[at]),
            int(staying.tail[at]),
        )
        return Sliced(
            option,
            int(staying.needs[at]),
            int(self.inputs[at]),
            int(staying.weights[at]),
            int(self.macs[at]),
        )

    def _staying(self, beta: int, step: int) -> Iterator[_Staying]:
        """All, or as many weights as fit `beta` bytes, stay: of those before the tail, and of the tail."""
        room = self.apart or beta
        for all_before, all_tail in product((False, True), repeat=2):
            taken = self.weights  # bytes of the buffer that weights lie in
            if not self.apart:
                taken = taken + self.maps
            if all_before:
                taken = taken - self.before.place + self.before.whole
            if all_tail:
                taken = taken - self.tail.place + self.tail.whole
            kept: list[Ints] = []
            moved: list[Ints] = []
            for passing, stays in ((self.before, all_before), (self.tail, all_tail)):
                if stays:
                    kept.append(np.full_like(taken, self.segment.channels))
                    moved.append(np.full_like(taken, passing.whole))
                    continue
                fitting = np.clip((room - 1 - taken) // max(passing.unit, 1), 0, passing.units)
                slices = fitting * (passing.passes > 1)
                taken = taken + slices * passing.unit
                kept.append(slices * step)
                moved.append(passing.passes * passing.once - (passing.passes - 1) * slices * passing.unit)
            needs = taken
            if self.apart:
                needs = np.where(taken < self.apart, self.maps, NEVER)
            before, tail = kept
            yield _Staying(needs, moved[0] + moved[1] + self.held, before, tail)
