"""ONNX Runtime as a second judge of outputs: it reads the file by itself, so errors of reading are seen too.

lfopt's own reference computes the network that lfopt has read. ONNX Runtime is given the file as it was. It
runs twice, without its optimizer and with it: how far these two lie apart is what rounding does there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lfopt.app.agreement import MARGIN, REALS, VAGUE, Agreement, Arrays, Expected
from lfopt.app.arrays import given_back, real
from lfopt.app.pipeline import ZOO, file_of
from lfopt.app.standard import JUDGE_THREAD
from lfopt.ir import Graph
from lfopt.ir.names import one_line

REFERENCE = "reference"
MOST_SECONDS = 120.0  # that ONNX Runtime may take
LONGEST_REASON = 200  # characters of what ONNX Runtime says
# of the largest element: what accumulating in float32 does, where the reference measures nothing
LEAST_ACCEPTED = 2.0**-20


@dataclass(frozen=True)
class Opinion:
    """Outputs of another implementation, by the graph's names, quantised ones as real numbers."""

    judge: str  # its name and version
    plain: Arrays
    optimized: Arrays


@dataclass(frozen=True)
class Judgement:
    """What was compared with whom."""

    agreements: tuple[Agreement, ...]
    judges: tuple[str, ...]
    absent: str = ""  # why ONNX Runtime is no judge; "" where it is

    def lines(self) -> list[str]:
        """For people: who judged, where anything differs, and why ONNX Runtime did not."""
        said = [f"judges: {', '.join(self.judges)}"] if any(one.wrong for one in self.agreements) else []
        if self.absent:
            return [*said, f"note: ONNX Runtime is no judge: {self.absent}"]
        return said


def judged(
    graph: Graph,
    values: Arrays,
    outputs: Arrays,
    wanted: Expected,
    model: str | Path,
    *,
    drawn: bool = False,
) -> Judgement:
    """Outputs beside the reference, and beside ONNX Runtime's where it is installed and runs the file.

    values, outputs: by the graph's names, in its shapes and types. `model`: the file, or zoo:NAME; `drawn`:
    its weights were drawn at random.
    """
    agreements = wanted.compared(outputs)
    opinion = "its weights were drawn at random" if drawn else _asked(model, graph, values)
    if isinstance(opinion, str):
        return Judgement(agreements, (REFERENCE,), opinion)
    beside = [
        _compared(graph, wanted, of_reference, outputs[of_reference.output], opinion)
        for of_reference in agreements
    ]
    return Judgement((*agreements, *beside), (REFERENCE, opinion.judge))


def _asked(model: str | Path, graph: Graph, values: Arrays) -> Opinion | str:
    """What ONNX Runtime makes of the file, or why it makes nothing."""
    try:
        import onnxruntime  # noqa: PLC0415  (optional, and slow to import)
    except ImportError:
        return "it is not installed (pip install 'lfopt[quantize]')"
    name = f"ONNX Runtime {'.'.join(onnxruntime.__version__.split('.')[:2])}"
    stored = {name: value for name, value in values.items() if value.dtype.kind != "f"}
    feeds = {graph.label(name): value for name, value in values.items() if name not in stored}
    feeds |= given_back(graph, stored)
    labels = {graph.label(k): k for k in graph.outputs}
    levels = onnxruntime.GraphOptimizationLevel
    answers: list[Opinion | str] = []

    def ask() -> None:
        try:
            source = _source(model)
            plain, optimized = (
                _outputs(onnxruntime, source, feeds, labels, level)
                for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL)
            )
            answers.append(Opinion(name, plain, optimized))
        except Exception as error:  # it has many kinds, none of them public
            answers.append(f"{name} does not run the file: {one_line(error)[:LONGEST_REASON]}")

    # a thread, since nothing interrupts an operator: a pool with a kernel of 2^31 never ends there
    thread = threading.Thread(target=ask, name=JUDGE_THREAD, daemon=True)
    thread.start()
    thread.join(MOST_SECONDS)
    if answers:
        return answers[0]
    return f"{name} gives no answer within {MOST_SECONDS:g} seconds"


def _source(model: str | Path) -> str | bytes:
    """What a session is made of: a file, beside which its external data lie, or the bytes of a network."""
    text = str(model)
    if not text.startswith(ZOO):
        return file_of(text)
    from lfopt import zoo  # noqa: PLC0415  (a quarter of a second that a file does not need)

    return zoo.build(text.removeprefix(ZOO)).SerializeToString()


def _outputs(
    runtime: Any, source: str | bytes, feeds: Arrays, labels: Mapping[str, str], level: Any
) -> dict[str, np.ndarray]:
    """[output]: arrays by the graph's names."""
    options = runtime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    types = {value.name: value.type for value in session.get_inputs()}
    given = {name: _typed(value, types[name]) for name, value in feeds.items() if name in types}
    arrays = session.run([*labels], given)
    return {labels[label]: np.asarray(array) for label, array in zip(labels, arrays, strict=True)}


def _real(graph: Graph, name: str, value: np.ndarray) -> np.ndarray:
    """(same shape) numbers of an input or output as the file has them: real where integers stand for them."""
    if value.dtype.kind == "f":
        return value
    return real(graph.tensors[name], value)


def _typed(value: np.ndarray, kind: str) -> np.ndarray:
    """Real numbers in the type that the file has."""
    floats = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
    if value.dtype.kind == "f" and kind in floats:
        return value.astype(floats[kind])
    return value


def _compared(
    graph: Graph, wanted: Expected, of_reference: Agreement, output: np.ndarray, opinion: Opinion
) -> Agreement:
    """An output beside ONNX Runtime's, within what is accepted beside the reference."""
    name = of_reference.output
    plain = opinion.plain[name]
    optimized = opinion.optimized[name]
    rounded = [r[name] for r in wanted.rounded]
    given = _real(graph, name, output)
    if name in graph.integer_ends and plain.dtype == output.dtype:
        plain, optimized = (real(graph.tensors[name], one) for one in (plain, optimized))
    if plain.shape != given.shape or optimized.shape != given.shape:
        return Agreement(name, given.size, given.size or 1, 0, None, None, None, opinion.judge)
    if given.dtype.name not in REALS or not np.issubdtype(plain.dtype, np.number):
        sure = [one == wanted.exact[name] for one in rounded if one.shape == given.shape]
        differing = (
            (given != plain) & (given != optimized) & np.all([np.ones(given.shape, bool), *sure], axis=0)
        )
        return Agreement(name, given.size, int(differing.sum()), 0, None, None, None, opinion.judge)
    return _compared_reals(graph, of_reference, given, (plain, optimized), opinion.judge)


def _compared_reals(
    graph: Graph, of_reference: Agreement, given: np.ndarray, runs: Sequence[np.ndarray], judge: str
) -> Agreement:
    given, plain, optimized = (one.astype(np.float64) for one in (given, *runs))
    finite = np.isfinite(given) & np.isfinite(plain) & np.isfinite(optimized)
    largest = float(np.abs(plain[finite]).max(initial=0.0))
    scale = _range(plain[finite])
    noise = float(np.abs(optimized[finite] - plain[finite]).max(initial=0.0))
    accepted = max(MARGIN * noise, LEAST_ACCEPTED * largest)
    if of_reference.accepted_error is not None and of_reference.scale is not None:
        accepted = max(accepted, of_reference.accepted_error * of_reference.scale)
    if any(tensor.quantization for tensor in graph.tensors.values()):
        # a sum that lies between two integers becomes either, as it is rounded, and so do those after it
        by = graph.tensors[of_reference.output].quantization
        accepted = max(accepted, VAGUE * scale, max(by.scale) if by is not None else 0.0)
    error = np.where(finite, np.abs(given - plain), 0.0)
    same = (given == plain) | (np.isnan(given) & np.isnan(plain))
    odd = ~finite & ~same
    return Agreement(
        of_reference.output,
        given.size,
        int((odd | (error > accepted)).sum()),
        int((~np.isfinite(plain)).sum()),
        scale,
        None if odd.any() else float(error.max(initial=0.0)) / scale,
        accepted / scale,
        judge,
    )


def _range(values: np.ndarray) -> float:
    """Largest less smallest number; the largest, if all are the same; 1 for none."""
    if values.size:
        return float(np.ptp(values)) or float(np.abs(values).max()) or 1.0
    return 1.0
