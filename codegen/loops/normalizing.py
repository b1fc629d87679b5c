"""Normalizations: statistics of some axes, in double, and every element scaled by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from codegen.loops.fibres import Fibres, along, of_fibre
from codegen.loops.nest import Array, Nest
from codegen.loops.sums import double
from lfopt.ops.parameters import lrn_reach

MOST_CHANNELS = 1 << 12  # whose statistics are on the stack
LEAST_EPSILON = 1e-60  # from which one over a deviation is a float


def _count(x: Array, axes: Sequence[int]) -> str:
    return f"{np.prod([x.shape[axis] for axis in axes], dtype=np.int64)}.0"


def _moments(fibres: Fibres) -> None:
    """Variables `mean` and `square`, the mean of the squares of what lies around it.

    Of floats at even distances both are found in one pass, around the first element of the fibre: no element
    is further from the mean than the root of as many variances as there are elements.
    """
    nest = fibres.nest
    count = _count(fibres.x, fibres.axes)
    if not _in_floats(fibres):
        _mean(fibres)
        _square(fibres, "mean")
        return
    fibres.variable("double", "centre", fibres.first)
    fibres.variable("double", "mean", "0.0")
    fibres.variable("double", "square", "0.0")
    if fibres.floats:
        nest.out(f"moments_of(x, {fibres.length}, centre, &mean, &square);")
    else:
        with fibres.fold(mean="+", square="+") as element:
            nest.out(f"const double v = (double){element} - {fibres['centre']};")
            nest.out(f"{fibres['mean']} += v;", f"{fibres['square']} += v * v;")
    mean = fibres["mean"]
    square = fibres["square"]
    fibres.set("mean", f"{mean} / {count}")
    fibres.set("square", f"{square} / {count} - {mean} * {mean}")
    fibres.set("square", f"{square} < 0.0 ? 0.0 : {square}")
    fibres.set("mean", f"{mean} + {fibres['centre']}")


def _in_floats(fibres: Fibres) -> bool:
    """Whether elements are floats that lie evenly, and what they are scaled by is a float."""
    x = fibres.x
    y = fibres.y
    epsilon = fibres.nest.call.attribute("epsilon", 1e-5)
    return fibres.even and x.dtype == y.dtype == "float32" and epsilon >= LEAST_EPSILON


def _mean(fibres: Fibres) -> None:
    """Variable `mean`."""
    fibres.variable("double", "mean", "0.0")
    with fibres.fold(mean="+") as element:
        fibres.nest.out(f"{fibres['mean']} += (double){element};")
    fibres.set("mean", f"{fibres['mean']} / {_count(fibres.x, fibres.axes)}")


def _square(fibres: Fibres, centre: str = "") -> None:
    """Variable `square`: the mean of the squares of what lies around a centre."""
    count = _count(fibres.x, fibres.axes)
    if fibres.floats and not centre:
        fibres.variable("double", "square", f"squares_of(x, {fibres.length}) / {count}")
        return
    fibres.variable("double", "square", "0.0")
    with fibres.fold(square="+") as element:
        around = f" - {fibres[centre]}" if centre else ""
        fibres.nest.out(f"const double v = (double){element}{around};", f"{fibres['square']} += v * v;")
    fibres.set("square", f"{fibres['square']} / {count}")


def _inverse(fibres: Fibres) -> None:
    """Variable `inverse`: one over the deviation."""
    epsilon = double(fibres.nest.call.attribute("epsilon", 1e-5))
    fibres.variable("double", "inverse", f"1.0 / sqrt({fibres['square']} + {epsilon})")


def layer_normalization(nest: Nest) -> None:
    """From an axis to the end; results 1 and 2 are the mean and 1 / deviation."""
    x = nest.operand(0)
    out = nest.out
    axes = range(nest.call.attribute("axis", -1) % len(x.shape), len(x.shape))
    for result, k in enumerate(k for k, name in enumerate(nest.call.operator.outputs) if name):
        y = nest.results[result]
        fibres = Fibres(nest, x, axes, result=result, reduced=k != 0, beside=_scales(nest) if k == 0 else ())
        with fibres.each():
            if k == 1:
                _mean(fibres)
            else:
                _moments(fibres)
                _inverse(fibres)
            if k == 0:
                _scaled(fibres)
            else:
                with fibres.complete("mean") as element:
                    out(f"{element} = ({y.ctype}){fibres['mean' if k == 1 else 'inverse']};")


def rms_normalization(nest: Nest) -> None:
    """Divided by the root of the mean of squares, from an axis to the end."""
    x = nest.operand(0)
    axes = range(nest.call.attribute("axis", -1) % len(x.shape), len(x.shape))
    fibres = Fibres(nest, x, axes, beside=_scales(nest))
    with fibres.each():
        _square(fibres)
        _inverse(fibres)
        _scaled(fibres, centred=False)


def _scales(nest: Nest) -> list[Array]:
    """Operands 1 and 2, which are broadcast, as far as they are there."""
    return [nest.operand(k) for k in (1, 2) if nest.call.has(k)]


def _scaled(fibres: Fibres, *, centred: bool = True) -> None:
    """The elements of a fibre, normal, times operand 1, plus operand 2 if there is one; both are broadcast.

    In float the mean is two numbers: the difference from the first is exact where it matters.
    """
    wide = "" if _in_floats(fibres) else "(double)"
    if not wide:
        fibres.variable("float", "factor", f"(float){fibres['inverse']}")
        if centred:
            fibres.variable("float", "high", f"(float){fibres['mean']}")
            fibres.variable("float", "low", f"(float)({fibres['mean']} - (double){fibres['high']})")
    with fibres.elements() as (element, result, *beside):
        value = f"{wide}{element}"
        if centred:
            mean = fibres["mean"] if wide else f"{fibres['high']} - {fibres['low']}"
            value = f"({value} - {mean})"
        factor = fibres["inverse" if wide else "factor"]
        value += f" * ({factor} * {wide}{beside[0]})"
        if len(beside) > 1:
            value += f" + {wide}{beside[1]}"
        fibres.nest.out(f"{result} = ({fibres.y.ctype})({value});")


def group_normalization(nest: Nest) -> None:
    """InstanceNormalization and GroupNormalization, scaled per channel.

    Statistics are those of a channel, or of a group of them, over all spatial axes.
    """
    channels = nest.operand(0).shape[1]
    if nest.call.operator.kind == "GroupNormalization":
        groups = nest.call.attribute("num_groups", 1)
    else:
        groups = channels
    size = channels // groups
    if _groups_of_channels(nest, groups, size):
        return

    def seen(array: Array) -> Array:
        """With an axis of groups and one of the channels of a group."""
        before, after = (
            (1, len(array.shape) - 2) if len(array.shape) > 1 else (0, len(nest.operand(0).shape) - 2)
        )
        spatial = array.shape[2:] if before else (1,) * after
        return replace(array, shape=(*array.shape[:before], groups, size, *spatial))

    x = seen(nest.operand(0))
    beside = [seen(nest.operand(k)) for k in (1, 2)]
    fibres = Fibres(nest, x, range(2, len(x.shape)), beside=beside, view=seen(nest.results[0]))
    if not fibres.even:
        _groups_unevenly(nest, groups, size)
        return
    with fibres.each():
        _moments(fibres)
        _inverse(fibres)
        _scaled(fibres)


def _groups_of_channels(nest: Nest, groups: int, size: int) -> bool:
    """Statistics of channels that lie side by side, pixel by pixel, then of the groups that they make.

    False where channels lie otherwise, or are too many.
    """
    out = nest.out
    x = nest.operand(0)
    y = nest.results[0]
    channels = x.shape[1]
    spatial = range(2, len(x.shape))
    arrays = (x, y, nest.operand(1), nest.operand(2))
    epsilon = nest.call.attribute("epsilon", 1e-5)
    evenly = nest.evenly and nest.whole and all(type(array) is Array for array in arrays)
    if not evenly or {array.stored or array.ctype for array in arrays} != {"float"}:
        return False
    if not 1 < channels <= MOST_CHANNELS or epsilon < LEAST_EPSILON or x.step(1) != 1 or y.step(1) != 1:
        return False
    pixels = f"{np.prod([x.shape[axis] for axis in spatial], dtype=np.int64)}.0"
    first, stop = (
        (f"FIRST({groups}) * {size}", f"STOP({groups}) * {size}") if nest.sharing else ("0", str(channels))
    )

    def row(array: Array, image: str, pixel: Sequence[str]) -> str:
        return f"&{array.at([image, '0', *pixel])}"

    each = "EACH for (int c = first; c < stop; c++)"
    with nest.unshared(), nest.each(axes=[0]) as at:
        image = at[0]
        out(
            f"const int first = {first}, stop = {stop};",
            f"const float *const centre = {row(x, image, ['0'] * len(spatial))};",
            f"double sum[{channels}], square[{channels}];",
            f"float high[{channels}], low[{channels}], factor[{channels}], shift[{channels}];",
        )
        out(f"{each} sum[c] = square[c] = 0.0;")
        with nest.over([x.shape[axis] for axis in spatial], "j") as pixel:
            out(f"const float *const x = {row(x, image, pixel)};")
            with out.nested([each]):
                out(
                    "const double v = (double)x[c] - (double)centre[c];",
                    "sum[c] += v;",
                    "square[c] += v * v;",
                )
        # now the mean of each channel, and the sum of the squares of what lies around it
        with out.nested([each]):
            out(
                f"square[c] -= sum[c] * sum[c] / {pixels};",
                f"sum[c] = sum[c] / {pixels} + (double)centre[c];",
            )
        with out.block(f"for (int g = first; g < stop; g += {size})"):
            out("double mean = 0.0, around = 0.0;")
            inside = f"for (int c = g; c < g + {size}; c++)"
            out(f"{inside} mean += sum[c];", f"mean /= {size}.0;")
            with out.block(inside):
                out(
                    "const double v = sum[c] - mean;",
                    f"around += (square[c] < 0.0 ? 0.0 : square[c]) + {pixels} * v * v;",
                )
            out(f"const double inverse = 1.0 / sqrt(around / ({pixels} * {size}.0) + {double(epsilon)});")
            with out.block(inside):
                out(
                    "high[c] = (float)mean;",
                    "low[c] = (float)(mean - (double)high[c]);",
                    f"factor[c] = (float)inverse * {arrays[2].at(['c'])};",
                    f"shift[c] = {arrays[3].at(['c'])};",
                )
        with nest.over([x.shape[axis] for axis in spatial], "j") as pixel:
            out(
                f"const float *const x = {row(x, image, pixel)};", f"float *const y = {row(y, image, pixel)};"
            )
            with out.nested([each]):
                out("y[c] = (x[c] - high[c] - low[c]) * factor[c] + shift[c];")
    return True


def _groups_unevenly(nest: Nest, groups: int, size: int) -> None:
    """The channels of a group come one after the other: its statistics are taken when its first comes."""
    x = nest.operand(0)
    y = nest.results[0]
    out = nest.out
    scale = nest.operand(1)
    bias = nest.operand(2)
    spatial = range(2, len(x.shape))
    elements = f"{np.prod(x.shape[2:], dtype=np.int64) * size}.0"
    out("int known = -1;", "double mean = 0.0, inverse = 0.0;")
    with nest.each(axes=[0, 1]) as indices:
        at = [indices[0], indices[1], *["0"] * len(spatial)]
        out(f"const int group = {at[0]} * {groups} + ({at[1]}) / {size};")
        with out.block("if (group != known)"):
            out("double square = 0.0;", "mean = 0.0;")
            for sum_of in ("mean += v;", "square += (v - mean) * (v - mean);"):
                with (
                    nest.over([size], "g") as (g,),
                    along(nest, x, spatial, [at[0], f"(group % {groups} * {size} + {g})", *at[2:]]) as i,
                ):
                    out(f"const double v = (double){x.at(i)};", sum_of)
                out(f"{sum_of.split()[0]} /= {elements};")
            out(
                f"inverse = 1.0 / sqrt(square + {double(nest.call.attribute('epsilon', 1e-5))});",
                "known = group;",
            )
        with of_fibre(nest, spatial, at) as i:
            factor = f"(double){scale.at([at[1]])}"
            shift = f"(double){bias.at([at[1]])}"
            out(f"{y.at(i)} = ({y.ctype})(((double){x.at(i)} - mean) * inverse * {factor} + {shift});")


def mean_variance_normalization(nest: Nest) -> None:
    """MeanVarianceNormalization over given axes."""
    x = nest.operand(0)
    y = nest.results[0]
    out = nest.out
    axes = [axis % len(x.shape) for axis in nest.call.attribute("axes", (0, 2, 3))]
    fibres = Fibres(nest, x, axes)
    with fibres.each():
        _moments(fibres)
        fibres.set("square", f"1.0 / (sqrt({fibres['square']}) + 1e-9)")
        with fibres.elements() as (element, result):
            out(f"{result} = ({y.ctype})(((double){element} - {fibres['mean']}) * {fibres['square']});")


def local_response(nest: Nest) -> None:
    """LRN: divided by a power of the sum of squares over neighbouring channels."""
    call = nest.call
    out = nest.out
    x = nest.operand(0)
    y = nest.results[0]
    low, high = lrn_reach(call)
    beta = call.attribute("beta", 0.75)
    with nest.elements() as at:
        out("double sum = 0.0;")
        head = (
            f"for (int c = larger({at[1]} - {low}, 0); c <= smaller({at[1]} + {high}, {x.shape[1] - 1}); c++)"
        )
        with out.block(head):
            out(f"const double v = (double){x.at([at[0], 'c', *at[2:]])};", "sum += v * v;")
        out(
            f"sum = {double(call.attribute('bias', 1.0))} + "
            f"{double(call.attribute('alpha', 1e-4) / call.attribute('size', 1))} * sum;"
        )
        # a power takes longer than two roots
        divisor = "(sqrt(sum) * sqrt(sqrt(sum)))" if beta == 0.75 else f"pow(sum, {double(beta)})"
        out(f"{y.at(at)} = ({y.ctype})((double){x.at(at)} / {divisor});")


LOOPS: dict[str, Callable[[Nest], None]] = {
    "GroupNormalization": group_normalization,
    "InstanceNormalization": group_normalization,
    "LRN": local_response,
    "LayerNormalization": layer_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "RMSNormalization": rms_normalization,
}
