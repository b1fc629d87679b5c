"""Products summed over labelled axes: Gemm, MatMul, Einsum.

Element by element in double, or in vectors where one axis of the result allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from codegen.layout import MapLayout
from codegen.loops.nest import Array, Nest
from codegen.loops.strided import Strided, StridedLoops, print_copy
from codegen.loops.sums import Sums, double
from codegen.writer import CModule
from lfopt.ir import Tensor, row_axis
from lfopt.ops.parameters import einsum_terms

VECTORS = 8  # sums that a tile holds
MOST_PACKED = 1 << 22  # floats of an operand that is copied to scratch memory
LINE = 16  # floats of a cache line


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand whose axes have labels. An axis of one element meets all of the others of its label."""

    array: Array
    labels: tuple[str, ...]

    def index(self, at: Mapping[str, str]) -> list[str]:
        """Index of the element where the labels have these indices."""
        return [
            "0" if extent == 1 else at[label]
            for label, extent in zip(self.labels, self.array.shape, strict=True)
        ]

    def element(self, at: Mapping[str, str]) -> str:
        """C expression: the element where the labels have these indices."""
        return self.array.at(self.index(at))

    def step(self, label: str) -> int | None:
        """Elements from one index of a label to the next; None where that differs."""
        steps = [self.array.step(axis) for axis, own in enumerate(self.labels) if own == label]
        return None if None in steps else sum(step for step in steps if step is not None)


Finish = Callable[[str, Sequence[str]], str]  # (sum, index of the result) -> element


def products(
    nest: Nest, factors: Sequence[Factor], free: Sequence[str], finish: Finish | None = None
) -> None:
    """Elements of the result, of axes `free`: products of all factors, summed over the other labels."""
    extents: dict[str, int] = {}
    for factor in factors:
        for label, extent in zip(factor.labels, factor.array.shape, strict=True):
            extents[label] = extent if extents.get(label, 1) == 1 else extents[label]
    summed = [label for label in extents if label not in free]
    y = nest.results[0]
    axis = y.layout.order[-1] if y.shape else 0
    if _can_be_vectors(nest, axis):
        apart = [factor for factor in factors if factor.step(free[axis]) not in (0, 1)]
        if not apart or (nest.whole and all(_can_be_packed(nest, factor, free[axis]) for factor in apart)):
            side_by_side = _packed(nest, factors, free[axis])
            _vectors(nest, side_by_side, free, axis, {label: extents[label] for label in summed}, finish)
            return
    out, sums = nest.out, Sums.of(y.dtype)
    with nest.elements() as at:
        out(f"{sums.ctype} sum = {nest.begin(at, '0')};")
        with nest.folded(
            [extents[label] for label in summed], "k", summed.index("k") if "k" in summed else None
        ) as inner:
            where = {**dict(zip(free, at, strict=True)), **dict(zip(summed, inner, strict=True))}
            out(f"sum += {' * '.join(sums.wide(factor.element(where)) for factor in factors)};")
        with nest.end(at, "sum"):
            out(f"{y.at(at)} = {finish('sum', at) if finish else sums.narrow('sum')};")


def _can_be_vectors(nest: Nest, axis: int) -> bool:
    """Whether vectors of neighbours along an axis of the result can be made."""
    y = nest.results[0]
    if (
        not nest.lanes
        or not y.shape
        or y.dtype != "float32"
        or y.shape[axis] < nest.lanes
        or (not nest.whole and axis == row_axis(y.shape))
    ):
        return False
    return y.step(axis) == 1


def _can_be_packed(nest: Nest, factor: Factor, label: str) -> bool:
    """Whether a factor may be copied to scratch memory with one of its labels innermost."""
    array = factor.array
    return (
        isinstance(nest.out, CModule)
        and factor.labels.count(label) == 1
        and array.dtype == "float32"
        and prod(array.shape) <= MOST_PACKED
        and all(array.step(axis) is not None for axis in range(len(array.shape)))
    )


def _packed(nest: Nest, factors: Sequence[Factor], label: str) -> list[Factor]:
    """The factors, with neighbours along a label of the result side by side: copies where they were not."""
    apart = [k for k, factor in enumerate(factors) if factor.step(label) not in (0, 1)]
    if not apart:
        return [*factors]
    assert isinstance(nest.out, CModule), "see `_can_be_packed`"
    sizes = [-(-prod(factors[k].array.shape) // LINE) * LINE for k in apart]
    nest.out(f"float *const packed = {nest.out.scratch(sum(sizes))};")
    chosen, start = [*factors], 0
    for k, size in zip(apart, sizes, strict=True):
        array, inner = factors[k].array, factors[k].labels.index(label)
        order = (*(axis for axis in range(len(array.shape)) if axis != inner), inner)
        layout = MapLayout(Tensor(f"packed{k}", array.shape, "float32"), order)
        copied = Array(layout, array.shape, f"packed + {start}")
        strides = [[one.step(axis) or 0 for axis in order] for one in (copied, array)]
        first = array.at(["0"] * len(array.shape))
        loops = StridedLoops(
            tuple(array.shape[axis] for axis in order),
            (
                Strided(copied.pointer, tuple(strides[0]), "float"),
                Strided(f"&{first}", tuple(strides[1]), "float"),
            ),
        )
        print_copy(nest.out, loops, 4, shared=False)
        chosen[k] = Factor(copied, factors[k].labels)
        start += size
    return chosen


def _vectors(
    nest: Nest,
    factors: Sequence[Factor],
    free: Sequence[str],
    axis: int,
    summed: Mapping[str, int],
    finish: Finish | None,
) -> None:
    out, y, lanes = nest.out, nest.results[0], nest.lanes
    vectors, rest = divmod(y.shape[axis], lanes)
    whole, some = divmod(vectors, VECTORS)
    tile = partial(_tile, nest, factors, free, axis, summed)
    with nest.each(axes=[k for k in range(len(y.shape)) if k != axis]) as indices:
        at = [indices.get(k, "v") for k in range(len(y.shape))]
        if whole:
            with out.block(f"for (int v = 0; v < {whole * VECTORS * lanes}; v += {VECTORS * lanes})"):
                tile(at, VECTORS, lanes)
        if some:
            with out.block(""):
                out(f"const int v = {whole * VECTORS * lanes};")
                tile(at, some, lanes)
        if rest:
            with out.block(f"for (int v = {vectors * lanes}; v < {y.shape[axis]}; v++)"):
                tile(at, 1, 1)
        if finish:
            with out.block(f"for (int v = 0; v < {y.shape[axis]}; v++)"):
                out(f"{y.at(at)} = {finish(f'(double){y.at(at)}', at)};")


def _tile(
    nest: Nest,
    factors: Sequence[Factor],
    free: Sequence[str],
    axis: int,
    summed: Mapping[str, int],
    at: Sequence[str],
    count: int,
    lanes: int,
) -> None:
    """So many vectors of the result, from index `v` on."""
    out, y = nest.out, nest.results[0]
    out(f"v{lanes} {', '.join(f's{t} = SPLAT_{lanes}(0.0f)' for t in range(count))};")
    with nest.over([*summed.values()], "k") as inner:
        where = {**dict(zip(free, at, strict=True)), **dict(zip(summed, inner, strict=True))}
        same = [factor for factor in factors if factor.step(free[axis]) == 0]
        if same:
            out(f"const v{lanes} a = SPLAT_{lanes}({' * '.join(factor.element(where) for factor in same)});")
        terms = [
            f"*(const u{lanes} *)(&{factor.element(where)} + {{}})"
            for factor in factors
            if factor not in same
        ]
        for t in range(count):
            out(
                f"s{t} += "
                f"{' * '.join([*(['a'] if same else []), *(term.format(t * lanes) for term in terms)])};"
            )
    out.all(f"*(u{lanes} *)(&{y.at(at)} + {t * lanes}) = s{t};" for t in range(count))


def operand(nest: Nest, index: int, labels: Sequence[str], last: str) -> Factor:
    """An operand with labels. A constant lies with its axis of label `last`, if it has one, innermost."""
    value, tensor = nest.call.values[index], nest.call.tensors[index]
    if index in nest.maps or value is None or tensor is None or last not in labels:
        return Factor(nest.operand(index), tuple(labels))
    inner = list(labels).index(last)
    order = (*(axis for axis in range(value.ndim) if axis != inner), inner)
    return Factor(
        Array(MapLayout(tensor, order), value.shape, nest.constant(value.transpose(order))), tuple(labels)
    )


def _last(nest: Nest, free: Sequence[str]) -> str:
    """Label of the axis of the result that lies innermost."""
    return free[nest.results[0].layout.order[-1]] if free else ""


def gemm(nest: Nest) -> None:
    """The loops of Gemm: alpha A' B' + beta C."""
    call, y = nest.call, nest.results[0]
    alpha, beta, sums = call.attribute("alpha", 1.0), call.attribute("beta", 1.0), Sums.of(y.dtype)
    c = nest.operand(2) if nest.call.has(2) and beta != 0.0 else None

    def finish(total: str, at: Sequence[str]) -> str:
        shift = c.at(c.broadcast(at, y.shape)) if c else ""
        if alpha == beta == 1.0:
            return sums.narrow(f"({total} + {sums.wide(shift)})") if c else sums.narrow(total)
        return sums.rounded(
            f"({double(alpha)} * {sums.real(total)}{f' + {double(beta)} * (double){shift}' if c else ''})"
        )

    last = _last(nest, "mn")
    a = operand(nest, 0, "km" if call.attribute("transA", 0) else "mk", last)
    b = operand(nest, 1, "nk" if call.attribute("transB", 0) else "kn", last)
    products(nest, [a, b], "mn", finish if c or alpha != 1.0 else None)


def matmul(nest: Nest) -> None:
    """NumPy's product of stacks of matrices; an operand of one axis is a row, or a column."""
    left, right = nest.call.shape(0), nest.call.shape(1)
    stacks = [f"b{k}" for k in reversed(range(max(len(left), len(right), 2) - 2))]
    a = [*stacks[len(stacks) - max(len(left) - 2, 0) :], *(["m"] if len(left) > 1 else []), "k"]
    b = [*stacks[len(stacks) - max(len(right) - 2, 0) :], "k", *(["n"] if len(right) > 1 else [])]
    free = [*stacks, *(["m"] if len(left) > 1 else []), *(["n"] if len(right) > 1 else [])]
    last = _last(nest, free)
    products(nest, [operand(nest, 0, a, last), operand(nest, 1, b, last)], free)


def einsum(nest: Nest) -> None:
    """Products of all operands, summed over the labels that the result lacks.

    The axes that dots stand for are counted from the right.
    """
    terms, result = einsum_terms(nest.call)
    hidden = [
        len(nest.call.shape(k)) - len(term.replace("...", "")) if "..." in term else 0
        for k, term in enumerate(terms)
    ]
    labels = [_labels(term, count) for term, count in zip(terms, hidden, strict=True)]
    free = _labels(result, max(hidden))
    last = _last(nest, free)
    products(nest, [operand(nest, k, axes, last) for k, axes in enumerate(labels)], free)


def _labels(term: str, hidden: int) -> list[str]:
    """One label for each axis.

    >>> _labels("i...j", 2)
    ['i', '.1', '.0', 'j']
    """
    before, dots, after = term.partition("...")
    return [*before, *(f".{k}" for k in reversed(range(hidden if dots else 0))), *after]


LOOPS: dict[str, Callable[[Nest], None]] = {"Einsum": einsum, "Gemm": gemm, "MatMul": matmul}
