"""Everything that the page shows, as plain data: short lists side by side, to be small as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, NamedTuple

from lfopt.app.report.colours import colours
from lfopt.app.report.cuts import GroupBoundary
from lfopt.app.report.heat import operator_bytes, operator_cycles
from lfopt.app.report.layout import Drawing, draw
from lfopt.app.report.stages import marks, stages
from lfopt.app.report.sweep import SweepPoint
from lfopt.app.steps import corners
from lfopt.ir import (
    UNLIMITED,
    Carry,
    Compute,
    DoesNotFit,
    DramBytes,
    Plan,
    PlannedGroup,
    Report,
    row_axis,
    step_count,
)
from lfopt.ir.origins import scope_of
from lfopt.ops import Dataflow, bits
from lfopt.planning import MODES, GroupCosts, epilogue_groups, masks_of
from simulator.model.occupancy import Occupancy, likeness, occupancy, step_at

ASPECTS = {"wide": 1.42, "tall": 0.74}  # of the drawings: beside the panel of a group, and on a phone
OUTSIDE = "* every tensor once, whatever fits: outside the space of this plan"
HEAD = 15  # above a line of the drawings, for names of stages
COLOURS = 8
MAX_STEPS = 400_000  # of a group whose buffer is shown step by step
Data = dict[str, Any]


def content(
    plan: Plan,
    costs: GroupCosts,
    masks: tuple[int, ...],
    report: Report,
    cuts: Sequence[GroupBoundary],
    stairs: Sequence[SweepPoint],
    front: Sequence[tuple[int, int]],
    pictures: Sequence[Data] = (),
) -> Data:
    """The data of the page.

    `masks` are the groups of the plan; `front` holds plans as (DRAM bytes, buffer bytes). A buffer without a
    limit is None. The network is drawn operator by operator, also where `costs` has several in flight.
    """
    drawn = costs.unfused()
    nodes = masks_of(drawn.dataflow, [group.nodes for group in plan.groups])
    original = costs.unfused(plan.copies) if plan.copies else drawn
    return {
        "buffer": _limit(plan.hardware.buffer_bytes),
        "weight_buffer": plan.hardware.weight_buffer_bytes,  # 0: weights lie in the buffer of the maps
        "scheme": plan.scheme,
        "totals": asdict(plan.totals),
        "classes": list(asdict(DramBytes())),
        "baselines": _baselines(plan, original, report),
        "outside": OUTSIDE,
        **_network(drawn, nodes),
        "groups": _groups(plan, nodes, report, drawn.dataflow),
        "fills": (fills := _fills(plan, costs, masks, drawn.dataflow)),
        "heat": {
            "bytes": operator_bytes(drawn.dataflow, nodes, report.groups),
            "cycles": operator_cycles(drawn.dataflow, plan.groups, plan.hardware),
            "fill": _fullness(plan, nodes, fills, len(drawn.dataflow)),
        },
        "cuts": [_cut(cut, costs, drawn.dataflow) for cut in cuts],
        "stairs": [
            [_limit(s.buffer_bytes), _limit(s.since_bytes), s.dram_bytes, s.lower_bound_bytes, s.groups]
            for s in stairs
        ],
        "steps": _steps(stairs, front, bound=plan.traffic != "paper"),
        "front": [list(point) for point in front],
        "pictures": list(pictures),
    }


def _limit(size: int) -> int | None:
    if size == UNLIMITED:
        return None
    return size


def _steps(stairs: Sequence[SweepPoint], front: Sequence[tuple[int, int]], *, bound: bool) -> Data:
    """Corners of staircases of DRAM bytes over buffer bytes.

    They are of the best plans found, the bound where it falls with the buffer, what is between, and the
    search's front.
    """
    end = stairs[-1].buffer_bytes
    plans = [(s.since_bytes, s.dram_bytes) for s in stairs]
    lines: dict[str, list[tuple[int, int]]] = {
        "plan": corners(plans, min(end * 9 // 8, UNLIMITED)),
        "bound": [],
        "between": [],
        "front": [],
    }
    if bound:  # a bound for a buffer holds for all that are smaller
        sizes = [stairs[0].since_bytes, *(s.buffer_bytes for s in stairs[:-1])]
        lines["bound"] = corners(
            [(size, s.lower_bound_bytes) for size, s in zip(sizes, stairs, strict=True)], end
        )
        lines["between"] = [*corners(plans, end), *reversed(lines["bound"])]
    if front:
        points = sorted((buffer, dram) for dram, buffer in front)
        lines["front"] = corners(points, points[-1][0])
    return {name: [[_limit(size), level] for size, level in line] for name, line in lines.items()}


def _classes(dram: DramBytes) -> list[int]:
    return list(asdict(dram).values())


def _baselines(plan: Plan, costs: GroupCosts, report: Report) -> list[Data]:
    """The plan among what it is measured against: bytes by class where the classes are known."""
    flow = costs.dataflow
    totals = plan.totals

    def of(groups: Sequence[int]) -> list[int]:
        return _classes(
            sum((costs.groups.once(group) for group in groups if not group & costs.excluded), DramBytes())
        )

    star = plan.traffic == "tiled"  # these two count every tensor once, whatever fits
    return [
        {
            "name": "layer by layer",
            "bytes": totals.layer_by_layer_bytes,
            "by": of([1 << i for i in range(len(flow))]),
            "outside": star,
        },
        {
            "name": "epilogue fusion",
            "bytes": totals.epilogue_fused_bytes,
            "by": of(epilogue_groups(costs)),
            "outside": star or not plan.epilogue,
        },
        {"name": "this plan", "bytes": totals.dram_bytes, "by": _classes(report.dram), "plan": True},
        {"name": "proven lower bound", "bytes": totals.lower_bound_bytes},
        {"name": "compulsory", "bytes": totals.compulsory_bytes, "by": _classes(costs.bounds.compulsory)},
    ]


# -- the network ---------------------------------------------------------------------------------------------


class Wiring(NamedTuple):
    """What is drawn of a network. Nodes: graph inputs, operators, graph outputs."""

    first: int  # node of the first operator: that many graph inputs
    ends: Mapping[int, int]  # graph inputs and outputs: node -> map
    edges: list[tuple[int, int, int]]  # (node, node, map)
    group: list[int]  # per node; -1: none

    def near(self, drawing: Drawing) -> set[tuple[int, int]]:
        """Pairs of groups that should differ in colour: joined, or one right above the other."""
        pairs = [(source, target) for source, target, _ in self.edges] + _stacked(drawing)
        return {
            (a, b)
            for source, target in pairs
            if (a := self.group[source]) != (b := self.group[target]) and min(a, b) >= 0
        }


def wiring(flow: Dataflow, masks: Sequence[int]) -> Wiring:
    """Nodes and edges of a network in these groups."""
    sources = [m for m, producer in enumerate(flow.producer) if producer < 0]
    results = [m for m, output in enumerate(flow.is_output) if output]
    first = len(sources)
    last = len(sources) + len(flow)
    made_by = {m: k for k, m in enumerate(sources)} | {
        m: first + p for m, p in enumerate(flow.producer) if p >= 0
    }
    edges = [
        (made_by[m], first + i, m)
        for i, operands in enumerate(flow.operands)
        for m in dict.fromkeys(o.map for o in operands)
    ]
    edges += [(made_by[m], last + k, m) for k, m in enumerate(results)]
    owner = {i: g for g, mask in enumerate(masks) for i in bits(mask)}
    group = [-1] * first + [owner.get(i, -1) for i in range(len(flow))] + [-1] * len(results)
    return Wiring(
        first, {**dict(enumerate(sources)), **{last + k: m for k, m in enumerate(results)}}, edges, group
    )


def _network(costs: GroupCosts, masks: tuple[int, ...]) -> Data:
    """The network, and where it is drawn."""
    flow = costs.dataflow
    wires = wiring(flow, masks)
    first = wires.first
    last = wires.first + len(flow)
    drawings = draw([(a, b) for a, b, _ in wires.edges], wires.group, ASPECTS.values(), HEAD)
    named = stages(flow)
    return {
        "inputs": first,
        "operators": len(flow),
        "maps": {
            "name": [m.name for m in flow.maps],
            "shape": [list(m.shape) for m in flow.maps],
            "bytes": [costs.hardware.dram_bytes(m) for m in flow.maps],
        },
        "ops": {
            "name": [operator.name for operator in flow.operators],
            "kind": [operator.kind for operator in flow.operators],
            "group": wires.group[first:last],
            "results": [list(results) for results in flow.results],
            "weights": [costs.groups.weight_bytes(1 << i)[0] for i in range(len(flow))],
            "macs": list(flow.macs),
            "scope": [operator.origin.scope for operator in flow.operators],
            "source": [operator.origin.source for operator in flow.operators],
        },
        "sources": [m for node, m in wires.ends.items() if node < first],
        "sinks": [m for node, m in wires.ends.items() if node >= last],
        "edges": [list(edge) for edge in wires.edges],
        "drawings": {
            name: _drawing(drawing) | {"stages": marks(drawing, first, named)}
            for name, drawing in zip(ASPECTS, drawings, strict=True)
        },
        "colours": colours(len(masks), wires.near(drawings[0]), COLOURS),
    }


def _stacked(drawing: Drawing) -> list[tuple[int, int]]:
    """Nodes that stand one above the other, with nothing between them."""
    order = sorted(range(len(drawing.nodes)), key=drawing.nodes.__getitem__)
    return [(a, b) for a, b in pairwise(order) if drawing.nodes[a][0] == drawing.nodes[b][0]]


def _drawing(drawing: Drawing) -> Data:
    """Points one after the other: x, y, x, y."""
    return {
        "size": [drawing.width, drawing.height],
        "nodes": [value for point in drawing.nodes for value in point],
        "routes": [[value for point in route for value in point] for route in drawing.routes],
    }


# -- groups --------------------------------------------------------------------------------------------------


def _groups(plan: Plan, masks: tuple[int, ...], report: Report, flow: Dataflow) -> list[Data]:
    rows: list[Data] = []
    for group, mask, figures in zip(plan.groups, masks, report.groups, strict=True):
        rows.append(
            {
                "mode": group.mode,
                "nest": "\n".join(group.nest),
                "scope": scope_of(flow.operators[i] for i in bits(mask)),
                "ops": list(bits(mask)),
                "by": _classes(figures.dram),
                "buffer": group.allocated_bytes(plan.hardware),
                "band": group.band_rows,
                "saved": figures.saved_bytes,
                "macs": figures.macs,
                "again": figures.recomputed_macs,
                "cycles": [
                    figures.cycles.total,
                    figures.cycles.dma,
                    figures.cycles.compute,
                    figures.cycles.timing,
                ],
                "energy": round(figures.energy.total_pj),
                "formula": figures.by_formula,
                "moves": [
                    [move.name, move.role, move.loaded_bytes, move.stored_bytes] for move in figures.tensors
                ],
            }
        )
    return rows


def _fills(plan: Plan, costs: GroupCosts, masks: tuple[int, ...], flow: Dataflow) -> list[Data]:
    """How the buffer fills while each group runs; where there are no steps, what F_beta is made of."""
    known: dict[object, Occupancy] = {}
    fills: list[Data] = []
    for group, mask in zip(plan.groups, masks, strict=True):
        if not group.steps or step_count(group.steps) > MAX_STEPS:
            fills.append(
                {
                    "why": group.unexecutable
                    or ("too many steps to show" if group.steps else "the plan has no steps for it")
                }
            )
            if MODES[group.mode].rings:
                fills[-1] |= _parts(costs.does_not_fit(mask))
            continue
        places = [[p.name, p.purpose, p.address, p.slots, p.slot_bytes] for p in group.places]
        key = likeness(group, flow)
        if key not in known:
            known[key] = occupancy(group, flow, plan.hardware)
        filling = known[key]
        fills.append(
            {
                "places": places,
                "steps": filling.steps,
                "shown": list(filling.shown),
                "slots": [row[0] if len(set(row)) == 1 else list(row) for row in filling.slots],
                "most": list(filling.most),
                "peak": [filling.peak_bytes, filling.peak_step],
                "beside": list(filling.beside),
                "doing": [number for step in filling.shown for number in _doing(group, step)],
            }
        )
    return fills


def _fullness(plan: Plan, masks: tuple[int, ...], fills: Sequence[Data], count: int) -> list[int]:
    """Bytes in the buffer while each operator computes; in groups without steps, those allocated to them."""
    bytes_held = [0] * count
    for group, mask, filling in zip(plan.groups, masks, fills, strict=True):
        for k, i in enumerate(bits(mask)):
            allocated = group.allocated_bytes(plan.hardware)
            bytes_held[i] = filling["beside"][k] if "beside" in filling else allocated
    return bytes_held


def _parts(need: DoesNotFit) -> Data:
    """What F_beta is made of."""
    rings = [[use.what, use.rows, use.bytes] for use in need.uses if use.kind == "map"]
    return {"rings": rings, "weights": sum(use.bytes for use in need.uses if use.kind != "map")}


def _doing(group: PlannedGroup, number: int) -> tuple[int, int]:
    """(what a step does, to which row or slot).

    3 k: the k-th operator of the group; 3 k + 1: a load, or copy, to its k-th place; 3 k + 2: a store.
    """
    step = step_at(group.steps, number)
    if isinstance(step, Compute):
        axis = row_axis(tuple(stop for _, stop in step.boxes[0])) if step.boxes else None
        return 3 * group.nodes.index(step.operator), step.boxes[0][axis][0] if axis is not None else 0
    if isinstance(step, Carry):
        return 3 * step.place + 1, step.slot
    return 3 * step.place + (2 if step.store else 1), step.slot


# -- cuts ----------------------------------------------------------------------------------------------------


def _cut(cut: GroupBoundary, costs: GroupCosts, flow: Dataflow) -> Data:
    maps = [costs.dataflow.maps[m] for m in cut.maps]
    sizes = [costs.hardware.dram_bytes(tensor) for tensor in maps]
    drawn = [flow.map_index[tensor.name] for tensor in maps]
    row: Data = {
        "pair": [cut.before, cut.after],
        "maps": drawn,
        "bytes": sum(sizes),
        "verdict": cut.verdict,
        "why": cut.why,
    }
    row |= {"saves": cut.saves, "enough": cut.enough}
    if cut.needed:
        row |= {"needed": cut.needed, "rings": cut.rings, "weights": cut.weights}
        row["largest"] = [[part.what, part.rows, part.bytes] for part in cut.largest]
    return row
