"""Compile a network to a library that Python runs: search a plan for the CPU, print it as C, build, load.

Libraries are kept by content.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, get_args

import numpy as np

from codegen.build import build, compiler_version, find_compiler, write_source
from codegen.elements import ELEMENT, ELEMENTS, ElementName
from codegen.emit import better_whole, emit_c
from codegen.runtime import Compiled
from codegen.source import CSource
from codegen.target import TARGET, THREADS, TargetName
from codegen.target import target as instructions
from lfopt.app.by_shape import CompiledByShape
from lfopt.app.cache import CacheEntry, cache_folder, kept, key_of
from lfopt.app.cache_contents import size_limit, trim
from lfopt.app.config import SearchConfig, find_hardware, load_hardware
from lfopt.app.deadline import ReportProgress
from lfopt.app.options import (
    CPU_HELP,
    INPUT_SHAPES,
    ElementOption,
    TargetOption,
    ThreadsOption,
    TuneOption,
    VerifyOption,
)
from lfopt.app.pipeline import Model, label_of, load_network, run_search
from lfopt.app.plans import make_draft
from lfopt.app.profiles import Profiles, group_times, this_machine, tuned
from lfopt.app.pytorch import CompiledModule, TorchModel
from lfopt.app.random_values import random_inputs
from lfopt.app.sizes import looks_like_a_size, size_option
from lfopt.frontend import InputShapes
from lfopt.fusion import Adapted, CostModel, Floor
from lfopt.ir import Cost, Graph, Hardware, InvalidConfig, MissingValues, OpenShape, Plan
from lfopt.ir.names import one_line
from lfopt.ops import Dataflow, Family, bits, spec
from lfopt.ops.flight import attending
from lfopt.planning import GroupCosts, Propose
from lfopt.rewrite.images import one_image
from search.result import Result

# half of a common L2 cache; weights stream through the other half
CPU = Hardware(1 << 20, element_bytes=4, name="cpu")
SEARCH_SECONDS = 60.0  # the best plan by then is taken
WEIGHTS = "weights.bin"


def compile_model(
    model: Model | Graph,
    *,
    threads: ThreadsOption = THREADS,
    target: TargetOption = TARGET,
    hardware: Annotated[Hardware | str | os.PathLike[str], CPU_HELP] = CPU,
    input_shapes: Annotated[InputShapes | None, INPUT_SHAPES] = None,
    element: ElementOption = ELEMENT,
    tune: TuneOption = False,
    verify: VerifyOption = False,
) -> Compiled | CompiledByShape | CompiledModule:
    """A network, compiled for this machine.

    `lfopt.compile("m.onnx")(x)` gives its output, `.run({"x": x})` all outputs by name. Takes seconds to
    minutes the first time, and is kept in ~/.cache/lfopt by content. `model` is an ONNX file with weights,
    zoo:NAME, an `onnx.ModelProto`, a `torch.nn.Module` (called with its own arguments; compiled when these
    are new), a `torch.export.ExportedProgram`, or a Graph, which is taken as it is. `input_shapes`: lists or
    tuples by input, whole numbers by named dimension. Where the file leaves shapes open and none are given,
    those of the arrays of each run count: there is a program for each of the last eight. `hardware` may be a
    file, such as `lfopt hw detect` writes, the name of an installed one, or the size of its buffer, such as
    "1MiB". `element`: bf16 stores maps and weights of a float32 network in bfloat16, and accumulates in
    float32. `tune`: see `plan_for_cpu`. `verify`: read what is kept from end to end; otherwise samples of its
    weights are enough. Raises InvalidConfig for options that are not accepted, and what `compile_graph`
    raises.
    """
    chip = chip_of(hardware)
    check_options(target, threads, element)
    if isinstance(model, Graph) and input_shapes:
        raise InvalidConfig("input_shapes: found some with a Graph, whose shapes are known; accepted: none")
    label = one_line(model.name if isinstance(model, Graph) else label_of(model))

    def compile_shapes(model: Model | Graph, shapes: InputShapes | None = None) -> Compiled:
        graph = model if isinstance(model, Graph) else load_network(model, shapes, "default")
        return compile_graph(
            graph,
            threads=threads,
            target=target,
            hardware=chip,
            element=element,
            label=label,
            tune=tune,
            verify=verify,
        )[0]

    if isinstance(model, TorchModel):
        if not input_shapes and (
            by_call := import_module("lfopt.app.pytorch.module").by_call(model, compile_shapes)
        ):
            return by_call
        model = import_module("lfopt.app.pytorch.export").to_onnx(model, input_shapes)
    try:
        return compile_shapes(model, input_shapes)
    except OpenShape:
        assert not isinstance(model, Graph | TorchModel), "shapes of a Graph are known"
        return CompiledByShape(model, label, partial(compile_shapes, model), input_shapes or {})


def chip_of(hardware: Hardware | str | os.PathLike[str]) -> Hardware:
    """A hardware description, from its file, the name of an installed one, or the size of a CPU's buffer.

    Raises InvalidConfig.
    """
    if isinstance(hardware, Hardware):
        return hardware
    if not isinstance(hardware, str | os.PathLike):
        raise InvalidConfig(
            f"hardware: found {type(hardware).__name__}; accepted: a lfopt.Hardware, or the name of a file"
        )
    if isinstance(hardware, str) and looks_like_a_size(hardware):
        return replace(CPU, buffer_bytes=size_option(hardware, "hardware"))
    return load_hardware(find_hardware(os.fspath(hardware), "hardware"))


def compile_graph(
    graph: Graph,
    *,
    threads: int = THREADS,
    target: TargetName = TARGET,
    hardware: Hardware = CPU,
    element: ElementName = ELEMENT,
    label: str = "model",
    report: ReportProgress | None = None,
    tune: bool = False,
    verify: bool = False,
) -> tuple[Compiled, bool]:
    """(compiled network, whether it was in the cache).

    What is in the cache is checked by samples of its weights; with `verify`, it is read from end to end.
    Raises as `check_options`; MissingValues for a network without weights, Unsupported for what C cannot be
    printed of, KeyboardInterrupt where Ctrl-C ends the search.
    """
    check_options(target, threads, element)
    _check_values(graph, label)
    compiler = find_compiler(os.environ.get("CC"))
    report = report or (lambda what, done: None)

    def make(folder: Path) -> dict[str, str]:
        tuning = Tuning(target, threads, compiler, report, element) if tune else None
        image_graph, images = image_by_image(graph)
        plan = plan_for_cpu(image_graph, hardware, target, report, tuning, element)
        report("printing C", 0.0)
        source = emit_c(plan, image_graph, target, threads=threads, element=element, images=images)
        write_source(source, folder)
        report("compiling", 0.0)
        library = build(source, folder, compiler, os.cpu_count() or 1).library
        for path in folder.iterdir():
            if path.name not in (library.name, WEIGHTS):
                path.unlink()  # `lfopt codegen` writes the C for people
        how = ", ".join(
            [
                target,
                *([f"{threads} threads"] if threads > 1 else []),
                *([element] if element != "float32" else []),
            ]
        )
        figures = {"groups": str(len(plan.groups)), "dram_bytes": str(plan.totals.dram_bytes * images)}
        return {"network": graph.name, "target": how, "name": source.name, "library": library.name, **figures}

    def opened(folder: Path, entry: CacheEntry) -> Compiled:
        library = folder / entry.facts["library"]
        figures = {name: int(entry.facts[name]) for name in ("groups", "dram_bytes")}
        real = [name for name in (*graph.inputs, *graph.outputs) if graph.held(name) is not None]
        name = entry.facts["name"]
        return Compiled(library, name, folder / WEIGHTS, graph.labels, real_ends=real, **figures)

    machine = this_machine() if target == "native" else platform.machine()
    key = key_of(
        graph, hardware, target, threads, element, tune, compiler, compiler_version(compiler), machine
    )
    root = cache_folder()
    limit = size_limit()
    compiled, was_kept = kept(key, root, "model", make, opened, sampled=(WEIGHTS,), verify=verify)
    if not was_kept:
        trim(root, limit, key)
    return compiled, was_kept


def print_graph(
    graph: Graph,
    *,
    threads: int = THREADS,
    target: TargetName = TARGET,
    hardware: Hardware = CPU,
    element: ElementName = ELEMENT,
    label: str = "model",
) -> CSource:
    """What `compile_graph` would compile. Refuses what it refuses; needs no compiler, and keeps nothing."""
    check_options(target, threads, element)
    _check_values(graph, label)
    image_graph, images = image_by_image(graph)
    return emit_c(
        plan_for_cpu(image_graph, hardware, target, element=element),
        image_graph,
        target,
        threads=threads,
        element=element,
        images=images,
    )


def image_by_image(graph: Graph) -> tuple[Graph, int]:
    """(network of one image, images); (the network as it is, 1) where it does not treat every image alone.

    Networks without convolutions and pooling stay as they are too: matrix products load their weights once
    for all rows of a batch.
    """
    if not any(
        spec(operator.kind, operator.domain).family in (Family.CONVOLUTION, Family.POOL)
        for operator in graph.operators
    ):
        return graph, 1
    split = one_image(graph)
    if isinstance(split, str):
        return (graph, 1)
    return split


def check_options(target: str, threads: int, element: str = ELEMENT) -> None:
    """Check the options of a compilation.

    Raises InvalidConfig for an unknown target, number of threads or element type; Unsupported for an element
    type that the target has no instructions for.
    """
    if not isinstance(target, str) or target not in get_args(TargetName):
        raise InvalidConfig(f"target: found {_shown(target)}; accepted: {', '.join(get_args(TargetName))}")
    if not isinstance(threads, int) or threads < 1:
        raise InvalidConfig(f"threads: found {_shown(threads)}; accepted: a whole number of at least 1")
    if not isinstance(element, str) or element not in get_args(ElementName):
        raise InvalidConfig(f"element: found {_shown(element)}; accepted: {', '.join(get_args(ElementName))}")
    instructions(target, element)


def _shown(value: object) -> str:
    """An option that may be anything, in one line."""
    if isinstance(value, str | int | float):
        return one_line(repr(value))[:80]
    return type(value).__name__


def _check_values(graph: Graph, label: str) -> None:
    """Check that every weight has values. Raises MissingValues."""
    if not graph.has_values:
        absent = next(name for name, value in graph.constants.items() if value is None)
        raise MissingValues(f"{label}: constant {absent!r} has no values; give a model with weights")


def cpu_costs(graph: Graph, hardware: Hardware, element: ElementName = ELEMENT) -> GroupCosts:
    """What groups cost on a CPU.

    Elements of a quantised network are bytes, those of bf16 two, whatever the hardware description says.

    Scheme lbdf, whose rings the C follows; for networks without convolutions resident: rows of [B, S, D] are
    single tokens, and a product with a matrix wants many. In both, attention is one operator, of which C
    makes one kernel.
    """
    size = 1 if graph.quantized else ELEMENTS[element].bytes
    short = graph.quantized or element != "float32"
    if short:
        chip = replace(hardware, element_bytes=size, weight_bytes=size, weight_bits=None, bias_bytes=4)
    else:
        chip = hardware
    flow = attending(Dataflow.of(graph))
    return GroupCosts(
        flow,
        chip,
        scheme="lbdf"
        if any(row.family is Family.CONVOLUTION and not row.transposed for row in flow.specs)
        else "resident",
    )


class _WholeMaps(Adapted[Floor]):
    """A cost model in which some operators begin a group of their own, with nothing but an epilogue."""

    def __init__(self, model: CostModel[Floor], whole_maps: int, is_epilogue: Callable[[int], bool]) -> None:
        """`whole_maps`: the mask of those operators."""
        super().__init__(model)
        self.whole_maps = whole_maps
        self.is_epilogue = is_epilogue

    @property
    def simpler(self) -> CostModel | None:
        """The same of the simpler model."""
        simpler = self.model.simpler
        if simpler is None:
            return None
        return _WholeMaps(simpler, self.whole_maps, self.is_epilogue)

    def price(self, group: int, /) -> Cost | None:
        """Cost of a group; None where one of these is not the first, or more than its epilogue follows it."""
        if (
            group & self.whole_maps
            and group & (group - 1)
            and (not group & -group & self.whole_maps or not self.is_epilogue(group))
        ):
            return None
        return self.model.price(group)


def cpu_model(costs: GroupCosts, target: str = TARGET, element: ElementName = ELEMENT) -> CostModel:
    """The cost model of the CPU: operators better computed as whole maps begin groups of their own.

    Nothing but their epilogue joins them.
    """
    whole_maps = 0 if costs.scheme == "resident" else better_whole(costs.dataflow, target, element)
    flow = costs.dataflow
    epilogue = costs.groups.is_epilogue_group

    def joins(group: int) -> bool:
        """Whether one kernel runs the group: the first operator's, and on integers tables of its results."""
        results = {m for i in bits(group) for m in flow.results[i]}
        behind = group & (group - 1)
        return epilogue(group) and (
            not flow.graph.quantized or all(o.map in results for i in bits(behind) for o in flow.operands[i])
        )

    if whole_maps:
        return _WholeMaps(costs, whole_maps, joins)
    return costs


def plan_for_cpu(
    graph: Graph,
    hardware: Hardware,
    target: TargetName = TARGET,
    report: ReportProgress | None = None,
    tuning: Tuning | None = None,
    element: ElementName = ELEMENT,
) -> Plan:
    """The plan of least DRAM traffic (see `cpu_costs` and `cpu_model`).

    Groups run row by row, which loses next to nothing against higher bands on one thread; with `tuning`, in
    the bands that are fastest when measured. Raises KeyboardInterrupt where Ctrl-C ends the search: half of a
    search is not to be kept.
    """
    costs = cpu_costs(graph, hardware, element)
    searched = run_search(
        costs, SearchConfig(time_limit=SEARCH_SECONDS), model=cpu_model(costs, target, element), report=report
    )
    if searched.interrupted:
        raise KeyboardInterrupt  # what is kept for the next time is not to be of half a search
    bands = _fastest_bands(graph, costs, searched, tuning) if tuning else None
    draft = make_draft(graph, costs, searched, searched.lower_bound_bytes, bands=bands)
    return draft.finished_with_all_steps()


@dataclass(frozen=True)
class Tuning:
    """How groups are compiled whose bands are chosen by measuring."""

    target: str
    threads: int
    compiler: tuple[str, ...]
    report: ReportProgress
    element: ElementName = ELEMENT


def _fastest_bands(graph: Graph, costs: GroupCosts, searched: Result, how: Tuning) -> Propose:
    values = random_inputs(graph, np.random.default_rng(0))

    def timed(bands: Propose) -> list[float]:
        how.report("measuring bands", 0.0)
        plan = make_draft(graph, costs, searched, searched.lower_bound_bytes, bands=bands).finished()
        return group_times(plan, graph, how.target, how.threads, how.compiler, values, how.element)

    kept = Profiles.here(
        how.target if how.element == "float32" else f"{how.target} {how.element}", how.threads, how.compiler
    )
    return tuned(costs, searched.groups, kept, timed)
