"""What the loops of one operator are made from: its operands and results as arrays, and loops over the elements that are to be made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np

from codegen.blob import Blob
from codegen.layout import CTYPES, Layout
from codegen.source import Unsupported
from codegen.writer import Writer
from lfopt.ir import row_axis
from lfopt.ops import Call


@dataclass(frozen=True, slots=True)
class Array:
    """An operand or a result: where its elements lie. Indices are C expressions of type int."""

    layout: Layout  # of the map behind it
    shape: tuple[int, ...]  # as the operator sees it; a view may have another than the map
    pointer: str  # C expression: address of the first element
    slots: int = 0  # of the ring that its rows lie in; 0: it is there as a whole
    slot: int = 0  # elements from one slot to the next

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
            flat = _sum((i, step) for i, step in zip(index, _steps(self.shape), strict=True))
            if self.layout.onnx and not self.slots:
                return flat
            index = [_digit(flat, step, extent) for step, extent in zip(_steps(self.layout.shape), self.layout.shape, strict=True)]
        terms = [*zip(index, self.layout.strides, strict=True)]
        if self.slots:
            axis = row_axis(self.layout.shape)
            if axis is not None:
                terms[axis] = ("0" if self.slots == 1 else f"({index[axis]}) % {self.slots}", self.slot)
        return _sum((i, step) for (i, step), extent in zip(terms, self.layout.shape, strict=True) if extent > 1)

    def broadcast(self, index: Sequence[str], shape: Sequence[int]) -> list[str]:
        """The index of the element that meets the one at `index` of a larger shape, by NumPy's rules."""
        return ["0" if extent == 1 else i for i, extent in zip(index[len(shape) - len(self.shape) :], self.shape, strict=True)]


def _steps(shape: Sequence[int]) -> list[int]:
    return [prod(shape[k + 1 :]) for k in range(len(shape))]


def _digit(flat: str, step: int, extent: int) -> str:
    return "0" if extent == 1 else f"({flat}) / {step} % {extent}"


def _sum(terms: Iterator[tuple[str, int]]) -> str:
    """Sum of products in C."""
    found = [f"({i}) * {step}" if step != 1 else f"({i})" for i, step in terms if i != "0" and step]
    return " + ".join(found) or "0"


class Nest:
    """One operator, to be printed as loops into a function `name(m, r)`.

    The function makes row r of every result, or, if `whole`, all rows, whatever r is. With several threads, all of them run it: the outermost loop of
    `each` is shared out among them; what cannot be shared out stands in `alone`.
    """

    def __init__(
        self, out: Writer, call: Call, operands: Mapping[int, Array], results: Sequence[Array], blob: Blob, *, whole: bool, threads: int
    ) -> None:
        self.out, self.call, self.blob, self.whole = out, call, blob, whole
        self.results = results
        self._operands = operands
        self._threads = threads
        self._sharing = threads > 1  # whether the next loop is shared out

    def operand(self, index: int) -> Array:
        """An operand that is a map, or a constant with its values."""
        if index in self._operands:
            return self._operands[index]
        value, tensor = self.call.values[index], self.call.tensors[index]
        if value is None or tensor is None:
            raise self.unsupported(f"input {index} that is absent, or has no values", "maps and constants with values")
        if tensor.dtype not in CTYPES:
            raise self.unsupported(f"input {index} of type {tensor.dtype}", ", ".join(CTYPES))
        return Array(Layout(tensor, tuple(range(value.ndim))), value.shape, self.constant(value))

    def constant(self, values: np.ndarray) -> str:
        """C expression: address of values of any type, in C order."""
        kind = CTYPES[values.dtype.name]
        pointer = self.blob.add(values, values.dtype.name)
        return pointer if kind == "float" else f"((const {kind} *){pointer})"

    def has(self, index: int) -> bool:
        """Whether an optional operand is there."""
        return self.call.has(index)

    def unsupported(self, found: str, accepted: str) -> Unsupported:
        """The error for what the loops do not do."""
        operator = self.call.operator
        return Unsupported(f"node {operator.name!r} ({operator.kind}): found {found}; generated C accepts {accepted}")

    # -- loops -----------------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def each(self, result: int = 0, axes: Sequence[int] | None = None, name: str = "i") -> Iterator[dict[int, str]]:
        """Loops over the elements of a result that are to be made, or over some of its axes alone: axis -> index.

        Loops follow the order in which elements lie. With all axes, `[*found.values()]` is not an index: see `elements`.
        """
        layout = self.results[result].layout
        axis = None if self.whole else row_axis(layout.shape)
        found: dict[int, str] = {}
        heads: list[str] = []
        for k in layout.order if axes is None else [k for k in layout.order if k in axes]:
            extent = layout.shape[k]
            if k == axis:
                found[k] = "r"
                if extent < self.call.rows_out:
                    heads.append(f"if (r < {extent})")
            elif extent == 1:
                found[k] = "0"
            else:
                found[k] = f"{name}{k}"
                heads.append(self._head(found[k], extent))
        if not heads and self._sharing:  # one element
            heads.append("if (m->me == 0)")
        before, self._sharing = self._sharing, False
        with self._nested(heads):
            yield found
        self._sharing = before

    @contextmanager
    def elements(self, result: int = 0, name: str = "i") -> Iterator[list[str]]:
        """Loops over all elements of a result that are to be made: their index."""
        with self.each(result, name=name) as found:
            yield [found[k] for k in range(len(found))]

    @contextmanager
    def over(self, extents: Sequence[int | str], name: str) -> Iterator[list[str]]:
        """Loops over anything else, by every thread that comes here: indices `name`0, `name`1, ..."""
        found = ["0" if extent == 1 else f"{name}{k}" for k, extent in enumerate(extents)]
        heads = [f"for (int {i} = 0; {i} < {extent}; {i}++)" for i, extent in zip(found, extents, strict=True) if i != "0"]
        with self._nested(heads):
            yield found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """What one thread does while the others wait for the end of the operator."""
        before, self._sharing = self._sharing, False
        with self._nested(["if (m->me == 0)"] if before else []):
            yield
        self._sharing = before

    def _head(self, index: str, extent: int) -> str:
        if not self._sharing:
            return f"for (int {index} = 0; {index} < {extent}; {index}++)"
        self._sharing = False
        return f"for (int {index} = FIRST({extent}); {index} < STOP({extent}); {index}++)"

    @contextmanager
    def _nested(self, heads: Sequence[str]) -> Iterator[None]:
        if not heads:
            with self.out.block(""):  # variables stay inside
                yield
            return
        with self.out.block(heads[0]):
            if len(heads) == 1:
                yield
            else:
                with self._nested(heads[1:]):
                    yield
