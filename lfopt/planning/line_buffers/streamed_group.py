"""A group as rows stream through it: what it reads from DRAM, as the reader sees it, makes and stores."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lfopt.ir import Tensor
from lfopt.ops import Call, RowReads, bits, keeps_rows, row_of
from lfopt.ops.rows import all_rows
from lfopt.planning.steps.layout import BufferLayout


@dataclass(frozen=True, slots=True)
class DramSource:
    """A map that a group reads from DRAM, or a view of it as the reader sees it where that differs."""

    name: str
    map: int  # index into Dataflow.maps
    tensor: Tensor
    rows_kept: bool  # whether its rows are the rows of the map
    ring: int = 0  # rows held at once, where they differ from those of the map
    # seen through a view whose rows are spread over padded rows of the map: it can only be loaded as a whole
    entire: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """One external map operand of an operator."""

    op: int
    input: int
    source: DramSource
    reads: RowReads


def is_parameter(call: Call, index: int) -> bool:
    """Whether an input of an operator, or of one that follows it in flight, is no data: an axis, a shape."""
    part, own = call.part_of(index)
    return own in row_of(part).parameters


class StreamedGroup:
    """Operands, results and constants of a group in the line-buffer schedule."""

    def __init__(self, layout: BufferLayout, mask: int, rings: dict[int, int]) -> None:
        self.layout = layout
        self.flow = flow = layout.flow
        self.mask = mask
        self.members = tuple(bits(mask))
        self.computed = [m for i in self.members for m in flow.results[i]]
        self.outside = {*flow.leaving(mask)}
        self.rings = rings

    def constants(self) -> dict[str, list[tuple[int, int]]]:
        """Constants held on chip, each with the (operator, input) pairs that read it."""
        readers: dict[str, list[tuple[int, int]]] = {}
        for i in self.members:
            held = {w.name for w in self.flow.weights[i] if not w.gathered}
            for index, name in enumerate(self.flow.calls[i].inputs):
                if name in held and not is_parameter(self.flow.calls[i], index):
                    readers.setdefault(name, []).append((i, index))
        return readers

    def gathers(self, op: int) -> bool:
        """Whether the operator picks rows of a constant in DRAM."""
        return any(w.gathered for w in self.flow.weights[op])

    def operands(self, *, as_seen: bool) -> list[Operand]:
        """External map operands, as the maps behind views.

        `as_seen`: by the name and shape that the reader sees.
        """
        flow = self.flow
        operands = []
        inner = set(self.computed)
        readers = Counter(
            flow.calls[i].inputs[operand.input] for i in self.members for operand in flow.operands[i]
        )
        for i in self.members:
            for operand in flow.operands[i]:
                if operand.map in inner:
                    continue
                root = flow.maps[operand.map]
                seen = flow.graph.tensors[flow.calls[i].inputs[operand.input]]
                if not as_seen or seen.shape == root.shape:
                    operands.append(
                        Operand(
                            i,
                            operand.input,
                            DramSource(root.name, operand.map, root, rows_kept=True),
                            operand.reads,
                        )
                    )
                    continue
                kept = keeps_rows(root.shape, seen.shape)
                if not kept and self.layout.padded(root):
                    reads = all_rows(root.rows, flow.heights[i])
                    operands.append(
                        Operand(
                            i,
                            operand.input,
                            DramSource(root.name, operand.map, root, rows_kept=True, entire=True),
                            reads,
                        )
                    )
                    continue
                if kept:
                    operands.append(
                        Operand(
                            i,
                            operand.input,
                            DramSource(seen.name, operand.map, seen, rows_kept=True),
                            operand.reads,
                        )
                    )
                    continue
                part, index = flow.calls[i].part_of(operand.input)
                reads = row_of(part).reads(part, index)
                alone = readers[seen.name] == 1
                source = DramSource(
                    seen.name,
                    operand.map,
                    seen,
                    rows_kept=False,
                    ring=reads.widest[-1] if alone else seen.rows,
                )
                operands.append(
                    Operand(
                        i, operand.input, source, reads if alone else all_rows(seen.rows, flow.heights[i])
                    )
                )
        return operands

    def ring(self, source: DramSource) -> int:
        """Rows of an external map held at once."""
        if source.rows_kept:
            return self.rings[source.map]
        return source.ring
