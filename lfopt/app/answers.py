"""What commands say as JSON (`--json`): one type per command, from which `lfopt schema COMMAND` comes.

A command builds its answer and hands it to `answer`, which writes it where the command line asked for it, or nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Literal

from lfopt.app.agreement import Agreement
from lfopt.app.explain import Taken
from lfopt.app.files import write_text
from lfopt.app.screen import begin, out, shown, write
from lfopt.app.tokens import STDOUT, Said
from lfopt.ir import NO_L2, DramBytes, EnergyUse, Hardware, InvalidConfig, L2Bytes, Report, Totals
from lfopt.ir.cost import Mode
from lfopt.ir.plan import Proof

_asked: dict[str, str] = {}  # of this run of the command line: "json" -> where it is to go


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """A file that was written."""

    path: str
    size_bytes: int

    @classmethod
    def of(cls, path: Path) -> FileAnswer:
        """Of a file that is there."""
        return cls(str(path), path.stat().st_size)


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """One group of a plan."""

    id: int
    nodes: tuple[str, ...]
    mode: Mode
    dram: DramBytes
    allocated_bytes: int  # on chip
    required_bytes: int | None  # that the buffer must exceed; 0: any will do; null: not known
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
class SearchAnswer:
    """`lfopt search`."""

    model: str
    folder: str  # of plan.json and simplified.onnx
    hardware: Hardware
    assumed_speed: bool  # whether cycles are those of a MAC array that the chip does not name
    scheme: str
    objective: str
    totals: Totals
    groups: tuple[GroupAnswer, ...]
    methods: tuple[MethodAnswer, ...]  # the plan is of the one with the fewest bytes
    copied_operators: int  # that are computed again
    cycles: int | None  # by the model, of groups that overlap; null where nothing but bytes was asked for, and nothing is computed again
    energy_pj: float | None
    least_value: int  # of the objective: proven for the ways of running groups that were looked at, one after the other; 0: nothing is
    seconds: dict[str, float]  # by stage
    interrupted: bool


@dataclass(frozen=True, slots=True)
class ExecuteAnswer:
    """`lfopt execute`."""

    planned: DramBytes
    counted: DramBytes
    not_executed: DramBytes  # of groups that have no steps
    groups: int
    steps: int
    peak_bytes: int  # of the buffer
    weight_peak_bytes: int  # of the weight buffer, where the chip has one
    compared: bool  # outputs, with the reference
    wrong: tuple[str, ...]
    agreements: tuple[Agreement, ...]  # none where they were not compared
    l2_planned: L2Bytes = NO_L2  # between the buffer and the second level
    l2_counted: L2Bytes = NO_L2


@dataclass(frozen=True, slots=True)
class OutputAnswer:
    """A tensor that a network gave."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    least: float | None  # null where it is empty, or no real number
    mean: float | None
    largest: float | None


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """`lfopt run`."""

    outputs: tuple[OutputAnswer, ...]
    found_compiled: bool
    folder: str  # of what was compiled
    compile_seconds: float
    run_seconds: float  # of the first run
    compared: bool  # with the reference
    wrong: tuple[str, ...]
    agreements: tuple[Agreement, ...]  # none where they were not compared


@dataclass(frozen=True, slots=True)
class CodegenAnswer:
    """`lfopt codegen`."""

    name: str
    target: str
    groups: int
    files: tuple[FileAnswer, ...]
    arena_bytes: int | None = None  # of C: all arenas
    context_bytes: int | None = None  # of C: memory of one caller
    plain_loops: dict[str, str] | None = None  # of C: operators that are slow, and why
    commands: int | None = None  # of a command stream
    instruction_bytes: int | None = None  # of a command stream


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """`lfopt check`."""

    claimed: Totals
    recounted: dict[str, int] | None  # by field of the totals; null: the plan was made for another network
    lower_bound: str  # what is known of it
    steps: int
    groups_by_formula: int  # without steps: bytes by formula
    groups_not_recounted: int
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MisfitAnswer:
    """Why a group does not fit."""

    needed: int  # bytes
    available: int
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
    before: int
    after: int


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


@dataclass(frozen=True, slots=True)
class CrossingAnswer:
    """A map that crosses a cut."""

    map: str
    bytes: int  # one way
    stored_by: int  # part of the cut; -1: none, it comes from outside
    loaded_by: tuple[int, ...]
    added: int  # DRAM bytes


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The cheapest cut that was found."""

    found_by: str
    proof: Literal["optimal", "bound"]
    groups: tuple[tuple[str, ...], ...]
    dram_bytes: int
    dram_bytes_in_one_group: int
    lower_bound_bytes: int
    seconds: float
    links: tuple[int, ...]  # positions in the list of links
    crossing: tuple[CrossingAnswer, ...]
    moved_again_bytes: int


@dataclass(frozen=True, slots=True)
class BlameAnswer:
    """What one explainer says of the links."""

    scores: tuple[float | None, ...]  # null: not scored
    ranking: tuple[int, ...]  # positions in the list of links, the most to blame first
    split: tuple[tuple[str, ...], ...] | None  # groups
    split_dram_bytes: int | None


@dataclass(frozen=True, slots=True)
class GrownAnswer:
    """What a group could take from a neighbour."""

    group: int  # the neighbour
    operators: tuple[str, ...]
    whole_group: bool
    verdict: str
    why: str
    needed_bytes: int
    smallest_sufficient_buffer_bytes: int
    saved_bytes: int
    most: tuple[Taken, ...]  # of what the buffer would hold


@dataclass(frozen=True, slots=True)
class ExplainAnswer:
    """`lfopt explain`."""

    model: str
    buffer_bytes: int
    element_bytes: int
    scheme: str
    group: int | None  # of the plan
    operators: tuple[str, ...]
    fits: bool
    mode: str
    needed_bytes: int
    available_bytes: int
    over_bytes: int
    smallest_sufficient_buffer_bytes: int
    dram_bytes_in_that_buffer: int
    never: str  # why no buffer is large enough
    weight_bytes: int  # of weights, where they have a buffer of their own
    takes: tuple[Taken, ...]
    runs_as: str | None  # mode
    dram_bytes: int | None
    dram_bytes_one_by_one: int
    dram_bytes_in_one_group: int
    links: tuple[tuple[str, str], ...]
    cut: CutAnswer | None
    explainers: dict[str, BlameAnswer]
    grown: tuple[GrownAnswer, ...] | None = None  # with --grow


@dataclass(frozen=True, slots=True)
class OperatorAnswer:
    """An operator."""

    name: str
    kind: str
    mapping: str  # type
    result: tuple[int, ...]  # shape
    macs: int
    weight_bytes: int
    needed_bytes: int  # of buffer, alone
    fits: bool


@dataclass(frozen=True, slots=True)
class InspectAnswer:
    """`lfopt inspect`."""

    model: str
    buffer_bytes: int
    views: int
    macs: int
    inputs: dict[str, tuple[int, ...]]  # shapes
    outputs: dict[str, tuple[int, ...]]
    operators: tuple[OperatorAnswer, ...]


@dataclass(frozen=True, slots=True)
class StairAnswer:
    """From this buffer on, the plan moves so many bytes."""

    buffer_bytes: int
    dram_bytes: int
    lower_bound_bytes: int
    groups: int


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


@dataclass(frozen=True, slots=True)
class QuantizeAnswer:
    """`lfopt quantize`."""

    file: FileAnswer
    operators: dict[str, int]  # by arithmetic
    constant_bytes_before: int
    constant_bytes: int
    calibrated: bool  # with data; else with random inputs


@dataclass(frozen=True, slots=True)
class DatasetAnswer:
    """`lfopt dataset`."""

    folder: str
    schemes: dict[str, dict[str, Any]]  # as dataset.json lists them


@dataclass(frozen=True, slots=True)
class TrainAnswer:
    """`lfopt train`."""

    folder: str
    cards: dict[str, dict[str, Any]]  # model cards by name, as they are written


@dataclass(frozen=True, slots=True)
class NetworkAnswer:
    """A network of the zoo."""

    name: str
    input: tuple[int, ...]
    operators: int
    weights: int
    macs: int
    source: str


@dataclass(frozen=True, slots=True)
class ZooAnswer:
    """`lfopt zoo list`."""

    networks: tuple[NetworkAnswer, ...]


@dataclass(frozen=True, slots=True)
class ExportAnswer:
    """`lfopt zoo export`."""

    file: FileAnswer
    nodes: int


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """Something that is kept between runs."""

    kind: str
    network: str
    target: str
    size_bytes: int
    age_seconds: float  # since it was used
    damage: str  # empty where it is whole


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    """`lfopt cache`."""

    folder: str
    items: tuple[ItemAnswer, ...]  # that are there
    removed: tuple[ItemAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class ChipAnswer:
    """A chip that comes with lfopt."""

    chip: str  # its name for --hardware
    hardware: Hardware
    assumed_speed: bool  # whether it says nothing of MAC array, port and clock


@dataclass(frozen=True, slots=True)
class ChipsAnswer:
    """`lfopt hw list`."""

    chips: tuple[ChipAnswer, ...]


@dataclass(frozen=True, slots=True)
class FigureAnswer:
    """What follows from the fields of a chip."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class ShowAnswer:
    """`lfopt hw show`."""

    file: str
    hardware: Hardware
    given: tuple[str, ...]  # fields that the file sets
    assumed_speed: bool
    figures: tuple[FigureAnswer, ...]


@dataclass(frozen=True, slots=True)
class FieldAnswer:
    """A field of a hardware description."""

    name: str
    type: str
    default: str  # as YAML writes it; empty where a value is required
    least: int | None  # null: it is no number
    most: int | None
    unit: str
    default_from: str
    meaning: str


@dataclass(frozen=True, slots=True)
class FieldsAnswer:
    """`lfopt hw fields`."""

    fields: tuple[FieldAnswer, ...]
    energy: tuple[FieldAnswer, ...]


@dataclass(frozen=True, slots=True)
class ChipCheckAnswer:
    """`lfopt hw check`."""

    file: str
    ok: bool
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    hardware: Hardware | None  # null: it has problems


@dataclass(frozen=True, slots=True)
class DetectAnswer:
    """`lfopt hw detect`."""

    hardware: Hardware
    file: str | None  # that was written


@dataclass(frozen=True, slots=True)
class RtlAnswer:
    """`lfopt rtl run`."""

    planned: DramBytes
    counted: DramBytes  # at the memory port
    cycles: int
    predicted_cycles: int
    predicted_energy: EnergyUse
    counters: dict[str, int]  # of the hardware
    compared: bool  # outputs, with the reference
    wrong: tuple[str, ...]


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
    found: Literal["exact", "sampled"]
    best: dict[str, float | None]  # objectives of which no plan found on this chip has less: how far it may be above the least; null: not known
    gaps: tuple[float | None, ...]  # those of `best`
    gap: float | None  # the least of these and of the gap of a weighted sum; 0: proven
    proof: Proof
    groups: tuple[tuple[str, ...], ...]  # operators, in an executable order
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
class BatchAnswer:
    """`lfopt batch`."""

    file: str  # CSV or Parquet
    jobs: int
    alike: int  # combinations that come to a job that is there already
    rows: tuple[dict[str, str | int | float | bool | None], ...]  # finished jobs, by the columns of the table
    interrupted: bool


ANSWERS: dict[str, type] = {  # by command
    "search": SearchAnswer,
    "simulate": Report,
    "execute": ExecuteAnswer,
    "run": RunAnswer,
    "codegen": CodegenAnswer,
    "check": CheckAnswer,
    "cost": CostAnswer,
    "diff": DiffAnswer,
    "report": ReportAnswer,
    "explain": ExplainAnswer,
    "inspect": InspectAnswer,
    "sweep": SweepAnswer,
    "quantize": QuantizeAnswer,
    "pareto": ParetoAnswer,
    "batch": BatchAnswer,
    "dataset": DatasetAnswer,
    "train": TrainAnswer,
    "zoo list": ZooAnswer,
    "zoo export": ExportAnswer,
    "cache list": CacheAnswer,
    "cache prune": CacheAnswer,
    "cache clear": CacheAnswer,
    "hw list": ChipsAnswer,
    "hw show": ShowAnswer,
    "hw fields": FieldsAnswer,
    "hw check": ChipCheckAnswer,
    "hw detect": DetectAnswer,
    "rtl run": RtlAnswer,
}


def name_of(command: str) -> str:
    """What the schema of a command's answer is called."""
    return f"lfopt.{command.replace(' ', '.')}/1"


def expect(said: Said) -> None:
    """Begin a run of the command line: where its answer goes. Raises InvalidConfig for a command that has none, or a file that cannot be."""
    _asked.clear()
    begin(quiet=said.quiet, verbose=said.verbose, json=said.json == STDOUT)
    if said.json is None:
        return
    command = next((name for name in (" ".join(said.tokens[:2]), *said.tokens[:1]) if name in ANSWERS), None)
    if command is None:
        raise InvalidConfig(f"--json: found with lfopt {' '.join(said.tokens[:1])}; accepted: with {', '.join(ANSWERS)}")
    file = Path(said.json)
    if said.json != STDOUT and (not file.name or file.is_dir() or not file.absolute().parent.is_dir()):
        raise InvalidConfig(f"--json {said.json}: accepted: a file name in a folder that exists")
    _asked.update(json=said.json, command=command)


def answer(found: object) -> None:
    """Write the answer of the command that runs, where the command line asked for one: a dataclass, or the same as a mapping. Raises CannotWrite."""
    where = _asked.get("json")
    if where is None:
        return
    data: Mapping[str, Any] = found if isinstance(found, Mapping) else asdict(found) if is_dataclass(found) and not isinstance(found, type) else {}
    text = json.dumps({"schema": name_of(_asked["command"]), **data}, indent=1, allow_nan=False) + "\n"
    if where == STDOUT:
        write(text)
        return
    write_text(Path(where), text)
    out.print(f"[dim]wrote[/] {shown(where)}", soft_wrap=True)
