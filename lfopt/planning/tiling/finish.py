"""The end of a block of results: remaining operands are loaded, the epilogue runs, results are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from lfopt.ir import Box, DramBytes, Step
from lfopt.ops.footprint import footprint
from lfopt.ops.part import hull
from lfopt.planning.line_buffers.streamed_group import Operand
from lfopt.planning.steps.layout import AllocationRequest, row_span, with_rows
from lfopt.planning.steps.place_names import BESIDE
from lfopt.planning.tiling.tiling_region import TilingRegion


class Finish:
    """The end of every block of an anchor's result.

    `apart`: the anchor's own operands, by position, that are loaded elsewhere.
    """

    def __init__(self, region: TilingRegion, apart: Sequence[int]) -> None:
        self.region = region
        self.layout = region.layout
        self.flow = region.flow
        self.results = [self.flow.maps[m].name for m in region.group.computed]
        self.outside = [self.flow.maps[m].name for m in region.group.computed if m in region.group.outside]
        # source of operand 0, whose place has its name
        first = next(o.source.name for o in region.operands if o.op == region.anchor and o.input == 0)
        self.others: dict[str, list[Operand]] = {}
        for operand in region.operands:
            if operand.op != region.anchor or operand.input not in apart:
                self.others.setdefault(operand.source.name, []).append(operand)
        self.places = {
            name: self.layout.place_name(f"{name}{BESIDE}") if name == first else name for name in self.others
        }
        readers = {
            name: [r for r in reads if not region.own(*r)] for name, reads in region.group.constants().items()
        }
        self.constants = {name: reads for name, reads in readers.items() if reads}
        # constants read in flight
        self.early = {
            name for name, reads in self.constants.items() if any(op == region.anchor for op, _ in reads)
        }

    def _operand(self, readers: Sequence[Operand], out: Box) -> Box:
        return hull([footprint(self.flow.calls[o.op], o.input, out) for o in readers])

    def _constant(self, readers: Sequence[tuple[int, int]], out: Box) -> Box:
        return hull([footprint(self.flow.calls[op], index, out) for op, index in readers])

    def entries(self, out: Box, rows: int | None = None) -> list[AllocationRequest]:
        """Allocations for the largest block; `rows`: of it that are finished at a time, None for all."""
        layout = self.layout
        part = out if rows is None else first_part(out, rows)
        entries = [
            AllocationRequest(name, "map", row_count(part), layout.row_on_chip(part)) for name in self.results
        ]
        for name, readers in self.others.items():
            box = self._operand(readers, part)
            entries.append(
                AllocationRequest(self.places[name], "map", row_count(box), layout.row_on_chip(box))
            )
        return entries + [
            AllocationRequest(name, "weight", 1, layout.constant_bytes(name, self._constant(r, out)))
            for name, r in self.constants.items()
        ]

    def dram(self, out: Box, rows: int | None = None) -> DramBytes:
        """DRAM bytes of a block; `rows`: as in `entries`."""
        layout = self.layout
        pieces = [out] if rows is None else parts(out, rows)
        return DramBytes(
            input=sum(
                layout.map_bytes(box)
                for readers in self.others.values()
                for box, _ in groupby(self._operand(readers, piece) for piece in pieces)
            ),
            output=layout.map_bytes(out) * len(self.outside),
            weight=sum(
                layout.constant_bytes(name, self._constant(readers, out))
                for name, readers in self.constants.items()
            ),
        )

    def before(self, out: Box, at: dict[str, int]) -> list[Step]:
        """Loads that the anchor waits for: of a Gemm that adds a map, of what follows it in flight.

        `at`: places by name.
        """
        return self._maps(out, None, at, early=True) + self._loads(out, at, early=True)

    def steps(self, out: Box, at: dict[str, int]) -> list[Step]:
        """The other loads, the epilogue, stores."""
        return (
            self._maps(out, None, at, early=False)
            + self._loads(out, at, early=False)
            + self.epilogue(out, at)
        )

    def in_parts(
        self, out: Box, rows: int, at: dict[str, int], anchor: Callable[[Box], Step]
    ) -> list[list[Step]]:
        """The end of a block, `rows` rows at a time: loads, the anchor's step, the epilogue.

        `anchor`: makes the anchor's step for a part. Constants load once.
        """
        part_steps: list[list[Step]] = []
        before: Box | None = None
        for part in parts(out, rows):
            constants = self._loads(out, at, early=True) if before is None else []
            steps = [*self._maps(part, before, at, early=True), *constants, anchor(part)]
            steps += self._maps(part, before, at, early=False)
            steps += self._loads(out, at, early=False) if before is None else []
            part_steps.append(steps + self.epilogue(part, at))
            before = part
        return part_steps

    def _maps(self, out: Box, before: Box | None, at: dict[str, int], *, early: bool) -> list[Step]:
        """Loads of the maps that the anchor reads itself (`early`), or of the others.

        Not of boxes that are on chip since the part `before` this one.
        """
        chosen = (
            (name, readers)
            for name, readers in self.others.items()
            if any(o.op == self.region.anchor for o in readers) == early
        )
        boxes = (
            (name, self._operand(readers, out), before and self._operand(readers, before))
            for name, readers in chosen
        )
        return [
            self.layout.load(name, box, at[self.places[name]]) for name, box, there in boxes if box != there
        ]

    def _loads(self, out: Box, at: dict[str, int], *, early: bool) -> list[Step]:
        """Loads of the constants that the anchor reads in flight, or of the others."""
        constants = (
            (name, readers) for name, readers in self.constants.items() if (name in self.early) == early
        )
        return [
            self.layout.load_constant(name, self._constant(readers, out), at[name])
            for name, readers in constants
        ]

    def epilogue(self, out: Box, at: dict[str, int]) -> list[Step]:
        """The other operators on a box that the anchor has finished, and the stores."""
        flow = self.flow
        rest = self.region.group.members[1:]
        steps: list[Step] = [
            self.layout.compute(i, (out,), (at[flow.maps[flow.results[i][0]].name],)) for i in rest
        ]
        return steps + [self.layout.store(name, out, at[name]) for name in self.outside]


def parts(out: Box, rows: int) -> list[Box]:
    """A box cut into parts of `rows` rows, the last one shorter if need be."""
    first, stop = row_span(out)
    return [with_rows(out, (start, min(start + rows, stop))) for start in range(first, stop, rows)]


def first_part(out: Box, rows: int) -> Box:
    """The first of those, which is the largest."""
    first, stop = row_span(out)
    return with_rows(out, (first, min(first + rows, stop)))


def row_count(box: Box) -> int:
    """Rows of a box."""
    start, stop = row_span(box)
    return stop - start
