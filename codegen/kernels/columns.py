"""Depthwise convolutions of maps in bfloat16, two rows of the kernel at a time, for 32 channels.

Elements of two rows that lie above one another make pairs, those of four channels in either half of a vector
by turns; a pair serves all columns of the kernel. Where the last row is alone, it stands twice in its pairs,
the second time for what rounding left of its weights. Sums are brought back to the order of the channels
before the epilogue.
"""

from __future__ import annotations

import numpy as np

from codegen.elements import paired, rounded
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.tiles import Pixels
from codegen.kernels.window import KernelWindow
from codegen.writer import Writer

WIDTH = 32  # channels of a tile
# (halves, ...): the channels of each vector of sums
ORDER = np.arange(WIDTH).reshape(4, 2, 4).transpose(1, 0, 2)


def packed(weights: np.ndarray, columns: int) -> np.ndarray:
    """(channels / 32, pairs of rows, columns, halves, 16) uint32: pairs of weights, (channels, taps)."""
    # of axes tiles, halves, 16, rows and columns
    taps = weights.reshape(-1, WIDTH, weights.shape[1] // columns, columns)[:, ORDER.reshape(2, -1)]
    if taps.shape[3] % 2:
        last = taps[..., -1:, :]
        taps = np.concatenate(
            [taps, last - (rounded(last).astype(np.uint32) << np.uint32(16)).view(np.float32)], axis=3
        )
    return paired(taps.transpose(0, 4, 1, 3, 2)).transpose(0, 3, 1, 2, 4)


def ordered(bias: np.ndarray) -> np.ndarray:
    """(channels / 32, halves, 16) float32: what the sums begin with, of a bias, (channels,)."""
    return bias.reshape(-1, WIDTH)[:, ORDER.reshape(2, -1)]


def tile(fused: FusedKernel, window: KernelWindow, part: Pixels, name: str) -> Writer:
    """The function of a tile of pixels and 32 channels."""
    out = Writer()
    source = fused.images(window.map)
    output = fused.images(fused.result)
    rows, columns = window.kernel
    taps: dict[int, list[tuple[int, int]]] = {}  # elements from the first -> (pixel, column) that read there
    for p in range(part.size):
        for column, reach in enumerate(window.reach):
            if (p, column) not in part.missing:
                taps.setdefault((p * window.strides[1] + reach) * source.pitch, []).append((p, column))
    y = fused.pointer(fused.result)
    head = (
        f"APART void {name}(const bf16 *const *x, int from, int to, int at, const pair *restrict w, "
        f"const float *restrict b, {y}restrict y"
    )
    with out.block(f"{head}{fused.parameters})"):
        for p in range(part.size):
            out(f"v16 s{p}_0 = *(const u16 *)b, s{p}_1 = *(const u16 *)(b + 16);")
        if not taps:
            out("(void)x, (void)from, (void)to, (void)at, (void)w;")
        for k in range(0, rows if taps else 0, 2):
            two = [row for row in (k, k + 1) if row < rows]
            with out.block(f"if ({' || '.join(f'(from <= {row} && {row} < to)' for row in two)})"):
                for row in two:
                    out(f"const bf16 *a{row - k} = (from <= {row} && {row} < to ? x[{row}] : x[from]) + at;")
                    out(f"const __mmask32 some{row - k} = from <= {row} && {row} < to ? 0xffffffffu : 0;")
                for column in range(columns):
                    first = (k // 2 * columns + column) * WIDTH
                    out(
                        f"const i16 w{column}_0 = *(const p16 *)(w + {first}), w{column}_1 = *(const p16 "
                        f"*)(w + {first + 16});"
                    )
                for offset, readers in sorted(taps.items()):
                    with out.block(""):
                        out(f"const __m512i above = present(some0, a0 + {offset});")
                        out(
                            "const __m512i below = "
                            f"{f'present(some1, a1 + {offset})' if len(two) > 1 else 'above'};"
                        )
                        out(
                            "const i16 low = (i16)_mm512_unpacklo_epi16(above, below), high = "
                            "(i16)_mm512_unpackhi_epi16(above, below);"
                        )
                        for p, column in readers:
                            out(
                                f"s{p}_0 = dot_16(s{p}_0, low, w{column}_0), s{p}_1 = dot_16(s{p}_1, high, "
                                f"w{column}_1);"
                            )
        for p in range(part.size):
            out(
                f"const v16 low{p} = s{p}_0, high{p} = s{p}_1;",
                f"s{p}_0 = first_16(low{p}, high{p}), s{p}_1 = second_16(low{p}, high{p});",
            )
        fused.store(out, part.size, (16, 16), output.channels, "s{p}_{k}")
    return out
