"""Products summed over labelled axes: Gemm, MatMul, Einsum.

Element by element in double, or in vectors where one axis of the result allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from codegen.kernels.tiles import added
from codegen.layout import MapLayout
from codegen.loops.nest import Array, Nest
from codegen.loops.strided import Strided, StridedLoops, print_copy
from codegen.loops.sums import Sums, double
from codegen.writer import CModule
from lfopt.ir import Tensor, row_axis
from lfopt.ops.parameters import einsum_terms

VECTORS = 8  # sums that a tile of one row holds
ROWS, VECTORS_OF_ROWS = 6, 4  # of a tile of several rows
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
        if None in steps:
            return None
        return sum(step for step in steps if step is not None)


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
    out = nest.out
    sums = Sums.of(y.dtype)
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
    chosen = [*factors]
    start = 0
    for k, size in zip(apart, sizes, strict=True):
        array = factors[k].array
        inner = factors[k].labels.index(label)
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
        print_copy(nest.out, loops, shared=False)
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
    """Tiles of the result: vectors along an axis, by rows along another, where one is shared by factors."""
    out = nest.out
    y = nest.results[0]
    across = _rows_axis(nest, factors, free, axis)
    tile = partial(_tile, nest, factors, free, axis, summed)
    rows = 1 if across is None else y.shape[across]
    most = VECTORS if across is None else VECTORS_OF_ROWS
    skipped = (axis,) if across is None else (axis, across)
    with nest.each(axes=[k for k in range(len(y.shape)) if k not in skipped]) as indices:
        at = [indices.get(k, "v" if k == axis else "q") for k in range(len(y.shape))]
        for start, count, lanes, turns in _pieces(y.shape[axis], nest.lanes, most):
            size = count * lanes
            head = f"for (int v = {start}; v < {start + turns * size}; v += {size})"
            with out.nested([head]):
                if across is None:
                    tile(at, count, lanes, [at])
                    continue
                whole = rows // ROWS * ROWS
                for first, stop, step in ((0, whole, ROWS), (whole, rows, rows - whole)):
                    if stop > first:
                        with out.block(f"for (int q = {first}; q < {stop}; q += {step})"):
                            tile(at, count, lanes, [_moved(at, across, k) for k in range(step)])
        if finish:
            heads = [f"for (int v = 0; v < {y.shape[axis]}; v++)"]
            if across is not None:
                heads.insert(0, f"for (int q = 0; q < {rows}; q++)")
            with out.nested(heads):
                out(f"{y.at(at)} = {finish(f'(double){y.at(at)}', at)};")


def _moved(at: Sequence[str], axis: int, by: int) -> list[str]:
    return [f"({i} + {by})" if k == axis and by else i for k, i in enumerate(at)]


def _rows_axis(nest: Nest, factors: Sequence[Factor], free: Sequence[str], axis: int) -> int | None:
    """The axis of the result along which the factors that have vectors stay the same; None: there is none."""
    y = nest.results[0]
    vectors = [factor for factor in factors if factor.step(free[axis]) != 0]
    others = [k for k in range(len(free)) if k != axis and y.shape[k] > 1]
    for k in reversed(others):
        shares = nest.sharing and len(others) == 1  # rows are what threads share then
        if k != nest.row() and not shares and all(free[k] not in factor.labels for factor in vectors):
            return k
    return None


def _pieces(extent: int, lanes: int, most: int) -> list[tuple[int, int, int, int]]:
    """(start, vectors side by side, lanes of each, how often that comes) that make up an extent.

    >>> _pieces(100, 16, 4)
    [(0, 4, 16, 1), (64, 2, 16, 1), (96, 1, 4, 1)]
    """
    pieces: list[tuple[int, int, int, int]] = []
    start = 0
    for width in (16, 8, 4, 1):
        vectors = (extent - start) // width if width <= lanes else 0
        turns, rest = divmod(vectors, most)
        if turns:
            pieces.append((start, most, width, turns))
            start += turns * most * width
        if rest:
            pieces.append((start, rest, width, 1))
            start += rest * width
    return pieces


def _tile(
    nest: Nest,
    factors: Sequence[Factor],
    free: Sequence[str],
    axis: int,
    summed: Mapping[str, int],
    at: Sequence[str],
    count: int,
    lanes: int,
    rows: Sequence[Sequence[str]],
) -> None:
    """So many vectors of the result at each of some indices, from index `v` of the axis on."""
    out = nest.out
    y = nest.results[0]
    names = [[f"s{q}_{t}" for t in range(count)] for q in range(len(rows))]
    out.all(f"v{lanes} {name} = SPLAT_{lanes}(0.0f);" for of_row in names for name in of_row)
    same = [factor for factor in factors if factor.step(free[axis]) == 0]
    vectors = [factor for factor in factors if factor.step(free[axis]) != 0]
    with nest.over([*summed.values()], "k") as inner:
        turn = dict(zip(summed, inner, strict=True))
        where = {**dict(zip(free, at, strict=True)), **turn}
        for t in range(count):
            terms = [f"*(const u{lanes} *)(&{factor.element(where)} + {t * lanes})" for factor in vectors]
            if terms:
                out(f"const v{lanes} b{t} = {' * '.join(terms)};")
        for q, (row, of_row) in enumerate(zip(rows, names, strict=True)):
            here = {**dict(zip(free, row, strict=True)), **turn}
            if same:
                element = " * ".join(factor.element(here) for factor in same)
                out(f"const v{lanes} a{q} = SPLAT_{lanes}({element});")
            for t, name in enumerate(of_row):
                if same and vectors:
                    out(added(name, f"a{q}", f"b{t}", lanes))
                else:
                    out(f"{name} += {f'a{q}' if same else f'b{t}'};")
    for row, of_row in zip(rows, names, strict=True):
        out.all(f"*(u{lanes} *)(&{y.at(row)} + {t * lanes}) = {name};" for t, name in enumerate(of_row))


def operand(nest: Nest, index: int, labels: Sequence[str], last: str) -> Factor:
    """An operand with labels. A constant lies with its axis of label `last`, if it has one, innermost."""
    value = nest.call.values[index]
    tensor = nest.call.tensors[index]
    if index in nest.maps or value is None or tensor is None or last not in labels:
        return Factor(nest.operand(index), tuple(labels))
    inner = list(labels).index(last)
    order = (*(axis for axis in range(value.ndim) if axis != inner), inner)
    return Factor(
        Array(MapLayout(tensor, order), value.shape, nest.constant(value.transpose(order))), tuple(labels)
    )


def _last(nest: Nest, free: Sequence[str]) -> str:
    """Label of the axis of the result that lies innermost."""
    if free:
        return free[nest.results[0].layout.order[-1]]
    return ""


def gemm(nest: Nest) -> None:
    """The loops of Gemm: alpha A' B' + beta C."""
    call = nest.call
    y = nest.results[0]
    alpha = call.attribute("alpha", 1.0)
    beta = call.attribute("beta", 1.0)
    sums = Sums.of(y.dtype)
    c = nest.operand(2) if nest.call.has(2) and beta != 0.0 else None

    def finish(total: str, at: Sequence[str]) -> str:
        shift = c.at(c.broadcast(at, y.shape)) if c else ""
        if alpha == beta == 1.0:
            if c:
                return sums.narrow(f"({total} + {sums.wide(shift)})")
            return sums.narrow(total)
        return sums.rounded(
            f"({double(alpha)} * {sums.real(total)}{f' + {double(beta)} * (double){shift}' if c else ''})"
        )

    last = _last(nest, "mn")
    a = operand(nest, 0, "km" if call.attribute("transA", 0) else "mk", last)
    b = operand(nest, 1, "nk" if call.attribute("transB", 0) else "kn", last)
    products(nest, [a, b], "mn", finish if c or alpha != 1.0 else None)


def matmul(nest: Nest) -> None:
    """NumPy's product of stacks of matrices; an operand of one axis is a row, or a column."""
    left = nest.call.shape(0)
    right = nest.call.shape(1)
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
