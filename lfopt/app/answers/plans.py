"""What commands say of a plan: how it was found, what it moves, where two differ."""

from __future__ import annotations

from dataclasses import dataclass

from lfopt.app.answers.files import FileAnswer
from lfopt.app.trade import Trade
from lfopt.ir import DramBytes, Hardware, Totals
from lfopt.ir.cost import Mode
from lfopt.ir.plan import NothingKept


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """One group of a plan."""

    id: int
    nodes: tuple[str, ...]
    mode: Mode
    dram: DramBytes
    allocated_bytes: int  # on chip
    has_steps: bool


@dataclass(frozen=True, slots=True)
class MethodAnswer:
    """What one search found."""

    name: str  # of the method, with its guidance
    seed: int | None
    dram_bytes: int
    lower_bound_bytes: int
    plans_evaluated: int
    groups_evaluated: int
    seconds: float
    interrupted: bool


@dataclass(frozen=True, slots=True)
class FiguresAnswer:
    """What a plan takes by the model, its groups one after the other."""

    dram_bytes: int
    cycles: int
    energy_pj: int


@dataclass(frozen=True, slots=True)
class TradeAnswer:
    """What a balanced plan gives up: plans that were found beside it, and what compilers run today."""

    baselines: dict[str, FiguresAnswer]  # as plans with steps on the same chip
    papers: dict[str, FiguresAnswer]  # fewest bytes in the schemes of the papers, as far as there was time
    most_cycles: int | None  # that the plan may take; null: no baseline runs
    fewest_bytes: FiguresAnswer
    fastest: FiguresAnswer
    least_energy: FiguresAnswer

    @classmethod
    def of(cls, trade: Trade) -> TradeAnswer:
        """That of a search."""
        return cls(
            {name: FiguresAnswer(*figures) for name, figures in trade.baselines},
            {name: FiguresAnswer(*figures) for name, figures in trade.papers},
            trade.most_cycles,
            FiguresAnswer(*trade.fewest_bytes),
            FiguresAnswer(*trade.fastest),
            FiguresAnswer(*trade.least_energy),
        )


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """`lfopt search`."""

    model: str
    folder: str  # of plan.json and simplified.onnx
    hardware: Hardware
    assumed_speed: bool  # whether cycles are those of a MAC array that the chip does not name
    scheme: str
    objective: str
    totals: Totals
    nothing_kept: NothingKept  # the best plan in which no map stays on chip between groups
    groups: tuple[GroupAnswer, ...]
    methods: tuple[MethodAnswer, ...]  # the plan is of the one with the fewest bytes
    copied_operators: int  # that are computed again
    # by the model, of groups that overlap; null where nothing but bytes was asked for, and nothing is
    # computed again
    cycles: int | None
    energy_pj: float | None
    # of the objective: proven for the modes and band heights that were looked at, of groups one after the
    # other; 0: nothing is
    least_value: int
    least: FiguresAnswer | None  # that no plan takes less of, each by itself; null where nothing is judged
    trade: TradeAnswer | None  # of a balanced plan: the plans that it was chosen beside; null of others
    seconds: dict[str, float]  # by stage
    interrupted: bool


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """`lfopt check`."""

    claimed: Totals
    recounted: dict[str, int] | None  # by field of the totals; null: the plan was made for another network
    lower_bound: str  # what is known of it
    nothing_kept: str  # the same of the bound with nothing kept between groups; empty: there is none
    steps: int
    groups_by_formula: int  # without steps: bytes by formula
    groups_not_recounted: int
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MisfitAnswer:
    """Why a group does not fit."""

    needed: int  # bytes
    available: int  # bytes
    store: str  # the buffer, or the store for parameters


@dataclass(frozen=True, slots=True)
class PricedAnswer:
    """One group of a partition. Without a mode and a misfit: it is not legal."""

    nodes: tuple[str, ...]
    mode: Mode | None = None
    dram_bytes: int | None = None
    buffer_bytes: int | None = None
    required_bytes: int | None = None
    does_not_fit: MisfitAnswer | None = None


@dataclass(frozen=True, slots=True)
class CostAnswer:
    """`lfopt cost`."""

    legal: bool
    reasons: tuple[str, ...]  # why not
    groups: tuple[PricedAnswer, ...]
    assumed_speed: bool  # whether cycles are those of a MAC array that the chip does not name
    dram: DramBytes | None = None  # of the plan; null where there is none
    dram_bytes: int | None = None
    cycles: int | None = None
    energy_pj: float | None = None
    lower_bound_bytes: int | None = None  # of any partition
    compulsory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SideAnswer:
    """One of two plans."""

    dram: DramBytes
    dram_bytes: int
    groups: int
    macs: int
    cycles: int
    energy_pj: float


@dataclass(frozen=True, slots=True)
class ChangedGroup:
    """A group that only one of two plans has."""

    id: int
    mode: Mode
    dram_bytes: int
    cycles: int


@dataclass(frozen=True, slots=True)
class MovedAnswer:
    """A tensor of which two plans move other bytes."""

    name: str
    role: str
    before: int  # bytes, both directions
    after: int  # bytes, both directions


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """Operators that two plans run otherwise."""

    change: str
    nodes: tuple[str, ...]
    before: tuple[ChangedGroup, ...]
    after: tuple[ChangedGroup, ...]
    tensors: tuple[MovedAnswer, ...]
    does_not_fit: tuple[MisfitAnswer, ...]  # on the other plan's chip


@dataclass(frozen=True, slots=True)
class SettingAnswer:
    """A setting of chip or search that differs."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class DiffAnswer:
    """`lfopt diff`."""

    settings: tuple[SettingAnswer, ...]
    before: SideAnswer
    after: SideAnswer
    same_groups: int
    changed: tuple[ChangeAnswer, ...]


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """`lfopt report`."""

    file: FileAnswer
    seconds: float
