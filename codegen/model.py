"""What is known of a model while it is printed: its plan, where its maps lie, its packed constants, the functions so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from codegen.blob import Blob
from codegen.elements import FLOAT32, Element
from codegen.kernels.attention import fuses
from codegen.layout import Layout, layouts
from codegen.loops.moving import COPYING
from codegen.target import Target
from codegen.within import Lodgings
from codegen.writer import Mark, Writer
from lfopt.ir import Graph, Plan, PlannedGroup, Tensor
from lfopt.ir.cpu import CpuMap
from lfopt.ops import Dataflow, bits
from lfopt.ops.attention import Attention, form_of
from lfopt.ops.recognise import attentions
from lfopt.planning.cpu import RowComputation, body, follows_rings, sequences

LINE = 64  # bytes of a cache line


Marks = tuple[tuple[int, int], Mark, int]  # how much is printed: constants, functions, scratch


def _item_bytes(tensor: Tensor, stored: Element) -> int:
    """Of an element in memory, where those of float32 maps are stored as said."""
    return stored.bytes if tensor.dtype == "float32" else np.dtype(tensor.dtype).itemsize


class Model:
    """A model under construction. `count`: as code that counts, which has every map in DRAM, in ONNX's order.

    `floats`: float32 maps that stay floats where the target stores others as another element. `in_parts`: attentions that are no kernel of their own,
    by the names of their products with the values.
    """

    def __init__(
        self,
        plan: Plan,
        graph: Graph,
        target: Target,
        *,
        count: bool,
        floats: AbstractSet[int] = frozenset(),
        in_parts: AbstractSet[str] = frozenset(),
    ) -> None:
        """Lay out the maps that lie in memory as a whole. Raises Unsupported for types and sizes that generated code does not hold."""
        self.plan, self.graph, self.target, self.count, self.floats = plan, graph, target, count, floats
        self.flow = flow = Dataflow.of(graph)
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.ringed = frozenset(group.id for group in plan.groups if follows_rings(group))  # groups whose rows pass through the rings of the plan
        self.blob = Blob()
        self.functions = Writer()
        self.scratch = 0  # floats of each thread
        self.attentions = {} if count else self._attentions(in_parts)
        self.maps: dict[int, int] = {}  # map between groups -> floats from the start of the context's maps
        self.size = 0  # floats of all of them
        if count:
            self.layouts = [Layout(tensor, tuple(range(len(tensor.shape)))) for tensor in flow.maps]
            self.between = set(range(len(flow.maps)))
        else:
            ringed = sum(self.mask(group) for group in plan.groups if group.id in self.ringed)
            whole = {m for m, producer in enumerate(flow.producer) if producer >= 0 and not ringed >> producer & 1}
            self.layouts = layouts(flow, whole, ringed)
            self.between = self._between()
        self.within = Lodgings(flow, self.layouts, self.between, self._runs)
        if not count:
            self.within.fill()
            self.between |= {m for m, place in self.within.found.items() if place.map in self.between}
        self._lay_out()

    def mask(self, group: PlannedGroup) -> int:
        """The group's operators, as bits at their positions in the graph."""
        return sum(1 << self.index[node] for node in group.nodes)

    def _attentions(self, in_parts: AbstractSet[str]) -> dict[int, tuple[Attention, tuple[int, ...]]]:
        """Attentions that become one kernel: per product with the values, what it consists of, and the operators that it is made of.

        Those are in one group, which runs on whole maps.
        """
        owner = {name: group.id for group in self.plan.groups for name in group.nodes}
        found: dict[int, tuple[Attention, tuple[int, ...]]] = {}
        for one in attentions(self.flow, owner):
            form = form_of(one.call)
            names = [call.operator.name for call in form.core]
            mixing = form.mixing.operator.name
            if mixing not in in_parts and owner[mixing] not in self.ringed and fuses(form, self.target):
                found[self.index[mixing]] = form, tuple(self.index[name] for name in names)
        return found

    # -- memory ------------------------------------------------------------------------------------------------------------------------------

    def _between(self) -> set[int]:
        """Maps that lie in memory as a whole: inputs, outputs, what one group leaves to another, everything in groups without rings but what an
        attention makes on its way, and maps whose elements are larger than those that the plan's rings are for.
        """
        flow, found = self.flow, {m for m, producer in enumerate(self.flow.producer) if producer < 0}
        inside = {m for mixing, (_, core) in self.attentions.items() for i in core if i != mixing for m in flow.results[i]}
        for group in self.plan.groups:
            mask, ringed = self.mask(group), group.id in self.ringed
            for i in bits(mask):
                wide = {
                    m
                    for m in flow.results[i]
                    if m in self.floats or _item_bytes(flow.maps[m], self.target.element) != self.plan.hardware.element_bytes
                }
                found |= wide | {m for m in flow.results[i] if not ringed or flow.is_output[m] or flow.readers[m] & ~mask}
        return found - inside

    def _runs(self, i: int) -> Sequence[Sequence[RowComputation]]:
        """The steps of the group of an operator, loop by loop."""
        name = self.flow.operators[i].name
        group = next(group for group in self.plan.groups if name in group.nodes)
        return sequences(body(self.flow, self.index, group.steps))

    def _lay_out(self) -> None:
        """Place the maps, first fit, each from the group that makes it, or a part of it, to the last that reads it, or what lies within it."""
        flow = self.flow
        owner = {i: g for g, group in enumerate(self.plan.groups) for i in bits(self.mask(group))}
        last = len(self.plan.groups)
        lives: dict[int, tuple[int, int]] = {}  # map that has memory of its own -> groups
        for m in sorted(self.between):
            root = self.within.holder(m).map
            born = owner[flow.producer[m]] if flow.producer[m] >= 0 else -1
            dies = last if flow.is_output[m] or self.count else max([born, *(owner[i] for i in bits(flow.readers[m]))])
            before = lives.get(root, (born, dies))
            lives[root] = min(born, before[0]), max(dies, before[1])
        placed: list[tuple[int, int, int, int]] = []  # (start, stop, born, dies)
        for born, dies, m in sorted(((*life, m) for m, life in lives.items()), key=lambda life: (-self._lines(life[2]), life)):
            size = self._lines(m) * LINE // 4
            start = 0
            for other, stop, b, d in sorted(placed):
                if b <= dies and born <= d and other < start + size and start < stop:
                    start = stop
            placed.append((start, start + size, born, dies))
            self.maps[m] = start
            self.size = max(self.size, start + size)

    def _lines(self, m: int) -> int:
        """Cache lines of a map."""
        return -(-self.flow.maps[m].elements * self.item_bytes(m) // LINE)

    def stored(self, m: int) -> Element:
        """How elements of a float32 map lie in memory: as those of the map that it lies within."""
        return FLOAT32 if self.within.holder(m).map in self.floats else self.target.element

    def ctype(self, m: int) -> str:
        """C type of an element in memory."""
        return self.stored(m).ctype if self.flow.maps[m].dtype == "float32" else self.layouts[m].ctype

    def item_bytes(self, m: int) -> int:
        """Of an element in memory."""
        return _item_bytes(self.flow.maps[m], self.stored(m))

    def looped(self, operators: Iterable[str]) -> set[int]:
        """Maps not stored as floats although the loops of these operators work on what lies there, or the kernels of attentions read it."""
        flow, found = self.flow, {m for m in self._attended() if self.stored_otherwise(m)}
        for i in map(self.index.__getitem__, operators):
            maps = {m for m in (*flow.results[i], *(o.map for o in flow.operands[i])) if flow.maps[m].dtype == "float32"}
            read = [(tensor, constant) for tensor, constant in zip(flow.calls[i].tensors, flow.calls[i].constant, strict=True) if tensor]
            copied = flow.operators[i].kind in COPYING and not any(constant and tensor.dtype == "float32" for tensor, constant in read)
            if not copied or len({self.stored(m) for m in maps}) > 1:
                found |= {m for m in maps if self.stored_otherwise(m)}
        roots = {self.within.holder(m).map for m in found}
        return {m for m in range(len(flow.maps)) if self.within.holder(m).map in roots}

    def _attended(self) -> set[int]:
        """Maps that attentions of one kernel read."""
        flow, found = self.flow, set[int]()
        for head, (_, core) in self.attentions.items():
            inside = {m for i in core if i != head for m in flow.results[i]}
            found |= {o.map for i in core for o in flow.operands[i] if o.map not in inside}
        return found

    def stored_otherwise(self, m: int) -> bool:
        """Whether elements lie in memory as another type than code computes in."""
        return self.flow.maps[m].dtype == "float32" and self.stored(m) is not FLOAT32

    @property
    def lodged(self) -> tuple[CpuMap, ...]:
        """Where maps lie, those of rings by the rings that the plan has for them."""
        flow, found = self.flow, list[CpuMap]()
        rings = {place.name for group in self.plan.groups if group.id in self.ringed for place in group.places}
        for m, tensor in enumerate(flow.maps):
            holder = self.within.holder(m).map
            if m in self.between:
                found.append(CpuMap(tensor.name, flow.maps[holder].name, 4 * self.maps[holder], LINE * self._lines(holder)))
            elif flow.maps[holder].name in rings:
                found.append(CpuMap(tensor.name, flow.maps[holder].name, -1, 0))
        return tuple(found)

    def where(self, m: int) -> str:
        """Address of a map between groups."""
        kind, place = self.ctype(m), self.within.holder(m)
        start = self.maps[place.map]
        if kind == "float":
            return f"m->maps + {start + place.offset}"
        return f"({kind} *)(void *)(m->maps + {start})" + (f" + {place.offset}" if place.offset else "")

    # -- what is printed ---------------------------------------------------------------------------------------------------------------------

    def note_scratch(self, floats: int) -> None:
        """Let every thread have at least so much."""
        self.scratch = max(self.scratch, floats)

    def marks(self) -> Marks:
        """How much is printed, for `forget`."""
        return self.blob.mark(), self.functions.mark(), self.scratch

    def forget(self, marks: Marks) -> None:
        """Drop the functions that came since, and what they need."""
        blob, functions, self.scratch = marks
        self.blob.forget(blob)
        self.functions.forget(functions)
