"""Tables in counting C of tensors that are read through operators that only move data, piece by piece."""

from __future__ import annotations

from collections.abc import Callable

from codegen.writer import Writer
from lfopt.ops.pieces import Access, AccessPiece


class AccessTables:
    """Pieces and their loops, as `chip.h` walks them."""

    def __init__(self) -> None:
        self.fragments: list[str] = []
        self.counters: list[str] = []

    def add(self, access: Access, number: Callable[[str], int]) -> tuple[int, int]:
        """(first, how many) of the pieces of a tensor. `number`: that of a stored tensor in its table."""
        first = len(self.fragments)
        for piece in access:
            self.fragments.append(self._fragment(piece, number(piece.source)))
        return first, len(access)

    def _fragment(self, piece: AccessPiece, source: int) -> str:
        first = len(self.counters)
        for axis, loops in enumerate(piece.loops):
            # the innermost first, as indices are taken apart
            self.counters += [f"{{{axis}, {count}, {stride}}}" for count, stride in reversed(loops)]
        starts = ", ".join(str(start) for start, _ in piece.box) or "0"
        stops = ", ".join(str(stop) for _, stop in piece.box) or "1"
        counters = len(self.counters) - first
        return f"{{{{{{{starts}}}, {{{stops}}}}}, {source}, {piece.offset}, {first}, {counters}}}"

    def print(self, out: Writer) -> None:
        """Both tables."""
        out("static const fragment fragments[FRAGMENTS] = {")
        out(*(f"    {row}," for row in self.fragments or ["{{{0}, {0}}, 0, 0, 0, 0}"]))
        out("};", "static const counter counters[COUNTERS] = {")
        out(*(f"    {row}," for row in self.counters or ["{0, 1, 0}"]))
        out("};", "")
