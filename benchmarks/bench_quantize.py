"""Accuracy of trained networks in int8 (signal to noise of outputs), by calibration of ranges and scaling.

    python benchmarks/bench_quantize.py [--networks ...] [--samples 8] [--held 4]

The networks are those of `benchmarks/peers.py`: text detection, recognition, orientation of lines and of
pages, layout of pages. The packages bring no images: pages and lines are drawn (`benchmarks/documents.py`).
Scales come from some, accuracy is measured on others. Networks end ahead of a last Softmax, whose
probabilities of 0 and 1 hide what happens to logits.

`dB`: 10 log10 of signal over noise against floats, of the output that has least; `median`: of all outputs.
`error`: the largest, of the output's range. `same`: rows of outputs [n, classes] or [n, positions, classes]
whose greatest element is where it is in floats. `seconds`: to calibrate and rewrite.

The table of `--alone` says how well figures of a layer's own map rank what it does to the outputs (`lfopt
quantize --alone`), on one sample.

    pip install onnxruntime; python benchmarks/peers.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import say
from benchmarks.documents import Printer
from benchmarks.peers import FOLDER, TRAINED, trained
from benchmarks.results import Row, Sheet, add_option, table_of
from lfopt.app.commands.quantize import prepared
from lfopt.app.pipeline import load_network
from lfopt.app.quantization.accuracy import Accuracy, accuracy
from lfopt.app.quantization.calibration import (
    DEFAULT,
    PERCENTILE,
    Distribution,
    Method,
    distributions,
    ranges,
)
from lfopt.app.quantization.runtime import QuantizedForm, onnxruntime, quantised
from lfopt.app.quantization.samples import Samples
from lfopt.ir import Graph
from lfopt.ops import Family, spec

HOW: tuple[tuple[Method, float], ...] = (
    ("minmax", PERCENTILE),
    ("percentile", 99.99),
    ("percentile", 99.9),
    ("entropy", PERCENTILE),
    ("mse", PERCENTILE),
)
# (weights, ranges) that others are compared with; weights per tensor come with these ranges alone
FIRST = ("per channel", "minmax")
FEW, MORE = 64, 8  # outputs of fewer elements are measured on so many times the samples
HALVES = np.array([0.5, 0.5, 0.5]), np.array([0.5, 0.5, 0.5])  # mean, deviation
IMAGENET = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def quiet(what: str, done: float) -> None:
    """No progress."""


def before_softmax(graph: Graph, output: str) -> str:
    """Operand of the Softmax that makes an output, views between them aside; else the output itself.

    Probabilities of 0 and 1 hide what happens to the logits.
    """
    makers = {name: operator for operator in graph.operators for name in operator.outputs}
    maker = makers[output]
    while spec(maker.kind).family is Family.VIEW and maker.inputs[0] in makers:
        maker = makers[maker.inputs[0]]
    return maker.inputs[0] if maker.kind == "Softmax" else output


# -- images --------------------------------------------------------------------------------------------------


def _page(printer: Printer, height: int, width: int) -> np.ndarray:
    return printer.page(height, width)


def _line(printer: Printer, height: int, width: int) -> np.ndarray:
    return printer.line(height, width)


def _turned_line(printer: Printer, height: int, width: int) -> np.ndarray:
    line = printer.line(height, width)
    return line[::-1, ::-1] if printer.rng.integers(2) else line


def _turned_page(printer: Printer, height: int, width: int) -> np.ndarray:
    return np.rot90(printer.page(height, width), printer.rng.integers(4))


# images as the packages prepare them: how they are drawn, (mean, deviation) of channels
IMAGES: Mapping[str, tuple[Callable[[Printer, int, int], np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "ppocr_det": (_page, HALVES),
    "ppocr_rec": (_line, HALVES),
    "ppocr_cls": (_turned_line, HALVES),
    "orientation": (_turned_page, IMAGENET),
    "layout": (_page, IMAGENET),
}


def images(name: str, graph: Graph, count: int, seed: int) -> Samples:
    """Samples for a network; inputs other than images are as for a picture at its own size."""
    printer, (draw, (mean, deviation)) = Printer(np.random.default_rng(seed)), IMAGES[name]
    samples: list[dict[str, np.ndarray]] = []
    for _ in range(count):
        sample: dict[str, np.ndarray] = {}
        for tensor in (graph.tensors[n] for n in graph.inputs):
            assert len(tensor.shape) == 4, f"{name}: input {tensor.name!r} is no image"
            picture = (draw(printer, *tensor.shape[2:]) - mean) / deviation
            sample[tensor.name] = np.ascontiguousarray(picture.transpose(2, 0, 1)[None], np.float32)
        samples.append(sample)
    return samples


# -- figures -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CalibratedNetwork:
    """A network with its samples."""

    name: str
    graph: Graph
    given: Samples
    held: Samples
    spreads: Mapping[str, Distribution]  # in the samples that scales come from
    seconds: float  # that those took

    def measured(self, method: Method, percentile: float, form: QuantizedForm) -> tuple[Accuracy, float]:
        """(accuracy on what was held back, seconds of calibration and rewriting)."""
        runtime, begun = onnxruntime(), time.perf_counter()
        quantized_graph = quantised(
            runtime, self.graph, self.given, ranges(self.spreads, method, percentile), form, self.name
        )
        seconds = self.seconds + time.perf_counter() - begun
        return accuracy(runtime, self.graph, quantized_graph, self.held, self.name, quiet), seconds


def least(accuracies: Accuracy) -> float:
    """Signal to noise of the output that has least."""
    return min(output.ratio.decibels for output in accuracies.outputs)


def key_of(network: str, method: Method, percentile: float, *, per_channel: bool) -> dict[str, str]:
    """What a row is of."""
    weights = "per channel" if per_channel else "per tensor"
    return {
        "network": network,
        "weights": weights,
        "ranges": f"percentile {percentile:g}" if method == "percentile" else method,
    }


def row_of(subject: CalibratedNetwork, method: Method, percentile: float, *, per_channel: bool) -> Row:
    """What was measured of a network."""
    accuracies, seconds = subject.measured(method, percentile, QuantizedForm(per_channel=per_channel))
    classes = [(output.same_class, output.rows) for output in accuracies.outputs if output.rows]
    row = {
        **key_of(subject.name, method, percentile, per_channel=per_channel),
        "dB": least(accuracies),
        "median": statistics.median(output.ratio.decibels for output in accuracies.outputs),
        "error": f"{max(output.error_of_range for output in accuracies.outputs):.1%}",
        "same": " ".join(f"{same:,}/{rows:,}" for same, rows in classes)
        if len(classes) == len(accuracies.outputs) == 1
        else "",
        "seconds": seconds,
    }
    say(json.dumps(row))
    return row


def ranks_of(subject: CalibratedNetwork) -> Row:
    """Rank correlations over the layers of the error on a layer's own map with its error on the outputs."""
    runtime = onnxruntime()
    quantized_graph = quantised(
        runtime, subject.graph, subject.given, ranges(subject.spreads, DEFAULT), QuantizedForm(), subject.name
    )
    by_layer = accuracy(
        runtime, subject.graph, quantized_graph, subject.held[:1], subject.name, quiet, each_alone=True
    )
    outputs = [layer.alone for layer in by_layer.layers]
    return {
        "network": subject.name,
        "layers": len(outputs),
        "own": float(spearmanr(outputs, [layer.own.decibels for layer in by_layer.layers]).statistic),
        "by channel": float(
            spearmanr(outputs, [layer.own.by_channel for layer in by_layer.layers]).statistic
        ),
        "hurt most": ", ".join(f"{layer.name} ({layer.alone:.1f} dB)" for layer in by_layer.worst_first[:3]),
    }


def means(rows: Sequence[Row]) -> list[Row]:
    """Per kind of ranges and weights: decibels over all networks, beside minmax with weights per channel."""
    rows_of_means: list[Row] = []
    plain = {row["network"]: row["dB"] for row in rows if (row["weights"], row["ranges"]) == FIRST}
    for weights, cut in dict.fromkeys((row["weights"], row["ranges"]) for row in rows):
        mine = {row["network"]: row for row in rows if (row["weights"], row["ranges"]) == (weights, cut)}
        gains = [row["dB"] - plain[name] for name, row in mine.items()]
        rows_of_means.append({
            "weights": weights, "ranges": cut, "mean dB": statistics.mean(row["dB"] for row in mine.values()),
            "beside the first: mean": statistics.mean(gains), "least": min(gains), "most": max(gains),
            "seconds": statistics.mean(row["seconds"] for row in mine.values()),
        })  # fmt: skip
    return rows_of_means


def main() -> None:
    """Quantise and measure; print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [one.name for one in TRAINED]
    parser.add_argument(
        "--networks", nargs="*", choices=names, default=names, metavar="NAME", help="(default: all)"
    )
    parser.add_argument("--samples", type=int, default=8, help="that scales come from (default %(default)s)")
    parser.add_argument(
        "--held", type=int, default=4, help="that accuracy is measured on (default %(default)s)"
    )
    parser.add_argument(
        "--known",
        type=Path,
        metavar="FILE",
        help="lines that a run which was stopped has printed: not measured again",
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the packages (default: %(default)s)")
    parser.add_argument(
        "--alone",
        nargs="*",
        choices=names,
        default=[],
        metavar="NAME",
        help="also what each layer alone does to the outputs of these",
    )
    add_option(parser)
    options = parser.parse_args()
    sheet, rows = Sheet("quantize", options.results), list[Row]()
    ranked: list[Row] = []
    known = [json.loads(line) for line in options.known.read_text().splitlines()] if options.known else []
    models = {one.name: (one, file) for one, file in trained(options.folder)}
    with contextlib.suppress(KeyboardInterrupt):  # what there is until then is shown
        for one, file in (models[name] for name in options.networks if name in models):
            graph = load_network(str(file), one.shapes, "default")
            graph = prepared(graph, [before_softmax(graph, name) for name in graph.outputs])
            few = all(graph.tensors[name].elements < FEW for name in graph.outputs)
            given, held = (
                images(one.name, graph, options.samples, 0),
                images(one.name, graph, options.held * (MORE if few else 1), 1),
            )
            begun = time.perf_counter()
            spreads = distributions(onnxruntime(), graph, given, one.name, count=True, report=quiet)
            subject = CalibratedNetwork(one.name, graph, given, held, spreads, time.perf_counter() - begun)
            for per_channel, (method, percentile) in [*((True, how) for how in HOW), (False, HOW[0])]:
                key = key_of(one.name, method, percentile, per_channel=per_channel)
                before = next((row for row in known if key.items() <= row.items()), None)
                rows.append(before or row_of(subject, method, percentile, per_channel=per_channel))
            if one.name in options.alone:
                ranked.append(ranks_of(subject))
    if not rows:
        raise SystemExit(
            f"{options.folder}: holds none of the networks; accepted: what benchmarks/peers.py makes"
        )
    sheet.show(table_of("over the networks", means(rows)))
    sheet.show(table_of("each network", rows))
    if ranked:
        sheet.show(
            table_of(
                "each layer alone in int8, at the outputs: rank correlation with its own figures", ranked
            )
        )
    sheet.write()


if __name__ == "__main__":
    main()
