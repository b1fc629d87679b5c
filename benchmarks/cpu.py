"""Networks, plans with more and less fusion, code built from them, inputs: for benchmarks of C on CPUs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.results import add_option
from codegen.build import Built, build, find_compiler, write_source
from codegen.elements import ElementName
from codegen.emit import emit_c
from codegen.runtime import Compiled
from codegen.source import CSource
from lfopt import zoo
from lfopt.app.compiled import cpu_costs, cpu_model, image_by_image
from lfopt.app.plans import make_draft, write_files
from lfopt.app.profiles import latency_here
from lfopt.app.sizes import parse_shapes
from lfopt.frontend import from_model, load
from lfopt.ir import Graph, Hardware, InvalidConfig, LfoptError, MissingValues, Plan
from lfopt.planning.costs.baselines import epilogue_groups
from lfopt.rewrite import simplify
from search.dnnfusion import grow_blocks
from search.dp import solve_by_types
from search.exact import solve
from search.options import SearchOptions
from search.result import Result
from search.tvm import fuse_by_patterns

MOBILE = ("efficientnet_b0", "efficientnet_b3", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_large")
CLASSIC = ("resnet18", "resnet50", "squeezenet1_1", "vgg16")
NETWORKS = MOBILE + CLASSIC
TRANSFORMERS = ("vit_tiny", "bert_base", "gpt2")
FAMILIES = ("mobile", "classic", "transformers")  # as the tables have them
PLANS = ("exact", "epilogue", "alone")  # what fusion itself brings
SEARCH_SECONDS = 60.0
PAUSE = 0.03  # seconds
SLOW, TURNS = 0.5, 3  # an engine that takes longer, in seconds, has so many turns
Run = Callable[[], list[np.ndarray]]  # one inference: the outputs in the graph's order
# operators whose result is token ids where their operand is
PASSING = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True)
class BenchmarkNetwork:
    """A network to measure, not read yet."""

    name: str
    file: Path | None  # None: of the zoo
    shapes: dict[str, tuple[int, ...]]  # of inputs, by name

    def graph(self) -> Graph:
        """The network, simplified. Raises MissingValues where weights are absent."""
        if self.file is None:
            return simplify(from_model(zoo.build(self.name), self.shapes, name=self.name))
        loaded = load(self.file, self.shapes)
        if not loaded.has_values:
            raise MissingValues(f"{self.file}: weights are absent; accepted: a model with weights")
        return simplify(loaded)


def add_options(parser: argparse.ArgumentParser, networks: Sequence[str] = NETWORKS) -> None:
    """Options that say what to measure."""
    default = f"of the zoo (default: {', '.join(networks)})"
    parser.add_argument(
        "--networks", nargs="*", choices=zoo.names(), default=list(networks), metavar="NAME", help=default
    )
    parser.add_argument(
        "--model", type=Path, nargs="+", default=[], metavar="FILE", help="ONNX files with weights as well"
    )
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="all ONNX files of a folder as well")
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=[],
        metavar="INPUT=1,128",
        help="of inputs of the files, where they are symbolic",
    )
    parser.add_argument("--buffer", default="1MiB", help="that fusion groups may fill (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    add_option(parser)


def subjects(options: argparse.Namespace) -> list[BenchmarkNetwork]:
    """What the options name."""
    shapes = parse_shapes(tuple(options.shapes))
    files = [*options.model, *(sorted(options.models.glob("*.onnx")) if options.models else [])]
    return [
        *(BenchmarkNetwork(name, None, {}) for name in options.networks),
        *(BenchmarkNetwork(file.stem, file, shapes) for file in files),
    ]


def graphs(options: argparse.Namespace) -> Iterator[Graph]:
    """Every network that the options name and that can be read; a line about each that cannot."""
    for subject in subjects(options):
        try:
            yield subject.graph()
        except (LfoptError, OSError) as error:
            say(f"{subject.name}: skipped: {error}")


def say(line: str) -> None:
    """One line to stderr: what is skipped, and why."""
    sys.stderr.write(line.replace("\n", " ") + "\n")


def family(graph: Graph) -> str:
    """Which geometric mean a network counts for.

    Depthwise convolutions make it mobile, normalization of layers a transformer.
    """
    kinds = {operator.kind for operator in graph.operators}
    if "LayerNormalization" in kinds or ("Softmax" in kinds and "Conv" not in kinds):
        return "transformers"
    grouped = any(
        operator.kind == "Conv" and operator.attributes.get("group", 1) != 1 for operator in graph.operators
    )
    return "mobile" if grouped else "classic"


def geometric_mean(ratios: Sequence[float]) -> float:
    """Geometric mean.

    >>> geometric_mean([1.0, 4.0])
    2.0
    """
    return prod(ratios) ** (1 / len(ratios))


def feeds(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs by name: floats normal, token ids random below the vocabulary, other integers (masks) one."""
    tables = _tables(graph)
    arrays: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if np.dtype(tensor.dtype).kind == "f":
            arrays[name] = rng.standard_normal(tensor.shape).astype(tensor.dtype)
        elif name in tables:
            arrays[name] = rng.integers(0, tables[name], tensor.shape).astype(tensor.dtype)
        else:
            arrays[name] = np.ones(tensor.shape, tensor.dtype)
    return arrays


def _tables(graph: Graph) -> dict[str, int]:
    """Inputs that are looked up in a table of embeddings, and how many rows it has."""
    origin = {name: name for name in graph.inputs}
    rows_of: dict[str, int] = {}
    for operator in graph.operators:
        if operator.kind in PASSING and operator.inputs[0] in origin:
            origin[operator.outputs[0]] = origin[operator.inputs[0]]
        elif (
            operator.kind == "Gather"
            and operator.inputs[0] in graph.constants
            and operator.inputs[1] in origin
        ):
            name, rows = origin[operator.inputs[1]], graph.shape(operator.inputs[0])[0]
            rows_of[name] = min(rows, rows_of.get(name, rows))
    return rows_of


class PlannedFolder(NamedTuple):
    """A plan of one image, and the folder that holds it with its model."""

    plan: Plan
    folder: Path
    graph: Graph  # of one image
    images: int  # that the network is for, one by one


class Code(NamedTuple):
    """A plan as C, compiled."""

    source: CSource
    built: Built

    def loaded(self) -> Compiled:
        """For use from Python."""
        return Compiled(self.built.library, self.source.name, self.weights)

    @property
    def weights(self) -> Path:
        """File of the weights."""
        return self.built.library.parent / "weights.bin"


def planned(
    graph: Graph, kinds: Sequence[str], buffer_bytes: int, folder: Path, element: ElementName = "float32"
) -> dict[str, PlannedFolder]:
    """Plans by kind.

    `exact` has the least traffic, `epilogue` epilogue fusion alone, `alone` no fusion; `tvm`, `dnnfusion`
    (doubtful pairs as measured on this machine) and `dp` fuse as compilers do.
    """
    each, images = image_by_image(graph)
    costs = cpu_costs(each, Hardware(buffer_bytes, element_bytes=4), element)
    groups = {
        "exact": lambda: (
            solve(cpu_model(costs, element=element), SearchOptions(time_limit=SEARCH_SECONDS)).groups
        ),
        "dp": lambda: solve_by_types(cpu_model(costs), SearchOptions(time_limit=SEARCH_SECONDS)).groups,
        "dnnfusion": lambda: grow_blocks(cpu_model(costs), SearchOptions(latency=latency_here(costs))).groups,
        "tvm": lambda: fuse_by_patterns(cpu_model(costs)).groups,
        "epilogue": lambda: epilogue_groups(costs),
        "alone": lambda: tuple(1 << i for i in range(len(costs.dataflow))),
    }
    plans: dict[str, PlannedFolder] = {}
    for kind in kinds:
        if kind not in groups:
            raise InvalidConfig(f"plan: found {kind!r}; accepted: {', '.join(groups)}")
        result = Result(kind, groups[kind](), 0, 0, 0, 0, 0.0)
        plan = write_files(make_draft(each, costs, result, 0).finished(), each, folder / kind)
        plans[kind] = PlannedFolder(plan, folder / kind, each, images)
    return plans


def compiled(
    planned_folder: PlannedFolder, target: str = "native", threads: int = 1, element: ElementName = "float32"
) -> Code:
    """The plan as C, written and built in a folder of its own.

    Raises Unsupported where C cannot be printed.
    """
    folder = planned_folder.folder / f"{target}-{threads}"
    source = emit_c(
        planned_folder.plan,
        planned_folder.graph,
        target,
        threads=threads,
        element=element,
        images=planned_folder.images,
    )
    write_source(source, folder)
    return Code(source, build(source, folder, find_compiler()))


def ours(code: Code, values: dict[str, np.ndarray]) -> Run:
    """Inferences of a compiled plan."""
    model = code.loaded()
    return lambda: list(model.run(values).values())


def timed(engines: dict[str, Run], runs: int, first: str) -> dict[str, dict[str, Any]]:
    """Engine -> median and least ms of interleaved runs, turns it had, error.

    The error is the largest difference from engine `first`, over the largest output of that.
    """
    expected = engines[first]()
    rows: dict[str, dict[str, Any]] = {}
    for name, run in engines.items():
        outputs = run()
        start = time.perf_counter()
        run()
        rounds = runs if time.perf_counter() - start < SLOW else min(runs, TURNS)
        rows[name] = {
            "turns": rounds,
            "error": max(_error(*pair) for pair in zip(outputs, expected, strict=True)),
            "ms": [],
        }
    for turn in range(runs):
        for name, run in engines.items():
            if turn < rows[name]["turns"]:
                time.sleep(PAUSE)
                run()
                start = time.perf_counter()
                run()
                rows[name]["ms"].append(1e3 * (time.perf_counter() - start))
    return {name: {**row, "ms": median(row["ms"]), "least ms": min(row["ms"])} for name, row in rows.items()}


def _error(output: np.ndarray, expected: np.ndarray) -> float:
    scale = float(np.abs(expected).max())
    return float(np.abs(output.astype(np.float64) - expected).max()) / (scale or 1.0)


@cache
def peer(name: str) -> Any:
    """The module of another engine; None, and a line that says so, if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        say(f"{name}: skipped: {error}; accepted: pip install {'apache-tvm' if name == 'tvm' else name}")
        return None
