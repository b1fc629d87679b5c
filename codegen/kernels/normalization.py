"""Kernels that fold the channels of every pixel: softmax, layer normalisation, means and sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from codegen.elements import Element
from codegen.epilogue import number
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import channels_in, vectors
from codegen.writer import CModule, Writer


def softmax(out: CModule, fused: FusedKernel, source: int) -> None:
    """The kernel of a softmax over the channels of every pixel, or of its logarithm."""
    output = fused.images(fused.result)
    logarithmic = fused.call.operator.kind == "LogSoftmax"
    with out.kernel(fused.name), _each_pixel(out, fused, source):
        out(f"{fused.pointer(fused.result)}to = y + p * {output.pitch};")
        powers = "to" if fused.stored(fused.result).floats else "powers"
        if powers != "to" and not logarithmic:
            out(f"float *powers = {out.scratch(output.channels)};")
        for lanes in _fold(out, fused, "most", output.channels, "-INFINITY"):
            out(f"most{lanes} = max_{lanes}(most{lanes}, {fused.load(source, lanes, 'from + c')});")
        out(f"const float most = {_largest(fused, output.channels)};")
        for lanes in _fold(out, fused, "sum", output.channels, "0.0f"):
            out(
                f"v{lanes} e = exp_{lanes}({fused.load(source, lanes, 'from + c')} - SPLAT_{lanes}(most));",
                f"sum{lanes} += e;",
            )
            if not logarithmic:
                out(f"*(u{lanes} *)({powers} + c) = e;")
        if logarithmic:
            out(f"const float shift = most + logf({_sum(fused, output.channels)});")
            for lanes in fused.over(out, output.channels):
                out(f"v{lanes} s = {fused.load(source, lanes, 'from + c')} - SPLAT_{lanes}(shift);")
                fused.put(out, "s", lanes, "to + c", "p", "c", output.channels)
            return
        out(f"const float share = 1.0f / ({_sum(fused, output.channels)});")
        for lanes in fused.over(out, output.channels):
            out(f"v{lanes} s = *(const u{lanes} *)({powers} + c) * SPLAT_{lanes}(share);")
            fused.put(out, "s", lanes, "to + c", "p", "c", output.channels)


def layer_normalization(
    out: CModule,
    fused: FusedKernel,
    source: int,
    vectors: Sequence[np.ndarray | str],
    held: Sequence[Element],
    epsilon: float,
) -> None:
    """The kernel of a LayerNormalization over channels.

    `vectors`: (channels,) float32 each, scale and, if there is one, bias: constants, or C expressions for
    their addresses, of elements `held`.
    """
    output = fused.images(fused.result)
    names = ("scale", "bias")[: len(vectors)]
    addresses = [value if isinstance(value, str) else out.constant(value) for value in vectors]
    with out.kernel(fused.name):
        out.all(
            f"const {element.ctype} *{name} = {address};"
            for element, name, address in zip(held, names, addresses, strict=True)
        )
        with _each_pixel(out, fused, source):
            out(f"{fused.pointer(fused.result)}to = y + p * {output.pitch};")
            for lanes in _fold(out, fused, "sum", output.channels, "0.0f"):
                out(f"sum{lanes} += {fused.load(source, lanes, 'from + c')};")
            out(f"const float mean = ({_sum(fused, output.channels)}) * (1.0f / {output.channels}.0f);")
            for lanes in _fold(out, fused, "square", output.channels, "0.0f"):
                out(
                    f"v{lanes} d = {fused.load(source, lanes, 'from + c')} - SPLAT_{lanes}(mean);",
                    f"square{lanes} += d * d;",
                )
            out(
                f"const float share = 1.0f / sqrtf(({_sum(fused, output.channels, 'square')}) * (1.0f / "
                f"{output.channels}.0f) + {number(epsilon)});"
            )
            for lanes in fused.over(out, output.channels):
                out(
                    f"v{lanes} s = ({fused.load(source, lanes, 'from + c')} - SPLAT_{lanes}(mean)) * "
                    f"SPLAT_{lanes}(share);"
                )
                loads = [
                    element.load(lanes, f"{name} + c") for element, name in zip(held, names, strict=True)
                ]
                out(f"s = s * {' + '.join(loads)};")
                fused.put(out, "s", lanes, "to + c", "p", "c", output.channels)


def sums(out: CModule, fused: FusedKernel, source: int, factor: str) -> None:
    """The kernel of a sum over the channels of every pixel, times a factor in C."""
    read = fused.images(source)
    output = fused.images(fused.result)
    pixel, channel = (
        ("p", "0") if output.channels == 1 else (f"p / {output.channels}", f"p % {output.channels}")
    )
    with out.kernel(fused.name), _each_pixel(out, fused, source):
        for lanes in _fold(out, fused, "sum", read.channels, "0.0f"):
            out(f"sum{lanes} += {fused.load(source, lanes, 'from + c')};")
        out(f"float s = ({_sum(fused, read.channels)}) * {factor};")
        out.all(fused.finish("s", 1, pixel, channel, output.channels))
        out(
            fused.stored(fused.result).write(
                f"y[{f'{pixel} * {output.pitch} + {channel}' if output.gap else 'p'}]", "s"
            )
        )


@contextmanager
def _each_pixel(out: CModule, fused: FusedKernel, source: int) -> Iterator[None]:
    """A loop over the pixels p of row r.

    `from`: address of a pixel of the map, `y`: of the row of the result.
    """
    read = fused.images(source)
    out(f"const {fused.pointer(source)}a = {fused.address(source, 'r')};")
    fused.begin(out)
    with fused.each_pixel(out, read.pixels):
        out(f"const {fused.pointer(source)}from = a + p * {read.pitch};")
        yield


def _widths(fused: FusedKernel, count: int) -> Sequence[int]:
    return [part.width for part in channels_in(vectors(count, fused.target), 1)]


def _fold(out: Writer, fused: FusedKernel, name: str, count: int, start: str) -> Iterator[int]:
    """Loops over channels c from 0 on, as `FusedKernel.over`.

    Before them, a vector for every width is declared: `name` and its lanes.
    """
    out.all(f"v{lanes} {name}{lanes} = SPLAT_{lanes}({start});" for lanes in _widths(fused, count))
    yield from fused.over(out, count)


def _sum(fused: FusedKernel, count: int, name: str = "sum") -> str:
    return " + ".join(f"sum_{lanes}({name}{lanes})" for lanes in _widths(fused, count))


def _largest(fused: FusedKernel, count: int) -> str:
    largest = ""
    for lanes in _widths(fused, count):
        part = f"largest_{lanes}(most{lanes})"
        largest = f"max_1({largest}, {part})" if largest else part
    return largest
