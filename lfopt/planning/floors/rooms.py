"""Bytes of maps that may stay on chip around a group, and for which there is no room.

A map that stays is on chip as a whole before a group that reads it, and after the group that makes it. So the
maps that a group reads and that stay fit the buffer together, and so do those that it makes. An operand and a
result are on chip together, too, if the first row of the result does not need all rows of the operand: some
row of the operand is read later. But a result of the operand's shape may lie in its place, where no step
reads a row of the operand once the same row of the result is there.

Groups that make whole maps, one after the other (`resident`, one band of `brr`), are not meant here: each
operator of such a group may be a group of its own between which all maps stay, and move no more bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from lfopt.ir import Hardware
from lfopt.ops import ATTENTION, OPAQUE, Dataflow, bits
from lfopt.planning.floors.streamed import StreamedWeights

MOST_MAPS = 12  # that stay around a group: of more, what does not fit is counted byte by byte


class Rooms:
    """What does not fit beside each other of maps that may stay."""

    def __init__(
        self,
        flow: Dataflow,
        hardware: Hardware,
        staying: Sequence[int],
        room: int,
        weights: StreamedWeights | None = None,
    ) -> None:
        """`staying`: per map, its bytes if it may stay and counts, else 0; `room`: bytes for all of them.

        `weights`: what groups load again beside maps that stay; None: nothing is known.
        """
        self.flow = flow
        self.weights = weights
        self.staying = staying
        self.room = room
        self._counted = sum(1 << m for m, size in enumerate(staying) if size)
        self._row_bytes = [hardware.row_bytes(tensor) for tensor in flow.maps]
        self._beside: dict[int, int] = {}
        self._known: dict[tuple[int, int, int], int] = {}
        self._left_out: dict[int, int] = {}

    def lacking_bytes(self, operators: int, reads: int, stores: int) -> int:
        """Bytes of maps that a group reads and stores at the least, of those that might stay."""
        reads &= self._counted
        stores &= self._counted
        fits = self._bytes(reads) + self._bytes(stores) <= self.room
        streams = self.weights is not None and operators & self.weights.mask
        if fits and not (streams and reads | stores):
            return 0
        key = operators, reads, stores
        if key not in self._known:
            lacking = 0 if fits else self._lacking(operators, reads, stores)
            if self.weights is not None:
                lacking = max(lacking, self.weights.lacking_bytes(operators, reads, stores, self._bytes))
            self._known[key] = lacking
        return self._known[key]

    def _lacking(self, operators: int, reads: int, stores: int) -> int:
        lacking = self._without_room(reads) + self._without_room(stores)
        for m in bits(stores):
            beside = reads & self._maps_beside(m) & self._read_for(operators, m)
            if not any(self._may_replace(m, other) for other in bits(beside)):
                beside |= 1 << m
            lacking = max(lacking, self._without_room(beside))
        return lacking

    def _without_room(self, maps: int) -> int:
        """The fewest bytes of maps that do not stay, so that there is room for the others: whole maps."""
        size = self._bytes(maps)
        if size <= self.room:
            return 0
        if maps.bit_count() > MOST_MAPS:
            return size - self.room
        if maps not in self._left_out:
            sums = {0}  # bytes of some of the maps together, where there is room
            for m in bits(maps):
                sums |= {more for less in sums if (more := less + self.staying[m]) <= self.room}
            self._left_out[maps] = size - max(sums)
        return self._left_out[maps]

    def _bytes(self, maps: int) -> int:
        return sum(self.staying[m] for m in bits(maps))

    def _read_for(self, operators: int, m: int) -> int:
        """Maps that some of these operators read which lead to a map."""
        flow = self.flow
        leading = 1 << flow.producer[m]
        waiting = leading
        read = 0
        while waiting:
            i = waiting.bit_length() - 1
            read |= self._reads[i]
            new = flow.preds[i] & operators & ~leading
            leading |= new
            waiting = waiting & ~(1 << i) | new
        return read

    @cached_property
    def _reads(self) -> list[int]:
        return [sum(1 << m for m in {o.map for o in operands}) for operands in self.flow.operands]

    def _maps_beside(self, m: int) -> int:
        """Maps of which some row is read after the first row of a map that depends on them is made."""
        if m not in self._beside:
            self._beside[m] = self._find_beside(m)
        return self._beside[m]

    def _find_beside(self, m: int) -> int:
        flow = self.flow
        maker = flow.producer[m]
        rows = {m: 1}  # that must be there
        for i in reversed([*bits(flow.ancestors[maker] | 1 << maker)]):
            first = max((rows[r] for r in flow.results[i] if r in rows), default=0)
            if not first:
                continue
            for operand in flow.operands[i]:
                whole = flow.maps[operand.map].rows
                needed = whole
                if flow.specs[i] not in (OPAQUE, ATTENTION) and first <= operand.reads.rows_out:
                    needed = operand.reads.need[first - 1]
                rows[operand.map] = max(rows.get(operand.map, 0), needed)
        return sum(1 << r for r, needed in rows.items() if r != m and needed < flow.maps[r].rows)

    def _may_replace(self, m: int, other: int) -> bool:
        """Whether a map may lie where another lies that is of its shape.

        A step that makes a row element by element may read that row of the other; any other step may not.
        """
        flow = self.flow
        new = flow.maps[m]
        old = flow.maps[other]
        if (new.shape, self._row_bytes[m]) != (old.shape, self._row_bytes[other]):
            return False
        maker = flow.producer[m]
        if flow.specs[maker].elementwise:
            return True
        call = flow.calls[maker]
        return all(
            call.part_of(operand.input)[0] is not call
            for operand in flow.operands[maker]
            if operand.map == other
        )
