"""What the loops of one operator are made from: operands and results as arrays, and loops over elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from math import prod

import numpy as np

from codegen.blob import Blob
from codegen.layout import CTYPES, MapLayout, alike
from codegen.loops.strided import Move, Strided, StridedLoops, each, print_copy
from codegen.source import Unsupported
from codegen.writer import Writer
from lfopt.ir import Span, Tensor, row_axis
from lfopt.ops import Call


@dataclass(frozen=True, slots=True)
class Array:
    """An operand or a result: where its elements lie. Indices are C expressions of type int."""

    layout: MapLayout  # of the map behind it
    shape: tuple[int, ...]  # as the operator sees it; a view may have another than the map
    pointer: str  # C expression: address of the first element
    slots: int = 0  # of the ring that its rows lie in; 0: it is there as a whole
    slot: int = 0  # elements from one slot to the next
    stored: str = ""  # C type of an element in memory, where it is not that of the tensor

    @property
    def dtype(self) -> str:
        """NumPy's name of the element type."""
        return self.layout.tensor.dtype

    @property
    def ctype(self) -> str:
        """C's name of the element type."""
        return self.layout.ctype

    def at(self, index: Sequence[str]) -> str:
        """The element at an index: a C expression that can be read, and assigned to."""
        return f"({self.pointer})[{self.offset(index)}]"

    def offset(self, index: Sequence[str]) -> str:
        """Elements from the first to the one at an index."""
        assert len(index) == len(self.shape), (index, self.shape)
        if self.shape != self.layout.shape:
            if self.layout.onnx and not self.slots:
                return _flat(index, self.shape)
            index = self.behind(index)
        terms = [*zip(index, self.layout.strides, strict=True)]
        if self.slots:
            axis = row_axis(self.layout.shape)
            if axis is not None:
                terms[axis] = ("0" if self.slots == 1 else f"({index[axis]}) % {self.slots}", self.slot)
        return _sum(
            (i, step) for (i, step), extent in zip(terms, self.layout.shape, strict=True) if extent > 1
        )

    def step(self, axis: int) -> int | None:
        """Elements from one index of an axis to the next; None where that differs from place to place."""
        if self.shape[axis] == 1:
            return 0
        if self.shape != self.layout.shape and self.layout.onnx and not self.slots:
            return _steps(self.shape)[axis]
        mine, behind = next(part for part in alike(self.shape, self.layout.shape) if axis in part[0])
        if len(behind) != 1:
            return None
        within = _steps([self.shape[k] for k in mine])[mine.index(axis)]
        if self.slots and behind[0] == row_axis(self.layout.shape):
            if self.slots >= self.layout.shape[behind[0]]:
                return self.slot * within
            return None
        return self.layout.strides[behind[0]] * within

    def behind(self, index: Sequence[str]) -> list[str]:
        """The index of the same element in the map behind a view."""
        indices = ["0"] * len(self.layout.shape)
        for mine, behind in alike(self.shape, self.layout.shape):
            flat = _flat([index[k] for k in mine], [self.shape[k] for k in mine])
            extents = [self.layout.shape[k] for k in behind]
            for k, extent, step in zip(behind, extents, _steps(extents), strict=True):
                digit = f"({flat}) / {step}" if step > 1 else flat
                indices[k] = digit if k == behind[0] else f"({digit}) % {extent}"
        return indices

    def strided(self, moves: Sequence[Move], axes: Sequence[int], fixed: Mapping[int, str]) -> Strided | None:
        """The elements at places that move with the indices of loops; None where distances are uneven.

        `moves`: along each axis; `axes`: what the loops are over, in order; `fixed`: indices, in C, along
        axes that no loop is over.
        """
        start = [
            plus(times(fixed[move.axis], move.by), move.start) if move.axis in fixed else str(move.start)
            for move in moves
        ]
        steps = [0] * len(axes)
        for axis, move in enumerate(moves):
            if move.axis in axes:
                step = self.step(axis)
                if step is None:
                    return None
                steps[axes.index(move.axis)] += step * move.by
        offset = self.offset(start)
        pointer = self.pointer if offset == "0" else f"{self.pointer} + {offset}"
        return Strided(pointer, tuple(steps), self.stored or self.ctype)

    def in_step(self, shape: Sequence[int]) -> list[Move]:
        """Moves of an operand that is broadcast to a larger shape, by NumPy's rules."""
        before = len(shape) - len(self.shape)
        return [
            Move() if extent == 1 and shape[before + axis] != 1 else Move(0, before + axis)
            for axis, extent in enumerate(self.shape)
        ]

    def broadcast(self, index: Sequence[str], shape: Sequence[int]) -> list[str]:
        """The index of the element that meets the one at `index` of a larger shape, by NumPy's rules."""
        return [
            "0" if extent == 1 else i
            for i, extent in zip(index[len(shape) - len(self.shape) :], self.shape, strict=True)
        ]


def plus(index: str, offset: int) -> str:
    """C expression: an index plus an offset."""
    if index.lstrip("-").isdigit():
        return str(int(index) + offset)
    if offset == 0:
        return index
    return f"{index} {'+' if offset > 0 else '-'} {abs(offset)}"


def times(index: str, by: int) -> str:
    """C expression: an index times a number."""
    if by == 1:
        return index
    return f"({index}) * {by}"


def _steps(shape: Sequence[int]) -> list[int]:
    return [prod(shape[k + 1 :]) for k in range(len(shape))]


def _flat(index: Sequence[str], shape: Sequence[int]) -> str:
    """Place of an element in C order."""
    return _sum((i, step) for i, step in zip(index, _steps(shape), strict=True))


def _sum(terms: Iterator[tuple[str, int]]) -> str:
    """C expression: a sum of products."""
    products = [f"({i}) * {step}" if step != 1 else f"({i})" for i, step in terms if i != "0" and step]
    return " + ".join(products) or "0"


class Nest:
    """One operator, to be printed as loops into a function `name(m, r)`.

    The function makes row r of every result, or, if `whole`, all rows, whatever r is. With several threads,
    all of them run it: the outermost loop of `each` is shared out among them; what cannot be shared out
    stands in `alone`.
    """

    def __init__(
        self,
        out: Writer,
        call: Call,
        operands: Mapping[int, Array],
        results: Sequence[Array],
        blob: Blob,
        *,
        whole: bool,
        threads: int,
        lanes: int = 0,
        aliased: AbstractSet[int] = frozenset(),
    ) -> None:
        self.out = out
        self.call = call
        self.blob = blob
        self.whole = whole
        self.aliased = aliased  # inputs of a Concat, or results of a Split, that are where they belong
        self.lanes = lanes  # floats of a vector; 0: elements are reached one by one, by `Array.at`
        self.results = results
        self.maps = operands
        self._threads = threads
        self._sharing = threads > 1  # whether the next loop is shared out

    evenly = True  # whether elements of whole maps and rings are reached by their distances

    @property
    def sharing(self) -> bool:
        """Whether the next loop is shared out among threads."""
        return self._sharing

    @contextmanager
    def unshared(self) -> Iterator[None]:
        """Where a loop is shared out already."""
        before = self._sharing
        self._sharing = False
        yield
        self._sharing = before

    def reading(self, call: Call, maps: Mapping[int, Array]) -> Nest:
        """The same loops for another operator, on operands that are reached element by element."""
        nest = copy(self)
        nest.call = call
        nest.maps = maps
        nest.lanes = 0
        return nest

    def operand(self, index: int) -> Array:
        """An operand that is a map, or a constant with its values."""
        if index in self.maps:
            return self.maps[index]
        value = self.call.values[index]
        tensor = self.call.tensors[index]
        if value is None or tensor is None:
            raise self.unsupported(
                f"input {index} that is absent, or has no values", "maps and constants with values"
            )
        if tensor.dtype not in CTYPES:
            raise self.unsupported(f"input {index} of type {tensor.dtype}", ", ".join(CTYPES))
        return Array(MapLayout(tensor, tuple(range(value.ndim))), value.shape, self.constant(value))

    def constant(self, values: np.ndarray) -> str:
        """C expression: address of values of any shape and dtype, in C order."""
        kind = CTYPES[values.dtype.name]
        pointer = self.blob.add(values, values.dtype.name)
        if kind == "float":
            return pointer
        return f"((const {kind} *){pointer})"

    def constant_array(self, values: np.ndarray) -> Array:
        """Constants of any shape, as an operand."""
        tensor = Tensor("", values.shape, values.dtype.name)
        return Array(MapLayout(tensor, tuple(range(values.ndim))), values.shape, self.constant(values))

    def unsupported(self, refused: str, accepted: str) -> Unsupported:
        """The error for what the loops do not do."""
        operator = self.call.operator
        return Unsupported(
            f"node {operator.name!r} ({operator.kind}): found {refused}; generated C accepts {accepted}"
        )

    def row(self, result: int = 0) -> int | None:
        """The axis along which a result is made row by row, where its index is r."""
        if self.whole:
            return None
        return row_axis(self.results[result].shape)

    def ends(self, axis: int) -> tuple[str, str]:
        """C expressions: between which indices along an axis elements of the first result are to be made."""
        return "0", str(self.results[0].shape[axis])

    def wanted(self, at: Mapping[int, str], result: int = 0) -> list[str]:
        """C conditions that all hold where elements of a result are to be made.

        `at`: axis -> index.
        """
        row = self.row(result)
        if row is not None and row in at:
            return [f"{at[row]} == r"]
        return []

    # -- loops -----------------------------------------------------------------------------------------------

    @contextmanager
    def each(
        self,
        result: int = 0,
        axes: Sequence[int] | None = None,
        name: str = "i",
        spans: Mapping[int, Span] | None = None,
    ) -> Iterator[dict[int, str]]:
        """Loops over the elements of a result that are to be made, or over some of its axes: axis -> index.

        Loops follow the order in which elements lie. `spans`: along these axes, only the indices (first,
        stop). With all axes, `[*indices.values()]` is not an index: see `elements`.
        """
        layout = self.results[result].layout
        axis = self.row(result)
        before = self._sharing
        indices: dict[int, str] = {}
        heads: list[str] = []
        for k in layout.order if axes is None else [k for k in layout.order if k in axes]:
            first, stop = (spans or {}).get(k, (0, layout.shape[k]))
            if k == axis:
                indices[k] = "r"
                bounds = [f"r >= {first}"] if first > 0 else []
                bounds += [f"r < {stop}"] if stop < self.call.rows_out else []
                heads += [f"if ({' && '.join(bounds)})"] if bounds else []
            elif stop - first == 1:
                indices[k] = str(first)
            else:
                indices[k] = f"{name}{k}"
                heads.append(self._head(indices[k], stop - first, first))
        if self._sharing:  # one element, or a row that is one
            heads.append("if (m->me == 0)")
        self._sharing = False
        with self.out.nested(heads):
            yield indices
        self._sharing = before

    @contextmanager
    def elements(
        self, result: int = 0, name: str = "i", spans: Mapping[int, Span] | None = None
    ) -> Iterator[list[str]]:
        """Loops over all elements of a result that are to be made: their index."""
        with self.each(result, name=name, spans=spans) as indices:
            yield [indices[k] for k in range(len(indices))]

    @contextmanager
    def over(
        self, extents: Sequence[int | str], name: str, part: tuple[int, str, str] | None = None
    ) -> Iterator[list[str]]:
        """Loops over anything else, by every thread that comes here: indices `name`0, `name`1, ...

        `part`: (axis, first, stop in C), along which they are over a part alone.
        """
        indices = ["0" if extent == 1 else f"{name}{k}" for k, extent in enumerate(extents)]
        spans = [("0", str(extent)) for extent in extents]
        if part:
            axis, *span = part
            indices[axis], spans[axis] = f"{name}{axis}", (span[0], span[1])
        heads = [
            f"for (int {i} = {first}; {i} < {stop}; {i}++)"
            for i, (first, stop) in zip(indices, spans, strict=True)
            if i != "0"
        ]
        with self.out.nested(heads):
            yield indices

    # -- elements at even distances --------------------------------------------------------------------------

    def strided(
        self,
        operands: Sequence[tuple[Array, Sequence[Move]]],
        result: int = 0,
        spans: Mapping[int, Span] | None = None,
    ) -> StridedLoops | None:
        """Loops over the elements of a result that are to be made: it, and operands beside it, as arrays.

        `spans`: along these axes, only the indices (first, stop); operands begin at the first. None where
        rows are made of which this result, or these indices, lack some, or where elements are at uneven
        distances.
        """
        y = self.results[result]
        if not self.evenly or y.shape != y.layout.shape:
            return None
        row = self.row(result)
        spans = spans or {}
        if row is not None and (
            spans.get(row, (0, y.shape[row])) != (0, y.shape[row]) or y.shape[row] != self.call.rows_out
        ):
            return None
        axes = [axis for axis in y.layout.order if axis != row]
        fixed = {} if row is None else {row: "r"}
        extents = [stop - first for first, stop in (spans.get(axis, (0, y.shape[axis])) for axis in axes)]
        own = [Move(spans[axis][0] if axis in spans else 0, axis) for axis in range(len(y.shape))]
        if any(type(array) is not Array for array, _ in operands):
            return None
        arrays = [array.strided(moves, axes, fixed) for array, moves in ((y, own), *operands)]
        if any(array is None for array in arrays):
            return None
        return StridedLoops(tuple(extents), tuple(array for array in arrays if array is not None))

    def strided_in_parts(
        self, x: Array, factors: Mapping[int, Sequence[int]], terms: Sequence[Sequence[tuple[int, int, int]]]
    ) -> StridedLoops | None:
        """Loops over the elements of the result, in which an axis may be several loops: it, and an operand.

        `factors`: extents of the loops that an axis of the result is made of, outermost first; one loop for
        others. `terms`: for each axis of the operand, (axis of the result, number of its loop, elements of
        the operand's axis in a turn). None where a row is made, or elements are at uneven distances.
        """
        y = self.results[0]
        if not self.evenly or not self.whole or type(x) is not Array:
            return None
        parts = [
            (axis, number, extent)
            for axis in y.layout.order
            for number, extent in enumerate(factors.get(axis, (y.shape[axis],)))
        ]
        steps = [[0] * len(parts), [0] * len(parts)]
        for k, (axis, number, _) in enumerate(parts):
            step = y.step(axis)
            if step is None:
                return None
            steps[0][k] = step * prod(factors.get(axis, ())[number + 1 :])
        for axis, moves in enumerate(terms):
            step = x.step(axis)
            if step is None:
                return None
            for of, number, by in moves:
                at = next(k for k, part in enumerate(parts) if part[:2] == (of, number))
                steps[1][at] += step * by
        arrays = tuple(
            Strided(f"&{array.at(['0'] * len(array.shape))}", tuple(own), array.stored or array.ctype)
            for array, own in zip((y, x), steps, strict=True)
        )
        return StridedLoops(tuple(extent for _, _, extent in parts), arrays)

    @contextmanager
    def alike(self, *operands: Array, joined: str = "") -> Iterator[list[str]]:
        """Loops over the elements of the result: it, and those of the operands, which are broadcast.

        No element depends on another; but all may set bits of the variable `joined`.
        """
        y = self.results[0]
        loops = self.strided([(operand, operand.in_step(y.shape)) for operand in operands])
        if loops is None:
            with self.elements() as at:
                yield [y.at(at), *(operand.at(operand.broadcast(at, y.shape)) for operand in operands)]
            return
        with self.printed(loops, joined) as elements:
            yield elements

    @contextmanager
    def printed(self, loops: StridedLoops, joined: str = "") -> Iterator[list[str]]:
        """Loops whose turns do not depend on one another: an element of each array."""
        names = ["to", *(f"from{k}" for k in range(len(loops.arrays) - 1))]
        lines, loops = loops.merged().named(names)
        heads, elements = each(loops, shared=self._sharing, joined=joined)
        with self.unshared(), self.out.block(""):
            self.out.all(lines)
            with self.out.nested(heads):
                yield elements

    def copied(self, loops: StridedLoops) -> None:
        """Copy the second array to the first."""
        print_copy(self.out, loops, shared=self._sharing)

    def part_copied(
        self,
        to: tuple[Array, Sequence[str]],
        source: tuple[Array, Sequence[str]],
        axes: Sequence[tuple[int, int]],
    ) -> bool:
        """Copy elements along pairs of axes, of a result and an operand, from an index of each on.

        False, and nothing is printed, where they are at uneven distances.
        """
        (y, there), (x, here) = to, source
        if not self.evenly or type(x) is not Array or type(y) is not Array:
            return False
        steps = [[array.step(axes_of[k]) for axes_of in axes] for k, array in enumerate((y, x))]
        arrays: list[Strided] = []
        for array, index, own in zip((y, x), (there, here), steps, strict=True):
            even = [step for step in own if step is not None]
            if len(even) < len(own):
                return False
            arrays.append(Strided(f"&{array.at(index)}", tuple(even), array.stored or array.ctype))
        loops = StridedLoops(tuple(y.shape[axis] for axis, _ in axes), tuple(arrays))
        with self.unshared():
            self.copied(loops)
        return True

    # -- sums that may come in parts -------------------------------------------------------------------------

    def folded(
        self, extents: Sequence[int | str], name: str, along: int | None
    ) -> AbstractContextManager[list[str]]:
        """Loops as those of `over`, over what is folded into one element.

        `along`: which of the extents a plan may take in parts.
        """
        return self.over(extents, name)

    def begin(self, at: Sequence[str], start: str) -> str:
        """C expression: what the sum (or extreme) of an element begins with.

        `start`, or what earlier parts came to.
        """
        return start

    def end(self, at: Sequence[str], value: str) -> AbstractContextManager[None]:
        """A block for what is done with a sum that is complete.

        Where it comes in parts, a sum that goes on is stored instead.
        """
        return nullcontext()

    @contextmanager
    def share(self, extent: int, name: str) -> Iterator[str]:
        """One loop over anything else, shared out if no loop around it is."""
        before = self._sharing
        head = self._head(name, extent)
        with self.out.nested([head]):
            yield name
        self._sharing = before

    def wait(self) -> None:
        """Until all threads have come here. Not inside loops that are shared out."""
        if self._threads > 1:
            self.out("SYNC();")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A block for what one thread does while the others wait for the end of the operator."""
        before = self._sharing
        self._sharing = False
        with self.out.nested(["if (m->me == 0)"] if before else []):
            yield
        self._sharing = before

    def _head(self, index: str, extent: int, start: int = 0) -> str:
        """A loop from `start` on, shared out if it is the first."""
        first = str(start)
        stop = str(start + extent)
        if self._sharing:
            moved = f" + {start}" if start else ""
            first = f"FIRST({extent}){moved}"
            stop = f"STOP({extent}){moved}"
        self._sharing = False
        return f"for (int {index} = {first}; {index} < {stop}; {index}++)"


Loops = Callable[[Nest], None]  # what writes the loops of an operator
