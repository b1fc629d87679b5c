"""Energy of a schedule, by the pJ of single events that a `Hardware` gives."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from lfopt.ir import DramAccess, EnergyUse, Hardware
from simulator.model.engines import ComputeWork


@dataclass(eq=False)
class Spending:
    """Energy spent so far, by kind of event."""

    hardware: Hardware
    # pJ, per field of EnergyUse
    spent: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))

    def transfer(self, size: int, access: DramAccess, weights: int = 0) -> None:
        """Add a transfer of `size` bytes between DRAM and the chip, `weights` of them of weights.

        `access`: its bursts and pages in DRAM.
        """
        table = self.hardware.energy
        self.spent["dram_pj"] += (
            access.burst_bytes * table.pj_per_dram_byte + access.pages * table.dram_page_pj
        )
        self.spent["buffer_pj"] += self.hardware.on_chip_pj(size - weights, weights)

    def from_level_2(self, size: int) -> None:
        """Add `size` bytes between the second level and the buffer."""
        self.spent["l2_pj"] += size * self.hardware.l2_byte_pj
        self.spent["buffer_pj"] += size * self.hardware.buffer_byte_pj

    def compute(self, work: ComputeWork, times: int) -> None:
        """Add the work of a Compute, `times` times."""
        table = self.hardware.energy
        self.spent["buffer_pj"] += self.hardware.on_chip_pj(
            times * work.buffer_bytes, times * work.weight_bytes
        )
        self.spent["accumulator_pj"] += times * work.accumulator_bytes * table.accumulator_byte_pj
        self.spent["mac_pj"] += float(times * work.macs) * float(work.width) * table.mac_pj
        self.spent["vector_pj"] += times * work.vector_bytes * table.vector_pj

    def cycles(self, count: int) -> None:
        """Add what so many cycles take, whatever is done in them."""
        self.spent["cycle_pj"] += count * self.hardware.energy.cycle_pj

    @property
    def use(self) -> EnergyUse:
        """Energy by kind and in total, in pJ."""
        return EnergyUse(**self.spent, total_pj=sum(self.spent.values()))
