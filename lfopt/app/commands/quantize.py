"""lfopt quantize: a network in int8 by ONNX Runtime's static quantisation, and its accuracy.

Raises InvalidConfig for options that are not accepted.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from lfopt.app.answers.files import FileAnswer
from lfopt.app.answers.networks import LayerAccuracy, OutputAccuracy, QuantizeAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.config import SearchConfig
from lfopt.app.deadline import ReportProgress
from lfopt.app.options import InputShapesOption, ModelWithWeightsOption, SeedOption
from lfopt.app.pipeline import load_network
from lfopt.app.quantization.accuracy import Accuracy, OutputNoise, accuracy
from lfopt.app.quantization.calibration import DEFAULT, PERCENTILE, Method, distributions, ranges
from lfopt.app.quantization.runtime import QuantizedForm, onnxruntime, quantised, without_identities
from lfopt.app.quantization.samples import Samples, random_samples, read_samples
from lfopt.app.screen import mib, note, out, progress_line, shown, spread, table
from lfopt.app.sizes import parse_shapes
from lfopt.frontend import save
from lfopt.ir import Graph, InvalidConfig, InvalidModel, MissingValues, UnsupportedModel
from lfopt.ir.names import one_line
from lfopt.ops import Call
from lfopt.ops.arithmetic import arithmetic
from lfopt.rewrite.flattened import flattened_as_convolutions
from lfopt.rewrite.mutable_graph import MutableGraph
from lfopt.rewrite.per_channel import as_convolutions
from lfopt.rewrite.shuffle import shuffles_as_gathers

SAMPLES = 16  # random inputs, where nothing is given
SHOWN = 10  # layers
Names = Annotated[tuple[str, ...], Parameter(consume_multiple=False, negative="")]


def quantize(
    model: ModelWithWeightsOption,
    /,
    *,
    out_file: Annotated[Path, Parameter(name=["--out", "-o"])],
    calibration: Path | None = None,
    samples: int | None = None,
    seed: SeedOption = SearchConfig.seed,
    method: Method = DEFAULT,
    percentile: float | None = None,
    per_channel: Annotated[bool, Parameter(negative="--per-tensor")] = True,
    unsigned: bool = False,
    measure: int | None = None,
    alone: Annotated[bool, Parameter(negative="")] = False,
    worst: int = SHOWN,
    input_shape: InputShapesOption = (),
    end: Names = (),
) -> None:
    """Write an int8 copy of a network, and say what that does to its accuracy.

    The copy is in QDQ form, with scales from calibration data.

    Example: lfopt quantize zoo:mobilenet_v2 --calibration images.npz --out mobilenet_v2_int8.onnx

    Parameters
    ----------
    out_file
        The ONNX file to write.
    calibration
        NumPy archive (.npz) of inputs by name, samples along the first axis. Without it, scales come from
        random inputs.
    samples
        Samples to calibrate with: of the archive (all, if not given), or random ones (16).
    method
        How the range of a map follows from the calibration data: from the least to the greatest element
        (minmax), without outliers (percentile), by least Kullback-Leibler divergence (entropy), or by least
        squared error (mse).
    percentile
        Percentile of the elements at which `--method percentile` cuts either end (99.99).
    per_channel
        A scale for each output channel of weights; `--per-tensor` is one for each tensor of them.
    unsigned
        Maps as uint8 instead of int8.
    measure
        Samples to measure accuracy with: the first of the calibration data (all, if not given); 0: none.
    alone
        Run the network once for each layer that alone is in int8, on one sample, and list layers by what that
        does to the outputs.
    worst
        Layers to show, those that hurt most first; 0: all.
    end
        Tensor at which the network ends, in place of its outputs; may be repeated. What comes after is left
        to the host.
    """
    if seed < 0 or (samples is not None and samples < 1) or not out_file.name:
        raise InvalidConfig(
            f"--seed {seed}, --samples {samples}, --out {str(out_file)!r}: accepted: a seed of at least 0, "
            "at least 1 sample, a file name"
        )
    _check(method, percentile, {"--measure": measure, "--worst": worst})
    if alone and measure == 0:
        raise InvalidConfig("--alone, --measure 0: accepted: at least 1 sample to measure with")
    runtime = onnxruntime()
    graph = load_network(model, parse_shapes(input_shape), "default")
    note(graph)
    _refuse(graph, model)
    graph = prepared(graph, end)
    if calibration is None:
        given = random_samples(graph, samples or SAMPLES, seed)
    else:
        given = read_samples(calibration, graph, samples)
    if measure is not None and measure > len(given):
        raise InvalidConfig(f"--measure {measure}: there are {len(given)} samples")
    cut = PERCENTILE if percentile is None else percentile
    with progress_line() as report:
        spreads = distributions(runtime, graph, given, model, count=method != "minmax", report=report)
        quantized_graph = quantised(
            runtime, graph, given, ranges(spreads, method, cut), QuantizedForm(unsigned, per_channel), model
        )
        measured = _measured(
            runtime, graph, quantized_graph, given[:measure], model, report, each_alone=alone
        )
    save(quantized_graph, out_file)
    before = _weight_bytes(graph)
    counts = _report(quantized_graph, out_file, weight_bytes=before)
    if measured is not None:
        _show(measured, len(given[:measure]), worst)
    answer(
        QuantizeAnswer(
            FileAnswer.of(out_file),
            counts,
            before,
            _weight_bytes(quantized_graph),
            calibrated=calibration is not None,
            samples=len(given),
            method=method,
            percentile=cut if method == "percentile" else None,
            per_channel=per_channel,
            measured_samples=0 if measured is None else len(given[:measure]),
            outputs=() if measured is None else tuple(map(_of_output, measured.outputs)),
            layers=() if measured is None else _of_layers(measured),
        )
    )
    if calibration is None:
        out.print(
            f"[yellow]scales come from {len(given)} random inputs (seed {seed}), not from data: the "
            "network's accuracy is lost[/]",
            soft_wrap=True,
        )
        out.print("[yellow]--calibration x.npz gives real ones[/]")


def _measured(
    runtime: Any,
    graph: Graph,
    quantized_graph: Graph,
    samples: Samples,
    label: str,
    report: ReportProgress,
    *,
    each_alone: bool,
) -> Accuracy | None:
    """The accuracy of the quantised network; None without samples."""
    if not samples:
        return None
    try:
        return accuracy(runtime, graph, quantized_graph, samples, label, report, each_alone=each_alone)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{error}; --measure 0 does without its accuracy") from None


def _check(method: Method, percentile: float | None, counts: Mapping[str, int | None]) -> None:
    if percentile is not None and (method != "percentile" or not 50 < percentile <= 100):
        raise InvalidConfig(
            f"--percentile {percentile:g}, --method {method}: accepted: above 50, at most 100, with --method "
            "percentile"
        )
    if wrong := [option for option, count in counts.items() if count is not None and count < 0]:
        raise InvalidConfig(f"{wrong[0]}: found {counts[wrong[0]]}; accepted: a whole number of at least 0")


def prepared(graph: Graph, end: Sequence[str] = ()) -> Graph:
    """A network up to some of its tensors, in operators that the accelerator has.

    Raises InvalidConfig for tensors that the network does not have.
    """
    graph = without_identities(graph)
    return flattened_as_convolutions(
        shuffles_as_gathers(as_convolutions(_ended(graph, end) if end else graph))
    )


def _refuse(graph: Graph, label: str) -> None:
    if absent := [name for name, value in graph.constants.items() if value is None]:
        raise MissingValues(
            f"{label}: constant {absent[0]!r} has no values, and scales come from running the network; give "
            "a model with weights"
        )
    if any(tensor.quantization is not None for tensor in graph.tensors.values()):
        raise InvalidModel(f"{label}: is quantised already")


def _ended(graph: Graph, names: Sequence[str]) -> Graph:
    """The network up to some of its tensors. Raises InvalidConfig."""
    makers = {name for operator in graph.operators for name in operator.outputs if name}
    for name in names:
        if name not in makers:
            close = difflib.get_close_matches(name, makers, 1)
            hint = f"; did you mean {one_line(close[0])}?" if close else ""
            raise InvalidConfig(f"--end {one_line(name)}: no operator of the network makes it{hint}")
    mutable = MutableGraph(replace(graph, outputs=tuple(dict.fromkeys(names))))
    mutable.drop_dead()
    inputs = tuple(name for name in graph.inputs if mutable.readers.get(name))
    return replace(mutable.finish(), inputs=inputs).without_unused()


def _weight_bytes(graph: Graph) -> int:
    return sum(value.nbytes for value in graph.constants.values() if value is not None)


def _report(graph: Graph, path: Path, weight_bytes: int) -> dict[str, int]:
    """What of the network is int8 now: operators by arithmetic."""
    counts: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    for operator in graph.operators:
        call = Call.of(graph, operator)
        integers = bool(call.result_tensors) and call.result_tensors[0].quantization is not None
        how = arithmetic(call).value if integers else "not quantised"
        counts[how] += 1
        kinds.setdefault(how, Counter())[operator.kind] += 1
    rows = table("arithmetic", "operators", "kinds")
    for how, count in counts.most_common():
        rows.add_row(
            how,
            str(count),
            ", ".join(kind for kind, _ in kinds[how].most_common(4))
            + (", ..." if len(kinds[how]) > 4 else ""),
        )
    out.print(rows)
    note(graph)
    quantised_operators = sum(count for how, count in counts.items() if how != "not quantised")
    out.print(
        f"wrote {shown(path)}: {quantised_operators} of {len(graph.operators)} operators on 8-bit maps; "
        f"constants {mib(weight_bytes)} MiB before, {mib(_weight_bytes(graph))} MiB now",
        soft_wrap=True,
    )
    return dict(counts)


# -- accuracy ------------------------------------------------------------------------------------------------


def _show(measured: Accuracy, samples: int, count: int) -> None:
    layers = measured.worst_first
    alone = any(layer.alone is not None for layer in layers)
    rows: list[tuple[str, ...]] = []
    for layer in layers[: count or len(layers)]:
        figures = (
            layer.own.decibels,
            layer.own.by_channel,
            layer.all.decibels,
            *(() if layer.alone is None else (layer.alone,)),
        )
        rows.append((layer.name, layer.kind, *map(_said, figures)))
    out.print()
    out.print(f"dB of signal over noise, {samples} samples; of {len(layers)} layers those that hurt most:")
    out.print(
        spread(
            ("layer", "kind", "own", "by channel", "all", *(("outputs",) if alone else ())), rows, left=(1,)
        )
    )
    out.print("[dim]own: this layer alone in int8; by channel: channels alike; all: all in int8[/]")
    if alone:
        out.print("[dim]outputs: the one that has least, with this layer alone in int8, 1 sample[/]")
    if measured.unmatched:
        out.print(
            f"[yellow]not measured: {len(measured.unmatched)} layers that the network in floats does not "
            "have[/]",
            soft_wrap=True,
        )
    out.print()
    rows = [
        (
            output.name,
            _said(output.ratio.decibels),
            f"{output.error_of_range:.2%}",
            f"{output.same_class:,} of {output.rows:,}" if output.rows else "",
        )
        for output in measured.outputs
    ]
    out.print(spread(("output", "dB", "largest error of range", "same top-1"), rows))


def _said(decibels: float) -> str:
    """Decibels, in a table.

    >>> _said(31.25), _said(float("inf"))
    ('31.2', 'exact')
    """
    if isfinite(decibels):
        return f"{decibels:.1f}"
    if decibels > 0:
        return "exact"
    return "no signal"


def _figure(value: float) -> float | None:
    if isfinite(value):
        return value
    return None


def _of_output(output: OutputNoise) -> OutputAccuracy:
    classes = (output.rows, output.same_class) if output.rows else (None, None)
    return OutputAccuracy(
        output.name,
        _figure(output.ratio.decibels),
        output.largest_error,
        _figure(output.error_of_range),
        *classes,
    )


def _of_layers(measured: Accuracy) -> tuple[LayerAccuracy, ...]:
    return tuple(
        LayerAccuracy(
            layer.name,
            layer.kind,
            layer.map,
            *map(
                _figure,
                (
                    layer.own.decibels,
                    layer.own.by_channel,
                    layer.all.decibels,
                    inf if layer.alone is None else layer.alone,
                ),
            ),
        )
        for layer in measured.worst_first
    )
