"""Sums of products of bytes, four at once: convolutions, and products with constant matrices.

Of the bytes that such an instruction multiplies, those of the map count as 0 to 255: int8 maps are taken 128
higher. What that and the map's zero point add to a sum depends on the weights alone and is taken off the
bias. So that this holds where a window reaches beyond the map, too, rows are copied with their padding, which
holds the zero point.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.packed import LANES, Bytes, Scaling, constants
from codegen.kernels.tiles import pixels, tile, tile_costs
from codegen.kernels.window import KernelWindow
from codegen.layout import Image
from codegen.writer import CModule, Writer
from lfopt.ops.fixed_point import Multipliers

# vectors of sums that are held, beside weights and temporaries; and beside sums of the map alone
SUMS = 24
SUMS_BESIDE = 18
LARGEST = (1 << 31) - (1 << 10)  # of twice a scaled sum, so that it fits with the zero point added


@dataclass(frozen=True)
class Products:
    """Weights less their zero points, and what becomes of a sum."""

    weights: np.ndarray  # (output channels, input channels, kernel rows, kernel columns) int16
    bias: np.ndarray  # (output channels,) int64, in units of the sums
    multiplier: np.ndarray  # (output channels,) int64
    shift: np.ndarray  # (output channels,) int64
    zero_in: int  # zero point of the map
    zero_out: int  # zero point of the result
    largest: int  # no sum is larger in magnitude

    @cached_property
    def scaling(self) -> Scaling:
        """Fixed-point factors of the sums."""
        return Scaling(Multipliers(self.multiplier, self.shift), self.zero_out, self.largest)

    @cached_property
    def shifted(self) -> np.ndarray | None:
        """(output channels,) int64: how much higher weights are than bytes hold; None if all are bytes.

        Sums of the map's bytes times that are added to those of products.
        """
        least, most = (fold(self.weights, axis=(1, 2, 3)).astype(np.int64) for fold in (np.min, np.max))
        if least.min() >= -128 and most.max() <= 127:
            return None
        return least + 128

    @cached_property
    def held(self) -> np.ndarray:
        """(output channels, input channels, kernel rows, kernel columns) int8: weights for instructions."""
        return (
            self.weights if self.shifted is None else self.weights - self.shifted[:, None, None, None]
        ).astype(np.int8)

    def start(self, signed: bool) -> np.ndarray:  # (output channels,) int64
        """(output channels,) int64: what sums of weights times bytes (0 to 255) begin with."""
        return self.bias - (self.zero_in + 128 * signed) * self.weights.astype(np.int64).sum(axis=(1, 2, 3))

    def constants(self, signed: bool) -> np.ndarray:
        """(vectors, rows, 16) int32: what sums begin with, the rows of `scaling`, `shifted`.

        Sums wrap around, and so may what they begin with.
        """
        ends = [self.start(signed), *([] if self.shifted is None else [self.shifted])]
        first, *last = (np.pad(row, (0, -len(row) % LANES)).reshape(-1, 1, LANES) for row in ends)
        return np.concatenate([first, self.scaling.rows, *last], axis=1).astype(np.int32)

    @property
    def rows(self) -> int:
        """Rows of 16 int32 of the constants of a vector."""
        return 1 + self.scaling.rows.shape[1] + (self.shifted is not None)


def extents(fused: FusedKernel, m: int) -> Image:
    """Extents of a map of bytes. Raises Unsupported."""
    image = fused.layouts(m).extents
    if fused.flat:
        return image.flat
    return image


def is_signed(fused: FusedKernel, m: int) -> bool:
    """Whether a map is of int8."""
    return fused.layouts(m).tensor.dtype == "int8"


def full(channels: int, first: int, vectors: int) -> str:
    """C expression: mask of the bytes that are there, of vectors from channel `c` + `first` on; "": all."""
    rest = channels % LANES
    if not rest:
        return ""
    most = (1 << vectors * LANES) - 1
    last = (1 << (vectors - 1) * LANES + rest) - 1
    return f"(c + {first + vectors * LANES} <= {channels} ? UINT64_C({most:#x}) : UINT64_C({last:#x}))"


# -- rows ----------------------------------------------------------------------------------------------------


def rows(out: CModule, fused: FusedKernel, window: KernelWindow, fill: int, block: int) -> None:
    """C statements: addresses `x` of what each row of the window reads, as bytes.

    Pixel 0 of the result is at the beginning, with all padding. `fill`: byte of the padding, `block`: bytes
    that are read at once; so many lie behind the row.
    """
    source = extents(fused, window.map)
    output = extents(fused, fused.result)
    count = window.kernel[0]
    channels = source.channels
    out(f"const uint8_t *x[{count}];")
    if whole_rows(fused, window) and channels % block == 0:
        row = f"(r * {window.strides[0]} + k * {window.dilations[0]})" if not fused.flat else "r"
        out(f"for (int k = 0; k < {count}; k++) x[k] = (const uint8_t *){fused.address(window.map, row)};")
        return
    # pixels that a row of the result reads, padding included
    reach = (output.pixels - 1) * window.strides[1] + (window.kernel[1] - 1) * window.dilations[1] + 1
    left = window.pads[1]
    inside = max(min(source.pixels, reach - left), 0)
    size = -(-(reach * channels + block) // 64) * 64
    out(f"uint8_t *copy = (uint8_t *)(void *){out.scratch(count * size // 4)};")
    with out.block(f"for (int k = 0; k < {count}; k++, copy += {size})"):
        out(
            f"const int row = r * {window.strides[0]} + k * {window.dilations[0]} - {window.pads[0]};",
            "x[k] = copy;",
        )
        with out.block(f"if (row < 0 || row >= {source.rows})"):
            out(f"memset(copy, {fill}, {reach * channels});", "continue;")
        before = left * channels
        after = (reach - left - inside) * channels
        if before:
            out(f"memset(copy, {fill}, {before});")
        out(f"memcpy(copy + {before}, {fused.address(window.map, 'row')}, {inside * channels});")
        if after:
            out(f"memset(copy + {before + inside * channels}, {fill}, {after});")


def whole_rows(fused: FusedKernel, window: KernelWindow) -> bool:
    """Whether the window never reaches beyond the map."""
    source = extents(fused, window.map)
    output = extents(fused, fused.result)
    ends = [
        (count - 1) * stride + (kernel - 1) * dilation - pad
        for count, stride, kernel, dilation, pad in zip(
            (output.rows, output.pixels),
            window.strides,
            window.kernel,
            window.dilations,
            window.pads,
            strict=True,
        )
    ]
    return not any(window.pads) and ends[0] < source.rows and ends[1] < source.pixels


# -- convolutions --------------------------------------------------------------------------------------------


def convolution(out: CModule, fused: FusedKernel, window: KernelWindow, products: Products) -> None:
    """The kernel of a convolution without groups: register tiles of pixels x channels."""
    source = extents(fused, window.map)
    output = extents(fused, fused.result)
    target = replace(fused.target, accumulators=SUMS if products.shifted is None else SUMS_BESIDE)
    across, size = tile(-(-output.channels // LANES) * LANES, output.pixels, target)
    along = pixels(output.pixels, size, window.strides[1], (), source.pixels)
    runs = _runs(window, source.channels)
    variants = out.functions(
        fused.name,
        {
            (size, wide): partial(_tile, fused, window, size, wide, runs, products)
            for wide in (len(channels.lanes) for channels in across)
            for size in (part.size for part in along)
        },
    )
    signed = is_signed(fused, window.map)
    ends = Bytes.of(fused)
    packed = _packed(products.held, runs)
    begin = products.constants(signed)
    with out.kernel(fused.name):
        rows(out, fused, window, products.zero_in, 4)
        out.all(ends.declaration(out))
        out(f"uint8_t *y = (uint8_t *){fused.address(fused.result, 'r')};")
        by_pixels = fused.partitions_better(tile_costs(along), tile_costs(across))
        for channels in fused.tiles(out, across, "t", split=not by_pixels):
            first = channels.first // LANES
            wide = len(channels.lanes)
            stop = first + wide * channels.tiles
            w = packed[first:stop].reshape(channels.tiles, wide, *packed.shape[1:]).transpose(0, 2, 1, 3, 4)
            out(f"const int8_t *w = {constants(out, np.ascontiguousarray(w))} + (size_t)t * {w[0].size};")
            out(
                f"const int32_t *by = {constants(out, begin[first:stop])} + t * "
                f"{wide * products.rows * LANES};"
            )
            out(f"const int c = {channels.first} + t * {channels.width};")
            for part in fused.tiles(out, along, "q", split=by_pixels):
                out(f"const int p = {part.first} + q * {part.size};")
                name = variants[part.size, wide]
                out(
                    f"{name}(x, p * {window.strides[1] * source.channels}, w, by, y + p * {output.channels} "
                    f"+ c, c{ends.argument});"
                )


def _runs(window: KernelWindow, channels: int) -> list[tuple[int, list[int]]]:
    """Runs of bytes side by side that one pixel reads of a row: (first byte, columns of the kernel)."""
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
    return (
        np.concatenate(parts, axis=1)
        .reshape(-1, LANES, sum(p.shape[1] for p in parts) // 4, 4)
        .transpose(0, 2, 1, 3)
    )


def _tile(
    fused: FusedKernel,
    window: KernelWindow,
    size: int,
    wide: int,
    runs: list[tuple[int, list[int]]],
    products: Products,
    name: str,
) -> Writer:
    out = Writer()
    source = extents(fused, window.map)
    output = extents(fused, fused.result)
    step = window.strides[1] * source.channels
    flip = is_signed(fused, window.map)
    with tile_function(out, fused, name):
        for k in range(wide):
            out(f"__m512i s0_{k} = words(by + {k * products.rows * LANES});")
            out.all(f"__m512i s{p}_{k} = s0_{k};" for p in range(1, size))
        beside = products.shifted is not None
        if beside:
            out.all(f"__m512i e{p} = _mm512_setzero_si512();" for p in range(size))
        with out.block(f"for (int k = 0; k < {window.kernel[0]}; k++)"):
            for first, columns in runs:
                count = len(columns) * source.channels
                # what lies behind the last bytes meets weights of 0; sums of the map alone have to know
                rest = count % 4 if beside else 0
                with out.block(""):
                    out(f"const uint8_t *a = x[k] + at + {first};")
                    with out.block(
                        f"for (int i = 0; i < {(count - rest + 3) // 4}; i++, a += 4, w += "
                        f"{wide * 4 * LANES})"
                    ):
                        _products(out, size, wide, step, flip=flip, ones=4 * beside)
                    if rest:
                        with out.block(""):
                            _products(out, size, wide, step, flip=flip, ones=rest)
                        out(f"w += {wide * 4 * LANES};")
        if beside:
            at = (products.rows - 1) * LANES
            for k in range(wide):
                out(f"const __m512i higher{k} = words(by + {k * products.rows * LANES + at});")
                out.all(
                    f"s{p}_{k} = _mm512_add_epi32(s{p}_{k}, _mm512_mullo_epi32(e{p}, higher{k}));"
                    for p in range(size)
                )
        _store(out, fused, size, wide, output.channels, products)
    return out


def _products(out: Writer, size: int, wide: int, step: int, *, flip: bool, ones: int) -> None:
    """C statements: four bytes of every pixel times weights; the first `ones` of them times one."""
    out.all(f"const __m512i w{k} = _mm512_loadu_si512(w + {k * 4 * LANES});" for k in range(wide))
    for p in range(size):
        value = f"four(a + {p * step})"
        out(f"const __m512i a{p} = {f'_mm512_xor_si512({value}, FLIP)' if flip else value};")
        out.all(f"ADD_PRODUCTS(s{p}_{k}, a{p}, w{k});" for k in range(wide))
        if ones:
            out(f"ADD_PRODUCTS(e{p}, a{p}, {ones_of(ones)});")


def ones_of(bytes_: int) -> str:
    """C expression: the first `bytes_` of the four bytes of every lane are one."""
    return f"_mm512_set1_epi32({0x01010101 >> 8 * (4 - bytes_):#x})"


def tile_function(out: Writer, fused: FusedKernel, name: str) -> AbstractContextManager[None]:
    """A C function that makes a tile: bytes of the map from x[k] + at on, to y, whose channels begin at c."""
    parameters = (
        "const uint8_t *const *x, int at, const int8_t *restrict w, const int32_t *restrict by, "
        "uint8_t *restrict y, int c"
    )
    return out.block(f"static void {name}({parameters}{Bytes.of(fused).parameter})")


def _store(out: Writer, fused: FusedKernel, size: int, wide: int, channels: int, products: Products) -> None:
    """Sums s<pixel>_<vector> as bytes."""
    ends = Bytes.of(fused)
    scaling = products.scaling
    out("(void)c;")
    ends.load(out)
    for first in range(0, wide, 4):
        vectors = range(first, min(first + 4, wide))
        some = full(channels, first * LANES, len(vectors)) if vectors[-1] == wide - 1 else ""
        for p in range(size):
            values = [scaling.value(f"s{p}_{k}", f"by + {(k * products.rows + 1) * LANES}") for k in vectors]
            ends.put(out, f"y + {p * channels + first * LANES}", values, some)
