"""What a group costs, or why it does not fit: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from lfopt.ir.hardware import Store

Mode = str  # how a group runs: a row of `lfopt.planning.modes.MODES`


class Cost(NamedTuple):
    """Cost of a group that may run."""

    dram_bytes: int  # moved between DRAM and the buffer
    buffer_bytes: int  # that it takes: F_beta, or what one tile holds
    mode: Mode
    required_bytes: int = 0  # that the buffer must exceed; 0: it runs on any buffer
    # whether there are steps; else `dram_bytes` is what must move and no more, and `buffer_bytes` what the
    # smallest step takes at the least
    executable: bool = True


class Figures(NamedTuple):
    """What running a group, or a plan, takes. Bytes are exact; cycles and energy are a model."""

    dram_bytes: int
    cycles: int
    energy_pj: int

    def __add__(self, other: Figures) -> Figures:  # type: ignore[override]
        return Figures(
            self.dram_bytes + other.dram_bytes, self.cycles + other.cycles, self.energy_pj + other.energy_pj
        )


@dataclass(frozen=True, slots=True)
class DramBytes:
    """DRAM bytes by class."""

    input: int = 0  # feature maps read
    output: int = 0  # feature maps written
    weight: int = 0  # weights and biases
    parameter: int = 0  # requantisation and table data
    spill: int = 0  # partial results written and read back

    @property
    def total(self) -> int:
        """Bytes of all classes together."""
        return self.input + self.output + self.weight + self.parameter + self.spill

    def __add__(self, other: DramBytes) -> DramBytes:
        return DramBytes(
            self.input + other.input,
            self.output + other.output,
            self.weight + other.weight,
            self.parameter + other.parameter,
            self.spill + other.spill,
        )


@dataclass(frozen=True, slots=True)
class L2Bytes:
    """Bytes between the buffer and a second level of memory: of maps, none of which goes to DRAM."""

    read: int = 0  # into the buffer
    written: int = 0  # out of it

    @property
    def total(self) -> int:
        """Bytes of both directions."""
        return self.read + self.written

    def __add__(self, other: L2Bytes) -> L2Bytes:
        return L2Bytes(self.read + other.read, self.written + other.written)


NO_L2 = L2Bytes()


class BufferUse(NamedTuple):
    """Something that takes space on chip while a group runs."""

    what: str  # a map, a constant, an operator, or what a place is for
    kind: Literal["map", "weights", "sums", "parameters"]
    rows: int  # of a map or of partial sums, held at once; else 0
    row_bytes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """A group that is not valid, and what takes how much, in the mode that needs the least buffer."""

    group: int  # mask of operators
    needed: int  # bytes of `store`: F_beta, or what its weights take of a buffer of their own at the least
    available: int  # bytes: beta, or the weight buffer; valid means needed < available
    # in the order in which the schedule meets them; empty where no buffer is large enough
    uses: tuple[BufferUse, ...]
    # what it does not fit; the latter may be full: valid means needed <= available
    store: Store | Literal["parameter store"] = "buffer"
