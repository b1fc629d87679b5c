"""Depthwise convolutions of maps of bytes: up to four rows of the window are one instruction's products.

Of 64 channels side by side, the rows' bytes are brought together within lanes of 16 bytes, and packing
results undoes that: so weights and factors of the channels lie in the order in which they come. Fewer
channels than 64 go by 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from codegen.kernels.dots import Products, extents, is_signed, ones_of, rows, tile_function
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.packed import BLOCK, LANES, Bytes, constants
from codegen.kernels.tiles import Channels, pixels, tile_costs
from codegen.kernels.window import KernelWindow
from codegen.writer import CModule, Writer

PIXELS = 8  # of a tile
# channels of 64, as four vectors hold them: four of every lane of 16 bytes each
IN_LANES = np.arange(BLOCK).reshape(4, 4, 4).transpose(1, 0, 2).reshape(-1)


def depthwise(out: CModule, fused: FusedKernel, window: KernelWindow, products: Products) -> None:
    """The kernel of a convolution of every channel on its own."""
    source = extents(fused, window.map)
    output = extents(fused, fused.result)
    full = output.channels // BLOCK
    products = _in_lanes(products, full)
    across = [Channels(0, (LANES,) * 4, full)] * (full > 0)
    across += [Channels(full * BLOCK, (LANES,), -(-(output.channels % BLOCK) // LANES))] * (
        output.channels % BLOCK > 0
    )
    along = pixels(output.pixels, min(PIXELS, output.pixels), window.strides[1], (), source.pixels)
    names = out.functions(
        fused.name,
        {
            (size, wide): partial(_tile, fused, window, size, wide, products)
            for wide in (len(channels.lanes) for channels in across)
            for size in (part.size for part in along)
        },
    )
    taps = _taps(products.held[:, 0])
    begin = products.constants(is_signed(fused, window.map))
    ends = Bytes.of(fused)
    with out.kernel(fused.name):
        rows(out, fused, window, products.zero_in, LANES)
        out(f"uint8_t *y = (uint8_t *){fused.address(fused.result, 'r')};")
        out.all(ends.declaration(out))
        by_pixels = fused.partitions_better(tile_costs(along), tile_costs(across))
        for channels in fused.tiles(out, across, "t", split=not by_pixels):
            first = channels.first // LANES
            wide = len(channels.lanes)
            stop = first + wide * channels.tiles
            w = taps[first:stop].reshape(channels.tiles, wide, *taps.shape[1:]).transpose(0, 2, 3, 1, 4, 5)
            out(f"const int8_t *w = {constants(out, np.ascontiguousarray(w))} + t * {w[0].size};")
            out(
                f"const int32_t *by = {constants(out, begin[first:stop])} + t * "
                f"{wide * products.rows * LANES};"
            )
            out(f"const int c = {channels.first} + t * {channels.width};")
            for part in fused.tiles(out, along, "q", split=by_pixels):
                out(f"const int p = {part.first} + q * {part.size};")
                move = f"p * {window.strides[1] * source.channels} + c"
                out(
                    f"{names[part.size, wide]}(x, {move}, w, by, y + p * {output.channels} + c, "
                    f"c{ends.argument});"
                )


def _in_lanes(products: Products, full: int) -> Products:
    """Products with the channels of `full` blocks of 64 in the order in which vectors hold them."""
    order = np.arange(len(products.weights))
    order[: full * BLOCK] = (np.arange(full)[:, None] * BLOCK + IN_LANES).reshape(-1)
    fields = {name: getattr(products, name)[order] for name in ("weights", "bias", "multiplier", "shift")}
    return replace(products, **fields)


def _taps(weights: np.ndarray) -> np.ndarray:
    """(vectors, fours of rows, columns, 16, 4) int8 of weights (channels, rows, columns)."""
    taps = np.pad(weights, ((0, -len(weights) % LANES), (0, -weights.shape[1] % 4), (0, 0)))
    return taps.reshape(-1, LANES, taps.shape[1] // 4, 4, weights.shape[2]).transpose(0, 2, 4, 1, 3)


def _tile(
    fused: FusedKernel, window: KernelWindow, size: int, wide: int, products: Products, name: str
) -> Writer:
    """The function of a tile, pixel by pixel of the row that is read.

    Each is added to the pixels of the result that read it; those that are complete are stored.
    """
    out = Writer()
    source = extents(fused, window.map)
    output = extents(fused, fused.result)
    (height, width), flip, ends = window.kernel, is_signed(fused, window.map), Bytes.of(fused)
    fours = -(-height // 4)
    beside = products.shifted is not None
    per = products.rows * LANES
    with tile_function(out, fused, name):
        out("(void)c;")
        ends.load(out)
        out.all(f"const uint8_t *x{j} = x[{j}] + at;" for j in range(height))
        for g in range(fours):
            for k in range(width):
                out.all(
                    f"const __m512i w{g}_{k}_{v} = _mm512_loadu_si512(w + "
                    f"{((g * width + k) * wide + v) * BLOCK});"
                    for v in range(wide)
                )
        for place, uses, begun, finished in _schedule(size, window):
            for p in begun:
                out.all(f"__m512i s{p}_{v} = words(by + {v * per});" for v in range(wide))
                out.all(f"__m512i e{p}_{v} = _mm512_setzero_si512();" for v in range(wide) if beside)
            for g in range(fours):
                there = range(4 * g, min(4 * g + 4, height))
                with out.block(""):
                    read = _four_rows if wide == 4 else _one_vector
                    read(out, [f"x{j} + {place * source.channels}" for j in there], flip=flip)
                    for p, k in uses:
                        out.all(f"ADD_PRODUCTS(s{p}_{v}, a{v}, w{g}_{k}_{v});" for v in range(wide))
                        out.all(
                            f"ADD_PRODUCTS(e{p}_{v}, a{v}, {ones_of(len(there))});"
                            for v in range(wide)
                            if beside
                        )
            for p in finished:
                if beside:
                    highers = [f"words(by + {v * per + per - LANES})" for v in range(wide)]
                    out.all(
                        f"s{p}_{v} = _mm512_add_epi32(s{p}_{v}, _mm512_mullo_epi32(e{p}_{v}, {highers[v]}));"
                        for v in range(wide)
                    )
                values = [products.scaling.value(f"s{p}_{v}", f"by + {v * per + LANES}") for v in range(wide)]
                some = (
                    f"(c + {LANES} <= {output.channels} ? 0xffff : {(1 << output.channels % LANES) - 1:#x})"
                    if output.channels % LANES
                    else ""
                )
                ends.put(
                    out, f"y + {p * output.channels}", values, some if wide == 1 else "", in_lanes=wide == 4
                )
    return out


def _schedule(
    size: int, window: KernelWindow
) -> Iterator[tuple[int, list[tuple[int, int]], list[int], list[int]]]:
    """For every pixel that is read: (pixel, [(result, column of the window)], results begun, and ended)."""
    reads: dict[int, list[tuple[int, int]]] = {}
    for p in range(size):
        for k in range(window.kernel[1]):
            reads.setdefault(p * window.strides[1] + k * window.dilations[1], []).append((p, k))
    begun = set[int]()
    for place, uses in sorted(reads.items()):
        first = [p for p, _ in uses if p not in begun]
        begun.update(first)
        yield place, uses, first, [p for p, k in uses if k == window.kernel[1] - 1]


def _four_rows(out: Writer, addresses: list[str], *, flip: bool) -> None:
    """Vectors a0 to a3 of 64 channels: bytes of up to four rows side by side.

    Rows that are not there meet weights of 0.
    """
    for j, address in enumerate(addresses):
        value = f"_mm512_loadu_si512({address})"
        out(f"const __m512i r{j} = {f'_mm512_xor_si512({value}, FLIP)' if flip else value};")
    r = [f"r{min(j, len(addresses) - 1)}" for j in range(4)]
    for half in ("lo", "hi"):
        out(
            f"const __m512i {half}_0 = _mm512_unpack{half}_epi8({r[0]}, {r[1]}), {half}_1 = "
            f"_mm512_unpack{half}_epi8({r[2]}, {r[3]});"
        )
    for v in range(4):
        half = "lo" if v < 2 else "hi"
        out(f"const __m512i a{v} = _mm512_unpack{'hi' if v % 2 else 'lo'}_epi16({half}_0, {half}_1);")


def _one_vector(out: Writer, addresses: list[str], *, flip: bool) -> None:
    """Vector a0 of 16 channels: bytes of up to four rows side by side."""
    terms = [f"from_uint8({address}, 0xffff)" for address in addresses]
    terms = [term if j == 0 else f"_mm512_slli_epi32({term}, {8 * j})" for j, term in enumerate(terms)] + [
        "FLIP"
    ] * flip
    out(f"const __m512i a0 = {_joined(terms)};")


def _joined(terms: list[str]) -> str:
    """C expression: exclusive or of vectors."""
    half = len(terms) // 2
    if len(terms) == 1:
        return terms[0]
    return f"_mm512_xor_si512({_joined(terms[:half])}, {_joined(terms[half:])})"
