"""Loops over the elements that a window covers, of those that lie in the map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from codegen.loops.nest import Nest
from lfopt.ops.windows import Window


class Taps(NamedTuple):
    """Indices of loops over a window: C expressions of type int, one for each spatial axis."""

    kernel: list[str]  # index within the window
    source: list[str]  # index in the map


@contextmanager
def taps(nest: Nest, sliding: Sequence[Window], at: Sequence[str], name: str = "k") -> Iterator[Taps]:
    """Loops over the window of the result at a spatial index, axis by axis, outermost first."""
    tap = Taps([], [])
    heads = list[str]()
    for axis, (window, o) in enumerate(zip(sliding, at, strict=True)):
        k = f"{name}{axis}"
        if window.size == 1 and is_inside(window):
            heads.append(_whole(window, k))
            tap.source.append("0")
        elif window.transposed:
            start = _sum(o, 1, window.pad)
            heads.append(_transposed(window, k, start))
            tap.source.append(f"({start} - {_times(k, window.dilation)}) / {window.stride}")
        else:
            start = _sum(o, window.stride, -window.pad)
            heads.append(_direct(window, k, start))
            tap.source.append(f"({start} + {_times(k, window.dilation)})")
        tap.kernel.append(k)
    with nest.out.nested(heads):
        yield tap


def is_inside(window: Window) -> bool:
    """Whether no element lies in padding."""
    last = (window.size_out - 1) * window.stride - window.pad + (window.kernel - 1) * window.dilation
    return not window.transposed and window.pad <= 0 and last < window.size


def _whole(window: Window, k: str) -> str:
    return f"for (int {k} = 0; {k} < {window.kernel}; {k}++)"


def _direct(window: Window, k: str, start: str) -> str:
    if is_inside(window):
        return _whole(window, k)
    if window.dilation == 1:
        first = f"larger(-{start}, 0)"
    else:
        first = f"(larger(-{start}, 0) + {window.dilation - 1}) / {window.dilation}"
    return (
        f"for (int {k} = {first}; {k} < {window.kernel} && {start} + {_times(k, window.dilation)} < "
        f"{window.size}; {k}++)"
    )


def _transposed(window: Window, k: str, start: str) -> str:
    """Those taps that a whole number of strides leads to."""
    head = f"for (int {k} = 0; {k} < {window.kernel} && {start} >= {_times(k, window.dilation)}; {k}++)"
    there = f"({start} - {_times(k, window.dilation)}) / {window.stride} < {window.size}"
    if window.stride > 1:
        there += f" && ({start} - {_times(k, window.dilation)}) % {window.stride} == 0"
    return f"{head} if ({there})"


def _times(index: str, factor: int) -> str:
    if factor == 1:
        return index
    return f"{index} * {factor}"


def _sum(index: str, factor: int, shift: int) -> str:
    if not shift:
        if factor == 1:
            return index
        return f"({index} * {factor})"
    return f"({_times(index, factor)} {'-' if shift < 0 else '+'} {abs(shift)})"
