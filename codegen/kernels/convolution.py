"""Convolutions without groups, and products with constant matrices, in register tiles.

Tiles are pixels x channels, summed over all taps and input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from codegen.kernels import pairs
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import Channels, Pixels, added, pixels, tile, tile_costs
from codegen.kernels.window import KernelWindow, declare_rows
from codegen.writer import CModule, Writer

CHUNK = 128  # channels that are summed before they are added to the rest, at most
FEW = 32  # channels: so many taps of a row of the kernel are summed together


def convolution(
    out: CModule, fused: FusedKernel, window: KernelWindow, weights: np.ndarray, bias: np.ndarray
) -> None:
    """The kernel of a convolution without groups.

    `weights`: (output channels, input channels, kernel rows, kernel columns) float32, `bias`: (output
    channels,) float32.
    """
    source, output = fused.images(window.map), fused.images(fused.result)
    across, size = tile(output.channels, output.pixels, fused.target)
    along = pixels(output.pixels, size, window.strides[1], window.reach, source.pixels)
    rows, in_pairs = weights.shape[2], not fused.stored(window.map).floats
    write = pairs.tile if in_pairs else _tile
    variants = out.functions(
        fused.name,
        {
            (part.size, part.missing, channels.lanes): partial(write, fused, window, part, channels)
            for channels in across
            for part in along
        },
    )
    with out.kernel(fused.name):
        out.all(declare_rows(fused, window, rows))
        fused.begin(out)
        by_pixels = fused.partitions_better(tile_costs(along), tile_costs(across))
        for channels in fused.tiles(out, across, "t", split=not by_pixels):
            packed = (
                pairs.packed(weights, channels, flat=pairs.is_flat(fused, window))
                if in_pairs
                else _packed(weights, channels)
            )
            place = out.constant(packed, "uint32" if in_pairs else "float32")
            start = out.constant(bias[channels.first : channels.first + channels.width * channels.tiles])
            step = packed[0].size
            if in_pairs:
                out(
                    f"const pair *w = (const pair *)(const void *){place} + (size_t)t * {step};",
                    f"const float *b = {start} + t * {channels.width};",
                )
            else:
                out(f"const float *w = {place} + (size_t)t * {step}, *b = {start} + t * {channels.width};")
            out(f"const int c = {channels.first} + t * {channels.width};")
            for part in fused.tiles(out, along, "q", split=by_pixels):
                name = variants[part.size, part.missing, channels.lanes]
                out(f"const int p = {part.first} + q * {part.size};")
                move = f"p * {window.strides[1] * source.pitch}"
                out(
                    f"{name}(x, from, to, {move}, w, b, y + p * {output.pitch} + "
                    f"c{fused.arguments('p', 'c', output.channels)});"
                )


def _packed(weights: np.ndarray, channels: Channels) -> np.ndarray:
    """(tiles, kernel rows, kernel columns, input channels, channels of a tile) float32 weights."""
    part = weights[channels.first : channels.first + channels.width * channels.tiles]
    return part.reshape(channels.tiles, channels.width, *weights.shape[1:]).transpose(0, 3, 4, 2, 1)


def _tile(fused: FusedKernel, window: KernelWindow, part: Pixels, channels: Channels, name: str) -> Writer:
    """The function of a tile.

    Sums of sums lose less: what a tap (or a row of taps of few channels) adds up to is added to the rest at
    its end.
    """
    out, source, output = Writer(), fused.images(window.map), fused.images(fused.result)
    inputs = source.channels
    offsets = [sum(channels.lanes[:k]) for k in range(len(channels.lanes))]
    columns, per_tap = len(window.reach), inputs * channels.width
    split = window.kernel != (1, 1) or inputs > CHUNK
    by_tap = split and inputs >= FEW
    x, y = fused.pointer(window.map), fused.pointer(fused.result)
    head = (
        f"APART void {name}(const {x}const *x, int from, int to, int at, const float *restrict w, const "
        f"float *restrict b, {y}restrict y"
    )

    def begin(pixels: Sequence[int]) -> None:
        out.all(
            f"v{lanes} s{p}_{k} = SPLAT_{lanes}(0.0f);"
            for p in pixels
            for k, lanes in enumerate(channels.lanes)
        )

    def end(pixels: Sequence[int]) -> None:
        out.all(f"t{p}_{k} += s{p}_{k};" for p in pixels for k in range(len(channels.lanes)))

    with out.block(f"{head}{fused.parameters})"):
        for p in range(part.size):
            for k, lanes in enumerate(channels.lanes):
                out(f"v{lanes} {'t' if split else 's'}{p}_{k} = *(const u{lanes} *)(b + {offsets[k]});")
        if part.size * columns == len(part.missing):  # nothing but padding
            out("(void)x, (void)at, (void)w;")
        with out.block("for (int k = from; k < to; k++)"):
            if split and not by_tap:
                begin(range(part.size))
            for column, reach in enumerate(window.reach):
                there = [p for p in range(part.size) if (p, column) not in part.missing]
                if not there:
                    continue
                with out.block(""):
                    out(
                        f"const float *a = x[k] + at + {reach * source.pitch}, *v = w + (k * {columns} + "
                        f"{column}) * {per_tap};"
                    )
                    chunks = -(-inputs // CHUNK)
                    length = inputs if not by_tap or chunks == 1 else -(-inputs // chunks)
                    with out.block(
                        f"for (int left = {inputs}; left > 0; left -= {length})" if length < inputs else ""
                    ):
                        if by_tap:
                            begin(there)
                        turns = (
                            str(inputs)
                            if length == inputs
                            else str(length)
                            if inputs % length == 0
                            else f"smaller(left, {length})"
                        )
                        with out.block(f"for (int i = 0, turns = {turns}; i < turns; i++)"):
                            for k, lanes in enumerate(channels.lanes):
                                out(f"v{lanes} w{k} = *(const u{lanes} *)(v + {offsets[k]});")
                            for p in there:
                                out(f"float a{p} = a[{p * window.strides[1] * source.pitch}];")
                                out.all(
                                    added(f"s{p}_{k}", f"a{p}", f"w{k}", lanes)
                                    for k, lanes in enumerate(channels.lanes)
                                )
                            out("a++;", f"v += {channels.width};")
                        if by_tap:
                            end(there)
            if split and not by_tap:
                end(range(part.size))
        fused.store(out, part.size, channels.lanes, output.channels, "t{p}_{k}" if split else "s{p}_{k}")
    return out
