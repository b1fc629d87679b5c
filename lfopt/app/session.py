"""A compiled model with the methods of ONNX Runtime's session that scoring code calls.

They are `run(None, feed)`, `get_inputs()` and `get_outputs()`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from onnx import ValueInfoProto, helper

from codegen.arrays import Array
from codegen.elements import ELEMENT
from codegen.runtime import Compiled
from codegen.target import TARGET, THREADS
from lfopt.app.by_shape import CompiledByShape
from lfopt.app.compiled import CPU, compile_model
from lfopt.app.options import CPU_HELP, INPUT_SHAPES, ElementOption, TargetOption, ThreadsOption, TuneOption
from lfopt.app.pipeline import Model
from lfopt.frontend import InputShapes
from lfopt.frontend.shapes import Dim, dims_of
from lfopt.ir import Graph, Hardware, InvalidConfig, Quantization, Tensor
from lfopt.ir.names import one_line

TYPES = {"float32": "float", "float64": "double"}  # as ONNX Runtime calls them; others as NumPy does


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output of a session."""

    name: str
    type: str  # such as tensor(float)
    shape: list[Dim]  # extents; names of those that are open
    # what the integers stand for that it is held as in the code, or is itself; None: it is not quantised
    quantization: Quantization | None = None


class InferenceSession:
    """A model as ONNX Runtime's `InferenceSession` takes and gives it.

    Options are those of `lfopt.compile`, by name.
    """

    def __init__(
        self,
        model: Model | Graph,
        *,
        threads: ThreadsOption = THREADS,
        target: TargetOption = TARGET,
        hardware: Annotated[Hardware | str | os.PathLike[str], CPU_HELP] = CPU,
        input_shapes: Annotated[InputShapes | None, INPUT_SHAPES] = None,
        element: ElementOption = ELEMENT,
        tune: TuneOption = False,
    ) -> None:
        """Compile the model, or find it compiled.

        Raises as `lfopt.compile`; InvalidConfig for a Module without `input_shapes`.
        """
        compiled = compile_model(
            model,
            threads=threads,
            target=target,
            hardware=hardware,
            input_shapes=input_shapes,
            element=element,
            tune=tune,
        )
        if not isinstance(compiled, Compiled | CompiledByShape):
            raise InvalidConfig(
                f"{type(model).__name__}: input_shapes: absent; accepted: shapes by name, as a session says "
                "what it takes"
            )
        self._compiled = compiled
        self._names = tuple(value.name for value in self.get_outputs())

    def get_inputs(self) -> list[NodeArg]:
        """Inputs in order."""
        if isinstance(self._compiled, Compiled):
            return [_of_tensor(tensor) for tensor in self._compiled.inputs]
        return [
            _of_value(value)
            for value in self._compiled.model.graph.input
            if value.name in self._compiled.inputs
        ]

    def get_outputs(self) -> list[NodeArg]:
        """Outputs in order."""
        if isinstance(self._compiled, Compiled):
            return [_of_tensor(tensor) for tensor in self._compiled.outputs]
        return [*map(_of_value, self._compiled.model.graph.output)]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array]) -> list[np.ndarray]:
        """Outputs of these names in the shapes and types of the model; None: all in order.

        Raises InvalidConfig for names that the model has not, and as `Compiled.run`.
        """
        wanted = self._names if output_names is None else output_names
        if isinstance(wanted, str):
            unknown = [wanted]
        else:
            unknown = [name for name in wanted if name not in self._names]
        if unknown:
            raise InvalidConfig(
                one_line(
                    f"output_names: found {unknown[0]!r}; accepted: None, or a list of "
                    f"{', '.join(map(repr, self._names))}"
                )
            )
        if not isinstance(input_feed, Mapping):
            raise InvalidConfig(f"input_feed: found {type(input_feed).__name__}; accepted: arrays by name")
        outputs = self._compiled.run(input_feed)
        return [outputs[name] for name in wanted]

    def __repr__(self) -> str:
        return f"InferenceSession({self._compiled!r})"


def _of_tensor(tensor: Tensor) -> NodeArg:
    kind = f"tensor({TYPES.get(tensor.dtype, tensor.dtype)})"
    return NodeArg(tensor.name, kind, list(tensor.shape), tensor.quantization)


def _of_value(value: ValueInfoProto) -> NodeArg:
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name
    return NodeArg(value.name, f"tensor({TYPES.get(dtype, dtype)})", list(dims_of(value) or ()))
