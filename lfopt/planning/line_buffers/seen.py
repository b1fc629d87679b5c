"""Maps that a group reads from DRAM through a view whose rows are not those of the map.

Tokens of a map of [1, 56, 56, 96] come as [1, 3136, 96]: a row of the map holds tokens from everywhere, and
the first tokens would wait for all of it. But in DRAM the one lies as the other. Where a group loads the map,
and one of its operators reads it, it loads rows of the view.
"""

from __future__ import annotations

from typing import NamedTuple

from lfopt.ir import Tensor
from lfopt.ops import Dataflow, RowReads, keeps_rows, row_of


class SeenInput(NamedTuple):
    """A map as the one operator that reads it sees it."""

    tensor: Tensor  # the view
    reads: RowReads  # of its rows


class SeenInputs:
    """Maps of one dataflow that groups may load as they are seen."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.by_reader: dict[tuple[int, int], SeenInput] = {}  # by map and operator
        for i, operands in enumerate(flow.operands if flow.loads_views else ()):
            for operand in operands if flow.calls[i].attention is None else ():
                root = flow.maps[operand.map]
                seen = flow.graph.tensors[flow.calls[i].inputs[operand.input]]
                alone = sum(other.map == operand.map for other in operands) == 1
                if alone and seen.shape != root.shape and not keeps_rows(root.shape, seen.shape):
                    part, index = flow.calls[i].part_of(operand.input)
                    self.by_reader[operand.map, i] = SeenInput(seen, row_of(part).reads(part, index))

    def of(self, mask: int, m: int) -> SeenInput | None:
        """How a group loads a map; None: as it is."""
        if not self.by_reader or self.flow.makes(mask, m):
            return None
        readers = self.flow.readers[m] & mask
        if readers & (readers - 1):
            return None
        return self.by_reader.get((m, readers.bit_length() - 1))
