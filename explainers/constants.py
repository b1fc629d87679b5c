"""Bytes of the constants of groups that run in bands (mode brr), for many groups of one network at once.

What falls into blocks of output channels passes through a place of two blocks. All else is held whole:
factors of a Mul, weights of a LayerNormalization, position embeddings, and what several operators of the
group read. The rule for one group is `lfopt.planning.bands.slices.SliceSizes.constants`.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from lfopt.planning.bands.slices import SliceSizes

BLOCKS = 2  # weight blocks on chip at once: one is read while the next comes in


class _SharedConstant(NamedTuple):
    name: str
    readers: list[int]  # operators
    in_blocks: np.ndarray  # (readers,) bool: whether it falls into blocks for that reader


class BandedConstants:
    """Constants of one dataflow on one chip.

    Whether an operator is in a group: `members`, (groups, operators) bool.
    """

    def __init__(self, slices: SliceSizes) -> None:
        self.slices = slices
        self.operators = len(slices.dataflow)

    def bytes(self, members: np.ndarray, summing: np.ndarray) -> np.ndarray:
        """(groups,) float64: bytes that constants take, in blocks or, where that is less, all whole.

        `summing`: (groups, operators) bool, contractions that sum over slices: their blocks are of some input
        channels too.
        """
        passing = members & (self._passing_bytes > 0)
        held = members @ self._held_bytes
        shared = [shared for shared in self._shared if members[:, shared.readers].any()]
        for _, readers, in_blocks in shared:
            several = members[:, readers].sum(1) > 1
            passing[:, readers] &= ~(several[:, None] & in_blocks)
        for name, readers, in_blocks in shared:
            stays = (members[:, readers] & ~(passing[:, readers] & in_blocks)).any(1)
            held += stays * float(self.slices.constant_bytes[name])
        held += (members & ~passing) @ self._own_streamed_bytes
        blocks = np.where(summing, self._summing_blocks, self._blocks)
        largest = (passing * blocks).max(1, initial=0)
        return held + np.minimum(BLOCKS * largest, passing @ self._passing_bytes)

    @cached_property
    def _streamed_names(self) -> list[frozenset[str]]:
        """Per operator: constants that fall into blocks."""
        return [frozenset(s.name for s in self.slices.facts[i].streamed) for i in range(self.operators)]

    @cached_property
    def _readers(self) -> dict[str, list[int]]:
        readers: dict[str, list[int]] = {}
        for i in range(self.operators):
            for name in (*self._streamed_names[i], *self.slices.facts[i].held):
                readers.setdefault(name, []).append(i)
        return readers

    @cached_property
    def _shared(self) -> list[_SharedConstant]:
        """Constants that several operators of the network read."""
        return [
            _SharedConstant(name, readers, np.array([name in self._streamed_names[i] for i in readers], bool))
            for name, readers in self._readers.items()
            if len(readers) > 1
        ]

    def _sum(self, names: list[frozenset[str]], *, shared: bool) -> np.ndarray:
        """(operators,) float64: bytes of constants, whole; those that others read too only if `shared`."""
        size = self.slices.constant_bytes
        return np.array(
            [sum(size[name] for name in own if shared or len(self._readers[name]) == 1) for own in names],
            np.float64,
        )

    @cached_property
    def _passing_bytes(self) -> np.ndarray:
        return self._sum(self._streamed_names, shared=True)

    @cached_property
    def _own_streamed_bytes(self) -> np.ndarray:
        return self._sum(self._streamed_names, shared=False)

    @cached_property
    def _held_bytes(self) -> np.ndarray:
        held = [frozenset(self.slices.facts[i].held) for i in range(self.operators)]
        return self._sum(held, shared=False)

    @cached_property
    def _blocks(self) -> np.ndarray:
        """(operators,) float64: bytes of the largest block of output channels."""
        return self._largest(sums=False)

    @cached_property
    def _summing_blocks(self) -> np.ndarray:
        """(operators,) float64: the same where an operator sums over slices."""
        return self._largest(sums=True)

    def _largest(self, *, sums: bool) -> np.ndarray:
        facts = self.slices.facts
        return np.array(
            [
                self.slices.block_bytes(i, sums=sums)
                if facts[i].streamed and (facts[i].sums or not sums)
                else 0
                for i in range(self.operators)
            ],
            np.float64,
        )
