"""Depthwise convolutions and pools: every channel on its own, taps unrolled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from codegen.elements import BF16
from codegen.epilogue import number
from codegen.kernels import columns
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import Channels, Pixels, added, channels_in, pixels, tile_costs, vectors
from codegen.kernels.window import KernelWindow, declare_rows, pixel_tiles
from codegen.writer import CModule, Writer

MOST = 8  # pixels of a tile
# taps of a tile: of more, the rows of the window are a loop, and its columns those of fewer pixels
UNROLLED = 1024


@dataclass(frozen=True)
class Fold:
    """A reduction of the taps of a channel to one value."""

    start: str  # of the sum; with weights, that is the bias
    tap: str  # C statement: {sum}, {value}, {lanes}; with weights, a product is added
    weights: np.ndarray | None = None  # (channels, taps)
    bias: np.ndarray | None = None  # (channels,)
    divisors: np.ndarray | None = None  # (rows, pixels) of the result


def depthwise(
    out: CModule, fused: FusedKernel, window: KernelWindow, weights: np.ndarray, bias: np.ndarray
) -> None:
    """The kernel of a depthwise convolution.

    `weights`: (channels, 1, kernel rows, kernel columns) float32, `bias`: (channels,) float32.
    """
    _kernel(
        out,
        fused,
        window,
        Fold("", "", weights.reshape(len(weights), -1), bias),
    )


def max_pool(out: CModule, fused: FusedKernel, window: KernelWindow, *, empty: bool) -> None:
    """The kernel of a pool that takes the largest; what is not a number stays.

    `empty`: some windows hold nothing but padding, which gives the least number that there is.
    """
    _kernel(
        out,
        fused,
        window,
        Fold(
            number(float(np.finfo(np.float32).min)) if empty else "-INFINITY",
            "{sum} = most_{lanes}({sum}, {value});",
        ),
    )


def average_pool(out: CModule, fused: FusedKernel, window: KernelWindow, divisors: np.ndarray) -> None:
    """The kernel of an average pool; `divisors`: (rows, pixels) float32, elements that a result averages."""
    _kernel(out, fused, window, Fold("0.0f", "{sum} += {value};", divisors=divisors))


def _kernel(out: CModule, fused: FusedKernel, window: KernelWindow, fold: Fold) -> None:
    fused = fused.with_ends(out)
    source = fused.images(window.map)
    output = fused.images(fused.result)
    size = max(1, min(MOST, output.width, fused.target.accumulators * 2 // 3, UNROLLED // window.kernel[1]))
    along = pixels(output.width, size, window.strides[1], window.reach, source.width)
    across = _across(fused, window, fold, output.channels)
    variants = out.functions(
        fused.name,
        {
            (part.size, part.missing, channels.width): partial(columns.tile, fused, window, part)
            if channels.width == columns.WIDTH
            else partial(_tile, fused, window, fold, part, channels.width)
            for channels in across
            for part in along
        },
    )
    with out.kernel(fused.name):
        out.all(declare_rows(fused, window, window.kernel[0]))
        fused.begin(out)
        if fold.divisors is not None:
            out(f"const float *d = {out.constant(1 / fold.divisors)} + r * {output.width};")
        by_pixels = fused.partitions_better(tile_costs(along), tile_costs(across))
        for channels in fused.tiles(out, across, "t", split=not by_pixels):
            out(f"const int c = {channels.first} + t * {channels.width};")
            weights = _constants(out, window, fold, channels)
            for part, column, place in pixel_tiles(out, fused, window, along, split=by_pixels):
                divide = f", d + {column}" if fold.divisors is not None else ""
                extras = fused.arguments("p", "c", output.channels)
                name = variants[part.size, part.missing, channels.width]
                out(f"{name}(x, from, to, {place} + c{weights}{divide}, y + p * {output.pitch} + c{extras});")


def _across(fused: FusedKernel, window: KernelWindow, fold: Fold, count: int) -> list[Channels]:
    """Tiles of channels: of one vector each.

    Of `columns.WIDTH` channels, where products of pairs can be added.
    """
    wide = 0
    if (
        fold.weights is not None
        and fused.stored(window.map) is BF16
        and fused.target.lanes[0] == 16
        and window.kernel[0] > 1
    ):
        wide = count // columns.WIDTH
    first = wide * columns.WIDTH
    rest = channels_in(vectors(count - first, fused.target), 1)
    before = [Channels(0, (16, 16), wide)] if wide else []
    return before + [part._replace(first=part.first + first) for part in rest]


def _constants(out: CModule, window: KernelWindow, fold: Fold, channels: Channels) -> str:
    """Weights and bias of vector t of some channels, as arguments."""
    if fold.weights is None or fold.bias is None:
        return ""
    first = channels.first
    lanes = channels.width
    stop = channels.first + channels.width * channels.tiles
    if lanes == columns.WIDTH:
        pairs = columns.packed(fold.weights[first:stop], window.kernel[1])
        start = columns.ordered(fold.bias[first:stop])
        w = f"(const pair *)(const void *){out.constant(pairs, 'uint32')}"
        return f", {w} + t * {pairs[0].size}, {out.constant(start)} + t * {lanes}"
    taps = fold.weights[first:stop].reshape(channels.tiles, lanes, -1).transpose(0, 2, 1)
    bias = fold.bias[first:stop]
    return f", {out.constant(taps)} + t * {taps.shape[1] * lanes}, {out.constant(bias)} + t * {lanes}"


def _tile(
    fused: FusedKernel, window: KernelWindow, fold: Fold, part: Pixels, lanes: int, name: str
) -> Writer:
    out = Writer()
    source = fused.images(window.map)
    output = fused.images(fused.result)
    rows, width = window.kernel
    weighted = fold.weights is not None
    divided = fold.divisors is not None
    constants = ", const float *restrict w, const float *restrict b" if weighted else ""
    constants += ", const float *restrict d" if divided else ""
    x = fused.pointer(window.map)
    y = fused.pointer(fused.result)
    with out.block(
        f"static void {name}(const {x}const *x, int from, int to, int at{constants}, {y}restrict "
        f"y{fused.parameters})"
    ):
        for p in range(part.size):
            out(
                f"v{lanes} s{p} = "
                + (f"*(const u{lanes} *)b;" if weighted else f"SPLAT_{lanes}({fold.start});")
            )
        read = [k for k in range(width) if any((p, k) not in part.missing for p in range(part.size))]
        if not read:  # nothing but padding
            out(f"(void)x, (void)from, (void)to, (void)at{', (void)w' if weighted else ''};")
        if rows * width * part.size > UNROLLED:
            heads = {"row": "for (int row = from; row < to; row++)"}
        else:
            heads = {str(row): f"if (from <= {row} && {row} < to)" for row in range(rows)}
        for row, head in heads.items() if read else ():
            with out.block(head):
                out(f"const {x}a = x[{row}] + at;")
                if weighted:
                    first = int(row) * width * lanes if row.isdecimal() else 0
                    offset = "" if row.isdecimal() else f"row * {width * lanes} + "
                    out.all(
                        f"v{lanes} w{k} = *(const u{lanes} *)(w + {offset}{first + k * lanes});" for k in read
                    )
                for p in range(part.size):
                    for column, reach in enumerate(window.reach):
                        if (p, column) not in part.missing:
                            value = fused.load(
                                window.map, lanes, f"a + {(p * window.strides[1] + reach) * source.pitch}"
                            )
                            out(
                                added(f"s{p}", value, f"w{column}", lanes)
                                if weighted
                                else fold.tap.format(sum=f"s{p}", value=value, lanes=lanes)
                            )
        if divided:
            out.all(f"s{p} = s{p} * SPLAT_{lanes}(d[{p}]);" for p in range(part.size))
        fused.store(out, part.size, (lanes,), output.channels, "s{p}")
    return out
