"""The C functions of a plan: what `lfopt.planning.cpu` asks which of there are, and the text of those that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from codegen.kernels.attention import Fused
from codegen.kernels.heads import is_column, is_pointwise, is_product, kernel, winograd_tile
from codegen.kernels.quantized import quantized
from codegen.kernels.simple import elementwise
from codegen.kernels.unit import Unit
from codegen.kernels.winograd_bytes import SIZE, whole_maps
from codegen.layout import Layout
from codegen.loops.nest import Array, Nest
from codegen.loops.table import loops
from codegen.model import Marks, Model
from codegen.source import NotFused, Unsupported
from codegen.tails import Tail, in_step, is_elementwise, tail
from codegen.units import chained, table_behind, units
from codegen.within import even, in_turn
from lfopt.ir import Place, PlannedGroup
from lfopt.ir.cpu import CpuFunction, CpuMap, Makes
from lfopt.ops import bits
from lfopt.planning.cpu import Alone, Members, RowComputation

UNREAD = Place("", "map", 0, 1, 0)  # the ring of a map that nobody makes, as all windows over it hold nothing but padding


class Functions:
    """Functions under construction: `lfopt.planning.cpu.Kernels`, group by group."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tiled = whole_maps(model.flow, model.layouts, model.target)  # convolutions on integers by Winograd's algorithm, where maps are whole
        self.started: tuple[int, Marks] | None = None  # the group whose functions are printed, and what was printed before
        self.whole = True  # whether operators make whole maps, one after the other: not where rows pass through rings from one to the next
        self.alone: Alone | None = None  # what each thread makes, where they do not share every row
        self.rings: dict[str, Place] = {}

    @property
    def maps(self) -> tuple[CpuMap, ...]:
        """Where maps lie."""
        return self.model.lodged

    def in_order(self, mask: int) -> Sequence[int]:
        """Operators, each followed, where that may be, by what joins it."""
        return chained(self.model.flow, mask)

    def joined(self, mask: int, runs: Sequence[Sequence[RowComputation]], *, whole: bool) -> Members:
        """Which operators of a group become one function. On whole maps an attention is one, in the place of its last operator."""
        flow, lie = self.model.flow, self.model.layouts
        cores = {head: core for head, (_, core) in self.model.attentions.items() if whole and mask >> head & 1}
        inside = {i for core in cores.values() for i in core}
        apart = [[*alike] for run in runs for within, alike in groupby(run, lambda step: step.operator in inside) if not within]
        return units(flow, lie, mask, apart, whole=whole) | {head: (head, *(i for i in core if i != head)) for head, core in cores.items()}

    def in_place(self, mask: int, runs: Sequence[Sequence[RowComputation]], common: frozenset[int]) -> bool:
        """Whether parts of a Concat that lie within its ring are made just before it."""
        model = self.model
        lodged = [(m, model.within.holder(m).map) for i in bits(mask) for m in model.flow.results[i]]
        inside = [(m, ring) for m, ring in lodged if ring != m and ring not in model.between]
        return all(not {m, ring} & common and in_turn(model.flow, runs, m, ring) for m, ring in inside)

    def functions(self, group: PlannedGroup, members: Members, alone: Alone | None, *, whole: bool) -> Mapping[int, Sequence[CpuFunction]]:
        """Print the functions of a group, in place of those printed for it before. Raises Unsupported."""
        if self.started and self.started[0] == group.id:
            self.model.forget(self.started[1])
        self.started = group.id, self.model.marks()
        self.whole, self.alone, self.rings = whole, alone, {place.name: place for place in group.places}
        return {head: self._unit(operators) for head, operators in members.items()}

    # -- one function ------------------------------------------------------------------------------------------------------------------------

    def _unit(self, operators: tuple[int, ...]) -> list[CpuFunction]:
        """The functions of a unit: one, or, where no kernel knows its head, loops for that and what can be done for the rest."""
        model, (head, *rest) = self.model, operators
        if all(model.within.idle(i) for i in operators):
            return []
        if head in model.attentions and self.whole:
            return [self._attention(head)]
        marks = model.marks()
        model.functions.comment(", ".join(model.flow.operators[i].name for i in operators))
        try:
            quantized = model.flow.calls[head].result_tensors[0].quantization is not None
            return [self._quantized(operators) if quantized else self._kernel(operators)]
        except Unsupported as reason:
            model.forget(marks)
            found = [] if model.within.idle(head) else [self._loops(head, str(reason))]
            return found + self._unit(tuple(rest)) if rest else found

    def _kernel(self, operators: tuple[int, ...]) -> CpuFunction:
        """A fast kernel. Raises Unsupported."""
        model, flow, head = self.model, self.model.flow, operators[0]
        result, made = flow.results[operators[-1]][0], model.layouts[flow.results[head][0]]
        if result not in flow.results[head]:
            apart, shape = model.layouts[result].apart, model.layouts[result].shape
            if apart and made.shape != shape:
                raise Unsupported(f"node {flow.operators[head].name!r}: found a result in another shape that lies within another map")
            made = replace(made, apart=apart)
        alone = is_elementwise(flow, head)
        flat = self.whole and (alone or ((is_pointwise(flow.calls[head]) or is_column(flow.calls[head])) and self._even(head, made)))
        seen = self._seen(head)

        def lies(m: int) -> Layout:
            return made if m == result else seen.get(m, model.layouts[m])

        start = self._start(head) if alone else flow.results[head][0]
        after = tail(flow, model.layouts, operators if alone else operators[1:], start, made, model.blob, whole=self.whole)
        read = model.layouts[flow.operands[head][0].map] if flow.operands[head] else None
        tile = winograd_tile(flow.calls[head], read, made, model.target) if self.whole and read else 0
        once = flat or tile > 0 or made.image.rows == 1
        unit = replace(self._unit_of(head, after, result, lies, flat=flat, shared=self._together(head, once=once)), tile=tile)
        if alone:
            elementwise(model.functions, unit, start)
        else:
            kernel(model.functions, unit)
        return self._function(unit, operators, once=once)

    def _attention(self, head: int) -> CpuFunction:
        """A kernel of all that lies between two products. Raises NotFused where its operands lie in no order that it can read."""
        model, (form, core) = self.model, self.model.attentions[head]
        result, lies = model.flow.results[head][0], model.layouts.__getitem__
        model.functions.comment(", ".join(call.operator.name for call in form.core))
        unit = self._unit_of(head, Tail((), (), ()), result, lies, flat=True, shared=True)
        try:
            Fused(model.functions, unit, form, model.layouts).write()
        except Unsupported as reason:
            raise NotFused(model.flow.operators[head].name, str(reason)) from None
        return self._function(unit, (*(i for i in core if i != head), head), once=True)

    def _quantized(self, operators: tuple[int, ...]) -> CpuFunction:
        """A fast kernel of an operator on integers, and a table of what follows it. Raises Unsupported."""
        model, flow, i = self.model, self.model.flow, operators[0]
        result, lies = flow.results[operators[-1]][0], model.layouts.__getitem__
        flat = self.whole and (flow.specs[i].elementwise or is_pointwise(flow.calls[i]))
        tiled = self.whole and bool(self.tiled >> i & 1)
        once = flat or tiled or lies(result).extents.rows == 1
        unit = self._unit_of(i, Tail((), (), ()), result, lies, flat=flat, shared=self._together(i, once=once))
        quantized(model.functions, replace(unit, table=table_behind(flow, operators), tile=SIZE * tiled))
        return self._function(unit, operators, once=once)

    def _together(self, i: int, *, once: bool) -> bool:
        """Whether threads make together what one call of an operator's function makes."""
        return not self._apart(i) and (once or not self.whole)

    def _apart(self, i: int) -> bool:
        """Whether each thread makes rows of its own of what an operator makes."""
        return self.alone is not None and i in self.alone.operators

    def _function(self, unit: Unit, operators: Sequence[int], *, once: bool) -> CpuFunction:
        return CpuFunction(unit.name, self._names(operators), _makes(once=once), self.model.target.threads > 1 and unit.shared, "kernel")

    def _names(self, operators: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.model.flow.operators[i].name for i in operators)

    def _unit_of(self, head: int, after: Tail, result: int, lies: Callable[[int], Layout], *, flat: bool, shared: bool) -> Unit:
        model, address = self.model, self._address(lies, flat=flat)
        name, placed = f"unit_{head}", model.within.placed(head)
        return Unit(
            name, model.flow, head, after, result, lies, model.stored, address, self._dense, flat, shared, model.note_scratch, model.target,
            model.blob, placed,
        )  # fmt: skip

    def _seen(self, head: int) -> dict[int, Layout]:
        """Maps that an operator reads through a view, as it sees them. Raises Unsupported where they do not lie so."""
        model, call = self.model, self.model.flow.calls[head]
        found: dict[int, Layout] = {}
        for operand in model.flow.operands[head]:
            own, tensor = model.layouts[operand.map], call.tensors[operand.input]
            assert tensor is not None, "a map is not an absent operand"
            if tensor.shape == own.shape:
                continue
            view = own.seen(tensor)
            alike = operand.map in model.between or (own.by_rows and view is not None and view.tensor.rows == own.tensor.rows)
            if view is not None and (self.whole or (view.by_rows and alike)):
                found[operand.map] = view
            elif call.operator.kind != "Gemm":
                named = f"node {call.operator.name!r} ({call.operator.kind}): input {operand.input}"
                raise Unsupported(f"{named}: found a view of {list(own.shape)} as {list(tensor.shape)}; fast kernels accept views that keep pixels")
        return found

    def _start(self, i: int) -> int:
        """The operand that an elementwise operator begins with: one that lies as its result does."""
        flow, lie = self.model.flow, self.model.layouts
        own = lie[flow.results[i][0]]
        for operand in flow.operands[i]:
            other = lie[operand.map]
            alike = self.whole or (other.by_rows and own.by_rows and other.tensor.rows == own.tensor.rows)
            if alike and other.tensor.dtype == "float32" and in_step(flow.calls[i], operand.input, other, own):
                return operand.map
        raise Unsupported(f"node {flow.operators[i].name!r} ({flow.operators[i].kind}): found no operand as large as the result")

    def _address(self, lies: Callable[[int], Layout], *, flat: bool) -> Callable[[int, str], str]:
        """Where a row of a map lies; if `flat`, the whole map is the row."""
        model = self.model

        def address(m: int, row: str) -> str:
            if m in self.model.between:
                return model.where(m) + ("" if row == "0" or flat else f" + {row} * {lies(m).extents.step}")
            ring = self._array(m, lies(m).shape)
            at = "0" if row == "0" or ring.slots == 1 else f"{row} % {ring.slots}"
            return ring.pointer + ("" if at == "0" else f" + {at} * {ring.slot}")

        return address

    def _even(self, head: int, made: Layout) -> bool:
        """Whether what an operator makes, and what it reads if that matters, are pixels at even distances, so that all rows are one."""
        flow = self.model.flow
        read = [] if is_product(flow.calls[head]) else [self.model.layouts[o.map] for o in flow.operands[head]]
        return all(not layout.apart or even(layout) for layout in (made, *read))

    def _dense(self, m: int) -> bool:
        """Whether all rows of a map are there at once, one after the other."""
        tensor = self.model.flow.maps[m]
        if m in self.model.between:
            return True
        ring = self._array(m, tensor.shape)
        return ring.slots >= tensor.rows and ring.slot * tensor.rows == tensor.elements

    def _loops(self, i: int, reason: str) -> CpuFunction:
        """An operator as plain loops. Raises Unsupported."""
        model, flow = self.model, self.model.flow
        call, out = flow.calls[i], model.functions
        operator = call.operator
        name, once = f"loops_{i}", self.whole or call.rows_out == 1
        operands = {o.input: self._array(o.map, call.shape(o.input)) for o in flow.operands[i]}
        results = [self._array(m, flow.maps[m].shape) for m in flow.results[i]]
        out.comment(f"{operator.name} ({operator.kind}), as plain loops")
        with out.kernel(name):
            target = model.target
            threads = 1 if self._apart(i) else target.threads
            placed = model.within.placed(i)
            there = {o.input for o in flow.operands[i] if o.map in placed} | {k for k, m in enumerate(flow.results[i]) if m in placed}
            loops(Nest(out, call, operands, results, model.blob, whole=once, threads=threads, lanes=target.lanes[0], placed=there))
        return CpuFunction(name, (operator.name,), _makes(once=once), threads > 1, "loops", reason)

    def _array(self, m: int, shape: tuple[int, ...]) -> Array:
        model, layout = self.model, self.model.layouts[m]
        if m in self.model.between:
            return Array(layout, shape, model.where(m))
        held = model.within.holder(m)
        place = self.rings.get(model.flow.maps[held.map].name, UNREAD)
        size, kind = model.item_bytes(m), model.ctype(m)
        arena, start = "m->rings" if self.alone and held.map not in self.alone.common else "m->arena", place.address // size + held.offset
        pointer = f"{arena if kind == 'float' else f'({kind} *)(void *){arena}'} + {start}"
        return Array(layout, shape, pointer, place.slots, place.slot_bytes // size)


def _makes(*, once: bool) -> Makes:
    return "map" if once else "row"
