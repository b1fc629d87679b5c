"""Kernels without a window: elementwise operators on their own, means over all pixels, concatenation of channels."""

from __future__ import annotations

from codegen.kernels.unit import Unit
from codegen.writer import Writer


def elementwise(out: Writer, unit: Unit, source: int) -> None:
    """The kernel of a unit that is a tail and nothing else: it begins with map `source`."""
    made = unit.images(unit.result)
    plain = all(extra.reach in ("element", "one") for extra in unit.tail.extras)
    with out.kernel(unit.name):
        out(f"const float *a = {unit.address(source, 'r')};")
        out.all(unit.declarations())
        out(f"float *y = {unit.address(unit.result, 'r')};")
        if plain or made.pixels == 1:
            _over(out, unit, made.row, "0", made.row, split=True)
        else:
            with unit.each_pixel(out, made.pixels):
                _over(out, unit, made.channels, "p", made.channels, split=False)


def _over(out: Writer, unit: Unit, count: int, pixel: str, channels: int, *, split: bool) -> None:
    """Loops over so many elements from a pixel on."""
    at = "c" if pixel == "0" else f"p * {channels} + c"
    for lanes in unit.over(out, count, split=split):
        out(f"v{lanes} s = *(const u{lanes} *)(a + {at});")
        out.all(unit.finish("s", lanes, pixel, "c", channels))
        out(f"*(u{lanes} *)(y + {at}) = s;")


def mean(out: Writer, unit: Unit, source: int) -> None:
    """The kernel of a mean over all rows and pixels."""
    image = unit.images(source)
    with out.kernel(unit.name):
        out.all(unit.declarations())
        out(f"float *y = {unit.address(unit.result, 'r')};")
        for lanes in unit.over(out, image.channels, split=True):
            out(f"*(u{lanes} *)(y + c) = SPLAT_{lanes}(0.0f);")
        with out.block(f"for (int h = 0; h < {image.rows}; h++)"):
            out(f"const float *a = {unit.address(source, 'h')};")
            for lanes in unit.over(out, image.channels, split=True):
                out(f"v{lanes} s = SPLAT_{lanes}(0.0f); /* of a row: sums of sums lose less */")
                out(f"for (int p = 0; p < {image.pixels}; p++) s += *(const u{lanes} *)(a + p * {image.channels} + c);")
                out(f"*(u{lanes} *)(y + c) += s;")
        for lanes in unit.over(out, image.channels, split=True):
            out(f"v{lanes} s = *(const u{lanes} *)(y + c) * SPLAT_{lanes}(1.0f / {image.rows * image.pixels}.0f);")
            out.all(unit.finish("s", lanes, 0, "c", image.channels))
            out(f"*(u{lanes} *)(y + c) = s;")


def concatenation(out: Writer, unit: Unit, sources: list[int]) -> None:
    """The kernel of a concatenation of channels."""
    made = unit.images(unit.result)
    with out.kernel(unit.name):
        out(f"float *y = {unit.address(unit.result, 'r')};")
        out.all(f"const float *a{k} = {unit.address(source, 'r')};" for k, source in enumerate(sources))
        with unit.each_pixel(out, made.pixels):
            first = 0
            for k, source in enumerate(sources):
                channels = unit.images(source).channels
                out(f"memcpy(y + p * {made.channels} + {first}, a{k} + p * {channels}, {channels} * sizeof *y);")
                first += channels
