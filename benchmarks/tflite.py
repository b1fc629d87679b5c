"""Write an int8 network as a TFLite file: the same shapes, weights, scales and zero points, maps as NHWC.

The schema's classes come with Arm's Vela. Explicit padding that SAME and VALID do not have is a PAD operator
of its own, of those rows and columns that are read. ReLU and ReLU6 are no operators: they lie in the range of
the map that is made, here as in the QDQ file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from lfopt.ir import Graph, Operator, Quantization, UnsupportedModel

TYPES = {"int8": "INT8", "int32": "INT32"}  # of the schema
# versions of operators that know int8; else 1
VERSIONS = {
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "ADD": 2,
    "MAX_POOL_2D": 2,
    "MEAN": 2,
    "PAD": 2,
}
NHWC = (0, 2, 3, 1)
SAME, VALID = "SAME", "VALID"


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor of the file."""

    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    values: np.ndarray | None = None  # of a constant


@dataclass(frozen=True)
class TfliteOperator:
    """An operator of the file."""

    code: str  # e.g. CONV_2D
    inputs: tuple[str, ...]
    output: str
    options: str  # table of the schema, e.g. Conv2DOptions
    # a text is a member of the schema's enumeration of that name
    settings: dict[str, int | str] = field(default_factory=dict[str, int | str])


@dataclass
class TfliteNetwork:
    """Tensors by name, and operators in order."""

    tensors: dict[str, TfliteTensor] = field(default_factory=dict[str, TfliteTensor])
    steps: list[TfliteOperator] = field(default_factory=list[TfliteOperator])


def flatbuffer(graph: Graph) -> bytes:
    """The file. Raises UnsupportedModel for an operator that has no line in the table below."""
    return _packed(translated(graph), graph)


def translated(graph: Graph) -> TfliteNetwork:
    """The network in operators of TFLite."""
    network = TfliteNetwork()
    for name in graph.inputs:
        _map(network, graph, name)
    for operator in graph.operators:
        if operator.kind not in RULES:
            raise UnsupportedModel(
                f"node {operator.name!r}: no {operator.kind} in TFLite here; accepted: {', '.join(RULES)}"
            )
        _map(network, graph, operator.outputs[0])
        RULES[operator.kind](network, graph, operator)
    return network


# -- operators -----------------------------------------------------------------------------------------------


def _map(network: TfliteNetwork, graph: Graph, name: str) -> None:
    tensor = graph.tensors[name]
    shape = tuple(tensor.shape[i] for i in NHWC) if len(tensor.shape) == len(NHWC) else tensor.shape
    network.tensors[name] = TfliteTensor(shape, str(tensor.dtype), tensor.quantization)


def _constant(network: TfliteNetwork, graph: Graph, name: str, order: tuple[int, ...]) -> str:
    """A constant with its axes in another order."""
    values, quantization = graph.constants[name], graph.tensors[name].quantization
    assert values is not None and quantization is not None
    axis = None if quantization.axis is None else order.index(quantization.axis)
    values = values.transpose(order)
    network.tensors[name] = TfliteTensor(
        values.shape,
        str(values.dtype),
        Quantization(quantization.scale, quantization.zero_point, axis),
        values,
    )
    return name


def _numbers(network: TfliteNetwork, name: str, values: Sequence[object]) -> str:
    array = np.array(values, np.int32)
    network.tensors[name] = TfliteTensor(array.shape, "int32", None, array)
    return name


def _ints(operator: Operator, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    values = operator.attributes.get(name, default)
    return tuple(int(value) for value in values) if isinstance(values, tuple) else default


def _padded(
    network: TfliteNetwork, graph: Graph, operator: Operator, kernel: tuple[int, ...]
) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
    """The map that is read, which padding of TFLite remains, strides and dilations."""
    strides, dilations = _ints(operator, "strides", (1, 1)), _ints(operator, "dilations", (1, 1))
    pads, name = _ints(operator, "pads", (0, 0, 0, 0)), operator.inputs[0]
    before, after, same = [], [], []
    for k in (0, 1):
        size, extent = graph.shape(name)[2 + k], graph.shape(operator.outputs[0])[2 + k]
        # rows from the first that is read to the last
        reach = (extent - 1) * strides[k] + dilations[k] * (kernel[k] - 1) + 1
        before.append(pads[k])
        after.append(max(reach - size - pads[k], 0))
        same.append(extent == -(-size // strides[k]) and pads[k] == max(reach - size, 0) // 2)
    if not any((*before, *after)):
        return name, VALID, strides, dilations
    if all(same):
        return name, SAME, strides, dilations
    padded, stored = f"{operator.name}.padded", network.tensors[name]
    n, h, w, c = stored.shape
    rows = ((0, 0), (before[0], after[0]), (before[1], after[1]), (0, 0))
    network.tensors[padded] = TfliteTensor(
        (n, h + before[0] + after[0], w + before[1] + after[1], c), stored.dtype, stored.quantization
    )
    network.steps.append(
        TfliteOperator("PAD", (name, _numbers(network, f"{operator.name}.pads", rows)), padded, "PadOptions")
    )
    return padded, VALID, strides, dilations


def _window(padding: str, strides: tuple[int, ...]) -> dict[str, int | str]:
    return {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1]}


def _convolution(network: TfliteNetwork, graph: Graph, operator: Operator) -> None:
    _, weight, bias = operator.inputs
    results, each, *kernel = graph.shape(weight)
    channels, groups = graph.shape(operator.inputs[0])[1], int(str(operator.attributes.get("group", 1)))
    read, padding, strides, dilations = _padded(network, graph, operator, tuple(kernel))
    settings = {**_window(padding, strides), "DilationHFactor": dilations[0], "DilationWFactor": dilations[1]}
    if groups == 1:
        inputs = (read, _constant(network, graph, weight, NHWC), _constant(network, graph, bias, (0,)))
        network.steps.append(
            TfliteOperator("CONV_2D", inputs, operator.outputs[0], "Conv2DOptions", settings)
        )
    elif groups == channels and each == 1:
        inputs = (
            read,
            _constant(network, graph, weight, (1, 2, 3, 0)),
            _constant(network, graph, bias, (0,)),
        )
        settings["DepthMultiplier"] = results // channels
        network.steps.append(
            TfliteOperator(
                "DEPTHWISE_CONV_2D", inputs, operator.outputs[0], "DepthwiseConv2DOptions", settings
            )
        )
    else:
        raise UnsupportedModel(
            f"node {operator.name!r}: {groups} groups of {each} channels; "
            "accepted: one group, or as many as channels"
        )


def _max_pool(network: TfliteNetwork, graph: Graph, operator: Operator) -> None:
    kernel = _ints(operator, "kernel_shape", (1, 1))
    read, padding, strides, _ = _padded(network, graph, operator, kernel)
    quantization = network.tensors[read].quantization
    if read != operator.inputs[0] and (
        quantization is None or quantization.zero_point[0] != np.iinfo(np.int8).min
    ):
        raise UnsupportedModel(
            f"node {operator.name!r}: padded where the least element is not the zero point, which PAD writes"
        )
    settings = {**_window(padding, strides), "FilterHeight": kernel[0], "FilterWidth": kernel[1]}
    network.steps.append(
        TfliteOperator("MAX_POOL_2D", (read,), operator.outputs[0], "Pool2DOptions", settings)
    )


def _sum(network: TfliteNetwork, graph: Graph, operator: Operator) -> None:
    network.steps.append(TfliteOperator("ADD", operator.inputs, operator.outputs[0], "AddOptions"))


def _mean(network: TfliteNetwork, graph: Graph, operator: Operator) -> None:
    axes = graph.constants[operator.inputs[1]]
    assert axes is not None
    where = _numbers(network, f"{operator.name}.axes", [NHWC.index(int(axis) % 4) for axis in axes])
    kept = len(graph.shape(operator.outputs[0])) == len(NHWC)
    network.steps.append(
        TfliteOperator(
            "MEAN", (operator.inputs[0], where), operator.outputs[0], "ReducerOptions", {"KeepDims": kept}
        )
    )


def _reshape(network: TfliteNetwork, graph: Graph, operator: Operator) -> None:
    if graph.shape(operator.inputs[0])[2:] != (1, 1):
        raise UnsupportedModel(
            f"node {operator.name!r}: reshapes {graph.shape(operator.inputs[0])}; accepted: maps of one pixel"
        )
    shape = _numbers(network, f"{operator.name}.shape", graph.shape(operator.outputs[0]))
    network.steps.append(
        TfliteOperator("RESHAPE", (operator.inputs[0], shape), operator.outputs[0], "ReshapeOptions")
    )


def _fully_connected(network: TfliteNetwork, graph: Graph, operator: Operator) -> None:
    read, weight, bias = operator.inputs
    order = (0, 1) if operator.attributes.get("transB") else (1, 0)
    inputs = (read, _constant(network, graph, weight, order), _constant(network, graph, bias, (0,)))
    network.steps.append(
        TfliteOperator("FULLY_CONNECTED", inputs, operator.outputs[0], "FullyConnectedOptions")
    )


RULES: dict[str, Callable[[TfliteNetwork, Graph, Operator], None]] = {
    "Conv": _convolution,
    "MaxPool": _max_pool,
    "Add": _sum,
    "ReduceMean": _mean,
    "Reshape": _reshape,
    "Gemm": _fully_connected,
}


# -- bytes ---------------------------------------------------------------------------------------------------


class Packer:
    """Tables of the schema, one after the other into one file."""

    def __init__(self) -> None:
        self.builder: Any = import_module("flatbuffers").Builder(1 << 20)

    def table(self, kind: str, **fields: Any) -> int:
        """A table; fields that are None are left out."""
        schema = _schema(kind)
        getattr(schema, f"{kind}Start")(self.builder)
        for name, value in fields.items():
            if value is not None:
                getattr(schema, f"{kind}Add{name}")(self.builder, value)
        return getattr(schema, f"{kind}End")(self.builder)

    def tables(self, offsets: Sequence[int]) -> int:
        """A vector of tables."""
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return self.builder.EndVector()

    def numbers(self, values: Sequence[float], dtype: type = np.int32) -> int:
        """A vector of numbers."""
        return self.builder.CreateNumpyVector(np.array(values, dtype))

    def buffer(self, values: np.ndarray) -> int:
        """A constant's bytes, aligned as the schema wants them."""
        data = np.ascontiguousarray(values).tobytes()
        self.builder.StartVector(1, len(data), 16)
        self.builder.head -= len(data)
        self.builder.Bytes[self.builder.head : self.builder.head + len(data)] = data
        return self.table("Buffer", Data=self.builder.EndVector())

    def tensor(self, name: str, stored: TfliteTensor, buffer: int) -> int:
        """A tensor, whose values are in that buffer."""
        label, shape, scales = self.builder.CreateString(name), self.numbers(stored.shape), None
        if stored.quantization is not None:
            scale = self.numbers(stored.quantization.scale, np.float32)
            zero_point = self.numbers(stored.quantization.zero_point, np.int64)
            axis = stored.quantization.axis
            scales = self.table(
                "QuantizationParameters", Scale=scale, ZeroPoint=zero_point, QuantizedDimension=axis
            )
        return self.table(
            "Tensor",
            Name=label,
            Shape=shape,
            Type=_number("TensorType", TYPES[stored.dtype]),
            Buffer=buffer,
            Quantization=scales,
        )

    def operator(self, step: TfliteOperator, code: int, at: dict[str, int]) -> int:
        """An operator; `at`: numbers of tensors."""
        settings = {
            name: _number(name, value) if isinstance(value, str) else value
            for name, value in step.settings.items()
        }
        options, kind = self.table(step.options, **settings), _number("BuiltinOptions", step.options)
        inputs, outputs = self.numbers([at[name] for name in step.inputs]), self.numbers([at[step.output]])
        return self.table(
            "Operator",
            OpcodeIndex=code,
            Inputs=inputs,
            Outputs=outputs,
            BuiltinOptionsType=kind,
            BuiltinOptions=options,
        )

    def code(self, name: str) -> int:
        """A kind of operator."""
        number = _number("BuiltinOperator", name)
        return self.table(
            "OperatorCode", DeprecatedBuiltinCode=number, BuiltinCode=number, Version=VERSIONS.get(name, 1)
        )


def _packed(network: TfliteNetwork, graph: Graph) -> bytes:
    pack, at = Packer(), {name: k for k, name in enumerate(network.tensors)}
    codes = list(dict.fromkeys(step.code for step in network.steps))
    buffers, tensors = [pack.table("Buffer")], []  # the first is that of tensors without values
    for name, stored in network.tensors.items():
        if stored.values is not None:
            buffers.append(pack.buffer(stored.values))
        tensors.append(pack.tensor(name, stored, 0 if stored.values is None else len(buffers) - 1))
    steps = [pack.operator(step, codes.index(step.code), at) for step in network.steps]
    ends = [pack.numbers([at[name] for name in of]) for of in (graph.inputs, graph.outputs)]
    body = pack.table(
        "SubGraph",
        Tensors=pack.tables(tensors),
        Inputs=ends[0],
        Outputs=ends[1],
        Operators=pack.tables(steps),
    )
    kinds = pack.tables([pack.code(name) for name in codes])
    model = pack.table(
        "Model", Version=3, OperatorCodes=kinds, Subgraphs=pack.tables([body]), Buffers=pack.tables(buffers)
    )
    pack.builder.Finish(model, b"TFL3")
    return bytes(pack.builder.Output())


def _schema(table: str) -> Any:
    return import_module(f"ethosu.vela.tflite.{table}")


def _number(enumeration: str, name: str) -> int:
    return getattr(getattr(_schema(enumeration), enumeration), name)
