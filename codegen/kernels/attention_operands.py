"""Operands and result of the kernel of an attention.

Matrices of every head, and the operators on scores as statements on vectors of queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from codegen.epilogue import arity, expression, number
from codegen.kernels.fused_kernel import FusedKernel
from codegen.layout import MapLayout, tensor_of
from codegen.writer import CModule
from lfopt.ops import Call
from lfopt.ops.attention import Attention


@dataclass(frozen=True)
class HeadMatrix:
    """A matrix for every head: how its elements lie."""

    pointer: str  # C expression for the first; of a constant ""
    ctype: str
    # (extent, elements from one index to the next) of every axis before the last two
    heads: tuple[tuple[int, int], ...]
    down: int  # elements from one row to the next
    across: int  # and from one column
    values: np.ndarray | None = None  # of a constant

    def place(self, out: CModule) -> str:
        """C expression for the first element."""
        if self.values is None:
            return self.pointer
        return out.constant(self.values)

    @property
    def first(self) -> str:
        """C expression: elements before those of head `s`."""
        terms: list[str] = []
        inside = prod(extent for extent, _ in self.heads)
        for extent, step in self.heads:
            outermost = inside == prod(e for e, _ in self.heads)
            inside = inside // extent
            if step:
                terms.append(
                    f"{'s' if inside == 1 else f's / {inside}'}{'' if outermost else f' % {extent}'} * {step}"
                )
        return " + ".join(terms) or "0"


@dataclass(frozen=True)
class ScoreOperand:
    """An operand of an operator on scores. Rows are queries, columns are keys."""

    name: str
    matrix: HeadMatrix
    # whether it is transposed beside the scores; if not, it is (keys, queries) already, or the same for all
    # queries
    turned: bool

    @property
    def parameter(self) -> str:
        """Parameter of the functions of a tile: where the operand begins for the head.

        For the tile, where it was transposed at compile time.

        Where it was turned at compile time, where it begins for the tile.
        """
        return f"const {self.matrix.ctype} *{self.name}"

    @property
    def beside(self) -> str:
        """Parameter of the functions that run through a block of keys."""
        return f"const {'float' if self.turned else self.matrix.ctype} *{self.name}"

    def step(self, pitch: int) -> int:
        """Elements from one key to the next, as such a function finds them."""
        if self.turned:
            return pitch if self.matrix.across else 0
        return self.matrix.across

    def vector(self, pitch: int, offset: int, key: str) -> str:
        """C expression for a vector of queries at a key."""
        at = f"{key} * {self.step(pitch)}"
        if self.matrix.down == 0:
            return f"SPLAT_@((float){self.name}[{at}])"
        return f"*(const u@ *)({self.name} + {at} + {offset})"


@dataclass(frozen=True)
class Scores:
    """The operators on scores before the softmax, as statements on vectors of queries."""

    scale: float  # of the products, before all others
    lines: tuple[tuple[str, str], ...]  # (C variable, expression) in order; `x` is the product
    operands: tuple[ScoreOperand, ...]
    guard: str  # condition on the sum `l` of weights under which a query has 0 as its result; "": never

    @property
    def turned(self) -> list[ScoreOperand]:
        """Operands that are transposed as they are read."""
        return [operand for operand in self.operands if operand.turned]

    @property
    def binary(self) -> bool:
        """Whether tiles hold scores times log2 e, so that weights are powers of two.

        That costs nothing where scores are products alone.
        """
        return not self.lines

    @property
    def result(self) -> str:
        """The C variable that holds a score in the end."""
        if self.lines:
            return self.lines[-1][0]
        return "x"

    def statements(self, pitch: int, offset: int, key: str) -> list[str]:
        """C statements that make a score, at a key, of the product `x`; @: lanes of a vector."""
        given = [f"v@ {operand.name}v = {operand.vector(pitch, offset, key)};" for operand in self.operands]
        return given + [f"v@ {name} = {value};" for name, value in self.lines]


class AttentionOperands:
    """Operands and result of an attention, (heads, queries or keys, elements), and its scores."""

    def __init__(self, fused: FusedKernel, form: Attention, layouts: Sequence[MapLayout]) -> None:
        """`fused`: of the product with the values; `layouts`: of all maps.

        Raises Unsupported for operands that are there in no order of axes.
        """
        self.fused = fused
        self.form = form
        self.layouts = layouts
        self.heads = prod(form.mixing.result[:-2])
        self.queries = form.mixing.result[-2]
        self.keys = form.keys
        self.depth = form.product.shape(0)[-1]
        self.width = form.mixing.result[-1]
        self.a, self.b = self._operand(form.product, 0), self._operand(form.product, 1)
        self.v = self._operand(form.mixing, 1)
        written = fused.layouts(fused.result)
        down, across = written.strides[-2:]
        self.y = HeadMatrix(
            fused.address(fused.result, "0"),
            fused.stored(fused.result).ctype,
            _stack(written, written.shape),
            down,
            across,
        )
        self.scores = self._before()

    @property
    def padded(self) -> int:
        """Queries, in whole vectors."""
        lanes = self.fused.target.lanes[0]
        return -(-self.queries // lanes) * lanes

    def _operand(self, call: Call, index: int) -> HeadMatrix:
        """An operand of a product, or of an operator on scores, that is a map or a constant as it is."""
        tensor = tensor_of(call, index)
        value = call.values[index]
        if value is not None:
            seen = MapLayout(tensor, tuple(range(len(tensor.shape))))
            return replace(_matrix(call, seen, "", "float"), values=value.astype(np.float32))
        flow = self.fused.flow
        m = next(o.map for o in flow.operands[flow.calls.index(call)] if o.input == index)
        seen = self.layouts[m].seen(tensor)
        if seen is None:
            raise self.fused.unsupported(
                f"a view of {list(self.layouts[m].shape)} as {list(tensor.shape)}",
                "views that keep axes apart",
            )
        return _matrix(call, seen, self.fused.address(m, "0"), seen.ctype)

    def _before(self) -> Scores:
        """The operators on scores; what a mask does that hides runs of keys is left to the window."""
        form = self.form
        scale = 1.0
        lines = list[tuple[str, str]]()
        operands = list[ScoreOperand]()
        last = form.product
        value = "x"
        for call in form.before:
            if form.mask and form.mask in call.operator.inputs:
                last = call
                continue
            mine = next(k for k in range(arity(call)) if self._made(call, k) == last.operator.outputs[0])
            other = call.values[1 - mine] if arity(call) == 2 else None
            if (
                value == "x"
                and other is not None
                and other.size == 1
                and (call.operator.kind == "Mul" or (call.operator.kind == "Div" and not mine))
            ):
                factor = float(other.reshape(-1)[0])
                scale = scale * factor if call.operator.kind == "Mul" else scale / factor
            else:
                terms = [value if k == mine else self._term(call, k, operands) for k in range(arity(call))]
                lines.append((f"y{len(lines)}", expression(call, terms)))
                value = lines[-1][0]
            last = call
        guard = {"": "", "Equal": "l == 0.0f", "IsNaN": "l == 0.0f || l != l"}[form.guard]
        return Scores(scale, tuple(lines), tuple(operands), guard)

    def _made(self, call: Call, index: int) -> str:
        """The tensor that an operand is a view of."""
        name = call.operator.inputs[index]
        while name in self.form.views:
            name = self.form.views[name]
        return name

    def _term(self, call: Call, index: int, operands: list[ScoreOperand]) -> str:
        """C expression for an operand that is no score."""
        value = call.values[index]
        if value is not None and value.size == 1:
            return f"SPLAT_@({number(float(value.reshape(-1)[0]))})"
        name = f"x{len(operands)}"
        if value is None:
            matrix = self._operand(call, index)
            operands.append(ScoreOperand(name, matrix, turned=matrix.down > 0))
        else:
            operands.append(ScoreOperand(name, self._turned(call, value), turned=False))
        return f"{name}v"

    def _turned(self, call: Call, value: np.ndarray) -> HeadMatrix:
        """A constant, (..., queries, keys), as tiles read it: (..., keys, queries), padded with zeros."""
        full = (
            value.reshape((1,) * (len(call.result) - value.ndim) + value.shape)
            .astype(np.float32)
            .swapaxes(-1, -2)
        )
        keys, queries = full.shape[-2:]
        if queries > 1:
            full = np.pad(full, [(0, 0)] * (full.ndim - 1) + [(0, self.padded - queries)])
        steps = [0 if extent == 1 else prod(full.shape[k + 1 :]) for k, extent in enumerate(full.shape[:-2])]
        heads = tuple(zip(call.result[:-2], steps, strict=True))
        return HeadMatrix("", "float", heads, int(queries > 1), full.shape[-1] if keys > 1 else 0, full)


def _matrix(call: Call, seen: MapLayout, pointer: str, ctype: str) -> HeadMatrix:
    *_, down, across = (
        0,
        0,
        *(0 if extent == 1 else step for extent, step in zip(seen.shape, seen.strides, strict=True)),
    )
    return HeadMatrix(pointer, ctype, _stack(seen, call.result), down, across)


def _stack(seen: MapLayout, result: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(extent, elements from one index to the next) of every axis of a result before its last two.

    0 elements where an operand is broadcast.
    """
    rank = len(result)
    axes = list[tuple[int, int]]()
    for axis, extent in enumerate(result[:-2]):
        at = axis - rank + len(seen.shape)
        axes.append((extent, seen.strides[at] if at >= 0 and seen.shape[at] > 1 else 0))
    return tuple(axes)
