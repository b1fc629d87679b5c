"""Loops over the fibres of an operand: its elements along some axes, for each index along the others.

An operator says once what it makes of a fibre: variables of the fibre, folds over its elements, and results.
Three ways to print that follow from how elements lie:

* side by side in a fibre: fibre by fibre, and compilers make vectors of neighbours in it;
* side by side across fibres: so many fibres at a time, whose variables are arrays, and compilers make vectors
  of neighbouring fibres;
* at uneven distances, or in boxes: fibre by fibre, element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from codegen.loops.nest import Array, Nest
from codegen.loops.strided import Strided, StridedLoops, head
from lfopt.ops.footprint import folded_axis

WIDTH = 128  # fibres at a time
ENOUGH = 4  # neighbouring fibres from which they are taken together


@contextmanager
def along(nest: Nest, x: Array, axes: Sequence[int], at: Sequence[str]) -> Iterator[list[str]]:
    """Loops over some axes of an operand, in the order in which it lies: the index.

    That is `at` along the others.
    """
    order = x.layout.order if x.shape == x.layout.shape else range(len(x.shape))
    chosen = [axis for axis in order if axis in axes]
    folded = folded_axis(nest.call, 0)
    part = chosen.index(folded) if folded in chosen else None
    with nest.folded([x.shape[axis] for axis in chosen], "j", part) as indices:
        index = list(at)
        for axis, i in zip(chosen, indices, strict=True):
            index[axis] = i
        yield index


@contextmanager
def of_fibre(nest: Nest, axes: Sequence[int], at: Sequence[str], result: int = 0) -> Iterator[list[str]]:
    """Loops over those elements of a fibre that are to be made: their index."""
    with nest.each(result, axes, name="o") as indices:
        yield [indices.get(axis, i) for axis, i in enumerate(at)]


class Fibres:
    """The fibres of an operand of a nest, and how they lie.

    >>> fibres = Fibres(nest, x, [2, 3])  # doctest: +SKIP
    >>> with fibres.each():  # doctest: +SKIP
    ...     fibres.variable("double", "sum", "0.0")
    ...     with fibres.fold(sum="+") as v:
    ...         nest.out(f"{fibres['sum']} += {v};")
    """

    def __init__(
        self,
        nest: Nest,
        x: Array,
        axes: Sequence[int],
        *,
        result: int = 0,
        reduced: bool = False,
        beside: Sequence[Array] = (),
        view: Array | None = None,
    ) -> None:
        """`reduced`: the result has one element for each fibre, not as many as the operand.

        `beside`: operands that are broadcast to the operand's shape; `view`: the result, where the operand is
        seen in another shape than it has.
        """
        self.nest = nest
        self.x = x
        self.axes = list(axes)
        self.result = result
        self.reduced = reduced
        self.y = view or nest.results[result]
        self.beside = list(beside)
        self._seen = view is not None
        self._index: list[str] = []  # of a fibre of the operand, 0 along its axes
        self._at: list[str] = []  # of the result of a fibre
        self.even = self._strides()  # whether elements lie at even distances
        self._columns = False
        if self.even:
            self._lay_out()

    def __getitem__(self, name: str) -> str:
        """C expression: a variable of the present fibre."""
        if self._columns:
            return f"{name}[c]"
        return name

    @property
    def together(self) -> bool:
        """Whether neighbouring fibres are taken together."""
        return self._columns

    @property
    def dense(self) -> bool:
        """Whether the elements of a fibre lie side by side, from `x` on."""
        return self.even and not self._columns and self._inside.arrays[0].steps == (1,)

    @property
    def floats(self) -> bool:
        """Whether it is floats that lie side by side in a fibre: functions of folds.h take it."""
        return self.dense and (self.x.stored or self.x.ctype) == "float"

    @property
    def length(self) -> int:
        """Elements of a fibre."""
        return prod(self.x.shape[axis] for axis in self.axes)

    def result_at(self, turn: str) -> str:
        """C expression: the element of the result at an index along the one axis of a fibre."""
        return self._inside.arrays[1].at([turn] if self._inside.extents else [])

    @property
    def turn(self) -> str:
        """C expression: the index along the one axis of a fibre, in loops over its elements."""
        if self._inside.extents:
            return "j0"
        return "0"

    @property
    def first(self) -> str:
        """C expression: the first element of a fibre, where elements lie evenly."""
        x = self._inside.arrays[0]
        if not self._columns:
            return "x[0]"
        return Strided("x", (self._across.arrays[0].steps[self._column],), x.ctype).at(["c"])

    # -- how elements lie ------------------------------------------------------------------------------------

    def _place(self, axis: int) -> int:
        """The axis of the result for one of the operand that is not folded."""
        if not self.reduced or len(self.y.shape) == len(self.x.shape):
            return axis
        return axis - sum(folded < axis for folded in self.axes)

    def _strides(self) -> bool:
        """Whether all elements lie at even distances; sets these."""
        nest = self.nest
        arrays = [self.x, self.y, *self.beside]
        if not nest.evenly or any(type(array) is not Array for array in arrays):
            return False
        row = nest.row(self.result)
        kept = [axis for axis in range(len(self.x.shape)) if axis not in self.axes]
        self._row = next((axis for axis in kept if self._place(axis) == row), None)
        rows = nest.call.rows_out
        if row is not None and (self._row is None or self._seen or self.y.shape[row] != rows):
            return False
        steps: list[list[int]] = []
        for array in arrays:
            own = [self._step(array, axis) for axis in range(len(self.x.shape))]
            if None in own:
                return False
            steps.append([step for step in own if step is not None])
        self._steps = steps
        self._kept = [axis for axis in kept if axis != self._row]
        return True

    def _step(self, array: Array, axis: int) -> int | None:
        """Elements of an array from one index of an axis of the operand to the next."""
        if array is self.x:
            return array.step(axis)
        if array is self.y:
            if self.reduced and axis in self.axes:
                return 0
            return array.step(self._place(axis))
        own = axis - (len(self.x.shape) - len(array.shape))
        if own < 0 or array.shape[own] == 1:
            return 0
        return array.step(own)

    def _lay_out(self) -> None:
        """Set the loops over fibres, and those over the elements of one."""
        x = self.x
        names = ["x", "y", *(f"z{k}" for k in range(len(self.beside)))]
        pointers: list[str] = []
        for array, steps in zip([x, self.y, *self.beside], self._steps, strict=True):
            at = ["0"] * len(array.shape)
            if self._row is not None:
                if array is x:
                    at[self._row] = "r"
                elif array is self.y:
                    at[self._place(self._row)] = "r"
                elif steps[self._row]:
                    at[self._row - (len(x.shape) - len(array.shape))] = "r"
            pointers.append(f"{array.pointer} + {array.offset(at)}")
        self._pointers = pointers

        def loops(axes: Sequence[int], first: int) -> StridedLoops:
            order = sorted(axes, key=lambda axis: -self._steps[first][axis])
            arrays = tuple(
                Strided(name, tuple(steps[axis] for axis in order), array.ctype)
                for name, steps, array in zip(names, self._steps, [x, self.y, *self.beside], strict=True)
            )
            return StridedLoops(tuple(x.shape[axis] for axis in order), arrays).merged()

        self._across, self._inside = loops(self._kept, 0), loops(self.axes, 0)
        beside = [k for k, step in enumerate(self._across.arrays[0].steps) if step == 1]
        inside = 1 in self._inside.arrays[0].steps
        self._columns = bool(beside) and not inside and self._across.extents[beside[0]] >= ENOUGH
        self._column = beside[0] if self._columns else -1

    # -- what is printed -------------------------------------------------------------------------------------

    @contextmanager
    def each(self) -> Iterator[None]:
        """Loops over fibres, or over so many at a time."""
        nest = self.nest
        if not self.even:
            with self._each_unevenly():
                yield
            return
        out = nest.out
        shared = nest.sharing
        across = self._across
        kinds = ["const ", "", *["const "] * len(self.beside)]
        with out.block(""):
            for kind, name, pointer, array in zip(
                kinds, self._names, self._pointers, [self.x, self.y, *self.beside], strict=True
            ):
                out(f"{kind}{array.stored or array.ctype} *const {name}_all = {pointer};")
            others = [k for k in range(len(across.extents)) if k != self._column]
            heads = [head(f"i{k}", across.extents[k], shared=shared and k == others[0]) for k in others]
            if self._columns:
                heads.append(self._blocks(shared=shared and not others))
            elif shared and not others:
                heads.append("if (m->me == 0)")
            indices = [f"i{k}" if k != self._column else "block" for k in range(len(across.extents))]
            with nest.unshared(), out.nested(heads):
                for kind, name, array, strided in zip(
                    kinds, self._names, [self.x, self.y, *self.beside], across.arrays, strict=True
                ):
                    start = strided._replace(pointer=f"{name}_all").at(indices)
                    out(f"{kind}{array.stored or array.ctype} *const {name} = &{start};")
                if self._columns:
                    out(f"const int width = smaller({WIDTH}, {across.extents[self._column]} - block);")
                yield

    @property
    def _names(self) -> list[str]:
        return ["x", "y", *(f"z{k}" for k in range(len(self.beside)))]

    def _blocks(self, *, shared: bool) -> str:
        """The head of the loop over blocks of fibres."""
        count = self._across.extents[self._column]
        if not shared:
            return f"for (int block = 0; block < {count}; block += {WIDTH})"
        blocks = -(-count // WIDTH)
        return (
            f"for (int block = FIRST({blocks}) * {WIDTH}; "
            f"block < smaller(STOP({blocks}) * {WIDTH}, {count}); block += {WIDTH})"
        )

    @contextmanager
    def _each_unevenly(self) -> Iterator[None]:
        nest = self.nest
        rank = len(self.x.shape)
        if self.reduced:
            with nest.elements(self.result) as at:
                self._at = at
                self._index = ["0" if axis in self.axes else at[self._place(axis)] for axis in range(rank)]
                yield
            return
        with nest.each(self.result, [axis for axis in range(rank) if axis not in self.axes]) as indices:
            self._at = self._index = [indices.get(axis, "0") for axis in range(rank)]
            yield

    def variable(self, ctype: str, name: str, start: str) -> None:
        """A variable of each fibre; `start` may name others, as `self[name]` does."""
        if self._columns:
            self.nest.out(f"{ctype} {name}[{WIDTH}];")
            self.set(name, start)
        else:
            self.nest.out(f"{ctype} {name} = {start};")

    def set(self, name: str, value: str) -> None:
        """Give a variable of each fibre another value."""
        with self.once():
            self.nest.out(f"{self[name]} = {value};")

    @contextmanager
    def once(self) -> Iterator[None]:
        """Something for each fibre."""
        with self.nest.out.nested(["EACH for (int c = 0; c < width; c++)"] if self._columns else []):
            yield

    @contextmanager
    def fold(self, **reductions: str) -> Iterator[str]:
        """Loops over the elements of a fibre, each a C expression, whose turns go into variables.

        `reductions`: variable -> how, as OpenMP has it: + * max min |.
        """
        clauses = " ".join(f"reduction({how}: {name})" for name, how in reductions.items())
        # sums of doubles are rounded in the order that they come in
        ordered = self.x.dtype == "float64" and {*reductions.values()} & {"+", "*"}
        with self._turns("" if ordered else f"EACH_FOLDED({clauses})") as elements:
            yield elements[0]

    @contextmanager
    def elements(self) -> Iterator[list[str]]:
        """Loops over the elements of a fibre: those of the operand, the result and what is beside it."""
        with self._turns("EACH", writing=True) as elements:
            yield elements

    @contextmanager
    def _turns(self, vectors: str, *, writing: bool = False) -> Iterator[list[str]]:
        nest = self.nest
        if not self.even:
            with self._turns_unevenly(writing=writing) as index:
                arrays = [self.x, *([self.y] if writing else []), *self.beside]
                yield [array.at(array.broadcast(index, self.x.shape)) for array in arrays]
            return
        inside = self._inside
        indices = [f"j{k}" for k in range(len(inside.extents))]
        heads = [head(i, extent, shared=False) for i, extent in zip(indices, inside.extents, strict=True)]
        if self._columns:
            heads.append("EACH for (int c = 0; c < width; c++)")
        elif heads:
            heads[-1] = f"{vectors} {heads[-1]}".lstrip()
        elements: list[str] = []
        for k, array in enumerate(inside.arrays):
            if self._columns:
                across = self._across.arrays[k].steps[self._column]
                array = Strided(array.pointer, (*array.steps, across), array.ctype)
            elements.append(array.at([*indices, *(["c"] if self._columns else [])]))
        with nest.out.nested(heads):
            yield elements if writing else [elements[0], *elements[2:]]

    @contextmanager
    def _turns_unevenly(self, *, writing: bool) -> Iterator[list[str]]:
        loops = of_fibre(self.nest, self.axes, self._index, self.result)
        with loops if writing else along(self.nest, self.x, self.axes, self._index) as index:
            yield index

    # -- results of fibres -----------------------------------------------------------------------------------

    def start(self, value: str) -> str:
        """C expression: what a fold begins with, or what earlier parts of the fibre came to."""
        if self.even:
            return value
        return self.nest.begin(self._at, value)

    @contextmanager
    def complete(self, name: str) -> Iterator[str]:
        """Something for each fibre whose fold is complete: the element of the result."""
        if not self.even:
            with self.nest.end(self._at, name):
                yield self.y.at(self._at)
            return
        with self.once():
            step = self._across.arrays[1].steps[self._column] if self._columns else 0
            yield f"y[c * {step}]" if self._columns and step != 1 else "y[c]" if self._columns else "y[0]"
