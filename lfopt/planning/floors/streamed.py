"""Weights that do not fit beside maps that stay: they are loaded twice, or a map does not stay.

Let a contraction i of a group read a map a that the group makes, or that stayed on chip before, and make a
map c. Each output channel needs all of a. So if every weight of i comes once, then at some time

    all of its weights are on chip, or
    a is on chip as a whole, while its weights pass, or
    sums of all of c are, while slices of a pass

A map x that stayed is on chip as a whole until it was read for the last time. On the way from x to a some map
may be whole as well, the first of which is made while x is read: x and the smallest map on that way are on
chip together. If none is whole, x is read for every row or slice of a. A map y that is to stay is on chip as
a whole from its first row or slice on. If c is made slice by slice, so is what elementwise operators make of
it: y, or another map on that way, is on chip beside a, or beside x, or beside the weights.

    x + smallest(x to a)  and  a + smallest(c to y),  if a is whole
    x + smallest(x to a), or x + smallest(c to y),    if slices of a pass, in one part of c or in several
    x + weights           and  smallest(c to y) + weights, if these are on chip

Where none of this fits, weights are loaded more than once: at the least those for which there is no room
beside what stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf

from lfopt.ir import Hardware
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import ATTENTION, OPAQUE, Dataflow, RowReads, bits
from lfopt.planning.accelerator.commands import contraction_loops
from lfopt.planning.bands.slicing import SlicingFacts

MOST_MAPS = 6  # that stay around a group: of more, nothing is known


@dataclass(frozen=True)
class Contraction:
    """A contraction by weights of its own, every output of which needs all channels of one map."""

    operand: int  # map
    result: int  # map
    weight_bytes: int  # that are loaded, or that they take on chip, if that is less
    sums_bytes: int  # of partial sums of all of its result


class StreamedWeights:
    """Weights that groups load again, since maps that stay leave no room for what loading them once takes."""

    def __init__(
        self,
        flow: Dataflow,
        hardware: Hardware,
        facts: Sequence[SlicingFacts],
        own: Sequence[tuple[int, int]],
        elsewhere: Callable[[int], bool],
    ) -> None:
        """`own`: per operator, DRAM and buffer bytes of constants that are its own.

        `elsewhere`: whether operators may be in a group of a mode that makes slices again, of which nothing
        of this holds.
        """
        self.flow = flow
        self.room = hardware.buffer_bytes - 1
        self.weight_room = hardware.weight_buffer_bytes
        self.elsewhere = elsewhere
        self.sizes = [tensor.rows * hardware.row_bytes(tensor) for tensor in flow.maps]
        self._row_bytes = [hardware.row_bytes(tensor) for tensor in flow.maps]
        self.contractions: dict[int, Contraction] = {}
        for i, spec in enumerate(flow.specs):
            operands = [o.map for o in flow.operands[i] if o.input == 0 and _reads_all(o.reads)]
            plain = facts[i].contracts and len(flow.results[i]) == 1 and len(operands) == 1
            if not plain or spec in (OPAQUE, ATTENTION) or contraction_loops(flow.calls[i]).groups != 1:
                continue
            result = flow.results[i][0]
            sums = hardware.sums_bytes(self.sizes[result])
            self.contractions[i] = Contraction(operands[0], result, min(own[i]), sums)
        self.mask = sum(1 << i for i in self.contractions)
        self._odd = sum(1 << i for i, spec in enumerate(flow.specs) if spec in (OPAQUE, ATTENTION))
        self._contracting = sum(1 << i for i, fact in enumerate(facts) if fact.contracts)
        self._passing = [self._passed_through(i) for i in range(len(flow))]
        self._slice_by_slice = [self._sliced(i) for i in range(len(flow))]

    def _passed_through(self, op: int) -> tuple[int, ...]:
        """Operands of which each row or slice is needed for a later row or slice of the result."""
        return tuple(
            operand.map
            for operand in self.flow.operands[op]
            if _reads_all(operand.reads)
            and (operand.reads.rows_in == 1 or operand.reads.need[0] < operand.reads.rows_in)
        )

    def lacking_bytes(self, operators: int, reads: int, stores: int, bytes_of: Callable[[int], int]) -> int:
        """Bytes that a group moves beyond once, of maps that do not stay and of weights that come again.

        `reads`, `stores`: masks of the maps that may stay, `bytes_of`: bytes of such maps.
        """
        touched = reads | stores
        streaming = operators & self.mask
        if not streaming or touched.bit_count() > MOST_MAPS or operators & self._odd:
            return 0
        if self.elsewhere(operators):
            return 0
        every = [*bits(touched)]
        least = inf
        for count in range(len(every) + 1):
            for left_out in combinations(every, count):
                out = sum(1 << m for m in left_out)
                moved = bytes_of(out)
                if moved < least:
                    again = self._again(operators, reads & ~out, stores & ~out)
                    least = min(least, moved + again)
            if not least:
                break
        return int(least)

    def _again(self, operators: int, enters: int, leaves: int) -> int:
        """Bytes of weights that are loaded again, if these maps stay."""
        largest = max((self.sizes[m] for m in bits(enters | leaves)), default=0)
        if self.weight_room:
            largest = 0
        room = self.weight_room or self.room
        passing = [
            i for i in bits(operators & self.mask) if self.contractions[i].weight_bytes + largest > room
        ]
        if not passing:
            return 0
        entering = [(self.sizes[x], self._on_the_way(operators, x, leaves)) for x in bits(enters)]
        return max(self._again_for(operators, i, enters, entering, leaves) for i in passing)

    def _again_for(
        self,
        operators: int,
        op: int,
        enters: int,
        entering: Sequence[tuple[int, dict[int, float]]],
        leaves: int,
    ) -> int:
        """The same of one contraction. `entering`: of each map that stayed, its bytes, and `_on_the_way`."""
        contraction = self.contractions[op]
        a = contraction.operand
        if not (enters >> a & 1 or self.flow.makes(operators, a)):
            return 0
        whole = self.sizes[a]
        # maps that stayed and are read for it, each with the smallest map on the way
        read = [(size, way[a]) for size, way in entering if a in way]
        largest_read = max((size for size, _ in read), default=0)
        staying = max(self._staying_results(operators, contraction.result, leaves), default=0)
        need_whole = max([whole + staying, *(size + (0 if way == inf else way) for size, way in read)])
        sums = contraction.sums_bytes
        need_in_slices = max([staying, largest_read, *(size + min(staying, way, sums) for size, way in read)])
        if min(need_whole, need_in_slices) <= self.room:
            return 0
        room = self.weight_room
        taken = 0  # bytes of the room that maps take
        if not room:
            room = self.room
            taken = max([staying, *(size for size, way in read if way == inf)])
        size = contraction.weight_bytes
        return min(max(size + taken - room, 0), size)

    def _on_the_way(self, operators: int, x: int, leaves: int) -> dict[int, float]:
        """By map that depends on a map in the group: bytes of the smallest map on the way; inf of itself."""
        flow = self.flow
        way: dict[int, float] = {x: inf}
        for i in bits(operators):
            least = max((way[m] for m in self._passing[i] if m in way and m != x), default=-1.0)
            if self._contracting >> i & 1:
                least = -1.0  # sums may be whole in place of what it reads
            if any(operand.map == x for operand in flow.operands[i]):
                least = inf
            if least < 0:
                continue
            for m in flow.results[i]:
                replaces = leaves >> m & 1 and self._alike(m, x)
                way[m] = max(way.get(m, 0), min(least, 0 if replaces else self.sizes[m]))
        return way

    def _alike(self, m: int, x: int) -> bool:
        """Whether one map may lie in the place of another."""
        flow = self.flow
        shapes = flow.maps[m].shape, flow.maps[x].shape
        return shapes[0] == shapes[1] and self._row_bytes[m] == self._row_bytes[x]

    def _staying_results(self, operators: int, c: int, leaves: int) -> list[int]:
        """Bytes of the smallest map on the way from a map to each that is to stay, slice by slice."""
        flow = self.flow
        way = {c: self.sizes[c]}
        for i in bits(operators & flow.descendants[flow.producer[c]]):
            least = max((way[m] for m in self._slice_by_slice[i] if m in way), default=0)
            if least:
                m = flow.results[i][0]
                way[m] = min(least, self.sizes[m])
        return [size for m, size in way.items() if leaves >> m & 1]

    def _sliced(self, op: int) -> tuple[int, ...]:
        """Operands of which an operator takes every channel to make one of its result."""
        flow = self.flow
        spec = flow.specs[op]
        if self._contracting >> op & 1 or len(flow.results[op]) != 1 or not (spec.elementwise or spec.slides):
            return ()
        channels = self._channels(flow.results[op][0])
        return tuple(o.map for o in flow.operands[op] if channels and self._channels(o.map) == channels)

    def _channels(self, m: int) -> int:
        """Channels of a map; 0 of one that has none."""
        shape = self.flow.maps[m].shape
        axis = CHANNEL_AXIS_OF_RANK.get(len(shape))
        return 0 if axis is None else shape[axis]


def _reads_all(reads: RowReads) -> bool:
    """Whether an operator reads an operand from its first row to its last."""
    return reads.rows_out > 0 and reads.first[0] == 0 and reads.need[-1] == reads.rows_in
