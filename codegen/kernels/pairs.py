"""Convolutions of maps in bfloat16: products of pairs of input channels, added to sums in float."""

from __future__ import annotations

import numpy as np

from codegen.elements import paired
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import Channels, Pixels
from codegen.kernels.window import KernelWindow
from codegen.writer import Writer

# elements that a row of the kernel reads, at most, that are taken as one run: pairs may then have elements of
# two pixels
FLAT = 32


def is_flat(fused: FusedKernel, window: KernelWindow) -> bool:
    """Whether what a row of the kernel reads for one pixel lies side by side, and is little."""
    source = window.read(fused)
    alone = len(window.reach) == 1 or (window.dilations[1] == 1 and source.pitch == source.channels)
    return alone and len(window.reach) * source.channels <= FLAT


def packed(weights: np.ndarray, *, flat: bool) -> np.ndarray:
    """(tiles, kernel rows, runs, pairs of a run, channels of a tile) uint32 pairs of weights of tiles.

    `weights`: (tiles, channels of a tile, input channels, kernel rows, kernel columns) float32. A run is a
    column of the kernel, or, if `flat`, a row.
    """
    runs = weights.transpose(0, 3, 4, 2, 1)
    if flat:
        runs = runs.reshape(*runs.shape[:2], 1, -1, runs.shape[-1])
    return paired(runs)


def tile(fused: FusedKernel, window: KernelWindow, part: Pixels, channels: Channels, name: str) -> Writer:
    """The function of a tile."""
    out = Writer()
    output = fused.images(fused.result)
    offsets = [sum(channels.lanes[:k]) for k in range(len(channels.lanes))]
    x = fused.pointer(window.map)
    y = fused.pointer(fused.result)
    head = (
        f"APART void {name}(const {x}const *x, int from, int to, int at, const pair *restrict w, const "
        f"float *restrict b, {y}restrict y"
    )
    with out.block(f"{head}{fused.parameters})"):
        for p in range(part.size):
            out.all(
                f"v{lanes} s{p}_{k} = *(const u{lanes} *)(b + {offsets[k]});"
                for k, lanes in enumerate(channels.lanes)
            )
        if part.size * len(window.reach) == len(part.missing):  # nothing but padding
            out("(void)x, (void)at, (void)w;")
        with out.block("for (int k = from; k < to; k++)"):
            if is_flat(fused, window):
                _row(out, fused, window, part, channels)
            else:
                _columns(out, fused, window, part, channels)
        fused.store_tile(out, part.size, channels, output.channels, "s{p}_{k}")
    return out


def weighed(out: Writer, channels: Channels, where: str, values: dict[int, str]) -> None:
    """C statements: pairs of weights times a pair of each pixel, added to the sums `s{pixel}_{vector}`.

    `where`: address of the weights; `values`: pixel -> its pair, as C expressions.
    """
    at = 0
    for k, lanes in enumerate(channels.lanes):
        out(f"const i{lanes} w{k} = *(const p{lanes} *)({where} + {at});")
        at += lanes
    widest = max(channels.lanes)
    for p, value in values.items():
        out(f"const i{widest} a{p} = EVERY_{widest}({value});")
        out.all(
            f"s{p}_{k} = dot_{lanes}(s{p}_{k}, {first(f'a{p}', widest, lanes)}, w{k});"
            for k, lanes in enumerate(channels.lanes)
        )


def first(pairs: str, widest: int, lanes: int) -> str:
    """C expression: the first `lanes` of a vector of `widest` pairs."""
    if lanes == widest:
        return pairs
    return f"FIRST_{widest}_{lanes}({pairs})"


def _row(out: Writer, fused: FusedKernel, window: KernelWindow, part: Pixels, channels: Channels) -> None:
    """Row k of the kernel, pair by pair; an element beside the row counts as 0."""
    source = window.read(fused)
    columns = len(window.reach)
    count = columns * source.channels
    out(
        f"const {fused.pointer(window.map)}a = x[k] + at;",
        f"const pair *v = w + k * {-(-count // 2) * channels.width};",
    )
    for j in range(0, count, 2):
        values: dict[int, str] = {}
        for p in range(part.size):
            first = (p * window.strides[1] + window.reach[0]) * source.pitch + j
            there = [e < count and (p, e // source.channels) not in part.missing for e in (j, j + 1)]
            if any(there):
                values[p] = (
                    f"pair_at(a + {first})"
                    if all(there)
                    else f"a[{first}]"
                    if there[0]
                    else f"(pair)a[{first + 1}] << 16"
                )
        if values:
            with out.block(""):
                weighed(out, channels, f"v + {j // 2 * channels.width}", values)


def _columns(out: Writer, fused: FusedKernel, window: KernelWindow, part: Pixels, channels: Channels) -> None:
    """Row k of the kernel, column by column."""
    source = window.read(fused)
    pairs = -(-source.channels // 2)
    for column, reach in enumerate(window.reach):
        there = [p for p in range(part.size) if (p, column) not in part.missing]
        if not there:
            continue
        with out.block(""):
            moves = {p: p * window.strides[1] * source.pitch for p in there}
            out(f"const {fused.pointer(window.map)}a = x[k] + at + {reach * source.pitch};")
            out(f"const pair *v = w + (k * {len(window.reach)} + {column}) * {pairs * channels.width};")
            with out.block(f"for (int i = 0; i < {source.channels // 2}; i++)"):
                weighed(out, channels, "v", {p: f"pair_at(a + {move})" for p, move in moves.items()})
                out("a += 2;", f"v += {channels.width};")
            if source.channels % 2:
                with out.block(""):
                    weighed(out, channels, "v", {p: f"a[{move}]" for p, move in moves.items()})
