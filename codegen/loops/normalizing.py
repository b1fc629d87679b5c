"""Normalizations: statistics of some axes, in double, and every element scaled by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from codegen.loops.nest import Array, Nest
from codegen.loops.reducing import along, fibres, of_fibre
from codegen.loops.sums import double
from lfopt.ops.parameters import lrn_reach


def _elements(x: Array, axes: Sequence[int]) -> str:
    return f"{np.prod([x.shape[axis] for axis in axes], dtype=np.int64)}.0"


def _mean(nest: Nest, x: Array, axes: Sequence[int], at: Sequence[str]) -> None:
    """C variable `mean`, of a fibre."""
    nest.out("double mean = 0.0;")
    with along(nest, x, axes, at) as i:
        nest.out(f"mean += (double){x.at(i)};")
    nest.out(f"mean /= {_elements(x, axes)};")


def _variance(nest: Nest, x: Array, axes: Sequence[int], at: Sequence[str], centre: str = "mean") -> None:
    """C variable `square`: the mean of the squares of what lies around a centre, of a fibre."""
    nest.out("double square = 0.0;")
    with along(nest, x, axes, at) as i:
        nest.out(f"const double v = (double){x.at(i)} - {centre};", "square += v * v;")
    nest.out(f"square /= {_elements(x, axes)};")


def _inverse(nest: Nest) -> str:
    return f"const double inverse = 1.0 / sqrt(square + {double(nest.call.attribute('epsilon', 1e-5))});"


def layer_normalization(nest: Nest) -> None:
    """From an axis to the end; results 1 and 2 are the mean and 1 / deviation."""
    x, out = nest.operand(0), nest.out
    axes = range(nest.call.attribute("axis", -1) % len(x.shape), len(x.shape))
    for result, k in enumerate(k for k, name in enumerate(nest.call.operator.outputs) if name):
        y = nest.results[result]
        with fibres(nest, axes, result) as at:
            _mean(nest, x, axes, at)
            if k != 1:
                _variance(nest, x, axes, at)
                out(_inverse(nest))
            if k == 0:
                _scaled(nest, x, axes, at, "((double){v} - mean) * inverse", result)
            else:
                out(f"{y.at(at)} = ({y.ctype}){'mean' if k == 1 else 'inverse'};")


def rms_normalization(nest: Nest) -> None:
    """Divided by the root of the mean of squares, from an axis to the end."""
    x = nest.operand(0)
    axes = range(nest.call.attribute("axis", -1) % len(x.shape), len(x.shape))
    with fibres(nest, axes) as at:
        _variance(nest, x, axes, at, "0.0")
        nest.out(_inverse(nest))
        _scaled(nest, x, axes, at, "(double){v} * inverse")


def _scaled(
    nest: Nest, x: Array, axes: Sequence[int], at: Sequence[str], normal: str, result: int = 0
) -> None:
    """The elements of a fibre times operand 1, plus operand 2 if there is one; both are broadcast."""
    y, scale, bias = nest.results[result], nest.operand(1), nest.operand(2) if nest.call.has(2) else None
    with of_fibre(nest, axes, at, result) as i:
        shift = f" + (double){bias.at(bias.broadcast(i, y.shape))}" if bias else ""
        nest.out(
            f"{y.at(i)} = ({y.ctype})({normal.format(v=x.at(i))} * "
            f"(double){scale.at(scale.broadcast(i, y.shape))}{shift});"
        )


def group_normalization(nest: Nest) -> None:
    """InstanceNormalization and GroupNormalization, scaled per channel.

    Statistics are those of a channel, or of a group of them, over all spatial axes.

    The channels of a group come one after the other: its statistics are taken when its first channel comes.
    """
    x, y, out = nest.operand(0), nest.results[0], nest.out
    scale, bias = nest.operand(1), nest.operand(2)
    channels, spatial = x.shape[1], range(2, len(x.shape))
    groups = (
        nest.call.attribute("num_groups", 1) if nest.call.operator.kind == "GroupNormalization" else channels
    )
    size = channels // groups
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
            factor, shift = f"(double){scale.at([at[1]])}", f"(double){bias.at([at[1]])}"
            out(f"{y.at(i)} = ({y.ctype})(((double){x.at(i)} - mean) * inverse * {factor} + {shift});")


def mean_variance_normalization(nest: Nest) -> None:
    """MeanVarianceNormalization over given axes."""
    x, y, out = nest.operand(0), nest.results[0], nest.out
    axes = [axis % len(x.shape) for axis in nest.call.attribute("axes", (0, 2, 3))]
    with fibres(nest, axes) as at:
        _mean(nest, x, axes, at)
        _variance(nest, x, axes, at)
        out("const double deviation = sqrt(square) + 1e-9;")
        with of_fibre(nest, axes, at) as i:
            out(f"{y.at(i)} = ({y.ctype})(((double){x.at(i)} - mean) / deviation);")


def local_response(nest: Nest) -> None:
    """LRN: divided by a power of the sum of squares over neighbouring channels."""
    call, out, x, y = nest.call, nest.out, nest.operand(0), nest.results[0]
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
