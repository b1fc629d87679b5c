"""What a group costs, or why it does not fit: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Mode = Literal["lbdf", "brr", "resident", "tiled", "opaque", "excluded"]


class Cost(NamedTuple):
    """Cost of a group that may run."""

    dram_bytes: int  # moved between DRAM and the buffer
    buffer_bytes: int  # F_beta, or what one tile takes
    mode: Mode


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
        """All classes together."""
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
class RingNeed:
    """Buffer taken by one feature map inside a group."""

    tensor: str
    rows: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """A group that is not valid under line-buffer depth-first execution, and what takes how much."""

    group: int  # mask of operators
    needed: int  # bytes: F_beta
    available: int  # bytes: beta; valid means needed < available
    per_tensor: tuple[RingNeed, ...]  # in the order in which the schedule meets them
    per_weight: tuple[tuple[str, int], ...]  # (operator, bytes of its weights); ("parameters of ...", bytes) where those do not fit their store
    store: Literal["buffer", "parameter store"] = "buffer"  # what it does not fit; the latter may be full: valid means needed <= available
