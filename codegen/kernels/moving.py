"""Kernels that only move elements: rows of a table gathered, channels cut apart."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.fused_kernel import FusedKernel
from codegen.layout import MapLayout
from codegen.writer import Writer


def gather(out: Writer, fused: FusedKernel, table: str, rows: int, indices: MapLayout, where: str) -> None:
    """The kernel of a Gather of whole rows of a table.

    `rows`: of the table, `indices`: how they lie, `where`: their address in C. Indices outside the table are
    clamped.
    """
    output = fused.images(fused.result)
    with out.kernel(fused.name):
        out(
            f"const {indices.ctype} *at = {where};",
            f"{fused.pointer(fused.result)}y = {fused.address(fused.result, 'r')};",
        )
        with fused.each_pixel(out, output.pixels):
            out(f"int64_t k = (int64_t)at[{_index(fused, indices)}];")
            out(f"k = k < 0 ? k + {rows} : k;", f"k = k < 0 ? 0 : k >= {rows} ? {rows - 1} : k;")
            out(
                f"memcpy(y + p * {output.pitch}, {table} + k * {output.channels}, {output.channels} * sizeof "
                "*y);"
            )


def _index(fused: FusedKernel, indices: MapLayout) -> str:
    """C expression: where the index of pixel p lies."""
    layout = fused.layouts(fused.result)
    terms: list[str] = []
    inside = 1
    for axis in reversed(layout.order[:-1]):
        extent = layout.shape[axis]
        if extent > 1:
            pixel = "p" if fused.flat else f"(r * {fused.images(fused.result).pixels} + p)"
            terms.append(f"{pixel} / {inside} % {extent} * {indices.strides[axis]}")
        inside *= extent
    return " + ".join(terms) or "0"


def separation(out: Writer, fused: FusedKernel, source: int, results: Sequence[tuple[int, int]]) -> None:
    """The kernel of a Split of channels; `results`: (map, its first channel) of those that are made."""
    read = fused.images(source)
    with out.kernel(fused.name):
        out(f"const {fused.pointer(source)}a = {fused.address(source, 'r')};")
        out.all(f"{fused.pointer(m)}y{k} = {fused.address(m, 'r')};" for k, (m, _) in enumerate(results))
        with fused.each_pixel(out, read.pixels):
            for k, (m, first) in enumerate(results):
                output = fused.images(m)
                fused.copy(
                    out,
                    (m, f"y{k} + p * {output.pitch}"),
                    (source, f"a + p * {read.pitch} + {first}"),
                    output.channels,
                )
