"""Convolutions 3 x 3 by Winograd's algorithm.

Tiles of the map are transformed, multiplied point by point with transformed weights, transformed back.

Y = A ((G g G') * (B d B')) A' for tiles of T x T results from (T + 2) x (T + 2) pixels; the product is summed
over the input channels before A. Lavin and Gray, arXiv:1509.09308, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from codegen.epilogue import EpilogueOperand, number
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import FROM_MEMORY, LINE, Channels, added, by_tile, steps, tile, vectors
from codegen.kernels.window import KernelWindow
from codegen.layout import Image
from codegen.target import Target
from codegen.writer import CModule, Writer

# The points besides 0 and infinity are these and their negatives. With 11/16 and 11/8 the error is half of
# what it is with the usual 1 and 2.
POINTS = {2: (1.0,), 4: (0.6875, 1.375)}
# channels that are summed before they are added to the rest: sums of sums lose less, so that tiles of 4 are
# as exact as one long sum
CHUNK = 32
PITCH = 64  # pixels of a multiple of so many channels would share few sets of the cache
# floats of transformed tiles that are made at a time, at most: an eighth of a common L2 cache
BLOCK = 1 << 15
LARGE = 1 << 19  # floats of transformed weights from which on they come from memory,
WHOLE = 1 << 20  # so that blocks should be few: of so many floats

# What takes time, in vectors multiplied and added to a sum: the choice that lost least on 175 shapes, with
# caches cold and warm, on a Zen 4 core. WEIGHTS is that which ResNets and VGG lost least with on a Sapphire
# Rapids core, whose third-level cache is slower.
TRANSFORM = 6  # to transform a vector there or back, for each point
WEIGHTS = 8  # to fetch a vector of weights from memory
CALL = 10000  # whatever the size of the map
GAIN = 0.9  # a larger tile has larger weights, and rounds more: it has to take a tenth less


# -- choice --------------------------------------------------------------------------------------------------


def worthwhile(read: Image, output: Image, target: Target, most: int = 4, groups: int = 1) -> int:
    """Results of a tile along each axis, at most `most`, that take least time; 0: a direct convolution."""
    best = 0
    for size in POINTS:
        if size > most:
            continue
        if time(size, read, output, target, groups) < GAIN * time(best, read, output, target, groups):
            best = size
    return best


def loss(read: Image, output: Image, target: Target, most: int, groups: int = 1) -> str:
    """Why no tiles of at most `most` results along each axis are worthwhile."""
    direct = time(0, read, output, target, groups)
    times = [time(size, read, output, target, groups) / direct for size in POINTS if size <= most]
    if times:
        estimate = f"{min(times):.2f} of the time of a direct convolution, by an estimate"
    else:
        estimate = f"tiles of {most} results at most"
    return (
        f"found {estimate}; accepted: "
        f"{f'below {GAIN}' if times else 'those of ' + ' or '.join(map(str, POINTS))}"
    )


def time(size: int, read: Image, output: Image, target: Target, groups: int = 1) -> float:
    """An estimate of time, in multiplications of vectors; `size` 0: of a direct convolution.

    Of the products, of both transforms, and of the weights, which come from memory.

    In bfloat16 direct convolutions multiply two input channels at once; transforms and their products are of
    floats.
    """
    inputs = len(vectors(read.channels, target))
    outputs = len(vectors(output.channels, target))
    summed = read.channels // groups
    outputs_of_group = output.channels // groups
    of_group = len(vectors(outputs_of_group, target))
    if not size:
        taps = 9 * summed if target.element.floats else 9 * -(-summed // 2)
        rows = output.rows * output.images
        return groups * taps * (rows * steps(outputs_of_group, output.width, target) + WEIGHTS * of_group)
    tiles = -(-output.rows // size) * in_row(output, size)
    points = (size + 2) ** 2
    products = groups * summed * (steps(outputs_of_group, tiles, target) + WEIGHTS * of_group)
    return points * (products + TRANSFORM * tiles * (inputs + outputs)) + CALL


def in_row(output: Image, size: int) -> int:
    """Tiles beside one another in a row of all images."""
    return output.images * -(-output.width // size)


class TileBlocking(NamedTuple):
    """Tiles in runs, each summed at a time, and runs in blocks, each transformed at a time."""

    tiles: int
    runs: int  # that the tiles are cut into evenly
    blocks: int  # that the runs are cut into evenly
    across: tuple[Channels, ...]  # of a group of the result, made one after the other for a block
    groups: int

    @property
    def slices(self) -> int:
        """Number of tiles of channels, of all groups."""
        return self.groups * sum(channels.tiles for channels in self.across)

    @property
    def lengths(self) -> list[int]:
        """Tiles in a run, longest first."""
        return sorted(
            {
                stop - start
                for start, stop in pairwise(self.tiles * k // self.runs for k in range(self.runs + 1))
            },
            reverse=True,
        )

    @property
    def block(self) -> int:
        """Tiles in the largest block."""
        ends = [self.tiles * (self.runs * k // self.blocks) // self.runs for k in range(self.blocks + 1)]
        return max(stop - start for start, stop in pairwise(ends))


def blocking(size: int, read: Image, output: Image, rows: int, target: Target, groups: int) -> TileBlocking:
    """Blocks whose transforms stay in the L2 cache while the weights pass by.

    Few blocks, where the weights are large.
    """
    tiles = -(-rows // size) * in_row(output, size)
    across, run = tile(output.channels // groups, tiles, target, filled=True)
    runs = -(-tiles // run)
    points = (size + 2) ** 2
    room = BLOCK if points * read.channels * output.channels // groups < LARGE else WHOLE
    most = max(1, room // (points * run * read.channels))
    return TileBlocking(tiles, runs, -(-runs // most), tuple(across), groups)


# -- transforms ----------------------------------------------------------------------------------------------


class Matrices(NamedTuple):
    """The transforms along one axis, for tiles of T results."""

    inward: np.ndarray  # B: (T + 2, T + 2)
    weights: np.ndarray  # G: (T + 2, 3)
    outward: np.ndarray  # A: (T, T + 2)


def matrices(size: int) -> Matrices:
    """The transforms for tiles of `size` results.

    Polynomials stand for their values at 0, at p and -p for every p in POINTS, and at infinity.

    >>> inward, weights, outward = matrices(2)
    >>> outward @ ((weights @ [1, 2, 3]) * (inward @ [3, 1, 4, 1]))  # [3 + 2 + 12, 1 + 8 + 3]
    array([17., 12.])
    """
    points = [0.0, *(signed for p in POINTS[size] for signed in (p, -p))]
    inward = np.zeros((size + 2, size + 2))
    weights = np.zeros((size + 2, 3))
    outward = np.zeros((size, size + 2))
    for k, point in enumerate(points):
        others = [other for other in points if other != point]
        inward[k, :-1] = np.poly(others)[::-1]
        weights[k] = point ** np.arange(3) / np.prod([point - other for other in others])
        outward[:, k] = point ** np.arange(size)
    last = POINTS[size][0] ** (size - 1)  # so that `outward` can leave a power of the first point to the end
    inward[-1], weights[-1, -1], outward[-1, -1] = np.poly(points)[::-1], 1 / last, last
    return Matrices(inward, weights, outward)


def transformed(weights: np.ndarray, size: int) -> np.ndarray:
    """(slices, points, input channels, channels of a slice) float32: transformed weights, G g G'.

    `weights`: (slices, channels of a slice, input channels, 3, 3).
    """
    transform = matrices(size).weights
    # (points, output channels x input channels)
    points = np.kron(transform, transform) @ weights.reshape(-1, 9).astype(np.float64).T
    return points.astype(np.float32).reshape(len(points), *weights.shape[:3]).transpose(1, 0, 3, 2)


def inward(d: list[str], v: list[str], lanes: int) -> list[str]:
    """C statements: v = B d, one row or column of a tile."""
    if len(d) == 4:
        terms = (f"{d[2]} - {d[0]}", f"{d[2]} + {d[1]}", f"{d[2]} - {d[1]}", f"{d[3]} - {d[1]}")
        return [f"v{lanes} {name} = {term};" for name, term in zip(v, terms, strict=True)]
    a, b = POINTS[4]
    both = _splat(a * a + b * b, lanes)
    product = _splat(a * a * b * b, lanes)
    statements = [f"v{lanes} {v[0]} = {product} * {d[0]} + ({d[4]} - {both} * {d[2]});"]
    for (plus, minus), here, there in ((v[1:3], a, b), (v[3:5], b, a)):
        other = _splat(there * there, lanes)
        even = f"e{plus}"
        odd = f"o{plus}"
        statements.append(f"v{lanes} {even} = {d[4]} - {other} * {d[2]}, {odd} = {d[3]} - {other} * {d[1]};")
        statements.append(
            f"v{lanes} {plus} = {even} + {_splat(here, lanes)} * {odd}, {minus} = {even} - "
            f"{_splat(here, lanes)} * {odd};"
        )
    return [*statements, f"v{lanes} {v[5]} = {product} * {d[1]} + ({d[5]} - {both} * {d[3]});"]


def outward(m: list[str], y: list[str], lanes: int) -> list[str]:
    """C statements: y = A m, one row or column of a tile.

    y[k] is still to be multiplied by the first point to the power of k.

    No sum is of two products: compilers could contract such a sum in two ways, and bits would depend on it.
    """
    if len(y) == 2:
        return [
            f"v{lanes} {y[0]} = {m[0]} + ({m[1]} + {m[2]});",
            f"v{lanes} {y[1]} = ({m[1]} - {m[2]}) + {m[3]};",
        ]
    even = (f"e{y[0]}a", f"e{y[0]}b")
    odd = (f"o{y[0]}a", f"o{y[0]}b")
    statements = [
        f"v{lanes} {e} = {p} + {q}, {o} = {p} - {q};"
        for e, o, (p, q) in zip(even, odd, (m[1:3], m[3:5]), strict=True)
    ]
    ratio = POINTS[4][1] / POINTS[4][0]
    for k, (a, b) in enumerate((even, odd, even, odd)):
        first = {0: f"{m[0]} + ", 3: f"{m[5]} + "}.get(k, "")
        statements.append(f"v{lanes} {y[k]} = {first}({a} + {_splat(ratio**k, lanes)} * {b});")
    return statements


def _splat(value: float, lanes: int) -> str:
    return f"SPLAT_{lanes}({number(value)})"


# -- kernel --------------------------------------------------------------------------------------------------


def winograd(
    out: CModule,
    fused: FusedKernel,
    window: KernelWindow,
    weights: np.ndarray,
    bias: np.ndarray,
    size: int,
    rows: int = 0,
) -> None:
    """The kernel of a convolution 3 x 3, in tiles of `size`: `rows` rows (0: all) from row r on.

    It makes what there is of them; `size` divides `rows`.

    Threads share each call. `weights`: (output channels, input channels of a group, 3, 3), `bias`: (output
    channels,).
    """
    fused = fused.with_ends(out)
    read = fused.images(window.map)
    output = fused.images(fused.result)
    blocks = blocking(size, read, output, rows or output.rows, fused.target, window.groups)
    _Kernel(out, fused, window, size, blocks).write(weights, bias)


class _Kernel:
    """Scratch memory holds v, (points, tiles, input channels), and s, (points, tiles, channels of a slice).

    The tiles are those of a block.
    """

    def __init__(
        self, out: CModule, fused: FusedKernel, window: KernelWindow, size: int, blocking: TileBlocking
    ) -> None:
        self.out = out
        self.fused = fused
        self.window = window
        self.size = size
        self.blocking = blocking
        self.read = fused.images(window.map)
        self.output = fused.images(fused.result)
        self.depth = self.read.channels // window.groups  # channels of the map that are summed
        # names of functions: without the fused kernel's as prefix -> in full
        self.names: dict[str, str] = {}
        self.side = size + 2  # of a tile that is read
        self.points = self.side**2
        self.in_row = in_row(self.output, size)  # tiles
        self.in_image = self.in_row // self.output.images
        # floats of v from one tile to the next
        self.pitch = self.read.channels + (16 if self.read.channels % PITCH == 0 else 0)

    def write(self, weights: np.ndarray, bias: np.ndarray) -> None:
        """The function of the fused kernel, after those that it calls."""
        out = self.out
        blocking = self.blocking
        for _, left, right in self._edges():
            self._function(f"in{left}_{right}", partial(self._inward_function, left, right))
        for channels in blocking.across:
            for length in blocking.lengths:
                self._function(
                    _sum_name(length, channels.lanes), partial(self._sum_function, length, channels.lanes)
                )
        for lanes in dict.fromkeys(lanes for channels in blocking.across for lanes in self._stored(channels)):
            for columns in self._columns():
                self._function(f"out{columns}x{lanes}", partial(self._outward_function, lanes, columns))
        floats = self.points * blocking.block * self.pitch
        scratch = out.scratch(
            floats + self.points * blocking.block * max(channels.width for channels in blocking.across)
        )
        pieces = blocking.blocks * blocking.slices
        with out.kernel(self.fused.name):
            out(f"float *v = {scratch}, *s = v + {floats};", "int have = -1; /* block that is in v */")
            with out.block(f"for (int t = FIRST({pieces}); t < STOP({pieces}); t++)"):
                out(f"const int block = t / {blocking.slices}, slice = t % {blocking.slices};")
                out(
                    f"const int low = {blocking.runs} * block / {blocking.blocks}, high = {blocking.runs} * "
                    f"(block + 1) / {blocking.blocks};"
                )
                out(
                    f"const int first = {blocking.tiles} * low / {blocking.runs}, count = {blocking.tiles} * "
                    f"high / {blocking.runs} - first;"
                )
                with out.block("for (int k = 0; k < count && have != block; k++)"):
                    self._inward()
                out("have = block;")
                for channels, start in self._slices():
                    self._slice(channels, start, weights, bias)

    def _function(self, name: str, write: Callable[[str], Writer]) -> None:
        """Write a function, unless there is such a one, and note what it is called."""
        full = f"{self.fused.name}_{name}"
        self.names[name] = self.out.function(full, write(full))

    def _slices(self) -> Iterator[tuple[Channels, int]]:
        """Tiles of channels and which slice is their first, in branches of which one is taken."""
        start = 0
        for channels in self.blocking.across:
            stop = start + channels.tiles * self.blocking.groups
            last = stop == self.blocking.slices
            with self.out.block(
                "else" if last and start else "" if last else f"{'else ' if start else ''}if (slice < {stop})"
            ):
                yield channels, start
            start = stop

    def _slice(self, channels: Channels, start: int, weights: np.ndarray, bias: np.ndarray) -> None:
        """A slice of a block: the sums at each point, then the results."""
        out = self.out
        step = self.depth * channels.width
        groups = self.blocking.groups
        shift = out.constant(by_tile(bias, channels, groups))
        packed = out.constant(transformed(by_tile(weights, channels, groups), self.size))
        out(f"const int t = slice - {start};" if start else "const int t = slice;")
        out(f"const int c = {channels.start('t', groups, self.output.channels // groups)};")
        out(
            f"const float *w = {packed} + (size_t)t * {self.points * step}, *b = {shift} + t * "
            f"{channels.width};"
        )
        with out.block(f"for (int z = 0; z < {self.points}; z++)"):
            if self._lines(channels.lanes):
                more = f"z < {self.points - 1} || t < {groups * channels.tiles - 1}"
                out(f"const float *next = w + (size_t)(z + ({more})) * {step};")
            with out.block("for (int k = low; k < high; k++)"):
                self._sum(channels, step)
        with out.block("for (int k = 0; k < count; k++)"):
            self._outward(channels)

    def _choose(self, choices: list[tuple[str, str]]) -> None:
        """Calls, each with the condition on which it is made; the last is made where no other is."""
        for k, (condition, call) in enumerate(choices):
            guard = f"if ({condition}) " if k < len(choices) - 1 else ""
            self.out(f"{'else ' if k else ''}{guard}{call};")

    # -- B d B' ----------------------------------------------------------------------------------------------

    def _edges(self) -> list[tuple[int, int, int]]:
        """Runs of alike tiles in a row: (where they stop, columns before the map, column where it ends)."""
        runs: list[tuple[int, int, int]] = []
        for p in range(self.in_image):
            start = p * self.size - self.window.pads[1]
            left = max(0, -start)
            right = min(self.side, self.read.width - start)
            runs = [*(runs[:-1] if runs and runs[-1][1:] == (left, right) else runs), (p + 1, left, right)]
        return runs

    def _inward(self) -> None:
        """Tile k of a block to v."""
        out, size, (above, before) = self.out, self.size, self.window.pads
        fused = self.fused
        source = self.window.map
        zeros = fused.stored(source).constant(out.blob, np.zeros(self.side * self.read.channels, np.float32))
        there = f"{fused.address(source, '(h + i)')} + at * {self.read.pitch}"
        out(f"const int h = r + (first + k) / {self.in_row} * {size} - {above};")
        out(f"const int p = (first + k) % {self.in_image};")
        image = f"(first + k) % {self.in_row} / {self.in_image} * {self.read.width} + "
        out(
            f"const int at = {image if self.read.images > 1 else ''}larger(p * {size} - {before}, 0);",
            f"const {fused.pointer(source)}x[{self.side}];",
        )
        out(
            f"for (int i = 0; i < {self.side}; i++) x[i] = h + i >= 0 && h + i < {self.read.rows} ? {there} "
            f": {zeros};"
        )
        self._choose(
            [
                (f"p < {stop}", f"{self.names[f'in{left}_{right}']}(x, v + k * {self.pitch})")
                for stop, left, right in self._edges()
            ]
        )

    def _inward_function(self, left: int, right: int, name: str) -> Writer:
        """The function of a tile whose columns from `left` up to `right` are in the map.

        x: where these begin, for each row.
        """
        out = Writer()
        axis = range(self.side)
        channels = self.read.channels
        source = self.window.map
        with out.block(f"static void {name}(const {self.fused.pointer(source)}const *x, float *restrict v)"):
            for lanes in self.fused.over(out, channels):
                for j in axis:
                    for i in axis:
                        there = self.fused.load(source, lanes, f"x[{i}] + {(j - left) * self.read.pitch} + c")
                        out(f"v{lanes} d{i}{j} = {there if left <= j < right else _splat(0.0, lanes)};")
                    out.all(inward([f"d{i}{j}" for i in axis], [f"t{i}{j}" for i in axis], lanes))
                for i in axis:
                    out.all(inward([f"t{i}{j}" for j in axis], [f"v{i}{j}" for j in axis], lanes))
                    for j in axis:
                        out(
                            f"*(u{lanes} *)(v + {(i * self.side + j) * self.blocking.block * self.pitch} + "
                            f"c) = v{i}{j};"
                        )
        return out

    # -- sums over input channels ----------------------------------------------------------------------------

    def _sum(self, channels: Channels, step: int) -> None:
        """Run k at point z, from v and w to s."""
        blocking = self.blocking
        self.out(
            f"const int n = {blocking.tiles} * k / {blocking.runs} - first, length = {blocking.tiles} * (k + "
            f"1) / {blocking.runs} - first - n;"
        )
        place = f"(z * {blocking.block} + n)"
        of_group = f" + t / {channels.tiles} * {self.depth}" if blocking.groups > 1 else ""
        weights = f"w + z * {step}"
        if lines := self._lines(channels.lanes):
            last = -(-channels.width // (lines * LINE)) - 1
            weights += f", next + smaller(k - low, {last}) * {lines * LINE * self.depth}"
        arguments = f"(v + {place} * {self.pitch}{of_group}, {weights}, s + {place} * {channels.width})"
        self._choose(
            [
                (f"length == {length}", f"{self.names[_sum_name(length, channels.lanes)]}{arguments}")
                for length in blocking.lengths
            ]
        )
        if len(blocking.lengths) == 1:
            self.out("(void)length;")

    def _lines(self, lanes: tuple[int, ...]) -> int:
        """Lines of the weights of the next point that are fetched for each input channel of a run."""
        width = sum(lanes)
        blocking = self.blocking
        if width < LINE or self.points * self.depth * self.output.channels < FROM_MEMORY:
            return 0
        return -(-(width // LINE) // (blocking.runs // blocking.blocks))

    def _sum_function(self, length: int, lanes: tuple[int, ...], name: str) -> Writer:
        out = Writer()
        inputs = self.depth
        width = sum(lanes)
        tile = [(p, k, each) for p in range(length) for k, each in enumerate(lanes)]
        offsets = [sum(lanes[:k]) for k in range(len(lanes))]
        lines = self._lines(lanes)
        head = (
            f"static void {name}(const float *restrict v, const float *restrict w, "
            f"{'const float *ahead, ' if lines else ''}float *restrict y)"
        )
        with out.block(head), out.block(f"for (int from = 0; from < {inputs}; from += {CHUNK})"):
            out.all(f"v{each} s{p}_{k} = SPLAT_{each}(0.0f);" for p, k, each in tile)
            with out.block(f"for (int i = from, to = smaller(from + {CHUNK}, {inputs}); i < to; i++)"):
                out.all(
                    f"v{each} w{k} = *(const u{each} *)(w + {offsets[k]});" for k, each in enumerate(lanes)
                )
                for p in range(length):
                    out(f"float a{p} = v[{p * self.pitch} + i];")
                    out.all(added(f"s{p}_{k}", f"a{p}", f"w{k}", each) for k, each in enumerate(lanes))
                out(f"w += {width};")
                out.all(f"FETCH(ahead + {LINE * line});" for line in range(lines))
                if lines:
                    out(f"ahead += {LINE * lines};")
            if inputs > CHUNK:
                with out.block("if (from)"):
                    out.all(
                        f"s{p}_{k} += *(const u{each} *)(y + {p * width + offsets[k]});"
                        for p, k, each in tile
                    )
            out.all(f"*(u{each} *)(y + {p * width + offsets[k]}) = s{p}_{k};" for p, k, each in tile)
        return out

    # -- A m A' and the epilogue -----------------------------------------------------------------------------

    def _stored(self, channels: Channels) -> Sequence[int]:
        """Lanes of the vectors in which the results of a slice are stored."""
        return vectors(channels.channels, self.fused.target)

    def _columns(self) -> list[int]:
        """Results in a row of a tile: of most tiles, and of the last in a row of the map."""
        last = (self.output.width - 1) % self.size + 1
        return sorted({last, self.size if self.in_image > 1 else last}, reverse=True)

    def _outward(self, channels: Channels) -> None:
        """Tile k of a block, from s to the map."""
        size = self.size
        done = 0
        extras = self.fused.epilogue.extras
        fused = self.fused
        self.out(f"const int h = r + (first + k) / {self.in_row} * {size};")
        self.out(f"const int column = (first + k) % {self.in_image} * {size};")
        image = f"(first + k) % {self.in_row} / {self.in_image} * {self.output.width} + "
        self.out(f"const int p = {image if self.output.images > 1 else ''}column;")
        self.out(
            f"const int rows = smaller({self.output.rows} - h, {size});",
            f"{fused.pointer(fused.result)}to[{size}];",
        )
        self.out.all(f"const {fused.element(extra).ctype} *{extra.name}s[{size}];" for extra in extras)
        with self.out.block("for (int i = 0; i < rows; i++)"):
            self.out(f"to[i] = {fused.address(fused.result, '(h + i)')} + p * {self.output.pitch};")
            self.out.all(f"{extra.name}s[i] = {self._operand(extra)};" for extra in extras)
        for lanes, same in groupby(self._stored(channels)):
            count = len([*same])
            sums = f"s + k * {channels.width} + {done}, {self.blocking.block * channels.width}"
            given = [
                sums,
                f"b + {done}",
                "to",
                "rows",
                f"c + {done}" if done else "c",
                str(count),
                *(f"{x.name}s" for x in extras),
            ]
            names = [
                f"{self.names[f'out{columns}x{lanes}']}({', '.join(given)})" for columns in self._columns()
            ]
            self._choose([(f"column + {size} <= {self.output.width}", name) for name in names])
            done += lanes * count

    def _outward_function(self, lanes: int, columns: int, name: str) -> Writer:
        """The function of `columns` of a tile, whose first result in row i is at `to[i]`.

        `count` in C: vectors from channel c on.
        """
        out = Writer()
        fused = self.fused
        size = self.size
        channels = self.output.channels
        axis = range(self.side)
        extras = fused.epilogue.extras
        to = fused.pointer(fused.result)
        head = (
            f"const float *restrict s, int step, const float *restrict b, {to}const *to, int rows, int "
            "c, int count"
        )
        beside = "".join(f", const {fused.element(extra).ctype} *const *{extra.name}s" for extra in extras)
        loop = f"for (int stop = c + count * {lanes}; c < stop; c += {lanes}, s += {lanes}, b += {lanes})"
        with out.block(f"static void {name}({head}{beside})"), out.block(loop):
            out(f"const v{lanes} shift = *(const u{lanes} *)b;")
            for j in axis:
                out.all(
                    f"v{lanes} m{i}{j} = *(const u{lanes} *)(s + {i * self.side + j} * step);" for i in axis
                )
                out.all(outward([f"m{i}{j}" for i in axis], [f"t{i}{j}" for i in range(size)], lanes))
            for i in range(size):
                with out.block(f"if ({i} < rows)"):
                    out(f"{to}to_{i} = to[{i}] + c;")
                    out.all(
                        f"const {fused.element(extra).ctype} *{extra.name} = {extra.name}s[{i}];"
                        for extra in extras
                    )
                    out.all(outward([f"t{i}{j}" for j in axis], [f"r{i}{j}" for j in range(size)], lanes))
                    for j in range(columns):
                        out(f"r{i}{j} = r{i}{j} * {_splat(POINTS[size][0] ** (i + j), lanes)} + shift;")
                        place = f"to_{i} + {j * self.output.pitch}"
                        fused.put(out, f"r{i}{j}", lanes, place, j, "c", channels)
                    out.all(f"(void)r{i}{j};" for j in range(columns, size))
        return out

    def _operand(self, extra: EpilogueOperand) -> str:
        """C expression: address of an operand of the epilogue for row h + i and pixel p."""
        step = {"element": extra.pitch or self.output.channels, "pixel": 1}.get(extra.reach, 0)
        if extra.map >= 0:
            start = self.fused.address(extra.map, "(h + i)" if step else "0")
        else:
            start = extra.place(self.out.blob) + (f" + (h + i) * {self.output.pixels * step}" if step else "")
        if step:
            return f"{start} + p * {step}"
        return start


def _sum_name(length: int, lanes: tuple[int, ...]) -> str:
    return f"sum{length}x{'_'.join(map(str, lanes))}"
