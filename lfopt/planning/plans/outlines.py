"""The parts of a plan: groups with mode, buffer, bytes by class and steps; the DRAM map; totals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lfopt.ir import (
    Cost,
    DoesNotFit,
    DramBytes,
    DramTensor,
    Node,
    PlannedGroup,
    Totals,
    dram_bytes,
    parameters_of,
    round_up,
    unschedulable,
)
from lfopt.ops import Dataflow, bits
from lfopt.planning.costs.alike import Structures
from lfopt.planning.costs.baselines import epilogue_fused_bytes, layer_by_layer_bytes
from lfopt.planning.costs.group_costs import GroupCosts
from lfopt.planning.modes import MODES, PlacesAndSteps
from lfopt.planning.passes.tree import Nest
from lfopt.planning.plans import band_rows
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.steps.limit import Limit, Unwritten
from lfopt.planning.steps.macs import executed_macs
from lfopt.planning.steps.renamed import Renaming, renamed
from lfopt.planning.written.writer import nest_lines

DRAM_ALIGN = 64  # bytes: where a tensor in DRAM, or in a second level, may begin
NOWHERE: Mapping[str, int] = {}


@dataclass(frozen=True, eq=False)
class Outline:
    """A group of a plan before its steps are made."""

    group: PlannedGroup  # without places and steps
    mask: int
    # raises Unwritten beyond the limit; None where the group cannot be executed
    schedule: Callable[[Limit], PlacesAndSteps] | None
    band_rows: int  # output rows made at a time
    allocated_bytes: int  # of the buffer: where its places end, or would if it could be executed
    nest: Nest | None = None  # what places and steps are lowered from; None in modes without nests
    # an earlier group of the same structure, whose places and steps are the same but for names; 0: none
    like: int = 0
    names: Renaming = field(default_factory=Renaming)  # by names in that group

    @property
    def key(self) -> Hashable:
        """Equal for outlines of the same costs whose steps are the same."""
        group = self.group
        return self.mask, group.mode, self.band_rows, group.dram, self.allocated_bytes


NO_OUTLINES: Mapping[int, Outline] = {}
MadeSteps = dict[Hashable, PlacesAndSteps]  # by `Outline.key`


def plan_groups(
    costs: GroupCosts,
    groups: tuple[int, ...],
    bands: band_rows.Propose | None = None,
    limit: Limit | None = None,
) -> tuple[PlannedGroup, ...] | DoesNotFit:
    """The groups of a legal scheme, planned in the order given; or the first one that may not run.

    For `bands` see `outline`.
    """
    limit = limit or Limit()
    outlines = outline(costs, groups, bands, lambda: bool(limit.over))
    if isinstance(outlines, DoesNotFit):
        return outlines
    return with_steps(costs, outlines, limit)


def outline(
    costs: GroupCosts,
    groups: tuple[int, ...],
    bands: band_rows.Propose | None = None,
    late: Callable[[], bool] = lambda: False,
    known: Mapping[int, Outline] = NO_OUTLINES,
) -> tuple[Outline, ...] | DoesNotFit:
    """Mode, buffer and bytes of the groups of a legal scheme, in order; or the first that may not run.

    `bands`: heights of bands to try where the mode has a choice, best first; the first one that fits is
    taken, else rows are computed one at a time. `late`: whether there is no time left to choose between
    schedules of the same bytes. `known`: outlines of other plans of these costs, by group, which are kept
    where there is none.
    """
    outlines: list[Outline] = []
    structures = Structures(costs.dataflow)
    first = dict[Hashable, int]()
    for k, group in enumerate(groups):
        if group in known and late():
            outlines.append(replace(known[group], group=replace(known[group].group, id=k)))
            continue
        cost = costs.evaluate(group)
        if isinstance(cost, DoesNotFit):
            return cost
        rows = _band_rows(costs, group, cost, bands)
        like = k
        if MODES[cost.mode].structural and costs.taken(group) is None and not group & costs.rules.touched:
            like = first.setdefault((structures.key(group), cost, rows), k)
        if like < k and outlines[like].schedule is not None:
            outlines.append(_outlined_like(costs, structures, outlines[like], group, k))
        else:
            outlines.append(_outlined(costs, group, cost, k, rows, late=late()))
    return tuple(outlines)


def with_steps(
    costs: GroupCosts, outlines: Sequence[Outline], limit: Limit, made_steps: MadeSteps | None = None
) -> tuple[PlannedGroup, ...]:
    """The groups with their places and steps; those beyond the limit say so, and have none.

    Those of few rows come first, of these the ones that move little: most are done then. Of groups of one
    structure, the first one's steps are made: the others take no time.

    `made_steps`: steps made for other plans of these costs, to which those made here are added.
    """
    made_steps = {} if made_steps is None else made_steps
    layout = BufferLayout(costs.dataflow, costs.hardware)
    planned = [outlined.group for outlined in outlines]
    known = dict[int, PlacesAndSteps]()
    rows = [sum(costs.dataflow.heights[i] for i in bits(outlined.mask)) for outlined in outlines]
    for k in sorted(range(len(planned)), key=lambda k: (rows[k], planned[k].dram.total)):
        try:
            planned[k] = _with_steps(costs, layout, outlines[k], limit, known, made_steps)
        except Unwritten as why:
            planned[k] = replace(planned[k], unexecutable=str(why))
        except KeyboardInterrupt:
            if not limit.interruptible:
                raise
            limit.interruptible = False
            limit.interrupted = True
            planned[k] = replace(planned[k], unexecutable=limit.over)
    return tuple(planned)


def _with_steps(
    costs: GroupCosts,
    layout: BufferLayout,
    outlined: Outline,
    limit: Limit,
    known: dict[int, PlacesAndSteps],
    made_steps: MadeSteps,
) -> PlannedGroup:
    """`known`: places and steps by group, of those that others may be like."""
    if outlined.schedule is None:
        return outlined.group
    if outlined.like in known:
        laid_out = renamed(*known[outlined.like], outlined.names, costs.dataflow.graph.tensors)
    else:
        laid_out = made_steps.get(outlined.key)
    if laid_out is None:
        limit.expect(1)
        laid_out = outlined.schedule(limit)
    known[outlined.mask] = made_steps[outlined.key] = laid_out
    places, steps = laid_out
    if steps:
        steps = with_parameters(costs, layout, outlined.mask, outlined.group.mode, steps)
        moved = dram_bytes(steps)
        wanted = outlined.group.dram
        assert moved == wanted, (
            f"{outlined.group.nodes}: the steps move {moved}, the search reckoned with {wanted}"
        )
        limit.keep(steps)
    return replace(outlined.group, places=places, steps=steps)


def with_parameters(
    costs: GroupCosts, layout: BufferLayout, mask: int, mode: str, steps: Sequence[Node]
) -> tuple[Node, ...]:
    """The steps of a group, behind the loads of its parameters where its mode has none of its own."""
    if MODES[mode].parameters:
        return tuple(steps)
    return (
        *(layout.load_parameters(*pair) for i in bits(mask) for pair in costs.groups.parameters_of(i)),
        *steps,
    )


def _band_rows(costs: GroupCosts, group: int, cost: Cost, propose: band_rows.Propose | None) -> int | None:
    """Rows that a group makes at a time, where its mode has a choice."""
    if costs.taken(group) is None and costs.modes[cost.mode].heights(group):
        return band_rows.chosen(costs, group, propose)
    return None


def _outlined(
    costs: GroupCosts, group: int, cost: Cost, number: int, rows: int | None, *, late: bool
) -> Outline:
    mode = costs.modes[cost.mode]
    terms = costs.terms(group)
    option = costs.taken(group)
    rows = terms.band_rows if rows is None else rows
    scheduled = mode.schedule_now if late else mode.schedule
    beta = costs.hardware.buffer_bytes
    allocated, schedule, nest, _ = scheduled(group, beta, rows) if option is None else option.scheduled
    planned = PlannedGroup(
        id=number,
        nodes=costs.dataflow.names(group),
        mode=cost.mode,
        dram=terms.dram,
        unexecutable=schedule if isinstance(schedule, str) else "",
        nest=() if nest is None else nest_lines(costs.dataflow, nest),
    )
    return Outline(planned, group, None if isinstance(schedule, str) else schedule, rows, allocated, nest)


def _outlined_like(
    costs: GroupCosts, structures: Structures, first: Outline, group: int, number: int
) -> Outline:
    """A group of the same structure as one before it."""
    flow = costs.dataflow
    names = structures.renaming(first.mask, group)
    planned = first.group

    def schedule(limit: Limit) -> PlacesAndSteps:
        scheduled = costs.modes[planned.mode].schedule(group, costs.hardware.buffer_bytes, first.band_rows)
        assert not isinstance(scheduled.make, str), "groups of one structure run alike"
        return scheduled.make(limit)

    nest = () if first.nest is None else nest_lines(flow, first.nest, names)
    own = replace(planned, id=number, nodes=flow.names(group), nest=nest)
    return Outline(
        own, group, schedule, first.band_rows, first.allocated_bytes, first.nest, first.mask, names
    )


def masks_of(flow: Dataflow, groups: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Groups given by the names of their operators, as masks."""
    return tuple(sum(1 << i for i in {flow.position[name] for name in names}) for names in groups)


def loaded_maps(flow: Dataflow, group: int) -> tuple[str, ...]:
    """Maps that a group reads from outside, by name."""
    return tuple(flow.maps[m].name for m in flow.arriving(group))


def stored_maps(flow: Dataflow, group: PlannedGroup) -> tuple[str, ...]:
    """Maps that a group stores, those that it spills last, by name."""
    if group.is_access:
        return ()
    (mask,) = masks_of(flow, [group.nodes])
    return (*(flow.maps[m].name for m in sorted(flow.leaving(mask))), *group.spilled)


def memory_map(
    costs: GroupCosts, groups: Sequence[PlannedGroup], level_2: Mapping[str, int] = NOWHERE
) -> tuple[DramTensor, ...]:
    """The plan's tensors in DRAM, with addresses in bytes.

    Graph inputs, weights, parameters, then every map that a group stores or spills, one after the other.
    `level_2`: maps that lie in the second level instead, and their addresses there.
    """
    flow = costs.dataflow
    hardware = costs.hardware
    layout = BufferLayout(flow, hardware)
    outputs = {flow.maps[m].name for m, is_output in enumerate(flow.is_output) if is_output}
    tensors: list[DramTensor] = []
    address = 0

    def add(name: str, role: str, rows: int, row_bytes: int) -> None:
        nonlocal address
        if name in level_2:
            tensors.append(DramTensor(name, role, level_2[name], rows, row_bytes, "l2"))  # type: ignore[arg-type]
            return
        tensors.append(DramTensor(name, role, address, rows, row_bytes))  # type: ignore[arg-type]
        address = round_up(address + rows * row_bytes, DRAM_ALIGN)

    for m, tensor in enumerate(flow.maps):
        if flow.producer[m] < 0:
            add(tensor.name, "input", tensor.rows, hardware.dram_bytes(tensor) // max(tensor.rows, 1))
    for name in dict.fromkeys(w.name for weights in flow.weights for w in weights):
        add(
            name,
            "weight",
            1,
            layout.hardware.constant_bytes(flow.graph.tensors[name].elements, bias=name in flow.biases),
        )
    for i in range(len(flow)):
        for name, size in costs.groups.parameters_of(i):
            add(parameters_of(name), "parameter", 1, size)
    for name in dict.fromkeys(name for group in groups for name in stored_maps(flow, group)):
        tensor = flow.maps[flow.map_index[name]]
        add(
            name,
            "output" if name in outputs else "map",
            tensor.rows,
            hardware.dram_bytes(tensor) // max(tensor.rows, 1),
        )
    return tuple(tensors)


def total_dram(groups: tuple[PlannedGroup, ...], *, counted: bool = True) -> DramBytes:
    """DRAM bytes of the groups that count; or of those that traffic `paper` leaves out."""
    return sum((group.dram for group in groups if MODES[group.mode].counted == counted), DramBytes())


def dram_at_port(groups: Sequence[PlannedGroup]) -> DramBytes:
    """As `total_dram`, as counted at a memory port, which knows no spills.

    There they are outputs when stored, inputs when loaded.
    """
    counted = (group for group in groups if MODES[group.mode].counted)
    moved = (dram_bytes(g.steps, at_port=True) if g.dram.spill else g.dram for g in counted)
    return sum(moved, DramBytes())


def totals_of(
    original: GroupCosts,
    groups: tuple[PlannedGroup, ...],
    lower_bound_bytes: int,
    flow: Dataflow | None = None,
) -> Totals:
    """A plan's totals beside its baselines; the bound is what a search has proven, 0 if none has.

    `original`: costs of the network without copies; `flow`: of the network with them, if there are any.
    """
    moved = total_dram(groups).total
    bound = lower_bound_bytes
    return Totals(
        dram_bytes=moved,
        macs=executed_macs(flow or original.dataflow, groups),
        layer_by_layer_bytes=layer_by_layer_bytes(original),
        epilogue_fused_bytes=epilogue_fused_bytes(original),
        compulsory_bytes=original.bounds.compulsory_bytes,
        lower_bound_bytes=bound,
        gap=(moved - bound) / bound if bound else 0.0,
        proof="optimal" if moved == bound and not unschedulable(groups, original.traffic.value) else "bound",
        excluded_bytes=total_dram(groups, counted=False).total,
        without_recompute_bytes=original.bounds.without_recompute_bytes,
        l2_bytes=sum(group.l2.total for group in groups),
    )
