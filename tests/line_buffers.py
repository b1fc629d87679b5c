"""Line buffers of a group by running it row by row: what places and steps of mode lbdf must be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from lfopt.ir import (
    Compute,
    DramBytes,
    Graph,
    Hardware,
    PlannedGroup,
    Span,
    Transfer,
    box_shape,
    row_axis,
    unfold,
)
from simulator.recount import RecountNetwork
from simulator.recount.flights import flights_of, with_flights
from simulator.recount.groups import in_order, moved_once, weight_bytes
from simulator.recount.needs import folded_rows
from simulator.recount.network import MapOperand


@dataclass(frozen=True, slots=True)
class LineBufferCount:
    """Counts of one group in line-buffer depth-first order."""

    buffer_bytes: int
    dram: DramBytes  # every tensor once
    inputs: tuple[str, ...]  # maps loaded
    outputs: tuple[str, ...]  # maps stored
    rings: dict[str, int]  # rows held at once, by map


def count(net: RecountNetwork, group: Sequence[str], hardware: Hardware) -> LineBufferCount:
    """Buffer bytes of a group in line-buffer depth-first order, and its DRAM bytes with every tensor once."""
    members = in_order(net, group)
    moved, held = moved_once(net, members, hardware), rings(net, members)
    needed = sum(rows * hardware.row_bytes(net.tensor(name)) for name, rows in held.items())
    if not hardware.weight_buffer_bytes:
        needed += weight_bytes(net, members, hardware)[1]
    return LineBufferCount(needed, moved.dram, moved.inputs, moved.outputs, held)


# -- the line-buffer schedule --------------------------------------------------------------------------------


class LineBuffered(NamedTuple):
    """Outcome of a group's line-buffer depth-first schedule."""

    rings: dict[str, int]  # per map: the largest number of rows held at once
    spans: dict[str, list[Span]]  # per operator: the rows of every step, in order


def rings(net: RecountNetwork, group: Iterable[str], band_rows: int = 1) -> dict[str, int]:
    """The largest number of rows of each map that a group holds at once in line-buffer depth-first order."""
    return run_line_buffered(net, group, band_rows).rings


def runs(net: RecountNetwork, op: str) -> bool:
    """Whether an operator folds the rows of one map into one row, so that it can take them one by one."""
    call, reads = net.calls[op], [read for read in net.reads[op] if read.by == op]
    if folded_rows(call) < 2 or call.rows_out > 1 or [read.index for read in reads] != [0]:
        return False
    return net.graph.shape(reads[0].map) == net.graph.shape(reads[0].seen)


def sums_bytes(net: RecountNetwork, op: str, hardware: Hardware) -> int:
    """Bytes of a running reduction: its result, in accumulators."""
    return (
        hardware.row_bytes(net.tensor(net.makes[op][0]))
        // hardware.element_bytes
        * hardware.accumulator_bytes
    )


def run_line_buffered(
    net: RecountNetwork, group: Iterable[str], band_rows: int = 1, running: Container[str] = ()
) -> LineBuffered:
    """Run a group in line-buffer depth-first order, in bands of so many rows.

    The results that leave the group are made band by band, the one next of which this leaves the smallest
    part done. Before an operator computes, the rows that it reads are made, input by input: one by one; in
    bands of several rows, all that are asked for in one step. Rows take their places when they are made; a
    row goes when every reader in the group has passed it. Reductions in `running` advance with the rows of
    their operand, at most a band at a time, and their result is there after the last.
    """
    members = in_order(net, group)
    inside = set(members)
    made_inside = {name for op in members for name in net.makes[op]}
    height = {
        name: net.tensor(name).rows
        for op in members
        for name in (*net.makes[op], *(read.map for read in net.reads[op]))
    }
    done = dict.fromkeys(members, 0)  # rows computed
    row_counts = {op: height[net.reads[op][0].map] if op in running else net.height(op) for op in members}
    loaded = {read.map: 0 for op in members for read in net.reads[op] if read.map not in made_inside}
    held = dict.fromkeys(loaded, 1) | dict.fromkeys(made_inside, 0)
    spans: dict[str, list[Span]] = {op: [] for op in members}
    # per map: (reader, lowest row that its rows r, r + 1, ... still read)
    tails: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
    for op in members:
        for read in net.reads[op]:
            tails[read.map].append(
                (
                    op,
                    [*range(height[read.map] + 1)] if op in running else _lowest_from(read, height[read.map]),
                )
            )

    def hold(name: str, first: int, stop: int) -> None:
        oldest = min((lowest[done[reader]] for reader, lowest in tails[name]), default=first)
        held[name] = max(held[name], stop - min(oldest, first))

    def compute(sink: str, rows: int) -> None:
        waiting = [(sink, rows)]
        while waiting:
            op, goal = waiting[-1]
            first = done[op]
            if first >= goal:
                waiting.pop()
                continue
            stop = goal if band_rows > 1 and op not in running else min(first + band_rows, goal)
            for read in net.reads[op]:
                need = stop if op in running else max(read.last[first:stop]) + 1
                if need and read.map not in loaded and net.maker[read.map] in running:
                    need = row_counts[net.maker[read.map]]
                if read.map in loaded:
                    # a load of several rows brings one after the other
                    for row in range(loaded[read.map], need):
                        hold(read.map, row, row + 1)
                        loaded[read.map] = row + 1
                elif done[net.maker[read.map]] < need:
                    waiting.append((net.maker[read.map], need))
                    break
            else:
                for name in net.makes[op]:
                    if first < height[name]:
                        hold(name, first, min(stop, height[name]))
                spans[op].append((first, stop))
                done[op] = stop

    def part_done(op: str) -> Fraction:
        return Fraction(min(done[op] + band_rows, row_counts[op]), row_counts[op])

    sinks = [op for op in members if any(net.needed_outside(name, inside) for name in net.makes[op])]
    while unfinished := [op for op in sinks if done[op] < row_counts[op]]:
        sink = (
            min(unfinished, key=lambda op: (part_done(op), net.position[op]))
            if unfinished[1:]
            else unfinished[0]
        )
        compute(sink, min(done[sink] + band_rows, row_counts[sink]))
    return LineBuffered(held, spans)


def _lowest_from(read: MapOperand, height: int) -> list[int]:
    lowest = [height]
    for row in reversed(read.first):
        lowest.append(min(row, lowest[-1]))
    return lowest[::-1]


def _as_loaded(net: RecountNetwork, members: Sequence[str], group: PlannedGroup) -> RecountNetwork:
    """The network in which operators of a group read views from outside, where it has places of them."""
    places = {place.name for place in group.places}
    loaded = copy(net)
    loaded.reads = dict(net.reads)
    inside = {name for op in members for name in net.makes[op]}
    for op in members:
        loaded.reads[op] = [
            replace(read, map=read.seen, first=read.first_seen, last=read.last_seen)
            if read.seen in places and read.map not in inside
            else read
            for read in net.reads[op]
        ]
    return loaded


# -- what a plan has -----------------------------------------------------------------------------------------


def line_buffer_problems(graph: Graph, hardware: Hardware, group: PlannedGroup) -> list[str]:
    """What in a group of mode lbdf is not the line-buffer schedule in bands of any height."""
    net = RecountNetwork(graph)
    flights = {flight for flight in flights_of(group.steps) if len(flight) > 1}
    net = with_flights(net, flights)
    members = in_order(net, [op for op in group.nodes if op in net.operators])
    net = _as_loaded(net, members, group)
    made = rows_of_steps(net, group)
    running = {
        step.operator for step in unfold(group.steps) if isinstance(step, Compute) and step.accumulator >= 0
    }
    sinks = [op for op in members if any(net.needed_outside(name, members) for name in net.makes[op])]
    heights = {stop - first for op in {*sinks, *running} for first, stop in made[op]} | {1}
    problems: list[str] = []
    for height in sorted(heights):
        ran = run_line_buffered(net, members, height, running)
        wanted = places_of(net, members, ran.rings, running, hardware)
        found = {
            (place.name if place.purpose != "sum" else place.name.rstrip("~"), place.slots, place.slot_bytes)
            for place in group.places
        }
        wrong = [f"places {sorted(wanted ^ found)}"] if wanted != found else []
        wrong += [
            f"{op!r} makes rows {sorted(set(made[op]) ^ set(spans))[:3]}"
            for op, spans in ran.spans.items()
            if made[op] and set(made[op]) != set(spans)
        ]
        if not wrong:
            return []
        problems = wrong
    return problems


def places_of(
    net: RecountNetwork, members: Sequence[str], held: dict[str, int], running: set[str], hardware: Hardware
) -> set[tuple[str, int, int]]:
    """(name, slots, bytes of a slot): rings of rows, whole weights, sums of reductions that run."""
    places = {(name, rows, hardware.row_bytes(net.tensor(name))) for name, rows in held.items() if rows}
    for constant in (c for op in members for c in net.constants[op] if not c.gathered):
        size = hardware.constant_bytes(constant.elements, bias=constant.name in net.biases)
        places.add((constant.name, 1, size))
    return places | {(f"sums of {op}", 1, sums_bytes(net, op, hardware)) for op in running}


def rows_of_steps(net: RecountNetwork, group: PlannedGroup) -> dict[str, list[Span]]:
    """Rows that every step makes, by operator; of a reduction that runs, rows of its operand."""
    rows: dict[str, list[Span]] = defaultdict(list)
    for step in unfold(group.steps):
        if isinstance(step, Compute):
            op, boxes = step.operator, step.boxes
            if step.inputs is not None:
                rows[op].append(step.inputs)
                continue
        elif isinstance(step, Transfer) and step.gather:
            op, boxes = step.gather, (step.box,)
        else:
            continue
        spans: list[Span] = []
        for box in boxes:
            axis = row_axis(box_shape(box))
            if all(stop > start for start, stop in box) and (axis is not None or net.height(op) == 1):
                spans.append((0, 1) if axis is None else box[axis])
        if spans:
            rows[op].append((min(first for first, _ in spans), max(stop for _, stop in spans)))
    return rows
