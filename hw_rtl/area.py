"""FPGA area of the accelerator with another MAC array or buffer, scaled from the cells of the mapped one.

Yosys mapped `lf_core` with 16 x 16 MACs and 256 KiB to Xilinx UltraScale+ (docs/results/rtl-area.md). Each
row of PARTS scales with what it is made for: the array with its MACs; weights, accumulators and drain, which
stand beside its columns, with those; the memories of the buffer with its bytes. Everything else stays as it
is. No other size was mapped, nothing was placed or routed.
"""

from __future__ import annotations

from math import ceil
from typing import Literal, NamedTuple

from lfopt.ir import Hardware

MAPPED = Hardware(262_144, mac_rows=16, mac_columns=16)  # what the figures of PARTS are of
RAM_BYTES = 4096  # of data in a RAMB36 whose words have no parity bits

# As LUTs. A LUT that is memory has 64 bits, a block RAM 36 Kbit (AMD, Vivado conversion methodology,
# "Internal Memory"). A DSP multiplies operands of 10 bits in this array (lf_array.sv): an array multiplier
# adds 10 rows of 10 partial products, a LUT each; that was not mapped.
LUTS_OF_RAM = 36 * 1024 // 64
LUTS_OF_DSP = 10 * 10


class Area(NamedTuple):
    """Cells of UltraScale+."""

    lut: int
    ff: int
    dsp: int  # DSP48E2
    ram: int  # RAMB36

    @property
    def lut_equivalents(self) -> int:
        """LUTs with block RAMs and DSPs counted as LUTs; flip-flops stand beside LUTs and count nothing."""
        return self.lut + LUTS_OF_DSP * self.dsp + LUTS_OF_RAM * self.ram


class AreaPart(NamedTuple):
    """Cells of some modules together, as mapped, and what they scale with."""

    grows_with: Literal["MACs", "columns", "nothing"]
    area: Area


PARTS: dict[str, AreaPart] = {
    "lf_array": AreaPart("MACs", Area(23_422, 21_197, 256, 0)),
    "lf_weights": AreaPart("columns", Area(5_703, 3_137, 0, 0)),
    "lf_accumulators": AreaPart("columns", Area(12_021, 2_067, 0, 60)),
    # with lf_factors, lf_requantize and lf_tables
    "lf_drain": AreaPart("columns", Area(11_945, 9_194, 64, 10)),
    "lf_buffer": AreaPart("nothing", Area(4_236, 8, 0, 0)),  # but for its memories
    "everything else": AreaPart("nothing", Area(19_282, 18_658, 16, 4)),
}


def estimate(hardware: Hardware) -> Area:
    """Cells of the accelerator with the MAC array and the buffer of `hardware`; other fields do not count.

    >>> estimate(MAPPED)
    Area(lut=76609, ff=54261, dsp=336, ram=138)
    """
    by = {
        "MACs": hardware.mac_rows * hardware.mac_columns / (MAPPED.mac_rows * MAPPED.mac_columns),
        "columns": hardware.mac_columns / MAPPED.mac_columns,
        "nothing": 1.0,
    }
    cells = [
        sum(by[part.grows_with] * part.area[k] for part in PARTS.values()) for k in range(len(Area._fields))
    ]
    lut, ff, dsp, ram = map(round, cells)
    return Area(lut, ff, dsp, ram + ceil(hardware.buffer_bytes / RAM_BYTES))
