"""Locations of a plan's maps, decided before anything is printed.

In memory between groups or in rings, by themselves or within others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codegen.aliasing import AliasMap, alias
from codegen.elements import FLOAT32, Element
from codegen.kernels.attention import unfused
from codegen.layout import MapLayout, layouts
from codegen.loops.moving import COPYING
from codegen.target import Target
from lfopt.ir import Graph, Plan, PlannedGroup, Tensor
from lfopt.ir.cpu import CpuMap
from lfopt.ops import Dataflow, bits
from lfopt.ops.attention import Attention, form_of
from lfopt.ops.recognise import attentions
from lfopt.planning.cpu.schedule import RowComputation, body, follows_rings, sequences

LINE = 64  # bytes of a cache line


def item_bytes(tensor: Tensor, stored: Element) -> int:
    """Bytes of an element in memory; those of float32 maps are `stored`."""
    if tensor.dtype == "float32":
        return stored.bytes
    return np.dtype(tensor.dtype).itemsize


class PlannedFlow:
    """A plan with the dataflow of its graph."""

    def __init__(self, plan: Plan, graph: Graph, images: int = 1) -> None:
        """`images`: how many of them the code makes, one after the other."""
        self.plan = plan
        self.graph = graph
        self.images = images
        self.flow = Dataflow.of(graph)
        self.index = {operator.name: i for i, operator in enumerate(self.flow.operators)}
        # groups whose rows pass through the rings of the plan
        self.ringed = frozenset(group.id for group in plan.groups if follows_rings(group))

    def mask(self, group: PlannedGroup) -> int:
        """The group's operators, as bits at their positions in the graph."""
        return sum(1 << self.index[node] for node in group.nodes)

    def runs(self, i: int) -> Sequence[Sequence[RowComputation]]:
        """The steps of the group of an operator, loop by loop."""
        name = self.flow.operators[i].name
        group = next(group for group in self.plan.groups if name in group.nodes)
        return sequences(body(self.flow, self.index, group.steps))


@dataclass(frozen=True)
class FusedAttention:
    """An attention that becomes one kernel."""

    form: Attention
    core: tuple[int, ...]  # the operators that it is made of


@dataclass(frozen=True)
class MemoryPlan:
    """Locations of maps, and the elements that they are stored as."""

    planned: PlannedFlow
    target: Target
    # float32 maps that are stored as floats whatever the target's element is
    floats: AbstractSet[int]
    attentions: Mapping[int, FusedAttention]  # by their products with the values
    aliases: AliasMap
    in_memory: frozenset[int]  # maps that lie in memory as a whole; others lie in rings, or nowhere
    kept: bool = False  # whether maps in memory stay as long as the network runs

    @property
    def flow(self) -> Dataflow:
        """Dataflow of the graph."""
        return self.planned.flow

    @property
    def layouts(self) -> Sequence[MapLayout]:
        """Layouts of all maps."""
        return self.aliases.layouts

    def lines(self, m: int) -> int:
        """Number of cache lines of a map."""
        return -(-self.flow.maps[m].elements * self.item_bytes(m) // LINE)

    def stored(self, m: int) -> Element:
        """Element that a float32 map is stored as: that of the map that it lies within."""
        if self.aliases.holder(m).map in self.floats:
            return FLOAT32
        return self.target.element

    def ctype(self, m: int) -> str:
        """C type of an element in memory."""
        if self.flow.maps[m].dtype == "float32":
            return self.stored(m).ctype
        return self.layouts[m].ctype

    def item_bytes(self, m: int) -> int:
        """Bytes of an element in memory."""
        return item_bytes(self.flow.maps[m], self.stored(m))

    def stored_otherwise(self, m: int) -> bool:
        """Whether elements lie in memory as another type than code computes in."""
        return self.flow.maps[m].dtype == "float32" and self.stored(m) is not FLOAT32

    @cached_property
    def ends(self) -> Mapping[int, str]:
        """Maps that lie in the caller's arrays: C expressions of their addresses.

        Those are inputs and outputs of the network that code works on as callers have them. Integers of
        quantised networks are not: their kernels may read a line of memory beyond a map.
        """
        planned = self.planned
        flow = self.flow
        if self.kept or planned.images > 1 or planned.graph.quantized:
            return {}
        ends: dict[int, str] = {}
        for role, names in (("inputs", planned.graph.inputs), ("outputs", planned.graph.outputs)):
            for k, name in enumerate(names):
                m = flow.map_index.get(flow.behind.get(name, ""), -1)
                by_itself = m in self.in_memory and self.aliases.holder(m).map == m and m not in ends
                if (
                    by_itself
                    and self.layouts[m].onnx
                    and not self.stored_otherwise(m)
                    and (flow.producer[m] < 0) == (role == "inputs")
                ):
                    ends[m] = f"m->{role}[{k}]"
        return ends

    def where(self, m: int) -> str:
        """C expression: address of a map between groups."""
        kind = self.ctype(m)
        place = self.aliases.holder(m)
        if place.map in self.ends:
            const = "const " if self.flow.producer[place.map] < 0 else ""
            return f"({const}{kind} *){self.ends[place.map]}" + (f" + {place.offset}" if place.offset else "")
        start = self.starts[place.map]
        if kind == "float":
            return f"m->maps + {start + place.offset}"
        return f"({kind} *)(void *)(m->maps + {start})" + (f" + {place.offset}" if place.offset else "")

    @cached_property
    def starts(self) -> Mapping[int, int]:
        """Map with memory of its own -> floats from the start of the context's maps.

        First fit, each from the group that makes it, or a part of it, to the last that reads it, or what lies
        within it. Those in the caller's arrays are as if they lay behind all others.
        """
        flow = self.flow
        groups = self.planned.plan.groups
        owner = {i: g for g, group in enumerate(groups) for i in bits(self.planned.mask(group))}
        lives: dict[int, tuple[int, int]] = {}  # map that has memory of its own -> groups
        for m in sorted(self.in_memory):
            root = self.aliases.holder(m).map
            born = owner[flow.producer[m]] if flow.producer[m] >= 0 else -1
            if flow.is_output[m] or self.kept:
                dies = len(groups)
            else:
                dies = max([born, *(owner[i] for i in bits(flow.readers[m]))])
            before = lives.get(root, (born, dies))
            lives[root] = min(born, before[0]), max(dies, before[1])
        taken, starts = list[tuple[int, int, int, int]](), dict[int, int]()  # (start, stop, born, dies)
        for born, dies, m in sorted(
            ((*life, m) for m, life in lives.items() if m not in self.ends),
            key=lambda life: (-self.lines(life[2]), life),
        ):
            start = 0
            for other, stop, b, d in sorted(taken):
                if b <= dies and born <= d and other < start + self._floats(m) and start < stop:
                    start = stop
            taken.append((start, start + self._floats(m), born, dies))
            starts[m] = start
        behind = max((stop for _, stop, _, _ in taken), default=0)
        for m in self.ends:
            starts[m] = behind
            behind += self._floats(m)
        return starts

    @cached_property
    def size(self) -> int:
        """Floats of all maps in the context's memory."""
        return max(
            (start + self._floats(m) for m, start in self.starts.items() if m not in self.ends), default=0
        )

    def _floats(self, m: int) -> int:
        return self.lines(m) * LINE // 4

    @property
    def listed(self) -> tuple[CpuMap, ...]:
        """Locations of maps, as a schedule lists them; those in rings by the plan's rings."""
        flow = self.flow
        plan = self.planned.plan
        listed = list[CpuMap]()
        rings = {
            place.name for group in plan.groups if group.id in self.planned.ringed for place in group.places
        }
        for m, tensor in enumerate(flow.maps):
            holder = self.aliases.holder(m).map
            if m in self.in_memory:
                listed.append(
                    CpuMap(
                        tensor.name,
                        flow.maps[holder].name,
                        4 * self.starts[holder],
                        LINE * self.lines(holder),
                    )
                )
            elif flow.maps[holder].name in rings:
                listed.append(CpuMap(tensor.name, flow.maps[holder].name, -1, 0))
        return tuple(listed)

    def wrongly_rounded(self, looped: Iterable[str]) -> set[int]:
        """Maps not stored as floats that loops of these operators, or kernels of attentions, work on."""
        flow = self.flow
        wrong = {m for m in self._attended() if self.stored_otherwise(m)}
        for i in map(self.planned.index.__getitem__, looped):
            maps = {
                m
                for m in (*flow.results[i], *(o.map for o in flow.operands[i]))
                if flow.maps[m].dtype == "float32"
            }
            read = [
                (tensor, constant)
                for tensor, constant in zip(flow.calls[i].tensors, flow.calls[i].constant, strict=True)
                if tensor
            ]
            copied = flow.operators[i].kind in COPYING and not any(
                constant and tensor.dtype == "float32" for tensor, constant in read
            )
            if not copied or len({self.stored(m) for m in maps}) > 1:
                wrong |= {m for m in maps if self.stored_otherwise(m)}
        roots = {self.aliases.holder(m).map for m in wrong}
        return {m for m in range(len(flow.maps)) if self.aliases.holder(m).map in roots}

    def _attended(self) -> set[int]:
        """Maps that attentions of one kernel read."""
        flow = self.flow
        attended = set[int]()
        for anchor, attention in self.attentions.items():
            inside = {m for i in attention.core if i != anchor for m in flow.results[i]}
            attended |= {o.map for i in attention.core for o in flow.operands[i] if o.map not in inside}
        return attended


def lay_out(
    planned: PlannedFlow, target: Target, floats: AbstractSet[int], attentions: Mapping[int, FusedAttention]
) -> MemoryPlan:
    """Lay out all maps and place those that lie in memory as a whole.

    Raises Unsupported for types and sizes that generated code does not hold.
    """
    flow = planned.flow
    plan = planned.plan
    ringed = sum(planned.mask(group) for group in plan.groups if group.id in planned.ringed)
    whole = {m for m, producer in enumerate(flow.producer) if producer >= 0 and not ringed >> producer & 1}
    in_memory = _in_memory(planned, target, floats, attentions)
    aliases = alias(flow, layouts(flow, whole, ringed), in_memory, planned.runs)
    in_memory |= {m for m, place in aliases.aliases.items() if place.map in in_memory}
    return MemoryPlan(planned, target, floats, attentions, aliases, in_memory)


def lay_out_dram(planned: PlannedFlow, target: Target) -> MemoryPlan:
    """Every map by itself in memory, in ONNX's order, as long as the network runs: for code that counts."""
    natural = tuple(MapLayout(tensor, tuple(range(len(tensor.shape)))) for tensor in planned.flow.maps)
    return MemoryPlan(
        planned,
        target,
        frozenset(),
        {},
        AliasMap(planned.flow, natural, {}),
        frozenset(range(len(natural))),
        kept=True,
    )


def fused_attentions(
    planned: PlannedFlow, target: Target
) -> tuple[dict[int, FusedAttention], dict[int, str]]:
    """By their products with the values: attentions that may become one kernel, and why others do not.

    Those are in one group, which runs on whole maps.
    """
    owner = {name: group.id for group in planned.plan.groups for name in group.nodes}
    fused = dict[int, FusedAttention]()
    refused = dict[int, str]()
    for one in attentions(planned.flow, owner):
        form = form_of(one.call)
        mixing = form.mixing.operator.name
        if owner[mixing] in planned.ringed:
            why = "found rows in rings; accepted: whole maps"
        else:
            why = unfused(form, target)
        if why:
            refused[planned.index[mixing]] = why
        else:
            fused[planned.index[mixing]] = FusedAttention(
                form, tuple(planned.index[call.operator.name] for call in form.core)
            )
    return fused, refused


def _in_memory(
    planned: PlannedFlow, target: Target, floats: AbstractSet[int], attentions: Mapping[int, FusedAttention]
) -> frozenset[int]:
    """Maps that lie in memory as a whole.

    Inputs, outputs, what one group leaves to another, everything in groups without rings but what an
    attention makes on its way, and maps whose elements are larger than those that the plan's rings are for.
    """
    flow = planned.flow
    plan = planned.plan
    whole = {m for m, producer in enumerate(flow.producer) if producer < 0}
    inside = {
        m
        for mixing, attention in attentions.items()
        for i in attention.core
        if i != mixing
        for m in flow.results[i]
    }
    for group in plan.groups:
        mask = planned.mask(group)
        ringed = group.id in planned.ringed
        for i in bits(mask):
            wide = {
                m
                for m in flow.results[i]
                if m in floats or item_bytes(flow.maps[m], target.element) != plan.hardware.element_bytes
            }
            whole |= wide | {
                m for m in flow.results[i] if not ringed or flow.is_output[m] or flow.readers[m] & ~mask
            }
    return frozenset(whole - inside)
