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
from codegen.kernels.heads import is_pointwise, kernel
from codegen.kernels.simple import elementwise
from codegen.kernels.unit import Unit
from codegen.layout import PIXELS, Layout, layouts, natural
from codegen.loops.nest import Array, Nest
from codegen.loops.table import loops
from codegen.source import CSource, Unsupported
from codegen.tails import is_elementwise, tail
from codegen.target import Target, target
from codegen.units import Body, Made, body, sequences, units
from codegen.writer import Writer
from lfopt.ir import Graph, Plan, PlannedGroup
from lfopt.ops import Dataflow, bits

LINE = 64  # bytes of a cache line
HEAD = 2 * LINE  # bytes before the maps of a context
UNROLLED = 4  # channels of a graph's input or output that are copied pixel by pixel
MOST_THREADS = 64


def emit_c(plan: Plan, graph: Graph, name: str = "native", *, threads: int = 1, embed: bool = False) -> CSource:
    """The plan of this graph as C for a target. Raises Unsupported where nothing can print an operator, a type or a shape.

    `embed`: weights become a C array, to be linked in, in place of a file.
    """
    if not 1 <= threads <= MOST_THREADS:
        raise Unsupported(f"threads: found {threads}; generated C accepts 1 to {MOST_THREADS}")
    if plan.hardware.element_bytes != 4:
        raise Unsupported(f"hardware.element_bytes: found {plan.hardware.element_bytes}; generated C accepts plans for float32, element_bytes 4")
    if plan.hardware.channel_align != 1:
        raise Unsupported(f"hardware.channel_align: found {plan.hardware.channel_align}; generated C accepts 1: its channels are not padded")
    return _Model(plan, graph, replace(target(name), threads=threads), embed).source()


@dataclass
class _Model:
    plan: Plan
    graph: Graph
    target: Target
    embed: bool

    def __post_init__(self) -> None:
        self.flow = flow = Dataflow.of(self.graph)
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.layouts = layouts(flow)
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
        between = self._between()
        self._lay_out(between)
        for k, name in enumerate(self.graph.inputs):
            if (m := self.root[name]) in self.maps:
                self._border(m, f"inputs[{k}]", inward=True)
        self._sync()
        for group in self.plan.groups:
            _Group(self, group, between).emit()
        for k, name in enumerate(self.graph.outputs):
            if name in self.root:
                self._border(self.root[name], f"outputs[{k}]", inward=False)
            else:
                self._constant_output(k, name)
        weights = self.blob.bytes()
        found = {"model.c": self._code(weights).encode(), "model.h": header(self.name).encode()}
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
            dies = last if flow.is_output[m] else max([born, *(owner[i] for i in bits(flow.readers[m]))])
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
        if self.target.threads > 1:
            head("#define _POSIX_C_SOURCE 200809L")
        head('#include "model.h"', "", f"#define LANES {self.target.lanes[0]}", f"#define THREADS {self.target.threads}")
        head.all(_template("prelude.h").splitlines())
        head("", f"#define SCRATCH {self._scratch_lines * LINE // 4} /* floats of each thread */")
        head("", f"struct {name}_context {{", "    context shared;", "    uint64_t *before, *after; /* canaries beside the arena */", "};", "")
        network = Writer()
        with network.block("static void network(const context *m, const void *const *inputs, void *const *outputs)"):
            network("(void)inputs, (void)outputs;")
            network.all(self.run.text().splitlines())
        run = re.sub(r"NAME(?=_)", name, _template("run.c"))
        return "\n".join((head.text(), self.functions.text(), self._tensors(), network.text(), run, self._start(weights)))

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
        return -(-self.arena // LINE)

    @property
    def _scratch_lines(self) -> int:
        """Of one thread."""
        return -(-4 * self.scratch // LINE)

    @property
    def _context_bytes(self) -> int:
        return HEAD + 4 * self.size + (2 + self._arena_lines + self._scratch_lines * self.target.threads) * LINE

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
            out("*m->before = *m->after = CANARY;", "return 0;")
        return out.text()


Calls = Literal["once", "rows"]  # a function makes all that its operator makes, or one row


@dataclass
class _Group:
    model: _Model
    group: PlannedGroup
    between: set[int]

    def emit(self) -> None:
        """The kernels of the group, its function, and the call of it."""
        model, group = self.model, self.group
        flow, mask = model.flow, model.mask(group)
        self.rings = {place.name: place for place in group.places}
        if group.mode == "lbdf":
            steps = body(flow, model.index, group.steps)
        else:
            steps = [Made(i, 0, flow.heights[i], ()) for i in bits(mask)]
        found = units(flow, model.layouts, mask, sequences(steps))
        self.made: dict[int, list[tuple[str, Calls]]] = {}  # functions of a unit
        for head, operators in found.items():
            self.made[head] = self._unit(operators)
        name = f"group_{group.id}"
        with model.functions.block(f"static void {name}(const context *m)"):
            self._steps(steps, found, 0)
        model.functions("")
        model.run(f"{name}(m);")

    @property
    def whole(self) -> bool:
        """Whether operators make whole maps, one after the other."""
        return self.group.mode != "lbdf"

    # -- functions ---------------------------------------------------------------------------------------------------------------------------

    def _unit(self, operators: tuple[int, ...]) -> list[tuple[str, Calls]]:
        """The functions of a unit: one, or, where no kernel knows its head, loops for that and what can be done for the rest."""
        model, (head, *rest) = self.model, operators
        names = ", ".join(model.flow.operators[i].name for i in operators).replace("*/", "* /")
        marks = model.blob.mark(), model.functions.mark(), model.scratch
        model.functions(f"/* {names} */")
        try:
            return [self._kernel(operators)]
        except Unsupported as reason:
            model.blob.forget(marks[0])
            model.functions.forget(marks[1])
            model.scratch = marks[2]
            found = [self._loops(head, str(reason))]
            return found + self._unit(tuple(rest)) if rest else found

    def _kernel(self, operators: tuple[int, ...]) -> tuple[str, Calls]:
        """A fast kernel. Raises Unsupported."""
        model, flow, head = self.model, self.model.flow, operators[0]
        result = flow.results[operators[-1]][0]
        alone = is_elementwise(flow, head)
        flat = self.whole and (alone or is_pointwise(flow.calls[head]))
        seen = self._seen(head)

        def lies(m: int) -> Layout:
            return seen.get(m, model.layouts[m])

        def note_scratch(floats: int) -> None:
            model.scratch = max(model.scratch, floats)

        start = self._start(head) if alone else flow.results[head][0]
        made = tail(flow, model.layouts, operators if alone else operators[1:], start, model.blob)
        rows = 1 if flat else lies(result).image.rows
        shared = flat or not self.whole or rows == 1
        unit = Unit(f"unit_{head}", flow, head, made, result, lies, self._address(lies), flat, shared, note_scratch, model.target, model.blob)
        if alone:
            elementwise(model.functions, unit, start)
        else:
            kernel(model.functions, unit)
        return unit.name, "once" if rows == 1 else "rows"

    def _seen(self, head: int) -> dict[int, Layout]:
        """Maps that an operator reads through a view, as it sees them. Raises Unsupported where they do not lie so."""
        model, call = self.model, self.model.flow.calls[head]
        found: dict[int, Layout] = {}
        for operand in model.flow.operands[head]:
            own, tensor = model.layouts[operand.map], call.tensors[operand.input]
            assert tensor is not None, "a map is not an absent operand"
            if tensor.shape == own.shape:
                continue
            view = natural(tensor, pixels=own.order == PIXELS)
            if view.sequence == own.sequence and (self.whole or view.image.rows == own.image.rows):
                found[operand.map] = view
            elif call.operator.kind != "Gemm":
                named = f"node {call.operator.name!r} ({call.operator.kind}): input {operand.input}"
                raise Unsupported(f"{named}: found a view of {list(own.shape)} as {list(view.shape)}; fast kernels accept views that keep pixels")
        return found

    def _start(self, i: int) -> int:
        """The operand that an elementwise operator begins with: one that lies as its result does."""
        flow, lie = self.model.flow, self.model.layouts
        own = lie[flow.results[i][0]]
        for operand in flow.operands[i]:
            if flow.calls[i].shape(operand.input) == own.shape and lie[operand.map].sequence == own.sequence and lie[operand.map].image == own.image:
                return operand.map
        raise Unsupported(f"node {flow.operators[i].name!r} ({flow.operators[i].kind}): found no operand as large as the result")

    def _address(self, lies: Callable[[int], Layout]) -> Callable[[int, str], str]:
        """Where a row of a map lies."""
        model = self.model

        def address(m: int, row: str) -> str:
            if m in self.between:
                return model.where(m) + ("" if row == "0" else f" + {row} * {lies(m).image.row}")
            place = self.rings[model.flow.maps[m].name]
            at = "0" if row == "0" or place.slots == 1 else f"{row} % {place.slots}"
            return f"m->arena + {place.address // 4}" + ("" if at == "0" else f" + {at} * {place.slot_bytes // 4}")

        return address

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
            loops(Nest(out, call, operands, results, model.blob, whole=once, threads=model.target.threads))
        model.loops[operator.name] = reason
        return name, "once" if once else "rows"

    def _array(self, m: int, shape: tuple[int, ...]) -> Array:
        model, layout = self.model, self.model.layouts[m]
        if m in self.between:
            return Array(layout, shape, model.where(m))
        place = self.rings[model.flow.maps[m].name]
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


def header(name: str) -> str:
    """model.h of a model of this name."""
    return re.sub(r"NAME(?=_)", name, _template("model.h"))


def _template(name: str) -> str:
    return files("codegen").joinpath(name).read_text(encoding="utf-8")


def _embedded(name: str, weights: bytes) -> bytes:
    """Weights as a C array."""
    words = np.frombuffer(weights, "<u8").tolist()
    lines = (", ".join(f"0x{word:x}" for word in words[k : k + 8]) for k in range(0, len(words), 8))
    text = ",\n    ".join(lines) or "0"
    return f"#include <stdint.h>\n\n_Alignas(64) const uint64_t {name}_weights[] = {{\n    {text}}};\n".encode()


def identifier(name: str) -> str:
    """A C identifier made from a name."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    return found if found[:1].isalpha() else f"model_{found}"


def quoted(text: str) -> str:
    """A C string."""
    escaped = "".join(c if 32 <= ord(c) < 127 and c not in '"\\?' else "".join(f"\\{byte:03o}" for byte in c.encode()) for c in text)
    return f'"{escaped}"'
