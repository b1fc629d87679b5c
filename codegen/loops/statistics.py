"""Normalizations in two passes: statistics of a part joined with those before, then elements from them.

See `lfopt.ops.statistics`. All is computed in double.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from codegen.loops.nest import Array, Nest
from codegen.loops.pooling import power, root
from codegen.loops.sums import double
from lfopt.ops.statistics import (
    EXPONENTIALS,
    MOMENTS,
    WIDTHS,
    channels_together,
    normalized_axes,
    statistics_axis,
)


def two_passes(nest: Nest, kept: Array) -> None:
    """A part, or the elements of a box; `kept`: the statistics."""
    with nest.out.block("if (!last)"):
        _statistics(nest, kept)
    with nest.out.block("else"):
        _elements(nest, kept)


def _statistics(nest: Nest, kept: Array) -> None:
    """Statistics of the part `from` up to `to`, joined with what is kept."""
    out = nest.out
    call = nest.call
    x = nest.operand(0)
    width = WIDTHS[call.operator.kind]
    axes = normalized_axes(call)
    together = channels_together(call)
    heads = list[str]()
    state = list[str]()
    for axis in range(len(x.shape)):
        size = together if axis == 1 else 1
        if axis in axes:
            state.append("0")
            continue
        state.append(f"s{axis}")
        heads.append(
            f"for (int s{axis} = b0->first[{axis}] / {size}; "
            f"s{axis} < (b0->stop[{axis}] + {size - 1}) / {size}; s{axis}++)"
        )
    old = [kept.at([*state, str(k)]) for k in range(width)]

    @contextmanager
    def part() -> Iterator[str]:
        """Loops over the part: its element."""
        extents = [x.shape[axis] for axis in axes]
        cut = (axes.index(statistics_axis(call)), "from", "to")
        with nest.over([*extents, together], "j", cut) as indices:
            at = list(state)
            for axis, i in zip(axes, indices, strict=False):
                at[axis] = i
            if together > 1:
                at[1] = f"s1 * {together} + {indices[-1]}"
            yield f"(double){x.at(at)}"

    with out.nested(heads):
        if width == MOMENTS:
            out("double n = 0.0, mean = 0.0, square = 0.0;")
            with part() as element:
                out(f"mean += {element};", "n += 1.0;")
            out("mean /= n;")
            with part() as element:
                out(f"const double v = {element} - mean;", "square += v * v;")
            with out.block("if (!first)"):
                out(
                    f"const double counted = {old[0]}, apart = {old[1]} - mean;",
                    f"square += {old[2]} + apart * apart * n * counted / (n + counted);",
                    "mean += apart * counted / (n + counted);",
                    "n += counted;",
                )
            new = ["n", "mean", "square"]
        elif width == EXPONENTIALS:
            out("double most = -INFINITY, sum = 0.0;")
            with part() as element:
                out(f"const double v = {element};", "if (v > most || isnan(v)) most = v;")
            out(f"if (!first && ({old[0]} > most || isnan({old[0]}))) most = {old[0]};")
            out("const double shift = isinf(most) && most < 0 ? 0.0 : most;")
            with part() as element:
                out(f"sum += exp({element} - shift);")
            # what was all minus infinity has a sum moved by nothing
            with out.block("if (!first)"):
                out(
                    f"const double before = isinf({old[0]}) && {old[0]} < 0 ? 0.0 : {old[0]};",
                    f"sum += {old[1]} * exp(before - shift);",
                )
            new = ["most", "sum"]
        else:
            p = call.attribute("p", 2) if call.operator.kind == "LpNormalization" else 2
            out("double sum = 0.0;")
            with part() as element:
                out(f"const double v = {element};", f"sum += {power('v', p)};")
            out(f"if (!first) sum += {old[0]};")
            new = ["sum"]
        out(*(f"{at} = ({kept.ctype}){value};" for at, value in zip(old, new, strict=True)))


def _elements(nest: Nest, kept: Array) -> None:
    """The elements of the box, from complete statistics."""
    out = nest.out
    call = nest.call
    x = nest.operand(0)
    y = nest.results[0]
    axes = normalized_axes(call)
    together = channels_together(call)
    kind = call.operator.kind
    with nest.elements() as at:
        state = [
            "0" if axis in axes else f"({i}) / {together}" if axis == 1 and together > 1 else i
            for axis, i in enumerate(at)
        ]
        numbers = [f"(double){kept.at([*state, str(k)])}" for k in range(WIDTHS[kind])]
        out(f"const double v = (double){x.at(at)};")
        if kind == "Softmax":
            value = f"exp(v - {numbers[0]}) / {numbers[1]}"
        elif kind == "LogSoftmax":
            value = f"v - {numbers[0]} - log({numbers[1]})"
        elif kind == "LpNormalization":
            out(f"const double norm = {root(numbers[0], call.attribute('p', 2))};")
            value = "(norm == 0.0 ? 0.0 : v / norm)"
        elif kind == "RMSNormalization":
            count = np.prod([x.shape[axis] for axis in axes], dtype=np.int64)
            value = f"v / sqrt({numbers[0]} / {count}.0 + {_epsilon(nest)})"
        elif kind == "MeanVarianceNormalization":
            value = f"(v - {numbers[1]}) / (sqrt({numbers[2]} / {numbers[0]}) + 1e-9)"
        else:
            value = f"(v - {numbers[1]}) / sqrt({numbers[2]} / {numbers[0]} + {_epsilon(nest)})"
        out(f"{y.at(at)} = ({y.ctype})({value}{_scaled(nest, at)});")


def _epsilon(nest: Nest) -> str:
    return double(nest.call.attribute("epsilon", 1e-5))


def _scaled(nest: Nest, at: Sequence[str]) -> str:
    """C: times operand 1, plus operand 2, where there are any."""
    text = ""
    for index, sign in ((1, "*"), (2, "+")):
        if nest.call.has(index):
            factor = nest.operand(index)
            y = nest.results[0]
            by_channel = nest.call.operator.kind in ("InstanceNormalization", "GroupNormalization")
            place = [at[1]] if by_channel else factor.broadcast(at, y.shape)
            text += f" {sign} (double){factor.at(place)}"
    return text
