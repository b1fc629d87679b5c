"""Resize: every element from a few of the input, with weights that are known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from codegen.loops.nest import Nest
from codegen.loops.scalar import Scalar
from lfopt.ops.interpolation import AxisTaps
from lfopt.ops.resizing import axis_taps


def resize(nest: Nest) -> None:
    """Nearest, linear or cubic interpolation.

    An axis with one tap moves elements; others weigh them, each inside the next.
    """
    call = nest.call
    out = nest.out
    if any(call.has(i) and call.values[i] is None for i in (1, 2, 3)):
        raise nest.unsupported("sizes that are computed", "constant ones")
    x = nest.operand(0)
    y = nest.results[0]
    taps = {axis: tap for axis in range(len(y.shape)) if (tap := axis_taps(call, axis)) is not None}
    places = {axis: nest.constant(tap.indices.astype(np.int32)) for axis, tap in taps.items()}
    weighed = [axis for axis in reversed(taps) if taps[axis].indices.shape[1] > 1]
    held = Scalar("float64" if x.dtype == "float64" else "float32")
    with nest.elements() as at:
        source = [
            _place(taps[axis], places[axis], axis, i) if axis in taps else i for axis, i in enumerate(at)
        ]
        if weighed:
            _weighed(nest, taps, weighed, at, f"({held.ctype}){x.at(source)}", held)
        value = held.cast(f"s{weighed[0]}", y.dtype) if weighed else x.at(source)
        masks = (
            (nest.constant(tap.outside.astype(np.uint8)), at[axis])
            for axis, tap in taps.items()
            if tap.outside is not None
        )
        outside = " || ".join(f"{mask}[{i}]" for mask, i in masks)
        if outside:
            beyond = held.cast(held.number(call.attribute("extrapolation_value", 0.0)), y.dtype)
            value = f"{outside} ? {beyond} : {value}"
        out(f"{y.at(at)} = {value};")


def _place(taps: AxisTaps, table: str, axis: int, index: str) -> str:
    """Index in the input of a tap of the element at an index of the result."""
    count = taps.indices.shape[1]
    if count == 1:
        return f"{table}[{index}]"
    return f"{table}[({index}) * {count} + t{axis}]"


def _weighed(
    nest: Nest, taps: dict[int, AxisTaps], axes: Sequence[int], at: Sequence[str], element: str, held: Scalar
) -> None:
    """C variable `s` of the first of some axes: elements weighed along all of them."""
    axis, *rest = axes
    count = taps[axis].indices.shape[1]
    weights = nest.constant(taps[axis].weights.astype(held.dtype))
    nest.out(f"{held.ctype} s{axis} = 0;")
    with nest.out.block(f"for (int t{axis} = 0; t{axis} < {count}; t{axis}++)"):
        if rest:
            _weighed(nest, taps, rest, at, element, held)
        nest.out(
            f"s{axis} += {weights}[({at[axis]}) * {count} + t{axis}] * {f's{rest[0]}' if rest else element};"
        )


LOOPS: dict[str, Callable[[Nest], None]] = {"Resize": resize}
