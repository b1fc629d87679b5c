"""A `torch.nn.Module` or a `torch.export.ExportedProgram` becomes an ONNX model, by torch.onnx."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from typing import Any

import torch
from onnx import ModelProto
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from lfopt.app.pytorch.fast_paths import FAST_PATHS
from lfopt.app.pytorch.tensors import type_of
from lfopt.frontend import InputShapes
from lfopt.ir import InvalidConfig, UnsupportedModel
from lfopt.ir.names import one_line

NEEDS = "onnxscript"  # of torch.onnx
BOUND = "bound_"  # begins the names of weights that a graph of Dynamo's has as inputs
OPERATOR = re.compile(r"OpOverload\(op='([\w.:]+)'")
TRAINING = "a forward pass that changes nothing in place; call .eval() where BatchNorm is in training mode"


@dataclass(frozen=True)
class Exported:
    """A program as ONNX, and where its tensors are."""

    proto: ModelProto
    inputs: Mapping[str, str]  # type and shape in PyTorch of each tensor of a call, in order, by name
    # flat, by name; a name may be there twice; None for a result that is None
    outputs: tuple[str | None, ...]
    types: Mapping[str, str]  # of outputs in PyTorch, by name


def check_installed() -> None:
    """Check that torch.onnx can be used. Raises InvalidConfig."""
    if find_spec(NEEDS) is None:
        raise InvalidConfig(
            f"{NEEDS}: not installed, and torch.onnx needs it; accepted: pip install 'lfopt[torch]'"
        )


def to_onnx(model: object, input_shapes: InputShapes | None = None) -> ModelProto:
    """The ONNX model of a Module or of an ExportedProgram.

    `input_shapes`: of a Module's inputs, by their names in `forward`, all of float32; an ExportedProgram
    knows its own. Raises InvalidConfig, UnsupportedModel.
    """
    if isinstance(model, ExportedProgram):
        return exported(model, _name_of(model)).proto
    if not isinstance(model, torch.nn.Module):
        raise InvalidConfig(
            f"model: found {type(model).__name__}; accepted: a torch.nn.Module or a "
            "torch.export.ExportedProgram"
        )
    label = type(model).__name__
    known = list(signature(model.forward).parameters)
    if not isinstance(input_shapes, Mapping) or not input_shapes or not input_shapes.keys() <= set(known):
        if isinstance(input_shapes, Mapping) and input_shapes:
            given = ", ".join(map(repr, input_shapes))
        else:
            given = "no shapes"
        accepted = (
            f"shapes of float32 inputs of forward ({', '.join(known)}), or for inputs of other types "
            f"torch.export.export({label.lower()}, example)"
        )
        raise InvalidConfig(one_line(f"{label}: input_shapes: found {given}; accepted: {accepted}"))
    examples = {
        name: torch.zeros(*((shape,) if isinstance(shape, int) else shape))
        for name, shape in input_shapes.items()
    }
    return exported(captured(model, (), examples, label), label).proto


def captured(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], label: str
) -> ExportedProgram:
    """The program of a module for inputs of these shapes, by torch.export. Raises UnsupportedModel."""
    try:
        with _quietly():
            return torch.export.export(module, args, kwargs, strict=False)
    except Exception as error:  # of whatever kind: the module's own code runs here
        raise UnsupportedModel(f"{label}: torch.export: {reason(error)}") from error


def exported(program: ExportedProgram, label: str) -> Exported:
    """A program as ONNX, named `label`.

    Raises UnsupportedModel, also where it changes inputs, parameters or buffers in place; InvalidConfig.
    """
    check_installed()
    ends = program.graph_signature
    for what, spec in (
        *(("input", spec) for spec in ends.input_specs),
        *(("output", spec) for spec in ends.output_specs),
    ):
        if isinstance(spec.arg, TensorArgument) or (
            isinstance(spec.arg, ConstantArgument) and (what == "input" or spec.arg.value is None)
        ):
            continue
        export = repr(spec.arg.value) if isinstance(spec.arg, ConstantArgument) else type(spec.arg).__name__
        raise UnsupportedModel(
            one_line(
                f"{label}: {what}: found {export}; accepted: tensors{' and None' if what == 'output' else ''}"
            )
        )
    program, proto = _translated(program, label)
    proto.graph.name = label
    ends = program.graph_signature
    changed = [
        *ends.buffers_to_mutate.values(),
        *ends.user_inputs_to_mutate.values(),
        *ends.parameters_to_mutate.values(),
    ]
    if changed:
        raise UnsupportedModel(
            f"{label}: found {changed[0].removeprefix(BOUND)!r} changed in place; accepted: {TRAINING}"
        )
    given = [
        spec.arg.name
        for spec in ends.input_specs
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]
    results = [spec.arg for spec in ends.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    types = {
        node.name: type_of(value)
        for node in program.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor)
    }
    tensors = [arg.name for arg in results if isinstance(arg, TensorArgument)]
    names = [value.name for value in proto.graph.output]
    left = iter(names)
    export = Exported(
        proto,
        {value.name: types[name] for value, name in zip(proto.graph.input, given, strict=True)},
        tuple(next(left) if isinstance(arg, TensorArgument) else None for arg in results),
        {name: types[tensor] for name, tensor in zip(names, tensors, strict=True)},
    )
    # a module may give the same tensor twice, an ONNX model may not
    once = {value.name: value for value in proto.graph.output}
    del proto.graph.output[:]
    proto.graph.output.extend(once.values())
    return export


@contextmanager
def _quietly() -> Iterator[None]:
    """A context without gradients, and without exporters' warnings of deprecations and absent packages."""
    log = logging.getLogger("torch.onnx._internal.exporter")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with torch.inference_mode(mode=False), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        log.setLevel(level)


def _translated(program: ExportedProgram, label: str) -> tuple[ExportedProgram, ModelProto]:
    """A program of operators that torch.onnx knows, and its ONNX model. Raises UnsupportedModel."""
    try:
        with _quietly():
            if any(node.target in FAST_PATHS for node in program.graph.nodes):
                program = program.run_decompositions(FAST_PATHS)
            torch_program = torch.onnx.export(program, verbose=False)
            assert torch_program is not None and torch_program.exported_program is not None, (
                "what dynamo=True gives"
            )
            return torch_program.exported_program, torch_program.model_proto
    except Exception as error:  # torch.onnx has no one kind for operators that it does not know
        raise UnsupportedModel(f"{label}: torch.onnx: {reason(error)}") from error


def _name_of(program: ExportedProgram) -> str:
    """The class of the module that a program was made from, as its nodes have it; else what it is."""
    stack = next(
        (modules for node in program.graph.nodes if (modules := node.meta.get("nn_module_stack"))), {}
    )
    _, kind = next(iter(stack.values()), ("", "program"))
    if isinstance(kind, type):
        return kind.__name__
    return str(kind).rpartition(".")[2]


def reason(error: BaseException) -> str:
    """What an exporter says, in one line: the operator that it does not know, else the first cause."""
    causes = [*_causes(error)]
    unknown = next((match[1] for cause in causes if (match := OPERATOR.search(str(cause)))), None)
    if unknown:
        return f"no translation of operator {unknown}"
    return one_line(str(causes[-1]).strip().partition("\n\n")[0] or type(causes[-1]).__name__)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
