"""Pools that slide a window along any number of spatial axes; global pools are reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from codegen.loops.nest import Array, Nest
from codegen.loops.scalar import Scalar
from codegen.loops.sliding import is_inside, taps
from codegen.loops.strided import Move, StridedLoops
from codegen.loops.sums import Sums, double
from lfopt.ops.windows import Window, windows

MOST_TAPS = 32  # of a window that is taken tap by tap


def max_pool(nest: Nest) -> None:
    """The largest element of each window, and where it is in the whole input.

    Source: MaxPool, storage_order (1: columns first).
    """
    call, out, x = nest.call, nest.out, nest.operand(0)
    sliding, scalar = _trimmed(nest), Scalar(x.dtype)
    asked = [k for k, name in enumerate(call.operator.outputs) if name]
    if asked == [0] and _pooled_by_taps(nest, sliding, scalar):
        return
    values, places = [nest.results[asked.index(k)] if k in asked else None for k in (0, 1)]
    with nest.elements() as at:
        empty = any((window.covered((0, window.size_out)) == 0).any() for window in sliding)
        out(f"{x.ctype} most = {_lowest(scalar, empty=empty)};")
        if places:
            out(
                "int none = 1;",
                f"{x.ctype} best = most;",
                f"int64_t place = {_place(nest, [*at[:2], *['-1'] * len(sliding)])};",
            )
        with taps(nest, sliding, at[2:]) as tap:
            out(f"const {x.ctype} v = {x.at([*at[:2], *tap.source])};")
            if places:
                here = _place(nest, [*at[:2], *tap.source])
                out(f"if (none || v > best) best = v, place = {here}, none = 0;")
            out(f"most = {scalar.larger('most', 'v')};")
        if values:
            out(f"{values.at(at)} = most;")
        if places:
            out(f"{places.at(at)} = place;")


def _pooled_by_taps(nest: Nest, sliding: Sequence[Window], scalar: Scalar) -> bool:
    """Tap by tap, each for all windows, where no window leaves the map; False where that cannot be."""
    y, taps_of = nest.results[0], [range(window.kernel) for window in sliding]
    if not all(is_inside(window) for window in sliding) or prod(map(len, taps_of)) > MOST_TAPS:
        return False
    loops: list[StridedLoops] = []
    for tap in product(*taps_of):
        moves = [Move(0, 0), Move(0, 1)] + [
            Move(k * window.dilation - window.pad, axis, window.stride)
            for axis, (k, window) in enumerate(zip(tap, sliding, strict=True), 2)
        ]
        strided = nest.strided([(nest.operand(0), moves)])
        if strided is None:
            return False
        loops.append(strided)
    first = loops[0]
    arrays = (first.arrays[0], *(strided.arrays[1] for strided in loops))
    with nest.printed(StridedLoops(first.extents, arrays)) as (result, *elements):
        nest.out(f"{y.ctype} most = {elements[0]};")
        for element in elements[1:]:
            nest.out(f"most = {scalar.larger('most', element)};")
        nest.out(f"{result} = most;")
    return True


def _lowest(scalar: Scalar, *, empty: bool) -> str:
    """C expression: the least value of a type.

    `empty`: some windows cover nothing, and give the least finite one.
    """
    dtype = np.dtype(scalar.dtype)
    if not scalar.floating:
        return f"({scalar.ctype})({_integer(int(np.iinfo(dtype).min))})"
    return scalar.number(float(np.finfo(dtype).min) if empty else -np.inf)


def _integer(value: int) -> str:
    """An integer constant, the lowest of its type among them."""
    return "INT64_MIN" if value == -(1 << 63) else f"INT64_C({value})"


def _place(nest: Nest, at: Sequence[str]) -> str:
    """Index in the flattened input."""
    shape = nest.call.shape(0)
    spatial = (
        range(2, len(shape)) if nest.call.attribute("storage_order", 0) else range(len(shape) - 1, 1, -1)
    )
    steps, step = {0: shape[1] * prod(shape[2:]), 1: prod(shape[2:])}, 1
    for axis in spatial:
        steps[axis], step = step, step * shape[axis]
    return " + ".join(f"(int64_t)({i}) * {steps[axis]}" for axis, i in enumerate(at))


def average_pool(nest: Nest) -> None:
    """The mean of each window, over what it covers of the map, or of the padded map."""
    x, y = nest.operand(0), nest.results[0]
    include = bool(nest.call.attribute("count_include_pad", 0))
    counts = [
        _counts(nest, np.maximum(window.covered((0, window.size_out), padded=include), 1))
        for window in windows(nest.call)
    ]

    def mean(total: str, at: Sequence[str]) -> str:
        return f"{total} / ({' * '.join(count(o) for count, o in zip(counts, at[2:], strict=True))})"

    _summed(nest, x, y, lambda v: v, mean)


def _counts(nest: Nest, counts: np.ndarray) -> Callable[[str], str]:
    """(index in C) -> C expression: elements that the window at that index counts.

    One number if all count as many, else an entry of a table.
    """
    if not counts.size or (counts == counts[0]).all():
        return lambda index: str(counts[0]) if counts.size else "1"
    table = nest.constant(counts.astype(np.int32))
    return lambda index: f"{table}[{index}]"


def lp_pool(nest: Nest) -> None:
    """The p-norm of each window."""
    p = nest.call.attribute("p", 2)
    _summed(nest, nest.operand(0), nest.results[0], lambda v: power(v, p), lambda total, at: root(total, p))


def _summed(
    nest: Nest, x: Array, y: Array, before: Callable[[str], str], after: Callable[[str, Sequence[str]], str]
) -> None:
    """Something of every element summed over each window, and something made of the sum."""
    out = nest.out
    with nest.elements() as at:
        out("double sum = 0.0;")
        with taps(nest, _trimmed(nest), at[2:]) as tap:
            out(f"const double v = {x.at([*at[:2], *tap.source])};", f"sum += {before('v')};")
        value = Sums.of(y.dtype).rounded(f"({after('sum', at)})")
        out(f"{y.at(at)} = {value};")


def _trimmed(nest: Nest) -> list[Window]:
    return [window.trimmed((0, window.size_out)) for window in windows(nest.call)]


def power(v: str, p: int) -> str:
    """|v| to the power of p; `v` is the name of a double."""
    return {1: f"fabs({v})", 2: f"{v} * {v}"}.get(p, f"pow(fabs({v}), {double(float(p))})")


def root(v: str, p: int) -> str:
    """v to the power of 1 / p."""
    return {1: v, 2: f"sqrt({v})"}.get(p, f"pow({v}, {double(1 / p)})")


LOOPS: dict[str, Callable[[Nest], None]] = {
    "AveragePool": average_pool,
    "LpPool": lp_pool,
    "MaxPool": max_pool,
}
