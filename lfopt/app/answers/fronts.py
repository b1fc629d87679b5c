"""What commands say of many plans: fronts, staircases, jobs."""

from __future__ import annotations

from dataclasses import dataclass

from lfopt.app.front_data import Found
from lfopt.ir import Hardware
from lfopt.ir.plan import Proof


@dataclass(frozen=True, slots=True)
class AreaAnswer:
    """Cells of UltraScale+ that the accelerator would take: an estimate."""

    lut: int
    ff: int
    dsp: int
    ram: int  # RAMB36
    lut_equivalents: int  # with block RAMs and DSPs made of LUTs too


@dataclass(frozen=True, slots=True)
class PointAnswer:
    """A plan on a chip."""

    buffer_bytes: int
    mac_rows: int
    mac_columns: int
    dram_bytes: int
    cycles: int  # by the model
    energy_pj: int  # by the model
    area: AreaAnswer
    found: Found
    # objectives of which no plan found on this chip has less: how far it may be above the least; null: not
    # known
    best: dict[str, float | None]
    gaps: tuple[float | None, ...]  # those of `best`
    gap: float | None  # the least of these and of the gap of a weighted sum; 0: proven
    proof: Proof
    groups: tuple[tuple[str, ...], ...]  # operators, in an executable order
    without_steps: int  # groups that cannot run on the chip
    dominated: bool


@dataclass(frozen=True, slots=True)
class AdviceAnswer:
    """Which size to buy, as far as one figure goes."""

    of: str  # what is to be chosen: buffer, or MAC array
    figure: str
    buffer_bytes: int
    mac_rows: int
    mac_columns: int
    knee: bool
    depth: float  # how far the knee lies below the chord, as a share of the whole fall
    reason: str


@dataclass(frozen=True, slots=True)
class VolumeAnswer:
    """Hypervolume of the front."""

    share: float  # of the box up to the reference point
    exact_alone: float  # the same, of the exact searches' plans
    reference_point: dict[str, float]


@dataclass(frozen=True, slots=True)
class ParetoAnswer:
    """`lfopt pareto`."""

    network: str
    hardware: Hardware  # whose buffer and MAC array were varied
    assumed_hardware: bool
    scheme: str
    minimise: tuple[str, ...]
    points: tuple[PointAnswer, ...]
    advice: tuple[AdviceAnswer, ...]
    hypervolume: VolumeAnswer | None
    dominated: int
    chips_finished: int
    chips: int
    seconds: float
    interrupted: bool


@dataclass(frozen=True, slots=True)
class StairAnswer:
    """From this buffer on, the plan moves so many bytes."""

    buffer_bytes: int
    dram_bytes: int
    lower_bound_bytes: int
    groups: int
    without_steps: int  # groups that cannot run on such a buffer


@dataclass(frozen=True, slots=True)
class SweepAnswer:
    """`lfopt sweep`."""

    model: str
    folder: str  # of CSV and pictures
    scheme: str
    layer_by_layer_bytes: int
    compulsory_bytes: int
    stairs: tuple[StairAnswer, ...]
    interrupted: bool
    unresolved: tuple[tuple[int, int], ...]  # of a range: buffers between which steps may be missing


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """`lfopt batch`."""

    file: str  # CSV or Parquet
    jobs: int
    alike: int  # combinations that come to a job that is there already
    rows: tuple[dict[str, str | int | float | bool | None], ...]  # finished jobs, by the columns of the table
    interrupted: bool
