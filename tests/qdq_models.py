"""Quantised models: operators between Q and DQ, networks by ONNX Runtime's quantiser; its results."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from lfopt import zoo
from lfopt.frontend import from_model, to_model
from lfopt.ir import Graph, Tensor, whole
from lfopt.ops import Call, spec
from lfopt.ops.compute import Part, compute
from lfopt.ops.evaluate import to_node
from lfopt.rewrite import simplify
from tests.operators import RUNTIME_OPSET, Case

# CPUs without these add pairs of 8-bit products in 16 saturating bits: ONNX Runtime's optimised results are
# then far from its plain ones.
ADDS_EXACTLY = (
    any(flag in Path("/proc/cpuinfo").read_text().split() for flag in ("avx512_vnni", "avx_vnni", "asimddp"))
    if Path("/proc/cpuinfo").exists()
    else False
)
ort.set_default_logger_severity(4)


def run(
    model: ModelProto, feeds: Mapping[str, np.ndarray], *, optimised: bool = False
) -> dict[str, np.ndarray]:
    """Outputs by name.

    Plain, ONNX Runtime dequantises, computes in floats and quantises; optimised, it uses its integer kernels.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(
        zip(
            [v.name for v in model.graph.output], map(np.asarray, session.run(None, dict(feeds))), strict=True
        )
    )


# -- single operators ----------------------------------------------------------------------------------------


@dataclass
class _Quantising:
    """Collects what a model of one operator between DQ and Q is made of."""

    dtype: str
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    scales: dict[int, np.ndarray] = field(default_factory=dict)

    def scale(self, values: np.ndarray, dtype: str) -> tuple[np.float32, np.ndarray]:
        """(scale, zero point) that cover the values, more or less."""
        low, high = min(float(values.min()), 0), max(float(values.max()), 0)
        least = np.iinfo(dtype).min
        scale = np.float32(max(high - low, 1e-3) / 255 * self.rng.uniform(0.7, 1.2))
        return scale, np.array(np.clip(round(least - low / float(scale)), least, least + 255), dtype)

    def dequantise(
        self,
        name: str,
        held: np.ndarray,
        scale: np.ndarray,
        zero: np.ndarray,
        axis: int | None = None,
        *,
        constant: bool,
    ) -> None:
        """The map or constant `name`, from integers."""
        self.constants |= {f"{name}.s": np.asarray(scale), f"{name}.z": zero} | (
            {f"{name}.q": held} if constant else {}
        )
        attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
        self.nodes.append(
            helper.make_node(
                "DequantizeLinear", [f"{name}.q", f"{name}.s", f"{name}.z"], [name], **attributes
            )
        )
        if not constant:
            self.add_input(f"{name}.q", held)

    def add_input(self, name: str, value: np.ndarray) -> None:
        self.inputs.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        )
        self.feeds[name] = value

    def operand(self, case: Case, index: int, value: np.ndarray) -> None:
        """An operand: a map of integers, an int8 weight per channel, an int32 bias, or as it is."""
        name, constant = f"x{index}", index in case.constant
        if value.dtype != np.float32 or (
            constant and (value.size == 1 or index in spec(case.kind).parameters)
        ):
            if constant:
                self.constants[name] = value
            else:
                self.add_input(name, value)
        elif constant and case.kind in ("Conv", "ConvTranspose", "Gemm", "MatMul") and index == 1:
            self._weight(case, name, value)
        elif constant and case.kind in ("Conv", "ConvTranspose") and index == 2:
            scale = np.atleast_1d(self.scales[0] * self.scales[1]).astype(np.float32)
            scale = np.tile(scale, case.attributes.get("group", 1)) if case.kind == "ConvTranspose" else scale  # type: ignore[arg-type]
            held = np.rint(value / scale).astype(np.int32)
            self.dequantise(name, held, scale, np.zeros(scale.shape, np.int32), 0, constant=True)
        else:
            dtype = "int8" if constant else self.dtype
            scale, zero = self.scale(value, dtype)
            limits = np.iinfo(dtype)
            self.scales[index] = np.asarray(scale)
            held = np.clip(np.rint(value / scale) + zero, limits.min, limits.max).astype(dtype)
            self.dequantise(name, held, np.asarray(scale), zero, constant=constant)

    def _weight(self, case: Case, name: str, value: np.ndarray) -> None:
        axis = {"Conv": 0, "ConvTranspose": 1, "MatMul": value.ndim - 1}.get(
            case.kind,
            1 - int(case.attributes.get("transB", 0)),  # type: ignore[call-overload]
        )
        axis = None if value.ndim == 1 else axis
        others = tuple(a for a in range(value.ndim) if a != axis)
        scale = (np.abs(value).max(axis=others, keepdims=True) / 127).astype(np.float32)
        held = np.clip(np.rint(value / scale), -127, 127).astype(np.int8)
        self.scales[1] = scale.reshape(-1) if axis is not None else scale.reshape(())
        self.dequantise(
            name, held, self.scales[1], np.zeros(self.scales[1].shape, np.int8), axis, constant=True
        )


def quantised_operator(
    case: Case, rng: np.random.Generator, dtype: str
) -> tuple[ModelProto, dict[str, np.ndarray]] | None:
    """(model, feeds): the operator between DQ and Q, integers in and integers out.

    None if ONNX Runtime refuses it, or its results are not finite.
    """
    feeds = {f"x{i}": v for i, v in enumerate(case.operands) if v is not None and i not in case.constant}
    try:
        results = run(case.model(RUNTIME_OPSET), feeds)
    except Exception:
        return None
    quantising = _Quantising(dtype, rng)
    for index, value in enumerate(case.operands):
        if value is not None:
            quantising.operand(case, index, value)
    quantising.nodes.append(to_node(case.operator))
    outputs: list[onnx.ValueInfoProto] = []
    for name, value in results.items():
        if value.dtype == np.float32:
            if not np.isfinite(value).all():
                return None
            quantising.constants[f"{name}.s"], quantising.constants[f"{name}.z"] = (
                np.asarray(p) for p in quantising.scale(value, dtype)
            )
            quantising.nodes.append(
                helper.make_node("QuantizeLinear", [name, f"{name}.s", f"{name}.z"], [f"{name}.q"])
            )
            outputs.append(
                helper.make_tensor_value_info(
                    f"{name}.q", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), value.shape
                )
            )
        else:
            outputs.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            )
    constants = [numpy_helper.from_array(value, name) for name, value in quantising.constants.items()]
    graph = helper.make_graph(quantising.nodes, "quantised", quantising.inputs, outputs, constants)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", RUNTIME_OPSET)], ir_version=10
    ), quantising.feeds


# -- networks ------------------------------------------------------------------------------------------------


class Samples(CalibrationDataReader):
    """Hands out samples one by one."""

    def __init__(self, samples: Sequence[Mapping[str, np.ndarray]]) -> None:
        self.samples = iter(samples)

    def get_next(self) -> Any:
        """Inputs by name, or None at the end."""
        return next(self.samples, None)


def random_feeds(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: rng.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs}


def quantise(
    graph: Graph, path: Path, rng: np.random.Generator, dtype: str = "int8", **options: object
) -> ModelProto:
    """The network quantised by ONNX Runtime from random inputs; also written to `path`."""
    chosen = {"per_channel": True, "weight_type": QuantType.QInt8, "quant_format": QuantFormat.QDQ} | options
    with _silent():
        quantize_static(
            to_model(graph),
            path,
            Samples([random_feeds(graph, rng) for _ in range(4)]),
            activation_type=QuantType.QInt8 if dtype == "int8" else QuantType.QUInt8,
            **chosen,  # type: ignore[arg-type]
        )
    return onnx.load(path)


@contextmanager
def _silent() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def zoo_network(name: str, size: int) -> Graph:
    """A network of the zoo with seeded weights, at a reduced resolution."""
    model = zoo.build(name)
    return simplify(from_model(model, {"image": (1, 3, size, size)}, name=name))


def with_integers_as_outputs(model: ModelProto) -> ModelProto:
    """The model with the result of every QuantizeLinear as an output too."""
    copy = ModelProto()
    copy.CopyFrom(model)
    kinds = {t.name: t.data_type for t in model.graph.initializer}
    outputs = {v.name for v in model.graph.output}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] not in outputs:
            copy.graph.output.add(name=node.output[0]).type.tensor_type.elem_type = (
                kinds[node.input[2]] if len(node.input) > 2 else TensorProto.UINT8
            )
    return copy


def integers(
    model: ModelProto, graph: Graph, feeds: Mapping[str, np.ndarray], *, optimised: bool
) -> dict[str, np.ndarray]:
    """Name in the graph -> integers of each quantised map, by ONNX Runtime."""
    values = run(with_integers_as_outputs(model), feeds, optimised=optimised)
    held: dict[str, np.ndarray] = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            held.update(
                (name, values[node.output[0]]) for name in (node.input[0], node.output[0]) if name not in held
            )
        elif node.op_type == "DequantizeLinear" and node.input[0] in held:
            held.setdefault(node.output[0], held[node.input[0]])
    return {
        name: value
        for name, value in held.items()
        if name in graph.tensors and graph.tensors[name].quantization is not None
    }


def steps_apart(graph: Graph, held: Mapping[str, np.ndarray]) -> Iterator[tuple[Call, np.ndarray]]:
    """(operator, its result less ONNX Runtime's) of operators on integers, fed ONNX Runtime's integers.

    Maps that stand between two operators without Q between are made from what was fed before.
    """
    known = dict(held)
    for operator in graph.operators:
        call = Call.of(graph, operator)
        if call.result_tensors[0].quantization is None or not all(
            t in known or t in graph.constants for t in operator.inputs if t
        ):
            continue
        parts = [
            Part(graph.constants.get(t, known.get(t)), whole(graph.shape(t))) if t else None  # type: ignore[arg-type]
            for t in operator.inputs
        ]
        results = compute(call, parts, tuple(map(whole, call.results)), graph.opset)
        for tensor, value in zip(call.result_tensors, results, strict=True):
            assert (value.dtype.name, value.shape) == (tensor.dtype, tensor.shape)
            if tensor.name in known:
                yield call, np.abs(value.astype(int) - known[tensor.name].astype(int))
            known.setdefault(tensor.name, value)


def quantised_maps(graph: Graph) -> dict[str, Tensor]:
    """Maps of integers, by name."""
    return {
        name: t
        for name, t in graph.tensors.items()
        if t.quantization is not None and name not in graph.constants
    }
