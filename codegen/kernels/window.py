"""Which rows and pixels a kernel's window reads."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.kernels.fused_kernel import FusedKernel
from lfopt.ops.windows import windows


@dataclass(frozen=True)
class KernelWindow:
    """A window over the rows and pixels of a map."""

    map: int
    kernel: tuple[int, int]  # rows, columns
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)  # above and left

    @property
    def reach(self) -> list[int]:
        """Pixel that each column reads, less stride x pixel of the result."""
        return [k * self.dilations[1] - self.pads[1] for k in range(self.kernel[1])]


def window_of(fused: FusedKernel, *, trimmed: bool = False) -> KernelWindow:
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
    )


def declare_rows(fused: FusedKernel, window: KernelWindow, rows: int) -> list[str]:
    """C statements: addresses `x` of the rows that row r reads; `from` up to `to` are in the map."""
    height = fused.images(window.map).rows
    if rows == 1 and window.strides[0] == 1 and not window.pads[0]:
        return [
            f"const {fused.pointer(window.map)}x[1] = {{{fused.address(window.map, 'r')}}};",
            "const int from = 0, to = 1;",
        ]
    step, by = window.strides[0], window.dilations[0]
    return [
        # none of a row outside the map is read, but a compiler cannot see that
        f"const {fused.pointer(window.map)}x[{rows}] = {{0}};",
        f"int top = r * {step} - {window.pads[0]};",
        f"int from = top < 0 ? ({by - 1} - top) / {by} : 0;",
        f"int to = top + {(rows - 1) * by} < {height} ? {rows} : ({height + by - 1} - top) / {by};",
        f"for (int k = from; k < to; k++) x[k] = {fused.address(window.map, f'(top + k * {by})')};",
    ]
