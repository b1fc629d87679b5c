"""Bounds of a plan, checked without the search: from the network and the chip alone.

Compulsory bytes and those without recomputation are counted anew. Of a small network, all partitions into
groups of a few simple kinds are gone through, as plain enumeration: none may move less than the lower bound
that a plan claims. Nothing here comes from the planner or the search, and no bound of theirs is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from itertools import accumulate

from lfopt.ir import Graph, Hardware, Plan
from lfopt.ops import Call
from lfopt.ops.content import (
    ConstantUse,
    constant_use,
    contents,
    data_constants,
    elements_used_through,
    moves_elements,
)
from lfopt.ops.recognise import attentions_in
from lfopt.ops.table import OPAQUE
from simulator.recount.groups import (
    least_parameters,
    moved_once,
    not_an_epilogue,
    not_connected,
    not_convex,
    parameter_bytes,
    table_count,
    weight_bytes,
)
from simulator.recount.network import RecountNetwork
from simulator.recount.waiting import gated_bytes, phased_bytes

MOST_OPERATORS = 10  # of a network whose partitions are gone through


def compulsory_bytes(net: RecountNetwork, hardware: Hardware, left_out: Collection[str] = ()) -> int:
    """What any schedule moves of the operators that are not left out, without copies or flights.

    Elements of inputs that they use, elements of outputs that they make, what constants hold, and, on a chip
    with a store for them, parameters that operators cannot share; each once, and nothing padded.
    """
    graph = net.graph
    kept = [op for op in net.operators if op not in left_out]
    elements = sum(net.tensor(name).elements for name in net.stored if net.maker.get(name) in kept)
    used = _elements_used(net, kept)
    elements += sum(used[name] for name in graph.inputs)
    return (
        elements * hardware.element_bytes
        + constant_bytes(net, kept, hardware)
        + least_parameters(net, kept, hardware)
    )


def _elements_used(net: RecountNetwork, kept: Collection[str]) -> dict[str, int]:
    """Lower bounds on the elements that operators use of inputs, and of maps that others only moved."""
    reads: dict[str, list[tuple[Call, int]]] = defaultdict(list)
    for op in kept:
        for read in net.reads[op]:
            reads[read.map].append((net.calls[read.by], read.index))
    used: dict[str, int] = {}

    def results_used(call: Call) -> int:
        return sum(used[name] for name in net.makes[call.operator.name])

    moved = (
        name for op in reversed(net.operators) if moves_elements(net.calls[op]) for name in net.makes[op]
    )
    for name in (*moved, *net.graph.inputs):
        used[name] = elements_used_through(net.graph.shape(name), reads[name], results_used)
        if name in net.stored and name in net.maker:
            used[name] = net.tensor(name).elements
    return used


def constant_bytes(net: RecountNetwork, members: Iterable[str], hardware: Hardware) -> int:
    """Bytes of what the operators' constants hold: equal ones count once, in whatever order and shape.

    Rows that a Gather picks count as long as they are fewer than those of the table. Masks of attention count
    nothing.
    """
    graph = net.graph
    masks = attentions_in(net.graph).masks
    read = [
        (call, index)
        for call, index in data_constants(graph, (net.calls[op] for op in members))
        if call.operator.inputs[index] not in masks
    ]
    held = contents((call.operator.inputs[k] for call, k in read), graph.tensors, graph.constants)
    whole = defaultdict[Hashable, list[ConstantUse]](list)
    picked = defaultdict[Hashable, list[ConstantUse]](list)
    seen = set[Hashable]()
    for call, index in read:
        content = held[call.operator.inputs[index]]
        use = constant_use(call, index, content)
        gathers = call.operator.kind == "Gather" and index == 0
        rows = (content.key, call.operator.inputs[1], call.attribute("axis", 0)) if gathers else None
        if rows is None or rows not in seen:
            (picked if gathers else whole)[content.key].append(use)
        seen.add(rows)
    sizes = {content.key: content.elements for content in held.values()}
    total = 0
    for key, size in sizes.items():
        uses = whole[key] + picked[key]
        used = max(
            max((use.elements for use in whole[key]), default=0),
            min(sum(use.elements for use in picked[key]), size),
        )
        bits = hardware.constant_bits(bias=False)
        if not all(use.weight for use in uses):
            bits = min(bits, hardware.constant_bits(bias=True))
        total += used * bits
    return (total + 7) // 8


def without_recompute_bytes(net: RecountNetwork, hardware: Hardware, left_out: Collection[str] = ()) -> int:
    """What any schedule moves that computes nothing twice."""
    waiting = max(gated_bytes(net, hardware, left_out), phased_bytes(net, hardware, left_out))
    return compulsory_bytes(net, hardware, left_out) + waiting


# -- the lower bound of a small network ----------------------------------------------------------------------


def least_known_bytes(graph: Graph, plan: Plan) -> int | None:
    """Fewest bytes of any partition into groups whose legality and bytes follow from the network alone.

    Those are groups in line-buffer depth-first order, and, where the plan's traffic counts every tensor once,
    single operators and epilogue groups; beside them the plan's own groups, whose steps say what they move.
    None where the network is too large, or the plan's space is another one (copies, constraints, a second
    level).
    """
    net = RecountNetwork(graph)
    hardware = plan.hardware
    if (
        len(net.operators) > MOST_OPERATORS
        or plan.copies
        or hardware.l2_bytes
        or plan.traffic == "paper"
        or plan.search.constraints
    ):
        return None
    known = {frozenset(group.nodes): group.dram.total for group in plan.groups if group.steps}
    names = list(net.operators)
    prices = dict[int, int]()
    for mask in range(1, 1 << len(names)):
        members = [name for k, name in enumerate(names) if mask >> k & 1]
        if not_connected(net, members) or not_convex(net, members):
            continue
        ways = [*_prices(net, members, plan), *(known[key] for key in [frozenset(members)] if key in known)]
        if ways:
            prices[mask] = min(ways)
    return _fewest(net, names, prices)


def _prices(net: RecountNetwork, members: list[str], plan: Plan) -> Iterator[int]:
    """Bytes of simple ways to run a connected, convex group that is legal."""
    hardware = plan.hardware
    if any(net.specs[op] is OPAQUE for op in members):
        if len(members) == 1:
            yield moved_once(net, members, hardware).dram.total
        return
    parameters = sum(parameter_bytes(net, op, hardware) for op in members)
    tables = sum(table_count(net, op, hardware) for op in members)
    if len(members) > 1 and not hardware.holds_parameters(parameters, tables):
        return
    line_buffered = plan.scheme in ("lbdf", "patches", "auto", "all") and fits_in_lines(
        net, members, hardware
    )
    alone = len(members) == 1 or (plan.epilogue and not not_an_epilogue(net, members))
    if line_buffered or (plan.traffic == "once" and alone):
        yield moved_once(net, members, hardware).dram.total


def fits_in_lines(net: RecountNetwork, members: list[str], hardware: Hardware) -> bool:
    """Whether the group may run in line-buffer depth-first order: its rows can pass, and they fit."""
    if any(net.too_tall(op) for op in members):
        return False
    held = weight_bytes(net, members, hardware)[1]
    room = hardware.weight_buffer_bytes
    needed = line_buffer_bytes(net, members, hardware)
    if room:
        return held < room and needed < hardware.buffer_bytes
    return needed + held < hardware.buffer_bytes


def line_buffer_bytes(net: RecountNetwork, members: Sequence[str], hardware: Hardware) -> int:
    """Buffer bytes of a group's maps in line-buffer depth-first order, one row at a time.

    Results that leave the group are made row by row, the one next of which this leaves the smallest part
    done. What a row reads is made before, input by input; a row goes when all readers have passed it.
    """
    height = {
        name: net.tensor(name).rows
        for op in members
        for name in (*net.makes[op], *(read.map for read in net.reads[op]))
    }
    inside = {name: op for op in members for name in net.makes[op]}
    rows = dict.fromkeys(members, 0)
    held = dict.fromkeys(height, 0)
    loaded = dict.fromkeys(height, 0)
    lowest = {  # per map: its readers, and the lowest row that each reads from a row of its own on
        name: [
            (op, [*accumulate([height[name], *reversed(read.first)], min)][::-1])
            for op in members
            for read in net.reads[op]
            if read.map == name
        ]
        for name in height
    }

    def hold(name: str, row: int) -> None:
        oldest = min((first[rows[reader]] for reader, first in lowest[name]), default=row)
        held[name] = max(held[name], row + 1 - min(oldest, row))

    def compute(sink: str, goal: int) -> None:
        waiting = [(sink, goal)]
        while waiting:
            op, wanted = waiting[-1]
            row = rows[op]
            if row >= wanted:
                waiting.pop()
                continue
            for read in net.reads[op]:
                need = read.last[row] + 1
                if read.map in inside and rows[inside[read.map]] < need:
                    waiting.append((inside[read.map], need))
                    break
                while read.map not in inside and loaded[read.map] < need:
                    hold(read.map, loaded[read.map])
                    loaded[read.map] += 1
            else:
                for name in net.makes[op]:
                    if row < height[name]:
                        hold(name, row)
                rows[op] = row + 1

    sinks = [op for op in members if any(net.needed_outside(name, members) for name in net.makes[op])]
    while unfinished := [op for op in sinks if rows[op] < net.height(op)]:
        sink = min(unfinished, key=lambda op: (Fraction(rows[op] + 1, net.height(op)), net.position[op]))
        compute(sink, rows[sink] + 1)
    for name in held:  # of what is never read, one row is there
        held[name] = held[name] if name in inside else max(held[name], 1)
    return sum(count * hardware.row_bytes(net.tensor(name)) for name, count in held.items())


def _fewest(net: RecountNetwork, names: list[str], prices: Mapping[int, int]) -> int | None:
    """Fewest bytes of groups that cover all operators, each after those that it reads from."""
    bit = {name: 1 << k for k, name in enumerate(names)}
    before = [reduce(int.__or__, (bit[p] for p in net.producers(name)), 0) for name in names]
    needs = {
        mask: reduce(int.__or__, (before[k] for k in range(len(names)) if mask >> k & 1)) & ~mask
        for mask in prices
    }
    least = {0: 0}
    for done in range(1 << len(names)):
        if done not in least:
            continue
        for mask, price in prices.items():
            if not mask & done and not needs[mask] & ~done:
                after = done | mask
                least[after] = min(least.get(after, least[done] + price), least[done] + price)
    return least.get((1 << len(names)) - 1)


def bound_problems(graph: Graph, plan: Plan) -> Iterator[str]:
    """Where the lower bound of a plan is above what a legal plan of its space moves."""
    least = least_known_bytes(graph, plan)
    bound = plan.totals.lower_bound_bytes
    if least is not None and bound > least:
        yield f"totals.lower_bound_bytes: {bound}, and groups in line-buffer order move {least}"
