"""Oracles for small graphs by enumeration: all connected convex groups, and the cheapest partition.

Legality is decided here by networkx on named operators, not by `lfopt.fusion`. Which modes a group may run
in, and what it moves, is worked out apart from `GroupCosts` and the search; buffer needs of line buffers come
from the recount, those of the other modes from the classes that plan them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import networkx as nx

from lfopt.ir import Graph, Hardware
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning.brr.banded import BandedGroups
from lfopt.planning.costs.group_costs import MAX_RECOMPUTE
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes.tiled import TiledMode
from lfopt.planning.resident import Resident
from lfopt.planning.sliced.choices import SlicedGroups
from simulator.recount import RecountNetwork, not_an_epilogue
from simulator.recount.groups import table_count, weight_bytes
from tests.line_buffers import count


class Oracle:
    """A graph's operators as networkx sees them."""

    def __init__(self, graph: Graph) -> None:
        self.net = RecountNetwork(graph)
        self.names = list(self.net.operators)
        self.edges = nx.DiGraph()
        self.edges.add_nodes_from(self.names)
        self.touch = nx.Graph()  # operators joined by an edge or by reading the same map
        self.touch.add_nodes_from(self.names)
        for op in self.names:
            self.edges.add_edges_from((producer, op) for producer in self.net.producers(op))
            if self.net.specs[op].kind == "opaque":
                continue
            for other in self.names:
                if (
                    other != op
                    and self.net.specs[other].kind != "opaque"
                    and self._maps(op) & self._maps(other)
                ):
                    self.touch.add_edge(op, other)

    def _maps(self, op: str) -> set[str]:
        return {read.map for read in self.net.reads[op]} | set(self.net.makes[op])

    def legal_groups(self) -> list[int]:
        """Masks of all connected convex sets of operators."""
        descendants = {op: nx.descendants(self.edges, op) for op in self.names}
        legal: list[int] = []
        for mask in range(1, 1 << len(self.names)):
            members = {name for i, name in enumerate(self.names) if mask >> i & 1}
            if len(members) > 1 and not nx.is_connected(self.touch.subgraph(members)):
                continue
            outside = [
                op for op in self.names if op not in members and any(op in descendants[m] for m in members)
            ]
            if not any(descendants[op] & members for op in outside):
                legal.append(mask)
        return legal

    def least(self, cost: Callable[[int], int | None]) -> tuple[int, int]:
        """(fewest bytes of any legal scheme, schemes tried).

        `cost` prices a connected convex group; None: it may not run.
        """
        priced = {mask: price for mask in self.legal_groups() if (price := cost(mask)) is not None}
        by_lowest: dict[int, list[int]] = {1 << i: [] for i in range(len(self.names))}
        for mask in priced:
            by_lowest[mask & -mask].append(mask)
        best, tried = None, 0
        for scheme in partitions(by_lowest, (1 << len(self.names)) - 1):
            tried += 1
            total = sum(priced[mask] for mask in scheme)
            if (best is None or total < best) and self.acyclic(scheme):
                best = total
        assert best is not None, "operators alone are always legal"
        return best, tried

    def acyclic(self, scheme: tuple[int, ...]) -> bool:
        """Whether the quotient graph has no cycle."""
        owner = {name: next(g for g in scheme if g >> i & 1) for i, name in enumerate(self.names)}
        quotient = nx.DiGraph((owner[a], owner[b]) for a, b in self.edges.edges if owner[a] != owner[b])
        return nx.is_directed_acyclic_graph(quotient)


def partitions(groups: dict[int, list[int]], rest: int) -> Iterator[tuple[int, ...]]:
    """All ways to cover `rest` with disjoint groups, given by their lowest operator."""
    if not rest:
        yield ()
        return
    for mask in groups[rest & -rest]:
        if not mask & ~rest:
            for tail in partitions(groups, rest & ~mask):
                yield (mask, *tail)


def brute_force(
    graph: Graph, hardware: Hardware, traffic: Traffic, *, epilogue: bool, scheme: str = "lbdf"
) -> tuple[int, int]:
    """(fewest bytes, schemes tried). Of scheme all: its modes, with nothing in flight."""
    return Oracle(graph).least(prices(graph, hardware, traffic, epilogue=epilogue, scheme=scheme))


def prices(
    graph: Graph, hardware: Hardware, traffic: Traffic, *, epilogue: bool, scheme: str = "lbdf"
) -> Callable[[int], int | None]:
    """Bytes of a connected convex group in the mode that moves the fewest, or None if it may not run.

    Only tilings are taken from the planner. In scheme all, an operator that only moves data moves nothing by
    itself, where others can read it through.
    """
    flow, net, beta = Dataflow.of(graph), RecountNetwork(graph), hardware.buffer_bytes
    limit = partial(Groups(flow, hardware).most_macs, allowed=MAX_RECOMPUTE) if scheme == "all" else None
    resident, bands = Resident(flow, hardware), BandedGroups(flow, hardware, most_macs=limit)
    tilings, slices = (
        GroupCosts(flow, hardware, traffic, epilogue=epilogue).modes["tiled"],
        SlicedGroups(Groups(flow, hardware), MAX_RECOMPUTE),
    )
    modes = GroupCosts(flow, hardware, traffic, epilogue=epilogue, scheme=scheme).modes
    assert isinstance(tilings, TiledMode)

    def price(mask: int) -> int | None:
        names = flow.names(mask)
        counted = count(net, names, hardware)
        once = counted.dram.total
        accesses = scheme == "all" and traffic is Traffic.TILED
        if accesses and len(names) == 1 and read_through(net, names[0], hardware):
            return 0
        if net.specs[names[0]].kind == "opaque":
            return once
        if any(traffic is Traffic.PAPER and weight_bytes(net, [name], hardware)[1] >= beta for name in names):
            return 0 if len(names) == 1 else None
        tables = sum(table_count(net, name, hardware) for name in names)
        if len(names) > 1 and not hardware.holds_parameters(counted.dram.parameter, tables):
            return None
        bytes_by_mode: list[int] = []
        held = weight_bytes(net, names, hardware)[1] < (hardware.weight_buffer_bytes or beta)
        if scheme in ("lbdf", "patches", "auto", "all") and counted.buffer_bytes < beta and held:
            bytes_by_mode.append(once)
        if scheme in ("resident", "auto", "all") and resident.need(mask) < beta:
            bytes_by_mode.append(once + resident.padding(mask))
        if scheme in ("brr", "auto", "all") and (banded := bands.cheapest(mask, beta)):
            bytes_by_mode.append(once - counted.dram.weight + banded.weight_bytes)
        if scheme == "all" and (sliced := slices.cheapest(mask, beta)):
            bytes_by_mode.append(
                once - counted.dram.weight + sliced.weight_bytes - counted.dram.input + sliced.input_bytes
            )
        for mode in ("strips", "gated", "patches"):
            cost = modes[mode].price(mask, beta, once) if mode in modes else None
            bytes_by_mode += [cost.dram_bytes] if cost else []
        if len(names) == 1 or (epilogue and not not_an_epilogue(net, names)):
            if traffic is not Traffic.TILED or once in bytes_by_mode:
                bytes_by_mode.append(once)
            elif (tile := tilings.tile(mask, beta)).kind != "none" or len(names) == 1:
                bytes_by_mode.append(tile.dram.total + counted.dram.parameter)
        return min(bytes_by_mode, default=None)

    return price


MOVERS = {"Transpose", "Split", "Slice", "Concat", "Gather", "DepthToSpace", "SpaceToDepth"}


def read_through(net: RecountNetwork, name: str, hardware: Hardware) -> bool:
    """Whether a plan may let readers of an operator read where its operands lie."""
    operator, call = net.operators[name], net.calls[name]
    if operator.kind not in MOVERS or hardware.dram_row_align != 1 or hardware.l2_bytes:
        return False
    if net.stored.intersection(net.makes[name]) or not net.reads[name]:
        return False
    data = call.tensors if operator.kind == "Concat" else call.tensors[:1]
    kinds = {(t.dtype, t.quantization) for t in (*data, *call.result_tensors) if t is not None}
    one = operator.kind != "Gather" or (call.values[1] is not None and call.values[1].size == 1)
    gathers = one and not (operator.kind == "Gather" and call.constant[0])
    return len(kinds) == 1 and gathers
