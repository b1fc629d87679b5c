"""Second level of memory in an execution: each byte belongs to the map that was last written there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lfopt.ir import Box, DramTensor, Graph, Hardware, row_axis, slices
from lfopt.ops.on_chip import NotOnChip
from simulator.interpreter.buffer import Overrun

NOBODY = -1


class SecondLevelMemory:
    """Ownership of the bytes 0 .. l2_bytes - 1 by the maps that a plan places there."""

    def __init__(self, graph: Graph, hardware: Hardware, memory: Sequence[DramTensor]) -> None:
        self.graph = graph
        self.hardware = hardware
        self.entries = {entry.name: entry for entry in memory if entry.memory == "l2"}
        self._numbers = {name: number for number, name in enumerate(self.entries)}
        # by map: its address, less the bytes below it in which nothing ever lies
        self._bases, used = _without_gaps([*self.entries.values()])
        self._owners = np.full(used, NOBODY, np.int32)  # number of the map, per byte that some map takes
        self._places: dict[str, np.ndarray] = {}  # per map: address of every element, shaped like the map

    def touch(self, name: str, seen: str, box: Box, *, store: bool) -> None:
        """Write or read a box of a map, which is called `seen`.

        Raises Overrun beyond the end, NotOnChip for bytes that are not of this map.
        """
        if name not in self._places:
            self._places[name] = self._addresses(name)
        first = self._places[name].reshape(self.graph.shape(seen))[slices(box)]
        where = (first[..., None] + np.arange(self.hardware.element_bytes)).ravel()
        entry = self.entries[name]
        end = entry.address + entry.rows * entry.row_bytes
        if (
            entry.address < 0
            or end > self.hardware.l2_bytes
            or (where.size and where.max() >= self._owners.size)
        ):
            raise Overrun(
                f"{name!r} takes bytes {entry.address} to {end} of the second level, which has "
                f"{self.hardware.l2_bytes}"
            )
        if store:
            self._owners[where] = self._numbers[name]
        elif (self._owners[where] != self._numbers[name]).any():
            raise NotOnChip(
                f"{name!r} is loaded from the second level, and part of it is not there, or no longer"
            )

    def _addresses(self, name: str) -> np.ndarray:
        """(shape of the map) int64: address of every element, in bytes; rows one after the other.

        In a row, the other axes are in order.
        """
        entry = self.entries[name]
        shape = self.graph.shape(name)
        axis = row_axis(shape)
        row = [1 if k != axis else extent for k, extent in enumerate(shape)]
        others = [extent if k != axis else 1 for k, extent in enumerate(shape)]
        inside = np.arange(np.prod(others, dtype=np.int64)).reshape(others) * self.hardware.element_bytes
        rows = np.arange(np.prod(row, dtype=np.int64)).reshape(row) * entry.row_bytes
        return self._bases[name] + rows + inside


def _without_gaps(entries: Sequence[DramTensor]) -> tuple[dict[str, int], int]:
    """(base address per map, bytes in all) with unused bytes left out."""
    bases: dict[str, int] = {}
    end = used = 0  # of what lies below, in the second level and here
    for entry in sorted(entries, key=lambda entry: entry.address):
        used += max(entry.rows * entry.row_bytes - max(end - entry.address, 0), 0)
        end = max(end, entry.address + entry.rows * entry.row_bytes)
        bases[entry.name] = used - (end - entry.address)
    return bases, used
