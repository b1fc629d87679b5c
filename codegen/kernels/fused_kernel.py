"""An operator and its epilogue as one kernel: all that printing it is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np

from codegen.elements import FLOAT32, Element
from codegen.epilogue import Epilogue, EpilogueOperand
from codegen.kernels.tiles import Channels, Pixels, channels_in, vectors
from codegen.layout import Image, MapLayout
from codegen.source import Unsupported
from codegen.target import Target
from codegen.writer import CModule, Writer
from lfopt.ops import Call, Dataflow

NEARLY = 0.02  # of the time of all threads: less is no reason to part work otherwise
R = TypeVar("R", Channels, Pixels)
# (map, row as a C expression) -> C expression for the address of that row
Address = Callable[[int, str], str]


@dataclass(frozen=True)
class FusedKernel:
    """An operator and its epilogue, as one C function `name(m, r)` that makes row r of the result."""

    name: str
    flow: Dataflow
    anchor: int  # index of the operator that it begins with
    epilogue: Epilogue
    result: int  # index of the map that is stored
    layouts: Callable[[int], MapLayout]  # of maps, as the anchor sees them
    stored: Callable[[int], Element]  # how elements of a map lie in memory
    address: Address
    dense: Callable[[int], bool]  # whether all rows of a map are there, one after the other
    target: Target
    source: int  # map that an elementwise anchor begins with; of others, that they make
    # whether operators make whole maps, one after the other; if not, rows pass through rings
    whole: bool
    flat: bool = False  # whether all rows are made in one go, as one long row
    once: bool = False  # whether one call makes the whole map
    alone: bool = False  # whether each thread makes rows of its own
    # maps: parts of a Concat, or results of a Split, that need no copy
    aliased: AbstractSet[int] = frozenset()
    tiled: bool = False  # whether a convolution on integers is faster by Winograd's algorithm
    # (256,): what follows the anchor, on integers, by the byte that it makes
    table: np.ndarray | None = None
    # C functions of the epilogue on a vector, by lanes; without them it is printed wherever it is applied
    ends: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def call(self) -> Call:
        """The anchor's operator."""
        return self.flow.calls[self.anchor]

    @property
    def shared(self) -> bool:
        """Whether all threads make together what one call makes; if not, the caller makes all of it."""
        return not self.alone and (self.once or not self.whole)

    def operand(self, index: int) -> int:
        """Map behind an input of the anchor. Raises Unsupported."""
        for operand in self.flow.operands[self.anchor]:
            if operand.input == index:
                return operand.map
        raise self.unsupported(f"input {index} that is a constant", "a feature map")

    def images(self, m: int) -> Image:
        """Extents of a map. Raises Unsupported."""
        layout = self.layouts(m)
        if self.flat:
            return layout.whole
        return layout.image

    def pointer(self, m: int) -> str:
        """C type of the address of an element of a float32 map, up to the name."""
        return f"{self.stored(m).ctype} *"

    def load(self, m: int, lanes: int, address: str) -> str:
        """C expression: the vector of floats at an address in a map."""
        return self.stored(m).load(lanes, address)

    def copy(self, out: Writer, to: tuple[int, str], source: tuple[int, str], count: int) -> None:
        """So many elements, side by side, from an address in a map to one in another: (map, C expression)."""
        (there, y), (here, x) = to, source
        if self.stored(there) is self.stored(here):
            out(f"memcpy({y}, {x}, {count} * sizeof({self.stored(here).ctype}));")
            return
        for lanes in self.over(out, count):
            out(self.stored(there).store(lanes, f"{y} + c", self.stored(here).load(lanes, f"{x} + c")))

    def require_pixels(self, *, several: bool = False) -> None:
        """Raises Unsupported where the first operand or the result is not an image in pixels.

        `several`: whether several images will do.
        """
        layouts = [self.layouts(m) for m in (self.operand(0), self.result)]
        if not all(layout.in_images if several else layout.in_pixels for layout in layouts):
            accepted = "[N, C, H, W]" if several else "[1, C, H, W]"
            raise self.unsupported(f"an input of shape {list(self.call.shape(0))}", accepted)

    def constant(self, index: int) -> np.ndarray:
        """A constant input of the anchor, of its tensor's shape and dtype. Raises Unsupported."""
        value = self.call.values[index]
        if value is None:
            raise self.unsupported(
                f"input {index} is computed, or the model has no values for it", "constants with values"
            )
        return value

    def unsupported(self, refused: str, accepted: str) -> Unsupported:
        """The error for an anchor that no kernel knows."""
        operator = self.call.operator
        return Unsupported(
            f"node {operator.name!r} ({operator.kind}): found {refused}; generated C accepts {accepted}"
        )

    # -- epilogues as parameters of a function ---------------------------------------------------------------

    @property
    def parameters(self) -> str:
        """The operands of the epilogue, as parameters."""
        return "".join(
            f", const {self.element(extra).ctype} *restrict {extra.name}" for extra in self.epilogue.extras
        )

    def arguments(self, pixel: str, channel: str, channels: int) -> str:
        """The operands of the epilogue for the pixel and channel where a tile begins."""
        return "".join(
            f", {extra.name} + {extra.offset(pixel, channel, channels)}" for extra in self.epilogue.extras
        )

    def begin(self, out: CModule, row: str = "r") -> None:
        """C statements: the operands of the epilogue for row r, and `y`, where a row of the result lies."""
        out.all(
            f"const {self.element(extra).ctype} *{extra.name} = {self._extra(out, extra, row)};"
            for extra in self.epilogue.extras
        )
        out(f"{self.pointer(self.result)}y = {self.address(self.result, row)};")

    def require_extras(self) -> None:
        """Raises Unsupported where rows of an operand of the epilogue lie in no order that kernels know."""
        for extra in self.epilogue.extras:
            if extra.map >= 0 and self._by_row(extra):
                self.address(extra.map, "r")

    def element(self, extra: EpilogueOperand) -> Element:
        """The element that an operand of the epilogue is stored as."""
        if extra.map < 0:
            return FLOAT32
        return self.stored(extra.map)

    def _by_row(self, extra: EpilogueOperand) -> bool:
        return extra.reach not in ("channel", "one") and not self.flat

    def _extra(self, out: CModule, extra: EpilogueOperand, row: str) -> str:
        if extra.map >= 0:
            return self.address(extra.map, row if self._by_row(extra) else "0")
        if not self._by_row(extra):
            return extra.place(out.blob)
        output = self.images(self.result)
        return (
            f"{extra.place(out.blob)} + {row} * "
            f"{ {'element': output.row, 'pixel': output.pixels}.get(extra.reach, output.row // extra.every) }"
        )

    def store_tile(
        self, out: Writer, pixels: int, tile: Channels, channels: int, name: str, step: int = 1
    ) -> None:
        """The epilogue on a tile of sums, and the stores, as `store`; empty lanes are left out."""
        if not tile.empty:
            self.store(out, pixels, tile.lanes, channels, name, step)
            return
        *whole, last = tile.lanes
        self.store(out, pixels, whole, channels, name, step)
        pitch = self.images(self.result).pitch
        for p in range(pixels):
            with out.block(""):
                out(f"float rest[{last}];", f"*(u{last} *)rest = {name.format(p=p, k=len(whole))};")
                done = sum(whole)
                for lanes in vectors(last - tile.empty, self.target):
                    with out.block(""):
                        out(f"v{lanes} s = *(const u{lanes} *)(rest + {done - sum(whole)});")
                        place = f"y + {p * step * pitch + done}"
                        self.put(out, "s", lanes, place, p * step, done, channels)
                    done += lanes

    def store(
        self, out: Writer, pixels: int, lanes: Sequence[int], channels: int, name: str, step: int = 1
    ) -> None:
        """The epilogue on a tile of sums, and the stores.

        `name`: C variable of the sums of a pixel and a vector, `step`: from one pixel to the next, in pixels.
        """
        offsets = [sum(lanes[:k]) for k in range(len(lanes))]
        pitch = self.images(self.result).pitch
        for p in range(pixels):
            for k, width in enumerate(lanes):
                value = name.format(p=p, k=k)
                place = f"y + {p * step * pitch + offsets[k]}"
                self.put(out, value, width, place, p * step, offsets[k], channels)

    def put(
        self,
        out: Writer,
        value: str,
        lanes: int,
        address: str,
        pixel: int | str,
        channel: int | str,
        channels: int,
    ) -> None:
        """The epilogue on one vector, which then goes to an address in the result."""
        out.all(self.finish(value, lanes, pixel, channel, channels))
        out(self.stored(self.result).store(lanes, address, value))

    def finish(
        self, value: str, lanes: int, pixel: int | str, channel: int | str, channels: int
    ) -> list[str]:
        """The epilogue on one vector of a tile; offsets are from where the tile begins."""
        if lanes in self.ends:
            operands = "".join(
                f", {extra.name} + {extra.offset(pixel, channel, channels)}" for extra in self.epilogue.extras
            )
            return [f"{value} = {self.ends[lanes]}({value}{operands});"]

        def vector(extra: EpilogueOperand) -> str:
            return extra.vector(
                f"{extra.name} + {extra.offset(pixel, channel, channels)}", self.element(extra)
            )

        return self.epilogue.apply(value, lanes, vector)

    def with_ends(self, out: CModule) -> FusedKernel:
        """The same, after its epilogue is printed as functions: tiles apply it in many places."""
        if not self.epilogue.lines:
            return self
        names = {lanes: f"{self.name}_end_{lanes}" for lanes in self.target.lanes}
        ends = {lanes: out.function(name, self._end(lanes, name)) for lanes, name in names.items()}
        return replace(self, ends=ends)

    def _end(self, lanes: int, name: str) -> Writer:
        out = Writer()

        def vector(extra: EpilogueOperand) -> str:
            return extra.vector(extra.name, self.element(extra))

        with out.block(f"INLINE v{lanes} {name}(v{lanes} value{self.parameters})"):
            out.all(self.epilogue.apply("value", lanes, vector))
            out("return value;")
        return out

    # -- loops -----------------------------------------------------------------------------------------------

    def partitions_better(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Whether pieces of such costs keep the threads as busy as other pieces do, nearly or more.

        Each list is shared out in its order.
        """
        return self._utilization(one) >= self._utilization(other) - NEARLY

    def _utilization(self, tile_costs: Sequence[int]) -> float:
        """The share of their time that the threads are at work."""
        sums = [0, *accumulate(tile_costs)]
        threads = self.target.threads
        at = [sums[len(tile_costs) * k // threads] for k in range(threads + 1)]
        return sums[-1] / (threads * max(stop - first for first, stop in pairwise(at)))

    def tiles(self, out: Writer, runs: Sequence[R], index: str, *, split: bool) -> Iterator[R]:
        """Loops over the tiles of each run; the body of one is written before the next is asked for.

        `split`: threads share them out.
        """
        count = sum(run.tiles for run in runs)
        before = 0
        for run in runs:
            first = "0"
            stop = str(run.tiles)
            if split and self.shared and self.target.threads > 1:
                first = f"larger(FIRST({count}) - {before}, 0)"
                stop = f"smaller(STOP({count}) - {before}, {run.tiles})"
            with out.block(f"for (int {index} = {first}; {index} < {stop}; {index}++)"):
                yield run
            before += run.tiles

    def over(self, out: Writer, count: int, *, split: bool = False) -> Iterator[int]:
        """Loops over `count` elements by vectors, from element c on.

        One loop for every width, whose body is written before the next is asked for.
        """
        for part in self.tiles(out, channels_in(vectors(count, self.target), 1), "t", split=split):
            out(f"const int c = {part.first} + t * {part.width};")
            yield part.width

    def each(self, out: Writer, index: str, count: int, *, split: bool) -> AbstractContextManager[None]:
        """A loop over `count` equal pieces of work. `split`: threads share them out."""
        shared = split and self.shared and self.target.threads > 1
        first, stop = (f"FIRST({count})", f"STOP({count})") if shared else ("0", str(count))
        return out.block(f"for (int {index} = {first}; {index} < {stop}; {index}++)")

    def each_pixel(self, out: Writer, count: int) -> AbstractContextManager[None]:
        """A loop over `count` pixels p, which threads share out."""
        return self.each(out, "p", count, split=True)
