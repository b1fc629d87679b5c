"""A Pareto front as data: plans on chips, which of them others beat, and advice on which chip to buy."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from hw_rtl.area import Area
from lfopt.app.sizes import format_size
from lfopt.ir import Figures, Hardware
from lfopt.ir.names import plural
from lfopt.ir.plan import Proof
from search.fronts import Hypervolume
from search.objectives import Objective, ObjectiveName

CostName = Literal["bytes", "cycles", "energy", "buffer", "area"]
COSTS: tuple[CostName, ...] = get_args(CostName)
# exact: by exact search for an objective or a weighted sum, nothing computed again; sampled: by NSGA-II from
# those; recomputed: by the searches of a balanced plan, which compute again and keep maps on chip
Found = Literal["exact", "sampled", "recomputed"]


@dataclass(frozen=True)
class Point:
    """A plan on a chip."""

    buffer_bytes: int  # on chip
    mac_rows: int  # of the array: input channels
    mac_columns: int  # output channels
    dram_bytes: int  # moved
    cycles: int  # by the model
    energy_pj: int  # by the model
    area: Area  # of the accelerator with this array and this buffer: an estimate
    found: Found
    best: tuple[ObjectiveName, ...]  # objectives of which no plan found on this chip has less
    # how far it may be above the least of each of those, as a share; None: nothing is known
    gaps: tuple[float | None, ...]
    # the least of these and of the gap of a weighted sum; 0: no plan of the options looked at has less of one
    # of them
    gap: float | None
    groups: tuple[tuple[str, ...], ...] = field(repr=False)  # operators by name, in an executable order
    without_steps: int = 0  # groups that cannot run on the chip; their bytes are what must move, and no more
    # another plan is nowhere worse and somewhere better; none with fewer groups that can run
    dominated: bool = False

    @property
    def proof(self) -> Proof:
        """optimal: in an objective or a weighted sum; bound: as far as `gap` says; none: it is sampled.

        Nothing is proven of a plan that cannot run.
        """
        if self.gap is None or self.without_steps:
            return "none"
        if self.gap > 0:
            return "bound"
        return "optimal"

    @property
    def figures(self) -> Figures:
        """What objectives are of."""
        return Figures(self.dram_bytes, self.cycles, self.energy_pj)

    def cost(self, name: CostName) -> int:
        """DRAM bytes, cycles, pJ, bytes of buffer, or LUT equivalents."""
        figures = {
            "bytes": self.dram_bytes,
            "cycles": self.cycles,
            "energy": self.energy_pj,
            "buffer": self.buffer_bytes,
        }
        if name == "area":
            return self.area.lut_equivalents
        return figures[name]


@dataclass(frozen=True)
class Advice:
    """Which size to buy, as far as one figure goes."""

    of: Literal["buffer", "MAC array"]  # what is to be chosen; everything else stays
    figure: ObjectiveName  # that the choice is by
    buffer_bytes: int  # of the chip that is named
    mac_rows: int
    mac_columns: int
    knee: bool  # whether the size is a knee: where the curve lies farthest below its chord
    depth: float  # how far, as a share of the whole fall
    reason: str  # one sentence


@dataclass(frozen=True)
class FrontData:
    """Plans on chips, and what they say.

    `chips` of `of` were finished; the others were cut short by the time limit or by Ctrl-C.
    """

    network: str
    hardware: Hardware  # whose buffer and MAC array were varied
    scheme: str
    minimise: tuple[CostName, ...]
    points: tuple[Point, ...]  # by array, buffer and bytes; dominated ones too
    advice: tuple[Advice, ...]
    volume: Hypervolume | None  # of all plans; None where there are none
    volume_exact: float  # share of those of the exact searches alone
    chips: int
    of: int
    seconds: float
    interrupted: bool = False  # by Ctrl-C

    @cached_property
    def efficient(self) -> tuple[Point, ...]:
        """Plans that no other beats."""
        return tuple(point for point in self.points if not point.dominated)

    def least(self, name: ObjectiveName) -> dict[tuple[int, int], dict[int, int]]:
        """Per MAC array: the least value of an objective on each buffer, dominated plans too."""
        curves: dict[tuple[int, int], dict[int, int]] = {}
        for point in self.points:
            curve = curves.setdefault((point.mac_rows, point.mac_columns), {})
            value = Objective(name).value(point.figures)
            curve[point.buffer_bytes] = min(curve.get(point.buffer_bytes, value), value)
        return curves

    def __repr__(self) -> str:
        knees = ", ".join(
            f"{a.figure} {format_size(a.buffer_bytes)}" for a in self.advice if a.knee and a.of == "buffer"
        )
        return (
            f"Front({self.network}: {plural(len(self.efficient), 'plan')} on "
            f"{plural(self.chips, 'chip')}; knees: {knees or 'none'})"
        )
