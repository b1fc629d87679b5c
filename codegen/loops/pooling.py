"""Pools that slide a window along any number of spatial axes; global pools are reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from codegen.loops.nest import Array, Nest
from codegen.loops.scalar import Scalar
from codegen.loops.sliding import is_inside, taps
from codegen.loops.strided import Move, StridedLoops
from codegen.loops.sums import Sums, double
from lfopt.ops.windows import Window, windows

MOST_TAPS = 32  # of a window that is taken tap by tap
MOST_IN_ROW = 1 << 12  # elements of a row that is folded on the stack


def max_pool(nest: Nest) -> None:
    """The largest element of each window, and where it is in the whole input.

    Source: MaxPool, storage_order (1: columns first).
    """
    call = nest.call
    out = nest.out
    x = nest.operand(0)
    sliding = _trimmed(nest)
    scalar = Scalar(x.dtype)
    asked = [k for k, name in enumerate(call.operator.outputs) if name]
    if asked == [0]:
        empty = any((window.covered((0, window.size_out)) == 0).any() for window in sliding)
        fold = RowFold(x.ctype, _lowest(scalar, empty=empty), lambda v: v, scalar.larger)
        if _pooled_by_rows(nest, sliding, fold, lambda most, at: most):
            return
        if _pooled_by_taps(nest, sliding, scalar):
            return
        if _pooled_by_pixels(nest, sliding, fold, lambda most, at: most):
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


class RowFold(NamedTuple):
    """How the elements of a window become one."""

    ctype: str  # of what is folded
    start: str  # C expression: the initial value
    term: Callable[[str], str]  # C expression of an element, a name of that type -> of what is folded of it
    fold: Callable[[str, str], str]  # C expressions of two -> of both


def _pooled_by_rows(
    nest: Nest, sliding: Sequence[Window], fold: RowFold, after: Callable[[str, Sequence[str]], str]
) -> bool:
    """Row by row along the last axis: rows of the map that a window meets become one, along which it slides.

    `after`: C expressions of what was folded, and of an index of the result -> of an element. False where
    rows do not lie side by side.
    """
    x = nest.operand(0)
    y = nest.results[0]
    last = len(nest.call.result) - 1
    *outer, along = sliding
    begin, end = along.extent((0, along.size_out))  # of the elements that the windows of a row meet
    length = end - begin
    side_by_side = all(
        type(array) is Array and array.shape == array.layout.shape and array.step(last) == 1
        for array in (x, y)
    )
    if not nest.evenly or not side_by_side or nest.row() == last or y.shape[last] == 1:
        return False
    in_place = all(window.kernel == 1 and is_inside(window) for window in outer) and is_inside(along)
    if (not in_place and length > MOST_IN_ROW) or along.kernel > MOST_TAPS:
        return False
    out = nest.out
    with nest.each(axes=range(last)) as indices:
        at = [indices[axis] for axis in range(last)]
        if in_place:
            source = [
                *at[:2],
                *(f"({o}) * {w.stride} - ({w.pad})" for o, w in zip(at[2:], outer, strict=True)),
            ]
            out(f"const {x.ctype} *const row = &{x.at([*source, str(begin)])};")
        else:
            out(f"{fold.ctype} row[{length}];")
            out(f"EACH for (int w = 0; w < {length}; w++) row[w] = {fold.start};")
            first = max(begin, 0)
            stop = min(end, along.size)
            with taps(nest, outer, at[2:]) as tap:
                out(f"const {x.ctype} *const x = &{x.at([*at[:2], *tap.source, '0'])};")
                with out.nested([f"EACH for (int w = {first}; w < {stop}; w++)"]):
                    out(f"const {fold.ctype} v = x[w];")
                    there = "row[w]" if begin == 0 else f"row[w - ({begin})]"
                    out(f"{there} = {fold.fold(there, fold.term('v'))};")
        out(f"{y.ctype} *const y = &{y.at([*at, '0'])};")
        with out.nested([f"EACH for (int o = 0; o < {y.shape[last]}; o++)"]):
            for k in range(along.kernel):
                here = f"row[o * {along.stride} + {k * along.dilation}]"
                value = here
                if in_place:
                    out(f"const {fold.ctype} v{k} = {here};")
                    value = fold.term(f"v{k}")
                if k == 0:
                    out(f"{fold.ctype} folded = {value};")
                else:
                    out(f"folded = {fold.fold('folded', value)};")
            out(f"y[o] = {after('folded', [*at, 'o'])};")
    return True


def _pooled_by_pixels(
    nest: Nest, sliding: Sequence[Window], fold: RowFold, after: Callable[[str, Sequence[str]], str]
) -> bool:
    """Pixel by pixel, all channels together; False where those do not lie side by side."""
    x = nest.operand(0)
    y = nest.results[0]
    out = nest.out
    channels = y.shape[1]
    side_by_side = all(type(array) is Array and array.step(1) == 1 for array in (x, y))
    if not nest.evenly or not side_by_side or nest.row() == 1 or not 1 < channels <= MOST_IN_ROW:
        return False
    each = f"EACH for (int c = 0; c < {channels}; c++)"
    with nest.each(axes=[0, *range(2, len(y.shape))]) as indices:
        at = [indices[0], "0", *(indices[axis] for axis in range(2, len(y.shape)))]
        out(f"{fold.ctype} row[{channels}];", f"{each} row[c] = {fold.start};")
        with taps(nest, sliding, at[2:]) as tap:
            out(f"const {x.ctype} *const x = &{x.at([*at[:2], *tap.source])};")
            with out.nested([each]):
                out(f"const {fold.ctype} v = x[c];", f"row[c] = {fold.fold('row[c]', fold.term('v'))};")
        out(f"{y.ctype} *const y = &{y.at(at)};")
        with out.nested([each]):
            out(f"y[c] = {after('row[c]', at)};")
    return True


def _pooled_by_taps(nest: Nest, sliding: Sequence[Window], scalar: Scalar) -> bool:
    """Tap by tap, each for all windows, where no window leaves the map; False where that cannot be."""
    y = nest.results[0]
    taps_of = [range(window.kernel) for window in sliding]
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
    if value == -(1 << 63):
        return "INT64_MIN"
    return f"INT64_C({value})"


def _place(nest: Nest, at: Sequence[str]) -> str:
    """Index in the flattened input."""
    shape = nest.call.shape(0)
    if nest.call.attribute("storage_order", 0):
        spatial = range(2, len(shape))
    else:
        spatial = range(len(shape) - 1, 1, -1)
    steps = {0: shape[1] * prod(shape[2:]), 1: prod(shape[2:])}
    step = 1
    for axis in spatial:
        steps[axis], step = step, step * shape[axis]
    return " + ".join(f"(int64_t)({i}) * {steps[axis]}" for axis, i in enumerate(at))


def average_pool(nest: Nest) -> None:
    """The mean of each window, over what it covers of the map, or of the padded map."""
    x = nest.operand(0)
    y = nest.results[0]
    include = bool(nest.call.attribute("count_include_pad", 0))
    counts = [
        np.maximum(window.covered((0, window.size_out), padded=include), 1) for window in windows(nest.call)
    ]
    single = y.dtype == "float32"  # a product in double is rounded to the float that a quotient is
    factors = [_entries(nest, 1.0 / along if single else along.astype(np.float64)) for along in counts]

    def mean(total: str, at: Sequence[str]) -> str:
        product = " * ".join(factor(o) for factor, o in zip(factors, at[2:], strict=True))
        return f"{total} {'*' if single else '/'} ({product})"

    _summed(nest, x, y, lambda v: v, mean)


def _entries(nest: Nest, values: np.ndarray) -> Callable[[str], str]:
    """(index in C) -> C expression: an entry of a table of doubles; one number if all are equal."""
    if not values.size or (values == values[0]).all():
        return lambda index: double(float(values[0])) if values.size else "1.0"
    table = nest.constant(values)
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
    rounded = Sums.of(y.dtype).rounded
    fold = RowFold("double", "0.0", before, lambda a, b: f"({a} + {b})")
    for pooled in (_pooled_by_rows, _pooled_by_pixels):
        if pooled(nest, _trimmed(nest), fold, lambda total, at: rounded(f"({after(total, at)})")):
            return
    with nest.elements() as at:
        out("double sum = 0.0;")
        with taps(nest, _trimmed(nest), at[2:]) as tap:
            out(f"const double v = {x.at([*at[:2], *tap.source])};", f"sum += {before('v')};")
        total = f"({after('sum', at)})"
        out(f"{y.at(at)} = {rounded(total)};")


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
