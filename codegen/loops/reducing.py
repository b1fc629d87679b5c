"""Axes folded into one element, and softmax and norms along an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

from codegen.loops.nest import Array, Nest
from codegen.loops.pooling import power, root
from codegen.loops.scalar import Scalar
from codegen.loops.sums import Sums
from lfopt.ops.footprint import folded_axis
from lfopt.ops.parameters import reduced_axes


@contextmanager
def along(
    nest: Nest, x: Array, axes: Sequence[int], at: Sequence[str], name: str = "j"
) -> Iterator[list[str]]:
    """Loops over some axes of an operand, in the order in which it lies: the index.

    That is `at` along the others.
    """
    order = x.layout.order if x.shape == x.layout.shape else range(len(x.shape))
    chosen = [axis for axis in order if axis in axes]
    folded = folded_axis(nest.call, 0)
    with nest.folded(
        [x.shape[axis] for axis in chosen], name, chosen.index(folded) if folded in chosen else None
    ) as indices:
        index = list(at)
        for axis, i in zip(chosen, indices, strict=True):
            index[axis] = i
        yield index


# -- reductions ----------------------------------------------------------------------------------------------


class ReductionLoop(NamedTuple):
    """A reduction: the term of each element `v`, and what is made of their sum.

    Both in the type of sums, or in double if `real`.
    """

    term: Callable[[Nest, str], str] = lambda nest, v: v
    after: Callable[[Nest, str], str] | None = None  # of a double; None: the sum it is
    real: bool = False
    product: bool = False


def _absolute(nest: Nest, v: str) -> str:
    kind = Scalar(nest.operand(0).dtype)
    return f"fabs({v})" if kind.floating else f"((int64_t){v} < 0 ? 0 - {v} : {v})" if kind.signed else v


def _square(nest: Nest, v: str) -> str:
    return f"{v} * {v}"


def _averaged(nest: Nest, total: str) -> str:
    return f"{total} / {prod(nest.call.shape(0)[axis] for axis in _axes(nest))}.0"


SUMS: dict[str, ReductionLoop] = {
    "GlobalAveragePool": ReductionLoop(after=_averaged, real=True),
    "GlobalLpPool": ReductionLoop(
        lambda nest, v: power(v, nest.call.attribute("p", 2)),
        lambda nest, s: root(s, nest.call.attribute("p", 2)),
        real=True,
    ),
    "ReduceL1": ReductionLoop(_absolute),
    "ReduceL2": ReductionLoop(_square, lambda nest, s: f"sqrt({s})"),
    "ReduceLogSum": ReductionLoop(after=lambda nest, s: f"log({s})"),
    "ReduceMean": ReductionLoop(after=_averaged, real=True),
    "ReduceProd": ReductionLoop(product=True),
    "ReduceSum": ReductionLoop(),
    "ReduceSumSquare": ReductionLoop(_square),
}


def _axes(nest: Nest) -> list[int]:
    axes = reduced_axes(nest.call)
    if axes is None:
        raise nest.unsupported("axes that are computed", "constant ones")
    return sorted(axes)


def _source(nest: Nest, axes: Sequence[int], at: Sequence[str]) -> list[str]:
    """Index of the operand for that of the result; 0 along the folded axes."""
    if nest.call.attribute("keepdims", 1):
        return ["0" if axis in axes else i for axis, i in enumerate(at)]
    rest = iter(at)
    return ["0" if axis in axes else next(rest) for axis in range(len(nest.call.shape(0)))]


def summed(nest: Nest) -> None:
    """Sums and products, of the elements or of something made of each."""
    row, axes, out = SUMS[nest.call.operator.kind], _axes(nest), nest.out
    x, y = nest.operand(0), nest.results[0]
    held = Sums.of("float64" if row.real else x.dtype)
    with nest.elements() as at:
        out(f"{held.ctype} sum = {nest.begin(at, str(int(row.product)))};")
        with along(nest, x, axes, _source(nest, axes, at)) as i:
            out(
                f"const {held.ctype} v = {held.wide(x.at(i))};",
                f"sum {'*' if row.product else '+'}= {row.term(nest, 'v')};",
            )
        value = (
            Sums.of(y.dtype).rounded(f"({row.after(nest, held.real('sum'))})")
            if row.after
            else held.narrow("sum")
        )
        with nest.end(at, "sum"):
            out(f"{y.at(at)} = {value};")


def extreme(nest: Nest) -> None:
    """The largest element, or the smallest."""
    axes, out, x, y = _axes(nest), nest.out, nest.operand(0), nest.results[0]
    least, scalar = nest.call.operator.kind == "ReduceMin", Scalar(x.dtype)
    pick = scalar.smaller if least else scalar.larger
    with nest.elements() as at:
        out(f"{x.ctype} most = {nest.begin(at, _neutral(x.dtype, least=least))};")
        with along(nest, x, axes, _source(nest, axes, at)) as i:
            out(f"const {x.ctype} v = {x.at(i)};", f"most = {pick('most', 'v')};")
        with nest.end(at, "most"):
            out(f"{y.at(at)} = most;")


def _neutral(dtype: str, *, least: bool) -> str:
    """C expression: the neutral element of a minimum (`least`) or maximum."""
    if dtype == "bool":
        return str(int(least))
    if dtype.startswith("float"):
        return "INFINITY" if least else "-INFINITY"
    name = dtype.upper()
    return f"{name}_MAX" if least else "0" if dtype.startswith("u") else f"{name}_MIN"


def log_sum_exp(nest: Nest) -> None:
    """The logarithm of the sum of exponentials, moved by the largest element."""
    axes, out, x, y = _axes(nest), nest.out, nest.operand(0), nest.results[0]
    with nest.elements() as at:
        source = _source(nest, axes, at)
        _largest(nest, x, axes, source)
        out("if (!isfinite(most)) most = 0.0;", "double sum = 0.0;")
        with along(nest, x, axes, source) as i:
            out(f"sum += exp((double){x.at(i)} - most);")
        out(f"{y.at(at)} = {Sums.of(y.dtype).rounded('(log(sum) + most)')};")


def _largest(nest: Nest, x: Array, axes: Sequence[int], source: Sequence[str]) -> None:
    nest.out("double most = -INFINITY;")
    with along(nest, x, axes, source) as i:
        nest.out(f"const double v = (double){x.at(i)};", "if (v > most || isnan(v)) most = v;")


# -- along one axis ------------------------------------------------------------------------------------------


@contextmanager
def fibres(nest: Nest, axes: Sequence[int], result: int = 0) -> Iterator[list[str]]:
    """Loops over the axes of a result that are not in `axes`: the index, 0 along these."""
    rank = len(nest.results[result].shape)
    with nest.each(result, [axis for axis in range(rank) if axis not in axes]) as indices:
        yield [indices.get(axis, "0") for axis in range(rank)]


@contextmanager
def of_fibre(nest: Nest, axes: Sequence[int], at: Sequence[str], result: int = 0) -> Iterator[list[str]]:
    """Loops over those elements of a fibre that are to be made: their index."""
    with nest.each(result, axes, name="o") as indices:
        yield [indices.get(axis, i) for axis, i in enumerate(at)]


def softmax(nest: Nest) -> None:
    """Softmax and LogSoftmax."""
    out, x, y = nest.out, nest.operand(0), nest.results[0]
    axes = [nest.call.attribute("axis", -1) % max(len(y.shape), 1)] if y.shape else []
    scalar = Scalar(y.dtype)
    logarithmic = nest.call.operator.kind == "LogSoftmax"
    with fibres(nest, axes) as at:
        _largest(nest, x, axes, at)
        out("double sum = 0.0;")
        with along(nest, x, axes, at) as i:
            out(f"sum += (double){scalar.function('exp', f'{x.at(i)} - ({x.ctype})most')};")
        out("const double shift = log(sum);" if logarithmic else "const double factor = 1.0 / sum;")
        with of_fibre(nest, axes, at) as i:
            power_ = scalar.function("exp", f"{x.at(i)} - ({x.ctype})most")
            value = f"(double){x.at(i)} - most - shift" if logarithmic else f"(double){power_} * factor"
            out(f"{y.at(i)} = ({y.ctype})({value});")


def lp_normalization(nest: Nest) -> None:
    """Divided by the norm along an axis; 0 where that is 0."""
    out, x, y = nest.out, nest.operand(0), nest.results[0]
    axes, p = [nest.call.attribute("axis", -1) % len(y.shape)], nest.call.attribute("p", 2)
    with fibres(nest, axes) as at:
        out("double sum = 0.0;")
        with along(nest, x, axes, at) as i:
            out(f"const double v = {x.at(i)};", f"sum += {power('v', p)};")
        out(f"const double norm = {root('sum', p)};")
        with of_fibre(nest, axes, at) as i:
            out(f"{y.at(i)} = ({y.ctype})(norm == 0.0 ? 0.0 : (double){x.at(i)} / norm);")


LOOPS: dict[str, Callable[[Nest], None]] = {
    **dict.fromkeys(SUMS, summed),
    **dict.fromkeys(["GlobalMaxPool", "ReduceMax", "ReduceMin"], extreme),
    "LogSoftmax": softmax,
    "LpNormalization": lp_normalization,
    "ReduceLogSumExp": log_sum_exp,
    "Softmax": softmax,
}
