"""A plan as counting C: it follows the steps of every group through a buffer of the plan's size.

Nothing is read from DRAM, or from a second level of memory, or written there but by the loads and stores of
`chip.h`, which count the elements that they move; operators work on what lies in the buffer, as plain loops,
and find every element by looking where it lies. Nothing that counts knows what the plan says is moved. Such
code is there to prove a plan, and slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from codegen.accesses import AccessTables
from codegen.attention import CountedAttention, kept_step, kept_tensor
from codegen.blob import Blob
from codegen.boxes import InFlight, OnBoxes, OnChip
from codegen.layout import COUNTED, CTYPES, MapLayout
from codegen.loops.nest import Array
from codegen.loops.statistics import two_passes
from codegen.loops.table import loops
from codegen.memory import LINE
from codegen.source import Unsupported
from codegen.writer import Writer
from lfopt.ir import (
    Box,
    Carry,
    Compute,
    Graph,
    Loop,
    Node,
    Plan,
    PlannedGroup,
    Step,
    Tensor,
    Transfer,
    box_elements,
    in_line,
    leaves,
    parameter_runs,
    round_up,
    row_axis,
    store_ends,
)
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK
from lfopt.ops import Call, Dataflow, statistics
from lfopt.ops.access import AccessPatterns
from lfopt.ops.attention import form_of, state_shape
from lfopt.ops.recognise import attentions_of
from lfopt.ops.stages import calls_of, parameters
from lfopt.ops.statistics import has_statistics

RANK = 8  # of a tensor, at most
IN_MAPS, IN_WEIGHTS, IN_L2 = range(3)  # memories, as in chip.h
MOST_L2 = 1 << 28  # bytes of a second level that are used


class CountingCode:
    """The C of a plan's groups, and the tables that they go by."""

    def __init__(
        self, plan: Plan, graph: Graph, flow: Dataflow, blob: Blob, dram: Mapping[str, int], maps_bytes: int
    ) -> None:
        """`dram`: where maps lie in memory, in bytes, by name; `maps_bytes`: of all of them."""
        ends = [store_ends(group.places, plan.hardware) for group in plan.groups]
        maps, weights = (
            max((end.get(store, 0) for end in ends), default=0) for store in ("buffer", "weight buffer")
        )
        self.behind = round_up(maps, LINE)  # where a weight buffer begins in the arena
        self.arena = self.behind + weights if weights else maps
        self.maps_bytes = maps_bytes
        self.plan = plan
        self.graph = graph
        self.flow = flow
        self.blob = blob
        self.dram = dram
        self.level_2 = {entry.name: entry for entry in plan.memory if entry.memory == "l2"}
        if self.l2_end > MOST_L2:
            raise Unsupported(
                f"the second level is used up to byte {self.l2_end}; counting C accepts {MOST_L2}"
            )
        self.calls = {
            op.name: (i, call) for i, (op, call) in enumerate(zip(flow.operators, flow.calls, strict=True))
        }
        self.attentions = attentions_of(flow)
        self.kept = {
            one.call.operator.outputs[0]: kept_tensor(one.call) for one in self.attentions.recognised
        }  # of attention, between two blocks of keys
        self.kept |= {  # of normalizations, between two parts
            call.operator.outputs[0]: kept_tensor(call)
            for _, call in self.calls.values()
            if has_statistics(call)
        }
        self.weights = {
            (op.name, w.name)
            for op, constants in zip(flow.operators, flow.weights, strict=True)
            for w in constants
        }
        self.accesses = AccessPatterns.through(graph, plan.read_through)
        self.pieced = AccessTables()
        self.numbers: dict[str, int] = {}  # of tensors in the buffer
        self.tensors: list[str] = []
        self.gathered: set[str] = set()  # constants of which rows are picked in DRAM
        # constant, or map in several places -> pieces that it may be in: (first, how many)
        self.candidates: dict[str, list[tuple[int, int]]] = {}
        self.places: list[str] = []
        self.parameters: dict[str, int] = {}  # operator -> number of its parameters in the table
        self.store = 1  # bytes of parameters that any group holds at once
        self.pieces = 0
        self.rows = 0
        self.operators: dict[tuple[int, str], str] = {}  # (group, operator) -> its C function
        self.functions = Writer()
        self.groups = Writer()
        self.run = ["memset(m->chip, 0, sizeof *m->chip);", "HIDE(m->maps, MAPS);"]  # what runs the groups
        self.spare = 0
        self.flight = 1  # bytes of what any step has in flight at once
        self.needy: set[str] = set()  # operators of the current group that have parameters
        self.loaded: set[str] = set()  # names of what the current group loads: maps, or views of them
        for group in plan.groups:
            self._group(group)
        self.run.append("SHOW(m->maps, MAPS);")

    # -- text ------------------------------------------------------------------------------------------------

    def code(self) -> tuple[str, str]:
        """(C before chip.h, C after it up to the function that runs the network)."""
        hardware = self.plan.hardware
        sizes = {
            "RANK": RANK, "TENSORS": max(len(self.tensors), 1), "PIECES": max(self.pieces, 1),
            "ROWS": max(self.rows, 1), "SPARE": max(self.spare * self.scale, 1), "MAPS": self.maps_bytes,
            "CHANNEL_ALIGN": hardware.channel_align, "SCALE": self.scale,
            "FRAGMENTS": max(len(self.pieced.fragments), 1), "COUNTERS": max(len(self.pieced.counters), 1),
            "PARAMETERS": self.store, "FLIGHT": self.flight, "L2": max(self.l2_bytes, 1),
        }  # fmt: skip
        before = "\n".join(f"#define {name} {value}" for name, value in sizes.items()) + "\n"
        tables = Writer()
        self.pieced.print(tables)
        tables("static const tensor tensors[] = {", *(f"    {row}," for row in self.tensors), "};")
        tables(
            "static const place places[] = {",
            *(f"    {row}," for row in self.places or ["{0, 0, 1}"]),
            "};",
            "",
        )
        return before, "\n".join(
            (tables.text(), self._accessors(), self.functions.text(), self.groups.text())
        )

    @property
    def chip_bytes(self) -> int:
        """Memory for `struct chip`, at the most."""
        tables = 16 * (RANK + 1) * self.pieces + 8 * self.rows + 9 * len(self.tensors)
        return 256 + tables + self.spare * self.scale + self.store + self.flight + self.l2_bytes

    @property
    def l2_bytes(self) -> int:
        """Memory for what lies in the second level."""
        return self.scale * self.l2_end

    @property
    def l2_end(self) -> int:
        """Bytes of the second level of which something is used."""
        return max(
            (entry.address + entry.rows * entry.row_bytes for entry in self.level_2.values()), default=0
        )

    @property
    def scale(self) -> int:
        """Bytes of the buffer here for each that the plan has.

        More than one where elements are larger here than those that the plan reckons with.
        """
        sizes = [
            np.dtype(self.graph.tensors[name].dtype).itemsize
            for name in self.numbers
            if name in self.graph.tensors
        ]
        hardware = self.plan.hardware
        # bits of the smallest element that the plan reckons with
        least = min(
            8 * hardware.element_bytes, *(hardware.constant_bits(bias=bias) for bias in (False, True))
        )
        largest = max(sizes, default=4)
        ratio = -(-8 * largest // least)
        # where blocks begin at any byte, elements still lie as C wants them
        if least % 8 == 0:
            return ratio
        return round_up(ratio, largest)

    def _accessors(self) -> str:
        out = Writer()
        for name, k in self.numbers.items():
            shape, kind, axis = self._facts(name)
            index = [f"i{a}" for a in range(len(shape))]
            constant = name in self.graph.constants
            parameters = ", ".join(("const context *m", *(f"int {i}" for i in index)))
            inside = [
                f"{i} >= p->frame.first[{a}] && {i} < p->frame.stop[{a}]"
                for a, i in enumerate(index)
                if constant or a != axis
            ]
            where = (
                " + ".join(
                    f"({i} - p->frame.first[{a}]) * p->step[{a}]"
                    for a, i in enumerate(index)
                    if constant or a != axis
                )
                or "0"
            )
            row = [] if constant else [f"p->row == {'0' if axis is None else f'i{axis}'}"]
            here = (
                f"if ({' && '.join((f'p->name == {k}', *row, *inside))}) return ({kind} *)(void "
                f"*)p->start + {where};"
            )
            with out.block(f"static inline {kind} *at_{k}({parameters})"):
                if not constant:
                    out(
                        f"const piece *p = m->chip->rows[tensors[{k}].rows + "
                        f"{'0' if axis is None else f'i{axis}'}];"
                    )
                    out(here.replace("if (", "if (p && ", 1))
                for first, count in self.candidates.get(name, []):
                    with out.block(f"for (int k = {first}; k < {first + count}; k++)"):
                        out(f"{'const piece *' if constant else ''}p = &m->chip->pieces[k];")
                        out(here)
                out(f"return missing(m, {k});")
            out("")
            if name in self.gathered:
                steps = [prod(shape[a + 1 :]) for a in range(len(shape))]
                flat = (
                    " + ".join(f"(size_t){i} * {step}" for i, step in zip(index, steps, strict=True)) or "0"
                )
                with out.block(f"static inline {kind} *gathered_{k}({parameters})"):
                    out(
                        f"const tensor *t = &tensors[{k}];",
                        f"{kind} *found = ({kind} *)(void *)memory_of(m, t) + {flat};",
                    )
                    out("m->chip->picked++;", "SHOW(found, sizeof *found);", "return found;")
                out("")
        return out.text()

    # -- tables ----------------------------------------------------------------------------------------------

    def _facts(self, name: str) -> tuple[tuple[int, ...], str, int | None]:
        """Shape, C type and row axis of a tensor in the buffer, or of the partial sums of one."""
        tensor = self._tensor(name)
        if tensor.dtype not in COUNTED or len(tensor.shape) > RANK:
            described = f"{tensor.dtype} {list(tensor.shape)}"
            raise Unsupported(
                f"tensor {tensor.name!r}: found {described}; counting C accepts {', '.join(COUNTED)}, up to "
                f"rank {RANK}"
            )
        kind = self._sum_type(tensor) if name.startswith(SUMS) else tensor.dtype
        return tensor.shape, CTYPES[kind], None if name in self.graph.constants else row_axis(tensor.shape)

    def _tensor(self, name: str) -> Tensor:
        """A tensor in the buffer, or what is held of one before it is complete."""
        summed = name.removeprefix(SUMS)
        if summed != name and summed in self.kept:
            return self.kept[summed]
        return self.graph.tensors[summed]

    def _sum_type(self, tensor: Tensor) -> str:
        """Type of the partial sums of a map."""
        if tensor.quantization:
            return "int32"
        return tensor.dtype

    def _number(self, name: str) -> int:
        """The number of a tensor in the table."""
        if name in self.numbers:
            return self.numbers[name]
        hardware, (shape, kind, axis) = self.plan.hardware, self._facts(name)
        self.numbers[name] = len(self.tensors)
        size = SIZES[kind]
        if name in self.graph.constants:
            value = self.graph.constants[name]
            if value is None:
                raise Unsupported(f"constant {name!r}: the model has no values for it")
            bits = hardware.constant_bits(bias=name in self.flow.biases)
            place = self.blob.place(value, value.dtype.name)
            figures = (-1, -1, bits, hardware.constant_align, 0, IN_WEIGHTS, place)
        else:
            root = self.flow.behind.get(name.removeprefix(SUMS), "")
            bits = 8 * (hardware.accumulator_bytes if name.startswith(SUMS) else hardware.element_bytes)
            channels = CHANNEL_AXIS_OF_RANK.get(len(shape))
            there = self.level_2.get(root)
            if there is None:
                where = (IN_MAPS, self.dram.get(root, 0))
            else:
                where = (IN_L2, f"{there.address} * SCALE")
            figures = (
                -1 if axis is None else axis,
                -1 if channels is None else channels,
                bits,
                hardware.dram_row_align,
                self.rows,
                *where,
            )
            self.rows += 1 if axis is None else shape[axis]
        axis_, channels_, bits, align, rows, memory, at = figures
        position = len(self.tensors)
        self.tensors.append("")  # before those that it is read from
        fragments, count = self.pieced.add(self.accesses.known.get(name, ()), self._number)
        extents = ", ".join(map(str, shape)) or "1"
        self.tensors[position] = (
            f"{{{len(shape)}, {axis_}, {channels_}, {{{extents}}}, {size}, {bits}, {align}, {rows}, "
            f"{memory}, {at}, {fragments}, {count}}}"
        )
        return self.numbers[name]

    # -- groups ----------------------------------------------------------------------------------------------

    def _group(self, group: PlannedGroup) -> None:
        if group.is_access:  # its readers find what it makes
            return
        if not group.steps:
            raise Unsupported(f"group {group.id}: it has no steps: {group.unexecutable}")
        self.spare = max([self.spare, *(place.slot_bytes for place in group.places)])
        first_place = len(self.places)
        steps = [*leaves(group.steps)]
        self.loaded = {node.tensor for node in steps if isinstance(node, Transfer) and not node.store}
        self.summing = {
            n.operator
            for n in steps
            if isinstance(n, Compute) and (n.inputs is not None or not (n.first and n.last))
        }
        self.boxes: dict[str, int] = {}  # by operator with others in flight: elements of its largest box
        for node in steps:
            if isinstance(node, Compute) and node.then:
                self.boxes[node.operator] = max(self.boxes.get(node.operator, 0), box_elements(node.boxes[0]))
        places = in_line(group.places, self.plan.hardware, self.behind)
        self.places += [f"{{{place.address}, {place.slot_bytes}, {place.slots}}}" for place in places]
        pieces: dict[tuple[str, int], int] = {}  # (tensor, place) -> first of its pieces

        def base(name: str, place: int) -> int:
            if (name, place) not in pieces:
                pieces[name, place] = self.pieces
                self.pieces += group.places[place].slots
            return pieces[name, place]

        def walk(nodes: Sequence[Node], depth: int) -> None:
            for node in nodes:
                if isinstance(node, Loop):
                    with self.groups.block(f"for (int l{depth} = 0; l{depth} < {node.count}; l{depth}++)"):
                        walk(node.body, depth + 1)
                elif isinstance(node, Transfer) and node.kind == "parameter":
                    if id(node) in renewing:
                        self.groups("forget_parameters(m);")
                    self._load_parameters(node)
                elif isinstance(node, Transfer):
                    self._transfer(group, node, first_place, base(node.tensor, node.place))
                elif isinstance(node, Carry):
                    self._carry(node, first_place, base)
                else:
                    self._compute(group, node, first_place, base)

        sizes = self._parameters(group)
        self.needy = set(sizes)
        runs = [*parameter_runs(group.steps)]
        self.store = max([self.store, *(sum(node.bytes for node in run) for run in runs)])
        renewing = {id(run[0]) for run in runs[1:]}  # the store is empty at first
        with self.groups.block(f"static void group_{group.id}(const context *m)"):
            walk(group.steps, 0)
        times = Counter(name for name, _ in pieces)
        for (name, place), first in pieces.items():
            if name in self.graph.constants or times[name] > 1:  # else it is where its rows came last
                # of a constant the newest place comes first: an older one may have been overwritten
                here = self.candidates.setdefault(name, [])
                here.insert(
                    0 if name in self.graph.constants else len(here), (first, group.places[place].slots)
                )
        self.groups("")
        self.run += ["forget(m);", f"group_{group.id}(m);"]

    def _parameters(self, group: PlannedGroup) -> dict[str, int]:
        """Bytes of the parameters of a group's operators, which then have numbers."""
        hardware = self.plan.hardware
        sizes = dict[str, int]()
        if not hardware.parameter_store_bytes:
            return sizes
        for call in calls_of(
            group.nodes, group.steps, {name: call for name, (_, call) in self.calls.items()}
        ).values():
            for operator, blocks in parameters(call, hardware.parameter_channels).items():
                packed = np.concatenate(blocks)
                sizes[operator] = packed.size
                self.parameters[operator] = len(self.tensors)
                # one byte more, so that no kernel's table is held as these bytes
                place = self.blob.place(np.append(packed, packed[-1:]), "uint8")
                self.tensors.append(f"{{1, -1, -1, {{{packed.size}}}, 1, 8, 1, 0, 1, {place}, 0, 0}}")
        return sizes

    def _load_parameters(self, node: Transfer) -> None:
        if node.tensor not in self.needy:
            raise Unsupported(
                f"parameters of {node.tensor!r}: the group has no such operator, or it has none"
            )
        ((first, stop),) = node.box
        self.groups(
            f"load_parameters(m, {self.parameters[node.tensor]}, {node.kind.upper()}, {first}, {stop});"
        )

    def _transfer(self, group: PlannedGroup, node: Transfer, first_place: int, base: int) -> None:
        k = self._number(node.tensor)
        where = f"&places[{first_place + node.place}]"
        slot = _moved(node, len(node.box), node.slot)
        box = _box(node, node.box, 0)
        kind = node.kind.upper()
        if node.gather:
            name = self._function(group, node.gather, gathers=True)
            self._need(node.gather)
            _, call = self.calls[node.gather]
            source = call.operator.inputs[0]
            picked_axis = call.attribute("axis", 0) % len(call.shape(0))
            # elements side by side in DRAM
            run = max(node.box[-1][1] - node.box[-1][0], 1) if picked_axis < len(call.shape(0)) - 1 else 1
            self.groups(f"claim(m, {k}, {box}, {where}, {slot}, {base});", f"{name}(m, {box});")
            self.groups(f"count_picked(m, {self._number(source)}, {kind}, {run});")
        elif node.tensor in self.graph.constants:
            self.groups(f"load_block(m, {k}, {kind}, {box}, {where}, {slot}, {node.offset}, {base});")
        else:
            kind = ("L2_WRITTEN" if node.store else "L2_READ") if node.kind == "l2" else kind
            self.groups(f"move_map(m, {int(node.store)}, {k}, {kind}, {box}, {where}, {slot}, {base});")

    def _carry(self, node: Carry, first_place: int, base: Callable[[str, int], int]) -> None:
        """Copy a box of a map within the buffer, from whatever pieces of the group hold it."""
        where = f"&places[{first_place + node.place}]"
        slot = _moved(node, len(node.box), node.slot)
        box = _box(node, node.box, 0)
        first = base(node.tensor, node.place)
        self.groups(f"carry(m, {self._number(node.tensor)}, {box}, {where}, {slot}, {first});")

    def _claim(
        self,
        name: str,
        where: int,
        node: Compute,
        box: Box,
        used: int,
        first_place: int,
        base: Callable[[str, int], int],
    ) -> None:
        """Make room for a box of a tensor, whose starts come after `used` others, in a place; -1: nowhere."""
        axis = row_axis(self._tensor(name).shape)
        number = "0" if axis is None else _moved(node, used + axis, box[axis][0])
        if where >= 0:
            self.groups(
                f"claim(m, {self._number(name)}, {_box(node, box, used)}, &places[{first_place + where}], "
                f"{number}, {base(name, where)});"
            )
        else:
            self.groups(f"unwanted(m, {self._number(name)});")

    def _attend(
        self,
        group: PlannedGroup,
        node: Compute,
        call: Call,
        first_place: int,
        base: Callable[[str, int], int],
    ) -> None:
        """A step of an attention."""
        then = node.then[len(call.parts) - 1 :]
        (result,) = call.operator.outputs
        kept = kept_step(call, node)
        held = f"{SUMS}{result}"
        state = _box(kept, kept.boxes[0], 0)
        text = _box(node, node.boxes[0], 0)
        complete = self._results(then[-1])[0] if then else result
        target, where, source = (
            (complete, node.places[0], node) if node.last else (held, node.accumulator, kept)
        )
        self._claim(target, where, source, source.boxes[0], 0, first_place, base)
        part = _part(node, len(node.boxes[0]), form_of(call).keys)
        name = self._attention(group, call, then)
        self.groups(f"{name}({', '.join(('m', text, state, *part))});")

    def _attention(self, group: PlannedGroup, call: Call, then: tuple[str, ...]) -> str:
        """The C function of an attention in a group, and of what follows it in flight."""
        if (group.id, call.operator.name) in self.operators:
            return self.operators[group.id, call.operator.name]
        (result,) = call.operator.outputs
        self.operators[group.id, call.operator.name] = name = (
            f"operator_{group.id}_{self.calls[call.operator.name][0]}"
        )
        if then:
            flying = self._flying((call.parts[-1].operator.name, *then[:-1]), self.boxes[call.operator.name])
        else:
            flying = {}
        inputs = call.operator.inputs
        blob = self.blob

        def outside(k: int) -> Array:
            value = call.values[k]
            tensor = call.tensors[k]
            if call.constant[k] and value is not None and value.size == 1 and tensor is not None:
                pointer = f"(({CTYPES[tensor.dtype]} *)(void *){blob.add(value, tensor.dtype)})"
                return Array(MapLayout(tensor, tuple(range(value.ndim))), value.shape, pointer)
            return self._array(inputs[k], call.shape(k))

        inner = f"{name}_attention" if then else name
        kept = self._array(f"{SUMS}{result}", state_shape(call))
        CountedAttention(self.functions, call, self.graph, blob, inner, outside, kept).write(
            flying.get(result) or self._array(result, call.result)
        )
        if then:
            out = self.functions
            with out.block(
                f"static void {name}(const context *m, const box *b0, const box *s, int from, int to, int "
                "first, int last)"
            ):
                out(f"{inner}(m, b0, s, from, to, first, last);", "if (!last) return;")
                self._following(then, flying)
            out("")
        return name

    def _following(self, then: Sequence[str], flying: Mapping[str, Array]) -> None:
        """The loops of what follows in flight."""
        for after in then:
            with self.functions.block(""):
                self.functions.comment(after)
                loops(
                    OnBoxes(
                        self.functions,
                        self.calls[after][1],
                        self._operands(after, flying),
                        self._arrays(after, flying),
                        self.blob,
                        None,
                    )
                )

    def _compute(
        self, group: PlannedGroup, node: Compute, first_place: int, base: Callable[[str, int], int]
    ) -> None:
        attention, _ = self.attentions.named(node)
        if attention is not None:
            self._attend(group, node, attention.call, first_place, base)
            return
        names = self._results(node.then[-1] if node.then else node.operator)
        boxes: list[str] = []
        used = 0
        for name, box, place in zip(names, node.boxes, node.places, strict=True):
            boxes.append(_box(node, box, used))
            held, where = (
                (name, place) if node.last else (f"{SUMS}{self._results(node.operator)[0]}", node.accumulator)
            )
            if held in self.graph.tensors or held.removeprefix(SUMS) not in self.kept:
                self._claim(held, where, node, box, used, first_place, base)
            else:
                kept = kept_step(self.calls[node.operator][1], node)
                self._claim(held, where, kept, kept.boxes[0], 0, first_place, base)
            used += len(box)
        for operator in (node.operator, *node.then):
            self._need(operator)
        part = _part(node, used, 1 << 30) if node.operator in self.summing else ()
        self.groups(f"{self._function(group, node.operator, node.then)}({', '.join(('m', *boxes, *part))});")

    def _results(self, operator: str) -> list[str]:
        i, _ = self.calls[operator]
        return [self.flow.maps[m].name for m in self.flow.results[i]]

    def _need(self, operator: str) -> None:
        if operator in self.needy:
            self.groups(f"needs_parameters(m, {self.parameters[operator]});")

    def _function(
        self, group: PlannedGroup, operator: str, then: tuple[str, ...] = (), *, gathers: bool = False
    ) -> str:
        """The C function of an operator in a group, and of those that follow it in flight."""
        if (group.id, operator) in self.operators:
            return self.operators[group.id, operator]
        i, call = self.calls[operator]
        flying = self._flying((operator, *then[:-1]), self.boxes[operator]) if then else {}
        operands = self._operands(operator, flying)
        if gathers:
            self.gathered.add(call.operator.inputs[0])
            operands[0] = replace(operands[0], pointer=operands[0].pointer.replace("at_", "gathered_"))
        results = self._arrays(operator, flying)
        self.operators[group.id, operator] = name = f"operator_{group.id}_{i}"
        out = self.functions
        out.comment(operator)
        boxes = "".join(f", const box *b{k}" for k in range(len(results)))
        summing = operator in self.summing
        shape = statistics.state_shape(call) if has_statistics(call) else call.result
        if summing:
            sums = self._array(f"{SUMS}{self.flow.maps[self.flow.results[i][0]].name}", shape)
        else:
            sums = None
        with out.block(
            f"static void {name}(const context "
            f"*m{boxes}{', int from, int to, int first, int last' if sums else ''})"
        ):
            out("".join(f"(void)b{k}; " for k in range(len(results))).strip())
            nest = OnBoxes(out, call, operands, results, self.blob, sums)
            if sums and has_statistics(call):
                two_passes(nest, sums)
            else:
                loops(nest)
            if then and sums:
                out("if (!last) return;")
            self._following(then, flying)
        out("")
        return name

    def _flying(self, operators: Sequence[str], elements: int) -> dict[str, Array]:
        """Arrays of results in flight, each in memory of its own.

        `elements`: of the largest box.
        """
        in_flight: dict[str, Array] = {}
        size = 8 * elements
        for k, operator in enumerate(operators):
            (name,) = self._results(operator)
            self._facts(name)  # raises Unsupported
            tensor = self.graph.tensors[name]
            in_flight[name] = InFlight(
                MapLayout(tensor, tuple(range(len(tensor.shape)))),
                tensor.shape,
                f"(m->chip->flight + {k * size})",
            )
        self.flight = max(self.flight, len(operators) * size)
        return in_flight

    def _operands(self, operator: str, flying: Mapping[str, Array]) -> dict[int, Array]:
        """Arrays of an operator's operands by input: maps and weights."""
        i, call = self.calls[operator]
        operands: dict[int, Array] = {}
        for operand in self.flow.operands[i]:
            seen = call.operator.inputs[operand.input]
            behind = self.flow.maps[operand.map].name
            held = seen if seen in self.loaded else behind
            operands[operand.input] = flying.get(seen) or self._array(held, call.shape(operand.input))
        for index, name in enumerate(call.operator.inputs):
            if (operator, name) in self.weights and call.constant[index]:
                operands[index] = self._array(name, call.shape(index))
        return operands

    def _arrays(self, operator: str, flying: Mapping[str, Array]) -> list[Array]:
        """Arrays of an operator's results."""
        return [
            flying.get(name) or self._array(name, self.graph.shape(name)) for name in self._results(operator)
        ]

    def _array(self, name: str, shape: tuple[int, ...]) -> Array:
        k = self._number(name)
        tensor = self._tensor(name)
        if name.startswith(SUMS):
            tensor = Tensor(name, tensor.shape, self._sum_type(tensor))
        return OnChip(MapLayout(tensor, tuple(range(len(tensor.shape)))), shape, f"at_{k}")


SUMS = "sums of "  # before the name of a map: what is held of it before it is complete
SIZES = {
    "float": 4,
    "double": 8,
    **{f"{sign}int{bits}_t": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def _moved(node: Step, axis: int, start: int) -> str:
    """C expression for one of the starts of a step, inside its loops."""
    moves = [f"l{k} * {by[axis]}" for k, by in enumerate(node.strides) if by[axis]]
    return " + ".join((str(start), *moves))


def _part(node: Compute, used: int, most: int) -> tuple[str, str, str, str]:
    """C expressions `from`, `to`, `first` and `last`: the part, of `most`, that a step folds."""
    start, stop = (_moved(node, used, end) for end in node.inputs) if node.inputs else ("0", str(most))
    return start, stop, str(int(node.first)), str(int(node.last))


def _box(node: Step, box: Box, used: int) -> str:
    """C expression for a box of a step whose starts come after `used` others."""
    first = ", ".join(_moved(node, used + a, start) for a, (start, _) in enumerate(box))
    stop = ", ".join(_moved(node, used + a, stop) for a, (_, stop) in enumerate(box))
    return f"&(const box){{{{{first or '0'}}}, {{{stop or '1'}}}}}"
