"""Conv and ConvTranspose along any number of spatial axes.

Element by element in double, or channels of the result in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from codegen.loops.nest import Nest
from codegen.loops.sliding import Taps, taps
from codegen.loops.sums import Sums
from lfopt.ir import row_axis
from lfopt.ops.windows import Window, windows

MOST_VECTORS = 4  # of channels, where a tile is one element
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
        self.x, self.y = self.nest.operand(0), self.nest.results[0]
        self.bias = self.nest.operand(2) if self.nest.call.has(2) else None
        self.transposed = call.operator.kind == "ConvTranspose"
        self.sliding = windows(call)
        self.groups = call.attribute("group", 1)
        # channels of the result and of the operand in a group
        self.outputs, self.read = self.y.shape[1] // self.groups, self.x.shape[1] // self.groups

    # -- element by element ----------------------------------------------------------------------------------

    def elements(self) -> None:
        """The sum of one element after the other."""
        nest, out, x, y = self.nest, self.nest.out, self.x, self.y
        weights, sums = nest.operand(1), Sums.of(y.dtype)
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
        return c if group == "0" else f"({group} * {self.read} + {c})"

    # -- channels in vectors ---------------------------------------------------------------------------------

    @property
    def in_vectors(self) -> bool:
        """Whether vectors of channels are worth it: weights are known, and a group makes enough channels."""
        nest, x = self.nest, self.x
        if (
            not nest.lanes
            or x.dtype != "float32"
            or nest.call.values[1] is None
            or 2 * self.outputs < nest.lanes
        ):
            return False
        return (nest.whole or row_axis(self.y.shape) != 1) and (
            self.transposed or x.step(len(x.shape) - 1) is not None
        )

    def vectors(self) -> None:
        """Tiles of channels by elements: a few elements along the last axis, or, transposed, one."""
        nest, out, y, lanes = self.nest, self.nest.out, self.y, self.nest.lanes
        # vectors of channels in a tile
        self.count = min(-(-self.outputs // lanes), MOST_VECTORS) if self.transposed else 1
        self.width = self.count * lanes
        self.weights, self.blocks = self._packed()
        with self._spread() as (at, block):
            first = f", first = {block} / {self.blocks} * {self.outputs} + done" if y.shape[1] > 1 else ""
            out(f"const int done = {block} % {self.blocks} * {self.width}{first};")
            out(f"const int count = smaller({self.width}, {self.outputs} - done);")
            if self.transposed:
                with nest.over([y.shape[-1]], "w") as (w,):
                    self._tile([*at, w], 1, block)
                return
            start, stop = _inside(self.sliding[-1])
            for low, high in ((0, start), (stop, y.shape[-1])):
                if low < high:
                    with out.block(f"for (int w = {low}; w < {high}; w++)"):
                        self._tile([*at, "w"], 1, block)
            size = ceil((stop - start) / ceil((stop - start) / MOST_ELEMENTS[lanes])) if start < stop else 1
            whole, rest = divmod(stop - start, size)
            for low, high, elements in ((start, start + whole * size, size), (stop - rest, stop, rest)):
                if low < high:
                    with out.block(f"for (int w = {low}; w < {high}; w += {elements})"):
                        self._tile([*at, "w"], elements, block)

    @contextmanager
    def _spread(self) -> Iterator[tuple[list[str], str]]:
        """Loops over all axes but channels and the last, and over blocks of channels: index, block.

        The outermost is shared out.
        """
        nest, y = self.nest, self.y
        axes = [0, *range(2, len(y.shape) - 1)]
        free = any(y.shape[axis] > 1 and (nest.whole or axis != row_axis(y.shape)) for axis in axes)
        with ExitStack() as loops:
            if not free:
                loops.enter_context(nest.share(self.groups * self.blocks, "block"))
            indices = loops.enter_context(nest.each(axes=axes))
            if free:
                loops.enter_context(nest.share(self.groups * self.blocks, "block"))
            yield [indices[axis] for axis in axes], "block"

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
        out, x, lanes = self.nest.out, self.x, self.nest.lanes
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
                step = (x.step(len(x.shape) - 1) or 0) * self.sliding[-1].stride
                for p in range(elements):
                    out(f"const v{lanes} a{p} = SPLAT_{lanes}(a[{p * step}]);")
                    out.all(f"s{p}_{j} += a{p} * f{j};" for j in range(self.count))
        self._store(at, elements)

    @contextmanager
    def _taps(self, at: Sequence[str], elements: int) -> Iterator[Taps]:
        if elements == 1:
            with taps(self.nest, self.sliding, at) as tap:
                yield tap
            return
        *outer, last = self.sliding
        with taps(self.nest, outer, at[:-1]) as tap, self.nest.over([last.kernel], "q") as (k,):
            yield Taps(
                [*tap.kernel, k],
                [*tap.source, f"({at[-1]} * {last.stride} - {last.pad} + {k} * {last.dilation})"],
            )

    def _store(self, at: Sequence[str], elements: int) -> None:
        out, y, lanes = self.nest.out, self.y, self.nest.lanes
        out(f"float sums[{elements * self.width}];")
        out.all(
            f"*(u{lanes} *)(sums + {p * self.width + j * lanes}) = s{p}_{j};"
            for p in range(elements)
            for j in range(self.count)
        )
        with out.block("for (int c = 0; c < count; c++)"):
            shift = f" + {self.bias.at(['(first + c)'])}" if self.bias else ""
            for p in range(elements):
                place = [at[0], "(first + c)", *at[1:-1], at[-1] if p == 0 else f"({at[-1]} + {p})"]
                out(f"{y.at(place)} = sums[{p * self.width} + c]{shift};")


def _inside(window: Window) -> tuple[int, int]:
    """From the first result whose window lies in the map to the one behind the last."""
    start = min(max(-(-window.pad // window.stride), 0), window.size_out)
    stop = (window.size - 1 + window.pad - (window.kernel - 1) * window.dilation) // window.stride + 1
    return start, min(max(stop, start), window.size_out)


LOOPS: dict[str, Callable[[Nest], None]] = {"Conv": convolution, "ConvTranspose": convolution}
