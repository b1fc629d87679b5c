"""Convolutions, and products with constant matrices, in register tiles.

Tiles are pixels x channels of a group, summed over all taps and input channels of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby

import numpy as np

from codegen.kernels import pairs
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import (
    FROM_MEMORY,
    LINE,
    Channels,
    Pixels,
    added,
    by_tile,
    pixels,
    tile,
    tile_costs,
    with_edges,
)
from codegen.kernels.window import KernelWindow, declare_rows, pixel_tiles
from codegen.layout import Image
from codegen.writer import CModule, Writer

CHUNK = 128  # channels that are summed before they are added to the rest, at most
FEW = 32  # channels: so many taps of a row of the kernel are summed together
# weights of a tile: of more than so many, a block after the other is read for all pixels,
LONG = 1 << 17
BLOCK = 1 << 16  # so many of them at a time


def convolution(
    out: CModule,
    fused: FusedKernel,
    window: KernelWindow,
    weights: np.ndarray,
    bias: np.ndarray,
    *,
    whole: bool = False,
) -> None:
    """The kernel of a convolution: of a row, or of the whole map.

    Of a whole map all rows are made with the weights of a tile before those of the next are read.

    `weights`: (output channels, input channels of a group, kernel rows, kernel columns) float32, `bias`:
    (output channels,) float32.
    """
    fused = fused.with_ends(out)
    kernel = _Kernel(out, fused, window, weights, bias, whole)
    with out.kernel(fused.name):
        if whole:
            kernel.make_map()
        else:
            kernel.make_row()


class _Kernel:
    """A convolution, whose functions for tiles are printed when it is made."""

    def __init__(
        self,
        out: CModule,
        fused: FusedKernel,
        window: KernelWindow,
        weights: np.ndarray,
        bias: np.ndarray,
        whole: bool,
    ) -> None:
        self.out = out
        self.fused = fused
        self.window = window
        self.weights = weights
        self.bias = bias
        self.source = window.read(fused)
        self.output = fused.images(fused.result)
        self.in_pairs = not fused.stored(window.map).floats
        self.across, size = tile(
            self.output.channels // window.groups, self.output.width, fused.target, filled=True
        )
        row = self.output.width, size, window.strides[1], window.reach, self.source.width
        self.along = (not self.in_pairs and with_edges(*row)) or pixels(*row)
        # weights that are read once can be fetched while those before them are used
        read_once = whole or self.output.rows == 1
        self.can_fetch = not self.in_pairs and weights.size >= FROM_MEMORY and read_once
        several = sum(part.tiles for part in self.along) > 1
        self.in_blocks = not self.in_pairs and window.kernel == (1, 1) and several and not whole
        self.functions = out.functions(
            fused.name,
            {
                _kind(part, channels): self._function(part, channels)
                for channels in self.across
                for part in self.along
            },
        )

    def _function(self, part: Pixels, channels: Channels) -> Callable[[str], Writer]:
        if self.in_pairs:
            return partial(pairs.tile, self.fused, self.window, part, channels)
        fetches = self._fetches(channels) > 0
        block = self._block(channels)
        return _Tile(self.fused, self.window, part, channels, fetches, block).write

    def _block(self, channels: Channels) -> int:
        """Input channels whose weights are read for all pixels before others; 0: all of them."""
        inputs = self.source.channels
        if not self.in_blocks or inputs * channels.width <= LONG:
            return 0
        return max(BLOCK // channels.width // chunk(inputs), 1) * chunk(inputs)

    def _fetches(self, channels: Channels) -> int:
        """How many calls fetch the weights of the next tile, each a line for every input and tap."""
        if self.can_fetch:
            return channels.width // LINE
        return 0

    def make_row(self) -> None:
        """C statements: row r."""
        out = self.out
        fused = self.fused
        out.all(declare_rows(fused, self.window, self.weights.shape[2]))
        fused.begin(out)
        of_groups = [self._of_groups(channels) for channels in self.across]
        by_pixels = fused.partitions_better(tile_costs(self.along), tile_costs(of_groups))
        for _, channels in zip(
            fused.tiles(out, of_groups, "t", split=not by_pixels), self.across, strict=True
        ):
            self._declare_weights(channels)
            self._pixels(channels, "0", split=by_pixels)

    def make_map(self) -> None:
        """C statements: all rows from row r on, tile by tile."""
        out = self.out
        fused = self.fused
        rows = self.output.rows
        of_rows = [self._of_groups(channels, rows) for channels in self.across]
        for _, channels in zip(fused.tiles(out, of_rows, "n", split=True), self.across, strict=True):
            out(f"const int t = n / {rows}, row = r + n % {rows};")
            out.all(declare_rows(fused, self.window, self.weights.shape[2], "row"))
            fused.begin(out, "row")
            self._declare_weights(channels)
            self._pixels(channels, f"n % {rows}", split=False)

    def _of_groups(self, channels: Channels, rows: int = 1) -> Channels:
        """Tiles of a group, as many for every group and row."""
        return channels._replace(tiles=rows * self.window.groups * channels.tiles)

    def _declare_weights(self, channels: Channels) -> None:
        """C statements: weights `w` and bias `b` of tile t, its first channel `c`, and that which it reads.

        And `next`, the weights of the next tile, if any.
        """
        out = self.out
        groups = self.window.groups
        shift = out.constant(by_tile(self.bias, channels, groups))
        weights = by_tile(self.weights, channels, groups)
        if self.in_pairs:
            packed = pairs.packed(weights, flat=pairs.is_flat(self.fused, self.window))
            place = out.constant(packed, "uint32")
            out(f"const pair *w = (const pair *)(const void *){place} + (size_t)t * {packed[0].size};")
        else:
            packed = _packed(weights)
            place = out.constant(packed)
            out(f"const float *w = {place} + (size_t)t * {packed[0].size};")
        if self._fetches(channels) and not self._block(channels):
            out(f"const float *next = t < {len(packed) - 1} ? w + {packed[0].size} : w;")
        out(f"const float *b = {shift} + t * {channels.width};")
        out(f"const int c = {channels.start('t', groups, self.output.channels // groups)};")
        if groups > 1:
            out(f"const int first = t / {channels.tiles} * {self.source.channels};")

    def _pixels(self, channels: Channels, row: str, *, split: bool) -> None:
        """C statements: a tile of channels of a row, which comes after so many others."""
        if not (block := self._block(channels)):
            self._tiles(channels, row, split=split)
            return
        sums = self.out.scratch(self.output.pixels * channels.width)
        with self.out.block(f"for (int done = 0; done < {self.source.channels}; done += {block})"):
            self._tiles(channels, row, split=split, sums=sums)

    def _tiles(self, channels: Channels, row: str, *, split: bool, sums: str = "") -> None:
        """C statements: a tile of channels of a row, which comes after so many others.

        `sums`: where those over the first input channels lie, `done` of them in C.
        """
        out = self.out
        fused = self.fused
        output = self.output
        before = 0
        in_row = output.images * sum(part.tiles for part in self.along)
        for part, column, place in pixel_tiles(out, fused, self.window, self.along, split=split):
            at = place
            weights = "w"
            more = ""
            there = ""
            if part.edge:
                self._declare_columns(column)
                there = ", low, high"
            if self.window.groups > 1:
                at = f"{at} + first"
            if sums:
                at = f"{at} + done"
                weights = f"w + done * {channels.width}"
                more = f", {sums} + p * {channels.width}, done"
            if calls := self._fetches(channels):
                call = f"smaller({row} * {in_row} + {before} + q, {calls - 1})"
                count = self._block(channels) or self.weights[0].size
                # of blocks, the next lies behind
                following = f"{weights} + {count * channels.width}" if sums else "next"
                weights = f"{weights}, {following} + {call} * {count * LINE}"
            function = self.functions[_kind(part, channels)]
            out(
                f"{function}(x, from, to, {at}{there}, {weights}, b, y + p * {output.pitch} + "
                f"c{more}{fused.arguments('p', 'c', output.channels)});"
            )
            before += part.tiles

    def _declare_columns(self, pixel: str) -> None:
        """C statements: the columns of the kernel, from `low` up to `high`, that meet a pixel's row."""
        (_, stride), (_, by), (_, pad) = self.window.strides, self.window.dilations, self.window.pads
        columns = len(self.window.reach)
        width = self.source.width
        self.out(f"const int start = {pixel} * {stride} - {pad};")
        self.out(f"const int low = start < 0 ? ({by - 1} - start) / {by} : 0;")
        high = f"smaller(({width + by - 1} - start) / {by}, {columns})"
        self.out(f"const int high = start < {width} ? {high} : 0;")


def _kind(part: Pixels, channels: Channels) -> tuple[object, ...]:
    """Tiles of which one function makes all."""
    return part.size, part.missing, part.edge, channels.lanes, channels.empty


def _packed(weights: np.ndarray) -> np.ndarray:
    """(tiles, kernel rows, kernel columns, input channels, channels of a tile) float32 weights.

    `weights`: (tiles, channels of a tile, input channels, kernel rows, kernel columns).
    """
    return weights.transpose(0, 3, 4, 2, 1)


def chunk(inputs: int) -> int:
    """Input channels that are summed before they are added to the rest."""
    return -(-inputs // -(-inputs // CHUNK))


@dataclass(frozen=True)
class _Tile:
    """The function of a tile.

    Sums of sums lose less: what a tap (or a row of taps of few channels) adds up to is added to the rest at
    its end.
    """

    fused: FusedKernel
    window: KernelWindow
    part: Pixels
    channels: Channels
    fetches: bool  # whether it asks for weights that are wanted later
    # input channels that a call sums, of one tap, if not all (0); sums that are not complete go to memory
    block: int

    @cached_property
    def source(self) -> Image:
        """What a pixel reads."""
        return self.window.read(self.fused)

    @property
    def split(self) -> bool:
        """Whether it is sums of sums."""
        return self.window.kernel != (1, 1) or self.source.channels > CHUNK

    @property
    def by_tap(self) -> bool:
        """Whether each tap is summed by itself."""
        return self.split and self.source.channels >= FEW

    @property
    def total(self) -> str:
        """C variables of the results."""
        if self.split:
            return "t"
        return "s"

    @property
    def vectors(self) -> list[tuple[int, int, int]]:
        """Vectors of the channels: (index, lanes, lanes before it)."""
        lanes = self.channels.lanes
        return [(k, each, sum(lanes[:k])) for k, each in enumerate(lanes)]

    def write(self, name: str) -> Writer:
        """The function."""
        out = Writer()
        fused = self.fused
        part = self.part
        columns = len(self.window.reach)
        with out.block(self._head(name)):
            self._start(out)
            if part.size * columns == len(part.missing):  # nothing but padding
                out("(void)x, (void)at, (void)w;", "(void)ahead;" if self.fetches else "")
            with out.block("for (int k = from; k < to; k++)"):
                if self.split and not self.by_tap:
                    self._begin(out, range(part.size))
                for head, column, there in self._columns():
                    with out.block(head):
                        self._tap(out, column, there)
                if self.split and not self.by_tap:
                    self._add(out, range(part.size))
            if self.block:
                self._keep(out)
            output = fused.images(fused.result).channels
            fused.store_tile(out, part.size, self.channels, output, self.total + "{p}_{k}")
        return out

    def _head(self, name: str) -> str:
        """The function's name and parameters."""
        x = self.fused.pointer(self.window.map)
        y = self.fused.pointer(self.fused.result)
        later = "const float *ahead, " if self.fetches else ""
        sums = ", float *restrict sums, int done" if self.block else ""
        there = ", int low, int high" if self.part.edge else ""
        return (
            f"APART void {name}(const {x}const *x, int from, int to, int at{there}, const float *restrict w, "
            f"{later}const float *restrict b, {y}restrict y{sums}{self.fused.parameters})"
        )

    def _start(self, out: Writer) -> None:
        """C statements: the bias, or what was summed before."""
        for k, lanes, before in () if self.block else self.vectors:
            out(f"const v{lanes} b{k} = *(const u{lanes} *)(b + {before});")
        for p in range(self.part.size):
            for k, lanes, before in self.vectors:
                start = f"b{k}"
                if self.block:
                    start = f"*(const u{lanes} *)(done ? {self._kept(p, before)} : b + {before})"
                out(f"v{lanes} {self.total}{p}_{k} = {start};")

    def _kept(self, p: int, before: int) -> str:
        return f"sums + {p * self.channels.width + before}"

    def _keep(self, out: Writer) -> None:
        """C statements: sums that are not complete go to memory."""
        with out.block(f"if (done + {self.block} < {self.source.channels})"):
            for p in range(self.part.size):
                out.all(
                    f"*(u{lanes} *)({self._kept(p, before)}) = t{p}_{k};" for k, lanes, before in self.vectors
                )
            out("return;")

    def _begin(self, out: Writer, pixels: Iterable[int]) -> None:
        for p in pixels:
            out.all(f"v{lanes} s{p}_{k} = SPLAT_{lanes}(0.0f);" for k, lanes, _ in self.vectors)

    def _add(self, out: Writer, pixels: Iterable[int]) -> None:
        for p in pixels:
            out(" ".join(f"t{p}_{k} += s{p}_{k};" for k, _, _ in self.vectors))

    def _there(self, column: int) -> tuple[int, ...]:
        """The pixels whose tap in a column of the kernel is in the map."""
        return tuple(p for p in range(self.part.size) if (p, column) not in self.part.missing)

    def _columns(self) -> Iterator[tuple[str, str, Sequence[int]]]:
        """Loops over columns of the kernel: C head and column, and the pixels whose tap is in the map."""
        if self.part.edge:
            yield "for (int j = low; j < high; j++)", "j", [0]
            return
        for there, alike in groupby(range(len(self.window.reach)), self._there):
            columns = [*alike] if there else []
            if self.by_tap and len(columns) > 1:
                yield f"for (int j = {columns[0]}; j <= {columns[-1]}; j++)", "j", there
            else:  # of few channels, a loop over columns would take more time than what it runs
                yield from (("", str(column), there) for column in columns)

    def _tap(self, out: Writer, column: str, there: Sequence[int]) -> None:
        """C statements: all input channels of a tap of row k of the kernel."""
        inputs = self.source.channels
        window = self.window
        at = f"({window.reach[0]} + {column} * {window.dilations[1]}) * {self.source.pitch}"
        out(f"const float *a = x[k] + at + {at};")
        place = f"(k * {len(window.reach)} + {column}) * {inputs * self.channels.width}"
        out(f"const float *v = w + {place};")
        length = chunk(inputs) if self.by_tap else inputs
        left = f"smaller({self.block}, {inputs} - done)" if self.block else str(inputs)
        chunks = f"for (int left = {left}; left > 0; left -= {length})" if length < inputs else ""
        with out.block(chunks):
            if self.by_tap:
                self._begin(out, there)
            turns = str(length) if inputs % length == 0 else f"smaller(left, {length})"
            with out.block(f"for (int i = 0, turns = {turns}; i < turns; i++)"):
                self._products(out, there)
            if self.by_tap:
                self._add(out, there)

    def _products(self, out: Writer, there: Sequence[int]) -> None:
        """C statements: one input channel."""
        step = self.window.strides[1] * self.source.pitch
        out.all(f"v{lanes} w{k} = *(const u{lanes} *)(v + {before});" for k, lanes, before in self.vectors)
        for p in there:
            out(f"float a{p} = a[{p * step}];")
            out(" ".join(added(f"s{p}_{k}", f"a{p}", f"w{k}", lanes) for k, lanes, _ in self.vectors))
        out("a++;", f"v += {self.channels.width};")
        if self.fetches:
            out("FETCH(ahead);", f"ahead += {LINE};")
