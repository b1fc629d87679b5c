"""Which kernels make a plan, decided operator by operator before anything is printed.

It is what `lfopt.planning.cpu.schedule` asks for to make a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import groupby

from codegen.aliasing import even, in_turn
from codegen.epilogue import Epilogue, arity, epilogue, in_step
from codegen.fusion_chains import fused_kernels, fusion_chains, table_behind
from codegen.kernels import quantized, table
from codegen.kernels.attention import AttentionKernel
from codegen.kernels.choice import KernelChoice, Write, first_match
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.winograd_bytes import whole_maps
from codegen.layout import MapLayout, tensor_of
from codegen.loops.nest import Array, Nest
from codegen.loops.table import loops
from codegen.memory import FusedAttention, MemoryPlan, PlannedFlow, fused_attentions, lay_out
from codegen.source import Decision, KernelRefusal, Unsupported
from codegen.target import Target
from codegen.writer import CModule
from lfopt.ir import Place, PlannedGroup
from lfopt.ir.cpu import CpuFunction, CpuMap, CpuSchedule, Makes
from lfopt.ops import bits
from lfopt.planning.cpu.schedule import Alone, Members, RowComputation, lower_for_cpu

# the ring of a map that no step makes, as all windows over it hold nothing but padding
UNREAD = Place("", "map", 0, 1, 0)
NO_EPILOGUE = Epilogue((), (), ())
ATTENTION = "attention"  # what refusals call its kernel


@dataclass(frozen=True)
class Selected:
    """A function: what was decided, and how it is printed."""

    decision: Decision
    title: str  # of its operators, in a comment
    write: Write  # raises Unsupported for plain loops alone

    def print(self, out: CModule) -> None:
        """Print it. Raises Unsupported where no kernel and no loops know its operator."""
        out.comment(self.title)
        self.write(out)


def select(
    planned: PlannedFlow, target: Target, floats: AbstractSet[int]
) -> tuple[MemoryPlan, CpuSchedule, Sequence[Selected]]:
    """Locations of maps, the schedule of threads, and its functions in order.

    `floats`: float32 maps that are stored as floats whatever the target says.

    Which maps loops and attentions read is known when kernels are chosen, and where maps lie decides who can
    be chosen: what they need is added until nothing changes. Raises Unsupported for types and sizes that
    generated code does not hold.
    """
    attentions, in_parts = fused_attentions(planned, target)
    while True:
        memory = lay_out(planned, target, floats, attentions)
        if refused := {
            anchor: why
            for anchor in attentions
            if isinstance(why := _GroupKernels(memory).attention(anchor), str)
        }:
            attentions = {
                anchor: attention for anchor, attention in attentions.items() if anchor not in refused
            }
            in_parts |= refused
            continue
        selection = Selection(memory, in_parts)
        schedule = lower_for_cpu(
            planned.plan, planned.flow, selection, target.name, target.threads, memory.in_memory
        )
        looped = [
            name for function in schedule.functions if function.how == "loops" for name in function.operators
        ]
        if not (wrong := memory.wrongly_rounded(looped)):
            return memory, schedule, [*selection.selected]
        floats |= wrong


class Selection:
    """Kernels, chosen group by group: `lfopt.planning.cpu.schedule.Kernels`."""

    def __init__(self, memory: MemoryPlan, in_parts: Mapping[int, str]) -> None:
        """`in_parts`: why attentions are no kernel of their own, by their products with the values."""
        self.memory = memory
        self.in_parts = in_parts
        # convolutions on integers by Winograd's algorithm, where maps are whole
        self.tiled = whole_maps(memory.flow, memory.layouts, memory.target)
        self._groups: dict[int, list[Selected]] = {}

    @property
    def selected(self) -> Iterator[Selected]:
        """The functions of all groups that were asked for."""
        return (function for group in self._groups.values() for function in group)

    @property
    def maps(self) -> tuple[CpuMap, ...]:
        """Locations of maps, as a schedule lists them."""
        return self.memory.listed

    def in_order(self, mask: int) -> Sequence[int]:
        """Operators, each followed, where that may be, by what joins it."""
        return fusion_chains(self.memory.flow, mask)

    def joined(self, mask: int, runs: Sequence[Sequence[RowComputation]], *, whole: bool) -> Members:
        """Which operators of a group become one function.

        On whole maps an attention is one, in the place of its last operator.
        """
        memory = self.memory
        cores = {
            anchor: attention.core
            for anchor, attention in memory.attentions.items()
            if whole and mask >> anchor & 1
        }
        inside = {i for core in cores.values() for i in core}
        apart = [
            [*alike]
            for run in runs
            for within, alike in groupby(run, lambda step: step.operator in inside)
            if not within
        ]
        kernels = fused_kernels(memory.flow, memory.layouts, mask, apart, whole=whole)
        return kernels | {
            anchor: (anchor, *(i for i in core if i != anchor)) for anchor, core in cores.items()
        }

    def in_place(self, mask: int, runs: Sequence[Sequence[RowComputation]], common: frozenset[int]) -> bool:
        """Whether parts of a Concat that lie within its ring are made just before it."""
        memory = self.memory
        held = [(m, memory.aliases.holder(m).map) for i in bits(mask) for m in memory.flow.results[i]]
        inside = [(m, ring) for m, ring in held if ring != m and ring not in memory.in_memory]
        return all(not {m, ring} & common and in_turn(memory.flow, runs, m, ring) for m, ring in inside)

    def functions(
        self, group: PlannedGroup, members: Members, alone: Alone | None, *, whole: bool
    ) -> Mapping[int, Sequence[CpuFunction]]:
        """Choose the functions of a group, in place of those chosen for it before."""
        rings = {place.name: place for place in group.places}
        how = _GroupKernels(self.memory, self.tiled if whole else 0, self.in_parts, whole, alone, rings)
        selected = {anchor: how.select(operators) for anchor, operators in members.items()}
        self._groups[group.id] = [function for functions in selected.values() for function in functions]
        return {
            anchor: [function.decision.function for function in functions]
            for anchor, functions in selected.items()
        }


@dataclass(frozen=True)
class _GroupKernels:
    """Chooses the kernels of a group."""

    memory: MemoryPlan
    tiled: int = 0  # mask of convolutions on integers by Winograd's algorithm
    in_parts: Mapping[int, str] = field(default_factory=dict[int, str])
    # whether operators make whole maps, one after the other; if not, rows pass through rings
    whole: bool = True
    alone: Alone | None = None  # what each thread makes, where they do not share every row
    rings: Mapping[str, Place] = field(default_factory=dict[str, Place])

    def select(self, operators: Sequence[int]) -> list[Selected]:
        """The functions of a fused kernel.

        One; or, where no kernel takes its anchor, loops for that and what can be done for the rest.
        """
        memory, (anchor, *rest) = self.memory, operators
        if all(memory.aliases.is_idle(i) for i in operators):
            return []
        if self.whole and anchor in memory.attentions:
            return [self._attention(anchor, memory.attentions[anchor])]
        quantised = memory.flow.calls[anchor].result_tensors[0].quantization is not None
        refused = (KernelRefusal(ATTENTION, self.in_parts[anchor]),) if anchor in self.in_parts else ()
        try:
            fused = self._quantised(operators) if quantised else self._floating(operators)
            kernels = quantized.kernels_of(fused) if quantised else table.kernels_of(fused)
        except Unsupported as reason:
            kernel = None
            more = (KernelRefusal("any kernel", str(reason)),)
        else:
            kernel, more = first_match(kernels, fused)
        if kernel:
            return [self._selected(kernel, operators, (*refused, *more))]
        functions = [] if memory.aliases.is_idle(anchor) else [self._loops(anchor, (*refused, *more))]
        return functions + (self.select(rest) if rest else [])

    def attention(self, anchor: int) -> AttentionKernel | str:
        """The kernel of an attention; or why there is none: its operands lie in no order that it can read."""
        memory = self.memory
        fused = self._fused_kernel(
            anchor, NO_EPILOGUE, memory.flow.results[anchor][0], memory.layouts.__getitem__, flat=True
        )
        try:
            return AttentionKernel(replace(fused, once=True), memory.attentions[anchor].form, memory.layouts)
        except Unsupported as reason:
            return str(reason)

    # -- functions -------------------------------------------------------------------------------------------

    def _selected(
        self, choice: KernelChoice, operators: Sequence[int], refused: tuple[KernelRefusal, ...]
    ) -> Selected:
        fused = choice.fused
        names = self._names(operators)
        split = self.memory.target.threads > 1 and fused.shared

        def write(out: CModule) -> None:
            for extra in fused.epilogue.extras:  # constants in the order in which kernels read them
                if extra.map < 0:
                    extra.place(out.blob)
            choice.write(out)

        function = CpuFunction(fused.name, names, _makes(once=fused.once), split, "kernel")
        return Selected(Decision(function, choice.kernel, refused), ", ".join(names), write)

    def _attention(self, anchor: int, attention: FusedAttention) -> Selected:
        """A kernel of all that lies between two products."""
        kernel = self.attention(anchor)
        assert isinstance(kernel, AttentionKernel), kernel
        names = self._names((*(i for i in attention.core if i != anchor), anchor))
        function = CpuFunction(kernel.fused.name, names, "map", self.memory.target.threads > 1, "kernel")
        return Selected(
            Decision(function, ATTENTION, ()), ", ".join(self._names(attention.core)), kernel.write
        )

    def _loops(self, i: int, refused: tuple[KernelRefusal, ...]) -> Selected:
        """An operator as plain loops."""
        flow = self.memory.flow
        target = self.memory.target
        aliased = self.memory.aliases.aliased(i)
        call = flow.calls[i]
        once = self.whole or flow.calls[i].rows_out == 1
        name = f"loops_{i}"
        threads = 1 if self._is_alone(i) else target.threads
        operands = {o.input: self._array(o.map, call.shape(o.input)) for o in flow.operands[i]}
        results = [self._array(m, flow.maps[m].shape) for m in flow.results[i]]
        there = {o.input for o in flow.operands[i] if o.map in aliased} | {
            k for k, m in enumerate(flow.results[i]) if m in aliased
        }

        def write(out: CModule) -> None:
            with out.kernel(name):
                loops(
                    Nest(
                        out,
                        call,
                        operands,
                        results,
                        out.blob,
                        whole=once,
                        threads=threads,
                        lanes=target.lanes[0],
                        aliased=there,
                    )
                )

        function = CpuFunction(
            name, (call.operator.name,), _makes(once=once), threads > 1, "loops", refused[-1].reason
        )
        return Selected(
            Decision(function, "plain loops", refused),
            f"{call.operator.name} ({call.operator.kind}), as plain loops",
            write,
        )

    def _names(self, operators: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.memory.flow.operators[i].name for i in operators)

    def _is_alone(self, i: int) -> bool:
        """Whether each thread makes rows of its own of what an operator makes."""
        return self.alone is not None and i in self.alone.operators

    # -- fused kernels ---------------------------------------------------------------------------------------

    def _floating(self, operators: Sequence[int]) -> FusedKernel:
        """An operator with the elementwise operators behind it.

        Raises Unsupported where no kernel can read or write its maps.
        """
        memory = self.memory
        flow = self.memory.flow
        anchor = operators[0]
        call = flow.calls[anchor]
        result = flow.results[operators[-1]][0]
        written = memory.layouts[flow.results[anchor][0]]
        if result not in flow.results[anchor]:
            strides = memory.layouts[result].alias_strides
            shape = memory.layouts[result].shape
            if strides and written.shape != shape:
                raise Unsupported(
                    f"node {call.operator.name!r}: found a result in another shape that lies within another "
                    "map"
                )
            written = replace(written, alias_strides=strides)
        elementwise = bool(arity(call))
        flat = self.whole and (
            elementwise
            or ((table.is_pointwise(call) or table.is_column(call)) and self._even(anchor, written))
        )
        seen = self._seen(anchor)

        def layouts(m: int) -> MapLayout:
            if m == result:
                return written
            return seen.get(m, memory.layouts[m])

        source = self._start(anchor) if elementwise else flow.results[anchor][0]
        after = epilogue(
            flow,
            memory.layouts,
            operators if elementwise else operators[1:],
            source,
            written,
            whole=self.whole,
        )
        fused = self._fused_kernel(anchor, after, result, layouts, flat=flat)
        return replace(fused, source=source, once=flat or written.image.rows == 1)

    def _quantised(self, operators: Sequence[int]) -> FusedKernel:
        """An operator on integers, and a table of what follows it. Raises Unsupported."""
        memory = self.memory
        flow = self.memory.flow
        i = operators[0]
        result = flow.results[operators[-1]][0]
        flat = self.whole and (flow.specs[i].elementwise or table.is_pointwise(flow.calls[i]))
        seen = self._seen(i)

        def layouts(m: int) -> MapLayout:
            if m == result:
                return memory.layouts[m]
            return seen.get(m, memory.layouts[m])

        fused = self._fused_kernel(i, NO_EPILOGUE, result, layouts, flat=flat)
        once = flat or fused.layouts(result).extents.rows == 1
        return replace(fused, once=once, table=table_behind(flow, operators), tiled=bool(self.tiled >> i & 1))

    def _fused_kernel(
        self, anchor: int, after: Epilogue, result: int, layouts: Callable[[int], MapLayout], *, flat: bool
    ) -> FusedKernel:
        memory = self.memory
        return FusedKernel(
            f"unit_{anchor}",
            memory.flow,
            anchor,
            after,
            result,
            layouts,
            memory.stored,
            self._address(layouts, flat=flat),
            self._dense,
            memory.target,
            result,
            self.whole,
            flat,
            alone=self._is_alone(anchor),
            aliased=memory.aliases.aliased(anchor),
        )

    def _seen(self, anchor: int) -> dict[int, MapLayout]:
        """Maps that an operator reads through a view, as it sees them.

        Raises Unsupported where they do not lie so.
        """
        memory = self.memory
        call = self.memory.flow.calls[anchor]
        views: dict[int, MapLayout] = {}
        for operand in memory.flow.operands[anchor]:
            own = memory.layouts[operand.map]
            tensor = tensor_of(call, operand.input)
            if tensor.shape == own.shape:
                continue
            view = own.seen(tensor)
            alike = operand.map in memory.in_memory or (
                own.by_rows and view is not None and view.tensor.rows == own.tensor.rows
            )
            if view is not None and (self.whole or (view.by_rows and alike)):
                views[operand.map] = view
            # a product with a constant matrix takes pixels in any order: see `kernels.weights.in_order`
            elif call.operator.kind not in table.PRODUCTS or not call.constant[1]:
                named = f"node {call.operator.name!r} ({call.operator.kind}): input {operand.input}"
                raise Unsupported(
                    f"{named}: found a view of {list(own.shape)} as {list(tensor.shape)}; fast kernels "
                    "accept views that keep pixels"
                )
        return views

    def _start(self, i: int) -> int:
        """The operand that an elementwise operator begins with: one that lies as its result does.

        Raises Unsupported.
        """
        flow = self.memory.flow
        layouts = self.memory.layouts
        own = layouts[flow.results[i][0]]
        for operand in flow.operands[i]:
            other = layouts[operand.map]
            alike = self.whole or (other.by_rows and own.by_rows and other.tensor.rows == own.tensor.rows)
            if (
                alike
                and other.tensor.dtype == "float32"
                and in_step(flow.calls[i], operand.input, other, own)
            ):
                return operand.map
        raise Unsupported(
            f"node {flow.operators[i].name!r} ({flow.operators[i].kind}): found no operand as large as the "
            "result"
        )

    def _even(self, anchor: int, written: MapLayout) -> bool:
        """Whether what an operator makes, and reads if that matters, are pixels at even distances.

        Then all rows are one.
        """
        flow = self.memory.flow
        if table.is_product(flow.calls[anchor]):
            read = []
        else:
            read = [self.memory.layouts[o.map] for o in flow.operands[anchor]]
        return all(not layout.alias_strides or even(layout) for layout in (written, *read))

    # -- addresses -------------------------------------------------------------------------------------------

    def _address(self, layouts: Callable[[int], MapLayout], *, flat: bool) -> Callable[[int, str], str]:
        """(map, row in C) -> C expression: address of the row; if `flat`, the whole map is the row."""
        memory = self.memory

        def address(m: int, row: str) -> str:
            if m in memory.in_memory:
                return memory.where(m) + (
                    "" if row == "0" or flat else f" + {row} * {layouts(m).extents.step}"
                )
            ring = self._array(m, layouts(m).shape)
            at = "0" if row == "0" or ring.slots == 1 else f"{row} % {ring.slots}"
            return ring.pointer + ("" if at == "0" else f" + {at} * {ring.slot}")

        return address

    def _dense(self, m: int) -> bool:
        """Whether all rows of a map are there at once, one after the other."""
        tensor = self.memory.flow.maps[m]
        if m in self.memory.in_memory:
            return True
        ring = self._array(m, tensor.shape)
        return ring.slots >= tensor.rows and ring.slot * tensor.rows == tensor.elements

    def _array(self, m: int, shape: tuple[int, ...]) -> Array:
        memory = self.memory
        layout = self.memory.layouts[m]
        if m in memory.in_memory:
            return Array(layout, shape, memory.where(m), stored=memory.ctype(m))
        held = memory.aliases.holder(m)
        place = self.rings.get(memory.flow.maps[held.map].name, UNREAD)
        size = memory.item_bytes(m)
        kind = memory.ctype(m)
        arena = "m->rings" if self.alone and held.map not in self.alone.common else "m->arena"
        start = place.address // size + held.offset
        pointer = f"{arena if kind == 'float' else f'({kind} *)(void *){arena}'} + {start}"
        return Array(layout, shape, pointer, place.slots, place.slot_bytes // size, kind)


def _makes(*, once: bool) -> Makes:
    if once:
        return "map"
    return "row"
