"""A plan as C: one function per fusion group, what runs them, and what holds their memory.

Kernels are chosen in `codegen.select`.

With several threads, all of them run the same code, each makes its share of every row (or its share of the
rows), and they wait for one another after every operator; or each makes rows of a whole group, in an arena of
its own, and they wait for one another after the group (see `lfopt.planning.cpu.schedule`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib.resources import files
from math import prod

import numpy as np

from codegen.blob import digest
from codegen.calls import calls
from codegen.counted import CountingCode
from codegen.elements import BF16, ELEMENT, FLOAT32, Element, ElementName
from codegen.kernels.table import winograd_tile
from codegen.kernels.winograd_bytes import whole_maps
from codegen.layout import CTYPES, HALVES, channel_shuffles, layouts
from codegen.loops.strided import Strided, StridedLoops, print_copy
from codegen.memory import LINE, MemoryPlan, PlannedFlow, lay_out_dram
from codegen.select import Selected, select
from codegen.source import CSource, Unsupported
from codegen.target import TARGET, THREADS, WINOGRAD, Target, target
from codegen.writer import CModule, Writer, string
from lfopt.ir import Graph, Operator, Plan, Quantization, Tensor
from lfopt.ir.cpu import MOST_THREADS, CpuSchedule
from lfopt.ir.names import LONGEST_SYMBOL, identifier, one_line
from lfopt.ir.origins import scope_of, source_of
from lfopt.ops import Dataflow, bits
from lfopt.ops.fixed_point import limits
from lfopt.planning import MODES

HEAD = 2 * LINE  # bytes before the maps of a context
UNROLLED = 4  # channels of a graph's input or output that are copied pixel by pixel
ENOUGH = 4  # images for each thread, so that those that have one more do not matter

# of symbols: what ISO C takes, and no header of the system begins with
PREFIX = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{LONGEST_SYMBOL - 1}}}")

FOLDS = re.compile(r"\b(first_equal|(largest|smallest|sum|moments|squares)_of)\(")  # functions of folds.h


def emit_c(
    plan: Plan,
    graph: Graph,
    name: str = TARGET,
    *,
    threads: int = THREADS,
    embed: bool = False,
    count: bool = False,
    profile: bool = False,
    winograd: int = WINOGRAD,
    element: ElementName = ELEMENT,
    images: int = 1,
    prefix: str | None = None,
) -> CSource:
    """The plan of this graph as C for a target.

    Raises Unsupported where nothing can print an operator, a type or a shape.

    `embed`: weights become a C array, to be linked in, in place of a file. `count`: code that follows every
    step of the plan and counts the bytes that it moves (see `codegen.counted`). `profile`: code that takes
    the time of each group. `winograd`: the largest tiles of Winograd's algorithm, 4 or 2; 0: every
    convolution is direct. `element`: that float32 maps and their weights are stored in, float32 or bf16.
    `images`: so many networks of this graph, one after the other: inputs and outputs begin with that axis
    (`lfopt.rewrite.images`). Where each thread has its share of them, it runs them alone, in memory of its
    own. `prefix`: what every symbol begins with, and the library is called, in place of the model's name.
    """
    if prefix is not None and not PREFIX.fullmatch(prefix):
        raise Unsupported(
            f"prefix: found {one_line(repr(prefix))[:80]}; accepted: up to {LONGEST_SYMBOL} letters, digits "
            "and _, a letter first"
        )
    if images < 1 or (images > 1 and count):
        raise Unsupported(
            f"images: found {images}; generated C that {'counts' if count else 'does not count'} accepts "
            f"{'1' if count else 'from 1 on'}"
        )
    chosen = replace(target(name, element), threads=threads, winograd=winograd)
    _check(plan, graph, chosen, count=count)
    crew = threads if images > 1 and (images % threads == 0 or images >= ENOUGH * threads) else 1
    planned = PlannedFlow(plan, graph, images)
    shown = replace(chosen, threads=threads // crew)
    if count:  # then the C follows the steps of the plan itself
        memory = lay_out_dram(planned, shown)
        schedule = CpuSchedule(chosen.name, 1, (), ())
        selected = ()
    else:
        floats = frozenset[int]() if chosen.element is FLOAT32 else _unrounded(planned.flow)
        memory, schedule, selected = select(planned, shown, floats)
        schedule = replace(schedule, images=images, crew=crew, element=chosen.element.name)
    return _Printer(memory, schedule, count=count, embed=embed, profile=profile, prefix=prefix).source(
        selected
    )


def _unrounded(flow: Dataflow) -> frozenset[int]:
    """Float32 maps that are not worth rounding.

    Those are outputs that nothing else reads, and values for whole channels that elementwise operators read.
    """

    def kept(m: int) -> bool:
        tensor = flow.maps[m]
        read = [flow.specs[i].elementwise for i in bits(flow.readers[m])]
        gate = bool(read) and all(read) and len(tensor.shape) > 1 and tensor.elements == tensor.shape[1]
        return (
            tensor.dtype == "float32" and flow.producer[m] >= 0 and (gate or (flow.is_output[m] and not read))
        )

    return frozenset(m for m in range(len(flow.maps)) if kept(m))


def better_whole(flow: Dataflow, name: str = TARGET, element: ElementName = ELEMENT) -> int:
    """The mask of operators that are better as whole maps than as rows that pass through rings.

    Those are convolutions by Winograd's algorithm, convolutions and products with weights whose rows are
    single pixels (tokens, sounds, points), which want many at a time, and Transposes that shuffle channels,
    which can leave pixels as they are. Raises Unsupported for types that generated code does not hold.
    """
    chosen = target(name, element)
    laid_out = layouts(flow)
    shuffles = channel_shuffles(flow)
    if_whole = layouts(flow, frozenset(range(len(flow.maps))))

    def wants_many(i: int) -> bool:
        call = flow.calls[i]
        written = laid_out[flow.results[i][0]]
        tokens = (
            call.operator.kind in ("Conv", "Gemm", "MatMul")
            and any(call.constant)
            and written.by_rows
            and written.extents.rows > written.extents.pixels == 1
        )
        # of sounds, whose rows are channels: an operator between convolutions can leave them in pixels
        in_pixels = len(written.shape) == 3 and if_whole[flow.results[i][0]].order[-1] == 1
        sound = in_pixels and call.operator.kind != "Transpose"
        return (
            i in shuffles
            or tokens
            or sound
            or isinstance(winograd_tile(call, laid_out[flow.operands[i][0].map], written, chosen), int)
        )

    candidates = [
        i
        for i in range(len(flow))
        if flow.operands[i] and flow.maps[flow.results[i][0]].elements and wants_many(i)
    ]
    return sum(1 << i for i in candidates) | whole_maps(flow, laid_out, chosen)


def _check(plan: Plan, graph: Graph, chosen: Target, *, count: bool) -> None:
    """Raise Unsupported for options and plans that no code is printed for."""
    threads = chosen.threads
    element = chosen.element
    most = 1 if count else MOST_THREADS
    if not 1 <= threads <= most:
        raise Unsupported(
            f"threads: found {threads}; generated C that {'counts' if count else 'does not count'} accepts 1 "
            f"to {most}"
        )
    if element is not FLOAT32 and (graph.quantized or count):
        raise Unsupported(
            f"element {element.name}: found {'code that counts' if count else 'a quantised network'}; "
            "accepted: element float32"
        )
    if text := [name for name, tensor in graph.tensors.items() if tensor.dtype == "string"]:
        raise Unsupported(f"tensor {text[0]!r}: found type string; generated C accepts numbers")
    if count:
        return
    if (planned_bytes := plan.hardware.element_bytes) != (1 if graph.quantized else element.bytes):
        if graph.quantized:
            accepted = "of quantised networks for int8, element_bytes 1"
        else:
            accepted = f"for {element.name}, element_bytes {element.bytes}"
        raise Unsupported(
            f"hardware.element_bytes: found {planned_bytes}; generated C accepts plans {accepted}"
        )
    if plan.hardware.channel_align != 1:
        raise Unsupported(
            f"hardware.channel_align: found {plan.hardware.channel_align}; generated C accepts 1: its "
            "channels are not padded"
        )
    for group in plan.groups:
        if group.unwritten and MODES[group.mode].rings:  # its rings follow the steps
            raise Unsupported(f"group {group.id}: it has no steps: {group.unexecutable}")


class _Printer:
    """From a model to its files."""

    def __init__(
        self,
        memory: MemoryPlan,
        schedule: CpuSchedule,
        *,
        count: bool,
        embed: bool,
        profile: bool,
        prefix: str | None,
    ) -> None:
        self.memory = memory
        self.schedule = schedule
        self.embed = embed
        self.profile = profile
        self.plan = memory.planned.plan
        self.graph = memory.planned.graph
        self.flow = memory.flow
        self.target = memory.target
        self.name = prefix or identifier(self.plan.model.name)
        hardware = self.plan.hardware
        # of one thread
        self.arena = max((group.allocated_bytes(hardware) for group in self.plan.groups), default=0)
        self.run = Writer(1)  # what runs the network
        self.functions = CModule()
        dram = {self.flow.maps[m].name: 4 * start for m, start in memory.starts.items()}
        if count:
            self.counted = CountingCode(
                self.plan, self.graph, self.flow, self.functions.blob, dram, 4 * memory.size
            )
        else:
            self.counted = None

    def source(self, selected: Sequence[Selected]) -> CSource:
        """All files of the model. Raises Unsupported."""
        for function in selected:
            function.print(self.functions)
        root = {name: self.flow.map_index[behind] for name, behind in self.flow.behind.items()}
        for k, name in enumerate(self.graph.inputs):
            m = root[name]
            if m in self.memory.starts and m not in self.memory.ends:
                self._border(m, self._outside("inputs", k, name), inward=True)
        if self.target.threads > 1:
            self.run("SYNC();")
        if self.counted:
            self.run.all(self.counted.run)
        else:
            operators = {operator.name: operator for operator in self.graph.operators}
            for group in self.schedule.groups:
                self._comment(
                    group.id, [operators[name] for function in group.functions for name in function.operators]
                )
                call = calls(self.functions, group)
                self.run(f"TIMED({group.id}, {call[:-1]});" if self.profile else call)
        for k, name in enumerate(self.graph.outputs):
            if name not in root:
                self._constant_output(k, name)
            elif self.memory.ends.get(root[name]) != f"m->outputs[{k}]":
                self._border(root[name], self._outside("outputs", k, name), inward=False)
        weights = self.functions.blob.bytes()
        count = self.counted is not None
        contents = {
            "model.c": self._code(weights).encode(),
            "model.h": header(
                self.name, count=count, profile=self.profile, quantized=self.graph.quantized
            ).encode(),
        }
        contents |= {"weights.c": _embedded(self.name, weights)} if self.embed else {"weights.bin": weights}
        flags = (*self.target.flags, *(["-pthread"] if self._workers > 1 else []))
        arena = self._arena_bytes
        decisions = tuple(function.decision for function in selected)
        return CSource(
            self.name,
            self.target.name,
            flags,
            contents,
            arena,
            self._context_bytes,
            len(weights),
            self.schedule,
            decisions,
        )

    def _comment(self, group: int, operators: Sequence[Operator]) -> None:
        """A comment with the module and source line that the exporter says a group is from."""
        if scope := scope_of(operators):
            source = source_of(operators)
            self.functions.comment(f"group {group}: {scope}{f' ({source})' if source else ''}")

    def _outside(self, ends: str, k: int, name: str) -> str:
        """Address of an input or output of the network; of the present image, where there are several."""
        if self.schedule.images == 1:
            return f"{ends}[{k}]"
        kind = "const char" if ends == "inputs" else "char"
        tensor = self.graph.tensors[name]
        return (
            f"(void *)(({kind} *){ends}[{k}] + (size_t)image * "
            f"{tensor.elements * np.dtype(tensor.dtype).itemsize})"
        )

    def _border(self, m: int, there: str, *, inward: bool) -> None:
        """Copy a graph input or output, which lies inside as its layout says and outside as ONNX has it."""
        layout = self.memory.layouts[m]
        out = self.run
        kind = self.memory.layouts[m].ctype
        here = self.memory.ctype(m)
        converted = self.memory.stored_otherwise(m)
        inside, outside = (
            (f"{here} *inside", f"const {kind} *outside")
            if inward
            else (f"const {here} *inside", f"{kind} *outside")
        )
        if layout.onnx:
            first = f"(size_t)FIRST({layout.tensor.elements})"
            stop = f"(size_t)STOP({layout.tensor.elements})"
            with out.block(""):
                out(
                    f"{inside} = {self.memory.where(m)};",
                    f"{outside} = {there};",
                    f"const size_t first = {first}, stop = {stop};",
                )
                to, source = ("inside", "outside") if inward else ("outside", "inside")
                if converted:
                    out(f"{'narrow' if inward else 'widen'}({to} + first, {source} + first, stop - first);")
                else:
                    out(f"memcpy({to} + first, {source} + first, (stop - first) * sizeof *inside);")
            return
        with out.block(""):
            out(f"{inside} = {self.memory.where(m)};", f"{outside} = {there};")
            moves = layout.sequence
            if converted or moves[-1][0] <= UNROLLED:
                self._moves(moves, BF16 if converted else FLOAT32, inward=inward)
                return
            steps = [prod(extent for extent, _ in moves[k + 1 :]) for k in range(len(moves))]
            within = Strided("inside", tuple(steps), here)
            away = Strided("outside", tuple(step for _, step in moves), kind)
            arrays = (within, away) if inward else (away, within)
            loops = StridedLoops(tuple(extent for extent, _ in moves), arrays)
            print_copy(out, loops, shared=self.target.threads > 1)

    def _moves(self, moves: Sequence[tuple[int, int]], held: Element, *, inward: bool) -> None:
        """Single elements, or the few channels of a pixel."""
        unrolled = moves[-1][0] if moves[-1][0] <= UNROLLED else 1
        nest = moves[:-1] if unrolled > 1 else moves
        if inward or unrolled > 1 or len(nest) < 2:
            order = list(range(len(nest)))
        else:
            order = [len(nest) - 1, *range(len(nest) - 1)]  # what is written lies side by side
        out = self.run
        steps = [1] * len(moves)
        for k in reversed(range(len(moves) - 1)):
            steps[k] = steps[k + 1] * moves[k + 1][0]
        here = " + ".join(f"(size_t)i{k} * {steps[k]}" for k in sorted(order))
        away = " + ".join(f"(size_t)i{k} * {moves[k][1]}" for k in sorted(order))
        lines: list[str] = []
        for c in range(unrolled):
            inside = f"inside[{here} + {c}]"
            outside = f"outside[{away} + {c * moves[-1][1]}]"
            lines.append(held.write(inside, outside) if inward else f"{outside} = {held.read(inside)};")
        spans = [
            ("0", str(moves[k][0])) if depth else (f"FIRST({moves[k][0]})", f"STOP({moves[k][0]})")
            for depth, k in enumerate(order)
        ]
        with out.nested(
            [
                f"for (int i{k} = {first}; i{k} < {stop}; i{k}++)"
                for k, (first, stop) in zip(order, spans, strict=True)
            ]
        ):
            out.all(lines)

    def _constant_output(self, k: int, name: str) -> None:
        value = self.graph.constants[name]
        if self.schedule.images > 1:
            raise Unsupported(
                f"graph output {name!r}: found a constant; for several images, accepted: what is made of each"
            )
        if value is None or not value.dtype.isnative or value.dtype.name not in CTYPES:
            raise Unsupported(
                f"graph output {name!r}: found a constant without values, or of type "
                f"{self.graph.tensors[name].dtype}"
            )
        self.run(
            f"if (m->me == 0) memcpy(outputs[{k}], {self.functions.blob.add(value, value.dtype.name)}, "
            f"{value.nbytes});"
        )

    # -- text ------------------------------------------------------------------------------------------------

    def _code(self, weights: bytes) -> str:
        name = self.name
        head = Writer()
        plan = self.plan
        head.comment(
            f"{plan.model.name}: {len(self.flow)} operators in {len(plan.groups)} fusion groups, for "
            f"{self.target.name}."
        )
        if self._workers > 1 or self.profile:
            head("#define _GNU_SOURCE /* POSIX, and the affinity of threads */")
        if self.profile:
            head("#define PROFILE 1")
        head(
            '#include "model.h"',
            "",
            f"#define LANES {self.target.lanes[0]}",
            f"#define THREADS {self.target.threads}",
        )
        head(
            f"#define CREW {self.schedule.crew} /* threads that each run images of their own */",
            f"#define IMAGES {self.schedule.images}",
        )
        before, after = self.counted.code() if self.counted else ("", "")
        bodies = f"{after}\n{self.functions.text()}"
        parts = {
            "prelude.h": True,
            "crew.h": self._workers > 1,
            "functions.h": re.search(r"\breal_[a-z0-9]+\(", bodies) is not None,
            "folds.h": FOLDS.search(bodies) is not None,
            "bf16.h": self.target.element is BF16,
            "halves.h": any(tensor.dtype in HALVES for tensor in self.flow.maps),
            "turn.h": bool(self.memory.attentions),
            "integer.h": self.graph.quantized,
            "dots.h": self.graph.quantized and self.target.dots,
        }
        for part in (part for part, needed in parts.items() if needed):
            head.all(_template(part).splitlines())
        head("", f"#define SCRATCH {self._scratch_lines * LINE // 4} /* floats of each thread */")
        head(
            "",
            f"struct {name}_context {{",
            "    context shared;",
            "    uint64_t *before, *after; /* canaries beside the arena */",
        )
        head(
            *(
                ["    struct pool *pool; /* threads that wait for the next run */"]
                if self._workers > 1
                else []
            ),
            "};",
            "",
        )
        if self.schedule.arenas > 1:
            head(
                f"#define ARENA {(1 + self._arena_lines) * LINE // 4} /* floats from the arena of one thread "
                "to that of the next */",
                "",
            )
        if self.schedule.crew > 1:
            head(
                f"#define MAPS {self.memory.size} /* floats from the maps of one thread to those of the next "
                "*/",
                "",
            )
        network = Writer()
        with network.block(
            "static void network(const context *m, const void *const *inputs, void *const *outputs)"
        ):
            network("const context here = with_ends(m, inputs, outputs);", "m = &here;")
            with (
                network.block("for (int image = m->first; image < m->stop; image++)")
                if self.schedule.images > 1
                else nullcontext()
            ):
                network.all(self.run.text().splitlines())
                if self.schedule.images > 1 and self.target.threads > 1:
                    network("SYNC();")
        run = "\n".join(
            re.sub(r"NAME(?=_)", name, _template(part))
            for part in (*(["pool.c"] if self._workers > 1 else []), "run.c")
        )
        chip = (before, _template("chip.h"), after) if self.counted else ()
        return "\n".join(
            (
                head.text(),
                *chip,
                self.functions.text(),
                self._tensors(),
                network.text(),
                run,
                self._start(weights),
            )
        )

    def _tensors(self) -> str:
        out = Writer()
        for role, names in (("input", self.graph.inputs), ("output", self.graph.outputs)):
            for k, name in enumerate(names):
                shape = self._whole(self.graph.shape(name))
                out(f"static const int64_t {role}_{k}[] = {{{', '.join(map(str, shape)) or '1'}}};")
            out(f"const int {self.name}_{role}_count = {len(names)};")
            with out.block(f"const {self.name}_tensor {self.name}_{role}s[] ="):
                for k, name in enumerate(names):
                    tensor = self.graph.tensors[name]
                    size = self.schedule.images * tensor.elements * np.dtype(tensor.dtype).itemsize
                    out(
                        f"{{{string(name)}, {string(tensor.dtype)}, {len(tensor.shape)}, {role}_{k}, "
                        f"{size}, {', '.join(_meaning(tensor))}}},"
                    )
        arrays = re.sub(r"^}$", "};", out.text(), flags=re.MULTILINE)
        return arrays + (self._conversions() if self.graph.quantized else "")

    def _conversions(self) -> str:
        """Functions between floats and the integers of inputs and outputs: see model.h."""
        out = Writer()
        graph = self.graph

        def each(names: Sequence[str]) -> Iterator[tuple[int, Tensor, Quantization]]:
            for k, name in enumerate(names):
                by = graph.tensors[name].quantization
                if by is not None and by.axis is None and np.dtype(graph.tensors[name].dtype).itemsize < 4:
                    yield k, graph.tensors[name], by

        def loop(tensor: Tensor) -> str:
            return f"EACH for (int i = 0; i < {self.schedule.images * tensor.elements}; i++)"

        with out.block(f"int {self.name}_quantize(int input, const float *from, void *to)"):
            out("(void)from, (void)to;")
            for k, tensor, by in each(graph.inputs):
                least, most = limits(tensor.dtype)
                low, high, zero = (
                    f"{v}.0f" for v in (least - by.zero_point[0], most - by.zero_point[0], by.zero_point[0])
                )
                kind = CTYPES[tensor.dtype]
                with out.block(f"if (input == {k})"):
                    out(f"{kind} *const y = ({kind} *)to;")
                    with out.block(loop(tensor)):
                        out(f"float q = rintf(from[i] / {float(np.float32(by.scale[0])).hex()}f);")
                        out(f"q = q >= {low} ? q : {low};", f"q = q <= {high} ? q : {high};")
                        out(f"y[i] = ({kind})(int32_t)(q + {zero});")
                    out("return 1;")
            out("return 0;")
        with out.block(f"int {self.name}_dequantize(int output, const void *from, float *to)"):
            out("(void)from, (void)to;")
            for k, tensor, by in each(graph.outputs):
                kind = CTYPES[tensor.dtype]
                with out.block(f"if (output == {k})"):
                    out(f"const {kind} *const x = (const {kind} *)from;")
                    scale = f"{float(np.float32(by.scale[0])).hex()}f"
                    out(f"{loop(tensor)} to[i] = (float)((int32_t)x[i] - ({by.zero_point[0]})) * {scale};")
                    out("return 1;")
            out("return 0;")
        return out.text()

    def _whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a graph input or output of all images."""
        if self.schedule.images > 1:
            return (self.schedule.images * shape[0], *shape[1:])
        return shape

    @property
    def _workers(self) -> int:
        return self.schedule.crew * self.target.threads

    @property
    def _maps_bytes(self) -> int:
        return 4 * self.memory.size * self.schedule.crew

    @property
    def _arena_bytes(self) -> int:
        return self.arena * self.schedule.arenas

    @property
    def _arena_lines(self) -> int:
        """Cache lines of the arena of one thread."""
        if self.counted:
            return -(-max(self.arena, self.counted.arena) * self.counted.scale // LINE)
        return -(-self.arena // LINE)

    @property
    def _scratch_lines(self) -> int:
        """Cache lines of the scratch memory of one thread."""
        return -(-(self.counted.chip_bytes if self.counted else 4 * self.functions.scratch_floats) // LINE)

    @property
    def _context_bytes(self) -> int:
        lines = (
            1
            + (1 + self._arena_lines) * self.schedule.arenas
            + self._scratch_lines * self._workers
            + self._time_lines
        )
        return HEAD + self._maps_bytes + lines * LINE

    @property
    def _time_lines(self) -> int:
        if self.profile:
            return -(-8 * len(self.plan.groups) // LINE)
        return 0

    def _start(self, weights: bytes) -> str:
        """C functions that say how much memory there has to be, and the one that prepares it."""
        name = self.name
        out = Writer()
        before = HEAD + self._maps_bytes
        after = before + (1 + self._arena_lines) * self.schedule.arenas * LINE
        if self.embed:
            out(f"extern const uint64_t {name}_weights[];", "")
        out(f"size_t {name}_context_bytes(void) {{ return {self._context_bytes}; }}")
        out(f"size_t {name}_arena_bytes(void) {{ return {self._arena_bytes}; }}")
        out(f"size_t {name}_weights_bytes(void) {{ return {0 if self.embed else len(weights)}; }}")
        out(f"uint64_t {name}_weights_hash(void) {{ return UINT64_C({digest(weights)}); }}", "")
        with out.block(f"int {name}_init({name}_context *m, const void *weights)"):
            if self.embed:
                out("if (weights) return 1;", f"weights = {name}_weights;")
            else:
                out(f"if (hash_of(weights, {len(weights) // 8}) != {name}_weights_hash()) return 1;")
            out(
                "char *memory = (char *)m;",
                "context *shared = &m->shared;",
                "memset(m, 0, sizeof *m);",
                "shared->weights = weights;",
                "shared->stop = IMAGES;",
            )
            out(
                f"shared->maps = (float *)(void *)(memory + {HEAD});",
                f"m->before = (uint64_t *)(void *)(memory + {before});",
            )
            out(
                f"shared->arena = (float *)(void *)(memory + {before + LINE});",
                f"m->after = (uint64_t *)(void *)(memory + {after});",
            )
            out(f"shared->scratch = (float *)(void *)(memory + {after + LINE});")
            if self.counted:
                out("shared->chip = (struct chip *)(void *)shared->scratch;")
            if self.profile:
                out(
                    "shared->times = (double *)(void *)(memory + "
                    f"{self._context_bytes - LINE * self._time_lines});"
                )
            out("*m->before = *m->after = CANARY;")
            if self.schedule.arenas > 1:
                out("for (int k = 1; k < WORKERS; k++) *canary(shared, k) = CANARY;")
            out("return 0;")
        out("", f"typedef char context_fits[sizeof(struct {name}_context) <= {HEAD} ? 1 : -1];")
        if self.counted:
            out(
                "",
                f"uint64_t {name}_dram_bytes(const {name}_context *m, int kind) {{ return "
                f"m->shared.chip->bytes[kind]; }}",
            )
            out("", "typedef char chip_fits[sizeof(struct chip) <= 4 * SCRATCH ? 1 : -1];")
        if self.profile:
            out(
                "",
                f"double {name}_group_seconds(const {name}_context *m, int group) {{ return "
                f"m->shared.times[group]; }}",
            )
        return out.text()


def header(name: str, *, count: bool = False, profile: bool = False, quantized: bool = False) -> str:
    """model.h of a model of this name."""
    text = _template("model.h")
    for part, wanted in (("QUANTIZED", quantized), ("COUNTED", count), ("PROFILED", profile)):
        section = re.compile(rf"#if {part}\n(.*?)#endif /\* {part} \*/\n\n", re.DOTALL)
        text = section.sub(rf"#define NAME_{part}\n\1\n" if wanted else "", text)
    return re.sub(r"NAME(?=_)", name, text)


def _template(name: str) -> str:
    return files("codegen").joinpath(name).read_text(encoding="utf-8")


def _embedded(name: str, weights: bytes) -> bytes:
    """A C file with the weights as an array of words of 8 bytes."""
    words = np.frombuffer(weights, "<u8").tolist()
    lines = (", ".join(f"0x{word:x}" for word in words[k : k + 8]) for k in range(0, len(words), 8))
    text = ",\n    ".join(lines) or "0"
    aligned = "#ifdef __GNUC__\n__attribute__((aligned(64)))\n#else\n_Alignas(64) /* C11 */\n#endif"
    return f"#include <stdint.h>\n\n{aligned}\nconst uint64_t {name}_weights[] = {{\n    {text}}};\n".encode()


def _meaning(tensor: Tensor) -> tuple[str, str]:
    """Scale and zero point of an input or output, as C; 0 where its elements are numbers themselves."""
    by = tensor.quantization
    if by is None:
        return ("0", "0")
    return (f"{float(by.scale[0]).hex()}f", str(by.zero_point[0]))
