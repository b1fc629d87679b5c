"""Kernels that only move elements: rows of a table gathered, channels cut apart."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.unit import Unit
from codegen.layout import Layout
from codegen.writer import Writer


def gather(out: Writer, unit: Unit, table: str, rows: int, indices: Layout, where: str) -> None:
    """The kernel of a Gather of whole rows of a table, by indices that lie as said; indices beside the table are clamped."""
    made = unit.images(unit.result)
    with out.kernel(unit.name):
        out(f"const {indices.ctype} *at = {where};", f"{unit.pointer(unit.result)}y = {unit.address(unit.result, 'r')};")
        with unit.each_pixel(out, made.pixels):
            out(f"int64_t k = (int64_t)at[{_index(unit, indices)}];")
            out(f"k = k < 0 ? k + {rows} : k;", f"k = k < 0 ? 0 : k >= {rows} ? {rows - 1} : k;")
            out(f"memcpy(y + p * {made.pitch}, {table} + k * {made.channels}, {made.channels} * sizeof *y);")


def _index(unit: Unit, indices: Layout) -> str:
    """C expression: where the index of pixel p lies."""
    layout = unit.layouts(unit.result)
    terms: list[str] = []
    inside = 1
    for axis in reversed(layout.order[:-1]):
        extent = layout.shape[axis]
        if extent > 1:
            pixel = "p" if unit.flat else f"(r * {unit.images(unit.result).pixels} + p)"
            terms.append(f"{pixel} / {inside} % {extent} * {indices.strides[axis]}")
        inside *= extent
    return " + ".join(terms) or "0"


def separation(out: Writer, unit: Unit, source: int, results: Sequence[tuple[int, int]]) -> None:
    """The kernel of a Split of channels; `results`: the maps that are made, and the channel that each begins with."""
    read = unit.images(source)
    with out.kernel(unit.name):
        out(f"const {unit.pointer(source)}a = {unit.address(source, 'r')};")
        out.all(f"{unit.pointer(m)}y{k} = {unit.address(m, 'r')};" for k, (m, _) in enumerate(results))
        with unit.each_pixel(out, read.pixels):
            for k, (m, first) in enumerate(results):
                made = unit.images(m)
                unit.copy(out, (m, f"y{k} + p * {made.pitch}"), (source, f"a + p * {read.pitch} + {first}"), made.channels)
