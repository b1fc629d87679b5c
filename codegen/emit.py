"""A plan as C: one function per fusion group, which runs row by row over its rings.

A group in mode lbdf follows the plan's loops, with the plan's rings in the arena. Maps that it loads or stores are read and written where they lie
between groups: on a CPU the cache moves them. Groups in other modes run operator by operator on whole maps. With several threads, all of them run the
same code, each makes its share of every row (or its share of the rows), and they wait for one another after every operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal

import numpy as np

from codegen.blob import Blob, digest
from codegen.counted import Counted
from codegen.kernels.heads import is_pointwise, kernel, winograd_tile
from codegen.kernels.quantized import quantized
from codegen.kernels.simple import elementwise
from codegen.kernels.unit import Unit
from codegen.layout import Layout, layouts
from codegen.loops.nest import Array, Nest
from codegen.loops.table import loops
from codegen.source import CSource, Unsupported
from codegen.tails import Tail, in_step, is_elementwise, tail
from codegen.target import Target, target
from codegen.units import Body, Made, body, chained, sequences, units
from codegen.writer import Writer
from lfopt.ir import Graph, Place, Plan, PlannedGroup
from lfopt.ops import Dataflow, bits

LINE = 64  # bytes of a cache line
HEAD = 2 * LINE  # bytes before the maps of a context
UNROLLED = 4  # channels of a graph's input or output that are copied pixel by pixel
MOST_THREADS = 64
UNREAD = Place("", "map", 0, 1, 0)  # the ring of a map that nobody makes, as all windows over it hold nothing but padding


def emit_c(
    plan: Plan,
    graph: Graph,
    name: str = "native",
    *,
    threads: int = 1,
    embed: bool = False,
    count: bool = False,
    profile: bool = False,
    winograd: int = 4,
) -> CSource:
    """The plan of this graph as C for a target. Raises Unsupported where nothing can print an operator, a type or a shape.

    `embed`: weights become a C array, to be linked in, in place of a file. `count`: code that follows every step of the plan and counts the bytes
    that it moves (see `codegen.counted`). `profile`: code that takes the time of each group. `winograd`: the largest tiles of Winograd's algorithm,
    4 or 2; 0: every convolution is direct.
    """
    _check(plan, graph, threads, count=count)
    return _Model(plan, graph, replace(target(name), threads=threads, winograd=winograd), embed, count, profile).source()


def better_whole(flow: Dataflow, name: str = "native", winograd: int = 4) -> int:
    """The mask of operators that had better make whole maps than rows that pass through rings: convolutions by Winograd's algorithm.

    Raises Unsupported for types that generated code does not hold.
    """
    chosen, lie, found = replace(target(name), winograd=winograd), layouts(flow), 0
    for i, (call, operands, results) in enumerate(zip(flow.calls, flow.operands, flow.results, strict=True)):
        if operands and all(lie[m].in_pixels and lie[m].tensor.dtype == "float32" for m in (operands[0].map, results[0])):
            found |= (winograd_tile(call, lie[operands[0].map].image, lie[results[0]].image, chosen) > 0) << i
    return found


def _check(plan: Plan, graph: Graph, threads: int, *, count: bool) -> None:
    """Raise Unsupported for options and plans that no code is printed for."""
    most = 1 if count else MOST_THREADS
    if not 1 <= threads <= most:
        raise Unsupported(f"threads: found {threads}; generated C that {'counts' if count else 'does not count'} accepts 1 to {most}")
    if count:
        return
    if (found := plan.hardware.element_bytes) != (1 if graph.quantized else 4):
        accepted = "of quantised networks for int8, element_bytes 1" if graph.quantized else "for float32, element_bytes 4"
        raise Unsupported(f"hardware.element_bytes: found {found}; generated C accepts plans {accepted}")
    if plan.hardware.channel_align != 1:
        raise Unsupported(f"hardware.channel_align: found {plan.hardware.channel_align}; generated C accepts 1: its channels are not padded")


@dataclass
class _Model:
    plan: Plan
    graph: Graph
    target: Target
    embed: bool
    count: bool
    profile: bool

    def __post_init__(self) -> None:
        self.flow = flow = Dataflow.of(self.graph)
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.layouts = (
            layouts(flow, self._without_rings()) if not self.count else [Layout(tensor, tuple(range(len(tensor.shape)))) for tensor in flow.maps]
        )
        self.blob = Blob()
        self.functions = Writer()
        self.run = Writer(1)  # what runs the network
        self.name = identifier(self.plan.model.name)
        self.maps: dict[int, int] = {}  # map between groups -> floats from the start of the context's maps
        self.size = 0  # floats
        self.scratch = 0  # floats of each thread
        self.arena = max((group.buffer_bytes for group in self.plan.groups), default=0)
        self.loops: dict[str, str] = {}  # operators that no fast kernel knows, and why
        numbers = {m.name: k for k, m in enumerate(flow.maps)}
        self.root = {name: numbers[behind] for name, behind in flow.behind.items()}

    def source(self) -> CSource:
        between = self._between() if not self.count else set(range(len(self.flow.maps)))
        self._lay_out(between)
        self.counted = Counted(self.plan, self.graph, self.flow, self.blob, self._dram(), 4 * self.size) if self.count else None
        for k, name in enumerate(self.graph.inputs):
            if (m := self.root[name]) in self.maps:
                self._border(m, f"inputs[{k}]", inward=True)
        self._sync()
        if self.counted:
            self.run.all(self.counted.run)
        for group in self.plan.groups if not self.counted else ():
            _Group(self, group, between).emit()
        for k, name in enumerate(self.graph.outputs):
            if name in self.root:
                self._border(self.root[name], f"outputs[{k}]", inward=False)
            else:
                self._constant_output(k, name)
        weights = self.blob.bytes()
        found = {"model.c": self._code(weights).encode(), "model.h": header(self.name, count=self.count, profile=self.profile).encode()}
        found |= {"weights.c": _embedded(self.name, weights)} if self.embed else {"weights.bin": weights}
        return CSource(self.name, self.target.name, self._flags(), found, self.arena, self._context_bytes, self.loops)

    def _flags(self) -> tuple[str, ...]:
        return (*self.target.flags, "-pthread") if self.target.threads > 1 else self.target.flags

    def _sync(self) -> None:
        if self.target.threads > 1:
            self.run("SYNC();")

    # -- memory ------------------------------------------------------------------------------------------------------------------------------

    def _between(self) -> set[int]:
        """Maps that lie in memory as a whole: inputs, outputs, what one group leaves to another, everything in groups without rings, and maps whose
        elements are larger than those that the plan's rings are for.
        """
        flow, found = self.flow, {m for m, producer in enumerate(self.flow.producer) if producer < 0}
        for group in self.plan.groups:
            mask = self.mask(group)
            for i in bits(mask):
                wide = {m for m in flow.results[i] if np.dtype(flow.maps[m].dtype).itemsize != self.plan.hardware.element_bytes}
                found |= wide | {m for m in flow.results[i] if group.mode != "lbdf" or flow.is_output[m] or flow.readers[m] & ~mask}
        return found

    def marks(self) -> tuple[tuple[int, int], int, int]:
        """How much is printed, for `forget`."""
        return self.blob.mark(), self.functions.mark(), self.scratch

    def forget(self, marks: tuple[tuple[int, int], int, int]) -> None:
        """Drop the functions that came since, and what they need."""
        blob, functions, self.scratch = marks
        self.blob.forget(blob)
        self.functions.forget(functions)

    def note_scratch(self, floats: int) -> None:
        """Let every thread have at least so much."""
        self.scratch = max(self.scratch, floats)

    def _dram(self) -> dict[str, int]:
        """Where maps lie, in bytes."""
        return {self.flow.maps[m].name: 4 * start for m, start in self.maps.items()}

    def _without_rings(self) -> set[int]:
        """Maps that only operators on whole maps make and read."""
        flow = self.flow
        ringed = sum(self.mask(group) for group in self.plan.groups if group.mode == "lbdf")
        return {m for m, producer in enumerate(flow.producer) if producer >= 0 and not (ringed >> producer & 1 or flow.readers[m] & ringed)}

    def mask(self, group: PlannedGroup) -> int:
        return sum(1 << self.index[node] for node in group.nodes)

    def _lay_out(self, between: set[int]) -> None:
        """Place the maps, first fit, each from the group that makes it to the last that reads it."""
        flow = self.flow
        owner = {i: g for g, group in enumerate(self.plan.groups) for i in bits(self.mask(group))}
        last = len(self.plan.groups)
        lives: list[tuple[int, int, int]] = []
        for m in sorted(between):
            born = owner[flow.producer[m]] if flow.producer[m] >= 0 else -1
            dies = last if flow.is_output[m] or self.count else max([born, *(owner[i] for i in bits(flow.readers[m]))])
            lives.append((born, dies, m))
        placed: list[tuple[int, int, int, int]] = []  # (start, stop, born, dies)
        for born, dies, m in sorted(lives, key=lambda life: (-self._lines(life[2]), life)):
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
        tensor = self.flow.maps[m]
        return -(-tensor.elements * np.dtype(tensor.dtype).itemsize // LINE)

    def where(self, m: int) -> str:
        """Address of a map between groups."""
        kind = self.layouts[m].ctype
        return f"m->maps + {self.maps[m]}" if kind == "float" else f"({kind} *)(void *)(m->maps + {self.maps[m]})"

    def _border(self, m: int, there: str, *, inward: bool) -> None:
        """Copy a graph input or output, which lies inside as its layout says and outside as ONNX has it."""
        layout, out, kind = self.layouts[m], self.run, self.layouts[m].ctype
        inside, outside = (f"{kind} *inside", f"const {kind} *outside") if inward else (f"const {kind} *inside", f"{kind} *outside")
        if layout.onnx:
            first, stop = f"(size_t)FIRST({layout.tensor.elements})", f"(size_t)STOP({layout.tensor.elements})"
            with out.block(""):
                out(f"{inside} = {self.where(m)};", f"{outside} = {there};", f"const size_t first = {first}, stop = {stop};")
                to, source = ("inside", "outside") if inward else ("outside", "inside")
                out(f"memcpy({to} + first, {source} + first, (stop - first) * sizeof *inside);")
            return
        with out.block(""):
            out(f"{inside} = {self.where(m)};", f"{outside} = {there};")
            moves = layout.sequence
            unrolled = moves[-1][0] if moves[-1][0] <= UNROLLED else 1
            nest = moves[:-1] if unrolled > 1 else moves
            if inward or unrolled > 1 or len(nest) < 2:
                order = list(range(len(nest)))
            else:
                order = [len(nest) - 1, *range(len(nest) - 1)]  # what is written lies side by side
            self._moves(moves, order, unrolled, inward=inward)

    def _moves(self, moves: Sequence[tuple[int, int]], order: Sequence[int], unrolled: int, *, inward: bool) -> None:
        out, steps = self.run, [1] * len(moves)
        for k in reversed(range(len(moves) - 1)):
            steps[k] = steps[k + 1] * moves[k + 1][0]
        here = " + ".join(f"(size_t)i{k} * {steps[k]}" for k in sorted(order))
        away = " + ".join(f"(size_t)i{k} * {moves[k][1]}" for k in sorted(order))
        lines: list[str] = []
        for c in range(unrolled):
            inside, outside = f"inside[{here} + {c}]", f"outside[{away} + {c * moves[-1][1]}]"
            lines.append(f"{inside} = {outside};" if inward else f"{outside} = {inside};")
        for depth, k in enumerate(order):
            first, stop = ("0", str(moves[k][0])) if depth else (f"FIRST({moves[k][0]})", f"STOP({moves[k][0]})")
            out(f"{'    ' * depth}for (int i{k} = {first}; i{k} < {stop}; i{k}++)" + (" {" if depth == len(order) - 1 else ""))
        out.all(f"{'    ' * len(order)}{line}" for line in lines)
        out(f"{'    ' * (len(order) - 1)}}}")

    def _constant_output(self, k: int, name: str) -> None:
        value = self.graph.constants[name]
        if value is None or not value.dtype.isnative or value.dtype.kind not in "biuf":
            raise Unsupported(f"graph output {name!r}: found a constant without values, or of type {self.graph.tensors[name].dtype}")
        self.run(f"if (m->me == 0) memcpy(outputs[{k}], {self.blob.add(value, value.dtype.name)}, {value.nbytes});")

    # -- text --------------------------------------------------------------------------------------------------------------------------------

    def _code(self, weights: bytes) -> str:
        name, head = self.name, Writer()
        head(f"/* {self.plan.model.name}: {len(self.flow)} operators in {len(self.plan.groups)} fusion groups, for {self.target.name}. */")
        if self.target.threads > 1 or self.profile:
            head("#define _GNU_SOURCE /* POSIX, and the affinity of threads */")
        if self.profile:
            head("#define PROFILE 1")
        head('#include "model.h"', "", f"#define LANES {self.target.lanes[0]}", f"#define THREADS {self.target.threads}")
        before, after = self.counted.code() if self.counted else ("", "")
        head.all(_template("prelude.h").splitlines())
        if self.graph.quantized:
            head.all(_template("integer.h").splitlines())
            head.all(_template("dots.h").splitlines() if self.target.dots else ())
        head("", f"#define SCRATCH {self._scratch_lines * LINE // 4} /* floats of each thread */")
        head("", f"struct {name}_context {{", "    context shared;", "    uint64_t *before, *after; /* canaries beside the arena */", "};", "")
        network = Writer()
        with network.block("static void network(const context *m, const void *const *inputs, void *const *outputs)"):
            network("(void)inputs, (void)outputs;")
            network.all(self.run.text().splitlines())
        run = re.sub(r"NAME(?=_)", name, _template("run.c"))
        chip = (before, _template("chip.h"), after) if self.counted else ()
        return "\n".join((head.text(), *chip, self.functions.text(), self._tensors(), network.text(), run, self._start(weights)))

    def _tensors(self) -> str:
        out = Writer()
        for role, names in (("input", self.graph.inputs), ("output", self.graph.outputs)):
            for k, name in enumerate(names):
                shape = self.graph.shape(name)
                out(f"static const int64_t {role}_{k}[] = {{{', '.join(map(str, shape)) or '1'}}};")
            out(f"const int {self.name}_{role}_count = {len(names)};")
            with out.block(f"const {self.name}_tensor {self.name}_{role}s[] ="):
                for k, name in enumerate(names):
                    tensor = self.graph.tensors[name]
                    size = tensor.elements * np.dtype(tensor.dtype).itemsize
                    out(f'{{{quoted(name)}, "{tensor.dtype}", {len(tensor.shape)}, {role}_{k}, {size}}},')
        return re.sub(r"^}$", "};", out.text(), flags=re.MULTILINE)

    @property
    def _arena_lines(self) -> int:
        return -(-self.arena * (self.counted.scale if self.counted else 1) // LINE)

    @property
    def _scratch_lines(self) -> int:
        """Of one thread."""
        return -(-(self.counted.chip_bytes if self.counted else 4 * self.scratch) // LINE)

    @property
    def _context_bytes(self) -> int:
        lines = 2 + self._arena_lines + self._scratch_lines * self.target.threads + self._time_lines
        return HEAD + 4 * self.size + lines * LINE

    @property
    def _time_lines(self) -> int:
        return -(-8 * len(self.plan.groups) // LINE) if self.profile else 0

    def _start(self, weights: bytes) -> str:
        """The functions that say how much memory there has to be, and the one that prepares it."""
        name, out = self.name, Writer()
        before = HEAD + 4 * self.size
        after = before + LINE + self._arena_lines * LINE
        if self.embed:
            out(f"extern const uint64_t {name}_weights[];", "")
        out(f"size_t {name}_context_bytes(void) {{ return {self._context_bytes}; }}")
        out(f"size_t {name}_arena_bytes(void) {{ return {self.arena}; }}")
        out(f"size_t {name}_weights_bytes(void) {{ return {0 if self.embed else len(weights)}; }}")
        out(f"uint64_t {name}_weights_hash(void) {{ return UINT64_C({digest(weights)}); }}", "")
        with out.block(f"int {name}_init({name}_context *m, const void *weights)"):
            if self.embed:
                out("if (weights) return 1;", f"weights = {name}_weights;")
            else:
                out(f"if (hash_of(weights, {len(weights) // 8}) != {name}_weights_hash()) return 1;")
            out("char *memory = (char *)m;", "context *shared = &m->shared;", "memset(m, 0, sizeof *m);", "shared->weights = weights;")
            out(f"shared->maps = (float *)(void *)(memory + {HEAD});", f"m->before = (uint64_t *)(void *)(memory + {before});")
            out(f"shared->arena = (float *)(void *)(memory + {before + LINE});", f"m->after = (uint64_t *)(void *)(memory + {after});")
            out(f"shared->scratch = (float *)(void *)(memory + {after + LINE});")
            if self.counted:
                out("shared->chip = (struct chip *)(void *)shared->scratch;")
            if self.profile:
                out(f"shared->times = (double *)(void *)(memory + {self._context_bytes - LINE * self._time_lines});")
            out("*m->before = *m->after = CANARY;", "return 0;")
        if self.counted:
            out("", f"uint64_t {name}_dram_bytes(const {name}_context *m, int kind) {{ return m->shared.chip->bytes[kind]; }}")
            out("", "typedef char chip_fits[sizeof(struct chip) <= 4 * SCRATCH ? 1 : -1];")
        if self.profile:
            out("", f"double {name}_group_seconds(const {name}_context *m, int group) {{ return m->shared.times[group]; }}")
        return out.text()


Calls = Literal["once", "rows"]  # a function makes all that its operator makes, or one row


@dataclass
class _Group:
    model: _Model
    group: PlannedGroup
    between: set[int]

    def __post_init__(self) -> None:
        self.whole = True  # whether operators make whole maps, one after the other: not where rows pass through rings from one to the next
        self.rings = {place.name: place for place in self.group.places}
        self.made: dict[int, list[tuple[str, Calls]]] = {}  # functions of each unit

    def emit(self) -> None:
        """The kernels of the group, its function, and the call of it."""
        model, group = self.model, self.group
        flow, mask = model.flow, model.mask(group)
        steps: Body = [Made(i, 0, flow.heights[i], ()) for i in chained(flow, mask)]
        found = units(flow, model.layouts, mask, sequences(steps), whole=True)
        self.whole = group.mode != "lbdf" or len(found) == 1
        marks = model.marks()
        self.made = {head: self._unit(operators) for head, operators in found.items()} if self.whole else {}
        if group.mode == "lbdf" and any(len(functions) != 1 for functions in self.made.values()):  # maps between them lie in rings
            model.forget(marks)
            self.whole = False
        if not self.whole:
            steps = body(flow, model.index, group.steps)
            found = units(flow, model.layouts, mask, sequences(steps), whole=False)
            self.made = {head: self._unit(operators) for head, operators in found.items()}
        name = f"group_{group.id}"
        with model.functions.block(f"static void {name}(const context *m)"):
            self._steps(steps, found, 0)
        model.functions("")
        model.run(f"TIMED({group.id}, {name}(m));" if model.profile else f"{name}(m);")

    # -- functions ---------------------------------------------------------------------------------------------------------------------------

    def _unit(self, operators: tuple[int, ...]) -> list[tuple[str, Calls]]:
        """The functions of a unit: one, or, where no kernel knows its head, loops for that and what can be done for the rest."""
        model, (head, *rest) = self.model, operators
        names = ", ".join(model.flow.operators[i].name for i in operators).replace("*/", "* /")
        marks = model.marks()
        model.functions(f"/* {names} */")
        try:
            quantized = model.flow.calls[head].result_tensors[0].quantization is not None
            return [self._quantized(head) if quantized else self._kernel(operators)]
        except Unsupported as reason:
            model.forget(marks)
            found = [self._loops(head, str(reason))]
            return found + self._unit(tuple(rest)) if rest else found

    def _kernel(self, operators: tuple[int, ...]) -> tuple[str, Calls]:
        """A fast kernel. Raises Unsupported."""
        model, flow, head = self.model, self.model.flow, operators[0]
        result, made = flow.results[operators[-1]][0], model.layouts[flow.results[head][0]]
        alone = is_elementwise(flow, head)
        flat = self.whole and (alone or is_pointwise(flow.calls[head]))
        seen = self._seen(head)

        def lies(m: int) -> Layout:
            return made if m == result else seen.get(m, model.layouts[m])

        start = self._start(head) if alone else flow.results[head][0]
        after = tail(flow, model.layouts, operators if alone else operators[1:], start, made, model.blob, whole=self.whole)
        read = flow.operands[head][:1]
        by_tiles = self.whole and made.in_pixels and bool(read) and model.layouts[read[0].map].in_pixels
        tile = winograd_tile(flow.calls[head], model.layouts[read[0].map].image, made.image, model.target) if by_tiles else 0
        once = flat or tile > 0 or made.image.rows == 1
        unit = replace(self._unit_of(head, after, result, lies, flat=flat, shared=once or not self.whole), tile=tile)
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
        rows = 1 if flat else lies(result).extents.rows
        shared = flat or not self.whole or rows == 1
        unit = self._unit_of(i, Tail((), (), ()), result, lies, flat=flat, shared=shared)
        quantized(model.functions, unit)
        return unit.name, "once" if rows == 1 else "rows"

    def _unit_of(self, head: int, after: Tail, result: int, lies: Callable[[int], Layout], *, flat: bool, shared: bool) -> Unit:
        model, address = self.model, self._address(lies, flat=flat)
        name = f"unit_{head}"
        return Unit(name, model.flow, head, after, result, lies, address, self._dense, flat, shared, model.note_scratch, model.target, model.blob)

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
            if m in self.between:
                return model.where(m) + ("" if row == "0" or flat else f" + {row} * {lies(m).extents.row}")
            ring = self._array(m, lies(m).shape)
            at = "0" if row == "0" or ring.slots == 1 else f"{row} % {ring.slots}"
            return ring.pointer + ("" if at == "0" else f" + {at} * {ring.slot}")

        return address

    def _dense(self, m: int) -> bool:
        """Whether all rows of a map are there at once, one after the other."""
        tensor = self.model.flow.maps[m]
        if m in self.between:
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
        label = f"{operator.name} ({operator.kind})".replace("*/", "* /")
        out(f"/* {label}, as plain loops */")
        with out.kernel(name):
            target = model.target
            loops(Nest(out, call, operands, results, model.blob, whole=once, threads=target.threads, lanes=target.lanes[0]))
        model.loops[operator.name] = reason
        return name, "once" if once else "rows"

    def _array(self, m: int, shape: tuple[int, ...]) -> Array:
        model, layout = self.model, self.model.layouts[m]
        if m in self.between:
            return Array(layout, shape, model.where(m))
        place = self.rings.get(model.flow.maps[m].name, UNREAD)
        size = np.dtype(layout.tensor.dtype).itemsize
        pointer = (
            f"m->arena + {place.address // size}" if layout.ctype == "float" else f"({layout.ctype} *)(void *)m->arena + {place.address // size}"
        )
        return Array(layout, shape, pointer, place.slots, place.slot_bytes // size)

    # -- schedule ----------------------------------------------------------------------------------------------------------------------------

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
        if threads > 1:
            out("SYNC();")


def header(name: str, *, count: bool = False, profile: bool = False) -> str:
    """model.h of a model of this name."""
    text = _template("model.h")
    for part, wanted in (("COUNTED", count), ("PROFILED", profile)):
        found = re.compile(rf"#if {part}\n(.*?)#endif /\* {part} \*/\n\n", re.DOTALL)
        text = found.sub(rf"#define NAME_{part}\n\1\n" if wanted else "", text)
    return re.sub(r"NAME(?=_)", name, text)


def _template(name: str) -> str:
    return files("codegen").joinpath(name).read_text(encoding="utf-8")


def _embedded(name: str, weights: bytes) -> bytes:
    """Weights as a C array."""
    words = np.frombuffer(weights, "<u8").tolist()
    lines = (", ".join(f"0x{word:x}" for word in words[k : k + 8]) for k in range(0, len(words), 8))
    text = ",\n    ".join(lines) or "0"
    aligned = "#ifdef __GNUC__\n__attribute__((aligned(64)))\n#else\n_Alignas(64) /* C11 */\n#endif"
    return f"#include <stdint.h>\n\n{aligned}\nconst uint64_t {name}_weights[] = {{\n    {text}}};\n".encode()


def identifier(name: str) -> str:
    """A C identifier made from a name."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    return found if found[:1].isalpha() else f"model_{found}"


def quoted(text: str) -> str:
    """A C string."""
    escaped = "".join(c if 32 <= ord(c) < 127 and c not in '"\\?' else "".join(f"\\{byte:03o}" for byte in c.encode()) for c in text)
    return f'"{escaped}"'
