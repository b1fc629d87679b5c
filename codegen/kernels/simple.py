"""Kernels without a window: elementwise operators on their own, means over all pixels, concatenation of channels."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.choice import Write
from codegen.kernels.unit import Unit
from codegen.layout import Image, Layout
from codegen.writer import Module, Writer


def elementwise(unit: Unit) -> Write:
    """The kernel of a unit that is a tail and nothing else. Raises Unsupported."""
    source = unit.source
    read, written = unit.layouts(source), unit.layouts(unit.result)
    made = written.packed.whole if unit.flat else unit.images(unit.result)
    plain = not (written.apart or read.apart) and all(extra.reach in ("element", "one") and not extra.pitch for extra in unit.tail.extras)
    as_one = plain or (made.pixels == 1 and not (read.apart or written.apart))  # run of elements, not pixel by pixel
    places = [_place(unit, layout, made) if layout.apart and not as_one else "" for layout in (read, written)]
    a, y = (unit.address(m, "r") for m in (source, unit.result))
    unit.require_extras()

    def write(out: Module) -> None:
        with out.kernel(unit.name):
            out(f"const {unit.pointer(source)}a = {a};")
            out.all(unit.declarations(out))
            out(f"{unit.pointer(unit.result)}y = {y};")
            if as_one:
                count = made.row if plain else made.channels
                _over(out, unit, source, count, "0", count, split=True)
                return
            with unit.each_pixel(out, made.pixels):
                out.all(f"const int {name} = {place};" for name, place in zip(("from", "to"), places, strict=True) if place)
                ends = tuple(name if place else f"p * {made.channels}" for name, place in zip(("from", "to"), places, strict=True))
                _over(out, unit, source, made.channels, "p", made.channels, split=False, ends=(ends[0], ends[1]))

    return write


def _place(unit: Unit, layout: Layout, made: Image) -> str:
    """C expression: where pixel p begins in a map that lies within another. Raises Unsupported."""
    if unit.flat:
        return layout.place("p", made.channels)
    if layout.image[1:3] != made[1:3]:
        raise unit.unsupported(f"{layout.image.pixels} pixels that lie within another map for {made.pixels}", "as many")
    return f"p * {layout.image.pitch}"


def _over(
    out: Writer, unit: Unit, source: int, count: int, pixel: str, channels: int, *, split: bool, ends: tuple[str, str] = ("", "")
) -> None:  # fmt: skip
    """Loops over so many elements from a pixel on. `ends`: where that begins in the map and in the result, if not with their first."""
    read, write = (f"{end} + c" if end else "c" for end in ends)
    for lanes in unit.over(out, count, split=split):
        out(f"v{lanes} s = {unit.load(source, lanes, f'a + {read}')};")
        out.all(unit.finish("s", lanes, pixel, "c", channels))
        out(unit.put(lanes, f"y + {write}", "s"))


def mean(out: Module, unit: Unit, source: int) -> None:
    """The kernel of a mean over all rows and pixels."""
    image = unit.images(source)
    _folded(out, unit, source, "0.0f", "{s} + {v}", f"(1.0f / {image.rows * image.pixels}.0f)")


def largest(out: Module, unit: Unit, source: int) -> None:
    """The kernel of a maximum over all rows and pixels; what is not a number stays."""
    _folded(out, unit, source, "-INFINITY", "SELECT_@({v} == {v}, max_@({s}, {v}), {v})", "")


def _folded(out: Module, unit: Unit, source: int, start: str, fold: str, factor: str) -> None:
    """All pixels of a channel as one; of a row first, since sums of sums lose less. `fold`: C expression of {s} and {v}, `factor`: of the result."""
    image = unit.images(source)
    sums = "y" if unit.stored(unit.result).floats else "sums"

    def folded(lanes: int, s: str, v: str) -> str:
        return fold.format(s=s, v=v).replace("@", str(lanes))

    with out.kernel(unit.name):
        out.all(unit.declarations(out))
        out(f"{unit.pointer(unit.result)}y = {unit.address(unit.result, 'r')};")
        if sums != "y":
            out(f"float *sums = {out.scratch(image.channels)};")
        for lanes in unit.over(out, image.channels, split=True):
            out(f"*(u{lanes} *)({sums} + c) = SPLAT_{lanes}({start});")
        with out.block(f"for (int h = 0; h < {image.rows}; h++)"):
            out(f"const {unit.pointer(source)}a = {unit.address(source, 'h')};")
            for lanes in unit.over(out, image.channels, split=True):
                out(f"v{lanes} s = SPLAT_{lanes}({start});")
                with out.block(f"for (int p = 0; p < {image.pixels}; p++)"):
                    out(f"const v{lanes} v = {unit.load(source, lanes, f'a + p * {image.pitch} + c')};", f"s = {folded(lanes, 's', 'v')};")
                out(f"const v{lanes} t = *(const u{lanes} *)({sums} + c);", f"*(u{lanes} *)({sums} + c) = {folded(lanes, 't', 's')};")
        for lanes in unit.over(out, image.channels, split=True):
            out(f"v{lanes} s = *(const u{lanes} *)({sums} + c){f' * SPLAT_{lanes}({factor})' if factor else ''};")
            out.all(unit.finish("s", lanes, 0, "c", image.channels))
            out(unit.put(lanes, "y + c", "s"))


def concatenation(out: Writer, unit: Unit, sources: Sequence[tuple[int, int]]) -> None:
    """The kernel of a concatenation of channels; `sources`: the maps that are copied, and the channel that each goes to."""
    made = unit.images(unit.result)
    with out.kernel(unit.name):
        out(f"{unit.pointer(unit.result)}y = {unit.address(unit.result, 'r')};")
        out.all(f"const {unit.pointer(source)}a{k} = {unit.address(source, 'r')};" for k, (source, _) in enumerate(sources))
        with unit.each_pixel(out, made.pixels):
            for k, (source, first) in enumerate(sources):
                read = unit.images(source)
                unit.copy(out, (unit.result, f"y + p * {made.pitch} + {first}"), (source, f"a{k} + p * {read.pitch}"), read.channels)
