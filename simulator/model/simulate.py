"""Simulate a plan by its cost model: DRAM bytes by group and by tensor, cycles and energy.

Bytes have one expression: the sum of `Transfer.bytes` over the steps of a group. Groups without steps
contribute the bytes that the plan gives them and are marked `by_formula`. Cycles (`simulator.model.timing`)
and energy are a model with the parameters of the plan's hardware.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from fractions import Fraction
from itertools import groupby

from lfopt.ir import (
    NO_L2,
    Box,
    Carry,
    Compute,
    Cycles,
    DramAccess,
    DramBytes,
    EnergyUse,
    Graph,
    GroupReport,
    Hardware,
    InvalidPlan,
    L2Bytes,
    Loop,
    Node,
    Plan,
    PlannedGroup,
    Report,
    Role,
    Step,
    TensorMove,
    TensorTraffic,
    Timing,
    Transfer,
    counted_leaves,
    dram_bytes,
    l2_bytes,
    parameters_of,
    step_count,
    store_ends,
    whole,
)
from lfopt.ops import Dataflow, Weight, spec
from lfopt.ops.compute import folding
from lfopt.ops.parameter_data import parameter_bytes
from lfopt.ops.recognise import Attentions, attentions_of
from lfopt.planning import MODES, loaded_maps, masks_of, stored_maps
from simulator.model.dram import in_runs
from simulator.model.energy import Spending
from simulator.model.timing import Accelerator, walked_each

MAX_DEPTH = 16  # loops within loops
MAX_SLOTS = 1 << 24
MAX_COUNT = 1 << 62  # of steps, of rows or bytes of one transfer, of whatever a plan says
TIMINGS: tuple[Timing, ...] = ("exact", "extrapolated", "formula")  # the whole is as good as its worst part


def simulate(plan: Plan, graph: Graph) -> Report:
    """Bytes, cycles and energy of a plan for this network.

    Raises InvalidPlan where its steps cannot be those of this network.
    """
    flow = Dataflow.of(graph)
    check_steps(plan, flow)
    network = _Network(flow, plan)
    accelerator = Accelerator(flow, plan.hardware, plan.read_through)
    groups: list[GroupReport] = []
    disagreements: list[str] = []
    walked = walked_each([accelerator.command_count(group.steps) for group in plan.groups])
    for group in plan.groups:
        if group.is_access:
            tally = _Tally(plan.hardware, DramBytes())
        elif group.steps:
            tally = _by_steps(group, network, accelerator, walked)
        else:
            tally = _by_formula(group, network, accelerator)
        disagreements += _differences(group, tally)
        groups.append(tally.report(group, network))
    counted = [group for group in groups if MODES[group.mode].counted]
    dram = sum((group.dram for group in counted), DramBytes())
    if dram.total != plan.totals.dram_bytes:
        disagreements.append(
            f"totals: the plan says {plan.totals.dram_bytes:,} B of DRAM traffic, "
            f"its groups move {dram.total:,} B"
        )
    level_2 = sum((group.l2 for group in counted), NO_L2)
    if level_2.total != plan.totals.l2_bytes:
        disagreements.append(
            f"totals: the plan says {plan.totals.l2_bytes:,} B of the second level, "
            f"its groups move {level_2.total:,} B"
        )
    macs = sum(group.macs for group in counted)
    cycles = _total_cycles([group.cycles for group in counted])
    overlap = _overlap([plan.groups[group.id] for group in counted], counted, accelerator)
    cycles = replace(cycles, total=cycles.total - overlap)
    return Report(
        model=plan.model.name,
        hardware=plan.hardware,
        groups=tuple(groups),
        tensors=_traffic(counted, network),
        dram=dram,
        macs=macs,
        recomputed_macs=sum(group.recomputed_macs for group in counted),
        macs_per_dram_byte=macs / max(dram.total, 1),
        cycles=cycles,
        overlapped_cycles=overlap,
        seconds=cycles.total / plan.hardware.clock_hz,
        energy=_total_energy([group.energy for group in counted], overlap * plan.hardware.energy.cycle_pj),
        dram_access=sum((group.dram_access for group in counted), DramAccess()),
        l2=level_2,
        baselines=plan.totals,
        disagreements=tuple(disagreements),
    )


# -- the network ---------------------------------------------------------------------------------------------


class _Network:
    """Names, sizes in bytes and roles of all tensors that can be moved."""

    def __init__(self, flow: Dataflow, plan: Plan) -> None:
        hardware = plan.hardware
        self.flow = flow
        self.level_2 = {entry.name for entry in plan.memory if entry.memory == "l2"}
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.roots: dict[str, str] = {}  # of what views make: the map behind them
        for operator in flow.graph.operators:
            if spec(operator.kind, operator.domain).view:
                source = self.root(operator.inputs[0])
                self.roots.update((name, source) for name in operator.outputs if name)
        self.maps = {tensor.name: hardware.dram_bytes(tensor) for tensor in flow.maps}  # bytes of all of it
        # per operator: (constant, whether it is gathered from) -> bytes of one load
        self.constants: list[dict[tuple[str, bool], int]] = []
        self.weights: dict[str, int] = {}
        for weights in flow.weights:
            sizes = {
                (w.name, w.gathered): hardware.constant_bytes(w.elements, bias=w.bias, pieces=w.pieces)
                for w in weights
            }
            self.constants.append(sizes)
            for (name, _), size in sizes.items():
                self.weights[name] = max(self.weights.get(name, 0), size)
        self.parameters: dict[str, int] = {}  # by `parameters_of` an operator
        if hardware.parameter_store_bytes:
            self.parameters = {
                parameters_of(call.operator.name): parameter_bytes(call, hardware.parameter_channels)
                for call in flow.calls
            }
        self.outputs = {
            tensor.name for tensor, is_output in zip(flow.maps, flow.is_output, strict=True) if is_output
        }

    def root(self, name: str) -> str:
        """The map behind a view, or the tensor itself."""
        return self.roots.get(name, name)

    def role(self, name: str) -> Role:
        """Role of a map or constant in the network."""
        if name in self.parameters:
            return "parameter"
        if name in self.flow.graph.constants:
            return "weight"
        if name in self.flow.graph.inputs:
            return "input"
        if name in self.outputs:
            return "output"
        if name in self.level_2:
            return "l2"
        return "map"

    def alone_bytes(self, op: int) -> int:
        """DRAM bytes of one operator by itself, every tensor once."""
        flow = self.flow
        moved = {o.map for o in flow.operands[op]} | {
            m for m in flow.results[op] if flow.is_output[m] or flow.readers[m]
        }
        loaded = sum(self.constants[op].values()) + self.parameters.get(
            parameters_of(flow.operators[op].name), 0
        )
        return sum(self.maps[flow.maps[m].name] for m in moved) + loaded


# -- groups --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Tally:
    """Bytes, operations, cycles and energy of one group, as they are counted."""

    hardware: Hardware
    dram: DramBytes
    cycles: Cycles = field(default_factory=Cycles)
    why: str = ""
    # per tensor: loaded, stored
    moved: dict[str, list[int]] = field(default_factory=lambda: defaultdict[str, list[int]](lambda: [0, 0]))
    # per operator
    macs: dict[str, Fraction] = field(default_factory=lambda: defaultdict[str, Fraction](Fraction))
    access: DramAccess = field(default_factory=DramAccess)
    l2: L2Bytes = NO_L2
    spending: Spending = field(init=False)

    def __post_init__(self) -> None:
        self.spending = Spending(self.hardware)

    def transfer(
        self,
        tensor: str,
        size: int,
        *,
        store: bool = False,
        access: DramAccess | None = None,
        weights: bool = False,
    ) -> None:
        """Add `size` bytes between DRAM and the chip; without `access`, in one contiguous run.

        `weights`: whether they go to the store of weights.
        """
        self.moved[tensor][store] += size
        self._spend(size, access or in_runs(1, size, self.hardware), size if weights else 0)

    def transfer_in_l2(self, tensor: str, size: int, *, store: bool) -> None:
        """Add `size` bytes between the second level and the buffer."""
        self.moved[tensor][store] += size
        self.spending.from_level_2(size)

    def anywhere(self, size: int) -> None:
        """Add `size` bytes that belong to no single tensor."""
        self._spend(size, in_runs(1, size, self.hardware))

    def _spend(self, size: int, access: DramAccess, weights: int = 0) -> None:
        self.access += access
        self.spending.transfer(size, access, weights)

    def compute(self, accelerator: Accelerator, step: Compute, times: int) -> None:
        """Add a step, executed `times` times."""
        work = accelerator.work(step)
        self.macs[step.operator] += times * work.macs
        self.spending.compute(work, times)

    def report(self, group: PlannedGroup, network: _Network) -> GroupReport:
        """Report of the group. It is made once: what its cycles take is added here."""
        self.spending.cycles(self.cycles.total)
        members = [network.index[name] for name in group.nodes]
        once = sum(network.alone_bytes(i) for i in members)
        macs = round(sum(self.macs.values()))
        again = sum(
            max(round(self.macs[network.flow.operators[i].name]) - network.flow.macs[i], 0) for i in members
        )
        tensors = [
            TensorMove(name, network.role(name), loaded, stored)
            for name, (loaded, stored) in self.moved.items()
        ]
        return GroupReport(
            id=group.id,
            nodes=group.nodes,
            mode=group.mode,
            by_formula=self.why,
            allocated_bytes=group.allocated_bytes(self.hardware),
            weight_bytes=store_ends(group.places, self.hardware).get("weight buffer", 0),
            dram=self.dram,
            tensors=tuple(sorted(tensors, key=lambda t: (-t.loaded_bytes - t.stored_bytes, t.name))),
            one_by_one_bytes=once,
            saved_bytes=once - self.dram.total,
            macs=macs,
            recomputed_macs=again,
            macs_per_dram_byte=macs / max(self.dram.total, 1),
            cycles=self.cycles,
            energy=self.spending.use,
            dram_access=self.access,
            l2=self.l2,
        )


def _by_steps(group: PlannedGroup, network: _Network, accelerator: Accelerator, walked: int) -> _Tally:
    """Sums over the steps, of whose commands up to `walked` are timed one by one."""
    cycles = accelerator.time(group.steps, group.places, walked)
    tally = _Tally(accelerator.hardware, dram_bytes(group.steps), cycles, l2=l2_bytes(group.steps))
    for times, step in counted_leaves(group.steps):
        if isinstance(step, Compute):
            for one in accelerator.passes(step):
                tally.compute(accelerator, one, times)
        elif isinstance(step, Carry):
            tally.spending.compute(accelerator.carried(step), times)
        elif step.kind == "l2":
            tally.transfer_in_l2(network.root(step.tensor), times * step.bytes, store=step.store)
        else:
            if step.gather:
                source = network.flow.operators[network.index[step.gather]].inputs[0]
            else:
                source = network.root(step.tensor)
            source = parameters_of(step.tensor) if step.kind == "parameter" else source
            weights = step.kind == "weight" and not step.gather
            access = accelerator.access(step) * times
            tally.transfer(source, times * step.bytes, store=step.store, access=access, weights=weights)
    return tally


def _by_formula(group: PlannedGroup, network: _Network, accelerator: Accelerator) -> _Tally:
    """Tally of a group without steps: the plan's bytes, operators on whole tensors.

    One transfer for each tensor; transfers and computation overlap fully.
    Bytes beyond every tensor once go to what the first operator reads, its first map or its largest weight,
    and to the first map stored.
    """
    hardware = accelerator.hardware
    flow = network.flow
    tally = _Tally(hardware, group.dram, why=group.unexecutable or "the plan has no steps for it")
    members = [network.index[name] for name in group.nodes]
    first = members[0]
    (mask,) = masks_of(flow, [group.nodes])
    inputs = loaded_maps(flow, mask)
    outputs = stored_maps(flow, group)
    for name in inputs:
        tally.transfer(name, network.maps[name], store=False)
    for name in outputs:
        tally.transfer(name, network.maps[name], store=True)
    again = group.dram.output - sum(network.maps[name] for name in outputs)
    if again > 0 and outputs:
        tally.transfer(outputs[0], again, store=True)
    weights = {key: size for i in members for key, size in network.constants[i].items()}
    for (name, gathered), size in weights.items():
        tally.transfer(name, size, weights=not gathered)
    for name in map(parameters_of, group.nodes):
        if size := network.parameters.get(name, 0):
            tally.transfer(name, size, store=False)
    again = group.dram.input - sum(network.maps[name] for name in inputs)
    if again > 0 and flow.operands[first]:
        tally.transfer(flow.maps[flow.operands[first][0].map].name, again, store=False)
    again = group.dram.weight - sum(weights.values())
    if again > 0 and network.constants[first]:
        (name, gathered), _ = max(network.constants[first].items(), key=lambda item: item[1])
        tally.transfer(name, again, weights=not gathered)
    tally.anywhere(max(group.dram.total - sum(map(sum, tally.moved.values())), 0))
    compute = 0
    for i in members:
        step = Compute(
            flow.operators[i].name,
            tuple(whole(flow.maps[m].shape) for m in flow.results[i]),
            (-1,) * len(flow.results[i]),
        )
        tally.compute(accelerator, step, 1)
        compute += accelerator.cycles(step)
    loads, stores = (
        sum(-(-moves[k] // hardware.port_bytes) for moves in tally.moved.values()) for k in (0, 1)
    )
    if hardware.dram_bytes_per_second is None:
        shared = 0
    else:
        shared = hardware.dram_cycles(tally.access.burst_bytes, tally.access.pages)
    dma = hardware.port_latency + max(loads, stores, shared)
    tally.cycles = Cycles(dma, compute, max(dma, compute) if hardware.overlap else dma + compute, "formula")
    return tally


def _differences(group: PlannedGroup, tally: _Tally) -> list[str]:
    """Differences between the plan's bytes and those of its steps, or of its tensors without steps."""
    if group.l2 != tally.l2:
        return [f"group {group.id}: the plan says {group.l2}; its steps move {tally.l2}"]
    if group.dram != tally.dram:
        classes = [
            f.name for f in fields(DramBytes) if getattr(group.dram, f.name) != getattr(tally.dram, f.name)
        ]
        planned, counted = (
            ", ".join(f"{name} {getattr(of, name):,} B" for name in classes)
            for of in (group.dram, tally.dram)
        )
        return [f"group {group.id}: the plan says {planned}; its steps move {counted}"]
    moved = sum(loaded + stored for loaded, stored in tally.moved.values())
    planned = tally.dram.total + tally.l2.total
    # a formula may count re-reads that belong to no one tensor
    if moved > planned or (group.steps and moved != planned):
        return [f"group {group.id}: the plan says {planned:,} B; its tensors, each once, are {moved:,} B"]
    return []


# -- sums ----------------------------------------------------------------------------------------------------


def _total_cycles(cycles: Sequence[Cycles]) -> Cycles:
    worst = TIMINGS[max((TIMINGS.index(c.timing) for c in cycles), default=0)]
    return Cycles(
        sum(c.dma for c in cycles), sum(c.compute for c in cycles), sum(c.total for c in cycles), worst
    )


def _overlap(groups: Sequence[PlannedGroup], reports: Sequence[GroupReport], accelerator: Accelerator) -> int:
    """Cycles in which groups run beside the one before; 0 where either is not timed step by step."""
    overlap = 0
    for exact, row in groupby(
        zip(groups, reports, strict=True), lambda pair: pair[1].cycles.timing == "exact"
    ):
        pairs = [*row]
        if exact and len(pairs) > 1 and accelerator.hardware.overlap:
            together = accelerator.in_a_row((group.steps, group.places) for group, _ in pairs)
            overlap += sum(report.cycles.total for _, report in pairs) - together
    return overlap


def _total_energy(spent: Sequence[EnergyUse], twice: float) -> EnergyUse:
    """Sum over the groups. `twice`: pJ of cycles that two groups share, of which each has all."""
    total = EnergyUse(**{f.name: sum((getattr(e, f.name) for e in spent), 0.0) for f in fields(EnergyUse)})
    return replace(total, cycle_pj=total.cycle_pj - twice, total_pj=total.total_pj - twice)


def _traffic(groups: Iterable[GroupReport], network: _Network) -> tuple[TensorTraffic, ...]:
    """Traffic per tensor over all groups, most bytes first."""
    moves: dict[str, list[tuple[int, TensorMove]]] = defaultdict(list)
    for group in groups:
        for move in group.tensors:
            moves[move.name].append((group.id, move))
    rows = [
        TensorTraffic(
            name=name,
            role=network.role(name),
            size_bytes=network.maps.get(name) or network.weights.get(name) or network.parameters.get(name, 0),
            loaded_bytes=sum(move.loaded_bytes for _, move in of),
            stored_bytes=sum(move.stored_bytes for _, move in of),
            loaded_by=tuple(group for group, move in of if move.loaded_bytes),
            stored_by=tuple(group for group, move in of if move.stored_bytes),
        )
        for name, of in moves.items()
    ]
    return tuple(sorted(rows, key=lambda t: (-t.moved_bytes, t.name)))


# -- plans that are not what they seem -----------------------------------------------------------------------


def check_steps(plan: Plan, flow: Dataflow) -> None:
    """Check that groups partition the operators, and that steps name places, tensors and boxes that exist.

    Raises InvalidPlan otherwise.
    """
    left = {operator.name for operator in flow.operators}
    attentions = attentions_of(flow)
    for k, group in enumerate(plan.groups):
        if group.id != k:
            raise InvalidPlan(f"groups.{k}.id: found {group.id}; accepted: {k}, its position")
        if not group.nodes:
            raise InvalidPlan(f"groups.{k}.nodes: found none; accepted: operators of the network")
        for name in group.nodes:
            if name not in left:
                raise InvalidPlan(
                    f"groups.{k}.nodes: {name!r} is not an operator of the network, "
                    "or in an earlier group too"
                )
            left.remove(name)
        _check_counts(f"groups.{k}", *astuple(group.dram))
        _CheckedGroup(group, flow, attentions).check()
    if left:
        raise InvalidPlan(f"groups: operator {min(left)!r} is in none of them")
    _check_counts("totals", *(value for value in astuple(plan.totals) if isinstance(value, int)))


def _check_counts(where: str, *values: int) -> None:
    for value in values:
        if not 0 <= value <= MAX_COUNT:
            raise InvalidPlan(f"{where}: found {_few_digits(value)}; accepted: whole numbers from 0 to 2**62")


def _few_digits(value: int) -> str:
    if abs(value) <= MAX_COUNT << 8:
        return str(value)
    return f"a number of {value.bit_length()} bits"


class _CheckedGroup:
    """Checks of the steps of one group against the network."""

    def __init__(self, group: PlannedGroup, flow: Dataflow, attentions: Attentions) -> None:
        self.attentions = attentions
        self.group = group
        self.flow = flow
        names = set(group.nodes)
        self.members = {
            operator.name: i for i, operator in enumerate(flow.operators) if operator.name in names
        }

    def check(self) -> None:
        """Check places and steps; raises InvalidPlan at the first error."""
        for place in self.group.places:
            if not 1 <= place.slots <= MAX_SLOTS or place.slot_bytes < 0 or place.address < 0:
                raise self._wrong(f"place {place.name!r}: slots, slot_bytes or address out of range")
        self._check_nodes(self.group.steps, ())
        _check_counts(f"groups.{self.group.id}.steps: number of steps", step_count(self.group.steps))

    def _wrong(self, what: str) -> InvalidPlan:
        return InvalidPlan(f"groups.{self.group.id}: {what}")

    def _check_nodes(self, nodes: Sequence[Node], counts: tuple[int, ...]) -> None:
        if len(counts) > MAX_DEPTH:
            raise self._wrong(f"more than {MAX_DEPTH} loops within loops")
        for node in nodes:
            if isinstance(node, Loop):
                if node.count < 1:
                    raise self._wrong(f"a loop of {node.count} iterations; accepted: at least 1")
                self._check_nodes(node.body, (*counts, node.count))
                continue
            if node.strides and (
                len(node.strides) != len(counts)
                or any(len(move) != len(node.origin) for move in node.strides)
            ):
                raise self._wrong(
                    f"{self._name(node)}: found strides {node.strides}; accepted: one per loop around it, "
                    f"{len(node.origin)} numbers each"
                )
            if isinstance(node, Transfer):
                self._check_transfer(node, counts)
            elif isinstance(node, Carry):
                self._check_carry(node, counts)
            else:
                self._check_compute(node, counts)

    @staticmethod
    def _name(step: Step) -> str:
        if isinstance(step, Compute):
            return f"compute of {step.operator!r}"
        return f"{'carry' if isinstance(step, Carry) else 'transfer'} of {step.tensor!r}"

    def _reach(self, step: Step, counts: tuple[int, ...]) -> list[tuple[int, int]]:
        """Per coordinate of the origin: (lowest, highest) offset over all iterations."""
        along = zip(*step.strides, strict=True) if step.strides else [()] * len(step.origin)
        ends = [[d * (count - 1) for d, count in zip(by, counts, strict=False)] for by in along]
        return [(sum(min(d, 0) for d in of), sum(max(d, 0) for d in of)) for of in ends]

    def _check_box(self, step: Step, box: Box, reach: Sequence[tuple[int, int]], tensor: str) -> None:
        shape = self.flow.graph.tensors[tensor].shape
        inside = len(box) == len(shape) and all(
            0 <= start + low <= stop + low and stop + high <= extent
            for (start, stop), (low, high), extent in zip(box, reach, shape, strict=False)
        )
        if not inside:
            raise self._wrong(f"{self._name(step)}: box {box} leaves {tensor!r} of shape {shape}")

    def _check_place(self, step: Step, place: int, least: int = 0) -> None:
        if not least <= place < len(self.group.places):
            raise self._wrong(f"{self._name(step)}: place {place}; the group has {len(self.group.places)}")

    def _check_transfer(self, step: Transfer, counts: tuple[int, ...]) -> None:
        if step.kind == "parameter":
            if (
                step.tensor not in self.members
                or step.store
                or step.gather
                or step.strides
                or step.place != -1
                or step.slot
                or len(step.box) != 1
            ):
                raise self._wrong(
                    f"{self._name(step)}: found place {step.place}; accepted: parameters of a node of the "
                    "group, to place -1, slot 0"
                )
            _check_counts(
                f"groups.{self.group.id}: {self._name(step)}: rows, row_bytes", step.rows, step.row_bytes
            )
            return
        if step.tensor not in self.flow.graph.tensors:
            raise self._wrong(f"{self._name(step)}: the network has no such tensor")
        self._check_place(step, step.place)
        reach = self._reach(step, counts)
        self._check_box(step, step.box, reach, step.tensor)
        _check_counts(
            f"groups.{self.group.id}: {self._name(step)}: rows, row_bytes", step.rows, step.row_bytes
        )
        self._check_slot(step, reach)
        if step.gather and not any(w.gathered for w in self._weights(step.gather)):
            raise self._wrong(f"{self._name(step)}: {step.gather!r} gathers from no constant in this group")

    def _check_carry(self, step: Carry, counts: tuple[int, ...]) -> None:
        if step.tensor not in self.flow.map_index:
            raise self._wrong(f"{self._name(step)}: the network has no such map")
        self._check_place(step, step.place)
        reach = self._reach(step, counts)
        self._check_box(step, step.box, reach, step.tensor)
        self._check_slot(step, reach)

    def _check_slot(self, step: Transfer | Carry, reach: Sequence[tuple[int, int]]) -> None:
        if step.slot + reach[-1][0] < 0:
            raise self._wrong(
                f"{self._name(step)}: slot {step.slot + reach[-1][0]}; accepted: nothing below 0"
            )

    def _weights(self, operator: str) -> Sequence[Weight]:
        if operator in self.members:
            return self.flow.weights[self.members[operator]]
        return ()

    def _check_compute(self, step: Compute, counts: tuple[int, ...]) -> None:
        op = self.members.get(step.operator)
        if op is None:
            raise self._wrong(f"{self._name(step)}: not an operator of this group")
        if missing := [name for name in step.then if name not in self.members]:
            raise self._wrong(
                f"{self._name(step)}: {missing[0]!r} follows in flight, and is not an operator of this group"
            )
        results = self.flow.results[self.members[step.then[-1]] if step.then else op]
        if not len(step.boxes) == len(step.places) == len(results):
            raise self._wrong(
                f"{self._name(step)}: {len(step.boxes)} boxes and {len(step.places)} places; "
                f"its results are {len(results)}"
            )
        reach = self._reach(step, counts)
        for box, place, result in zip(step.boxes, step.places, results, strict=True):
            self._check_place(step, place, -1)
            self._check_box(step, box, reach, self.flow.maps[result].name)
            reach = reach[len(box) :]
        self._check_place(step, step.accumulator, -1)
        attention, _ = self.attentions.named(step)
        what = folding(self.flow.calls[op] if attention is None else attention.call)
        if what is None and (step.inputs or not (step.first and step.last)):
            raise self._wrong(f"{self._name(step)}: it has no partial sums")
        if step.inputs and not 0 <= step.inputs[0] + reach[-1][0] <= step.inputs[1] + reach[-1][0]:
            raise self._wrong(f"{self._name(step)}: {what} {step.inputs}")
