"""Kernels without a window: elementwise operators alone, means over pixels, concatenations."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.choice import Write
from codegen.kernels.fused_kernel import FusedKernel
from codegen.layout import Image, MapLayout
from codegen.writer import CModule, Writer


def elementwise(fused: FusedKernel) -> Write:
    """The kernel of an epilogue and nothing else. Raises Unsupported."""
    source = fused.source
    read = fused.layouts(source)
    written = fused.layouts(fused.result)
    image = written.packed.whole if fused.flat else fused.images(fused.result)
    plain = not (written.alias_strides or read.alias_strides) and all(
        extra.reach in ("element", "one") and not extra.pitch for extra in fused.epilogue.extras
    )
    # whether elements lie as one run; else they are reached pixel by pixel
    as_one = plain or (image.pixels == 1 and not (read.alias_strides or written.alias_strides))
    places = [
        _place(fused, layout, image) if layout.alias_strides and not as_one else ""
        for layout in (read, written)
    ]
    a = fused.address(source, "r")
    fused.require_extras()

    def write(out: CModule) -> None:
        with out.kernel(fused.name):
            out(f"const {fused.pointer(source)}a = {a};")
            fused.begin(out)
            if as_one:
                count = image.row if plain else image.channels
                _over(out, fused, source, count, "0", count, split=True)
                return
            with fused.each_pixel(out, image.pixels):
                out.all(
                    f"const int {name} = {place};"
                    for name, place in zip(("from", "to"), places, strict=True)
                    if place
                )
                ends = tuple(
                    name if place else f"p * {image.channels}"
                    for name, place in zip(("from", "to"), places, strict=True)
                )
                _over(
                    out,
                    fused,
                    source,
                    image.channels,
                    "p",
                    image.channels,
                    split=False,
                    ends=(ends[0], ends[1]),
                )

    return write


def _place(fused: FusedKernel, layout: MapLayout, image: Image) -> str:
    """C expression: where pixel p begins in a map that lies within another. Raises Unsupported."""
    if fused.flat:
        return layout.place("p", image.channels)
    if layout.image[1:3] != image[1:3]:
        raise fused.unsupported(
            f"{layout.image.pixels} pixels that lie within another map for {image.pixels}", "as many"
        )
    return f"p * {layout.image.pitch}"


def _over(
    out: Writer,
    fused: FusedKernel,
    source: int,
    count: int,
    pixel: str,
    channels: int,
    *,
    split: bool,
    ends: tuple[str, str] = ("", ""),
) -> None:
    """Loops over `count` elements from a pixel on.

    `ends`: where that begins in the map and in the result, if not with their first.
    """
    read, write = (f"{end} + c" if end else "c" for end in ends)
    for lanes in fused.over(out, count, split=split):
        out(f"v{lanes} s = {fused.load(source, lanes, f'a + {read}')};")
        fused.put(out, "s", lanes, f"y + {write}", pixel, "c", channels)


def mean(out: CModule, fused: FusedKernel, source: int) -> None:
    """The kernel of a mean over all rows and pixels."""
    image = fused.images(source)
    _folded(out, fused, source, "0.0f", "{s} + {v}", f"(1.0f / {image.rows * image.pixels}.0f)")


def largest(out: CModule, fused: FusedKernel, source: int) -> None:
    """The kernel of a maximum over all rows and pixels; what is not a number stays."""
    _folded(out, fused, source, "-INFINITY", "most_@({s}, {v})", "")


def _folded(out: CModule, fused: FusedKernel, source: int, start: str, fold: str, factor: str) -> None:
    """A reduction over all pixels of a channel: row by row first, since sums of sums lose less.

    `fold`: C expression of {s} and {v}, `factor`: of the result.
    """
    image = fused.images(source)
    sums = "y" if fused.stored(fused.result).floats else "sums"

    def folded(lanes: int, s: str, v: str) -> str:
        return fold.format(s=s, v=v).replace("@", str(lanes))

    with out.kernel(fused.name):
        fused.begin(out)
        if sums != "y":
            out(f"float *sums = {out.scratch(image.channels)};")
        for lanes in fused.over(out, image.channels, split=True):
            out(f"*(u{lanes} *)({sums} + c) = SPLAT_{lanes}({start});")
        with out.block(f"for (int h = 0; h < {image.rows}; h++)"):
            out(f"const {fused.pointer(source)}a = {fused.address(source, 'h')};")
            for lanes in fused.over(out, image.channels, split=True):
                out(f"v{lanes} s = SPLAT_{lanes}({start});")
                with out.block(f"for (int p = 0; p < {image.pixels}; p++)"):
                    out(
                        f"const v{lanes} v = {fused.load(source, lanes, f'a + p * {image.pitch} + c')};",
                        f"s = {folded(lanes, 's', 'v')};",
                    )
                out(
                    f"const v{lanes} t = *(const u{lanes} *)({sums} + c);",
                    f"*(u{lanes} *)({sums} + c) = {folded(lanes, 't', 's')};",
                )
        for lanes in fused.over(out, image.channels, split=True):
            out(
                f"v{lanes} s = *(const u{lanes} *)({sums} + "
                f"c){f' * SPLAT_{lanes}({factor})' if factor else ''};"
            )
            fused.put(out, "s", lanes, "y + c", 0, "c", image.channels)


def concatenation(out: Writer, fused: FusedKernel, sources: Sequence[tuple[int, int]]) -> None:
    """The kernel of a concatenation of channels; `sources`: (map, its first channel) of what is copied."""
    output = fused.images(fused.result)
    with out.kernel(fused.name):
        out(f"{fused.pointer(fused.result)}y = {fused.address(fused.result, 'r')};")
        out.all(
            f"const {fused.pointer(source)}a{k} = {fused.address(source, 'r')};"
            for k, (source, _) in enumerate(sources)
        )
        with fused.each_pixel(out, output.pixels):
            for k, (source, first) in enumerate(sources):
                read = fused.images(source)
                fused.copy(
                    out,
                    (fused.result, f"y + p * {output.pitch} + {first}"),
                    (source, f"a{k} + p * {read.pitch}"),
                    read.channels,
                )
