"""What commands say of networks, and of why their groups do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lfopt.app.answers.files import FileAnswer
from lfopt.app.explain_cycles import GroupCycles
from lfopt.app.needs import BufferOccupant


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
    most: tuple[BufferOccupant, ...]  # of what the buffer would hold


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
    smaller_buffers_settled: bool  # whether time did not end before all were asked for chains
    smallest_buffer_to_run_whole_bytes: int  # neither in tiles nor in blocks; 0: none
    dram_bytes_in_that_buffer: int | None  # null: none is large enough, or it holds the smallest tiles
    never: str  # why no buffer is large enough
    weight_bytes: int  # of weights, where they have a buffer of their own
    takes: tuple[BufferOccupant, ...]
    runs_as: str | None  # mode
    dram_bytes: int | None
    dram_bytes_one_by_one: int
    dram_bytes_in_one_group: int
    links: tuple[tuple[str, str], ...]
    cut: CutAnswer | None
    explainers: dict[str, BlameAnswer]
    missing_explainers: dict[str, str]  # asked for, and why each says nothing
    grown: tuple[GrownAnswer, ...] | None = None  # with --grow
    cycles: GroupCycles | None = None  # with --objective cycles


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
class LayerAccuracy:
    """A layer of a quantised network against the same in floats."""

    layer: str  # operator, or input of the network
    kind: str  # operator type, or "input"
    map: str
    own_snr_db: float | None  # signal to noise where this layer alone is quantised; null: no noise
    own_snr_by_channel_db: float | None  # the same, every channel counting alike
    snr_db: float | None  # where everything is
    # of the output that has least, where this layer alone is; null: not measured, or no noise
    outputs_snr_db: float | None


@dataclass(frozen=True, slots=True)
class OutputAccuracy:
    """An output of a quantised network against the same in floats."""

    output: str
    snr_db: float | None  # signal to noise; null: no noise
    largest_error: float
    # of the difference between its greatest and least element; null: they are the same
    largest_error_of_range: float | None
    rows: int | None  # along the last axis; null where the rank of the output says that there are no classes
    same_top1: int | None  # rows whose greatest element is where it is in floats


@dataclass(frozen=True, slots=True)
class QuantizeAnswer:
    """`lfopt quantize`."""

    file: FileAnswer
    operators: dict[str, int]  # by arithmetic
    constant_bytes_before: int
    constant_bytes: int
    calibrated: bool  # with data; else with random inputs
    samples: int
    method: Literal["minmax", "percentile", "entropy", "mse"]
    percentile: float | None
    per_channel: bool
    measured_samples: int
    outputs: tuple[OutputAccuracy, ...]
    layers: tuple[LayerAccuracy, ...]  # that are quantised; the one that hurts most first


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
    weights: int  # elements
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
