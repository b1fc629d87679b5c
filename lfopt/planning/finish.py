"""What goes with a block of an operator's result: its other operands and those of its epilogue are loaded, the epilogue runs, results are stored."""

from __future__ import annotations

from collections.abc import Sequence

from lfopt.ir import Box, DramBytes, Step
from lfopt.ops.footprint import footprint
from lfopt.ops.part import hull
from lfopt.planning.streaming import Operand, row_span
from lfopt.planning.work import Work


class Finish:
    """The end of every block of a head's result. `apart`: the head's own operands, by position, that somebody else loads."""

    def __init__(self, work: Work, apart: Sequence[int]) -> None:
        self.work, self.layout, self.flow = work, work.layout, work.flow
        self.made = [self.flow.maps[m].name for m in work.group.made]
        self.outside = [self.flow.maps[m].name for m in work.group.made if m in work.group.outside]
        first = next(o.source.name for o in work.operands if o.op == work.head and o.input == 0)  # which has a place of its name already
        self.others: dict[str, list[Operand]] = {}
        for operand in work.operands:
            if operand.op != work.head or operand.input not in apart:
                self.others.setdefault(operand.source.name, []).append(operand)
        self.places = {name: self.layout.place_name(f"{name} beside") if name == first else name for name in self.others}
        readers = {name: [r for r in found if not work.own(*r)] for name, found in work.group.constants().items()}
        self.constants = {name: found for name, found in readers.items() if found}
        self.early = {name for name, found in self.constants.items() if any(op == work.head for op, _ in found)}  # read in flight

    def _operand(self, readers: Sequence[Operand], out: Box) -> Box:
        return hull([footprint(self.flow.calls[o.op], o.input, out) for o in readers])

    def _constant(self, readers: Sequence[tuple[int, int]], out: Box) -> Box:
        return hull([footprint(self.flow.calls[op], index, out) for op, index in readers])

    def entries(self, out: Box) -> list[tuple[str, str, int, int]]:
        """(name, purpose, slots, slot bytes) of the places, for the largest block."""
        layout, rows, row_bytes = self.layout, row_count(out), self.layout.row_on_chip(out)
        found = [(name, "map", rows, row_bytes) for name in self.made]
        for name, readers in self.others.items():
            box = self._operand(readers, out)
            found.append((self.places[name], "map", row_count(box), layout.row_on_chip(box)))
        return found + [(name, "weight", 1, layout.constant_bytes(name, self._constant(r, out))) for name, r in self.constants.items()]

    def dram(self, out: Box) -> DramBytes:
        """Bytes that a block moves."""
        layout = self.layout
        return DramBytes(
            input=sum(layout.map_bytes(self._operand(readers, out)) for readers in self.others.values()),
            output=layout.map_bytes(out) * len(self.outside),
            weight=sum(layout.constant_bytes(name, self._constant(readers, out)) for name, readers in self.constants.items()),
        )

    def before(self, out: Box, at: dict[str, int]) -> list[Step]:
        """Loads that the head waits for: of a Gemm that adds a map, of what follows it in flight. `at`: places by name."""
        return self._loads(out, at, early=True)

    def steps(self, out: Box, at: dict[str, int]) -> list[Step]:
        """The other loads, the epilogue, stores."""
        return self._loads(out, at, early=False) + self.epilogue(out, at)

    def _loads(self, out: Box, at: dict[str, int], *, early: bool) -> list[Step]:
        """Of the maps that the head reads itself, or of the others."""
        found = ((name, readers) for name, readers in self.others.items() if any(o.op == self.work.head for o in readers) == early)
        steps: list[Step] = [self.layout.load(name, self._operand(readers, out), at[self.places[name]]) for name, readers in found]
        constants = ((name, readers) for name, readers in self.constants.items() if (name in self.early) == early)
        return steps + [self.layout.load_constant(name, self._constant(readers, out), at[name]) for name, readers in constants]

    def epilogue(self, out: Box, at: dict[str, int]) -> list[Step]:
        """The other operators on a box that the head has finished, and the stores."""
        flow, rest = self.flow, self.work.group.members[1:]
        steps: list[Step] = [self.layout.compute(i, (out,), (at[flow.maps[flow.results[i][0]].name],)) for i in rest]
        return steps + [self.layout.store(name, out, at[name]) for name in self.outside]


def row_count(box: Box) -> int:
    """Rows of a box."""
    start, stop = row_span(box)
    return stop - start
