"""What running a plan costs: bytes, cycles and energy, per group and in all (`lfopt simulate --json`).

Bytes are those of the schedule's transfers: exact. Cycles and energy are a model, with the parameters that
stand in the plan's `Hardware`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lfopt.ir.cost import NO_L2, DramBytes, L2Bytes, Mode
from lfopt.ir.hardware import Hardware
from lfopt.ir.names import plural
from lfopt.ir.plan import Totals

# map: between groups, through DRAM; l2: through the second level
Role = Literal["input", "output", "map", "weight", "parameter", "l2"]
Timing = Literal["exact", "extrapolated", "formula"]


@dataclass(frozen=True, slots=True)
class TensorMove:
    """What one group moves of one tensor."""

    name: str  # the map behind all views, or the constant
    role: Role
    loaded_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Cycles:
    """Cycles of the model: of a group that begins on an idle chip, or of a plan, whose groups overlap."""

    dma: int = 0  # that the port to DRAM is busy
    compute: int = 0  # that the MAC array or the vector lanes are busy
    total: int = 0  # with overlap of the two, where the hardware has it
    # exact: step by step; extrapolated: from shortened loops; formula: whole tensors, full overlap assumed
    timing: Timing = "exact"


@dataclass(frozen=True, slots=True)
class DramAccess:
    """What DRAM does for bytes that are moved: a model, where the hardware has bursts and pages."""

    burst_bytes: int = 0  # the bytes in whole bursts
    pages: int = 0  # opened

    def __add__(self, other: DramAccess) -> DramAccess:
        return DramAccess(self.burst_bytes + other.burst_bytes, self.pages + other.pages)

    def __mul__(self, times: int) -> DramAccess:
        return DramAccess(times * self.burst_bytes, times * self.pages)


@dataclass(frozen=True, slots=True)
class EnergyUse:
    """Energy of the model, in pJ."""

    dram_pj: float = 0.0
    l2_pj: float = 0.0  # the second level
    buffer_pj: float = 0.0
    accumulator_pj: float = 0.0
    mac_pj: float = 0.0
    vector_pj: float = 0.0
    cycle_pj: float = 0.0  # what every cycle takes
    total_pj: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupReport:
    """What one group costs."""

    id: int
    nodes: tuple[str, ...]
    mode: Mode
    # why there are no steps to sum: bytes are then those of the plan; "" if they are sums over steps
    by_formula: str
    allocated_bytes: int  # of the buffer
    weight_bytes: int  # of a weight buffer, where the chip has one
    dram: DramBytes
    tensors: tuple[TensorMove, ...]  # what moves most comes first
    one_by_one_bytes: int  # its operators run alone, every tensor once for each
    saved_bytes: int  # by running together; negative where an operator had to be tiled and re-reads
    macs: int  # recomputed ones included
    recomputed_macs: int
    macs_per_dram_byte: float
    cycles: Cycles
    energy: EnergyUse
    dram_access: DramAccess  # beside `dram`, which is what the plan moves
    l2: L2Bytes = NO_L2  # between the buffer and the second level


@dataclass(frozen=True, slots=True)
class TensorTraffic:
    """What the whole plan moves of one tensor."""

    name: str
    role: Role
    size_bytes: int  # moved by one load or store of all of it
    loaded_bytes: int
    stored_bytes: int
    loaded_by: tuple[int, ...]  # groups
    stored_by: tuple[int, ...]  # groups

    @property
    def moved_bytes(self) -> int:
        """Bytes of both directions."""
        return self.loaded_bytes + self.stored_bytes


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What a plan costs: by group, by tensor and in all."""

    model: str
    hardware: Hardware
    groups: tuple[GroupReport, ...]
    tensors: tuple[TensorTraffic, ...]  # what moves most comes first
    dram: DramBytes  # sum over the groups but excluded ones
    macs: int
    recomputed_macs: int
    macs_per_dram_byte: float
    cycles: Cycles
    # in which a group runs beside the one before: the groups' cycles, each from an idle chip, less the total
    overlapped_cycles: int
    seconds: float  # model: total cycles at the hardware's clock
    energy: EnergyUse
    dram_access: DramAccess  # beside `dram`, which is what the plan moves
    baselines: Totals  # as the plan states them
    l2: L2Bytes = NO_L2  # sum over the groups
    # where the plan's figures are not those of its own steps, one line each
    disagreements: tuple[str, ...] = ()

    def __repr__(self) -> str:
        figures = (
            f"{self.dram.total:,} B of DRAM, {self.macs:,} MACs, {self.cycles.total:,} cycles, "
            f"{self.energy.total_pj / 1e9:,.3f} mJ"
        )
        return f"Report({self.model}: {plural(len(self.groups), 'group')}, {figures})"
