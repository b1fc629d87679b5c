"""Normalizations whose result only contractions read, and the groups that can be made of them.

producer   a contraction whose result is normalized, if there is one
norm       it normalizes the channels of each element
readers    contractions that sum over the channels of what the norm makes, all that read it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import bits
from lfopt.ops.rows import same_row
from lfopt.ops.statistics import has_statistics, normalized_axes
from lfopt.planning.bands.slices import SliceSizes


@dataclass(frozen=True)
class NormGroup:
    """Operators of a group, by index."""

    producer: int  # -1: none
    norm: int
    readers: tuple[int, ...]

    @cached_property
    def mask(self) -> int:
        """All of them."""
        first = 1 << self.producer if self.producer >= 0 else 0
        return first | 1 << self.norm | sum(1 << i for i in self.readers)


class Norms:
    """The groups of one dataflow, by their operators."""

    def __init__(self, slices: SliceSizes) -> None:
        self.slices = slices
        self.flow = slices.dataflow

    @cached_property
    def groups(self) -> dict[int, NormGroup]:
        """All groups, by mask."""
        groups: dict[int, NormGroup] = {}
        for around in self.any_readers():
            result = self.flow.results[around.norm][0]
            needed_elsewhere = sum(1 << i for i in around.readers) != self.flow.readers[result]
            if needed_elsewhere or self.flow.is_output[result]:
                continue
            alone = NormGroup(-1, around.norm, around.readers)
            groups[alone.mask] = alone
            groups[around.mask] = around
        return groups

    def any_readers(self) -> Iterator[NormGroup]:
        """Normalizations with all contractions that read them, whatever else does."""
        for norm in range(len(self.flow)):
            readers = self._readers(norm)
            if readers:
                yield NormGroup(self._producer(norm), norm, readers)

    def _readers(self, norm: int) -> tuple[int, ...]:
        """The contractions that read a normalization; none where it is no such normalization."""
        flow = self.flow
        call = flow.calls[norm]
        axis = CHANNEL_AXIS_OF_RANK.get(len(call.result))
        operands = flow.operands[norm]
        if not has_statistics(call) or normalized_axes(call) != (axis,) or len(operands) != 1:
            return ()
        result = flow.results[norm][0]
        direct = flow.maps[operands[0].map].shape == call.shape(0) == call.result
        if not direct or not self._is_plain(norm):
            return ()
        return tuple(i for i in bits(flow.readers[result]) if self._sums_over(i, result))

    def _sums_over(self, op: int, m: int) -> bool:
        """Whether an operator is a contraction of a map that it reads in no other way."""
        reads = [operand.map for operand in self.flow.operands[op]]
        return self._is_contraction(op) and reads[0] == m and m not in reads[1:]

    def _producer(self, norm: int) -> int:
        """The contraction that makes what is normalized; -1: it is something else."""
        (operand,) = self.flow.operands[norm]
        producer = self.flow.producer[operand.map]
        if producer >= 0 and self._is_contraction(producer):
            return producer
        return -1

    def _is_plain(self, op: int) -> bool:
        """Whether the operator has one result, and rows that it makes from the same rows."""
        flow = self.flow
        if self.slices.facts[op].never or len(flow.results[op]) != 1:
            return False
        return all(o.reads is same_row(flow.heights[op]) for o in flow.operands[op])

    def _is_contraction(self, op: int) -> bool:
        """Whether it sums over the channels of a map, slice by slice.

        What is read in flight comes from outside, element by element.
        """
        flow = self.flow
        facts = self.slices.facts[op]
        if not self._is_plain(op) or not facts.streamed or not facts.contracts or not facts.sums:
            return False
        own, *others = flow.operands[op]
        shape = flow.calls[op].result
        if not self.slices.takes_slices(op, own.input):
            return False
        return all(flow.maps[o.map].shape == flow.calls[op].shape(o.input) == shape for o in others)
