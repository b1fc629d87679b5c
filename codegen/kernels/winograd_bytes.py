"""Convolutions 3 x 3 of maps of bytes by Winograd's algorithm, exact.

Tiles of 4 x 4 results take 36 products of 16 bits, not 144 of 8.

The transforms are F(4 x 4, 3 x 3) of Lavin and Gray (arXiv 1509.09308), with the fractions taken out of that
of the weights. Theirs then are integers of at most 49 times a weight, and those of the map, less its zero
point, are at most 100 times a byte: both fit int16. What was taken out comes back behind the sums, where
results are a multiple of 9 x 2^k too large. Sums wrap around, which does no harm: 9 has an inverse modulo
2^32, and sums are known to be below 2^25, so that 2^6 times one is still an int32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod

import numpy as np

from codegen.kernels.dots import SUMS, Products, extents
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.packed import LANES, Bytes, constants
from codegen.kernels.tiles import pixels
from codegen.kernels.window import KernelWindow
from codegen.layout import MapLayout
from codegen.target import Target
from codegen.writer import CModule, Writer
from lfopt.ops import Call, Dataflow
from lfopt.ops.arithmetic import arithmetic
from lfopt.ops.scaling import requantization
from lfopt.ops.traits import Arithmetic
from lfopt.ops.windows import windows

SIZE, SIDE = 4, 6  # results, and pixels of the map, along a side of a tile
POINTS = SIDE**2
# 4, -6, -6, 24, 24 and 1 times those of the paper
WEIGHTS = np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [1, 2, 4], [1, -2, 4], [0, 0, 1]])
SHIFTS = (3, 2, 1, 1)  # results along an axis are 3 x 2^shift too large
NINTH = pow(9, -1, 1 << 32)
LARGEST = 1 << 25  # of a sum
PAIRS = 32  # int16 in a vector
FEWEST, MOST = 12, 24  # tiles of a map, at least, and of a batch, at most
# bytes of all weights of a network, transformed ones among them, so that a third-level cache holds them with
# its maps
ROOM = 24 << 20
GAIN = 0.85  # of the time of a direct convolution, at most


_Operation = Callable[[str, str | int], str]


def whole_maps(flow: Dataflow, layouts: Sequence[MapLayout], target: Target) -> int:
    """The mask of convolutions on integers that are faster as whole maps by this algorithm.

    Smallest first, while the weights of the network have room.
    """
    room = ROOM - sum(
        flow.graph.tensors[name].elements
        for name in flow.graph.constants
        if flow.graph.tensors[name].quantization is not None
    )
    mask = 0
    candidates = [
        i
        for i in range(len(flow))
        if flow.operands[i]
        and _gains(flow.calls[i], layouts[flow.operands[i][0].map], layouts[flow.results[i][0]], target)
    ]
    for growth, i in sorted((prod(flow.calls[i].shape(1)) * (2 * POINTS // 9 - 1), i) for i in candidates):
        if growth > room:
            break
        room = room - growth
        mask = mask | 1 << i
    return mask


def _gains(call: Call, read: MapLayout, written: MapLayout, target: Target) -> bool:
    """Whether the algorithm has less to do than a direct convolution, and holds its sums."""
    if call.result_tensors[0].quantization is None or not target.dots:
        return False
    if (
        call.operator.kind != "Conv"
        or len(call.result) != 4
        or call.attribute("group", 1) != 1
        or call.values[1] is None
    ):
        return False
    if (
        arithmetic(call) is not Arithmetic.SUMS
        or not (read.in_pixels and written.in_pixels)
        or read.alias_strides
        or written.alias_strides
    ):
        return False
    if any(
        (w.kernel, w.stride, w.dilation, w.pad, w.size) != (3, 1, 1, 1, w.size_out) for w in windows(call)
    ):
        return False
    image = written.extents
    channels = read.extents.channels
    tiles = -(-image.rows // SIZE) * -(-image.pixels // SIZE)
    if channels % PAIRS or image.channels % LANES or tiles < FEWEST:
        return False
    vectors = image.channels // LANES
    # times, in instructions on a vector
    direct = image.rows * image.pixels * vectors * (9 * channels / 4 + 10)
    apart = tiles * (POINTS * vectors * channels / 2 + 200 * vectors + 170 * channels / PAIRS)
    return apart < GAIN * direct and requantization(call).largest < LARGEST


def winograd(out: CModule, fused: FusedKernel, window: KernelWindow, products: Products) -> None:
    """The kernel, which makes the whole map."""
    _Kernel(out, fused, window, products).write()


class _Kernel:
    """Scratch memory holds v, (points, tiles, channels) int16, and sums, (tiles, vectors, points) int32.

    The tiles are those of a batch; a vector has 16 output channels.
    """

    def __init__(self, out: CModule, fused: FusedKernel, window: KernelWindow, products: Products) -> None:
        self.out = out
        self.fused = fused
        self.window = window
        self.products = products
        self.read = extents(fused, window.map)
        self.output = extents(fused, fused.result)
        self.in_row = -(-self.output.pixels // SIZE)
        self.tiles = -(-self.output.rows // SIZE) * self.in_row
        threads = fused.target.threads if fused.shared else 1
        self.batches = -(-self.tiles // (MOST * threads)) * threads
        self.batch = -(-self.tiles // self.batches)
        # int16 from one tile to the next: one cache line more than a power of two
        self.pitch = self.read.channels + PAIRS
        self.vectors = self.output.channels // LANES
        # vectors that are summed at a time
        self.wide = next(wide for wide in (4, 2, 1) if self.vectors % wide == 0)
        self.step = (self.wide * POINTS + 1) * LANES  # int32 of sums from one tile to the next

    def write(self) -> None:
        """The function of the fused kernel, after those that it calls."""
        out = self.out
        fused = self.fused
        name = self.fused.name
        along = pixels(self.batch, SUMS // self.wide, 1, (), self.batch)
        wide = self.wide
        names = out.functions(name, {part.size: partial(self._sums, part.size, wide) for part in along})
        inward = out.function(f"{name}_in", self._inward(f"{name}_in"))
        outward = out.function(f"{name}_out", self._outward(f"{name}_out"))
        ends = Bytes.of(fused)
        bias = self.products.bias.reshape(-1, 1, LANES)
        begin = np.concatenate([bias, self.products.scaling.rows], axis=1).astype(np.int32)
        table = ends.declaration(out)
        held = constants(out, self._packed())
        with out.kernel(name):
            out("(void)r;")
            room = POINTS * self.batch * self.pitch // 2
            out(
                f"int16_t *v = (int16_t *)(void *){out.scratch(room + self.batch * self.step)};",
                f"int32_t *sums = (int32_t *)(void *)v + {room};",
            )
            out(f"const uint8_t *x = (const uint8_t *){fused.address(self.window.map, '0')};")
            out(
                f"uint8_t *y = (uint8_t *){fused.address(fused.result, '0')};",
                f"const int32_t *by = {constants(out, begin)};",
            )
            out.all(table)
            with fused.each(out, "b", self.batches, split=True):
                out(
                    f"const int first = b * {self.batch}, count = smaller({self.batch}, {self.tiles} - "
                    "first);"
                )
                with self._each_tile():
                    out(f"{inward}(x, row - 1, pixel - 1, v + q * {self.pitch});")
                with out.block(f"for (int c = 0; c < {self.vectors}; c += {wide})"):
                    with out.block(f"for (int point = 0; point < {POINTS}; point++)"):
                        out(f"const int16_t *a = v + point * {self.batch * self.pitch};")
                        out(
                            f"const int16_t *w = {held} + (size_t)(c * {POINTS} + point * {wide}) * "
                            f"{self.read.channels * LANES};"
                        )
                        for part in fused.tiles(out, along, "q", split=False):
                            out(f"const int p = {part.first} + q * {part.size};")
                            out(
                                f"{names[part.size]}(a + p * {self.pitch}, w, sums + p * {self.step} + point "
                                f"* {LANES});"
                            )
                    with self._each_tile():
                        there = (
                            f"y + (row * {self.output.pixels} + pixel) * {self.output.channels} + c * {LANES}"
                        )
                        left = f"{self.output.rows} - row, {self.output.pixels} - pixel{ends.argument}"
                        out(f"{outward}(sums + q * {self.step}, by + c * {begin[0].size}, {there}, {left});")

    @contextmanager
    def _each_tile(self) -> Iterator[None]:
        """A loop over the tiles of a batch, q: the row and pixel of the result at which each begins."""
        with self.out.block("for (int q = 0; q < count; q++)"):
            self.out(
                f"const int row = (first + q) / {self.in_row} * {SIZE}, pixel = (first + q) % {self.in_row} "
                f"* {SIZE};"
            )
            yield

    def _packed(self) -> np.ndarray:
        """(runs of vectors, points, pairs of channels, vectors of a run, 32) int16: transformed weights.

        The last axis is 16 output channels x 2 of a pair.
        """
        transforms = np.kron(WEIGHTS, WEIGHTS) @ self.products.weights.astype(np.int64).reshape(-1, 9).T
        transforms = transforms.reshape(POINTS, -1, self.wide, LANES, self.read.channels // 2, 2).transpose(
            1, 0, 4, 2, 3, 5
        )
        return np.ascontiguousarray(transforms, np.int16)

    def _sums(self, count: int, wide: int, name: str) -> Writer:
        """The function of sums of `count` tiles and `wide` vectors of channels."""
        out = Writer()
        with out.block(
            f"static void {name}(const int16_t *restrict v, const int16_t *restrict w, int32_t *restrict s)"
        ):
            out.all(f"__m512i s{p}_{k} = _mm512_setzero_si512();" for p in range(count) for k in range(wide))
            with out.block(
                f"for (int i = 0; i < {self.read.channels // 2}; i++, v += 2, w += {wide * 2 * LANES})"
            ):
                out.all(f"const __m512i w{k} = _mm512_loadu_si512(w + {k * 2 * LANES});" for k in range(wide))
                for p in range(count):
                    out(f"const __m512i a{p} = four(v + {p * self.pitch});")
                    out.all(f"ADD_PAIRS(s{p}_{k}, a{p}, w{k});" for k in range(wide))
            out.all(
                f"_mm512_storeu_si512(s + {p * self.step + k * POINTS * LANES}, s{p}_{k});"
                for p in range(count)
                for k in range(wide)
            )
        return out

    def _inward(self, name: str) -> Writer:
        """B d B' of the pixels from a row and a pixel of the map on; beyond the map they are zero."""
        out = Writer()
        channels = self.read.channels
        source = self.fused.layouts(self.window.map).ctype.removesuffix("_t")
        with out.block(f"static void {name}(const uint8_t *x, int row, int pixel, int16_t *restrict v)"):
            for k in range(SIDE):
                out(f"const uint32_t row{k} = (unsigned)(row + {k}) < {self.read.rows} ? ~UINT32_C(0) : 0;")
                out(
                    f"const uint32_t pixel{k} = (unsigned)(pixel + {k}) < {self.read.pixels} ? ~UINT32_C(0) "
                    ": 0;"
                )
            out(
                f"const __m512i zero = _mm512_set1_epi16({self.products.zero_in});",
                f"x += (row * {self.read.pixels} + pixel) * {channels};",
            )
            with out.block(f"for (int c = 0; c < {channels}; c += {PAIRS}, x += {PAIRS}, v += {PAIRS})"):
                for j in range(SIDE):
                    for i in range(SIDE):
                        there = f"x + {(i * self.read.pixels + j) * channels}"
                        out(
                            f"const __m512i d{i}_{j} = pairs_{source}({there}, (__mmask32)(row{i} & "
                            f"pixel{j}), zero);"
                        )
                    out.all(_inward([f"d{i}_{j}" for i in range(SIDE)], [f"t{i}_{j}" for i in range(SIDE)]))
                for i in range(SIDE):
                    out.all(_inward([f"t{i}_{j}" for j in range(SIDE)], [f"v{i}_{j}" for j in range(SIDE)]))
                    out.all(
                        f"_mm512_storeu_si512(v + {(i * SIDE + j) * self.batch * self.pitch}, v{i}_{j});"
                        for j in range(SIDE)
                    )
        return out

    def _outward(self, name: str) -> Writer:
        """A s A' of a tile, scaled and stored, as far as there are rows and pixels."""
        out = Writer()
        ends = Bytes.of(self.fused)
        scaling = self.products.scaling
        per = (1 + scaling.rows.shape[1]) * LANES
        head = (
            f"static void {name}(const int32_t *restrict s, const int32_t *restrict by, uint8_t "
            f"*restrict y, int rows, int pixels{ends.parameter})"
        )
        with out.block(head):
            ends.load(out)
            out(
                "const __m512i ninth = "
                f"_mm512_set1_epi32({NINTH - (1 << 32) if NINTH >= 1 << 31 else NINTH});"
            )
            out("(void)rows, (void)pixels;")
            with out.block(
                f"for (int c = 0; c < {self.wide}; c++, s += {POINTS * LANES}, by += {per}, y += {LANES})"
            ):
                out("const __m512i bias = words(by);")
                for j in range(SIDE):
                    out.all(
                        f"const __m512i s{i}_{j} = words(s + {(i * SIDE + j) * LANES});" for i in range(SIDE)
                    )
                    out.all(_outward([f"s{i}_{j}" for i in range(SIDE)], [f"t{i}_{j}" for i in range(SIZE)]))
                for i in range(SIZE):
                    out.all(_outward([f"t{i}_{j}" for j in range(SIDE)], [f"y{i}_{j}" for j in range(SIZE)]))
                    with out.block("" if self.output.rows % SIZE == 0 else f"if ({i} < rows)"):
                        for j in range(SIZE):
                            sums = (
                                f"_mm512_srai_epi32(_mm512_mullo_epi32(y{i}_{j}, ninth), "
                                f"{SHIFTS[i] + SHIFTS[j]})"
                            )
                            with out.block("" if self.output.pixels % SIZE == 0 else f"if ({j} < pixels)"):
                                value = scaling.value(f"_mm512_add_epi32({sums}, bias)", f"by + {LANES}")
                                ends.put(
                                    out, f"y + {(i * self.output.pixels + j) * self.output.channels}", [value]
                                )
        return out


def _integers(bits: int) -> tuple[_Operation, _Operation, _Operation]:
    """C expressions of vectors of integers of `bits`: a - b, a + b, a times two to the power of b."""

    def operation(name: str) -> _Operation:
        return lambda a, b: f"_mm512_{name}_epi{bits}({a}, {b})"

    return operation("sub"), operation("add"), operation("slli")


def _inward(d: Sequence[str], v: Sequence[str]) -> list[str]:
    """C statements: v = B d of int16, one row or column of a tile."""
    sub, add, times = _integers(16)
    e, o, f, g = (f"{name}{v[0]}" for name in "eofg")
    terms = {
        e: sub(d[4], times(d[2], 2)),
        o: sub(d[3], times(d[1], 2)),
        f: sub(d[4], d[2]),
        g: sub(d[3], d[1]),
        v[0]: add(times(sub(d[0], d[2]), 2), f),
        v[1]: add(e, o),
        v[2]: sub(e, o),
        v[3]: add(f, times(g, 1)),
        v[4]: sub(f, times(g, 1)),
        v[5]: sub(sub(d[5], d[3]), times(g, 2)),
    }
    return [f"const __m512i {name} = {term};" for name, term in terms.items()]


def _outward(s: Sequence[str], y: Sequence[str]) -> list[str]:
    """C statements: y = A s of int32, one row or column of a tile, each 3 x 2^SHIFTS too large."""
    sub, add, times = _integers(32)

    def six(a: str) -> str:
        return add(times(a, 2), times(a, 1))

    t, u, v, w = (f"{name}{y[0]}" for name in "tuvw")
    terms = {
        t: add(s[1], s[2]),
        u: sub(s[1], s[2]),
        v: add(s[3], s[4]),
        w: sub(s[3], s[4]),
        y[0]: add(sub(six(s[0]), times(t, 2)), v),
        y[1]: sub(w, times(u, 1)),
        y[2]: sub(v, t),
        y[3]: add(sub(times(w, 1), u), six(s[5])),
    }
    return [f"const __m512i {name} = {term};" for name, term in terms.items()]
