"""Axes folded into one element, and softmax and norms along an axis."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from codegen.loops.fibres import Fibres
from codegen.loops.nest import Array, Nest
from codegen.loops.pooling import power, root
from codegen.loops.scalar import Scalar
from codegen.loops.sums import Sums
from lfopt.ops.parameters import reduced_axes

# -- reductions ----------------------------------------------------------------------------------------------


class ReductionLoop(NamedTuple):
    """A reduction: the term of each element `v`, and what is made of their sum.

    Both in the type of sums, or in double if `real`.
    """

    term: Callable[[Nest, str], str] = lambda nest, v: v
    after: Callable[[Nest, str], str] | None = None  # of a double; None: the sum it is
    real: bool = False
    product: bool = False
    folded: str = ""  # the function of folds.h that gives the sum of a fibre of floats


def _absolute(nest: Nest, v: str) -> str:
    kind = Scalar(nest.operand(0).dtype)
    if kind.floating:
        return f"fabs({v})"
    if kind.signed:
        return f"((int64_t){v} < 0 ? 0 - {v} : {v})"
    return v


def _square(nest: Nest, v: str) -> str:
    return f"{v} * {v}"


def _averaged(nest: Nest, total: str) -> str:
    return f"{total} / {prod(nest.call.shape(0)[axis] for axis in _axes(nest))}.0"


SUMS: dict[str, ReductionLoop] = {
    "GlobalAveragePool": ReductionLoop(after=_averaged, real=True, folded="sum_of"),
    "GlobalLpPool": ReductionLoop(
        lambda nest, v: power(v, nest.call.attribute("p", 2)),
        lambda nest, s: root(s, nest.call.attribute("p", 2)),
        real=True,
    ),
    "ReduceL1": ReductionLoop(_absolute),
    "ReduceL2": ReductionLoop(_square, lambda nest, s: f"sqrt({s})", folded="squares_of"),
    "ReduceLogSum": ReductionLoop(after=lambda nest, s: f"log({s})", folded="sum_of"),
    "ReduceMean": ReductionLoop(after=_averaged, real=True, folded="sum_of"),
    "ReduceProd": ReductionLoop(product=True),
    "ReduceSum": ReductionLoop(folded="sum_of"),
    "ReduceSumSquare": ReductionLoop(_square, folded="squares_of"),
}


def _axes(nest: Nest) -> list[int]:
    axes = reduced_axes(nest.call)
    if axes is None:
        raise nest.unsupported("axes that are computed", "constant ones")
    return sorted(axes)


def summed(nest: Nest) -> None:
    """Sums and products, of the elements or of something made of each."""
    row = SUMS[nest.call.operator.kind]
    axes = _axes(nest)
    out = nest.out
    x = nest.operand(0)
    y = nest.results[0]
    held = Sums.of("float64" if row.real else x.dtype)
    fibres = Fibres(nest, x, axes, reduced=True)
    sign = "*" if row.product else "+"
    with fibres.each():
        fibres.variable(held.ctype, "sum", fibres.start(str(int(row.product))))
        if fibres.floats and row.folded:
            fibres.set("sum", f"{row.folded}(x, {fibres.length})")
        else:
            with fibres.fold(sum=sign) as element:
                out(
                    f"const {held.ctype} v = {held.wide(element)};",
                    f"{fibres['sum']} {sign}= {row.term(nest, 'v')};",
                )
        with fibres.complete("sum") as result:
            total = fibres["sum"]
            if row.after:
                value = Sums.of(y.dtype).rounded(f"({row.after(nest, held.real(total))})")
            else:
                value = held.narrow(total)
            out(f"{result} = {value};")


def extreme(nest: Nest) -> None:
    """The largest element, or the smallest; what is not a number where there is one."""
    axes = _axes(nest)
    x = nest.operand(0)
    least = nest.call.operator.kind == "ReduceMin"
    fibres = Fibres(nest, x, axes, reduced=True)
    with fibres.each():
        fibres.variable(x.ctype, "most", fibres.start(_neutral(x.dtype, least=least)))
        fold_largest(fibres, least=least)
        with fibres.complete("most") as result:
            nest.out(f"{result} = {fibres['most']};")


def fold_largest(fibres: Fibres, ctype: str = "", *, least: bool = False) -> None:
    """Fold the variable `most`, of elements as they are or as a type.

    Of floats it is not a number where an element is not.
    """
    nest = fibres.nest
    x = fibres.x
    floating = Scalar(x.dtype).floating
    ctype = ctype or x.ctype
    if fibres.floats:
        fibres.set("most", f"{'smallest' if least else 'largest'}_of(x, {fibres.length})")
        return
    if floating:
        fibres.variable("int", "odd", "0")
    folds = {"most": "min" if least else "max", **({"odd": "|"} if floating else {})}
    with fibres.fold(**folds) as element:
        most = fibres["most"]
        nest.out(f"const {ctype} v = {element};", f"{most} = v {'<' if least else '>'} {most} ? v : {most};")
        if floating:
            nest.out(f"{fibres['odd']} |= v != v;")
    if floating:
        fibres.set("most", f"{fibres['odd']} ? ({ctype})NAN : {fibres['most']}")


def _neutral(dtype: str, *, least: bool) -> str:
    """C expression: the neutral element of a minimum (`least`) or maximum."""
    if dtype == "bool":
        return str(int(least))
    if dtype.startswith("float"):
        if least:
            return "INFINITY"
        return "-INFINITY"
    name = dtype.upper()
    if least:
        return f"{name}_MAX"
    if dtype.startswith("u"):
        return "0"
    return f"{name}_MIN"


def log_sum_exp(nest: Nest) -> None:
    """The logarithm of the sum of exponentials, moved by the largest element."""
    axes = _axes(nest)
    out = nest.out
    x = nest.operand(0)
    y = nest.results[0]
    fibres = Fibres(nest, x, axes, reduced=True)
    with fibres.each():
        fibres.variable("double", "most", "-INFINITY")
        fold_largest(fibres, "double")
        fibres.set("most", f"isfinite({fibres['most']}) ? {fibres['most']} : 0.0")
        fibres.variable("double", "sum", "0.0")
        with fibres.fold(sum="+") as element:
            out(f"{fibres['sum']} += {_power(x, f'(double){element} - ' + fibres['most'])};")
        with fibres.complete("sum") as result:
            value = f"(log({fibres['sum']}) + {fibres['most']})"
            out(f"{result} = {Sums.of(y.dtype).rounded(value)};")


def _power(x: Array, exponent: str) -> str:
    """C expression: e to the power of a double, as accurate as the type of an operand."""
    if x.dtype == "float32":
        return f"real_power({exponent}, 0.0)"
    return f"exp({exponent})"


# -- along one axis ------------------------------------------------------------------------------------------


def softmax(nest: Nest) -> None:
    """Softmax and LogSoftmax."""
    out = nest.out
    x = nest.operand(0)
    y = nest.results[0]
    axes = [nest.call.attribute("axis", -1) % max(len(y.shape), 1)] if y.shape else []
    scalar = Scalar(y.dtype)
    logarithmic = nest.call.operator.kind == "LogSoftmax"
    fibres = Fibres(nest, x, axes)

    def power_of(element: str) -> str:
        return scalar.function("exp", f"{element} - ({x.ctype}){fibres['most']}")

    with fibres.each():
        fibres.variable("double", "most", "-INFINITY")
        fold_largest(fibres, "double")
        fibres.variable("double", "sum", "0.0")
        with fibres.fold(sum="+") as element:
            out(f"{fibres['sum']} += (double){power_of(element)};")
        fibres.set("sum", f"log({fibres['sum']})" if logarithmic else f"1.0 / {fibres['sum']}")
        with fibres.elements() as (element, result):
            if logarithmic:
                value = f"(double){element} - {fibres['most']} - {fibres['sum']}"
            else:
                value = f"(double){power_of(element)} * {fibres['sum']}"
            out(f"{result} = ({y.ctype})({value});")


def lp_normalization(nest: Nest) -> None:
    """Divided by the norm along an axis; 0 where that is 0."""
    out = nest.out
    x = nest.operand(0)
    y = nest.results[0]
    axes = [nest.call.attribute("axis", -1) % len(y.shape)]
    p = nest.call.attribute("p", 2)
    fibres = Fibres(nest, x, axes)
    with fibres.each():
        fibres.variable("double", "norm", "0.0")
        with fibres.fold(norm="+") as element:
            out(f"const double v = {element};", f"{fibres['norm']} += {power('v', p)};")
        fibres.set("norm", root(fibres["norm"], p))
        with fibres.elements() as (element, result):
            norm = fibres["norm"]
            out(f"{result} = ({y.ctype})({norm} == 0.0 ? 0.0 : (double){element} / {norm});")


LOOPS: dict[str, Callable[[Nest], None]] = {
    **dict.fromkeys(SUMS, summed),
    **dict.fromkeys(["GlobalMaxPool", "ReduceMax", "ReduceMin"], extreme),
    "LogSoftmax": softmax,
    "LpNormalization": lp_normalization,
    "ReduceLogSumExp": log_sum_exp,
    "Softmax": softmax,
}
