"""A fusion scheme, and the plan that carries it out: the data of plan.json (schema `lfopt.plan/3`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from lfopt.ir.box import box_shape
from lfopt.ir.constraints import FREE, Constraints
from lfopt.ir.cost import NO_L2, DramBytes, L2Bytes, Mode
from lfopt.ir.errors import InvalidPlan
from lfopt.ir.hardware import UNSAID, Hardware
from lfopt.ir.names import is_plain, plural
from lfopt.ir.schedule import Node, Place, Transfer, computations, leaves, store_ends
from lfopt.ir.tensor import row_axis

SCHEMA = "lfopt.plan/3"
DIGEST = 64  # hexadecimal digits of a SHA-256
# how `unexecutable` begins where a group could run, and only its steps are left out
MAP_CLASSES = ("input", "output", "spill", "l2")  # of transfers
UNWRITTEN = "its steps were not written"
# mode of an operator that only moves data, and whose readers take them from where they lie
ACCESS = "access"

Proof = Literal["optimal", "bound", "none"]
Scheme = str  # a row of `lfopt.planning.modes.SCHEMES`
TrafficName = Literal["tiled", "once", "paper"]
Memory = Literal["dram", "l2"]
L2Choice = Literal["none", "exact", "heuristic"]


@dataclass(frozen=True, slots=True, repr=False)
class FusionScheme:
    """A partition of all operators but views into groups, given by operator names, in an executable order."""

    groups: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        return (
            f"FusionScheme({plural(len(self.groups), 'group')} of "
            f"{plural(sum(map(len, self.groups)), 'operator')})"
        )


@dataclass(frozen=True, slots=True)
class Copy:
    """An operator that computes again what another does, from operands that are the same or copies."""

    name: str  # the operator
    of: str  # the one that it is a copy of


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a scheme is legal on a graph; if not, why not, one line a reason."""

    reasons: tuple[str, ...] = ()

    @property
    def legal(self) -> bool:
        """No reason against it."""
        return not self.reasons

    def __bool__(self) -> bool:
        return self.legal


@dataclass(frozen=True, slots=True, repr=False)
class PlannedGroup:
    """One group of a plan."""

    id: int  # position in the executable order
    nodes: tuple[str, ...]  # operator names in topological order
    mode: Mode  # what the planner calls the way in which the group runs: a label, the steps say how
    dram: DramBytes  # moved, by class
    places: tuple[Place, ...] = ()  # how the buffer is cut up while the group runs
    # the schedule; empty where the group cannot be executed (see `unexecutable`), or is read through
    steps: tuple[Node, ...] = ()
    # why there are no steps: bytes are then what must move and no more, or what a known schedule would move
    unexecutable: str = ""
    l2: L2Bytes = field(default=NO_L2, metadata=UNSAID)  # moved between the buffer and the second level
    # how it runs, as the planner says it: lines of a nest; empty where it has no nest for the mode
    nest: tuple[str, ...] = field(default=(), metadata=UNSAID)

    def __repr__(self) -> str:
        span = f"{self.nodes[0]} .. {self.nodes[-1]}" if self.nodes[1:] else ", ".join(self.nodes)
        count = plural(len(self.nodes), "operator")
        return f"PlannedGroup({self.id}: {span}, {count}, {self.mode}, {self.dram.total:,} B of DRAM)"

    @property
    def unwritten(self) -> bool:
        """Whether it has no steps only because a limit of time or number came before them."""
        return self.unexecutable.startswith(UNWRITTEN)

    @property
    def is_access(self) -> bool:
        """Whether it is an operator that is read through: nothing runs, and nothing is moved."""
        return self.mode == ACCESS

    # -- what the places and steps say -----------------------------------------------------------------------

    def allocated_bytes(self, hardware: Hardware) -> int:
        """Bytes of the buffer: where the places end in it; 0 of a group without steps."""
        return store_ends(self.places, hardware)["buffer"]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Maps that the steps load and the group does not store, as the steps name them."""
        stored = {step.tensor for step in self._moves(store=True)}
        # what is spilled may come back as a view of what was stored
        loaded = (step.tensor for step in self._moves(store=False) if step.kind != "spill")
        return tuple(name for name in dict.fromkeys(loaded) if name not in stored)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Maps that the steps store and something else needs."""
        spilled = {*self.spilled}
        stored = dict.fromkeys(step.tensor for step in self._moves(store=True))
        return tuple(name for name in stored if name not in spilled)

    @property
    def spilled(self) -> tuple[str, ...]:
        """Maps that the steps store and load again, and nothing else needs, but in a second level."""
        loaded = {step.tensor for step in self._moves(store=False)}
        stored = dict.fromkeys(
            step.tensor
            for step in self._moves(store=True)
            if step.kind == "spill" or (step.kind == "l2" and step.tensor in loaded)
        )
        return tuple(stored)

    @property
    def band_rows(self) -> int:
        """The most rows that one step makes of a map that is stored; where these have one row, of any."""
        stored = {step.place for step in self._moves(store=True)}
        tallest = any_tallest = 1
        for step in computations(self.steps):
            for box, place in zip(step.boxes, step.places, strict=False):
                axis = row_axis(box_shape(box))
                rows = 1 if axis is None else box[axis][1] - box[axis][0]
                any_tallest = max(any_tallest, rows)
                tallest = max(tallest, rows if place in stored else 1)
        if tallest > 1:
            return tallest
        return any_tallest

    def _moves(self, *, store: bool) -> Iterator[Transfer]:
        """Loads or stores of maps."""
        for step in leaves(self.steps):
            if isinstance(step, Transfer) and step.store == store and step.kind in MAP_CLASSES:
                yield step


def unschedulable(groups: Iterable[PlannedGroup], traffic: TrafficName) -> tuple[PlannedGroup, ...]:
    """Groups that cannot run: no step fits the buffer, or lfopt does not know the operator.

    Not those that traffic `once` or `paper` counts without steps, nor those whose steps a limit left out.
    """
    return tuple(
        group
        for group in groups
        if group.unexecutable and not group.unwritten and (traffic == "tiled" or group.mode == "opaque")
    )


@dataclass(frozen=True, slots=True)
class DramTensor:
    """Where a map or constant lies in DRAM, or in the second level.

    Rows are stored one after the other; within a row, the other axes in order.
    """

    name: str  # of parameters: see `parameters_of`
    # map: between groups, or spilled by one; parameter: factors, tables
    role: Literal["input", "output", "map", "weight", "parameter"]
    address: int  # bytes from the start of the plan's memory, or of the second level
    rows: int  # 1 for constants; all images of a batch lie inside a row
    row_bytes: int  # from one row to the next: the elements of a row, padded to `dram_row_align`
    # l2: in the second level, from the group that makes it to the last that reads it
    memory: Memory = field(default="dram", metadata=UNSAID)


def parameters_of(operator: str) -> str:
    """What an operator's parameters in DRAM are called."""
    return f"parameters of {operator}"


@dataclass(frozen=True, slots=True)
class ModelReference:
    """The model that a plan is for.

    Raises InvalidPlan for a name that is not plain (`lfopt.ir.names`), or a file that is not beside the plan.

    A plan that is in memory alone refers to a model by name; once both are written, by the content of the
    file too.
    """

    name: str  # of the network
    sha256: str  # of the file beside the plan, in hexadecimal; "" where neither is written: see `written`
    onnx: str  # that file's name, or what it will be

    @property
    def written(self) -> bool:
        """Whether there is a file that the plan belongs to."""
        return bool(self.sha256)

    def __post_init__(self) -> None:
        if not is_plain(self.name):
            raise InvalidPlan(f"model.name: found {self.name!r}; accepted: a plain name (lfopt.ir.names)")
        if self.sha256 and (len(self.sha256) != DIGEST or set(self.sha256) - set("0123456789abcdef")):
            raise InvalidPlan(
                f"model.sha256: found {self.sha256[:80]!r}; accepted: {DIGEST} hexadecimal digits"
            )
        if not is_plain(self.onnx) or "/" in self.onnx or self.onnx in ("", ".", ".."):
            raise InvalidPlan(f"model.onnx: found {self.onnx!r}; accepted: a file name without folders")


@dataclass(frozen=True, slots=True)
class Totals:
    """Bytes of the whole plan beside its baselines.

    `excluded_bytes` (traffic paper) are in none of the others.
    """

    dram_bytes: int  # of the groups together
    layer_by_layer_bytes: int  # every operator alone, every tensor once
    # today's compilers: elementwise operators join their producer; every tensor once
    epilogue_fused_bytes: int
    compulsory_bytes: int  # weights, parameters, graph inputs and graph outputs once
    lower_bound_bytes: int  # proven: no scheme of this space moves less
    gap: float  # (dram_bytes - lower_bound_bytes) / lower_bound_bytes
    proof: Proof  # optimal: dram_bytes is the bound; bound: it may be above; none: nothing is proven
    # multiply-accumulates of the steps, of what is computed again too; of groups without steps, each once
    macs: int = 0
    excluded_bytes: int = 0  # of groups in mode excluded
    # no schedule of any kind that computes nothing twice moves less; null: the plan does not say
    without_recompute_bytes: int | None = None
    # between the buffer and the second level, both directions; not in dram_bytes
    l2_bytes: int = field(default=0, metadata=UNSAID)


@dataclass(frozen=True, slots=True)
class NothingKept:
    """Plans in which no map stays on chip between groups, beside a plan in which some do."""

    dram_bytes: int = 0  # of the best one found; 0: it was not looked for
    # no cover by groups of the network's operators, in its order, moves less; 0: nothing is proven
    lower_bound_bytes: int = 0


NOT_LOOKED_FOR = NothingKept()


@dataclass(frozen=True, slots=True)
class MapClaim:
    """Bytes that making a map takes at the least in any plan of the space: a bound follows from these."""

    map: str  # name of the map
    bytes: int  # that making it takes at the least
    # maps that are there for nothing, with all that they depend on; null: none is, and the map counts alone
    others: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What proves the lower bound of a plan whose operators may run in several groups."""

    # names, in the order of the network that claims are of: it says what runs in flight. Copies have none
    operators: tuple[str, ...] = ()
    claims: tuple[MapClaim, ...] = ()  # of maps, in the order of the network


NO_CERTIFICATE = Certificate()


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """How the plan was found."""

    method: str  # see search.method of a configuration
    seed: int | None  # None: the method draws no numbers
    plans_evaluated: int  # compared by their DRAM bytes
    groups_evaluated: int  # prices of groups that were asked for
    seconds: float  # of the search alone
    # (DRAM bytes, required bytes) of plans that no other plan found beats in both, if the search keeps them
    front: tuple[tuple[int, int], ...] = ()
    guidance: str = "none"  # whose explanations said where groups were split; none: at random
    # what was minimised, see search.objective of a configuration; of plans in as few bytes, cycles
    objective: str = "bytes"
    constraints: Constraints = FREE  # what the plan keeps to; its lower bound is of plans that do
    # how maps for the second level were chosen; exact: no others that fit spare more
    l2: L2Choice = field(default="none", metadata=UNSAID)
    # the best plan in which no map stays between groups, if it was looked for
    nothing_kept: NothingKept = field(default=NOT_LOOKED_FOR, metadata=UNSAID)
    # what proves the lower bound of a plan whose operators may run in several groups
    certificate: Certificate = field(default=NO_CERTIFICATE, metadata=UNSAID)


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """Which operators run together, in which mode, and what that moves."""

    model: ModelReference  # the network
    hardware: Hardware  # the chip
    scheme: Scheme  # the modes that groups may run in
    traffic: TrafficName  # how operators that do not fit the buffer are counted
    epilogue: bool  # whether elementwise operators may always join their producer
    memory: tuple[DramTensor, ...]  # the DRAM map, and what lies in the second level
    groups: tuple[PlannedGroup, ...]  # in an executable order
    totals: Totals  # beside baselines and bound
    search: SearchRecord  # how the plan was found
    # MACs, of copies and halos too, over those without: at most, in the space of plans of the bound
    max_recompute: float = 1.0
    # operators that recompute, in the order of the model; baselines and bound are without them
    copies: tuple[Copy, ...] = ()

    @property
    def read_through(self) -> frozenset[str]:
        """Operators that only move data, whose readers take their results from where they lie, by name."""
        return frozenset(name for group in self.groups if group.is_access for name in group.nodes)

    @property
    def unschedulable(self) -> tuple[PlannedGroup, ...]:
        """Groups that have no steps though the traffic asks for them; see `unschedulable`."""
        return unschedulable(self.groups, self.traffic)

    @property
    def groups_without_steps(self) -> int:
        """Groups that have no steps though the traffic asks for them: they cannot run, or a limit was met."""
        return len(self.unschedulable) + sum(group.unwritten for group in self.groups)

    def __repr__(self) -> str:
        totals = self.totals
        groups = plural(len(self.groups), "group")
        if self.unschedulable:
            proof = "cannot run"
        elif totals.proof == "optimal":
            proof = "optimal"
        elif totals.lower_bound_bytes:
            proof = f"bound {totals.lower_bound_bytes:,} B"
        else:
            proof = "nothing proven"
        return (
            f"Plan({self.model.name}: {self.hardware.buffer_bytes:,} B of buffer, {self.scheme}, "
            f"{groups}, {totals.dram_bytes:,} B of DRAM, {proof})"
        )
