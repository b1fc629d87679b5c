"""Loops over elements that lie at even distances, along axes that are merged where that changes nothing.

What copies elements finds the shape that its addresses have: rows side by side, a matrix that is transposed,
or single elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from codegen.writer import Writer

COPIED = 16  # elements side by side from which memcpy has them
WORDS = frozenset({"float", "int32_t", "uint32_t"})  # types of four bytes
TRANSPOSED = 8  # rows and columns of a matrix from which it is transposed block by block


class Move(NamedTuple):
    """The index along an axis of an operand: a number, plus so many times the index along a loop's axis."""

    start: int = 0
    axis: int = -1  # of the loops; -1: none
    by: int = 1


class Strided(NamedTuple):
    """Elements of an array as loops reach them."""

    pointer: str  # C expression: address of the first
    steps: tuple[int, ...]  # per loop: elements from one to the next
    ctype: str  # C type of an element

    def at(self, indices: Sequence[str]) -> str:
        """C expression of the element at an index of each loop."""
        terms = [
            f"{i} * {step}" if step != 1 else i
            for i, step in zip(indices, self.steps, strict=True)
            if step and i != "0"
        ]
        name = self.pointer if self.pointer.isidentifier() else f"({self.pointer})"
        return f"{name}[{' + '.join(terms) or '0'}]"


class StridedLoops(NamedTuple):
    """Loops, outermost first, and the arrays that they go through."""

    extents: tuple[int, ...]
    arrays: tuple[Strided, ...]

    def merged(self) -> StridedLoops:
        """The same with fewer loops: those of one turn left out, those that go on where others end joined."""
        axes = [k for k, extent in enumerate(self.extents) if extent != 1]
        groups: list[list[int]] = []
        for k in axes:
            joins = groups and all(
                array.steps[groups[-1][-1]] == array.steps[k] * self.extents[k] for array in self.arrays
            )
            if joins:
                groups[-1].append(k)
            else:
                groups.append([k])
        extents: list[int] = []
        for group in groups:
            extent = 1
            for k in group:
                extent *= self.extents[k]
            extents.append(extent)
        arrays = tuple(
            array._replace(steps=tuple(array.steps[group[-1]] for group in groups)) for array in self.arrays
        )
        return StridedLoops(tuple(extents), arrays)

    def named(self, names: Sequence[str]) -> tuple[list[str], StridedLoops]:
        """C statements that give the first array's address, and those of the others, names; with these.

        An address that is read from memory in a loop could be changed by what the loop stores.
        """
        kinds = ["", *["const "] * (len(self.arrays) - 1)]
        lines = [
            f"{kind}{array.ctype} *const {name} = {array.pointer};"
            for kind, name, array in zip(kinds, names, self.arrays, strict=True)
        ]
        arrays = tuple(array._replace(pointer=name) for name, array in zip(names, self.arrays, strict=True))
        return lines, StridedLoops(self.extents, arrays)

    def outermost_first(self) -> StridedLoops:
        """The same with loops in the order in which the first array lies."""
        order = sorted(range(len(self.extents)), key=lambda k: -self.arrays[0].steps[k])
        arrays = tuple(array._replace(steps=tuple(array.steps[k] for k in order)) for array in self.arrays)
        return StridedLoops(tuple(self.extents[k] for k in order), arrays)


def print_copy(out: Writer, loops: StridedLoops, *, shared: bool) -> None:
    """Copy the second array to the first. Neither overlaps the other. `shared`: out among threads."""
    lines, loops = loops.outermost_first().merged().named(("to", "from"))
    extents, (to, source) = loops.extents, loops.arrays
    with out.block(""):
        out.all(lines)
        if not extents:
            with out.nested(["if (m->me == 0)"] if shared else []):
                out("*to = *from;")
        elif to.steps[-1] == source.steps[-1] == 1 and (extents[-1] >= COPIED or len(extents) == 1):
            _copy_rows(out, loops, shared=shared)
        elif to.ctype in WORDS and (matrix := _matrix(loops)):
            _transpose(out, loops, *matrix, shared=shared)
        else:
            heads, (element, original) = each(loops, shared=shared)
            with out.nested(heads):
                out(f"{element} = {original};")


def each(loops: StridedLoops, *, shared: bool, joined: str = "") -> tuple[list[str], list[str]]:
    """Heads of merged loops whose turns do not depend on one another, and an element of each array.

    `joined`: a variable that they set bits of.
    """
    loops = loops.merged()
    if not loops.extents:
        return ["if (m->me == 0)"] if shared else [], [array.at([]) for array in loops.arrays]
    indices = [f"i{k}" for k in range(len(loops.extents))]
    heads = [
        head(index, extent, shared=shared and index == indices[0])
        for index, extent in zip(indices, loops.extents, strict=True)
    ]
    heads[-1] = f"{f'EACH_FOLDED(reduction(|: {joined}))' if joined else 'EACH'} {heads[-1]}"
    return heads, [array.at(indices) for array in loops.arrays]


def head(index: str, extent: int, *, shared: bool) -> str:
    """The head of a loop, of this thread's turns alone where it is shared out."""
    first, stop = (f"FIRST({extent})", f"STOP({extent})") if shared else ("0", str(extent))
    return f"for (int {index} = {first}; {index} < {stop}; {index}++)"


def _copy_rows(out: Writer, loops: StridedLoops, *, shared: bool) -> None:
    """Rows whose elements lie side by side; where there is one row, a part of it by each thread."""
    *outer, length = loops.extents
    to, source = loops.arrays
    if not outer:
        first = "0"
        count = str(length)
        if shared:
            first = f"FIRST({length})"
            count = f"(STOP({length}) - FIRST({length}))"
        out(f"memcpy(to + {first}, from + {first}, (size_t){count} * sizeof *to);")
        return
    indices = [f"i{k}" for k in range(len(outer))]
    heads = [head(i, extent, shared=shared and i == "i0") for i, extent in zip(indices, outer, strict=True)]
    with out.nested(heads):
        there, here = (f"&{array.at([*indices, '0'])}" for array in (to, source))
        out(f"memcpy({there}, {here}, {length} * sizeof *to);")


def _matrix(loops: StridedLoops) -> tuple[int, int] | None:
    """The loops over rows and columns of a matrix that is transposed.

    Elements of its rows lie side by side in the operand, those of its columns in the result.
    """
    to, source = loops.arrays
    rows = [k for k, step in enumerate(to.steps) if step == 1]
    columns = [k for k, step in enumerate(source.steps) if step == 1]
    if len(rows) != 1 or len(columns) != 1 or rows == columns:
        return None
    enough = min(loops.extents[rows[0]], loops.extents[columns[0]]) >= TRANSPOSED
    if enough:
        return (rows[0], columns[0])
    return None


def _transpose(out: Writer, loops: StridedLoops, rows: int, columns: int, *, shared: bool) -> None:
    """A matrix at every index of the other loops."""
    to, source = loops.arrays
    indices = [f"i{k}" if k not in (rows, columns) else "0" for k in range(len(loops.extents))]
    others = [k for k, index in enumerate(indices) if index != "0"]
    heads = [head(indices[k], loops.extents[k], shared=shared and k == others[0]) for k in others]
    count = loops.extents[columns]
    first, stop = (f"FIRST({count})", f"STOP({count})") if shared and not others else ("0", str(count))
    with out.nested(heads):
        out(
            f"transpose_words(&{to.at(indices)}, &{source.at(indices)}, {loops.extents[rows]}, {first}, "
            f"{stop}, {to.steps[columns]}, {source.steps[rows]});"
        )
