"""The C of a fusion group: the functions of its units, and one that calls them in the order of its schedule.

A group in mode lbdf follows the plan's loops, with the plan's rings in the arena. Maps that it loads or stores are read and written where they lie
between groups: on a CPU the cache moves them. Groups in other modes run operator by operator on whole maps, and so do groups of one unit, which have
no use for rings. Several threads make every row of a group with rings together, or each makes rows of the sinks alone (see `codegen.shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from codegen.kernels.heads import is_column, is_pointwise, is_product, kernel, winograd_tile
from codegen.kernels.quantized import quantized
from codegen.kernels.simple import elementwise
from codegen.kernels.unit import Unit
from codegen.layout import Layout
from codegen.loops.nest import Array, Nest
from codegen.loops.table import loops
from codegen.model import Model
from codegen.shares import Shares, shares
from codegen.source import Unsupported
from codegen.tails import Tail, in_step, is_elementwise, tail
from codegen.units import Body, Made, body, chained, sequences, units
from codegen.within import even
from lfopt.ir import Place, PlannedGroup

UNREAD = Place("", "map", 0, 1, 0)  # the ring of a map that nobody makes, as all windows over it hold nothing but padding
Calls = Literal["once", "rows"]  # a function makes all that its operator makes, or one row


class Group:
    """A group under construction."""

    def __init__(self, model: Model, group: PlannedGroup) -> None:
        self.model, self.group = model, group
        self.whole = True  # whether operators make whole maps, one after the other: not where rows pass through rings from one to the next
        self.shares: Shares | None = None  # what each thread makes, where they do not share every row
        self.rings = {place.name: place for place in self.group.places}
        self.made: dict[int, list[tuple[str, Calls]]] = {}  # functions of each unit

    def emit(self) -> str:
        """Print the functions of the group; the C statement that runs it. Raises Unsupported."""
        model, group = self.model, self.group
        flow, mask = model.flow, model.mask(group)
        steps: Body = [Made(i, 0, flow.heights[i], ()) for i in chained(flow, mask)]
        found = units(flow, model.layouts, mask, sequences(steps), whole=True)
        ringed = group.id in model.ringed
        self.whole = not ringed or len(found) == 1
        marks = model.marks()
        self.made = {head: self._unit(operators) for head, operators in found.items()} if self.whole else {}
        if ringed and any(len(functions) > 1 for functions in self.made.values()):  # maps between them lie in rings
            model.forget(marks)
            self.whole = False
        if not self.whole:
            steps = body(flow, model.index, group.steps)
            found = units(flow, model.layouts, mask, sequences(steps), whole=False)
            self.shares = self._shares(found)
            self.made = {head: self._unit(operators) for head, operators in found.items()}
        name = f"group_{group.id}"
        with model.functions.block(f"static void {name}(const context *m)"):
            if any(self.made.values()):
                for stage in self.shares.stages if self.shares else ((steps,),):
                    self._stage(stage, found)
            else:
                model.functions("(void)m; /* all that it makes is there */")
        model.functions("")
        return f"{name}(m);"

    def _shares(self, found: Mapping[int, tuple[int, ...]]) -> Shares | None:
        """What each thread makes of the group; None: they share every row."""
        model, group = self.model, self.group
        if model.target.threads == 1:
            return None
        made = shares(model, group, found)
        if isinstance(made, str):
            model.together[group.id] = made
            return None
        model.apart = True
        return made

    # -- functions ---------------------------------------------------------------------------------------------------------------------------

    def _unit(self, operators: tuple[int, ...]) -> list[tuple[str, Calls]]:
        """The functions of a unit: one, or, where no kernel knows its head, loops for that and what can be done for the rest."""
        model, (head, *rest) = self.model, operators
        if all(model.within.idle(i) for i in operators):
            return []
        marks = model.marks()
        model.functions.comment(", ".join(model.flow.operators[i].name for i in operators))
        try:
            quantized = model.flow.calls[head].result_tensors[0].quantization is not None
            return [self._quantized(head) if quantized else self._kernel(operators)]
        except Unsupported as reason:
            model.forget(marks)
            found = [] if model.within.idle(head) else [self._loops(head, str(reason))]
            return found + self._unit(tuple(rest)) if rest else found

    def _kernel(self, operators: tuple[int, ...]) -> tuple[str, Calls]:
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
        return unit.name, "once" if once else "rows"

    def _quantized(self, i: int) -> tuple[str, Calls]:
        """A fast kernel of an operator on integers. Raises Unsupported."""
        model, flow = self.model, self.model.flow
        result, lies = flow.results[i][0], model.layouts.__getitem__
        flat = self.whole and (flow.specs[i].elementwise or is_pointwise(flow.calls[i]))
        once = flat or lies(result).extents.rows == 1
        unit = self._unit_of(i, Tail((), (), ()), result, lies, flat=flat, shared=self._together(i, once=once))
        quantized(model.functions, unit)
        return unit.name, "once" if once else "rows"

    def _together(self, i: int, *, once: bool) -> bool:
        """Whether threads make together what one call of an operator's function makes."""
        return not (self.shares and i in self.shares.alone) and (once or not self.whole)

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
            if view is not None and (self.whole or (view.by_rows and own.by_rows and view.tensor.rows == own.tensor.rows)):
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

    def _loops(self, i: int, reason: str) -> tuple[str, Calls]:
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
            threads = 1 if self.shares and i in self.shares.alone else target.threads
            placed = model.within.placed(i)
            there = {o.input for o in flow.operands[i] if o.map in placed} | {k for k, m in enumerate(flow.results[i]) if m in placed}
            loops(Nest(out, call, operands, results, model.blob, whole=once, threads=threads, lanes=target.lanes[0], placed=there))
        model.loops[operator.name] = reason
        return name, "once" if once else "rows"

    def _array(self, m: int, shape: tuple[int, ...]) -> Array:
        model, layout = self.model, self.model.layouts[m]
        if m in self.model.between:
            return Array(layout, shape, model.where(m))
        held = model.within.holder(m)
        place = self.rings.get(model.flow.maps[held.map].name, UNREAD)
        size, kind = model.item_bytes(m), model.ctype(m)
        arena, start = "m->rings" if self.shares and held.map not in self.shares.common else "m->arena", place.address // size + held.offset
        pointer = f"{arena if kind == 'float' else f'({kind} *)(void *){arena}'} + {start}"
        return Array(layout, shape, pointer, place.slots, place.slot_bytes // size)

    # -- schedule ----------------------------------------------------------------------------------------------------------------------------

    def _stage(self, bodies: Sequence[Body], members: Mapping[int, tuple[int, ...]]) -> None:
        """One body for all threads, who wait for one another after every operator; or one for each thread."""
        out = self.model.functions
        if len(bodies) == 1:
            self._steps(bodies[0], members, 0)
            return
        for k, steps in enumerate(bodies):
            with out.block(f"if (m->me == {k})"):
                self._steps(steps, members, 0)
        out("SYNC();")

    def _steps(self, steps: Body, members: Mapping[int, tuple[int, ...]], depth: int) -> None:
        out = self.model.functions
        skip = 0
        for step in steps:
            if skip:
                skip -= 1
                continue
            if not isinstance(step, Made):
                with out.block(f"for (int i{depth} = 0; i{depth} < {step[0]}; i{depth}++)"):
                    self._steps(step[1], members, depth + 1)
                continue
            skip = len(members[step.operator]) - 1
            moves = "".join(f" + i{k} * {by}" if by != 1 else f" + i{k}" for k, by in enumerate(step.moves) if by)
            for name, calls in self.made[step.operator]:
                self._call(name, calls, step, moves)

    def _call(self, name: str, calls: Calls, step: Made, moves: str) -> None:
        out, rows, threads = self.model.functions, step.stop - step.first, self.model.target.threads
        if calls == "once" or rows == 1:
            out(f"{name}(m, {step.first}{moves});")
        elif self.whole and threads > 1:
            out(f"for (int r = FIRST({rows}); r < STOP({rows}); r++) {name}(m, r);")
        else:
            out(f"for (int r = {step.first}{moves}; r < {step.stop}{moves}; r++) {name}(m, r);")
        if threads > 1 and not (self.shares and step.operator in self.shares.alone):
            out("SYNC();")
