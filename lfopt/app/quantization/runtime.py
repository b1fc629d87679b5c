"""ONNX Runtime: every map of a network in floats, and its quantiser."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lfopt.app.quantization.room import with_room
from lfopt.app.quantization.samples import Sample, Samples
from lfopt.frontend import load, save, to_model
from lfopt.ir import Graph, InvalidConfig, Operator, UnsupportedModel
from lfopt.ir.names import one_line
from lfopt.ops import spec
from lfopt.ops.arithmetic import FLOAT, TABLE
from lfopt.ops.elementwise import REAL

UNARY = frozenset({*REAL, "Abs", "Clip", "Neg", "Relu", "Round"})  # one table each
Range = tuple[float, float]  # least and greatest number that integers stand for


@dataclass(frozen=True)
class QuantizedForm:
    """What a network is quantised to."""

    unsigned: bool = False  # maps as uint8 instead of int8
    per_channel: bool = True  # a scale for each output channel of weights; else one for each tensor of them


def onnxruntime() -> Any:
    """The package. Raises InvalidConfig where it is not installed."""
    try:
        import onnxruntime.quantization  # noqa: PLC0415  (optional, and slow to import)
    except ImportError as error:
        raise InvalidConfig(
            f"lfopt quantize needs ONNX Runtime ({error}): pip install 'lfopt[quantize]'"
        ) from None
    return onnxruntime


class Maps:
    """A network in ONNX Runtime, called with a sample: the maps that were asked for, by name.

    The maps of one sample are in memory at a time.
    """

    def __init__(self, runtime: Any, graph: Graph, names: Sequence[str], label: str) -> None:
        """`names`: graph inputs, or what operators make; `label`: of the network, in messages.

        Raises UnsupportedModel.
        """
        self.inputs = [name for name in names if name in graph.inputs]
        self.results = [name for name in names if name not in graph.inputs]
        self.label = label
        with tempfile.TemporaryDirectory() as folder, _refused(label):
            path = Path(folder) / "maps.onnx"
            save(replace(graph, outputs=tuple(self.results)), path)
            options = runtime.SessionOptions()
            options.log_severity_level = 4
            self.session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._read = {value.name for value in self.session.get_inputs()}

    def __call__(self, sample: Sample) -> dict[str, np.ndarray]:
        """Maps by name. Raises UnsupportedModel."""
        with _refused(self.label):
            arrays = self.session.run(
                self.results, {name: value for name, value in sample.items() if name in self._read}
            )
        return {
            **{name: sample[name] for name in self.inputs},
            **dict(zip(self.results, arrays, strict=True)),
        }


def quantised_kinds(runtime: Any, graph: Graph) -> list[str]:
    """Operator types that become int8: those of ONNX Runtime's quantiser, and those of lfopt's integers."""
    tools = runtime.quantization
    native = {
        op.kind
        for op in graph.operators
        if spec(op.kind, op.domain).integers not in (FLOAT, TABLE) or op.kind in UNARY
    }
    return sorted({*tools.registry.QLinearOpsRegistry, *tools.registry.QDQRegistry, *native})


def quantised(
    runtime: Any, graph: Graph, samples: Samples, ranges: Mapping[str, Range], form: QuantizedForm, label: str
) -> Graph:
    """The network as ONNX Runtime quantises it, read back.

    `ranges`: of maps by name; those of other maps are the least and greatest elements found in the samples.
    Raises UnsupportedModel.
    """
    integers = runtime.quantization.QuantType
    with tempfile.TemporaryDirectory() as folder, _silent(), _refused(label):
        path = Path(folder) / "quantised.onnx"
        write_quantized(
            runtime.quantization,
            graph,
            samples,
            path,
            op_types_to_quantize=quantised_kinds(runtime, graph),
            per_channel=form.per_channel,
            activation_type=integers.QUInt8 if form.unsigned else integers.QInt8,
            weight_type=integers.QInt8,
            extra_options={
                "TensorQuantOverrides": {name: [_override(*ends)] for name, ends in ranges.items()}
            },
        )
        return with_room(replace(load(path), name=graph.name))


def _override(least: float, greatest: float) -> dict[str, np.ndarray]:
    return {"rmin": np.array(least, np.float32), "rmax": np.array(greatest, np.float32)}


def write_quantized(tools: Any, graph: Graph, samples: Samples, path: Path, **how: Any) -> None:
    """A QDQ file of a network, calibrated on these samples.

    `tools`: onnxruntime.quantization; `how`: of its quantize_static.
    """
    model = to_model(graph)
    left = iter(samples)
    # already done: BatchNormalization is folded, shapes are inferred
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")

    class Reader(tools.CalibrationDataReader):
        """Hands out the samples one by one."""

        def get_next(self) -> Sample | None:
            """The next sample; None when there are no more."""
            return next(left, None)

    tools.quantize_static(model, path, Reader(), quant_format=tools.QuantFormat.QDQ, **how)


def without_identities(graph: Graph) -> Graph:
    """The graph without Identity: ONNX Runtime would see another map, of another scale, behind it."""
    same: dict[str, str] = {}
    operators: list[Operator] = []
    for operator in graph.operators:
        operator = replace(operator, inputs=tuple(same.get(name, name) for name in operator.inputs))
        if operator.kind == "Identity" and not operator.domain and operator.outputs[0] not in graph.outputs:
            same[operator.outputs[0]] = operator.inputs[0]
        else:
            operators.append(operator)
    return replace(
        graph,
        operators=tuple(operators),
        tensors={name: t for name, t in graph.tensors.items() if name not in same},
    )


@contextlib.contextmanager
def _refused(label: str) -> Iterator[None]:
    """Whatever ONNX Runtime finds wrong with the network, as UnsupportedModel."""
    try:
        yield
    except Exception as error:
        raise UnsupportedModel(f"{label}: ONNX Runtime cannot quantise it: {one_line(error)}") from None


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """A context without the advice that ONNX Runtime's tools log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
