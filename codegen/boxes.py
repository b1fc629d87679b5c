"""Arrays of counting code, and the loops of an operator on a box of its results.

Elements lie in pieces of the buffer, or, in flight, in registers as far as the chip is concerned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from codegen.blob import Blob
from codegen.loops.nest import Array, Nest
from codegen.writer import Writer
from lfopt.ir import Span
from lfopt.ops import Call


@dataclass(frozen=True, slots=True)
class OnChip(Array):
    """An array in the buffer, every element of which is looked for."""

    def at(self, index: Sequence[str]) -> str:
        """The element at an index, as a C expression; `pointer` is the function that finds it."""
        indices = self.behind(index) if self.shape != self.layout.shape else index
        return f"(*{self.pointer}({', '.join(('m', *indices))}))"


@dataclass(frozen=True, slots=True)
class InFlight(Array):
    """One box of a result in flight: another operator takes it element by element as it is made."""

    def at(self, index: Sequence[str]) -> str:
        """The element at an index of the box `b0`; `pointer` is its first byte."""
        where = "0"
        for axis, i in enumerate(index):
            where = f"({where}) * (b0->stop[{axis}] - b0->first[{axis}]) + ({i}) - b0->first[{axis}]"
        return f"(({self.ctype} *)(void *){self.pointer})[{where}]"


class OnBoxes(Nest):
    """The loops of an operator on a box of each of its results: `b0`, `b1`, ... in C.

    `sums`: what is held of the first result while what is folded comes in parts: `from` up to `to` in C;
    `first` and `last` say whether it is the first part, or the last. None: it comes as a whole.
    """

    evenly = False

    def __init__(
        self,
        out: Writer,
        call: Call,
        operands: Mapping[int, Array],
        results: Sequence[Array],
        blob: Blob,
        sums: Array | None,
    ) -> None:
        super().__init__(out, call, operands, results, blob, whole=True, threads=1)
        self.sums = sums

    def folded(
        self, extents: Sequence[int | str], name: str, along: int | None
    ) -> AbstractContextManager[list[str]]:
        """Loops over a part of what is folded."""
        if self.sums is None or along is None:
            return self.over(extents, name)
        return self.over(extents, name, (along, "from", f"smaller(to, {extents[along]})"))

    def begin(self, at: Sequence[str], start: str) -> str:
        """C expression: what the sum of an element begins with."""
        if self.sums:
            return f"(first ? {start} : {self.sums.at(at)})"
        return start

    @contextmanager
    def end(self, at: Sequence[str], value: str) -> Iterator[None]:
        """A block for what is done with a sum that is complete."""
        if self.sums is None:
            yield
            return
        with self.out.block("if (!last)"):
            self.out(f"{self.sums.at(at)} = ({self.sums.ctype}){value};")
        with self.out.block("else"):
            yield

    def ends(self, axis: int) -> tuple[str, str]:
        """C expressions: where the box of the first result begins and ends along an axis."""
        return f"b0->first[{axis}]", f"b0->stop[{axis}]"

    def wanted(self, at: Mapping[int, str], result: int = 0) -> list[str]:
        """C conditions, all of which hold inside the box of a result."""
        return [
            f"{i} {test} b{result}->{end}[{axis}]"
            for axis, i in at.items()
            for test, end in ((">=", "first"), ("<", "stop"))
        ]

    @contextmanager
    def each(
        self,
        result: int = 0,
        axes: Sequence[int] | None = None,
        name: str = "i",
        spans: Mapping[int, Span] | None = None,
    ) -> Iterator[dict[int, str]]:
        """Loops over the elements of the box of a result."""
        indices: dict[int, str] = {}
        heads: list[str] = []
        for k in range(len(self.results[result].shape)) if axes is None else sorted(axes):
            indices[k], first, stop = f"{name}{k}", f"b{result}->first[{k}]", f"b{result}->stop[{k}]"
            if spans and k in spans:
                first = f"larger({first}, {spans[k][0]})"
                stop = f"smaller({stop}, {spans[k][1]})"
            heads.append(f"for (int {name}{k} = {first}; {name}{k} < {stop}; {name}{k}++)")
        with self.out.nested(heads):
            yield indices
