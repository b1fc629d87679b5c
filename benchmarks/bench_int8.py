"""Networks in int8, compiled, against ONNX Runtime and OpenVINO on the same QDQ file: bits, quanta, time.

    python benchmarks/bench_int8.py [--networks ...] [--forms ...] [--models FILE ...] [--threads 1 2]
        [--rounds 15] [--json FILE]

Networks of the zoo, their weights drawn at random, are quantised by ONNX Runtime from random images, in each
of the forms of `FORMS`; --models takes QDQ files as they are, from whatever quantiser. Every engine gets a
file that takes integers and gives integers: Q at inputs and DQ at outputs are taken off, so that nobody is
timed at floats (OpenVINO, which refuses int8 as inputs of convolutions, then gets the file with them).

Every engine runs in a process of its own (threads of ONNX Runtime spin on after a run), one at a time, a few
runs in each round; the least time counts: CPU time on one thread, wall time on several. `x` is how many times
longer than ours. `bits`: ours equal the reference's; the others' columns say by how many steps outputs differ
at most, and which share of them does.

    pip install onnxruntime openvino
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import geometric_mean, say
from benchmarks.results import Sheet, add_option
from lfopt import zoo
from lfopt.app.compiled import compile_graph
from lfopt.app.pipeline import load_network
from lfopt.app.quantization.runtime import write_quantized
from lfopt.app.random_values import random_inputs
from lfopt.frontend import from_model
from lfopt.ir import Graph, Operator
from lfopt.ops.reference import reference
from lfopt.rewrite import simplify

NETWORKS = ("mobilenet_v2", "efficientnet_b0", "resnet18", "resnet50")
FORMS = {  # of ONNX Runtime's quantiser: per channel?, type of maps, type of weights, are weights symmetric?
    "per-channel": (True, "QUInt8", "QInt8", True),
    "signed": (True, "QInt8", "QInt8", True),
    "per-tensor": (False, "QUInt8", "QInt8", True),
    "asymmetric": (False, "QUInt8", "QUInt8", False),
}
PEERS = {"onnxruntime": "ORT", "openvino": "OpenVINO"}
OURS = "lfopt"
SAMPLES = 3  # random images that scales come from
WARM, RUNS = 2, 6  # of a round
Run = Callable[[], Sequence[np.ndarray]]
Row = dict[str, Any]


def main() -> None:
    """Quantise, compare and time; print a table for each number of threads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks",
        nargs="*",
        choices=zoo.names(),
        default=list(NETWORKS),
        metavar="NAME",
        help="of the zoo (default: %(default)s)",
    )
    parser.add_argument(
        "--forms",
        nargs="*",
        choices=list(FORMS),
        default=list(FORMS),
        help="in which they are quantised (default: all)",
    )
    parser.add_argument(
        "--models", nargs="*", type=Path, default=[], metavar="FILE", help="QDQ files as well"
    )
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="a table for each (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=15, help="of each engine (default %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--worker", nargs=3, metavar=("ENGINE", "FOLDER", "THREADS"), help=argparse.SUPPRESS)
    add_option(parser)
    options = parser.parse_args()
    if options.worker:
        _serve(*options.worker)
        return
    wanted = [OURS, *(name for name in PEERS if _installed(name))]
    rows: list[Row] = []
    sheet = Sheet("int8", options.results)
    with tempfile.TemporaryDirectory() as folder:
        for case in _subjects(options, Path(folder)):
            for threads in options.threads:
                rows.append(_row(case, wanted, threads, options.rounds))
                say(
                    f"{case.network}, {case.form}, {threads} threads: "
                    f"{json.dumps({name: rows[-1].get(name) for name in wanted})}"
                )
    for threads in options.threads:
        sheet.show(_table([row for row in rows if row["threads"] == threads], threads, wanted[1:]))
    sheet.keep(", ".join(f"{PEERS[name]} {version(name)}" for name in wanted[1:]))
    sheet.write()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        say(f"{name}: skipped; accepted: pip install {name}")
        return False
    return True


# -- networks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Int8Case:
    """A quantised network in a folder: `model.onnx`, `inputs.npz` and `expected.npz`.

    Arrays are integers, in the order of the file.
    """

    network: str
    form: str
    folder: Path


def _subjects(options: argparse.Namespace, folder: Path) -> Iterator[Int8Case]:
    for network in options.networks:
        graph = (
            _plainly_pooled(simplify(from_model(zoo.build(network), name=network))) if options.forms else None
        )
        for form in options.forms:
            assert graph is not None
            yield _prepared(
                Int8Case(network, form, folder / f"{network}-{form}"), _quantised(graph, form, folder)
            )
    for path in options.models:
        network, _, form = path.stem.partition(".")
        yield _prepared(Int8Case(network, form, folder / path.stem), onnx.load(path))


def _plainly_pooled(graph: Graph) -> Graph:
    """The graph with GlobalAveragePool for windows larger than the map, which OpenVINO does not read."""

    def plain(operator: Operator) -> Operator:
        kernel = operator.attributes.get("kernel_shape")
        larger = (
            operator.kind == "AveragePool"
            and kernel != (1, 1)
            and graph.shape(operator.outputs[0])[2:] == (1, 1)
        )
        return replace(operator, kind="GlobalAveragePool", attributes={}) if larger else operator

    return replace(graph, operators=tuple(map(plain, graph.operators)))


def _quantised(graph: Graph, form: str, folder: Path) -> ModelProto:
    """As ONNX Runtime quantises it, with its own choice of operators."""
    tools: Any = import_module("onnxruntime.quantization")  # workers of other engines do without it
    per_channel, maps, weights, symmetric = FORMS[form]
    rng = np.random.default_rng(1)
    samples, path = [random_inputs(graph, rng) for _ in range(SAMPLES)], folder / "quantised.onnx"
    write_quantized(
        tools,
        graph,
        samples,
        path,
        per_channel=per_channel,
        activation_type=tools.QuantType[maps],
        weight_type=tools.QuantType[weights],
        extra_options={"WeightSymmetric": symmetric},
    )
    return onnx.load(path)


def _prepared(subject: Int8Case, model: ModelProto) -> Int8Case:
    """With everything that the engines need in its folder."""
    subject.folder.mkdir()
    onnx.save(model, subject.folder / "reals.onnx")
    onnx.save(_on_integers(model), subject.folder / "model.onnx")
    graph = _graph(subject.folder)
    codes = {
        role: [_code(graph, name) for name in names]
        for role, names in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }
    (subject.folder / "codes.json").write_text(json.dumps(codes))
    inputs = random_inputs(graph, np.random.default_rng(2))
    expected = reference(graph, inputs)
    for file, arrays in (
        ("inputs", [inputs[name] for name in graph.inputs]),
        ("expected", [expected[name] for name in graph.outputs]),
    ):
        np.savez(subject.folder / f"{file}.npz", *arrays)
    return subject


def _code(graph: Graph, name: str) -> tuple[float, int]:
    """Scale and zero point."""
    by = graph.tensors[name].quantization
    assert by is not None, f"{name} is not quantised"
    return by.scale[0], by.zero_point[0]


def _on_integers(model: ModelProto) -> ModelProto:
    """Without the Q that alone read inputs and the DQ that make outputs: these are integers."""
    graph = model.graph
    types = {t.name: t.data_type for t in graph.initializer}
    types |= {
        node.output[0]: a.t.data_type
        for node in graph.node
        if node.op_type == "Constant"
        for a in node.attribute
        if a.name == "value"
    }
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for value in graph.input:
        first = readers.get(value.name, [])
        if len(first) == 1 and first[0].op_type == "QuantizeLinear":
            value.name, value.type.tensor_type.elem_type = first[0].output[0], types[first[0].input[2]]
            graph.node.remove(first[0])
    makers = {name: node for node in graph.node for name in node.output}
    for value in graph.output:
        last = makers[value.name]
        if last.op_type == "DequantizeLinear" and value.name not in readers and last.input[2] in types:
            graph.node.remove(last)
            source = last.input[0]
            while makers[source].op_type == "Cast":  # PyTorch's, between Q and DQ
                graph.node.remove(makers[source])
                source = makers[source].input[0]
            value.name, value.type.tensor_type.elem_type = source, types[last.input[2]]
    del graph.value_info[:]
    return model


def _graph(folder: Path) -> Graph:
    return load_network(folder / "model.onnx", {}, "default")


def _arrays(path: Path) -> list[np.ndarray]:
    with np.load(path) as archive:
        return [archive[f"arr_{k}"] for k in range(len(archive.files))]


# -- engines, each in a process of its own -------------------------------------------------------------------


def _serve(engine: str, folder: str, threads: str) -> None:
    """Print the distance of outputs from the reference; then, per line on stdin, seconds of some runs."""
    clock = time.process_time if int(threads) == 1 else time.perf_counter
    run = ENGINES[engine](Path(folder), _arrays(Path(folder) / "inputs.npz"), int(threads))
    print(json.dumps(_compared(run(), _arrays(Path(folder) / "expected.npz"))), flush=True)
    for _ in sys.stdin:
        for _ in range(WARM):
            run()
        seconds: list[float] = []
        for _ in range(RUNS):
            start = clock()
            run()
            seconds.append(clock() - start)
        print(json.dumps(seconds), flush=True)


def _compared(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> dict[str, float]:
    distances = [
        np.abs(a.astype(np.int64) - b.astype(np.int64)) for a, b in zip(outputs, expected, strict=True)
    ]
    return {
        "most": max(int(a.max()) for a in distances),
        "share": float(np.mean([np.mean(a > 0) for a in distances])),
    }


def _ours(folder: Path, inputs: Sequence[np.ndarray], threads: int) -> Run:
    graph = _graph(folder)
    model, _ = compile_graph(graph, threads=threads)
    values = dict(zip(graph.inputs, inputs, strict=True))
    return lambda: [*model.run(values).values()]


def _onnxruntime(folder: Path, inputs: Sequence[np.ndarray], threads: int) -> Run:
    onnxruntime: Any = import_module("onnxruntime")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads, settings.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), settings, providers=["CPUExecutionProvider"]
    )
    values = {value.name: array for value, array in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, values)


def _openvino(folder: Path, inputs: Sequence[np.ndarray], threads: int) -> Run:
    openvino: Any = import_module("openvino")
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    codes = json.loads((folder / "codes.json").read_text())
    try:
        network: Any = openvino.Core().compile_model(str(folder / "model.onnx"), "CPU", settings)
    except RuntimeError:
        network = openvino.Core().compile_model(str(folder / "reals.onnx"), "CPU", settings)
        inputs = [
            ((x.astype(np.int32) - zero) * scale).astype(np.float32)
            for x, (scale, zero) in zip(inputs, codes["inputs"], strict=True)
        ]
    values = dict(enumerate(inputs))

    def run() -> list[np.ndarray]:
        outputs = network(values).to_tuple()
        return [
            np.rint(y / scale + zero) if y.dtype.kind == "f" else y
            for y, (scale, zero) in zip(outputs, codes["outputs"], strict=True)
        ]

    return run


ENGINES: dict[str, Callable[[Path, Sequence[np.ndarray], int], Run]] = {
    OURS: _ours,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


# -- the other side ------------------------------------------------------------------------------------------


class Int8Engine:
    """A worker: an engine with a network, in its own process."""

    def __init__(self, name: str, folder: Path, threads: int) -> None:
        command = [sys.executable, __file__, "--worker", name, str(folder), str(threads)]
        environment = os.environ | {"PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.times: list[float] = []
        self.apart: dict[str, float] | None = self._answer()

    def __enter__(self) -> Int8Engine:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def round(self) -> None:
        """Some runs."""
        assert self.process.stdin is not None
        if self.apart is not None:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            self.times += self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None


def _row(subject: Int8Case, wanted: Sequence[str], threads: int, rounds: int) -> Row:
    with ExitStack() as stack:
        engines = {name: stack.enter_context(Int8Engine(name, subject.folder, threads)) for name in wanted}
        for _ in range(rounds):
            for engine in engines.values():
                engine.round()
        row: Row = {"network": subject.network, "form": subject.form, "threads": threads}
        for name, engine in engines.items():
            if engine.apart is None:
                say(f"{subject.network}, {subject.form}: {name} does not take it")
                continue
            ms = 1e3 * np.array(engine.times)
            row[name] = {**engine.apart, "least": float(ms.min()), "median": float(np.median(ms))}
        return row


def _table(rows: Sequence[Row], threads: int, peers: Sequence[str]) -> Table:
    title = (
        f"{threads} thread{'s' if threads > 1 else ''}: ms ({'wall' if threads > 1 else 'CPU'} time), "
        "the least and the median"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for head in (
        "network",
        "form",
        "bits",
        "ours",
        *(h for name in peers for h in (PEERS[name], "x", "off by", "of")),
    ):
        table.add_column(head, justify="left" if head in ("network", "form", "bits") else "right")
    for row in rows:
        ours = row.get(OURS)
        if ours is None:
            continue
        cells = [
            "equal" if ours["most"] == 0 else f"off by {ours['most']}",
            f"{ours['least']:.2f} {ours['median']:.2f}",
        ]
        for name in peers:
            other = row.get(name)
            cells += ["", "", "", ""] if other is None else [
                f"{other['least']:.2f} {other['median']:.2f}", f"{other['least'] / ours['least']:.2f}",
                f"{other['most']}", f"{other['share']:.0%}",
            ]  # fmt: skip
        table.add_row(row["network"], row["form"], *cells)
    for form in (*dict.fromkeys(row["form"] for row in rows), ""):  # each alone, then all
        members = [row for row in rows if OURS in row and form in ("", row["form"])]
        cells: list[str] = []
        for name in peers:
            ratios = [row[name]["least"] / row[OURS]["least"] for row in members if name in row]
            cells += ["", f"{geometric_mean(ratios):.2f}" if ratios else "", "", ""]
        table.add_row("geometric mean", form, "", "", *cells)
    return table


if __name__ == "__main__":
    main()
