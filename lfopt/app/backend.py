"""lfopt as an ONNX backend, for ONNX's own conformance tests.

`Backend.prepare(model).run([x])` plans, compiles and runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
from onnx import ModelProto, NodeProto, helper
from onnx.backend import base

from codegen.arrays import array, by_name
from codegen.runtime import Compiled
from codegen.source import Unsupported
from lfopt.app.compiled import compile_graph, print_graph
from lfopt.frontend import from_model
from lfopt.ir import Graph, InvalidConfig, InvalidGraph, InvalidModel, MissingValues
from lfopt.rewrite import simplify

# what reading a model, and printing it as C, raise
REFUSALS = (Unsupported, InvalidModel, InvalidGraph, MissingValues)
CONSTANTS_ALONE = 4  # first version of the format in which constants need not be inputs too
OF_THE_RUNNER = frozenset({"rtol", "atol"})  # options that ONNX's test runner hands on


class Prepared(base.BackendRep):
    """A compiled model."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Outputs in the model's order, which can also be taken by name.

        `inputs`: as `Compiled.run` takes them.
        """
        outputs = self.compiled.run(inputs)
        names = [tensor.name for tensor in self.compiled.outputs]
        return base.namedtupledict("Outputs", names)(*(outputs[name] for name in names))


class Backend(base.Backend):
    """Generated C as ONNX's interface of backends.

    Further options are those of `lfopt.app.compiled.compile_graph`: threads, target, hardware.
    """

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `prepare` takes the model: it is planned and printed, not compiled."""
        if not cls.supports_device(device):
            return False
        try:
            print_graph(_graph(model), **_options(kwargs))
        except REFUSALS:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """The model, compiled or found in the cache.

        Raises InvalidConfig for another device than the CPU, and before anything is compiled whatever reading
        the model or printing it raises.
        """
        if not cls.supports_device(device):
            raise InvalidConfig(f"device: found {device!r}; accepted: CPU")
        graph = _graph(model)
        return Prepared(compile_graph(graph, label=graph.name, **_options(kwargs))[0])

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """One operator on one array for each input that it has.

        If the code takes but the first as an input, the others become constants of it.
        """
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        values = {
            name: array(value, name)
            for name, value in by_name(inputs, dict.fromkeys(names, ""), node.op_type).items()
        }
        model = _one_node(node, values, outputs_info, opset)
        if len(values) > 1 and not cls.is_compatible(model, device, **kwargs):
            first, *others = values
            model = bound(model, {name: values[name] for name in others})
            values = {first: values[first]}
        return cls.run_model(model, values, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The CPU alone."""
        return device.partition(":")[0] == "CPU"


def bound(model: ModelProto, values: Mapping[str, np.ndarray]) -> ModelProto:
    """The model with some of its inputs as constants; `values`: by input, in the shapes of the model."""
    closed = ModelProto()
    closed.CopyFrom(model)
    closed.ir_version = max(closed.ir_version, CONSTANTS_ALONE)
    kept = [value for value in closed.graph.input if value.name not in values]
    del closed.graph.input[:]
    closed.graph.input.extend(kept)
    closed.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in values.items()
    )
    return closed


def _graph(model: ModelProto) -> Graph:
    """The simplified network of a model.

    Raises Unsupported where inputs of the two differ in type.
    """
    if not isinstance(model, ModelProto):
        raise InvalidConfig(f"model: found {type(model).__name__}; accepted: an onnx.ModelProto")
    graph = simplify(from_model(model))
    taken_as = {graph.label(name): graph.end_type(name) for name in graph.inputs}
    for value in model.graph.input:
        declared = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name
        if (accepted_as := taken_as.get(value.name, declared)) != declared:
            raise Unsupported(
                f"input {value.name!r}: found {declared}, which lfopt takes as {accepted_as}; accepted: the "
                "same type"
            )
    return graph


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in OF_THE_RUNNER}


def _one_node(
    node: NodeProto,
    values: Mapping[str, np.ndarray],
    outputs: Sequence[tuple[np.dtype, tuple[int, ...]]] | None,
    opset: int,
) -> ModelProto:
    """A model of one operator; the types of its results are inferred where nobody says them."""
    names = [name for name in node.output if name]
    ends = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in values.items()
    ]
    if outputs is None:
        results = [helper.make_empty_tensor_value_info(name) for name in names]
    else:
        kinds = [(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape) for dtype, shape in outputs]
        results = [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in zip(names, kinds, strict=True)
        ]
    graph = helper.make_graph([node], node.op_type or "node", ends, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
    if outputs is not None:
        return model
    return onnx.shape_inference.infer_shapes(model)
