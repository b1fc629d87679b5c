"""Which rows and pixels a kernel's window reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import Pixels
from codegen.layout import Image
from codegen.writer import CModule
from lfopt.ops.windows import windows


@dataclass(frozen=True)
class KernelWindow:
    """A window over the rows and pixels of a map."""

    map: int
    kernel: tuple[int, int]  # rows, columns
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)  # above and left
    groups: int = 1  # of channels, each read by results of its own

    @property
    def reach(self) -> list[int]:
        """Pixel that each column reads, less stride x pixel of the result."""
        return [k * self.dilations[1] - self.pads[1] for k in range(self.kernel[1])]

    def read(self, fused: FusedKernel) -> Image:
        """What one result reads of the map: the channels of its group."""
        return fused.images(self.map).group(self.groups)


def window_of(fused: FusedKernel, *, trimmed: bool = False, groups: int = 1) -> KernelWindow:
    """The window of a convolution or pool; `trimmed`: without taps that never meet the map.

    Of a map taken as one long row it slides along that.
    """
    rows, columns = (axis.trimmed((0, axis.size_out)) if trimmed else axis for axis in windows(fused.call))
    if fused.flat:
        rows, columns = columns, rows
    return KernelWindow(
        fused.operand(0),
        (rows.kernel, columns.kernel),
        (rows.stride, columns.stride),
        (rows.dilation, columns.dilation),
        (rows.pad, columns.pad),
        groups,
    )


def pixel_tiles(
    out: CModule, fused: FusedKernel, window: KernelWindow, along: Sequence[Pixels], *, split: bool
) -> Iterator[tuple[Pixels, str, str]]:
    """Loops over tiles of pixels of every image in a row; the body of one is written before the next.

    Yields the tile and C expressions: its first pixel in the image, and elements from the first of a row that
    is read to the first that its window reads. C variable p: its first pixel in the row.
    """
    source = fused.images(window.map)
    output = fused.images(fused.result)
    step = window.strides[1] * source.pitch
    images = output.images
    with out.block(f"for (int image = 0; image < {images}; image++)") if images > 1 else nullcontext():
        for part in fused.tiles(out, along, "q", split=split):
            if images == 1:
                out(f"const int p = {part.first} + q * {part.size};")
                yield part, "p", f"p * {step}"
            else:
                out(f"const int column = {part.first} + q * {part.size};")
                out(f"const int p = image * {output.width} + column;")
                yield part, "column", f"image * {source.width * source.pitch} + column * {step}"


def declare_rows(fused: FusedKernel, window: KernelWindow, rows: int, row: str = "r") -> list[str]:
    """C statements: addresses `x` of the rows that a row of the result reads.

    Those `from` up to `to` are in the map.
    """
    height = fused.images(window.map).rows
    if rows == 1 and window.strides[0] == 1 and not window.pads[0]:
        return [
            f"const {fused.pointer(window.map)}x[1] = {{{fused.address(window.map, row)}}};",
            "const int from = 0, to = 1;",
        ]
    step = window.strides[0]
    by = window.dilations[0]
    return [
        # none of a row outside the map is read, but a compiler cannot see that
        f"const {fused.pointer(window.map)}x[{rows}] = {{0}};",
        f"int top = {row} * {step} - {window.pads[0]};",
        f"int from = top < 0 ? ({by - 1} - top) / {by} : 0;",
        f"int to = top + {(rows - 1) * by} < {height} ? {rows} : ({height + by - 1} - top) / {by};",
        f"for (int k = from; k < to; k++) x[k] = {fused.address(window.map, f'(top + k * {by})')};",
    ]
