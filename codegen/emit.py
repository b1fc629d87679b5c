"""A plan as C: one function per fusion group, which runs row by row over its rings.

A group in mode lbdf follows the plan's loops, with the plan's rings in the arena. Maps that it loads or stores are read and written where they lie
between groups: on a CPU the cache moves them. Groups in other modes run operator by operator on whole maps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from codegen.blob import Blob, digest
from codegen.images import Image, channels_first, image, same_order
from codegen.kernels.heads import FLATTENING, is_pointwise, kernel
from codegen.kernels.simple import elementwise
from codegen.kernels.unit import Unit
from codegen.source import CSource, Unsupported
from codegen.tails import is_elementwise, tail
from codegen.target import Target, target
from codegen.units import Body, Made, body, sequences, units
from codegen.writer import Writer
from lfopt.ir import Graph, Plan, PlannedGroup
from lfopt.ops import Dataflow, bits

LINE = 64  # bytes of a cache line
ALIGN = LINE // 4
UNROLLED = 4  # channels of a graph's input or output that are copied pixel by pixel


def emit_c(plan: Plan, graph: Graph, name: str = "native", *, threads: int = 1, embed: bool = False) -> CSource:
    """The plan of this graph as C for a target. Raises Unsupported where no kernel knows an operator, a type or a shape.

    `embed`: weights become a C array, to be linked in, in place of a file.
    """
    if threads != 1:
        raise Unsupported(f"threads: found {threads}; generated C accepts 1")
    if plan.hardware.element_bytes != 4:
        raise Unsupported(f"hardware.element_bytes: found {plan.hardware.element_bytes}; generated C accepts plans for float32, element_bytes 4")
    if plan.hardware.channel_align != 1:
        raise Unsupported(f"hardware.channel_align: found {plan.hardware.channel_align}; generated C accepts 1: its channels are not padded")
    return _Model(plan, graph, target(name), embed).source()


@dataclass
class _Model:
    plan: Plan
    graph: Graph
    target: Target
    embed: bool

    def __post_init__(self) -> None:
        self.flow = flow = Dataflow.of(self.graph)
        self.index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self.images = [image(m) for m in flow.maps]
        self._check_views()
        self.blob = Blob()
        self.functions = Writer()
        self.calls: list[str] = []  # statements of the function that runs the network
        self.name = identifier(self.plan.model.name)
        self.maps: dict[int, int] = {}  # map between groups -> floats from the start of the context's maps
        self.size = 0  # floats
        self.arena = max((group.buffer_bytes for group in self.plan.groups), default=0)
        numbers = {m.name: k for k, m in enumerate(flow.maps)}
        self.root = {name: numbers[behind] for name, behind in flow.behind.items()}

    def source(self) -> CSource:
        between = self._between()
        self._lay_out(between)
        for name in self.graph.inputs:
            if (m := self.root[name]) in self.maps:
                self._border(m, f"(const float *)inputs[{self.graph.inputs.index(name)}]", inward=True)
        for group in self.plan.groups:
            _Group(self, group, between).emit()
        for k, name in enumerate(self.graph.outputs):
            if name not in self.root:
                raise Unsupported(f"graph output {name!r}: found a constant; generated C accepts what operators make")
            self._border(self.root[name], f"(float *)outputs[{k}]", inward=False)
        weights = self.blob.bytes()
        context = 3 * LINE + 4 * self.size + -(-self.arena // LINE) * LINE
        found = {"model.c": self._code(weights).encode(), "model.h": header(self.name).encode()}
        found |= {"weights.c": _embedded(self.name, weights)} if self.embed else {"weights.bin": weights}
        return CSource(self.name, self.target.name, self.target.flags, found, self.arena, context)

    def _check_views(self) -> None:
        """Raise Unsupported where an operator reads a map in another order than it lies in."""
        for call, operands in zip(self.flow.calls, self.flow.operands, strict=True):
            for operand in operands:
                behind, view = self.flow.maps[operand.map], call.shape(operand.input)
                if not same_order(behind.shape, view) and call.operator.kind not in FLATTENING:
                    named = f"node {call.operator.name!r} ({call.operator.kind}): input {operand.input}"
                    raise Unsupported(f"{named}: found a view of {list(behind.shape)} as {list(view)}; generated C accepts views that keep pixels")

    # -- memory ------------------------------------------------------------------------------------------------------------------------------

    def _between(self) -> set[int]:
        """Maps that lie in memory as a whole: inputs, outputs, what one group leaves to another, and everything in groups without rings."""
        flow, found = self.flow, {m for m, producer in enumerate(self.flow.producer) if producer < 0}
        for group in self.plan.groups:
            mask = self.mask(group)
            for i in bits(mask):
                found |= {m for m in flow.results[i] if group.mode != "lbdf" or flow.is_output[m] or flow.readers[m] & ~mask}
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
        for born, dies, m in sorted(lives, key=lambda life: (-self.images[life[2]].elements, life)):
            size = -(-self.images[m].elements // ALIGN) * ALIGN
            start = 0
            for other, stop, b, d in sorted(placed):
                if b <= dies and born <= d and other < start + size and start < stop:
                    start = stop
            placed.append((start, start + size, born, dies))
            self.maps[m] = start
            self.size = max(self.size, start + size)

    def _border(self, m: int, there: str, *, inward: bool) -> None:
        """Copy a graph input or output, channels last inside and as ONNX has them outside."""
        here, extent, shape = f"(m->maps + {self.maps[m]})", self.images[m], self.flow.maps[m].shape
        if not channels_first(shape):
            source, goal = (there, here) if inward else (here, there)
            self.calls.append(f"memcpy({goal}, {source}, {extent.elements} * sizeof(float));")
            return
        plane = extent.rows * extent.pixels
        if extent.channels > UNROLLED:
            self.calls.append(f"{'inward' if inward else 'outward'}({here}, {there}, {extent.channels}, {plane});")
            return
        pairs = [(f"inside[{extent.channels} * p + {c}]", f"outside[p + {c * plane}]") for c in range(extent.channels)]
        moves = " ".join(f"{inside} = {outside};" if inward else f"{outside} = {inside};" for inside, outside in pairs)
        inside, outside = ("float *inside", "const float *outside") if inward else ("const float *inside", "float *outside")
        self.calls.append(f"{{ {inside} = {here}; {outside} = {there}; for (int p = 0; p < {plane}; p++) {{ {moves} }} }}")

    # -- text --------------------------------------------------------------------------------------------------------------------------------

    def _code(self, weights: bytes) -> str:
        name = self.name
        head = Writer()
        head(f"/* {self.plan.model.name}: {len(self.flow)} operators in {len(self.plan.groups)} fusion groups, for {self.target.name}. */")
        head('#include "model.h"', "", f"#define LANES {self.target.lanes[0]}")
        head.all(_template("prelude.h").splitlines())
        head(
            "",
            f"typedef struct {name}_context context;",
            f"struct {name}_context {{",
            "    const float *weights;",
            "    float *maps;              /* between groups */",
            "    float *arena;             /* inside groups */",
            "    uint64_t *before, *after; /* canaries beside the arena */",
            "};",
        )
        run = Writer()
        with run.block(f"int {name}_run({name}_context *m, const void *const *inputs, void *const *outputs)"):
            run.all(self.calls)
            run("return *m->before != CANARY || *m->after != CANARY ? 2 : 0;")
        return "\n".join((head.text(), self.functions.text(), self._tensors(), run.text(), self._start(weights)))

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
                    out(f'{{{quoted(name)}, "{tensor.dtype}", {len(tensor.shape)}, {role}_{k}, {4 * tensor.elements}}},')
        return re.sub(r"^}$", "};", out.text(), flags=re.MULTILINE)

    def _start(self, weights: bytes) -> str:
        """The functions that say how much memory there has to be, and the one that prepares it."""
        name, out = self.name, Writer()
        before = LINE + 4 * self.size
        after = before + LINE + -(-self.arena // LINE) * LINE
        if self.embed:
            out(f"extern const uint64_t {name}_weights[];", "")
        out(f"size_t {name}_context_bytes(void) {{ return {after + LINE}; }}")
        out(f"size_t {name}_arena_bytes(void) {{ return {self.arena}; }}")
        out(f"size_t {name}_weights_bytes(void) {{ return {0 if self.embed else len(weights)}; }}")
        out(f"uint64_t {name}_weights_hash(void) {{ return UINT64_C({digest(weights)}); }}", "")
        with out.block(f"int {name}_init({name}_context *m, const void *weights)"):
            if self.embed:
                out("if (weights) return 1;", f"weights = {name}_weights;")
            else:
                out(f"if (hash_of(weights, {len(weights) // 8}) != {name}_weights_hash()) return 1;")
            out("char *memory = (char *)m;", "m->weights = weights;")
            out(f"m->maps = (float *)(memory + {LINE});", f"m->before = (uint64_t *)(memory + {before});")
            out(f"m->arena = (float *)(memory + {before + LINE});", f"m->after = (uint64_t *)(memory + {after});")
            out("*m->before = *m->after = CANARY;", "return 0;")
        return out.text()


@dataclass
class _Group:
    model: _Model
    group: PlannedGroup
    between: set[int]

    def emit(self) -> None:
        """The kernels of the group, its function, and the call of it."""
        model, group = self.model, self.group
        flow, mask = model.flow, model.mask(group)
        if group.mode == "lbdf":
            steps = body(flow, model.index, group.steps)
        else:
            steps = [Made(i, 0, self._image(flow.results[i][0]).rows, ()) for i in bits(mask)]
        self.rings = {place.name: place for place in group.places}
        found = units(flow, mask, sequences(steps))
        for head, operators in found.items():
            self._kernel(head, operators)
        name = f"group_{group.id}"
        with model.functions.block(f"static void {name}(context *m)"):
            self._steps(steps, found, 0)
        model.functions("")
        model.calls.append(f"{name}(m);")

    def _image(self, m: int) -> Image:
        return self.model.images[m]

    def _whole(self, operators: Sequence[int]) -> bool:
        """Whether a unit works on whole maps pixel by pixel, so that all their rows can be taken as one."""
        flow, head = self.model.flow, operators[0]
        if self.group.mode == "lbdf":
            return False
        return is_pointwise(flow.calls[head]) or is_elementwise(flow, head)

    def _kernel(self, head: int, operators: tuple[int, ...]) -> None:
        model, flow = self.model, self.model.flow
        flat = self._whole(operators)
        result = flow.results[operators[-1]][0]

        def images(m: int) -> Image:
            found = model.images[m]
            return found.flat if flat else found

        alone = is_elementwise(flow, head)
        start = self._start(head) if alone else flow.results[head][0]
        made = tail(flow, operators if alone else operators[1:], start, model.blob)
        unit = Unit(f"unit_{head}", flow, head, made, result, images, self._address, model.target, model.blob)
        names = ", ".join(flow.operators[i].name for i in operators)
        model.functions(f"/* {names.replace('*/', '* /')} */")
        if alone:
            elementwise(model.functions, unit, start)
        else:
            kernel(model.functions, unit)

    def _start(self, i: int) -> int:
        """The operand that an elementwise operator begins with: one as large as its result."""
        flow = self.model.flow
        extent = self._image(flow.results[i][0])
        whole = [o.map for o in flow.operands[i] if self._image(o.map) == extent]
        if not whole:
            raise Unsupported(f"node {flow.operators[i].name!r} ({flow.operators[i].kind}): found no operand as large as the result")
        return whole[0]

    def _address(self, m: int, row: str) -> str:
        """Where a row of a map lies."""
        model = self.model
        extent, name = model.images[m], model.flow.maps[m].name
        if m in self.between:
            return f"m->maps + {model.maps[m]}" + ("" if row == "0" else f" + {row} * {extent.row}")
        place = self.rings[name]
        at = "0" if row == "0" or place.slots == 1 else f"{row} % {place.slots}"
        return f"m->arena + {place.address // 4}" + ("" if at == "0" else f" + {at} * {place.slot_bytes // 4}")

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
            operators = members[step.operator]
            skip = len(operators) - 1
            moves = "".join(f" + i{k} * {by}" if by != 1 else f" + i{k}" for k, by in enumerate(step.moves) if by)
            flat = self._whole(operators)
            rows = 1 if flat else step.stop - step.first
            if rows == 1:
                out(f"unit_{step.operator}(m, {step.first}{moves});")
            else:
                out(f"for (int r = {step.first}{moves}; r < {step.stop}{moves}; r++) unit_{step.operator}(m, r);")


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
