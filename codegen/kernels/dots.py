"""Sums of products of bytes, by instructions that add four products to an int32 at once: convolutions, products with constant matrices.

Of the bytes that such an instruction multiplies, those of the map count as 0 to 255: int8 maps are taken 128 higher. What that and the map's zero
point add to a sum depends on the weights alone and is taken off the bias. So that this holds where a window reaches beyond the map, too, rows are
copied with their padding, which holds the zero point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from codegen.kernels.tiles import Channels, pixels, tile
from codegen.kernels.unit import Unit
from codegen.kernels.window import Window
from codegen.layout import Image
from codegen.writer import Writer

LANES = 16  # sums in a vector
SUMS = 24  # vectors of sums that are held, beside weights and temporaries
LARGEST = (1 << 31) - (1 << 10)  # of twice a scaled sum, so that it fits with the zero point added
MOST = 8  # pixels of a tile of a depthwise convolution


@dataclass(frozen=True)
class Products:
    """Weights less their zero points, and what becomes of a sum."""

    weights: np.ndarray  # (output channels, input channels, kernel rows, kernel columns) int8
    bias: np.ndarray  # (output channels,) int64, in units of the sums
    multiplier: np.ndarray  # (output channels,) int64
    shift: np.ndarray  # (output channels,) int64
    zero_in: int  # zero point of the map
    zero_out: int  # zero point of the result

    def start(self, signed: bool) -> np.ndarray:  # (output channels,) int64
        """What sums of weights times bytes (0 to 255) begin with."""
        return self.bias - (self.zero_in + 128 * signed) * self.weights.astype(np.int64).sum(axis=(1, 2, 3))

    def constants(self, signed: bool) -> np.ndarray:
        """(vectors, 3, 16) int32: start, multiplier, shift less one. Sums wrap around, and so may what they begin with."""
        rows = np.stack([self.start(signed), self.multiplier, self.shift - 1])
        rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % LANES))).reshape(3, -1, LANES).transpose(1, 0, 2)
        return rows.astype(np.int32)


def extents(unit: Unit, m: int) -> Image:
    """Extents of a map of bytes. Raises Unsupported."""
    found = unit.layouts(m).extents
    return found.flat if unit.flat else found


def ctype(unit: Unit, m: int) -> str:
    """C type of a map's elements."""
    return unit.layouts(m).ctype


def is_signed(unit: Unit, m: int) -> bool:
    """Whether a map is of int8."""
    return unit.layouts(m).tensor.dtype == "int8"


def constants(unit: Unit, values: np.ndarray) -> str:
    """C expression: address of integers."""
    kind = {"int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t"}[values.dtype.name]
    return f"(const {kind} *){unit.blob.add(values, values.dtype.name)}"


def full(channels: int) -> str:
    """C expression: which lanes of the vector that begins at channel `c` there are."""
    rest = channels % LANES
    return "0xffff" if not rest else f"(__mmask16)(c + {LANES} <= {channels} ? 0xffff : {(1 << rest) - 1:#x})"


# -- rows ----------------------------------------------------------------------------------------------------------------------------------


def rows(out: Writer, unit: Unit, window: Window, fill: int, block: int) -> None:
    """C statements: addresses `x` of what each row of the window reads, as bytes: pixel 0 of the result at the beginning, with all padding.

    `block`: bytes that are read at once; there are so many behind the row.
    """
    source, made = extents(unit, window.map), extents(unit, unit.result)
    count, channels = window.kernel[0], source.channels
    out(f"const uint8_t *x[{count}];")
    if whole_rows(unit, window) and channels % block == 0:
        row = f"(r * {window.strides[0]} + k * {window.dilations[0]})" if not unit.flat else "r"
        out(f"for (int k = 0; k < {count}; k++) x[k] = (const uint8_t *){unit.address(window.map, row)};")
        return
    reach = (made.pixels - 1) * window.strides[1] + (window.kernel[1] - 1) * window.dilations[1] + 1  # pixels
    left = window.pads[1]
    inside = max(min(source.pixels, reach - left), 0)
    size = -(-(reach * channels + block) // 64) * 64
    out(f"uint8_t *copy = (uint8_t *)(void *){unit.scratch(count * size // 4)};")
    with out.block(f"for (int k = 0; k < {count}; k++, copy += {size})"):
        out(f"const int row = r * {window.strides[0]} + k * {window.dilations[0]} - {window.pads[0]};", "x[k] = copy;")
        with out.block(f"if (row < 0 || row >= {source.rows})"):
            out(f"memset(copy, {fill}, {reach * channels});", "continue;")
        before, after = left * channels, (reach - left - inside) * channels
        if before:
            out(f"memset(copy, {fill}, {before});")
        out(f"memcpy(copy + {before}, {unit.address(window.map, 'row')}, {inside * channels});")
        if after:
            out(f"memset(copy + {before + inside * channels}, {fill}, {after});")


def whole_rows(unit: Unit, window: Window) -> bool:
    """Whether the window never reaches beyond the map."""
    source, made = extents(unit, window.map), extents(unit, unit.result)
    ends = [
        (count - 1) * stride + (kernel - 1) * dilation - pad
        for count, stride, kernel, dilation, pad in zip(
            (made.rows, made.pixels), window.strides, window.kernel, window.dilations, window.pads, strict=True
        )
    ]
    return not any(window.pads) and ends[0] < source.rows and ends[1] < source.pixels


# -- convolutions --------------------------------------------------------------------------------------------------------------------------


def convolution(out: Writer, unit: Unit, window: Window, products: Products) -> None:
    """The kernel of a convolution without groups: register tiles of pixels x channels."""
    source, made = extents(unit, window.map), extents(unit, unit.result)
    target = replace(unit.target, accumulators=SUMS)
    across, size = tile(-(-made.channels // LANES) * LANES, made.pixels, target)
    along = pixels(made.pixels, size, window.strides[1], (), source.pixels)
    runs = _runs(window, source.channels)
    variants: dict[tuple[int, int], str] = {}
    for channels in across:
        for part in along:
            if (key := (part.size, len(channels.lanes))) not in variants:
                write = partial(_tile, out, unit, window, part.size, len(channels.lanes), runs, products)
                variants[key] = out.function(f"{unit.name}_{len(variants)}", write)
    signed = is_signed(unit, window.map)
    packed, begin = _packed(products.weights, runs), products.constants(signed)
    with out.kernel(unit.name):
        rows(out, unit, window, products.zero_in, 4)
        out(f"{ctype(unit, unit.result)} *y = {unit.address(unit.result, 'r')};")
        by_pixels = unit.shares_better(sum(part.tiles for part in along), sum(channels.tiles for channels in across))
        for channels in unit.tiles(out, across, "t", split=not by_pixels):
            first, wide = channels.first // LANES, len(channels.lanes)
            stop = first + wide * channels.tiles
            w = packed[first:stop].reshape(channels.tiles, wide, *packed.shape[1:]).transpose(0, 2, 1, 3, 4)
            out(f"const int8_t *w = {constants(unit, np.ascontiguousarray(w))} + (size_t)t * {w[0].size};")
            out(f"const int32_t *by = {constants(unit, begin[first:stop])} + t * {wide * 3 * LANES};")
            out(f"const int c = {channels.first} + t * {channels.width};")
            for part in unit.tiles(out, along, "q", split=by_pixels):
                out(f"const int p = {part.first} + q * {part.size};")
                name = variants[part.size, wide]
                out(f"{name}(x, p * {window.strides[1] * source.channels}, w, by, y + p * {made.channels} + c, c);")


def _runs(window: Window, channels: int) -> list[tuple[int, list[int]]]:
    """Of the bytes of a row that one pixel reads: runs side by side, (first byte, columns of the kernel)."""
    if window.dilations[1] == 1:
        return [(0, [*range(window.kernel[1])])]
    return [(k * window.dilations[1] * channels, [k]) for k in range(window.kernel[1])]


def _packed(weights: np.ndarray, runs: list[tuple[int, list[int]]]) -> np.ndarray:
    """(vectors of output channels, steps, 16, 4) int8: the steps are kernel rows, runs, fours of bytes."""
    weights = np.pad(weights, ((0, -len(weights) % LANES), *((0, 0),) * 3))
    parts: list[np.ndarray] = []
    for row in range(weights.shape[2]):
        for _, columns in runs:
            part = weights[:, :, row, columns].transpose(0, 2, 1).reshape(len(weights), -1)
            parts.append(np.pad(part, ((0, 0), (0, -part.shape[1] % 4))))
    return np.concatenate(parts, axis=1).reshape(-1, LANES, sum(p.shape[1] for p in parts) // 4, 4).transpose(0, 2, 1, 3)


def _tile(out: Writer, unit: Unit, window: Window, size: int, wide: int, runs: list[tuple[int, list[int]]], products: Products, name: str) -> None:
    source, made = extents(unit, window.map), extents(unit, unit.result)
    step, flip = window.strides[1] * source.channels, is_signed(unit, window.map)
    kind = ctype(unit, unit.result)
    head = f"static void {name}(const uint8_t *const *x, int at, const int8_t *restrict w, const int32_t *restrict by, {kind} *restrict y, int c)"
    with out.block(head):
        for k in range(wide):
            out(f"__m512i s0_{k} = words(by + {k * 3 * LANES});")
            out.all(f"__m512i s{p}_{k} = s0_{k};" for p in range(1, size))
        with out.block(f"for (int k = 0; k < {window.kernel[0]}; k++)"):
            for first, columns in runs:
                with out.block(""):
                    out(f"const uint8_t *a = x[k] + at + {first};")
                    with out.block(f"for (int i = 0; i < {-(-len(columns) * source.channels // 4)}; i++, a += 4, w += {wide * 4 * LANES})"):
                        out.all(f"const __m512i w{k} = _mm512_loadu_si512(w + {k * 4 * LANES});" for k in range(wide))
                        for p in range(size):
                            value = f"four(a + {p * step})"
                            out(f"const __m512i a{p} = {f'_mm512_xor_si512({value}, FLIP)' if flip else value};")
                            out.all(f"ADD_PRODUCTS(s{p}_{k}, a{p}, w{k});" for k in range(wide))
        _store(out, unit, size, wide, made.channels, products.zero_out)
    out("")


def _store(out: Writer, unit: Unit, size: int, wide: int, channels: int, zero: int) -> None:
    """Sums s<pixel>_<vector> as bytes."""
    kind = ctype(unit, unit.result).removesuffix("_t")
    out("(void)c;")
    for k in range(wide):
        with out.block(""):
            out(f"const __m512i times = words(by + {(3 * k + 1) * LANES}), less = words(by + {(3 * k + 2) * LANES});")
            mask = full(channels).replace("(c + ", f"(c + {k * LANES} + ") if k == wide - 1 else "0xffff"
            for p in range(size):
                out(f"to_{kind}(y + {p * channels + k * LANES}, {mask}, rescaled_16(s{p}_{k}, times, less, {2 * zero + 1}));")


# -- depthwise -----------------------------------------------------------------------------------------------------------------------------


def depthwise(out: Writer, unit: Unit, window: Window, products: Products) -> None:
    """The kernel of a convolution of every channel on its own: up to four rows of the window are one instruction, 16 channels side by side."""
    source, made = extents(unit, window.map), extents(unit, unit.result)
    along = pixels(made.pixels, min(MOST, made.pixels), window.strides[1], (), source.pixels)
    variants: dict[int, str] = {}
    for size in dict.fromkeys(part.size for part in along):
        variants[size] = out.function(f"{unit.name}_{len(variants)}", partial(_depthwise_tile, out, unit, window, size, products))
    taps = np.pad(products.weights[:, 0], ((0, -made.channels % LANES), (0, -window.kernel[0] % 4), (0, 0)))
    taps = taps.reshape(-1, LANES, taps.shape[1] // 4, 4, window.kernel[1]).transpose(0, 2, 4, 1, 3)  # vectors, fours of rows, columns, 16, 4
    vectors = [Channels(0, (LANES,), len(taps))]
    with out.kernel(unit.name):
        rows(out, unit, window, products.zero_in, LANES)
        out(f"{ctype(unit, unit.result)} *y = {unit.address(unit.result, 'r')};")
        by_pixels = unit.shares_better(sum(part.tiles for part in along), len(taps))
        for _ in unit.tiles(out, vectors, "t", split=not by_pixels):
            out(f"const int8_t *w = {constants(unit, np.ascontiguousarray(taps))} + t * {taps[0].size};")
            out(f"const int32_t *by = {constants(unit, products.constants(is_signed(unit, window.map)))} + t * {3 * LANES};")
            out(f"const int c = t * {LANES};")
            for part in unit.tiles(out, along, "q", split=by_pixels):
                out(f"const int p = {part.first} + q * {part.size};")
                move = f"p * {window.strides[1] * source.channels} + c"
                out(f"{variants[part.size]}(x, {move}, w, by, y + p * {made.channels} + c, c);")


def _depthwise_tile(out: Writer, unit: Unit, window: Window, size: int, products: Products, name: str) -> None:
    source, made = extents(unit, window.map), extents(unit, unit.result)
    height, width = window.kernel
    kind, fours = ctype(unit, unit.result), -(-height // 4)
    reads: dict[int, list[tuple[int, int]]] = {}  # pixel of the row -> (pixel of the result, column of the window)
    for p in range(size):
        for k in range(width):
            reads.setdefault(p * window.strides[1] + k * window.dilations[1], []).append((p, k))
    head = f"static void {name}(const uint8_t *const *x, int at, const int8_t *restrict w, const int32_t *restrict by, {kind} *restrict y, int c)"
    with out.block(head):
        out.all(f"__m512i s{p}_0 = words(by);" for p in range(size))
        for g in range(fours):
            there = range(4 * g, min(4 * g + 4, height))
            with out.block(""):
                out.all(f"const __m512i w{k} = _mm512_loadu_si512(w + {(g * width + k) * 4 * LANES});" for k in range(width))
                out.all(f"const uint8_t *x{j} = x[{row}] + at;" for j, row in enumerate(there))
                for place, uses in sorted(reads.items()):
                    terms = [f"from_uint8(x{j} + {place * source.channels}, 0xffff)" for j in range(len(there))]
                    terms = [term if j == 0 else f"_mm512_slli_epi32({term}, {8 * j})" for j, term in enumerate(terms)]
                    if is_signed(unit, window.map):
                        terms.append("FLIP")
                    with out.block(""):
                        out(f"const __m512i a = {_joined(terms, 'xor')};")
                        out.all(f"ADD_PRODUCTS(s{p}_0, a, w{k});" for p, k in uses)
        _store(out, unit, size, 1, made.channels, products.zero_out)
    out("")


def _joined(terms: list[str], by: str) -> str:
    """C expression that folds vectors."""
    return terms[0] if len(terms) == 1 else f"_mm512_{by}_si512({_joined(terms[: len(terms) // 2], by)}, {_joined(terms[len(terms) // 2 :], by)})"
