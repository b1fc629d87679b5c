"""Passes of a group: nests that run one after the other.

    in passes
      keep 96 channels of D, gate
      channels, blocks of 16 of 288
        line buffers: expand, depthwise, mean
      at once: reduce, gate
      channels, blocks of 16 of 288, summed by project
        line buffers: multiply, project

A normalization may run in two passes or more: one makes its *statistics*, which stay on chip, and others make
its result from them, each as it needs it.

A map that is *kept* stays on chip from the first pass that touches it to the last one: all of it, or of its
channels so many, from the first on. What one pass makes and another reads, and is not kept, goes to DRAM and
comes back (it is *spilled*), unless the other pass makes it again: an operator may run in several passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lfopt.ops import Dataflow, bits
from lfopt.planning.nest.tree import GroupNest, Surroundings


@dataclass(frozen=True, eq=False)
class Passes:
    """How a group runs in several passes."""

    passes: tuple[GroupNest, ...]
    # maps that stay on chip between passes: of their channels so many, from the first on; 0: all
    kept: Mapping[int, int] = field(default_factory=dict[int, int])
    # normalizations whose statistics one pass makes, and stay for the passes that make their results
    measured: frozenset[int] = frozenset()

    @cached_property
    def masks(self) -> tuple[int, ...]:
        """Per pass: the operators that run in it."""
        return tuple(sum(1 << i for i in nest.leaf_of) for nest in self.passes)

    @cached_property
    def makers(self) -> tuple[int, ...]:
        """Per pass: the operators whose results it makes."""
        measures = (sum(1 << i for i in nest.measures) for nest in self.passes)
        return tuple(mask & ~others for mask, others in zip(self.masks, measures, strict=True))

    @cached_property
    def mask(self) -> int:
        """The operators of the group."""
        mask = 0
        for operators in self.masks:
            mask |= operators
        return mask


Nest = GroupNest | Passes


class PassMaps:
    """Which maps the passes of a group make, keep, store and load again."""

    def __init__(self, flow: Dataflow, passes: Passes) -> None:
        self.flow = flow
        self.passes = passes
        self.masks = passes.masks
        self.leaving = frozenset(flow.leaving(passes.mask))

    def first_maker(self, m: int) -> int | None:
        """The number of the first pass that makes a map; None: it comes from outside the group."""
        maker = self.flow.producer[m]
        making = (k for k, mask in enumerate(self.passes.makers) if maker >= 0 and mask >> maker & 1)
        return next(making, None)

    def running(self, op: int) -> list[int]:
        """The numbers of the passes in which an operator runs."""
        return [k for k, mask in enumerate(self.masks) if mask >> op & 1]

    def touching(self, m: int) -> list[int]:
        """The numbers of the passes that read or make a map."""
        return [k for k, mask in enumerate(self.masks) if m in self.flow.touched(mask)]

    @cached_property
    def spilled(self) -> frozenset[int]:
        """Maps of the group alone that are stored in one pass and loaded in others."""
        stored = {m for k in range(len(self.masks)) for m in self.stored(k)}
        return frozenset(stored - self.leaving)

    def stored(self, number: int) -> frozenset[int]:
        """Results that a pass stores: those that others need, and no earlier pass has made."""
        mask = self.masks[number]
        return frozenset(
            m
            for i in bits(mask)
            for m in self.flow.results[i]
            if self.first_maker(m) == number and (m in self.leaving or self._comes_back(m, number))
        )

    def _comes_back(self, m: int, number: int) -> bool:
        """Whether a later pass loads a result of a pass, or a part of it."""
        if self.passes.kept.get(m) == 0:
            return False
        maker = self.flow.producer[m]
        later = self.masks[number + 1 :]
        return any(self.flow.readers[m] & mask and not mask >> maker & 1 for mask in later)

    def arriving(self, number: int) -> list[int]:
        """Maps from outside the group, kept whole, that are loaded before a pass."""
        kept = (m for m, channels in self.passes.kept.items() if not channels)
        return [m for m in kept if self.first_maker(m) is None and self.touching(m)[:1] == [number]]

    def around(self, number: int) -> Surroundings:
        """What lies around the nest of a pass."""
        mask = self.masks[number]
        touched = self.flow.touched(mask)
        kept = {m: channels for m, channels in self.passes.kept.items() if m in touched}
        there = frozenset(m for m in kept if self.touching(m)[0] < number)
        idle = dict(self._idle(number, kept, there))
        measured = frozenset(i for i in self.passes.measured if self.passes.makers[number] >> i & 1)
        return Surroundings(kept, there, self.stored(number), idle, measured)

    def _idle(self, number: int, kept: Mapping[int, int], there: frozenset[int]) -> Iterator[tuple[int, int]]:
        """(operator, map) where a pass makes the channels of a kept map that are not there, and no others."""
        mask = self.masks[number]
        flow = self.flow
        for m in there:
            maker = flow.producer[m]
            if kept[m] and maker >= 0 and mask >> maker & 1:
                needed = self._needed(mask, maker)
                yield from ((i, m) for i in bits(mask & ~needed))

    def _needed(self, mask: int, but: int) -> int:
        """The operators of a pass that its last ones need, but for one of them and those before that."""
        flow = self.flow
        waiting = [i for i in bits(mask) if i != but and not flow.succs[i] & mask]
        needed = 0
        while waiting:
            i = waiting.pop()
            if not needed >> i & 1:
                needed |= 1 << i
                makers = (flow.producer[operand.map] for operand in flow.operands[i])
                waiting += [maker for maker in makers if maker not in (-1, but) and mask >> maker & 1]
        return needed
