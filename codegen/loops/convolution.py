"""Conv and ConvTranspose along any number of spatial axes.

Element by element in double, or channels of the result in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np

from codegen.layout import MapLayout
from codegen.loops.nest import Array, Nest
from codegen.loops.sliding import Taps, taps
from codegen.loops.strided import Strided, StridedLoops, print_copy
from codegen.loops.sums import Sums
from codegen.writer import CModule
from lfopt.ir import Tensor, row_axis
from lfopt.ops.windows import Window, windows

MOST_VECTORS = 4  # of channels, where a tile is one element
MOST_PADDED = 1 << 22  # floats of an operand that is copied to scratch memory between zeros
MOST_ELEMENTS = {16: 14, 8: 10, 4: 14, 1: 8}  # by lanes; so many sums fit in registers


def convolution(nest: Nest) -> None:
    """Conv and ConvTranspose."""
    loops = _Convolution(nest)
    if loops.in_vectors:
        loops.vectors()
    else:
        loops.elements()


@dataclass
class _Convolution:
    nest: Nest

    def __post_init__(self) -> None:
        call = self.nest.call
        self.x = self.nest.operand(0)
        self.y = self.nest.results[0]
        self.bias = self.nest.operand(2) if self.nest.call.has(2) else None
        self.transposed = call.operator.kind == "ConvTranspose"
        self.sliding = windows(call)
        self.groups = call.attribute("group", 1)
        # channels of the result and of the operand in a group
        self.outputs = self.y.shape[1] // self.groups
        self.read = self.x.shape[1] // self.groups
        # the axis along which a tile has several elements: the last spatial one that has any
        last = len(self.y.shape) - 1
        long_axes = [axis for axis in range(2, last) if self.y.shape[axis] > 1]
        one_wide = self.y.shape[last] == 1 and self.nest.whole and not self.transposed
        self.along = long_axes[-1] if one_wide and long_axes else last
        self.margin = 0  # zeros before the operand along that axis

    # -- element by element ----------------------------------------------------------------------------------

    def elements(self) -> None:
        """The sum of one element after the other."""
        nest = self.nest
        out = self.nest.out
        x = self.x
        y = self.y
        weights = nest.operand(1)
        sums = Sums.of(y.dtype)
        with nest.elements() as at:
            out(f"double sum = {nest.begin(at, '0.0')};")
            group = "0" if self.groups == 1 else "g"
            if self.groups > 1:
                out(f"const int g = ({at[1]}) / {self.outputs};")
            filter_ = f"({at[1]}) % {self.outputs}" if self.transposed and self.groups > 1 else at[1]
            with taps(nest, self.sliding, at[2:]) as tap, nest.folded([self.read], "c", 0) as (c,):
                channel = self._channel(group, c)
                of = [channel, filter_] if self.transposed else [filter_, c]
                out(
                    f"sum += (double){x.at([at[0], channel, *tap.source])} * "
                    f"(double){weights.at([*of, *tap.kernel])};"
                )
            total = f"(sum + (double){self.bias.at([at[1]])})" if self.bias else "sum"
            with nest.end(at, "sum"):
                out(f"{y.at(at)} = {sums.narrow(total)};")

    def _channel(self, group: str, c: str) -> str:
        """Channel of the input from that of a group."""
        if group == "0":
            return c
        return f"({group} * {self.read} + {c})"

    # -- channels in vectors ---------------------------------------------------------------------------------

    @property
    def in_vectors(self) -> bool:
        """Whether vectors of channels are worth it: weights are known, and a group makes enough channels."""
        nest = self.nest
        x = self.x
        if (
            not nest.lanes
            or x.dtype != "float32"
            or nest.call.values[1] is None
            or 2 * self.outputs < nest.lanes
        ):
            return False
        return (nest.whole or row_axis(self.y.shape) != 1) and (
            self.transposed or x.step(self.along) is not None
        )

    def vectors(self) -> None:
        """Tiles of channels by elements: a few elements along an axis, or, transposed, one."""
        out = self.nest.out
        y = self.y
        lanes = self.nest.lanes
        # vectors of channels in a tile
        self.count = min(-(-self.outputs // lanes), MOST_VECTORS) if self.transposed else 1
        self.width = self.count * lanes
        self.weights, self.blocks = self._packed()
        extent = y.shape[self.along]
        window = self.sliding[self.along - 2]
        start, stop = (extent, extent) if self.transposed else _inside(window)
        if not self.transposed and 2 * (stop - start) < extent and self._padded(window):
            start = 0
            stop = extent
        size = _tile_size(stop - start, lanes)
        whole, rest = divmod(stop - start, size)
        runs = (
            (0, start, 1),
            (start, start + whole * size, size),
            (stop - rest, stop, rest),
            (stop, extent, 1),
        )
        with self._spread() as (at, block):
            first = f", first = {block} / {self.blocks} * {self.outputs} + done" if y.shape[1] > 1 else ""
            out(f"const int done = {block} % {self.blocks} * {self.width}{first};")
            out(f"const int count = smaller({self.width}, {self.outputs} - done);")
            for low, high, elements in runs:
                if low < high:
                    with out.block(f"for (int w = {low}; w < {high}; w += {elements})"):
                        self._tile(at, elements, block)

    def _padded(self, window: Window) -> bool:
        """Copy the operand between zeros, so that every tile lies in it; False where that cannot be."""
        nest = self.nest
        out = self.nest.out
        x = self.x
        margin = (_tile_size(window.size_out, nest.lanes) - 1) * window.stride
        shape = tuple(extent + 2 * margin * (axis == self.along) for axis, extent in enumerate(x.shape))
        steps = [x.step(axis) for axis in range(len(shape))]
        if not nest.whole or None in steps or not isinstance(out, CModule) or prod(shape) > MOST_PADDED:
            return False
        order = (*(axis for axis in range(len(shape)) if axis != self.along), self.along)
        layout = MapLayout(Tensor("padded", shape, x.dtype), order)
        padded = Array(layout, shape, "padded")
        out(f"float *const padded = {out.scratch(prod(shape))};")
        out(f"memset(padded, 0, {prod(shape)} * sizeof *padded);")
        begin = padded.at([str(margin) if axis == self.along else "0" for axis in range(len(shape))])
        to = Strided(f"&{begin}", tuple(layout.strides[axis] for axis in order), "float")
        source = Strided(f"&{x.at(['0'] * len(shape))}", tuple(steps[axis] or 0 for axis in order), "float")
        print_copy(out, StridedLoops(tuple(x.shape[axis] for axis in order), (to, source)), shared=False)
        self.x = padded
        self.margin = margin
        return True

    @contextmanager
    def _spread(self) -> Iterator[tuple[list[str], str]]:
        """Loops over all axes but channels and that of tiles, and over blocks of channels: index, block.

        The outermost is shared out. Along the axis of tiles the index is w.
        """
        nest = self.nest
        y = self.y
        axes = [axis for axis in range(len(y.shape)) if axis not in (1, self.along)]
        free = any(y.shape[axis] > 1 and (nest.whole or axis != row_axis(y.shape)) for axis in axes)
        with ExitStack() as loops:
            if not free:
                loops.enter_context(nest.share(self.groups * self.blocks, "block"))
            indices = loops.enter_context(nest.each(axes=axes))
            if free:
                loops.enter_context(nest.share(self.groups * self.blocks, "block"))
            yield [indices.get(axis, "w") for axis in range(len(y.shape)) if axis != 1], "block"

    def _packed(self) -> tuple[str, int]:
        """Weights as (groups, blocks, *kernel, channels read, channels made) and the number of blocks."""
        values = self.nest.call.values[1]
        assert values is not None
        kernel = values.shape[2:]
        blocks = -(-self.outputs // self.width)
        if self.transposed:
            values = values.reshape(self.groups, self.read, self.outputs, *kernel).swapaxes(1, 2)
        else:
            values = values.reshape(self.groups, self.outputs, self.read, *kernel)
        padded = np.zeros((self.groups, blocks * self.width, self.read, *kernel), np.float32)
        padded[:, : self.outputs] = values
        split = padded.reshape(self.groups, blocks, self.width, self.read, *kernel)
        return self.nest.constant(
            np.ascontiguousarray(split.transpose(0, 1, *range(4, split.ndim), 3, 2))
        ), blocks

    def _tile(self, at: Sequence[str], elements: int, block: str) -> None:
        """A block of channels of `elements` results from an index (without that of the channel) on."""
        out = self.nest.out
        x = self.x
        lanes = self.nest.lanes
        sums = [(p, j) for p in range(elements) for j in range(self.count)]
        out(f"v{lanes} {', '.join(f's{p}_{j} = SPLAT_{lanes}(0.0f)' for p, j in sums)};")
        with self._taps(at[1:], elements) as tap:
            group = "0" if self.groups == 1 else f"{block} / {self.blocks}"
            kernel = [window.kernel for window in self.sliding]
            flat = " + ".join(f"{k} * {prod(kernel[axis + 1 :])}" for axis, k in enumerate(tap.kernel))
            out(
                f"const float *v = {self.weights} + ((size_t){block} * {prod(kernel)} + (size_t)({flat})) * "
                f"{self.read * self.width};"
            )
            with out.block(f"for (int c = 0; c < {self.read}; c++)"):
                out.all(
                    f"const v{lanes} f{j} = *(const u{lanes} *)(v + c * {self.width} + {j * lanes});"
                    for j in range(self.count)
                )
                out(f"const float *a = &{x.at([at[0], self._channel(group, 'c'), *tap.source])};")
                step = (x.step(self.along) or 0) * self.sliding[self.along - 2].stride
                for p in range(elements):
                    out(f"const v{lanes} a{p} = SPLAT_{lanes}(a[{p * step}]);")
                    out.all(f"s{p}_{j} += a{p} * f{j};" for j in range(self.count))
        self._store(at, elements)

    @contextmanager
    def _taps(self, at: Sequence[str], elements: int) -> Iterator[Taps]:
        if elements == 1 and not self.margin:
            with taps(self.nest, self.sliding, at) as tap:
                yield tap
            return
        place = self.along - 2
        window = self.sliding[place]
        others = [axis for axis in range(len(self.sliding)) if axis != place]
        start = f"{at[place]} * {window.stride} - {window.pad}"
        low = "0"
        high = str(window.kernel)
        if self.margin:  # taps that meet the map in one of the elements
            reach = (elements - 1) * window.stride
            by = window.dilation
            low = f"larger(({by - 1 - reach} - ({start})) / {by}, 0)"
            high = f"smaller(({window.size - 1 + by} - ({start})) / {by}, {window.kernel})"
        outer = taps(self.nest, [self.sliding[axis] for axis in others], [at[axis] for axis in others])
        with outer as tap, self.nest.out.nested([f"for (int q = {low}; q < {high}; q++)"]):
            kernel = [*tap.kernel]
            source = [*tap.source]
            kernel.insert(place, "q")
            source.insert(place, f"({start} + q * {window.dilation} + {self.margin})")
            yield Taps(kernel, source)

    def _store(self, at: Sequence[str], elements: int) -> None:
        out = self.nest.out
        y = self.y
        lanes = self.nest.lanes
        out(f"float sums[{elements * self.width}];")
        out.all(
            f"*(u{lanes} *)(sums + {p * self.width + j * lanes}) = s{p}_{j};"
            for p in range(elements)
            for j in range(self.count)
        )
        with out.block("for (int c = 0; c < count; c++)"):
            shift = f" + {self.bias.at(['(first + c)'])}" if self.bias else ""
            for p in range(elements):
                place = [at[0], "(first + c)", *at[1:]]
                place[self.along] = f"(w + {p})"
                out(f"{y.at(place)} = sums[{p * self.width} + c]{shift};")


def _tile_size(elements: int, lanes: int) -> int:
    """Elements of each of the fewest tiles that cover so many."""
    return -(-elements // max(-(-elements // MOST_ELEMENTS[lanes]), 1)) or 1


def _inside(window: Window) -> tuple[int, int]:
    """From the first result whose window lies in the map to the one behind the last."""
    start = min(max(-(-window.pad // window.stride), 0), window.size_out)
    stop = (window.size - 1 + window.pad - (window.kernel - 1) * window.dilation) // window.stride + 1
    return start, min(max(stop, start), window.size_out)


LOOPS: dict[str, Callable[[Nest], None]] = {"Conv": convolution, "ConvTranspose": convolution}
