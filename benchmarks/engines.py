"""Libraries side by side, each in a process of its own (`benchmarks/worker.py`).

A process is stopped while it is not its turn, so that no threads of others spin.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

from benchmarks.cpu import PlannedFolder, compiled, say
from benchmarks.peers import PEERS, WORKER, installed, interpreter
from codegen.elements import ElementName
from lfopt.app.agreement import exactly
from lfopt.frontend import save
from lfopt.ir import Graph, LfoptError

PATIENCE = 300.0  # seconds until a library that does not answer is given up
TIMES = 3  # runs in a turn, at most
Arrays = dict[str, np.ndarray]


class Refused(LfoptError):
    """A library does not take the network, or ends."""


@dataclass(frozen=True)
class EngineTimes:
    """Times of one engine in milliseconds, and its error."""

    median: float
    least: float
    cpu: float  # median time of all threads
    runs: int
    error: float  # largest difference from the reference in float64, of its largest output
    resident_bytes: int  # of the process, once it has run
    huge_bytes: int  # of these, in huge pages


class EngineProcess:
    """A worker that has loaded a network. Stopped, but while it answers."""

    def __init__(self, library: str, python: Path, scratch: Path) -> None:
        """`python`: of an environment that has the library; `scratch`: an empty folder of its own."""
        self.scratch, self._said = scratch, (scratch / "said").open("w+")
        self._process = subprocess.Popen(
            [python, str(WORKER), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            cwd=scratch,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request. Raises Refused."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None, "they are pipes"
        process.send_signal(signal.SIGCONT)
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            with selectors.DefaultSelector() as wait:
                wait.register(process.stdout, selectors.EVENT_READ)
                if not wait.select(PATIENCE):
                    raise Refused(f"no answer within {PATIENCE:g} s")
            line = process.stdout.readline()
        except BrokenPipeError:  # it has ended
            line = ""
        if not line:
            raise Refused(self._last_words())
        process.send_signal(signal.SIGSTOP)
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer

    def outputs(self) -> list[np.ndarray]:
        """Of one inference."""
        file = self.scratch / "outputs.npz"
        self.ask(do="outputs", file=str(file))
        with np.load(file) as archive:
            return [archive[str(k)] for k in range(len(archive.files))]

    def memory(self) -> tuple[int, int]:
        """Bytes that are resident, and of these in huge pages."""
        lines = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {key: 1024 * int(kib) for key, kib, *_ in map(str.split, lines)}
        return sizes["Rss:"], sizes["AnonHugePages:"] + sizes["FilePmdMapped:"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._said.close()

    def _last_words(self) -> str:
        code = self._process.wait()
        ended = f"it ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with {code}"
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        return f"{ended}: {lines[-1][:200]}" if lines and code > 0 else ended


def absent(names: Sequence[str]) -> list[str]:
    """Libraries that are not installed, each with a line that says so."""
    lacking = [name for name in names if not installed(name)]
    for name in lacking:
        say(f"{name}: skipped: {PEERS[name].version} is not installed; accepted: python benchmarks/peers.py")
    return lacking


def measured(
    graph: Graph,
    values: Arrays,
    plans: Mapping[str, PlannedFolder],
    peers: Sequence[str],
    threads: int,
    rounds: int,
    element: ElementName = "float32",
) -> dict[str, EngineTimes]:
    """Engine -> its figures; a line about each that does not take the network.

    Rounds are interleaved: every engine has a turn in each.
    """
    exact = [value for value in exactly(graph, values).values() if value.dtype.kind == "f"]
    walls: dict[str, list[float]] = {}
    busy: dict[str, list[float]] = {}
    errors: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_engines:
        whole = Path(folder) / "whole.onnx"
        save(graph, whole)
        engines: dict[str, EngineProcess] = {}
        for name in (*plans, *peers):
            scratch = Path(folder) / name
            scratch.mkdir()
            try:
                engine = open_engines.enter_context(
                    _loaded(name, graph, whole, values, plans, threads, element, scratch)
                )
                errors[name] = error_of(engine.outputs(), exact)
            except LfoptError as error:
                say(f"{graph.name}, {threads} threads: {name} skipped: {error}")
            else:
                engines[name], walls[name], busy[name] = engine, [], []
        for _ in range(rounds):
            for name, engine in engines.items():
                answer = engine.ask(do="run", times=TIMES)
                walls[name] += answer["wall"]
                busy[name] += answer["cpu"]
        return {
            name: EngineTimes(
                1e3 * median(walls[name]),
                1e3 * min(walls[name]),
                1e3 * median(busy[name]),
                len(walls[name]),
                errors[name],
                *engine.memory(),
            )
            for name, engine in engines.items()
        }


@contextmanager
def _loaded(
    name: str, graph: Graph, whole: Path, values: Arrays, plans: Mapping[str, PlannedFolder], threads: int,
    element: ElementName, scratch: Path
) -> Iterator[EngineProcess]:  # fmt: skip
    """An engine by the name of a plan or of a peer; `whole`: the network of all images, as peers take it.

    Raises Refused; Unsupported for a plan that cannot be printed.
    """
    given = scratch / "inputs.npz"
    request: dict[str, Any] = {
        "do": "load",
        "inputs": str(given),
        "threads": threads,
        "element": element,
        "outputs": list(graph.outputs),
    }
    if name in plans:
        code = compiled(plans[name], threads=threads, element=element)
        request |= {"model": str(code.built.library), "name": code.source.name}
        engine = EngineProcess("lfopt", Path(sys.executable), scratch)
    else:
        request["model"] = str(_copied(whole, scratch))
        engine = EngineProcess(name, interpreter(name), scratch)
    np.savez(given, **values)  # pyright: ignore[reportArgumentType]  (the stub has an option among the names)
    try:
        engine.ask(**request)
        yield engine
    finally:
        engine.close()


def _copied(model: Path, folder: Path) -> Path:
    """The model with pooling windows larger than the plane (EfficientNet's) written as global means.

    ONNX Runtime reads them as they stand, as we do; others do not.
    """
    proto = onnx.load(model)
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in onnx.shape_inference.infer_shapes(proto).graph.value_info
    }
    for node in proto.graph.node:
        window = next((list(a.ints) for a in node.attribute if a.name == "kernel_shape"), [0])
        if node.op_type == "AveragePool" and all(
            size > extent for size, extent in zip(window, shapes.get(node.input[0], ())[2:], strict=False)
        ):
            node.op_type = "GlobalAveragePool"
            del node.attribute[:]
    written = folder / "model.onnx"
    onnx.save(proto, written)
    return written


def error_of(outputs: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    """Largest difference of real outputs from the reference, over its largest; the worst output.

    Raises Refused for outputs of another size.

    >>> error_of([np.array([1.0, 2.5], np.float32)], [np.array([[1.0, 2.0]])])
    0.25
    """
    real = [output for output in outputs if output.dtype.kind == "f"]
    if [output.size for output in real] != [one.size for one in exact]:
        raise Refused(
            f"found outputs of shapes {[list(o.shape) for o in real]}; accepted: "
            f"{[list(one.shape) for one in exact]}"
        )
    largest = 0.0
    for output, one in zip(real, exact, strict=True):
        scale = float(np.abs(one).max(initial=0.0)) or 1.0
        largest = max(
            largest,
            float(np.abs(output.reshape(one.shape).astype(np.float64) - one).max(initial=0.0)) / scale,
        )
    return largest


def conditions() -> str:
    """Load and huge pages of this machine, in one line."""
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    huge = pages.read_text().partition("[")[2].partition("]")[0] if pages.exists() else "unknown"
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    busy = ", so that others were at work while this was measured" if load > 0.5 * cores else ""
    return f"Load at the start {load:.1f} on {cores} cores{busy}. Transparent huge pages: {huge}."


def version_of(names: Sequence[str]) -> str:
    """Libraries with their versions, in one line."""
    return ", ".join(PEERS[name].version for name in names)
