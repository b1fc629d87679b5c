"""Kernels that change the number of rows and pixels: Resize, DepthToSpace, ConvTranspose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from codegen.epilogue import number
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import added, channels_in, vectors
from codegen.writer import CModule


def interpolation(
    out: CModule,
    fused: FusedKernel,
    source: int,
    rows: tuple[np.ndarray, np.ndarray],
    columns: tuple[np.ndarray, np.ndarray],
) -> None:
    """The kernel of a Resize: every element is a weighted sum.

    `rows`, `columns`: (results, taps) indices, and (results, taps) float64 weights.
    """
    output = fused.images(fused.result)
    read = fused.images(source)
    down = rows[0].shape[1]
    across = columns[0].shape[1]
    with out.kernel(fused.name):
        row = fused.address(source, f"rows[r * {down} + i]")
        if "rows" in row:  # not of a map of one row
            out.all(_table("int", "rows", map(str, rows[0].reshape(-1).tolist())))
        out.all(_table("float", "heights", map(number, rows[1].reshape(-1).tolist())))
        out.all(_table("int", "columns", (str(k * read.pitch) for k in columns[0].reshape(-1).tolist())))
        out.all(_table("float", "widths", map(number, columns[1].reshape(-1).tolist())))
        out(f"const {fused.pointer(source)}x[{down}];")
        out(f"for (int i = 0; i < {down}; i++) x[i] = {row};")
        fused.begin(out)
        with fused.each_pixel(out, output.pixels):
            for lanes in fused.over(out, output.channels):
                out(f"v{lanes} s = SPLAT_{lanes}(0.0f);")
                out(f"for (int i = 0; i < {down}; i++)")
                out(f"    for (int j = 0; j < {across}; j++)")
                weight = f"SPLAT_{lanes}(heights[r * {down} + i] * widths[p * {across} + j])"
                value = fused.load(source, lanes, f"x[i] + columns[p * {across} + j] + c")
                out(f"        {added('s', weight, value, lanes)}")
                fused.put(out, "s", lanes, f"y + p * {output.pitch} + c", "p", "c", output.channels)


def depth_to_space(
    out: CModule, fused: FusedKernel, source: int, block: int, *, channels_outermost: bool
) -> None:
    """The kernel of a DepthToSpace; `channels_outermost`: mode CRD."""
    output = fused.images(fused.result)
    read = fused.images(source)
    with out.kernel(fused.name):
        out(f"const {fused.pointer(source)}a = {fused.address(source, f'(r / {block})')};")
        fused.begin(out)
        with fused.each_pixel(out, output.pixels):
            part = f"(r % {block} * {block} + p % {block})"
            step, first = (block * block, part) if channels_outermost else (1, f"{part} * {output.channels}")
            out(f"const {fused.pointer(source)}from = a + p / {block} * {read.pitch} + {first};")
            if step == 1:
                for lanes in fused.over(out, output.channels):
                    out(f"v{lanes} s = {fused.load(source, lanes, 'from + c')};")
                    fused.put(out, "s", lanes, f"y + p * {output.pitch} + c", "p", "c", output.channels)
                return
            with out.block(f"for (int c = 0; c < {output.channels}; c++)"):
                out(f"float s = {fused.stored(source).read(f'from[c * {step}]')};")
                out.all(fused.finish("s", 1, "p", "c", output.channels))
                out(fused.stored(fused.result).write(f"y[p * {output.pitch} + c]", "s"))


VECTORS, PIXELS = 4, 6  # of a register tile of a ConvTranspose


class Transposed(NamedTuple):
    """A ConvTranspose without groups."""

    source: int  # the map that it reads
    weights: np.ndarray  # (input channels, output channels, kernel rows, kernel columns) float32
    bias: np.ndarray  # (output channels,) float32
    axes: tuple[tuple[int, int, int], ...]  # stride, dilation and pad of rows and of pixels


def transposed(out: CModule, fused: FusedKernel, how: Transposed) -> None:
    """The kernel of a ConvTranspose.

    Sums are kept in the row of the result, or where that holds no floats in a row beside it.
    """
    source, weights, bias, axes = how
    output = fused.images(fused.result)
    read = fused.images(source)
    inputs, outputs, tall, wide = weights.shape
    lanes = fused.target.lanes[0]
    if 2 * outputs * -(-inputs // lanes) < inputs * len(vectors(outputs, fused.target)):
        _transposed_dots(out, fused, how)
        return
    packed = out.constant(weights.transpose(2, 3, 0, 1))
    start = out.constant(bias)
    (down, fall, above), (across, spread, left) = axes
    sums, pitch = ("y", output.pitch) if fused.stored(fused.result).floats else ("sums", outputs)
    # for each column of the kernel: pixels of the map whose results lie in the row
    starts = [left - column * spread for column in range(wide)]
    first = [max(-(-begin // across), 0) for begin in starts]
    last = [min((output.pixels - 1 + begin) // across, read.pixels - 1) for begin in starts]
    with out.kernel(fused.name):
        out.all(_table("int", "first", map(str, first)))
        out.all(_table("int", "last", map(str, last)))
        fused.begin(out)
        if sums != "y":
            out(f"float *sums = {out.scratch(output.pixels * outputs)};")
        tiles = channels_in(vectors(outputs, fused.target), VECTORS)
        for channels in fused.tiles(out, tiles, "t", split=True):
            places = [(sum(channels.lanes[:k]), lanes) for k, lanes in enumerate(channels.lanes)]
            out(f"const int c = {channels.first} + t * {channels.width};")
            with out.block(f"for (int p = 0; p < {output.pixels}; p++)"):
                out.all(
                    f"*(u{lanes} *)({sums} + p * {pitch} + c + {at}) = "
                    f"*(const u{lanes} *)({start} + c + {at});"
                    for at, lanes in places
                )
            with out.block(f"for (int k = 0; k < {tall}; k++)"):
                out(f"const int h = r + {above} - k * {fall};")
                out(f"if (h < 0 || h % {down} || h / {down} >= {read.rows}) continue;")
                out(f"const {fused.pointer(source)}x = {fused.address(source, f'(h / {down})')};")
                with out.block(f"for (int l = 0; l < {wide}; l++)"):
                    out(f"const float *w = {packed} + (k * {wide} + l) * {inputs * outputs} + c;")
                    out("int q = first[l];")
                    for size in (PIXELS, 1):
                        with out.block(f"for (; q + {size - 1} <= last[l]; q += {size})"):
                            out(f"float *s = {sums} + (q * {across} - {left} + l * {spread}) * {pitch} + c;")
                            _add_tap(out, fused, source, size, places, (inputs, outputs, across * pitch))
            with out.block(f"for (int p = 0; p < {output.pixels}; p++)"):
                for at, lanes in places:
                    with out.block(""):
                        out(f"v{lanes} s = *(const u{lanes} *)({sums} + p * {pitch} + c + {at});")
                        place = f"y + p * {output.pitch} + c + {at}"
                        fused.put(out, "s", lanes, place, "p", f"(c + {at})", outputs)


def _transposed_dots(out: CModule, fused: FusedKernel, how: Transposed) -> None:
    """As `transposed`, for few output channels: each result is a product over vectors of input channels."""
    source, weights, bias, axes = how
    output = fused.images(fused.result)
    read = fused.images(source)
    lanes = fused.target.lanes[0]
    inputs, outputs, tall, wide = weights.shape
    packed = out.constant(weights.transpose(2, 3, 1, 0))
    start = out.constant(bias)
    (down, fall, above), (across, spread, left) = axes
    with out.kernel(fused.name):
        fused.begin(out)
        with fused.each_pixel(out, output.pixels):
            out.all(f"v{lanes} s{o} = SPLAT_{lanes}(0.0f);" for o in range(outputs))
            out.all(f"float t{o} = {start}[{o}];" for o in range(outputs))
            with out.block(_taps_of(f"r + {above}", "k", tall, down, fall)):
                out(f"const int h = r + {above} - k * {fall};")
                out(f"if (h < 0 || h % {down} || h / {down} >= {read.rows}) continue;")
                out(f"const {fused.pointer(source)}x = {fused.address(source, f'(h / {down})')};")
                with out.block(_taps_of(f"p + {left}", "l", wide, across, spread)):
                    out(f"const int q = p + {left} - l * {spread};")
                    out(f"if (q < 0 || q % {across} || q / {across} >= {read.pixels}) continue;")
                    out(f"const {fused.pointer(source)}a = x + q / {across} * {read.pitch};")
                    out(f"const float *w = {packed} + (k * {wide} + l) * {outputs * inputs};")
                    whole = inputs // lanes * lanes
                    with out.block(f"for (int i = 0; i < {whole}; i += {lanes})"):
                        out(f"const v{lanes} z = {fused.load(source, lanes, 'a + i')};")
                        for o in range(outputs):
                            weight = f"*(const u{lanes} *)(w + {o * inputs} + i)"
                            out(added(f"s{o}", "z", weight, lanes))
                    if whole < inputs:
                        with out.block(f"for (int i = {whole}; i < {inputs}; i++)"):
                            out(f"const float z = {fused.stored(source).read('a[i]')};")
                            out.all(added(f"t{o}", "z", f"w[{o * inputs} + i]", 1) for o in range(outputs))
            for o in range(outputs):
                with out.block(""):
                    out(f"float s = t{o} + {f'sum_{lanes}(s{o})' if lanes > 1 else f's{o}'};")
                    fused.put(out, "s", 1, f"y + p * {output.pitch} + {o}", "p", o, outputs)


def _taps_of(place: str, index: str, taps: int, stride: int, dilation: int) -> str:
    """The head of a loop over the taps that may meet a place of the result."""
    if dilation == 1:  # every `stride`-th of them
        return f"for (int {index} = ({place}) % {stride}; {index} < {taps}; {index} += {stride})"
    return f"for (int {index} = 0; {index} < {taps}; {index}++)"


def _add_tap(
    out: CModule,
    fused: FusedKernel,
    source: int,
    size: int,
    places: Sequence[tuple[int, int]],
    steps: tuple[int, int, int],
) -> None:
    """Add the products of one tap to the sums `s` of some pixels, from pixel `q` of the map on.

    `places`: offset and lanes of each vector of channels; `steps`: input channels, floats from the weights of
    one to those of the next, floats from the sums of a pixel to those of the next.
    """
    inputs, outputs, step = steps
    pitch = fused.images(source).pitch
    for j in range(size):
        out.all(
            f"v{lanes} s{j}_{k} = *(const u{lanes} *)(s + {j * step + at});"
            for k, (at, lanes) in enumerate(places)
        )
    with out.block(f"for (int i = 0; i < {inputs}; i++)"):
        out.all(
            f"const v{lanes} w{k} = *(const u{lanes} *)(w + i * {outputs} + {at});"
            for k, (at, lanes) in enumerate(places)
        )
        for j in range(size):
            out(f"const float a{j} = {fused.stored(source).read(f'x[(q + {j}) * {pitch} + i]')};")
            out.all(added(f"s{j}_{k}", f"a{j}", f"w{k}", lanes) for k, (_, lanes) in enumerate(places))
    for j in range(size):
        out.all(f"*(u{lanes} *)(s + {j * step + at}) = s{j}_{k};" for k, (at, lanes) in enumerate(places))


def _table(kind: str, name: str, values: Iterable[str]) -> list[str]:
    """A constant array in C."""
    entries = [*values]
    lines = [", ".join(entries[k : k + 16]) for k in range(0, len(entries), 16)]
    return [f"static const {kind} {name}[] = {{", *(f"    {line}," for line in lines), "};"]
